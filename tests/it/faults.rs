//! The doubles that tests of the harness stand on: what a kill and a fault leave, what is counted, how a script stalls.

use std::fs;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use pirn::model::session::namespace;
use pirn::model::{AssistantMessage, Content, EntryBody, EntryId, Message, Model, StopReason, Write};
use pirn::port::{
    AssistantEvent, EntryScan, LlmRequest, Provider, Replay, Store, StoreError, StreamOptions, Tool, ToolCtx,
    ToolOutput, Updates,
};
use pirn::session::jsonl::{self, Header, Options};
use pirn::session::memory;
use pirn::testing::{
    CountingTool, Executions, FaultStore, Reply, RuntimeClock, ScriptedProvider, Step, tear, transaction_at,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::tool_support::Workspace;

fn set(space: &str, key: &str) -> Write {
    Write::set(space, key, &json!({"at": "checkpoint"})).unwrap()
}

fn entry(id: &str) -> Write {
    let body = EntryBody::Message { message: Arc::new(Message::user("go", Vec::new(), 1)), terminate: false };
    Write::Entry { id: EntryId::new(id), parent_id: None, body }
}

fn frame() -> Write {
    Write::Append { namespace: namespace::FRAMES.into(), key: "o:r".into(), value: json!([]) }
}

fn lane() -> Vec<Write> {
    [namespace::BRANCH_TIP, namespace::LANE_CONFIG, namespace::LANE_STATE].map(|space| set(space, "main")).into()
}

fn faulty() -> Arc<FaultStore> {
    FaultStore::new(Arc::new(memory(Arc::new(RuntimeClock::new()))))
}

/// Drives work until it ends or the process is killed.
async fn until_killed(store: &FaultStore, work: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = store.killed() => true,
        () = work => false,
    }
}

/// What a process would do: three transactions, with side commits between them.
async fn work(store: &FaultStore) {
    store.commit(lane()).await.unwrap();
    store.commit(vec![entry("e1"), set(namespace::OP_STATE, "o")]).await.unwrap();
    store.commit(vec![frame()]).await.unwrap();
    store.sync().await.unwrap();
    store.note("asked");
    store.commit(vec![entry("e2"), set(namespace::OP_STATE, "o")]).await.unwrap();
    store.commit(vec![set(namespace::TOOL_OUTPUT, "o:r"), set(namespace::TOOL_MEMO, "o:r:x")]).await.unwrap();
    store.commit(vec![frame()]).await.unwrap();
    store.commit(Vec::new()).await.unwrap();
    store.commit(vec![Write::delete(namespace::TOOL_OUTPUT, "o:r"), entry("e3")]).await.unwrap();
    store.sync().await.unwrap();
}

fn entries(store: &dyn Store) -> usize {
    store.scan_entries(&EntryScan::default()).unwrap().len()
}

#[tokio::test]
async fn transactions_count_but_for_frames_progress_memos_and_the_making_of_a_lane() {
    let store = faulty();
    assert!(!until_killed(&store, work(&store)).await);
    assert_eq!(
        store.story(),
        [
            "side branch.tip lane.config lane.state",
            "TX1 +user op.state:checkpoint",
            "side +pending.assistant_frame",
            "sync",
            "asked",
            "TX2 +user op.state:checkpoint",
            "side pending.tool_output op.tool_memo",
            "side +pending.assistant_frame",
            "TX3 -pending.tool_output +user",
            "sync",
        ]
    );
    assert_eq!((store.transactions().len(), store.syncs()), (3, 2));
    assert_eq!(store.steps().iter().filter(|step| matches!(step, Step::Note(_))).count(), 1);
}

