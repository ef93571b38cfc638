//! Both loops on one script: the same provider, tools and hooks, and a record of what came of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use pirn::agent::{
    AfterPatch, AfterToolCall, Agent, AgentOptions, BeforeDecision, BeforeToolCall, Listener, LoopHooks, Settings,
};
use pirn::harness::{Lane, Outcome};
use pirn::model::{
    CancelCause, Content, Event, ImageBlock, LaneConfig, Message, QueueMode, Reason, StopReason, Thinking, ToolCall,
    ToolResultView, Usage,
};
use pirn::port::{
    AfterTool, AfterToolAnswer, AssistantEvent, BeforeTool, BeforeToolAnswer, Clock, Execution, HookFailure, HookPoint,
    Hooks, LlmRequest, Models, Provider, Replay, SinkError, Source, Store, Tool, ToolCtx, ToolOutput, ToolSpec,
    Transformed,
};
use pirn::session::memory;
use pirn::testing::{Executions, Reply, RuntimeClock, ScriptedProvider, SequentialIds};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::super::invariants::check;
use super::super::world::{Ended, FakeModels, World};
use super::script::{After, Before, Deed, Ending, Exchange, Moment, Plan, Script, Shaping};

/// When a run that waits for nothing but its end is aborted.
const PATIENCE: Duration = Duration::from_secs(600);
/// The name of the hook, which stands in the text of its failure.
const HOOK: &str = "adviser";

/// What came of one prompt.
pub(super) struct Run {
    pub(super) events: Vec<Event>,
    pub(super) requests: Vec<Arc<LlmRequest>>,
    /// What it added to the conversation.
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) reason: Reason,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) cause: Option<CancelCause>,
    /// Something still waits behind it.
    pub(super) waits: bool,
    /// What hooks and tools were asked.
    pub(super) asked: Vec<String>,
    pub(super) aborted: bool,
}

/// The loop of a stage, for who reaches for it from inside.
enum Loop {
    Classic(Agent),
    Durable(Lane),
}

/// What provider, tools and hooks of a stage share.
struct Shared {
    script: Script,
    looping: OnceLock<Loop>,
    asked: Mutex<Vec<String>>,
    /// Messages that were queued.
    queued: AtomicU32,
    shaped: OnceLock<()>,
    aborted: Mutex<bool>,
}

impl Shared {
    fn new(script: &Script) -> Arc<Self> {
        Arc::new(Self {
            script: script.clone(),
            looping: OnceLock::new(),
            asked: Mutex::default(),
            queued: AtomicU32::new(0),
            shaped: OnceLock::new(),
            aborted: Mutex::default(),
        })
    }

    fn write(&self, word: String) {
        self.asked.lock().unwrap().push(word);
    }

    async fn act(&self, deed: Deed) {
        if deed == Deed::Abort {
            *self.aborted.lock().unwrap() = true;
        }
        let text = format!("{deed:?} {}", self.queued.fetch_add(1, Ordering::SeqCst));
        match (self.looping.get().unwrap(), deed) {
            (Loop::Classic(agent), Deed::Steer) => agent.steer(text),
            (Loop::Classic(agent), Deed::FollowUp) => agent.follow_up(text),
            (Loop::Classic(agent), Deed::Abort) => agent.abort_with(CancelCause::Int),
            (Loop::Durable(lane), Deed::Steer) => drop(lane.steer(text).await.unwrap()),
            (Loop::Durable(lane), Deed::FollowUp) => drop(lane.follow_up(text).await.unwrap()),
            (Loop::Durable(lane), Deed::Abort) => drop(lane.abort(CancelCause::Int).await.unwrap()),
        }
    }

    async fn act_at(&self, plan: &Plan, moment: Moment) {
        if let Some((_, deed)) = plan.deed.filter(|(at, _)| *at == moment) {
            self.act(deed).await;
        }
    }

    /// The plan that arguments name, as the model wrote them.
    fn plan(&self, args: &Value) -> (Value, Plan) {
        let place = &args["plan"];
        let at = place.as_u64().or_else(|| place.as_str()?.parse().ok()).unwrap();
        (place.clone(), self.script.plans[usize::try_from(at).unwrap()].clone())
    }

