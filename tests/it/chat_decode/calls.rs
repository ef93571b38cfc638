//! Which fragment belongs to which call, and what its arguments are.

use pirn::model::{BlockEvent, StopReason};
use pirn::port::ProviderEvent;

use super::{USAGE, body, check_calls, check_reply, decode, delta, finish, options, show};

#[test]
fn a_call_comes_in_pieces_case_40() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"k1","type":"function","function":{"name":"read","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#,
        ],
        &["cs0 k1 read", r#"cd0 {"p":"#, "cd0 1}", "|", r#"ce0 k1 read {"p":1}"#],
    );
}

#[test]
fn interleaved_calls_are_not_mixed_case_41() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":"}},{"index":1,"id":"b","function":{"name":"y","arguments":"{\"q\":"}}]}"#,
            r#"{"tool_calls":[{"index":1,"function":{"arguments":"2}"}},{"index":0,"function":{"arguments":"1}"}}]}"#,
        ],
        &[
            "cs0 a x",
            r#"cd0 {"p":"#,
            "cs1 b y",
            r#"cd1 {"q":"#,
            "cd1 2}",
            "cd0 1}",
            "|",
            r#"ce0 a x {"p":1}"#,
            r#"ce1 b y {"q":2}"#,
        ],
    );
}

#[test]
fn whole_calls_with_one_index_are_told_apart_by_id_case_42() {
    check_reply(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
        ],
        "stop",
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"ce0 a x {"p":1}"#, "cs1 b y", "cd1 {}", "|", "ce1 b y {}"],
        &["done(toolUse raw=stop)"],
    );
}

#[test]
fn fragments_with_an_empty_id_go_to_the_newest_call_of_their_index_case_43() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"","function":{"arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"y","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"","function":{"arguments":"{\"q\":2}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"ce0 a x {"p":1}"#, "cs1 b y", r#"cd1 {"q":2}"#, "|", r#"ce1 b y {"q":2}"#],
    );
}

#[test]
fn calls_without_index_are_told_apart_by_id_or_name_cases_44_and_45_and_report_14() {
    let two = ["cs0 a x", "cd0 {}", "cs1 b y", "cd1 {}", "|", "ce0 a x {}", "ce1 b y {}"];
    check_calls(
        &[
            r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
        ],
        &two,
    );
    check_calls(
        &[
            r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{}"}},{"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
        ],
        &two,
    );
    // NET-14: only the first of three fragments has an id.
    check_calls(
        &[
            r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"p\""}}]}"#,
            r#"{"tool_calls":[{"function":{"arguments":":"}}]}"#,
            r#"{"tool_calls":[{"function":{"arguments":"1}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p""#, "cd0 :", "cd0 1}", "|", r#"ce0 a x {"p":1}"#],
    );
    // Arguments as an object; the id is made from the name (T-7).
    check_calls(
        &[r#"{"tool_calls":[{"function":{"name":"x","arguments":{"q":2}}}]}"#],
        &["cs0 x_1 x", r#"cd0 {"q":2}"#, "|", r#"ce0 x_1 x {"q":2}"#],
    );
    // OC-9 (d): a name after complete arguments, and another name before them, begin another call.
    check_calls(
        &[
            r#"{"tool_calls":[{"function":{"name":"x","arguments":{"q":2}}},{"function":{"name":"x","arguments":{"q":3}}}]}"#,
            r#"{"tool_calls":[{"function":{"name":"y"}},{"function":{"name":"z"}}]}"#,
        ],
        &[
            "cs0 x_1 x",
            r#"cd0 {"q":2}"#,
            r#"ce0 x_1 x {"q":2}"#,
            "cs1 x_2 x",
            r#"cd1 {"q":3}"#,
            r#"ce1 x_2 x {"q":3}"#,
            "cs2 y_3 y",
            "cs3 z_4 z",
            "|",
            "ce2 y_3 y {}",
            "ce3 z_4 z {}",
        ],
    );
}

#[test]
fn an_index_inside_the_function_counts_case_46() {
    check_calls(
        &[
            r#"{"tool_calls":[{"function":{"index":0,"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"function":{"index":1,"name":"y","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"function":{"index":0,"arguments":"}"}},{"function":{"index":1,"arguments":"}"}}]}"#,
        ],
        &["cs0 x_1 x", "cd0 {", "cs1 y_2 y", "cd1 {", "cd0 }", "cd1 }", "|", "ce0 x_1 x {}", "ce1 y_2 y {}"],
    );
}

#[test]
fn names_and_ids_may_repeat_or_come_late_case_47() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":null}}]}"#,
        ],
        &["cs0 a x", "cd0 {", "cd0 }", "|", "ce0 a x {}"],
    );
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"late","function":{"name":"x","arguments":"}"}}]}"#,
        ],
        &["cs0  ", "cd0 {", "cd0 }", "|", "ce0 late x {}"],
    );
    // An id that changes in the middle of the arguments begins no call.
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"}"}}]}"#,
        ],
        &["cs0 a x", "cd0 {", "cd0 }", "|", "ce0 a x {}"],
    );
    // One id for two calls: the index tells them apart, the message builder renames the second.
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"y","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"}"}},{"index":1,"id":"a","function":{"arguments":"}"}}]}"#,
        ],
        &["cs0 a x", "cd0 {", "cs1 a y", "cd1 {", "cd0 }", "cd1 }", "|", "ce0 a x {}", "ce1 a y {}"],
    );
    // A whole call sent twice runs once.
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"cd0 {"p":1}"#, "|", "note(trailing_arguments)", r#"ce0 a x {"p":1}"#],
    );
}

