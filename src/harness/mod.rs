//! The durable harness: a session whose operations survive the process.
//!
//! Keeps true: what an effect will do is stored before it, what came of it before anyone hears of it; a state is
//! planned by pure functions, one file per phase, and only the driver waits.
//!
//! Must not know: protocols, paths, processes, clocks of the system, colours.

mod core;
mod drive;
mod error;
mod gate;
mod hooks;
mod lane;
mod memory;
mod options;
mod phase;
mod plan;
mod publish;
mod restore;
mod session;
