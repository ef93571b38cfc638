//! The word that was probably meant.
//!
//! Keeps true: the same words give the same suggestion; a word that is too far from all candidates gives none.
//!
//! Must not know: what the words name.

/// How many edits apart two words may be for one to be offered for the other.
const EDITS_MAX: usize = 2;
/// From this length on a word is offered for its beginning.
const PREFIX_CHARS_MIN: usize = 3;

/// The candidate a typed word was probably meant to be: the nearest within two edits (a swap of neighbours is one),
/// else the first one that begins with it or that it begins with. Case does not count.
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    let length = lower.chars().count();
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other = candidate.to_lowercase();
        let distance = strsim::osa_distance(&lower, &other);
        let close = distance <= EDITS_MAX && distance < length;
        let starts = |a: &str, b: &str| b.chars().count() >= PREFIX_CHARS_MIN && a.starts_with(b);
        let score = if close {
            distance
        } else if starts(&other, &lower) || starts(&lower, &other) {
            EDITS_MAX + 1
        } else {
            continue;
        };
        if best.is_none_or(|(known, _)| score < known) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_word_within_two_edits_or_by_prefix_is_offered() {
        let words = ["model", "models", "thinking", "limits", "max_turns"];
        let table = [
            ("modle", Some("model")),
            ("tihnking", Some("thinking")),
            ("max", Some("max_turns")),
            ("max_turns_a_run", Some("max_turns")),
            ("LIMITS", Some("limits")),
            ("frobnicate", None),
            ("ab", None),
        ];
        for (typed, expected) in table {
            assert_eq!(nearest(typed, words), expected, "{typed}");
        }
    }
}
