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

mod cli_args;
mod jsonl;
mod prompt;
mod text;
mod tidy;
