//! A directory and a call path for tests of the built-in tools.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use pirn::model::{EntryId, RunId};
use pirn::port::{Guard, Inputs, Memos, Tool, ToolCtx, ToolOutput, Updates};
use pirn::tool::{Confine, Confinement, ToolSettings, builtin};
use pirn::turn::arguments::ArgumentCheck;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Keeps nothing: no tool here replays.
struct NoMemos;

#[async_trait]
impl Memos for NoMemos {
    async fn get(&self, _name: &str) -> Option<Value> {
        None
    }

    async fn set(&self, _name: &str, _value: Value) -> Result<(), String> {
        Ok(())
    }
}

/// A fresh directory in which tools run; all tools are enabled unless a test says otherwise.
pub(crate) struct Workspace {
    _directory: Option<tempfile::TempDir>,
    pub(crate) root: PathBuf,
    pub(crate) settings: ToolSettings,
    pub(crate) enabled: Vec<&'static str>,
    pub(crate) guard: Arc<dyn Guard>,
    /// Whether the model that calls takes images.
    pub(crate) images: bool,
    pub(crate) cancel: CancellationToken,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        Self { _directory: Some(directory), ..Self::at(root) }
    }

    /// A directory that somebody else made and removes.
    pub(crate) fn at(root: PathBuf) -> Self {
        Self {
            _directory: None,
            guard: Arc::new(Confine::new(Confinement::Write, std::slice::from_ref(&root), None)),
            root,
            settings: ToolSettings::default(),
            images: false,
            enabled: vec!["bash", "edit", "find", "grep", "ls", "read", "write"],
            cancel: CancellationToken::new(),
        }
    }

    /// Writes a file, with the directories above it.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test's own file need not survive a crash")]
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        builtin(&self.settings, &[name.to_owned()]).pop().expect("the tool exists")
    }

    pub(crate) fn ctx(&self) -> ToolCtx {
        ToolCtx {
            tool_call_id: "c1".to_owned(),
            invocation_id: EntryId::new("e1"),
            run_id: RunId::new("r1"),
            turn_id: "r1:1".to_owned(),
            lane: "main".to_owned(),
            session: None,
            cwd: self.root.clone(),
            guard: Arc::clone(&self.guard),
            model_inputs: Inputs { text: true, image: self.images },
            enabled_tools: self.enabled.iter().map(|name| (*name).to_owned()).collect(),
            cancel: self.cancel.clone(),
            updates: Updates::channel(1).0,
            memos: Arc::new(NoMemos),
        }
    }

    /// The call path as far as tools go: repair, validation, execution.
    pub(crate) fn call(&self, name: &str, args: Value) -> ToolOutput {
        let tool = self.tool(name);
        let args = match tool.prepare(args) {
            Ok(args) => args,
            Err(text) => return ToolOutput::failure("invalid_args", text),
        };
        let check = ArgumentCheck::compile(&tool.spec().input_schema).expect("our own schema compiles");
        match check.check(name, &args) {
            Ok(args) => self.run(&tool, args),
            Err(text) => ToolOutput::failure("invalid_args", text),
        }
    }

    fn run(&self, tool: &Arc<dyn Tool>, args: Value) -> ToolOutput {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(tool.call(args, self.ctx()))
    }
}

/// The text of a result that is no failure.
#[track_caller]
pub(crate) fn text(output: &ToolOutput) -> &str {
    assert!(!output.is_error, "{output:?}");
    only_text(output)
}

/// Code and text of a failure, which are also in its details.
#[track_caller]
pub(crate) fn failure(output: &ToolOutput) -> (&str, &str) {
    assert!(output.is_error, "{output:?}");
    let error = &output.details.as_ref().unwrap()["error"];
    assert_eq!(error["message"], only_text(output));
    (error["code"].as_str().unwrap(), only_text(output))
}

fn only_text(output: &ToolOutput) -> &str {
    let [block] = output.content.as_slice() else { panic!("one block: {output:?}") };
    block.as_text().unwrap()
}

/// The decimal numbers, one a line.
pub(crate) fn seq(from: usize, to: usize) -> String {
    lines(from..to + 1, |n| format!("{n}\n"))
}

/// The lines of a range, each as `line` makes it.
pub(crate) fn lines(range: Range<usize>, line: impl Fn(usize) -> String) -> String {
    range.map(line).collect()
}

/// A user that is not root.
pub(crate) const NOBODY: u32 = 65534;

/// Under whose name a test runs again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Same,
    Nobody,
}

/// Says to a test that it runs again, and where.
const AGAIN: &str = "PIRN_TEST_AGAIN";

/// In a test that runs again: the directory it was given.
pub(crate) fn given() -> Option<PathBuf> {
    std::env::var_os(AGAIN).map(PathBuf::from)
}

/// Runs a test again in a process of its own, which [`given`] tells apart.
#[track_caller]
pub(crate) fn again(test: &str, who: Who, directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let scratch = tempfile::tempdir().unwrap();
    let mut binary = std::env::current_exe().unwrap();
    if who == Who::Nobody {
        // The other user may not be let through to where the tests were built.
        let copy = scratch.path().join("it");
        std::fs::copy(&binary, &copy).unwrap();
        for path in [scratch.path(), &copy] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        binary = copy;
    }
    let mut command = std::process::Command::new(&binary);
    command.args(["--exact", test]).current_dir("/").env_clear().env(AGAIN, directory);
    if who == Who::Nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("1 passed"), "the test ran: {stdout}");
}

/// A named pipe.
pub(crate) fn fifo(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
}

/// No temporary file was left behind.
#[track_caller]
pub(crate) fn no_leftovers(w: &Workspace) {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                walk(&path, found);
            } else if path.to_string_lossy().contains(".pirn-") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&w.root, &mut found);
    assert!(found.is_empty(), "{found:?}");
}
