//! A session that outlives its processes: the fixture of the engine cases.
//!
//! Model `fake/m1`; retries after 10 ms, at most 1 s; queue modes one at a time; parallel tools; a clock that only tests
//! move. Commits are counted from the first one behind the making of the lane; frames and progress do not count.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use pirn::harness::{Drive, Harness, Lane, Listener, Options, Outcome, Retry, RunError, Settled};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantBlock, Entry, EntryBody, Event, Input, LaneConfig, LaneEvent, LaneModel, Message, Model, OperationResult,
    StopReason, Usage,
};
use pirn::port::{AssistantEvent, BranchScan, Credential, EntryScan, LlmRequest, Models, Order, Provider, Store, Tool};
use pirn::session::memory;
use pirn::testing::{CountingTool, Executions, FaultStore, Reply, RuntimeClock, ScriptedProvider, SequentialIds};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::invariants::Mirror;

/// Facts of the models of the fixture.
pub(super) struct FakeModels {
    /// Providers without a key.
    pub(super) keyless: Vec<String>,
    /// Models that are not there.
    pub(super) gone: Vec<String>,
}

impl Models for FakeModels {
    fn resolve(&self, provider: &str, id: &str) -> Option<Model> {
        if self.gone.iter().any(|gone| gone == id) {
            return None;
        }
        let mut model = Model::unknown(provider, id, "fake-api", "");
        model.context_window = 100_000;
        model.max_tokens = 4_096;
        model.input = vec![Input::Text];
        Some(model)
    }

    fn credential(&self, provider: &str) -> Credential {
        if self.keyless.iter().any(|keyless| keyless == provider) {
            return Credential::Missing(vec!["FAKE_KEY".to_owned()]);
        }
        Credential::Present
    }
}

/// What events a process told, in their order.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Vec<LaneEvent>>>);

#[async_trait]
impl Listener for Heard {
    async fn on_event(&self, event: &LaneEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Heard {
    pub(super) fn events(&self) -> Vec<LaneEvent> {
        self.0.lock().unwrap().clone()
    }

    /// Names of events, one word each; updates of one reply in a row are one `message_update+`; `R` marks recovery.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for told in self.events() {
            let base = match &told.event {
                Event::RunStart { .. } => "run_start".to_owned(),
                Event::RunEnd { result, .. } => {
                    let status = result.as_ref().map(|result| format!("{:?}", result.status).to_lowercase());
                    format!("run_end{{{}}}", status.unwrap_or_default())
                }
                Event::MessageUpdate { .. } => "message_update+".to_owned(),
                Event::ToolStart { .. } => "tool_start".to_owned(),
                Event::ToolUpdate { .. } => "tool_update".to_owned(),
                Event::ToolEnd { .. } => "tool_end".to_owned(),
                Event::RetryScheduled { .. } => "retry_scheduled".to_owned(),
                Event::RetryEnd { .. } => "retry_end".to_owned(),
                other => other.name().to_owned(),
            };
            let name = if told.recovery { format!("{base} R") } else { base };
            if name == "message_update+" && names.last() == Some(&name) {
                continue;
            }
            names.push(name);
        }
        names
    }
}

/// A session and what runs on it.
pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<RuntimeClock>,
    pub(super) ids: Arc<SequentialIds>,
    pub(super) executions: Executions,
}

/// One process.
pub(super) struct Process {
    pub(super) harness: Harness,
    pub(super) lane: Lane,
    pub(super) faults: Arc<FaultStore>,
    pub(super) heard: Heard,
    pub(super) provider: Arc<ScriptedProvider>,
    /// What it looked like at every event, for [`super::invariants::check`].
    pub(super) mirror: Mirror,
}

/// How a process ended.
#[derive(Debug)]
pub(super) enum Ended {
    Outcome(Outcome),
    Refused(RunError),
    Killed,
}

impl Ended {
    pub(super) fn result(self) -> Arc<OperationResult> {
        match self {
            Self::Outcome(Outcome::Settled(settled)) => settled.result,
            other => panic!("not settled: {other:?}"),
        }
    }

    pub(super) fn settled(self) -> Settled {
        match self {
            Self::Outcome(Outcome::Settled(settled)) => *settled,
            other => panic!("not settled: {other:?}"),
        }
    }

    pub(super) fn killed(self) {
        assert!(matches!(self, Self::Killed), "it was not killed: {self:?}");
    }
}

/// The usage of every reply of the fixture.
pub(super) fn usage() -> Usage {
    Usage { input: 10, output: 5, total_tokens: 15, ..Usage::default() }
}

/// One text block.
pub(super) fn say(text: &str) -> Reply {
    Reply::text(text).usage(usage())
}

