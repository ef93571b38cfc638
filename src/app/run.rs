//! `pirn [PROMPT]`: one run, from the arguments to the exit.
//!
//! Keeps true: signals and the timeout can end every wait; the first cause decides the verdict, and a second signal
//! ends the wait at once; the verdict is not changed once it was told; nothing is sent before settings, model, tools
//! and prompt are known to be good.
//!
//! Must not know: rules of turns and calls, protocols, how lines are formatted.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::report::Screen;
use super::setup::{self, Setup};
use super::signals::{self, Signals, cause_of};
use super::{apart, attach};
use crate::agent::{self, Agent, AgentError, Listener};
use crate::cli::{self, PromptIo, RunArgs};
use crate::config::{self, Env, Settings};
use crate::exit::{self, Exit};
use crate::model::{CancelCause, ErrorKind, ErrorRecord, Event, Model, Reason, RunOutcome, StopReason};
use crate::port::{Clock, Ids, SinkError, UuidIds};
use crate::print::{
    self, Finished, Handle, LimitsLine, ModelRef, Msg, Patience, Printer, PrinterGone, ResultLine, SESSION_VERSION,
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
    let reading = {
        let (args, env) = (args.clone(), env.clone());
        apart(move || {
            let cwd = setup::working_directory(args.cd.as_deref())?;
            let (wish, loaded) = setup::settings(&args, &env, &cwd);
            Ok((cwd, wish, loaded))
        })
    };
    let read = tokio::select! {
        biased;
        read = signals.unless(reading) => read,
        () = deadline.passed() => Err(CancelCause::Timeout),
    };
    let (cwd, settings) = match read {
        Ok(Ok((cwd, _, Ok(settings)))) => (cwd, settings),
        Ok(Ok((_, wish, Err(error)))) => return screen.wishing(wish).fail(error, &*clock).await,
        Ok(Err(error)) => return screen.fail(error, &*clock).await,
        Err(cause) => return screen.cancelled(cause, &*clock).await,
    };
    deadline.timeout = settings.limits.timeout;
    let screen = Screen::new(env, &settings);
    // A call that asks for nothing is told so before anything is missed that only a prompt needs, such as a key.
    if let Err(error) = cli::plan(&args.prompt_request(), cli::stdin_kind()) {
        return screen.refuse(error, &*clock).await;
    }
    let ids: Arc<dyn Ids> = Arc::new(UuidIds::new());
    // A missing key is told last: it must not hide a mistake in the call or in the prompt.
    let setup = match setup::build(&settings, env, &cwd, &clock, &ids) {
        Err(error) if error.kind != ErrorKind::Auth => return screen.fail(error, &*clock).await,
        setup => setup,
    };
    let printer = match screen.start() {
        Ok(printer) => printer,
        Err(error) => {
            let record = ErrorRecord::new(ErrorKind::Internal, format!("the printer did not start: {error}"));
            return screen.fail(record, &*clock).await;
        }
    };
    let prompt = match read_prompt(&args, &settings, &cwd, &printer, &mut signals, &deadline).await {
        Ok(prompt) => prompt,
        Err(refused) => return refused.tell(printer, &screen, &*clock).await,
    };
    let setup = match setup {
        Ok(setup) => setup,
        Err(error) => return Refused::Failed(error).tell(printer, &screen, &*clock).await,
    };
    let warnings = prompt.warnings.clone();
    let prompt = match attached(prompt, &setup.model, &mut signals, &deadline).await {
        Ok(prompt) => prompt,
        Err(refused) => return refused.tell(printer, &screen, &*clock).await,
    };
    let running = Running { screen, settings, setup, cwd: cwd.display().to_string(), printer, signals, deadline };
    running.drive(prompt, warnings).await
}

/// Why there is no prompt.
enum Refused {
    Usage(cli::UsageError),
    Failed(ErrorRecord),
    Cancelled(CancelCause),
}

impl Refused {
    /// Tells it as the last word of the call.
    async fn tell(self, printer: Printer, screen: &Screen, clock: &dyn Clock) -> Exit {
        // Notices may still be queued; they come before the last words.
        drop(printer.finish(Patience::Stall, clock).await);
        match self {
            Self::Usage(error) => screen.refuse(error, clock).await,
            Self::Failed(error) => screen.fail(error, clock).await,
            Self::Cancelled(cause) => screen.cancelled(cause, clock).await,
        }
    }
}

