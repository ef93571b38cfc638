//! Random scripts: what a provider answers, what becomes of each call, what is queued or aborted meanwhile.
//!
//! A script stays within what both loops have. Two things never happen at the same moment of the paused clock, so that
//! an order that nobody promises is never compared: every call of a reply waits a time of its own.

use std::time::Duration;

use pirn::model::{ArgumentsError, AssistantBlock, ErrorKind, ErrorRecord, StopReason, ThinkingBlock, ToolCall, Usage};
use pirn::port::Execution;
use pirn::testing::{Act, Reply, call};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Calls of a reply at most.
const CALLS_MAX: usize = 4;

/// Something done to the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Deed {
    Steer,
    FollowUp,
    Abort,
}

/// What the hook before a call answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Before {
    Pass,
    Block {
        terminate: bool,
    },
    /// With no reason.
    BlockSilently,
    Replace,
    /// With arguments that the schema has to coerce.
    ReplaceCoerced,
    ReplaceInvalid,
    Terminate,
    Fail,
}

/// What the hook behind a call answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum After {
    Pass,
    Content,
    Details,
    IsError(bool),
    Terminate(bool),
    Usage,
}

/// How a tool ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ending {
    Text,
    Image,
    Nothing,
    Failure,
    /// Without a text, which is given one.
    SilentFailure,
    Panic,
    Terminate,
    /// Waits for the end of the run and says so.
    WaitForCancel,
    /// Never comes back.
    Hang,
}

/// Where a call has its deed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    BeforeHook,
    Tool,
    AfterHook,
}

/// What becomes of a call. Its arguments name its place in the script.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) before: Before,
    pub(super) after: After,
    pub(super) ending: Ending,
    /// Each of them is waited for so long, and then the end.
    pub(super) updates: u8,
    pub(super) delay: Duration,
    pub(super) deed: Option<(Moment, Deed)>,
}

/// One answer of the provider.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) reply: Reply,
    /// Failures before it that the harness repeats the request for, and that the classic loop is never shown.
    pub(super) hiccups: u32,
    /// The harness asks as often as it may for it; what comes last counts.
    pub(super) retryable: bool,
    /// Done before the stream says anything.
    pub(super) queued: Vec<Deed>,
    /// The run is aborted when the stream says nothing more.
    pub(super) aborts: bool,
}

/// Whether a hook puts a message of its own before those of every request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shaping {
    Off,
    /// The first time with a deed.
    On(Option<Deed>),
}

#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) exchanges: Vec<Exchange>,
    pub(super) plans: Vec<Plan>,
    pub(super) prompts: usize,
    pub(super) tool_execution: Execution,
    pub(super) max_parallel: usize,
    pub(super) max_turns: u32,
    pub(super) takes_all: (bool, bool),
    /// Attempts of the harness for one reply.
    pub(super) attempts: u32,
    pub(super) thinking: bool,
    pub(super) hooks: bool,
    pub(super) shaping: Shaping,
}

