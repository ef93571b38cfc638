//! Which session a call is for, and what holds in it: SES-04, SES-11, SES-13 to SES-16, CFG-05.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::kept::{entries, everything, messages, only, registers, rewrite, talk};
use super::signals::until;
use super::{Output, Pirn, Place};
use crate::support::chat::{chat_error, chat_text, chat_tool};
use crate::support::images::DOT;
use crate::support::server::{Gate, Reply, Server, now};

/// A call of a model behind the server, without the flag that names it.
pub(super) fn unnamed(server: &Server, args: &[&str]) -> Pirn {
    Pirn::new(args.iter().copied()).env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", super::KEY)
}

/// A server that answers everything.
fn answering() -> Server {
    Server::start([]).then_always(chat_text("OK"))
}

/// A call that is to end well.
fn good(call: Pirn) -> Output {
    let output = call.run();
    assert_eq!(output.code(), 0, "{output:?}");
    output
}

/// A place with a session in it, of one question.
fn begun(server: &Server) -> Arc<Place> {
    let place = Place::new();
    good(Pirn::of_server(server, ["a"]).at(&place));
    place
}

fn session_line(output: &Output) -> Value {
    output.lines_of("session").remove(0)
}

#[test]
fn a_session_is_gone_on_with_by_every_id_that_was_told_ses_16() {
    let replies = ["one", "two", "three"].map(chat_text);
    let server =
        Server::start(replies.into_iter().chain([chat_error(500, "x", "broken")])).then_always(chat_text("OK"));
    let place = Place::new();
    let first = good(Pirn::of_server(&server, ["--json", "a"]).at(&place));
    let (begin, end) = (session_line(&first), first.result());
    let file = only(&place);
    let id = begin["id"].as_str().unwrap().to_owned();
    assert_eq!((&begin["resumed"], &begin["leafId"], &begin["file"]), (&json!(false), &Value::Null, &json!(file)));
    assert_eq!((&end["sessionId"], &end["sessionFile"], &end["resumable"]), (&json!(id), &json!(file), &json!(true)));

    let second = good(Pirn::of_server(&server, ["--json", "-c", "b"]).at(&place));
    let again = session_line(&second);
    assert_eq!((&again["id"], &again["file"], &again["resumed"]), (&json!(id), &json!(file), &json!(true)));
    assert_eq!((&again["leafId"], &again["recovered"]), (&end["leafId"], &json!(false)));
    assert_eq!(talk(&server.bodies()[1]), ["user: a", "assistant: one", "user: b"]);

    // What was told of each message is how the file has it.
    let told: Vec<Value> = [&first, &second].iter().flat_map(|output| output.lines_of("message_end")).collect();
    let kept = entries(&file);
    let pairs = |list: &[Value], id: &str| -> Vec<Value> {
        list.iter().map(|line| json!([line[id], line["message"]])).collect()
    };
    assert_eq!(pairs(&told, "entryId"), pairs(&kept, "id"));
    assert_eq!(second.result()["leafId"], kept[3]["id"]);

    // Whole, its ends, with and without dashes and in any case; the file by its path.
    let digits = id.replace('-', "");
    let relative = format!("{}.jsonl", file.file_stem().unwrap().to_str().unwrap());
    std::os::unix::fs::symlink(&file, place.dir().join(&relative)).unwrap();
    let references = [
        &id,
        &digits,
        &digits[..6],
        &id[..9],
        &digits[digits.len() - 6..],
        &id[id.len() - 8..].to_uppercase(),
        file.to_str().unwrap(),
        &relative,
    ];
    for (at, reference) in references.into_iter().enumerate() {
        let output = Pirn::of_server(&server, ["-s", reference, "x"]).at(&place).once().run();
        // The second one fails at the server, and the session is no worse for it.
        assert_eq!(output.code(), if at == 1 { 75 } else { 0 }, "{reference}: {output:?}");
    }
    assert_eq!(only(&place), file);
    let last = talk(server.bodies().last().unwrap());
    assert_eq!((last.len(), last[0].as_str(), last[4].as_str()), (4 + 7 * 2, "user: a", "user: x"), "{last:?}");
    server.assert_clean();
}

