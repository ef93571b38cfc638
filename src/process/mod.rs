//! What concerns the process itself and its children: signal dispositions, the death by a signal, and the only way to
//! start a child.
//!
//! Keeps true: every child leads a session and a group of its own and is registered before its spawn returns; it has no
//! terminal, no descriptor of ours, and an explicit environment; no child outlives [`Supervisor::shutdown`] but those
//! that were left on purpose. A number of a process is signalled only while it cannot have gone to another process.
//! `unix` is the one audited module with `unsafe`; each block says why it is sound.
//!
//! Must not know: what a signal means for a run, which tool starts a child, what its output means.
//!
//! # The environment of a child
//!
//! It is made of a snapshot that was taken at start, in this order; a later step wins (rules V1 to V3, B15).
//!
//! 1. What is inherited, by `env.inherit`:
//!
//!    | word | inherits |
//!    |---|---|
//!    | `filtered` | all but names like `*API_KEY*` `*APIKEY*` `*SECRET*` `*TOKEN*` `*PASSWORD*` `*PASSWD*` `*CREDENTIAL*` `*PRIVATE_KEY*` `*_AUTH` `AWS_*KEY*`, in any case |
//!    | `core` | `HOME LOGNAME USER PATH SHELL TMPDIR TEMP TMP LANG LC_* TZ TERM` |
//!    | `none` | `PATH` |
//!    | `all` | all |
//!
//!    less what `env.drop` matches. Whatever the word, variables that hold a key of a known or configured provider, our
//!    own `PIRN_*`, `BASH_ENV` and `ENV` are left out. `env.pass` lets names and globs pass all of this, but a variable
//!    of the last kind only by its whole name.
//! 2. `NO_COLOR=1 TERM=dumb PAGER=cat GIT_PAGER=cat GH_PAGER=cat GIT_TERMINAL_PROMPT=0`, each unless `env.pass` names
//!    it and it is set.
//! 3. `env.set`, and what the starter of the child adds. An inherited `PWD` names the directory the child starts in.
//! 4. `LANG=C.UTF-8` where none of `LC_ALL`, `LC_CTYPE`, `LANG` is set.
//! 5. `PIRN=1`, `PIRN_SESSION_ID` (with a session), `PIRN_CALL_ID` (the id of the result's entry, for a call),
//!    `PIRN_RUN_TOKEN` (random, one for each process of ours) and `PIRN_DEPTH` (how many of us stand above; at most 5).

mod child;
mod depth;
mod env;
mod group;
mod ladder;
pub mod mask;
mod orphan;
mod spec;
mod supervisor;
mod sweep;
mod table;
#[cfg(unix)]
pub mod unix;

pub use child::{Child, OutputReader, Stopped};
pub use depth::{DEPTH_MAX, DepthError, refuse_depth};
pub use env::{ChildEnv, EnvPolicy, Inherit, is_core};
pub use orphan::{LeftReason, OrphanOutcome, stop_orphan, sweep_call, sweep_session};
pub use spec::{Exited, Output, ProcessIdentity, SpawnError, Spec, Stdin};
pub use supervisor::{Remaining, Supervisor, SupervisorSettings};
