use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Disk, OsDisk, SpoolError, TEXT_BYTES_MAX, leave, leave_on};
use crate::model::{EntryId, ErrorKind, ErrorRecord, Message, RunId, UserMessage};
use crate::port::{Clock as _, Ids as _, Inbox as _, SpoolItem, SpoolKind, SystemClock, UuidIds};
use crate::session::place::inbox_dir;
use crate::session::spool::Spool;

/// A session file that nobody reads, and its spool.
struct World {
    dir: tempfile::TempDir,
    ids: UuidIds,
    clock: Arc<SystemClock>,
}

impl World {
    fn new() -> Self {
        let world =
            Self { dir: tempfile::tempdir().unwrap(), ids: UuidIds::new(), clock: Arc::new(SystemClock::new()) };
        File::create(world.session()).unwrap();
        world
    }

    fn session(&self) -> PathBuf {
        self.dir.path().join("s.jsonl")
    }

    fn inbox(&self) -> PathBuf {
        inbox_dir(&self.session())
    }

    fn spool(&self) -> Spool {
        Spool::new(&self.session(), self.clock.clone())
    }

    fn leave(&self, what: SpoolKind) -> Result<EntryId, SpoolError> {
        leave(&self.session(), "main", what, &self.ids, &*self.clock)
    }

    /// Puts bytes where an item would be.
    #[expect(clippy::disallowed_methods, reason = "a test's own file need not survive a crash")]
    fn put(&self, name: impl AsRef<OsStr>, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::create_dir_all(self.inbox()).unwrap();
        let path = self.inbox().join(name.as_ref());
        fs::write(&path, bytes).unwrap();
        path
    }

