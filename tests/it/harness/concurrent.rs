//! What happens beside a run: calls that use their own lane, configurations, faults and ends that come in its middle.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use futures_util::stream::BoxStream;
use pirn::harness::{
    Blocked, Drive, Harness, Input, InvalidMessage, Lane, Listener, Options, Outcome, QueueError, RunError, Wait,
};
use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, CancelCause, Event, Execution, HandlerKind, InboxKind,
    LaneConfig, LaneEvent, LaneModel, Message, PendingEntry, QueueMode, Status, StopReason,
};
use pirn::port::{
    AssistantEvent, BeforeRequest, BeforeRequestAnswer, Clock, HookFailure, HookPoint, Hooks, Inbox, LlmRequest,
    Provider, Transformed,
};
use pirn::testing::{Act, CountingTool, FaultStore, Reply, ScriptedProvider};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::abort::{Shelf, half};
use super::invariants::check;
use super::retry::{err, told};
use super::tools::{boom, slow};
use super::watch::Watch;
use super::world::{Ended, FakeModels, Process, World, baseline, calls, config, echo, say};

/// Waits for something that must not hang. The clock is paused: it moves only where nothing else can.
pub(super) fn in_time<'a, T>(world: &'a World, work: impl Future<Output = T> + 'a) -> LocalBoxFuture<'a, T> {
    Box::pin(async move {
        tokio::select! {
            biased;
            done = work => done,
            () = world.clock.sleep(Duration::from_secs(600)) => panic!("it waits for ever"),
        }
    })
}

/// What a call does with its own lane.
type OwnLane = fn(Lane) -> BoxFuture<'static, ()>;

/// A process whose `echo` uses its own lane, and holds its line in `TX8` until `boom` has ended and is to be stored.
async fn entangled(world: &World, script: Vec<Reply>, act: OwnLane) -> Process {
    let lane: Arc<OnceLock<Lane>> = Arc::default();
    let stored = Arc::new(Notify::new());
    let (of_tool, awaited) = (Arc::clone(&lane), Arc::clone(&stored));
    let echo = CountingTool::echo().counted(&world.executions).awaiting(move || act(of_tool.get().unwrap().clone()));
    let boom = CountingTool::boom().counted(&world.executions).awaiting(move || {
        let stored = Arc::clone(&awaited);
        Box::pin(async move { stored.notified().await })
    });
    let process = world
        .process_with(script, |options| {
            options.tools[0] = Arc::new(echo);
            options.tools[1] = Arc::new(boom);
        })
        .await;
    assert!(lane.set(process.lane.clone()).is_ok());
    process.faults.on_commit(8, move || stored.notify_one());
    process
}

