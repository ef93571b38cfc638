use proptest::prelude::*;
use serde_json::{Value, json};

use super::{FLUSH_AFTER_MS, FrameBuffer, REPLY_BYTES_MAX, json_bytes, reduce};
use crate::model::{
    ArgumentsError, AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, MessageBuilder, StopReason, ToolCall,
    Usage,
};

fn head() -> AssistantHead {
    AssistantHead { api: "fake".to_owned(), provider: "p".to_owned(), model: "m1".to_owned(), timestamp: 7 }
}

fn started() -> FrameBuffer {
    let mut buffer = FrameBuffer::new();
    buffer.start(&head(), 0);
    buffer
}

fn text(delta: &str) -> BlockEvent {
    BlockEvent::TextDelta(delta.to_owned())
}

fn text_end(content: &str) -> BlockEvent {
    BlockEvent::TextEnd { content: content.to_owned(), signature: None }
}

fn usage(input: u64) -> Usage {
    Usage { input, total_tokens: input, ..Usage::default() }
}

fn call_start(id: &str) -> BlockEvent {
    BlockEvent::ToolCallStart { id: id.to_owned(), name: "echo".to_owned() }
}

/// The partial message of all batches.
fn reduced(batches: &[Value]) -> Option<AssistantMessage> {
    reduce(batches).unwrap().map(|partial| partial.message)
}

/// The batch of these events after a start.
fn batch(events: &[(usize, BlockEvent)]) -> Value {
    let mut buffer = started();
    for (index, event) in events {
        buffer.push(*index, event, 0);
    }
    buffer.take().unwrap()
}

#[test]
fn a_batch_holds_the_frames_of_the_stream_with_their_deltas_merged() {
    let mut call = ToolCall { id: "c1".to_owned(), name: "echo".to_owned(), ..ToolCall::default() };
    call.arguments.insert("value".to_owned(), json!(1));
    call.thought_signature = Some("ts".to_owned());
    let events = [
        (0, BlockEvent::ThinkingStart),
        (0, BlockEvent::ThinkingDelta("hm".to_owned())),
        (1, BlockEvent::TextStart),
        (0, BlockEvent::ThinkingEnd { content: "hm".to_owned(), signature: Some("s".to_owned()), redacted: true }),
        (1, text("a")),
        (1, text("")),
        (1, text("b")),
        (2, call_start("c1")),
        (2, BlockEvent::ToolCallDelta("{\"va".to_owned())),
        (2, BlockEvent::ToolCallDelta("l".to_owned())),
        (1, text("c")),
        (1, text_end("abc")),
        (2, BlockEvent::ToolCallEnd(Box::new(call))),
    ];
    let want = json!([
        {"type": "start", "partial": {"api": "fake", "provider": "p", "model": "m1", "timestamp": 7}},
        {"type": "thinking_start", "contentIndex": 0},
        {"type": "thinking_delta", "contentIndex": 0, "delta": "hm"},
        {"type": "text_start", "contentIndex": 1},
        {"type": "thinking_end", "contentIndex": 0, "content": "hm", "thinkingSignature": "s", "redacted": true},
        {"type": "text_delta", "contentIndex": 1, "delta": "ab"},
        {"type": "toolcall_start", "contentIndex": 2, "id": "c1", "toolName": "echo"},
        {"type": "toolcall_delta", "contentIndex": 2, "delta": "{\"val"},
        // The delta before it is gone: this frame replaces it.
        {"type": "text_end", "contentIndex": 1, "content": "abc"},
        {"type": "toolcall_end", "contentIndex": 2, "toolCall": {
            "type": "toolCall", "id": "c1", "name": "echo", "arguments": {"value": 1}, "thoughtSignature": "ts",
        }},
    ]);
    assert_eq!(batch(&events), want);
}

