//! Children of a pirn that was killed: found again by what it stored, and ended if there is no doubt (X6).
//!
//! Keeps true: nothing is signalled unless the boot, the start time of the leader and the token in its environment are
//! all those that were stored, or it says itself that it belongs to a session that nobody but us has open; a stored
//! number that names no group of a child is never signalled, and nothing that we run under.
//!
//! Must not know: where the identity was stored.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use std::collections::BTreeSet;

use super::env::{CALL_NAME, SESSION_NAME, TOKEN_NAME};
use super::ladder::blocking;
use super::spec::ProcessIdentity;
use super::sweep::Hunt;
use super::table::{Process, Table, boot_id, pid, signal_group};
use crate::port::Clock;

/// Numbers up to this one are init and the system's own way to say "everybody": no child has them.
const RESERVED_MAX: u32 = 1;
/// First and longest pause between two looks.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(50);
/// How long killed processes may take to disappear.
const KILL_WAIT: Duration = Duration::from_millis(400);

/// What became of an orphan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanOutcome {
    /// Nobody of that group runs.
    Gone,
    /// The group was ended; `killed` tells whether the grace ran out.
    Stopped { killed: bool },
    /// Nothing was signalled, or not everything ended; these processes run.
    Left { reason: LeftReason, pids: Vec<u32> },
}

/// Why an orphan was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftReason {
    #[error("this system does not tell enough about processes")]
    Unknown,
    #[error("the stored number is not that of a child")]
    Invalid,
    #[error("it was stored during another boot")]
    OtherBoot,
    #[error("the leader of the group has ended")]
    NoLeader,
    #[error("another process has the number by now")]
    OtherProcess,
    #[error("the process does not carry the token of the run")]
    OtherToken,
    #[error("it could not be ended")]
    Unstoppable,
}

/// Rounds of the sweep behind a killed pirn; each may find what the one before it forked.
const SWEEP_ROUNDS: u32 = 5;

/// Kills what a call of a killed pirn left outside of the recorded group, or before the group was recorded: processes
/// of this boot that carry the token of that pirn and the id of the call. Returns their numbers.
pub async fn sweep_call(identity: &ProcessIdentity, call_id: &str, clock: &Arc<dyn Clock>) -> Vec<u32> {
    let (token, boot, call_id) = (identity.token.clone(), identity.boot_id.clone(), call_id.to_owned());
    let swept = blocking(&**clock, move || {
        if token.is_empty() || boot.is_empty() || boot != boot_id() {
            return Vec::new();
        }
        let hunt = Hunt { token, call_id: Some(call_id), ..Hunt::default() };
        let mut killed = Vec::new();
        for _ in 0..SWEEP_ROUNDS {
            let found = hunt.round();
            if found.is_empty() {
                break;
            }
            killed.extend(found);
        }
        killed.sort_unstable();
        killed.dedup();
        killed
    });
    swept.await.unwrap_or_default()
}

/// Kills what finished calls of killed pirns left running in the background, where this process alone has their session:
/// processes that carry its id and the token of another pirn. Those of the calls in `except`, which are dealt with one
/// by one, stay, and so does whatever we run under. Returns their numbers.
pub async fn sweep_session(session_id: &str, own_token: &str, except: Vec<String>, clock: &Arc<dyn Clock>) -> Vec<u32> {
    let (session_id, own_token) = (session_id.to_owned(), own_token.to_owned());
    let swept = blocking(&**clock, move || {
        let mut killed = BTreeSet::new();
        for _ in 0..SWEEP_ROUNDS {
            let Ok(table) = Table::read() else { break };
            let above = ancestors(&table);
            let is_left = |process: &&Process| {
                !above.contains(&process.id)
                    && process.environment().is_some_and(|environment| {
                        environment.has(SESSION_NAME, &session_id)
                            && environment.knows(TOKEN_NAME)
                            && !environment.has(TOKEN_NAME, &own_token)
                            && !except.iter().any(|call| environment.has(CALL_NAME, call))
                    })
            };
            let found: Vec<Process> = table.running().filter(is_left).copied().collect();
            if found.is_empty() {
                break;
            }
            for process in &found {
                process.signal(Signal::KILL);
            }
            killed.extend(found.iter().map(|process| process.id));
        }
        killed.into_iter().collect()
    });
    swept.await.unwrap_or_default()
}

/// This process and what it runs under.
fn ancestors(table: &Table) -> BTreeSet<u32> {
    let mut above = BTreeSet::new();
    let mut next = Some(std::process::id());
    while let Some(id) = next.filter(|id| above.insert(*id)) {
        next = table.running().find(|process| process.id == id).map(|process| process.parent);
    }
    above
}

