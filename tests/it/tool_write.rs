//! `write`: cases 54–60 of `tests/cases/tools.md` (61 stands beside the code), FILE-06, FILE-07 and FILE-12 as far
//! as this tool goes, and what the tool rules say beside them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pirn::port::{Access, Denied, Guard, ToolOutput};
use pirn::tool::{Confine, Confinement};
use serde_json::{Value, json};

use crate::tool_support::{NOBODY, Who, Workspace, again, failure, fifo, given, no_leftovers, text};

fn put(w: &Workspace, path: &str, content: &str) -> ToolOutput {
    w.call("write", json!({"path": path, "content": content}))
}

fn disk(w: &Workspace, path: &str) -> String {
    std::fs::read_to_string(w.root.join(path)).unwrap()
}

fn details(output: &ToolOutput) -> &Value {
    output.details.as_ref().unwrap()
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

/// Lets everything through.
fn unconfined() -> Arc<dyn Guard> {
    Arc::new(Confine::new(Confinement::Off, &[], None))
}

#[test]
fn files_are_created_replaced_or_left_as_the_cases_say() {
    let w = Workspace::new();
    for (case, path, content, want) in [
        ("54", "new/deep/f.txt", "h\u{e9}llo", "Created new/deep/f.txt (6 bytes)."),
        ("55", "new/deep/f.txt", "hi\n", "Replaced new/deep/f.txt (3 bytes, was 6)."),
        ("56", "new/deep/f.txt", "hi\n", "Unchanged: new/deep/f.txt already has this content."),
        ("W2", "new/deep/f.txt", "ho\n", "Replaced new/deep/f.txt (3 bytes, was 3)."),
        ("59", "crlf", "a\r\nb\r\n", "Created crlf (6 bytes)."),
        ("59", "z", "", "Created z (0 bytes)."),
        ("56", "z", "", "Unchanged: z already has this content."),
        ("W1", "z", "\u{feff}no mark is added or taken", "Replaced z (28 bytes, was 0)."),
        ("W1", "z", "", "Replaced z (0 bytes, was 28)."),
        ("P2", "./new/../new/x", "x", "Created ./new/../new/x (1 bytes)."),
        ("P3", "new/it's 9 AM", "x", "Created new/it's 9 AM (1 bytes)."),
        ("W1", ".hidden", "x", "Created .hidden (1 bytes)."),
    ] {
        let before = std::fs::metadata(w.root.join(path)).ok();
        assert_eq!(text(&put(&w, path, content)), want, "case {case}");
        assert_eq!(disk(&w, path), content, "case {case}");
        if case == "56" {
            let (before, after) = (before.unwrap(), std::fs::metadata(w.root.join(path)).unwrap());
            let facts = |m: &std::fs::Metadata| (m.ino(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
            assert_eq!(facts(&before), facts(&after));
        }
    }
    no_leftovers(&w);
}

#[test]
fn details_hold_the_facts_w4() {
    let w = Workspace::new();
    let path = w.root.join("a/f.txt");
    let path = path.to_str().unwrap();
    let patch = "--- /dev/null\n+++ a/f.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n";
    let output = put(&w, "a/f.txt", "one\ntwo");
    let want =
        json!({"path": path, "created": true, "bytes": 7, "previousBytes": null, "atomic": true, "patch": patch});
    assert_eq!(*details(&output), want);
    let patch = "--- ./a/f.txt\n+++ ./a/f.txt\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of file\n+2\r\n";
    let output = put(&w, "./a/f.txt", "one\n2\r\n");
    let want = json!({"path": path, "created": false, "bytes": 7, "previousBytes": 7, "atomic": true, "patch": patch});
    assert_eq!(*details(&output), want);
    let output = put(&w, "a/f.txt", "one\n2\r\n");
    let want = json!({"path": path, "created": false, "bytes": 7, "previousBytes": 7, "atomic": true});
    assert_eq!(*details(&output), want);
}

#[test]
fn a_patch_is_made_of_texts_up_to_256_kib_w4() {
    const MOST: usize = 256 << 10;
    let w = Workspace::new();
    let most = "0123456789abcde\n".repeat(MOST / 16);
    for (old, new, has) in [
        (most.as_bytes(), "x\n", true),
        (b"x\n", most.as_str(), true),
        (&[most.as_bytes(), b"\n"].concat(), "x\n", false),
        (b"x\n", &format!("{most}\n"), false),
        (b"caf\xe9\n", "x\n", false),
        (b"a\0b\n", "x\n", false),
        (b"x\n", "a\0b\n", false),
        (b"a\rb\n", "a\rc\n", true),
    ] {
        w.file("f", old);
        let output = put(&w, "f", new);
        let patch = details(&output).get("patch").map(|patch| patch.as_str().unwrap());
        assert_eq!(patch.is_some(), has, "{} and {} bytes", old.len(), new.len());
        assert!(patch.is_none_or(|patch| patch.starts_with("--- f\n+++ f\n@@ -1")), "{patch:?}");
    }
    assert_eq!(details(&put(&w, "empty", "")).get("patch"), None);
}

#[test]
fn failures_are_told_as_the_cases_say() {
    let mut w = Workspace::new();
    w.file("abc.txt", "a\nb\nc\n");
    w.file("d/x", "");
    symlink("d", w.root.join("to-d")).unwrap();
    w.guard = unconfined();
    for (case, path, code, message) in [
        ("57", "d", "is_directory", "d is a directory."),
        ("57", "x/", "is_directory", "x/ is a directory."),
        ("57", "to-d", "is_directory", "to-d is a directory."),
        ("57", ".", "is_directory", ". is a directory."),
        ("57", "new/.", "is_directory", "new/. is a directory."),
        ("57", "new/y/..", "is_directory", "new/y/.. is a directory."),
        ("57", "/", "is_directory", "/ is a directory."),
        ("57", "abc.txt/", "is_directory", "abc.txt/ is a directory."),
        ("58", "abc.txt/x", "not_directory", "A parent of abc.txt/x is not a directory."),
        ("58", "abc.txt/x/y", "not_directory", "A parent of abc.txt/x/y is not a directory."),
        ("P4", "", "invalid_args", "Invalid path: it is empty."),
        ("P4", "a\nb", "invalid_args", "Invalid path: it holds a NUL or a line feed."),
        ("G7", "abc.txt/\u{1b}[1mx", "not_directory", "A parent of abc.txt/[1mx is not a directory."),
        (
            "P1",
            "file://host/x",
            "invalid_args",
            "Invalid path: a file: URL must be of this host, with an absolute path.",
        ),
    ] {
        assert_eq!(failure(&put(&w, path, "x")), (code, message), "case {case}: {path}");
    }
    let long = "n".repeat(300);
    let message = format!("Cannot write {long}: File name too long.");
    assert_eq!(failure(&put(&w, &long, "x")), ("io", message.as_str()));
    assert_eq!(disk(&w, "abc.txt"), "a\nb\nc\n");
    assert!(!w.root.join("new").exists() && !w.root.join("x").exists());
    no_leftovers(&w);
}

#[test]
fn file_12_what_is_no_regular_file_is_refused_and_not_opened_p6() {
    let mut w = Workspace::new();
    w.guard = unconfined();
    fifo(&w.root.join("p"));
    let _socket = std::os::unix::net::UnixListener::bind(w.root.join("s")).unwrap();
    symlink("/dev/null", w.root.join("null")).unwrap();
    symlink("p", w.root.join("to-p")).unwrap();
    for path in ["p", "s", "null", "to-p", "/dev/null", "/dev/full"] {
        let want = format!("{path} is not a regular file.");
        assert_eq!(failure(&put(&w, path, "x")), ("not_a_file", want.as_str()));
    }
    if Path::new("/proc/self/comm").exists() {
        for path in ["/proc/self/comm", "/proc/self/none", "/proc/sys/kernel/hostname", "/sys/none"] {
            let want = format!("{path} is not a regular file.");
            assert_eq!(failure(&put(&w, path, "x")), ("not_a_file", want.as_str()));
        }
        // A file that has no name any more.
        let file = std::fs::File::create(w.root.join("gone")).unwrap();
        std::fs::remove_file(w.root.join("gone")).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        assert_eq!(failure(&put(&w, &path, "x")).0, "not_a_file");
        assert_eq!(file.metadata().unwrap().len(), 0);
    } else {
        println!("unavailable: proc");
    }
}

#[test]
fn case_60_paths_outside_of_the_roots_are_refused() {
    let w = Workspace::new();
    symlink("/etc", w.root.join("esc")).unwrap();
    symlink("../out.txt", w.root.join("dangling")).unwrap();
    for path in ["../out.txt", "esc/x", "dangling", "/etc/pirn-test", "esc/new/x", "../out/"] {
        let want = format!("{path} is outside the allowed roots ({}).", w.root.display());
        assert_eq!(failure(&put(&w, path, "x")), ("denied", want.as_str()));
    }
    assert!(!w.root.parent().unwrap().join("out.txt").exists());
}

/// Notes what it is asked, and refuses some of it.
struct Witness {
    asked: Mutex<Vec<(String, Access)>>,
    refused: &'static str,
    root: PathBuf,
}

impl Guard for Witness {
    fn check(&self, path: &Path, shown: &str, access: Access) -> Result<(), Denied> {
        let name = path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
        let is_refused = name == self.refused;
        self.asked.lock().unwrap().push((name, access));
        if !is_refused {
            return Ok(());
        }
        Err(Denied { rule: "r".to_owned(), reason: format!("{shown} is refused.") })
    }
}

#[test]
fn the_guard_is_asked_first_and_about_all_that_is_made_p7() {
    let mut w = Workspace::new();
    w.file("real/f", "x");
    symlink("real/f", w.root.join("link")).unwrap();
    symlink("nowhere/f", w.root.join("dangling")).unwrap();
    for (path, refused, want) in [
        // Nothing is told about what the guard refuses, whatever it is.
        ("link", "link", "link is refused."),
        ("real", "real", "real is refused."),
        ("dangling", "dangling", "dangling is refused."),
        ("real/f/x", "real/f/x", "real/f/x is refused."),
        // What is really meant counts too.
        ("link", "real/f", "link is refused."),
        // Directories are made only where the guard lets them through.
        ("new/deep/f", "new", "new/deep/f is refused."),
    ] {
        let guard = Arc::new(Witness { asked: Mutex::default(), refused, root: w.root.clone() });
        w.guard = Arc::clone(&guard) as Arc<dyn Guard>;
        assert_eq!(failure(&put(&w, path, "y")), ("denied", want));
        let asked = guard.asked.lock().unwrap();
        assert_eq!(asked.first(), Some(&(path.to_owned(), Access::Write)));
        assert!(asked.iter().all(|(_, access)| *access == Access::Write));
    }
    assert_eq!(disk(&w, "real/f"), "x");
    assert!(!w.root.join("new").exists());
    // A root that does not exist yet: the directories above it are none of ours.
    w.guard = Arc::new(Confine::new(Confinement::Write, &[w.root.join("up/root")], None));
    assert_eq!(failure(&put(&w, "up/root/f", "x")).0, "denied");
    assert!(!w.root.join("up").exists());
    std::fs::create_dir(w.root.join("up")).unwrap();
    assert_eq!(text(&put(&w, "up/root/f", "x")), "Created up/root/f (1 bytes).");
}

#[test]
fn paths_may_be_absolute_of_home_or_urls_p1() {
    let mut w = Workspace::new();
    w.settings.home = Some(w.root.join("home"));
    let root = w.root.display().to_string();
    for (path, name) in [
        ("~/a".to_owned(), "home/a"),
        (format!("{root}/b"), "b"),
        (format!("file://{root}/c%20d"), "c d"),
        ("~x/e".to_owned(), "~x/e"),
    ] {
        let output = put(&w, &path, "x");
        assert_eq!(text(&output), format!("Created {path} (1 bytes)."));
        assert_eq!(details(&output)["path"], w.root.join(name).to_str().unwrap());
        assert_eq!(disk(&w, name), "x");
    }
}

#[test]
fn a_leading_at_sign_is_dropped_where_nothing_has_it_in_its_name_p1() {
    let w = Workspace::new();
    w.file("src/a.rs", "a");
    w.file("@literal", "a");
    w.file("@scope/a.ts", "a");
    w.file("scope/b.ts", "b");
    for (path, name) in [
        ("@new.md", "new.md"),
        ("@src/a.rs", "src/a.rs"),
        ("@src/b.rs", "src/b.rs"),
        ("@literal", "@literal"),
        // The directory has the sign.
        ("@scope/b.ts", "@scope/b.ts"),
        // Neither directory is there.
        ("@types/c.d.ts", "@types/c.d.ts"),
        ("@", "@"),
    ] {
        let output = put(&w, path, "new");
        assert_eq!(details(&output)["path"], w.root.join(name).to_str().unwrap(), "{path}");
        assert_eq!(disk(&w, name), "new", "{path}");
    }
    assert_eq!(disk(&w, "scope/b.ts"), "b");
}

#[test]
fn file_06_links_stay_links_m5() {
    let mut w = Workspace::new();
    w.guard = unconfined();
    let other = tempfile::tempdir_in("/dev/shm").ok();
    w.file("real.txt", "old");
    w.file("d/deep.txt", "old");
    std::fs::create_dir(w.root.join("empty")).unwrap();
    let mut links = vec![
        ("link", "real.txt".to_owned(), "real.txt".to_owned()),
        ("chain-2", "link".to_owned(), "real.txt".to_owned()),
        ("chain-3", "chain-2".to_owned(), "real.txt".to_owned()),
        ("empty/up", "../d/deep.txt".to_owned(), "d/deep.txt".to_owned()),
        ("absolute", w.root.join("real.txt").to_str().unwrap().to_owned(), "real.txt".to_owned()),
        ("dangling", "empty/made.txt".to_owned(), "empty/made.txt".to_owned()),
    ];
    match &other {
        Some(other) => {
            let path = other.path().join("far.txt");
            std::fs::File::create(&path).unwrap();
            let path = path.to_str().unwrap().to_owned();
            links.push(("far", path.clone(), path));
        }
        None => println!("unavailable: another file system"),
    }
    for (n, (link, target, real)) in links.into_iter().enumerate() {
        symlink(&target, w.root.join(link)).unwrap();
        let content = format!("content {n}");
        let output = put(&w, link, &content);
        assert!(!output.is_error, "{link}: {output:?}");
        assert_eq!(std::fs::read_link(w.root.join(link)).unwrap(), Path::new(&target), "{link}");
        assert_eq!(std::fs::read_to_string(w.root.join(&real)).unwrap(), content, "{link}");
        assert_eq!(details(&output)["atomic"], true);
        assert_eq!(details(&output)["path"], w.root.join(link).to_str().unwrap());
    }
    // A directory behind a link is made by nobody here.
    symlink("nowhere/f", w.root.join("lost")).unwrap();
    symlink("nowhere", w.root.join("lost-d")).unwrap();
    for path in ["lost", "lost-d/f", "lost-d/e/f"] {
        let want = format!("{path} leads through a link into a directory that does not exist.");
        assert_eq!(failure(&put(&w, path, "x")), ("not_found", want.as_str()));
    }
    assert!(!w.root.join("nowhere").exists());
    symlink("self", w.root.join("self")).unwrap();
    let output = put(&w, "self", "x");
    assert_eq!(failure(&output).0, "io");
    assert!(failure(&output).1.starts_with("Cannot write self: Too many"), "{output:?}");
    no_leftovers(&w);
}

#[test]
fn file_07_an_existing_file_keeps_its_mode_and_its_owner_m3() {
    let w = Workspace::new();
    for bits in [0o755, 0o600, 0o666, 0o640, 0o1644, 0o200] {
        let path = w.file("f", "old");
        chmod(&path, bits);
        let output = put(&w, "f", "something new");
        assert_eq!(details(&output)["atomic"], true);
        assert_eq!((mode(&path), std::fs::metadata(&path).unwrap().len()), (bits, 13));
        std::fs::remove_file(path).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        let path = w.file("theirs", "old");
        chmod(&path, 0o4750);
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        chmod(&path, 0o4750);
        assert_eq!(details(&put(&w, "theirs", "new"))["atomic"], true);
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), mode(&path)), (NOBODY, NOBODY, 0o4750));
        let directory = w.root.join("common");
        std::fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, None, Some(NOBODY)).unwrap();
        chmod(&directory, 0o2775);
        let path = w.file("common/f", "old");
        std::os::unix::fs::chown(&path, None, Some(0)).unwrap();
        text(&put(&w, "common/f", "new"));
        text(&put(&w, "common/g", "new"));
        let group = |name: &str| std::fs::metadata(directory.join(name)).unwrap().gid();
        assert_eq!((group("f"), group("g")), (0, NOBODY));
    } else {
        println!("unavailable: root");
    }
}

