//! What other processes left for a session: taken in, stored, and acknowledged.
//!
//! Keeps true: an item is stored and synced before it is taken away, and stored once, whatever dies in between; an
//! abort counts for the operation it was meant for, and for no later one: without a name that is the one that is open,
//! or where none is and this process had the session already, the one that begins here; one that counts for none is
//! told.
//!
//! Must not know: where items lie.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Halt};
use super::drive;
use super::lane::plan_queue;
use crate::model::{CancelCause, EntryId, Event, InboxItem, InboxKind, Message, PendingEntry, RunId, UserMessage};
use crate::port::{Inbox, SpoolItem, SpoolKind};

/// How often the spool is looked at while a run goes on.
pub(super) const SPOOL_EVERY: Duration = Duration::from_millis(200);

/// Looks of one import: somebody who goes on leaving things does not hold up a run for ever.
const LOOKS_MAX: usize = 1_000;

/// Takes in everything that lies there for a lane.
pub(super) async fn spool(core: &Core, lane: &str) -> Result<(), Halt> {
    let Some(inbox) = &core.options.inbox else { return Ok(()) };
    for _ in 0..LOOKS_MAX {
        if !look(core, &**inbox, lane).await? {
            break;
        }
    }
    Ok(())
}

/// Takes in what one look finds; whether there may be more.
async fn look(core: &Core, inbox: &dyn Inbox, lane: &str) -> Result<bool, Halt> {
    let polled = inbox.poll();
    let warn = |message| {
        let event = Event::Warning { code: "inbox".to_owned(), message };
        core.bus.push(&Arc::from(lane), false, event);
    };
    polled.warnings.into_iter().for_each(warn);
    let mut taken = false;
    for item in polled.items {
        let SpoolItem { id, at, what, .. } = item;
        if item.lane != lane {
            // It would stand before what comes behind it for ever. Other lanes take in what is theirs.
            if !core.memory().lanes.contains_key(&item.lane) {
                inbox.refuse(&id, &format!("there is no lane {:?}", item.lane)).into_iter().for_each(warn);
                taken = true;
            }
            continue;
        }
        match what {
            SpoolKind::Steer(message) => queue(core, lane, &id, InboxKind::Steer, message).await?,
            SpoolKind::FollowUp(message) => queue(core, lane, &id, InboxKind::FollowUp, message).await?,
            SpoolKind::Abort { operation_id } => {
                match aim(core, lane, operation_id.as_ref(), at) {
                    Aim::Open => drop(drive::abort(core, lane, CancelCause::Steer).await?),
                    // It lies there until a run begins.
                    Aim::Coming => continue,
                    Aim::Over => warn("an abort was dropped: it is for a run that is over".to_owned()),
                }
            }
        }
        core.barrier().await?;
        inbox.ack(&id);
        taken = true;
    }
    Ok(taken)
}

/// Looks at the spool again and again, until what it finds can not be stored.
pub(super) async fn watch(core: &Core, lane: &str) -> Halt {
    loop {
        core.options.clock.sleep(SPOOL_EVERY).await;
        if let Err(halt) = spool(core, lane).await {
            return halt;
        }
        if let Err(halt) = core.nudge().await {
            return halt;
        }
    }
}

async fn queue(core: &Core, lane: &str, id: &EntryId, kind: InboxKind, message: UserMessage) -> Result<(), Halt> {
    let payload = PendingEntry::Message { payload: Arc::new(Message::User(message)) };
    core.job(lane, |lane, _| {
        // A process may have died between storing it and taking it away.
        if lane.state.inbox.iter().any(|item| item.entry_id == *id) || core.is_stored(id)? {
            return Ok((None, ()));
        }
        let item = InboxItem { entry_id: id.clone(), kind };
        Ok::<_, Halt>((Some(plan_queue(lane, [(item, payload)])?), ()))
    })
    .await
}

/// What an abort is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// The operation that is open.
    Open,
    /// The one that this process has not begun yet.
    Coming,
    Over,
}

fn aim(core: &Core, lane: &str, operation: Option<&RunId>, at: u64) -> Aim {
    let memory = core.memory();
    let open = memory.lanes.get(lane).and_then(|lane| lane.operation.as_ref());
    match (operation, open) {
        (Some(id), Some(open)) if id == open.id() => Aim::Open,
        // A run that this process begins is meant from the time on at which it had the session.
        (None, Some(open)) if at >= open.meta.started_at.min(core.held_since) => Aim::Open,
        (None, None) if at >= core.held_since => Aim::Coming,
        _ => Aim::Over,
    }
}
