//! The HTTP layer against the scripted server: headers, redirects, timers, TLS, proxies, connections.
//! Cases are those of `tests/cases/providers.md`.

use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pirn::model::{ErrorKind, ErrorRecord, Headers, Secret};
use pirn::port::{SystemClock, Timeouts};
use pirn::provider::error::{ErrorContext, http_error};
use pirn::provider::http::{HttpClient, HttpError, HttpSettings, PostRequest, ProxySettings, Refusal, Response};
use serde_json::json;

use crate::support::clock::Patient;
use crate::support::server::{Gate, Reply, Server, now};
use crate::support::tls::Identity;

fn client(settings: HttpSettings) -> HttpClient {
    HttpClient::new(settings, Arc::new(SystemClock::new()))
}

fn plain() -> HttpClient {
    client(HttpSettings::default())
}

fn request(url: &str) -> PostRequest {
    PostRequest {
        url: url.to_owned(),
        headers: Headers::new(),
        body: Bytes::from_static(b"{}"),
        timeouts: Timeouts::default(),
        context: ErrorContext { provider: "test".to_owned(), ..ErrorContext::default() },
    }
}

fn with_key(url: &str) -> PostRequest {
    let mut request = request(url);
    request.headers.set("authorization", Some("Bearer sk-secret".to_owned()));
    request.headers.set("x-title", Some("hello".to_owned()));
    request
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Runs a blocking wait while the runtime goes on.
async fn blocking<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(wait).await.unwrap()
}

async fn chunk(response: &mut Response) -> Option<Result<Bytes, ErrorRecord>> {
    poll_fn(|cx| response.body.poll_chunk(cx)).await
}

/// Reads until `count` bytes are there.
async fn bytes(response: &mut Response, count: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < count {
        read.extend(chunk(response).await.expect("the body goes on").expect("the body is sound"));
    }
    read
}

/// Reads to the end: what came, and the error that ended it.
async fn rest(response: &mut Response) -> (Vec<u8>, Option<ErrorRecord>) {
    let mut read = Vec::new();
    loop {
        match chunk(response).await {
            Some(Ok(bytes)) => read.extend(bytes),
            Some(Err(error)) => return (read, Some(error)),
            None => return (read, None),
        }
    }
}

fn failed(result: Result<Response, HttpError>) -> ErrorRecord {
    match result {
        Err(HttpError::Failed(record)) => record,
        other => panic!("not a failure: {other:?}"),
    }
}

fn refused(result: Result<Response, HttpError>) -> Refusal {
    match result {
        Err(HttpError::Status(refusal)) => *refusal,
        other => panic!("not a refusal: {other:?}"),
    }
}

#[tokio::test]
async fn a_request_carries_the_built_in_headers_and_the_callers_on_top() {
    let server = Server::start([Reply::stream().send("data: x\n\n"), Reply::stream()]);
    let client = plain();
    let mut response = client.post(with_key(&server.base_url())).await.unwrap();
    assert_eq!(rest(&mut response).await.0, b"data: x\n\n");
    let mut second = request(&server.base_url());
    second.headers.set("User-Agent", Some("mine/2".to_owned()));
    second.headers.set("Accept", None);
    client.post(second).await.unwrap();

    let requests = server.requests();
    let first = &requests[0];
    assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/v1"));
    for (name, value) in [
        ("content-type", "application/json"),
        ("accept", "text/event-stream, application/json"),
        ("content-length", "2"),
        ("accept-encoding", "gzip"),
        ("user-agent", concat!("pirn/", env!("CARGO_PKG_VERSION"))),
        ("authorization", "Bearer sk-secret"),
        ("x-title", "hello"),
    ] {
        assert_eq!(first.header(name), Some(value), "HTTP-1, HTTP-2: {name}");
    }
    assert_eq!(requests[1].header("user-agent"), Some("mine/2"), "HTTP-3");
    assert_ne!(requests[1].header("accept"), first.header("accept"), "HTTP-3: removed");
}

