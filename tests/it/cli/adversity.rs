//! What becomes of a run when its surroundings fail it: a process that is stopped, a clock that is set back, directories
//! that may not be written to. Each has a clear outcome, nothing is lost, and the run is gone on with later. Full disks
//! are in `storage`. Numbers of cases are those of `tests/cases/engine.md`.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::kept::{everything, messages, only, rewrite, talk};
use super::signals::until;
use super::{Output, Pirn, Place};
use crate::support::chat::{chat_error, chat_text, chat_tool, chunk};
use crate::support::server::{Gate, Reply, Server, now};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Times of this century, in milliseconds, and no other number of a session file.
const TIMES: std::ops::Range<u64> = 1_000_000_000_000..10_000_000_000_000;
/// What a script says by its exit status where the machine does not let it make the place it needs.
const UNAVAILABLE: i32 = 98;

fn goes_on(server: &Server, place: &Arc<Place>, args: &[&str]) -> Output {
    Pirn::of_server(server, ["-c"].iter().chain(args).copied()).at(place).run()
}

#[test]
fn a_session_whose_owner_is_stopped_is_busy_and_waits_for_it_case_98() {
    let gate = Gate::new();
    let call = chat_tool("bash", json!({"command": "echo up > up; cat latch"}));
    let server = Server::start([call, chat_text("one").behind(&gate), chat_text("two")]).then_always(chat_text("more"));
    let place = Place::new();
    let latch = place.dir().join("latch");
    rustix::fs::mkfifoat(rustix::fs::CWD, &latch, rustix::fs::Mode::RWXU).unwrap();
    let owner = Pirn::of_server(&server, ["--json", "-t", "bash", "-s", "mine", "a"]).at(&place).spawn();
    until(|| place.dir().join("up").exists());
    // In a tool, and in a reply.
    for requests in 1..=2 {
        assert!(server.wait_requests(requests));
        owner.signal(Signal::STOP);
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", owner.id())).unwrap();
        until(|| state().contains(") T "));
        let (before, started) = (everything(&place), now());
        for args in [&["-c"][..], &["-c", "x"], &["-s", "mine", "x"], &["-c", "-s", "mine", "--json"]] {
            let output = Pirn::of_server(&server, args.iter().copied()).at(&place).run();
            assert_eq!(output.code(), 75, "{args:?}: {output:?}");
            for part in ["busy", &format!("process {}", owner.id()), "pirn steer"] {
                assert!(output.stderr.contains(part), "{part}: {args:?}: {output:?}");
            }
        }
        assert!(started.elapsed() < Duration::from_secs(8), "none of them waits: {:?}", started.elapsed());
        assert_eq!((everything(&place), server.requests().len()), (before, requests));
        let steered = Pirn::new(["steer", &format!("at {requests}")]).at(&place).run();
        assert!(steered.code() == 0 && steered.stderr.contains(&format!("pid {}", owner.id())), "{steered:?}");
        owner.signal(Signal::CONT);
        if requests == 1 {
            std::fs::write(&latch, "ran").unwrap();
        }
    }
    gate.open();
    let output = owner.wait();
    assert_eq!((output.code(), &output.result()["ok"]), (0, &json!(true)), "{output:?}");
    let said = talk(server.bodies().last().unwrap());
    assert_eq!(said, ["user: a", "assistant! bash", "tool: ran", "user: at 1", "assistant: one", "user: at 2"]);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(goes_on(&server, &place, &[]).stdout, "two\n");
}

