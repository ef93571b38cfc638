//! Text mode, stderr, colour, sanitising and the printer thread (OUT-12, OUT-14, OUT-15, OUT-16, OUT-18, OUT-19,
//! OUT-21).

#![cfg(test)]

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, Content, ErrorKind, ErrorRecord, Event, Message,
    Reason, RunId, RunOutcome, StopReason, ToolResultView,
};
use pirn::port::Clock;
use pirn::print::{
    Activity, ColorMode, Config, EnvFacts, Finished, Level, Mode, Msg, Paint, Patience, Printer, ResultLine, Sanitizer,
    StdoutFailure, UsageTotals, Verbosity, clean, error_lines, line, use_color, write_text,
};
use proptest::prelude::{Strategy, any, proptest};
use serde_json::{Map, Value, json};

pub(crate) const PIPE: Config = Config {
    mode: Mode::Text { stream: false },
    stdout_is_terminal: false,
    stderr_is_terminal: false,
    verbosity: Verbosity::Normal,
    color: false,
    ascii: false,
    thinking: false,
    spinner: false,
};
/// Both streams on a terminal, the spinner off: it would draw on the real one.
pub(crate) const TERMINAL: Config = Config { stdout_is_terminal: true, stderr_is_terminal: true, ..PIPE };
pub(crate) const STREAM: Config = Config { mode: Mode::Text { stream: true }, ..PIPE };
pub(crate) const JSON: Config = Config { mode: Mode::Json { level: Level::Events }, ..PIPE };

/// A stream that collects what is written, and the sizes of the writes.
#[derive(Clone, Default)]
pub(crate) struct Sheet(Arc<Mutex<Vec<Vec<u8>>>>);

impl Write for Sheet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sheet {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().concat()).unwrap()
    }
}

/// A clock on which every wait is over at once.
pub(crate) struct Hasty;

#[async_trait::async_trait]
impl Clock for Hasty {
    fn now_ms(&self) -> u64 {
        0
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }

