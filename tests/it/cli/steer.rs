//! `pirn steer` from another shell: messages, follow-ups and aborts for a run whose tool waits, for one that was killed,
//! and for sessions that are not there. Numbers of cases are those of `tests/cases/engine.md`.

use std::path::PathBuf;
use std::sync::Arc;

use pirn::session::jsonl::lock::{Probe, probe};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::kept::{everything, messages, only, talk};
use super::signals::until;
use super::{Output, Pirn, Place, Running, Stdin};
use crate::support::chat::{chat_text, chat_tool};
use crate::support::server::{Gate, Server};

/// Behind this file the tool of [`Held`] is at work.
const UP: &str = "up";
/// What the tool of [`Held`] waits for.
const LATCH: &str = "latch";

/// A run in JSON, whose tool waits until it is released.
struct Held {
    place: Arc<Place>,
    running: Running,
}

/// The call that waits.
fn waiting() -> crate::support::server::Reply {
    chat_tool("bash", json!({"command": format!("echo $$ > {UP}; cat {LATCH}")}))
}

impl Held {
    fn start(server: &Server) -> Self {
        let place = Place::new();
        let latch = place.dir().join(LATCH);
        rustix::fs::mkfifoat(rustix::fs::CWD, &latch, rustix::fs::Mode::RWXU).unwrap();
        let running = Pirn::of_server(server, ["--json", "-t", "bash", "a"]).at(&place).spawn();
        until(|| std::fs::read_to_string(place.dir().join(UP)).is_ok_and(|pid| pid.ends_with('\n')));
        Self { place, running }
    }

    fn steer(&self, args: &[&str]) -> Output {
        steer(&self.place, args)
    }

    fn inbox(&self) -> PathBuf {
        only(&self.place).with_extension("inbox")
    }

    /// Waits for the next change of the queues behind `count` of them.
    fn queued(&self, count: usize) {
        until(|| self.running.stdout_so_far().matches("\"type\":\"queue_update\"").count() > count);
    }

    /// Lets the tool end with this text.
    fn release(self, text: &str) -> (Arc<Place>, Output) {
        std::fs::write(self.place.dir().join(LATCH), text).unwrap();
        (self.place, self.running.wait())
    }

    fn kill(self) -> Arc<Place> {
        self.running.signal(Signal::KILL);
        self.running.wait();
        self.place
    }
}

fn steer(place: &Arc<Place>, args: &[&str]) -> Output {
    Pirn::new(["steer"].iter().chain(args).copied()).at(place).run()
}

/// The end of a steering that did what it says.
fn good(output: &Output, says: &str) {
    assert_eq!((output.code(), output.stdout.as_str(), output.stderr.lines().count()), (0, "", 1), "{output:?}");
    assert!(output.stderr.contains(says), "{says}: {output:?}");
}

fn goes_on(server: &Server, place: &Arc<Place>, args: &[&str]) -> Output {
    Pirn::of_server(server, ["-c"].iter().chain(args).copied()).at(place).run()
}

