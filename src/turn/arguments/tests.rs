//! The table of coercions and the cases 26–42 of `tests/cases/loop.md`, plus what schemas from anywhere may bring.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ArgumentCheck, malformed};
use crate::model::ArgumentsError;

fn check(schema: &Value, args: &Value) -> Result<Value, String> {
    ArgumentCheck::compile(schema).expect("the schema compiles").check("t", args)
}

/// An object schema with these properties, all required.
fn required(properties: &Value) -> Value {
    let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
    json!({"type": "object", "properties": properties, "required": names})
}

/// Coerces one value against one property schema.
fn one(schema: &Value, value: &Value) -> Result<Value, String> {
    check(&required(&json!({"v": schema})), &json!({"v": value})).map(|args| args["v"].clone())
}

/// The problem lines of a feedback text.
fn problems(text: &str) -> Vec<&str> {
    let body = text.split("\nArguments received:\n").next().unwrap();
    body.lines().skip(1).collect()
}

#[test]
fn values_are_coerced_where_nothing_is_lost() {
    let rows = [
        // case 29 and the table of coercions
        (json!({"type": "integer"}), json!("42"), json!(42)),
        (json!({"type": "integer"}), json!("1e2"), json!(100)),
        (json!({"type": "integer"}), json!(1.0), json!(1)),
        (json!({"type": "integer"}), json!(true), json!(1)),
        (json!({"type": "integer"}), json!(u64::MAX), json!(u64::MAX)),
        (json!({"type": "number"}), json!("1e2"), json!(100.0)),
        (json!({"type": "number"}), json!(false), json!(0)),
        (json!({"type": "string"}), json!(12), json!("12")),
        (json!({"type": "string"}), json!(false), json!("false")),
        (json!({"type": "boolean"}), json!("true"), json!(true)),
        (json!({"type": "boolean"}), json!("FALSE"), json!(false)),
        (json!({"type": "boolean"}), json!("1"), json!(true)),
        (json!({"type": "boolean"}), json!(1), json!(true)),
        (json!({"type": "boolean"}), json!(0), json!(false)),
        // cases 36 and 37
        (json!({"type": "array", "items": {"type": "string"}}), json!("x"), json!(["x"])),
        (json!({"type": "array", "items": {"type": "string"}}), json!(5), json!(["5"])),
        (json!({"type": "array"}), json!({"a": 1}), json!([{"a": 1}])),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "number"}}}}),
            json!({"k": "1"}),
            json!([{"k": 1}]),
        ),
        (json!({"type": "array", "items": {"type": "string"}}), json!("[\"x\",\"y\"]"), json!(["x", "y"])),
        (json!({"type": "array", "items": {"type": "object"}}), json!("{\"k\":1}"), json!([{"k": 1}])),
        (json!({"type": "object", "properties": {"k": {"type": "number"}}}), json!("{\"k\":\"1\"}"), json!({"k": 1})),
        // enums, unions, lists of types
        (json!({"enum": ["1", "2"]}), json!(1), json!("1")),
        (json!({"type": "string", "enum": ["1", "2"]}), json!(1), json!("1")),
        (json!({"enum": [1, 2]}), json!("2"), json!(2)),
        (json!({"const": true}), json!("true"), json!(true)),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!(null), json!(null)),
        (json!({"anyOf": [{"type": "number"}, {"type": "boolean"}]}), json!("true"), json!(true)),
        (json!({"oneOf": [{"type": "integer"}, {"type": "null"}]}), json!("7"), json!(7)),
        (json!({"type": ["integer", "null"]}), json!("5"), json!(5)),
        (json!({"type": ["string", "integer"]}), json!("5"), json!("5")),
        (json!({"allOf": [{"type": "integer"}, {"minimum": 3}]}), json!("5"), json!(5)),
        (json!({"properties": {"n": {"type": "integer"}}}), json!({"n": "1"}), json!({"n": 1})),
        (json!({"additionalProperties": {"type": "integer"}}), json!({"n": "1"}), json!({"n": 1})),
        (json!({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}), json!(["1", 2]), json!([1, "2"])),
        // what is valid stays as it is
        (json!({}), json!("5"), json!("5")),
        (json!({"type": "number"}), json!(1.0), json!(1.0)),
    ];
    for (schema, given, want) in rows {
        assert_eq!(one(&schema, &given).as_ref(), Ok(&want), "{schema} {given}");
    }
}

