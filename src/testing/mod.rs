//! Test doubles: a scripted provider, a store that fails or vanishes, tools that count, a clock on the runtime's
//! (pausable) time, ids in sequence.
//!
//! Keeps true: two runs of one script give identical events; no clock is read unless a script waits.
//!
//! Compiled only with the feature `test-support`; never in a release.

mod clock;
mod count;
mod faults;
mod scripted;
mod tools;

pub use clock::{RuntimeClock, SequentialIds};
pub use count::{tear, transaction_at};
pub use faults::{FaultStore, Step};
pub use scripted::{Act, Reply, ScriptedProvider, call};
pub use tools::{CountingTool, Executed, Executions};
