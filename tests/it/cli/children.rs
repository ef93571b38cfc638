//! Children of whole runs: signals while they work, what is left of them at the end and after a kill, what they see
//! (OUT-22, PROC-04, PROC-05, PROC-08, MSG-01, MSG-04, MSG-05). Numbers of cases are those of `tests/cases/tools.md`;
//! the engine's case 125 is here, too.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::kept::{messages, only, registers, talk};
use super::signals::{unread_pipe, until};
use super::{Output, Pirn, Place, Running};
use crate::support::chat::{chat_text, chat_tool, chat_tools, chunk};
use crate::support::server::{Reply, Server, now};

/// What a call has from the signal to its end where its children heed theirs.
const BUDGET: Duration = Duration::from_secs(2);
const SIGNALS: [(Signal, i32); 3] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
const ABORTED: &str = "(no output)\n\nAborted.";
const INTERRUPTED: &str = "[interrupted] The process stopped while this tool was running.";

fn bash(command: &str) -> Reply {
    chat_tool("bash", json!({"command": command}))
}

fn good(call: Pirn) -> Output {
    let output = call.run();
    assert_eq!(output.code(), 0, "{output:?}");
    output
}

/// State and group of a process that has not ended.
fn state(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?)).filter(|(state, _)| *state != 'Z')
}

/// The processes of a group.
fn members(group: u32) -> Vec<u32> {
    let names = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let pids = names.filter_map(|name| name.parse().ok());
    pids.filter(|pid| state(*pid).is_some_and(|(_, found)| found == group)).collect()
}

/// Waits until the session knows the process of a call, and gives its group.
fn recorded(place: &Arc<Place>) -> u32 {
    let mut group = None;
    until(|| {
        let Some(file) = place.sessions().pop() else { return false };
        // A line is written at once, so what is there now is whole.
        if std::fs::read_to_string(&file).unwrap().contains("op.tool_memo") {
            group = registers(&file, "op.tool_memo").pop().and_then(|(_, identity)| identity["pgid"].as_u64());
            // 0 until the command has started.
            group = group.filter(|group| *group != 0);
        }
        group.is_some()
    });
    u32::try_from(group.unwrap()).unwrap()
}

/// Waits for a number that a command writes to a file.
fn number(place: &Arc<Place>, name: &str) -> u32 {
    let mut found = None;
    until(|| {
        let text = std::fs::read_to_string(place.dir().join(name)).unwrap_or_default();
        found = text.strip_suffix('\n').and_then(|text| text.trim().parse().ok());
        found.is_some()
    });
    found.unwrap()
}

fn tool_text(message: &Value) -> &str {
    assert_eq!(message["role"], "toolResult", "{message}");
    message["content"][0]["text"].as_str().unwrap()
}

