//! Cases 92 to 97, 99, 100 and 126: the harness over a session file that is torn, damaged, full, changed by others, or
//! rewritten; and what is synced before what.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pirn::harness::{Fault, Harness, Listener, OpenError, Options, RunError};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, Entry, ErrorKind, Event, LaneEvent, Status,
    StopReason, UsageRow,
};
use pirn::port::{AssistantEvent, EntryScan, Order, Stats, Store, StoreError};
use pirn::session::jsonl::{self, Closed, Disk, Durability, Header, JsonlStore, LockMode, OsDisk, line};
use pirn::session::memory;
use pirn::testing::{Act, CountingTool, Executions, Reply, RuntimeClock, ScriptedProvider, SequentialIds, tear};
use serde_json::{Value, json};

use super::invariants::{self, context};
use super::recovery::told;
use super::tools::boom;
use super::world::{Dialogue, Ended, Process, World, calls, echo, say};

/// A full disk, to the system.
const ENOSPC: i32 = 28;
/// A broken one.
const EIO: i32 = 5;

/// What happened, in order: `write` and `sync` of the disk, events, executions.
#[derive(Clone, Debug, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn note(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl Listener for Journal {
    async fn on_event(&self, event: &LaneEvent) {
        self.note(event.event.name());
    }
}

/// A disk that keeps a journal, and fails when it is told to.
#[derive(Debug, Default)]
struct TestDisk {
    journal: Journal,
    /// The next write takes 10 bytes, and the one behind it none; the next sync fails.
    full: AtomicU32,
    broken: AtomicU32,
}

impl TestDisk {
    fn fill(&self) {
        self.full.store(2, Ordering::SeqCst);
    }

    fn break_down(&self) {
        self.broken.store(1, Ordering::SeqCst);
    }

    fn count(&self, what: &str) -> usize {
        self.journal.lines().iter().filter(|line| *line == what).count()
    }
}

impl Disk for TestDisk {
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        match self.full.load(Ordering::SeqCst) {
            2 => {
                self.full.store(1, Ordering::SeqCst);
                OsDisk.write(file, &bytes[..10])
            }
            1 => Err(io::Error::from_raw_os_error(ENOSPC)),
            _ => {
                self.journal.note("write");
                OsDisk.write(file, bytes)
            }
        }
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) > 0 {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        OsDisk.sync(file)?;
        self.journal.note("sync");
        Ok(())
    }
}

/// A session file and the world on it.
struct Place {
    dir: tempfile::TempDir,
    disk: Arc<TestDisk>,
    world: World,
}

impl Place {
    /// Without a lock, so that a test can keep what is left of a killed process.
    async fn new(durability: Durability) -> Self {
        Self::with(durability, LockMode::Off).await
    }

