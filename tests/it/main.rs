//! The integration tests, as one crate.

mod cli_args;
mod jsonl;
mod prompt;
mod text;
