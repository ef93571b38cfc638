//! The durable harness, by the numbered cases of `tests/cases/engine.md`.

mod abort;
mod baseline;
mod crash;
mod endings;
mod hooks;
mod inbox;
mod invariants;
mod limits;
mod recovery;
mod restore;
mod retry;
mod spooled;
mod tools;
mod watch;
mod world;
