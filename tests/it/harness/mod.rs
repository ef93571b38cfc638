//! The durable harness, by the numbered cases of `tests/cases/engine.md`.

mod abort;
mod alarm;
mod baseline;
mod beside;
mod concurrent;
mod crash;
mod differential;
mod endings;
mod hooks;
mod inbox;
mod invariants;
mod library;
mod limits;
mod recovery;
mod restore;
mod retry;
mod spooled;
mod storage;
mod tools;
mod watch;
mod world;
