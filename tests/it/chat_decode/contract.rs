//! What every event list of a decoder keeps. The fuzz target uses it too.

use pirn::model::BlockEvent;
use pirn::port::ProviderEvent;

/// STREAM-2 to STREAM-5 and STREAM-9, as far as they concern a decoder.
pub(crate) fn check_contract(events: &[ProviderEvent], complete: bool) {
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut blocks = 0;
    let mut started = false;
    for (at, event) in events.iter().enumerate() {
        match event {
            ProviderEvent::Start { .. } => {
                assert!(!started, "one start");
                started = true;
            }
            ProviderEvent::Block { index, event } => {
                assert!(started, "no block before the start");
                assert!(!event.is_empty_delta(), "no empty delta");
                check_block(*index, event, &mut open, &mut blocks);
            }
            ProviderEvent::Done { .. } => {
                assert_eq!(at + 1, events.len(), "nothing behind the end");
                assert!(open.is_empty(), "every block has ended");
            }
            ProviderEvent::Usage(_) | ProviderEvent::Warning { .. } | ProviderEvent::Note(_) => {}
            ProviderEvent::Meta(_) => panic!("a decoder knows no head"),
        }
    }
    assert_eq!(matches!(events.last(), Some(ProviderEvent::Done { .. })), complete, "one end");
}

fn check_block(index: usize, event: &BlockEvent, open: &mut Vec<(usize, String)>, blocks: &mut usize) {
    match event {
        BlockEvent::TextStart | BlockEvent::ThinkingStart | BlockEvent::ToolCallStart { .. } => {
            assert_eq!(index, *blocks, "indexes are positions");
            *blocks += 1;
            open.push((index, String::new()));
        }
        BlockEvent::TextDelta(text) | BlockEvent::ThinkingDelta(text) | BlockEvent::ToolCallDelta(text) => {
            open.iter_mut().find(|(at, _)| *at == index).expect("the block is open").1.push_str(text);
        }
        BlockEvent::TextEnd { content, .. } | BlockEvent::ThinkingEnd { content, .. } => {
            let at = open.iter().position(|(at, _)| *at == index).expect("the block is open");
            assert_eq!(open.remove(at).1, *content, "the deltas are the content");
        }
        BlockEvent::ToolCallEnd(_) => {
            let at = open.iter().position(|(at, _)| *at == index).expect("the block is open");
            open.remove(at);
        }
    }
}