#[test]
fn file_07_a_new_file_follows_the_mask_of_the_user_m3() {
    const TEST: &str = "tool_write::file_07_a_new_file_follows_the_mask_of_the_user_m3";
    // The mask is the process's.
    let Some(root) = given() else { return again(TEST, Who::Same, Workspace::new().root.as_path()) };
    std::fs::create_dir_all(&root).unwrap();
    let w = Workspace::at(root.clone());
    for (mask, file, directory) in
        [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700), (0o002, 0o664, 0o775), (0, 0o666, 0o777)]
    {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        let name = format!("d{mask}/f");
        text(&put(&w, &name, "x"));
        assert_eq!((mode(&root.join(&name)), mode(&root.join(format!("d{mask}")))), (file, directory));
        // And an existing one does not.
        let path = w.file("kept", format!("{mask}"));
        chmod(&path, 0o664);
        text(&put(&w, "kept", "new"));
        assert_eq!(mode(&path), 0o664);
    }
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn attributes_of_a_file_are_kept_m3() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let w = Workspace::new();
    let path = w.file("f", "old");
    if setxattr(&path, "user.note", b"kept", XattrFlags::empty()).is_err() {
        println!("unavailable: extended attributes");
        return;
    }
    assert_eq!(details(&put(&w, "f", "new"))["atomic"], true);
    let mut value = vec![0; 16];
    let count = getxattr(&path, "user.note", &mut value).unwrap();
    assert_eq!(&value[..count], b"kept");
}

