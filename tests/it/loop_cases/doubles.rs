//! Tools and hooks made of closures, and a log they write to.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pirn::agent::{
    AfterPatch, AfterToolCall, AfterTurn, BeforeDecision, BeforeToolCall, LoopHooks, NextTurn, TurnContext,
};
use pirn::model::{Message, Secret};
use pirn::port::{Clock, Execution, Replay, Source, Tool, ToolCtx, ToolOutput, ToolSpec};
use pirn::testing::RuntimeClock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Waits on the paused clock.
pub(crate) async fn pause(milliseconds: u64) {
    RuntimeClock::new().sleep(Duration::from_millis(milliseconds)).await;
}

// Tools --------------------------------------------------------------------------------------------------------

type Body = Box<dyn Fn(Value, ToolCtx) -> BoxFuture<'static, ToolOutput> + Send + Sync>;
type Prepare = Box<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// A tool made of closures; its schema is that of `echo` unless told otherwise.
pub(crate) struct TestTool {
    spec: ToolSpec,
    prepare: Option<Prepare>,
    body: Body,
}

pub(crate) fn tool<F, R>(name: &str, body: F) -> TestTool
where
    F: Fn(Value, ToolCtx) -> R + Send + Sync + 'static,
    R: Future<Output = ToolOutput> + Send + 'static,
{
    let schema = json!({"type": "object", "properties": {"v": {"type": "string"}}, "required": ["v"]});
    TestTool {
        spec: ToolSpec {
            name: name.to_owned(),
            label: name.to_owned(),
            description: "A tool of the tests.".to_owned(),
            input_schema: schema,
            output_schema: None,
            replay: Replay::Never,
            execution: None,
            source: Source::Builtin,
            annotations: serde_json::Map::new(),
        },
        prepare: None,
        body: Box::new(move |args, ctx| body(args, ctx).boxed()),
    }
}

impl TestTool {
    pub(crate) fn schema(mut self, schema: Value) -> Self {
        self.spec.input_schema = schema;
        self
    }

    pub(crate) fn execution(mut self, execution: Execution) -> Self {
        self.spec.execution = Some(execution);
        self
    }

    pub(crate) fn prepare(mut self, prepare: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }
}

#[async_trait]
impl Tool for TestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, raw: Value) -> Result<Value, String> {
        self.prepare.as_ref().map_or(Ok(raw.clone()), |prepare| prepare(raw))
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        (self.body)(args, ctx).await
    }
}

/// What `echo` answers.
pub(crate) fn echoed(args: &Value) -> ToolOutput {
    let v = args["v"].as_str().unwrap_or("(no text)");
    ToolOutput { details: Some(json!({"v": args["v"]})), ..ToolOutput::text(format!("ok {v}")) }
}

/// `echo` under another name, slower.
pub(crate) fn echo_tool(name: &str, milliseconds: u64) -> TestTool {
    tool(name, move |args, _| async move {
        if milliseconds > 0 {
            pause(milliseconds).await;
        }
        echoed(&args)
    })
}

/// `echo` that does something first.
pub(crate) fn echo_doing(name: &str, deed: impl Fn() + Send + Sync + 'static) -> TestTool {
    tool(name, move |args, _| {
        deed();
        async move { echoed(&args) }
    })
}

/// `echo` that asks for the end of the run.
pub(crate) fn terminating(name: &str) -> TestTool {
    tool(name, |args, _| async move { ToolOutput { terminate: true, ..echoed(&args) } })
}

pub(crate) fn failing(name: &str, text: &'static str) -> TestTool {
    tool(name, move |_, _| async move { ToolOutput::failure("tool_error", text) })
}

// Hooks --------------------------------------------------------------------------------------------------------

