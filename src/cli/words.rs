//! Which first words are commands, which look like mistyped ones, and which options belong to later versions.
//!
//! Keeps true: only the first argument, whole and equal, is a command; an argument with white space or a leading `-` or
//! `@` is never one and never close to one.
//!
//! Must not know: what the commands do.

/// Words kept for commands for all of 1.x.
const RESERVED: [&str; 8] = ["steer", "sessions", "models", "tools", "config", "doctor", "completions", "help"];

/// Words of everyday prompts that are as close to a command word as a typing error would be.
const EVERYDAY: [&str; 14] = [
    "confirm", "docker", "factor", "heap", "held", "hell", "lessons", "modern", "module", "modules", "sections",
    "sheer", "steel", "steep",
];

/// Command words up to this length stand one letter away from many verbs a prompt starts with (tell, here, took), so
/// two letters off is no typing error there.
const SHORT_WORD_CHARS: usize = 5;

/// Options that later versions have; asking for one deserves a better answer than "unknown".
const LATER_OPTIONS: [&str; 27] = [
    "--then",
    "--allow",
    "--deny",
    "--events",
    "--output",
    "-o",
    "--extract",
    "-x",
    "--schema",
    "--log",
    "--max-cost",
    "--continue",
    "-c",
    "--session",
    "-s",
    "--fork",
    "--at",
    "--lane",
    "--background",
    "--wait",
    "--no-resend",
    "--no-session",
    "--profile",
    "-P",
    "--trust",
    "--dry-run",
    "--record",
];

/// What the first argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstWord {
    /// The beginning of a run: a prompt word or an option.
    Run,
    Models,
    Help,
    /// A command of a later version.
    Later(&'static str),
    /// One or two letters off this command.
    NearMiss(&'static str),
}

/// Judges the first argument.
pub(super) fn first_word(argument: &str) -> FirstWord {
    match argument {
        "models" => return FirstWord::Models,
        "help" => return FirstWord::Help,
        _ => {}
    }
    if let Some(command) = RESERVED.into_iter().find(|word| *word == argument) {
        return FirstWord::Later(command);
    }
    nearest(argument).map_or(FirstWord::Run, FirstWord::NearMiss)
}

/// Whether this is an option of a later version, spelt as it will be.
pub(super) fn is_later_option(name: &str) -> bool {
    LATER_OPTIONS.contains(&name)
}

fn nearest(argument: &str) -> Option<&'static str> {
    if argument.starts_with(['-', '@']) || argument.contains(char::is_whitespace) {
        return None;
    }
    let word = argument.to_lowercase();
    if EVERYDAY.contains(&word.as_str()) {
        return None;
    }
    let distances = RESERVED.into_iter().map(|command| (strsim::osa_distance(&word, command), command));
    let (distance, command) = distances.min_by_key(|(distance, _)| *distance)?;
    let allowed = if command.len() <= SHORT_WORD_CHARS { 1 } else { 2 };
    (distance <= allowed).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::{FirstWord, first_word};

    #[test]
    fn only_close_misspellings_of_commands_are_refused_in09() {
        let near = [
            ("sesion", "sessions"),
            ("session", "sessions"),
            ("model", "models"),
            ("modles", "models"),
            ("Models", "models"),
            ("tool", "tools"),
            ("tolos", "tools"),
            ("hlep", "help"),
            ("steeer", "steer"),
            ("doctr", "doctor"),
            ("confg", "config"),
            ("completion", "completions"),
        ];
        for (word, command) in near {
            assert_eq!(first_word(word), FirstWord::NearMiss(command), "{word}");
        }
        let prompts = [
            "hello",
            "tell",
            "here",
            "keep",
            "took",
            "docker",
            "modules",
            "fix",
            "summarise",
            "@model",
            "-model",
            "model of",
            "",
            "list",
            "what",
            "Confirm",
            "how",
            "self",
            "heap",
        ];
        for word in prompts {
            assert_eq!(first_word(word), FirstWord::Run, "{word}");
        }
    }

    #[test]
    fn reserved_words_are_commands_of_this_or_a_later_version() {
        assert_eq!(first_word("models"), FirstWord::Models);
        assert_eq!(first_word("help"), FirstWord::Help);
        for word in ["steer", "sessions", "tools", "config", "doctor", "completions"] {
            assert_eq!(first_word(word), FirstWord::Later(word));
        }
    }
}
