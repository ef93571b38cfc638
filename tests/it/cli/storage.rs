//! What becomes of a session when a file is torn, damaged or full, and when the process is killed: SES-01, SES-02,
//! SES-06, SES-08, SES-15. Numbers of cases are those of `tests/cases/engine.md`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::kept::{entries, everything, messages, only, talk};
use super::{Output, Pirn, Place};
use crate::support::chat::{chat_text, chat_tool, chat_tools, chunk, usage_chunk};
use crate::support::server::{Gate, Reply, Server};

fn answering() -> Server {
    Server::start([]).then_always(chat_text("OK"))
}

fn good(call: Pirn) -> Output {
    let output = call.run();
    assert_eq!(output.code(), 0, "{output:?}");
    output
}

/// A place with a session of two questions.
fn begun(server: &Server) -> (Arc<Place>, PathBuf) {
    let place = Place::new();
    good(Pirn::of_server(server, ["a"]).at(&place));
    good(Pirn::of_server(server, ["-c", "b"]).at(&place));
    let file = only(&place);
    (place, file)
}

/// The copies of torn ends beside a session.
fn torn(file: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.to_str().unwrap().contains(".torn-")).collect()
}

#[test]
fn what_a_crash_tore_off_is_moved_aside_and_the_rest_goes_on_ses_01_ses_02_cases_92_94_95() {
    let server = answering();
    let (place, file) = begun(&server);
    let whole = std::fs::read(&file).unwrap();
    let starts: Vec<usize> = memchr::memchr_iter(b'\n', &whole).map(|at| at + 1).collect();
    let start = |from_end: usize| starts[starts.len() - 2 - from_end];
    let end = whole.len();
    let mut ends: Vec<Vec<u8>> = [
        end,
        // Only the line feed is missing.
        end - 1,
        end - 2,
        end - 17,
        start(0) + (end - start(0)) / 2,
        start(0) + 1,
        // Within the last reply, and within the last question.
        start(1) + (start(0) - start(1)) / 3,
        start(1) - 1,
        start(2) + 40,
    ]
    .iter()
    .map(|end| whole[..*end].to_vec())
    .collect();
    // What a file system makes of blocks that were never written.
    ends.push([&whole[..], &[0; 4096]].concat());
    for bytes in ends {
        std::fs::write(&file, &bytes).unwrap();
        let last_line = memchr::memrchr(b'\n', &bytes).unwrap() + 1;
        let is_whole = bytes.len() == last_line
            || bytes.get(last_line..) == whole.get(last_line..end - 1) && bytes.len() == end - 1
            || bytes.len() + 1 == start(1);
        let good_bytes = if is_whole { bytes.len() } else { last_line };
        let shown = format!("{} bytes of {end}, {good_bytes} good", bytes.len());
        let requests = server.requests().len();
        let first = good(Pirn::of_server(&server, ["-c", "x"]).at(&place));
        assert_eq!(first.stderr.contains("are left out"), !is_whole, "{shown}: {first:?}");
        let after = std::fs::read(&file).unwrap();
        assert!(after.starts_with(&bytes[..good_bytes]) && after.len() > good_bytes, "{shown}");
        let copies: Vec<Vec<u8>> = torn(&file).iter().map(|path| std::fs::read(path).unwrap()).collect();
        let expected: Vec<Vec<u8>> = if is_whole { Vec::new() } else { vec![bytes[good_bytes..].to_vec()] };
        assert_eq!(copies, expected, "{shown}: what is no record is kept elsewhere");
        let second = good(Pirn::of_server(&server, ["-c", "y"]).at(&place));
        assert_eq!(second.stderr, "", "{shown}");
        // A reply that was torn off had been asked for: that run is finished first.
        let is_open = server.requests().len() - requests > 2;
        assert_eq!(is_open, first.stderr.contains("interrupted"), "{shown}: {first:?}");
        let kept: Vec<Value> = messages(&file).into_iter().filter(|message| message["stopReason"] != "error").collect();
        let roles: Vec<&Value> = kept.iter().map(|message| &message["role"]).collect();
        assert_eq!(roles[roles.len() - 4..], ["user", "assistant", "user", "assistant"], "{shown}");
        let said = talk(server.bodies().last().unwrap());
        assert_eq!((said.len(), said.last().unwrap().as_str()), (kept.len() - 1, "user: y"), "{shown}: {said:?}");
        for path in torn(&file) {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn damage_before_a_whole_line_is_refused_and_what_is_before_it_is_shown_ses_01_case_93() {
    let server = answering();
    let (place, file) = begun(&server);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let requests = server.requests().len();
    let flipped = |line: usize| {
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        changed[line - 1] = changed[line - 1].replacen("\"at\"", "\"aT\"", 1);
        changed.join("\n") + "\n"
    };
    let mut missing = lines.clone();
    missing[3] = "";
    for (bytes, line) in [(flipped(3), 3), (flipped(lines.len() - 1), lines.len() - 1), (missing.join("\n") + "\n", 4)]
    {
        std::fs::write(&file, &bytes).unwrap();
        let before = everything(&place);
        for args in [&["-c", "x"][..], &["-c"], &["-s", file.to_str().unwrap(), "x"]] {
            let output = Pirn::of_server(&server, ["--json"].iter().chain(args).copied()).at(&place).run();
            let result = output.result();
            assert_eq!((output.code(), &result["error"]["kind"]), (1, &json!("storage")), "{output:?}");
            assert!(output.stderr.contains(&format!("line {line}")), "{line}: {output:?}");
        }
        assert_eq!((everything(&place), server.requests().len()), (before, requests));
        let shown = Pirn::new(["sessions", "show"]).at(&place).run();
        assert_eq!((shown.code(), shown.stdout.contains("[user]")), (1, line > 3), "{line}: {shown:?}");
        assert!(shown.stderr.contains(&format!("line {line}")), "{line}: {shown:?}");
        let listed = Pirn::new(["sessions", "list"]).at(&place).run();
        assert!(listed.code() == 0 && listed.stdout.contains('!') && listed.stderr.contains("damaged"), "{listed:?}");
    }
}

#[test]
fn a_session_of_a_newer_version_is_shown_and_not_written_case_100() {
    let server = answering();
    let (place, file) = begun(&server);
    rewrite_header(&file, "\"format\":1", "\"format\":2");
    let before = everything(&place);
    let output = Pirn::of_server(&server, ["-c", "x"]).at(&place).run();
    assert_eq!((output.code(), output.stdout.as_str(), server.requests().len()), (1, "", 2), "{output:?}");
    assert!(output.stderr.contains("storage") && output.stderr.contains("newer"), "{output:?}");
    let shown = good(Pirn::new(["sessions", "show"]).at(&place));
    assert!(shown.stdout.contains("[assistant]") && shown.stderr.contains("newer"), "{shown:?}");
    assert_eq!(everything(&place), before);
}

fn rewrite_header(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_line_that_another_program_appends_ends_the_run_before_anything_else_is_written_case_97() {
    let gate = Gate::new();
    let held = Reply::with({
        let gate = gate.clone();
        move |_| {
            gate.wait();
            chat_text("late")
        }
    });
    let server = Server::start([chat_text("OK"), chat_text("OK"), held]);
    let (place, file) = begun(&server);
    let running = Pirn::of_server(&server, ["--json", "-c", "x"]).at(&place).spawn();
    assert!(server.wait_requests(3));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.extend_from_slice(b"{\"theirs\":1}\n");
    std::fs::write(&file, &bytes).unwrap();
    gate.open();
    let output = running.wait();
    let result = output.result();
    assert_eq!((output.code(), &result["error"]["kind"]), (1, &json!("storage")), "{output:?}");
    assert_eq!(result["resumable"], true);
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    // The line claims nothing that is not stored.
    assert_eq!(output.lines_of("message_end").len(), 1, "{output:?}");
}

#[test]
fn directories_and_files_are_private_whatever_the_umask_ses_15() {
    let spill = chat_tool("bash", json!({"command": "seq 1 3000; sleep 300 & echo later"}));
    let server = Server::start([spill]).then_always(chat_text("OK"));
    let place = Place::new();
    let call = |args: &[&str]| {
        let call = Pirn::of_server(&server, args.iter().copied()).at(&place);
        good(call.script("umask 000; exec \"$0\" \"$@\""))
    };
    call(&["-t", "bash", "-s", "name", "a"]);
    let file = only(&place);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    call(&["-c", "b"]);
    let mut found = Vec::new();
    let mut open = vec![place.home().join("state")];
    while let Some(path) = open.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o7777, wanted, "{}", path.display());
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push(path.display().to_string());
    }
    for kind in [".jsonl", ".lock", ".d", ".log", ".torn-"] {
        assert!(found.iter().any(|path| path.contains(kind)), "{kind}: {found:?}");
    }
}

/// Bytes of a file that each entry may cost beside what was said: ids, usage, the registers of a run.
const ENTRY_BYTES: usize = 1500;

#[test]
fn a_file_holds_little_more_than_what_was_said_ses_08() {
    let answer = "0123456789abcdef".repeat(32);
    let deltas = (0..200).map(|_| chunk(&json!({"content": answer}), None));
    let long = deltas.chain([chunk(&json!({}), Some("stop")), usage_chunk()]);
    let long = long.fold(Reply::stream(), |reply, chunk| reply.event(&chunk)).send("data: [DONE]\n\n");
    let shown = json!({"command": "seq 1 1000"});
    let rounds = (0..10).flat_map(|_| [chat_tool("bash", shown.clone()), chat_tool("read", json!({"path": "f"}))]);
    let server = Server::start(rounds.chain([long]));
    let place = Place::new();
    good(Pirn::of_server(&server, ["-t", "read,bash", "x"]).at(&place).file("f", "line of a file\n".repeat(500)));
    server.assert_clean();
    let file = only(&place);
    let content: usize = messages(&file).iter().map(|message| texts(&message["content"])).sum();
    let size = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let (entries, fixed) = (entries(&file).len(), size.saturating_sub(content * 3 / 2));
    println!("{content} bytes of content, {size} of the file, {entries} entries");
    assert!(content > 200_000 && entries == 42, "{content} {entries}");
    assert!(fixed <= entries * ENTRY_BYTES, "{size} bytes for {content} of content");
    assert!(size <= content + entries * ENTRY_BYTES, "{size} bytes for {content} of content");
}

/// Bytes of what was said.
fn texts(content: &Value) -> usize {
    let of = |block: &Value| block["text"].as_str().map_or_else(|| block["arguments"].to_string().len(), str::len);
    content.as_array().unwrap().iter().map(of).sum()
}

/// Three results of 50 KB, and an effect behind them.
fn growing() -> Server {
    let big = |path: &str| json!({"command": format!("touch {path}; head -c 49000 /dev/zero | tr '\\0' x")});
    let calls = [big("one"), big("two"), big("three"), json!({"command": "touch effect"})];
    let calls: Vec<(&str, Value)> = calls.into_iter().map(|args| ("bash", args)).collect();
    Server::start([chat_tools(&calls)]).then_always(chat_text("OK"))
}

/// What holds when the disk was full in the middle of a run, and when there is space again.
fn goes_on_after_a_full_disk(server: &Server, place: &Arc<Place>, full: &Output, file: &Path) {
    let result = full.result();
    assert_eq!(
        (full.code(), &result["error"]["kind"], &result["resumable"]),
        (1, &json!("storage"), &json!(true)),
        "{full:?}"
    );
    assert!(full.stderr.contains("storage"), "{full:?}");
    let kept = messages(file);
    let results = kept.iter().filter(|message| message["role"] == "toolResult").count();
    assert!((1..3).contains(&results), "{results} results were stored");
    assert!(place.dir().join("one").exists() && !place.dir().join("effect").exists(), "no effect behind the failure");
    // Nothing was claimed that is not there.
    let told = full.lines_of("message_end");
    assert_eq!(told.iter().map(|line| &line["message"]).collect::<Vec<_>>(), kept.iter().collect::<Vec<_>>());
    let output = good(Pirn::of_server(server, ["--json", "-c"]).at(place));
    let texts = talk(&server.bodies()[1]);
    assert_eq!((output.result()["text"].as_str(), texts.len()), (Some("OK"), 6));
    assert_eq!(server.violations(), Vec::<String>::new());
    // The call whose end could not be kept has run, and does not again; those behind it had not begun.
    let starts: Vec<&str> = texts[2..].iter().map(|text| &text[..text.len().min(19)]).collect();
    assert_eq!(starts.iter().filter(|text| **text == "tool: [interrupted]").count(), 1, "{starts:?}");
    assert_eq!((starts[results], starts[3]), ("tool: [interrupted]", "tool: (no output)"), "{starts:?}");
    assert!(place.dir().join("effect").exists());
    assert_eq!(messages(file).len(), 1 + 1 + 4 + 1);
}

#[test]
fn a_file_that_may_not_grow_ends_the_run_and_is_gone_on_with_later_ses_06_case_96() {
    let server = growing();
    let place = Place::new();
    let call = Pirn::of_server(&server, ["--json", "-t", "bash", "x"]).at(&place);
    let full = call.script("ulimit -f 130; exec \"$0\" \"$@\"").run();
    goes_on_after_a_full_disk(&server, &place, &full, &only(&place));
}

#[test]
fn a_session_that_can_not_be_made_ends_the_call_before_any_request_ses_06() {
    let server = answering();
    let place = Place::new();
    let call = Pirn::of_server(&server, ["--json", "x"]).at(&place);
    let output = call.script("ulimit -f 0; exec \"$0\" \"$@\"").run();
    assert_eq!((output.code(), &output.result()["error"]["kind"]), (1, &json!("storage")), "{output:?}");
    assert_eq!((place.sessions(), server.requests().len()), (Vec::new(), 0));
}

#[test]
fn an_output_that_can_not_be_saved_whole_fails_no_call_ses_06() {
    let server = Server::start([chat_tool("bash", json!({"command": "seq 1 90000"})), chat_text("OK")]);
    let place = Place::new();
    let call = Pirn::of_server(&server, ["-t", "bash", "x"]).at(&place);
    good(call.script("ulimit -f 100; exec \"$0\" \"$@\""));
    let kept = messages(&only(&place));
    let text = kept[2]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("90000\n\n[") && text.contains("could not be saved"), "{}", &text[text.len() - 300..]);
    assert_eq!(kept[2]["isError"], false);
}

#[test]
fn a_full_disk_ends_the_run_and_is_gone_on_with_later_ses_06() {
    const UNAVAILABLE: i32 = 98;
    let server = growing();
    let place = Place::new();
    // The disk is there for this shell only, so what was kept is carried out of it and found at the same place.
    let script = "disk=\"$PIRN_HOME/state\"; mkdir \"$disk\"
        unshare -m true && exec unshare -m bash -c '
            mount -t tmpfs -o size=128k none \"$DISK\" || exit 98
            \"$0\" \"$@\"; code=$?
            cp -a \"$DISK\" \"$DISK.kept\"; exit $code' \"$0\" \"$@\"
        exit 98";
    let call = Pirn::of_server(&server, ["--json", "-t", "bash", "x"]).at(&place);
    let full = call.env("DISK", place.home().join("state")).script(script).run();
    if full.code() == UNAVAILABLE {
        println!("unavailable: tmpfs");
        return;
    }
    std::fs::remove_dir(place.home().join("state")).unwrap();
    std::fs::rename(place.home().join("state.kept"), place.home().join("state")).unwrap();
    goes_on_after_a_full_disk(&server, &place, &full, &only(&place));
}

/// Reads a stream up to a line, then kills its writer. Gives the lines.
fn killed_at(server: &Server, place: &Arc<Place>, line: usize) -> Vec<Value> {
    let (reader, writer) = std::io::pipe().unwrap();
    let running = Pirn::of_server(server, ["--json", "-t", "ls,bash", "x"]).at(place).stdout(writer).spawn();
    let mut lines = BufReader::new(reader).lines();
    let read = lines.by_ref().take(line).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    running.signal(Signal::KILL);
    running.wait();
    read
}

#[test]
fn what_was_read_is_in_the_file_when_the_process_is_killed_g6() {
    let replies = || {
        let bash = chat_tool("bash", json!({"command": "echo ran >> ran"}));
        [chat_tools(&[("ls", json!({})), ("ls", json!({}))]), bash, chat_text("done")]
    };
    std::thread::scope(|scope| {
        for points in [[1, 4, 9, 12, 15, 18], [20, 22, 25, 30, 33, 36]] {
            scope.spawn(move || {
                for point in points {
                    let server = Server::start(replies()).then_always(chat_text("more"));
                    let place = Place::new();
                    let read = killed_at(&server, &place, point);
                    let file = only(&place);
                    let read: Vec<&Value> = read.iter().filter(|line| line["type"] == "message_end").collect();
                    // The kill may have torn the last line off; all that was told stands before it.
                    let before = std::fs::read_to_string(&file).unwrap();
                    for line in &read {
                        let id = line["entryId"].as_str().unwrap();
                        assert!(before.contains(&format!("\"id\":\"{id}\"")), "{point}: {line}");
                    }
                    let output = Pirn::of_server(&server, ["-c", "go on"]).at(&place).run();
                    assert_eq!(output.code(), 0, "{point}: {output:?}");
                    assert_eq!(server.violations(), Vec::<String>::new(), "{point}");
                    let kept = entries(&file);
                    let known = |line: &&Value| {
                        kept.iter().any(|entry| entry["id"] == line["entryId"] && entry["message"] == line["message"])
                    };
                    assert!(read.iter().all(known), "{point}: {read:?}");
                    let ran = std::fs::read_to_string(place.dir().join("ran")).unwrap_or_default();
                    assert!(ran.lines().count() <= 1, "{point}: an effect is not repeated");
                }
            });
        }
    });
}

#[test]
fn with_the_lock_off_a_name_is_given_away_without_one_case_127() {
    let server = answering();
    let place = Place::new();
    good(Pirn::of_server(&server, ["-s", "one", "a"]).at(&place));
    // Held by another process: whoever asked for it would wait for seconds, and then give up.
    let lock = std::fs::File::open(only(&place).with_file_name(".lock")).unwrap();
    lock.lock().unwrap();
    let off = ["--set", "session.lock=off", "-s", "two", "b"];
    let output = good(Pirn::of_server(&server, off).at(&place));
    assert!(output.stderr.contains("session.lock is off"), "{output:?}");
    assert_eq!(place.sessions().len(), 2);
}

#[test]
fn a_call_that_finds_nothing_to_go_on_with_leaves_a_bad_file_in_the_spool_to_the_next_case_56() {
    let server = answering();
    let place = Place::new();
    good(Pirn::of_server(&server, ["a"]).at(&place));
    let file = only(&place);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.split_inclusive('\n').next().unwrap()).unwrap();
    let bad = file.with_extension("inbox").join("01a22cb9-0000-7000-8000-000000000000.json");
    std::fs::create_dir_all(bad.parent().unwrap()).unwrap();
    std::fs::write(&bad, "{\"v\":1,").unwrap();
    let before = everything(&place);
    let output = Pirn::of_server(&server, ["-c"]).at(&place).run();
    assert!(output.code() == 2 && output.stderr.contains("nothing to continue"), "{output:?}");
    assert_eq!(everything(&place), before, "what is put aside is told, and nothing was told here");
    let output = good(Pirn::of_server(&server, ["-c", "b"]).at(&place));
    assert!(output.stderr.contains(".bad behind its name") && !bad.exists(), "{output:?}");
}
