//! A session that contradicts itself is refused by name; what a newer version left is left alone; what is only advice
//! never stands in the way.

use pirn::harness::{Harness, OpenError, Options};
use pirn::model::session::namespace;
use pirn::model::{EntryId, ErrorKind, Event, Execution, Status, StopReason, Write};
use pirn::testing::{FaultStore, Reply, ScriptedProvider};
use serde_json::{Value, json};

use super::invariants;
use super::retry::err;
use super::world::{Process, World, baseline, calls, echo, say, usage};

const NOWHERE: &str = "01900000-0000-7000-8000-ffffffffffff";

/// Where a session was left.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    /// Behind a run.
    Idle,
    /// Behind the n-th transaction of the baseline.
    Baseline(usize),
    /// In the wait for a second attempt.
    Waiting,
    /// In a sequential batch of two calls: the first one has its place, the second one is planned.
    Batch,
}

/// The session, and the process that left it.
async fn left(left: Left) -> (World, Process) {
    let world = World::new().await;
    let sequential = |options: &mut Options| options.settings.tool_execution = Execution::Sequential;
    let (script, kill) = match left {
        Left::Idle => (baseline(), None),
        Left::Baseline(n) => (baseline(), Some(n)),
        Left::Waiting => (vec![err("503 overloaded")], Some(5)),
        Left::Batch => (vec![calls(vec![echo("c1", "v"), echo("c2", "w")])], Some(8)),
    };
    let process = world.process_with(script, sequential).await;
    if let Some(n) = kill {
        process.faults.kill_after(n);
    }
    process.prompt("go").await;
    (world, process)
}

/// The key of the open operation, or of the last one.
fn operation(world: &World) -> String {
    let lane = register(world, namespace::LANE_STATE, "main");
    lane["currentOperationId"].as_str().or(lane["lastOperationId"].as_str()).unwrap().to_owned()
}

fn register(world: &World, namespace: &str, key: &str) -> Value {
    world.store.value(namespace, key).unwrap().unwrap()
}

/// Sets a register to what a change makes of it.
fn edit(world: &World, namespace: &str, key: &str, change: impl FnOnce(&mut Value)) -> Vec<Write> {
    let mut value = register(world, namespace, key);
    change(&mut value);
    vec![set(namespace, key, value)]
}

fn set(namespace: &str, key: &str, value: Value) -> Write {
    Write::Set { namespace: namespace.to_owned(), key: key.to_owned(), value }
}

fn state(world: &World, change: impl FnOnce(&mut Value)) -> Vec<Write> {
    edit(world, namespace::OP_STATE, &operation(world), change)
}

fn meta(world: &World, change: impl FnOnce(&mut Value)) -> Vec<Write> {
    edit(world, namespace::OP_META, &operation(world), change)
}

fn call(world: &World, at: usize, change: impl FnOnce(&mut Value)) -> Vec<Write> {
    state(world, |state| change(&mut state["batch"]["calls"][at]))
}

/// The reserved id of a call's result.
fn result_id(world: &World, at: usize) -> String {
    world.state()["batch"]["calls"][at]["resultEntryId"].as_str().unwrap().to_owned()
}

fn id_at(world: &World, at: usize) -> String {
    world.path()[at].id.to_string()
}

/// Queues something as `id`, with a content or without.
fn queued(world: &World, ids: &[&str], content: Option<Value>) -> Vec<Write> {
    let items: Vec<Value> = ids.iter().map(|id| json!({"entryId": id, "kind": "steer"})).collect();
    let mut writes = edit(world, namespace::LANE_STATE, "main", |lane| lane["inbox"] = Value::Array(items));
    writes.extend(content.map(|content| set(namespace::PENDING_ENTRY, ids[0], content)));
    writes
}

fn user(text: &str) -> Value {
    json!({"type": "message", "payload": {"role": "user", "content": text, "timestamp": 0}})
}

