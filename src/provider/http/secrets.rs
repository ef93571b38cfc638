//! What of a request no error may show: credentials whole, and the parts a server may echo by themselves.
//!
//! Keeps true: a value of a secret header is known with and without its scheme word, and by each of its cookies or
//! parameters; a user part of an address is known as it stands, decoded, and as the `Basic` value made from it (SEC-1).
//!
//! Must not know: who shows texts, how they are masked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;

use crate::model::{Headers, Secret};
use crate::provider::redact::SECRET_CHARS_MIN;

/// Names of query parameters that hold a credential, besides those a header would have.
const QUERY_WORDS: [&str; 4] = ["sig", "auth", "pass", "credential"];

/// Adds what is not yet known and long enough to be masked.
pub(super) fn add(values: Vec<String>, known: &mut Vec<Secret>) {
    for value in values {
        if value.chars().count() >= SECRET_CHARS_MIN && !known.iter().any(|secret| secret.expose() == value) {
            known.push(Secret::new(value));
        }
    }
}

/// The credentials in headers.
pub(super) fn of_headers(headers: &Headers) -> Vec<String> {
    let secret = headers.iter().filter(|(name, _)| Headers::is_secret_name(name));
    secret.filter_map(|(_, value)| value).flat_map(of_value).collect()
}

/// The credentials in an address: its user part and parameters that look like keys.
pub(super) fn of_url(url: &Url) -> Vec<String> {
    let mut found = of_user(url);
    for (name, raw) in url.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')) {
        let lower = name.to_ascii_lowercase();
        if Headers::is_secret_name(name) || QUERY_WORDS.iter().any(|word| lower.contains(word)) {
            found.extend([raw.to_owned(), decoded(&raw.replace('+', " "))]);
        }
    }
    found
}

/// User and password of an address, and the `Basic` value they make.
pub(super) fn of_user(url: &Url) -> Vec<String> {
    let (user, password) = (url.username(), url.password().unwrap_or_default());
    if user.is_empty() && password.is_empty() {
        return Vec::new();
    }
    let plain = (decoded(user), decoded(password));
    let basic = STANDARD.encode(format!("{}:{}", plain.0, plain.1));
    vec![user.to_owned(), password.to_owned(), plain.0, plain.1, basic]
}

/// A header's value and its parts: `Basic T`, `a=b; session=T`, `Digest response="T"`.
fn of_value(value: &str) -> Vec<String> {
    let value = value.trim();
    let mut found = vec![value.to_owned()];
    let words: Vec<&str> = value.split(|c: char| c.is_whitespace() || matches!(c, ';' | ',')).collect();
    // The first word of several is the scheme, unless it is a parameter itself.
    let scheme = usize::from(words.len() > 1);
    found.extend(words.iter().skip(scheme).map(|word| (*word).to_owned()));
    found.extend(words.iter().filter_map(|word| word.split_once('=')).map(|(_, value)| bare(value)));
    if let [scheme, encoded] = words.as_slice()
        && scheme.eq_ignore_ascii_case("basic")
        && let Some(pair) = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    {
        found.extend(pair.split(':').map(str::to_owned));
        found.push(pair);
    }
    found
}

fn bare(value: &str) -> String {
    value.trim_matches('"').to_owned()
}

/// A part of an address without its percent signs; what they say wrong stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let pair = tail.get(..2).filter(|_| *first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{of_url, of_value};

    #[test]
    fn the_parts_of_a_secret_header_are_secrets_sec_1() {
        for (value, part) in [
            ("Bearer abcdefgh", "abcdefgh"),
            ("Token abcdefgh", "abcdefgh"),
            ("a=b; session=abcdefgh", "abcdefgh"),
            ("session=abcdefgh; a=b", "abcdefgh"),
            ("Digest user=\"u\", response=\"abcdefgh\"", "abcdefgh"),
            ("Basic dXNlcjpodW50ZXIyaHVudGVyMg==", "dXNlcjpodW50ZXIyaHVudGVyMg=="),
            ("Basic dXNlcjpodW50ZXIyaHVudGVyMg==", "hunter2hunter2"),
        ] {
            assert!(of_value(value).iter().any(|found| found == part), "{value}: {:?}", of_value(value));
        }
    }

    #[test]
    fn the_user_part_and_key_like_parameters_of_an_address_are_secrets_sec_1() {
        let url =
            Url::parse("http://bob:p%40ssp%40ss@h/v1?model=longmodelname&sig=ab%2Fcdefghi&empty=&api-key=12345678");
        let found = of_url(&url.unwrap());
        for part in ["p%40ssp%40ss", "p@ssp@ss", "Ym9iOnBAc3NwQHNz", "ab%2Fcdefghi", "12345678"] {
            assert!(found.iter().any(|known| known == part), "{part}: {found:?}");
        }
        assert!(!found.iter().any(|known| known == "longmodelname"));
    }
}
