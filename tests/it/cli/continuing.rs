//! `-c` without a prompt: what is unfinished goes on, what is finished is told again. Numbers of cases are those of
//! `tests/cases/engine.md`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kept::{messages, only, registers, rewrite, talk};
use super::{Output, Pirn, Place};
use crate::support::chat::{chat_error, chat_text, chat_tool, chunk, sse};
use crate::support::server::{Reply, Server};

/// A server for one run of these replies and for what follows it.
fn after(replies: Vec<Reply>) -> Server {
    Server::start(replies).then_always(chat_text("more"))
}

fn broken() -> Reply {
    Reply::stream().event(&chunk(&json!({"role": "assistant", "content": "par"}), None)).close()
}

fn cut() -> Reply {
    sse(&[chunk(&json!({"role": "assistant", "content": "half"}), None), chunk(&json!({}), Some("length"))])
}

/// The call that goes on without a prompt, in text and in JSON.
fn go_on(server: &Server, place: &Arc<Place>, args: &[&str]) -> Output {
    Pirn::of_server(server, ["-c"].iter().chain(args).copied()).at(place).run()
}

#[test]
fn a_finished_run_is_told_again_without_a_request() {
    for (reply, code, text) in [(chat_text("hi"), 0, "hi\n"), (cut(), 3, "half\n")] {
        let server = after(vec![reply]);
        let place = Place::new();
        let first = Pirn::of_server(&server, ["--json", "a"]).at(&place).run();
        assert_eq!(first.code(), code, "{first:?}");
        let before = std::fs::read(only(&place)).unwrap();
        for _ in 0..2 {
            let output = go_on(&server, &place, &[]);
            assert_eq!((output.code(), output.stdout.as_str()), (code, text), "{output:?}");
            assert!(output.stderr.contains("already completed"), "{output:?}");
        }
        let output = go_on(&server, &place, &["--json", "-o", "answer"]);
        let (told, was) = (output.result(), first.result());
        for field in
            ["exitCode", "reason", "stopReason", "text", "error", "sessionId", "sessionFile", "leafId", "resumable"]
        {
            assert_eq!(told[field], was[field], "{field}");
        }
        assert_eq!((&told["requests"], &told["turns"]), (&json!(0), &json!(0)));
        let session = output.lines_of("session").remove(0);
        assert_eq!((output.lines_of("agent_start").len(), &session["resumed"]), (0, &json!(true)), "{output:?}");
        assert_eq!(std::fs::read_to_string(place.dir().join("answer")).unwrap(), text);
        assert!(output.stderr.contains("already completed"), "{output:?}");
        assert_eq!(std::fs::read(only(&place)).unwrap(), before, "nothing was done, nothing is written");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_run_that_did_not_finish_goes_on_from_the_same_messages() {
    let refused = sse(&[chunk(&json!({"role": "assistant", "refusal": "no"}), None), chunk(&json!({}), Some("stop"))]);
    let call = || chat_tool("ls", json!({}));
    // What came, the exit code, the limit of turns, and what was said when it goes on.
    let asked = vec!["user: a"];
    let called = vec!["user: a", "assistant! ls", "tool: [empty directory]"];
    let table = [
        (vec![chat_error(500, "x", "broken")], 75, "9", asked.clone()),
        (vec![broken()], 75, "9", asked.clone()),
        (vec![refused], 4, "9", asked),
        (vec![call(), chat_error(400, "x", "bad")], 1, "9", called.clone()),
        (vec![call(), broken()], 75, "9", called.clone()),
        (vec![call()], 5, "1", called),
    ];
    for (row, (replies, code, turns, said)) in table.into_iter().enumerate() {
        let count = replies.len();
        let server = after(replies);
        let place = Place::new();
        let first = Pirn::of_server(&server, ["--max-turns", turns, "a"]).at(&place).once().run();
        assert_eq!((first.code(), server.requests().len()), (code, count), "{first:?}");
        // In text and in JSON by turns.
        let is_text = row % 2 == 0;
        let output = go_on(&server, &place, if is_text { &[] } else { &["--json"] });
        assert_eq!(output.code(), 0, "{output:?}");
        if is_text {
            assert_eq!(output.stdout, "more\n");
        } else {
            let (session, result) = (output.lines_of("session").remove(0), output.result());
            assert_eq!((&session["resumed"], &result["turns"]), (&json!(true), &json!(1)));
            assert_eq!(output.lines_of("message_end").len(), 1, "no message of the user is added");
        }
        assert_eq!(talk(&server.bodies()[count]), said, "{first:?}");
        assert_eq!(server.violations(), Vec::<String>::new());
        // It is finished now.
        assert_eq!((go_on(&server, &place, &[]).stdout.as_str(), server.requests().len()), ("more\n", count + 1));
    }
}

#[test]
fn a_run_that_was_aborted_behind_a_complete_answer_is_told_again() {
    let server = after(vec![chat_text("hi")]);
    let place = Place::new();
    Pirn::of_server(&server, ["a"]).at(&place).run();
    rewrite(&only(&place), |line| {
        for write in line["w"].as_array_mut().into_iter().flatten().filter(|write| write["namespace"] == "result") {
            let result = write["value"].as_object_mut().unwrap();
            result.insert("status".to_owned(), json!("aborted"));
            result.insert("reason".to_owned(), json!("interrupted"));
            result.insert("stopReason".to_owned(), json!("aborted"));
            result.insert("cause".to_owned(), json!("int"));
            result.shift_remove("completion");
        }
    });
    assert_eq!(registers(&only(&place), "result")[0].1["status"], "aborted");
    let output = go_on(&server, &place, &["--json"]);
    let result = output.result();
    assert_eq!(
        (&result["reason"], &result["stopReason"], &result["text"]),
        (&json!("completed"), &json!("stop"), &json!("hi"))
    );
    assert_eq!(server.requests().len(), 1);
    assert_eq!(go_on(&server, &place, &[]).stdout, "hi\n");
}

#[test]
fn an_answer_whose_reader_left_is_told_again() {
    let server = after(vec![chat_text("hi")]);
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Pirn::of_server(&server, ["a"]).at(&place).stdout(writer).run();
    assert_eq!(output.code(), 141, "{output:?}");
    let output = go_on(&server, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str(), server.requests().len()), (0, "hi\n", 1), "{output:?}");
}

#[test]
fn a_prompt_behind_a_run_that_failed_stands_in_a_conversation_servers_take() {
    let server = after(vec![chat_tool("ls", json!({})), chat_error(500, "x", "broken"), broken()]);
    let place = Place::new();
    for (args, code) in [(["a"].as_slice(), 75), (&["-c", "b"], 75), (&["-c", "c"], 0)] {
        assert_eq!(Pirn::of_server(&server, args.iter().copied()).at(&place).once().run().code(), code);
    }
    let said = ["user: a", "assistant! ls", "tool: [empty directory]", "user: b", "user: c"];
    assert_eq!(talk(&server.bodies()[3]), said);
    server.assert_clean();
    // The failed replies are kept, with what had come of them.
    let stops: Vec<Value> = messages(&only(&place)).into_iter().map(|message| message["stopReason"].clone()).collect();
    assert_eq!(stops.iter().filter(|stop| **stop == "error").count(), 2, "{stops:?}");
}
