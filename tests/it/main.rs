//! The one integration crate: every test of a layer's boundary and of the binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and drive processes, files and time by hand"
)]

mod arguments;
mod bash;
mod catalogue;
mod chat_decode;
mod chat_encode;
mod chat_golden;
mod chat_keys;
mod chat_provider;
mod cli;
mod cli_args;
mod config;
mod context;
mod corpus;
mod durable_lines;
mod durable_text;
mod events;
mod faults;
mod harness;
mod http;
mod jsonl;
mod loop_cases;
mod process;
mod prompt;
mod provider_errors;
mod scripted;
mod session_store;
mod sessions;
mod settle;
mod spool;
mod sse;
mod support;
mod text;
mod tidy;
mod tool_image;
mod tool_ls;
mod tool_order;
mod tool_read;
mod tool_support;
mod tool_write;