/// The files in a directory, without their directory.
fn names(dir: &std::path::Path) -> Vec<String> {
    let found = std::fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> = found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn texts(queue: &Value) -> Vec<String> {
    let text = |item: &Value| match item {
        Value::String(text) => text.clone(),
        item => item["content"].as_str().or_else(|| item["content"][0]["text"].as_str()).unwrap().to_owned(),
    };
    queue.as_array().unwrap().iter().map(text).collect()
}

#[test]
fn messages_into_a_waiting_tool_stand_behind_its_result_and_a_follow_up_behind_the_answer_cases_46_48_49() {
    let replies = [waiting(), chat_text("one"), chat_text("two"), chat_text("three")];
    let server = Server::start(replies);
    let held = Held::start(&server);
    let pid = held.running.id().to_string();
    good(&held.steer(&["--follow-up", "last"]), "queued as a follow-up for the running session");
    held.queued(0);
    let output = held.steer(&["now", "and", "here"]);
    good(&output, "queued for the running session");
    assert!(output.stderr.contains(&pid), "{pid}: {output:?}");
    held.queued(1);
    // What is longer, or comes from a program.
    let piped = Pirn::new(["steer", "see", "-"]).at(&held.place).stdin(Stdin::Bytes(b"a pipe\n".to_vec())).run();
    good(&piped, "queued for the running session");
    held.queued(2);
    assert_eq!((names(&held.inbox()), server.requests().len()), (Vec::new(), 1), "taken in, and no request for it");

    let (place, output) = held.release("ran");
    let result = output.result();
    assert_eq!((output.code(), &result["text"], &result["pendingFollowUps"]), (0, &json!("three"), &json!(0)));
    server.assert_clean();
    let bodies = server.bodies();
    let mut said = vec!["user: a", "assistant! bash", "tool: ran", "user: now and here"];
    assert_eq!(talk(&bodies[1]), said, "one message a request");
    said.extend(["assistant: one", "user: see\n\na pipe\n"]);
    assert_eq!(talk(&bodies[2]), said);
    said.extend(["assistant: two", "user: last"]);
    assert_eq!(talk(&bodies[3]), said);

    // The whole queues, whenever they change.
    let lines = output.lines_of("queue_update");
    let told: Vec<[Vec<String>; 2]> =
        lines.iter().map(|line| [texts(&line["steering"]), texts(&line["followUp"])]).collect();
    let steering: Vec<usize> = told.iter().map(|[steering, _]| steering.len()).collect();
    let follow_up: Vec<usize> = told.iter().map(|[_, follow_up]| follow_up.len()).collect();
    assert_eq!((steering, follow_up), (vec![0, 1, 2, 1, 0, 0], vec![1, 1, 1, 1, 1, 0]), "{told:?}");
    assert_eq!(told[2], [vec!["now and here".to_owned(), "see\n\na pipe\n".to_owned()], vec!["last".to_owned()]]);
    assert_eq!(messages(&only(&place)).len(), 1 + 2 + 2 + 2 + 2);
}

#[test]
fn an_abort_from_another_shell_ends_a_run_whose_tool_waits_case_45() {
    let server = Server::start([waiting(), chat_text("more")]);
    let held = Held::start(&server);
    let pid = held.running.id().to_string();
    let output = held.steer(&["--abort"]);
    good(&output, "abort requested for the running session");
    assert!(output.stderr.contains(&pid), "{output:?}");
    let (place, output) = (held.place, held.running.wait());
    let result = output.result();
    assert_eq!((output.code(), output.signal(), &result["reason"]), (130, None, &json!("interrupted")), "{output:?}");
    let end = output.lines_of("tool_execution_end").remove(0);
    assert_eq!((&end["isError"], server.requests().len()), (&json!(true), 1));
    let kept = messages(&only(&place));
    assert_eq!((kept.len(), &kept[2]["role"], &kept[2]["isError"]), (3, &json!("toolResult"), &json!(true)));
    gone(&place);

    // There is nothing more to end, and nothing that would end the next run.
    good(&steer(&place, &["--abort"]), "has no unfinished run to end");
    assert_eq!(names(&only(&place).with_extension("inbox")), Vec::<String>::new());
    let output = goes_on(&server, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n"), "{output:?}");
    assert_eq!(talk(&server.bodies()[1]).len(), 3);
    server.assert_clean();
}

#[test]
fn an_abort_names_the_run_it_is_for_so_that_no_clock_decides_case_45() {
    let server = Server::start([waiting()]);
    let held = Held::start(&server);
    let started = held.running.stdout_so_far();
    held.running.signal(Signal::STOP);
    good(&held.steer(&["--abort"]), "abort requested");
    let inbox = held.inbox();
    let left = names(&inbox);
    assert_eq!(left.len(), 1, "{left:?}");
    let mut item: Value = serde_json::from_slice(&std::fs::read(inbox.join(&left[0])).unwrap()).unwrap();
    assert!(started.contains(&format!("\"runId\":{}", item["operationId"])), "{item}");
    // As it is when the clock was set back behind the start of the run.
    item["at"] = json!(1);
    std::fs::write(inbox.join(&left[0]), item.to_string()).unwrap();
    held.running.signal(Signal::CONT);
    let output = held.running.wait();
    assert_eq!((output.code(), &output.result()["reason"]), (130, &json!("interrupted")), "{output:?}");
    assert_eq!(names(&inbox), Vec::<String>::new());
}

/// The shell of the tool is no more.
fn gone(place: &Place) {
    let pid = std::fs::read_to_string(place.dir().join(UP)).unwrap();
    until(|| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.map_or(true, |stat| stat.contains(") Z"))
    });
}

#[test]
fn an_abort_of_a_killed_run_ends_it_and_its_tool_without_a_request_case_45() {
    let server = Server::start([waiting(), chat_text("more")]);
    let place = Held::start(&server).kill();
    // Asks no model, so it needs neither a key nor a server.
    let output = steer(&place, &["--abort"]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, ""), "{output:?}");
    assert!(output.stderr.contains("is not running; the run it was left in is ended"), "{output:?}");
    assert_eq!(server.requests().len(), 1);
    gone(&place);
    let kept = messages(&only(&place));
    let text = kept[2]["content"][0]["text"].as_str().unwrap();
    assert!(kept.len() == 3 && text.starts_with("[interrupted]"), "{kept:?}");
    good(&steer(&place, &["--abort"]), "has no unfinished run to end");
    let output = goes_on(&server, &place, &["b"]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n"), "{output:?}");
    assert_eq!(talk(&server.bodies()[1])[3], "user: b");
    server.assert_clean();
}

#[test]
fn what_was_left_before_and_behind_a_kill_is_said_once_in_order_cases_47_54_55() {
    let server = Server::start([waiting()]).then_always(chat_text("more"));
    let held = Held::start(&server);
    good(&held.steer(&["before"]), "for the running session");
    held.queued(0);
    let place = held.kill();
    for args in [&["behind"][..], &["--follow-up", "last"]] {
        good(&steer(&place, args), "which is not running: it waits for the next run (pirn -c)");
    }
    let inbox = only(&place).with_extension("inbox");
    let left: Vec<(String, Vec<u8>)> =
        names(&inbox).into_iter().map(|name| (name.clone(), std::fs::read(inbox.join(name)).unwrap())).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    let output = goes_on(&server, &place, &["--json"]);
    assert_eq!(output.code(), 0, "{output:?}");
    let said = talk(server.bodies().last().unwrap());
    let users: Vec<&String> = said.iter().filter(|text| text.starts_with("user")).collect();
    assert_eq!(users, ["user: a", "user: before", "user: behind", "user: last"]);
    assert!(said[2].starts_with("tool: [interrupted]") && said[3] == "user: before", "{said:?}");
    assert_eq!((names(&inbox), server.violations()), (Vec::new(), Vec::new()));

    // As a process leaves it that dies before it can remove what it took in: it is not said again.
    for (name, bytes) in left {
        std::fs::write(inbox.join(name), bytes).unwrap();
    }
    let requests = server.requests().len();
    let output = goes_on(&server, &place, &["b"]);
    assert_eq!((output.code(), server.requests().len()), (0, requests + 1), "{output:?}");
    assert_eq!(talk(server.bodies().last().unwrap()).len(), said.len() + 2, "the answer and the prompt");
    assert_eq!(names(&inbox), Vec::<String>::new());
}

#[test]
fn a_bad_file_in_the_spool_is_put_aside_with_a_warning_and_the_run_goes_on_case_56() {
    let server = Server::start([waiting(), chat_text("one"), chat_text("two")]);
    let held = Held::start(&server);
    good(&held.steer(&["first"]), "running");
    held.queued(0);
    let inbox = held.inbox();
    let name = "01a22cb9-0000-7000-8000-000000000000.json";
    std::fs::write(inbox.join(name), "{\"v\":1,").unwrap();
    held.running.wait_stdout("\"type\":\"warning\"");
    let bad = format!("{name}.bad");
    assert_eq!(names(&inbox), [bad.as_str()]);
    let (_, output) = held.release("ran");
    let warnings = output.lines_of("warning");
    assert_eq!((output.code(), warnings.len()), (0, 1), "{output:?}");
    assert!(warnings[0]["message"].as_str().unwrap().contains(name), "{warnings:?}");
    assert_eq!(talk(&server.bodies()[1])[3], "user: first");
}

#[test]
fn of_several_running_sessions_none_is_steered_and_all_are_listed() {
    let gate = Gate::new();
    let server =
        Server::start([chat_text("one").behind(&gate), chat_text("two").behind(&gate)]).then_always(chat_text("more"));
    let place = Place::new();
    let start = |name: &str, count: usize| {
        let running = Pirn::of_server(&server, ["-s", name, "a"]).at(&place).spawn();
        assert!(server.wait_requests(count));
        running
    };
    let running = [start("first", 1), start("second", 2)];
    for args in [&["x"][..], &["--follow-up", "x"], &["--abort"]] {
        let output = steer(&place, args);
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{output:?}");
        assert!(output.stderr.contains("2 sessions of this directory are running"), "{output:?}");
        for (name, run) in ["first", "second"].iter().zip(&running) {
            let line = output.stderr.lines().find(|line| line.contains(name)).unwrap();
            assert!(line.contains(&format!("(pid {})", run.id())), "{line}");
            // The line's id is one that `-s` takes.
            let id = line.split_whitespace().find(|word| word.matches('-').count() == 4).unwrap();
            assert!(place.sessions().iter().any(|file| file.to_str().unwrap().contains(id)), "{line}");
        }
        assert!(output.stderr.contains("-s ID"), "the way out: {output:?}");
    }
    let left: Vec<String> = place.sessions().iter().flat_map(|file| names(&file.with_extension("inbox"))).collect();
    assert_eq!(left, Vec::<String>::new(), "nothing was left for either");
    good(&steer(&place, &["-s", "second", "for the second"]), "queued for the running session");
    gate.open();
    for run in running {
        assert_eq!(run.wait().code(), 0);
    }
    // A message that comes while the last answer does is answered, too.
    let heard: Vec<Vec<String>> = server.bodies().iter().map(talk).filter(|said| said.len() > 1).collect();
    assert_eq!((heard.len(), heard[0].last().unwrap().as_str()), (1, "user: for the second"), "{heard:?}");
}

#[test]
fn a_call_that_can_not_be_heard_is_2_and_leaves_nothing_case_58() {
    let empty = Place::new();
    let server = Server::start([chat_text("OK")]);
    let place = Place::new();
    assert_eq!(Pirn::of_server(&server, ["-s", "known", "a"]).at(&place).run().code(), 0);
    for (place, args, says) in [
        (&empty, &["x"][..], "there is no session of this directory"),
        (&empty, &["--abort"], "there is no session of this directory"),
        (&empty, &["-s", "pr-99", "x"], "pr-99"),
        (&place, &["-s", "pr-99", "x"], "pr-99"),
        (&place, &["-s", "0123456789", "x"], "0123456789"),
        (&place, &["-s", "./none.jsonl", "--abort"], "none.jsonl"),
        (&place, &[], "no text to send"),
        (&place, &[" \n"], "no text to send"),
        (&place, &["--abort", "x"], "--abort"),
        (&place, &["--abort", "--follow-up"], "--abort"),
        (&place, &["-m", "demo", "x"], "-m"),
    ] {
        let before = everything(place);
        let output = steer(place, args);
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{args:?}: {output:?}");
        assert!(output.stderr.starts_with("pirn: ") && output.stderr.contains(says), "{args:?}: {output:?}");
        assert_eq!(everything(place), before, "{args:?}");
    }
}

#[test]
fn a_signal_behind_the_leaving_makes_no_failure_of_it() {
    let server = Server::start([chat_text("OK"), chat_text("more")]);
    let place = Place::new();
    assert_eq!(Pirn::of_server(&server, ["-s", "known", "a"]).at(&place).run().code(), 0);
    // Whoever asks whether the session is running waits here, and that is done last.
    let lock = only(&place).with_extension("lock");
    std::fs::remove_file(&lock).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &lock, rustix::fs::Mode::RWXU).unwrap();
    let steering = Pirn::new(["steer", "-s", "known", "once"]).at(&place).spawn();
    let inbox = only(&place).with_extension("inbox");
    until(|| names(&inbox).iter().any(|name| std::path::Path::new(name).extension().is_some_and(|end| end == "json")));
    steering.signal(Signal::INT);
    std::fs::File::options().write(true).open(&lock).unwrap();
    good(&steering.wait(), "queued for session");
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(goes_on(&server, &place, &[]).code(), 0);
    assert_eq!(talk(&server.bodies()[1]), ["user: a", "assistant: OK", "user: once"]);
}

