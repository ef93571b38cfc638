//! Case numbers are those of `engine.md`.

use super::{ASSISTANT_ERROR, NextAttempt, Overflow, RATE_LIMITED, after_error, backoff_ms, overflow};
use crate::model::{
    AssistantBlock, AssistantHead, AssistantMessage, ErrorKind, ErrorRecord, RetryPolicy, StopReason, ThinkingBlock,
    ToolCall, Usage,
};
use crate::turn::{classify, record_of_text};

const POLICY: RetryPolicy = RetryPolicy { max_attempts: 4, base_delay_ms: 10, max_agent_delay_ms: 1_000 };
const FAILED: NextAttempt = NextAttempt::Fail { code: ASSISTANT_ERROR, retry_after_ms: None };

fn retry(delay_ms: u64) -> NextAttempt {
    NextAttempt::Retry { delay_ms }
}

fn reply(stop_reason: StopReason, content: Vec<AssistantBlock>) -> AssistantMessage {
    AssistantMessage { content, stop_reason, ..AssistantMessage::pending(&AssistantHead::default()) }
}

/// An error reply without a record, as a careless adapter makes it.
fn bare(text: &str) -> AssistantMessage {
    AssistantMessage { error_message: Some(text.to_owned()), ..reply(StopReason::Error, Vec::new()) }
}

fn with(record: ErrorRecord) -> AssistantMessage {
    AssistantMessage { error: Some(record), ..bare("told by the record") }
}

fn of(kind: ErrorKind) -> ErrorRecord {
    ErrorRecord::new(kind, "x")
}

fn asking(kind: ErrorKind, retry_after_ms: u64) -> ErrorRecord {
    ErrorRecord { retry_after_ms: Some(retry_after_ms), ..of(kind) }
}

#[test]
fn a_failed_attempt_is_repeated_handed_on_or_final() {
    let call = AssistantBlock::ToolCall(ToolCall { id: "c1".into(), name: "echo".into(), ..ToolCall::default() });
    let with_call = AssistantMessage { content: vec![call], ..bare("503 overloaded") };
    let limited = NextAttempt::Fail { code: RATE_LIMITED, retry_after_ms: Some(5_000) };
    // A reply, the attempt, what follows without and with a further model.
    let rows: Vec<(&str, AssistantMessage, u32, NextAttempt, NextAttempt)> = vec![
        ("case 59", bare("503 overloaded"), 1, retry(10), retry(10)),
        ("case 60", bare("503 overloaded"), 2, retry(20), retry(20)),
        ("case 60", bare("503 overloaded"), 3, retry(40), retry(40)),
        ("cases 60, 118", bare("503 overloaded"), 4, FAILED, NextAttempt::Fallback),
        ("case 61", with(asking(ErrorKind::RateLimit, 300).retryable()), 1, retry(300), retry(300)),
        ("case 61", with(asking(ErrorKind::RateLimit, 5).retryable()), 1, retry(10), retry(10)),
        ("case 61", with(asking(ErrorKind::RateLimit, 1_000).retryable()), 1, retry(1_000), retry(1_000)),
        ("case 61", with(asking(ErrorKind::RateLimit, 5_000).retryable()), 1, limited, NextAttempt::Fallback),
        ("case 61", with(asking(ErrorKind::RateLimit, 5_000).retryable()), 4, limited, NextAttempt::Fallback),
        ("RETRY-4", with(asking(ErrorKind::RateLimit, 5_000)), 1, limited, NextAttempt::Fallback),
        ("a wait that is asked for with a wrong key", with(asking(ErrorKind::Protocol, 5_000)), 1, FAILED, FAILED),
        ("case 62", bare("insufficient_quota"), 1, FAILED, FAILED),
        ("case 62", bare("429 too many requests"), 1, retry(10), retry(10)),
        ("case 62", bare(""), 1, FAILED, FAILED),
        ("case 62", reply(StopReason::Error, Vec::new()), 1, FAILED, FAILED),
        ("case 64", with_call, 1, retry(10), retry(10)),
        ("case 65", classify(reply(StopReason::ToolUse, Vec::new())), 1, FAILED, FAILED),
        ("case 119", with(of(ErrorKind::Auth)), 1, FAILED, NextAttempt::Fallback),
        ("case 119", with(of(ErrorKind::Auth).retryable()), 1, FAILED, NextAttempt::Fallback),
        ("case 119", with(of(ErrorKind::Permission)), 1, FAILED, NextAttempt::Fallback),
        ("case 119", with(of(ErrorKind::NotFound)), 1, FAILED, NextAttempt::Fallback),
        ("case 119", bare("401 unauthorized"), 1, FAILED, NextAttempt::Fallback),
        ("case 119", with(of(ErrorKind::Quota).retryable()), 1, FAILED, FAILED),
        ("case 119", with(asking(ErrorKind::Quota, 5_000)), 1, FAILED, FAILED),
        ("case 120", classify(reply(StopReason::Stop, Vec::new())), 1, retry(10), retry(10)),
        ("case 120", classify(reply(StopReason::Stop, Vec::new())), 4, FAILED, NextAttempt::Fallback),
        ("case 120", classify(reply(StopReason::Stop, vec![AssistantBlock::text(" \n")])), 1, retry(10), retry(10)),
        ("case 121", with(of(ErrorKind::Refusal).retryable()), 1, FAILED, FAILED),
        ("case 121", with(of(ErrorKind::ContentFilter).retryable()), 1, FAILED, FAILED),
        ("a hook's refusal", with(of(ErrorKind::Hook)), 1, FAILED, FAILED),
        ("a server that forbids it", with(of(ErrorKind::Overloaded)), 1, FAILED, FAILED),
        ("an overflow that is no news", with(of(ErrorKind::Overflow)), 1, FAILED, FAILED),
        ("a reply nobody can use", with(of(ErrorKind::ModelBehavior).retryable()), 1, retry(10), retry(10)),
    ];
    for (name, reply, attempt, alone, with_fallback) in rows {
        let what = format!("{name}: {:?}, attempt {attempt}", reply.error);
        assert_eq!(after_error(&reply, &POLICY, attempt, false), alone, "{what}");
        assert_eq!(after_error(&reply, &POLICY, attempt, true), with_fallback, "{what}, a model left");
    }
}

