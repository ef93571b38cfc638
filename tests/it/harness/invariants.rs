//! What holds of every session (I1 to I9 and I13 to I16), looked for in what its processes stored and told.
//!
//! [`check`] replays every transaction of a world's processes and looks at each border between two of them; then at
//! each event, with what was stored and synced when it was told. I10 is [`context`] of two worlds, I11 and I12 are in
//! `storage.rs` and the tests of the stores.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use pirn::harness::{Harness, Lane, Listener, Options, Snapshot, Subscription, reduce};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantBlock, AssistantMessage, Entry, EntryBody, EntryId, ErrorKind, ErrorRecord, Event, Execution, LaneEvent,
    Message, StopReason, Usage, UsageRow, Write,
};
use pirn::port::EntryScan;
use pirn::testing::{FaultStore, Reply, ScriptedProvider, Step};
use serde_json::Value;

use super::world::{Process, World, baseline, calls, echo, say, usage};

/// Tools of the fixture that may not run twice.
const NEVER: [&str; 2] = ["boom", "slow"];
/// Sums of costs are compared within this many USD.
const CENT: f64 = 1e-9;

/// An event, what the session looked like when it was told, and how much had been done.
#[derive(Debug)]
struct Told {
    event: LaneEvent,
    fresh: Snapshot,
    steps: usize,
}

/// What a process looked like at every event. It hears as long as it lives.
#[derive(Debug)]
pub(super) struct Mirror {
    base: Snapshot,
    told: Arc<Mutex<Vec<Told>>>,
    _hears: Subscription,
}

struct Looker {
    lane: Lane,
    faults: Arc<FaultStore>,
    told: Arc<Mutex<Vec<Told>>>,
}

#[async_trait]
impl Listener for Looker {
    async fn on_event(&self, event: &LaneEvent) {
        let told = Told { event: event.clone(), fresh: self.lane.snapshot(), steps: self.faults.step_count() };
        self.told.lock().unwrap().push(told);
    }
}

impl Mirror {
    pub(super) fn of(harness: &Harness, faults: &Arc<FaultStore>) -> Self {
        let lane = harness.lane("main").unwrap();
        let (base, told) = (lane.snapshot(), Arc::default());
        let looker = Looker { lane, faults: Arc::clone(faults), told: Arc::clone(&told) };
        Self { base, told, _hears: harness.subscribe(Arc::new(looker)) }
    }
}

/// Checks a world; `processes` are all that ran on it, in their order.
pub(super) fn check(world: &World, processes: &[&Process]) {
    let mut replay = Replay::default();
    for process in processes {
        for step in process.faults.steps() {
            if let Step::Commit { writes, .. } = step {
                replay.commit(&writes);
            }
        }
    }
    replay.compare(world);
    results_follow_their_calls(world, &replay);
    ledger_gives_the_sums(world);
    effects_happen_once(world);
    for process in processes {
        snapshots_are_reduced(process);
        claims_are_stored_and_synced(process);
        effects_have_intents(world, process);
    }
}

/// What a model would see at the end, but for what was interrupted (I10): failed replies are not part of it.
pub(super) fn context(world: &World) -> Vec<String> {
    let of = |entry: &Entry| {
        let EntryBody::Message { message, .. } = &entry.body else { return None };
        match &**message {
            Message::Assistant(reply) if reply.stop_reason.is_failure() => None,
            Message::Assistant(reply) => {
                let calls: Vec<String> =
                    reply.calls().map(|call| format!("{}{:?}", call.name, call.arguments)).collect();
                Some(format!("assistant {:?} {calls:?} {:?}", reply.text(), reply.stop_reason))
            }
            Message::ToolResult(result) => {
                Some(format!("result {} {:?} {}", result.tool_call_id, result.content, result.is_error))
            }
            Message::User(user) => Some(format!("user {}", user.content.text())),
            Message::Custom(custom) => Some(format!("custom {custom:?}")),
        }
    };
    world.path().iter().filter_map(of).collect()
}

/// Registers, entries and rows, as the transactions so far make them.
#[derive(Default)]
struct Replay {
    entries: HashMap<EntryId, (Option<EntryId>, EntryBody)>,
    rows: Vec<UsageRow>,
    registers: BTreeMap<(String, String), Value>,
    lists: BTreeSet<(String, String)>,
    ended: HashSet<String>,
}

impl Replay {
    fn value(&self, namespace: &str, key: &str) -> Option<&Value> {
        self.registers.get(&(namespace.to_owned(), key.to_owned()))
    }

