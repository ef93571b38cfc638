# Whether the first argument is a command.
function __pirn_has_command
    set -l words (commandline -opc)
    contains -- "$words[2]" steer sessions models config completions help
end

complete -c pirn -n "not __pirn_has_command" -s f -l prompt-file -d 'Prompt text from a file, before the words; stdin stays free' -r -F
complete -c pirn -n "not __pirn_has_command" -s a -l attach -d 'Attach a file; the same as @PATH; may be repeated' -r -F
complete -c pirn -n "not __pirn_has_command" -l then -d 'Queue a further prompt that runs when the one before it is done; may be repeated' -r
complete -c pirn -n "not __pirn_has_command" -s s -l session -d 'Session by name, id, part of an id or file; without -c a new name makes one' -r
complete -c pirn -n "not __pirn_has_command" -s m -l model -d 'Model: provider/id, an alias or a unique suffix, with an optional :level; more of them, behind commas, are fallbacks' -r
complete -c pirn -n "not __pirn_has_command" -l thinking -d 'How much the model thinks' -r -f -a "off\t''
minimal\t''
low\t''
medium\t''
high\t''
xhigh\t''
max\t''"
complete -c pirn -n "not __pirn_has_command" -l system -d 'Replace the system prompt' -r
complete -c pirn -n "not __pirn_has_command" -l append-system -d 'Add to the system prompt; may be repeated' -r
complete -c pirn -n "not __pirn_has_command" -s t -l tools -d 'Tools: names, globs, none or ro (the default); a list of only +x and -x edits what is on' -r
complete -c pirn -n "not __pirn_has_command" -l json -d 'JSON lines on stdout: events (default), messages (no deltas) or result (the last line only)' -r -f -a "events\t'Every event'
messages\t'Whole messages, no deltas'
result\t'The last line only'"
complete -c pirn -n "not __pirn_has_command" -l events -d 'Write every event as a JSON line to this file too; {session} and {date} expand' -r -F
complete -c pirn -n "not __pirn_has_command" -s o -l output -d 'Write the final answer to this file too, only if the exit code is 0 or 3' -r -F
complete -c pirn -n "not __pirn_has_command" -l color -d 'Colour on stderr' -r -f -a "auto\t''
always\t''
never\t''"
complete -c pirn -n "not __pirn_has_command" -l log -d 'Append a diagnostic log to this file; PIRN_LOG sets its filter' -r -F
complete -c pirn -n "not __pirn_has_command" -l max-turns -d 'Turns of the model in this run (default 200, 0 = no limit)' -r
complete -c pirn -n "not __pirn_has_command" -l max-cost -d 'Stop before the next request once the run has cost this much (0 = no limit); needs models with known prices' -r
complete -c pirn -n "not __pirn_has_command" -l timeout -d 'Wall clock for the whole run, such as 90s or 10m' -r
complete -c pirn -n "not __pirn_has_command" -l config -d 'Extra configuration file, above those of the project and the user' -r -F
complete -c pirn -n "not __pirn_has_command" -s P -l profile -d 'Use the settings of [profiles.NAME]' -r
complete -c pirn -n "not __pirn_has_command" -l set -d 'Set any configuration key; may be repeated' -r
complete -c pirn -n "not __pirn_has_command" -s C -l cd -d 'Run as if started in this directory' -r -f -a "(__fish_complete_directories)"
complete -c pirn -n "not __pirn_has_command" -s p -l print -d 'Does nothing; keeps the next word from being a command'
complete -c pirn -n "not __pirn_has_command" -l no-stdin -d 'Do not read stdin even if it is a pipe'
complete -c pirn -n "not __pirn_has_command" -s c -l continue -d 'Go on with the session of -s or the latest one here; without a prompt, finish what is open'
complete -c pirn -n "not __pirn_has_command" -l no-resend -d 'With -c or -s: a request that was cut off counts as failed and is not sent again'
complete -c pirn -n "not __pirn_has_command" -l no-session -d 'Keep nothing on disk'
complete -c pirn -n "not __pirn_has_command" -l stream -d 'Write text to stdout as it comes, even into a pipe'
complete -c pirn -n "not __pirn_has_command" -s q -l quiet -d 'Only errors on stderr'
complete -c pirn -n "not __pirn_has_command" -s v -l verbose -d 'More on stderr: tools and a summary; twice for arguments and results'
complete -c pirn -n "not __pirn_has_command" -l bare -d 'Ignore the files of system, user and project, AGENTS.md among them'
complete -c pirn -n "not __pirn_has_command" -l trust -d 'Trust the project\'s file for this call'
complete -c pirn -n "not __pirn_has_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pirn -n "not __pirn_has_command" -s V -l version -d 'Print version'
# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_pirn_global_optspecs
    string join \n h/help
