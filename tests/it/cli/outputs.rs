//! The files beside stdout: `--events`, `-o` and `--log`, where they are well and where they fail.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::Value;

use super::{KEY, Output, Pirn, grammar};
use crate::support::chat::{chat_text, chat_tool};
use crate::support::server::{Reply, Server};

/// A place for files that outlives the call.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().unwrap()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        path
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn stdout(output: &Output) -> (i32, &str) {
    (output.code(), output.stdout.as_str())
}

/// Lines of an events file, checked as a stream is, and its verdict.
fn events(text: &str) -> (Vec<Value>, Value) {
    let lines = grammar::check(text);
    let last = lines.last().unwrap().clone();
    assert_eq!(last["type"], "result");
    (lines, last)
}

#[test]
fn the_events_file_holds_the_whole_stream_whatever_stdout_shows() {
    for args in [&[][..], &["--stream"], &["--json"], &["--json=messages"], &["--json=result"]] {
        let place = Place::new();
        std::fs::write(place.path("e.jsonl"), "an older and longer run\n".repeat(100)).unwrap();
        std::fs::set_permissions(place.path("e.jsonl"), PermissionsExt::from_mode(0o640)).unwrap();
        let file = place.at("e.jsonl");
        let call = [args, &["--events", &file, "say hello there"]].concat();
        let output = Pirn::demo(call).run();
        assert_eq!(output.code(), 0, "{}", output.stderr);
        let text = place.text("e.jsonl");
        let (lines, last) = events(&text);
        assert_eq!((&last["exitCode"], &last["text"]), (&0.into(), &"hello there".into()), "{args:?}");
        assert!(lines.iter().any(|line| line["type"] == "message_update"), "deltas are in it: {args:?}");
        match args {
            [] | ["--stream"] => assert_eq!(output.stdout, "hello there\n"),
            ["--json"] => assert_eq!(output.stdout, text, "the same bytes"),
            _ => assert!(output.lines().len() < lines.len()),
        }
        assert_eq!(mode(&place.path("e.jsonl")), 0o640, "what is there keeps its permissions");
    }
}

#[test]
fn an_events_file_is_private_and_its_name_has_the_session_and_the_day() {
    let place = Place::new();
    std::fs::create_dir(place.path("conf")).unwrap();
    std::fs::write(place.path("conf/c.toml"), "output.events = \"run-{session}-{date}-{x}.jsonl\"\n").unwrap();
    let output = Pirn::demo(["--json", "--config", &place.at("conf/c.toml"), "say hi"]).run();
    let session = output.lines().remove(0);
    let id = session["id"].as_str().unwrap();
    let day = &session["timestamp"].as_str().unwrap()[..10];
    let path = place.path(&format!("conf/run-{id}-{day}-{{x}}.jsonl"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), output.stdout, "beside the file that names it");
    assert_eq!(mode(&path), 0o600);
    let set = format!("output.events={}", place.at("set.jsonl"));
    let flag = place.at("flag.jsonl");
    let output = Pirn::demo(["--set", &set, "--events", &flag, "say hi"]).run();
    assert_eq!((output.code(), place.path("set.jsonl").exists()), (0, false), "the flag wins");
    events(&place.text("flag.jsonl"));
}

#[test]
fn a_descriptor_of_the_caller_is_written_where_it_stands() {
    let place = Place::new();
    let file = place.at("f");
    let script = format!("echo before >{file}; \"$0\" \"$@\" 3>>{file}; echo after >>{file}");
    let output = Pirn::demo(["--events", "/dev/fd/3", "say hi"]).script(script.clone()).run();
    assert_eq!(stdout(&output), (0, "hi\n"), "{}", output.stderr);
    let text = place.text("f");
    let stream = text.strip_prefix("before\n").unwrap().strip_suffix("after\n").unwrap();
    events(stream);
    let output = Pirn::demo(["-o", "/dev/fd/3", "say hi"]).script(script).run();
    assert_eq!((stdout(&output), place.text("f").as_str()), ((0, "hi\n"), "before\nhi\nafter\n"));
    // With process substitution the reader is another process.
    let script = format!("\"$0\" --events >(cat >{file}; echo done >&2) \"$@\"");
    let running = Pirn::demo(["say hi"]).script(script).spawn();
    running.wait_stderr("done");
    assert_eq!(running.wait().code(), 0);
    events(&place.text("f"));
}