    /// An item as text, changed.
    fn text(&self, id: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut item = json!({
            "v": 1, "id": id, "lane": "main", "kind": "steer",
            "message": {"role": "user", "content": [{"type": "text", "text": "x"}], "timestamp": 1},
            "at": self.clock.now_ms()
        });
        change(&mut item);
        item.to_string()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.inbox()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

fn user(text: &str) -> UserMessage {
    match Message::user(text, Vec::new(), 7) {
        Message::User(message) => message,
        other => panic!("{other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_left_is_found_in_order_until_it_is_acknowledged() {
    let world = World::new();
    let spool = world.spool();
    assert_eq!(spool.poll().items, []);
    assert!(!world.inbox().exists(), "looking makes nothing");
    let all = [
        SpoolKind::Steer(user("one")),
        SpoolKind::FollowUp(user("zwei ♥ \u{1}")),
        SpoolKind::Abort { operation_id: None },
        SpoolKind::Abort { operation_id: Some(RunId::new("r1")) },
    ];
    let before = world.clock.now_ms();
    let ids: Vec<EntryId> = all.iter().map(|what| world.leave(what.clone()).unwrap()).collect();
    let polled = spool.poll();
    assert_eq!(polled.warnings, [""; 0]);
    assert!(polled.items.iter().all(|item| item.at >= before && item.lane == "main"));
    let found: Vec<_> = polled.items.iter().map(|item| (item.id.clone(), item.what.clone())).collect();
    assert_eq!(found, ids.iter().cloned().zip(all).collect::<Vec<_>>());
    assert_eq!(spool.poll(), polled, "it stays");
    assert_eq!(world.names().len(), 4, "and nothing else is left");
    assert_eq!(mode(&world.inbox()), 0o700);
    assert!(world.names().iter().all(|name| mode(&world.inbox().join(name)) == 0o600));
    for id in &ids {
        spool.ack(id);
        spool.ack(id);
    }
    assert_eq!(spool.poll().items, []);
    assert_eq!(world.spool().poll().items, [], "in the next process neither");
}

#[test]
fn the_file_of_an_item_is_the_format_that_is_promised() {
    let world = World::new();
    let id = world.leave(SpoolKind::FollowUp(user("hi"))).unwrap();
    let text = fs::read_to_string(world.inbox().join(format!("{id}.json"))).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        found,
        json!({
            "v": 1, "id": id.as_str(), "lane": "main", "kind": "followUp",
            "message": {"role": "user", "content": [{"type": "text", "text": "hi"}], "timestamp": 7},
            "at": found["at"].as_u64().unwrap()
        })
    );
    assert!(text.ends_with("}\n"));
    // A later version may add members.
    let id = world.ids.next_id();
    world.put(format!("{id}.json"), world.text(&id, |item| item["later"] = json!(1)));
    assert_eq!(world.spool().poll().items.len(), 2);
}

#[test]
fn a_message_that_can_not_be_a_prompt_is_refused_and_nothing_is_written_case_58() {
    let world = World::new();
    for (text, want) in [("", "is empty"), (" \n", "is empty"), (&"x".repeat(TEXT_BYTES_MAX + 1), "longer than 10 MB")]
    {
        let error = ErrorRecord::from(world.leave(SpoolKind::Steer(user(text))).unwrap_err());
        assert!(error.message.contains(want), "{}", error.message);
        assert_eq!(error.kind, ErrorKind::Usage);
    }
    assert!(!world.inbox().exists());
    world.leave(SpoolKind::Steer(user(&"x".repeat(TEXT_BYTES_MAX)))).unwrap();
    assert_eq!(world.spool().poll().items.len(), 1);
}

#[test]
fn a_session_that_was_removed_gets_no_directory_again() {
    let world = World::new();
    fs::remove_file(world.session()).unwrap();
    assert!(matches!(world.leave(SpoolKind::Steer(user("x"))), Err(SpoolError::NoSession { .. })));
    assert!(!world.inbox().exists());
}

#[test]
fn what_is_no_item_is_put_aside_with_one_warning_and_the_others_are_found_case_56() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 13] = [
        ("version 2", |item| item["v"] = json!(2)),
        ("version 9", |item| *item = json!({"v": 9, "what": "else"})),
        ("missing field `v`", |item| drop(item.as_object_mut().unwrap().remove("v"))),
        ("another id", |item| item["id"] = json!("01900000-0000-7000-8000-000000000001")),
        ("missing field `id`", |item| drop(item.as_object_mut().unwrap().remove("id"))),
        ("missing field `lane`", |item| drop(item.as_object_mut().unwrap().remove("lane"))),
        ("unknown variant", |item| item["kind"] = json!("nextRun")),
        ("no message", |item| drop(item.as_object_mut().unwrap().remove("message"))),
        ("missing field `stopReason`", |item| item["message"]["role"] = json!("assistant")),
        ("not of a user", |item| item["message"] = json!({"role": "system", "content": "obey"})),
        ("is empty", |item| item["message"]["content"] = json!([])),
        ("invalid type", |item| item["at"] = json!("now")),
        ("longer than", |item| item["message"]["content"] = json!("x".repeat(TEXT_BYTES_MAX + 1))),
    ];
    for (want, change) in changes {
        let world = World::new();
        let id = world.ids.next_id();
        world.put(format!("{id}.json"), world.text(&id, change));
        let good = world.leave(SpoolKind::Steer(user("good"))).unwrap();
        bad_and_good(&world, &format!("{id}.json"), &good, want);
    }
    for bytes in [&b"{\"v\":1,"[..], b"", b"[]", b"null", b"\xff\xfe", &[0; 4096], b"{\"v\":1,\"v\":1}"] {
        let world = World::new();
        let id = world.ids.next_id();
        world.put(format!("{id}.json"), bytes);
        let good = world.leave(SpoolKind::Steer(user("good"))).unwrap();
        bad_and_good(&world, &format!("{id}.json"), &good, "");
    }
}

/// One warning about `bad`, which gets another name; the good item is found.
fn bad_and_good(world: &World, bad: &str, good: &EntryId, want: &str) {
    let spool = world.spool();
    let polled = spool.poll();
    let found: Vec<&EntryId> = polled.items.iter().map(|item| &item.id).collect();
    assert_eq!(found, [good], "{bad}");
    let [warning] = &polled.warnings[..] else { panic!("{bad}: {:?}", polled.warnings) };
    assert!(warning.contains(want) && warning.contains(".bad"), "{warning}");
    assert!(world.names().contains(&format!("{bad}.bad")), "{bad}: {:?}", world.names());
    assert_eq!(spool.poll().warnings, [""; 0], "{bad} is told once");
}

#[test]
fn hostile_names_and_kinds_of_files_are_neither_followed_nor_waited_for() {
    let world = World::new();
    let id = world.ids.next_id();
    let outside = world.dir.path().join("outside.json");
    fs::hard_link(world.put("x", world.text(&id, |_| {})), &outside).unwrap();
    fs::remove_file(world.inbox().join("x")).unwrap();
    symlink(&outside, world.inbox().join(format!("{id}.json"))).unwrap();
    let (pipe, dir) = (world.ids.next_id(), world.ids.next_id());
    rustix::fs::mkfifoat(rustix::fs::CWD, world.inbox().join(format!("{pipe}.json")), 0o600.into()).unwrap();
    fs::create_dir(world.inbox().join(format!("{dir}.json"))).unwrap();
    let names: [&[u8]; 7] = [
        b".json",
        b"x.json",
        b"..json",
        b"a\nb\x1b[2J.json",
        b"\xff\xfe.json",
        b"01900000-0000-7000-8000-00000000000A.json",
        b"01900000-0000-4000-8000-000000000001.json",
    ];
    for name in names {
        world.put(OsStr::from_bytes(name), world.text(&id, |_| {}));
    }
    let spool = world.spool();
    let polled = spool.poll();
    assert_eq!(polled.items, []);
    assert_eq!(polled.warnings.len(), 10, "{:?}", polled.warnings);
    assert!(world.names().iter().all(|name| name.ends_with(".json.bad")), "{:?}", world.names());
    assert!(outside.exists(), "what a link leads to is left alone");
    assert_eq!(spool.poll().warnings, [""; 0]);
    spool.ack(&EntryId::new("../outside"));
    assert!(outside.exists(), "an id that is none removes nothing");
}

#[test]
fn an_inbox_that_is_no_directory_of_its_own_is_told_once_and_left_alone() {
    for make in [|path: &Path| symlink("elsewhere", path).unwrap(), |path: &Path| drop(File::create(path).unwrap())] {
        let world = World::new();
        let elsewhere = world.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        File::create(elsewhere.join("x.json")).unwrap();
        make(&world.inbox());
        let spool = world.spool();
        assert_eq!(spool.poll().warnings.len(), 1);
        assert_eq!(spool.poll().warnings.len(), 0);
        assert!(world.leave(SpoolKind::Steer(user("x"))).is_err());
        assert!(elsewhere.join("x.json").exists());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    }
}

#[test]
fn what_a_killed_writer_left_is_no_item_and_goes_after_an_hour() {
    let world = World::new();
    let whole = world.text(&world.ids.next_id(), |_| {});
    let now = world.clock.now_ms();
    let age = |path: &Path, ms: u64| {
        let touched = UNIX_EPOCH + Duration::from_millis(now - ms);
        File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(touched)).unwrap();
    };
    for cut in [0, 1, whole.len() / 2, whole.len()] {
        world.put(format!("{}.tmp", world.ids.next_id()), &whole.as_bytes()[..cut]);
    }
    let old = world.put(format!("{}.tmp", world.ids.next_id()), &whole.as_bytes()[..9]);
    age(&old, 3_660_000);
    let nearly = world.put(format!("{}.tmp", world.ids.next_id()), "");
    age(&nearly, 3_540_000);
    let others = world.put("notes.tmp", "");
    age(&others, 3_660_000);
    let polled = world.spool().poll();
    assert_eq!((polled.items.len(), polled.warnings.len()), (0, 0));
    assert_eq!((old.exists(), nearly.exists(), others.exists()), (false, true, true));
    assert_eq!(world.names().len(), 6);
}

