//! The options and commands, and how a command line becomes an [`Invocation`].
//!
//! Keeps true: the first argument decides between the commands and a run, and a run has no commands at all; prompt
//! words never reach the option parser, so no text can be taken for an option or an option for text; values are taken
//! verbatim whatever their first character (IN-04); help comes from one combined description.
//!
//! Must not know: the configuration's other layers, files, the terminal.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches, ValueEnum};

use super::scan::{Asked, JsonFlag, Scan, ScannedWord, scan};
use super::usage::{self, UsageError};
use super::words::{FirstWord, first_word};
use super::{PromptRequest, usage::shown};
use crate::model::Thinking;

const LONG_ABOUT: &str = "\
Runs an agent once: reads a prompt from arguments, a file or stdin, lets the model work with the enabled tools, \
prints its answer and exits with a code that tells how the run ended.

The answer goes to stdout and everything else to stderr. Into a pipe the answer is written once it is final.";

const PROMPT_HELP: &str = "\
The prompt: words are joined by one space. @FILE attaches a file, - stands for stdin. After -- everything is plain text";

const AFTER_HELP: &str = "\
Large prompts do not fit into an argument: pipe them in or use -f FILE.
A prompt whose first word is a command, or close to one, goes after --: pirn -- models of the atom";

const AFTER_LONG_HELP: &str = "\
Prompt: the text of -f, the words, attached files and stdin, in this order. With no other text stdin is the prompt; \
otherwise it follows the prompt as data. Beside other text only a pipe or a file is read, so a loop over files has to \
detach stdin: while read f; do pirn \"explain $f\" </dev/null; done
Large prompts do not fit into an argument: pipe them in or use -f FILE.

Commands: a command is recognised as the first argument only. A prompt whose first word is a command, or one or two \
letters off one, goes after --: pirn -- models of the atom. So does a prompt that begins with -.

Examples:
  pirn \"what does this repository do?\"
  git diff | pirn \"one-line summary of this change\"
  pirn @src/main.rs \"why does this not compile?\"
  pirn --json \"list the TODOs\" | jq -r 'select(.type==\"result\").text'
  pirn -m demo \"say hello\"";

const USAGE: &str = "pirn [OPTIONS] [PROMPT|@FILE]...
       pirn models [PATTERN] [--json]
       pirn help [COMMAND]";

/// Options that may stand only once.
const ONCE: [&str; 2] = ["prompt_file", "config"];

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation {
    /// Run the agent.
    Run(Box<RunArgs>),
    /// List models.
    Models(ModelsArgs),
    /// Print this text on stdout and exit 0.
    Print(String),
}

/// What `--json` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JsonLevel {
    /// Every event.
    Events,
    /// Whole messages, no deltas.
    Messages,
    /// The last line only.
    Result,
}

impl JsonLevel {
    /// The word of the flag and of `output.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Messages => "messages",
            Self::Result => "result",
        }
    }

    /// The level a word names, or `None`.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Events, Self::Messages, Self::Result].into_iter().find(|level| level.as_str() == word)
    }
}

/// The value of `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// The word of the flag and of `output.color`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// One prompt word as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// It stood after `--`: `@` and `-` mean nothing in it.
    pub literal: bool,
}

