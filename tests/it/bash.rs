//! `bash` on real processes: cases 78–92, 97, 141 and 143 of `tests/cases/tools.md` as far as the tool goes, the reports
//! PROC-01 to PROC-12 and MSG-05, and what the tool rules say beside them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pirn::model::{EntryId, RunId, Secret};
use pirn::port::{Inputs, Memos, SessionRef, SystemClock, Tool, ToolCtx, ToolOutput, ToolUpdate, Updates};
use pirn::process::mask::Masks;
use pirn::process::{ChildEnv, EnvPolicy, Supervisor, SupervisorSettings};
use pirn::tool::{BackgroundAtExit, Confine, Confinement, ToolSettings, builtin};
use pirn::turn::arguments::ArgumentCheck;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::tool_support::{Workspace, seq, text};

const KEY: &str = "sk-live-1234567890";

#[derive(Default)]
struct KeptMemos {
    kept: Mutex<Vec<(String, Value)>>,
    is_broken: bool,
}

#[async_trait]
impl Memos for KeptMemos {
    async fn get(&self, _name: &str) -> Option<Value> {
        None
    }

    async fn set(&self, name: &str, value: Value) -> Result<(), String> {
        if self.is_broken {
            return Err("the session is gone".to_owned());
        }
        self.kept.lock().unwrap().push((name.to_owned(), value));
        Ok(())
    }
}

/// A directory, a supervisor and the tool, on one runtime that lives as long as they do.
struct Shell {
    runtime: Runtime,
    supervisor: Supervisor,
    tool: Option<Arc<dyn Tool>>,
    directory: tempfile::TempDir,
    root: PathBuf,
    session: Option<SessionRef>,
    memos: Arc<KeptMemos>,
    cancel: CancellationToken,
}

impl Shell {
    fn new() -> Self {
        Self::with(|_| {}, EnvPolicy::default(), &[])
    }

    fn with(change: impl FnOnce(&mut ToolSettings), env: EnvPolicy, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let mut parent: Vec<_> = std::env::vars_os().collect();
        parent.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
        let clock = Arc::new(SystemClock::new());
        // Other tests have children of their own, which a sweep would take for lost ones of ours.
        let supervised =
            SupervisorSettings { env: ChildEnv::new(env, parent), grace: Duration::from_millis(500), sweep: false };
        let supervisor = Supervisor::new(supervised, clock.clone()).unwrap();
        std::fs::create_dir(root.join("tmp")).unwrap();
        std::fs::create_dir(root.join("cwd")).unwrap();
        let mut settings = ToolSettings { temporary: root.join("tmp"), clock, ..ToolSettings::default() };
        settings.bash.grace = Duration::from_millis(500);
        settings.children = Some(supervisor.clone());
        change(&mut settings);
        let session = SessionRef { id: "s1".to_owned(), file: None, spill_dir: root.join("state/s.d") };
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            supervisor,
            tool: builtin(&settings, &["bash".to_owned()]).pop(),
            directory,
            root,
            session: Some(session),
            memos: Arc::default(),
            cancel: CancellationToken::new(),
        }
    }

    /// With this secret masked.
    fn masking() -> Self {
        let masks = Masks::new([("ANTHROPIC_API_KEY".to_owned(), Secret::new(KEY))]).unwrap();
        Self::with(|settings| settings.masks = masks, EnvPolicy::default(), &[])
    }

    fn ctx(&self, id: &str, updates: Updates) -> ToolCtx {
        ToolCtx {
            tool_call_id: "c1".to_owned(),
            invocation_id: EntryId::new(id),
            run_id: RunId::new("r1"),
            turn_id: "r1:1".to_owned(),
            lane: "main".to_owned(),
            session: self.session.clone(),
            cwd: self.root.join("cwd"),
            guard: Arc::new(Confine::new(Confinement::Write, std::slice::from_ref(&self.root), None)),
            model_inputs: Inputs { text: true, image: false },
            enabled_tools: Arc::from(["bash".to_owned()]),
            cancel: self.cancel.clone(),
            updates,
            memos: Arc::clone(&self.memos) as Arc<dyn Memos>,
        }
    }

    fn tool(&self) -> &dyn Tool {
        &**self.tool.as_ref().unwrap()
    }

    fn checked(&self, args: Value) -> Value {
        let prepared = self.tool().prepare(args).unwrap();
        ArgumentCheck::compile(&self.tool().spec().input_schema).unwrap().check("bash", &prepared).unwrap()
    }

    fn call(&self, args: Value) -> ToolOutput {
        self.call_as("e1", args)
    }

    fn call_as(&self, id: &str, args: Value) -> ToolOutput {
        let ctx = self.ctx(id, Updates::channel(1).0);
        self.runtime.block_on(self.tool().call(self.checked(args), ctx))
    }

    fn run(&self, command: &str) -> ToolOutput {
        self.call(json!({"command": command}))
    }

    /// A result with all updates that came before it.
    fn watch(&self, command: &str) -> (ToolOutput, Vec<ToolUpdate>) {
        let (updates, mut receiver) = Updates::channel(16);
        let ctx = self.ctx("e1", updates);
        let args = json!({"command": command});
        self.runtime.block_on(async {
            let mut seen = Vec::new();
            let call = self.tool().call(args, ctx);
            tokio::pin!(call);
            loop {
                tokio::select! {
                    output = &mut call => {
                        while let Ok(update) = receiver.try_recv() {
                            seen.push(update);
                        }
                        return (output, seen);
                    }
                    Some(update) = receiver.recv() => seen.push(update),
                }
            }
        })
    }

    /// Lets the runtime work until `done` holds, for at most ten seconds.
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        self.runtime.block_on(async {
            for _ in 0..1_000 {
                if done() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            panic!("it never came to this: {what}");
        });
    }

    fn shutdown(&self) {
        let remaining = self.runtime.block_on(self.supervisor.shutdown());
        assert!(remaining.is_empty(), "{remaining:?}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.supervisor.kill_now();
    }
}

