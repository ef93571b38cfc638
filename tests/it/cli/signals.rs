//! The first signal and the timeout end a call in order wherever it waits; the second signal ends it at once.

use std::io::{PipeReader, PipeWriter, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{OUTER_LIMIT, Output, Pirn, Running, Stdin};
use crate::support::chat::{chat_text, chunk};
use crate::support::server::{Gate, Reply, Server, now};

/// What a call without tools has from the signal to its end.
const BUDGET: Duration = Duration::from_secs(1);
/// Long enough for every call to get to its place before it runs out.
const TIMEOUT: Duration = Duration::from_millis(2500);
const PARTIAL: &str = "The first half";

/// Signal, exit code as a shell shows it.
const SIGNALS: [(Signal, i32); 3] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];

/// Where a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The request is sent, nothing comes back.
    Request,
    /// Text came, then nothing more.
    Stream,
    Stdin,
    /// The server accepts the connection and does not answer the handshake.
    Handshake,
    /// The server does not even accept.
    Connect,
    /// A configuration file that is a pipe.
    Config,
}

const PLACES: [Place; 6] =
    [Place::Request, Place::Stream, Place::Stdin, Place::Handshake, Place::Connect, Place::Config];

/// The other side of a waiting call.
enum Peer {
    Server(Server),
    Socket(TcpStream),
    /// Only held open.
    Silent {
        _held: Vec<OwnedFd>,
    },
}

/// A call that waits.
struct Waiting {
    place: Place,
    running: Running,
    peer: Peer,
}

impl Waiting {
    /// Starts a call and waits until it is at its place.
    fn start(place: Place, args: &[&str]) -> Self {
        let words = |more: &[&str]| args.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>();
        let (running, peer) = match place {
            Place::Request => {
                let server = Server::start([Reply::raw("").hold()]);
                let running = Pirn::of_server(&server, words(&["x"])).spawn();
                assert!(server.wait_requests(1));
                (running, Peer::Server(server))
            }
            Place::Stream => {
                let text = chunk(&json!({"role": "assistant", "content": PARTIAL}), None);
                let server = Server::start([Reply::stream().event(&text).hold()]);
                let running = Pirn::of_server(&server, words(&["x"])).spawn();
                assert!(server.wait_requests(1));
                if args.contains(&"--json") || args.contains(&"--stream") {
                    running.wait_stdout(PARTIAL);
                }
                (running, Peer::Server(server))
            }
            Place::Stdin => {
                let running = Pirn::demo(words(&[])).stdin(Stdin::Silent).spawn();
                running.wait_stderr("waiting for stdin");
                (running, Peer::Silent { _held: Vec::new() })
            }
            Place::Handshake => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let running = at(&format!("https://{}/v1", listener.local_addr().unwrap()), &words(&["x"]));
                let (mut socket, _) = listener.accept().unwrap();
                socket.set_read_timeout(Some(OUTER_LIMIT)).unwrap();
                assert_eq!(socket.read(&mut [0; 1]).unwrap(), 1, "the hello of the client");
                (running, Peer::Socket(socket))
            }
            Place::Connect => {
                let (listener, filler) = full_listener();
                let address = listener.local_addr().unwrap();
                let running = at(&format!("http://{address}/v1"), &words(&["x"]));
                until(|| is_connecting(address.port()));
                (running, Peer::Silent { _held: vec![listener.into(), filler.into()] })
            }
            Place::Config => {
                let call = Pirn::demo(words(&["--config", "pipe.toml", "x"]));
                let path = call.dir().join("pipe.toml");
                rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
                let running = call.spawn();
                // Opening for writing ends when the reader has opened it, too.
                let writer = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                (running, Peer::Silent { _held: vec![writer.into()] })
            }
        };
        Self { place, running, peer }
    }

    /// Waits for the end and checks what every end has in common. `code` as a shell shows it.
    fn finish(self, code: i32, reason: &str, args: &[&str]) -> Output {
        let shown = format!("{:?} {args:?} {code}", self.place);
        let output = self.running.wait();
        assert_eq!(output.code(), code, "{shown}: {output:?}");
        let dies_of = if reason == "interrupted" { Some(code - 128) } else { None };
        assert_eq!(output.signal(), dies_of, "a true signal death: {shown}");
        let word = format!("pirn: {reason}: ");
        assert_eq!(output.stderr.lines().filter(|line| line.starts_with(&word)).count(), 1, "{shown}: {output:?}");
        match &self.peer {
            Peer::Server(server) => assert!(server.wait_abandoned(1), "{shown}: the connection is closed"),
            Peer::Socket(socket) => assert!(closes(socket), "{shown}: the connection is closed"),
            Peer::Silent { .. } => {}
        }
        if args.contains(&"--json") {
            check_stream(self.place, &output, reason, &shown);
        } else {
            let live = self.place == Place::Stream && args.contains(&"--stream");
            assert_eq!(output.stdout, if live { format!("{PARTIAL}\n") } else { String::new() }, "{shown}");
        }
        output
    }
}

