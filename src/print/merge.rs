//! Joins deltas that a slow reader has let pile up (DESIGN row 17, loop §5.5 rule 5).
//!
//! Keeps true: only neighbours of the same kind and block are joined, so concatenation and order are unchanged; an
//! update that brings usage is never absorbed; a joined delta stays under [`MERGED_BYTES_MAX`].
//!
//! Must not know: lines, readers.

use crate::model::{BlockEvent, Event};

/// Bytes of a joined delta; a longer one would make the reader wait for what it could already have.
pub const MERGED_BYTES_MAX: usize = 8 * 1024;

/// Appends the delta of `next` to that of `first` if they belong together; returns whether it did.
pub fn merge(first: &mut Event, next: &Event) -> bool {
    let (
        Event::MessageUpdate { index, event, usage: None },
        Event::MessageUpdate { index: next_index, event: next_event, usage: None },
    ) = (first, next)
    else {
        return false;
    };
    if index != next_index {
        return false;
    }
    let ((BlockEvent::TextDelta(text), BlockEvent::TextDelta(more))
    | (BlockEvent::ThinkingDelta(text), BlockEvent::ThinkingDelta(more))
    | (BlockEvent::ToolCallDelta(text), BlockEvent::ToolCallDelta(more))) = (event, next_event)
    else {
        return false;
    };
    if text.len().saturating_add(more.len()) > MERGED_BYTES_MAX {
        return false;
    }
    text.push_str(more);
    true
}
