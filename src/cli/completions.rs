//! The completion scripts and the manual page that the program carries.
//!
//! Keeps true: they are the files in `completions/`, which a test holds against what the generator makes of the
//! description; the generator is no part of the program.
//!
//! Must not know: what a script says, where it is installed.

use super::Shell;
use crate::model::{ErrorKind, ErrorRecord, Packed};

include!(concat!(env!("OUT_DIR"), "/completions.rs"));

/// The completion script of a shell, or the manual page.
pub fn completions(shell: Shell) -> Result<String, ErrorRecord> {
    let name = shell.file_name();
    let found = SCRIPTS.iter().find(|(file, _)| *file == name);
    found
        .map(|(_, script)| script.unpack())
        .ok_or_else(|| ErrorRecord::new(ErrorKind::Internal, format!("the program was built without {name}")))?
}
