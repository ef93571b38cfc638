//! Durable runs as a user sees them: retries (OUT-04, OUT-06, NET-10), fallback models, follow-ups, limits, and what
//! `-c` makes of a run that was killed.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::kept::{messages, only, talk};
use super::signals::until;
use super::{Output, Pirn, Place};
use crate::support::chat::{chat_error, chat_text, chat_tool, chunk};
use crate::support::server::{Gate, Reply, Server};

/// The most attempts of one request.
pub(super) const ATTEMPTS: usize = 4;
pub(super) const HALF: &str = "The first half";

pub(super) fn busy() -> Reply {
    chat_error(503, "overloaded", "Busy")
}

/// A reply that breaks off behind some text.
fn broken() -> Reply {
    Reply::stream().event(&chunk(&json!({"role": "assistant", "content": HALF}), None)).close()
}

/// The same, but nothing more comes.
pub(super) fn begun() -> Reply {
    Reply::stream().event(&chunk(&json!({"role": "assistant", "content": HALF}), None)).hold()
}

fn numbers(lines: &[Value], key: &str) -> Vec<u64> {
    lines.iter().map(|line| line[key].as_u64().unwrap()).collect()
}

#[test]
fn a_failure_that_passes_leaves_nothing_but_a_retry_behind_out_04_out_06() {
    for (first, name) in [(broken(), "network"), (busy(), "overloaded")] {
        let server = || Server::start([first.clone(), busy(), chat_text("done")]);
        for (args, lines) in [(&["x"][..], 0), (&["-v", "x"], 2), (&["-q", "x"], 0)] {
            let server = server();
            let output = Pirn::of_server(&server, args.iter().copied()).soon().run();
            assert_eq!((output.code(), output.stdout.as_str()), (0, "done\n"), "{output:?}");
            let retries = output.stderr.lines().filter(|line| line.contains("retry")).count();
            assert_eq!(retries, lines, "{output:?}");
            assert!(lines > 0 || output.stderr.is_empty(), "{output:?}");
            server.assert_clean();
            // What failed is not said again.
            assert_eq!(talk(&server.bodies()[2]), ["user: x"]);
        }
        let server = server();
        let output = Pirn::of_server(&server, ["--json", "x"]).soon().run();
        let (starts, ends) = (output.lines_of("auto_retry_start"), output.lines_of("auto_retry_end"));
        assert_eq!((numbers(&starts, "attempt"), numbers(&starts, "delayMs")), (vec![2, 3], vec![1, 2]), "{starts:?}");
        assert!(starts.iter().all(|line| line["maxAttempts"] == ATTEMPTS), "{starts:?}");
        assert!(!starts[0]["errorMessage"].as_str().unwrap().is_empty(), "{name}: {starts:?}");
        assert_eq!((ends.len(), &ends[0]["success"], &ends[0]["attempt"]), (1, &json!(true), &json!(3)), "{ends:?}");
        assert_eq!((output.lines_of("agent_end").len(), output.lines_of("warning").len()), (1, 0));
        let result = output.result();
        assert_eq!((&result["text"], &result["error"], &result["requests"]), (&json!("done"), &Value::Null, &json!(3)));
    }
}

#[test]
fn text_that_was_shown_of_a_failed_attempt_stands_in_a_line_of_its_own_out_04() {
    let server = Server::start([broken(), chat_text("done")]);
    let output = Pirn::of_server(&server, ["--stream", "x"]).soon().run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "The first half\ndone\n"), "{output:?}");
    assert!(output.stderr.contains("retry"), "the reader must know: {output:?}");
}