#[test]
fn a_placeholder_before_the_arguments_is_waited_out_rule_arg_3() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\":1}"}}]}"#,
        ],
        &["cs0 a x", "cd0 {}", "cs1 b y", "cd1 {}", r#"cd0 {"p":1}"#, "|", r#"ce0 a x {"p":1}"#, "ce1 b y {}"],
    );
}

#[test]
fn text_behind_a_call_that_ended_is_ignored() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":""}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"ce0 a x {"p":1}"#, "cs1 b y", "note(late_arguments)", "|", "ce1 b y {}"],
    );
}

#[test]
fn notes_about_calls_are_few_and_short_however_much_a_server_repeats() {
    let name = "n".repeat(1_000);
    let mut deltas = vec![
        format!(
            r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"{name}","arguments":"{{\"p\":1}}"}}}}]}}"#
        ),
        r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":""}}]}"#.to_owned(),
    ];
    deltas.extend(vec![r#"{"tool_calls":[{"index":0,"function":{"arguments":"late"}}]}"#.to_owned(); 500]);
    let chunks: Vec<String> = deltas.iter().map(|json| delta(json)).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let (events, _) = decode(options(), &[body(&chunks).as_bytes()]);
    let notes: Vec<&str> = events.iter().filter_map(note_text).collect();
    assert_eq!(notes, [format!("text behind the arguments of {}… was ignored", "n".repeat(99))]);

    let call = |at: usize| {
        delta(&format!(
            r#"{{"tool_calls":[{{"index":{at},"id":"i{at}","function":{{"name":"x","arguments":"{{}} and more"}}}}]}}"#
        ))
    };
    let chunks: Vec<String> = (0..300).map(call).chain([finish("tool_calls"), "[DONE]".to_owned()]).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let (events, error) = decode(options(), &[body(&chunks).as_bytes()]);
    assert_eq!((events.iter().filter_map(note_text).count(), error), (100, None));
}

fn note_text(event: &ProviderEvent) -> Option<&str> {
    match event {
        ProviderEvent::Note(note) => Some(&note.message),
        _ => None,
    }
}

#[test]
fn a_name_or_an_id_that_no_call_has_is_an_error() {
    let call = |id: usize, name: usize| {
        let (id, name) = ("i".repeat(id), "n".repeat(name));
        delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"id":"{id}","function":{{"name":"{name}","arguments":"{{}}"}}}}]}}"#
        ))
    };
    let end = [finish("tool_calls"), "[DONE]".to_owned()];
    for (id, name, want) in
        [(100_000, 1_000, None), (1, 1_001, Some("model_behavior")), (100_001, 1, Some("malformed"))]
    {
        let (events, error) = decode(options(), &[body(&[&call(id, name), &end[0], &end[1]]).as_bytes()]);
        assert_eq!(error.as_ref().map(|error| error.kind.as_str()), want, "{id} {name}");
        assert!(error.is_none_or(|error| error.message.len() < 200));
        let has_call =
            events.iter().any(|e| matches!(e, ProviderEvent::Block { event: BlockEvent::ToolCallStart { .. }, .. }));
        assert_eq!(has_call, want.is_none());
    }
}