#[test]
fn what_was_sent_is_sent_again_as_it_was() {
    // Images, results and the system prompt, too: what a server has cached of it stays good.
    let server = Server::start([chat_tool("ls", json!({"path": "."})), chat_text("one")]).then_always(chat_text("OK"));
    let place = Place::new();
    let seeing = ["-m", "openai/gpt-4.1-mini"];
    let call = |args: &[&str]| unnamed(&server, args).at(&place).more(seeing);
    good(call(&["-a", "dot.png", "look"]).file("dot.png", DOT));
    good(call(&["-c", "b"]));
    good(call(&["-c", "c"]));
    server.assert_clean();
    let bodies = server.bodies();
    for pair in bodies.windows(2) {
        let [before, after] = [&pair[0], &pair[1]].map(|body| body["messages"].as_array().unwrap());
        assert!(after.len() > before.len() && after.starts_with(before), "{before:?}\n{after:?}");
        assert_eq!((&pair[0]["tools"], &pair[0]["model"]), (&pair[1]["tools"], &pair[1]["model"]));
    }
    assert!(bodies[3]["messages"][1].to_string().contains("data:image/png;base64,"), "{}", bodies[3]);
}

#[test]
fn a_name_makes_a_session_once_and_finds_it_in_its_directory_only() {
    let server = answering();
    let place = Place::new();
    for (args, resumed, sessions) in [
        (["--json", "-s", "pr-12", "a"], false, 1),
        (["--json", "-s", "pr-12", "b"], true, 1),
        (["--json", "-cs", "pr-12", "c"], true, 1),
        (["--json", "-s", "other", "d"], false, 2),
    ] {
        let line = session_line(&good(Pirn::of_server(&server, args).at(&place)));
        assert_eq!((&line["name"], &line["resumed"]), (&json!(args[2]), &json!(resumed)), "{args:?}");
        assert_eq!(place.sessions().len(), sessions, "{args:?}");
    }
    assert_eq!(talk(&server.bodies()[2]).len(), 5);
    let elsewhere = Pirn::of_server(&server, ["--json", "-s", "pr-12", "a"]).at(&place);
    let line = session_line(&good(elsewhere.script("mkdir sub && cd sub && exec \"$0\" \"$@\"")));
    assert_eq!(line["resumed"], false, "{line}");
    assert_eq!(place.sessions().len(), 3);
}

/// A call that is refused without a request, and leaves everything as it was.
fn refused(server: &Server, place: &Arc<Place>, args: &[&str]) -> Output {
    let (before, requests) = (everything(place), server.requests().len());
    let output = Pirn::of_server(server, ["--json"].iter().chain(args).copied()).at(place).run();
    let result = output.result();
    assert_eq!((output.code(), &result["error"]["kind"]), (2, &json!("usage")), "{args:?}: {output:?}");
    assert_eq!(everything(place), before, "{args:?}");
    assert_eq!(server.requests().len(), requests, "{args:?}");
    output
}

#[test]
fn a_session_that_is_not_there_is_an_error_whatever_the_switch_ses_13() {
    let server = answering();
    let place = Place::new();
    let nothing: [&[&str]; 8] = [
        &["-c", "x"],
        &["-c"],
        &["-c", "-s", "nope", "x"],
        &["-cs", "nope"],
        &["-s", "0123abcd", "x"],
        &["-c", "-s", "0123abcd", "x"],
        &["-s", "0123-abcd-0123", "x"],
        // What keeps nothing has nothing to go on with.
        &["--no-session", "-c", "x"],
    ];
    for args in nothing {
        refused(&server, &place, args);
    }
    refused(&server, &place, &["--no-session", "-s", "new", "x"]);
    good(Pirn::of_server(&server, ["-s", "nope", "x"]).at(&place));
    // A header and no turn is an empty session.
    let file = only(&place);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{}\n", text.lines().next().unwrap())).unwrap();
    let output = refused(&server, &place, &["-c"]);
    assert!(output.stderr.contains("nothing to continue"), "{output:?}");
    let output = good(Pirn::of_server(&server, ["--json", "-c", "y"]).at(&place));
    assert_eq!((&session_line(&output)["resumed"], messages(&file).len()), (&json!(true), 2));
    assert_eq!(talk(server.bodies().last().unwrap()), ["user: y"]);
}

