/// The host of an `http` or `https` URL in lower case, with its port where it has one and without user and password.
/// `None`: not such a URL.
pub fn host(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let fits = |c: char| c.is_alphanumeric() || "-._[]:%".contains(c);
    (!host.is_empty() && !host.starts_with(':') && host.chars().all(fits)).then(|| host.to_ascii_lowercase())
}

/// The host without its port.
pub fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// Whether a host name means this machine.
pub fn is_loopback(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{host, host_name, is_loopback};

    #[test]
    fn the_host_of_a_url_has_no_user_path_or_query() {
        let table = [
            ("https://api.openai.com/v1", Some("api.openai.com")),
            ("HTTP://User:pw@Host:8080?x=1", Some("host:8080")),
            ("http://[::1]:8080/v1", Some("[::1]:8080")),
            ("ftp://host", None),
            ("http://", None),
            ("http:///v1", None),
            ("host:8080/v1", None),
            ("http://a b/", None),
        ];
        for (url, expected) in table {
            assert_eq!(host(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn loopback_is_known_by_name_and_by_address() {
        for host in ["localhost:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:80", "a.localhost"] {
            assert!(is_loopback(host_name(host)), "{host}");
        }
        for host in ["localhost.evil.com", "10.0.0.1", "[::2]:80"] {
            assert!(!is_loopback(host_name(host)), "{host}");
        }
    }
}
