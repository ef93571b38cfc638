//! `read`: cases 1–25 of `tests/cases/tools.md` (26 is in `tool_image`, 27 beside the code), FILE-12, and what the tool rules say beside
//! them.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use pirn::port::{Access, Denied, Guard, ToolOutput};
use pirn::tool::{Confine, Confinement};
use serde_json::{Value, json};

use crate::tool_support::{Who, Workspace, again, failure, fifo, lines, seq, text};

const BIG_LINE: usize = 60_000;

/// The files of the case page.
fn workspace() -> Workspace {
    let w = Workspace::new();
    let long = format!("{}\n", "x".repeat(BIG_LINE));
    let big = big_lines(1000);
    for (name, content) in [
        ("abc.txt", &b"a\nb\nc\n"[..]),
        ("nonl.txt", b"a\nb\nc"),
        ("e.txt", b""),
        ("one.txt", b"\n"),
        ("crlf.txt", b"x\r\ny\r\nz\r\n"),
        ("mixed.txt", b"one\r\ntwo\nthree\r\nfour\n"),
        ("mac.txt", b"a\rb\rc"),
        ("lone.txt", b"p\rq\nr\n"),
        ("bom.txt", b"\xef\xbb\xbfhello\nworld\n"),
        ("latin1.txt", b"caf\xe9\n"),
        ("nul.bin", b"a\0b\n"),
        ("u16.txt", b"\xff\xfe\xe9\x00\n\x00"),
        ("u16be.txt", b"\xfe\xff\x00\xe9\x00\n"),
        ("seq.txt", seq(1, 2500).as_bytes()),
        ("long.txt", long.as_bytes()),
        ("my file.txt", long.as_bytes()),
        ("big.txt", big.as_bytes()),
        ("d/x", b""),
        ("Capture d\u{2019}\u{e9}cran.txt", b"shot\n"),
    ] {
        w.file(name, content);
    }
    symlink("../abc.txt", w.root.join("d/link")).unwrap();
    w
}

/// Lines of 100 characters.
fn big_lines(count: usize) -> String {
    lines(0..count, |n| format!("l{n:04} {}\n", "y".repeat(94)))
}

fn without_final_lf(text: &str) -> &str {
    text.strip_suffix('\n').unwrap()
}

#[test]
fn text_is_shown_as_the_cases_say() {
    let w = workspace();
    let long = format!(
        "{}\n\n[line 1 is 58.6KB, over the 50.0KB cap; first 2000 characters shown. Rest: sed -n '1p' ",
        "x".repeat(2000)
    );
    let first_506 = big_lines(506);
    for (case, args, want) in [
        ("1", json!({"path": "abc.txt"}), "a\nb\nc\n".to_owned()),
        ("2", json!({"path": "nonl.txt"}), "a\nb\nc".to_owned()),
        ("3", json!({"path": "e.txt"}), "[empty file]".to_owned()),
        ("3", json!({"path": "e.txt", "offset": 7}), "[empty file]".to_owned()),
        ("4", json!({"path": "one.txt"}), "\n".to_owned()),
        ("6", json!({"path": "abc.txt", "offset": 2, "limit": 1}), "b\n\n[lines 2-2 of 3; more: offset=3]".to_owned()),
        ("7", json!({"path": "abc.txt", "offset": 0}), "a\nb\nc\n".to_owned()),
        ("7", json!({"path": "abc.txt", "offset": -2}), "b\nc\n".to_owned()),
        ("7", json!({"path": "abc.txt", "offset": -9, "limit": 1}), "a\n\n[lines 1-1 of 3; more: offset=2]".to_owned()),
        ("8", json!({"path": "crlf.txt"}), "x\ny\nz\n\n[CRLF line endings]".to_owned()),
        ("9", json!({"path": "mixed.txt"}), "one\ntwo\nthree\nfour\n\n[mixed line endings]".to_owned()),
        ("10", json!({"path": "mac.txt"}), "a\nb\nc\n\n[CR line endings]".to_owned()),
        ("10", json!({"path": "lone.txt"}), "pq\nr\n".to_owned()),
        ("11", json!({"path": "bom.txt"}), "hello\nworld\n".to_owned()),
        ("12", json!({"path": "latin1.txt"}), "caf\u{fffd}\n\n[1 invalid UTF-8 byte(s) shown as U+FFFD]".to_owned()),
        ("14", json!({"path": "u16.txt"}), "\u{e9}\n\n[decoded from UTF-16LE]".to_owned()),
        ("14", json!({"path": "u16be.txt"}), "\u{e9}\n\n[decoded from UTF-16BE]".to_owned()),
        (
            "15",
            json!({"path": "seq.txt"}),
            format!("{}\n\n[lines 1-2000 of 2500; more: offset=2001]", without_final_lf(&seq(1, 2000))),
        ),
        ("16", json!({"path": "seq.txt", "offset": 2001}), seq(2001, 2500)),
        ("17", json!({"path": "long.txt"}), format!("{long}long.txt | cut -c2001-]")),
        ("17", json!({"path": "my file.txt"}), format!("{long}'my file.txt' | cut -c2001-]")),
        (
            "18",
            json!({"path": "big.txt"}),
            format!("{}\n\n[lines 1-506 of 1000, cut at 50.0KB; more: offset=507]", without_final_lf(&first_506)),
        ),
        ("21", json!({"path": "d/link"}), "a\nb\nc\n".to_owned()),
        ("24", json!({"path": "@abc.txt"}), "a\nb\nc\n".to_owned()),
        ("25", json!({"path": "Capture d'\u{e9}cran.txt"}), "shot\n".to_owned()),
    ] {
        assert_eq!(text(&w.call("read", args.clone())), want, "case {case}: {args}");
    }
}

