//! `config/schemas/events.schema.json` against what the binary writes: every line of every stream that a test checks
//! fits it, and it says no less than the grammar.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use pirn::model::ErrorKind;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Pirn, Place, grammar};
use crate::support::chat::{chat_error, chat_text, chat_tool, chat_tools, chunk, sse, text_chunks};
use crate::support::server::{Reply, Server};

const TEXT: &str = include_str!("../../../config/schemas/events.schema.json");
/// Lines of one stream that are held against the schema; the others differ in nothing but a delta.
const LINES_MAX: usize = 200;

static SCHEMA: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
    const NAME: &str = "events.schema.json";
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource(NAME, document()).unwrap();
    // Compiling also holds the schema against that of its draft.
    let index = compiler.compile(NAME, &mut schemas).unwrap_or_else(|error| panic!("{error:#}"));
    (schemas, index)
});

fn document() -> Value {
    serde_json::from_str(TEXT).unwrap()
}

fn fits(line: &Value) -> Result<(), String> {
    let (schemas, index) = &*SCHEMA;
    schemas.validate(line, *index).map_err(|error| format!("{error:#}"))
}

/// Holds a stream against the schema.
pub(crate) fn check(lines: &[Value]) {
    for line in lines.iter().take(LINES_MAX).chain(lines.last()) {
        if let Err(error) = fits(line) {
            panic!("{line}\ndoes not fit events.schema.json:\n{error}");
        }
    }
}

/// One line of each type a run wrote, so that what a test meant to show was shown.
fn kinds(lines: &[Value]) -> BTreeSet<&str> {
    lines.iter().map(|line| line["type"].as_str().unwrap()).collect()
}

#[test]
fn streams_of_the_demo_model_fit_the_schema() {
    for prompt in
        ["say hello", "call ls {}", "call nope {}", "look around", "stop length", "fail refusal", "fail timeout"]
    {
        for level in ["--json", "--json=messages", "--json=result"] {
            let lines = Pirn::demo([level, prompt]).soon().file("a.txt", "a").run().lines();
            check(&lines);
        }
    }
}

#[test]
fn streams_of_a_server_fit_the_schema() {
    let thinking = [
        chunk(&json!({"reasoning_content": "hm"}), None),
        chunk(&json!({"content": "so"}), None),
        chunk(&json!({}), Some("a_new_reason")),
    ];
    let stray = [
        chunk(
            &json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{\"path\""}}]}),
            None,
        ),
        chunk(&json!({}), Some("tool_calls")),
    ];
    let broken = || Reply::stream().event(&text_chunks("half")[1]).close();
    let runs: [(&str, Vec<Reply>); 8] = [
        (
            "calls",
            vec![chat_tools(&[("read", json!({"file": "a.txt", "limit": "1"})), ("ls", json!({}))]), chat_text("done")],
        ),
        (
            "calls that never run",
            vec![chat_tool("ls", json!({"x": 1})), chat_tool("none", json!({})), chat_text("done")],
        ),
        ("arguments that are none", vec![sse(&stray), chat_text("done")]),
        ("thinking, and a reason nobody knows", vec![sse(&thinking)]),
        (
            "a refusal of the server",
            vec![chat_error(429, "rate_limit_exceeded", "slow down").header("retry-after", "700")],
        ),
        (
            "a prompt that is too long",
            vec![chat_error(400, "context_length_exceeded", "maximum context length is 10 tokens")],
        ),
        ("a reply that breaks off once", vec![broken(), chat_text("done")]),
        ("a reply that breaks off every time", vec![broken(), broken(), broken(), broken()]),
    ];
    let mut seen = BTreeSet::new();
    for (name, replies) in runs {
        let server = Server::start(replies);
        let lines = Pirn::of_server(&server, ["--json", "go"]).soon().file("a.txt", "alpha\nbeta\n").run().lines();
        check(&lines);
        server.assert_clean();
        assert_eq!(lines[0]["type"], "session", "{name}");
        seen.extend(kinds(&lines).into_iter().map(str::to_owned));
    }
    let missing: Vec<_> = grammar::FIELDS.iter().map(|(name, _)| *name).filter(|name| !seen.contains(*name)).collect();
    // No tool reports progress here, nothing is confined, no model takes over and nothing was left by a dead process.
    let rare = "tool_execution_update permission_denied model_fallback recovery queue_update";
    assert_eq!(missing, rare.split(' ').collect::<Vec<_>>());
}

#[test]
fn streams_that_end_early_fit_the_schema() {
    check(&Pirn::new(["--json", "--no-such-flag", "x"]).run().lines());
    check(&Pirn::new(["--json", "-m", "openai/gpt-5", "x"]).run().lines());
    let server = Server::start([Reply::stream().event(&text_chunks("half")[1]).hold()]);
    let running = Pirn::of_server(&server, ["--json", "x"]).spawn();
    running.wait_stdout("text_delta");
    running.signal(Signal::TERM);
    let output = running.wait();
    check(&output.lines());
    assert_eq!(output.result()["stopReason"], "aborted");
    let server = Server::start([Reply::stream().hold()]);
    check(&Pirn::of_server(&server, ["--json", "--timeout", "200ms", "x"]).run().lines());
}

