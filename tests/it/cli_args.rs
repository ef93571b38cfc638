//! The command line: which words are commands, options, values or prompt (IN-03, IN-04, IN-09).

#![cfg(test)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use pirn::cli::{
    ColorChoice, ConfigArgs, ConfigCheckArgs, ConfigInitArgs, ConfigShowArgs, ConfigTrustArgs, Invocation, JsonLevel,
    LayerArgs, ModelsArgs, RunArgs, SessionsArgs, SessionsListArgs, SessionsShowArgs, Shell, ShowFormat, SteerArgs,
    UsageError, Word, parse, wants_json,
};
use pirn::model::{ErrorKind, ErrorRecord, Thinking};

fn argv(args: &[&str]) -> Vec<OsString> {
    std::iter::once("pirn").chain(args.iter().copied()).map(OsString::from).collect()
}

fn run(args: &[&str]) -> RunArgs {
    match parse(argv(args)) {
        Ok(Invocation::Run(run)) => *run,
        other => panic!("{args:?} is no run: {other:?}"),
    }
}

fn failure(args: &[&str]) -> UsageError {
    match parse(argv(args)) {
        Err(error) => error,
        Ok(other) => panic!("{args:?} was accepted: {other:?}"),
    }
}

fn words(args: &[&str]) -> Vec<String> {
    run(args).words.into_iter().map(|word| word.text).collect()
}

#[test]
fn commands_never_swallow_prompts_cli_2_1() {
    for command in ["tools", "doctor"] {
        let error = failure(&[command, "list"]);
        assert!(error.message.contains("not available in this version"), "{error:?}");
        assert!(error.hint.unwrap_or_default().contains("pirn -- "), "{command}");
    }
    assert_eq!(parse(argv(&["models"])), Ok(Invocation::Models(ModelsArgs::default())));
    assert_eq!(parse(argv(&["steer"])), Ok(Invocation::Steer(SteerArgs::default())));
    for reserved in ["steer", "sessions", "models", "tools", "config", "doctor", "completions", "help"] {
        let quoted = format!("{reserved} of the atom");
        assert_eq!(words(&[&quoted]), [quoted.as_str()], "one argument with spaces");
        assert_eq!(words(&["-p", reserved]), [reserved], "after -p");
        assert_eq!(words(&["--", reserved]), [reserved], "after --");
        assert_eq!(words(&["-m", "x", reserved]), [reserved], "after -m x");
        assert_eq!(words(&["explain", reserved]), ["explain", reserved], "second word");
    }
}

#[test]
fn a_first_word_close_to_a_command_is_refused_with_both_ways_out_in09() {
    for args in [&["sesion", "list"][..], &["model"], &["Models"], &["hlep"], &["tool", "-q"]] {
        let error = failure(args);
        assert!(error.message.contains("looks like the command"), "{error:?}");
        let hint = error.hint.unwrap_or_default();
        assert!(hint.contains("for a prompt: pirn -- ") && hint.contains("for the command: pirn "), "{hint}");
    }
    for args in [&["--", "sesion", "list"][..], &["sesion list"], &["-p", "sesion"], &["hello"], &["tell", "me"]] {
        assert!(!words(args).is_empty());
    }
}

#[test]
fn text_is_never_taken_for_an_option_in03() {
    assert_eq!(words(&["--", "- summarise these points"]), ["- summarise these points"]);
    assert_eq!(words(&["--", "--help me please"]), ["--help me please"]);
    assert_eq!(words(&["--", "-h", "--", "-V"]), ["-h", "--", "-V"]);
    assert_eq!(words(&["- two words"]), ["- two words"], "no option begins with a blank");
    assert_eq!(words(&["-\n- a\n- b", "-q"]), ["-\n- a\n- b"]);
    assert_eq!(words(&["-"]), ["-"]);
    for text in ["--help me please", "---\nname: x\n---\nDo it", "-5 + 3 = ?", "-2", "--nonsense"] {
        let error = failure(&["-p", text]);
        assert!(error.message.starts_with("unknown option"), "{error:?}");
        assert!(!error.message.contains('\n'), "{error:?}");
        assert!(error.hint.unwrap_or_default().contains("goes after --"), "{text}");
    }
}

#[test]
fn words_remember_whether_they_stood_after_the_dashes() {
    let literal: Vec<bool> = run(&["@a", "--", "@b", "-"]).words.iter().map(|word| word.literal).collect();
    assert_eq!(literal, [false, true, true]);
}

