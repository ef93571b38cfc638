//! Language models: the HTTP layer, the wire protocols, the error taxonomy, the catalogue and the demo model.
//!
//! Keeps true: decoders do no input or output and are total, any bytes give events or a typed error; the contract of
//! a stream is made in one place ([`settle`]); one attempt per request, retries belong to others; no secret is in any
//! error, event or log.
//!
//! Must not know: loops, tools, sessions, printing.

pub mod arguments;
pub mod catalogue;
pub mod chat;
pub mod compat;
pub mod demo;
pub mod error;
pub mod http;
pub mod ids;
pub mod json;
pub mod redact;
pub mod router;
pub mod settle;
pub mod sse;
pub mod url;
pub mod wire;
