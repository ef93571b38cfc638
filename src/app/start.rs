//! From a command line to a run that can start: settings, session, model, tools and prompt, in the order in which
//! mistakes are best told.
//!
//! Keeps true: signals and the timeout can end every wait; nothing is sent, and no session is made, before everything
//! is known to be good; a missing key is told last, so that it does not hide a mistake in the call or the prompt.
//!
//! Must not know: how a run goes, how lines are formatted.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::kept::{self, Chosen, Kept};
use super::log::{self, Log};
use super::outputs::Wanted;
use super::report::Screen;
use super::resume::{self, Next};
use super::run::{Files, model_ref, tell};
use super::setup::{self, Setup};
use super::signals::{self, Signals, cause_of};
use super::{apart, attach, children};
use crate::cli::{self, PromptIo, RunArgs};
use crate::config::{self, Env, Settings};
use crate::harness::{Harness, Input, Lane, OpenError};
use crate::model::{CancelCause, ErrorKind, ErrorRecord, MAIN_LANE, Model};
use crate::port::{Clock, Ids, UuidIds};
use crate::print::{Msg, Patience, Printer};

/// The wall clock of the whole call.
pub(super) struct Deadline {
    pub(super) started_ms: u64,
    pub(super) timeout: Option<Duration>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Deadline {
    /// Waits until the time is up; for ever without a limit. Cancel-safe.
    pub(super) async fn passed(&self) {
        match self.timeout {
            Some(timeout) => self.clock.sleep(timeout.saturating_sub(Duration::from_millis(self.elapsed_ms()))).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for `work`, unless a signal comes or the time is up first.
    pub(super) async fn within<T>(
        &self,
        signals: &mut Signals,
        work: impl Future<Output = T>,
    ) -> Result<T, CancelCause> {
        tokio::select! {
            biased;
            done = signals.unless(work) => done,
            () = self.passed() => Err(CancelCause::Timeout),
        }
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        self.clock.monotonic_ms().saturating_sub(self.started_ms)
    }
}

/// What a run begins with.
pub(super) enum Start {
    /// A new prompt.
    Prompt(Input),
    /// What is open, or waits, or else the transcript as it is.
    Continue,
    /// Nothing is left to do: the end is told again.
    Again(Box<resume::Finished>),
}

/// A run that can start.
pub(super) struct Ready {
    pub(super) screen: Screen,
    pub(super) settings: Settings,
    pub(super) setup: Setup,
    pub(super) kept: Kept,
    pub(super) begun: Begun,
    pub(super) cwd: PathBuf,
    pub(super) printer: Printer,
    /// What was odd on the way, each with a word for programs.
    pub(super) warnings: Vec<(&'static str, String)>,
    pub(super) files: Files,
}

/// Why there is no run.
pub(super) enum Refused {
    Usage(cli::UsageError),
    Error(ErrorRecord),
    Cancelled(CancelCause),
}

impl From<ErrorRecord> for Refused {
    fn from(error: ErrorRecord) -> Self {
        Self::Error(error)
    }
}

/// What the files say: the configuration, and the session that was asked for.
struct Read {
    cwd: PathBuf,
    settings: Settings,
    chosen: Chosen,
    /// The session works here, not where the call was made.
    moved: bool,
}

/// The log is there first, so that it misses nothing; what `output.json` says is known even when other things are
/// wrong.
#[derive(Default)]
struct Early {
    log: Option<Log>,
    wish: Option<config::JsonLevel>,
}

/// Gets everything ready. `screen` follows the settings as soon as they are known.
pub(super) async fn ready(
    args: &RunArgs,
    env: &Env,
    screen: &mut Screen,
    signals: &mut Signals,
    deadline: &mut Deadline,
) -> Result<Ready, Refused> {
    let clock = Arc::clone(&deadline.clock);
    let (log, read) = read_files(args, env, screen, signals, deadline).await?;
    deadline.timeout = read.settings.limits.timeout;
    screen.follow(env, &read.settings);
    children::depth(env)?;
    // A call that asks for nothing is told so before anything is missed that only a prompt needs, such as a key.
    cli::plan(&args.prompt_request(), cli::stdin_kind()).map_err(Refused::Usage)?;
    let ids: Arc<dyn Ids> = Arc::new(UuidIds::new());
    let mut warnings: Vec<(&'static str, String)> = Vec::new();
    let Read { cwd, settings, chosen, moved } = read;
    if log.is_none() && env.is_set(log::FILTER) {
        warnings.push(("config", log::NO_FILE.to_owned()));
    }
    let session_id = match &chosen {
        Chosen::Known(found) => {
            screen.known.session_file = Some(found.file.display().to_string());
            screen.known.session_id.insert(found.id.clone()).clone()
        }
        Chosen::None | Chosen::New { .. } => ids.next_id(),
    };
    let wanted = Wanted::of(args, &settings, &cwd, &session_id, clock.now_ms());
    let opening = wanted.clone();
    let outputs = deadline.within(signals, apart(move || opening.open())).await.map_err(Refused::Cancelled)??;
    screen.events.clone_from(&outputs.events);
    let mut kept = open_known(&chosen, &settings, signals, deadline).await?;
    let held_since = clock.now_ms();
    if moved {
        warnings.push(("session", format!("the session works in {}", cwd.display())));
    }
    let stored = kept.as_ref().and_then(|kept| kept.stored.as_ref());
    let building = Box::pin(setup::build(args, &settings, env, &cwd, stored, &clock, &ids));
    // A missing key is told last: it must not hide a mistake in the call or in the prompt.
    let setup = match deadline.within(signals, building).await.map_err(Refused::Cancelled)? {
        Err(error) if error.kind != ErrorKind::Auth => return Err(error.into()),
        setup => setup,
    };
    screen.known.model = setup.as_ref().ok().map(|setup| model_ref(&setup.model));
    let printer = screen.start().map_err(|error| {
        Refused::Error(ErrorRecord::new(ErrorKind::Internal, format!("the printer did not start: {error}")))
    })?;
    let ready = async {
        let prompt = read_prompt(args, &settings, &cwd, &printer, signals, deadline).await?;
        let setup = setup?;
        warnings.extend(prompt.warnings.iter().map(|warning| ("input", warning.clone())));
        let prompt =
            if prompt.is_empty() { None } else { Some(attached(prompt, &setup.model, signals, deadline).await?) };
        let kept = match kept.take() {
            Some(kept) => kept,
            None => make_new(chosen, session_id, &settings, signals, deadline).await?,
        };
        let then = args.then.iter().cloned().collect();
        let begun = to_its_end(begin(prompt, then, &kept, &setup, held_since, &clock), signals, deadline).await?;
        Ok((setup, kept, begun))
    };
    match ready.await {
        Ok((setup, kept, begun)) => {
            if let Some(log) = &log {
                let masks = setup.masks.clone();
                log.mask_with(move |line| masks.text(line).into_owned());
            }
            let files = Files { wanted, answer: outputs.answer, log };
            let screen = screen.clone();
            Ok(Ready { screen, settings, setup, kept, begun, cwd, printer, warnings, files })
        }
        Err(refused) => {
            // Notices may still be queued; they come before the last words.
            drop(printer.finish(Patience::Stall, &*clock).await);
            Err(refused)
        }
    }
}

/// Opens the session that was asked for, if it is one that exists.
async fn open_known(
    chosen: &Chosen,
    settings: &Settings,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<Option<Kept>, Refused> {
    let Chosen::Known(found) = chosen else { return Ok(None) };
    let opening = Kept::open(found, settings, &deadline.clock);
    Ok(Some(deadline.within(signals, opening).await.map_err(Refused::Cancelled)??))
}

/// Makes a session, on the disk where one is to be kept.
async fn make_new(
    chosen: Chosen,
    id: String,
    settings: &Settings,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<Kept, Refused> {
    match chosen {
        Chosen::New { library, name } => {
            let making = Kept::create(&library, name, id, settings, &deadline.clock);
            Ok(deadline.within(signals, making).await.map_err(Refused::Cancelled)??)
        }
        Chosen::None | Chosen::Known(_) => Ok(Kept::in_memory(&deadline.clock, id)),
    }
}

/// Starts the log, reads the configuration and finds the session, on a thread of its own.
async fn read_files(
    args: &RunArgs,
    env: &Env,
    screen: &mut Screen,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<(Option<Log>, Read), Refused> {
    let reading = {
        let (args, env) = (args.clone(), env.clone());
        apart(move || {
            let mut early = Early::default();
            let read = read_now(&args, &env, &mut early);
            Ok((early, read))
        })
    };
    let (early, read) = deadline.within(signals, reading).await.map_err(Refused::Cancelled)??;
    if let Some(wish) = early.wish {
        *screen = screen.wishing(wish);
    }
    let read = read?;
    let files: Vec<_> = read.settings.files().collect();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?files, "settings read");
    Ok((early.log, read))
}

fn read_now(args: &RunArgs, env: &Env, early: &mut Early) -> Result<Read, ErrorRecord> {
    let cwd = setup::working_directory(args.layers.cd.as_deref())?;
    let filter = env.text(log::FILTER);
    early.log = args.log.as_ref().map(|path| Log::start(&cwd.join(path), filter)).transpose()?;
    let (wish, loaded) = setup::settings(args, env, &cwd);
    early.wish = Some(wish);
    let settings = loaded?;
    let chosen = kept::choose(args, &settings, env, &cwd)?;
    let elsewhere = match &chosen {
        Chosen::Known(found) if args.layers.cd.is_none() => found.cwd.clone().filter(|there| !is_same(there, &cwd)),
        Chosen::Known(_) | Chosen::None | Chosen::New { .. } => None,
    };
    let Some(there) = elsewhere else { return Ok(Read { cwd, settings, chosen, moved: false }) };
    if !there.is_dir() {
        let message = format!("the session works in {}, which is not there any more", there.display());
        return Err(ErrorRecord::new(ErrorKind::Usage, message).with_hint("-C DIR names another directory"));
    }
    // The files that count are those of where the work is done.
    let settings = setup::settings(args, env, &there).1?;
    Ok(Read { cwd: there, settings, chosen, moved: true })
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Waits for what is better not left in the middle, such as the end of processes: what asks for the end of the call is
/// heeded behind it, and a second signal at once.
async fn to_its_end<T>(
    work: impl Future<Output = Result<T, ErrorRecord>>,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<T, Refused> {
    let mut asked = None;
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => match asked {
                Some(first) => return Err(Refused::Cancelled(first)),
                None => asked = Some(cause_of(signal)),
            },
            done = &mut work => return match asked {
                Some(first) => Err(Refused::Cancelled(first)),
                None => done.map_err(Refused::Error),
            },
            () = deadline.passed(), if asked.is_none() => asked = Some(CancelCause::Timeout),
        }
    }
}

/// An opened session, and how the run begins.
pub(super) struct Begun {
    pub(super) harness: Harness,
    pub(super) lane: Lane,
    pub(super) start: Start,
    /// Messages that follow, each when the run would end.
    pub(super) then: Vec<String>,
    /// A dead process left an operation open.
    pub(super) recovered: bool,
}

/// Opens the harness over the session and decides how the run begins.
async fn begin(
    prompt: Option<Input>,
    mut then: VecDeque<String>,
    kept: &Kept,
    setup: &Setup,
    held_since: u64,
    clock: &Arc<dyn Clock>,
) -> Result<Begun, ErrorRecord> {
    if prompt.is_none() && then.is_empty() && kept.stored.is_none() && kept.resumed {
        // Nothing was ever said there, and looking at it is no reason to write to it.
        if !kept.has_waiting(clock) {
            return Err(resume::nothing());
        }
    }
    let mut options = setup.options(Arc::clone(&kept.store), &kept.id, kept.session_ref(), kept.inbox(clock));
    options.held_since = Some(held_since);
    let harness = Harness::open(options).await.map_err(|error| unopened(&error))?;
    let lane = harness.lane(MAIN_LANE).map_err(|error| ErrorRecord::new(error.kind(), error.to_string()))?;
    let recovered = lane.open_operation().is_some();
    let failed = |error: crate::harness::RunError| ErrorRecord::new(error.kind(), error.to_string());
    let start = match prompt {
        Some(prompt) => Start::Prompt(prompt),
        None if recovered || lane.has_queued().await.map_err(failed)? => Start::Continue,
        None => {
            let result = lane.last_result();
            let next = resume::next(&lane.messages(), lane.tip().as_ref(), result.as_deref(), lane.can_continue());
            let is_over = !matches!(next, Ok(Next::Continue));
            // What is to follow follows an end that is there already.
            match if is_over { then.pop_front() } else { None } {
                Some(first) => Start::Prompt(first.into()),
                None => match next? {
                    Next::Again(finished) => Start::Again(finished),
                    Next::Continue => Start::Continue,
                },
            }
        }
    };
    if !matches!(start, Start::Again(_)) {
        let configured = lane.configure(setup.lane_config()).await;
        configured.map_err(|error| ErrorRecord::new(error.kind(), error.to_string()))?;
    }
    Ok(Begun { harness, lane, start, then: then.into(), recovered })
}

fn unopened(error: &OpenError) -> ErrorRecord {
    if let OpenError::Storage(error) = error {
        return kept::storage_error(error);
    }
    let mut record = ErrorRecord::new(error.kind(), error.to_string());
    record.code = Some(error.code().to_owned());
    record.with_hint("pirn sessions show still shows what is in it")
}

/// Makes the message of a prompt. Signals and the timeout end the wait where images take time.
async fn attached(
    prompt: cli::Prompt,
    model: &Model,
    signals: &mut Signals,
    deadline: &Deadline,
) -> Result<Input, Refused> {
    if prompt.images.is_empty() {
        return Ok(prompt.text.into());
    }
    let (model, now_ms) = (model.clone(), deadline.clock.now_ms());
    let making = apart(move || attach::message(prompt, &model, now_ms));
    tokio::select! {
        biased;
        made = signals.unless(making) => match made {
            Ok(message) => message.map(Into::into).map_err(Refused::Error),
            Err(cause) => Err(Refused::Cancelled(cause)),
        },
        () = deadline.passed() => Err(Refused::Cancelled(CancelCause::Timeout)),
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
