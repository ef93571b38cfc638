//! Headers of requests and responses.
//!
//! Keeps true: the caller's headers win over the built-in ones, whatever the case of their names; values of credentials
//! are marked and stand in no error; cookies are dropped.
//!
//! Must not know: which headers a provider wants.

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};

use crate::model::{ErrorRecord, Headers};
use crate::port::ResponseMeta;
use crate::provider::error::{self, ErrorContext};

/// The built-in headers with the caller's on top (HTTP-1, HTTP-3). The error names a header that cannot be sent,
/// never its value.
pub(super) fn request(user_agent: &str, extra: &Headers, context: &ErrorContext) -> Result<HeaderMap, ErrorRecord> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    headers.insert(USER_AGENT, value(USER_AGENT.as_str(), user_agent, context)?);
    for (name, text) in extra.iter() {
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_invalid| invalid(name, "name", context))?;
        match text {
            None => drop(headers.remove(parsed)),
            Some(text) => drop(headers.insert(parsed, value(name, text, context)?)),
        }
    }
    Ok(headers)
}

fn value(name: &str, text: &str, context: &ErrorContext) -> Result<HeaderValue, ErrorRecord> {
    let mut value = HeaderValue::from_str(text.trim()).map_err(|_invalid| invalid(name, "value", context))?;
    value.set_sensitive(Headers::is_secret_name(name));
    Ok(value)
}

fn invalid(name: &str, what: &str, context: &ErrorContext) -> ErrorRecord {
    error::config(context, &format!("header {name}: the {what} has characters that HTTP does not allow"))
}

/// All response headers but cookies; names in lower case.
pub(super) fn response(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, _)| !name.as_str().contains("cookie"))
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}

/// The facts worth showing: rate limits and retry hints (HTTP-12), and the request's id.
pub(super) fn meta(status: u16, headers: &[(String, String)]) -> ResponseMeta {
    let shown = headers
        .iter()
        .filter(|(name, _)| {
            ["retry-after", "x-ratelimit-", "anthropic-ratelimit-", "ratelimit", "x-should-retry"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .cloned()
        .collect();
    ResponseMeta { status, request_id: error::request_id(headers), headers: shown }
}

#[cfg(test)]
mod tests {
    use super::{meta, request};
    use crate::model::Headers;
    use crate::provider::error::ErrorContext;

    #[test]
    fn later_headers_win_whatever_their_case_and_none_removes() {
        let mut extra = Headers::new();
        extra.set("User-Agent", Some("mine/1".to_owned()));
        extra.set("ACCEPT", None);
        extra.set("X-Api-Key", Some("sk-1\n".to_owned()));
        let headers = request("pirn/0", &extra, &ErrorContext::default()).unwrap();
        assert_eq!(headers["user-agent"], "mine/1");
        assert!(!headers.contains_key("accept"));
        assert!(headers["x-api-key"].is_sensitive());
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named_without_its_value() {
        let mut extra = Headers::new();
        extra.set("authorization", Some("Bearer sk-\u{1}x".to_owned()));
        let error = request("pirn/0", &extra, &ErrorContext::default()).unwrap_err();
        assert!(error.message.contains("authorization") && !error.message.contains("sk-"), "{}", error.message);
    }

    #[test]
    fn meta_keeps_rate_limits_and_the_best_request_id() {
        let headers: Vec<(String, String)> = [
            ("cf-ray", "ray"),
            ("x-request-id", "req"),
            ("x-ratelimit-remaining-tokens", "7"),
            ("retry-after-ms", "12"),
            ("server", "nginx"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        let got = meta(429, &headers);
        assert_eq!(got.request_id.as_deref(), Some("req"));
        let names: Vec<&str> = got.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x-ratelimit-remaining-tokens", "retry-after-ms"]);
    }
}
