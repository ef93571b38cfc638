//! Crash simulation on a session file: a process dies at each of its writes, before it, inside its line, behind it, and
//! with the loss of everything that was not synced; the next one goes on from the bytes that are left.
//!
//! [`Stage::survived`] is the recovery oracle: the end of the undisturbed run but for what was interrupted, at most one
//! run of what may not be repeated, no byte of a stored line changed, nothing of an operation left behind, only requests
//! that a provider takes, and every invariant of [`check`].

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::stream::BoxStream;
use pirn::harness::{Drive, Harness, Input, Lane, Options, Outcome, RunError};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantBlock, CancelCause, Entry, EntryBody, EntryId, Execution, InboxKind, LaneConfig, LaneModel, Message, Write,
};
use pirn::port::{
    AfterResponse, AfterResponseAnswer, AfterTool, AfterToolAnswer, AssistantEvent, BeforeRequest, BeforeRequestAnswer,
    BeforeRun, BeforeRunAnswer, BeforeRunEnd, BeforeRunEndAnswer, BeforeTool, BeforeToolAnswer, Common, HookFailure,
    HookPoint, Hooks, LlmRequest, Provider, Tool, ToolCtx, ToolOutput, ToolSpec,
};
use pirn::session::jsonl::{self, Disk, Header};
use pirn::testing::{
    CountingTool, Executions, FaultStore, Reply, RuntimeClock, ScriptedProvider, SequentialIds, Step, call,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::invariants::{End, check, end_of};
use super::world::{Process, World, calls, say, usage};

/// No scenario has as many writes.
const WRITES_MAX: usize = 100;
/// Calls of these tools run at most once.
const NEVER: [&str; 3] = ["boom", "slow", "work"];
/// What the person says while a tool runs.
const STEERED: &str = "and this";

// Where a process dies ------------------------------------------------------------------------------------------

/// What a death leaves of the write it comes at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Before,
    FirstByte,
    Middle,
    LastByte,
    /// The line is whole, its line feed is missing.
    NoNewline,
    After,
    /// All of it, and then the power fails: what was not synced is gone.
    Power,
}

const CUTS: [Cut; 7] =
    [Cut::Before, Cut::FirstByte, Cut::Middle, Cut::LastByte, Cut::NoNewline, Cut::After, Cut::Power];

impl Cut {
    /// How many bytes of a line the disk takes.
    fn taken(self, len: usize) -> usize {
        match self {
            Self::Before => 0,
            Self::FirstByte => 1,
            Self::Middle => len / 2,
            Self::LastByte => len - 2,
            Self::NoNewline | Self::After | Self::Power => len,
        }
    }
}

/// The tokens that replies and calls of a process were given to end by.
#[derive(Debug, Default)]
struct Tokens {
    given: Mutex<Vec<CancellationToken>>,
    /// The cancellation stands in the file.
    stored: AtomicBool,
    /// One fired before the cancellation was stored.
    early: AtomicBool,
}

impl Tokens {
    fn add(&self, token: &CancellationToken) {
        self.given.lock().unwrap().push(token.clone());
    }

    /// Looks at a line before it is written.
    fn look(&self, line: &[u8]) {
        if asks_for_the_end(line)
            && !self.stored.swap(true, Ordering::SeqCst)
            && self.given.lock().unwrap().iter().any(CancellationToken::is_cancelled)
        {
            self.early.store(true, Ordering::SeqCst);
        }
    }

    /// The next process has given none.
    fn next(&self, file: &[u8]) {
        self.given.lock().unwrap().clear();
        self.stored.store(asks_for_the_end(file), Ordering::SeqCst);
    }
}

