//! Calls that run: started together, listened to, ended one by one.
//!
//! Keeps true: a tool starts after its intent is stored, and one that may not run twice after that is synced; nothing of
//! a call's progress is told or kept behind its end; progress is kept no oftener than it is worth.
//!
//! Must not know: what a tool does, how the calls of a reply follow one another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::super::core::Halt;
use super::super::phase::tools;
use super::Driver;
use super::tools::{Cleared, Shop};
use crate::model::{CallRecord, Content, EntryId, Event, Replay, ToolBatch, ToolCall, ToolResultView};
use crate::port::{HookScope, Inputs, ToolCtx, ToolOutput, ToolUpdate, Updates};
use crate::turn::{CallFailure, CallOutcome, ToolProgress, UPDATES_MAX, effective_args, run_tool};

/// Progress of one call is kept at most once in this time.
const CHECKPOINT_EVERY_MS: u64 = 1_000;
/// Text of kept progress, in bytes: the newest.
const CHECKPOINT_BYTES_MAX: usize = 32 * 1024;

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

/// Calls that run, and those that have ended and are not settled yet.
#[derive(Default)]
struct Running<'a> {
    calls: FuturesUnordered<BoxFuture<'a, Done>>,
    ended: VecDeque<Done>,
}

impl Running<'_> {
    fn len(&self) -> usize {
        self.calls.len() + self.ended.len()
    }

    /// The next call that has ended; `None` = none runs.
    async fn next(&mut self) -> Option<Done> {
        match self.ended.pop_front() {
            Some(done) => Some(done),
            None => self.calls.next().await,
        }
    }

    /// Waits for a job of the batch. The calls go on meanwhile: they may hold what the job waits for.
    async fn beside<T>(&mut self, job: impl Future<Output = T>) -> T {
        let mut job = std::pin::pin!(job);
        loop {
            tokio::select! {
                biased;
                done = &mut job => return done,
                Some(ended) = self.calls.next(), if !self.calls.is_empty() => self.ended.push_back(ended),
            }
        }
    }
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
    /// Runs cleared calls together, at most `max_parallel` at a time, and stores each outcome as it comes.
    pub(super) async fn run_all(&mut self, batch: &ToolBatch, shop: &Shop, ready: Vec<Cleared>) -> Result<(), Halt> {
        let mut waiting: VecDeque<Cleared> = ready.into();
        let (sender, mut reports) = mpsc::channel::<Report>(UPDATES_MAX);
        let mut running = Running::default();
        let most = self.core.options.limits.max_parallel.max(1);
        let mut kept = Kept::default();
        let this = &*self;
        loop {
            let mut begun = Vec::new();
            while running.len() + begun.len() < most
                && let Some(cleared) = waiting.pop_front()
            {
                if let Some(cleared) = running.beside(this.intend(cleared)).await? {
                    begun.push(cleared);
                }
            }
            if !begun.is_empty() {
                running.beside(this.before_effects(&begun)).await?;
                for cleared in begun {
                    running.calls.push(Box::pin(this.call(batch, shop, cleared, sender.clone())));
                }
            }
            let due = kept.due_ms().map(|at| at.saturating_sub(this.core.options.clock.monotonic_ms()));
            tokio::select! {
                biased;
                Some(report) = reports.recv() => running.beside(this.report(report, &mut kept)).await?,
                done = running.next() => {
                    let Some(Done { record, outcome, stop, notes }) = done else { return Ok(()) };
                    kept.forget(&record.result_entry_id);
                    this.emit_all(notes);
                    running.beside(this.store_outcome(&record, outcome, false, stop, false)).await?;
                    // Others still run: what has ended is told now.
                    if running.len() > 0 || !waiting.is_empty() {
                        running.beside(this.flush()).await?;
                    }
                }
                () = this.core.options.clock.sleep(Duration::from_millis(due.unwrap_or_default())), if due.is_some() => {
                    running.beside(this.keep(&mut kept)).await?;
                }
            }
        }
    }

    /// What has to be told and synced before calls start. One sync covers all that start now.
    async fn before_effects(&self, begun: &[Cleared]) -> Result<(), Halt> {
        self.flush().await?;
        if begun.iter().any(|cleared| cleared.tool.spec().replay == Replay::Never) {
            self.core.bus.barrier().await?;
        }
        Ok(())
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
        // An abort came first. What never starts need not wait for those that run; what a dead process began is
        // settled as that by the end of the operation.
        if intended.is_none() && self.ends() && !rerun {
            let (record, call) = (record.clone(), call.clone());
            self.refuse(record, call, CallFailure::Cancelled, false, Vec::new(), false).await?;
        }
        Ok(intended.is_some().then_some(cleared))
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
        let Some(token) = self.admitted().await else {
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
        // A hook sees what would be stored without it.
        let mut output = done(ran.output, None, false, Vec::new()).outcome.normalised().output;
        output.terminate |= terminate;
        output.content.extend(context.into_iter().map(Content::text));
        let mut chain = self.chain_of(shop.hooks.clone());
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
}

pub(super) fn start_event(call: &ToolCall, effective_args: Option<Arc<Value>>) -> Event {
    Event::ToolStart {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        args: Arc::new(call.arguments.clone()),
        effective_args,
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