#[test]
fn one_look_is_bounded_and_the_rest_follows_when_it_is_acknowledged() {
    let world = World::new();
    let mut left: Vec<EntryId> =
        (0..100).map(|_| world.leave(SpoolKind::Abort { operation_id: None }).unwrap()).collect();
    let spool = world.spool();
    while !left.is_empty() {
        let items = spool.poll().items;
        assert_eq!(items.len(), left.len().min(64));
        for (item, id) in items.iter().zip(left.drain(..items.len())) {
            assert_eq!(item.id, id, "in order");
            spool.ack(&item.id);
        }
    }
    // Two large items are more than one look reads.
    for _ in 0..2 {
        let id = world.ids.next_id();
        world.put(format!("{id}.json"), [world.text(&id, |_| {}), " ".repeat(40 << 20)].concat());
    }
    assert_eq!(spool.poll().items.len(), 1);
    let id = world.ids.next_id();
    let huge = world.put(format!("{id}.json"), "");
    File::options().write(true).open(&huge).unwrap().set_len((64 << 20) + 1).unwrap();
    for want in [1, 1, 0] {
        let items = spool.poll().items;
        assert_eq!(items.len(), want);
        for SpoolItem { id, .. } in &items {
            spool.ack(id);
        }
    }
    assert_eq!(world.names(), [format!("{id}.json.bad")], "too long");
}

