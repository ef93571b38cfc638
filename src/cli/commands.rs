//! The commands beside a run, as types.
//!
//! Keeps true: what a command takes is described at its fields and nowhere else; a verb that is not here does not
//! exist in this version.
//!
//! Must not know: what the commands do, options of a run beyond those it shares with them.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::{LayerArgs, Word};

/// The options of `pirn models`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelsArgs {
    /// Show only models whose provider/id contains this; filled by [`parse`](super::parse()).
    #[arg(skip)]
    pub pattern: Option<String>,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// The options of `pirn steer`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerArgs {
    /// The message in order; none with `--abort`; filled by [`parse`](super::parse()).
    #[arg(skip)]
    pub words: Vec<Word>,

    /// Session by name, id, part of an id or file; without it, the one that runs in this directory, else the latest
    #[arg(short, long, value_name = "REF", allow_hyphen_values = true)]
    pub session: Option<String>,

    /// Let the message wait until the run would end, instead of sending it with the next request
    #[arg(long)]
    pub follow_up: bool,

    /// End the run instead of sending a message
    #[arg(long, conflicts_with = "follow_up")]
    pub abort: bool,

    #[command(flatten)]
    pub layers: LayerArgs,
}

/// A verb of `pirn sessions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionsArgs {
    List(SessionsListArgs),
    Show(SessionsShowArgs),
}

/// The options of `pirn sessions list`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionsListArgs {
    /// Text to look for in names, ids and prompts; filled by [`parse`](super::parse()).
    #[arg(skip)]
    pub query: Option<String>,

    /// Sessions of every directory
    #[arg(long)]
    pub all: bool,

    /// At most this many (default 20), the latest first
    #[arg(short = 'n', value_name = "N", allow_hyphen_values = true, value_parser = at_least_one)]
    pub limit: Option<usize>,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// The options of `pirn sessions show`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SessionsShowArgs {
    /// The session; `None` = the latest of this directory; filled by [`parse`](super::parse()).
    #[arg(skip)]
    pub reference: Option<String>,

    /// How to show it
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub format: ShowFormat,
}

/// How `pirn sessions show` writes a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ShowFormat {
    #[default]
    Text,
    Json,
}

/// A verb of `pirn config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigArgs {
    Init(ConfigInitArgs),
    Show(ConfigShowArgs),
    Check(ConfigCheckArgs),
    /// Print the JSON Schema.
    Schema,
    Path(LayerArgs),
    Trust(ConfigTrustArgs),
}

/// The options of `pirn config init`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigInitArgs {
    /// Write the user's file instead of pirn.toml in this directory
    #[arg(long)]
    pub user: bool,

    /// Run as if started in this directory
    #[arg(short = 'C', long, value_name = "DIR", allow_hyphen_values = true, value_hint = ValueHint::DirPath)]
    pub cd: Option<PathBuf>,
}

/// The options of `pirn config show`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigShowArgs {
    /// Say where each value was written
    #[arg(long)]
    pub origin: bool,

    #[command(flatten)]
    pub layers: LayerArgs,
}

/// The options of `pirn config check`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigCheckArgs {
    /// Files to check instead of those a run reads; filled by [`parse`](super::parse()).
    #[arg(skip)]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub layers: LayerArgs,
}

/// The options of `pirn config path`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigPathArgs {
    #[command(flatten)]
    pub(super) layers: LayerArgs,
}

/// The options of `pirn config trust`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigTrustArgs {
    /// The file; `None` = the project's; filled by [`parse`](super::parse()).
    #[arg(skip)]
    pub file: Option<PathBuf>,

    /// Trust it no longer
    #[arg(long)]
    pub revoke: bool,

    /// Run as if started in this directory
    #[arg(short = 'C', long, value_name = "DIR", allow_hyphen_values = true, value_hint = ValueHint::DirPath)]
    pub cd: Option<PathBuf>,
}

/// What `pirn completions` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    #[value(name = "powershell")]
    PowerShell,
    /// The manual page.
    Man,
}

impl Shell {
    /// Everything there is to write.
    pub const ALL: [Self; 6] = [Self::Bash, Self::Zsh, Self::Fish, Self::Elvish, Self::PowerShell, Self::Man];

    /// The word of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
            Self::Elvish => "elvish",
            Self::PowerShell => "powershell",
            Self::Man => "man",
        }
    }

    /// The name a file of it has by convention, so that its shell or `man` finds it.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Bash => "pirn.bash",
            Self::Zsh => "_pirn",
            Self::Fish => "pirn.fish",
            Self::Elvish => "pirn.elv",
            Self::PowerShell => "_pirn.ps1",
            Self::Man => "pirn.1",
        }
    }

    /// What a word names, or `None`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shell| shell.as_str() == word)
    }
}

/// What `-n` takes; a list of none is no wish.
fn at_least_one(text: &str) -> Result<usize, String> {
    let count: Option<u32> = text.parse().ok().filter(|count| *count > 0);
    let count = count.and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| format!("a whole number from 1 to {}", u32::MAX))
}
