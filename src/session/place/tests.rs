#![expect(clippy::disallowed_methods, reason = "tests write files by hand")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::{Found, Library, RefError, Scope, Target, cwd_of};
use crate::model::ErrorRecord;
use crate::port::SystemClock;

/// A session's first line.
pub(super) fn header_line(id: &str, cwd: &str) -> String {
    format!(
        "{{\"kind\":\"pirn.session\",\"format\":1,\"id\":\"{id}\",\"createdAt\":5,\"cwd\":\"{cwd}\",\"requires\":[]}}\n"
    )
}

/// A transaction.
pub(super) fn line(at: u64, writes: &[String]) -> String {
    let body = format!("{{\"at\":{at},\"w\":[{}]", writes.join(","));
    format!("{body},\"c\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes()))
}

pub(super) fn set(seq: u32, namespace: &str, key: &str, value: &str) -> String {
    format!(r#"{{"seq":{seq},"kind":"value","op":"set","namespace":"{namespace}","key":"{key}","value":{value}}}"#)
}

/// An entry whose text is given as it stands in JSON.
pub(super) fn message(seq: u32, role: &str, text: &str) -> String {
    format!(
        r#"{{"seq":{seq},"kind":"entry","id":"e{seq}","parentId":null,"type":"message","message":{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}],"stopReason":"stop","timestamp":1}}}}"#
    )
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        Self { dir }
    }

    /// The library seen from a directory of this name, which is made.
    fn library(&self, cwd: impl AsRef<Path>) -> Library {
        let cwd = self.dir.path().join(cwd);
        fs::create_dir_all(&cwd).unwrap();
        let library = Library::new(&self.dir.path().join("root"), &cwd).unwrap();
        library.prepare(false).unwrap();
        library
    }
}

/// A session with one transaction, which gives it the name.
fn make(library: &Library, id: &str, at: u64, name: Option<&str>) -> PathBuf {
    let header = library.new_header(id, 5);
    let mut text = String::from_utf8(header.encode().unwrap()).unwrap();
    text.push('\n');
    if let Some(name) = name {
        text.push_str(&line(at, &[set(1, "session.name", "", &format!("\"{name}\""))]));
    } else if at > 0 {
        text.push_str(&line(at, &[set(1, "x.a", "", "1")]));
    }
    let file = library.new_path(id, at);
    fs::write(&file, text).unwrap();
    file
}

const A: &str = "0199a1b2-0000-7000-8000-00000000aaaa";
const B: &str = "0199a1b2-0000-7000-8000-00000000bbbb";
const C: &str = "0199c3d4-0000-7000-8000-0000000ccccc";

/// Later than all moments of these tests.
const NOW: u64 = 1_000;

fn ids(found: &[Found]) -> Vec<&str> {
    found.iter().map(|found| found.id.as_str()).collect()
}

#[test]
fn sessions_are_never_kept_below_the_working_directory_by_accident() {
    for root in ["", ".", "state"] {
        assert!(Library::new(Path::new(root), Path::new("/")).is_err(), "{root:?} (CFG-05)");
    }
}

#[test]
fn the_latest_session_is_that_of_this_directory_with_the_newest_commit() {
    let place = Place::new();
    let here = place.library("a");
    assert_eq!(here.latest_here(NOW).unwrap(), None);
    make(&here, A, 30, None);
    make(&here, B, 20, None);
    make(&place.library("b"), C, 90, None);
    let latest = here.latest_here(NOW).unwrap().unwrap();
    assert_eq!((latest.id.as_str(), latest.updated_at, latest.created_at), (A, 30, 5));
    assert_eq!(latest.cwd.as_deref(), Some(here.cwd()));
    make(&here, B, 30, None);
    assert_eq!(here.latest_here(NOW).unwrap().unwrap().id, B, "the greater id decides between two of one moment");
}

#[test]
fn a_commit_of_a_time_to_come_keeps_no_session_the_latest() {
    const MINUTE: u64 = 60_000;
    let place = Place::new();
    let here = place.library("a");
    let now = 10_000 * MINUTE;
    let touch = |file: &Path, at: u64| {
        let modified = UNIX_EPOCH + Duration::from_millis(at);
        fs::File::open(file).unwrap().set_times(fs::FileTimes::new().set_modified(modified)).unwrap();
    };
    let latest = || here.latest_here(now).unwrap().unwrap();
    let ahead = make(&here, A, now + 10 * MINUTE, None);
    touch(&ahead, now + 10 * MINUTE);
    let only = latest();
    assert_eq!((only.id.as_str(), only.updated_at), (A, now + 10 * MINUTE), "there is no other");
    let b = make(&here, B, now - 5 * MINUTE, None);
    let found = latest();
    assert_eq!(found.id, B);
    let [warning] = &found.warnings[..] else { panic!("{:?}", found.warnings) };
    assert!(warning.contains("session 0000aaaa has a time that is still to come (1970-01-07T22:50"), "{warning}");
    assert!(warning.contains("-s ID"), "{warning}");
    // It was gone on with since the clock is right.
    touch(&ahead, now - MINUTE);
    assert_eq!((latest().id.as_str(), latest().warnings.len()), (A, 1));
    // Nothing is known of either: the newer id.
    fs::remove_file(b).unwrap();
    touch(&ahead, now + 10 * MINUTE);
    touch(&make(&here, B, now + 2 * MINUTE, None), now + 2 * MINUTE);
    assert_eq!((latest().id.as_str(), latest().warnings.len()), (B, 1));
    assert!(latest().warnings[0].contains("2 sessions of this directory, such as "), "{:?}", latest().warnings);
    // Clocks of two machines are never quite the same.
    make(&here, C, now + MINUTE, None);
    assert_eq!(latest().id, C);
    let later = here.latest_here(now + 20 * MINUTE).unwrap().unwrap();
    assert_eq!((later.id.as_str(), later.warnings.len()), (A, 0), "the clock is there");
}

#[test]
fn a_session_belongs_to_the_directory_its_header_names() {
    let place = Place::new();
    let (a, b) = (place.library("a"), place.library("b"));
    // As after a copy from one directory to another.
    let file = make(&b, A, 90, Some("moved"));
    fs::rename(&file, a.here().join(file.file_name().unwrap())).unwrap();
    assert_eq!(a.latest_here(NOW).unwrap(), None);
    assert_eq!(ids(&a.list(Scope::Here).unwrap().sessions), Vec::<&str>::new());
    assert_eq!(a.resolve("moved", true), Ok(Target::NewName("moved".to_owned())));
    assert_eq!(ids(&a.list(Scope::All).unwrap().sessions), [A]);

    // A directory is the same whichever way leads to it.
    symlink(a.cwd(), place.dir.path().join("link")).unwrap();
    let linked = Library::new(&place.dir.path().join("root"), &place.dir.path().join("link")).unwrap();
    assert_eq!(linked, a);
    let header = super::Header::new(B, 5, place.dir.path().join("link").to_string_lossy());
    let text = [header.encode().unwrap(), b"\n".to_vec()].concat();
    fs::write(a.new_path(B, 5), text).unwrap();
    assert_eq!(a.latest_here(NOW).unwrap().unwrap().id, B, "a header alone is an empty session (SES-13)");
}

#[test]
fn a_directory_whose_name_is_no_utf_8_has_sessions_like_any_other() {
    let place = Place::new();
    let odd = place.library(OsStr::from_bytes(b"a\xff\n\"b"));
    make(&odd, A, 30, Some("n"));
    let latest = odd.latest_here(NOW).unwrap().unwrap();
    assert_eq!(latest.cwd.as_deref(), Some(odd.cwd()));
    assert!(matches!(odd.resolve("n", false), Ok(Target::Existing(found)) if found.id == A));
    let header = odd.new_header(A, 5);
    assert!(header.cwd.ends_with("a\u{fffd}\n\"b"), "{}", header.cwd);
    assert_eq!(cwd_of(&header), odd.cwd());
    let plain = place.library("plain").new_header(A, 5);
    assert!(plain.extra.is_empty());
}

#[test]
fn a_reference_is_looked_for_as_name_id_and_path_in_this_order() {
    let place = Place::new();
    let (here, there) = (place.library("a"), place.library("b"));
    let a = make(&here, A, 10, Some("pr-12"));
    make(&here, B, 20, Some("abcdef"));
    let c = make(&there, C, 30, Some("there"));
    make(&here, "0199abcd-ef00-7000-8000-000000abcdef", 40, None);
    let path = |file: &Path| file.to_str().unwrap().to_owned();
    let relative = format!("../{}", c.strip_prefix(place.dir.path()).unwrap().display());
    let existing = [
        ("pr-12", A),
        ("abcdef", B),
        (A, A),
        ("0199A1B20000700080000000 0000AAAA".replace(' ', "").leak(), A),
        ("0000aaaa", A),
        ("00aaaa", A),
        ("0199c3", C),
        ("ccccc", "too short for an id"),
        ("0199a1b2", "names 2 sessions"),
        ("0123abcd", "no session has the id"),
        ("there", "no session of this directory has the name"),
        ("nope", "no session of this directory has the name"),
        ("Pr-12", "no session of this directory has the name"),
        (path(&a).leak(), A),
        (path(&c).leak(), C),
        (relative.leak(), C),
        ("no/such", "no session file at"),
        ("gone.jsonl", "no session file at"),
        ("./", "is not a session file"),
        ("../../x", "no session file at"),
        (".", "can not name a session"),
        ("", "can not name a session"),
    ];
    for (reference, expected) in existing {
        match here.resolve(reference, false) {
            Ok(Target::Existing(found)) => assert_eq!(found.id, expected, "{reference}"),
            Ok(Target::NewName(_)) => panic!("{reference} became a name"),
            Err(error) => assert!(error.to_string().contains(expected), "{reference}: {error} (SES-13, SES-14)"),
        }
    }
    let new = Ok(Target::NewName("there".to_owned()));
    assert_eq!(here.resolve("there", true), new, "names are those of this directory");
    for reference in ["0123abcd", "123", "no/such", "gone.jsonl", ".", "", "-", "a b"] {
        assert!(here.resolve(reference, true).is_err(), "{reference} never makes a session (SES-13, SES-14)");
    }
}

#[test]
fn a_path_must_lead_to_a_file_with_our_header() {
    let place = Place::new();
    let here = place.library("a");
    let file = make(&here, A, 10, None);
    let at = |name: &str| here.cwd().join(name);
    fs::write(at("other.jsonl"), "{\"type\":\"session\",\"version\":3}\n").unwrap();
    fs::write(at("empty.jsonl"), "").unwrap();
    fs::create_dir(at("dir.jsonl")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.jsonl"), rustix::fs::Mode::RUSR).unwrap();
    for name in ["other.jsonl", "empty.jsonl", "dir.jsonl", "pipe.jsonl"] {
        let error = here.resolve(name, true).unwrap_err();
        assert!(matches!(error, RefError::NotASession { .. }), "{name}: {error} (SES-14)");
    }
    symlink(&file, at("link.jsonl")).unwrap();
    let Ok(Target::Existing(found)) = here.resolve("link.jsonl", false) else { panic!("the link leads to a session") };
    assert_eq!(found.file, fs::canonicalize(&file).unwrap(), "both ways have one lock");
}

#[test]
fn a_session_file_is_named_by_a_path_only_where_its_name_ends_in_jsonl() {
    let place = Place::new();
    let here = place.library("a");
    let file = make(&here, A, 10, None);
    let at = |name: &str| here.cwd().join(name);
    // What lies beside a session has its name with another ending: `x.lock` would be its own lock.
    for name in ["x.lock", "x.d", "x.inbox", "x.json", "x", "x.jsonl.bak", ".jsonl"] {
        fs::copy(&file, at(name)).unwrap();
        let error = here.resolve(&format!("./{name}"), true).unwrap_err();
        assert!(matches!(&error, RefError::WrongEnding { path } if path.ends_with(name)), "{name}: {error}");
        assert!(ErrorRecord::from(error).hint.unwrap().contains(".jsonl"));
    }
    symlink(at("x.lock"), at("link.jsonl")).unwrap();
    let error = here.resolve("link.jsonl", true).unwrap_err();
    assert!(matches!(error, RefError::WrongEnding { .. }), "the file behind a link counts: {error}");
    fs::copy(&file, at("x.jsonl")).unwrap();
    symlink(at("x.jsonl"), at("link")).unwrap();
    assert!(matches!(here.resolve("./link", false), Ok(Target::Existing(found)) if found.id == A));
}

#[test]
fn several_sessions_of_one_id_or_name_are_all_told() {
    let place = Place::new();
    let (here, there) = (place.library("a"), place.library("b"));
    make(&here, A, 10, Some("twice"));
    make(&here, B, 20, Some("twice"));
    make(&there, A, 30, None);
    for (reference, candidates) in [("twice", 2), (A, 2), ("0199a1", 3)] {
        match here.resolve(reference, true) {
            Err(RefError::Ambiguous { candidates: found, .. }) => assert_eq!(found.len(), candidates, "{reference}"),
            other => panic!("{reference}: {other:?}"),
        }
    }
}

#[test]
fn damaged_and_foreign_files_hide_no_session() {
    let place = Place::new();
    let here = place.library("a");
    make(&here, A, 10, None);
    fs::write(here.here().join("notes.jsonl"), "hello\nworld\n").unwrap();
    fs::write(here.here().join("20260101T000000Z_0199ffff.jsonl"), "").unwrap();
    fs::create_dir(here.here().join("20260101T000000Z_d.jsonl")).unwrap();
    let broken = here.here().join(format!("20260101T000000Z_{B}.jsonl"));
    fs::write(&broken, format!("{{\"kin\n{}", line(90, &[set(1, "session.name", "", "\"n\"")]))).unwrap();

    let listing = here.list(Scope::All).unwrap();
    assert_eq!(ids(&listing.sessions), [B, A, ""], "what nothing is known of comes last");
    assert!(listing.sessions[0].damage.is_some() && listing.sessions[2].damage.is_some());
    assert_eq!(ids(&here.list(Scope::Here).unwrap().sessions), [B, A]);
    // Nothing older is taken in the place of the newest, nor a new one made for its name.
    assert_eq!(here.latest_here(NOW).unwrap().unwrap().file, broken);
    assert!(matches!(here.resolve("n", true), Ok(Target::Existing(found)) if found.file == broken));
    assert!(matches!(here.resolve(B, true), Ok(Target::Existing(found)) if found.file == broken));
    let details = listing.sessions[0].details();
    assert_eq!((details.name.as_deref(), details.open), (Some("n"), Some(false)));
    assert!(details.damage.is_some());
}

#[test]
fn messages_are_counted_up_to_damage_and_not_in_long_files() {
    let place = Place::new();
    let here = place.library("a");
    let file = make(&here, A, 10, None);
    let start = fs::read_to_string(&file).unwrap();
    let two = line(11, &[message(2, "user", "Hello"), message(3, "assistant", r#"{\"kind\":\"entry\"}"#)]);
    let three = line(12, &[message(4, "user", "More")]);
    let count = |rest: &str| {
        fs::write(&file, format!("{start}{rest}")).unwrap();
        let details = here.latest_here(NOW).unwrap().unwrap().details();
        (details.messages, details.damage)
    };
    assert_eq!(count(&format!("{two}{three}")), (Some(3), None));
    assert_eq!(count(&format!("{two}{{\"at\":12,\"w\":[")), (Some(2), None), "a torn end is no damage");
    let damaged = (Some(2), Some("line 4 is damaged".to_owned()));
    assert_eq!(count(&format!("{two}{}{three}", three.replace("More", "Less"))), damaged, "case 93");
    let long = line(12, &[message(4, "user", &"x".repeat(5 << 20))]);
    assert_eq!(count(&format!("{two}{long}")), (None, None), "SES-10");

    let found = here.latest_here(NOW).unwrap().unwrap();
    for (needle, expected) in [("hello", true), ("{\"kind\"", true), ("xxxx", true), ("nothing", false)] {
        assert_eq!(found.says(needle).unwrap(), expected, "{needle}");
    }
}

#[tokio::test]
async fn two_starts_can_not_both_hold_a_directory() {
    let place = Place::new();
    let here = place.library("a");
    let clock = SystemClock::new();
    let held = here.lock_directory(&clock).await.unwrap();
    let file = fs::File::open(here.here().join(".lock")).unwrap();
    assert!(file.try_lock().is_err());
    let (second, ()) = tokio::join!(here.lock_directory(&clock), async { drop(held) });
    drop(second.unwrap());
    file.try_lock().unwrap();
}