#[test]
fn a_file_that_cannot_be_written_is_2_before_anything_is_sent() {
    let place = Place::new();
    std::fs::write(place.path("file"), "x").unwrap();
    let bad = [
        (place.at("none/file"), "no such file or directory"),
        (place.at("file/x"), "not a directory"),
        (place.at(""), "is a directory"),
        (place.at("new/"), "is a directory"),
        ("/dev/fd/77".to_owned(), "bad file descriptor"),
        // Open inside of pirn, but not for its caller.
        ("/dev/fd/3".to_owned(), "bad file descriptor"),
        ("/dev/stdin".to_owned(), "bad file descriptor"),
    ];
    for (path, reason) in bad {
        for option in ["--events", "--output", "--log"] {
            let server = Server::start([]);
            let output = Pirn::of_server(&server, [option, &path, "x"]).run();
            assert_eq!(stdout(&output), (2, ""), "{option} {path}: {}", output.stderr);
            let wanted = format!("pirn: usage: {option}: cannot write {path}: ");
            let message = output.stderr.strip_prefix(&wanted).unwrap_or_else(|| panic!("{}", output.stderr));
            assert!(message.contains(reason), "{option} {path}: {message}");
            assert_eq!(server.connections(), 0);
        }
    }
    assert_eq!(place.names(), ["file"]);
    let same = place.at("same");
    let output = Pirn::demo(["--events", &same, "-o", &same, "x"]).run();
    assert!(output.code() == 2 && output.stderr.contains("--events and --output name the same file"));
    let output = Pirn::demo(["--json", "--events", &place.at("none/e"), "x"]).run();
    assert_eq!((output.result()["reason"].as_str(), output.lines().len()), (Some("usage"), 1));
    let call = Pirn::demo(["--config", "c.toml", "x"]).file("c.toml", "\noutput.events = \"no/e\"\n");
    let output = call.run();
    assert!(output.stderr.starts_with("pirn: usage: c.toml:2:17: cannot write "), "{}", output.stderr);
}

#[test]
fn a_file_that_stdout_goes_to_is_2_by_whatever_name_and_is_not_emptied() {
    let place = Place::new();
    let file = place.at("f");
    symlink("f", place.path("link")).unwrap();
    place.pipe("pipe");
    let pipe = place.at("pipe");
    // What stdout is, as the shell has it, and names for that.
    let to_file = format!(">>{file}");
    let to_pipe = "| cat >&2; exit ${PIPESTATUS[0]}".to_owned();
    let to_named = format!(">{pipe}");
    let rows = [
        (to_file.as_str(), vec!["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", &file]),
        (&to_file, vec!["/proc/self/fd/../fd/1"]),
        (&to_pipe, vec!["/dev/stdout", "/dev/fd/1"]),
        (&to_named, vec![pipe.as_str()]),
        // Two names of one pipe.
        ("2>&1 | cat >&2; exit ${PIPESTATUS[0]}", vec!["/dev/stderr", "/dev/stdout"]),
        (">/dev/full", vec!["/dev/full"]),
    ];
    let link = place.at("link");
    for (stdout, names) in rows.into_iter().chain([(to_file.as_str(), vec![link.as_str()])]) {
        for name in names {
            for option in ["--events", "-o"] {
                std::fs::write(&file, "kept\n").unwrap();
                let reader = pipe.clone();
                let reader = (stdout == to_named).then(|| std::thread::spawn(move || std::fs::read(reader).unwrap()));
                let server = Server::start([]);
                let output =
                    Pirn::of_server(&server, [option, name, "x"]).script(format!("\"$0\" \"$@\" {stdout}")).run();
                let by = if option == "-o" { "--output" } else { option };
                let wanted = format!("pirn: usage: {by}: {name} is where stdout goes");
                assert!(output.code() == 2 && output.stderr.starts_with(&wanted), "{stdout}: {output:?}");
                assert!(output.stderr.contains("\nhint: ") && output.stderr.contains("/dev/fd/3"), "{output:?}");
                assert_eq!((place.text("f").as_str(), server.connections()), ("kept\n", 0), "{stdout} {name}");
                assert_eq!(reader.map(|reader| reader.join().unwrap()).unwrap_or_default(), b"");
            }
        }
    }
    let output = Pirn::demo(["--json", "--set", "output.events=/dev/stdout", "x"]).run();
    assert_eq!((output.result()["reason"].as_str(), output.lines().len()), (Some("usage"), 1), "also a setting");

    // What keeps nothing may be both, and a descriptor beside stdout is none of it.
    for args in [["--events", "/dev/null"], ["-o", "/dev/null"]] {
        let output = Pirn::demo(args).more(["say hi"]).script("\"$0\" \"$@\" >/dev/null").run();
        assert_eq!((output.code(), output.stderr.as_str()), (0, ""));
    }
    let output = Pirn::demo(["-o", "/dev/stderr", "say hi"]).run();
    assert_eq!((stdout(&output), output.stderr.as_str()), ((0, "hi\n"), "hi\n"));
}

