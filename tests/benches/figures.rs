//! The figures this project promises, measured of a release build against a local mock server, in one run with curl.
//!
//! `.ci/bench` builds and runs this. Each pair of commands runs in turn, A B A B …, so that drift of the machine hits
//! both; medians are printed. Nothing here judges: the promised bounds are printed beside the figures.
#![expect(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::zombie_processes,
    clippy::cast_precision_loss,
    reason = "a measuring program: it may stop at any surprise, and asks the kernel for the rusage of each child"
)]

mod session;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Counted runs of each command of a pair.
const RUNS: usize = 15;
/// Runs of the commands that take long.
const RUNS_LONG: usize = 5;
/// Turns of a run with a command in each.
const TURNS: u32 = 50;
/// The argument that makes this program the server.
const SERVE: &str = "--serve-figures";
/// The exit code of a run that ended at its limit of turns.
const TURN_LIMIT: i32 = 5;

fn main() {
    // The server is a process of its own: a child's peak memory counts what its parent held when it started.
    if std::env::args().any(|arg| arg == SERVE) {
        return Server::serve();
    }
    let bin =
        std::env::var_os("PIRN_TEST_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_pirn")), PathBuf::from);
    let server = Server::start();
    println!("binary: {} ({} bytes)", bin.display(), std::fs::metadata(&bin).unwrap().len());
    println!("medians; CPU = user + system; memory = peak resident size\n");

    let version = measure_one(RUNS, || pirn_plain(&bin, &["--version"]));
    println!("start of --version       {}   (promised: wall <= 5 ms)", version.show());

    pair("one-turn hello", RUNS, &server, &bin, "hello", &[], "wall <= 1.0 x curl, memory <= 16 MB");
    pair("100,000 deltas, --json", RUNS_LONG, &server, &bin, "deltas-100000", &["--json"], "CPU <= 4 x curl");
    let small = pair("100 KB of arguments", RUNS_LONG, &server, &bin, "args-100000", &[], "");
    let large = pair("1 MB of arguments", RUNS_LONG, &server, &bin, "args-1000000", &[], "CPU <= 4 x curl");
    println!(
        "1 MB / 100 KB of arguments in 16-byte deltas: CPU x {:.1}   (promised: <= 11)",
        large.cpu_ms / small.cpu_ms.max(0.001)
    );
    without_a_session(&server, &bin);
    turns(&server, &bin);
    go_on(&server, &bin);
}

/// What keeping a stream costs: the same one with a session and without.
fn without_a_session(server: &Server, bin: &PathBuf) {
    let (mut kept, mut not) = (Vec::new(), Vec::new());
    for _ in 0..=RUNS_LONG {
        kept.push(measure(&mut pirn(bin, server, "deltas-100000", &["--json"])));
        not.push(measure(&mut pirn(bin, server, "deltas-100000", &["--json", "--no-session"])));
    }
    println!("\n100,000 deltas, with a session and without");
    println!("  with    {}", Figure::median(&kept[1..]).show());
    println!("  without {}", Figure::median(&not[1..]).show());
}

/// What a turn with a command costs at each durability, beside what one sync of this disk costs.
fn turns(server: &Server, bin: &PathBuf) {
    let sync_ms = sync_of_this_disk();
    println!("\n{TURNS} turns of `true` in bash; one fdatasync of this disk takes {sync_ms:.2} ms");
    for durability in ["none", "normal", "full"] {
        let whole = measure_one(RUNS_LONG, || {
            let mut command = pirn(bin, server, &format!("turns-{TURNS}"), &["-t", "bash", "--max-turns", "0"]);
            command.args(["--set", "limits.max_repeats=0", "--set"]).arg(format!("session.durability={durability:?}"));
            command
        });
        let turns = f64::from(TURNS);
        let bound = if durability == "normal" {
            format!("   (promised: <= {:.2} ms = 3 ms + 4 x fdatasync)", 4.0f64.mul_add(sync_ms, 3.0))
        } else {
            String::new()
        };
        println!("  {durability:6} {}   a turn {:5.2} ms{bound}", whole.show(), whole.wall_ms / turns);
    }
}

