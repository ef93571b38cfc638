//! The one integration crate.

#[cfg(test)]
mod chat_decode;
#[cfg(test)]
mod chat_encode;
#[cfg(test)]
mod chat_golden;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod provider_errors;
#[cfg(test)]
mod sse;
