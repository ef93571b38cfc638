//! The reader of a command's output: every byte is masked, cleaned into the view and kept for the spill file.
//!
//! Keeps true: it reads on whatever the call does, so that nothing a command writes to blocks or breaks; what it holds
//! is bounded; the view is final once the call has asked for it.
//!
//! Must not know: when a call is over, what a model reads.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::sync::{oneshot, watch};

use super::clean::Cleaner;
use super::spill::{Saved, Spill};
use super::view::{Shown, View};
use crate::port::Clock;
use crate::process::OutputReader;
use crate::process::mask::{Masker, Masks};
use crate::tool::truncate::Caps;

/// Bytes of one read: what a pipe holds on Linux.
const READ_BYTES: usize = 64 << 10;
/// Pause between two looks at a file that grows.
const FOLLOW_EVERY: Duration = Duration::from_millis(20);

/// Where output is read.
pub(super) enum Source {
    /// Ends when everybody has closed it.
    Pipe(OutputReader),
    /// Ends when it is told to.
    File(Follow),
}

/// The reading end of a file that others write.
pub(super) struct Follow {
    file: Arc<File>,
    offset: u64,
    /// Nothing will be added any more.
    complete: watch::Receiver<bool>,
    clock: Arc<dyn Clock>,
}

impl Follow {
    /// Follows a file from its start; it ends where it ends once `complete` holds.
    pub(super) fn new(file: File, complete: watch::Receiver<bool>, clock: Arc<dyn Clock>) -> Self {
        Self { file: Arc::new(file), offset: 0, complete, clock }
    }

    async fn read(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
        // Ends with `complete`, which is set or dropped when the call is over.
        loop {
            let is_complete = *self.complete.borrow() || self.complete.has_changed().is_err();
            let (file, offset) = (Arc::clone(&self.file), self.offset);
            let mut piece = vec![0; READ_BYTES];
            let read = tokio::task::spawn_blocking(move || file.read_at(&mut piece, offset).map(|read| (piece, read)));
            let (piece, read) = read.await.map_err(std::io::Error::other)??;
            if read > 0 {
                self.offset += read as u64;
                buffer.clear();
                buffer.extend_from_slice(piece.get(..read).unwrap_or_default());
            }
            if read > 0 || is_complete {
                return Ok(read);
            }
            tokio::select! {
                // An error says that the other end is gone, which the next round sees.
                _changed = self.complete.changed() => {}
                () = self.clock.sleep(FOLLOW_EVERY) => {}
            }
        }
    }
}

impl Source {
    /// The next bytes; none at the end. Cancel-safe.
    async fn read(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
        match self {
            Self::Pipe(pipe) => {
                buffer.clear();
                buffer.reserve(READ_BYTES);
                pipe.read_buf(buffer).await
            }
            Self::File(file) => file.read(buffer).await,
        }
    }
}

/// How far the reading is.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Counts the changes of the view; 0 = nothing was printed.
    pub(super) version: u64,
    /// When something was read last, in monotonic milliseconds.
    pub(super) read_ms: u64,
    /// What was read is still being written to a file.
    pub(super) is_writing: bool,
    /// Everything was read.
    pub(super) has_ended: bool,
    /// What became of the spill file; known at the end, and when it was asked for.
    pub(super) saved: Option<Saved>,
}

/// What a reader shares with its call.
#[derive(Debug)]
pub(super) struct Feed {
    view: Mutex<View>,
    progress: watch::Sender<Progress>,
}

impl Feed {
    fn new(caps: Caps, masks: &Masks) -> Self {
        Self { view: Mutex::new(View::new(caps, masks)), progress: watch::channel(Progress::default()).0 }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view as it is now.
    pub(super) fn show(&self) -> Shown {
        self.view().show()
    }

    /// Tells of every read.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}

/// What becomes of the output behind the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It is read on, into the spill file.
    File,
    /// Somebody else keeps it.
    Nothing,
}

/// Reads one command's output to its end.
pub(super) struct Pump {
    feed: Arc<Feed>,
    clock: Arc<dyn Clock>,
    masker: Masker,
    cleaner: Cleaner,
    /// `None` when it was lost to a runtime that ends.
    spill: Option<Spill>,
    /// The view is final; what comes goes to the file alone.
    is_shown: bool,
}

impl Pump {
    pub(super) fn new(caps: Caps, masks: &Masks, spill: Spill, clock: Arc<dyn Clock>) -> Self {
        Self {
            feed: Arc::new(Feed::new(caps, masks)),
            clock,
            masker: masks.stream(),
            cleaner: Cleaner::default(),
            spill: Some(spill),
            is_shown: false,
        }
    }

