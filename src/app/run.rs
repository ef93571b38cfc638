//! `pirn [PROMPT]`: one run, from the arguments to the exit.
//!
//! Keeps true: signals and the timeout can end every wait; the first cause decides the verdict, and a second signal
//! ends the wait at once; the verdict is not changed once it was told; nothing is sent before settings, model, tools
//! and prompt are known to be good.
//!
//! Must not know: rules of turns and calls, protocols, how lines are formatted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::kept::{Kept, storage_error};
use super::log::{self, Log};
use super::outputs::Wanted;
use super::report::Screen;
use super::resume::Finished as Told;
use super::setup::Setup;
use super::signals::{Signals, cause_of};
use super::start::{self, Begun, Deadline, Ready, Refused, Start};
use super::verdict::{Verdict, exit_unstored, has_answer};
use super::{apart, children};
use crate::cli::RunArgs;
use crate::config::{self, Env, Settings};
use crate::exit::Exit;
use crate::harness::{
    AbortError, Drive, Harness, Input, Lane, Listener, OperationStatus, Outcome, QueueError, RunError,
};
use crate::model::{CancelCause, ErrorKind, ErrorRecord, Event, InboxKind, LaneEvent, Model, Status, Thinking};
use crate::port::Clock;
use crate::print::{
    self, AnswerFile, Finished, Handle, LimitsLine, ModelRef, Msg, Printer, PrinterGone, ResultLine, SESSION_VERSION,
    SessionLine, StdoutFailure, UsageTotals, rfc3339,
};

/// Runs the agent once.
pub(super) async fn command(
    args: RunArgs,
    env: &Env,
    screen: &Screen,
    mut signals: Signals,
    clock: Arc<dyn Clock>,
) -> Exit {
    // What names the timeout beside the configuration also covers reading that, which may be a pipe.
    let named = args.timeout.as_deref().or_else(|| env.text("PIRN_TIMEOUT"));
    let timeout = named.and_then(|text| config::parse_duration(text).ok().flatten());
    let mut deadline = Deadline { started_ms: clock.monotonic_ms(), timeout, clock: Arc::clone(&clock) };
    let mut screen = screen.clone();
    screen.known.started_ms = Some(deadline.started_ms);
    match Box::pin(start::ready(&args, env, &mut screen, &mut signals, &mut deadline)).await {
        Ok(ready) => Box::pin(Running::new(&args, ready, signals, deadline).drive()).await,
        Err(Refused::Usage(error)) => screen.refuse(error, &*clock).await,
        Err(Refused::Error(error)) => screen.fail(error, &*clock).await,
        Err(Refused::Cancelled(cause)) => screen.cancelled(cause, &*clock).await,
    }
}

/// A run with everything it holds.
struct Running {
    screen: Screen,
    settings: Settings,
    setup: Setup,
    kept: Kept,
    harness: Harness,
    lane: Lane,
    /// A dead process left an operation open.
    recovered: bool,
    /// Messages that follow, each when the run would end.
    then: Vec<String>,
    drive: Drive,
    cwd: String,
    printer: Printer,
    warnings: Vec<(&'static str, String)>,
    start: Option<Start>,
    /// Who asked for the end when the run was over already.
    late: Option<CancelCause>,
    signals: Signals,
    deadline: Deadline,
    files: Files,
}

/// The files beside stdout, but for that of the events, which the printer has.
pub(super) struct Files {
    pub(super) wanted: Wanted,
    pub(super) answer: Option<AnswerFile>,
    pub(super) log: Option<Log>,
}

/// How the wait for the agent ended.
enum Ended {
    Outcome(Box<Result<Outcome, RunError>>),
    /// A signal while the run was ending already: leave at once.
    Now,
    /// The reader of stdout took nothing more after the run was to end.
    Stalled,
}

impl Running {
    fn new(args: &RunArgs, ready: Ready, signals: Signals, deadline: Deadline) -> Self {
        let Ready { screen, settings, setup, kept, begun, cwd, printer, warnings, files } = ready;
        let Begun { harness, lane, start, then, recovered } = begun;
        Self {
            screen,
            settings,
            setup,
            kept,
            harness,
            lane,
            recovered,
            then,
            drive: Drive { resend: !args.no_resend, ..Drive::default() },
            cwd: cwd.display().to_string(),
            printer,
            warnings,
            start: Some(start),
            late: None,
            signals,
            deadline,
            files,
        }
    }

