//! The inputs of the fuzz targets, replayed on every test run: `tests/corpus/TARGET` holds seeds and every input that
//! ever failed.

mod splits;

use std::fs;
use std::path::Path;

use crate::chat_decode::contract::check_contract;

/// Runs `check` on every file and gives their number.
fn replay(target: &str, check: fn(&[u8])) -> usize {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let mut files = 0;
    for file in fs::read_dir(directory).unwrap() {
        check(&fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    files
}

#[test]
fn every_input_of_sse_decode_gives_the_same_events_however_it_is_split() {
    assert!(replay("sse_decode", splits::sse) >= 20);
}

#[test]
fn every_input_of_chat_decode_gives_the_same_reply_however_it_is_split() {
    assert!(replay("chat_decode", |bytes| splits::chat(bytes, check_contract)) >= 20);
}
