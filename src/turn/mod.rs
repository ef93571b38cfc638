//! The pure rules both loops share: projection and healing of a transcript, argument checks, batch planning, result
//! placement, classification of replies, the bound on truncated replies, turn limits, and the texts of calls that
//! never ran.
//!
//! Keeps true: calls of a length-stopped reply never run; results stand in source order whatever finished first; one
//! sequential tool makes the batch sequential; nothing else heals a transcript.
//!
//! Must not know: that there are two loops.

pub mod arguments;
