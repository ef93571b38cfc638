//! Which shell runs a command, and how the command gets there (tool rules B1, B14).
//!
//! Keeps true: no login, no files of the shell; a command too long for an argument is in a file that only the user can
//! read, as long as the command runs.
//!
//! Must not know: what the command is.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// What runs commands where it exists.
const BASH: &str = "/bin/bash";
/// Looked up on the path of the child, in this order, where it does not.
const OTHERS: [&str; 2] = ["bash", "sh"];
/// Bytes of one argument on Linux, the NUL behind it included; other systems allow more.
const ARGUMENT_BYTES_MAX: usize = 128 << 10;

/// The shells to try, in order: the configured one alone, or the first of the known ones that exists.
pub(super) fn candidates(configured: Option<&Path>) -> Vec<PathBuf> {
    match configured {
        Some(shell) => vec![shell.to_owned()],
        None if Path::new(BASH).exists() => vec![BASH.into()],
        None => OTHERS.map(PathBuf::from).to_vec(),
    }
}

/// A command as a shell gets it.
#[derive(Debug)]
pub(super) enum Script {
    Argument(String),
    /// Removed when dropped.
    File(TempPath),
}

impl Script {
    /// The command behind the configured lines; `directory` is asked for where a file is needed. Blocks then.
    pub(super) fn new(
        prefix: &str,
        command: &str,
        directory: impl FnOnce() -> io::Result<PathBuf>,
    ) -> io::Result<Self> {
        let script = match prefix.trim_end_matches('\n') {
            "" => command.to_owned(),
            prefix => format!("{prefix}\n{command}"),
        };
        if !is_too_long(&script) {
            return Ok(Self::Argument(script));
        }
        // Made with mode 0600.
        let mut file = tempfile::Builder::new().prefix("command-").suffix(".sh").tempfile_in(directory()?)?;
        file.write_all(script.as_bytes())?;
        Ok(Self::File(file.into_temp_path()))
    }

    /// The arguments of the shell.
    pub(super) fn args(&self) -> Vec<OsString> {
        match self {
            Self::Argument(script) => vec!["-c".into(), script.into()],
            Self::File(path) => vec![path.as_os_str().to_owned()],
        }
    }
}

/// Whether a script needs a file.
pub(super) fn is_too_long(script: &str) -> bool {
    script.len() >= ARGUMENT_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::{ARGUMENT_BYTES_MAX, Script, candidates};

    #[test]
    fn a_configured_shell_is_the_only_one_b1() {
        assert_eq!(candidates(Some(Path::new("/opt/zsh"))), [Path::new("/opt/zsh")]);
        assert!(!candidates(None).is_empty());
    }

    #[test]
    fn a_command_too_long_for_an_argument_goes_into_a_private_file_b14() {
        let directory = tempfile::tempdir().unwrap();
        let script =
            |prefix: &str, command: &str| Script::new(prefix, command, || Ok(directory.path().to_owned())).unwrap();
        assert_eq!(script("", "a").args(), ["-c", "a"]);
        assert_eq!(script("set -e\nx=1\n", "a").args(), ["-c", "set -e\nx=1\na"]);
        let longest = "x".repeat(ARGUMENT_BYTES_MAX - 1);
        assert_eq!(script("", &longest).args(), ["-c", &longest]);
        let long = script("p", &longest);
        let [path] = long.args().try_into().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("p\n{longest}"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        drop(long);
        assert!(!Path::new(&path).exists());
    }
}