fn asks_for_the_end(lines: &[u8]) -> bool {
    String::from_utf8_lossy(lines).contains(r#""status":"cancel_requested""#)
}

/// A disk that goes away with its process. It counts writes and cuts; a sync is noted and costs nothing.
#[derive(Debug, Default)]
struct Saw {
    victim: OnceLock<Arc<FaultStore>>,
    tokens: Arc<Tokens>,
    state: Mutex<SawState>,
}

#[derive(Debug, Default)]
struct SawState {
    changes: usize,
    death: Option<(usize, Cut)>,
    dead: bool,
    /// Bytes that are safe from a loss of power.
    synced: u64,
}

impl Saw {
    /// `Some` with how much is taken where the process dies here.
    fn dies(&self, len: usize) -> io::Result<Option<usize>> {
        let mut state = self.state.lock().unwrap();
        if state.dead {
            return Err(io::Error::other("the process is dead"));
        }
        state.changes += 1;
        let Some((_, cut)) = state.death.filter(|(n, _)| *n == state.changes) else { return Ok(None) };
        state.dead = true;
        self.victim.get().unwrap().kill();
        Ok(Some(cut.taken(len)))
    }
}

impl Disk for Saw {
    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<usize> {
        self.tokens.look(bytes);
        let taken = self.dies(bytes.len())?.unwrap_or(bytes.len());
        file.write_all(&bytes[..taken])?;
        if taken == bytes.len() { Ok(taken) } else { Err(io::Error::other("the process died")) }
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        match self.dies(3)? {
            Some(0) => Err(io::Error::other("the process died")),
            Some(_) | None => file.set_len(len),
        }
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.dead {
            return Err(io::Error::other("the process is dead"));
        }
        state.synced = state.synced.max(file.metadata()?.len());
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

// Scenarios -----------------------------------------------------------------------------------------------------

/// What a person does while the tools `note` and `slow` run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    Steer,
    Abort,
}

type Change = fn(&mut Options);

#[derive(Clone)]
struct Scenario {
    /// By how many replies the request contains: what comes of the first attempt, the second and so on; the last one
    /// goes for all others.
    replies: Vec<Vec<Reply>>,
    follow_ups: Vec<&'static str>,
    deed: Deed,
    change: Change,
    /// When the end comes decides what becomes of the other calls of a batch.
    races: bool,
}

impl Scenario {
    fn new(replies: Vec<Vec<Reply>>) -> Self {
        Self { replies, follow_ups: Vec::new(), deed: Deed::Nothing, change: |_| {}, races: false }
    }

    fn deed(self, deed: Deed) -> Self {
        Self { deed, ..self }
    }

    fn change(self, change: Change) -> Self {
        Self { change, ..self }
    }
}

/// A provider that answers what it is asked, whichever process asks.
struct Answers {
    replies: Vec<Vec<Reply>>,
    asked: Mutex<BTreeMap<usize, usize>>,
    requests: Mutex<Vec<Arc<LlmRequest>>>,
    tokens: Arc<Tokens>,
    /// The script that plays now.
    playing: watch::Sender<Option<Arc<ScriptedProvider>>>,
}

impl Answers {
    /// Waits until a reply comes to its stall.
    async fn stalled(&self) {
        let mut playing = self.playing.subscribe();
        let script = playing.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        tokio::select! {
            () = script.stalled(1) => {}
            _ = playing.changed() => Box::pin(self.stalled()).await,
        }
    }
}

impl Provider for Answers {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let at = request.messages.iter().filter(|message| message.as_assistant().is_some()).count();
        let attempt = {
            let mut asked = self.asked.lock().unwrap();
            let asked = asked.entry(at).or_default();
            *asked += 1;
            *asked
        };
        self.requests.lock().unwrap().push(Arc::clone(&request));
        self.tokens.add(&cancel);
        let attempts = &self.replies[at];
        let script = ScriptedProvider::new(vec![attempts[attempt.min(attempts.len()) - 1].clone()]);
        let stream = script.stream(request, cancel);
        self.playing.send_replace(Some(script));
        stream
    }
}

/// A tool that shows by which token it was to end.
struct Shown {
    tool: CountingTool,
    tokens: Arc<Tokens>,
}

#[async_trait]
impl Tool for Shown {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        self.tokens.add(&ctx.cancel);
        self.tool.call(args, ctx).await
    }
}

