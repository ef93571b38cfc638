//! The verdict of a run, before it becomes a `result` line and an exit.
//!
//! Keeps true: the first cause wins; a failure of ours is never taken for the reader's, nor a signal for a failure.
//!
//! Must not know: how the verdict is told.

use super::signals::Signals;
use crate::exit::{self, Exit};
use crate::harness::{Blocked, Outcome, Settled, Wait};
use crate::model::{CancelCause, ErrorKind, ErrorRecord, Reason, StopReason};
use crate::print::StdoutFailure;

/// The exit of a run whose files could not be written; a run that failed keeps its own.
pub(super) fn exit_unstored(exit: Exit) -> Exit {
    if has_answer(exit) { exit::of(Reason::Error, None, Some(ErrorKind::Storage), None) } else { exit }
}

/// Whether an exit says that there is an answer, whole or cut.
pub(super) fn has_answer(exit: Exit) -> bool {
    exit.code == 0 || exit.code == 3
}

/// The verdict of a run, and what its exit code is made of.
pub(super) struct Verdict {
    pub(super) reason: Reason,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) error: Option<ErrorRecord>,
    pub(super) cause: Option<CancelCause>,
}

impl Verdict {
    /// A stdout that failed for another reason than a reader that left is our failure, not the reader's.
    pub(super) fn of(outcome: Outcome, stdout: Option<&StdoutFailure>) -> Self {
        let Settled { result, error, .. } = match outcome {
            Outcome::Settled(settled) => *settled,
            Outcome::Waiting(wait) => return Self::waiting(wait),
        };
        let (reason, stop_reason, cause) = (result.reason, result.stop_reason, result.cause);
        match stdout {
            Some(failure @ StdoutFailure::Failed(_)) if reason == Reason::Pipe => {
                let error = Some(ErrorRecord::new(ErrorKind::Storage, failure.to_string()));
                Self { reason: Reason::Error, stop_reason, error, cause }
            }
            _ => Self { reason, stop_reason, error, cause },
        }
    }

    /// An operation that stays open: nothing was stored, and `-c` goes on when the way is free.
    fn waiting(wait: Wait) -> Self {
        let refused = |reason, error| Self { reason, stop_reason: None, error: Some(error), cause: None };
        match wait {
            Wait::Retry { .. } => {
                refused(Reason::Unavailable, ErrorRecord::new(ErrorKind::Busy, "the next attempt is not due yet"))
            }
            Wait::Blocked(Blocked::Hook { reason }) => {
                refused(Reason::Blocked, ErrorRecord::new(ErrorKind::Hook, reason))
            }
            Wait::Blocked(Blocked::Model { model }) => {
                let message = format!("the unfinished run goes on with {model}, which is not known here");
                refused(
                    Reason::Usage,
                    ErrorRecord::new(ErrorKind::Usage, message).with_hint("-m MODEL chooses another"),
                )
            }
            Wait::Blocked(Blocked::Tools { names }) => {
                let message = format!("the unfinished run goes on with tools that are not here: {}", names.join(", "));
                refused(Reason::Usage, ErrorRecord::new(ErrorKind::Usage, message).with_hint("-t LIST chooses others"))
            }
            Wait::Blocked(Blocked::Credential { provider, variables }) => {
                let record = ErrorRecord::new(ErrorKind::Auth, format!("no key for {provider}"));
                let hint = format!("set {}", variables.join(" or "));
                let record = if variables.is_empty() { record } else { record.with_hint(hint) };
                refused(Reason::Auth, record)
            }
        }
    }

    /// The call asks for what can not be done; nothing was stored for it.
    pub(super) fn refused(error: ErrorRecord, cause: Option<CancelCause>) -> Self {
        match cause {
            Some(_) => Self::cancelled(cause),
            None => Self { reason: Reason::Usage, stop_reason: None, error: Some(error), cause: None },
        }
    }

    /// A failure that came together with a signal is the signal's: a signal to a whole group also ends servers. What
    /// the transcript says of it stays.
    pub(super) async fn unless_signalled(self, cause: &mut Option<CancelCause>, signals: &mut Signals) -> Self {
        if self.stop_reason != Some(StopReason::Error) {
            return self;
        }
        if cause.is_none() {
            *cause = signals.claim().await;
        }
        match *cause {
            Some(CancelCause::Hup | CancelCause::Int | CancelCause::Term) => Self::cancelled(*cause),
            Some(CancelCause::Timeout | CancelCause::Pipe | CancelCause::Steer | CancelCause::Hook) | None => self,
        }
    }

    /// The session could not be kept.
    pub(super) fn stored(error: ErrorRecord, cause: Option<CancelCause>) -> Self {
        match cause {
            Some(_) => Self::cancelled(cause),
            None => {
                Self { reason: Reason::Error, stop_reason: Some(StopReason::Error), error: Some(error), cause: None }
            }
        }
    }

    pub(super) fn failed(error: ErrorRecord, cause: Option<CancelCause>) -> Self {
        match cause {
            Some(_) => Self::cancelled(cause),
            None => Self { reason: Reason::Internal, stop_reason: None, error: Some(error), cause: None },
        }
    }

    /// The same run where a file could not be written, unless that changes nothing: the first cause wins.
    pub(super) fn unless_stored(&self, message: String) -> Option<Self> {
        let error = Some(ErrorRecord::new(ErrorKind::Storage, message));
        let (stop_reason, cause) = (self.stop_reason, self.cause);
        self.has_answer().then_some(Self { reason: Reason::Error, stop_reason, error, cause })
    }

    pub(super) fn has_answer(&self) -> bool {
        has_answer(self.exit())
    }

    pub(super) fn cancelled(cause: Option<CancelCause>) -> Self {
        let reason = crate::turn::reason_of_abort(cause);
        Self { reason, stop_reason: Some(StopReason::Aborted), error: None, cause }
    }

    pub(super) fn exit(&self) -> Exit {
        exit::of(self.reason, self.stop_reason, self.error.as_ref().map(|record| record.kind), self.cause)
    }
}
