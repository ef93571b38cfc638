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
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::kept::Kept;
use super::log::{self, Log};
use super::outputs::Wanted;
use super::recorder::{Recorder, StoredMemos, storage_error};
use super::report::Screen;
use super::resume::{self, Finished as Told};
use super::setup::Setup;
use super::signals::{Signals, cause_of};
use super::start::{self, Deadline, Ready, Refused, Start};
use super::verdict::{Verdict, exit_unstored, has_answer};
use super::{apart, children};
use crate::agent::{Agent, AgentError, Listener};
use crate::cli::RunArgs;
use crate::config::{self, Env, Settings};
use crate::exit::Exit;
use crate::model::{CancelCause, ErrorKind, ErrorRecord, Event, Model, RunOutcome, Thinking};
use crate::port::{Clock, SinkError};
use crate::print::{
    self, AnswerFile, Finished, Handle, LimitsLine, ModelRef, Msg, Printer, PrinterGone, ResultLine, SESSION_VERSION,
    SessionLine, StdoutFailure, UsageShare, UsageTotals, rfc3339,
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
    match Box::pin(start::ready(&args, env, &mut screen, &mut signals, &mut deadline)).await {
        Ok(ready) => Box::pin(Running::new(ready, signals, deadline).drive()).await,
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
    recorder: Arc<Recorder>,
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
    Outcome(Box<Result<RunOutcome, AgentError>>),
    /// A signal while the run was ending already: leave at once.
    Now,
    /// The reader of stdout took nothing more after the run was to end.
    Stalled,
}

impl Running {
    fn new(ready: Ready, signals: Signals, deadline: Deadline) -> Self {
        let Ready { screen, settings, mut setup, kept, cwd, printer, start, warnings, files } = ready;
        let (store, clock) = (Arc::clone(&kept.store), Arc::clone(&deadline.clock));
        setup.options.session_id = Some(kept.id.clone());
        setup.options.tool_env.session = kept.session_ref();
        setup.options.tool_env.memos = Some(Arc::new(StoredMemos(Arc::clone(&store))));
        let recorder = Recorder::new(
            store,
            clock,
            Arc::clone(&setup.options.ids),
            kept.lane.tip.clone(),
            setup.never_tools(),
            setup.model.prices.is_some(),
        );
        Self {
            screen,
            settings,
            setup,
            kept,
            recorder: Arc::new(recorder),
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
        let agent = match self.agent(&start) {
            Ok(agent) => agent,
            Err(error) => {
                let record = ErrorRecord::new(ErrorKind::Internal, error.to_string());
                return self.screen.fail(record, &*clock).await;
            }
        };
        let tap = Arc::new(Tap {
            handle: handle.clone(),
            recorder: Arc::clone(&self.recorder),
            clock: Arc::clone(&clock),
            started_ms: clock.monotonic_ms(),
            account: Mutex::default(),
        });
        agent.subscribe(Arc::clone(&tap) as Arc<dyn Listener>).forever();
        let mut cause = None;
        let mut stdout_failure = None;
        let ended = self.wait(&agent, start, &handle, &mut cause, &mut stdout_failure).await;
        let verdict = match ended {
            Ended::Outcome(outcome) => match *outcome {
                Ok(outcome) => {
                    Verdict::of(outcome, stdout_failure.as_ref()).unless_signalled(&mut cause, &mut self.signals).await
                }
                Err(error) => self.failed(&error, cause),
            },
            Ended::Now | Ended::Stalled => {
                self.setup.supervisor.kill_now();
                return Verdict::cancelled(cause).exit();
            }
        };
        if !self.end_children(cause.is_some()).await {
            return verdict.exit();
        }
        // Nobody waits until the memory of a long conversation is free.
        drop(tokio::task::spawn_blocking(move || drop(agent)));
        let account = tap.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(self.conclude(verdict, account, cause)).await
    }

    /// Writes the answer to its file and tells the verdict.
    async fn conclude(mut self, verdict: Verdict, account: Account, mut cause: Option<CancelCause>) -> Exit {
        let clock = Arc::clone(&self.deadline.clock);
        let verdict = self.keep_answer(verdict, &account.text, &mut cause).await;
        if let Some(message) = self.files.log.as_ref().and_then(Log::failure) {
            tell(&self.printer.handle(), Msg::Warning { code: "log", message, ts: clock.now_ms() }).await;
        }
        let exit = verdict.exit();
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

    /// An agent that knows the conversation so far.
    fn agent(&self, start: &Start) -> Result<Agent, AgentError> {
        let agent = Agent::new(self.setup.options.clone())?;
        let conversation = &self.kept.conversation;
        let messages = match start {
            Start::Continue => resume::sendable(conversation),
            Start::Prompt(_) | Start::Again(_) => conversation.iter().map(|(_, message)| Arc::clone(message)).collect(),
        };
        agent.set_messages(messages)?;
        Ok(agent)
    }

    /// A run that could not go on: the store's failure is the cause of a listener's.
    fn failed(&self, error: &AgentError, cause: Option<CancelCause>) -> Verdict {
        match self.recorder.failure() {
            Some(failure) => Verdict::stored(storage_error(&failure), cause),
            None => Verdict::failed(ErrorRecord::new(ErrorKind::Internal, error.to_string()), cause),
        }
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
                    if let Some(message) = children::left_running(&remaining) {
                        let ts = self.deadline.clock.now_ms();
                        tell(&self.printer.handle(), Msg::Warning { code: "children", message, ts }).await;
                    }
                    return true;
                }
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

    /// Drives the agent, and ends the run when a signal, the timeout or a closed stdout says so.
    async fn wait(
        &mut self,
        agent: &Agent,
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
        let run = async {
            match start {
                Start::Prompt(prompt) => agent.prompt(prompt).await,
                Start::Continue | Start::Again(_) => agent.continue_().await,
            }
        };
        let stalled = print::stalled(&*clock, || printer.backlog());
        tokio::pin!(run, stalled);
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    if cause.is_some() {
                        return Ended::Now;
                    }
                    end(agent, cause, cause_of(signal));
                }
                failure = stdout.failed(), if stdout_failure.is_none() => {
                    *stdout_failure = Some(failure);
                    end(agent, cause, self.signals.claim().await.unwrap_or(CancelCause::Pipe));
                }
                () = self.deadline.passed(), if cause.is_none() => end(agent, cause, CancelCause::Timeout),
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
        }
    }

    /// Tells the verdict and waits for the reader of stdout. What asks for the end only now leaves the verdict as it
    /// is, since that may have been read, but no longer lets the reader take its time.
    async fn finish(self, result: Msg, exit: Exit, cause: Option<CancelCause>) -> Exit {
        let Self { screen, printer, mut signals, deadline, kept, recorder, mut late, .. } = self;
        drop(recorder);
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
            recovered: self.kept.recovered,
            leaf_id: self.kept.lane.tip.as_ref().map(|tip| tip.as_str().to_owned()),
            model: model_ref(&self.setup.model),
            thinking: self.setup.thinking,
            tools: self.setup.tool_names.clone(),
            limits: LimitsLine {
                max_turns: limits.max_turns,
                max_cost: None,
                timeout_ms: limits.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            },
            config_files: self.settings.files().map(|file| file.display().to_string()).collect(),
        }
    }

    fn result_line(&self, exit: Exit, verdict: Verdict, account: &Account) -> ResultLine {
        let priced = self.setup.model.prices.is_some();
        let cost = |total: f64| priced.then_some(total);
        ResultLine {
            stop_reason: verdict.stop_reason,
            text: account.text.clone(),
            session_id: Some(self.kept.id.clone()),
            session_file: self.kept.path.as_ref().map(|path| path.display().to_string()),
            leaf_id: self.recorder.tip().map(|tip| tip.as_str().to_owned()),
            // What could not be saved can not be gone on with.
            resumable: self.kept.path.is_some() && self.recorder.failure().is_none(),
            model: Some(model_ref(&self.setup.model)),
            turns: account.turns,
            requests: account.requests,
            tool_calls: account.tool_calls,
            denials: account.denials.clone(),
            usage: UsageTotals::from(&account.usage),
            cost_usd: cost(account.usage.cost.total),
            usage_by_model: account
                .by_model
                .iter()
                .map(|(model, usage)| {
                    let share =
                        UsageShare { input: usage.input, output: usage.output, cost_usd: cost(usage.cost.total) };
                    (model.clone(), share)
                })
                .collect(),
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

/// Ends the run; the first cause wins.
fn end(agent: &Agent, cause: &mut Option<CancelCause>, why: CancelCause) {
    agent.abort_with(why);
    cause.get_or_insert(why);
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

fn model_ref(model: &Model) -> ModelRef {
    ModelRef { provider: model.provider.clone(), id: model.id.clone() }
}

/// Stores what an event claims, counts it and sends it to the printer.
struct Tap {
    handle: Handle,
    recorder: Arc<Recorder>,
    clock: Arc<dyn Clock>,
    started_ms: u64,
    account: Mutex<Account>,
}

#[async_trait]
impl Listener for Tap {
    async fn on_event(&self, event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
        let mut event = Box::new(event.clone());
        // Most events are pieces of a reply that claim nothing.
        if !matches!(*event, Event::MessageUpdate { .. })
            && let Err(failure) = self.recorder.record(&mut event).await
        {
            // At once: ending what tools left running takes its time. Whether anybody hears it changes nothing.
            let fault = Event::Fault { error: storage_error(&failure) };
            log::event(&fault);
            tell(&self.handle, Msg::Event { event: Box::new(fault), recovery: false, ts: self.clock.now_ms() }).await;
            return Err(SinkError(failure.to_string()));
        }
        let elapsed_ms = self.clock.monotonic_ms().saturating_sub(self.started_ms);
        self.account.lock().unwrap_or_else(PoisonError::into_inner).count(&event, elapsed_ms);
        log::event(&event);
        let msg = Msg::Event { event, recovery: false, ts: self.clock.now_ms() };
        self.handle.send(msg).await.map_err(|error| SinkError(error.to_string()))
    }
}
