//! Arguments on their way into a built-in tool: case 95 of `tests/cases/tools.md`, and the aliases of tool rule A2.

use pirn::tool::{ToolSettings, builtin};
use pirn::turn::arguments::ArgumentCheck;
use serde_json::json;

use crate::tool_support::{Workspace, failure, text};

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
    let names = ["read", "ls", "nothing"].map(str::to_owned);
    let tools = builtin(&ToolSettings::default(), &names);
    assert_eq!(tools.iter().map(|tool| tool.spec().name.as_str()).collect::<Vec<_>>(), ["read", "ls"]);
    for tool in tools {
        let spec = tool.spec();
        ArgumentCheck::compile(&spec.input_schema).unwrap();
        assert_eq!(spec.input_schema["additionalProperties"], false);
        let words = spec.description.split_whitespace().count();
        assert!(words <= 60, "{}: {words} words", spec.name);
    }
}
