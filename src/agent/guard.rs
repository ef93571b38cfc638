//! Hooks as the loop asks them: with a bound on their wait, and their panics caught.
//!
//! Keeps true: a hook that panics is a failing hook, or one that changes nothing where it cannot fail; a hook still at
//! work when the grace after a cancellation is over is dropped, and the run goes on as cancelled.
//!
//! Must not know: when the loop asks, what it makes of the answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::hooks::{
    AfterPatch, AfterToolCall, AfterTurn, BeforeDecision, BeforeToolCall, LoopHooks, NextTurn, TurnContext,
};
use crate::model::{Diagnostic, Message, Secret};
use crate::port::{Cancel, Clock};
use crate::turn::{self, GRACE_EXTRA, panic_text};

/// The hooks of a run.
#[derive(Clone, Copy)]
pub(super) struct Guarded<'a> {
    pub(super) hooks: &'a dyn LoopHooks,
    pub(super) cancel: &'a Cancel,
    pub(super) clock: &'a dyn Clock,
    /// `limits.grace`.
    pub(super) grace: Duration,
}

/// Why a hook has no answer.
enum Unanswered {
    /// With the text of the failure.
    Crashed(String),
    /// The run is cancelled.
    Overdue,
}

impl<T: Default> From<Unanswered> for Result<T, String> {
    /// The answer of a hook that can fail. Behind a cancellation nobody looks at it any more.
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Crashed(text) => Err(text),
            Unanswered::Overdue => Ok(T::default()),
        }
    }
}

impl Guarded<'_> {
    async fn ask<T>(&self, hook: impl Future<Output = T> + Send) -> Result<T, Unanswered> {
        let overdue = async {
            self.cancel.token().cancelled().await;
            self.clock.sleep(self.grace + GRACE_EXTRA).await;
        };
        tokio::select! {
            biased;
            answer = AssertUnwindSafe(hook).catch_unwind() => {
                answer.map_err(|panic| Unanswered::Crashed(format!("The hook crashed: {}", panic_text(&*panic))))
            }
            () = overdue => Err(Unanswered::Overdue),
        }
    }

    /// What `transform_context` and `convert_to_llm` make of the messages. One that crashes counts as not there, with
    /// a note; `None` = the run is cancelled and one did not answer.
    pub(super) async fn shape(
        &self,
        messages: Vec<Arc<Message>>,
        notes: &mut Vec<Diagnostic>,
    ) -> Option<Vec<Arc<Message>>> {
        let token = self.cancel.token();
        let input = messages.clone();
        let shaped = match self.ask(async { self.hooks.transform_context(input, token).await }).await {
            Ok(shaped) => shaped,
            Err(Unanswered::Crashed(text)) => {
                notes.push(note("transform_context", &text));
                messages
            }
            Err(Unanswered::Overdue) => return None,
        };
        let input = shaped.clone();
        match self.ask(async { self.hooks.convert_to_llm(input).await }).await {
            Ok(converted) => Some(converted),
            Err(Unanswered::Crashed(text)) => {
                notes.push(note("convert_to_llm", &text));
                Some(turn::default_convert(shaped))
            }
            Err(Unanswered::Overdue) => None,
        }
    }

    /// A key for a request; none from a hook that crashes or does not answer a cancellation.
    pub(super) async fn key(&self, provider: &str, notes: &mut Vec<Diagnostic>) -> Option<Secret> {
        match self.ask(async { self.hooks.get_api_key(provider).await }).await {
            Ok(key) => key,
            Err(Unanswered::Crashed(text)) => {
                notes.push(note("get_api_key", &text));
                None
            }
            Err(Unanswered::Overdue) => None,
        }
    }

    pub(super) async fn before(&self, call: BeforeToolCall<'_>) -> Result<BeforeDecision, String> {
        let token = self.cancel.token();
        self.ask(async { self.hooks.before_tool_call(call, token).await }).await.unwrap_or_else(Into::into)
    }

    pub(super) async fn after(&self, call: AfterToolCall<'_>) -> Result<AfterPatch, String> {
        let token = self.cancel.token();
        self.ask(async { self.hooks.after_tool_call(call, token).await }).await.unwrap_or_else(Into::into)
    }

    pub(super) async fn next_turn(&self, turn: TurnContext<'_>) -> Result<NextTurn, String> {
        let token = self.cancel.token();
        self.ask(async { self.hooks.prepare_next_turn(turn, token).await }).await.unwrap_or_else(Into::into)
    }

    pub(super) async fn after_turn(&self, turn: TurnContext<'_>) -> Result<AfterTurn, String> {
        let token = self.cancel.token();
        self.ask(async { self.hooks.after_turn(turn, token).await }).await.unwrap_or_else(Into::into)
    }
}

fn note(hook: &str, text: &str) -> Diagnostic {
    Diagnostic { code: "hook_crashed".to_owned(), message: format!("{hook}: {text}") }
}