#[test]
fn a_reference_is_never_taken_for_a_place_outside_ses_14() {
    let server = answering();
    let place = begun(&server);
    std::fs::create_dir(place.dir().join("a")).unwrap();
    std::fs::write(place.dir().join("a/b"), "text\n").unwrap();
    std::fs::write(place.dir().join("other.jsonl"), "{\"type\":\"session\",\"version\":3,\"id\":\"x\"}\n").unwrap();
    std::fs::write(place.dir().join("empty.jsonl"), "").unwrap();
    let long = "a".repeat(300);
    let references = [
        "../../x",
        "a/b",
        "a/none",
        "a/",
        ".",
        "..",
        "",
        " ",
        &long,
        "a\tb",
        "a\u{1b}[31mb",
        "a\nb",
        "other.jsonl",
        "./other.jsonl",
        "empty.jsonl",
        "none.jsonl",
        "-",
        "_x",
        "ä",
    ];
    for reference in references {
        for args in [&["-s", reference, "x"][..], &["-c", "-s", reference, "x"]] {
            let output = refused(&server, &place, args);
            assert!(!output.stderr.contains('\u{1b}'), "{output:?}");
        }
    }
}

#[test]
fn a_session_file_with_another_ending_is_refused_and_stays_as_it_is() {
    let server = answering();
    let place = begun(&server);
    let file = only(&place);
    for name in ["x.lock", "x.d", "x.json", "x"] {
        std::fs::copy(&file, place.dir().join(name)).unwrap();
    }
    let bytes = std::fs::read(&file).unwrap();
    for name in ["x.lock", "x.d", "x.json", "x"] {
        let reference = format!("./{name}");
        let run = Pirn::of_server(&server, ["-c", "-s", &reference, "hi"]);
        for call in [run, Pirn::new(["steer", "-s", &reference, "hi"])] {
            let output = call.at(&place).run();
            assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{output:?}");
            let says = format!("{name} is a session file whose name does not end in .jsonl");
            assert!(output.stderr.contains(&says) && output.stderr.contains("hint: copy or rename"), "{output:?}");
        }
        assert_eq!(std::fs::read(place.dir().join(name)).unwrap(), bytes, "{name}");
    }
    assert_eq!((place.sessions().len(), server.requests().len()), (1, 1));
}

#[test]
fn nothing_is_kept_where_nothing_is_to_be_kept() {
    let server = answering();
    let calls: [&[&str]; 2] = [&["--no-session"], &["--set", "session.persist=false"]];
    for args in calls {
        let place = Place::new();
        let output = good(Pirn::of_server(&server, ["--json", "x"].iter().chain(args).copied()).at(&place));
        let (begin, end) = (session_line(&output), output.result());
        assert_eq!((&begin["file"], &begin["resumed"]), (&Value::Null, &json!(false)));
        assert_eq!(
            (&end["sessionFile"], &end["resumable"], &end["sessionId"]),
            (&Value::Null, &json!(false), &begin["id"])
        );
        assert_eq!(everything(&place), []);
    }
    // Asking for a session by name says more than the setting.
    let place = Place::new();
    good(Pirn::of_server(&server, ["--set", "session.persist=false", "-s", "n", "x"]).at(&place));
    good(Pirn::of_server(&server, ["--set", "session.persist=false", "-c", "x"]).at(&place));
    assert_eq!(messages(&only(&place)).len(), 4);
}

#[test]
fn sessions_are_where_the_configuration_says() {
    let server = answering();
    let place = Place::new();
    for (args, dir) in [(["--set", "session.dir=kept"], "kept"), (["--set", "session.dir=deep/er"], "deep/er")] {
        for prompt in [&["x"][..], &["-c", "y"]] {
            good(Pirn::of_server(&server, args.iter().chain(prompt).copied()).at(&place));
        }
        let below = place.dir().join(dir).join("sessions");
        let mut dirs = std::fs::read_dir(&below).unwrap();
        let files = std::fs::read_dir(dirs.next().unwrap().unwrap().path()).unwrap();
        let files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
        let files: Vec<&PathBuf> =
            files.iter().filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        assert_eq!((files.len(), messages(files[0]).len(), dirs.count()), (1, 4, 0), "{dir}");
    }
    assert_eq!(place.sessions(), Vec::<PathBuf>::new());
}

