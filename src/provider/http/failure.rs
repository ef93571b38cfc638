//! Transport failures as error records (ERR-3).
//!
//! Keeps true: decided by types, never by text; no text holds a URL, a header or a body; certificate errors are not
//! retryable and name the remedy.
//!
//! Must not know: statuses.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpInfo;

use super::timers::seconds;
use crate::model::ErrorRecord;
use crate::provider::error::{self, ErrorContext};
use crate::provider::url::host_and_port;

/// How deep a chain of causes is followed.
const CAUSES_MAX: usize = 16;

/// What the library says when a proxy answers CONNECT with 407; the type of that error is private.
const PROXY_WANTS_CREDENTIALS: &str = "proxy authorization required";

/// Why sending failed before the head of a response was there.
pub(super) fn sending(failed: &reqwest::Error, limit: Option<Duration>, context: &ErrorContext) -> ErrorRecord {
    let mut peer = context.url.as_deref().map_or_else(String::new, host_and_port);
    if let Some(record) = certificate(failed, &peer, context) {
        return record;
    }
    let root = root(failed);
    if failed.is_builder() {
        return error::config(context, &format!("the request to {peer} cannot be made: {root}"));
    }
    if let Some(via) = &context.via {
        // The library does not tell which of the two it could not reach.
        peer = format!("{peer} through the proxy {}", via.address);
        if failed.is_connect() && root.contains(PROXY_WANTS_CREDENTIALS) {
            return error::proxy_credentials(via, &format!("cannot connect to {peer}: {root}"), context);
        }
    }
    if failed.is_timeout() && failed.is_connect() {
        let limit = limit.map_or_else(String::new, |limit| format!(" for {}", seconds(limit)));
        let record = error::timeout(context, &format!("connect timeout: no connection to {peer}{limit}"));
        return record.with_hint("limits.connect_timeout sets this limit");
    }
    let text = if failed.is_dns() && context.via.is_none() {
        format!("cannot find {peer}: {root}")
    } else if failed.is_connect() {
        format!("cannot connect to {peer}: {root}")
    } else if find::<hyper::Error>(failed).is_some_and(hyper::Error::is_incomplete_message) {
        "The connection closed before a reply.".to_owned()
    } else {
        format!("the request to {peer} failed: {root}")
    };
    error::network(context, &text)
}

/// Why the body broke off.
pub(super) fn reading(failed: &reqwest::Error, context: &ErrorContext) -> ErrorRecord {
    error::network(context, &format!("the connection broke off during the reply: {}", root(failed)))
}

fn certificate(failed: &reqwest::Error, peer: &str, context: &ErrorContext) -> Option<ErrorRecord> {
    let found = find::<rustls::Error>(failed)?;
    let rustls::Error::InvalidCertificate(reason) = found else { return None };
    let mut record = error::certificate(context, &format!("cannot verify the certificate of {peer}: {found}"));
    // Another authority helps only where this one is unknown; a wrong name or an old date stays wrong.
    if !matches!(reason, rustls::CertificateError::UnknownIssuer) {
        record.hint = None;
    }
    Some(record)
}

/// Whether the pooled connection the request went out on was dead: it failed there without a byte of an answer.
/// Gives the local address of that connection.
pub(super) fn dead_connection(error: &reqwest::Error) -> Option<std::net::SocketAddr> {
    if error.is_connect() || error.is_timeout() || error.is_builder() {
        return None;
    }
    if find::<hyper::Error>(error).is_some_and(|error| error.is_parse() && !error.is_incomplete_message()) {
        return None;
    }
    let sent = find::<hyper_util::client::legacy::Error>(error)?;
    let mut extras = hyper::http::Extensions::new();
    sent.connect_info()?.get_extras(&mut extras);
    extras.get::<HttpInfo>().map(HttpInfo::local_addr)
}

/// The first cause of a type. Looks into `io::Error`, whose `source` skips what it wraps.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    causes(error).into_iter().find_map(|cause| cause.downcast_ref::<T>())
}

/// The text of the last cause, on one line.
fn root(error: &(dyn Error + 'static)) -> String {
    let text = causes(error).last().map_or_else(String::new, ToString::to_string);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut found = vec![error];
    let mut current = error;
    while found.len() < CAUSES_MAX {
        let wrapped = current.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let next = match wrapped {
            Some(inner) => inner as &(dyn Error + 'static),
            None => match current.source() {
                Some(source) => source,
                None => break,
            },
        };
        found.push(next);
        current = next;
    }
    found
}
