//! Cases 1 to 4: a run that nobody disturbs.

use pirn::model::{Status, Write};

use super::world::{Dialogue, World, baseline, say};

/// The addresses that the writes of a transaction touch, in order.
fn addresses(writes: &[Write]) -> Vec<String> {
    writes
        .iter()
        .map(|write| match write {
            Write::Entry { .. } => "+entry".to_owned(),
            Write::Usage(_) => "+usage".to_owned(),
            Write::Set { namespace, .. } => namespace.clone(),
            Write::Delete { namespace, .. } | Write::DeleteList { namespace, .. } => format!("-{namespace}"),
            Write::Append { namespace, .. } => format!("{namespace}<<"),
        })
        .collect()
}

fn at(writes: &[Write]) -> Option<String> {
    writes.iter().find_map(|write| match write {
        Write::Set { namespace, value, .. } if namespace == "op.state" => {
            value.get("at").and_then(|at| at.as_str()).map(str::to_owned)
        }
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_with_one_call_makes_twelve_transactions_case_1() {
    let world = World::new().await;
    let process = world.process(baseline()).await;
    let result = process.prompt("go").await.result();
    assert_eq!(result.status, Status::Completed);
    assert_eq!(world.tree(), "u a r a");
    let transactions = process.faults.transactions();
    let states: Vec<String> = transactions.iter().map(|writes| at(writes).unwrap_or_default()).collect();
    assert_eq!(
        states,
        [
            "starting",
            "checkpoint",
            "assistant.ready",
            "assistant.effect_pending",
            "tools",
            "tools",
            "tools",
            "checkpoint",
            "assistant.ready",
            "assistant.effect_pending",
            "checkpoint",
            "",
        ]
    );
    for (n, expected) in [
        (1, vec!["+entry", "branch.tip", "op.meta", "op.state", "lane.state"]),
        (5, vec!["+entry", "+usage", "branch.tip", "-pending.assistant_frame", "op.state"]),
        (8, vec!["+entry", "-pending.entry", "branch.tip", "-op.tool_args", "op.state"]),
        (12, vec!["-op.meta", "-op.state", "result", "lane.state"]),
    ] {
        assert_eq!(addresses(&transactions[n - 1]), expected, "transaction {n}");
    }
    assert_eq!(world.open_addresses(), Vec::<String>::new());
    assert!(process.faults.syncs() <= 6, "{} syncs", process.faults.syncs());
    assert_eq!((process.provider.count(), world.executions.count()), (2, 1));
    assert_eq!(world.store.usage().unwrap().len(), 2);
    assert_eq!(world.store.stats().message_count, 4);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_run_come_in_the_promised_order_case_2() {
    let world = World::new().await;
    let process = world.process(baseline()).await;
    process.prompt("go").await.result();
    let expected = "run_start turn_start message_start message_end entry_added \
        message_start message_update+ message_end entry_added usage tool_start tool_end \
        message_start message_end entry_added turn_end turn_start \
        message_start message_update+ message_end entry_added usage turn_end run_end{completed}";
    assert_eq!(process.heard.names().join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
    let path = world.path();
    assert_eq!(path[2].id.as_str()[..13], path[1].id.as_str()[..13], "a result's id is of the time of its reply's");
}

#[tokio::test(start_paused = true)]
async fn a_run_of_text_makes_six_transactions_case_4() {
    let world = World::new().await;
    let process = world.process(vec![say("ok")]).await;
    process.prompt("go").await.result();
    assert_eq!(process.faults.transactions().len(), 6);
    assert_eq!(world.tree(), "u a");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_killed_anywhere_and_continued_ends_alike_case_22() {
    for n in 1..=12 {
        for m in 1..=12 {
            let world = World::new().await;
            let first = world.process_with(Vec::new(), |options| options.provider = Dialogue::baseline()).await;
            first.faults.kill_after(n);
            first.prompt("go").await.killed();
            drop(first);
            for kill in [Some(m), None] {
                let next = world.process_with(Vec::new(), |options| options.provider = Dialogue::baseline()).await;
                if let Some(kill) = kill {
                    next.faults.kill_after(kill);
                }
                if !world.state().is_null() {
                    next.go_on().await;
                }
            }
            let tree = world.tree();
            let whole = tree.split(' ').zip(world.texts());
            let context: Vec<String> = whole.filter(|(word, _)| !word.contains('!')).map(|(_, text)| text).collect();
            assert_eq!(context, ["go", "hi", "v", "done"], "killed after {n}, then after {m}: {}", world.tree());
            assert_eq!(world.results(), 1, "killed after {n}, then after {m}");
            assert_eq!(world.open_addresses(), Vec::<String>::new(), "killed after {n}, then after {m}");
        }
    }
}
