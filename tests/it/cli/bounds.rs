//! Limits, further models and retries of runs that were killed or ended early: what the call that goes on makes of them.
//! Numbers of cases are those of `tests/cases/engine.md`.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::durable::{ATTEMPTS, begun, busy, goes_on, killed};
use super::kept::talk;
use super::sessions::unnamed;
use super::{Pirn, Place};
use crate::support::chat::{chat_error, chat_text, chat_tool};
use crate::support::server::{Reply, Server};

/// A run that is killed while its second turn waits for a tool.
fn killed_in_a_tool(server: &Server) -> Arc<Place> {
    let place = Place::new();
    let running = Pirn::of_server(server, ["--json", "-t", "ls,bash", "a"]).at(&place).spawn();
    running.wait_stdout("tool_execution_update");
    running.signal(Signal::KILL);
    running.wait();
    place
}

#[test]
fn the_limit_of_turns_of_an_unfinished_run_is_that_of_the_call_that_goes_on_case_111() {
    let slow = || chat_tool("bash", json!({"command": "echo up; exec sleep 300"}));
    for (turns, code) in [("1", 5), ("2", 5), ("3", 0)] {
        let server = Server::start([chat_tool("ls", json!({})), slow()]).then_always(chat_text("done"));
        let place = killed_in_a_tool(&server);
        let output = goes_on(&server, &place, &["--json", "--max-turns", turns]);
        assert_eq!((output.code(), server.requests().len()), (code, if code == 5 { 2 } else { 3 }), "{output:?}");
        let result = output.result();
        let reason = if code == 5 { "max_turns" } else { "completed" };
        assert_eq!((&result["reason"], &result["resumable"]), (&json!(reason), &json!(true)), "{turns}: {result}");
        assert!(code == 0 || output.stderr.contains("pirn: max_turns: "), "{output:?}");
        // Behind the end it counts from nothing.
        let output = goes_on(&server, &place, &["--max-turns", "1"]);
        assert_eq!((output.code(), output.stdout.as_str()), (0, "done\n"), "{turns}: {output:?}");
        assert_eq!((server.requests().len(), server.violations()), (3, Vec::new()));
        let said = talk(&server.bodies()[2]);
        assert!(said.len() == 5 && said[4].contains("[interrupted]"), "{said:?}");
    }
    // A request that was sent is of a turn that has begun, so it is sent again.
    let server = Server::start([chat_tool("ls", json!({})), begun(), chat_text("done")]);
    let place = killed(&server, &["a"]);
    let output = goes_on(&server, &place, &["--max-turns", "1"]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "done\n"), "{output:?}");
    server.assert_clean();
}

#[test]
fn a_run_that_is_killed_behind_a_fallback_stays_with_the_further_model_cases_118_119() {
    let answer = |request: &crate::support::request::Recorded| match request.json()["model"].as_str() {
        Some("one") => chat_error(401, "invalid_api_key", "no"),
        _ if talk(&request.json()) == ["user: a"] => chat_tool("bash", json!({"command": "echo up; exec sleep 300"})),
        _ => chat_text("from two"),
    };
    let server = Server::start([]).then_always(Reply::with(answer));
    let place = Place::new();
    let running =
        Pirn::of_server(&server, ["--json", "-t", "bash", "-m", "openai/one,openai/two", "a"]).at(&place).spawn();
    running.wait_stdout("tool_execution_update");
    running.signal(Signal::KILL);
    running.wait();
    let asked =
        |from: usize| -> Vec<Value> { server.bodies()[from..].iter().map(|body| body["model"].clone()).collect() };
    assert_eq!(asked(0), ["one", "two"], "a key that is refused is not tried again");
    let output = unnamed(&server, &["-c"]).at(&place).run();
    assert_eq!((output.code(), output.stdout.as_str(), asked(2)), (0, "from two\n", vec![json!("two")]), "{output:?}");
    // The next prompt begins with the first one again.
    let output = unnamed(&server, &["-m", "openai/one,openai/two", "-c", "b"]).at(&place).run();
    assert_eq!(output.code(), 0, "{output:?}");
    assert_eq!(asked(3), ["one", "two"]);
}

#[test]
fn where_every_model_fails_the_last_one_decides_and_the_prompt_is_kept_case_118() {
    let answer = |request: &crate::support::request::Recorded| match request.json()["model"].as_str() {
        Some("one") => chat_error(401, "invalid_api_key", "no"),
        _ => busy(),
    };
    let server = Server::start([]).then_always(Reply::with(answer));
    let place = Place::new();
    let models = ["-m", "openai/one,openai/two"];
    let output = Pirn::of_server(&server, ["--json", "a"]).more(models).at(&place).soon().run();
    let result = output.result();
    assert_eq!((output.code(), &result["error"]["kind"]), (75, &json!("overloaded")), "{output:?}");
    assert_eq!((server.requests().len(), output.lines_of("model_fallback").len()), (1 + ATTEMPTS, 1));
    let ends = output.lines_of("auto_retry_end");
    assert_eq!(
        (ends.len(), &ends[0]["success"], &ends[0]["attempt"]),
        (1, &json!(false), &json!(ATTEMPTS)),
        "{ends:?}"
    );
    let well = Server::start([chat_text("late")]);
    let output = goes_on(&well, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "late\n"), "{output:?}");
    assert_eq!(talk(&well.bodies()[0]), ["user: a"]);
}

#[test]
fn a_limit_and_a_signal_in_a_wait_leave_follow_ups_waiting() {
    let then = ["--then", "b"];
    let server = Server::start([chat_tool("ls", json!({}))]).then_always(chat_text("more"));
    let place = Place::new();
    let output = Pirn::of_server(&server, ["--json", "--max-turns", "1", "a"]).more(then).at(&place).run();
    let result = output.result();
    assert_eq!((output.code(), &result["pendingFollowUps"]), (5, &json!(1)), "{output:?}");
    let output = goes_on(&server, &place, &[]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert_eq!(talk(server.bodies().last().unwrap()).last().unwrap(), "user: b");

    // A signal ends the wait for another attempt, with its own code.
    let server = Server::start([busy()]).then_always(chat_text("more"));
    let place = Place::new();
    let running = Pirn::of_server(&server, ["--json", "--set", "retry.base_delay=50s", "a"]).at(&place).spawn();
    running.wait_stdout("auto_retry_start");
    running.signal(Signal::INT);
    let output = running.wait();
    let ends = output.lines_of("auto_retry_end");
    assert_eq!((output.code(), ends.len(), &ends[0]["success"]), (130, 1, &json!(false)), "{output:?}");
    assert_eq!((&output.result()["reason"], server.requests().len()), (&json!("interrupted"), 1));
    let output = goes_on(&server, &place, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n"), "{output:?}");
}