    pub(super) fn feed(&self) -> Arc<Feed> {
        Arc::clone(&self.feed)
    }

    /// Reads to the end. When the word of the call comes, the view is closed and what follows is kept as it says; when
    /// the call is dropped, what follows is of interest to nobody.
    pub(super) async fn run(mut self, mut source: Source, detach: oneshot::Receiver<Keep>) {
        let mut detach = Some(detach);
        let mut buffer = Vec::new();
        loop {
            let read = tokio::select! {
                biased;
                keep = asked(&mut detach) => {
                    detach = None;
                    self.close_view(keep).await;
                    if keep == Some(Keep::Nothing) {
                        return;
                    }
                    continue;
                }
                read = source.read(&mut buffer) => read,
            };
            // What cannot be read any more has ended.
            let Ok(1..) = read else { break };
            let mut sure = Vec::with_capacity(buffer.len());
            self.masker.feed(&buffer, &mut sure);
            self.take(sure).await;
        }
        let mut rest = Vec::new();
        self.masker.finish(&mut rest);
        self.take(rest).await;
        self.end().await;
    }

    /// Takes masked bytes.
    async fn take(&mut self, bytes: Vec<u8>) {
        let (is_needed, version) = {
            let mut view = self.feed.view();
            if !self.is_shown {
                self.cleaner.feed(&bytes, &mut *view);
            }
            (view.is_cut() && !self.is_shown, view.version())
        };
        let now = self.clock.monotonic_ms();
        self.feed.progress.send_modify(|progress| {
            progress.version = version;
            progress.read_ms = now;
        });
        if self.spill.as_ref().is_some_and(|spill| spill.would_block(bytes.len(), is_needed)) {
            self.feed.progress.send_modify(|progress| progress.is_writing = true);
            self.spill(move |spill| spill.add(&bytes, is_needed)).await;
            self.feed.progress.send_modify(|progress| progress.is_writing = false);
        } else if let Some(spill) = &mut self.spill {
            spill.add(&bytes, is_needed);
        }
    }

    async fn close_view(&mut self, keep: Option<Keep>) {
        if let Some(keep) = keep {
            // What was held back is shown as it is: the text ends here.
            let held = self.masker.held().to_vec();
            self.finish_view(&held);
            match keep {
                Keep::File => self.spill(Spill::promise).await,
                Keep::Nothing => self.discard().await,
            }
            self.tell(keep == Keep::Nothing);
        } else {
            self.discard().await;
        }
        self.is_shown = true;
    }

    async fn end(mut self) {
        if !self.is_shown {
            self.finish_view(&[]);
            if !self.feed.view().is_cut() {
                self.discard().await;
            }
        }
        self.tell(true);
    }

    fn finish_view(&mut self, last: &[u8]) {
        let mut view = self.feed.view();
        self.cleaner.feed(last, &mut *view);
        self.cleaner.finish(&mut *view);
        view.finish();
    }

    /// The file is not needed. Most commands have none, and nothing blocks then.
    async fn discard(&mut self) {
        match &mut self.spill {
            Some(spill) if !spill.has_file() => spill.discard(),
            _ => self.spill(Spill::discard).await,
        }
    }

    /// Works on the file where it may block.
    async fn spill(&mut self, work: impl FnOnce(&mut Spill) + Send + 'static) {
        if let Some(mut spill) = self.spill.take() {
            let worked = tokio::task::spawn_blocking(move || {
                work(&mut spill);
                spill
            });
            self.spill = worked.await.ok();
        }
    }

    fn tell(&self, has_ended: bool) {
        let saved = self.spill.as_ref().map(Spill::saved).unwrap_or_default();
        self.feed.progress.send_modify(|progress| {
            progress.has_ended = has_ended;
            progress.saved = Some(saved);
        });
    }
}

/// Waits for the call's word, which comes once; `None` when the call is gone.
async fn asked(detach: &mut Option<oneshot::Receiver<Keep>>) -> Option<Keep> {
    match detach {
        Some(receiver) => receiver.await.ok(),
        None => std::future::pending().await,
    }
}