    async fn drive(mut self) -> Exit {
        let clock = Arc::clone(&self.deadline.clock);
        let handle = self.printer.handle();
        let (model, thinking) = (self.setup.model.spec(), self.setup.thinking.map(Thinking::as_str));
        tracing::info!(%model, thinking, tools = ?self.setup.tool_names, "model chosen");
        tracing::info!(id = %self.kept.id, file = ?self.kept.path, resumed = self.kept.resumed, "session opened");
        let tap = match self.listen(&handle) {
            Ok(tap) => tap,
            Err(error) => return self.screen.fail(error, &*clock).await,
        };
        let session = Box::new(self.session_line());
        tell(&handle, Msg::Session { line: session, ts: clock.now_ms() }).await;
        let start = self.start.take();
        // In a stream they stand behind its first line.
        for (code, message) in self.warnings() {
            tell(&handle, Msg::Warning { code, message, ts: clock.now_ms() }).await;
        }
        let start = match start {
            Some(Start::Again(finished)) => return Box::pin(self.tell_again(*finished, handle)).await,
            Some(start) => start,
            None => Start::Continue,
        };
        if self.settings.output.verbosity > 0
            && let Some(notice) = self.setup.withheld_notice()
        {
            tell(&handle, Msg::Notice(notice)).await;
        }
        // Changes of a queue are told against what waited before.
        let mut queues = self.lane.snapshot().queues;
        queues.retain(|queued| matches!(queued.kind, InboxKind::Steer | InboxKind::FollowUp | InboxKind::NextFollowUp));
        if !queues.is_empty() {
            let event = Box::new(Event::QueueUpdate { queues });
            tell(&handle, Msg::Event { event, recovery: false, ts: clock.now_ms() }).await;
        }
        let mut cause = None;
        let mut stdout_failure = None;
        let ended = self.wait(start, &handle, &mut cause, &mut stdout_failure).await;
        let verdict = match ended {
            Ended::Outcome(outcome) => match *outcome {
                Ok(outcome) => {
                    Verdict::of(outcome, stdout_failure.as_ref()).unless_signalled(&mut cause, &mut self.signals).await
                }
                Err(error) => failed(&error, cause),
            },
            Ended::Now | Ended::Stalled => {
                self.setup.supervisor.kill_now();
                return Verdict::cancelled(cause).exit();
            }
        };
        if !self.end_children(cause.is_some()).await {
            return verdict.exit();
        }
        let account = tap.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(self.conclude(verdict, account, cause)).await
    }

    /// Writes the answer to its file and tells the verdict.
    async fn conclude(mut self, verdict: Verdict, account: Account, mut cause: Option<CancelCause>) -> Exit {
        let clock = Arc::clone(&self.deadline.clock);
        let verdict = self.keep_answer(verdict, &account.text, &mut cause).await;
        if let Some(message) = self.files.log.as_ref().and_then(Log::failure) {
            self.tell_last("log", message, cause.is_some()).await;
        }
        // Where a dead process was to end of a signal, nobody has sent one to this one.
        let exit = Exit { raise: verdict.exit().raise.filter(|_| cause.is_some()), ..verdict.exit() };
        // The printer has the reason by then.
        let without_events = self.screen.events.is_some().then(|| verdict.unless_stored(String::new())).flatten();
        let instead = without_events.map(|verdict| Box::new(self.result_line(verdict.exit(), verdict, &account)));
        let line = Box::new(self.result_line(exit, verdict, &account));
        self.finish(Msg::Result { line, instead, ts: clock.now_ms() }, exit, cause).await
    }