    fn all<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.registers.iter().filter(move |((found, _), _)| found == namespace).map(|((_, key), value)| (&**key, value))
    }

    fn commit(&mut self, writes: &[Write]) {
        let before: BTreeMap<String, Value> =
            self.all(namespace::OP_STATE).map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let accepts =
            writes.iter().any(|write| matches!(write, Write::Set { namespace, .. } if namespace == "op.meta"));
        for write in writes {
            match write {
                Write::Entry { id, parent_id, body } => {
                    if let Some(parent) = parent_id {
                        assert!(self.entries.contains_key(parent), "I1: {id} has no parent {parent}");
                    }
                    if let Some(reply) = reply_of(body) {
                        replies_were_asked_for(id, reply, &before, accepts);
                    }
                    let earlier = self.entries.insert(id.clone(), (parent_id.clone(), body.clone()));
                    assert!(earlier.is_none(), "I1: {id} is written twice");
                }
                Write::Usage(row) => self.rows.push(row.clone()),
                Write::Set { namespace, key, value } => {
                    if namespace == namespace::RESULT {
                        assert!(self.ended.insert(key.clone()), "I3: operation {key} ends twice");
                    }
                    self.registers.insert((namespace.clone(), key.clone()), value.clone());
                }
                Write::Delete { namespace, key } => {
                    self.registers.remove(&(namespace.clone(), key.clone()));
                }
                Write::Append { namespace, key, .. } => {
                    self.lists.insert((namespace.clone(), key.clone()));
                }
                Write::DeleteList { namespace, key } => {
                    self.lists.remove(&(namespace.clone(), key.clone()));
                }
            }
        }
        self.border(&before, writes);
    }

    /// What holds between any two transactions.
    fn border(&self, before: &BTreeMap<String, Value>, writes: &[Write]) {
        let open: BTreeSet<&str> =
            self.all(namespace::LANE_STATE).filter_map(|(_, lane)| lane["currentOperationId"].as_str()).collect();
        for namespace in [namespace::OP_META, namespace::OP_STATE] {
            let found: BTreeSet<&str> = self.all(namespace).map(|(key, _)| key).collect();
            assert_eq!(found, open, "I2 and I3: {namespace} and the open operations");
        }
        for operation in &self.ended {
            assert!(!open.contains(&**operation), "I3: operation {operation} has ended and is open");
        }
        self.calls_have_their_registers();
        self.queue_is_in_one_place();
        for (key, list) in &self.lists {
            assert_eq!(key, namespace::FRAMES, "an unknown list");
            let (operation, reply) = list.split_once(':').unwrap();
            let waits = self.value(namespace::OP_STATE, operation).and_then(|state| state["responseEntryId"].as_str());
            assert_eq!(waits, Some(reply), "I2: frames of a reply that nobody waits for");
        }
        for (operation, state) in self.all(namespace::OP_STATE) {
            let context = state.get("generationContext").unwrap_or(state);
            let used = [&context["overflowRecoveryUsed"], &state["continuation"]["overflowRecoveryUsed"]];
            assert!(used.iter().all(|used| **used != Value::Bool(true)), "I9: nothing was made smaller");
            self.counters_grow(operation, before.get(operation), state, writes);
        }
    }

    /// I2 within a batch: arguments of what began, results of what ended, nothing else.
    fn calls_have_their_registers(&self) {
        let (mut args, mut staged, mut running) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (operation, state) in self.all(namespace::OP_STATE) {
            let batch = &state["batch"];
            for call in batch["calls"].as_array().into_iter().flatten() {
                let result = call["resultEntryId"].as_str().unwrap();
                let key = format!("{operation}:{}:{}", batch["turnId"].as_str().unwrap(), call["sourceIndex"]);
                match call["status"].as_str().unwrap() {
                    "effect_pending" => {
                        assert!(
                            self.value(namespace::TOOL_ARGS, &key).is_some(),
                            "I5: {result} began without arguments"
                        );
                        running.insert(format!("{operation}:{result}"));
                        args.insert(key);
                    }
                    "outcome_ready" => {
                        assert!(
                            self.value(namespace::PENDING_ENTRY, result).is_some(),
                            "I7: the result {result} is lost"
                        );
                        staged.insert(result.to_owned());
                        args.insert(key);
                    }
                    "completed" => {
                        assert!(self.entries.contains_key(&EntryId::new(result)), "I7: {result} has no place");
                        args.insert(key);
                    }
                    other => assert_eq!(other, "planned"),
                }
            }
        }
        for (key, _) in self.all(namespace::TOOL_ARGS) {
            assert!(args.contains(key), "I2: arguments of no call that began: {key}");
        }
        for (key, _) in self.all(namespace::TOOL_OUTPUT) {
            assert!(running.contains(key), "I2: progress of no running call: {key}");
        }
        for (key, _) in self.all(namespace::TOOL_MEMO) {
            assert!(
                running.iter().any(|call| key.starts_with(&format!("{call}:"))),
                "I2: a memo of no running call: {key}"
            );
        }
        let queued: BTreeSet<String> = self.queued().collect();
        for (key, _) in self.all(namespace::PENDING_ENTRY) {
            assert!(staged.contains(key) != queued.contains(key), "I4: {key} waits for nothing, or twice");
        }
    }

    fn queued(&self) -> impl Iterator<Item = String> {
        let items = self.all(namespace::LANE_STATE).filter_map(|(_, lane)| lane["inbox"].as_array()).flatten();
        items.map(|item| item["entryId"].as_str().unwrap().to_owned())
    }

    fn queue_is_in_one_place(&self) {
        let mut seen = BTreeSet::new();
        for id in self.queued() {
            assert!(self.value(namespace::PENDING_ENTRY, &id).is_some(), "I4: {id} is queued and has no content");
            assert!(!self.entries.contains_key(&EntryId::new(&id)), "I4: {id} is queued and has its place");
            assert!(seen.insert(id.clone()), "I4: {id} is queued twice");
        }
    }

    /// I15 and I16.
    fn counters_grow(&self, operation: &str, before: Option<&Value>, state: &Value, writes: &[Write]) {
        let counters = &state["counters"];
        let of_operation =
            self.rows.iter().filter(|row| row.operation_id.as_ref().is_some_and(|id| id.as_str() == operation));
        let cost: f64 = of_operation.filter_map(|row| row.cost).sum();
        let counted = counters["cost"].as_f64().unwrap();
        assert!((counted - cost).abs() < CENT, "I16: {counted} USD are counted, the rows say {cost}");
        let Some(before) = before.map(|before| &before["counters"]) else { return };
        for name in ["turns", "cost", "followUps", "schemaRepairs"] {
            let (old, new) = (before[name].as_f64().unwrap(), counters[name].as_f64().unwrap());
            assert!(new >= old, "I15: {name} goes from {old} to {new}");
            assert!(name == "cost" || new - old <= 1.0, "I15: {name} goes from {old} to {new}");
        }
        let (old, new) = (before["truncatedInARow"].as_u64().unwrap(), counters["truncatedInARow"].as_u64().unwrap());
        let settled = writes.iter().find_map(|write| match write {
            Write::Entry { body, .. } => reply_of(body).filter(|reply| !reply.stop_reason.is_failure()),
            _ => None,
        });
        let expected = match settled {
            Some(reply) if reply.stop_reason == StopReason::Length && reply.calls().next().is_some() => old + 1,
            Some(_) => 0,
            None => old,
        };
        assert_eq!(new, expected, "I15: truncated replies in a row");
    }

    /// The world is what the transactions say.
    fn compare(&self, world: &World) {
        for ((namespace, key), value) in &self.registers {
            let found = world.store.value(namespace, key).unwrap();
            assert_eq!(found.as_ref(), Some(value), "I11: {namespace}/{key}");
        }
        for (id, (parent, body)) in &self.entries {
            let found = world.store.entries(std::slice::from_ref(id)).unwrap().remove(0).unwrap();
            assert_eq!((&found.parent_id, &found.body), (parent, body), "I1: {id}");
        }
    }
}

