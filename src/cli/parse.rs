//! How a command line becomes an [`Invocation`].
//!
//! Keeps true: the first argument decides between the commands and a run, and a run has no commands at all; prompt
//! words never reach the option parser, so no text can be taken for an option or an option for text; a mistyped command
//! or verb is never taken for a prompt.
//!
//! Must not know: what the commands do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Command, FromArgMatches};

use super::args::{JsonLevel, RunArgs, Word};
use super::commands::{ConfigArgs, ConfigPathArgs, ModelsArgs, SessionsArgs, Shell, SteerArgs};
use super::describe::{command, leaf, run_command};
use super::scan::{Asked, JsonFlag, Scan, ScannedWord, scan};
use super::usage::{self, UsageError, shown};
use super::words::{self, FirstWord, Noun, Verb, first_word};

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation {
    /// Run the agent.
    Run(Box<RunArgs>),
    /// Send a message to a session.
    Steer(SteerArgs),
    /// List models.
    Models(ModelsArgs),
    /// Look at stored sessions.
    Sessions(SessionsArgs),
    /// Write, show, check or trust configuration.
    Config(ConfigArgs),
    /// Print a completion script or the manual page.
    Completions(Shell),
    /// Print this text on stdout and exit 0.
    Print(String),
}

/// The short help, for stderr when a call asks for nothing.
pub fn short_help() -> String {
    shown_help(&command().render_help().to_string())
}

