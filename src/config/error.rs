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

/// The layers that are files, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileLayer {
    /// `/etc/pirn/pirn.toml`.
    System,
    /// The user's own.
    User,
    /// The nearest `pirn.toml`.
    Project,
    /// `--config` or `PIRN_CONFIG`.
    Named,
    /// The `[profiles.NAME]` in use, whichever file it stands in.
    Profile,
}

impl FileLayer {
    /// The word that listings use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Project => "project",
            Self::Named => "named",
            Self::Profile => "profile",
        }
    }
}

/// Where a setting was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    /// Line and column count from 1; the column counts characters.
    File {
        layer: FileLayer,
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
    /// Which layer wins: built in, the files, environment, flags.
    pub fn rank(&self) -> (u8, Option<FileLayer>) {
        match self {
            Self::BuiltIn => (0, None),
            Self::File { layer, .. } => (1, Some(*layer)),
            Self::Env(_) => (2, None),
            Self::Flag(_) => (3, None),
        }
    }

    /// The same place, read as a part of the profile in use.
    pub(super) fn of_profile(self) -> Self {
        match self {
            Self::File { file, line, column, .. } => Self::File { layer: FileLayer::Profile, file, line, column },
            other => other,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File { file, line, column, .. } => write!(f, "{file}:{line}:{column}"),
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
    /// What to do about it.
    pub remedy: Option<String>,
}

/// The place an error names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Setting(Origin),
    /// A file as a whole.
    File {
        layer: FileLayer,
        file: Arc<str>,
    },
    /// A file as a whole, which the message names itself.
    Named(FileLayer),
    /// No file and no setting; the message says all.
    Nowhere,
}

impl Place {
    /// Layer by layer and, within a file, by position.
    fn order(&self) -> (u8, Option<FileLayer>, &str, usize, usize) {
        match self {
            Self::Nowhere => (0, None, "", 0, 0),
            Self::Named(layer) => (1, Some(*layer), "", 0, 0),
            Self::File { layer, file } => (1, Some(*layer), file, usize::MAX, 0),
            Self::Setting(origin) => {
                let (rank, layer) = origin.rank();
                match origin {
                    Origin::File { file, line, column, .. } => (rank, layer, file, *line, *column),
                    Origin::Env(name) => (rank, layer, name, 0, 0),
                    // In the order in which they were given.
                    Origin::BuiltIn | Origin::Flag(_) => (rank, layer, "", 0, 0),
                }
            }
        }
    }
}

impl ConfigError {
    /// An error at a setting, without a suggestion.
    pub fn new(at: Origin, message: impl Into<String>) -> Self {
        Self::at(Place::Setting(at), message)
    }

    /// An error at any place, without a suggestion.
    pub fn at(at: Place, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), suggestion: None, remedy: None }
    }

    /// The same error with the word that was probably meant.
    #[must_use]
    pub fn suggest(mut self, word: Option<impl Into<String>>) -> Self {
        self.suggestion = word.map(Into::into);
        self
    }

    /// The same error with what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The place and what is wrong, without the suggestion.
    fn bare(&self) -> String {
        match &self.at {
            Place::Setting(origin) => format!("{origin}: {}", self.message),
            Place::File { file, .. } => format!("{file}: {}", self.message),
            Place::Named(_) | Place::Nowhere => self.message.clone(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bare())?;
        if let Some(word) = &self.suggestion {
            write!(f, " (did you mean {word}?)")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
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
        errors.sort_by(|a, b| a.at.order().cmp(&b.at.order()));
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// The errors, layer by layer and in file order.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// The record that ends the program: kind `config`, one error a line. What to do about a single error, or the word
    /// it probably meant, becomes the hint.
    pub fn record(&self) -> ErrorRecord {
        let [error] = self.0.as_slice() else { return ErrorRecord::new(ErrorKind::Config, self.to_string()) };
        let hint = match (&error.remedy, &error.suggestion) {
            (Some(remedy), _) => remedy.clone(),
            (None, Some(word)) => format!("did you mean {word}?"),
            (None, None) => return ErrorRecord::new(ErrorKind::Config, error.bare()),
        };
        ErrorRecord::new(ErrorKind::Config, error.bare()).with_hint(hint)
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
