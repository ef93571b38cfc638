//! Texts of servers made safe to show: secrets masked, control characters escaped, length bounded.
//!
//! Keeps true: no configured key, bearer value or key-shaped word leaves a cleaned text (SEC-1, SEC-2); it holds no
//! control character but LF and TAB and at most [`TEXT_CHARS_MAX`] characters (SEC-3); cleaning twice changes nothing.
//!
//! Must not know: where a text comes from, or where it goes.

use std::fmt::Write as _;

use crate::model::Secret;

/// Stands in place of a secret.
pub const MASK: &str = "***";

/// Characters of a server's text that are shown (SEC-3).
pub const TEXT_CHARS_MAX: usize = 4_000;

/// Characters of a server's word that are shown: a code, an id, the value of a header.
pub const WORD_CHARS_MAX: usize = 200;

/// Bytes of a text that are searched for secrets, in units of what is shown of it and a secret's length.
const EXCERPT_WINDOW: usize = 16;

/// Bytes that base64 encodes together, and the bits of a digit.
const BASE64_GROUP: usize = 3;
const BASE64_BITS: usize = 6;
const BASE64_DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// How the last two digits are written: plainly, and so that they fit a URL.
const BASE64_LAST: [[&str; 2]; 2] = [["+", "/"], ["-", "_"]];

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
    Masker::new(secrets).clean(text)
}

/// Masks `secrets`, and what looks like a credential: see [`Masker::mask`].
pub fn mask(text: &str, secrets: &[Secret]) -> String {
    Masker::new(secrets).mask(text)
}

/// Secrets in every form a server may write them: as they are, in JSON with and without escaped slashes, in a URL and
/// in base64. Made once per request.
#[derive(Clone, Default)]
pub struct Masker {
    /// The longest first: a value that contains another one goes whole.
    needles: Vec<String>,
}

impl std::fmt::Debug for Masker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Masker").finish_non_exhaustive()
    }
}

impl Masker {
    /// Secrets shorter than [`SECRET_CHARS_MIN`] are left out.
    pub fn new(secrets: &[Secret]) -> Self {
        let values = secrets.iter().map(Secret::expose).filter(|value| value.chars().count() >= SECRET_CHARS_MIN);
        let mut needles: Vec<String> = values.flat_map(forms).collect();
        needles.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        needles.dedup();
        Self { needles }
    }

    /// Masks the secrets, and what looks like a credential: `Bearer …`, `sk-…`, `AIza…`, `key=…`, and the user part of
    /// a URL (SEC-1, SEC-2).
    pub fn mask(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        for needle in &self.needles {
            if masked.contains(needle.as_str()) {
                masked = masked.replace(needle.as_str(), MASK);
            }
        }
        mask_shapes(&masked)
    }

    /// Masks, escapes and cuts a server's text, in this order.
    pub fn clean(&self, text: &str) -> String {
        cut(&escape_controls(&self.mask(text)), TEXT_CHARS_MAX)
    }

    /// A server's word (a code, an id, a header) of at most [`WORD_CHARS_MAX`] characters.
    pub fn word(&self, text: &str) -> String {
        cut(&escape_controls(&self.mask(text)), WORD_CHARS_MAX)
    }

    /// The beginning of a foreign text of any size, at most `bytes_max` bytes of it. Only as much as is needed is
    /// looked at; what may be the first half of a secret at the end of that is left out.
    pub fn excerpt(&self, text: &str, bytes_max: usize) -> String {
        let longest = self.needles.first().map_or(0, String::len);
        let window = head(text, bytes_max.saturating_add(longest).saturating_mul(EXCERPT_WINDOW));
        let masked = self.mask(window);
        let sure = if window.len() < text.len() { masked.len().saturating_sub(longest) } else { masked.len() };
        escape_controls(head(&masked, sure.min(bytes_max)))
    }
}

/// The forms of one secret.
fn forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    forms.extend(ESCAPES.iter().flat_map(|escape| [true, false].map(|marks| escaped(value, *escape, marks))));
    if let Some(json) = serde_json::to_string(value).ok().as_deref().and_then(|json| json.get(1..json.len() - 1)) {
        forms.push(json.replace('/', "\\/"));
        forms.push(json.to_owned());
    }
    for [plus, slash] in BASE64_LAST {
        let as_written = |text: String| text.replace('+', plus).replace('/', slash);
        forms.push(as_written(base64(value.as_bytes())));
        forms.extend((0..BASE64_GROUP).filter_map(|before| base64_inside(value, before)).map(as_written));
    }
    forms
}

