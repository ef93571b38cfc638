use serde::Deserialize;

use super::{Balance, Few, Loose, Number, Raw, Surrogates, Unescaper, repair, text, value};

fn unescape(pieces: &[&str]) -> String {
    let mut units = Unescaper::default();
    let mut out = String::new();
    for piece in pieces {
        units.push(piece, &mut out);
    }
    units.finish(&mut out);
    out
}

#[test]
fn escapes_become_text_and_cut_pairs_are_joined_across_pieces() {
    for (pieces, want) in [
        (vec!["plain é😀"], "plain é😀"),
        (vec![r#"\"\\\/\b\f\n\r\t"#], "\"\\/\u{8}\u{c}\n\r\t"),
        (vec![r"\u00e9\ud83d\ude80"], "é🚀"),
        (vec![r"ab\ud83d", r"\ude80cd"], "ab🚀cd"),
        (vec![r"\ud83d", "", r"\ude80"], "🚀"),
        (vec![r"\ud83d", "x"], "\u{fffd}x"),
        (vec![r"\ud83d", r"\n"], "\u{fffd}\n"),
        (vec![r"\ud83d", r"\ud83d", r"\ude80"], "\u{fffd}🚀"),
        (vec![r"\ude80"], "\u{fffd}"),
        (vec![r"end\ud83d"], "end\u{fffd}"),
        // What JSON does not know is kept, never lost.
        (vec![r"\d\u12"], r"\d\u12"),
        (vec!["\\"], "\\"),
    ] {
        assert_eq!(unescape(&pieces), want, "{pieces:?}");
    }
}

#[test]
fn repair_escapes_control_characters_and_doubles_stray_backslashes_and_nothing_else() {
    for (text, want) in [
        ("{\"a\":\"x\ny\t\u{1}\"}", Some(r#"{"a":"x\ny\t\u0001"}"#)),
        (r#"{"p":"C:\dir\u12"}"#, Some(r#"{"p":"C:\\dir\\u12"}"#)),
        (r#"{"p":"é\x"}"#, Some(r#"{"p":"é\\x"}"#)),
        (r#"{"a":"\ud83d"}"#, Some(r#"{"a":"\ufffd"}"#)),
        (r#"{"a":"\ude80\ud83d\ude80"}"#, Some(r#"{"a":"\ufffd\ud83d\ude80"}"#)),
        (r#"{"a":"\ud83d\ud83d\ude80"}"#, Some(r#"{"a":"\ufffd\ud83d\ude80"}"#)),
        ("{\n\t\"a\": \"\\n\\\"\"}\n", None),
        (r#"{"a":"unfinished"#, None),
        ("", None),
    ] {
        assert_eq!(repair(text, Surrogates::Replace).as_deref(), want, "{text}");
    }
    assert_eq!(repair(r#"{"a":"\ud83d"}"#, Surrogates::Keep), None);
    assert_eq!(repair(r#"{"a":"\ud83d\q"}"#, Surrogates::Keep).as_deref(), Some(r#"{"a":"\ud83d\\q"}"#));
}

#[test]
fn a_document_is_read_with_one_repair() {
    assert_eq!(value("{\"a\":\"x\ny\"}"), Some(serde_json::json!({"a": "x\ny"})));
    assert_eq!(value(r#"{"a":"\ud83d"}"#), Some(serde_json::json!({"a": "\u{fffd}"})));
    assert_eq!(value("{\"a\":"), None);
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Probe<'a> {
    #[serde(borrow)]
    word: Raw<'a>,
    number: Number,
    few: Few<Inner>,
    loose: Loose<Inner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Inner {
    n: Number,
}

fn show(json: &str) -> String {
    let probe: Probe<'_> = serde_json::from_str(json).unwrap();
    let few: Vec<Option<i64>> = probe.few.iter().map(|inner| inner.n.0).collect();
    assert_eq!(few.is_empty(), probe.few.is_empty());
    format!("{:?} {:?} {few:?} {:?}", text(probe.word), probe.number.0, probe.loose.0.map(|inner| inner.n.0))
}

#[test]
fn fields_of_an_unexpected_type_count_as_absent() {
    for (json, want) in [
        ("{}", "None None [] None"),
        (r#"{"word":null,"number":null,"few":null,"loose":null}"#, "None None [] None"),
        (
            r#"{"word":"w","number":12,"few":[{"n":1},{"n":2}],"loose":{"n":3}}"#,
            r#"Some("w") Some(12) [Some(1), Some(2)] Some(Some(3))"#,
        ),
        (r#"{"word":"\u00e9","number":12.0,"few":{"n":"7"}}"#, r#"Some("é") Some(12) [Some(7)] None"#),
        (r#"{"word":{"a":1},"number":"x","few":[null,1,{"n":2},"x"],"loose":[{}]}"#, "None None [Some(2)] None"),
        (r#"{"word":"","number":true,"few":"x","loose":5}"#, "None None [] None"),
        (r#"{"number":[1],"few":false,"loose":-1.5}"#, "None None [] None"),
        (r#"{"number":{"a":1},"few":1.5,"loose":true}"#, "None None [] None"),
        (r#"{"number":18446744073709551615,"few":-1,"loose":1}"#, "None Some(9223372036854775807) [] None"),
        (r#"{"number":-4,"few":1}"#, "None Some(-4) [] None"),
    ] {
        assert_eq!(show(json), want, "{json}");
    }
    assert_eq!(Number(Some(-4)).count(), Some(0));
}

#[test]
fn brackets_are_followed_over_pieces_and_strings() {
    for (pieces, closed) in [
        (vec![r#"{"a":"#, r#""}{\""#, r#"","b":[1]}"#], true),
        (vec![r#"{"a":"}"#], false),
        (vec!["{", "{}"], false),
        (vec![" {} "], true),
        (vec!["5"], false),
        (vec![""], false),
        (vec!["}"], false),
    ] {
        let mut balance = Balance::default();
        for piece in &pieces {
            balance.feed(piece);
        }
        assert_eq!(balance.is_closed(), closed, "{pieces:?}");
    }
}

#[test]
fn where_a_text_is_cut_does_not_change_its_brackets() {
    for (text, closed) in [
        (r#"{"a":"x\\","b":"\"}","c":[{"d":"{"}]}"#, true),
        (r#"{"a":"x\\\","b":1}"#, false),
        (r#"{"a":"}","b":{"#, false),
        (r#"{"a":"\u007d\n"}"#, true),
    ] {
        for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let mut balance = Balance::default();
            let (head, tail) = text.split_at(cut);
            balance.feed(head);
            balance.feed(tail);
            assert_eq!(balance.is_closed(), closed, "{text} cut at {cut}");
        }
    }
}
