//! Cases 46, 48, 49, 50, 52, 57 and 58: what waits, and when it gets its place.

use std::sync::{Arc, OnceLock};

use pirn::harness::{Cancelled, Lane, QueueError};
use pirn::model::Status;
use pirn::testing::CountingTool;

use super::world::{Process, World, baseline, say};

/// What is queued while the tool runs: its kind and text.
#[derive(Clone, Copy)]
enum Queued {
    Steer(&'static str),
    FollowUp(&'static str),
}

/// A process whose `echo` queues messages while it runs.
async fn queueing(world: &World, more: Vec<pirn::testing::Reply>, queued: &'static [Queued]) -> Process {
    let lane: Arc<OnceLock<Lane>> = Arc::default();
    let mut script = baseline();
    script.extend(more);
    let of_tool = Arc::clone(&lane);
    let process = world
        .process_with(script, move |options| {
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