/// A help text without the blanks the renderer leaves on empty lines.
fn shown_help(rendered: &str) -> String {
    rendered.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

fn long_help() -> String {
    shown_help(&command().render_long_help().to_string())
}

/// Parses a whole command line, program name first.
///
/// # Errors
/// A mistake in the call, with the remedy where there is one.
pub fn parse<I: IntoIterator<Item = OsString>>(argv: I) -> Result<Invocation, UsageError> {
    let arguments: Vec<OsString> = argv.into_iter().skip(1).collect();
    let (first, rest) = match arguments.split_first() {
        Some((first, rest)) => (first.to_str().unwrap_or_default(), rest),
        None => ("", arguments.as_slice()),
    };
    match first_word(first) {
        FirstWord::Run => parse_run(&arguments),
        FirstWord::Command(Noun::Steer) => parse_steer(rest),
        FirstWord::Command(Noun::Models) => parse_models(rest),
        FirstWord::Command(Noun::Completions) => parse_completions(rest),
        FirstWord::Command(Noun::Help) => parse_help(rest),
        FirstWord::Command(noun @ (Noun::Sessions | Noun::Config)) => parse_verb(noun, rest),
        FirstWord::Later(command) => Err(not_yet(command).with_hint(as_prompt(command))),
        FirstWord::NearMiss(command) => Err(UsageError::new(format!("`{first}` looks like the command `{command}`"))
            .with_hint(format!("for the command: pirn {command}; for a prompt: pirn -- {first} ..."))),
    }
}

fn not_yet(command: &str) -> UsageError {
    UsageError::new(format!("`{command}` is not available in this version"))
}

fn as_prompt(command: &str) -> String {
    format!("to send it as a prompt: pirn -- {command} ...")
}

/// Whether this command line means a run, though it may be a wrong one, and not one of the other commands.
pub fn is_run<I: IntoIterator<Item = OsString>>(argv: I) -> bool {
    let first = argv.into_iter().nth(1);
    let first = first.as_ref().and_then(|first| first.to_str()).unwrap_or_default();
    !matches!(first_word(first), FirstWord::Command(_))
}

/// Whether this command line asks for JSON lines, so that a mistake elsewhere in it is answered with a `result` line.
/// Never fails; a level that does not exist counts as `events`.
pub fn wants_json<I: IntoIterator<Item = OsString>>(argv: I) -> Option<JsonLevel> {
    let argv: Vec<OsString> = argv.into_iter().collect();
    if !is_run(argv.iter().cloned()) {
        return None;
    }
    match scan(&built(run_command()), argv.get(1..).unwrap_or_default()).json {
        JsonFlag::Absent => None,
        JsonFlag::Bare => Some(JsonLevel::Events),
        JsonFlag::Level(word) => Some(JsonLevel::from_word(&word).unwrap_or(JsonLevel::Events)),
    }
}

fn parse_run(arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let parser = built(run_command());
    let found = scan(&parser, arguments);
    match found.asked {
        Some(Asked::ShortHelp) => return Ok(Invocation::Print(short_help())),
        Some(Asked::LongHelp) => return Ok(Invocation::Print(long_help())),
        Some(Asked::Version) => return Ok(Invocation::Print(version())),
        None => {}
    }
    let mut args: RunArgs = parse_options(parser, &found)?;
    args.words = found.words.into_iter().map(word).collect::<Result<_, _>>()?;
    refuse_level_as_prompt(&args, &found.json)?;
    if args.no_resend && !args.resume && args.session.is_none() {
        let error = UsageError::new("--no-resend needs --continue or --session");
        return Err(error.with_hint("it says what becomes of a request that a session left open"));
    }
    Ok(Invocation::Run(Box::new(args)))
}

/// The arguments of a command or verb that has no further verbs, taken apart.
struct Leaf {
    /// As it is called: `pirn sessions list`.
    name: String,
    parser: Command,
    found: Scan,
}

/// Either the arguments of a command, or its help, if they ask for that.
enum Taken {
    Leaf(Box<Leaf>),
    Help(Invocation),
}

fn take(noun: Noun, verb: Option<&str>, arguments: &[OsString]) -> Result<Taken, UsageError> {
    let Some(parser) = leaf(noun, verb) else { return Err(UsageError::new(format!("no command `{}`", noun.as_str()))) };
    let parser = built(parser);
    let found = scan(&parser, arguments);
    match found.asked {
        Some(Asked::ShortHelp) => return Ok(Taken::Help(help_of(noun, verb, HelpForm::Short)?)),
        Some(Asked::LongHelp) => return Ok(Taken::Help(help_of(noun, verb, HelpForm::Long)?)),
        Some(Asked::Version) | None => {}
    }
    let name = parser.get_bin_name().unwrap_or_default().to_owned();
    Ok(Taken::Leaf(Box::new(Leaf { name, parser, found })))
}

impl Leaf {
    /// The options, and at most one word, which is `what`.
    fn with_word<T: FromArgMatches>(mut self, what: &str) -> Result<(T, Option<String>), UsageError> {
        let words = std::mem::take(&mut self.found.words);
        let (name, options) = (self.name.clone(), self.options()?);
        let words = words.into_iter().map(word).collect::<Result<Vec<_>, _>>()?;
        let mut words = words.into_iter();
        let first = words.next().map(|word| word.text);
        match words.next() {
            None => Ok((options, first)),
            Some(second) => Err(one_too_many(&name, what, &second.text)),
        }
    }

    /// The options, and paths, of which there may be `max`.
    fn with_paths<T: FromArgMatches>(mut self, max: usize) -> Result<(T, Vec<PathBuf>), UsageError> {
        let words = std::mem::take(&mut self.found.words);
        let (name, options) = (self.name.clone(), self.options()?);
        match words.get(max) {
            None => Ok((options, words.into_iter().map(|word| word.text.into()).collect())),
            Some(extra) => {
                let what = if max == 0 { "no argument" } else { "one file" };
                Err(one_too_many(&name, what, &extra.text.to_string_lossy()))
            }
        }
    }

    fn options<T: FromArgMatches>(self) -> Result<T, UsageError> {
        parse_options(self.parser, &self.found)
    }
}

fn one_too_many(name: &str, what: &str, extra: &str) -> UsageError {
    let words = name.strip_prefix("pirn ").unwrap_or(name);
    UsageError::new(format!("`{name}` takes {what}, but `{}` was also given", shown(extra)))
        .with_hint(format!("for a prompt: pirn -- {words} ..."))
}

fn parse_steer(arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let mut leaf = match take(Noun::Steer, None, arguments)? {
        Taken::Leaf(leaf) => leaf,
        Taken::Help(help) => return Ok(help),
    };
    let words = std::mem::take(&mut leaf.found.words);
    let args: SteerArgs = leaf.options()?;
    let words = words.into_iter().map(word).collect::<Result<Vec<_>, _>>()?;
    match words.first() {
        Some(word) if args.abort => {
            Err(UsageError::new(format!("--abort takes no text, but `{}` was given", shown(&word.text)))
                .with_hint("send the text first, or leave --abort out"))
        }
        Some(_) | None => Ok(Invocation::Steer(SteerArgs { words, ..args })),
    }
}

fn parse_models(arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let leaf = match take(Noun::Models, None, arguments)? {
        Taken::Leaf(leaf) => leaf,
        Taken::Help(help) => return Ok(help),
    };
    let (args, pattern) = leaf.with_word::<ModelsArgs>("one pattern")?;
    Ok(Invocation::Models(ModelsArgs { pattern, ..args }))
}

fn parse_completions(arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let mut leaf = match take(Noun::Completions, None, arguments)? {
        Taken::Leaf(leaf) => leaf,
        Taken::Help(help) => return Ok(help),
    };
    let all = Shell::ALL.map(Shell::as_str).join(", ");
    // The shell is a word, and so no business of the option parser.
    leaf.parser = leaf.parser.mut_arg("shell", |shell| shell.required(false));
    let (Nothing, word) = leaf.with_word::<Nothing>("one shell")?;
    let Some(word) = word else {
        return Err(UsageError::new("`pirn completions` needs a shell")
            .with_hint(format!("one of {all}; {}", as_prompt("completions"))));
    };
    match Shell::from_word(&word) {
        Some(shell) => Ok(Invocation::Completions(shell)),
        None => Err(UsageError::new(format!("there are no completions for `{}`; there are {all}", shown(&word)))
            .with_hint(as_prompt("completions"))),
    }
}

/// The options of a command that has none.
struct Nothing;

impl FromArgMatches for Nothing {
    fn from_arg_matches(_: &clap::ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &clap::ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

/// Finds the verb, which is the word directly behind the command.
fn parse_verb(noun: Noun, arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let name = noun.as_str();
    let verbs = noun.verbs().join(", ");
    let Some((first, rest)) = arguments.split_first() else {
        return Err(UsageError::new(format!("`pirn {name}` needs a verb: {verbs}"))
            .with_hint(format!("pirn help {name} explains them; {}", as_prompt(name))));
    };
    let first = first.to_str().unwrap_or_default();
    match words::verb(noun, first) {
        Verb::Known(verb) => match take(noun, Some(verb), rest)? {
            Taken::Leaf(leaf) => parse_leaf(noun, verb, *leaf),
            Taken::Help(help) => Ok(help),
        },
        Verb::Later(verb) => Err(not_yet(&format!("pirn {name} {verb}")).with_hint(as_prompt(name))),
        Verb::NearMiss(verb) => Err(UsageError::new(format!("`pirn {name}` has no verb `{}`", shown(first)))
            .with_hint(format!("did you mean pirn {name} {verb}? {}", as_prompt(name)))),
        Verb::Unknown if first.starts_with('-') => {
            // Only help is asked for in front of a verb.
            match take(noun, None, arguments)? {
                Taken::Help(help) => Ok(help),
                Taken::Leaf(_) => Err(UsageError::new(format!("`pirn {name}` needs its verb first: {verbs}"))
                    .with_hint(format!("pirn help {name} explains them"))),
            }
        }
        Verb::Unknown => Err(UsageError::new(format!("`pirn {name}` has no verb `{}`", shown(first)))
            .with_hint(format!("its verbs are {verbs}; {}", as_prompt(name)))),
    }
}

fn parse_leaf(noun: Noun, verb: &str, leaf: Leaf) -> Result<Invocation, UsageError> {
    use super::commands::{
        ConfigCheckArgs, ConfigInitArgs, ConfigShowArgs, ConfigTrustArgs, SessionsListArgs, SessionsShowArgs,
    };
    Ok(match (noun, verb) {
        (Noun::Sessions, "list") => {
            let (args, query) = leaf.with_word::<SessionsListArgs>("one query")?;
            Invocation::Sessions(SessionsArgs::List(SessionsListArgs { query, ..args }))
        }
        (Noun::Sessions, _) => {
            let (args, reference) = leaf.with_word::<SessionsShowArgs>("one session")?;
            Invocation::Sessions(SessionsArgs::Show(SessionsShowArgs { reference, ..args }))
        }
        (_, "init") => Invocation::Config(ConfigArgs::Init(leaf.with_paths::<ConfigInitArgs>(0)?.0)),
        (_, "show") => Invocation::Config(ConfigArgs::Show(leaf.with_paths::<ConfigShowArgs>(0)?.0)),
        (_, "check") => {
            let (args, files) = leaf.with_paths::<ConfigCheckArgs>(usize::MAX)?;
            Invocation::Config(ConfigArgs::Check(ConfigCheckArgs { files, ..args }))
        }
        (_, "schema") => {
            let (Nothing, _) = leaf.with_paths::<Nothing>(0)?;
            Invocation::Config(ConfigArgs::Schema)
        }
        (_, "path") => Invocation::Config(ConfigArgs::Path(leaf.with_paths::<ConfigPathArgs>(0)?.0.layers)),
        _ => {
            let (args, files) = leaf.with_paths::<ConfigTrustArgs>(1)?;
            Invocation::Config(ConfigArgs::Trust(ConfigTrustArgs { file: files.into_iter().next(), ..args }))
        }
    })
}

fn parse_help(arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).filter(|w| !w.starts_with('-')).collect();
    let (name, more) = match words.as_slice() {
        [] => return Ok(Invocation::Print(long_help())),
        [name, more @ ..] => (*name, more),
    };
    match (first_word(name), more) {
        (FirstWord::Command(noun), []) => help_of(noun, None, HelpForm::Long),
        (FirstWord::Command(noun), [verb]) if !noun.verbs().is_empty() => match words::verb(noun, verb) {
            Verb::Known(verb) => help_of(noun, Some(verb), HelpForm::Long),
            Verb::Later(verb) => Err(not_yet(&format!("{name} {verb}"))),
            Verb::NearMiss(near) => Err(UsageError::new(format!("no command `{name} {}`", shown(verb)))
                .with_hint(format!("did you mean pirn help {name} {near}?"))),
            Verb::Unknown => Err(UsageError::new(format!("no command `{name} {}`", shown(verb)))
                .with_hint(format!("pirn help {name} lists its verbs"))),
        },
        (FirstWord::Later(name), []) => Err(not_yet(name)),
        (FirstWord::NearMiss(near), []) => Err(UsageError::new(format!("no command `{}`", shown(name)))
            .with_hint(format!("did you mean pirn help {near}?"))),
        (FirstWord::Run, []) => {
            Err(UsageError::new(format!("no command `{}`", shown(name))).with_hint("pirn help lists the commands"))
        }
        (_, [_, ..]) => {
            Err(UsageError::new("`pirn help` takes one command").with_hint("for a prompt: pirn -- help ..."))
        }
    }
}

#[derive(Clone, Copy)]
enum HelpForm {
    Short,
    Long,
}

fn help_of(noun: Noun, verb: Option<&str>, form: HelpForm) -> Result<Invocation, UsageError> {
    let mut all = built(command());
    let mut found = all.find_subcommand_mut(noun.as_str());
    if let Some(verb) = verb {
        found = found.and_then(|command| command.find_subcommand_mut(verb));
    }
    let Some(found) = found else { return Err(UsageError::new(format!("no command `{}`", noun.as_str()))) };
    let text = match form {
        HelpForm::Short => found.render_help(),
        HelpForm::Long => found.render_long_help(),
    };
    Ok(Invocation::Print(shown_help(&text.to_string())))
}

fn built(mut command: Command) -> Command {
    command.build();
    command
}

fn parse_options<T: FromArgMatches>(parser: Command, found: &Scan) -> Result<T, UsageError> {
    let program = std::iter::once(OsString::from("pirn"));
    let matches = parser
        .try_get_matches_from(program.chain(found.options.iter().cloned()))
        .map_err(|error| usage::from_clap(&error))?;
    T::from_arg_matches(&matches).map_err(|error| usage::from_clap(&error))
}

fn word(scanned: ScannedWord) -> Result<Word, UsageError> {
    match scanned.text.into_string() {
        Ok(text) => Ok(Word { text, literal: scanned.literal }),
        Err(_) => Err(usage::not_utf8()),
    }
}

/// `pirn --json result` would bill a run whose prompt is "result".
fn refuse_level_as_prompt(args: &RunArgs, json: &JsonFlag) -> Result<(), UsageError> {
    let ([Word { text, literal: false }], JsonFlag::Bare) = (args.words.as_slice(), json) else { return Ok(()) };
    if JsonLevel::from_word(text).is_none() {
        return Ok(());
    }
    Err(UsageError::new(format!("`--json {text}` would send `{text}` as the prompt"))
        .with_hint(format!("for the level: --json={text}; for the prompt: --json -- {text}")))
}

fn version() -> String {
    format!("pirn {}\n", env!("CARGO_PKG_VERSION"))
}