#[test]
fn the_events_file_gets_a_verdict_on_every_way_out_once_the_call_makes_sense() {
    let place = Place::new();
    let file = place.at("e.jsonl");
    for (args, code, lines) in [
        (&["-m", "nope", "x"][..], 2, Some(1)),
        (&["-m", "openai/x", "x"], 77, Some(1)),
        (&["-m", "demo", "-f", "none.txt"], 2, Some(1)),
        (&["-m", "demo", "fail rate_limit"], 75, None),
        (&["-m", "demo", "stop length"], 3, None),
    ] {
        let output = Pirn::new([&["--events", &file], args].concat()).soon().run();
        assert_eq!(output.code(), code, "{args:?}: {}", output.stderr);
        let (all, last) = events(&place.text("e.jsonl"));
        assert_eq!(last["exitCode"], code, "{args:?}");
        assert!(lines.is_none_or(|lines| all.len() == lines), "{args:?}");
    }
    std::fs::write(&file, "kept").unwrap();
    for args in [&["--bogus", "x"][..], &["--set", "bogus=1", "x"], &["--no-stdin"]] {
        let output = Pirn::demo([&["--events", &file], args].concat()).run();
        assert_eq!(
            (output.code(), place.text("e.jsonl").as_str()),
            (2, "kept"),
            "a wrong call touches nothing: {args:?}"
        );
    }

    let server = Server::start([Reply::raw("").hold()]);
    let running = Pirn::of_server(&server, ["--events", &file, "x"]).spawn();
    assert!(server.wait_requests(1));
    running.signal(Signal::TERM);
    assert_eq!(running.wait().signal(), Some(15));
    assert_eq!(events(&place.text("e.jsonl")).1["exitCode"], 143);
}

#[test]
fn a_full_disk_under_the_events_lets_the_run_finish_and_is_1_storage() {
    let failure = "cannot write /dev/full: no space left on device";
    for words in ["say hello", "stop length"] {
        let output = Pirn::demo(["--events", "/dev/full", words]).run();
        assert_eq!(stdout(&output), (1, ""), "no answer on stdout without success");
        assert_eq!(output.stderr, format!("pirn: storage: {failure}\n"));
        let output = Pirn::demo(["--json", "--events", "/dev/full", words]).run();
        let result = output.result();
        assert_eq!((output.code(), &result["reason"]), (1, &"error".into()));
        let error = &result["error"];
        assert_eq!((&error["kind"], &error["message"]), (&"storage".into(), &failure.into()), "{result}");
        assert_eq!(result["requests"], 1, "the run itself was not altered");
        assert!(!result["text"].as_str().unwrap().is_empty() && output.lines_of("agent_end").len() == 1);
    }
    // The first cause wins; what else is wrong is a warning.
    let output = Pirn::demo(["--events", "/dev/full", "fail rate_limit"]).soon().run();
    assert_eq!(output.code(), 75);
    assert!(output.stderr.starts_with(&format!("pirn: warning: {failure}\npirn: rate_limit: ")), "{}", output.stderr);
    let output = Pirn::demo(["--json", "--events", "/dev/full", "fail rate_limit"]).soon().run();
    assert_eq!((output.result()["exitCode"].as_i64(), output.lines_of("warning").len()), (Some(75), 1));
}