/// Arguments and environment of a call in a session; model, thinking and tools that hold then.
type Held<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str, &'a str, &'a [&'a str]);

#[test]
fn model_thinking_and_tools_of_the_session_hold_unless_the_call_says_otherwise() {
    let server = answering();
    let place = Place::new();
    let file = "model = \"openai/of-file\"\nthinking = \"low\"\n[tools]\nenabled = [\"ls\"]\n";
    std::fs::write(place.dir().join("pirn.toml"), file).unwrap();
    let first = ["-m", "openai/gpt-5.2", "--thinking", "high", "-t", "read,bash"];
    let table: [Held<'_>; 11] = [
        (&first, &[], "gpt-5.2", "high", &["read", "bash"]),
        (&["-c"], &[], "gpt-5.2", "high", &["read", "bash"]),
        (&["-c", "-m", "openai/gpt-5.4"], &[], "gpt-5.4", "high", &["read", "bash"]),
        (&["-c"], &[("PIRN_MODEL", "openai/gpt-5.4-mini")], "gpt-5.4-mini", "high", &["read", "bash"]),
        (&["-c", "-t", "+ls"], &[], "gpt-5.4-mini", "high", &["read", "bash", "ls"]),
        (&["-c"], &[("PIRN_TOOLS", "-bash")], "gpt-5.4-mini", "high", &["read", "ls"]),
        (&["-c", "--thinking", "off"], &[("PIRN_TOOLS", "none")], "gpt-5.4-mini", "off", &[]),
        (&["-c", "-t", "+bash"], &[("PIRN_THINKING", "medium")], "gpt-5.4-mini", "medium", &["bash"]),
        (&["-c", "--set", "thinking=xhigh", "-t", "ro"], &[], "gpt-5.4-mini", "xhigh", &["read", "ls"]),
        (&["-c", "-m", "openai/gpt-5.1:low"], &[], "gpt-5.1", "low", &["read", "ls"]),
        (&["-c"], &[], "gpt-5.1", "low", &["read", "ls"]),
    ];
    for (args, env, model, thinking, tools) in table {
        let mut call = unnamed(&server, args).at(&place);
        for (name, value) in env {
            call = call.env(name, *value);
        }
        let output = good(call.env("PIRN_TRUST", "1").more(["--json", "x"]));
        let line = session_line(&output);
        let mut named: Vec<&str> =
            line["tools"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let mut wanted = tools.to_vec();
        named.sort_unstable();
        wanted.sort_unstable();
        let body = server.bodies().pop().unwrap();
        assert_eq!((&line["model"]["id"], &body["model"]), (&json!(model), &json!(model)), "{args:?} {env:?}");
        assert_eq!((&line["thinking"], named), (&json!(thinking), wanted), "{args:?} {env:?}");
        assert_eq!(body["tools"].as_array().map_or(0, Vec::len), tools.len(), "{args:?} {env:?}");
    }
    let lane = registers(&only(&place), "lane.config").remove(0).1;
    assert_eq!(lane["model"], json!({"provider": "openai", "modelId": "gpt-5.1"}));
}

#[test]
fn a_stored_model_or_tool_that_is_gone_is_refused_with_the_way_out() {
    let server = answering();
    let place = Place::new();
    let config = format!("[providers.mine]\napi = \"openai-completions\"\nbase_url = \"{}\"\n", server.base_url());
    std::fs::write(place.dir().join("pirn.toml"), config).unwrap();
    good(Pirn::new(["--trust", "-m", "mine/m1", "a"]).at(&place));
    std::fs::remove_file(place.dir().join("pirn.toml")).unwrap();
    let before = std::fs::read(only(&place)).unwrap();
    for prompt in [&["-c", "x"][..], &["-c"]] {
        let output = unnamed(&server, prompt).at(&place).run();
        assert_eq!(output.code(), 2, "{output:?}");
        assert!(output.stderr.contains("mine") && output.stderr.contains("hint: -m MODEL"), "{output:?}");
    }
    assert_eq!(std::fs::read(only(&place)).unwrap(), before);
    good(Pirn::of_server(&server, ["-c", "y"]).at(&place));

    rewrite(&only(&place), |line| {
        for write in line["w"].as_array_mut().into_iter().flatten().filter(|write| write["namespace"] == "lane.config")
        {
            write["value"]["activeToolNames"] = json!(["read", "gone"]);
        }
    });
    let output = unnamed(&server, &["-c", "x"]).at(&place).run();
    assert_eq!(output.code(), 2, "{output:?}");
    assert!(output.stderr.contains("gone") && output.stderr.contains("hint: -t LIST"), "{output:?}");
    good(unnamed(&server, &["-c", "-t", "read", "z"]).at(&place));
    assert_eq!(
        talk(server.bodies().last().unwrap()),
        ["user: a", "assistant: OK", "user: y", "assistant: OK", "user: z"]
    );
}

#[test]
fn a_session_is_worked_on_where_it_belongs_ses_11() {
    let server = Server::start([chat_text("OK"), chat_tool("ls", json!({})), chat_text("there"), chat_text("here")]);
    let place = Place::new();
    let (a, b) = (place.dir().join("a"), place.dir().join("b"));
    for dir in [&a, &b] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("mark"), "x").unwrap();
    }
    std::fs::write(a.join("only-in-a"), "x").unwrap();
    let at = |dir: &Path, args: &[&str]| {
        let call = Pirn::of_server(&server, ["--json"].iter().chain(args).copied()).at(&place);
        call.env("THERE", dir).script("cd \"$THERE\" && exec \"$0\" \"$@\"").run()
    };
    let real = |dir: &Path| json!(dir.canonicalize().unwrap());
    let id = at(&a, &["x"]).result()["sessionId"].as_str().unwrap().to_owned();
    let none = at(&b, &["-c", "y"]);
    assert_eq!(none.code(), 2, "{none:?}");
    assert!(none.stderr.contains("sessions list --all"), "{none:?}");

    let output = at(&b, &["-s", &id, "y"]);
    assert_eq!((output.code(), &session_line(&output)["cwd"]), (0, &real(&a)), "{output:?}");
    assert!(output.stderr.contains(a.to_str().unwrap()), "stderr names it: {output:?}");
    assert!(talk(&server.bodies()[2])[4].contains("only-in-a"), "{:?}", server.bodies()[2]);

    let output = at(&b, &["-C", ".", "-s", &id, "z"]);
    assert_eq!((output.code(), &session_line(&output)["cwd"]), (0, &real(&b)), "{output:?}");
    server.assert_clean();

    std::fs::remove_dir_all(&a).unwrap();
    for args in [&["-s", &id, "x"][..], &["-s", &id, "-c"]] {
        let output = at(&b, args);
        assert_eq!((output.code(), server.requests().len()), (2, 4), "{output:?}");
        assert!(output.stderr.contains(a.to_str().unwrap()) && output.stderr.contains("-C DIR"), "{output:?}");
    }
}

