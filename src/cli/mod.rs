//! The command line and the way from its words, files and standard input to a prompt.
//!
//! Keeps true: parsing touches nothing outside its input; a command word never swallows a prompt and a prompt is never
//! taken for an option; every mistake is a [`UsageError`] that says what to type instead; help text is the reference of
//! the options.
//!
//! Must not know: providers, tools, sessions, printing.

mod args;
mod attach;
mod commands;
mod completions;
mod decode;
mod describe;
#[cfg(feature = "test-support")]
mod generate;
mod load;
#[cfg(feature = "test-support")]
mod manual;
mod overrides;
mod parse;
mod prompt;
mod scan;
mod stdin;
mod steer;
mod usage;
mod words;

pub use args::{ColorChoice, JsonLevel, LayerArgs, RunArgs, Word};
pub use attach::{IMAGE_BYTES_MAX, IMAGES_BYTES_MAX, IMAGES_MAX, PromptImage};
pub use commands::{
    ConfigArgs, ConfigCheckArgs, ConfigInitArgs, ConfigShowArgs, ConfigTrustArgs, ModelsArgs, SessionsArgs,
    SessionsListArgs, SessionsShowArgs, Shell, ShowFormat, SteerArgs,
};
pub use completions::completions;
pub use describe::command;
#[cfg(feature = "test-support")]
pub use generate::generate;
pub use load::{PromptIo, load};
pub use parse::{Invocation, is_run, parse, short_help, wants_json};
pub use prompt::{Part, Plan, Prompt, PromptRequest, Sources, StdinKind, StdinUse, TEXT_BYTES_MAX, assemble, plan};
pub use stdin::{NOTICE, stdin_kind};
pub use steer::steer_text;
pub use usage::UsageError;
