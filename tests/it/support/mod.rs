//! What integration tests share.

pub(crate) mod chat;
pub(crate) mod server;
pub(crate) mod tls;
