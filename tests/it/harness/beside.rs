//! What goes on while something of a run is waited for: calls beside the jobs of their batch, frames beside a listener,
//! and what comes in between from outside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use pirn::harness::{Lane, LaneError, Listener, Options, Registration, RunError};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantBlock, AssistantHead, BlockEvent, CancelCause, Content, Event, Execution, LaneEvent, Message, Status,
    ToolResultView,
};
use pirn::port::{
    AssistantEvent, BeforeRequest, BeforeRequestAnswer, BeforeRun, BeforeRunAnswer, BeforeRunEnd, BeforeRunEndAnswer,
    BeforeTool, BeforeToolAnswer, Clock, HookFailure, HookPoint, Hooks, Ids, Tool, ToolCtx, ToolOutput, ToolSpec,
    Transformed,
};
use pirn::testing::{Act, CountingTool, Reply, RuntimeClock};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::concurrent::in_time;
use super::invariants::check;
use super::retry::{err, told};
use super::tools::boom;
use super::watch::Watch;
use super::world::{Ended, Process, World, baseline, calls, config, echo, say};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Does what the words of its `value` say, one after another; a number waits so many milliseconds.
struct Acting {
    spec: ToolSpec,
    clock: Arc<RuntimeClock>,
    lane: Arc<OnceLock<Lane>>,
    done: Arc<Notify>,
}

#[async_trait]
impl Tool for Acting {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        let lane = self.lane.get().unwrap();
        let words = args["value"].as_str().unwrap();
        for word in words.split_whitespace() {
            match word {
                "steer" => drop(lane.steer("s1").await.unwrap()),
                "abort" => drop(lane.abort(CancelCause::Int).await.unwrap()),
                "progress" => {
                    // Another text each time.
                    let content = vec![Content::text(self.clock.monotonic_ms().to_string())];
                    let _told = ctx.updates.send(ToolResultView { content, ..ToolResultView::default() }, true).await;
                }
                "keep" => ctx.memos.set("child", json!(7)).await.unwrap(),
                "recall" => return ToolOutput::text(format!("{:?}", ctx.memos.get("child").await)),
                "done" => self.done.notify_one(),
                number => self.clock.sleep(ms(number.parse().unwrap())).await,
            }
        }
        ToolOutput::text(words)
    }
}

/// Whether it is the event that is waited for.
type Hears = fn(&Event) -> bool;

