//! B. Lookup, arguments, validation.

use std::sync::{Arc, Mutex};

use pirn::agent::{AfterPatch, BeforeDecision};
use pirn::model::Event;
use pirn::testing::call;
use serde_json::{Value, json};

use super::doubles::{Log, TestHooks, TestTool, echo_tool, echoed, tool};
use super::support::{Run, Scene, calls, malformed, text};

/// Plays one call of a tool with a schema; gives what the tool got, or the text of the error result.
async fn execute(schema: Value, args: Value) -> Result<Value, String> {
    let got = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&got);
    let taking = tool("take", move |args, _| {
        *seen.lock().unwrap() = Some(args.clone());
        async move { echoed(&args) }
    });
    let run = play(taking.schema(schema), args).await;
    let got = got.lock().unwrap().take();
    assert_eq!(run.result("c1").is_error, got.is_none());
    got.ok_or_else(|| {
        assert_eq!(run.code("c1"), "invalid_args");
        run.result_text("c1")
    })
}

/// Plays one call of a tool, then an answer.
async fn play(tool: TestTool, args: Value) -> Run {
    let name = pirn::port::Tool::spec(&tool).name.clone();
    Scene::new(vec![calls(vec![call("c1", &name, &args)]), text("d")]).tool(tool).prompt("p").await
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

/// The lines of an error text that name problems.
fn problems(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("- ")).collect()
}

/// Counts every hook and tool that is called.
fn watched(scene: Scene) -> (Scene, Log) {
    let log = Log::default();
    let (before, after, run) = (log.clone(), log.clone(), log.clone());
    let hooks = TestHooks::new()
        .before(move |_| {
            before.add("before");
            Ok(BeforeDecision::default())
        })
        .after(move |_| {
            after.add("after");
            Ok(AfterPatch::default())
        });
    let echo = tool("echo", move |args, _| {
        run.add("run");
        async move { echoed(&args) }
    });
    (scene.hooks(hooks).tool(echo), log)
}

