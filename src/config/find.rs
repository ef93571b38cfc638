//! Which configuration files there are.
//!
//! Keeps true: files are looked for in a bounded number of places; whatever stands under the name of a project file is
//! found, and what is not a regular file is an error instead of a wait; a file that is named or that counts as another
//! layer is not found twice.
//!
//! Must not know: what stands in the files, whether they are trusted.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Env;
use super::error::FileLayer;
use super::file::{FileError, open_regular};
use super::place::PlaceError;

/// The name of a configuration file.
pub(super) const FILE: &str = "pirn.toml";
const SYSTEM_FILE: &str = "/etc/pirn/pirn.toml";
/// Directories looked at on the way up from the working directory.
pub(super) const DEPTH_MAX: usize = 256;
/// What the root directory of a project holds.
const ROOT_MARK: &str = ".git";

/// A file that is there.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) layer: FileLayer,
    /// Absolute if the working directory is.
    pub(super) path: PathBuf,
    /// As errors name it: short where it lies in the working directory.
    pub(super) shown: String,
    pub(super) file: Result<File, FileError>,
}

/// The files that are found by their place, lowest layer first.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    pub(super) found: Vec<Found>,
    pub(super) warnings: Vec<String>,
    /// Why the user's file could not be looked for. No home is no reason.
    pub(super) problem: Option<PlaceError>,
}

/// Looks for system, user and project files; `named` is that of `--config`, which is none of them.
pub(super) fn discover(env: &Env, cwd: &Path, named: Option<&Path>) -> Discovery {
    discover_with(Path::new(SYSTEM_FILE), env, cwd, named)
}

fn discover_with(system: &Path, env: &Env, cwd: &Path, named: Option<&Path>) -> Discovery {
    let mut discovery = Discovery::default();
    let mut taken: Vec<PathBuf> = named.and_then(|named| named.canonicalize().ok()).into_iter().collect();
    let user = match env.config_dir() {
        Ok(dir) => Some(dir.join(FILE)),
        Err(problem @ PlaceError::Relative) => {
            discovery.problem = Some(problem);
            None
        }
        Err(PlaceError::Unset { .. } | PlaceError::RelativeHome { .. }) => None,
    };
    for (layer, path) in [
        (FileLayer::System, Some(system.to_path_buf())),
        (FileLayer::User, user),
        (FileLayer::Project, project_file(env, cwd)),
    ] {
        let Some(path) = path else { continue };
        let real = path.canonicalize().ok();
        if real.as_ref().is_some_and(|real| taken.contains(real)) {
            continue;
        }
        taken.extend(real);
        discovery.look(layer, path, cwd);
    }
    discovery
}

impl Discovery {
    fn look(&mut self, layer: FileLayer, path: PathBuf, cwd: &Path) {
        let file = open_regular(&path);
        if let (Err(FileError::Io(error)), FileLayer::System | FileLayer::User) = (&file, layer) {
            match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => return,
                // Such as the home of root for somebody else in a container.
                ErrorKind::PermissionDenied => {
                    return self.warnings.push(format!("{} cannot be read: {error}", path.display()));
                }
                _ => {}
            }
        }
        let shown = path.strip_prefix(cwd).unwrap_or(&path).display().to_string();
        self.found.push(Found { layer, path, shown, file });
    }
}

/// The nearest `pirn.toml` from a directory up, to the one that holds `.git` and not beyond the home directory,
/// whatever stands there.
pub fn project_file(env: &Env, cwd: &Path) -> Option<PathBuf> {
    let inside = upwards(env, cwd).0;
    inside.into_iter().map(|dir| dir.join(FILE)).find(|file| file.symlink_metadata().is_ok())
}

/// The directories of a project from the working directory up, and whether the last one is the project's root.
/// Without one they end at the home directory or at the root of the file system.
pub(super) fn upwards(env: &Env, cwd: &Path) -> (Vec<PathBuf>, bool) {
    let home = env.home();
    let real_home = home.as_ref().and_then(|home| home.canonicalize().ok());
    let is_home = |dir: &Path| [&home, &real_home].iter().any(|home| home.as_deref() == Some(dir));
    let mut dirs = Vec::new();
    for dir in cwd.ancestors().take(DEPTH_MAX) {
        dirs.push(dir.to_path_buf());
        if dir.join(ROOT_MARK).symlink_metadata().is_ok() {
            return (dirs, true);
        }
        if is_home(dir) {
            break;
        }
    }
    (dirs, false)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::discover_with;
    use crate::config::{Env, FileLayer};

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::File::create(path).unwrap();
    }

    #[test]
    fn system_user_and_project_files_are_found_in_this_order_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        let (system, user, project) = (at("etc/pirn.toml"), at("home/.config/pirn/pirn.toml"), at("work/pirn.toml"));
        let env = Env::from_pairs([("HOME", at("home"))]);
        let found = |cwd: &str, named: Option<&Path>| -> Vec<FileLayer> {
            discover_with(&system, &env, &at(cwd), named).found.iter().map(|found| found.layer).collect()
        };
        std::fs::create_dir(at("work")).unwrap();
        assert_eq!(found("work", None), []);
        for path in [&system, &user, &project] {
            touch(path);
        }
        assert_eq!(found("work", None), [FileLayer::System, FileLayer::User, FileLayer::Project]);
        assert_eq!(found("work", Some(&at("work/./pirn.toml"))), [FileLayer::System, FileLayer::User]);
        assert_eq!(
            found("home/.config/pirn", None),
            [FileLayer::System, FileLayer::User],
            "the user's own is no project"
        );
        std::fs::remove_file(&system).unwrap();
        std::fs::create_dir(&system).unwrap();
        assert!(discover_with(&system, &env, &at("work"), None).found[0].file.is_err(), "a directory is no file");
    }
}
