//! README says what is true: its commands parse, its first command does what it promises, its configuration loads,
//! its scripts run, its exit codes are those of the program.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use pirn::cli;
use pirn::exit;
use pirn::model::{CancelCause, ErrorKind, Reason, StopReason};

use super::{Output, Pirn, Place, binary};

const README: &str = include_str!("../../../README.md");

/// The code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    README.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The arguments of every call of pirn in a shell block, up to what the shell takes.
fn calls(block: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in block.replace("\\\n", " ").lines() {
        let words = shlex::split(line).unwrap_or_else(|| panic!("not a shell line: {line}"));
        let mut rest = words.as_slice();
        while let Some(at) = rest.iter().position(|word| word == "pirn") {
            let call: Vec<String> = rest[at..]
                .iter()
                .take_while(|word| !matches!(word.as_str(), "|" | ">" | "<" | ";" | "&&"))
                .cloned()
                .collect();
            rest = &rest[at + 1..];
            found.push(call);
        }
    }
    found
}

#[test]
fn every_call_in_readme_is_understood() {
    let all: Vec<Vec<String>> = blocks("sh").into_iter().flat_map(calls).collect();
    assert!(all.len() > 10, "README shows calls: {all:?}");
    for call in all {
        let parsed = cli::parse(call.iter().map(OsString::from));
        assert!(parsed.is_ok(), "{call:?}: {parsed:?}");
    }
}

#[test]
fn the_first_command_streams_text_calls_a_real_tool_and_succeeds() {
    let line = README.lines().find(|line| line.starts_with("cargo run")).expect("the first command");
    let words = shlex::split(line).unwrap();
    let at = words.iter().position(|word| word == "--").unwrap();
    let output = Pirn::new(&words[at + 1..]).file("one", "1").file("two", "2").run();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert!(output.stdout.contains("2 entries"), "the answer counts the files: {}", output.stdout);
    assert!(output.stderr.contains("ls"), "the call is shown: {}", output.stderr);
}

#[test]
fn the_configuration_in_readme_loads() {
    let blocks = blocks("toml");
    assert_eq!(blocks.len(), 1);
    let output =
        Pirn::new(["--config", "pirn.toml", "-m", "demo", "--json", "say ok"]).file("pirn.toml", blocks[0]).run();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert_eq!(output.lines()[0]["limits"]["maxTurns"], 30);
}