#[tokio::test(start_paused = true)]
async fn case_25_an_unknown_tool_is_named_with_those_there_are() {
    let (scene, log) = watched(Scene::new(vec![calls(vec![call("c1", "nope", &json!({"v": "1"}))]), text("d")]));
    let run = scene.prompt("p").await;
    let error = r#"ERR"Unknown tool \"nope\". Available: echo, fast, slow.""#;
    run.is(&format!(r#"AS TS U"p" A(toolUse,c1) ts1 te1 {error} R1 {error} TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#));
    assert_eq!((run.code("c1"), log.joined()), ("unknown_tool".to_owned(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn case_26_a_missing_argument_is_reported_and_the_run_goes_on() {
    let (scene, log) = watched(Scene::new(vec![calls(vec![call("c1", "echo", &json!({}))]), text("d")]));
    let run = scene.prompt("p").await;
    let told = run.result_text("c1");
    assert!(told.starts_with("Invalid arguments for \"echo\":\n"), "{told}");
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines.contains(&"- v: required but missing") && lines.contains(&"{}"), "{told}");
    assert_eq!((log.joined(), run.code("c1")), (String::new(), "invalid_args".to_owned()));
    run.asked(&["p", "p | a:c1 | t1!"]);
}

#[tokio::test(start_paused = true)]
async fn case_27_a_wrong_type_is_named_with_the_arguments_as_they_came() {
    let schema = object(&json!({"v": {"type": "string"}}));
    let told = execute(schema, json!({"v": {"a": 1}})).await.unwrap_err();
    assert_eq!(problems(&told), ["- v: expected string, got object"]);
    assert!(told.ends_with("{\n  \"v\": {\n    \"a\": 1\n  }\n}"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn case_28_a_number_becomes_a_string_and_the_event_shows_both() {
    for (given, shown, took) in [(json!(5), r#"{"v":"5"}"#, "ok 5"), (json!("5"), "", "ok 5")] {
        let replies = vec![calls(vec![call("c1", "echo", &json!({"v": given}))]), text("d")];
        let run = Scene::new(replies).prompt("p").await;
        assert_eq!(run.tools(), format!("ts1{shown} te1 ok{took:?}"));
        assert_eq!(run.result("c1").details, Some(json!({"v": "5"})));
        let stored = &run.after[1].as_assistant().unwrap().calls().next().unwrap().arguments["v"];
        assert_eq!(*stored, given);
    }
}

fn scalars() -> Value {
    object(&json!({"i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}}))
}

#[tokio::test(start_paused = true)]
async fn case_29_scalars_are_coerced() {
    for (given, took) in [
        (json!({"i": "42"}), json!({"i": 42})),
        (json!({"n": "1e2"}), json!({"n": 100})),
        (json!({"i": true}), json!({"i": 1})),
        (json!({"b": "true"}), json!({"b": true})),
        (json!({"b": 1}), json!({"b": true})),
        (json!({"b": "FALSE"}), json!({"b": false})),
        (json!({"b": "0"}), json!({"b": false})),
    ] {
        let got = execute(scalars(), given.clone()).await;
        assert!(got.as_ref().is_ok_and(|got| same(got, &took)), "{given} gave {got:?}");
    }
}

/// Equal, with numbers by value: 100 and 100.0 are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b,
    }
}

#[tokio::test(start_paused = true)]
async fn case_30_scalars_that_lose_something_are_refused() {
    for (key, given) in [
        ("i", json!("3.5")),
        ("i", json!(3.5)),
        ("i", json!("")),
        ("i", json!("abc")),
        ("i", json!("0x10")),
        ("b", json!(2)),
        ("b", json!("yes")),
    ] {
        let told = execute(scalars(), json!({key: given})).await.unwrap_err();
        let lines = problems(&told);
        assert!(lines.len() == 1 && lines[0].starts_with(&format!("- {key}: ")), "{told}");
    }
}

/// What a call of a tool with these properties gives.
struct Expected {
    properties: Value,
    required: &'static [&'static str],
    given: Value,
    took: Result<Value, &'static [&'static str]>,
}

async fn check(expected: Expected) {
    let Expected { properties, required, given, took } = expected;
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let got = execute(schema, given.clone()).await;
    match (&got, &took) {
        (Ok(got), Ok(took)) => assert_eq!(got, took, "{given}"),
        (Err(told), Err(lines)) => assert_eq!(problems(told), *lines, "{given}"),
        _ => panic!("{given} gave {got:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn case_31_an_optional_null_is_dropped() {
    let properties = json!({"s": {"type": "string"}});
    check(Expected { properties, required: &[], given: json!({"s": null}), took: Ok(json!({})) }).await;
}

#[tokio::test(start_paused = true)]
async fn case_32_a_required_null_is_an_error() {
    let properties = json!({"n": {"type": "number"}});
    let took = Err(["- n: expected number, got null"].as_slice());
    check(Expected { properties, required: &["n"], given: json!({"n": null}), took }).await;
}

#[tokio::test(start_paused = true)]
async fn case_33_a_union_that_takes_null_keeps_it() {
    let properties = json!({"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}});
    check(Expected { properties, required: &["x"], given: json!({"x": null}), took: Ok(json!({"x": null})) }).await;
}

fn edits() -> Value {
    let edit = json!({"type": "object", "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
        "required": ["old", "new"]});
    json!({"edits": {"type": "array", "items": edit}})
}

#[tokio::test(start_paused = true)]
async fn case_34_paths_of_nested_problems_are_dotted() {
    let took = Err(["- edits.0.new: required but missing", "- edits.1.old: required but missing"].as_slice());
    let given = json!({"edits": [{"old": "a"}, {"new": "b"}]});
    check(Expected { properties: edits(), required: &["edits"], given, took }).await;
}

#[tokio::test(start_paused = true)]
async fn case_35_an_unknown_key_is_an_error_where_the_schema_says_so() {
    let mut schema = object(&json!({"v": {"type": "string"}}));
    let given = json!({"v": "x", "w": 1});
    assert_eq!(execute(schema.clone(), given.clone()).await, Ok(given.clone()));
    schema["additionalProperties"] = json!(false);
    let told = execute(schema, given).await.unwrap_err();
    assert_eq!(problems(&told), ["- w: not an allowed field"]);
}

#[tokio::test(start_paused = true)]
async fn case_36_a_single_value_becomes_a_list_of_one() {
    let strings = json!({"a": {"type": "array", "items": {"type": "string"}}});
    check(Expected { properties: strings, required: &[], given: json!({"a": "x"}), took: Ok(json!({"a": ["x"]})) })
        .await;
    let item = json!({"type": "object", "properties": {"k": {"type": "number"}}});
    let objects = json!({"a": {"type": "array", "items": item}});
    let given = json!({"a": {"k": "1"}});
    check(Expected { properties: objects, required: &[], given, took: Ok(json!({"a": [{"k": 1}]})) }).await;
}

#[tokio::test(start_paused = true)]
async fn case_37_json_inside_a_string_is_read() {
    let properties = json!({
        "a": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"k": {"type": "number"}}},
    });
    let given = json!({"a": "[\"x\",\"y\"]", "o": "{\"k\":1}"});
    check(Expected { properties, required: &[], given, took: Ok(json!({"a": ["x", "y"], "o": {"k": 1}})) }).await;
}

#[tokio::test(start_paused = true)]
async fn case_38_defaults_are_not_inserted() {
    let properties = json!({"s": {"type": "string", "default": "q"}});
    check(Expected { properties, required: &[], given: json!({}), took: Ok(json!({})) }).await;
}

#[tokio::test(start_paused = true)]
async fn case_39_a_tool_may_repair_arguments_before_they_are_checked() {
    let repaired = json!({"edits": [{"old": "a", "new": "b"}]});
    let schema = json!({"type": "object", "properties": edits(), "required": ["edits"]});
    let got = Arc::new(Mutex::new(Value::Null));
    let seen = Arc::clone(&got);
    let edit = tool("edit", move |args, _| {
        *seen.lock().unwrap() = args;
        async { pirn::port::ToolOutput::text("done") }
    });
    let edit = edit.schema(schema).prepare(|raw| Ok(json!({"edits": [raw]})));
    let raw = json!({"old": "a", "new": "b"});
    let run = play(edit, raw.clone()).await;
    assert_eq!(*got.lock().unwrap(), repaired);
    let Some(Event::ToolStart { args, effective_args, .. }) =
        run.events.iter().find(|event| matches!(event, Event::ToolStart { .. }))
    else {
        panic!("{}", run.short())
    };
    assert_eq!((Value::Object((**args).clone()), effective_args.as_deref()), (raw, Some(&repaired)));
}

#[tokio::test(start_paused = true)]
async fn case_40_a_failing_repair_is_the_result_of_the_call() {
    let (scene, log) = watched(Scene::new(vec![calls(vec![call("c1", "fix", &json!({"v": "1"}))]), text("d")]));
    let ran = log.clone();
    let fix = tool("fix", move |args, _| {
        ran.add("run");
        async move { echoed(&args) }
    });
    let run = scene.tool(fix.prepare(|_| Err("prep".to_owned()))).prompt("p").await;
    assert_eq!((run.tools(), log.joined()), (r#"ts1 te1 ERR"prep""#.to_owned(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn case_41_arguments_that_are_no_json_never_run() {
    let (scene, log) = watched(Scene::new(vec![calls(vec![malformed("c1", "echo", "{\"v\":\"hel")]), text("d")]));
    let run = scene.prompt("p").await;
    let stored = run.after[1].as_assistant().unwrap().calls().next().unwrap();
    assert!(stored.arguments.is_empty());
    assert_eq!(stored.arguments_error.as_ref().unwrap().raw, "{\"v\":\"hel");
    let told = run.result_text("c1");
    assert!(told.starts_with("Arguments for \"echo\" are not a JSON object: "), "{told}");
    assert!(told.ends_with("\n\n{\"v\":\"hel"), "{told}");
    assert_eq!((log.joined(), run.code("c1"), run.requests.len()), (String::new(), "invalid_args".to_owned(), 2));
}

#[tokio::test(start_paused = true)]
async fn case_42_the_echo_of_long_arguments_is_capped() {
    let properties = json!({"n": {"type": "integer"}});
    let schema = json!({"type": "object", "properties": properties, "required": ["n"]});
    let told = execute(schema, json!({"n": "x".repeat(10_000)})).await.unwrap_err();
    assert!(told.chars().count() < 2_600 && told.contains("more)"), "{} characters", told.chars().count());
}

#[tokio::test(start_paused = true)]
async fn feedback_echoes_what_the_model_wrote_and_not_what_the_tool_repaired() {
    let repairing = echo_tool("echo", 0).prepare(|_| Ok(json!({"v": {"repaired": true}})));
    let script = vec![calls(vec![call("c1", "echo", &json!({"w": "mine"}))]), text("d")];
    let told = Scene::new(script).tool(repairing).prompt("p").await.result_text("c1");
    assert!(told.contains(r#""w": "mine""#) && !told.contains("repaired"), "{told}");
}
