//! The prompt: arguments, files and stdin, as the server gets them (cases IN-01 to IN-09).

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{KEY, Output, Pirn, Running, Stdin};
use crate::support::chat::chat_text;
use crate::support::server::Server;

/// What stderr says while stdin is silent.
const NOTICE: &str = "pirn: waiting for stdin (use </dev/null or --no-stdin)\n";

/// A way to give a prompt: its name in errors, and the call.
type Way<'a> = (&'static str, Box<dyn Fn(&Server) -> Pirn + 'a>);

/// A call whose first argument is the test's own, unlike that of [`Pirn::of_server`].
fn call<S: Into<std::ffi::OsString>>(server: &Server, args: impl IntoIterator<Item = S>) -> Pirn {
    Pirn::new(args)
        .env("PIRN_MODEL", "openai/test-model")
        .env("OPENAI_BASE_URL", server.base_url())
        .env("OPENAI_API_KEY", KEY)
}

fn answering() -> Server {
    Server::start([chat_text("OK")])
}

/// The user's message of the only request, as the server got it.
fn prompt_of(server: &Server) -> String {
    server.assert_clean();
    let bodies = server.bodies();
    let messages = bodies[0]["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[1]["role"]), (2, &"user".into()), "{messages:?}");
    messages[1]["content"].as_str().unwrap().to_owned()
}

/// Runs a call that must succeed, and gives the prompt it sent.
fn sent(make: impl FnOnce(&Server) -> Pirn) -> (String, Output) {
    let server = answering();
    let output = make(&server).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "{}", output.stderr);
    (prompt_of(&server), output)
}

/// Runs a call that must be refused before anything is sent, and gives what stderr says.
fn refused(make: impl FnOnce(&Server) -> Pirn) -> String {
    let server = Server::start([]);
    let output = make(&server).run();
    assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{}", output.stderr);
    assert_eq!(server.connections(), 0, "no request is sent");
    output.stderr
}

/// Starts a call through a shell, with a redirection the runner cannot make.
fn redirected(call: Pirn, redirection: &str) -> Running {
    call.script(format!("exec \"$0\" \"$@\" {redirection}")).spawn()
}

