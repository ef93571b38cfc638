//! Text, thinking and what stands between.

use pirn::model::BlockEvent;
use pirn::port::ProviderEvent;
use pirn::provider::wire::openai_chat::ChatDecoderOptions;

use super::{USAGE, body, check, check_calls, check_reply, check_with, decode, delta, finish, options};

#[test]
fn text_with_usage_and_end_marker_cases_11_and_39() {
    check(
        &[
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":33,"completion_tokens":11,"total_tokens":44,"prompt_tokens_details":{"cached_tokens":30}}}"#,
            "[DONE]",
            r#"{"id":"c1","choices":[{"index":0,"delta":{"content":"never"}}]}"#,
        ],
        &["start=c1", "ts0", r#"td0"Hi""#, "U=3/11/30/0", r#"te0"Hi""#, "done(stop)"],
    );
}

#[test]
fn reasoning_comes_in_one_of_three_fields_or_in_two_at_once_case_48() {
    for (json, field) in [
        (r#"{"reasoning_content":"a","reasoning":"a"}"#, "reasoning_content"),
        (r#"{"reasoning_content":"","reasoning":"a"}"#, "reasoning"),
        (r#"{"reasoning_content":null,"reasoning_text":"a"}"#, "reasoning_text"),
    ] {
        let end = format!("he0\"a\"~{field}");
        check_reply(
            &[json, r#"{"content":"t"}"#],
            "stop",
            &["hs0", r#"hd0"a""#, &end, "ts1", r#"td1"t""#, "|", r#"te1"t""#],
            &["done(stop)"],
        );
    }
}

#[test]
fn a_change_of_kind_ends_the_open_block_case_49() {
    check_reply(
        &[r#"{"reasoning":"r1"}"#, r#"{"content":"t1"}"#, r#"{"reasoning":"r2"}"#, r#"{"content":"t2"}"#],
        "stop",
        &[
            "hs0",
            r#"hd0"r1""#,
            r#"he0"r1"~reasoning"#,
            "ts1",
            r#"td1"t1""#,
            r#"te1"t1""#,
            "hs2",
            r#"hd2"r2""#,
            r#"he2"r2"~reasoning"#,
            "ts3",
            r#"td3"t2""#,
            "|",
            r#"te3"t2""#,
        ],
        &["done(stop)"],
    );
    // A call ends text; text behind an open call stands beside it and ends after it.
    check_calls(
        &[
            r#"{"content":"t"}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"content":"u"}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}"#,
        ],
        &[
            "ts0",
            r#"td0"t""#,
            r#"te0"t""#,
            "cs1 a x",
            "cd1 {",
            "ts2",
            r#"td2"u""#,
            "cd1 }",
            "|",
            "ce1 a x {}",
            r#"te2"u""#,
        ],
    );
}

#[test]
fn content_may_be_an_array_of_parts_case_50() {
    check_reply(
        &[r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#, r#"{"content":"ok"}"#],
        "stop",
        &["hs0", r#"hd0"hm""#, r#"he0"hm""#, "ts1", r#"td1"ok""#, "|", r#"te1"ok""#],
        &["done(stop)"],
    );
    check_reply(
        &[
            r#"{"content":[{"type":"thinking","thinking":"h"},{"type":"text","text":"a"},{"type":"reference","text":"no"},{"text":"b"}]}"#,
        ],
        "stop",
        &["hs0", r#"hd0"h""#, r#"he0"h""#, "ts1", r#"td1"a""#, r#"td1"b""#, "|", r#"te1"ab""#],
        &["done(stop)"],
    );
}

#[test]
fn reasoning_details_are_kept_for_replay_and_shown_only_alone_rule_oc_7() {
    let text = r#"[{"type":"reasoning.text","text":"ab"}]"#;
    let end = format!(r#"he0"ab"~{text}"#);
    let split = |plain: bool| {
        ["a", "b"].map(|piece| {
            let field = if plain { format!(r#""reasoning":"{piece}","#) } else { String::new() };
            format!(r#"{{{field}"reasoning_details":[{{"type":"reasoning.text","text":"{piece}"}}]}}"#)
        })
    };
    for plain in [true, false] {
        let [a, b] = split(plain);
        check_reply(
            &[&a, &b, r#"{"content":"t"}"#],
            "stop",
            &["hs0", r#"hd0"a""#, r#"hd0"b""#, &end, "ts1", r#"td1"t""#, "|", r#"te1"t""#],
            &["done(stop)"],
        );
    }
    // What belongs to no thinking is carried by an empty block.
    check_reply(
        &[r#"{"content":"t","reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}"#],
        "stop",
        &["ts0", r#"td0"t""#, "|", r#"te0"t""#, "hs1", r#"he1""~[{"type":"reasoning.encrypted","data":"x"}]"#],
        &["done(stop)"],
    );
}

#[test]
fn chunks_that_say_nothing_are_ignored_case_51_and_report_16() {
    check(
        &[
            r#"{"id":"","choices":[],"model":"","object":"","prompt_filter_results":[{"prompt_index":0}]}"#,
            r#"{"id":"c1","model":"other","choices":[{"index":0,"delta":{"content":"t"}}]}"#,
            r#"{"choices":[{"index":0,"finish_reason":null,"content_filter_results":{}}]}"#,
            r#"{"choices":[{"index":0,"delta":null}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"another choice"}}]}"#,
            r#"{"usage":{"prompt_tokens":8,"completion_tokens":2}}"#,
            r#"{"choices":null}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ],
        &["start=c1@other", "ts0", r#"td0"t""#, "U=8/2/0/0", r#"te0"t""#, "done(stop)"],
    );
}

#[test]
fn halves_of_characters_are_joined_across_deltas_cases_60_to_62() {
    check_reply(
        &[r#"{"content":"ab\ud83d"}"#, r#"{"content":"\ude80cd"}"#],
        "stop",
        &["ts0", r#"td0"ab""#, r#"td0"🚀cd""#, "|", r#"te0"ab🚀cd""#],
        &["done(stop)"],
    );
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"x\":\"🚀\ud83d"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\ude80\"}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"x":"🚀"#, r#"cd0 🚀"}"#, "|", r#"ce0 a x {"x":"🚀🚀"}"#],
    );
    // Case 62: the half stays alone; what was held comes before the usage only because the reply is over there.
    check(
        &[&delta(r#"{"content":"end\ud83d"}"#), &finish("stop"), USAGE, "[DONE]"],
        &["start=c1", "ts0", r#"td0"end""#, "U=8/2/0/0", "td0\"\u{fffd}\"", "te0\"end\u{fffd}\"", "done(stop)"],
    );
    // Never across blocks.
    check_reply(
        &[r#"{"reasoning":"a\ud83d"}"#, r#"{"content":"\ude80b"}"#],
        "stop",
        &[
            "hs0",
            r#"hd0"a""#,
            "hd0\"\u{fffd}\"",
            "he0\"a\u{fffd}\"~reasoning",
            "ts1",
            "td1\"\u{fffd}b\"",
            "|",
            "te1\"\u{fffd}b\"",
        ],
        &["done(stop)"],
    );
}

#[test]
fn thinking_between_tags_is_split_off_where_the_dialect_says_so_case_69() {
    let tagged = ChatDecoderOptions { think_tags: true, ..options() };
    let deltas =
        [r#"{"content":"<thi"}"#, r#"{"content":"nk>plan</th"}"#, r#"{"content":"ink>\n\nanswer"}"#].map(delta);
    let lines = body(&[&deltas[0], &deltas[1], &deltas[2], &finish("stop"), USAGE, "[DONE]"]);
    check_with(
        &tagged,
        lines.as_bytes(),
        &[
            "start=c1",
            "hs0",
            r#"hd0"plan""#,
            r#"he0"plan""#,
            "ts1",
            r#"td1"answer""#,
            "U=8/2/0/0",
            r#"te1"answer""#,
            "done(stop)",
        ],
    );
    // What looked like a tag and was none is kept, also when the reply breaks off.
    let cut = body(&[&delta(r#"{"content":"<thi"}"#)]);
    check_with(&tagged, cut.as_bytes(), &["start=c1", "ts0", r#"td0"<thi""#, "error(network,retry)"]);
    // Off by default.
    check_reply(
        &[r#"{"content":"<think>x</think>"}"#],
        "stop",
        &["ts0", r#"td0"<think>x</think>""#, "|", r#"te0"<think>x</think>""#],
        &["done(stop)"],
    );
}

#[test]
fn proxies_may_reframe_a_stream_reports_1_and_2() {
    let plain = body(&[&delta(r#"{"content":"你好 🎉 é"}"#), &finish("stop"), USAGE, "[DONE]"]);
    let want = ["start=c1", "ts0", r#"td0"你好 🎉 é""#, "U=8/2/0/0", r#"te0"你好 🎉 é""#, "done(stop)"];
    for framed in [
        plain.clone(),
        plain.replace('\n', "\r\n"),
        plain.replace("data: ", "data:"),
        plain.replace("data: ", ": keep-alive\n\nid: 7\nretry: 10\nevent: message\ndata: "),
        plain.trim_end().to_owned(),
        plain.replace("data: [DONE]\n\n", ""),
    ] {
        check_with(&options(), framed.as_bytes(), &want);
    }
}

#[test]
fn white_space_in_front_of_a_tag_costs_the_same_in_many_pieces() {
    // Were every piece to look at all that came before it, this would take hours.
    let tagged = ChatDecoderOptions { think_tags: true, ..options() };
    let blank = body(&[&delta(r#"{"content":" "}"#)]).repeat(300_000);
    let end = body(&[&delta(r#"{"content":"x"}"#), &finish("stop"), "[DONE]"]);
    let (events, error) = decode(tagged, &[blank.as_bytes(), end.as_bytes()]);
    assert_eq!(error, None);
    let text: usize = events
        .iter()
        .map(|event| match event {
            ProviderEvent::Block { event: BlockEvent::TextDelta(text), .. } => text.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(text, 300_001, "no text is lost");
}

#[test]
fn deltas_of_one_piece_are_joined_where_wanted_up_to_a_limit() {
    let joining = ChatDecoderOptions { joins_deltas: true, ..options() };
    let text = body(&[&delta(r#"{"content":"0123456789"}"#)]).repeat(1000);
    let end = body(&[&finish("stop"), "[DONE]"]);
    let (events, error) = decode(joining, &[text.as_bytes(), end.as_bytes()]);
    assert_eq!(error, None);
    let lengths: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            ProviderEvent::Block { event: BlockEvent::TextDelta(text), .. } => Some(text.len()),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [8190, 1810]);
}

#[test]
fn a_part_whose_key_stands_twice_is_not_lost() {
    check_reply(
        &[r#"{"content":[{"type":"text","text":"a","text":"b"}]}"#],
        "stop",
        &["ts0", r#"td0"b""#, "|", r#"te0"b""#],
        &["done(stop)"],
    );
}
