//! Stdout and stderr as pipes: closed, full, slow, never read, and what may stand on them.

use std::fs::File;
use std::io::{PipeReader, Read};
use std::time::Duration;

use pirn::print::STALL_LIMIT;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::signals::{unread_pipe, wait_full};
use super::{Output, Pirn, Stdin, grammar};
use crate::support::chat::{chat_error, chat_text, chat_tool, chunk, sse, text_chunks, usage_chunk};
use crate::support::server::{Gate, Reply, Server, now};

/// A delta is on the pipe within this time of its arrival (OUT-18).
const DELAY: Duration = Duration::from_millis(200);

/// Text deltas, numbered so that a lost or doubled one shows.
fn deltas(count: usize, bytes: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:06}{}\n", "x".repeat(bytes - 7))).collect()
}

/// A stream of these deltas, up to but without its end.
fn streaming(deltas: &[String]) -> Reply {
    deltas.iter().fold(Reply::stream(), |reply, delta| reply.event(&chunk(&json!({"content": delta}), None)))
}

/// The end of such a stream.
fn ended(reply: Reply) -> Reply {
    reply.event(&chunk(&json!({}), Some("stop"))).event(&usage_chunk()).send("data: [DONE]\n\n")
}

fn full_device() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_reader_that_leaves_early_ends_the_run_quietly_out12() {
    const FIRST_LINE: &str = r#""$0" "$@" | head -n1; exit ${PIPESTATUS[0]}"#;
    const FIRST_BYTE: &str = r#""$0" "$@" | head -c1; exit ${PIPESTATUS[0]}"#;
    // More than a pipe and its reader take before the reader leaves.
    let server = Server::start([]).then_always(ended(streaming(&deltas(2000, 200))));
    let cases: [(&str, &[&str]); 5] = [
        (FIRST_LINE, &["--json", "x"]),
        (FIRST_LINE, &["--json=messages", "x"]),
        (FIRST_LINE, &["--stream", "x"]),
        (FIRST_BYTE, &["x"]),
        (FIRST_BYTE, &["--json=result", "x"]),
    ];
    for (script, args) in cases {
        let output = Pirn::of_server(&server, args.iter().copied()).script(script).run();
        assert_eq!((output.code(), output.stderr.as_str()), (141, ""), "{args:?}");
        assert_eq!(output.stdout.lines().count(), 1, "{args:?}");
    }
    // A pipe and its reader may take all of these, so whether the reader is still there is a matter of luck.
    for args in [&["models"][..], &["--help"], &["help"], &["--version"], &["-h"]] {
        let output = Pirn::new(args.iter().copied()).script(FIRST_LINE).run();
        assert!(matches!(output.code(), 0 | 141), "{output:?}");
        assert_eq!(output.stderr, "");
    }
}

#[test]
fn a_pipe_without_a_reader_is_quiet_out12() {
    for args in [
        &["models"][..],
        &["--help"],
        &["-h"],
        &["--version"],
        &["-m", "demo", "say x"],
        &["-m", "demo", "--json", "x"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Pirn::new(args.iter().copied()).stdout(writer).run();
        assert_eq!((output.code(), output.signal(), output.stderr.as_str()), (141, None, ""), "{args:?}");
    }
}

#[test]
fn a_failure_keeps_its_code_when_nobody_reads() {
    let rows: [(&[&str], i32); 5] = [
        (&["--nonsense"], 2),
        (&["--json", "--nonsense"], 2),
        (&["--json", "-m", "demo"], 2),
        (&["-m", "demo", "fail auth"], 77),
        (&["-m", "demo", "fail server"], 75),
    ];
    for (args, code) in rows {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Pirn::new(args.iter().copied()).soon().stdout(writer).run();
        assert_eq!(output.code(), code, "{args:?}");
        assert!(output.stderr.starts_with("pirn: "), "{output:?}");
    }
}

#[test]
fn a_run_ends_when_its_reader_leaves() {
    let gate = Gate::new();
    let deltas = deltas(3, 20);
    let server =
        Server::start([streaming(&deltas[..1]).wait(&gate).event(&chunk(&json!({"content": "b"}), None)).hold()]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let running = Pirn::of_server(&server, ["--json", "x"]).stdout(writer).spawn();
    read_until(&mut reader, &deltas[0][..6]);
    drop(reader);
    gate.open();
    assert!(server.wait_abandoned(1), "the request is given up");
    let output = running.wait();
    assert_eq!((output.code(), output.stderr.as_str()), (141, ""));
}

/// A reader of a socket of packets sees each write as it was.
#[test]
fn a_write_holds_whole_lines_up_to_the_size_of_a_pipe() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    for (bytes, whole) in [(20_000, true), (60_000, true), (100_000, false)] {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let prompt = Stdin::Bytes(format!("say {}", "x".repeat(bytes)).into_bytes());
        let running = Pirn::demo(["--json=result"]).stdin(prompt).stdout(theirs).spawn();
        let mut reader = File::from(ours);
        let mut packets: Vec<Vec<u8>> = Vec::new();
        let mut buffer = vec![0; 1 << 18];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            packets.push(buffer[..count].to_vec());
        }
        let mut output = running.wait();
        output.stdout = String::from_utf8(packets.concat()).unwrap();
        assert_eq!(output.result()["text"].as_str().unwrap().len(), bytes);
        assert_eq!(packets.iter().all(|packet| packet.ends_with(b"\n")), whole, "{bytes}");
    }
}