/// Makes the message of a prompt. Signals and the timeout end the wait where images take time.
async fn attached(
    prompt: cli::Prompt,
    model: &Model,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<agent::Prompt, Refused> {
    if prompt.images.is_empty() {
        return Ok(prompt.text.into());
    }
    let (model, now_ms) = (model.clone(), deadline.clock.now_ms());
    let making = apart(move || attach::message(prompt, &model, now_ms));
    tokio::select! {
        biased;
        made = signals.unless(making) => match made {
            Ok(message) => message.map(Into::into).map_err(Refused::Failed),
            Err(cause) => Err(Refused::Cancelled(cause)),
        },
        () = deadline.passed() => Err(Refused::Cancelled(CancelCause::Timeout)),
    }
}

/// The wall clock of the whole call.
struct Deadline {
    started_ms: u64,
    timeout: Option<Duration>,
    clock: Arc<dyn Clock>,
}

impl Deadline {
    /// Waits until the time is up; for ever without a limit. Cancel-safe.
    async fn passed(&self) {
        match self.timeout {
            Some(timeout) => self.clock.sleep(timeout.saturating_sub(Duration::from_millis(self.elapsed_ms()))).await,
            None => std::future::pending().await,
        }
    }

    fn elapsed_ms(&self) -> u64 {
        self.clock.monotonic_ms().saturating_sub(self.started_ms)
    }
}

/// Reads the prompt, while signals and the timeout can end the wait. Notices go out at once.
async fn read_prompt(
    args: &RunArgs,
    settings: &Settings,
    cwd: &Path,
    printer: &Printer,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<cli::Prompt, Refused> {
    let (notices, mut told) = tokio::sync::mpsc::unbounded_channel::<String>();
    let mut notice = move |text: &str| {
        // The receiver lives as long as the reading does.
        drop(notices.send(text.to_owned()));
    };
    let clock = Arc::clone(&deadline.clock);
    let request = args.prompt_request();
    let io = PromptIo::process(cwd, settings.input.stdin_wait, &*clock, &mut notice);
    let handle = printer.handle();
    let read = cli::load(&request, io);
    tokio::pin!(read);
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => return Err(Refused::Cancelled(cause_of(signal))),
            () = deadline.passed() => return Err(Refused::Cancelled(CancelCause::Timeout)),
            Some(text) = told.recv() => tell(&handle, Msg::Notice(text)).await,
            prompt = &mut read => {
                // What a dying writer left is no prompt.
                if let Some(cause) = signals::noted().await {
                    return Err(Refused::Cancelled(cause));
                }
                return prompt.map_err(Refused::Usage);
            }
        }
    }
}

/// A run with everything it holds.
struct Running {
    screen: Screen,
    settings: Settings,
    setup: Setup,
    cwd: String,
    printer: Printer,
    signals: Signals,
    deadline: Deadline,
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
    async fn drive(mut self, prompt: agent::Prompt, of_input: Vec<String>) -> Exit {
        let clock = Arc::clone(&self.deadline.clock);
        let handle = self.printer.handle();
        let session = Box::new(self.session_line());
        tell(&handle, Msg::Session { line: session, ts: clock.now_ms() }).await;
        // In a stream they stand behind its first line.
        for (code, message) in self.warnings(of_input) {
            tell(&handle, Msg::Warning { code, message, ts: clock.now_ms() }).await;
        }
        let agent = match Agent::new(self.setup.options.clone()) {
            Ok(agent) => agent,
            Err(error) => {
                let record = ErrorRecord::new(ErrorKind::Internal, error.to_string());
                return self.screen.fail(record, &*clock).await;
            }
        };
        let tap = Arc::new(Tap {
            handle: handle.clone(),
            clock: Arc::clone(&clock),
            started_ms: clock.monotonic_ms(),
            account: Mutex::default(),
        });
        agent.subscribe(Arc::clone(&tap) as Arc<dyn Listener>).forever();
        let mut cause = None;
        let mut stdout_failure = None;
        let ended = self.wait(&agent, prompt, &handle, &mut cause, &mut stdout_failure).await;
        let verdict = match ended {
            Ended::Outcome(outcome) => match *outcome {
                Ok(outcome) => {
                    Verdict::of(outcome, stdout_failure.as_ref()).unless_signalled(&mut cause, &mut self.signals).await
                }
                Err(error) => Verdict::failed(ErrorRecord::new(ErrorKind::Internal, error.to_string()), cause),
            },
            Ended::Now | Ended::Stalled => return Verdict::cancelled(cause).exit(),
        };
        let exit = verdict.exit();
        let account = tap.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let line = Box::new(self.result_line(exit, verdict, &account));
        let result = Msg::Result { line, ts: clock.now_ms() };
        self.finish(result, exit, cause).await
    }

