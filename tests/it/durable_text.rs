//! Durable runs for people: retries, fallbacks and recovery on stderr, attempts and several runs on stdout.

#![cfg(test)]

use std::sync::Arc;

use pirn::model::{Event, HandlerKind, Message, Reason, RecoveryAction, RunId, StopReason};
use pirn::print::{Activity, Config, Finished, Msg, Patience, Printer, ResultLine, Verbosity};
use serde_json::json;

use super::text::{
    Hasty, JSON, PIPE, STREAM, Sheet, TERMINAL, block_on, ends, event, printed, reply, streamed, tool, verdict,
};

fn retry(delay_ms: u64, error_message: &str) -> Msg {
    let error_message = error_message.to_owned();
    event(Event::RetryScheduled { attempt: 2, max_attempts: 4, delay_ms, not_before: 0, error_message })
}

fn fallback() -> Msg {
    let error_message = "overloaded: try later".to_owned();
    event(Event::ModelFallback { from: "p/a".to_owned(), to: "p/b".to_owned(), error_message })
}

fn step(notice: Option<&str>) -> Msg {
    event(Event::RecoveryStep {
        run_id: RunId::new("r"),
        state: "tools".to_owned(),
        action: RecoveryAction::Interrupt,
        tool_call_id: None,
        notice: notice.map(str::to_owned),
    })
}

fn handler(kind: HandlerKind) -> Msg {
    event(Event::HandlerError { kind, name: "fmt".to_owned(), error: "exit 1".to_owned() })
}

fn starts(run: &str) -> Msg {
    event(Event::RunStart { run_id: RunId::new(run), started_at: 1 })
}

fn resumes() -> Msg {
    event(Event::RunResume { run_id: RunId::new("r") })
}

/// The same, told of a dead process's work.
fn again(messages: Vec<Msg>) -> Vec<Msg> {
    let mark = |msg| match msg {
        Msg::Event { event, ts, .. } => Msg::Event { event, recovery: true, ts },
        other => other,
    };
    messages.into_iter().map(mark).collect()
}

/// The end of a run, without a verdict.
fn run_end(messages: Vec<Arc<Message>>) -> Msg {
    ends(messages, Reason::Completed, None).remove(0)
}

fn success() -> Msg {
    Msg::Result { line: Box::new(verdict(Reason::Completed, None)), instead: None, ts: 0 }
}

#[test]
fn retries_and_recovery_on_stderr_follow_verbosity_and_column_cli_4_3() {
    let run = || {
        let mut messages = vec![resumes(), step(Some("tool bash interrupted")), step(None)];
        messages.extend(again(tool("bash", json!({}), Some(json!({"error": {"code": "interrupted"}})), None)));
        messages.extend([retry(1000, "overloaded:\ntry later"), event(Event::RetryStart { attempt: 2 })]);
        messages.push(event(Event::RetryEnd { attempt: 2, success: false, final_error: Some("no".to_owned()) }));
        messages.extend([fallback(), handler(HandlerKind::Hook), handler(HandlerKind::Event)]);
        messages
    };
    let step = "pirn: tool bash interrupted\n";
    let tools = "• bash\n✗ bash interrupted\n";
    let arguments = "│ line 1\n│ line 2\n";
    let retry = "pirn: retry 2/4 in 1.0s: overloaded: try later\n";
    let rest = "pirn: warning: p/b takes over from p/a: overloaded: try later\n\
                pirn: warning: the hook fmt failed: exit 1\n\
                pirn: warning: the listener fmt failed: exit 1\n";
    let table = [
        (false, Verbosity::Quiet, String::new()),
        (true, Verbosity::Quiet, String::new()),
        (false, Verbosity::Normal, [step, rest].concat()),
        (true, Verbosity::Normal, [step, tools, rest].concat()),
        (false, Verbosity::Verbose, [step, tools, retry, rest].concat()),
        (true, Verbosity::Verbose, [step, tools, retry, rest].concat()),
        (false, Verbosity::Debug, [step, tools, arguments, retry, rest].concat()),
        (true, Verbosity::Debug, [step, tools, arguments, retry, rest].concat()),
    ];
    for (stderr_is_terminal, verbosity, expected) in table {
        let config = Config { stderr_is_terminal, verbosity, ..PIPE };
        assert_eq!(printed(config, run()).1, expected, "{stderr_is_terminal} {verbosity:?}");
    }
    assert_eq!(printed(JSON, run()).1, [step, rest].concat(), "beside JSON");
}

#[test]
fn a_retry_says_when_and_why_as_far_as_it_is_known() {
    let config = Config { verbosity: Verbosity::Verbose, ..PIPE };
    let table = [
        (0, "gone", "pirn: retry 2/4 now: gone\n"),
        (12_000, "", "pirn: retry 2/4 in 12s\n"),
        (90, "\u{1b}[2J::error::x", "pirn: retry 2/4 in 90ms: ::error::x\n"),
    ];
    for (delay_ms, message, expected) in table {
        assert_eq!(printed(config, vec![retry(delay_ms, message)]).1, expected);
    }
}

/// A run whose first attempt breaks off behind `half`.
fn retried(half: &str) -> Vec<Msg> {
    let mut messages = vec![starts("r")];
    messages.extend(streamed(half, StopReason::Error));
    messages.push(retry(1000, "gone"));
    messages.extend(streamed("whole", StopReason::Stop));
    let messages_of_run = vec![reply(half, StopReason::Error), reply("whole", StopReason::Stop)];
    messages.extend([run_end(messages_of_run), success()]);
    messages
}

