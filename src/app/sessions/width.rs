//! How many columns of a terminal a text takes.
//!
//! Keeps true: total, whatever the text; ASCII takes one column a character.
//!
//! Must not know: what is printed.

use unicode_normalization::char::is_combining_mark;

/// What takes two columns: East Asian Width W and F of Unicode 16, with what is not assigned between two of them.
const WIDE: &[(char, char)] = &[
    ('\u{1100}', '\u{115f}'),
    ('\u{231a}', '\u{231b}'),
    ('\u{2329}', '\u{232a}'),
    ('\u{23e9}', '\u{23ec}'),
    ('\u{23f0}', '\u{23f0}'),
    ('\u{23f3}', '\u{23f3}'),
    ('\u{25fd}', '\u{25fe}'),
    ('\u{2614}', '\u{2615}'),
    ('\u{2630}', '\u{2637}'),
    ('\u{2648}', '\u{2653}'),
    ('\u{267f}', '\u{267f}'),
    ('\u{268a}', '\u{268f}'),
    ('\u{2693}', '\u{2693}'),
    ('\u{26a1}', '\u{26a1}'),
    ('\u{26aa}', '\u{26ab}'),
    ('\u{26bd}', '\u{26be}'),
    ('\u{26c4}', '\u{26c5}'),
    ('\u{26ce}', '\u{26ce}'),
    ('\u{26d4}', '\u{26d4}'),
    ('\u{26ea}', '\u{26ea}'),
    ('\u{26f2}', '\u{26f3}'),
    ('\u{26f5}', '\u{26f5}'),
    ('\u{26fa}', '\u{26fa}'),
    ('\u{26fd}', '\u{26fd}'),
    ('\u{2705}', '\u{2705}'),
    ('\u{270a}', '\u{270b}'),
    ('\u{2728}', '\u{2728}'),
    ('\u{274c}', '\u{274c}'),
    ('\u{274e}', '\u{274e}'),
    ('\u{2753}', '\u{2755}'),
    ('\u{2757}', '\u{2757}'),
    ('\u{2795}', '\u{2797}'),
    ('\u{27b0}', '\u{27b0}'),
    ('\u{27bf}', '\u{27bf}'),
    ('\u{2b1b}', '\u{2b1c}'),
    ('\u{2b50}', '\u{2b50}'),
    ('\u{2b55}', '\u{2b55}'),
    ('\u{2e80}', '\u{303e}'),
    ('\u{3041}', '\u{3247}'),
    ('\u{3250}', '\u{a4cf}'),
    ('\u{a960}', '\u{a97f}'),
    ('\u{ac00}', '\u{d7a3}'),
    ('\u{f900}', '\u{faff}'),
    ('\u{fe10}', '\u{fe19}'),
    ('\u{fe30}', '\u{fe6f}'),
    ('\u{ff01}', '\u{ff60}'),
    ('\u{ffe0}', '\u{ffe6}'),
    ('\u{16fe0}', '\u{18d08}'),
    ('\u{1aff0}', '\u{1b2fb}'),
    ('\u{1d300}', '\u{1d376}'),
    ('\u{1f004}', '\u{1f004}'),
    ('\u{1f0cf}', '\u{1f0cf}'),
    ('\u{1f18e}', '\u{1f18e}'),
    ('\u{1f191}', '\u{1f19a}'),
    ('\u{1f200}', '\u{1f320}'),
    ('\u{1f32d}', '\u{1f335}'),
    ('\u{1f337}', '\u{1f37c}'),
    ('\u{1f37e}', '\u{1f393}'),
    ('\u{1f3a0}', '\u{1f3ca}'),
    ('\u{1f3cf}', '\u{1f3d3}'),
    ('\u{1f3e0}', '\u{1f3f0}'),
    ('\u{1f3f4}', '\u{1f3f4}'),
    ('\u{1f3f8}', '\u{1f43e}'),
    ('\u{1f440}', '\u{1f440}'),
    ('\u{1f442}', '\u{1f4fc}'),
    ('\u{1f4ff}', '\u{1f53d}'),
    ('\u{1f54b}', '\u{1f54e}'),
    ('\u{1f550}', '\u{1f567}'),
    ('\u{1f57a}', '\u{1f57a}'),
    ('\u{1f595}', '\u{1f596}'),
    ('\u{1f5a4}', '\u{1f5a4}'),
    ('\u{1f5fb}', '\u{1f64f}'),
    ('\u{1f680}', '\u{1f6c5}'),
    ('\u{1f6cc}', '\u{1f6cc}'),
    ('\u{1f6d0}', '\u{1f6d2}'),
    ('\u{1f6d5}', '\u{1f6df}'),
    ('\u{1f6eb}', '\u{1f6ec}'),
    ('\u{1f6f4}', '\u{1f6fc}'),
    ('\u{1f7e0}', '\u{1f7f0}'),
    ('\u{1f90c}', '\u{1f93a}'),
    ('\u{1f93c}', '\u{1f945}'),
    ('\u{1f947}', '\u{1f9ff}'),
    ('\u{1fa70}', '\u{1faff}'),
    ('\u{20000}', '\u{2fffd}'),
    ('\u{30000}', '\u{3fffd}'),
];

/// What takes no column beside marks: vowels and ends of Korean syllables, joiners and other marks of format.
const EMPTY: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{1160}', '\u{11ff}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{e0001}', '\u{e007f}'),
];

/// The columns of a text.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(of).sum()
}

fn of(character: char) -> usize {
    if character.is_ascii() {
        1
    } else if is_combining_mark(character) || is_in(EMPTY, character) {
        0
    } else if is_in(WIDE, character) {
        2
    } else {
        1
    }
}

/// Whether one of the ranges, which are in order, has the character.
fn is_in(ranges: &[(char, char)], character: char) -> bool {
    let behind = ranges.partition_point(|(_, last)| *last < character);
    ranges.get(behind).is_some_and(|(first, _)| *first <= character)
}

#[cfg(test)]
mod tests {
    use super::{EMPTY, WIDE, width};

    #[test]
    fn the_ranges_are_in_order() {
        for ranges in [EMPTY, WIDE] {
            assert!(ranges.iter().all(|(first, last)| first <= last));
            assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }

    #[test]
    fn a_text_takes_the_columns_that_terminals_give_it() {
        for (text, columns) in [
            ("", 0),
            ("plain -_ text", 13),
            ("äé→…", 4),
            ("e\u{301}", 1),
            ("日本語", 6),
            ("\u{ff71}\u{ff21}", 3),
            ("한글 ok", 7),
            ("\u{1112}\u{1161}\u{11ab}", 2),
            ("🚀 go", 5),
            ("\u{2764}\u{fe0f}", 1),
            ("a\u{200d}b", 2),
            ("𠀀", 2),
        ] {
            assert_eq!(width(text), columns, "{text:?}");
        }
    }
}
