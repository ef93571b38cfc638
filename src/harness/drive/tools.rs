//! The calls of a reply: cleared, settled and placed.
//!
//! Keeps true: calls are cleared in their order, and all of a parallel batch before the first one starts; results are
//! placed in the order of the calls.
//!
//! Must not know: what a tool does, how a call runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::super::core::Halt;
use super::super::error::Fault;
use super::super::memory::Open;
use super::super::options::{Blocked, Wait};
use super::super::phase::tools::{self, Outcome};
use super::calls::start_event;
use super::{Driver, Step};
use crate::model::session::namespace;
use crate::model::{
    CallRecord, CallStatus, Content, EntryId, Event, Leaf, RecoveryAction, StopReason, ToolBatch, ToolCall,
};
use crate::port::{HookPoint, Hooks, Tool};
use crate::turn::{self, ActiveTool, CallFailure, CallOutcome, Checked, check_call, recheck_call, texts};

/// A call that may start.
pub(super) struct Cleared {
    pub(super) record: CallRecord,
    pub(super) call: ToolCall,
    pub(super) tool: Arc<dyn Tool>,
    pub(super) args: Value,
    pub(super) terminate: bool,
    /// Added to the result by hooks before the call.
    pub(super) context: Vec<String>,
    /// It was begun by a dead process.
    pub(super) rerun: bool,
}

/// The tools and hooks of a batch, as they are when it starts.
pub(super) struct Shop {
    pub(super) hooks: Vec<Arc<dyn Hooks>>,
    pub(super) tools: Vec<ActiveTool>,
    pub(super) names: Arc<[String]>,
}

