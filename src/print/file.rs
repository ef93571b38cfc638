//! Files that a caller names for output: how they are opened.
//!
//! Keeps true: `/dev/fd/N` and its other spellings are the caller's own descriptor, with its place in the file, and
//! never one of ours; what is created here nobody else can read.
//!
//! Must not know: what is written, what a failure means for the run.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Permissions of a new file that holds a conversation.
const PRIVATE: u32 = 0o600;

/// Gives a descriptor of the caller's once more, by its number.
pub type Inherited = fn(i32) -> io::Result<OwnedFd>;

/// Opens a file for events, empty. Waits for a reader where it is a named pipe.
///
/// # Errors
/// It cannot be opened for writing.
pub fn create_private(path: &Path, inherited: Inherited) -> io::Result<File> {
    match descriptor(path) {
        Some(number) => inherited(number).map(File::from),
        None => OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path),
    }
}

/// Opens a file for a log, at its end. Waits for a reader where it is a named pipe.
///
/// # Errors
/// It cannot be opened for writing.
pub fn append_private(path: &Path, inherited: Inherited) -> io::Result<File> {
    match descriptor(path) {
        Some(number) => inherited(number).map(File::from),
        None => OpenOptions::new().append(true).create(true).mode(PRIVATE).open(path),
    }
}

/// The number in a path that names a descriptor.
pub(super) fn descriptor(path: &Path) -> Option<i32> {
    let path = path.to_str()?;
    match path {
        "/dev/stdin" => Some(0),
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => {
            let number = path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"))?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
        }
    }
}

/// What went wrong, without the operating system's number.
pub fn io_reason(error: &io::Error) -> String {
    let text = error.to_string();
    let reason = text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason);
    let mut letters = reason.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::{descriptor, io_reason};

    #[test]
    fn a_descriptor_has_several_names() {
        for (path, number) in [
            ("/dev/stdout", Some(1)),
            ("/dev/stderr", Some(2)),
            ("/dev/fd/3", Some(3)),
            ("/proc/self/fd/12", Some(12)),
            ("/dev/fd/", None),
            ("/dev/fd/-1", None),
            ("/dev/fd/3/x", None),
            ("/dev/fd/99999999999", None),
            ("/dev/null", None),
            ("dev/fd/3", None),
        ] {
            assert_eq!(descriptor(Path::new(path)), number, "{path}");
        }
    }

    #[test]
    fn a_reason_is_words_only() {
        assert_eq!(io_reason(&io::Error::from_raw_os_error(libc::ENOSPC)), "no space left on device");
        assert_eq!(io_reason(&io::Error::other("of our own")), "of our own");
    }
}