    async fn with(durability: Durability, lock: LockMode) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (disk, clock) = (Arc::new(TestDisk::default()), Arc::new(RuntimeClock::new()));
        let options = options_of(&disk, &clock, durability, lock);
        let header = Header::new("01900000-0000-7000-8000-00000000abcd", 5, "/somewhere");
        let store = jsonl::create(&dir.path().join("s.jsonl"), header, options).await.unwrap();
        let world =
            World { store: Arc::new(store), clock, ids: Arc::new(SequentialIds::new()), executions: Executions::new() };
        let provider = ScriptedProvider::new(Vec::new());
        Harness::open(world.options(world.store.clone(), provider)).await.unwrap();
        Self { dir, disk, world }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("s.jsonl")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.file()).unwrap()
    }

    /// Opens the file anew, as the next process does.
    async fn reopen(&mut self) -> Result<Vec<String>, StoreError> {
        self.world.store = Arc::new(memory(self.world.clock.clone()));
        let options = options_of(&self.disk, &self.world.clock, Durability::Normal, LockMode::Off);
        let store = jsonl::open(&self.file(), options).await?;
        let warnings = store.warnings().to_vec();
        self.world.store = Arc::new(store);
        Ok(warnings)
    }

    /// Copies of torn tails.
    fn torn(&self) -> Vec<Vec<u8>> {
        let names = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.to_string_lossy().contains(".torn-")).map(|path| fs::read(path).unwrap()).collect()
    }

    /// The baseline, killed behind transaction n.
    async fn killed_after(n: usize) -> (Self, Process) {
        let place = Self::new(Durability::Normal).await;
        let process = place.world.process_with(Vec::new(), dialogue).await;
        process.faults.kill_after(n);
        process.prompt("go").await.killed();
        (place, process)
    }

    /// The next process, which ends as the baseline does.
    async fn goes_on(&self) -> Process {
        let next = self.world.process_with(Vec::new(), dialogue).await;
        let result = next.go_on().await.result();
        assert_eq!((result.status, self.world.tree().as_str()), (Status::Completed, "u a r a"));
        assert_eq!(self.world.texts(), ["go", "hi", "v", "done"]);
        assert_eq!(self.world.open_addresses(), Vec::<String>::new());
        assert_valid(&self.file());
        assert_eq!(dump(&jsonl::read(&self.file()).unwrap()), dump(&*self.world.store), "I11");
        next
    }
}

fn options_of(
    disk: &Arc<TestDisk>,
    clock: &Arc<RuntimeClock>,
    durability: Durability,
    lock: LockMode,
) -> jsonl::Options {
    let disk = Arc::<TestDisk>::clone(disk);
    jsonl::Options { durability, lock, disk, ..jsonl::Options::new("pirn test", clock.clone()) }
}

/// Every process gets the answers of the baseline.
fn dialogue(options: &mut Options) {
    options.provider = Dialogue::baseline();
}

/// All that a store holds, places included.
#[derive(Debug, PartialEq)]
struct Dump {
    entries: Vec<Entry>,
    usage: Vec<UsageRow>,
    values: Vec<(String, Value)>,
    stats: Stats,
}

fn dump(store: &dyn Store) -> Dump {
    let namespaces = [
        namespace::BRANCH_TIP,
        namespace::LANE_CONFIG,
        namespace::LANE_STATE,
        namespace::RESULT,
        namespace::OP_META,
        namespace::OP_STATE,
        namespace::TOOL_ARGS,
        namespace::TOOL_MEMO,
        namespace::TOOL_OUTPUT,
        namespace::PENDING_ENTRY,
    ];
    let values = namespaces.iter().flat_map(|namespace| {
        let values = store.values(namespace, "").unwrap();
        values.into_iter().map(move |(key, value)| (format!("{namespace}/{key}"), value))
    });
    let scan = EntryScan { order: Order::OldestFirst, ..EntryScan::default() };
    Dump {
        entries: store.scan_entries(&scan).unwrap(),
        usage: store.usage().unwrap(),
        values: values.collect(),
        stats: store.stats(),
    }
}

/// Every line but the header is a whole transaction.
fn assert_valid(file: &Path) {
    let bytes = fs::read(file).unwrap();
    assert_eq!(bytes.last(), Some(&b'\n'));
    for text in bytes.split(|byte| *byte == b'\n').skip(1).filter(|text| !text.is_empty()) {
        line::decode(text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)));
    }
}

