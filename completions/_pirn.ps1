using namespace System.Management.Automation
using namespace System.Management.Automation.Language

$pirnRun = {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'pirn_run'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'pirn_run' {
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Prompt text from a file, before the words; stdin stays free')
            [CompletionResult]::new('--prompt-file', '--prompt-file', [CompletionResultType]::ParameterName, 'Prompt text from a file, before the words; stdin stays free')
            [CompletionResult]::new('-a', '-a', [CompletionResultType]::ParameterName, 'Attach a file; the same as @PATH; may be repeated')
            [CompletionResult]::new('--attach', '--attach', [CompletionResultType]::ParameterName, 'Attach a file; the same as @PATH; may be repeated')
            [CompletionResult]::new('--then', '--then', [CompletionResultType]::ParameterName, 'Queue a further prompt that runs when the one before it is done; may be repeated')
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Session by name, id, part of an id or file; without -c a new name makes one')
            [CompletionResult]::new('--session', '--session', [CompletionResultType]::ParameterName, 'Session by name, id, part of an id or file; without -c a new name makes one')
            [CompletionResult]::new('-m', '-m', [CompletionResultType]::ParameterName, 'Model: provider/id, an alias or a unique suffix, with an optional :level; more of them, behind commas, are fallbacks')
            [CompletionResult]::new('--model', '--model', [CompletionResultType]::ParameterName, 'Model: provider/id, an alias or a unique suffix, with an optional :level; more of them, behind commas, are fallbacks')
            [CompletionResult]::new('--thinking', '--thinking', [CompletionResultType]::ParameterName, 'How much the model thinks')
            [CompletionResult]::new('--system', '--system', [CompletionResultType]::ParameterName, 'Replace the system prompt')
            [CompletionResult]::new('--append-system', '--append-system', [CompletionResultType]::ParameterName, 'Add to the system prompt; may be repeated')
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Tools: names, globs, none or ro (the default); a list of only +x and -x edits what is on')
            [CompletionResult]::new('--tools', '--tools', [CompletionResultType]::ParameterName, 'Tools: names, globs, none or ro (the default); a list of only +x and -x edits what is on')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'JSON lines on stdout: events (default), messages (no deltas) or result (the last line only)')
            [CompletionResult]::new('--events', '--events', [CompletionResultType]::ParameterName, 'Write every event as a JSON line to this file too; {session} and {date} expand')
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'Write the final answer to this file too, only if the exit code is 0 or 3')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Write the final answer to this file too, only if the exit code is 0 or 3')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colour on stderr')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Append a diagnostic log to this file; PIRN_LOG sets its filter')
            [CompletionResult]::new('--max-turns', '--max-turns', [CompletionResultType]::ParameterName, 'Turns of the model in this run (default 200, 0 = no limit)')
            [CompletionResult]::new('--max-cost', '--max-cost', [CompletionResultType]::ParameterName, 'Stop before the next request once the run has cost this much (0 = no limit); needs models with known prices')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Wall clock for the whole run, such as 90s or 10m')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Extra configuration file, above those of the project and the user')
            [CompletionResult]::new('-P', '-P ', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any configuration key; may be repeated')
            [CompletionResult]::new('-C', '-C ', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--cd', '--cd', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Does nothing; keeps the next word from being a command')
            [CompletionResult]::new('--print', '--print', [CompletionResultType]::ParameterName, 'Does nothing; keeps the next word from being a command')
            [CompletionResult]::new('--no-stdin', '--no-stdin', [CompletionResultType]::ParameterName, 'Do not read stdin even if it is a pipe')
            [CompletionResult]::new('-c', '-c', [CompletionResultType]::ParameterName, 'Go on with the session of -s or the latest one here; without a prompt, finish what is open')
            [CompletionResult]::new('--continue', '--continue', [CompletionResultType]::ParameterName, 'Go on with the session of -s or the latest one here; without a prompt, finish what is open')
            [CompletionResult]::new('--no-resend', '--no-resend', [CompletionResultType]::ParameterName, 'With -c or -s: a request that was cut off counts as failed and is not sent again')
            [CompletionResult]::new('--no-session', '--no-session', [CompletionResultType]::ParameterName, 'Keep nothing on disk')
            [CompletionResult]::new('--stream', '--stream', [CompletionResultType]::ParameterName, 'Write text to stdout as it comes, even into a pipe')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Only errors on stderr')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Only errors on stderr')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'More on stderr: tools and a summary; twice for arguments and results')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'More on stderr: tools and a summary; twice for arguments and results')
            [CompletionResult]::new('--bare', '--bare', [CompletionResultType]::ParameterName, 'Ignore the files of system, user and project, AGENTS.md among them')
            [CompletionResult]::new('--trust', '--trust', [CompletionResultType]::ParameterName, 'Trust the project''s file for this call')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}