    async fn sleep(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Everything printed, stdout and stderr.
pub(crate) fn printed(config: Config, messages: Vec<Msg>) -> (String, String) {
    let (out, err) = (Sheet::default(), Sheet::default());
    let printer = Printer::start(config, Box::new(out.clone()), Box::new(err.clone())).unwrap();
    block_on(async {
        let handle = printer.handle();
        for msg in messages {
            handle.send(msg).await.unwrap();
        }
        assert_eq!(printer.finish(Patience::Endless, &Hasty).await, Finished::Complete);
        assert!(handle.send(Msg::Notice("late".to_owned())).await.is_err(), "a finished printer takes nothing");
    });
    (out.text(), err.text())
}

pub(crate) fn event(event: Event) -> Msg {
    Msg::Event { event: Box::new(event), recovery: false, ts: 0 }
}

fn update(index: usize, block: BlockEvent) -> Msg {
    event(Event::MessageUpdate { index, event: block, usage: None })
}

fn delta(index: usize, text: &str) -> Msg {
    update(index, BlockEvent::TextDelta(text.to_owned()))
}

fn text_end(index: usize, content: &str) -> Msg {
    update(index, BlockEvent::TextEnd { content: content.to_owned(), signature: None })
}

pub(crate) fn reply(text: &str, stop_reason: StopReason) -> Arc<Message> {
    let mut message = AssistantMessage::pending(&AssistantHead::default());
    message.content = vec![AssistantBlock::text(text)];
    message.stop_reason = stop_reason;
    Arc::new(Message::Assistant(message))
}

/// A reply that streams in two deltas.
pub(crate) fn streamed(text: &str, stop_reason: StopReason) -> Vec<Msg> {
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let (first, second) = text.split_at(middle);
    vec![
        event(Event::MessageStart { message: reply("", StopReason::Pending) }),
        update(0, BlockEvent::TextStart),
        delta(0, first),
        delta(0, second),
        text_end(0, text),
        event(Event::MessageEnd { message: reply(text, stop_reason), entry_id: None }),
    ]
}

pub(crate) fn tool(name: &str, args: Value, details: Option<Value>, duration_ms: Option<u64>) -> Vec<Msg> {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    let is_error = details.is_some();
    let result = ToolResultView { content: vec![Content::text("line 1\nline 2")], details, ..Default::default() };
    let (tool_call_id, tool_name) = ("c1".to_owned(), name.to_owned());
    let start = Event::ToolStart {
        tool_call_id: tool_call_id.clone(),
        tool_name: tool_name.clone(),
        args: Arc::new(args),
        effective_args: None,
    };
    let end = Event::ToolEnd { tool_call_id, tool_name, result: Arc::new(result), is_error, duration_ms };
    vec![event(start), event(end)]
}

pub(crate) fn verdict(reason: Reason, error: Option<ErrorRecord>) -> ResultLine {
    // Exit codes are another module's; text mode does not look at them.
    let line = ResultLine::nothing_sent(u8::from(reason != Reason::Completed), reason, error);
    ResultLine { turns: 2, tool_calls: 1, duration_ms: 41_210, cost_usd: Some(0.031), ..line }
}

pub(crate) fn ends(messages: Vec<Arc<Message>>, reason: Reason, error: Option<ErrorRecord>) -> Vec<Msg> {
    let outcome =
        RunOutcome { messages: messages.clone(), stop_reason: None, reason, error: error.clone(), cause: None };
    let result = Msg::Result { line: Box::new(verdict(reason, error)), instead: None, ts: 0 };
    vec![event(Event::RunEnd { messages, outcome: Arc::new(outcome), result: None }), result]
}

/// `let me look` with a call, its result, then `text` with the given ending (OUT-21).
fn two_turns(text: &str, stop_reason: StopReason, reason: Reason, error: Option<ErrorRecord>) -> Vec<Msg> {
    let mut messages = vec![event(Event::RunStart { run_id: RunId::new("r"), started_at: 1 })];
    messages.extend(streamed("let me look", StopReason::ToolUse));
    messages.extend(tool("ls", json!({"path": "."}), None, Some(3)));
    messages.extend(streamed(text, stop_reason));
    messages.extend(ends(vec![reply("let me look", StopReason::ToolUse), reply(text, stop_reason)], reason, error));
    messages
}

#[test]
fn stdout_of_text_mode_holds_what_cli_4_1_says_out21() {
    let network = || Some(ErrorRecord::new(ErrorKind::Network, "gone"));
    let both = "let me look\nfinal\n";
    let table = [
        (StopReason::Stop, Reason::Completed, None, "final\n"),
        (StopReason::Length, Reason::Length, None, "final\n"),
        (StopReason::Error, Reason::Unavailable, network(), ""),
        (StopReason::Aborted, Reason::Interrupted, None, ""),
        (StopReason::ToolUse, Reason::MaxTurns, None, ""),
        (StopReason::ToolUse, Reason::ToolTerminated, None, "final\n"),
        (StopReason::Aborted, Reason::Pipe, None, ""),
    ];
    for (stop_reason, reason, error, held) in table {
        let run = || two_turns("final", stop_reason, reason, error.clone());
        assert_eq!(printed(PIPE, run()).0, held, "{reason:?} in a pipe");
        assert_eq!(printed(Config { verbosity: Verbosity::Quiet, ..PIPE }, run()).0, held, "{reason:?} quiet");
        assert_eq!(printed(TERMINAL, run()).0, both, "{reason:?} on a terminal");
        assert_eq!(printed(STREAM, run()).0, both, "{reason:?} streamed");
    }
}

#[test]
fn output_ends_with_exactly_one_line_feed_and_is_unchanged_otherwise() {
    let texts = [
        ("one", "one\n"),
        ("one\n", "one\n"),
        ("one\n\n\n", "one\n"),
        ("\n one\n\ntwo ", "\n one\n\ntwo \n"),
        ("", ""),
        ("\n", ""),
        ("a\u{1b}[31mb\r\n", "a\u{1b}[31mb\r\n"),
    ];
    for (text, expected) in texts {
        let run = || {
            let mut messages = streamed(text, StopReason::Stop);
            messages.extend(ends(vec![reply(text, StopReason::Stop)], Reason::Completed, None));
            messages
        };
        assert_eq!(printed(PIPE, run()).0, expected, "{text:?} held");
        assert_eq!(printed(STREAM, run()).0, expected, "{text:?} streamed");
        assert_eq!(printed(TERMINAL, run()).0, clean(expected), "{text:?} on a terminal");
    }
}

#[test]
fn live_text_keeps_blocks_apart_and_takes_the_content_as_authoritative() {
    let start = event(Event::MessageStart { message: reply("", StopReason::Pending) });
    let end = event(Event::MessageEnd { message: reply("whole", StopReason::Stop), entry_id: None });
    let table: [(Vec<Msg>, &str); 6] = [
        (vec![delta(0, "a"), delta(1, "B"), delta(0, "b"), text_end(1, "BC"), text_end(0, "ab")], "ab\nBC\n"),
        (
            vec![delta(0, "a"), delta(2, "c"), delta(1, "b"), text_end(0, "a"), delta(1, "b"), text_end(1, "bb")],
            "a\nbb\nc\n",
        ),
        (vec![delta(0, "he"), text_end(0, "hello")], "hello\n"),
        (vec![text_end(0, "only the end")], "only the end\n"),
        (vec![], "whole\n"),
        (vec![delta(0, "cut off")], "cut off\n"),
    ];
    for (blocks, expected) in table {
        let mut messages = vec![start.clone()];
        messages.extend(blocks);
        messages.push(end.clone());
        assert_eq!(printed(STREAM, messages).0, expected);
    }
}

#[test]
fn an_answer_from_before_this_process_is_printed_from_the_result() {
    let line = ResultLine { text: "old answer".to_owned(), ..verdict(Reason::Completed, None) };
    let msg = || vec![Msg::Result { line: Box::new(line.clone()), instead: None, ts: 0 }];
    assert_eq!((printed(PIPE, msg()).0, printed(TERMINAL, msg()).0), ("old answer\n".into(), "old answer\n".into()));
    let failed = ResultLine { reason: Reason::Error, ..line.clone() };
    assert_eq!(printed(PIPE, vec![Msg::Result { line: Box::new(failed), instead: None, ts: 0 }]).0, "");
}

#[test]
fn several_runs_print_their_answers_with_a_blank_line_between() {
    let mut messages = ends(vec![reply("one\n", StopReason::Stop)], Reason::Completed, None);
    messages.truncate(1);
    messages.extend(ends(vec![reply("two", StopReason::Stop)], Reason::Completed, None));
    assert_eq!(printed(PIPE, messages).0, "one\n\ntwo\n");
}

#[test]
fn stderr_follows_verbosity_and_column_cli_4_3() {
    let run = || {
        let mut messages = vec![event(Event::TurnStart { turn: 1 })];
        messages.push(update(0, BlockEvent::ThinkingDelta("hm\nso".to_owned())));
        messages.push(event(Event::Warning { code: "w".to_owned(), message: "careful".to_owned() }));
        messages.extend(tool("bash", json!({"timeout": 3, "command": "cargo test"}), None, Some(4200)));
        messages.push(Msg::Heartbeat { elapsed_ms: 61_000 });
        messages.extend(ends(Vec::new(), Reason::Completed, None));
        messages
    };
    let warning = "pirn: warning: careful\n";
    let tools = "• bash cargo test\n✓ bash 4.2s\n";
    let summary = "2 turns · 1 tool · 0 in / 0 out · $0.031 · 41s\n";
    let thinking = "│ hm\n";
    let rest = "│ so\n";
    let details = "│ {\n│   \"timeout\": 3,\n│   \"command\": \"cargo test\"\n│ }\n";
    let result = "│ line 1\n│ line 2\n";
    let heartbeat = "pirn: running for 1m01s: turn 1, 1 tool\n";
    let started = "• bash cargo test\n";
    let ended = "✓ bash 4.2s\n";
    let table = [
        (false, Verbosity::Quiet, String::new()),
        (true, Verbosity::Quiet, String::new()),
        (false, Verbosity::Normal, warning.to_owned()),
        (true, Verbosity::Normal, [warning, tools, summary].concat()),
        (false, Verbosity::Verbose, [warning, tools, heartbeat, summary].concat()),
        (true, Verbosity::Verbose, [thinking, warning, tools, rest, summary].concat()),
        (false, Verbosity::Debug, [warning, started, details, ended, result, heartbeat, summary].concat()),
        (true, Verbosity::Debug, [thinking, warning, started, details, ended, result, rest, summary].concat()),
    ];
    for (stderr_is_terminal, verbosity, expected) in table {
        let config = Config { stderr_is_terminal, verbosity, ..PIPE };
        assert_eq!(printed(config, run()).1, expected, "{stderr_is_terminal} {verbosity:?}");
    }
    let config = Config { thinking: true, ..PIPE };
    assert_eq!(printed(config, run()).1, [thinking, warning, rest].concat(), "output.thinking");
}

#[test]
fn with_json_stderr_follows_the_plain_column_unless_verbose_g9() {
    let run = || tool("ls", json!({}), None, Some(3));
    let on_terminal = |verbosity| Config { stderr_is_terminal: true, verbosity, ..JSON };
    assert_eq!(printed(on_terminal(Verbosity::Normal), run()).1, "");
    assert_eq!(printed(on_terminal(Verbosity::Verbose), run()).1, "• ls\n✓ ls 3ms\n");
}

#[test]
fn tool_lines_tell_why_a_call_failed_and_fall_back_to_ascii() {
    let error = |code: &str| json!({"error": {"code": code, "message": "m"}});
    let table = [
        (json!({"exitCode": 101, "error": {"code": "exit", "message": "m"}}), Some(4200), "!! bash exit 101 4.2s\n"),
        (json!({"signal": "SIGKILL", "exitCode": 137}), Some(1), "!! bash SIGKILL 1ms\n"),
        (
            json!({"signal": "SIGTERM", "exitCode": 143, "error": {"code": "timeout", "message": "m"}}),
            Some(1),
            "!! bash timeout 1ms\n",
        ),
        (error("not_found"), Some(20), "!! bash not_found 20ms\n"),
        (error("blocked"), None, "!! bash blocked\n"),
        (json!("odd"), None, "!! bash failed\n"),
    ];
    let config = Config { ascii: true, verbosity: Verbosity::Verbose, ..PIPE };
    for (details, duration_ms, expected) in table {
        let lines = printed(config, tool("bash", json!({"n": 1}), Some(details), duration_ms)).1;
        assert_eq!(lines, format!("* bash {{\"n\":1}}\n{expected}"));
    }
    let good = tool("ls", json!({}), None, Some(3));
    assert_eq!(printed(config, good).1, "* ls\nok ls 3ms\n");
}

#[test]
fn calls_that_run_together_are_told_apart() {
    let start = |id: &str, path: &str| {
        let args = Map::from_iter([("path".to_owned(), json!(path))]);
        let (tool_call_id, tool_name) = (id.to_owned(), "read".to_owned());
        event(Event::ToolStart { tool_call_id, tool_name, args: Arc::new(args), effective_args: None })
    };
    let end = |id: &str| {
        let (tool_call_id, tool_name) = (id.to_owned(), "read".to_owned());
        let result = Arc::new(ToolResultView::default());
        event(Event::ToolEnd { tool_call_id, tool_name, result, is_error: false, duration_ms: None })
    };
    let config = Config { verbosity: Verbosity::Verbose, ..PIPE };
    let lines = printed(config, vec![start("1", "a"), start("2", "b"), end("2"), end("1")]).1;
    assert_eq!(lines, "• read a\n• read b\n✓ read b\n✓ read\n");
}

#[test]
fn an_error_is_the_last_line_with_its_hint_cli_4_2() {
    let error = ErrorRecord::new(ErrorKind::Auth, "no key for openai").with_hint("set OPENAI_API_KEY");
    let lines = printed(TERMINAL, two_turns("x", StopReason::Error, Reason::Auth, Some(error))).1;
    assert!(lines.ends_with("41s\npirn: auth: no key for openai\nhint: set OPENAI_API_KEY\n"), "{lines}");
    let table = [
        (Reason::MaxTurns, "pirn: max_turns: stopped at the limit of turns\nhint: raise it with --max-turns\n"),
        (Reason::Interrupted, "pirn: interrupted: the run was interrupted\n"),
        (Reason::Length, "pirn: warning: the answer was cut off by the output limit\n"),
        (Reason::Pipe, ""),
        (Reason::Completed, ""),
    ];
    for (reason, expected) in table {
        assert_eq!(printed(PIPE, ends(Vec::new(), reason, None)).1, expected);
        assert_eq!(printed(JSON, ends(Vec::new(), reason, None)).1, expected, "{reason:?} with --json");
    }
    let session_id = Some("0199a1b2-0000-7000-8000-00000000aaaa".to_owned());
    let kept = ResultLine { resumable: true, session_id, ..verdict(Reason::MaxTurns, None) };
    let lines = printed(PIPE, vec![Msg::Result { line: Box::new(kept), instead: None, ts: 0 }]).1;
    assert!(lines.ends_with("\nhint: raise it with --max-turns, or go on: pirn -c -s 0000aaaa\n"), "{lines}");
    let config = ErrorRecord::new(ErrorKind::Config, "a.toml:1:1: x\nb.toml:2:2: y\n");
    let lines =
        printed(Config { verbosity: Verbosity::Quiet, ..PIPE }, ends(Vec::new(), Reason::Usage, Some(config))).1;
    assert_eq!(lines, "pirn: config: a.toml:1:1: x\npirn: config: b.toml:2:2: y\n");
}

#[test]
fn foreign_text_on_stderr_is_one_prefixed_clean_line() {
    let nasty = "\u{1b}]0;title\u{7}a\n::error::x\r##[group]y ##vso[task]z\u{202e}";
    assert_eq!(line(nasty, 100), "a ::error::x # #[group]y # #vso[task]z");
    assert_eq!(line("one two three", 7), "one tw…");
    let config = Config { verbosity: Verbosity::Debug, thinking: true, ..PIPE };
    let mut messages = tool(nasty, json!({"command": nasty}), Some(json!({"error": {"code": nasty}})), None);
    messages.push(update(0, BlockEvent::ThinkingDelta(nasty.to_owned())));
    messages.extend(ends(Vec::new(), Reason::Error, Some(ErrorRecord::new(ErrorKind::Server, nasty))));
    let text = printed(config, messages).1;
    let starts = ["•", "✗", "│", "pirn: ", "2 turns"];
    for line in text.lines() {
        assert!(starts.iter().any(|start| line.starts_with(start)), "{line:?}");
    }
    assert!(!text.chars().any(|c| c.is_control() && c != '\n') && !text.contains("##["), "{text:?}");
}

#[test]
fn a_line_on_stderr_does_not_begin_inside_the_text_on_the_same_terminal() {
    // Two streams that end up on one screen.
    let screen = Sheet::default();
    let printer = Printer::start(TERMINAL, Box::new(screen.clone()), Box::new(screen.clone())).unwrap();
    let mut messages = streamed("hello\n\nworld", StopReason::Stop);
    messages.insert(3, Msg::Warning { code: "w", message: "w".to_owned(), ts: 0 });
    messages.truncate(5);
    block_on(async {
        for msg in messages {
            printer.handle().send(msg).await.unwrap();
        }
        printer.finish(Patience::Endless, &Hasty).await
    });
    assert_eq!(screen.text(), "hello\npirn: warning: w\n\nworld");
}

#[test]
fn colour_is_decided_per_stream_by_the_first_rule_that_matches_cli_4_4() {
    type Facts = (ColorMode, &'static [(&'static str, &'static str)], bool, bool);
    let table: [Facts; 18] = [
        (ColorMode::Auto, &[], true, true),
        (ColorMode::Auto, &[], false, false),
        (ColorMode::Always, &[("NO_COLOR", "1"), ("TERM", "dumb")], false, true),
        (ColorMode::Never, &[("FORCE_COLOR", "1")], true, false),
        (ColorMode::Auto, &[("NO_COLOR", "1")], true, false),
        (ColorMode::Auto, &[("NO_COLOR", "")], true, true),
        (ColorMode::Auto, &[("NO_COLOR", "1"), ("FORCE_COLOR", "1")], true, false),
        (ColorMode::Auto, &[("FORCE_COLOR", "1")], false, true),
        (ColorMode::Auto, &[("FORCE_COLOR", "")], false, true),
        (ColorMode::Auto, &[("FORCE_COLOR", "0")], false, false),
        (ColorMode::Auto, &[("FORCE_COLOR", "0")], true, true),
        (ColorMode::Auto, &[("CLICOLOR_FORCE", "1")], false, true),
        (ColorMode::Auto, &[("CLICOLOR_FORCE", "1"), ("CLICOLOR", "0")], false, true),
        (ColorMode::Auto, &[("CLICOLOR", "0")], true, false),
        (ColorMode::Auto, &[("CLICOLOR", "1")], false, false),
        (ColorMode::Auto, &[("TERM", "dumb")], true, false),
        (ColorMode::Auto, &[("TERM", "dumb"), ("FORCE_COLOR", "1")], true, true),
        (ColorMode::Auto, &[("TERM", "xterm")], true, true),
    ];
    for (mode, variables, is_terminal, expected) in table {
        let mut facts = EnvFacts::default();
        for (name, value) in variables {
            let slot = match *name {
                "NO_COLOR" => &mut facts.no_color,
                "FORCE_COLOR" => &mut facts.force_color,
                "CLICOLOR_FORCE" => &mut facts.clicolor_force,
                "CLICOLOR" => &mut facts.clicolor,
                _ => &mut facts.term,
            };
            *slot = Some((*value).to_owned());
        }
        assert_eq!(use_color(mode, &facts, is_terminal), expected, "{mode:?} {variables:?} {is_terminal}");
    }
}

#[test]
fn colour_touches_stderr_only_and_only_when_on_out14_out15() {
    let run = || two_turns("final", StopReason::Error, Reason::Error, Some(ErrorRecord::new(ErrorKind::Server, "m")));
    for (config, coloured) in [(TERMINAL, false), (Config { color: true, ..TERMINAL }, true)] {
        let (out, err) = printed(config, run());
        assert!(!out.contains('\u{1b}'), "the answer is never coloured");
        assert_eq!(err.contains('\u{1b}'), coloured);
        assert!(!err.contains('\r'));
    }
    let (out, _) = printed(Config { color: true, ..JSON }, run());
    assert!(!out.contains('\u{1b}') && !out.contains("\\u001b"), "nor is JSON");
    assert_eq!(error_lines("usage", "m", Some("h"), Paint::new(false)), "pirn: usage: m\nhint: h\n");
}

#[test]
fn the_locale_decides_about_characters() {
    let facts = |lc_all: &str, lc_ctype: &str, lang: &str| EnvFacts {
        lc_all: Some(lc_all.to_owned()),
        lc_ctype: Some(lc_ctype.to_owned()),
        lang: Some(lang.to_owned()),
        ..EnvFacts::default()
    };
    let table = [
        (facts("", "", "de_DE.UTF-8"), true),
        (facts("", "C.utf8", "C"), true),
        (facts("C", "C.utf8", "en_US.UTF-8"), false),
        (EnvFacts::default(), false),
    ];
    for (facts, expected) in table {
        assert_eq!(facts.is_utf8(), expected, "{facts:?}");
    }
}

#[test]
fn control_sequences_are_removed_whole() {
    let table = [
        ("plain \u{e9}\u{1f600}\n\tx", "plain \u{e9}\u{1f600}\n\tx"),
        ("\u{1b}[1;31mred\u{1b}[0m", "red"),
        ("\u{9b}2Jx", "x"),
        ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{7}", "link"),
        ("\u{1b}P1$r0m\u{9c}x", "x"),
        ("\u{1b}cx\u{1b}(Bx", "xx"),
        ("a\rb\u{8}\u{7f}\u{85}c", "abc"),
        ("\u{1b}]never ends\nnext line", "\nnext line"),
        ("\u{1b}[12\nx", "\nx"),
        ("\u{1b}\u{4e2d}", "\u{4e2d}"),
        ("\u{1b}", ""),
    ];
    for (dirty, expected) in table {
        assert_eq!(clean(dirty), expected, "{dirty:?}");
    }
}

/// Text in which control sequences are likely.
fn dirty_text() -> impl Strategy<Value = String> {
    let piece = proptest::prop_oneof![
        any::<char>().prop_map(|c| c.to_string()),
        proptest::sample::select(vec![
            "\u{1b}", "[", "]", "\u{7}", "\u{9b}", "\u{9c}", "\\", "m", "\n", "\t", "\r", "1;2"
        ])
        .prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn sanitised_text_holds_no_control_character_and_stays_the_same(text in dirty_text()) {
        let once = clean(&text);
        assert!(!once.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        assert_eq!(clean(&once), once);
    }

    #[test]
    fn text_without_control_characters_is_unchanged(text in "\\PC*") {
        assert_eq!(clean(&text), text);
    }

    #[test]
    fn sanitising_does_not_depend_on_how_text_is_cut(text in dirty_text(), every in 1_usize..5) {
        let characters: Vec<char> = text.chars().collect();
        let (mut sanitizer, mut out) = (Sanitizer::new(), String::new());
        for piece in characters.chunks(every) {
            sanitizer.push(&piece.iter().collect::<String>(), &mut out);
        }
        assert_eq!(out, clean(&text));
    }
}

#[test]
fn the_spinner_tells_what_goes_on_and_hides_while_text_streams() {
    let after = |msg: &Msg, live| match msg {
        Msg::Event { event, .. } => Activity::after(event, live),
        _ => None,
    };
    let shown = |text: &str| Some(Activity::Shown(text.to_owned()));
    let call = BlockEvent::ToolCallStart { id: "c".to_owned(), name: "l\u{1b}[1ms".to_owned() };
    assert_eq!(after(&event(Event::TurnStart { turn: 1 }), true), shown("waiting"));
    assert_eq!(after(&update(0, BlockEvent::ThinkingStart), true), shown("thinking"));
    assert_eq!(after(&update(0, BlockEvent::TextStart), true), Some(Activity::None));
    assert_eq!(after(&update(0, BlockEvent::TextStart), false), shown("answering"));
    assert_eq!(after(&update(0, call), true), shown("calling ls"));
    assert_eq!(after(&tool("ls", json!({}), None, None)[0], true), shown("running ls"));
}

/// A stream whose reader takes something only when told.
struct Slow {
    go: Receiver<()>,
    sheet: Sheet,
}

fn slow() -> (Sender<()>, Slow, Sheet) {
    let (tell, go) = channel();
    let sheet = Sheet::default();
    (tell, Slow { go, sheet: sheet.clone() }, sheet)
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A dropped sender = a reader that takes everything from now on.
        match self.go.recv() {
            Ok(()) | Err(_) => self.sheet.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_reader_gets_every_byte_in_whole_lines_and_deltas_are_joined_out19() {
    let (tell, stream, sheet) = slow();
    let printer = Printer::start(JSON, Box::new(stream), Box::new(io::sink())).unwrap();
    let texts: Vec<String> = (0..500).map(|at| format!("{at} ")).collect();
    block_on(async {
        let handle = printer.handle();
        for text in &texts {
            handle.send(delta(0, text)).await.unwrap();
        }
        handle
            .send(Msg::Result { line: Box::new(verdict(Reason::Completed, None)), instead: None, ts: 0 })
            .await
            .unwrap();
        drop(tell);
        assert_eq!(printer.finish(Patience::Endless, &Hasty).await, Finished::Complete);
    });
    let text = sheet.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let joined: String = lines.iter().filter_map(|line| line["assistantMessageEvent"]["delta"].as_str()).collect();
    assert_eq!(joined, texts.concat());
    assert!(lines.len() < texts.len(), "what piled up was joined");
    assert_eq!(lines.last().unwrap()["type"], "result");
    assert!(sheet.0.lock().unwrap().iter().all(|write| write.ends_with(b"\n")));
}

/// A stream that passes on each write.
struct Tell(Sender<Vec<u8>>);

impl Write for Tell {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send(bytes.to_vec()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_delta_is_written_as_soon_as_it_comes_out18() {
    for config in [STREAM, JSON] {
        let (written, seen) = channel();
        let printer = Printer::start(config, Box::new(Tell(written)), Box::new(io::sink())).unwrap();
        block_on(async {
            for text in ["one", "two"] {
                printer.handle().send(delta(0, text)).await.unwrap();
                let bytes = seen.recv().unwrap();
                assert!(String::from_utf8(bytes).unwrap().contains(text), "before anything else is sent");
            }
            printer.finish(Patience::Endless, &Hasty).await
        });
    }
}

#[test]
fn an_interrupted_run_does_not_wait_for_a_reader_that_takes_nothing() {
    let (tell, stream, _) = slow();
    let printer = Printer::start(JSON, Box::new(stream), Box::new(io::sink())).unwrap();
    block_on(async {
        printer.handle().send(delta(0, "x")).await.unwrap();
        assert_eq!(printer.finish(Patience::Stall, &Hasty).await, Finished::Stalled);
    });
    drop(tell);
}

#[test]
fn a_verdict_behind_a_full_queue_does_not_wait_for_ever() {
    let (tell, stream, _) = slow();
    let printer = Printer::start(JSON, Box::new(stream), Box::new(io::sink())).unwrap();
    let result = ends(Vec::new(), Reason::Interrupted, None).pop();
    block_on(async {
        assert_eq!(printer.backlog(), None, "nobody waits for the reader");
        while printer.backlog().is_none() {
            printer.handle().try_send(delta(0, "x"));
            tokio::task::yield_now().await;
        }
        let finished = printer.finish_with(result, std::future::ready(()), &Hasty).await;
        assert_eq!(finished, Finished::Stalled);
    });
    drop(tell);
}

/// A stream that takes `left` bytes and then fails.
struct Failing {
    left: usize,
    kind: io::ErrorKind,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.left);
        self.left -= count;
        if count == 0 { Err(self.kind.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_left_is_reported_and_the_run_may_go_on_talking_out12() {
    let full = StdoutFailure::Failed(io::Error::from(io::ErrorKind::StorageFull).to_string());
    for (kind, expected) in [(io::ErrorKind::BrokenPipe, StdoutFailure::Closed), (io::ErrorKind::StorageFull, full)] {
        for config in [JSON, STREAM] {
            let err = Sheet::default();
            let printer = Printer::start(config, Box::new(Failing { left: 3, kind }), Box::new(err.clone())).unwrap();
            let mut watch = printer.stdout_watch();
            block_on(async {
                printer.handle().send(delta(0, "hello")).await.unwrap();
                assert_eq!(watch.failed().await, expected);
                for _ in 0..3 {
                    printer.handle().send(delta(0, "more")).await.unwrap();
                }
                printer.handle().send(Msg::Notice("still here".to_owned())).await.unwrap();
                assert_eq!(printer.finish(Patience::Endless, &Hasty).await, Finished::Failed(expected.clone()));
            });
            assert_eq!(err.text(), "pirn: still here\n");
        }
    }
    let closed = write_text(&mut Failing { left: 1, kind: io::ErrorKind::BrokenPipe }, "help");
    assert_eq!(closed, Err(StdoutFailure::Closed));
}

#[test]
fn a_closed_stderr_changes_nothing() {
    let out = Sheet::default();
    let broken = Failing { left: 0, kind: io::ErrorKind::BrokenPipe };
    let printer = Printer::start(STREAM, Box::new(out.clone()), Box::new(broken)).unwrap();
    block_on(async {
        printer.handle().send(Msg::Warning { code: "w", message: "w".to_owned(), ts: 0 }).await.unwrap();
        printer.handle().send(delta(0, "text")).await.unwrap();
        assert_eq!(printer.finish(Patience::Endless, &Hasty).await, Finished::Complete);
    });
    assert_eq!(out.text(), "text");
}

/// A stream in non-blocking mode: it takes two bytes at a time, and at the numbered calls none.
struct Busy(Sheet, HashSet<usize>, usize);

impl Write for Busy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.2 += 1;
        if self.1.contains(&self.2) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.write(&bytes[..bytes.len().min(2)])
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_descriptor_in_non_blocking_mode_loses_nothing() {
    let sheet = Sheet::default();
    write_text(&mut Busy(sheet.clone(), HashSet::from([1, 3]), 0), "every byte").unwrap();
    assert_eq!(sheet.text(), "every byte");
}

#[test]
fn notices_never_reach_stdout_out16() {
    for config in [PIPE, TERMINAL, JSON] {
        let messages = vec![
            Msg::Notice("n".to_owned()),
            Msg::Warning { code: "w", message: "w".to_owned(), ts: 0 },
            Msg::Heartbeat { elapsed_ms: 1 },
        ];
        let (stdout, stderr) = printed(config, messages);
        assert_eq!(stderr, "pirn: n\npirn: warning: w\n");
        // A warning has a line of its own in a stream.
        let line = "{\"type\":\"warning\",\"seq\":0,\"ts\":0,\"code\":\"w\",\"message\":\"w\"}\n";
        assert_eq!(stdout, if config == JSON { line } else { "" });
    }
    let usage = UsageTotals { input: 12_400, output: 1100, estimated: Some(true), ..UsageTotals::default() };
    for (file, end) in [(Some("/s/019f-01a22cb9.jsonl"), " · session 01a22cb9"), (None, "")] {
        let line = ResultLine {
            usage: usage.clone(),
            session_id: Some("019f-01a22cb9".to_owned()),
            session_file: file.map(str::to_owned),
            ..verdict(Reason::Completed, None)
        };
        let err = printed(TERMINAL, vec![Msg::Result { line: Box::new(line), instead: None, ts: 0 }]).1;
        assert_eq!(err, format!("2 turns · 1 tool · ~12.4k in / ~1.1k out · $0.031 · 41s{end}\n"));
    }
}
