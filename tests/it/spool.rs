//! What one process leaves for the session of another one, over real session files: the spool, and `pirn steer` above
//! it. Numbers of cases are those of the engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pirn::app::steer::{SteerOptions, Steered, steer};
use pirn::config::{LockMode, Settings};
use pirn::harness::{Drive, Harness, Options as Made};
use pirn::model::session::namespace;
use pirn::model::{AssistantBlock, ErrorKind, ErrorRecord, LaneModel, LaneState, RunId, Write, short_id};
use pirn::port::{
    Clock, EntryScan, Ids, Inbox, SpoolItem, SpoolKind, Store, SystemClock, Tool, ToolCtx, ToolOutput, ToolSpec,
    UuidIds,
};
use pirn::process::Supervisor;
use pirn::session::jsonl::lock::lock_path;
use pirn::session::jsonl::{JsonlStore, Options, create, open};
use pirn::session::place::{Library, inbox_dir};
use pirn::session::spool::Spool;
use pirn::testing::{CountingTool, Executions, FaultStore, Reply, ScriptedProvider, call};
use serde_json::{Value, json};

use crate::process::{runs, shell, start, supervisor};

struct World {
    dir: tempfile::TempDir,
    clock: Arc<SystemClock>,
    ids: Arc<UuidIds>,
    settings: Settings,
}

impl World {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(SystemClock::new()),
            ids: Arc::new(UuidIds::new()),
            settings: Settings::default(),
        }
    }

    fn library(&self, name: &str) -> Library {
        let cwd = self.dir.path().join(name);
        fs::create_dir_all(&cwd).unwrap();
        Library::new(&self.dir.path().join("state"), &cwd).unwrap()
    }

    /// A session that is open as long as its store is kept. Its lane has this operation.
    async fn session(&self, library: &Library, operation: Option<&str>) -> JsonlStore {
        library.prepare(false).unwrap();
        let (id, now) = (self.ids.next_id(), self.clock.now_ms());
        let options = Options::new("test", self.clock.clone());
        let store = create(&library.new_path(&id, now), library.new_header(&id, now), options).await.unwrap();
        let state = LaneState { current_operation_id: operation.map(RunId::new), ..LaneState::default() };
        store.commit(vec![Write::set(namespace::LANE_STATE, "main", &state).unwrap()]).await.unwrap();
        store
    }

    async fn steer(&self, library: &Library, options: &SteerOptions) -> Result<String, ErrorRecord> {
        let Steered { notice, warnings } = self.steer_with_warnings(library, options).await?;
        assert_eq!(warnings, [""; 0]);
        Ok(notice)
    }

    async fn steer_with_warnings(&self, library: &Library, options: &SteerOptions) -> Result<Steered, ErrorRecord> {
        let clock: Arc<dyn Clock> = self.clock.clone();
        steer(library, &self.settings, options, self.ids.clone(), &clock).await
    }

    /// The session of a process that was killed in its run. `kill` says where.
    async fn killed(
        &self,
        library: &Library,
        tools: Vec<Arc<dyn Tool>>,
        script: Vec<Reply>,
        kill: impl FnOnce(&FaultStore),
    ) -> PathBuf {
        let id = self.ids.next_id();
        library.prepare(false).unwrap();
        let (path, now) = (library.new_path(&id, self.clock.now_ms()), self.clock.now_ms());
        let options = Options::new("test", self.clock.clone());
        let store = create(&path, library.new_header(&id, now), options).await.unwrap();
        let faults = FaultStore::new(Arc::new(store));
        kill(&faults);
        let mut made = Made::new(faults.clone(), ScriptedProvider::new(script));
        made.lane_config.model = LaneModel { provider: "fake".into(), model_id: "m1".into() };
        made.lane_config.active_tool_names = tools.iter().map(|tool| tool.spec().name.clone()).collect();
        made.tools = tools;
        let harness = Harness::open(made).await.unwrap();
        let lane = harness.lane("main").unwrap();
        tokio::select! {
            biased;
            () = faults.killed() => {}
            ended = lane.prompt("go", Drive::default()) => panic!("it was not killed: {ended:?}"),
        }
        path
    }

    fn items(&self, session: &Path) -> Vec<SpoolItem> {
        let polled = Spool::new(session, self.clock.clone()).poll();
        assert_eq!(polled.warnings, [""; 0]);
        polled.items
    }
}