#[test]
fn values_that_would_lose_something_are_refused() {
    let rows = [
        // case 30, case 32 and the table
        (json!({"type": "integer"}), json!("3.5"), "v: expected integer, got string"),
        (json!({"type": "integer"}), json!(3.5), "v: expected integer, got number"),
        (json!({"type": "integer"}), json!(""), "v: expected integer, got string"),
        (json!({"type": "integer"}), json!("abc"), "v: expected integer, got string"),
        (json!({"type": "integer"}), json!("0x10"), "v: expected integer, got string"),
        (json!({"type": "number"}), json!(" 7 "), "v: expected number, got string"),
        (json!({"type": "number"}), json!(null), "v: expected number, got null"),
        (json!({"type": "string"}), json!(null), "v: expected string, got null"),
        (json!({"type": "string"}), json!({"a": 1}), "v: expected string, got object"),
        (json!({"type": "boolean"}), json!(2), "v: expected boolean, got number"),
        (json!({"type": "boolean"}), json!("yes"), "v: expected boolean, got string"),
        (json!({"type": "array", "items": {"type": "integer"}}), json!("x"), "v: expected array, got string"),
        (json!({"type": ["integer", "null"]}), json!("x"), "v: expected null or integer, got string"),
        // every keyword in words
        (json!({"enum": ["a", "b"]}), json!("c"), r#"v: must be one of ["a","b"]"#),
        (json!({"const": "a"}), json!("c"), r#"v: must be "a""#),
        (json!({"minimum": 1}), json!(0), "v: must be >= 1"),
        (json!({"maximum": 1}), json!(2), "v: must be <= 1"),
        (json!({"exclusiveMinimum": 1}), json!(1), "v: must be > 1"),
        (json!({"exclusiveMaximum": 1}), json!(1), "v: must be < 1"),
        (json!({"multipleOf": 2}), json!(3), "v: must be a multiple of 2"),
        (json!({"minLength": 1}), json!(""), "v: must have at least 1 character"),
        (json!({"maxLength": 2}), json!("abc"), "v: must have at most 2 characters, has 3"),
        (json!({"pattern": "^a"}), json!("b"), r#"v: does not match pattern "^a""#),
        (json!({"minItems": 1}), json!([]), "v: must have at least 1 item"),
        (json!({"maxItems": 1}), json!([1, 2]), "v: must have at most 1 item, has 2"),
        (json!({"uniqueItems": true}), json!([1, 1]), "v: items must differ, but 0 and 1 are equal"),
        (json!({"contains": {"type": "string"}}), json!([1]), "v: has no item of the required form"),
        (json!({"minProperties": 2}), json!({"a": 1}), "v: must have at least 2 fields"),
        (json!({"maxProperties": 0}), json!({"a": 1}), "v: must have at most 0 fields, has 1"),
        (json!({"propertyNames": {"maxLength": 1}}), json!({"ab": 1}), "ab: not an allowed field name"),
        (json!({"dependentRequired": {"a": ["b"]}}), json!({"a": 1}), "v.b: required because a is given"),
        (json!({"not": {"type": "string"}}), json!("x"), "v: has a form that is not allowed"),
        (json!({"properties": {"a": false}}), json!({"a": 1}), "v.a: not an allowed field"),
        (json!({"items": false}), json!([1]), "v.0: not an allowed item"),
        (json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}), json!(3), "v: matches more than one of the allowed forms"),
    ];
    for (schema, given, want) in rows {
        let text = one(&schema, &given).unwrap_err();
        assert_eq!(problems(&text), [format!("- {want}")], "{schema} {given}");
    }
}

#[test]
fn alternatives_are_reported_by_the_one_that_was_meant() {
    let tagged = json!({"anyOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "string"}}, "required": ["kind", "x"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "y": {"type": "string"}}, "required": ["kind", "y"]},
    ]});
    let either = json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let rows = [
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!({}), "v: expected string or null, got object"),
        (json!({"anyOf": [{"const": "a"}, {"enum": ["b"]}]}), json!("c"), r#"v: must be one of ["a","b"]"#),
        (json!({"anyOf": [{"const": "a"}, {"type": "null"}]}), json!("c"), r#"v: must be one of ["a"] or null"#),
        (tagged.clone(), json!({"kind": "b"}), "v.y: required but missing"),
        (tagged, json!("b"), "v: expected object, got string"),
        (
            either,
            json!({}),
            "v: matches none of the allowed forms (v.a: required but missing | v.b: required but missing)",
        ),
    ];
    for (schema, given, want) in rows {
        let text = one(&schema, &given).unwrap_err();
        assert_eq!(problems(&text), [format!("- {want}")], "{schema} {given}");
    }
}

#[test]
fn feedback_names_each_place_and_echoes_the_arguments() {
    let echo = required(&json!({"v": {"type": "string"}}));
    // case 26
    assert_eq!(
        check(&echo, &json!({})).unwrap_err(),
        "Invalid arguments for \"t\":\n- v: required but missing\nArguments received:\n{}"
    );
    // case 27
    assert_eq!(
        check(&echo, &json!({"v": {"a": 1}})).unwrap_err(),
        "Invalid arguments for \"t\":\n- v: expected string, got object\nArguments received:\n\
         {\n  \"v\": {\n    \"a\": 1\n  }\n}"
    );
    // case 34
    let edits = required(
        &json!({"edits": {"type": "array", "items": required(&json!({"old": {"type": "string"}, "new": {"type": "string"}}))}}),
    );
    let text = check(&edits, &json!({"edits": [{"old": "a"}, {"new": "b"}]})).unwrap_err();
    assert_eq!(problems(&text), ["- edits.0.new: required but missing", "- edits.1.old: required but missing"]);
    // case 35
    let mut closed = echo.clone();
    closed["additionalProperties"] = json!(false);
    let text = check(&closed, &json!({"v": "x", "w": 1, "a\nb": 2})).unwrap_err();
    assert_eq!(problems(&text), ["- w: not an allowed field", "- a\\nb: not an allowed field"]);
    assert_eq!(check(&echo, &json!({"v": "x", "w": 1})), Ok(json!({"v": "x", "w": 1})));
}

#[test]
fn case_28_a_number_becomes_a_string_and_nothing_else_changes() {
    let echo = required(&json!({"v": {"type": "string"}}));
    assert_eq!(check(&echo, &json!({"v": 5})), Ok(json!({"v": "5"})));
    assert_eq!(check(&echo, &json!({"v": "5"})), Ok(json!({"v": "5"})));
}

#[test]
fn cases_31_and_38_optional_nulls_are_dropped_and_defaults_not_filled() {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string", "default": "q"}, "n": {"type": ["string", "null"]}}});
    assert_eq!(check(&schema, &json!({"s": null, "n": null, "other": null})), Ok(json!({"n": null, "other": null})));
    assert_eq!(check(&schema, &json!({})), Ok(json!({})));
}

#[test]
fn case_42_the_echo_is_capped() {
    let schema = required(&json!({"n": {"type": "integer"}}));
    let text = check(&schema, &json!({"n": "x".repeat(10_000)})).unwrap_err();
    assert!(text.chars().count() < 2_600, "{}", text.len());
    // 10,013 characters of JSON: the string, its quotes, the key, braces and line feeds.
    assert!(text.ends_with("x… (8013 characters more)"), "{text}");
}

#[test]
fn ten_problems_are_listed_and_the_others_counted() {
    let names: serde_json::Map<String, Value> = (0..13).map(|n| (format!("p{n:02}"), json!(true))).collect();
    let text = check(&required(&Value::Object(names)), &json!({})).unwrap_err();
    let lines = problems(&text);
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[9..], ["- p09: required but missing", "- and 3 more"]);
}