    /// Writes the answer to its file, if there is one to be kept. What ends the wait for a reader ends the run so.
    async fn keep_answer(&mut self, verdict: Verdict, answer: &str, cause: &mut Option<CancelCause>) -> Verdict {
        if !verdict.has_answer() {
            return verdict;
        }
        let Some(file) = self.files.answer.take() else { return verdict };
        let answer = answer.to_owned();
        let writing = apart(move || Ok(file.write(&answer)));
        let why = tokio::select! {
            biased;
            written = writing => match written {
                Ok(Ok(())) => return verdict,
                Ok(Err(error)) => {
                    let message = self.files.wanted.answer_failed(&error);
                    return verdict.unless_stored(message).unwrap_or(verdict);
                }
                Err(bug) => return Verdict::failed(bug, *cause),
            },
            signal = self.signals.next() => cause_of(signal),
            () = self.deadline.passed() => CancelCause::Timeout,
        };
        let why = *cause.get_or_insert(why);
        Verdict::cancelled(Some(why))
    }

    /// Hears the events, on top of what an open operation has used already.
    fn listen(&self, handle: &Handle) -> Result<Arc<Tap>, ErrorRecord> {
        let mut account = Account::default();
        if let (Some((operation, _)), Some((turns, results))) = (self.lane.open_operation(), self.lane.progress()) {
            let rows = self.harness.usage(Some(&operation)).map_err(|error| storage_error(&error))?;
            let results = u32::try_from(results).unwrap_or(u32::MAX);
            account = Account::of_operation(&rows, turns, results);
        }
        let clock = Arc::clone(&self.deadline.clock);
        let started_ms = clock.monotonic_ms();
        let tap = Tap { handle: handle.clone(), clock, started_ms, account: Mutex::new(account) };
        let tap = Arc::new(tap);
        self.harness.subscribe(Arc::clone(&tap) as Arc<dyn Listener>).forever();
        Ok(tap)
    }

    /// Tells the end of an earlier run again.
    async fn tell_again(self, finished: Told, handle: Handle) -> Exit {
        let text = "already completed; the answer is told again".to_owned();
        tell(&handle, Msg::Notice(text)).await;
        drop(handle);
        let Told { reason, stop_reason, error: kind, cause, text } = finished;
        let error = kind.map(|kind| ErrorRecord::new(kind, "an earlier run ended so"));
        let verdict = Verdict { reason, stop_reason, error, cause };
        let mut account = Account::default();
        account.text = text;
        Box::pin(self.conclude(verdict, account, None)).await
    }

