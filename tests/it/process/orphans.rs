//! Children of a pirn that was killed: X6, PROC-05, and the engine's case 125.

use std::sync::Arc;

use pirn::port::{Clock, SystemClock};
use pirn::process::{LeftReason, OrphanOutcome, ProcessIdentity, stop_orphan};

use super::{LONG, SHORT, bounded, runs, shell, start, supervisor, until};

async fn stop(identity: &ProcessIdentity, grace: std::time::Duration) -> OrphanOutcome {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    bounded(stop_orphan(identity, grace, &clock)).await
}

#[tokio::test]
async fn an_orphan_is_stopped_when_boot_start_and_token_match() {
    for (command, grace, killed) in [
        ("sleep 300 & echo $!; echo $$; wait", LONG, false),
        ("trap '' TERM; sleep 300 & echo $!; echo $$; wait", SHORT, true),
        ("sh -c 'trap \"\" TERM; echo $$; exec sleep 300' & echo $$; wait", SHORT, true),
    ] {
        let supervisor = supervisor(LONG, false);
        let (child, _output, pids) = start(&supervisor, shell(command), 2).await;
        let identity = child.identity();
        // It is nobody's from here on, as after the death of its pirn.
        child.leave();
        assert_eq!(stop(&identity, grace).await, OrphanOutcome::Stopped { killed }, "{command}");
        assert!(pids.iter().all(|pid| !runs(*pid)), "{command}");
        assert_eq!(stop(&identity, grace).await, OrphanOutcome::Gone, "{command}");
    }
}

#[tokio::test]
async fn in_doubt_nothing_is_signalled() {
    let supervisor = supervisor(LONG, false);
    let (mut child, _output, pids) = start(&supervisor, shell("sleep 300 & echo $!; echo $$; wait"), 2).await;
    let identity = child.identity();
    assert!(identity.start_time > 0 && identity.token == supervisor.token() && identity.pgid == child.id());
    let own = rustix::process::getpgrp().as_raw_nonzero().get().cast_unsigned();
    let boot = "00000000-0000-0000-0000-000000000000".to_owned();
    let (start_time, token) = (identity.start_time + 1, "other".to_owned());
    let table = [
        (ProcessIdentity { boot_id: boot, ..identity.clone() }, Some(LeftReason::OtherBoot)),
        (ProcessIdentity { start_time, ..identity.clone() }, Some(LeftReason::OtherProcess)),
        (ProcessIdentity { token, ..identity.clone() }, Some(LeftReason::OtherToken)),
        (ProcessIdentity { pgid: 0, ..identity.clone() }, Some(LeftReason::Invalid)),
        (ProcessIdentity { pgid: 1, ..identity.clone() }, Some(LeftReason::Invalid)),
        (ProcessIdentity { pgid: own, ..identity.clone() }, Some(LeftReason::Invalid)),
        (ProcessIdentity { pgid: u32::MAX, ..identity.clone() }, Some(LeftReason::Invalid)),
        (ProcessIdentity { token: String::new(), ..identity.clone() }, Some(LeftReason::Invalid)),
        // A number beyond what the system gives out.
        (ProcessIdentity { pgid: 1 << 30, ..identity.clone() }, None),
    ];
    for (changed, want) in table {
        match (stop(&changed, SHORT).await, want) {
            (OrphanOutcome::Left { reason, pids: told }, Some(want)) => {
                assert_eq!(reason, want, "{changed:?}");
                assert!(told.contains(&identity.pgid) || want == LeftReason::Invalid, "{told:?}");
            }
            (OrphanOutcome::Gone, None) => {}
            (outcome, want) => panic!("{changed:?}: {outcome:?}, not {want:?}"),
        }
    }
    assert!(pids.iter().all(|pid| runs(*pid)));
    bounded(child.stop(LONG)).await;
}

#[tokio::test]
async fn a_group_without_its_leader_is_told_and_left() {
    let supervisor = supervisor(LONG, false);
    let (mut child, _output, pids) = start(&supervisor, shell("sleep 300 & echo $!"), 1).await;
    bounded(child.wait()).await.unwrap();
    let outcome = stop(&child.identity(), SHORT).await;
    assert_eq!(outcome, OrphanOutcome::Left { reason: LeftReason::NoLeader, pids: pids.clone() });
    assert!(runs(pids[0]));
    bounded(child.stop(LONG)).await;
    until("it is gone", || !runs(pids[0])).await;
}
