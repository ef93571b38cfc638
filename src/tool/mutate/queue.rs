//! Who may change a file next (tool rule M1).
//!
//! Keeps true: calls on one file go one after the other, in the order in which they came; calls on different files never
//! wait for each other's work; whoever leaves, however it ends, lets the next one through.
//!
//! Must not know: what is done to a file, how a key is found.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What calls take turns on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The real path, which need not exist.
    Path(PathBuf),
    /// A file with several names, none of which is the real one.
    Inode { device: u64, inode: u64 },
}

/// The lines before the files. There is a line only where somebody stands.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Calls that stand in no line yet. One that knows its file waits for the calls before it to know theirs, since
    /// finding out may take them longer.
    entering: BTreeMap<u64, Option<(Key, oneshot::Sender<()>)>>,
    lines: BTreeMap<Key, VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    /// `None` once it was called.
    call: Option<oneshot::Sender<()>>,
}

impl Queue {
    /// Notes a call; its place in whatever line it will join follows from this moment.
    pub(super) fn enter(self: &Arc<Self>) -> Ticket {
        let mut state = self.state();
        let number = state.next;
        state.next = state.next.saturating_add(1);
        state.entering.insert(number, None);
        drop(state);
        Ticket { queue: Arc::clone(self), number, key: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts calls into their lines, up to the first that does not know its file.
    fn advance(&mut self) {
        while let Some(first) = self.entering.first_entry() {
            if first.get().is_none() {
                return;
            }
            let number = *first.key();
            if let Some((key, call)) = first.remove() {
                let line = self.lines.entry(key).or_default();
                line.push_back(Waiter { number, call: Some(call) });
                call_first(line);
            }
        }
    }

    fn leave(&mut self, number: u64, key: Option<&Key>) {
        if self.entering.remove(&number).is_some() {
            self.advance();
            return;
        }
        let Some(key) = key else { return };
        let Some(line) = self.lines.get_mut(key) else { return };
        line.retain(|waiter| waiter.number != number);
        if line.is_empty() {
            self.lines.remove(key);
        } else {
            call_first(line);
        }
    }
}

fn call_first(line: &mut VecDeque<Waiter>) {
    let Some(call) = line.front_mut().and_then(|first| first.call.take()) else { return };
    match call.send(()) {
        // One that does not listen is about to leave, which calls the next.
        Ok(()) | Err(()) => {}
    }
}

/// A call that waits. Dropping it gives its place up.
#[derive(Debug)]
pub(super) struct Ticket {
    queue: Arc<Queue>,
    number: u64,
    key: Option<Key>,
}

impl Ticket {
    /// Joins the line of a file and waits. `None` never comes while the queue exists.
    pub(super) async fn turn(mut self, key: Key) -> Option<Turn> {
        let (call, called) = oneshot::channel();
        self.key = Some(key.clone());
        {
            let mut state = self.queue.state();
            state.entering.insert(self.number, Some((key, call)));
            state.advance();
        }
        called.await.ok().map(|()| Turn { _ticket: self })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.state().leave(self.number, self.key.as_ref());
    }
}

/// The right to change a file, for as long as it is held.
#[derive(Debug)]
pub(super) struct Turn {
    _ticket: Ticket,
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::PathBuf;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::{Key, Queue, Turn};

    fn key(name: &str) -> Key {
        Key::Path(PathBuf::from(name))
    }

    type Waiting = Pin<Box<dyn Future<Output = Option<Turn>>>>;

    fn poll(waiting: &mut Waiting) -> Option<Turn> {
        match pin!(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn.unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn calls_take_turns_in_the_order_in_which_they_came_m1() {
        let queue = Arc::new(Queue::default());
        let [first, second, third] = [queue.enter(), queue.enter(), queue.enter()];
        // They find out about their file in another order.
        let mut third: Waiting = Box::pin(third.turn(key("a")));
        assert!(poll(&mut third).is_none());
        let mut second: Waiting = Box::pin(second.turn(key("a")));
        assert!(poll(&mut second).is_none());
        let mut first: Waiting = Box::pin(first.turn(key("a")));
        let turn = poll(&mut first).unwrap();
        assert!(poll(&mut second).is_none() && poll(&mut third).is_none());
        drop(turn);
        assert!(poll(&mut third).is_none());
        drop(poll(&mut second).unwrap());
        drop(poll(&mut third).unwrap());
        assert!(queue.state().lines.is_empty() && queue.state().entering.is_empty());
    }

    #[test]
    fn different_files_do_not_wait_for_each_other_m1() {
        let queue = Arc::new(Queue::default());
        let mut held: Waiting = Box::pin(queue.enter().turn(key("a")));
        let turn = poll(&mut held).unwrap();
        let other = Key::Inode { device: 1, inode: 2 };
        let mut free: Waiting = Box::pin(queue.enter().turn(other));
        assert!(poll(&mut free).is_some());
        drop(turn);
    }

    #[test]
    fn whoever_leaves_lets_the_next_one_through_m2() {
        let queue = Arc::new(Queue::default());
        // Before it knows its file.
        let gone = queue.enter();
        let mut waiting: Waiting = Box::pin(queue.enter().turn(key("a")));
        assert!(poll(&mut waiting).is_none());
        drop(gone);
        let turn = poll(&mut waiting).unwrap();
        // In the line, and with its turn come but not taken.
        let mut called: Waiting = Box::pin(queue.enter().turn(key("a")));
        let mut impatient: Waiting = Box::pin(queue.enter().turn(key("a")));
        let mut last: Waiting = Box::pin(queue.enter().turn(key("a")));
        for waiting in [&mut called, &mut impatient, &mut last] {
            assert!(poll(waiting).is_none());
        }
        drop(impatient);
        drop(turn);
        drop(called);
        assert!(poll(&mut last).is_some());
        drop(last);
        assert!(queue.state().lines.is_empty() && queue.state().entering.is_empty());
    }
}
