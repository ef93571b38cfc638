//! Sessions as they are listed and shown, over files that the store wrote. Numbers of cases are those of the engine.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pirn::app::sessions::{Listed, SessionsListOptions, SessionsShowOptions, ShowError, ShowFormat, list, show};
use pirn::model::{
    EntryBody, EntryId, ErrorKind, ErrorRecord, LaneConfig, LaneModel, Message, Write, session::namespace,
};
use pirn::port::{Clock, Store};
use pirn::session::jsonl::{JsonlStore, Options, create, open};
use pirn::session::place::{Library, Target};
use serde_json::{Value, json};

/// 2026-11-30 13:51:41 UTC.
const START_MS: u64 = 1_796_046_701_090;
const MINUTE_MS: u64 = 60_000;

/// A clock that a test sets.
#[derive(Debug)]
struct Hands(AtomicU64);

#[async_trait::async_trait]
impl Clock for Hands {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        self.now_ms()
    }

    async fn sleep(&self, duration: std::time::Duration) {
        self.0.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

struct World {
    dir: tempfile::TempDir,
    clock: Arc<Hands>,
}

impl World {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: Arc::new(Hands(AtomicU64::new(START_MS))) }
    }

    fn library(&self, name: &str) -> Library {
        let cwd = self.dir.path().join(name);
        fs::create_dir_all(&cwd).unwrap();
        Library::new(&self.dir.path().join("state"), &cwd).unwrap()
    }

    fn options(&self) -> Options {
        Options::new("test", self.clock.clone())
    }

    /// A session whose first transaction names it, one minute after the one before.
    async fn session(&self, library: &Library, id: &str, name: Option<&str>) -> JsonlStore {
        self.clock.0.fetch_add(MINUTE_MS, Ordering::SeqCst);
        library.prepare(false).unwrap();
        let now = self.clock.now_ms();
        let store = create(&library.new_path(id, now), library.new_header(id, now), self.options()).await.unwrap();
        let model = LaneModel { provider: "p".into(), model_id: "m".into() };
        let extra = serde_json::Map::new();
        let config = LaneConfig { model, thinking_level: None, active_tool_names: Vec::new(), extra };
        let mut writes = vec![Write::set(namespace::LANE_CONFIG, "main", &config).unwrap()];
        writes.extend(name.map(|name| Write::set(namespace::SESSION_NAME, "", &name).unwrap()));
        store.commit(writes).await.unwrap();
        store
    }
}

/// Appends a message to the main lane.
async fn say(store: &JsonlStore, id: &str, parent: Option<&str>, message: Value) {
    let message: Message = serde_json::from_value(message).unwrap();
    let body = EntryBody::Message { message: Arc::new(message), terminate: false };
    let entry = Write::Entry { id: EntryId::new(id), parent_id: parent.map(EntryId::new), body };
    let tip = Write::set(namespace::BRANCH_TIP, "main", &id).unwrap();
    store.commit(vec![entry, tip]).await.unwrap();
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1})
}

fn reply(text: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}], "api": "a", "provider": "p", "model": "m", "usage": {}, "stopReason": "stop", "timestamp": 1})
}

fn mask(text: &str) -> String {
    text.replace("sk-secret", "[masked]")
}

fn listed(library: &Library, options: &SessionsListOptions) -> Listed {
    list(library, options, &mask).unwrap()
}

fn shown(library: &Library, reference: Option<&str>, format: ShowFormat) -> (String, Result<Vec<String>, ShowError>) {
    let options = SessionsShowOptions { reference: reference.map(str::to_owned), format };
    let mut out = Vec::new();
    let result = show(library, &options, &mask, &mut out);
    (String::from_utf8(out).unwrap(), result)
}

fn text(library: &Library, reference: &str) -> String {
    let (text, result) = shown(library, Some(reference), ShowFormat::Text);
    assert_eq!(result.unwrap(), Vec::<String>::new());
    text
}

fn record(error: ShowError) -> ErrorRecord {
    match error {
        ShowError::Record(record) => record,
        ShowError::Output(error) => panic!("{error}"),
    }
}

