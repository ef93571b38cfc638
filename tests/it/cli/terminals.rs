//! Each stream on a terminal or in a pipe: what moves the cursor, what is coloured, what is live.

use serde_json::json;

use super::pty::{Terminal, rendered};
use super::{Output, Pirn, Stdin};
use crate::support::chat::{chat_error, chat_text, chat_tool, chunk, usage_chunk};
use crate::support::server::{Gate, Reply, Server};

const ESC: char = '\u{1b}';

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Terminal,
    Pipe,
}

const COMBINATIONS: [(To, To); 4] =
    [(To::Terminal, To::Terminal), (To::Terminal, To::Pipe), (To::Pipe, To::Terminal), (To::Pipe, To::Pipe)];

/// What came out of a call, however it was connected.
struct Seen {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs a call with its streams on terminals of their own, or in pipes.
fn run(call: Pirn, stdout: To, stderr: To) -> Seen {
    let terminal = |to: To| (to == To::Terminal).then(Terminal::open);
    let (mut call, mut screens) = (call.default_env("TERM", "xterm-256color"), [None, None]);
    if let Some((screen, side)) = terminal(stdout) {
        call = call.stdout(side);
        screens[0] = Some(screen);
    }
    if let Some((screen, side)) = terminal(stderr) {
        call = call.stderr(side);
        screens[1] = Some(screen);
    }
    let output: Output = call.run();
    let [out, err] = screens;
    Seen {
        code: output.code(),
        stdout: out.map_or(output.stdout, Terminal::finish),
        stderr: err.map_or(output.stderr, Terminal::finish),
    }
}

/// Variables on top of an otherwise empty environment.
type Environment = &'static [(&'static str, &'static str)];

fn under(environment: Environment, call: Pirn) -> Pirn {
    environment.iter().fold(call, |call, (name, value)| call.env(name, *value))
}

/// Calls that show all there is to show, and their codes.
const CALLS: &[(&[&str], i32)] = &[
    (&["say **hi**"], 0),
    (&["look"], 0),
    (&["-vv", "look"], 0),
    (&["-v", "call read {\"path\":\"missing\"}"], 0),
    (&["stop length"], 3),
    (&["fail auth"], 77),
    (&["--nonsense"], 2),
    (&["--json", "look"], 0),
    (&["--json", "-v", "fail auth"], 77),
    (&["--json=result", "look"], 0),
];

#[test]
fn no_escape_and_no_carriage_return_is_ever_in_a_pipe_out14() {
    let environments: [Environment; 3] = [&[], &[("NO_COLOR", "1")], &[("TERM", "dumb")]];
    let cases = environments.into_iter().flat_map(|environment| {
        // Where nothing may be coloured, one call shows as much as all.
        let calls = if environment.is_empty() { CALLS } else { &CALLS[2..3] };
        COMBINATIONS.iter().flat_map(move |to| calls.iter().map(move |call| (environment, *to, call)))
    });
    for (environment, (stdout, stderr), (args, code)) in cases {
        let seen = run(under(environment, Pirn::demo(args.iter().copied())), stdout, stderr);
        let shown = format!("{args:?} {stdout:?} {stderr:?} {environment:?}");
        assert_eq!(seen.code, *code, "{shown}");
        for (to, text) in [(stdout, &seen.stdout), (stderr, &seen.stderr)] {
            assert!(to == To::Terminal || !text.contains([ESC, '\r']), "{shown}: {text:?}");
        }
        // The answer and JSON are never coloured, not even on a terminal.
        assert!(!seen.stdout.contains(ESC), "{shown}: {:?}", seen.stdout);
    }
}

#[test]
fn colour_is_decided_for_each_stream_out15() {
    let server = Server::start([]).then_always(chat_error(401, "invalid_api_key", "Bad key"));
    let calls: [fn(&Server) -> Pirn; 2] = [|_| Pirn::new(["--bad-flag"]), |server| Pirn::of_server(server, ["x"])];
    for call in calls {
        let file = run(call(&server), To::Terminal, To::Pipe);
        assert!(file.stderr.starts_with("pirn: ") && !file.stderr.contains(ESC), "{:?}", file.stderr);
        let screen = run(call(&server), To::Pipe, To::Terminal);
        assert!(screen.stderr.contains("\u{1b}["), "{:?}", screen.stderr);
        assert!(!screen.stdout.contains(ESC));
    }
}

#[test]
fn the_environment_and_the_flag_decide_about_colour_out14() {
    type Row = (Environment, &'static [&'static str], To, bool);
    let rows: [Row; 14] = [
        (&[], &[], To::Terminal, true),
        (&[], &[], To::Pipe, false),
        (&[("NO_COLOR", "1")], &[], To::Terminal, false),
        (&[("NO_COLOR", "")], &[], To::Terminal, true),
        (&[("TERM", "dumb")], &[], To::Terminal, false),
        (&[("CLICOLOR", "0")], &[], To::Terminal, false),
        (&[("CLICOLOR_FORCE", "1")], &[], To::Pipe, true),
        (&[("FORCE_COLOR", "1")], &[], To::Pipe, true),
        (&[("CLICOLOR_FORCE", "0")], &[], To::Pipe, false),
        (&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], &[], To::Terminal, false),
        (&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], &[], To::Pipe, true),
        (&[], &["--color", "always"], To::Pipe, true),
        (&[("NO_COLOR", "1")], &["--color", "always"], To::Pipe, true),
        (&[("CLICOLOR_FORCE", "1")], &["--color", "never"], To::Terminal, false),
    ];
    for (environment, args, stderr, colour) in rows {
        let call = Pirn::demo(args.iter().copied().chain(["fail auth"]));
        let call = under(environment, call);
        let seen = run(call, To::Pipe, stderr);
        let last = seen.stderr.lines().find(|line| line.contains("pirn: ")).unwrap();
        assert_eq!(
            last.contains("\u{1b}[") && last.contains('m'),
            colour,
            "{environment:?} {args:?}: {:?}",
            seen.stderr
        );
        assert_eq!(seen.stdout, "");
        // JSON is never coloured, whatever the environment asks for.
        let call = Pirn::demo(args.iter().copied().chain(["--json", "look"]));
        let call = under(environment, call);
        assert!(!run(call, stderr, stderr).stdout.contains(ESC), "{environment:?}");
    }
}