fn say(text: &str) -> SteerOptions {
    SteerOptions { text: text.to_owned(), ..SteerOptions::default() }
}

fn abort() -> SteerOptions {
    SteerOptions { abort: true, ..SteerOptions::default() }
}

fn of(session: &str, options: SteerOptions) -> SteerOptions {
    SteerOptions { session: Some(session.to_owned()), ..options }
}

/// The kind and the text of an item.
fn told(item: &SpoolItem) -> (&'static str, String) {
    let text = |message: &pirn::model::UserMessage| {
        serde_json::to_value(message).unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
    };
    match &item.what {
        SpoolKind::Steer(message) => ("steer", text(message)),
        SpoolKind::FollowUp(message) => ("followUp", text(message)),
        SpoolKind::Abort { operation_id } => ("abort", format!("{operation_id:?}")),
    }
}

#[tokio::test]
async fn a_message_goes_to_the_one_running_session_of_the_directory_though_another_is_newer() {
    let world = World::new();
    let library = world.library("work");
    let running = world.session(&library, Some("r1")).await;
    let newer = world.session(&library, None).await.path().to_owned();
    let elsewhere = world.session(&world.library("other"), Some("r2")).await;
    let notice = world.steer(&library, &say("also windows")).await.unwrap();
    let id = short_id(&running.header().id).to_owned();
    assert_eq!(notice, format!("queued for the running session {id} (pid {})", std::process::id()));
    let follow_up = SteerOptions { follow_up: true, ..say("then docs") };
    let notice = world.steer(&library, &follow_up).await.unwrap();
    assert!(notice.starts_with("queued as a follow-up for the running session"), "{notice}");
    let notice = world.steer(&library, &abort()).await.unwrap();
    assert!(notice.starts_with("abort requested for the running session"), "{notice}");
    let items = world.items(running.path());
    assert_eq!(
        items.iter().map(told).collect::<Vec<_>>(),
        [
            ("steer", "also windows".to_owned()),
            ("followUp", "then docs".to_owned()),
            ("abort", "Some(RunId(\"r1\"))".to_owned()),
        ]
    );
    assert!(items.iter().all(|item| item.lane == "main"));
    assert!(!inbox_dir(&newer).exists() && !inbox_dir(elsewhere.path()).exists());
    // The running process never noticed: nothing was locked or written.
    running.commit(vec![Write::set("x.test", "a", &1).unwrap()]).await.unwrap();
}

#[tokio::test]
async fn without_a_running_session_a_message_waits_in_the_latest_one_case_54() {
    let world = World::new();
    let library = world.library("work");
    let error = world.steer(&library, &say("x")).await.unwrap_err();
    assert!(error.kind == ErrorKind::Usage && error.message.contains("no session of this directory"), "{error:?}");
    let old = world.session(&library, None).await.path().to_owned();
    let latest = world.session(&library, None).await;
    latest.commit(vec![Write::set("x.test", "a", &1).unwrap()]).await.unwrap();
    let (id, file) = (latest.header().id.clone(), latest.path().to_owned());
    drop(latest);
    let before = fs::read(&file).unwrap();
    let notice = world.steer(&library, &say("x")).await.unwrap();
    assert_eq!(
        notice,
        format!("queued for session {}, which is not running: it waits for the next run (pirn -c)", short_id(&id))
    );
    assert_eq!((world.items(&file).len(), world.items(&old).len()), (1, 0));
    assert_eq!(fs::read(&file).unwrap(), before, "the session itself is not written to");

    let path = old.to_str().unwrap().to_owned();
    let notice = world.steer(&library, &of(&path, say("y"))).await.unwrap();
    assert!(notice.contains(&format!("(pirn -c -s {path})")), "{notice}");
    assert_eq!(world.items(&old).len(), 1);
    let error = world.steer(&library, &of("nope", say("y"))).await.unwrap_err();
    assert!(error.kind == ErrorKind::Usage && !error.hint.unwrap().contains("makes a new one"));
}

