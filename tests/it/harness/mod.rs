//! The durable harness, by the numbered cases of `tests/cases/engine.md`.

mod baseline;
mod world;
