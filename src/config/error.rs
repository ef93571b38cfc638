//! Where a setting was written, and what is wrong with it.
//!
//! Keeps true: every error names its place; errors are sorted by layer and, within a file, by position; no text holds a
//! secret.
//!
//! Must not know: how settings are read, which exit code follows.

use std::fmt;
use std::sync::Arc;

use crate::model::{ErrorKind, ErrorRecord};

/// How many errors are shown; the rest is counted.
pub(super) const ERRORS_SHOWN_MAX: usize = 50;

/// Where a setting was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    BuiltIn,
    /// Line and column count from 1; the column counts characters.
    File {
        file: Arc<str>,
        line: usize,
        column: usize,
    },
    /// The variable's name.
    Env(String),
    /// The flag's name, such as `--max-turns` or `--set`.
    Flag(String),
}

impl Origin {
    /// Which layer wins: built in, file, environment, flags.
    pub fn rank(&self) -> u8 {
        match self {
            Self::BuiltIn => 0,
            Self::File { .. } => 1,
            Self::Env(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Env(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub at: Place,
    /// Says which key and what about it; holds no secret.
    pub message: String,
    /// The word that was probably meant.
    pub suggestion: Option<String>,
}

/// The place an error names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Setting(Origin),
    /// A file as a whole.
    File(Arc<str>),
}

impl ConfigError {
    /// An error at a setting, without a suggestion.
    pub fn new(at: Origin, message: impl Into<String>) -> Self {
        Self { at: Place::Setting(at), message: message.into(), suggestion: None }
    }

    /// The same error with the word that was probably meant.
    #[must_use]
    pub fn suggest(mut self, word: Option<impl Into<String>>) -> Self {
        self.suggestion = word.map(Into::into);
        self
    }

    /// The place and what is wrong, without the suggestion.
    fn bare(&self) -> String {
        match &self.at {
            Place::Setting(origin) => format!("{origin}: {}", self.message),
            Place::File(file) => format!("{file}: {}", self.message),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bare())?;
        match &self.suggestion {
            Some(word) => write!(f, " (did you mean {word}?)"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with the configuration, layer by layer and in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `None` when there is nothing to report.
    pub fn from_list(mut errors: Vec<ConfigError>) -> Option<Self> {
        errors.sort_by(|a, b| a.at.cmp(&b.at));
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// The errors, layer by layer and in file order.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// The record that ends the program: kind `config`, one error a line; a single suggestion becomes the hint.
    pub fn record(&self) -> ErrorRecord {
        match self.0.as_slice() {
            [ConfigError { suggestion: Some(word), .. }] => {
                let message = self.0.iter().map(ConfigError::bare).collect::<String>();
                ErrorRecord::new(ErrorKind::Config, message).with_hint(format!("did you mean {word}?"))
            }
            _ => ErrorRecord::new(ErrorKind::Config, self.to_string()),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().take(ERRORS_SHOWN_MAX).enumerate() {
            write!(f, "{}{error}", if at > 0 { "\n" } else { "" })?;
        }
        match self.0.len().saturating_sub(ERRORS_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigErrors> for ErrorRecord {
    fn from(errors: ConfigErrors) -> Self {
        errors.record()
    }
}