/// What a reply holds; calls get their ids and plans when the script is put together.
#[derive(Clone, Debug)]
enum Body {
    Calls {
        calls: Vec<(CallKind, Plan)>,
        stop: Option<StopReason>,
        said: bool,
    },
    /// Ends before its end, and waits for an abort.
    Cut {
        content: Vec<AssistantBlock>,
        hangs: bool,
    },
    Whole {
        reply: Box<Reply>,
        retryable: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum CallKind {
    /// `work`, `alone`, `safe`.
    Valid(&'static str),
    /// Arguments that the schema coerces.
    Coerced,
    Invalid,
    Malformed,
    Unknown,
    /// Repeats the id of the call before it.
    Twin,
}

fn any_deed() -> impl Strategy<Value = Deed> {
    prop_oneof![4 => Just(Deed::Steer), 3 => Just(Deed::FollowUp), 2 => Just(Deed::Abort)]
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let before = prop_oneof![
        10 => Just(Before::Pass),
        1 => any::<bool>().prop_map(|terminate| Before::Block { terminate }),
        1 => Just(Before::BlockSilently),
        1 => Just(Before::Replace),
        1 => Just(Before::ReplaceCoerced),
        1 => Just(Before::ReplaceInvalid),
        1 => Just(Before::Terminate),
        1 => Just(Before::Fail),
    ];
    let after = prop_oneof![
        8 => Just(After::Pass),
        1 => Just(After::Content),
        1 => Just(After::Details),
        1 => any::<bool>().prop_map(After::IsError),
        1 => any::<bool>().prop_map(After::Terminate),
        1 => Just(After::Usage),
    ];
    let ending = prop_oneof![
        8 => Just(Ending::Text),
        1 => Just(Ending::Image),
        1 => Just(Ending::Nothing),
        2 => Just(Ending::Failure),
        1 => Just(Ending::SilentFailure),
        1 => Just(Ending::Panic),
        5 => Just(Ending::Terminate),
        1 => Just(Ending::WaitForCancel),
        1 => Just(Ending::Hang),
    ];
    let moment = prop_oneof![Just(Moment::BeforeHook), Just(Moment::Tool), Just(Moment::AfterHook)];
    let deed = prop_oneof![5 => Just(None), 1 => (moment, any_deed()).prop_map(Some)];
    (before, after, ending, 0..3_u8, 0..4_u64, deed).prop_map(|(before, after, ending, updates, seconds, deed)| Plan {
        before,
        after,
        ending,
        updates,
        delay: Duration::from_secs(seconds),
        deed,
    })
}

fn any_kind() -> impl Strategy<Value = CallKind> {
    prop_oneof![
        8 => Just(CallKind::Valid("work")),
        1 => Just(CallKind::Valid("alone")),
        2 => Just(CallKind::Valid("safe")),
        1 => Just(CallKind::Coerced),
        1 => Just(CallKind::Invalid),
        1 => Just(CallKind::Malformed),
        1 => Just(CallKind::Unknown),
        1 => Just(CallKind::Twin),
    ]
}

fn any_body() -> impl Strategy<Value = Body> {
    let calls = || prop::collection::vec((any_kind(), any_plan()), 1..=CALLS_MAX);
    let ends =
        prop::collection::vec((Just(CallKind::Valid("work")), any_plan()), 1..=CALLS_MAX).prop_map(|mut calls| {
            for (_, plan) in &mut calls {
                *plan = Plan { before: Before::Pass, after: After::Pass, ending: Ending::Terminate, ..plan.clone() };
            }
            calls
        });
    let with_stop = |calls, stop| Body::Calls { calls, stop, said: true };
    let whole = |reply: Reply| Body::Whole { reply: Box::new(reply), retryable: false };
    let cut =
        || (any::<bool>(), prop_oneof![Just(Vec::new()), Just(thoughts()), Just(vec![AssistantBlock::text("pa")])]);
    prop_oneof![
        8 => (calls(), any::<bool>()).prop_map(|(calls, said)| Body::Calls { calls, stop: None, said }),
        2 => ends.prop_map(move |calls| with_stop(calls, None)),
        3 => calls().prop_map(move |calls| with_stop(calls, Some(StopReason::Length))),
        1 => calls().prop_map(move |calls| with_stop(calls, Some(StopReason::Stop))),
        4 => (1..4_usize).prop_map(move |size| whole(Reply::text("some text").chunks(size, size).usage(usage()))),
        1 => Just(whole(Reply::blocks([thoughts(), vec![AssistantBlock::text("so")]].concat()))),
        1 => Just(whole(Reply::text("cut of").stop(StopReason::Length))),
        1 => any_failure(),
        1 => cut().prop_map(|(hangs, content)| Body::Cut { content, hangs }),
    ]
}

fn any_failure() -> impl Strategy<Value = Body> {
    let failed = |reply: Reply, retryable: bool| Just(Body::Whole { reply: Box::new(reply), retryable });
    let with = |kind: ErrorKind| failed(Reply::error(ErrorRecord::new(kind, "no")), false);
    let head = pirn::model::AssistantHead {
        api: "fake-api".to_owned(),
        provider: "fake".to_owned(),
        model: "m1".to_owned(),
        timestamp: 0,
    };
    let start = Act::Emit(pirn::port::AssistantEvent::Start(head));
    prop_oneof![
        with(ErrorKind::Refusal),
        with(ErrorKind::Auth),
        with(ErrorKind::Overflow),
        with(ErrorKind::Quota),
        failed(Reply::fail("something else"), false),
        failed(Reply::blocks(Vec::new()).stop(StopReason::ToolUse), false),
        failed(Reply::raw(vec![start.clone(), Act::Panic("oops".to_owned())]), false),
        failed(Reply::fail("503 overloaded"), true),
        failed(Reply::text(" \n"), true),
        failed(Reply::blocks(thoughts()), true),
        failed(Reply::raw(vec![start]), true),
    ]
}

pub(super) fn any_script() -> impl Strategy<Value = Script> {
    let deed = prop_oneof![5 => Just(None), 1 => any_deed().prop_map(Some)];
    let queued = prop::collection::vec(prop_oneof![Just(Deed::Steer), Just(Deed::FollowUp)], 1..4);
    let queued = prop_oneof![5 => Just(Vec::new()), 1 => queued];
    // A model may do the same again and again.
    let times = prop_oneof![6 => Just(1), 1 => Just(3)];
    let exchange = (any_body(), prop_oneof![4 => Just(0), 1 => 1..3_u32], queued, times);
    let shaping = prop_oneof![4 => Just(Shaping::Off), 1 => deed.prop_map(Shaping::On)];
    let settings = (any::<bool>(), 1..4_usize, prop_oneof![2 => Just(0), 1 => 1..6_u32], any::<(bool, bool)>());
    let more = (1..4_u32, any::<bool>(), prop::bool::weighted(0.8), shaping, 1..3_usize);
    (prop::collection::vec(exchange, 0..6), settings, more).prop_map(|(bodies, settings, more)| {
        let (sequential, max_parallel, max_turns, takes_all) = settings;
        let (attempts, thinking, hooks, shaping, prompts) = more;
        let mut plans = Vec::new();
        let mut exchanges = Vec::new();
        for (body, hiccups, queued, times) in bodies {
            let hiccups = hiccups.min(attempts - 1);
            for _ in 0..times {
                exchanges.push(exchange_of(body.clone(), hiccups, queued.clone(), &mut plans));
            }
        }
        Script {
            exchanges,
            plans,
            prompts,
            tool_execution: if sequential { Execution::Sequential } else { Execution::Parallel },
            max_parallel,
            max_turns,
            takes_all,
            attempts,
            thinking,
            hooks,
            shaping,
        }
    })
}

fn exchange_of(body: Body, hiccups: u32, queued: Vec<Deed>, plans: &mut Vec<Plan>) -> Exchange {
    let exchange = |reply, retryable, aborts| Exchange { reply, hiccups, retryable, queued, aborts };
    match body {
        Body::Calls { calls, stop, said } => {
            let mut content = if said { vec![AssistantBlock::text("now")] } else { Vec::new() };
            for (at, (kind, plan)) in calls.into_iter().enumerate() {
                content.push(call_of(kind, at, plans.len()));
                // A digit of its own for each call: no sum of waits of some is that of others.
                let own = Duration::from_millis(4_u64.pow(u32::try_from(at).unwrap()));
                plans.push(Plan { delay: plan.delay + own, ..plan });
            }
            let reply = Reply::blocks(content).usage(usage());
            exchange(stop.into_iter().fold(reply, Reply::stop), false, false)
        }
        Body::Cut { content, hangs } => {
            let reply = Reply::blocks(content).usage(usage());
            exchange(if hangs { reply.hangs() } else { reply.stalls() }, false, true)
        }
        Body::Whole { reply, retryable } => exchange(*reply, retryable, false),
    }
}

fn call_of(kind: CallKind, at: usize, plan: usize) -> AssistantBlock {
    let id = format!("c{at}");
    match kind {
        CallKind::Valid(tool) => call(&id, tool, &json!({"v": "x", "plan": plan})),
        CallKind::Coerced => call(&id, "work", &json!({"v": 7, "plan": plan.to_string()})),
        CallKind::Invalid => call(&id, "work", &json!({"plan": plan})),
        CallKind::Malformed => {
            let raw = "{\"v\":".to_owned();
            let message = serde_json::from_str::<Value>(&raw).unwrap_err().to_string();
            AssistantBlock::ToolCall(ToolCall {
                id,
                name: "work".to_owned(),
                arguments_error: Some(ArgumentsError { message, raw }),
                ..ToolCall::default()
            })
        }
        CallKind::Unknown => call(&id, "nothing", &json!({"plan": plan})),
        CallKind::Twin => call(&format!("c{}", at.saturating_sub(1)), "work", &json!({"v": "twin", "plan": plan})),
    }
}

fn thoughts() -> Vec<AssistantBlock> {
    vec![AssistantBlock::Thinking(ThinkingBlock { thinking: "hm".to_owned(), ..ThinkingBlock::default() })]
}

fn usage() -> Usage {
    Usage { input: 10, output: 5, total_tokens: 15, ..Usage::default() }
}
