use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::FutureExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::{Open, Router, Way};
use crate::model::{AssistantHead, BlockEvent, ErrorKind, ErrorRecord, Model, StopReason};
use crate::port::{
    AssistantEvent, Credential, LlmRequest, Models as _, Provider, ProviderEvent, Purpose, StreamOptions, SystemClock,
};
use crate::provider::settle::{Inner, settle};

/// Answers every request with its own name.
struct Named(&'static str);

impl Provider for Named {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let (name, model) = (self.0, request.model.clone());
        let head = AssistantHead { provider: model.provider.clone(), model: model.id.clone(), ..Default::default() };
        let open = async move {
            let events = [
                ProviderEvent::Block { index: 0, event: BlockEvent::TextStart },
                ProviderEvent::Block { index: 0, event: BlockEvent::TextDelta(name.to_owned()) },
                ProviderEvent::Block {
                    index: 0,
                    event: BlockEvent::TextEnd { content: name.to_owned(), signature: None },
                },
                ProviderEvent::Done { stop_reason: StopReason::Stop, raw_stop_reason: None, overflow: false },
            ];
            let inner: Inner = futures_util::stream::iter(events.map(Ok)).boxed();
            Ok(inner)
        };
        settle(head, open, model, cancel).boxed()
    }
}

fn model(provider: &str, id: &str) -> Model {
    Model::unknown(provider, id, "openai-completions", "http://h/v1")
}

fn router(routes: Vec<(Model, Way)>) -> Router {
    let mut routes = routes.into_iter();
    let (first, way) = routes.next().unwrap();
    let mut router = Router::new(Arc::new(SystemClock::new()), first, way);
    for (model, way) in routes {
        router.add(model, way);
    }
    router
}

fn named(name: &'static str) -> Way {
    Way::Ready(Arc::new(Named(name)))
}

fn closed(provider: &str, variable: &str) -> Way {
    let error = ErrorRecord::new(ErrorKind::Auth, format!("no key for {provider}: set {variable}"));
    let error = Box::new(error.with_hint("pirn -m demo needs no key"));
    Way::Closed { variables: vec![variable.to_owned()], error }
}

/// What a request for a model gives: the text of the reply, or its error.
async fn ask(router: &Router, model: Model, cancel: CancellationToken) -> Result<String, ErrorRecord> {
    let request = LlmRequest {
        model,
        system_prompt: String::new(),
        messages: Vec::new(),
        tools: Arc::new([]),
        thinking: None,
        options: StreamOptions::default(),
        output_schema: None,
        purpose: Purpose::Run,
        session_id: None,
    };
    let events: Vec<AssistantEvent> = router.stream(Arc::new(request), cancel).collect().await;
    assert!(matches!(events.first(), Some(AssistantEvent::Start(_))), "{events:?}");
    let ends = events.iter().filter(|event| matches!(event, AssistantEvent::End(_))).count();
    match events.last() {
        Some(AssistantEvent::End(message)) if ends == 1 => match &message.error {
            Some(error) => Err(error.clone()),
            None => Ok(format!("{}{}", message.text(), message.error_message.clone().unwrap_or_default())),
        },
        other => panic!("{other:?}"),
    }
}

async fn plain(router: &Router, provider: &str, id: &str) -> Result<String, ErrorRecord> {
    ask(router, model(provider, id), CancellationToken::new()).await
}

#[tokio::test]
async fn a_request_goes_to_the_provider_of_its_model_and_nowhere_else() {
    let router = router(vec![
        (model("a", "one"), named("first")),
        (model("a", "two"), named("second")),
        (model("b", "one"), named("third")),
        (model("a", "one"), named("too late")),
    ]);
    for (provider, id, expected) in [("a", "one", "first"), ("a", "two", "second"), ("b", "one", "third")] {
        assert_eq!(plain(&router, provider, id).await.unwrap(), expected);
    }
    for (provider, id) in [("b", "two"), ("c", "one"), ("", ""), ("a/one", "")] {
        let error = plain(&router, provider, id).await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (ErrorKind::Config, false));
        assert_eq!(error.message, format!("{} is no model of this run", model(provider, id).spec()));
    }
}

#[test]
fn facts_are_those_of_the_model_that_was_added_and_others_are_unknown() {
    let mut own = model("a", "one");
    own.context_window = 7;
    let router = router(vec![(own.clone(), named("x")), (model("a", "one"), named("y"))]);
    assert_eq!(router.resolve("a", "one"), Some(own));
    assert_eq!(router.resolve("a", "two"), None);
}

#[tokio::test]
async fn a_model_without_a_key_is_missing_one_and_says_so_when_it_is_asked_g7_case_119() {
    let second = router(vec![(model("a", "x"), closed("a", "A_KEY")), (model("b", "y"), named("b"))]);
    assert_eq!(second.usable(), Ok(()));
    assert_eq!(second.credential("a"), Credential::Missing(vec!["A_KEY".to_owned()]));
    assert_eq!(second.credential("b"), Credential::Present);
    assert_eq!(second.credential("c"), Credential::Missing(Vec::new()));
    let error = plain(&second, "a", "x").await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Auth, "no key for a: set A_KEY"));
    assert_eq!(plain(&second, "b", "y").await.unwrap(), "b");

    let none = router(vec![
        (model("a", "x"), closed("a", "A_KEY")),
        (model("a", "z"), closed("a", "A_KEY")),
        (model("b", "y"), closed("b", "B_KEY")),
    ]);
    let error = none.usable().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Auth);
    assert_eq!(error.message, "no key for a: set A_KEY; no key for b: set B_KEY");
    assert_eq!(error.hint.as_deref(), Some("pirn -m demo needs no key"));
    assert_eq!(none.credential("a"), Credential::Missing(vec!["A_KEY".to_owned()]));
}

/// Fails a few times, then gives a provider; counts how often it was asked.
fn opener(failures: usize) -> (Open, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let open: Open = Box::new(move || {
        let before = count.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::task::yield_now().await;
            if before < failures {
                return Err(ErrorRecord::new(ErrorKind::Auth, "the command printed nothing"));
            }
            let made: Arc<dyn Provider> = Arc::new(Named("made"));
            Ok(made)
        }
        .boxed()
    });
    (open, asked)
}

#[tokio::test]
async fn a_provider_is_made_when_it_is_needed_and_once() {
    let (open, asked) = opener(1);
    let router = router(vec![(model("a", "x"), named("a")), (model("b", "y"), Way::Later(open))]);
    assert_eq!((router.usable(), router.credential("b")), (Ok(()), Credential::Present));
    assert_eq!(plain(&router, "a", "x").await.unwrap(), "a");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "nobody asked for it");
    assert_eq!(plain(&router, "b", "y").await.unwrap_err().kind, ErrorKind::Auth);
    assert_eq!(plain(&router, "b", "y").await.unwrap(), "made", "a failure is not kept");
    let (one, other) = tokio::join!(plain(&router, "b", "y"), plain(&router, "b", "y"));
    assert_eq!((one.unwrap(), other.unwrap()), ("made".to_owned(), "made".to_owned()));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_request_that_is_cancelled_while_its_provider_is_made_ends_as_cancelled() {
    let open: Open = Box::new(|| std::future::pending().boxed());
    let router = router(vec![(model("a", "x"), Way::Later(open))]);
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(ask(&router, model("a", "x"), cancel.clone()).await.unwrap(), "Run cancelled");
    let later = CancellationToken::new();
    let asking = ask(&router, model("a", "x"), later.clone());
    let (reply, ()) = tokio::join!(asking, async { later.cancel() });
    assert_eq!(reply.unwrap(), "Run cancelled");
}