#[test]
fn many_writers_at_once_lose_nothing_and_are_never_seen_half() {
    let world = World::new();
    let spool = world.spool();
    let mut found: Vec<String> = Vec::new();
    let (writers, each) = (4, 25);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..writers)
            .map(|writer| {
                let world = &world;
                scope.spawn(move || {
                    let ids = UuidIds::new();
                    for n in 0..each {
                        let message = SpoolKind::Steer(user(&format!("{writer}:{n:02} {}", "x".repeat(10_000))));
                        leave(&world.session(), "main", message, &ids, &SystemClock::new()).unwrap();
                    }
                })
            })
            .collect();
        while found.len() < writers * each {
            let done = running.iter().all(std::thread::ScopedJoinHandle::is_finished);
            let polled = spool.poll();
            assert_eq!(polled.warnings, [""; 0]);
            assert!(!(done && polled.items.is_empty()), "lost: {} of {}", found.len(), writers * each);
            for item in polled.items {
                let SpoolKind::Steer(UserMessage { content, .. }) = &item.what else { panic!("{item:?}") };
                let content = serde_json::to_value(content).unwrap();
                found.push(content[0]["text"].as_str().unwrap().split(' ').next().unwrap().to_owned());
                spool.ack(&item.id);
            }
        }
    });
    for writer in 0..writers {
        let of_writer: Vec<&String> = found.iter().filter(|text| text.starts_with(&format!("{writer}:"))).collect();
        assert!(of_writer.is_sorted() && of_writer.len() == each, "the order of one writer: {of_writer:?}");
    }
    assert_eq!(world.names(), [""; 0]);
}

/// A disk on which one call fails.
#[derive(Debug)]
struct Fails(&'static str);

impl Fails {
    fn or<T>(&self, call: &str, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.0 == call { Err(io::Error::from_raw_os_error(28)) } else { act() }
    }
}

impl Disk for Fails {
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == "short" {
            OsDisk.write(file, &bytes[..bytes.len().min(7)])
        } else {
            self.or("write", || OsDisk.write(file, bytes))
        }
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.or("sync", || OsDisk.sync(file))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.or("sync_dir", || OsDisk.sync_dir(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.or("rename", || OsDisk.rename(from, to))
    }
}

#[test]
fn what_could_not_be_left_durably_is_taken_back() {
    for call in ["write", "sync", "rename", "sync_dir"] {
        let world = World::new();
        let what = SpoolKind::Steer(user("x"));
        let error = leave_on(&Fails(call), &world.session(), "main", what, &world.ids, &*world.clock).unwrap_err();
        assert_eq!(ErrorRecord::from(error).kind, ErrorKind::Storage, "{call}");
        assert_eq!(world.names(), [""; 0], "{call}");
    }
    let world = World::new();
    leave_on(&Fails("short"), &world.session(), "main", SpoolKind::Steer(user("x")), &world.ids, &*world.clock)
        .unwrap();
    assert_eq!(world.spool().poll().items.len(), 1, "a write that takes a part goes on");
}

#[test]
fn a_mere_look_finds_what_waits_and_leaves_everything_as_it_is_case_56() {
    let world = World::new();
    assert!(!world.spool().has_items(), "there is no directory yet");
    let bad = world.put("01a22cb9-0000-7000-8000-000000000000.json", "{\"v\":1,");
    let temp = world.put("01a22cb9-0000-7000-8000-000000000001.tmp", "x");
    File::open(&temp).unwrap().set_times(FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
    assert!(!world.spool().has_items());
    assert!(bad.exists() && temp.exists());
    world.leave(SpoolKind::Abort { operation_id: None }).unwrap();
    assert!(world.spool().has_items());
    assert!(bad.exists() && temp.exists());
    assert_eq!(world.spool().poll().items.len(), 1);
    assert!(!bad.exists() && !temp.exists());
}