#[test]
fn one_process_goes_on_with_a_session_and_the_next_one_is_told_whom_to_wait_for_ses_04_case_98() {
    let gate = Gate::new();
    let held = Reply::with({
        let gate = gate.clone();
        move |_| {
            gate.wait();
            chat_text("late")
        }
    });
    let server = Server::start([chat_text("OK"), held.clone(), held]).then_always(chat_text("OK"));
    let place = begun(&server);
    let file = only(&place);
    let one = Pirn::of_server(&server, ["-c", "ONE"]).at(&place).spawn();
    assert!(server.wait_requests(2));
    // A name that is being made is taken, too.
    let named = Pirn::of_server(&server, ["-s", "fresh", "x"]).at(&place).spawn();
    assert!(server.wait_requests(3));
    let (before, started) = (everything(&place), now());
    for (reference, pid) in [(file.to_str().unwrap(), one.id()), ("fresh", named.id())] {
        let output = Pirn::of_server(&server, ["-s", reference, "TWO"]).at(&place).run();
        assert_eq!((output.code(), output.stdout.as_str()), (75, ""), "{output:?}");
        assert!(output.stderr.contains("busy") && output.stderr.contains(&pid.to_string()), "{pid}: {output:?}");
    }
    let output = Pirn::of_server(&server, ["--json", "-c", "-s", file.to_str().unwrap()]).at(&place).run();
    assert_eq!(output.result()["error"]["kind"], "busy");
    assert!(started.elapsed().as_secs() < 3, "each within a second: {:?}", started.elapsed());
    assert_eq!((everything(&place), server.requests().len()), (before, 3));

    // A killed process holds nothing, and what it was asked for comes first.
    one.signal(Signal::KILL);
    one.wait();
    good(Pirn::of_server(&server, ["-s", file.to_str().unwrap(), "THREE"]).at(&place));
    assert_eq!(talk(server.bodies().last().unwrap())[2..], ["user: ONE", "assistant: OK", "user: THREE"]);
    gate.open();
    assert_eq!(named.wait().stdout, "late\n");
}