fn words(output: &ToolOutput) -> &str {
    let [block] = output.content.as_slice() else { panic!("one block: {output:?}") };
    block.as_text().unwrap()
}

fn code(output: &ToolOutput) -> &str {
    let code = output.details.as_ref().and_then(|details| details["error"]["code"].as_str()).unwrap_or_default();
    assert_eq!(output.is_error, !code.is_empty(), "{output:?}");
    code
}

fn detail<'a>(output: &'a ToolOutput, name: &str) -> &'a Value {
    &output.details.as_ref().unwrap()[name]
}

fn spill(output: &ToolOutput) -> PathBuf {
    PathBuf::from(detail(output, "fullOutputPath").as_str().expect("there is a file"))
}

fn background(output: &ToolOutput) -> Vec<i32> {
    let pids = detail(output, "background").as_array().expect("something was left behind");
    pids.iter().map(|pid| i32::try_from(pid.as_i64().unwrap()).unwrap()).collect()
}

/// Whether a process runs; one that ended and was not reaped does not.
fn runs(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(") ").next().unwrap().starts_with('Z')
}

/// Ends a process, if it has not ended by itself.
fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    assert!(matches!(killed, Ok(()) | Err(rustix::io::Errno::SRCH)), "{killed:?}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn update_text(update: &ToolUpdate) -> &str {
    update.partial.content[0].as_text().unwrap()
}

#[test]
fn commands_give_the_results_of_the_cases() {
    let shell = Shell::new();
    for (case, command, code_want, want) in [
        ("case 78", "echo hi; echo err >&2; exit 3", "exit", "hi\nerr\n\n[exit code 3]"),
        ("case 79", "true", "", "(no output)"),
        ("case 79", r"printf 'a\n\n\n'", "", "a"),
        ("case 80", "kill -9 $$", "signal", "(no output)\n\n[killed by SIGKILL, exit code 137]"),
        ("case 84", r"printf 'a\033[31mred\033[0m\tb\r\n'", "", "ared\tb"),
        ("case 84", r"printf '10%%\r50%%\r100%%\ndone\n'", "", "100%\ndone"),
        ("case 85", "cat; echo rc=$?", "", "rc=0"),
        ("case 85", "tty", "exit", "not a tty\n\n[exit code 1]"),
        ("PROC-10", "cat; echo end", "", "end"),
        ("case 90", r"printf '\377\376ab'", "", "\u{fffd}\u{fffd}ab"),
        ("MSG-05", r"printf '\377\376 ok \355\240\275\n'", "", "\u{fffd}\u{fffd} ok \u{fffd}\u{fffd}\u{fffd}"),
        ("B15", "echo $PIRN $PIRN_CALL_ID $PIRN_SESSION_ID $TERM $PAGER", "", "1 e1 s1 dumb cat"),
    ] {
        let output = shell.run(command);
        assert_eq!((code(&output), words(&output)), (code_want, want), "{case}: {command}");
    }
    assert_eq!(detail(&shell.run("exit 3"), "exitCode"), 3);
    let killed = shell.run("kill -9 $$");
    assert_eq!((detail(&killed, "exitCode"), detail(&killed, "signal")), (&json!(137), &json!("SIGKILL")));
    assert!(!shell.root.join("state").exists(), "nothing was spilled");
    let aliased = shell.call(json!({"cmd": "echo aliased"}));
    assert_eq!(words(&aliased), "aliased", "A2");
}

