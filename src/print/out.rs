//! The printer: a thread that owns stdout, stderr and the events file, behind a bounded queue.
//!
//! Keeps true: messages are printed in the order they were sent; what is queued is drained into writes of whole lines
//! and flushed as soon as nothing more is queued (stream guarantee G2); a slow reader slows the senders and never
//! blocks their thread; a reader of stderr holds up neither them nor stdout; a failed stdout is reported once and then
//! discarded, a failed stderr is ignored; no macro that panics on a closed pipe is used.
//!
//! Must not know: why the run goes on or ends, which code the process exits with.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};

use super::human::CUT_OFF;
use super::pieces::{WRITE_BYTES_MAX, write_lines, write_piece};
use super::progress::Progress;
use super::stderr::Stderr;
use super::{
    Activity, Answer, Column, Encoder, Events, Human, HumanConfig, Level, ResultLine, SessionLine, Verbosity, merge,
};
use crate::model::{Event, Reason};
use crate::port::{Clock, Sink, SinkError};

/// Messages that may wait for the printer before a sender does.
pub const QUEUE_MESSAGES: usize = 1024;
/// How long an interrupted run waits for a reader that takes nothing.
pub const STALL_LIMIT: Duration = Duration::from_secs(10);
/// How often a reader is looked at within that time: its last move may lie this much behind the beginning of the wait.
const STALL_LOOKS: u32 = 10;
/// What goes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The answer; `stream` makes it live in a pipe.
    Text { stream: bool },
    /// JSON lines.
    Json { level: Level },
}

/// Everything that decides how a run looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub mode: Mode,
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    pub verbosity: Verbosity,
    /// Colour on stderr.
    pub color: bool,
    /// The locale is not UTF-8.
    pub ascii: bool,
    /// `output.thinking`.
    pub thinking: bool,
    /// The terminal can do more than print (`TERM` is not `dumb`).
    pub spinner: bool,
}

impl Config {
    /// With JSON, stderr follows the column of a plain file unless more was asked for (stream guarantee G9).
    fn column(&self) -> Column {
        let quiet_json = matches!(self.mode, Mode::Json { .. }) && self.verbosity < Verbosity::Verbose;
        if self.stderr_is_terminal && !quiet_json { Column::Terminal } else { Column::Plain }
    }
}

/// One thing to print.
#[derive(Clone, Debug)]
pub enum Msg {
    /// `recovery` = the event tells of work that a dead process began. `ts` is Unix milliseconds, here and below.
    Event { event: Box<Event>, recovery: bool, ts: u64 },
    /// The first line of a run.
    Session { line: Box<SessionLine>, ts: u64 },
    /// The verdict; the last thing printed. Where the events file does not take it, or has failed before, everybody else
    /// is told `instead`, with that failure as the message of its error; without it, a warning.
    Result { line: Box<ResultLine>, instead: Option<Box<ResultLine>>, ts: u64 },
    /// A sentence for stderr.
    Notice(String),
    /// A text of our own for stderr, printed as it is.
    Help(String),
    /// Something worth knowing, for both streams. `code` is the word for programs.
    Warning { code: &'static str, message: String, ts: u64 },
    /// A sign of life.
    Heartbeat { elapsed_ms: u64 },
}

#[derive(Debug)]
enum Command {
    Print(Msg),
    Finish,
}

/// Why stdout takes no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StdoutFailure {
    /// The reader left: not an error of ours.
    #[error("the reader of stdout left")]
    Closed,
    /// Any other failure, such as a full disk.
    #[error("cannot write to stdout: {0}")]
    Failed(String),
}

impl From<&io::Error> for StdoutFailure {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// The printer thread has ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the printer has stopped")]
pub struct PrinterGone;

/// How the printer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Everything was written.
    Complete,
    /// Stdout failed on the way; the rest was discarded.
    Failed(StdoutFailure),
    /// The reader took nothing for [`STALL_LIMIT`]; the rest is lost.
    Stalled,
    /// The thread ended by a bug.
    Lost,
}

