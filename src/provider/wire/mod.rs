//! The wire protocols: requests out, events in.
//!
//! Keeps true: nothing here does input or output; a decoder is total, any bytes give events or a typed error, and any
//! split of the bytes gives the same events.
//!
//! Must not know: HTTP, loops, which model or host is spoken to beyond the dialect it was told.

pub mod openai_chat;

use crate::model::ErrorRecord;
use crate::port::ProviderEvent;

/// Turns the bytes of one response body into events. Any split of the bytes gives the same events.
pub trait Decoder: Send {
    /// Takes the next bytes. After an error nothing more may be pushed.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord>;

    /// The body ended. Gives the last events, or the error of a body that broke off.
    fn finish(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord>;

    /// Whether the reply is complete and the rest of the body can be dropped.
    fn is_done(&self) -> bool;
}
