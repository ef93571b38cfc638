//! What only the whole file can tell: its number of lines and its line ends (tool rules T1, R4).
//!
//! Keeps true: the counts do not depend on how the bytes are cut.
//!
//! Must not know: which lines are shown.

/// How a file ends its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eol {
    Lf,
    Crlf,
    Cr,
    Mixed,
    /// No line end at all.
    None,
}

impl Eol {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Lf => "lf",
            Self::Crlf => "crlf",
            Self::Cr => "cr",
            Self::Mixed => "mixed",
            Self::None => "none",
        }
    }

    pub(super) fn notice(self) -> Option<&'static str> {
        match self {
            Self::Lf | Self::None => None,
            Self::Crlf => Some("[CRLF line endings]"),
            Self::Cr => Some("[CR line endings]"),
            Self::Mixed => Some("[mixed line endings]"),
        }
    }

    /// The byte that ends a line.
    pub(super) fn terminator(self) -> u8 {
        match self {
            Self::Cr => b'\r',
            Self::Lf | Self::Crlf | Self::Mixed | Self::None => b'\n',
        }
    }
}

/// Counts of one pass.
#[derive(Debug, Default)]
pub(super) struct Survey {
    lf: u64,
    crlf: u64,
    cr: u64,
    /// The last byte so far.
    last: Option<u8>,
}

impl Survey {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.cr += memchr::memchr_iter(b'\r', bytes).count() as u64;
        for at in memchr::memchr_iter(b'\n', bytes) {
            let before = at.checked_sub(1).map_or(self.last, |before| bytes.get(before).copied());
            self.lf += 1;
            self.crlf += u64::from(before == Some(b'\r'));
        }
        self.last = Some(*last);
    }

    pub(super) fn eol(&self) -> Eol {
        match (self.lf, self.crlf, self.cr) {
            (0, _, 0) => Eol::None,
            (0, _, _) => Eol::Cr,
            (_, 0, _) => Eol::Lf,
            (lf, crlf, _) if lf == crlf => Eol::Crlf,
            _ => Eol::Mixed,
        }
    }

    pub(super) fn lines(&self) -> u64 {
        let eol = self.eol();
        let ended = if eol == Eol::Cr { self.cr } else { self.lf };
        ended + u64::from(self.last.is_some_and(|last| last != eol.terminator()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Eol, Survey};

    #[test]
    fn lines_and_ends_do_not_depend_on_how_bytes_arrive() {
        for (text, lines, eol) in [
            ("", 0, Eol::None),
            ("a", 1, Eol::None),
            ("\n", 1, Eol::Lf),
            ("a\nb", 2, Eol::Lf),
            ("a\r\nb\r\n", 2, Eol::Crlf),
            ("a\r\nb\r\nc", 3, Eol::Crlf),
            ("a\r\nb\n", 2, Eol::Mixed),
            ("a\rb\rc", 3, Eol::Cr),
            ("a\r", 1, Eol::Cr),
            ("a\rb\n", 1, Eol::Lf),
            ("a\n\r", 2, Eol::Lf),
        ] {
            for step in 1..=4 {
                let mut survey = Survey::default();
                text.as_bytes().chunks(step).for_each(|chunk| survey.feed(chunk));
                assert_eq!((survey.lines(), survey.eol()), (lines, eol), "{text:?} by {step}");
            }
        }
    }
}