#[test]
fn a_signal_before_the_leaving_leaves_nothing() {
    let place = Place::new();
    let server = Server::start([chat_text("OK")]);
    assert_eq!(Pirn::of_server(&server, ["-s", "known", "a"]).at(&place).run().code(), 0);
    // The one that ends the writer of the text ends the call, too, though the text looks complete.
    let script =
        "{ echo half; kill -INT $(cat pid); } | { echo $BASHPID >pid.new; mv pid.new pid; exec \"$0\" \"$@\"; }";
    let script = script.replace("{ echo half;", "{ until [ -e pid ]; do :; done; sleep 0.3; echo half;");
    let output = Pirn::new(["steer", "-s", "known", "-"]).at(&place).script(script).run();
    assert_eq!((output.code(), output.stdout.as_str()), (130, ""), "{output:?}");
    assert_eq!(names(&only(&place).with_extension("inbox")), Vec::<String>::new());
}

#[test]
fn an_abort_of_a_call_that_waits_for_its_prompt_says_that_there_is_no_run_yet_case_45() {
    let place = Place::new();
    let server = Server::start([chat_text("OK")]);
    assert_eq!(Pirn::of_server(&server, ["-s", "known", "a"]).at(&place).run().code(), 0);
    let waiting = Pirn::of_server(&server, ["-c", "-s", "known", "-"]).at(&place).stdin(Stdin::Silent).spawn();
    until(|| matches!(probe(&only(&place)), Ok(Probe::Running(_))));
    let output = steer(&place, &["--abort"]);
    good(&output, "which has no run yet");
    assert!(output.stderr.contains(&waiting.id().to_string()) && !output.stderr.contains("running"), "{output:?}");
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.wait().code(), 143);
}
