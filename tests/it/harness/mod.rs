//! The durable harness, by the numbered cases of `tests/cases/engine.md`.

mod baseline;
mod endings;
mod recovery;
mod tools;
mod watch;
mod world;