#[test]
fn both_streams_keep_their_order_case_89() {
    let shell = Shell::new();
    for _ in 0..200 {
        let output = shell.run("for i in 1 2 3; do echo o$i; echo e$i >&2; done");
        assert_eq!(words(&output), "o1\ne1\no2\ne2\no3\ne3");
    }
}

#[test]
fn a_timeout_ends_the_whole_group_case_81_proc_03() {
    let shell = Shell::new();
    for (command, want) in [("echo a; sleep 60", "a"), ("echo before; bash -c 'sleep 300' | cat", "before")] {
        let started = Instant::now();
        let output = shell.call(json!({"command": format!("echo $$ > pid; {command}"), "timeout": 1}));
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
        let text = format!("{want}\n\n[timed out after 1s; process group killed]");
        assert_eq!((code(&output), words(&output)), ("timeout", text.as_str()));
        assert_eq!(detail(&output, "timedOut"), true);
        assert_eq!(detail(&output, "background"), &Value::Null, "nothing is left");
    }
}

#[test]
fn a_group_that_ignores_the_request_is_killed_after_the_grace_proc_04() {
    let shell =
        Shell::with(|settings| settings.bash.timeout = Some(Duration::from_millis(250)), EnvPolicy::default(), &[]);
    let started = Instant::now();
    let output = shell.run("trap '' TERM; echo $$; sleep 300; sleep 300");
    let elapsed = started.elapsed();
    assert!(elapsed > Duration::from_millis(700) && elapsed < Duration::from_secs(3), "{elapsed:?}");
    let (pid, status) = words(&output).split_once("\n\n").unwrap();
    assert_eq!(status, "[timed out after 0.25s; process group killed]");
    assert!(!runs(pid.parse().unwrap()));
}

#[test]
fn timeouts_are_checked_and_clamped_case_91() {
    let shell = Shell::new();
    let invalid = "Invalid timeout: it must be a number of seconds greater than 0.";
    for timeout in [json!(0), json!(-1.5)] {
        let output = shell.call(json!({"command": "echo x", "timeout": timeout}));
        assert_eq!((code(&output), words(&output)), ("invalid_args", invalid));
    }
    for (asked, seconds, clamped) in [
        (json!(99_999), json!(3600), true),
        (json!(3600), json!(3600), false),
        (json!(2.5), json!(2.5), false),
        (json!("7"), json!(7), false),
        (json!(1e300), json!(3600), true),
        (Value::Null, json!(300), false),
    ] {
        let mut args = json!({"command": "echo x", "timeout": asked});
        if asked.is_null() {
            args.as_object_mut().unwrap().remove("timeout");
        }
        let output = shell.call(args);
        assert_eq!(words(&output), "x");
        assert_eq!((detail(&output, "timeoutS"), detail(&output, "timeoutClamped")), (&seconds, &json!(clamped)));
    }
    let endless = Shell::with(
        |settings| (settings.bash.timeout, settings.bash.max_timeout) = (None, None),
        EnvPolicy::default(),
        &[],
    );
    assert_eq!(detail(&endless.run("true"), "timeoutS"), &Value::Null);
    let output = endless.call(json!({"command": "true", "timeout": 1e300}));
    assert_eq!(detail(&output, "timeoutClamped"), false);
}

