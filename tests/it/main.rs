//! The integration tests, one crate.

mod chat_encode;
mod chat_provider;
mod http;
//! The one integration crate.

#[cfg(test)]
#[cfg(test)]
mod provider_errors;
mod settle;
mod support;
