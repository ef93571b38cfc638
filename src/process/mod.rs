//! What concerns the process itself and its children: signal dispositions, the death by a signal, and the only way to
//! start a child.
//!
//! Keeps true: every child leads a session and a group of its own and is registered before its spawn returns; it has no
//! terminal, no descriptor of ours, and an explicit environment; no child outlives [`Supervisor::shutdown`] but those
//! that were left on purpose. A number of a process is signalled only while it cannot have gone to another process.
//! `unix` is the one audited module with `unsafe`; each block says why it is sound.
//!
//! Must not know: what a signal means for a run, which tool starts a child, what its output means.

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
pub use orphan::{LeftReason, OrphanOutcome, stop_orphan};
pub use spec::{Exited, Output, ProcessIdentity, SpawnError, Spec, Stdin};
pub use supervisor::{Remaining, Supervisor, SupervisorSettings};
