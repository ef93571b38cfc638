//! The delay a server asks for before the next attempt (RETRY-3).
//!
//! Keeps true: the first form that can be read wins, in the order of RETRY-3; a negative or unreadable one is passed
//! over. A delay is rounded up to whole milliseconds, since it is a minimum.
//!
//! Must not know: how long anybody is willing to wait; the clock, "now" is passed in.

use super::body::Facts;

const SECOND_MS: f64 = 1_000.0;
const DAY_SECONDS: u64 = 86_400;

/// Delays beyond this are read as this.
const DELAY_MS_MAX: f64 = 366.0 * 86_400.0 * 1_000.0;

/// Phrases in front of a delay in running text.
const PHRASES: [&str; 4] = ["try again in ", "retry in ", "try again after ", "retry after "];

/// Milliseconds to wait, of the first form found: `retry-after-ms`, `retry-after`, Google's `retryDelay`, the reset of
/// an exhausted rate limit, the text. `text` is in lower case.
pub(super) fn requested_delay_ms(headers: &[(String, String)], facts: &Facts, text: &str, now_ms: u64) -> Option<u64> {
    header(headers, "retry-after-ms")
        .and_then(|value| rounded(number(value)?))
        .or_else(|| header(headers, "retry-after").and_then(|value| retry_after(value, now_ms)))
        .or_else(|| rounded(whole_duration(facts.retry_delay.as_deref()?)?))
        .or_else(|| rate_limit_reset(headers, text))
        .or_else(|| PHRASES.iter().find_map(|phrase| delay_behind(text, phrase)))
}

/// The value of a header; names compare without case.
pub(super) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn retry_after(value: &str, now_ms: u64) -> Option<u64> {
    match number(value) {
        Some(seconds) => rounded(seconds * SECOND_MS),
        None => http_date_ms(value)?.checked_sub(now_ms),
    }
}

/// The reset of the kind that is used up; of both, the later one.
fn rate_limit_reset(headers: &[(String, String)], text: &str) -> Option<u64> {
    let reset = |kind: &str, in_text: &[&str]| {
        let remaining = header(headers, &format!("x-ratelimit-remaining-{kind}")).and_then(number);
        let exhausted = match remaining {
            Some(left) if left <= 0.0 => true,
            _ => in_text.iter().any(|phrase| text.contains(phrase)),
        };
        let value = header(headers, &format!("x-ratelimit-reset-{kind}")).filter(|_| exhausted)?;
        rounded(number(value).map(|seconds| seconds * SECOND_MS).or_else(|| whole_duration(value))?)
    };
    let requests = reset("requests", &["requests per", "(rpm)", "(rpd)"]);
    let tokens = reset("tokens", &["tokens per", "(tpm)", "(tpd)"]);
    requests.max(tokens)
}

fn delay_behind(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let tail = text.get(at + phrase.len()..)?;
        rounded(duration(tail.strip_prefix("about ").unwrap_or(tail))?.0)
    })
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above and not negative")]
fn rounded(delay_ms: f64) -> Option<u64> {
    (delay_ms >= 0.0).then(|| delay_ms.min(DELAY_MS_MAX).ceil() as u64)
}

/// A text that is a duration and nothing else, such as `120ms`, `6m0s`, `12.3s`.
fn whole_duration(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    duration(&text).filter(|(_, rest)| rest.trim().is_empty()).map(|(delay_ms, _)| delay_ms)
}

/// The duration at the start of a text in lower case, in milliseconds, and what follows it.
fn duration(text: &str) -> Option<(f64, &str)> {
    let mut total = None;
    let mut rest = text;
    while let Some((part_ms, after)) = duration_part(rest) {
        total = Some(total.unwrap_or(0.0) + part_ms);
        rest = after;
    }
    total.map(|total| (total, rest))
}

/// One number with its unit.
fn duration_part(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start_matches([' ', ',']);
    let text = text.strip_prefix("and ").unwrap_or(text);
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (amount, tail) = text.split_at_checked(digits)?;
    let amount = number(amount)?;
    let tail = tail.trim_start_matches(' ');
    let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
    let (unit, rest) = tail.split_at_checked(letters)?;
    let unit_ms = match unit {
        "ms" | "msec" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND_MS,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0 * SECOND_MS,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0 * SECOND_MS,
        "d" | "day" | "days" => 86_400.0 * SECOND_MS,
        _ => return None,
    };
    Some((amount * unit_ms, rest))
}