fn reply_of(body: &EntryBody) -> Option<&AssistantMessage> {
    match body {
        EntryBody::Message { message, .. } => message.as_assistant(),
        EntryBody::Custom { .. } | EntryBody::Other(_) => None,
    }
}

/// I5 and I6: a reply has its intent, and one that is aborted was asked to end.
fn replies_were_asked_for(id: &EntryId, reply: &AssistantMessage, states: &BTreeMap<String, Value>, accepts: bool) {
    let waiting = states.values().find(|state| state["responseEntryId"] == id.as_str());
    assert!(waiting.is_some() || accepts, "I5: the reply {id} has no intent");
    if reply.stop_reason == StopReason::Aborted {
        let control = waiting.map(|state| &state["control"]["status"]);
        assert_eq!(control.and_then(Value::as_str), Some("cancel_requested"), "I6: {id} was aborted by nobody");
    }
}

/// I7, on every path of the tree. The batch of an operation that is still open may be unfinished.
fn results_follow_their_calls(world: &World, replay: &Replay) {
    let parents: HashSet<&EntryId> = replay.entries.values().filter_map(|(parent, _)| parent.as_ref()).collect();
    for leaf in replay.entries.keys().filter(|id| !parents.contains(id)) {
        let mut path = Vec::new();
        let mut next = Some(leaf);
        while let Some((id, (parent, body))) = next.and_then(|id| replay.entries.get_key_value(id)) {
            path.push((id, body));
            next = parent.as_ref();
        }
        path.reverse();
        for (at, (id, body)) in path.iter().enumerate() {
            let Some(reply) = reply_of(body).filter(|reply| !reply.stop_reason.is_failure()) else { continue };
            let calls: Vec<&str> = reply.calls().map(|call| &*call.id).collect();
            let results: Vec<String> = path[at + 1..].iter().map_while(|(_, body)| result_id(body)).collect();
            let whole = results.len() == calls.len();
            let unfinished = at + 1 + results.len() == path.len() && !world.state().is_null();
            assert!(whole || unfinished, "I7: {id} asks for {calls:?} and gets {results:?}");
            assert_eq!(results, calls[..results.len()], "I7: the order of the results of {id}");
        }
    }
}

