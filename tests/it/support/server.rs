//! A scripted HTTP/1.1 server on 127.0.0.1, made of plain threads: it serves a list of replies in the order requests
//! arrive, records every request, and notes what a real server would have refused.
//!
//! ```ignore
//! let server = Server::start([chat_tool("read", json!({"path": "a"})), chat_text("done")]);
//! run(&server.base_url());
//! assert_eq!(server.requests().len(), 2);
//! server.assert_clean();
//! ```
//!
//! The same server is an HTTP proxy when started with [`Server::proxy`], and speaks TLS when started with
//! [`Server::tls`]. Waits are bounded by [`PATIENCE`], so a broken test fails instead of hanging.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::Value;

use super::chat::history_violations;
use super::request::{Recorded, Wire, read_request};
use super::tls::Identity;

/// The longest any wait in here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Holds a reply back until a test opens it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    /// Waits until the gate opens or patience ends; tells which.
    pub(crate) fn wait(&self) -> bool {
        let guard = lock(&self.0.0);
        let (open, _) =
            self.0.1.wait_timeout_while(guard, PATIENCE, |open| !*open).unwrap_or_else(PoisonError::into_inner);
        *open
    }
}

/// One thing the server does while it answers.
#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    Wait(Gate),
    /// Keeps quiet until the client goes away.
    Hold,
    /// Closes without the end of the body.
    Close,
    /// Closes with a reset.
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Chunked,
    Length,
    /// The body ends where the connection does.
    UntilClose,
    /// Steps are the whole answer, status line included.
    Raw,
}

type Answer = dyn Fn(&Recorded) -> Reply + Send + Sync;