    fn plan_of(&self, call: &ToolCall) -> (Value, Plan) {
        self.plan(&Value::Object(call.arguments.clone()))
    }

    /// The answer of the hook before a call; the error is that of a hook that fails.
    async fn before(&self, call: &ToolCall, args: &Value) -> Result<BeforeToolAnswer, String> {
        self.write(format!("before {} {args}", call.id));
        let (place, plan) = self.plan_of(call);
        self.act_at(&plan, Moment::BeforeHook).await;
        let block = |reason: &str, terminate| BeforeToolAnswer {
            block: Some(reason.to_owned()),
            terminate,
            ..BeforeToolAnswer::default()
        };
        let replace = |args| BeforeToolAnswer { args: Some(args), ..BeforeToolAnswer::default() };
        Ok(match plan.before {
            Before::Pass => BeforeToolAnswer::default(),
            Before::Block { terminate } => block("not this one", terminate),
            Before::BlockSilently => block("", false),
            Before::Replace => replace(json!({"v": "replaced", "plan": place})),
            Before::ReplaceCoerced => replace(json!({"v": 8, "plan": place})),
            Before::ReplaceInvalid => replace(json!({"plan": place})),
            Before::Terminate => BeforeToolAnswer { terminate: true, ..BeforeToolAnswer::default() },
            Before::Fail => return Err("it broke".to_owned()),
        })
    }

    async fn after(&self, call: &ToolCall, args: &Value, output: &ToolOutput) -> AfterToolAnswer {
        self.write(format!("after {} {args} {output:?}", call.id));
        let (_, plan) = self.plan_of(call);
        self.act_at(&plan, Moment::AfterHook).await;
        let unchanged = AfterToolAnswer::default();
        match plan.after {
            After::Pass => unchanged,
            After::Content => AfterToolAnswer { content: Some(vec![Content::text("rewritten")]), ..unchanged },
            After::Details => AfterToolAnswer { details: Some(json!({"by": "hook"})), ..unchanged },
            After::IsError(is_error) => AfterToolAnswer { is_error: Some(is_error), ..unchanged },
            After::Terminate(terminate) => AfterToolAnswer { terminate: Some(terminate), ..unchanged },
            After::Usage => AfterToolAnswer { usage: Some(Usage { input: 3, ..Usage::default() }), ..unchanged },
        }
    }

    async fn shape(&self, messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
        if let Shaping::On(Some(deed)) = self.script.shaping
            && self.shaped.set(()).is_ok()
        {
            self.act(deed).await;
        }
        let first = Arc::new(Message::user("first of all", Vec::new(), 0));
        std::iter::once(first).chain(messages.iter().cloned()).collect()
    }
}

// The provider -----------------------------------------------------------------------------------------------------

/// Plays a script with its deeds.
struct Player {
    inner: Arc<ScriptedProvider>,
    deeds: Mutex<VecDeque<(Vec<Deed>, bool)>>,
    shared: Arc<Shared>,
}

impl Player {
    fn new(exchanges: Vec<Exchange>, shared: &Arc<Shared>) -> Arc<Self> {
        let split = |exchange: Exchange| (exchange.reply, (exchange.queued, exchange.aborts));
        let (mut replies, deeds): (Vec<Reply>, VecDeque<_>) = exchanges.into_iter().map(split).unzip();
        // As many answers as there can be messages that ask for one.
        replies.extend((0..100).map(|_| Reply::text("end")));
        let inner = ScriptedProvider::new(replies);
        Arc::new(Self { inner, deeds: Mutex::new(deeds), shared: Arc::clone(shared) })
    }
}

impl Provider for Player {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let inner = self.inner.stream(request, cancel);
        let (queued, aborts) = self.deeds.lock().unwrap().pop_front().unwrap_or_default();
        let shared = Arc::clone(&self.shared);
        stream::unfold((inner, queued, aborts, shared), |(mut inner, queued, mut aborts, shared)| async move {
            for deed in queued {
                shared.act(deed).await;
            }
            let item = if let Some(item) = inner.next().now_or_never() {
                item
            } else {
                if std::mem::take(&mut aborts) {
                    shared.act(Deed::Abort).await;
                }
                inner.next().await
            };
            item.map(|item| (item, (inner, Vec::new(), aborts, shared)))
        })
        .boxed()
    }
}

