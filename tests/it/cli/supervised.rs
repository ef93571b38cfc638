//! What the binary does for its children and its own process: dispositions of signals (X1), depth (B15), withheld
//! variables (V2), and what could not be ended (X5).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::{Output, Pirn, Place, binary};
use crate::support::chat::{chat_text, chat_tool};
use crate::support::server::Server;

/// A server whose model runs one command and then says "done".
fn commanding(command: &str) -> Server {
    Server::start([chat_tool("bash", json!({"command": command})), chat_text("done")])
}

/// What the model read of its command.
fn seen(server: &Server) -> String {
    let body = server.requests()[1].json();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["role"], "tool");
    last["content"].as_str().unwrap().to_owned()
}

/// Runs one command through the tool, in a call that is made from it, and gives what the model read.
fn told(command: &str, make: impl FnOnce(Pirn) -> Pirn) -> (String, Output) {
    let server = commanding(command);
    let output = make(Pirn::of_server(&server, ["-t", "bash", "x"])).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "done\n"), "{}", output.stderr);
    server.assert_clean();
    (seen(&server), output)
}

#[test]
fn a_pirn_below_a_pirn_is_one_deeper_and_a_sixth_does_not_start_b15() {
    let shows = "echo depth $PIRN_DEPTH";
    assert_eq!(told(shows, |call| call).0, "depth 1");
    assert_eq!(told(shows, |call| call.env("PIRN_DEPTH", "2")).0, "depth 3");

    let below = format!("{} -m demo --no-session x; echo code $?", binary().display());
    let (text, _) = told(&below, |call| call.env("PIRN_DEPTH", "4"));
    assert!(text.ends_with("code 0"), "{text}");
    let (text, _) = told(&below, |call| call.env("PIRN_DEPTH", "5"));
    assert!(text.contains("a chain of 6 pirns; more than 5 are not allowed") && text.ends_with("code 2"), "{text}");

    for (depth, problem) in [("6", "a chain of 6 pirns"), ("deep", "PIRN_DEPTH is \"deep\", not a number")] {
        let call = Pirn::demo(["--json=result", "--events", "e.jsonl", "x"]).env("PIRN_DEPTH", depth);
        let place = call.place.clone();
        let output = call.run();
        let result = output.result();
        assert_eq!((output.code(), &result["error"]["kind"]), (2, &json!("usage")), "{depth}");
        assert!(result["error"]["message"].as_str().unwrap().contains(problem), "{result}");
        assert!(place.sessions().is_empty() && !place.dir().join("e.jsonl").exists(), "nothing is begun");
    }
}

