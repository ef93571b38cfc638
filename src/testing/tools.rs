//! Tools whose executions are counted, over all processes a test plays.
//!
//! Keeps true: an execution is counted before anything else happens in it; nothing is waited for by time alone unless a
//! test asks for a delay.
//!
//! Must not know: loops, what is tested.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::RuntimeClock;
use crate::model::{Content, EntryId, ToolResultView};
use crate::port::{Clock, Execution, Replay, Source, Tool, ToolCtx, ToolOutput, ToolSpec};

/// One execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Executed {
    pub tool: String,
    /// What the tool got.
    pub args: Value,
    pub call_id: String,
    pub invocation_id: EntryId,
}

/// The executions of all tools that share it; clones are the same.
#[derive(Clone, Debug)]
pub struct Executions(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    list: Mutex<Vec<Executed>>,
    count: watch::Sender<usize>,
}

impl Default for Executions {
    fn default() -> Self {
        Self::new()
    }
}

impl Executions {
    /// None yet.
    pub fn new() -> Self {
        Self(Arc::new(Counted { list: Mutex::default(), count: watch::Sender::new(0) }))
    }

    /// All of them, in the order in which they began.
    pub fn list(&self) -> Vec<Executed> {
        self.guard().clone()
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.guard().len()
    }

    /// How many there were of one tool.
    pub fn count_of(&self, tool: &str) -> usize {
        self.guard().iter().filter(|executed| executed.tool == tool).count()
    }

    /// Waits until so many have begun.
    pub async fn begun(&self, count: usize) {
        let mut seen = self.0.count.subscribe();
        // The sender lives as long as this does.
        drop(seen.wait_for(|begun| *begun >= count).await);
    }

    fn guard(&self) -> MutexGuard<'_, Vec<Executed>> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, executed: Executed) {
        let count = {
            let mut list = self.guard();
            list.push(executed);
            list.len()
        };
        self.0.count.send_replace(count);
    }
}

/// What an execution does once it is counted.
#[derive(Clone, Debug)]
enum Deed {
    Echo,
    /// Appends a line to the file, if there is one.
    Boom(Option<PathBuf>),
    WaitForCancel,
    Hang,
}

type Beside = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A tool of the tests.
#[derive(Clone)]
pub struct CountingTool {
    spec: ToolSpec,
    deed: Deed,
    executions: Executions,
    checkpoint: Option<String>,
    delay: Duration,
    terminate: bool,
    beside: Option<Beside>,
}

impl std::fmt::Debug for CountingTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountingTool").field("name", &self.spec.name).field("deed", &self.deed).finish_non_exhaustive()
    }
}

impl CountingTool {
    /// `echo{value}`: gives the value back; replay safe.
    pub fn echo() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"value": {"type": "string"}},
            "required": ["value"],
            "additionalProperties": false
        });
        Self::new("echo", schema, Replay::Safe, Deed::Echo)
    }

    /// `boom{}`: has an effect, gives `boomed`; replay never. The effect is the count, and a line in a file if it is
    /// given one.
    pub fn boom() -> Self {
        Self::new("boom", nothing(), Replay::Never, Deed::Boom(None))
    }

    /// `slow{}`: waits until it is cancelled, then says so; replay never.
    pub fn slow() -> Self {
        Self::new("slow", nothing(), Replay::Never, Deed::WaitForCancel)
    }

    /// `stuck{}`: never comes back, cancelled or not; replay never.
    pub fn stuck() -> Self {
        Self::new("stuck", nothing(), Replay::Never, Deed::Hang)
    }

    fn new(name: &str, input_schema: Value, replay: Replay, deed: Deed) -> Self {
        let spec = ToolSpec {
            name: name.to_owned(),
            label: name.to_owned(),
            description: "A tool of the tests.".to_owned(),
            input_schema,
            output_schema: None,
            replay,
            execution: None,
            source: Source::Builtin,
            annotations: Map::new(),
        };
        let executions = Executions::new();
        Self { spec, deed, executions, checkpoint: None, delay: Duration::ZERO, terminate: false, beside: None }
    }

    /// Counts there; tools of two processes of one test share what they count.
    #[must_use]
    pub fn counted(mut self, executions: &Executions) -> Self {
        self.executions = executions.clone();
        self
    }

    /// Under another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.spec.name);
        name.clone_into(&mut self.spec.label);
        self
    }

    /// Alone, or beside others.
    #[must_use]
    pub fn execution(mut self, execution: Execution) -> Self {
        self.spec.execution = Some(execution);
        self
    }

    /// Whether it may run again after a crash.
    #[must_use]
    pub fn replay(mut self, replay: Replay) -> Self {
        self.spec.replay = replay;
        self
    }

    /// Takes other arguments.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.spec.input_schema = schema;
        self
    }

    /// `boom` appends a line to this file.
    #[must_use]
    pub fn appending_to(mut self, file: impl Into<PathBuf>) -> Self {
        self.deed = Deed::Boom(Some(file.into()));
        self
    }

    /// Asks for the end of the run.
    #[must_use]
    pub fn terminating(mut self) -> Self {
        self.terminate = true;
        self
    }

    /// Sends this text as progress worth keeping before it does anything.
    #[must_use]
    pub fn checkpoint(mut self, text: &str) -> Self {
        self.checkpoint = Some(text.to_owned());
        self
    }

    /// Waits so long on the runtime's pausable time before it does anything.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits for this before it does anything, such as a message that is queued meanwhile.
    #[must_use]
    pub fn awaiting(mut self, beside: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        self.beside = Some(Arc::new(beside));
        self
    }

    /// What it counts.
    pub fn executions(&self) -> &Executions {
        &self.executions
    }
}

fn nothing() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

/// Appends a line.
fn append(file: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new().append(true).create(true).open(file)?.write_all(b"boom\n")
}

#[async_trait]
impl Tool for CountingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        self.executions.add(Executed {
            tool: self.spec.name.clone(),
            args: args.clone(),
            call_id: ctx.tool_call_id.clone(),
            invocation_id: ctx.invocation_id.clone(),
        });
        if let Some(text) = &self.checkpoint {
            let view = ToolResultView { content: vec![Content::text(text)], ..ToolResultView::default() };
            ctx.updates.send(view, true).await;
        }
        if let Some(beside) = &self.beside {
            beside().await;
        }
        if !self.delay.is_zero() {
            RuntimeClock::new().sleep(self.delay).await;
        }
        let output = match &self.deed {
            Deed::Echo => ToolOutput::text(args.get("value").and_then(Value::as_str).unwrap_or_default()),
            Deed::Boom(file) => match file.as_deref().map(append) {
                Some(Err(error)) => ToolOutput::failure("tool_error", error.to_string()),
                Some(Ok(())) | None => ToolOutput::text("boomed"),
            },
            Deed::WaitForCancel => {
                ctx.cancel.cancelled().await;
                ToolOutput::failure("aborted", "slow was cancelled")
            }
            Deed::Hang => std::future::pending().await,
        };
        ToolOutput { terminate: self.terminate, ..output }
    }
}
