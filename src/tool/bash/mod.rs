//! `bash`: runs a command of the model (tool rules B1–B15).
//!
//! Keeps true: a call ends when its shell has, whoever holds the output open; nothing a command prints is lost to a
//! file, a limit or a slow reader without a word; secrets are masked before anybody sees or keeps them.
//!
//! Must not know: how children are started and ended, who reads the result.

mod clean;
mod pump;
mod report;
mod run;
mod shell;
mod spill;
mod text;
mod view;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use self::spill::Spills;
use super::truncate::{BYTES_MAX, Caps, LINES_MAX, size};
use super::{Alias, Failure, ToolSettings, repair};
use crate::port::{Clock, Execution, Replay, Source, Tool, ToolCtx, ToolOutput, ToolSpec};
use crate::process::Supervisor;
use crate::process::mask::Masks;

const COMMAND_ALIASES: Alias = ("command", &["cmd", "script"]);

/// The configuration's defaults (B3, B4).
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
const TIMEOUT_MAX_DEFAULT: Duration = Duration::from_secs(3600);
const GRACE_DEFAULT: Duration = Duration::from_secs(3);

/// What happens at exit to processes that a command left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackgroundAtExit {
    /// They end with us.
    #[default]
    Kill,
    /// They run on. A command's output goes to a file from its start, so that it survives us; what is in there is not
    /// masked, and the file is removed when nobody writes to it any more.
    Leave,
}

/// What the configuration says about `bash` (`[tools.bash]`, `limits.grace`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BashSettings {
    /// An absolute path or a name; `None` = `/bin/bash`, `bash` or `sh`, whichever there is first.
    pub shell: Option<PathBuf>,
    /// Lines in front of every command.
    pub prefix: String,
    /// Of a call that asks for no other; `None` = no limit.
    pub timeout: Option<Duration>,
    /// The longest a call may ask for; `None` = no limit.
    pub max_timeout: Option<Duration>,
    pub max_bytes: usize,
    pub max_lines: usize,
    pub background_at_exit: BackgroundAtExit,
    /// From asking a command to end to killing it.
    pub grace: Duration,
}

impl Default for BashSettings {
    fn default() -> Self {
        Self {
            shell: None,
            prefix: String::new(),
            timeout: Some(TIMEOUT_DEFAULT),
            max_timeout: Some(TIMEOUT_MAX_DEFAULT),
            max_bytes: BYTES_MAX,
            max_lines: LINES_MAX,
            background_at_exit: BackgroundAtExit::Kill,
            grace: GRACE_DEFAULT,
        }
    }
}

/// The tool `bash`. Dropping it removes the files of calls without a session and stops reading what is left behind.
pub struct Bash {
    spec: ToolSpec,
    settings: BashSettings,
    children: Supervisor,
    masks: Masks,
    clock: Arc<dyn Clock>,
    spills: Arc<Spills>,
    /// Read the output of calls, also of those that have returned.
    readers: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Bash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bash").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// How long a command may run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    /// `None` = for ever.
    timeout: Option<Duration>,
    /// More was asked for.
    is_clamped: bool,
}

impl Bash {
    /// The tool with what starts its children.
    pub fn new(settings: &ToolSettings, children: Supervisor) -> Self {
        let bash = settings.bash.clone();
        let spec = ToolSpec {
            name: "bash".to_owned(),
            label: "bash".to_owned(),
            description: description(&bash),
            input_schema: json!({"type": "object", "additionalProperties": false, "required": ["command"],
                "properties": {
                    "command": {"type": "string"},
                    "timeout": {"type": "number", "description": "seconds"}}}),
            output_schema: None,
            replay: Replay::Never,
            execution: Some(Execution::Sequential),
            source: Source::Builtin,
            annotations: Map::from_iter([("destructiveHint".to_owned(), Value::Bool(true))]),
        };
        Self {
            spec,
            settings: bash,
            children,
            masks: settings.masks.clone(),
            clock: Arc::clone(&settings.clock),
            spills: Arc::new(Spills::new(settings.temporary.clone())),
            readers: Mutex::default(),
        }
    }

    fn caps(&self) -> Caps {
        Caps { lines: self.settings.max_lines, bytes: self.settings.max_bytes }
    }

    /// Tool rule B3. A number of seconds is a fraction, too.
    fn limit(&self, asked: Option<&Value>) -> Result<Limit, Failure> {
        let shorter = |timeout: Option<Duration>| match (timeout, self.settings.max_timeout) {
            (Some(timeout), Some(max)) => Some(timeout.min(max)),
            (one, other) => one.or(other).filter(|_| one.is_some()),
        };
        let Some(asked) = asked else {
            return Ok(Limit { timeout: shorter(self.settings.timeout), is_clamped: false });
        };
        let seconds = asked.as_f64().filter(|seconds| *seconds > 0.0).ok_or_else(|| {
            Failure::new("invalid_args", "Invalid timeout: it must be a number of seconds greater than 0.")
        })?;
        // Only what is too long for a duration fails.
        let timeout = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let clamped = shorter(Some(timeout));
        Ok(Limit { timeout: clamped, is_clamped: clamped != Some(timeout) })
    }
}

fn description(settings: &BashSettings) -> String {
    let seconds =
        |limit: Option<Duration>| limit.map_or("none".to_owned(), |limit| format!("{}s", limit.as_secs_f64()));
    let fate = match settings.background_at_exit {
        BackgroundAtExit::Kill => "are killed when the run ends",
        BackgroundAtExit::Leave => "outlive the run",
    };
    format!(
        "Runs a shell command and returns stdout and stderr as one text: its last {} lines or {}, the whole in a file. \
         Default timeout {}, at most {}. Stdin is empty, there is no terminal. Background processes are not waited for \
         and {fate}. Prefer the file tools for reading, searching and changing files.",
        settings.max_lines,
        size(settings.max_bytes as u64),
        seconds(settings.timeout),
        seconds(settings.max_timeout),
    )
}

#[async_trait]
impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, raw: Value) -> Result<Value, String> {
        Ok(repair(raw, &[COMMAND_ALIASES]))
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        let command = args.get("command").and_then(Value::as_str).unwrap_or_default();
        let work = async {
            let limit = self.limit(args.get("timeout"))?;
            let invalid = |what: &str| Err(Failure::new("invalid_args", format!("Invalid command: {what}.")));
            if command.trim().is_empty() {
                return invalid("it is empty");
            }
            if command.contains('\0') {
                return invalid("it holds a NUL character");
            }
            if ctx.cancel.is_cancelled() {
                return Err(Failure::aborted());
            }
            Box::pin(self.execute(command, limit, &ctx)).await
        };
        work.await.unwrap_or_else(ToolOutput::from)
    }
}