/// Who sits before the session; says and stops again what did not reach it.
struct Person {
    deed: Deed,
    lane: Mutex<Option<Lane>>,
    /// The session said that it has the message: that is relied on.
    heard: AtomicBool,
}

impl Person {
    async fn act(&self) {
        let lane = self.lane.lock().unwrap().clone().unwrap();
        match self.deed {
            Deed::Nothing => {}
            Deed::Steer if self.heard.load(Ordering::SeqCst) => {}
            Deed::Steer => {
                let said = lane.messages().iter().any(|(_, message)| is_user(message, STEERED));
                if !said && !lane.inbox().iter().any(|item| item.kind == InboxKind::Steer) {
                    lane.steer(STEERED).await.unwrap();
                    self.heard.store(true, Ordering::SeqCst);
                }
            }
            Deed::Abort => drop(lane.abort(CancelCause::Int).await.unwrap()),
        }
    }
}

fn is_user(message: &Message, text: &str) -> bool {
    matches!(message, Message::User(user) if user.content.text() == text)
}

/// A session file, its processes one after the other, and what outlives them.
struct Stage {
    scenario: Scenario,
    dir: tempfile::TempDir,
    world: World,
    answers: Arc<Answers>,
    person: Arc<Person>,
    processes: Vec<Process>,
    disks: Vec<Arc<Saw>>,
    /// The whole lines that each death left.
    left: Vec<Vec<u8>>,
    deaths: Vec<Cut>,
}

