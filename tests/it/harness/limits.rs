//! Cases 110 to 113, 115 and 118 to 121: limits, a refused prompt, fallbacks, and replies that are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pirn::harness::{Blocked, Options, Outcome, RunError, Wait};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, Cost, ErrorKind, ErrorRecord, Event, LaneConfig, LaneModel,
    Message, Model, Prices, Reason, Status, StopReason, ThinkingBlock, Usage, Write,
};
use pirn::port::{
    AssistantEvent, BeforeRunAnswer, Credential, LlmRequest, Models, Tool, ToolCtx, ToolOutput, ToolSpec,
};
use pirn::testing::{Act, CountingTool, Reply, ScriptedProvider};
use pirn::turn::texts;
use serde_json::{Value, json};

use super::invariants::{self, survives_kills};
use super::recovery::reply_at;
use super::retry::{code, err, failing, told};
use super::watch::Watch;
use super::world::{Ended, FakeModels, Process, World, baseline, calls, config, echo, say, usage};

/// `echo` takes a tenth of a second.
fn slow_echo(world: &World) -> Arc<dyn Tool> {
    Arc::new(CountingTool::echo().delayed(Duration::from_millis(100)).counted(&world.executions))
}

/// Every turn asks for the same call.
fn same_call() -> Reply {
    calls(vec![echo("c1", "1")])
}

/// The states that the operation went through, as far as transactions set one.
fn states(process: &Process) -> Vec<Value> {
    let state = |write: Write| match write {
        Write::Set { namespace, value, .. } if namespace == namespace::OP_STATE => Some(value),
        _ => None,
    };
    process.faults.transactions().into_iter().flatten().filter_map(state).collect()
}

fn warnings(process: &Process) -> Vec<String> {
    let warning = |told: &pirn::model::LaneEvent| match &told.event {
        Event::Warning { code, .. } => Some(code.clone()),
        _ => None,
    };
    process.heard.events().iter().filter_map(warning).collect()
}

/// The texts of a request's user messages.
fn prompts(request: &LlmRequest) -> Vec<String> {
    let text = |message: &Arc<Message>| match &**message {
        Message::User(user) => Some(user.content.text()),
        _ => None,
    };
    request.messages.iter().filter_map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_where_a_turn_too_many_would_begin_case_110() {
    let world = World::new().await;
    let one = |options: &mut Options| {
        options.limits.max_turns = 1;
        options.tools[0] = slow_echo(&world);
    };
    let process = world.process_with(baseline(), one).await;
    let steer = async {
        world.executions.begun(1).await;
        process.lane.steer("and more").await.unwrap();
    };
    let (ended, ()) = tokio::join!(process.prompt("go"), steer);
    let result = ended.result();
    let found = (result.status, result.reason, result.stop_reason, code(&result));
    assert_eq!(found, (Status::Stopped, Reason::MaxTurns, Some(StopReason::ToolUse), 5));
    assert_eq!((process.provider.count(), world.executions.count(), world.tree().as_str()), (1, 1, "u a r"));
    assert_eq!(process.lane.inbox().len(), 1, "what was queued is still there");
    // The steering message is one more transaction.
    assert_eq!(process.faults.transactions().len(), 10);
    assert_eq!(states(&process).last().unwrap()["counters"]["turns"], 1);
    assert_eq!(told(&process).last().unwrap(), "agent_end");
    invariants::check(&world, &[&process]);

    let world = World::new().await;
    let process = world.process_with(baseline(), |options| options.limits.max_turns = 2).await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.status, code(&result)), (Status::Completed, 0), "nothing is owed at the end");
    survives_kills("one turn", || ScriptedProvider::new(baseline()), |_, options| options.limits.max_turns = 1).await;
}

/// Killed behind the placement of the second result, of three turns with a call each.
async fn killed_behind_two_turns() -> (World, Process) {
    let world = World::new().await;
    let first = world.process_with(vec![same_call(), same_call()], |options| options.limits.max_turns = 2).await;
    first.faults.kill_after(14);
    first.prompt("go").await.killed();
    assert_eq!((world.tree().as_str(), &world.state()["at"]), ("u a r a r", &json!("checkpoint")));
    (world, first)
}

