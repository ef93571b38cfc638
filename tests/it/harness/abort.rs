//! Cases 34, 37 to 39, 41 and 43: the end on request.

use pirn::harness::{AbortError, Drive};
use pirn::model::{CancelCause, InboxKind, Message, Reason, Status, StopReason};
use pirn::testing::Reply;

use super::world::{Ended, Process, World, baseline, say, usage};

fn half() -> Reply {
    Reply::text_deltas(&["hel"]).usage(usage()).stalls()
}

/// Prompts, and aborts once the reply stalls.
async fn aborted(process: &Process) -> Ended {
    let abort = async {
        process.provider.stalled(1).await;
        process.lane.abort(CancelCause::Int).await.unwrap()
    };
    let (ended, aborted) = tokio::join!(process.prompt("go"), abort);
    assert!(aborted.newly_requested);
    ended
}

#[tokio::test(start_paused = true)]
async fn an_abort_keeps_what_a_reply_said_and_no_request_contains_it_case_34() {
    let world = World::new().await;
    let process = world.process(vec![half(), say("fresh")]).await;
    let result = aborted(&process).await.result();
    assert_eq!(
        (result.status, result.reason, result.cause),
        (Status::Aborted, Reason::Interrupted, Some(CancelCause::Int))
    );
    assert_eq!(result.stop_reason, Some(StopReason::Aborted));
    assert_eq!((world.tree().as_str(), world.texts()[1].as_str()), ("u a!ab", "hel"));
    let path = world.path();
    let pirn::model::EntryBody::Message { message, .. } = &path[1].body else { panic!("{path:?}") };
    assert_eq!(message.as_assistant().unwrap().error_message.as_deref(), Some("Run cancelled"));
    // The cancellation is stored first, then the reply, then the end.
    let states: Vec<String> = process
        .faults
        .story()
        .into_iter()
        .filter(|line| line.starts_with("TX"))
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(states.len(), 7, "{states:?}");
    process.prompt("again").await.result();
    let sent = process.provider.requests();
    assert!(sent[1].messages.iter().all(|message| matches!(**message, Message::User(_))), "{:?}", sent[1].messages);
    assert_eq!(sent[1].messages.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_abort_takes_steering_and_follow_ups_and_leaves_the_rest_case_37() {
    let world = World::new().await;
    let process = world.process(vec![half()]).await;
    let abort = async {
        process.provider.stalled(1).await;
        process.lane.steer("s1").await.unwrap();
        process.lane.follow_up("f1").await.unwrap();
        process.lane.next_run("n1").await.unwrap();
        process.lane.abort(CancelCause::Term).await.unwrap()
    };
    let (ended, taken) = tokio::join!(process.prompt("go"), abort);
    ended.result();
    assert_eq!((taken.steer.len(), taken.follow_up.len()), (1, 1));
    let kinds: Vec<InboxKind> = process.lane.inbox().iter().map(|item| item.kind).collect();
    assert_eq!(kinds, [InboxKind::NextRun]);
    assert_eq!(world.open_addresses().len(), 1, "what waits for the next run is kept");
    let next = world.process(vec![say("ok")]).await;
    next.go_on().await.result();
    assert_eq!(world.tree(), "u a!ab u a");
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_is_stored_is_finished_without_a_request_case_39() {
    let world = World::new().await;
    let process = world.process(vec![half()]).await;
    process.faults.kill_after(5);
    let abort = async {
        process.provider.stalled(1).await;
        drop(process.lane.abort(CancelCause::Term).await);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = process.prompt("go") => ended.killed(),
        () = abort => {}
    }
    drop(process);
    assert_eq!(world.state()["control"]["status"], "cancel_requested");
    let next = world.process(Vec::new()).await;
    let result = next.go_on().await.result();
    assert_eq!((result.status, result.cause), (Status::Aborted, Some(CancelCause::Term)));
    assert_eq!((next.provider.count(), world.tree().as_str()), (0, "u a!ab"));
}

#[tokio::test(start_paused = true)]
async fn a_second_abort_stores_nothing_and_without_a_run_there_is_nothing_to_end_case_41() {
    let world = World::new().await;
    let process = world.process(vec![half()]).await;
    assert_eq!(process.lane.abort(CancelCause::Int).await, Err(AbortError::NoActiveOperation));
    let abort = async {
        process.provider.stalled(1).await;
        let first = process.lane.abort(CancelCause::Int).await.unwrap();
        let second = process.lane.abort(CancelCause::Term).await;
        (first.newly_requested, second)
    };
    let (ended, (first, second)) = tokio::join!(process.prompt("go"), abort);
    assert!(first);
    if let Ok(second) = second {
        assert!(!second.newly_requested && second.steer.is_empty() && second.follow_up.is_empty());
    }
    assert_eq!(ended.result().cause, Some(CancelCause::Int), "the first cause counts");
    assert_eq!(process.faults.transactions().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_reports_an_abort_nobody_asked_for_is_a_fault_and_the_run_goes_on_later_case_43() {
    let world = World::new().await;
    let process = world.process(vec![Reply::text("x").stop(StopReason::Aborted).usage(usage())]).await;
    match process.prompt("go").await {
        Ended::Refused(error) => assert_eq!(error.kind(), pirn::model::ErrorKind::Internal),
        other => panic!("{other:?}"),
    }
    drop(process);
    assert_eq!(world.state()["at"], "assistant.effect_pending");
    let next = world.process(baseline()).await;
    assert_eq!(next.go_on_with(Drive::default()).await.result().status, Status::Completed);
    assert_eq!(world.tree(), "u a!err a r a");
}
