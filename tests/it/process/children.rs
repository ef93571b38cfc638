//! How children start and what they see: B2, X1, X2, V3, PROC-08, PROC-10.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use pirn::process::{Exited, Output, SpawnError, Spec, Stdin};

use super::{LONG, all, bounded, line, runs, shell, start, status, supervisor};

#[tokio::test]
async fn both_streams_through_one_pipe_keep_their_order_b2() {
    let supervisor = supervisor(LONG, false);
    let spec = shell("i=0; while [ $i -lt 300 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done");
    let mut child = supervisor.spawn(spec).unwrap();
    let mut want = String::new();
    for i in 0..300 {
        write!(want, "o{i}\ne{i}\n").unwrap();
    }
    assert_eq!(all(child.output().unwrap()).await, want);
    assert!(child.output().is_none() && child.errors().is_none());
    assert!(bounded(child.wait()).await.unwrap().is_success());
}

#[tokio::test]
async fn separate_streams_stay_apart() {
    let supervisor = supervisor(LONG, false);
    let spec = Spec { output: Output::Separate, ..shell("echo out; echo err >&2") };
    let mut child = supervisor.spawn(spec).unwrap();
    let (output, errors) = (child.output().unwrap(), child.errors().unwrap());
    assert_eq!((all(output).await.as_str(), all(errors).await.as_str()), ("out\n", "err\n"));
}

#[tokio::test]
async fn a_child_reads_nothing_or_what_it_is_given_proc_10() {
    let supervisor = supervisor(LONG, false);
    let mut child = supervisor.spawn(shell("cat; readlink /proc/self/fd/0; echo end")).unwrap();
    assert_eq!(all(child.output().unwrap()).await, "/dev/null\nend\n");

    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"given\n").unwrap();
    file.rewind().unwrap();
    let mut child = supervisor.spawn(Spec { stdin: Stdin::File(file), ..shell("cat; echo end") }).unwrap();
    assert_eq!(all(child.output().unwrap()).await, "given\nend\n");
}

#[tokio::test]
async fn a_child_leads_a_session_and_a_group_without_a_terminal_x1() {
    let supervisor = supervisor(LONG, false);
    let (child, _output, pids) = start(&supervisor, shell("echo $$; exec sleep 300"), 1).await;
    let id = child.id();
    assert_eq!(pids, [id]);
    let (own, id) = (std::process::id().to_string(), id.to_string());
    // Parent, group, session, terminal.
    assert_eq!(status(child.id()).unwrap()[1..5], [own, id.clone(), id, "0".to_owned()]);
    let mut child = supervisor.spawn(shell("echo x > /dev/tty || echo none")).unwrap();
    assert!(all(child.output().unwrap()).await.ends_with("none\n"));
}

#[tokio::test]
async fn a_child_has_no_descriptor_of_ours_x2() {
    let lock = tempfile::NamedTempFile::new().unwrap();
    // As a library that forgets to mark its descriptors would leave one.
    let unmarked = rustix::io::dup(lock.as_file()).unwrap();
    let is_marked = rustix::io::fcntl_getfd(&unmarked).unwrap().contains(rustix::io::FdFlags::CLOEXEC);
    assert!(!is_marked && unmarked.as_raw_fd() > 2);
    let supervisor = supervisor(LONG, false);
    // The shell's own list; the directory it reads it from is closed when the loop begins.
    let mut child = supervisor.spawn(shell("for f in /proc/$$/fd/*; do readlink $f; done")).unwrap();
    let text = all(child.output().unwrap()).await;
    let open: Vec<&str> = text.lines().collect();
    assert!(open.len() == 3 && open[0] == "/dev/null" && open[1].starts_with("pipe:") && open[1] == open[2], "{text}");
}

#[tokio::test]
async fn a_child_has_the_environment_of_the_policy_and_no_other_proc_08() {
    let supervisor = supervisor(LONG, false);
    let spec = Spec {
        env: vec![("OWN".into(), "1".into())],
        call_id: Some("c1".to_owned()),
        session_id: Some("s1".to_owned()),
        cwd: PathBuf::from("/usr"),
        ..shell("env | sort; pwd")
    };
    let mut child = supervisor.spawn(spec).unwrap();
    let text = all(child.output().unwrap()).await;
    let shells = |line: &&str| !line.starts_with("PWD=") && !line.starts_with("_=") && !line.starts_with("SHLVL=");
    let lines: Vec<&str> = text.lines().filter(shells).collect();
    let (path, token) = (std::env::var("PATH").unwrap(), supervisor.token());
    let want = format!(
        "GH_PAGER=cat\nGIT_PAGER=cat\nGIT_TERMINAL_PROMPT=0\nLANG=C.UTF-8\nNO_COLOR=1\nOWN=1\nPAGER=cat\nPATH={path}\n\
         PIRN=1\nPIRN_CALL_ID=c1\nPIRN_DEPTH=1\nPIRN_RUN_TOKEN={token}\nPIRN_SESSION_ID=s1\nTERM=dumb\n/usr"
    );
    // A shell sorts by the locale of its environment.
    let (mut lines, mut want) = (lines, want.lines().collect::<Vec<&str>>());
    lines.sort_unstable();
    want.sort_unstable();
    assert_eq!(lines, want);
    assert_ne!(super::supervisor(LONG, false).token(), token);
}

