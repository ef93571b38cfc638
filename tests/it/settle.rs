//! The stream contract, whatever the wire gives (STREAM-1 to STREAM-10). Cases are those of
//! `tests/cases/providers.md`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use pirn::model::{
    AssistantHead, AssistantMessage, BlockEvent, Diagnostic, ErrorKind, ErrorRecord, MessageBuilder, Model, Prices,
    StopReason, ToolCall, Usage,
};
use pirn::port::{AssistantEvent, ProviderEvent, ResponseMeta};
use pirn::provider::settle::{Inner, settle};
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::support::server::now;

type Item = Result<ProviderEvent, ErrorRecord>;

fn head() -> AssistantHead {
    let text = |text: &str| text.to_owned();
    AssistantHead { api: text("openai-completions"), provider: text("p"), model: text("m"), timestamp: 7 }
}

fn model() -> Model {
    let prices = Prices { input: 1.0, output: 2.0, ..Prices::default() };
    Model { prices: Some(prices), ..Model::unknown("p", "m", "openai-completions", "http://h") }
}

#[expect(clippy::unnecessary_wraps, reason = "items of a wire are results")]
fn block(index: usize, event: BlockEvent) -> Item {
    Ok(ProviderEvent::Block { index, event })
}

fn delta(index: usize, text: &str) -> Item {
    block(index, BlockEvent::TextDelta(text.to_owned()))
}

fn text_end(index: usize, text: &str) -> Item {
    block(index, BlockEvent::TextEnd { content: text.to_owned(), signature: None })
}

#[expect(clippy::unnecessary_wraps, reason = "items of a wire are results")]
fn done(stop_reason: StopReason) -> Item {
    Ok(ProviderEvent::Done { stop_reason, raw_stop_reason: None, overflow: false })
}

fn events_of(inner: Inner, cancel: CancellationToken) -> Vec<AssistantEvent> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(settle(head(), async { Ok(inner) }, model(), cancel).collect())
}

fn settled(items: Vec<Item>) -> Vec<AssistantEvent> {
    events_of(stream::iter(items).boxed(), CancellationToken::new())
}

/// Checks what holds for every stream and gives its last message.
fn contract(events: &[AssistantEvent]) -> &AssistantMessage {
    assert!(matches!(events.first(), Some(AssistantEvent::Start(start)) if *start == head()), "{events:?}");
    let ends = events.iter().filter(|event| matches!(event, AssistantEvent::End(_))).count();
    assert_eq!(ends, 1, "{events:?}");
    let starts = events.iter().filter(|event| matches!(event, AssistantEvent::Start(_))).count();
    assert_eq!(starts, 1, "{events:?}");
    let Some(AssistantEvent::End(message)) = events.last() else { panic!("the end is not last: {events:?}") };
    assert_ne!(message.stop_reason, StopReason::Pending);
    assert_eq!(message.stop_reason.is_failure(), message.error_message.is_some());
    assert_eq!(message.stop_reason == StopReason::Error, message.error.is_some());
    if !message.stop_reason.is_failure() {
        let mut folded = MessageBuilder::new(&head());
        for event in events {
            if let AssistantEvent::Block { index, event } = event {
                assert!(folded.apply(*index, event.clone()).is_some(), "readers see only what folds");
            }
        }
        assert_eq!(folded.finish(message.stop_reason, None, false).content, message.content);
    }
    message
}

#[test]
fn a_whole_reply_is_framed_priced_and_complete() {
    let usage = Usage { input: 1_000_000, output: 500_000, ..Usage::default() };
    let events = settled(vec![
        Ok(ProviderEvent::Meta(Box::new(ResponseMeta { status: 200, ..ResponseMeta::default() }))),
        Ok(ProviderEvent::Start { response_id: Some("r".to_owned()), response_model: Some("m-2".to_owned()) }),
        block(0, BlockEvent::TextStart),
        delta(0, "Hel"),
        delta(0, ""),
        delta(0, "lo"),
        text_end(0, "Hello"),
        Ok(ProviderEvent::Usage(Box::new(usage))),
        Ok(ProviderEvent::Note(Diagnostic { code: "n".to_owned(), message: "note".to_owned() })),
        Ok(ProviderEvent::Warning { code: "w".to_owned(), message: "warned".to_owned() }),
        done(StopReason::Stop),
        delta(0, "never seen"),
        done(StopReason::Length),
    ]);
    let message = contract(&events);
    assert_eq!((message.text().as_str(), message.stop_reason), ("Hello", StopReason::Stop));
    assert_eq!((message.response_id.as_deref(), message.response_model.as_deref()), (Some("r"), Some("m-2")));
    assert!((message.usage.cost.total - 2.0).abs() < 1e-9);
    let codes: Vec<&str> = message.diagnostics.iter().map(|note| note.code.as_str()).collect();
    assert_eq!(codes, ["n", "w"], "a warning is also a note");
    let names: Vec<&str> = events
        .iter()
        .map(|event| match event {
            AssistantEvent::Start(_) => "start",
            AssistantEvent::Meta(_) => "meta",
            AssistantEvent::Block { .. } => "block",
            AssistantEvent::Usage(usage) if usage.cost.total > 0.0 => "usage",
            AssistantEvent::Usage(_) => "unpriced",
            AssistantEvent::Warning { .. } => "warning",
            AssistantEvent::End(_) => "end",
        })
        .collect();
    assert_eq!(names, ["start", "meta", "block", "block", "block", "block", "usage", "warning", "end"], "STREAM-9");
}

