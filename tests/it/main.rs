//! The one integration crate.

#[cfg(test)]
mod chat_encode;
#[cfg(test)]
mod provider_errors;