/// One answer. Built by chaining; without any step the body is empty.
#[derive(Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    steps: Vec<Step>,
    framing: Framing,
    gzip: bool,
    bytewise: bool,
    close_after: bool,
    answer: Option<Arc<Answer>>,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            steps: Vec::new(),
            framing: Framing::Length,
            gzip: false,
            bytewise: false,
            close_after: false,
            answer: None,
        }
    }

    /// 200, an event stream, chunked.
    pub(crate) fn stream() -> Self {
        Self { framing: Framing::Chunked, ..Self::status(200) }.header("content-type", "text/event-stream")
    }

    /// A JSON body with its length.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::status(status).header("content-type", "application/json").send(body.to_string())
    }

    /// Exactly these bytes, then the connection closes. Nothing at all is a connection closed before any byte.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { framing: Framing::Raw, close_after: true, ..Self::status(0) }.send(bytes)
    }

    /// The answer depends on the request.
    pub(crate) fn with(answer: impl Fn(&Recorded) -> Self + Send + Sync + 'static) -> Self {
        Self { answer: Some(Arc::new(answer)), ..Self::status(500) }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends bytes in one write.
    pub(crate) fn send(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Send(bytes.into()))
    }

    /// Sends one event of JSON.
    pub(crate) fn event(self, data: &Value) -> Self {
        self.send(format!("data: {data}\n\n"))
    }

    pub(crate) fn pause(self, duration: Duration) -> Self {
        self.step(Step::Pause(duration))
    }

    pub(crate) fn wait(self, gate: &Gate) -> Self {
        self.step(Step::Wait(gate.clone()))
    }

    /// Sends nothing of the body before the gate is open. A client that has read the end of a reply does not wait for that
    /// of the body, so a gate behind it holds nobody up.
    pub(crate) fn behind(mut self, gate: &Gate) -> Self {
        self.steps.insert(0, Step::Wait(gate.clone()));
        self
    }

    /// Sends nothing more until the client goes away.
    pub(crate) fn hold(self) -> Self {
        self.step(Step::Hold)
    }

    /// Closes the connection in the middle of the body.
    pub(crate) fn close(self) -> Self {
        self.step(Step::Close)
    }

    /// Resets the connection in the middle of the body.
    pub(crate) fn reset(self) -> Self {
        self.step(Step::Reset)
    }

    /// The body has a `content-length`.
    pub(crate) fn with_length(mut self) -> Self {
        self.framing = Framing::Length;
        self
    }

    /// The body ends where the connection does.
    pub(crate) fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self
    }

    /// Compresses the body, flushing after each send. Chunked only.
    pub(crate) fn gzip(mut self) -> Self {
        self.gzip = true;
        self.framing = Framing::Chunked;
        self.header("content-encoding", "gzip")
    }

    /// One write, and with chunked framing one chunk, per byte.
    pub(crate) fn bytewise(mut self) -> Self {
        self.bytewise = true;
        self
    }

    /// Closes the connection after this answer without saying so first, like a server whose keep-alive ran out.
    pub(crate) fn then_close(mut self) -> Self {
        self.close_after = true;
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// What happens to `CONNECT`.
#[derive(Clone, Debug)]
struct Proxying {
    upstream: SocketAddr,
    /// `user:password`.
    credentials: Option<String>,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    /// Serves every request after the list is used up.
    rest: Option<Reply>,
    requests: Vec<Recorded>,
    violations: Vec<String>,
    /// Ordinals of requests whose client went away before the answer was complete.
    abandoned: Vec<usize>,
    connections: usize,
    /// One end of every open connection, so that stopping the server can close it.
    sockets: HashMap<usize, TcpStream>,
    workers: Vec<JoinHandle<()>>,
    stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    proxying: Option<Proxying>,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// The running server. Dropping it closes every connection and joins every thread.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves these replies, one per request.
    pub(crate) fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::launch(replies, None, None)
    }

    /// Serves these replies over TLS.
    pub(crate) fn tls(identity: &Identity, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::launch(replies, Some(identity.server_config()), None)
    }

    /// Tunnels every `CONNECT` to one address, whatever host it names, and answers other requests from the list.
    /// `credentials` is `user:password`.
    pub(crate) fn proxy(
        upstream: SocketAddr,
        credentials: Option<&str>,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let proxying = Proxying { upstream, credentials: credentials.map(str::to_owned) };
        Self::launch(replies, None, Some(proxying))
    }

    /// Serves every request after the list is used up with this reply.
    pub(crate) fn then_always(self, reply: Reply) -> Self {
        self.state().rest = Some(reply);
        self
    }

    fn launch(
        replies: impl IntoIterator<Item = Reply>,
        tls: Option<Arc<rustls::ServerConfig>>,
        proxying: Option<Proxying>,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { replies: replies.into_iter().collect(), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), proxying, tls });
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || accept(&listener, &shared)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`, or `https://localhost:PORT` with TLS.
    pub(crate) fn origin(&self) -> String {
        match self.shared.tls {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The origin with `/v1`.
    pub(crate) fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.state().requests.clone()
    }

    /// The bodies of all requests as JSON.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.state().requests.iter().map(Recorded::json).collect()
    }

    /// What a strict server would have refused, and requests beyond the list.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// How many connections were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.state().connections
    }

    /// Asserts that no rule was broken and that no reply is left.
    pub(crate) fn assert_clean(&self) {
        let state = self.state();
        assert!(state.violations.is_empty(), "the server saw: {:#?}", state.violations);
        assert!(state.replies.is_empty(), "{} replies were never asked for", state.replies.len());
    }

    /// Waits until this many requests have arrived; tells whether they did.
    pub(crate) fn wait_requests(&self, count: usize) -> bool {
        self.wait_until(|state| state.requests.len() >= count)
    }

    /// Waits until the client of request `ordinal` has gone away before its answer was complete.
    pub(crate) fn wait_abandoned(&self, ordinal: usize) -> bool {
        self.wait_until(|state| state.abandoned.contains(&ordinal))
    }

    fn wait_until(&self, ready: impl Fn(&State) -> bool) -> bool {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.state(), PATIENCE, |state| !ready(state))
            .unwrap_or_else(PoisonError::into_inner);
        ready(&state)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let sockets = {
            let mut state = self.state();
            state.stopping = true;
            std::mem::take(&mut state.sockets)
        };
        for socket in sockets.into_values() {
            // A socket the client closed first is closed enough.
            drop(socket.shutdown(Shutdown::Both));
        }
        // Wakes the acceptor, which then sees the flag.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
        let workers = std::mem::take(&mut self.state().workers);
        for worker in workers {
            drop(worker.join());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        let mut state = lock(&shared.state);
        if state.stopping {
            return;
        }
        let Ok(socket) = socket else { continue };
        state.connections += 1;
        let connection = state.connections;
        if let Ok(copy) = socket.try_clone() {
            state.sockets.insert(connection, copy);
        }
        let worker = std::thread::spawn({
            let shared = shared.clone();
            move || {
                // The client may leave at any point; what that means is the test's business.
                drop(serve_connection(socket, connection, &shared));
                lock(&shared.state).sockets.remove(&connection);
            }
        });
        state.workers.push(worker);
    }
}