#[test]
fn options_that_take_text_take_it_verbatim_in04() {
    let text = "---\nname: x\n---\nDo it";
    assert_eq!(run(&["--system", text, "hi"]).system.as_deref(), Some(text));
    assert_eq!(run(&["--system=---x"]).system.as_deref(), Some("---x"));
    assert_eq!(run(&["--system", "--json", "hi"]).json, None);
    assert_eq!(run(&["--system", "--", "hi"]).system.as_deref(), Some("--"));
    assert_eq!(run(&["--append-system", "-a", "--append-system", "-h"]).append_system, ["-a", "-h"]);
    assert_eq!(run(&["--tools", "-write,+bash", "x"]).tools.as_deref(), Some("-write,+bash"));
    assert_eq!(run(&["-t-write", "x"]).tools.as_deref(), Some("-write"));
    assert_eq!(run(&["-m", "-x"]).model.as_deref(), Some("-x"));
    assert_eq!(run(&["--set", "-k=-v"]).layers.set, ["-k=-v"]);
    assert_eq!(run(&["-s", "-c"]).session.as_deref(), Some("-c"));
    assert_eq!(run(&["--then", "- x", "--then", text, "--then=-q", "hi"]).then, ["- x", text, "-q"]);
    assert_eq!(run(&["-o", "--json"]).output, Some(PathBuf::from("--json")));
    assert_eq!(run(&["-f", "-odd-name"]).prompt_file, Some(PathBuf::from("-odd-name")));
    assert_eq!(words(&["-p", "--", text]), [text], "-p takes no value");
}

#[test]
fn every_option_is_understood_in_every_form() {
    let args = run(&[
        "-pqf",
        "p.md",
        "-aone",
        "--attach=two",
        "--no-stdin",
        "-m=fast:high",
        "--thinking",
        "xhigh",
        "--json=messages",
        "--color=never",
        "--max-turns",
        "7",
        "--timeout=5m",
        "--max-cost=0.50",
        "--then",
        "and then",
        "--no-resend",
        "--then=at last",
        "--config",
        "c.toml",
        "--set",
        "a=1",
        "--set=b=2",
        "--bare",
        "-C",
        "/tmp",
        "-cs",
        "pr-12",
        "-oout.md",
        "--events=e.jsonl",
        "--log",
        "l.txt",
        "-P",
        "ci",
        "--trust",
        "do",
        "it",
    ]);
    assert!(args.print && args.quiet && args.no_stdin && args.layers.bare && !args.stream);
    assert!(args.resume && args.layers.trust && !args.no_session);
    assert_eq!((args.session.as_deref(), args.layers.profile.as_deref()), (Some("pr-12"), Some("ci")));
    assert_eq!((args.events.as_deref(), args.output), (Some("e.jsonl"), Some(PathBuf::from("out.md"))));
    assert_eq!(args.log, Some(PathBuf::from("l.txt")));
    assert_eq!(args.prompt_file, Some(PathBuf::from("p.md")));
    assert_eq!(args.attach, [PathBuf::from("one"), PathBuf::from("two")]);
    assert_eq!((args.model.as_deref(), args.thinking), (Some("fast:high"), Some(Thinking::Xhigh)));
    assert_eq!((args.json, args.color), (Some(JsonLevel::Messages), Some(ColorChoice::Never)));
    assert_eq!((args.max_turns, args.timeout.as_deref()), (Some(7), Some("5m")));
    assert_eq!((args.max_cost, args.no_resend), (Some(0.5), true));
    assert_eq!(args.then, ["and then", "at last"]);
    assert_eq!((args.layers.config, args.layers.cd), (Some(PathBuf::from("c.toml")), Some(PathBuf::from("/tmp"))));
    assert_eq!(args.layers.set, ["a=1", "b=2"]);
    assert_eq!(args.words.len(), 2);
    assert_eq!(run(&["-vv", "x"]).verbose, 2);
    assert_eq!(run(&["-v", "x", "-v"]).verbose, 2);
    assert_eq!(run(&["x", "-m", "a", "-m", "b"]).model.as_deref(), Some("b"), "the last one wins");
}