#[test]
fn what_cannot_run_is_refused() {
    let mut shell = Shell::new();
    for (command, want) in
        [(" \n", "Invalid command: it is empty."), ("a\0b", "Invalid command: it holds a NUL character.")]
    {
        let output = shell.run(command);
        assert_eq!((code(&output), words(&output)), ("invalid_args", want));
    }
    shell.root.push("gone");
    let output = shell.run("true");
    let want = format!("Working directory does not exist: {}", shell.root.join("cwd").display());
    assert_eq!((code(&output), words(&output)), ("spawn", want.as_str()), "B1");

    let unknown =
        Shell::with(|settings| settings.bash.shell = Some("/no/such/shell".into()), EnvPolicy::default(), &[]);
    let output = unknown.run("true");
    assert_eq!(code(&output), "spawn");
    assert!(words(&output).starts_with("Could not start bash: ") && words(&output).contains("/no/such/shell"));
}

#[test]
fn shells_and_their_prefix_are_configured_and_their_files_are_not_read_b1() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "echo read\n").unwrap();
    let path = file.path().to_str().unwrap();
    let shell = Shell::with(
        |settings| settings.bash.prefix = "set -u\nx=prefixed\n".to_owned(),
        EnvPolicy::default(),
        &[("BASH_ENV", path), ("ENV", path)],
    );
    assert_eq!(words(&shell.run("echo $x")), "prefixed");
    let named = Shell::with(|settings| settings.bash.shell = Some("sh".into()), EnvPolicy::default(), &[]);
    assert_eq!(words(&named.run("echo $0")), "sh");
}

#[test]
fn long_output_is_cut_and_kept_whole_cases_82_83() {
    let shell = Shell::new();
    let output = shell.run("seq 1 3000");
    let file = spill(&output);
    let shown = seq(1001, 3000);
    let want = format!("{}\n\n[last 2000 of 3000 lines; full output: {}]", shown.trim_end(), file.display());
    assert_eq!(words(&output), want);
    assert_eq!(file, shell.root.join("state/s.d/e1.log"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), seq(1, 3000));
    assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
    assert_eq!((detail(&output, "totalLines"), detail(&output, "totalBytes")), (&json!(3000), &json!(13_893)));
    assert_eq!((detail(&output, "truncated"), detail(&output, "truncatedBy")), (&json!(true), &json!("lines")));

    let output = shell.call_as("e2", json!({"command": r"head -c 60000 /dev/zero | tr '\0' x"}));
    let file = spill(&output);
    let line = format!("[last 50.0KB of line 1 (58.6KB); full output: {}]", file.display());
    assert_eq!(words(&output), format!("{}\n\n{line}", "x".repeat(51_200)));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 60_000);

    // What the view does not need is not kept, however much it was.
    let progress = shell.call_as("e3", json!({"command": r"for i in $(seq 50000); do printf 'line %s\r' $i; done"}));
    assert_eq!(words(&progress), "line 50000");
    assert_eq!(detail(&progress, "fullOutputPath"), &Value::Null);
    assert!(!shell.root.join("state/s.d/e3.log").exists());
}

/// Two hundred megabytes; what is held is bounded by the types, whose own tests say how.
#[test]
fn a_flood_is_read_to_its_end_and_kept_up_to_the_cap_proc_06() {
    let shell = Shell::new();
    let started = Instant::now();
    let line = "x".repeat(99);
    let output = shell.run(&format!("yes {line} | head -c 100000000; head -c 100000000 /dev/zero"));
    let file = spill(&output);
    let text = words(&output);
    let want = format!(
        "\n\n[last 512 of 1000000 lines, cut at 50.0KB; full output: {}]\n[output file capped at 64.0MB]",
        file.display()
    );
    assert!(text.starts_with(&line) && text.ends_with(&want), "{}", text.get(text.len() - 300..).unwrap());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 64 << 20);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn without_a_session_files_go_with_the_tool_b9() {
    let mut shell = Shell::new();
    shell.session = None;
    let file = spill(&shell.run("seq 1 3000"));
    assert!(file.starts_with(shell.root.join("tmp")) && file.exists());
    assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
    shell.tool = None;
    assert!(!file.parent().unwrap().exists());
}

#[test]
fn a_file_that_cannot_be_made_does_not_fail_the_call_b9() {
    let shell = Shell::new();
    std::fs::write(shell.root.join("state"), "in the way").unwrap();
    let output = shell.run("seq 1 3000");
    let want = "\n\n[last 2000 of 3000 lines]\n[full output could not be saved: Not a directory]";
    assert!(words(&output).ends_with(want) && !output.is_error, "{output:?}");
    let output = shell.run("sleep 30 & echo done");
    let pids = background(&output);
    let want = format!(
        "done\n\n[full output could not be saved: Not a directory]\n[background: pids {} still running; \
         later output is dropped]",
        pids[0]
    );
    assert_eq!(words(&output), want);
}

