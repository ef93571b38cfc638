use builtin;
use str;

var pirn-run~ = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'pirn_run'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'pirn_run'= {
            cand -f 'Prompt text from a file, before the words; stdin stays free'
            cand --prompt-file 'Prompt text from a file, before the words; stdin stays free'
            cand -a 'Attach a file; the same as @PATH; may be repeated'
            cand --attach 'Attach a file; the same as @PATH; may be repeated'
            cand --then 'Queue a further prompt that runs when the one before it is done; may be repeated'
            cand -s 'Session by name, id, part of an id or file; without -c a new name makes one'
            cand --session 'Session by name, id, part of an id or file; without -c a new name makes one'
            cand -m 'Model: provider/id, an alias or a unique suffix, with an optional :level; more of them, behind commas, are fallbacks'
            cand --model 'Model: provider/id, an alias or a unique suffix, with an optional :level; more of them, behind commas, are fallbacks'
            cand --thinking 'How much the model thinks'
            cand --system 'Replace the system prompt'
            cand --append-system 'Add to the system prompt; may be repeated'
            cand -t 'Tools: names, globs, none or ro (the default); a list of only +x and -x edits what is on'
            cand --tools 'Tools: names, globs, none or ro (the default); a list of only +x and -x edits what is on'
            cand --json 'JSON lines on stdout: events (default), messages (no deltas) or result (the last line only)'
            cand --events 'Write every event as a JSON line to this file too; {session} and {date} expand'
            cand -o 'Write the final answer to this file too, only if the exit code is 0 or 3'
            cand --output 'Write the final answer to this file too, only if the exit code is 0 or 3'
            cand --color 'Colour on stderr'
            cand --log 'Append a diagnostic log to this file; PIRN_LOG sets its filter'
            cand --max-turns 'Turns of the model in this run (default 200, 0 = no limit)'
            cand --max-cost 'Stop before the next request once the run has cost this much (0 = no limit); needs models with known prices'
            cand --timeout 'Wall clock for the whole run, such as 90s or 10m'
            cand --config 'Extra configuration file, above those of the project and the user'
            cand -P 'Use the settings of [profiles.NAME]'
            cand --profile 'Use the settings of [profiles.NAME]'
            cand --set 'Set any configuration key; may be repeated'
            cand -C 'Run as if started in this directory'
            cand --cd 'Run as if started in this directory'
            cand -p 'Does nothing; keeps the next word from being a command'
            cand --print 'Does nothing; keeps the next word from being a command'
            cand --no-stdin 'Do not read stdin even if it is a pipe'
            cand -c 'Go on with the session of -s or the latest one here; without a prompt, finish what is open'
            cand --continue 'Go on with the session of -s or the latest one here; without a prompt, finish what is open'
            cand --no-resend 'With -c or -s: a request that was cut off counts as failed and is not sent again'
            cand --no-session 'Keep nothing on disk'
            cand --stream 'Write text to stdout as it comes, even into a pipe'
            cand -q 'Only errors on stderr'
            cand --quiet 'Only errors on stderr'
            cand -v 'More on stderr: tools and a summary; twice for arguments and results'
            cand --verbose 'More on stderr: tools and a summary; twice for arguments and results'
            cand --bare 'Ignore the files of system, user and project, AGENTS.md among them'
            cand --trust 'Trust the project''s file for this call'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
    ]
    $completions[$command]
}