/// Waits when it hears something for the first time.
struct Waiting {
    hears: Hears,
    /// What it waits for, until it was waited for.
    wait: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Waiting {
    fn new(hears: Hears, wait: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        Arc::new(Self { hears, wait: Mutex::new(Some(Box::pin(wait))) })
    }
}

#[async_trait]
impl Listener for Waiting {
    async fn on_event(&self, told: &LaneEvent) {
        let wait = if (self.hears)(&told.event) { self.wait.lock().unwrap().take() } else { None };
        if let Some(wait) = wait {
            wait.await;
        }
    }
}

/// A process whose `echo` does what it is told, with these calls, at most two at a time; and what `done` tells.
async fn acting(world: &World, values: &[&str]) -> (Process, Arc<Notify>) {
    acting_with(world, values, |_| {}).await
}

/// The same, with other options.
async fn acting_with(world: &World, values: &[&str], change: impl FnOnce(&mut Options)) -> (Process, Arc<Notify>) {
    let (lane, done) = (Arc::<OnceLock<Lane>>::default(), Arc::new(Notify::new()));
    let spec = CountingTool::echo().spec().clone();
    let tool = Acting { spec, clock: world.clock.clone(), lane: Arc::clone(&lane), done: Arc::clone(&done) };
    let blocks: Vec<AssistantBlock> =
        values.iter().enumerate().map(|(n, value)| echo(&format!("c{n}"), value)).collect();
    let process = world
        .process_with(vec![calls(blocks), say("one"), say("two")], |options| {
            options.tools[0] = Arc::new(tool);
            options.limits.max_parallel = 2;
            change(options);
        })
        .await;
    assert!(lane.set(process.lane.clone()).is_ok());
    (process, done)
}

fn ends_a_call(event: &Event) -> bool {
    matches!(event, Event::ToolEnd { .. })
}

#[tokio::test(start_paused = true)]
async fn a_call_that_holds_the_line_of_its_lane_goes_on_whatever_its_batch_waits_for() {
    // What `TXn` stores is in the store at once, and whoever stores it hears that a second later.
    let rows: [(&str, &[&str], usize, &str); 6] = [
        ("a call ends", &["steer", "100"], 8, "u a r r u a"),
        ("a call ends under an abort", &["abort", "100"], 8, "u a r r"),
        ("progress comes", &["steer", "100 progress"], 8, "u a r r u a"),
        ("progress that waited is due", &["900 steer", "progress 100 progress 2000"], 8, "u a r r u a"),
        ("a call is about to start", &["1", "2 steer", "1"], 9, "u a r r r u a"),
        ("a call is about to start under an abort", &["1", "2 abort", "1"], 9, "u a r r r"),
    ];
    for (name, values, n, tree) in rows {
        let world = World::new().await;
        let (process, _) = acting(&world, values).await;
        let clock = world.clock.clone();
        process.faults.hold(n, async move { clock.sleep(ms(1_000)).await });
        // The first end is told slowly: the next call starts when the line is held.
        let clock = world.clock.clone();
        let slowly = Waiting::new(ends_a_call, async move { clock.sleep(ms(5)).await });
        process.harness.subscribe(slowly).forever();
        let result = in_time(&world, process.prompt("go")).await.result();
        let ends = if values.iter().any(|value| value.contains("abort")) { Status::Aborted } else { Status::Completed };
        assert_eq!((result.status, world.tree().as_str()), (ends, tree), "{name}");
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_may_wait_at_an_event_of_a_call_for_what_another_call_does() {
    let is_c0 = |event: &Event| matches!(event, Event::ToolEnd { tool_call_id, .. } if tool_call_id == "c0");
    let is_c2 = |event: &Event| matches!(event, Event::ToolStart { tool_call_id, .. } if tool_call_id == "c2");
    let rows: [(&str, &[&str], Hears); 3] = [
        ("progress", &["progress", "100 done"], |event| matches!(event, Event::ToolUpdate { .. })),
        ("an end", &["1", "100 done"], is_c0),
        ("a start", &["1", "100 done", "1"], is_c2),
    ];
    for (name, values, hears) in rows {
        let world = World::new().await;
        let (process, done) = acting(&world, values).await;
        let waiting = Waiting::new(hears, async move { done.notified().await });
        process.harness.subscribe(waiting.clone()).forever();
        let result = in_time(&world, process.prompt("go")).await.result();
        assert_eq!(
            (result.status, world.texts().last().map(String::as_str)),
            (Status::Completed, Some("one")),
            "{name}"
        );
        assert!(waiting.wait.lock().unwrap().is_none(), "{name}: it was heard");
        check(&world, &[&process]);
    }
}

fn is_delta(event: &Event, text: &str) -> bool {
    matches!(event, Event::MessageUpdate { event: BlockEvent::TextDelta(delta), .. } if delta == text)
}

#[tokio::test(start_paused = true)]
async fn frames_are_stored_though_the_stream_always_has_more() {
    let world = World::new().await;
    let head = AssistantHead { api: "fake-api".into(), provider: "fake".into(), model: "m1".into(), timestamp: 0 };
    let block = |event| Act::Emit(AssistantEvent::Block { index: 0, event });
    let mut acts = vec![Act::Emit(AssistantEvent::Start(head)), block(BlockEvent::TextStart)];
    acts.extend(["a", "b", "c"].map(|delta| block(BlockEvent::TextDelta(delta.to_owned()))));
    acts.push(Act::Hang);
    let process = world.process(vec![Reply::raw(acts)]).await;
    // The first delta is older than a frame may be when it is told, and at the last one the process dies.
    let clock = world.clock.clone();
    let slowly = Waiting::new(|event| is_delta(event, "a"), async move { clock.sleep(ms(300)).await });
    let faults = process.faults.clone();
    let dies = Waiting::new(|event| is_delta(event, "c"), async move { faults.kill() });
    process.harness.subscribe(slowly).forever();
    process.harness.subscribe(dies).forever();
    in_time(&world, process.prompt("go")).await.killed();
    let next = world.process(vec![say("again")]).await;
    assert_eq!(next.go_on().await.result().status, Status::Completed);
    assert_eq!(world.texts(), ["go", "a", "again"]);
    check(&world, &[&process, &next]);
}

/// Every id begins with all earlier ones.
#[derive(Default)]
struct Unary(AtomicUsize);

impl Ids for Unary {
    fn next_id(&self) -> String {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        format!("i{}", "1".repeat(n))
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_call_keeps_outlives_the_end_of_another_one_whose_id_begins_alike() {
    let world = World::new().await;
    let (process, _) =
        acting_with(&world, &["1", "keep 100 recall"], |options| options.ids = Arc::new(Unary::default())).await;
    assert_eq!(process.prompt("go").await.result().status, Status::Completed);
    let ids: Vec<String> = world.path()[2..4].iter().map(|entry| entry.id.to_string()).collect();
    assert!(ids[1].starts_with(&ids[0]), "{ids:?}");
    assert_eq!(world.texts()[2..4], ["1", "Some(Number(7))"]);
    check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_behind_an_interrupted_request_begins_a_new_step_with_the_first_model() {
    // The process died in the first request, or in that to a fallback.
    for (n, script) in [(4, vec![say("never")]), (6, vec![err("401 unauthorized"), say("never")])] {
        let world = World::new().await;
        let dead = world.process_with(script, |options| options.settings.fallbacks = vec![config("f1")]).await;
        dead.faults.kill_after(n);
        dead.prompt("go").await.killed();
        assert_eq!(world.state()["at"], "assistant.effect_pending", "killed behind {n}");
        let asked: Arc<Mutex<Vec<(String, u32)>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let watch = Watch::new().before_request(move |request| {
            seen.lock().unwrap().push((request.model.id.clone(), request.attempt));
            BeforeRequestAnswer::default()
        });
        let script = vec![err("401 unauthorized"), say("ok")];
        let next = world.process_with(script, |options| options.hooks = vec![watch.shared()]).await;
        next.lane.configure(config("m2")).await.unwrap();
        assert_eq!(world.state()["fallbackIndex"].as_u64().unwrap_or_default(), 0, "killed behind {n}");
        assert_eq!(next.go_on().await.result().status, Status::Completed, "killed behind {n}");
        // The fallbacks of the run are all there again.
        assert_eq!(*asked.lock().unwrap(), [("m2".to_owned(), 1), ("f1".to_owned(), 1)], "killed behind {n}");
        let scheduled: Vec<String> = told(&next).into_iter().filter(|word| word.starts_with("retry_")).collect();
        assert_eq!(scheduled, ["retry_scheduled{1,4,0}", "retry_start{1}"], "killed behind {n}");
        check(&world, &[&dead, &next]);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_in_a_session_that_was_closed_behind_its_intent() {
    let starts_call = |event: &Event| matches!(event, Event::ToolStart { .. });
    let starts_turn = |event: &Event| matches!(event, Event::TurnStart { turn: 2 });
    let rows: [(&str, Hears, usize); 2] = [("a call", starts_call, 0), ("a request", starts_turn, 1)];
    for (name, hears, executed) in rows {
        let world = World::new().await;
        let process = world.process(baseline()).await;
        let harness = process.harness.clone();
        let closes = Waiting::new(hears, async move { harness.close().await.unwrap() });
        process.harness.subscribe(closes).forever();
        let ended = in_time(&world, process.prompt("go")).await;
        assert!(matches!(ended, Ended::Refused(RunError::Closed)), "{name}: {ended:?}");
        assert_eq!((process.provider.count(), world.executions.count()), (1, executed), "{name}");
        process.faults.kill();
        let next = world.process(vec![say("done")]).await;
        assert_eq!(next.go_on().await.result().status, Status::Completed, "{name}");
        check(&world, &[&process, &next]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_can_not_be_stored_is_none_and_its_fault_is_told_on_those_there_are() {
    let world = World::new().await;
    let process = world.process(Vec::new()).await;
    process.harness.create_lane("other", None, config("m1")).await.unwrap();
    process.faults.fail_side(namespace::LANE_CONFIG);
    let made = process.harness.create_lane("third", None, config("m1")).await;
    assert!(matches!(made, Err(LaneError::Faulted(_))), "{made:?}");
    let lane = |told: LaneEvent| matches!(told.event, Event::Fault { .. }).then(|| told.lane.to_string());
    let told: Vec<String> = process.heard.events().into_iter().filter_map(lane).collect();
    assert_eq!(told, ["main", "other"]);
    let lanes: Vec<String> = process.harness.lanes().into_iter().map(|lane| lane.name).collect();
    assert_eq!(lanes, ["main", "other"]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_whose_making_was_dropped_is_there_as_far_as_it_is_stored() {
    // Before it is its turn, and behind its commit.
    for is_stored in [false, true] {
        let world = World::new().await;
        let process = world.process(Vec::new()).await;
        let clock = world.clock.clone();
        let hold = async move { clock.sleep(ms(1_000)).await };
        if is_stored {
            process.faults.hold_side(namespace::LANE_CONFIG, hold);
        } else {
            process.faults.hold(1, hold);
        }
        let making = async {
            tokio::select! {
                biased;
                made = process.harness.create_lane("other", None, config("m1")) => panic!("{made:?}"),
                () = world.clock.sleep(ms(100)) => {}
            }
        };
        if is_stored {
            making.await;
        } else {
            let (queued, ()) = tokio::join!(process.lane.next_run("n1"), making);
            queued.unwrap();
        }
        let again = process.harness.create_lane("other", None, config("m2")).await;
        assert_eq!(matches!(again, Err(LaneError::Exists(_))), is_stored, "{again:?}");
        let model = process.harness.lane("other").unwrap().configuration().unwrap().model.model_id;
        assert_eq!(model, if is_stored { "m1" } else { "m2" });
    }
}

/// Takes a while at one point.
struct Slow {
    point: HookPoint,
    clock: Arc<RuntimeClock>,
    entered: Notify,
}

impl Slow {
    async fn wait<T: Default>(&self) -> Result<T, HookFailure> {
        self.entered.notify_one();
        self.clock.sleep(ms(100)).await;
        Ok(T::default())
    }
}

#[async_trait]
impl Hooks for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == self.point
    }

    async fn before_run(&self, _: BeforeRun<'_>, _: &CancellationToken) -> Result<BeforeRunAnswer, HookFailure> {
        self.wait().await
    }

    async fn transform_context(
        &self,
        _: &[Arc<Message>],
        _: &str,
        _: &CancellationToken,
    ) -> Result<Transformed, HookFailure> {
        self.wait().await
    }

    async fn before_request(
        &self,
        _: BeforeRequest<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRequestAnswer, HookFailure> {
        self.wait().await
    }

    async fn before_tool(&self, _: BeforeTool<'_>, _: &CancellationToken) -> Result<BeforeToolAnswer, HookFailure> {
        self.wait().await
    }

    async fn before_run_end(
        &self,
        _: BeforeRunEnd<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRunEndAnswer, HookFailure> {
        self.wait().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_is_dropped_while_hooks_are_asked_lets_them_be_asked_again() {
    for point in [
        HookPoint::BeforeRun,
        HookPoint::TransformContext,
        HookPoint::BeforeRequest,
        HookPoint::BeforeTool,
        HookPoint::BeforeRunEnd,
    ] {
        let world = World::new().await;
        let hook = Arc::new(Slow { point, clock: world.clock.clone(), entered: Notify::new() });
        let (slow, watch) = (hook.clone(), Watch::new().shared());
        let mut script = baseline();
        script.push(say("more"));
        let process = world.process_with(script, |options| options.hooks = vec![slow, watch]).await;
        // The abort waits for its turn while the first hook answers and nobody asks the second one.
        let abort = async {
            hook.entered.notified().await;
            let clock = world.clock.clone();
            process.faults.hold(process.faults.transactions().len() + 1, async move { clock.sleep(ms(1_000)).await });
            let dropped = async {
                world.clock.sleep(ms(10)).await;
                tokio::select! {
                    biased;
                    aborted = process.lane.abort(CancelCause::Int) => panic!("{point:?}: {aborted:?}"),
                    () = world.clock.sleep(ms(200)) => {}
                }
            };
            let (steered, ()) = tokio::join!(process.lane.steer("s1"), dropped);
            steered.unwrap();
        };
        let (ended, ()) = in_time(&world, async { tokio::join!(process.prompt("go"), abort) }).await;
        assert_eq!(ended.result().status, Status::Completed, "{point:?}");
        assert_eq!(world.executions.count(), 1, "{point:?}");
        assert!(world.texts().contains(&"s1".to_owned()) && process.lane.inbox().is_empty(), "{point:?}");
        assert!(!process.heard.names().contains(&"operation_abort".to_owned()), "{point:?}");
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_that_are_taken_away_in_a_batch_are_asked_until_its_end() {
    for execution in [Execution::Sequential, Execution::Parallel] {
        let (world, watch) = (World::new().await, Watch::new().shared());
        let registered: Arc<Mutex<Option<Registration>>> = Arc::default();
        let of_tool = Arc::clone(&registered);
        let taking = CountingTool::echo().counted(&world.executions).awaiting(move || {
            drop(of_tool.lock().unwrap().take());
            Box::pin(std::future::ready(()))
        });
        let process = world
            .process_with(vec![calls(vec![echo("c1", "v"), boom("c2")]), say("done")], |options| {
                options.tools[0] = Arc::new(taking);
                options.settings.tool_execution = execution;
            })
            .await;
        *registered.lock().unwrap() = Some(process.harness.register_hooks(watch.clone()));
        assert_eq!(process.prompt("go").await.result().status, Status::Completed);
        let begun = ["before_drive", "before_run", "before_request", "after_response"];
        let batch = match execution {
            Execution::Sequential => ["before_tool c1", "after_tool c1", "before_tool c2", "after_tool c2"],
            Execution::Parallel => ["before_tool c1", "before_tool c2", "after_tool c1", "after_tool c2"],
        };
        assert_eq!(watch.asked(), [begun, batch].concat(), "{execution:?}");
        check(&world, &[&process]);
    }
}
