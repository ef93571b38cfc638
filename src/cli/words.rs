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
const LATER_OPTIONS: [&str; 12] = [
    "--allow",
    "--deny",
    "--extract",
    "-x",
    "--schema",
    "--fork",
    "--at",
    "--lane",
    "--background",
    "--wait",
    "--dry-run",
    "--record",
];

/// Formats of `sessions show` that later versions have.
const LATER_FORMATS: [&str; 3] = ["md", "html", "v3"];

/// Typing errors that are still taken for a verb: two letters missed, doubled or exchanged.
const VERB_DISTANCE_MAX: usize = 2;

/// A command of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noun {
    Steer,
    Sessions,
    Models,
    Config,
    Completions,
    Help,
}

impl Noun {
    /// Every one, in the order of the reference.
    pub(super) const ALL: [Self; 6] =
        [Self::Steer, Self::Sessions, Self::Models, Self::Config, Self::Completions, Self::Help];

    /// The word it is called by.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Sessions => "sessions",
            Self::Models => "models",
            Self::Config => "config",
            Self::Completions => "completions",
            Self::Help => "help",
        }
    }

    /// The verbs below it, in the order of the reference.
    pub(super) fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Sessions => &["list", "show"],
            Self::Config => &["init", "show", "check", "schema", "path", "trust"],
            Self::Steer | Self::Models | Self::Completions | Self::Help => &[],
        }
    }

    /// Verbs of later versions.
    fn later_verbs(self) -> &'static [&'static str] {
        match self {
            Self::Sessions => &["tree", "goto", "label", "compact", "import", "rm"],
            Self::Steer | Self::Models | Self::Config | Self::Completions | Self::Help => &[],
        }
    }
}

/// What the first argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstWord {
    /// The beginning of a run: a prompt word or an option.
    Run,
    Command(Noun),
    /// A command of a later version.
    Later(&'static str),
    /// One or two letters off this command.
    NearMiss(&'static str),
}

/// What the word behind a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Known(&'static str),
    /// A verb of a later version.
    Later(&'static str),
    /// No verb, but one or two letters off this one.
    NearMiss(&'static str),
    Unknown,
}

/// Judges the first argument.
pub(super) fn first_word(argument: &str) -> FirstWord {
    if let Some(noun) = Noun::ALL.into_iter().find(|noun| noun.as_str() == argument) {
        return FirstWord::Command(noun);
    }
    if let Some(command) = RESERVED.into_iter().find(|word| *word == argument) {
        return FirstWord::Later(command);
    }
    nearest(argument).map_or(FirstWord::Run, FirstWord::NearMiss)
}

/// Judges the word behind a command that has verbs.
pub(super) fn verb(noun: Noun, argument: &str) -> Verb {
    let exact = |verbs: &'static [&'static str]| verbs.iter().copied().find(|verb| *verb == argument);
    if let Some(verb) = exact(noun.verbs()) {
        return Verb::Known(verb);
    }
    if let Some(verb) = exact(noun.later_verbs()) {
        return Verb::Later(verb);
    }
    let word = argument.to_lowercase();
    let distances = noun.verbs().iter().map(|verb| (strsim::osa_distance(&word, verb), *verb));
    match distances.min_by_key(|(distance, _)| *distance) {
        Some((distance, verb)) if distance <= VERB_DISTANCE_MAX => Verb::NearMiss(verb),
        Some(_) | None => Verb::Unknown,
    }
}

/// Whether this is an option of a later version, spelt as it will be.
pub(super) fn is_later_option(name: &str) -> bool {
    LATER_OPTIONS.contains(&name)
}

/// Whether this is a format of `sessions show` in a later version.
pub(super) fn is_later_format(word: &str) -> bool {
    LATER_FORMATS.contains(&word)
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
    use super::{FirstWord, Noun, Verb, first_word, verb};

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
        for noun in Noun::ALL {
            assert_eq!(first_word(noun.as_str()), FirstWord::Command(noun));
            assert!(super::RESERVED.contains(&noun.as_str()));
        }
        for word in ["tools", "doctor"] {
            assert_eq!(first_word(word), FirstWord::Later(word));
        }
    }

    #[test]
    fn verbs_are_known_of_a_later_version_misspelt_or_none_in09() {
        for noun in Noun::ALL {
            for known in noun.verbs() {
                assert_eq!(verb(noun, known), Verb::Known(known));
            }
        }
        for later in ["tree", "goto", "label", "compact", "import", "rm"] {
            assert_eq!(verb(Noun::Sessions, later), Verb::Later(later));
        }
        let near = [("lst", "list"), ("List", "list"), ("shwo", "show"), ("ls", "list")];
        for (word, meant) in near {
            assert_eq!(verb(Noun::Sessions, word), Verb::NearMiss(meant), "{word}");
        }
        assert_eq!(verb(Noun::Config, "chekc"), Verb::NearMiss("check"));
        for word in ["frobnicate", "", "remove"] {
            assert_eq!(verb(Noun::Sessions, word), Verb::Unknown, "{word}");
        }
    }
}
