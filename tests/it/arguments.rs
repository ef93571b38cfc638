//! Arguments on their way into a built-in tool: case 95 of `tests/cases/tools.md`, and the aliases of tool rule A2.

use pirn::tool::{ToolSettings, builtin};
use pirn::turn::arguments::ArgumentCheck;
use serde_json::json;

use crate::tool_support::{Workspace, failure, text};

#[test]
fn case_95_arguments_of_write_are_repaired_or_refused_by_name() {
    let w = Workspace::new();
    for (args, content) in [
        (json!({"path": "a", "content": "x"}), "x"),
        (json!({"file_path": "a", "content": "aliases"}), "aliases"),
        (json!({"filePath": "a", "content": "aliases too"}), "aliases too"),
        (json!({"filename": "a", "content": "and this"}), "and this"),
        (json!({"file": "b", "path": "a", "content": "a real name wins"}), "a real name wins"),
        (json!({"path": "a", "content": 12}), "12"),
        (json!({"path": "a", "content": 1.5}), "1.5"),
        (json!({"path": "a", "content": false}), "false"),
        (json!("{\"path\":\"a\",\"content\":\"text\"}"), "text"),
        // What looks like JSON is still text.
        (json!({"path": "a", "content": "{\"k\": [1]}"}), "{\"k\": [1]}"),
    ] {
        text(&w.call("write", args.clone()));
        assert_eq!(std::fs::read_to_string(w.root.join("a")).unwrap(), content, "{args}");
    }
    assert!(!w.root.join("b").exists());
    for (args, line) in [
        (json!({"path": "n", "content": {"k": 1}}), "- content: expected string, got object"),
        (json!({"path": "n", "content": ["x"]}), "- content: expected string, got array"),
        (json!({"path": "n", "content": null}), "- content: expected string, got null"),
        (json!({"path": "n"}), "- content: required but missing"),
        (json!({"content": "x"}), "- path: required but missing"),
        (json!({"path": "n", "content": "x", "mode": "0644"}), "- mode: not an allowed field"),
        (json!({"path": "n", "text": "x"}), "- text: not an allowed field"),
    ] {
        let output = w.call("write", args.clone());
        let (code, message) = failure(&output);
        assert_eq!(code, "invalid_args");
        assert!(message.starts_with("Invalid arguments for \"write\":\n"), "{message}");
        assert!(message.lines().any(|found| found == line), "{args}: {message}");
    }
    assert!(!w.root.join("n").exists());
    // A large content is not sent back whole.
    let output = w.call("write", json!({"path": "n", "content": "x".repeat(100_000), "extra": 1}));
    assert!(failure(&output).1.len() < 3_000);
}

#[test]
fn case_95_arguments_are_repaired_or_refused_by_name() {
    let w = Workspace::new();
    w.file("abc.txt", "a\nb\nc\n");
    let line_two = "b\n\n[lines 2-2 of 3; more: offset=3]";
    for args in [
        json!({"path": "abc.txt", "offset": "2", "limit": 1.0}),
        json!({"file_path": "abc.txt", "offset": 2, "limit": "1"}),
        json!("{\"filename\":\"abc.txt\",\"offset\":2.0,\"limit\":true}"),
    ] {
        assert_eq!(text(&w.call("read", args.clone())), line_two, "{args}");
    }
    assert_eq!(text(&w.call("read", json!({"path": "abc.txt", "offset": null, "limit": null}))), "a\nb\nc\n");

    let output = w.call("read", json!({"path": "abc.txt", "offset": "2", "limit": 1.0, "extra": true}));
    let (code, message) = failure(&output);
    assert_eq!(code, "invalid_args");
    assert!(message.lines().any(|line| line == "- extra: not an allowed field"), "{message}");

    let want = "Invalid arguments for \"read\":\n- path: required but missing\nArguments received:\n{}";
    assert_eq!(failure(&w.call("read", json!({}))), ("invalid_args", want));
    let output = w.call("read", json!({"path": "abc.txt", "limit": 0}));
    assert!(failure(&output).1.contains("- limit: must be >= 1\n"));
}

#[test]
fn every_built_in_tool_has_a_schema_that_compiles_and_a_short_description() {
    let names = ["read", "ls", "write", "nothing"].map(str::to_owned);
    let tools = builtin(&ToolSettings::default(), &names);
    assert_eq!(tools.iter().map(|tool| tool.spec().name.as_str()).collect::<Vec<_>>(), ["read", "ls", "write"]);
    for tool in tools {
        let spec = tool.spec();
        ArgumentCheck::compile(&spec.input_schema).unwrap();
        assert_eq!(spec.input_schema["additionalProperties"], false);
        let words = spec.description.split_whitespace().count();
        assert!(words <= 60, "{}: {words} words", spec.name);
    }
}
