//! What leaves its group: case 87, X4. Each in a process of its own.

use std::process::{Command, Stdio};

use pirn::process::unix::become_subreaper;
use pirn::process::{Spec, Supervisor};

use super::alone::{alone, run};
use super::{LONG, bounded, call, kill, line, runs, shell, start, status, supervisor, until};

/// Ways out of a group. Each prints the number of what escaped and holds no pipe of ours.
const ESCAPES: [(&str, &str); 5] = [
    ("setsid", "setsid sh -c 'echo $$; exec >/dev/null 2>&1; exec sleep 300' &"),
    ("double fork", "(setsid sh -c 'echo $$; exec >/dev/null 2>&1; exec sleep 300' & )"),
    ("nohup", "setsid nohup sh -c 'echo $$; exec >/dev/null 2>&1; trap \"\" TERM; sleep 300' &"),
    ("no environment", "setsid env -i sh -c 'echo $$; exec >/dev/null 2>&1; exec sleep 300' &"),
    // Its parent lives, so it is found below one that was re-parented.
    ("child without environment", "setsid env -i sh -c 'exec 3>&1 >/dev/null 2>&1; sleep 300 & echo $! >&3; wait' &"),
];

/// Starts all escapes as children of one call and waits until their shell has ended.
async fn escape(supervisor: &Supervisor, spec: fn(&str) -> Spec) -> Vec<u32> {
    let mut escaped = Vec::new();
    for (name, command) in ESCAPES {
        let (mut child, _output, pids) = start(supervisor, spec(command), 1).await;
        bounded(child.wait()).await.unwrap();
        assert_ne!(status(pids[0]).unwrap()[3], child.id().to_string(), "{name} stayed in its session");
        child.release();
        escaped.extend(pids);
    }
    escaped
}

#[test]
fn escapees_are_gone_after_shutdown_and_nobody_else_is_case_87() {
    const NAME: &str = "sweeping::escapees_are_gone_after_shutdown_and_nobody_else_is_case_87";
    if std::env::var_os("PIRN_TEST_ALONE").is_none() {
        // A process of the same user, and one that a second supervisor started.
        let mut foreign = Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().unwrap();
        run(async {
            let other = supervisor(LONG, false);
            let (child, _output, pids) = start(&other, call("c1", "setsid sleep 300 & echo $!; wait"), 1).await;
            tokio::task::spawn_blocking(|| alone(NAME, "")).await.unwrap();
            assert!(runs(foreign.id()) && runs(pids[0]) && runs(child.id()));
            pids.into_iter().for_each(kill);
        });
        foreign.kill().unwrap();
        foreign.wait().unwrap();
        return;
    }
    run(async {
        become_subreaper().unwrap();
        let supervisor = supervisor(LONG, true);
        let escaped = escape(&supervisor, |command| call("c1", command)).await;
        assert!(escaped.iter().all(|pid| runs(*pid)));
        assert_eq!(bounded(supervisor.shutdown()).await, []);
        assert!(escaped.iter().all(|pid| !runs(*pid)), "{escaped:?}");
        // All were reaped, by number.
        until("no child is left", no_child).await;
    });
}

/// Whether this process has no child, not even an ended one.
fn no_child() -> bool {
    let own = std::process::id().to_string();
    let pids =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    !pids.filter_map(status).any(|fields| fields[1] == own)
}

#[test]
fn a_second_signal_takes_escapees_too() {
    let Some(_) = alone("sweeping::a_second_signal_takes_escapees_too", "") else { return };
    run(async {
        become_subreaper().unwrap();
        let supervisor = supervisor(LONG, true);
        let escaped = escape(&supervisor, shell).await;
        supervisor.kill_now();
        until("all are gone", || !escaped.iter().any(|pid| runs(*pid))).await;
    });
}

