//! What integration tests share.

pub(crate) mod chat;
mod request;
pub(crate) mod server;
pub(crate) mod tls;
