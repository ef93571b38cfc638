//! Completion scripts for shells, made from the combined description.
//!
//! Keeps true: a command is offered as the first argument only, and behind it only what belongs to it; everything else
//! completes as a run: options, their values, files. The scripts are those of the generator for a run and for the
//! commands, each under a name of its own, and a few lines in front that choose between the two, which the generator
//! cannot express.
//!
//! Must not know: where a script is installed.

use clap::{Command, ValueHint};
use clap_complete::Shell as Generator;

use super::describe::{command, run_command};
use super::words::Noun;
use super::{Shell, manual};

/// The program, and the two halves of its completion.
const PROGRAM: &str = "pirn";
const RUN: &str = "pirn_run";
const COMMANDS: &str = "pirn_commands";

/// Makes the completion script of a shell, or the manual page, as [`super::completions`] shall have it.
pub fn generate(shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(),
        Shell::Zsh => zsh(),
        Shell::Fish => fish(),
        Shell::Elvish => elvish(),
        Shell::PowerShell => powershell(),
        Shell::Man => manual::manual(),
    }
}

/// The options of a run; a word of its prompt may be the name of a file.
fn run() -> Command {
    run_command().mut_arg("prompt", |prompt| prompt.value_hint(ValueHint::FilePath))
}

/// The commands alone, so that no option of a run is offered before or behind one.
fn commands() -> Command {
    let all = command();
    let only = Command::new(PROGRAM).disable_help_subcommand(true);
    only.subcommands(all.get_subcommands().cloned())
}

/// The same for generators that offer no values of an argument: each value becomes a verb of its command.
fn commands_with_values() -> Command {
    let verbs = |words: Vec<&'static str>| words.into_iter().map(|word| Command::new(word).disable_help_flag(true));
    commands().mut_subcommands(move |command| match command.get_name() {
        name if name == Noun::Completions.as_str() => command.subcommands(verbs(Shell::ALL.map(Shell::as_str).into())),
        name if name == Noun::Help.as_str() => command.subcommands(verbs(Noun::ALL.map(Noun::as_str).into())),
        _ => command,
    })
}

fn names() -> Vec<String> {
    command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Options of a run that name a file or a directory, in every spelling.
fn path_options() -> Vec<String> {
    let command = run_command();
    let is_path = |hint| matches!(hint, ValueHint::FilePath | ValueHint::DirPath);
    let options = command.get_arguments().filter(|arg| !arg.is_positional() && is_path(arg.get_value_hint()));
    options
        .flat_map(|arg| {
            let short = arg.get_short().map(|short| format!("-{short}"));
            let long = arg.get_long().map(|long| format!("--{long}"));
            short.into_iter().chain(long)
        })
        .collect()
}

fn generated(generator: Generator, mut command: Command, name: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut command, name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    // The generator leaves blanks at the ends of lines.
    script.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// What stands before `end`; everything if it does not appear.
fn before<'a>(script: &'a str, end: &str) -> &'a str {
    script.split_once(end).map_or(script, |(head, _)| head)
}

fn bash() -> String {
    const REGISTRATION: &str = "\nif [[ \"${BASH_VERSINFO[0]}\" -eq 4";
    let (run, commands) = (generated(Generator::Bash, run(), RUN), generated(Generator::Bash, commands(), COMMANDS));
    let names = names();
    format!(
        r#"{run}
{commands}
_pirn() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}"
    if [[ $COMP_CWORD -gt 1 ]]; then
        case "${{COMP_WORDS[1]}}" in
            {cases})
                _{COMMANDS} "$@"
                return
                ;;
        esac
    fi
    _{RUN} "$@"
    if [[ $current != -* && ( $COMP_CWORD -eq 1 || ${{COMPREPLY[0]}} == -* ) ]]; then
        # Not an option: a command in the first place, a file anywhere.
        COMPREPLY=()
        if [[ $COMP_CWORD -eq 1 ]]; then
            COMPREPLY=( $(compgen -W "{words}" -- "$current") )
        fi
    fi
}}

if [[ "${{BASH_VERSINFO[0]}}" -eq 4 && "${{BASH_VERSINFO[1]}}" -ge 4 || "${{BASH_VERSINFO[0]}}" -gt 4 ]]; then
    complete -F _pirn -o nosort -o bashdefault -o default {PROGRAM}
else
    complete -F _pirn -o bashdefault -o default {PROGRAM}
fi
"#,
        run = before(&run, REGISTRATION),
        commands = before(&commands, REGISTRATION),
        cases = names.join("|"),
        words = names.join(" "),
    )
}