/// A server that answers when a gate opens.
fn gated(text: &'static str) -> (Server, Gate) {
    let gate = Gate::new();
    let held = gate.clone();
    let server = Server::start([Reply::with(move |_| {
        held.wait();
        chat_text(text)
    })]);
    (server, gate)
}

#[test]
fn a_spinner_turns_on_a_terminal_and_leaves_no_trace() {
    for stdout in [To::Terminal, To::Pipe] {
        let (server, gate) = gated("done");
        let (screen, side) = Terminal::open();
        let mut call = Pirn::of_server(&server, ["x"]).env("TERM", "xterm-256color");
        let mut answers = None;
        if stdout == To::Terminal {
            call = call.stdout(side.try_clone().unwrap());
        } else {
            let (reader, writer) = std::io::pipe().unwrap();
            call = call.stdout(writer);
            answers = Some(reader);
        }
        let running = call.stderr(side).spawn();
        screen.wait("waiting");
        gate.open();
        assert_eq!(running.wait().code(), 0);
        drop(answers);
        let shown = rendered(&screen.finish());
        let answer = if stdout == To::Terminal { "done\n" } else { "" };
        assert!(shown.starts_with(&format!("{answer}1 turn · 0 tools · 10 in / 5 out · ")), "{shown:?}");
        assert_eq!(shown.trim_end().lines().count(), 1 + answer.lines().count(), "{shown:?}");
    }
}