const A: &str = "0199a1b2-0000-7000-8000-00000000aaaa";
const B: &str = "0199a1b2-0000-7000-8000-00000000bbbb";
const C: &str = "0199c3d4-0000-7000-8000-0000000ccccc";

#[tokio::test]
async fn sessions_are_listed_newest_first_in_aligned_columns() {
    let world = World::new();
    let here = world.library("a");
    let a = world.session(&here, A, Some("pr-12")).await;
    say(&a, "e1", None, user("Fix\nthe \u{1b}[2Jbug with sk-secret")).await;
    say(&a, "e2", Some("e1"), reply("Done.")).await;
    drop(a);
    let b = world.session(&here, B, None).await;
    drop(world.session(&world.library("b"), C, Some("elsewhere")).await);
    let expected = "0000bbbb*  2026-11-30 13:53  -      0  p/m\n\
                    0000aaaa   2026-11-30 13:52  pr-12  2  p/m  Fix the bug with [masked]\n";
    assert_eq!(listed(&here, &SessionsListOptions::default()).text, expected);
    drop(b);
    let all = listed(&here, &SessionsListOptions { all: true, limit: Some(2), ..SessionsListOptions::default() });
    let lines: Vec<&str> = all.text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("000ccccc  2026-11-30 13:54  elsewhere  0  p/m  /"), "{}", all.text);
    assert!(lines[0].ends_with("/b") && lines[1].ends_with("/a"), "{}", all.text);
    assert_eq!((all.warnings, all.notice), (Vec::new(), None));
}

#[tokio::test]
async fn columns_are_aligned_by_what_a_terminal_shows() {
    let world = World::new();
    let here = world.library("a");
    let a = world.session(&here, A, Some("日本語のx")).await;
    say(&a, "e1", None, user("a question")).await;
    let b = world.session(&here, B, Some("e\u{301}te\u{301}-12345")).await;
    say(&b, "e1", None, user("another")).await;
    drop((a, b));
    let expected = "0000bbbb  2026-11-30 13:53  e\u{301}te\u{301}-12345  1  p/m  another\n\
                    0000aaaa  2026-11-30 13:52  日本語のx  1  p/m  a question\n";
    assert_eq!(listed(&here, &SessionsListOptions::default()).text, expected);
}

#[tokio::test]
async fn a_listing_as_json_has_one_object_a_line_with_fixed_fields() {
    let world = World::new();
    let here = world.library("a");
    let store = world.session(&here, A, Some("pr-12")).await;
    say(&store, "e1", None, user("Hi")).await;
    let row = |listed: &Listed| serde_json::from_str::<Value>(&listed.text).unwrap();
    let options = SessionsListOptions { json: true, ..SessionsListOptions::default() };
    let expected = json!({
        "id": A, "name": "pr-12", "cwd": here.cwd(), "createdAt": START_MS + MINUTE_MS, "updatedAt": START_MS + MINUTE_MS,
        "messages": 1, "model": "p/m", "open": true, "file": store.path(),
    });
    assert_eq!(row(&listed(&here, &options)), expected);
    drop(store);
    assert_eq!(row(&listed(&here, &options))["open"], json!(false));
}

#[tokio::test]
async fn a_query_finds_name_id_first_prompt_and_text() {
    let world = World::new();
    let here = world.library("a");
    let a = world.session(&here, A, Some("Nightly")).await;
    say(&a, "e1", None, user("Write the release notes")).await;
    say(&a, "e2", Some("e1"), reply("The MANGO is ripe.")).await;
    drop(world.session(&here, B, None).await);
    for (query, expected) in [
        ("night", vec![A]),
        ("0000BBBB", vec![B]),
        ("0199a1b20000", vec![B, A]),
        ("RELEASE", vec![A]),
        ("mango", vec![A]),
        ("", vec![B, A]),
        ("---", vec![]),
        ("papaya", vec![]),
    ] {
        let options =
            SessionsListOptions { query: Some(query.to_owned()), json: true, ..SessionsListOptions::default() };
        let listed = listed(&here, &options);
        let rows = listed.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let ids: Vec<String> = rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ids, expected, "{query}");
        assert_eq!(listed.notice.is_some(), expected.is_empty(), "{query}");
    }
}

