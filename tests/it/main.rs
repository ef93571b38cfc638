//! The integration tests, one crate.

mod http;
mod settle;
mod support;