impl Stage {
    async fn new(scenario: &Scenario) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(RuntimeClock::new());
        let header = Header::new("01900000-0000-7000-8000-ffffffffffff", 0, "/");
        let mut options = jsonl::Options::new("test", clock.clone());
        options.disk = Arc::new(Saw::default());
        let store = Arc::new(jsonl::create(&file_of(dir.path(), 0), header, options).await.unwrap());
        let answers = Arc::new(Answers {
            replies: scenario.replies.clone(),
            asked: Mutex::default(),
            requests: Mutex::default(),
            tokens: Arc::default(),
            playing: watch::Sender::new(None),
        });
        let person = Arc::new(Person { deed: scenario.deed, lane: Mutex::default(), heard: AtomicBool::default() });
        let world = World { store, clock, ids: Arc::new(SequentialIds::new()), executions: Executions::new() };
        let stage = Self {
            scenario: scenario.clone(),
            dir,
            world,
            answers,
            person,
            processes: Vec::new(),
            disks: Vec::new(),
            left: Vec::new(),
            deaths: Vec::new(),
        };
        Harness::open(stage.options(stage.world.options(stage.world.store.clone(), ScriptedProvider::new(Vec::new()))))
            .await
            .unwrap();
        stage
    }

    fn options(&self, mut options: Options) -> Options {
        let person = &self.person;
        let counted = |tool: CountingTool| -> Arc<dyn Tool> {
            Arc::new(Shown { tool: tool.counted(&self.world.executions), tokens: self.answers.tokens.clone() })
        };
        let acting = |tool: CountingTool| {
            let person = Arc::clone(person);
            tool.awaiting(move || {
                let person = Arc::clone(&person);
                async move { person.act().await }.boxed()
            })
        };
        options.tools = vec![
            counted(CountingTool::echo()),
            counted(CountingTool::boom()),
            counted(acting(CountingTool::slow())),
            counted(acting(CountingTool::echo().named("note"))),
            counted(CountingTool::boom().named("work").checkpoint("half").delayed(Duration::from_millis(20))),
        ];
        let active_tool_names = options.tools.iter().map(|tool| tool.spec().name.clone()).collect();
        let model = LaneModel { provider: "fake".to_owned(), model_id: "m1".to_owned() };
        options.lane_config = LaneConfig { model, thinking_level: None, active_tool_names, extra: Map::new() };
        options.provider = Arc::<Answers>::clone(&self.answers);
        (self.scenario.change)(&mut options);
        options
    }

    /// Starts a process on what the one before it left, lets it go on and perhaps die. Tells whether it died.
    async fn process(&mut self, death: Option<(usize, Cut)>) -> bool {
        let disk = Arc::new(Saw { tokens: self.answers.tokens.clone(), ..Saw::default() });
        let path = file_of(self.dir.path(), self.processes.len() + 1);
        self.take_over(&path);
        let mut options = jsonl::Options::new("test", self.world.clock.clone());
        options.disk = disk.clone();
        self.world.store = Arc::new(jsonl::open(&path, options).await.unwrap());
        let bytes = std::fs::read(&path).unwrap();
        if [Some(&Cut::Middle), Some(&Cut::After)].contains(&self.deaths.last()) {
            let seen = self.open_and_look().await;
            assert_eq!(seen, self.open_and_look().await, "opened twice");
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "opening changes nothing");
        }

        let process = self.world.process_with(Vec::new(), |options| *options = self.options(options.clone())).await;
        disk.victim.set(process.faults.clone()).unwrap();
        {
            let mut state = disk.state.lock().unwrap();
            *state = SawState { death, synced: u64::try_from(bytes.len()).unwrap(), ..SawState::default() };
        }
        *self.person.lane.lock().unwrap() = Some(process.lane.clone());
        self.answers.playing.send_replace(None);
        self.answers.tokens.next(&bytes);
        tokio::select! {
            biased;
            () = process.faults.killed() => {}
            () = self.goes_on(&process) => {}
        }
        *self.person.lane.lock().unwrap() = None;
        let died = process.faults.is_killed();
        self.processes.push(process);
        self.disks.push(disk);
        died
    }

    /// The person prompts, or goes on and does again what may not have been heard.
    async fn goes_on(&self, process: &Process) {
        let (person, lane) = (&self.person, &process.lane);
        let stops = async {
            self.answers.stalled().await;
            person.act().await;
            std::future::pending::<()>().await;
        };
        let drives = async {
            if lane.open_operation().is_some() {
                if self.scenario.deed == Deed::Abort && self.began_slow(lane) {
                    person.act().await;
                }
                self.over(process, lane.continue_(Drive::default()).await).await;
            } else if self.world.results() == 0 {
                let follow_ups = self.scenario.follow_ups.iter().map(|text| Input::from(*text)).collect();
                self.over(process, lane.prompt_then("go", follow_ups, Drive::default()).await).await;
            }
        };
        tokio::select! {
            biased;
            () = drives => {}
            () = stops => {}
        }
    }

    /// A drive that is over has settled, unless its process died in it.
    async fn over(&self, process: &Process, ended: Result<Outcome, RunError>) {
        if process.faults.is_killed() {
            std::future::pending::<()>().await;
        }
        assert!(matches!(ended, Ok(Outcome::Settled(_))), "{ended:?}");
    }

    /// Whether the person saw the call begin that it stopped. Its intent may be all that is left.
    fn began_slow(&self, lane: &Lane) -> bool {
        let batch = &self.world.state()["batch"];
        let slow = lane.messages().into_iter().find_map(|(id, message)| {
            let content = message.as_assistant().filter(|_| id.as_str() == batch["assistantEntryId"])?.content.clone();
            content.iter().position(|block| matches!(block, AssistantBlock::ToolCall(call) if call.name == "slow"))
        });
        let status = slow.map(|slow| &batch["calls"][slow]["status"]);
        status.is_some_and(|status| status != "planned") || self.world.executions.count_of("slow") > 0
    }

    /// What a new process sees.
    async fn open_and_look(&self) -> (pirn::harness::Snapshot, Vec<String>) {
        let options = self.world.options(self.world.store.clone(), ScriptedProvider::new(Vec::new()));
        let harness = Harness::open(self.options(options)).await.unwrap();
        (harness.lane("main").unwrap().snapshot(), self.world.texts())
    }

    /// The bytes that the last process left become the file of the next one.
    fn take_over(&mut self, path: &Path) {
        let mut bytes = std::fs::read(file_of(self.dir.path(), self.processes.len())).unwrap();
        if let Some(disk) = self.disks.last() {
            let state = disk.state.lock().unwrap();
            let (_, cut) = state.death.unwrap();
            match cut {
                Cut::NoNewline => assert_eq!(bytes.pop(), Some(b'\n')),
                Cut::Power => bytes.truncate(usize::try_from(state.synced).unwrap()),
                _ => {}
            }
            self.deaths.push(cut);
            let tail = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let whole = serde_json::from_slice::<Value>(&bytes[tail..]).is_ok();
            self.left.push(bytes[..if whole { bytes.len() } else { tail }].to_vec());
        }
        std::fs::write(path, bytes).unwrap();
    }

    /// The recovery oracle.
    fn survived(&self, expected: &End, what: &str) {
        let found = end_of(&self.world);
        let begun = self.begun();
        assert_eq!((&found.result, &found.queued), (&expected.result, &expected.queued), "{what}");
        assert_eq!(found.context.len(), expected.context.len(), "{what}: {:#?}", found.context);
        for (found, expected) in found.context.iter().zip(&expected.context) {
            assert!(self.alike(found, expected, &begun), "{what}: {found}\nand not {expected}");
        }
        assert_eq!((self.world.open_addresses(), self.world.results()), (Vec::new(), 1), "{what}");
        assert_eq!(self.world.state(), Value::Null, "{what}");
        let file = std::fs::read(file_of(self.dir.path(), self.processes.len())).unwrap();
        for left in &self.left {
            assert!(file.starts_with(left), "{what}: a stored line was changed");
        }
        let mut ran: HashMap<(String, String), usize> = HashMap::new();
        for executed in self.world.executions.list() {
            let runs = ran.entry((executed.tool.clone(), executed.call_id)).or_default();
            *runs += 1;
            assert!(*runs == 1 || !NEVER.contains(&&*executed.tool), "{what}: {} ran {runs} times", executed.tool);
        }
        assert!(!self.answers.tokens.early.load(Ordering::SeqCst), "{what}: ended before the cancellation was stored");
        for request in &*self.answers.requests.lock().unwrap() {
            is_valid(&request.messages, what);
        }
        // A power failure takes back what a process believed to be stored.
        if !self.deaths.contains(&Cut::Power) {
            self.outcomes_are_kept(what);
            check(&self.world, &self.processes.iter().collect::<Vec<_>>());
        }
    }

    /// Whether a line of the final context is the expected one, but for a result that was interrupted.
    fn alike(&self, found: &str, expected: &str, begun: &HashSet<String>) -> bool {
        let id = |line: &str| line.strip_prefix("result ")?.split(' ').next().map(str::to_owned);
        let Some(id) = id(found).filter(|found| id(expected).as_ref() == Some(found)) else { return found == expected };
        let tool = id.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let interrupted = NEVER.contains(&tool) && begun.contains(&id) && found.contains("[interrupted] ");
        found == expected || interrupted || (self.scenario.races && tool != "slow")
    }

    /// What was stored, by any process.
    fn writes(&self) -> Vec<Write> {
        let of = |step: Step| match step {
            Step::Commit { writes, .. } => writes,
            Step::Sync | Step::Note(_) => Vec::new(),
        };
        self.processes.iter().flat_map(|process| process.faults.steps()).flat_map(of).collect()
    }

    /// The calls whose intents were stored.
    fn begun(&self) -> HashSet<String> {
        let mut begun = HashSet::new();
        for write in self.writes() {
            let Write::Set { namespace, value, .. } = write else { continue };
            if namespace != namespace::OP_STATE {
                continue;
            }
            for call in value["batch"]["calls"].as_array().into_iter().flatten() {
                if call["status"] == "effect_pending" {
                    begun.insert(call["resultEntryId"].as_str().unwrap().to_owned());
                }
            }
        }
        let placed = self.results();
        placed.into_iter().filter(|(id, _)| begun.contains(id)).map(|(_, call)| call).collect()
    }

    /// The entries of results, and their calls.
    fn results(&self) -> Vec<(String, String)> {
        let of = |entry: &Entry| {
            let EntryBody::Message { message, .. } = &entry.body else { return None };
            let Message::ToolResult(result) = &**message else { return None };
            Some((entry.id.to_string(), result.tool_call_id.clone()))
        };
        self.world.path().iter().filter_map(of).collect()
    }

    /// An outcome that was stored once is the one that is placed, and progress that was kept is in what says that it is
    /// interrupted.
    fn outcomes_are_kept(&self, what: &str) {
        for write in self.writes() {
            let Write::Set { namespace, key, value } = write else { continue };
            if namespace == namespace::TOOL_OUTPUT {
                let (_, id) = key.rsplit_once(':').unwrap();
                let at = self.world.path().iter().position(|entry| entry.id.as_str() == id).expect(what);
                let text = &self.world.texts()[at];
                assert!(text == "boomed" || text.starts_with("half\n[interrupted] "), "{what}: {text}");
            }
            if namespace != namespace::PENDING_ENTRY || value["payload"]["role"] != "toolResult" {
                continue;
            }
            let entry = self.world.store.entries(&[EntryId::new(&key)]).unwrap().remove(0).expect(what);
            let EntryBody::Message { message, .. } = &entry.body else { panic!("{what}: {entry:?}") };
            assert_eq!(serde_json::to_value(&**message).unwrap(), value["payload"], "{what}");
        }
    }
}

