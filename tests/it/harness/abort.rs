//! Cases 34 to 45: the end on request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pirn::harness::{AbortError, Drive, Options};
use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, CancelCause, EntryBody, EntryId, Event, Execution,
    InboxKind, Message, PendingEntry, Reason, RunId, Status, StopReason,
};
use pirn::port::{
    AfterResponse, AfterResponseAnswer, AssistantEvent, Clock, HookFailure, HookPoint, Hooks, Inbox, Polled, SpoolItem,
    SpoolKind,
};
use pirn::testing::{Act, CountingTool, Reply};
use pirn::turn::texts;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::invariants::check;
use super::recovery::{reply_at, result_at};
use super::retry::{code, err};
use super::tools::{boom, slow};
use super::watch::Watch;
use super::world::{Ended, Process, World, baseline, calls, echo, say, usage};

/// Half of a reply, which waits for its cancellation.
pub(super) fn half() -> Reply {
    Reply::text_deltas(&["hel"]).usage(usage()).stalls()
}

/// Prompts, and aborts once the reply stalls.
async fn aborted(process: &Process) -> Ended {
    let abort = async {
        process.provider.stalled(1).await;
        process.lane.abort(CancelCause::Int).await.unwrap()
    };
    let (ended, aborted) = tokio::join!(process.prompt("go"), abort);
    assert!(aborted.newly_requested);
    ended
}

