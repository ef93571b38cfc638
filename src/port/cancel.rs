use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::model::CancelCause;

/// The one cancellation of a run; the first cause wins.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    token: CancellationToken,
    cause: Arc<OnceLock<CancelCause>>,
}

impl Cancel {
    /// Not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels. Later calls change nothing.
    pub fn cancel(&self, cause: CancelCause) {
        self.cause.get_or_init(|| cause);
        self.token.cancel();
    }

    /// The token that waits for it.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Whether anyone has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Who cancelled first.
    pub fn cause(&self) -> Option<CancelCause> {
        self.cause.get().copied()
    }
}