#[test]
fn empty_fragments_make_no_call_and_a_single_one_needs_no_array() {
    check_reply(
        &[r#"{"content":"a","tool_calls":[]}"#, r#"{"tool_calls":null}"#, r#"{"tool_calls":[{},null]}"#],
        "stop",
        &["ts0", r#"td0"a""#, "|", r#"te0"a""#],
        &["done(stop)"],
    );
    check_calls(
        &[r#"{"tool_calls":{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}}"#],
        &["cs0 a x", "cd0 {}", "|", "ce0 a x {}"],
    );
}

#[test]
fn a_call_that_the_output_limit_cut_never_looks_callable_case_66() {
    check_reply(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"write","arguments":"{\"path\":\"a.txt\",\"content\":\"half"}}]}"#,
        ],
        "length",
        &["cs0 a write", r#"cd0 {"path":"a.txt","content":"half"#, "|", "ce0 a write {} argumentsError"],
        &["done(length)"],
    );
}

#[test]
fn a_call_that_is_never_named_is_an_error() {
    check_reply(
        &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}"#],
        "tool_calls",
        &["cs0 a ", "cd0 {}", "|"],
        &["error(model_behavior,retry)"],
    );
}

#[test]
fn arguments_are_read_in_every_disguise_cases_140_and_141_and_report_22() {
    for (arguments, want) in [
        (r#""{\"a\":\"x\ny\"}""#, r#"{"a":"x\ny"}"#),
        (r#""{\"p\":\"C:\\dir\"}""#, r#"{"p":"C:\\dir"}"#),
        (r#""{}{\"a\":1}""#, r#"{"a":1}"#),
        (r#""\"{\\\"a\\\":1}\"""#, r#"{"a":1}"#),
        (r#""""#, "{}"),
        (r#"" ""#, "{}"),
        ("null", "{}"),
        (r#""null""#, "{}"),
        ("{\"a\": [1]}", r#"{"a":[1]}"#),
    ] {
        let lines = body(&[
            &delta(&format!(
                r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"x","arguments":{arguments}}}}}]}}"#
            )),
            &finish("tool_calls"),
            "[DONE]",
        ]);
        let (events, error) = decode(options(), &[lines.as_bytes()]);
        let shown = show(&events, error.as_ref());
        assert!(shown.contains(&format!("ce0 a x {want}")), "{arguments}: {shown:?}");
    }
    // Absent.
    check_calls(
        &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls"}}]}"#],
        &["cs0 a ls", "|", "ce0 a ls {}"],
    );
}

#[test]
fn a_megabyte_of_arguments_in_small_deltas_is_exact_case_142() {
    let content: String = ('a'..='z').cycle().take(1 << 20).collect();
    let arguments = serde_json::json!({"path": "big \"file\"\n", "content": content});
    let text = arguments.to_string();
    let mut lines =
        body(&[&delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"write","arguments":""}}]}"#)]);
    for piece in text.as_bytes().chunks(16) {
        let piece = serde_json::to_string(std::str::from_utf8(piece).unwrap()).unwrap();
        lines += &body(&[&delta(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{piece}}}}}]}}"#))]);
    }
    lines += &body(&[&finish("tool_calls"), USAGE, "[DONE]"]);
    let pieces: Vec<&[u8]> = lines.as_bytes().chunks(16 * 1024).collect();
    let (events, error) = decode(options(), &pieces);
    assert_eq!(error, None);
    let deltas: String = events
        .iter()
        .filter_map(|event| match event {
            ProviderEvent::Block { event: BlockEvent::ToolCallDelta(text), .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(deltas == text, "the deltas are the text");
    let ended = events.iter().find_map(|event| match event {
        ProviderEvent::Block { event: BlockEvent::ToolCallEnd(call), .. } => Some(&call.arguments),
        _ => None,
    });
    assert!(ended == arguments.as_object(), "the object is exact");
    assert!(matches!(events.last(), Some(ProviderEvent::Done { stop_reason: StopReason::ToolUse, .. })));
}
