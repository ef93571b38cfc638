//! Random scripts, batches, queues and aborts: whatever happens, the grammar and the invariants hold.

use std::sync::atomic::{AtomicUsize, Ordering};

use pirn::agent::{AfterPatch, BeforeDecision};
use pirn::model::{AssistantBlock, Event, StopReason, ToolResultView};
use pirn::port::{Execution, ToolOutput};
use pirn::testing::{Act, Reply, call};
use proptest::prelude::*;
use serde_json::json;

use super::doubles::{TestHooks, echoed, failing, pause, terminating, tool};
use super::support::{Scene, calls, delta, malformed, start, text, text_start};

/// Turns at most; the script never runs out before.
const TURNS_MAX: u32 = 8;

fn any_call() -> impl Strategy<Value = AssistantBlock> {
    let id = prop_oneof![Just("c1"), Just("c2"), Just("c3"), Just("c4")];
    let name = prop_oneof![
        3 => Just("echo"),
        3 => Just("slow"),
        2 => Just("fast"),
        1 => Just("last"),
        1 => Just("bad"),
        1 => Just("chatty"),
        1 => Just("deaf"),
        1 => Just("nope"),
    ];
    (id, name, 0..8).prop_map(|(id, name, kind)| match kind {
        0 => malformed(id, name, "{\"v\":"),
        1 => call(id, name, &json!({})),
        2 => call(id, name, &json!({"v": 7})),
        _ => call(id, name, &json!({"v": "x"})),
    })
}

fn any_batch() -> impl Strategy<Value = Vec<AssistantBlock>> {
    prop::collection::vec(any_call(), 1..5)
}

fn any_reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        6 => any_batch().prop_map(calls),
        1 => any_batch().prop_map(|blocks| calls(blocks).stop(StopReason::Length)),
        1 => any_batch().prop_map(|blocks| calls(blocks).stop(StopReason::Stop)),
        3 => Just(text("t").chunks(1, 1)),
        1 => Just(text("").stop(StopReason::ToolUse)),
        1 => Just(Reply::fail("e")),
        1 => Just(Reply::raw(vec![start(), text_start(0), delta(0, "pa")])),
        1 => Just(Reply::raw(vec![start(), text_start(0), Act::Panic("oops".to_owned())])),
        1 => Just(Reply::raw(vec![start(), text_start(0), Act::WaitForCancel])),
    ]
}

/// Something done to the agent at the n-th event.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Steer,
    FollowUp,
    Abort,
}

#[derive(Clone, Debug)]
struct Script {
    replies: Vec<Reply>,
    sequential: bool,
    max_parallel: usize,
    /// A before hook refuses every call of the tool `fast`, and every hook waits.
    hooks: bool,
    deeds: Vec<(usize, Deed)>,
}

fn any_script() -> impl Strategy<Value = Script> {
    let deed = prop_oneof![3 => Just(Deed::Steer), 2 => Just(Deed::FollowUp), 2 => Just(Deed::Abort)];
    let deeds = prop::collection::vec((0..60_usize, deed), 0..4);
    (prop::collection::vec(any_reply(), 0..6), any::<bool>(), 1..4_usize, any::<bool>(), deeds).prop_map(
        |(replies, sequential, max_parallel, hooks, deeds)| Script { replies, sequential, max_parallel, hooks, deeds },
    )
}

fn scene(script: Script) -> Scene {
    let Script { mut replies, sequential, max_parallel, hooks, deeds } = script;
    replies.extend((0..TURNS_MAX).map(|_| text("end")));
    let mut scene = Scene::new(replies).options(|options| {
        options.tool_execution = if sequential { Execution::Sequential } else { Execution::Parallel };
        options.limits.max_parallel = max_parallel;
        options.limits.max_turns = TURNS_MAX;
    });
    if hooks {
        let refusing = TestHooks::new().pausing(1).before(|asked| {
            if asked.call.name == "fast" { Err("refused".to_owned()) } else { Ok(BeforeDecision::default()) }
        });
        scene = scene.hooks(refusing.after(|_| Ok(AfterPatch::default())));
    }
    let count = AtomicUsize::new(0);
    scene
        .tool(terminating("last"))
        .tool(failing("bad", "bad"))
        .tool(tool("deaf", |_, _| std::future::pending::<ToolOutput>()))
        .tool(tool("chatty", |args, ctx| async move {
            for _ in 0..3 {
                assert!(ctx.updates.send(ToolResultView::default(), false).await);
                pause(1).await;
            }
            echoed(&args)
        }))
        .on(move |_, agent| {
            let at = count.fetch_add(1, Ordering::SeqCst);
            for (_, deed) in deeds.iter().filter(|(when, _)| *when == at) {
                match deed {
                    Deed::Steer => agent.steer("s"),
                    Deed::FollowUp => agent.follow_up("f"),
                    Deed::Abort => agent.abort(),
                }
            }
        })
}

proptest! {
    /// `Stage::prompt` holds the run against the grammar and the invariants.
    #[test]
    fn any_run_keeps_the_invariants(script in any_script()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let run = runtime.block_on(async {
            let stage = scene(script).stage();
            // Ends what waits for a cancellation.
            let timer = async {
                pause(60_000).await;
                stage.agent.abort();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                run = stage.prompt("p") => run,
                () = timer => panic!("the timer never ends"),
            }
        });
        let turns = run.events.iter().filter(|event| matches!(event, Event::TurnStart { .. })).count();
        prop_assert!(turns <= usize::try_from(TURNS_MAX).unwrap() + 1, "{}", run.short());
    }
}