/// The masks of a process's signals, as the kernel shows them.
fn mask(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {status}"));
    u64::from_str_radix(line.trim(), 16).unwrap()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[test]
fn children_hear_every_signal_whatever_pirn_ignores_and_blocks_x1() {
    let shows = "grep -E 'SigBlk|SigIgn' /proc/self/status";
    let (status, _) = told(shows, |call| call.script("exec env --block-signal=USR1,TERM \"$0\" \"$@\""));
    let ignored = mask(&status, "SigIgn:");
    assert_eq!(mask(&status, "SigBlk:"), 0, "{status}");
    assert_eq!(ignored & (bit(libc::SIGPIPE) | bit(libc::SIGXFSZ)), 0, "{status}");
    let (text, _) = told("sh -c 'kill -XFSZ $$'; echo code $?", |call| call);
    assert!(text.contains(&format!("code {}", 128 + libc::SIGXFSZ)), "{text}");

    let (status, _) = told(shows, |call| call.script("trap '' HUP; exec \"$0\" \"$@\""));
    assert_eq!(mask(&status, "SigIgn:") & bit(libc::SIGHUP), bit(libc::SIGHUP), "as under nohup: {status}");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_of_the_write_and_no_death() {
    // In blocks of 1 KiB; the answer of the demo does not fit the file.
    let script = "ulimit -f 1; exec \"$0\" \"$@\" > out.txt";
    let long = "word ".repeat(1000);
    let server = Server::start([chat_text(&long)]);
    let output = Pirn::of_server(&server, ["--no-session", "x"]).script(script).run();
    assert_eq!((output.code(), output.signal()), (1, None), "{}", output.stderr);
    assert!(output.stderr.contains("File too large"), "{}", output.stderr);
}

#[test]
fn withheld_variables_are_named_once_where_a_tool_starts_children_v2() {
    let secret = "s3cr3t0123456789";
    let counts = |output: &Output| output.stderr.matches("withheld from children").count();
    let run = |args: &[&str]| {
        let server = Server::start([chat_text("done")]);
        let output = Pirn::of_server(&server, args).env("DEPLOY_TOKEN", secret).run();
        assert_eq!(output.code(), 0, "{}", output.stderr);
        assert!(!output.stderr.contains(secret) && !output.stdout.contains(secret));
        output
    };
    let verbose = run(&["-v", "-t", "bash", "x"]);
    let named = "pirn: withheld from children: DEPLOY_TOKEN, OPENAI_API_KEY, PIRN_HOME\n";
    assert_eq!(verbose.stderr.matches(named).count(), 1, "{}", verbose.stderr);
    let json = run(&["-v", "-t", "bash", "--json", "x"]);
    assert!(json.stderr.contains(named) && json.result()["ok"] == true, "{}", json.stderr);
    for quiet in [&["-t", "bash", "x"] as &[&str], &["-v", "-t", "ro", "x"], &["-v", "-t", "none", "x"]] {
        assert_eq!(counts(&run(quiet)), 0, "{quiet:?}");
    }
}

/// Variables that a provider's table refers to, and what the table says.
const BEHIND: &str = "[providers.openai.headers]
x-gate-key = \"Basic ${GATE}\"
x-team = \"${TEAM}\"
x-trace = \"${TRACE}\"
x-home = \"${HOME}\"
[providers.other]
base_url = \"http://me:${PASS}@127.0.0.1:9/v1\"
api_key = \"${OTHER}\"
[providers.plain]
base_url = \"http://${NODE}/v1\"
";

#[test]
fn variables_behind_headers_keys_and_addresses_are_withheld_and_masked_where_they_are_passed_v1_v5() {
    let values = [
        ("GATE", "gate-value"),
        ("TEAM", "platform"),
        ("TRACE", "trace0123456789abc"),
        ("HOME", "/nonexistent"),
        ("PASS", "pass-value"),
        ("OTHER", "other-value"),
        ("NODE", "node.example"),
    ];
    let command = "echo $GATE/$TEAM/$TRACE/$HOME/$PASS/$OTHER/$NODE; cat seen.txt";
    let run = |more: &str| {
        let (text, output) = told(command, |mut call| {
            for (name, value) in values {
                call = call.env(name, value);
            }
            let call = call.file("seen.txt", "gate-value platform trace0123456789abc Basic gate-value");
            call.file("c.toml", format!("{more}\n{BEHIND}")).env("PIRN_CONFIG", "c.toml")
        });
        assert!(output.stderr.is_empty(), "{}", output.stderr);
        text
    };
    // A word under a name that says nothing of a secret is none, and stays in texts.
    let file = "[redacted:GATE] platform [redacted:TRACE] [redacted:providers.openai.headers.x-gate-key]";
    assert_eq!(run("env.inherit = \"all\""), format!("////nonexistent///node.example\n{file}"));
    let passed = "[redacted:GATE]/platform/[redacted:TRACE]//nonexistent/[redacted:PASS]/[redacted:OTHER]/node.example";
    let pass = "env.pass = [\"GATE\", \"TEAM\", \"TRACE\", \"PASS\", \"OTHER\"]";
    assert_eq!(run(pass), format!("{passed}\n{file}"));
    // A glob is not the name.
    assert!(run("env.pass = [\"G*\", \"P*\"]").starts_with("////nonexistent///"));
}

#[test]
fn keys_have_the_name_of_their_variable_or_of_their_setting_v5() {
    let shows = |config: &str| {
        let (text, _) = told("cat seen.txt", |call| {
            let call = call.file("c.toml", config).env("PIRN_CONFIG", "c.toml").env("PART", "part-of-a-key");
            call.file("seen.txt", "literal-key-1 part-of-a-key pre-part-of-a-key fallback-key")
        });
        text
    };
    assert_eq!(
        shows("[providers.a]\nbase_url = \"http://h\"\napi_key = \"pre-${PART}\"\n"),
        "literal-key-1 [redacted:PART] [redacted:providers.a.api_key] fallback-key"
    );
    assert_eq!(
        shows("[providers.a]\nbase_url = \"http://h\"\napi_key = \"${NO:-fallback-key}\"\n"),
        "literal-key-1 part-of-a-key pre-part-of-a-key [redacted:providers.a.api_key]"
    );
    let place = Place::new();
    let server = Server::start([chat_tool("bash", json!({"command": "cat seen.txt"})), chat_text("done")]);
    let call = Pirn::of_server(&server, ["-t", "bash", "x"]).at(&place);
    let config = place.home().join("config/pirn.toml");
    std::fs::create_dir(place.home().join("config")).unwrap();
    std::fs::write(&config, "[providers.'my gate']\nbase_url = \"http://h\"\napi_key = \"literal-key-1\"\n").unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = call.file("seen.txt", "literal-key-1").run();
    assert_eq!(
        (output.code(), seen(&server).as_str()),
        (0, "[redacted:providers.\"my gate\".api_key]"),
        "{}",
        output.stderr
    );
}

/// A process of another user: pirn, which is nobody, may not signal it.
const UNREACHABLE: &str = "cp $(command -v setpriv) rise && chmod 4755 rise";

#[test]
fn what_could_not_be_ended_is_told_x5() {
    // Only root can make the program that leaves; as somebody else there is nobody to become.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    for path in [place.dir(), place.home()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let made = std::process::Command::new("sh").args(["-c", UNREACHABLE]).current_dir(place.dir()).status().unwrap();
    assert!(made.success());
    let copy = place.dir().join("pirn");
    std::fs::copy(binary(), &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();

    let command = "setsid ./rise --reuid=0 --clear-groups sleep 60 >/dev/null 2>&1 & echo $! > pid; \
                   until grep -qs '^Uid:.0' /proc/$!/status; do :; done; echo left";
    let server = commanding(command);
    let script = "shift; exec setpriv --reuid=65534 --clear-groups ./pirn \"$@\"";
    let output = Pirn::of_server(&server, ["-t", "bash", "--json", "x"]);
    let output = output.script(format!("set -- \"$0\" \"$@\"; {script}")).at(&place).run();
    let _ended = Ended(place.dir());
    assert_eq!(output.code(), 0, "{} {}", output.stdout, output.stderr);
    let warning = output.lines_of("warning").into_iter().find(|line| line["code"] == "children");
    let message = warning.as_ref().and_then(|line| line["message"].as_str()).unwrap_or_default();
    assert!(message.starts_with("processes could not be ended and still run: "), "{}", output.stdout);
    assert_eq!(output.result()["text"], json!("done"));
}

/// Ends what the test left.
struct Ended<'a>(&'a Path);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.0.join("pid")).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // It may have ended by itself.
            let _killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