#[tokio::test(start_paused = true)]
async fn a_call_that_uses_its_own_lane_while_another_one_ends_is_not_waited_for_by_itself() {
    let rows: [(&str, OwnLane, &str); 5] = [
        ("steer", |lane| Box::pin(async move { drop(lane.steer("s1").await.unwrap()) }), "u a r r u a"),
        ("follow_up", |lane| Box::pin(async move { drop(lane.follow_up("f1").await.unwrap()) }), "u a r r a u a"),
        ("next_run", |lane| Box::pin(async move { drop(lane.next_run("n1").await.unwrap()) }), "u a r r a"),
        (
            "append",
            |lane| {
                let entry = PendingEntry::Custom { custom_type: "w".to_owned(), payload: None };
                Box::pin(async move { drop(lane.append(entry).await.unwrap()) })
            },
            "u a r r x a",
        ),
        ("configure", |lane| Box::pin(async move { lane.configure(config("m2")).await.unwrap() }), "u a r r a"),
    ];
    for (name, act, tree) in rows {
        let world = World::new().await;
        let script = vec![calls(vec![echo("c1", "v"), boom("c2")]), say("one"), say("two")];
        let process = entangled(&world, script, act).await;
        let ended: Ended = in_time(&world, process.prompt("go")).await;
        assert_eq!(ended.result().status, Status::Completed, "{name}");
        assert_eq!((world.tree().as_str(), world.executions.count()), (tree, 2), "{name}");
        assert_eq!(world.texts()[2..4], ["v", "boomed"], "{name}");
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_ends_the_wait_for_a_repeat_and_begins_a_new_step() {
    // In the moment in which the wait begins, and in its middle.
    for after in [0, 5] {
        let world = World::new().await;
        let attempts: Arc<Mutex<Vec<u32>>> = Arc::default();
        let seen = Arc::clone(&attempts);
        let watch = Watch::new().before_request(move |asked| {
            seen.lock().unwrap().push(asked.attempt);
            BeforeRequestAnswer::default()
        });
        let process = world
            .process_with(vec![err("503 overloaded"), say("ok")], |options| {
                options.hooks = vec![watch.shared()];
                options.retry.base_delay = Duration::from_secs(60);
                options.retry.max_delay = Duration::from_secs(60);
            })
            .await;
        let began = world.clock.monotonic_ms();
        let configure = async |process: &Process| {
            world.clock.sleep(Duration::from_millis(after)).await;
            assert_eq!(world.state()["at"], "assistant.retry_wait");
            process.lane.configure(config("m2")).await.unwrap();
        };
        let result = in_time(&world, process.prompt_and(5, configure)).await.result();
        assert_eq!((result.status, world.tree().as_str()), (Status::Completed, "u a!err a"));
        assert_eq!(world.clock.monotonic_ms() - began, after, "the rest of the minute is not waited for");
        assert_eq!((models(&process).join(" "), attempts.lock().unwrap().clone()), ("m1 m2".to_owned(), vec![1, 1]));
        let end = |told: LaneEvent| match told.event {
            Event::RetryEnd { attempt, success, final_error } => Some((attempt, success, final_error)),
            _ => None,
        };
        let ends: Vec<_> = process.heard.events().into_iter().filter_map(end).collect();
        assert_eq!(ends, [(1, false, Some("503 overloaded".to_owned()))]);
        assert!(!process.heard.names().iter().any(|name| name == "fault" || name == "retry_start"));
        check(&world, &[&process]);
    }
}

/// The models that were asked.
fn models(process: &Process) -> Vec<String> {
    process.provider.requests().iter().map(|request| request.model.id.clone()).collect()
}

/// Gives its lane another model when it is first asked at its point.
struct Switch {
    point: HookPoint,
    lane: OnceLock<Lane>,
    /// Refuses the request that it has made obsolete.
    refuses: bool,
    asked: AtomicUsize,
}

impl Switch {
    fn new(point: HookPoint, refuses: bool) -> Arc<Self> {
        Arc::new(Self { point, lane: OnceLock::new(), refuses, asked: AtomicUsize::new(0) })
    }

    /// Whether it was the first time.
    async fn switch(&self) -> bool {
        let is_first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first {
            self.lane.get().unwrap().configure(config("m2")).await.unwrap();
        }
        is_first
    }
}

#[async_trait]
impl Hooks for Switch {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == self.point
    }

    async fn transform_context(
        &self,
        _: &[Arc<Message>],
        _: &str,
        _: &CancellationToken,
    ) -> Result<Transformed, HookFailure> {
        self.switch().await;
        Ok(Transformed::default())
    }

    async fn before_request(
        &self,
        _: BeforeRequest<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRequestAnswer, HookFailure> {
        let is_first = self.switch().await;
        let block = (is_first && self.refuses).then(|| "not this one".to_owned());
        Ok(BeforeRequestAnswer { block, ..BeforeRequestAnswer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_changes_while_a_request_is_made_is_that_of_the_request_that_goes_out() {
    for (point, refuses) in
        [(HookPoint::TransformContext, false), (HookPoint::BeforeRequest, false), (HookPoint::BeforeRequest, true)]
    {
        let (world, switch) = (World::new().await, Switch::new(point, refuses));
        let process = world.process_with(vec![say("ok")], |options| options.hooks = vec![switch.clone()]).await;
        assert!(switch.lane.set(process.lane.clone()).is_ok());
        let result = in_time(&world, process.prompt("go")).await.result();
        assert_eq!((result.status, world.tree().as_str()), (Status::Completed, "u a"), "{point:?}");
        assert_eq!((models(&process), switch.asked.load(Ordering::SeqCst)), (vec!["m2".to_owned()], 2), "{point:?}");
        assert!(!process.heard.names().contains(&"fault".to_owned()), "{point:?}");
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_takes_one_message_at_a_time_and_stores_nothing_of_several() {
    let world = World::new().await;
    let process = world.process(vec![say("ok")]).await;
    let lane = &process.lane;
    let two = || Input::from(["m1", "m2"].map(|text| Message::user(text, Vec::new(), 0)).to_vec());
    for refused in [
        lane.steer(two()).await.map(drop),
        lane.follow_up(two()).await.map(drop),
        lane.next_run(two()).await.map(drop),
        lane.follow_ups(vec!["one".into(), two()]).await,
        lane.next_run_then("one", vec![two()]).await,
    ] {
        assert_eq!(refused, Err(QueueError::InvalidMessage { reason: InvalidMessage::Several }));
    }
    let refused = lane.prompt_then("go", vec![two()], Drive::default()).await;
    assert_eq!(refused, Err(RunError::InvalidMessage { reason: InvalidMessage::Several }));
    assert_eq!((process.faults.steps().len(), lane.inbox().len(), lane.open_operation()), (0, 0, None));
    // A prompt may be several.
    let ended = process.until_killed(lane.prompt(two(), Drive::default())).await;
    assert_eq!(
        (ended.result().status, world.texts()),
        (Status::Completed, vec!["m1".into(), "m2".into(), "ok".into()])
    );
    check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn closing_a_session_tells_what_runs_to_end_and_stores_nothing_more() {
    for (name, reply) in [("a call", calls(vec![slow("c1")])), ("a reply", half())] {
        let world = World::new().await;
        let process = world.process(vec![reply, say("never")]).await;
        let close = async {
            tokio::select! {
                () = world.executions.begun(1) => {}
                () = process.provider.stalled(1) => {}
            }
            process.harness.clone().close().await.unwrap();
            process.faults.note("closed");
        };
        // Both end by their token alone.
        let (ended, ()) = in_time(&world, async { tokio::join!(process.prompt("go"), close) }).await;
        assert!(matches!(ended, Ended::Refused(RunError::Closed)), "{name}: {ended:?}");
        assert_eq!(process.faults.story().last().map(String::as_str), Some("closed"), "{name}");
        assert!(matches!(process.lane.steer("s1").await, Err(QueueError::Closed)), "{name}");
        assert!(matches!(process.prompt("again").await, Ended::Refused(RunError::Closed)), "{name}");
        assert_eq!(process.faults.story().last().map(String::as_str), Some("closed"), "{name}");
        assert_eq!(world.state()["control"]["status"], "running", "{name}");
        process.faults.kill();
        let next = world.process(vec![say("done"), say("done")]).await;
        assert_eq!(next.go_on().await.result().status, Status::Completed, "{name}");
        check(&world, &[&process, &next]);
    }
}

/// The lanes on which a fault was told, in order.
fn faults(process: &Process) -> Vec<String> {
    let lane = |told: LaneEvent| matches!(told.event, Event::Fault { .. }).then(|| told.lane.to_string());
    process.heard.events().into_iter().filter_map(lane).collect()
}

/// How the store fails.
type Breaks = fn(&FaultStore, usize);

#[tokio::test(start_paused = true)]
async fn a_fault_is_told_once_on_every_lane_whichever_lane_meets_it() {
    let stores: [(&str, Breaks); 2] =
        [("a commit", |store, n| store.fail_commit(n)), ("a sync", |store, _| store.fail_sync(store.syncs() + 1))];
    for (what, breaks) in stores {
        for is_driven in [false, true] {
            let name = format!("{what} fails, driven: {is_driven}");
            let world = World::new().await;
            let process = world.process(vec![half()]).await;
            let other = process.harness.create_lane("other", None, config("m1")).await.unwrap();
            let steer = async {
                if is_driven {
                    process.provider.stalled(1).await;
                }
                breaks(&process.faults, process.faults.transactions().len() + 1);
                other.steer("s1").await
            };
            let driven = async {
                if is_driven {
                    let ended = process.prompt("go").await;
                    assert!(matches!(ended, Ended::Refused(RunError::Faulted(_))), "{name}: {ended:?}");
                }
            };
            let (steered, ()) = in_time(&world, async { tokio::join!(steer, driven) }).await;
            let fault = match steered {
                Err(QueueError::Faulted(fault)) => fault,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(faults(&process), ["main", "other"], "{name}");
            // Whoever comes later hears it from the call, and it is not told again.
            assert_eq!(process.lane.steer("s2").await, Err(QueueError::Faulted(fault.clone())), "{name}");
            assert_eq!(other.prompt("go", Drive::default()).await, Err(RunError::Faulted(fault)), "{name}");
            assert_eq!(faults(&process), ["main", "other"], "{name}");
            assert!(process.lane.snapshot().faulted && other.snapshot().faulted, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_is_dropped_before_it_is_stored_leaves_the_run_to_its_own_end() {
    let script = || vec![calls(vec![echo("c1", "v"), boom("c2")]), say("done")];
    let world = World::new().await;
    let process = world.process(script()).await;
    process.prompt("go").await.result();
    let whole = process.faults.story();
    for n in 1..=process.faults.transactions().len() {
        let world = World::new().await;
        let process = world.process(script()).await;
        // It waits for its turn behind `TXn`, and the run comes as far as it can meanwhile.
        let give_up = async |process: &Process| {
            let mut abort = Box::pin(process.lane.abort(CancelCause::Int));
            assert!(begun(&mut abort).await, "behind {n}");
            let stored = process.faults.transactions().len();
            world.clock.sleep(Duration::from_millis(1)).await;
            assert_eq!(process.faults.transactions().len(), stored, "behind {n}");
            drop(abort);
        };
        let result = in_time(&world, process.prompt_and(n, give_up)).await.result();
        assert_eq!((result.status, world.tree().as_str()), (Status::Completed, "u a r r a"), "behind {n}");
        assert_eq!(process.faults.story(), whole, "behind {n}: the same run");
        assert!(!process.heard.names().contains(&"operation_abort".to_owned()), "behind {n}");
        assert_eq!((process.provider.count(), world.executions.count()), (2, 2), "behind {n}");
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_tool_is_gone_waits_for_it_and_goes_on_with_it() {
    let world = World::new().await;
    let dead = world.process(baseline()).await;
    dead.faults.kill_after(5);
    dead.prompt("go").await.killed();
    let without = |options: &mut Options| options.tools.retain(|tool| tool.spec().name != "echo");
    let process = world.process_with(vec![say("done")], without).await;
    for _ in 0..2 {
        let ended = process.go_on().await;
        let Ended::Outcome(Outcome::Waiting(Wait::Blocked(Blocked::Tools { names }))) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(names, ["echo"]);
    }
    assert_eq!((process.faults.transactions().len(), world.tree().as_str()), (0, "u a"));
    assert_eq!(world.state()["batch"]["calls"][0]["status"], "planned");
    let echo = CountingTool::echo().counted(&world.executions);
    let registered = process.harness.register_tool(Arc::new(echo)).unwrap();
    assert_eq!(process.go_on().await.result().status, Status::Completed);
    drop(registered);
    assert_eq!((world.tree().as_str(), world.texts()[2].as_str(), world.executions.count()), ("u a r a", "v", 1));
    check(&world, &[&dead, &process]);
}

/// A custom entry that requests show as a question if it is of type `shown`.
fn showing(options: &mut Options) {
    options.projectors.insert("shown".to_owned(), Arc::new(|_| Some(Message::user("look", Vec::new(), 0))));
}

#[tokio::test(start_paused = true)]
async fn writes_that_wait_are_continued_only_where_the_context_ends_in_a_question() {
    let custom = |custom_type: &str| PendingEntry::Custom { custom_type: custom_type.to_owned(), payload: None };
    let message = |payload: Message| PendingEntry::Message { payload: Arc::new(payload) };
    let head =
        AssistantHead { api: "fake-api".to_owned(), provider: "fake".to_owned(), model: "m1".to_owned(), timestamp: 0 };
    let mut reply = AssistantMessage::pending(&head);
    reply.content = vec![AssistantBlock::text("said")];
    reply.stop_reason = StopReason::Stop;
    let rows = [
        ("hidden", custom("hidden"), None),
        ("a reply", message(Message::Assistant(reply)), None),
        ("shown", custom("shown"), Some("u a x a")),
        ("a question", message(Message::user("and?", Vec::new(), 0)), Some("u a u a")),
    ];
    for (name, entry, tree) in rows {
        let world = World::new().await;
        let process = world.process_with(vec![say("one"), say("two")], showing).await;
        // Behind a whole reply; the abort keeps the run from placing what was written.
        let write_and_abort = async |process: &Process| {
            let (written, aborted) =
                tokio::join!(process.lane.append(entry.clone()), process.lane.abort(CancelCause::Int));
            assert!(written.is_ok() && aborted.is_ok(), "{name}");
        };
        assert_eq!(process.prompt_and(5, write_and_abort).await.result().status, Status::Aborted, "{name}");
        let kinds: Vec<InboxKind> = process.lane.inbox().iter().map(|item| item.kind).collect();
        assert_eq!((kinds, world.tree().as_str()), (vec![InboxKind::Write], "u a"), "{name}");
        let stored = process.faults.steps().len();
        let ended = process.go_on().await;
        if let Some(tree) = tree {
            assert_eq!((ended.result().status, world.tree().as_str()), (Status::Completed, tree), "{name}");
        } else {
            assert!(matches!(ended, Ended::Refused(RunError::NothingToContinue)), "{name}: {ended:?}");
            assert_eq!((process.faults.steps().len(), process.lane.inbox().len()), (stored, 1), "{name}");
        }
        check(&world, &[&process]);
    }
}

/// Another model, of another provider.
fn other(provider: &str, id: &str) -> LaneConfig {
    LaneConfig { model: LaneModel { provider: provider.to_owned(), model_id: id.to_owned() }, ..config("m1") }
}

#[tokio::test(start_paused = true)]
async fn fallbacks_without_a_key_count_only_on_the_way_to_one_that_has_a_key() {
    let keyless = |options: &mut Options, providers: &[&str]| {
        let keyless = providers.iter().map(|provider| (*provider).to_owned()).collect();
        options.models = Arc::new(FakeModels { keyless, gone: Vec::new() });
        options.settings.fallbacks = vec![other("p2", "m2"), other("p3", "m3")];
    };
    let fallbacks = |process: &Process| -> Vec<String> {
        let told = told(process).into_iter();
        told.filter(|word| word.starts_with("model_fallback")).collect()
    };
    for failure in ["401 unauthorized", "503 overloaded"] {
        let world = World::new().await;
        let script = (0..4).map(|_| err(failure)).collect();
        let process = world.process_with(script, |options| keyless(options, &["p2", "p3"])).await;
        let result = process.prompt("go").await.result();
        assert_eq!((result.status, result.stop_reason), (Status::Failed, Some(StopReason::Error)), "{failure}");
        assert_eq!(result.error.as_ref().map(|error| error.message.as_str()), Some(failure));
        assert_eq!(fallbacks(&process), Vec::<String>::new(), "{failure}");
        assert!(models(&process).iter().all(|model| model == "m1"), "{failure}");
        check(&world, &[&process]);
    }
    let world = World::new().await;
    let process =
        world.process_with(vec![err("401 unauthorized"), say("ok")], |options| keyless(options, &["p2"])).await;
    assert_eq!(process.prompt("go").await.result().status, Status::Completed);
    assert_eq!(fallbacks(&process), ["model_fallback{fake/m1,p2/m2}", "model_fallback{p2/m2,p3/m3}"]);
    assert_eq!(models(&process), ["m1", "m3"]);
    check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_stands_behind_what_others_left_before_it() {
    let world = World::new().await;
    let shelf = Arc::new(Shelf::default());
    shelf.steer("left first", world.clock.now_ms());
    shelf.steer("left second", world.clock.now_ms() + 1);
    let inbox: Arc<dyn Inbox> = shelf.clone();
    let process = world
        .process_with(vec![say("ok")], |options| {
            options.inbox = Some(inbox);
            options.settings.steering_mode = QueueMode::All;
        })
        .await;
    assert_eq!(process.prompt("go").await.result().status, Status::Completed);
    assert_eq!(world.texts(), ["left first", "left second", "go", "ok"]);
    assert!(shelf.is_empty());
    check(&world, &[&process]);
}

/// Shows a body to whoever wants to see it, and keeps what became of that.
struct Posting {
    replies: Arc<ScriptedProvider>,
    sent: Mutex<Vec<Value>>,
}

impl Provider for Posting {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let body = json!({ "by": [] });
        let seen = request.options.observers.on_payload.as_ref().and_then(|observe| observe(&body));
        self.sent.lock().unwrap().push(seen.unwrap_or(body));
        self.replies.stream(request, cancel)
    }
}

/// Adds its name to a body, or panics.
struct Signs {
    name: &'static str,
    panics: bool,
}

#[async_trait]
impl Hooks for Signs {
    fn name(&self) -> &str {
        self.name
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == HookPoint::BeforePayload
    }

    fn before_payload(&self, payload: &Value) -> Option<Value> {
        assert!(!self.panics, "a hook of the test panics");
        let mut by = payload["by"].as_array().unwrap().clone();
        by.push(json!(self.name));
        Some(json!({ "by": by }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_on_a_body_is_passed_over_and_told() {
    let world = World::new().await;
    let posting = Arc::new(Posting { replies: ScriptedProvider::new(vec![say("ok")]), sent: Mutex::default() });
    let provider = posting.clone();
    let process = world
        .process_with(Vec::new(), |options| {
            options.provider = provider;
            for (name, panics) in [("first", false), ("broken", true), ("last", false)] {
                options.hooks.push(Arc::new(Signs { name, panics }));
            }
        })
        .await;
    assert_eq!(process.prompt("go").await.result().status, Status::Completed);
    assert_eq!(*posting.sent.lock().unwrap(), [json!({ "by": ["first", "last"] })]);
    let name = |told: LaneEvent| match told.event {
        Event::HandlerError { kind: HandlerKind::Hook, name, error } => Some((name, error.contains("panicked"))),
        _ => None,
    };
    let errors: Vec<_> = process.heard.events().into_iter().filter_map(name).collect();
    assert_eq!(errors, [("broken".to_owned(), true)]);
    check(&world, &[&process]);
}

/// What a lane shows of its open operation: the reply that streams, and the calls that run.
fn shown(lane: &Lane) -> (Option<String>, Vec<String>) {
    let operation = lane.snapshot().operation.unwrap();
    let reply = operation.streaming_message().map(|reply| reply.text());
    (reply, operation.running_tools.into_iter().map(|tool| tool.tool_call_id).collect())
}

#[tokio::test(start_paused = true)]
async fn nothing_streams_or_runs_in_a_snapshot_behind_a_call_that_was_dropped() {
    for (reply, running) in
        [(half(), (Some("hel".to_owned()), Vec::new())), (calls(vec![slow("c1")]), (None, vec!["c1".to_owned()]))]
    {
        let world = World::new().await;
        let process = world.process(vec![reply, say("done"), say("done")]).await;
        let underway = async {
            tokio::select! {
                () = world.executions.begun(1) => {}
                () = process.provider.stalled(1) => {}
            }
            shown(&process.lane)
        };
        let seen = tokio::select! {
            biased;
            ended = process.prompt("go") => panic!("{ended:?}"),
            seen = underway => seen,
        };
        assert_eq!(seen, running);
        assert_eq!(shown(&process.lane), (None, Vec::new()), "behind {running:?}");
        assert_eq!(process.go_on().await.result().status, Status::Completed);
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_that_are_registered_in_a_batch_are_asked_from_the_next_request_on() {
    for execution in [Execution::Sequential, Execution::Parallel] {
        let world = World::new().await;
        let (harness, watch) = (Arc::new(OnceLock::<Harness>::new()), Watch::new().shared());
        let (of_tool, registered) = (Arc::clone(&harness), Arc::clone(&watch));
        let registering = CountingTool::echo().counted(&world.executions).awaiting(move || {
            of_tool.get().unwrap().register_hooks(registered.clone()).forever();
            Box::pin(std::future::ready(()))
        });
        let script = vec![calls(vec![echo("c1", "v"), boom("c2")]), calls(vec![boom("c3")]), say("done")];
        let process = world
            .process_with(script, |options| {
                options.tools[0] = Arc::new(registering);
                options.settings.tool_execution = execution;
            })
            .await;
        assert!(harness.set(process.harness.clone()).is_ok());
        assert_eq!(process.prompt("go").await.result().status, Status::Completed);
        let request = ["before_request", "after_response"];
        let expected = [&request[..], &["before_tool c3", "after_tool c3"], &request, &["before_run_end"]].concat();
        assert_eq!(watch.asked(), expected, "{execution:?}");
        check(&world, &[&process]);
    }
}

/// Polls something once, and tells whether it waits.
async fn begun<T>(work: &mut Pin<Box<impl Future<Output = T>>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_due_while_a_new_configuration_is_being_stored_is_not_made() {
    let world = World::new().await;
    let process = world.process(vec![err("503 overloaded"), say("ok")]).await;
    let configure = async |process: &Process| {
        world.clock.sleep(Duration::from_millis(5)).await;
        // It keeps the line from `TX6` on, over the end of the wait.
        process.faults.on_commit(6, || {});
        let mut configured = Box::pin(process.lane.configure(config("m2")));
        assert!(begun(&mut configured).await);
        world.clock.sleep(Duration::from_millis(20)).await;
        assert_eq!((process.faults.transactions().len(), process.provider.count()), (6, 1));
        configured.await.unwrap();
    };
    let result = in_time(&world, process.prompt_and(5, configure)).await.result();
    assert_eq!((result.status, world.tree().as_str()), (Status::Completed, "u a!err a"));
    assert_eq!(models(&process), ["m1", "m2"]);
    let retries: Vec<String> = told(&process).into_iter().filter(|word| word.starts_with("retry_")).collect();
    assert_eq!(retries, ["retry_scheduled{2,4,10}", "retry_end{1,false}"]);
    check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_with_a_key_that_comes_while_a_model_without_one_is_passed_over_is_asked() {
    let world = World::new().await;
    let process = world
        .process_with(vec![say("ok")], |options| {
            options.models = Arc::new(FakeModels { keyless: vec!["fake".to_owned()], gone: Vec::new() });
            options.settings.fallbacks = vec![other("p3", "m3")];
        })
        .await;
    let configure = async |process: &Process| process.lane.configure(other("p2", "m2")).await.unwrap();
    let result = in_time(&world, process.prompt_and(3, configure)).await.result();
    assert_eq!((result.status, world.tree().as_str()), (Status::Completed, "u a"));
    assert_eq!(models(&process), ["m2"]);
    check(&world, &[&process]);
}

/// Does something at the first event that it waits for.
struct AtEvent {
    is_it: fn(&Event) -> bool,
    lane: OnceLock<Lane>,
    /// The event has come.
    came: Notify,
    /// It may go on.
    go: Notify,
}

impl AtEvent {
    fn new(is_it: fn(&Event) -> bool) -> Arc<Self> {
        Arc::new(Self { is_it, lane: OnceLock::new(), came: Notify::new(), go: Notify::new() })
    }
}

#[async_trait]
impl Listener for AtEvent {
    async fn on_event(&self, told: &LaneEvent) {
        if (self.is_it)(&told.event) {
            self.came.notify_one();
            self.go.notified().await;
            self.lane.get().unwrap().steer("heard").await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_may_steer_while_a_batch_of_frames_waits_for_the_line() {
    let is_it = |event: &Event| matches!(event, Event::MessageUpdate { event: BlockEvent::TextDelta(text), .. } if text == "late");
    let (world, listener) = (World::new().await, AtEvent::new(is_it));
    let head =
        AssistantHead { api: "fake-api".to_owned(), provider: "fake".to_owned(), model: "m1".to_owned(), timestamp: 0 };
    let mut message = AssistantMessage::pending(&head);
    message.content = vec![AssistantBlock::text("early late")];
    message.stop_reason = StopReason::Stop;
    let block = |event| Act::Emit(AssistantEvent::Block { index: 0, event });
    let slowly = Reply::raw(vec![
        Act::Emit(AssistantEvent::Start(head)),
        block(BlockEvent::TextStart),
        block(BlockEvent::TextDelta("early ".to_owned())),
        // Frames are due before it is over.
        Act::Sleep(Duration::from_secs(1)),
        block(BlockEvent::TextDelta("late".to_owned())),
        block(BlockEvent::TextEnd { content: "early late".to_owned(), signature: None }),
        Act::Emit(AssistantEvent::End(Box::new(message))),
    ]);
    let process =
        world.process_with(vec![slowly, say("two")], |options| options.settings.steering_mode = QueueMode::All).await;
    assert!(listener.lane.set(process.lane.clone()).is_ok());
    process.harness.subscribe(listener.clone()).forever();
    let steer = async {
        world.clock.sleep(Duration::from_millis(10)).await;
        // It keeps the line from `TX5` on, until the late text is heard.
        process.faults.on_commit(5, || {});
        let mut steered = Box::pin(process.lane.steer("beside"));
        assert!(begun(&mut steered).await);
        listener.came.notified().await;
        listener.go.notify_one();
        steered.await.unwrap();
    };
    let (ended, ()) = in_time(&world, async { tokio::join!(process.prompt("go"), steer) }).await;
    assert_eq!(ended.result().status, Status::Completed);
    assert_eq!(world.texts(), ["go", "early late", "beside", "heard", "two"]);
    assert!(process.faults.story().iter().any(|line| line.starts_with("side ")), "frames were kept");
    check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_is_dropped_behind_its_commit_ends_the_run() {
    for (reply, n, tree) in [(half(), 5, "u a!ab"), (calls(vec![slow("c1")]), 7, "u a r")] {
        let world = World::new().await;
        let process = world.process(vec![reply, say("never")]).await;
        let dropped = async {
            tokio::select! {
                () = world.executions.begun(1) => {}
                () = process.provider.stalled(1) => {}
            }
            // Nobody hears that it is stored.
            process.faults.on_commit(n, || {});
            assert!(begun(&mut Box::pin(process.lane.abort(CancelCause::Int))).await);
            assert_eq!(world.state()["control"]["status"], "cancel_requested", "{tree}");
        };
        let (ended, ()) = in_time(&world, async { tokio::join!(process.prompt("go"), dropped) }).await;
        let result = ended.result();
        assert_eq!((result.status, result.cause), (Status::Aborted, Some(CancelCause::Int)), "{tree}");
        assert_eq!((world.tree().as_str(), process.provider.count()), (tree, 1));
        check(&world, &[&process]);
    }
}