#[test]
fn the_root_is_an_object_whatever_the_schema_says() {
    for schema in [json!({}), json!({"type": "object"}), json!(true)] {
        for (args, got) in [(json!("{}"), "string"), (json!(null), "null"), (json!([]), "array")] {
            let text = check(&schema, &args).unwrap_err();
            assert_eq!(problems(&text), [format!("- root: expected object, got {got}")]);
        }
    }
}

#[test]
fn case_41_malformed_arguments_are_quoted() {
    let error = ArgumentsError { message: "EOF".to_owned(), raw: "{\"v\":\"hel".to_owned() };
    assert_eq!(malformed("echo", &error), "Arguments for \"echo\" are not a JSON object: EOF\n\n{\"v\":\"hel");
    let error = ArgumentsError { message: "EOF".to_owned(), raw: "é".repeat(2_001) };
    assert!(malformed("echo", &error).ends_with("é… (1 characters more)"));
}

#[test]
fn references_are_followed_and_broken_ones_fail_only_where_a_value_stands() {
    let schema = json!({
        "$id": "https://example.com/root.json",
        "type": "object",
        "$defs": {
            "n": {"type": "integer"},
            "anchored": {"$anchor": "here", "type": "boolean"},
            "other": {"$id": "other.json", "$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s"},
            "a/b%c": {"type": "integer"},
        },
        "properties": {
            "local": {"$ref": "#/$defs/n"},
            "full": {"$ref": "https://example.com/root.json#/$defs/n"},
            "relative": {"$ref": "root.json#/$defs/n"},
            "anchor": {"$ref": "#here"},
            "resource": {"$ref": "other.json"},
            "escaped": {"$ref": "#/$defs/a~1b%25c"},
            "dangling": {"$ref": "#/$defs/none"},
            "remote": {"$ref": "https://example.com/elsewhere.json"},
            "file": {"$ref": "file:///etc/passwd"},
        },
    });
    let good = json!({"local": "1", "full": "2", "relative": "3", "anchor": "true", "resource": 5, "escaped": "6"});
    let want = json!({"local": 1, "full": 2, "relative": 3, "anchor": true, "resource": "5", "escaped": 6});
    assert_eq!(check(&schema, &good), Ok(want));
    for key in ["dangling", "remote", "file"] {
        let text = check(&schema, &json!({key: 1, "local": 1})).unwrap_err();
        let want = format!("- {key}: can not be checked: the tool's schema has a $ref here that leads nowhere");
        assert_eq!(problems(&text), [want]);
    }
}

