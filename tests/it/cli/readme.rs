//! README says what is true: its commands parse, its first command does what it promises, its configuration loads,
//! its exit codes are those of the program.

use std::ffi::OsString;

use pirn::cli;
use pirn::exit;
use pirn::model::{CancelCause, ErrorKind, Reason, StopReason};

use super::Pirn;

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
