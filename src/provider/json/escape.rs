//! The inside of JSON strings: unescaped to text, or mended.
//!
//! Keeps true: unescaping never fails; halves of a UTF-16 pair are joined across pieces, and one that stays alone
//! becomes U+FFFD (JSON-4); a repair changes only what no JSON parser would take (JSON-5).
//!
//! Must not know: what the text is for.

use std::fmt::Write as _;

/// Turns the inside of JSON strings into text, over many pieces of one text.
///
/// Servers that count in UTF-16 cut a string between the two halves of a pair. A high half at the end of a piece is
/// held and joined with a low half at the start of the next one; a half that stays alone becomes U+FFFD (JSON-4).
#[derive(Clone, Debug, Default)]
pub struct Unescaper {
    held: Option<u16>,
}

impl Unescaper {
    /// Appends the text of one string. An escape that JSON does not know is kept as it is.
    pub fn push(&mut self, body: &str, out: &mut String) {
        let mut rest = body;
        loop {
            let at = memchr::memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
            // A backslash is never inside a character, so the split can not fail.
            let (plain, escape) = rest.split_at_checked(at).unwrap_or((rest, ""));
            if !plain.is_empty() {
                self.finish(out);
                out.push_str(plain);
            }
            if escape.is_empty() {
                return;
            }
            rest = self.escape(escape, out);
        }
    }

    /// The text ends: a half that is still held stays alone.
    pub fn finish(&mut self, out: &mut String) {
        if self.held.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Reads the escape at the start of `text` and gives what follows it.
    fn escape<'a>(&mut self, text: &'a str, out: &mut String) -> &'a str {
        if let Some((unit, rest)) = unicode_escape(text) {
            self.unit(unit, out);
            return rest;
        }
        self.finish(out);
        let mut chars = text.chars();
        let backslash = chars.next();
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some(c @ ('"' | '\\' | '/')) => out.push(c),
            other => out.extend(backslash.into_iter().chain(other)),
        }
        chars.as_str()
    }

    fn unit(&mut self, unit: u16, out: &mut String) {
        if let Some(high) = self.held.take() {
            if let Some(Ok(c)) = char::decode_utf16([high, unit]).next() {
                out.push(c);
                return;
            }
            out.push(char::REPLACEMENT_CHARACTER);
        }
        if is_high(unit) {
            self.held = Some(unit);
        } else {
            out.push(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
}

fn is_high(unit: u16) -> bool {
    (0xD800..=0xDBFF).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xDC00..=0xDFFF).contains(&unit)
}

/// The unit of a `\uXXXX` at the start of `text`, and what follows it.
fn unicode_escape(text: &str) -> Option<(u16, &str)> {
    let digits = text.strip_prefix("\\u")?;
    let (digits, rest) = digits.split_at_checked(4)?;
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let unit = u16::from_str_radix(digits, 16).ok()?;
    hex.then_some((unit, rest))
}

/// What a repair does with an escaped UTF-16 half that stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surrogates {
    /// Its other half may come with the next piece.
    Keep,
    /// The text is whole: it becomes U+FFFD.
    Replace,
}

/// Mends what models and proxies do to JSON strings: raw control characters are escaped, a backslash before anything
/// that is no escape is doubled (JSON-5). Gives nothing if there was nothing to mend.
pub fn repair(text: &str, surrogates: Surrogates) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut changed = false;
    let mut in_string = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or("");
        rest = match c {
            '"' => {
                in_string = !in_string;
                out.push(c);
                after
            }
            '\\' if in_string => mend_escape(rest, after, surrogates, &mut out, &mut changed),
            '\u{0}'..='\u{1f}' if in_string => {
                changed = true;
                escape_control(c, &mut out);
                after
            }
            _ => {
                out.push(c);
                after
            }
        };
    }
    changed.then_some(out)
}

/// Copies or mends the escape at the start of `rest`; `after` is `rest` without its backslash. Gives what follows.
fn mend_escape<'a>(
    rest: &'a str,
    after: &'a str,
    surrogates: Surrogates,
    out: &mut String,
    changed: &mut bool,
) -> &'a str {
    if let Some((unit, behind)) = unicode_escape(rest) {
        let low = unicode_escape(behind).filter(|(low, _)| is_low(*low));
        let behind = low.filter(|_| is_high(unit)).map_or(behind, |(_, behind)| behind);
        if (is_high(unit) && low.is_none() || is_low(unit)) && surrogates == Surrogates::Replace {
            *changed = true;
            out.push_str("\\ufffd");
        } else {
            out.push_str(rest.strip_suffix(behind).unwrap_or(rest));
        }
        return behind;
    }
    if let Some(c @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't')) = after.chars().next() {
        out.push('\\');
        out.push(c);
        return after.get(1..).unwrap_or("");
    }
    *changed = true;
    out.push_str("\\\\");
    after
}

fn escape_control(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Writing to a string can not fail.
        c => write!(out, "\\u{:04x}", u32::from(c)).unwrap_or_default(),
    }
}
