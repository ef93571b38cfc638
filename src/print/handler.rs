//! Hooks and listeners that failed, as both streams tell it.
//!
//! Keeps true: which one failed, and why, stands in the sentence.
//!
//! Must not know: what a failure does to a run.

use crate::model::HandlerKind;

/// The word for programs, and the sentence.
pub(super) fn failed_handler(kind: HandlerKind, name: &str, error: &str) -> (&'static str, String) {
    match kind {
        HandlerKind::Hook => ("hook", format!("the hook {name} failed: {error}")),
        HandlerKind::Event => ("listener", format!("the listener {name} failed: {error}")),
    }
}
