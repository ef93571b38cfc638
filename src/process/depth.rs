//! How deep a pirn may run below other pirns.
//!
//! Keeps true: a chain of agents that start agents ends.
//!
//! Must not know: who reads the variable.

use thiserror::Error;

/// The deepest pirn that still starts: the one that nobody started has depth 0 (B15).
pub const DEPTH_MAX: u32 = 5;

/// Why this pirn does not start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DepthError {
    #[error("pirn was started by a chain of {0} pirns; more than {DEPTH_MAX} are not allowed")]
    TooDeep(String),
    #[error("PIRN_DEPTH is {0:?}, not a number; it is set by pirn for its children, unset it")]
    NotANumber(String),
}

/// The depth of this pirn by the text of `PIRN_DEPTH`; unset is 0.
///
/// # Errors
/// The depth is above [`DEPTH_MAX`], or the text is no number.
pub fn refuse_depth(text: Option<&str>) -> Result<u32, DepthError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(0);
    };
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DepthError::NotANumber(text.to_owned()));
    }
    // Digits that do not fit are a number that is too large.
    match text.parse() {
        Ok(depth) if depth <= DEPTH_MAX => Ok(depth),
        Ok(_) | Err(_) => Err(DepthError::TooDeep(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::{DepthError, refuse_depth};

    #[test]
    fn a_sixth_pirn_below_pirns_does_not_start_b15() {
        for (text, want) in [(None, 0), (Some(""), 0), (Some("0"), 0), (Some("1"), 1), (Some(" 5 "), 5)] {
            assert_eq!(refuse_depth(text), Ok(want), "{text:?}");
        }
        for text in ["6", "99999999999999999999"] {
            assert_eq!(refuse_depth(Some(text)), Err(DepthError::TooDeep(text.to_owned())));
        }
        for text in ["-1", "+1", "deep", "1.0"] {
            assert_eq!(refuse_depth(Some(text)), Err(DepthError::NotANumber(text.to_owned())));
        }
    }
}