    /// Ends what tools left running, before the verdict is told. A signal meanwhile ends it at once; returns whether
    /// there is still somebody to tell.
    async fn end_children(&mut self, asked: bool) -> bool {
        let supervisor = self.setup.supervisor.clone();
        let ending = supervisor.shutdown();
        tokio::pin!(ending);
        let mut asked = asked;
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    supervisor.kill_now();
                    if asked {
                        return false;
                    }
                    asked = true;
                    // The run is over; its verdict stays, but nobody waits long for a reader any more.
                    self.late = Some(cause_of(signal));
                }
                remaining = &mut ending => {
                    return match children::left_running(&remaining) {
                        Some(message) => self.tell_last("children", message, asked).await,
                        None => true,
                    };
                }
            }
        }
    }

    /// Tells a warning behind the run, while a reader of stdout may take nothing. `asked` = the end was asked for, so
    /// that nobody waits long. Returns whether there is still somebody to tell.
    async fn tell_last(&mut self, code: &'static str, message: String, asked: bool) -> bool {
        let (clock, handle) = (Arc::clone(&self.deadline.clock), self.printer.handle());
        let telling = tell(&handle, Msg::Warning { code, message, ts: clock.now_ms() });
        let stalled = print::stalled(&*clock, || self.printer.backlog());
        tokio::pin!(telling, stalled);
        loop {
            let hurried = asked || self.late.is_some();
            tokio::select! {
                biased;
                () = &mut telling => return true,
                signal = self.signals.next() => {
                    if hurried {
                        return false;
                    }
                    self.late = Some(cause_of(signal));
                }
                () = self.deadline.passed(), if !hurried => self.late = Some(CancelCause::Timeout),
                () = &mut stalled, if hurried => return false,
            }
        }
    }

    /// What was odd before the run, with a word for programs.
    fn warnings(&self) -> Vec<(&'static str, String)> {
        let code = |warning: &String| if self.settings.warnings.contains(warning) { "config" } else { "model" };
        let of_setup = self.setup.warnings.iter().map(|warning| (code(warning), warning.clone()));
        let of_session = self.kept.warnings.iter().map(|warning| ("session", warning.clone()));
        of_setup.chain(of_session).chain(self.warnings.iter().cloned()).collect()
    }

    /// Drives the lane, and ends the run when a signal, the timeout or a closed stdout says so.
    async fn wait(
        &mut self,
        start: Start,
        handle: &Handle,
        cause: &mut Option<CancelCause>,
        stdout_failure: &mut Option<StdoutFailure>,
    ) -> Ended {
        let clock = Arc::clone(&self.deadline.clock);
        let printer = &self.printer;
        let mut stdout = printer.stdout_watch();
        let heartbeat = self.settings.output.heartbeat;
        let mut beats: u32 = 0;
        // Asked for once; an abort waits for the operation it is to end.
        let asked = watch::Sender::new(None);
        let run = work(&self.lane, start, &self.then, self.drive, &asked);
        let ending = end_when_asked(&self.lane, asked.subscribe(), &*clock);
        let stalled = print::stalled(&*clock, || printer.backlog());
        tokio::pin!(run, ending, stalled);
        loop {
            let mut why = None;
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    if cause.is_some() {
                        return Ended::Now;
                    }
                    why = Some(cause_of(signal));
                }
                failure = stdout.failed(), if stdout_failure.is_none() => {
                    *stdout_failure = Some(failure);
                    if cause.is_none() {
                        why = Some(self.signals.claim().await.unwrap_or(CancelCause::Pipe));
                    }
                }
                () = self.deadline.passed(), if cause.is_none() => why = Some(CancelCause::Timeout),
                () = &mut ending => {}
                outcome = &mut run => return Ended::Outcome(Box::new(outcome)),
                // Tools have their own time to end; a reader of stdout that takes nothing has this one.
                () = &mut stalled, if cause.is_some() => return Ended::Stalled,
                () = beat(heartbeat, beats, &self.deadline), if heartbeat.is_some() => {
                    beats = beats.saturating_add(1);
                    let elapsed_ms = self.deadline.elapsed_ms();
                    // Nothing is lost with a sign of life, and a full queue is one.
                    handle.try_send(Msg::Heartbeat { elapsed_ms });
                }
            }
            if let Some(why) = why {
                let first = *cause.get_or_insert(why);
                asked.send_replace(Some(first));
            }
        }
    }

    /// Tells the verdict and waits for the reader of stdout. What asks for the end only now leaves the verdict as it
    /// is, since that may have been read, but no longer lets the reader take its time.
    async fn finish(self, result: Msg, exit: Exit, cause: Option<CancelCause>) -> Exit {
        let Self { screen, printer, mut signals, deadline, kept, harness, lane, mut late, .. } = self;
        let clock = Arc::clone(&deadline.clock);
        let hurry = CancellationToken::new();
        if cause.or(late).is_some() {
            hurry.cancel();
        }
        let done = printer.finish_with(Some(result), hurry.cancelled(), &*clock);
        tokio::pin!(done);
        let finished = loop {
            let asked = cause.or(late).is_some();
            tokio::select! {
                biased;
                finished = &mut done => break finished,
                signal = signals.next() => {
                    if asked {
                        break Finished::Stalled;
                    }
                    late = Some(cause_of(signal));
                    hurry.cancel();
                }
                () = deadline.passed(), if !asked => {
                    late = Some(CancelCause::Timeout);
                    hurry.cancel();
                }
            }
        };
        // Nobody waits until the memory of a long conversation is free.
        drop(tokio::task::spawn_blocking(move || drop((lane, harness))));
        kept.close().await;
        let archive_failed = screen.events.as_ref().is_some_and(|events| events.failure().is_some());
        let exit = if archive_failed { exit_unstored(exit) } else { exit };
        match finished {
            Finished::Complete => exit,
            // What nobody has read is no success, also where the answer was complete when the end was asked for.
            Finished::Stalled => {
                let why = late.or(cause.filter(|_| has_answer(exit)));
                why.map_or(exit, |why| Verdict::cancelled(Some(why)).exit())
            }
            Finished::Failed(failure) => screen.stdout_failed(&failure, exit),
            Finished::Lost => {
                let record = ErrorRecord::new(ErrorKind::Internal, "the printer stopped");
                screen.fail(record, &*clock).await
            }
        }
    }

    fn session_line(&self) -> SessionLine {
        let limits = &self.settings.limits;
        SessionLine {
            version: SESSION_VERSION,
            pirn: env!("CARGO_PKG_VERSION").to_owned(),
            id: self.kept.id.clone(),
            name: self.kept.name.clone(),
            timestamp: rfc3339(self.deadline.clock.now_ms()),
            cwd: self.cwd.clone(),
            file: self.kept.path.as_ref().map(|path| path.display().to_string()),
            parent: None,
            resumed: self.kept.resumed,
            recovered: self.recovered,
            leaf_id: self.lane.tip().map(|tip| tip.as_str().to_owned()),
            model: model_ref(&self.setup.model),
            thinking: self.setup.thinking,
            tools: self.setup.tool_names.clone(),
            limits: LimitsLine {
                max_turns: limits.max_turns,
                max_cost: limits.max_cost,
                timeout_ms: limits.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            },
            config_files: self.settings.files().map(|file| file.display().to_string()).collect(),
        }
    }

    fn result_line(&self, exit: Exit, verdict: Verdict, account: &Account) -> ResultLine {
        ResultLine {
            stop_reason: verdict.stop_reason,
            text: account.text.clone(),
            session_id: Some(self.kept.id.clone()),
            session_file: self.kept.path.as_ref().map(|path| path.display().to_string()),
            leaf_id: self.lane.tip().map(|tip| tip.as_str().to_owned()),
            // What could not be saved can not be gone on with.
            resumable: self.kept.path.is_some() && !self.lane.snapshot().faulted,
            model: Some(model_ref(&self.setup.model)),
            turns: account.turns,
            requests: account.requests,
            tool_calls: account.tool_calls,
            denials: account.denials.clone(),
            usage: UsageTotals::from(&account.usage),
            cost_usd: account.cost_usd(),
            usage_by_model: account.usage_by_model(),
            pending_follow_ups: self
                .lane
                .inbox()
                .iter()
                .filter(|item| matches!(item.kind, InboxKind::FollowUp | InboxKind::NextFollowUp))
                .fold(0, |count, _| count + 1),
            duration_ms: self.deadline.elapsed_ms(),
            api_duration_ms: account.api_ms,
            first_token_ms: account.first_token_ms,
            ..ResultLine::nothing_sent(exit.code, verdict.reason, verdict.error)
        }
    }
}