type Corrupt = fn(&World) -> Vec<Write>;
/// `OP`, `RESULT` and `NOWHERE` stand for ids.
type Row = (Left, &'static str, Corrupt);

const START: Left = Left::Baseline(1);
const CHECKPOINT: Left = Left::Baseline(2);
const READY: Left = Left::Baseline(3);
const PENDING: Left = Left::Baseline(4);
const PLANNED: Left = Left::Baseline(5);
const BEGUN: Left = Left::Baseline(6);
const ENDED: Left = Left::Baseline(7);

fn of_lanes() -> Vec<Row> {
    vec![
        (Left::Idle, "branch.tip/main", |_| vec![set(namespace::BRANCH_TIP, "main", json!(NOWHERE))]),
        (Left::Idle, "branch.tip/main", |_| vec![set(namespace::BRANCH_TIP, "main", json!(7))]),
        (Left::Idle, "branch.tip/main", |_| vec![Write::delete(namespace::BRANCH_TIP, "main")]),
        (Left::Idle, "lane.config/main", |_| vec![Write::delete(namespace::LANE_CONFIG, "main")]),
        (Left::Idle, "lane.config/main", |_| vec![set(namespace::LANE_CONFIG, "main", json!("m1"))]),
        (Left::Idle, "lane.state/main", |_| vec![Write::delete(namespace::LANE_STATE, "main")]),
        (Left::Idle, "lane.state/main", |_| vec![set(namespace::LANE_STATE, "main", json!([]))]),
        (Left::Idle, "pending.entry/NOWHERE", |world| queued(world, &[NOWHERE], None)),
        (Left::Idle, "pending.entry/NOWHERE", |world| queued(world, &[NOWHERE], Some(json!({"type": "message"})))),
        (Left::Idle, "lane.state/main", |world| queued(world, &[NOWHERE, NOWHERE], Some(user("x")))),
        (Left::Idle, "lane.state/main", |world| queued(world, &[&id_at(world, 0)], Some(user("x")))),
        (Left::Idle, "result/OP", |world| vec![Write::delete(namespace::RESULT, &operation(world))]),
        (Left::Idle, "result/OP", |world| vec![set(namespace::RESULT, &operation(world), json!({"status": "done"}))]),
        (Left::Idle, "result/OP", |world| {
            edit(world, namespace::RESULT, &operation(world), |result| result["operationId"] = json!("another"))
        }),
        (Left::Idle, "result/OP", |world| {
            edit(world, namespace::RESULT, &operation(world), |result| result["tipId"] = json!(NOWHERE))
        }),
        (Left::Idle, "result/OP", |world| {
            edit(world, namespace::RESULT, &operation(world), |result| result["finalEntryId"] = json!(NOWHERE))
        }),
        // Two lanes that work on one operation: it names the other one.
        (START, "op.meta/OP", |world| {
            let copy = |namespace: &str| set(namespace, "other", register(world, namespace, "main"));
            vec![copy(namespace::BRANCH_TIP), copy(namespace::LANE_CONFIG), copy(namespace::LANE_STATE)]
        }),
    ]
}

fn of_operations() -> Vec<Row> {
    vec![
        (START, "op.meta/OP", |world| vec![Write::delete(namespace::OP_META, &operation(world))]),
        (START, "op.meta/OP", |world| vec![set(namespace::OP_META, &operation(world), json!({}))]),
        (START, "op.meta/OP", |world| meta(world, |meta| meta["operationId"] = json!("another"))),
        (START, "op.meta/OP", |world| meta(world, |meta| meta["lane"] = json!("other"))),
        (START, "op.meta/OP", |world| meta(world, |meta| meta["intent"]["promptEntryIds"][0] = json!(NOWHERE))),
        (START, "op.meta/OP", |world| meta(world, |meta| meta["sourceTipId"] = json!(NOWHERE))),
        (START, "op.state/OP", |world| vec![Write::delete(namespace::OP_STATE, &operation(world))]),
        (START, "op.state/OP", |world| vec![set(namespace::OP_STATE, &operation(world), json!(null))]),
        (START, "op.state/OP", |world| state(world, |state| state["at"] = json!(3))),
        (START, "op.state/OP", |world| state(world, |state| state["at"] = json!("tools"))),
        (START, "op.state/OP", |world| state(world, |state| state["counters"]["turns"] = json!(-1))),
        (START, "op.state/OP", |world| state(world, |state| state["fallbackIndex"] = json!(1))),
        (START, "op.state/OP", |world| state(world, |state| state["latestAssistantEntryId"] = json!(NOWHERE))),
        (START, "op.state/OP", |world| {
            let prompt = id_at(world, 0);
            state(world, |state| state["latestAssistantEntryId"] = json!(prompt))
        }),
        (START, "result/OP", |world| vec![set(namespace::RESULT, &operation(world), json!({}))]),
        (CHECKPOINT, "op.state/OP", |world| state(world, |state| state["triggerEntryId"] = json!(NOWHERE))),
        (READY, "op.state/OP", |world| {
            state(world, |state| state["generationContext"]["triggerEntryId"] = json!(NOWHERE))
        }),
        (Left::Waiting, "op.state/OP", |world| {
            state(world, |state| state["generationContext"]["triggerEntryId"] = json!(NOWHERE))
        }),
        (PENDING, "op.state/OP", |world| {
            state(world, |state| state["generationContext"]["triggerEntryId"] = json!(NOWHERE))
        }),
        (PENDING, "op.state/OP", |world| {
            let prompt = id_at(world, 0);
            state(world, |state| state["responseEntryId"] = json!(prompt))
        }),
        (PENDING, "op.state/OP", |world| {
            let prompt = id_at(world, 0);
            state(world, |state| state["usageId"] = json!(prompt))
        }),
        (PENDING, "op.state/OP", |world| state(world, |state| state["usageId"] = state["responseEntryId"].clone())),
    ]
}

fn of_calls() -> Vec<Row> {
    vec![
        (PLANNED, "op.state/OP", |world| state(world, |state| state["batch"]["assistantEntryId"] = json!(NOWHERE))),
        (PLANNED, "op.state/OP", |world| {
            let prompt = id_at(world, 0);
            state(world, |state| state["batch"]["assistantEntryId"] = json!(prompt))
        }),
        (PLANNED, "op.state/OP", |world| call(world, 0, |call| call["sourceIndex"] = json!(0))),
        (PLANNED, "op.state/OP", |world| call(world, 0, |call| call["sourceIndex"] = json!(9))),
        (PLANNED, "op.state/OP", |world| state(world, |state| state["batch"]["calls"] = json!([]))),
        (PLANNED, "op.state/OP", |world| call(world, 0, |call| call["status"] = json!("somewhere"))),
        (PLANNED, "op.state/OP", |world| {
            let prompt = id_at(world, 0);
            call(world, 0, |call| call["resultEntryId"] = json!(prompt))
        }),
        (Left::Batch, "op.state/OP", |world| {
            state(world, |state| {
                state["batch"]["calls"].as_array_mut().unwrap().pop();
            })
        }),
        (Left::Batch, "op.state/OP", |world| {
            state(world, |state| state["batch"]["calls"].as_array_mut().unwrap().reverse())
        }),
        (Left::Batch, "op.state/OP", |world| call(world, 1, |call| call["sourceIndex"] = json!(0))),
        (Left::Batch, "op.state/OP", |world| {
            let first = result_id(world, 0);
            call(world, 1, |call| call["resultEntryId"] = json!(first))
        }),
        (Left::Batch, "op.state/OP", |world| call(world, 0, |call| call["status"] = json!("planned"))),
        (Left::Batch, "op.state/OP", |world| call(world, 0, |call| call["resultEntryId"] = json!(NOWHERE))),
        // A result has its place before that of the call before it.
        (Left::Batch, "op.state/OP", |world| {
            let (first, second) = (result_id(world, 0), result_id(world, 1));
            state(world, |state| {
                let calls = &mut state["batch"]["calls"];
                calls[0] = json!({"sourceIndex": 0, "resultEntryId": second, "status": "planned"});
                calls[1] = json!({"sourceIndex": 1, "resultEntryId": first, "status": "completed", "terminate": false});
            })
        }),
        // All have their places, and the batch is still open.
        (Left::Batch, "op.state/OP", |world| {
            let prompt = id_at(world, 0);
            call(world, 1, |call| {
                call["status"] = json!("completed");
                call["terminate"] = json!(false);
                call["resultEntryId"] = json!(prompt);
            })
        }),
        (Left::Batch, "op.state/OP", |world| {
            let reply = id_at(world, 1);
            call(world, 0, |call| call["resultEntryId"] = json!(reply))
        }),
        (BEGUN, "op.tool_args/OP:OP:1:1", |world| {
            let key = world.store.values(namespace::TOOL_ARGS, "").unwrap().remove(0).0;
            vec![Write::delete(namespace::TOOL_ARGS, &key)]
        }),
        (ENDED, "pending.entry/RESULT", |world| vec![Write::delete(namespace::PENDING_ENTRY, &result_id(world, 0))]),
        (ENDED, "pending.entry/RESULT", |world| {
            vec![set(namespace::PENDING_ENTRY, &result_id(world, 0), json!({"type": "custom", "customType": "x"}))]
        }),
        (ENDED, "pending.entry/RESULT", |world| vec![set(namespace::PENDING_ENTRY, &result_id(world, 0), user("x"))]),
        (ENDED, "pending.entry/RESULT", |world| {
            let id = result_id(world, 0);
            edit(world, namespace::PENDING_ENTRY, &id, |entry| entry["payload"]["toolCallId"] = json!("c9"))
        }),
        (ENDED, "pending.entry/RESULT", |world| {
            let id = result_id(world, 0);
            edit(world, namespace::PENDING_ENTRY, &id, |entry| entry["payload"]["toolName"] = json!("boom"))
        }),
    ]
}

/// Opens the session of a world, which must not change by it.
async fn open(world: &World) -> Result<Harness, OpenError> {
    let (faults, provider) = (FaultStore::new(world.store.clone()), ScriptedProvider::new(Vec::new()));
    let opened = Harness::open(world.options(faults.clone(), provider.clone())).await;
    assert_eq!((faults.step_count(), provider.count()), (0, 0), "opening writes nothing and starts nothing");
    opened
}

#[tokio::test(start_paused = true)]
async fn a_session_that_contradicts_itself_is_refused_by_its_address() {
    let mut wrong = Vec::new();
    for (at, (from, address, corrupt)) in of_lanes().into_iter().chain(of_operations()).chain(of_calls()).enumerate() {
        let (world, _process) = left(from).await;
        let result = world.state()["batch"]["calls"][0]["resultEntryId"].as_str().unwrap_or_default().to_owned();
        let address = address.replace("NOWHERE", NOWHERE).replace("RESULT", &result).replace("OP", &operation(&world));
        world.store.commit(corrupt(&world)).await.unwrap();
        let row = format!("row {at}, {from:?}, {address}");
        match open(&world).await {
            Err(OpenError::Corrupt { address: found, .. }) if found == address => {}
            other => wrong.push(format!("{row}: {:?}", other.map(|_| "opened"))),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let error = OpenError::Corrupt { address: String::new(), reason: String::new() };
    assert_eq!((error.code(), error.kind()), ("corrupt_session", ErrorKind::Storage));
}

#[tokio::test(start_paused = true)]
async fn what_a_newer_version_left_is_left_to_it_case_100() {
    let rows: [(&str, Left, Corrupt); 4] = [
        ("summary.deciding", START, |world| state(world, |state| state["at"] = json!("summary.deciding"))),
        ("tools.later", BEGUN, |world| state(world, |state| state["at"] = json!("tools.later"))),
        ("compaction", START, |world| meta(world, |meta| meta["intent"] = json!({"kind": "compaction"}))),
        ("navigation", START, |world| {
            let mut writes = meta(world, |meta| meta["intent"] = json!({"kind": "navigation", "targetId": null}));
            writes.extend(state(world, |state| state["at"] = json!("navigation.ready_to_commit")));
            writes
        }),
    ];
    for (word, from, change) in rows {
        let (world, _process) = left(from).await;
        world.store.commit(change(&world)).await.unwrap();
        let error = open(&world).await.map(|_| ()).expect_err(word);
        assert_eq!((error.code(), error.kind()), ("needs_newer", ErrorKind::Storage), "{word}: {error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_dies_leaves_a_session_that_opens() {
    let mut everything = vec![Left::Idle, Left::Waiting, Left::Batch];
    everything.extend((1..=12).map(Left::Baseline));
    for from in everything {
        let (world, process) = left(from).await;
        let harness = open(&world).await.unwrap_or_else(|error| panic!("{from:?}: {error}"));
        assert_eq!(harness.lanes().len(), 1);
        invariants::check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_this_version_does_not_know_beside_it_is_no_contradiction() {
    let (world, _process) = left(Left::Baseline(5)).await;
    let mut writes = state(&world, |state| {
        state["settings"]["compaction"] = json!({"enabled": true});
        state["batch"]["since"] = json!(5);
    });
    writes.extend(meta(&world, |meta| meta["labels"] = json!(["x"])));
    writes.push(set("x.mine", "a", json!(1)));
    writes.push(set("op.later", "b", json!(2)));
    // A branch that was never used as a lane.
    writes.push(set(namespace::BRANCH_TIP, "aside", json!(id_at(&world, 0))));
    world.store.commit(writes).await.unwrap();
    open(&world).await.unwrap();
    let next = world.process(vec![say("done")]).await;
    assert_eq!(next.go_on().await.result().status, Status::Completed);
    assert_eq!(register(&world, "x.mine", "a"), json!(1));
}

#[tokio::test(start_paused = true)]
async fn bad_frames_never_stand_in_the_way_case_9() {
    let start = || json!({"type": "start", "partial": {"api": "a", "provider": "fake", "model": "m1", "timestamp": 0}});
    let rows: [(&str, Vec<Value>); 7] = [
        ("no list", vec![json!(42)]),
        ("null", vec![Value::Null]),
        ("no frame", vec![json!([{"what": "is this"}])]),
        ("no start", vec![json!([{"type": "text_delta", "contentIndex": 0, "delta": "x"}])]),
        ("two starts", vec![json!([start(), start()])]),
        ("a gap", vec![json!([start(), {"type": "text_start", "contentIndex": 3}])]),
        ("an object", vec![json!({"0": start()})]),
    ];
    for (name, batches) in rows {
        let (world, first) = left(PENDING).await;
        let key = format!("{}:{}", operation(&world), world.state()["responseEntryId"].as_str().unwrap());
        let append = |value| Write::Append { namespace: namespace::FRAMES.to_owned(), key: key.clone(), value };
        world.store.commit(batches.into_iter().map(append).collect()).await.unwrap();
        open(&world).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let next = world.process(baseline()).await;
        assert_eq!(next.go_on().await.result().status, Status::Completed, "{name}");
        assert_eq!(world.tree(), "u a!err a r a", "{name}");
        let warned = next.heard.events().into_iter().any(
            |told| matches!(&told.event, Event::Warning { code, message } if code == "frames" && !message.is_empty()),
        );
        assert!(warned, "{name}: it is told");
        let list = world.store.list(namespace::FRAMES, &key, 0, 10).unwrap();
        assert_eq!(list.values, Vec::<Value>::new(), "{name}: they are gone");
        drop(first);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_result_of_a_truncated_reply_restores_like_any_other() {
    let world = World::new().await;
    let cut = Reply::blocks(vec![echo("c1", "v")]).stop(StopReason::Length).usage(usage());
    let first = world.process(vec![cut]).await;
    first.faults.kill_after(6);
    first.prompt("go").await.killed();
    assert_eq!(world.state()["batch"]["calls"][0]["status"], "outcome_ready");
    let reserved = EntryId::new(result_id(&world, 0));
    let next = world.process(vec![say("done")]).await;
    assert_eq!(next.go_on().await.result().status, Status::Completed);
    assert_eq!(world.path()[2].id, reserved);
    invariants::check(&world, &[&first, &next]);
}