/// How long [`Printer::finish`] waits for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as it takes.
    Endless,
    /// Until nothing has moved for [`STALL_LIMIT`]: a signal has already ended the run.
    Stall,
}

/// The running printer. Dropped without [`Printer::finish`], it prints what is queued, and nobody waits for it.
#[derive(Debug)]
pub struct Printer {
    queue: mpsc::Sender<Command>,
    failure: watch::Receiver<Option<StdoutFailure>>,
    done: oneshot::Receiver<Option<StdoutFailure>>,
    moved: Arc<AtomicU64>,
    /// The run is to end soon.
    hurries: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A way to send to the printer.
#[derive(Clone, Debug)]
pub struct Handle {
    queue: mpsc::Sender<Command>,
}

impl Handle {
    /// Queues a message unless the queue is full; returns whether it did.
    pub fn try_send(&self, msg: Msg) -> bool {
        self.queue.try_send(Command::Print(msg)).is_ok()
    }

    /// Queues a message; waits while the queue is full.
    pub async fn send(&self, msg: Msg) -> Result<(), PrinterGone> {
        self.queue.send(Command::Print(msg)).await.map_err(gone)
    }
}

/// The queue is closed only when its thread has ended; what could not be sent has no reader.
fn gone(_: mpsc::error::SendError<Command>) -> PrinterGone {
    PrinterGone
}

/// Reports a failed stdout.
#[derive(Clone, Debug)]
pub struct StdoutWatch(watch::Receiver<Option<StdoutFailure>>);

impl StdoutWatch {
    /// Waits for stdout to fail; never returns if it does not. Cancel-safe.
    pub async fn failed(&mut self) -> StdoutFailure {
        let found = match self.0.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone(),
            Err(_) => None,
        };
        match found {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }
}

/// A loop's sink: stamps events and sends them to the printer.
pub struct EventSink {
    handle: Handle,
    clock: Arc<dyn Clock>,
}

impl EventSink {
    /// A sink that stamps events with the clock's time.
    pub fn new(handle: Handle, clock: Arc<dyn Clock>) -> Self {
        Self { handle, clock }
    }
}

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSink").finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for EventSink {
    async fn emit(&mut self, event: Event) -> Result<(), SinkError> {
        let msg = Msg::Event { event: Box::new(event), recovery: false, ts: self.clock.now_ms() };
        self.handle.send(msg).await.map_err(|error| SinkError(error.to_string()))
    }
}

