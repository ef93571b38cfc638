//! Two processes, and a process that is killed: this test program runs itself again as the other one.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pirn::port::{Store as _, StoreError};
use pirn::session::jsonl::lock::{Probe, probe};
use pirn::session::jsonl::{self};
use serde_json::json;

use super::{Place, assert_strictly_valid, message, options, set, snapshot};

/// Where the other process finds the session, and by which it knows that it is the other one.
const SESSION: &str = "PIRN_TEST_SESSION";

fn other(program: &mut Command, test: &str, session: &Path) -> Child {
    let test = format!("session_store::processes::{test}");
    let program = program.args(["--exact", &test, "--nocapture"]).env(SESSION, session);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn session() -> Option<std::path::PathBuf> {
    std::env::var_os(SESSION).map(Into::into)
}

/// Reads what the other process prints, up to a word.
fn wait_for(child: &mut Child, word: &str) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(word)), "the other process says {word}");
}

#[tokio::test]
async fn the_other_process_that_holds_a_session() {
    let Some(path) = session() else { return };
    let store = jsonl::open(&path, options()).await.unwrap();
    store.commit(vec![message("theirs", None)]).await.unwrap();
    // A child that outlives this process must not keep the lock. It ends with the pipe it shares.
    let mut child = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
    println!("held");
    child.wait().unwrap();
}

#[tokio::test]
async fn a_killed_process_gives_its_lock_back_at_once_although_its_child_lives_case_98() {
    let place = Place::new();
    drop(place.create(options()).await);
    let mut program = Command::new(std::env::current_exe().unwrap());
    let mut child = other(&mut program, "the_other_process_that_holds_a_session", &place.file());
    wait_for(&mut child, "held");
    let before = place.bytes();
    let error = place.open(options()).await.unwrap_err();
    assert_eq!(error, StoreError::Busy { file: place.file().display().to_string(), pid: Some(child.id()) });
    assert_eq!(place.bytes(), before);
    assert!(matches!(probe(&place.file()).unwrap(), Probe::Running(holder) if holder.pid == Some(child.id())));

    // The pipe stays open, and with it the child's child.
    let pipe = child.stdin.take();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(probe(&place.file()).unwrap(), Probe::Free);
    let store = place.open(options()).await.unwrap();
    assert_eq!(snapshot(&store).entries.len(), 1, "what a commit returned survives a kill");
    drop(pipe);
}

#[tokio::test]
async fn the_other_process_whose_files_may_not_grow() {
    let Some(path) = session() else { return };
    let store = jsonl::open(&path, options()).await.unwrap();
    let mut kept = 0;
    let error = loop {
        match store.commit(vec![set("x.a", "k", json!(kept)), message(&format!("m{kept}"), None)]).await {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 10_000, "the limit is never reached");
    };
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(matches!(store.sync().await, Err(StoreError::Dead(_))));
    println!("kept {kept}");
}

#[tokio::test]
async fn a_real_limit_of_the_file_size_leaves_whole_transactions_only_ses_06() {
    let place = Place::new();
    drop(place.create(options()).await);
    let mut shell = Command::new("sh");
    // Without the signal the write fails like that of a full disk: a part of it is taken, the next one nothing.
    shell.args(["-c", "trap '' XFSZ && ulimit -f 16 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut child = other(&mut shell, "the_other_process_whose_files_may_not_grow", &place.file());
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    let kept = said.lines().find_map(|line| line.split_once("kept ")?.1.parse::<usize>().ok());
    let kept = kept.unwrap_or_else(|| panic!("{said}"));
    assert!(kept > 5, "{said}");
    assert_strictly_valid(&place.file());
    let store = place.open(options()).await.unwrap();
    assert!(store.warnings().is_empty(), "{:?}", store.warnings());
    assert_eq!(snapshot(&store).entries.len(), kept);
    store.commit(vec![message("more", None)]).await.unwrap();
    assert_strictly_valid(&place.file());
}