#[test]
fn a_batch_is_due_250_ms_after_its_first_frame_or_at_once() {
    let long = "x".repeat(4096);
    let short = "x".repeat(1000);
    for (what, events, want) in [
        ("nothing", vec![], None),
        ("a delta", vec![BlockEvent::TextStart, text("x")], Some(10 + FLUSH_AFTER_MS)),
        ("short deltas", vec![BlockEvent::TextStart, text(&short), text(&short)], Some(10 + FLUSH_AFTER_MS)),
        ("many bytes", vec![BlockEvent::TextStart, text(&short), text(&long)], Some(10)),
        ("an end", vec![BlockEvent::TextStart, text_end("x")], Some(10)),
    ] {
        let mut buffer = started();
        assert_eq!(buffer.due_ms(), None, "a start alone is worth no batch");
        if !events.is_empty() {
            assert!(buffer.take().is_some());
            assert_eq!(buffer.due_ms(), None, "{what}");
        }
        for (now_ms, event) in (10..).zip(&events) {
            buffer.push(0, event, now_ms);
        }
        assert_eq!(buffer.due_ms(), want, "{what}");
        assert!(buffer.take().is_some());
        assert_eq!(buffer.due_ms(), None, "{what}");
        assert_eq!(buffer.take(), None, "{what}");
    }
}

#[test]
fn nothing_is_kept_before_the_start_nor_of_a_block_that_is_not_open() {
    let mut buffer = FrameBuffer::new();
    buffer.push(0, &BlockEvent::TextStart, 0);
    assert_eq!(buffer.due_ms(), None);
    buffer.start(&head(), 0);
    buffer.start(&head(), 0);
    for event in [text("x"), text_end("x")] {
        buffer.push(0, &event, 0);
    }
    for event in [BlockEvent::TextStart, text_end("y"), text("z"), text_end("z"), BlockEvent::TextStart] {
        buffer.push(4, &event, 0);
    }
    let batch = buffer.take().unwrap();
    assert_eq!(batch.as_array().unwrap().len(), 3, "{batch}");
    assert_eq!(reduced(&[batch]).unwrap().text(), "y");
}

#[test]
fn blocks_are_counted_in_the_order_of_their_starts_whatever_the_stream_calls_them() {
    let mut events = Vec::new();
    for index in [9, 2, 5] {
        events.push((index, BlockEvent::TextStart));
    }
    for index in [2, 9, 5, 9] {
        events.push((index, text(&format!("{index}."))));
    }
    let message = reduced(&[batch(&events)]).unwrap();
    assert_eq!(message.text(), "9.9.2.5.");
}

