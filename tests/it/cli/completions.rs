//! Completion scripts and the manual page: fresh, sound, and offering what the command line takes.
//!
//! A shell that is not on the machine is named on stderr as unavailable; its script is still compared.

use std::path::{Path, PathBuf};
use std::process::Command;

use pirn::cli::{Shell, completions, generate};
use pirn::config::Env;

use super::Pirn;

fn committed(shell: Shell) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("completions").join(shell.file_name())
}

#[test]
fn the_files_in_the_repository_are_what_the_generator_makes_and_what_the_program_writes() {
    for shell in Shell::ALL {
        let path = committed(shell);
        let name = shell.as_str();
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let fresh = generate(shell);
        if stored != fresh {
            let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).join(shell.file_name());
            std::fs::write(&beside, &fresh).unwrap();
            panic!("{} is stale: cp {} {0}", path.display(), beside.display());
        }
        assert!(completions(shell).unwrap() == fresh, "{name} is packed as it is");
        let output = Pirn::new(["completions", name]).run();
        assert_eq!((output.code(), output.stderr.as_str()), (0, ""));
        assert_eq!(output.stdout, fresh, "{name}");
    }
    let files = std::fs::read_dir(committed(Shell::Bash).parent().unwrap()).unwrap().count();
    assert_eq!(files, Shell::ALL.len(), "nothing else stands there");
}

/// Runs a program of the machine, if it is there.
#[expect(clippy::print_stderr, reason = "what was not tested is told to whoever reads the output")]
fn run(program: &str, args: &[&str]) -> Option<(bool, String, String)> {
    let run = Command::new(program).args(args).env("PATH", "/usr/bin:/bin").output();
    let Ok(output) = run else {
        eprintln!("unavailable: {program}");
        return None;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((output.status.success(), text(&output.stdout), text(&output.stderr)))
}

#[test]
fn scripts_are_valid_for_their_shells() {
    for (shell, program, check) in
        [(Shell::Bash, "bash", "-n"), (Shell::Zsh, "zsh", "-n"), (Shell::Fish, "fish", "--no-execute")]
    {
        let path = committed(shell);
        if let Some((success, _, errors)) = run(program, &[check, path.to_str().unwrap()]) {
            assert!(success && errors.is_empty(), "{program}: {errors}");
        }
    }
}

#[test]
fn the_manual_page_is_rendered_without_a_warning_and_says_what_is_true() {
    let path = committed(Shell::Man);
    let path = path.to_str().unwrap();
    if let Some((success, _, errors)) = run("groff", &["-man", "-Tutf8", "-ww", path]) {
        assert!(success && errors.is_empty(), "{errors}");
    }
    if let Some((success, _, errors)) = run("mandoc", &["-T", "lint", "-W", "error", path]) {
        assert!(success, "{errors}");
    }
    let page = completions(Shell::Man).unwrap();
    for section in ["SYNOPSIS", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"] {
        assert!(page.contains(&format!("\n.SH {section}\n")) || page.contains(&format!("\n.SH \"{section}\"\n")));
    }
    for call in [
        "pirn steer",
        "pirn sessions list",
        "pirn sessions show",
        "pirn models",
        "pirn config check",
        "pirn completions",
    ] {
        assert!(page.contains(&format!(".SS \"{call}")), "{call}");
    }
    let section = |title: &str| {
        let (_, rest) =
            page.split_once(&format!(".SH {title}\n")).or(page.split_once(&format!(".SH \"{title}\"\n"))).unwrap();
        rest.split("\n.SH ").next().unwrap().to_owned()
    };
    let names = |title: &str| -> Vec<String> {
        let entries = section(title);
        let names = entries.lines().filter_map(|line| line.strip_prefix("\\fB")?.split_once("\\fR"));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let readme = include_str!("../../../README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let codes: Vec<&str> =
        rows.map(|(code, _)| code).filter(|code| code.starts_with(|c: char| c.is_ascii_digit())).collect();
    assert_eq!(names("EXIT STATUS"), codes, "the codes of README, which are those of the program");
    let ours: Vec<(String, &str)> = names("ENVIRONMENT")
        .iter()
        .flat_map(|names| names.split(", "))
        .filter(|name| name.starts_with("PIRN_"))
        .map(|name| (name.to_owned(), "x"))
        .collect();
    assert!(ours.len() > 10, "{ours:?}");
    assert_eq!(Env::from_pairs(ours).warnings(), Vec::<String>::new(), "every variable is known");
}

/// What bash offers for the last of these words, with files `alpha.md` and `models.txt` in the directory.
fn offered(words: &[&str]) -> Vec<String> {
    let script = r#"
        source "$1"; shift
        compopt() { :; }
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _pirn "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let dir = tempfile::tempdir().unwrap();
    for name in ["alpha.md", "models.txt"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .arg(committed(Shell::Bash))
        .args(words)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn a_command_is_offered_as_the_first_argument_only() {
    let commands = ["steer", "sessions", "models", "config", "completions", "help"];
    assert_eq!(offered(&["pirn", ""]), commands);
    assert_eq!(offered(&["pirn", "mo"]), ["models"]);
    // With nothing offered, bash offers files.
    for words in [&["pirn", "explain", "mo"][..], &["pirn", "-p", "mo"], &["pirn", "-q", ""], &["pirn", "--", "mo"]] {
        assert_eq!(offered(words), Vec::<String>::new(), "{words:?}");
    }
    assert_eq!(offered(&["pirn", "explain", "sessions", "li"]), Vec::<String>::new());
}

#[test]
fn options_their_values_verbs_and_files_are_offered() {
    for (words, expected) in [
        (&["pirn", "--ev"][..], &["--events"][..]),
        (&["pirn", "explain", "--ev"], &["--events"]),
        (&["pirn", "--thinking", "h"], &["high"]),
        (&["pirn", "--color", ""], &["auto", "always", "never"]),
        (&["pirn", "-o", "al"], &["alpha.md"]),
        (&["pirn", "-f", "al"], &["alpha.md"]),
        (&["pirn", "x", "--events", "al"], &["alpha.md"]),
        (&["pirn", "--log", "m"], &["models.txt"]),
        (&["pirn", "--max-c"], &["--max-cost"]),
        (&["pirn", "steer", "--fol"], &["--follow-up"]),
        (&["pirn", "steer", "--config", "al"], &["alpha.md"]),
        (&["pirn", "sessions", "li"], &["list"]),
        (&["pirn", "sessions", "list", "--a"], &["--all"]),
        (&["pirn", "sessions", "show", "--format", ""], &["text", "json"]),
        (&["pirn", "config", "sch"], &["schema"]),
        (&["pirn", "config", "show", "--or"], &["--origin"]),
        (&["pirn", "config", "check", "--config", "al"], &["alpha.md"]),
        (&["pirn", "completions", "po"], &["powershell"]),
        (&["pirn", "models", "--j"], &["--json"]),
        (&["pirn", "models", "--ev"], &[]),
    ] {
        assert_eq!(offered(words), expected, "{words:?}");
    }
}
