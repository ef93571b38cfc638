//! Mistakes of the caller, and the translation of the argument parser's errors into them.
//!
//! Keeps true: what is shown of an argument is one short line without control characters; an option this version
//! does not know always comes with the `--` remedy, since the argument may have been meant as text (IN-03).
//!
//! Must not know: how an error is printed, which exit code it has.

use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};

use super::words;
use crate::model::{ErrorKind, ErrorRecord};

/// Characters of a caller's argument that an error repeats.
const SHOWN_CHARS_MAX: usize = 60;
const DASH_REMEDY: &str = "a prompt that starts with - goes after --: pirn -- PROMPT";

/// A mistake in the call, found before anything was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    /// One line, no final period.
    pub message: String,
    /// What to type instead.
    pub hint: Option<String>,
    /// Whether the short help is worth showing, because nothing was asked at all.
    pub show_help: bool,
}

impl UsageError {
    /// An error with a message only.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, show_help: false }
    }

    /// The same error with a remedy.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error, asking for the short help to be shown.
    #[must_use]
    pub fn with_help(mut self) -> Self {
        self.show_help = true;
        self
    }
}

impl From<UsageError> for ErrorRecord {
    fn from(error: UsageError) -> Self {
        let mut record = Self::new(ErrorKind::Usage, error.message);
        record.hint = error.hint;
        record
    }
}

/// The first line of an argument, without control characters and cut to a readable length.
pub(super) fn shown(argument: &str) -> String {
    let line = argument.lines().next().unwrap_or_default();
    let mut text: String = line.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if line.chars().count() > SHOWN_CHARS_MAX || argument.lines().nth(1).is_some() {
        text.push('…');
    }
    text
}

/// Translates an error of the argument parser.
pub(super) fn from_clap(error: &clap::Error) -> UsageError {
    let argument = option_name(&text(error, ContextKind::InvalidArg));
    let value = shown(&text(error, ContextKind::InvalidValue));
    match error.kind() {
        ClapKind::UnknownArgument => unknown_option(error),
        ClapKind::InvalidValue if value.is_empty() => UsageError::new(format!("{argument} needs a value")),
        ClapKind::InvalidValue => invalid_value(error, &argument, &value),
        ClapKind::ValueValidation => {
            let wanted = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            UsageError::new(format!("{argument} takes {wanted}, not `{value}`"))
        }
        ClapKind::TooManyValues => UsageError::new(format!("{argument} takes no value, but `{value}` was given")),
        ClapKind::ArgumentConflict => {
            let other = option_name(&text(error, ContextKind::PriorArg));
            if argument == other {
                return UsageError::new(format!("{argument} was given twice"));
            }
            let failure = UsageError::new(format!("{argument} cannot be used with {other}"));
            match conflict_remedy(&argument, &other) {
                Some(remedy) => failure.with_hint(remedy),
                None => failure,
            }
        }
        ClapKind::InvalidUtf8 => not_utf8(),
        _ => UsageError::new(first_line(error)),
    }
}

/// The error for an argument that is no text.
pub(super) fn not_utf8() -> UsageError {
    UsageError::new("an argument is not valid UTF-8").with_hint(
        "give text in another encoding on stdin as UTF-16 or \
         convert it first: iconv -f LATIN1 -t UTF-8 FILE | pirn",
    )
}

fn unknown_option(error: &clap::Error) -> UsageError {
    let whole = text(error, ContextKind::InvalidArg);
    let message = format!("unknown option {}", shown(&whole));
    let name = whole.split('=').next().unwrap_or_default();
    if words::is_later_option(name) {
        let hint = format!("{name} is not available in this version; {DASH_REMEDY}");
        return UsageError::new(message).with_hint(hint);
    }
    let suggestion = text(error, ContextKind::SuggestedArg);
    let hint = if suggestion.is_empty() {
        DASH_REMEDY.to_owned()
    } else {
        format!("did you mean {suggestion}? {DASH_REMEDY}")
    };
    UsageError::new(message).with_hint(hint)
}

/// What to do about two options that contradict each other; the parser names them in either order.
fn conflict_remedy(one: &str, other: &str) -> Option<&'static str> {
    const REMEDIES: [([&str; 2], &str); 6] = [
        (["--no-session", "--continue"], "leave one out: --no-session keeps nothing, --continue needs what was kept"),
        (["--no-session", "--session"], "leave one out: --no-session keeps nothing, --session names what is kept"),
        (["--json", "--stream"], "--json already writes everything as it comes"),
        (["--no-resend", "--no-session"], "leave one out: --no-resend is about what was kept"),
        (["--quiet", "--verbose"], "leave one out"),
        (["--abort", "--follow-up"], "leave one out: --abort sends no message"),
    ];
    let is_pair = |pair: &[&str; 2]| *pair == [one, other] || *pair == [other, one];
    REMEDIES.iter().find(|(pair, _)| is_pair(pair)).map(|(_, remedy)| *remedy)
}

fn invalid_value(error: &clap::Error, argument: &str, value: &str) -> UsageError {
    if argument == "--format" && words::is_later_format(value) {
        return UsageError::new(format!("--format {value} is not available in this version"));
    }
    let valid = text(error, ContextKind::ValidValue);
    let suggestion = text(error, ContextKind::SuggestedValue);
    let failure = UsageError::new(format!("{argument} cannot be `{value}`; it is one of {valid}"));
    if suggestion.is_empty() { failure } else { failure.with_hint(format!("did you mean {suggestion}?")) }
}

/// `--thinking <LEVEL>` → `--thinking`.
fn option_name(shown_by_clap: &str) -> String {
    let end = shown_by_clap.find([' ', '[', '=']).unwrap_or(shown_by_clap.len());
    // An option that may be repeated is shown with dots.
    shown_by_clap.get(..end).unwrap_or(shown_by_clap).trim_end_matches('.').to_owned()
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    }
}

fn first_line(error: &clap::Error) -> String {
    let rendered = error.to_string();
    let line = rendered.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
