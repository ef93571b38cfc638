//! The argument text of a finished tool call, read into an object.
//!
//! Keeps true: what is one JSON object in any of the disguises models use becomes that object (ARG-2, ARG-3, ARG-5);
//! everything else gives an empty object and an [`ArgumentsError`] that keeps the text (AN-10). A text that was cut off
//! is never completed here, so half a file is never written.
//!
//! Must not know: tools, schemas, protocols.

use serde_json::{Deserializer, Map, Value};

use crate::model::ArgumentsError;
use crate::provider::json::{self, Surrogates, repair};

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// Empty if `error` is set.
    pub object: Map<String, Value>,
    pub error: Option<ArgumentsError>,
    /// Text behind the object was left out.
    pub trailing: bool,
}

/// Reads the whole argument text of one call, with one repair. 64-bit integers are exact, of a key that stands twice
/// the last one counts (ARG-4).
pub fn read(text: &str) -> Arguments {
    let first = match object(text) {
        Ok(found) => return found,
        Err(message) => message,
    };
    if let Some(mended) = repair(text, Surrogates::Replace)
        && let Ok(found) = object(&mended)
    {
        return found;
    }
    let error = ArgumentsError { message: first, raw: text.to_owned() };
    Arguments { error: Some(error), ..Arguments::default() }
}

fn object(text: &str) -> Result<Arguments, String> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let Some(first) = values.next() else { return Ok(Arguments::default()) };
    let first = first.map_err(|error| error.to_string())?;
    let trailing = text.get(values.byte_offset()..).is_some_and(|rest| !rest.trim().is_empty());
    let (object, trailing) = match first {
        // A gateway's placeholder before the real object (ARG-3).
        Value::Object(map) if map.is_empty() && trailing => match values.next() {
            Some(Ok(Value::Object(second))) => (second, false),
            _ => (map, true),
        },
        Value::Object(map) => (map, trailing),
        Value::Null => (Map::new(), trailing),
        Value::String(inner) => (inner_object(&inner)?, trailing),
        Value::Array(_) => return Err(unexpected("an array")),
        Value::Number(_) => return Err(unexpected("a number")),
        Value::Bool(_) => return Err(unexpected("a boolean")),
    };
    Ok(Arguments { object, error: None, trailing })
}

/// One level of double encoding.
fn inner_object(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match json::value(text) {
        Some(Value::Object(map)) => Ok(map),
        _ => Err(unexpected("text")),
    }
}

fn unexpected(found: &str) -> String {
    format!("expected a JSON object, found {found}")
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn an_object_is_found_in_every_disguise() {
        for (text, want) in [
            // Case 141, NET-22, ARG-2.
            ("", "{}"),
            (" \n", "{}"),
            ("null", "{}"),
            ("\"\"", "{}"),
            ("{}{\"a\":1}", r#"{"a":1}"#),
            (r#""{\"a\":1}""#, r#"{"a":1}"#),
            // Case 140, JSON-5.
            ("{\"a\":\"x\ny\"}", r#"{"a":"x\ny"}"#),
            (r#"{"p":"C:\dir"}"#, r#"{"p":"C:\\dir"}"#),
            (r#"{"a":"\ud83d"}"#, "{\"a\":\"\u{fffd}\"}"),
            // ARG-4.
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (
                r#"{"n":[9223372036854775807,18446744073709551615,0.1]}"#,
                r#"{"n":[9223372036854775807,18446744073709551615,0.1]}"#,
            ),
        ] {
            let found = read(text);
            assert_eq!((found.error, found.trailing), (None, false), "{text}");
            assert_eq!(serde_json::to_string(&found.object).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn text_behind_the_object_is_left_out_and_reported() {
        for text in [r#"{"a":1}{"b":2}"#, r#"{"a":1}]"#, r#"{"a":1} done"#] {
            let found = read(text);
            assert_eq!(serde_json::to_string(&found.object).unwrap(), r#"{"a":1}"#, "{text}");
            assert!(found.trailing && found.error.is_none(), "{text}");
        }
        assert!(read("{}]").trailing);
    }

    #[test]
    fn anything_else_is_an_error_that_keeps_the_text() {
        for (text, message) in [
            (r#"{"path":"a"#, "EOF while parsing a string at line 1 column 10"),
            (r#"{"a":1,"#, "EOF while parsing a value at line 1 column 7"),
            ("[1]", "expected a JSON object, found an array"),
            ("5", "expected a JSON object, found a number"),
            ("true", "expected a JSON object, found a boolean"),
            (r#""x""#, "expected a JSON object, found text"),
            (r#""\"{}\"""#, "expected a JSON object, found text"),
            ("run it", "expected value at line 1 column 1"),
        ] {
            let found = read(text);
            let error = found.error.unwrap();
            assert_eq!((error.message.as_str(), error.raw.as_str()), (message, text));
            assert!(found.object.is_empty());
        }
    }
}
