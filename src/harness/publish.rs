//! The way of events to their listeners.
//!
//! Keeps true: events are told in the order in which they came to be; what says that something is finished is told
//! after the commit that stores it and after a sync that covers it; a listener that panics loses nobody anything.
//!
//! Must not know: what events are about, who listens.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use futures_util::FutureExt;

use super::error::Fault;
use super::snapshot::OperationView;
use crate::model::{Event, HandlerKind, LaneEvent};
use crate::port::Store;

/// Hears every event of a session, one after another. It can not change what happens; a slow one slows the run. It may
/// steer, abort, configure and look; one that waits for the end of a run, or for a lane to be free, waits for itself.
#[async_trait]
pub trait Listener: Send + Sync {
    async fn on_event(&self, event: &LaneEvent);
}

/// A listener stays as long as this lives.
#[derive(Debug)]
#[must_use = "dropping it takes the listener away"]
pub struct Subscription {
    id: u64,
    bus: Weak<Bus>,
}

impl Subscription {
    /// The listener stays as long as the session.
    pub fn forever(mut self) {
        self.bus = Weak::new();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(bus) = self.bus.upgrade() {
            bus.listeners().retain(|(id, _)| *id != self.id);
        }
    }
}

type Listeners = Vec<(u64, Arc<dyn Listener>)>;

/// Events on their way.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<LaneEvent>,
    /// The last event that came to be.
    last: u64,
    /// What goes on in the operations that are driven, by lane.
    underway: BTreeMap<Arc<str>, OperationView>,
}

/// The events of a session.
pub(super) struct Bus {
    store: Arc<dyn Store>,
    queue: Mutex<Queue>,
    listeners: Mutex<Listeners>,
    next_id: AtomicU64,
    /// One teller at a time.
    telling: tokio::sync::Mutex<()>,
    /// Commits that were made, and those that a sync has covered.
    commits: AtomicU64,
    synced: AtomicU64,
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("commits", &self.commits).finish_non_exhaustive()
    }
}

