//! `--then` with `-c`, and what becomes of messages that wait when a run ends: none is lost without a word. Numbers of
//! cases are those of `tests/cases/engine.md`.

use std::io::Write;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::durable::{HALF, begun, goes_on, killed};
use super::kept::{only, talk};
use super::signals::until;
use super::{Pirn, Place, Stdin};
use crate::support::chat::{chat_error, chat_text, chat_tool};
use crate::support::server::{Gate, Server};

#[test]
fn what_is_to_follow_an_answer_that_is_there_already_is_asked() {
    let server = Server::start([chat_text("one"), chat_text("two"), chat_text("three")]);
    let place = Place::new();
    Pirn::of_server(&server, ["a"]).at(&place).run();
    let output = goes_on(&server, &place, &["--then", "b", "--then", "c"]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "two\n\nthree\n"), "{output:?}");
    assert_eq!(talk(&server.bodies()[2]), ["user: a", "assistant: one", "user: b", "assistant: two", "user: c"]);
    // A session in which nothing was said is asked, too.
    let server = Server::start([chat_error(400, "bad", "no")]).then_always(chat_text("more"));
    let place = Place::new();
    assert_eq!(Pirn::of_server(&server, ["a"]).at(&place).run().code(), 1);
    let output = goes_on(&server, &place, &["--then", "b"]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n\nmore\n"), "{output:?}");
}

#[test]
fn what_is_to_follow_a_run_that_was_killed_outlives_further_kills() {
    for (args, said) in [
        (&["--then", "b", "--then", "c"][..], "user: a|assistant: new|user: b|assistant: new|user: c"),
        (
            &["x", "--then", "b", "--then", "c"],
            "user: a|assistant: new|user: x|assistant: new|user: b|assistant: new|user: c",
        ),
    ] {
        let gate = Gate::new();
        let server = Server::start([begun(), chat_text("old").behind(&gate)]).then_always(chat_text("new"));
        let place = killed(&server, &["a"]);
        let running = Pirn::of_server(&server, ["-c"]).more(args.iter().copied()).at(&place).spawn();
        assert!(server.wait_requests(2));
        running.signal(Signal::KILL);
        running.wait();
        gate.open();
        let output = goes_on(&server, &place, &["--json"]);
        assert_eq!((output.code(), &output.result()["pendingFollowUps"]), (0, &json!(0)), "{output:?}");
        assert_eq!(talk(server.bodies().last().unwrap()).join("|"), said);
    }
}

#[test]
fn what_is_to_follow_a_run_that_was_cancelled_follows_its_end() {
    let server = Server::start([begun()]).then_always(chat_text("new"));
    let place = Place::new();
    let mut running = Pirn::of_server(&server, ["--stream", "a"]).at(&place).spawn();
    running.wait_stdout(HALF);
    running.signal(Signal::STOP);
    let steered = Pirn::new(["steer", "--abort"]).at(&place).run();
    assert_eq!(steered.code(), 0, "{steered:?}");
    running.signal(Signal::KILL);
    until(|| !running.is_running());
    running.wait();
    // The abort lies in the spool: the run is cancelled first, and then b is asked.
    let output = goes_on(&server, &place, &["--json", "--then", "b"]);
    assert_eq!((output.code(), output.result()["reason"].clone()), (130, json!("interrupted")), "{output:?}");
    let dropped = output.lines_of("warning").into_iter().find(|line| line["code"] == "dropped");
    let still = &output.result()["pendingFollowUps"];
    assert!(dropped.is_some() != (*still == json!(1)), "told or kept, and not both: {output:?}");
}

