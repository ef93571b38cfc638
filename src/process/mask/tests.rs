use proptest::prelude::*;
use serde_json::json;

use super::{Masks, looks_secret};
use crate::model::Secret;

fn masks(secrets: &[(&str, &str)]) -> Masks {
    Masks::new(secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value)))).unwrap()
}

fn overlapping() -> Masks {
    masks(&[("A", "aaaaaaab"), ("LONG", "aaaaaaabcccc"), ("TAIL", "bccccddd"), ("KEY", "kéy-kéy-kéy")])
}

/// What a stream gives for these pieces.
fn streamed(masks: &Masks, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut masker, mut out) = (masks.stream(), Vec::new());
    for piece in pieces {
        masker.feed(piece, &mut out);
    }
    masker.finish(&mut out);
    out
}

#[test]
fn values_are_masked_leftmost_and_longest_v5() {
    let masks = overlapping();
    for (text, want) in [
        ("x aaaaaaab y", "x [redacted:A] y"),
        ("aaaaaaabcccc", "[redacted:LONG]"),
        ("aaaaaaabccc", "[redacted:A]ccc"),
        ("aaaaaaabccccddd", "[redacted:LONG]ddd"),
        ("aaaaaaaaab", "aa[redacted:A]"),
        ("kéy-kéy-kéykéy-kéy-kéy", "[redacted:KEY][redacted:KEY]"),
        ("nothing", "nothing"),
        ("", ""),
    ] {
        assert_eq!(masks.text(text), want, "{text}");
        assert_eq!(streamed(&masks, &[text.as_bytes()]), want.as_bytes(), "{text}");
    }
}

#[test]
fn short_values_are_left_alone_and_listed_v5() {
    let masks = masks(&[("SHORT", "seven77"), ("EMPTY", ""), ("SPACE", "  pass-word \n"), ("AGAIN", "pass-word")]);
    assert_eq!(masks.too_short(), ["SHORT"]);
    assert_eq!(masks.text("seven77 pass-word"), "seven77 [redacted:SPACE]");
    let none = Masks::default();
    assert!(none.is_empty() && none.stream().is_idle() && none.too_short().is_empty());
    assert_eq!(streamed(&none, &[b"a", b"\xffb"]), b"a\xffb");
}

#[test]
fn a_stream_that_masked_nothing_learns_too_v5() {
    let masks = Masks::default();
    let (mut masker, mut out) = (masks.stream(), Vec::new());
    assert!(masker.is_idle());
    masker.feed(b"new-n", &mut out);
    masks.learn([("NEW".to_owned(), Secret::new("new-new-2"))]).unwrap();
    assert!(!masker.is_idle());
    masker.feed(b"ew-2 new-new-2", &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "new-new-2 [redacted:NEW]");
}

#[test]
fn a_value_learned_later_is_masked_everywhere_from_then_on_v5() {
    let masks = masks(&[("OLD", "old-old-1")]);
    let (clone, mut masker, mut out) = (masks.clone(), masks.stream(), Vec::new());
    masker.feed(b"new-new-2 old-ol", &mut out);
    masks.learn([("NEW".to_owned(), Secret::new("new-new-2\n")), ("SHORT".to_owned(), Secret::new("x"))]).unwrap();
    masks.learn([("AGAIN".to_owned(), Secret::new("new-new-2"))]).unwrap();
    masker.feed(b"d-1 new-ne", &mut out);
    masker.feed(b"w-2!", &mut out);
    masker.finish(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "new-new-2 [redacted:OLD] [redacted:NEW]!");
    assert_eq!(clone.text("new-new-2 old-old-1"), "[redacted:NEW] [redacted:OLD]");
    assert_eq!(clone.too_short(), ["SHORT"]);
}

#[test]
fn only_what_may_begin_a_value_is_held_back_v5() {
    let masks = masks(&[("K", "sk-live-1234567890")]);
    let (mut masker, mut out) = (masks.stream(), Vec::new());
    for (piece, shown) in [
        ("prompt> ", "prompt> "),
        ("s", "prompt> "),
        ("ome", "prompt> some"),
        ("sk-live-12", "prompt> some"),
        ("34567890!", "prompt> some[redacted:K]!"),
        ("sk-sk-live", "prompt> some[redacted:K]!sk-"),
    ] {
        masker.feed(piece.as_bytes(), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), shown, "behind {piece:?}");
    }
    masker.finish(&mut out);
    assert!(out.ends_with(b"!sk-sk-live"), "what is no whole value is shown at the end");
}

#[test]
fn every_string_of_a_value_is_masked_v5() {
    let masks = masks(&[("K", "12345678")]);
    let mut value = json!({"z": ["x12345678", 12_345_678, {"12345678": null}], "a": "ok"});
    masks.value(&mut value);
    let want = r#"{"z":["x[redacted:K]",12345678,{"[redacted:K]":null}],"a":"ok"}"#;
    assert_eq!(value.to_string(), want);
}

#[test]
fn a_secret_never_prints() {
    assert_eq!(format!("{:?}", masks(&[("K", "12345678")])), r#"["[redacted:K]"]"#);
}

#[test]
fn a_value_looks_secret_from_sixteen_characters_with_letters_and_digits_on_v5() {
    for (value, want) in [
        ("a1b2c3d4e5f6a7b8", true),
        ("a1b2c3d4e5f6a7b", false),
        ("production", false),
        ("production-environment", false),
        ("1234567890123456", false),
        ("ümläut-ümläut-12", true),
    ] {
        assert_eq!(looks_secret(value), want, "{value}");
    }
}

proptest! {
    #[test]
    fn masking_does_not_depend_on_how_bytes_are_split(
        words in prop::collection::vec(prop::sample::select(vec![
            "a", "b", "c", "ddd", "aaaaaaab", "cccc", "aaaaaaabcccc", "ké", "y-", "kéy-kéy-kéy", " ",
        ]), 0..30),
        cuts in prop::collection::vec(0_usize..200, 0..12),
    ) {
        let masks = overlapping();
        let text = words.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        let whole = masks.text(&text).into_owned();
        prop_assert_eq!(String::from_utf8(streamed(&masks, &pieces)).unwrap(), whole);
    }
}