fn file_of(dir: &Path, process: usize) -> PathBuf {
    dir.join(format!("{process}.jsonl"))
}

/// What every provider asks of a request: each call has its result at once and in order, nothing failed is in it, and
/// something is to be answered.
fn is_valid(messages: &[Arc<Message>], what: &str) {
    let mut owed: VecDeque<&str> = VecDeque::new();
    for message in messages {
        match &**message {
            Message::ToolResult(result) => {
                assert_eq!(owed.pop_front(), Some(&*result.tool_call_id), "{what}: a result without its call");
            }
            other => {
                assert!(owed.is_empty(), "{what}: {owed:?} have no result");
                if let Message::Assistant(reply) = other {
                    assert!(!reply.stop_reason.is_failure(), "{what}: a failed reply is sent");
                    owed.extend(reply.calls().map(|call| &*call.id));
                }
            }
        }
    }
    assert!(owed.is_empty(), "{what}: {owed:?} have no result");
    assert!(messages.last().is_some_and(|message| message.as_assistant().is_none()), "{what}: nothing is asked");
}

/// How a scenario ends if nothing happens.
async fn undisturbed(scenario: &Scenario) -> End {
    let mut stage = Stage::new(scenario).await;
    assert!(!stage.process(None).await);
    let end = end_of(&stage.world);
    stage.survived(&end, "undisturbed");
    end
}

