use super::super::rule::{Key, Rule};
use super::super::settings::{BackgroundAtExit, Confine, Durability, EnvInherit, JsonLevel, LockMode, Settings, When};
use super::{
    CONTEXT_BYTES_MAX, EXECUTIONS, LEVELS, PARALLEL_MAX, REPEATS_MAX, RESULT_BYTES_MAX, RESULT_LINES_MAX,
    SEARCHED_BYTES_MAX, full, key, later, positive, put,
};
use crate::model::{QueueMode, Thinking};
use crate::port::Execution;

const QUEUE_MODES: &[&str] = &["one-at-a-time", "all"];
const SANDBOXED: &[&str] = &["bash", "command", "hooks", "mcp"];

/// Keys outside of named tables.
pub(in super::super) static SETTINGS: &[Key<Settings>] = &[
    key("model", Rule::Specs(|s, specs| s.model = specs)),
    key("thinking", Rule::Word(LEVELS, |s, word| s.thinking = Thinking::from_word(word))),
    key("system", Rule::Prompt(|s, text| s.system = full(text))),
    key("append_system", Rule::Prompts(|s, texts| s.append_system = texts)),
    key("steering_mode", Rule::Word(QUEUE_MODES, |s, word| put(&mut s.steering_mode, queue_mode(word)))),
    key("follow_up_mode", Rule::Word(QUEUE_MODES, |s, word| put(&mut s.follow_up_mode, queue_mode(word)))),
    later("mcp_import", Rule::Imports(|_, _| {})),
    key("input.stdin_wait", Rule::Duration(|s, wait| s.input.stdin_wait = wait)),
    key("output.json", Rule::Word(JsonLevel::WORDS, |s, word| put(&mut s.output.json, JsonLevel::from_word(word)))),
    key("output.stream", Rule::Word(When::WORDS, |s, word| put(&mut s.output.stream, When::from_word(word)))),
    key(
        "output.verbosity",
        Rule::Level { min: -1, max: 2, set: |s, level| put(&mut s.output.verbosity, i8::try_from(level).ok()) },
    ),
    key("output.thinking", Rule::Bool(|s, on| s.output.thinking = on)),
    key("output.color", Rule::Word(When::WORDS, |s, word| put(&mut s.output.color, When::from_word(word)))),
    key("output.events", Rule::Path(|s, path| s.output.events = path.map(|path| path.to_string_lossy().into_owned()))),
    later("output.schema_retries", Rule::Count { min: 0, max: REPEATS_MAX, set: |_, _| {} }),
    key("output.heartbeat", Rule::Duration(|s, beat| s.output.heartbeat = beat)),
    key("limits.max_turns", Rule::Count { min: 0, max: u32::MAX, set: |s, n| s.limits.max_turns = positive(n) }),
    key("limits.max_cost", Rule::Number(|s, cost| s.limits.max_cost = Some(cost).filter(|cost| *cost > 0.0))),
    key("limits.max_repeats", Rule::Count { min: 0, max: u32::MAX, set: |s, n| s.limits.max_repeats = positive(n) }),
    key(
        "limits.max_output_tokens",
        Rule::Count { min: 0, max: u32::MAX, set: |s, n| s.limits.max_output_tokens = positive(n) },
    ),
    key("limits.timeout", Rule::Duration(|s, limit| s.limits.timeout = limit)),
    key("limits.connect_timeout", Rule::Duration(|s, limit| s.limits.connect_timeout = limit)),
    key("limits.first_event_timeout", Rule::Duration(|s, limit| s.limits.first_event_timeout = limit)),
    key("limits.idle_timeout", Rule::Duration(|s, limit| s.limits.idle_timeout = limit)),
    key("limits.progress_timeout", Rule::Duration(|s, limit| s.limits.progress_timeout = limit)),
    key("limits.grace", Rule::Duration(|s, grace| s.limits.grace = grace.unwrap_or_default())),
    key("session.persist", Rule::Bool(|s, on| s.session.persist = on)),
    key("session.dir", Rule::Path(|s, dir| s.session.dir = dir)),
    key(
        "session.durability",
        Rule::Word(Durability::WORDS, |s, word| put(&mut s.session.durability, Durability::from_word(word))),
    ),
    key("session.lock", Rule::Word(LockMode::WORDS, |s, word| put(&mut s.session.lock, LockMode::from_word(word)))),
    later("session.expire", Rule::Duration(|_, _| {})),
    key("context.files", Rule::List(|s, names| s.context.files = names)),
    key(
        "context.max_bytes",
        Rule::Size { min: 1, max: CONTEXT_BYTES_MAX, set: |s, bytes| s.context.max_bytes = bytes },
    ),
    later("compaction.enabled", Rule::Bool(|_, _| {})),
    later("compaction.reserve_tokens", Rule::Count { min: 0, max: u32::MAX, set: |_, _| {} }),
    later("compaction.keep_recent_tokens", Rule::Count { min: 0, max: u32::MAX, set: |_, _| {} }),
    later("compaction.at_run_end", Rule::Bool(|_, _| {})),
    later("compaction.model", Rule::Text(|_, _| {})),
    key("retry.enabled", Rule::Bool(|s, on| s.retry.enabled = on)),
    key("retry.max_retries", Rule::Count { min: 0, max: REPEATS_MAX, set: |s, n| s.retry.max_retries = n }),
    key("retry.base_delay", Rule::Duration(|s, delay| s.retry.base_delay = delay.unwrap_or_default())),
    key("retry.max_delay", Rule::Duration(|s, delay| s.retry.max_delay = delay)),
    later("retry.http_retries", Rule::Count { min: 0, max: REPEATS_MAX, set: |_, _| {} }),
    key(
        "recovery.max_interruptions",
        Rule::Count { min: 0, max: REPEATS_MAX, set: |s, n| s.recovery.max_interruptions = n },
    ),
    key("tools.enabled", Rule::Edits(|s| &mut s.tools.enabled)),
    key("tools.execution", Rule::Word(EXECUTIONS, |s, word| put(&mut s.tools.execution, execution(word)))),
    key("tools.max_parallel", Rule::Count { min: 1, max: PARALLEL_MAX, set: |s, n| s.tools.max_parallel = n }),
    key("tools.roots", Rule::List(|s, list| s.tools.roots = list.into_iter().map(Into::into).collect())),
    key("tools.confine", Rule::Word(Confine::WORDS, |s, word| put(&mut s.tools.confine, Confine::from_word(word)))),
    key("tools.redact", Rule::Bool(|s, on| s.tools.redact = on)),
    key("tools.fsync", Rule::Bool(|s, on| s.tools.fsync = on)),
    key("tools.bash.shell", Rule::Program(|s, shell| s.tools.bash.shell = full(shell))),
    key("tools.bash.prefix", Rule::Text(|s, text| s.tools.bash.prefix = text)),
    key("tools.bash.timeout", Rule::Duration(|s, limit| s.tools.bash.timeout = limit)),
    key("tools.bash.max_timeout", Rule::Duration(|s, limit| s.tools.bash.max_timeout = limit)),
    key(
        "tools.bash.max_bytes",
        Rule::Size { min: 1, max: RESULT_BYTES_MAX, set: |s, bytes| s.tools.bash.max_bytes = bytes },
    ),
    key("tools.bash.max_lines", Rule::Count { min: 1, max: RESULT_LINES_MAX, set: |s, n| s.tools.bash.max_lines = n }),
    key(
        "tools.bash.background_at_exit",
        Rule::Word(BackgroundAtExit::WORDS, |s, word| {
            put(&mut s.tools.bash.background_at_exit, BackgroundAtExit::from_word(word));
        }),
    ),
    key("tools.read.line_numbers", Rule::Bool(|s, on| s.tools.read.line_numbers = on)),
    key(
        "tools.read.max_bytes",
        Rule::Size { min: 1, max: RESULT_BYTES_MAX, set: |s, bytes| s.tools.read.max_bytes = bytes },
    ),
    key("tools.read.max_lines", Rule::Count { min: 1, max: RESULT_LINES_MAX, set: |s, n| s.tools.read.max_lines = n }),
    later("tools.grep.max_file_bytes", Rule::Size { min: 1, max: SEARCHED_BYTES_MAX, set: |_, _| {} }),
    later("tools.task.enabled", Rule::Bool(|_, _| {})),
    later("tools.task.model", Rule::Text(|_, _| {})),
    later("tools.task.tools", Rule::List(|_, _| {})),
    later("tools.task.max_turns", Rule::Count { min: 0, max: u32::MAX, set: |_, _| {} }),
    key(
        "hook_limits.max_follow_ups",
        Rule::Count { min: 0, max: REPEATS_MAX, set: |s, n| s.hook_limits.max_follow_ups = n },
    ),
    later("permissions.default", Rule::Word(&["allow", "deny"], |_, _| {})),
    later("permissions.allow", Rule::Rules(|_, _| {})),
    later("permissions.deny", Rule::Rules(|_, _| {})),
    later("permissions.on_deny", Rule::Word(&["tell", "stop"], |_, _| {})),
    later("sandbox.mode", Rule::Word(&["off", "read-only", "workspace-write"], |_, _| {})),
    later("sandbox.network", Rule::Bool(|_, _| {})),
    later("sandbox.writable", Rule::List(|_, _| {})),
    later("sandbox.hide", Rule::List(|_, _| {})),
    later("sandbox.backend", Rule::Word(&["auto", "landlock", "bwrap", "seatbelt", "command"], |_, _| {})),
    later("sandbox.command", Rule::List(|_, _| {})),
    later("sandbox.required", Rule::Bool(|_, _| {})),
    later("sandbox.applies_to", Rule::Words(SANDBOXED, |_, _| {})),
    key("env.inherit", Rule::Word(EnvInherit::WORDS, |s, word| put(&mut s.env.inherit, EnvInherit::from_word(word)))),
    key("env.pass", Rule::List(|s, names| s.env.pass = names)),
    key("env.drop", Rule::Grow(|s| &mut s.env.drop)),
    key(
        "env.set",
        Rule::Variables(|s, name, value| {
            s.env.set.insert(name, value);
        }),
    ),
];

fn queue_mode(word: &str) -> Option<QueueMode> {
    match word {
        "one-at-a-time" => Some(QueueMode::OneAtATime),
        "all" => Some(QueueMode::All),
        _ => None,
    }
}

fn execution(word: &str) -> Option<Execution> {
    match word {
        "parallel" => Some(Execution::Parallel),
        "sequential" => Some(Execution::Sequential),
        _ => None,
    }
}
