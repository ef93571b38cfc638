//! The calls of a reply: cleared, started, settled and placed.
//!
//! Keeps true: calls are cleared in their order, and all of a parallel batch before the first one starts; a tool starts
//! after its intent is stored, and one that may not run twice after that is synced; results are placed in the order of
//! the calls; a call that a dead process began runs again only where its tool says so, then and now.
//!
//! Must not know: what a tool does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::super::core::{Core, Halt};
use super::super::error::Fault;
use super::super::memory::Open;
use super::super::phase::tools::{self, Outcome, args_key, output_key};
use super::super::plan::Plan;
use super::super::snapshot::{RunningTool, SettledTool};
use super::{Driver, Step, open as open_of};
use crate::model::session::namespace;
use crate::model::{
    CallRecord, CallStatus, Content, EntryId, Event, RecoveryAction, Replay, RunId, StopReason, ToolBatch, ToolCall,
    ToolResultView, Usage,
};
use crate::port::{HookScope, Inputs, Memos, OrphansReport, Tool, ToolCtx, ToolOutput, ToolUpdate, Updates};
use crate::turn::{
    self, ActiveTool, CallFailure, CallOutcome, Checked, ToolProgress, UPDATES_MAX, check_call, effective_args,
    recheck_call, run_tool, texts, valid_without_coercion,
};

/// Progress of one call is kept at most once in this time.
const CHECKPOINT_EVERY_MS: u64 = 1_000;
/// Text of kept progress, in bytes: the newest.
const CHECKPOINT_BYTES_MAX: usize = 32 * 1024;

/// A call that may start.
struct Cleared {
    record: CallRecord,
    call: ToolCall,
    tool: Arc<dyn Tool>,
    args: Value,
    terminate: bool,
    /// Added to the result by hooks before the call.
    context: Vec<String>,
    /// It was begun by a dead process.
    rerun: bool,
}

/// A call that has run.
struct Done {
    record: CallRecord,
    outcome: CallOutcome,
    stop: bool,
    notes: Vec<Event>,
}

/// What a running call reports.
#[expect(clippy::large_enum_variant, reason = "it is handed on at once, and nearly all of them are progress")]
enum Report {
    Progress {
        result: EntryId,
        call: ToolCall,
        update: ToolUpdate,
    },
    /// Everything before it is told and kept.
    Drained(oneshot::Sender<()>),
}

/// A tool and the arguments it is to get once more.
type Rerun = (Arc<dyn Tool>, Value);

/// The tools of a batch, as they are when it starts.
struct Shop {
    tools: Vec<ActiveTool>,
    names: Arc<[String]>,
}

/// Progress of running calls that was kept, or waits for its time.
#[derive(Default)]
struct Kept(BTreeMap<EntryId, Saved>);

#[derive(Default)]
struct Saved {
    /// Monotonic milliseconds.
    at_ms: Option<u64>,
    snapshot: Value,
    /// Newer, and not kept yet.
    waits: Option<Value>,
}

impl Saved {
    fn due_ms(&self) -> Option<u64> {
        self.waits.as_ref().map(|_| self.at_ms.map_or(0, |at| at.saturating_add(CHECKPOINT_EVERY_MS)))
    }
}

impl Kept {
    /// Takes the newest progress of a call.
    fn offer(&mut self, result: &EntryId, snapshot: Value) {
        let saved = self.0.entry(result.clone()).or_default();
        saved.waits = (saved.snapshot != snapshot).then_some(snapshot);
    }

    /// When the next one is due.
    fn due_ms(&self) -> Option<u64> {
        self.0.values().filter_map(Saved::due_ms).min()
    }

    /// What is due, which counts as kept from now on.
    fn take_due(&mut self, now_ms: u64) -> Vec<(EntryId, Value)> {
        let mut due = Vec::new();
        for (result, saved) in &mut self.0 {
            if saved.due_ms().is_some_and(|at| at <= now_ms)
                && let Some(snapshot) = saved.waits.take()
            {
                *saved = Saved { at_ms: Some(now_ms), snapshot: snapshot.clone(), waits: None };
                due.push((result.clone(), snapshot));
            }
        }
        due
    }