#[tokio::test(start_paused = true)]
async fn a_limit_holds_across_a_kill_case_111() {
    let (world, first) = killed_behind_two_turns().await;
    let next = world.process_with(vec![say("never")], |options| options.limits.max_turns = 2).await;
    let result = next.go_on().await.result();
    assert_eq!((result.reason, next.provider.count(), world.tree().as_str()), (Reason::MaxTurns, 0, "u a r a r"));
    assert_eq!(told(&next).join(" "), "run_resume recovery agent_end", "there is no turn");
    // The run that continues it counts from the start.
    let last = world.process_with(vec![same_call(), say("ok")], |options| options.limits.max_turns = 2).await;
    let result = last.go_on().await.result();
    assert_eq!((result.status, last.provider.count()), (Status::Completed, 2));
    assert_eq!(states(&last)[0]["counters"]["turns"], 0);
    invariants::check(&world, &[&first, &next, &last]);

    // The limit of the process that drives is the one that counts.
    let (world, first) = killed_behind_two_turns().await;
    let next = world.process_with(vec![say("ok")], |options| options.limits.max_turns = 5).await;
    assert_eq!(next.go_on().await.result().status, Status::Completed);
    assert_eq!((next.provider.count(), states(&next).last().unwrap()["counters"]["turns"].clone()), (1, json!(3)));
    invariants::check(&world, &[&first, &next]);
}

/// Models that have a price.
struct Priced;

impl Models for Priced {
    fn resolve(&self, provider: &str, id: &str) -> Option<Model> {
        let model = FakeModels { keyless: Vec::new(), gone: Vec::new() }.resolve(provider, id)?;
        Some(Model { prices: Some(Prices::default()), ..model })
    }

    fn credential(&self, _: &str) -> Credential {
        Credential::Present
    }
}

fn costing(usd: f64, reply: Reply) -> Reply {
    reply.usage(Usage { cost: Cost { total: usd, ..Cost::default() }, ..usage() })
}

