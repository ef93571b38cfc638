//! Numbers for people.
//!
//! Keeps true: every function is pure and total.
//!
//! Must not know: where the text goes.

const MILLIS_PER_SECOND: u64 = 1000;
const SECONDS_PER_MINUTE: u64 = 60;
const SECONDS_PER_HOUR: u64 = 3600;

/// `12ms`, `4.2s`, `41s`, `2m05s`, `1h02m`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / MILLIS_PER_SECOND;
    match seconds {
        0 if ms < 100 => format!("{ms}ms"),
        0..=9 => format!("{seconds}.{}s", ms % MILLIS_PER_SECOND / 100),
        10..SECONDS_PER_MINUTE => format!("{seconds}s"),
        SECONDS_PER_MINUTE..SECONDS_PER_HOUR => {
            format!("{}m{:02}s", seconds / SECONDS_PER_MINUTE, seconds % SECONDS_PER_MINUTE)
        }
        _ => format!("{}h{:02}m", seconds / SECONDS_PER_HOUR, seconds % SECONDS_PER_HOUR / SECONDS_PER_MINUTE),
    }
}

/// `4s`, `2m05s`: a time ahead in whole seconds, rounded up.
pub(super) fn seconds(ms: u64) -> String {
    match ms.div_ceil(MILLIS_PER_SECOND) {
        seconds @ 0..SECONDS_PER_MINUTE => format!("{seconds}s"),
        seconds => duration(seconds.saturating_mul(MILLIS_PER_SECOND)),
    }
}

/// `950`, `12.4k`, `3.1M`, rounded down.
pub(super) fn count(number: u64) -> String {
    const THOUSAND: u64 = 1000;
    const MILLION: u64 = 1_000_000;
    match number {
        0..THOUSAND => number.to_string(),
        THOUSAND..MILLION => format!("{}.{}k", number / THOUSAND, number % THOUSAND / 100),
        _ => format!("{}.{}M", number / MILLION, number % MILLION / 100_000),
    }
}

/// `3 turns`, `1 turn`.
pub(super) fn plural(number: u64, word: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {word}{ending}")
}

/// `$1.25`, `$0.031`, `$0.0004`.
pub(super) fn dollars(amount: f64) -> String {
    if amount >= 1.0 {
        format!("${amount:.2}")
    } else if amount >= 0.01 || amount == 0.0 {
        format!("${amount:.3}")
    } else {
        format!("${amount:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::{count, dollars, duration, plural, seconds};

    #[test]
    fn numbers_read_well() {
        let durations = [
            (0, "0ms"),
            (99, "99ms"),
            (100, "0.1s"),
            (4_250, "4.2s"),
            (41_210, "41s"),
            (125_000, "2m05s"),
            (3_725_000, "1h02m"),
        ];
        for (ms, expected) in durations {
            assert_eq!(duration(ms), expected);
        }
        for (ms, expected) in [(1, "1s"), (4000, "4s"), (4001, "5s"), (59_001, "1m00s"), (125_000, "2m05s")] {
            assert_eq!(seconds(ms), expected);
        }
        for (number, expected) in [(0, "0"), (999, "999"), (1100, "1.1k"), (12_400, "12.4k"), (3_100_000, "3.1M")] {
            assert_eq!(count(number), expected);
        }
        for (amount, expected) in [(0.0, "$0.000"), (0.031, "$0.031"), (0.0004, "$0.0004"), (1.25, "$1.25")] {
            assert_eq!(dollars(amount), expected);
        }
        assert_eq!((plural(1, "turn"), plural(3, "turn")), ("1 turn".to_owned(), "3 turns".to_owned()));
    }
}