fn result_id(body: &EntryBody) -> Option<String> {
    match body {
        EntryBody::Message { message, .. } => match &**message {
            Message::ToolResult(result) => Some(result.tool_call_id.clone()),
            _ => None,
        },
        EntryBody::Custom { .. } | EntryBody::Other(_) => None,
    }
}

/// I8.
fn ledger_gives_the_sums(world: &World) {
    let stats = world.store.stats();
    let mut sum = Usage::default();
    for row in world.store.usage().unwrap() {
        sum.add(&row.usage);
    }
    assert_eq!(stats.usage, sum, "I8: the sums and the ledger");
    let entries = world.store.scan_entries(&EntryScan::default()).unwrap();
    let messages = entries.iter().filter(|entry| matches!(entry.body, EntryBody::Message { .. })).count();
    assert_eq!(stats.message_count, messages as u64, "I8: messages");
}

/// A call that may not run twice runs at most once, whatever dies.
fn effects_happen_once(world: &World) {
    let mut begun = HashSet::new();
    for executed in world.executions.list() {
        let first = begun.insert(executed.invocation_id.clone());
        assert!(first || !NEVER.contains(&&*executed.tool), "I5: {} ran twice as {}", executed.tool, executed.call_id);
    }
}

/// I13: a snapshot is what is reduced from the events up to the one that it names, also where it is taken by a listener
/// while more is on its way; so those behind it, told to who has it, lead to what others see.
fn snapshots_are_reduced(process: &Process) {
    let told = process.mirror.told.lock().unwrap();
    let mut snapshot = process.mirror.base.clone();
    let mut reduced = HashMap::new();
    for item in told.iter() {
        let before = snapshot.clone();
        reduce(&mut snapshot, &item.event);
        reduced.insert(snapshot.seq, snapshot.clone());
        let mut again = snapshot.clone();
        reduce(&mut again, &item.event);
        assert_eq!(again, snapshot, "I13: {} counts twice behind {before:#?}", item.event.event.name());
    }
    for item in told.iter() {
        assert!(item.fresh.seq >= item.event.seq, "I13: {} is told before it came to be", item.event.event.name());
        // What was on its way when the process died or failed is never told.
        if let Some(reduced) = reduced.get(&item.fresh.seq).filter(|_| !item.fresh.faulted) {
            assert_eq!(*reduced, item.fresh, "I13: behind {}", item.event.event.name());
        }
    }
    if !process.faults.is_killed() && !snapshot.faulted {
        assert_eq!(snapshot, process.lane.snapshot(), "I13: at the end");
    }
}