#[test]
fn the_last_attempt_decides_how_a_run_fails_out_06() {
    let server = Server::start([busy(), busy(), broken(), chat_error(500, "oops", "Oops")]);
    let output = Pirn::of_server(&server, ["--json", "x"]).soon().run();
    let result = output.result();
    assert_eq!((output.code(), &result["error"]["kind"], &result["requests"]), (75, &json!("server"), &json!(4)));
    let (starts, ends) = (output.lines_of("auto_retry_start"), output.lines_of("auto_retry_end"));
    assert_eq!((starts.len(), ends.len(), &ends[0]["success"]), (ATTEMPTS - 1, 1, &json!(false)), "{output:?}");
    assert!(ends[0]["finalError"].as_str().unwrap().contains("Oops"), "{ends:?}");
    assert_eq!(output.lines_of("agent_end").len(), 1);
    assert_eq!(output.stderr.lines().filter(|line| line.starts_with("pirn: ")).count(), 1, "{output:?}");
    server.assert_clean();
    // What waiting can not help is not tried again.
    let server = Server::start([chat_error(400, "bad", "no")]);
    assert_eq!(Pirn::of_server(&server, ["x"]).run().code(), 1);
    server.assert_clean();
}

#[test]
fn a_server_says_how_long_to_wait_and_is_heeded_up_to_the_limit_net_10() {
    const ASKED: u64 = 150;
    let limited = |name: &str, value: &str| chat_error(429, "rate_limit_exceeded", "Slow down").header(name, value);
    let asked = || limited("retry-after-ms", &ASKED.to_string());
    let server = Server::start([asked(), chat_error(429, "rate_limit_exceeded", "Slow down"), chat_text("ok")]);
    let output = Pirn::of_server(&server, ["--json", "x"]).soon().run();
    assert_eq!(output.code(), 0, "{output:?}");
    assert_eq!(numbers(&output.lines_of("auto_retry_start"), "delayMs"), [ASKED, 2], "no header: our own delay");
    assert!(output.elapsed >= Duration::from_millis(ASKED), "{:?}", output.elapsed);

    for (reply, set, hint) in [
        (limited("retry-after", "700"), "retry.enabled=true", "try again in 700 s"),
        (limited("retry-after", "Thu, 01 Jan 2099 00:00:00 GMT"), "retry.enabled=true", "try again in "),
        (asked(), "retry.max_delay=100ms", "try again in "),
    ] {
        let server = Server::start([reply]);
        let output = Pirn::of_server(&server, ["--set", set, "x"]).run();
        assert_eq!((output.code(), output.stdout.as_str()), (75, ""), "{output:?}");
        assert!(output.stderr.contains(hint), "{hint}: {output:?}");
        server.assert_clean();
    }
}

/// Answers by the model that is asked.
fn by_model() -> Server {
    let answer = |request: &crate::support::request::Recorded| {
        if request.json()["model"] == "one" { busy() } else { chat_text("from two") }
    };
    Server::start([]).then_always(Reply::with(answer))
}

#[test]
fn a_further_model_takes_over_when_the_first_one_can_not() {
    let server = by_model();
    let models = ["-m", "openai/one,openai/two"];
    let output = Pirn::of_server(&server, ["x"]).more(models).soon().run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "from two\n"), "{output:?}");
    let warning = "pirn: warning: openai/two takes over from openai/one: ";
    assert!(matches!(output.stderr.lines().collect::<Vec<_>>()[..], [line] if line.starts_with(warning)), "{output:?}");
    assert_eq!(server.requests().len(), ATTEMPTS + 1);

    let output = Pirn::of_server(&server, ["--json", "x"]).more(models).once().run();
    let line = output.lines_of("model_fallback").remove(0);
    assert_eq!((&line["from"], &line["to"]), (&json!("openai/one"), &json!("openai/two")), "{line}");
    assert!(line["errorMessage"].as_str().unwrap().contains("Busy"), "{line}");
    let result = output.result();
    assert_eq!(result["usageByModel"]["openai/two"]["output"], result["usage"]["output"], "{result}");
    assert_eq!((&result["requests"], server.requests().len()), (&json!(2), ATTEMPTS + 3));
}

