//! What a command printed, made fit for a model to read (tool rule B7).
//!
//! Keeps true: the result does not depend on how the bytes are split; it is text without control characters but TAB
//! and LF; no stray escape swallows more than a bounded piece; nothing is kept but a few bytes.
//!
//! Must not know: where the bytes come from, what becomes of the text.

/// Characters of a control sequence; a longer one is none.
const CSI_CHARS_MAX: usize = 256;
/// Characters of a control string such as a title or a picture; a longer one is none.
const STRING_CHARS_MAX: usize = 1 << 20;

/// Takes cleaned text.
pub(super) trait Sink {
    /// More text, perhaps of many lines.
    fn text(&mut self, text: &str);
    /// What the current line holds so far was written over.
    fn restart_line(&mut self);
}

/// Cleans a stream of bytes: decodes UTF-8, makes CRLF an LF, drops terminal sequences and control characters, and
/// keeps of a line what stands behind its last CR that has text behind it.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// The beginning of a character whose rest has not come.
    pending: Vec<u8>,
    state: State,
    /// Characters of the current sequence.
    length: usize,
    /// A CR without text behind it yet.
    returned: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// Behind ESC, with what may stand between it and its last character.
    Escape,
    /// A control sequence, `ESC [`; erases to the left if its parameter begins with 1.
    Csi { erases_left: bool },
    /// A control string such as `ESC ]`; a line feed ends it but for `ESC P`, whose pictures hold them.
    String { holds_lines: bool },
}

impl Cleaner {
    /// Takes the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        if self.pending.is_empty() {
            self.decode(bytes, sink);
        } else {
            let mut joined = std::mem::take(&mut self.pending);
            joined.extend_from_slice(bytes);
            self.decode(&joined, sink);
        }
    }

    /// The stream has ended.
    pub(super) fn finish(&mut self, sink: &mut impl Sink) {
        if !std::mem::take(&mut self.pending).is_empty() {
            self.characters("\u{fffd}", sink);
        }
    }

    fn decode(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.characters(chunk.valid(), sink);
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_beginning(invalid) {
                self.pending = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.characters("\u{fffd}", sink);
            }
        }
    }

    fn characters(&mut self, text: &str, sink: &mut impl Sink) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let taken = if self.state == State::Ground {
                let plain = plain_length(rest);
                if let Some(run) = rest.get(..plain).filter(|run| !run.is_empty()) {
                    self.plain(run, sink);
                    plain
                } else {
                    self.control(c);
                    // Binary output has long runs of what is dropped.
                    dropped_length(rest).max(c.len_utf8())
                }
            } else if self.sequence(c, sink) {
                c.len_utf8()
            } else {
                // What does not belong to the sequence ends it.
                self.state = State::Ground;
                0
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    fn plain(&mut self, run: &str, sink: &mut impl Sink) {
        if std::mem::take(&mut self.returned) && !run.starts_with('\n') {
            sink.restart_line();
        }
        sink.text(run);
    }

    fn control(&mut self, c: char) {
        match c {
            '\r' => self.returned = true,
            '\u{1b}' => self.begin(State::Escape),
            _ => {}
        }
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.length = 0;
    }

    /// Takes a character into the current sequence; `false` if it does not belong to it.
    fn sequence(&mut self, c: char, sink: &mut impl Sink) -> bool {
        self.length += 1;
        match self.state {
            State::Ground => false,
            State::Escape => self.escape(c),
            State::Csi { erases_left } => self.control_sequence(c, erases_left, sink),
            State::String { holds_lines } => self.string(c, holds_lines),
        }
    }

    fn escape(&mut self, c: char) -> bool {
        match c {
            '[' if self.length == 1 => self.begin(State::Csi { erases_left: false }),
            ']' | 'X' | '^' | '_' if self.length == 1 => self.begin(State::String { holds_lines: false }),
            'P' if self.length == 1 => self.begin(State::String { holds_lines: true }),
            ' '..='/' => return self.length < CSI_CHARS_MAX,
            '0'..='~' => self.state = State::Ground,
            _ => return false,
        }
        true
    }

    fn control_sequence(&mut self, c: char, erases_left: bool, sink: &mut impl Sink) -> bool {
        match c {
            ' '..='?' => {
                if self.length == 1 {
                    self.state = State::Csi { erases_left: c == '1' };
                }
                return self.length < CSI_CHARS_MAX;
            }
            '@'..='~' => {
                self.state = State::Ground;
                if c == 'K' && !erases_left && std::mem::take(&mut self.returned) {
                    sink.restart_line();
                }
            }
            _ => return false,
        }
        true
    }

    fn string(&mut self, c: char, holds_lines: bool) -> bool {
        match c {
            // CAN and SUB give it up; BEL and ST end it, and so does ESC, which begins ST.
            '\u{7}' | '\u{18}' | '\u{1a}' | '\u{9c}' => self.state = State::Ground,
            '\u{1b}' => self.begin(State::Escape),
            '\n' | '\r' if !holds_lines => return false,
            _ => return self.length < STRING_CHARS_MAX,
        }
        true
    }
}

