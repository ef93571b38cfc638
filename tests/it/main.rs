//! The integration tests, one crate.

mod chat_encode;
mod chat_provider;
mod http;
//! The one integration crate.

#[cfg(test)]
mod chat_decode;
#[cfg(test)]
#[cfg(test)]
mod chat_golden;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod provider_errors;
mod settle;
mod support;
#[cfg(test)]
mod sse;
