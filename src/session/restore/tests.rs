use std::sync::Arc;

use serde_json::{Value, json};

use super::{MainLane, RestoreError, path_messages};
use crate::model::session::namespace;
use crate::model::{EntryBody, EntryId, ErrorKind, ErrorRecord, Message, RunId, Write};
use crate::port::{Store, SystemClock};
use crate::session::{MemoryStore, memory};

fn entry(id: &str, parent: Option<&str>) -> Write {
    let message = Arc::new(Message::user(id, Vec::new(), 1));
    let body = EntryBody::Message { message, terminate: false };
    Write::Entry { id: EntryId::new(id), parent_id: parent.map(EntryId::new), body }
}

fn set(namespace: &str, key: &str, value: Value) -> Write {
    Write::Set { namespace: namespace.to_owned(), key: key.to_owned(), value }
}

fn config() -> Value {
    json!({"model": {"provider": "p", "modelId": "m"}, "thinkingLevel": null, "activeToolNames": ["read"]})
}

fn result(operation: &str, tip: &str) -> Value {
    json!({"operationId": operation, "kind": "run", "status": "completed", "reason": "completed", "stopReason": "stop",
        "fromTipId": null, "tipId": tip, "startedAt": 1, "endedAt": 2, "finalEntryId": tip})
}

/// Two entries, and a lane whose last operation ended at the second.
fn good() -> Vec<Write> {
    vec![
        entry("e1", None),
        entry("e2", Some("e1")),
        set(namespace::BRANCH_TIP, "main", json!("e2")),
        set(namespace::LANE_CONFIG, "main", config()),
        set(namespace::LANE_STATE, "main", json!({"currentOperationId": null, "lastOperationId": "r1", "inbox": []})),
        set(namespace::RESULT, "r1", result("r1", "e2")),
    ]
}

async fn store(writes: Vec<Write>) -> MemoryStore {
    let store = memory(Arc::new(SystemClock::new()));
    store.commit(writes).await.unwrap();
    store
}

#[tokio::test]
async fn the_main_lane_is_read_with_how_its_last_operation_ended() {
    let store = store(good()).await;
    let lane = MainLane::read(&store).unwrap();
    assert_eq!(lane.tip, Some(EntryId::new("e2")));
    assert_eq!(lane.config.unwrap().model.model_id, "m");
    assert_eq!(lane.state.last_operation_id, Some(RunId::new("r1")));
    assert_eq!(lane.last_result.unwrap().final_entry_id, Some(EntryId::new("e2")));
}

#[tokio::test]
async fn a_session_without_a_turn_is_an_empty_one() {
    let nothing = MainLane::read(&memory(Arc::new(SystemClock::new()))).unwrap();
    assert_eq!(nothing, MainLane::default(), "SES-13");
    let started = vec![
        set(namespace::BRANCH_TIP, "main", Value::Null),
        set(namespace::LANE_CONFIG, "main", config()),
        set(namespace::LANE_STATE, "main", json!({"currentOperationId": null, "lastOperationId": null})),
    ];
    let started = MainLane::read(&store(started).await).unwrap();
    assert_eq!((started.tip, started.last_result), (None, None));
    let branch = vec![entry("e1", None), set(namespace::BRANCH_TIP, "main", json!("e1"))];
    assert!(MainLane::read(&store(branch).await).unwrap().config.is_none(), "a tip alone is a branch nobody worked on");
}

#[tokio::test]
async fn what_contradicts_itself_is_refused_with_its_address() {
    let state = |value: Value| set(namespace::LANE_STATE, "main", value);
    let cases: Vec<(Vec<Write>, &str)> = vec![
        (vec![set(namespace::BRANCH_TIP, "main", json!("e9"))], "branch.tip/main: there is no entry e9"),
        (vec![set(namespace::BRANCH_TIP, "main", json!(7))], "branch.tip/main: it is no entry id"),
        (vec![Write::delete(namespace::BRANCH_TIP, "main")], "branch.tip/main: it has no tip"),
        (vec![Write::delete(namespace::LANE_CONFIG, "main")], "lane.config/main: it has a state"),
        (vec![Write::delete(namespace::LANE_STATE, "main")], "lane.state/main: it has a configuration"),
        (vec![set(namespace::LANE_CONFIG, "main", json!({"model": 1}))], "lane.config/main: "),
        (vec![state(json!([]))], "lane.state/main: "),
        (vec![Write::delete(namespace::RESULT, "r1")], "result/r1: the result of the last operation is missing"),
        (vec![set(namespace::RESULT, "r1", result("r2", "e2"))], "result/r1: it is the result of r2"),
        (vec![set(namespace::RESULT, "r1", result("r1", "e9"))], "result/r1: there is no entry e9"),
        (vec![set(namespace::RESULT, "r1", json!({}))], "result/r1: missing field"),
        (
            vec![state(
                json!({"currentOperationId": null, "lastOperationId": null, "inbox": [{"entryId": "q1", "kind": "steer"}]}),
            )],
            "pending.entry/q1: a message that waits is missing",
        ),
        (
            vec![
                state(json!({"currentOperationId": "r3", "lastOperationId": "r1"})),
                set(namespace::LANE_STATE, "zweite", json!({"currentOperationId": "r3", "lastOperationId": null})),
            ],
            "lane.state/zweite: another lane works on operation r3",
        ),
    ];
    for (writes, expected) in cases {
        let store = store([good(), writes].concat()).await;
        let error = MainLane::read(&store).unwrap_err();
        assert!(matches!(error, RestoreError::Corrupt { .. }));
        let record = ErrorRecord::from(error);
        assert!(record.message.contains(&format!("contradicts itself at {expected}")), "{}", record.message);
        assert_eq!((record.kind, record.code.as_deref()), (ErrorKind::Storage, Some("corrupt_session")));
    }
}

#[tokio::test]
async fn the_conversation_is_the_path_to_the_root_oldest_first() {
    let more = vec![
        Write::Entry {
            id: EntryId::new("x"),
            parent_id: Some(EntryId::new("e2")),
            body: EntryBody::Custom { custom_type: "a".into(), data: None },
        },
        entry("e3", Some("x")),
        entry("side", Some("e1")),
    ];
    let store = store([good(), more].concat()).await;
    let ids = |tip: Option<&str>| {
        let tip = tip.map(EntryId::new);
        let found = path_messages(&store, tip.as_ref()).unwrap();
        found.into_iter().map(|(id, _)| id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(Some("e3")), ["e1", "e2", "e3"]);
    assert_eq!(ids(Some("side")), ["e1", "side"]);
    assert_eq!(ids(None), Vec::<String>::new());
    assert!(path_messages(&store, Some(&EntryId::new("e9"))).is_err());
}
