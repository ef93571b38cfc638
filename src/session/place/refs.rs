//! What a word names a session by: a name, an id or a part of one, a path.
//!
//! Keeps true: what a word can mean depends on the word alone; a word of hex digits and dashes, or one that is a path,
//! never gives a session its name (SES-13, SES-14).
//!
//! Must not know: which sessions there are.

use crate::model::{ErrorKind, ErrorRecord};

/// Characters of a name.
const NAME_CHARS_MAX: usize = 64;
/// Hex digits of a part of an id.
const ID_DIGITS_MIN: usize = 6;
/// Characters of a reference that an error repeats.
const SHOWN_CHARS_MAX: usize = 80;
/// Sessions that an error about several of them lists.
const CANDIDATES_MAX: usize = 10;

/// What a reference can mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Hex digits and dashes: an id, or its beginning or end. `digits` are lower case without dashes.
    Id { digits: String },
    /// A name; a session may be made for it.
    Name,
    /// A path. With `name`, a session may have this name, but none gets it.
    Path { name: bool },
}

impl Shape {
    /// Tells them apart.
    ///
    /// # Errors
    /// It can be none of them.
    pub(super) fn of(reference: &str) -> Result<Self, RefError> {
        if reference.contains('/') {
            return if reference.contains('\0') {
                Err(RefError::invalid(reference))
            } else {
                Ok(Self::Path { name: false })
            };
        }
        let is_id = |c: char| c.is_ascii_hexdigit() || c == '-';
        if !reference.is_empty() && reference.chars().all(is_id) {
            return Ok(Self::Id { digits: digits(reference) });
        }
        if !is_name(reference) {
            return Err(RefError::invalid(reference));
        }
        Ok(if reference.strip_suffix(".jsonl").is_some() { Self::Path { name: true } } else { Self::Name })
    }
}

/// Whether a session can have this name: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
pub fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= NAME_CHARS_MAX && text.chars().all(inside)
}

/// The hex digits of an id in lower case, without dashes.
fn digits(id: &str) -> String {
    id.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

/// How well digits name an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdMatch {
    /// All of them.
    Whole,
    /// The first or the last ones, at least 6.
    Part,
    None,
}

/// Whether a word names this id: whole, or by its first or last hex digits, at least 6. Dashes and case do not count.
/// Ids of sessions and of entries are named in the same way.
pub fn id_match(word: &str, id: &str) -> IdMatch {
    let (word, id) = (digits(word), digits(id));
    if word == id {
        IdMatch::Whole
    } else if word.len() >= ID_DIGITS_MIN && (id.starts_with(&word) || id.ends_with(&word)) {
        IdMatch::Part
    } else {
        IdMatch::None
    }
}

/// Whether an id of so many digits is worth looking for.
pub(super) fn is_long_enough(digits: &str) -> bool {
    digits.len() >= ID_DIGITS_MIN
}

/// One of several sessions that a reference names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: String,
    pub name: Option<String>,
    /// Where it works, or its file where that is not known.
    pub place: String,
}

/// Why a reference names no session. All are errors of the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// Neither a name, an id nor a path.
    #[error("{reference:?} can not name a session")]
    Invalid { reference: String },
    /// Too few digits.
    #[error("{reference:?} is too short for an id")]
    TooShort { reference: String },
    #[error("no session has the id {reference:?}")]
    NoId { reference: String },
    #[error("no session of this directory has the name {reference:?}")]
    NoName { reference: String },
    /// The path leads to nothing.
    #[error("no session file at {path}")]
    NoFile { path: String },
    /// What is there was not written by this program.
    #[error("{path} is not a session file: {reason}")]
    NotASession { path: String, reason: String },
    /// A session, but what lies beside it would have no place of its own.
    #[error("{path} is a session file whose name does not end in .jsonl")]
    WrongEnding { path: String },
    #[error("{reference:?} names {} sessions", candidates.len())]
    Ambiguous { reference: String, candidates: Vec<Candidate> },
    /// The sessions could not be looked at.
    #[error("{0}")]
    Place(ErrorRecord),
}

impl RefError {
    pub(super) fn invalid(reference: &str) -> Self {
        Self::Invalid { reference: shown(reference) }
    }

    pub(super) fn too_short(reference: &str) -> Self {
        Self::TooShort { reference: shown(reference) }
    }

    pub(super) fn no_id(reference: &str) -> Self {
        Self::NoId { reference: shown(reference) }
    }

    pub(super) fn no_name(reference: &str) -> Self {
        Self::NoName { reference: shown(reference) }
    }
}

impl From<super::PlaceError> for RefError {
    fn from(error: super::PlaceError) -> Self {
        Self::Place(error.into())
    }
}

