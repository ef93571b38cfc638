//! The one combined description of the command line: options of a run and every command with its verbs.
//!
//! Keeps true: help, completions and the manual page come from here, so that they cannot disagree with what is parsed;
//! what is described is what this version has.
//!
//! Must not know: how arguments are taken apart, what the commands do.

use clap::builder::{EnumValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, Args, Command, ValueHint};

use super::commands::{
    ConfigCheckArgs, ConfigInitArgs, ConfigPathArgs, ConfigShowArgs, ConfigTrustArgs, ModelsArgs, SessionsListArgs,
    SessionsShowArgs, Shell, SteerArgs,
};
use super::{RunArgs, words::Noun};

const LONG_ABOUT: &str = "\
Runs an agent once: reads a prompt from arguments, a file or stdin, lets the model work with the enabled tools, \
prints its answer and exits with a code that tells how the run ended.

The answer goes to stdout and everything else to stderr. Into a pipe the answer is written once it is final.";

const PROMPT_HELP: &str = "\
The prompt: words are joined by one space. @FILE attaches a file, - stands for stdin. After -- everything is plain text";

const AFTER_HELP: &str = "\
Large prompts do not fit into an argument: pipe them in or use -f FILE.
A prompt whose first word is a command, or close to one, goes after --: pirn -- models of the atom";

/// What the long help and the manual page say besides options.
pub(super) const NOTES: &str = "\
Prompt: the text of -f, the words, attached files and stdin, in this order. With no other text stdin is the prompt; \
otherwise it follows the prompt as data. Beside other text only a pipe or a file is read, so a loop over files has to \
detach stdin: while read f; do pirn \"explain $f\" </dev/null; done
Large prompts do not fit into an argument: pipe them in or use -f FILE.

Commands: a command is recognised as the first argument only. A prompt whose first word is a command, or one or two \
letters off one, goes after --: pirn -- models of the atom. So does a prompt that begins with -.

Models: -m names one, or several with commas between them. When the first one fails for good or has no key, the run \
goes on with the next. A failure that will pass is waited for and retried before that; retry.* says how often.

Tools: read and ls are on by default. write and bash are on only where a flag, a variable or a configuration file you \
trust names them; nothing asks again before they run.

Sessions: a run is kept unless --no-session or session.persist says otherwise. -c and a name find the sessions of this \
directory, an id or a file any; one that another process has open is exit code 75. What a killed run left open is put \
in order by the next -c. Model, thinking and tools stay those of the session unless the call names others.

Files: --events and -o are opened or checked before anything is sent. If they cannot be written later, the run is \
finished all the same and the exit code is 1. /dev/fd/N is the descriptor N of the caller.";

/// Calls that work.
pub(super) const EXAMPLES: &str = "  pirn \"what does this repository do?\"
  git diff | pirn \"one-line summary of this change\"
  pirn @src/main.rs \"why does this not compile?\"
  pirn -c \"and explain the fix in two lines\"
  pirn \"make the tests pass\" --then \"now explain the fix\" --max-cost 0.50
  pirn -m openai/gpt-5,fast \"hard question\"
  pirn --events run.jsonl -o answer.md \"review this\"
  pirn --json \"list the TODOs\" | jq -r 'select(.type==\"result\").text'
  pirn -m demo \"say hello\"";

const USAGE: &str = "pirn [OPTIONS] [PROMPT|@FILE]...
       pirn steer [OPTIONS] TEXT...
       pirn sessions <list|show>
       pirn models [PATTERN] [--json]
       pirn config <init|show|check|schema|path|trust>
       pirn completions <bash|zsh|fish|elvish|powershell|man>
       pirn help [COMMAND]";

const STEER_EXAMPLES: &str = "\
Examples:
  pirn steer \"also cover the Windows path\"
  pirn steer -s pr-12 --follow-up \"then run the linter\"
  git diff | pirn steer
  pirn steer --abort";

const SESSIONS_EXAMPLES: &str = "\
Examples:
  pirn sessions list
  pirn sessions list --all --json | jq -r .id
  pirn sessions show pr-12
  pirn sessions show --format json | jq .usage";

const CONFIG_EXAMPLES: &str = "\
Examples:
  pirn config init
  pirn config show --origin
  pirn config check
  pirn config trust";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  pirn completions bash > ~/.local/share/bash-completion/completions/pirn
  pirn completions zsh > ~/.zfunc/_pirn
  pirn completions fish > ~/.config/fish/completions/pirn.fish
  pirn completions man > ~/.local/share/man/man1/pirn.1";

/// Options that may stand only once: what the other one names would be lost in silence.
const ONCE: [&str; 7] = ["prompt_file", "config", "profile", "session", "events", "output", "log"];

/// The combined description.
pub fn command() -> Command {
    run_command()
        .subcommand(steer_command())
        .subcommand(sessions_command())
        .subcommand(models_command())
        .subcommand(config_command())
        .subcommand(completions_command())
        .subcommand(help_command())
        .override_usage(USAGE)
}

/// A run alone: nothing in it is a command.
pub(super) fn run_command() -> Command {
    let prompt = Arg::new("prompt").value_name("PROMPT|@FILE").num_args(0..).help(PROMPT_HELP);
    let base = Command::new("pirn")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AFTER_HELP)
        .after_long_help(format!("{NOTES}\n\nExamples:\n{EXAMPLES}"))
        .disable_help_subcommand(true)
        .arg(prompt.value_hint(ValueHint::Other));
    // Deriving the arguments sets the description of the type, so ours comes last.
    RunArgs::augment_args(base).mut_args(last_wins).about("One-shot agent for shells and CI").long_about(LONG_ABOUT)
}

