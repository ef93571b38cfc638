//! One HTTP client for every provider: requests out, status-checked bodies with timers in.
//!
//! Keeps true: the client is built once, when the first request needs it, and without certificates for cleartext
//! (PERF-1); one attempt per request, but for a pooled connection that was already dead; dropping a body closes its
//! connection; no error text holds a credential or a query string.
//!
//! Must not know: protocols, the environment, loops.

mod body;
mod client;
mod failure;
mod headers;
mod proxy;
mod redirect;
mod secrets;
mod timers;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use body::ResponseBody;
pub use client::HttpClient;
pub use proxy::ProxySettings;

use crate::model::{ErrorRecord, Headers, Secret};
use crate::port::{ResponseMeta, Timeouts};
use crate::provider::error::ErrorContext;

/// Everything the client takes from configuration and environment. One client per distinct value.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// TCP and TLS together; `None` = no limit.
    pub connect_timeout: Option<Duration>,
    pub proxy: ProxySettings,
    /// PEM file that replaces every other source of root certificates.
    pub ca_file: Option<PathBuf>,
    /// PEM file that replaces the system's store.
    pub ssl_cert_file: Option<PathBuf>,
    /// Directory of PEM files that replaces the system's store, together with `ssl_cert_file` where both are set.
    pub ssl_cert_dir: Option<PathBuf>,
    /// Sent with every request that does not bring its own.
    pub user_agent: String,
}

impl Default for HttpSettings {
    /// The documented defaults: no proxy, the system's certificates.
    fn default() -> Self {
        Self {
            connect_timeout: Timeouts::default().connect,
            proxy: ProxySettings::default(),
            ca_file: None,
            ssl_cert_file: None,
            ssl_cert_dir: None,
            user_agent: concat!("pirn/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// One POST of JSON.
#[derive(Clone, Debug)]
pub struct PostRequest {
    /// Holds no credential.
    pub url: String,
    /// On top of the built-in ones; `None` removes a header (HTTP-3).
    pub headers: Headers,
    pub body: Bytes,
    /// `connect` is the client's, see [`HttpSettings::connect_timeout`].
    pub timeouts: Timeouts,
    /// For error records; its `url` and `request_id` are filled in on the way.
    pub context: ErrorContext,
}

/// A 2xx answer.
#[derive(Debug)]
pub struct Response {
    pub meta: ResponseMeta,
    pub body: ResponseBody,
    /// What texts made from the body must not show: the secrets of the request's context and those of its way.
    pub secrets: Vec<Secret>,
}

/// Why there is no 2xx answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The server refused; the caller knows how to read its body.
    #[error("HTTP status {}", .0.status)]
    Status(Box<Refusal>),
    /// Anything before or beside a status.
    #[error(transparent)]
    Failed(#[from] ErrorRecord),
}

/// An answer of another status than 2xx.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: u16,
    /// Names in lower case; without cookies.
    pub headers: Vec<(String, String)>,
    pub meta: ResponseMeta,
    /// At most [`BODY_BYTES_MAX`](crate::provider::error::BODY_BYTES_MAX) bytes.
    pub body: Vec<u8>,
    /// The context of the request, with the URL that refused.
    pub context: ErrorContext,
}
