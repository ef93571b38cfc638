//! `pirn [PROMPT]`: one run, from the arguments to the exit.
//!
//! Keeps true: signals and the timeout can end every wait; the first cause decides the verdict, and a second signal
//! ends the wait at once; the verdict is not changed once it was told; nothing is sent before settings, model, tools
//! and prompt are known to be good.
//!
//! Must not know: rules of turns and calls, protocols, how lines are formatted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::apart;
use super::log::{self, Log};
use super::outputs::Wanted;
use super::report::Screen;
use super::setup::{self, Setup};
use super::signals::{self, Signals, cause_of};
use super::verdict::{Verdict, exit_unstored};
use crate::agent::{Agent, AgentError, Listener};
use crate::cli::{self, PromptIo, RunArgs};
use crate::config::{self, Env, Settings};
use crate::exit::Exit;
use crate::model::{CancelCause, ErrorKind, ErrorRecord, Event, Model, RunOutcome, Thinking};
use crate::port::{Clock, Ids, SinkError, UuidIds};
use crate::print::{
    self, AnswerFile, Finished, Handle, LimitsLine, ModelRef, Msg, Patience, Printer, PrinterGone, ResultLine,
    SESSION_VERSION, SessionLine, StdoutFailure, UsageShare, UsageTotals, rfc3339,
};
use crate::provider::redact::Masker;

/// Runs the agent once.
pub(super) async fn command(
    args: RunArgs,
    env: &Env,
    screen: &Screen,
    mut signals: Signals,
    clock: Arc<dyn Clock>,
) -> Exit {
    if let Some(option) = not_wired(&args) {
        let error = cli::UsageError::new(format!("{option} is not available in this version"));
        return screen.refuse(error, &*clock).await;
    }
    // What names the timeout beside the configuration also covers reading that, which may be a pipe.
    let named = args.timeout.as_deref().or_else(|| env.text("PIRN_TIMEOUT"));
    let timeout = named.and_then(|text| config::parse_duration(text).ok().flatten());
    let mut deadline = Deadline { started_ms: clock.monotonic_ms(), timeout, clock: Arc::clone(&clock) };
    let Begun { cwd, log, settings } = match begin(&args, env, screen, &mut signals, &deadline).await {
        Ok(begun) => begun,
        Err(exit) => return exit,
    };
    deadline.timeout = settings.limits.timeout;
    let mut screen = Screen::new(env, &settings);
    // A call that asks for nothing is told so before anything is missed that only a prompt needs, such as a key.
    if let Err(error) = cli::plan(&args.prompt_request(), cli::stdin_kind()) {
        return screen.refuse(error, &*clock).await;
    }
    let ids: Arc<dyn Ids> = Arc::new(UuidIds::new());
    let session_id = ids.next_id();
    let wanted = Wanted::of(&args, &settings, &cwd, &session_id, clock.now_ms());
    let opening = wanted.clone();
    let outputs = match deadline.within(&mut signals, apart(move || opening.open())).await {
        Ok(Ok(outputs)) => outputs,
        Ok(Err(error)) => return screen.fail(error, &*clock).await,
        Err(cause) => return screen.cancelled(cause, &*clock).await,
    };
    screen.events.clone_from(&outputs.events);
    // A missing key is told last: it must not hide a mistake in the call or in the prompt.
    let setup = match setup::build(&settings, env, &cwd, &clock, &ids, session_id) {
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
        Err(refused) => {
            // Notices may still be queued; they come before the last words.
            drop(printer.finish(Patience::Stall, &*clock).await);
            return match refused {
                Refused::Usage(error) => screen.refuse(error, &*clock).await,
                Refused::Cancelled(cause) => screen.cancelled(cause, &*clock).await,
            };
        }
    };
    let setup = match setup {
        Ok(setup) => setup,
        Err(error) => {
            drop(printer.finish(Patience::Stall, &*clock).await);
            return screen.fail(error, &*clock).await;
        }
    };
    if let Some(log) = &log {
        let masker = Masker::new(&setup.secrets);
        log.mask_with(move |line| masker.mask(line));
    }
    let files = Files { wanted, answer: outputs.answer, log };
    let cwd = cwd.display().to_string();
    Running { screen, settings, setup, cwd, printer, signals, deadline, files }.drive(prompt).await
}

/// What is known before anything else is.
struct Begun {
    cwd: PathBuf,
    log: Option<Log>,
    settings: Settings,
}

