//! The agent: [`Agent`], which owns a transcript and its queues, and the double loop it runs.
//!
//! Keeps true: at most one run is active; the loop stores nothing between runs; a failure becomes a reply of the
//! transcript, never a lost one; every call of a reply gets exactly one result; events come in one total order.
//!
//! Must not know: protocols, disk, printing, the command line.
//!
//! # Example
//!
//! A model that repeats what it was told, and the run around it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures_util::stream::{self, BoxStream, StreamExt};
//! use pirn::agent::{Agent, AgentOptions, Settings};
//! use pirn::model::{AssistantHead, BlockEvent, Message, MessageBuilder, Model, StopReason, Thinking};
//! use pirn::port::{AssistantEvent, LlmRequest, Provider};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Parrot;
//!
//! impl Provider for Parrot {
//!     fn stream(&self, request: Arc<LlmRequest>, _: CancellationToken) -> BoxStream<'static, AssistantEvent> {
//!         let said = match request.messages.last().map(|message| &**message) {
//!             Some(Message::User(user)) => user.content.text(),
//!             _ => "What?".to_owned(),
//!         };
//!         let model = &request.model;
//!         let head = AssistantHead {
//!             api: model.api.clone(),
//!             provider: model.provider.clone(),
//!             model: model.id.clone(),
//!             timestamp: 0,
//!         };
//!         let mut builder = MessageBuilder::new(&head);
//!         let mut events = vec![AssistantEvent::Start(head)];
//!         let blocks = [
//!             BlockEvent::TextStart,
//!             BlockEvent::TextDelta(said.clone()),
//!             BlockEvent::TextEnd { content: said, signature: None },
//!         ];
//!         for block in blocks {
//!             events.extend(builder.apply(0, block).map(|event| AssistantEvent::Block { index: 0, event }));
//!         }
//!         let reply = builder.finish(StopReason::Stop, None, false);
//!         events.push(AssistantEvent::End(Box::new(reply)));
//!         stream::iter(events).boxed()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), pirn::agent::AgentError> {
//! let settings = Settings {
//!     system_prompt: "Repeat.".to_owned(),
//!     model: Model::unknown("zoo", "parrot-1", "none", ""),
//!     thinking: None,
//!     tools: Vec::new(),
//! };
//! let agent = Agent::new(AgentOptions::new(Arc::new(Parrot), settings))?;
//! let outcome = agent.prompt("hello").await?;
//! assert_eq!(outcome.stop_reason, Some(StopReason::Stop));
//! assert_eq!(outcome.messages[1].as_assistant().map(|reply| reply.text()).as_deref(), Some("hello"));
//! # Ok(())
//! # }
//! ```
//!
//! A program that embeds the agent needs a tokio runtime with time enabled, and by what it implements `async-trait`
//! ([`LoopHooks`], [`Listener`], tools), `futures-util` (streams of a provider), `tokio-util` (the cancellation token)
//! and `serde_json` (arguments and schemas) in the versions of this crate's manifest. Nothing is re-exported.
//!
//! Tools go into [`Settings::tools`], hooks into [`AgentOptions::hooks`], listeners to [`Agent::subscribe`].
//!
//! # Events of a run
//!
//! ```text
//! run     := agent_start turn+ agent_end
//! turn    := turn_start input* reply tools? turn_end
//! input   := message_start message_end                     (user or custom)
//! reply   := message_start message_update* message_end     (assistant)
//! tools   := seq | par
//! seq     := ( start update* end message_start message_end )*          per call, source order
//! par     := ( start end )* ( start | update | end )* ( message_start message_end )*
//! ```
//!
//! In `par` the first group holds the calls that were settled without running; in the second every call has its start
//! first, its updates next, its end last, and a call cancelled before it ran has its end directly behind its start.
//! A warning may stand anywhere.
//!
//! # Invariants
//!
//! They hold for every run that was not cut off by a listener's error or panic, or by a dropped future. A panic of a
//! provider, a tool or a hook does not cut a run off: it is the failure of that reply, call or hook.
//!
//! 1. `agent_start` comes first and `agent_end` last, one each; every `turn_start` has one `turn_end`.
//! 2. Every `message_start` has its `message_end` before the next `message_start`. That of a reply is empty and
//!    `pending`; every other message is complete from its start.
//! 3. Every call of a reply that did not fail gets one start, one end and one result message, whatever happened to it:
//!    run, refused, invalid, cancelled, truncated. Calls of a failed reply get none.
//! 4. Result messages, `turn_end` and the next request list results in the order of the calls in the reply.
//! 5. No update of a call comes after its end.
//! 6. `agent_end` lists the messages of all `message_end` events of the run, in order.
//! 7. The transcript after a run is the one before it and these messages.
//! 8. The state is changed before listeners see the event that changes it: at `message_end` the transcript has the
//!    message, at the start of a call its id is pending, and up to the last listener of `agent_end` the agent is active.
//!
//! # The agent's calls
//!
//! | call | idle | while a run is active |
//! |---|---|---|
//! | [`prompt`](Agent::prompt) | runs; ready when the listeners of `agent_end` are done | [`AgentError::AlreadyRunning`], nothing changes |
//! | [`continue_`](Agent::continue_) | see below | [`AgentError::AlreadyRunning`] |
//! | [`steer`](Agent::steer), [`follow_up`](Agent::follow_up) | queued for the next run | queued |
//! | [`abort`](Agent::abort) | nothing, also for the next run | cancels; the first cause wins |
//! | [`reset`](Agent::reset), [`set_messages`](Agent::set_messages) | done | [`AgentError::AlreadyRunning`] |
//! | [`set_settings`](Agent::set_settings) | for the next run | for the next run |
//! | [`wait_for_idle`](Agent::wait_for_idle) | ready | ready after the listeners of `agent_end` |
//!
//! | last message | what `continue_` does |
//! |---|---|
//! | none | [`AgentError::NothingToContinue`]; queues untouched |
//! | a reply | runs one batch of steering as the prompt, else one of follow-ups, else [`AgentError::LastMessageIsAssistant`] |
//! | anything else | runs without a new message |
//!
//! Steering is polled once before the first request and after every turn; follow-ups only when nothing else is owed.
//! A failed run polls nothing.
//!
//! # The steps of a call
//!
//! | step | else the call never runs |
//! |---|---|
//! | the run is not cancelled | `aborted` |
//! | a tool of that name exists | `unknown_tool` |
//! | its arguments were JSON; the tool can repair them; they fit the schema after coercion | `invalid_args` |
//! | the permission rules allow it | `denied` |
//! | `before_tool_call` does not block it | `blocked` |
//! | changed arguments fit the schema and the rules again | `invalid_args`, `denied` |
//! | the run was not cancelled meanwhile | `aborted` |
//!
//! Then the start event, the tool, `after_tool_call`, and the end event. The right column is the code in `details` of
//! the result. A reply that stopped at the output limit has all its calls refused as `invalid_args`, without a look at
//! tools or hooks; the third such reply in a row ends the run.
//!
//! # Cancellation
//!
//! | moment | what follows |
//! |---|---|
//! | before a request | no provider is called; the closing turn |
//! | while a reply streams | the provider has 300 ms to end it; the reply is `aborted`, its text so far kept |
//! | while a batch is prepared | no call of it starts; all get `Cancelled before it ran.` |
//! | while tools run | each has the grace and a second to answer, else its result is `Aborted.`; calls that wait get `Cancelled before it ran.`; `after_tool_call` is skipped unless it had started; the closing turn |
//! | while a hook works | it has the grace and a second to answer, then its future is dropped and the run goes on as cancelled; an `after_tool_call` in progress is applied if it answers by then |
//! | in `prepare_next_turn` | messages taken from a queue go back to its front; the closing turn |
//! | after an answer without calls | the answer counts: a normal end, queues untouched |
//!
//! The closing turn holds an empty reply of stop reason `aborted`. A failure of `prepare_next_turn` or `after_turn` ends
//! a run in the same way, with a reply of stop reason `error`.

mod call;
mod guard;
mod hooks;
mod options;
mod queue;
mod reply;
mod run;
mod shell;
mod state;
mod tools;

pub use crate::port::{OpenGuard, ToolEnv};
pub use hooks::{
    AfterPatch, AfterToolCall, AfterTurn, BeforeDecision, BeforeToolCall, LoopHooks, NextTurn, NoHooks, TurnContext,
};
pub use options::{AgentOptions, Limits};
pub use queue::QueueMode;
pub use shell::{Agent, AgentError, Listener, Prompt, Subscription};
pub use state::{AgentSnapshot, Settings};
