//! Configuration as a run shows it: layers, errors with positions, providers, addresses, certificates, proxies (cases
//! CFG-05 to CFG-07).

use std::path::Path;

use serde_json::{Value, json};

use super::{KEY, Output, Pirn};
use crate::support::chat::{chat_text, chat_tool};
use crate::support::request::Recorded;
use crate::support::server::{Reply, Server};
use crate::support::tls::Identity;

/// Flags, variables, and what holds in the end: model, turns, timeout, tools.
type Layers<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], [Value; 4]);

fn answering() -> Server {
    Server::start([chat_text("OK")])
}

/// Runs a call that must be answered, and gives the request and the output.
fn answered(make: impl FnOnce(&Server) -> Pirn) -> (Recorded, Output) {
    let server = answering();
    let output = make(&server).run();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    server.assert_clean();
    (server.requests().remove(0), output)
}

/// A call that can end before any request, with every line it leaves on stderr.
fn stderr_of(call: Pirn, code: i32) -> String {
    let output = call.run();
    assert_eq!((output.code(), output.stdout.as_str()), (code, ""), "{}", output.stderr);
    output.stderr
}

fn session_of(output: &Output) -> Value {
    output.lines_of("session").remove(0)
}

#[test]
fn a_higher_layer_wins_in_the_session_line_and_in_the_request() {
    let file = "model = \"openai/of-file\"\n[limits]\nmax_turns = 1\ntimeout = \"61s\"\n[tools]\nenabled = [\"ls\"]\n";
    let layers: [Layers<'_>; 5] = [
        (&[], &[], [json!("of-file"), json!(1), json!(61_000), json!(["ls"])]),
        (
            &[],
            &[
                ("PIRN_MODEL", "openai/of-env"),
                ("PIRN_MAX_TURNS", "2"),
                ("PIRN_TIMEOUT", "62s"),
                ("PIRN_TOOLS", "read"),
            ],
            [json!("of-env"), json!(2), json!(62_000), json!(["read"])],
        ),
        (
            &["--set", "model=openai/of-set", "--set", "limits.max_turns=3", "--set", "limits.timeout=63s"],
            &[("PIRN_MODEL", "openai/of-env"), ("PIRN_MAX_TURNS", "2"), ("PIRN_TOOLS", "none")],
            [json!("of-set"), json!(3), json!(63_000), json!([])],
        ),
        (
            &[
                "-m",
                "openai/of-flag",
                "--set",
                "model=openai/of-set",
                "--max-turns",
                "4",
                "--timeout",
                "64s",
                "-t",
                "ro",
            ],
            &[("PIRN_MODEL", "openai/of-env"), ("PIRN_TOOLS", "none")],
            [json!("of-flag"), json!(4), json!(64_000), json!(["read", "ls"])],
        ),
        (&["--bare"], &[("PIRN_TIMEOUT", "0")], [json!("of-file"), json!(1), Value::Null, json!(["ls"])]),
    ];
    for (args, env, [model, turns, timeout, tools]) in layers {
        let (request, output) = answered(|server| {
            let call =
                Pirn::new(args.iter().copied().chain(["--json", "--config", "c.toml", "x"])).file("c.toml", file);
            let call = call.env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", KEY);
            env.iter().fold(call, |call, (name, value)| call.env(name, *value))
        });
        let session = session_of(&output);
        assert_eq!((&session["model"]["id"], &request.json()["model"]), (&model, &model), "{args:?} {env:?}");
        assert_eq!(session["limits"], json!({"maxTurns": turns, "maxCost": null, "timeoutMs": timeout}), "{args:?}");
        assert_eq!(session["tools"], tools, "{args:?} {env:?}");
        let sent: Vec<Value> = request.json()["tools"].as_array().into_iter().flatten().cloned().collect();
        let sent: Vec<&Value> = sent.iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(json!(sent), tools, "{args:?} {env:?}");
        let files = session["configFiles"].as_array().unwrap();
        assert!(files.len() == 1 && files[0].as_str().unwrap().ends_with("/c.toml"), "{session}");
    }
}

