use std::fs::File;
use std::io::Write as _;

use super::{Glance, HEAD_BYTES, TAIL_BYTES, cut_prompt, glance, header, last_commit, name, open};
use crate::session::place::tests::{header_line, line, message, set};

fn file(lines: &[String]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(lines.concat().as_bytes()).unwrap();
    file
}

fn named(seq: u32, name: &str) -> String {
    set(seq, "session.name", "", &format!("\"{name}\""))
}

fn config(seq: u32, model: &str) -> String {
    let value =
        format!(r#"{{"model":{{"provider":"p","modelId":"{model}"}},"thinkingLevel":null,"activeToolNames":[]}}"#);
    set(seq, "lane.config", "main", &value)
}

fn long(at: u64, seq: u32, bytes: u64) -> String {
    line(at, &[message(seq, "user", &"x".repeat(usize::try_from(bytes).unwrap()))])
}

#[test]
fn name_model_and_first_prompt_are_those_near_the_two_ends() {
    let first = line(10, &[named(1, "pr-12"), config(2, "m1")]);
    let prompt = line(11, &[message(3, "user", "Fix it")]);
    let head = [header_line("s", "/w"), first, prompt];
    let expected = |name: Option<&str>, model: &str| Glance {
        name: name.map(str::to_owned),
        model: Some(format!("p/{model}")),
        first_prompt: Some("Fix it".to_owned()),
        damaged_line: None,
    };
    assert_eq!(glance(&file(&head)).unwrap(), expected(Some("pr-12"), "m1"));

    let usage = r#"{"seq":9,"kind":"usage","row":{"id":"u1","operationId":null,"lane":"main","kind":"request","provider":"p","modelId":"m2","usage":{},"cost":null}}"#;
    let renamed = line(13, &[named(8, "new"), usage.to_owned()]);
    let near = [head.as_slice(), &[long(12, 4, 10), renamed.clone()]].concat();
    assert_eq!(glance(&file(&near)).unwrap(), expected(Some("new"), "m2"));

    let deleted = r#"{"seq":9,"kind":"value","op":"delete","namespace":"session.name","key":""}"#;
    let far =
        [head.as_slice(), &[long(12, 4, 4 * HEAD_BYTES), line(13, &[deleted.to_owned(), config(10, "m3")])]].concat();
    assert_eq!(glance(&file(&far)).unwrap(), expected(None, "m3"));
    assert_eq!(name(&file(&far)).unwrap(), None);

    // In the middle of a long file nobody looks.
    let hidden = [head.as_slice(), &[long(12, 4, HEAD_BYTES), renamed, long(14, 11, TAIL_BYTES)]].concat();
    assert_eq!(glance(&file(&hidden)).unwrap(), expected(Some("pr-12"), "m1"));
}

#[test]
fn a_first_transaction_longer_than_the_head_still_gives_name_and_prompt() {
    let prompt = format!("Über \\\"all\\\" {}", "y".repeat(usize::try_from(2 * HEAD_BYTES).unwrap()));
    let first = line(10, &[named(1, "big"), config(2, "m1"), message(3, "user", &prompt)]);
    let seen = glance(&file(&[header_line("s", "/w"), first])).unwrap();
    assert_eq!((seen.name.as_deref(), seen.model.as_deref()), (Some("big"), Some("p/m1")));
    assert!(seen.first_prompt.unwrap().starts_with("Über \"all\" yyy"));
}

#[test]
fn a_cut_prompt_ends_before_what_is_cut() {
    let before = r#"{"role":"user","content":[{"type":"text","text":""#;
    for (cut, expected) in [
        ("abc", Some("abc")),
        ("ab\\", Some("ab")),
        ("ab\\u00", Some("ab")),
        ("ab\\ud83d\\ude", Some("ab")),
        ("ab\"}]},\"terminate\":true", Some("ab")),
    ] {
        assert_eq!(cut_prompt(format!("{before}{cut}").as_bytes()).as_deref(), expected, "{cut}");
    }
    let split = [before.as_bytes(), b"ab\xc3"].concat();
    assert_eq!(cut_prompt(&split).as_deref(), Some("ab"));
    assert_eq!(cut_prompt(br#"{"role":"user","content":"plain"#).as_deref(), Some("plain"));
    assert_eq!(cut_prompt(br#"{"role":"assistant","content":[{"type":"text","text":"no"#), None);
}

#[test]
fn the_last_commit_is_that_of_the_last_whole_line() {
    let head = || vec![header_line("s", "/w"), line(10, &[named(1, "n")])];
    let with = |more: &[String]| file(&[head(), more.to_vec()].concat());
    let good = line(20, &[named(2, "m")]);
    let unended = good.trim_end().to_owned();
    let torn = good.get(..good.len() / 2).unwrap().to_owned();
    let flipped = good.replace("\"m\"", "\"n\"");
    for (what, more, expected) in [
        ("nothing more", vec![], 10),
        ("a whole line", vec![good.clone()], 20),
        ("no line feed (case 95)", vec![unended], 20),
        ("a torn line (case 92)", vec![good.clone(), torn], 20),
        ("a changed line", vec![flipped.clone()], 10),
        ("several changed lines", vec![flipped.clone(), flipped], 10),
        ("zeros (case 94)", vec![good.clone(), "\0".repeat(4096)], 20),
        ("many zeros", vec![good.clone(), "\0".repeat(100_000)], 20),
        ("a long line", vec![good, long(30, 3, 1 << 20)], 30),
    ] {
        assert_eq!(last_commit(&with(&more)).unwrap(), Some(expected), "{what}");
    }
    assert_eq!(last_commit(&file(&[header_line("s", "/w")])).unwrap(), None);
    assert_eq!(last_commit(&file(&[])).unwrap(), None);
    assert_eq!(last_commit(&file(&["no session\n".to_owned(), "at all\n".to_owned()])).unwrap(), None);
}

#[test]
fn a_changed_line_is_damage_and_a_torn_end_is_none() {
    let good = line(20, &[named(2, "m")]);
    let changed = good.replace("\"m\"", "\"x\"");
    let torn = good.get(..good.len() / 2).unwrap().to_owned();
    for (more, expected) in
        [(vec![good.clone(), torn], None), (vec![changed.clone()], None), (vec![changed, good], Some(2))]
    {
        let lines = [vec![header_line("s", "/w")], more].concat();
        assert_eq!(glance(&file(&lines)).unwrap().damaged_line, expected);
    }
}

#[test]
fn a_header_is_read_whatever_follows_and_its_absence_has_a_reason() {
    let long_path = "p".repeat(10_000);
    for cwd in ["/w", long_path.as_str()] {
        let found = header(&file(&[header_line("s", cwd), "garbage".to_owned()])).unwrap();
        assert_eq!((found.id.as_str(), found.cwd.as_str()), ("s", cwd));
    }
    for (text, reason) in [
        (String::new(), "not whole"),
        (header_line("s", "/w").trim_end().to_owned(), "not whole"),
        ("{}\n".to_owned(), "no session header"),
        ("x".repeat(100_000), "too long"),
    ] {
        let error = header(&file(&[text])).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    assert!(open(dir.path()).is_err());
    assert!(open(&dir.path().join("none")).is_err());
    let pipe = dir.path().join("pipe.jsonl");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    assert!(open(&pipe).is_err(), "a pipe is not waited for");
}
