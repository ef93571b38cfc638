//! Cases 59 to 66: an attempt that failed, and what comes of it.

use std::time::Duration;

use pirn::exit;
use pirn::harness::{Drive, Options, Outcome, Wait};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantBlock, ErrorKind, ErrorRecord, Event, LaneEvent, Message, OperationResult, Reason, Status, StopReason,
};
use pirn::port::{BeforeRequest, BeforeRequestAnswer, Clock};
use pirn::testing::{Reply, ScriptedProvider};
use pirn::turn::texts;
use serde_json::json;

use super::invariants;
use super::recovery::reply_at;
use super::watch::Watch;
use super::world::{Ended, Process, World, calls, echo, say, usage};

/// An attempt that failed with this text, and no more said.
pub(super) fn err(text: &str) -> Reply {
    Reply::fail(text).usage(usage())
}

/// An attempt that failed with a kind.
pub(super) fn failing(kind: ErrorKind) -> Reply {
    Reply::error(ErrorRecord::new(kind, kind.as_str()))
}

/// The exit code of a result.
pub(super) fn code(result: &OperationResult) -> u8 {
    exit::of(result.reason, result.stop_reason, result.error_kind, result.cause).code
}

/// What was told, with the numbers of retries.
pub(super) fn told(process: &Process) -> Vec<String> {
    let word = |told: &LaneEvent| match &told.event {
        Event::RetryScheduled { attempt, max_attempts, delay_ms, .. } => {
            format!("retry_scheduled{{{attempt},{max_attempts},{delay_ms}}}")
        }
        Event::RetryStart { attempt } => format!("retry_start{{{attempt}}}"),
        Event::RetryEnd { attempt, success, .. } => format!("retry_end{{{attempt},{success}}}"),
        Event::ModelFallback { from, to, .. } => format!("model_fallback{{{from},{to}}}"),
        Event::MessageUpdate { .. } => "message_update+".to_owned(),
        Event::MessageEnd { message, .. } => match &**message {
            Message::Assistant(reply) => format!("message_end({})", reply.stop_reason.as_str()),
            _ => "message_end".to_owned(),
        },
        other => other.name().to_owned(),
    };
    let mut words: Vec<String> = process.heard.events().iter().map(word).collect();
    words.dedup_by(|next, word| *next == "message_update+" && next == word);
    words
}