#[test]
fn json_takes_its_level_only_with_an_equals_sign() {
    let levels = [
        (&["--json", "a prompt"][..], JsonLevel::Events),
        (&["--json=result", "x"], JsonLevel::Result),
        (&["x", "--json"], JsonLevel::Events),
        (&["--json", "--", "result"], JsonLevel::Events),
        (&["--json", "explain", "result"], JsonLevel::Events),
    ];
    for (args, level) in levels {
        assert_eq!(run(args).json, Some(level), "{args:?}");
    }
    for level in ["events", "messages", "result"] {
        let hint = failure(&["--json", level]).hint.unwrap_or_default();
        assert!(hint.contains(&format!("--json={level}")) && hint.contains(&format!("-- {level}")), "{hint}");
    }
}

#[test]
fn mistakes_are_named_in_our_own_words() {
    let mistakes = [
        (&["--modle", "x"][..], "unknown option --modle", "did you mean --model?"),
        (&["--thinking", "hgih"], "--thinking cannot be `hgih`; it is one of off, ", "did you mean high?"),
        (&["--thinking="], "--thinking needs a value", ""),
        (&["--json=all"], "--json cannot be `all`; it is one of events, messages, result", ""),
        (&["--max-turns", "many"], "--max-turns takes a whole number from 0 to ", ""),
        (&["--max-turns", "-1"], "--max-turns takes a whole number from 0 to ", ""),
        (&["x", "--model"], "--model needs a value", ""),
        (&["--quiet=yes"], "--quiet takes no value, but `yes` was given", ""),
        (&["-q", "-v", "x"], "--quiet cannot be used with --verbose", "leave one out"),
        (&["--json", "--stream", "x"], "--json cannot be used with --stream", "--json already writes"),
        (&["--no-session", "-c", "x"], "--no-session cannot be used with --continue", "leave one out"),
        (&["--max-cost", "-1", "x"], "--max-cost takes US dollars, a number from 0, not `-1`", ""),
        (&["--max-cost", "inf", "x"], "--max-cost takes US dollars, a number from 0, not `inf`", ""),
        (&["--max-cost", "$1", "x"], "--max-cost takes US dollars, a number from 0, not `$1`", ""),
        (&["--then=", "x"], "--then takes a prompt, not ``", ""),
        (&["--then", "  \n", "x"], "--then takes a prompt, not `  `", ""),
        (&["--no-resend", "x"], "--no-resend needs --continue or --session", "a request that a session left open"),
        (&["--no-resend", "--no-session", "x"], "--no-resend cannot be used with --no-session", "leave one out"),
        (&["-s", "a", "--no-session", "x"], "--session cannot be used with --no-session", "leave one out"),
        (&["models", "gpt", "claude"], "`pirn models` takes one pattern", "pirn -- models"),
        (&["models", "--bogus"], "unknown option --bogus", ""),
        (&["help", "nonsense"], "no command `nonsense`", "pirn help"),
        (&["help", "model"], "no command `model`", "pirn help models"),
        (&["help", "doctor"], "`doctor` is not available in this version", ""),
        (&["steer", "--abort", "--follow-up"], "--abort cannot be used with --follow-up", "leave one out"),
        (&["steer", "--abort", "now"], "--abort takes no text, but `now` was given", "leave --abort out"),
        (&["steer", "--bogus", "x"], "unknown option --bogus", "goes after --"),
        (&["steer", "-s", "a", "-s", "b", "x"], "--session was given twice", ""),
    ];
    for (args, message, hint) in mistakes {
        let error = failure(args);
        assert!(error.message.starts_with(message), "{args:?}: {error:?}");
        assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{args:?}: {error:?}");
    }
}

#[test]
fn options_of_later_versions_say_so() {
    for option in
        ["--allow", "--deny", "--schema", "-x", "--dry-run", "--fork", "--at", "--lane=l", "--wait", "--record=f"]
    {
        let error = failure(&["x", option]);
        let name = option.split('=').next().unwrap();
        let hint = error.hint.unwrap_or_default();
        assert!(hint.starts_with(&format!("{name} is not available in this version; ")), "{option}: {hint}");
    }
}