#[test]
fn what_follows_a_run_that_goes_on_and_fails_waits() {
    let server =
        Server::start([chat_error(400, "bad", "no"), chat_error(400, "bad", "no")]).then_always(chat_text("more"));
    let place = Place::new();
    assert_eq!(Pirn::of_server(&server, ["a"]).at(&place).run().code(), 1);
    let output = goes_on(&server, &place, &["--json", "--then", "b"]);
    assert_eq!((output.code(), &output.result()["pendingFollowUps"]), (1, &json!(1)), "{output:?}");
    assert_eq!(server.requests().len(), 2, "b is not asked over a failure");
    let output = goes_on(&server, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n\nmore\n"), "{output:?}");
    assert_eq!(talk(server.bodies().last().unwrap()), ["user: a", "assistant: more", "user: b"]);
}

#[test]
fn messages_that_end_with_their_run_are_told() {
    for (args, is_json) in [(&["--json"][..], true), (&[], false)] {
        let server = Server::start([begun()]);
        let output = Pirn::of_server(&server, ["--timeout", "1s", "a", "--then", "and \u{1b}[31mthen"])
            .more(args.iter().copied())
            .run();
        assert_eq!(output.code(), 124, "{output:?}");
        let sentence = "dropped with the run, not sent: \"and then\"";
        assert!(output.stderr.contains(sentence), "{output:?}");
        if is_json {
            let told: Vec<Value> =
                output.lines_of("warning").into_iter().filter(|line| line["code"] == "dropped").collect();
            assert_eq!(told.len(), 1, "{output:?}");
            assert_eq!((&told[0]["message"], &output.result()["pendingFollowUps"]), (&json!(sentence), &json!(0)));
        }
    }
}

#[test]
fn answers_that_a_dead_process_got_are_printed_with_the_last_one() {
    let server = Server::start([chat_text("one"), begun()]).then_always(chat_text("two"));
    let place = killed(&server, &["a", "--then", "b"]);
    let output = goes_on(&server, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "one\n\ntwo\n"), "{output:?}");
}

#[test]
fn an_abort_for_a_call_that_waits_for_its_prompt_ends_the_run_that_begins_case_45() {
    let server = Server::start([chat_text("one")]).then_always(begun());
    let place = Place::new();
    Pirn::of_server(&server, ["a"]).at(&place).run();
    let (stdin, mut prompt) = std::io::pipe().unwrap();
    let stdin = Stdin::Custom(stdin.into());
    let running = Pirn::of_server(&server, ["--json", "-c"]).at(&place).stdin(stdin).spawn();
    running.wait_stderr("waiting for stdin");
    let output = Pirn::new(["steer", "--abort"]).at(&place).run();
    assert_eq!(output.code(), 0, "{output:?}");
    prompt.write_all(b"b").unwrap();
    drop(prompt);
    let output = running.wait();
    assert_eq!((output.code(), &output.result()["reason"]), (130, &json!("interrupted")), "{output:?}");
    let left = std::fs::read_dir(only(&place).with_extension("inbox")).unwrap().count();
    assert_eq!(left, 0, "it was taken");
}

#[test]
fn a_call_that_is_refused_says_how_long_it_took_and_which_session_it_was_for() {
    let server = Server::start([begun()]);
    let place = Place::new();
    let running = Pirn::of_server(&server, ["--stream", "a"]).at(&place).spawn();
    running.wait_stdout(HALF);
    let output = Pirn::of_server(&server, ["--json", "-c", "b"]).at(&place).run();
    let result = output.result();
    assert_eq!((output.code(), &result["error"]["kind"]), (75, &json!("busy")), "{output:?}");
    assert_eq!(result["sessionFile"], json!(only(&place).display().to_string()));
    assert!(result["sessionId"].is_string() && result["durationMs"].is_u64(), "{result}");
    running.signal(Signal::KILL);
    running.wait();
    let output = Pirn::demo(["--json", "--timeout", "300ms"]).stdin(Stdin::Silent).run();
    let result = output.result();
    assert_eq!(output.code(), 124, "{output:?}");
    assert!(result["durationMs"].as_u64().unwrap() >= 300 && result["sessionId"].is_null(), "{result}");
}

#[test]
fn a_follow_up_behind_a_run_that_was_cut_short_waits_for_the_answer_that_is_owed() {
    for (first, code, args) in
        [(vec![chat_tool("ls", json!({}))], 5, &["--max-turns", "1"][..]), (vec![chat_error(400, "bad", "no")], 1, &[])]
    {
        let server = Server::start(first).then_always(chat_text("answer"));
        let place = Place::new();
        let output = Pirn::of_server(&server, ["a", "--then", "b"]).more(args.iter().copied()).at(&place).run();
        assert_eq!(output.code(), code, "{output:?}");
        let output = goes_on(&server, &place, &[]);
        assert_eq!((output.code(), output.stdout.as_str()), (0, "answer\n\nanswer\n"), "{output:?}");
        let said = talk(server.bodies().last().unwrap());
        assert_eq!(said[said.len() - 2..], ["assistant: answer", "user: b"], "{said:?}");
    }
}

#[test]
fn messages_that_end_with_a_run_that_nobody_owns_are_told_by_who_ends_it() {
    let server = Server::start([begun()]);
    let place = killed(&server, &["a", "--then", "b"]);
    let output = Pirn::new(["steer", "--abort"]).at(&place).run();
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.stderr.contains("dropped with the run, not sent: \"b\""), "{output:?}");
}