#[test]
fn each_answer_of_follow_ups_is_printed_with_a_blank_line_between() {
    let replies = || [chat_text("one"), chat_tool("ls", json!({})), chat_text("two"), chat_text("three")];
    let then = ["a", "--then", "again", "--then", "again"];
    for args in [&[][..], &["--no-session"]] {
        let server = Server::start(replies());
        let output = Pirn::of_server(&server, then).more(args.iter().copied()).run();
        assert_eq!((output.code(), output.stdout.as_str()), (0, "one\n\ntwo\n\nthree\n"), "{output:?}");
        assert_eq!(output.stderr, "");
        server.assert_clean();
        let said = ["user: a", "assistant: one", "user: again", "assistant! ls", "tool: [empty directory]"];
        assert_eq!(talk(&server.bodies()[2]), said);
    }
    let server = Server::start(replies());
    let output = Pirn::of_server(&server, then).more(["--stream"]).run();
    assert_eq!(output.stdout, "one\n\ntwo\n\nthree\n", "live, too: {output:?}");
    let server = Server::start(replies());
    let output = Pirn::of_server(&server, then).more(["--json"]).run();
    let waiting: Vec<usize> =
        output.lines_of("queue_update").iter().map(|line| line["followUp"].as_array().unwrap().len()).collect();
    assert_eq!(waiting, [2, 1, 0], "{output:?}");
    let result = output.result();
    assert_eq!((&result["text"], &result["turns"]), (&json!("three"), &json!(4)));
    assert_eq!((&result["pendingFollowUps"], output.lines_of("agent_end").len()), (&json!(0), 1));
}

#[test]
fn follow_ups_outlive_a_failure_and_a_kill() {
    // No answer is printed where the whole did not succeed.
    let server = Server::start([chat_text("one"), chat_error(400, "bad", "no")]).then_always(chat_text("more"));
    let place = Place::new();
    let then = ["--then", "b", "--then", "c"];
    let output = Pirn::of_server(&server, ["a"]).more(then).at(&place).run();
    assert_eq!((output.code(), output.stdout.as_str()), (1, ""), "{output:?}");
    let output = Pirn::of_server(&server, ["-c"]).at(&place).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n\nmore\n"), "{output:?}");
    let said = ["user: a", "assistant: one", "user: b", "assistant: more", "user: c"];
    assert_eq!(talk(server.bodies().last().unwrap()), said, "what waited is asked behind what was owed");

    let server = Server::start([begun()]).then_always(chat_text("more"));
    let place = killed(&server, &["a", "--then", "b"]);
    let output = Pirn::of_server(&server, ["-c"]).at(&place).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n\nmore\n"), "{output:?}");
    assert_eq!(talk(server.bodies().last().unwrap()), ["user: a", "assistant: more", "user: b"]);
}

/// A run that was killed while its first reply came, once what had come of it was kept.
pub(super) fn killed(server: &Server, args: &[&str]) -> Arc<Place> {
    let place = Place::new();
    let running = Pirn::of_server(server, args.iter().copied()).at(&place).spawn();
    until(|| {
        let kept = place.sessions().pop().map(|file| std::fs::read_to_string(file).unwrap());
        kept.is_some_and(|text| text.contains(HALF))
    });
    running.signal(Signal::KILL);
    running.wait();
    place
}

pub(super) fn goes_on(server: &Server, place: &Arc<Place>, args: &[&str]) -> Output {
    Pirn::of_server(server, ["-c"].iter().chain(args).copied()).at(place).run()
}

