//! Sessions: where they are kept, the file format, the stores, the lock, the spool, and how one is found again.
//!
//! Keeps true: a session file has one writer; what is not whole is never taken for a record; files are private to their
//! user from the first byte on.
//!
//! Must not know: what a message means beyond its shape, who runs.

mod index;
pub mod jsonl;
mod loose;
mod memory;
pub mod place;
mod quick;
pub mod record;
mod shelf;
pub mod spool;
mod transaction;

pub use memory::{MemoryStore, memory};
