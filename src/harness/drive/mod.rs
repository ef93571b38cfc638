//! The driver: the only place that waits. It looks at the state, does what the state asks for, commits what came of it,
//! and looks again, until the operation is over or waits for something outside.
//!
//! Keeps true: an effect starts only where the gate admits it; what an effect left is settled by the procedure that
//! started it, and by recovery where that process died; a step that changes nothing is a bug, not a loop.
//!
//! Must not know: what a step decides.

mod calls;
mod generate;
mod interrupted;
mod memos;
mod recover;
mod tools;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::core::{Core, Halt};
use super::error::Fault;
use super::gate::{Gate, Shut};
use super::hooks::{Chain, DriveVerdict};
use super::memory::{LaneMemory, Open};
use super::options::{Blocked, Drive, Outcome, Settled, Wait};
use super::phase::{self, Facts, cancel, checkpoint, start};
use super::plan::Plan;
use crate::model::{CancelCause, ErrorRecord, Event, Leaf, Message, OperationState, RecoveryAction, RunId};
use crate::port::{HookPoint, HookScope, Hooks};

/// One drive of one operation.
pub(super) struct Driver<'a> {
    core: &'a Arc<Core>,
    lane: &'a str,
    name: Arc<str>,
    gate: Arc<Gate>,
    drive: Drive,
    /// A process before this one began the operation.
    resumed: bool,
    /// This drive has begun something itself: what is there need not be a dead process's any more.
    stepped: bool,
    operation: RunId,
    /// The step of now met an abort, which may have been given up since.
    held_up: AtomicBool,
    /// All facts of the error the operation failed with.
    failure: Option<ErrorRecord>,
}

