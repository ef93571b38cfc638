//! Any bytes, any split: the same reply, in the order every reader relies on, and no panic.
#![no_main]

#[path = "../../it/chat_decode/contract.rs"]
mod contract;
#[expect(dead_code, reason = "the other target's part")]
#[path = "../../it/corpus/splits.rs"]
mod splits;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| splits::chat(bytes, contract::check_contract));
