//! Where settings come from besides the command line: user and project files, profiles, the environment.

use std::path::PathBuf;

use pirn::config::{Env, Settings, Sources, Trust, config_paths, examine, load};

use super::Bench;

/// A home and a project below one directory.
fn bench() -> Bench {
    let mut bench = Bench::new(&[]);
    std::fs::create_dir_all(bench.path("home")).unwrap();
    std::fs::create_dir_all(bench.path("work/.git")).unwrap();
    bench.env = Env::from_pairs([("HOME", bench.real("home"))]);
    bench
}

const USER: &str = "home/.config/pirn/pirn.toml";

fn at_work(bench: &Bench) -> Sources<'_> {
    Sources { trust: true, ..Sources::new(&bench.env, bench.real("work")) }
}

fn turns(sources: &Sources<'_>) -> (u32, String) {
    let settings = load(sources).unwrap_or_else(|errors| panic!("{errors}"));
    (settings.limits.max_turns.unwrap(), settings.origin("limits.max_turns").to_string())
}

#[test]
fn every_layer_beats_the_ones_below_it() {
    let bench = bench();
    let text = |turns: u32| format!("limits.max_turns = {turns}\n");
    let (user, named) = (bench.real(USER).display().to_string(), bench.real("work/named.toml"));
    let mut sources = at_work(&bench);
    assert_eq!(turns(&sources), (200, "built in".to_owned()));
    bench.write(USER, &format!("{}profiles.p.limits.max_turns = 5\n", text(2)));
    assert_eq!(turns(&sources), (2, format!("{user}:1:20")));
    bench.write("work/pirn.toml", &text(3));
    assert_eq!(turns(&sources), (3, "pirn.toml:1:20".to_owned()));
    bench.write("work/named.toml", &text(4));
    sources.config_file = Some(named.clone());
    assert_eq!(turns(&sources), (4, format!("{}:1:20", named.display())));
    sources.profile = Some("p".to_owned());
    assert_eq!(turns(&sources), (5, format!("{user}:2:31")), "a profile beats every file");
    let env = Env::from_pairs([("HOME", bench.real("home").into_os_string()), ("PIRN_MAX_TURNS", "6".into())]);
    sources.env = &env;
    assert_eq!(turns(&sources), (6, "PIRN_MAX_TURNS".to_owned()));
    sources.sets = vec!["limits.max_turns=7".to_owned()];
    assert_eq!(turns(&sources), (7, "--set".to_owned()));
    let files: Vec<PathBuf> = load(&sources).unwrap().files().map(PathBuf::from).collect();
    assert_eq!(files, [bench.real(USER), bench.real("work/pirn.toml"), named]);
    assert_eq!(config_paths(&sources), files);
}

#[test]
fn bare_ignores_what_is_found_and_keeps_what_is_named() {
    let bench = bench();
    bench.write(USER, "limits.max_turns = 2\nnonsense = 1\n");
    bench.write("work/pirn.toml", "limits.max_turns = 3\nnonsense = 1\n");
    bench.write("work/named.toml", "limits.max_turns = 4\n");
    let bare = Sources { bare: true, trust: false, ..at_work(&bench) };
    assert_eq!(turns(&bare).0, 200);
    assert_eq!(config_paths(&bare), Vec::<PathBuf>::new());
    let named = Sources { config_file: Some("named.toml".into()), ..bare };
    assert_eq!(turns(&named).0, 4);
    let env = Env::from_pairs([("HOME", bench.real("home").into_os_string()), ("PIRN_BARE", "1".into())]);
    assert_eq!(turns(&Sources::new(&env, bench.real("work"))).0, 200);
    let settings = load(&Sources::new(&env, bench.real("work"))).unwrap();
    assert!(settings.bare);
}