#[tokio::test(start_paused = true)]
async fn an_abort_keeps_what_a_reply_said_and_no_request_contains_it_case_34() {
    let world = World::new().await;
    let process = world.process(vec![half(), say("fresh")]).await;
    let result = aborted(&process).await.result();
    assert_eq!(
        (result.status, result.reason, result.cause),
        (Status::Aborted, Reason::Interrupted, Some(CancelCause::Int))
    );
    assert_eq!(result.stop_reason, Some(StopReason::Aborted));
    assert_eq!((world.tree().as_str(), world.texts()[1].as_str()), ("u a!ab", "hel"));
    let path = world.path();
    let EntryBody::Message { message, .. } = &path[1].body else { panic!("{path:?}") };
    assert_eq!(message.as_assistant().unwrap().error_message.as_deref(), Some("Run cancelled"));
    // The cancellation is stored first, then the reply, then the end.
    let states: Vec<String> = process
        .faults
        .story()
        .into_iter()
        .filter(|line| line.starts_with("TX"))
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(states.len(), 7, "{states:?}");
    process.prompt("again").await.result();
    let sent = process.provider.requests();
    assert!(sent[1].messages.iter().all(|message| matches!(**message, Message::User(_))), "{:?}", sent[1].messages);
    assert_eq!(sent[1].messages.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_abort_waits_for_what_runs_and_starts_nothing_else_case_35() {
    let sequential = |world: &World| {
        let slow = Arc::new(CountingTool::slow().terminating().counted(&world.executions));
        move |options: &mut Options| {
            options.tools[2] = slow;
            options.settings.tool_execution = Execution::Sequential;
        }
    };
    let world = World::new().await;
    let script = vec![calls(vec![slow("c1"), echo("c2", "v")]), say("never")];
    let process = world.process_with(script, sequential(&world)).await;
    let abort = async {
        world.executions.begun(1).await;
        process.lane.abort(CancelCause::Int).await.unwrap();
    };
    let (ended, ()) = tokio::join!(process.prompt("go"), abort);
    let result = ended.result();
    assert_eq!((result.status, result.stop_reason, code(&result)), (Status::Aborted, Some(StopReason::Aborted), 130));
    assert_eq!(world.texts(), ["go", "", "slow was cancelled", texts::TOOL_CANCELLED]);
    assert_eq!((process.provider.count(), world.executions.count()), (1, 1));
    for entry in &world.path()[2..] {
        assert!(matches!(entry.body, EntryBody::Message { terminate: false, .. }), "{entry:?}");
    }
    assert!(result_at(&world, 2).is_error && result_at(&world, 3).is_error);
    check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn an_abort_between_steps_adds_nothing_case_36() {
    // Behind: the acceptance, its checkpoint, the request's plan, the placed results, and the plan of the next request.
    for (n, tree, last_turn_is_open) in
        [(1, "u", true), (2, "u", true), (3, "u", true), (8, "u a r", false), (9, "u a r", true)]
    {
        let world = World::new().await;
        let process = world.process(baseline()).await;
        let abort = async |process: &Process| {
            let lane = &process.lane;
            let (first, second) = tokio::join!(lane.abort(CancelCause::Int), lane.abort(CancelCause::Int));
            assert!(first.unwrap().newly_requested && !second.unwrap().newly_requested, "behind {n}");
        };
        let result = process.prompt_and(n, abort).await.result();
        assert_eq!((result.status, result.stop_reason), (Status::Aborted, Some(StopReason::Aborted)), "behind {n}");
        assert_eq!((world.tree().as_str(), result.tip_id.as_ref()), (tree, world.path().last().map(|entry| &entry.id)));
        assert_eq!(process.faults.transactions().len(), n + 2, "behind {n}: the mark and the end");
        assert_eq!(process.provider.count(), usize::from(n > 3), "behind {n}");
        let reply = world.path().get(1).map(|entry| entry.id.clone());
        assert_eq!(result.final_entry_id, reply, "behind {n}");
        let ends: Vec<bool> = process
            .heard
            .events()
            .iter()
            .filter_map(|told| match &told.event {
                Event::TurnEnd { message, .. } => Some(message.is_some()),
                _ => None,
            })
            .collect();
        let mut expected = vec![true; usize::from(n > 3)];
        expected.extend(last_turn_is_open.then_some(false));
        assert_eq!(ends, expected, "behind {n}: which turns had a reply");
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_takes_steering_and_follow_ups_and_leaves_the_rest_case_37() {
    let world = World::new().await;
    let process = world.process(vec![half()]).await;
    let abort = async {
        process.provider.stalled(1).await;
        process.lane.steer("s1").await.unwrap();
        process.lane.follow_up("f1").await.unwrap();
        process.lane.next_run("n1").await.unwrap();
        let written = PendingEntry::Custom { custom_type: "w".to_owned(), payload: None };
        process.lane.append(written).await.unwrap();
        process.lane.abort(CancelCause::Term).await.unwrap()
    };
    let (ended, taken) = tokio::join!(process.prompt("go"), abort);
    ended.result();
    assert_eq!((taken.steer.len(), taken.follow_up.len()), (1, 1));
    let kinds: Vec<InboxKind> = process.lane.inbox().iter().map(|item| item.kind).collect();
    assert_eq!(kinds, [InboxKind::NextRun, InboxKind::Write]);
    assert_eq!(world.open_addresses().len(), 2, "what waits for the next run is kept");
    let next = world.process(vec![say("ok")]).await;
    next.go_on().await.result();
    assert_eq!(world.tree(), "u a!ab u x a");
    check(&world, &[&process, &next]);
}

/// Text that says `stop` though it was cancelled.
fn deaf() -> Reply {
    let head =
        AssistantHead { api: "fake-api".to_owned(), provider: "fake".to_owned(), model: "m1".to_owned(), timestamp: 0 };
    let mut message = AssistantMessage::pending(&head);
    message.content = vec![AssistantBlock::text("whole")];
    message.stop_reason = StopReason::Stop;
    message.usage = usage();
    let block = |event| Act::Emit(AssistantEvent::Block { index: 0, event });
    Reply::raw(vec![
        Act::Emit(AssistantEvent::Start(head)),
        block(BlockEvent::TextStart),
        block(BlockEvent::TextDelta("whole".to_owned())),
        Act::WaitForCancel,
        Act::Emit(AssistantEvent::End(Box::new(message))),
    ])
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_first_decides_between_a_reply_and_an_abort_case_38() {
    let world = World::new().await;
    let process = world.process(vec![deaf()]).await;
    let result = aborted(&process).await.result();
    let reply = reply_at(&world, 1);
    assert_eq!((reply.stop_reason, reply.text().as_str()), (StopReason::Aborted, "whole"));
    assert_eq!((reply.error_message.as_deref(), reply.usage), (Some(texts::CANCELLED), usage()));
    assert_eq!((result.status, &result.final_entry_id), (Status::Aborted, &Some(world.path()[1].id.clone())));
    check(&world, &[&process]);

    let world = World::new().await;
    let process = world.process(vec![say("whole")]).await;
    let abort = async |process: &Process| drop(process.lane.abort(CancelCause::Int).await.unwrap());
    let result = process.prompt_and(5, abort).await.result();
    assert_eq!((world.tree().as_str(), reply_at(&world, 1).stop_reason), ("u a", StopReason::Stop));
    assert_eq!((result.status, &result.final_entry_id), (Status::Aborted, &Some(world.path()[1].id.clone())));
    check(&world, &[&process]);

    // Behind the end there is nothing to abort.
    let world = World::new().await;
    let process = world.process(vec![say("whole")]).await;
    let late = async |process: &Process| {
        assert_eq!(process.lane.abort(CancelCause::Int).await, Err(AbortError::NoActiveOperation));
    };
    assert_eq!(process.prompt_and(6, late).await.result().status, Status::Completed);
    check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_is_stored_is_finished_without_a_request_case_39() {
    let world = World::new().await;
    let process = world.process(vec![half()]).await;
    process.faults.kill_after(5);
    let abort = async {
        process.provider.stalled(1).await;
        drop(process.lane.abort(CancelCause::Term).await);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = process.prompt("go") => ended.killed(),
        () = abort => {}
    }
    drop(process);
    assert_eq!(world.state()["control"]["status"], "cancel_requested");
    let next = world.process(Vec::new()).await;
    let result = next.go_on().await.result();
    assert_eq!((result.status, result.cause), (Status::Aborted, Some(CancelCause::Term)));
    assert_eq!((next.provider.count(), world.tree().as_str()), (0, "u a!ab"));
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_is_stored_in_a_batch_runs_and_asks_nothing_behind_a_kill_case_40() {
    for (execution, first) in [
        (Execution::Sequential, echo("c1", "v")),
        (Execution::Parallel, echo("c1", "v")),
        (Execution::Sequential, boom("c1")),
    ] {
        let world = World::new().await;
        let change = |options: &mut Options| options.settings.tool_execution = execution;
        let process = world.process_with(vec![calls(vec![first.clone(), echo("c2", "w")])], change).await;
        process.faults.kill_after(7);
        let abort = async |process: &Process| drop(process.lane.abort(CancelCause::Term).await);
        process.prompt_and(6, abort).await.killed();
        let statuses: Vec<String> = (0..2)
            .map(|at| world.state()["batch"]["calls"][at]["status"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(statuses, ["effect_pending", "planned"], "{execution:?}");
        let executed = world.executions.count();
        let watch = Watch::new().shared();
        let next = world.process_with(vec![say("never")], |options| options.hooks = vec![watch.clone()]).await;
        let result = next.go_on().await.result();
        assert_eq!((result.status, result.cause), (Status::Aborted, Some(CancelCause::Term)));
        assert_eq!(world.texts()[2..], [texts::TOOL_INTERRUPTED, texts::TOOL_CANCELLED]);
        assert_eq!((next.provider.count(), world.executions.count() - executed), (0, 0));
        assert_eq!(watch.asked(), Vec::<String>::new());
        check(&world, &[&process, &next]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_abort_stores_nothing_and_without_a_run_there_is_nothing_to_end_case_41() {
    let world = World::new().await;
    let process = world.process(vec![half()]).await;
    assert_eq!(process.lane.abort(CancelCause::Int).await, Err(AbortError::NoActiveOperation));
    let abort = async {
        process.provider.stalled(1).await;
        let first = process.lane.abort(CancelCause::Int).await.unwrap();
        let second = process.lane.abort(CancelCause::Term).await;
        (first.newly_requested, second)
    };
    let (ended, (first, second)) = tokio::join!(process.prompt("go"), abort);
    assert!(first);
    if let Ok(second) = second {
        assert!(!second.newly_requested && second.steer.is_empty() && second.follow_up.is_empty());
    }
    assert_eq!(ended.result().cause, Some(CancelCause::Int), "the first cause counts");
    assert_eq!(process.faults.transactions().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_reports_an_abort_nobody_asked_for_is_a_fault_and_the_run_goes_on_later_case_43() {
    let world = World::new().await;
    let process = world.process(vec![Reply::text("x").stop(StopReason::Aborted).usage(usage())]).await;
    match process.prompt("go").await {
        Ended::Refused(error) => assert_eq!(error.kind(), pirn::model::ErrorKind::Internal),
        other => panic!("{other:?}"),
    }
    drop(process);
    assert_eq!(world.state()["at"], "assistant.effect_pending");
    let next = world.process(baseline()).await;
    assert_eq!(next.go_on_with(Drive::default()).await.result().status, Status::Completed);
    assert_eq!(world.tree(), "u a!err a r a");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_leaves_behind_an_abort_leaves_its_end_to_the_next_one_case_42() {
    let world = World::new().await;
    // A stream that does not hear its cancellation keeps the process for a moment, in which it leaves.
    let process = world.process(vec![Reply::text_deltas(&["hel", "lo"]).usage(usage()).hangs()]).await;
    let abort = async {
        process.provider.stalled(1).await;
        process.lane.abort(CancelCause::Term).await.unwrap();
    };
    tokio::select! {
        biased;
        ended = process.prompt("go") => panic!("{ended:?}"),
        () = abort => {}
    }
    let stored = process.faults.transactions().len();
    world.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(process.faults.transactions().len(), stored, "nothing more is written");
    assert_eq!(world.state()["at"], "assistant.effect_pending");
    assert_eq!(world.state()["control"]["status"], "cancel_requested");
    process.faults.kill();
    let next = world.process(vec![say("never")]).await;
    let result = next.go_on().await.result();
    assert_eq!((result.status, result.cause, code(&result)), (Status::Aborted, Some(CancelCause::Term), 143));
    assert_eq!((next.provider.count(), world.tree().as_str()), (0, "u a!ab"));
    assert_eq!(reply_at(&world, 1).error_message.as_deref(), Some(texts::CANCELLED));
    check(&world, &[&process, &next]);
}

/// Waits behind a reply until it may go on, then answers with another reply.
struct Editor {
    entered: Notify,
    go: Notify,
    stop: StopReason,
    asked: Mutex<usize>,
}

impl Editor {
    fn new(stop: StopReason) -> Arc<Self> {
        Arc::new(Self { entered: Notify::new(), go: Notify::new(), stop, asked: Mutex::default() })
    }
}

#[async_trait]
impl Hooks for Editor {
    fn name(&self) -> &'static str {
        "editor"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == HookPoint::AfterResponse
    }

    async fn after_response(
        &self,
        asked: AfterResponse<'_>,
        _: &CancellationToken,
    ) -> Result<AfterResponseAnswer, HookFailure> {
        *self.asked.lock().unwrap() += 1;
        self.entered.notify_one();
        self.go.notified().await;
        let mut message = asked.message.clone();
        message.content = vec![AssistantBlock::text("edited")];
        message.stop_reason = self.stop;
        Ok(AfterResponseAnswer { message: Some(Box::new(message)), ..AfterResponseAnswer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_runs_when_an_abort_comes_is_waited_for_and_used_case_44() {
    // It may see the cancellation and say so.
    for stop in [StopReason::Stop, StopReason::Aborted] {
        let (world, editor) = (World::new().await, Editor::new(stop));
        let process = world.process_with(vec![say("raw")], |options| options.hooks = vec![editor.clone()]).await;
        let abort = async {
            editor.entered.notified().await;
            process.lane.abort(CancelCause::Int).await.unwrap();
            editor.go.notify_one();
        };
        let (ended, ()) = tokio::join!(process.prompt("go"), abort);
        assert_eq!(ended.result().status, Status::Aborted);
        let reply = reply_at(&world, 1);
        assert_eq!((reply.stop_reason, reply.text().as_str()), (StopReason::Aborted, "edited"), "{stop:?}");
        assert_eq!(reply.error_message.as_deref(), Some(texts::CANCELLED));
        assert!(!process.heard.names().contains(&"handler_error".to_owned()), "{stop:?}");
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_had_not_begun_when_an_abort_came_is_passed_over_case_44() {
    let (world, editor) = (World::new().await, Editor::new(StopReason::Stop));
    let process = world.process_with(vec![half()], |options| options.hooks = vec![editor.clone()]).await;
    assert_eq!(aborted(&process).await.result().status, Status::Aborted);
    assert_eq!((world.texts()[1].as_str(), *editor.asked.lock().unwrap()), ("hel", 0));
    check(&world, &[&process]);
}

/// What other processes have left.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Vec<SpoolItem>>);

impl Shelf {
    pub(super) fn steer(&self, text: &str, at: u64) {
        let id = EntryId::new(format!("0190b000-0000-7000-8000-{at:012}"));
        let Message::User(message) = Message::user(text, Vec::new(), at) else { panic!("{text}") };
        self.0.lock().unwrap().push(SpoolItem { id, lane: "main".to_owned(), at, what: SpoolKind::Steer(message) });
    }

    fn abort(&self, operation_id: Option<RunId>, at: u64) {
        let id = EntryId::new(format!("0190a000-0000-7000-8000-{at:012}"));
        let what = SpoolKind::Abort { operation_id };
        self.0.lock().unwrap().push(SpoolItem { id, lane: "main".to_owned(), at, what });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

impl Inbox for Shelf {
    fn poll(&self) -> Polled {
        Polled { items: self.0.lock().unwrap().clone(), warnings: Vec::new() }
    }

    fn ack(&self, id: &EntryId) {
        self.0.lock().unwrap().retain(|item| item.id != *id);
    }

    fn refuse(&self, id: &EntryId, why: &str) -> Option<String> {
        panic!("{id} was refused: {why}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_from_another_process_is_heard_within_200_ms_case_45() {
    // Of the operation by its id, and of whatever runs.
    for by_id in [true, false] {
        let (world, shelf) = (World::new().await, Arc::new(Shelf::default()));
        let inbox: Arc<dyn Inbox> = shelf.clone();
        let process = world.process_with(vec![half()], |options| options.inbox = Some(inbox)).await;
        let leave = async {
            process.provider.stalled(1).await;
            let operation = process.lane.open_operation().map(|(id, _)| id).filter(|_| by_id);
            shelf.abort(operation, world.clock.now_ms());
            world.clock.monotonic_ms()
        };
        let (ended, left_at) = tokio::join!(process.prompt("go"), leave);
        let took = world.clock.monotonic_ms() - left_at;
        let result = ended.result();
        assert_eq!((result.status, result.cause, code(&result)), (Status::Aborted, Some(CancelCause::Steer), 130));
        assert!(took <= 200, "{took} ms");
        assert_eq!((world.tree().as_str(), world.texts()[1].as_str()), ("u a!ab", "hel"));
        assert!(shelf.is_empty());
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_of_a_run_that_is_over_ends_no_later_one_case_45() {
    let (world, shelf) = (World::new().await, Arc::new(Shelf::default()));
    let inbox: Arc<dyn Inbox> = shelf.clone();
    let script = vec![say("one"), err("503 overloaded"), say("two")];
    let process = world
        .process_with(script, |options| {
            options.inbox = Some(inbox);
            options.retry.base_delay = Duration::from_secs(1);
        })
        .await;
    let first = process.prompt("go").await.result();
    shelf.abort(Some(first.operation_id.clone()), world.clock.now_ms());
    shelf.abort(None, 0);
    assert_eq!(process.prompt("again").await.result().status, Status::Completed);
    assert_eq!((world.tree().as_str(), shelf.is_empty()), ("u a u a!err a", true));
    check(&world, &[&process]);
}
