//! Test doubles: a scripted provider, a clock on the runtime's (pausable) time, ids in sequence.
//!
//! Keeps true: two runs of one script give identical events; no clock is read unless a script waits.
//!
//! Compiled only with the feature `test-support`; never in a release.

mod clock;
mod scripted;

pub use clock::{RuntimeClock, SequentialIds};
pub use scripted::{Act, Reply, ScriptedProvider, call};
