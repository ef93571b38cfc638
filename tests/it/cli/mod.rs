//! The built binary, as a shell sees it: exit codes, signals, pipes, prompts, a server on the other side.
//!
//! `PIRN_TEST_BIN` names another binary than the one built with these tests, such as a plain release build.

mod accounts;
mod adversity;
mod bounds;
mod children;
mod completions;
mod continuing;
mod durable;
mod exit_codes;
mod files;
pub(crate) mod grammar;
mod images;
mod input;
pub(crate) mod kept;
mod key_commands;
mod kills;
mod models;
mod outputs;
mod pipes;
mod pty;
mod readme;
mod schema;
mod sessions;
mod settings;
mod signals;
mod steer;
mod storage;
mod supervised;
mod terminals;
mod then;
mod wire;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::server::Server;

/// The longest any run of a test may take.
pub(crate) const OUTER_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn binary() -> PathBuf {
    std::env::var_os("PIRN_TEST_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_pirn")), PathBuf::from)
}

/// A test runner in the background of a script ignores SIGINT, and so would the binary, rightly. A signal that is
/// caught here has its default action again in a new program.
fn heed_signals() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
            if pirn::process::unix::is_ignored(kind.as_raw_value()) {
                // The handler stays when the stream is gone.
                drop(signal(kind).unwrap());
            }
        }
    });
}

/// What stands behind stdin.
pub(crate) enum Stdin {
    Null,
    Bytes(Vec<u8>),
    /// A pipe nobody writes to and nobody closes.
    Silent,
    Custom(Stdio),
}

/// Where calls work and keep their sessions: a working directory, and a place for what is kept beside it.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    home: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { dir: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What `PIRN_HOME` names.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The session files, in the order of their names.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.home.path().join("state/sessions")];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

/// A call of the binary, in an empty directory and an almost empty environment.
#[must_use]
pub(crate) struct Pirn {
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Stdin,
    stdout: Stdio,
    stderr: Stdio,
    script: Option<String>,
    place: Arc<Place>,
}

impl Pirn {
    pub(crate) fn new<S: Into<OsString>>(args: impl IntoIterator<Item = S>) -> Self {
        let place = Place::new();
        Self {
            args: args.into_iter().map(Into::into).collect(),
            env: vec![
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("LANG".into(), "C.UTF-8".into()),
                ("PIRN_HOME".into(), place.home().into()),
            ],
            stdin: Stdin::Null,
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
            script: None,
            place,
        }
    }

    /// The same call in a place that other calls share.
    pub(crate) fn at(mut self, place: &Arc<Place>) -> Self {
        self.place = Arc::clone(place);
        let home = place.home().to_owned();
        self.env("PIRN_HOME", home)
    }

    /// A call with the demo model.
    pub(crate) fn demo<S: Into<OsString>>(args: impl IntoIterator<Item = S>) -> Self {
        let mut call = Self::new(["-m", "demo"]);
        call.args.extend(args.into_iter().map(Into::into));
        call
    }

    /// A call of a model behind a server of the test.
    pub(crate) fn of_server<S: Into<OsString>>(server: &Server, args: impl IntoIterator<Item = S>) -> Self {
        let mut call = Self::new(["-m", "openai/test-model"]);
        call.args.extend(args.into_iter().map(Into::into));
        call.env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", KEY)
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.into()));
        self
    }

    /// The same, where the variable is not set yet.
    pub(crate) fn default_env(self, name: &str, value: &str) -> Self {
        if self.env.iter().any(|(known, _)| known == name) { self } else { self.env(name, value) }
    }

    /// Further arguments.
    pub(crate) fn more<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The same call, in which a request that fails is not sent again.
    pub(crate) fn once(mut self) -> Self {
        self.args.splice(..0, ["--set", "retry.enabled=false"].map(OsString::from));
        self
    }

    /// The same call, in which failed requests are sent again as ever, but soon.
    pub(crate) fn soon(mut self) -> Self {
        self.args.splice(..0, ["--set", "retry.base_delay=1ms"].map(OsString::from));
        self
    }

    pub(crate) fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// Something else than a pipe that is read to its end.
    pub(crate) fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = stdout.into();
        self
    }

    /// Something else than a pipe that is read to its end.
    pub(crate) fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = stderr.into();
        self
    }

    /// Runs a shell script instead, in which `"$0" "$@"` is the call.
    pub(crate) fn script(mut self, script: impl Into<String>) -> Self {
        self.script = Some(script.into());
        self
    }

    /// A file in the working directory.
    pub(crate) fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.place.dir().join(name), bytes).unwrap();
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// The bare command, without its streams.
    pub(crate) fn command(&self) -> Command {
        heed_signals();
        let mut command = match &self.script {
            Some(script) => {
                let mut shell = Command::new("bash");
                shell.arg("-c").arg(script).arg(binary());
                shell
            }
            None => Command::new(binary()),
        };
        command.args(&self.args).current_dir(self.place.dir()).env_clear().envs(self.env.iter().cloned());
        command
    }

    /// Starts it.
    pub(crate) fn spawn(self) -> Running {
        let mut command = self.command();
        let (stdin, bytes) = match self.stdin {
            Stdin::Null => (Stdio::null(), None),
            Stdin::Bytes(bytes) => (Stdio::piped(), Some(bytes)),
            Stdin::Silent => (Stdio::piped(), None),
            Stdin::Custom(stdio) => (stdio, None),
        };
        command.stdin(stdin).stdout(self.stdout).stderr(self.stderr);
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let mut held = child.stdin.take();
        let feeder = bytes.map(|bytes| {
            let mut pipe = held.take().unwrap();
            std::thread::spawn(move || {
                // A program that does not read its stdin is the test's subject, not its failure.
                drop(pipe.write_all(&bytes));
            })
        });
        let stdout = Collector::start(child.stdout.take());
        let stderr = Collector::start(child.stderr.take());
        Running { child, started, stdout, stderr, feeder, _held: held, _place: self.place }
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Output {
        self.spawn().wait()
    }
}

