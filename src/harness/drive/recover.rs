//! What a dead process left: its turn is opened again, an interrupted reply is settled as far as it is known.
//!
//! Keeps true: what was begun and can not be known to have ended is never taken for done; frames that make no sense
//! are no reason to refuse a session.
//!
//! Must not know: how a process died.

use std::sync::Arc;

use super::super::core::Halt;
use super::super::error::Fault;
use super::super::frames::{self, Partial};
use super::super::memory::{LaneMemory, Open, TurnState};
use super::super::phase::settle::{self, Interrupted};
use super::{Driver, Step};
use crate::model::session::namespace;
use crate::model::{
    AssistantHead, AssistantMessage, Diagnostic, ErrorKind, ErrorRecord, Event, Leaf, Message, PendingReply,
    RecoveryAction, StopReason, Usage,
};
use crate::port::LIST_LIMIT_MAX;
use crate::turn::texts;

/// Batches of frames of one reply, at most: the frames of a reply have a bound in bytes, and every batch has some.
const BATCHES_MAX: usize = 1_000_000;

impl Driver<'_> {
    /// Tells that a run goes on, and opens its turn where it stands inside one.
    pub(super) fn begin_resumed(&mut self) {
        let Some(open) = self.look() else { return };
        self.emit_as(true, Event::RunResume { run_id: self.operation.clone() });
        if stands_in_turn(&open) {
            let turn = self.read(|lane| turn_so_far(lane, &open)).unwrap_or_default();
            let number = turn.number;
            if let Some(lane) = self.core.memory().lanes.get_mut(self.lane) {
                lane.stream.turn = Some(turn);
            }
            self.emit_as(true, Event::TurnStart { turn: number });
        }
        if open.cancelled() {
            let notice = Some("finishing the cancelled run".to_owned());
            self.recovery_step(open.state.leaf.word(), RecoveryAction::Resume, None, notice);
            return;
        }
        match &open.state.leaf {
            // They tell what they do themselves.
            Leaf::AssistantPending(_) | Leaf::Tools { .. } => {}
            leaf => self.recovery_step(leaf.word(), RecoveryAction::Resume, None, None),
        }
    }

    /// Settles a reply whose process died before it was there.
    pub(super) async fn recover_reply(&mut self, open: &Open) -> Result<Step, Halt> {
        let Leaf::AssistantPending(pending) = &open.state.leaf else {
            return Err(Fault::broken("no reply is waited for").into());
        };
        let partial = self.partial(pending)?;
        let chars = partial.as_ref().map_or(0, |partial| partial.chars);
        let reply = interrupted_reply(partial, pending, self.core.options.clock.now_ms());
        let notice = Some(format!("response interrupted after {chars} characters"));
        self.recovery_step(open.state.leaf.word(), RecoveryAction::Settle, None, notice);
        let head = AssistantHead {
            api: reply.api.clone(),
            provider: reply.provider.clone(),
            model: reply.model.clone(),
            timestamp: reply.timestamp,
        };
        let message = Arc::new(Message::Assistant(AssistantMessage::pending(&head)));
        self.emit_as(true, Event::MessageStart { message });
        let interrupted = Some(Interrupted { resend: self.drive.resend });
        let settlement = settle::Settlement { reply, model: None, stop: false, interrupted };
        let error = self
            .settle(|lane, open, facts| {
                let plan = settle::reply(lane, open, pending, settlement, facts)?;
                let error = plan.stored_error();
                Ok((Some(plan), error))
            })
            .await?;
        self.failure = error;
        Ok(Step::Continue)
    }

    /// What frames say of the reply; nothing where they make no sense, with a warning.
    fn partial(&self, pending: &PendingReply) -> Result<Option<Partial>, Halt> {
        let key = format!("{}:{}", self.operation, pending.response_entry_id);
        let mut batches = Vec::new();
        let mut cursor = 0;
        while batches.len() < BATCHES_MAX {
            let page = self.core.options.store.list(namespace::FRAMES, &key, cursor, LIST_LIMIT_MAX);
            let page = page.map_err(|error| Fault::of_store(&error))?;
            batches.extend(page.values);
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        match frames::reduce(&batches) {
            Ok(partial) => Ok(partial),
            Err(reason) => {
                let message = format!("what was saved of an interrupted reply can not be read: {reason}");
                self.emit(Event::Warning { code: "frames".to_owned(), message });
                Ok(None)
            }
        }
    }
}

/// The reply as an error that says what happened.
fn interrupted_reply(partial: Option<Partial>, pending: &PendingReply, now: u64) -> AssistantMessage {
    let model = &pending.generation_context.configuration.model;
    let (mut reply, usage) = if let Some(partial) = partial {
        (partial.message, partial.usage)
    } else {
        let head = AssistantHead {
            api: "unknown".to_owned(),
            provider: model.provider.clone(),
            model: model.model_id.clone(),
            timestamp: now,
        };
        (AssistantMessage::pending(&head), None)
    };
    if let Some(usage) = usage
        && let Ok(message) = serde_json::to_string(&usage)
    {
        reply.diagnostics.push(Diagnostic { code: "last_usage".to_owned(), message });
    }
    reply.usage = Usage::default();
    reply.stop_reason = StopReason::Error;
    reply.raw_stop_reason = Some("interrupted".to_owned());
    reply.error_message = Some(texts::INTERRUPTED.to_owned());
    reply.error = Some(ErrorRecord::new(ErrorKind::Interrupted, texts::INTERRUPTED).retryable());
    reply
}

/// Whether the operation stands inside a turn.
fn stands_in_turn(open: &Open) -> bool {
    match &open.state.leaf {
        Leaf::Starting
        | Leaf::AssistantReady { .. }
        | Leaf::AssistantPending(_)
        | Leaf::AssistantWait { .. }
        | Leaf::Tools { .. } => true,
        // The first turn opens with the operation, and every turn that ended is counted.
        Leaf::Checkpoint { .. } => open.state.counters.turns == 0,
    }
}

/// The open turn, with what an earlier process stored of it.
fn turn_so_far(lane: &LaneMemory, open: &Open) -> TurnState {
    let mut turn = TurnState { number: lane.turn_number(), ..TurnState::default() };
    let source = open.meta.source_tip_id.as_ref();
    let own = lane.messages().rev().take_while(|(id, _)| Some(*id) != source);
    match &open.state.leaf {
        Leaf::Tools { batch } => {
            for (id, message) in own {
                if *id == batch.assistant_entry_id {
                    turn.reply = Some(Arc::clone(message));
                    break;
                }
                turn.results.insert(0, Arc::clone(message));
            }
        }
        Leaf::Starting | Leaf::Checkpoint { .. } => {}
        Leaf::AssistantReady { .. } | Leaf::AssistantPending(_) | Leaf::AssistantWait { .. } => {
            let newest = own.map(|(_, message)| message).next();
            let failed = |message: &&Arc<Message>| {
                message.as_assistant().is_some_and(|reply| reply.stop_reason == StopReason::Error)
            };
            turn.reply = newest.filter(failed).cloned();
        }
    }
    turn
}