#[test]
fn case_11_the_text_of_a_call_that_was_cut_off_is_read_as_far_as_it_goes() {
    for (raw, want) in [(r#"{"val"#, "{}"), (r#"{"value":"x"#, r#"{"value":"x"}"#), ("", "{}")] {
        let events = [(0, call_start("c1")), (0, BlockEvent::ToolCallDelta(raw.to_owned()))];
        let message = reduced(&[batch(&events)]).unwrap();
        let calls: Vec<&ToolCall> = message.calls().collect();
        assert_eq!((calls[0].id.as_str(), calls[0].name.as_str()), ("c1", "echo"));
        assert_eq!(Value::from(calls[0].arguments.clone()).to_string(), want);
    }
}

#[test]
fn a_checkpoint_replaces_the_text_of_a_call() {
    let first = batch(&[(0, call_start("c1")), (0, BlockEvent::ToolCallDelta(r#"{"a":1,"#.to_owned()))]);
    let rest = json!([
        {"type": "toolcall_checkpoint", "contentIndex": 0, "raw": r#"{"b""#},
        {"type": "toolcall_delta", "contentIndex": 0, "delta": ":2}"},
    ]);
    let message = reduced(&[first, rest]).unwrap();
    assert_eq!(Value::from(message.calls().next().unwrap().arguments.clone()), json!({"b": 2}));
}

#[test]
fn the_newest_numbers_stand_beside_the_message_which_bills_nothing() {
    let mut buffer = started();
    assert_eq!(reduce(&[]).unwrap().map(|partial| partial.usage), None);
    buffer.usage(&usage(1));
    buffer.usage(&usage(2));
    let mut batches = vec![buffer.take().unwrap()];
    assert_eq!(batches[0][0]["partial"]["usage"]["input"], 2);
    // Numbers alone make no batch.
    buffer.usage(&usage(3));
    assert_eq!((buffer.due_ms(), buffer.take()), (None, None));
    for (number, event) in [BlockEvent::TextStart, text("häl"), text("lo")].iter().enumerate() {
        buffer.push(0, event, 0);
        batches.extend(buffer.take());
        let partial = reduce(&batches).unwrap().unwrap();
        assert_eq!(partial.usage, Some(usage(3)));
        assert_eq!(partial.message.usage, Usage::default());
        assert_eq!(partial.message.stop_reason, StopReason::Pending);
        assert_eq!(partial.chars, [0, 3, 5][number]);
    }
    assert_eq!(batches[1], json!([{"type": "text_start", "contentIndex": 0, "usage": usage(3)}]));
    assert_eq!(batches[2], json!([{"type": "text_delta", "contentIndex": 0, "delta": "häl"}]));
    assert!(reduce(&[started().take().unwrap()]).unwrap().unwrap().usage.is_none());
}

#[test]
fn frames_that_tell_nothing_are_refused_with_the_reason() {
    let start = json!({"type": "start", "partial": {"api": "a", "provider": "p", "model": "m", "timestamp": 1}});
    let block = json!({"type": "text_start", "contentIndex": 0});
    let call = json!({"type": "toolcall_start", "contentIndex": 1, "id": "c", "toolName": "t"});
    for (frames, want) in [
        (json!({}), "is no list"),
        (json!("x"), "is no list"),
        (json!([1]), "a frame of batch 1"),
        (json!([{"contentIndex": 1}]), "`type`"),
        (json!([{"type": "text_middle", "contentIndex": 1}]), "text_middle"),
        (json!([{"type": "text_start"}]), "contentIndex"),
        (json!([{"type": "text_start", "contentIndex": -1}]), "-1"),
        (json!([{"type": "text_delta", "contentIndex": 0, "delta": 1}]), "a string"),
        (json!([{"type": "text_delta", "contentIndex": 0}]), "delta"),
        (json!([{"type": "start"}]), "partial"),
        (json!([start]), "a second start"),
        (json!([{"type": "text_start", "contentIndex": 0}]), "out of order"),
        (json!([{"type": "text_start", "contentIndex": 2}]), "out of order"),
        (json!([{"type": "text_delta", "contentIndex": 1, "delta": "x"}]), "not open"),
        (json!([{"type": "thinking_delta", "contentIndex": 0, "delta": "x"}]), "another kind"),
        (json!([{"type": "thinking_end", "contentIndex": 0, "content": "x"}]), "another kind"),
        (json!([{"type": "toolcall_delta", "contentIndex": 0, "delta": "x"}]), "another kind"),
        (json!([{"type": "toolcall_checkpoint", "contentIndex": 0, "raw": "x"}]), "another kind"),
        (json!([call, {"type": "text_delta", "contentIndex": 1, "delta": "x"}]), "another kind"),
        (
            json!([call, {"type": "toolcall_end", "contentIndex": 1, "toolCall": {"type": "text", "text": "x"}}]),
            "no call",
        ),
        (json!([call, {"type": "toolcall_end", "contentIndex": 1, "toolCall": {"type": "toolCall"}}]), "id"),
        (
            json!([
                {"type": "text_end", "contentIndex": 0, "content": "x"},
                {"type": "text_delta", "contentIndex": 0, "delta": "y"},
            ]),
            "not open",
        ),
    ] {
        let whole = [json!([start, block]), frames.clone()];
        let error = reduce(&whole).unwrap_err();
        assert!(error.contains(want) && error.contains("batch 1"), "{frames}: {error}");
    }
    assert!(reduce(&[json!([block])]).unwrap_err().contains("before the start"));
    assert!(reduce(&[json!([])]).unwrap().is_none());
}

#[test]
fn no_more_than_the_limit_is_kept_of_a_reply_and_what_is_kept_stays_readable() {
    for (what, piece, taken_at) in [
        ("taken when due", "x".repeat(100_000), 1),
        ("never taken", "x".repeat(100_000), usize::MAX),
        // As JSON six times as long, which is known only when the batch is made.
        ("control characters", "\u{1}".repeat(100_000), 1),
        ("control characters, never taken", "\u{1}".repeat(100_000), usize::MAX),
    ] {
        let mut buffer = started();
        let mut batches = vec![buffer.take().unwrap()];
        buffer.push(0, &BlockEvent::TextStart, 0);
        let mut whole = String::new();
        for number in 1..=200 {
            buffer.push(0, &text(&piece), 0);
            whole.push_str(&piece);
            if number % taken_at == 0 {
                batches.extend(buffer.take());
            }
        }
        buffer.push(0, &text_end(&whole), 0);
        assert_eq!(buffer.due_ms(), batches.get(1).is_none().then_some(0), "{what}");
        batches.extend(buffer.take());
        assert_eq!((buffer.due_ms(), buffer.take()), (None, None), "{what}");
        buffer.push(0, &text("y"), 0);
        assert_eq!((buffer.due_ms(), buffer.take()), (None, None), "{what}");
        let bytes: usize = batches.iter().map(|batch| json_bytes(batch).unwrap()).sum();
        assert!(bytes <= REPLY_BYTES_MAX, "{what}: {bytes}");
        let kept = reduced(&batches).unwrap().text();
        assert!(whole.starts_with(&kept), "{what}");
        let nothing = what == "control characters, never taken";
        assert_eq!(kept.is_empty(), nothing, "{what}");
        assert!(nothing || bytes > REPLY_BYTES_MAX - 1_000_000, "{what}: {bytes}");
    }
}

#[test]
fn a_hundred_thousand_deltas_are_kept_in_about_the_bytes_of_their_text() {
    const DELTAS: usize = 100_000;
    let mut buffer = started();
    let mut batches = Vec::new();
    buffer.push(0, &BlockEvent::TextStart, 0);
    let delta = text("abcd");
    for _ in 0..DELTAS {
        buffer.push(0, &delta, 0);
        if buffer.due_ms() == Some(0) {
            batches.extend(buffer.take());
        }
    }
    let streamed = DELTAS * 4;
    let bytes = |batches: &[Value]| -> usize { batches.iter().map(|batch| json_bytes(batch).unwrap()).sum() };
    assert!(bytes(&batches) <= streamed * 11 / 10, "{} of {streamed}", bytes(&batches));
    assert!(batches.len() <= streamed / 4000, "{} batches", batches.len());
    // The end of the block has its text once more.
    buffer.push(0, &text_end(&"abcd".repeat(DELTAS)), 0);
    batches.extend(buffer.take());
    assert!(bytes(&batches) <= streamed * 21 / 10, "{} of {streamed}", bytes(&batches));
    assert_eq!(reduce(&batches).unwrap().unwrap().chars, streamed);
}

/// A block of a reply, and how it streams.
#[derive(Clone, Debug)]
struct Planned {
    kind: u8,
    text: String,
    signature: Option<String>,
    chunk: usize,
    ends: bool,
}

impl Planned {
    fn events(&self, number: usize) -> Vec<BlockEvent> {
        let raw = if self.kind == 2 { json!({"value": self.text, "n": number}).to_string() } else { self.text.clone() };
        let pieces: Vec<char> = raw.chars().collect();
        let pieces = pieces.chunks(self.chunk).map(|piece| piece.iter().collect::<String>());
        let (signature, content) = (self.signature.clone(), self.text.clone());
        let (start, delta, end): (_, fn(String) -> BlockEvent, _) = match self.kind {
            0 => (BlockEvent::TextStart, BlockEvent::TextDelta, BlockEvent::TextEnd { content, signature }),
            1 => {
                let redacted = signature.as_ref().is_some_and(String::is_empty);
                let end = BlockEvent::ThinkingEnd { content, signature, redacted };
                (BlockEvent::ThinkingStart, BlockEvent::ThinkingDelta, end)
            }
            _ => {
                let id = format!("c{number}");
                let mut call = ToolCall { id: id.clone(), name: "echo".to_owned(), ..ToolCall::default() };
                call.thought_signature = signature;
                if number.is_multiple_of(2) {
                    call.arguments = serde_json::from_str(&raw).unwrap();
                } else {
                    call.arguments_error = Some(ArgumentsError { message: "no".to_owned(), raw });
                }
                (call_start(&id), BlockEvent::ToolCallDelta, BlockEvent::ToolCallEnd(Box::new(call)))
            }
        };
        let mut events = vec![start];
        events.extend(pieces.map(delta));
        events.extend(self.ends.then_some(end));
        events
    }
}

/// The events of all blocks. Starts keep their order, everything else may overlap; the stream leaves indexes out.
fn interleaved(blocks: &[Planned], picks: &[u8], step: usize) -> Vec<(usize, BlockEvent)> {
    let mut queues: Vec<_> =
        blocks.iter().enumerate().map(|(number, block)| block.events(number).into_iter().peekable()).collect();
    let mut events = Vec::new();
    let mut opened = 0;
    for pick in picks.iter().cycle() {
        let open: Vec<usize> = (0..opened).filter(|&at| queues[at].peek().is_some()).collect();
        let at = match open.get(usize::from(*pick) % (open.len() + 1)) {
            Some(&at) => at,
            None if opened < queues.len() => {
                opened += 1;
                opened - 1
            }
            None => match open.first() {
                Some(&at) => at,
                None => break,
            },
        };
        events.extend(queues[at].next().map(|event| (at * step, event)));
    }
    events
}

/// Whether a message is what was known of another one earlier: its blocks are among the other's, each with a first part of
/// the text. What a call has is compared only where it ended.
fn is_prefix(partial: &AssistantMessage, whole: &AssistantMessage) -> bool {
    let mut rest = whole.content.iter();
    partial.content.iter().all(|block| {
        rest.any(|other| match (block, other) {
            (AssistantBlock::Text(a), AssistantBlock::Text(b)) => b.text.starts_with(&a.text),
            (AssistantBlock::Thinking(a), AssistantBlock::Thinking(b)) => b.thinking.starts_with(&a.thinking),
            (AssistantBlock::ToolCall(a), AssistantBlock::ToolCall(b)) => (&a.id, &a.name) == (&b.id, &b.name),
            _ => false,
        })
    })
}

fn planned() -> impl Strategy<Value = Planned> {
    // A long one is more than one batch, in fewer pieces.
    let text = prop_oneof![
        4 => ("[a-zé😀\\\\\"\n ]{0,60}", 1..50usize),
        1 => ("[xyz]{50}", 300..500usize).prop_map(|(text, chunk)| (text.repeat(100), chunk)),
    ];
    let signature = proptest::option::of("[a-z]{0,3}");
    (0..3u8, text, signature, proptest::bool::weighted(0.8))
        .prop_map(|(kind, (text, chunk), signature, ends)| Planned { kind, text, signature, chunk, ends })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn batches_tell_at_every_moment_what_the_reader_of_the_stream_knows(
        blocks in proptest::collection::vec(planned(), 0..6),
        picks in proptest::collection::vec(any::<u8>(), 1..30),
        steps in proptest::collection::vec(0..400u64, 1..20),
        step in 1..4usize,
    ) {
        let events = interleaved(&blocks, &picks, step);
        let mut buffer = started();
        let mut builder = MessageBuilder::new(&head());
        let mut batches = Vec::new();
        let mut known = Vec::new();
        let mut now_ms = 0;
        for ((index, event), step_ms) in events.into_iter().zip(steps.iter().cycle()) {
            if let Some(event) = builder.apply(index, event) {
                buffer.push(index, &event, now_ms);
            }
            if buffer.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                batches.extend(buffer.take());
                known.push(builder.snapshot());
                prop_assert_eq!(reduced(&batches), known.last().cloned());
            }
            now_ms += step_ms;
        }
        batches.extend(buffer.take());
        let whole = builder.snapshot();
        prop_assert_eq!(reduced(&batches).unwrap_or_else(|| AssistantMessage::pending(&head())), whole.clone());
        for count in 0..=batches.len() {
            let partial = reduced(&batches[..count]);
            prop_assert!(partial.is_none_or(|partial| is_prefix(&partial, &whole)), "{count} of {}", batches.len());
        }
        prop_assert!(batches.len() <= known.len() + 1);
    }
}
