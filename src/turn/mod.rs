//! The pure rules of a turn: projection and healing of a transcript, argument checks, batch planning, result placement,
//! classification of replies, the bound on truncated replies, turn limits, and the texts of calls that never ran.
//!
//! Keeps true: calls of a length-stopped reply never run; results stand in source order whatever finished first; one
//! sequential tool makes the batch sequential; nothing else heals a transcript.
//!
//! Must not know: the loop that asks, protocols, files, clocks.

pub mod arguments;
mod batch;
mod classify;
mod context;
mod limits;
mod placement;
pub mod texts;

pub use batch::{is_sequential, tool_names};
pub use classify::{TRUNCATED_IN_A_ROW_MAX, cancelled, classify, reason_of_abort, reason_of_reply, unique_call_ids};
pub use context::{Projection, default_convert, project};
pub use limits::TurnLimit;
pub use placement::{CallFailure, CallOutcome, result_message};
