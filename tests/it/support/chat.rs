//! Replies of an OpenAI-compatible Chat server, and the rules such a server holds requests to.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::server::Reply;

/// The model name in every chunk.
const MODEL: &str = "test-model";

/// One chunk with a delta.
pub(crate) fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    })
}

/// The last chunk, with 10 prompt tokens and 5 of output.
pub(crate) fn usage_chunk() -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    })
}

/// The text of an event stream that ends with `[DONE]`.
pub(crate) fn sse_text(chunks: &[Value]) -> String {
    let mut text = String::new();
    for chunk in chunks {
        text.extend(["data: ", &chunk.to_string(), "\n\n"]);
    }
    text.push_str("data: [DONE]\n\n");
    text
}

/// An event stream of these chunks and `[DONE]`.
pub(crate) fn sse(chunks: &[Value]) -> Reply {
    Reply::stream().send(sse_text(chunks))
}

/// The chunks of a reply of text, in two deltas where it has two characters.
pub(crate) fn text_chunks(text: &str) -> Vec<Value> {
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let mut chunks = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
    for part in [&text[..middle], &text[middle..]] {
        if !part.is_empty() {
            chunks.push(chunk(&json!({"content": part}), None));
        }
    }
    chunks.push(chunk(&json!({}), Some("stop")));
    chunks.push(usage_chunk());
    chunks
}

/// A whole answer of text.
pub(crate) fn chat_text(text: &str) -> Reply {
    sse(&text_chunks(text))
}

/// One tool call; its id is `call_N` for the Nth request of the server.
pub(crate) fn chat_tool(name: &str, arguments: Value) -> Reply {
    chat_tools(&[(name, arguments)])
}

/// Several tool calls in one reply, ids `call_N`, `call_N_2`, ….
pub(crate) fn chat_tools(calls: &[(&str, Value)]) -> Reply {
    let calls: Vec<(String, Value)> = calls.iter().map(|(name, args)| ((*name).to_owned(), args.clone())).collect();
    Reply::with(move |request| {
        let mut chunks = vec![chunk(&json!({"role": "assistant", "content": null}), None)];
        for (index, (name, arguments)) in calls.iter().enumerate() {
            let id = match index {
                0 => format!("call_{}", request.ordinal),
                _ => format!("call_{}_{}", request.ordinal, index + 1),
            };
            let start =
                json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
            chunks.push(chunk(&json!({"tool_calls": [start]}), None));
            let rest = json!({"index": index, "function": {"arguments": arguments.to_string()}});
            chunks.push(chunk(&json!({"tool_calls": [rest]}), None));
        }
        chunks.push(chunk(&json!({}), Some("tool_calls")));
        chunks.push(usage_chunk());
        sse(&chunks)
    })
}

/// An error answer in OpenAI's form.
pub(crate) fn chat_error(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(status, &json!({"error": {"message": message, "type": code, "param": null, "code": code}}))
}

/// What a strict Chat server refuses in a request: roles, pairing, argument text, empty messages, tool names.
pub(crate) fn history_violations(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let Some(messages) = body["messages"].as_array().filter(|list| !list.is_empty()) else {
        return vec!["no messages".to_owned()];
    };
    // Ids of the last assistant message that still wait for their result.
    let mut open: Vec<String> = Vec::new();
    let mut spoken = false;
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or("");
        if role != "tool" && !open.is_empty() {
            found.push(format!("message {at} ({role}) stands before the results of {open:?}"));
            open.clear();
        }
        match role {
            "system" | "developer" => {
                if spoken {
                    found.push(format!("message {at}: {role} after the conversation began"));
                }
            }
            "user" => {
                if !has_content(message) {
                    found.push(format!("message {at}: empty user message"));
                }
            }
            "assistant" => open = assistant_calls(at, message, &mut found),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or("");
                match open.iter().position(|waiting| waiting == id) {
                    Some(index) => drop(open.remove(index)),
                    None => found.push(format!("message {at}: a result for `{id}`, which no call waits for")),
                }
                if !has_content(message) {
                    found.push(format!("message {at}: empty tool result"));
                }
            }
            other => found.push(format!("message {at}: unknown role `{other}`")),
        }
        spoken |= !matches!(role, "system" | "developer");
    }
    if !open.is_empty() {
        found.push(format!("no results for {open:?}"));
    }
    tool_violations(body, &mut found);
    found
}

fn has_content(message: &Value) -> bool {
    match &message["content"] {
        Value::String(text) => !text.is_empty(),
        Value::Array(parts) => !parts.is_empty(),
        _ => false,
    }
}

fn assistant_calls(at: usize, message: &Value, found: &mut Vec<String>) -> Vec<String> {
    let mut ids = Vec::new();
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    if calls.is_empty() && !has_content(message) {
        found.push(format!("message {at}: empty assistant message"));
    }
    for call in &calls {
        let id = call["id"].as_str().unwrap_or("").to_owned();
        if id.is_empty() || ids.contains(&id) {
            found.push(format!("message {at}: call id `{id}` is empty or repeated"));
        }
        if call["type"] != "function" || call["function"]["name"].as_str().unwrap_or("").is_empty() {
            found.push(format!("message {at}: call `{id}` is not a named function"));
        }
        let arguments = call["function"]["arguments"].as_str().unwrap_or("");
        if !matches!(serde_json::from_str(arguments), Ok(Value::Object(_))) {
            found.push(format!("message {at}: arguments of `{id}` are not the text of a JSON object: {arguments}"));
        }
        ids.push(id);
    }
    ids
}

fn tool_violations(body: &Value, found: &mut Vec<String>) {
    let mut names = HashSet::new();
    for tool in body["tools"].as_array().into_iter().flatten() {
        let name = tool["function"]["name"].as_str().unwrap_or("");
        if name.is_empty() || !names.insert(name) {
            found.push(format!("tool name `{name}` is empty or repeated"));
        }
        if !tool["function"]["parameters"].is_object() {
            found.push(format!("tool `{name}` has no parameters object"));
        }
    }
}

#[test]
fn the_server_holds_requests_to_the_rules_of_the_protocol() {
    let user = json!({"role": "user", "content": "hi"});
    let call = |arguments: &str| {
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}},
        ]})
    };
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let system = json!({"role": "system", "content": "s"});
    let table: [(Vec<Value>, &str); 10] = [
        (vec![system.clone(), user.clone(), call("{}"), result("c1"), user.clone()], ""),
        (vec![], "no messages"),
        (vec![user.clone(), system], "system after the conversation began"),
        (vec![json!({"role": "user", "content": []})], "empty user message"),
        (vec![user.clone(), json!({"role": "assistant", "content": ""})], "empty assistant message"),
        (vec![user.clone(), call("{}")], "no results for"),
        (vec![user.clone(), call("{}"), user.clone()], "stands before the results"),
        (vec![user.clone(), call("{}"), result("c2")], "which no call waits for"),
        (vec![user.clone(), call("[1"), result("c1")], "not the text of a JSON object"),
        (vec![json!({"role": "robot", "content": "x"})], "unknown role"),
    ];
    for (messages, want) in table {
        let found = history_violations(&json!({"messages": messages}));
        match want {
            "" => assert!(found.is_empty(), "{found:?}"),
            want => assert!(found.iter().any(|text| text.contains(want)), "{want}: {found:?}"),
        }
    }
}
