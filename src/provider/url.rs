//! Base URLs: what is appended to them, and how an address is shown.
//!
//! Keeps true: users may write a base URL with or without trailing slash, version part or endpoint path and reach the
//! same address (URL-1, URL-3); its query string is kept; a shown address holds neither user nor query.
//!
//! Must not know: keys; they never stand in a URL (URL-5).

use std::net::IpAddr;

use reqwest::Url;

use crate::model::{ErrorKind, ErrorRecord};

const CHAT_PATH: &str = "/chat/completions";

/// Composes the address of Chat Completions from a base URL (URL-1, URL-3, case 117). A base URL that is none is an
/// error of kind `config`.
pub fn chat_endpoint(base_url: &str) -> Result<String, ErrorRecord> {
    openai_endpoint(base_url, CHAT_PATH)
}

fn openai_endpoint(base_url: &str, endpoint: &str) -> Result<String, ErrorRecord> {
    let mut url = parse_base(base_url)?;
    let base = url.path().trim_end_matches('/');
    let path = if base.is_empty() {
        format!("/v1{endpoint}")
    } else if base.ends_with(endpoint) {
        base.to_owned()
    } else {
        format!("{base}{endpoint}")
    };
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url.into())
}

/// Reads a base URL. Errors: kind `config`, when it is none, is not of the web, or names no host.
pub(crate) fn parse_base(base_url: &str) -> Result<Url, ErrorRecord> {
    let wrong = |why: &str| {
        let text = format!("the base URL {} is not usable: {why}", shown(base_url));
        ErrorRecord::new(ErrorKind::Config, text)
    };
    if base_url.trim().is_empty() {
        return Err(ErrorRecord::new(ErrorKind::Config, "the base URL is empty"));
    }
    match Url::parse(base_url.trim()) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            Err(wrong("it must begin with http:// or https://").with_hint(with_scheme(base_url)))
        }
        Ok(url) if url.host_str().is_none_or(str::is_empty) => Err(wrong("it names no host")),
        Ok(url) => Ok(url),
        Err(error) if base_url.contains("://") => Err(wrong(&error.to_string())),
        Err(_) => Err(wrong("it must begin with http:// or https://").with_hint(with_scheme(base_url))),
    }
}

fn with_scheme(base_url: &str) -> String {
    let bare = shown(base_url);
    let scheme = if is_loopback(&bare) { "http" } else { "https" };
    format!("did you mean {scheme}://{bare}?")
}

/// An address for people: without user, query and fragment, which may hold credentials.
pub fn shown(url: &str) -> String {
    let (scheme, rest) = url.trim().split_once("://").map_or((None, url.trim()), |(scheme, rest)| (Some(scheme), rest));
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let rest = rest.get(..end).unwrap_or(rest);
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let mut out = scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
    out.push_str(host);
    if let Some(path) = path {
        out.push('/');
        out.push_str(path);
    }
    out
}

/// Host and port of an address, as they are written in it.
pub fn host_and_port(url: &str) -> String {
    let shown = shown(url);
    let rest = shown.split_once("://").map_or(shown.as_str(), |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

/// Whether a key sent to this address crosses a network unencrypted, which is worth a warning (URL-6).
pub fn sends_key_in_clear(url: &str) -> bool {
    url.trim().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) && !is_loopback(url)
}

fn is_loopback(url: &str) -> bool {
    let host = host_and_port(url);
    let name = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or(bracketed),
        None => host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name),
    };
    let is_localhost = name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    is_localhost || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{chat_endpoint, host_and_port, sends_key_in_clear, shown};
    use crate::model::ErrorKind;

    #[test]
    fn every_way_to_write_a_base_url_reaches_the_same_address_case_117_cfg_06() {
        for (base, want) in [
            ("http://h:1", "http://h:1/v1/chat/completions"),
            ("http://h:1/", "http://h:1/v1/chat/completions"),
            ("http://h:1//", "http://h:1/v1/chat/completions"),
            ("http://h:1/v1", "http://h:1/v1/chat/completions"),
            (" http://h:1/v1/ ", "http://h:1/v1/chat/completions"),
            ("http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions"),
            ("http://h:1/v1/chat/completions/", "http://h:1/v1/chat/completions"),
            ("http://h:1/v1?api-version=2&x=1", "http://h:1/v1/chat/completions?api-version=2&x=1"),
            ("http://h:1?a=b", "http://h:1/v1/chat/completions?a=b"),
            ("http://h:1/v1#part", "http://h:1/v1/chat/completions"),
            ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat/completions"),
            ("http://[::1]:8080", "http://[::1]:8080/v1/chat/completions"),
            ("https://h/a%20b/v1", "https://h/a%20b/v1/chat/completions"),
        ] {
            assert_eq!(chat_endpoint(base).unwrap(), want, "{base}");
        }
    }

    #[test]
    fn a_base_url_that_is_none_is_a_config_error_with_the_remedy() {
        for (base, hint) in [
            ("", None),
            ("localhost:8080/v1", Some("did you mean http://localhost:8080/v1?")),
            ("api.example.com/v1", Some("did you mean https://api.example.com/v1?")),
            ("127.0.0.1:8080", Some("did you mean http://127.0.0.1:8080?")),
            ("ftp://h/v1", Some("did you mean https://ftp://h/v1?")),
            ("http://", None),
            ("http://h:port/", None),
        ] {
            let error = chat_endpoint(base).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Config, "{base}");
            assert!(!error.retryable);
            if !base.starts_with("ftp") {
                assert_eq!(error.hint.as_deref(), hint, "{base}");
            }
        }
        let secret = chat_endpoint("http://user:pass@h:port/?key=abc").unwrap_err();
        assert!(!secret.message.contains("pass") && !secret.message.contains("abc"), "{}", secret.message);
    }

    #[test]
    fn a_shown_address_has_no_user_and_no_query() {
        assert_eq!(shown("https://u:p@h:1/v1/x?key=k#f"), "https://h:1/v1/x");
        assert_eq!(shown("https://h?key=a/b@c"), "https://h");
        assert_eq!(host_and_port("https://u:p@h:1/v1/x?key=k"), "h:1");
    }

    #[test]
    fn a_key_over_cleartext_is_worth_a_warning_unless_it_stays_on_this_machine_url_6() {
        for (url, want) in [
            ("http://127.0.0.1:8080/v1", false),
            ("http://localhost:1/v1", false),
            ("http://[::1]:1/v1", false),
            ("http://10.0.0.2:1/v1", true),
            ("HTTP://example.com/v1", true),
            ("https://example.com/v1", false),
        ] {
            assert_eq!(sends_key_in_clear(url), want, "{url}");
        }
    }
}