#[tokio::test]
async fn a_compressed_body_is_given_out_at_each_flush() {
    let gate = Gate::new();
    let reply = Reply::stream().gzip().send("data: 1\n\n").send("data: 2\n\n").send("data: 3\n\n");
    let server = Server::start([reply.wait(&gate).send("data: 4\n\n")]);
    let mut response = plain().post(request(&server.base_url())).await.unwrap();
    // The server goes on only when the gate opens, so these bytes came before the pause ended.
    let text = bytes(&mut response, 27).await;
    assert_eq!(text, b"data: 1\n\ndata: 2\n\ndata: 3\n\n", "case 16, SSE-14");
    gate.open();
    assert_eq!(rest(&mut response).await, (b"data: 4\n\n".to_vec(), None));
}

#[tokio::test]
async fn every_framing_of_a_body_gives_the_same_bytes() {
    let text = "data: 你好\n\ndata: 🎉\n\n";
    let stream = || Reply::stream().send(text);
    let forms =
        [stream(), stream().bytewise(), stream().with_length(), stream().until_close(), stream().gzip().bytewise()];
    let server = Server::start(forms);
    for form in 0..5 {
        let mut response = plain().post(request(&server.base_url())).await.unwrap();
        assert_eq!(rest(&mut response).await, (text.as_bytes().to_vec(), None), "form {form}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_retryable_network_error_after_its_content() {
    let cut = || Reply::stream().send("data: x\n\n");
    let endings = [cut().close(), cut().reset(), cut().with_length().header("content-length", "99").close()];
    let count = endings.len();
    let server = Server::start(endings);
    for ending in 0..count {
        let mut response = plain().post(request(&server.base_url())).await.unwrap();
        let (read, error) = rest(&mut response).await;
        let error = error.expect("the body is cut");
        // A reset may overtake the bytes before it.
        assert!(read == b"data: x\n\n" || ending == 1, "{ending}");
        assert_eq!((error.kind, error.retryable), (ErrorKind::Network, true), "{ending}: {error}");
    }
}

#[tokio::test]
async fn redirects_are_followed_only_where_the_body_may_be_sent_again() {
    let other = Server::start([Reply::stream().send("there"), Reply::stream()]);
    let away = format!("{}/elsewhere", other.origin());
    let redirect = |status: u16, to: &str| Reply::status(status).header("location", to);
    let server = Server::start([
        redirect(302, &format!("{away}?secret=1")),
        redirect(307, "/v2"),
        Reply::stream().send("here"),
        redirect(308, &away),
    ]);
    let client = plain();

    let error = failed(client.post(with_key(&server.base_url())).await);
    assert_eq!(error.kind, ErrorKind::Config, "case 129");
    assert!(error.message.contains(&away) && !error.message.contains("secret"), "{}", error.message);
    assert!(other.requests().is_empty(), "case 129: no second request");

    let mut response = client.post(with_key(&server.base_url())).await.unwrap();
    assert_eq!(rest(&mut response).await.0, b"here");
    let followed = &server.requests()[2];
    assert_eq!((followed.path.as_str(), followed.body.as_slice()), ("/v2", b"{}".as_slice()), "case 129");
    assert_eq!(followed.header("authorization"), Some("Bearer sk-secret"));

    let mut response = client.post(with_key(&server.base_url())).await.unwrap();
    assert_eq!(rest(&mut response).await.0, b"there");
    let followed = &other.requests()[0];
    assert_eq!(followed.body, b"{}");
    assert_eq!(followed.header("authorization"), None, "case 129: another host");
    assert_eq!(followed.header("x-title"), Some("hello"));
}

#[tokio::test]
async fn a_chain_of_redirects_ends_after_five() {
    let server = Server::start([]).then_always(Reply::status(307).header("location", "/again"));
    let error = failed(plain().post(request(&server.base_url())).await);
    assert_eq!(error.kind, ErrorKind::Config);
    assert_eq!(server.requests().len(), 6, "HTTP-7");
}

#[tokio::test]
async fn a_silent_server_ends_at_the_limit_of_its_kind() {
    const OFF: Timeouts = Timeouts { connect: None, first_event: None, idle: None, progress: None };
    let comment = ": keep-alive\n\n";
    let comments = (0..40).fold(Reply::stream(), |reply, _| reply.send(comment).pause(millis(30)));
    let table = [
        // case 131: the head, then nothing.
        (Reply::stream().hold(), Timeouts { idle: Some(millis(200)), ..OFF }, "test: idle timeout: no data for 0.2 s"),
        // case 131: comments keep the connection alive until the progress limit.
        (
            comments.clone(),
            Timeouts { idle: Some(millis(290)), progress: Some(millis(300)), ..OFF },
            "test: progress timeout: no model event for 0.3 s",
        ),
        // Not even a head.
        (
            Reply::raw("").hold(),
            Timeouts { first_event: Some(millis(200)), idle: Some(millis(100)), ..OFF },
            "test: first event timeout: no reply for 0.2 s",
        ),
        // Bytes, but no event.
        (comments, Timeouts { first_event: Some(millis(200)), ..OFF }, "test: first event timeout: no reply for 0.2 s"),
    ];
    for (reply, timeouts, text) in table {
        let server = Server::start([reply]);
        let started = now();
        let error = match plain().post(PostRequest { timeouts, ..request(&server.base_url()) }).await {
            Ok(mut response) => rest(&mut response).await.1.expect("a limit passes"),
            Err(error) => failed(Err(error)),
        };
        let waited = started.elapsed();
        assert_eq!((error.kind, error.retryable), (ErrorKind::Timeout, true));
        assert_eq!(error.message, text, "HTTP-9");
        assert!(waited >= millis(190) && waited < millis(1200), "{text}: {waited:?}");
        assert!(blocking(move || server.wait_abandoned(1)).await, "{text}: the connection is closed");
    }
}

#[tokio::test]
async fn events_move_the_progress_limit() {
    let reply = (0..12).fold(Reply::stream(), |reply, _| reply.send("data: x\n\n").pause(millis(60)));
    let server = Server::start([reply]);
    let limit = Some(millis(400));
    let timeouts = Timeouts { connect: None, first_event: limit, idle: limit, progress: limit };
    let mut response = plain().post(PostRequest { timeouts, ..request(&server.base_url()) }).await.unwrap();
    while let Some(item) = chunk(&mut response).await {
        item.expect("no limit passes");
        response.body.progressed();
    }
}

#[tokio::test]
async fn a_request_on_a_dead_pooled_connection_is_sent_again_once_and_silently() {
    let ok = || Reply::stream().send("ok");
    // The second request arrives on the pooled connection, which closes without a byte; so does the fourth, and the
    // new connection after it.
    let server = Server::start([ok(), Reply::raw(""), ok(), Reply::raw(""), Reply::raw("")]);
    let client = plain();
    for _ in 0..2 {
        let mut response = client.post(request(&server.base_url())).await.unwrap();
        assert_eq!(rest(&mut response).await, (b"ok".to_vec(), None), "HTTP-5");
    }
    let error = failed(client.post(request(&server.base_url())).await);
    assert_eq!(error.message, "test: The connection closed before a reply.");
    assert_eq!((error.kind, error.retryable), (ErrorKind::Network, true));
    let connections: Vec<usize> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [1, 1, 2, 2, 3], "HTTP-5");
}

#[tokio::test]
async fn a_connection_the_server_closed_in_between_is_replaced() {
    let server = Server::start([Reply::stream().send("1").then_close(), Reply::stream().send("2")]);
    let client = plain();
    for want in ["1", "2"] {
        let mut response = client.post(request(&server.base_url())).await.unwrap();
        assert_eq!(rest(&mut response).await, (want.as_bytes().to_vec(), None), "HTTP-5");
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_request_on_a_fresh_connection_is_never_sent_twice() {
    let server = Server::start([Reply::raw("")]).then_always(Reply::stream());
    let error = failed(plain().post(request(&server.base_url())).await);
    assert_eq!(error.message, "test: The connection closed before a reply.");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_reply_read_to_its_end_gives_its_connection_back() {
    let gate = Gate::new();
    // The end of the body arrives after the last event, as with a slow proxy.
    let server = Server::start([Reply::stream().send("data: [DONE]\n\n").wait(&gate), Reply::stream()]);
    let client = HttpClient::new(HttpSettings::default(), Arc::new(Patient::default()));
    let mut response = client.post(request(&server.base_url())).await.unwrap();
    bytes(&mut response, 14).await;
    gate.open();
    response.body.finish().await;
    client.post(request(&server.base_url())).await.unwrap();
    assert_eq!(server.connections(), 1, "HTTP-5");
}

#[tokio::test]
async fn the_end_of_a_body_that_stays_open_is_not_waited_for() {
    let server = Server::start([Reply::stream().send("data: [DONE]\n\n").hold()]);
    let mut response = plain().post(request(&server.base_url())).await.unwrap();
    bytes(&mut response, 14).await;
    let started = now();
    response.body.finish().await;
    assert!(started.elapsed() < millis(500));
    assert!(blocking(move || server.wait_abandoned(1)).await);
}

#[tokio::test]
async fn dropping_a_body_or_a_request_closes_the_connection() {
    let server = Server::start([Reply::stream().send("data: x\n\n").hold()]);
    let mut response = plain().post(request(&server.base_url())).await.unwrap();
    bytes(&mut response, 9).await;
    drop(response);
    assert!(blocking(move || server.wait_abandoned(1)).await, "STREAM-10, case 132");

    let server = Arc::new(Server::start([Reply::raw("").hold()]));
    let client = plain();
    let arrived = blocking({
        let server = server.clone();
        move || server.wait_requests(1)
    });
    tokio::select! {
        answer = client.post(request(&server.base_url())) => panic!("an answer: {answer:?}"),
        seen = arrived => assert!(seen),
    }
    assert!(blocking(move || server.wait_abandoned(1)).await, "STREAM-10");
}

#[tokio::test]
async fn an_answer_of_another_status_comes_with_its_facts_and_a_bounded_body() {
    let server = Server::start([
        Reply::json(429, &json!({"error": "slow down"}))
            .header("retry-after", "2")
            .header("x-request-id", "r1")
            .header("set-cookie", "session=1"),
        Reply::status(500).send(vec![b'x'; 5 * 1024 * 1024]),
        Reply::status(400),
        Reply::status(304),
    ]);
    let client = plain();
    let refusal = refused(client.post(request(&server.base_url())).await);
    assert_eq!((refusal.status, refusal.body.as_slice()), (429, br#"{"error":"slow down"}"#.as_slice()));
    assert_eq!(refusal.meta.request_id.as_deref(), Some("r1"), "HTTP-13");
    assert_eq!(refusal.meta.headers, [("retry-after".to_owned(), "2".to_owned())], "HTTP-12");
    assert!(!refusal.headers.iter().any(|(name, _)| name == "set-cookie"));
    assert_eq!(refusal.context.url, Some(server.base_url()));
    let refusal = refused(client.post(request(&server.base_url())).await);
    assert_eq!((refusal.status, refusal.body.len()), (500, 256 * 1024), "NET-31");
    let refusal = refused(client.post(request(&server.base_url())).await);
    assert_eq!((refusal.status, refusal.body.len()), (400, 0), "NET-31");
    assert_eq!(refused(client.post(request(&server.base_url())).await).status, 304);
}

#[tokio::test]
async fn unreachable_servers_are_retryable_network_errors_that_name_the_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let garbage = Server::start([Reply::raw("SSH-2.0-OpenSSH_9\r\n")]);
    for (url, part) in [
        (format!("http://{address}/v1?key=sk-secret"), format!("cannot connect to {address}")),
        ("http://no-such-host.invalid/v1".to_owned(), "cannot find no-such-host.invalid".to_owned()),
        (garbage.base_url(), format!("the request to {}", garbage.address())),
    ] {
        let error = failed(plain().post(request(&url)).await);
        assert_eq!((error.kind, error.retryable), (ErrorKind::Network, true), "{error}");
        assert!(error.message.contains(&part), "{}", error.message);
        assert!(!error.message.contains("sk-secret"));
        assert_eq!(error.provider.as_deref(), Some("test"));
    }
    for url in ["ftp://x/", "nonsense", ""] {
        assert_eq!(failed(plain().post(request(url)).await).kind, ErrorKind::Config, "{url}");
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_where_it_is_configured_and_only_there() {
    let identity = Identity::new(&[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::File::create(&file).unwrap().write_all(identity.ca_pem().as_bytes()).unwrap();
    let trusted = [
        HttpSettings { ca_file: Some(file.clone()), ..HttpSettings::default() },
        HttpSettings { ssl_cert_file: Some(file.clone()), ..HttpSettings::default() },
        HttpSettings { ssl_cert_dir: Some(dir.path().to_owned()), ..HttpSettings::default() },
    ];
    for settings in trusted {
        let server = Server::tls(&identity, [Reply::stream().send("ok")]);
        let client = client(settings.clone());
        client.prepare(&server.base_url());
        let mut response = client.post(request(&server.base_url())).await.expect("CFG-07");
        assert_eq!(rest(&mut response).await, (b"ok".to_vec(), None), "CFG-07: {settings:?}");
    }

    let server = Server::tls(&identity, []);
    let error = failed(plain().post(request(&server.base_url())).await);
    assert_eq!((error.kind, error.retryable), (ErrorKind::Network, false), "ERR-3: {error}");
    assert!(error.message.contains("localhost"), "{}", error.message);
    let remedy = error.hint.expect("CFG-07: the remedy");
    assert!(remedy.contains("SSL_CERT_FILE") && remedy.contains("ca_file"), "{remedy}");

    // The certificate is for another name: fatal, but another authority would not help.
    let proxy = Server::proxy(server.address(), None, []);
    let settings = HttpSettings {
        ca_file: Some(file),
        proxy: ProxySettings { forced: Some(Secret::new(proxy.address().to_string())), ..ProxySettings::default() },
        ..HttpSettings::default()
    };
    let error = failed(client(settings).post(request("https://other.test/v1")).await);
    assert_eq!((error.kind, error.retryable), (ErrorKind::Network, false), "ERR-3: {error}");
    assert_eq!(error.hint, None, "{}", error.message);
}

#[tokio::test]
async fn https_goes_through_a_connect_proxy_with_its_credentials() {
    let identity = Identity::new(&["api.example.test"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::File::create(&file).unwrap().write_all(identity.ca_pem().as_bytes()).unwrap();
    let server = Server::tls(&identity, [Reply::stream().send("ok")]);
    let proxy = Server::proxy(server.address(), Some("user:p@ss"), []);
    let through = |url: String| HttpSettings {
        proxy: ProxySettings { https: Some(Secret::new(url)), ..ProxySettings::default() },
        ca_file: Some(file.clone()),
        ..HttpSettings::default()
    };

    // The name has no address: only the proxy can reach it.
    let good = client(through(format!("http://user:p%40ss@{}", proxy.address())));
    let mut response = good.post(with_key("https://api.example.test/v1")).await.expect("CFG-07, HTTP-10");
    assert_eq!(rest(&mut response).await, (b"ok".to_vec(), None));
    let seen = &proxy.requests()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("CONNECT", "api.example.test:443"));
    assert_eq!(seen.header("authorization"), None, "the proxy never sees the key");
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer sk-secret"));
    assert_eq!(server.requests()[0].header("proxy-authorization"), None);

    let bad = client(through(format!("user:hunter2@{}", proxy.address())));
    let error = failed(bad.post(request("https://api.example.test/v1")).await);
    assert_eq!(error.kind, ErrorKind::Network);
    assert!(error.message.contains("proxy") && !error.message.contains("hunter2"), "{}", error.message);
}

#[tokio::test]
async fn cleartext_goes_to_a_proxy_with_the_whole_address_and_local_servers_do_not() {
    let local = Server::start([Reply::stream().send("direct"), Reply::stream().send("direct")]);
    let proxy = Server::proxy(local.address(), None, [Reply::stream().send("proxied"), Reply::stream().send("forced")]);
    let address = Secret::new(format!("http://u:p@{}", proxy.address()));
    let settings = HttpSettings {
        proxy: ProxySettings { all: Some(address.clone()), ..ProxySettings::default() },
        ..HttpSettings::default()
    };
    let through = client(settings.clone());
    let mut response = through.post(request("http://api.example.test/v1")).await.unwrap();
    assert_eq!(rest(&mut response).await.0, b"proxied", "CFG-07: ALL_PROXY");
    let seen = &proxy.requests()[0];
    assert_eq!(seen.path, "http://api.example.test/v1");
    assert_eq!(seen.header("proxy-authorization"), Some("Basic dTpw"));

    let mut response = through.post(request(&local.base_url())).await.unwrap();
    assert_eq!(rest(&mut response).await.0, b"direct", "HTTP-10: loopback");
    assert_eq!(local.requests()[0].header("proxy-authorization"), None);

    let forced = ProxySettings { forced: Some(address), ..ProxySettings::default() };
    let forced = client(HttpSettings { proxy: forced, ..settings });
    let mut response = forced.post(request(&local.base_url())).await.unwrap();
    assert_eq!(rest(&mut response).await.0, b"forced", "HTTP-10: unless forced");
}

fn through_http_proxy(url: String) -> HttpSettings {
    HttpSettings {
        proxy: ProxySettings { http: Some(Secret::new(url)), ..ProxySettings::default() },
        ..HttpSettings::default()
    }
}

#[tokio::test]
async fn a_proxy_that_wants_credentials_is_named_and_its_password_is_not_shown_http_10_sec_1() {
    let echo = Reply::status(407).send("no: hunter2hunter2 / Proxy-Authorization: Basic Ym9iOmh1bnRlcjJodW50ZXIy");
    let local = Server::start([]);
    let proxy = Server::proxy(local.address(), None, [echo]);
    let through = client(through_http_proxy(format!("http://bob:hunter2hunter2@{}", proxy.address())));
    let refusal = refused(through.post(request("http://example.test/v1")).await);
    let record = http_error(refusal.status, &refusal.headers, &refusal.body, &refusal.context);
    let shown = format!("{record:?}");
    assert!(!shown.contains("hunter2hunter2") && !shown.contains("Ym9iOmh1bnRlcjJodW50ZXIy"), "{shown}");
    assert_eq!((record.kind, record.retryable), (ErrorKind::Network, false));
    let hint = record.hint.unwrap_or_default();
    assert!(hint.contains("HTTP_PROXY") && !hint.contains("example.test"), "{hint}");
}

#[tokio::test]
async fn an_answer_or_a_refusal_on_the_way_names_the_proxy_http_10() {
    let local = Server::start([]);
    let proxy = Server::proxy(local.address(), None, [Reply::status(502).send("bad gateway")]);
    let through = client(through_http_proxy(format!("http://{}", proxy.address())));
    let refusal = refused(through.post(request("http://example.test/v1")).await);
    let record = http_error(refusal.status, &refusal.headers, &refusal.body, &refusal.context);
    assert!(record.hint.as_deref().is_some_and(|hint| hint.contains("from the proxy 127.0.0.1:")), "{record:?}");

    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let through = client(through_http_proxy(format!("http://{closed}")));
    let record = failed(through.post(request("http://example.test/v1")).await);
    assert!(record.message.contains(&format!("through the proxy {closed}")), "{}", record.message);
    assert!(record.hint.as_deref().is_some_and(|hint| hint.contains("HTTP_PROXY")), "{record:?}");
}

#[tokio::test]
async fn a_key_that_a_redirect_left_behind_was_not_refused_http_7() {
    let target = Server::start([Reply::json(401, &json!({"error": {"message": "no key"}}))]);
    let location = format!("http://localhost:{}/v1", target.address().port());
    let server = Server::start([Reply::status(307).header("location", &location)]);
    let mut request = with_key(&server.base_url());
    request.context.key_sources = vec!["OPENAI_API_KEY".to_owned()];
    let refusal = refused(plain().post(request).await);
    let record = http_error(refusal.status, &refusal.headers, &refusal.body, &refusal.context);
    assert_eq!(record.kind, ErrorKind::Auth);
    let hint = record.hint.unwrap_or_default();
    assert!(hint.contains("redirected the request") && !hint.contains("refused"), "{hint}");
}

#[tokio::test]
async fn parts_of_a_secret_header_are_masked_when_a_server_echoes_them_sec_1() {
    for (name, value, part) in
        [("authorization", "Token abcdefgh12", "abcdefgh12"), ("cookie", "a=b; session=abcdefgh12", "abcdefgh12")]
    {
        let server = Server::start([Reply::status(400).send(format!("you sent {part}"))]);
        let mut request = request(&server.base_url());
        request.headers.set(name, Some(value.to_owned()));
        let refusal = refused(plain().post(request).await);
        let record = http_error(refusal.status, &refusal.headers, &refusal.body, &refusal.context);
        assert!(record.message.contains("you sent ***"), "{value}: {}", record.message);
    }
}

#[test]
fn an_address_that_cannot_be_used_is_found_before_anything_is_sent() {
    for url in ["http://127.0.0.1:99999/v1", "http://[::1/v1", "http://", "localhost:8080/v1", ""] {
        let error = plain().check(url).expect_err(url);
        assert_eq!(error.kind, ErrorKind::Config, "{url}");
    }
    plain().check("http://[::1]:8080/v1").expect("a good one");
}

/// Serves one SOCKS5 client that names its target by name, and tunnels it to `upstream`. Gives the name.
fn socks5(listener: &TcpListener, upstream: SocketAddr) -> io::Result<String> {
    let (mut client, _) = listener.accept()?;
    let mut hello = [0_u8; 3];
    client.read_exact(&mut hello)?;
    assert_eq!(hello, [5, 1, 0], "version 5, one method, no credentials");
    client.write_all(&[5, 0])?;
    let mut head = [0_u8; 5];
    client.read_exact(&mut head)?;
    assert_eq!(head[..4], [5, 1, 0, 3], "connect to a name");
    let mut target = vec![0_u8; usize::from(head[4]) + 2];
    client.read_exact(&mut target)?;
    target.truncate(usize::from(head[4]));
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let mut server = TcpStream::connect(upstream)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let up = std::thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
    drop(io::copy(&mut server, &mut client));
    drop(client.shutdown(Shutdown::Both));
    drop(up.join());
    Ok(String::from_utf8_lossy(&target).into_owned())
}

#[tokio::test]
async fn all_proxy_may_be_a_socks_proxy_that_resolves_names() {
    let server = Server::start([Reply::stream().send("ok").until_close()]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("socks5h://{}", listener.local_addr().unwrap());
    let upstream = server.address();
    let proxy = std::thread::spawn(move || socks5(&listener, upstream).unwrap());
    let all = ProxySettings { all: Some(Secret::new(address)), ..ProxySettings::default() };
    let through = client(HttpSettings { proxy: all, ..HttpSettings::default() });
    let mut response = through.post(request("http://api.example.test/v1")).await.expect("HTTP-10");
    assert_eq!(rest(&mut response).await, (b"ok".to_vec(), None));
    drop((response, through));
    assert_eq!(blocking(move || proxy.join().unwrap()).await, "api.example.test");
}
