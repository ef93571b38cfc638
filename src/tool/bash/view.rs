//! The bounded view of a growing text: its last lines and exact counts (tool rules B10, T3).
//!
//! Keeps true: what [`View::show`] gives equals the tail of the whole text, of which no more than about four times the
//! cap is kept; counts are of the whole text; pushing costs no more than copying.
//!
//! Must not know: how a cut is worded, where the text comes from.

use memchr::{memchr_iter, memrchr};

use super::clean::Sink;
use crate::process::mask::{Masker, Masks};
use crate::tool::truncate::{Cap, Caps, tail};

/// Bytes kept beyond the byte cap: a final line feed, and one that shows that the cap was passed.
const BEYOND: usize = 2;

/// What is left of a text, and how much it was.
#[derive(Debug)]
pub(super) struct View {
    caps: Caps,
    masker: Masker,
    /// The end of what the finished lines hold.
    done: String,
    /// Finished lines.
    done_lines: u64,
    /// Bytes of them, line feeds included.
    done_bytes: u64,
    /// Bytes of the last of them.
    last_done_bytes: u64,
    /// The end of the current line, which is not finished.
    line: String,
    /// Bytes of it.
    line_bytes: u64,
    /// Counts what changed the text.
    version: u64,
}

/// A view as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Without line feeds at its end.
    pub(super) text: String,
    /// What cut it, if anything did.
    pub(super) cut: Option<Cut>,
    /// Lines of the whole text.
    pub(super) total_lines: u64,
    /// Bytes of the whole text.
    pub(super) total_bytes: u64,
}

/// How a view was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// By the cap on lines; this many are shown.
    Lines(usize),
    /// By the cap on bytes; this many whole lines are shown.
    Bytes(usize),
    /// Not even the last line fits, of which the last `shown` of `bytes` are there.
    Line { shown: usize, bytes: u64 },
}

impl View {
    /// An empty text. What the `masks` name is masked once more: dropping a terminal sequence may have joined a secret.
    pub(super) fn new(caps: Caps, masks: &Masks) -> Self {
        Self {
            caps,
            masker: masks.stream(),
            done: String::new(),
            done_lines: 0,
            done_bytes: 0,
            last_done_bytes: 0,
            line: String::new(),
            line_bytes: 0,
            version: 0,
        }
    }

    /// Counts the changes of the text; 0 = there never was any.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the whole text is over a cap.
    pub(super) fn is_cut(&self) -> bool {
        let final_feed = u64::from(self.line_bytes == 0 && self.done_bytes > 0);
        self.total_lines() > self.caps.lines as u64 || self.total_bytes() - final_feed > self.caps.bytes as u64
    }

    /// Writes out what may be the beginning of a secret: no more text comes.
    pub(super) fn finish(&mut self) {
        let mut sure = Vec::new();
        self.masker.finish(&mut sure);
        self.push(&String::from_utf8_lossy(&sure));
    }

    /// The text as far as it is shown.
    pub(super) fn show(&self) -> Shown {
        // What stands before a line whose beginning is lost is not shown either.
        let lost = self.line_bytes > self.line.len() as u64;
        let before = if lost { "" } else { self.done.as_str() };
        let kept = [before, self.line.as_str()].concat();
        let tail = tail(&kept, self.caps);
        let last_bytes = if self.line_bytes > 0 { self.line_bytes } else { self.last_done_bytes };
        let cut = tail.by.map(|by| match by {
            Cap::Lines => Cut::Lines(tail.lines),
            Cap::Bytes if last_bytes > self.caps.bytes as u64 => {
                Cut::Line { shown: tail.text.len(), bytes: last_bytes }
            }
            Cap::Bytes => Cut::Bytes(tail.lines),
        });
        Shown {
            text: tail.text.trim_end_matches('\n').to_owned(),
            cut,
            total_lines: self.total_lines(),
            total_bytes: self.total_bytes(),
        }
    }

    fn total_lines(&self) -> u64 {
        self.done_lines + u64::from(self.line_bytes > 0)
    }

    fn total_bytes(&self) -> u64 {
        self.done_bytes + self.line_bytes
    }

    fn push(&mut self, text: &str) {
        self.version += u64::from(!text.is_empty());
        let closed = memrchr(b'\n', text.as_bytes()).map_or(0, |at| at + 1);
        let (closed, open) = text.split_at_checked(closed).unwrap_or((text, ""));
        if let Some(body) = closed.strip_suffix('\n') {
            self.close(closed, body);
        }
        self.line.push_str(open);
        self.line_bytes += open.len() as u64;
        self.trim();
    }

    /// Ends the current line, and perhaps more lines: `closed` is `body` and a line feed.
    fn close(&mut self, closed: &str, body: &str) {
        self.last_done_bytes = match memrchr(b'\n', body.as_bytes()) {
            Some(at) => (body.len() - at - 1) as u64,
            None => self.line_bytes + body.len() as u64,
        };
        if self.line_bytes > self.line.len() as u64 {
            self.done.clear();
        }
        self.done.push_str(&self.line);
        self.done.push_str(closed);
        self.done_lines += memchr_iter(b'\n', closed.as_bytes()).count() as u64;
        self.done_bytes += self.line_bytes + closed.len() as u64;
        self.line.clear();
        self.line_bytes = 0;
    }

    /// Cuts each part to its half of the bound, once it is over it.
    fn trim(&mut self) {
        let keep = self.caps.bytes.saturating_add(BEYOND);
        for part in [&mut self.done, &mut self.line] {
            if part.len() > keep.saturating_mul(2) {
                let mut from = part.len() - keep;
                while !part.is_char_boundary(from) {
                    from -= 1;
                }
                part.drain(..from);
            }
        }
    }
}