    /// The call is over.
    fn forget(&mut self, result: &EntryId) {
        self.0.remove(result);
    }
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
            if self
                .look()
                .is_none_or(|open| open.cancelled() || !matches!(open.state.leaf, crate::model::Leaf::Tools { .. }))
            {
                return Ok(Step::Continue);
            }
        }
        let shop = self.shop(&batch);
        let sequential = self.is_sequential(&open, &batch, &shop)?;
        if sequential {
            self.one_by_one(&batch, &shop, rerun).await?;
        } else {
            self.together(&batch, &shop, rerun).await?;
        }
        Ok(Step::Continue)
    }

    fn shop(&self, batch: &ToolBatch) -> Shop {
        let mut names = batch.configuration.active_tool_names.clone();
        names.sort();
        let tools = self.core.tools().iter().filter(|tool| names.contains(&tool.tool.spec().name)).cloned().collect();
        Shop { tools, names: names.into() }
    }

    fn is_sequential(&self, open: &Open, batch: &ToolBatch, shop: &Shop) -> Result<bool, Fault> {
        let calls: Vec<ToolCall> = self.calls(batch)?.into_iter().map(|(_, call)| call).collect();
        let tools: Vec<Arc<dyn Tool>> = shop.tools.iter().map(|active| Arc::clone(&active.tool)).collect();
        Ok(turn::is_sequential(open.state.settings.tool_execution, &calls, &tools))
    }

    /// The records of a batch with their calls.
    fn calls(&self, batch: &ToolBatch) -> Result<Vec<(CallRecord, ToolCall)>, Fault> {
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
    fn ends(&self) -> bool {
        self.look().is_none_or(|open| open.cancelled())
    }

    /// Places what is ready.
    async fn place_front(&self, recovery: bool) -> Result<(), Halt> {
        // Only this drive changes what is ready.
        let open = self.look().ok_or_else(|| Fault::broken("the operation is over"))?;
        if tools::ready_front(tools::batch(&open)?) == 0 {
            return Ok(());
        }
        if recovery {
            self.recovery_step("tools", RecoveryAction::Place, None, None);
        }
        self.settle(|lane, open, facts| Ok((Some(tools::place(lane, open, recovery, facts)?), ()))).await?;
        let waits = self.look().map(|open| open.staged).unwrap_or_default();
        let waiting: Vec<&str> = waits.keys().filter_map(|id| call_id(waits.get(id)?)).collect();
        if let Some(live) = self.core.live().get_mut(self.lane) {
            live.tools.retain(|tool| tool.settled.is_none() || waiting.contains(&tool.tool_call_id.as_str()));
        }
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
        let truncated = self.read(|lane| {
            lane.reply(&batch.assistant_entry_id).is_some_and(|reply| reply.stop_reason == StopReason::Length)
        })?;
        if truncated {
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
        let mut chain = self.chain();
        if chain.listens(crate::port::HookPoint::BeforeTool) {
            self.flush().await?;
        }
        let scope = self.scope(&open, record.result_entry_id.as_str());
        let recheck = |replaced: &Value| recheck_call(&call, &shop.tools, replaced, policy);
        let asked = chain.before_tool(&scope, &call, args, &recheck).await;
        let notes = std::mem::take(&mut chain.notes);
        drop(chain);
        self.emit_all(notes);
        let Ok(verdict) = asked else {
            self.gate.durable().await;
            return Ok(None);
        };
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
    async fn refuse(
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
    async fn store_outcome(
        &self,
        record: &CallRecord,
        outcome: CallOutcome,
        start: bool,
        stop: bool,
        recovery: bool,
    ) -> Result<(), Halt> {
        let outcome = outcome.normalised();
        let mut events = Vec::new();
        if start {
            events.push(start_event(&outcome.call, None));
        }
        let kept = self.kept_for(&record.result_entry_id)?;
        self.settle(|lane, open, facts| {
            let terminate = outcome.output.terminate && !open.cancelled();
            let mut shown = outcome.clone();
            shown.output.terminate = terminate;
            events.push(end_event(&shown));
            let settled = Outcome { record, call: &shown, events, stop, recovery, kept };
            Ok((Some(tools::outcome(lane, open, settled, facts)?), ()))
        })
        .await?;
        self.show_outcome(&outcome);
        Ok(())
    }

    /// The outcome of a call, for who looks at the lane before it has its place.
    fn show_outcome(&self, outcome: &CallOutcome) {
        let mut live = self.core.live();
        let tools = &mut live.entry(self.lane.to_owned()).or_default().tools;
        let settled = Some(SettledTool {
            result: Arc::new(outcome.view()),
            is_error: outcome.output.is_error,
            duration_ms: outcome.duration_ms,
        });
        match tools.iter_mut().find(|tool| tool.tool_call_id == outcome.call.id) {
            Some(tool) => tool.settled = settled,
            None => tools.push(RunningTool { settled, ..running(&outcome.call, None) }),
        }
    }

    /// What is kept for a call: its progress and its memos.
    fn kept_for(&self, result: &EntryId) -> Result<Vec<(&'static str, String)>, Halt> {
        let prefix = format!("{}:{result}", self.operation);
        let mut kept = Vec::new();
        for namespace in [namespace::TOOL_OUTPUT, namespace::TOOL_MEMO] {
            let found = self.core.options.store.values(namespace, &prefix).map_err(|error| Fault::of_store(&error))?;
            kept.extend(found.into_iter().map(|(key, _)| (namespace, key)));
        }
        Ok(kept)
    }

    /// Runs cleared calls together, at most `max_parallel` at a time, and stores each outcome as it comes.
    async fn run_all(&mut self, batch: &ToolBatch, shop: &Shop, ready: Vec<Cleared>) -> Result<(), Halt> {
        let mut waiting: VecDeque<Cleared> = ready.into();
        let (sender, mut reports) = mpsc::channel::<Report>(UPDATES_MAX);
        let mut running: FuturesUnordered<BoxFuture<'_, Done>> = FuturesUnordered::new();
        let most = self.core.options.limits.max_parallel.max(1);
        let mut kept = Kept::default();
        let this = &*self;
        loop {
            let mut begun = Vec::new();
            while running.len() + begun.len() < most
                && let Some(cleared) = waiting.pop_front()
            {
                if let Some(cleared) = this.intend(cleared).await? {
                    begun.push(cleared);
                }
            }
            if !begun.is_empty() {
                this.flush().await?;
                // One sync covers all that start now.
                if begun.iter().any(|cleared| cleared.tool.spec().replay == Replay::Never) {
                    this.core.bus.barrier().await?;
                }
                for cleared in begun {
                    running.push(Box::pin(this.call(batch, shop, cleared, sender.clone())));
                }
            }
            let due = kept.due_ms().map(|at| at.saturating_sub(this.core.options.clock.monotonic_ms()));
            tokio::select! {
                biased;
                Some(report) = reports.recv() => this.report(report, &mut kept).await?,
                done = running.next() => {
                    let Some(Done { record, outcome, stop, notes }) = done else { return Ok(()) };
                    kept.forget(&record.result_entry_id);
                    this.emit_all(notes);
                    this.store_outcome(&record, outcome, false, stop, false).await?;
                    // Others still run: what has ended is told now.
                    if !running.is_empty() || !waiting.is_empty() {
                        this.flush().await?;
                    }
                }
                () = this.core.options.clock.sleep(Duration::from_millis(due.unwrap_or_default())), if due.is_some() => {
                    this.keep(&mut kept).await?;
                }
            }
        }
    }

    /// Stores the intent of a call. `None`: it is not to start any more, and has its result.
    async fn intend(&self, cleared: Cleared) -> Result<Option<Cleared>, Halt> {
        let Cleared { record, call, tool, args, terminate, rerun, .. } = &cleared;
        let start = start_event(call, effective_args(call, args));
        let stopped = self.look().is_some_and(|open| open.state.stop.is_some()) && !rerun;
        if stopped {
            let (record, call) = (record.clone(), call.clone());
            self.refuse(record, call, CallFailure::Cancelled, false, Vec::new(), false).await?;
            return Ok(None);
        }
        let replay = tool.spec().replay;
        let intended = self
            .go_on(|lane, open, _| {
                let plan = if *rerun {
                    tools::rerun(lane, open, record, start)
                } else {
                    tools::intend(lane, open, record, args, replay, *terminate, start)?
                };
                Ok((Some(plan), ()))
            })
            .await?;
        if intended.is_some() {
            let running = running(call, effective_args(call, args));
            self.core.live().entry(self.lane.to_owned()).or_default().tools.push(running);
            return Ok(Some(cleared));
        }
        // The end of the operation settles it.
        Ok(None)
    }

    /// The running call, the hook behind it, and its outcome.
    async fn call(&self, batch: &ToolBatch, shop: &Shop, cleared: Cleared, reports: mpsc::Sender<Report>) -> Done {
        let Cleared { record, call, tool, args, terminate, context, .. } = cleared;
        let done = |output: ToolOutput, duration_ms, stop, notes| Done {
            record: record.clone(),
            outcome: CallOutcome {
                call: call.clone(),
                invocation_id: Some(record.result_entry_id.clone()),
                output,
                duration_ms,
            },
            stop,
            notes,
        };
        // The intent is stored; an abort that came since then lets nothing start.
        let Ok(token) = self.gate.admit() else {
            return done(CallFailure::Cancelled.into_output(), None, false, Vec::new());
        };
        let options = &self.core.options;
        let (updates, receiver) = Updates::channel(UPDATES_MAX);
        let ctx = self.ctx(batch, shop, &record, &call, token.child_token(), updates);
        let (clock, grace) = (Arc::clone(&options.clock), options.limits.grace);
        let mut run = run_tool(tool, args.clone(), ctx, receiver, token, clock, grace);
        let mut ran = None;
        while let Some(event) = run.next().await {
            match event {
                ToolProgress::Update(update) => {
                    let result = record.result_entry_id.clone();
                    // The receiver lives as long as this future does.
                    drop(reports.send(Report::Progress { result, call: call.clone(), update }).await);
                }
                ToolProgress::Done(found) => ran = Some(found),
            }
        }
        let Some(ran) = ran else { return done(CallFailure::Cancelled.into_output(), None, false, Vec::new()) };
        // Nothing of its progress is told or kept behind its end.
        let (drained, told) = oneshot::channel();
        drop(reports.send(Report::Drained(drained)).await);
        drop(told.await);
        let mut output = ran.output;
        output.terminate |= terminate;
        output.content.extend(context.into_iter().map(Content::text));
        let mut chain = self.chain();
        let scope = self.call_scope(&record);
        let stop = chain.after_tool(&scope, &call, &args, &mut output, ran.duration_ms).await;
        let notes = std::mem::take(&mut chain.notes);
        done(output, Some(ran.duration_ms), stop, notes)
    }

    fn call_scope(&self, record: &CallRecord) -> HookScope {
        let turn = self.look().map_or(1, |open| open.state.counters.turns.saturating_add(1));
        HookScope {
            run_id: self.operation.clone(),
            lane: self.lane.to_owned(),
            turn,
            key: record.result_entry_id.to_string(),
        }
    }

    fn ctx(
        &self,
        batch: &ToolBatch,
        shop: &Shop,
        record: &CallRecord,
        call: &ToolCall,
        cancel: tokio_util::sync::CancellationToken,
        updates: Updates,
    ) -> ToolCtx {
        let options = &self.core.options;
        let model = &batch.configuration.model;
        let image = options.models.resolve(&model.provider, &model.model_id).is_some_and(|model| model.takes_images());
        ToolCtx {
            tool_call_id: call.id.clone(),
            invocation_id: record.result_entry_id.clone(),
            run_id: self.operation.clone(),
            turn_id: batch.turn_id.clone(),
            lane: self.lane.to_owned(),
            session: options.tool_env.session.clone(),
            cwd: options.tool_env.cwd.clone(),
            guard: Arc::clone(&options.tool_env.guard),
            model_inputs: Inputs { text: true, image },
            enabled_tools: Arc::clone(&shop.names),
            cancel,
            updates,
            memos: self.core.memos(self.lane, &self.operation, &record.result_entry_id),
        }
    }

    /// Tells progress, and keeps it where it is worth it.
    async fn report(&self, report: Report, kept: &mut Kept) -> Result<(), Halt> {
        let (result, call, update) = match report {
            Report::Progress { result, call, update } => (result, call, update),
            Report::Drained(drained) => {
                // A call that was dropped does not wait for it.
                let _waits = drained.send(());
                return Ok(());
            }
        };
        if let Some(live) = self.core.live().get_mut(self.lane)
            && let Some(tool) = live.tools.iter_mut().find(|tool| tool.tool_call_id == call.id)
        {
            tool.partial = Some(Arc::clone(&update.partial));
        }
        self.emit(Event::ToolUpdate {
            tool_call_id: call.id,
            tool_name: call.name,
            partial: Arc::clone(&update.partial),
        });
        if update.checkpoint {
            kept.offer(&result, snapshot_of(&update.partial));
            self.keep(kept).await?;
        }
        self.flush().await
    }

    /// Keeps the progress that is due.
    async fn keep(&self, kept: &mut Kept) -> Result<(), Halt> {
        for (result, snapshot) in kept.take_due(self.core.options.clock.monotonic_ms()) {
            self.settle(|lane, open, _| Ok((Some(tools::progress(lane, open, &result, &snapshot)?), ()))).await?;
        }
        Ok(())
    }

    /// Deals with calls that a dead process began. Gives those that run again.
    async fn recover_calls(&mut self, batch: &ToolBatch) -> Result<Vec<Cleared>, Halt> {
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

    /// The operation is to end: every call gets its result, and the batch its place.
    pub(super) async fn reconcile_tools(&mut self, open: &Open) -> Result<Step, Halt> {
        let batch = tools::batch(open)?.clone();
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
                CallStatus::OutcomeReady { .. } | CallStatus::Completed { .. } => {}
            }
        }
        self.place_front(self.resumed && !self.stepped).await?;
        Ok(Step::Continue)
    }
}

fn running(call: &ToolCall, effective_args: Option<Arc<Value>>) -> RunningTool {
    RunningTool {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        args: Arc::new(call.arguments.clone()),
        effective_args,
        partial: None,
        settled: None,
    }
}

fn start_event(call: &ToolCall, effective_args: Option<Arc<Value>>) -> Event {
    Event::ToolStart {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        args: Arc::new(call.arguments.clone()),
        effective_args,
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

/// The call that a result answers.
fn call_id(message: &crate::model::Message) -> Option<&str> {
    match message {
        crate::model::Message::ToolResult(result) => Some(&result.tool_call_id),
        _ => None,
    }
}

/// Progress as it is kept: the newest text, and what programs read.
fn snapshot_of(partial: &ToolResultView) -> Value {
    let mut room = CHECKPOINT_BYTES_MAX;
    let mut content: Vec<Content> = Vec::new();
    for block in partial.content.iter().rev() {
        let Some(text) = block.as_text() else { continue };
        let mut start = text.len().saturating_sub(room);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        content.insert(0, Content::text(text.get(start..).unwrap_or_default()));
        room = room.saturating_sub(text.len());
        if room == 0 {
            break;
        }
    }
    json!({ "content": content, "details": partial.details, "usage": partial.usage })
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

/// Memos of a call, kept in the session until its outcome.
struct StoredMemos {
    core: Arc<Core>,
    lane: String,
    operation: RunId,
    result: EntryId,
}

#[async_trait]
impl Memos for StoredMemos {
    async fn get(&self, name: &str) -> Option<Value> {
        let key = format!("{}:{}:{name}", self.operation, self.result);
        self.core.options.store.value(namespace::TOOL_MEMO, &key).ok().flatten()
    }

    async fn set(&self, name: &str, value: Value) -> Result<(), String> {
        let key = format!("{}:{}:{name}", self.operation, self.result);
        let result = self.result.clone();
        let set = self.core.job(&self.lane, |lane, _| {
            let open = open_of(lane)?;
            let runs = tools::batch(open)?
                .calls
                .iter()
                .any(|call| call.result_entry_id == result && matches!(call.status, CallStatus::EffectPending { .. }));
            if !runs {
                return Ok((None, false));
            }
            let mut plan = Plan::new(lane);
            plan.set(namespace::TOOL_MEMO, &key, &value)?;
            Ok::<_, Halt>((Some(plan), true))
        });
        match set.await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the call is over".to_owned()),
            Err(Halt::Fault(fault)) => Err(fault.message),
            Err(Halt::Closed) => Err("the session is closed".to_owned()),
        }
    }
}

impl Core {
    /// The memos of a call.
    fn memos(self: &Arc<Self>, lane: &str, operation: &RunId, result: &EntryId) -> Arc<dyn Memos> {
        Arc::new(StoredMemos {
            core: Arc::clone(self),
            lane: lane.to_owned(),
            operation: operation.clone(),
            result: result.clone(),
        })
    }

    /// What a call has kept: names and values.
    fn memos_of(&self, operation: &RunId, result: &EntryId) -> Result<Vec<(String, Value)>, Halt> {
        let prefix = format!("{operation}:{result}:");
        let found =
            self.options.store.values(namespace::TOOL_MEMO, &prefix).map_err(|error| Fault::of_store(&error))?;
        let name = |key: String| key.get(prefix.len()..).unwrap_or_default().to_owned();
        Ok(found.into_iter().map(|(key, value)| (name(key), value)).collect())
    }
}