#[test]
fn every_failure_is_the_end_and_keeps_what_came_before() {
    let error = |kind| Err(ErrorRecord::new(kind, "told"));
    let table: [(Option<Item>, ErrorKind, &str); 5] = [
        (Some(error(ErrorKind::Server)), ErrorKind::Server, "told"),
        (None, ErrorKind::Network, "The stream broke off: no final event."),
        (Some(done(StopReason::Stop)), ErrorKind::Network, "The stream broke off: the reply ended inside a block."),
        (Some(done(StopReason::Error)), ErrorKind::Protocol, "Unknown provider error"),
        (Some(done(StopReason::Pending)), ErrorKind::Protocol, "Unknown provider error"),
    ];
    for (last, kind, text) in table {
        let call = BlockEvent::ToolCallStart { id: "c".to_owned(), name: "read".to_owned() };
        let mut items = vec![
            block(0, BlockEvent::TextStart),
            delta(0, "par"),
            block(1, call),
            block(1, BlockEvent::ToolCallDelta(r#"{"path":"a"#.to_owned())),
        ];
        items.extend(last);
        let events = settled(items);
        let message = contract(&events);
        assert_eq!(message.stop_reason, StopReason::Error);
        assert_eq!(message.error.as_ref().map(|error| error.kind), Some(kind));
        assert_eq!(message.error_message.as_deref(), Some(text));
        assert_eq!(message.text(), "par", "STREAM-8");
        let calls: Vec<&ToolCall> = message.calls().collect();
        assert_eq!(calls[0].arguments["path"], "a", "STREAM-8: the best partial arguments");
    }
}

#[test]
fn a_failure_to_open_is_the_only_event_after_the_start() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let record = ErrorRecord::new(ErrorKind::Auth, "no key");
    let open = {
        let record = record.clone();
        async move { Err::<Inner, _>(record) }
    };
    let events: Vec<_> = runtime.block_on(settle(head(), open, model(), CancellationToken::new()).collect());
    assert_eq!(events.len(), 2, "STREAM-1");
    assert_eq!(contract(&events).error, Some(record));
}

#[test]
fn a_panic_is_an_internal_error_that_keeps_the_content() {
    let start = vec![block(0, BlockEvent::TextStart), delta(0, "x")];
    let bad = stream::iter(start).chain(stream::once(async { panic!("a bug") }));
    let events = events_of(bad.boxed(), CancellationToken::new());
    let message = contract(&events);
    assert_eq!(message.error.as_ref().map(|error| error.kind), Some(ErrorKind::Internal));
    assert_eq!(message.text(), "x");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = async { panic!("a bug") };
    let events: Vec<_> = runtime.block_on(settle(head(), open, model(), CancellationToken::new()).collect());
    assert_eq!(contract(&events).error.as_ref().map(|error| error.kind), Some(ErrorKind::Internal));
}

/// Gives its items, then nothing; tells when it is dropped.
struct Stalled {
    items: std::vec::IntoIter<Item>,
    dropped: Arc<AtomicBool>,
}

impl Stream for Stalled {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.items.next().map_or(Poll::Pending, |item| Poll::Ready(Some(item)))
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_cancellation_ends_a_stalled_reply_at_once_and_keeps_its_text() {
    let dropped = Arc::new(AtomicBool::new(false));
    let items = vec![block(0, BlockEvent::TextStart), delta(0, "half")].into_iter();
    let inner = Stalled { items, dropped: dropped.clone() }.boxed();
    let cancel = CancellationToken::new();
    let mut events = settle(head(), async { Ok(inner) }, model(), cancel.clone()).boxed();
    for _ in 0..3 {
        assert!(events.next().await.is_some());
    }
    let started = now();
    cancel.cancel();
    let Some(AssistantEvent::End(message)) = events.next().await else { panic!("no end") };
    assert!(started.elapsed() < Duration::from_millis(50), "STREAM-10, case 132");
    assert!(dropped.load(Ordering::SeqCst), "the body is gone before the end is told");
    assert_eq!(message.stop_reason, StopReason::Aborted);
    assert_eq!(message.error_message.as_deref(), Some("Run cancelled"));
    assert_eq!((message.text().as_str(), &message.error), ("half", &None));
    assert!(events.next().await.is_none(), "fused");
}

#[test]
fn an_error_that_the_cancellation_caused_is_an_abort() {
    let cancel = CancellationToken::new();
    let cause = cancel.clone();
    let inner = stream::once(async move {
        cause.cancel();
        Err(ErrorRecord::new(ErrorKind::Network, "the connection was closed"))
    });
    let events = events_of(inner.boxed(), cancel);
    let message = contract(&events);
    assert_eq!(message.stop_reason, StopReason::Aborted, "ERR-1");
    assert_eq!(message.error_message.as_deref(), Some("Run cancelled"));
}

#[test]
fn a_token_that_fired_before_the_start_opens_nothing() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = async { panic!("opened") };
    let events: Vec<_> = runtime.block_on(settle(head(), open, model(), cancel).collect());
    assert_eq!(contract(&events).stop_reason, StopReason::Aborted);
}

fn any_block() -> impl Strategy<Value = BlockEvent> {
    let text = "[a-c]{0,3}";
    prop_oneof![
        Just(BlockEvent::TextStart),
        text.prop_map(BlockEvent::TextDelta),
        text.prop_map(|content| BlockEvent::TextEnd { content, signature: None }),
        Just(BlockEvent::ThinkingStart),
        text.prop_map(BlockEvent::ThinkingDelta),
        (text, proptest::option::of(text), any::<bool>())
            .prop_map(|(content, signature, redacted)| BlockEvent::ThinkingEnd { content, signature, redacted }),
        "[ab]".prop_map(|id| BlockEvent::ToolCallStart { id, name: "read".to_owned() }),
        r#"[{}":a]{0,4}"#.prop_map(BlockEvent::ToolCallDelta),
        "[ab]".prop_map(|id| {
            BlockEvent::ToolCallEnd(Box::new(ToolCall { id, name: "read".to_owned(), ..ToolCall::default() }))
        }),
    ]
}

/// Blocks as a sound wire gives them: each is started, filled and ended.
fn sound_block(index: usize, kind: u8, text: &str) -> Vec<Item> {
    let text = text.to_owned();
    let events = match kind % 3 {
        0 => vec![
            BlockEvent::TextStart,
            BlockEvent::TextDelta(text.clone()),
            BlockEvent::TextEnd { content: text, signature: None },
        ],
        1 => vec![
            BlockEvent::ThinkingStart,
            BlockEvent::ThinkingDelta(text.clone()),
            BlockEvent::ThinkingEnd { content: text, signature: None, redacted: false },
        ],
        _ => {
            let call = ToolCall { id: text.clone(), name: "read".to_owned(), ..ToolCall::default() };
            vec![
                BlockEvent::ToolCallStart { id: text, name: "read".to_owned() },
                BlockEvent::ToolCallEnd(Box::new(call)),
            ]
        }
    };
    events.into_iter().map(|event| block(index, event)).collect()
}

fn any_item() -> impl Strategy<Value = Item> {
    prop_oneof![
        8 => (0..4_usize, any_block()).prop_map(|(index, event)| block(index, event)),
        1 => Just(Ok(ProviderEvent::Start { response_id: None, response_model: None })),
        1 => (0..9_u64).prop_map(|input| Ok(ProviderEvent::Usage(Box::new(Usage { input, ..Usage::default() })))),
        1 => Just(Err(ErrorRecord::new(ErrorKind::Server, "x"))),
        1 => prop_oneof![
            Just(StopReason::Stop), Just(StopReason::Length), Just(StopReason::ToolUse), Just(StopReason::Error),
            Just(StopReason::Aborted), Just(StopReason::Pending), Just(StopReason::Deferred),
        ].prop_map(done),
    ]
}

proptest! {
    #[test]
    fn any_stream_keeps_the_contract(items in proptest::collection::vec(any_item(), 0..24), cancelled in any::<bool>()) {
        let cancel = CancellationToken::new();
        if cancelled {
            cancel.cancel();
        }
        let events = events_of(stream::iter(items).boxed(), cancel);
        let message = contract(&events);
        prop_assert!(!cancelled || message.stop_reason == StopReason::Aborted);
    }

    #[test]
    fn a_sound_stream_ends_in_success_and_folds_to_its_content(
        blocks in proptest::collection::vec((any::<u8>(), "[a-c]{0,3}"), 0..6),
    ) {
        let mut items = Vec::new();
        for (index, (kind, text)) in blocks.iter().enumerate() {
            items.extend(sound_block(index, *kind, text));
        }
        items.push(done(StopReason::Stop));
        let events = settled(items);
        prop_assert_eq!(contract(&events).stop_reason, StopReason::Stop);
    }
}