#[tokio::test]
async fn an_empty_listing_is_no_error_and_no_output() {
    let world = World::new();
    let listed = listed(&world.library("a"), &SessionsListOptions::default());
    assert_eq!((listed.text.as_str(), listed.warnings.len()), ("", 0));
    assert_eq!(listed.notice.as_deref(), Some("no session of this directory (--all lists every directory)"));
    assert!(!world.dir.path().join("state").exists(), "listing makes nothing");
}

#[tokio::test]
async fn a_damaged_session_is_listed_with_a_mark_and_hides_no_other() {
    let world = World::new();
    let here = world.library("a");
    let a = world.session(&here, A, None).await;
    say(&a, "e1", None, user("Hello")).await;
    say(&a, "e2", Some("e1"), reply("Hi.")).await;
    let path = a.path().to_owned();
    drop(a);
    flip(&path, "Hello", "Jello");
    drop(world.session(&here, B, None).await);
    fs::write(here.here().join("notes.jsonl"), "not ours\n").unwrap();
    let listed = listed(&here, &SessionsListOptions { all: true, ..SessionsListOptions::default() });
    let ids: Vec<&str> = listed.text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(ids, ["0000bbbb", "0000aaaa!", "?!"]);
    assert_eq!(listed.warnings.len(), 2);
    assert!(listed.warnings[0].ends_with(&format!("_{A}.jsonl: line 3 is damaged")), "{:?}", listed.warnings);
}

/// Changes text in a file as a bad disk would.
fn flip(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).unwrap();
}