fn append(file: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

/// The fault that a drive ended with.
fn fault(ended: Ended) -> Fault {
    match ended {
        Ended::Refused(RunError::Faulted(fault)) => fault,
        other => panic!("no fault: {other:?}"),
    }
}

/// Whether the fault was the last that was told.
fn ends_with_fault(process: &Process) -> bool {
    process.heard.events().last().is_some_and(|told| matches!(told.event, Event::Fault { .. }))
}

#[tokio::test]
async fn a_file_goes_on_from_any_commit_as_memory_does_case_22() {
    for n in 1..=12 {
        let (mut place, first) = Place::killed_after(n).await;
        assert_eq!(dump(&jsonl::read(&place.file()).unwrap()), dump(&*place.world.store), "I11, behind {n}");
        let warnings = place.reopen().await.unwrap();
        assert!(matches!(&warnings[..], [lock] if lock.contains("session.lock")), "behind {n}: {warnings:?}");
        let next = place.world.process_with(Vec::new(), dialogue).await;
        if !place.world.state().is_null() {
            next.go_on().await.result();
        }
        assert_eq!(context(&place.world).len(), 4, "behind {n}");
        assert_eq!((place.world.results(), place.torn().len()), (1, 0));
        assert_valid(&place.file());
        assert_eq!(dump(&jsonl::read(&place.file()).unwrap()), dump(&*place.world.store), "I11, behind {n}");
        invariants::check(&place.world, &[&first, &next]);
    }
}

#[tokio::test]
async fn a_torn_line_is_left_out_and_the_run_goes_on_before_it_case_92() {
    let (mut place, _first) = Place::killed_after(8).await;
    let whole = place.bytes();
    tear(&place.file(), 8, 100).unwrap();
    let torn = place.bytes();
    assert!(whole.starts_with(&torn));
    let warnings = place.reopen().await.unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!((place.bytes(), place.torn().len()), (torn.clone(), 0), "opening changes nothing");
    assert_eq!(place.world.state()["batch"]["calls"][0]["status"], "outcome_ready");
    let before = place.world.executions.count();
    let next = place.goes_on().await;
    assert_eq!(place.world.executions.count() - before, 0);
    let starts = "run_resume R turn_start R message_start R message_end R entry_added R turn_end";
    assert!(told(&next).join(" ").starts_with(starts), "{:?}", told(&next));
    let kept = place.torn();
    assert_eq!(kept.len(), 1);
    assert!(torn.ends_with(&kept[0]) && kept[0].len() == 100, "the tail is kept elsewhere");
}

#[tokio::test]
async fn a_flipped_bit_before_a_whole_line_is_refused_by_its_line_case_93() {
    let (mut place, _first) = Place::killed_after(12).await;
    let mut bytes = place.bytes();
    // The lane and TX1 to TX4 stand before it.
    let ends: Vec<usize> = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    bytes[ends[5] + 40] ^= 1;
    fs::write(place.file(), &bytes).unwrap();
    let error = place.reopen().await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { line: 7, .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert_eq!(place.bytes(), bytes, "the file is as it was");
    let shown = jsonl::read(&place.file()).unwrap();
    assert_eq!(shown.scan_entries(&EntryScan::default()).unwrap().len(), 1, "the prompt is shown");
    assert!(shown.damage().is_some());
}

#[tokio::test]
async fn zeros_behind_the_last_line_are_a_torn_tail_case_94() {
    let (mut place, _first) = Place::killed_after(8).await;
    append(&place.file(), &[0; 4096]);
    place.reopen().await.unwrap();
    assert_eq!(place.world.state()["at"], "checkpoint");
    let before = place.world.executions.count();
    let next = place.goes_on().await;
    assert_eq!((place.world.executions.count(), told(&next)[0].as_str()), (before, "run_resume R"));
    assert_eq!(place.torn(), [vec![0; 4096]]);
}

#[tokio::test]
async fn a_last_line_that_lacks_only_its_line_feed_is_whole_case_95() {
    for n in [5, 7, 8, 11] {
        let (mut place, first) = Place::killed_after(n).await;
        let whole = place.bytes();
        let state = place.world.state();
        File::options().write(true).open(place.file()).unwrap().set_len(whole.len() as u64 - 1).unwrap();
        place.reopen().await.unwrap();
        assert_eq!(place.world.state(), state, "behind {n}");
        let next = place.goes_on().await;
        assert!(place.bytes().starts_with(&whole), "behind {n}: the line feed comes before the next line");
        assert_eq!(place.torn().len(), 0);
        invariants::check(&place.world, &[&first, &next]);
    }
}

#[tokio::test]
async fn a_full_disk_ends_the_process_and_not_the_run_case_96() {
    let mut place = Place::new(Durability::Normal).await;
    let process = place.world.process_with(Vec::new(), dialogue).await;
    let (disk, file) = (place.disk.clone(), place.file());
    let size = Arc::new(Mutex::new(0));
    let seen = size.clone();
    process.faults.on_commit(6, move || {
        *seen.lock().unwrap() = fs::metadata(file).unwrap().len();
        disk.fill();
    });
    let fault = fault(process.prompt("go").await);
    assert_eq!((fault.code, fault.kind()), ("commit_failed", ErrorKind::Storage), "{fault}");
    assert_eq!(place.bytes().len() as u64, *size.lock().unwrap(), "the file is cut back");
    let events = told(&process);
    assert!(!events.iter().any(|event| event.starts_with("tool_end") || event.starts_with("run_end")), "{events:?}");
    assert!(ends_with_fault(&process), "{events:?}");
    assert!(process.lane.snapshot().faulted);
    // Nothing more is accepted, and nothing more is written.
    assert!(matches!(process.prompt("more").await, Ended::Refused(RunError::Faulted(_))));
    assert!(process.lane.steer("more").await.is_err());
    assert_eq!(place.bytes().len() as u64, *size.lock().unwrap());
    invariants::check(&place.world, &[&process]);

    place.disk.full.store(0, Ordering::SeqCst);
    place.reopen().await.unwrap();
    assert_eq!(place.world.state()["batch"]["calls"][0]["status"], "effect_pending");
    let next = place.goes_on().await;
    assert_eq!(place.world.executions.count(), 2, "a safe call runs again");
    invariants::check(&place.world, &[&process, &next]);
}

#[tokio::test]
async fn a_full_disk_at_any_commit_leaves_a_session_that_goes_on_case_96() {
    for n in 1..=11 {
        let mut place = Place::new(Durability::Normal).await;
        let process = place.world.process_with(Vec::new(), dialogue).await;
        let disk = place.disk.clone();
        process.faults.on_commit(n, move || disk.fill());
        let fault = fault(process.prompt("go").await);
        assert_eq!(fault.code, "commit_failed", "at {n}: {fault}");
        let lines = place.bytes().split(|byte| *byte == b'\n').count() - 1;
        assert_eq!(lines, 2 + process.faults.step_count() - process.faults.syncs(), "at {n}: header, lane, commits");
        place.disk.full.store(0, Ordering::SeqCst);
        place.reopen().await.unwrap();
        let next = place.world.process_with(Vec::new(), dialogue).await;
        next.go_on().await.result();
        assert_eq!(context(&place.world).len(), 4, "at {n}");
        invariants::check(&place.world, &[&process, &next]);
    }
}

#[tokio::test]
async fn a_line_of_another_program_ends_the_process_before_it_writes_case_97() {
    for n in [1, 4, 6, 11] {
        let place = Place::new(Durability::Normal).await;
        let process = place.world.process_with(Vec::new(), dialogue).await;
        let file = place.file();
        process.faults.on_commit(n, move || append(&file, b"{\"foreign\":true}\n"));
        let fault = fault(process.prompt("go").await);
        assert_eq!((fault.code, fault.kind()), ("foreign_write", ErrorKind::Storage), "behind {n}: {fault}");
        assert!(place.bytes().ends_with(b"}\n{\"foreign\":true}\n"), "behind {n}: nothing of ours stands behind it");
        assert!(ends_with_fault(&process), "behind {n}");
        invariants::check(&place.world, &[&process]);
    }
}

#[tokio::test]
async fn a_long_run_is_rewritten_at_its_end_and_goes_on_case_99() {
    let place = Place::with(Durability::None, LockMode::Require).await;
    let Place { dir, disk, mut world } = place;
    let file = dir.path().join("s.jsonl");
    world.store = Arc::new(memory(world.clock.clone()));
    let locked = || options_of(&disk, &world.clock, Durability::None, LockMode::Require);
    let store = Arc::new(jsonl::open(&file, locked()).await.unwrap());
    world.store = store.clone();
    let value = "v".repeat(10_000);
    let mut script: Vec<Reply> = (0..30).map(|n| calls(vec![echo("c1", &format!("{n}{value}"))])).collect();
    script.push(say("done"));
    let process = world.process(script).await;
    assert_eq!(process.prompt("go").await.result().status, Status::Completed);
    invariants::check(&world, &[&process]);
    let (before, size) = (dump(&*store), fs::metadata(&file).unwrap().len());
    process.harness.clone().close().await.unwrap();
    assert_eq!(store.close().await.unwrap(), Closed::Rewritten);
    assert!(fs::metadata(&file).unwrap().len() < size / 2, "more than half was dead");
    assert_eq!(dump(&*store), before, "the closed store still reads");
    let Process { harness, lane, faults, heard, provider, mirror } = process;
    drop((harness, lane, faults, heard, provider, mirror));
    world.store = Arc::new(memory(world.clock.clone()));
    drop(store);

    let again: Arc<JsonlStore> = Arc::new(jsonl::open(&file, locked()).await.unwrap());
    assert_eq!(dump(&*again), before, "places included");
    world.store = again;
    let next = world.process(vec![say("more")]).await;
    assert_eq!(next.prompt("and now").await.result().status, Status::Completed);
    assert_eq!(next.provider.requests()[0].messages.len(), 63, "the whole conversation");
    assert_valid(&file);
}

#[tokio::test]
async fn what_this_version_does_not_know_stays_in_the_tree_and_out_of_requests_case_99() {
    let mut place = Place::new(Durability::Normal).await;
    let first = place.world.process(vec![say("hello")]).await;
    first.prompt("hi").await.result();
    let tip = place.world.path().last().unwrap().id.to_string();
    let next = first.faults.surviving().commit(Vec::new()).await.unwrap().first_seq;
    let (one, two) = ("01900000-0000-7000-8000-0000000aaaaa", "01900000-0000-7000-8000-0000000bbbbb");
    let writes = [
        json!({"seq": next, "kind": "entry", "id": one, "parentId": tip, "type": "later", "x": {"b": 1.0, "a": 2}}),
        json!({"seq": next + 1, "kind": "entry", "id": two, "parentId": one, "type": "message",
            "message": {"role": "later", "z": 1e3}}),
        json!({"seq": next + 2, "kind": "value", "op": "set", "namespace": "branch.tip", "key": "main", "value": two}),
        json!({"seq": next + 3, "kind": "value", "op": "set", "namespace": "later.ns", "key": "k", "value": 1}),
    ];
    let body = format!(r#"{{"at":9000000000000,"w":{}"#, json!(writes));
    append(&place.file(), format!("{body},\"c\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes())).as_bytes());
    place.reopen().await.unwrap();
    let process = place.world.process(vec![say("ok")]).await;
    assert_eq!(process.prompt("then this").await.result().status, Status::Completed);
    let requests = process.provider.requests();
    let roles: Vec<&str> = requests[0].messages.iter().map(|message| message.role()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(place.world.path().len(), 6);
    assert_eq!(place.world.path()[4].parent_id.as_ref().map(ToString::to_string).as_deref(), Some(two));
    assert_eq!(place.world.store.value("later.ns", "k").unwrap(), Some(json!(1)));
    assert_valid(&place.file());
}

#[tokio::test]
async fn a_newer_file_or_operation_is_left_to_a_newer_version_case_100() {
    let (mut place, _first) = Place::killed_after(12).await;
    let newer = String::from_utf8(place.bytes()).unwrap().replacen("\"format\":1", "\"format\":2", 1);
    fs::write(place.file(), &newer).unwrap();
    let error = place.reopen().await.unwrap_err();
    assert!(matches!(error, StoreError::NeedsNewer { .. }), "{error:?}");
    assert_eq!(jsonl::read(&place.file()).unwrap().scan_entries(&EntryScan::default()).unwrap().len(), 4);
    assert_eq!(place.bytes(), newer.as_bytes());

    let (mut place, first) = Place::killed_after(2).await;
    let key = place.world.store.values(namespace::OP_STATE, "").unwrap().remove(0).0;
    let mut state = place.world.state();
    state["at"] = json!("summary.deciding");
    let write = pirn::model::Write::set(namespace::OP_STATE, &key, &state).unwrap();
    first.faults.surviving().commit(vec![write]).await.unwrap();
    let bytes = place.bytes();
    place.reopen().await.unwrap();
    let options = place.world.options(place.world.store.clone(), ScriptedProvider::new(Vec::new()));
    let error = Harness::open(options).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::NeedsNewer { .. }), "{error:?}");
    assert_eq!((error.kind(), place.bytes()), (ErrorKind::Storage, bytes));
    assert_eq!(jsonl::read(&place.file()).unwrap().scan_entries(&EntryScan::default()).unwrap().len(), 1);
}

/// Events that say that something is finished.
const CLAIMS: [&str; 6] = ["message_end", "entry_added", "usage", "tool_execution_end", "turn_end", "agent_end"];

/// Whether everything that was written before this line of a journal is synced.
fn is_synced(lines: &[String], at: usize) -> bool {
    let last = |what: &str| lines[..at].iter().rposition(|line| line == what);
    last("write").is_none() || last("sync") > last("write")
}

#[tokio::test]
async fn what_is_claimed_is_on_the_disk_case_126() {
    let rows = [
        ("echo", Durability::None, 0..=0),
        ("echo", Durability::Normal, 1..=6),
        ("boom", Durability::Normal, 2..=7),
        ("echo", Durability::Full, 12..=20),
    ];
    for (tool, durability, syncs) in rows {
        let place = Place::new(durability).await;
        let journal = place.disk.journal.clone();
        let before = place.disk.count("sync");
        let call = if tool == "boom" { boom("c1") } else { echo("c1", "v") };
        let process = place
            .world
            .process_with(vec![calls(vec![call]), say("done")], |options| {
                let noting = |counting: CountingTool| {
                    let journal = journal.clone();
                    counting.counted(&place.world.executions).awaiting(move || {
                        journal.note("runs");
                        Box::pin(std::future::ready(()))
                    })
                };
                options.tools[0] = Arc::new(noting(CountingTool::echo()));
                options.tools[1] = Arc::new(noting(CountingTool::boom()));
            })
            .await;
        process.harness.subscribe(Arc::new(journal.clone())).forever();
        process.prompt("go").await.result();
        let (lines, made) = (journal.lines(), place.disk.count("sync") - before);
        let row = format!("{tool}, {durability:?}: {}", lines.join(" "));
        assert!(syncs.contains(&made), "{made} syncs, {row}");
        if durability == Durability::None {
            continue;
        }
        for (at, what) in lines.iter().enumerate() {
            let must = CLAIMS.contains(&&**what) || (what == "runs" && tool == "boom");
            assert!(!must || is_synced(&lines, at), "{what} ({at}), {row}");
        }
        invariants::check(&place.world, &[&process]);
    }
}

#[tokio::test]
async fn what_streams_is_kept_and_waits_for_no_disk_case_126() {
    let place = Place::new(Durability::Normal).await;
    let journal = place.disk.journal.clone();
    let process = place.world.process(vec![slowly("one", "two")]).await;
    process.harness.subscribe(Arc::new(journal.clone())).forever();
    process.prompt("go").await.result();
    let lines = journal.lines();
    let deltas: Vec<usize> = (0..lines.len()).filter(|at| lines[*at] == "message_update").collect();
    let streamed = &lines[deltas[0]..deltas[deltas.len() - 1]];
    assert!(streamed.iter().any(|line| line == "write"), "frames are written: {lines:?}");
    assert!(!streamed.iter().any(|line| line == "sync"), "and nothing is synced: {lines:?}");
    invariants::check(&place.world, &[&process]);
}

/// Two deltas, with time for frames between them.
fn slowly(first: &str, second: &str) -> Reply {
    let head =
        AssistantHead { api: "fake-api".to_owned(), provider: "fake".to_owned(), model: "m1".to_owned(), timestamp: 0 };
    let mut message = AssistantMessage::pending(&head);
    message.content = vec![AssistantBlock::text(format!("{first}{second}"))];
    message.stop_reason = StopReason::Stop;
    let block = |event| Act::Emit(AssistantEvent::Block { index: 0, event });
    Reply::raw(vec![
        Act::Emit(AssistantEvent::Start(head)),
        block(BlockEvent::TextStart),
        block(BlockEvent::TextDelta(first.to_owned())),
        Act::Sleep(Duration::from_millis(300)),
        block(BlockEvent::TextDelta(second.to_owned())),
        Act::Emit(AssistantEvent::End(Box::new(message))),
    ])
}

#[tokio::test]
async fn a_sync_that_fails_before_a_call_ends_the_process_before_the_call_case_126() {
    let script = || vec![calls(vec![boom("c1")]), say("done")];
    let place = Place::new(Durability::Normal).await;
    let process = place.world.process(script()).await;
    let disk = place.disk.clone();
    process.faults.on_commit(6, move || disk.break_down());
    let failed = fault(process.prompt("go").await);
    assert_eq!((failed.code, failed.kind()), ("commit_failed", ErrorKind::Storage), "{failed}");
    assert_eq!(place.world.executions.count(), 0);
    let events = told(&process);
    assert!(ends_with_fault(&process), "{events:?}");
    assert!(!events.iter().any(|event| event.starts_with("tool_")), "{events:?}");

    // The same over memory: the sync behind TX6 of an undisturbed run is the one that fails.
    let world = World::new().await;
    let whole = world.process(script()).await;
    whole.prompt("go").await.result();
    let story = whole.faults.story();
    let at = story.iter().position(|line| line.starts_with("TX6 ")).unwrap();
    let syncs = story[..at].iter().filter(|line| *line == "sync").count();
    assert_eq!(story[at + 1], "sync", "{story:?}");
    let world = World::new().await;
    let process = world.process(script()).await;
    process.faults.fail_sync(syncs + 1);
    let failed = fault(process.prompt("go").await);
    assert_eq!((failed.code, world.executions.count()), ("commit_failed", 0));
    invariants::check(&world, &[&process]);
    let next = world.process(vec![say("done")]).await;
    next.go_on().await.result();
    assert_eq!((world.executions.count(), world.tree().as_str()), (0, "u a r a"), "it may have run, for all we know");
    invariants::check(&world, &[&process, &next]);
}

#[tokio::test]
async fn a_sync_that_fails_anywhere_leaves_nothing_claimed_case_126() {
    for n in 1.. {
        let world = World::new().await;
        let process = world.process_with(Vec::new(), dialogue).await;
        process.faults.fail_sync(n);
        let ended = process.prompt("go").await;
        if let Ended::Outcome(_) = ended {
            assert!(n > 4, "only {n} syncs");
            break;
        }
        assert_eq!(fault(ended).code, "commit_failed", "sync {n}");
        assert!(!process.heard.events().iter().any(|told| matches!(told.event, Event::RunEnd { .. })), "sync {n}");
        invariants::check(&world, &[&process]);
        let next = world.process_with(Vec::new(), dialogue).await;
        if !world.state().is_null() {
            next.go_on().await.result();
        }
        assert_eq!(context(&world).len(), 4, "sync {n}");
        invariants::check(&world, &[&process, &next]);
    }
}
