//! `pirn steer`: a message, a follow-up or an abort for a session that another process may have open.
//!
//! Keeps true: what is left is on the disk before anything is said, and whatever comes then it is said that it was left;
//! stdout stays empty; nothing is asked of a model; a session that somebody has open is never locked or written to.
//!
//! Must not know: how arguments are parsed, how an item lies in the spool, how a run takes it.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio_util::sync::CancellationToken;

use super::kept::storage_error;
use super::orphans::{Background, LeftRunning};
use super::report::Screen;
use super::signals::{Signals, cause_of, noted};
use super::{commands, internal_record, interrupted, kept, sessions, setup};
use crate::cli::{self, PromptIo, SteerArgs, UsageError};
use crate::config::{self, Env, LockMode, Settings};
use crate::exit::Exit;
use crate::harness::{AbortError, Drive, Harness, Listener, Options, Outcome};
use crate::model::session::namespace;
use crate::model::{
    AssistantHead, AssistantMessage, CancelCause, ErrorKind, ErrorRecord, Event, LaneEvent, LaneState, MAIN_LANE,
    Message, RunId, StopReason, short_id,
};
use crate::port::{AssistantEvent, Clock, Ids, LlmRequest, Provider, SpoolKind, Store, UuidIds};
use crate::print;
use crate::session::jsonl;
use crate::session::jsonl::lock::{Holder, Probe, probe};
use crate::session::place::{Found, Library, Listing, Scope};
use crate::session::spool;

/// Running sessions that an error lists.
const LISTED_MAX: usize = 10;

/// Options of `pirn steer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerOptions {
    /// `None` = the one running session of this directory, else its latest.
    pub session: Option<String>,
    /// The message waits until the run would end.
    pub follow_up: bool,
    /// The run is to end; there is no text.
    pub abort: bool,
    pub text: String,
}

/// Whether a process has a session open.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Running(Holder),
    Nobody,
    /// That can not be told, and why.
    Unknown(String),
}

/// What a call did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steered {
    /// A sentence for stderr, without a final period.
    pub notice: String,
    pub warnings: Vec<String>,
}

impl Steered {
    fn quietly(notice: String) -> Self {
        Self { notice, warnings: Vec::new() }
    }
}

/// Runs the command.
pub(super) async fn command(
    args: SteerArgs,
    env: &Env,
    screen: &Screen,
    mut signals: Signals,
    clock: &Arc<dyn Clock>,
) -> Exit {
    let steering = async {
        let cwd = setup::working_directory(args.layers.cd.as_deref()).map_err(Failed::Error)?;
        // What a file says that no run would go by, such as one without trust, is left out of account with a warning.
        let examined = config::examine(&commands::sources(&args.layers, env, cwd.clone()));
        let warnings: Vec<String> =
            examined.errors.map(|errors| ErrorRecord::from(errors).message).into_iter().collect();
        screen.warn(&warnings);
        let library = kept::library(&examined.settings, env, &cwd).map_err(Failed::Error)?;
        let mut notice = |text: &str| screen.notice(Some(text));
        let io = PromptIo::process(&cwd, examined.settings.input.stdin_wait, &**clock, &mut notice);
        let text = if args.abort { String::new() } else { cli::steer_text(&args, io).await.map_err(Failed::Usage)? };
        // What a dying writer left is no message.
        if let Some(cause) = noted().await {
            return Err(Failed::Cancelled(cause));
        }
        let (session, follow_up, abort) = (args.session.clone(), args.follow_up, args.abort);
        let options = SteerOptions { session, follow_up, abort, text };
        let steered = steer(&library, &examined.settings, &options, Arc::new(UuidIds::new()), clock).await;
        steered.map_err(Failed::Error)
    };
    let steered = tokio::select! {
        biased;
        signal = signals.next() => Err(Failed::Cancelled(cause_of(signal))),
        steered = Box::pin(steering) => steered,
    };
    let failed = match steered {
        // What was left is heard, so a signal that comes behind that changes nothing: who is told that it failed leaves
        // it again, and it is heard twice.
        Ok(steered) => {
            screen.warn(&steered.warnings);
            screen.notice(Some(&steered.notice));
            return Exit::OK;
        }
        Err(failed) => noted().await.map_or(failed, Failed::Cancelled),
    };
    match failed {
        Failed::Usage(error) => screen.refuse(error, &**clock).await,
        Failed::Error(error) => screen.fail(error, &**clock).await,
        Failed::Cancelled(cause) => interrupted(cause),
    }
}

