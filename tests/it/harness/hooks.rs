//! Cases 85 to 90: several hooks, what hooks add and change, and what they may not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use std::time::Duration;

use async_trait::async_trait;
use pirn::harness::{Blocked, Outcome, Wait};
use pirn::model::{AssistantBlock, AssistantMessage, Content, Event, Message, Status, StopReason};
use pirn::port::{
    AfterResponse, AfterResponseAnswer, AfterToolAnswer, BeforeDrive, BeforeDriveAnswer, BeforeRequestAnswer,
    BeforeRunAnswer, BeforeRunEnd, BeforeRunEndAnswer, BeforeToolAnswer, HookFailure, HookPoint, Hooks, OptionsPatch,
    StreamOptions,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::invariants::check;
use super::recovery::reply_at;
use super::retry::err;
use super::watch::Watch;
use super::world::{Ended, Process, World, baseline, say};

#[tokio::test(start_paused = true)]
async fn each_hook_sees_what_the_one_before_it_made_and_the_first_refusal_counts_case_85() {
    let world = World::new().await;
    let first = Watch::new()
        .before_tool(|_| BeforeToolAnswer { args: Some(json!({"value": "b"})), ..BeforeToolAnswer::default() })
        .shared();
    let second = Watch::new()
        .before_tool(|asked| {
            assert_eq!(asked.args, &json!({"value": "b"}));
            BeforeToolAnswer { block: Some("x".to_owned()), ..BeforeToolAnswer::default() }
        })
        .shared();
    let process = world.process_with(baseline(), |options| options.hooks = vec![first, second]).await;
    process.prompt("go").await.result();
    assert_eq!((world.texts()[2].as_str(), world.executions.count()), ("x", 0));

    let world = World::new().await;
    let first = Watch::new()
        .after_tool(|_| AfterToolAnswer {
            content: Some(vec![Content::text("first")]),
            is_error: Some(true),
            ..AfterToolAnswer::default()
        })
        .shared();
    let second = Watch::new()
        .after_tool(|asked| {
            assert!(asked.output.is_error);
            AfterToolAnswer { content: Some(vec![Content::text("second")]), ..AfterToolAnswer::default() }
        })
        .shared();
    let process = world.process_with(baseline(), |options| options.hooks = vec![first, second]).await;
    process.prompt("go").await.result();
    let path = world.path();
    let pirn::model::EntryBody::Message { message, .. } = &path[2].body else { panic!("{path:?}") };
    let pirn::model::Message::ToolResult(result) = &**message else { panic!("{message:?}") };
    assert_eq!((world.texts()[2].as_str(), result.is_error), ("second", true));
}

/// Adds a message behind every prompt, and writes down under which key it was asked.
fn adding(keys: &Arc<Mutex<Vec<String>>>) -> Arc<Watch> {
    let keys = Arc::clone(keys);
    let added = move |asked: &pirn::port::BeforeRun<'_>| {
        keys.lock().unwrap().push(asked.scope.key.clone());
        BeforeRunAnswer { messages: vec![Message::user("m1", Vec::new(), 0)], ..BeforeRunAnswer::default() }
    };
    Watch::new().before_run(added).shared()
}

#[tokio::test(start_paused = true)]
async fn a_hook_adds_a_message_to_a_prompt_once_and_is_asked_again_under_its_key_case_86() {
    // Killed between the hook and its transaction, behind that, or not at all.
    for (kill, asked) in [(None, 1), (Some(1), 2), (Some(2), 1)] {
        let keys = Arc::default();
        let world = World::new().await;
        let process = world.process_with(vec![say("ok")], |options| options.hooks = vec![adding(&keys)]).await;
        match kill {
            Some(1) => process.faults.kill_before(2),
            Some(n) => process.faults.kill_after(n),
            None => {}
        }
        let ended = process.prompt("go").await;
        let next = world.process_with(vec![say("ok")], |options| options.hooks = vec![adding(&keys)]).await;
        match kill {
            Some(_) => {
                ended.killed();
                next.go_on().await.result();
            }
            None => drop(ended.result()),
        }
        assert_eq!((world.tree().as_str(), world.texts().join(" ")), ("u u a", "go m1 ok".to_owned()), "{kill:?}");
        let keys = keys.lock().unwrap();
        assert_eq!(keys.len(), asked, "killed at {kill:?}");
        assert!(keys.iter().all(|key| *key == keys[0]), "killed at {kill:?}: {keys:?}");
        check(&world, &[&process, &next]);
    }
}

/// Asks for one more thing at every end.
struct Again;

