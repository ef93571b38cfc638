//! Transport failures as error records (ERR-3).
//!
//! Keeps true: decided by types, never by text; no text holds a URL, a header or a body; certificate errors are not
//! retryable and name the remedy.
//!
//! Must not know: statuses.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::timers::seconds;
use crate::model::{ErrorKind, ErrorRecord};

/// How deep a chain of causes is followed.
const CAUSES_MAX: usize = 16;

/// Why sending failed before the head of a response was there. `peer` is `host:port`.
pub(super) fn sending(error: &reqwest::Error, peer: &str, connect_timeout: Option<Duration>) -> ErrorRecord {
    if let Some(record) = certificate(error, peer) {
        return record;
    }
    if error.is_builder() {
        return ErrorRecord::new(ErrorKind::Config, format!("the request to {peer} cannot be made: {}", root(error)));
    }
    if error.is_timeout() && error.is_connect() {
        let limit = connect_timeout.map_or_else(String::new, |limit| format!(" for {}", seconds(limit)));
        let text = format!("connect timeout: no connection to {peer}{limit}");
        return ErrorRecord::new(ErrorKind::Timeout, text).retryable();
    }
    let text = if error.is_dns() {
        format!("cannot find {peer}: {}", root(error))
    } else if error.is_connect() {
        format!("cannot connect to {peer}: {}", root(error))
    } else if find::<hyper::Error>(error).is_some_and(hyper::Error::is_incomplete_message) {
        "The connection closed before a reply.".to_owned()
    } else {
        format!("the request to {peer} failed: {}", root(error))
    };
    ErrorRecord::new(ErrorKind::Network, text).retryable()
}

/// Why the body broke off.
pub(super) fn reading(error: &reqwest::Error) -> ErrorRecord {
    let text = format!("The connection broke off during the reply: {}", root(error));
    ErrorRecord::new(ErrorKind::Network, text).retryable()
}

fn certificate(error: &reqwest::Error, peer: &str) -> Option<ErrorRecord> {
    let found = find::<rustls::Error>(error)?;
    let rustls::Error::InvalidCertificate(reason) = found else { return None };
    let mut text = format!("cannot verify the TLS certificate of {peer}: {found}");
    if matches!(reason, rustls::CertificateError::UnknownIssuer) {
        text.push_str(
            "; set SSL_CERT_FILE, or ca_file of the provider, to a PEM file with your authority's certificate",
        );
    }
    Some(ErrorRecord::new(ErrorKind::Network, text))
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
    extras.get::<hyper_util::client::legacy::connect::HttpInfo>().map(|info| info.local_addr())
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