#[test]
fn help_and_version_win_over_everything_else_but_values() {
    let text = |args: &[&str]| match parse(argv(args)) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{args:?}: {other:?}"),
    };
    assert_eq!(text(&["-V"]), "pirn 0.1.0\n");
    assert_eq!(text(&["x", "--version"]), "pirn 0.1.0\n");
    let (short, long) = (text(&["-h"]), text(&["--help"]));
    assert!(long.len() > short.len());
    assert_eq!(text(&["--bogus", "-qh"]), short);
    assert_eq!(text(&["help"]), long);
    for needle in ["pirn [OPTIONS] [PROMPT|@FILE]...", "models", "--no-stdin", "-f FILE", "--json[=<LEVEL>]", "-V"] {
        assert!(short.contains(needle), "{needle} is missing in\n{short}");
    }
    assert!(short.starts_with("One-shot agent") && long.starts_with("Runs an agent once"));
    assert!(!short.contains('\u{1b}'));
    let models = text(&["help", "models"]);
    assert!(models.contains("PATTERN") && models.contains("--json") && models.contains("pirn models"), "{models}");
    assert!(text(&["models", "-h"]).contains("pirn models"));
}

#[test]
fn models_takes_a_pattern_and_json() {
    let expected = ModelsArgs { pattern: Some("gpt".to_owned()), json: true };
    for args in [&["models", "gpt", "--json"][..], &["models", "--json", "gpt"], &["models", "--json", "--", "gpt"]] {
        assert_eq!(parse(argv(args)), Ok(Invocation::Models(expected.clone())), "{args:?}");
    }
}

#[test]
fn an_argument_that_is_no_text_is_an_error_and_a_path_need_not_be_text() {
    let bad = || OsString::from_vec(b"\xff\xfe".to_vec());
    for args in [vec![bad()], vec!["--system".into(), bad()], vec!["--".into(), bad()], vec!["models".into(), bad()]] {
        let argv: Vec<OsString> = std::iter::once("pirn".into()).chain(args).collect();
        assert!(parse(argv.clone()).unwrap_err().message.contains("UTF-8"));
        assert_eq!(wants_json(argv), None);
    }
    let argv: Vec<OsString> = vec!["pirn".into(), "-f".into(), bad()];
    assert!(matches!(parse(argv), Ok(Invocation::Run(run)) if run.prompt_file == Some(PathBuf::from(bad()))));
    assert!(parse(Vec::<OsString>::new()).is_ok(), "not even a program name");
}

#[test]
fn json_is_noticed_before_parsing_succeeds() {
    let table = [
        (&["--json", "--bogus"][..], Some(JsonLevel::Events)),
        (&["--bogus", "--json=result"], Some(JsonLevel::Result)),
        (&["--json=nonsense", "x"], Some(JsonLevel::Events)),
        (&["sesion", "list", "--json"], Some(JsonLevel::Events)),
        (&["--json", "-m"], Some(JsonLevel::Events)),
        (&["--system", "--json", "x"], None),
        (&["--", "--json"], None),
        (&["models", "--json"], None),
        (&["sessions", "list", "--json"], None),
        (&["x"], None),
        (&[], None),
    ];
    for (args, level) in table {
        assert_eq!(wants_json(argv(args)), level, "{args:?}");
    }
}

#[test]
fn flags_become_settings_with_their_origin() {
    let args = run(&[
        "-m",
        "a/b:high, c/d",
        "--thinking",
        "low",
        "--system",
        "S",
        "--append-system",
        "A",
        "-t",
        "ro,-ls",
        "--json",
        "-vvv",
        "--color",
        "always",
        "--max-turns",
        "0",
        "--timeout",
        "90s",
        "--max-cost",
        "1",
        "x",
    ]);
    let settings: Vec<String> =
        args.overrides().iter().map(|item| format!("{} {}={}", item.flag, item.key, item.value)).collect();
    assert_eq!(
        settings,
        [
            r#"--model model=["a/b:high", "c/d"]"#,
            r#"--thinking thinking="low""#,
            r#"--system system="S""#,
            r#"--append-system append_system=["A"]"#,
            r#"--tools tools.enabled=["ro", "-ls"]"#,
            r#"--json output.json="events""#,
            "--verbose output.verbosity=2",
            r#"--color output.color="always""#,
            "--max-turns limits.max_turns=0",
            "--max-cost limits.max_cost=1.0",
            r#"--timeout limits.timeout="90s""#,
        ]
    );
    let more = run(&["-q", "--stream", "--no-session", "--events", "e-{date}.jsonl", "-m", "one", "x"]);
    let more: Vec<(&str, toml::Value)> = more.overrides().into_iter().map(|item| (item.key, item.value)).collect();
    assert_eq!(
        more,
        [
            ("model", "one".into()),
            ("output.events", "e-{date}.jsonl".into()),
            ("output.stream", "always".into()),
            ("output.verbosity", toml::Value::Integer(-1)),
            ("session.persist", toml::Value::Boolean(false)),
        ]
    );
    assert!(run(&["x"]).overrides().is_empty());
}