impl From<RefError> for ErrorRecord {
    fn from(error: RefError) -> Self {
        let hint = match &error {
            RefError::Place(record) => return record.clone(),
            RefError::Invalid { .. } => {
                "a name has up to 64 letters, digits, dots, dashes and underscores and begins with a letter or a digit"
            }
            RefError::TooShort { .. } => {
                "an id has at least 6 of its first or last hex digits; a name needs a letter beyond f"
            }
            RefError::NoId { .. } => {
                "pirn sessions list --all shows the ids; a word of hex digits and dashes is never a new name"
            }
            RefError::NoName { .. } => "pirn sessions list shows what there is; -s NAME without -c makes a new one",
            RefError::NoFile { .. } => "a word with a slash, or with .jsonl at its end, is a path and makes no session",
            RefError::NotASession { .. } => "name a file that pirn wrote",
            RefError::WrongEnding { .. } => {
                "copy or rename it to a name that ends in .jsonl: its lock and its messages lie beside it, under the \
                 same name with other endings"
            }
            RefError::Ambiguous { .. } => "name it by more digits of its id, or by its file",
        };
        let mut message = error.to_string();
        if let RefError::Ambiguous { candidates, .. } = &error {
            message.extend(candidates.iter().take(CANDIDATES_MAX).map(|one| {
                let name = one.name.as_deref().unwrap_or("-");
                format!("\n{}  {name}  {}", one.id, one.place)
            }));
            let more = candidates.len().saturating_sub(CANDIDATES_MAX);
            if more > 0 {
                message.extend([format!("\nand {more} more")]);
            }
        }
        Self::new(ErrorKind::Usage, message).with_hint(hint)
    }
}

/// A reference as an error repeats it.
fn shown(reference: &str) -> String {
    match reference.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", reference.get(..at).unwrap_or_default()),
        None => reference.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Candidate, IdMatch, RefError, Shape, id_match, is_name};
    use crate::model::{ErrorKind, ErrorRecord};

    fn id(digits: &str) -> Shape {
        Shape::Id { digits: digits.to_owned() }
    }

    #[test]
    fn a_word_says_what_it_can_mean() {
        let cases = [
            ("pr-12", Some(Shape::Name)),
            ("Nightly_2.build", Some(Shape::Name)),
            ("nope", Some(Shape::Name)),
            ("0g", Some(Shape::Name)),
            ("1234", Some(id("1234"))),
            ("0123abcd", Some(id("0123abcd"))),
            ("DEAD-BEEF", Some(id("deadbeef"))),
            ("face-cafe", Some(id("facecafe"))),
            ("-", Some(id(""))),
            ("01900000-0000-7000-8000-000000000001", Some(id("01900000000070008000000000000001"))),
            ("../../x", Some(Shape::Path { name: false })),
            ("a/b", Some(Shape::Path { name: false })),
            ("/tmp/s.jsonl", Some(Shape::Path { name: false })),
            ("s.jsonl", Some(Shape::Path { name: true })),
            (".", None),
            ("..", None),
            (".hidden", None),
            ("_x", None),
            ("-x", None),
            ("", None),
            (" ", None),
            ("a b", None),
            ("a\nb", None),
            ("a\u{1b}[2J", None),
            ("a/\0", None),
            ("naïve", None),
            (".jsonl", None),
        ];
        for (word, expected) in cases {
            assert_eq!(Shape::of(word).ok(), expected, "{word:?} (SES-14)");
        }
        assert_eq!(Shape::of(&"x".repeat(64)), Ok(Shape::Name));
        assert!(Shape::of(&"x".repeat(65)).is_err(), "SES-14");
        assert!(Shape::of(&"x".repeat(300)).is_err(), "SES-14");
        assert!(is_name("1234"), "a name may be all digits; only a call can not give it");
    }

    #[test]
    fn an_id_is_named_by_all_its_digits_or_by_six_at_either_end() {
        const ID: &str = "0199a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a5b";
        for (word, expected) in [
            (ID, IdMatch::Whole),
            ("0199A1B2C3D47E5F8A6B0C1D2E3F4A5B", IdMatch::Whole),
            ("2e3f4a5b", IdMatch::Part),
            ("3f4a5b", IdMatch::Part),
            ("0199a1", IdMatch::Part),
            ("0199a1b2-c3", IdMatch::Part),
            ("1d2e3f4a-5b", IdMatch::Part),
            ("f4a5b", IdMatch::None),
            ("0199a", IdMatch::None),
            ("c3d47e5f", IdMatch::None),
            ("", IdMatch::None),
        ] {
            assert_eq!(id_match(word, ID), expected, "{word}");
        }
    }

    #[test]
    fn errors_are_of_the_call_and_say_what_to_type() {
        let one = |n: u32| Candidate {
            id: format!("0199a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a{n:02}"),
            name: None,
            place: "/w".into(),
        };
        let many = RefError::Ambiguous { reference: "0199a1".into(), candidates: (0..12).map(one).collect() };
        for (error, wanted) in [
            (RefError::invalid(&"x".repeat(300)), "x…\" can not name"),
            (RefError::no_id("0123abcd"), "no session has the id \"0123abcd\""),
            (many, "names 12 sessions\n0199a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a00  -  /w"),
        ] {
            let record = ErrorRecord::from(error);
            assert_eq!(record.kind, ErrorKind::Usage);
            assert!(record.message.contains(wanted), "{}", record.message);
            assert!(record.hint.is_some());
        }
    }
}