/// Why nothing was left.
enum Failed {
    Usage(UsageError),
    Error(ErrorRecord),
    Cancelled(CancelCause),
}

/// Leaves a message or an abort for a session, and says for whom. With nobody to hear it, an abort is done here.
///
/// # Errors
/// Kind `usage`: the call contradicts itself, or names no session, or none in particular. Else the session can not be
/// written to.
pub async fn steer(
    library: &Library,
    settings: &Settings,
    options: &SteerOptions,
    ids: Arc<dyn Ids>,
    clock: &Arc<dyn Clock>,
) -> Result<Steered, ErrorRecord> {
    let what = kind(options, &**clock)?;
    let (found, mut warnings) = choose(library, options.session.as_deref(), clock.now_ms())?;
    let mut steered = leave(&found, what, settings, options, &ids, clock).await?;
    warnings.append(&mut steered.warnings);
    Ok(Steered { warnings, ..steered })
}

/// Leaves something for a session, or ends the run that nobody drives.
async fn leave(
    found: &Found,
    what: SpoolKind,
    settings: &Settings,
    options: &SteerOptions,
    ids: &Arc<dyn Ids>,
    clock: &Arc<dyn Clock>,
) -> Result<Steered, ErrorRecord> {
    if let Some(reason) = &found.damage {
        return Err(ErrorRecord::new(ErrorKind::Storage, format!("{}: {reason}", found.file.display())));
    }
    if options.abort && owner(found, settings.session.lock) == Owner::Nobody {
        match Box::pin(abort_unowned(found, settings, ids, clock)).await {
            // Somebody opened it in the meantime, and hears it.
            Err(error) if error.kind == ErrorKind::Busy => {}
            ended => return ended,
        }
    }
    let mut has_run = true;
    let what = match what {
        // Named, the run is ended whatever the clocks say; the time of an abort counts only where the file tells of
        // none, as of a process that still waits for its prompt.
        SpoolKind::Abort { .. } => {
            let open = open_operation(found);
            has_run = !matches!(open, Ok(None));
            SpoolKind::Abort { operation_id: open.ok().flatten() }
        }
        message => message,
    };
    spool::leave(&found.file, MAIN_LANE, what, &**ids, &**clock)?;
    // Asked again: a process that ended before the message was there did not hear it.
    let owner = owner(found, settings.session.lock);
    Ok(Steered::quietly(notice(options, found, &owner, has_run)))
}

/// What is left.
fn kind(options: &SteerOptions, clock: &dyn Clock) -> Result<SpoolKind, ErrorRecord> {
    let usage = |text: &str| Err(ErrorRecord::new(ErrorKind::Usage, text));
    let is_blank = options.text.trim().is_empty();
    match (options.abort, options.follow_up) {
        (true, true) => usage("--abort and --follow-up exclude each other"),
        (true, false) if !is_blank => usage("--abort takes no message"),
        (true, false) => Ok(SpoolKind::Abort { operation_id: None }),
        (false, _) if is_blank => usage("the message is empty"),
        (false, follow_up) => match Message::user(options.text.as_str(), Vec::new(), clock.now_ms()) {
            Message::User(message) if follow_up => Ok(SpoolKind::FollowUp(message)),
            Message::User(message) => Ok(SpoolKind::Steer(message)),
            Message::Assistant(_) | Message::ToolResult(_) | Message::Custom(_) => usage("the message is of no user"),
        },
    }
}