#[test]
fn names_of_one_file_stay_names_of_one_file_m4() {
    let w = Workspace::new();
    let path = w.file("a", "old content");
    std::fs::hard_link(&path, w.root.join("b")).unwrap();
    for content in ["new", "longer than it was", ""] {
        let output = put(&w, "a", content);
        assert_eq!(details(&output)["atomic"], false);
        assert_eq!((disk(&w, "a").as_str(), disk(&w, "b").as_str()), (content, content));
        assert_eq!(std::fs::metadata(&path).unwrap().nlink(), 2);
    }
}

/// Under root the test runs itself again as another user, for whom permissions mean something.
#[test]
fn permissions_decide_what_is_written_and_how_m4() {
    const TEST: &str = "tool_write::permissions_decide_what_is_written_and_how_m4";
    if rustix::process::geteuid().is_root() {
        return again(TEST, Who::Nobody, Path::new("/"));
    }
    let w = Workspace::new();
    let (closed, open) = (w.root.join("closed"), w.root.join("open"));
    let file = w.file("closed/f", "old");
    let inode = std::fs::metadata(&file).unwrap().ino();
    let protected = w.file("open/protected", "old");
    chmod(&protected, 0o444);
    let blind = w.file("open/blind", "old");
    chmod(&blind, 0o200);
    w.file("hidden/f", "old");
    chmod(&w.root.join("hidden"), 0o600);
    chmod(&closed, 0o555);
    // A directory that takes no other file: the file itself can be written.
    let output = put(&w, "closed/f", "new content");
    assert_eq!(text(&output), "Replaced closed/f (11 bytes, was 3).");
    assert_eq!(details(&output)["atomic"], false);
    assert_eq!((disk(&w, "closed/f").as_str(), std::fs::metadata(&file).unwrap().ino()), ("new content", inode));
    for path in ["closed/g", "closed/h/g", "open/protected", "hidden/f", "hidden/g"] {
        let want = format!("Permission denied: {path}");
        assert_eq!(failure(&put(&w, path, "new")), ("permission_denied", want.as_str()));
    }
    assert_eq!(std::fs::read_to_string(&protected).unwrap(), "old");
    // What can not be read can still be replaced; there is nothing to compare it with.
    let output = put(&w, "open/blind", "old");
    assert_eq!(text(&output), "Replaced open/blind (3 bytes, was 3).");
    assert_eq!((details(&output).get("patch"), mode(&blind)), (None, 0o200));
    for directory in [&closed, &open, &w.root.join("hidden")] {
        chmod(directory, 0o700);
    }
    no_leftovers(&w);
}

