//! Outcome → exit code: the only table of exit codes.
//!
//! | code | reason | when |
//! |---|---|---|
//! | 0 | `completed`, `tool_terminated` | the answer is complete |
//! | 1 | `error` | any failure without its own row |
//! | 2 | `usage` | flags, configuration, trust, unknown model, tool or session, no prompt: no model was called |
//! | 3 | `length` | the answer was cut by the output limit |
//! | 4 | `refused` | safety stop by provider or model |
//! | 5 | `max_turns`, `max_cost`, `max_repeats` | our limit |
//! | 6 | `blocked` | a hook or rule stopped the run |
//! | 7 | `suspended` | the provider works in the background |
//! | 8 | `schema` | the answer is still invalid after the allowed repairs |
//! | 75 | `unavailable` | rate limit, overload, 5xx, network, a session in use: try again later |
//! | 77 | `auth` | key missing or refused |
//! | 101 | `internal` | a bug; `result` is still written |
//! | 124 | `timeout` | `--timeout` ran out |
//! | 129, 130, 143 | `interrupted` | SIGHUP; SIGINT or an abort from outside; SIGTERM |
//! | 141 | `pipe` | the reader of stdout left |
//!
//! A failure goes by its kind ([`ErrorKind`]):
//!
//! | kind | after a model call | before any |
//! |---|---|---|
//! | `auth` `permission` | 77 | 77 |
//! | `rate_limit` `overloaded` `server` `network` `timeout` `busy` | 75 | 75 |
//! | `refusal` `content_filter` | 4 | 4 |
//! | `usage` `config` `tool_setup` | 1 | 2 |
//! | `internal` | 101 | 101 |
//! | any other | 1 | 1 |
//!
//! A session in use (`busy`) changed nothing; after any other 75 the prompt is in the session, if one is kept, and
//! `pirn -c` asks it again. A session that cannot be stored or read is of kind `storage`, which is 1 before and after a
//! call. What an answer that is told again exits with is what it exited with first.
//!
//! Single digits say how the model stopped, 7x borrow sysexits, 124 and up follow shell custom. Codes are never
//! reused, and the same outcome gives the same code in every output mode.
//!
//! Keeps true: the match over reasons is total and has no wildcard; the first cause of a cancellation decides its code.
//!
//! Must not know: everything else.

use crate::model::{CancelCause, ErrorKind, ErrorRow, Reason, StopReason};

/// What the process tells its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: u8,
    /// After an orderly end the signal's default action follows, so that a shell sees a true signal death.
    pub raise: Option<Signal>,
}

/// A signal that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Hup,
    Int,
    Term,
}

impl Exit {
    /// The exit of a command that did what it was asked.
    pub const OK: Self = Self { code: 0, raise: None };
}

/// The exit for a verdict. An error kind of its own row wins over a general reason.
pub fn of(reason: Reason, stop: Option<StopReason>, error: Option<ErrorKind>, cause: Option<CancelCause>) -> Exit {
    let code = match reason {
        // A finished run whose last reply failed is a contradiction: a bug, never a success.
        Reason::Completed | Reason::ToolTerminated => match stop {
            Some(StopReason::Stop | StopReason::ToolUse) => 0,
            Some(StopReason::Length) => 3,
            Some(StopReason::Deferred) => 7,
            Some(StopReason::Pending | StopReason::Error | StopReason::Aborted) | None => 101,
        },
        Reason::Length => 3,
        Reason::Error => error.map_or(1, |kind| of_row(kind.row())),
        Reason::Refused => 4,
        Reason::Unavailable => 75,
        Reason::Auth => 77,
        Reason::Usage => 2,
        Reason::MaxTurns | Reason::MaxCost | Reason::MaxRepeats => 5,
        Reason::Blocked => 6,
        Reason::Suspended => 7,
        Reason::Schema => 8,
        Reason::Internal => 101,
        Reason::Timeout => 124,
        Reason::Pipe => 141,
        Reason::Interrupted => match cause {
            Some(CancelCause::Hup) => 129,
            Some(CancelCause::Term) => 143,
            Some(CancelCause::Int | CancelCause::Steer) | None => 130,
            Some(CancelCause::Timeout) => 124,
            Some(CancelCause::Pipe) => 141,
            Some(CancelCause::Hook) => 6,
        },
    };
    let raise = match (reason, cause) {
        (Reason::Interrupted, Some(CancelCause::Hup)) => Some(Signal::Hup),
        (Reason::Interrupted, Some(CancelCause::Int)) => Some(Signal::Int),
        (Reason::Interrupted, Some(CancelCause::Term)) => Some(Signal::Term),
        _ => None,
    };
    Exit { code, raise }
}

