//! Server-sent events: cases 1 to 15 of `tests/cases/providers.md` and the rules SSE-1 to SSE-13. Each input is read
//! whole, byte by byte, and cut in two at every place. (Case 11 is the protocol's, see `chat_decode`; case 16 belongs to the HTTP layer.)

use pirn::provider::sse::{LINE_BYTES_MAX, SseDecoder, SseItem, SseLimits};
use proptest::prelude::*;

/// Everything a decoder gives for these pieces, one line each.
fn decode(pieces: &[&[u8]], limits: SseLimits) -> Vec<String> {
    let mut decoder = SseDecoder::with_limits(limits);
    let mut seen = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        if drain(&mut decoder, &mut seen) {
            return seen;
        }
    }
    decoder.finish();
    drain(&mut decoder, &mut seen);
    seen
}

/// Gives true after an error.
fn drain(decoder: &mut SseDecoder, seen: &mut Vec<String>) -> bool {
    loop {
        match decoder.next_item() {
            Ok(None) => return false,
            Ok(Some(SseItem::Event { event, data, id })) => {
                let id = id.map(|id| format!(" id={id}")).unwrap_or_default();
                seen.push(format!("({},{data:?}){id}", event.unwrap_or("–")));
            }
            Ok(Some(SseItem::Stray(line))) => seen.push(format!("stray {line:?}")),
            Err(error) => {
                seen.push(format!("error {error}"));
                return true;
            }
        }
    }
}

fn check_with(input: &[u8], limits: SseLimits, want: &[&str]) {
    assert_eq!(decode(&[input], limits), want, "whole: {:?}", String::from_utf8_lossy(input));
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(decode(&bytes, limits), want, "byte by byte: {:?}", String::from_utf8_lossy(input));
    for at in 0..=input.len() {
        let (head, tail) = input.split_at(at);
        assert_eq!(decode(&[head, tail], limits), want, "cut at {at}: {:?}", String::from_utf8_lossy(input));
    }
}

fn check(input: impl AsRef<[u8]>, want: &[&str]) {
    check_with(input.as_ref(), SseLimits::default(), want);
}

