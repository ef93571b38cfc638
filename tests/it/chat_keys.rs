//! A refused key is renewed from its source, once and by one request at a time (KEY-2).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use pirn::model::{AssistantMessage, ErrorKind, ErrorRecord, Message, Model, Secret, StopReason};
use pirn::port::{AssistantEvent, LlmRequest, Provider as _, Purpose, StreamOptions, SystemClock};
use pirn::provider::chat::{ChatProvider, ChatSettings, KeySource};
use pirn::provider::http::{HttpClient, HttpSettings};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::chat::{chat_error, chat_text};
use crate::support::server::{Reply, Server};

/// Not of a shape that is masked anyway.
const FIRST: &str = "first-0123456789abcdef";
const SECOND: &str = "second-0123456789abcdef";
const THIRD: &str = "third-0123456789abcdef";

/// Gives these keys in turn; where there is none, it fails.
#[derive(Debug, Default)]
struct Keys {
    keys: Mutex<VecDeque<&'static str>>,
    asked: AtomicUsize,
}

impl Keys {
    fn new(keys: &[&'static str]) -> Arc<Self> {
        Arc::new(Self { keys: Mutex::new(keys.iter().copied().collect()), asked: AtomicUsize::new(0) })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl KeySource for Keys {
    async fn refresh(&self) -> Result<Secret, ErrorRecord> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        // Whoever else waits for a key gets its turn to do something wrong.
        tokio::task::yield_now().await;
        let key = self.keys.lock().unwrap().pop_front();
        key.map(Secret::new).ok_or_else(|| ErrorRecord::new(ErrorKind::Auth, "the safe is locked"))
    }
}

fn provider(keys: &Arc<Keys>) -> ChatProvider {
    let settings = ChatSettings {
        api_key: Some(Secret::new(FIRST)),
        key_source: Some(Arc::clone(keys) as Arc<dyn KeySource>),
        key_hint: vec!["providers.test.api_key".to_owned()],
        ..ChatSettings::keyless("test")
    };
    ChatProvider::new(settings, HttpClient::new(HttpSettings::default(), Arc::new(SystemClock::new())))
}

fn request(server: &Server) -> LlmRequest {
    LlmRequest {
        model: Model::unknown("test", "test-model", "openai-completions", &server.base_url()),
        system_prompt: String::new(),
        messages: vec![Arc::new(Message::user("hi", Vec::new(), 1))],
        tools: Arc::from(Vec::new()),
        thinking: None,
        options: StreamOptions::default(),
        output_schema: None,
        purpose: Purpose::Run,
        session_id: None,
    }
}

async fn run(provider: &ChatProvider, request: LlmRequest) -> (Vec<AssistantEvent>, AssistantMessage) {
    let events: Vec<AssistantEvent> = provider.stream(Arc::new(request), CancellationToken::new()).collect().await;
    let Some(AssistantEvent::End(message)) = events.last() else { panic!("no end: {events:?}") };
    let message = (**message).clone();
    let shown = format!("{events:?}");
    for key in [FIRST, SECOND, THIRD] {
        assert!(!shown.contains(key), "SEC-1: {shown}");
    }
    (events, message)
}

/// Takes a request that is signed with one of these keys; of any other it says what it got.
fn taking(good: &'static [&'static str]) -> Reply {
    Reply::with(move |request| {
        let sent = request.header("authorization").unwrap_or_default().to_owned();
        match good.iter().any(|key| sent == format!("Bearer {key}")) {
            true => chat_text("ok"),
            // The first key is known as long as the request that it was refused to.
            false if request.ordinal <= 2 => chat_error(401, "invalid_api_key", &format!("not {sent}, nor {FIRST}")),
            false => chat_error(401, "invalid_api_key", &format!("not {sent}")),
        }
    })
}

fn keys_sent(server: &Server) -> Vec<String> {
    let bearer = |header: Option<&str>| header.unwrap_or_default().trim_start_matches("Bearer ").to_owned();
    server.requests().iter().map(|request| bearer(request.header("authorization"))).collect()
}

fn warnings(events: &[AssistantEvent]) -> Vec<String> {
    let warning = |event: &AssistantEvent| match event {
        AssistantEvent::Warning { code, message } if code == "key_refresh" => Some(message.clone()),
        _ => None,
    };
    events.iter().filter_map(warning).collect()
}

#[tokio::test]
async fn a_refused_key_is_renewed_once_and_the_request_sent_again() {
    let server = Server::start([]).then_always(taking(&[SECOND]));
    let keys = Keys::new(&[SECOND, THIRD]);
    let provider = provider(&keys);
    let (events, message) = run(&provider, request(&server)).await;
    assert_eq!((message.text().as_str(), message.stop_reason), ("ok", StopReason::Stop));
    assert_eq!(keys_sent(&server), [FIRST, SECOND]);
    let [first, second] = &server.requests()[..] else { panic!("two requests") };
    assert_eq!(first.body, second.body, "the same request");
    let notes: Vec<&str> = message.diagnostics.iter().map(|note| note.code.as_str()).collect();
    assert_eq!((notes, warnings(&events)), (vec!["key_refresh"], vec![]));

    run(&provider, request(&server)).await;
    assert_eq!((keys_sent(&server), keys.asked()), (vec![FIRST.into(), SECOND.into(), SECOND.into()], 1), "it is kept");
}

#[tokio::test]
async fn a_renewed_key_that_is_refused_ends_the_request_and_is_not_renewed_again() {
    let server = Server::start([]).then_always(taking(&[]));
    let keys = Keys::new(&[SECOND, THIRD]);
    let provider = provider(&keys);
    for (round, sent) in [(1, vec![FIRST, SECOND]), (2, vec![FIRST, SECOND, SECOND])] {
        let (_, message) = run(&provider, request(&server)).await;
        let error = message.error.unwrap();
        assert_eq!((error.kind, error.http_status), (ErrorKind::Auth, Some(401)), "{round}");
        assert!(error.message.starts_with("test 401: not ***"), "{}", error.message);
        assert!(error.hint.as_deref().unwrap().contains("check providers.test.api_key"), "{:?}", error.hint);
        assert_eq!((keys_sent(&server), keys.asked()), (sent.iter().map(ToString::to_string).collect(), 1), "{round}");
    }
}

#[tokio::test]
async fn an_accepted_key_that_runs_out_is_renewed_again() {
    let replies = [taking(&[SECOND]), taking(&[SECOND]), taking(&[THIRD]), taking(&[THIRD])];
    let server = Server::start(replies);
    let keys = Keys::new(&[SECOND, THIRD]);
    let provider = provider(&keys);
    for _ in 0..2 {
        assert_eq!(run(&provider, request(&server)).await.1.stop_reason, StopReason::Stop);
    }
    assert_eq!((keys_sent(&server), keys.asked()), ([FIRST, SECOND, SECOND, THIRD].map(String::from).to_vec(), 2));
}

#[tokio::test]
async fn a_source_that_gives_the_same_key_or_none_leaves_the_refusal_with_a_warning() {
    for (given, said) in [
        (&[FIRST] as &[&str], "the key was refused, and its source gave the same one again"),
        (&[], "the key was refused, and there is no other: the safe is locked"),
    ] {
        let server = Server::start([]).then_always(taking(&[]));
        let keys = Keys::new(given);
        let provider = provider(&keys);
        let (events, message) = run(&provider, request(&server)).await;
        assert_eq!((warnings(&events), message.error.unwrap().kind), (vec![said.to_owned()], ErrorKind::Auth));
        let (events, _) = run(&provider, request(&server)).await;
        assert_eq!((warnings(&events).len(), keys.asked()), (0, 1), "never again");
        assert_eq!(keys_sent(&server), [FIRST, FIRST]);
    }
}

#[tokio::test]
async fn requests_that_are_refused_together_ask_once() {
    let server = Server::start([]).then_always(taking(&[SECOND]));
    let keys = Keys::new(&[SECOND, THIRD]);
    let provider = provider(&keys);
    let runs = (0..4).map(|_| run(&provider, request(&server)));
    for (_, message) in futures_util::future::join_all(runs).await {
        assert_eq!(message.stop_reason, StopReason::Stop);
    }
    assert_eq!(keys.asked(), 1);
    let sent = keys_sent(&server);
    assert_eq!((sent.iter().filter(|key| *key == SECOND).count(), sent.contains(&THIRD.to_owned())), (4, false));
}

#[tokio::test]
async fn another_status_and_a_key_that_is_not_the_sources_renew_nothing() {
    let keys = Keys::new(&[SECOND]);
    for status in [400, 403, 429, 500] {
        let server = Server::start([]).then_always(chat_error(status, "c", "no"));
        run(&provider(&keys), request(&server)).await;
        assert_eq!(server.requests().len(), 1, "{status}");
    }
    let server = Server::start([]).then_always(chat_error(401, "c", "no"));
    let mut own_key = request(&server);
    own_key.options.api_key = Some(Secret::new(THIRD));
    let mut own_header = request(&server);
    own_header.options.headers.set("Authorization", Some("Basic eHl6".to_owned()));
    let mut no_header = request(&server);
    no_header.options.headers.set("Authorization", None);
    for request in [own_key, own_header, no_header] {
        run(&provider(&keys), request).await;
    }
    assert_eq!((keys.asked(), server.requests().len()), (0, 3));

    // A server that the request was sent on to did not see the key.
    let far = Server::start([]).then_always(Reply::json(401, &json!({"error": {"message": "who?"}})));
    let near = Server::start([]).then_always(Reply::status(307).header("location", &far.base_url()));
    run(&provider(&keys), request(&near)).await;
    assert_eq!((keys.asked(), keys_sent(&far)), (0, vec![String::new()]));
}