#[test]
fn children_we_had_before_the_first_of_ours_are_not_swept() {
    let Some(_) = alone("sweeping::children_we_had_before_the_first_of_ours_are_not_swept", "") else { return };
    run(async {
        become_subreaper().unwrap();
        let mut before =
            Command::new("setsid").args(["sleep", "300"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // One that loses its parent later, but stays in our session.
        let mut parent = Command::new("sh")
            .args(["-c", "sleep 300 >/dev/null 2>&1 & echo $!; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = String::new();
        let mut reader = std::io::BufReader::new(parent.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut reader, &mut printed).unwrap();
        let later: u32 = printed.trim().parse().unwrap();

        let supervisor = supervisor(LONG, true);
        let mut child = supervisor.spawn(shell("true")).unwrap();
        bounded(child.wait()).await.unwrap();
        drop(parent.stdin.take());
        parent.wait().unwrap();
        let own = std::process::id().to_string();
        until("it is re-parented", || status(later).is_some_and(|fields| fields[1] == own)).await;
        assert_eq!(bounded(supervisor.shutdown()).await, []);
        supervisor.kill_now();
        assert!(runs(before.id()) && runs(later));
        before.kill().unwrap();
        before.wait().unwrap();
        kill(later);
    });
}

#[test]
fn a_stopped_call_takes_its_escapees_and_no_others() {
    let Some(_) = alone("sweeping::a_stopped_call_takes_its_escapees_and_no_others", "") else { return };
    run(async {
        become_subreaper().unwrap();
        let supervisor = supervisor(LONG, true);
        let command = "setsid sh -c 'echo $$; exec sleep 300' & sleep 300 & echo $!; wait";
        let (mut first, _first_output, of_first) = start(&supervisor, call("c1", command), 2).await;
        let (second, _second_output, of_second) = start(&supervisor, call("c2", command), 2).await;
        let mut want = [of_first.clone(), vec![first.id()]].concat();
        want.sort_unstable();
        assert_eq!(first.survivors().await, want);
        let stopped = bounded(first.stop(LONG)).await;
        assert!(!stopped.killed && stopped.remaining.is_empty(), "{stopped:?}");
        assert!(of_first.iter().all(|pid| !runs(*pid)));
        assert!(of_second.iter().all(|pid| runs(*pid)) && runs(second.id()));
        assert_eq!(bounded(supervisor.shutdown()).await, []);
        assert!(of_second.iter().all(|pid| !runs(*pid)));
    });
}

#[test]
fn what_a_call_left_on_purpose_is_not_swept() {
    let Some(_) = alone("sweeping::what_a_call_left_on_purpose_is_not_swept", "") else { return };
    run(async {
        become_subreaper().unwrap();
        let supervisor = supervisor(LONG, true);
        // One carries the call's id in a session of its own, one is of the group and carries nothing.
        let command = "setsid sh -c 'echo $$; exec sleep 300' & env -i sh -c 'echo $$; exec sleep 300' &";
        let (mut left, _left_output, of_left) = start(&supervisor, call("c1", command), 2).await;
        let (mut ours, _ours_output, of_ours) = start(&supervisor, call("c2", command), 2).await;
        bounded(left.wait()).await.unwrap();
        bounded(ours.wait()).await.unwrap();
        left.leave();
        ours.release();
        assert_eq!(bounded(supervisor.shutdown()).await, []);
        supervisor.kill_now();
        drop(supervisor);
        assert!(of_left.iter().all(|pid| runs(*pid)));
        assert!(of_ours.iter().all(|pid| !runs(*pid)));
        of_left.into_iter().for_each(kill);
    });
}

#[test]
fn a_child_that_left_nothing_is_done_with_and_one_that_did_is_not() {
    let Some(_) = alone("sweeping::a_child_that_left_nothing_is_done_with_and_one_that_did_is_not", "") else { return };
    run(async {
        become_subreaper().unwrap();
        let supervisor = supervisor(LONG, true);
        for _ in 0..3 {
            let mut child = supervisor.spawn(call("c0", "true")).unwrap();
            bounded(child.wait()).await.unwrap();
            assert_eq!(child.survivors().await, [0; 0]);
            child.release();
            assert!(no_child(), "it is reaped at once");
        }
        let escaped = "setsid sh -c 'echo $$; exec sleep 300' &";
        let below = "setsid sh -c 'sleep 300 & echo $!' &";
        let kept = "sh -c 'echo $$; exec sleep 300' &";
        for (id, command) in [("c1", escaped), ("c2", below), ("c3", kept)] {
            let (mut child, _output, pids) = start(&supervisor, call(id, command), 1).await;
            bounded(child.wait()).await.unwrap();
            until("whoever told the number has ended", || {
                status(pids[0]).is_some_and(|fields| fields[1] == std::process::id().to_string())
            })
            .await;
            assert_eq!(child.survivors().await, pids, "{command}");
            child.release();
            // A second one finds nothing of its own beside it.
            let mut other = supervisor.spawn(call("c4", "true")).unwrap();
            bounded(other.wait()).await.unwrap();
            assert_eq!(other.survivors().await, [0; 0]);
            other.release();
        }
        assert_eq!(bounded(supervisor.shutdown()).await, []);
        until("no child is left", no_child).await;
    });
}

#[tokio::test]
async fn a_library_sweeps_nothing() {
    let supervisor = supervisor(LONG, false);
    let command = "setsid sh -c 'echo $$; exec sleep 300' & echo done; wait";
    let mut child = supervisor.spawn(call("c1", command)).unwrap();
    let mut output = child.output().unwrap();
    let mut lines = [line(&mut output).await, line(&mut output).await];
    lines.sort_unstable();
    let escaped: u32 = lines[0].parse().unwrap();
    bounded(child.stop(LONG)).await;
    assert_eq!(bounded(supervisor.shutdown()).await, []);
    assert!(runs(escaped));
    kill(escaped);
}