#[tokio::test]
async fn a_session_is_shown_as_text_while_a_run_writes() {
    let world = World::new();
    let here = world.library("a");
    let store = world.session(&here, A, Some("pr-12")).await;
    say(&store, "0199-000000e1", None, user("Read a")).await;
    let call = json!({"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "sk-secret"}}], "stopReason": "toolUse", "timestamp": 1});
    say(&store, "0199-000000e2", Some("0199-000000e1"), call).await;
    let result = json!({"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": [{"type": "text", "text": "sk-secret"}], "isError": true, "timestamp": 1});
    say(&store, "0199-000000e3", Some("0199-000000e2"), result).await;
    say(&store, "0199-0000side", Some("0199-000000e1"), reply("Another branch.")).await;
    say(&store, "0199-000000e4", Some("0199-000000e3"), reply("It failed.")).await;
    let before = fs::read(store.path()).unwrap();
    let expected = format!(
        "session 0000aaaa  pr-12  {}  2026-11-30 13:52 UTC  p/m\n\
         \n[user] 2026-11-30 13:52 000000e1\nRead a\n\
         \n[assistant] 2026-11-30 13:52 000000e2\n-> read {{\"path\":\"[masked]\"}}\n\
         \n[tool read] 2026-11-30 13:52 000000e3  failed\n[masked]\n\
         \n[assistant] 2026-11-30 13:52 000000e4\nIt failed.\n\
         \nusage: 2 replies, 0 in / 0 out\n",
        here.cwd().display()
    );
    for reference in ["pr-12", A, "0000aaaa"] {
        assert_eq!(text(&here, reference), expected);
    }
    let (latest, _) = shown(&here, None, ShowFormat::Text);
    assert_eq!(latest, expected);
    assert_eq!(fs::read(store.path()).unwrap(), before);
    store.commit(Vec::new()).await.unwrap();
}

#[tokio::test]
async fn a_session_is_shown_as_one_json_document_with_all_branches() {
    let world = World::new();
    let here = world.library("a");
    let store = world.session(&here, A, None).await;
    say(&store, "e1", None, user("Key: sk-secret")).await;
    say(&store, "e2", Some("e1"), reply("One.")).await;
    say(&store, "e3", Some("e1"), reply("Two.")).await;
    let other = json!({"type": "later", "field": [1]});
    let body = EntryBody::Other(other.as_object().unwrap().clone());
    let custom = EntryBody::Custom { custom_type: "x".into(), data: Some(Value::Null) };
    let usage = json!({"id": "u1", "operationId": null, "lane": "main", "kind": "request", "usage": {"input": 5, "output": 2, "totalTokens": 7}, "cost": null});
    store
        .commit(vec![
            Write::Entry { id: EntryId::new("e4"), parent_id: None, body },
            Write::Entry { id: EntryId::new("e5"), parent_id: Some(EntryId::new("e4")), body: custom },
            Write::Usage(serde_json::from_value(usage).unwrap()),
        ])
        .await
        .unwrap();
    let (json, result) = shown(&here, None, ShowFormat::Json);
    result.unwrap();
    let document: Value = serde_json::from_str(&json).unwrap();
    let at = START_MS + MINUTE_MS;
    let message = |id: &str, parent: Option<&str>, message: Value, on_path: bool| {
        let message: Message = serde_json::from_value(message).unwrap();
        json!({"id": id, "parentId": parent, "type": "message", "timestamp": at, "message": message, "onPath": on_path})
    };
    let expected = json!([
        message("e1", None, user("Key: [masked]"), true),
        message("e2", Some("e1"), reply("One."), false),
        message("e3", Some("e1"), reply("Two."), true),
        {"id": "e4", "parentId": null, "type": "later", "timestamp": at, "field": [1], "onPath": false},
        {"id": "e5", "parentId": "e4", "type": "custom", "timestamp": at, "customType": "x", "data": null, "onPath": false},
    ]);
    assert_eq!(document["entries"], expected);
    assert_eq!(document["session"]["id"], A);
    assert_eq!(document["session"]["tipId"], "e3");
    assert_eq!(document["session"]["messages"], 3);
    assert_eq!((&document["usage"]["input"], &document["usage"]["totalTokens"]), (&json!(5), &json!(7)));
    let keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["session", "entries", "usage"]);
}

#[tokio::test]
async fn a_session_without_messages_is_shown_in_both_forms() {
    let world = World::new();
    let here = world.library("a");
    drop(world.session(&here, A, None).await);
    assert!(text(&here, A).ends_with("p/m\n\nusage: 0 replies, 0 in / 0 out\n"));
    let (json, result) = shown(&here, None, ShowFormat::Json);
    result.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["entries"], json!([]));
}