#[test]
fn a_usage_error_is_an_error_record_of_kind_usage() {
    let record = ErrorRecord::from(failure(&["--modle"]));
    assert_eq!((record.kind, record.retryable), (ErrorKind::Usage, false));
    assert!(record.hint.is_some());
}

#[test]
fn short_options_of_later_versions_come_with_the_remedy_too_in03() {
    for (args, option) in [(&["-x"][..], "-x"), (&["-qx"], "-x"), (&["--lane", "x"], "--lane")] {
        let hint = failure(args).hint.unwrap_or_default();
        assert!(hint.starts_with(&format!("{option} is not available in this version; ")), "{args:?}: {hint}");
        assert!(hint.ends_with("a prompt that starts with - goes after --: pirn -- PROMPT"), "{args:?}: {hint}");
    }
}

#[test]
fn a_number_that_is_none_is_told_in_words() {
    for value in ["x", "-1", "1.5", "4294967296", ""] {
        let error = failure(&["--max-turns", value, "hi"]);
        let wanted = format!("--max-turns takes a whole number from 0 to 4294967295, not `{value}`");
        assert_eq!(error.message, wanted);
    }
}

#[test]
fn a_file_that_would_be_dropped_in_silence_is_refused_and_other_options_let_the_last_win() {
    for (args, option) in [
        (&["-f", "a", "-f", "b"][..], "--prompt-file"),
        (&["-f", "a", "--prompt-file=b"], "--prompt-file"),
        (&["--config", "a", "--config", "b"], "--config"),
        (&["-o", "a", "-o", "b"], "--output"),
        (&["--events", "a", "--events", "b"], "--events"),
        (&["--log", "a", "--log", "b"], "--log"),
        (&["-s", "a", "-s", "b"], "--session"),
        (&["-P", "a", "-P", "b"], "--profile"),
    ] {
        assert_eq!(failure(args).message, format!("{option} was given twice"));
    }
    let args = run(&["-m", "a", "-m", "b", "--bare", "--bare", "--json", "--json=result", "-C", "x", "-C", "y", "hi"]);
    assert_eq!((args.model.as_deref(), args.json, args.layers.bare), (Some("b"), Some(JsonLevel::Result), true));
    assert_eq!(args.layers.cd, Some(PathBuf::from("y")));
    let many = run(&["-a", "1", "-a", "2", "--set", "a=1", "--set", "b=2", "-t", "ro", "-t", "none", "-q", "-q", "hi"]);
    assert_eq!((many.attach.len(), many.layers.set.len(), many.tools.as_deref()), (2, 2, Some("none")));
}

fn verb(args: &[&str]) -> Invocation {
    parse(argv(args)).unwrap_or_else(|error| panic!("{args:?}: {error:?}"))
}

#[test]
fn sessions_has_its_verbs_with_their_options_cli_2_3() {
    let list = |args: &[&str]| match verb(&[&["sessions", "list"], args].concat()) {
        Invocation::Sessions(SessionsArgs::List(list)) => list,
        other => panic!("{args:?}: {other:?}"),
    };
    assert_eq!(list(&[]), SessionsListArgs::default());
    let all = SessionsListArgs { query: Some("fix it".to_owned()), all: true, limit: Some(5), json: true };
    assert_eq!(list(&["fix it", "--all", "-n", "5", "--json"]), all);
    assert_eq!(list(&["-n5", "--json", "--all", "--", "fix it"]), all);
    assert_eq!(list(&["--", "--all"]).query.as_deref(), Some("--all"), "text behind the dashes is no option");
    let show = |args: &[&str]| match verb(&[&["sessions", "show"], args].concat()) {
        Invocation::Sessions(SessionsArgs::Show(show)) => show,
        other => panic!("{args:?}: {other:?}"),
    };
    assert_eq!(show(&[]), SessionsShowArgs { reference: None, format: ShowFormat::Text });
    let json = SessionsShowArgs { reference: Some("pr-12".to_owned()), format: ShowFormat::Json };
    assert_eq!(show(&["--format", "json", "pr-12"]), json);
    assert_eq!(show(&["pr-12", "--format=json"]), json);
}

