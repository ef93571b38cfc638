//! Every exit code that can occur, the same in every output mode (OUT-01), and the grammar of the streams.

use pirn::model::ErrorKind;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Output, Pirn, Stdin, grammar};
use crate::support::chat::{chat_error, chat_text, chat_tool, chat_tools, chunk, sse, text_chunks, usage_chunk};
use crate::support::server::{Reply, Server};

/// The output modes; text first.
const MODES: [&[&str]; 4] = [&[], &["--json"], &["--json=messages"], &["--json=result"]];

/// The notice that precedes an error about a silent stdin.
const WAITING: &str = "pirn: waiting for stdin (use </dev/null or --no-stdin)";

/// What is called.
enum Call {
    /// With the demo model.
    Demo(&'static [&'static str]),
    /// Just these arguments.
    Bare(&'static [&'static str]),
    /// With a server that gives this answer to every request, none of which is sent again.
    Server(fn() -> Reply, &'static [&'static str]),
    /// With a server that never answers, until a signal comes.
    Signal(Signal),
    /// With the demo model, and no data on an open stdin.
    SilentStdin(&'static [&'static str]),
    /// With the demo model, into a pipe whose reader has left.
    NoReader(&'static [&'static str]),
}

/// One way to end, and what every mode says about it.
struct Row {
    name: &'static str,
    call: Call,
    code: i32,
    reason: &'static str,
    stop_reason: Option<&'static str>,
    /// `error.kind` of the result.
    kind: Option<&'static str>,
    /// Text on stdout; the same as `text` of the result where there is one.
    answer: &'static str,
    /// How the one line on stderr begins, where there is one without a kind.
    stderr: &'static str,
}

const fn answered(
    name: &'static str,
    call: Call,
    code: i32,
    stop: &'static str,
    answer: &'static str,
    stderr: &'static str,
) -> Row {
    let reason = match code {
        0 => "completed",
        3 => "length",
        _ => "max_turns",
    };
    Row { name, call, code, reason, stop_reason: Some(stop), kind: None, answer, stderr }
}

const fn unsent(name: &'static str, call: Call, code: i32, kind: &'static str) -> Row {
    let reason = if code == 77 { "auth" } else { "usage" };
    Row { name, call, code, reason, stop_reason: None, kind: Some(kind), answer: "", stderr: "" }
}

const fn failed(name: &'static str, call: Call, code: i32, kind: &'static str) -> Row {
    let reason = match code {
        75 => "unavailable",
        77 => "auth",
        4 => "refused",
        101 => "internal",
        _ => "error",
    };
    Row { name, call, code, reason, stop_reason: Some("error"), kind: Some(kind), answer: "", stderr: "" }
}

const fn aborted(name: &'static str, call: Call, code: i32, reason: &'static str, stderr: &'static str) -> Row {
    Row { name, call, code, reason, stop_reason: Some("aborted"), kind: None, answer: "", stderr }
}

fn hang() -> Reply {
    Reply::raw("").hold()
}

/// A reply of nothing but its end.
fn stopped(finish: &str) -> Reply {
    sse(&[chunk(&json!({}), Some(finish))])
}

/// A call of a file that is not there, then an answer.
fn failed_tool() -> Reply {
    Reply::with(|request| {
        if request.last_message()["role"] == "tool" {
            return chat_text("no such file");
        }
        let function = json!({"name": "read", "arguments": "{\"path\":\"missing\"}"});
        let call = json!({"index": 0, "id": "c", "type": "function", "function": function});
        sse(&[chunk(&json!({"tool_calls": [call]}), None), chunk(&json!({}), Some("tool_calls"))])
    })
}

use Call::{Bare, Demo, NoReader, Server as Served, SilentStdin};

const CUT: &str = "This answer stops in the middle of";
const SLOW: &[&str] = &["--set", "limits.first_event_timeout=100ms", "x"];
const X: &[&str] = &["x"];

/// Runs that end as they should, or at a limit of ours.
const ANSWERED: &[Row] = &[
    answered("an answer", Demo(&["say hello"]), 0, "stop", "hello", ""),
    answered("after a tool", Demo(&["look"]), 0, "stop", "This directory is empty.", ""),
    answered("after a failed tool", Served(failed_tool, X), 0, "stop", "no such file", ""),
    answered("a cut answer", Demo(&["stop length"]), 3, "length", CUT, "pirn: warning: "),
    answered("max_turns", Demo(&["--max-turns", "1", "call ls"]), 5, "toolUse", "", "pirn: max_turns: "),
];

