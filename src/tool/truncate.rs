//! Bounds on the text a model reads (tool rules T1–T5).
//!
//! Keeps true: lines are whole where one fits, and characters are never split; a cut text says what cut it.
//!
//! Must not know: where the text comes from, how a cut is worded.

use std::fmt::Write as _;

/// The default caps of every tool (tool rule T2).
pub(super) const LINES_MAX: usize = 2_000;
pub(super) const BYTES_MAX: usize = 51_200;

const KIB: u64 = 1024;

/// How much is shown; whichever is reached first cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    pub lines: usize,
    /// Counted on the text shown, joining line feeds included.
    pub bytes: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { lines: LINES_MAX, bytes: BYTES_MAX }
    }
}

/// Which cap cut a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    Lines,
    Bytes,
}

/// Collects whole lines from the start of a text while they fit.
#[derive(Clone, Debug)]
pub struct Head {
    caps: Caps,
    text: String,
    lines: usize,
    cut: Option<Cap>,
}

impl Head {
    /// Nothing collected yet.
    pub fn new(caps: Caps) -> Self {
        Self { caps, text: String::new(), lines: 0, cut: None }
    }

    /// Adds a line without its terminator; `false` when it did not fit, and then no later one does.
    pub fn push(&mut self, line: &str) -> bool {
        if self.cut.is_some() {
            return false;
        }
        let joint = usize::from(self.lines > 0);
        if self.lines >= self.caps.lines {
            self.cut = Some(Cap::Lines);
        } else if self.text.len() + joint + line.len() > self.caps.bytes {
            self.cut = Some(Cap::Bytes);
        } else {
            if joint > 0 {
                self.text.push('\n');
            }
            self.text.push_str(line);
            self.lines += 1;
        }
        self.cut.is_none()
    }

    /// Lines collected.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// What refused a line, if anything did.
    pub fn cut(&self) -> Option<Cap> {
        self.cut
    }

    /// The lines, joined by line feeds.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut<'a> {
    /// As it stands in the whole; without the final line feed when lines follow.
    pub text: &'a str,
    /// Lines in `text`.
    pub lines: usize,
    /// What cut it, or `None` if it is the whole.
    pub by: Option<Cap>,
}

/// Lines of a text: runs ended by a line feed, or the unterminated rest (tool rule T1).
pub fn count_lines(text: &str) -> usize {
    lines(text).count()
}

fn lines(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    // A final line feed ends a line and does not start another one.
    let body = text.strip_suffix('\n').unwrap_or(text);
    let any = !text.is_empty();
    body.split('\n').filter(move |_| any)
}

/// Whole lines from the start (tool rule T3).
pub fn head(text: &str, caps: Caps) -> Cut<'_> {
    let (mut end, mut count) = (0, 0);
    for line in lines(text) {
        let next = end + usize::from(count > 0) + line.len();
        let by = match (count >= caps.lines, next > caps.bytes) {
            (true, _) => Cap::Lines,
            (false, true) => Cap::Bytes,
            (false, false) => {
                (end, count) = (next, count + 1);
                continue;
            }
        };
        return Cut { text: text.get(..end).unwrap_or_default(), lines: count, by: Some(by) };
    }
    Cut { text, lines: count, by: None }
}

/// Whole lines from the end; when even the last one is over the cap, its last bytes from a character on (tool rule T3).
pub fn tail(text: &str, caps: Caps) -> Cut<'_> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let (mut start, mut count) = (body.len(), 0);
    for line in lines(text).rev() {
        let next = start.saturating_sub(line.len() + usize::from(count > 0));
        let by = match (count >= caps.lines, body.len() - next > caps.bytes) {
            (true, _) => Cap::Lines,
            (false, true) => Cap::Bytes,
            (false, false) => {
                (start, count) = (next, count + 1);
                continue;
            }
        };
        if count == 0 && by == Cap::Bytes {
            let mut from = body.len().saturating_sub(caps.bytes);
            while !body.is_char_boundary(from) {
                from += 1;
            }
            return Cut { text: body.get(from..).unwrap_or_default(), lines: 1, by: Some(by) };
        }
        let shown = if count > 0 { text.get(start..).unwrap_or_default() } else { "" };
        return Cut { text: shown, lines: count, by: Some(by) };
    }
    Cut { text, lines: count, by: None }
}

/// The first `max` characters.
pub fn first_chars(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((at, _)) => text.get(..at).unwrap_or(text),
        None => text,
    }
}