pub(super) async fn tell(handle: &Handle, msg: Msg) {
    match handle.send(msg).await {
        // A printer that is gone is told by its `finish`.
        Ok(()) | Err(PrinterGone) => {}
    }
}

/// Runs what the call asks for, and then what waits for a next run.
async fn work(
    lane: &Lane,
    start: Start,
    then: &[String],
    drive: Drive,
    asked: &watch::Sender<Option<CancelCause>>,
) -> Result<Outcome, RunError> {
    let then: Vec<Input> = then.iter().map(|text| Input::from(text.as_str())).collect();
    let open = lane.snapshot().operation;
    // Who cancelled that run did not know of what this call asks for.
    let mut was_cancelled = open.as_ref().is_some_and(|open| open.status == OperationStatus::Aborting);
    let mut outcome = match start {
        // What a dead process left is finished first; what this call asks for is safe before that begins.
        Start::Prompt(prompt) if open.is_some() => {
            lane.next_run_then(prompt, then).await.map_err(unqueued)?;
            lane.continue_(drive).await?
        }
        Start::Continue if open.is_some() => {
            lane.follow_ups(then).await.map_err(unqueued)?;
            lane.continue_(drive).await?
        }
        Start::Prompt(prompt) => lane.prompt_then(prompt, then, drive).await?,
        Start::Continue | Start::Again(_) => lane.continue_then(then, drive).await?,
    };
    loop {
        let Outcome::Settled(settled) = &outcome else { return Ok(outcome) };
        let cancelled = std::mem::take(&mut was_cancelled);
        let aborted = settled.result.status == Status::Aborted && !cancelled;
        let waits = lane.inbox().iter().any(|item| match item.kind {
            InboxKind::NextRun | InboxKind::NextFollowUp => true,
            // Behind a run that failed or was cut short they wait for somebody to go on.
            InboxKind::FollowUp | InboxKind::Steer => cancelled,
            InboxKind::Write => false,
        });
        if aborted || !waits || asked.borrow().is_some() {
            return Ok(outcome);
        }
        outcome = lane.continue_(drive).await?;
    }
}