/// One command with its verbs, or one verb of it. `None` if there is no such verb.
pub(super) fn leaf(noun: Noun, verb: Option<&str>) -> Option<Command> {
    let command = match noun {
        Noun::Steer => steer_command(),
        Noun::Sessions => sessions_command(),
        Noun::Models => models_command(),
        Noun::Config => config_command(),
        Noun::Completions => completions_command(),
        Noun::Help => help_command(),
    };
    let name = format!("pirn {}", noun.as_str());
    match verb {
        None => Some(command.bin_name(name)),
        Some(verb) => Some(command.find_subcommand(verb)?.clone().bin_name(format!("{name} {verb}"))),
    }
}

/// The last of an option that is given twice counts, but for names, one of which would be lost.
fn last_wins(arg: Arg) -> Arg {
    let replaces = matches!(arg.get_action(), ArgAction::Set | ArgAction::SetTrue);
    let id = arg.get_id().clone();
    if replaces && !ONCE.contains(&id.as_str()) { arg.overrides_with(id) } else { arg }
}

fn steer_command() -> Command {
    let text = Arg::new("text").value_name("TEXT").num_args(0..).value_hint(ValueHint::Other);
    let text = text
        .help("The message: words are joined by one space; - stands for stdin. Without words, stdin is the message");
    SteerArgs::augment_args(Command::new("steer").arg(text))
        .mut_args(last_wins)
        .about("Send a message to a session while it runs, or end its run")
        .after_help(STEER_EXAMPLES)
}

fn sessions_command() -> Command {
    let query = Arg::new("query").value_name("QUERY").help("Show only sessions whose name, id or text contains this");
    let reference = Arg::new("reference")
        .value_name("REF")
        .help("Name, id, part of an id or file; the latest one here if none is given");
    let list = SessionsListArgs::augment_args(Command::new("list").arg(query.value_hint(ValueHint::Other)));
    let show = SessionsShowArgs::augment_args(Command::new("show").arg(reference.value_hint(ValueHint::Other)));
    noun("sessions", "List stored sessions, or show one", SESSIONS_EXAMPLES)
        .subcommand(list.mut_args(last_wins).about("List the sessions of this directory, the latest first"))
        .subcommand(show.mut_args(last_wins).about("Show a session; known secrets are masked"))
}

fn models_command() -> Command {
    let pattern = Arg::new("pattern").value_name("PATTERN").help("Show only models whose provider/id contains this");
    ModelsArgs::augment_args(Command::new("models").arg(pattern.value_hint(ValueHint::Other)))
        .mut_args(last_wins)
        .about("List the models pirn knows and whether their provider has a key")
}

fn config_command() -> Command {
    let files = Arg::new("files").value_name("FILE").num_args(0..).value_hint(ValueHint::FilePath);
    let files = files.help("Files to check instead of those a run reads");
    let file = Arg::new("file").value_name("FILE").value_hint(ValueHint::FilePath);
    let file = file.help("The file to trust; the project's if none is given");
    let init = ConfigInitArgs::augment_args(Command::new("init"));
    let show = ConfigShowArgs::augment_args(Command::new("show"));
    let check = ConfigCheckArgs::augment_args(Command::new("check").arg(files));
    let path = ConfigPathArgs::augment_args(Command::new("path"));
    let trust = ConfigTrustArgs::augment_args(Command::new("trust").arg(file));
    noun("config", "Write, show, check and trust configuration files", CONFIG_EXAMPLES)
        .subcommand(init.mut_args(last_wins).about("Write a starter file whose keys are comments"))
        .subcommand(show.mut_args(last_wins).about("Print the settings a run would have, as TOML"))
        .subcommand(check.mut_args(last_wins).about("Check the configuration and report every mistake in it"))
        .subcommand(Command::new("schema").about("Print the JSON Schema of configuration files"))
        .subcommand(path.mut_args(last_wins).about("Print the configuration files there are, lowest layer first"))
        .subcommand(trust.mut_args(last_wins).about("Trust the project's file as it is now"))
}

fn completions_command() -> Command {
    let shell = Arg::new("shell").value_name("SHELL").value_parser(EnumValueParser::<Shell>::new());
    Command::new("completions")
        .arg(shell.required(true).help("The shell, or man for the manual page"))
        .about("Write a completion script or the manual page to stdout")
        .after_help(COMPLETIONS_EXAMPLES)
}

fn help_command() -> Command {
    let commands = PossibleValuesParser::new(Noun::ALL.map(Noun::as_str));
    let topic = Arg::new("command").value_name("COMMAND").num_args(0..=2).value_parser(commands);
    Command::new("help")
        .about("Show help for pirn or for a command")
        .arg(topic.help("The command to explain, and perhaps its verb"))
}

/// A command that is nothing without a verb.
fn noun(name: &'static str, about: &'static str, examples: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .after_help(examples)
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommand_value_name("VERB")
        .subcommand_help_heading("Verbs")
}

#[cfg(test)]
mod tests {
    use super::{Noun, Shell, USAGE, command, leaf};

    #[test]
    fn the_usage_lines_the_verbs_and_the_description_agree() {
        let all = command();
        let names: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, Noun::ALL.map(Noun::as_str));
        for noun in Noun::ALL {
            let command = leaf(noun, None).unwrap();
            let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            assert_eq!(verbs, noun.verbs(), "{noun:?}");
            let values = if noun == Noun::Completions { Shell::ALL.map(Shell::as_str).to_vec() } else { verbs };
            let list = if values.is_empty() { String::new() } else { format!(" <{}>", values.join("|")) };
            assert!(USAGE.contains(&format!("pirn {}{list}", noun.as_str())), "{noun:?}");
            assert!(leaf(noun, Some("nonsense")).is_none());
        }
    }

    #[test]
    fn the_description_is_sound() {
        command().debug_assert();
    }
}
