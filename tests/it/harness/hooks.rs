//! Cases 85, 87 and 88: several hooks, follow-ups of hooks, and a refused drive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use pirn::harness::{Blocked, Outcome, Wait};
use pirn::model::{Content, Status};
use pirn::port::{
    AfterToolAnswer, BeforeDrive, BeforeDriveAnswer, BeforeRunEnd, BeforeRunEndAnswer, BeforeToolAnswer, HookFailure,
    HookPoint, Hooks,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::watch::Watch;
use super::world::{Ended, World, baseline, say};

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