/// A call of a provider that cannot be reached at this address.
fn at(base_url: &str, args: &[String]) -> Running {
    let call = Pirn::new(["-m", "openai/test-model"].iter().map(ToString::to_string).chain(args.iter().cloned()));
    call.env("OPENAI_BASE_URL", base_url).env("OPENAI_API_KEY", super::KEY).spawn()
}

/// The stream ends in order, with what had come kept as an aborted reply.
fn check_stream(place: Place, output: &Output, reason: &str, shown: &str) {
    let result = output.result();
    assert_eq!(result["reason"], reason, "{shown}");
    let reply = output.lines_of("message_end").pop().map(|line| line["message"].clone());
    if matches!(place, Place::Stdin | Place::Config) {
        assert_eq!(reply, None, "{shown}: nothing was sent");
        return;
    }
    let partial = if place == Place::Stream { PARTIAL } else { "" };
    let reply = reply.unwrap();
    assert_eq!((&reply["role"], &reply["stopReason"]), (&json!("assistant"), &json!("aborted")), "{shown}");
    assert_eq!(reply["errorMessage"], "Run cancelled", "{shown}");
    let kept: Vec<&str> =
        reply["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect();
    assert_eq!(kept.concat(), partial, "{shown}: the partial text is kept");
    assert_eq!(result["text"], partial, "{shown}");
    assert_eq!((&result["stopReason"], &result["error"]), (&json!("aborted"), &Value::Null), "{shown}");
}

/// Whether the other side has closed, or closes soon.
fn closes(mut socket: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A socket that listens and whose queue is full: a further connection waits for ever.
fn full_listener() -> (TcpListener, TcpStream) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&socket, 0).unwrap();
    let listener = TcpListener::from(socket);
    let filler = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener, filler)
}

/// Whether some socket is on its way to this port of this machine.
fn is_connecting(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| line.contains(&format!("0100007F:{port:04X} 02 ")))
}