#[test]
fn the_config_file_of_a_flag_beats_that_of_the_variable() {
    let (request, output) = answered(|server| {
        Pirn::new(["--json", "--config", "a.toml", "x"])
            .file("a.toml", "model = \"openai/a\"\n")
            .file("b.toml", "model = \"openai/b\"\n")
            .env("PIRN_CONFIG", "b.toml")
            .env("OPENAI_BASE_URL", server.base_url())
            .env("OPENAI_API_KEY", KEY)
    });
    assert_eq!(request.json()["model"], "a");
    assert_eq!(session_of(&output)["configFiles"].as_array().unwrap().len(), 1, "one extra file");
    let stderr = stderr_of(Pirn::demo(["--config", "no.toml", "x"]), 2);
    assert!(stderr.starts_with("pirn: config: no.toml: cannot be read: "), "{stderr}");
}

#[test]
fn a_mistake_is_named_with_its_place_before_anything_is_sent() {
    for (text, wanted) in [
        (
            "# c\n[limits]\n  max_turn = 3\n",
            "c.toml:3:3: unknown key limits.max_turn\nhint: did you mean limits.max_turns?",
        ),
        ("[limits]\nmax_turns = \"many\"\n", "c.toml:2:13: limits.max_turns must be"),
        ("thinking = \"hard\"\n", "c.toml:1:12: thinking must be"),
        ("[session]\nexpire = \"30d\"\n", "c.toml:2:1: session.expire is not available in this version"),
        ("[hooks.guard]\nevent = \"before_tool\"\n", "c.toml:1:8: hooks.guard is not available in this version"),
        ("[tools.deploy]\ncommand = [\"x\"]\n", "c.toml:1:8: tools.deploy is not available in this version"),
        ("model = \n", "c.toml:1:"),
    ] {
        let server = Server::start([]);
        let call = Pirn::of_server(&server, ["--config", "c.toml", "x"]).file("c.toml", text);
        let stderr = stderr_of(call, 2);
        assert!(stderr.starts_with("pirn: config: ") && stderr.contains(wanted), "{text:?}: {stderr}");
        assert_eq!(server.connections(), 0, "{text:?}");
    }
    for (args, wanted) in [
        (&["--set", "limits.max_turns=-1"][..], "pirn: config: --set: limits.max_turns must be"),
        (&["--set", "nonsense"], "pirn: config: --set: takes KEY=VALUE"),
        (&["--set", "compaction.enabled=true"], "--set: compaction.enabled is not available in this version"),
        (&["--set", "retry.max_retries=-1"], "--set: retry.max_retries must be a whole number from 0 to 1000"),
        (&["--timeout", "5 minutes"], "pirn: config: --timeout: limits.timeout must be a duration such as"),
        (&["--max-turns", "-1"], "--max-turns"),
        (&["-m", "demo,openai/"], "openai/ names no model of openai"),
        (&["-m", "demo,demo"], "demo and demo name the same model"),
        (
            &["-m", "ollama/x", "--max-cost", "1"],
            "usage: the price of ollama/x is not known, so limits.max_cost (--max-cost) ",
        ),
        (&["--max-cost", "much"], "--max-cost takes US dollars, a number from 0, not `much`"),
        (&["--no-resend"], "--no-resend needs --continue or --session"),
        (&["-t", "edit"], "tool edit is not available in this version"),
        (&["-t", "raed"], "unknown tool raed\nhint: did you mean read?"),
        (&["-qv"], "--quiet cannot be used with --verbose\n"),
        (&["--system", "@none.md"], "none.md"),
        (&["--then", " "], "--then takes a prompt, not ` `"),
        (&["--dry-run"], "--dry-run is not available in this version"),
    ] {
        let stderr = stderr_of(Pirn::demo(args.iter().copied().chain(["x"])), 2);
        assert!(stderr.contains(wanted), "{args:?}: {stderr}");
    }
    // Everything that is wrong is told at once.
    let call = Pirn::demo(["--config", "c.toml", "--set", "bogus=1", "x"]).file("c.toml", "a = 1\nb = 2\n");
    let stderr = stderr_of(call.env("PIRN_MAX_TURNS", "many"), 2);
    for place in ["c.toml:1:1: ", "c.toml:2:1: ", "PIRN_MAX_TURNS: ", "--set: "] {
        assert!(stderr.contains(place), "{place}: {stderr}");
    }
}

