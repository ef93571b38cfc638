//! Context files: what people write down for every run in a directory, such as `AGENTS.md`.
//!
//! Keeps true: nearest first, then the user's own; all of them together have one limit, and what is over it is said; a
//! file counts once, whatever names it has; nothing is waited for, and a file that cannot be used is a warning.
//!
//! Must not know: what the texts say, how a prompt shows them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::Env;
use super::file::{FileError, open_regular};
use super::find::upwards;
use super::settings::Settings;

/// A context file, perhaps cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Absolute if the working directory is.
    pub path: PathBuf,
    pub text: String,
}

/// The context files of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextFiles {
    /// Nearest first.
    pub files: Vec<ContextFile>,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

/// Reads the files that `context.files` names: from the working directory up to the project's root, which holds `.git`
/// or else the project file in use, then in the user's configuration directory. Where nothing marks a root, only
/// the working directory is looked at: those above may be anybody's. None with `--bare`.
pub fn context_files(settings: &Settings, cwd: &Path, env: &Env) -> ContextFiles {
    let mut gathered = Gathered { left: settings.context.max_bytes, ..Gathered::default() };
    if settings.bare {
        return gathered.result;
    }
    let limit = shown_size(settings.context.max_bytes);
    let user = env.config_dir().ok();
    for dir in inside(settings, cwd, env).into_iter().chain(user) {
        for name in settings.context.files.iter().filter(|name| !name.is_empty()) {
            gathered.look(&dir.join(name), &limit);
        }
    }
    gathered.result
}

/// The directories of the project, nearest first.
fn inside(settings: &Settings, cwd: &Path, env: &Env) -> Vec<PathBuf> {
    let (dirs, marked) = upwards(env, cwd);
    let project = || dirs.iter().position(|dir| Some(dir) == settings.project.as_ref());
    let count = if marked { dirs.len() } else { project().unwrap_or_default() + 1 };
    dirs.into_iter().take(count).collect()
}

#[derive(Default)]
struct Gathered {
    result: ContextFiles,
    /// Real paths of what was looked at.
    seen: Vec<PathBuf>,
    /// Bytes.
    left: u64,
}

impl Gathered {
    fn look(&mut self, path: &Path, limit: &str) {
        if path.symlink_metadata().is_err() {
            return;
        }
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if self.seen.contains(&real) {
            return;
        }
        self.seen.push(real);
        let shown = path.display();
        if self.left == 0 {
            return self.warn(format!("{shown} is left out: context files are limited to {limit} together"));
        }
        let read = open_regular(path).and_then(|file| self.read(&file));
        let (text, cut) = match read {
            Ok(read) => read,
            Err(problem) => return self.warn(format!("{shown} is left out: {problem}")),
        };
        if text.contains('\0') {
            return self.warn(format!("{shown} is left out: it is not text"));
        }
        if let Some(at) = text.find('\u{fffd}') {
            self.warn(format!("{shown} is not UTF-8 near byte {at}; what cannot be read is replaced"));
        }
        if text.trim().is_empty() && !cut {
            return;
        }
        let text = if cut {
            self.left = 0;
            self.warn(format!("{shown} is cut: context files are limited to {limit} together"));
            format!("{}[cut at {limit}]", whole_lines(&text))
        } else {
            self.left = self.left.saturating_sub(u64::try_from(text.len()).unwrap_or(u64::MAX));
            text
        };
        self.result.files.push(ContextFile { path: path.to_path_buf(), text });
    }

    /// The text as far as the limit allows, and whether there is more.
    fn read(&self, file: &File) -> Result<(String, bool), FileError> {
        let mut bytes = Vec::new();
        file.take(self.left.saturating_add(1)).read_to_end(&mut bytes)?;
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let cut = bytes.len() > left;
        bytes.truncate(left);
        if cut
            && let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            // The limit split a character.
            bytes.truncate(error.valid_up_to());
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok((text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned(), cut))
    }

    fn warn(&mut self, warning: String) {
        self.result.warnings.push(warning);
    }
}

/// The text up to its last line break; of one long line, all of it on a line of its own.
fn whole_lines(text: &str) -> String {
    match text.rsplit_once('\n') {
        Some((lines, _)) => format!("{lines}\n"),
        None if text.is_empty() => String::new(),
        None => format!("{text}\n"),
    }
}

/// A size as people write it.
fn shown_size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1 << 20, "MB"), (1 << 10, "KB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}