#[tokio::test]
async fn of_several_running_sessions_none_is_taken_and_all_are_listed() {
    let world = World::new();
    let library = world.library("work");
    let one = world.session(&library, None).await;
    let two = world.session(&library, None).await;
    let error = world.steer(&library, &say("x")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage);
    let pid = format!("(pid {})", std::process::id());
    assert!(error.message.starts_with("2 sessions of this directory are running\n"), "{}", error.message);
    for store in [&one, &two] {
        let line = format!("{}  - {pid}", store.header().id);
        assert!(error.message.lines().any(|found| found == line), "{}", error.message);
        assert!(!inbox_dir(store.path()).exists());
    }
    world.steer(&library, &of(&one.header().id, say("x"))).await.unwrap();
    assert_eq!((world.items(one.path()).len(), world.items(two.path()).len()), (1, 0));
}

#[tokio::test]
async fn a_call_that_contradicts_itself_or_says_nothing_leaves_nothing_case_58() {
    let world = World::new();
    let library = world.library("work");
    let store = world.session(&library, None).await;
    for (options, want) in [
        (say(""), "the message is empty"),
        (say(" \n\t"), "the message is empty"),
        (say(&"x".repeat((10 << 20) + 1)), "longer than 10 MB"),
        (SteerOptions { text: "x".to_owned(), ..abort() }, "--abort takes no message"),
        (SteerOptions { follow_up: true, ..abort() }, "exclude each other"),
    ] {
        let error = world.steer(&library, &options).await.unwrap_err();
        assert!(error.kind == ErrorKind::Usage && error.message.contains(want), "{}", error.message);
    }
    assert!(!inbox_dir(store.path()).exists());
}

#[tokio::test]
async fn an_abort_of_a_session_without_an_owner_and_without_a_run_has_nothing_to_do_case_45() {
    let world = World::new();
    let library = world.library("work");
    let file = world.session(&library, None).await.path().to_owned();
    let before = fs::read(&file).unwrap();
    let notice = world.steer(&library, &abort()).await.unwrap();
    assert!(notice.ends_with("has no unfinished run to end"), "{notice}");
    assert_eq!(fs::read(&file).unwrap(), before);
    assert!(!inbox_dir(&file).exists(), "nothing is left for a later run");
}

#[tokio::test]
async fn an_abort_of_a_session_that_is_open_without_a_run_is_left_and_told_as_it_is_case_45() {
    let world = World::new();
    let library = world.library("work");
    let store = world.session(&library, None).await;
    let at = world.clock.now_ms();
    let notice = world.steer(&library, &abort()).await.unwrap();
    let (id, pid) = (short_id(&store.header().id).to_owned(), std::process::id());
    assert_eq!(notice, format!("abort requested for the session {id} (pid {pid}), which has no run yet"));
    let items = world.items(store.path());
    let [item] = &items[..] else { panic!("{items:?}") };
    assert_eq!(item.what, SpoolKind::Abort { operation_id: None });
    assert!((at..=world.clock.now_ms()).contains(&item.at), "by the time");
    // A message does not depend on a run.
    let notice = world.steer(&library, &say("x")).await.unwrap();
    assert!(notice.starts_with("queued for the running session"), "{notice}");
}