/// Calls that no model is asked about.
const UNSENT: &[Row] = &[
    unsent("an unknown option", Bare(&["--nonsense"]), 2, "usage"),
    unsent("an option without its value", Bare(&["x", "-m"]), 2, "usage"),
    unsent("contradicting options", Bare(&["-q", "-v", "x"]), 2, "usage"),
    unsent("a value that is no number", Demo(&["--max-turns", "many", "x"]), 2, "usage"),
    unsent("an unknown key", Demo(&["--set", "nonsense.key=1", "x"]), 2, "config"),
    unsent("a value of the wrong type", Demo(&["--set", "limits.grace=[1]", "x"]), 2, "config"),
    unsent("no such configuration", Demo(&["--config", "missing.toml", "x"]), 2, "config"),
    unsent("an unknown model", Bare(&["-m", "nosuchmodel", "x"]), 2, "usage"),
    unsent("an unknown tool", Demo(&["-t", "nosuchtool", "x"]), 2, "usage"),
    unsent("a missing directory", Demo(&["-C", "missing", "x"]), 2, "usage"),
    unsent("a missing attachment", Demo(&["x", "@missing.txt"]), 2, "usage"),
    unsent("no prompt", Demo(&[]), 2, "usage"),
    unsent("an empty prompt", Demo(&[""]), 2, "usage"),
    unsent("silent stdin", SilentStdin(&["--set", "input.stdin_wait=50ms", "x"]), 2, "usage"),
    unsent("a missing key", Bare(&["-m", "openai/gpt-4o", "x"]), 77, "auth"),
];

/// Runs whose reply failed.
const FAILED: &[Row] = &[
    failed("a bad request", Served(|| chat_error(400, "bad", "no"), X), 1, "invalid_request"),
    failed("no such model there", Served(|| chat_error(404, "model_not_found", "no"), X), 1, "not_found"),
    failed("no credit", Served(|| chat_error(429, "insufficient_quota", "No credit"), X), 1, "quota"),
    failed("an empty reply", Served(|| stopped("stop"), X), 1, "empty"),
    failed("calls without calls", Served(|| stopped("tool_calls"), X), 1, "protocol"),
    failed("a refused key", Served(|| chat_error(401, "invalid_api_key", "Bad key"), X), 77, "auth"),
    failed("a forbidden model", Served(|| chat_error(403, "forbidden", "Not yours"), X), 77, "permission"),
    failed("too many requests", Served(|| chat_error(429, "rate_limit_exceeded", "Slow"), X), 75, "rate_limit"),
    failed("an overloaded server", Served(|| chat_error(503, "overloaded", "Busy"), X), 75, "overloaded"),
    failed("a broken server", Served(|| chat_error(500, "oops", "Oops"), X), 75, "server"),
    failed("a connection that breaks", Served(|| Reply::raw(""), X), 75, "network"),
    failed("a silent server", Served(hang, SLOW), 75, "timeout"),
    failed("a content filter", Served(|| stopped("content_filter"), X), 4, "content_filter"),
    failed("a refusal", Demo(&["fail refusal"]), 4, "refusal"),
    failed("a bug", Demo(&["fail internal"]), 101, "internal"),
];

/// Runs that were ended from outside.
const ABORTED: &[Row] = &[
    aborted("the timeout", Served(hang, &["--timeout", "200ms", "x"]), 124, "timeout", "pirn: timeout: "),
    aborted("SIGHUP", Call::Signal(Signal::HUP), 129, "interrupted", "pirn: interrupted: "),
    aborted("SIGINT", Call::Signal(Signal::INT), 130, "interrupted", "pirn: interrupted: "),
    aborted("SIGTERM", Call::Signal(Signal::TERM), 143, "interrupted", "pirn: interrupted: "),
    aborted("a reader that left", NoReader(&["say hello"]), 141, "pipe", ""),
];

impl Call {
    fn run(&self, mode: &[&str], server: Option<&Server>) -> Output {
        let with = |args: &[&'static str]| {
            mode.iter().map(ToString::to_string).chain(args.iter().map(ToString::to_string)).collect::<Vec<_>>()
        };
        match self {
            Self::Demo(args) => Pirn::demo(with(args)).run(),
            Self::Bare(args) => Pirn::new(with(args)).run(),
            Self::Server(_, args) => Pirn::of_server(server.unwrap(), with(args)).once().run(),
            Self::Signal(signal) => {
                let server = server.unwrap();
                let before = server.requests().len();
                let running = Pirn::of_server(server, with(&["x"])).spawn();
                assert!(server.wait_requests(before + 1));
                running.signal(*signal);
                running.wait()
            }
            Self::SilentStdin(args) => Pirn::demo(with(args)).stdin(Stdin::Silent).run(),
            Self::NoReader(args) => {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                Pirn::demo(with(args)).stdout(writer).run()
            }
        }
    }
}