impl Printer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(config: Config, stdout: Box<dyn Write + Send>, stderr: impl Into<Stderr>) -> io::Result<Self> {
        Self::start_with(config, stdout, stderr, None)
    }

    /// The same with a stream of events beside stdout.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_with(
        config: Config,
        stdout: Box<dyn Write + Send>,
        stderr: impl Into<Stderr>,
        events: Option<Events>,
    ) -> io::Result<Self> {
        let (queue, messages) = mpsc::channel(QUEUE_MESSAGES);
        let (report, failure) = watch::channel(None);
        let (tell, done) = oneshot::channel();
        let moved = Arc::new(AtomicU64::new(0));
        let hurries = Arc::new(AtomicBool::new(false));
        let out = Out::new(stdout, Arc::clone(&moved));
        let mut worker = Worker::new(config, out, stderr.into(), report, Arc::clone(&hurries));
        worker.events = events;
        let thread = std::thread::Builder::new().name("printer".to_owned()).spawn(move || {
            let end = worker.run(messages);
            // Nobody may be waiting any more.
            drop(tell.send(end));
        })?;
        Ok(Self { queue, failure, done, moved, hurries, thread })
    }

    /// A way to send messages; there may be many.
    pub fn handle(&self) -> Handle {
        Handle { queue: self.queue.clone() }
    }

    /// Counts the pieces written to stdout so far, while senders wait for the reader; `None` while they do not.
    pub fn backlog(&self) -> Option<u64> {
        (self.queue.capacity() == 0).then(|| self.moved.load(Ordering::Relaxed))
    }

    /// A watch on stdout, for whoever must stop when nobody reads.
    pub fn stdout_watch(&self) -> StdoutWatch {
        StdoutWatch(self.failure.clone())
    }

    /// Prints what is queued, flushes and ends the thread. Other handles may still exist; what they send later is
    /// refused.
    pub async fn finish(self, patience: Patience, clock: &dyn Clock) -> Finished {
        match patience {
            Patience::Endless => self.finish_with(None, std::future::pending(), clock).await,
            Patience::Stall => self.finish_with(None, std::future::ready(()), clock).await,
        }
    }

    /// The same behind a last message. The reader has all the time it wants until `hurry` is ready; from then on
    /// patience ends at [`STALL_LIMIT`].
    pub async fn finish_with(self, last: Option<Msg>, hurry: impl Future<Output = ()>, clock: &dyn Clock) -> Finished {
        let Self { queue, failure: _, done, moved, hurries, thread } = self;
        let ending = async {
            for command in last.map(Command::Print).into_iter().chain([Command::Finish]) {
                // A printer that is gone tells so by `done`.
                drop(queue.send(command).await);
            }
            done.await
        };
        let stalled = async {
            hurry.await;
            hurries.store(true, Ordering::Relaxed);
            stalled(clock, || Some(moved.load(Ordering::Relaxed))).await;
        };
        let end = tokio::select! {
            biased;
            end = ending => end,
            () = stalled => return Finished::Stalled,
        };
        match (end, thread.join()) {
            (Ok(None), Ok(())) => Finished::Complete,
            (Ok(Some(failure)), Ok(())) => Finished::Failed(failure),
            (Err(_), _) | (_, Err(_)) => Finished::Lost,
        }
    }
}

/// Waits until a count has stood still for [`STALL_LIMIT`]; `None` = nobody waits for it.
pub async fn stalled(clock: &dyn Clock, count: impl Fn() -> Option<u64>) {
    let mut before = count();
    let mut still: u32 = 0;
    while still < STALL_LOOKS {
        clock.sleep(STALL_LIMIT / STALL_LOOKS).await;
        let now = count();
        still = if now.is_some() && now == before { still.saturating_add(1) } else { 0 };
        before = now;
    }
}

/// A stream that counts what it has passed on.
struct Out {
    writer: Box<dyn Write + Send>,
    moved: Arc<AtomicU64>,
}

impl Out {
    fn new(writer: Box<dyn Write + Send>, moved: Arc<AtomicU64>) -> Self {
        Self { writer, moved }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_lines(&mut *self.writer, bytes, &self.moved)
    }
}

enum Stdout {
    Text(Answer),
    Json(Encoder),
}

/// The thread's state.
struct Worker {
    stdout: Stdout,
    human: Human,
    progress: Progress,
    out: Out,
    out_buffer: Vec<u8>,
    events: Option<Events>,
    err: Stderr,
    hurries: Arc<AtomicBool>,
    /// Both streams share a terminal, so that a line on one may not begin inside a line of the other.
    shares_terminal: bool,
    stdout_is_terminal: bool,
    failure: Option<StdoutFailure>,
    report: watch::Sender<Option<StdoutFailure>>,
}

impl Worker {
    fn new(
        config: Config,
        out: Out,
        err: Stderr,
        report: watch::Sender<Option<StdoutFailure>>,
        hurries: Arc<AtomicBool>,
    ) -> Self {
        let column = config.column();
        let stdout = match config.mode {
            Mode::Text { stream } => Stdout::Text(Answer::new(config.stdout_is_terminal, stream)),
            Mode::Json { level } => Stdout::Json(Encoder::new(level)),
        };
        let (verbosity, color, ascii, thinking) = (config.verbosity, config.color, config.ascii, config.thinking);
        let spins = config.spinner && column == Column::Terminal && verbosity > Verbosity::Quiet;
        Self {
            stdout,
            human: Human::new(HumanConfig { column, verbosity, color, ascii, thinking }),
            progress: Progress::new(spins, ascii),
            out,
            out_buffer: Vec::new(),
            events: None,
            err,
            hurries,
            shares_terminal: config.stdout_is_terminal && config.stderr_is_terminal,
            stdout_is_terminal: config.stdout_is_terminal,
            failure: None,
            report,
        }
    }