/// Unix milliseconds of an HTTP date in any of its three forms; dates before 1970 are none.
fn http_date_ms(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let text = text.to_ascii_lowercase();
    let (mut month, mut time, mut numbers) = (None, None, Vec::new());
    for word in text.split([' ', ',', '-']).filter(|word| !word.is_empty()) {
        if let Some(at) = MONTHS.iter().position(|name| *name == word) {
            month = Some(u64::try_from(at).ok()? + 1);
        } else if word.contains(':') {
            time = Some(clock_seconds(word)?);
        } else if let Ok(number) = word.parse::<u64>() {
            numbers.push(number);
        } else if !is_weekday(word) && !matches!(word, "gmt" | "utc") {
            return None;
        }
    }
    // In all three forms the day stands before the year.
    let [day, year] = *numbers.as_slice() else { return None };
    let year = match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        year => year,
    };
    let days = days_since_1970(year, month?, day)?;
    Some((days * DAY_SECONDS + time?) * 1_000)
}

fn is_weekday(word: &str) -> bool {
    ["mon", "tue", "wed", "thu", "fri", "sat", "sun"].iter().any(|day| word.starts_with(day))
}

fn clock_seconds(word: &str) -> Option<u64> {
    let parts: Vec<u64> = word.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hours, minutes, seconds] = *parts.as_slice() else { return None };
    (hours < 24 && minutes < 60 && seconds <= 60).then_some(hours * 3_600 + minutes * 60 + seconds)
}

/// Days of the Gregorian calendar since 1970-01-01.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    const YEARS: std::ops::RangeInclusive<u64> = 1970..=9999;
    if !YEARS.contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    // The year is counted from March, so that a leap day is its last day; 719,468 days lie between the start of year
    // 0 so counted and 1970-01-01.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    (year * 365 + year / 4 - year / 100 + year / 400 + day_of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::{Facts, http_date_ms, requested_delay_ms};

    const NOW_MS: u64 = 784_111_777_000;

    fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn http_dates_are_read_in_all_three_forms() {
        for (text, want) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(NOW_MS)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(NOW_MS)),
            ("Sun Nov  6 08:49:37 1994", Some(NOW_MS)),
            ("Mon, 30 Nov 2026 13:55:33 GMT", Some(1_796_046_933_000)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Thu, 29 Feb 2024 00:00:01 GMT", Some(1_709_164_801_000)),
            ("Wed, 31 Dec 1969 23:59:59 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 PST", None),
            ("Sun, 06 Nov 1994", None),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(http_date_ms(text), want, "{text}");
        }
    }

    #[test]
    fn the_first_readable_form_wins_retry_3_case_121() {
        let seconds = ("Retry-After", "2");
        for (pairs, text, want) in [
            (vec![seconds], "", Some(2_000)),
            (vec![("retry-after", "0.25")], "", Some(250)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")], "", Some(3_000)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT")], "", None),
            (vec![("retry-after-ms", "150.5"), seconds], "", Some(151)),
            (vec![("retry-after-ms", "-5"), seconds], "", Some(2_000)),
            (vec![("retry-after-ms", "soon"), seconds], "", Some(2_000)),
            (vec![("retry-after", "nan")], "try again in 350ms", Some(350)),
            (vec![("retry-after", "-1")], "", None),
            (vec![("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "120ms")], "", Some(120)),
            (vec![("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], "", Some(360_000)),
            (vec![("x-ratelimit-remaining-tokens", "5"), ("x-ratelimit-reset-tokens", "6m0s")], "", None),
            (vec![("x-ratelimit-reset-tokens", "1s")], "limit on tokens per min (tpm)", Some(1_000)),
            (vec![], "please try again in 1.2s.", Some(1_200)),
            (vec![], "try again in 350ms", Some(350)),
            (vec![], "try again in 2 seconds", Some(2_000)),
            (vec![], "try again in 1m30s.", Some(90_000)),
            (vec![], "please retry in 10h17m5.7s.", Some(37_025_700)),
            (vec![], "retry after 1 minute and 5 seconds", Some(65_000)),
            (vec![], "try again in a few minutes", None),
            (vec![], "try again in 5", None),
            (vec![], "", None),
        ] {
            let got = requested_delay_ms(&headers(&pairs), &Facts::default(), text, NOW_MS);
            assert_eq!(got, want, "{pairs:?} {text}");
        }
    }

    #[test]
    fn an_absurd_delay_is_bounded() {
        let got = requested_delay_ms(&headers(&[("retry-after", "1e300")]), &Facts::default(), "", NOW_MS);
        assert_eq!(got, Some(366 * 86_400 * 1_000));
    }
}