/// A text without the id of the session to go on with, which each call has for itself.
fn without_id(stderr: &str) -> String {
    let (text, id) = stderr.split_once("pirn -c -s ").unwrap_or((stderr, ""));
    format!("{text}{}", id.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()))
}

impl Row {
    fn check(&self) {
        let server = match &self.call {
            Call::Server(reply, _) => Some(Server::start([]).then_always(reply())),
            Call::Signal(_) => Some(Server::start([]).then_always(hang())),
            _ => None,
        };
        let outputs = MODES.map(|mode| self.call.run(mode, server.as_ref()));
        for (output, mode) in outputs.iter().zip(MODES) {
            let shown = format!("{} {mode:?}: {output:#?}", self.name);
            assert_eq!(output.code(), self.code, "{shown}");
            assert_eq!(output.signal().is_some(), matches!(self.call, Call::Signal(_)), "a true signal death: {shown}");
            self.check_stderr(&output.stderr, &shown);
        }
        let [text, streams @ ..] = outputs;
        let printed = if self.answer.is_empty() { String::new() } else { format!("{}\n", self.answer) };
        assert_eq!(text.stdout, printed, "{}", self.name);
        for stream in streams {
            let [left, right] = [&stream, &text].map(|output| without_id(&output.stderr));
            assert_eq!(left, right, "{}: stderr does not depend on the mode", self.name);
            if matches!(self.call, Call::NoReader(_)) {
                continue;
            }
            let result = stream.result();
            assert_eq!(result["reason"], self.reason, "{}", self.name);
            assert_eq!(result["stopReason"], json!(self.stop_reason), "{}", self.name);
            assert_eq!(result["error"]["kind"], json!(self.kind), "{}", self.name);
            assert_eq!(result["text"], self.answer, "{}", self.name);
        }
    }

    /// One line that names the kind, or nothing at all.
    fn check_stderr(&self, stderr: &str, shown: &str) {
        let besides = |line: &&str| line.starts_with("hint: ") || *line == WAITING;
        let lines: Vec<&str> = stderr.lines().filter(|line| !besides(line)).collect();
        let start = self.kind.map_or(self.stderr.to_owned(), |kind| format!("pirn: {kind}: "));
        match lines[..] {
            [] => assert_eq!((start.as_str(), stderr), ("", ""), "{shown}"),
            [line] => assert!(!start.is_empty() && line.starts_with(&start) && line.len() > start.len(), "{shown}"),
            _ => panic!("{shown}"),
        }
    }
}

#[test]
fn a_refused_call_is_told_to_programs() {
    use crate::support::chat::{chat_text, chat_tool};
    let args = serde_json::json!({"path": "/etc/passwd"});
    let server = || crate::support::server::Server::start([chat_tool("read", args.clone()), chat_text("done")]);
    let confined = ["--set", "tools.confine=all", "-t", "read", "x"];
    for mode in [&["--json"][..], &["--json=messages"], &["--json=result"], &[]] {
        let server = server();
        let output = Pirn::of_server(&server, mode.iter().chain(&confined).copied()).run();
        assert_eq!(output.code(), 0, "{output:?}");
        assert_eq!(output.stderr.matches("pirn: warning: read was denied: ").count(), 1, "{output:?}");
        assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
        if mode.is_empty() {
            continue;
        }
        let result = output.result();
        assert_eq!(result["denials"][0]["toolName"], "read");
        assert_eq!(result["denials"][0]["rule"], "confine");
        let lines = output.lines_of("permission_denied");
        assert_eq!(lines.len(), usize::from(mode[0] != "--json=result"));
        assert!(lines.iter().all(|line| !line["reason"].as_str().unwrap().is_empty()), "{lines:?}");
    }
}