/// A file whose group its owner is no member of can not be replaced without losing the group.
#[test]
fn a_file_that_would_lose_its_group_is_written_in_place_m4() {
    const TEST: &str = "tool_write::a_file_that_would_lose_its_group_is_written_in_place_m4";
    if let Some(root) = given() {
        let output = put(&Workspace::at(root), "f", "new");
        assert_eq!(details(&output)["atomic"], false);
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("unavailable: root");
        return;
    }
    let w = Workspace::new();
    let path = w.file("f", "old");
    for (path, group) in [(w.root.as_path(), NOBODY), (&path, 0)] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(group)).unwrap();
    }
    chmod(&w.root, 0o755);
    chmod(&path, 0o664);
    again(TEST, Who::Nobody, &w.root);
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), mode(&path)), (NOBODY, 0, 0o664));
    assert_eq!(disk(&w, "f"), "new");
    no_leftovers(&w);
}

/// A real limit of the system, in a process of its own: the largest file it may write.
#[test]
fn a_disk_that_takes_no_more_leaves_the_old_content_m3_m4() {
    const TEST: &str = "tool_write::a_disk_that_takes_no_more_leaves_the_old_content_m3_m4";
    use rustix::process::{Resource, Rlimit, setrlimit};
    let Some(root) = given() else {
        let w = Workspace::new();
        w.file("single", "old");
        let path = w.file("a", "old");
        std::fs::hard_link(path, w.root.join("b")).unwrap();
        return again(TEST, Who::Same, &w.root);
    };
    let w = Workspace::at(root);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    // Caught, so that the limit is an error and not the end.
    let kind = tokio::signal::unix::SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    let _caught = tokio::signal::unix::signal(kind).unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(300_000), maximum: None }).unwrap();
    let content = "x".repeat(400_000);
    for path in ["single", "a", "new"] {
        let output = std::thread::scope(|scope| scope.spawn(|| put(&w, path, &content)).join().unwrap());
        let want = format!("Cannot write {path}: File too large.");
        assert_eq!(failure(&output), ("io", want.as_str()));
    }
    assert_eq!([disk(&w, "single"), disk(&w, "a"), disk(&w, "b")], ["old", "old", "old"]);
    assert!(!w.root.join("new").exists());
    no_leftovers(&w);
}

