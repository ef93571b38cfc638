//! The numbers of the `result` line (cases ACC-01, ACC-05).

use serde_json::{Value, json};

use super::{Output, Pirn};
use crate::support::chat::{chat_error, chat_text, chat_tool, chunk, sse_text};
use crate::support::server::{Reply, Server};

fn with_usage(usages: &[Value]) -> Reply {
    let text = |text: &str| chunk(&json!({"content": text}), None);
    let mut chunks = vec![text("Hel")];
    for usage in usages {
        let mut chunk = text("l");
        chunk["usage"] = usage.clone();
        chunks.push(chunk);
    }
    chunks.push(chunk(&json!({"content": "lo"}), Some("stop")));
    Reply::stream().send(sse_text(&chunks))
}

fn result_of(server: &Server, args: &[&str]) -> (Output, Value) {
    let args = ["--json=result"].iter().chain(args).chain(&["x"]);
    let output = Pirn::of_server(server, args).once().file("a.txt", "alpha").run();
    let result = output.result();
    (output, result)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

#[test]
fn repeated_cumulative_counts_are_not_summed_acc_01() {
    let count = |n: u64| json!({"prompt_tokens": 20, "completion_tokens": n, "total_tokens": 20 + n});
    let server = Server::start([with_usage(&[count(10), count(50), count(100)])]);
    let (_, result) = result_of(&server, &[]);
    assert_eq!((&result["usage"]["input"], &result["usage"]["output"]), (&20.into(), &100.into()), "{result}");
    assert_eq!(result["usage"]["totalTokens"], 120);
}

#[test]
fn every_kind_of_token_has_its_own_field_acc_05() {
    let usage = json!({
        "prompt_tokens": 1000, "completion_tokens": 30, "total_tokens": 1030,
        "prompt_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 50},
        "completion_tokens_details": {"reasoning_tokens": 20},
    });
    let server = Server::start([with_usage(std::slice::from_ref(&usage))]);
    let (_, result) = result_of(&server, &[]);
    let expected = json!({"input": 50, "output": 30, "cacheRead": 900, "cacheWrite": 50, "reasoning": 20,
        "totalTokens": 1030});
    assert_eq!(result["usage"], expected);
    assert_eq!((&result["requests"], &result["costUsd"]), (&1.into(), &Value::Null));

    let server = Server::start([with_usage(&[usage])]);
    let args = ["--set", "models.m.price={input=1.0,output=2.0,cache_read=0.1,cache_write=1.25}"];
    let (_, result) = result_of(&server, &[&["--set", "models.m.id=openai/test-model"], &args[..]].concat());
    let cost = result["costUsd"].as_f64().unwrap();
    let expected = (50.0 * 1.0 + 30.0 * 2.0 + 900.0 * 0.1 + 50.0 * 1.25) / 1e6;
    assert!((cost - expected).abs() < 1e-12, "{cost} is not {expected}");
    // The messages of the stream carry the same numbers, with the cost by kind.
    let share = &result["usageByModel"]["openai/test-model"];
    assert_eq!(share["costUsd"].as_f64(), Some(cost));
}

fn three_turns() -> Server {
    Server::start([chat_tool("ls", json!({})), chat_tool("read", json!({"path": "a.txt"})), chat_text("The answer.")])
}

#[test]
fn a_run_of_three_turns_is_counted_as_a_whole() {
    let server = three_turns();
    let (output, result) = result_of(&server, &[]);
    assert_eq!((output.code(), &result["text"]), (0, &"The answer.".into()), "{}", output.stderr);
    for (key, expected) in [
        ("turns", json!(3)),
        ("requests", json!(3)),
        ("toolCalls", json!(2)),
        ("usage", json!({"input": 30, "output": 15, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 45})),
        ("costUsd", Value::Null),
        ("usageByModel", json!({"openai/test-model": {"input": 30, "output": 15, "costUsd": null}})),
        ("model", json!({"provider": "openai", "id": "test-model"})),
        ("stopReason", json!("stop")),
        ("reason", json!("completed")),
        ("error", Value::Null),
        ("denials", json!([])),
        ("structured", Value::Null),
        ("resumable", json!(true)),
        ("pendingFollowUps", json!(0)),
    ] {
        assert_eq!(result[key], expected, "{key}");
    }
    let [first, api, whole] = ["firstTokenMs", "apiDurationMs", "durationMs"].map(|key| number(&result[key]));
    assert!(first <= whole && api <= whole, "{first} and {api} within {whole}");
    assert!(!result["sessionId"].as_str().unwrap().is_empty());
}

#[test]
fn the_result_line_has_every_documented_field_in_order() {
    let documented = [
        "type",
        "seq",
        "ts",
        "ok",
        "exitCode",
        "stopReason",
        "reason",
        "text",
        "structured",
        "error",
        "sessionId",
        "sessionFile",
        "leafId",
        "resumable",
        "model",
        "turns",
        "requests",
        "toolCalls",
        "denials",
        "usage",
        "costUsd",
        "usageByModel",
        "durationMs",
        "apiDurationMs",
        "firstTokenMs",
        "pendingFollowUps",
    ];
    let server = Server::start([chat_text("ok")]);
    for result in [result_of(&server, &[]).1, Pirn::new(["--json", "--no-such-flag"]).run().result()] {
        let keys: Vec<&str> = result.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, documented, "the table in `print::jsonl`");
    }
}