/// The session as it is when the clock is set back by a day now: all that was written is of tomorrow.
fn clock_back(place: &Arc<Place>) {
    fn later(value: &mut Value) {
        match value {
            Value::Number(number) if number.as_u64().is_some_and(|ms| TIMES.contains(&ms)) => {
                *value = json!(number.as_u64().unwrap() + DAY_MS);
            }
            Value::Array(items) => items.iter_mut().for_each(later),
            Value::Object(fields) => fields.values_mut().for_each(later),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    rewrite(&only(place), later);
}

/// A run that is killed when its stream says this.
fn killed(server: &Server, place: &Arc<Place>, args: &[&str], says: &str) {
    let call = ["--json", "-t", "bash"].iter().chain(args).copied();
    let running = Pirn::of_server(server, call).at(place).spawn();
    running.wait_stdout(says);
    running.signal(Signal::KILL);
    running.wait();
}

#[test]
fn a_run_is_gone_on_with_although_the_clock_was_set_back_by_a_day_case_63() {
    let begun = Reply::stream().event(&chunk(&json!({"role": "assistant", "content": "The first"}), None)).hold();
    let tool = || chat_tool("bash", json!({"command": "echo up; exec sleep 300"}));
    let wait = ["--set", "retry.base_delay=50s", "--set", "retry.max_delay=1s"];
    for (reply, args, says, interrupted) in [
        (begun, &[][..], "The first", false),
        (tool(), &[], "tool_execution_update", true),
        (chat_error(503, "overloaded", "Busy"), &wait, "auto_retry_start", false),
    ] {
        let server = Server::start([reply]).then_always(chat_text("more"));
        let place = Place::new();
        killed(&server, &place, &[&["a"][..], args].concat(), says);
        clock_back(&place);
        let output = goes_on(&server, &place, &["--set", "retry.max_delay=1s"]);
        assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n"), "{says}: {output:?}");
        assert!(output.elapsed < Duration::from_secs(10), "nobody waits for tomorrow: {:?}", output.elapsed);
        // The lines of the file say that time does not go back.
        let kept = messages(&only(&place));
        assert_eq!(kept.last().unwrap()["content"][0]["text"], "more", "{says}");
        let said = talk(&server.bodies()[1]);
        assert_eq!(said.last().unwrap().contains("[interrupted]"), interrupted, "{says}: {said:?}");
        // And the session of tomorrow is still the latest one.
        assert_eq!(goes_on(&server, &place, &["b"]).code(), 0);
        assert_eq!((talk(&server.bodies()[2]).last().unwrap().as_str(), place.sessions().len()), ("user: b", 1));
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

/// A call that sees `$PIRN_HOME/state` and its working directory as places it may only read.
fn read_only(call: Pirn) -> Output {
    let script = "unshare -m true && exec unshare -m bash -c '
            for dir in \"$PIRN_HOME/state\" \"$PWD\"; do
                mount --bind \"$dir\" \"$dir\" && mount -o remount,bind,ro \"$dir\" || exit 98
            done
            cd \"$PWD\" && exec \"$0\" \"$@\"' \"$0\" \"$@\"
        exit 98";
    call.script(script).run()
}

#[test]
fn directories_that_may_only_be_read_are_told_before_any_request_and_nothing_changes_ses_06() {
    let begun = Reply::stream().event(&chunk(&json!({"role": "assistant", "content": "The first"}), None)).hold();
    let server = Server::start([chat_text("OK"), begun]).then_always(chat_text("more"));
    let (done, open) = (Place::new(), Place::new());
    assert_eq!(Pirn::of_server(&server, ["a"]).at(&done).run().code(), 0);
    killed(&server, &open, &["a"], "The first");
    for (place, args) in [
        (&done, &["x"][..]),
        (&done, &["-c", "x"]),
        (&done, &["-s", "name", "x"]),
        (&open, &["-c"]),
        (&open, &["-c", "x"]),
        (&open, &["steer", "x"]),
        (&open, &["steer", "--abort"]),
    ] {
        let (before, requests) = (everything(place), server.requests().len());
        let call = if args[0] == "steer" {
            Pirn::new(args.iter().copied())
        } else {
            Pirn::of_server(&server, args.iter().copied())
        };
        let output = read_only(call.at(place));
        if output.code() == UNAVAILABLE {
            println!("unavailable: read-only mounts");
            return;
        }
        assert_eq!((output.code(), output.stdout.as_str()), (1, ""), "{args:?}: {output:?}");
        let told: Vec<&str> = output.stderr.lines().filter(|line| line.starts_with("pirn: storage: ")).collect();
        assert_eq!(told.len(), 1, "{args:?}: {output:?}");
        assert!(told[0].contains(place.home().to_str().unwrap()), "the place is named: {args:?}: {told:?}");
        assert_eq!((everything(place), server.requests().len()), (before, requests), "{args:?}");
    }
    // What only reads works, and so does a run that keeps nothing.
    let shown = read_only(Pirn::new(["sessions", "show"]).at(&open));
    assert!(shown.code() == 0 && shown.stdout.contains("[user]"), "{shown:?}");
    let apart = read_only(Pirn::of_server(&server, ["--no-session", "x"]).at(&open));
    assert_eq!((apart.code(), apart.stdout.as_str()), (0, "more\n"), "{apart:?}");
    // Where it may be written to again the run is finished.
    let output = goes_on(&server, &open, &[]);
    assert_eq!((output.code(), output.stdout.as_str()), (0, "more\n"), "{output:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
}
