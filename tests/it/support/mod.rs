//! What integration tests share.

pub(crate) mod chat;
pub(crate) mod clock;
pub(crate) mod images;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod tls;