#[test]
fn a_run_that_was_killed_in_a_reply_is_finished_and_keeps_what_had_come() {
    let server = || Server::start([begun()]).then_always(chat_text("whole"));
    let notice = format!("pirn: response interrupted after {} characters\n", HALF.len());
    for args in [&[][..], &["--stream"], &["--json"]] {
        let server = server();
        let place = killed(&server, &["a"]);
        let output = goes_on(&server, &place, args);
        assert_eq!((output.code(), output.stderr.as_str()), (0, notice.as_str()), "{output:?}");
        let kept = messages(&only(&place));
        let texts: Vec<&Value> = kept.iter().map(|message| &message["content"][0]["text"]).collect();
        assert_eq!(texts, ["a", HALF, "whole"]);
        assert_eq!((&kept[1]["stopReason"], &kept[1]["error"]["kind"]), (&json!("error"), &json!("interrupted")));
        assert_eq!(talk(&server.bodies()[1]), ["user: a"], "the same request");
        server.assert_clean();
        if args != ["--json"] {
            assert_eq!(output.stdout, "whole\n", "{output:?}");
            continue;
        }
        assert_eq!(output.lines_of("session")[0]["recovered"], true);
        assert_eq!(output.lines_of("agent_start")[0]["recovery"], true);
        let steps = output.lines_of("recovery");
        assert_eq!((steps.len(), &steps[0]["action"]), (1, &json!("settle")), "{steps:?}");
        let result = output.result();
        assert_eq!((&result["text"], &result["turns"], &result["requests"]), (&json!("whole"), &json!(1), &json!(2)));
    }
}

#[test]
fn a_reply_that_was_interrupted_is_not_asked_for_again_where_that_is_not_wanted() {
    let server = Server::start([begun()]).then_always(chat_text("whole"));
    let place = killed(&server, &["a"]);
    let output = goes_on(&server, &place, &["--no-resend"]);
    assert_eq!((output.code(), output.stdout.as_str(), server.requests().len()), (1, "", 1), "{output:?}");
    assert!(output.stderr.contains("pirn: interrupted: "), "{output:?}");
    let output = goes_on(&server, &place, &["b"]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "whole\n"), "{output:?}");
    assert_eq!(talk(&server.bodies()[1]), ["user: a", "user: b"]);
}

#[test]
fn a_prompt_over_an_unfinished_run_is_kept_first_and_asked_behind_it_case_51() {
    let server = Server::start([begun(), chat_text("old")]).then_always(chat_text("new"));
    let place = killed(&server, &["a"]);
    let output = goes_on(&server, &place, &["--json", "b"]);
    assert_eq!((output.code(), output.lines_of("agent_end").len()), (0, 2), "{output:?}");
    assert_eq!(talk(&server.bodies()[2]), ["user: a", "assistant: old", "user: b"]);
    let result = output.result();
    assert_eq!((&result["text"], &result["requests"]), (&json!("new"), &json!(3)), "with what the first run used");
    server.assert_clean();

    // In text both answers are there, and a kill between the two loses neither.
    let gate = Gate::new();
    let server = Server::start([begun(), chat_text("old").behind(&gate)]).then_always(chat_text("new"));
    let place = killed(&server, &["a"]);
    let running = Pirn::of_server(&server, ["-c", "b"]).at(&place).spawn();
    assert!(server.wait_requests(2));
    running.signal(Signal::KILL);
    running.wait();
    gate.open();
    let output = goes_on(&server, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "new\n\nnew\n"), "{output:?}");
    assert_eq!(talk(server.bodies().last().unwrap()), ["user: a", "assistant: new", "user: b"]);
}

#[test]
fn a_prompt_over_a_run_that_was_cancelled_is_asked_behind_its_end() {
    let deaf = "trap 'echo 1 > heard' TERM; echo $$ > up; while :; do sleep 300 & wait; done";
    let server = Server::start([chat_tool("bash", json!({"command": deaf}))]).then_always(chat_text("new"));
    let place = Place::new();
    let running = Pirn::of_server(&server, ["-t", "bash", "a"]).at(&place).spawn();
    for file in ["up", "heard"] {
        until(|| place.dir().join(file).exists());
        running.signal(Signal::INT);
    }
    assert_eq!(running.wait().code(), 130);
    let output = goes_on(&server, &place, &["b"]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "new\n"), "{output:?}");
    let said = talk(&server.bodies()[1]);
    assert_eq!((said.len(), said[3].as_str()), (4, "user: b"), "{said:?}");
}

