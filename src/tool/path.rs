//! From what a model wrote to the file it meant (tool rules P1–P5).
//!
//! Keeps true: the guard is asked before anything is known about a path, guesses included; the first hit wins; errors
//! show the path as it was written.
//!
//! Must not know: what is done with the file.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use unicode_normalization::UnicodeNormalization as _;

use super::Failure;
use crate::port::{Access, Guard, ToolCtx};

/// U+202F, which macOS puts before AM and PM in names of screenshots.
const NARROW_NO_BREAK_SPACE: char = '\u{202f}';
const RIGHT_SINGLE_QUOTE: &str = "\u{2019}";

/// A path as text that a model reads: no control characters but TAB (tool rule G7).
pub(super) fn plain(path: &str) -> String {
    path.chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

/// What a path is read against.
pub(super) struct Places {
    pub(super) cwd: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) guard: Arc<dyn Guard>,
}

/// A file that exists.
#[derive(Debug)]
pub(super) struct Located {
    /// Absolute.
    pub(super) path: PathBuf,
    /// Whether a shell in the run's directory would take the model's words for the same file.
    pub(super) as_written: bool,
}

impl Places {
    pub(super) fn new(ctx: &ToolCtx, home: Option<&PathBuf>) -> Self {
        Self { cwd: ctx.cwd.clone(), home: home.cloned(), guard: Arc::clone(&ctx.guard) }
    }

    /// Finds an existing file or directory, guessing at what may have happened to its name on the way through a model.
    /// `None` if there is nothing. A path the guard refuses fails before anything is known about it; guesses it
    /// refuses are passed over.
    pub(super) fn locate(&self, written: &str) -> Result<Option<Located>, Failure> {
        let path = self.absolute(written)?;
        let shown = plain(written);
        self.guard.check(&path, &shown, Access::Read)?;
        if exists(&path) {
            let as_written = !written.starts_with('~') && matches!(file_url(written), FileUrl::No);
            return Ok(Some(Located { path, as_written }));
        }
        let bare = written.strip_prefix('@').filter(|bare| !bare.is_empty());
        let names = bare.into_iter().chain([written]);
        let guessed = names.clone().flat_map(guesses);
        for name in bare.into_iter().map(str::to_owned).chain(guessed) {
            // A guess may be no path at all.
            let Ok(path) = self.absolute(&name) else { continue };
            if self.guard.check(&path, &shown, Access::Read).is_ok() && exists(&path) {
                return Ok(Some(Located { path, as_written: false }));
            }
        }
        Ok(None)
    }

    /// Where a file is to be written, whether it exists or not. Nothing is guessed but what a leading `@` means: it is
    /// dropped where neither the file nor its first directory has the literal name, and the other directory exists.
    ///
    /// # Errors
    /// What is no path; what the guard refuses, before anything is known about it.
    pub(super) fn destination(&self, written: &str) -> Result<PathBuf, Failure> {
        let shown = plain(written);
        let path = self.absolute(written)?;
        self.guard.check(&path, &shown, Access::Write)?;
        let Some(bare) = written.strip_prefix('@').filter(|bare| !bare.is_empty()) else { return Ok(path) };
        let scope = written.split_once('/').map(|(scope, _)| self.cwd.join(scope));
        if exists(&path) || scope.is_some_and(|scope| exists(&scope)) {
            return Ok(path);
        }
        let other = self.absolute(bare)?;
        self.guard.check(&other, &shown, Access::Write)?;
        let has_directory = other.parent().is_some_and(exists);
        Ok(if has_directory { other } else { path })
    }

    /// The absolute form, `.` and `..` cleaned up as text.
    fn absolute(&self, written: &str) -> Result<PathBuf, Failure> {
        let invalid = |what: &str| Failure::new("invalid_args", format!("Invalid path: {what}."));
        let path = match file_url(written) {
            FileUrl::No => self.expanded(written),
            FileUrl::Foreign => return Err(invalid("a file: URL must be of this host, with an absolute path")),
            FileUrl::Path(path) => path,
        };
        let bytes = path.as_os_str().as_encoded_bytes();
        if bytes.is_empty() {
            return Err(invalid("it is empty"));
        }
        if bytes.iter().any(|byte| matches!(byte, 0 | b'\n')) {
            return Err(invalid("it holds a NUL or a line feed"));
        }
        Ok(cleaned(&self.cwd.join(path)))
    }

    fn expanded(&self, written: &str) -> PathBuf {
        match (written.strip_prefix('~'), &self.home) {
            (Some(""), Some(home)) => home.clone(),
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(written),
        }
    }
}

