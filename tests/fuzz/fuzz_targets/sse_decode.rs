//! Any bytes, any split: the same events, and no panic.
#![no_main]

#[expect(dead_code, reason = "the other target's part")]
#[path = "../../it/corpus/splits.rs"]
mod splits;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| splits::sse(bytes));