#[test]
fn a_content_over_10_mib_is_refused_w5() {
    const MOST: usize = 10 << 20;
    let w = Workspace::new();
    let output = put(&w, "f", &"x".repeat(MOST + 1));
    let want = "f not written: the content is 10485761 bytes, over the limit of 10.0MB.";
    assert_eq!(failure(&output), ("too_large", want));
    assert!(!w.root.join("f").exists());
    let output = put(&w, "f", &"x".repeat(MOST));
    assert_eq!(text(&output), format!("Created f ({MOST} bytes)."));
    assert_eq!(text(&put(&w, "f", &"x".repeat(MOST))), "Unchanged: f already has this content.");
    // A large file gives way to a small one without being read.
    assert_eq!(text(&put(&w, "f", "x")), format!("Replaced f (1 bytes, was {MOST})."));
}

#[test]
fn a_mask_is_not_written_w6() {
    let w = Workspace::new();
    w.file(".env", "OPENAI_API_KEY=sk-live-1234567890\nMODE=a\n");
    let output = put(&w, ".env", "OPENAI_API_KEY=[redacted:OPENAI_API_KEY]\nMODE=b\n");
    let want = ".env not changed: the text holds [redacted:OPENAI_API_KEY], a mask for a secret the model cannot see. \
                Edit around it, or leave that line as it is.";
    assert_eq!(failure(&output), ("invalid_args", want));
    assert_eq!(disk(&w, ".env"), "OPENAI_API_KEY=sk-live-1234567890\nMODE=a\n");
}

#[test]
fn a_cancelled_write_changes_nothing_c7() {
    let w = Workspace::new();
    w.file("f", "old");
    w.cancel.cancel();
    for path in ["f", "new/f"] {
        assert_eq!(failure(&put(&w, path, "new")), ("aborted", "Aborted."));
    }
    assert_eq!(disk(&w, "f"), "old");
    assert!(!w.root.join("new").exists());
}

#[test]
fn a_change_may_wait_for_the_medium_m3() {
    let mut w = Workspace::new();
    w.settings.fsync = true;
    assert_eq!(text(&put(&w, "d/f", "x")), "Created d/f (1 bytes).");
    assert_eq!(text(&put(&w, "d/f", "y")), "Replaced d/f (1 bytes, was 1).");
}