#[test]
fn a_mistake_is_a_result_line_where_json_was_asked_for() {
    for args in
        [&["--json", "--set", "bogus=1", "x"][..], &["--json", "-t", "raed", "x"], &["--json", "-m", "nope", "x"]]
    {
        let output = Pirn::demo(args.iter().copied()).run();
        let result = output.result();
        assert_eq!((output.code(), output.lines().len(), &result["reason"]), (2, 1, &"usage".into()), "{args:?}");
        assert!(result["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        assert_eq!(result["requests"], 0);
    }
    // A file can ask for JSON too; what is wrong beside that is told in JSON as well.
    let call = Pirn::demo(["--config", "c.toml", "-m", "nope", "x"]).file("c.toml", "output.json = \"result\"\n");
    assert_eq!(call.run().result()["error"]["kind"], "usage");
}

#[test]
fn an_unknown_variable_of_ours_is_a_warning_with_a_suggestion() {
    let (_, output) = answered(|server| Pirn::of_server(server, ["x"]).env("PIRN_MODLE", "x"));
    assert_eq!(output.stderr, "pirn: warning: unknown variable PIRN_MODLE (did you mean PIRN_MODEL?)\n");
    let (_, output) = answered(|server| Pirn::of_server(server, ["-q", "x"]).env("PIRN_MODLE", "x"));
    assert_eq!(output.stderr, "");
}

#[test]
fn a_list_of_tools_has_every_documented_form() {
    let all = json!(["read", "ls"]);
    for (list, expected) in [
        ("ro", all.clone()),
        ("none", json!([])),
        ("read,ls", all.clone()),
        ("ls, read", all.clone()),
        ("l*", json!(["ls"])),
        ("*", json!(["read", "ls", "write", "bash"])),
        ("+write", json!(["read", "ls", "write"])),
        ("-ls", json!(["read"])),
        ("-write,-edit,-ls", json!(["read"])),
        ("-read,-ls", json!([])),
        ("+ls", all.clone()),
        ("none,+ls", json!(["ls"])),
    ] {
        let output = Pirn::demo(["--json", "-t", list, "say hi"]).run();
        assert_eq!(output.code(), 0, "{list}: {}", output.stderr);
        assert_eq!(session_of(&output)["tools"], expected, "{list}");
    }
    let (_, output) = answered(|server| {
        Pirn::of_server(server, ["--json", "--config", "c.toml", "-t", "+read", "x"])
            .file("c.toml", "tools.enabled = [\"ls\"]\n")
    });
    assert_eq!(session_of(&output)["tools"], all, "an edit adds to the configured set");
}

#[test]
fn a_project_file_that_is_not_trusted_ends_the_call_before_anything_happens_case_144() {
    let server = Server::start([]);
    let pwned = "providers.openai.api_key = \"!touch pwned\"\nnonsense = 1\n";
    let refused = |call: Pirn, file: &str| {
        let dir = call.dir().to_owned();
        let running = call.spawn();
        let output = running.wait();
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{}", output.stderr);
        let text = format!(
            "pirn: config: {file} is not trusted\nhint: review it, then run: pirn config trust (or use --trust, or --bare)\n"
        );
        assert_eq!(output.stderr, text);
        assert!(!dir.join("pwned").exists());
    };
    let project = |args: &[&str]| Pirn::of_server(&server, args.iter().copied()).file("pirn.toml", pwned);
    refused(project(&["x"]), "pirn.toml");
    refused(project(&["--config", "c.toml", "x"]).file("c.toml", ""), "pirn.toml");
    assert_eq!(server.connections(), 0);
    let json = project(&["--json", "x"]).run();
    assert_eq!(json.result()["error"]["message"], "pirn.toml is not trusted");

    let (request, output) = answered(|server| {
        Pirn::of_server(server, ["--json", "x"]).file("pirn.toml", "limits.max_turns = 9\n").env("PIRN_TRUST", "1")
    });
    let session = session_of(&output);
    assert_eq!(session["limits"]["maxTurns"], 9);
    assert!(session["configFiles"][0].as_str().unwrap().ends_with("/pirn.toml"), "{session}");
    assert!(request.json()["messages"].is_array());
    let turns = |call: Pirn| {
        let output = call.file("pirn.toml", "limits.max_turns = 9\n").run();
        assert_eq!(output.code(), 0, "{}", output.stderr);
        session_of(&output)["limits"]["maxTurns"].clone()
    };
    assert_eq!(turns(Pirn::demo(["--json", "--bare", "x"])), 200);
    assert_eq!(turns(Pirn::demo(["--json", "x"]).env("PIRN_BARE", "1")), 200);
    assert_eq!(turns(Pirn::demo(["--json", "--config", "pirn.toml", "x"])), 9);
    assert_eq!(turns(Pirn::demo(["--json", "x"]).env("PIRN_CONFIG", "./pirn.toml")), 9);
}

#[test]
fn the_users_own_file_needs_no_trust_and_a_profile_is_chosen_by_name() {
    let text = "limits.max_turns = 9\n[profiles.ci]\nlimits.max_turns = 5\n[models.mine]\nid = \"openai/x-1\"\n";
    for (variable, file) in
        [("HOME", ".config/pirn/pirn.toml"), ("XDG_CONFIG_HOME", "pirn/pirn.toml"), ("PIRN_HOME", "config/pirn.toml")]
    {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        let turns = |call: Pirn| {
            let output = call.env("PIRN_HOME", "").env("XDG_STATE_HOME", home.path()).env(variable, home.path()).run();
            assert_eq!(output.code(), 0, "{variable}: {}", output.stderr);
            session_of(&output)["limits"]["maxTurns"].clone()
        };
        assert_eq!(turns(Pirn::demo(["--json", "x"])), 9);
        assert_eq!(turns(Pirn::demo(["--json", "x"]).env("PIRN_PROFILE", "ci")), 5);
        assert_eq!(turns(Pirn::demo(["--json", "--bare", "x"])), 200);
        let models = Pirn::new(["models", "x-1"]).env("PIRN_HOME", "").env(variable, home.path()).run();
        assert!(models.stdout.starts_with("openai/x-1 "), "{variable}: {}", models.stderr);
    }
}

#[test]
fn context_files_reach_the_system_prompt_with_their_paths() {
    let (request, output) = answered(|server| Pirn::of_server(server, ["x"]).file("AGENTS.md", "Use tabs.\n"));
    let system = request.json()["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains("/AGENTS.md\">\nUse tabs.\n</context-file>"), "{system}");
    assert_eq!(output.stderr, "");
    let (request, _) = answered(|server| Pirn::of_server(server, ["--bare", "x"]).file("AGENTS.md", "Use tabs.\n"));
    assert!(!request.json().to_string().contains("Use tabs"));
}

#[test]
fn a_preset_with_tools_that_are_missing_is_refused() {
    for (list, needs) in [("rw", "edit, which is"), ("all", "edit, which is"), ("ro,+rw", "edit, which is")] {
        let stderr = stderr_of(Pirn::demo(["-t", list, "x"]), 2);
        assert!(stderr.contains(&format!("needs {needs} not available in this version")), "{stderr}");
        assert!(stderr.ends_with("hint: available: read, ls, write, bash; none, ro\n"), "{stderr}");
    }
    assert!(!stderr_of(Pirn::demo(["-t", "edit", "x"]), 2).contains("rw"));
}

#[test]
fn a_missing_key_hides_no_mistake_and_a_mistake_names_where_it_was_written() {
    for (call, wanted) in [
        (Pirn::new(["-t", "zzz", "x"]), "pirn: usage: unknown tool zzz\n"),
        (Pirn::new(["-t", "zzz", "-m", "openai/x", "x"]), "pirn: usage: unknown tool zzz\n"),
        (Pirn::new(["-m", "nope", "x"]), "pirn: usage: no model is called nope\n"),
        (Pirn::new(["x"]).env("PIRN_MODEL", "nope"), "pirn: usage: PIRN_MODEL: no model is called nope\n"),
        (Pirn::new(["x"]).env("PIRN_TOOLS", "zzz"), "pirn: usage: PIRN_TOOLS: unknown tool zzz\n"),
        (Pirn::new(["--set", "model=nope", "x"]), "pirn: usage: --set: no model is called nope\n"),
        (
            Pirn::new(["--config", "c.toml", "x"]).file("c.toml", "tools.enabled = [\"zzz\"]\n"),
            "pirn: usage: c.toml:1:17: unknown tool zzz\n",
        ),
        (Pirn::new(["-m", "openai/x", "--set", "providers.openai.ca_file=no.pem", "x"]), "pirn: config: "),
        (Pirn::new(["-m", "openai/x", "--set", "providers.openai.proxy=ftp://h", "x"]), "pirn: config: "),
    ] {
        let stderr = stderr_of(call, 2);
        assert!(stderr.starts_with(wanted), "{stderr}");
    }
}

#[test]
fn a_user_defined_server_needs_only_an_address() {
    let local = |server: &Server, more: &str| {
        Pirn::new(["--config", "c.toml", "-m", "local/qwen3:8b", "x"])
            .file("c.toml", format!("[providers.local]\nbase_url = \"{}\"\n{more}", server.base_url()))
    };
    let (request, output) = answered(|server| local(server, ""));
    assert_eq!(request.header("authorization"), None, "no key, no header");
    assert_eq!(request.json()["model"], "qwen3:8b", "`:8b` is not a thinking level");
    assert_eq!(output.stderr, "");

    let (request, _) = answered(|server| local(server, "api_key = \"$LOCAL_KEY\"\n").env("LOCAL_KEY", KEY));
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let (request, _) =
        answered(|server| local(server, "api_key = \"${LOCAL_KEY}\"\n").env("LOCAL_KEY", format!("{KEY}\n")));
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()), "a line feed is nobody's key");
    let (request, _) = answered(|server| local(server, "api_key = \"\"\n").env("OPENAI_API_KEY", KEY));
    assert_eq!(request.header("authorization"), None);

    let server = Server::start([]);
    let stderr = stderr_of(local(&server, "api_key = \"$LOCAL_KEY\"\n"), 77);
    assert!(stderr.starts_with("pirn: auth: no key for local: set LOCAL_KEY"), "{stderr}");
    assert!(stderr.contains("c.toml:3:1"), "the place of the setting: {stderr}");
    let stderr = stderr_of(local(&server, "api_key = \"$my key\"\n"), 2);
    assert!(stderr.contains("c.toml:3:11: providers.local.api_key"), "never sent as the key: {stderr}");
    assert_eq!(server.connections(), 0);
}