impl Driver<'_> {
    pub(super) async fn tools(&mut self, open: Open) -> Result<Step, Halt> {
        let batch = tools::batch(&open)?.clone();
        let begun =
            batch.calls.iter().any(|call| !matches!(call.status, CallStatus::Planned | CallStatus::Completed { .. }));
        let mut rerun = Vec::new();
        if begun {
            // Whatever is begun here was begun by a dead process: live calls are settled by who started them.
            self.place_front(true).await?;
            rerun = self.recover_calls(&batch).await?;
            if self.look().is_none_or(|open| open.cancelled() || !matches!(open.state.leaf, Leaf::Tools { .. })) {
                return Ok(Step::Continue);
            }
        }
        let shop = self.shop(&batch);
        // Of a reply that was cut off no call runs.
        let missing = if self.is_truncated(&batch)? { Vec::new() } else { self.missing_tools(&batch)? };
        if !missing.is_empty() {
            return Ok(Step::Waiting(Wait::Blocked(Blocked::Tools { names: missing })));
        }
        let sequential = self.is_sequential(&open, &batch, &shop)?;
        if sequential {
            self.one_by_one(&batch, &shop, rerun).await?;
        } else {
            self.together(&batch, &shop, rerun).await?;
        }
        Ok(Step::Continue)
    }

    pub(super) fn shop(&self, batch: &ToolBatch) -> Shop {
        let mut names = batch.configuration.active_tool_names.clone();
        names.sort();
        let tools = self.core.tools().iter().filter(|tool| names.contains(&tool.tool.spec().name)).cloned().collect();
        Shop { hooks: self.core.hooks(), tools, names: names.into() }
    }

    /// The tools that the model was offered, calls ask for, and that are not here any more.
    fn missing_tools(&self, batch: &ToolBatch) -> Result<Vec<String>, Fault> {
        let offered = &batch.configuration.active_tool_names;
        let planned = self.planned(batch)?.into_iter().map(|(_, call)| call.name);
        let missing = |name: &String| offered.contains(name) && self.core.find_tool(name).is_none();
        let names: BTreeSet<String> = planned.filter(missing).collect();
        Ok(names.into_iter().collect())
    }

    /// Whether each call has its place before the next one is looked at.
    pub(super) fn is_sequential(&self, open: &Open, batch: &ToolBatch, shop: &Shop) -> Result<bool, Fault> {
        // Nothing of it runs: there is nothing to wait for together.
        if self.is_truncated(batch)? {
            return Ok(true);
        }
        let calls: Vec<ToolCall> = self.calls(batch)?.into_iter().map(|(_, call)| call).collect();
        let tools: Vec<Arc<dyn Tool>> = shop.tools.iter().map(|active| Arc::clone(&active.tool)).collect();
        Ok(turn::is_sequential(open.state.settings.tool_execution, &calls, &tools))
    }

    /// Whether the reply that asks for the calls stopped at the output limit.
    fn is_truncated(&self, batch: &ToolBatch) -> Result<bool, Fault> {
        self.read(|lane| {
            lane.reply(&batch.assistant_entry_id).is_some_and(|reply| reply.stop_reason == StopReason::Length)
        })
    }

    /// The records of a batch with their calls.
    pub(super) fn calls(&self, batch: &ToolBatch) -> Result<Vec<(CallRecord, ToolCall)>, Fault> {
        self.read(|lane| {
            let call = |record: &CallRecord| Ok((record.clone(), tools::call_of(lane, batch, record)?.clone()));
            batch.calls.iter().map(call).collect()
        })?
    }

    /// The records of calls that nobody has begun.
    fn planned(&self, batch: &ToolBatch) -> Result<Vec<(CallRecord, ToolCall)>, Fault> {
        let mut calls = self.calls(batch)?;
        calls.retain(|(record, _)| record.status == CallStatus::Planned);
        Ok(calls)
    }

    /// One call after another: cleared, run and placed.
    async fn one_by_one(&mut self, batch: &ToolBatch, shop: &Shop, rerun: Vec<Cleared>) -> Result<(), Halt> {
        // The result of a call that was interrupted.
        self.place_front(false).await?;
        for cleared in rerun {
            self.run_all(batch, shop, vec![cleared]).await?;
            self.place_front(false).await?;
        }
        for (record, call) in self.planned(batch)? {
            match self.clear(batch, shop, record, call).await? {
                Some(Some(cleared)) => self.run_all(batch, shop, vec![cleared]).await?,
                Some(None) => {}
                None => return Ok(()),
            }
            if self.ends() {
                return Ok(());
            }
            self.place_front(false).await?;
        }
        Ok(())
    }

    /// All calls of the batch are cleared, then run together, then placed in one transaction.
    async fn together(&mut self, batch: &ToolBatch, shop: &Shop, rerun: Vec<Cleared>) -> Result<(), Halt> {
        let mut ready = rerun;
        for (record, call) in self.planned(batch)? {
            match self.clear(batch, shop, record, call).await? {
                Some(Some(cleared)) => ready.push(cleared),
                Some(None) => {}
                None => return Ok(()),
            }
        }
        ready.sort_by_key(|cleared| cleared.record.source_index);
        self.run_all(batch, shop, ready).await?;
        if self.ends() {
            return Ok(());
        }
        self.place_front(false).await
    }

    /// Whether the rest is left to the end of the operation.
    pub(super) fn ends(&self) -> bool {
        self.look().is_none_or(|open| open.cancelled())
    }

    /// Places what is ready.
    pub(super) async fn place_front(&self, recovery: bool) -> Result<(), Halt> {
        // Only this drive changes what is ready.
        let open = self.look().ok_or_else(|| Fault::broken("the operation is over"))?;
        if tools::ready_front(tools::batch(&open)?) == 0 {
            return Ok(());
        }
        if recovery {
            self.recovery_step("tools", RecoveryAction::Place, None, None);
        }
        self.settle(|lane, open, facts| Ok((Some(tools::place(lane, open, recovery, facts)?), ()))).await?;
        Ok(())
    }

    /// The steps before a call runs. The inner `None`: it was settled without running; the outer: the operation is to
    /// end.
    async fn clear(
        &mut self,
        batch: &ToolBatch,
        shop: &Shop,
        record: CallRecord,
        call: ToolCall,
    ) -> Result<Option<Option<Cleared>>, Halt> {
        let Some(open) = self.look().filter(|open| !open.cancelled()) else { return Ok(None) };
        if self.is_truncated(batch)? {
            let failure = CallFailure::Invalid(texts::truncated(&call.name));
            return self.refuse(record, call, failure, false, Vec::new(), false).await.map(Some);
        }
        if open.state.stop.is_some() {
            return self.refuse(record, call, CallFailure::Cancelled, false, Vec::new(), false).await.map(Some);
        }
        let policy = self.core.options.policy.as_deref();
        let Checked { tool, args } = match check_call(&call, &shop.tools, &shop.names, policy) {
            Ok(checked) => checked,
            Err(failure) => return self.refuse(record, call, failure, false, Vec::new(), false).await.map(Some),
        };
        let mut chain = self.chain_of(shop.hooks.clone());
        if chain.listens(HookPoint::BeforeTool) {
            self.flush().await?;
        }
        let scope = self.scope(&open, record.result_entry_id.as_str());
        let recheck = |replaced: &Value| recheck_call(&call, &shop.tools, replaced, policy);
        let asked = chain.before_tool(&scope, &call, args, &recheck).await;
        let notes = std::mem::take(&mut chain.notes);
        drop(chain);
        self.emit_all(notes);
        let Ok(verdict) = asked else {
            self.gate_settled().await;
            return Ok(None);
        };
        // An abort that came while a hook was asked goes before its answer.
        if self.admitted().await.is_none() {
            self.gate_settled().await;
            return Ok(None);
        }
        match verdict.args {
            Ok(args) => {
                let (terminate, context) = (verdict.terminate, verdict.context);
                Ok(Some(Some(Cleared { record, call, tool, args, terminate, context, rerun: false })))
            }
            Err(failure) => {
                self.refuse(record, call, failure, verdict.terminate, verdict.context, verdict.stop).await.map(Some)
            }
        }
    }

    /// Settles a call that never runs.
    pub(super) async fn refuse(
        &self,
        record: CallRecord,
        call: ToolCall,
        failure: CallFailure,
        terminate: bool,
        context: Vec<String>,
        stop: bool,
    ) -> Result<Option<Cleared>, Halt> {
        let mut output = failure.into_output();
        output.terminate = terminate;
        output.content.extend(context.into_iter().map(Content::text));
        let outcome = CallOutcome { call, invocation_id: None, output, duration_ms: None };
        self.store_outcome(&record, outcome, true, stop, false).await?;
        Ok(None)
    }

    /// Stores an outcome. `start`: the call's start was not told.
    pub(super) async fn store_outcome(
        &self,
        record: &CallRecord,
        outcome: CallOutcome,
        start: bool,
        stop: bool,
        recovery: bool,
    ) -> Result<(), Halt> {
        let mut outcome = outcome.normalised();
        let mut events = Vec::new();
        if start {
            events.push(start_event(&outcome.call, None));
        }
        let kept = self.kept_for(&record.result_entry_id)?;
        self.settle(|lane, open, facts| {
            // Decided where the cancellation is known: what is stored, told and shown says the same.
            outcome.output.terminate &= !open.cancelled();
            events.push(end_event(&outcome));
            let settled = Outcome { record, call: &outcome, events, stop, recovery, kept };
            Ok((Some(tools::outcome(lane, open, settled, facts)?), ()))
        })
        .await?;
        Ok(())
    }

    /// What is kept for a call: its progress and its memos.
    fn kept_for(&self, result: &EntryId) -> Result<Vec<(&'static str, String)>, Halt> {
        let store = &self.core.options.store;
        let key = format!("{}:{result}", self.operation);
        let mut kept = Vec::new();
        if store.value(namespace::TOOL_OUTPUT, &key).map_err(|error| Fault::of_store(&error))?.is_some() {
            kept.push((namespace::TOOL_OUTPUT, key.clone()));
        }
        let memos = store.values(namespace::TOOL_MEMO, &format!("{key}:")).map_err(|error| Fault::of_store(&error))?;
        kept.extend(memos.into_iter().map(|(key, _)| (namespace::TOOL_MEMO, key)));
        Ok(kept)
    }
}

fn end_event(outcome: &CallOutcome) -> Event {
    Event::ToolEnd {
        tool_call_id: outcome.call.id.clone(),
        tool_name: outcome.call.name.clone(),
        result: Arc::new(outcome.view()),
        is_error: outcome.output.is_error,
        duration_ms: outcome.duration_ms,
    }
}