/// Runs a script as CI does, with the demo model, and with a `sleep` and with retries that do not wait.
fn scripted(place: &Arc<Place>, script: &str) -> Output {
    let programs = place.home().join("bin");
    if std::fs::create_dir(&programs).is_ok() {
        let binary = binary();
        let soon = "--set retry.base_delay=1ms";
        let pirn =
            format!("case $1 in sessions) soon=;; *) soon='{soon}';; esac\nexec {} $soon \"$@\"", binary.display());
        for (name, script) in [("pirn", pirn.as_str()), ("sleep", "")] {
            std::fs::write(programs.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(programs.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let call = Pirn::new([""; 0]).at(place).env("PATH", path).env("PIRN_MODEL", "demo");
    let call = call.env("PR", "12").env("GITHUB_STEP_SUMMARY", place.dir().join("summary"));
    call.script(format!("set -eo pipefail\n{script}")).run()
}

#[expect(clippy::print_stderr, reason = "what was not tested is told to whoever reads the output")]
fn has_jq() -> bool {
    let found = ["/usr/bin/jq", "/bin/jq"].iter().any(|path| Path::new(path).exists());
    if !found {
        eprintln!("unavailable: jq");
    }
    found
}

/// What a job of the CI example runs.
fn ci_script() -> String {
    let job = blocks("yaml")[0];
    let (_, rest) = job.split_once("run: |\n").unwrap();
    let lines = rest.lines().take_while(|line| line.starts_with("    "));
    lines.flat_map(|line| [line.trim_start_matches("    "), "\n"]).collect()
}

#[test]
fn the_ci_example_works_as_it_stands() {
    let jq = has_jq();
    for (asked, code, told) in [
        ("say it is fine", 0, ""),
        ("stop length", 0, "::warning::the review was cut off\n"),
        ("fail refusal", 4, "::error title=pirn::The demo model failed because it was asked to\n"),
        ("fail overloaded", 75, "::error title=pirn::The demo model failed because it was asked to\n"),
    ] {
        if !(jq || told.is_empty() || code == 0) {
            continue;
        }
        let place = Place::new();
        std::fs::create_dir(place.dir().join(".github")).unwrap();
        std::fs::write(place.dir().join(".github/review.md"), format!("{asked}\n")).unwrap();
        std::fs::write(place.dir().join("changes.patch"), "+ a line\n").unwrap();
        let output = scripted(&place, &ci_script());
        let read = |name: &str| std::fs::read_to_string(place.dir().join(name)).unwrap_or_default();
        assert_eq!(output.code(), code, "{asked}: {output:?}");
        assert!(output.stdout.ends_with(told), "{asked}: {output:?}");
        assert!(read("summary").contains(&format!("    {asked}\n")), "{asked}: {}", read("summary"));
        assert!(read("summary").contains("    + a line\n"), "what stood on stdin is in the transcript");
        assert_eq!(read("review.md").is_empty(), code != 0, "{asked}");
        let result: serde_json::Value = serde_json::from_str(read("run.jsonl").lines().last().unwrap()).unwrap();
        assert_eq!(result["exitCode"], if asked == "stop length" { 3 } else { code }, "{result}");
        assert_eq!(place.sessions().len(), 1, "{asked}: a second try is the same session");
        let replies = read("summary").matches("failed (overloaded)").count();
        assert_eq!(replies, if code == 75 { 2 * 4 } else { 0 }, "{asked}: each try has three retries");
    }
}

#[test]
fn the_scripts_about_sessions_run() {
    let all = blocks("sh");
    let block = |part: &str| *all.iter().find(|block| block.contains(part)).unwrap();
    let place = Place::new();
    let output = scripted(&place, block("pirn -c -s pr-12"));
    assert_eq!(output.code(), 0, "{output:?}");
    assert_eq!(place.sessions().len(), 2);
    if has_jq() {
        let output = scripted(&place, block("id=$("));
        assert_eq!(output.code(), 0, "{output:?}");
        assert_eq!(place.sessions().len(), 4);
    }
}

#[test]
fn the_exit_codes_in_readme_are_those_of_the_program() {
    let row = |code: &str| {
        README
            .lines()
            .find(|line| line.starts_with(&format!("| {code} |")))
            .unwrap_or_else(|| panic!("no row for {code}"))
    };
    let of = |reason, stop, kind, cause| exit::of(reason, stop, kind, cause).code.to_string();
    let error = Some(StopReason::Error);
    for (code, reason) in [
        (of(Reason::Completed, Some(StopReason::Stop), None, None), Reason::Completed),
        (of(Reason::Error, error, Some(ErrorKind::Quota), None), Reason::Error),
        (of(Reason::Usage, None, Some(ErrorKind::Usage), None), Reason::Usage),
        (of(Reason::Length, Some(StopReason::Length), None, None), Reason::Length),
        (of(Reason::Refused, error, Some(ErrorKind::Refusal), None), Reason::Refused),
        (of(Reason::MaxTurns, Some(StopReason::ToolUse), None, None), Reason::MaxTurns),
        (of(Reason::Unavailable, error, Some(ErrorKind::Server), None), Reason::Unavailable),
        (of(Reason::Auth, error, Some(ErrorKind::Auth), None), Reason::Auth),
        (of(Reason::Internal, error, Some(ErrorKind::Internal), None), Reason::Internal),
        (of(Reason::Timeout, Some(StopReason::Aborted), None, Some(CancelCause::Timeout)), Reason::Timeout),
        (of(Reason::Pipe, Some(StopReason::Aborted), None, Some(CancelCause::Pipe)), Reason::Pipe),
    ] {
        assert!(row(&code).contains(&format!("`{}`", reason.as_str())), "{code}: {}", row(&code));
    }
    assert!(row("129, 130, 143").contains("`interrupted`"));
}