#[test]
fn an_attempt_that_is_retried_begins_on_a_new_line_after_a_notice_cli_4_1() {
    let notice = "pirn: retry 2/4 in 1.0s: gone\n";
    let summary = "2 turns · 1 tool · 0 in / 0 out · $0.031 · 41s\n";
    // Held, nobody has seen the attempt that failed.
    assert_eq!(printed(PIPE, retried("half")), ("whole\n".to_owned(), String::new()));
    assert_eq!(printed(STREAM, retried("half")), ("half\nwhole\n".to_owned(), notice.to_owned()));
    assert_eq!(printed(TERMINAL, retried("half")), ("half\nwhole\n".to_owned(), [notice, summary].concat()));
    // Nothing of the first attempt has appeared.
    assert_eq!(printed(STREAM, retried("")), ("whole\n".to_owned(), String::new()));
    let quiet = Config { verbosity: Verbosity::Quiet, ..STREAM };
    assert_eq!(printed(quiet, retried("half")), ("half\nwhole\n".to_owned(), String::new()));
    for config in [STREAM, TERMINAL] {
        // Both streams end up on one screen.
        let screen = Sheet::default();
        let printer = Printer::start(config, Box::new(screen.clone()), Box::new(screen.clone())).unwrap();
        block_on(async {
            for msg in retried("half") {
                printer.handle().send(msg).await.unwrap();
            }
            assert_eq!(printer.finish(Patience::Endless, &Hasty).await, Finished::Complete);
        });
        let expected = ["half\n", notice, "whole\n"].concat();
        assert!(screen.text().starts_with(&expected), "{}", screen.text());
    }
}

#[test]
fn what_a_dead_process_has_shown_is_not_shown_again() {
    let mut messages = vec![resumes(), step(Some("response interrupted after 4 characters"))];
    messages.extend(again(streamed("half", StopReason::Error)));
    messages.push(retry(0, "cut off"));
    messages.extend(streamed("whole", StopReason::Stop));
    messages.extend([run_end(vec![reply("whole", StopReason::Stop)]), success()]);
    for config in [PIPE, STREAM, TERMINAL] {
        let (stdout, stderr) = printed(config, messages.clone());
        assert_eq!(stdout, "whole\n");
        assert!(stderr.starts_with("pirn: response interrupted after 4 characters\n"), "{stderr}");
        assert!(!stderr.contains("retry"), "nothing of it stands on stdout: {stderr}");
    }
}

#[test]
fn the_answers_of_all_runs_are_printed_with_a_blank_line_between() {
    let run = |name: &str, text: &str| {
        let mut messages = vec![starts(name)];
        messages.extend(streamed("let me look", StopReason::ToolUse));
        messages.extend(streamed(text, StopReason::Stop));
        messages.push(run_end(vec![reply("let me look", StopReason::ToolUse), reply(text, StopReason::Stop)]));
        messages
    };
    let both = |verdict: Msg| [run("a", "one\n\n"), run("b", "\ntwo"), vec![verdict]].concat();
    assert_eq!(printed(PIPE, both(success())).0, "one\n\n\ntwo\n");
    for config in [STREAM, TERMINAL] {
        assert_eq!(printed(config, both(success())).0, "let me look\none\n\nlet me look\n\ntwo\n");
    }
    // Text in a pipe means success, of all of them.
    let failed = Msg::Result { line: Box::new(verdict(Reason::Error, None)), instead: None, ts: 0 };
    assert_eq!(printed(PIPE, both(failed)).0, "");
}

#[test]
fn a_run_that_only_had_to_be_finished_prints_its_answer() {
    let finished = || vec![resumes(), run_end(vec![reply("old", StopReason::Stop)])];
    let result = |text: &str| {
        let line = ResultLine { text: text.to_owned(), ..verdict(Reason::Completed, None) };
        Msg::Result { line: Box::new(line), instead: None, ts: 0 }
    };
    let mut another = vec![starts("b")];
    another.extend(streamed("new", StopReason::Stop));
    another.push(run_end(vec![reply("new", StopReason::Stop)]));
    for config in [PIPE, STREAM, TERMINAL] {
        assert_eq!(printed(config, [finished(), vec![result("old")]].concat()).0, "old\n");
        assert_eq!(printed(config, [finished(), another.clone(), vec![result("new")]].concat()).0, "old\n\nnew\n");
    }
}

#[test]
fn the_spinner_tells_of_a_wait_for_another_attempt() {
    let table = [
        (retry(4000, "x"), "retrying in 4s"),
        (retry(3100, "x"), "retrying in 4s"),
        (retry(90_000, "x"), "retrying in 1m30s"),
        (retry(0, "x"), "waiting"),
        (event(Event::RetryStart { attempt: 2 }), "waiting"),
        (fallback(), "waiting"),
        (resumes(), "waiting"),
    ];
    for (msg, expected) in table {
        let Msg::Event { event, .. } = &msg else { panic!("{msg:?}") };
        assert_eq!(Activity::after(event, true), Some(Activity::Shown(expected.to_owned())), "{event:?}");
    }
    let Msg::Event { event, .. } = step(Some("n")) else { panic!("an event") };
    assert_eq!(Activity::after(&event, true), None);
}
