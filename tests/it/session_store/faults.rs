//! Disks that fail: full, broken, or gone with the process in the middle of a call.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};

use pirn::model::Write;
use pirn::port::{Store as _, StoreError};
use pirn::session::jsonl::{self, Closed, Disk, Durability, JsonlStore, Options, OsDisk};
use serde_json::json;

use super::{Place, assert_strictly_valid, clock, header, message, options, set, snapshot};

/// A call of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write,
    Truncate,
    Sync,
    SyncDir,
    Rename,
    Remove,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The system's number of the error. Nothing is done.
    Error(i32),
    /// So many bytes are taken.
    Short(usize),
}

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EINTR: i32 = 4;

/// A disk that does as it is told, and tells what was asked of it.
#[derive(Debug, Default)]
struct FaultDisk {
    calls: Mutex<Vec<Call>>,
    /// What happens to the next call of a kind.
    faults: Mutex<VecDeque<(Call, Fault)>>,
    /// The process dies in the call of this number: so many bytes of it are done, and nothing behind it.
    dies_at: Mutex<Option<(usize, usize)>>,
}

impl FaultDisk {
    fn with(faults: impl IntoIterator<Item = (Call, Fault)>) -> Arc<Self> {
        let disk = Self::default();
        disk.faults.lock().unwrap().extend(faults);
        Arc::new(disk)
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    fn count(&self, call: Call) -> usize {
        self.calls().iter().filter(|made| **made == call).count()
    }

    /// The fault of this call, if it has one.
    fn fault(&self, call: Call) -> Option<Fault> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(call);
        match *self.dies_at.lock().unwrap() {
            Some((at, bytes)) if calls.len() == at && bytes > 0 => return Some(Fault::Short(bytes)),
            Some((at, _)) if calls.len() >= at => return Some(Fault::Error(EIO)),
            _ => {}
        }
        let mut faults = self.faults.lock().unwrap();
        let next = faults.front().is_some_and(|(wanted, _)| *wanted == call);
        if next { faults.pop_front().map(|(_, fault)| fault) } else { None }
    }

