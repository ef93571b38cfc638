//! Cases 46 to 53, 57 and 58: what waits, and when it gets its place.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pirn::harness::{Cancelled, Drive, Lane, Options, QueueError};
use pirn::model::{AssistantHead, AssistantMessage, Message, PendingEntry, QueueMode, Status, StopReason, Write};
use pirn::port::{AssistantEvent, Clock, LlmRequest};
use pirn::testing::{Act, CountingTool, Reply};
use serde_json::json;

use super::invariants::check;
use super::world::{Process, World, baseline, say, usage};

/// What is queued while the tool runs: its kind and text.
#[derive(Clone, Copy)]
enum Queued {
    Steer(&'static str),
    FollowUp(&'static str),
}

/// A process whose `echo` queues messages while it runs.
async fn queueing(world: &World, more: Vec<Reply>, queued: &'static [Queued]) -> Process {
    queueing_with(world, more, queued, |_| {}).await
}

/// The same, with other options.
async fn queueing_with(
    world: &World,
    more: Vec<Reply>,
    queued: &'static [Queued],
    change: impl FnOnce(&mut Options),
) -> Process {
    let lane: Arc<OnceLock<Lane>> = Arc::default();
    let mut script = baseline();
    script.extend(more);
    let of_tool = Arc::clone(&lane);
    let process = world
        .process_with(script, move |options| {
            change(options);
            options.tools.retain(|tool| tool.spec().name != "echo");
            options.tools.push(Arc::new(CountingTool::echo().awaiting(move || {
                let lane = of_tool.get().unwrap().clone();
                Box::pin(async move {
                    for item in queued {
                        match item {
                            Queued::Steer(text) => lane.steer(*text).await.unwrap(),
                            Queued::FollowUp(text) => lane.follow_up(*text).await.unwrap(),
                        };
                    }
                })
            })));
        })
        .await;
    assert!(lane.set(process.lane.clone()).is_ok());
    process
}

#[tokio::test(start_paused = true)]
async fn steering_goes_before_the_next_request_and_a_follow_up_before_the_end_cases_46_48_49() {
    for (queued, replies, tree, texts) in [
        (&[Queued::Steer("s1")][..], 0, "u a r u a", &["go", "hi", "v", "s1", "done"][..]),
        (&[Queued::FollowUp("f1")], 1, "u a r a u a", &["go", "hi", "v", "done", "f1", "more 0"]),
        (
            &[Queued::FollowUp("f1"), Queued::Steer("s1"), Queued::Steer("s2")],
            2,
            "u a r u a u a u a",
            &["go", "hi", "v", "s1", "done", "s2", "more 0", "f1", "more 1"],
        ),
    ] {
        let world = World::new().await;
        let more = (0..replies).map(|n| say(&format!("more {n}"))).collect();
        let process = queueing(&world, more, queued).await;
        assert_eq!(process.prompt("go").await.result().status, Status::Completed);
        assert_eq!((world.tree().as_str(), world.texts()), (tree, texts.iter().map(ToString::to_string).collect()));
        assert_eq!(world.results(), 1);
        assert_eq!(world.open_addresses(), Vec::<String>::new());
    }
}

/// Texts of the path, but for replies that failed.
fn talk(world: &World) -> Vec<String> {
    let tree = world.tree();
    let words = tree.split(' ').zip(world.texts());
    words.filter(|(word, _)| !word.contains('!')).map(|(_, text)| text).collect()
}

#[tokio::test(start_paused = true)]
async fn two_steering_messages_get_an_answer_each_whatever_dies_between_case_47() {
    const TWO: &[Queued] = &[Queued::Steer("s1"), Queued::Steer("s2")];
    let world = World::new().await;
    let process = queueing(&world, vec![say("more")], TWO).await;
    process.prompt("go").await.result();
    let whole = process.faults.transactions();
    assert_eq!((world.tree().as_str(), talk(&world)[3..].join(" ")), ("u a r u a u a", "s1 done s2 more".to_owned()));
    let placed = |text: &str| {
        let is_it = |writes: &Vec<Write>| {
            let found = |write: &Write| matches!(write, Write::Entry { .. }) && format!("{write:?}").contains(text);
            writes.iter().any(found)
        };
        whole.iter().position(is_it).unwrap() + 1
    };
    let states: Vec<bool> =
        [placed("s1"), placed("s2")].map(|n| format!("{:?}", whole[n - 1]).contains("assistant.ready")).to_vec();
    assert_eq!(states, [true, true], "the placement and the next request are one transaction");
    check(&world, &[&process]);
    // Both are queued behind TX8.
    for n in 8..whole.len() {
        let world = World::new().await;
        let first = queueing(&world, vec![say("more")], TWO).await;
        first.faults.kill_after(n);
        first.prompt("go").await.killed();
        let said = talk(&world);
        let rest = ["done", "more"].into_iter().filter(|text| !said.contains(&(*text).to_owned())).map(say).collect();
        let next = world.process(rest).await;
        next.go_on().await.result();
        assert_eq!(
            talk(&world)[3..],
            ["s1", "done", "s2", "more"],
            "killed behind {n}; s1 was placed by {}",
            placed("s1")
        );
        assert_eq!((world.results(), world.open_addresses()), (1, Vec::new()));
        check(&world, &[&first, &next]);
    }

    let world = World::new().await;
    let all = |options: &mut Options| options.settings.steering_mode = QueueMode::All;
    let process = queueing_with(&world, Vec::new(), TWO, all).await;
    process.prompt("go").await.result();
    assert_eq!((world.tree().as_str(), talk(&world)[3..].join(" ")), ("u a r u u a", "s1 s2 done".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_over_an_open_run_is_asked_behind_it_once_whatever_dies_between_case_51() {
    for n in 0..=12 {
        let world = World::new().await;
        let dead = world.process(baseline()).await;
        dead.faults.kill_after(6);
        dead.prompt("go").await.killed();
        let script = || vec![say("done"), say("more done")];
        let first = world.process(script()).await;
        if n > 0 {
            first.faults.kill_after(n);
        }
        first
            .until_killed(async {
                first.lane.next_run("more").await.unwrap();
                first.lane.continue_(Drive::default()).await?;
                first.lane.continue_(Drive::default()).await
            })
            .await;
        let queued = &first.faults.transactions()[0];
        assert!(format!("{queued:?}").contains("nextRun"), "it is kept before anything else: {queued:?}");
        let left = if talk(&world).contains(&"done".to_owned()) { script().split_off(1) } else { script() };
        let next = world.process(left).await;
        while !world.state().is_null() || !next.lane.inbox().is_empty() {
            next.go_on().await.result();
        }
        assert_eq!(talk(&world), ["go", "hi", "v", "done", "more", "more done"], "killed behind {n}");
        assert_eq!((world.results(), world.open_addresses()), (2, Vec::new()), "killed behind {n}");
        check(&world, &[&dead, &first, &next]);
    }
}

/// A custom entry, and what a request shows of it.
fn noted(options: &mut Options) {
    options.projectors.insert(
        "shown".to_owned(),
        Arc::new(|data| {
            let text = data.and_then(|data| data["text"].as_str()).unwrap_or_default();
            Some(Message::user(text, Vec::new(), 0))
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_written_asks_for_a_reply_only_where_a_model_sees_it_case_53() {
    for (kind, tree, requests) in [("hidden", "u a x", 1), ("shown", "u a x a", 2)] {
        let world = World::new().await;
        let process = world.process_with(vec![say("one"), say("two")], noted).await;
        // Behind the settlement of the reply: nothing is owed any more.
        let write = async |process: &Process| {
            let payload = Some(json!({"text": "look"}));
            process.lane.append(PendingEntry::Custom { custom_type: kind.to_owned(), payload }).await.unwrap();
        };
        let result = process.prompt_and(5, write).await.result();
        assert_eq!((result.status, world.tree().as_str()), (Status::Completed, tree), "{kind}");
        assert_eq!(process.provider.count(), requests, "{kind}");
        let transactions = process.faults.transactions();
        let last = transactions.last().unwrap();
        let places = last.iter().any(|write| matches!(write, Write::Entry { .. }));
        assert_eq!(places, kind == "hidden", "{kind}: it is placed by the last transaction");
        assert_eq!(result.tip_id, world.path().last().map(|entry| entry.id.clone()), "{kind}");
        if kind == "shown" {
            let sent = process.provider.requests();
            let Message::User(user) = &**sent[1].messages.last().unwrap() else { panic!("{:?}", sent[1].messages) };
            assert_eq!(user.content.text(), "look");
        }
        check(&world, &[&process]);
    }
}

/// All that a provider can see of a request.
fn shape(request: &LlmRequest) -> String {
    format!("{request:?}")
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_repeated_asks_the_same_though_something_waits_case_57() {
    let head = || AssistantHead {
        api: "fake-api".to_owned(),
        provider: "fake".to_owned(),
        model: "m1".to_owned(),
        timestamp: 0,
    };
    let late_failure = || {
        let mut message = AssistantMessage::pending(&head());
        message.stop_reason = StopReason::Error;
        message.error_message = Some("503 overloaded".to_owned());
        message.usage = usage();
        Reply::raw(vec![
            Act::Emit(AssistantEvent::Start(head())),
            Act::Sleep(Duration::from_millis(50)),
            Act::Emit(AssistantEvent::End(Box::new(message))),
        ])
    };
    // While the reply streams, and while the next attempt is waited for.
    for (n, state) in [(4, "assistant.effect_pending"), (5, "assistant.retry_wait")] {
        let world = World::new().await;
        let process = world.process(vec![late_failure(), say("ok"), say("steered")]).await;
        let steer = async |process: &Process| {
            world.clock.sleep(Duration::from_millis(5)).await;
            assert_eq!((world.state()["at"].as_str(), process.provider.count()), (Some(state), 1));
            process.lane.steer("s1").await.unwrap();
        };
        process.prompt_and(n, steer).await.result();
        let sent = process.provider.requests();
        assert_eq!(sent.len(), 3, "{state}");
        assert_eq!(shape(&sent[0]), shape(&sent[1]), "{state}");
        assert_eq!((world.tree().as_str(), talk(&world).join(" ")), ("u a!err a u a", "go ok s1 steered".to_owned()));
        check(&world, &[&process]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_next_run_is_not_taken_by_an_open_one_case_50() {
    let world = World::new().await;
    let process = world.process(vec![say("one"), say("two")]).await;
    let queue = async {
        tokio::task::yield_now().await;
        process.lane.next_run("n1").await.unwrap()
    };
    let (ended, _) = tokio::join!(process.prompt("go"), queue);
    ended.result();
    let waits = process.lane.inbox().len();
    if waits == 1 {
        process.go_on().await.result();
    }
    assert_eq!(world.texts(), ["go", "one", "n1", "two"]);
    assert_eq!(world.results(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_can_be_taken_back_until_it_has_its_place_cases_52_58() {
    let world = World::new().await;
    let process = world.process(vec![say("ok")]).await;
    let id = process.lane.steer("x").await.unwrap();
    assert_eq!(process.lane.cancel_queued(&id).await, Ok(Cancelled::Cancelled));
    assert_eq!(world.open_addresses(), Vec::<String>::new());
    assert_eq!(process.lane.cancel_queued(&id).await, Ok(Cancelled::NotFound));
    let id = process.lane.steer("y").await.unwrap();
    process.go_on().await.result();
    assert_eq!(process.lane.cancel_queued(&id).await, Ok(Cancelled::AlreadyConsumed));
    assert_eq!(world.texts(), ["y", "ok"]);
    let before = process.faults.transactions().len();
    assert!(matches!(process.lane.steer("  ").await, Err(QueueError::InvalidMessage { .. })));
    assert_eq!(process.faults.transactions().len(), before);
}