/// The session of a reference, else the one running session of this directory, else its latest; and warnings of what may
/// make it another one than was meant.
fn choose(library: &Library, reference: Option<&str>, now_ms: u64) -> Result<(Found, Vec<String>), ErrorRecord> {
    if let Some(reference) = reference {
        return Ok((sessions::named(library, reference)?, Vec::new()));
    }
    let Listing { sessions, mut warnings } = library.list(Scope::Here)?;
    let mut running = Vec::new();
    let mut untold = Vec::new();
    for found in sessions {
        match probe(&found.file) {
            Ok(Probe::Running(holder)) => running.push((found, holder)),
            Ok(Probe::Free) => {}
            Err(error) => untold.push(format!("{}: {error}", found.file.display())),
        }
    }
    warnings.extend(not_probed(&untold));
    if running.len() > 1 {
        return Err(several(&running));
    }
    let found = match running.pop() {
        Some((found, _)) => found,
        None => library.latest_here(now_ms)?.ok_or_else(|| {
            ErrorRecord::new(ErrorKind::Usage, "there is no session of this directory")
                .with_hint("pirn sessions list --all shows those of every directory; -s takes an id")
        })?,
    };
    warnings.extend(found.warnings.iter().cloned());
    Ok((found, warnings))
}

/// A warning of sessions that may be running. One for all: without locks it is the same of each.
fn not_probed(untold: &[String]) -> Option<String> {
    let first = untold.first()?;
    let of = match untold.len() {
        1 => "a session".to_owned(),
        count => format!("{count} sessions"),
    };
    Some(format!("whether {of} of this directory runs can not be told ({first}); -s ID names the one that is meant"))
}

fn several(running: &[(Found, Holder)]) -> ErrorRecord {
    let mut message = format!("{} sessions of this directory are running", running.len());
    message.extend(running.iter().take(LISTED_MAX).map(|(found, holder)| {
        let name = found.name();
        format!("\n{}  {}{}", found.id, name.as_deref().unwrap_or("-"), pid(holder))
    }));
    let more = running.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        message.extend([format!("\nand {more} more")]);
    }
    ErrorRecord::new(ErrorKind::Usage, message).with_hint("pirn steer -s ID TEXT names one")
}