type Before = Box<dyn Fn(BeforeToolCall<'_>) -> Result<BeforeDecision, String> + Send + Sync>;
type After = Box<dyn Fn(AfterToolCall<'_>) -> Result<AfterPatch, String> + Send + Sync>;
type Transform = Box<dyn Fn(Vec<Arc<Message>>) -> Vec<Arc<Message>> + Send + Sync>;
type Key = Box<dyn Fn() -> Option<Secret> + Send + Sync>;
type Prepares = Box<dyn Fn(TurnContext<'_>) -> Result<NextTurn, String> + Send + Sync>;
type Turn = Box<dyn Fn(TurnContext<'_>) -> Result<AfterTurn, String> + Send + Sync>;

/// Hooks made of closures.
#[derive(Default)]
pub(crate) struct TestHooks {
    /// What every hook waits before it answers.
    pub(crate) pause_ms: u64,
    before: Option<Before>,
    after: Option<After>,
    transform: Option<Transform>,
    key: Option<Key>,
    prepare: Option<Prepares>,
    turn: Option<Turn>,
}

impl TestHooks {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn pausing(mut self, milliseconds: u64) -> Self {
        self.pause_ms = milliseconds;
        self
    }

    pub(crate) fn before(
        mut self,
        hook: impl Fn(BeforeToolCall<'_>) -> Result<BeforeDecision, String> + Send + Sync + 'static,
    ) -> Self {
        self.before = Some(Box::new(hook));
        self
    }

    pub(crate) fn after(
        mut self,
        hook: impl Fn(AfterToolCall<'_>) -> Result<AfterPatch, String> + Send + Sync + 'static,
    ) -> Self {
        self.after = Some(Box::new(hook));
        self
    }

    pub(crate) fn transform(
        mut self,
        hook: impl Fn(Vec<Arc<Message>>) -> Vec<Arc<Message>> + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Box::new(hook));
        self
    }

    pub(crate) fn key(mut self, hook: impl Fn() -> Option<Secret> + Send + Sync + 'static) -> Self {
        self.key = Some(Box::new(hook));
        self
    }

    pub(crate) fn prepare(
        mut self,
        hook: impl Fn(TurnContext<'_>) -> Result<NextTurn, String> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(hook));
        self
    }

    pub(crate) fn turn(
        mut self,
        hook: impl Fn(TurnContext<'_>) -> Result<AfterTurn, String> + Send + Sync + 'static,
    ) -> Self {
        self.turn = Some(Box::new(hook));
        self
    }

    async fn wait(&self) {
        if self.pause_ms > 0 {
            pause(self.pause_ms).await;
        }
    }
}

#[async_trait]
impl LoopHooks for TestHooks {
    async fn transform_context(&self, messages: Vec<Arc<Message>>, _cancel: &CancellationToken) -> Vec<Arc<Message>> {
        let Some(hook) = &self.transform else { return messages };
        self.wait().await;
        hook(messages)
    }

    async fn get_api_key(&self, _provider: &str) -> Option<Secret> {
        let hook = self.key.as_ref()?;
        self.wait().await;
        hook()
    }

    async fn before_tool_call(
        &self,
        call: BeforeToolCall<'_>,
        _cancel: &CancellationToken,
    ) -> Result<BeforeDecision, String> {
        let Some(hook) = &self.before else { return Ok(BeforeDecision::default()) };
        self.wait().await;
        hook(call)
    }

    async fn after_tool_call(
        &self,
        call: AfterToolCall<'_>,
        _cancel: &CancellationToken,
    ) -> Result<AfterPatch, String> {
        let Some(hook) = &self.after else { return Ok(AfterPatch::default()) };
        self.wait().await;
        hook(call)
    }

    async fn prepare_next_turn(&self, turn: TurnContext<'_>, _cancel: &CancellationToken) -> Result<NextTurn, String> {
        let Some(hook) = &self.prepare else { return Ok(NextTurn::default()) };
        self.wait().await;
        hook(turn)
    }

    async fn after_turn(&self, turn: TurnContext<'_>, _cancel: &CancellationToken) -> Result<AfterTurn, String> {
        let Some(hook) = &self.turn else { return Ok(AfterTurn::Default) };
        self.wait().await;
        hook(turn)
    }
}

/// Words written down in order, from anywhere.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, word: impl Into<String>) {
        self.0.lock().unwrap().push(word.into());
    }

    pub(crate) fn words(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// All words, joined by a comma.
    pub(crate) fn joined(&self) -> String {
        self.words().join(", ")
    }
}