/// I14: what a claim rests on is stored and synced before it is told.
fn claims_are_stored_and_synced(process: &Process) {
    let steps = process.faults.steps();
    let told = process.mirror.told.lock().unwrap();
    let mut operation = String::new();
    let mut ends: HashMap<String, usize> = HashMap::new();
    for item in told.iter() {
        let done = &steps[..item.steps];
        let stored = |wanted: &dyn Fn(&Write) -> bool| {
            let makes = |step: &Step| matches!(step, Step::Commit { writes, .. } if writes.iter().any(wanted));
            let synced = done.iter().rposition(|step| *step == Step::Sync).unwrap_or(0);
            done[..synced].iter().filter(|step| makes(step)).count()
        };
        let name = item.event.event.name();
        match &item.event.event {
            Event::RunStart { run_id, .. } | Event::RunResume { run_id } => run_id.as_str().clone_into(&mut operation),
            Event::MessageEnd { entry_id, .. } => {
                let id = entry_id.as_ref().expect("a message that is kept has an id");
                assert_eq!(stored(&|write| is_entry(write, id)), 1, "I14: {name} of {id}");
            }
            Event::EntryAdded { entry } => {
                assert_eq!(stored(&|write| is_entry(write, &entry.id)), 1, "I14: {name} of {}", entry.id);
            }
            Event::Usage { row, .. } => {
                let is_row = |write: &Write| matches!(write, Write::Usage(found) if found.id == row.id);
                assert_eq!(stored(&is_row), 1, "I14: {name} of {}", row.id);
            }
            Event::ToolEnd { tool_call_id, .. } => {
                let ended = ends.entry(tool_call_id.clone()).or_default();
                *ended += 1;
                let outcome = |write: &Write| {
                    matches!(write, Write::Set { namespace, value, .. }
                        if namespace == namespace::PENDING_ENTRY && value["payload"]["toolCallId"] == **tool_call_id)
                };
                assert!(stored(&outcome) >= *ended, "I14: {name} of {tool_call_id}");
            }
            Event::TurnEnd { turn, .. } => {
                let counted = |write: &Write| match write {
                    Write::Set { namespace, key, value } if namespace == namespace::OP_STATE && *key == operation => {
                        value["counters"]["turns"].as_u64() >= Some(u64::from(*turn))
                    }
                    Write::Set { namespace, key, .. } => namespace == namespace::RESULT && *key == operation,
                    _ => false,
                };
                assert!(stored(&counted) > 0, "I14: {name} {turn}");
            }
            Event::RunEnd { .. } => {
                let ended = |write: &Write| {
                    matches!(write, Write::Set { namespace, key, .. }
                        if namespace == namespace::RESULT && *key == operation)
                };
                assert_eq!(stored(&ended), 1, "I14: {name}");
            }
            _ => {}
        }
    }
}

fn is_entry(write: &Write, id: &EntryId) -> bool {
    matches!(write, Write::Entry { id: found, .. } if found == id)
}

/// I5: a request and a call are told when their intent is stored, and not before.
fn effects_have_intents(world: &World, process: &Process) {
    let steps = process.faults.steps();
    let mut starts: HashMap<String, usize> = HashMap::new();
    for item in process.mirror.told.lock().unwrap().iter().filter(|item| !item.event.recovery) {
        let mut states = steps[..item.steps].iter().filter_map(|step| match step {
            Step::Commit { writes, .. } => writes.iter().find_map(|write| match write {
                Write::Set { namespace, value, .. } if namespace == namespace::OP_STATE => Some(value),
                _ => None,
            }),
            Step::Sync | Step::Note(_) => None,
        });
        match &item.event.event {
            Event::MessageStart { message } if is_pending(message) => {
                let at = states.next_back().map(|state| state["at"].clone());
                assert_eq!(at, Some("assistant.effect_pending".into()), "I5: a reply begins");
            }
            Event::ToolStart { tool_call_id, .. } => {
                let begun: HashSet<(String, u64)> =
                    states.flat_map(|state| begun(world, &state["batch"], tool_call_id)).collect();
                let started = starts.entry(tool_call_id.clone()).or_default();
                *started += 1;
                assert!(begun.len() >= *started, "I5: {tool_call_id} starts");
            }
            _ => {}
        }
    }
}

fn is_pending(message: &Message) -> bool {
    message.as_assistant().is_some_and(|reply| reply.stop_reason == StopReason::Pending)
}

/// The calls of a batch with this id that are more than planned.
fn begun(world: &World, batch: &Value, tool_call_id: &str) -> Vec<(String, u64)> {
    let Some(id) = batch["assistantEntryId"].as_str() else { return Vec::new() };
    let entry = world.store.entries(&[EntryId::new(id)]).unwrap().remove(0).unwrap();
    let reply = reply_of(&entry.body).unwrap();
    let calls = batch["calls"].as_array().unwrap().iter().filter(|call| call["status"] != "planned");
    let of_id = calls.filter_map(|call| {
        let index = call["sourceIndex"].as_u64().unwrap();
        match &reply.content[usize::try_from(index).unwrap()] {
            AssistantBlock::ToolCall(block) if block.id == tool_call_id => Some((id.to_owned(), index)),
            _ => None,
        }
    });
    of_id.collect()
}