// Tools ------------------------------------------------------------------------------------------------------------

/// Does what the plan says that its arguments name.
struct Worker {
    spec: ToolSpec,
    shared: Arc<Shared>,
}

fn tools(shared: &Arc<Shared>) -> Vec<Arc<dyn Tool>> {
    let schema = json!({
        "type": "object",
        "properties": {"v": {"type": "string"}, "plan": {"type": "integer"}},
        "required": ["v", "plan"],
        "additionalProperties": false
    });
    let worker = |name: &str, replay, execution| -> Arc<dyn Tool> {
        let spec = ToolSpec {
            name: name.to_owned(),
            label: name.to_owned(),
            description: "A tool of the scripts.".to_owned(),
            input_schema: schema.clone(),
            output_schema: None,
            replay,
            execution,
            source: Source::Builtin,
            annotations: Map::new(),
        };
        Arc::new(Worker { spec, shared: Arc::clone(shared) })
    };
    vec![
        worker("work", Replay::Never, None),
        worker("alone", Replay::Never, Some(Execution::Sequential)),
        worker("safe", Replay::Safe, Some(Execution::Parallel)),
    ]
}

#[async_trait]
impl Tool for Worker {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        let (clock, (_, plan)) = (RuntimeClock::new(), self.shared.plan(&args));
        self.shared.write(format!("run {} {} {args}", self.spec.name, ctx.tool_call_id));
        for n in 0..plan.updates {
            clock.sleep(plan.delay).await;
            let view =
                ToolResultView { content: vec![Content::text(format!("{n} done"))], ..ToolResultView::default() };
            ctx.updates.send(view, n == 0).await;
        }
        clock.sleep(plan.delay).await;
        self.shared.act_at(&plan, Moment::Tool).await;
        let v = args["v"].as_str().unwrap().to_owned();
        match plan.ending {
            Ending::Text => ToolOutput { details: Some(json!({"v": v})), ..ToolOutput::text(format!("ok {v}")) },
            Ending::Image => {
                let data = "aGk=".to_owned();
                let image = ImageBlock { data, mime_type: "image/png".to_owned(), ..ImageBlock::default() };
                ToolOutput {
                    structured: Some(json!({"n": 1})),
                    content: vec![Content::Image(image)],
                    ..ToolOutput::default()
                }
            }
            Ending::Nothing => ToolOutput::default(),
            Ending::Failure => ToolOutput::failure("tool_error", "bad luck"),
            Ending::SilentFailure => ToolOutput { is_error: true, ..ToolOutput::default() },
            Ending::Panic => panic!("a bad tool"),
            Ending::Terminate => ToolOutput { terminate: true, ..ToolOutput::text("last") },
            Ending::WaitForCancel => {
                ctx.cancel.cancelled().await;
                clock.sleep(Duration::from_millis(plan.delay.subsec_millis().into())).await;
                ToolOutput { terminate: true, ..ToolOutput::failure("aborted", "told to end") }
            }
            Ending::Hang => std::future::pending().await,
        }
    }
}

// Hooks ------------------------------------------------------------------------------------------------------------

struct Adviser(Arc<Shared>);

#[async_trait]
impl LoopHooks for Adviser {
    async fn transform_context(&self, messages: Vec<Arc<Message>>, _: &CancellationToken) -> Vec<Arc<Message>> {
        if self.0.script.shaping == Shaping::Off { messages } else { self.0.shape(&messages).await }
    }