#[test]
fn a_stderr_that_nobody_reads_costs_neither_the_result_nor_much_time() {
    let lines = "a line of thinking\n".repeat(10_000);
    let thinking = chunk(&json!({"reasoning_content": lines}), None);
    let server = Server::start([Reply::stream().event(&thinking).hold()]);
    let (_reader, writer, watched) = unread_pipe();
    let args = ["--json", "-vv", "--set", "output.thinking=true", "x"];
    let running = Pirn::of_server(&server, args).stderr(writer).spawn();
    wait_full(&watched);
    running.wait_stdout("thinking_delta");
    let sent = now();
    running.signal(Signal::TERM);
    let output = running.wait();
    assert_eq!((output.code(), output.signal()), (143, Some(15)));
    assert_eq!(output.result()["reason"], "interrupted");
    assert!(sent.elapsed() < Duration::from_secs(4), "{:?}", sent.elapsed());
}

/// A signal to a process group also ends the reader.
#[test]
fn a_signal_that_also_ended_the_reader_is_the_cause() {
    let more = deltas(2000, 200);
    let gate = Gate::new();
    let mut reply = streaming(&deltas(1, 20)).wait(&gate);
    for delta in &more {
        reply = reply.event(&chunk(&json!({"content": delta}), None));
    }
    let server = Server::start([reply.hold()]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let running = Pirn::of_server(&server, ["--json", "x"]).stdout(writer).spawn();
    read_until(&mut reader, "000000");
    gate.open();
    running.signal(Signal::STOP);
    drop(reader);
    running.signal(Signal::INT);
    running.signal(Signal::CONT);
    let output = running.wait();
    assert_eq!((output.code(), output.signal()), (130, Some(2)), "{output:?}");
}

/// Reads on until a text has come.
fn read_until(reader: &mut PipeReader, text: &str) -> Vec<u8> {
    let mut seen = Vec::new();
    while !super::contains(&seen, text.as_bytes()) {
        let mut buffer = [0; 4096];
        let count = reader.read(&mut buffer).unwrap();
        assert!(count > 0, "{text:?} never came");
        seen.extend_from_slice(&buffer[..count]);
    }
    seen
}

#[test]
fn a_stderr_that_takes_nothing_changes_nothing() {
    let rows: [(&[&str], i32, &str); 4] = [
        (&["-v", "look"], 0, "This directory is empty.\n"),
        (&["-vv", "fail server"], 75, ""),
        (&["stop length"], 3, "This answer stops in the middle of\n"),
        (&["--max-turns", "1", "look"], 5, ""),
    ];
    for (args, code, stdout) in rows {
        let closed = Pirn::demo(args.iter().copied()).soon().script(r#"exec "$0" "$@" 2>&-"#).run();
        assert_eq!((closed.code(), closed.stdout.as_str()), (code, stdout), "{args:?}");
        let full = Pirn::demo(args.iter().copied()).soon().stderr(full_device()).run();
        assert_eq!((full.code(), full.stdout.as_str()), (code, stdout), "{args:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let left = Pirn::demo(args.iter().copied()).soon().stderr(writer).run();
        assert_eq!((left.code(), left.stdout.as_str()), (code, stdout), "{args:?}");
        let stream = Pirn::demo(["--json"].iter().chain(args).copied()).soon().stderr(full_device()).run();
        assert_eq!(stream.code(), code);
        stream.result();
    }
    let usage = Pirn::new(["--nonsense"]).stderr(full_device()).run();
    assert_eq!((usage.code(), usage.stdout.as_str()), (2, ""));
}

#[test]
fn a_full_disk_behind_stdout_is_an_error_of_kind_storage() {
    let modes: [&[&str]; 6] = [
        &["-m", "demo", "say x"],
        &["-m", "demo", "--stream", "say x"],
        &["-m", "demo", "--json", "say x"],
        &["-m", "demo", "--json=result", "say x"],
        &["models"],
        &["--help"],
    ];
    for args in modes {
        let output = Pirn::new(args.iter().copied()).stdout(full_device()).run();
        assert_eq!(output.code(), 1, "{args:?}: {output:?}");
        let lines: Vec<&str> = output.stderr.lines().collect();
        assert!(
            matches!(lines[..], [line] if line.starts_with("pirn: storage: ") && line.contains("No space left")),
            "{args:?}: {output:?}"
        );
    }
    // What failed first keeps its word.
    let output = Pirn::demo(["fail auth"]).stdout(full_device()).run();
    assert_eq!(output.code(), 77);
    assert!(output.stderr.starts_with("pirn: auth: "), "{output:?}");
    // Nowhere left to tell.
    let output = Pirn::demo(["say x"]).stdout(full_device()).stderr(full_device()).run();
    assert_eq!(output.code(), 1);
}

#[test]
fn each_delta_is_on_the_pipe_before_the_next_one_arrives_out18() {
    for mode in ["--json", "--stream"] {
        let deltas = deltas(11, 20);
        let gates: Vec<Gate> = deltas.iter().map(|_| Gate::new()).collect();
        let mut reply = Reply::stream();
        for (delta, gate) in deltas.iter().zip(&gates) {
            reply = reply.wait(gate).event(&chunk(&json!({"content": delta}), None));
        }
        let server = Server::start([ended(reply)]);
        let running = Pirn::of_server(&server, [mode, "x"]).spawn();
        assert!(server.wait_requests(1));
        let mut delays: Vec<Duration> = Vec::new();
        for (delta, gate) in deltas.iter().zip(&gates) {
            let sent = now();
            gate.open();
            running.wait_stdout(&delta[..6]);
            delays.push(sent.elapsed());
        }
        let output = running.wait();
        assert_eq!(output.code(), 0, "{output:?}");
        // One that the machine itself held up proves nothing.
        delays.sort();
        assert!(delays[delays.len() / 2] < DELAY, "{mode}: {delays:?}");
    }
}

#[test]
fn a_plain_pipe_gets_the_answer_once_it_is_final_out18() {
    let gate = Gate::new();
    let text = chunk(&json!({"content": "the answer"}), None);
    let mark = chunk(&json!({"reasoning_content": "behind the text\n"}), None);
    let reply = Reply::stream().event(&text).event(&mark).wait(&gate).event(&chunk(&json!({"content": "."}), None));
    let server = Server::start([ended(reply)]);
    let running = Pirn::of_server(&server, ["--set", "output.thinking=true", "x"]).spawn();
    running.wait_stderr("behind the text");
    assert_eq!(running.stdout_so_far(), "", "the text has come, and is held");
    gate.open();
    let output = running.wait();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "the answer.\n"));
}

#[test]
fn a_quiet_run_shows_a_line_of_life_when_asked_out18() {
    let gate = Gate::new();
    let server = Server::start([Reply::with({
        let gate = gate.clone();
        move |_| {
            gate.wait();
            chat_text("done")
        }
    })]);
    let running = Pirn::of_server(&server, ["-v", "--set", "output.heartbeat=20ms", "x"]).spawn();
    running.wait_stderr("pirn: running for");
    gate.open();
    let output = running.wait();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "done\n"));
}

