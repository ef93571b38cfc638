//! Texts of servers made safe to show: secrets masked, control characters escaped, length bounded.
//!
//! Keeps true: no configured key, bearer value or key-shaped word leaves a cleaned text (SEC-1, SEC-2); it holds no
//! control character but LF and TAB and at most [`TEXT_CHARS_MAX`] characters (SEC-3); cleaning twice changes nothing.
//!
//! Must not know: where a text comes from, or where it goes.

use std::cmp::Reverse;
use std::fmt::Write as _;

use crate::model::Secret;

/// Stands in place of a secret.
pub const MASK: &str = "***";

/// Characters of a server's text that are shown (SEC-3).
pub const TEXT_CHARS_MAX: usize = 4_000;

/// A shorter value is left alone: masking it would riddle ordinary text.
pub const SECRET_CHARS_MIN: usize = 8;

/// Characters a key-shaped word needs behind its prefix before it is taken for a key.
const KEY_TAIL_MIN: usize = 8;

/// Beginnings of key-shaped words.
const KEY_PREFIXES: [&str; 2] = ["sk-", "AIza"];

/// What may follow the word "bearer" in plain English, as in "missing bearer token".
const BEARER_WORDS: [&str; 9] =
    ["token", "tokens", "auth", "authentication", "authorization", "scheme", "header", "credentials", "key"];

/// Masks, escapes and cuts a server's text. Cutting comes last, so that no half of a secret is left at the cut.
pub fn clean(text: &str, secrets: &[Secret]) -> String {
    cut(&escape_controls(&mask(text, secrets)), TEXT_CHARS_MAX)
}

/// Masks the exact values of `secrets`, and what looks like a credential: `Bearer …`, `sk-…`, `AIza…`, `key=…`, and
/// the user part of a URL (SEC-1, SEC-2).
pub fn mask(text: &str, secrets: &[Secret]) -> String {
    let mut values: Vec<&str> =
        secrets.iter().map(Secret::expose).filter(|value| value.chars().count() >= SECRET_CHARS_MIN).collect();
    // Longest first: a value that contains another one goes whole.
    values.sort_by_key(|value| Reverse(value.len()));
    let mut masked = text.to_owned();
    for value in values {
        if masked.contains(value) {
            masked = masked.replace(value, MASK);
        }
    }
    mask_shapes(&masked)
}

/// Writes control characters other than LF and TAB as escapes; CRLF becomes LF (SEC-3).
pub fn escape_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                // Writing to a String cannot fail.
                if write!(out, "\\u{:04x}", u32::from(c)).is_err() {
                    out.push('\u{FFFD}');
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// Cuts a text to `chars_max` characters; a cut text ends in `…`.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.char_indices().nth(chars_max).is_none() {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    out.push('…');
    out
}

/// One credential-shaped place: how many bytes of it stay, and how many are masked behind them.
struct Found {
    shown: usize,
    hidden: usize,
}

fn mask_shapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let (shown, hidden) = match shape_at(rest, before) {
            Some(found) => (found.shown, found.hidden),
            None => (c.len_utf8(), 0),
        };
        let (head, tail) = rest.split_at_checked(shown).unwrap_or((rest, ""));
        out.push_str(head);
        before = head.chars().next_back();
        if hidden > 0 {
            out.push_str(MASK);
            before = Some('*');
        }
        rest = tail.get(hidden..).unwrap_or_default();
    }
    out
}

/// The credential that begins here, if one does. `before` is the character before `rest`.
fn shape_at(rest: &str, before: Option<char>) -> Option<Found> {
    // Most characters begin nothing.
    match rest.as_bytes().first()? {
        b's' | b'A' => key_word(rest, before),
        b'b' | b'B' => bearer(rest, before),
        b'k' | b'K' => key_parameter(rest),
        b':' => userinfo(rest),
        _ => None,
    }
}

fn key_word(rest: &str, before: Option<char>) -> Option<Found> {
    if before.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_') {
        return None;
    }
    let tail = KEY_PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    // Servers echo keys with the middle starred out.
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*');
    let length = span(tail, is_key);
    let starred = tail.get(..length).is_some_and(|word| word.contains('*'));
    (starred || length >= KEY_TAIL_MIN).then(|| Found { shown: 0, hidden: rest.len() - tail.len() + length })
}

