//! What holds of the repository as a whole: who may import whom (the table is the one of the architecture page), which
//! files there are, and that every pointer leads to something in it. A line outside the rule fails with its place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A module and the modules it may use, besides itself.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("port", &["model"]),
    ("turn", &["model", "port"]),
    ("agent", &["model", "port", "turn"]),
    ("harness", &["model", "port", "turn"]),
    ("process", &["model", "port", "turn"]),
    ("config", &["model", "port", "turn"]),
    ("session", &["model", "port", "turn"]),
    ("provider", &["model", "port", "turn", "process", "config"]),
    ("tool", &["model", "port", "turn", "process", "config"]),
    ("cli", &["model", "port", "turn", "process", "config"]),
    ("print", &["model", "port"]),
    ("exit", &["model"]),
    (
        "app",
        &[
            "model", "port", "turn", "agent", "harness", "process", "config", "session", "provider", "tool", "cli",
            "print", "exit",
        ],
    ),
    ("main", &["app"]),
    ("testing", &["model", "port", "turn", "agent", "harness"]),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    found
        .into_iter()
        .map(|path| {
            let relative = path.strip_prefix(&root).unwrap().to_owned();
            let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
            let module = first.trim_end_matches(".rs").to_owned();
            let text = fs::read_to_string(&path).unwrap();
            (module, relative, text)
        })
        .collect()
}

