//! `pirn steer`: a message, a follow-up or an abort for a session that another process may have open.
//!
//! Keeps true: what is left is on the disk before anything is said; stdout stays empty; nothing is asked of a model; a
//! session that somebody has open is never locked or written to.
//!
//! Must not know: how arguments are parsed, how an item lies in the spool, how a run takes it.

use std::sync::Arc;

use super::recorder::storage_error;
use super::report::Screen;
use super::signals::Signals;
use super::{interrupted, kept, sessions, setup};
use crate::config::{self, Env, LockMode, Settings, Sources};
use crate::exit::Exit;
use crate::model::session::namespace;
use crate::model::{ErrorKind, ErrorRecord, LaneState, MAIN_LANE, Message, RunId, short_id};
use crate::port::{Clock, Ids, SpoolKind, Store, UuidIds};
use crate::session::jsonl;
use crate::session::jsonl::lock::{Holder, Probe, probe};
use crate::session::place::{Found, Library, Scope};
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

/// Runs the command.
#[expect(dead_code, reason = "called once the command line has the command")]
pub(super) async fn command(
    options: SteerOptions,
    env: &Env,
    screen: &Screen,
    mut signals: Signals,
    clock: &Arc<dyn Clock>,
) -> Exit {
    let steering = async {
        let cwd = setup::working_directory(None)?;
        // What a file says that no run would go by, such as one without trust, is left out of account with a warning.
        let examined = config::examine(&Sources::new(env, cwd.clone()));
        let warnings: Vec<String> =
            examined.errors.map(|errors| ErrorRecord::from(errors).message).into_iter().collect();
        screen.warn(&warnings);
        let library = kept::library(&examined.settings, env, &cwd)?;
        steer(&library, &examined.settings, &options, &UuidIds::new(), &**clock).await
    };
    match signals.unless(steering).await {
        Ok(Ok(notice)) => {
            screen.notice(Some(&notice));
            Exit::OK
        }
        Ok(Err(error)) => screen.fail(error, &**clock).await,
        Err(cause) => interrupted(cause),
    }
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
    ids: &dyn Ids,
    clock: &dyn Clock,
) -> Result<String, ErrorRecord> {
    let what = kind(options, clock)?;
    let found = choose(library, options.session.as_deref())?;
    if let Some(reason) = &found.damage {
        return Err(ErrorRecord::new(ErrorKind::Storage, format!("{}: {reason}", found.file.display())));
    }
    if options.abort && owner(&found, settings.session.lock) == Owner::Nobody {
        match abort_unowned(&found).await {
            // Somebody opened it in the meantime, and hears it.
            Err(error) if error.kind == ErrorKind::Busy => {}
            ended => return ended,
        }
    }
    spool::leave(&found.file, MAIN_LANE, what, ids, clock)?;
    // Asked again: a process that ended before the message was there did not hear it.
    let owner = owner(&found, settings.session.lock);
    Ok(notice(options, &found, &owner))
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

/// The session of a reference, else the one running session of this directory, else its latest.
fn choose(library: &Library, reference: Option<&str>) -> Result<Found, ErrorRecord> {
    if let Some(reference) = reference {
        return sessions::named(library, reference);
    }
    let mut running = Vec::new();
    for found in library.list(Scope::Here)?.sessions {
        if let Ok(Probe::Running(holder)) = probe(&found.file) {
            running.push((found, holder));
        }
    }
    if running.len() > 1 {
        return Err(several(&running));
    }
    match running.pop() {
        Some((found, _)) => Ok(found),
        None => library.latest_here()?.ok_or_else(|| {
            ErrorRecord::new(ErrorKind::Usage, "there is no session of this directory")
                .with_hint("pirn sessions list --all shows those of every directory; -s takes an id")
        }),
    }
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

fn notice(options: &SteerOptions, found: &Found, owner: &Owner) -> String {
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

/// Ends the run that a session was left in. Nobody has it open.
///
/// # Errors
/// It can not be ended here, or the session can not be read.
#[expect(clippy::unused_async, reason = "a run is ended by what drives runs")]
async fn abort_unowned(found: &Found) -> Result<String, ErrorRecord> {
    let session = short_id(&found.id);
    match open_operation(found)? {
        None => Ok(format!("session {session} has no unfinished run to end")),
        Some(_) => Err(ErrorRecord::new(
            ErrorKind::Usage,
            format!("session {session} is not running, and ending what it left is not available in this version"),
        )
        .with_hint("pirn -c finishes it")),
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
