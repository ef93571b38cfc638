//! The configuration: layers, positions, suggestions, references, and the commented default file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pirn::config::{
    ApiKey, Confine, DEFAULT_TOML, Env, JsonLevel, Origin, Override, Settings, Sources, When, keys, load,
};
use pirn::model::{ErrorKind, Thinking};
use pirn::port::{Cache, Execution};
use toml::Value;

/// A directory to write configuration files into, and the environment of one load.
struct Bench {
    dir: tempfile::TempDir,
    env: Env,
}

impl Bench {
    fn new(env: &[(&str, &str)]) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), env: Env::from_pairs(env.iter().copied()) }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), text.as_bytes()).unwrap();
        PathBuf::from(name)
    }

    fn sources(&self) -> Sources<'_> {
        Sources::new(&self.env, self.dir.path().to_owned())
    }

    fn file(&self, text: &str) -> Result<Settings, String> {
        let config_file = Some(self.write("c.toml", text));
        load(&Sources { config_file, ..self.sources() }).map_err(|errors| errors.to_string())
    }

    fn sets(&self, sets: &[&str]) -> Result<Settings, String> {
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        load(&Sources { sets, ..self.sources() }).map_err(|errors| errors.to_string())
    }
}

/// A value for every key that can be set, other than its default: the key, the value as TOML, and whether it took.
type Sample = (&'static str, &'static str, fn(&Settings) -> bool);

