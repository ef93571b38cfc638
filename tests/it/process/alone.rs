//! Tests that need a process to themselves: a sweep takes every child of its process that nobody registered, and so
//! those of other tests.

use std::process::Command;

/// Set where a test runs by itself.
const MARK: &str = "PIRN_TEST_ALONE";

/// Runs the test of that name in a process of its own and returns `None` when it passed there. In that process it
/// returns what the outer test handed over.
pub(super) fn alone(name: &str, handed: &str) -> Option<String> {
    if let Ok(handed) = std::env::var(MARK) {
        return Some(handed);
    }
    let test = format!("process::{name}");
    let inner = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, handed)
        .output()
        .unwrap();
    let (output, errors) = (String::from_utf8_lossy(&inner.stdout), String::from_utf8_lossy(&inner.stderr));
    assert!(inner.status.success(), "{output}{errors}");
    assert!(output.contains("1 passed"), "{test} is not the name of a test: {output}");
    None
}

/// A runtime as the binary has it.
pub(super) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
