//! The environment: a snapshot, taken once, and what its variables mean to us.
//!
//! Keeps true: nobody else reads the environment; an empty variable counts as unset; values never print.
//!
//! Must not know: which settings win, how colour is decided.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::suggest::nearest;
use crate::model::Secret;

/// Variables of ours that are read, and the setting each one gives, where it gives one.
pub(super) const READ: [(&str, Option<&str>); 13] = [
    ("PIRN_MODEL", Some("model")),
    ("PIRN_THINKING", Some("thinking")),
    ("PIRN_TOOLS", Some("tools.enabled")),
    ("PIRN_TIMEOUT", Some("limits.timeout")),
    ("PIRN_MAX_TURNS", Some("limits.max_turns")),
    ("PIRN_MAX_COST", Some("limits.max_cost")),
    ("PIRN_PROFILE", None),
    ("PIRN_CONFIG", None),
    ("PIRN_HOME", None),
    ("PIRN_TRUST", None),
    ("PIRN_BARE", None),
    ("PIRN_LOG", None),
    ("PIRN_BACKTRACE", None),
];

/// Variables of ours that children get: a pirn below a pirn sees them.
const GIVEN_TO_CHILDREN: [&str; 9] = [
    "PIRN_SESSION_ID",
    "PIRN_CALL_ID",
    "PIRN_RUN_TOKEN",
    "PIRN_DEPTH",
    "PIRN_TOOL",
    "PIRN_HOOK",
    "PIRN_HOOK_KEY",
    "PIRN_OPERATION_ID",
    "PIRN_LANE",
];

/// The arguments of a command tool, `PIRN_ARG_NAME`.
const ARGUMENT_PREFIX: &str = "PIRN_ARG_";

/// A snapshot of the environment. An empty variable counts as unset. `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env {
    vars: BTreeMap<String, OsString>,
}

/// The proxy variables; they may hold passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    pub http: Option<Secret>,
    pub https: Option<Secret>,
    pub all: Option<Secret>,
    pub no_proxy: Option<String>,
}

impl Env {
    /// Reads the environment of this process. Variables whose name is not UTF-8 are nobody's setting.
    #[expect(clippy::disallowed_methods, reason = "this is the only reader of the environment")]
    pub fn from_process() -> Self {
        let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self::from_pairs(named)
    }

