//! Children: how they start, what they see, how they end, and what is left of them. With real ones.

mod alone;
mod children;
mod orphans;
mod stopping;
mod sweeping;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pirn::port::SystemClock;
use pirn::process::{Child, ChildEnv, EnvPolicy, Output, OutputReader, Spec, Stdin, Supervisor, SupervisorSettings};
use tokio::io::AsyncReadExt as _;

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);
/// A grace that no test waits for.
const LONG: Duration = Duration::from_secs(600);
/// A grace that tests do wait for.
const SHORT: Duration = Duration::from_millis(150);

pub(crate) fn supervisor(grace: Duration, sweep: bool) -> Supervisor {
    let path = std::env::var_os("PATH").unwrap();
    let env = ChildEnv::new(EnvPolicy::default(), vec![("PATH".into(), path)]);
    Supervisor::new(SupervisorSettings { env, grace, sweep }, Arc::new(SystemClock::new())).unwrap()
}

pub(crate) fn shell(command: &str) -> Spec {
    Spec {
        program: PathBuf::from("sh"),
        args: vec![OsString::from("-c"), OsString::from(command)],
        cwd: PathBuf::from("/"),
        stdin: Stdin::Null,
        output: Output::Merged,
        env: Vec::new(),
        pass_env: Vec::new(),
        call_id: None,
        session_id: None,
        label: "shell".to_owned(),
    }
}

fn call(id: &str, command: &str) -> Spec {
    Spec { call_id: Some(id.to_owned()), ..shell(command) }
}

/// Waits for a future, but not for ever.
async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it lasts too long")
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn all(mut reader: OutputReader) -> String {
    let mut text = String::new();
    bounded(reader.read_to_string(&mut text)).await.unwrap();
    text
}

/// The next line of the output.
async fn line(reader: &mut OutputReader) -> String {
    let mut line = Vec::new();
    loop {
        match bounded(reader.read_u8()).await.expect("a line") {
            b'\n' => return String::from_utf8(line).unwrap(),
            byte => line.push(byte),
        }
    }
}

/// Numbers that the child prints, one a line.
async fn numbers(reader: &mut OutputReader, count: usize) -> Vec<u32> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(line(reader).await.trim().parse().unwrap());
    }
    numbers
}

/// Starts a child that prints `count` numbers of processes.
pub(crate) async fn start(supervisor: &Supervisor, spec: Spec, count: usize) -> (Child, OutputReader, Vec<u32>) {
    let mut child = supervisor.spawn(spec).unwrap();
    let mut output = child.output().unwrap();
    let pids = numbers(&mut output, count).await;
    (child, output, pids)
}

/// Fields of a process's status behind its name: state, parent, group, session, terminal, …
fn status(pid: u32) -> Option<Vec<String>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = status.rsplit_once(')')?.1.split_ascii_whitespace();
    Some(fields.map(str::to_owned).collect())
}

/// Whether a process runs; one that has ended and waits for its parent does not.
pub(crate) fn runs(pid: u32) -> bool {
    status(pid).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// Kills what a test left on purpose.
fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
