use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use tempfile::{NamedTempFile, TempPath};
use tokio_util::sync::CancellationToken;

use super::disk::{Disk, System};
use super::{Mutations, Request};
use crate::model::Content;
use crate::port::ToolOutput;
use crate::tool::path::Places;
use crate::tool::{Confine, Confinement};

/// An operation of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Temporary,
    Write,
    Reserve,
    Resize,
    Sync,
    Rename,
}

/// Something that happens before each operation; an error of it is the operation's.
type Happening = Box<dyn Fn(Step, &Path) -> std::io::Result<()> + Send + Sync>;

/// A disk to which things happen.
struct Eventful(Happening);

impl Disk for Eventful {
    fn temporary(&self, directory: &Path, prefix: &OsStr, mode: u32) -> std::io::Result<NamedTempFile> {
        (self.0)(Step::Temporary, directory)?;
        System.temporary(directory, prefix, mode)
    }

    fn write(&self, file: &mut File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        // Half of it gets through.
        System.write(file, offset, &bytes[..bytes.len() / 2])?;
        (self.0)(Step::Write, Path::new(""))?;
        System.write(file, offset, bytes)
    }

    fn reserve(&self, file: &File, length: u64) -> std::io::Result<()> {
        (self.0)(Step::Reserve, Path::new(""))?;
        System.reserve(file, length)
    }

    fn resize(&self, file: &File, length: u64) -> std::io::Result<()> {
        (self.0)(Step::Resize, Path::new(""))?;
        System.resize(file, length)
    }

    fn sync(&self, file: &File) -> std::io::Result<()> {
        (self.0)(Step::Sync, Path::new(""))?;
        System.sync(file)
    }

    fn rename(&self, temporary: TempPath, to: &Path, fresh: bool) -> std::io::Result<()> {
        (self.0)(Step::Rename, to)?;
        System.rename(temporary, to, fresh)
    }
}

fn mutations(happening: impl Fn(Step, &Path) -> std::io::Result<()> + Send + Sync + 'static) -> Mutations {
    Mutations { queue: Arc::default(), disk: Arc::new(Eventful(Box::new(happening))), fsync: false }
}

