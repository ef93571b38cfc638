//! Messages that wait for a run: the steering and the follow-up queue.
//!
//! Keeps true: a poll is atomic; what a poll took and nobody consumed goes back to the front in its order, whatever
//! ends the run; a change of mode counts from the next poll.
//!
//! Must not know: what the messages say, when queues are polled.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::Message;
pub use crate::model::QueueMode;

/// Messages waiting for a run. Polls are atomic; what a poll took and nobody consumed goes back to the front.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    mode: QueueMode,
    waiting: VecDeque<Arc<Message>>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_mode(&self, mode: QueueMode) {
        self.lock().mode = mode;
    }

    pub(super) fn push(&self, message: Arc<Message>) {
        self.lock().waiting.push_back(message);
    }

    pub(super) fn clear(&self) {
        self.lock().waiting.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// What the next poll would take.
    pub(super) fn peek(&self) -> Vec<Arc<Message>> {
        let inner = self.lock();
        let count = inner.batch();
        inner.waiting.iter().take(count).cloned().collect()
    }

    pub(super) fn poll(self: &Arc<Self>) -> Drained {
        let mut inner = self.lock();
        let count = inner.batch();
        let items = inner.waiting.drain(..count).collect();
        Drained { queue: Some(Arc::clone(self)), items }
    }
}

impl Inner {
    fn batch(&self) -> usize {
        match self.mode {
            QueueMode::OneAtATime => self.waiting.len().min(1),
            QueueMode::All => self.waiting.len(),
        }
    }
}

/// What a poll took. Dropping it puts the rest back to the front of its queue.
#[derive(Debug, Default)]
pub(super) struct Drained {
    queue: Option<Arc<Queue>>,
    items: VecDeque<Arc<Message>>,
}

impl Drained {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The next message; it counts as consumed once `consumed` was called.
    pub(super) fn front(&self) -> Option<Arc<Message>> {
        self.items.front().cloned()
    }

    /// Gives everything back now.
    pub(super) fn put_back(&mut self) {
        *self = Self::default();
    }

    pub(super) fn consumed(&mut self) {
        self.items.pop_front();
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        let mut inner = queue.lock();
        while let Some(message) = self.items.pop_back() {
            inner.waiting.push_front(message);
        }
    }
}

/// Both queues of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    pub(super) steering: Arc<Queue>,
    pub(super) follow_up: Arc<Queue>,
}