#[test]
fn headers_of_a_provider_are_expanded_added_and_never_shown() {
    let headers = |server: &Server, table: &str| {
        let text =
            format!("[providers.local]\nbase_url = \"{}\"\napi_key = \"$K\"\nheaders = {table}\n", server.base_url());
        Pirn::new(["--config", "c.toml", "--json", "-m", "local/m", "x"]).file("c.toml", text).env("K", KEY)
    };
    let (request, _) = answered(|server| {
        headers(server, "{ X-Team = \"${TEAM}\", X-Mode = \"${MODE:-fast}\", User-Agent = \"mine/1\", Accept = false }")
            .env("TEAM", "core")
    });
    assert_eq!((request.header("x-team"), request.header("x-mode")), (Some("core"), Some("fast")));
    assert_eq!(request.header("accept"), Some("*/*"), "HTTP-3: false removes ours; no wish of ours is left");
    assert_eq!(request.header("user-agent"), Some("mine/1"), "HTTP-3: the provider's configuration wins");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));

    let (request, _) = answered(|server| headers(server, "{ Authorization = false, api-key = \"${K}\" }"));
    assert_eq!((request.header("authorization"), request.header("api-key")), (None, Some(KEY)));

    let server = Server::start([]);
    let output = headers(&server, "{ X-Team = \"${TEAM}\" }").run();
    assert_eq!(output.code(), 2, "unset is an error, never an empty string");
    let message = output.result()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("providers.local.headers.X-Team") && message.contains("TEAM is not set"), "{message}");

    // A server that repeats a secret header does not make us show it.
    let echo = Reply::json(400, &json!({"error": {"message": format!("bad api-key {KEY}")}}));
    let server = Server::start([echo]);
    let output = headers(&server, "{ Authorization = false, api-key = \"${K}\" }").run();
    assert!(output.result()["error"]["message"].as_str().unwrap().contains("bad api-key"), "{}", output.stderr);
}