    /// Prints until told to finish, or until nobody can send any more.
    fn run(&mut self, mut queue: mpsc::Receiver<Command>) -> Option<StdoutFailure> {
        while let Some(first) = queue.blocking_recv() {
            let finish = self.drain(first, &mut queue);
            self.flush();
            self.err.retry();
            if finish {
                break;
            }
            self.show_progress();
        }
        self.progress.hide();
        let hurries = &self.hurries;
        self.err.finish(|| hurries.load(Ordering::Relaxed));
        self.failure.take()
    }

    /// Prints a message and all that are queued behind it; returns whether it was the last.
    fn drain(&mut self, first: Command, queue: &mut mpsc::Receiver<Command>) -> bool {
        let mut held: Option<Msg> = None;
        let mut next = Some(first);
        while let Some(command) = next {
            let Command::Print(msg) = command else {
                self.print(held);
                return true;
            };
            if !held.as_mut().is_some_and(|held| join(held, &msg)) {
                self.print(held.replace(msg));
            }
            next = queue.try_recv().ok();
        }
        self.print(held);
        false
    }

    fn print(&mut self, msg: Option<Msg>) {
        let Some(msg) = msg else { return };
        let msg = self.archive(msg);
        self.take_stdout(&msg);
        if let Msg::Event { event, .. } = &msg {
            let live = self.stdout_is_terminal && matches!(&self.stdout, Stdout::Text(answer) if answer.is_live());
            if let Some(activity) = Activity::after(event, live) {
                self.progress.set(activity);
            }
        }
        let mut lines = String::new();
        self.take_stderr(&msg, &mut lines);
        if !lines.is_empty() {
            if self.shares_terminal
                && let Stdout::Text(answer) = &mut self.stdout
            {
                answer.break_line(&mut self.out_buffer);
            }
            self.flush_stdout();
            self.write_stderr(&lines);
        }
        if self.out_buffer.len() >= WRITE_BYTES_MAX {
            self.flush_stdout();
        }
    }

    /// Passes a message to the events file first: what is told elsewhere depends on whether the verdict is in it.
    fn archive(&mut self, msg: Msg) -> Msg {
        let Some(events) = self.events.clone() else { return msg };
        events.take(&msg, &self.out.moved);
        let Msg::Result { line, instead, ts } = msg else { return msg };
        self.flush();
        let line = match (events.failure(), instead) {
            (None, _) => line,
            (Some(failure), Some(mut instead)) => {
                if let Some(error) = &mut instead.error {
                    failure.clone_into(&mut error.message);
                }
                instead
            }
            (Some(failure), None) => {
                self.print(Some(Msg::Warning { code: "events", message: failure.to_owned(), ts }));
                line
            }
        };
        Msg::Result { line, instead: None, ts }
    }

    /// Shows the spinner, but never on a line that holds text: drawing clears the line.
    fn show_progress(&mut self) {
        let is_line_open = matches!(&self.stdout, Stdout::Text(answer) if answer.is_line_open());
        if !(is_line_open && self.shares_terminal) {
            self.progress.show();
        }
    }

    fn take_stdout(&mut self, msg: &Msg) {
        let out = &mut self.out_buffer;
        match (&mut self.stdout, msg) {
            (Stdout::Text(answer), Msg::Event { event, recovery, ts: _ }) => answer.event(event, *recovery, out),
            (Stdout::Text(answer), Msg::Result { line, .. }) => answer.result(line, out),
            (Stdout::Json(encoder), msg) => encode(encoder, msg, out),
            (
                Stdout::Text(_),
                Msg::Session { .. } | Msg::Warning { .. } | Msg::Notice(_) | Msg::Help(_) | Msg::Heartbeat { .. },
            ) => {}
        }
    }