#[tokio::test]
async fn the_end_of_a_child_is_told_as_often_as_it_is_asked() {
    let supervisor = supervisor(LONG, false);
    for (command, code, signal, shell_code) in
        [("exit 0", Some(0), None, 0), ("exit 3", Some(3), None, 3), ("kill -9 $$", None, Some(9), 137)]
    {
        let mut child = supervisor.spawn(shell(command)).unwrap();
        let exited = bounded(child.wait()).await.unwrap();
        assert_eq!(exited, Exited { code, signal }, "{command}");
        assert_eq!(exited.shell_code(), shell_code, "{command}");
        assert_eq!(bounded(child.wait()).await.unwrap(), exited, "{command}");
        assert_eq!(child.survivors().await, [0; 0], "{command}");
    }
}

#[tokio::test]
async fn waiting_can_be_given_up_and_taken_up_again() {
    let supervisor = supervisor(LONG, false);
    let mut child = supervisor.spawn(shell("echo on; read line < /dev/fd/0; kill -STOP $$; exit 5")).unwrap();
    let mut output = child.output().unwrap();
    assert_eq!(line(&mut output).await, "on");
    let id = child.id();
    super::until("it has stopped itself", || status(id).is_some_and(|fields| fields[0] == "T")).await;
    assert!(tokio::time::timeout(std::time::Duration::from_millis(20), child.wait()).await.is_err());
    let pid = rustix::process::Pid::from_raw(id.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert_eq!(bounded(child.wait()).await.unwrap().code, Some(5));
}

#[tokio::test]
async fn many_children_at_once_are_all_waited_for() {
    let supervisor = supervisor(LONG, false);
    let mut children: Vec<_> = (0..16).map(|i| supervisor.spawn(shell(&format!("exit {i}"))).unwrap()).collect();
    for (i, child) in (0..).zip(&mut children) {
        assert_eq!(bounded(child.wait()).await.unwrap().code, Some(i));
    }
}

/// What to start, whether the error is of the right kind, and its text.
type Failure = (Spec, fn(&SpawnError) -> bool, String);

#[tokio::test]
async fn what_cannot_start_says_why_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let plain = file("plain", "x", 0o644);
    let orphaned = file("orphaned", "#!/nonexistent/interpreter\n", 0o755);
    let supervisor = supervisor(LONG, false);
    let program = |path: &str| Spec { program: PathBuf::from(path), ..shell("true") };
    let table: Vec<Failure> = vec![
        (
            Spec { cwd: PathBuf::from("/nonexistent/dir"), ..shell("true") },
            |error| matches!(error, SpawnError::NoDirectory(_)),
            "Working directory does not exist: /nonexistent/dir".to_owned(),
        ),
        (
            Spec { cwd: plain.clone(), ..shell("true") },
            |error| matches!(error, SpawnError::NoDirectory(_)),
            format!("Working directory does not exist: {}", plain.display()),
        ),
        (
            program("/nonexistent/program"),
            |error| matches!(error, SpawnError::NotFound(_)),
            "Program not found: /nonexistent/program".to_owned(),
        ),
        (
            program("nonexistent-program-of-pirn"),
            |error| matches!(error, SpawnError::NotFound(_)),
            "Program not found: nonexistent-program-of-pirn".to_owned(),
        ),
        (
            program(orphaned.to_str().unwrap()),
            |error| matches!(error, SpawnError::NoInterpreter(_)),
            format!("Program cannot run, its interpreter is missing: {}", orphaned.display()),
        ),
        (
            program(plain.to_str().unwrap()),
            |error| matches!(error, SpawnError::NotAllowed { .. }),
            format!("Permission denied: {} in /", plain.display()),
        ),
        (
            Spec { args: vec![OsString::from("x".repeat(4 << 20))], ..shell("") },
            |error| matches!(error, SpawnError::TooLong(_)),
            "shell was not started: its arguments and environment are longer than the system allows".to_owned(),
        ),
        (
            shell("a\0b"),
            |error| matches!(error, SpawnError::Nul(_)),
            "shell was not started: a NUL byte in its arguments, environment or directory".to_owned(),
        ),
    ];
    for (spec, check, message) in table {
        let error = supervisor.spawn(spec).unwrap_err();
        assert!(check(&error), "{error:?}");
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(supervisor.shutdown().await, []);
}

#[test]
fn outside_of_a_runtime_nothing_starts() {
    let error = supervisor(LONG, false).spawn(shell("true")).unwrap_err();
    assert!(matches!(error, SpawnError::NoRuntime), "{error:?}");
}

#[tokio::test]
async fn a_child_that_is_dropped_is_killed_with_its_group() {
    let supervisor = supervisor(LONG, false);
    let (child, _output, pids) = start(&supervisor, shell("sleep 300 & echo $!; echo $$; wait"), 2).await;
    drop(child);
    super::until("both are gone", || !pids.iter().any(|pid| runs(*pid))).await;
    // The next start reaps it: nobody of that number is left.
    let mut next = supervisor.spawn(shell("true")).unwrap();
    super::until("it is reaped", || {
        drop(supervisor.spawn(shell("true")).unwrap());
        status(pids[1]).is_none()
    })
    .await;
    bounded(next.wait()).await.unwrap();
}

#[tokio::test]
async fn no_child_outlives_a_supervisor_that_is_dropped() {
    let supervisor = supervisor(LONG, false);
    let (child, _output, pids) = start(&supervisor, shell("sleep 300 & echo $!; echo $$"), 2).await;
    child.release();
    drop(supervisor);
    super::until("both are gone", || !pids.iter().any(|pid| runs(*pid))).await;
}