    fn run<T>(&self, call: Call, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.fault(call) {
            Some(Fault::Error(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::Short(_)) | None => act(),
        }
    }
}

impl Disk for FaultDisk {
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        match self.fault(Call::Write) {
            Some(Fault::Error(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::Short(count)) => OsDisk.write(file, &bytes[..count.min(bytes.len())]),
            None => OsDisk.write(file, bytes),
        }
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.run(Call::Truncate, || OsDisk.truncate(file, len))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.run(Call::Sync, || OsDisk.sync(file))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.run(Call::SyncDir, || OsDisk.sync_dir(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run(Call::Rename, || OsDisk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.run(Call::Remove, || OsDisk.remove(path))
    }
}

fn on(disk: &Arc<FaultDisk>, durability: Durability) -> Options {
    Options { durability, disk: Arc::<FaultDisk>::clone(disk), ..Options::new("pirn test", clock()) }
}

/// A session with one entry, then opened on a disk with faults.
async fn opened(place: &Place, disk: &Arc<FaultDisk>, durability: Durability) -> JsonlStore {
    let store = place.create(options()).await;
    store.commit(vec![message("a", None)]).await.unwrap();
    drop(store);
    let store = place.open(on(disk, durability)).await.unwrap();
    disk.calls.lock().unwrap().clear();
    store
}

#[tokio::test]
async fn a_full_disk_leaves_the_file_as_it_was_and_ends_the_store_case_96_ses_06() {
    let table: [(&str, Vec<(Call, Fault)>); 3] = [
        ("No space left", vec![(Call::Write, Fault::Error(ENOSPC))]),
        ("only 10 of", vec![(Call::Write, Fault::Short(10))]),
        ("Input/output error", vec![(Call::Write, Fault::Error(EIO))]),
    ];
    for (reason, faults) in table {
        let place = Place::new();
        let disk = FaultDisk::with(faults);
        let store = opened(&place, &disk, Durability::None).await;
        let (bytes, state) = (place.bytes(), snapshot(&store));
        let error = store.commit(vec![message("b", None)]).await.unwrap_err();
        assert!(matches!(&error, StoreError::Io { reason: told, .. } if told.contains(reason)), "{error}");
        assert_eq!((place.bytes(), snapshot(&store)), (bytes, state), "{reason}");
        let again = store.commit(vec![message("c", None)]).await.unwrap_err();
        assert!(matches!(&again, StoreError::Dead(told) if told.contains(reason)), "{again}");
        assert!(matches!(store.sync().await, Err(StoreError::Dead(_))));
        assert_eq!(disk.calls(), [Call::Write, Call::Truncate], "nothing is tried after it");
        store.close().await.unwrap();
        // There is space again.
        let store = place.open(options()).await.unwrap();
        assert!(store.warnings().is_empty());
        store.commit(vec![message("b", None)]).await.unwrap();
        assert_strictly_valid(&place.file());
    }
}

#[tokio::test]
async fn a_half_write_that_can_not_be_cut_off_is_a_torn_tail_for_the_next_run() {
    let place = Place::new();
    let disk = FaultDisk::with([(Call::Write, Fault::Short(10)), (Call::Truncate, Fault::Error(EIO))]);
    let store = opened(&place, &disk, Durability::None).await;
    let state = snapshot(&store);
    let error = store.commit(vec![message("b", None)]).await.unwrap_err().to_string();
    assert!(error.contains("only 10 of") && error.contains("could not be cut off: Input/output error"), "{error}");
    drop(store);
    let store = place.open(options()).await.unwrap();
    assert_eq!((snapshot(&store), store.warnings().len()), (state, 1));
    store.commit(vec![message("b", None)]).await.unwrap();
    assert_eq!(place.torn().unwrap().len(), 10);
    assert_strictly_valid(&place.file());
}

#[tokio::test]
async fn a_write_that_a_signal_interrupted_before_it_began_is_made_again() {
    let place = Place::new();
    let disk = FaultDisk::with([(Call::Write, Fault::Error(EINTR)), (Call::Write, Fault::Error(EINTR))]);
    let store = opened(&place, &disk, Durability::None).await;
    store.commit(vec![message("b", None)]).await.unwrap();
    assert_eq!(disk.count(Call::Write), 3);
    assert_strictly_valid(&place.file());
}

#[tokio::test]
async fn one_write_makes_a_commit_whatever_its_size() {
    let place = Place::new();
    let disk = FaultDisk::with([]);
    let store = opened(&place, &disk, Durability::None).await;
    store.commit(vec![set("x.a", "k", json!("x".repeat(3 << 20))), message("b", None)]).await.unwrap();
    assert_eq!(disk.calls(), [Call::Write]);
}

#[tokio::test]
async fn a_session_that_could_not_be_started_leaves_no_file() {
    for fault in [Fault::Error(ENOSPC), Fault::Error(EIO)] {
        let place = Place::new();
        let disk = FaultDisk::with([(Call::Write, fault)]);
        let error = jsonl::create(&place.file(), header(), on(&disk, Durability::None)).await.unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
        assert_eq!(place.names(), ["s.lock"]);
    }
}

#[tokio::test]
async fn a_torn_tail_is_not_cut_off_before_it_is_kept_elsewhere() {
    for (at, call) in [(1, Call::Sync), (2, Call::SyncDir), (3, Call::Truncate)] {
        let place = Place::new();
        drop(place.create(options()).await);
        let whole = place.bytes();
        std::fs::write(place.file(), [&whole[..], b"torn"].concat()).unwrap();
        let disk = Arc::new(FaultDisk::default());
        let store = place.open(on(&disk, Durability::Normal)).await.unwrap();
        let opened = disk.calls().len();
        *disk.dies_at.lock().unwrap() = Some((opened + at, 0));
        store.commit(vec![message("a", None)]).await.unwrap_err();
        assert_eq!(disk.calls()[opened + at - 1], call);
        drop(store);
        assert_eq!(place.bytes(), [&whole[..], b"torn"].concat(), "{call:?}");
        place.open(options()).await.unwrap().commit(vec![message("a", None)]).await.unwrap();
        assert_strictly_valid(&place.file());
    }
}

#[tokio::test]
async fn syncs_are_those_of_the_durability_case_126() {
    // (durability, syncs of the file, of directories): a new session, three commits, a barrier, one more commit, two
    // barriers, the end.
    for (durability, files, dirs) in [(Durability::None, 0, 0), (Durability::Normal, 2, 1), (Durability::Full, 4, 1)] {
        let place = Place::new();
        let disk = FaultDisk::with([]);
        let store = place.create(on(&disk, durability)).await;
        for name in ["a", "b", "c"] {
            store.commit(vec![message(name, None)]).await.unwrap();
        }
        store.sync().await.unwrap();
        store.commit(vec![message("d", None)]).await.unwrap();
        store.sync().await.unwrap();
        store.sync().await.unwrap();
        store.close().await.unwrap();
        assert_eq!((disk.count(Call::Sync), disk.count(Call::SyncDir)), (files, dirs), "{durability:?}");
        assert_eq!(disk.count(Call::Write), 5, "{durability:?}");
    }
}

#[tokio::test]
async fn the_first_barrier_covers_what_a_killed_process_left_unsynced() {
    let place = Place::new();
    let disk = FaultDisk::with([]);
    let store = opened(&place, &disk, Durability::Normal).await;
    store.sync().await.unwrap();
    store.sync().await.unwrap();
    assert_eq!(disk.calls(), [Call::Sync]);
}

#[tokio::test]
async fn new_directories_are_synced_where_they_got_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::with([]);
    let store = jsonl::create(&dir.path().join("a/b/s.jsonl"), header(), on(&disk, Durability::Normal)).await.unwrap();
    assert_eq!(disk.count(Call::SyncDir), 0, "a start does not wait for the disk");
    store.sync().await.unwrap();
    assert_eq!(disk.count(Call::SyncDir), 3, "of `a`, of `b`, of the file");
}

#[tokio::test]
async fn barriers_that_wait_together_share_one_sync() {
    let place = Place::new();
    let disk = FaultDisk::with([]);
    let store = opened(&place, &disk, Durability::Normal).await;
    store.commit(vec![message("b", None)]).await.unwrap();
    for result in futures_util::future::join_all((0..10).map(|_| store.sync())).await {
        result.unwrap();
    }
    assert_eq!(disk.count(Call::Sync), 1);
}

#[tokio::test]
async fn barriers_that_wait_for_a_sync_that_fails_all_fail() {
    let place = Place::new();
    let disk = FaultDisk::with([(Call::Sync, Fault::Error(EIO))]);
    let store = opened(&place, &disk, Durability::Normal).await;
    store.commit(vec![message("b", None)]).await.unwrap();
    let results = futures_util::future::join_all((0..3).map(|_| store.sync())).await;
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!(disk.count(Call::Sync), 1);
}

/// A disk whose first sync ends when it is let go, well or not.
#[derive(Debug)]
struct Held {
    let_go: Mutex<mpsc::Receiver<()>>,
    first: Mutex<Option<Fault>>,
}

impl Disk for Held {
    fn sync(&self, file: &File) -> io::Result<()> {
        // The sender is gone from then on.
        let _gone = self.let_go.lock().unwrap().recv();
        match self.first.lock().unwrap().take() {
            Some(Fault::Error(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::Short(_)) | None => OsDisk.sync(file),
        }
    }
}

#[tokio::test]
async fn a_barrier_that_nobody_waits_for_any_more_still_counts() {
    for fault in [None, Some(Fault::Error(EIO))] {
        let place = Place::new();
        drop(place.create(options()).await);
        let (hold, let_go) = mpsc::channel();
        let disk = Arc::new(Held { let_go: Mutex::new(let_go), first: Mutex::new(fault) });
        let store = place.open(Options { disk, ..Options::new("pirn test", clock()) }).await.unwrap();
        {
            let mut left = std::pin::pin!(store.sync());
            assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let mut second = std::pin::pin!(store.sync());
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(hold);
        let results = [second.await, store.sync().await];
        assert!(results.iter().all(|result| result.is_ok() == fault.is_none()), "{results:?}");
        assert_eq!(store.commit(vec![message("c", None)]).await.is_ok(), fault.is_none());
    }
}

#[tokio::test]
async fn a_sync_that_fails_ends_the_store_case_126() {
    for durability in [Durability::Normal, Durability::Full] {
        let place = Place::new();
        let disk = FaultDisk::with([(Call::Sync, Fault::Error(EIO))]);
        let store = opened(&place, &disk, durability).await;
        let committed = store.commit(vec![message("b", None)]).await;
        let error = if durability == Durability::Full {
            committed.unwrap_err()
        } else {
            committed.unwrap();
            store.sync().await.unwrap_err()
        };
        assert!(matches!(&error, StoreError::Io { reason, .. } if reason.contains("Input/output error")), "{error}");
        // The disk does not tell it again, so a second success would mean nothing.
        assert!(matches!(store.sync().await, Err(StoreError::Dead(_))));
        assert!(matches!(store.commit(vec![message("c", None)]).await, Err(StoreError::Dead(_))));
        assert_eq!(disk.count(Call::Sync), 1);
        let before = snapshot(&store);
        drop(store);
        assert_eq!(snapshot(&place.open(options()).await.unwrap()), before, "the state is what the file says (I11)");
    }
}

/// A session that is worth a rewrite.
async fn mostly_dead(store: &JsonlStore) {
    store.commit(vec![message("b", Some("a")), set("x.a", "dead", json!("d".repeat(400_000)))]).await.unwrap();
    store.commit(vec![Write::delete("x.a", "dead"), set("x.a", "k", json!([1.5]))]).await.unwrap();
}

#[tokio::test]
async fn a_kill_in_any_step_of_a_rewrite_leaves_the_old_file_or_the_new_one_case_99() {
    // The steps, of a rewrite that nothing happens to.
    let place = Place::new();
    let disk = FaultDisk::with([]);
    let store = opened(&place, &disk, Durability::Normal).await;
    mostly_dead(&store).await;
    store.sync().await.unwrap();
    let first = disk.calls().len() + 1;
    assert_eq!(store.close().await.unwrap(), Closed::Rewritten);
    let steps = disk.calls()[first - 1..].to_vec();
    assert_eq!(steps, [Call::Remove, Call::Write, Call::Sync, Call::Rename, Call::SyncDir]);

    for (step, call) in steps.iter().enumerate() {
        for bytes in if *call == Call::Write { vec![0, 1, 100, 250, usize::MAX] } else { vec![0] } {
            let place = Place::new();
            let disk = FaultDisk::with([]);
            let store = opened(&place, &disk, Durability::Normal).await;
            mostly_dead(&store).await;
            store.sync().await.unwrap();
            let (state, old) = (snapshot(&store), place.bytes());
            *disk.dies_at.lock().unwrap() = Some((first + step, bytes));
            let error = store.close().await.unwrap_err();
            assert!(matches!(error, StoreError::Io { .. }), "{error}");
            drop(store);
            let is_new = place.bytes() != old;
            assert_eq!(is_new, *call == Call::SyncDir, "step {call:?}");
            assert_strictly_valid(&place.file());
            let again = place.open(options()).await.unwrap();
            assert_eq!((snapshot(&again), again.warnings().len()), (state, 0), "step {call:?}, {bytes} bytes");
            assert_eq!(place.names(), ["s.jsonl", "s.lock"], "step {call:?}, {bytes} bytes");
        }
    }
}

#[tokio::test]
async fn a_rewrite_that_fails_is_told_and_the_session_is_whole() {
    for (call, fault, reason) in [
        (Call::Write, Fault::Error(ENOSPC), "No space left"),
        (Call::Sync, Fault::Error(EIO), "Input/output error"),
        (Call::Rename, Fault::Error(EIO), "Input/output error"),
    ] {
        let place = Place::new();
        let disk = FaultDisk::with([]);
        let store = opened(&place, &disk, Durability::Normal).await;
        mostly_dead(&store).await;
        store.sync().await.unwrap();
        disk.faults.lock().unwrap().push_back((call, fault));
        let before = place.bytes();
        let error = store.close().await.unwrap_err().to_string();
        assert!(error.contains("it was not rewritten") && error.contains(reason), "{error}");
        assert_eq!(place.bytes(), before);
        assert_eq!(place.names(), ["s.jsonl", "s.lock"], "{call:?}: the new file is gone");
        assert_eq!(jsonl::lock::probe(&place.file()).unwrap(), jsonl::lock::Probe::Free);
    }
}

/// A disk on which another process writes just before we do, after the check for it.
#[derive(Debug)]
struct Racing(std::path::PathBuf);

impl Disk for Racing {
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        let mut other = std::fs::OpenOptions::new().append(true).open(&self.0)?;
        io::Write::write_all(&mut other, b"another program\n")?;
        OsDisk.write(file, bytes)
    }
}

#[tokio::test]
async fn a_foreign_write_between_the_check_and_ours_is_noticed_and_ours_goes_again_case_127() {
    let place = Place::new();
    drop(place.create(options()).await);
    let before = place.bytes();
    let disk = Arc::new(Racing(place.file()));
    let store = place.open(Options { disk, ..super::unlocked() }).await.unwrap();
    let error = store.commit(vec![message("a", None)]).await.unwrap_err();
    assert!(matches!(error, StoreError::ForeignWrite { .. }), "{error}");
    assert_eq!(place.bytes(), [&before[..], b"another program\n"].concat());
    assert!(snapshot(&store).entries.is_empty());
}
