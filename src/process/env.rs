//! The environment of children: what they inherit, what is withheld, what they are told.
//!
//! Keeps true: a credential variable and our own settings reach a child only where they are named (V1); every child gets
//! an explicit map, computed from a snapshot and never from the environment of the moment; values never print.
//!
//! Must not know: which variables are credentials of which provider, who reads the environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

/// The variables of a child.
pub(super) type Variables = BTreeMap<OsString, OsString>;

/// Names that look like those of secrets (V2).
const SECRET_NAMES: [&str; 10] = [
    "*API_KEY*",
    "*APIKEY*",
    "*SECRET*",
    "*TOKEN*",
    "*PASSWORD*",
    "*PASSWD*",
    "*CREDENTIAL*",
    "*PRIVATE_KEY*",
    "*_AUTH",
    "AWS_*KEY*",
];

/// What `core` inherits (V2).
const CORE_NAMES: [&str; 12] =
    ["HOME", "LOGNAME", "USER", "PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "LANG", "LC_*", "TZ", "TERM"];

/// What `none` inherits.
const NO_NAMES: [&str; 1] = ["PATH"];

/// Files that a shell runs before its command (B1).
const SHELL_FILES: [&str; 2] = ["BASH_ENV", "ENV"];

/// Variables of ours, which are for this process and not for its children (V1).
const OURS: &str = "PIRN_*";

/// No colours, no pager, no questions (B15). Gives way to `set`, to a name in `pass`, and to what a child adds.
const PRESENTATION: [(&str, &str); 6] = [
    ("NO_COLOR", "1"),
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GH_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// Any of these decides the character set; with none of them set a child gets UTF-8.
const CHARACTER_SET: [&str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];

/// Named by every process of a run; the sweep looks for it (X4).
pub(super) const TOKEN_NAME: &str = "PIRN_RUN_TOKEN";
/// Named by every process of a call.
pub(super) const CALL_NAME: &str = "PIRN_CALL_ID";
pub(super) const SESSION_NAME: &str = "PIRN_SESSION_ID";
const DEPTH_NAME: &str = "PIRN_DEPTH";
const MARK_NAME: &str = "PIRN";

/// How much of the environment children inherit (`env.inherit`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    /// All but what looks like a secret.
    #[default]
    Filtered,
    /// What programs need to find their way.
    Core,
    /// `PATH`.
    None,
    /// All but credentials and our own variables.
    All,
}

/// The policy of `[env]`.
#[derive(Clone, Default)]
pub struct EnvPolicy {
    pub inherit: Inherit,
    /// Names that are always passed. A glob lifts the filters; what V1 withholds must be named in full.
    pub pass: Vec<String>,
    /// Globs (`*`, `?`), case-insensitive, of what is withheld beside.
    pub drop: Vec<String>,
    /// Set for every child.
    pub set: Vec<(String, String)>,
    /// Names of variables that hold keys of providers, whether set or not (V1).
    pub credentials: Vec<String>,
    /// Our own depth; children get one more.
    pub depth: u32,
}

impl fmt::Debug for EnvPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvPolicy").field("inherit", &self.inherit).finish_non_exhaustive()
    }
}

/// A policy applied to a snapshot of the environment. `Debug` shows no values.
#[derive(Clone)]
pub struct ChildEnv {
    policy: EnvPolicy,
    inherited: Variables,
    withheld: Variables,
}

impl fmt::Debug for ChildEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildEnv").field("inherit", &self.policy.inherit).finish_non_exhaustive()
    }
}

/// What one child gets beside the policy.
#[derive(Clone, Copy, Default)]
pub(super) struct Extra<'a> {
    pub(super) pass: &'a [String],
    pub(super) add: &'a [(OsString, OsString)],
    /// Where the child starts; an inherited `PWD` would name our own directory.
    pub(super) cwd: Option<&'a Path>,
    pub(super) token: &'a str,
    pub(super) call_id: Option<&'a str>,
    pub(super) session_id: Option<&'a str>,
}

