//! Joins deltas that a slow reader has let pile up (stream guarantee G2).
//!
//! Keeps true: only neighbours of the same kind and block are joined, so concatenation and order are unchanged; an
//! update that brings usage is never absorbed; a joined delta stays under
//! [`MERGED_BYTES_MAX`](crate::model::MERGED_BYTES_MAX).
//!
//! Must not know: lines, readers.

use crate::model::Event;

/// Appends the delta of `next` to that of `first` if they belong together; returns whether it did.
pub fn merge(first: &mut Event, next: &Event) -> bool {
    match (first, next) {
        (
            Event::MessageUpdate { index, event, usage: None },
            Event::MessageUpdate { index: next_index, event: next_event, usage: None },
        ) => index == next_index && event.absorb(next_event),
        _ => false,
    }
}