#[test]
fn there_is_no_spinner_where_it_may_not_be() {
    type Row = (Environment, &'static [&'static str], To);
    let rows: [Row; 5] = [
        (&[], &[], To::Pipe),
        (&[], &["-v"], To::Pipe),
        (&[("TERM", "dumb")], &[], To::Terminal),
        (&[], &["-q"], To::Terminal),
        (&[], &["--json"], To::Terminal),
    ];
    for (environment, args, stderr) in rows {
        // Time for a frame.
        let pause = std::time::Duration::from_millis(150);
        let reply = Reply::stream().pause(pause).event(&chunk(&json!({"content": "a"}), None));
        let reply = reply.event(&chunk(&json!({}), Some("stop"))).event(&usage_chunk()).send("data: [DONE]\n\n");
        let server = Server::start([reply]);
        let call = Pirn::of_server(&server, args.iter().copied().chain(["x"]));
        let call = under(environment, call);
        let seen = run(call, To::Pipe, stderr);
        assert_eq!(seen.code, 0);
        assert!(!seen.stderr.contains("waiting") && !seen.stderr.contains('\r'), "{args:?}: {:?}", seen.stderr);
    }
}

#[test]
fn text_is_live_on_a_terminal() {
    for stderr in [To::Terminal, To::Pipe] {
        let gates = [Gate::new(), Gate::new()];
        let reply = Reply::stream()
            .event(&chunk(&json!({"content": "one "}), None))
            .wait(&gates[0])
            .event(&chunk(&json!({"content": "two"}), None))
            .wait(&gates[1])
            .event(&chunk(&json!({}), Some("stop")))
            .event(&usage_chunk())
            .send("data: [DONE]\n\n");
        let server = Server::start([reply]);
        let (screen, side) = Terminal::open();
        let mut call = Pirn::of_server(&server, ["x"]).env("TERM", "xterm-256color");
        if stderr == To::Terminal {
            call = call.stderr(side.try_clone().unwrap());
        }
        let running = call.stdout(side).spawn();
        screen.wait("one ");
        assert!(!screen.so_far().contains("two"));
        gates[0].open();
        screen.wait("two");
        gates[1].open();
        assert_eq!(running.wait().code(), 0);
        let shown = rendered(&screen.finish());
        assert_eq!(shown.lines().next(), Some("one two"), "{shown:?}");
    }
}

#[test]
fn an_interrupted_answer_keeps_its_lines_on_the_screen() {
    let server = Server::start([Reply::stream().event(&chunk(&json!({"content": "one\ntwo"}), None)).hold()]);
    let (screen, side) = Terminal::open();
    let call = Pirn::of_server(&server, ["x"]).env("TERM", "xterm-256color");
    let running = call.stderr(side.try_clone().unwrap()).stdout(side).spawn();
    screen.wait("two");
    running.signal(rustix::process::Signal::INT);
    assert_eq!(running.wait().code(), 130);
    let shown = rendered(&screen.finish());
    let lines: Vec<&str> = shown.lines().collect();
    let [one, two, summary, error] = lines[..] else { panic!("{shown:?}") };
    assert_eq!((one, two, error), ("one", "two", "pirn: interrupted: the run was interrupted"), "{shown:?}");
    assert!(summary.starts_with("1 turn · "), "{shown:?}");
}

#[test]
fn every_text_block_is_shown_once_between_the_tools_out21() {
    let look = chat_tool("ls", json!({}));
    let text = chunk(&json!({"content": "let me look"}), None);
    let call = json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]);
    let both = Reply::stream()
        .event(&text)
        .event(&chunk(&json!({"tool_calls": call}), None))
        .event(&chunk(&json!({}), Some("tool_calls")))
        .event(&usage_chunk())
        .send("data: [DONE]\n\n");
    let server = Server::start([both, look, chat_text("final")]);
    let (screen, side) = Terminal::open();
    let call = Pirn::of_server(&server, ["x"]).env("TERM", "xterm-256color");
    let output = call.stderr(side.try_clone().unwrap()).stdout(side).run();
    assert_eq!(output.code(), 0);
    let shown = rendered(&screen.finish());
    let lines: Vec<&str> = shown.lines().collect();
    let [first, start, end, start_again, end_again, last, summary] = lines[..] else { panic!("{shown:?}") };
    assert_eq!((first, last), ("let me look", "final"), "{shown:?}");
    assert_eq!((start, start_again), ("• ls", "• ls"), "{shown:?}");
    assert!(end.starts_with("✓ ls ") && end_again.starts_with("✓ ls "), "{shown:?}");
    assert!(summary.starts_with("3 turns · 2 tools · "), "{shown:?}");
}