/// Lines of code: comments do not import anything, and unit tests may use more.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end].lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn modules_use_only_what_stands_to_their_left() {
    let mut wrong = Vec::new();
    for (module, path, text) in all_sources() {
        if module == "lib" || path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        let allowed = LAYERS.iter().find(|(name, _)| *name == module);
        let allowed = allowed.unwrap_or_else(|| panic!("src/{module} has no row in the table")).1;
        let prefix = if module == "main" { "pirn::" } else { "crate::" };
        for (number, line) in code_lines(&text) {
            for (at, _) in line.match_indices(prefix) {
                let used: String =
                    line[at + prefix.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if used != module && !allowed.contains(&used.as_str()) && LAYERS.iter().any(|(name, _)| *name == used) {
                    wrong.push(format!("src/{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports across layers:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_stands_in_the_audited_module_only() {
    for (_, path, text) in all_sources() {
        if path == Path::new("process/unix.rs") {
            continue;
        }
        for (number, line) in code_lines(&text) {
            assert!(!line.contains("unsafe "), "src/{}:{}: {line}", path.display(), number + 1);
        }
    }
}

#[test]
fn the_binary_holds_no_logic() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs")).unwrap();
    assert!(text.lines().count() < 40, "src/main.rs has {} lines", text.lines().count());
}

#[test]
fn only_known_entries_stand_at_the_top_level() {
    const KNOWN: &[&str] = &[
        ".cargo",
        ".ci",
        ".config",
        ".git",
        ".gitignore",
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "action.yml",
        "build.rs",
        "clippy.toml",
        "completions",
        "config",
        "deny.toml",
        "rustfmt.toml",
        "src",
        "target",
        "tests",
    ];
    for entry in fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(KNOWN.contains(&name.to_str().unwrap()), "unexpected top-level entry {name:?}");
    }
}

#[test]
fn numbers_with_arbitrary_precision_stay_off() {
    // Floats inside tagged and flattened enums fail to decode when any crate turns that feature on.
    let value: serde_json::Value = serde_json::from_str("1.10").unwrap();
    assert_eq!(value.to_string(), "1.1");
}

/// Every text file of the repository, by its path.
fn all_texts() -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if matches!(name, ".git" | "target") {
                continue;
            }
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(root, &mut found);
    let named = |path: &PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    found.iter().filter_map(|path| Some((named(path), fs::read_to_string(path).ok()?))).collect()
}

/// Words of letters, digits and hyphens, with their line numbers.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let split = |line| str::split(line, |c: char| !c.is_ascii_alphanumeric() && c != '-');
    text.lines().enumerate().flat_map(move |(at, line)| split(line).map(move |word| (at + 1, word)))
}

/// The family and the number of a rule id with a hyphen, such as `OC-9` (or `OC-9c`, a part of it).
fn rule_id(word: &str) -> Option<(&str, &str)> {
    let (family, number) = word.split_once('-')?;
    let number = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let is_family = (1..=7).contains(&family.len()) && family.bytes().all(|b| b.is_ascii_uppercase());
    let is_number = (1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    (is_family && is_number).then_some((family, number))
}

/// An id of one letter and a number, such as `R12`.
fn is_short_id(word: &str, letters: &str) -> bool {
    let mut chars = word.chars();
    let letter = chars.next().is_some_and(|c| letters.contains(c));
    letter && (1..=2).contains(&chars.as_str().len()) && chars.all(|c| c.is_ascii_digit())
}

/// The ids that the pages of rules, of the engine and of reports explain.
fn explained() -> BTreeSet<String> {
    let rules = concat!(include_str!("../cases/rules.md"), include_str!("../cases/engine.md"));
    let bold = rules.split("**").map(str::to_owned);
    let reports = include_str!("../cases/reports.md").lines();
    let headed = reports.filter_map(|line| line.strip_prefix("### ")?.split(' ').next().map(str::to_owned));
    bold.chain(headed).collect()
}

#[test]
fn every_rule_that_is_cited_is_explained() {
    /// Words of this form that are no rules: names of encodings, standards and models.
    const OTHERS: &[&str] = &["CRC", "ECMA", "FNV", "GPT", "SHA", "SSH", "UTF"];
    let explained = explained();
    let mut wrong = Vec::new();
    for (path, text) in all_texts() {
        let citing = ["src/", "tests/it/", "tests/fuzz/fuzz_targets/", "tests/benches/", "tests/cases/"];
        if !citing.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        let is_in = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
        let is_tool =
            is_in(&["src/tool/", "src/process/", "tests/it/tool_", "tests/it/process", "tests/it/arguments.rs"])
                || is_in(&["tests/it/bash.rs", "tests/cases/tools.md"]);
        let is_print = is_in(&["src/print/", "tests/it/cli/grammar.rs"]);
        let is_session = is_in(&["src/session/", "tests/it/session_store/", "tests/cases/engine.md"]);
        let short = match (is_tool, is_print, is_session) {
            (true, ..) => "ABCGILMPRTVWX",
            (_, true, _) => "G",
            (.., true) => "I",
            _ => "",
        };
        let mut check = |line: usize, id: &str| {
            if !explained.contains(id) {
                wrong.push(format!("{path}:{line}: {id}"));
            }
        };
        let all: Vec<(usize, &str)> = words(&text).filter(|(_, word)| !word.is_empty()).collect();
        for (at, (line, word)) in all.iter().enumerate() {
            let Some((family, number)) = rule_id(word) else {
                if is_short_id(word, short) {
                    check(*line, word);
                }
                continue;
            };
            if OTHERS.contains(&family) {
                continue;
            }
            check(*line, &format!("{family}-{number}"));
            // A range names all between its ends.
            let end = match (all.get(at + 1), all.get(at + 2)) {
                (Some((_, "to")), Some((_, end))) => rule_id(end).filter(|(other, _)| *other == family),
                _ => None,
            };
            if let Some((_, end)) = end
                && !number.starts_with('0')
            {
                let range = number.parse::<u32>().unwrap()..end.parse().unwrap();
                range.for_each(|number| check(*line, &format!("{family}-{number}")));
            }
        }
    }
    assert!(wrong.is_empty(), "rules that tests/cases/rules.md does not explain:\n{}", wrong.join("\n"));
}

#[test]
fn nothing_points_outside_of_the_repository() {
    // In pieces, so that this file does not find itself.
    let forbidden =
        ["\u{a7}", concat!("shar", "ed/"), concat!("/wo", "rk/"), concat!("DESIGN", " row"), concat!("FIX", "ME")];
    let pages =
        ["DESIGN", "answers", "cli", "config", "engine", "loop", "ports", "providers", "reports", "style", "tools"];
    let mut wrong = Vec::new();
    for (path, text) in all_texts() {
        // What real servers sent is kept as it came.
        if path.starts_with("tests/captures/") {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            let page = |name: &&str| {
                let file = format!("{name}.md");
                let cited = line.match_indices(&file).any(|(start, _)| {
                    !line[..start].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_'))
                });
                cited && !Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file).exists()
            };
            if forbidden.iter().any(|word| line.contains(word)) || pages.iter().any(page) {
                wrong.push(format!("{path}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "pointers to what a reader does not have:\n{}", wrong.join("\n"));
}
