//! How a session file is opened.
//!
//! Keeps true: what is not said is the safe choice.
//!
//! Must not know: where the choices come from.

use std::fmt;
use std::sync::Arc;

use super::disk::{Disk, OsDisk};
use crate::port::Clock;

/// When a session is synced to the disk. Every commit is written at once whatever this says, and so survives the death
/// of the process; a sync is for the loss of power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Never.
    None,
    /// At barriers.
    #[default]
    Normal,
    /// After every commit.
    Full,
}

/// Whether a session is locked while it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// A file system without locks is refused.
    #[default]
    Require,
    /// Only foreign writes are noticed, after they happened.
    Off,
}

/// How a session file is opened.
#[derive(Clone)]
pub struct Options {
    pub durability: Durability,
    pub lock: LockMode,
    /// Told to those who find the session locked.
    pub command: String,
    pub clock: Arc<dyn Clock>,
    /// The operating system's, but for tests of failures.
    pub disk: Arc<dyn Disk>,
}

impl Options {
    /// Durability normal, with a lock.
    pub fn new(command: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self {
            durability: Durability::default(),
            lock: LockMode::default(),
            command: command.into(),
            clock,
            disk: Arc::new(OsDisk),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("lock", &self.lock)
            .field("command", &self.command)
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}
