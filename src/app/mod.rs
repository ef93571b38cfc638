//! The composition root: builds every adapter, wires the sinks, listens to signals, maps the outcome to an exit.
//!
//! Keeps true: it is the only place that constructs adapters; every way out of it has printed what it owes, the
//! `result` line of a JSON stream included; no answer is lost because something later failed.
//!
//! Must not know: business rules.

mod account;
mod attach;
mod children;
mod commands;
pub mod config;
mod kept;
mod key_command;
mod log;
mod models;
mod orphans;
mod outputs;
mod report;
mod resume;
mod run;
pub mod sessions;
mod setup;
mod signals;
mod start;
pub mod steer;
mod system_prompt;
mod verdict;

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use self::report::Screen;
use self::signals::Signals;
use crate::cli::{self, Invocation, JsonLevel};
use crate::config::Env;
use crate::exit::{self, Exit};
use crate::model::{CancelCause, ErrorKind, ErrorRecord, StopReason};
use crate::port::{Clock, SystemClock};
use crate::print;
use crate::process;
use crate::turn;

/// Runs a command line, program name first, to its end. Never panics, and prints what is owed before it returns.
///
/// This is the entry of the binary and takes the process for its own: it adopts orphans below it (X4), ignores SIGXFSZ,
/// listens to signals and replaces the panic hook. A program that embeds the loop uses [`crate::agent`] instead.
pub fn run(argv: Vec<OsString>) -> Exit {
    take_process();
    let env = Env::from_process();
    quiet_panics(env.switch("PIRN_BACKTRACE"));
    let screen = Screen::before_settings(&env, wished_json(&argv));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return internal(&screen, &format!("the runtime did not start: {error}")),
    };
    let work = AssertUnwindSafe(dispatch(argv, &env, &screen)).catch_unwind();
    let exit = runtime.block_on(work);
    // A blocked read of a file or of stdin is nobody's business any more.
    runtime.shutdown_background();
    let exit = exit.unwrap_or_else(|panic| internal(&screen, &panic_text(&*panic)));
    tracing::info!(code = exit.code, signal = ?exit.raise, "exit");
    exit
}

/// What concerns the process as a whole, before it has threads and children.
fn take_process() {
    process::unix::survive_file_size_limit();
    // Where the system refuses, what leaves its group is still looked for by its token.
    drop(process::unix::become_subreaper());
}

/// The JSON level that the command line names, by the flag or by `--set`, before anything in it is checked.
fn wished_json(argv: &[OsString]) -> Option<JsonLevel> {
    if !cli::is_run(argv.iter().cloned()) {
        return None;
    }
    if let Some(level) = cli::wants_json(argv.iter().cloned()) {
        return Some(level);
    }
    let mut words = argv.iter().skip(1).map_while(|word| word.to_str().filter(|word| *word != "--"));
    let mut wish = None;
    while let Some(word) = words.next() {
        let Some(rest) = word.strip_prefix("--set") else { continue };
        let set = if rest.is_empty() { words.next() } else { rest.strip_prefix('=') };
        if let Some((key, value)) = set.and_then(|set| set.split_once('='))
            && key.trim() == "output.json"
        {
            wish = JsonLevel::from_word(value.trim().trim_matches(['"', '\'']));
        }
    }
    wish
}

/// Ends the process by the signal that ended the run, so that a shell sees a true signal death. Returns otherwise.
pub fn raise(exit: Exit) {
    if let Some(signal) = exit.raise {
        process::unix::die_of(signals::number_of(signal));
    }
}

async fn dispatch(argv: Vec<OsString>, env: &Env, screen: &Screen) -> Exit {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // Before anything that can take time.
    let mut signals = match Signals::install(&clock) {
        Ok(signals) => signals,
        Err(error) => return screen.fail(internal_record(&format!("no signal handler: {error}")), &*clock).await,
    };
    match cli::parse(argv) {
        Err(error) => screen.refuse(error, &*clock).await,
        Ok(Invocation::Print(text)) => print_text(screen, text, &mut signals, &*clock).await,
        Ok(Invocation::Steer(args)) => steer::command(args, env, screen, signals, &clock).await,
        Ok(Invocation::Models(args)) => commands::models(args, env, screen, signals, &clock).await,
        Ok(Invocation::Completions(shell)) => match cli::completions(shell) {
            Ok(text) => print_text(screen, text, &mut signals, &*clock).await,
            Err(bug) => screen.fail(bug, &*clock).await,
        },
        Ok(Invocation::Sessions(args)) => commands::sessions(args, env, screen, signals, &clock).await,
        Ok(Invocation::Config(args)) => commands::config(args, env, screen, signals, &clock).await,
        Ok(Invocation::Run(args)) => Box::pin(run::command(*args, env, screen, signals, clock)).await,
    }
}

/// Writes a text that is the whole output of a command.
async fn print_text(screen: &Screen, text: String, signals: &mut Signals, clock: &dyn Clock) -> Exit {
    let writing = apart(move || {
        Ok(match print::stdout_writer() {
            Ok(mut stdout) => print::write_text(&mut *stdout, &text),
            Err(error) => Err((&error).into()),
        })
    });
    match signals.unless(writing).await {
        Ok(Ok(Ok(()))) => Exit::OK,
        Ok(Ok(Err(failure))) => screen.stdout_failed(&failure, Exit::OK),
        Ok(Err(bug)) => screen.fail(bug, clock).await,
        Err(cause) => interrupted(cause),
    }
}

/// The exit of a command that a signal ended before it was done.
fn interrupted(cause: CancelCause) -> Exit {
    exit::of(turn::reason_of_abort(Some(cause)), Some(StopReason::Aborted), None, Some(cause))
}

/// Does what may block, such as reading a file that is a pipe, on a thread of its own, so that signals are heard
/// meanwhile. A thread that never comes back ends with the process.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorRecord> + Send + 'static,
) -> Result<T, ErrorRecord> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let text = error.try_into_panic().map_or_else(|error| error.to_string(), |panic| panic_text(&*panic));
        Err(internal_record(&text))
    })
}

/// Keeps the runtime's report of a panic off stderr; the panic itself becomes an error of kind `internal`.
fn quiet_panics(wanted: bool) {
    if !wanted {
        std::panic::set_hook(Box::new(|_| {}));
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

fn internal_record(text: &str) -> ErrorRecord {
    ErrorRecord::new(ErrorKind::Internal, format!("this is a bug in pirn: {text}"))
        .with_hint("PIRN_BACKTRACE=1 shows where; please report it")
}

/// The way out when nothing else works any more.
fn internal(screen: &Screen, text: &str) -> Exit {
    let record = internal_record(text);
    let reason = exit::reason_before_call(record.kind);
    let exit = exit::of(reason, None, Some(record.kind), None);
    screen.print_directly(exit, reason, record);
    exit
}
