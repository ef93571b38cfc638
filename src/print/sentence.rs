//! Sentences that both streams tell: hooks and listeners that failed, messages that a run took with it.
//!
//! Keeps true: which one failed, and why, stands in the sentence; a message that nobody will answer is told.
//!
//! Must not know: what a failure does to a run.

use std::sync::Arc;

use crate::model::{HandlerKind, Message};

/// Of a message that is not sent this much is told: enough to know it by.
const MESSAGE_CHARS_MAX: usize = 200;

/// The word for programs, and the sentence.
pub(super) fn failed_handler(kind: HandlerKind, name: &str, error: &str) -> (&'static str, String) {
    match kind {
        HandlerKind::Hook => ("hook", format!("the hook {name} failed: {error}")),
        HandlerKind::Event => ("listener", format!("the listener {name} failed: {error}")),
    }
}

/// Queued messages that ended with their run, and are not sent any more; `None` = there was none.
pub fn dropped<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Option<String> {
    let text = |message: &Arc<Message>| match &**message {
        Message::User(user) => user.content.text(),
        Message::Assistant(_) | Message::ToolResult(_) | Message::Custom(_) => String::new(),
    };
    let quote = |message| format!("{:?}", super::line(&text(message), MESSAGE_CHARS_MAX));
    let quoted: Vec<String> = messages.into_iter().map(quote).collect();
    (!quoted.is_empty()).then(|| format!("dropped with the run, not sent: {}", quoted.join(", ")))
}