    fn take_stderr(&mut self, msg: &Msg, lines: &mut String) {
        match msg {
            Msg::Event { event, .. } => {
                let broke_off = matches!(&self.stdout, Stdout::Text(answer) if answer.broke_off());
                self.human.event(event, broke_off, lines);
            }
            Msg::Result { line, .. } => {
                self.progress.set(Activity::None);
                self.human.result(line, lines);
            }
            Msg::Notice(text) => self.human.notice(text, lines),
            Msg::Help(text) => self.human.help(text, lines),
            Msg::Warning { message, .. } => self.human.warning(message, lines),
            Msg::Heartbeat { elapsed_ms } => self.human.heartbeat(*elapsed_ms, lines),
            Msg::Session { .. } => {}
        }
    }

    /// Writes what waits for stdout, and then what waits for the events file: the answer is not held up by an archive.
    fn flush(&mut self) {
        self.flush_stdout();
        if let Some(events) = &self.events {
            events.flush(&self.out.moved);
        }
    }

    fn flush_stdout(&mut self) {
        if self.out_buffer.is_empty() {
            return;
        }
        if self.failure.is_none() {
            let (out, bytes) = (&mut self.out, &self.out_buffer);
            let written =
                if self.stdout_is_terminal { self.progress.beside(|| out.write(bytes)) } else { out.write(bytes) };
            if let Err(error) = written {
                let failure = StdoutFailure::from(&error);
                self.failure = Some(failure.clone());
                self.report.send_replace(Some(failure));
            }
        }
        self.out_buffer.clear();
    }

    fn write_stderr(&mut self, lines: &str) {
        let err = &mut self.err;
        self.progress.beside(|| err.write(lines));
    }
}

/// Appends the JSON line of a message, if it has one.
pub(super) fn encode(encoder: &mut Encoder, msg: &Msg, out: &mut Vec<u8>) {
    match msg {
        Msg::Event { event, recovery, ts } => encoder.event(event, *recovery, *ts, out),
        Msg::Session { line, ts } => encoder.session(line, *ts, out),
        Msg::Result { line, ts, .. } => {
            if line.reason == Reason::Length {
                encoder.event(&warning("length", CUT_OFF), false, *ts, out);
            }
            encoder.result(line, *ts, out);
        }
        Msg::Warning { code, message, ts } => encoder.event(&warning(code, message), false, *ts, out),
        Msg::Notice(_) | Msg::Help(_) | Msg::Heartbeat { .. } => {}
    }
}

fn warning(code: &str, message: &str) -> Event {
    Event::Warning { code: code.to_owned(), message: message.to_owned() }
}

/// Joins a delta to the message before it; returns whether it did. The later time stamp holds.
fn join(held: &mut Msg, next: &Msg) -> bool {
    let Msg::Event { event, recovery, ts } = held else { return false };
    let Msg::Event { event: next, recovery: next_recovery, ts: next_ts } = next else { return false };
    let joined = recovery == next_recovery && merge(event, next);
    if joined {
        *ts = *next_ts;
    }
    joined
}

/// Standard output as a file of its own: the standard library's handle would hold lines back.
pub fn stdout_writer() -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}

/// Standard error as a file of its own.
pub fn stderr_writer() -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(File::from(io::stderr().as_fd().try_clone_to_owned()?)))
}

/// Writes one text outside a run, such as help or a listing.
///
/// # Errors
/// The stream takes no more.
pub fn write_text(writer: &mut dyn Write, text: &str) -> Result<(), StdoutFailure> {
    let moved = AtomicU64::new(0);
    let written = write_piece(writer, text.as_bytes(), &moved).and_then(|()| writer.flush());
    written.map_err(|error| StdoutFailure::from(&error))
}
