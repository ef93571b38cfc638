//! The durable harness: a session whose operations survive the process.
//!
//! Keeps true: what an effect will do is stored before it, what came of it before anyone hears of it; a state is
//! planned by pure functions, one file per phase, and only the driver waits.
//!
//! Must not know: protocols, paths, processes, clocks of the system, colours.
//!
//! Kill the process at any instant: the next one opens the session and finishes what was open, without repeating an
//! effect that may not be repeated. [`Agent`](crate::agent::Agent) is the smaller choice when nothing must survive.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use pirn::harness::{Drive, Harness, Options, Outcome};
//! use pirn::model::{LaneConfig, LaneModel, Status};
//! use pirn::port::SystemClock;
//! use pirn::provider::demo::DemoProvider;
//! use pirn::session::memory;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(memory(Arc::new(SystemClock::new())));
//! let mut options = Options::new(store, Arc::new(DemoProvider));
//! let model = LaneModel { provider: "demo".to_owned(), model_id: "demo".to_owned() };
//! options.lane_config = LaneConfig { model, ..options.lane_config };
//! let harness = Harness::open(options).await?;
//! let main = harness.lane("main")?;
//! match main.prompt("hello", Drive::default()).await? {
//!     Outcome::Settled(settled) => assert_eq!(settled.result.status, Status::Completed),
//!     // Still open on disk: `continue_` finishes it.
//!     Outcome::Waiting(wait) => panic!("{wait:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! With the store of a file ([`session::jsonl`](crate::session::jsonl)) the same program goes on after a crash: open it
//! again and call [`Lane::continue_`].
//!
//! # Transactions of a run
//!
//! Every line is one transaction; [`model::operation`](crate::model::operation) names the states.
//!
//! | # | from | what happened | to |
//! |---|---|---|---|
//! | S1 | idle | a prompt was accepted, with what waited for it | `starting` |
//! | S2, S3 | `starting` | the `before_run` hook let it pass; refused it | `checkpoint`; the end |
//! | C1, C3 | `checkpoint` | a reply is owed; a hook asks for one more | `assistant.ready` |
//! | C4, C5 | `checkpoint` | nothing is owed; a limit is reached | the end |
//! | G1 | `assistant.ready` | the request is about to go out, with the ids of its reply and usage | `assistant.effect_pending` |
//! | G2 | `assistant.effect_pending` | text has come: a batch of frames | the same |
//! | G3 | `assistant.effect_pending` | the reply is there, with its usage and what comes of it | `checkpoint`, `tools`, `assistant.retry_wait`, a fallback's `assistant.ready`, the end |
//! | G4 | `assistant.retry_wait` | the wait is over | `assistant.ready` |
//! | G6, G7 | `assistant.ready` | a hook refused the request; the model has no key and another one is left | the end; `assistant.ready` |
//! | X1 | `tools` | a call is about to start, with its arguments | the same |
//! | X2 | `tools` | progress worth keeping | the same |
//! | X3 | `tools` | a call has its result, which waits for its place | the same |
//! | X4 | `tools` | results are placed; the last one ends the turn | `tools`, `checkpoint` |
//! | X5, X6 | `tools` | the last placement where a rule or hook asked for the end, or the third reply in a row was cut off | the end |
//!
//! # What a new process does with what it finds
//!
//! | state | what is asked or run again |
//! |---|---|
//! | `starting`, `checkpoint`, `assistant.ready` | nothing outside had started: hooks of that step, then as ever |
//! | `assistant.retry_wait` | waits the rest, at most the policy's longest delay |
//! | `assistant.effect_pending` | the reply is stored as far as it is known, as an error that no request contains; the question is asked again, at most [`Limits::max_interruptions`] times a step, or not at all without [`Drive::resend`] |
//! | `tools`: planned | as ever |
//! | `tools`: begun, [`Replay::Safe`](crate::port::Replay) then and now | runs again with the stored arguments |
//! | `tools`: begun, else | never again: its result says that the outcome is unknown |
//! | `tools`: has its result | is placed |
//! | any, with an abort | nothing: what had started is settled, then it ends |
//!
//! # What a caller can rely on
//!
//! - A failing provider, tool or hook, a limit and an abort are no `Err`: they are in the result. An `Err` means that
//!   nothing was accepted, or that nothing more can be written.
//! - Dropping the future of a call that drives is a crash without a kill: what was committed stays, and
//!   [`Lane::continue_`] goes on. [`Lane::abort`] is the way to end an operation.
//! - What [`Lane::steer`] and its like returned for is durable.
//! - A completion that a listener has seen is stored, and synced as far as the store's durability asks. Starts, deltas
//!   and progress claim nothing.
//! - Nothing is spawned that outlives a call; listeners, tools and hooks run inside the driving future.
//! - Tools and hooks that are registered or removed count from the next batch and request on.

mod core;
mod drive;
mod error;
mod frames;
mod gate;
mod hooks;
mod import;
mod lane;
mod memory;
mod options;
mod phase;
mod plan;
mod publish;
mod restore;
mod session;
mod snapshot;

pub use error::{
    AbortError, Fault, InvalidMessage, LaneError, OpenError, QueueError, RegisterError, RunError, WriteError,
};
pub use lane::{Aborted, Cancelled, Input, Lane};
pub use options::{Blocked, Drive, Limits, Options, Outcome, Projector, Retry, Settled, Wait};
pub use publish::{Listener, Subscription};
pub use session::{Harness, LaneInfo, Registration};
pub use snapshot::{OperationStatus, OperationView, RetryView, RunningTool, SettledTool, Snapshot, reduce};