#[test]
fn failures_are_told_as_the_cases_say() {
    let w = workspace();
    for (case, args, code, message) in [
        (
            "5",
            json!({"path": "abc.txt", "offset": 4}),
            "invalid_args",
            "offset 4 is past the end: abc.txt has 3 line(s).",
        ),
        (
            "13",
            json!({"path": "nul.bin"}),
            "binary",
            "nul.bin is binary (4B). Inspect it with bash: file, xxd, strings.",
        ),
        ("19", json!({"path": "missing"}), "not_found", "No such file: missing"),
        ("19", json!({"path": "abc.txt/x"}), "not_found", "No such file: abc.txt/x"),
        ("G7", json!({"path": "miss\u{1b}[31m\u{7}ing"}), "not_found", "No such file: miss[31ming"),
        ("POSIX", json!({"path": "abc.txt/"}), "not_directory", "Not a directory: abc.txt/"),
        ("POSIX", json!({"path": "d/"}), "is_directory", "d/ is a directory; use ls."),
        ("20", json!({"path": "d"}), "is_directory", "d is a directory; use ls."),
        ("P4", json!({"path": ""}), "invalid_args", "Invalid path: it is empty."),
        ("P4", json!({"path": "a\nb"}), "invalid_args", "Invalid path: it holds a NUL or a line feed."),
        (
            "io",
            json!({"path": "n".repeat(300)}),
            "io",
            &format!("Cannot read {}: File name too long.", "n".repeat(300)),
        ),
    ] {
        assert_eq!(failure(&w.call("read", args.clone())), (code, message), "case {case}: {args}");
    }
}

#[test]
fn case_13_and_17_bash_is_named_only_where_it_is_enabled() {
    let mut w = workspace();
    w.enabled = vec!["read"];
    assert_eq!(failure(&w.call("read", json!({"path": "nul.bin"}))), ("binary", "nul.bin is binary (4B)."));
    let output = w.call("read", json!({"path": "long.txt"}));
    let notice = "\n\n[line 1 is 58.6KB, over the 50.0KB cap; first 2000 characters shown.]";
    assert_eq!(text(&output), "x".repeat(2000) + notice);
}

fn details(output: &ToolOutput) -> &Value {
    output.details.as_ref().unwrap()
}