#[test]
fn line_ends_may_be_mixed_and_cut_cases_1_to_3() {
    check("data: a\n\ndata: b\n\n", &[r#"(–,"a")"#, r#"(–,"b")"#]);
    check("data: a\r\rdata: b\r\r", &[r#"(–,"a")"#, r#"(–,"b")"#]);
    check("data: a\r\n\r\ndata: b\r\n\r\n", &[r#"(–,"a")"#, r#"(–,"b")"#]);
    check("event: x\r\ndata: 1\r\n\r\n", &[r#"(x,"1")"#]);
    check("data: a\n\r\ndata: b\r\n\n", &[r#"(–,"a")"#, r#"(–,"b")"#]);
}

#[test]
fn data_lines_are_joined_and_one_blank_is_removed_case_4() {
    check("data: one\ndata:two\ndata:  three\n\n", &[r#"(–,"one\ntwo\n three")"#]);
    check("data: a\ndata\ndata: b\n\n", &[r#"(–,"a\n\nb")"#]);
}

#[test]
fn comments_and_a_byte_order_mark_say_nothing_cases_5_and_6() {
    check(": hi\n\n: keep-alive\n\ndata: z\n\n", &[r#"(–,"z")"#]);
    check("data: a\n: between\ndata: b\n\n", &[r#"(–,"a\nb")"#]);
    check("\u{feff}data: a\n\n", &[r#"(–,"a")"#]);
    check("data: a\n\n\u{feff}data: b\n\n", &[r#"(–,"a")"#, r#"stray "\u{feff}data: b""#]);
}

#[test]
fn characters_survive_every_cut_and_only_line_feeds_end_lines_cases_7_8_13() {
    check("data: é😀\n\n", &[r#"(–,"é😀")"#]);
    check("data: a\u{2028}b\u{85}c\u{b}d\u{c}e\n\n", &[r#"(–,"a\u{2028}b\u{85}c\u{b}d\u{c}e")"#]);
    check(b"data: a\xffb\n\n", &["(–,\"a\u{fffd}b\")"]);
    check(b"data: a\xe2\x82\ndata: b\n\n", &["(–,\"a\u{fffd}\\nb\")"]);
    check("data: a\0b\n\n", &[r#"(–,"a\0b")"#]);
}

#[test]
fn events_without_data_are_dropped_with_their_name_cases_9_and_12() {
    check("event: ping\n\ndata: q\n\n", &[r#"(–,"q")"#]);
    check("data\n\ndata:\n\ndata: x\n\n", &[r#"(–,"x")"#]);
    check("data:  \n\ndata: \t\ndata:\n\n", &[]);
}

#[test]
fn the_end_of_the_body_ends_the_last_line_and_event_case_10() {
    check("data: tail", &[r#"(–,"tail")"#]);
    check("data: tail\n", &[r#"(–,"tail")"#]);
    check("event: e\ndata: a\ndata: b", &[r#"(e,"a\nb")"#]);
    check("event: e", &[]);
    check("", &[]);
}

#[test]
fn unknown_fields_and_names_with_other_letters_are_stray_case_14() {
    check("id: 7\0\nretry: 10\nfoo: bar\ndata: k\n\n", &[r#"stray "foo: bar""#, r#"(–,"k")"#]);
    check("id: 7\ndata: k\n\ndata: l\n\n", &[r#"(–,"k") id=7"#, r#"(–,"l")"#]);
    check(
        "Data: a\ndata : b\nevent: x\nevent: y\ndata: c\n\n",
        &[r#"stray "Data: a""#, r#"stray "data : b""#, r#"(y,"c")"#],
    );
    // NET-08.
    check("data: a\n\n{\"error\":1}\n", &[r#"(–,"a")"#, r#"stray "{\"error\":1}""#]);
}

const SMALL: SseLimits = SseLimits { line_bytes: 12, event_bytes: 10, body_bytes: 60 };

#[test]
fn each_limit_is_exact_and_what_came_before_is_given() {
    check_with(b"data: 123456\n\n", SMALL, &[r#"(–,"123456")"#]);
    check_with(
        b"data: 1\n\ndata: 1234567\n\n",
        SMALL,
        &[r#"(–,"1")"#, "error a line of the stream is larger than 12 bytes"],
    );
    check_with(b"data: 123456\ndata: 123\n\n", SMALL, &[r#"(–,"123456\n123")"#]);
    check_with(b"data: 123456\ndata: 1234\n\n", SMALL, &["error an event of the stream is larger than 10 bytes"]);
    let exact = "data: 1234\n\n".repeat(5);
    let mut want = vec![r#"(–,"1234")"#; 5];
    check_with(exact.as_bytes(), SMALL, &want);
    want.push("error the stream is larger than 60 bytes");
    check_with(format!("{exact}\n").as_bytes(), SMALL, &want);
    check_with(format!("{exact}data: x\n\n").as_bytes(), SMALL, &want);
}

#[test]
fn a_line_of_17_mib_is_refused_and_one_of_10_mib_is_not_case_15() {
    let line = |mib: usize| format!("data: {}\n\n", "x".repeat(mib << 20));
    let got = decode(&[line(17).as_bytes()], SseLimits::default());
    assert_eq!(got, ["error a line of the stream is larger than 16 MiB"]);
    // Without an end in sight the limit holds as well.
    let open = format!("data: {}", "x".repeat(LINE_BYTES_MAX));
    let pieces: Vec<&[u8]> = open.as_bytes().chunks(1 << 20).collect();
    assert_eq!(decode(&pieces, SseLimits::default()), ["error a line of the stream is larger than 16 MiB"]);
    let mut decoder = SseDecoder::default();
    for piece in line(10).as_bytes().chunks(16 * 1024) {
        decoder.push(piece);
    }
    assert!(matches!(decoder.next_item(), Ok(Some(SseItem::Event { data, .. })) if data.len() == 10 << 20));
}

/// Bytes that look like a stream often enough to reach every branch.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"data".to_vec()),
        Just(b"event: e".to_vec()),
        Just(b"id: 1".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b":".to_vec()),
        Just(b"\xef\xbb\xbf".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_bytes_are_split(input in stream(), cuts in proptest::collection::vec(0usize..200, 0..8)) {
        let limits = SseLimits { line_bytes: 40, event_bytes: 60, body_bytes: 120 };
        let whole = decode(&[&input], limits);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).chain([0, input.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
        prop_assert_eq!(decode(&pieces, limits), whole);
    }
}