#[tokio::test]
async fn what_stands_before_a_damaged_line_is_shown_case_93() {
    let world = World::new();
    let here = world.library("a");
    let store = world.session(&here, A, None).await;
    say(&store, "e1", None, user("First")).await;
    say(&store, "e2", Some("e1"), reply("Second")).await;
    say(&store, "e3", Some("e2"), user("Third")).await;
    let path = store.path().to_owned();
    drop(store);
    flip(&path, "Second", "Sekond");
    let before = fs::read(&path).unwrap();
    for format in [ShowFormat::Text, ShowFormat::Json] {
        let (text, result) = shown(&here, Some(A), format);
        assert!(text.contains("First") && !text.contains("Third"), "{text}");
        let record = record(result.unwrap_err());
        assert_eq!(record.kind, ErrorKind::Storage);
        assert!(record.message.contains("line 4"), "{}", record.message);
        if format == ShowFormat::Json {
            serde_json::from_str::<Value>(&text).unwrap();
        }
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_newer_format_is_shown_and_not_written_case_100() {
    let world = World::new();
    let here = world.library("a");
    let store = world.session(&here, A, None).await;
    say(&store, "e1", None, user("First")).await;
    let path = store.path().to_owned();
    drop(store);
    flip(&path, "\"format\":1", "\"format\":2");
    let (text, result) = shown(&here, Some(A), ShowFormat::Text);
    assert!(text.contains("First"));
    let warnings = result.unwrap();
    assert!(warnings[0].contains("newer version") && warnings[0].contains("its format is 2"), "{warnings:?}");
    assert!(open(&path, world.options()).await.is_err());
    let listed = listed(&here, &SessionsListOptions::default());
    assert_eq!((listed.text.lines().count(), listed.warnings.len()), (1, 0));
}

#[tokio::test]
async fn a_torn_end_is_left_out_with_a_warning() {
    let world = World::new();
    let here = world.library("a");
    let store = world.session(&here, A, None).await;
    say(&store, "e1", None, user("First")).await;
    say(&store, "e2", Some("e1"), reply("Second")).await;
    let path = store.path().to_owned();
    drop(store);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let (text, result) = shown(&here, Some(A), ShowFormat::Text);
    assert!(text.contains("First") && !text.contains("Second"));
    assert_eq!(result.unwrap().len(), 1);
}

#[tokio::test]
async fn an_unknown_session_is_an_error_of_the_call_and_prints_nothing() {
    let world = World::new();
    let here = world.library("a");
    for reference in [None, Some("nope"), Some("0123abcd"), Some("../../x"), Some("")] {
        let (text, result) = shown(&here, reference, ShowFormat::Json);
        assert_eq!(text, "");
        let error = record(result.unwrap_err());
        assert_eq!(error.kind, ErrorKind::Usage, "{reference:?} (SES-13, SES-14)");
        assert!(!error.hint.unwrap().contains("makes a new one"), "nothing is made here: {reference:?}");
    }
    assert!(!world.dir.path().join("state").exists());
}

#[tokio::test]
async fn a_long_session_is_shown_whole_and_in_pieces() {
    /// Notes the largest write.
    #[derive(Default)]
    struct Pieces {
        largest: usize,
        lines: usize,
    }
    impl std::io::Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.largest = self.largest.max(bytes.len());
            self.lines += memchr::memchr_iter(b'\n', bytes).count();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let world = World::new();
    let here = world.library("a");
    let store = world.session(&here, A, None).await;
    let mut parent = None;
    for number in 0..200 {
        let id = format!("e{number}");
        say(&store, &id, parent.as_deref(), user(&"word ".repeat(200))).await;
        parent = Some(id);
    }
    for (format, lines) in [(ShowFormat::Text, 1 + 3 * 200 + 2), (ShowFormat::Json, 200 + 2)] {
        let mut out = Pieces::default();
        let options = SessionsShowOptions { reference: None, format };
        show(&here, &options, &mask, &mut out).unwrap();
        assert_eq!(out.lines, lines);
        assert!(out.largest < 2_000, "{}", out.largest);
    }
}

#[tokio::test]
async fn a_session_made_here_is_private_and_found_by_what_it_is_called() {
    let world = World::new();
    let here = world.library("a");
    let lock = {
        here.prepare(true).unwrap();
        here.lock_directory(&*world.clock).await.unwrap()
    };
    assert_eq!(here.resolve("pr-12", true), Ok(Target::NewName("pr-12".to_owned())));
    assert!(here.lock_directory(&*world.clock).await.is_err(), "another start waits, and then gives up");
    let store = world.session(&here, A, Some("pr-12")).await;
    drop(lock);
    drop(here.lock_directory(&*world.clock).await.unwrap());
    let Ok(Target::Existing(found)) = here.resolve("pr-12", true) else { panic!("the name is taken") };
    assert_eq!((found.id.as_str(), found.file.as_path()), (A, store.path()), "SES-16");
    assert_eq!(found.file.parent(), Some(here.here()));
    let name = found.file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("20261130T135") && name.ends_with(&format!("Z_{A}.jsonl")), "{name}");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    let root = world.dir.path().join("state");
    for (path, expected) in [
        (root.clone(), 0o700),
        (root.join("sessions"), 0o700),
        (here.here().to_owned(), 0o700),
        (here.here().join(".lock"), 0o600),
        (found.file.clone(), 0o600),
        (found.file.with_extension("lock"), 0o600),
    ] {
        assert_eq!(mode(path.clone()), expected, "{} (SES-15)", path.display());
    }
    fs::set_permissions(here.here(), fs::Permissions::from_mode(0o770)).unwrap();
    assert!(here.latest_here(START_MS).is_ok(), "one's own directory may be open to a group");
}
