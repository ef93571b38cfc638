//! The options of a run, as types.
//!
//! Keeps true: a value is taken verbatim whatever its first character (IN-04); the description of an option stands at
//! its field and nowhere else.
//!
//! Must not know: the configuration's other layers, files, the terminal, other commands.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum, ValueHint};

use super::PromptRequest;
use crate::model::Thinking;

/// What `--json` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JsonLevel {
    /// Every event.
    Events,
    /// Whole messages, no deltas.
    Messages,
    /// The last line only.
    Result,
}

impl JsonLevel {
    /// The word of the flag and of `output.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Messages => "messages",
            Self::Result => "result",
        }
    }

    /// The level a word names, or `None`.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Events, Self::Messages, Self::Result].into_iter().find(|level| level.as_str() == word)
    }
}

/// The value of `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// The word of the flag and of `output.color`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// One prompt word as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// It stood after `--`: `@` and `-` mean nothing in it.
    pub literal: bool,
}

/// The options that choose the layers of the configuration; a run and the commands that show or check it share them.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerArgs {
    /// Extra configuration file, above those of the project and the user
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Use the settings of [profiles.NAME]
    #[arg(short = 'P', long, value_name = "NAME", allow_hyphen_values = true)]
    pub profile: Option<String>,

    /// Set any configuration key; may be repeated
    #[arg(long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub set: Vec<String>,

    /// Ignore the files of system, user and project, AGENTS.md among them
    #[arg(long)]
    pub bare: bool,

    /// Trust the project's file for this call
    #[arg(long)]
    pub trust: bool,

    /// Run as if started in this directory
    #[arg(short = 'C', long, value_name = "DIR", allow_hyphen_values = true, value_hint = ValueHint::DirPath)]
    pub cd: Option<PathBuf>,
}

/// The options of a run, as typed.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct RunArgs {
    /// Prompt words in order; filled by [`parse`](super::parse()).
    #[arg(skip)]
    pub words: Vec<Word>,

    /// Does nothing; keeps the next word from being a command
    #[arg(short, long)]
    pub print: bool,

    /// Prompt text from a file, before the words; stdin stays free
    #[arg(short = 'f', long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub prompt_file: Option<PathBuf>,

    /// Attach a file; the same as @PATH; may be repeated
    #[arg(short, long, value_name = "PATH", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub attach: Vec<PathBuf>,

    /// Do not read stdin even if it is a pipe
    #[arg(long)]
    pub no_stdin: bool,

    /// Queue a further prompt that runs when the one before it is done; may be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = some_text)]
    pub then: Vec<String>,

    /// Go on with the session of -s or the latest one here; without a prompt, finish what is open
    #[arg(short = 'c', long = "continue")]
    pub resume: bool,

    /// Session by name, id, part of an id or file; without -c a new name makes one
    #[arg(short, long, value_name = "REF", allow_hyphen_values = true)]
    pub session: Option<String>,

    /// With -c or -s: a request that was cut off counts as failed and is not sent again
    #[arg(long, conflicts_with = "no_session")]
    pub no_resend: bool,

    /// Keep nothing on disk
    #[arg(long, conflicts_with_all = ["resume", "session"])]
    pub no_session: bool,

    /// Model: provider/id, an alias or a unique suffix, with an optional :level; more of them, behind commas, are fallbacks
    #[arg(short, long, value_name = "SPEC[,SPEC...]", allow_hyphen_values = true)]
    pub model: Option<String>,

    /// How much the model thinks
    #[arg(long, value_name = "LEVEL", value_parser = thinking_parser())]
    pub thinking: Option<Thinking>,

    /// Replace the system prompt
    #[arg(long, value_name = "TEXT|@FILE", allow_hyphen_values = true)]
    pub system: Option<String>,

    /// Add to the system prompt; may be repeated
    #[arg(long, value_name = "TEXT|@FILE", allow_hyphen_values = true)]
    pub append_system: Vec<String>,

    /// Tools: names, globs, none or ro (the default); a list of only +x and -x edits what is on
    #[arg(short, long, value_name = "LIST", allow_hyphen_values = true)]
    pub tools: Option<String>,

    /// JSON lines on stdout: events (default), messages (no deltas) or result (the last line only)
    #[arg(
        long,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "events",
        conflicts_with = "stream"
    )]
    pub json: Option<JsonLevel>,

    /// Write every event as a JSON line to this file too; {session} and {date} expand
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub events: Option<String>,

    /// Write the final answer to this file too, only if the exit code is 0 or 3
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// Write text to stdout as it comes, even into a pipe
    #[arg(long)]
    pub stream: bool,

    /// Only errors on stderr
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// More on stderr: tools and a summary; twice for arguments and results
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Colour on stderr
    #[arg(long, value_name = "WHEN")]
    pub color: Option<ColorChoice>,

    #[arg(
        long,
        value_name = "FILE",
        help = "Append a diagnostic log to this file; PIRN_LOG sets its filter",
        allow_hyphen_values = true,
        value_hint = ValueHint::FilePath
    )]
    pub log: Option<PathBuf>,

    /// Turns of the model in this run (default 200, 0 = no limit)
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number)]
    pub max_turns: Option<u32>,

    /// Stop before the next request once the run has cost this much (0 = no limit); needs models with known prices
    #[arg(long, value_name = "USD", allow_hyphen_values = true, value_parser = amount)]
    pub max_cost: Option<f64>,

    /// Wall clock for the whole run, such as 90s or 10m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub timeout: Option<String>,

    #[command(flatten)]
    pub layers: LayerArgs,
}

impl RunArgs {
    /// The part of the call that makes the prompt.
    pub fn prompt_request(&self) -> PromptRequest {
        PromptRequest {
            words: self.words.clone(),
            file: self.prompt_file.clone(),
            attachments: self.attach.clone(),
            no_stdin: self.no_stdin,
            may_be_empty: self.resume,
        }
    }
}

/// What `--max-turns` takes; the error says what, not how the reading failed.
fn whole_number(text: &str) -> Result<u32, String> {
    text.parse().ok().ok_or_else(|| format!("a whole number from 0 to {}", u32::MAX))
}

/// What `--max-cost` takes.
fn amount(text: &str) -> Result<f64, String> {
    let amount: Option<f64> = text.trim().parse().ok();
    let fits = amount.filter(|amount| amount.is_finite() && *amount >= 0.0);
    fits.ok_or_else(|| "US dollars, a number from 0".to_owned())
}

/// What `--then` takes.
fn some_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("a prompt".to_owned()) } else { Ok(text.to_owned()) }
}

fn thinking_parser() -> impl TypedValueParser<Value = Thinking> {
    PossibleValuesParser::new(Thinking::ALL.map(Thinking::as_str))
        .try_map(|word| Thinking::from_word(&word).ok_or("no such level"))
}
