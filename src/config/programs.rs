//! The programs that a configuration starts, and where they are.
//!
//! Keeps true: nothing is started to find out.
//!
//! Must not know: how programs are run.

use std::path::{Path, PathBuf};

use super::Env;
use super::check::{entries, is_on};
use super::expand::expand;
use super::schema::{HOOKS, MCP_SERVERS, NAMED_LATER, TOOLS};
use super::settings::Settings;

/// A program that an entry of the configuration starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// `tool deploy`, `hook guard`, `server docs`.
    pub user: String,
    /// As it is configured.
    pub name: String,
    /// `None`: there is no such program.
    pub path: Option<PathBuf>,
}

/// The programs of command tools, hooks and servers, and a shell that was named; entries that are turned off have none.
pub fn programs(settings: &Settings, cwd: &Path, env: &Env) -> Vec<Program> {
    let written = &settings.written;
    let mut found = Vec::new();
    let mut add = |user: String, name: &str| {
        let name = expand(name, env).unwrap_or_else(|_| name.to_owned());
        found.push(Program { user, path: resolve(&name, cwd, env), name });
    };
    if let Some(shell) = &settings.tools.bash.shell {
        add("tool bash".to_owned(), shell);
    }
    for table in NAMED_LATER {
        let user = match table {
            TOOLS => "tool",
            HOOKS => "hook",
            MCP_SERVERS => "server",
            other => other,
        };
        for (key, _) in entries(written, table).filter(|(key, _)| is_on(written, key)) {
            let name = key.split_once('.').map_or(key, |(_, name)| name);
            match written.value(&format!("{key}.command")) {
                // A line for the shell, but for a server, which has its arguments apart.
                Some(toml::Value::String(_)) if table == HOOKS => add(format!("{user} {name}"), "sh"),
                Some(toml::Value::String(program)) => add(format!("{user} {name}"), program),
                Some(toml::Value::Array(argv)) => {
                    if let Some(program) = argv.first().and_then(toml::Value::as_str) {
                        add(format!("{user} {name}"), program);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Where a program is: with a slash as it stands, else on PATH.
fn resolve(name: &str, cwd: &Path, env: &Env) -> Option<PathBuf> {
    which::which_in(name, env.path("PATH"), cwd).ok()
}