#[tokio::test]
async fn what_can_not_be_looked_at_may_be_what_was_meant_and_is_told() {
    let world = World::new();
    let library = world.library("work");
    let old = world.session(&library, None).await.path().to_owned();
    let latest = world.session(&library, None).await.path().to_owned();
    // A lock that leads to itself can not be asked.
    for (sessions, of) in [(&[&old][..], "a session"), (&[&latest], "2 sessions")] {
        for lock in sessions.iter().map(|session| lock_path(session)) {
            fs::remove_file(&lock).unwrap();
            std::os::unix::fs::symlink(&lock, &lock).unwrap();
        }
        let Steered { notice, warnings } = world.steer_with_warnings(&library, &say("x")).await.unwrap();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with(&format!("whether {of} of this directory runs can not be told (")), "{warning}");
        assert!(warning.contains(library.here().to_str().unwrap()) && warning.contains("-s ID"), "{warning}");
        assert!(notice.starts_with("queued for session"), "{notice}");
    }
    assert_eq!((world.items(&old).len(), world.items(&latest).len()), (0, 2));
    // Named, it is the one that is meant.
    let path = old.to_str().unwrap();
    assert_eq!(world.steer_with_warnings(&library, &of(path, say("x"))).await.unwrap().warnings, [""; 0]);
    if rustix::process::geteuid().is_root() {
        return;
    }
    let closed = |mode| fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    let running = world.session(&library, None).await;
    closed(0o000);
    let steered = world.steer_with_warnings(&library, &say("x")).await.unwrap();
    closed(0o600);
    assert!(steered.warnings.iter().any(|warning| warning.starts_with(path)), "{:?}", steered.warnings);
    assert_eq!(world.items(running.path()).len(), 1);
}

#[tokio::test]
async fn where_locks_are_off_everything_is_left_and_the_notice_says_what_is_not_known_case_127() {
    let mut world = World::new();
    world.settings.session.lock = LockMode::Off;
    let library = world.library("work");
    let file = world.session(&library, Some("r1")).await.path().to_owned();
    for (options, count) in [(say("x"), 1), (abort(), 2)] {
        let notice = world.steer(&library, &options).await.unwrap();
        assert!(notice.contains("can not be told (session.lock is off)"), "{notice}");
        assert_eq!(world.items(&file).len(), count);
    }
}

#[tokio::test]
async fn a_damaged_session_gets_no_message() {
    let world = World::new();
    let library = world.library("work");
    let file = world.session(&library, None).await.path().to_owned();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("pirn.session", "pirn.sessiom", 1)).unwrap();
    let error = world.steer(&library, &say("x")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Storage);
    assert!(!inbox_dir(&file).exists());
}

#[tokio::test]
async fn what_lies_in_the_spool_is_no_session_and_survives_the_next_opening_case_55() {
    let world = World::new();
    let library = world.library("work");
    let file = world.session(&library, None).await.path().to_owned();
    world.steer(&library, &say("x")).await.unwrap();
    let store = open(&file, Options::new("test", world.clock.clone())).await.unwrap();
    let spool = Spool::new(store.path(), world.clock.clone());
    let items = spool.poll().items;
    let [item] = &items[..] else { panic!("{items:?}") };
    // Killed before it is acknowledged: the next process finds it under the same id.
    let again = Spool::new(store.path(), world.clock.clone());
    assert_eq!(again.poll().items, items);
    again.ack(&item.id);
    spool.ack(&item.id);
    assert_eq!(again.poll().items, []);
    assert_eq!(library.list(pirn::session::place::Scope::All).unwrap().sessions.len(), 1);
}

/// The last result, the addresses of open operations that are left, and the texts of results of tools.
fn ended(store: &JsonlStore) -> (Value, Vec<String>, String) {
    let results = store.values(namespace::RESULT, "").unwrap();
    let [(_, result)] = &results[..] else { panic!("{results:?}") };
    let of_operations = [namespace::OP_META, namespace::OP_STATE, namespace::TOOL_ARGS, namespace::TOOL_MEMO];
    let left = of_operations.iter().flat_map(|space| store.values(space, "").unwrap()).map(|(key, _)| key).collect();
    let entries = store.scan_entries(&EntryScan::default()).unwrap();
    let bodies: Vec<_> = entries.iter().map(|entry| &entry.body).collect();
    (result.clone(), left, format!("{bodies:?}"))
}