#[tokio::test]
async fn a_kill_leaves_what_was_stored_and_nothing_comes_back_from_it() {
    type Plan = fn(&FaultStore);
    let cases: [(Plan, usize, usize); 6] = [
        (|store| store.kill_before(1), 0, 0),
        (|store| store.kill_after(1), 1, 0),
        (|store| store.kill_before(3), 2, 1),
        (|store| store.kill_after(3), 3, 1),
        (|store| store.kill_after_side(namespace::TOOL_OUTPUT, 1), 2, 1),
        (|store| store.kill_after_side(namespace::FRAMES, 2), 2, 1),
    ];
    for (at, (plan, stored, syncs)) in cases.into_iter().enumerate() {
        let store = faulty();
        plan(&store);
        assert!(until_killed(&store, work(&store)).await, "case {at}");
        assert_eq!((entries(&*store.surviving()), store.syncs()), (stored, syncs), "case {at}");
        assert!(matches!(store.value("a", "b"), Err(StoreError::Dead(_))), "case {at}");
        let waits = tokio::select! {
            biased;
            _ = store.commit(vec![entry("late")]) => false,
            _ = store.sync() => false,
            () = std::future::ready(()) => true,
        };
        assert!(waits, "case {at}: a killed process gets no answer");
        assert_eq!(entries(&*store.surviving()), stored, "case {at}");
        let again = FaultStore::new(store.surviving());
        again.commit(vec![entry("next")]).await.unwrap();
        assert_eq!(again.story(), ["TX1 +user"], "counting starts anew in the next process");
    }
}

#[tokio::test]
async fn a_failure_stores_nothing_and_ends_the_store() {
    let store = faulty();
    store.fail_commit(2);
    store.commit(vec![entry("e1")]).await.unwrap();
    assert!(matches!(store.commit(vec![entry("e2")]).await, Err(StoreError::Io { .. })));
    assert!(matches!(store.commit(vec![frame()]).await, Err(StoreError::Dead(_))));
    assert!(matches!(store.sync().await, Err(StoreError::Dead(_))));
    assert_eq!(entries(&*store), 1, "reads go on");
    assert!(!store.is_killed());

    let store = faulty();
    store.fail_sync(2);
    store.sync().await.unwrap();
    assert!(matches!(store.sync().await, Err(StoreError::Io { .. })));
    assert!(matches!(store.commit(vec![entry("e1")]).await, Err(StoreError::Dead(_))));
}

#[tokio::test]
async fn a_callback_comes_when_the_transaction_is_made_and_before_its_answer() {
    let store = faulty();
    let seen = Arc::clone(&store);
    store.on_commit(1, move || seen.note(format!("called with {} stored", entries(&*seen))));
    store.commit(lane()).await.unwrap();
    store.commit(vec![entry("e1")]).await.unwrap();
    store.note("answered");
    let story = store.story();
    assert_eq!(story[1..], ["TX1 +user", "called with 1 stored", "answered"]);
}

#[tokio::test]
async fn a_session_file_is_torn_inside_the_line_of_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.jsonl");
    let clock = Arc::new(RuntimeClock::new());
    let store = jsonl::create(&file, Header::new("id", 1, "/"), Options::new("test", clock.clone())).await.unwrap();
    let store = FaultStore::new(Arc::new(store));
    store.kill_after(3);
    assert!(until_killed(&store, work(&store)).await);
    drop(store);
    let whole = fs::read(&file).unwrap();
    let line = transaction_at(&file, 2).unwrap().unwrap();
    let text =
        String::from_utf8_lossy(&whole[usize::try_from(line.start).unwrap()..usize::try_from(line.end).unwrap()])
            .into_owned();
    assert!(text.contains("\"e2\"") && text.ends_with("\"}\n"), "{text}");
    assert_eq!(transaction_at(&file, 4).unwrap(), None);
    for bytes in [0, 1, line.end - line.start - 2] {
        fs::write(&file, &whole).unwrap();
        tear(&file, 2, bytes).unwrap();
        let left = jsonl::open(&file, Options::new("test", clock.clone())).await.unwrap();
        assert_eq!(entries(&left), 1, "{bytes} bytes");
    }
    fs::write(&file, &whole).unwrap();
    assert!(tear(&file, 2, line.end - line.start).is_err(), "the whole line is not torn");
    assert!(tear(&file, 4, 0).is_err());
}

