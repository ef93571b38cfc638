//! Commands that only print: `models`, `help`, `-h`, `-V`.

use serde_json::Value;

use super::{KEY, Output, Pirn};

fn ok(call: Pirn) -> Output {
    let output = call.run();
    assert_eq!((output.code(), output.stderr.as_str()), (0, ""));
    assert!(output.stdout.ends_with('\n') && !output.stdout.ends_with("\n\n"), "one line feed at the end");
    assert!(!output.stdout.contains('\u{1b}'), "no colour in a pipe");
    output
}

fn rows(call: Pirn) -> Vec<Value> {
    ok(call).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn spec(row: &Value) -> String {
    format!("{}/{}", row["provider"].as_str().unwrap(), row["id"].as_str().unwrap())
}

#[test]
fn models_lists_every_model_once_sorted_and_says_which_lack_a_key() {
    let output = ok(Pirn::new(["models"]).env("OPENAI_API_KEY", KEY));
    let specs: Vec<&str> = output.stdout.lines().map(|line| line.split("  ").next().unwrap().trim()).collect();
    assert!(specs.len() > 100 && specs.contains(&"demo/demo"), "{}", specs.len());
    assert!(specs.is_sorted() && specs.windows(2).all(|pair| pair[0] != pair[1]));
    for line in output.stdout.lines() {
        let provider = line.split('/').next().unwrap();
        if provider == "openai" || provider == "demo" {
            assert!(!line.contains("no key"), "{line}");
        } else if provider == "anthropic" {
            assert!(line.contains(", no key"), "{line}");
        }
    }
}

#[test]
fn a_pattern_narrows_the_list_whatever_its_case() {
    for pattern in ["haiku-4-5", "HAIKU-4-5", "anthropic/claude-haiku-4-5"] {
        let output = ok(Pirn::new(["models", pattern]));
        assert!(output.stdout.contains("anthropic/claude-haiku-4-5"), "{pattern}: {}", output.stdout);
        let fits = |line: &str| line.to_lowercase().contains(&pattern.to_lowercase());
        assert!(output.stdout.lines().all(fits), "{pattern}: {}", output.stdout);
    }
}

#[test]
fn json_is_one_object_a_line_with_the_record_and_whether_it_is_configured() {
    let all = rows(Pirn::new(["models", "--json"]).env("OPENAI_API_KEY", KEY));
    assert!(all.len() > 100, "{}", all.len());
    for row in &all {
        let provider = row["provider"].as_str().unwrap();
        assert!(row["id"].is_string() && row["api"].is_string() && row["contextWindow"].is_u64(), "{row}");
        let configured = row["configured"].as_bool().unwrap();
        match provider {
            "openai" | "demo" => assert!(configured, "{row}"),
            "anthropic" | "google" => assert!(!configured, "{row}"),
            _ => {}
        }
    }
    let text: Vec<String> = ok(Pirn::new(["models"]).env("OPENAI_API_KEY", KEY))
        .stdout
        .lines()
        .map(|line| line.split("  ").next().unwrap().trim().to_owned())
        .collect();
    assert_eq!(all.iter().map(spec).collect::<Vec<_>>(), text, "the same models in both forms");
    let demo = rows(Pirn::new(["models", "demo/demo", "--json"]));
    assert_eq!(demo.len(), 1);
    assert_eq!(rows(Pirn::new(["models", "--json", "demo/demo"])), demo, "in any order");
}

#[test]
fn models_of_the_configuration_are_listed_with_their_facts() {
    let config = "[providers.local]\nbase_url = \"http://127.0.0.1:9/v1\"\n\
                  [models.mine]\nid = \"local/my-own-llm\"\ncontext_window = 4096\nprice = { input = 0.5, output = 1.0 }\n";
    let call = || Pirn::new(["models", "my-own", "--json"]).file("c.toml", config).env("PIRN_CONFIG", "c.toml");
    let rows = rows(call());
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((spec(&rows[0]).as_str(), &rows[0]["contextWindow"]), ("local/my-own-llm", &4096.into()));
    assert_eq!((&rows[0]["configured"], &rows[0]["cost"]["output"]), (&true.into(), &1.0.into()));
    let broken = call().file("c.toml", "bogus = 1\n").run();
    assert_eq!((broken.code(), broken.stdout.as_str()), (2, ""));
    assert!(broken.stderr.starts_with("pirn: config: c.toml:1:1: unknown key bogus"), "{}", broken.stderr);
}

#[test]
fn a_pattern_without_a_model_is_a_usage_error() {
    for args in [&["models", "zzz-nothing"][..], &["models", "--json", "zzz-nothing"]] {
        let output = Pirn::new(args.iter().copied()).run();
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{}", output.stderr);
        assert!(
            output.stderr.starts_with("pirn: usage: no known model matches \"zzz-nothing\"\nhint: "),
            "{}",
            output.stderr
        );
    }
    for (args, wanted) in [
        (&["models", "a", "b"][..], "takes one pattern, but `b`"),
        (&["models", "--no-such"], "unknown option --no-such"),
        (&["models", "-m", "x"], "unknown option -m"),
    ] {
        let output = Pirn::new(args.iter().copied()).run();
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(wanted), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn help_and_version_go_to_stdout_and_exit_0() {
    let version = format!("pirn {}\n", env!("CARGO_PKG_VERSION"));
    for args in [&["-V"][..], &["--version"], &["--json", "-V"], &["x", "-V", "y"]] {
        assert_eq!(ok(Pirn::new(args.iter().copied())).stdout, version, "{args:?}");
    }
    let short = ok(Pirn::new(["-h"])).stdout;
    let long = ok(Pirn::new(["--help"])).stdout;
    assert_eq!(ok(Pirn::new(["help"])).stdout, long, "`help` is the long help");
    assert!(short.len() < long.len());
    for flag in [
        "--print",
        "--prompt-file",
        "--attach",
        "--no-stdin",
        "--model",
        "--thinking",
        "--system",
        "--append-system",
        "--tools",
        "--json",
        "--stream",
        "--quiet",
        "--verbose",
        "--color",
        "--then",
        "--no-resend",
        "--max-turns",
        "--max-cost",
        "--timeout",
        "--config",
        "--set",
        "--bare",
        "--cd",
        "--help",
        "--version",
    ] {
        assert!(short.contains(flag) && long.contains(flag), "{flag} is described");
    }
    for args in [&["help", "models"][..], &["models", "--help"], &["models", "-h"]] {
        let text = ok(Pirn::new(args.iter().copied())).stdout;
        assert!(
            text.contains("pirn models") && text.contains("--json") && text.contains("PATTERN"),
            "{args:?}: {text}"
        );
    }
    for line in short.lines().chain(long.lines()) {
        assert!(line.trim_end() == line, "no blanks at the end of {line:?}");
    }
}

#[test]
fn help_for_what_is_not_there_is_a_usage_error() {
    for (args, wanted) in [
        (&["help", "nothing"][..], "no command `nothing`"),
        (&["help", "modles"], "did you mean pirn help models?"),
        (&["help", "tools"], "`tools` is not available in this version"),
        (&["tools", "list"], "`tools` is not available in this version"),
    ] {
        let output = Pirn::new(args.iter().copied()).run();
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(wanted), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn commands_that_only_print_need_no_key_no_home_and_no_stdin() {
    for args in [&["models", "demo"][..], &["-h"], &["help"], &["-V"]] {
        let call = Pirn::new(args.iter().copied()).stdin(super::Stdin::Silent);
        assert!(ok(call).stdout.contains("pirn") || args[0] == "models", "{args:?}");
    }
}

#[test]
fn the_errors_of_other_commands_are_told_on_stderr_only() {
    for args in [
        &["sessions", "lst", "--json"][..],
        &["config", "chekc", "--set", "output.json=events"],
        &["config", "show", "--set", "output.json=result", "--bogus"],
        &["completions", "--json"],
    ] {
        let output = Pirn::new(args.iter().copied()).run();
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{args:?}");
        assert!(output.stderr.starts_with("pirn: usage: "), "{args:?}: {}", output.stderr);
    }
}