/// Starts the log, so that it misses nothing, and reads the settings.
async fn begin(
    args: &RunArgs,
    env: &Env,
    screen: &Screen,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<Begun, Exit> {
    let clock = &*deadline.clock;
    let reading = {
        let (args, env) = (args.clone(), env.clone());
        apart(move || {
            let cwd = setup::working_directory(args.layers.cd.as_deref())?;
            let filter = env.text(log::FILTER);
            let log = args.log.as_ref().map(|path| Log::start(&cwd.join(path), filter)).transpose()?;
            let (wish, loaded) = setup::settings(&args, &env, &cwd);
            Ok((cwd, log, wish, loaded))
        })
    };
    let (cwd, log, mut settings) = match deadline.within(signals, reading).await {
        Ok(Ok((cwd, log, _, Ok(settings)))) => (cwd, log, settings),
        Ok(Ok((_, _, wish, Err(error)))) => return Err(screen.wishing(wish).fail(error, clock).await),
        Ok(Err(error)) => return Err(screen.fail(error, clock).await),
        Err(cause) => return Err(screen.cancelled(cause, clock).await),
    };
    if log.is_none() && env.is_set(log::FILTER) {
        settings.warnings.push(log::NO_FILE.to_owned());
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), files = ?settings.files().collect::<Vec<_>>(), "settings read");
    Ok(Begun { cwd, log, settings })
}

/// An option that can be typed but does nothing yet.
fn not_wired(args: &RunArgs) -> Option<&'static str> {
    let options = [
        ("--continue", args.resume),
        ("--session", args.session.is_some()),
        ("--profile", args.layers.profile.is_some()),
        ("--trust", args.layers.trust),
    ];
    options.iter().find(|(_, given)| *given).map(|(option, _)| *option)
}

/// Why there is no prompt.
enum Refused {
    Usage(cli::UsageError),
    Cancelled(CancelCause),
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

    /// Waits for `work`, unless a signal comes or the time is up first.
    async fn within<T>(&self, signals: &mut Signals, work: impl Future<Output = T>) -> Result<T, CancelCause> {
        tokio::select! {
            biased;
            done = signals.unless(work) => done,
            () = self.passed() => Err(CancelCause::Timeout),
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
    files: Files,
}

/// The files beside stdout, but for that of the events, which the printer has.
struct Files {
    wanted: Wanted,
    answer: Option<AnswerFile>,
    log: Option<Log>,
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
    async fn drive(mut self, prompt: cli::Prompt) -> Exit {
        let clock = Arc::clone(&self.deadline.clock);
        let handle = self.printer.handle();
        let (model, thinking) = (self.setup.model.spec(), self.setup.thinking.map(Thinking::as_str));
        tracing::info!(%model, thinking, tools = ?self.setup.tool_names, "model chosen");
        tracing::info!(id = %self.setup.session_id, "session opened");
        let session = Box::new(self.session_line());
        tell(&handle, Msg::Session { line: session, ts: clock.now_ms() }).await;
        // In a stream they stand behind its first line.
        for (code, message) in self.warnings(prompt.warnings) {
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
        let ended = self.wait(&agent, prompt.text, &handle, &mut cause, &mut stdout_failure).await;
        let verdict = match ended {
            Ended::Outcome(outcome) => match *outcome {
                Ok(outcome) => {
                    Verdict::of(outcome, stdout_failure.as_ref()).unless_signalled(&mut cause, &mut self.signals).await
                }
                Err(error) => Verdict::failed(ErrorRecord::new(ErrorKind::Internal, error.to_string()), cause),
            },
            Ended::Now | Ended::Stalled => return Verdict::cancelled(cause).exit(),
        };
        let account = tap.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let verdict = self.keep_answer(verdict, &account.text, &mut cause).await;
        if let Some(message) = self.files.log.as_ref().and_then(Log::failure) {
            tell(&handle, Msg::Warning { code: "log", message, ts: clock.now_ms() }).await;
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
        prompt: String,
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
        let archive_failed = screen.events.as_ref().is_some_and(|events| events.failure().is_some());
        let exit = if archive_failed { exit_unstored(exit) } else { exit };
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
        log::event(event);
        let msg = Msg::Event { event: Box::new(event.clone()), ts: self.clock.now_ms() };
        self.handle.send(msg).await.map_err(|error| SinkError(error.to_string()))
    }
}