#[test]
fn a_background_process_is_told_and_lives_until_the_end_case_86_proc_01() {
    let shell = Shell::new();
    // What leaves the group is found by the sweep alone, which is the binary's.
    let mut left = Vec::new();
    let commands = ["sleep 30 & echo done", "nohup sleep 30 & echo done", "setsid sleep 30 & echo done"];
    for (id, command) in ["e1", "e2", "e3"].into_iter().zip(commands) {
        let started = Instant::now();
        let output = shell.call_as(id, json!({"command": command}));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        let pids = background(&output);
        let file = spill(&output);
        let status = format!("[background: pids {} still running; later output goes to {}]", pids[0], file.display());
        assert_eq!((words(&output), pids.len()), (format!("done\n\n{status}").as_str(), 1), "{command}");
        assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("done\n", 0o600));
        assert!(runs(pids[0]));
        left.extend(pids.into_iter().filter(|_| !command.starts_with("setsid")));
    }
    shell.shutdown();
    assert!(left.len() == 2 && !left.iter().any(|pid| runs(*pid)), "{left:?}");
}

#[test]
fn a_background_process_that_prints_nothing_is_told_to_programs_case_87() {
    let shell = Shell::new();
    for (id, start) in [("e1", "setsid sleep 30"), ("e2", "sleep 30")] {
        let output = shell.call_as(id, json!({"command": format!("{start} >/dev/null 2>&1 & echo x")}));
        assert_eq!(words(&output), "x");
        let pids = background(&output);
        assert!(pids.len() == 1 && runs(pids[0]), "{pids:?}");
        kill(pids[0]);
    }
}

#[test]
fn output_of_a_background_process_is_read_on_case_88() {
    let shell = Shell::new();
    let started = Instant::now();
    let output = shell.run("(while true; do echo tick; sleep 0.05; done) & sleep 0.2; echo end");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(words(&output).contains("end\n") && words(&output).contains("[background: pids "), "{output:?}");
    let file = spill(&output);
    let length = || std::fs::metadata(&file).unwrap().len();
    for _ in 0..2 {
        let before = length();
        shell.until("the file grows", || length() > before);
    }
    assert!(background(&output).iter().any(|pid| runs(*pid)), "nobody got a broken pipe");
    shell.shutdown();
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.replace("tick\n", ""), "end\n");
}

#[test]
fn a_cancelled_command_says_so_behind_its_output_case_92() {
    for (command, want) in [("sleep 60", "(no output)\n\nAborted."), ("echo a; sleep 60", "a\n\nAborted.")] {
        let shell = Shell::new();
        let (updates, _receiver) = Updates::channel(16);
        let ctx = shell.ctx("e1", updates);
        let marked = json!({"command": format!("echo $$ > pid; {command}")});
        let pid = shell.root.join("cwd/pid");
        let started = Instant::now();
        let output = shell.runtime.block_on(async {
            let cancel = async {
                while std::fs::read(&pid).map_or(0, |pid| pid.len()) == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // What it prints first comes before the end that is asked for.
                tokio::time::sleep(Duration::from_millis(50)).await;
                shell.cancel.cancel();
            };
            tokio::join!(shell.tool().call(marked, ctx), cancel).0
        });
        assert_eq!((code(&output), words(&output)), ("aborted", want));
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        assert!(!runs(std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap()));
        let late = shell.run("echo never > file");
        assert_eq!((code(&late), words(&late)), ("aborted", "Aborted."), "cancelled before it ran");
        assert!(!shell.root.join("cwd/file").exists());
    }
}

#[test]
fn a_dropped_call_takes_its_group_along() {
    let shell = Shell::new();
    let pid = shell.root.join("cwd/pid");
    let ctx = shell.ctx("e1", Updates::channel(1).0);
    shell.runtime.block_on(async {
        let call = shell.tool().call(json!({"command": "echo $$ > pid; sleep 60"}), ctx);
        tokio::select! {
            output = call => panic!("{output:?}"),
            () = async {
                while std::fs::read(&pid).map_or(0, |pid| pid.len()) == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            } => {}
        }
    });
    let pid = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    shell.until("the shell is gone", || !runs(pid));
}

