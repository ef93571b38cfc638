//! The key that requests are signed with, and its renewal when a server refuses it.
//!
//! Keeps true: a source is asked once for a refused key, however many requests it was refused to; a renewed key is not
//! renewed again before a server has accepted it, so that no server makes a source run without end.
//!
//! Must not know: where keys come from, how a refusal is worded.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::model::{ErrorRecord, Secret};

/// Where a key came from and another one may come from, such as a command that prints short-lived ones.
#[async_trait]
pub trait KeySource: Debug + Send + Sync {
    /// Gets a key, after a server refused the last one. Whoever masks texts knows it before this returns. Dropping the
    /// future stops the work.
    ///
    /// # Errors
    /// There is none; the record says why without showing any.
    async fn refresh(&self) -> Result<Secret, ErrorRecord>;
}

/// The configured key of a provider.
#[derive(Debug)]
pub(super) struct Key {
    source: Option<Arc<dyn KeySource>>,
    state: Mutex<State>,
    /// Held while the source is asked.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    current: Option<Secret>,
    /// The source may be asked: the key is its first one, or one that was accepted.
    may_renew: bool,
}

/// What became of a refused key.
#[derive(Debug)]
pub(super) enum Renewal {
    /// The key to try instead.
    Renewed(Secret),
    /// The source gave the refused key again.
    Same,
    /// The source gave none.
    Failed(ErrorRecord),
    /// There is nobody to ask, or nothing to be gained.
    None,
}

impl Key {
    pub(super) fn new(current: Option<Secret>, source: Option<Arc<dyn KeySource>>) -> Self {
        Self { source, state: Mutex::new(State { current, may_renew: true }), turn: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn current(&self) -> Option<Secret> {
        self.state().current.clone()
    }

    /// A server took this key.
    pub(super) fn accepted(&self, key: &Secret) {
        let mut state = self.state();
        if state.current.as_ref() == Some(key) {
            state.may_renew = true;
        }
    }

    /// Looks for another key than a refused one. Requests wait for each other here, and the later ones find what the
    /// first one got.
    pub(super) async fn renew(&self, refused: &Secret) -> Renewal {
        let Some(source) = &self.source else { return Renewal::None };
        let _turn = self.turn.lock().await;
        {
            let state = self.state();
            if let Some(current) = state.current.as_ref().filter(|current| *current != refused) {
                return Renewal::Renewed(current.clone());
            }
            if !state.may_renew {
                return Renewal::None;
            }
        }
        let refreshed = source.refresh().await;
        let mut state = self.state();
        state.may_renew = false;
        match refreshed {
            Ok(key) if key == *refused => Renewal::Same,
            Ok(key) => {
                state.current = Some(key.clone());
                Renewal::Renewed(key)
            }
            Err(record) => Renewal::Failed(record),
        }
    }
}