/// Goes on with a session whose run was ended in the middle of its call: the model is told how that went.
fn goes_on(server: &Server, place: &Arc<Place>, told: &str) -> Output {
    let output = good(Pirn::of_server(server, ["--json", "-c"]).at(place));
    let said = talk(server.bodies().last().unwrap());
    assert_eq!((said.len(), said[0].as_str(), said[1].as_str()), (3, "user: x", "assistant! bash"), "{said:?}");
    assert!(said[2].starts_with(&format!("tool: {told}")), "{told}: {said:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    output
}

/// A run in the middle of a call.
fn working(command: &str, args: &[&str]) -> (Server, Arc<Place>, Running) {
    let server = Server::start([bash(command)]).then_always(chat_text("more"));
    let place = Place::new();
    let args = ["-t", "bash", "x"].iter().chain(args).copied();
    let running = Pirn::of_server(&server, args).at(&place).spawn();
    (server, place, running)
}

fn check_aborted(output: &Output, code: i32, reason: &str) {
    assert_eq!(output.code(), code, "{output:?}");
    let result = output.result();
    assert_eq!((&result["reason"], &result["stopReason"]), (&json!(reason), &json!("aborted")), "{output:?}");
    assert_eq!((&result["resumable"], &result["error"]), (&json!(true), &Value::Null), "{output:?}");
}

#[test]
fn a_signal_ends_a_run_and_its_command_in_order_and_the_run_goes_on_later_out_22_proc_05_case_92() {
    std::thread::scope(|scope| {
        for (signal, code) in SIGNALS {
            scope.spawn(move || {
                let (server, place, running) = working("sleep 300 | sleep 300", &["--json"]);
                let group = recorded(&place);
                until(|| members(group).len() > 2);
                let sent = now();
                running.signal(signal);
                let output = running.wait();
                assert!(sent.elapsed() < BUDGET, "{signal:?} took {:?}", sent.elapsed());
                assert_eq!(output.signal(), Some(code - 128), "{output:?}");
                check_aborted(&output, code, "interrupted");
                assert_eq!(members(group), Vec::<u32>::new());
                let kept = messages(&only(&place));
                assert_eq!((kept.len(), tool_text(&kept[2])), (3, ABORTED));
                let line = goes_on(&server, &place, ABORTED).lines_of("session").remove(0);
                assert_eq!(line["recovered"], false, "the first process had put all in order");
            });
        }
        scope.spawn(|| {
            let (server, place, running) = working("sleep 300", &["--json", "--timeout", "2s"]);
            let group = recorded(&place);
            check_aborted(&running.wait(), 124, "timeout");
            assert_eq!(members(group), Vec::<u32>::new());
            goes_on(&server, &place, ABORTED);
        });
    });
}

#[test]
fn a_signal_keeps_what_a_reply_said_so_far_and_the_question_is_asked_again_out_22_msg_04() {
    const HALF: &str = "The first half";
    // With and without a prompt, and with and without anything of a reply.
    for ((signal, code), text, args, said) in [
        (SIGNALS[0], HALF, &["-c", "y"][..], &["user: x", "user: y"][..]),
        (SIGNALS[0], "", &["-c", "y"], &["user: x", "user: y"]),
        (SIGNALS[1], HALF, &["-c"], &["user: x"]),
        (SIGNALS[2], "", &["-c"], &["user: x"]),
    ] {
        let begun = chunk(&json!({"role": "assistant", "content": text}), None);
        let reply = if text.is_empty() { Reply::stream() } else { Reply::stream().event(&begun) };
        let server = Server::start([reply.hold()]).then_always(chat_text("more"));
        let place = Place::new();
        let running = Pirn::of_server(&server, ["--json", "x"]).at(&place).spawn();
        assert!(server.wait_requests(1));
        running.wait_stdout(text);
        running.signal(signal);
        let output = running.wait();
        check_aborted(&output, code, "interrupted");
        assert_eq!(output.result()["text"], text);
        let kept = messages(&only(&place));
        let stops: Vec<&Value> = kept.iter().map(|message| &message["stopReason"]).collect();
        assert_eq!(stops, [&Value::Null, &json!("aborted")], "what came is kept for the record");
        assert_eq!(kept[1]["content"][0]["text"].as_str().unwrap_or_default(), text);
        let output = good(Pirn::of_server(&server, args.iter().copied()).at(&place));
        assert_eq!(
            (output.stdout.as_str(), talk(&server.bodies()[1]).as_slice()),
            ("more\n", said_of(said).as_slice())
        );
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

fn said_of(said: &[&str]) -> Vec<String> {
    said.iter().map(ToString::to_string).collect()
}

#[test]
fn a_command_that_ignores_its_signal_is_killed_after_the_grace_or_at_once_by_a_second_one_proc_04() {
    let stubborn = "trap '' TERM INT HUP; echo $$ > up; sleep 300; sleep 300";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (server, place, running) = working(stubborn, &["--json", "--set", "limits.grace=300ms"]);
            let group = recorded(&place);
            number(&place, "up");
            let sent = now();
            running.signal(Signal::INT);
            check_aborted(&running.wait(), 130, "interrupted");
            assert!((Duration::from_millis(300)..BUDGET).contains(&sent.elapsed()), "{:?}", sent.elapsed());
            assert_eq!(members(group), Vec::<u32>::new());
            goes_on(&server, &place, ABORTED);
        });
        scope.spawn(|| {
            let deaf = "trap 'echo 1 > heard' TERM; echo $$ > up; while :; do sleep 300 & wait; done";
            let (server, place, running) = working(deaf, &[]);
            let group = recorded(&place);
            number(&place, "up");
            running.signal(Signal::INT);
            number(&place, "heard");
            let sent = now();
            let output = running.insist(Signal::INT);
            assert!(sent.elapsed() < Duration::from_secs(1), "{:?}", sent.elapsed());
            assert_eq!((output.code(), output.signal()), (130, Some(2)), "{output:?}");
            until(|| members(group).is_empty());
            // The end that was asked for comes first: nothing is sent, and this process has got no signal.
            let output = Pirn::of_server(&server, ["--json", "-c"]).at(&place).run();
            check_aborted(&output, 130, "interrupted");
            assert_eq!((output.signal(), server.requests().len()), (None, 1), "{output:?}");
            assert!(output.stderr.contains("finishing the cancelled run"), "{output:?}");
            assert_eq!(output.lines_of("session")[0]["recovered"], true);
            goes_on(&server, &place, INTERRUPTED);
        });
    });
}

