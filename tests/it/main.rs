//! The one integration crate.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that meets the unexpected fails loudly, also in its helpers"
)]

mod chat_decode;
mod chat_encode;
mod chat_golden;
mod chat_provider;
mod corpus;
mod http;
mod provider_errors;
mod settle;
mod sse;
mod support;
