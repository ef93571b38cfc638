//! Numbers for people, and one time stamp for programs.
//!
//! Keeps true: every function is pure and total.
//!
//! Must not know: where the text goes.

const MILLIS_PER_SECOND: u64 = 1000;
const SECONDS_PER_MINUTE: u64 = 60;
const SECONDS_PER_HOUR: u64 = 3600;
const SECONDS_PER_DAY: u64 = 86_400;

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

/// Unix milliseconds as `2026-11-30T15:42:00.123Z`.
pub fn rfc3339(unix_ms: u64) -> String {
    let seconds = unix_ms / MILLIS_PER_SECOND;
    let (year, month, day) = civil(seconds / SECONDS_PER_DAY);
    let of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) =
        (of_day / SECONDS_PER_HOUR, of_day % SECONDS_PER_HOUR / SECONDS_PER_MINUTE, of_day % SECONDS_PER_MINUTE);
    let millis = unix_ms % MILLIS_PER_SECOND;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day count from 1970-01-01. Years begin in March here, so that the leap day is the last
/// day of its year; 400 years repeat.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days.saturating_add(DAYS_TO_1970);
    let era = days / DAYS_PER_ERA;
    let day_of_era = days % DAYS_PER_ERA;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let (month, next_year) = if shifted_month < 10 { (shifted_month + 3, 0) } else { (shifted_month - 9, 1) };
    (era * 400 + year_of_era + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::{count, dollars, duration, plural, rfc3339};

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
        for (number, expected) in [(0, "0"), (999, "999"), (1100, "1.1k"), (12_400, "12.4k"), (3_100_000, "3.1M")] {
            assert_eq!(count(number), expected);
        }
        for (amount, expected) in [(0.0, "$0.000"), (0.031, "$0.031"), (0.0004, "$0.0004"), (1.25, "$1.25")] {
            assert_eq!(dollars(amount), expected);
        }
        assert_eq!((plural(1, "turn"), plural(3, "turn")), ("1 turn".to_owned(), "3 turns".to_owned()));
    }

    #[test]
    fn time_stamps_follow_the_calendar() {
        let moments = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_796_046_701_090, "2026-11-30T13:51:41.090Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ms, expected) in moments {
            assert_eq!(rfc3339(ms), expected);
        }
    }
}