#[test]
fn progress_comes_at_once_in_its_pace_and_whole_b11_proc_12() {
    let shell = Shell::new();
    let (output, updates) =
        shell.watch(r"printf '\344\275'; sleep 0.2; printf '\240\n'; sleep 0.2; seq 1 20000; sleep 0.2; echo end");
    assert!(words(&output).contains("\nend\n\n[last 2000 of 20002 lines"), "{output:?}");
    assert!((2..8).contains(&updates.len()), "{} updates", updates.len());
    for update in &updates {
        let text = update_text(update);
        assert!(text.lines().count() <= 2000 && !text.contains('\u{fffd}'), "{text}");
        assert!(!update.checkpoint, "two seconds are not over");
    }
    assert_eq!(update_text(&updates[0]).lines().next(), Some("你"), "a character is told when it is whole");
    assert!(update_text(updates.last().unwrap()).ends_with("\nend"), "the last state is told before the result");
}

#[test]
fn a_changed_view_is_a_checkpoint_after_two_seconds_case_97() {
    let shell = Shell::new();
    let (_, updates) = shell.watch("echo so far; sleep 2.3");
    let kept: Vec<&str> = updates.iter().filter(|update| update.checkpoint).map(update_text).collect();
    assert_eq!((kept.as_slice(), updates.len()), (&["so far"][..], 2));
}

