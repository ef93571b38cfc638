//! Which values may hold a secret, so that listings leave them out.
//!
//! Keeps true: a value that is nothing but references to variables hides nothing; in doubt a value is hidden.
//!
//! Must not know: which keys exist.

use super::expand::literals;

/// Words in the name of a variable or a header that say its value is secret.
const SECRET_WORDS: [&str; 8] = ["key", "token", "secret", "password", "passwd", "credential", "auth", "cookie"];
/// Letters of a word that may stand beside a reference, such as `Bearer`.
const SCHEME_CHARS_MAX: usize = 10;

/// Whether a value under a name may hold a secret: the name says so, and text stands in the value itself.
pub(super) fn hides(name: &str, value: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word)) && holds_text(value)
}

/// Whether a value holds text of its own beside references, other than the word before a credential.
pub(super) fn holds_text(value: &str) -> bool {
    let Some(literals) = literals(value) else { return true };
    let is_scheme = |text: &str| {
        text.len() <= SCHEME_CHARS_MAX
            && text.ends_with(' ')
            && text.trim().bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let only_references = literals.is_empty() || (literals.len() == 1 && literals.iter().all(|text| is_scheme(text)));
    !value.is_empty() && !only_references
}

/// Whether an address may hold a user with a password, or a key in its query.
pub(super) fn url_hides(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    (authority.contains('@') || url.contains('?')) && holds_text(url)
}

#[cfg(test)]
mod tests {
    use super::{hides, holds_text, url_hides};

    #[test]
    fn a_value_of_nothing_but_references_hides_nothing() {
        for (value, holds) in [
            ("", false),
            ("${A}", false),
            ("Bearer ${A}", false),
            ("${A}${B}", false),
            ("sk-1", true),
            ("${A:-sk-1}", true),
            ("Bearer sk-1", true),
            ("sk1${A}", true),
            ("Bearer ${A} x", true),
            ("${A", true),
        ] {
            assert_eq!(holds_text(value), holds, "{value}");
        }
    }

    #[test]
    fn names_and_addresses_say_what_is_secret() {
        assert!(hides("MY_TOKEN", "abc") && hides("x-api-Key", "abc"));
        assert!(!hides("MODE", "fast") && !hides("MY_TOKEN", "${T}"));
        assert!(url_hides("http://u:p@h/v1") && url_hides("https://h/v1?key=1"));
        assert!(!url_hides("https://h/v1") && !url_hides("https://h/a@b"));
    }
}