#[test]
fn a_policy_of_one_attempt_repeats_nothing() {
    for max_attempts in [0, 1] {
        let policy = RetryPolicy { max_attempts, ..POLICY };
        assert_eq!(after_error(&bare("503 overloaded"), &policy, 1, false), FAILED);
        assert_eq!(after_error(&bare("503 overloaded"), &policy, 1, true), NextAttempt::Fallback);
    }
}

#[test]
fn case_120_thinking_alone_is_no_answer_and_a_cut_off_one_without_text_is() {
    let thinking = AssistantBlock::Thinking(ThinkingBlock { thinking: "hm".to_owned(), ..ThinkingBlock::default() });
    let silent = classify(reply(StopReason::Stop, vec![thinking]));
    assert_eq!(silent.error.as_ref().map(|record| record.kind), Some(ErrorKind::Empty));
    assert_eq!(after_error(&silent, &POLICY, 1, false), retry(10));
    let cut = classify(reply(StopReason::Length, Vec::new()));
    assert_eq!((cut.stop_reason, overflow(&cut, 0, 0)), (StopReason::Length, Overflow::None));
}

#[test]
fn case_60_a_delay_doubles_up_to_the_longest() {
    let max = u64::MAX;
    for (base_delay_ms, max_agent_delay_ms, expected) in [
        (10, 1_000, [10, 20, 40, 80]),
        (600, 1_000, [600, 1_000, 1_000, 1_000]),
        (2_000, 1_000, [1_000; 4]),
        (0, 1_000, [0; 4]),
        (max, max, [max; 4]),
    ] {
        let policy = RetryPolicy { max_attempts: 5, base_delay_ms, max_agent_delay_ms };
        assert_eq!([1, 2, 3, 4].map(|attempt| backoff_ms(&policy, attempt)), expected, "base {base_delay_ms}");
    }
    let endless = RetryPolicy { max_attempts: u32::MAX, base_delay_ms: 3, max_agent_delay_ms: max };
    assert_eq!([0, 1, 64, 65, u32::MAX].map(|attempt| backoff_ms(&endless, attempt)), [3, 3, max, max, max]);
}