#[test]
fn control_sequences_of_a_model_do_not_reach_the_terminal() {
    let evil = "a\u{1b}[2J\u{1b}]0;title\u{7}b\rc\u{8}d\u{9b}31me\nf\tg";
    let split = |text: &str| {
        // One character a delta: a sequence may begin in one and end in another.
        let reply = text.chars().fold(Reply::stream(), |reply, c| reply.event(&chunk(&json!({"content": c}), None)));
        reply.event(&chunk(&json!({}), Some("stop"))).event(&usage_chunk()).send("data: [DONE]\n\n")
    };
    for reply in [chat_text(evil), split(evil)] {
        let server = Server::start([reply.clone(), reply]);
        let screen = run(Pirn::of_server(&server, ["x"]), To::Terminal, To::Pipe);
        assert_eq!(screen.stdout, "abcde\nf\tg\n");
        // A pipe gets the bytes as they are.
        let pipe = run(Pirn::of_server(&server, ["x"]), To::Pipe, To::Terminal);
        assert_eq!(pipe.stdout, format!("{evil}\n"));
    }
}

#[test]
fn what_a_model_names_cannot_move_the_cursor_on_stderr() {
    let evil = "x\u{1b}[2J\r\n::error::y";
    let server = Server::start([chat_tool(evil, json!({"path": evil})), chat_text("done")]);
    for stderr in [To::Terminal, To::Pipe] {
        let server_of_error = Server::start([chat_error(400, "bad", evil)]);
        let seen = run(Pirn::of_server(&server_of_error, ["x"]), To::Pipe, stderr);
        check_harmless(&seen.stderr);
    }
    let seen = run(Pirn::of_server(&server, ["-vv", "x"]), To::Pipe, To::Pipe);
    assert_eq!(seen.code, 0);
    check_harmless(&seen.stderr);
}

/// Nothing of a foreign text is obeyed, and no line of it looks like a command of a build system.
fn check_harmless(stderr: &str) {
    assert!(!stderr.contains("\u{1b}[2J"), "{stderr:?}");
    assert!(stderr.lines().all(|line| !line.starts_with("::")), "{stderr:?}");
    assert!(stderr.contains("::error::y"), "the text itself is shown: {stderr:?}");
}

#[test]
fn nothing_asked_on_a_terminal_gets_the_short_help() {
    let help = Pirn::new(["-h"]).run().stdout;
    assert!(help.contains("\nUsage: pirn"), "{help}");
    for args in [&["-m", "demo"][..], &[], &["-q"], &["--json"], &["--json=result", "-m", "demo"]] {
        let (_screen, side) = Terminal::open();
        let output = Pirn::new(args.iter().copied()).stdin(Stdin::Custom(side.into())).run();
        assert_eq!(output.code(), 2, "{output:?}");
        assert!(output.stderr.contains("pirn: usage: "), "{output:?}");
        assert_eq!(output.stderr.starts_with(&help), !args.contains(&"-q"), "as it is: {output:?}");
        if args.iter().any(|arg| arg.starts_with("--json")) {
            assert_eq!(output.result()["error"]["kind"], "usage");
        } else {
            assert_eq!(output.stdout, "");
        }
    }
}

#[test]
fn a_terminal_behind_stdin_is_never_read() {
    let (_screen, side) = Terminal::open();
    let output = Pirn::demo(["say hello"]).stdin(Stdin::Custom(side.into())).run();
    assert_eq!((output.code(), output.stdout.as_str(), output.stderr.as_str()), (0, "hello\n", ""));
}
