//! What a turn is made of, whichever loop asks: projection and healing of a transcript, the reading of a reply and its
//! classification, argument checks, batch planning, the running of a tool, result placement, limits, what
//! follows a failed attempt, and the texts of calls that never ran.
//!
//! Keeps true: calls of a length-stopped reply never run; results stand in source order whatever finished first; one
//! sequential tool makes the batch sequential; nothing else heals a transcript.
//!
//! Must not know: the loop that asks, its events and hooks, protocols, files.

pub mod arguments;
mod batch;
mod classify;
mod clearing;
mod context;
mod limits;
mod placement;
mod reading;
mod retry;
mod running;
pub mod texts;
pub mod wording;

pub use batch::{is_sequential, tool_names};
pub use classify::{TRUNCATED_IN_A_ROW_MAX, cancelled, classify, reason_of_abort, reason_of_reply, unique_call_ids};
pub use clearing::{ActiveTool, Checked, check_call, effective_args, recheck_call, valid_without_coercion};
pub use context::{Projection, default_convert, project};
pub use limits::{Budget, TurnLimit, repeats};
pub use placement::{CallFailure, CallOutcome, result_message};
pub use reading::{CANCEL_GRACE, ReplyItem, ReplyReader};
pub use retry::{ASSISTANT_ERROR, NextAttempt, Overflow, RATE_LIMITED, after_error, backoff_ms, overflow};
pub use running::{CallMemos, GRACE_EXTRA, Ran, ToolProgress, ToolRun, UPDATES_MAX, crash_text, panic_text, run_tool};
pub use wording::record_of_text;