var pirn-commands~ = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'pirn_commands'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'pirn_commands'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand steer 'Send a message to a session while it runs, or end its run'
            cand sessions 'List stored sessions, or show one'
            cand models 'List the models pirn knows and whether their provider has a key'
            cand config 'Write, show, check and trust configuration files'
            cand completions 'Write a completion script or the manual page to stdout'
            cand help 'Show help for pirn or for a command'
        }
        &'pirn_commands;steer'= {
            cand -s 'Session by name, id, part of an id or file; without it, the one that runs in this directory, else the latest'
            cand --session 'Session by name, id, part of an id or file; without it, the one that runs in this directory, else the latest'
            cand --config 'Extra configuration file, above those of the project and the user'
            cand -P 'Use the settings of [profiles.NAME]'
            cand --profile 'Use the settings of [profiles.NAME]'
            cand --set 'Set any configuration key; may be repeated'
            cand -C 'Run as if started in this directory'
            cand --cd 'Run as if started in this directory'
            cand --follow-up 'Let the message wait until the run would end, instead of sending it with the next request'
            cand --abort 'End the run instead of sending a message'
            cand --bare 'Ignore the files of system, user and project, AGENTS.md among them'
            cand --trust 'Trust the project''s file for this call'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;sessions'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand list 'List the sessions of this directory, the latest first'
            cand show 'Show a session; known secrets are masked'
        }
        &'pirn_commands;sessions;list'= {
            cand -n 'At most this many (default 20), the latest first'
            cand --all 'Sessions of every directory'
            cand --json 'One JSON object a line'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;sessions;show'= {
            cand --format 'How to show it'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;models'= {
            cand --json 'One JSON object a line'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;config'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand init 'Write a starter file whose keys are comments'
            cand show 'Print the settings a run would have, as TOML'
            cand check 'Check the configuration and report every mistake in it'
            cand schema 'Print the JSON Schema of configuration files'
            cand path 'Print the configuration files there are, lowest layer first'
            cand trust 'Trust the project''s file as it is now'
        }
        &'pirn_commands;config;init'= {
            cand -C 'Run as if started in this directory'
            cand --cd 'Run as if started in this directory'
            cand --user 'Write the user''s file instead of pirn.toml in this directory'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;config;show'= {
            cand --config 'Extra configuration file, above those of the project and the user'
            cand -P 'Use the settings of [profiles.NAME]'
            cand --profile 'Use the settings of [profiles.NAME]'
            cand --set 'Set any configuration key; may be repeated'
            cand -C 'Run as if started in this directory'
            cand --cd 'Run as if started in this directory'
            cand --origin 'Say where each value was written'
            cand --bare 'Ignore the files of system, user and project, AGENTS.md among them'
            cand --trust 'Trust the project''s file for this call'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;config;check'= {
            cand --config 'Extra configuration file, above those of the project and the user'
            cand -P 'Use the settings of [profiles.NAME]'
            cand --profile 'Use the settings of [profiles.NAME]'
            cand --set 'Set any configuration key; may be repeated'
            cand -C 'Run as if started in this directory'
            cand --cd 'Run as if started in this directory'
            cand --bare 'Ignore the files of system, user and project, AGENTS.md among them'
            cand --trust 'Trust the project''s file for this call'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;config;schema'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;config;path'= {
            cand --config 'Extra configuration file, above those of the project and the user'
            cand -P 'Use the settings of [profiles.NAME]'
            cand --profile 'Use the settings of [profiles.NAME]'
            cand --set 'Set any configuration key; may be repeated'
            cand -C 'Run as if started in this directory'
            cand --cd 'Run as if started in this directory'
            cand --bare 'Ignore the files of system, user and project, AGENTS.md among them'
            cand --trust 'Trust the project''s file for this call'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;config;trust'= {
            cand -C 'Run as if started in this directory'
            cand --cd 'Run as if started in this directory'
            cand --revoke 'Trust it no longer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'pirn_commands;completions'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand bash 'bash'
            cand zsh 'zsh'
            cand fish 'fish'
            cand elvish 'elvish'
            cand powershell 'powershell'
            cand man 'man'
        }
        &'pirn_commands;completions;bash'= {
        }
        &'pirn_commands;completions;zsh'= {
        }
        &'pirn_commands;completions;fish'= {
        }
        &'pirn_commands;completions;elvish'= {
        }
        &'pirn_commands;completions;powershell'= {
        }
        &'pirn_commands;completions;man'= {
        }
        &'pirn_commands;help'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand steer 'steer'
            cand sessions 'sessions'
            cand models 'models'
            cand config 'config'
            cand completions 'completions'
            cand help 'help'
        }
        &'pirn_commands;help;steer'= {
        }
        &'pirn_commands;help;sessions'= {
        }
        &'pirn_commands;help;models'= {
        }
        &'pirn_commands;help;config'= {
        }
        &'pirn_commands;help;completions'= {
        }
        &'pirn_commands;help;help'= {
        }
    ]
    $completions[$command]
}

set edit:completion:arg-completer[pirn] = {|@words|
    var commands = [steer sessions models config completions help]
    var paths = [-f --prompt-file -a --attach --events -o --output --log --config -C --cd]
    var current = $words[-1]
    if (and (> (count $words) 2) (has-value $commands $words[1])) {
        pirn-commands pirn_commands (all $words[1..])
    } elif (has-value $paths $words[-2]) {
        edit:complete-filename $current
    } elif (str:has-prefix $current '-') {
        pirn-run pirn_run $current
    } else {
        if (== (count $words) 2) {
            pirn-commands pirn_commands $current
        }
        edit:complete-filename $current
    }
}
