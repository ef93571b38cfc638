//! The stores of sessions: one suite for both, and what holds of the file alone. Numbers of cases are those of
//! `tests/cases/engine.md`.

mod conformance;
mod damage;
mod faults;
mod files;
mod model;
mod processes;
pub(crate) mod schema;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pirn::model::{Entry, EntryBody, EntryId, Message, Usage, UsageKind, UsageRow, Write};
use pirn::port::{Clock, EntryScan, LIST_LIMIT_MAX, Order, Stats, Store, StoreError, SystemClock};
use pirn::session::jsonl::{self, Durability, Header, JsonlStore, LockMode, Options, line};
use serde_json::{Map, Value};

/// Namespaces that tests write to.
const NAMESPACES: [&str; 3] = ["branch.tip", "x.a", "x.b"];

/// A directory with a session in it, or none yet.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// In memory where there is such a place: a loaded disk makes thousands of small files wait for each other.
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self { dir: dir.unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("s.jsonl")
    }

    async fn create(&self, options: Options) -> JsonlStore {
        jsonl::create(&self.file(), header(), options).await.unwrap()
    }

    async fn open(&self, options: Options) -> Result<JsonlStore, StoreError> {
        jsonl::open(&self.file(), options).await
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }

    /// Names in the directory, in order.
    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn torn_path(&self) -> Option<PathBuf> {
        let name = self.names().into_iter().find(|name| name.starts_with("s.jsonl.torn-"))?;
        Some(self.dir.path().join(name))
    }

    /// The copy of a torn tail, if there is one.
    fn torn(&self) -> Option<Vec<u8>> {
        self.torn_path().map(|path| std::fs::read(path).unwrap())
    }

    fn remove_torn(&self) {
        self.torn_path().into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

fn header() -> Header {
    Header::new("01900000-0000-7000-8000-000000000001", 5, "/somewhere")
}

/// Nothing is synced: most tests are not about the disk.
fn options() -> Options {
    Options { durability: Durability::None, ..Options::new("pirn test", clock()) }
}

fn unlocked() -> Options {
    Options { lock: LockMode::Off, ..options() }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

fn id(id: &str) -> EntryId {
    EntryId::new(id)
}

fn said(text: &str) -> EntryBody {
    EntryBody::Message { message: Arc::new(Message::user(text, Vec::new(), 7)), terminate: false }
}

fn entry(name: &str, parent: Option<&str>, body: EntryBody) -> Write {
    Write::Entry { id: id(name), parent_id: parent.map(id), body }
}

/// A user message under a parent.
fn message(name: &str, parent: Option<&str>) -> Write {
    entry(name, parent, said(name))
}

fn set(namespace: &str, key: &str, value: Value) -> Write {
    Write::Set { namespace: namespace.into(), key: key.into(), value }
}

fn append(namespace: &str, key: &str, value: Value) -> Write {
    Write::Append { namespace: namespace.into(), key: key.into(), value }
}

fn delete_list(namespace: &str, key: &str) -> Write {
    Write::DeleteList { namespace: namespace.into(), key: key.into() }
}

fn usage_row(name: &str, tokens: u64, cost: f64) -> Write {
    let mut usage = Usage { input: tokens, output: 1, ..Usage::default() };
    usage.sum_total();
    usage.cost.total = cost;
    Write::Usage(UsageRow {
        id: id(name),
        operation_id: None,
        lane: Some("main".into()),
        kind: UsageKind::Request,
        provider: Some("demo".into()),
        model_id: None,
        usage,
        cost: Some(cost),
        entry_id: None,
        details: None,
        extra: Map::new(),
    })
}

/// Everything a store answers.
#[derive(Clone, Debug, PartialEq)]
struct Snapshot {
    entries: Vec<Entry>,
    usage: Vec<UsageRow>,
    values: Vec<(String, String, Value)>,
    lists: Vec<(String, String, Vec<Value>)>,
    stats: Stats,
}

/// Keys of lists that tests write to.
const LISTS: [&str; 3] = ["", "k", "k2"];

fn snapshot(store: &dyn Store) -> Snapshot {
    let all = EntryScan { order: Order::OldestFirst, ..EntryScan::default() };
    let values = NAMESPACES.iter().flat_map(|namespace| {
        let values = store.values(namespace, "").unwrap();
        values.into_iter().map(|(key, value)| ((*namespace).to_owned(), key, value))
    });
    let list = |namespace: &str, key: &str| {
        let values = store.list(namespace, key, 0, LIST_LIMIT_MAX).unwrap().values;
        (namespace.to_owned(), key.to_owned(), values)
    };
    let lists = NAMESPACES.iter().flat_map(|namespace| LISTS.iter().map(|key| list(namespace, key)));
    Snapshot {
        entries: store.scan_entries(&all).unwrap(),
        usage: store.usage().unwrap(),
        values: values.collect(),
        lists: lists.collect(),
        stats: store.stats(),
    }
}

/// A program that knows nothing but the published format finds no fault in a file.
fn assert_strictly_valid(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.last(), Some(&b'\n'), "{}", String::from_utf8_lossy(&bytes));
    let mut lines = bytes[..bytes.len() - 1].split(|byte| *byte == b'\n');
    Header::parse(lines.next().unwrap()).unwrap();
    let mut last = 0;
    for line in lines {
        let decoded = line::decode(line).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(line)));
        for write in decoded.writes {
            let seq = pirn::session::record::head(write.get()).unwrap().seq;
            assert!(seq > last, "{seq} behind {last}");
            last = seq;
        }
    }
}