#[test]
fn prohibitions_only_grow_and_other_lists_are_replaced() {
    let bench = bench();
    bench.write(USER, "[env]\ndrop = ['A', 'B']\npass = ['A']\nset = { X = '1', Y = '1' }\n");
    bench.write("work/pirn.toml", "[env]\ndrop = ['B', 'C']\npass = ['B']\nset = { Y = '2' }\n");
    let settings = load(&Sources { sets: vec!["env.drop=[]".to_owned()], ..at_work(&bench) }).unwrap();
    assert_eq!(settings.env.drop, ["A", "B", "C"]);
    assert_eq!(settings.env.pass, ["B"]);
    let set: Vec<(&str, &str)> = settings.env.set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(set, [("X", "1"), ("Y", "2")]);
}

#[test]
fn a_profile_may_stand_in_several_files_and_hold_any_key() {
    let bench = bench();
    bench.write(
        USER,
        "[profiles.ci]\nlimits = { max_turns = 5, timeout = '1m' }\n[profiles.ci.providers.p]\nbase_url = 'http://h'\n",
    );
    bench.write("work/pirn.toml", "[profiles.ci]\nlimits.max_turns = 6\nsystem = '@p.md'\n[limits]\nmax_turns = 1\n");
    bench.write("work/p.md", "of the project");
    let with = |profile: Option<&str>| load(&Sources { profile: profile.map(str::to_owned), ..at_work(&bench) });
    let settings = with(Some("ci")).unwrap();
    assert_eq!(settings.limits.max_turns, Some(6));
    assert_eq!(settings.limits.timeout.unwrap().as_secs(), 60);
    assert_eq!(settings.system.as_deref(), Some("of the project"));
    assert!(settings.providers.contains_key("p"));
    assert_eq!(settings.profile.as_deref(), Some("ci"));
    let without = with(None).unwrap();
    assert_eq!((without.limits.max_turns, without.system, without.profile), (Some(1), None, None));
    for (name, wanted) in [
        ("ic", "--profile: no profile is called ic (did you mean ci?)"),
        ("nightly", "--profile: no profile is called nightly; there are ci"),
    ] {
        assert_eq!(with(Some(name)).unwrap_err().to_string(), wanted);
    }
    let env = Env::from_pairs([("PIRN_PROFILE", "x")]);
    let error = load(&Sources::new(&env, "/".into())).unwrap_err().to_string();
    assert_eq!(error, "PIRN_PROFILE: no profile is called x; no file holds one");
}

#[test]
fn a_profile_that_is_not_in_use_is_checked_all_the_same() {
    let bench = bench();
    bench.write(
        USER,
        "[profiles]\nx-draft = 5\nb = 5\n[profiles.'a b']\nlimits.max_turn = 1\nprofiles = {}\nmodels.m.id = 5\n",
    );
    let errors = load(&at_work(&bench)).unwrap_err().to_string();
    let told: Vec<&str> = errors.lines().map(|line| line.split_once("pirn.toml:").unwrap().1).collect();
    assert_eq!(
        told,
        [
            "3:5: profiles.b must be a table, not a whole number",
            "5:8: unknown key profiles.\"a b\".limits.max_turn (did you mean profiles.\"a b\".limits.max_turns?)",
            "6:1: profiles.\"a b\".profiles: a profile cannot hold profiles",
            "7:15: profiles.\"a b\".models.m.id must be a string, not a whole number",
        ]
    );
    let outside = load(&Sources { sets: vec!["profiles.a.model='x'".to_owned()], bare: true, ..at_work(&bench) });
    assert_eq!(outside.unwrap_err().to_string(), "--set: profiles can be written in files only");
}

#[test]
fn errors_of_several_files_come_in_the_order_of_the_layers() {
    let bench = bench();
    bench.write(USER, "a = 1\n");
    bench.write("work/pirn.toml", "b = 1\nprofiles.p.c = 1\n");
    bench.write("work/0.toml", "d = 1\n");
    let sources = Sources { config_file: Some("0.toml".into()), profile: Some("p".to_owned()), ..at_work(&bench) };
    let errors = load(&sources).unwrap_err().to_string();
    let keys: Vec<&str> = errors.lines().map(|line| line.split("unknown key ").nth(1).unwrap()).collect();
    assert_eq!(keys, ["a", "b", "profiles.p.c", "d"]);
    // One that stands in a file of the project is named by it, one elsewhere by its whole path.
    assert!(errors.contains("\npirn.toml:1:1: ") && errors.starts_with('/'), "{errors}");
}