/// Looks until something is so, where nothing tells that it has become so.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let deadline = now() + OUTER_LIMIT;
    while !holds() {
        assert!(now() < deadline, "it never became so");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a pipe takes no more bytes.
pub(crate) fn wait_full(writer: &PipeWriter) {
    until(|| {
        let mut fds = [PollFd::new(writer, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 0
    });
}

/// A pipe nobody reads yet, and a second hold on its writing end.
pub(crate) fn unread_pipe() -> (PipeReader, PipeWriter, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let watched = writer.try_clone().unwrap();
    (reader, writer, watched)
}

/// Starts calls side by side, since some take a second to get to their place.
fn start_all<'a, T: Send + 'a>(place: Place, cases: Vec<(T, &'a [&'a str])>) -> Vec<(T, &'a [&'a str], Waiting)> {
    std::thread::scope(|scope| {
        let starting: Vec<_> = cases
            .into_iter()
            .map(|(case, args)| (case, args, scope.spawn(move || Waiting::start(place, args))))
            .collect();
        starting.into_iter().map(|(case, args, thread)| (case, args, thread.join().unwrap())).collect()
    })
}

/// Every signal at one place, in text and in JSON.
fn every_signal_ends(place: Place) {
    let modes: &[&[&str]] =
        if place == Place::Stream { &[&["--json"], &["--stream"], &[]] } else { &[&["--json"], &[]] };
    let cases = SIGNALS.into_iter().flat_map(|signal| modes.iter().map(move |args| (signal, *args))).collect();
    for ((signal, code), args, waiting) in start_all(place, cases) {
        let sent = now();
        waiting.running.signal(signal);
        waiting.finish(code, "interrupted", args);
        assert!(sent.elapsed() < BUDGET, "{place:?} {args:?} {signal:?} took {:?}", sent.elapsed());
    }
}

#[test]
fn signals_end_a_request_without_an_answer() {
    every_signal_ends(Place::Request);
}

#[test]
fn signals_end_a_stream_that_stalls() {
    every_signal_ends(Place::Stream);
}

#[test]
fn signals_end_the_wait_for_stdin() {
    every_signal_ends(Place::Stdin);
}

#[test]
fn signals_end_a_handshake_without_an_answer() {
    every_signal_ends(Place::Handshake);
}

#[test]
fn signals_end_a_connection_that_hangs() {
    every_signal_ends(Place::Connect);
}

#[test]
fn signals_end_the_wait_for_a_configuration() {
    every_signal_ends(Place::Config);
}

#[test]
fn the_timeout_ends_every_wait_in_order() {
    let timeout = format!("{}ms", TIMEOUT.as_millis());
    let args = [&["--timeout", &timeout, "--json"][..], &["--timeout", &timeout]];
    let places = PLACES.into_iter();
    std::thread::scope(|scope| {
        for (place, args) in places.flat_map(|place| args.map(|args| (place, args))) {
            scope.spawn(move || {
                let output = Waiting::start(place, args).finish(124, "timeout", args);
                assert!(output.elapsed >= TIMEOUT, "{place:?} took {:?}", output.elapsed);
                assert!(output.elapsed < TIMEOUT + BUDGET, "{place:?} took {:?}", output.elapsed);
            });
        }
    });
}

/// Lets a call see a signal and something else at the same moment: it sleeps while both come about.
fn at_once(running: &Running, signal: Signal, consequence: impl FnOnce()) {
    running.signal(Signal::STOP);
    consequence();
    running.signal(signal);
    running.signal(Signal::CONT);
}

/// A signal to a process group also ends servers, producers and readers of the group.
#[test]
fn a_signal_wins_over_what_it_caused_elsewhere_at_the_same_moment() {
    for (signal, code) in SIGNALS {
        for (place, text) in [(Place::Request, ""), (Place::Stream, PARTIAL)] {
            let reply = Reply::stream();
            let reply = if text.is_empty() {
                reply
            } else {
                reply.event(&chunk(&json!({"role": "assistant", "content": text}), None))
            };
            let server = Server::start([reply.hold()]);
            let running = Pirn::of_server(&server, ["--json", "x"]).spawn();
            assert!(server.wait_requests(1));
            running.wait_stdout(text);
            at_once(&running, signal, || drop(server));
            let output = running.wait();
            assert_eq!((output.code(), output.signal()), (code, Some(code - 128)), "{place:?}: {output:?}");
            let result = output.result();
            assert_eq!((&result["reason"], &result["stopReason"]), (&json!("interrupted"), &json!("aborted")));
            assert_eq!((&result["error"], &result["text"]), (&Value::Null, &json!(text)));
        }
        for args in [&["--json"][..], &["--json", "summarise this"]] {
            let (reader, writer) = std::io::pipe().unwrap();
            let running = Pirn::demo(args.iter().copied()).stdin(Stdin::Custom(reader.into())).spawn();
            running.wait_stderr("waiting for stdin");
            at_once(&running, signal, || drop(writer));
            let output = running.wait();
            assert_eq!((output.code(), output.signal()), (code, Some(code - 128)), "{args:?}: {output:?}");
            assert_eq!(output.result()["reason"], "interrupted");
        }
    }
}

/// More text than a pipe holds.
fn long_text() -> String {
    "0123456789".repeat(100_000)
}

#[test]
fn a_second_signal_leaves_at_once_with_the_first_code_case_42() {
    for mode in ["--json", "--stream"] {
        let text = chunk(&json!({"content": "0123456789".repeat(1000)}), None);
        let reply = (0..100).fold(Reply::stream(), |reply, _| reply.event(&text));
        let server = Server::start([reply.hold()]);
        let (_reader, writer, watched) = unread_pipe();
        let mut running = Pirn::of_server(&server, [mode, "x"]).stdout(writer).spawn();
        wait_full(&watched);
        running.signal(Signal::TERM);
        assert!(server.wait_abandoned(1), "the first signal has been heard");
        assert!(running.is_running(), "its reader may still come back");
        let sent = now();
        let output = running.insist(Signal::INT);
        assert!(sent.elapsed() < BUDGET, "{:?}", sent.elapsed());
        assert_eq!((output.code(), output.signal()), (143, Some(15)), "{mode}");
    }
}

#[test]
fn two_signals_end_a_finished_run_that_nobody_reads() {
    for mode in [&["--json"][..], &[]] {
        let (_reader, writer, watched) = unread_pipe();
        let text = Stdin::Bytes(format!("say {}", long_text()).into_bytes());
        let running = Pirn::demo(mode.iter().copied()).stdin(text).stdout(writer).spawn();
        wait_full(&watched);
        let sent = now();
        running.signal(Signal::INT);
        let output = running.insist(Signal::TERM);
        assert!(sent.elapsed() < BUDGET, "{:?}", sent.elapsed());
        // Two signals that wait at the same time have no order.
        assert!(matches!(output.signal(), Some(2 | 15)), "{output:?}");
    }
}

#[test]
fn signals_that_come_together_are_one_request() {
    for pair in [[Signal::TERM, Signal::TERM], [Signal::HUP, Signal::HUP], [Signal::TERM, Signal::HUP]] {
        let waiting = Waiting::start(Place::Stream, &["--json"]);
        for signal in pair {
            waiting.running.signal(signal);
        }
        let output = waiting.running.wait();
        let result = output.result();
        assert_eq!((&result["reason"], &result["text"]), (&json!("interrupted"), &json!(PARTIAL)), "{output:?}");
    }
}

#[test]
fn a_signal_during_the_last_lines_does_not_cut_them_off() {
    for mode in [&["--json"][..], &[]] {
        let (mut reader, writer, watched) = unread_pipe();
        let text = long_text();
        let prompt = Stdin::Bytes(format!("say {text}").into_bytes());
        // Nothing is synced, so that the run is over when the pipe is full.
        let args = mode.iter().copied().chain(["--no-session"]);
        let running = Pirn::demo(args).stdin(prompt).stdout(writer).spawn();
        wait_full(&watched);
        drop(watched);
        running.signal(Signal::TERM);
        let mut stdout = String::new();
        reader.read_to_string(&mut stdout).unwrap();
        let mut output = running.wait();
        output.stdout = stdout;
        assert_eq!(output.code(), 0, "the verdict was decided before the signal");
        if mode.is_empty() {
            assert!(output.stdout.len() == text.len() + 1 && output.stdout.starts_with(&text));
        } else {
            assert_eq!(output.result()["text"], text);
        }
    }
}

#[test]
fn a_command_that_prints_a_listing_can_be_interrupted() {
    for (signal, code) in SIGNALS {
        let (_reader, writer, watched) = unread_pipe();
        let running = Pirn::new(["models"]).stdout(writer).spawn();
        wait_full(&watched);
        let sent = now();
        running.signal(signal);
        let output = running.wait();
        assert!(sent.elapsed() < BUDGET, "{:?}", sent.elapsed());
        assert_eq!((output.code(), output.signal(), output.stderr.as_str()), (code, Some(code - 128), ""));
    }
}

#[test]
fn signals_ignored_at_the_start_stay_ignored_case_42() {
    let gate = Gate::new();
    let server = Server::start([Reply::with({
        let gate = gate.clone();
        move |_| {
            gate.wait();
            chat_text("still here")
        }
    })]);
    let running = Pirn::of_server(&server, ["x"]).script(r#"trap "" HUP INT; exec "$0" "$@""#).spawn();
    assert!(server.wait_requests(1));
    running.signal(Signal::HUP);
    running.signal(Signal::INT);
    gate.open();
    let output = running.wait();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "still here\n"));
}

#[test]
fn a_signal_beside_an_ignored_one_still_ends_the_run() {
    let server = Server::start([Reply::raw("").hold()]);
    let running = Pirn::of_server(&server, ["--json", "x"]).script(r#"trap "" HUP INT; exec "$0" "$@""#).spawn();
    assert!(server.wait_requests(1));
    running.signal(Signal::HUP);
    running.signal(Signal::TERM);
    let output = running.wait();
    assert_eq!((output.code(), output.signal()), (143, Some(15)));
    assert_eq!(output.result()["reason"], "interrupted");
}
