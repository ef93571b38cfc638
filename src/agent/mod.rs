//! The classic layer: [`Agent`], which owns a transcript and its queues, and the double loop it runs.
//!
//! Keeps true: at most one run is active; the loop stores nothing between runs; a failure becomes a reply of the
//! transcript, never a lost one; every call of a reply gets exactly one result; events come in one total order.
//!
//! Must not know: protocols, disk, printing, the harness.
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
//! In `par` the first group holds the calls that were settled without running.

mod call;
mod hooks;
mod options;
mod queue;
mod reply;
mod run;
mod shell;
mod state;
mod tools;

pub use hooks::{
    AfterPatch, AfterToolCall, AfterTurn, BeforeDecision, BeforeToolCall, LoopHooks, NextTurn, NoHooks, TurnContext,
};
pub use options::{AgentOptions, Limits, OpenGuard, ToolEnv};
pub use queue::QueueMode;
pub use shell::{Agent, AgentError, Listener, Prompt, Subscription};
pub use state::{AgentSnapshot, Settings};
