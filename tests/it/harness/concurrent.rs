//! What happens beside a run: calls that use their own lane, configurations, faults and ends that come in its middle.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use pirn::harness::Lane;
use pirn::model::{PendingEntry, Status};
use pirn::port::Clock;
use pirn::testing::{CountingTool, Reply};
use tokio::sync::Notify;

use super::invariants::check;
use super::tools::boom;
use super::world::{Ended, Process, World, calls, config, echo, say};

/// Waits for something that must not hang. The clock is paused: it moves only where nothing else can.
async fn in_time<T>(world: &World, work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = work => done,
        () = world.clock.sleep(Duration::from_secs(600)) => panic!("it waits for ever"),
    }
}

/// What a call does with its own lane.
type OwnLane = fn(Lane) -> BoxFuture<'static, ()>;

/// A process whose `echo` uses its own lane, and holds its line in `TX8` until `boom` has ended and is to be stored.
async fn entangled(world: &World, script: Vec<Reply>, act: OwnLane) -> Process {
    let lane: Arc<OnceLock<Lane>> = Arc::default();
    let stored = Arc::new(Notify::new());
    let (of_tool, awaited) = (Arc::clone(&lane), Arc::clone(&stored));
    let echo = CountingTool::echo().counted(&world.executions).awaiting(move || act(of_tool.get().unwrap().clone()));
    let boom = CountingTool::boom().counted(&world.executions).awaiting(move || {
        let stored = Arc::clone(&awaited);
        Box::pin(async move { stored.notified().await })
    });
    let process = world
        .process_with(script, |options| {
            options.tools[0] = Arc::new(echo);
            options.tools[1] = Arc::new(boom);
        })
        .await;
    assert!(lane.set(process.lane.clone()).is_ok());
    process.faults.on_commit(8, move || stored.notify_one());
    process
}

#[tokio::test(start_paused = true)]
async fn a_call_that_uses_its_own_lane_while_another_one_ends_is_not_waited_for_by_itself() {
    let rows: [(&str, OwnLane, &str); 5] = [
        ("steer", |lane| Box::pin(async move { drop(lane.steer("s1").await.unwrap()) }), "u a r r u a"),
        ("follow_up", |lane| Box::pin(async move { drop(lane.follow_up("f1").await.unwrap()) }), "u a r r a u a"),
        ("next_run", |lane| Box::pin(async move { drop(lane.next_run("n1").await.unwrap()) }), "u a r r a"),
        (
            "append",
            |lane| {
                let entry = PendingEntry::Custom { custom_type: "w".to_owned(), payload: None };
                Box::pin(async move { drop(lane.append(entry).await.unwrap()) })
            },
            "u a r r x a",
        ),
        ("configure", |lane| Box::pin(async move { lane.configure(config("m2")).await.unwrap() }), "u a r r a"),
    ];
    for (name, act, tree) in rows {
        let world = World::new().await;
        let script = vec![calls(vec![echo("c1", "v"), boom("c2")]), say("one"), say("two")];
        let process = entangled(&world, script, act).await;
        let ended: Ended = in_time(&world, process.prompt("go")).await;
        assert_eq!(ended.result().status, Status::Completed, "{name}");
        assert_eq!((world.tree().as_str(), world.executions.count()), (tree, 2), "{name}");
        assert_eq!(world.texts()[2..4], ["v", "boomed"], "{name}");
        check(&world, &[&process]);
    }
}
