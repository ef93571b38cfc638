//! What a session needs next: pure rules over its path and its last result.
//!
//! Keeps true: an answer that is there is not asked for again; every call of a reply that a model will see has a
//! result; a failed reply is never the end a run goes on from.
//!
//! Must not know: stores, files, how a run works.

use std::sync::Arc;

use crate::model::{
    AssistantMessage, CancelCause, EntryId, ErrorKind, ErrorRecord, Message, OperationResult, Reason, Status,
    StopReason,
};

/// A path of the tree, oldest first.
pub(super) type Path = [(EntryId, Arc<Message>)];

/// What a call without a prompt does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// Sends the transcript as it is.
    Continue,
    /// Everything is done: the answer is told again.
    Again(Box<Finished>),
}

/// The end of a run that is told again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finished {
    pub(super) reason: Reason,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) error: Option<ErrorKind>,
    pub(super) cause: Option<CancelCause>,
    pub(super) text: String,
}

/// Decides what a continuation without a prompt does where nothing is open and nothing waits. `result` is that of the
/// last operation, `tip` the lane's; `can_continue` = what a model would see ends in something to answer.
///
/// # Errors
/// Kind `usage`: there is nothing to continue.
pub(super) fn next(
    path: &Path,
    tip: Option<&EntryId>,
    result: Option<&OperationResult>,
    can_continue: bool,
) -> Result<Next, ErrorRecord> {
    // A result speaks for the transcript only while nothing came after it.
    let result = result.filter(|result| result.tip_id.as_ref() == tip);
    if let Some(finished) = finished(path, result) {
        return Ok(Next::Again(Box::new(finished)));
    }
    if can_continue {
        return Ok(Next::Continue);
    }
    Err(nothing())
}

/// There is nothing to continue.
pub(super) fn nothing() -> ErrorRecord {
    ErrorRecord::new(ErrorKind::Usage, "nothing to continue: this session has no open question")
        .with_hint("pirn -c \"PROMPT\" goes on with a new one")
}

fn finished(path: &Path, result: Option<&OperationResult>) -> Option<Finished> {
    let last = path.last().map(|(_, message)| &**message);
    let last_text = || path.iter().rev().find_map(|(_, message)| message.as_assistant()).map(AssistantMessage::text);
    match result {
        Some(result) if result.status == Status::Completed || result.reason == Reason::Schema => Some(Finished {
            reason: result.reason,
            stop_reason: result.stop_reason,
            error: result.error_kind,
            cause: result.cause,
            text: last_text().unwrap_or_default(),
        }),
        // A run that was cancelled, or killed before it could say how it ended, may have given its answer before.
        Some(OperationResult { status: Status::Aborted, .. }) | None => {
            let reply = last.and_then(Message::as_assistant).filter(|reply| reply.calls().next().is_none())?;
            let reason = match reply.stop_reason {
                StopReason::Stop => Reason::Completed,
                StopReason::Length => Reason::Length,
                StopReason::ToolUse
                | StopReason::Error
                | StopReason::Aborted
                | StopReason::Deferred
                | StopReason::Pending => return None,
            };
            let stop_reason = Some(reply.stop_reason);
            Some(Finished { reason, stop_reason, error: None, cause: None, text: reply.text() })
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, Value, json};

    use super::{Next, next};
    use crate::model::{EntryId, Message, OperationResult, Reason, RunId, Status, StopReason};

    fn reply(stop: &str, content: &Value) -> Value {
        json!({"role": "assistant", "content": content, "api": "a", "provider": "p", "model": "m", "usage": {},
            "stopReason": stop, "timestamp": 1})
    }

    fn text(text: &str) -> Value {
        json!([{"type": "text", "text": text}])
    }

    fn calls(ids: &[&str]) -> Value {
        ids.iter().map(|id| json!({"type": "toolCall", "id": id, "name": "bash", "arguments": {}})).collect()
    }

    fn user() -> Value {
        json!({"role": "user", "content": "go", "timestamp": 1})
    }

    fn result(id: &str) -> Value {
        json!({"role": "toolResult", "toolCallId": id, "toolName": "bash", "content": [], "isError": false, "timestamp": 1})
    }

    fn path(messages: &[Value]) -> Vec<(EntryId, Arc<Message>)> {
        let entry = |(at, message): (usize, &Value)| {
            (EntryId::new(format!("e{at}")), Arc::new(serde_json::from_value(message.clone()).unwrap()))
        };
        messages.iter().enumerate().map(entry).collect()
    }

    fn ended(status: Status, reason: Reason, tip: usize) -> OperationResult {
        OperationResult {
            operation_id: RunId::new("r"),
            kind: "run".to_owned(),
            status,
            reason,
            stop_reason: Some(StopReason::Stop),
            error_kind: None,
            error: None,
            cause: None,
            from_tip_id: None,
            tip_id: Some(EntryId::new(format!("e{tip}"))),
            started_at: 1,
            ended_at: 2,
            completion: None,
            final_entry_id: None,
            extra: Map::new(),
        }
    }

    #[test]
    fn an_answer_is_told_again_and_an_open_question_is_asked() {
        use Reason::{Completed, Error, Interrupted, Length, MaxTurns, ToolTerminated};
        let answered = [user(), reply("stop", &text("hi"))];
        let failed = [user(), reply("error", &text("half"))];
        let cut = [user(), reply("length", &text("half"))];
        let called = [user(), reply("toolUse", &calls(&["c1"])), result("c1")];
        let again = |reason| Some(Ok(reason));
        for (messages, result, want) in [
            (&answered[..], Some(ended(Status::Completed, Completed, 1)), again(Completed)),
            (&cut, Some(ended(Status::Completed, Length, 1)), again(Length)),
            (&called, Some(ended(Status::Completed, ToolTerminated, 2)), again(ToolTerminated)),
            // Aborted after a complete answer, or killed before the end was stored.
            (&answered, Some(ended(Status::Aborted, Interrupted, 1)), again(Completed)),
            (&answered, None, again(Completed)),
            (&cut, None, again(Length)),
            (&failed, Some(ended(Status::Failed, Error, 1)), None),
            (&failed, None, None),
            (&called, Some(ended(Status::Stopped, MaxTurns, 2)), None),
            (&called, None, None),
            (&answered[..1], Some(ended(Status::Completed, Completed, 7)), None),
            (&[], None, Some(Err(()))),
            (&failed[1..], None, Some(Err(()))),
            (&answered, Some(ended(Status::Failed, Error, 1)), Some(Err(()))),
        ] {
            let path = path(messages);
            let tip = path.last().map(|(id, _)| id.clone());
            let sent = path
                .iter()
                .rev()
                .find(|(_, message)| message.as_assistant().is_none_or(|reply| !reply.stop_reason.is_failure()));
            let open = sent.is_some_and(|(_, message)| message.as_assistant().is_none());
            let got = match next(&path, tip.as_ref(), result.as_ref(), open) {
                Ok(Next::Continue) => None,
                Ok(Next::Again(finished)) => Some(Ok(finished.reason)),
                Err(_) => Some(Err(())),
            };
            assert_eq!(got, want, "{messages:?} {result:?}");
        }
    }
}
