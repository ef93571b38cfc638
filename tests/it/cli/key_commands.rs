//! `api_key = "!command"`: what is run, when, and what nobody gets to see (KEY-1, KEY-2, CFG-03).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::{Output, Pirn, Place};
use crate::support::chat::{chat_error, chat_text, chat_tool};
use crate::support::server::{Reply, Server};

/// What commands print here; no output may hold one. Not of a shape that is masked anyway.
const PRINTED: &str = "printed-7f3a9c0e5d1b2468";
const RENEWED: &str = "renewed-1a2b3c4d5e6f7089";
/// Far less than a command may take, and enough for a slow machine.
const SOON: Duration = Duration::from_secs(10);

/// A call of a provider whose key is what a script prints. The script stands in a file, so that nothing of it is in the
/// configuration.
fn keyed(place: &Arc<Place>, server: &Server, script: &str, args: &[&str]) -> Pirn {
    fs::write(place.dir().join("key.sh"), script).unwrap();
    let config = format!("[providers.local]\nbase_url = \"{}\"\napi_key = \"!. ./key.sh\"\n", server.base_url());
    let given = ["--config", "c.toml", "-m", "local/m"].iter().chain(args);
    Pirn::new(given.copied()).at(place).file("c.toml", config)
}

/// Runs a call and looks for keys in everything it left.
fn ran(place: &Arc<Place>, call: Pirn) -> Output {
    let output = call.run();
    let mut left = format!("{}\n{}", output.stdout, output.stderr);
    for file in place.sessions().into_iter().chain([place.dir().join("log.txt"), place.dir().join("e.jsonl")]) {
        left.push_str(&fs::read_to_string(file).unwrap_or_default());
    }
    for key in [PRINTED, RENEWED] {
        assert!(!left.contains(key), "{left}");
    }
    output
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

fn keys_sent(server: &Server) -> Vec<String> {
    let sent = |header: Option<&str>| header.unwrap_or("nothing").to_owned();
    server.requests().iter().map(|request| sent(request.header("authorization"))).collect()
}

/// How often a script that counts was run.
fn runs(place: &Place) -> usize {
    fs::read_to_string(place.dir().join("runs")).unwrap_or_default().lines().count()
}

/// Whether a process that a script noted is there, and no zombie.
fn lives(file: &Path) -> bool {
    let pid = fs::read_to_string(file).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_command_is_run_once_before_the_first_request_and_its_output_signs_all_of_them_key_1() {
    let place = Place::new();
    let server = Server::start([chat_tool("ls", json!({})), chat_text("done")]);
    let script = format!("echo run >> runs; echo; echo '  {PRINTED}  '; echo 'a word to people' >&2");
    let output = ran(&place, keyed(&place, &server, &script, &["x"]));
    assert_eq!((output.code(), output.stdout.as_str(), output.stderr.contains("a word")), (0, "done\n", false));
    assert_eq!((keys_sent(&server), runs(&place)), (vec![bearer(PRINTED), bearer(PRINTED)], 1));
}

#[test]
fn a_command_of_another_provider_is_not_run() {
    let place = Place::new();
    let server = Server::start([]);
    let call = keyed(&place, &server, "echo run >> runs", &["x"]);
    let output = ran(&place, Pirn { args: ["--config", "c.toml", "-m", "demo", "x"].map(Into::into).into(), ..call });
    assert_eq!((output.code(), runs(&place)), (0, 0));
}

#[test]
fn a_command_gets_the_filtered_environment_no_stdin_and_the_working_directory() {
    let place = Place::new();
    let server = Server::start([chat_text("done")]);
    let script = format!("env | sort > env.txt; cat > stdin.txt; pwd -P > cwd.txt; echo {PRINTED}");
    let call = keyed(&place, &server, &script, &["--set", "env.pass=['VAULT_TOKEN']", "x", "-"])
        .env("OTHER_TOKEN", "o")
        .env("VAULT_TOKEN", "v")
        .env("GROQ_API_KEY", "g")
        .stdin(super::Stdin::Bytes(b"the prompt".to_vec()));
    assert_eq!(ran(&place, call).code(), 0);
    let read = |name: &str| fs::read_to_string(place.dir().join(name)).unwrap();
    let env = read("env.txt");
    assert!(env.contains("VAULT_TOKEN=v\n") && env.contains("PIRN_DEPTH=1\n"), "{env}");
    assert!(!env.contains("OTHER_TOKEN") && !env.contains("GROQ_API_KEY") && !env.contains("PIRN_HOME"), "{env}");
    assert_eq!(
        (read("stdin.txt").as_str(), Path::new(read("cwd.txt").trim())),
        ("", &*place.dir().canonicalize().unwrap())
    );
    assert!(String::from_utf8_lossy(&server.requests()[0].body).contains("the prompt"));
}

#[test]
fn a_printed_key_reaches_no_child_and_is_masked_by_the_name_of_its_setting_v5() {
    let place = Place::new();
    let command = json!({"command": "env; tr '\\0' ' ' < /proc/$PPID/environ; . ./key.sh"});
    let server = Server::start([chat_tool("bash", command), chat_text("done")]);
    let args = ["-t", "bash", "--json", "--log", "log.txt", "--events", "e.jsonl", "x"];
    let output = ran(&place, keyed(&place, &server, &format!("echo {PRINTED}"), &args));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let told = server.requests()[1].last_message()["content"].as_str().unwrap().to_owned();
    assert_eq!(told.matches("[redacted:providers.local.api_key]").count(), 1, "{told}");
    assert!(!told.contains(PRINTED), "{told}");
}

/// A script, what the error says of it.
const FAILURES: [(&str, &str); 9] = [
    ("exit 3", "failed with exit code 3"),
    ("echo; echo 'the safe is locked' >&2; echo more >&2; exit 1", "failed with exit code 1: the safe is locked"),
    ("nosuchprogram", "failed with exit code 127: "),
    ("kill -KILL $$", "was ended by signal 9"),
    ("true", "printed nothing"),
    ("echo; echo ' '", "printed nothing"),
    ("echo user; echo PRINTED", "printed more than one line"),
    ("printf 'a\\377b'", "printed bytes that are not UTF-8"),
    ("head -c 70000 /dev/zero | tr '\\0' k", "printed more than 65536 bytes"),
];

#[test]
fn a_command_that_gives_no_key_is_an_auth_error_that_says_what_to_do_and_nothing_is_sent_key_1() {
    let server = Server::start([]);
    for (script, said) in FAILURES {
        let place = Place::new();
        let script = script.replace("PRINTED", PRINTED);
        let output = ran(&place, keyed(&place, &server, &script, &["x"]));
        assert_eq!((output.code(), output.stdout.as_str()), (77, ""), "{script}: {}", output.stderr);
        let start = "pirn: auth: no key for local: the command of providers.local.api_key (c.toml:3:11) ";
        assert!(output.stderr.starts_with(&format!("{start}{said}")), "{script}: {}", output.stderr);
        assert!(output.stderr.contains("the command must print the key, and nothing else"), "{}", output.stderr);
        assert!(!output.stderr.contains("more\n") && place.sessions().is_empty(), "{}", output.stderr);
        let place = Place::new();
        let result = ran(&place, keyed(&place, &server, &script, &["--json", "x"])).result();
        assert_eq!((&result["error"]["kind"], &result["error"]["provider"]), (&json!("auth"), &json!("local")));
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_mistake_in_the_call_is_told_before_a_command_that_failed() {
    let place = Place::new();
    let server = Server::start([]);
    let output = ran(&place, keyed(&place, &server, "exit 1", &["x", "@missing.txt"]));
    assert_eq!(output.code(), 2, "{}", output.stderr);
}

#[test]
fn keys_that_a_failing_command_shows_on_stderr_are_masked() {
    let server = Server::start([]);
    let shaped = "sk-live-0123456789abcdef";
    for (script, said) in [
        (format!("echo {PRINTED}; echo 'stale: {PRINTED}' >&2; exit 1"), "exit code 1: stale: ***\n"),
        (format!("echo 'key = {PRINTED} (old)'; echo 'stale: {PRINTED}' >&2; exit 1"), "exit code 1: stale: ***\n"),
        (format!("echo 'refused {shaped}' >&2; exit 1"), "exit code 1: refused ***\n"),
        ("echo \"other $OTHER\" >&2; exit 1".to_owned(), "exit code 1: other [redacted:GROQ_API_KEY]\n"),
        ("printf 'a\\033[31mb\\n' >&2; exit 1".to_owned(), "exit code 1: a\\u001b[31mb\n"),
    ] {
        let place = Place::new();
        let call = keyed(&place, &server, &script, &["x"]).env("OTHER", RENEWED).env("GROQ_API_KEY", RENEWED);
        let output = ran(&place, call);
        assert_eq!(output.code(), 77);
        assert!(output.stderr.contains(said) && !output.stderr.contains(shaped), "{script}: {}", output.stderr);
    }
}

#[test]
fn what_a_command_leaves_behind_does_not_hold_up_the_run_and_does_not_outlive_it() {
    for left in ["sleep 300 & echo $! > pid", "setsid sleep 300 & echo $! > pid", "(sleep 300 & echo $! > pid) &"] {
        let place = Place::new();
        let server = Server::start([chat_text("done")]);
        let script = format!("{left}\nuntil [ -s pid ]; do :; done; echo {PRINTED}");
        let output = ran(&place, keyed(&place, &server, &script, &["x"]));
        assert_eq!((output.code(), keys_sent(&server)), (0, vec![bearer(PRINTED)]), "{left}: {}", output.stderr);
        assert!(output.elapsed < SOON, "{left}: {:?}", output.elapsed);
        assert!(!lives(&place.dir().join("pid")), "{left}");
    }
}

#[test]
fn signals_and_the_timeout_end_the_wait_and_all_that_the_command_started() {
    let server = Server::start([]);
    let script = "setsid sleep 300 & echo $! > escaped; sleep 300 & echo $! > pid.tmp; mv pid.tmp pid; wait";
    let ended = |place: &Place| {
        for name in ["pid", "escaped"] {
            assert!(!lives(&place.dir().join(name)), "{name}");
        }
    };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let running = keyed(&place, &server, script, &["--json", "x"]).spawn();
        wait_for(&place.dir().join("pid"));
        running.signal(signal);
        let output = running.wait();
        assert_eq!((output.code(), &output.result()["error"]), (code, &json!(null)));
        assert!(output.elapsed < SOON, "{:?}", output.elapsed);
        ended(&place);
    }
    let place = Place::new();
    let output = ran(&place, keyed(&place, &server, script, &["--timeout", "1500ms", "x"]));
    assert_eq!(output.code(), 124, "{}", output.stderr);
    assert!(output.elapsed < SOON, "{:?}", output.elapsed);
    ended(&place);
    assert_eq!(server.connections(), 0);
}

fn wait_for(path: &Path) {
    let start = std::time::Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < SOON, "never: {}", path.display());
        std::thread::yield_now();
    }
}

/// A script that prints another key each time.
fn renewing(keys: &[&str]) -> String {
    let mut script = "echo run >> runs; case $(wc -l < runs) in\n".to_owned();
    for (at, key) in keys.iter().enumerate() {
        writeln!(script, "{}) {key};;", at + 1).unwrap();
    }
    script + "*) exit 9;;\nesac\n"
}

fn taking(good: &'static str) -> Reply {
    Reply::with(move |request| match request.header("authorization") {
        Some(sent) if sent.ends_with(good) => chat_text("done"),
        sent => chat_error(401, "invalid_api_key", &format!("no good: {sent:?}")),
    })
}

#[test]
fn a_refused_key_is_printed_again_once_and_the_new_one_is_hidden_as_well_key_2() {
    let place = Place::new();
    fs::write(place.dir().join("both.txt"), format!("{PRINTED} {RENEWED}\n")).unwrap();
    let show = chat_tool("bash", json!({"command": "cat both.txt"}));
    let refuse = chat_error(401, "expired", &format!("expired: {PRINTED}"));
    let server = Server::start([chat_tool("ls", json!({})), refuse, show, chat_text("done")]);
    let script = renewing(&[&format!("echo {PRINTED}"), &format!("echo {RENEWED}; sleep 300 & echo $! > pid")]);
    let args = ["-t", "ls,bash", "--json", "--log", "log.txt", "--events", "e.jsonl", "x"];
    let output = ran(&place, keyed(&place, &server, &script, &args));
    assert_eq!((output.code(), runs(&place)), (0, 2), "{}", output.stderr);
    let sent = [PRINTED, PRINTED, RENEWED, RENEWED].map(bearer);
    assert_eq!(keys_sent(&server), sent);
    let mask = "[redacted:providers.local.api_key]";
    assert_eq!(server.requests()[3].last_message()["content"], format!("{mask} {mask}"));
    assert!(!lives(&place.dir().join("pid")));
}

#[test]
fn a_key_that_stays_refused_is_told_after_one_more_run_of_the_command_key_2() {
    for (second, ran_twice, warning) in [
        (format!("echo {RENEWED}"), true, ""),
        (
            format!("echo {PRINTED}"),
            true,
            "pirn: warning: the key was refused, and its source gave the same one again\n",
        ),
        (
            "echo 'log in first' >&2; exit 4".to_owned(),
            true,
            "pirn: warning: the key was refused, and there is no other: no key for local: the command of \
             providers.local.api_key (c.toml:3:11) failed with exit code 4: log in first\n",
        ),
    ] {
        let place = Place::new();
        let server = Server::start([]).then_always(taking("nobody"));
        let script = renewing(&[&format!("echo {PRINTED}"), &second]);
        let output = ran(&place, keyed(&place, &server, &script, &["x"]));
        assert_eq!((output.code(), runs(&place) == 2), (77, ran_twice), "{second}: {}", output.stderr);
        assert!(
            output.stderr.contains(warning) && output.stderr.contains("no good: Some(\"***\")"),
            "{}",
            output.stderr
        );
        assert!(output.stderr.contains("check providers.local.api_key: the key was refused"), "{}", output.stderr);
        let requests = if warning.is_empty() { 2 } else { 1 };
        assert_eq!(server.requests().len(), requests, "{second}");
    }
}

#[test]
fn a_signal_ends_the_second_run_of_a_command_too() {
    let place = Place::new();
    let server = Server::start([]).then_always(taking("nobody"));
    let second = "setsid sleep 300 & echo $! > escaped; sleep 300 & echo $! > pid.tmp; mv pid.tmp pid; wait";
    let running = keyed(&place, &server, &renewing(&[&format!("echo {PRINTED}"), second]), &["--json", "x"]).spawn();
    wait_for(&place.dir().join("pid"));
    running.signal(Signal::TERM);
    let output = running.wait();
    assert_eq!((output.code(), output.result()["reason"].as_str()), (143, Some("interrupted")), "{}", output.stdout);
    assert!(output.elapsed < SOON && !output.stdout.contains(PRINTED));
    for name in ["pid", "escaped"] {
        assert!(!lives(&place.dir().join(name)), "{name}");
    }
}

/// Value of the setting, variable, code, what stands in the request or on stderr.
const REFERENCES: [(&str, Option<&str>, i32, &str); 10] = [
    ("${MY_KEY}", Some("my-key-0123456789"), 0, "Bearer my-key-0123456789"),
    ("$MY_KEY", Some("my-key-0123456789"), 0, "Bearer my-key-0123456789"),
    ("${MY_KEY:-spare}", None, 0, "Bearer spare"),
    ("${MY_KEY}", None, 77, "no key for local: set MY_KEY (providers.local.api_key, c.toml:3:11)"),
    ("$MY_KEY", Some(""), 77, "no key for local: set MY_KEY (providers.local.api_key, c.toml:3:11)"),
    ("$my key", Some("x"), 2, "c.toml:3:11: providers.local.api_key begins with \"$\" and names no variable"),
    ("$", Some("x"), 2, "c.toml:3:11: providers.local.api_key begins with \"$\" and names no variable"),
    ("${MY_KEY", Some("x"), 2, "c.toml:3:11: providers.local.api_key"),
    ("!", None, 2, "c.toml:3:11: providers.local.api_key begins with \"!\" and names no command"),
    ("!printf %s \\\"$MY_WORD\\\"", Some("x"), 0, "Bearer of-the-shell"),
];

#[test]
fn a_key_is_a_reference_or_a_command_and_never_sent_as_it_is_written_cfg_03() {
    for (value, variable, code, wanted) in REFERENCES {
        let server = Server::start([chat_text("done")]);
        let config = format!("[providers.local]\nbase_url = \"{}\"\napi_key = \"{value}\"\n", server.base_url());
        let mut call = Pirn::new(["--config", "c.toml", "-m", "local/m", "x"]).file("c.toml", config);
        call = call.env("MY_WORD", "of-the-shell");
        if let Some(variable) = variable {
            call = call.env("MY_KEY", variable);
        }
        let output = call.run();
        assert_eq!(output.code(), code, "{value}: {}", output.stderr);
        if code == 0 {
            assert_eq!(keys_sent(&server), [wanted.to_owned()], "{value}");
        } else {
            assert!(output.stderr.contains(wanted), "{value}: {}", output.stderr);
            assert_eq!(server.connections(), 0, "{value}");
        }
    }
}
