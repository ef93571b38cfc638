//! OpenAI Chat Completions, as the vendor and the many compatible servers speak it.
//!
//! Keeps true: what servers are known to do differently is understood without being told who they are; a dialect
//! switch exists only where two servers mean different things by the same bytes; a reply that was cut off is never
//! taken for a complete one.
//!
//! Must not know: HTTP, prices, loops, the catalogue.

mod blocks;
mod calls;
mod chunk;
mod decode;
mod details;
pub mod encode;
mod mold;
mod reply;
mod stop;
mod stray;
mod think_tags;
mod usage;

pub use decode::{ChatDecoder, ChatDecoderOptions};