#[test]
fn a_run_ends_at_every_limit_and_goes_on_when_asked() {
    let priced = ["-m", "m", "--set", "models.m.id=openai/test-model", "--set", "models.m.price={input=1000,output=0}"];
    let cost = [&priced[..], &["--max-cost", "0.015"]].concat();
    for (args, reason, requests) in [
        (&["--max-turns", "2"][..], "max_turns", 2),
        (&["--set", "limits.max_repeats=3"], "max_repeats", 3),
        // A request costs 0.01.
        (&cost, "max_cost", 2),
    ] {
        let server = Server::start((0..requests).map(|_| chat_tool("ls", json!({})))).then_always(chat_text("done"));
        let place = Place::new();
        let output = Pirn::of_server(&server, ["--json", "a"]).more(args.iter().copied()).at(&place).run();
        assert_eq!((output.code(), server.requests().len()), (5, requests), "{reason}: {output:?}");
        let result = output.result();
        assert_eq!((&result["reason"], &result["resumable"]), (&json!(reason), &json!(true)), "{result}");
        assert!(output.stderr.contains(&format!("pirn: {reason}: ")), "{output:?}");
        let output = goes_on(&server, &place, &["--max-turns", "1"]);
        assert_eq!((output.code(), output.stdout.as_str()), (0, "done\n"), "{reason}: {output:?}");
        assert_eq!(talk(server.bodies().last().unwrap()).len(), 1 + 2 * requests, "{reason}");
        server.assert_clean();
    }
}

#[test]
fn a_process_ends_soon_behind_its_answer_whatever_its_children_do_out_05() {
    const GRACE: Duration = Duration::from_millis(300);
    let deaf = "(trap '' TERM HUP INT; echo up > up; while :; do sleep 300; done) & until [ -s up ]; do :; done";
    // The server keeps its connection open.
    let server = Server::start([chat_tool("bash", json!({"command": deaf})), chat_text("OK")]);
    let output = Pirn::of_server(&server, ["-t", "bash", "--set", "limits.grace=300ms", "x"]).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "{output:?}");
    assert!(output.elapsed < GRACE * 2 + Duration::from_secs(2), "{:?}", output.elapsed);
}

#[test]
fn another_shell_can_steer_a_run_add_to_it_and_end_it_case_45() {
    let gate = Gate::new();
    let server = Server::start([chat_text("one").behind(&gate), chat_text("two"), chat_text("three"), begun()]);
    let place = Place::new();
    let steer = |args: &[&str]| Pirn::new(["steer"].iter().chain(args).copied()).at(&place).run();
    let running = Pirn::of_server(&server, ["--json", "a"]).at(&place).spawn();
    assert!(server.wait_requests(1));
    for args in [&["--follow-up", "last"][..], &["now"]] {
        let output = steer(args);
        assert_eq!((output.code(), output.stdout.as_str()), (0, ""), "{output:?}");
    }
    // Both are the run's before its reply is there.
    running.wait_stdout("now");
    gate.open();
    let output = running.wait();
    assert_eq!((output.code(), &output.result()["text"]), (0, &json!("three")), "{output:?}");
    let said = ["user: a", "assistant: one", "user: now", "assistant: two", "user: last"];
    assert_eq!(talk(&server.bodies()[2]), said);

    let running = Pirn::of_server(&server, ["--json", "-c", "b"]).at(&place).spawn();
    running.wait_stdout(HALF);
    assert_eq!(steer(&["--abort"]).code(), 0);
    let output = running.wait();
    let result = output.result();
    assert_eq!((output.code(), output.signal()), (130, None), "{output:?}");
    assert_eq!((&result["reason"], &result["text"]), (&json!("interrupted"), &json!(HALF)));

    // Where nothing runs, a message waits for the next run.
    let server = Server::start([chat_text("more")]);
    let output = steer(&["later"]);
    assert!(output.code() == 0 && !output.stderr.is_empty(), "{output:?}");
    let output = goes_on(&server, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n"), "{output:?}");
    assert_eq!(talk(&server.bodies()[0])[5..], ["assistant: three", "user: b", "user: later"]);
}