fn exists(path: &Path) -> bool {
    // Whatever else went wrong, opening it will say.
    std::fs::metadata(path)
        .err()
        .is_none_or(|error| !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

enum FileUrl {
    No,
    /// Of another host, or without an absolute path.
    Foreign,
    Path(PathBuf),
}

fn file_url(written: &str) -> FileUrl {
    let scheme = written.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("file:"));
    let Some(rest) = scheme.and(written.get(5..)) else { return FileUrl::No };
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None if rest.starts_with('/') => rest,
        // `file:name` is a name like any other.
        None => return FileUrl::No,
    };
    if !path.starts_with('/') {
        return FileUrl::Foreign;
    }
    FileUrl::Path(PathBuf::from(OsString::from_vec(percent_decoded(path))))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        // `from_str_radix` also takes a sign.
        let hex = hex.filter(|hex| *byte == b'%' && hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let decoded = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(decoded.unwrap_or(*byte));
        rest = if decoded.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    out
}

fn cleaned(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// What the name may be on disk (tool rule P3), in this order, each different from `name`.
fn guesses(name: &str) -> Vec<String> {
    let decomposed: String = name.nfd().collect();
    let candidates = [
        name.chars().map(|c| if is_wide_space(c) { ' ' } else { c }).collect(),
        narrow_before_am_pm(name),
        decomposed.clone(),
        name.replace('\'', RIGHT_SINGLE_QUOTE),
        decomposed.replace('\'', RIGHT_SINGLE_QUOTE),
    ];
    candidates.into_iter().filter(|candidate| candidate != name).collect()
}

fn is_wide_space(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{2000}'..='\u{200a}' | NARROW_NO_BREAK_SPACE | '\u{205f}' | '\u{3000}')
}

fn narrow_before_am_pm(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let is_mark = |at: usize| {
        matches!(chars.get(at), Some('A' | 'P' | 'a' | 'p'))
            && matches!(chars.get(at + 1), Some('M' | 'm'))
            && !chars.get(at + 2).is_some_and(|c| c.is_alphanumeric())
    };
    let narrow = |(at, c): (usize, &char)| if *c == ' ' && is_mark(at + 1) { NARROW_NO_BREAK_SPACE } else { *c };
    chars.iter().enumerate().map(narrow).collect()
}

/// Whether a path can be nothing but a directory's.
pub(super) fn names_directory(written: &str) -> bool {
    matches!(written.rsplit('/').next(), Some("" | "." | ".."))
}

/// A path as part of a shell command.
pub(super) fn quoted(path: &str) -> Option<String> {
    // A leading hyphen would be read as an option.
    let path = if path.starts_with('-') { Cow::Owned(format!("./{path}")) } else { Cow::Borrowed(path) };
    shlex::try_quote(&path).ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::{Places, guesses, quoted};
    use crate::tool::{Confine, Confinement};

    fn places() -> Places {
        let guard = Arc::new(Confine::new(Confinement::Off, &[], None));
        Places { cwd: PathBuf::from("/base/dir"), home: Some(PathBuf::from("/home/u")), guard }
    }

    #[test]
    fn paths_are_read_against_directory_and_home_p1_p2() {
        for (written, want) in [
            ("a.txt", "/base/dir/a.txt"),
            ("./a/../b//c/.", "/base/dir/b/c"),
            ("../../../x", "/x"),
            ("/etc/x", "/etc/x"),
            ("~", "/home/u"),
            ("~/x", "/home/u/x"),
            ("~//x", "/home/u/x"),
            ("~other/x", "/base/dir/~other/x"),
            ("a~", "/base/dir/a~"),
            ("file:///tmp/a%20b%2fc", "/tmp/a b/c"),
            ("FILE://localhost/tmp/x%zz%", "/tmp/x%zz%"),
            ("file:/tmp/x", "/tmp/x"),
            ("file:x", "/base/dir/file:x"),
            ("@x", "/base/dir/@x"),
        ] {
            assert_eq!(places().absolute(written).unwrap(), Path::new(want), "{written}");
        }
        let mut homeless = places();
        homeless.home = None;
        assert_eq!(homeless.absolute("~/x").unwrap(), Path::new("/base/dir/~/x"));
    }

    #[test]
    fn what_is_no_path_is_refused_p4() {
        for (written, what) in [
            ("", "it is empty"),
            ("a\0b", "it holds a NUL or a line feed"),
            ("a\nb", "it holds a NUL or a line feed"),
            ("file:///a%00", "it holds a NUL or a line feed"),
            ("file://host/x", "a file: URL must be of this host, with an absolute path"),
            ("file://localhostile/x", "a file: URL must be of this host, with an absolute path"),
        ] {
            let failure = places().absolute(written).unwrap_err();
            assert_eq!((failure.code, failure.message), ("invalid_args", format!("Invalid path: {what}.")));
        }
    }

    #[test]
    fn guesses_come_in_order_p3() {
        assert_eq!(guesses("plain.txt"), [""; 0]);
        assert_eq!(guesses("a\u{a0}b\u{3000}c"), ["a b c"]);
        assert_eq!(guesses("9.41 AM.png"), ["9.41\u{202f}AM.png"]);
        assert_eq!(guesses("9 AMX"), [""; 0]);
        assert_eq!(guesses("d'\u{e9}"), ["d'e\u{301}", "d\u{2019}\u{e9}", "d\u{2019}e\u{301}"]);
    }

    #[test]
    fn a_quoted_path_is_one_word() {
        for (path, want) in [("long.txt", "long.txt"), ("my file.txt", "'my file.txt'"), ("-x", "./-x")] {
            assert_eq!(quoted(path).as_deref(), Some(want));
        }
    }
}
