use super::head;
use crate::session::record;

/// Writes as this program makes them.
const USUAL: &[&str] = &[
    r#"{"seq":1,"kind":"entry","id":"a","parentId":null,"type":"message","message":{"role":"user","content":[{"type":"text","text":"a \"b\" \\ \n \u00e9 \ud83d é"}],"timestamp":1}}"#,
    r#"{"seq":12,"kind":"entry","id":"b","parentId":"a","type":"message","message":{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"ls","arguments":{"a":[1,-2.5e+3,{}],"b":[],"c":null,"d":true,"e":false}}],"stopReason":"toolUse","usage":{},"timestamp":1}}"#,
    r#"{"seq":13,"kind":"entry","id":"b","parentId":"a","type":"message","message":{"role":"assistant","stopReason":"pending"}}"#,
    r#"{"seq":14,"kind":"entry","id":"b","parentId":"a","type":"message","message":{"role":"later","stopReason":"pending"}}"#,
    r#"{"seq":2,"kind":"value","op":"set","namespace":"branch.tip","key":"main","value":"b"}"#,
    r#"{"seq":2,"kind":"value","op":"set","namespace":"n","key":"","value":{"a":[[],{"b":0}]}}"#,
    r#"{"seq":3,"kind":"usage","row":{"id":"u","operationId":null,"lane":"main","kind":"request","provider":"p","modelId":"m","usage":{"input":9000,"output":300,"cacheRead":0,"cacheWrite":1,"cacheWrite1h":1,"reasoning":2,"totalTokens":9301,"cost":{"input":0.1,"output":1e-7,"cacheRead":0.0,"cacheWrite":-0.0,"total":12}},"cost":0.1,"entryId":"b","details":{"a":1}}}"#,
];

/// What the parser says of a text that may go on behind a write.
fn parsed(text: &str) -> Option<(record::Head<'_>, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    let len = values.byte_offset();
    Some((record::head(text.get(..len)?).ok()?, len))
}

#[test]
fn usual_writes_are_recognised_and_say_what_the_parser_says() {
    for write in USUAL {
        assert_eq!(head(write), parsed(write), "{write}");
        assert!(head(write).is_some(), "{write}");
        let followed = format!("{write},{{}}]");
        assert_eq!(head(&followed), parsed(write), "{followed}");
    }
}

#[test]
fn what_is_recognised_after_any_change_of_a_byte_says_what_the_parser_says() {
    let strange =
        [b'"', b'\\', b',', b':', b'{', b'}', b'[', b']', b'0', b'9', b'-', b'.', b'e', b' ', b'u', 0x01, 0x7F];
    for write in USUAL {
        for at in 0..write.len() {
            for byte in strange {
                for cut in [at, at + 1] {
                    let mut changed = write.as_bytes().to_vec();
                    changed.splice(at..cut, [byte]);
                    let Ok(changed) = String::from_utf8(changed) else { continue };
                    if let Some(found) = head(&changed) {
                        assert_eq!(Some(found), parsed(&changed), "{changed}");
                    }
                }
            }
            let mut shorter = write.as_bytes().to_vec();
            shorter.remove(at);
            if let Ok(shorter) = String::from_utf8(shorter)
                && let Some(found) = head(&shorter)
            {
                assert_eq!(Some(found), parsed(&shorter), "{shorter}");
            }
        }
    }
}

#[test]
fn what_is_unusual_is_left_to_the_parser() {
    let deep = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"seq":1,"kind":"value","op":"set","namespace":"n","key":"k","value":{value}}}"#)
    };
    assert!(head(&deep(20)).is_some());
    let usage = |usage: &str| format!(r#"{{"seq":1,"kind":"usage","row":{{"id":"u","usage":{usage}}}}}"#);
    assert!(head(&usage(r#"{"input":1}"#)).is_some());
    for write in [
        deep(60),
        usage("{}"),
        usage(r#"{"input":1,"input":2}"#),
        usage(r#"{"input":1,"later":2}"#),
        usage(r#"{"input":null}"#),
        usage(r#"{"cost":{"input":1e999,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}"#),
        usage(r#"{"input":1},"usage":{"input":1}"#),
        usage(r#"{"input":1},"id":"v""#),
        r#"{"seq":1,"kind":"usage","row":{"id":"u"}}"#.to_owned(),
        r#"{"seq":1,"kind":"value","op":"delete","namespace":"n","key":"k"}"#.to_owned(),
        r#"{"seq":1,"kind":"value","op":"set","namespace":"\u006e","key":"k","value":1}"#.to_owned(),
        r#"{"seq":1,"kind":"entry","id":"a","parentId":null,"type":"custom","customType":"c"}"#.to_owned(),
        r#"{"seq":1,"kind":"entry","id":"a","parentId":null,"type":"message","message":{"role":"user","role":"x"}}"#.to_owned(),
        r#"{"seq":1,"kind":"entry","id":"a","parentId":null,"type":"message","message":{"role":"user"},"terminate":true}"#
            .to_owned(),
    ] {
        assert_eq!(head(&write), None, "{write}");
    }
}