impl ChildEnv {
    /// Applies a policy to the environment of this process, as it was at start.
    pub fn new(policy: EnvPolicy, parent: Vec<(OsString, OsString)>) -> Self {
        let named = parent.into_iter().filter(|(name, _)| !name.is_empty());
        let (inherited, withheld) = named.partition(|(name, _)| policy.inherits(&name.to_string_lossy()));
        Self { policy, inherited, withheld }
    }

    /// Names that children do not inherit, sorted.
    pub fn withheld(&self) -> Vec<String> {
        self.withheld.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// All variables of one child.
    pub(super) fn for_child(&self, extra: &Extra<'_>) -> Variables {
        let mut variables = self.inherited.clone();
        for name in extra.pass {
            if let Some(value) = self.withheld.get(OsStr::new(name)) {
                variables.insert(name.into(), value.clone());
            }
        }
        if let (Some(inherited), Some(cwd)) = (variables.get_mut(OsStr::new("PWD")), extra.cwd) {
            *inherited = cwd.into();
        }
        let passed = |name: &str| self.policy.pass.iter().chain(extra.pass).any(|passed| passed == name);
        for (name, value) in PRESENTATION {
            if !(passed(name) && variables.contains_key(OsStr::new(name))) {
                variables.insert(name.into(), value.into());
            }
        }
        variables.extend(self.policy.set.iter().map(|(name, value)| (name.into(), value.into())));
        variables.extend(extra.add.iter().cloned());
        // An empty variable counts as unset, as it does for the C library.
        let decides = |name: &&str| variables.get(OsStr::new(name)).is_some_and(|value| !value.is_empty());
        if !CHARACTER_SET.iter().any(decides) {
            variables.insert("LANG".into(), "C.UTF-8".into());
        }
        let depth = self.policy.depth.saturating_add(1).to_string();
        let identity = [
            (MARK_NAME, Some("1")),
            (SESSION_NAME, extra.session_id),
            (CALL_NAME, extra.call_id),
            (TOKEN_NAME, Some(extra.token)),
            (DEPTH_NAME, Some(&depth)),
        ];
        variables.extend(identity.iter().filter_map(|(name, value)| Some(((*name).into(), value.as_ref()?.into()))));
        variables
    }
}

impl EnvPolicy {
    fn inherits(&self, name: &str) -> bool {
        if self.pass.iter().any(|passed| passed == name) {
            return true;
        }
        let is_credential = self.credentials.iter().any(|credential| credential.eq_ignore_ascii_case(name));
        if is_credential || matches(OURS, name) || SHELL_FILES.contains(&name) {
            return false;
        }
        if self.pass.iter().any(|pattern| matches(pattern, name)) {
            return true;
        }
        let any = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, name));
        let kept = match self.inherit {
            Inherit::All => true,
            Inherit::Filtered => !any(&SECRET_NAMES),
            Inherit::Core => any(&CORE_NAMES),
            Inherit::None => any(&NO_NAMES),
        };
        kept && !self.drop.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether a variable is one that programs need to find their way, whatever is withheld beside: `HOME`, `PATH`.
pub fn is_core(name: &str) -> bool {
    CORE_NAMES.iter().any(|pattern| matches(pattern, name))
}

/// Whether a glob with `*` and `?` matches a whole name, without regard to ASCII case.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut seen) = (0, 0);
    // The last star, and where the name goes on if it takes one character more.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&char) = name.get(seen) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, seen + 1));
                at += 1;
            }
            Some(&want) if want == '?' || want.eq_ignore_ascii_case(&char) => {
                at += 1;
                seen += 1;
            }
            Some(_) | None => {
                let Some((behind, next)) = star else {
                    return false;
                };
                (at, seen) = (behind, next);
                star = Some((behind, next + 1));
            }
        }
    }
    pattern.iter().skip(at).all(|char| *char == '*')
}

#[cfg(test)]
mod tests;