fn unqueued(error: QueueError) -> RunError {
    match error {
        QueueError::InvalidMessage { reason } => RunError::InvalidMessage { reason },
        QueueError::Faulted(fault) => RunError::Faulted(fault),
        QueueError::Closed => RunError::Closed,
    }
}

/// How often an abort looks for the operation it is to end, which may not have begun.
const ABORT_EVERY: Duration = Duration::from_millis(10);

/// Ends the operation of a lane once somebody asks for it. Never comes back.
async fn end_when_asked(lane: &Lane, mut asked: watch::Receiver<Option<CancelCause>>, clock: &dyn Clock) {
    let why = match asked.wait_for(Option::is_some).await {
        Ok(why) => *why,
        Err(_) => None,
    };
    if let Some(why) = why {
        while let Err(AbortError::NoActiveOperation) = lane.abort(why).await {
            clock.sleep(ABORT_EVERY).await;
        }
    }
    std::future::pending::<()>().await;
}

/// A run that could not go on.
fn failed(error: &RunError, cause: Option<CancelCause>) -> Verdict {
    match error {
        RunError::Faulted(fault) => Verdict::stored(fault.record(), cause),
        RunError::InvalidMessage { .. } | RunError::NothingToContinue | RunError::LaneBusy { .. } => {
            Verdict::refused(ErrorRecord::new(error.kind(), error.to_string()), cause)
        }
        RunError::Closed => Verdict::failed(ErrorRecord::new(ErrorKind::Internal, error.to_string()), cause),
    }
}

/// Waits for the beat behind the first `beats` ones.
async fn beat(every: Option<Duration>, beats: u32, deadline: &Deadline) {
    match every {
        Some(every) => {
            let due = every.saturating_mul(beats.saturating_add(1));
            deadline.clock.sleep(due.saturating_sub(Duration::from_millis(deadline.elapsed_ms()))).await;
        }
        None => std::future::pending().await,
    }
}

pub(super) fn model_ref(model: &Model) -> ModelRef {
    ModelRef { provider: model.provider.clone(), id: model.id.clone() }
}

/// Counts events and sends them to the printer.
struct Tap {
    handle: Handle,
    clock: Arc<dyn Clock>,
    started_ms: u64,
    account: Mutex<Account>,
}

#[async_trait]
impl Listener for Tap {
    async fn on_event(&self, told: &LaneEvent) {
        let elapsed_ms = self.clock.monotonic_ms().saturating_sub(self.started_ms);
        self.account.lock().unwrap_or_else(PoisonError::into_inner).count(&told.event, elapsed_ms);
        log::event(&told.event);
        let msg = Msg::Event { event: Box::new(told.event.clone()), recovery: told.recovery, ts: self.clock.now_ms() };
        tell(&self.handle, msg).await;
    }
}
