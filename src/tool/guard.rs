//! Confinement of file tools to workspace roots (tool rule P7).
//!
//! Keeps true: the real path decides, links followed as far as they exist, so no link leads out. It is a guard against
//! mistakes, not a sandbox: between the check and the opening a path can change.
//!
//! Must not know: which tool asks.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::path::plain;
use crate::port::{Access, Denied, Guard};

/// Links followed while a real path is found; the kernel's own limit is 40 too.
const LINKS_MAX: usize = 40;

/// Which accesses are confined (`tools.confine`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    Off,
    #[default]
    Write,
    All,
}

/// Lets paths through whose real path is inside a root or the system's temporary directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confine {
    confinement: Confinement,
    /// Real paths.
    roots: Vec<PathBuf>,
    /// Real path.
    temporary: Option<PathBuf>,
}

impl Confine {
    /// A guard over absolute `roots`; `temporary` is the system's temporary directory.
    pub fn new(confinement: Confinement, roots: &[PathBuf], temporary: Option<&Path>) -> Self {
        let roots = roots.iter().filter_map(|root| real_path(root)).collect();
        Self { confinement, roots, temporary: temporary.and_then(real_path) }
    }

    fn confines(&self, access: Access) -> bool {
        match (self.confinement, access) {
            (Confinement::Off, _) | (Confinement::Write, Access::Read) => false,
            (Confinement::Write, Access::Write) | (Confinement::All, _) => true,
        }
    }
}

impl Guard for Confine {
    fn check(&self, path: &Path, shown: &str, access: Access) -> Result<(), Denied> {
        if !self.confines(access) {
            return Ok(());
        }
        let inside = |real: &PathBuf| self.roots.iter().chain(&self.temporary).any(|root| real.starts_with(root));
        if real_path(path).as_ref().is_some_and(inside) {
            return Ok(());
        }
        let roots: Vec<_> = self.roots.iter().map(|root| plain(&root.to_string_lossy())).collect();
        let reason = format!("{shown} is outside the allowed roots ({}).", roots.join(", "));
        Err(Denied { rule: "confine".to_owned(), reason })
    }
}

/// Where an absolute path leads, links followed, as far as it exists; the rest is taken as written. A dangling link
/// counts as the place it names, because a write would create that. `None` for a relative path and for a loop.
pub(super) fn real_path(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let mut open: VecDeque<Step> = steps(path).collect();
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(step) = open.pop_front() {
        let name = match step {
            Step::Root => {
                real = PathBuf::from("/");
                continue;
            }
            Step::Parent => {
                real.pop();
                continue;
            }
            Step::Name(name) => name,
        };
        real.push(name);
        if let Ok(target) = std::fs::read_link(&real) {
            links += 1;
            if links > LINKS_MAX {
                return None;
            }
            real.pop();
            for step in steps(&target).collect::<Vec<_>>().into_iter().rev() {
                open.push_front(step);
            }
        }
    }
    Some(real)
}

enum Step {
    Root,
    Parent,
    Name(OsString),
}

fn steps(path: &Path) -> impl Iterator<Item = Step> {
    path.components().filter_map(|component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Parent),
        Component::Normal(name) => Some(Step::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{Confine, Confinement};
    use crate::port::{Access, Guard};

    #[test]
    fn a_link_can_not_step_out_of_the_roots_p7() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let root = base.join("root");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::create_dir(base.join("tmp")).unwrap();
        symlink("/etc", root.join("esc")).unwrap();
        symlink("../out.txt", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("in", root.join("inner")).unwrap();
        symlink(&root, base.join("alias")).unwrap();
        // The root itself may be named through a link.
        let guard = |confinement| Confine::new(confinement, &[base.join("alias")], Some(&base.join("tmp")));
        for (path, allowed) in [
            ("in/x", true),
            ("inner/new/deep", true),
            ("in/../in/x", true),
            ("../alias/in/x", true),
            ("../tmp/x", true),
            ("", true),
            ("../out.txt", false),
            ("../root2", false),
            ("esc/x", false),
            ("dangling", false),
            ("loop", false),
            ("inner/../../out.txt", false),
        ] {
            let whole = root.join(path);
            let verdict = guard(Confinement::Write).check(&whole, path, Access::Write);
            assert_eq!(verdict.is_ok(), allowed, "{path}");
            if let Err(denied) = verdict {
                let text = format!("{path} is outside the allowed roots ({}).", root.display());
                assert_eq!((denied.rule.as_str(), denied.reason), ("confine", text));
            }
            assert!(guard(Confinement::Off).check(&whole, path, Access::Write).is_ok());
            assert!(guard(Confinement::Write).check(&whole, path, Access::Read).is_ok());
            assert_eq!(guard(Confinement::All).check(&whole, path, Access::Read).is_ok(), allowed, "{path}");
        }
        assert!(guard(Confinement::All).check(Path::new("relative"), "relative", Access::Read).is_err());
    }
}