#[test]
fn a_reader_of_the_events_that_left_is_no_reason_to_stop() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let call = Pirn::demo(["--json", "--events", "/dev/fd/3", "say hi"]).stdout(OwnedFd::from(writer));
    let output = call.script("exec \"$0\" \"$@\" 3>&1 1>&2").run();
    assert_eq!(output.code(), 1, "not 141, which is for stdout");
    let (lines, last) = events(&output.stderr.replace("pirn: storage: cannot write /dev/fd/3: broken pipe\n", ""));
    assert!(lines.len() > 5 && last["error"]["kind"] == "storage", "{last}");
}

#[test]
fn a_pipe_nobody_reads_holds_up_neither_a_signal_nor_the_timeout() {
    let place = Place::new();
    place.pipe("p");
    for option in ["--events", "--log"] {
        let server = Server::start([]);
        let output = Pirn::of_server(&server, ["--timeout", "300ms", option, &place.at("p"), "x"]).run();
        assert_eq!((stdout(&output), server.connections()), ((124, ""), 0), "{option}: {}", output.stderr);
    }
    // An answer is written at the end, and so waits there.
    let output = Pirn::demo(["--timeout", "500ms", "-o", &place.at("p"), "say hi"]).run();
    assert_eq!(stdout(&output), (124, ""), "{}", output.stderr);
    let running = Pirn::demo(["-v", "-o", &place.at("p"), "say hi"]).spawn();
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), 143);

    let path = place.at("p");
    let reader = std::thread::spawn(move || std::fs::read_to_string(path).unwrap());
    let output = Pirn::demo(["-o", &place.at("p"), "say hi"]).run();
    assert_eq!((stdout(&output), reader.join().unwrap().as_str()), ((0, "hi\n"), "hi\n"));
}

#[test]
fn the_answer_is_written_on_0_and_3_in_every_mode_as_text_mode_prints_it() {
    for args in [&[][..], &["--stream"], &["--json"], &["--json=result"], &["-q"]] {
        for (words, code, text) in [("say hi", 0, "hi\n"), ("stop length", 3, "This answer stops in the middle of\n")] {
            let place = Place::new();
            let file = place.at("a.md");
            let output = Pirn::demo([args, &["-o", &file, words]].concat()).run();
            assert_eq!((output.code(), place.text("a.md").as_str()), (code, text), "{args:?} {}", output.stderr);
            assert_eq!(place.names(), ["a.md"], "nothing else is left");
        }
    }
    let place = Place::new();
    for (reply, text) in [("two\nlines\n\n\n", "two\nlines\n"), ("\n\nx", "\n\nx\n"), ("é\r\n", "é\r\n")] {
        let server = Server::start([chat_tool("ls", serde_json::json!({})), chat_text(reply)]);
        let output = Pirn::of_server(&server, ["-o", &place.at("a.md"), "x"]).run();
        assert_eq!((output.code(), place.text("a.md").as_str()), (0, text), "{}", output.stderr);
        assert_eq!(output.stdout, text, "the same bytes as in a pipe");
    }
}

#[test]
fn the_answer_file_is_untouched_by_any_other_end() {
    let place = Place::new();
    let file = place.at("a.md");
    for words in ["fail rate_limit", "fail server", "fail refusal", "fail auth"] {
        assert!(![0, 3].contains(&Pirn::demo(["-o", &file, words]).soon().run().code()));
        assert_eq!(place.names(), Vec::<String>::new(), "{words}: nothing is made");
    }
    std::fs::write(&file, "old").unwrap();
    let before = std::fs::metadata(&file).unwrap();
    for words in ["fail rate_limit", "fail refusal"] {
        Pirn::demo(["-o", &file, words]).soon().run();
    }
    let server = Server::start([Reply::raw("").hold()]);
    let running = Pirn::of_server(&server, ["-o", &file, "x"]).spawn();
    assert!(server.wait_requests(1));
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), 130);
    let after = std::fs::metadata(&file).unwrap();
    assert_eq!((place.text("a.md").as_str(), place.names()), ("old", vec!["a.md".to_owned()]));
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
}

