//! What other processes left for a session: taken in, stored, and acknowledged.
//!
//! Keeps true: an item is stored and synced before it is taken away, and stored once, whatever dies in between; an
//! abort counts for the operation it was meant for, and for no later one.
//!
//! Must not know: where items lie.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Halt};
use super::drive;
use super::lane::plan_queue;
use crate::model::{CancelCause, EntryId, Event, InboxKind, LaneEvent, Message, PendingEntry, RunId, UserMessage};
use crate::port::{SpoolItem, SpoolKind};

/// How often the spool is looked at while a run goes on.
pub(super) const SPOOL_EVERY: Duration = Duration::from_millis(200);

/// Takes in everything that lies there for a lane.
pub(super) async fn spool(core: &Core, lane: &str) -> Result<(), Halt> {
    let Some(inbox) = &core.options.inbox else { return Ok(()) };
    let polled = inbox.poll();
    let name: Arc<str> = Arc::from(lane);
    for message in polled.warnings {
        let event = Event::Warning { code: "inbox".to_owned(), message };
        core.bus.push(LaneEvent { lane: Arc::clone(&name), recovery: false, event });
    }
    for item in polled.items.into_iter().filter(|item| item.lane == lane) {
        let SpoolItem { id, at, what, .. } = item;
        match what {
            SpoolKind::Steer(message) => queue(core, lane, &id, InboxKind::Steer, message).await?,
            SpoolKind::FollowUp(message) => queue(core, lane, &id, InboxKind::FollowUp, message).await?,
            SpoolKind::Abort { operation_id } => {
                if is_meant(core, lane, operation_id.as_ref(), at) {
                    drive::abort(core, lane, CancelCause::Steer).await?;
                }
            }
        }
        core.bus.barrier().await?;
        inbox.ack(&id);
    }
    Ok(())
}

/// Looks at the spool again and again, until what it finds can not be stored.
pub(super) async fn watch(core: &Core, lane: &str) -> Halt {
    loop {
        core.options.clock.sleep(SPOOL_EVERY).await;
        if let Err(halt) = spool(core, lane).await {
            return halt;
        }
        if let Err(fault) = core.bus.nudge().await {
            return Halt::Fault(fault);
        }
    }
}

async fn queue(core: &Core, lane: &str, id: &EntryId, kind: InboxKind, message: UserMessage) -> Result<(), Halt> {
    // A process may have died between storing it and taking it away.
    let stored =
        core.options.store.entries(std::slice::from_ref(id)).map_err(|error| super::error::Fault::of_store(&error))?;
    if matches!(stored.first(), Some(Some(_))) {
        return Ok(());
    }
    let payload = PendingEntry::Message { payload: Arc::new(Message::User(message)) };
    core.job(lane, |lane, _| {
        if lane.state.inbox.iter().any(|item| item.entry_id == *id) {
            return Ok((None, ()));
        }
        Ok::<_, Halt>((Some(plan_queue(lane, id, kind, payload)?), ()))
    })
    .await
}

/// Whether an abort is for the operation that is open now.
fn is_meant(core: &Core, lane: &str, operation: Option<&RunId>, at: u64) -> bool {
    let memory = core.memory();
    let open = memory.lanes.get(lane).and_then(|lane| lane.operation.as_ref());
    open.is_some_and(|open| match operation {
        Some(id) => id == open.id(),
        None => at >= open.meta.started_at,
    })
}
