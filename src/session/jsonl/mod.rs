//! (being written)

mod header;
pub mod line;
pub mod lock;

pub use header::{FORMAT, HEADER_BYTES_MAX, Header};