#[test]
fn the_answer_replaces_a_file_as_a_whole_and_keeps_its_mode_and_the_links_to_it() {
    let place = Place::new();
    let file = place.at("a.md");
    let masked = |umask: &str| format!("umask {umask}; exec \"$0\" \"$@\"");
    for (umask, expected) in [("022", 0o644), ("077", 0o600), ("000", 0o666)] {
        let output = Pirn::demo(["-o", &file, "say hi"]).script(masked(umask)).run();
        assert_eq!((output.code(), mode(&place.path("a.md"))), (0, expected), "umask {umask}");
        std::fs::remove_file(&file).unwrap();
    }
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o660)).unwrap();
    let old = std::fs::File::open(&file).unwrap();
    symlink("a.md", place.path("link")).unwrap();
    symlink(place.path("link"), place.path("chain")).unwrap();
    let output = Pirn::demo(["-o", &place.at("chain"), "say new"]).script(masked("077")).run();
    assert_eq!((output.code(), place.text("a.md").as_str()), (0, "new\n"), "{}", output.stderr);
    assert_eq!(std::io::read_to_string(old).unwrap(), "old", "who has it open still sees the old one");
    assert_eq!(mode(&place.path("a.md")), 0o660);
    for link in ["link", "chain"] {
        assert!(place.path(link).symlink_metadata().unwrap().is_symlink());
    }
    symlink("later.md", place.path("dangling")).unwrap();
    assert_eq!(Pirn::demo(["-o", &place.at("dangling"), "say hi"]).run().code(), 0);
    assert_eq!(place.text("later.md"), "hi\n");
    symlink("loop", place.path("loop")).unwrap();
    assert_eq!(Pirn::demo(["-o", &place.at("loop"), "say hi"]).run().code(), 2);
    let output = Pirn::demo(["-C", &place.at(""), "-o", "relative.md", "say hi"]).run();
    assert_eq!((output.code(), place.text("relative.md").as_str()), (0, "hi\n"), "{}", output.stderr);
}

#[test]
fn an_answer_that_cannot_be_kept_is_1_storage_and_devices_are_written_as_they_are() {
    let output = Pirn::demo(["-o", "/dev/full", "say hi"]).run();
    assert_eq!(stdout(&output), (1, ""));
    assert_eq!(output.stderr, "pirn: storage: cannot write /dev/full: no space left on device\n");
    let place = Place::new();
    let file = place.at("e.jsonl");
    let output = Pirn::demo(["--json=result", "--events", &file, "-o", "/dev/full", "say hi"]).run();
    let result = output.result();
    assert_eq!((&result["error"]["kind"], &result["text"]), (&"storage".into(), &"hi".into()), "{result}");
    assert_eq!(events(&place.text("e.jsonl")).1["exitCode"], 1, "one verdict everywhere");
    assert_eq!(stdout(&Pirn::demo(["-o", "/dev/null", "say hi"]).run()), (0, "hi\n"));

    // The directory goes away while the model thinks.
    std::fs::create_dir(place.path("gone")).unwrap();
    let gate = crate::support::server::Gate::new();
    let chunks = crate::support::chat::sse_text(&crate::support::chat::text_chunks("hi"));
    let server = Server::start([Reply::stream().wait(&gate).send(chunks)]);
    let running = Pirn::of_server(&server, ["-o", &place.at("gone/a.md"), "x"]).spawn();
    assert!(server.wait_requests(1));
    std::fs::remove_dir(place.path("gone")).unwrap();
    gate.open();
    let output = running.wait();
    assert_eq!(stdout(&output), (1, ""), "{}", output.stderr);
    assert!(output.stderr.contains("/gone/a.md: no such file or directory\n"), "{}", output.stderr);
}