/// The options of a run, as typed.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct RunArgs {
    /// Prompt words in order; filled by [`parse`].
    #[arg(skip)]
    pub words: Vec<Word>,

    /// Does nothing; keeps the next word from being a command
    #[arg(short, long)]
    pub print: bool,

    /// Prompt text from a file, before the words; stdin stays free for data
    #[arg(short = 'f', long, value_name = "FILE", allow_hyphen_values = true)]
    pub prompt_file: Option<PathBuf>,

    /// Attach a text file; the same as @PATH
    #[arg(short, long, value_name = "PATH", allow_hyphen_values = true)]
    pub attach: Vec<PathBuf>,

    /// Do not read stdin even if it is a pipe
    #[arg(long)]
    pub no_stdin: bool,

    /// Model: provider/id, an alias or a unique suffix, with an optional :level
    #[arg(short, long, value_name = "SPEC", allow_hyphen_values = true)]
    pub model: Option<String>,

    /// How much the model thinks
    #[arg(long, value_name = "LEVEL", value_parser = thinking_parser())]
    pub thinking: Option<Thinking>,

    /// Replace the system prompt
    #[arg(long, value_name = "TEXT|@FILE", allow_hyphen_values = true)]
    pub system: Option<String>,

    /// Add to the system prompt; may be repeated
    #[arg(long, value_name = "TEXT|@FILE", allow_hyphen_values = true)]
    pub append_system: Vec<String>,

    /// Tools: names, globs, none or ro; a list of only +x and -x edits the configured set
    #[arg(short, long, value_name = "LIST", allow_hyphen_values = true)]
    pub tools: Option<String>,

    /// JSON lines on stdout: events (default), messages (no deltas) or result (the last line only)
    #[arg(
        long,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "events",
        conflicts_with = "stream"
    )]
    pub json: Option<JsonLevel>,

    /// Write text to stdout as it comes, even into a pipe
    #[arg(long)]
    pub stream: bool,

    /// Only errors on stderr
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// More on stderr: tools and a summary; twice for arguments and results
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Colour on stderr
    #[arg(long, value_name = "WHEN")]
    pub color: Option<ColorChoice>,

    /// Turns of the model in this run (default 200, 0 = no limit)
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number)]
    pub max_turns: Option<u32>,

    /// Wall clock for the whole run, such as 90s or 10m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub timeout: Option<String>,

    /// Configuration file; the only one this version reads
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    pub config: Option<PathBuf>,

    /// Set any configuration key; may be repeated
    #[arg(long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub set: Vec<String>,

    /// Run although there is a project or user file, which this version does not read
    #[arg(long)]
    pub bare: bool,

    /// Run as if started in this directory
    #[arg(short = 'C', long, value_name = "DIR", allow_hyphen_values = true)]
    pub cd: Option<PathBuf>,
}

impl RunArgs {
    /// The part of the call that makes the prompt.
    pub fn prompt_request(&self) -> PromptRequest {
        PromptRequest {
            words: self.words.clone(),
            file: self.prompt_file.clone(),
            attachments: self.attach.clone(),
            no_stdin: self.no_stdin,
        }
    }
}

/// The options of `pirn models`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelsArgs {
    /// Show only models whose provider/id contains this; filled by [`parse`].
    #[arg(skip)]
    pub pattern: Option<String>,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// The combined description: options of a run and every command. Help, completions and the manual page come from it.
pub fn command() -> Command {
    let help = Command::new("help")
        .about("Show help for pirn or for a command")
        .arg(Arg::new("command").value_name("COMMAND").help("The command to explain"));
    run_command().subcommand(models_command()).subcommand(help).override_usage(USAGE)
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
        FirstWord::Models => parse_models(rest),
        FirstWord::Help => parse_help(rest),
        FirstWord::Later(command) => Err(UsageError::new(format!("`{command}` is not available in this version"))
            .with_hint(format!("to send it as a prompt: pirn -- {command} ..."))),
        FirstWord::NearMiss(command) => Err(UsageError::new(format!("`{first}` looks like the command `{command}`"))
            .with_hint(format!("for the command: pirn {command}; for a prompt: pirn -- {first} ..."))),
    }
}