#[test]
fn a_thinking_level_reaches_models_that_think_and_no_others() {
    let fields = ["reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"];
    let said = |args: &[&str]| {
        let (request, output) = answered(|server| Pirn::of_server(server, args.iter().copied().chain(["--json", "x"])));
        let body = request.json();
        let said: Vec<(String, Value)> =
            fields.iter().filter_map(|field| Some(((*field).to_owned(), body.get(field)?.clone()))).collect();
        (said, session_of(&output)["thinking"].clone(), output.stderr.clone())
    };
    let effort = |word: &str| vec![("reasoning_effort".to_owned(), json!(word))];
    let reasoner = ["--set", "models.r={id=\"openai/test-model\",reasoning=true}", "-m", "r"];
    let with = |more: &[&'static str]| said(&[&reasoner[..], more].concat());
    assert_eq!(with(&[]), (vec![], Value::Null, String::new()), "not given: the model's default");
    assert_eq!(with(&["--thinking", "high"]), (effort("high"), json!("high"), String::new()));
    assert_eq!(with(&["--thinking", "low"]).0, effort("low"));
    assert_eq!(with(&["--set", "thinking=medium"]).0, effort("medium"));
    assert_eq!(said(&[&reasoner[..3], &["r:low"]].concat()), (effort("low"), json!("low"), String::new()));
    let (clamped, level, stderr) = with(&["--thinking", "max"]);
    assert_eq!((clamped, level), (effort("high"), json!("high")));
    assert_eq!(stderr, "pirn: warning: openai/test-model cannot think at level max; using high\n");
    let (off, level, _) = with(&["--thinking", "off"]);
    assert_eq!(level, json!("off"));
    assert!(off.iter().all(|(_, value)| value == "none" || value == false), "off is said as off: {off:?}");

    assert_eq!(said(&[]), (vec![], Value::Null, String::new()));
    let (nothing, level, stderr) = said(&["--thinking", "high"]);
    assert_eq!((nothing, level), (vec![], json!("off")), "a model that does not reason gets nothing");
    assert_eq!(stderr, "pirn: warning: openai/test-model cannot think at level high; using off\n");
    // An unlisted model that only its server knows: the switch for it is the configuration's.
    let form = ["--set", "providers.openai.compat.reasoning=enable_thinking", "--thinking", "high"];
    assert_eq!(with(&form).0, vec![("enable_thinking".to_owned(), json!(true))]);
}

#[test]
fn options_and_limits_of_a_model_reach_the_request() {
    let table = "models.t={id=\"openai/test-model\",max_output=1000,options={temperature=0.5,top_p=0.9,seed=7}}";
    let (request, _) = answered(|server| Pirn::of_server(server, ["--set", table, "-m", "t", "x"]));
    let body = request.json();
    for (key, expected) in
        [("temperature", json!(0.5)), ("top_p", json!(0.9)), ("seed", json!(7)), ("max_tokens", json!(1000))]
    {
        assert_eq!(body[key], expected, "{key}: {body}");
    }
    let (request, _) = answered(|server| Pirn::of_server(server, ["--set", "limits.max_output_tokens=77", "x"]));
    assert_eq!(request.json()["max_tokens"], 77);
    let (request, _) = answered(|server| Pirn::of_server(server, ["x"]));
    assert!(request.json().get("max_tokens").is_none(), "nothing is known of the model, so nothing is said");
}

#[test]
fn no_key_at_all_is_77_naming_the_variables_and_the_demo() {
    let stderr = stderr_of(Pirn::new(["x"]), 77);
    assert!(stderr.contains("OPENAI_API_KEY") && !stderr.contains("ANTHROPIC_API_KEY"), "{stderr}");
    assert!(stderr.contains("pirn -m demo"), "{stderr}");
    let stderr = stderr_of(Pirn::new(["-m", "openai/gpt-6.2-sol", "x"]), 77);
    assert!(stderr.starts_with("pirn: auth: no key for openai: set OPENAI_API_KEY"), "{stderr}");
    let stderr = stderr_of(Pirn::new(["-m", "openai/gpt-6.2-sol", "x"]).env("OPENAI_API_KEY", ""), 77);
    assert!(stderr.contains("OPENAI_API_KEY"), "empty means unset: {stderr}");
}

#[test]
fn without_a_home_nothing_of_the_working_directory_takes_its_place_cfg_05() {
    let server = Server::start([chat_tool("read", json!({"path": "~/secret.txt"})), chat_text("OK")]);
    let call = Pirn::of_server(&server, ["--json", "x"]).file("secret.txt", "alpha");
    // Everything a home would hold, wrong enough to be noticed.
    for path in [".config/pirn/pirn.toml", "pirn/pirn.toml", ".pirn/pirn.toml"] {
        let path = call.dir().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "this is no TOML").unwrap();
    }
    let before = names(call.dir());
    let dir = call.dir().to_owned();
    let running = call.spawn();
    assert!(server.wait_requests(2));
    assert_eq!(names(&dir), before, "nothing is written");
    let output = running.wait();
    assert_eq!((output.code(), output.stderr.as_str()), (0, ""));
    let end = output.lines_of("tool_execution_end").remove(0);
    assert_eq!(end["isError"], true, "~ has no meaning without HOME: {end}");
    assert!(!output.stdout.contains("alpha"), "{}", output.stdout);
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_way_to_write_a_base_url_reaches_the_server_cfg_06() {
    for (suffix, path) in [
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1//", "/v1/chat/completions"),
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1?api-version=2", "/v1/chat/completions?api-version=2"),
        ("/openai/v1", "/openai/v1/chat/completions"),
    ] {
        let (request, _) = answered(|server| {
            let base = format!("{}{suffix}", server.origin());
            Pirn::of_server(server, ["x"]).env("OPENAI_BASE_URL", base)
        });
        assert_eq!(request.path, path, "OPENAI_BASE_URL {suffix:?}");
        let (request, _) = answered(|server| {
            let base = format!("providers.openai.base_url=\"{}{suffix}\"", server.origin());
            Pirn::of_server(server, ["--set", &base, "x"]).env("OPENAI_BASE_URL", "http://127.0.0.1:1/")
        });
        assert_eq!(request.path, path, "providers.openai.base_url {suffix:?}");
    }
    for (base, wanted) in [
        ("localhost:8080/v1", "OPENAI_BASE_URL must be an http or https URL, such as http://127.0.0.1:8080/v1"),
        ("ftp://h/v1", "OPENAI_BASE_URL must be an http or https URL"),
    ] {
        let stderr = stderr_of(Pirn::of_server(&Server::start([]), ["x"]).env("OPENAI_BASE_URL", base), 2);
        assert!(stderr.contains(wanted), "{base}: {stderr}");
    }
}

#[test]
fn a_404_is_not_repeated_and_names_the_address_without_the_key_cfg_06() {
    for reply in [Reply::status(404), Reply::json(404, &json!({"error": {"message": "no such route"}}))] {
        let server = Server::start([reply]);
        let base = format!("http://user:{KEY}@{}/v9?token={KEY}", server.address());
        let output = Pirn::of_server(&server, ["x"]).env("OPENAI_BASE_URL", base).run();
        assert_eq!((output.code(), output.stdout.as_str()), (1, ""), "{}", output.stderr);
        let url = format!("http://{}/v9/chat/completions\n", server.address());
        assert!(output.stderr.contains("404") && output.stderr.ends_with(&url), "{}", output.stderr);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_base_url_that_cannot_be_used_is_2_before_anything_runs() {
    for base in ["http://127.0.0.1:99999/v1", "http://[::1/v1"] {
        let call = Pirn::new(["-m", "openai/m", "x"]).env("OPENAI_BASE_URL", base);
        let stderr = stderr_of(call.env("OPENAI_API_KEY", KEY), 2);
        assert!(stderr.starts_with("pirn: config: "), "{stderr}");
    }
}

#[test]
fn an_unreachable_server_is_75_and_names_the_address() {
    // Nobody listens there.
    let address = "127.0.0.1:1";
    let call = Pirn::new(["-m", "openai/m", "x"]).env("OPENAI_BASE_URL", format!("http://{address}/v1"));
    let stderr = stderr_of(call.env("OPENAI_API_KEY", KEY), 75);
    assert!(stderr.starts_with(&format!("pirn: network: openai: cannot connect to {address}: ")), "{stderr}");
}

/// A call of a server with a private authority, whose certificate lies in `ca.pem`.
fn over_tls(server: &Server, identity: &Identity, args: &[&str]) -> Pirn {
    Pirn::of_server(server, args.iter().copied().chain(["x"])).file("ca.pem", identity.ca_pem())
}

#[test]
fn a_private_authority_is_trusted_where_the_user_says_so_cfg_07() {
    let identity = Identity::new(&[]);
    let answering = || Server::tls(&identity, [chat_text("OK")]);

    let server = answering();
    let call = over_tls(&server, &identity, &[]);
    let file = call.dir().join("ca.pem");
    let output = call.env("SSL_CERT_FILE", file).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "SSL_CERT_FILE: {}", output.stderr);

    let server = answering();
    let call = over_tls(&server, &identity, &[]);
    let dir = call.dir().to_owned();
    let output = call.env("SSL_CERT_DIR", dir).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "SSL_CERT_DIR: {}", output.stderr);

    let server = answering();
    let output = over_tls(&server, &identity, &["--set", "providers.openai.ca_file=ca.pem"]).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "ca_file: {}", output.stderr);

    let server = Server::tls(&identity, []);
    let output = over_tls(&server, &identity, &[]).run();
    assert_eq!((output.code(), output.stdout.as_str()), (75, ""), "{}", output.stderr);
    assert!(output.stderr.contains("cannot verify the certificate of localhost"), "{}", output.stderr);
    assert!(output.stderr.contains("SSL_CERT_FILE") && output.stderr.contains("ca_file"), "{}", output.stderr);

    for (args, wanted) in [
        (&["--set", "providers.openai.ca_file=none.pem"][..], "none.pem"),
        (&["--set", "providers.openai.ca_file=empty.pem"], "no certificate in this file"),
    ] {
        let server = Server::tls(&identity, []);
        let output = over_tls(&server, &identity, args).file("empty.pem", "").run();
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.starts_with("pirn: config: ") && output.stderr.contains(wanted), "{}", output.stderr);
    }
}