#[test]
fn nobody_waits_for_a_reader_of_updates_b10() {
    let shell = Shell::new();
    let (updates, receiver) = Updates::channel(1);
    let ctx = shell.ctx("e1", updates);
    let started = Instant::now();
    let command = "for i in 1 2 3 4 5; do seq 1 10000; sleep 0.12; done";
    let output = shell.runtime.block_on(shell.tool().call(json!({"command": command}), ctx));
    assert!(words(&output).contains("\n10000\n\n[last 2000 of 50000 lines"), "{output:?}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    drop(receiver);
}

#[test]
fn a_command_too_long_for_an_argument_runs_from_a_file_with_empty_input_b14() {
    let shell = Shell::new();
    let command = format!("cat; echo rc=$?; : {}\necho end", "x".repeat(300_000));
    assert_eq!(words(&shell.run(&command)), "rc=0\nend");
    let private: Vec<_> = std::fs::read_dir(shell.root.join("tmp")).unwrap().collect();
    let directory = private.into_iter().next().unwrap().unwrap().path();
    assert_eq!((mode(&directory), std::fs::read_dir(&directory).unwrap().count()), (0o700, 0), "the file is gone");
}

#[test]
fn the_child_is_recorded_before_its_output_is_read() {
    let mut shell = Shell::new();
    let pid = words(&shell.run("echo $$")).parse::<u32>().unwrap();
    let kept = shell.memos.kept.lock().unwrap().clone();
    // Once before it starts, so that a kill in between leaves nothing that is not found, and once with its number.
    let [(_, before), (name, identity)] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!((&before["pgid"], &before["token"]), (&json!(0), &identity["token"]));
    assert_eq!((name.as_str(), &identity["pgid"]), ("proc", &json!(pid)));
    assert_eq!(identity["token"], shell.supervisor.token());

    shell.memos = Arc::new(KeptMemos { is_broken: true, ..KeptMemos::default() });
    let started = Instant::now();
    let output = shell.run("sleep 60");
    let want = "The process could not be recorded and was not started: the session is gone";
    assert_eq!((code(&output), words(&output)), ("io", want));
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_key_does_not_reach_a_command_and_a_passed_one_is_masked_case_141() {
    let policy = |pass: &[&str]| EnvPolicy {
        credentials: vec!["ANTHROPIC_API_KEY".to_owned()],
        pass: pass.iter().map(|name| (*name).to_owned()).collect(),
        ..EnvPolicy::default()
    };
    let masks = Masks::new([("ANTHROPIC_API_KEY".to_owned(), Secret::new(KEY))]).unwrap();
    let shell = |pass: &[&str]| {
        let masks = masks.clone();
        Shell::with(|settings| settings.masks = masks, policy(pass), &[("ANTHROPIC_API_KEY", KEY)])
    };
    let output = shell(&[]).run("env | grep -c ANTHROPIC");
    assert_eq!((code(&output), words(&output)), ("exit", "0\n\n[exit code 1]"));
    let passed = shell(&["ANTHROPIC_API_KEY"]);
    assert_eq!(words(&passed.run("echo $ANTHROPIC_API_KEY")), "[redacted:ANTHROPIC_API_KEY]");
    assert_eq!(words(&passed.run("echo ${#ANTHROPIC_API_KEY}")), KEY.len().to_string());
}

#[test]
fn a_secret_is_masked_in_result_updates_and_file_however_it_is_written_case_143() {
    let shell = Shell::masking();
    let (output, updates) = shell.watch(
        "printf sk-live-; sleep 0.25; echo 1234567890; printf 'sk-\\033[1mlive-\\033[0m1234567890\\n'; \
         printf 'a sk-li'; sleep 0.15; echo ne",
    );
    let mask = "[redacted:ANTHROPIC_API_KEY]";
    assert_eq!(words(&output), format!("{mask}\n{mask}\na sk-line"));
    assert!(updates.iter().all(|update| !update_text(update).contains("sk-live")), "{updates:?}");

    let output = shell.run("printf sk-live-; sleep 0.05; seq -f '1234567890 %g' 1 3000; echo sk-live-1234567890");
    let file = std::fs::read_to_string(spill(&output)).unwrap();
    assert!(file.starts_with(&format!("{mask} 1\n1234567890 2\n")) && file.ends_with(&format!("\n{mask}\n")));
    assert!(!format!("{output:?}").contains(KEY) && !file.contains(KEY));

    // Into the file only, behind the end of the call.
    let output = shell.run("(sleep 0.4; printf sk-live-; sleep 0.1; echo 1234567890) & echo x");
    let file = spill(&output);
    shell.until("the file is complete", || std::fs::read_to_string(&file).unwrap() == format!("x\n{mask}\n"));
}

#[test]
fn what_other_tools_read_is_masked_as_well_v5() {
    let mut w = Workspace::new();
    w.settings.masks = Masks::new([("ANTHROPIC_API_KEY".to_owned(), Secret::new(KEY))]).unwrap();
    w.file(&format!("dir/{KEY}"), format!("key = {KEY}\n"));
    assert_eq!(text(&w.call("ls", json!({"path": "dir"}))), "[redacted:ANTHROPIC_API_KEY]");
    let output = w.call("read", json!({"path": format!("dir/{KEY}")}));
    assert_eq!(text(&output), "key = [redacted:ANTHROPIC_API_KEY]\n");
    assert!(!output.details.unwrap().to_string().contains(KEY));
}

#[test]
fn processes_may_outlive_us_where_that_is_configured_b8() {
    let leaving = |settings: &mut ToolSettings| settings.bash.background_at_exit = BackgroundAtExit::Leave;
    let mut shell = Shell::with(leaving, EnvPolicy::default(), &[]);
    shell.session = None;
    assert_eq!(words(&shell.run("echo a; echo b >&2")), "a\nb");
    let cut = spill(&shell.run("seq 1 3000"));
    assert_eq!(std::fs::read_to_string(&cut).unwrap(), seq(1, 3000));
    assert_eq!(std::fs::read_dir(cut.parent().unwrap()).unwrap().count(), 1, "what nobody writes to is removed");

    let output = shell.call_as("e2", json!({"command": "(while true; do echo tick; sleep 0.05; done) & echo end"}));
    let file = spill(&output);
    let pids = background(&output);
    assert!(words(&output).contains(&format!("later output goes to {}]", file.display())), "{output:?}");
    shell.shutdown();
    shell.tool = None;
    let length = std::fs::metadata(&file).unwrap().len();
    shell.until("it writes on without us", || std::fs::metadata(&file).unwrap().len() > length);
    for pid in pids {
        kill(pid);
    }
    assert!(file.starts_with(shell.directory.path().canonicalize().unwrap()));
}

#[test]
fn the_tool_says_what_it_is() {
    let shell = Shell::new();
    let spec = shell.tool().spec();
    assert!(spec.description.split_whitespace().count() <= 60, "{}", spec.description);
    for said in ["300s", "Stdin is empty", "no terminal", "Background processes"] {
        assert!(spec.description.contains(said), "{said}: {}", spec.description);
    }
    assert_eq!(spec.replay, pirn::port::Replay::Never);
    assert_eq!(spec.execution, Some(pirn::port::Execution::Sequential));
}