/// After a model call `config`, `usage` and `tool_setup` are failures like any other.
fn of_row(row: ErrorRow) -> u8 {
    match row {
        ErrorRow::Auth => 77,
        ErrorRow::Unavailable => 75,
        ErrorRow::Refused => 4,
        ErrorRow::Internal => 101,
        ErrorRow::Usage | ErrorRow::Other => 1,
    }
}

/// The verdict of an error that came before any model call.
pub fn reason_before_call(kind: ErrorKind) -> Reason {
    match kind.row() {
        ErrorRow::Usage => Reason::Usage,
        ErrorRow::Auth => Reason::Auth,
        ErrorRow::Unavailable => Reason::Unavailable,
        ErrorRow::Refused => Reason::Refused,
        ErrorRow::Internal => Reason::Internal,
        ErrorRow::Other => Reason::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, Signal, of, reason_before_call};
    use crate::model::{CancelCause, ErrorKind, Reason, StopReason};
    use crate::turn::reason_of_reply;

    #[test]
    fn every_error_kind_after_a_model_call_has_the_documented_code() {
        let table = |kind| match kind {
            ErrorKind::Auth | ErrorKind::Permission => 77,
            ErrorKind::RateLimit
            | ErrorKind::Overloaded
            | ErrorKind::Server
            | ErrorKind::Network
            | ErrorKind::Timeout
            | ErrorKind::Busy => 75,
            ErrorKind::Refusal | ErrorKind::ContentFilter => 4,
            ErrorKind::Internal => 101,
            _ => 1,
        };
        for kind in ErrorKind::ALL {
            let reason = reason_of_reply(StopReason::Error, Some(kind), None);
            assert_eq!(of(reason, Some(StopReason::Error), Some(kind), None).code, table(kind), "{kind:?}");
            assert_eq!(of(Reason::Error, Some(StopReason::Error), Some(kind), None).code, table(kind), "{kind:?}");
        }
    }

    #[test]
    fn usage_config_and_tool_setup_are_two_only_before_a_model_call() {
        for kind in [ErrorKind::Usage, ErrorKind::Config, ErrorKind::ToolSetup] {
            assert_eq!(of(reason_before_call(kind), None, Some(kind), None).code, 2);
        }
        assert_eq!(of(reason_before_call(ErrorKind::Auth), None, Some(ErrorKind::Auth), None).code, 77);
    }

    #[test]
    fn signals_are_raised_again_and_other_aborts_are_not() {
        let rows = [
            (CancelCause::Int, Reason::Interrupted, 130, Some(Signal::Int)),
            (CancelCause::Term, Reason::Interrupted, 143, Some(Signal::Term)),
            (CancelCause::Hup, Reason::Interrupted, 129, Some(Signal::Hup)),
            (CancelCause::Steer, Reason::Interrupted, 130, None),
            (CancelCause::Timeout, Reason::Timeout, 124, None),
            (CancelCause::Pipe, Reason::Pipe, 141, None),
            (CancelCause::Hook, Reason::Blocked, 6, None),
        ];
        for (cause, reason, code, raise) in rows {
            assert_eq!(reason_of_reply(StopReason::Aborted, None, Some(cause)), reason);
            assert_eq!(of(reason, Some(StopReason::Aborted), None, Some(cause)), Exit { code, raise });
        }
    }

    #[test]
    fn a_failed_reply_is_never_reported_as_success() {
        for stop in [StopReason::Error, StopReason::Aborted, StopReason::Pending] {
            assert_eq!(of(Reason::Completed, Some(stop), None, None).code, 101);
        }
    }
}