#[test]
fn who_comes_second_in_making_a_name_changes_nothing_of_the_session_and_is_told_to_call_again() {
    let server = answering();
    let place = Place::new();
    good(Pirn::of_server(&server, ["-s", "race", "a"]).at(&place));
    let file = only(&place);
    let before = std::fs::read(&file).unwrap();
    let aside = place.dir().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    // Another call is about to make it.
    let lock = std::fs::File::open(file.with_file_name(".lock")).unwrap();
    lock.lock().unwrap();
    let second = Pirn::of_server(&server, ["-m", "openai/other-model", "--json", "-s", "race", "b"]).at(&place).spawn();
    let fds = format!("/proc/{}/fd", second.id());
    let is_lock = |path: PathBuf| std::fs::read_link(path).is_ok_and(|path| path.ends_with(".lock"));
    until(|| std::fs::read_dir(&fds).unwrap().any(|entry| entry.is_ok_and(|entry| is_lock(entry.path()))));
    std::fs::rename(&aside, &file).unwrap();
    lock.unlock().unwrap();
    let output = second.wait();
    assert_eq!((output.code(), &output.result()["error"]["kind"]), (75, &json!("busy")), "{output:?}");
    assert!(output.stderr.contains("race") && output.stderr.contains("hint: run the call again"), "{output:?}");
    assert_eq!((std::fs::read(only(&place)).unwrap(), server.requests().len()), (before, 1));
    good(Pirn::of_server(&server, ["-s", "race", "b"]).at(&place));
    assert_eq!(talk(&server.bodies()[1]), ["user: a", "assistant: OK", "user: b"]);
}

#[test]
fn a_session_of_a_clock_that_was_ahead_is_passed_over_with_a_warning() {
    let server = Server::start(["ahead", "one", "two", "three"].map(chat_text));
    let place = Place::new();
    good(Pirn::of_server(&server, ["-s", "ahead", "a"]).at(&place));
    let file = only(&place);
    rewrite(&file, |line| {
        for moment in ["at", "createdAt"] {
            if let Some(at) = line[moment].as_u64() {
                line[moment] = json!(at + 86_400_000);
            }
        }
    });
    let tomorrow = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
    let touched = std::fs::FileTimes::new().set_modified(tomorrow);
    std::fs::File::open(&file).unwrap().set_times(touched).unwrap();
    good(Pirn::of_server(&server, ["-s", "now", "b"]).at(&place));
    let told = "has a time that is still to come";
    let output = good(Pirn::of_server(&server, ["-c", "c"]).at(&place));
    assert!(output.stderr.contains(told) && output.stderr.contains("-s ID"), "{output:?}");
    assert_eq!(talk(&server.bodies()[2]), ["user: b", "assistant: one", "user: c"]);
    for args in [&["sessions", "show"][..], &["steer", "d"]] {
        let output = good(Pirn::new(args.iter().copied()).at(&place));
        assert!(output.stderr.contains(told), "{output:?}");
    }
    // Named, it is the one that is meant, and from then on it is the latest again.
    let output = good(Pirn::of_server(&server, ["-c", "-s", "ahead", "e"]).at(&place));
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("three\n", ""));
    assert_eq!(talk(&server.bodies()[3])[0], "user: a");
    assert!(good(Pirn::new(["sessions", "show"]).at(&place)).stdout.contains("three"));
}

