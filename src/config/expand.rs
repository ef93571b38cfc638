//! References to variables inside a setting: `${NAME}` and `${NAME:-default}`.
//!
//! Keeps true: an unset variable without a default is an error, never an empty string; what was put in is not expanded
//! again.
//!
//! Must not know: which settings are expanded.

use super::Env;

/// Why a text with `${NAME}` references gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The variable is unset or empty and the reference has no default.
    #[error("the variable {0} is not set")]
    Unset(String),
    /// The variable holds bytes that are not UTF-8.
    #[error("the variable {0} is not UTF-8")]
    Unreadable(String),
    #[error("a reference is written ${{NAME}} or ${{NAME:-default}}")]
    Malformed,
}

/// One piece of a text with references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Reference { name: &'a str, default: Option<&'a str> },
}

/// Replaces `${NAME}` and `${NAME:-default}`. A `$` before anything but `{` stays.
pub fn expand(text: &str, env: &Env) -> Result<String, ExpandError> {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text)? {
        match piece {
            Piece::Literal(literal) => out.push_str(literal),
            Piece::Reference { name, default } => {
                if env.is_unreadable(name) {
                    return Err(ExpandError::Unreadable(name.to_owned()));
                }
                let value = env.text(name).or(default);
                out.push_str(value.ok_or_else(|| ExpandError::Unset(name.to_owned()))?);
            }
        }
    }
    Ok(out)
}

/// The variables a text refers to.
pub(super) fn references(text: &str) -> Result<Vec<String>, ExpandError> {
    let name = |piece| match piece {
        Piece::Reference { name, .. } => Some(name.to_owned()),
        Piece::Literal(_) => None,
    };
    Ok(pieces(text)?.into_iter().filter_map(name).collect())
}

/// The text of a value outside of references without a default; a default is text. `None`: a reference is malformed.
pub(super) fn literals(text: &str) -> Option<Vec<&str>> {
    let literal = |piece| match piece {
        Piece::Literal(text) => Some(text),
        Piece::Reference { default, .. } => default.filter(|default| !default.is_empty()),
    };
    Some(pieces(text).ok()?.into_iter().filter_map(literal).collect())
}

/// Whether a text is one reference and nothing else.
pub(super) fn is_reference(text: &str) -> bool {
    matches!(pieces(text).as_deref(), Ok([Piece::Reference { .. }]))
}

/// Whether a word can name a variable.
pub(super) fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && word.starts_with(|c: char| !c.is_ascii_digit())
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, ExpandError> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}').ok_or(ExpandError::Malformed)?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            return Err(ExpandError::Malformed);
        }
        if !before.is_empty() {
            found.push(Piece::Literal(before));
        }
        found.push(Piece::Reference { name, default });
        rest = behind;
    }
    if !rest.is_empty() {
        found.push(Piece::Literal(rest));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{ExpandError, expand, is_reference};
    use crate::config::Env;

    #[test]
    fn references_are_replaced_and_an_unset_one_is_an_error_never_an_empty_string() {
        let env = Env::from_pairs([("A", "1"), ("EMPTY", "")]);
        let unset = |name: &str| Err(ExpandError::Unset(name.to_owned()));
        let table = [
            ("plain", Ok("plain")),
            ("${A}", Ok("1")),
            ("x${A}y${A}", Ok("x1y1")),
            ("${B:-d}", Ok("d")),
            ("${B:-}", Ok("")),
            ("${A:-d}", Ok("1")),
            ("$A costs $5", Ok("$A costs $5")),
            ("${B}", unset("B")),
            ("${EMPTY}", unset("EMPTY")),
            ("${A", Err(ExpandError::Malformed)),
            ("${1A}", Err(ExpandError::Malformed)),
            ("${}", Err(ExpandError::Malformed)),
        ];
        for (text, expected) in table {
            assert_eq!(expand(text, &env), expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_reference_stands_alone() {
        assert!(is_reference("${A}") && is_reference("${A:-x}"));
        assert!(!is_reference("${A}${B}") && !is_reference("x${A}") && !is_reference("$A") && !is_reference(""));
    }
}
