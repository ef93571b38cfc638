//! A long session: made through the library, then opened and read by a process of its own.

use std::path::Path;
use std::sync::Arc;

use pirn::model::{EntryBody, EntryId, Message, Usage, UsageKind, UsageRow, Write};
use pirn::port::{Ids as _, Store as _, SystemClock, UuidIds};
use pirn::session::jsonl::{self, Durability, Header, Options};
use serde_json::{Map, Value, json};

/// Messages of the session.
pub(crate) const MESSAGES: usize = 10_000;
/// Characters of each of its texts.
const TEXT_CHARS: usize = 1_000;

fn options() -> Options {
    Options { durability: Durability::None, ..Options::new("figures", Arc::new(SystemClock::new())) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Makes the session, one transaction for each message: asked, called, done, answered, and again.
pub(crate) fn make(path: &Path) {
    runtime().block_on(async {
        let ids = UuidIds::new();
        let store = jsonl::create(path, Header::new(ids.next_id(), 1, "/"), options()).await.unwrap();
        let mut parent = None;
        for number in 0..MESSAGES {
            let id = EntryId::new(ids.next_id());
            let body = EntryBody::Message { message: Arc::new(message(number)), terminate: false };
            let mut writes = vec![Write::Entry { id: id.clone(), parent_id: parent.clone(), body }];
            writes.push(Write::Set { namespace: "branch.tip".into(), key: "main".into(), value: json!(id) });
            if number % 2 == 1 {
                writes.push(Write::Usage(row(EntryId::new(ids.next_id()), &id)));
            }
            store.commit(writes).await.unwrap();
            parent = Some(id);
        }
    });
}

fn message(number: usize) -> Message {
    let text = "The quick \"brown\" fox\njumps over the lazy dog. ".repeat(TEXT_CHARS / 47);
    let usage = json!({"input": 9000, "output": 300, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 9300,
        "cost": {"input": 0.01, "output": 0.02, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.03}});
    let reply = |content: Value, stop: &str| {
        json!({"role": "assistant", "content": content, "api": "openai-completions", "provider": "openai",
            "model": "m", "usage": usage, "stopReason": stop, "timestamp": 1, "durationMs": 900})
    };
    let call =
        json!({"type": "toolCall", "id": "call_1", "name": "bash", "arguments": {"command": "ls -la", "timeout": 5}});
    let said = json!({"type": "text", "text": text});
    let value = match number % 4 {
        0 => return Message::user(text, Vec::new(), 1),
        1 => reply(json!([said, call]), "toolUse"),
        2 => json!({"role": "toolResult", "toolCallId": "call_1", "toolName": "bash", "content": [said],
            "details": {"exitCode": 0, "truncated": false}, "isError": false, "durationMs": 12, "timestamp": 1}),
        _ => reply(json!([said]), "stop"),
    };
    serde_json::from_value(value).unwrap()
}

fn row(id: EntryId, entry: &EntryId) -> UsageRow {
    let mut usage = Usage { input: 9000, output: 300, ..Usage::default() };
    usage.sum_total();
    UsageRow {
        id,
        operation_id: None,
        lane: Some("main".into()),
        kind: UsageKind::Request,
        provider: Some("openai".into()),
        model_id: Some("m".into()),
        usage,
        cost: Some(0.03),
        entry_id: Some(entry.clone()),
        details: None,
        extra: Map::new(),
    }
}