    /// An environment of these variables only.
    pub fn from_pairs<N: Into<String>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let vars = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self { vars: vars.filter(|(_, value)| !value.is_empty()).collect() }
    }

    /// Every variable that holds something, for the environments of children.
    pub fn all(&self) -> Vec<(OsString, OsString)> {
        self.vars.iter().map(|(name, value)| (OsString::from(name), value.clone())).collect()
    }

    /// The text of a variable; `None` when it is unset, empty or not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.vars.get(name)?.to_str()
    }

    /// Whether a variable holds anything.
    pub fn is_set(&self, name: &str) -> bool {
        self.vars.contains_key(name)
    }

    /// Whether a variable holds bytes that are not UTF-8.
    pub fn is_unreadable(&self, name: &str) -> bool {
        self.is_set(name) && self.text(name).is_none()
    }

    /// A variable as a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.vars.get(name).map(PathBuf::from)
    }

    /// Whether a switch is on: set, and to none of `0`, `false`, `no`, `off`.
    pub fn switch(&self, name: &str) -> bool {
        let off = |value: &str| ["0", "false", "no", "off"].iter().any(|word| value.eq_ignore_ascii_case(word));
        self.vars.get(name).is_some_and(|value| !value.to_str().is_some_and(off))
    }

    /// Whether a variable says yes in so many words: `1`, `true`, `yes`, `on`. For what must not happen by mistake.
    pub fn agrees(&self, name: &str) -> bool {
        let on = |value: &str| ["1", "true", "yes", "on"].iter().any(|word| value.eq_ignore_ascii_case(word));
        self.text(name).is_some_and(on)
    }

    /// The home directory. A relative one is ignored, and nothing takes its place: the working directory may belong
    /// to somebody else (CFG-05).
    pub fn home(&self) -> Option<PathBuf> {
        self.path("HOME").filter(|home| home.is_absolute())
    }

    /// `SSL_CERT_FILE`.
    pub fn cert_file(&self) -> Option<PathBuf> {
        self.path("SSL_CERT_FILE")
    }

    /// `SSL_CERT_DIR`.
    pub fn cert_dir(&self) -> Option<PathBuf> {
        self.path("SSL_CERT_DIR")
    }

    /// The proxy variables, lower case first. `HTTP_PROXY` is a request header's name in disguise where
    /// `REQUEST_METHOD` is set, so it is ignored there (HTTP-10).
    pub fn proxies(&self) -> Proxies {
        let either = |lower: &str, upper: &str| self.text(lower).or_else(|| self.text(upper));
        let cgi = self.vars.contains_key("REQUEST_METHOD");
        let http = if cgi { self.text("http_proxy") } else { either("http_proxy", "HTTP_PROXY") };
        Proxies {
            http: http.map(Secret::new),
            https: either("https_proxy", "HTTPS_PROXY").map(Secret::new),
            all: either("all_proxy", "ALL_PROXY").map(Secret::new),
            no_proxy: either("no_proxy", "NO_PROXY").map(str::to_owned),
        }
    }

    /// One warning for each variable that looks like ours and is not.
    pub fn warnings(&self) -> Vec<String> {
        let known = |name: &str| {
            name == "PIRN"
                || name.starts_with(ARGUMENT_PREFIX)
                || GIVEN_TO_CHILDREN.contains(&name)
                || READ.iter().any(|(read, _)| *read == name)
        };
        let ours = self.vars.keys().filter(|name| name.starts_with("PIRN_") && !known(name));
        ours.map(|name| match nearest(name, READ.iter().map(|(read, _)| *read)) {
            Some(read) => format!("unknown variable {name} (did you mean {read}?)"),
            None => format!("unknown variable {name}"),
        })
        .collect()
    }

    /// Variables of ours that are read but hold bytes that are not UTF-8.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = &'static str> + '_ {
        READ.iter().map(|(name, _)| *name).filter(|name| self.is_unreadable(name))
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.vars.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::Env;

    fn env(pairs: &[(&str, &str)]) -> Env {
        Env::from_pairs(pairs.iter().copied())
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let env = env(&[("PIRN_MODEL", ""), ("NO_COLOR", ""), ("HOME", "")]);
        assert_eq!(env.text("PIRN_MODEL"), None);
        assert_eq!(env.text("NO_COLOR"), None);
        assert_eq!(env.home(), None);
    }

    #[test]
    fn only_a_clear_yes_agrees() {
        for (value, agrees) in
            [("1", true), ("True", true), ("yes", true), ("on", true), ("0", false), ("maybe", false)]
        {
            assert_eq!(env(&[("PIRN_TRUST", value)]).agrees("PIRN_TRUST"), agrees, "{value}");
        }
        assert!(!env(&[]).agrees("PIRN_TRUST"));
    }

    #[test]
    fn home_is_never_the_working_directory() {
        assert_eq!(env(&[("HOME", ".")]).home(), None, "CFG-05");
        assert_eq!(env(&[("HOME", "/home/a")]).home(), Some(PathBuf::from("/home/a")));
    }

    #[test]
    fn lower_case_proxies_win_and_http_proxy_is_ignored_under_cgi() {
        let both = env(&[("HTTP_PROXY", "http://up"), ("http_proxy", "http://low"), ("HTTPS_PROXY", "http://s")]);
        let proxies = both.proxies();
        assert_eq!(proxies.http.map(|p| p.expose().to_owned()).as_deref(), Some("http://low"));
        assert_eq!(proxies.https.map(|p| p.expose().to_owned()).as_deref(), Some("http://s"));
        let cgi = env(&[("HTTP_PROXY", "http://evil"), ("REQUEST_METHOD", "GET")]);
        assert_eq!(cgi.proxies().http, None, "HTTP-10");
    }

    #[test]
    fn unknown_variables_of_ours_are_warned_about_with_a_suggestion() {
        let known = env(&[("PIRN", "1"), ("PIRN_RUN_TOKEN", "x"), ("PIRN_DEPTH", "1"), ("PIRN_ARG_PATH", "x")]);
        assert_eq!(known.warnings(), Vec::<String>::new());
        assert_eq!(env(&[("PIRN_LOGG", "x")]).warnings(), ["unknown variable PIRN_LOGG (did you mean PIRN_LOG?)"]);
        assert_eq!(
            env(&[("PIRN_MAX_COTS", "x")]).warnings(),
            ["unknown variable PIRN_MAX_COTS (did you mean PIRN_MAX_COST?)"]
        );
        let typo = env(&[("PIRN_MODLE", "x"), ("PIRN_WHATEVER", "x")]);
        assert_eq!(
            typo.warnings(),
            ["unknown variable PIRN_MODLE (did you mean PIRN_MODEL?)", "unknown variable PIRN_WHATEVER"]
        );
    }

    #[test]
    fn debug_shows_no_value() {
        assert!(!format!("{:?}", env(&[("OPENAI_API_KEY", "sk-1")])).contains("sk-1"));
    }
}
