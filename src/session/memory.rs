//! (being written)
pub fn memory() {}
