//! What children inherit, as tables: V1, V2, and B15.

use std::ffi::OsString;

use super::{ChildEnv, EnvPolicy, Extra, Inherit, matches};

/// A parent's environment, one variable of each kind; values are the names in lower case.
const PARENT: [&str; 27] = [
    "ANTHROPIC_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_REGION",
    "BASH_ENV",
    "CI_JOB_ID",
    "DB_PASSWD",
    "ENV",
    "GITHUB_TOKEN",
    "HOME",
    "LC_TIME",
    "LD_PRELOAD",
    "LOCAL_LLM",
    "LOGNAME",
    "MyApiKey",
    "NPM_CONFIG__AUTH",
    "PATH",
    "PIRN_ARG_X",
    "PIRN_HOME",
    "PIRN_RUN_TOKEN",
    "SHELL",
    "SSH_AUTH_SOCK",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "VAULT_CREDENTIALS",
    "ci_secretish",
];

fn parent() -> Vec<(OsString, OsString)> {
    PARENT.iter().map(|name| ((*name).into(), name.to_lowercase().into())).collect()
}

fn policy(inherit: Inherit, pass: &[&str], drop: &[&str]) -> EnvPolicy {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let credentials = owned(&["ANTHROPIC_API_KEY", "LOCAL_LLM", "UNSET_KEY"]);
    EnvPolicy { inherit, pass: owned(pass), drop: owned(drop), set: Vec::new(), credentials, depth: 0 }
}

