//! The unified diff of two texts.
//!
//! Keeps true: only LF ends a line, and a last line without one is said to have none; three lines of context; the same
//! texts give the same patch; equal texts give none.
//!
//! Must not know: which tool changed what.

use std::collections::HashMap;
use std::ops::Range;

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{DiffOp, group_diff_ops};

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// What makes `new` of `old`, under the names of both; empty where they are equal.
pub(super) fn unified(old: (&str, &str), new: (&str, &str)) -> String {
    let ((old_name, old), (new_name, new)) = (old, new);
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    let (old, new) = (lines(old), lines(new));
    let mut text = String::new();
    for hunk in group_diff_ops(changes(&old, &new), CONTEXT_LINES) {
        if text.is_empty() {
            text = format!("--- {old_name}\n+++ {new_name}\n");
        }
        append(&mut text, &hunk, &old, &new);
    }
    text
}

/// The changes, found by numbers in place of lines: the search is compiled once for what it compares.
fn changes(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let mut known = HashMap::new();
    let (old, new) = (numbers(&mut known, old), numbers(&mut known, new));
    let (old, new) = (old.as_slice(), new.as_slice());
    let mut found = Compact::new(Replace::new(Capture::new()), old, new);
    let Ok(()) = myers::diff(&mut found, old, 0..old.len(), new, 0..new.len());
    found.into_inner().into_inner().into_ops()
}

/// The number of each line; equal lines have the same.
fn numbers<'a>(known: &mut HashMap<&'a str, usize>, lines: &[&'a str]) -> Vec<usize> {
    let number = |line: &&'a str| {
        let next = known.len();
        *known.entry(line).or_insert(next)
    };
    lines.iter().map(number).collect()
}

fn append(text: &mut String, hunk: &[DiffOp], old: &[&str], new: &[&str]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let old_range = place(&(first.old_range().start..last.old_range().end));
    let new_range = place(&(first.new_range().start..last.new_range().end));
    text.extend(["@@ -", &old_range, " +", &new_range, " @@\n"]);
    for change in hunk {
        if let DiffOp::Equal { .. } = change {
            side(text, ' ', old, change.old_range());
        } else {
            side(text, '-', old, change.old_range());
            side(text, '+', new, change.new_range());
        }
    }
}

/// Where a hunk is on one side; an empty place is named by the line before it.
fn place(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        more => format!("{},{more}", lines.start + 1),
    }
}

fn side(text: &mut String, mark: char, lines: &[&str], range: Range<usize>) {
    for line in lines.get(range).unwrap_or_default() {
        text.push(mark);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn hunks_have_their_places_their_context_and_the_missing_newline() {
        let count =
            |from: u32, to: u32| (from..=to).flat_map(|line| [line.to_string(), "\n".to_owned()]).collect::<String>();
        let rows = [
            (String::new(), String::new(), ""),
            ("a\n".into(), "a\n".into(), ""),
            (String::new(), "a\nb\n".into(), "@@ -0,0 +1,2 @@\n+a\n+b\n"),
            ("a\n".into(), String::new(), "@@ -1 +0,0 @@\n-a\n"),
            ("a".into(), "a\n".into(), "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
            ("a\r\nb".into(), "a\nb".into(), "@@ -1,2 +1,2 @@\n-a\r\n+a\n b\n\\ No newline at end of file\n"),
            (count(1, 9), count(1, 4) + "x\n" + &count(6, 9), "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"),
            (count(1, 20), count(2, 19), "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -17,4 +16,3 @@\n 17\n 18\n 19\n-20\n"),
        ];
        for (old, new, hunks) in rows {
            let expected = if hunks.is_empty() { String::new() } else { format!("--- o\n+++ n\n{hunks}") };
            assert_eq!(unified(("o", &old), ("n", &new)), expected, "{old:?} {new:?}");
        }
    }
}
