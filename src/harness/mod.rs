//! The durable harness: a session whose operations survive the process.
//!
//! Keeps true: what an effect will do is stored before it, what came of it before anyone hears of it; a state is
//! planned by pure functions, one file per phase, and only the driver waits.
//!
//! Must not know: protocols, paths, processes, clocks of the system, colours.

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