end

function __fish_pirn_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_pirn_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_pirn_using_subcommand
    set -l cmd (__fish_pirn_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c pirn -n "__fish_pirn_needs_command" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_needs_command" -f -a "steer" -d 'Send a message to a session while it runs, or end its run'
complete -c pirn -n "__fish_pirn_needs_command" -f -a "sessions" -d 'List stored sessions, or show one'
complete -c pirn -n "__fish_pirn_needs_command" -f -a "models" -d 'List the models pirn knows and whether their provider has a key'
complete -c pirn -n "__fish_pirn_needs_command" -f -a "config" -d 'Write, show, check and trust configuration files'
complete -c pirn -n "__fish_pirn_needs_command" -f -a "completions" -d 'Write a completion script or the manual page to stdout'
complete -c pirn -n "__fish_pirn_needs_command" -f -a "help" -d 'Show help for pirn or for a command'
complete -c pirn -n "__fish_pirn_using_subcommand steer" -s s -l session -d 'Session by name, id, part of an id or file; without it, the one that runs in this directory, else the latest' -r
complete -c pirn -n "__fish_pirn_using_subcommand steer" -l config -d 'Extra configuration file, above those of the project and the user' -r -F
complete -c pirn -n "__fish_pirn_using_subcommand steer" -s P -l profile -d 'Use the settings of [profiles.NAME]' -r
complete -c pirn -n "__fish_pirn_using_subcommand steer" -l set -d 'Set any configuration key; may be repeated' -r
complete -c pirn -n "__fish_pirn_using_subcommand steer" -s C -l cd -d 'Run as if started in this directory' -r -f -a "(__fish_complete_directories)"
complete -c pirn -n "__fish_pirn_using_subcommand steer" -l follow-up -d 'Let the message wait until the run would end, instead of sending it with the next request'
complete -c pirn -n "__fish_pirn_using_subcommand steer" -l abort -d 'End the run instead of sending a message'
complete -c pirn -n "__fish_pirn_using_subcommand steer" -l bare -d 'Ignore the files of system, user and project, AGENTS.md among them'
complete -c pirn -n "__fish_pirn_using_subcommand steer" -l trust -d 'Trust the project\'s file for this call'
complete -c pirn -n "__fish_pirn_using_subcommand steer" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and not __fish_seen_subcommand_from list show" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and not __fish_seen_subcommand_from list show" -f -a "list" -d 'List the sessions of this directory, the latest first'
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and not __fish_seen_subcommand_from list show" -f -a "show" -d 'Show a session; known secrets are masked'
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and __fish_seen_subcommand_from list" -s n -d 'At most this many (default 20), the latest first' -r
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and __fish_seen_subcommand_from list" -l all -d 'Sessions of every directory'
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and __fish_seen_subcommand_from list" -l json -d 'One JSON object a line'
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and __fish_seen_subcommand_from show" -l format -d 'How to show it' -r -f -a "text\t''
json\t''"
complete -c pirn -n "__fish_pirn_using_subcommand sessions; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand models" -l json -d 'One JSON object a line'
complete -c pirn -n "__fish_pirn_using_subcommand models" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand config; and not __fish_seen_subcommand_from init show check schema path trust" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand config; and not __fish_seen_subcommand_from init show check schema path trust" -f -a "init" -d 'Write a starter file whose keys are comments'
complete -c pirn -n "__fish_pirn_using_subcommand config; and not __fish_seen_subcommand_from init show check schema path trust" -f -a "show" -d 'Print the settings a run would have, as TOML'
complete -c pirn -n "__fish_pirn_using_subcommand config; and not __fish_seen_subcommand_from init show check schema path trust" -f -a "check" -d 'Check the configuration and report every mistake in it'
complete -c pirn -n "__fish_pirn_using_subcommand config; and not __fish_seen_subcommand_from init show check schema path trust" -f -a "schema" -d 'Print the JSON Schema of configuration files'
complete -c pirn -n "__fish_pirn_using_subcommand config; and not __fish_seen_subcommand_from init show check schema path trust" -f -a "path" -d 'Print the configuration files there are, lowest layer first'
complete -c pirn -n "__fish_pirn_using_subcommand config; and not __fish_seen_subcommand_from init show check schema path trust" -f -a "trust" -d 'Trust the project\'s file as it is now'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from init" -s C -l cd -d 'Run as if started in this directory' -r -f -a "(__fish_complete_directories)"
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from init" -l user -d 'Write the user\'s file instead of pirn.toml in this directory'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -l config -d 'Extra configuration file, above those of the project and the user' -r -F
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -s P -l profile -d 'Use the settings of [profiles.NAME]' -r
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -l set -d 'Set any configuration key; may be repeated' -r
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -s C -l cd -d 'Run as if started in this directory' -r -f -a "(__fish_complete_directories)"
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -l origin -d 'Say where each value was written'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -l bare -d 'Ignore the files of system, user and project, AGENTS.md among them'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -l trust -d 'Trust the project\'s file for this call'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from check" -l config -d 'Extra configuration file, above those of the project and the user' -r -F
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from check" -s P -l profile -d 'Use the settings of [profiles.NAME]' -r
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from check" -l set -d 'Set any configuration key; may be repeated' -r
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from check" -s C -l cd -d 'Run as if started in this directory' -r -f -a "(__fish_complete_directories)"
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from check" -l bare -d 'Ignore the files of system, user and project, AGENTS.md among them'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from check" -l trust -d 'Trust the project\'s file for this call'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from schema" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from path" -l config -d 'Extra configuration file, above those of the project and the user' -r -F
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from path" -s P -l profile -d 'Use the settings of [profiles.NAME]' -r
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from path" -l set -d 'Set any configuration key; may be repeated' -r
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from path" -s C -l cd -d 'Run as if started in this directory' -r -f -a "(__fish_complete_directories)"
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from path" -l bare -d 'Ignore the files of system, user and project, AGENTS.md among them'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from path" -l trust -d 'Trust the project\'s file for this call'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from trust" -s C -l cd -d 'Run as if started in this directory' -r -f -a "(__fish_complete_directories)"
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from trust" -l revoke -d 'Trust it no longer'
complete -c pirn -n "__fish_pirn_using_subcommand config; and __fish_seen_subcommand_from trust" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand completions; and not __fish_seen_subcommand_from bash zsh fish elvish powershell man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pirn -n "__fish_pirn_using_subcommand completions; and not __fish_seen_subcommand_from bash zsh fish elvish powershell man" -a "bash"
complete -c pirn -n "__fish_pirn_using_subcommand completions; and not __fish_seen_subcommand_from bash zsh fish elvish powershell man" -a "zsh"
complete -c pirn -n "__fish_pirn_using_subcommand completions; and not __fish_seen_subcommand_from bash zsh fish elvish powershell man" -a "fish"
complete -c pirn -n "__fish_pirn_using_subcommand completions; and not __fish_seen_subcommand_from bash zsh fish elvish powershell man" -a "elvish"
complete -c pirn -n "__fish_pirn_using_subcommand completions; and not __fish_seen_subcommand_from bash zsh fish elvish powershell man" -a "powershell"
complete -c pirn -n "__fish_pirn_using_subcommand completions; and not __fish_seen_subcommand_from bash zsh fish elvish powershell man" -a "man"
complete -c pirn -n "__fish_pirn_using_subcommand help; and not __fish_seen_subcommand_from steer sessions models config completions help" -s h -l help -d 'Print help'
complete -c pirn -n "__fish_pirn_using_subcommand help; and not __fish_seen_subcommand_from steer sessions models config completions help" -a "steer"
complete -c pirn -n "__fish_pirn_using_subcommand help; and not __fish_seen_subcommand_from steer sessions models config completions help" -a "sessions"
complete -c pirn -n "__fish_pirn_using_subcommand help; and not __fish_seen_subcommand_from steer sessions models config completions help" -a "models"
complete -c pirn -n "__fish_pirn_using_subcommand help; and not __fish_seen_subcommand_from steer sessions models config completions help" -a "config"
complete -c pirn -n "__fish_pirn_using_subcommand help; and not __fish_seen_subcommand_from steer sessions models config completions help" -a "completions"
complete -c pirn -n "__fish_pirn_using_subcommand help; and not __fish_seen_subcommand_from steer sessions models config completions help" -a "help"