fn priced(max_cost: f64) -> impl Fn(&mut Options) {
    move |options| {
        options.models = Arc::new(Priced);
        options.limits.max_cost = Some(max_cost);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_where_its_money_is_spent_case_112() {
    let rows: [(&[f64], f64, usize, &[&str]); 3] = [
        (&[0.02], 0.01, 1, &[]),
        (&[0.004, 0.004, 0.004], 0.01, 3, &["max_cost"]),
        (&[0.0085, 0.0005, 0.0005, 0.0005], 0.01, 4, &["max_cost"]),
    ];
    for (costs, limit, requests, warned) in rows {
        let world = World::new().await;
        let script = || costs.iter().map(|usd| costing(*usd, same_call())).collect::<Vec<_>>();
        let process = world.process_with(script(), priced(limit)).await;
        let result = process.prompt("go").await.result();
        let found = (result.status, result.reason, code(&result), process.provider.count());
        assert_eq!(found, (Status::Stopped, Reason::MaxCost, 5, requests), "{costs:?}");
        assert_eq!(warnings(&process), warned, "{costs:?}: the warning comes once");
        let counted = states(&process).last().unwrap()["counters"]["cost"].as_f64().unwrap();
        let rows: f64 = world.store.usage().unwrap().iter().filter_map(|row| row.cost).sum();
        assert!((counted - rows).abs() < 1e-9 && (rows - costs.iter().sum::<f64>()).abs() < 1e-9, "{counted} {rows}");
        invariants::check(&world, &[&process]);
        survives_kills("money", || ScriptedProvider::new(script()), |_, options| priced(limit)(options)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_without_a_price_costs_nothing_that_is_known_case_112() {
    let world = World::new().await;
    let script = vec![costing(9.0, same_call()), costing(9.0, say("ok"))];
    let process = world.process_with(script, |options| options.limits.max_cost = Some(0.01)).await;
    assert_eq!(process.prompt("go").await.result().status, Status::Completed);
    assert!(world.store.usage().unwrap().iter().all(|row| row.cost.is_none()));
    invariants::check(&world, &[&process]);
}

/// Gives another text each time.
struct Counting {
    spec: ToolSpec,
    count: AtomicU32,
}

impl Counting {
    fn new() -> Arc<Self> {
        let spec = CountingTool::echo().spec().clone();
        Arc::new(Self { spec, count: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Tool for Counting {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: Value, _: ToolCtx) -> ToolOutput {
        ToolOutput::text(self.count.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_in_circles_ends_case_113() {
    let three = |options: &mut Options| options.limits.max_repeats = 3;
    let world = World::new().await;
    let process = world.process_with((0..9).map(|_| same_call()).collect(), three).await;
    let result = process.prompt("go").await.result();
    let found = (result.status, result.reason, result.stop_reason, code(&result));
    assert_eq!(found, (Status::Stopped, Reason::MaxRepeats, Some(StopReason::ToolUse), 5));
    assert_eq!((process.provider.count(), world.tree().as_str()), (3, "u a r a r a r"));
    invariants::check(&world, &[&process]);
    // What the same call gave before this run does not count.
    let next = world.process_with(vec![same_call(), same_call(), say("ok")], three).await;
    assert_eq!(next.prompt("again").await.result().status, Status::Completed);
    invariants::check(&world, &[&process, &next]);

    let world = World::new().await;
    let mut script: Vec<Reply> = (0..9).map(|_| same_call()).collect();
    script.push(say("ok"));
    let process = world
        .process_with(script, |options| {
            three(options);
            options.tools[0] = Counting::new();
        })
        .await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.status, process.provider.count()), (Status::Completed, 10), "each result says something new");
    let circles = || ScriptedProvider::new((0..4).map(|_| same_call()).collect());
    survives_kills("circles", circles, |_, options| three(options)).await;
}

/// A hook that refuses every prompt with "no" in it.
fn refusing(options: &mut Options) {
    let watch = Watch::new().before_run(|asked| {
        let is_no = asked
            .messages
            .iter()
            .any(|message| matches!(&**message, Message::User(user) if user.content.text().contains("no")));
        BeforeRunAnswer { block: is_no.then(|| "no".to_owned()), ..BeforeRunAnswer::default() }
    });
    options.hooks = vec![watch.shared()];
}

#[tokio::test(start_paused = true)]
async fn a_refused_prompt_leaves_the_lane_where_it_was_case_115() {
    let world = World::new().await;
    let process = world.process_with(vec![say("ok")], refusing).await;
    let result = process.prompt("no!").await.result();
    let found = (result.status, result.reason, result.stop_reason, code(&result));
    assert_eq!(found, (Status::Stopped, Reason::Blocked, None, 6));
    assert_eq!((process.provider.count(), world.tree().as_str(), result.tip_id.clone()), (0, "", None));
    assert_eq!((process.lane.tip(), world.store.stats().message_count), (None, 1), "it stays in the tree");
    let events = "agent_start turn_start message_start message_end entry_added turn_end agent_end";
    assert_eq!(told(&process).join(" "), events);
    let ends = process.heard.events();
    assert!(ends.iter().any(|told| matches!(told.event, Event::TurnEnd { message: None, .. })));
    invariants::check(&world, &[&process]);
    let next = world.process(vec![]).await;
    assert!(matches!(next.go_on().await, Ended::Refused(RunError::NothingToContinue)));
    assert_eq!(next.faults.steps().len(), 0);

    // Behind a conversation: neither the next prompt nor a continuation sees it.
    let world = World::new().await;
    let first = world.process_with(vec![say("hello"), say("ok")], refusing).await;
    first.prompt("hi").await.result();
    let tip = first.lane.tip();
    assert_eq!(first.prompt("no!").await.result().reason, Reason::Blocked);
    assert_eq!(first.lane.tip(), tip);
    assert!(matches!(first.go_on().await, Ended::Refused(RunError::NothingToContinue)));
    first.prompt("then this").await.result();
    assert_eq!(prompts(&first.provider.requests()[1]), ["hi", "then this"]);
    assert_eq!(world.tree(), "u a u a");
    invariants::check(&world, &[&first]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_prompt_is_refused_again_behind_a_kill_case_115() {
    let world = World::new().await;
    let first = world.process_with(vec![], refusing).await;
    first.faults.kill_after(1);
    first.prompt("no!").await.killed();
    let next = world.process_with(vec![], refusing).await;
    let result = next.go_on().await.result();
    assert_eq!((result.reason, next.provider.count(), world.tree().as_str()), (Reason::Blocked, 0, ""));
    assert_eq!(told(&next).join(" "), "run_resume turn_start recovery turn_end agent_end");
    invariants::check(&world, &[&first, &next]);
}

/// A model of a provider.
fn model(provider: &str, id: &str) -> LaneConfig {
    LaneConfig { model: LaneModel { provider: provider.to_owned(), model_id: id.to_owned() }, ..config(id) }
}

fn with_fallbacks(ids: &'static [&'static str]) -> impl Fn(&mut Options) {
    move |options| options.settings.fallbacks = ids.iter().map(|id| config(id)).collect()
}

async fn process_of(
    world: &World,
    scripts: Vec<(&str, Vec<Reply>)>,
    change: impl Fn(&mut Options),
) -> (Process, Arc<ScriptedProvider>) {
    let provider = ScriptedProvider::of_models(scripts);
    let process = world
        .process_with(Vec::new(), |options| {
            options.provider = provider.clone();
            change(options);
        })
        .await;
    (process, provider)
}

fn fails(text: &'static str, times: usize) -> Vec<Reply> {
    (0..times).map(|_| err(text)).collect()
}

#[tokio::test(start_paused = true)]
async fn another_model_goes_on_when_attempts_are_used_up_case_118() {
    let world = World::new().await;
    let scripts = || vec![("m1", fails("503 overloaded", 4)), ("m2", vec![say("ok"), say("never")])];
    let (process, provider) = process_of(&world, scripts(), with_fallbacks(&["m2"])).await;
    let result = process.prompt("go").await.result();
    assert_eq!((world.tree().as_str(), code(&result)), ("u a!err a!err a!err a!err a", 0));
    let told = told(&process);
    let turns = |word: &str| told.iter().filter(|told| *told == word).count();
    assert_eq!((turns("turn_start"), turns("turn_end")), (1, 1), "one turn");
    let passes = ["usage", "retry_end{4,false}", "model_fallback{fake/m1,fake/m2}", "message_start"];
    assert!(told.windows(4).any(|window| window == passes), "{told:?}");
    let states = states(&process);
    let at = states.iter().position(|state| state["fallbackIndex"] == 1).unwrap();
    assert_eq!((&states[at]["at"], &states[at]["nextAttempt"]), (&json!("assistant.ready"), &json!(1)));
    let step = |state: &Value| state["generationContext"]["stepId"].clone();
    assert_ne!(step(&states[at]), step(&states[at - 1]));
    assert_eq!(states[at]["generationContext"]["configuration"]["model"]["modelId"], "m2");
    assert_eq!(process.lane.configuration().unwrap().model.model_id, "m1");
    assert_eq!((provider.count_of("m1"), provider.count_of("m2")), (4, 1));
    invariants::check(&world, &[&process]);
    // The next prompt starts with the first model again.
    let (next, provider) = process_of(&world, vec![("m1", vec![say("here")])], with_fallbacks(&["m2"])).await;
    assert_eq!(next.prompt("again").await.result().status, Status::Completed);
    assert_eq!((provider.count_of("m1"), provider.count_of("m2")), (1, 0));

    // Prompt, checkpoint, and three transactions for each attempt.
    let world = World::new().await;
    let (first, _) = process_of(&world, scripts(), with_fallbacks(&["m2"])).await;
    first.faults.kill_after(14);
    first.prompt("go").await.killed();
    assert_eq!(world.state()["fallbackIndex"], 1);
    let (next, provider) = process_of(&world, vec![("m2", vec![say("ok")])], with_fallbacks(&[])).await;
    assert_eq!(next.go_on().await.result().status, Status::Completed);
    assert_eq!((provider.count_of("m1"), provider.count_of("m2")), (0, 1), "the operation keeps its fallbacks");
    invariants::check(&world, &[&first, &next]);
    let all = || ScriptedProvider::of_models(scripts());
    survives_kills("fallback", all, |_, options| with_fallbacks(&["m2"])(options)).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_model_left_decides_the_end_case_118() {
    let world = World::new().await;
    let scripts = vec![("m1", fails("503 overloaded", 4)), ("m2", fails("500 broken", 4)), ("m3", fails("401 no", 1))];
    let (process, provider) = process_of(&world, scripts, with_fallbacks(&["m2", "m3"])).await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.error_kind, result.reason, code(&result)), (Some(ErrorKind::Auth), Reason::Auth, 77));
    assert_eq!(["m1", "m2", "m3"].map(|model| provider.count_of(model)), [4, 4, 1]);
    invariants::check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn some_errors_go_to_the_next_model_at_once_and_some_end_the_run_case_119() {
    let later = || {
        let record = ErrorRecord::new(ErrorKind::RateLimit, "later").retryable();
        Reply::error(ErrorRecord { retry_after_ms: Some(5_000), ..record })
    };
    let rows: [(&str, Reply, bool, u8); 8] = [
        ("401", err("401 unauthorized"), true, 0),
        ("auth", failing(ErrorKind::Auth), true, 0),
        ("permission", failing(ErrorKind::Permission), true, 0),
        ("not_found", failing(ErrorKind::NotFound), true, 0),
        ("a wait too long", later(), true, 0),
        ("quota", err("insufficient_quota"), false, 1),
        ("refusal", failing(ErrorKind::Refusal), false, 4),
        ("invalid_request", failing(ErrorKind::InvalidRequest), false, 1),
    ];
    for (name, reply, falls_back, exit) in rows {
        let world = World::new().await;
        let scripts = vec![("m1", vec![reply]), ("m2", vec![same_call(), say("ok")])];
        let (process, provider) = process_of(&world, scripts, with_fallbacks(&["m2"])).await;
        let result = process.prompt("go").await.result();
        assert_eq!(code(&result), exit, "{name}");
        let expected = if falls_back { (1, 2) } else { (1, 0) };
        let found = (provider.count_of("m1"), provider.count_of("m2"));
        assert_eq!(found, expected, "{name}: a second turn stays with the second model");
        assert!(!told(&process).iter().any(|word| word.starts_with("retry_")), "{name}: one attempt each");
        invariants::check(&world, &[&process]);
    }
}

/// `keyless` have no key; the lane asks `fake/m1`, then `other/m2`.
fn keys(keyless: &'static [&'static str]) -> impl Fn(&mut Options) {
    move |options| {
        options.models =
            Arc::new(FakeModels { keyless: keyless.iter().map(|name| (*name).to_owned()).collect(), gone: Vec::new() });
        options.settings.fallbacks = vec![model("other", "m2")];
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_without_a_key_is_passed_over_case_119() {
    let world = World::new().await;
    let (process, provider) = process_of(&world, vec![("m2", vec![say("ok")])], keys(&["fake"])).await;
    let result = process.prompt("go").await.result();
    assert_eq!((code(&result), world.tree().as_str(), provider.count()), (0, "u a", 1), "no attempt, no error entry");
    let told = told(&process);
    assert!(told.contains(&"model_fallback{fake/m1,other/m2}".to_owned()), "{told:?}");
    invariants::check(&world, &[&process]);
    let all = || ScriptedProvider::of_models([("m2", vec![same_call(), say("ok")])]);
    survives_kills("no key", all, |_, options| keys(&["fake"])(options)).await;
}

#[tokio::test(start_paused = true)]
async fn without_any_key_the_run_stays_open_and_any_key_lets_it_go_on_case_119() {
    for (keyless, asked) in [(&["other"] as &[_], "m1"), (&["fake"], "m2")] {
        let world = World::new().await;
        let (first, provider) = process_of(&world, vec![], keys(&["fake", "other"])).await;
        let ended = first.prompt("go").await;
        let Ended::Outcome(Outcome::Waiting(Wait::Blocked(Blocked::Credential { provider: of, variables }))) = ended
        else {
            panic!("{ended:?}");
        };
        assert_eq!((of.as_str(), variables, provider.count()), ("fake", vec!["FAKE_KEY".to_owned()], 0));
        assert_eq!(
            (&world.state()["at"], world.state()["fallbackIndex"].clone()),
            (&json!("assistant.ready"), json!(0))
        );
        let scripts = vec![("m1", vec![say("ok")]), ("m2", vec![say("ok")])];
        let (next, provider) = process_of(&world, scripts, keys(keyless)).await;
        assert_eq!(next.go_on().await.result().status, Status::Completed);
        assert_eq!((provider.count(), provider.count_of(asked)), (1, 1));
        invariants::check(&world, &[&first, &next]);
    }
}

fn thinks() -> Reply {
    let thinking = ThinkingBlock { thinking: "hm".to_owned(), ..ThinkingBlock::default() };
    Reply::blocks(vec![AssistantBlock::Thinking(thinking)]).usage(usage())
}

#[tokio::test(start_paused = true)]
async fn an_empty_reply_is_an_error_that_is_repeated_case_120() {
    type Empty = (&'static str, fn() -> Reply);
    let empty: [Empty; 3] = [
        ("no block", || Reply::blocks(Vec::new()).usage(usage())),
        ("thinking", thinks),
        ("white space", || say(" \n\t")),
    ];
    for (name, empty) in empty {
        let world = World::new().await;
        let process = world.process(vec![empty(), say("ok")]).await;
        let result = process.prompt("go").await.result();
        assert_eq!((world.tree().as_str(), code(&result)), ("u a!err a", 0), "{name}");
        let failed = reply_at(&world, 1);
        let kind = failed.error.as_ref().map(|error| error.kind);
        assert_eq!((kind, failed.error_message.as_deref()), (Some(ErrorKind::Empty), Some(texts::EMPTY)), "{name}");
        let content = usize::from(name != "no block");
        assert_eq!(failed.content.len(), content, "{name}: what came stays in the tree");
        assert_eq!(process.provider.requests()[1].messages.len(), 1, "{name}");
        invariants::check(&world, &[&process]);

        let world = World::new().await;
        let process = world.process((0..5).map(|_| empty()).collect()).await;
        let result = process.prompt("go").await.result();
        let found = (result.status, result.error_kind, process.provider.count(), code(&result));
        assert_eq!(found, (Status::Failed, Some(ErrorKind::Empty), 4, 1), "{name}");
        invariants::check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_cut_before_its_first_word_is_kept_case_120() {
    let world = World::new().await;
    let cut = Reply::blocks(Vec::new()).stop(StopReason::Length).usage(Usage { output: 4_096, ..usage() });
    let process = world.process(vec![cut, say("never")]).await;
    let result = process.prompt("go").await.result();
    let found = (result.status, result.reason, result.stop_reason, process.provider.count(), code(&result));
    assert_eq!(found, (Status::Completed, Reason::Length, Some(StopReason::Length), 1, 3));
    assert_eq!(world.tree(), "u a");
    invariants::check(&world, &[&process]);
}

/// Text, then the end by a safety stop.
fn refusal(kind: ErrorKind) -> Reply {
    let head =
        AssistantHead { api: "fake-api".to_owned(), provider: "fake".to_owned(), model: "m1".to_owned(), timestamp: 0 };
    let record = ErrorRecord::new(kind, "The model declined.");
    let mut message = AssistantMessage::pending(&head);
    message.content = vec![AssistantBlock::text("I can't")];
    message.stop_reason = StopReason::Error;
    message.error_message = Some(record.message.clone());
    message.error = Some(record);
    Reply::raw(vec![Act::Emit(AssistantEvent::Start(head)), Act::Emit(AssistantEvent::End(Box::new(message)))])
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_neither_repeated_nor_asked_of_another_model_case_121() {
    for kind in [ErrorKind::Refusal, ErrorKind::ContentFilter] {
        let world = World::new().await;
        let (process, provider) =
            process_of(&world, vec![("m1", vec![refusal(kind)]), ("m2", vec![say("never")])], with_fallbacks(&["m2"]))
                .await;
        let settled = process.prompt("go").await.settled();
        let result = &settled.result;
        let found = (result.status, result.reason, result.error_kind, provider.count(), code(result));
        assert_eq!(found, (Status::Failed, Reason::Refused, Some(kind), 1, 4), "{kind:?}");
        assert_eq!((world.tree().as_str(), world.texts()[1].as_str()), ("u a!err", "I can't"), "{kind:?}");
        assert_eq!(settled.text, "I can't", "{kind:?}");
        invariants::check(&world, &[&process]);
    }
}