    async fn before_tool_call(
        &self,
        asked: BeforeToolCall<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeDecision, String> {
        if !self.0.script.hooks {
            return Ok(BeforeDecision::default());
        }
        // This port knows no names of hooks: the program that implements it writes the whole text.
        let answer =
            self.0.before(asked.call, asked.args).await.map_err(|text| format!("Hook {HOOK} failed: {text}"))?;
        let BeforeToolAnswer { args, terminate, block, .. } = answer;
        Ok(BeforeDecision { block: block.is_some(), reason: block, args, terminate })
    }

    async fn after_tool_call(&self, asked: AfterToolCall<'_>, _: &CancellationToken) -> Result<AfterPatch, String> {
        if !self.0.script.hooks {
            return Ok(AfterPatch::default());
        }
        let answer = self.0.after(asked.call, asked.args, asked.result).await;
        let AfterToolAnswer { content, details, is_error, usage, terminate, .. } = answer;
        Ok(AfterPatch { content, details, structured: None, is_error, usage, terminate })
    }
}

#[async_trait]
impl Hooks for Adviser {
    fn name(&self) -> &str {
        HOOK
    }

    fn listens(&self, point: HookPoint) -> bool {
        match point {
            HookPoint::BeforeTool | HookPoint::AfterTool => self.0.script.hooks,
            HookPoint::TransformContext => self.0.script.shaping != Shaping::Off,
            _ => false,
        }
    }

    async fn before_tool(&self, asked: BeforeTool<'_>, _: &CancellationToken) -> Result<BeforeToolAnswer, HookFailure> {
        self.0.before(asked.call, asked.args).await.map_err(HookFailure::new)
    }

    async fn after_tool(&self, asked: AfterTool<'_>, _: &CancellationToken) -> Result<AfterToolAnswer, HookFailure> {
        Ok(self.0.after(asked.call, asked.args, asked.output).await)
    }