fn zsh() -> String {
    let half = |command, name: &str| {
        let script = generated(Generator::Zsh, command, name);
        let body = script.split_once('\n').map_or("", |(_, body)| body);
        before(body, "\nif [ \"$funcstack[1]\"").to_owned()
    };
    format!(
        r#"#compdef {PROGRAM}
{run}{commands}
_pirn() {{
    local ret=1
    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
        _{COMMANDS} "$@" && ret=0
        _files && ret=0
    elif (( CURRENT > 2 )) && [[ $words[2] == ({names}) ]]; then
        _{COMMANDS} "$@" && ret=0
    else
        _{RUN} "$@" && ret=0
    fi
    return ret
}}

if [ "$funcstack[1]" = "_pirn" ]; then
    _pirn "$@"
else
    compdef _pirn {PROGRAM}
fi
"#,
        // With two colons the words before would be forgotten, and with them that this is a run.
        run = half(run(), RUN).replace("'*::prompt ", "'*:prompt "),
        commands = half(commands(), COMMANDS),
        names = names().join("|"),
    )
}

fn fish() -> String {
    let condition = "complete -c pirn -n \"not __pirn_has_command\" ";
    let run = generated(Generator::Fish, run(), PROGRAM).replace("complete -c pirn ", condition);
    format!(
        "# Whether the first argument is a command.\n\
         function __pirn_has_command\n    \
             set -l words (commandline -opc)\n    \
             contains -- \"$words[2]\" {names}\n\
         end\n\n{run}{commands}",
        names = names().join(" "),
        commands = generated(Generator::Fish, commands_with_values(), PROGRAM),
    )
}

fn elvish() -> String {
    let half = |command, name: &str| {
        let script = generated(Generator::Elvish, command, name);
        let head = format!("set edit:completion:arg-completer[{name}] = ");
        script.split_once(&head).map_or_else(String::new, |(_, body)| body.to_owned())
    };
    format!(
        r"use builtin;
use str;

var pirn-run~ = {run}
var pirn-commands~ = {commands}
set edit:completion:arg-completer[{PROGRAM}] = {{|@words|
    var commands = [{names}]
    var paths = [{paths}]
    var current = $words[-1]
    if (and (> (count $words) 2) (has-value $commands $words[1])) {{
        pirn-commands {COMMANDS} (all $words[1..])
    }} elif (has-value $paths $words[-2]) {{
        edit:complete-filename $current
    }} elif (str:has-prefix $current '-') {{
        pirn-run {RUN} $current
    }} else {{
        if (== (count $words) 2) {{
            pirn-commands {COMMANDS} $current
        }}
        edit:complete-filename $current
    }}
}}
",
        run = half(run(), RUN),
        commands = half(commands_with_values(), COMMANDS),
        names = names().join(" "),
        paths = path_options().join(" "),
    )
}

fn powershell() -> String {
    let half = |command, name: &str| {
        let script = generated(Generator::PowerShell, command, name);
        let head = format!("Register-ArgumentCompleter -Native -CommandName '{name}' -ScriptBlock ");
        script.split_once(&head).map_or_else(String::new, |(_, body)| body.trim_end().to_owned())
    };
    let quoted = |words: Vec<String>| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
    format!(
        r"using namespace System.Management.Automation
using namespace System.Management.Automation.Language

$pirnRun = {run}

$pirnCommands = {commands}

# The same script blocks complete under the names their switch statements know.
$pirnLine = {{
    param([string[]] $words)
    [Parser]::ParseInput($words -join ' ', [ref]$null, [ref]$null).EndBlock.Statements[0].PipelineElements[0]
}}

Register-ArgumentCompleter -Native -CommandName '{PROGRAM}' -ScriptBlock {{
    param($wordToComplete, $commandAst, $cursorPosition)

    $words = @($commandAst.CommandElements | Where-Object {{ $_.Extent.EndOffset -lt $cursorPosition }} |
        ForEach-Object {{ $_.ToString() }})
    $commands = @({names})
    $paths = @({paths})
    if ($words.Count -gt 1 -and $commands -ccontains $words[1]) {{
        $line = & $pirnLine (@('{PROGRAM}') + $words[1..($words.Count - 1)])
        & $pirnCommands $wordToComplete $line $cursorPosition
    }} elseif ($paths -ccontains $words[-1]) {{
        # With nothing offered, files are.
    }} elseif ($wordToComplete.StartsWith('-')) {{
        & $pirnRun $wordToComplete (& $pirnLine @('{PROGRAM}')) $cursorPosition
    }} elseif ($words.Count -eq 1) {{
        & $pirnCommands $wordToComplete (& $pirnLine @('{PROGRAM}')) $cursorPosition
    }}
}}
",
        run = half(run(), RUN),
        commands = half(commands_with_values(), COMMANDS),
        names = quoted(names()),
        paths = quoted(path_options()),
    )
}
