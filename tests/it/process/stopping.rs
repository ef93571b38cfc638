//! How children are ended: B4, X3, PROC-03, PROC-04, PROC-05, and what is released or left (B8).

use std::time::{Duration, Instant};

use pirn::process::{Exited, SpawnError};

use super::{LONG, PATIENCE, SHORT, bounded, kill, line, runs, shell, start, status, supervisor, until};

#[tokio::test]
async fn a_whole_group_ends_at_once_when_it_listens_proc_03() {
    let supervisor = supervisor(LONG, false);
    let command = "sh -c 'echo $$; sleep 300' | cat & sleep 300 & echo $!; echo $$; wait";
    // The first number goes through `cat` and may come late.
    let (mut child, mut output, pids) = start(&supervisor, shell(command), 3).await;
    let stopped = bounded(child.stop(LONG)).await;
    assert_eq!(stopped.exited, Some(Exited { code: None, signal: Some(15) }));
    assert!(!stopped.killed && stopped.remaining.is_empty(), "{stopped:?}");
    assert!(pids.iter().all(|pid| !runs(*pid)), "{pids:?}");
    // Nobody holds the pipe any more.
    bounded(tokio::io::AsyncReadExt::read_to_end(&mut output, &mut Vec::new())).await.unwrap();
    assert_eq!(bounded(child.wait()).await.unwrap().signal, Some(15));
}

#[tokio::test]
async fn what_ignores_term_is_killed_after_the_grace_proc_04() {
    let supervisor = supervisor(LONG, false);
    for command in [
        // The shell and its child ignore it; only the child does.
        "trap '' TERM; sleep 300 & echo $!; echo $$; wait",
        "sh -c 'trap \"\" TERM; echo $$; exec sleep 300' & echo $$; wait",
    ] {
        let (mut child, _output, pids) = start(&supervisor, shell(command), 2).await;
        let before = Instant::now();
        let stopped = bounded(child.stop(SHORT)).await;
        assert!(before.elapsed() >= SHORT, "{command}: {:?}", before.elapsed());
        assert!(stopped.killed && stopped.remaining.is_empty(), "{command}: {stopped:?}");
        assert!(pids.iter().all(|pid| !runs(*pid)), "{command}");
    }
}

#[tokio::test]
async fn a_child_has_the_grace_to_clean_up() {
    let supervisor = supervisor(LONG, false);
    let command = "trap 'sleep 0.1; echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = supervisor.spawn(shell(command)).unwrap();
    let mut output = child.output().unwrap();
    assert_eq!(line(&mut output).await, "ready");
    let stopped = bounded(child.stop(LONG)).await;
    assert_eq!((stopped.exited.unwrap().code, stopped.killed), (Some(7), false));
    // The loop's own sleep was asked too, and the shell may say so.
    let mut text = String::new();
    bounded(tokio::io::AsyncReadExt::read_to_string(&mut output, &mut text)).await.unwrap();
    assert!(text.ends_with("cleaned\n"), "{text:?}");
}

#[tokio::test]
async fn a_stopped_group_hears_that_it_shall_end() {
    let supervisor = supervisor(LONG, false);
    let mut child = supervisor.spawn(shell("kill -STOP $$; sleep 300")).unwrap();
    let id = child.id();
    until("it has stopped itself", || status(id).is_some_and(|fields| fields[0] == "T")).await;
    let stopped = bounded(child.stop(LONG)).await;
    assert_eq!((stopped.exited.unwrap().signal, stopped.killed), (Some(15), false));
}

#[tokio::test]
async fn stopping_what_has_ended_takes_no_time() {
    let supervisor = supervisor(LONG, false);
    let mut child = supervisor.spawn(shell("exit 4")).unwrap();
    bounded(child.wait()).await.unwrap();
    for _ in 0..2 {
        let stopped = bounded(child.stop(LONG)).await;
        assert_eq!((stopped.exited.unwrap().code, stopped.killed), (Some(4), false));
    }
}