/// How a byte is written that stands for more than itself: in a URL, or in JSON by servers that are careful with HTML.
const ESCAPES: [fn(u8) -> String; 4] = [
    |byte| format!("%{byte:02X}"),
    |byte| format!("%{byte:02x}"),
    |byte| format!("\\u00{byte:02X}"),
    |byte| format!("\\u00{byte:02x}"),
];

/// A value with every byte escaped but letters and digits, and of the unreserved marks of URLs (RFC 3986) none or all.
fn escaped(value: &str, escape: fn(u8) -> String, marks: bool) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || !marks && matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&escape(byte));
        }
    }
    out
}

/// The base64 characters that a value always gives when it stands `before` bytes (modulo 3) inside a longer text.
fn base64_inside(value: &str, before: usize) -> Option<String> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value.as_bytes());
    let (start, end) = ((before * 8).div_ceil(BASE64_BITS), bytes.len() * 8 / BASE64_BITS);
    base64(&bytes).get(start..end).map(str::to_owned)
}

/// Base64 without padding.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(BASE64_GROUP) * 4);
    for group in bytes.chunks(BASE64_GROUP) {
        let at = |place: usize| u32::from(group.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for shift in [18, 12, 6, 0].into_iter().take(group.len() + 1) {
            let digit = usize::try_from(bits >> shift & 0x3F).unwrap_or(0);
            out.extend(BASE64_DIGITS.get(digit).copied().map(char::from));
        }
    }
    out
}

/// The longest beginning of `text` of at most `bytes_max` bytes that ends between two characters.
fn head(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
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
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::{MASK, Masker, TEXT_CHARS_MAX, clean, mask};
    use crate::model::Secret;

    const SLASHED: &str = "abc/def+ghi/jkl==";

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
    fn a_secret_is_found_in_every_form_servers_write_it_in_sec_2() {
        let masker = Masker::new(&[Secret::new(SLASHED)]);
        for (text, want) in [
            (r#"{"odd":"abc\/def+ghi\/jkl=="}"#, r#"{"odd":"***"}"#),
            (r#"{"odd":"abc/def+ghi/jkl=="}"#, r#"{"odd":"***"}"#),
            ("/v1/abc%2Fdef%2Bghi%2Fjkl%3D%3D/x", "/v1/***/x"),
            ("/v1/abc%2fdef%2bghi%2fjkl%3d%3d/x", "/v1/***/x"),
        ] {
            assert_eq!(masker.mask(text), want, "{text}");
        }
        for before in ["", "u", "us", "use", "user:"] {
            for alphabet in [STANDARD, URL_SAFE] {
                let encoded = alphabet.encode(format!("{before}{SLASHED}"));
                let masked = masker.mask(&format!("got {encoded}."));
                assert!(masked.contains(MASK) && masked.len() < "got ***.".len() + before.len() * 2 + 4, "{masked}");
            }
        }
    }

    #[test]
    fn an_excerpt_holds_no_half_of_a_secret_wherever_it_is_cut() {
        let secret = "q7!w8@e9#r0$t1%y2^".repeat(3);
        let masker = Masker::new(&[Secret::new(&secret)]);
        for before in 0..220 {
            let text = format!("{}{}", "x".repeat(before), secret.repeat(400));
            let got = masker.excerpt(&text, 200);
            assert!(got.len() <= 200 && !got.contains("q7"), "{before}: {got}");
        }
        assert_eq!(masker.excerpt("é\u{7}", 2), "é");
    }

    #[test]
    fn a_secret_at_the_cut_leaves_no_half_behind() {
        let secret = Secret::new("0123456789abcdef");
        let text = format!("{}{}", "x".repeat(TEXT_CHARS_MAX - 4), secret.expose());
        let cleaned = clean(&text, std::slice::from_ref(&secret));
        assert!(cleaned.ends_with(MASK) && !cleaned.contains("0123"));
    }
}