#[test]
fn references_in_what_children_get_are_expanded_or_are_errors_case_105() {
    let mut bench = bench();
    let load_of = |bench: &Bench, text: &str| -> Result<Settings, String> { bench.file(text) };
    let missing = load_of(&bench, "env.set = { T = '${MISSING}' }").unwrap_err();
    assert_eq!(missing, "c.toml:1:17: env.set.T cannot be expanded: the variable MISSING is not set");
    assert_eq!(load_of(&bench, "env.set = { T = '${MISSING:-x}' }").unwrap().env.set["T"], "x");
    // The same rule holds in every place where references are expanded (CFG-03).
    for (entry, key) in [
        ("[tools.t]\ncommand = ['x', '${MISSING}']", "tools.t.command"),
        ("[tools.t]\ncommand = ['x']\nenv = { T = '${MISSING}' }", "tools.t.env.T"),
        ("[tools.t]\ncommand = ['x']\ncwd = '${MISSING}'", "tools.t.cwd"),
        ("[hooks.h]\nevent = 'run_end'\ncommand = ['${MISSING}/x']", "hooks.h.command"),
        ("[mcp.m]\ncommand = '${MISSING}'", "mcp.m.command"),
        ("[mcp.m]\nurl = '${MISSING}'\nheaders = { a = '${MISSING}' }", "mcp.m.headers.a"),
        ("[mcp.m]\nurl = '${MISSING}'", "mcp.m.url"),
    ] {
        let error = load_of(&bench, entry).unwrap_err();
        let wanted = format!(": {key} cannot be expanded: the variable MISSING is not set");
        assert!(error.contains(&wanted), "{entry}: {error}");
    }
    bench.env = Env::from_pairs([("MISSING", "here")]);
    assert_eq!(load_of(&bench, "env.set = { T = '${MISSING}' }").unwrap().env.set["T"], "here");
    let error = load_of(&bench, "[mcp.m]\nurl = '${MISSING}'").unwrap_err();
    assert_eq!(error, "c.toml:1:6: mcp.m is not available in this version");
}