#[tokio::test]
async fn shutdown_ends_all_groups_in_one_grace_and_nothing_starts_after_it_x3() {
    let supervisor = supervisor(SHORT * 4, false);
    let mut pids = Vec::new();
    let mut children = Vec::new();
    for _ in 0..8 {
        let (child, output, mut own) =
            start(&supervisor, shell("trap '' TERM; sleep 300 & echo $!; echo $$; wait"), 2).await;
        pids.append(&mut own);
        children.push((child, output));
    }
    let before = Instant::now();
    assert_eq!(bounded(supervisor.shutdown()).await, []);
    // One after the other would last eight of them.
    assert!((SHORT * 4..SHORT * 20).contains(&before.elapsed()), "{:?}", before.elapsed());
    assert!(pids.iter().all(|pid| !runs(*pid)));
    assert!(matches!(supervisor.spawn(shell("true")).unwrap_err(), SpawnError::Closed));
    for (mut child, _output) in children {
        assert_eq!(bounded(child.wait()).await.unwrap().signal, Some(9));
    }
    assert_eq!(bounded(supervisor.shutdown()).await, []);
}

#[tokio::test]
async fn a_grace_that_was_given_is_not_given_again() {
    let supervisor = supervisor(LONG, false);
    let (mut child, _output, pids) = start(&supervisor, shell("trap '' TERM; echo $$; sleep 300"), 1).await;
    // The tool that stops it is dropped half-way.
    assert!(tokio::time::timeout(SHORT, child.stop(LONG)).await.is_err());
    assert!(runs(pids[0]));
    let stopped = bounded(child.stop(SHORT)).await;
    assert!(stopped.killed && !runs(pids[0]));
}

#[tokio::test]
async fn a_second_signal_kills_without_waiting() {
    let supervisor = supervisor(LONG, false);
    let mut all = Vec::new();
    let mut children = Vec::new();
    for _ in 0..3 {
        let (child, output, mut pids) =
            start(&supervisor, shell("trap '' TERM; sleep 300 & echo $!; echo $$; wait"), 2).await;
        all.append(&mut pids);
        children.push((child, output));
    }
    supervisor.kill_now();
    until("all are gone", || !all.iter().any(|pid| runs(*pid))).await;
    assert!(matches!(supervisor.spawn(shell("true")).unwrap_err(), SpawnError::Closed));
    for (mut child, _output) in children {
        assert_eq!(bounded(child.wait()).await.unwrap().shell_code(), 137);
    }
}

#[tokio::test]
async fn background_children_live_until_shutdown_case_86() {
    let supervisor = supervisor(LONG, false);
    let (mut child, mut output, pids) = start(&supervisor, shell("sleep 300 & echo $!; echo done"), 1).await;
    assert_eq!(line(&mut output).await, "done");
    bounded(child.wait()).await.unwrap();
    assert_eq!(child.survivors().await, pids);
    child.release();
    // Another call of the run comes and goes.
    let mut other = supervisor.spawn(shell("true")).unwrap();
    bounded(other.wait()).await.unwrap();
    drop(other);
    assert!(runs(pids[0]));
    assert_eq!(bounded(supervisor.shutdown()).await, []);
    assert!(!runs(pids[0]));
}

#[tokio::test]
async fn released_children_that_have_ended_are_reaped() {
    let supervisor = supervisor(LONG, false);
    let (mut child, _output, pids) = start(&supervisor, shell("sleep 0.05 & echo $!; echo $$"), 2).await;
    bounded(child.wait()).await.unwrap();
    child.release();
    until("the background child has ended", || !runs(pids[0])).await;
    assert!(status(pids[1]).is_some(), "kept, so that its number stays taken");
    let mut other = supervisor.spawn(shell("true")).unwrap();
    bounded(other.stop(LONG)).await;
    assert!(status(pids[1]).is_none());
}

#[tokio::test]
async fn what_is_left_on_purpose_lives_on_b8() {
    let supervisor = supervisor(SHORT, false);
    let (mut child, output, pids) = start(&supervisor, shell("sleep 300 & echo $!"), 1).await;
    bounded(child.wait()).await.unwrap();
    drop(output);
    child.leave();
    let before = Instant::now();
    assert_eq!(bounded(supervisor.shutdown()).await, []);
    supervisor.kill_now();
    drop(supervisor);
    assert!(before.elapsed() < PATIENCE && runs(pids[0]));
    kill(pids[0]);
}

#[tokio::test]
async fn stopping_a_long_tail_of_forks_leaves_nobody() {
    let supervisor = supervisor(LONG, false);
    let command = "trap '' TERM; echo $$; while :; do sleep 0.001 & sleep 0.001; done";
    let (mut child, _output, _) = start(&supervisor, shell(command), 1).await;
    let stopped = bounded(child.stop(Duration::from_millis(50))).await;
    assert!(stopped.killed && stopped.remaining.is_empty(), "{stopped:?}");
    assert_eq!(child.survivors().await, [0; 0]);
}