    /// What was odd before the run, with a word for programs.
    fn warnings(&self, of_input: Vec<String>) -> Vec<(&'static str, String)> {
        let code = |warning: &String| if self.settings.warnings.contains(warning) { "config" } else { "model" };
        let of_setup = self.setup.warnings.iter().map(|warning| (code(warning), warning.clone()));
        of_setup.chain(of_input.into_iter().map(|warning| ("input", warning))).collect()
    }

    /// Drives the agent, and ends the run when a signal, the timeout or a closed stdout says so.
    async fn wait(
        &mut self,
        agent: &Agent,
        prompt: agent::Prompt,
        handle: &Handle,
        cause: &mut Option<CancelCause>,
        stdout_failure: &mut Option<StdoutFailure>,
    ) -> Ended {
        let clock = Arc::clone(&self.deadline.clock);
        let printer = &self.printer;
        let mut stdout = printer.stdout_watch();
        let heartbeat = self.settings.output.heartbeat;
        let mut beats: u32 = 0;
        let run = agent.prompt(prompt);
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
        let Self { screen, printer, mut signals, deadline, .. } = self;
        let clock = Arc::clone(&deadline.clock);
        let hurry = CancellationToken::new();
        if cause.is_some() {
            hurry.cancel();
        }
        let done = printer.finish_with(Some(result), hurry.cancelled(), &*clock);
        tokio::pin!(done);
        let mut late = None;
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
        match finished {
            Finished::Complete => exit,
            // What nobody has read is no success.
            Finished::Stalled => late.map_or(exit, |late| Verdict::cancelled(Some(late)).exit()),
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
            id: self.setup.session_id.clone(),
            name: None,
            timestamp: rfc3339(self.deadline.clock.now_ms()),
            cwd: self.cwd.clone(),
            file: None,
            parent: None,
            resumed: false,
            recovered: false,
            leaf_id: None,
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
            session_id: Some(self.setup.session_id.clone()),
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

async fn tell(handle: &Handle, msg: Msg) {
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

/// The verdict of a run, and what its exit code is made of.
struct Verdict {
    reason: Reason,
    stop_reason: Option<StopReason>,
    error: Option<ErrorRecord>,
    cause: Option<CancelCause>,
}

impl Verdict {
    /// A stdout that failed for another reason than a reader that left is our failure, not the reader's.
    fn of(outcome: RunOutcome, stdout: Option<&StdoutFailure>) -> Self {
        let RunOutcome { stop_reason, reason, error, cause, .. } = outcome;
        match stdout {
            Some(failure @ StdoutFailure::Failed(_)) if reason == Reason::Pipe => {
                let error = Some(ErrorRecord::new(ErrorKind::Storage, failure.to_string()));
                Self { reason: Reason::Error, stop_reason, error, cause }
            }
            _ => Self { reason, stop_reason, error, cause },
        }
    }

    /// A failure that came together with a signal is the signal's: a signal to a whole group also ends servers. What
    /// the transcript says of it stays.
    async fn unless_signalled(self, cause: &mut Option<CancelCause>, signals: &mut Signals) -> Self {
        if self.stop_reason != Some(StopReason::Error) {
            return self;
        }
        if cause.is_none() {
            *cause = signals.claim().await;
        }
        match *cause {
            Some(CancelCause::Hup | CancelCause::Int | CancelCause::Term) => Self::cancelled(*cause),
            Some(CancelCause::Timeout | CancelCause::Pipe | CancelCause::Steer | CancelCause::Hook) | None => self,
        }
    }

    fn failed(error: ErrorRecord, cause: Option<CancelCause>) -> Self {
        match cause {
            Some(_) => Self::cancelled(cause),
            None => Self { reason: Reason::Internal, stop_reason: None, error: Some(error), cause: None },
        }
    }

    fn cancelled(cause: Option<CancelCause>) -> Self {
        let reason = crate::turn::reason_of_abort(cause);
        Self { reason, stop_reason: Some(StopReason::Aborted), error: None, cause }
    }

    fn exit(&self) -> Exit {
        exit::of(self.reason, self.stop_reason, self.error.as_ref().map(|record| record.kind), self.cause)
    }
}

/// Counts every event and sends it to the printer.
struct Tap {
    handle: Handle,
    clock: Arc<dyn Clock>,
    started_ms: u64,
    account: Mutex<Account>,
}

#[async_trait]
impl Listener for Tap {
    async fn on_event(&self, event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
        let elapsed_ms = self.clock.monotonic_ms().saturating_sub(self.started_ms);
        self.account.lock().unwrap_or_else(PoisonError::into_inner).count(event, elapsed_ms);
        let msg = Msg::Event { event: Box::new(event.clone()), ts: self.clock.now_ms() };
        self.handle.send(msg).await.map_err(|error| SinkError(error.to_string()))
    }
}