#[test]
fn schemas_of_older_drafts_and_odd_habits_compile() {
    let rows = [
        // tuples of draft 7, with and without a draft word
        (json!({"properties": {"v": {"items": [{"type": "integer"}]}}}), json!({"v": ["1"]}), json!({"v": [1]})),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"v": {"items": [{"type": "integer"}]}}}),
            json!({"v": ["1"]}),
            json!({"v": [1]}),
        ),
        // an unknown draft, an annotation, a pattern of another dialect
        (json!({"$schema": "https://example.com/mine"}), json!({"v": 1}), json!({"v": 1})),
        (json!({"properties": {"v": {"format": "email"}}}), json!({"v": "no"}), json!({"v": "no"})),
        (json!({"properties": {"v": {"pattern": "^(?!x)"}}}), json!({"v": "x"}), json!({"v": "x"})),
        (
            json!({"patternProperties": {"^(?!x)": {}}, "additionalProperties": false}),
            json!({"v": "x"}),
            json!({"v": "x"}),
        ),
        // a property that is called like a keyword
        (
            json!({"properties": {"$ref": {"type": "integer"}, "format": {"type": "integer"}, "$id": {"type": "integer"}}}),
            json!({"$ref": "1", "format": "2", "$id": "3"}),
            json!({"$ref": 1, "format": 2, "$id": 3}),
        ),
    ];
    for (schema, given, want) in rows {
        assert_eq!(check(&schema, &given), Ok(want), "{schema}");
    }
}

#[test]
fn a_schema_that_is_none_is_refused_in_words() {
    let error = |schema: Value| ArgumentCheck::compile(&schema).unwrap_err();
    assert_eq!(error(json!([])), "a schema is an object, not array");
    assert!(error(json!({"properties": {"v": {"type": "text"}}})).starts_with("properties.v.type: "));
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"not": deep});
    }
    assert_eq!(error(deep), "nested more than 48 levels deep");
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    let tree = json!({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}});
    assert_eq!(check(&tree, &json!({"next": {"next": {"v": "1"}}})), Ok(json!({"next": {"next": {"v": 1}}})));
    for schema in [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#"}}})] {
        assert!(check(&schema, &json!({})).is_err(), "{schema}");
    }
}

