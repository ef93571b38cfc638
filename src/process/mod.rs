//! What concerns the process itself and, later, its children: signal dispositions and the death by a signal.
//!
//! Keeps true: `unix` is the one audited module with `unsafe`; each block says why it is sound.
//!
//! Must not know: what a signal means for a run.

pub mod mask;
#[cfg(unix)]
pub mod unix;