#[test]
fn a_reply_that_did_not_fit_is_told_from_one_that_did() {
    const WINDOW: u64 = 1_000;
    let told = |stop, input: u64, cache_read: u64, output: u64| {
        let mut usage = Usage { input, output, cache_read, ..Usage::default() };
        usage.sum_total();
        AssistantMessage { usage, ..reply(stop, vec![AssistantBlock::text("x")]) }
    };
    let guessed = |mut reply: AssistantMessage| {
        reply.usage.estimated = Some(true);
        reply
    };
    let flagged = |content| AssistantMessage { overflow: Some(true), ..reply(StopReason::Length, content) };
    let (stop, length) = (StopReason::Stop, StopReason::Length);
    // A reply, the output asked for, the window.
    let rows: Vec<(AssistantMessage, u64, u64, Overflow)> = vec![
        (with(of(ErrorKind::Overflow)), 0, 0, Overflow::Certain),
        (bare("prompt is too long: 9 tokens > 8 maximum"), 0, 0, Overflow::Certain),
        (bare("rate limit: too many tokens"), 0, WINDOW, Overflow::None),
        // The record beats the text.
        (with(of(ErrorKind::InvalidRequest)), 0, WINDOW, Overflow::None),
        (told(stop, 600, 401, 5), 0, WINDOW, Overflow::Suspected),
        (told(stop, 600, 400, 5), 0, WINDOW, Overflow::None),
        (told(stop, 600, 401, 5), 0, 0, Overflow::None),
        (guessed(told(stop, 1_200, 0, 5)), 0, WINDOW, Overflow::None),
        (told(length, 90, 900, 0), 0, WINDOW, Overflow::Certain),
        (told(length, 89, 900, 0), 0, WINDOW, Overflow::None),
        (told(length, 990, 0, 0), 0, 0, Overflow::None),
        (told(length, 990, 0, 1), 0, WINDOW, Overflow::None),
        (told(length, 100, 0, 20), 21, WINDOW, Overflow::Suspected),
        (told(length, 100, 0, 20), 21, 0, Overflow::Suspected),
        (told(length, 100, 0, 20), 20, WINDOW, Overflow::None),
        (told(length, 100, 0, 20), 0, WINDOW, Overflow::None),
        (told(length, 0, 0, 0), 20, WINDOW, Overflow::None),
        (guessed(told(length, 100, 0, 20)), 21, WINDOW, Overflow::None),
        (flagged(vec![AssistantBlock::text("x")]), 0, 0, Overflow::Suspected),
        (flagged(Vec::new()), 0, 0, Overflow::Certain),
        (told(StopReason::ToolUse, 2_000, 0, 5), 9, WINDOW, Overflow::None),
        (told(StopReason::Aborted, 2_000, 0, 0), 9, WINDOW, Overflow::None),
        (told(length, u64::MAX, u64::MAX, 0), 0, u64::MAX, Overflow::Certain),
    ];
    for (at, (reply, intended, window, expected)) in rows.into_iter().enumerate() {
        assert_eq!(overflow(&reply, intended, window), expected, "row {at}");
    }
}

#[test]
fn an_error_of_which_only_a_text_is_known_is_told_by_its_words() {
    use ErrorKind::{
        Auth, InvalidRequest, Network, NotFound, Overflow, Overloaded, Protocol, Quota, RateLimit, Server, Timeout,
    };
    let rows = [
        ("", Protocol, false),
        ("  \n", Protocol, false),
        ("something odd", Protocol, false),
        ("insufficient_quota", Quota, false),
        ("429 insufficient quota", Quota, false),
        ("You exceeded your current quota, please check your plan and billing details.", Quota, false),
        ("Monthly usage limit reached", Quota, false),
        ("402 Payment Required", Quota, false),
        ("Your credit balance is too low, try again later", Quota, false),
        ("prompt is too long: 210000 tokens > 200000 maximum", Overflow, false),
        ("400 context_length_exceeded", Overflow, false),
        ("This model's maximum context length is 8,192 tokens", Overflow, false),
        ("413 request entity too large", Overflow, false),
        ("too many tokens", Overflow, false),
        ("429: too many tokens", RateLimit, true),
        ("rate limit reached: too many tokens", RateLimit, true),
        ("429 too many requests", RateLimit, true),
        ("rate_limit_error", RateLimit, true),
        ("503 overloaded", Overloaded, true),
        ("HTTP 529", Overloaded, true),
        ("HTTP/1.1 503 Service Unavailable", Overloaded, true),
        ("HTTP/2 502", Server, true),
        ("the model is overloaded", Overloaded, true),
        ("status code 500", Server, true),
        ("Error: 504 gateway", Server, true),
        ("internal_server_error", Server, true),
        ("request timed out", Timeout, true),
        ("408", Timeout, true),
        ("connection reset by peer", Network, true),
        ("stream ended before the last event", Network, true),
        ("an error occurred, please retry", Server, true),
        ("You can retry your request", Server, true),
        ("401 Unauthorized", Auth, false),
        ("404 no such model", NotFound, false),
        ("400 bad request", InvalidRequest, false),
        ("501 not implemented", InvalidRequest, false),
        // Numbers that are no status.
        ("at most 500 tokens are given", Protocol, false),
        ("error at line 503", Protocol, false),
        ("the http request took 503 attempts", Protocol, false),
        ("code 5031", Protocol, false),
    ];
    for (text, kind, retryable) in rows {
        let record = record_of_text(text);
        assert_eq!((record.kind, record.retryable), (kind, retryable), "{text:?}");
        let message = if text.trim().is_empty() { "Unknown provider error" } else { text };
        assert_eq!(record.message, message);
        // A reply without a record is classified by the same words.
        let settled = classify(bare(text)).error.unwrap();
        assert_eq!((settled.kind, settled.retryable), (kind, retryable), "{text:?}");
    }
}

#[test]
fn an_endless_error_text_is_searched_up_to_a_bound() {
    let text = format!("{} overloaded", "é ".repeat(9_000));
    assert_eq!(record_of_text(&text).kind, ErrorKind::Protocol);
}