fn serve_connection(socket: TcpStream, connection: usize, shared: &Arc<Shared>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let raw = socket.try_clone()?;
    let mut wire: Box<dyn Wire> = match &shared.tls {
        None => Box::new(socket),
        Some(config) => {
            let session = rustls::ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            Box::new(rustls::StreamOwned::new(session, socket))
        }
    };
    let mut pending = Vec::new();
    while let Some(mut request) = read_request(&mut *wire, &mut pending)? {
        request.connection = connection;
        if request.method == "CONNECT" {
            return tunnel(raw, request, shared);
        }
        let (ordinal, reply) = admit(request, shared);
        let done = answer(&mut *wire, &raw, reply);
        match done {
            Ok(Finished::Complete) => continue,
            Ok(Finished::Closed) => {}
            Ok(Finished::Reset) => {
                lock(&shared.state).sockets.remove(&connection);
                return Ok(());
            }
            Ok(Finished::Abandoned) | Err(_) => {
                lock(&shared.state).abandoned.push(ordinal);
                shared.changed.notify_all();
            }
        }
        return raw.shutdown(Shutdown::Both);
    }
    Ok(())
}

/// Records a request and picks its reply.
fn admit(mut request: Recorded, shared: &Shared) -> (usize, Reply) {
    let mut state = lock(&shared.state);
    request.ordinal = state.requests.len() + 1;
    let ordinal = request.ordinal;
    if request.path.ends_with("/chat/completions") {
        let found = history_violations(&request.json());
        state.violations.extend(found.into_iter().map(|text| format!("request {ordinal}: {text}")));
    }
    let reply = state.replies.pop_front().or_else(|| state.rest.clone());
    let reply = reply.unwrap_or_else(|| {
        state.violations.push(format!("request {ordinal}: the script has no reply left"));
        Reply::json(500, &serde_json::json!({"error": {"message": "the script has no reply left"}}))
    });
    state.requests.push(request.clone());
    drop(state);
    shared.changed.notify_all();
    // What depends on the request may be answered by what does, too.
    let mut reply = reply;
    while let Some(answer) = reply.answer.take() {
        reply = answer(&request);
    }
    (ordinal, reply)
}

/// How an answer ended.
enum Finished {
    /// Whole; the connection stays open.
    Complete,
    /// As the script wanted, with the connection closed.
    Closed,
    /// As the script wanted; the connection is reset when its last handle is dropped.
    Reset,
    /// The client left first.
    Abandoned,
}

fn answer(wire: &mut dyn Wire, raw: &TcpStream, reply: Reply) -> io::Result<Finished> {
    if reply.framing != Framing::Raw {
        wire.write_all(&head(&reply))?;
        wire.flush()?;
    }
    let mut body = Body { framing: reply.framing, bytewise: reply.bytewise, gzip: reply.gzip.then(Gzip::new) };
    for step in reply.steps {
        match step {
            Step::Send(bytes) => body.send(wire, &bytes)?,
            Step::Pause(duration) => pause(duration),
            Step::Wait(gate) => drop(gate.wait()),
            Step::Hold => {
                drain(wire);
                return Ok(Finished::Abandoned);
            }
            Step::Close => return Ok(Finished::Closed),
            Step::Reset => {
                reset_on_close(raw);
                return Ok(Finished::Reset);
            }
        }
    }
    body.end(wire)?;
    let open = matches!(reply.framing, Framing::Chunked | Framing::Length) && !reply.close_after;
    Ok(if open { Finished::Complete } else { Finished::Closed })
}