/// How a session ended, as far as a kill may not change it.
#[derive(Debug, PartialEq)]
pub(super) struct End {
    pub(super) context: Vec<String>,
    pub(super) result: Value,
    pub(super) queued: Vec<String>,
}

pub(super) fn end_of(world: &World) -> End {
    let lane = world.store.value(namespace::LANE_STATE, "main").unwrap().unwrap();
    let last = lane["lastOperationId"].as_str().unwrap();
    let result = world.store.value(namespace::RESULT, last).unwrap().unwrap();
    let words = ["status", "reason", "stopReason", "errorKind", "completion"];
    let result = words.iter().map(|word| ((*word).to_owned(), result[*word].clone())).collect();
    let queued = lane["inbox"].as_array().unwrap().iter().map(|item| item["kind"].to_string());
    End { context: context(world), result: Value::Object(result), queued: queued.collect() }
}

/// Runs a prompt to its end; then with a kill behind each transaction and a continuation, undisturbed and killed once
/// more. Every world keeps the invariants and ends alike (I10). The provider plays its script across the processes.
pub(super) async fn survives_kills(
    name: &str,
    provider: impl Fn() -> Arc<ScriptedProvider>,
    change: impl Fn(&World, &mut Options),
) {
    let whole = World::new().await;
    let process = whole.process_with(Vec::new(), |options| prepare(&whole, options, &provider(), &change)).await;
    process.prompt("go").await.result();
    check(&whole, &[&process]);
    let expected = end_of(&whole);
    for n in 1..=process.faults.transactions().len() {
        for m in [0, 1 + n % 3] {
            let world = World::new().await;
            let played = provider();
            let first = world.process_with(Vec::new(), |options| prepare(&world, options, &played, &change)).await;
            first.faults.kill_after(n);
            first.prompt("go").await.killed();
            let second = world.process_with(Vec::new(), |options| prepare(&world, options, &played, &change)).await;
            if m > 0 {
                second.faults.kill_after(m);
            }
            if !world.state().is_null() {
                second.go_on().await;
            }
            let third = world.process_with(Vec::new(), |options| prepare(&world, options, &played, &change)).await;
            if !world.state().is_null() {
                third.go_on().await.result();
            }
            assert_eq!(end_of(&world), expected, "{name}, killed behind {n}, then behind {m}: {}", world.tree());
            assert_eq!((world.open_addresses(), world.results()), (Vec::new(), 1), "{name}, {n}, {m}");
            check(&world, &[&first, &second, &third]);
        }
    }
}

fn prepare(
    world: &World,
    options: &mut Options,
    provider: &Arc<ScriptedProvider>,
    change: &impl Fn(&World, &mut Options),
) {
    options.provider = Arc::<ScriptedProvider>::clone(provider);
    change(world, options);
}

#[tokio::test(start_paused = true)]
async fn runs_keep_every_invariant_and_end_alike_whatever_dies_i1_to_i16() {
    let fails = || Reply::fail("503 overloaded");
    let two = || calls(vec![echo("c1", "v"), echo("c2", "w")]);
    let cut = || Reply::blocks(vec![echo("c1", "v")]).stop(StopReason::Length).usage(usage());
    let scripts: [(&str, Vec<Reply>); 8] = [
        ("baseline", baseline()),
        ("text", vec![say("ok")]),
        ("a retry", vec![fails(), say("ok")]),
        ("no retry helps", vec![fails(), fails(), fails(), fails()]),
        ("two calls", vec![two(), two(), say("done")]),
        ("a call behind a retry", vec![fails(), two(), fails(), say("done")]),
        ("truncated replies", vec![cut(), cut(), cut()]),
        ("a refusal", vec![Reply::error(ErrorRecord::new(ErrorKind::Refusal, "no"))]),
    ];
    for (name, script) in scripts {
        survives_kills(name, || ScriptedProvider::new(script.clone()), |_, _| {}).await;
        if !name.contains("call") {
            continue;
        }
        let sequential = |_: &World, options: &mut Options| options.settings.tool_execution = Execution::Sequential;
        survives_kills(name, || ScriptedProvider::new(script.clone()), sequential).await;
    }
}