fn delays(process: &Process) -> Vec<u64> {
    let delay = |told: &LaneEvent| match told.event {
        Event::RetryScheduled { delay_ms, .. } => Some(delay_ms),
        _ => None,
    };
    process.heard.events().iter().filter_map(delay).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_repeated_in_its_turn_case_59() {
    let world = World::new().await;
    let process = world.process(vec![err("503 overloaded"), say("ok")]).await;
    let result = process.prompt("go").await.result();
    assert_eq!((world.tree().as_str(), code(&result)), ("u a!err a", 0));
    let expected = "agent_start turn_start message_start message_end entry_added message_start message_end(error) \
        entry_added usage retry_scheduled{2,4,10} retry_start{2} message_start message_update+ message_end(stop) \
        entry_added usage retry_end{2,true} turn_end agent_end";
    assert_eq!(told(&process).join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(world.store.usage().unwrap().len(), 2);
    let roles = |at: usize| process.provider.requests()[at].messages.len();
    assert_eq!((process.provider.count(), roles(0), roles(1)), (2, 1, 1), "the failed reply is in no request");
    let failed = reply_at(&world, 1).error.unwrap();
    assert_eq!((failed.kind, failed.retryable), (ErrorKind::Overloaded, true));
    invariants::check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn attempts_wait_longer_and_longer_and_then_the_run_fails_case_60() {
    for (base, expected) in [(10, [10, 20, 40]), (600, [600, 1000, 1000])] {
        let world = World::new().await;
        let script = (0..4).map(|_| err("503 overloaded")).collect();
        let process =
            world.process_with(script, |options| options.retry.base_delay = Duration::from_millis(base)).await;
        let started = world.clock.now_ms();
        let result = process.prompt("go").await.result();
        assert_eq!(world.clock.now_ms() - started, expected.iter().sum::<u64>());
        assert_eq!((delays(&process), world.tree().as_str()), (expected.to_vec(), "u a!err a!err a!err a!err"));
        let error = result.error.as_ref().unwrap();
        let found = (result.status, result.reason, result.error_kind, &*error.code, result.stop_reason);
        let kind = Some(ErrorKind::Overloaded);
        assert_eq!(found, (Status::Failed, Reason::Unavailable, kind, "assistant_error", Some(StopReason::Error)));
        assert_eq!((code(&result), process.provider.count()), (75, 4));
        assert_eq!(result.final_entry_id, Some(world.path()[4].id.clone()));
        let told = told(&process);
        let end = ["usage", "retry_end{4,false}", "turn_end", "agent_end"];
        assert!(told.ends_with(&end.map(str::to_owned)), "{told:?}");
        assert_eq!(told.iter().filter(|word| word.starts_with("turn_")).count(), 2, "one turn");
        invariants::check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_asks_to_wait_counts_up_to_a_bound_case_61() {
    let asking = |kind, after| {
        let record = ErrorRecord { retry_after_ms: Some(after), ..ErrorRecord::new(kind, "later").retryable() };
        Reply::error(record)
    };
    for (after, expected) in [(300, 300), (5, 10), (1_000, 1_000)] {
        let world = World::new().await;
        let process = world.process(vec![asking(ErrorKind::RateLimit, after), say("ok")]).await;
        let result = process.prompt("go").await.result();
        assert_eq!((delays(&process), result.status), (vec![expected], Status::Completed), "asked for {after}");
    }
    for kind in [ErrorKind::RateLimit, ErrorKind::Overloaded] {
        let world = World::new().await;
        let process = world.process(vec![asking(kind, 5_000), say("never")]).await;
        let settled = process.prompt("go").await.settled();
        let result = &settled.result;
        let error = result.error.clone().unwrap();
        assert_eq!((delays(&process), process.provider.count()), (vec![], 1), "{kind:?}");
        let found = (result.status, result.reason, result.error_kind, &*error.code, error.details, code(result));
        let details = Some(json!({"retryAfterMs": 5_000}));
        let limited = Some(ErrorKind::RateLimit);
        assert_eq!(found, (Status::Failed, Reason::Unavailable, limited, "rate_limited", details, 75), "{kind:?}");
        assert_eq!(settled.error.map(|error| error.kind), limited, "{kind:?}");
        assert_eq!(reply_at(&world, 1).error.unwrap().kind, kind, "what the provider said stays in the tree");
        invariants::check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_may_pass_is_repeated_case_62() {
    for (text, kind, requests, exit) in [
        ("insufficient_quota", Some(ErrorKind::Quota), 1, 1),
        ("429 too many requests", None, 2, 0),
        ("", Some(ErrorKind::Protocol), 1, 1),
    ] {
        let world = World::new().await;
        let process = world.process(vec![err(text), say("ok")]).await;
        let result = process.prompt("go").await.result();
        let found = (result.error_kind, process.provider.count(), code(&result));
        assert_eq!(found, (kind, requests, exit), "{text:?}");
        assert!(reply_at(&world, 1).error_message.is_some_and(|text| !text.is_empty()), "{text:?}");
        invariants::check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_refuses_another_attempt_gives_the_run_its_error_case_62() {
    let world = World::new().await;
    let refuses = |asked: &BeforeRequest<'_>| BeforeRequestAnswer {
        block: (asked.attempt > 1).then(|| "once is enough".to_owned()),
        ..BeforeRequestAnswer::default()
    };
    let watch = Watch::new().before_request(refuses).shared();
    let process =
        world.process_with(vec![err("503 overloaded"), say("never")], |options| options.hooks = vec![watch]).await;
    let settled = process.prompt("go").await.settled();
    let (error, record) = (settled.result.error.clone().unwrap(), settled.error.unwrap());
    assert_eq!((&*error.code, &*error.message), ("hook_blocked", "once is enough"));
    assert_eq!((record.kind, &*record.message), (ErrorKind::Hook, "once is enough"), "not the error of the attempt");
    assert_eq!((world.tree().as_str(), process.provider.count(), code(&settled.result)), ("u a!err", 1, 1));
    let end = ["retry_start{2}", "retry_end{1,false}", "turn_end", "agent_end"];
    assert!(told(&process).ends_with(&end.map(str::to_owned)), "{:?}", told(&process));
    invariants::check(&world, &[&process]);
}

/// A session whose process died while it waited for the second attempt.
async fn killed_in_the_wait() -> (World, Process) {
    let world = World::new().await;
    let first = world
        .process_with(vec![err("503 overloaded")], |options| options.retry.base_delay = Duration::from_millis(40))
        .await;
    first.faults.kill_after(5);
    first.prompt("go").await.killed();
    assert_eq!(world.state()["at"], "assistant.retry_wait");
    (world, first)
}

#[tokio::test(start_paused = true)]
async fn a_new_process_waits_the_rest_and_never_longer_than_the_bound_case_63() {
    // The clock goes on by so much before the next process; it is set back by an hour where the number is negative.
    for (passed, expected) in [(0_i64, 40), (15, 25), (40, 0), (5_000, 0), (-3_600_000, 1_000)] {
        let (world, first) = killed_in_the_wait().await;
        let not_before = world.state()["notBefore"].as_u64().unwrap();
        if let Ok(passed) = u64::try_from(passed) {
            world.clock.sleep(Duration::from_millis(passed)).await;
        } else {
            let mut state = world.state();
            state["notBefore"] = json!(not_before.saturating_add_signed(-passed));
            let key = world.store.values(namespace::OP_STATE, "").unwrap().remove(0).0;
            let write = pirn::model::Write::set(namespace::OP_STATE, &key, &state).unwrap();
            world.store.commit(vec![write]).await.unwrap();
        }
        let next = world.process(vec![say("ok")]).await;
        let began = world.clock.now_ms();
        let result = next.go_on().await.result();
        assert_eq!((world.clock.now_ms() - began, result.status), (expected, Status::Completed), "passed: {passed}");
        assert_eq!((world.tree().as_str(), next.provider.count()), ("u a!err a", 1));
        let starts = "run_resume turn_start recovery retry_start{2} message_start";
        assert!(told(&next).join(" ").starts_with(starts), "{:?}", told(&next));
        if passed >= 0 {
            invariants::check(&world, &[&first, &next]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_does_not_wait_says_when_to_come_again_case_63() {
    let world = World::new().await;
    let process = world.process(vec![err("503 overloaded"), say("ok")]).await;
    let drive = Drive { wait_for_retry: false, ..Drive::default() };
    let ended = process.until_killed(process.lane.prompt("go", drive)).await;
    let Ended::Outcome(Outcome::Waiting(Wait::Retry { not_before })) = ended else { panic!("{ended:?}") };
    assert_eq!((not_before, process.provider.count()), (world.clock.now_ms() + 10, 1));
    let again = process.go_on_with(drive).await;
    assert!(matches!(again, Ended::Outcome(Outcome::Waiting(Wait::Retry { .. }))), "{again:?}");
    world.clock.sleep(Duration::from_millis(10)).await;
    assert_eq!(process.go_on_with(drive).await.result().status, Status::Completed);
    invariants::check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_failed_reply_do_not_run_case_64() {
    let world = World::new().await;
    let broken = Reply::blocks(vec![AssistantBlock::text("hi"), echo("c1", "v")])
        .stop(StopReason::Error)
        .error_message("503 overloaded");
    let process = world.process(vec![broken, say("ok")]).await;
    process.prompt("go").await.result();
    assert_eq!((world.tree().as_str(), world.executions.count()), ("u a!err a", 0));
    assert_eq!(reply_at(&world, 1).calls().count(), 1, "the tree keeps what came");
    assert_eq!(process.provider.requests()[1].messages.len(), 1);
    assert!(!told(&process).iter().any(|word| word.starts_with("tool_")));
    invariants::check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_asks_for_tools_and_names_none_fails_case_65() {
    let world = World::new().await;
    let process = world.process(vec![say("let me see").stop(StopReason::ToolUse), say("never")]).await;
    let result = process.prompt("go").await.result();
    let error = result.error.as_ref().unwrap();
    assert_eq!((&*error.code, &*error.message), ("assistant_error", texts::TOOLUSE_EMPTY));
    let found = (result.status, result.error_kind, process.provider.count(), code(&result));
    assert_eq!(found, (Status::Failed, Some(ErrorKind::Protocol), 1, 1));
    assert_eq!((world.tree().as_str(), world.texts()[1].as_str()), ("u a!err", "let me see"));
    invariants::check(&world, &[&process]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_continued_as_a_new_one_case_66() {
    let world = World::new().await;
    let first = world.process((0..4).map(|_| err("503 overloaded")).collect()).await;
    let failed = first.prompt("go").await.result();
    assert_eq!(failed.status, Status::Failed);
    let next = world.process(vec![say("ok")]).await;
    let result = next.go_on().await.result();
    assert_ne!(result.operation_id, failed.operation_id);
    assert_eq!((result.status, code(&result), world.results()), (Status::Completed, 0, 2));
    assert_eq!(world.tree(), "u a!err a!err a!err a!err a");
    let request = &next.provider.requests()[0];
    assert!(matches!(&request.messages[..], [only] if matches!(**only, Message::User(_))), "the prompt, and no more");
    assert_eq!(told(&next)[..3].join(" "), "agent_start turn_start message_start", "no message is told again");
    invariants::check(&world, &[&first, &next]);
    // Behind a run that was completed there is nothing to continue.
    let last = world.process(vec![say("never")]).await;
    assert!(matches!(last.go_on().await, Ended::Refused(pirn::harness::RunError::NothingToContinue)));
    assert_eq!(last.faults.steps().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn runs_with_retries_survive_kills_cases_59_to_62() {
    let later = || {
        let record = ErrorRecord::new(ErrorKind::RateLimit, "later").retryable();
        Reply::error(ErrorRecord { retry_after_ms: Some(300), ..record })
    };
    let scripts: [(&str, Vec<Reply>); 3] = [
        ("a wait", vec![later(), calls(vec![echo("c1", "v")]), say("ok")]),
        ("a wait behind a call", vec![calls(vec![echo("c1", "v")]), later(), say("ok")]),
        ("quota", vec![calls(vec![echo("c1", "v")]), err("insufficient_quota")]),
    ];
    let change = |_: &World, _: &mut Options| {};
    for (name, script) in scripts {
        invariants::survives_kills(name, || ScriptedProvider::new(script.clone()), change).await;
    }
}