fn bearer(rest: &str, before: Option<char>) -> Option<Found> {
    if before.is_some_and(char::is_alphanumeric) {
        return None;
    }
    let tail = strip_prefix_ignoring_case(rest, "bearer")?;
    let value = tail.trim_start_matches([' ', '\t']);
    let length = span(value, is_value);
    let word = value.get(..length)?;
    let is_english = BEARER_WORDS.iter().any(|known| word.trim_end_matches('.').eq_ignore_ascii_case(known));
    let is_value = value.len() < tail.len() && length > 0 && !is_english;
    is_value.then(|| Found { shown: rest.len() - value.len(), hidden: length })
}

fn key_parameter(rest: &str) -> Option<Found> {
    let tail = strip_prefix_ignoring_case(rest, "key=")?;
    let value = tail.strip_prefix(['"', '\'']).unwrap_or(tail);
    let length = span(value, is_value);
    (length > 0).then(|| Found { shown: rest.len() - value.len(), hidden: length })
}

fn userinfo(rest: &str) -> Option<Found> {
    let tail = rest.strip_prefix("://")?;
    let authority = tail.get(..span(tail, |c| !c.is_whitespace() && !matches!(c, '/' | '?' | '#' | '"' | '<')))?;
    let at = authority.rfind('@')?;
    (at > 0).then(|| Found { shown: rest.len() - tail.len(), hidden: at })
}

fn is_value(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '"' | '\'' | '&' | ',' | ';' | '<' | '>' | ')' | ']' | '}')
}

/// Bytes at the start of `text` whose characters all pass.
fn span(text: &str, pass: impl Fn(char) -> bool) -> usize {
    text.find(|c| !pass(c)).unwrap_or(text.len())
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::{MASK, TEXT_CHARS_MAX, clean, mask};
    use crate::model::Secret;

    fn check(text: &str, want: &str) {
        let secrets = [Secret::new("hunter2-hunter2"), Secret::new("short"), Secret::new("hunter2-hunter2-and-more")];
        let got = mask(text, &secrets);
        assert_eq!(got, want, "{text}");
        assert_eq!(mask(&got, &secrets), want, "masking is stable: {text}");
    }

    #[test]
    fn credentials_are_masked_and_ordinary_words_are_not_sec_2() {
        for (text, want) in [
            ("key hunter2-hunter2!", "key ***!"),
            ("hunter2-hunter2-and-more", "***"),
            ("a short value stays", "a short value stays"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
            ("bearer  xyz, next", "bearer  ***, next"),
            ("a missing bearer token", "a missing bearer token"),
            ("Bearer", "Bearer"),
            ("provided: sk-proj-abcd1234. See", "provided: ***. See"),
            ("provided: sk-ab**yz.", "provided: ***."),
            ("task-forces, risk-averseness, sk-SK", "task-forces, risk-averseness, sk-SK"),
            ("AIzaSyA1234567890", "***"),
            ("https://h/v1?key=abc&alt=sse", "https://h/v1?key=***&alt=sse"),
            ("api_key=\"abc\" x", "api_key=\"***\" x"),
            ("key=", "key="),
            ("http://user:pass@proxy:3128/x", "http://***@proxy:3128/x"),
            ("mail me@example.com", "mail me@example.com"),
            ("kéy=ü", "kéy=ü"),
        ] {
            check(text, want);
        }
    }

    #[test]
    fn a_cleaned_text_is_short_and_free_of_control_characters_sec_3() {
        assert_eq!(clean("a\r\nb\tc\u{1b}[31m\rd\u{9b}\u{0}", &[]), "a\nb\tc\\u001b[31m\\rd\\u009b\\u0000");
        let long = "ü".repeat(TEXT_CHARS_MAX);
        assert_eq!(clean(&long, &[]), long);
        let cut = clean(&format!("{long}x"), &[]);
        assert_eq!(cut.chars().count(), TEXT_CHARS_MAX);
        assert!(cut.ends_with("ü…"));
    }

    #[test]
    fn a_secret_at_the_cut_leaves_no_half_behind() {
        let secret = Secret::new("0123456789abcdef");
        let text = format!("{}{}", "x".repeat(TEXT_CHARS_MAX - 4), secret.expose());
        let cleaned = clean(&text, std::slice::from_ref(&secret));
        assert!(cleaned.ends_with(MASK) && !cleaned.contains("0123"));
    }
}
