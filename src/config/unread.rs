//! Project and user files, which exist where people put them and are not read in this version.
//!
//! Keeps true: a file is looked for in a bounded number of places, and only its existence is looked at; the file that
//! the user named is read and so never in the way.
//!
//! Must not know: what stands in the files, which command asks.

use std::path::{Path, PathBuf};

use super::Env;
use super::error::{ConfigError, ConfigErrors, Place};

const FILE: &str = "pirn.toml";
/// Directories looked at on the way up from the working directory.
const DEPTH_MAX: usize = 64;

/// A project or user file nobody named is an error, since a run without it would go by other settings than those
/// written down; `named` is that of `--config`, relative to `cwd`, else `PIRN_CONFIG` counts.
pub fn refuse_unread(env: &Env, cwd: &Path, named: Option<&Path>) -> Result<(), ConfigErrors> {
    let named = named.map(Path::to_path_buf).or_else(|| env.path("PIRN_CONFIG"));
    let named = named.and_then(|named| cwd.join(named).canonicalize().ok());
    let is_named = |path: &Path| named.is_some() && path.canonicalize().ok() == named;
    let found =
        project_file(env, cwd).into_iter().chain(user_files(env)).find(|path| path.is_file() && !is_named(path));
    let error = found.map(|path| ConfigError {
        at: Place::File(path.display().to_string().into()),
        message: format!("{FILE} is found but project and user files are not read in this version"),
        suggestion: None,
    });
    ConfigErrors::from_list(error.into_iter().collect()).map_or(Ok(()), Err)
}

/// The nearest one, up to the directory that holds `.git`, and not beyond the home directory.
fn project_file(env: &Env, cwd: &Path) -> Option<PathBuf> {
    let home = env.home();
    for directory in cwd.ancestors().take(DEPTH_MAX) {
        let file = directory.join(FILE);
        if file.is_file() {
            return Some(file);
        }
        if home.as_deref() == Some(directory) || directory.join(".git").exists() {
            return None;
        }
    }
    None
}

/// Where a user or a system keeps one.
fn user_files(env: &Env) -> impl Iterator<Item = PathBuf> {
    let absolute = |name: &str| env.path(name).filter(|path| path.is_absolute());
    let configured = absolute("XDG_CONFIG_HOME").map(|dir| dir.join("pirn").join(FILE));
    let of_home = env.home().map(|home| home.join(".config").join("pirn").join(FILE));
    let own = env.path("PIRN_HOME").map(|dir| dir.join("config").join(FILE));
    let system = Path::new("/etc/pirn").join(FILE);
    configured.into_iter().chain(of_home).chain(own).chain([system])
}