$pirnCommands = {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'pirn_commands'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'pirn_commands' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('steer', 'steer', [CompletionResultType]::ParameterValue, 'Send a message to a session while it runs, or end its run')
            [CompletionResult]::new('sessions', 'sessions', [CompletionResultType]::ParameterValue, 'List stored sessions, or show one')
            [CompletionResult]::new('models', 'models', [CompletionResultType]::ParameterValue, 'List the models pirn knows and whether their provider has a key')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Write, show, check and trust configuration files')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Write a completion script or the manual page to stdout')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Show help for pirn or for a command')
            break
        }
        'pirn_commands;steer' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Session by name, id, part of an id or file; without it, the one that runs in this directory, else the latest')
            [CompletionResult]::new('--session', '--session', [CompletionResultType]::ParameterName, 'Session by name, id, part of an id or file; without it, the one that runs in this directory, else the latest')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Extra configuration file, above those of the project and the user')
            [CompletionResult]::new('-P', '-P ', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any configuration key; may be repeated')
            [CompletionResult]::new('-C', '-C ', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--cd', '--cd', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--follow-up', '--follow-up', [CompletionResultType]::ParameterName, 'Let the message wait until the run would end, instead of sending it with the next request')
            [CompletionResult]::new('--abort', '--abort', [CompletionResultType]::ParameterName, 'End the run instead of sending a message')
            [CompletionResult]::new('--bare', '--bare', [CompletionResultType]::ParameterName, 'Ignore the files of system, user and project, AGENTS.md among them')
            [CompletionResult]::new('--trust', '--trust', [CompletionResultType]::ParameterName, 'Trust the project''s file for this call')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;sessions' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the sessions of this directory, the latest first')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Show a session; known secrets are masked')
            break
        }
        'pirn_commands;sessions;list' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'At most this many (default 20), the latest first')
            [CompletionResult]::new('--all', '--all', [CompletionResultType]::ParameterName, 'Sessions of every directory')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object a line')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;sessions;show' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How to show it')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;models' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object a line')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;config' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('init', 'init', [CompletionResultType]::ParameterValue, 'Write a starter file whose keys are comments')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print the settings a run would have, as TOML')
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Check the configuration and report every mistake in it')
            [CompletionResult]::new('schema', 'schema', [CompletionResultType]::ParameterValue, 'Print the JSON Schema of configuration files')
            [CompletionResult]::new('path', 'path', [CompletionResultType]::ParameterValue, 'Print the configuration files there are, lowest layer first')
            [CompletionResult]::new('trust', 'trust', [CompletionResultType]::ParameterValue, 'Trust the project''s file as it is now')
            break
        }
        'pirn_commands;config;init' {
            [CompletionResult]::new('-C', '-C ', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--cd', '--cd', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'Write the user''s file instead of pirn.toml in this directory')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;config;show' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Extra configuration file, above those of the project and the user')
            [CompletionResult]::new('-P', '-P ', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any configuration key; may be repeated')
            [CompletionResult]::new('-C', '-C ', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--cd', '--cd', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--origin', '--origin', [CompletionResultType]::ParameterName, 'Say where each value was written')
            [CompletionResult]::new('--bare', '--bare', [CompletionResultType]::ParameterName, 'Ignore the files of system, user and project, AGENTS.md among them')
            [CompletionResult]::new('--trust', '--trust', [CompletionResultType]::ParameterName, 'Trust the project''s file for this call')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;config;check' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Extra configuration file, above those of the project and the user')
            [CompletionResult]::new('-P', '-P ', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any configuration key; may be repeated')
            [CompletionResult]::new('-C', '-C ', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--cd', '--cd', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--bare', '--bare', [CompletionResultType]::ParameterName, 'Ignore the files of system, user and project, AGENTS.md among them')
            [CompletionResult]::new('--trust', '--trust', [CompletionResultType]::ParameterName, 'Trust the project''s file for this call')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;config;schema' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;config;path' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Extra configuration file, above those of the project and the user')
            [CompletionResult]::new('-P', '-P ', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Use the settings of [profiles.NAME]')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any configuration key; may be repeated')
            [CompletionResult]::new('-C', '-C ', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--cd', '--cd', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--bare', '--bare', [CompletionResultType]::ParameterName, 'Ignore the files of system, user and project, AGENTS.md among them')
            [CompletionResult]::new('--trust', '--trust', [CompletionResultType]::ParameterName, 'Trust the project''s file for this call')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;config;trust' {
            [CompletionResult]::new('-C', '-C ', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--cd', '--cd', [CompletionResultType]::ParameterName, 'Run as if started in this directory')
            [CompletionResult]::new('--revoke', '--revoke', [CompletionResultType]::ParameterName, 'Trust it no longer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'pirn_commands;completions' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('bash', 'bash', [CompletionResultType]::ParameterValue, 'bash')
            [CompletionResult]::new('zsh', 'zsh', [CompletionResultType]::ParameterValue, 'zsh')
            [CompletionResult]::new('fish', 'fish', [CompletionResultType]::ParameterValue, 'fish')
            [CompletionResult]::new('elvish', 'elvish', [CompletionResultType]::ParameterValue, 'elvish')
            [CompletionResult]::new('powershell', 'powershell', [CompletionResultType]::ParameterValue, 'powershell')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'man')
            break
        }
        'pirn_commands;completions;bash' {
            break
        }
        'pirn_commands;completions;zsh' {
            break
        }
        'pirn_commands;completions;fish' {
            break
        }
        'pirn_commands;completions;elvish' {
            break
        }
        'pirn_commands;completions;powershell' {
            break
        }
        'pirn_commands;completions;man' {
            break
        }
        'pirn_commands;help' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('steer', 'steer', [CompletionResultType]::ParameterValue, 'steer')
            [CompletionResult]::new('sessions', 'sessions', [CompletionResultType]::ParameterValue, 'sessions')
            [CompletionResult]::new('models', 'models', [CompletionResultType]::ParameterValue, 'models')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'config')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'completions')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'help')
            break
        }
        'pirn_commands;help;steer' {
            break
        }
        'pirn_commands;help;sessions' {
            break
        }
        'pirn_commands;help;models' {
            break
        }
        'pirn_commands;help;config' {
            break
        }
        'pirn_commands;help;completions' {
            break
        }
        'pirn_commands;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}

# The same script blocks complete under the names their switch statements know.
$pirnLine = {
    param([string[]] $words)
    [Parser]::ParseInput($words -join ' ', [ref]$null, [ref]$null).EndBlock.Statements[0].PipelineElements[0]
}

Register-ArgumentCompleter -Native -CommandName 'pirn' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $words = @($commandAst.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursorPosition } |
        ForEach-Object { $_.ToString() })
    $commands = @('steer', 'sessions', 'models', 'config', 'completions', 'help')
    $paths = @('-f', '--prompt-file', '-a', '--attach', '--events', '-o', '--output', '--log', '--config', '-C', '--cd')
    if ($words.Count -gt 1 -and $commands -ccontains $words[1]) {
        $line = & $pirnLine (@('pirn') + $words[1..($words.Count - 1)])
        & $pirnCommands $wordToComplete $line $cursorPosition
    } elseif ($paths -ccontains $words[-1]) {
        # With nothing offered, files are.
    } elseif ($wordToComplete.StartsWith('-')) {
        & $pirnRun $wordToComplete (& $pirnLine @('pirn')) $cursorPosition
    } elseif ($words.Count -eq 1) {
        & $pirnCommands $wordToComplete (& $pirnLine @('pirn')) $cursorPosition
    }
}