/// Plays a scenario through these deaths and a last process. `None` where a process was over before its death.
async fn dies(scenario: &Scenario, deaths: &[(usize, Cut)]) -> Option<Stage> {
    let mut stage = Stage::new(scenario).await;
    for death in deaths {
        if !stage.process(Some(*death)).await {
            return None;
        }
    }
    assert!(!stage.process(None).await);
    Some(stage)
}

/// The first process dies in every way at every write.
async fn survives_everything(scenario: Scenario) {
    survives_cuts(scenario, |_| CUTS.to_vec()).await;
}

/// The first process dies at every write: before or in it, and behind it.
async fn survives(scenario: Scenario) {
    let [before @ .., no_newline, after, power] = CUTS;
    survives_cuts(scenario, |n| vec![before[n % before.len()], after, [no_newline, power][n % 2]]).await;
}

async fn survives_cuts(scenario: Scenario, cuts: impl Fn(usize) -> Vec<Cut>) {
    let expected = undisturbed(&scenario).await;
    for n in 1..WRITES_MAX {
        for cut in cuts(n) {
            let Some(stage) = dies(&scenario, &[(n, cut)]).await else {
                assert!(n > 5, "a run has more writes than {n}");
                return;
            };
            stage.survived(&expected, &format!("death {cut:?} at write {n}"));
        }
    }
    panic!("the run has no end");
}