impl Bus {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            queue: Mutex::default(),
            listeners: Mutex::default(),
            next_id: AtomicU64::new(0),
            telling: tokio::sync::Mutex::new(()),
            // What an earlier process committed may not be synced.
            commits: AtomicU64::new(1),
            synced: AtomicU64::new(0),
        })
    }

    pub(super) fn subscribe(self: &Arc<Self>, listener: Arc<dyn Listener>) -> Subscription {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.listeners().push((id, listener));
        Subscription { id, bus: Arc::downgrade(self) }
    }

    pub(super) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::SeqCst);
    }

    /// Queues an event. What a snapshot of this moment says is changed with it.
    pub(super) fn push(&self, lane: &Arc<str>, recovery: bool, event: Event) {
        let mut queue = self.queue();
        let Queue { waiting, last, underway } = &mut *queue;
        match &event {
            Event::RunStart { run_id, started_at } => {
                underway.insert(Arc::clone(lane), OperationView::new(run_id.clone(), "run", *started_at, None));
            }
            Event::RunResume { run_id } => {
                underway.insert(Arc::clone(lane), OperationView::new(run_id.clone(), "run", 0, None));
            }
            Event::RunEnd { .. } => {
                underway.remove(lane);
            }
            event => {
                if let Some(view) = underway.get_mut(lane) {
                    view.apply(event);
                }
            }
        }
        *last = last.saturating_add(1);
        waiting.push_back(LaneEvent { seq: *last, lane: Arc::clone(lane), recovery, event });
    }

    /// Lets a view show what goes on in its operation. Gives the last event that came to be.
    pub(super) fn show(&self, lane: &str, view: Option<&mut OperationView>) -> u64 {
        let queue = self.queue();
        if let Some(view) = view
            && let Some(found) = queue.underway.get(lane).filter(|found| found.id == view.id)
        {
            view.show(found);
        }
        queue.last
    }

    /// Nobody drives the lane any more.
    pub(super) fn forget(&self, lane: &str) {
        self.queue().underway.remove(lane);
    }

    /// Tells everything that waits. Returns when it is told, also by another teller.
    pub(super) async fn flush(&self) -> Result<(), Fault> {
        let _one = self.telling.lock().await;
        self.drain().await
    }

    /// Tells everything that waits, unless somebody tells already, who then tells this, too. For callers that a
    /// listener may be waiting for.
    pub(super) async fn nudge(&self) -> Result<(), Fault> {
        while !self.queue().waiting.is_empty() {
            let Ok(one) = self.telling.try_lock() else { return Ok(()) };
            self.drain().await?;
            drop(one);
        }
        Ok(())
    }

    /// After a fault: what says that something is finished is never told, and what began is left open.
    pub(super) async fn abandon(&self) {
        let _one = self.telling.lock().await;
        self.tell_faults().await;
    }

    /// The same, unless somebody tells already, who then meets the fault. For callers that a listener may be waiting
    /// for.
    pub(super) async fn abandon_unless_told(&self) {
        if let Ok(_one) = self.telling.try_lock() {
            self.tell_faults().await;
        }
    }

    async fn tell_faults(&self) {
        loop {
            let event = self.queue().waiting.pop_front();
            let Some(event) = event else { return };
            if matches!(event.event, Event::Fault { .. } | Event::Warning { .. }) {
                self.tell(&event).await;
            }
        }
    }

    async fn drain(&self) -> Result<(), Fault> {
        loop {
            // Looked at first: a claim whose barrier fails stays untold.
            let claims = self.queue().waiting.front().map(|event| is_claim(&event.event));
            match claims {
                None => return Ok(()),
                Some(true) => self.barrier().await?,
                Some(false) => {}
            }
            let event = self.queue().waiting.pop_front();
            if let Some(event) = event {
                self.tell(&event).await;
            }
        }
    }

    /// Everything committed so far is on the disk when it returns, as far as the durability setting asks.
    pub(super) async fn barrier(&self) -> Result<(), Fault> {
        let commits = self.commits.load(Ordering::SeqCst);
        if self.synced.load(Ordering::SeqCst) >= commits {
            return Ok(());
        }
        self.store.sync().await.map_err(|error| Fault::of_store(&error))?;
        self.synced.fetch_max(commits, Ordering::SeqCst);
        Ok(())
    }

    async fn tell(&self, told: &LaneEvent) {
        let listeners: Listeners = self.listeners().clone();
        for (id, listener) in listeners {
            if AssertUnwindSafe(async { listener.on_event(told).await }).catch_unwind().await.is_err() {
                // Told to the others; one that panics at every event would never come to an end with it.
                self.listeners().retain(|(found, _)| *found != id);
                let error = "the listener panicked and hears nothing more".to_owned();
                let event = Event::HandlerError { kind: HandlerKind::Event, name: "listener".to_owned(), error };
                let (seq, lane) = (told.seq, Arc::clone(&told.lane));
                self.queue().waiting.push_front(LaneEvent { seq, lane, recovery: false, event });
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an event says that something is finished.
fn is_claim(event: &Event) -> bool {
    match event {
        Event::MessageEnd { .. }
        | Event::ToolEnd { .. }
        | Event::TurnEnd { .. }
        | Event::RunEnd { .. }
        | Event::EntryAdded { .. }
        | Event::Usage { .. } => true,
        Event::RunStart { .. }
        | Event::RunResume { .. }
        | Event::TurnStart { .. }
        | Event::MessageStart { .. }
        | Event::MessageUpdate { .. }
        | Event::ToolStart { .. }
        | Event::ToolUpdate { .. }
        | Event::RecoveryStep { .. }
        | Event::OperationAbort { .. }
        | Event::RetryScheduled { .. }
        | Event::RetryStart { .. }
        | Event::RetryEnd { .. }
        | Event::ModelFallback { .. }
        | Event::QueueUpdate { .. }
        | Event::ConfigUpdate { .. }
        | Event::ValueUpdate { .. }
        | Event::LaneCreated { .. }
        | Event::HandlerError { .. }
        | Event::Warning { .. }
        | Event::Fault { .. } => false,
    }
}