const SAMPLES: &[Sample] = &[
    ("model", r#""demo""#, |s| s.model == "demo"),
    ("thinking", r#""high""#, |s| s.thinking == Some(Thinking::High)),
    ("system", r#""be brief""#, |s| s.system.as_deref() == Some("be brief")),
    ("append_system", r#"["a", "b"]"#, |s| s.append_system == ["a", "b"]),
    ("input.stdin_wait", r#""5s""#, |s| s.input.stdin_wait == Some(Duration::from_secs(5))),
    ("output.json", r#""events""#, |s| s.output.json == JsonLevel::Events),
    ("output.stream", r#""always""#, |s| s.output.stream == When::Always),
    ("output.verbosity", "2", |s| s.output.verbosity == 2),
    ("output.thinking", "true", |s| s.output.thinking),
    ("output.color", r#""never""#, |s| s.output.color == When::Never),
    ("output.events", r#""e.jsonl""#, |s| s.output.events.as_deref().is_some_and(|path| path.ends_with("/e.jsonl"))),
    ("output.heartbeat", r#""0""#, |s| s.output.heartbeat.is_none()),
    ("limits.max_turns", "7", |s| s.limits.max_turns == Some(7)),
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
    ("providers.NAME.api", r#""openai-completions""#, |s| s.providers["n"].api.is_some()),
    ("providers.NAME.base_url", r#""http://h/v1""#, |s| s.providers["n"].base_url.as_deref() == Some("http://h/v1")),
    (
        "providers.NAME.api_key",
        r#""$KEY""#,
        |s| matches!(&s.providers["n"].api_key, Some(ApiKey::Template { variables, .. }) if variables == &["KEY"]),
    ),
    ("providers.NAME.headers", r#"{ x-a = "1", gone = false }"#, |s| {
        s.providers["n"].headers.iter().eq([("gone", None), ("x-a", Some("1"))])
            || s.providers["n"].headers.iter().eq([("x-a", Some("1")), ("gone", None)])
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

/// What has to be there besides the key under test for a file to be complete.
fn companion(key: &str) -> Option<&'static str> {
    (key.starts_with("models.") && key != "models.NAME.id").then_some(r#"models.n.id="openai/x""#)
}

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
        assert!(took_default(key, *took), "{key}: the sample is the default");
        let set = format!("{written}={value}");
        let mut sets = vec![set.as_str()];
        sets.extend(companion(key));
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

/// Whether the default differs from the sample (named tables have none).
fn took_default(key: &str, took: fn(&Settings) -> bool) -> bool {
    key.contains("NAME") || !took(&Settings::default())
}

#[test]
fn every_key_that_is_not_available_yet_says_so() {
    let bench = Bench::new(&[]);
    for info in keys().into_iter().filter(|info| !info.available) {
        let key = info.key.replace("NAME", "n");
        let value = if info.key.ends_with("NAME") { "{ a = 1 }" } else { "1" };
        let mut sets = vec![format!("{key}={value}")];
        sets.extend(companion(&info.key).map(str::to_owned));
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let expected = format!("--set: {key} is not available in this version");
        assert_eq!(bench.sets(&sets).unwrap_err(), expected);
    }
}

#[test]
fn a_higher_layer_wins_key_by_key() {
    let layers = [
        ("limits.max_turns", "PIRN_MAX_TURNS", ["1", "2", "3", "4"]),
        ("limits.timeout", "PIRN_TIMEOUT", ["\"1s\"", "2s", "3s", "\"4s\""]),
        ("model", "PIRN_MODEL", ["\"a\"", "b", "c", "\"d\""]),
        ("thinking", "PIRN_THINKING", ["\"low\"", "medium", "high", "\"max\""]),
        ("tools.enabled", "PIRN_TOOLS", ["[\"ls\"]", "read,ls", "[\"rw\"]", "[\"none\"]"]),
    ];
    for (key, variable, [in_file, in_env, in_set, in_flag]) in layers {
        // Every subset of the layers; the highest one present must win.
        for subset in 1_u8..16 {
            let has = |bit: u8| subset & (1 << bit) != 0;
            let bench = Bench::new(if has(1) { &[] } else { &[("UNRELATED", "1")] });
            let env = if has(1) { Env::from_pairs([(variable, in_env)]) } else { bench.env.clone() };
            let file = bench.write("c.toml", &format!("{key} = {in_file}\n"));
            let flag = Override {
                key,
                value: format!("v = {in_flag}").parse::<toml::Table>().unwrap()["v"].clone(),
                flag: "--flag",
            };
            let settings = load(&Sources {
                config_file: has(0).then_some(file),
                sets: if has(2) { vec![format!("{key}={in_set}")] } else { Vec::new() },
                flags: if has(3) { vec![flag] } else { Vec::new() },
                ..Sources::new(&env, bench.dir.path().to_owned())
            })
            .unwrap();
            let expected = if has(3) {
                "--flag".to_owned()
            } else if has(2) {
                "--set".to_owned()
            } else if has(1) {
                variable.to_owned()
            } else {
                format!("c.toml:1:{}", key.len() + 4)
            };
            assert_eq!(settings.origin(key).to_string(), expected, "{key} {subset:04b}");
            let rank = [has(0), has(1), has(2), has(3)].iter().rposition(|present| *present).unwrap();
            let value = [in_file, in_env, in_set, in_flag][rank].trim_matches(['"', '[', ']']).replace('"', "");
            assert_eq!(shown(&settings, key), value, "{key} {subset:04b}");
        }
    }
}

fn shown(settings: &Settings, key: &str) -> String {
    match key {
        "limits.max_turns" => settings.limits.max_turns.unwrap().to_string(),
        "limits.timeout" => format!("{}s", settings.limits.timeout.unwrap().as_secs()),
        "model" => settings.model.clone(),
        "thinking" => settings.thinking.unwrap().as_str().to_owned(),
        _ => settings.tools.enabled.join(","),
    }
}

#[test]
fn tables_merge_by_key_and_lists_replace() {
    let bench = Bench::new(&[]);
    let file = bench.write(
        "c.toml",
        "append_system = ['a']\n[providers.p]\nbase_url = 'http://h'\nheaders = { a = '1', b = '2' }\n\
         [models.m]\nid = 'openai/x'\nprice = { input = 1 }\noptions = { o = { a = 1, b = 2 } }\n",
    );
    let sets = [
        "providers.p.headers.B=3",
        "providers.p.compat.store=true",
        "models.m.price.output=2",
        "models.m.options.o.b=9",
        "append_system=['b']",
    ];
    let sets = sets.map(str::to_owned).to_vec();
    let settings = load(&Sources { config_file: Some(file), sets, ..bench.sources() }).unwrap();
    let provider = &settings.providers["p"];
    assert_eq!(provider.headers.iter().collect::<Vec<_>>(), [("a", Some("1")), ("B", Some("3"))]);
    assert_eq!(provider.base_url.as_deref(), Some("http://h"));
    let model = &settings.models["m"];
    assert_eq!((model.price.unwrap().input, model.price.unwrap().output), (Some(1.0), Some(2.0)));
    assert_eq!(model.options["o"], serde_json::json!({"a": 1, "b": 9}));
    assert_eq!(settings.append_system, ["b"]);
}

#[test]
fn a_tool_list_of_edits_only_edits_what_is_below_it() {
    let bench = Bench::new(&[("PIRN_TOOLS", "+write,-ls")]);
    let edited = bench.file("tools.enabled = ['read', 'ls']").unwrap();
    assert_eq!(edited.tools.enabled, ["read", "ls", "+write", "-ls"]);
    let flag = Override { key: "tools.enabled", value: Value::String("ls, +write".to_owned()), flag: "--tools" };
    let replaced = load(&Sources { flags: vec![flag], ..bench.sources() }).unwrap();
    assert_eq!(replaced.tools.enabled, ["ls", "+write"]);
    let flag = Override { key: "tools.enabled", value: Value::Array(vec!["-grep".into()]), flag: "--tools" };
    let twice = load(&Sources { flags: vec![flag], ..bench.sources() }).unwrap();
    assert_eq!(twice.tools.enabled, ["ro", "+write", "-ls", "-grep"]);
}

#[test]
fn set_takes_toml_and_falls_back_to_text() {
    let bench = Bench::new(&[]);
    let table = [
        ("system=true", "true"),
        ("system=5", "5"),
        ("system = two words ", "two words"),
        ("system='quoted'", "quoted"),
        ("system=a=b", "a=b"),
        ("system={", "{"),
    ];
    for (set, expected) in table {
        assert_eq!(bench.sets(&[set]).unwrap().system.as_deref(), Some(expected), "{set}");
    }
    let quoted = bench.sets(&[r#"models."a=b.c".id=openai/x"#]).unwrap();
    assert_eq!(quoted.models["a=b.c"].id, "openai/x");
    assert_eq!(bench.sets(&["limits={ max_turns = 3 }"]).unwrap().limits.max_turns, Some(3));
    assert_eq!(bench.sets(&["limits.timeout=0"]).unwrap().limits.timeout, None);
    assert_eq!(bench.sets(&["model=a,b"]).unwrap().model, "a,b");
    assert_eq!(bench.sets(&["model=['a','b']"]).unwrap().model, "a,b");
    for bad in ["", "model", "=x", "a b=1", "model=x\nb=1\n=", "a=1\nb = 2=3", "[a]=1"] {
        let error = bench.sets(&[bad]);
        assert!(error.is_err() || bad.starts_with("model=x"), "{bad:?}");
    }
}

#[test]
fn a_broken_corpus_file_gives_exactly_the_expected_errors() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/config");
    let env = Env::from_pairs([("SET", "value")]);
    let mut files = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        files += 1;
        let expected = std::fs::read_to_string(path.with_extension("expected")).unwrap();
        let config_file = Some(PathBuf::from(path.file_name().unwrap()));
        let sources = Sources { config_file, ..Sources::new(&env, corpus.clone()) };
        let errors = load(&sources).unwrap_err();
        assert_eq!(errors.record().kind, ErrorKind::Config);
        if errors.to_string() != expected.trim_end() {
            wrong.push(errors.to_string());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(files >= 9, "{files}");
}

#[test]
fn errors_of_all_layers_are_reported_at_once_in_the_order_of_the_layers() {
    let bench =
        Bench::new(&[("PIRN_MAX_TURNS", "x"), ("PIRN_PROFILE", "ci"), ("PIRN_TRUST", "1"), ("PIRN_MAX_COST", "1")]);
    let file = bench.write("c.toml", "modle = 1\nthinking = 'x'\n");
    let flag = Override { key: "limits.timeout", value: Value::String("soon".to_owned()), flag: "--timeout" };
    let sources = Sources {
        config_file: Some(file),
        sets: vec!["output.verbosity=9".to_owned()],
        flags: vec![flag],
        ..bench.sources()
    };
    let errors = load(&sources).unwrap_err().to_string();
    let places: Vec<&str> = errors.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let expected = [
        "c.toml:1:1",
        "c.toml:2:12",
        "PIRN_MAX_COST",
        "PIRN_MAX_TURNS",
        "PIRN_PROFILE",
        "PIRN_TRUST",
        "--set",
        "--timeout",
    ];
    assert_eq!(places, expected);
}

#[test]
fn one_error_with_a_suggestion_becomes_a_message_and_a_hint() {
    let bench = Bench::new(&[]);
    let file = bench.write("pirn.toml", "[tols]\nx = 1\n");
    let errors = load(&Sources { config_file: Some(file), ..bench.sources() }).unwrap_err();
    let record = errors.record();
    assert_eq!(record.message, "pirn.toml:1:2: unknown key tols");
    assert_eq!(record.hint.as_deref(), Some("did you mean tools?"));
}

#[test]
fn keys_that_begin_with_x_are_ignored_anywhere() {
    let bench = Bench::new(&[]);
    let text = "x-mine = 1\n[x-table]\na = 1\n[limits]\nx-note = 'n'\n[providers.x-draft]\nfoo = 1\n[models.m]\nid = 'demo'\nx-a = 1\n";
    let settings = bench.file(text).unwrap();
    assert!(settings.providers.is_empty() && settings.models.contains_key("m"));
}

#[test]
fn the_config_file_is_named_by_flag_or_variable_and_must_be_readable() {
    let bench = Bench::new(&[("PIRN_CONFIG", "e.toml")]);
    let by_env = bench.write("e.toml", "model = 'env'\n");
    assert_eq!(load(&bench.sources()).unwrap().model, "env");
    let by_flag = bench.write("f.toml", "model = 'flag'\n");
    let sources = |config_file| Sources { config_file: Some(config_file), ..bench.sources() };
    let settings = load(&sources(by_flag)).unwrap();
    assert_eq!(settings.model, "flag");
    assert_eq!(settings.files().collect::<Vec<_>>(), [bench.dir.path().join("f.toml")]);
    assert_eq!(by_env, Path::new("e.toml"));
    let error = load(&sources(PathBuf::from("no.toml"))).unwrap_err().to_string();
    assert!(error.starts_with("no.toml: cannot be read: "), "{error}");
    let huge = bench.write("huge.toml", &format!("# {}\n", "x".repeat(1 << 20)));
    let error = load(&sources(huge)).unwrap_err().to_string();
    assert_eq!(error, "huge.toml: cannot be read: larger than 1048576 bytes");
    let full = format!("model = 'full'\n# {}", "x".repeat((1 << 20) - 17));
    assert_eq!(full.len(), 1 << 20);
    assert_eq!(load(&sources(bench.write("full.toml", &full))).unwrap().model, "full");
}

#[test]
fn prompts_are_read_from_files_beside_the_place_they_are_named_in() {
    let bench = Bench::new(&[]);
    std::fs::create_dir(bench.dir.path().join("sub")).unwrap();
    bench.write("p.md", "here\n");
    bench.write("sub/p.md", "there\n");
    let file = bench.write("sub/c.toml", "system = '@p.md'\nappend_system = ['@p.md', 'text', '@']\n");
    let settings = load(&Sources { config_file: Some(file.clone()), ..bench.sources() }).unwrap();
    assert_eq!(settings.system.as_deref(), Some("there"));
    assert_eq!(settings.append_system, ["there", "text", "@"]);
    assert_eq!(bench.sets(&["system=@p.md"]).unwrap().system.as_deref(), Some("here"));
    assert_eq!(bench.sets(&["system=\"@p.md\\nmore\""]).unwrap().system.as_deref(), Some("@p.md\nmore"));
    let missing = bench.sets(&["system=@no.md"]).unwrap_err();
    assert!(missing.starts_with("--set: system cannot be read from "), "{missing}");
}

#[test]
#[cfg(unix)]
fn a_key_may_be_written_out_only_where_nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new(&[]);
    let file = bench.write("c.toml", "[providers.p]\nbase_url = 'http://h'\napi_key = 'sk-1234567890'\n");
    let path = bench.dir.path().join(&file);
    for (mode, allowed) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let loaded = load(&Sources { config_file: Some(file.clone()), ..bench.sources() });
        assert_eq!(loaded.is_ok(), allowed, "{mode:o}");
        let shown = format!("{loaded:?}");
        assert!(!shown.contains("sk-1234567890"), "{mode:o}: {shown}");
    }
    assert!(bench.sets(&["providers.p.base_url=http://h", "providers.p.api_key=sk-1"]).is_err());
    assert!(bench.sets(&["providers.p.base_url=http://h", "providers.p.api_key="]).is_ok());
}

#[test]
fn references_are_expanded_with_what_the_merged_result_holds() {
    let bench = Bench::new(&[("HOST", "h:1"), ("TOKEN", "t")]);
    let text = "[providers.p]\nbase_url = 'http://${HOST}/${V:-v1}'\nheaders = { x-t = 'T ${TOKEN}', x-u = '${UNSET}' }\napi_key = '${NO_SUCH_KEY}'\n";
    let error = bench.file(text).unwrap_err();
    assert_eq!(error, "c.toml:3:39: providers.p.headers.x-u cannot be expanded: the variable UNSET is not set");
    // What a higher layer replaces needs no variable; a key is looked for only when its provider is used.
    let file = bench.write("c.toml", text);
    let sets = vec!["providers.p.headers.x-u=plain".to_owned()];
    let settings = load(&Sources { config_file: Some(file), sets, ..bench.sources() }).unwrap();
    let provider = &settings.providers["p"];
    assert_eq!(provider.base_url.as_deref(), Some("http://h:1/v1"));
    assert_eq!(provider.headers.iter().collect::<Vec<_>>(), [("x-t", Some("T t")), ("x-u", Some("plain"))]);
}

#[test]
fn an_unknown_variable_of_ours_is_a_warning() {
    let bench = Bench::new(&[("PIRN_MODLE", "x"), ("PIRN_CALL_ID", "x"), ("PIRN_HOME", "/x"), ("PIRN_BARE", "1")]);
    let settings = bench.sets(&[]).unwrap();
    assert_eq!(settings.warnings, ["unknown variable PIRN_MODLE (did you mean PIRN_MODEL?)"]);
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
}

#[test]
fn the_examples_in_the_default_file_are_valid_and_name_every_key_of_named_tables() {
    let examples = DEFAULT_TOML.split_once("# Named tables.").unwrap().1;
    let uncommented: Vec<&str> = examples.lines().skip(1).map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
    let bench = Bench::new(&[("LOCAL_API_KEY", "k")]);
    let settings = bench.file(&uncommented.join("\n")).unwrap();
    let written: Vec<String> = settings.written().map(|(key, _)| key.to_owned()).collect();
    for info in keys().into_iter().filter(|info| info.available && info.key.contains("NAME")) {
        let key = info.key.replace("providers.NAME", "providers.local").replace("models.NAME", "models.fast");
        assert!(written.contains(&key), "{key}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(text in "\\PC{0,200}") {
        let bench = Bench::new(&[]);
        drop(bench.file(&text));
        drop(bench.sets(&[text.as_str()]));
    }
}

#[test]
fn a_name_in_quotes_is_one_name_and_a_name_with_a_dot_needs_them_cfg_01() {
    let bench = Bench::new(&[]);
    for (text, wanted) in [
        ("\"limits.max_turns\" = 1\n", "c.toml:1:1: unknown key \"limits.max_turns\" (did you mean limits.max_turns?)"),
        ("[limits]\n\"a.b\" = 1\n", "c.toml:2:1: unknown key limits.\"a.b\""),
        (
            "[models.m]\nid = \"openai/x\"\n\"price.input\" = 1\n",
            "c.toml:3:1: unknown key models.m.\"price.input\" (did you mean models.m.price.input?)",
        ),
        (
            "[models.qwen3.5]\nid = \"openai/x\"\n",
            "c.toml:1:15: models.qwen3.5: a name with a dot needs quotes: models.\"qwen3.5\"",
        ),
        (
            "[providers.my.own.host]\nbase_url = \"http://h/v1\"\n",
            "c.toml:1:15: providers.my.own.host: a name with a dot needs quotes: providers.\"my.own.host\"",
        ),
        ("timeot = 5\n", "c.toml:1:1: unknown key timeot (did you mean limits.timeout?)"),
        ("[models.demo]\nid = \"openai/x\"\n", "c.toml:1:9: models.demo: an alias cannot have this name"),
    ] {
        assert_eq!(bench.file(text).unwrap_err(), wanted, "{text}");
    }
}

#[test]
fn nothing_replaces_what_the_run_itself_decides_of_a_request() {
    let bench = Bench::new(&[]);
    for field in ["model", "messages", "stream", "tools"] {
        let text = format!("[models.m]\nid = \"openai/x\"\noptions.{field} = 1\n");
        let error = bench.file(&text).unwrap_err();
        assert_eq!(error, format!("c.toml:3:9: models.m.options.{field} cannot be set; the run itself decides it"));
    }
    for header in ["Host", "content-length", "Transfer-Encoding", "connection"] {
        let error = bench.sets(&[&format!("providers.openai.headers.{header}=x")]).unwrap_err();
        let wanted = "cannot be set; the request itself decides it";
        assert_eq!(error, format!("--set: providers.openai.headers.{header} {wanted}"));
    }
}

#[test]
fn a_list_has_a_limit_and_a_long_line_costs_no_more_than_its_length() {
    let bench = Bench::new(&[]);
    for (key, item) in [("append_system", "a"), ("tools.roots", "a"), ("tools.enabled", "ls"), ("model", "m")] {
        let list = |count: usize| format!("{key} = [{}]\n", vec![format!("\"{item}\""); count].join(","));
        assert!(bench.file(&list(10_000)).is_ok(), "{key}");
        let column = key.len() + 4;
        let error = bench.file(&list(10_001)).unwrap_err();
        assert_eq!(error, format!("c.toml:1:{column}: {key} must not have more than 10000 items"));
        // Minutes, if each place were counted from the start of the line.
        assert!(bench.file(&list(150_000)).is_err());
    }
    let wide = format!("append_system = [\"{}\", 5]\n", "\u{e9}".repeat(3000));
    assert!(bench.file(&wide).unwrap_err().starts_with("c.toml:1:3022: "), "columns count characters");
    let many = "+x,".repeat(10_001);
    let error = load(&Sources { env: &Env::from_pairs([("PIRN_TOOLS", many)]), ..bench.sources() }).unwrap_err();
    assert_eq!(error.to_string(), "PIRN_TOOLS: tools.enabled must not have more than 10000 items");
}
