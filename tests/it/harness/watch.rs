//! Hooks that write down what they are asked, and answer what a test told them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use pirn::port::{
    AfterResponse, AfterResponseAnswer, AfterTool, AfterToolAnswer, BeforeDrive, BeforeDriveAnswer, BeforeRequest,
    BeforeRequestAnswer, BeforeRun, BeforeRunAnswer, BeforeRunEnd, BeforeRunEndAnswer, BeforeTool, BeforeToolAnswer,
    HookFailure, HookPoint, Hooks,
};
use tokio_util::sync::CancellationToken;

type BeforeToolReply = Box<dyn Fn(&BeforeTool<'_>) -> BeforeToolAnswer + Send + Sync>;
type BeforeRequestReply = Box<dyn Fn(&BeforeRequest<'_>) -> BeforeRequestAnswer + Send + Sync>;
type BeforeRunReply = Box<dyn Fn(&BeforeRun<'_>) -> BeforeRunAnswer + Send + Sync>;
type Note = Box<dyn Fn(&str) + Send + Sync>;
type AfterToolReply = Box<dyn Fn(&AfterTool<'_>) -> AfterToolAnswer + Send + Sync>;

/// Listens at every point that concerns a run.
#[derive(Default)]
pub(super) struct Watch {
    asked: Mutex<Vec<String>>,
    before_tool: Option<BeforeToolReply>,
    after_tool: Option<AfterToolReply>,
    before_request: Option<BeforeRequestReply>,
    before_run: Option<BeforeRunReply>,
    hangs_after_response: bool,
    note: Option<Note>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(super) fn before_tool(
        mut self,
        answer: impl Fn(&BeforeTool<'_>) -> BeforeToolAnswer + Send + Sync + 'static,
    ) -> Self {
        self.before_tool = Some(Box::new(answer));
        self
    }

    #[must_use]
    pub(super) fn after_tool(
        mut self,
        answer: impl Fn(&AfterTool<'_>) -> AfterToolAnswer + Send + Sync + 'static,
    ) -> Self {
        self.after_tool = Some(Box::new(answer));
        self
    }

    #[must_use]
    pub(super) fn before_request(
        mut self,
        answer: impl Fn(&BeforeRequest<'_>) -> BeforeRequestAnswer + Send + Sync + 'static,
    ) -> Self {
        self.before_request = Some(Box::new(answer));
        self
    }

    #[must_use]
    pub(super) fn before_run(
        mut self,
        answer: impl Fn(&BeforeRun<'_>) -> BeforeRunAnswer + Send + Sync + 'static,
    ) -> Self {
        self.before_run = Some(Box::new(answer));
        self
    }

    /// Never answers behind a reply.
    #[must_use]
    pub(super) fn hanging_after_response(mut self) -> Self {
        self.hangs_after_response = true;
        self
    }

    /// Calls this with each word as it is written down.
    #[must_use]
    pub(super) fn noting(mut self, note: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.note = Some(Box::new(note));
        self
    }

    pub(super) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// What it was asked, in order: the point, and the id of the call.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn write(&self, word: &str) {
        self.asked.lock().unwrap().push(word.to_owned());
        if let Some(note) = &self.note {
            note(word);
        }
    }
}

#[async_trait]
impl Hooks for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn listens(&self, point: HookPoint) -> bool {
        !matches!(point, HookPoint::TransformContext | HookPoint::BeforePayload)
    }

    async fn before_drive(&self, _: BeforeDrive<'_>, _: &CancellationToken) -> Result<BeforeDriveAnswer, HookFailure> {
        self.write("before_drive");
        Ok(BeforeDriveAnswer::default())
    }

    async fn before_run(&self, asked: BeforeRun<'_>, _: &CancellationToken) -> Result<BeforeRunAnswer, HookFailure> {
        self.write("before_run");
        Ok(self.before_run.as_ref().map(|answer| answer(&asked)).unwrap_or_default())
    }

    async fn before_request(
        &self,
        asked: BeforeRequest<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRequestAnswer, HookFailure> {
        self.write("before_request");
        Ok(self.before_request.as_ref().map(|answer| answer(&asked)).unwrap_or_default())
    }

    async fn after_response(
        &self,
        _: AfterResponse<'_>,
        _: &CancellationToken,
    ) -> Result<AfterResponseAnswer, HookFailure> {
        self.write("after_response");
        if self.hangs_after_response {
            std::future::pending::<()>().await;
        }
        Ok(AfterResponseAnswer::default())
    }

    async fn before_tool(&self, asked: BeforeTool<'_>, _: &CancellationToken) -> Result<BeforeToolAnswer, HookFailure> {
        self.write(&format!("before_tool {}", asked.call.id));
        Ok(self.before_tool.as_ref().map(|answer| answer(&asked)).unwrap_or_default())
    }

    async fn after_tool(&self, asked: AfterTool<'_>, _: &CancellationToken) -> Result<AfterToolAnswer, HookFailure> {
        self.write(&format!("after_tool {}", asked.call.id));
        Ok(self.after_tool.as_ref().map(|answer| answer(&asked)).unwrap_or_default())
    }

    async fn before_run_end(
        &self,
        _: BeforeRunEnd<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRunEndAnswer, HookFailure> {
        self.write("before_run_end");
        Ok(BeforeRunEndAnswer::default())
    }
}
