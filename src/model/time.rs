//! Moments as text.
//!
//! Keeps true: every function is pure and total; all times are UTC.
//!
//! Must not know: what happened then.

const MILLIS_PER_SECOND: u64 = 1000;
const SECONDS_PER_MINUTE: u64 = 60;
const SECONDS_PER_HOUR: u64 = 3600;
const SECONDS_PER_DAY: u64 = 86_400;

/// A moment of the calendar.
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

/// Unix milliseconds as `2026-11-30T15:42:00.123Z`.
pub fn rfc3339(unix_ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second } = civil(unix_ms);
    let millis = unix_ms % MILLIS_PER_SECOND;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Unix milliseconds as `20261130T154200Z`, as it stands in names of files.
pub fn stamp(unix_ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second } = civil(unix_ms);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

fn civil(unix_ms: u64) -> Civil {
    let seconds = unix_ms / MILLIS_PER_SECOND;
    let (year, month, day) = date(seconds / SECONDS_PER_DAY);
    Civil {
        year,
        month,
        day,
        hour: seconds % SECONDS_PER_DAY / SECONDS_PER_HOUR,
        minute: seconds % SECONDS_PER_HOUR / SECONDS_PER_MINUTE,
        second: seconds % SECONDS_PER_MINUTE,
    }
}

/// Year, month and day of a day count from 1970-01-01. Years begin in March here, so that the leap day is the last
/// day of its year; 400 years repeat.
fn date(days: u64) -> (u64, u64, u64) {
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
    use super::{rfc3339, stamp};

    #[test]
    fn time_stamps_follow_the_calendar() {
        let moments = [
            (0, "1970-01-01T00:00:00.000Z", "19700101T000000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z", "20000228T235959Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z", "20000229T000000Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z", "20240301T000000Z"),
            (1_796_046_701_090, "2026-11-30T13:51:41.090Z", "20261130T135141Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z", "21000301T000000Z"),
        ];
        for (ms, long, short) in moments {
            assert_eq!((rfc3339(ms).as_str(), stamp(ms).as_str()), (long, short));
        }
    }
}