/// Calls, and nothing else.
pub(super) fn calls(calls: Vec<AssistantBlock>) -> Reply {
    Reply::blocks(calls).stop(StopReason::ToolUse).usage(usage())
}

/// `echo` with a value.
pub(super) fn echo(id: &str, value: &str) -> AssistantBlock {
    pirn::testing::call(id, "echo", &serde_json::json!({ "value": value }))
}

/// The baseline: `hi` with one call, then `done`.
pub(super) fn baseline() -> Vec<Reply> {
    let mut content = vec![AssistantBlock::text("hi")];
    content.push(echo("c1", "v"));
    vec![Reply::blocks(content).stop(StopReason::ToolUse).usage(usage()), say("done")]
}

impl World {
    /// An empty session with its lane.
    pub(super) async fn new() -> Self {
        let clock = Arc::new(RuntimeClock::new());
        let store: Arc<dyn Store> = Arc::new(memory(clock.clone()));
        let world = Self { store, clock, ids: Arc::new(SequentialIds::new()), executions: Executions::new() };
        let provider = ScriptedProvider::new(Vec::new());
        Harness::open(world.options(world.store.clone(), provider)).await.unwrap();
        world
    }

    /// The tools of the fixture, with shared counters.
    pub(super) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![
            Arc::new(CountingTool::echo().counted(&self.executions)),
            Arc::new(CountingTool::boom().counted(&self.executions)),
            Arc::new(CountingTool::slow().counted(&self.executions)),
        ]
    }

    pub(super) fn options(&self, store: Arc<dyn Store>, provider: Arc<ScriptedProvider>) -> Options {
        let mut options = Options::new(store, provider);
        options.models = Arc::new(FakeModels { keyless: Vec::new(), gone: Vec::new() });
        options.tools = self.tools();
        options.lane_config = config("m1");
        options.retry = Retry {
            enabled: true,
            max_retries: 3,
            base_delay: Duration::from_millis(10),
            max_delay: Duration::from_secs(1),
        };
        options.clock = self.clock.clone();
        options.ids = self.ids.clone();
        options
    }

    /// A process with a script.
    pub(super) async fn process(&self, script: Vec<Reply>) -> Process {
        self.process_with(script, |_| {}).await
    }

    /// A process with a script and other options.
    pub(super) async fn process_with(&self, script: Vec<Reply>, change: impl FnOnce(&mut Options)) -> Process {
        let faults = FaultStore::new(self.store.clone());
        let provider = ScriptedProvider::new(script);
        let mut options = self.options(faults.clone(), provider.clone());
        change(&mut options);
        let harness = Harness::open(options).await.unwrap();
        let heard = Heard::default();
        harness.subscribe(Arc::new(heard.clone())).forever();
        let lane = harness.lane("main").unwrap();
        let mirror = Mirror::of(&harness, &faults);
        Process { harness, lane, faults, heard, provider, mirror }
    }

    /// The path of lane `main`, oldest first.
    pub(super) fn path(&self) -> Vec<Entry> {
        let tip = self.store.value(namespace::BRANCH_TIP, "main").unwrap();
        let start = tip.as_ref().and_then(Value::as_str).map(pirn::model::EntryId::new);
        self.store.branch(&BranchScan { start, order: Order::OldestFirst, ..BranchScan::default() }).unwrap()
    }

    /// The path in the notation of the cases: `u a r`, with `!err` and `!ab`.
    pub(super) fn tree(&self) -> String {
        let words: Vec<String> = self.path().iter().map(word).collect();
        words.join(" ")
    }

    /// The texts of the path, one an entry.
    pub(super) fn texts(&self) -> Vec<String> {
        self.path().iter().map(text).collect()
    }

    /// Addresses that belong to open operations.
    pub(super) fn open_addresses(&self) -> Vec<String> {
        let mut found = Vec::new();
        for namespace in [
            namespace::OP_META,
            namespace::OP_STATE,
            namespace::TOOL_ARGS,
            namespace::TOOL_MEMO,
            namespace::TOOL_OUTPUT,
            namespace::PENDING_ENTRY,
        ] {
            found.extend(
                self.store.values(namespace, "").unwrap().into_iter().map(|(key, _)| format!("{namespace}/{key}")),
            );
        }
        found
    }

    /// The state of the open operation.
    pub(super) fn state(&self) -> Value {
        let states = self.store.values(namespace::OP_STATE, "").unwrap();
        states.into_iter().next().map_or(Value::Null, |(_, value)| value)
    }

    pub(super) fn results(&self) -> usize {
        self.store.values(namespace::RESULT, "").unwrap().len()
    }
}

impl Process {
    pub(super) async fn prompt(&self, text: &str) -> Ended {
        self.until_killed(self.lane.prompt(text, Drive::default())).await
    }

