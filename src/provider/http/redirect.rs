//! What to do about a redirect (HTTP-7).
//!
//! Keeps true: a body is sent again only where the status says so; credentials stay with the scheme, host and port they
//! were meant for; nothing leads from https to http.
//!
//! Must not know: how requests are sent.

use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::model::{ErrorRecord, Headers};
use crate::provider::error::{self, ErrorContext};
use crate::provider::url::shown;

/// How many redirects one request follows.
pub(super) const REDIRECTS_MAX: usize = 5;

/// Where an answer sends a POST: nowhere, or to a URL that may replay the body. Statuses that would turn the POST
/// into a GET, and a way from https to http, are errors that name the target.
pub(super) fn target(
    from: &Url,
    status: u16,
    location: Option<&str>,
    context: &ErrorContext,
) -> Result<Option<Url>, ErrorRecord> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(to) = location.and_then(|text| from.join(text).ok()) else { return Ok(None) };
    if !matches!(status, 307 | 308) {
        return Err(refused(&to, &format!("status {status} does not allow to send the request again"), context));
    }
    match (from.scheme(), to.scheme()) {
        ("https", "http") => Err(refused(&to, "it leads from https to http", context)),
        (_, "https" | "http") => Ok(Some(to)),
        _ => Err(refused(&to, "it is no web address", context)),
    }
}

/// The error of a chain that does not end.
pub(super) fn too_many(context: &ErrorContext) -> ErrorRecord {
    error::config(context, &format!("redirected more than {REDIRECTS_MAX} times"))
}

fn refused(to: &Url, why: &str, context: &ErrorContext) -> ErrorRecord {
    let text = format!("redirected to {}, which is not followed: {why}", shown(to.as_str()));
    error::config(context, &text).with_hint("make the base URL the address it redirects to")
}

/// Removes what only the first server may see when the next one is another. Gives whether anything was.
pub(super) fn drop_credentials(from: &Url, to: &Url, headers: &mut HeaderMap) -> bool {
    let same = from.scheme() == to.scheme()
        && from.host_str() == to.host_str()
        && from.port_or_known_default() == to.port_or_known_default();
    if same {
        return false;
    }
    let secret: Vec<_> = headers
        .iter()
        .filter(|(name, value)| value.is_sensitive() || Headers::is_secret_name(name.as_str()))
        .map(|(name, _)| name.clone())
        .collect();
    let any = !secret.is_empty();
    for name in secret {
        headers.remove(name);
    }
    any
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::target;
    use crate::provider::error::ErrorContext;

    /// The target, or part of the error.
    type Want = Result<Option<&'static str>, &'static str>;

    #[test]
    fn only_redirects_that_keep_the_method_are_followed() {
        let table: [(&str, u16, Option<&str>, Want); 9] = [
            ("http://a/v1", 200, Some("/x"), Ok(None)),
            ("http://a/v1", 307, Some("/x"), Ok(Some("http://a/x"))),
            ("http://a/v1", 308, Some("https://b/x"), Ok(Some("https://b/x"))),
            ("http://a/v1", 307, None, Ok(None)),
            ("http://a/v1", 302, Some("http://b/login?next=1"), Err("redirected to http://b/login, which")),
            ("http://a/v1", 301, Some("/x"), Err("status 301")),
            ("http://a/v1", 303, Some("/x"), Err("status 303")),
            ("https://a/v1", 307, Some("http://a/v1"), Err("from https to http")),
            ("https://a/v1", 307, Some("ftp://a/v1"), Err("no web address")),
        ];
        for (from, status, location, want) in table {
            let got = target(&Url::parse(from).unwrap(), status, location, &ErrorContext::default());
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got.as_ref().map(Url::as_str), want, "{status} {location:?}"),
                (Err(got), Err(want)) => assert!(got.message.contains(want), "{}", got.message),
                (got, want) => panic!("{status} {location:?}: {got:?} instead of {want:?}"),
            }
        }
    }
}
