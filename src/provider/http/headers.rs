//! Headers of requests and responses, and addresses as people may see them.

use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};

use crate::model::{ErrorKind, ErrorRecord, Headers};
use crate::port::ResponseMeta;

/// Where servers put the id of a request, best first (HTTP-13).
const REQUEST_ID_NAMES: [&str; 7] = [
    "request-id",
    "x-request-id",
    "x-generation-id",
    "cf-ray",
    "x-amzn-requestid",
    "apim-request-id",
    "mistral-correlation-id",
];

/// The built-in headers with the caller's on top (HTTP-1, HTTP-3). The error names a header that cannot be sent,
/// never its value.
pub(super) fn request(user_agent: &str, extra: &Headers) -> Result<HeaderMap, ErrorRecord> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    headers.insert(USER_AGENT, value(USER_AGENT.as_str(), user_agent)?);
    for (name, text) in extra.iter() {
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_invalid| invalid(name, "name"))?;
        match text {
            None => drop(headers.remove(parsed)),
            Some(text) => drop(headers.insert(parsed, value(name, text)?)),
        }
    }
    Ok(headers)
}

fn value(name: &str, text: &str) -> Result<HeaderValue, ErrorRecord> {
    let mut value = HeaderValue::from_str(text.trim()).map_err(|_invalid| invalid(name, "value"))?;
    value.set_sensitive(Headers::is_secret_name(name));
    Ok(value)
}

fn invalid(name: &str, what: &str) -> ErrorRecord {
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    ErrorRecord::new(ErrorKind::Config, format!("header {name}: the {what} has characters that HTTP does not allow"))
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
    let find = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let shown = headers
        .iter()
        .filter(|(name, _)| {
            ["retry-after", "x-ratelimit-", "anthropic-ratelimit-", "ratelimit", "x-should-retry"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .cloned()
        .collect();
    let request_id = REQUEST_ID_NAMES.iter().find_map(|name| find(name));
    ResponseMeta { status, request_id, headers: shown }
}

/// The media type in lower case, without parameters.
pub(super) fn content_type(headers: &[(String, String)]) -> String {
    let found = headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value.as_str());
    found.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// An address without user, password, query and fragment.
pub(super) fn shown_url(url: &Url) -> String {
    format!("{}://{}{}", url.scheme(), authority(url), url.path())
}

/// `host:port`, without a port that goes without saying.
pub(super) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or("");
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{content_type, meta, request, shown_url};
    use crate::model::Headers;

    #[test]
    fn later_headers_win_whatever_their_case_and_none_removes() {
        let mut extra = Headers::new();
        extra.set("User-Agent", Some("mine/1".to_owned()));
        extra.set("ACCEPT", None);
        extra.set("X-Api-Key", Some("sk-1\n".to_owned()));
        let headers = request("pirn/0", &extra).unwrap();
        assert_eq!(headers["user-agent"], "mine/1");
        assert!(!headers.contains_key("accept"));
        assert!(headers["x-api-key"].is_sensitive());
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named_without_its_value() {
        let mut extra = Headers::new();
        extra.set("authorization", Some("Bearer sk-\u{1}x".to_owned()));
        let error = request("pirn/0", &extra).unwrap_err();
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
            ("content-type", "Text/Event-Stream; charset=utf-8"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        let got = meta(429, &headers);
        assert_eq!(got.request_id.as_deref(), Some("req"));
        let names: Vec<&str> = got.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x-ratelimit-remaining-tokens", "retry-after-ms"]);
        assert_eq!(content_type(&headers), "text/event-stream");
    }

    #[test]
    fn a_shown_url_holds_neither_credentials_nor_query() {
        let url = Url::parse("https://user:pw@h:8443/v1/x?key=secret#f").unwrap();
        assert_eq!(shown_url(&url), "https://h:8443/v1/x");
    }
}
