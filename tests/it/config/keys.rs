//! Every key: set, remembered, shown, described, and guessed when mistyped.

use std::path::Path;
use std::time::Duration;

use pirn::config::{
    ApiKey, BackgroundAtExit, Confine, DEFAULT_TOML, Durability, EnvInherit, JsonLevel, LockMode, Origin, Settings,
    When, json_schema, keys, show,
};
use pirn::model::{QueueMode, Thinking};
use pirn::port::{Cache, Execution};
use serde_json::Value;

use super::Bench;

/// A value for every key that can be set, other than its default: the key, the value as TOML, and whether it took.
type Sample = (&'static str, &'static str, fn(&Settings) -> bool);

const SAMPLES: &[Sample] = &[
    ("model", r#"["demo", "a/b:low"]"#, |s| s.model == ["demo", "a/b:low"]),
    ("thinking", r#""high""#, |s| s.thinking == Some(Thinking::High)),
    ("system", r#""be brief""#, |s| s.system.as_deref() == Some("be brief")),
    ("append_system", r#"["a", "b"]"#, |s| s.append_system == ["a", "b"]),
    ("input.stdin_wait", r#""5s""#, |s| s.input.stdin_wait == Some(Duration::from_secs(5))),
    ("output.json", r#""events""#, |s| s.output.json == JsonLevel::Events),
    ("output.stream", r#""always""#, |s| s.output.stream == When::Always),
    ("output.verbosity", "2", |s| s.output.verbosity == 2),
    ("output.thinking", "true", |s| s.output.thinking),
    ("output.color", r#""never""#, |s| s.output.color == When::Never),
    ("output.heartbeat", r#""0""#, |s| s.output.heartbeat.is_none()),
    ("limits.max_turns", "7", |s| s.limits.max_turns == Some(7)),
    ("limits.max_cost", "0.5", |s| s.limits.max_cost == Some(0.5)),
    ("limits.max_repeats", "0", |s| s.limits.max_repeats.is_none()),
    ("limits.max_output_tokens", "99", |s| s.limits.max_output_tokens == Some(99)),
    ("limits.timeout", r#""1h30m""#, |s| s.limits.timeout == Some(Duration::from_secs(5400))),
    ("limits.connect_timeout", r#""1s""#, |s| s.limits.connect_timeout == Some(Duration::from_secs(1))),
    ("limits.first_event_timeout", r#""2s""#, |s| s.limits.first_event_timeout == Some(Duration::from_secs(2))),
    ("limits.idle_timeout", r#""0""#, |s| s.limits.idle_timeout.is_none()),
    ("limits.progress_timeout", r#""4s""#, |s| s.limits.progress_timeout == Some(Duration::from_secs(4))),
    ("limits.grace", r#""250ms""#, |s| s.limits.grace == Duration::from_millis(250)),
    ("tools.enabled", r#"["ls"]"#, |s| s.tools.enabled == ["ls"]),
    ("tools.execution", r#""sequential""#, |s| s.tools.execution == Execution::Sequential),
    ("tools.max_parallel", "3", |s| s.tools.max_parallel == 3),
    ("tools.roots", r#"["a", "/b"]"#, |s| s.tools.roots == [Path::new("a"), Path::new("/b")]),
    ("tools.confine", r#""all""#, |s| s.tools.confine == Confine::All),
    ("tools.read.line_numbers", "true", |s| s.tools.read.line_numbers),
    ("tools.read.max_bytes", r#""1MB""#, |s| s.tools.read.max_bytes == 1 << 20),
    ("tools.read.max_lines", "10", |s| s.tools.read.max_lines == 10),
    ("steering_mode", r#""all""#, |s| s.steering_mode == QueueMode::All),
    ("follow_up_mode", r#""all""#, |s| s.follow_up_mode == QueueMode::All),
    ("retry.enabled", "false", |s| !s.retry.enabled),
    ("retry.max_retries", "0", |s| s.retry.max_retries == 0),
    ("retry.base_delay", r#""250ms""#, |s| s.retry.base_delay == Duration::from_millis(250)),
    ("retry.max_delay", r#""0""#, |s| s.retry.max_delay.is_none()),
    ("recovery.max_interruptions", "0", |s| s.recovery.max_interruptions == 0),
    ("hook_limits.max_follow_ups", "1", |s| s.hook_limits.max_follow_ups == 1),
    ("output.events", r#""log/{session}.jsonl""#, |s| {
        s.output.events.as_ref().is_some_and(|path| path.ends_with("/log/{session}.jsonl"))
    }),
    ("session.persist", "false", |s| !s.session.persist),
    ("session.dir", r#""keep""#, |s| s.session.dir.as_ref().is_some_and(|dir| dir.is_absolute())),
    ("session.durability", r#""full""#, |s| s.session.durability == Durability::Full),
    ("session.lock", r#""off""#, |s| s.session.lock == LockMode::Off),
    ("context.files", r#"["A.md", "B.md"]"#, |s| s.context.files == ["A.md", "B.md"]),
    ("context.max_bytes", r#""1KB""#, |s| s.context.max_bytes == 1024),
    ("tools.redact", "false", |s| !s.tools.redact),
    ("tools.fsync", "true", |s| s.tools.fsync),
    ("tools.bash.shell", r#""zsh""#, |s| s.tools.bash.shell.as_deref() == Some("zsh")),
    ("tools.bash.prefix", r#""set -e\n\"x\\""#, |s| s.tools.bash.prefix == "set -e\n\"x\\"),
    ("tools.bash.timeout", r#""1s""#, |s| s.tools.bash.timeout == Some(Duration::from_secs(1))),
    ("tools.bash.max_timeout", r#""0""#, |s| s.tools.bash.max_timeout.is_none()),
    ("tools.bash.max_bytes", "512", |s| s.tools.bash.max_bytes == 512),
    ("tools.bash.max_lines", "5", |s| s.tools.bash.max_lines == 5),
    ("tools.bash.background_at_exit", r#""leave""#, |s| s.tools.bash.background_at_exit == BackgroundAtExit::Leave),
    ("env.inherit", r#""core""#, |s| s.env.inherit == EnvInherit::Core),
    ("env.pass", r#"["A"]"#, |s| s.env.pass == ["A"]),
    ("env.drop", r#"["CI_*"]"#, |s| s.env.drop == ["CI_*"]),
    ("env.set", r#"{ A = "1 ${KEY}", "b c" = "" }"#, |s| {
        s.env.set.get("A").is_some_and(|a| a == "1 k") && s.env.set["b c"].is_empty()
    }),
    ("providers.NAME.api", r#""openai-completions""#, |s| s.providers["n"].api.is_some()),
    ("providers.NAME.base_url", r#""http://h/v1""#, |s| s.providers["n"].base_url.as_deref() == Some("http://h/v1")),
    (
        "providers.NAME.api_key",
        r#""$KEY""#,
        |s| matches!(&s.providers["n"].api_key, Some(ApiKey::Template { variables, .. }) if variables == &["KEY"]),
    ),
    ("providers.NAME.headers", r#"{ gone = false, x-a = "Bearer ${KEY}" }"#, |s| {
        s.providers["n"].headers.iter().eq([("gone", None), ("x-a", Some("Bearer k"))])
    }),
    ("providers.NAME.proxy", r#""http://p:1""#, |s| s.providers["n"].proxy.is_some()),
    ("providers.NAME.ca_file", r#""ca.pem""#, |s| {
        s.providers["n"].ca_file.as_ref().is_some_and(|path| path.is_absolute() && path.ends_with("ca.pem"))
    }),
    ("providers.NAME.cache", r#""long""#, |s| s.providers["n"].cache == Cache::Long),
    ("providers.NAME.compat.max_tokens_field", r#""max_completion_tokens""#, |s| {
        s.providers["n"].compat["max_tokens_field"] == "max_completion_tokens"
    }),
    ("providers.NAME.compat.reasoning", r#""none""#, |s| s.providers["n"].compat["reasoning"] == "none"),
    ("providers.NAME.compat.developer_role", "true", |s| s.providers["n"].compat["developer_role"] == true),
    ("providers.NAME.compat.store", "true", |s| s.providers["n"].compat["store"] == true),
    ("providers.NAME.compat.stream_options", "false", |s| s.providers["n"].compat["stream_options"] == false),
    ("providers.NAME.compat.strict_tools", "true", |s| s.providers["n"].compat["strict_tools"] == true),
    ("providers.NAME.compat.parallel_tool_calls", "true", |s| s.providers["n"].compat["parallel_tool_calls"] == true),
    ("providers.NAME.compat.tool_call_id", r#""alnum9""#, |s| s.providers["n"].compat["tool_call_id"] == "alnum9"),
    ("providers.NAME.compat.tool_result_name", "true", |s| s.providers["n"].compat["tool_result_name"] == true),
    ("providers.NAME.compat.assistant_after_tool", "true", |s| s.providers["n"].compat["assistant_after_tool"] == true),
    ("providers.NAME.compat.reasoning_replay", r#""none""#, |s| s.providers["n"].compat["reasoning_replay"] == "none"),
    ("providers.NAME.compat.think_tags", "true", |s| s.providers["n"].compat["think_tags"] == true),
    ("providers.NAME.compat.finish_reason", "false", |s| s.providers["n"].compat["finish_reason"] == false),
    ("providers.NAME.compat.cache_control", "true", |s| s.providers["n"].compat["cache_control"] == true),
    ("providers.NAME.compat.optional_fields", r#"["store"]"#, |s| {
        s.providers["n"].compat["optional_fields"] == serde_json::json!(["store"])
    }),
    ("models.NAME.id", r#""openai/x""#, |s| s.models["n"].id == "openai/x"),
    ("models.NAME.thinking", r#""low""#, |s| s.models["n"].thinking == Some(Thinking::Low)),
    ("models.NAME.context_window", "9000", |s| s.models["n"].context_window == Some(9000)),
    ("models.NAME.max_output", "90", |s| s.models["n"].max_output == Some(90)),
    ("models.NAME.price.input", "1.5", |s| s.models["n"].price.unwrap().input == Some(1.5)),
    ("models.NAME.price.output", "2", |s| s.models["n"].price.unwrap().output == Some(2.0)),
    ("models.NAME.price.cache_read", "0.1", |s| s.models["n"].price.unwrap().cache_read == Some(0.1)),
    ("models.NAME.price.cache_write", "0", |s| s.models["n"].price.unwrap().cache_write == Some(0.0)),
    ("models.NAME.input", r#"["text"]"#, |s| s.models["n"].input.as_ref().unwrap().len() == 1),
    ("models.NAME.reasoning", "true", |s| s.models["n"].reasoning == Some(true)),
    ("models.NAME.options", "{ a = { b = 1 }, c = [0.5] }", |s| {
        s.models["n"].options.get("a") == Some(&serde_json::json!({"b": 1}))
    }),
];

#[test]
fn there_is_a_sample_for_every_key_that_can_be_set() {
    let mut sampled: Vec<&str> = SAMPLES.iter().map(|(key, ..)| *key).collect();
    let known = keys();
    let mut available: Vec<&str> = known.iter().filter(|info| info.available).map(|info| info.key.as_str()).collect();
    sampled.sort_unstable();
    available.sort_unstable();
    assert_eq!(sampled, available);
}

#[test]
fn every_available_key_can_be_set_by_a_flag_and_by_a_file_and_remembers_which() {
    let bench = Bench::new(&[("KEY", "k")]);
    for (key, value, took) in SAMPLES {
        let written = key.replace("NAME", "n");
        let is_default = !key.contains("NAME") && took(&Settings::default());
        assert!(!is_default, "{key}: the sample is the default");
        let set = format!("{written}={value}");
        let mut sets = vec![set.as_str()];
        sets.extend(needed(key));
        let by_flag = bench.sets(&sets).unwrap();
        let lines = sets.join("\n");
        let by_file = bench.file(&lines).unwrap();
        for (how, settings) in [("flag", &by_flag), ("file", &by_file)] {
            assert!(took(settings), "{key} by {how}");
        }
        assert_eq!(by_flag.origin(&written), &Origin::Flag("--set".to_owned()), "{key}");
        let column = written.len() + 2;
        assert_eq!(by_file.origin(&written).to_string(), format!("c.toml:1:{column}"), "{key}");
        assert_eq!(Settings::default().origin(&written), &Origin::BuiltIn, "{key}");
    }
}

/// A right value for every key with nothing behind it, and a wrong one.
const LATER: &[(&str, &str, &str)] = &[
    ("mcp_import", "[]", "\"x\""),
    ("output.schema_retries", "2", "-1"),
    ("session.expire", "\"30d\"", "30"),
    ("compaction.enabled", "true", "1"),
    ("compaction.reserve_tokens", "1", "\"x\""),
    ("compaction.keep_recent_tokens", "1", "0.5"),
    ("compaction.at_run_end", "false", "[]"),
    ("compaction.model", "\"fast\"", "{}"),
    ("retry.http_retries", "0", "\"x\""),
    ("tools.grep.max_file_bytes", "\"10MB\"", "0"),
    ("tools.task.enabled", "true", "1"),
    ("tools.task.model", "\"fast\"", "{}"),
    ("tools.task.tools", "[\"read\"]", "5"),
    ("tools.task.max_turns", "20", "\"x\""),
    ("permissions.default", "\"deny\"", "\"ask\""),
    ("permissions.allow", "[\"bash(cargo *)\"]", "[\"bash(cargo *\"]"),
    ("permissions.deny", "[{ rule = \"bash\", reason = \"no\" }, \"mcp__x__*\"]", "[{ reason = \"no\" }]"),
    ("permissions.on_deny", "\"stop\"", "\"die\""),
    ("sandbox.mode", "\"read-only\"", "\"on\""),
    ("sandbox.network", "true", "\"x\""),
    ("sandbox.writable", "[\"x\"]", "5"),
    ("sandbox.hide", "[\"~/.ssh\"]", "[5]"),
    ("sandbox.backend", "\"bwrap\"", "\"docker\""),
    ("sandbox.command", "[\"x\"]", "5"),
    ("sandbox.required", "false", "5"),
    ("sandbox.applies_to", "[\"bash\", \"mcp\"]", "[\"all\"]"),
    ("models.NAME.background", "true", "\"x\""),
    ("tools.NAME.description", "\"d\"", "5"),
    ("tools.NAME.command", "[\"./x.sh\", \"a\"]", "[]"),
    ("tools.NAME.args", "[\"a\", [\"--f\", \"{f}\"]]", "[5]"),
    ("tools.NAME.stdin", "\"none\"", "\"tty\""),
    ("tools.NAME.output", "\"json\"", "\"xml\""),
    ("tools.NAME.stderr", "\"merge\"", "\"keep\""),
    ("tools.NAME.parameters", "{ type = \"object\" }", "{ type = \"array\" }"),
    ("tools.NAME.parameters_file", "\"p.json\"", "\"none.json\""),
    ("tools.NAME.params", "{ t = { type = \"string\", required = true } }", "{ t = { type = \"text\" } }"),
    ("tools.NAME.timeout", "\"1s\"", "1"),
    ("tools.NAME.cwd", "\".\"", "5"),
    ("tools.NAME.env", "{ A = \"1\" }", "{ A = 1 }"),
    ("tools.NAME.pass_env", "[\"A\"]", "\"A\""),
    ("tools.NAME.replay", "\"safe\"", "\"always\""),
    ("tools.NAME.execution", "\"sequential\"", "\"later\""),
    ("tools.NAME.ok_codes", "[0, 1]", "[256]"),
    ("tools.NAME.max_bytes", "\"1KB\"", "0"),
    ("tools.NAME.allow_dash", "true", "1"),
    ("tools.NAME.sandbox", "\"off\"", "\"on\""),
    ("tools.NAME.enabled", "true", "1"),
    ("hooks.NAME.event", "[\"before_tool\", \"Stop\"]", "\"before_tools\""),
    ("hooks.NAME.matcher", "\"bash|edit\"", "5"),
    ("hooks.NAME.when", "\"bash(git push*)\"", "\"bash(git\""),
    ("hooks.NAME.command", "\"echo ${x%.md}\"", "5"),
    ("hooks.NAME.timeout", "\"1s\"", "1"),
    ("hooks.NAME.on_failure", "\"block\"", "\"stop\""),
    ("hooks.NAME.dialect", "\"claude\"", "\"codex\""),
    ("hooks.NAME.order", "-5", "\"first\""),
    ("hooks.NAME.env", "{ A = \"1\" }", "5"),
    ("hooks.NAME.pass_env", "[\"A\"]", "5"),
    ("hooks.NAME.detach", "true", "5"),
    ("hooks.NAME.include", "[\"messages\"]", "[\"all\"]"),
    ("hooks.NAME.enabled", "true", "5"),
    ("mcp.NAME.command", "\"npx\"", "[\"npx\"]"),
    ("mcp.NAME.args", "[\"-y\"]", "\"-y\""),
    ("mcp.NAME.env", "{ A = \"1\" }", "5"),
    ("mcp.NAME.pass_env", "[\"A\"]", "5"),
    ("mcp.NAME.cwd", "\".\"", "5"),
    ("mcp.NAME.url", "\"https://h/mcp\"", "5"),
    ("mcp.NAME.headers", "{ A = \"1\" }", "{ Host = \"x\" }"),
    ("mcp.NAME.bearer_token_env", "\"T\"", "5"),
    ("mcp.NAME.required", "false", "5"),
    ("mcp.NAME.protocol", "\"legacy\"", "\"old\""),
    ("mcp.NAME.startup_timeout", "\"1s\"", "1"),
    ("mcp.NAME.timeout", "\"1s\"", "1"),
    ("mcp.NAME.tools.allow", "[\"get_*\"]", "5"),
    ("mcp.NAME.tools.deny", "[\"x\"]", "5"),
    ("mcp.NAME.execution", "\"parallel\"", "5"),
    ("mcp.NAME.replay", "\"never\"", "5"),
    ("mcp.NAME.trust_annotations", "true", "5"),
    ("mcp.NAME.use_instructions", "true", "5"),
    ("mcp.NAME.max_bytes", "1", "0"),
    ("mcp.NAME.enabled", "true", "5"),
];

/// The lines an entry of a named table needs besides a key, so that the key alone is judged.
fn needed(key: &str) -> &'static [&'static str] {
    match key.split('.').next() {
        Some("models") if key != "models.NAME.id" => &["models.n.id = \"openai/x\""],
        Some("hooks") if key == "hooks.NAME.event" => &["hooks.n.command = [\"x\"]"],
        Some("hooks") if key == "hooks.NAME.command" => &["hooks.n.event = \"run_end\""],
        Some("hooks") => &["hooks.n.event = \"run_end\"", "hooks.n.command = [\"x\"]"],
        Some("mcp") if key != "mcp.NAME.command" && key != "mcp.NAME.url" => &["mcp.n.command = \"x\""],
        Some("tools") if key.starts_with("tools.NAME.") && key != "tools.NAME.command" => {
            &["tools.n.command = [\"x\"]"]
        }
        _ => &[],
    }
}

/// A file that sets a key to a value.
fn file_of(key: &str, value: &str) -> String {
    let line = format!("{} = {value}", key.replace("NAME", "n"));
    needed(key).iter().map(|line| (*line).to_owned()).chain([line]).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_key_with_nothing_behind_it_is_checked_and_then_refused() {
    let bench = Bench::new(&[]);
    bench.write("p.json", "{\"type\": \"object\"}");
    let mut known: Vec<String> = keys().into_iter().filter(|info| !info.available).map(|info| info.key).collect();
    let mut tried: Vec<&str> = LATER.iter().map(|(key, ..)| *key).collect();
    known.sort_unstable();
    tried.sort_unstable();
    assert_eq!(tried, known);
    for (key, right, wrong) in LATER {
        let table = ["tools.NAME", "hooks.NAME", "mcp.NAME"].iter().find(|table| key.starts_with(**table));
        let refused = table.unwrap_or(key).replace("NAME", "n");
        let error = bench.file(&file_of(key, right)).unwrap_err();
        assert_eq!(error.split_once(": ").unwrap().1, format!("{refused} is not available in this version"), "{key}");
        let error = bench.file(&file_of(key, wrong)).unwrap_err();
        let shown = key.replace("NAME", "n");
        assert!(error.lines().any(|line| line.contains(&format!(": {shown}"))), "{key} = {wrong}: {error}");
        let available = format!(": {key} is not available");
        assert!(!error.contains(&available), "a wrong value is wrong first: {key}: {error}");
    }
}

#[test]
fn an_entry_that_is_turned_off_is_no_error() {
    let bench = Bench::new(&[]);
    let text = "[hooks.guard]\nenabled = false\n[tools.deploy]\nenabled = false\ncommand = ['./x']\n\
                env = { A = '${UNSET}' }\n[mcp.docs]\nenabled = false\n";
    let settings = bench.file(text).unwrap();
    let shown = show(&settings, false);
    assert!(shown.contains("[hooks.guard]\nenabled = false\n"), "{shown}");
    assert!(shown.contains(&format!("command = [\"{}\"]\n", bench.path("x").display())), "{shown}");
}

#[test]
fn a_letter_too_much_in_any_key_is_answered_with_the_key_cfg_01() {
    let bench = Bench::new(&[]);
    bench.write("p.json", "{\"type\": \"object\"}");
    let value = |key: &str| {
        let sample = SAMPLES.iter().find(|(known, ..)| *known == key).map(|(_, value, _)| *value);
        sample.or_else(|| LATER.iter().find(|(known, ..)| *known == key).map(|(_, value, _)| *value)).unwrap()
    };
    for info in keys() {
        let key = info.key.replace("NAME", "n");
        let parts: Vec<&str> = key.split('.').collect();
        for at in 0..parts.len() {
            let name_of_user = info.key.split('.').nth(at) == Some("NAME");
            // With a command beside it, a table of tools is a command tool, whatever its name.
            if name_of_user {
                continue;
            }
            let mut typed: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            typed[at].push('q');
            let set = format!("{} = {}", typed.join("."), value(&info.key));
            let error = bench.file(&set).unwrap_err();
            let wrong = format!("unknown key {} (did you mean {}?)", typed[..=at].join("."), parts[..=at].join("."));
            assert!(error.contains(&wrong), "{set}: {error}");
        }
    }
}

#[test]
fn a_key_of_a_table_at_the_top_level_is_answered_with_its_table_cfg_01() {
    let bench = Bench::new(&[]);
    for info in keys().into_iter().filter(|info| !info.key.contains("NAME") && info.key.contains('.')) {
        let (_, name) = info.key.rsplit_once('.').unwrap();
        // Some names stand in several tables, and some are near a key of the top level.
        let error = bench.file(&format!("{name} = 1")).map_or_else(|error| error, |_| String::new());
        assert!(error.contains("(did you mean ") || error.contains(&format!("{name} must be")), "{name}: {error}");
    }
    for (name, wanted) in [
        ("max_turns", "limits.max_turns"),
        ("timeout", "limits.timeout"),
        ("deny", "permissions.deny"),
        ("enabled", "retry.enabled or tools.enabled"),
        ("persist", "session.persist"),
        ("roots", "tools.roots"),
    ] {
        let error = bench.file(&format!("{name} = 1")).unwrap_err();
        assert_eq!(error, format!("c.toml:1:1: unknown key {name} (did you mean {wanted}?)"));
    }
}

#[test]
fn what_is_shown_loads_again_to_the_same_settings() {
    let bench = Bench::new(&[("KEY", "k")]);
    let again = |settings: &Settings| {
        let text = show(settings, false);
        bench.file(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    };
    assert_same(&Settings::default(), &again(&Settings::default()), "nothing written");
    for (key, value, took) in SAMPLES {
        let settings = bench.file(&file_of(key, value)).unwrap();
        let loaded = again(&settings);
        assert!(took(&loaded), "{key}");
        assert_same(&settings, &loaded, key);
    }
    // All at once, with names and texts that need care.
    let all: Vec<String> =
        SAMPLES.iter().map(|(key, value, _)| format!("{} = {value}", key.replace("NAME", "\"a.b \\\"c\""))).collect();
    let settings = bench.file(&all.join("\n")).unwrap();
    assert_same(&settings, &again(&settings), "all");
    let edits = bench.file("tools.enabled = []\n").unwrap();
    assert_same(&edits, &again(&edits), "an empty list");
    let odd = bench.file("system = \"a\\u0007\\\"\\\\ \\t ä\\r\\n\"\n").unwrap();
    assert_same(&odd, &again(&odd), "odd characters");
}

/// Everything but where it was written.
fn assert_same(a: &Settings, b: &Settings, what: &str) {
    assert_eq!(
        (&a.model, a.thinking, &a.system, &a.append_system),
        (&b.model, b.thinking, &b.system, &b.append_system),
        "{what}"
    );
    assert_eq!((&a.input, &a.output, &a.limits), (&b.input, &b.output, &b.limits), "{what}");
    assert_eq!((&a.session, &a.context, &a.tools, &a.env), (&b.session, &b.context, &b.tools, &b.env), "{what}");
    assert_eq!((a.steering_mode, a.follow_up_mode), (b.steering_mode, b.follow_up_mode), "{what}");
    assert_eq!((&a.retry, &a.recovery, &a.hook_limits), (&b.retry, &b.recovery, &b.hook_limits), "{what}");
    assert_eq!(a.models, b.models, "{what}");
    assert_eq!(a.providers, b.providers, "{what}");
}

#[test]
fn every_key_is_shown_with_its_place_and_secrets_are_not() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new(&[("PIRN_MAX_TURNS", "9")]);
    let text = "model = 'demo'\n[env]\nset = { MY_TOKEN = 'hush-1', MODE = 'fast' }\n[providers.p]\napi_key = 'hush-2'\n\
                base_url = 'http://u:hush-3@h/v1'\nheaders = { X-Team = 'hush-4', X-Ref = '${R}' }\nproxy = 'http://u:hush-5@p:1'\n";
    let file = bench.write("c.toml", text);
    std::fs::set_permissions(bench.path("c.toml"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let sources = pirn::config::Sources { config_file: Some(file), ..bench.sources() };
    let settings = pirn::config::load(&sources).unwrap();
    let shown = show(&settings, true);
    assert!(!shown.contains("hush") && !format!("{settings:?}").contains("hush-2"), "{shown}");
    for line in [
        "model = \"demo\" # c.toml:1:9\n",
        "max_turns = 9 # PIRN_MAX_TURNS\n",
        "grace = \"3s\" # built in\n",
        "# set.MY_TOKEN = \"***\" # c.toml:3:20\n",
        "set.MODE = \"fast\" # c.toml:3:37\n",
        "# api_key = \"***\" # c.toml:5:11\n",
        "# base_url = \"***\" # c.toml:6:12\n",
        "# headers.X-Team = \"***\" # c.toml:7:22\n",
        "headers.X-Ref = \"${R}\" # c.toml:7:40\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let keys: Vec<String> =
        keys().into_iter().filter(|info| info.available && !info.key.contains("NAME")).map(|info| info.key).collect();
    let table: toml::Table = show(&Settings::default(), false).parse().unwrap();
    for key in keys {
        let mut value = Some(&toml::Value::Table(table.clone())).cloned();
        for part in key.split('.') {
            value = value.and_then(|value| value.get(part).cloned());
        }
        assert!(value.is_some(), "{key}");
    }
}

fn schema() -> (boon::Schemas, boon::SchemaIndex) {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("config.json", serde_json::from_str(&json_schema()).unwrap()).unwrap();
    let index = compiler.compile("config.json", &mut schemas).unwrap();
    (schemas, index)
}

fn as_json(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

#[test]
fn the_schema_file_is_what_the_program_writes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/schemas/config.schema.json");
    let file = std::fs::read_to_string(path).unwrap_or_default();
    assert!(file == json_schema(), "run: pirn config schema > config/schemas/config.schema.json");
}

#[test]
fn the_schema_takes_what_the_loader_takes_and_refuses_what_it_refuses() {
    let (schemas, index) = schema();
    let valid = |text: &str| schemas.validate(&as_json(text), index).map_err(|error| format!("{text}\n{error:#}"));
    valid(DEFAULT_TOML).unwrap();
    valid(&examples()).unwrap();
    for (key, value, _) in SAMPLES {
        valid(&file_of(key, value)).unwrap();
        valid(&format!("profiles.p.{}", file_of(key, value).replace('\n', "\nprofiles.p."))).unwrap();
    }
    for (key, right, wrong) in LATER {
        valid(&file_of(key, right)).unwrap();
        // Some mistakes no schema sees: a file that is missing, a bracket in a rule that may be a table.
        let beyond = ["tools.NAME.parameters_file", "permissions.allow", "mcp.NAME.headers"];
        assert!(beyond.contains(key) || valid(&file_of(key, wrong)).is_err(), "{key} = {wrong}");
    }
    for info in keys() {
        let key = info.key.replace("NAME", "n");
        assert!(valid(&format!("{key}q = 1")).is_err(), "{key}");
    }
    for bad in [
        "tools.write.x = 1",
        "tools.9.command = ['x']",
        "providers.demo.cache = 'none'",
        "profiles.a.profiles.b = {}",
        "mcp.'a b'.command = 'x'",
        "limits.timeout = 90",
        "limits.timeout = ''",
    ] {
        assert!(valid(bad).is_err(), "{bad}");
    }
    valid("x-mine = 1\nlimits.x-note = 2\ntools.x-t = 1\nproviders.x-draft = 5\n").unwrap();
}

/// The examples in the default file, without their comment marks.
fn examples() -> String {
    let examples = DEFAULT_TOML.split_once("# Named tables.").unwrap().1;
    let lines: Vec<&str> = examples.lines().skip(1).map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
    lines.join("\n")
}

#[test]
fn the_commented_default_file_says_what_is_built_in_and_names_every_available_key_once() {
    let bench = Bench::new(&[]);
    let settings = bench.file(DEFAULT_TOML).unwrap();
    let written: Vec<String> = settings.written().map(|(key, _)| key.to_owned()).collect();
    let known = keys();
    let mut top: Vec<&str> = known
        .iter()
        .filter(|info| info.available && !info.key.contains("NAME"))
        .map(|info| info.key.as_str())
        .collect();
    top.sort_unstable();
    assert_eq!(written, top);
    let defaults = Settings::default();
    assert_eq!(settings.providers, defaults.providers);
    assert_eq!(
        (&settings.model, settings.thinking, &settings.system, &settings.append_system),
        (&defaults.model, defaults.thinking, &defaults.system, &defaults.append_system)
    );
    assert_eq!(
        (&settings.input, &settings.output, &settings.limits, &settings.tools),
        (&defaults.input, &defaults.output, &defaults.limits, &defaults.tools)
    );
    assert_eq!(
        (&settings.session, &settings.context, &settings.env),
        (&defaults.session, &defaults.context, &defaults.env)
    );
    assert_eq!(
        (settings.steering_mode, settings.follow_up_mode, &settings.retry, &settings.recovery, &settings.hook_limits),
        (defaults.steering_mode, defaults.follow_up_mode, &defaults.retry, &defaults.recovery, &defaults.hook_limits)
    );
}

#[test]
fn the_examples_in_the_default_file_are_valid_and_name_every_key_of_named_tables() {
    let bench = Bench::new(&[("LOCAL_API_KEY", "k")]);
    let settings = bench.file(&examples()).unwrap();
    let written: Vec<String> = settings.written().map(|(key, _)| key.to_owned()).collect();
    for info in keys().into_iter().filter(|info| info.available && info.key.contains("NAME")) {
        let key = info.key.replace("providers.NAME", "providers.local").replace("models.NAME", "models.fast");
        assert!(written.contains(&key), "{key}");
    }
}
