//! Who runs when an abort comes, and when each hears of it (case 34, I6).

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use pirn::harness::Options;
use pirn::model::session::namespace;
use pirn::model::{CancelCause, Status};
use pirn::port::{
    AfterResponse, AfterResponseAnswer, AssistantEvent, BeforeRun, BeforeRunAnswer, BeforeRunEnd, BeforeRunEndAnswer,
    BeforeTool, BeforeToolAnswer, HookFailure, HookPoint, Hooks, LlmRequest, Provider, Store, Tool, ToolCtx,
    ToolOutput, ToolSpec,
};
use pirn::testing::ScriptedProvider;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::abort::half;
use super::invariants::check;
use super::world::{World, baseline};

/// What hears of a cancellation: it looks at the store in the very moment in which the token fires, whoever runs then.
struct Alarm {
    store: Arc<dyn Store>,
    /// The state of control at each alarm.
    heard: Mutex<Vec<String>>,
    armed: Notify,
    waits: Mutex<Vec<Pin<Box<WaitForCancellationFutureOwned>>>>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        let states = self.store.values(namespace::OP_STATE, "").unwrap();
        let control = states.first().map(|(_, state)| state["control"]["status"].as_str().unwrap_or_default());
        self.heard.lock().unwrap().push(control.unwrap_or("over").to_owned());
    }
}

impl Alarm {
    fn of(world: &World) -> Arc<Self> {
        let (heard, waits) = (Mutex::default(), Mutex::default());
        Arc::new(Self { store: world.store.clone(), heard, armed: Notify::new(), waits })
    }

    fn arm(self: &Arc<Self>, token: &CancellationToken) {
        let mut wait = Box::pin(token.clone().cancelled_owned());
        let waker = Waker::from(Arc::clone(self));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it starts though it is to end");
        self.waits.lock().unwrap().push(wait);
        self.armed.notify_one();
    }
}

/// Arms its alarm at every stream.
struct AlarmedProvider(Arc<Alarm>, Arc<ScriptedProvider>);

impl Provider for AlarmedProvider {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        self.0.arm(&cancel);
        self.1.stream(request, cancel)
    }
}

/// Arms its alarm at every call, and waits for the cancellation.
struct AlarmedTool(Arc<Alarm>, ToolSpec);

#[async_trait]
impl Tool for AlarmedTool {
    fn spec(&self) -> &ToolSpec {
        &self.1
    }

    async fn call(&self, _: Value, ctx: ToolCtx) -> ToolOutput {
        self.0.arm(&ctx.cancel);
        ctx.cancel.cancelled().await;
        ToolOutput::text("heard")
    }
}

/// Arms its alarm at one point, and waits there for the cancellation.
struct AlarmedHook(Arc<Alarm>, HookPoint);

impl AlarmedHook {
    async fn hear<T: Default>(&self, token: &CancellationToken) -> Result<T, HookFailure> {
        self.0.arm(token);
        token.cancelled().await;
        Ok(T::default())
    }
}

#[async_trait]
impl Hooks for AlarmedHook {
    fn name(&self) -> &'static str {
        "alarmed"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == self.1
    }

    async fn before_run(&self, _: BeforeRun<'_>, token: &CancellationToken) -> Result<BeforeRunAnswer, HookFailure> {
        self.hear(token).await
    }

    async fn after_response(
        &self,
        _: AfterResponse<'_>,
        token: &CancellationToken,
    ) -> Result<AfterResponseAnswer, HookFailure> {
        self.hear(token).await
    }

    async fn before_tool(&self, _: BeforeTool<'_>, token: &CancellationToken) -> Result<BeforeToolAnswer, HookFailure> {
        self.hear(token).await
    }

    async fn before_run_end(
        &self,
        _: BeforeRunEnd<'_>,
        token: &CancellationToken,
    ) -> Result<BeforeRunEndAnswer, HookFailure> {
        self.hear(token).await
    }
}

/// What is alarmed, and how.
type Alarmed<'a> = (&'a str, &'a dyn Fn(&Arc<Alarm>, &mut Options));

#[tokio::test(start_paused = true)]
async fn whatever_runs_hears_of_an_abort_when_that_is_stored_and_not_before_case_34_i6() {
    let of_hook = |point: HookPoint| {
        move |alarm: &Arc<Alarm>, options: &mut Options| {
            options.hooks = vec![Arc::new(AlarmedHook(Arc::clone(alarm), point))];
        }
    };
    let stream = |alarm: &Arc<Alarm>, options: &mut Options| {
        let provider = ScriptedProvider::new(vec![half()]);
        options.provider = Arc::new(AlarmedProvider(Arc::clone(alarm), provider));
    };
    let tool = |alarm: &Arc<Alarm>, options: &mut Options| {
        let spec = options.tools[0].spec().clone();
        options.tools[0] = Arc::new(AlarmedTool(Arc::clone(alarm), spec));
    };
    let rows: [Alarmed<'_>; 6] = [
        ("a stream", &stream),
        ("a tool", &tool),
        ("before_run", &of_hook(HookPoint::BeforeRun)),
        ("after_response", &of_hook(HookPoint::AfterResponse)),
        ("before_tool", &of_hook(HookPoint::BeforeTool)),
        ("before_run_end", &of_hook(HookPoint::BeforeRunEnd)),
    ];
    for (name, alarmed) in rows {
        let world = World::new().await;
        let alarm = Alarm::of(&world);
        let process = world.process_with(baseline(), |options| alarmed(&alarm, options)).await;
        let abort = async {
            alarm.armed.notified().await;
            assert_eq!(alarm.heard.lock().unwrap().len(), 0, "{name}");
            process.lane.abort(CancelCause::Int).await.unwrap();
        };
        let (ended, ()) = tokio::join!(process.prompt("go"), abort);
        assert_eq!(ended.result().status, Status::Aborted, "{name}");
        assert_eq!(*alarm.heard.lock().unwrap(), ["cancel_requested"], "{name}");
        check(&world, &[&process]);
    }
}
