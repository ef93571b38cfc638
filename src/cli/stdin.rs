//! Reading standard input and files without stopping the run's only async thread.
//!
//! Keeps true: a blocking read happens on a thread of its own, which hands over bounded chunks, so that the caller can
//! race the wait with signals and `--timeout`; the first second without a byte is announced; the number of bytes is
//! bounded. The one thing that cannot be joined is a thread inside a read that never returns: it owns nothing and ends
//! with the process.
//!
//! Must not know: what the bytes are for.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use tokio::sync::mpsc;

use super::UsageError;
use super::prompt::{StdinKind, TEXT_BYTES_MAX, too_long};
use crate::port::Clock;

/// Bytes of one read.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks that may wait for the caller.
const CHUNKS_MAX: usize = 4;
/// Bytes of one source: UTF-16 takes twice the space of the text it holds, and one more byte shows that it is longer.
const SOURCE_BYTES_MAX: usize = 2 * TEXT_BYTES_MAX + CHUNK_BYTES;
/// Silence before stdin is announced.
const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// What is announced.
pub const NOTICE: &str = "waiting for stdin (use </dev/null or --no-stdin)";
/// Pause before a descriptor in non-blocking mode is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Chunks of a source in order; ends after the last one or an error.
pub(super) type Chunks = mpsc::Receiver<io::Result<Vec<u8>>>;

/// Tells what file descriptor 0 is. A closed one is the null device, which the runtime opens in its place.
pub fn stdin_kind() -> StdinKind {
    if io::stdin().is_terminal() {
        return StdinKind::Terminal;
    }
    match stdin_file().and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.file_type().is_fifo() => StdinKind::Pipe,
        Ok(metadata) if metadata.is_file() => StdinKind::File,
        Ok(_) | Err(_) => StdinKind::Other,
    }
}

/// Standard input as a file of its own, without the standard library's shared buffer.
pub(super) fn stdin_file() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// Opens and reads a source on a thread of its own. Opening happens there too: a named pipe blocks in it.
pub(super) fn spawn_reader<R, F>(open: F) -> io::Result<Chunks>
where
    R: Read,
    F: FnOnce() -> io::Result<R> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
        let failure = match open() {
            Ok(source) => pump(source, &sender).err(),
            Err(error) => Some(error),
        };
        if let Some(error) = failure {
            // Where nobody listens any more, nobody misses the error.
            drop(sender.blocking_send(Err(error)));
        }
    })?;
    Ok(receiver)
}

/// Reads to the end, or until nobody listens.
fn pump(mut source: impl Read, sender: &mpsc::Sender<io::Result<Vec<u8>>>) -> io::Result<()> {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        match source.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                chunk.truncate(count);
                if sender.blocking_send(Ok(chunk)).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A parent may have left the shared description in non-blocking mode.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !sender.is_closed() => {
                std::thread::park_timeout(RETRY_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// How long the first byte may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Endless,
    /// Announce the wait, then wait on.
    Announced,
    /// Announce the wait, and give up after this long.
    Within(Duration),
}

/// Collects a source. `name` stands in errors; `notice` gets the announcement. Fails when a read fails, the first
/// byte does not come in time, or the source is too long for a prompt.
pub(super) async fn collect(
    mut chunks: Chunks,
    name: &str,
    patience: Patience,
    clock: &dyn Clock,
    notice: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<u8>, UsageError> {
    let mut next = first_chunk(&mut chunks, patience, clock, notice).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = next {
        let chunk = chunk.map_err(|error| UsageError::new(format!("cannot read {name}: {}", reason(&error))))?;
        bytes.extend_from_slice(&chunk);
        if bytes.len() > SOURCE_BYTES_MAX {
            return Err(too_long());
        }
        next = chunks.recv().await;
    }
    Ok(bytes)
}

async fn first_chunk(
    chunks: &mut Chunks,
    patience: Patience,
    clock: &dyn Clock,
    notice: &mut (dyn FnMut(&str) + Send),
) -> Result<Option<io::Result<Vec<u8>>>, UsageError> {
    let limit = match patience {
        Patience::Endless => return Ok(chunks.recv().await),
        Patience::Announced => None,
        Patience::Within(limit) => Some(limit),
    };
    let before_notice = limit.map_or(NOTICE_AFTER, |limit| limit.min(NOTICE_AFTER));
    tokio::select! {
        biased;
        chunk = chunks.recv() => return Ok(chunk),
        () = clock.sleep(before_notice) => notice(NOTICE),
    }
    let Some(limit) = limit else { return Ok(chunks.recv().await) };
    tokio::select! {
        biased;
        chunk = chunks.recv() => Ok(chunk),
        () = clock.sleep(limit.saturating_sub(before_notice)) => {
            let message = format!("no data on stdin within {}", seconds(limit));
            Err(UsageError::new(message).with_hint("use </dev/null or --no-stdin, or raise input.stdin_wait"))
        }
    }
}

/// The reason without the operating system's number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    }
}

fn seconds(limit: Duration) -> String {
    if limit.subsec_millis() == 0 { format!("{}s", limit.as_secs()) } else { format!("{}ms", limit.as_millis()) }
}