/// Whether this command line asks for JSON lines, so that a mistake elsewhere in it is answered with a `result` line.
/// Never fails; a level that does not exist counts as `events`.
pub fn wants_json<I: IntoIterator<Item = OsString>>(argv: I) -> Option<JsonLevel> {
    let arguments: Vec<OsString> = argv.into_iter().skip(1).collect();
    let first = arguments.first().and_then(|first| first.to_str()).unwrap_or_default();
    if matches!(first_word(first), FirstWord::Models | FirstWord::Help) {
        return None;
    }
    match scan(&built(run_command()), &arguments).json {
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
    Ok(Invocation::Run(Box::new(args)))
}

fn parse_models(arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let parser = built(models_command().bin_name("pirn models"));
    let mut found = scan(&parser, arguments);
    match found.asked {
        Some(Asked::ShortHelp) => return command_help("models", HelpForm::Short),
        Some(Asked::LongHelp) => return command_help("models", HelpForm::Long),
        Some(Asked::Version) | None => {}
    }
    let mut args: ModelsArgs = parse_options(parser, &found)?;
    let patterns = found.words.drain(..).map(word).collect::<Result<Vec<_>, _>>()?;
    let mut patterns = patterns.into_iter();
    args.pattern = patterns.next().map(|word| word.text);
    if let Some(second) = patterns.next() {
        let message = format!("`pirn models` takes one pattern, but `{}` was also given", shown(&second.text));
        return Err(UsageError::new(message).with_hint("for a prompt: pirn -- models ..."));
    }
    Ok(Invocation::Models(args))
}

fn parse_help(arguments: &[OsString]) -> Result<Invocation, UsageError> {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).filter(|w| !w.starts_with('-')).collect();
    match words.as_slice() {
        [] => Ok(Invocation::Print(long_help())),
        [name] => match first_word(name) {
            FirstWord::Models | FirstWord::Help => command_help(name, HelpForm::Long),
            FirstWord::Later(name) => Err(UsageError::new(format!("`{name}` is not available in this version"))),
            FirstWord::NearMiss(name) => {
                Err(UsageError::new(format!("no command `{}`", shown(words.first().unwrap_or(&""))))
                    .with_hint(format!("did you mean pirn help {name}?")))
            }
            FirstWord::Run => {
                Err(UsageError::new(format!("no command `{}`", shown(name))).with_hint("pirn help lists the commands"))
            }
        },
        [_, ..] => Err(UsageError::new("`pirn help` takes one command").with_hint("for a prompt: pirn -- help ...")),
    }
}

#[derive(Clone, Copy)]
enum HelpForm {
    Short,
    Long,
}

fn command_help(name: &str, form: HelpForm) -> Result<Invocation, UsageError> {
    let mut all = built(command());
    let Some(found) = all.find_subcommand_mut(name) else {
        return Err(UsageError::new(format!("no command `{name}`")));
    };
    let text = match form {
        HelpForm::Short => found.render_help(),
        HelpForm::Long => found.render_long_help(),
    };
    Ok(Invocation::Print(shown_help(&text.to_string())))
}

fn run_command() -> Command {
    let base = Command::new("pirn")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AFTER_HELP)
        .after_long_help(AFTER_LONG_HELP)
        .disable_help_subcommand(true)
        .arg(Arg::new("prompt").value_name("PROMPT|@FILE").num_args(0..).help(PROMPT_HELP));
    // Deriving the arguments sets the description of the type, so ours comes last.
    RunArgs::augment_args(base).mut_args(last_wins).about("One-shot agent for shells and CI").long_about(LONG_ABOUT)
}

/// The last of an option that is given twice counts, but for files, whose contents would be missed.
fn last_wins(arg: Arg) -> Arg {
    let replaces = matches!(arg.get_action(), ArgAction::Set | ArgAction::SetTrue);
    let id = arg.get_id().clone();
    if replaces && !ONCE.contains(&id.as_str()) { arg.overrides_with(id) } else { arg }
}

/// What `--max-turns` takes; the error says what, not how the reading failed.
fn whole_number(text: &str) -> Result<u32, String> {
    text.parse().ok().ok_or_else(|| format!("a whole number from 0 to {}", u32::MAX))
}

fn models_command() -> Command {
    let base = Command::new("models")
        .arg(Arg::new("pattern").value_name("PATTERN").help("Show only models whose provider/id contains this"));
    ModelsArgs::augment_args(base).about("List the models pirn knows and whether their provider has a key")
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

fn thinking_parser() -> impl TypedValueParser<Value = Thinking> {
    PossibleValuesParser::new(Thinking::ALL.map(Thinking::as_str))
        .try_map(|word| Thinking::from_word(&word).ok_or("no such level"))
}
