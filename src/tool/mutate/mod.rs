//! Changing files: whose turn it is, what is really there, and how new content takes the place of old (tool rules M1–M6).
//! `write` works through it, and so does whatever else changes a file.
//!
//! Keeps true: a call knows its place among the others before anything waits; the guard is asked before every look at
//! the disk, and again about the file that is really meant; the turn is held from the first look to the last rename,
//! also by a call that nobody waits for any more.
//!
//! Must not know: what the new content is made of.

mod disk;
mod mask;
mod place;
mod queue;
mod replace;
mod target;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::disk::{Disk, System};
use self::place::Place;
use self::queue::{Queue, Ticket};
use super::path::Places;
use super::{Failure, off_thread};
use crate::port::ToolOutput;

pub(super) use self::mask::refuse_masks;
pub(super) use self::target::{Target, is_directory};

/// What all changes of files have in common. The tools of one run share it.
#[derive(Clone)]
pub(super) struct Mutations {
    queue: Arc<Queue>,
    disk: Arc<dyn Disk>,
    /// Whether a change waits for the medium (`tools.fsync`).
    fsync: bool,
}

impl std::fmt::Debug for Mutations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mutations").field("queue", &self.queue).field("fsync", &self.fsync).finish_non_exhaustive()
    }
}

/// One call that changes a file.
pub(super) struct Request {
    /// As the model wrote it.
    pub(super) written: String,
    /// The same for a model's eyes.
    pub(super) shown: String,
    pub(super) places: Places,
    pub(super) cancel: CancellationToken,
}

impl Mutations {
    pub(super) fn new(fsync: bool) -> Self {
        Self { queue: Arc::default(), disk: Arc::new(System), fsync }
    }

    /// Runs `apply` when every earlier call on the same file is done. `find` says which file is meant, and asks the
    /// guard first. The call is noted at once, before the future is polled (tool rule M1).
    pub(super) fn run<F, A>(
        &self,
        request: Request,
        find: F,
        apply: A,
    ) -> impl Future<Output = ToolOutput> + Send + 'static + use<F, A>
    where
        F: FnOnce(&Request) -> Result<PathBuf, Failure> + Send + 'static,
        A: FnOnce(&Target<'_>) -> Result<ToolOutput, Failure> + Send + 'static,
    {
        let ticket = self.queue.enter();
        let mutations = self.clone();
        async move { mutations.in_turn(ticket, request, find, apply).await.unwrap_or_else(Into::into) }
    }

    async fn in_turn<F, A>(self, ticket: Ticket, request: Request, find: F, apply: A) -> Result<ToolOutput, Failure>
    where
        F: FnOnce(&Request) -> Result<PathBuf, Failure> + Send + 'static,
        A: FnOnce(&Target<'_>) -> Result<ToolOutput, Failure> + Send + 'static,
    {
        let cancel = request.cancel.clone();
        let (request, place) = off_thread(move || {
            let place = Place::find(find(&request)?, &request.shown)?;
            Ok((request, place))
        })
        .await?;
        let turn = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            turn = ticket.turn(place.key()) => turn,
        };
        let Some(turn) = turn else { return Err(Failure::aborted()) };
        off_thread(move || {
            let output = Target::look(&self, &request, place).and_then(|target| apply(&target));
            // Held until here, whoever still waits for the result (tool rule M2).
            drop(turn);
            output
        })
        .await
    }
}