#[test]
fn a_named_pipe_that_stays_silent_is_announced_and_then_an_error_with_the_remedy_in01() {
    let server = Server::start([]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    // A writer that never writes and does not go away.
    let writer = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    let running = call(&server, ["--set", "input.stdin_wait=3s", "--json", "Reply OK"])
        .stdin(Stdin::Custom(reader.into()))
        .spawn();
    running.wait_stderr(NOTICE);
    let output = running.wait();
    drop(writer);
    assert!(output.elapsed >= Duration::from_secs(3), "{:?}", output.elapsed);
    assert!(output.stderr.contains("pirn: usage: no data on stdin within 3s\n"), "{}", output.stderr);
    assert!(output.stderr.contains("</dev/null") && output.stderr.contains("--no-stdin"), "{}", output.stderr);
    let result = output.result();
    assert_eq!((output.code(), &result["reason"], &result["error"]["kind"]), (2, &"usage".into(), &"usage".into()));
    assert_eq!(output.lines().len(), 1, "usage errors print `result` alone");
    assert_eq!(server.connections(), 0);
}

#[test]
fn the_timeout_of_the_run_covers_the_wait_for_stdin_in01() {
    let server = Server::start([]);
    for args in [["--timeout", "1500ms", "--json", "x"], ["--timeout", "1500ms", "--json", "-"]] {
        let output = call(&server, args).stdin(Stdin::Silent).run();
        let result = output.result();
        assert_eq!((output.code(), &result["reason"]), (124, &"timeout".into()), "{args:?}: {}", output.stderr);
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_signal_ends_the_wait_for_stdin_in01() {
    let server = Server::start([]);
    let running = call(&server, ["x"]).stdin(Stdin::Silent).spawn();
    running.wait_stderr(NOTICE);
    running.signal(rustix::process::Signal::TERM);
    let output = running.wait();
    assert_eq!((output.code(), output.signal(), output.stdout.as_str()), (143, Some(15), ""), "{}", output.stderr);
    assert_eq!(server.connections(), 0);
}

#[test]
fn the_null_device_a_closed_stdin_and_a_socket_are_no_data_in01() {
    for redirection in ["</dev/null", "<&-"] {
        let server = answering();
        let output = redirected(call(&server, ["Reply OK"]), redirection).wait();
        assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "{redirection}: {}", output.stderr);
        assert_eq!((prompt_of(&server).as_str(), output.stderr.as_str()), ("Reply OK", ""), "{redirection}");
    }
    let (_held, socket) = UnixStream::pair().unwrap();
    let (prompt, output) = sent(|server| call(server, ["Reply OK"]).stdin(Stdin::Custom(OwnedFd::from(socket).into())));
    assert_eq!((prompt.as_str(), output.stderr.as_str()), ("Reply OK", ""), "a socket beside a prompt is left alone");
    let (prompt, output) = sent(|server| call(server, ["--no-stdin", "Reply OK"]).stdin(Stdin::Silent));
    assert_eq!((prompt.as_str(), output.stderr.as_str()), ("Reply OK", ""), "--no-stdin");
}

#[test]
fn a_stdin_that_holds_no_data_is_no_prompt_and_no_stdin_forbids_the_dash_in01() {
    let read = "pirn: usage: cannot read stdin: it is a directory\n";
    let empty = "pirn: usage: no prompt: stdin is empty\n";
    let forbidden = "pirn: usage: - asks for stdin, but --no-stdin forbids it\n";
    let none = "pirn: usage: no prompt\n";
    // Arguments, redirection, what stderr begins with; nothing where the call is answered.
    let table: [(&[&str], &str, &str); 16] = [
        (&["x"], "</dev/null", ""),
        (&["x"], "<&-", ""),
        (&["x"], "<.", ""),
        (&["x"], "<empty", "pirn: warning: stdin is empty"),
        (&["-q"], "</dev/null", empty),
        (&["-q"], "<&-", empty),
        (&["-q"], "<.", read),
        (&["-q"], "<empty", empty),
        (&["-"], "</dev/null", empty),
        (&["-"], "<&-", empty),
        (&["x", "-"], "<.", read),
        (&["--no-stdin", "x"], "<.", ""),
        (&["--no-stdin", "x"], "<empty", ""),
        (&["--no-stdin"], "<empty", none),
        (&["--no-stdin", "-"], "<empty", forbidden),
        (&["--no-stdin", "-f", "-", "x"], "</dev/null", forbidden),
    ];
    for (args, redirection, stderr) in table {
        let output = redirected(Pirn::demo(args).file("empty", ""), redirection).wait();
        let is_answered = stderr.is_empty() || stderr.contains("warning");
        assert_eq!(output.code(), if is_answered { 0 } else { 2 }, "{args:?} {redirection}: {}", output.stderr);
        assert!(output.stderr.starts_with(stderr), "{args:?} {redirection}: {}", output.stderr);
        assert!(!(stderr.is_empty() && output.stderr.contains("stdin")), "{args:?} {redirection}: {}", output.stderr);
    }
}

#[test]
fn piped_data_a_file_and_a_slow_producer_reach_the_model_in_full_in01() {
    let expected = "explain\n\n<stdin>\ndata\n</stdin>";
    let (prompt, output) = sent(|server| call(server, ["explain"]).stdin(Stdin::Bytes(b"data".to_vec())));
    assert_eq!((prompt.as_str(), output.stderr.as_str()), (expected, ""));

    let server = answering();
    let output = redirected(call(&server, ["explain"]).file("data.txt", "data\n"), "<data.txt").wait();
    assert_eq!((output.code(), prompt_of(&server).as_str()), (0, expected), "{}", output.stderr);

    let server = answering();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let running = call(&server, ["explain"]).stdin(Stdin::Custom(reader.into())).spawn();
    running.wait_stderr(NOTICE);
    assert_eq!(server.connections(), 0, "nothing is sent before stdin has ended");
    writer.write_all(b"da").unwrap();
    writer.write_all(b"ta\n").unwrap();
    drop(writer);
    let output = running.wait();
    assert_eq!((output.code(), prompt_of(&server).as_str()), (0, expected), "{}", output.stderr);
    assert_eq!(output.stderr, NOTICE);
}

#[test]
fn a_socket_is_read_where_stdin_is_asked_for_in01() {
    for args in [vec!["-"], vec![]] {
        let (mut writer, socket) = UnixStream::pair().unwrap();
        writer.write_all(b"from a socket").unwrap();
        drop(writer);
        let (prompt, _) = sent(|server| call(server, args).stdin(Stdin::Custom(OwnedFd::from(socket).into())));
        assert_eq!(prompt, "from a socket");
    }
}

#[test]
fn text_that_looks_like_an_option_is_a_prompt_in03() {
    for (args, expected) in [
        (&["--", "- summarise these points"][..], "- summarise these points"),
        (&["--", "--help me please"], "--help me please"),
        (&["--", "--json", "-", "@x"], "--json - @x"),
        (&["- two words"], "- two words"),
        (&["-p", "--", "---\nname: x\n---\nDo it"], "---\nname: x\n---\nDo it"),
    ] {
        let (prompt, _) = sent(|server| call(server, args.iter().copied()));
        assert_eq!(prompt, expected, "{args:?}");
    }
    for text in ["- x", "--help", "-"] {
        let (prompt, _) = sent(|server| call(server, ["-q"]).stdin(Stdin::Bytes(text.into())));
        assert_eq!(prompt, text, "stdin is never parsed for options");
    }
    for args in [&["--help me please"][..], &["-p", "---\nname: x\n---\nDo it"], &["-1+1"], &["--no-such-thing"]] {
        let stderr = refused(|server| call(server, args.iter().copied()));
        assert!(stderr.contains("pirn -- PROMPT"), "{args:?}: the remedy is named: {stderr}");
    }
}

#[test]
fn an_option_that_takes_text_takes_the_next_argument_verbatim_in04() {
    let front_matter = "---\nname: x\n---\nDo it";
    for (args, expected) in [
        (vec!["--system", front_matter, "hi"], front_matter),
        (vec!["--append-system", front_matter, "hi"], front_matter),
        (vec!["--system=---x", "hi"], "---x"),
        (vec!["--append-system", "--json", "hi"], "--json"),
        (vec!["--system", "-", "hi"], "-"),
    ] {
        let server = answering();
        let output = call(&server, &args).run();
        assert_eq!(output.code(), 0, "{args:?}: {}", output.stderr);
        assert_eq!(prompt_of(&server), "hi");
        let bodies = server.bodies();
        let system = bodies[0]["messages"][0]["content"].as_str().unwrap();
        let parts: Vec<&str> = system.split("\n\n").collect();
        assert!(parts.contains(&expected), "{args:?}: {system}");
    }
}

#[test]
fn a_prompt_of_300_kb_arrives_unshortened_however_it_is_given_in05() {
    let text = "A line of a diff, not ASCII only: é 你好 🎉\n".repeat(300 * 1024 / 40);
    assert!(text.len() > 300 * 1024);
    let piped = || Stdin::Bytes(text.clone().into_bytes());
    let ways: [Way<'_>; 3] = [
        ("stdin", Box::new(|server| call(server, ["-q"]).stdin(piped()))),
        ("-", Box::new(|server| call(server, ["-"]).stdin(piped()))),
        ("-f", Box::new(|server| call(server, ["-f", "big.txt"]).file("big.txt", &text))),
    ];
    for (name, make) in ways {
        let (prompt, _) = sent(|server| make(server));
        assert!(prompt == text, "{name}: {} of {} bytes", prompt.len(), text.len());
    }
    let (prompt, _) = sent(|server| call(server, ["explain"]).stdin(piped()));
    assert!(prompt == format!("explain\n\n<stdin>\n{text}</stdin>"), "beside a prompt: {} bytes", prompt.len());
    let help = Pirn::new(["-h"]).run();
    assert!(help.stdout.contains("Large prompts do not fit into an argument: pipe them in or use -f FILE"));
}

#[test]
fn a_prompt_over_the_limit_is_refused_in05() {
    let stderr = refused(|server| call(server, ["x"]).stdin(Stdin::Bytes(vec![b'x'; 10 * 1024 * 1024 + 1])));
    assert!(stderr.contains("longer than 10 MB"), "{stderr}");
}

#[test]
fn marks_are_removed_utf16_is_decoded_and_other_bytes_are_refused_in06() {
    for bytes in [&b"\xef\xbb\xbfhi"[..], b"\xff\xfeh\0i\0", b"\xfe\xff\0h\0i"] {
        let (prompt, _) = sent(|server| call(server, ["-q"]).stdin(Stdin::Bytes(bytes.to_vec())));
        assert_eq!(prompt, "hi", "{bytes:?}");
        let (prompt, _) = sent(|server| call(server, ["-f", "p.txt"]).file("p.txt", bytes));
        assert_eq!(prompt, "hi", "-f {bytes:?}");
        let (prompt, _) = sent(|server| call(server, ["@p.txt", "x"]).file("p.txt", bytes));
        assert_eq!(prompt, "x\n\n<file path=\"p.txt\">\nhi\n</file>", "@ {bytes:?}");
    }
    let bad = b"ab\xffc";
    let ways: [Way<'_>; 4] = [
        ("stdin", Box::new(|server| call(server, ["-q"]).stdin(Stdin::Bytes(bad.to_vec())))),
        ("stdin", Box::new(|server| call(server, ["x"]).stdin(Stdin::Bytes(bad.to_vec())))),
        ("p.txt", Box::new(|server| call(server, ["-f", "p.txt"]).file("p.txt", bad))),
        ("p.txt", Box::new(|server| call(server, ["-a", "p.txt", "x"]).file("p.txt", bad))),
    ];
    for (name, make) in ways {
        let stderr = refused(|server| make(server));
        assert!(stderr.contains(&format!("{name} is not valid UTF-8: byte 0xFF at offset 2")), "{stderr}");
        assert!(stderr.contains("iconv"), "how to convert: {stderr}");
    }
}

#[test]
fn only_a_word_with_an_at_sign_may_have_been_text() {
    let remedy = "after -- an argument with @ is plain text";
    for (args, has) in [(&["-a", "no"][..], false), (&["-a", "-", "@no"], true), (&["@no", "x"], true)] {
        let call = Pirn::demo(args.iter().copied()).stdin(Stdin::Bytes(b"x".to_vec())).run();
        assert_eq!((call.code(), call.stderr.contains(remedy)), (2, has), "{args:?}: {}", call.stderr);
    }
}

#[test]
fn an_empty_prompt_is_refused_and_an_empty_pipe_beside_one_is_a_warning_in08() {
    for bytes in [&b""[..], b" \n", b"\xef\xbb\xbf\n"] {
        for args in [&["-q"][..], &["-"]] {
            let stderr = refused(|server| call(server, args.iter().copied()).stdin(Stdin::Bytes(bytes.to_vec())));
            assert!(stderr.starts_with("pirn: usage: no prompt"), "{bytes:?}: {stderr}");
        }
    }
    for args in [&[""][..], &[" \n"], &["--", ""], &["-f", "empty.txt"]] {
        let stderr = refused(|server| call(server, args.iter().copied()).file("empty.txt", "\n"));
        assert!(stderr.starts_with("pirn: usage: the prompt ") && stderr.contains("empty"), "{args:?}: {stderr}");
    }
    let stderr = refused(|server| call(server, ["-q"]));
    assert!(stderr.starts_with("pirn: usage: no prompt"), "the null device alone: {stderr}");

    for bytes in [&b""[..], b" \n"] {
        let (prompt, output) = sent(|server| call(server, ["summary"]).stdin(Stdin::Bytes(bytes.to_vec())));
        assert_eq!(prompt, "summary", "no <stdin> block");
        assert_eq!(output.stderr, "pirn: warning: stdin is empty; only the prompt was sent\n");
    }
}

#[test]
fn a_mistyped_command_is_refused_with_both_ways_out_in09() {
    let stderr = refused(|server| call(server, ["sesion", "list"]));
    assert!(stderr.contains("`sesion` looks like the command `sessions`"), "{stderr}");
    assert!(stderr.contains("pirn sessions") && stderr.contains("pirn -- sesion"), "{stderr}");
    let (prompt, _) = sent(|server| call(server, ["--", "sesion", "list"]));
    assert_eq!(prompt, "sesion list");
    let (prompt, _) = sent(|server| call(server, ["sesion list"]));
    assert_eq!(prompt, "sesion list", "one argument with a space is no command");
    for args in [&["-p", "models"][..], &["--", "models"], &["-q", "models"]] {
        let (prompt, _) = sent(|server| call(server, args.iter().copied()));
        assert_eq!(prompt, "models", "only the first argument can be a command: {args:?}");
    }
}

#[test]
fn parts_stand_in_order_with_a_blank_line_between_them_cli_3() {
    let (prompt, _) = sent(|server| {
        call(server, ["first", "@b.txt", "-f", "p.md", "second  word", "-a", "a.txt", "-"])
            .file("p.md", "From a file\n")
            .file("a.txt", "A\n")
            .file("b.txt", "B")
            .stdin(Stdin::Bytes(b"x < y & \"z\"\n\n".to_vec()))
    });
    let expected = "From a file\n\nfirst second  word\n\n<file path=\"a.txt\">\nA\n</file>\n\n\
                    <file path=\"b.txt\">\nB\n</file>\n\n<stdin>\nx < y & \"z\"\n\n</stdin>";
    assert_eq!(prompt, expected);
}

#[test]
fn attachments_keep_their_bytes_and_their_names_are_quoted_cli_3() {
    let name = "a\"<b>&.txt";
    let (prompt, _) = sent(|server| call(server, ["-a", name, "x"]).file(name, "1\r\n\t2"));
    assert_eq!(prompt, "x\n\n<file path=\"a&quot;&lt;b&gt;&amp;.txt\">\n1\r\n\t2\n</file>");
    let (prompt, _) = sent(|server| call(server, ["@a.txt"]).file("a.txt", "alone\n"));
    assert_eq!(prompt, "<file path=\"a.txt\">\nalone\n</file>", "an attachment alone is a prompt");
    let (prompt, _) = sent(|server| call(server, ["@a b", "mail me@x.org"]));
    assert_eq!(prompt, "@a b mail me@x.org", "white space in it, or not at the start: text");
    let (prompt, _) = sent(|server| call(server, ["x", "@empty.txt"]).file("empty.txt", ""));
    assert_eq!(prompt, "x\n\n<file path=\"empty.txt\">\n</file>");
}

#[test]
fn a_file_that_cannot_be_read_is_named_before_anything_is_waited_for_cli_3() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01";
    for (args, wanted) in [
        (&["@no.txt", "x"][..], &["no.txt", "no such file", "after --", "plain text"][..]),
        (&["-a", "no.txt", "x"], &["no.txt", "no such file"]),
        (&["-f", "no.txt"], &["no.txt", "no such file"]),
        (&["-f", "dir"], &["dir", "it is a directory"]),
        (&["@dir", "x"], &["dir", "it is a directory"]),
        (&["@nul.bin", "x"], &["nul.bin", "NUL byte at offset 1"]),
        (&["@cut.png", "x"], &["cut.png is not valid UTF-8: byte 0x89 at offset 0"]),
        (&["-f", "i.png"], &["i.png", "is a PNG image, not text"]),
    ] {
        let stderr = refused(|server| {
            let call = call(server, args.iter().copied())
                .file("nul.bin", b"a\0b")
                .file("i.png", png)
                .file("cut.png", &png[..11]);
            std::fs::create_dir(call.dir().join("dir")).unwrap();
            // Would the files not come first, the silent pipe would be waited for.
            call.stdin(Stdin::Silent)
        });
        for text in wanted {
            assert!(stderr.contains(text), "{args:?}: {text:?} in {stderr}");
        }
        assert!(!stderr.contains("waiting"), "{stderr}");
    }
}

#[test]
fn contradictions_about_stdin_are_refused() {
    let stderr = refused(|server| call(server, ["--no-stdin", "-"]).stdin(Stdin::Bytes(b"x".to_vec())));
    assert!(stderr.contains("--no-stdin forbids it"), "{stderr}");
    let stderr = refused(|server| call(server, ["--no-stdin"]).stdin(Stdin::Bytes(b"x".to_vec())));
    assert!(stderr.starts_with("pirn: usage: no prompt"), "{stderr}");
}

#[test]
fn another_working_directory_holds_for_files_and_for_the_model() {
    let make = |server: &Server, args: &[&str]| {
        let call = call(server, args.iter().copied()).file("a.txt", "outside");
        std::fs::create_dir(call.dir().join("sub")).unwrap();
        std::fs::write(call.dir().join("sub/a.txt"), "inside").unwrap();
        std::fs::write(call.dir().join("sub/p.md"), "Do it").unwrap();
        call
    };
    let server = answering();
    let call = make(&server, &["-C", "sub", "-f", "p.md", "@a.txt"]);
    let cwd = call.dir().join("sub").canonicalize().unwrap();
    let output = call.run();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert_eq!(prompt_of(&server), "Do it\n\n<file path=\"a.txt\">\ninside\n</file>");
    let bodies = server.bodies();
    let system = bodies[0]["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains(&format!("<environment>\ncwd: {}\n", cwd.display())), "{system}");

    for (dir, wanted) in
        [("nowhere", "nowhere: no such file or directory"), ("a.txt", "not a directory"), ("", "needs a value")]
    {
        let stderr = refused(|server| make(server, &["-C", dir, "x"]));
        assert!(stderr.contains(wanted), "{dir:?}: {stderr}");
    }
}

#[test]
fn a_mistake_in_the_prompt_is_told_before_a_missing_key_in08() {
    let keyless = |args: &[&str]| Pirn::new(["-m", "openai/gpt-5-mini"].iter().chain(args));
    let empty = keyless(&[]).stdin(Stdin::Bytes(Vec::new())).run();
    assert_eq!((empty.code(), empty.stdout.as_str()), (2, ""), "{}", empty.stderr);
    let missing = keyless(&["@nofile", "x"]).run();
    assert_eq!((missing.code(), missing.stdout.as_str()), (2, ""), "{}", missing.stderr);
    let key = keyless(&["x"]).run();
    assert_eq!((key.code(), key.stdout.as_str()), (77, ""), "{}", key.stderr);
}