fn ask(tool: &str, n: usize) -> AssistantBlock {
    call(&format!("{tool}{n}"), tool, &json!({}))
}

fn ask_echo(tool: &str, n: usize) -> AssistantBlock {
    call(&format!("{tool}{n}"), tool, &json!({ "value": format!("v{n}") }))
}

fn once(replies: Vec<Reply>) -> Vec<Vec<Reply>> {
    replies.into_iter().map(|reply| vec![reply]).collect()
}

fn overloaded() -> Reply {
    Reply::fail("503 overloaded")
}

fn sequential(options: &mut Options) {
    options.settings.tool_execution = Execution::Sequential;
}

// The scenarios -------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn an_answer_survives_a_death_at_every_write() {
    let long = "word ".repeat(2_000);
    survives_everything(Scenario::new(once(vec![say(&long).chunks(700, 900)]))).await;
}

fn parallel() -> Scenario {
    let batch = vec![ask_echo("echo", 1), ask("work", 1), ask("boom", 1), ask_echo("echo", 2)];
    Scenario::new(once(vec![calls(batch), say("done")]))
}

#[tokio::test(start_paused = true)]
async fn a_parallel_batch_survives_a_death_at_every_write() {
    survives_everything(parallel()).await;
}

#[tokio::test(start_paused = true)]
async fn calls_one_by_one_survive_a_death_at_every_write() {
    let batches = vec![
        calls(vec![ask("boom", 1), ask_echo("echo", 1), ask("work", 1)]),
        calls(vec![ask("nope", 1), ask("boom", 2)]),
        say("done"),
    ];
    survives(Scenario::new(once(batches)).change(sequential)).await;
}

#[tokio::test(start_paused = true)]
async fn retries_survive_a_death_at_every_write() {
    let replies = vec![
        vec![overloaded(), calls(vec![ask_echo("echo", 1), ask("boom", 1)])],
        vec![overloaded(), overloaded(), say("done")],
    ];
    survives(Scenario::new(replies)).await;
}