/// Ends the group of a child that a killed pirn left, with TERM, `grace` and KILL, if it is certainly that one.
pub async fn stop_orphan(identity: &ProcessIdentity, grace: Duration, clock: &Arc<dyn Clock>) -> OrphanOutcome {
    let stored = identity.clone();
    let verdict = blocking(&**clock, move || recognise(&stored)).await;
    let members = match verdict {
        Some(Ok(members)) => members,
        Some(Err(outcome)) => return outcome,
        None => return left(LeftReason::Unknown, vec![identity.pgid]),
    };
    let asked = clock.monotonic_ms();
    let mut killed_ms = None;
    let mut pause = POLL_MIN;
    // Ends: the group is killed after the grace and given up after that.
    loop {
        let seen = {
            let (stored, members) = (identity.clone(), members.clone());
            blocking(&**clock, move || still_running(&stored, &members)).await
        };
        let Some(running) = seen else {
            return left(LeftReason::Unknown, members.iter().map(|process| process.id).collect());
        };
        if running.is_empty() {
            return OrphanOutcome::Stopped { killed: killed_ms.is_some() };
        }
        let now = clock.monotonic_ms();
        match killed_ms {
            None if now.saturating_sub(asked) >= millis(grace) => {
                kill(&**clock, running).await;
                killed_ms = Some(now);
                pause = POLL_MIN;
            }
            Some(since) if now.saturating_sub(since) >= millis(KILL_WAIT) => {
                return left(LeftReason::Unstoppable, running.iter().map(|process| process.id).collect());
            }
            // A member that was forked meanwhile is killed too.
            Some(_) => kill(&**clock, running).await,
            None => {}
        }
        clock.sleep(pause).await;
        pause = pause.saturating_mul(2).min(POLL_MAX);
    }
}

/// Asks the group to end if it is the stored one. Returns who is in it.
fn recognise(stored: &ProcessIdentity) -> Result<Vec<Process>, OrphanOutcome> {
    let own = rustix::process::getpgrp().as_raw_nonzero().get().cast_unsigned();
    if stored.pgid <= RESERVED_MAX || stored.pgid == own || stored.token.is_empty() {
        return Err(left(LeftReason::Invalid, Vec::new()));
    }
    let Some(id) = pid(stored.pgid) else {
        return Err(left(LeftReason::Invalid, Vec::new()));
    };
    let boot = boot_id();
    let Ok(table) = Table::read() else {
        return Err(left(LeftReason::Unknown, vec![stored.pgid]));
    };
    if boot.is_empty() {
        return Err(left(LeftReason::Unknown, vec![stored.pgid]));
    }
    let members: Vec<Process> = table.members(stored.pgid).copied().collect();
    let pids = || members.iter().map(|process| process.id).collect::<Vec<u32>>();
    let is_gone = || !members.iter().any(|member| carries(member, &stored.token));
    // No process outlives its boot, so what has the number now is not of the group. But where it carries the token, it
    // is the stored boot that is wrong.
    if boot != stored.boot_id {
        return Err(if is_gone() { OrphanOutcome::Gone } else { left(LeftReason::OtherBoot, pids()) });
    }
    let Some(leader) = members.iter().find(|process| process.id == stored.pgid) else {
        return Err(if is_gone() { OrphanOutcome::Gone } else { left(LeftReason::NoLeader, pids()) });
    };
    if leader.start_time != stored.start_time {
        return Err(left(LeftReason::OtherProcess, vec![leader.id]));
    }
    if !carries(leader, &stored.token) {
        return Err(left(LeftReason::OtherToken, pids()));
    }
    for signal in [Signal::TERM, Signal::CONT] {
        // The leader was seen a moment ago, so the number is still that of its group.
        signal_group(id, signal);
    }
    Ok(members)
}

/// Those of the group who still run: who was in it when it was recognised, and who carries its token.
fn still_running(stored: &ProcessIdentity, members: &[Process]) -> Vec<Process> {
    let table = Table::read().unwrap_or_default();
    let is_known = |process: &Process| {
        members.iter().any(|member| (member.id, member.start_time) == (process.id, process.start_time))
    };
    let running = table.members(stored.pgid).filter(|process| is_known(process) || carries(process, &stored.token));
    running.copied().collect()
}

async fn kill(clock: &dyn Clock, processes: Vec<Process>) {
    // Whoever could not be reached is found again.
    blocking(clock, move || processes.iter().for_each(|process| process.signal(Signal::KILL))).await;
}

fn carries(process: &Process, token: &str) -> bool {
    process.environment().is_some_and(|environment| environment.has(TOKEN_NAME, token))
}

fn left(reason: LeftReason, pids: Vec<u32>) -> OrphanOutcome {
    OrphanOutcome::Left { reason, pids }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