fn request(model: &str) -> Arc<LlmRequest> {
    let model = Model::unknown("scripted", model, "scripted", "");
    Arc::new(LlmRequest {
        model,
        system_prompt: String::new(),
        messages: Vec::new(),
        tools: Arc::default(),
        thinking: None,
        options: StreamOptions::default(),
        output_schema: None,
        purpose: pirn::port::Purpose::Run,
        session_id: None,
    })
}

async fn end_of(provider: &ScriptedProvider, model: &str, cancel: &CancellationToken) -> AssistantMessage {
    let mut events: Vec<AssistantEvent> = provider.stream(request(model), cancel.clone()).collect().await;
    match events.pop() {
        Some(AssistantEvent::End(message)) => *message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_script_stalls_in_the_middle_and_ends_aborted_with_what_came() {
    let provider = ScriptedProvider::new(vec![
        Reply::text_deltas(&["hel", "lo"]).stalls(),
        Reply::call_deltas("c1", "echo", &["{\"val"]),
        Reply::text("x").hangs(),
    ]);
    for want in ["hello", ""] {
        let cancel = CancellationToken::new();
        let stalls = provider.count() + 1;
        let (message, ()) = tokio::join!(end_of(&provider, "m1", &cancel), async {
            provider.stalled(stalls).await;
            cancel.cancel();
        });
        assert_eq!((message.stop_reason, message.text().as_str()), (StopReason::Aborted, want));
        assert_eq!(message.calls().count(), usize::from(want.is_empty()));
    }
    let cancel = CancellationToken::new();
    cancel.cancel();
    tokio::select! {
        biased;
        message = end_of(&provider, "m1", &cancel) => panic!("{message:?}"),
        () = provider.stalled(3) => {}
    }
}

#[tokio::test]
async fn every_model_has_a_script_of_its_own() {
    let provider = ScriptedProvider::of_models([("m1", vec![Reply::fail("no")]), ("m2", vec![Reply::text("yes")])]);
    let cancel = CancellationToken::new();
    assert_eq!(end_of(&provider, "m2", &cancel).await.text(), "yes");
    assert_eq!(end_of(&provider, "m1", &cancel).await.error_message.as_deref(), Some("no"));
    assert_eq!(end_of(&provider, "m2", &cancel).await.stop_reason, StopReason::Error, "its script is over");
    assert_eq!((provider.count(), provider.count_of("m2")), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn executions_are_counted_over_all_tools_that_share_them() {
    let workspace = Workspace::new();
    let executions = Executions::new();
    let lines = workspace.root.join("boom.txt");
    let echo = CountingTool::echo().counted(&executions).delayed(Duration::from_secs(1)).terminating();
    let boom = CountingTool::boom().counted(&executions).appending_to(&lines).checkpoint("step 1");
    let again = CountingTool::boom().counted(&executions).appending_to(&lines);
    let slow = CountingTool::slow().counted(&executions);

    let output = echo.call(json!({"value": "v"}), workspace.ctx()).await;
    assert_eq!(output, ToolOutput { terminate: true, ..ToolOutput::text("v") });
    let (updates, mut reports) = Updates::channel(1);
    let output = boom.call(json!({}), ToolCtx { updates, ..workspace.ctx() }).await;
    assert_eq!(output, ToolOutput::text("boomed"));
    let report = reports.recv().await.unwrap();
    assert!(report.checkpoint && report.partial.content == [Content::text("step 1")]);
    again.call(json!({}), workspace.ctx()).await;
    assert_eq!(fs::read_to_string(&lines).unwrap(), "boom\nboom\n");
    let (output, ()) = tokio::join!(slow.call(json!({}), workspace.ctx()), async {
        executions.begun(4).await;
        workspace.cancel.cancel();
    });
    assert!(output.is_error);
    assert_eq!((executions.count(), executions.count_of("boom")), (4, 2));
    assert_eq!(executions.list()[0].args, json!({"value": "v"}));
    assert_eq!((echo.spec().replay, boom.spec().replay), (Replay::Safe, Replay::Never));
}