#[test]
fn without_a_home_nothing_is_written_where_the_call_was_made_cfg_05() {
    let server = answering();
    let bare = |args: &[&str]| {
        Pirn::of_server(&server, args.iter().copied()).script(
        "exec env -i PATH=\"$PATH\" OPENAI_BASE_URL=\"$OPENAI_BASE_URL\" OPENAI_API_KEY=\"$OPENAI_API_KEY\" \"$0\" \"$@\"",
    )
    };
    let roots = || std::fs::read_dir("/").unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let before = roots();
    for (args, code) in [(&["x"][..], 2), (&["-c", "x"], 2), (&["sessions", "list"], 2), (&["--no-session", "x"], 0)] {
        let place = Place::new();
        let call = if args[0] == "sessions" {
            Pirn::new(args.iter().copied()).script("exec env -i \"$0\" \"$@\"")
        } else {
            bare(args)
        };
        let output = call.at(&place).run();
        assert_eq!(output.code(), code, "{args:?}: {output:?}");
        assert!(code == 0 || output.stderr.contains("HOME"), "{args:?}: {output:?}");
        assert_eq!(everything(&place), [], "{args:?}");
    }
    let place = Place::new();
    good(bare(&["--set", "session.dir=/proc/self/cwd/kept", "x"]).at(&place));
    assert!(place.dir().join("kept/sessions").is_dir());
    assert_eq!(roots(), before);
}

#[test]
fn sessions_are_listed_and_shown_whatever_else_is_wrong() {
    let gate = Gate::new();
    let held = Reply::with({
        let gate = gate.clone();
        move |_| {
            gate.wait();
            chat_text("late")
        }
    });
    let server = Server::start([chat_tool("ls", json!({})), chat_text("the answer"), held]);
    let place = Place::new();
    good(Pirn::of_server(&server, ["-s", "first", "a question"]).at(&place));
    let running = Pirn::of_server(&server, ["-s", "second", "another"]).at(&place).spawn();
    assert!(server.wait_requests(3));
    // A file that no run would go by.
    std::fs::write(place.dir().join("pirn.toml"), "[session]\ndir = \"elsewhere\"\n").unwrap();
    let before = everything(&place);
    let ask = |args: &[&str]| {
        let output = good(Pirn::new(args.iter().copied()).at(&place));
        assert!(output.stderr.contains("pirn.toml is not trusted"), "{output:?}");
        output.stdout
    };
    let listed = ask(&["sessions", "list", "--json"]);
    let rows: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown = |row: &Value| json!([row["name"], row["messages"], row["open"], row["model"]]);
    assert_eq!(shown(&rows[0]), json!(["second", 1, true, "openai/test-model"]));
    assert_eq!(shown(&rows[1]), json!(["first", 4, false, "openai/test-model"]));
    let table = ask(&["sessions", "list", "question"]);
    assert!(table.contains("a question") && !table.contains("another"), "{table}");

    let text = ask(&["sessions", "show", "first"]);
    for part in ["[user]", "a question", "ls", "[empty directory]", "[assistant]", "the answer"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let id = rows[1]["id"].as_str().unwrap();
    let whole: Value =
        serde_json::from_str(&ask(&["sessions", "show", &id[id.len() - 8..], "--format", "json"])).unwrap();
    let file = PathBuf::from(rows[1]["file"].as_str().unwrap());
    let of = |list: &[Value]| {
        list.iter().map(|entry| json!([entry["id"], entry["parentId"], entry["message"]])).collect::<Vec<_>>()
    };
    assert_eq!(of(whole["entries"].as_array().unwrap()), of(&entries(&file)));
    assert_eq!((&whole["session"]["messages"], &whole["usage"]["output"]), (&json!(4), &json!(10)));
    // The one that is open is shown as far as it is.
    assert!(ask(&["sessions", "show"]).contains("another"));
    assert_eq!(everything(&place), before);
    gate.open();
    assert_eq!(running.wait().stdout, "late\n");
}