/// The key of every call of a test server; no output may ever hold it.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef";

/// Reads a stream to its end on a thread of its own.
struct Collector {
    seen: Arc<(Mutex<Seen>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    bytes: Vec<u8>,
    ended: bool,
}

impl Collector {
    fn start(stream: Option<impl Read + Send + 'static>) -> Self {
        let seen = Arc::<(Mutex<Seen>, Condvar)>::default();
        let thread = stream.map(|mut stream| {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                let mut buffer = [0; 1 << 14];
                // A terminal whose other side is gone fails instead of ending.
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    lock(&seen.0).bytes.extend_from_slice(&buffer[..count]);
                    seen.1.notify_all();
                }
                lock(&seen.0).ended = true;
                seen.1.notify_all();
            })
        });
        Self { seen, thread }
    }

    fn so_far(&self) -> Vec<u8> {
        lock(&self.seen.0).bytes.clone()
    }

    /// Waits until a text has been read.
    fn wait(&self, text: &str) {
        let unseen = |seen: &mut Seen| !seen.ended && !contains(&seen.bytes, text.as_bytes());
        let (seen, _) = self
            .seen
            .1
            .wait_timeout_while(lock(&self.seen.0), OUTER_LIMIT, unseen)
            .unwrap_or_else(PoisonError::into_inner);
        let shown = String::from_utf8_lossy(&seen.bytes);
        assert!(contains(&seen.bytes, text.as_bytes()), "{text:?} never appeared in {shown:?}");
    }

    fn finish(&mut self) -> Vec<u8> {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        std::mem::take(&mut lock(&self.seen.0).bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(bytes, text).is_some()
}

/// A running call.
pub(crate) struct Running {
    child: Child,
    started: Instant,
    stdout: Collector,
    stderr: Collector,
    feeder: Option<JoinHandle<()>>,
    _held: Option<std::process::ChildStdin>,
    _place: Arc<Place>,
}

impl Running {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until stdout holds a text.
    pub(crate) fn wait_stdout(&self, text: &str) {
        self.stdout.wait(text);
    }

    /// Waits until stderr holds a text.
    pub(crate) fn wait_stderr(&self, text: &str) {
        self.stderr.wait(text);
    }

    /// What has come to stdout until now.
    pub(crate) fn stdout_so_far(&self) -> String {
        String::from_utf8(self.stdout.so_far()).unwrap()
    }

    /// Sends a signal again and again until the call ends: what comes together with a first signal is no second one.
    pub(crate) fn insist(mut self, signal: rustix::process::Signal) -> Output {
        signals::until(|| {
            self.signal(signal);
            !self.is_running()
        });
        self.wait()
    }

    pub(crate) fn wait(mut self) -> Output {
        let deadline = self.started + OUTER_LIMIT;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    drop(self.child.kill());
                    panic!("still running after {OUTER_LIMIT:?}");
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let elapsed = self.started.elapsed();
        let text = |collector: &mut Collector| String::from_utf8(collector.finish()).expect("output is UTF-8");
        let (stdout, stderr) = (text(&mut self.stdout), text(&mut self.stderr));
        if let Some(feeder) = self.feeder.take() {
            feeder.join().unwrap();
        }
        let output = Output { status, stdout, stderr, elapsed };
        output.check_always();
        output
    }
}

/// A finished call.
#[derive(Debug)]
pub(crate) struct Output {
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl Output {
    /// The exit status as a shell shows it: 128 + n for a death by signal n.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap())
    }

    /// The signal the process died of.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The lines of a JSON stream; checks framing and grammar.
    pub(crate) fn lines(&self) -> Vec<Value> {
        grammar::check(&self.stdout)
    }

    /// The lines of a JSON stream that a second signal cut.
    pub(crate) fn lines_cut(&self) -> Vec<Value> {
        grammar::framed(&self.stdout)
    }

    /// The `result` line; it must be the last, and agree with the exit status.
    pub(crate) fn result(&self) -> Value {
        let last = self.lines().pop().expect("a line");
        assert_eq!(last["type"], "result", "the last line is the result");
        assert_eq!(last["exitCode"], self.code(), "the verdict of the exit status");
        assert_eq!(last["ok"], self.code() == 0);
        last
    }

    /// Lines of one type.
    pub(crate) fn lines_of(&self, kind: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["type"] == kind).collect()
    }

    /// What holds for every call.
    fn check_always(&self) {
        for text in [&self.stdout, &self.stderr] {
            assert!(!text.contains(KEY), "the key leaked: {text}");
            assert!(!text.contains("panicked at"), "a panic text: {text}");
        }
    }
}
