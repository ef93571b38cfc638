//! The integration tests, one crate.

mod chat_encode;
mod chat_provider;
mod http;
mod provider_errors;
mod settle;
mod support;
