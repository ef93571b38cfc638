//! `config/schemas/session.schema.json` against what the store writes.

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use pirn::model::{EntryBody, Write};
use pirn::port::Store as _;
use pirn::session::jsonl::Closed;
use serde_json::{Value, json};

use super::{Place, append, delete_list, entry, message, options, said, set, usage_row};

static SCHEMA: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
    const NAME: &str = "session.schema.json";
    let text = include_str!("../../../config/schemas/session.schema.json");
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource(NAME, serde_json::from_str(text).unwrap()).unwrap();
    let index = compiler.compile(NAME, &mut schemas).unwrap_or_else(|error| panic!("{error:#}"));
    (schemas, index)
});

pub(crate) fn fits(line: &Value) -> Result<(), String> {
    let (schemas, index) = &*SCHEMA;
    schemas.validate(line, *index).map_err(|error| format!("{line}\n{error:#}"))
}

/// The lines of a file, each of which fits.
fn checked(place: &Place) -> Vec<Value> {
    let text = String::from_utf8(place.bytes()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        fits(line).unwrap();
    }
    lines
}

#[tokio::test]
async fn every_line_of_a_file_fits_the_schema_and_one_of_each_kind_was_written() {
    let place = Place::new();
    let store = place.create(options()).await;
    let other = json!({"type": "compaction", "summary": "s", "retainedTail": []}).as_object().unwrap().clone();
    let result = json!({"role": "toolResult", "toolCallId": "c", "toolName": "t", "content": [], "isError": false, "timestamp": 1});
    let result = EntryBody::Message { message: serde_json::from_value(result).unwrap(), terminate: true };
    store
        .commit(vec![
            message("a", None),
            entry("b", Some("a"), EntryBody::Custom { custom_type: "note".into(), data: Some(Value::Null) }),
            entry("c", Some("b"), EntryBody::Custom { custom_type: "note".into(), data: None }),
            entry("d", Some("c"), EntryBody::Other(other)),
            entry("e", Some("d"), result),
            usage_row("u", 3, 0.25),
        ])
        .await
        .unwrap();
    store
        .commit(vec![
            set("x.a", "k", Value::Null),
            Write::delete("x.a", "k"),
            append("x.a", "k", json!([1])),
            delete_list("x.a", "k"),
        ])
        .await
        .unwrap();
    store.commit(vec![set("x.a", "dead", json!("d".repeat(400_000))), Write::delete("x.a", "dead")]).await.unwrap();
    let lines = checked(&place);
    let kinds: Vec<String> =
        lines.iter().flat_map(|line| line["w"].as_array().into_iter().flatten()).map(kind).collect();
    for wanted in ["entry", "usage", "value set", "value delete", "list append", "list delete"] {
        assert!(kinds.iter().any(|kind| kind == wanted), "{wanted} is not among {kinds:?}");
    }
    assert_eq!(store.close().await.unwrap(), Closed::Rewritten);
    assert!(checked(&place)[0]["nextSeq"].is_u64());
}

fn kind(write: &Value) -> String {
    let op = write["op"].as_str().map(|op| format!(" {op}")).unwrap_or_default();
    format!("{}{op}", write["kind"].as_str().unwrap())
}

#[tokio::test]
async fn the_schema_refuses_what_the_store_refuses() {
    let place = Place::new();
    let store = place.create(options()).await;
    store.commit(vec![entry("a", None, said("x")), set("x.a", "k", json!(1)), usage_row("u", 1, 0.0)]).await.unwrap();
    let lines = checked(&place);
    let changes: [(usize, &str, Option<Value>); 14] = [
        (0, "/kind", Some(json!("other"))),
        (0, "/format", Some(json!(2))),
        (0, "/cwd", None),
        (1, "/at", Some(json!(-1))),
        (1, "/c", Some(json!("ABCDEF01"))),
        (1, "/c", None),
        (1, "/w/0/seq", Some(json!(0))),
        (1, "/w/0/id", Some(json!(""))),
        (1, "/w/0/message", None),
        (1, "/w/0/message/role", None),
        (1, "/w/0/kind", Some(json!("blob"))),
        (1, "/w/1/value", None),
        (1, "/w/1/op", Some(json!("append"))),
        (1, "/w/2/row/usage", None),
    ];
    for (line, pointer, value) in changes {
        let mut changed = lines[line].clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = changed.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        assert!(parent.contains_key(name), "{pointer}");
        match value {
            Some(value) => drop(parent.insert(name.to_owned(), value)),
            None => drop(parent.shift_remove(name)),
        }
        assert!(fits(&changed).is_err(), "{pointer} may not be so");
    }
}