/// Whether the bytes may be the first ones of a character.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Bytes of the text in front of the first character that is not shown.
fn plain_length(text: &str) -> usize {
    // Most bytes can not begin such a character.
    let suspicious = |byte: &u8| matches!(byte, 0..=0x1f | 0x7f | 0xc2 | 0xef) && !matches!(byte, b'\t' | b'\n');
    let mut from = 0;
    while let Some(at) = text.as_bytes().get(from..).and_then(|rest| rest.iter().position(suspicious)) {
        let at = from + at;
        match text.get(at..).and_then(|rest| rest.chars().next()) {
            Some(c) if is_shown(c) => from = at + c.len_utf8(),
            Some(_) | None => return at,
        }
    }
    text.len()
}

/// Bytes of control characters at the start of the text that mean nothing.
fn dropped_length(text: &str) -> usize {
    let is_dropped = |byte: u8| matches!(byte, 0..=0x1f | 0x7f) && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b);
    text.bytes().take_while(|byte| is_dropped(*byte)).count()
}

fn is_shown(c: char) -> bool {
    match c {
        '\t' | '\n' => true,
        '\u{fff9}'..='\u{fffb}' => false,
        _ => !c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CSI_CHARS_MAX, Cleaner, STRING_CHARS_MAX, Sink};

    /// The whole text and where its current line begins.
    #[derive(Default)]
    struct Text(String);

    impl Sink for Text {
        fn text(&mut self, text: &str) {
            self.0.push_str(text);
        }

        fn restart_line(&mut self) {
            let start = self.0.rfind('\n').map_or(0, |at| at + 1);
            self.0.truncate(start);
        }
    }

    fn cleaned(pieces: &[&[u8]]) -> String {
        let (mut cleaner, mut text) = (Cleaner::default(), Text::default());
        for piece in pieces {
            cleaner.feed(piece, &mut text);
        }
        cleaner.finish(&mut text);
        text.0
    }

    #[test]
    fn output_is_cleaned_as_b7_says() {
        for (bytes, want) in [
            // Cases 84 and 90.
            (&b"a\x1b[31mred\x1b[0m\tb\r\n"[..], "ared\tb\n"),
            (b"10%\r50%\r100%\ndone\n", "100%\ndone\n"),
            (b"\xff\xfeab", "\u{fffd}\u{fffd}ab"),
            (b"a\r\nb\r\n", "a\nb\n"),
            (b"a\r\r\nb", "a\nb"),
            (b"100%\r", "100%"),
            (b"100%\r\x1b[0m\n", "100%\n"),
            (b"busy\r\x1b[K", ""),
            (b"busy\r\x1b[2K\ndone", "\ndone"),
            (b"busy\r\x1b[1K\n", "busy\n"),
            (b"a\nbc\rd\n", "a\nd\n"),
            (b"a\r\0\n", "a\n"),
            (b"\x1b]0;title\x07x\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\", "xlink"),
            (b"\x1bPq#0\n~~@@\x1b\\x", "x"),
            (b"\x1b(Bx\x1b7y\x1b#8z", "xyz"),
            (b"\x1b[38;5;1mx\x1b[?25ly", "xy"),
            (b"\x1b[\xc3\xa9x", "\u{e9}x"),
            (b"\x1b[1\nx", "\nx"),
            (b"\x1b]0;cut off\nx", "\nx"),
            (b"\x1b\x1b[1mx", "x"),
            (b"x\x1b", "x"),
            (b"a\x08\x07\0\x0b\x0c\x7fb", "ab"),
            (b"a\xc2\x85\xc2\x9bb\xef\xbf\xb9c\xef\xbf\xbbd\xef\xbc\xa1\xc2\xa0", "abcd\u{ff21}\u{a0}"),
            // A surrogate's three bytes are three mistakes; a cut character is one.
            (b"\xed\xa0\xbd ok", "\u{fffd}\u{fffd}\u{fffd} ok"),
            (b"\xe4\xbd", "\u{fffd}"),
            (b"\xe4\xbdx", "\u{fffd}x"),
            (b"", ""),
        ] {
            assert_eq!(cleaned(&[bytes]), want, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_character_split_between_reads_is_whole_proc_12() {
        assert_eq!(cleaned(&[b"\xe4\xbd", b"\xa0\n"]), "你\n");
        assert_eq!(cleaned(&[b"\xf0", b"\x9f", b"\x98", b"\x80"]), "😀");
    }

    #[test]
    fn a_stray_escape_swallows_a_bounded_piece_b7() {
        let endless = |start: &str| format!("{start}{}", "0".repeat(2 * STRING_CHARS_MAX));
        for (start, max) in [("\u{1b}[", CSI_CHARS_MAX), ("\u{1b}]", STRING_CHARS_MAX), ("\u{1b}P", STRING_CHARS_MAX)] {
            let left = cleaned(&[endless(start).as_bytes()]).len();
            assert!(left >= 2 * STRING_CHARS_MAX - max, "{left} behind {start:?}");
        }
    }

    proptest! {
        #[test]
        fn cleaning_does_not_depend_on_how_bytes_are_split(
            words in prop::collection::vec(prop::sample::select(vec![
                &b"a"[..], b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\r", b"\n", b"\r\n", b"\x1b[", b"31m", b"K", b"\x1b]", b"\x07",
                b"\x1b", b"\\", b"\xff", b"\xe4\xbd", b"\0", b"\x1bP", b"\xc2\x9c",
            ]), 0..40),
            at in 0_usize..120,
        ) {
            let bytes = words.concat();
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            let whole = cleaned(&[&bytes]);
            prop_assert!(!whole.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(cleaned(&[first, second]), whole.clone());
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(cleaned(&single), whole);
        }
    }
}
