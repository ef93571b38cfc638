//! Repairs what models habitually get wrong about arguments, before validation (tool rules A1, A2). Shapes (A3) are the
//! business of coercion, which knows the schema.
//!
//! Keeps true: an alias never replaces a real key; the order of the properties is kept; what is not understood is left
//! to validation.
//!
//! Must not know: schemas, what a tool does.

use serde_json::{Map, Value};

/// A property and the other names models give it. Never advertised.
pub type Alias = (&'static str, &'static [&'static str]);

/// Names of the path of a file or directory.
pub const PATH_ALIASES: Alias = ("path", &["file_path", "filePath", "filename", "file", "dir", "directory"]);

/// Reads an object that came as text, and gives properties their real names. An alias beside the real name, or
/// beside an earlier alias, is dropped.
pub fn repair(raw: Value, aliases: &[Alias]) -> Value {
    match object(raw) {
        Value::Object(map) => Value::Object(renamed(map, aliases)),
        other => other,
    }
}

/// Tool rule A1: an object written as a JSON string, and nothing for no arguments.
fn object(raw: Value) -> Value {
    match &raw {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(parsed @ Value::Object(_)) => parsed,
            Ok(Value::Null) => Value::Object(Map::new()),
            // Validation says that an object was expected.
            Ok(_) | Err(_) => raw,
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => raw,
    }
}

/// Tool rule A2; keeps the order of the properties.
fn renamed(map: Map<String, Value>, aliases: &[Alias]) -> Map<String, Value> {
    let real_name = |key: &str| aliases.iter().find(|(_, others)| others.contains(&key)).map(|(real, _)| *real);
    if !map.keys().any(|key| real_name(key).is_some()) {
        return map;
    }
    let given: Vec<&str> = aliases.iter().map(|(real, _)| *real).filter(|real| map.contains_key(*real)).collect();
    let mut out = Map::with_capacity(map.len());
    for (key, value) in map {
        match real_name(&key) {
            None => {
                out.insert(key, value);
            }
            Some(real) if given.contains(&real) => {}
            Some(real) => {
                out.entry(real).or_insert(value);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PATH_ALIASES, repair};

    #[test]
    fn aliases_and_text_are_repaired_a1_a2() {
        for (raw, want) in [
            (json!({"file_path": "a", "limit": 1}), json!({"path": "a", "limit": 1})),
            (json!({"directory": "a"}), json!({"path": "a"})),
            (json!({"file_path": "a", "path": "b"}), json!({"path": "b"})),
            (json!({"path": "b", "file": "a"}), json!({"path": "b"})),
            (json!({"filename": "a", "file": "b"}), json!({"path": "a"})),
            (json!({"path": "a", "other": 1}), json!({"path": "a", "other": 1})),
            (json!("{\"file\":\"a\"}"), json!({"path": "a"})),
            (json!(""), json!({})),
            (json!(null), json!({})),
            (json!("null"), json!({})),
            (json!("a.txt"), json!("a.txt")),
            (json!([1]), json!([1])),
        ] {
            let text = raw.to_string();
            let repaired: Value = repair(raw, &[PATH_ALIASES]);
            assert_eq!(repaired.to_string(), want.to_string(), "{text}");
        }
    }
}
