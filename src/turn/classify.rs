//! What a reply is once its stream has ended, and the verdict it gives a run.
//!
//! Keeps true: a reply that asks for tools without naming one, and a reply that says nothing, are errors; a failed
//! reply has a text and a record; every stop reason has a verdict.
//!
//! Must not know: protocols, exit codes.

use super::texts;
use super::wording::record_of_text;
use crate::model::{
    AssistantBlock, AssistantMessage, CallIds, CancelCause, ErrorKind, ErrorRecord, ErrorRow, Reason, StopReason,
};

/// So many replies in a row whose calls were all refused for truncation end a run (case 73).
pub const TRUNCATED_IN_A_ROW_MAX: u32 = 3;

/// Makes a settled reply final. `toolUse` without a call becomes an error of kind `protocol`; `stop` without a call
/// and without text other than white space an error of kind `empty`, which is retryable; content is kept. A failed
/// reply always has a text. Repeated call ids are renamed.
pub fn classify(mut reply: AssistantMessage) -> AssistantMessage {
    unique_call_ids(&mut reply);
    let has_calls = reply.calls().next().is_some();
    match reply.stop_reason {
        StopReason::ToolUse if !has_calls => {
            fail(&mut reply, ErrorRecord::new(ErrorKind::Protocol, texts::TOOLUSE_EMPTY));
        }
        StopReason::Stop if !has_calls && reply.text().trim().is_empty() => {
            fail(&mut reply, ErrorRecord::new(ErrorKind::Empty, texts::EMPTY).retryable());
        }
        StopReason::Pending => {
            fail(&mut reply, ErrorRecord::new(ErrorKind::Network, texts::STREAM_BROKE_OFF).retryable());
        }
        StopReason::Error => complete_error(&mut reply),
        StopReason::Aborted => return cancelled(reply),
        StopReason::Stop | StopReason::Length | StopReason::ToolUse | StopReason::Deferred => {}
    }
    reply
}

/// Turns a reply into a cancelled one, content kept; a failure that the cancellation caused is no failure.
pub fn cancelled(mut reply: AssistantMessage) -> AssistantMessage {
    reply.stop_reason = StopReason::Aborted;
    reply.error_message = Some(texts::CANCELLED.to_owned());
    reply.error = None;
    reply
}

fn fail(reply: &mut AssistantMessage, mut record: ErrorRecord) {
    reply.raw_stop_reason.get_or_insert_with(|| reply.stop_reason.as_str().to_owned());
    record.provider = Some(reply.provider.clone());
    reply.stop_reason = StopReason::Error;
    reply.error_message = Some(record.message.clone());
    reply.error = Some(record);
}

/// Gives an error reply its text, and a record where an adapter left it out: the text is all that is known then.
fn complete_error(reply: &mut AssistantMessage) {
    let text = match (&reply.error_message, &reply.error) {
        (Some(text), _) if !text.is_empty() => text.clone(),
        (_, Some(record)) if !record.message.is_empty() => record.message.clone(),
        _ => texts::UNKNOWN_PROVIDER_ERROR.to_owned(),
    };
    reply.error_message = Some(text.clone());
    if reply.error.is_none() {
        let mut record = record_of_text(&text);
        record.provider = Some(reply.provider.clone());
        reply.error = Some(record);
    }
}

/// Renames a call id that this reply used before, as [`CallIds`] says.
pub fn unique_call_ids(reply: &mut AssistantMessage) {
    let mut ids = CallIds::default();
    for block in &mut reply.content {
        if let AssistantBlock::ToolCall(call) = block {
            call.id = ids.unique(std::mem::take(&mut call.id));
        }
    }
}

/// The verdict of a run whose last reply ended like this, when nothing else ended the run.
pub fn reason_of_reply(stop: StopReason, error: Option<ErrorKind>, cause: Option<CancelCause>) -> Reason {
    match stop {
        StopReason::Stop => Reason::Completed,
        StopReason::ToolUse => Reason::ToolTerminated,
        StopReason::Length => Reason::Length,
        StopReason::Deferred => Reason::Suspended,
        StopReason::Aborted => reason_of_abort(cause),
        StopReason::Error | StopReason::Pending => match error.map(ErrorKind::row) {
            Some(ErrorRow::Auth) => Reason::Auth,
            Some(ErrorRow::Unavailable) => Reason::Unavailable,
            Some(ErrorRow::Refused) => Reason::Refused,
            Some(ErrorRow::Internal) | None => Reason::Internal,
            Some(ErrorRow::Usage | ErrorRow::Other) => Reason::Error,
        },
    }
}

/// The verdict of a cancelled run.
pub fn reason_of_abort(cause: Option<CancelCause>) -> Reason {
    match cause {
        Some(CancelCause::Timeout) => Reason::Timeout,
        Some(CancelCause::Pipe) => Reason::Pipe,
        Some(CancelCause::Hook) => Reason::Blocked,
        Some(CancelCause::Hup | CancelCause::Int | CancelCause::Term | CancelCause::Steer) | None => {
            Reason::Interrupted
        }
    }
}
