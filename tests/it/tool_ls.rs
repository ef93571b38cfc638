//! `ls`: cases 62–64 of `tests/cases/tools.md`, and what the tool rules say beside them.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::tool_support::{Workspace, failure, fifo, text};

/// Tree T of the case page, as far as `ls` sees it.
fn tree() -> Workspace {
    let w = Workspace::new();
    w.file("abc.txt", "a\nb\nc\n");
    w.file("d/.hidden", "needle\n");
    w.file("d/a.rs", "needle here\n");
    w.file("d/sub/b.rs", "Needle there\n");
    symlink("../abc.txt", w.root.join("d/link")).unwrap();
    symlink("nope", w.root.join("d/dangling")).unwrap();
    std::fs::create_dir(w.root.join("empty")).unwrap();
    w
}

#[test]
fn directories_are_listed_as_the_cases_say() {
    let w = tree();
    let whole = ".hidden\na.rs\ndangling -> nope (broken)\nlink -> ../abc.txt\nsub/";
    for (case, args, want) in [
        ("62", json!({"path": "d"}), whole),
        ("62", json!({"directory": "d", "limit": "5"}), whole),
        ("63", json!({"path": "d", "limit": 2}), ".hidden\na.rs\n\n[2 of 5 entries; raise limit for more]"),
        ("64", json!({"path": "empty"}), "[empty directory]"),
        ("default", json!({}), "abc.txt\nd/\nempty/"),
    ] {
        assert_eq!(text(&w.call("ls", args.clone())), want, "case {case}: {args}");
    }
    let output = w.call("ls", json!({"path": "d", "limit": 2}));
    let path = w.root.join("d");
    assert_eq!(output.details.unwrap(), json!({"path": path.to_str().unwrap(), "total": 5, "shown": 2}));
}

#[test]
fn failures_are_told_as_case_64_says() {
    let w = tree();
    for (path, code, message) in [
        ("abc.txt", "not_directory", "Not a directory: abc.txt"),
        ("nope", "not_found", "No such directory: nope"),
        ("no\u{1b}pe", "not_found", "No such directory: nope"),
        ("", "invalid_args", "Invalid path: it is empty."),
    ] {
        assert_eq!(failure(&w.call("ls", json!({"path": path}))), (code, message));
    }
}

#[test]
fn names_are_sorted_without_regard_to_case_and_stay_on_their_line_l1() {
    let w = Workspace::new();
    for name in ["b", "B", "a", "C", "É", "é"] {
        w.file(name, "");
    }
    w.file("n\nl", "");
    let latin1 = w.root.join(std::ffi::OsStr::from_bytes(b"z\xff"));
    std::fs::File::create(latin1).unwrap();
    symlink(".", w.root.join("to-dir")).unwrap();
    symlink("loop", w.root.join("loop")).unwrap();
    fifo(&w.root.join("p"));
    let want = "a\nB\nb\nC\nloop -> loop (broken)\nn\u{fffd}l\np\nto-dir/ -> .\nz\u{fffd}\nÉ\né";
    assert_eq!(text(&w.call("ls", json!({}))), want);
}

#[test]
fn long_listings_are_cut_and_counted_l3() {
    let w = Workspace::new();
    let name = |n: usize| format!("{n:04}{}", "n".repeat(96));
    for n in 0..700 {
        w.file(&name(n), "");
    }
    let listed = |count: usize| (0..count).map(name).collect::<Vec<_>>().join("\n");
    let want = listed(500) + "\n\n[500 of 700 entries; raise limit for more]";
    assert_eq!(text(&w.call("ls", json!({}))), want);
    // 506 names of 100 characters and the line feeds between them are 51,105 bytes.
    let want = listed(506) + "\n\n[506 of 700 entries, cut at 50.0KB]";
    assert_eq!(text(&w.call("ls", json!({"limit": 1e30}))), want);
}