fn pid(holder: &Holder) -> String {
    holder.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

fn owner(found: &Found, lock: LockMode) -> Owner {
    match (probe(&found.file), lock) {
        (Ok(Probe::Running(holder)), _) => Owner::Running(holder),
        (Ok(Probe::Free), LockMode::Require) => Owner::Nobody,
        (Ok(Probe::Free), LockMode::Off) => Owner::Unknown("session.lock is off".to_owned()),
        (Err(error), _) => Owner::Unknown(error.to_string()),
    }
}

/// What was done, and for whom. Without `has_run` somebody may have the session open, but nothing is on in it.
fn notice(options: &SteerOptions, found: &Found, owner: &Owner, has_run: bool) -> String {
    let session = short_id(&found.id);
    let left = match (options.abort, options.follow_up) {
        (true, _) => "abort requested",
        (false, true) => "queued as a follow-up",
        (false, false) => "queued",
    };
    // A reference with a NUL byte names no session.
    let word = |reference: &String| shlex::try_quote(reference).map(|word| format!(" -s {word}")).unwrap_or_default();
    let next = format!("pirn -c{}", options.session.as_ref().map(word).unwrap_or_default());
    match owner {
        Owner::Running(holder) if !has_run => {
            format!("{left} for the session {session}{}, which has no run yet", pid(holder))
        }
        Owner::Running(holder) => format!("{left} for the running session {session}{}", pid(holder)),
        Owner::Nobody => {
            format!("{left} for session {session}, which is not running: it waits for the next run ({next})")
        }
        Owner::Unknown(reason) => format!(
            "{left} for session {session}; whether it is running can not be told ({reason}): if it is not, it waits \
             for the next run ({next})"
        ),
    }
}

/// Ends the run that a session was left in, without a request. What lies in the spool waits for the next run, as was
/// said when it was left.
///
/// # Errors
/// Kind `busy`: somebody has it open by now. Else it can not be read, written or understood.
async fn abort_unowned(
    found: &Found,
    settings: &Settings,
    ids: &Arc<dyn Ids>,
    clock: &Arc<dyn Clock>,
) -> Result<Steered, ErrorRecord> {
    let session = short_id(&found.id);
    let nothing = || Ok(Steered::quietly(format!("session {session} has no unfinished run to end")));
    if open_operation(found)?.is_none() {
        return nothing();
    }
    let file = jsonl::open(&found.file, kept::options(settings, clock)).await.map_err(|error| storage_error(&error))?;
    let mut warnings = file.warnings().to_vec();
    let file = Arc::new(file);
    let grace = settings.limits.grace;
    let mut options = Options::new(Arc::clone(&file) as Arc<dyn Store>, Arc::new(NoProvider));
    options.limits.grace = grace;
    // Nothing is started here, so that there is no token.
    let background =
        setup::ends_background(settings).then(|| Background { session_id: found.id.clone(), own_token: String::new() });
    options.orphans = Some(Arc::new(LeftRunning { grace, clock: Arc::clone(clock), background }));
    options.clock = Arc::clone(clock);
    options.ids = Arc::clone(ids);
    let record = |kind: ErrorKind, text: String| ErrorRecord::new(kind, text);
    let harness = Harness::open(options).await.map_err(|error| record(error.kind(), error.to_string()))?;
    let heard = Arc::new(Warnings::default());
    let subscription = harness.subscribe(Arc::clone(&heard) as Arc<dyn Listener>);
    let lane = harness.lane(MAIN_LANE).map_err(|error| record(error.kind(), error.to_string()))?;
    let ended = match lane.abort(CancelCause::Steer).await {
        Ok(_) => match lane.continue_(Drive::default()).await {
            Ok(Outcome::Settled(_)) => {
                Ok(Steered::quietly(format!("session {session} is not running; the run it was left in is ended")))
            }
            Ok(Outcome::Waiting(wait)) => Err(internal_record(&format!("a cancelled run waits: {wait:?}"))),
            Err(error) => Err(record(error.kind(), error.to_string())),
        },
        // Whoever had it open in between has ended it.
        Err(AbortError::NoActiveOperation) => nothing(),
        Err(error) => Err(record(error.kind(), error.to_string())),
    };
    drop(subscription);
    let synced = harness.close().await.map_err(|error| storage_error(&error));
    // A failure costs nothing but space.
    drop(file.close().await);
    let mut steered = ended?;
    synced?;
    warnings.extend(heard.take());
    steered.warnings = warnings;
    Ok(steered)
}

/// Keeps warnings for stderr.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Listener for Warnings {
    async fn on_event(&self, event: &LaneEvent) {
        let message = match &event.event {
            Event::Warning { message, .. } => Some(message.clone()),
            Event::OperationAbort { steer, follow_up, .. } => print::dropped(steer.iter().chain(follow_up)),
            _ => None,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(message);
    }
}

/// No model is asked while a run is ended.
struct NoProvider;

impl Provider for NoProvider {
    fn stream(&self, request: Arc<LlmRequest>, _: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let head = AssistantHead {
            api: request.model.api.clone(),
            provider: request.model.provider.clone(),
            model: request.model.id.clone(),
            timestamp: 0,
        };
        let error = internal_record("a request was made for a run that is to end");
        let mut message = AssistantMessage::pending(&head);
        message.stop_reason = StopReason::Error;
        message.error_message = Some(error.message.clone());
        message.error = Some(error);
        let events = [AssistantEvent::Start(head), AssistantEvent::End(Box::new(message))];
        stream::iter(events).boxed()
    }
}

/// The operation that a session was left in.
///
/// # Errors
/// The file can not be read, or what it says of the lane is damaged.
fn open_operation(found: &Found) -> Result<Option<RunId>, ErrorRecord> {
    let reader = jsonl::read(&found.file).map_err(|error| storage_error(&error))?;
    if let Some(damage) = reader.damage() {
        return Err(storage_error(damage));
    }
    let state = reader.value(namespace::LANE_STATE, MAIN_LANE).map_err(|error| storage_error(&error))?;
    let damaged = |error: serde_json::Error| {
        ErrorRecord::new(ErrorKind::Storage, format!("{}: the state of its lane: {error}", found.file.display()))
    };
    let state: Option<LaneState> = state.map(serde_json::from_value).transpose().map_err(damaged)?;
    Ok(state.and_then(|state| state.current_operation_id))
}