#[tokio::test]
async fn an_abort_without_an_owner_ends_what_a_killed_process_left_wherever_it_was_case_45() {
    for n in 1..=11 {
        let world = World::new();
        let library = world.library("work");
        let executions = Executions::new();
        let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(CountingTool::boom().counted(&executions))];
        let calls = Reply::blocks(vec![AssistantBlock::text("hi"), call("c1", "boom", &json!({}))]);
        let script = vec![calls, Reply::text("done")];
        let file = world.killed(&library, tools, script, |faults| faults.kill_after(n)).await;
        let executed = executions.count();
        let waits = world.steer(&library, &say("later")).await.unwrap();
        assert!(waits.contains("it waits for the next run"), "{n}: {waits}");

        let notice = world.steer(&library, &abort()).await.unwrap();
        assert!(notice.ends_with("is not running; the run it was left in is ended"), "{n}: {notice}");
        let store = open(&file, Options::new("test", world.clock.clone())).await.unwrap();
        let (result, left, _) = ended(&store);
        assert_eq!((&result["status"], &result["reason"]), (&json!("aborted"), &json!("interrupted")), "TX{n}");
        assert_eq!((&result["cause"], left), (&json!("steer"), Vec::new()), "TX{n}");
        assert_eq!(executions.count(), executed, "TX{n}: nothing is executed");
        drop(store);
        assert_eq!(world.items(&file).len(), 1, "TX{n}: what was said to wait waits");

        let before = fs::read(&file).unwrap();
        let notice = world.steer(&library, &abort()).await.unwrap();
        assert!(notice.ends_with("has no unfinished run to end"), "{n}: {notice}");
        assert_eq!(fs::read(&file).unwrap(), before, "TX{n}");
    }
}

#[tokio::test]
async fn an_abort_without_an_owner_also_stops_what_tools_had_started() {
    /// Starts a process, keeps what identifies it, and never comes back.
    struct Starter {
        spec: ToolSpec,
        supervisor: Supervisor,
        pids: Arc<Mutex<Vec<u32>>>,
    }

    #[async_trait]
    impl Tool for Starter {
        fn spec(&self) -> &ToolSpec {
            &self.spec
        }

        async fn call(&self, _: Value, ctx: ToolCtx) -> ToolOutput {
            let (child, _output, pids) = start(&self.supervisor, shell("echo $$; exec sleep 300"), 1).await;
            *self.pids.lock().unwrap() = pids;
            let identity = serde_json::to_value(child.identity()).unwrap();
            // It is nobody's from here on, as after the death of its pirn.
            child.leave();
            ctx.memos.set("proc", identity).await.unwrap();
            std::future::pending().await
        }
    }

    let world = World::new();
    let library = world.library("work");
    let pids = Arc::<Mutex<Vec<u32>>>::default();
    let supervisor = supervisor(Duration::from_secs(600), false);
    let starter = Starter { spec: CountingTool::boom().spec().clone(), supervisor, pids: pids.clone() };
    let script = vec![Reply::blocks(vec![call("c1", "boom", &json!({}))])];
    let kill = |faults: &FaultStore| faults.kill_after_side(namespace::TOOL_MEMO, 1);
    let file = world.killed(&library, vec![Arc::new(starter)], script, kill).await;
    let pid = pids.lock().unwrap()[0];
    assert!(runs(pid));
    let steered = world.steer_with_warnings(&library, &abort()).await.unwrap();
    assert!(!runs(pid));
    let [warning] = &steered.warnings[..] else { panic!("{:?}", steered.warnings) };
    assert!(warning.contains(&pid.to_string()) && warning.contains("was stopped"), "{warning}");
    let store = open(&file, Options::new("test", world.clock.clone())).await.unwrap();
    let (_, left, texts) = ended(&store);
    assert_eq!(left, [""; 0]);
    assert!(texts.contains("Processes it had started were still running and were stopped."), "{texts}");
}
