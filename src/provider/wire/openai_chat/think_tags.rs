//! Thinking that a model writes into its text, between tags (OC-14).
//!
//! Keeps true: only a tag that opens the reply counts; tags may be cut anywhere, and no text is lost or given twice.
//!
//! Must not know: blocks, events.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Bytes of white space in front of a tag; behind more, the reply has no tag.
const BLANK_BYTES_MAX: usize = 64 * 1024;

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
}

/// Splits text at the tags. Only a tag that opens the reply counts; tags may be cut anywhere.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    place: Place,
    /// Text that may be the beginning of a tag.
    held: String,
    /// Bytes of white space that `held` opens with.
    blank: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Inside,
    /// Between the closing tag and the first character of the answer: line ends are dropped.
    Behind,
    Answer,
}

impl ThinkTags {
    /// Whether all further text is the answer.
    pub(super) fn is_over(&self) -> bool {
        self.place == Place::Answer
    }

    /// Takes text and gives the pieces that are sure.
    pub(super) fn push(&mut self, text: &str, give: &mut impl FnMut(Kind, &str)) {
        self.held.push_str(text);
        if self.place == Place::Before && !self.begin() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_str();
        loop {
            match self.place {
                Place::Before => break,
                Place::Inside => {
                    if let Some((thought, behind)) = rest.split_once(CLOSE) {
                        give(Kind::Thinking, thought);
                        self.place = Place::Behind;
                        rest = behind;
                    } else {
                        let (sure, unsure) = split_at_tag(rest);
                        give(Kind::Thinking, sure);
                        rest = unsure;
                        break;
                    }
                }
                Place::Behind => {
                    rest = rest.trim_start_matches(['\r', '\n']);
                    if rest.is_empty() {
                        break;
                    }
                    self.place = Place::Answer;
                }
                Place::Answer => {
                    give(Kind::Text, rest);
                    return;
                }
            }
        }
        rest.clone_into(&mut self.held);
    }

    /// Decides whether the reply opens with a tag, once enough of it is there to tell. White space is looked at once,
    /// however many pieces it comes in.
    fn begin(&mut self) -> bool {
        let begin = self.held.get(self.blank..).unwrap_or_default().trim_start();
        self.blank = self.held.len() - begin.len();
        if begin.starts_with(OPEN) {
            self.held = self.held.split_off(self.blank + OPEN.len());
            self.place = Place::Inside;
            return true;
        }
        if OPEN.starts_with(begin) && self.blank <= BLANK_BYTES_MAX {
            return false;
        }
        self.place = Place::Answer;
        true
    }

    /// No further text comes for now: what is held was no tag.
    pub(super) fn flush(&mut self, give: &mut impl FnMut(Kind, &str)) {
        if self.place == Place::Before && self.blank == self.held.len() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Before => {
                self.place = Place::Answer;
                give(Kind::Text, &held);
            }
            Place::Inside => give(Kind::Thinking, &held),
            Place::Behind | Place::Answer => give(Kind::Text, &held),
        }
    }
}

/// Cuts off the longest end of `text` that may be the beginning of the closing tag.
fn split_at_tag(text: &str) -> (&str, &str) {
    let longest = (1..CLOSE.len()).rev().find(|len| CLOSE.get(..*len).is_some_and(|begin| text.ends_with(begin)));
    text.split_at_checked(text.len() - longest.unwrap_or(0)).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::{BLANK_BYTES_MAX, Kind, ThinkTags};

    fn split(pieces: &[&str]) -> (String, String) {
        let (mut thinking, mut text) = (String::new(), String::new());
        let mut give = |kind, piece: &str| match kind {
            Kind::Thinking => thinking.push_str(piece),
            Kind::Text => text.push_str(piece),
        };
        let mut tags = ThinkTags::default();
        for piece in pieces {
            tags.push(piece, &mut give);
        }
        tags.flush(&mut give);
        (thinking, text)
    }

    #[test]
    fn only_a_tag_that_opens_the_reply_counts_however_it_is_cut() {
        for (whole, thinking, text) in [
            ("<think>plan</think>\n\nanswer", "plan", "answer"),
            (" \n<think>a</thin</think>b\n", "a</thin", "b\n"),
            ("<think>never closed</thi", "never closed</thi", ""),
            ("<thought>x", "", "<thought>x"),
            ("say <think>x</think>", "", "say <think>x</think>"),
            ("<thi", "", "<thi"),
            ("<think></think>", "", ""),
            ("<think>é</think>é<think>", "é", "é<think>"),
            ("plain", "", "plain"),
        ] {
            assert_eq!(split(&[whole]), (thinking.to_owned(), text.to_owned()), "{whole}");
            let letters: Vec<String> = whole.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(split(&letters), (thinking.to_owned(), text.to_owned()), "{whole}, letter by letter");
        }
    }

    #[test]
    fn white_space_in_front_of_a_tag_is_bounded() {
        for (blank, tagged) in [(BLANK_BYTES_MAX, true), (BLANK_BYTES_MAX + 1, false)] {
            let pieces: Vec<&str> = std::iter::repeat_n(" ", blank).chain(["<think>a</think>b"]).collect();
            let (thinking, text) = split(&pieces);
            assert_eq!((thinking == "a", text == "b"), (tagged, tagged));
            assert_eq!(text.len() > BLANK_BYTES_MAX, !tagged, "no text is lost");
        }
    }

    #[test]
    fn a_pause_in_white_space_forgets_nothing() {
        let mut text = String::new();
        let mut tags = ThinkTags::default();
        for piece in [" ", "\n", "<think>", "x"] {
            tags.flush(&mut |_, piece| text.push_str(piece));
            tags.push(piece, &mut |_, piece| text.push_str(piece));
        }
        assert_eq!(text, "x");
    }
}