#[expect(clippy::disallowed_methods, reason = "the server plays a slow peer in real time")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Reads until the client closes or patience ends.
fn drain(wire: &mut dyn Wire) {
    let mut buffer = [0_u8; 1024];
    while matches!(wire.read(&mut buffer), Ok(count) if count > 0) {}
}

fn reset_on_close(socket: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).expect("an open socket takes the option");
}

fn head(reply: &Reply) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
    }
    match reply.framing {
        Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
        Framing::Length if reply.headers.iter().any(|(name, _)| name == "content-length") => {}
        Framing::Length => {
            let length: usize = reply
                .steps
                .iter()
                .map(|step| match step {
                    Step::Send(bytes) => bytes.len(),
                    _ => 0,
                })
                .sum();
            head.extend(["content-length: ", &length.to_string(), "\r\n"]);
        }
        Framing::UntilClose => head.push_str("connection: close\r\n"),
        Framing::Raw => {}
    }
    head.push_str("\r\n");
    head.into_bytes()
}

struct Body {
    framing: Framing,
    bytewise: bool,
    gzip: Option<Gzip>,
}

impl Body {
    fn send(&mut self, wire: &mut dyn Wire, bytes: &[u8]) -> io::Result<()> {
        let bytes = match &mut self.gzip {
            Some(gzip) => gzip.push(bytes)?,
            None => bytes.to_vec(),
        };
        let size = if self.bytewise { 1 } else { bytes.len().max(1) };
        for piece in bytes.chunks(size) {
            self.write(wire, piece)?;
        }
        Ok(())
    }

    fn write(&self, wire: &mut dyn Wire, piece: &[u8]) -> io::Result<()> {
        if self.framing == Framing::Chunked {
            let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
            framed.extend_from_slice(piece);
            framed.extend_from_slice(b"\r\n");
            wire.write_all(&framed)?;
        } else {
            wire.write_all(piece)?;
        }
        wire.flush()
    }

    fn end(&mut self, wire: &mut dyn Wire) -> io::Result<()> {
        if let Some(gzip) = self.gzip.take() {
            let rest = gzip.finish()?;
            self.write(wire, &rest)?;
        }
        if self.framing == Framing::Chunked {
            wire.write_all(b"0\r\n\r\n")?;
        }
        wire.flush()
    }
}

struct Gzip(flate2::write::GzEncoder<Vec<u8>>);

impl Gzip {
    fn new() -> Self {
        Self(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default()))
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(bytes)?;
        self.0.flush()?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

/// Answers `CONNECT` and copies bytes both ways.
fn tunnel(mut client: TcpStream, mut request: Recorded, shared: &Arc<Shared>) -> io::Result<()> {
    let Some(proxying) = &shared.proxying else {
        return client.write_all(b"HTTP/1.1 405 No Proxy\r\ncontent-length: 0\r\n\r\n");
    };
    let given = request.header("proxy-authorization").map(str::to_owned);
    let wanted = proxying
        .credentials
        .as_ref()
        .map(|pair| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)));
    {
        let mut state = lock(&shared.state);
        request.ordinal = state.requests.len() + 1;
        state.requests.push(request);
    }
    shared.changed.notify_all();
    if wanted.is_some() && wanted != given {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")?;
        return client.shutdown(Shutdown::Both);
    }
    let mut upstream = TcpStream::connect_timeout(&proxying.upstream, PATIENCE)?;
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    let (mut from, mut to) = (client.try_clone()?, upstream.try_clone()?);
    let up = std::thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
    drop(io::copy(&mut upstream, &mut client));
    drop(client.shutdown(Shutdown::Both));
    drop(up.join());
    Ok(())
}

/// The real time, to measure waits.
#[expect(clippy::disallowed_methods, reason = "tests measure real waits")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