#[test]
fn a_second_signal_counts_though_stdout_broke_behind_the_first() {
    let deaf = "trap 'echo 1 > heard' TERM; echo $$ > up; while :; do sleep 300 & wait; done";
    let server = Server::start([bash(deaf)]);
    let place = Place::new();
    let (reader, writer, _watched) = unread_pipe();
    let running = Pirn::of_server(&server, ["-t", "bash", "--json", "x"]).at(&place).stdout(writer).spawn();
    number(&place, "up");
    running.signal(Signal::INT);
    number(&place, "heard");
    drop(reader);
    let sent = now();
    let output = running.insist(Signal::INT);
    assert!(sent.elapsed() < Duration::from_secs(1), "{:?}", sent.elapsed());
    assert_eq!(output.code(), 130, "{output:?}");
}

#[test]
fn what_a_killed_run_left_is_stopped_before_the_session_goes_on_and_nothing_runs_twice_proc_05_case_97_msg_01() {
    let command = "echo ran >> ran; echo $$ > up; sleep 300 | sleep 300";
    let (server, place, running) = working(command, &[]);
    let group = recorded(&place);
    number(&place, "up");
    until(|| members(group).len() > 2);
    running.signal(Signal::KILL);
    running.wait();
    assert_eq!(members(group).len(), 3, "nobody stops them yet");
    let output = goes_on(&server, &place, INTERRUPTED);
    assert_eq!(members(group), Vec::<u32>::new());
    assert!(output.stderr.contains(&format!("process group {group}")), "{output:?}");
    assert_eq!(output.lines_of("session")[0]["recovered"], true);
    let kept = messages(&only(&place));
    let text = tool_text(&kept[2]);
    assert!(text.contains("whether the tool finished is unknown.\n") && kept[2]["isError"] == true, "{text}");
    assert!(text.ends_with("\nProcesses it had started were still running and were stopped."), "{text}");
    assert_eq!(std::fs::read_to_string(place.dir().join("ran")).unwrap(), "ran\n");
    assert_eq!(registers(&only(&place), "op.tool_memo"), []);
    // With a prompt it goes on in the same way, and once is enough.
    let output = good(Pirn::of_server(&server, ["-c", "y"]).at(&place));
    assert_eq!(output.stderr, "");
    assert_eq!(talk(server.bodies().last().unwrap())[3..], ["assistant: more", "user: y"]);
}

#[test]
fn what_left_the_group_of_a_killed_run_is_found_by_its_call() {
    let far = "setsid sh -c 'echo $$ > far; exec sleep 300' & echo $$ > up; sleep 300";
    let (server, place, running) = working(far, &[]);
    let group = recorded(&place);
    number(&place, "up");
    let far = number(&place, "far");
    running.signal(Signal::KILL);
    running.wait();
    assert_eq!(members(far), [far], "it leads a group of its own");
    let output = goes_on(&server, &place, INTERRUPTED);
    assert!(output.stderr.contains(&format!("process {far}")), "{}", output.stderr);
    until(|| members(far).is_empty());
    assert_eq!(members(group), Vec::<u32>::new());
}