#[test]
fn the_log_says_what_happened_and_nothing_of_what_was_said() {
    let place = Place::new();
    let log = place.at("log");
    let (words, answer) = ("a private question", "a private answer");
    let server = Server::start([chat_tool("ls", serde_json::json!({"path": "."})), chat_text(answer)]);
    let model = format!("openai/test-{KEY}");
    let call = Pirn::of_server(&server, ["--log", &log, "-m", &model, "--config", "c.toml", words]);
    let output = call.file("c.toml", "limits.max_turns = 9\n").run();
    assert_eq!((output.stderr.as_str(), stdout(&output)), ("", (0, "a private answer\n")));
    let text = place.text("log");
    let mut rest = text.as_str();
    for said in [
        "settings read",
        "c.toml",
        "model chosen",
        "openai/test-[redacted:OPENAI_API_KEY]",
        "session opened",
        "run started",
        "turn started",
        "request started",
        "attempt=1",
        "request answered status=200",
        "reply ended",
        "toolUse",
        "tool started",
        "ls",
        "tool ended",
        "request started",
        "reply ended",
        "run ended reason=\"completed\"",
        "exit code=0",
    ] {
        rest = rest.split_once(said).unwrap_or_else(|| panic!("{said:?} is missing, in this order, in {text}")).1;
    }
    for secret in [KEY, words, answer, "authorization", "Bearer"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert!(!text.contains('\u{1b}') && text.ends_with('\n'));
    assert_eq!(mode(&place.path("log")), 0o600);
    assert_eq!(Pirn::demo(["--log", &log, "say hi"]).run().code(), 0);
    assert!(place.text("log").starts_with(&text) && place.text("log").len() > text.len(), "appended");
}

#[test]
fn a_filter_chooses_what_is_logged_and_a_wrong_one_is_2() {
    let place = Place::new();
    let logged = |name: &str, filter: &str| {
        let output = Pirn::demo(["--log", &place.at(name), "say hi"]).env("PIRN_LOG", filter).run();
        assert_eq!((stdout(&output), output.stderr.as_str()), ((0, "hi\n"), ""));
        place.text(name)
    };
    let info = logged("info", "info");
    assert!(info.contains("exit") && info.contains(" INFO ") && !info.contains("DEBUG"), "{info}");
    assert!(logged("debug", "pirn=debug").contains("DEBUG"));
    assert_eq!(logged("off", "off"), "");
    assert!(!logged("part", "pirn::provider=trace").contains("exit"));
    for filter in ["verbose", "pirn=loud"] {
        let output = Pirn::demo(["--log", &place.at("wrong"), "say hi"]).env("PIRN_LOG", filter).run();
        let wanted = format!("pirn: usage: PIRN_LOG: this is no filter: {filter}\nhint: a level, or ");
        assert!(output.code() == 2 && output.stderr.starts_with(&wanted), "{}", output.stderr);
    }
    let output = Pirn::demo(["say hi"]).env("PIRN_LOG", "debug").run();
    let warning = "pirn: warning: PIRN_LOG is set, but no --log FILE is given; nothing is logged\n";
    assert_eq!((stdout(&output), output.stderr.as_str()), ((0, "hi\n"), warning));
}

#[test]
fn a_log_that_fails_is_a_warning_and_one_that_nobody_reads_holds_nothing_up() {
    let output = Pirn::demo(["--log", "/dev/full", "say hi"]).run();
    let wanted = "pirn: warning: the log is not complete: cannot write /dev/full: no space left on device\n";
    assert_eq!((stdout(&output), output.stderr.as_str()), ((0, "hi\n"), wanted));
    let output = Pirn::demo(["--log", "/dev/stderr", "say hi"]).run();
    assert_eq!(stdout(&output), (0, "hi\n"));
    assert!(output.stderr.contains("exit code=0"), "{}", output.stderr);

    // A pipe that is full and stays open.
    let (reader, writer) = std::io::pipe().unwrap();
    let full = writer.try_clone().unwrap();
    let flags = rustix::fs::fcntl_getfl(&full).unwrap();
    rustix::fs::fcntl_setfl(&full, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while std::io::Write::write(&mut &full, &[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&full, flags).unwrap();
    let call = Pirn::demo(["--log", "/dev/fd/3", "say hi"]).stdout(OwnedFd::from(writer));
    let output = call.script("exec \"$0\" \"$@\" 3>&1 1>&2").run();
    drop((reader, full));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert!(output.stderr.contains("its reader is too slow"), "{}", output.stderr);

    let place = Place::new();
    let server = Server::start([Reply::raw("").hold()]);
    let running = Pirn::of_server(&server, ["--log", &place.at("log"), "x"]).spawn();
    assert!(server.wait_requests(1));
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), 143);
    let log = place.text("log");
    assert!(log.contains("signal signal=Term") && log.contains("exit code=143"), "{log}");
}