#[test]
fn an_entry_that_lacks_something_says_what() {
    let bench = Bench::new(&[]);
    for (text, wanted) in [
        ("[tools.deploy]\ncwd = '.'", "tools.deploy needs a command"),
        (
            "[tools.deploy]\ncommand = ['x']\nparams = {}\nparameters = { type = 'object' }",
            "tools.deploy can have only one of",
        ),
        ("[hooks.h]\ncommand = 'x'", "hooks.h needs an event"),
        ("[hooks.h]\nevent = 'Stop'", "hooks.h needs a command"),
        ("[mcp.m]\ncwd = '.'", "mcp.m needs a command or a url"),
        ("[mcp.m]\ncommand = 'x'\nurl = 'http://h'", "mcp.m cannot have both"),
        ("[mcp.a-b]\ncommand = 'x'\n[mcp.a_b]\ncommand = 'x'", "mcp.a_b and mcp.a-b differ only in"),
        ("[mcp.'a b']\ncommand = 'x'", "mcp.\"a b\": a server's name has only letters"),
        ("[tools.mcp__x]\ncommand = ['x']", "tools.mcp__x: names that begin with \"mcp__\" belong"),
        ("[tools.9x]\ncommand = ['x']", "tools.9x: a tool's name is a letter"),
        ("[tools.write]\nmax_bytes = 5", "tools.write is built in and has no keys"),
        ("[tools.bsah]\ntimeout = '5s'", "unknown key tools.bsah (did you mean tools.bash?)"),
        (
            "[providers.p]\nbase_url = 'http://h'\napi_key = '!'",
            "providers.p.api_key begins with \"!\" and names no command",
        ),
    ] {
        let error = bench.file(text).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn the_key_of_a_command_is_kept_with_its_place_until_it_is_run() {
    use pirn::config::ApiKey;
    use pirn::model::Secret;
    use pirn::provider::catalogue::Catalogue;
    let bench = Bench::new(&[]);
    let mut settings = bench.file("[providers.p]\nbase_url = 'https://h/v1'\napi_key = '!pass show p'\n").unwrap();
    let commands: Vec<(&str, &str, String)> =
        settings.key_commands().map(|(name, command, at)| (name, command, at.to_string())).collect();
    assert_eq!(commands, [("p", "pass show p", "c.toml:3:11".to_owned())]);
    let key = |settings: &Settings| {
        let catalogue = Catalogue::new(settings, &bench.env).unwrap();
        let model = catalogue.choose_one("p/m").unwrap().model;
        catalogue.connection(&model).map(|connection| connection.key.map(|key| key.expose().to_owned()))
    };
    assert!(key(&settings).unwrap_err().message.contains("has not been run"));
    settings.give_key("p", Secret::new("sk-${X}\n"));
    assert_eq!(key(&settings).unwrap().as_deref(), Some("sk-${X}"), "what a command printed is not expanded");
    assert!(matches!(settings.providers["p"].api_key, Some(ApiKey::Given(_))) && settings.key_commands().count() == 0);
    settings.give_key("p", Secret::new(" \n"));
    assert!(key(&settings).unwrap_err().message.contains("printed no key"));
}

#[test]
fn paths_start_at_the_file_they_stand_in_and_a_tilde_is_the_home_directory() {
    let bench = bench();
    let text = "[session]\ndir = '~/kept'\n[output]\nevents = 'log/{date}.jsonl'\n[tools]\nroots = ['sub']\n\
                [tools.bash]\nshell = 'bin/sh'\n";
    bench.write("work/pirn.toml", text);
    std::fs::create_dir_all(bench.path("work/a/b")).unwrap();
    let settings = load(&Sources { cwd: bench.real("work/a/b"), ..at_work(&bench) }).unwrap();
    assert_eq!(settings.session.dir, Some(bench.real("home").join("kept")));
    assert_eq!(settings.output.events.unwrap(), bench.real("work").join("log/{date}.jsonl").display().to_string());
    assert_eq!(settings.tools.bash.shell.unwrap(), bench.real("work").join("bin/sh").display().to_string());
    assert_eq!(settings.tools.roots, [PathBuf::from("sub")], "relative to the run's working directory");
    let none = Env::from_pairs([("A", "1")]);
    let error = load(&Sources { sets: vec!["session.dir=~/x".to_owned()], ..Sources::new(&none, "/".into()) });
    assert_eq!(error.unwrap_err().to_string(), "--set: session.dir begins with ~/, and HOME is not set");
}

#[test]
fn without_a_home_there_is_no_user_file_and_a_relative_place_is_an_error_cfg_05() {
    let bench = bench();
    bench.write("work/.config/pirn/pirn.toml", "nonsense = 1\n");
    bench.write("work/pirn/pirn.toml", "nonsense = 1\n");
    for pairs in [vec![], vec![("HOME", ".")], vec![("HOME", ""), ("XDG_CONFIG_HOME", ".")]] {
        let env = Env::from_pairs(pairs.clone());
        let examined = examine(&Sources::new(&env, bench.real("work")));
        assert!(examined.errors.is_none() && examined.files.is_empty(), "{pairs:?}: {:?}", examined.errors);
    }
    let env = Env::from_pairs([("PIRN_HOME", "here")]);
    let error = load(&Sources::new(&env, bench.real("work"))).unwrap_err();
    assert_eq!(error.to_string(), "PIRN_HOME is not an absolute path");
}

#[test]
fn the_project_file_is_the_nearest_one_within_the_project() {
    let bench = bench();
    bench.write("pirn.toml", "outside = 1\n");
    bench.write("work/pirn.toml", "limits.max_turns = 1\n");
    bench.write("work/a/pirn.toml", "limits.max_turns = 2\n");
    std::fs::create_dir_all(bench.path("work/a/b/c")).unwrap();
    std::fs::create_dir_all(bench.path("home/x")).unwrap();
    let of =
        |cwd: &str| examine(&Sources { cwd: bench.real(cwd), ..at_work(&bench) }).files.pop().map(|file| file.path);
    assert_eq!(of("work/a/b/c"), Some(bench.real("work/a/pirn.toml")));
    assert_eq!(of("work"), Some(bench.real("work/pirn.toml")));
    std::fs::remove_file(bench.path("work/pirn.toml")).unwrap();
    assert_eq!(of("work"), None, "not beyond the directory with .git");
    assert_eq!(of("home/x"), None, "not beyond home");
    bench.write("home/pirn.toml", "");
    assert_eq!(of("home/x"), Some(bench.real("home/pirn.toml")));
    // Named, it is not found as well.
    let named =
        Sources { config_file: Some(bench.path("work/a/pirn.toml")), cwd: bench.real("work/a"), ..at_work(&bench) };
    let files = examine(&named).files;
    assert_eq!((files.len(), files[0].trust), (1, Trust::NotNeeded));
}

#[test]
fn a_list_of_models_may_be_written_with_commas_and_replaces_the_one_below_it() {
    let bench = Bench::new(&[]);
    for (written, expected) in [
        ("'a/b'", &["a/b"][..]),
        ("['a/b:high', ' c ']", &["a/b:high", "c"]),
        ("'a/b, c ,,d:low'", &["a/b", "c", "d:low"]),
        ("['a,b', '']", &["a", "b"]),
        ("''", &[]),
        ("[]", &[]),
        ("' , '", &[]),
    ] {
        assert_eq!(bench.file(&format!("model = {written}\n")).unwrap().model, expected, "{written}");
    }
    for (variable, expected) in [("a/b,c", &["a/b", "c"][..]), ("a", &["a"]), (" , ", &[])] {
        let bench = Bench::new(&[("PIRN_MODEL", variable)]);
        assert_eq!(bench.file("model = ['x', 'y']\n").unwrap().model, expected, "{variable}");
    }
    let error = bench.file("model = 5\n").unwrap_err();
    assert_eq!(error, "c.toml:1:9: model must be a string or an array of strings, not a whole number");
    assert!(bench.file("model = ['a', 5]\n").is_err());
}

#[test]
fn limits_of_cost_repeats_and_retries_take_their_ranges_and_nothing_else() {
    let bench = Bench::new(&[]);
    let settings = |text: &str| bench.file(text).unwrap();
    assert_eq!(settings("limits.max_cost = 0\n").limits.max_cost, None);
    assert_eq!(settings("limits.max_cost = 2\n").limits.max_cost, Some(2.0));
    assert_eq!(settings("limits.max_repeats = 3\n").limits.max_repeats, Some(3));
    assert_eq!(settings("retry.base_delay = '0'\n").retry.base_delay, std::time::Duration::ZERO);
    for wrong in [
        "limits.max_cost = -0.5",
        "limits.max_cost = inf",
        "limits.max_cost = nan",
        "limits.max_cost = '1'",
        "limits.max_repeats = -1",
        "limits.max_repeats = 1.5",
        "retry.enabled = 0",
        "retry.max_retries = 1001",
        "retry.base_delay = 'soon'",
        "retry.max_delay = 5",
        "recovery.max_interruptions = -1",
        "hook_limits.max_follow_ups = true",
        "steering_mode = 'some'",
        "follow_up_mode = ['all']",
    ] {
        let key = wrong.split(' ').next().unwrap();
        let error = bench.file(wrong).unwrap_err();
        assert!(error.contains(&format!(": {key} ")) && !error.contains("not available"), "{wrong}: {error}");
    }
}

#[test]
fn the_settings_of_retries_become_the_policy_of_an_operation() {
    let bench = Bench::new(&[]);
    for (text, attempts, base, cap) in [
        ("", 4, 1000, 60_000),
        ("retry.enabled = false", 1, 1000, 60_000),
        ("retry = { max_retries = 0, base_delay = '0', max_delay = '0' }", 1, 0, u64::MAX),
        ("retry = { max_retries = 9, base_delay = '50ms', max_delay = '2m' }", 10, 50, 120_000),
    ] {
        let policy = bench.file(text).unwrap().retry.policy();
        let found = (policy.max_attempts, policy.base_delay_ms, policy.max_agent_delay_ms);
        assert_eq!(found, (attempts, base, cap), "{text}");
    }
}