#[test]
fn stated_prices_make_a_cost_and_unknown_ones_make_none() {
    let cost = |args: &[&str]| {
        let server = three_turns();
        let (output, result) = result_of(&server, args);
        assert_eq!(output.code(), 0, "{}", output.stderr);
        assert_eq!(result["costUsd"], result["usageByModel"][model_of(&result)]["costUsd"], "{result}");
        result["costUsd"].as_f64()
    };
    // 30 tokens in, 15 out.
    let near = |cost: Option<f64>, expected: f64| (cost.unwrap() - expected).abs() < 1e-12;
    assert_eq!(cost(&[]), None, "no price is known");
    let alias = ["-m", "fast", "--set", "models.fast.id=openai/test-model"];
    assert_eq!(cost(&alias), None);
    let table = ["--set", "models.fast.price={input=2.0,output=10.0}"];
    assert!(near(cost(&[&alias[..], &table].concat()), 0.00021));
    let keys = ["--set", "models.fast.price.input=2", "--set", "models.fast.price.output=10"];
    assert!(near(cost(&[&alias[..], &keys].concat()), 0.00021));
    // The alias describes an unlisted model, so its facts hold when the model is named in full.
    assert!(near(cost(&[&alias[2..], &table].concat()), 0.00021));
    let free = ["--set", "models.fast.price={input=0.0,output=0.0}"];
    assert_eq!(cost(&[&alias[..], &free].concat()), Some(0.0), "free is not unknown");
    assert!(cost(&["-m", "openai/gpt-6.2-sol"]).unwrap() > 0.0, "a listed model has its prices");
}

fn model_of(result: &Value) -> String {
    let part = |key: &str| result["model"][key].as_str().unwrap().to_owned();
    format!("{}/{}", part("provider"), part("id"))
}

#[test]
fn what_nobody_counted_is_estimated_and_says_so() {
    let server = Server::start([with_usage(&[])]);
    let (_, result) = result_of(&server, &[]);
    assert_eq!(result["usage"]["estimated"], true, "{result}");
    assert_eq!(result["usage"]["output"], 2, "four characters make a token (OC-17)");
    let chars = |value: &Value| u64::try_from(value.as_str().unwrap().chars().count()).unwrap();
    let body = &server.bodies()[0];
    let texts: u64 = body["messages"].as_array().unwrap().iter().map(|message| chars(&message["content"])).sum();
    assert!(number(&result["usage"]["input"]) > texts / 4, "the tools count too: {result}");
}

#[test]
fn a_failed_run_keeps_the_numbers_of_what_it_did() {
    let server = Server::start([chat_tool("ls", json!({})), chat_error(500, "server_error", "boom")]);
    let (output, result) = result_of(&server, &[]);
    assert_eq!((output.code(), &result["reason"]), (75, &"unavailable".into()), "{}", output.stderr);
    let counts = ["turns", "requests", "toolCalls"].map(|key| number(&result[key]));
    assert_eq!(counts, [2, 2, 1], "{result}");
    assert_eq!((&result["usage"]["input"], &result["usage"]["output"]), (&10.into(), &5.into()), "{result}");
    assert_eq!(result["error"]["httpStatus"], 500);
}

#[test]
fn the_first_token_is_timed_from_the_request_whatever_it_belongs_to() {
    let thinking = chunk(&json!({"reasoning_content": "hm"}), None);
    let server =
        Server::start([Reply::stream().send(sse_text(&[thinking, chunk(&json!({"content": "hi"}), Some("stop"))]))]);
    let (_, result) = result_of(&server, &[]);
    assert!(result["firstTokenMs"].is_u64(), "{result}");
    let server = Server::start([chat_error(400, "bad", "no")]);
    let (_, result) = result_of(&server, &[]);
    assert_eq!(result["firstTokenMs"], Value::Null, "there was none");
}
