//! The contract of a tool, and everything a call may use.
//!
//! Keeps true: a failure is a result; whatever a tool needs from outside comes with its [`ToolCtx`]; the guard is asked
//! before a path is looked at.
//!
//! Must not know: which tools exist, who calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::model::{Content, EntryId, RunId, ToolResultView, Usage};
pub use crate::model::{Execution, Replay};

/// Something a model can call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the model is told; the same for the whole run.
    fn spec(&self) -> &ToolSpec;

    /// Repairs aliases and shapes, before coercion and validation. The error is what the model reads.
    fn prepare(&self, raw: Value) -> Result<Value, String> {
        Ok(raw)
    }

    /// Runs with valid arguments. Every failure is a result with `is_error`; a panic becomes one.
    /// A cancelled tool has `limits.grace` + 1 s to answer before its future is dropped.
    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput;
}

/// What is sent to the model about a tool, and how it may run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    /// For display.
    pub label: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub replay: Replay,
    /// `None` = as the configuration says.
    pub execution: Option<Execution>,
    pub source: Source,
    pub annotations: Map<String, Value>,
}

/// Where a tool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Compiled in.
    Builtin,
    /// A program of the user.
    Command,
    /// A server that speaks the Model Context Protocol.
    Mcp,
    /// A nested agent.
    Task,
}

/// What a call may use. Everything a tool needs from outside is here.
#[derive(Clone)]
pub struct ToolCtx {
    /// The model's id of the call.
    pub tool_call_id: String,
    /// The same on a replay; the id of the result entry.
    pub invocation_id: EntryId,
    pub run_id: RunId,
    /// `{runId}:{turn}`.
    pub turn_id: String,
    /// The line of work the run belongs to; `main` unless said.
    pub lane: String,
    /// `None` when nothing is kept.
    pub session: Option<SessionRef>,
    /// Absolute.
    pub cwd: PathBuf,
    /// Asked at every open.
    pub guard: Arc<dyn Guard>,
    /// What the model that called takes.
    pub model_inputs: Inputs,
    /// Names of all enabled tools, sorted.
    pub enabled_tools: Arc<[String]>,
    /// Ends with the run, and with this call alone.
    pub cancel: CancellationToken,
    /// Where progress goes.
    pub updates: Updates,
    /// What the call wants to find again on a replay.
    pub memos: Arc<dyn Memos>,
}

impl std::fmt::Debug for ToolCtx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolCtx")
            .field("tool_call_id", &self.tool_call_id)
            .field("invocation_id", &self.invocation_id)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// The session a call belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRef {
    pub id: String,
    pub file: Option<PathBuf>,
    /// Where output too large for the model is kept.
    pub spill_dir: PathBuf,
}

/// Inputs the calling model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    pub text: bool,
    pub image: bool,
}

/// What a tool wants to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Rules and confinement on the real path.
pub trait Guard: Send + Sync {
    /// `shown` is the path as the model wrote it; the error's text uses it.
    fn check(&self, path: &Path, shown: &str, access: Access) -> Result<(), Denied>;
}

/// A refused path or call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The rule's text, or `confine`.
    pub rule: String,
    /// What the model reads.
    pub reason: String,
}

/// Permission rules over whole calls; asked after validation and again after a hook changed the arguments.
pub trait Policy: Send + Sync {
    /// Judges one call by its tool and valid arguments.
    fn check(&self, tool: &str, args: &Value) -> Verdict;
}

/// The answer of a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny(Denied),
}

/// Small values a call keeps between a crash and its replay.
#[async_trait]
pub trait Memos: Send + Sync {
    /// The value kept under a name.
    async fn get(&self, name: &str) -> Option<Value>;
    /// Keeps a value, which replaces an earlier one. The error says why it could not be kept.
    async fn set(&self, name: &str, value: Value) -> Result<(), String>;
}

/// Ends what the tools of a dead process left running.
#[async_trait]
pub trait Orphans: Send + Sync {
    /// Looks for what one call started, by its invocation id and its memos, and ends it. What is not surely its own is
    /// left alone.
    async fn stop(&self, invocation: &EntryId, memos: &[(String, Value)]) -> OrphansReport;

    /// Looks for what calls that have their results left running in the background, and ends it; not what calls in
    /// `except` started.
    async fn stop_background(&self, except: &[EntryId]) -> OrphansReport {
        let _none = except;
        OrphansReport::default()
    }
}

/// What became of the processes of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphansReport {
    /// A sentence for the result of the call, where something was ended.
    pub stopped: Option<String>,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

/// Where tools run.
#[derive(Clone)]
pub struct ToolEnv {
    /// Absolute.
    pub cwd: PathBuf,
    pub guard: Arc<dyn Guard>,
    /// `None` when nothing is kept.
    pub session: Option<SessionRef>,
}

impl Default for ToolEnv {
    /// The root directory, with every path allowed.
    fn default() -> Self {
        Self { cwd: PathBuf::from("/"), guard: Arc::new(OpenGuard), session: None }
    }
}

impl std::fmt::Debug for ToolEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolEnv").field("cwd", &self.cwd).field("session", &self.session).finish_non_exhaustive()
    }
}

/// A guard that allows every path.
#[derive(Clone, Copy, Debug)]
pub struct OpenGuard;

impl Guard for OpenGuard {
    fn check(&self, _path: &Path, _shown: &str, _access: Access) -> Result<(), Denied> {
        Ok(())
    }
}

/// One progress report: the full bounded view so far.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUpdate {
    pub partial: Arc<ToolResultView>,
    /// Also worth keeping for the report on an interrupted call.
    pub checkpoint: bool,
}

/// Where a running call reports progress. Reports sent after the call has returned are dropped.
#[derive(Clone, Debug)]
pub struct Updates(mpsc::Sender<ToolUpdate>);

impl Updates {
    /// A pair of ends; `capacity` reports may wait before a sender does.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<ToolUpdate>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self(sender), receiver)
    }

    /// Sends a report; waits while the loop is behind. Returns whether anyone still listens.
    pub async fn send(&self, partial: ToolResultView, checkpoint: bool) -> bool {
        self.0.send(ToolUpdate { partial: Arc::new(partial), checkpoint }).await.is_ok()
    }
}

/// What a call gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    pub content: Vec<Content>,
    /// For programs; a failure carries `error: {code, message}`.
    pub details: Option<Value>,
    pub structured: Option<Value>,
    pub usage: Option<Usage>,
    pub is_error: bool,
    /// Ends the run after the batch if every result of the batch says so.
    pub terminate: bool,
}

impl ToolOutput {
    /// A success the model reads as one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// A failure the model reads as `message`; `code` is from the closed list of the tool contract.
    pub fn failure(code: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let details = serde_json::json!({"error": {"code": code, "message": message}});
        Self { content: vec![Content::text(message)], details: Some(details), is_error: true, ..Self::default() }
    }
}