#[test]
fn what_a_finished_call_of_a_killed_run_left_in_the_background_ends_when_the_session_goes_on() {
    let background = "(trap '' TERM HUP; echo $BASHPID > far; while :; do sleep 300; done) > /dev/null 2>&1 &";
    for (keep, args) in [(false, &[][..]), (true, &["--set", "tools.bash.background_at_exit=leave"])] {
        let server = Server::start([
            bash(&format!("{background} until [ -s far ]; do :; done")),
            bash("echo $$ > up; sleep 300"),
        ])
        .then_always(chat_text("more"));
        let place = Place::new();
        let call = ["-t", "bash", "x"].iter().chain(args).copied();
        let running = Pirn::of_server(&server, call).at(&place).spawn();
        number(&place, "up");
        let far = number(&place, "far");
        running.signal(Signal::KILL);
        running.wait();
        assert!(state(far).is_some(), "it outlives the kill");
        let left = Foreign(vec![far]);
        let output = Pirn::of_server(&server, ["-c"].iter().chain(args).copied()).at(&place).run();
        assert_eq!(output.code(), 0, "{output:?}");
        assert_eq!(output.stderr.contains("in the background"), !keep, "{output:?}");
        if keep {
            assert!(state(far).is_some(), "it was to stay");
        } else {
            until(|| state(far).is_none());
        }
        drop(left);
    }
}

#[test]
fn a_signal_while_the_leftovers_of_a_killed_run_are_stopped_ends_the_call_behind_that_or_at_once() {
    let deaf = "trap 'echo 1 > heard' TERM; echo $$ > up; while :; do sleep 300 & wait; done";
    let (server, place, running) = working(deaf, &[]);
    let group = recorded(&place);
    number(&place, "up");
    running.signal(Signal::KILL);
    running.wait();
    for (args, again, least) in [(&[][..], true, 0), (&["--set", "limits.grace=400ms"], false, 400)] {
        drop(std::fs::remove_file(place.dir().join("heard")));
        let started = now();
        let running = Pirn::of_server(&server, ["--json", "-c"].iter().chain(args).copied()).at(&place).spawn();
        number(&place, "heard");
        running.signal(Signal::INT);
        let output = if again { running.insist(Signal::INT) } else { running.wait() };
        assert_eq!((output.code(), output.signal()), (130, Some(2)), "{output:?}");
        if least == 0 {
            let kinds: Vec<Value> = output.lines_cut().iter().map(|line| line["type"].clone()).collect();
            assert!(!kinds.contains(&json!("result")), "nobody waits: {kinds:?}");
        } else {
            check_aborted(&output, 130, "interrupted");
        }
        assert!((Duration::from_millis(least)..BUDGET).contains(&started.elapsed()), "{:?}", started.elapsed());
        assert_eq!((members(group).is_empty(), server.requests().len()), (least > 0, 1));
    }
    goes_on(&server, &place, INTERRUPTED);
}

/// Kills processes of a test when it ends, however that is.
struct Foreign(Vec<u32>);

impl Drop for Foreign {
    fn drop(&mut self) {
        for pid in self.0.iter().filter(|pid| state(**pid).is_some()) {
            let pid = Pid::from_raw(pid.cast_signed()).unwrap();
            kill_process(pid, Signal::KILL).unwrap_or_default();
        }
    }
}