#[test]
fn alternatives_that_multiply_are_given_up_and_not_computed() {
    // Each level doubles the work of the one above it.
    let branch = json!({"properties": {"n": {"$ref": "#"}}});
    let schema = json!({"anyOf": [branch, branch, branch], "properties": {"n": {"type": "object"}}});
    let mut args = json!({"n": 1});
    for _ in 0..40 {
        args = json!({"n": args});
    }
    let text = check(&schema, &args).unwrap_err();
    assert_eq!(problems(&text), ["- root: too deep or too ambiguous to check against the tool's schema"]);
}

#[test]
fn the_deepest_schema_fits_the_stack_of_a_test() {
    let mut schema = json!({"type": "integer"});
    for _ in 0..23 {
        schema = json!({"properties": {"n": schema}});
    }
    assert!(ArgumentCheck::compile(&schema).is_ok());
}

#[test]
fn the_deepest_arguments_fit_the_stack_of_a_test() {
    let list = json!({"additionalProperties": {"$ref": "#/$defs/l"}, "$defs": {"l": {"items": {"$ref": "#/$defs/l"}}}});
    for depth in [40, 46, 47, 120] {
        let mut args = json!("x");
        for _ in 0..depth {
            args = json!([args]);
        }
        let result = check(&list, &json!({"v": args}));
        assert_eq!(result.is_ok(), depth < 47, "{depth}");
    }
    let mut args = json!("x");
    for _ in 0..200 {
        args = json!([args]);
    }
    let text = check(&json!({}), &json!({"v": args})).unwrap_err();
    assert_eq!(
        text,
        "Invalid arguments for \"t\":\n- root: nested more than 128 levels deep\nArguments received:\n(not shown)"
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~é\\n]{0,6}".prop_map(Value::from),
        Just(json!("[1,{\"a\":\"2\"}]")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[abc]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        word.clone().prop_map(|word| json!({"type": word})),
        (word.clone(), word).prop_filter_map("two types", |(a, b)| (a != b).then(|| json!({"type": [a, b]}))),
        prop::sample::select(vec!["#", "#/properties/a", "#/anyOf/0", "#/none", "x", ""])
            .prop_map(|r| json!({"$ref": r})),
        prop::collection::vec(any_json(), 1..3).prop_map(|values| json!({"enum": values})),
        (0_u8..3).prop_map(|n| json!({"minLength": n, "maxItems": n, "minimum": n, "minProperties": n})),
        prop::sample::select(vec!["^a", "(?=a)", "\\d+", "["]).prop_map(|p| json!({"pattern": p})),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (list.clone(), prop::sample::select(vec!["anyOf", "oneOf", "allOf", "prefixItems"]))
                .prop_map(|(list, key)| json!({key: list})),
            (inner.clone(), prop::sample::select(vec!["not", "items", "additionalProperties", "contains", "if"]))
                .prop_map(|(inner, key)| json!({key: inner})),
            (prop::collection::hash_map("[abc]", inner, 0..3), any::<bool>()).prop_map(|(map, closed)| {
                let names: Vec<String> = map.keys().cloned().collect();
                let map: serde_json::Map<String, Value> = map.into_iter().collect();
                json!({"properties": map, "required": names, "additionalProperties": closed})
            }),
        ]
    })
}

proptest! {
    #[test]
    fn a_check_answers_for_any_schema_and_any_arguments(schema in any_schema(), args in any_json()) {
        if let Ok(check) = ArgumentCheck::compile(&schema) {
            // Random schemas are rarely objects at the root; a property holds the value as well.
            let first = check.check("t", &args);
            drop(check.check("t", &json!({"a": args})));
            if let Ok(coerced) = first {
                prop_assert_eq!(check.check("t", &coerced), Ok(coerced), "coercion is idempotent");
            }
        }
    }
}