#[test]
fn https_goes_through_the_proxy_with_its_credentials_cfg_07() {
    let identity = Identity::new(&["api.example.test"]);
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        let server = Server::tls(&identity, [chat_text("OK")]);
        let proxy = Server::proxy(server.address(), Some("user:p@ss"), []);
        let output = over_tls(&server, &identity, &["--set", "providers.openai.ca_file=ca.pem"])
            .env("OPENAI_BASE_URL", "https://api.example.test/v1")
            .env(variable, format!("http://user:p%40ss@{}", proxy.address()))
            .run();
        assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "{variable}: {}", output.stderr);
        let connect = &proxy.requests()[0];
        assert_eq!((connect.method.as_str(), connect.path.as_str()), ("CONNECT", "api.example.test:443"));
        assert_eq!(connect.header("authorization"), None, "the proxy never sees the key");
        assert_eq!(server.requests()[0].header("proxy-authorization"), None);
    }
    let server = Server::tls(&identity, []);
    let proxy = Server::proxy(server.address(), Some("user:p@ss"), []);
    let output = over_tls(&server, &identity, &["--set", "providers.openai.ca_file=ca.pem"])
        .env("OPENAI_BASE_URL", "https://api.example.test/v1")
        .env("HTTPS_PROXY", format!("http://user:hunter2@{}", proxy.address()))
        .run();
    assert_eq!((output.code(), output.stdout.as_str()), (75, ""), "{}", output.stderr);
    assert!(output.stderr.contains("proxy") && !output.stderr.contains("hunter2"), "{}", output.stderr);
}