#[async_trait]
impl Hooks for Again {
    fn name(&self) -> &'static str {
        "again"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == HookPoint::BeforeRunEnd
    }

    async fn before_run_end(
        &self,
        _: BeforeRunEnd<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRunEndAnswer, HookFailure> {
        Ok(BeforeRunEndAnswer { follow_up: Some("check".to_owned()), ..BeforeRunEndAnswer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_has_three_follow_ups_in_an_operation_also_across_a_kill_case_87() {
    for killed in [None, Some(8), Some(10)] {
        let world = World::new().await;
        let script = || (0..5).map(|n| say(&format!("a{n}"))).collect::<Vec<_>>();
        let process = world.process_with(script(), |options| options.hooks = vec![Arc::new(Again)]).await;
        let result = match killed {
            None => process.prompt("go").await.result(),
            Some(n) => {
                process.faults.kill_after(n);
                process.prompt("go").await.killed();
                drop(process);
                let next = world.process_with(script(), |options| options.hooks = vec![Arc::new(Again)]).await;
                next.go_on().await.result()
            }
        };
        assert_eq!(result.status, Status::Completed);
        let checks = world.texts().iter().filter(|text| *text == "check").count();
        assert_eq!(checks, 3, "killed after {killed:?}: {:?}", world.texts());
    }
}

/// Refuses drives while it is told to.
struct Guard(Arc<AtomicBool>);

#[async_trait]
impl Hooks for Guard {
    fn name(&self) -> &'static str {
        "guard"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == HookPoint::BeforeDrive
    }

    async fn before_drive(&self, _: BeforeDrive<'_>, _: &CancellationToken) -> Result<BeforeDriveAnswer, HookFailure> {
        let block = self.0.load(Ordering::SeqCst).then(|| "not now".to_owned());
        Ok(BeforeDriveAnswer { block, ..BeforeDriveAnswer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_drive_stores_nothing_and_the_operation_goes_on_later_case_88() {
    let world = World::new().await;
    let refuses = Arc::new(AtomicBool::new(true));
    let guard = Arc::new(Guard(Arc::clone(&refuses)));
    let process = world.process_with(baseline(), |options| options.hooks = vec![guard]).await;
    match process.prompt("go").await {
        Ended::Outcome(Outcome::Waiting(Wait::Blocked(Blocked::Hook { reason }))) => assert_eq!(reason, "not now"),
        other => panic!("{other:?}"),
    }
    assert_eq!((process.faults.transactions().len(), process.provider.count()), (1, 0));
    assert_eq!(world.state()["at"], "starting");
    refuses.store(false, Ordering::SeqCst);
    assert_eq!(process.go_on().await.result().status, Status::Completed);
    assert_eq!(world.tree(), "u a r a");
}

type Rewrite = fn(&mut AssistantMessage);

/// Makes another reply of each.
struct Rewriter(Rewrite);

#[async_trait]
impl Hooks for Rewriter {
    fn name(&self) -> &'static str {
        "rewriter"
    }

    fn listens(&self, point: HookPoint) -> bool {
        point == HookPoint::AfterResponse
    }

    async fn after_response(
        &self,
        asked: AfterResponse<'_>,
        _: &CancellationToken,
    ) -> Result<AfterResponseAnswer, HookFailure> {
        let mut message = asked.message.clone();
        (self.0)(&mut message);
        Ok(AfterResponseAnswer { message: Some(Box::new(message)), ..AfterResponseAnswer::default() })
    }
}

/// The errors of hooks that were told.
fn errors(process: &Process) -> Vec<String> {
    let error = |told: pirn::model::LaneEvent| match told.event {
        Event::HandlerError { name, error, .. } => Some(format!("{name}: {error}")),
        _ => None,
    };
    process.heard.events().into_iter().filter_map(error).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hook_behind_a_reply_may_rewrite_it_and_not_leave_it_open_case_89() {
    // That it keeps its role is a matter of types.
    let cases: [(Rewrite, &str, bool); 3] = [
        (|message| message.content = vec![AssistantBlock::text("rewritten")], "rewritten", true),
        (|message| message.stop_reason = StopReason::Aborted, "raw", false),
        (|message| message.stop_reason = StopReason::Pending, "raw", false),
    ];
    for (rewrite, text, is_accepted) in cases {
        let world = World::new().await;
        let hook = Arc::new(Rewriter(rewrite));
        let process = world.process_with(vec![say("raw")], |options| options.hooks = vec![hook]).await;
        let settled = process.prompt("go").await.settled();
        assert_eq!((settled.result.status, settled.text.as_str()), (Status::Completed, text));
        let reply = reply_at(&world, 1);
        assert_eq!((reply.stop_reason, reply.text().as_str()), (StopReason::Stop, text));
        let told = process.heard.events().into_iter().find_map(|told| match told.event {
            Event::MessageEnd { message, .. } => message.as_assistant().map(AssistantMessage::text),
            _ => None,
        });
        assert_eq!(told.as_deref(), Some(text));
        let errors = errors(&process);
        assert_eq!(errors.is_empty(), is_accepted, "{errors:?}");
        assert!(errors.iter().all(|error| error.starts_with("rewriter: ")), "{errors:?}");
        check(&world, &[&process]);
    }
}

/// Headers by name, and the wait for the first event.
fn seen(options: &StreamOptions) -> (Vec<(String, Option<String>)>, Option<Duration>) {
    let headers = options.headers.iter().map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
    (headers.collect(), options.timeouts.first_event)
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_a_request_holds_for_one_attempt_and_its_headers_are_stored_nowhere_case_90() {
    let world = World::new().await;
    let patch = || OptionsPatch {
        timeout_ms: Some(5),
        headers: vec![("A".to_owned(), None), ("B".to_owned(), Some("hush-b".to_owned()))],
        ..OptionsPatch::default()
    };
    let watch = Watch::new().before_request(move |asked| BeforeRequestAnswer {
        patch: if asked.attempt == 1 { patch() } else { OptionsPatch::default() },
        ..BeforeRequestAnswer::default()
    });
    let process = world
        .process_with(vec![err("503 overloaded"), say("ok")], |options| {
            options.stream_options.headers.set("A", Some("hush-a".to_owned()));
            options.hooks = vec![watch.shared()];
        })
        .await;
    process.prompt("go").await.result();
    let sent = process.provider.requests();
    let header = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
    let first = (vec![header("A", None), header("B", Some("hush-b"))], Some(Duration::from_millis(5)));
    assert_eq!(seen(&sent[0].options), first);
    assert_eq!(
        seen(&sent[1].options),
        (vec![header("A", Some("hush-a"))], StreamOptions::default().timeouts.first_event)
    );
    let stored = format!("{:?}", process.faults.transactions());
    assert!(!stored.contains("hush"), "{stored}");
    // The names may be there, so that a person finds which request it was.
    assert_eq!(world.tree(), "u a!err a");
    check(&world, &[&process]);
}
