//! The durable harness: a session whose operations survive the process.
//!
//! Keeps true: what an effect will do is stored before it, what came of it before anyone hears of it; a state is
//! planned by pure functions, one file per phase, and only the driver waits.
//!
//! Must not know: protocols, paths, processes, clocks of the system, colours.

#[cfg_attr(not(test), expect(dead_code, reason = "the driver that streams comes next"))]
mod frames;
pub mod snapshot;