#[test]
fn streams_of_sessions_fit_the_schema_and_say_what_is_kept() {
    let place = Place::new();
    let run = |args: &[&str]| {
        let stdout = Pirn::demo(args).at(&place).run().stdout;
        let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        check(&lines);
        (lines[0].clone(), lines.last().unwrap().clone(), lines)
    };
    let ids = |lines: &[Value]| -> Vec<Value> {
        lines.iter().filter(|line| line["type"] == "message_end").map(|line| line["entryId"].clone()).collect()
    };

    let (session, result, lines) = run(&["--json", "-s", "job", "call ls {}"]);
    let file = place.sessions().pop().unwrap();
    assert_eq!((&session["name"], &session["file"]), (&json!("job"), &json!(file.to_str().unwrap())));
    assert_eq!(
        (&session["resumed"], &session["recovered"], &session["leafId"]),
        (&json!(false), &json!(false), &Value::Null)
    );
    assert_eq!((&result["sessionId"], &result["sessionFile"]), (&session["id"], &session["file"]));
    let stored = std::fs::read_to_string(&file).unwrap();
    let kept = ids(&lines);
    assert_eq!(kept.len(), 4, "prompt, call, result, answer");
    assert!(kept.iter().all(|id| stored.contains(&format!("\"id\":{id},"))), "each is the id of an entry");
    assert_eq!((&result["leafId"], &result["resumable"]), (kept.last().unwrap(), &json!(true)));

    let (again, told, lines) = run(&["--json", "-c"]);
    assert_eq!((&again["id"], &again["resumed"], &again["leafId"]), (&session["id"], &json!(true), &result["leafId"]));
    assert_eq!((&told["text"], &told["leafId"], &told["turns"]), (&result["text"], &result["leafId"], &json!(0)));
    assert!(lines.iter().all(|line| line["type"] != "agent_start"), "nothing ran");

    let (unkept, result, lines) = run(&["--json", "--no-session", "say x"]);
    assert_eq!((&unkept["file"], &result["sessionFile"]), (&Value::Null, &Value::Null));
    assert_eq!((&result["resumable"], &result["leafId"]), (&json!(false), ids(&lines).last().unwrap()));
    assert_eq!(place.sessions().len(), 1);
}

#[test]
fn the_schema_names_the_fields_of_the_grammar_and_the_lines_of_later_versions_fit_it() {
    let document = document();
    let mut listed: Vec<String> = Vec::new();
    for (name, fields) in grammar::FIELDS {
        let line = &document["$defs"][*name];
        let names = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
        let properties: Vec<&str> = line["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let all = ["type", "seq", "ts"].into_iter().chain(fields.split_whitespace());
        let wanted: Vec<&str> = all.clone().map(|field| field.trim_end_matches('?')).collect();
        assert_eq!(properties, wanted, "{name}");
        assert_eq!(names(&line["required"]), all.filter(|field| !field.ends_with('?')).collect::<Vec<_>>(), "{name}");
        listed.push(format!("#/$defs/{name}"));
    }
    listed.push("#/$defs/otherLine".to_owned());
    let alternatives = document["oneOf"].as_array().unwrap().iter().map(|way| way["$ref"].as_str().unwrap());
    assert!(alternatives.eq(&listed), "one alternative a line");
    for later in [
        json!({"type": "hook", "seq": 3, "ts": 5, "name": "x"}),
        json!({"type": "turn_start", "seq": 0, "ts": 0, "turn": 1, "later": []}),
        json!({"type": "message_end", "seq": 0, "ts": 0, "message": {"role": "note", "x": 1}, "entryId": null}),
    ] {
        assert_eq!(fits(&later), Ok(()), "{later}");
    }
}

#[test]
fn the_closed_lists_of_the_schema_are_those_of_the_code() {
    let kinds: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(document()["$defs"]["errorKind"]["enum"], json!(kinds));
}

#[test]
fn what_no_reader_could_use_does_not_fit_the_schema() {
    let lines = Pirn::demo(["--json", "call ls {}"]).run().lines();
    let of = |kind: &str| lines.iter().find(|line| line["type"] == kind).unwrap().clone();
    let broken: [(&str, &str, Value); 9] = [
        ("session", "/version", json!(2)),
        ("session", "/limits", json!({})),
        ("message_start", "/message/role", json!(null)),
        ("message_update", "/assistantMessageEvent/contentIndex", json!(-1)),
        ("message_update", "/assistantMessageEvent/type", json!("text")),
        ("tool_execution_start", "/args", json!("{}")),
        ("turn_end", "/toolResults/0", json!({"role": "user", "content": [], "timestamp": 0})),
        ("result", "/ok", json!(false)),
        ("result", "/reason", json!("fine")),
    ];
    for (kind, pointer, value) in broken {
        let mut line = of(kind);
        *line.pointer_mut(pointer).unwrap() = value;
        assert!(fits(&line).is_err(), "{kind} {pointer}");
    }
    for (kind, key) in [("result", "costUsd"), ("agent_end", "messages"), ("turn_start", "seq")] {
        let mut line = of(kind);
        line.as_object_mut().unwrap().shift_remove(key).unwrap();
        assert!(fits(&line).is_err(), "{kind} without {key}");
    }
}