#[test]
fn no_proxy_and_loopback_go_around_the_proxy_cfg_07() {
    let dead = "http://127.0.0.1:1";
    let (_, output) = answered(|server| {
        Pirn::of_server(server, ["x"]).env("HTTP_PROXY", dead).env("HTTPS_PROXY", dead).env("ALL_PROXY", dead)
    });
    assert_eq!(output.stdout, "OK\n", "loopback");

    // 0.0.0.0 reaches this machine without being a loopback address.
    let everywhere = |server: &Server| format!("http://0.0.0.0:{}/v1", server.address().port());
    for no_proxy in ["0.0.0.0", "*", "example.test,0.0.0.0/8"] {
        let (_, output) = answered(|server| {
            let call = Pirn::of_server(server, ["-q", "x"]).env("OPENAI_BASE_URL", everywhere(server));
            call.env("HTTP_PROXY", dead).env("NO_PROXY", no_proxy)
        });
        assert_eq!(output.stdout, "OK\n", "NO_PROXY={no_proxy}");
    }
    let proxy = Server::start([chat_text("OK")]);
    let output = Pirn::of_server(&proxy, ["x"])
        .env("OPENAI_BASE_URL", "http://api.example.test/v1")
        .env("HTTP_PROXY", format!("http://u:p@{}", proxy.address()))
        .run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "{}", output.stderr);
    let request = &proxy.requests()[0];
    assert_eq!(request.path, "http://api.example.test/v1/chat/completions");
    assert_eq!(request.header("proxy-authorization"), Some("Basic dTpw"));
    assert_eq!(
        output.stderr,
        "pirn: warning: the key of openai crosses the network unencrypted: api.example.test is not https\n",
        "URL-6"
    );

    let proxy = Server::start([chat_text("OK")]);
    let set = format!("providers.openai.proxy=\"http://{}\"", proxy.address());
    let output = Pirn::of_server(&proxy, ["--set", &set, "x"]).env("OPENAI_BASE_URL", "http://127.0.0.1:1/v1").run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "a provider's own proxy: {}", output.stderr);
    assert_eq!(proxy.requests()[0].path, "http://127.0.0.1:1/v1/chat/completions");

    let call = Pirn::of_server(&proxy, ["x"]).env("OPENAI_BASE_URL", "http://api.example.test/v1");
    let stderr = stderr_of(call.env("HTTP_PROXY", format!("ftp://u:{KEY}@h")), 2);
    assert!(stderr.starts_with("pirn: config: ") && stderr.contains("HTTP_PROXY"), "{stderr}");
}