#[test]
fn details_hold_the_facts_r11() {
    let w = workspace();
    let absolute = w.root.join("abc.txt");
    assert_eq!(
        *details(&w.call("read", json!({"path": "abc.txt"}))),
        json!({"path": absolute.to_str().unwrap(), "totalLines": 3, "startLine": 1, "endLine": 3, "bytes": 6, "truncated": false,
            "truncatedBy": null, "eol": "lf", "bom": false, "encoding": "utf-8"})
    );
    for (case, args, facts) in [
        ("2", json!({"path": "nonl.txt"}), json!({"totalLines": 3, "bytes": 5})),
        (
            "3",
            json!({"path": "e.txt"}),
            json!({"totalLines": 0, "startLine": 1, "endLine": 0, "bytes": 0, "eol": "none"}),
        ),
        ("4", json!({"path": "one.txt"}), json!({"totalLines": 1})),
        (
            "6",
            json!({"path": "abc.txt", "offset": 2, "limit": 1}),
            json!({"startLine": 2, "endLine": 2, "truncated": false, "truncatedBy": null}),
        ),
        ("8", json!({"path": "crlf.txt"}), json!({"eol": "crlf"})),
        ("9", json!({"path": "mixed.txt"}), json!({"eol": "mixed"})),
        ("10", json!({"path": "mac.txt"}), json!({"totalLines": 3, "eol": "cr"})),
        ("11", json!({"path": "bom.txt"}), json!({"bom": true, "encoding": "utf-8"})),
        ("14", json!({"path": "u16.txt"}), json!({"bom": true, "encoding": "utf-16le", "totalLines": 1})),
        ("15", json!({"path": "seq.txt"}), json!({"truncated": true, "truncatedBy": "lines", "endLine": 2000})),
        ("17", json!({"path": "long.txt"}), json!({"truncated": true, "truncatedBy": "bytes", "bytes": 2000})),
        ("18", json!({"path": "big.txt"}), json!({"truncatedBy": "bytes", "endLine": 506, "bytes": 51105})),
        (
            "25",
            json!({"path": "Capture d'\u{e9}cran.txt"}),
            json!({"path": w.root.join("Capture d\u{2019}\u{e9}cran.txt").to_str().unwrap()}),
        ),
    ] {
        let output = w.call("read", args.clone());
        for (key, want) in facts.as_object().unwrap() {
            assert_eq!(details(&output)[key], *want, "case {case}: {key} of {args}");
        }
    }
}

#[test]
fn case_24_a_name_that_starts_with_an_at_sign_is_a_name() {
    let w = workspace();
    w.file("@abc.txt", "at\n");
    assert_eq!(text(&w.call("read", json!({"path": "@abc.txt"}))), "at\n");
}

#[test]
fn paths_may_be_absolute_of_home_or_urls_p1() {
    let mut w = workspace();
    w.settings.home = Some(w.root.clone());
    let absolute = w.root.join("abc.txt");
    for path in
        ["~/abc.txt".to_owned(), absolute.to_str().unwrap().to_owned(), format!("file://{}", absolute.display())]
    {
        assert_eq!(text(&w.call("read", json!({"path": path}))), "a\nb\nc\n");
    }
}

/// Runs `work` on another thread and fails if it takes longer than any machine needs.
fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || sender.send(work()));
    let result = receiver.recv_timeout(limit).expect("the call ends");
    thread.join().unwrap().unwrap();
    result
}

#[test]
fn case_22_and_file_12_what_is_no_regular_file_is_refused_at_once() {
    let w = workspace();
    fifo(&w.root.join("p"));
    let _socket = std::os::unix::net::UnixListener::bind(w.root.join("s")).unwrap();
    symlink("/dev/zero", w.root.join("zero")).unwrap();
    symlink("self", w.root.join("self")).unwrap();
    let outputs = within(Duration::from_secs(1), move || {
        let outputs = ["p", "s", "zero", "/dev/zero", "self"].map(|path| w.call("read", json!({"path": path})));
        (w, outputs)
    })
    .1;
    for (output, name) in outputs.iter().zip(["p", "s", "zero", "/dev/zero"]) {
        assert_eq!(failure(output), ("not_a_file", format!("{name} is not a regular file.").as_str()));
    }
    assert_eq!(failure(&outputs[4]).0, "io");
}

#[test]
fn generated_files_have_no_size_and_are_read_to_their_end_p6() {
    let w = workspace();
    if !Path::new("/proc/self/status").exists() {
        println!("unavailable: proc");
        return;
    }
    let output = w.call("read", json!({"path": "/proc/self/status", "limit": 1}));
    assert!(text(&output).starts_with("Name:\t"), "{output:?}");
    assert!(details(&output)["totalLines"].as_u64().unwrap() > 10);
}