/// Reads what comes in pieces of a few kilobytes, with a pause behind each.
fn read_slowly(reader: &mut PipeReader, into: &mut Vec<u8>, bytes_max: usize) {
    let mut buffer = vec![0; 48 * 1024];
    while into.len() < bytes_max {
        match reader.read(&mut buffer).unwrap() {
            0 => return,
            count => into.extend_from_slice(&buffer[..count]),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_slow_reader_gets_every_byte_out19() {
    let deltas = deltas(5000, 1000);
    let server = Server::start([ended(streaming(&deltas))]);
    let (mut reader, writer, watched) = unread_pipe();
    let running = Pirn::of_server(&server, ["--json", "x"]).stdout(writer).spawn();
    wait_full(&watched);
    drop(watched);
    let mut stdout = Vec::new();
    read_slowly(&mut reader, &mut stdout, usize::MAX);
    let mut output = running.wait();
    output.stdout = String::from_utf8(stdout).unwrap();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert!(output.stdout.len() > 5_000_000);
    // The grammar holds that the deltas add up to the text of the message.
    assert!(output.result()["text"] == deltas.concat(), "the whole text");
}

#[test]
fn a_signal_in_the_middle_leaves_a_slow_reader_a_whole_stream_out19() {
    let server = Server::start([streaming(&deltas(5000, 1000)).hold()]);
    let (mut reader, writer, watched) = unread_pipe();
    let running = Pirn::of_server(&server, ["--json", "x"]).stdout(writer).spawn();
    wait_full(&watched);
    drop(watched);
    let mut stdout = Vec::new();
    read_slowly(&mut reader, &mut stdout, 1_000_000);
    running.signal(Signal::TERM);
    read_slowly(&mut reader, &mut stdout, usize::MAX);
    let mut output = running.wait();
    output.stdout = String::from_utf8(stdout).unwrap();
    assert_eq!((output.code(), output.signal()), (143, Some(15)));
    let result = output.result();
    assert_eq!(result["reason"], "interrupted");
    let text = result["text"].as_str().unwrap();
    assert!(deltas(5000, 1000).concat().starts_with(text) && text.len() > 500_000, "the partial text");
}

/// A parent that shares the pipe may have set that mode.
#[test]
fn a_pipe_in_non_blocking_mode_loses_nothing() {
    let text = "0123456789".repeat(100_000);
    for args in [&["-m", "demo"][..], &["-m", "demo", "--json"], &["models"]] {
        let (mut reader, writer, watched) = unread_pipe();
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        let prompt = Stdin::Bytes(format!("say {text}").into_bytes());
        let running = Pirn::new(args.iter().copied()).stdin(prompt).stdout(writer).spawn();
        wait_full(&watched);
        drop(watched);
        let mut stdout = String::new();
        reader.read_to_string(&mut stdout).unwrap();
        let output = running.wait();
        assert_eq!(output.code(), 0, "{}", output.stderr);
        let expected = if args.contains(&"models") { "openai/" } else { &text };
        assert!(stdout.contains(expected) && stdout.ends_with('\n'), "{args:?}: {} bytes", stdout.len());
    }
}

/// The three ways to wait for such a reader take their ten seconds side by side.
#[test]
fn a_reader_that_never_reads_is_given_up() {
    let server = Server::start([streaming(&deltas(5000, 1000)).hold()]);
    let long = || Stdin::Bytes(format!("say {}", "0123456789".repeat(100_000)).into_bytes());
    let (_first, writer, in_the_run) = unread_pipe();
    // Signs of life are no signs of a reader.
    let run = Pirn::of_server(&server, ["--json", "--set", "output.heartbeat=100ms", "x"]).stdout(writer).spawn();
    let (_second, writer, at_the_end) = unread_pipe();
    let end = Pirn::demo(["--json"]).stdin(long()).stdout(writer).spawn();
    let (_third, writer, _) = unread_pipe();
    let timeout = Pirn::demo(["--timeout", "500ms"]).stdin(long()).stdout(writer).spawn();
    wait_full(&in_the_run);
    wait_full(&at_the_end);
    let sent = now();
    run.signal(Signal::TERM);
    end.signal(Signal::INT);
    for (running, code) in [(run, 143), (end, 130), (timeout, 124)] {
        let output = running.wait();
        assert_eq!(output.code(), code, "{output:?}");
        assert!(sent.elapsed() + Duration::from_secs(1) > STALL_LIMIT, "patience ended after {:?}", sent.elapsed());
        assert!(sent.elapsed() < STALL_LIMIT + Duration::from_secs(3), "after {:?}", sent.elapsed());
    }
}

#[test]
fn warnings_stand_on_stderr_and_every_line_of_stdout_is_json_out16() {
    let config = "[providers.local]\nbase_url = \"http://example.invalid\"\napi = \"openai-completions\"\n";
    let calls = [
        Pirn::demo(["--json", "x"]).stdin(Stdin::Bytes(Vec::new())),
        Pirn::demo(["--json", "-vv", "look"]),
        Pirn::demo(["--json", "--max-turns", "5", "look"]).file("a.toml", config),
        Pirn::demo(["--json", "stop length"]),
        Pirn::new(["--json", "-m", "nosuchmodel", "x"]),
        Pirn::new(["--json", "--config", "missing.toml", "x"]),
        Pirn::demo(["--json", "--set", "output.colour=never", "x"]),
        Pirn::demo(["--json"]),
    ];
    for call in calls {
        let output = call.run();
        grammar::check(&output.stdout);
        assert!(!output.stderr.is_empty() || output.code() == 0, "{output:?}");
        assert!(output.stderr.lines().all(|line| serde_json::from_str::<Value>(line).is_err()), "{output:?}");
    }
    let empty = Pirn::demo(["--json", "say x"]).stdin(Stdin::Bytes(Vec::new())).run();
    assert!(empty.stderr.starts_with("pirn: warning: "), "{empty:?}");
    assert_eq!(empty.code(), 0);
    let unknown = || Pirn::demo(["--json", "say x"]).env("PIRN_MODLE", "x");
    for (call, code) in [
        (unknown(), "config"),
        (Pirn::demo(["--json=messages", "say x"]).stdin(Stdin::Bytes(Vec::new())), "input"),
        (Pirn::demo(["--json", "stop length"]), "length"),
    ] {
        let output = call.run();
        let warnings = output.lines_of("warning");
        let told: Vec<_> = warnings.iter().map(|line| line["code"].as_str().unwrap()).collect();
        assert_eq!(told, [code], "{output:?}");
        let message = warnings[0]["message"].as_str().unwrap();
        assert!(output.stderr.contains(message), "stderr has it, too: {output:?}");
        assert_eq!(output.lines()[0]["type"], "session");
    }
}

#[test]
fn a_pipe_gets_the_final_answer_only_out21() {
    let script = || {
        let look = vec![
            chunk(&json!({"content": "let me look"}), None),
            chunk(
                &json!({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]}),
                None,
            ),
            chunk(&json!({}), Some("tool_calls")),
            usage_chunk(),
        ];
        Server::start([sse(&look), chat_text("final")])
    };
    let rows: [(&[&str], &str, &[&str]); 4] = [
        (&["x"], "final\n", &[]),
        (&["-q", "x"], "final\n", &[]),
        (&["-v", "x"], "final\n", &["• ls", "✓ ls"]),
        (&["--stream", "x"], "let me look\nfinal\n", &[]),
    ];
    for (args, stdout, activity) in rows {
        let server = script();
        let output = Pirn::of_server(&server, args.iter().copied()).run();
        assert_eq!((output.code(), output.stdout.as_str()), (0, stdout), "{args:?}");
        assert_eq!(output.stderr.is_empty(), activity.is_empty(), "{output:?}");
        for line in activity {
            assert!(output.stderr.contains(line), "{line:?}: {output:?}");
        }
        server.assert_clean();
    }
}

#[test]
fn the_bytes_of_an_answer_reach_a_pipe_unchanged() {
    let texts = ["a\u{1b}[31mred\u{1b}[0m\r\n\ttab\u{7}", "zwölf Boxkämpfer 🦀\u{2028}", "ends itself\n", "two\n\n"];
    for text in texts {
        let server = Server::start([chat_text(text), chat_text(text)]);
        for mode in [&["x"][..], &["--stream", "x"]] {
            let output = Pirn::of_server(&server, mode.iter().copied()).run();
            assert_eq!(output.stdout, format!("{}\n", text.trim_end_matches('\n')), "{mode:?}");
        }
    }
}

/// Output that ends in a failure leaves no text in a pipe, whatever had come.
#[test]
fn text_in_a_pipe_means_success() {
    let broken = || Reply::stream().event(&chunk(&json!({"content": "half"}), None)).close();
    let tool_then_error = || vec![chat_tool("ls", json!({})), chat_error(500, "oops", "Oops")];
    let filtered = || {
        let mut chunks = text_chunks("bad words");
        chunks[3] = chunk(&json!({}), Some("content_filter"));
        sse(&chunks)
    };
    let cases: Vec<(Vec<Reply>, i32)> = vec![(vec![broken()], 75), (tool_then_error(), 75), (vec![filtered()], 4)];
    for (replies, code) in cases {
        let output: Output = Pirn::of_server(&Server::start(replies), ["x"]).once().run();
        assert_eq!((output.code(), output.stdout.as_str()), (code, ""), "{output:?}");
    }
}