#[test]
fn steer_takes_words_and_says_what_they_are_cli_2_3() {
    let steer = |args: &[&str]| match verb(&[&["steer"], args].concat()) {
        Invocation::Steer(steer) => steer,
        other => panic!("{args:?}: {other:?}"),
    };
    let words = |texts: &[(&str, bool)]| -> Vec<Word> {
        texts.iter().map(|(text, literal)| Word { text: (*text).to_owned(), literal: *literal }).collect()
    };
    let said = SteerArgs { words: words(&[("also", false), ("cover", false), ("it", false)]), ..SteerArgs::default() };
    assert_eq!(steer(&["also", "cover", "it"]), said);
    assert_eq!(steer(&["-"]).words, words(&[("-", false)]));
    assert_eq!(steer(&["--", "--abort", "-"]).words, words(&[("--abort", true), ("-", true)]));
    assert_eq!(steer(&["- a list"]).words, words(&[("- a list", false)]));
    let later = steer(&["-s", "pr-12", "--follow-up", "then", "-C", "/tmp", "--config=c.toml", "-P", "ci", "--bare"]);
    let layers = LayerArgs {
        config: Some(PathBuf::from("c.toml")),
        profile: Some("ci".to_owned()),
        bare: true,
        cd: Some(PathBuf::from("/tmp")),
        ..LayerArgs::default()
    };
    let session = Some("pr-12".to_owned());
    let expected = SteerArgs { words: words(&[("then", false)]), session, follow_up: true, layers, abort: false };
    assert_eq!(later, expected);
    assert_eq!(steer(&["--abort"]), SteerArgs { abort: true, ..SteerArgs::default() });
    assert_eq!(steer(&["--abort", "-s-odd"]).session.as_deref(), Some("-odd"));
    assert_eq!(wants_json(argv(&["steer", "--json"])), None);
}

#[test]
fn config_has_its_verbs_with_the_options_that_choose_layers_cli_2_3() {
    let config = |args: &[&str]| match verb(&[&["config"], args].concat()) {
        Invocation::Config(config) => config,
        other => panic!("{args:?}: {other:?}"),
    };
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(config(&["init"]), ConfigArgs::Init(ConfigInitArgs::default()));
    assert_eq!(config(&["init", "--user"]), ConfigArgs::Init(ConfigInitArgs { user: true, cd: None }));
    assert_eq!(config(&["schema"]), ConfigArgs::Schema);
    let trust = ConfigTrustArgs { file: path("a.toml"), revoke: true, cd: path("d") };
    assert_eq!(config(&["trust", "--revoke", "a.toml", "-C", "d"]), ConfigArgs::Trust(trust));
    let layers = LayerArgs {
        config: path("c.toml"),
        profile: Some("ci".to_owned()),
        set: vec!["a=1".to_owned(), "b=2".to_owned()],
        bare: true,
        trust: true,
        cd: path("/tmp"),
    };
    let given =
        ["--config", "c.toml", "-P", "ci", "--set", "a=1", "--set=b=2", "--bare", "--trust", "-C", "/tmp"].as_slice();
    assert_eq!(run(&[given, &["x"]].concat()).layers, layers, "as a run has them");
    let show = ConfigShowArgs { origin: true, layers: layers.clone() };
    assert_eq!(config(&[&["show", "--origin"], given].concat()), ConfigArgs::Show(show));
    let check = ConfigCheckArgs { files: vec!["one".into(), "-two".into()], layers: layers.clone() };
    assert_eq!(config(&[&["check", "one"], given, &["--", "-two"]].concat()), ConfigArgs::Check(check));
    assert_eq!(config(&[&["path"], given].concat()), ConfigArgs::Path(layers));
}

#[test]
fn a_file_of_a_command_need_not_be_text() {
    let bad = || OsString::from_vec(b"\xff.toml".to_vec());
    let call = |words: &[&str]| argv(words).into_iter().chain([bad()]);
    match parse(call(&["config", "check"])) {
        Ok(Invocation::Config(ConfigArgs::Check(check))) => assert_eq!(check.files, [PathBuf::from(bad())]),
        other => panic!("{other:?}"),
    }
    assert!(parse(call(&["sessions", "list"])).unwrap_err().message.contains("UTF-8"));
}

