//! The configuration: layers, positions, suggestions, references, and the commented default file.

use std::path::{Path, PathBuf};

use pirn::config::{Env, Override, Settings, Sources, load};
use pirn::model::ErrorKind;
use pirn::provider::catalogue::Catalogue;
use toml::Value;

mod commands;
mod context;
mod keys;
mod layers;
mod trust;

/// A directory to write configuration files into, and the environment of one load.
struct Bench {
    dir: tempfile::TempDir,
    env: Env,
}

impl Bench {
    fn new(env: &[(&str, &str)]) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), env: Env::from_pairs(env.iter().copied()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path without links; the directory of a test may be behind one.
    fn real(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above).unwrap();
        }
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

#[test]
fn a_higher_layer_wins_key_by_key() {
    let layers = [
        ("limits.max_turns", "PIRN_MAX_TURNS", ["1", "2", "3", "4"]),
        ("limits.timeout", "PIRN_TIMEOUT", ["\"1s\"", "2s", "3s", "\"4s\""]),
        ("limits.max_cost", "PIRN_MAX_COST", ["1.5", "2", "3.25", "4.0"]),
        ("model", "PIRN_MODEL", ["\"a\"", "b", "c", "\"d\""]),
        ("model", "PIRN_MODEL", ["[\"a\", \"f\"]", "b,g", "[\"c\", \"h\"]", "[\"d\"]"]),
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
            let value = [in_file, in_env, in_set, in_flag][rank].trim_matches(['"', '[', ']']).replace(['"', ' '], "");
            assert_eq!(shown(&settings, key), value.trim_end_matches(".0"), "{key} {subset:04b}");
        }
    }
}

fn shown(settings: &Settings, key: &str) -> String {
    match key {
        "limits.max_turns" => settings.limits.max_turns.unwrap().to_string(),
        "limits.timeout" => format!("{}s", settings.limits.timeout.unwrap().as_secs()),
        "limits.max_cost" => settings.limits.max_cost.unwrap().to_string(),
        "model" => settings.model.join(","),
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
    assert_eq!(bench.sets(&["model=a,b"]).unwrap().model, ["a", "b"]);
    assert_eq!(bench.sets(&["model=['a','b']"]).unwrap().model, ["a", "b"]);
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
    let bench = Bench::new(&[("PIRN_MAX_TURNS", "x"), ("PIRN_PROFILE", "ci"), ("PIRN_MAX_COST", "-1")]);
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
    let expected =
        ["c.toml:1:1", "c.toml:2:12", "PIRN_MAX_COST", "PIRN_MAX_TURNS", "PIRN_PROFILE", "--set", "--timeout"];
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
    assert_eq!(load(&bench.sources()).unwrap().model, ["env"]);
    let by_flag = bench.write("f.toml", "model = 'flag'\n");
    let sources = |config_file| Sources { config_file: Some(config_file), ..bench.sources() };
    let settings = load(&sources(by_flag)).unwrap();
    assert_eq!(settings.model, ["flag"]);
    assert_eq!(settings.files().collect::<Vec<_>>(), [bench.dir.path().join("f.toml")]);
    assert_eq!(by_env, Path::new("e.toml"));
    let error = load(&sources(PathBuf::from("no.toml"))).unwrap_err().to_string();
    assert_eq!(error, "no.toml: cannot be read: no such file or directory");
    let huge = bench.write("huge.toml", &format!("# {}\n", "x".repeat(1 << 20)));
    let error = load(&sources(huge)).unwrap_err().to_string();
    assert_eq!(error, "huge.toml: cannot be read: larger than 1048576 bytes");
    let full = format!("model = 'full'\n# {}", "x".repeat((1 << 20) - 17));
    assert_eq!(full.len(), 1 << 20);
    assert_eq!(load(&sources(bench.write("full.toml", &full))).unwrap().model, ["full"]);
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
    // Only the provider that is used needs its variables.
    let loaded = bench.file(text).unwrap();
    let unset: Vec<String> = loaded.providers["p"].unset.iter().map(ToString::to_string).collect();
    let wanted = "c.toml:3:39: providers.p.headers.x-u cannot be expanded: the variable UNSET is not set";
    assert_eq!(unset, [wanted]);
    let catalogue = Catalogue::new(&loaded, &bench.env).unwrap();
    assert_eq!(catalogue.choose_one("p/m").unwrap_err().message, wanted);
    assert!(catalogue.choose_one("demo").is_ok());
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
    let bench =
        Bench::new(&[("PIRN_MODLE", "x"), ("PIRN_CALL_ID", "x"), ("PIRN_HOME", "/nowhere"), ("PIRN_BARE", "1")]);
    let settings = bench.sets(&[]).unwrap();
    assert_eq!(settings.warnings, ["unknown variable PIRN_MODLE (did you mean PIRN_MODEL?)"]);
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