#[test]
fn what_a_run_started_ends_with_it_and_nothing_else_does_cases_86_87() {
    let escape = |name: &str| {
        format!(
            "setsid sh -c 'echo $$ > {name}; exec sleep 300' >/dev/null 2>&1 & until [ -s {name} ]; do :; done; echo x"
        )
    };
    let mut outside = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let (_other_server, other_place, other) = working(&format!("{}; sleep 300", escape("theirs")), &[]);
    let theirs = number(&other_place, "theirs");
    let mut foreign = Foreign(vec![outside.id(), theirs]);

    let background = "sleep 300 & echo $! > background; echo done";
    let server = Server::start([bash(&escape("ours")), bash(background), chat_text("end")]);
    let place = Place::new();
    let output = good(Pirn::of_server(&server, ["--json", "-t", "bash", "x"]).at(&place));
    let (ours, left) = (number(&place, "ours"), number(&place, "background"));
    foreign.0.extend([ours, left]);
    let results: Vec<Value> =
        messages(&only(&place)).into_iter().filter(|message| message["role"] == "toolResult").collect();
    assert!(tool_text(&results[0]).starts_with('x'), "{results:?}");
    let told = format!("done\n\n[background: pids {left} still running; later output goes to ");
    assert!(tool_text(&results[1]).starts_with(&told), "{results:?}");
    assert_eq!((state(ours), state(left)), (None, None), "nothing outlives the run: {output:?}");
    assert!(state(outside.id()).is_some() && state(theirs).is_some(), "what others started lives on");

    other.signal(Signal::TERM);
    other.wait();
    assert_eq!(state(theirs), None);

    // What was asked for is the one exception.
    let server = Server::start([bash(background), chat_text("end")]);
    let place = Place::new();
    let leave = ["-t", "bash", "--set", "tools.bash.background_at_exit=leave", "x"];
    good(Pirn::of_server(&server, leave).at(&place));
    let left = number(&place, "background");
    foreign.0.push(left);
    assert!(state(left).is_some());
    outside.kill().unwrap();
    outside.wait().unwrap();
}

/// The names of all variables that hold a provider's key.
fn key_names() -> Vec<String> {
    let table: toml::Table = include_str!("../../../config/providers.toml").parse().unwrap();
    let lists = table.values().filter_map(|provider| provider.get("keys").and_then(toml::Value::as_array)).flatten();
    let names: Vec<String> = lists.map(|name| name.as_str().unwrap().to_owned()).collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

#[test]
fn commands_see_no_key_and_what_they_print_is_text_in_every_request_proc_08_msg_05_cases_93_141_142() {
    const VALUE: &str = "sk-live-1234567890-";
    let write = ("write", json!({"path": "f", "content": "1"}));
    let server = Server::start([
        bash("env; echo \"keys: $(env | grep -c sk-live)\""),
        bash("env | grep -c ANTHROPIC; tr '\\0' '\\n' < /proc/$PPID/environ | grep -c sk-live"),
        bash("printf '\\377\\376 ok \\355\\240\\275\\n'"),
        chat_tools(&[write, ("bash", json!({"command": "cat f"}))]),
    ]);
    let server = server.then_always(chat_text("end"));
    let place = Place::new();
    let mut call = Pirn::of_server(&server, ["--json", "-t", "write,bash", "x"]).at(&place).env("CI", "yes");
    let names = key_names();
    for (at, name) in names.iter().enumerate().filter(|(_, name)| *name != "OPENAI_API_KEY") {
        call = call.env(name, format!("{VALUE}{at}"));
    }
    let output = good(call);
    assert!(!output.stdout.contains(VALUE));
    let file = only(&place);
    let results: Vec<Value> = messages(&file).into_iter().filter(|message| message["role"] == "toolResult").collect();
    let texts: Vec<&str> = results.iter().map(tool_text).collect();
    assert!(texts[0].contains("CI=yes") && texts[0].contains("keys: 0"), "{}", texts[0]);
    for name in &names {
        assert!(!texts[0].contains(name), "{name}: {}", texts[0]);
    }
    assert_eq!(texts[1..3], ["0\n0\n\n[exit code 1]", "\u{fffd}\u{fffd} ok \u{fffd}\u{fffd}\u{fffd}"]);
    assert_eq!(texts[4], "1", "case 93: the calls of one reply run in their order");
    good(Pirn::of_server(&server, ["-c", "y"]).at(&place));
    assert!(talk(server.bodies().last().unwrap()).iter().any(|said| said == &format!("tool: {}", texts[2])));
    server.assert_clean();

    let server =
        Server::start([bash("env | grep -c ANTHROPIC_API_KEY; env | grep ANTHROPIC_API_KEY"), chat_text("end")]);
    let place = Place::new();
    let pass = ["-t", "bash", "--set", "env.pass=[\"ANTHROPIC_API_KEY\"]", "x"];
    good(Pirn::of_server(&server, pass).at(&place).env("ANTHROPIC_API_KEY", VALUE));
    let kept = messages(&only(&place));
    assert_eq!(tool_text(&kept[2]), "1\nANTHROPIC_API_KEY=[redacted:ANTHROPIC_API_KEY]");
}