#[test]
fn the_filter_withholds_what_v1_and_v2_say() {
    let always = ["ANTHROPIC_API_KEY", "BASH_ENV", "ENV", "LOCAL_LLM", "PIRN_ARG_X", "PIRN_HOME", "PIRN_RUN_TOKEN"];
    let filtered = [
        "AWS_ACCESS_KEY_ID",
        "DB_PASSWD",
        "GITHUB_TOKEN",
        "MyApiKey",
        "NPM_CONFIG__AUTH",
        "VAULT_CREDENTIALS",
        "ci_secretish",
    ];
    let core = ["HOME", "LC_TIME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];
    let with = |more: &[&'static str]| always.iter().chain(more).copied().collect::<Vec<&str>>();
    let but = |kept: &[&str]| PARENT.into_iter().filter(|name| !kept.contains(name)).collect::<Vec<&str>>();
    let without =
        |names: Vec<&'static str>, kept: &str| names.into_iter().filter(|name| *name != kept).collect::<Vec<&str>>();
    let table: Vec<(&str, EnvPolicy, Vec<&str>)> = vec![
        ("filtered", policy(Inherit::Filtered, &[], &[]), with(&filtered)),
        ("all does not lift V1", policy(Inherit::All, &[], &[]), with(&[])),
        ("core", policy(Inherit::Core, &[], &[]), but(&core)),
        ("none", policy(Inherit::None, &[], &[]), but(&["PATH"])),
        ("drop, any case", policy(Inherit::All, &[], &["ci_*", "t?"]), with(&["CI_JOB_ID", "TZ", "ci_secretish"])),
        ("drop narrows core", policy(Inherit::Core, &[], &["LC_*"]), but(&without(core.to_vec(), "LC_TIME"))),
        (
            "pass wins over the filter",
            policy(Inherit::Filtered, &["GITHUB_TOKEN"], &[]),
            without(with(&filtered), "GITHUB_TOKEN"),
        ),
        ("pass wins over drop", policy(Inherit::All, &["CI_JOB_ID"], &["CI_*"]), with(&["ci_secretish"])),
        ("pass names a key, case 141", policy(Inherit::All, &["LOCAL_LLM"], &[]), without(with(&[]), "LOCAL_LLM")),
        ("pass names ours", policy(Inherit::All, &["PIRN_HOME"], &[]), without(with(&[]), "PIRN_HOME")),
        ("a glob lifts filters, not V1", policy(Inherit::Filtered, &["*"], &["*"]), with(&[])),
        ("pass is exact", policy(Inherit::Filtered, &["anthropic_api_key"], &[]), with(&filtered)),
    ];
    for (name, policy, mut want) in table {
        want.sort_unstable();
        assert_eq!(ChildEnv::new(policy, parent()).withheld(), want, "{name}");
    }
}

fn extra<'a>(pass: &'a [String], add: &'a [(OsString, OsString)]) -> Extra<'a> {
    Extra { pass, add, token: "t0", call_id: Some("c0"), ..Extra::default() }
}

fn get(env: &ChildEnv, extra: &Extra<'_>, name: &str) -> Option<String> {
    env.for_child(extra).get(std::ffi::OsStr::new(name)).map(|value| value.to_str().unwrap().to_owned())
}

#[test]
fn a_child_is_told_who_it_is_and_that_nobody_reads_along_b15() {
    let env = ChildEnv::new(policy(Inherit::Filtered, &[], &[]), parent());
    let variables = env.for_child(&extra(&[], &[]));
    let told: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
        .filter(|(name, _)| !PARENT.contains(name) || name.starts_with("PIRN") || *name == "TERM")
        .collect();
    assert_eq!(
        told,
        [
            ("GH_PAGER", "cat"),
            ("GIT_PAGER", "cat"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LANG", "C.UTF-8"),
            ("NO_COLOR", "1"),
            ("PAGER", "cat"),
            ("PIRN", "1"),
            ("PIRN_CALL_ID", "c0"),
            ("PIRN_DEPTH", "1"),
            ("PIRN_RUN_TOKEN", "t0"),
            ("TERM", "dumb"),
        ]
    );
    let deeper = ChildEnv::new(EnvPolicy { depth: 4, ..EnvPolicy::default() }, Vec::new());
    let session = Extra { session_id: Some("s0"), ..Extra::default() };
    assert_eq!(get(&deeper, &session, "PIRN_DEPTH").as_deref(), Some("5"));
    assert_eq!(get(&deeper, &session, "PIRN_SESSION_ID").as_deref(), Some("s0"));
    assert_eq!(get(&deeper, &session, "PIRN_CALL_ID"), None);
}

/// What the row shows, the policy, `pass` and variables of the child, and what a variable then is.
type Row<'a> = (&'a str, &'a EnvPolicy, Vec<String>, Vec<(OsString, OsString)>, &'a str, Option<&'a str>);

#[test]
fn what_is_more_explicit_wins() {
    let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let plain = policy(Inherit::Filtered, &[], &[]);
    let set = EnvPolicy { set: vec![("TERM".into(), "xterm".into()), ("N".into(), "1".into())], ..plain.clone() };
    let ours = EnvPolicy { set: vec![("PIRN_RUN_TOKEN".into(), "forged".into())], ..plain.clone() };
    let term = policy(Inherit::Filtered, &["TERM"], &[]);
    let table: Vec<Row<'_>> = vec![
        ("set over what children are told", &set, names(&[]), vec![], "TERM", Some("xterm")),
        ("a child's own over set", &set, names(&[]), vec![pair("N", "2")], "N", Some("2")),
        ("pass over what children are told", &term, names(&[]), vec![], "TERM", Some("term")),
        ("a child's pass too", &plain, names(&["TERM"]), vec![], "TERM", Some("term")),
        ("a child's pass, V3", &plain, names(&["GITHUB_TOKEN"]), vec![], "GITHUB_TOKEN", Some("github_token")),
        ("a child's pass names a key", &plain, names(&["LOCAL_LLM"]), vec![], "LOCAL_LLM", Some("local_llm")),
        ("a child's pass of what is not set", &plain, names(&["UNSET_KEY"]), vec![], "UNSET_KEY", None),
        ("nobody forges the token", &ours, names(&[]), vec![pair("PIRN_RUN_TOKEN", "x")], "PIRN_RUN_TOKEN", Some("t0")),
        ("passed, yet ours", &plain, names(&["PIRN_RUN_TOKEN"]), vec![], "PIRN_RUN_TOKEN", Some("t0")),
        ("any character set counts", &plain, names(&[]), vec![pair("LC_CTYPE", "C")], "LANG", None),
        ("an empty one does not", &plain, names(&[]), vec![pair("LC_ALL", "")], "LANG", Some("C.UTF-8")),
        ("an empty one is replaced", &plain, names(&[]), vec![pair("LANG", "")], "LANG", Some("C.UTF-8")),
    ];
    for (name, policy, pass, add, variable, want) in table {
        let env = ChildEnv::new(policy.clone(), parent());
        assert_eq!(get(&env, &extra(&pass, &add), variable).as_deref(), want, "{name}");
    }
}

#[test]
fn an_inherited_working_directory_is_the_one_of_the_child() {
    let env = ChildEnv::new(EnvPolicy::default(), vec![("PWD".into(), "/ours".into())]);
    let cwd = Some(std::path::Path::new("/theirs"));
    assert_eq!(get(&env, &Extra { cwd, ..Extra::default() }, "PWD").as_deref(), Some("/theirs"));
    let none = ChildEnv::new(EnvPolicy::default(), Vec::new());
    assert_eq!(get(&none, &Extra { cwd, ..Extra::default() }, "PWD"), None);
}

#[test]
fn globs_match_whole_names_in_any_case() {
    for (pattern, name, want) in [
        ("", "", true),
        ("*", "", true),
        ("*", "ANY", true),
        ("*KEY*", "my_key_2", true),
        ("*KEY*", "KE", false),
        ("*_AUTH", "X_AUTH", true),
        ("*_AUTH", "SSH_AUTH_SOCK", false),
        ("AWS_*KEY*", "AWS_ACCESS_KEY_ID", true),
        ("AWS_*KEY*", "XAWS_KEY", false),
        ("A?C", "abc", true),
        ("A?C", "ac", false),
        ("*a*b*c", "xaybzc", true),
        ("*a*b*c", "xaybz", false),
        ("a**b", "ab", true),
        ("É*", "ÉX", true),
        ("A", "AB", false),
    ] {
        assert_eq!(matches(pattern, name), want, "{pattern} {name}");
    }
}

#[test]
fn values_do_not_print() {
    let policy = EnvPolicy { set: vec![("A".into(), "hunter2".into())], ..policy(Inherit::All, &[], &[]) };
    let env = ChildEnv::new(policy.clone(), vec![("B".into(), "hunter2".into())]);
    assert!(!format!("{env:?} {policy:?}").contains("hunter2"));
}

#[cfg(unix)]
#[test]
fn names_and_values_that_are_no_text_are_passed_as_they_are() {
    use std::os::unix::ffi::OsStringExt as _;
    let name = OsString::from_vec(b"N\xff".to_vec());
    let value = OsString::from_vec(b"\xfe".to_vec());
    let env = ChildEnv::new(EnvPolicy::default(), vec![(name.clone(), value.clone()), (OsString::new(), "x".into())]);
    assert_eq!(env.for_child(&Extra::default()).get(&name), Some(&value));
    assert_eq!(env.for_child(&Extra::default()).get(&OsString::new()), None);
}
