//! What holds for every body.

use pirn::port::ProviderEvent;
use pirn::provider::wire::openai_chat::ChatDecoderOptions;
use proptest::prelude::*;

use super::contract::check_contract;
use super::{USAGE, body, decode, delta, finish, options};

/// Bytes that look like a reply often enough to reach most branches.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let json = prop_oneof![
        Just(r#"{"content":"a"}"#),
        Just(r#"{"content":"\ud83d"}"#),
        Just(r#"{"content":"\ude80"}"#),
        Just(r#"{"content":"<think>"}"#),
        Just(r#"{"content":"</think>"}"#),
        Just(r#"{"reasoning":"r"}"#),
        Just(r#"{"reasoning_details":[{"type":"reasoning.text","text":"d"}]}"#),
        Just(r#"{"refusal":"no"}"#),
        Just(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#),
        Just(r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":"{"}}]}"#),
        Just(r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#),
        Just(r#"{"tool_calls":[{"function":{"name":"z","arguments":{}}}]}"#),
    ];
    let piece = prop_oneof![
        8 => json.prop_map(|json| body(&[&delta(json)]).into_bytes()),
        2 => Just(body(&[&finish("stop")]).into_bytes()),
        1 => Just(body(&[&finish("length")]).into_bytes()),
        1 => Just(body(&[USAGE]).into_bytes()),
        1 => Just(b"data: [DONE]\n\n".to_vec()),
        1 => Just(b"{\"error\":{\"code\":502}}\n".to_vec()),
        1 => Just(b"data: {\"error\":\"x\"}\n\n".to_vec()),
        1 => Just(b": comment\n\n".to_vec()),
        1 => Just(b"data: text\r\n\r\n".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// The events with all neighbouring deltas joined.
fn join(events: Vec<ProviderEvent>) -> Vec<ProviderEvent> {
    let mut joined: Vec<ProviderEvent> = Vec::new();
    for next in events {
        if let (
            Some(ProviderEvent::Block { index, event }),
            ProviderEvent::Block { index: next_index, event: next_event },
        ) = (joined.last_mut(), &next)
            && index == next_index
            && event.absorb(next_event)
        {
            continue;
        }
        joined.push(next);
    }
    joined
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_bytes_are_split(
        input in stream(),
        cuts in proptest::collection::vec(0usize..2000, 0..8),
        think_tags: bool,
    ) {
        let options = ChatDecoderOptions { think_tags, ..options() };
        let whole = decode(options.clone(), &[&input]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).chain([0, input.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
        prop_assert_eq!(decode(options, &pieces), whole);
    }

    #[test]
    fn joined_deltas_say_what_single_ones_say(
        input in stream(),
        repeats in 1usize..4,
        cut in 0usize..3000,
        think_tags: bool,
    ) {
        let input = input.repeat(repeats);
        let (head, tail) = input.split_at(cut.min(input.len()));
        let single = ChatDecoderOptions { think_tags, ..options() };
        let joining = ChatDecoderOptions { joins_deltas: true, ..single.clone() };
        let (events, error) = decode(single, &[&input]);
        let joined = decode(joining, &[head, tail]);
        prop_assert!(joined.0.len() <= events.len());
        prop_assert_eq!((join(joined.0), joined.1), (join(events), error));
    }

    #[test]
    fn every_reply_keeps_the_contract_of_a_stream(input in stream(), think_tags: bool) {
        let options = ChatDecoderOptions { think_tags, ..options() };
        let (events, error) = decode(options, &[&input]);
        check_contract(&events, error.is_none());
    }

    #[test]
    fn any_bytes_give_events_or_an_error(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (events, error) = decode(options(), &[&input]);
        check_contract(&events, error.is_none());
    }
}
