//! The best reading of an argument text that was cut off.
//!
//! Keeps true: never invents text; linear in the text, with bounded nesting; whatever it gives is for display, since a
//! call whose text was cut never runs.
//!
//! Must not know: tools, schemas.

use serde_json::{Map, Value};

/// Nesting beyond this is not completed; parsers give up there too.
const DEPTH_MAX: usize = 128;
/// Bytes of `\uXXXX`.
const UNICODE_ESCAPE_BYTES: usize = 6;

/// Closes what an argument text left open and reads it: a half escape, a dangling key and a trailing comma are
/// dropped. Gives an empty object when nothing can be read. Linear in the text: at most two scans and two parses.
///
/// For display only: a call whose text was cut never runs.
pub(super) fn best_effort(text: &str) -> Map<String, Value> {
    let Some(scan) = Scan::of(text) else { return Map::new() };
    if let Some(map) = scan.read(text) {
        return map;
    }
    let head = scan.cut.and_then(|at| text.get(..at));
    head.and_then(|head| Scan::of(head)?.read(head)).unwrap_or_default()
}

/// Where a text stands at its end.
#[derive(Default)]
struct Scan {
    /// The brackets that are missing, outermost first.
    closers: Vec<char>,
    in_string: bool,
    /// The text without a half escape.
    end: usize,
    /// Behind the last complete member: the place of the last comma, or behind the last opening bracket.
    cut: Option<usize>,
}

impl Scan {
    /// Nothing if the text is nested too deeply.
    fn of(text: &str) -> Option<Self> {
        let mut scan = Self { end: text.len(), ..Self::default() };
        let mut escape = Escape::default();
        for (at, byte) in text.bytes().enumerate() {
            if scan.in_string {
                scan.in_string = escape.take(at, byte);
                continue;
            }
            match byte {
                b'"' => scan.in_string = true,
                b'{' | b'[' => {
                    scan.closers.push(if byte == b'{' { '}' } else { ']' });
                    scan.cut = Some(at + 1);
                }
                b'}' | b']' => {
                    scan.closers.pop();
                }
                b',' => scan.cut = Some(at),
                _ => {}
            }
            if scan.closers.len() > DEPTH_MAX {
                return None;
            }
        }
        if scan.in_string {
            scan.end = escape.whole_until(text.len());
        }
        Some(scan)
    }

    /// Reads `text`, the scanned one, as if it had been closed where it ends.
    fn read(&self, text: &str) -> Option<Map<String, Value>> {
        let mut closed = String::with_capacity(text.len() + self.closers.len() + 1);
        closed.push_str(text.get(..self.end)?);
        if self.in_string {
            closed.push('"');
        }
        closed.extend(self.closers.iter().rev());
        serde_json::from_str(&closed).ok()
    }
}

/// The escapes inside strings.
#[derive(Default)]
struct Escape {
    /// Where the escape begins that is not complete.
    open_at: Option<usize>,
    digits: u8,
    unit: u16,
    /// Where the last complete escape of a high UTF-16 half begins; without its other half it is no text.
    high_at: Option<usize>,
}

impl Escape {
    /// Takes a byte of a string and tells whether the string goes on.
    fn take(&mut self, at: usize, byte: u8) -> bool {
        let Some(open_at) = self.open_at else {
            if byte == b'\\' {
                self.open_at = Some(at);
                self.digits = 0;
                self.unit = 0;
            }
            return byte != b'"';
        };
        let first = at == open_at + 1;
        if first && byte != b'u' {
            self.open_at = None;
        } else if !first {
            let digit = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok());
            self.unit = (self.unit << 4) | digit.unwrap_or(0);
            self.digits += 1;
            if self.digits == 4 {
                self.open_at = None;
                self.high_at = (self.unit & 0xFC00 == 0xD800).then_some(open_at);
            }
        }
        true
    }

    /// The end of the text that needs no further bytes.
    fn whole_until(&self, len: usize) -> usize {
        let end = self.open_at.unwrap_or(len);
        match self.high_at {
            Some(at) if at + UNICODE_ESCAPE_BYTES == end => at,
            _ => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::best_effort;

    #[test]
    fn a_cut_argument_text_keeps_what_was_complete() {
        for (text, want) in [
            (r#"{"path":"a.tx"#, r#"{"path":"a.tx"}"#),
            (r#"{"path":"a","cont"#, r#"{"path":"a"}"#),
            (r#"{"a":[1,{"b":"x\"#, r#"{"a":[1,{"b":"x"}]}"#),
            (r#"{"a":"x\u00"#, r#"{"a":"x"}"#),
            (r#"{"a":"x\ud83d"#, r#"{"a":"x"}"#),
            (r#"{"a":"x\ud83d\ude8"#, r#"{"a":"x"}"#),
            (r#"{"a":"x\ud83d\ude80"#, "{\"a\":\"x\u{1f680}\"}"),
            (r#"{"a":"x\\ud83d"#, r#"{"a":"x\\ud83d"}"#),
            (r#"{"a":1,"b":"#, r#"{"a":1}"#),
            (r#"{"a":{"b":"#, r#"{"a":{}}"#),
            (r#"{"a":{"b":[tru"#, r#"{"a":{"b":[]}}"#),
            (r#"{"a":[1,2],"b"#, r#"{"a":[1,2]}"#),
            (r#"{"a":"é,{"#, r#"{"a":"é,{"}"#),
            ("{", "{}"),
            ("", "{}"),
            ("nonsense", "{}"),
            ("}{", "{}"),
        ] {
            let got = serde_json::to_string(&best_effort(text)).unwrap();
            assert_eq!(got, want, "{text}");
        }
        assert!(best_effort(&"{\"a\":[".repeat(100)).is_empty());
    }
}