#[test]
fn a_verb_that_is_missing_wrong_or_of_a_later_version_is_refused_with_the_way_out_in09() {
    let mistakes = [
        (&["sessions"][..], "`pirn sessions` needs a verb: list, show", "pirn help sessions"),
        (&["sessions", "lst"], "`pirn sessions` has no verb `lst`", "did you mean pirn sessions list?"),
        (&["sessions", "Show"], "`pirn sessions` has no verb `Show`", "did you mean pirn sessions show?"),
        (&["sessions", "frobnicate"], "`pirn sessions` has no verb", "its verbs are list, show"),
        (&["sessions", "of", "the", "day"], "`pirn sessions` has no verb `of`", "pirn -- sessions"),
        (&["sessions", "--json", "list"], "`pirn sessions` needs its verb first", "pirn help sessions"),
        (&["sessions", "rm", "x"], "`pirn sessions rm` is not available in this version", "pirn -- sessions"),
        (&["sessions", "tree"], "`pirn sessions tree` is not available in this version", ""),
        (&["sessions", "show", "--format", "md"], "--format md is not available in this version", ""),
        (&["sessions", "show", "--format", "jsn"], "--format cannot be `jsn`; it is one of text, json", "json?"),
        (&["sessions", "list", "a", "b"], "`pirn sessions list` takes one query, but `b` was also given", ""),
        (&["sessions", "list", "-n", "0"], "-n takes a whole number from 1 to 4294967295, not `0`", ""),
        (&["sessions", "list", "--origin"], "unknown option --origin", ""),
        (&["config"], "`pirn config` needs a verb: init, show, check, schema, path, trust", ""),
        (&["config", "chekc"], "`pirn config` has no verb `chekc`", "did you mean pirn config check?"),
        (&["config", "init", "x"], "`pirn config init` takes no argument, but `x` was also given", ""),
        (&["config", "trust", "a", "b"], "`pirn config trust` takes one file, but `b` was also given", ""),
        (&["config", "schema", "--user"], "unknown option --user", ""),
        (&["completions"], "`pirn completions` needs a shell", "bash, zsh, fish, elvish, powershell, man"),
        (&["completions", "tcsh"], "there are no completions for `tcsh`", "pirn -- completions"),
        (&["completions", "bash", "zsh"], "`pirn completions` takes one shell, but `zsh` was also given", ""),
        (&["help", "sessions", "lst"], "no command `sessions lst`", "pirn help sessions list?"),
        (&["help", "sessions", "tree"], "`sessions tree` is not available in this version", ""),
        (&["help", "models", "x"], "`pirn help` takes one command", ""),
    ];
    for (args, message, hint) in mistakes {
        let error = failure(args);
        assert!(error.message.starts_with(message), "{args:?}: {error:?}");
        assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{args:?}: {error:?}");
    }
}

#[test]
fn every_command_and_verb_explains_itself_in_three_ways() {
    let text = |args: &[&str]| match verb(args) {
        Invocation::Print(text) => text,
        other => panic!("{args:?}: {other:?}"),
    };
    let commands: [&[&str]; 13] = [
        &["steer"],
        &["sessions"],
        &["sessions", "list"],
        &["sessions", "show"],
        &["models"],
        &["config"],
        &["config", "init"],
        &["config", "show"],
        &["config", "check"],
        &["config", "schema"],
        &["config", "path"],
        &["config", "trust"],
        &["completions"],
    ];
    for command in commands {
        let long = text(&[&["help"], command].concat());
        assert!(long.contains(&format!("Usage: pirn {}", command.join(" "))), "{command:?}: {long}");
        assert_eq!(text(&[command, &["--help"]].concat()), long);
        let short = text(&[command, &["-h"]].concat());
        assert!(short.contains(&format!("pirn {}", command.join(" "))), "{command:?}: {short}");
    }
    assert!(text(&["help", "config"]).contains("pirn config show --origin"), "examples");
}

#[test]
fn completions_takes_every_shell_and_man() {
    for shell in Shell::ALL {
        assert_eq!(verb(&["completions", shell.as_str()]), Invocation::Completions(shell));
    }
}

#[test]
fn continuing_needs_no_prompt() {
    let request = run(&["-c"]).prompt_request();
    assert!(request.may_be_empty && request.words.is_empty());
    assert!(!run(&["-s", "x"]).prompt_request().may_be_empty);
}

#[test]
fn the_help_of_files_is_true_of_this_version() {
    let Ok(Invocation::Print(help)) = parse(argv(&["--help"])) else { panic!("no help") };
    assert!(help.contains("above those of the project and the user"), "{help}");
}
