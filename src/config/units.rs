//! Durations and sizes as people write them.
//!
//! Keeps true: reading is total; nothing overflows; zero means no limit for a duration.
//!
//! Must not know: which setting is read.

use std::time::Duration;

/// The longest duration a setting takes.
const DURATION_DAYS_MAX: u64 = 365;
const MS_PER_DAY: u64 = 24 * 60 * 60 * 1000;
/// Units of durations in milliseconds, largest first.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", MS_PER_DAY), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];
/// Units of sizes in bytes.
const SIZE_UNITS: [(&str, u64); 4] = [("B", 1), ("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)];

/// Why a duration or a size was refused; the texts continue the name of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("must be a duration such as \"90s\", \"10m\" or \"1h30m\" (\"0\" = none)")]
    Duration,
    #[error("must be at most {DURATION_DAYS_MAX} days")]
    TooLong,
    #[error("must be a size in bytes or such as \"50KB\" or \"10MB\"")]
    Size,
}

/// Reads `90s`, `10m`, `1h30m`: whole numbers with the units `d h m s ms`, larger units first. Zero is `None`.
pub fn parse_duration(text: &str) -> Result<Option<Duration>, UnitError> {
    if text == "0" {
        return Ok(None);
    }
    let mut total_ms = 0_u64;
    let mut below = u64::MAX;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = leading(rest, |c| c.is_ascii_digit());
        let (unit, after) = leading(after, |c| c.is_ascii_alphabetic());
        let factor = DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let factor = factor.filter(|factor| *factor < below).ok_or(UnitError::Duration)?;
        if number.is_empty() {
            return Err(UnitError::Duration);
        }
        // Digits alone can only be too many.
        let count: u64 = number.parse().or(Err(UnitError::TooLong))?;
        total_ms = count.checked_mul(factor).and_then(|ms| total_ms.checked_add(ms)).ok_or(UnitError::TooLong)?;
        below = factor;
        rest = after;
    }
    match total_ms {
        0 if text.is_empty() => Err(UnitError::Duration),
        0 => Ok(None),
        ms if ms > DURATION_DAYS_MAX * MS_PER_DAY => Err(UnitError::TooLong),
        ms => Ok(Some(Duration::from_millis(ms))),
    }
}

/// Reads `50KB`, `10MB`, `512`: a whole number of bytes, or of 1024-based units.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = leading(text, |c| c.is_ascii_digit());
    let unit = unit.trim_start();
    let factor = if unit.is_empty() {
        Some(1)
    } else {
        SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor)
    };
    let count = number.parse::<u64>().ok();
    count.zip(factor).and_then(|(count, factor)| count.checked_mul(factor)).ok_or(UnitError::Size)
}

/// A byte as two digits.
pub(super) fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 0xf].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'))
}

/// Splits `text` behind the characters at its start that fit.
fn leading(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !fits(c)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{UnitError, parse_duration, parse_size};

    #[test]
    fn durations_have_units_in_falling_order() {
        let table = [
            ("0", Ok(None)),
            ("0s", Ok(None)),
            ("90s", Ok(Some(90_000))),
            ("10m", Ok(Some(600_000))),
            ("1h30m", Ok(Some(5_400_000))),
            ("250ms", Ok(Some(250))),
            ("1d", Ok(Some(86_400_000))),
            ("365d", Ok(Some(365 * 86_400_000))),
            ("366d", Err(UnitError::TooLong)),
            ("99999999999999999999s", Err(UnitError::TooLong)),
            ("", Err(UnitError::Duration)),
            ("90", Err(UnitError::Duration)),
            ("s", Err(UnitError::Duration)),
            ("1.5h", Err(UnitError::Duration)),
            ("30m1h", Err(UnitError::Duration)),
            ("1m1m", Err(UnitError::Duration)),
            ("-1s", Err(UnitError::Duration)),
            ("5 s", Err(UnitError::Duration)),
            ("1ä", Err(UnitError::Duration)),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration(text), expected.map(|ms| ms.map(Duration::from_millis)), "{text}");
        }
    }

    #[test]
    fn sizes_are_1024_based() {
        let table = [
            ("0", Ok(0)),
            ("512", Ok(512)),
            ("50KB", Ok(51_200)),
            ("10 mb", Ok(10 << 20)),
            ("1GB", Ok(1 << 30)),
            ("KB", Err(UnitError::Size)),
            ("1.5MB", Err(UnitError::Size)),
            ("99999999999GB", Err(UnitError::Size)),
        ];
        for (text, expected) in table {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }
}
