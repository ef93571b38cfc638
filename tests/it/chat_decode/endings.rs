//! Finish reasons, usage, and replies that end oddly.

use pirn::provider::wire::openai_chat::ChatDecoderOptions;
use pirn::provider::wire::openai_chat::encode::RequestChars;

use super::{USAGE, body, check, check_reply, check_with, decode, delta, finish, options, show};

#[test]
fn the_end_marker_alone_ends_a_reply_with_content_case_56_and_report_5() {
    let text = delta(r#"{"content":"x"}"#);
    let end = ["warning(no_finish_reason)", r#"te0"x""#];
    for lines in [vec![text.as_str(), USAGE, "[DONE]"], vec![&text, USAGE, " ", "data: [DONE] ", ""]] {
        check(&lines, &[&["start=c1", "ts0", r#"td0"x""#, "U=8/2/0/0"], end.as_slice(), &["done(stop)"]].concat());
    }
    // A call counts if its arguments are whole, else the stream broke off.
    let call = |arguments: &str| {
        delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"x","arguments":"{arguments}"}}}}]}}"#
        ))
    };
    check(
        &[&call("{}"), USAGE, "[DONE]"],
        &["start=c1", "cs0 a x", "cd0 {}", "U=8/2/0/0", "warning(no_finish_reason)", "ce0 a x {}", "done(toolUse)"],
    );
    check(&[&call("{"), USAGE, "[DONE]"], &["start=c1", "cs0 a x", "cd0 {", "U=8/2/0/0", "error(network,retry)"]);
    // Servers that never give a reason (compat `finish_reason = false`).
    let inferring = ChatDecoderOptions { finish_reason_required: false, ..options() };
    let lines = body(&[&text, USAGE]);
    check_with(&inferring, lines.as_bytes(), &["start=c1", "ts0", r#"td0"x""#, "U=8/2/0/0", r#"te0"x""#, "done(stop)"]);
}

#[test]
fn finish_reasons_map_to_stop_reasons_cases_57_and_58_and_reports_17_and_18() {
    let text = ["ts0", r#"td0"hi""#, "|", r#"te0"hi""#];
    for (reason, end) in [
        ("stop", "done(stop)"),
        ("STOP", "done(stop raw=STOP)"),
        ("end", "done(stop raw=end)"),
        ("eos", "done(stop raw=eos)"),
        ("eos_token", "done(stop raw=eos_token)"),
        ("stop_sequence", "done(stop raw=stop_sequence)"),
        ("length", "done(length)"),
        ("max_tokens", "done(length raw=max_tokens)"),
        ("model_length", "done(length raw=model_length)"),
        // Without any call: judged later, the same way for every protocol.
        ("tool_calls", "done(toolUse)"),
        ("model_context_window_exceeded", "done(length raw=model_context_window_exceeded overflow)"),
    ] {
        check_reply(&[r#"{"content":"hi"}"#], reason, &text, &[end]);
    }
    for reason in ["COMPLETE", "end_turn"] {
        let end = format!("done(stop raw={reason})");
        let warned = ["ts0", r#"td0"hi""#, "|", "warning(unknown_finish_reason)", r#"te0"hi""#];
        check_reply(&[r#"{"content":"hi"}"#], reason, &warned, &[&end]);
    }
    for (reason, error) in [
        ("content_filter", "error(content_filter)"),
        ("safety", "error(content_filter)"),
        ("sensitive", "error(content_filter)"),
        ("error", "error(server,retry)"),
        ("network_error", "error(network,retry)"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "error(model_behavior,retry)"),
        ("MALFORMED_FUNCTION_CALL", "error(model_behavior,retry)"),
    ] {
        // The text is kept and its block stays open (STREAM-5).
        check_reply(&[r#"{"content":"hi"}"#], reason, &["ts0", r#"td0"hi""#, "|"], &[error]);
    }
    // Calls count whatever the word.
    let call = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":"{}"}}]}"#;
    let warned = ["cs0 a ls", "cd0 {}", "|", "warning(unknown_finish_reason)", "ce0 a ls {}"];
    check_reply(&[call], "end_turn", &warned, &["done(toolUse raw=end_turn)"]);
    // Case 57.
    check(
        &[
            r#"{"id":"c1","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":""}]}"#,
            r#"{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            USAGE,
            "[DONE]",
        ],
        &["start=c1", "ts0", r#"td0"hi""#, "U=8/2/0/0", r#"te0"hi""#, "done(stop)"],
    );
    // A gateway's own "stop" does not hide that the reply was cut (NET-20).
    check(
        &[&delta(r#"{"content":"hi"}"#), &finish("length"), &finish("stop"), USAGE, "[DONE]"],
        &["start=c1", "ts0", r#"td0"hi""#, "U=8/2/0/0", r#"te0"hi""#, "done(length)"],
    );
}

#[test]
fn usage_is_found_in_three_places_and_the_last_report_counts_case_63_and_report_acc_1() {
    let text = delta(r#"{"content":"x"}"#);
    let finish = finish("stop");
    for report in [
        r#"{"id":"c1","choices":[{"index":0,"delta":{},"usage":{"prompt_tokens":12.0,"completion_tokens":2.0}}]}"#,
        r#"{"id":"c1","choices":[],"x_groq":{"id":"g","usage":{"prompt_tokens":12,"completion_tokens":2}}}"#,
        r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":"12","completion_tokens":2,"prompt_tokens_details":null}}"#,
    ] {
        check(
            &[&text, &finish, report, "[DONE]"],
            &["start=c1", "ts0", r#"td0"x""#, "U=12/2/0/0", r#"te0"x""#, "done(stop)"],
        );
    }
    let report =
        |completion: u32| format!(r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{completion}}}}}"#);
    check(
        &[
            &text,
            &report(10),
            &report(10),
            &report(50),
            &finish,
            &report(100),
            r#"{"choices":[],"usage":null}"#,
            r#"{"usage":{"prompt_tokens":0,"completion_tokens":0}}"#,
            "[DONE]",
        ],
        &["start=c1", "ts0", r#"td0"x""#, "U=5/10/0/0", "U=5/50/0/0", "U=5/100/0/0", r#"te0"x""#, "done(stop)"],
    );
}

#[test]
fn reasoning_that_is_counted_apart_is_added_to_the_output_case_64() {
    let text = delta(r#"{"content":"x"}"#);
    for completion in [10, 50] {
        let report = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{completion},"total_tokens":55,"completion_tokens_details":{{"reasoning_tokens":40}}}}}}"#
        );
        check(
            &[&text, &finish("stop"), &report, "[DONE]"],
            &["start=c1", "ts0", r#"td0"x""#, "U=5/50/0/0 reasoning=40", r#"te0"x""#, "done(stop)"],
        );
    }
}

#[test]
fn usage_that_nobody_reports_is_estimated_from_characters() {
    let options = ChatDecoderOptions { request_chars: RequestChars::Known(41), ..options() };
    let lines = body(&[
        &delta(r#"{"reasoning":"1234"}"#),
        &delta(r#"{"content":"é23"}"#),
        &delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}"#),
        &finish("tool_calls"),
    ]);
    let (events, error) = decode(options, &[lines.as_bytes()]);
    assert_eq!(error, None);
    assert!(show(&events, None).contains(&"U=11/3/0/0 estimated".to_owned()));
}

#[test]
fn a_call_behind_the_finish_reason_counts_case_65() {
    check(
        &[
            &finish("stop"),
            &delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}"#),
            USAGE,
            "[DONE]",
        ],
        &["start=c1", "cs0 a x", "cd0 {}", "U=8/2/0/0", "ce0 a x {}", "done(toolUse raw=stop)"],
    );
}

#[test]
fn a_message_in_place_of_a_delta_is_the_whole_reply_case_67() {
    check(
        &[
            r#"{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"all"},"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}"#,
            "[DONE]",
        ],
        &["start=c1", "U=8/2/0/0", "ts0", r#"td0"all""#, r#"te0"all""#, "done(stop)"],
    );
    // Behind deltas it only repeats them (x.ai).
    check(
        &[
            &delta(r#"{"content":"all"}"#),
            r#"{"id":"c1","choices":[{"index":0,"message":{"content":"all"},"finish_reason":"stop"}]}"#,
            USAGE,
            "[DONE]",
        ],
        &["start=c1", "ts0", r#"td0"all""#, "U=8/2/0/0", r#"te0"all""#, "done(stop)"],
    );
}

#[test]
fn an_empty_reply_is_noted_and_on_a_prompt_too_large_it_is_an_overflow_rule_err_10() {
    check_reply(&["{}"], "stop", &["|", "note(empty_response)"], &["done(stop)"]);
    check_reply(
        &[r#"{"reasoning":"hm"}"#],
        "stop",
        &["hs0", r#"hd0"hm""#, "|", "note(empty_response)", r#"he0"hm"~reasoning"#],
        &["done(stop)"],
    );
    let full = ChatDecoderOptions { request_chars: RequestChars::Known(4004), context_window: 1000, ..options() };
    let lines = body(&[&delta("{}"), &finish("stop"), "[DONE]"]);
    check_with(&full, lines.as_bytes(), &["start=c1", "error(overflow)"]);
}