    async fn transform_context(
        &self,
        messages: &[Arc<Message>],
        _: &str,
        _: &CancellationToken,
    ) -> Result<Transformed, HookFailure> {
        Ok(Transformed { messages: Some(self.0.shape(messages).await), system_prompt: None })
    }
}

// The loops --------------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

#[async_trait]
impl Listener for Heard {
    async fn on_event(&self, event: &Event, _: &CancellationToken) -> Result<(), SinkError> {
        self.0.lock().unwrap().push(event.clone());
        Ok(())
    }
}

/// Waits for a run; one that waits for its end is aborted.
async fn with_patience<T>(shared: &Shared, run: impl Future<Output = T>) -> T {
    let abort = async {
        RuntimeClock::new().sleep(PATIENCE).await;
        shared.act(Deed::Abort).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        ended = run => ended,
        () = abort => unreachable!("it waits for ever"),
    }
}

fn mode(takes_all: bool) -> QueueMode {
    if takes_all { QueueMode::All } else { QueueMode::OneAtATime }
}

fn prompt(at: usize) -> String {
    format!("prompt {at}")
}

/// Plays the script through the agent.
pub(super) async fn classic(script: &Script) -> Vec<Run> {
    let shared = Shared::new(script);
    let player = Player::new(script.exchanges.clone(), &shared);
    let settings = Settings {
        system_prompt: "S".to_owned(),
        model: FakeModels { keyless: Vec::new(), gone: Vec::new() }.resolve("fake", "m1").unwrap(),
        thinking: script.thinking.then_some(Thinking::High),
        tools: tools(&shared),
    };
    let mut options = AgentOptions::new(player.clone(), settings);
    options.hooks = Arc::new(Adviser(Arc::clone(&shared)));
    options.tool_execution = script.tool_execution;
    options.limits.max_parallel = script.max_parallel;
    options.limits.max_turns = script.max_turns;
    (options.steering_mode, options.follow_up_mode) = (mode(script.takes_all.0), mode(script.takes_all.1));
    options.clock = Arc::new(RuntimeClock::new());
    options.ids = Arc::new(SequentialIds::new());
    let agent = Agent::new(options).unwrap();
    let heard = Arc::new(Heard::default());
    agent.subscribe(heard.clone()).forever();
    assert!(shared.looping.set(Loop::Classic(agent.clone())).is_ok());
    let mut runs = Vec::new();
    for at in 0..script.prompts {
        let (asked, before) = (player.inner.count(), agent.state().messages.len());
        let outcome = with_patience(&shared, agent.prompt(prompt(at))).await.unwrap();
        runs.push(Run {
            events: std::mem::take(&mut *heard.0.lock().unwrap()),
            requests: player.inner.requests().split_off(asked),
            messages: agent.state().messages.split_off(before),
            reason: outcome.reason,
            stop_reason: outcome.stop_reason,
            cause: outcome.cause,
            waits: agent.has_queued_messages(),
            asked: std::mem::take(&mut *shared.asked.lock().unwrap()),
            aborted: std::mem::take(&mut *shared.aborted.lock().unwrap()),
        });
        agent.clear_all_queues();
    }
    runs
}

/// What the harness is shown of a script, and which replies are repeated.
fn attempts(script: &Script) -> (Vec<Exchange>, Vec<bool>) {
    let mut shown = Vec::new();
    for exchange in &script.exchanges {
        let hiccup = Exchange {
            reply: if exchange.retryable { exchange.reply.clone() } else { Reply::fail("503 overloaded") },
            queued: Vec::new(),
            aborts: false,
            ..exchange.clone()
        };
        let times = if exchange.retryable { script.attempts - 1 } else { exchange.hiccups };
        shown.extend((0..times).map(|_| (hiccup.clone(), true)));
        shown.push((exchange.clone(), false));
    }
    shown.into_iter().unzip()
}

/// Plays the script through the harness, and holds the session against its invariants.
pub(super) async fn durable(script: &Script) -> Vec<Run> {
    let shared = Shared::new(script);
    let (exchanges, repeated) = attempts(script);
    let player = Player::new(exchanges, &shared);
    let clock = Arc::new(RuntimeClock::new());
    let store: Arc<dyn Store> = Arc::new(memory(clock.clone()));
    let world = World { store, clock, ids: Arc::new(SequentialIds::new()), executions: Executions::new() };
    let process = world
        .process_with(Vec::new(), |options| {
            options.provider = player.clone();
            options.tools = tools(&shared);
            options.hooks = vec![Arc::new(Adviser(Arc::clone(&shared)))];
            "S".clone_into(&mut options.system_prompt);
            options.lane_config = LaneConfig {
                thinking_level: script.thinking.then(|| "high".to_owned()),
                active_tool_names: options.tools.iter().map(|tool| tool.spec().name.clone()).collect(),
                ..options.lane_config.clone()
            };
            options.retry.max_retries = script.attempts - 1;
            options.settings.tool_execution = script.tool_execution;
            options.settings.steering_mode = mode(script.takes_all.0);
            options.settings.follow_up_mode = mode(script.takes_all.1);
            options.limits.max_parallel = script.max_parallel;
            options.limits.max_turns = script.max_turns;
            // The classic loop has no such bound.
            options.limits.max_repeats = 0;
        })
        .await;
    let lane = process.lane.clone();
    assert!(shared.looping.set(Loop::Durable(lane.clone())).is_ok());
    let mut runs = Vec::new();
    for at in 0..script.prompts {
        let (told, asked) = (process.heard.events().len(), player.inner.count());
        let before = lane.messages().len();
        let result = match Box::pin(with_patience(&shared, process.prompt(&prompt(at)))).await {
            Ended::Outcome(Outcome::Settled(settled)) => settled.result,
            other => panic!("not settled: {other:?}"),
        };
        let requests = player.inner.requests().into_iter().enumerate().skip(asked);
        let requests = requests.filter(|(at, _)| !repeated.get(*at).copied().unwrap_or_default());
        runs.push(Run {
            events: process.heard.events().split_off(told).into_iter().map(|told| told.event).collect(),
            requests: requests.map(|(_, request)| request).collect(),
            messages: lane.messages().into_iter().skip(before).map(|(_, message)| message).collect(),
            reason: result.reason,
            stop_reason: result.stop_reason,
            cause: result.cause,
            waits: !lane.inbox().is_empty(),
            asked: std::mem::take(&mut *shared.asked.lock().unwrap()),
            aborted: std::mem::take(&mut *shared.aborted.lock().unwrap()),
        });
        for item in lane.inbox() {
            lane.cancel_queued(&item.entry_id).await.unwrap();
        }
    }
    check(&world, &[&process]);
    runs
}