/// The median of appending 4 KiB and syncing it, in the place of the sessions.
fn sync_of_this_disk() -> f64 {
    let mut file = std::fs::File::create(home().join("sync")).unwrap();
    let mut times: Vec<f64> = (0..200)
        .map(|_| {
            let started = Instant::now();
            file.write_all(&[b'x'; 4096]).unwrap();
            file.sync_data().unwrap();
            started.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What going on with a long session costs: opened, read, sent, answered and stored.
fn go_on(server: &Server, bin: &PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    session::make(&path);
    let bytes = std::fs::metadata(&path).unwrap().len();
    let whole = measure_one(RUNS, || {
        let mut command = pirn(bin, server, "hello", &["-c", "-s"]);
        command.arg(&path);
        command
    });
    println!("\n-c on {} messages, session of {bytes} bytes", session::MESSAGES);
    println!("  {}   (promised: wall <= 150 ms to the request, memory <= 4 x the live context)", whole.show());
}

fn pair(name: &str, runs: usize, server: &Server, bin: &PathBuf, model: &str, args: &[&str], promise: &str) -> Figure {
    let body = format!(
        r#"{{"model":"{model}","messages":[{{"role":"user","content":"hello"}}],"stream":true,"stream_options":{{"include_usage":true}}}}"#
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..=runs {
        let a = measure(&mut pirn(bin, server, model, args));
        let b = measure(&mut curl(server, &body));
        // The first pair warms caches.
        if run > 0 {
            ours.push(a);
            theirs.push(b);
        }
    }
    let (ours, theirs) = (Figure::median(&ours), Figure::median(&theirs));
    println!("\n{name}");
    println!("  pirn {}", ours.show());
    println!("  curl {}", theirs.show());
    println!(
        "  ratio: wall {:.2}, CPU {:.2}   {}",
        ours.wall_ms / theirs.wall_ms,
        ours.cpu_ms / theirs.cpu_ms.max(0.001),
        if promise.is_empty() { String::new() } else { format!("(promised: {promise})") }
    );
    ours
}

fn pirn_plain(bin: &PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(bin);
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

fn pirn(bin: &PathBuf, server: &Server, model: &str, args: &[&str]) -> Command {
    let mut command = pirn_plain(bin, &[]);
    if !args.contains(&"-t") {
        command.args(["-t", "none", "--max-turns", "1"]);
    }
    command
        .arg("-m")
        .arg(format!("openai/{model}"))
        .arg("hello")
        .args(args)
        .env("PIRN_HOME", home())
        .env("OPENAI_BASE_URL", format!("http://127.0.0.1:{}/v1", server.port))
        .env("OPENAI_API_KEY", "x");
    command
}

/// Where the sessions of all runs go: durability is on, as it is for users.
fn home() -> &'static std::path::Path {
    static HOME: std::sync::LazyLock<tempfile::TempDir> = std::sync::LazyLock::new(|| tempfile::tempdir().unwrap());
    HOME.path()
}

fn curl(server: &Server, body: &str) -> Command {
    let mut command = Command::new("curl");
    command
        .args(["-sN", "-H", "content-type: application/json", "-H", "authorization: Bearer x", "-d", body])
        .arg(format!("http://127.0.0.1:{}/v1/chat/completions", server.port))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    command
}

#[derive(Clone, Copy)]
struct Figure {
    wall_ms: f64,
    cpu_ms: f64,
    memory_mb: f64,
}

impl Figure {
    fn median(all: &[Self]) -> Self {
        let middle = |pick: fn(&Self) -> f64| {
            let mut values: Vec<f64> = all.iter().map(pick).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self { wall_ms: middle(|f| f.wall_ms), cpu_ms: middle(|f| f.cpu_ms), memory_mb: middle(|f| f.memory_mb) }
    }

    fn show(&self) -> String {
        format!("wall {:8.2} ms   CPU {:8.2} ms   memory {:6.1} MB", self.wall_ms, self.cpu_ms, self.memory_mb)
    }
}

fn measure_one(runs: usize, make: impl Fn() -> Command) -> Figure {
    let all: Vec<Figure> = (0..=runs).map(|_| measure(&mut make())).skip(1).collect();
    Figure::median(&all)
}

/// Runs a command to its end, reads and drops what it prints.
fn measure(command: &mut Command) -> Figure {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts");
    let mut sink = vec![0; 1 << 16];
    let mut out = child.stdout.take().unwrap();
    while out.read(&mut sink).unwrap() > 0 {}
    let pid = i32::try_from(child.id()).unwrap();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    // SAFETY: both pointers are valid for writes; an all-zero rusage is valid.
    let (waited, usage) = unsafe {
        let waited = libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr());
        (waited, usage.assume_init())
    };
    assert_eq!(waited, pid);
    // A run of one turn that asked for a tool ends at the limit.
    let code = libc::WEXITSTATUS(status);
    assert!(libc::WIFEXITED(status) && (code == 0 || code == TURN_LIMIT), "it failed with {code}: {command:?}");
    let wall_ms = started.elapsed().as_secs_f64() * 1000.0;
    let time = |t: libc::timeval| t.tv_sec as f64 * 1000.0 + t.tv_usec as f64 / 1000.0;
    Figure { wall_ms, cpu_ms: time(usage.ru_utime) + time(usage.ru_stime), memory_mb: usage.ru_maxrss as f64 / 1024.0 }
}

/// A Chat Completions server that answers by the name of the model: `hello`, `deltas-N`, `args-N`, `turns-N`.
struct Server {
    port: u16,
    process: std::process::Child,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { port: line.trim().parse().unwrap(), process }
    }

    /// Serves until its stdin is closed.
    fn serve() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || serve(&stream.unwrap()));
            }
        });
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