/// How a step ended.
enum Step {
    Continue,
    Waiting(Wait),
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        core: &'a Arc<Core>,
        lane: &'a str,
        gate: Arc<Gate>,
        drive: Drive,
        resumed: bool,
        open: &Open,
    ) -> Self {
        let name = core.memory().lanes.get(lane).map_or_else(|| Arc::from(lane), |memory| Arc::clone(&memory.name));
        let operation = open.id().clone();
        Self {
            core,
            lane,
            name,
            gate,
            drive,
            resumed,
            stepped: false,
            operation,
            held_up: AtomicBool::new(false),
            failure: None,
        }
    }

    /// Drives to the end, or to a wait.
    pub(super) async fn run(mut self) -> Result<Outcome, Halt> {
        let (core, lane, gate) = (self.core, self.lane, Arc::clone(&self.gate));
        let mut ended = tokio::select! {
            biased;
            ended = self.finish_all() => ended,
            never = hear_aborts(core, lane, &gate) => match never {},
        };
        if ended.is_ok()
            && let Err(fault) = self.core.bus.flush().await
        {
            ended = Err(Halt::Fault(fault));
        }
        if let Err(Halt::Fault(fault)) = ended {
            ended = Err(Halt::Fault(self.core.stop(fault).await));
            self.core.bus.abandon().await;
        }
        ended
    }

    async fn finish_all(&mut self) -> Result<Outcome, Halt> {
        if self.resumed {
            self.begin_resumed();
        }
        let mut asked = false;
        loop {
            let Some(open) = self.look() else { return self.settled() };
            let before = open.state.clone();
            let step = if open.cancelled() {
                self.reconcile(open).await?
            } else if !asked {
                asked = true;
                match self.ask_before_drive(&open).await? {
                    Some(step) => step,
                    None => continue,
                }
            } else {
                self.stepped = true;
                self.step(open).await?
            };
            match step {
                Step::Waiting(wait) => return Ok(Outcome::Waiting(wait)),
                Step::Continue => self.check_progress(&before)?,
            }
        }
    }

    async fn step(&mut self, open: Open) -> Result<Step, Halt> {
        match &open.state.leaf {
            Leaf::Starting => self.start(open).await,
            Leaf::Checkpoint { .. } => self.checkpoint(open).await,
            Leaf::AssistantReady { .. } => Box::pin(self.generate(open)).await,
            Leaf::AssistantWait { .. } => self.wait_for_retry(&open).await,
            Leaf::AssistantPending(_) => self.recover_reply(&open).await,
            Leaf::Tools { .. } => Box::pin(self.tools(open)).await,
        }
    }

    /// What the lane says now; `None` when the operation is over.
    fn look(&self) -> Option<Open> {
        let memory = self.core.memory();
        let open = memory.lanes.get(self.lane)?.operation.as_ref();
        open.filter(|open| *open.id() == self.operation).cloned()
    }

    /// Reads the lane, without a job.
    fn read<T>(&self, read: impl FnOnce(&LaneMemory) -> T) -> Result<T, Fault> {
        let memory = self.core.memory();
        let lane = memory.lanes.get(self.lane);
        lane.map(read).ok_or_else(|| Fault::broken(format!("there is no lane {:?}", self.lane)))
    }

    fn settled(&mut self) -> Result<Outcome, Halt> {
        let memory = self.core.memory();
        let lane = memory.lanes.get(self.lane);
        let result =
            lane.and_then(|lane| lane.last_result.clone()).filter(|found| found.operation_id == self.operation);
        let Some(result) = result else { return Err(Fault::broken("an operation ended without a result").into()) };
        let text = lane
            .and_then(|lane| lane.messages_since(result.from_tip_id.as_ref()).iter().rev().find_map(last_text))
            .unwrap_or_default();
        let error = result.error_kind.zip(result.error.as_ref()).map(|(kind, error)| match self.failure.take() {
            // The reply's record has all facts; the kind of the end is that of the result.
            Some(failure) => ErrorRecord { kind, ..failure },
            None => ErrorRecord::new(kind, error.message.clone()),
        });
        Ok(Outcome::Settled(Box::new(Settled { result, error, text })))
    }

    fn check_progress(&self, before: &OperationState) -> Result<(), Halt> {
        let held_up = self.held_up.swap(false, Ordering::Relaxed);
        match self.look() {
            Some(open) if open.state == *before && !held_up => {
                Err(Fault::broken(format!("the step at {} changed nothing", before.leaf.word())).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A job of this drive that starts something: not planned once the operation is to end.
    async fn go_on<T>(
        &self,
        plan: impl FnOnce(&LaneMemory, &Open, &Facts<'_>) -> Result<(Option<Plan>, T), Fault>,
    ) -> Result<Option<T>, Halt> {
        let gate = Arc::clone(&self.gate);
        let done = self
            .core
            .job(self.lane, |lane, facts| {
                let open = open(lane)?;
                if open.cancelled() || gate.admit().is_err() {
                    return Ok((None, None));
                }
                let (plan, answer) = plan(lane, open, facts)?;
                Ok::<_, Halt>((plan, Some(answer)))
            })
            .await?;
        if done.is_none() {
            self.gate_settled().await;
        }
        Ok(done)
    }

    /// A job of this drive that settles what has started.
    async fn settle<T>(
        &self,
        plan: impl FnOnce(&LaneMemory, &Open, &Facts<'_>) -> Result<(Option<Plan>, T), Fault>,
    ) -> Result<T, Halt> {
        self.core.job(self.lane, |lane, facts| Ok::<_, Halt>(plan(lane, open(lane)?, facts)?)).await
    }

    /// Waits for an abort that is on its way to the store, if one is. The step that met it may have changed nothing.
    async fn gate_settled(&self) {
        if self.gate.admit().is_err() {
            self.gate.settled().await;
            self.held_up.store(true, Ordering::Relaxed);
        }
    }

    /// The token of something that may start now; `None` = the operation is to end.
    async fn admitted(&self) -> Option<CancellationToken> {
        loop {
            if self.look().is_none_or(|open| open.cancelled()) {
                return None;
            }
            match self.gate.admit() {
                Ok(token) => return Some(token),
                Err(Shut) if self.gate.is_shut() => return None,
                // Until it is known whether the abort on its way is stored.
                Err(Shut) => self.gate.settled().await,
            }
        }
    }

    fn chain(&self) -> Chain<'_> {
        self.chain_of(self.core.hooks())
    }

    fn chain_of(&self, hooks: Vec<Arc<dyn Hooks>>) -> Chain<'_> {
        let options = &self.core.options;
        Chain { hooks, gate: &self.gate, clock: &*options.clock, grace: options.limits.grace, notes: Vec::new() }
    }

    fn scope(&self, open: &Open, key: impl Into<String>) -> HookScope {
        HookScope {
            run_id: open.id().clone(),
            lane: self.lane.to_owned(),
            turn: open.state.counters.turns.saturating_add(1),
            key: key.into(),
        }
    }

    fn emit(&self, event: Event) {
        self.emit_as(false, event);
    }

    fn emit_as(&self, recovery: bool, event: Event) {
        self.core.bus.push(&self.name, recovery, event);
    }

    fn emit_all(&self, events: Vec<Event>) {
        for event in events {
            self.emit(event);
        }
    }

    async fn flush(&self) -> Result<(), Halt> {
        Ok(self.core.bus.flush().await?)
    }

    /// The hook before a drive; `Some` where the drive ends or looks again.
    async fn ask_before_drive(&mut self, open: &Open) -> Result<Option<Step>, Halt> {
        let mut chain = self.chain();
        if !chain.listens(HookPoint::BeforeDrive) {
            return Ok(None);
        }
        self.flush().await?;
        let scope = self.scope(open, open.id().as_str());
        let (kind, state) = (open.meta.intent.kind(), open.state.leaf.word());
        let verdict = chain.before_drive(&scope, kind, state, self.resumed).await;
        let notes = std::mem::take(&mut chain.notes);
        drop(chain);
        self.emit_all(notes);
        match verdict {
            Ok(DriveVerdict::Go) => Ok(None),
            Ok(DriveVerdict::Block(reason)) => Ok(Some(Step::Waiting(Wait::Blocked(Blocked::Hook { reason })))),
            Ok(DriveVerdict::Abort) => {
                abort(self.core, self.lane, CancelCause::Hook).await?;
                Ok(None)
            }
            Err(Shut) => {
                self.gate_settled().await;
                Ok(None)
            }
        }
    }

    async fn start(&mut self, open: Open) -> Result<Step, Halt> {
        let mut chain = self.chain();
        let mut verdict = super::hooks::RunVerdict::default();
        if chain.listens(HookPoint::BeforeRun) {
            self.flush().await?;
            let scope = self.scope(&open, open.id().as_str());
            let prompt = self.read(|lane| lane.messages_since(open.meta.source_tip_id.as_ref()))?;
            let asked = chain.before_run(&scope, &prompt).await;
            let notes = std::mem::take(&mut chain.notes);
            drop(chain);
            self.emit_all(notes);
            let Ok(found) = asked else {
                self.gate_settled().await;
                return Ok(Step::Continue);
            };
            verdict = found;
        }
        self.go_on(|lane, open, facts| {
            let plan = match verdict.block {
                Some(_) => start::refuse(lane, open, facts)?,
                None => start::begin(lane, open, verdict.injected, facts)?,
            };
            Ok((Some(plan), ()))
        })
        .await?;
        Ok(Step::Continue)
    }

    async fn checkpoint(&mut self, open: Open) -> Result<Step, Halt> {
        super::import::spool(self.core, self.lane).await?;
        let planned = self
            .go_on(|lane, open, facts| {
                match checkpoint::boundary(lane, open, &|warnings| self.untold(warnings), facts)? {
                    checkpoint::Boundary::Next(plan) => Ok((Some(*plan), true)),
                    checkpoint::Boundary::MayFinish => Ok((None, false)),
                }
            })
            .await?;
        match planned {
            None | Some(true) => Ok(Step::Continue),
            Some(false) => self.finish(open).await,
        }
    }

    /// Nothing is owed: the hook before the end, then the end, or what came meanwhile.
    async fn finish(&mut self, open: Open) -> Result<Step, Halt> {
        let mut chain = self.chain();
        let mut follow_up = None;
        if chain.listens(HookPoint::BeforeRunEnd) {
            self.flush().await?;
            let source = open.meta.source_tip_id.as_ref();
            let (trigger, text, stop) = self.read(|lane| {
                let trigger = lane.tip.as_ref().map(ToString::to_string).unwrap_or_default();
                let text = lane.messages_since(source).iter().rev().find_map(last_text).unwrap_or_default();
                (trigger, text, checkpoint::last_stop(lane, &open))
            })?;
            let scope = self.scope(&open, format!("{}:{trigger}", open.id()));
            let active = open.state.counters.follow_ups > 0;
            let asked = chain.before_run_end(&scope, stop, &text, active).await;
            let notes = std::mem::take(&mut chain.notes);
            drop(chain);
            self.emit_all(notes);
            let Ok(found) = asked else {
                self.gate_settled().await;
                return Ok(Step::Continue);
            };
            follow_up = found;
            super::import::spool(self.core, self.lane).await?;
        }
        self.go_on(|lane, open, facts| {
            let plan = checkpoint::finish(lane, open, follow_up, &|warnings| self.untold(warnings), facts)?;
            Ok((Some(plan), ()))
        })
        .await?;
        Ok(Step::Continue)
    }

    /// The warnings that this process has not told yet.
    fn untold(&self, warnings: Vec<(&'static str, String)>) -> Vec<Event> {
        let mut warned = self.core.warned();
        let untold = warnings.into_iter().filter(|(code, _)| warned.insert((self.operation.clone(), code)));
        untold.map(|(code, message)| Event::Warning { code: code.to_owned(), message }).collect()
    }

    /// The operation is to end: what had started is settled, then it ends.
    async fn reconcile(&mut self, open: Open) -> Result<Step, Halt> {
        match &open.state.leaf {
            Leaf::AssistantPending(_) => self.recover_reply(&open).await,
            Leaf::Tools { .. } => self.reconcile_tools(&open).await,
            Leaf::Starting | Leaf::Checkpoint { .. } | Leaf::AssistantReady { .. } | Leaf::AssistantWait { .. } => {
                self.settle(|lane, open, facts| Ok((Some(cancel::end(lane, open, facts)?), ()))).await?;
                Ok(Step::Continue)
            }
        }
    }

    async fn wait_for_retry(&mut self, open: &Open) -> Result<Step, Halt> {
        let Leaf::AssistantWait { not_before, generation_context, .. } = &open.state.leaf else {
            return Ok(Step::Continue);
        };
        let clock = Arc::clone(&self.core.options.clock);
        // A clock that was set must not make anyone wait longer than the policy allows.
        let longest = generation_context.retry_policy.max_agent_delay_ms;
        let rest = not_before.saturating_sub(clock.now_ms()).min(longest);
        if rest > 0 {
            if !self.drive.wait_for_retry {
                return Ok(Step::Waiting(Wait::Retry { not_before: *not_before }));
            }
            self.flush().await?;
            let Ok(token) = self.gate.admit() else {
                self.gate_settled().await;
                return Ok(Step::Continue);
            };
            tokio::select! {
                biased;
                () = token.cancelled() => return Ok(Step::Continue),
                () = self.gate.changed() => {
                    // With another configuration it is another step, which need not wait.
                    self.held_up.store(true, Ordering::Relaxed);
                    return Ok(Step::Continue);
                }
                () = clock.sleep(std::time::Duration::from_millis(rest)) => {}
            }
        }
        let waited = open.state.leaf.clone();
        let due = |lane: &LaneMemory, open: &Open, _: &Facts<'_>| {
            let due = open.state.leaf == waited;
            Ok((due.then(|| phase::request::retry_due(lane, open)).transpose()?, due))
        };
        if self.go_on(due).await? == Some(false) {
            self.held_up.store(true, Ordering::Relaxed);
        }
        Ok(Step::Continue)
    }

    fn recovery_step(&self, state: &str, action: RecoveryAction, call: Option<String>, notice: Option<String>) {
        let run_id = self.operation.clone();
        self.emit_as(true, Event::RecoveryStep { run_id, state: state.to_owned(), action, tool_call_id: call, notice });
    }
}

/// The open operation of a lane.
fn open(lane: &LaneMemory) -> Result<&Open, Fault> {
    lane.operation.as_ref().ok_or_else(|| Fault::broken("the operation is over"))
}

fn last_text(message: &Arc<Message>) -> Option<String> {
    message.as_assistant().map(crate::model::AssistantMessage::text).filter(|text| !text.is_empty())
}

/// Looks whether an abort that was dropped on its way is stored: a job that finds it shuts the gate. What runs for long
/// has no job of its own to find it.
async fn hear_aborts(core: &Core, lane: &str, gate: &Gate) -> Infallible {
    loop {
        gate.given_up().await;
        // The drive meets whatever is wrong.
        let _found = core.job(lane, |_, _| Ok::<_, Halt>((None, ()))).await;
    }
}

/// Asks for the end of the open operation of a lane. Returns when that is durable; `None` if none is open.
pub(super) async fn abort(core: &Core, lane: &str, cause: CancelCause) -> Result<Option<cancel::Taken>, Halt> {
    let is_open = |lane: &LaneMemory| lane.operation.is_some();
    let seen = core.memory().lanes.get(lane).is_some_and(is_open);
    // One that is being accepted right now counts: the line decides.
    if !seen && !core.job(lane, |lane, _| Ok::<_, Halt>((None, is_open(lane)))).await? {
        return Ok(None);
    }
    let underway = core.drives().get(lane).map(Gate::begin_abort);
    let taken = core
        .job(lane, |lane, facts| {
            let Some(open) = &lane.operation else { return Ok((None, None)) };
            match cancel::request(lane, open, cause, facts)? {
                Some((plan, taken)) => Ok((Some(plan), Some(taken))),
                None => Ok::<_, Halt>((None, Some(cancel::Taken::default()))),
            }
        })
        .await?;
    // The drive of this moment: one that began meanwhile has the same operation.
    if taken.is_some()
        && let Some(gate) = core.drives().get(lane)
    {
        gate.shut();
    }
    drop(underway);
    core.nudge().await?;
    Ok(taken)
}