struct Scene {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

impl Scene {
    /// A directory with `old.txt` of 3 bytes and `pair`, a second name of `pair.txt`.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["old.txt", "pair.txt"] {
            put(&root.join(name), "old");
        }
        std::fs::hard_link(root.join("pair.txt"), root.join("pair")).unwrap();
        Self { _directory: directory, root }
    }

    fn content(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(name)).ok()
    }

    fn leftovers(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| name.contains(".pirn-")).collect()
    }

    fn replace(&self, mutations: &Mutations, name: &str, content: &str) -> ToolOutput {
        block_on(replace(mutations, &self.root, name, content, &CancellationToken::new()))
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's own file need not survive a crash")]
fn put(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}

fn replace(
    mutations: &Mutations,
    root: &Path,
    name: &str,
    content: &str,
    cancel: &CancellationToken,
) -> impl Future<Output = ToolOutput> + use<> {
    let guard = Arc::new(Confine::new(Confinement::Off, &[], None));
    let request = Request {
        written: name.to_owned(),
        shown: name.to_owned(),
        places: Places { cwd: root.to_owned(), home: None, guard },
        cancel: cancel.clone(),
    };
    let content = content.to_owned();
    let find = |request: &Request| request.places.destination(&request.written);
    mutations.run(request, find, move |target| {
        let atomic = target.replace(content.as_bytes())?;
        Ok(ToolOutput::text(if atomic { "atomic" } else { "in place" }))
    })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

#[track_caller]
fn text(output: &ToolOutput) -> &str {
    output.content.first().and_then(Content::as_text).unwrap()
}

const FULL: i32 = libc::ENOSPC;

#[test]
fn a_failure_leaves_the_old_content_and_no_temporary_file_m3_m4() {
    const NEW: &str = "a new content";
    for (file, step, number, want) in [
        ("old.txt", None, 0, "atomic"),
        ("new.txt", None, 0, "atomic"),
        ("pair.txt", None, 0, "in place"),
        // A full disk.
        ("old.txt", Some(Step::Temporary), FULL, "Cannot write old.txt: No space left on device."),
        ("old.txt", Some(Step::Write), FULL, "Cannot write old.txt: No space left on device."),
        ("old.txt", Some(Step::Rename), FULL, "Cannot write old.txt: No space left on device."),
        ("new.txt", Some(Step::Write), FULL, "Cannot write new.txt: No space left on device."),
        ("pair.txt", Some(Step::Reserve), FULL, "Cannot write pair.txt: No space left on device."),
        // A file system that can not promise room.
        ("pair.txt", Some(Step::Reserve), libc::EOPNOTSUPP, "in place"),
        // A directory that takes no file, which may hold one.
        ("old.txt", Some(Step::Temporary), libc::EACCES, "in place"),
        ("old.txt", Some(Step::Temporary), libc::EROFS, "in place"),
        ("new.txt", Some(Step::Temporary), libc::EACCES, "Permission denied: new.txt"),
        // A single file that is mounted.
        ("old.txt", Some(Step::Rename), libc::EXDEV, "in place"),
        ("old.txt", Some(Step::Rename), libc::EPERM, "in place"),
        ("old.txt", Some(Step::Rename), libc::EBUSY, "in place"),
        ("new.txt", Some(Step::Rename), libc::EPERM, "in place"),
        ("old.txt", Some(Step::Rename), libc::EIO, "Cannot write old.txt: Input/output error."),
    ] {
        let scene = Scene::new();
        let inode = std::fs::metadata(scene.root.join("old.txt")).unwrap().ino();
        let failing = mutations(move |now, _| match step {
            Some(step) if step == now => Err(std::io::Error::from_raw_os_error(number)),
            _ => Ok(()),
        });
        let output = scene.replace(&failing, file, NEW);
        let case = format!("{file}, {step:?}, {number}");
        assert_eq!(text(&output), want, "{case}");
        let old = (file != "new.txt").then_some("old");
        assert_eq!(scene.content(file).as_deref(), if output.is_error { old } else { Some(NEW) }, "{case}");
        assert!(scene.leftovers().is_empty(), "{case}: {:?}", scene.leftovers());
        if file == "old.txt" && want == "in place" {
            assert_eq!(std::fs::metadata(scene.root.join(file)).unwrap().ino(), inode, "{case}");
        }
    }
    assert_eq!(Scene::new().content("pair"), Some("old".to_owned()));
}

#[test]
fn a_write_in_place_that_fails_is_undone_or_owned_up_to_m4() {
    for (failures, want, content) in [
        (1, "Cannot write pair.txt: Input/output error.", "old"),
        (2, "pair.txt is damaged: writing it in place failed half-way: Input/output error.", ""),
    ] {
        let scene = Scene::new();
        let count = AtomicUsize::new(0);
        let failing = mutations(move |step, _| {
            let fails = step == Step::Write && count.fetch_add(1, Ordering::Relaxed) < failures;
            if fails { Err(std::io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
        });
        let output = scene.replace(&failing, "pair.txt", "a new content");
        assert_eq!((output.is_error, text(&output)), (true, want));
        if failures == 1 {
            assert_eq!(scene.content("pair.txt").as_deref(), Some(content));
        }
    }
}

#[test]
fn what_others_did_in_the_meantime_is_not_overwritten_m6() {
    type Meddling = fn(&Path);
    let longer: Meddling = |path| put(path, "theirs");
    let same_size: Meddling = |path| {
        let times = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        let file = File::options().write(true).open(path).unwrap();
        file.set_times(times).unwrap();
    };
    let exchanged: Meddling = |path| {
        std::fs::remove_file(path).unwrap();
        put(path, "new");
    };
    let removed: Meddling = |path| std::fs::remove_file(path).unwrap();
    let made: Meddling = |path| put(path, "theirs");
    let linked: Meddling = |path| {
        std::fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink("pair", path).unwrap();
    };
    for (file, step, meddle, want) in [
        ("old.txt", Step::Write, longer, Some("theirs")),
        ("old.txt", Step::Write, same_size, Some("old")),
        ("old.txt", Step::Write, exchanged, Some("new")),
        ("old.txt", Step::Write, removed, None),
        ("old.txt", Step::Write, linked, Some("old")),
        ("new.txt", Step::Write, made, Some("theirs")),
        // Also when it happens at the last moment.
        ("new.txt", Step::Rename, made, Some("theirs")),
    ] {
        let scene = Scene::new();
        let path = scene.root.join(file);
        let meddling = mutations(move |now, _| {
            if now == step {
                meddle(&path);
            }
            Ok(())
        });
        let output = scene.replace(&meddling, file, "ours");
        let conflict = format!("{file} changed while it was being edited; read it again.");
        assert_eq!((output.is_error, text(&output)), (true, conflict.as_str()));
        assert_eq!(output.details.unwrap()["error"]["code"], "conflict");
        assert_eq!(scene.content(file).as_deref(), want, "{file}, {step:?}");
        assert!(scene.leftovers().is_empty());
    }
}

#[test]
fn what_others_did_before_a_write_in_place_is_not_overwritten_m6() {
    let scene = Scene::new();
    let path = scene.root.join("old.txt");
    // The directory takes no file any more, and the file was changed.
    let meddling = mutations(move |step, _| {
        if step == Step::Temporary {
            put(&path, "theirs");
            return Err(std::io::Error::from_raw_os_error(libc::EACCES));
        }
        Ok(())
    });
    let output = scene.replace(&meddling, "old.txt", "ours");
    assert_eq!(text(&output), "old.txt changed while it was being edited; read it again.");
    assert_eq!(scene.content("old.txt").as_deref(), Some("theirs"));
}

#[test]
fn a_cancelled_call_leaves_no_trace_or_is_completed_c7() {
    let many_chunks = "x".repeat(1 << 20);
    for (file, step, want) in [
        ("old.txt", Step::Temporary, "Aborted."),
        ("old.txt", Step::Write, "Aborted."),
        // With the last step the change is made, and the result says so.
        ("old.txt", Step::Rename, "atomic"),
        ("pair.txt", Step::Reserve, "Aborted."),
        ("pair.txt", Step::Write, "in place"),
    ] {
        let scene = Scene::new();
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let cancelling = mutations(move |now, _| {
            if now == step {
                token.cancel();
            }
            Ok(())
        });
        let output = block_on(replace(&cancelling, &scene.root, file, &many_chunks, &cancel));
        assert_eq!(text(&output), want, "{file}, {step:?}");
        let content = scene.content(file).unwrap();
        assert_eq!(content, if want == "Aborted." { "old" } else { many_chunks.as_str() });
        assert!(scene.leftovers().is_empty());
    }
}

#[test]
fn a_change_waits_for_the_medium_only_where_it_is_asked_to_m3() {
    for (fsync, file, want) in [
        (false, "old.txt", vec![Step::Temporary, Step::Write, Step::Rename]),
        // The file before its name, and the directory behind it.
        (true, "old.txt", vec![Step::Temporary, Step::Write, Step::Sync, Step::Rename, Step::Sync]),
        (true, "pair.txt", vec![Step::Reserve, Step::Write, Step::Resize, Step::Sync]),
    ] {
        let scene = Scene::new();
        let steps = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&steps);
        let mut watched = mutations(move |step, _| {
            seen.lock().unwrap().push(step);
            Ok(())
        });
        watched.fsync = fsync;
        assert!(!scene.replace(&watched, file, "a new content").is_error);
        assert_eq!(*steps.lock().unwrap(), want);
    }
    let scene = Scene::new();
    let count = AtomicUsize::new(0);
    let mut failing = mutations(move |step, _| {
        let fails = step == Step::Sync && count.fetch_add(1, Ordering::Relaxed) == 1;
        if fails { Err(std::io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    });
    failing.fsync = true;
    let output = scene.replace(&failing, "old.txt", "new");
    assert_eq!(text(&output), "old.txt was changed, but may not survive a crash: Input/output error.");
}

/// A disk that stops before the rename of `blocked` until it is told to go on, and says when it has got there.
fn stopping(blocked: &'static str) -> (Mutations, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrived, arrival) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let (arrived, gone) = (Mutex::new(arrived), Mutex::new(gone));
    let mutations = mutations(move |step, path| {
        if step == Step::Rename && path.ends_with(blocked) {
            arrived.lock().unwrap().send(()).unwrap();
            gone.lock().unwrap().recv().unwrap();
        }
        Ok(())
    });
    (mutations, arrival, go)
}

#[test]
fn a_call_that_nobody_waits_for_holds_its_turn_to_the_end_c7_m2() {
    let scene = Scene::new();
    let (mutations, arrival, go) = stopping("old.txt");
    let cancel = CancellationToken::new();
    block_on(async {
        let mut first = Box::pin(replace(&mutations, &scene.root, "old.txt", "first", &cancel));
        let mut second = Box::pin(replace(&mutations, &scene.root, "./old.txt", "second", &cancel));
        let started = tokio::task::spawn_blocking(move || arrival.recv().map(|()| arrival));
        let arrival = tokio::select! {
            arrival = started => arrival.unwrap().unwrap(),
            _ = &mut first => panic!("it waits"),
            _ = &mut second => panic!("it waits for the first"),
        };
        // As when the grace of a cancelled call is over.
        drop(first);
        let other = replace(&mutations, &scene.root, "other.txt", "free", &cancel);
        assert_eq!(text(&other.await), "atomic");
        let waits = tokio::select! {
            biased;
            _ = &mut second => false,
            () = tokio::task::yield_now() => true,
        };
        assert!(waits && scene.content("old.txt").as_deref() == Some("old"));
        go.send(()).unwrap();
        go.send(()).unwrap();
        assert_eq!(text(&second.await), "atomic");
        // The first had its rename before the second came to its own.
        arrival.recv().unwrap();
        assert_eq!(scene.content("old.txt").as_deref(), Some("second"));
    });
}

#[test]
fn a_cancelled_call_leaves_the_queue_m1() {
    let scene = Scene::new();
    let (mutations, arrival, go) = stopping("old.txt");
    let (cancel, none) = (CancellationToken::new(), CancellationToken::new());
    block_on(async {
        let mut first = Box::pin(replace(&mutations, &scene.root, "old.txt", "first", &none));
        let second = replace(&mutations, &scene.root, "old.txt", "second", &cancel);
        let started = tokio::task::spawn_blocking(move || arrival.recv());
        tokio::select! {
            arrival = started => arrival.unwrap().unwrap(),
            _ = &mut first => panic!("it waits"),
        }
        cancel.cancel();
        assert_eq!(text(&second.await), "Aborted.");
        go.send(()).unwrap();
        assert_eq!(text(&first.await), "atomic");
        assert_eq!(scene.content("old.txt").as_deref(), Some("first"));
    });
}

#[test]
fn names_of_temporary_files_fit_m3() {
    let scene = Scene::new();
    for name in ["n".repeat(255), "é".repeat(127), ".x".to_owned()] {
        let output = scene.replace(&Mutations::new(false), &name, "x");
        assert_eq!(text(&output), "atomic", "{name}");
        assert_eq!(text(&scene.replace(&Mutations::new(false), &name, "y")), "atomic", "{name}");
    }
    let output = scene.replace(&Mutations::new(false), &"n".repeat(256), "x");
    assert!(text(&output).ends_with("File name too long."));
}

/// Where the child of the next test stops, and in which directory.
const CHILD: &str = "PIRN_TEST_STOP";

/// The child runs this test as well, stops in the middle of a replacement and is killed there.
#[test]
#[expect(clippy::disallowed_methods, reason = "the child is this test itself")]
fn case_61_and_proc_05_a_killed_write_leaves_old_or_new_content() {
    const TEST: &str = "tool::mutate::tests::case_61_and_proc_05_a_killed_write_leaves_old_or_new_content";
    let stops = [("Write", Step::Write, "old"), ("Rename", Step::Rename, "old"), ("Sync", Step::Sync, "new")];
    if let Some(directory) = std::env::var_os(CHILD) {
        let directory = PathBuf::from(directory);
        let name = directory.extension().unwrap().to_owned();
        let step = stops.into_iter().find(|(word, ..)| name == *word).unwrap().1;
        return stop_at(step, &directory);
    }
    for (word, _, want) in stops {
        let scene = Scene::new();
        let directory = scene.root.join(format!("stop.{word}"));
        std::fs::create_dir(&directory).unwrap();
        put(&directory.join("f.txt"), "old");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(CHILD, &directory)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("stopped") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "{word}: the child stops");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(std::fs::read_to_string(directory.join("f.txt")).unwrap(), want, "{word}");
        let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut others: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        others.retain(|name| name != "f.txt");
        assert!(others.len() <= 1 && others.iter().all(|name| name.starts_with(".f.txt.pirn-")), "{others:?}");
    }
}

/// Replaces `f.txt` up to a step, says so, and waits there for the end.
fn stop_at(stop: Step, directory: &Path) {
    let syncs = AtomicUsize::new(0);
    let mut stopping = mutations(move |step, _| {
        // The second wait for the medium is the directory's, behind the rename.
        let reached = step == stop && (stop != Step::Sync || syncs.fetch_add(1, Ordering::Relaxed) == 1);
        if reached {
            let mut stdout = std::io::stdout();
            stdout.write_all(b"stopped\n")?;
            stdout.flush()?;
            let mut byte = [0];
            // Nobody writes; only the death of the parent would end this.
            std::io::stdin().read_exact(&mut byte)?;
        }
        Ok(())
    });
    stopping.fsync = true;
    block_on(replace(&stopping, directory, "f.txt", "new", &CancellationToken::new()));
}