#[tokio::test(start_paused = true)]
async fn queued_messages_survive_a_death_at_every_write() {
    let replies = once(vec![calls(vec![ask_echo("note", 1), ask("boom", 1)]), say("a"), say("b"), say("c")]);
    let scenario = Scenario { follow_ups: vec!["first", "second"], ..Scenario::new(replies) };
    survives(scenario.deed(Deed::Steer).change(sequential)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_of_calls_one_by_one_survives_a_death_at_every_write() {
    let batch = vec![ask_echo("echo", 1), ask("slow", 1), ask("boom", 1)];
    let scenario = Scenario { follow_ups: vec!["never"], ..Scenario::new(once(vec![calls(batch)])) };
    survives(scenario.deed(Deed::Abort).change(sequential)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_of_a_parallel_batch_survives_a_death_at_every_write() {
    let batch = vec![ask("boom", 1), ask("slow", 1), ask_echo("echo", 1), ask("work", 1)];
    let scenario = Scenario { races: true, ..Scenario::new(once(vec![calls(batch)])) };
    survives(scenario.deed(Deed::Abort)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_of_a_reply_survives_a_death_at_every_write() {
    let half = Reply::text_deltas(&["hel"]).usage(usage()).stalls();
    survives(Scenario::new(once(vec![calls(vec![ask("boom", 1)]), half])).deed(Deed::Abort)).await;
}

/// Hooks that change and end runs.
struct Ends(HookPoint);

#[async_trait]
impl Hooks for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == self.0
    }

    async fn before_run(&self, _: BeforeRun<'_>, _: &CancellationToken) -> Result<BeforeRunAnswer, HookFailure> {
        Ok(BeforeRunAnswer { messages: vec![Message::user("injected", Vec::new(), 0)], ..BeforeRunAnswer::default() })
    }

    async fn before_request(
        &self,
        asked: BeforeRequest<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRequestAnswer, HookFailure> {
        let block = (asked.scope.turn > 1).then(|| "no more".to_owned());
        Ok(BeforeRequestAnswer { block, ..BeforeRequestAnswer::default() })
    }

    async fn before_tool(&self, asked: BeforeTool<'_>, _: &CancellationToken) -> Result<BeforeToolAnswer, HookFailure> {
        let refuses = asked.call.id == "boom2";
        let common = Common { stop: refuses, ..Common::default() };
        Ok(BeforeToolAnswer { block: refuses.then(|| "refused".to_owned()), common, ..BeforeToolAnswer::default() })
    }

    async fn after_tool(&self, asked: AfterTool<'_>, _: &CancellationToken) -> Result<AfterToolAnswer, HookFailure> {
        let common = Common { stop: asked.call.name == "echo", ..Common::default() };
        Ok(AfterToolAnswer { context: Some("seen".to_owned()), common, ..AfterToolAnswer::default() })
    }

    async fn after_response(
        &self,
        _: AfterResponse<'_>,
        _: &CancellationToken,
    ) -> Result<AfterResponseAnswer, HookFailure> {
        Ok(AfterResponseAnswer { common: Common { stop: true, ..Common::default() }, ..AfterResponseAnswer::default() })
    }

    async fn before_run_end(
        &self,
        asked: BeforeRunEnd<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRunEndAnswer, HookFailure> {
        let follow_up = (!asked.stop_hook_active).then(|| "once more".to_owned());
        Ok(BeforeRunEndAnswer { follow_up, ..BeforeRunEndAnswer::default() })
    }
}

fn with<const POINT: usize>(options: &mut Options) {
    options.hooks = vec![Arc::new(Ends(POINTS[POINT]))];
}

const POINTS: [HookPoint; 6] = [
    HookPoint::BeforeRun,
    HookPoint::BeforeRequest,
    HookPoint::BeforeTool,
    HookPoint::AfterTool,
    HookPoint::AfterResponse,
    HookPoint::BeforeRunEnd,
];

#[tokio::test(start_paused = true)]
async fn hooks_that_inject_refuse_and_end_survive_a_death_at_every_write() {
    let batch = || calls(vec![ask_echo("echo", 1), ask("boom", 1), ask("boom", 2)]);
    let changes: [Change; 6] = [with::<0>, with::<1>, with::<2>, with::<3>, with::<4>, with::<5>];
    for change in changes {
        let scenario = Scenario::new(once(vec![batch(), say("done"), say("again")])).change(change);
        survives(scenario).await;
    }
}

/// The first process dies at every write, and the second one at each of its own.
#[tokio::test(start_paused = true)]
async fn a_recovery_survives_a_death_at_every_write() {
    let batch = vec![ask_echo("echo", 1), ask("boom", 1)];
    let scenario = Scenario::new(vec![vec![overloaded(), calls(batch)], vec![say("done")]]);
    let expected = undisturbed(&scenario).await;
    for n in 1..WRITES_MAX {
        let first = if n % 2 == 0 { Cut::After } else { Cut::Middle };
        if dies(&scenario, &[(n, first)]).await.is_none() {
            assert!(n > 15, "the run has more writes than {n}");
            return;
        }
        for m in 1..WRITES_MAX {
            let second = CUTS[(n / 2 + m) % CUTS.len()];
            let Some(stage) = dies(&scenario, &[(n, first), (m, second)]).await else { break };
            stage.survived(&expected, &format!("death {first:?} at write {n}, then {second:?} at write {m}"));
        }
    }
    panic!("the run has no end");
}
