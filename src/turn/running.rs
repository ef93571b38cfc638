//! A running tool: its progress, its result, and what stands for one that did not answer a cancellation.
//!
//! Keeps true: a panic of a tool becomes its result; progress is told before the result and never after it; a cancelled
//! tool has the grace and a second more, then its future is dropped.
//!
//! Must not know: other calls of the batch, hooks, events, where results are kept.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use super::texts;
use crate::model::{Content, ToolResultView};
use crate::port::{Clock, Memos, Tool, ToolCtx, ToolOutput, ToolUpdate};

/// Progress reports of a call that may wait before the tool does.
pub const UPDATES_MAX: usize = 16;

/// What cancelled work gets beyond `limits.grace` before its future is dropped.
pub const GRACE_EXTRA: Duration = Duration::from_secs(1);

/// A tool at work: gives its progress in order, then its result, then ends.
pub struct ToolRun {
    updates: Receiver<ToolUpdate>,
    /// The newest report, for the text of an aborted call.
    last: Option<Arc<ToolResultView>>,
    phase: Phase,
}

impl std::fmt::Debug for ToolRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolRun").field("last", &self.last).finish_non_exhaustive()
    }
}

/// What a running tool gives.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is handed on at once and never stored")]
pub enum ToolProgress {
    Update(ToolUpdate),
    Done(Ran),
}

/// How a tool ended.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The tool's own; of one that did not answer a cancellation its progress so far, and that it was aborted.
    pub output: ToolOutput,
    pub duration_ms: u64,
}

enum Phase {
    /// The tool works.
    Running(BoxFuture<'static, Box<Ended>>),
    /// The tool is done; reports sent before that are still to be told.
    Draining(Box<Ended>),
    Over,
}

struct Ended {
    /// `None`: it did not answer a cancellation.
    output: Option<ToolOutput>,
    duration_ms: u64,
}

/// Starts a tool with valid arguments. `updates` is the other end of what `ctx` holds; `cancel` ends the run, after which
/// the tool has `grace` and [`GRACE_EXTRA`] to answer.
pub fn run_tool(
    tool: Arc<dyn Tool>,
    args: Value,
    ctx: ToolCtx,
    updates: Receiver<ToolUpdate>,
    cancel: CancellationToken,
    clock: Arc<dyn Clock>,
    grace: Duration,
) -> ToolRun {
    let work = async move {
        let started = clock.monotonic_ms();
        // Inside the block, so that a tool that panics before its first await is caught as well.
        let work = AssertUnwindSafe(async { tool.call(args, ctx).await }).catch_unwind();
        let overdue = async {
            cancel.cancelled().await;
            clock.sleep(grace + GRACE_EXTRA).await;
        };
        let output = tokio::select! {
            biased;
            output = work => Some(output.unwrap_or_else(|panic| crashed(&*panic))),
            () = overdue => None,
        };
        Box::new(Ended { output, duration_ms: clock.monotonic_ms().saturating_sub(started) })
    };
    ToolRun { updates, last: None, phase: Phase::Running(Box::pin(work)) }
}

impl Stream for ToolRun {
    type Item = ToolProgress;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Phase::Running(_) | Phase::Draining(_) = this.phase
                && let Poll::Ready(Some(update)) = this.updates.poll_recv(cx)
            {
                this.last = Some(Arc::clone(&update.partial));
                return Poll::Ready(Some(ToolProgress::Update(update)));
            }
            match std::mem::replace(&mut this.phase, Phase::Over) {
                Phase::Running(mut work) => {
                    if let Poll::Ready(ended) = work.poll_unpin(cx) {
                        // Reports sent from now on are too late.
                        this.updates.close();
                        this.phase = Phase::Draining(ended);
                    } else {
                        this.phase = Phase::Running(work);
                        return Poll::Pending;
                    }
                }
                Phase::Draining(ended) => {
                    let Ended { output, duration_ms } = *ended;
                    let output = output.unwrap_or_else(|| aborted(this.last.as_deref()));
                    return Poll::Ready(Some(ToolProgress::Done(Ran { output, duration_ms })));
                }
                Phase::Over => return Poll::Ready(None),
            }
        }
    }
}

/// Memos that live as long as their call, where nothing is replayed.
#[derive(Debug, Default)]
pub struct CallMemos(Mutex<BTreeMap<String, Value>>);

#[async_trait]
impl Memos for CallMemos {
    async fn get(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    async fn set(&self, name: &str, value: Value) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
        Ok(())
    }
}

/// The result of a call that did not answer a cancellation: its output so far, then the fact.
fn aborted(last: Option<&ToolResultView>) -> ToolOutput {
    let so_far: Vec<&str> =
        last.map(|view| view.content.iter().filter_map(Content::as_text).collect()).unwrap_or_default();
    let so_far = so_far.join("\n");
    let text =
        if so_far.is_empty() { texts::TOOL_ABORTED.to_owned() } else { format!("{so_far}\n\n{}", texts::TOOL_ABORTED) };
    ToolOutput { content: vec![Content::text(text)], ..ToolOutput::failure("aborted", texts::TOOL_ABORTED) }
}

fn crashed(panic: &(dyn Any + Send)) -> ToolOutput {
    ToolOutput::failure("tool_error", crash_text(panic))
}

/// What the model reads about a tool that panicked.
pub fn crash_text(panic: &(dyn Any + Send)) -> String {
    format!("The tool crashed: {}", panic_text(panic))
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
