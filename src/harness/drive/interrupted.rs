//! Calls that a dead process began, and calls of an operation that is to end.
//!
//! Keeps true: such a call runs again only where its tool says so, then and now, with the stored arguments; what its
//! processes left is stopped first; every other one gets a result that says what is known.
//!
//! Must not know: how a process died, what a tool does.

use std::sync::Arc;

use serde_json::Value;

use super::super::core::Halt;
use super::super::error::Fault;
use super::super::memory::Open;
use super::super::phase::tools::{self, args_key, output_key};
use super::tools::Cleared;
use super::{Driver, Step};
use crate::model::session::namespace;
use crate::model::{CallRecord, CallStatus, Content, Event, Leaf, RecoveryAction, Replay, ToolBatch, ToolCall, Usage};
use crate::port::{OrphansReport, Tool, ToolOutput};
use crate::turn::{CallFailure, CallOutcome, texts, valid_without_coercion};

/// A tool and the arguments it is to get once more.
type Rerun = (Arc<dyn Tool>, Value);

impl Driver<'_> {
    /// Deals with calls that a dead process began. Gives those that run again.
    pub(super) async fn recover_calls(&mut self, batch: &ToolBatch) -> Result<Vec<Cleared>, Halt> {
        let mut rerun = Vec::new();
        for (record, call) in self.calls(batch)? {
            let CallStatus::EffectPending { replay, terminate } = record.status else { continue };
            let memos = self.core.memos_of(&self.operation, &record.result_entry_id)?;
            let report = self.stop_orphans(&record, &memos).await;
            match self.may_rerun(batch, &record, &call, replay)? {
                Some((tool, args)) => {
                    let id = Some(call.id.clone());
                    self.recovery_step("tools", RecoveryAction::Rerun, id, None);
                    rerun.push(Cleared { record, call, tool, args, terminate, context: Vec::new(), rerun: true });
                }
                None => self.interrupt(&record, call, report.stopped.as_deref()).await?,
            }
        }
        Ok(rerun)
    }

    /// Whether a call may run again, with its tool and stored arguments.
    fn may_rerun(
        &self,
        batch: &ToolBatch,
        record: &CallRecord,
        call: &ToolCall,
        replay: Replay,
    ) -> Result<Option<Rerun>, Halt> {
        let Some(open) = self.look().filter(|_| replay == Replay::Safe) else { return Ok(None) };
        let key = args_key(&open, batch, record);
        let args =
            self.core.options.store.value(namespace::TOOL_ARGS, &key).map_err(|error| Fault::of_store(&error))?;
        let tools = self.core.tools();
        let active = tools.iter().find(|active| active.tool.spec().name == call.name);
        Ok(match (active, args) {
            (Some(active), Some(args))
                if active.tool.spec().replay == Replay::Safe && valid_without_coercion(active, &args) =>
            {
                Some((Arc::clone(&active.tool), args))
            }
            _ => None,
        })
    }

    /// Ends what calls of dead processes that have their results left running. What calls without one left is dealt with
    /// call by call.
    pub(super) async fn stop_background(&self) {
        let Some(orphans) = &self.core.options.orphans else { return };
        let pending = |open: Open| match open.state.leaf {
            Leaf::Tools { batch } => {
                let begun =
                    batch.calls.into_iter().filter(|call| matches!(call.status, CallStatus::EffectPending { .. }));
                begun.map(|call| call.result_entry_id).collect()
            }
            _ => Vec::new(),
        };
        let report = orphans.stop_background(&self.look().map(pending).unwrap_or_default()).await;
        for message in report.warnings {
            self.emit(Event::Warning { code: "children".to_owned(), message });
        }
    }

    async fn stop_orphans(&self, record: &CallRecord, memos: &[(String, Value)]) -> OrphansReport {
        let Some(orphans) = &self.core.options.orphans else { return OrphansReport::default() };
        let report = orphans.stop(&record.result_entry_id, memos).await;
        for message in &report.warnings {
            self.emit(Event::Warning { code: "children".to_owned(), message: message.clone() });
        }
        report
    }

    /// The result of a call that a dead process began and that is not run again.
    async fn interrupt(&self, record: &CallRecord, call: ToolCall, stopped: Option<&str>) -> Result<(), Halt> {
        let open = self.look().ok_or_else(|| Fault::broken("the operation is over"))?;
        let key = output_key(&open, &record.result_entry_id);
        let saved =
            self.core.options.store.value(namespace::TOOL_OUTPUT, &key).map_err(|error| Fault::of_store(&error))?;
        let notice = Some(format!("tool {} interrupted", texts::without_controls(&call.name)));
        self.recovery_step("tools", RecoveryAction::Interrupt, Some(call.id.clone()), notice);
        let output = interrupted_output(saved.as_ref(), stopped);
        let invocation_id = Some(record.result_entry_id.clone());
        let outcome = CallOutcome { call, invocation_id, output, duration_ms: None };
        self.store_outcome(record, outcome, true, false, true).await
    }

    /// The operation is to end: every call gets its result, and the batch its place, in the order in which it would
    /// have had them.
    pub(super) async fn reconcile_tools(&mut self, open: &Open) -> Result<Step, Halt> {
        let batch = tools::batch(open)?.clone();
        let sequential = self.is_sequential(open, &batch, &self.shop(&batch))?;
        let recovery = self.resumed && !self.stepped;
        if sequential {
            self.place_front(recovery).await?;
        }
        for (record, call) in self.calls(&batch)? {
            match record.status {
                CallStatus::Planned => {
                    self.refuse(record, call, CallFailure::Cancelled, false, Vec::new(), false).await?;
                }
                CallStatus::EffectPending { .. } => {
                    let memos = self.core.memos_of(&self.operation, &record.result_entry_id)?;
                    let report = self.stop_orphans(&record, &memos).await;
                    self.interrupt(&record, call, report.stopped.as_deref()).await?;
                }
                CallStatus::OutcomeReady { .. } | CallStatus::Completed { .. } => continue,
            }
            if sequential {
                self.place_front(recovery).await?;
            }
        }
        if !sequential {
            self.place_front(recovery).await?;
        }
        Ok(Step::Continue)
    }
}

/// The last kept progress, what became of its processes, and the fact.
fn interrupted_output(saved: Option<&Value>, stopped: Option<&str>) -> ToolOutput {
    let field = |name: &str| saved.and_then(|saved| saved.get(name)).filter(|found| !found.is_null()).cloned();
    let content: Option<Vec<Content>> = field("content").and_then(|content| serde_json::from_value(content).ok());
    let usage: Option<Usage> = field("usage").and_then(|usage| serde_json::from_value(usage).ok());
    let mut output = ToolOutput::failure("aborted", texts::TOOL_INTERRUPTED);
    let mut blocks = content.unwrap_or_default();
    let text = match stopped {
        Some(stopped) => format!("{}\n{stopped}", texts::TOOL_INTERRUPTED),
        None => texts::TOOL_INTERRUPTED.to_owned(),
    };
    blocks.push(Content::text(text));
    output.content = blocks;
    output.details = field("details").or(output.details);
    output.usage = usage;
    output
}