/// Under root the test runs itself again as another user, for whom permissions mean something.
#[test]
fn case_23_a_file_without_permission_is_refused() {
    if rustix::process::geteuid().is_root() {
        return again("tool_read::case_23_a_file_without_permission_is_refused", Who::Nobody, Path::new("/"));
    }
    let w = workspace();
    let secret = w.file("secret.txt", "x\n");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    std::fs::set_permissions(w.root.join("d"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let denied = |name: &str| ("permission_denied".to_owned(), format!("Permission denied: {name}"));
    for (tool, name) in [("read", "secret.txt"), ("read", "d/x")] {
        let output = w.call(tool, json!({"path": name}));
        let (code, message) = failure(&output);
        assert_eq!((code.to_owned(), message.to_owned()), denied(name));
    }
    std::fs::set_permissions(w.root.join("d"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let output = w.call("ls", json!({"path": "d"}));
    assert_eq!(failure(&output), ("permission_denied", "Permission denied: d"));
    std::fs::set_permissions(w.root.join("d"), std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// Notes every path it is asked about.
struct Witness(Box<dyn Fn(&Path) + Send + Sync>);

impl Guard for Witness {
    fn check(&self, path: &Path, _shown: &str, _access: Access) -> Result<(), Denied> {
        (self.0)(path);
        Ok(())
    }
}

#[test]
fn a_cancelled_read_ends_with_aborted_c7() {
    let w = workspace();
    w.cancel.cancel();
    assert_eq!(failure(&w.call("read", json!({"path": "seq.txt"}))), ("aborted", "Aborted."));
    assert_eq!(failure(&w.call("ls", json!({"path": "."}))), ("aborted", "Aborted."));
}

#[test]
fn a_large_file_is_read_in_pieces_r10() {
    // Over the size that is held in memory, with lines, ends and characters across the pieces.
    let w = Workspace::new();
    let line = |n: usize| format!("{n} {}", "é€😀".repeat(n % 50));
    let content = lines(1..60_001, |n| format!("{}\r\n", line(n)));
    assert!(content.len() > 4 << 20);
    w.file("large.txt", &content);
    let output = w.call("read", json!({"path": "large.txt", "offset": 40_000, "limit": 2}));
    let want = format!(
        "{}\n{}\n\n[CRLF line endings]\n[lines 40000-40001 of 60000; more: offset=40002]",
        line(40_000),
        line(40_001)
    );
    assert_eq!(text(&output), want);
    let output = w.call("read", json!({"path": "large.txt", "offset": -1}));
    assert_eq!(text(&output), format!("{}\n\n[CRLF line endings]", line(60_000)));
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(content.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    w.file("large16.txt", &utf16);
    let output = w.call("read", json!({"path": "large16.txt", "offset": -1}));
    let want = format!("{}\n\n[decoded from UTF-16LE]\n[CRLF line endings]", line(60_000));
    assert_eq!(text(&output), want);
}

#[test]
fn caps_and_line_numbers_come_from_the_configuration() {
    let mut w = workspace();
    w.settings.read.line_numbers = true;
    assert_eq!(
        text(&w.call("read", json!({"path": "abc.txt", "offset": 2, "limit": 1}))),
        "     2\tb\n\n[lines 2-2 of 3; more: offset=3]"
    );
    w.settings.read.line_numbers = false;
    w.settings.read.max_lines = 2;
    let output = w.call("read", json!({"path": "abc.txt", "limit": 3}));
    assert_eq!(text(&output), "a\nb\n\n[lines 1-2 of 3; more: offset=3]");
    assert_eq!(details(&output)["truncatedBy"], "lines");
    w.settings.read.max_bytes = 100;
    for (line_numbers, shown) in [(false, 100), (true, 93)] {
        w.settings.read.line_numbers = line_numbers;
        let output = w.call("read", json!({"path": "long.txt"}));
        let prefix = if line_numbers { "     1\t" } else { "" };
        let notice = format!("[line 1 is 58.6KB, over the 100B cap; first {shown} characters shown.");
        let start = format!("{prefix}{}\n\n{notice}", "x".repeat(shown));
        assert!(text(&output).starts_with(&start), "{}", text(&output));
        assert!(text(&output).contains(&format!("cut -c{}-", shown + 1)));
    }
    w.settings.read.line_numbers = false;
    w.settings.read.max_bytes = 2;
    let output = w.call("read", json!({"path": "abc.txt"}));
    assert_eq!(text(&output), "a\n\n[lines 1-1 of 3, cut at 2B; more: offset=2]");
}

#[test]
fn odd_bytes_are_shown_without_breaking_the_text() {
    let w = Workspace::new();
    for (name, content, want) in [
        // Tool rule G7: no control characters but TAB and LF reach a model
        ("esc.txt", &b"\x1b[31mred\x1b[0m\tb\n"[..], "[31mred[0m\tb\n\n[2 control character(s) not shown]"),
        // R3: a sequence that breaks off is one sign and two bytes
        ("cut.txt", b"\xe2\x82\n", "\u{fffd}\n\n[2 invalid UTF-8 byte(s) shown as U+FFFD]"),
        // R3: only the part shown counts, and the order of R9
        (
            "two.txt",
            b"\xff\r\nb\r\n",
            "\u{fffd}\n\n[1 invalid UTF-8 byte(s) shown as U+FFFD]\n[CRLF line endings]\n\
            [lines 1-1 of 2; more: offset=2]",
        ),
        ("bom.txt", b"\xef\xbb\xbf", "[empty file]"),
        ("lf.txt", b"\r\n", "\n\n[CRLF line endings]"),
        ("end.txt", b"a\n\n", "a\n\n[lines 1-1 of 2; more: offset=2]"),
    ] {
        w.file(name, content);
        assert_eq!(text(&w.call("read", json!({"path": name, "limit": 1}))), want, "{name}");
    }
    // R3: a NUL behind the first 8192 bytes does not make a file binary; UTF-32 is.
    let mut late = b"a\n".repeat(4096);
    late.extend(b"\0b\n");
    w.file("late.txt", &late);
    let output = w.call("read", json!({"path": "late.txt", "offset": -1}));
    assert_eq!(text(&output), "b\n\n[1 control character(s) not shown]");
    w.file("u32.txt", b"\xff\xfe\0\0a\0\0\0");
    assert_eq!(failure(&w.call("read", json!({"path": "u32.txt"}))).0, "binary");
}

#[test]
fn a_long_line_among_others_says_where_to_go_on_r8() {
    let w = Workspace::new();
    w.file("-l.txt", format!("a\n{}\nc\n", "é".repeat(30_000)));
    let output = w.call("read", json!({"path": "-l.txt"}));
    assert_eq!(text(&output), "a\n\n[lines 1-1 of 3, cut at 50.0KB; more: offset=2]");
    let output = w.call("read", json!({"path": "-l.txt", "offset": 2}));
    let want = format!(
        "{}\n\n[line 2 is 58.6KB, over the 50.0KB cap; first 2000 characters shown. Rest: sed -n '2p' ./-l.txt | cut -c2001-]\n\
         [lines 2-2 of 3, cut at 50.0KB; more: offset=3]",
        "é".repeat(2000)
    );
    assert_eq!(text(&output), want);
}

#[test]
fn the_guard_is_asked_before_anything_is_known_about_a_path() {
    let mut w = workspace();
    let outside = Workspace::new();
    outside.file("x", "out\n");
    symlink(&outside.root, w.root.join("esc")).unwrap();
    w.guard = Arc::new(Confine::new(Confinement::All, std::slice::from_ref(&w.root), None));
    for path in ["esc/x", "esc/missing", "../none"] {
        let output = w.call("read", json!({"path": path}));
        let want = format!("{path} is outside the allowed roots ({}).", w.root.display());
        assert_eq!(failure(&output), ("denied", want.as_str()));
    }
    // Guesses are asked about as well.
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    w.guard = Arc::new(Witness(Box::new(move |path| {
        seen.lock().unwrap().push(path.file_name().unwrap().to_str().unwrap().to_owned());
    })));
    assert_eq!(failure(&w.call("read", json!({"path": "no'pe"}))).0, "not_found");
    assert_eq!(*asked.lock().unwrap(), ["no'pe", "no\u{2019}pe", "no\u{2019}pe"]);
}