#[test]
fn a_mistake_is_told_in_json_wherever_that_was_asked_for() {
    let set = ["--set", "output.json=events"];
    let calls = [
        Pirn::demo(set).script(r#""$0" "$@" --set zz=1 x"#),
        Pirn::demo(["--set", "output.json=result", "--bogus"]),
        Pirn::demo(["--set=output.json=\"messages\"", "--bogus"]),
        Pirn::demo(set).script(r#""$0" "$@" -C /nowhere x"#),
        Pirn::demo(["--config", "a.toml", "x"]).file("a.toml", "nonsense = 1\n[output]\njson = \"result\"\n"),
    ];
    for call in calls {
        let output = call.run();
        let result = output.result();
        assert_eq!((output.code(), &result["reason"]), (2, &serde_json::json!("usage")), "{output:?}");
    }
    let output = Pirn::demo(["--bogus", "--", "--set", "output.json=events"]).run();
    assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "words are no options");
}

#[test]
fn every_exit_code_is_the_same_in_every_output_mode() {
    for row in [ANSWERED, UNSENT, FAILED, ABORTED].into_iter().flatten() {
        row.check();
    }
}

/// The code of a kind that a model call failed with, from the table of `exit`.
fn documented_code(kind: &str) -> i32 {
    match kind {
        "auth" | "permission" => 77,
        "rate_limit" | "overloaded" | "server" | "network" | "timeout" | "busy" => 75,
        "refusal" | "content_filter" => 4,
        "internal" => 101,
        _ => 1,
    }
}

#[test]
fn every_error_kind_can_be_shown_offline_with_its_code() {
    for kind in ErrorKind::ALL {
        let word = kind.as_str();
        let text = Pirn::demo([format!("fail {word}")]).once().run();
        let stream = Pirn::demo(["--json".to_owned(), format!("fail {word}")]).once().run();
        assert_eq!(text.code(), documented_code(word), "{word}");
        assert_eq!(stream.code(), text.code(), "{word}");
        assert_eq!(text.stdout, "", "{word}");
        assert!(text.stderr.starts_with(&format!("pirn: {word}: ")), "{}", text.stderr);
        assert_eq!(stream.stderr, text.stderr, "{word}");
        let result = stream.result();
        assert_eq!(result["error"]["kind"], word);
        assert_eq!(result["error"]["retryable"], documented_code(word) == 75);
    }
}

#[test]
fn a_refused_key_fails_alike_with_text_and_json_out01() {
    let server = Server::start([]).then_always(chat_error(401, "invalid_api_key", "Incorrect API key provided."));
    let text = Pirn::of_server(&server, ["x"]).run();
    let stream = Pirn::of_server(&server, ["--json", "x"]).run();
    assert_eq!((text.code(), stream.code()), (77, 77));
    assert_eq!(text.stdout, "");
    assert!(text.stderr.contains("401") && text.stderr.contains("Incorrect API key"), "{}", text.stderr);
    let result = stream.result();
    assert_eq!(result["error"]["kind"], "auth");
    assert_eq!(result["error"]["httpStatus"], 401);
    assert!(text.stderr.contains(result["error"]["message"].as_str().unwrap()), "{}", text.stderr);
}

#[test]
fn a_rate_limit_is_never_an_answer_out02() {
    let limited = || chat_error(429, "rate_limit_exceeded", "Rate limit reached").header("retry-after", "7");
    let server = Server::start([]).then_always(limited());
    let text = Pirn::of_server(&server, ["x"]).once().run();
    assert_eq!((text.code(), text.stdout.as_str()), (75, ""));
    let message = text.stderr.lines().filter(|line| line.starts_with("pirn: ")).count();
    assert_eq!(message, 1, "{}", text.stderr);
    assert!(
        text.stderr.contains("429") && text.stderr.contains("hint: try again in 7 s"),
        "status and delay: {}",
        text.stderr
    );
    let stream = Pirn::of_server(&server, ["--json", "x"]).once().run();
    let result = stream.result();
    assert_eq!(result["error"]["kind"], "rate_limit");
    assert_eq!(result["error"]["retryAfterMs"], 7000);
    assert_eq!((&result["ok"], &result["reason"]), (&json!(false), &json!("unavailable")));
    assert!(!stream.stdout.contains("\"stop\"") && !stream.stdout.contains("completed"), "{}", stream.stdout);
}

#[test]
fn an_empty_answer_is_an_error_out08() {
    let nothing = || sse(&[chunk(&json!({}), Some("stop"))]);
    let thoughts = || sse(&[chunk(&json!({"reasoning_content": "hm"}), None), chunk(&json!({}), Some("stop"))]);
    for reply in [nothing(), thoughts()] {
        let server = Server::start([]).then_always(reply);
        let text = Pirn::of_server(&server, ["x"]).once().run();
        assert_eq!((text.code(), text.stdout.as_str()), (1, ""));
        assert!(text.stderr.starts_with("pirn: empty: "), "{}", text.stderr);
        let stream = Pirn::of_server(&server, ["--json", "x"]).once().run();
        assert_eq!(stream.result()["error"]["kind"], "empty");
        assert_eq!(stream.result()["error"]["retryable"], true);
    }
}

#[test]
fn three_turns_are_three_requests_acc03() {
    let server = Server::start([]).then_always(chat_tool("ls", json!({})));
    let stream = Pirn::of_server(&server, ["--json", "--max-turns", "3", "x"]).run();
    let result = stream.result();
    assert_eq!(stream.code(), 5);
    assert_eq!((&result["reason"], &result["turns"], &result["requests"]), (&json!("max_turns"), &json!(3), &json!(3)));
    assert_eq!(server.requests().len(), 3);
    let last = stream.lines_of("turn_end").pop().unwrap();
    assert_eq!(last["toolResults"].as_array().unwrap().len(), 1, "the last batch has its results");
    assert!(stream.stderr.starts_with("pirn: max_turns: "), "{}", stream.stderr);
    assert!(server.violations().is_empty());
}

#[test]
fn the_turn_limit_warns_once_at_eighty_percent_acc03() {
    let server = Server::start([]).then_always(chat_tool("ls", json!({})));
    for mode in MODES {
        let output = Pirn::of_server(&server, mode.iter().copied().chain(["--max-turns", "5", "x"])).run();
        assert_eq!(output.code(), 5);
        let warnings: Vec<&str> = output.stderr.lines().filter(|line| line.starts_with("pirn: warning: ")).collect();
        assert!(matches!(warnings[..], [warning] if warning.contains("turn 5 of at most 5")), "{}", output.stderr);
    }
    let stream = Pirn::of_server(&server, ["--json", "--max-turns", "5", "x"]).run();
    let kinds: Vec<Value> = stream.lines().iter().map(|line| line["type"].clone()).collect();
    let warning = kinds.iter().position(|kind| kind == "warning").unwrap();
    assert_eq!(kinds[warning + 1], "turn_start", "before the fifth turn");
    assert_eq!(kinds[..warning].iter().filter(|kind| *kind == "turn_start").count(), 4);
}

/// Real runs of all kinds; what each line must be follows from the grammar.
#[test]
fn every_stream_follows_the_grammar() {
    let text = |reply: &str| chat_text(reply);
    let two = [("ls", json!({})), ("read", json!({"path": "missing"}))];
    let broken = || Reply::stream().event(&chunk(&json!({"content": "half an"}), None)).close();
    let cut_call = || {
        let call = json!({"index": 0, "id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}});
        sse(&[chunk(&json!({"tool_calls": [call]}), None), chunk(&json!({}), Some("length")), usage_chunk()])
    };
    let thinking = || {
        let thought = chunk(&json!({"reasoning_content": "hm "}), None);
        let mut chunks = vec![thought.clone(), thought];
        chunks.extend(text_chunks("so"));
        sse(&chunks)
    };
    let scripts: Vec<(&str, Vec<Reply>, i32)> = vec![
        ("text", vec![text("hello")], 0),
        ("thinking and text", vec![thinking()], 0),
        ("a tool", vec![chat_tool("ls", json!({})), text("done")], 0),
        ("two tools at once", vec![chat_tools(&two), text("done")], 0),
        ("an unknown tool", vec![chat_tool("nosuch", json!({})), text("done")], 0),
        ("invalid arguments", vec![chat_tool("read", json!({"path": 1, "more": 2})), text("done")], 0),
        ("repaired arguments", vec![chat_tool("read", json!({"file_path": "a"})), text("done")], 0),
        ("a cut call", vec![cut_call(), text("done")], 0),
        ("a stream that breaks off", vec![broken()], 75),
        ("a failure behind a tool", vec![chat_tool("ls", json!({})), chat_error(500, "oops", "Oops")], 75),
    ];
    for (name, replies, code) in scripts {
        for mode in ["--json", "--json=messages", "--json=result"] {
            let server = Server::start(replies.clone());
            let output = Pirn::of_server(&server, [mode, "x"]).once().run();
            assert_eq!(output.code(), code, "{name}: {output:?}");
            let lines = grammar::check(&output.stdout);
            assert_eq!(lines.len() == 1, mode == "--json=result", "{name}");
            let updates = lines.iter().filter(|line| line["type"] == "message_update").count();
            assert_eq!(updates > 0, mode == "--json", "{name}: deltas only with all events");
            output.result();
            server.assert_clean();
        }
    }
}