    pub(super) async fn go_on(&self) -> Ended {
        self.go_on_with(Drive::default()).await
    }

    pub(super) async fn go_on_with(&self, drive: Drive) -> Ended {
        self.until_killed(self.lane.continue_(drive)).await
    }

    /// Prompts, and does something else in the moment in which `TXn` was made, before who made it hears of that.
    pub(super) async fn prompt_and(&self, n: usize, act: impl AsyncFnOnce(&Self)) -> Ended {
        let made = Arc::new(Notify::new());
        let notify = Arc::clone(&made);
        self.faults.on_commit(n, move || notify.notify_one());
        let beside = async {
            made.notified().await;
            act(self).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = self.prompt("go") => ended,
            () = beside => unreachable!("it waits for ever"),
        }
    }

    /// Waits for a call, or for the kill that the store was told of.
    pub(super) async fn until_killed(&self, call: impl Future<Output = Result<Outcome, RunError>>) -> Ended {
        tokio::select! {
            biased;
            () = self.faults.killed() => Ended::Killed,
            ended = call => match ended {
                Ok(outcome) => {
                    nothing_is_left(&*self.faults.surviving());
                    Ended::Outcome(outcome)
                }
                Err(error) => Ended::Refused(error),
            },
        }
    }
}

/// I2: of an operation that is over there is its result, and nothing else beside the tree and the ledger.
fn nothing_is_left(store: &dyn Store) {
    let values = |namespace: &str| store.values(namespace, "").unwrap();
    let lanes = values(namespace::LANE_STATE);
    let open: Vec<&str> = lanes.iter().filter_map(|(_, lane)| lane["currentOperationId"].as_str()).collect();
    for namespace in
        [namespace::OP_META, namespace::OP_STATE, namespace::TOOL_ARGS, namespace::TOOL_MEMO, namespace::TOOL_OUTPUT]
    {
        for (key, _) in values(namespace) {
            let operation = key.split(':').next().unwrap_or_default();
            assert!(open.contains(&operation), "I2: {namespace}/{key} is left of an operation that is over");
        }
    }
    let queued: Vec<&Value> = lanes.iter().filter_map(|(_, lane)| lane["inbox"].as_array()).flatten().collect();
    for (key, _) in values(namespace::PENDING_ENTRY) {
        let waits = !open.is_empty() || queued.iter().any(|item| item["entryId"] == *key);
        assert!(waits, "I2: {}/{key} waits for nothing", namespace::PENDING_ENTRY);
    }
    let entries = store.scan_entries(&EntryScan::default()).unwrap();
    for (operation, _) in values(namespace::RESULT) {
        for entry in &entries {
            let key = format!("{operation}:{}", entry.id);
            let left = store.list(namespace::FRAMES, &key, 0, 1).unwrap();
            assert!(left.values.is_empty(), "I2: {}/{key} is left of a reply that is stored", namespace::FRAMES);
        }
    }
}

pub(super) fn config(model: &str) -> LaneConfig {
    LaneConfig {
        model: LaneModel { provider: "fake".to_owned(), model_id: model.to_owned() },
        thinking_level: None,
        active_tool_names: ["echo", "boom", "slow"].map(str::to_owned).to_vec(),
        extra: Map::new(),
    }
}

fn word(entry: &Entry) -> String {
    let EntryBody::Message { message, .. } = &entry.body else { return "x".to_owned() };
    match &**message {
        Message::User(_) => "u".to_owned(),
        Message::ToolResult(_) => "r".to_owned(),
        Message::Custom(_) => "m".to_owned(),
        Message::Assistant(reply) => match reply.stop_reason {
            StopReason::Error => "a!err".to_owned(),
            StopReason::Aborted => "a!ab".to_owned(),
            _ => "a".to_owned(),
        },
    }
}

fn text(entry: &Entry) -> String {
    let EntryBody::Message { message, .. } = &entry.body else { return String::new() };
    match &**message {
        Message::User(user) => user.content.text(),
        Message::Assistant(reply) => reply.text(),
        Message::ToolResult(result) => {
            result.content.iter().filter_map(|block| block.as_text()).collect::<Vec<_>>().join("\n")
        }
        Message::Custom(_) => String::new(),
    }
}

/// A provider that answers what it is asked, whoever asks: a prompt with the first reply, a result with the second.
pub(super) struct Dialogue {
    replies: Vec<Reply>,
}

impl Dialogue {
    pub(super) fn baseline() -> Arc<Self> {
        Arc::new(Self { replies: baseline() })
    }
}

impl Provider for Dialogue {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let answered = request.messages.iter().any(|message| matches!(**message, Message::ToolResult(_)));
        let reply = self.replies[usize::from(answered)].clone();
        ScriptedProvider::new(vec![reply]).stream(request, cancel)
    }
}
