//! Who may import whom. The table is the one of the architecture page; a line outside it fails with its place.

use std::fs;
use std::path::{Path, PathBuf};

/// A module and the modules it may use, besides itself.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("port", &["model"]),
    ("turn", &["model", "port"]),
    ("agent", &["model", "port", "turn"]),
    ("process", &["model", "port", "turn"]),
    ("config", &["model", "port", "turn"]),
    ("provider", &["model", "port", "turn", "process", "config"]),
    ("tool", &["model", "port", "turn", "process", "config"]),
    ("cli", &["model", "port", "turn", "process", "config"]),
    ("print", &["model", "port"]),
    ("exit", &["model"]),
    ("app", &["model", "port", "turn", "agent", "process", "config", "provider", "tool", "cli", "print", "exit"]),
    ("main", &["app"]),
    ("testing", &["model", "port", "turn", "agent"]),
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