fn serve(stream: &TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let model = body.split("\"model\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec();
    let answered = body.matches("\"role\":\"tool\"").count();
    answer.extend_from_slice(stream_of(&model, answered).as_bytes());
    // A client that left early is its own business.
    let mut out = stream;
    drop(out.write_all(&answer));
}

fn stream_of(model: &str, answered: usize) -> String {
    let count = |prefix: &str| model.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
    let mut out = String::new();
    let mut chunk = |delta: &str, finish: &str| {
        write!(
            out,
            "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"{model}\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
        .unwrap();
    };
    if let Some(deltas) = count("deltas-") {
        for n in 0..deltas {
            chunk(&format!("{{\"content\":\"{n:05} \"}}"), "null");
        }
        chunk("{}", "\"stop\"");
    } else if let Some(bytes) = count("args-") {
        chunk(
            r#"{"tool_calls":[{"index":0,"id":"k1","type":"function","function":{"name":"none","arguments":"{\"v\":\""}}]}"#,
            "null",
        );
        for _ in 0..bytes / 16 {
            chunk(r#"{"tool_calls":[{"index":0,"function":{"arguments":"0123456789abcdef"}}]}"#, "null");
        }
        chunk(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}"#, "null");
        chunk("{}", "\"tool_calls\"");
    } else if count("turns-").is_some_and(|turns| answered < turns) {
        chunk(
            &format!(
                r#"{{"tool_calls":[{{"index":0,"id":"k{answered}","type":"function","function":{{"name":"bash","arguments":"{{\"command\":\"true\"}}"}}}}]}}"#
            ),
            "null",
        );
        chunk("{}", "\"tool_calls\"");
    } else {
        chunk(r#"{"content":"Hello there."}"#, "null");
        chunk("{}", "\"stop\"");
    }
    out.push_str("data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"total_tokens\":13}}\n\ndata: [DONE]\n\n");
    out
}
