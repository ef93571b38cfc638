//! `pirn config`: its commands, as functions.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use pirn::app::config as command;
use pirn::config::{Env, Sources, json_schema, load};
use pirn::model::ErrorKind;

use super::Bench;

fn bench() -> Bench {
    let mut bench = Bench::new(&[]);
    std::fs::create_dir_all(bench.path("work/.git")).unwrap();
    bench.env = Env::from_pairs([
        ("PIRN_HOME".to_owned(), bench.real("home").into_os_string()),
        ("PATH".to_owned(), bench.real("bin").into_os_string()),
    ]);
    bench
}

fn at_work(bench: &Bench) -> Sources<'_> {
    Sources::new(&bench.env, bench.real("work"))
}

fn program(bench: &Bench, name: &str) -> PathBuf {
    bench.write(name, "");
    std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    bench.real(name)
}

#[test]
fn init_writes_a_file_that_passes_and_never_overwrites_one() {
    let bench = bench();
    let mode = |path: &str| std::fs::metadata(bench.path(path)).unwrap().permissions().mode() & 0o777;
    for (user, file, place) in [(false, "work/pirn.toml", "work"), (true, "home/config/pirn.toml", "home/config")] {
        let said = command::init(user, &bench.env, &bench.real("work")).unwrap();
        let path = bench.real(file);
        assert!(said.starts_with(&format!("wrote {}\n", path.display())), "{said}");
        assert_eq!(said.contains("pirn config trust"), !user);
        let told = command::check(std::slice::from_ref(&path), &at_work(&bench));
        assert_eq!((told.error, told.text), (None, format!("named: {}\nok\n", path.display())));
        std::fs::write(&path, "mine").unwrap();
        let error = command::init(user, &bench.env, &bench.real("work")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(error.message.ends_with("exists already and is left alone"), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let left: Vec<_> =
            std::fs::read_dir(bench.path(place)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "pirn.toml" || name == ".git"), "{left:?}");
    }
    assert_eq!(mode("home/config/pirn.toml"), 0o600);
    assert!(mode("work/pirn.toml") & 0o600 == 0o600 && mode("work/pirn.toml") & 0o111 == 0);
    std::fs::remove_file(bench.path("work/pirn.toml")).unwrap();
    std::os::unix::fs::symlink("nowhere", bench.path("work/pirn.toml")).unwrap();
    assert!(command::init(false, &bench.env, &bench.real("work")).is_err(), "a link to nothing is something");
    let none = Env::from_pairs([("A", "1")]);
    assert!(command::init(true, &none, &bench.real("work")).unwrap_err().message.contains("HOME is not set"));
}

#[test]
fn the_starter_is_right_with_every_line_uncommented_too() {
    let starter = include_str!("../../../config/starter.toml");
    let uncommented: Vec<&str> = starter
        .lines()
        .map(|line| {
            line.strip_prefix("# ").filter(|line| line.contains(" = ") || line.starts_with('[')).unwrap_or(line)
        })
        .collect();
    let text = uncommented.join("\n");
    let bench = Bench::new(&[("LOCAL_API_KEY", "k")]);
    bench.write("docs/prose.md", "brief");
    let settings = bench.file(&text).unwrap();
    assert!(settings.written().count() > 12, "{text}");
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("config.json", serde_json::from_str(&json_schema()).unwrap()).unwrap();
    let index = compiler.compile("config.json", &mut schemas).unwrap();
    for text in [starter, &text] {
        let value = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
        assert!(schemas.validate(&value, index).is_ok());
    }
}

#[test]
fn check_tells_files_with_their_trust_and_everything_that_is_wrong() {
    let bench = bench();
    let told = command::check(&[], &at_work(&bench));
    assert_eq!((told.text.as_str(), &told.error), ("no configuration file\nok\n", &None));
    bench.write("home/config/pirn.toml", "a = 1\n");
    bench.write("work/pirn.toml", "b = 1\n");
    let (user, project) = (bench.real("home/config/pirn.toml"), bench.real("work/pirn.toml"));
    let told = command::check(&[], &at_work(&bench));
    assert_eq!(told.text, format!("user: {}\nproject: {} (not trusted)\n", user.display(), project.display()));
    let error = told.error.unwrap();
    let lines: Vec<&str> = error.message.lines().collect();
    assert_eq!(lines.len(), 2, "{error:?}");
    assert!(lines[0].ends_with("unknown key a") && lines[1].starts_with("pirn.toml is not trusted; review it"));
    let told = command::check(&[], &Sources { trust: true, ..at_work(&bench) });
    assert!(told.text.ends_with(" (trusted this time)\n"), "{}", told.text);
    assert!(told.error.unwrap().message.ends_with("\npirn.toml:1:1: unknown key b"));
    command::trust(false, None, &bench.env, &bench.real("work")).unwrap();
    assert!(command::check(&[], &at_work(&bench)).text.ends_with(" (trusted)\n"));

    // Named files stand alone; what is wrong outside of them is told once.
    let env = Env::from_pairs([("PIRN_MAX_TURNS", "x")]);
    let told = command::check(&[user, project], &Sources { env: &env, ..at_work(&bench) });
    let lines = told.error.unwrap().message;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let missing = command::check(&["none.toml".into()], &at_work(&bench)).error.unwrap();
    assert!(missing.message.starts_with("none.toml: cannot be read: "), "{missing:?}");
}

#[test]
fn check_knows_models_tools_and_variables_that_do_not_exist() {
    let bench = bench();
    let check = |text: &str| {
        bench.write("work/c.toml", text);
        command::check(&["c.toml".into()], &at_work(&bench))
    };
    for (text, wanted) in [
        ("model = 'nope'", "c.toml:1:9: no model is called nope"),
        ("tools.enabled = ['raed']", "c.toml:1:17: unknown tool raed"),
        ("models.m.id = 'nowhere/x'", "names the provider nowhere, which does not exist"),
        ("providers.p.cache = 'none'", "providers.p needs a base_url"),
    ] {
        let error = check(text).error.unwrap();
        assert!(error.message.contains(wanted), "{text}: {error:?}");
    }
    let both = check("model = 'nope'\ntools.enabled = ['raed']").error.unwrap();
    assert_eq!(both.message.lines().count(), 2, "{both:?}");
    let told = check("providers.p.base_url = '${UNSET}'");
    assert_eq!(told.error, None, "a provider that is not used may lack a variable");
    let warning = "warning: c.toml:1:24: providers.p.base_url cannot be expanded: the variable UNSET is not set\n";
    assert!(told.text.contains(warning), "{}", told.text);
}

#[test]
fn check_resolves_the_programs_of_tools_hooks_and_servers() {
    let bench = bench();
    let (status, npx) = (program(&bench, "work/scripts/status.sh"), program(&bench, "bin/npx"));
    bench.write(
        "work/c.toml",
        "[tools.bash]\nshell = 'zsh'\n[tools.deploy]\ncommand = ['./scripts/status.sh', 'x']\n[tools.off]\nenabled = false\n\
         command = ['./none']\n[hooks.guard]\nevent = 'Stop'\ncommand = ['./guard.py']\n[mcp.docs]\ncommand = 'npx'\n[mcp.web]\nurl = 'http://h'\n",
    );
    let told = command::check(&["c.toml".into()], &at_work(&bench));
    let lines: Vec<&str> = told.text.lines().skip(1).collect();
    let guard = bench.real("work").join("guard.py");
    assert_eq!(
        lines,
        [
            "warning: tool bash: no program zsh".to_owned(),
            format!("tool deploy: {}", status.display()),
            format!("warning: hook guard: no program {}", guard.display()),
            format!("server docs: {}", npx.display()),
        ]
    );
    assert_eq!(told.error.unwrap().message.matches("is not available in this version").count(), 4);
}

#[test]
fn path_lists_the_files_that_exist_in_their_order() {
    let bench = bench();
    assert_eq!(command::path(&at_work(&bench)), "");
    bench.write("work/pirn.toml", "nonsense = 1\n");
    bench.write("work/n.toml", "");
    bench.write("home/config/pirn.toml", "");
    let named = Sources { config_file: Some("n.toml".into()), ..at_work(&bench) };
    let lines = ["home/config/pirn.toml", "work/pirn.toml", "work/n.toml"];
    let listed = command::path(&named);
    assert_eq!(listed.lines().collect::<Vec<_>>(), lines.map(|name| bench.real(name).display().to_string()));
}

#[test]
fn trust_says_what_it_trusted_and_what_that_may_do() {
    let bench = bench();
    let cwd = bench.real("work");
    let trust = |revoke, file: Option<&str>| command::trust(revoke, file.map(std::path::Path::new), &bench.env, &cwd);
    let error = trust(false, None).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Usage, "no pirn.toml here or above"));
    bench.write("work/p.md", "text");
    bench.write(
        "work/pirn.toml",
        "system = '@p.md'\n[providers.openai]\nbase_url = 'http://user:hush@evil.example/v1'\napi_key = '!pass show x'\n\
         [hooks.fmt]\nevent = 'Stop'\ncommand = ['./fmt.sh']\n",
    );
    let file = bench.real("work/pirn.toml").display().to_string();
    let said = trust(false, None).unwrap();
    let lines = [
        format!("trusted {file}"),
        format!("  and {}, which it names", cwd.join("p.md").display()),
        format!("  hook fmt starts {}", cwd.join("fmt.sh").display()),
        "  the key of openai is what this prints: pass show x".to_owned(),
        "  requests of openai go to evil.example".to_owned(),
    ];
    assert_eq!(said, lines.join("\n") + "\n");
    assert_eq!(trust(true, Some("pirn.toml")).unwrap(), format!("{file} is trusted no longer\n"));
    assert_eq!(trust(true, None).unwrap(), format!("{file} was not trusted\n"));
    // A file that is gone can be taken off the list.
    trust(false, None).unwrap();
    std::fs::remove_file(bench.path("work/pirn.toml")).unwrap();
    assert_eq!(trust(true, Some("pirn.toml")).unwrap(), format!("{file} is trusted no longer\n"));
}

#[test]
fn show_prints_what_holds_and_fails_with_what_is_wrong() {
    let bench = bench();
    bench.write("home/config/pirn.toml", "limits.max_turns = 7\n");
    let shown = command::show(true, &at_work(&bench)).unwrap();
    let place = bench.real("home/config/pirn.toml");
    assert!(shown.contains(&format!("max_turns = 7 # {}:1:20\n", place.display())), "{shown}");
    let again = bench.file(&command::show(false, &at_work(&bench)).unwrap()).unwrap();
    assert_eq!(again.limits, load(&at_work(&bench)).unwrap().limits);
    bench.write("work/pirn.toml", "");
    let error = command::show(false, &at_work(&bench)).unwrap_err();
    assert_eq!(error.message, "pirn.toml is not trusted");
    assert_eq!(command::schema(), json_schema());
}