/// `900B`, `58.6KB`, `12.4MB`; 1024-based (tool rule T4).
pub fn size(bytes: u64) -> String {
    let mut text = String::new();
    let (unit, name) = match bytes {
        0..KIB => return format!("{bytes}B"),
        KIB..1_048_576 => (KIB, "KB"),
        _ => (KIB * KIB, "MB"),
    };
    // Rounded in whole tenths: 128 bits hold ten times any size.
    let tenths = (u128::from(bytes) * 10 + u128::from(unit) / 2) / u128::from(unit);
    match write!(text, "{}.{}{name}", tenths / 10, tenths % 10) {
        Ok(()) => text,
        Err(std::fmt::Error) => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cap, Caps, Cut, Head, count_lines, first_chars, head, size, tail};

    const fn caps(lines: usize, bytes: usize) -> Caps {
        Caps { lines, bytes }
    }

    #[test]
    fn a_final_line_feed_does_not_start_another_line_t1() {
        for (text, lines) in [("a\nb\n", 2), ("a\nb", 2), ("", 0), ("\n", 1), ("\n\n", 2), ("a\n\n", 2)] {
            assert_eq!(count_lines(text), lines, "{text:?}");
        }
    }

    #[test]
    fn head_and_tail_keep_whole_lines_t3() {
        let cut = |text, lines, by| Cut { text, lines, by };
        for (text, limit, first, last) in [
            ("a\nb\nc\n", caps(9, 99), cut("a\nb\nc\n", 3, None), cut("a\nb\nc\n", 3, None)),
            ("a\nb\nc\n", caps(2, 99), cut("a\nb", 2, Some(Cap::Lines)), cut("b\nc\n", 2, Some(Cap::Lines))),
            ("a\nb\nc\n", caps(9, 3), cut("a\nb", 2, Some(Cap::Bytes)), cut("b\nc\n", 2, Some(Cap::Bytes))),
            ("a\nb\nc", caps(9, 5), cut("a\nb\nc", 3, None), cut("a\nb\nc", 3, None)),
            ("aéb", caps(9, 3), cut("", 0, Some(Cap::Bytes)), cut("éb", 1, Some(Cap::Bytes))),
            ("aéb", caps(9, 2), cut("", 0, Some(Cap::Bytes)), cut("b", 1, Some(Cap::Bytes))),
            ("", caps(0, 0), cut("", 0, None), cut("", 0, None)),
        ] {
            assert_eq!(head(text, limit), first, "head of {text:?}");
            assert_eq!(tail(text, limit), last, "tail of {text:?}");
        }
    }

    #[test]
    fn sizes_have_one_decimal_t4() {
        for (bytes, want) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0KB"),
            (51_200, "50.0KB"),
            (60_001, "58.6KB"),
            (1_048_576, "1.0MB"),
            (10 << 20, "10.0MB"),
            (u64::MAX, "17592186044416.0MB"),
        ] {
            assert_eq!(size(bytes), want);
        }
    }

    proptest! {
        #[test]
        fn truncation_never_splits_a_character_t5(text in "[aé😀\\n]{0,40}", lines in 0_usize..5, bytes in 0_usize..40) {
            let limit = caps(lines, bytes);
            for cut in [head(&text, limit), tail(&text, limit)] {
                // Slicing at a character boundary is checked by the type; the rest must be within the caps.
                prop_assert!(text.contains(cut.text));
                if cut.by.is_some() {
                    prop_assert!(cut.text.trim_end_matches('\n').len() <= bytes);
                    prop_assert!(cut.lines <= lines.max(1));
                } else {
                    prop_assert_eq!(cut.text, &text);
                }
            }
            prop_assert!(text.starts_with(first_chars(&text, lines)));
            prop_assert!(first_chars(&text, lines).chars().count() <= lines);
        }

        #[test]
        fn collecting_lines_equals_cutting_the_text(text in "[aé\\n]{0,40}", lines in 0_usize..5, bytes in 0_usize..40) {
            let mut collected = Head::new(caps(lines, bytes));
            for line in super::lines(&text) {
                collected.push(line);
            }
            let cut = head(&text, caps(lines, bytes));
            prop_assert_eq!((collected.lines(), collected.cut()), (cut.lines, cut.by));
            if cut.by.is_some() {
                prop_assert_eq!(collected.into_text(), cut.text);
            }
        }
    }
}