impl Sink for View {
    fn text(&mut self, text: &str) {
        if self.masker.is_idle() {
            self.push(text);
            return;
        }
        let mut sure = Vec::new();
        self.masker.feed(text.as_bytes(), &mut sure);
        // Secrets are text, so that what is held back begins with a character.
        self.push(&String::from_utf8_lossy(&sure));
    }

    fn restart_line(&mut self) {
        self.finish();
        self.version += u64::from(self.line_bytes > 0);
        self.line.clear();
        self.line_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cut, Shown, Sink as _, View};
    use crate::model::Secret;
    use crate::process::mask::Masks;
    use crate::tool::truncate::{Caps, count_lines, tail};

    fn view(lines: usize, bytes: usize) -> View {
        View::new(Caps { lines, bytes }, &Masks::default())
    }

    fn shown(view: &View) -> (String, Option<Cut>, u64, u64) {
        let Shown { text, cut, total_lines, total_bytes } = view.show();
        (text, cut, total_lines, total_bytes)
    }

    #[test]
    fn the_end_is_shown_with_counts_of_the_whole_b10() {
        for (text, want) in [
            ("", ("", None, 0, 0)),
            ("a\n\n\n", ("a", None, 3, 4)),
            ("a\nb\nc\n", ("a\nb\nc", None, 3, 6)),
            ("a\nb\nc\nd\n", ("b\nc\nd", Some(Cut::Lines(3)), 4, 8)),
            ("aaaaaaa\nbbbbbbb\nc", ("bbbbbbb\nc", Some(Cut::Bytes(2)), 3, 17)),
            ("x\naaaaaaaaaaaaaaa", ("aaaaaaaaaa", Some(Cut::Line { shown: 10, bytes: 15 }), 2, 17)),
            ("aaaaaaaaaaaaaaa\n", ("aaaaaaaaaa", Some(Cut::Line { shown: 10, bytes: 15 }), 1, 16)),
            ("aaaaaaaaaaé\n", ("aaaaaaaaé", Some(Cut::Line { shown: 10, bytes: 12 }), 1, 13)),
            ("éééééé", ("ééééé", Some(Cut::Line { shown: 10, bytes: 12 }), 1, 12)),
        ] {
            let mut view = view(3, 10);
            view.text(text);
            let (text, cut, lines, bytes) = shown(&view);
            assert_eq!((text.as_str(), cut, lines, bytes), want);
            assert_eq!(view.is_cut(), want.1.is_some());
        }
    }

    #[test]
    fn a_gigabyte_is_counted_exactly_in_bounded_memory_b10() {
        const CHUNK: usize = 1 << 20;
        let (mut lines, mut single) = (Caps::default(), view(2000, 51_200));
        lines.lines = 10;
        let mut lines = View::new(lines, &Masks::default());
        let (feeds, plain) = (format!("{}\n", "x".repeat(CHUNK - 1)), "y".repeat(CHUNK));
        let mut most = 0;
        for _ in 0..512 {
            lines.text(&feeds);
            single.text(&plain);
            most = most.max(lines.done.capacity() + lines.line.capacity());
            most = most.max(single.done.capacity() + single.line.capacity());
        }
        assert!(most <= 4 * 51_200 + 2 * CHUNK, "{most} bytes were kept");
        let line = Cut::Line { shown: 51_200, bytes: (CHUNK - 1) as u64 };
        assert_eq!(shown(&lines), ("x".repeat(51_200), Some(line), 512, 512 << 20));
        let line = Cut::Line { shown: 51_200, bytes: 512 << 20 };
        assert_eq!(shown(&single), ("y".repeat(51_200), Some(line), 1, 512 << 20));
    }

    #[test]
    fn a_line_written_over_takes_nothing_of_the_lines_before_it_along_b7() {
        let mut view = view(100, 10);
        view.text("one\ntwo\n");
        view.text(&"z".repeat(100));
        view.restart_line();
        view.text("end");
        assert_eq!(shown(&view), ("two\nend".to_owned(), Some(Cut::Bytes(2)), 3, 11));
    }

    #[test]
    fn a_secret_joined_by_cleaning_is_masked_v5() {
        let masks = Masks::new([("K".to_owned(), Secret::new("12345678"))]).unwrap();
        let mut view = View::new(Caps::default(), &masks);
        for piece in ["12", "345", "678é1234", "5"] {
            view.text(piece);
        }
        view.finish();
        assert_eq!(view.show().text, "[redacted:K]é12345");
    }

    proptest! {
        #[test]
        fn a_view_equals_the_tail_of_the_whole_text(
            pieces in prop::collection::vec((prop::sample::select(vec![
                "", "a", "é\n", "\n", "bb\ncc", "😀", "0123456789abcdef", "\n\n\n", "x\ny\nz\n",
            ]), prop::bool::weighted(0.2)), 0..40),
            lines in 1_usize..6, bytes in 1_usize..20,
        ) {
            let mut view = view(lines, bytes);
            let mut whole = String::new();
            for (piece, restart) in pieces {
                if restart {
                    view.restart_line();
                    whole.truncate(whole.rfind('\n').map_or(0, |at| at + 1));
                }
                view.text(piece);
                whole.push_str(piece);
                let cut = tail(&whole, Caps { lines, bytes });
                let shown = view.show();
                prop_assert_eq!(&shown.text, cut.text.trim_end_matches('\n'));
                prop_assert_eq!(shown.cut.is_some(), cut.by.is_some());
                prop_assert_eq!(view.is_cut(), cut.by.is_some());
                prop_assert_eq!(shown.total_lines, count_lines(&whole) as u64);
                prop_assert_eq!(shown.total_bytes, whole.len() as u64);
                prop_assert!(view.done.len() + view.line.len() <= 4 * (bytes + 2 + 3));
            }
        }
    }
}
