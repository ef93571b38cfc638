//! The lines on stderr: tools, thinking, warnings, the summary, errors.
//!
//! Keeps true: which lines appear depends on verbosity and column alone; every line from a tool or a model is clean,
//! prefixed and bounded, so it can neither move the cursor nor look like a command of a build system; an error is the
//! last line, followed only by its hint.
//!
//! Must not know: stdout, how bytes are written.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::format::{count, dollars, duration, plural};
use super::sentence::{dropped, failed_handler};
use super::text::has_answer;
use super::{Paint, ResultLine, denial, line};
use crate::model::{BlockEvent, Content, ErrorKind, Event, Reason, ToolResultView, short_id};

/// Characters of a call's arguments in its line.
const SUMMARY_CHARS_MAX: usize = 100;
/// Characters of one line of arguments, results or thinking.
const LINE_CHARS_MAX: usize = 500;
/// Characters of one line of a message.
const MESSAGE_CHARS_MAX: usize = 2000;
/// Lines of a result that `-vv` shows.
const RESULT_LINES_MAX: usize = 20;
/// Lines of a message; configuration errors come all at once.
const MESSAGE_LINES_MAX: usize = 50;
/// Bytes of a line of thinking that is still open; a longer one is shown in pieces.
const OPEN_LINE_BYTES_MAX: usize = 4 * LINE_CHARS_MAX;

/// The warning of an answer that is not whole.
pub(super) const CUT_OFF: &str = "the answer was cut off by the output limit";

/// How much stderr says by itself: a terminal gets tool lines and a summary, a file warnings and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Terminal,
    Plain,
}

/// `-q`, nothing, `-v`, `-vv`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    Quiet,
    #[default]
    Normal,
    Verbose,
    Debug,
}

impl Verbosity {
    /// The verbosity of `output.verbosity`; values outside -1..2 count as the nearest.
    pub fn from_level(level: i64) -> Self {
        match level {
            ..=-1 => Self::Quiet,
            0 => Self::Normal,
            1 => Self::Verbose,
            2.. => Self::Debug,
        }
    }
}

/// How stderr looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HumanConfig {
    pub column: Column,
    pub verbosity: Verbosity,
    pub color: bool,
    /// No characters beyond ASCII in our own marks.
    pub ascii: bool,
    /// `output.thinking`: show thinking whatever the verbosity.
    pub thinking: bool,
}

/// Makes the lines. Each method appends to a buffer.
#[derive(Debug)]
pub struct Human {
    config: HumanConfig,
    paint: Paint,
    marks: Marks,
    /// Calls that have started and not ended.
    running: HashMap<String, String>,
    /// Thinking without its line end yet.
    open_thinking: String,
    turn: u32,
    tools: u32,
}

#[derive(Clone, Copy, Debug)]
struct Marks {
    start: &'static str,
    good: &'static str,
    bad: &'static str,
    quote: &'static str,
    between: &'static str,
}

const UNICODE: Marks = Marks { start: "•", good: "✓", bad: "✗", quote: "│", between: " · " };
const ASCII: Marks = Marks { start: "*", good: "ok", bad: "!!", quote: "|", between: ", " };

impl Human {
    /// Nothing printed yet.
    pub fn new(config: HumanConfig) -> Self {
        Self {
            config,
            paint: Paint::new(config.color),
            marks: if config.ascii { ASCII } else { UNICODE },
            running: HashMap::new(),
            open_thinking: String::new(),
            turn: 0,
            tools: 0,
        }
    }

    /// Shows what an event is worth. `broke_off` = text of the last reply has appeared on stdout.
    pub fn event(&mut self, event: &Event, broke_off: bool, out: &mut String) {
        match event {
            Event::TurnStart { turn } => self.turn = *turn,
            Event::MessageUpdate { index: _, event, usage: _ } => self.block(event, out),
            Event::MessageEnd { .. } => self.end_thinking(out),
            Event::ToolStart { tool_call_id, tool_name, args, effective_args: _ } => {
                self.tool_start(tool_call_id, tool_name, args, out);
            }
            Event::ToolEnd { tool_call_id, tool_name, result, is_error, duration_ms } => {
                self.tool_end(tool_call_id, tool_name, result, *is_error, *duration_ms, out);
                if let Some((denied, reason)) = denial(event) {
                    let name = line(&denied.tool_name, SUMMARY_CHARS_MAX);
                    let reason = line(&reason, LINE_CHARS_MAX);
                    self.warning(&format!("{name} was denied: {reason}"), out);
                }
            }
            Event::RetryScheduled { attempt, max_attempts, delay_ms, not_before: _, error_message } => {
                self.retry((*attempt, *max_attempts), *delay_ms, error_message, broke_off, out);
            }
            Event::ModelFallback { from, to, error_message } => {
                let [from, to] = [from, to].map(|model| line(model, SUMMARY_CHARS_MAX));
                let text = format!("{to} takes over from {from}");
                self.warning(&because(text, error_message), out);
            }
            Event::RecoveryStep { notice: Some(notice), .. } => self.notice(notice, out),
            Event::HandlerError { kind, name, error } => {
                self.warning(&failed_handler(*kind, name, error).1, out);
            }
            Event::Warning { code: _, message } => self.warning(message, out),
            Event::OperationAbort { steer, follow_up, .. } => {
                if let Some(message) = dropped(steer.iter().chain(follow_up)) {
                    self.warning(&message, out);
                }
            }
            // A fault and a last failure are told by the result, a queue by the messages it places.
            Event::Fault { .. }
            | Event::RunResume { .. }
            | Event::RecoveryStep { notice: None, .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::EntryAdded { .. }
            | Event::Usage { .. }
            | Event::ConfigUpdate { .. }
            | Event::ValueUpdate { .. }
            | Event::LaneCreated { .. }
            | Event::QueueUpdate { .. }
            | Event::RunStart { .. }
            | Event::MessageStart { .. }
            | Event::ToolUpdate { .. }
            | Event::TurnEnd { .. }
            | Event::RunEnd { .. } => {}
        }
    }

    /// Shows a notice of our own, such as the wait for stdin.
    pub fn notice(&self, text: &str, out: &mut String) {
        if self.config.verbosity >= Verbosity::Normal {
            message_lines("pirn: ", text, out);
        }
    }

    /// Shows a text of our own as it is, such as the short help.
    pub fn help(&self, text: &str, out: &mut String) {
        if self.config.verbosity >= Verbosity::Normal {
            out.push_str(text);
        }
    }

    /// Shows a warning.
    pub fn warning(&self, text: &str, out: &mut String) {
        if self.config.verbosity >= Verbosity::Normal {
            message_lines(&format!("pirn: {}: ", self.paint.yellow("warning")), text, out);
        }
    }

    /// Shows a sign of life, where nothing else moves.
    pub fn heartbeat(&self, elapsed_ms: u64, out: &mut String) {
        if self.config.column == Column::Plain && self.config.verbosity >= Verbosity::Verbose {
            let so_far = format!("turn {}, {}", self.turn, plural(self.tools.into(), "tool"));
            push_line(out, &format!("pirn: running for {}: {so_far}", duration(elapsed_ms)));
        }
    }

    /// Shows the verdict: the summary, then what went wrong.
    pub fn result(&mut self, result: &ResultLine, out: &mut String) {
        self.end_thinking(out);
        if result.reason == Reason::Pipe {
            return;
        }
        if result.reason == Reason::Length {
            self.warning(CUT_OFF, out);
        }
        if self.shows_tools() && result.turns > 0 {
            push_line(out, &self.paint.dim(&self.summary(result)));
        }
        if has_answer(result.reason) {
            return;
        }
        if let Some(error) = &result.error {
            out.push_str(&error_lines(error.kind.as_str(), &error.message, error.hint.as_deref(), self.paint));
        } else {
            let (kind, text, hint) = failure_text(result.reason);
            // By its id: another session of this directory may be newer, and this one may belong to another directory.
            let id = result.session_id.as_deref().filter(|_| result.resumable).map(short_id);
            let hint = hint.map(|hint| match id {
                Some(id) => format!("{hint}, or go on: pirn -c -s {id}"),
                None => hint.to_owned(),
            });
            out.push_str(&error_lines(kind, text, hint.as_deref(), self.paint));
        }
    }

    fn shows_tools(&self) -> bool {
        let least = match self.config.column {
            Column::Terminal => Verbosity::Normal,
            Column::Plain => Verbosity::Verbose,
        };
        self.config.verbosity >= least
    }

    fn shows_thinking(&self) -> bool {
        let wanted = self.config.column == Column::Terminal && self.config.verbosity >= Verbosity::Verbose;
        wanted || (self.config.thinking && self.config.verbosity >= Verbosity::Normal)
    }

    fn block(&mut self, event: &BlockEvent, out: &mut String) {
        match event {
            BlockEvent::ThinkingDelta(delta) if self.shows_thinking() => self.thinking(delta, out),
            BlockEvent::ThinkingStart | BlockEvent::ThinkingEnd { .. } => self.end_thinking(out),
            BlockEvent::ThinkingDelta(_)
            | BlockEvent::TextStart
            | BlockEvent::TextDelta(_)
            | BlockEvent::TextEnd { .. }
            | BlockEvent::ToolCallStart { .. }
            | BlockEvent::ToolCallDelta(_)
            | BlockEvent::ToolCallEnd(_) => {}
        }
    }

    fn thinking(&mut self, delta: &str, out: &mut String) {
        for piece in delta.split_inclusive('\n') {
            self.open_thinking.push_str(piece);
            if piece.ends_with('\n') || self.open_thinking.len() > OPEN_LINE_BYTES_MAX {
                self.end_thinking(out);
            }
        }
    }

    fn end_thinking(&mut self, out: &mut String) {
        let text = std::mem::take(&mut self.open_thinking);
        if !text.trim().is_empty() {
            self.quote(&text, out);
        }
    }

    fn quote(&self, text: &str, out: &mut String) {
        let quoted = format!("{} {}", self.marks.quote, line(text, LINE_CHARS_MAX));
        push_line(out, &self.paint.dim(quoted.trim_end()));
    }

    fn tool_start(&mut self, id: &str, name: &str, args: &Map<String, Value>, out: &mut String) {
        self.tools = self.tools.saturating_add(1);
        let summary = if self.shows_tools() { summary_of(args) } else { String::new() };
        if self.shows_tools() {
            let name = line(name, SUMMARY_CHARS_MAX);
            let text = format!("{} {name} {summary}", self.paint.cyan(self.marks.start));
            push_line(out, text.trim_end());
        }
        self.running.insert(id.to_owned(), summary);
        if self.config.verbosity >= Verbosity::Debug
            && !args.is_empty()
            && let Ok(pretty) = serde_json::to_string_pretty(args)
        {
            for text in pretty.lines() {
                self.indented(text, usize::MAX, out);
            }
        }
    }

    fn tool_end(
        &mut self,
        id: &str,
        name: &str,
        result: &ToolResultView,
        is_error: bool,
        duration_ms: Option<u64>,
        out: &mut String,
    ) {
        let summary = self.running.remove(id).unwrap_or_default();
        if !self.shows_tools() {
            return;
        }
        let mark = if is_error { self.paint.red(self.marks.bad) } else { self.paint.green(self.marks.good) };
        let mut text = format!("{mark} {}", line(name, SUMMARY_CHARS_MAX));
        // Beside other calls a name alone does not tell which one ended.
        if !self.running.is_empty() && !summary.is_empty() {
            text = format!("{text} {summary}");
        }
        if is_error {
            text = format!("{text} {}", failure_of(result));
        }
        if let Some(ms) = duration_ms {
            text = format!("{text} {}", duration(ms));
        }
        push_line(out, &text);
        if self.config.verbosity >= Verbosity::Debug {
            self.result_lines(result, out);
        }
    }

    /// A retry is a detail, unless the text that it begins again has appeared.
    fn retry(
        &self,
        (attempt, max_attempts): (u32, u32),
        delay_ms: u64,
        error_message: &str,
        broke_off: bool,
        out: &mut String,
    ) {
        let least = if broke_off { Verbosity::Normal } else { Verbosity::Verbose };
        if self.config.verbosity >= least {
            let when = if delay_ms == 0 { "now".to_owned() } else { format!("in {}", duration(delay_ms)) };
            let text = because(format!("retry {attempt}/{max_attempts} {when}"), error_message);
            push_line(out, &format!("pirn: {text}"));
        }
    }

    fn result_lines(&self, result: &ToolResultView, out: &mut String) {
        let texts = result.content.iter().map(|block| match block {
            Content::Text(block) => block.text.as_str(),
            Content::Image(_) => "[image]",
            Content::Other(_) => "[block of an unknown type]",
        });
        let mut lines = texts.flat_map(str::lines);
        for text in lines.by_ref().take(RESULT_LINES_MAX) {
            self.indented(text, LINE_CHARS_MAX, out);
        }
        let more = lines.count();
        if more > 0 {
            self.quote(&format!("({} more)", plural(u64::try_from(more).unwrap_or(u64::MAX), "line")), out);
        }
    }

    /// A quoted line that keeps its indentation, as code and JSON need it.
    fn indented(&self, text: &str, chars_max: usize, out: &mut String) {
        let body = text.trim_start();
        let depth = text.chars().count().saturating_sub(body.chars().count()).min(SUMMARY_CHARS_MAX);
        let quoted = format!("{} {}{}", self.marks.quote, " ".repeat(depth), line(body, chars_max));
        push_line(out, &self.paint.dim(quoted.trim_end()));
    }

    fn summary(&self, result: &ResultLine) -> String {
        let usage = &result.usage;
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let about = if usage.estimated == Some(true) { "~" } else { "" };
        let mut parts = vec![plural(result.turns.into(), "turn"), plural(result.tool_calls.into(), "tool")];
        parts.push(format!("{about}{} in / {about}{} out", count(input), count(usage.output)));
        parts.extend(result.cost_usd.map(dollars));
        parts.push(duration(result.duration_ms));
        // One that is not kept cannot be named again.
        let kept = result.session_file.as_ref().and(result.session_id.as_deref());
        parts.extend(kept.map(|id| format!("session {}", short_id(id))));
        parts.join(self.marks.between)
    }
}

/// An error as stderr shows it: `pirn: kind: message`, then the hint. Every line carries its prefix.
pub fn error_lines(kind: &str, message: &str, hint: Option<&str>, paint: Paint) -> String {
    let mut out = String::new();
    message_lines(&format!("pirn: {}: ", paint.red(kind)), message, &mut out);
    if let Some(hint) = hint {
        message_lines(&format!("{}: ", paint.cyan("hint")), hint, &mut out);
    }
    out
}

fn message_lines(prefix: &str, text: &str, out: &mut String) {
    let mut lines = text.lines().filter(|text| !text.trim().is_empty());
    let mut any = false;
    for text in lines.by_ref().take(MESSAGE_LINES_MAX) {
        push_line(out, &format!("{prefix}{}", line(text, MESSAGE_CHARS_MAX)));
        any = true;
    }
    let more = lines.count();
    if more > 0 {
        push_line(out, &format!("{prefix}({more} more)"));
    }
    if !any {
        push_line(out, prefix.trim_end_matches([' ', ':']));
    }
}

fn push_line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// A sentence and its reason, in one line.
fn because(text: String, reason: &str) -> String {
    let reason = line(reason, LINE_CHARS_MAX);
    if reason.is_empty() { text } else { format!("{text}: {reason}") }
}

/// What a call is about, in one line: its most telling text argument.
fn summary_of(args: &Map<String, Value>) -> String {
    const TELLING: [&str; 7] = ["command", "pattern", "path", "file_path", "query", "url", "prompt"];
    let telling = TELLING.iter().find_map(|key| args.get(*key).and_then(Value::as_str));
    let text = telling.or_else(|| args.values().find_map(Value::as_str));
    match text {
        Some(text) => line(text, SUMMARY_CHARS_MAX),
        None if args.is_empty() => String::new(),
        None => line(&Value::Object(args.clone()).to_string(), SUMMARY_CHARS_MAX),
    }
}

/// Why a call failed, in a word or two: `exit 101`, `SIGKILL`, or the code of its failure.
fn failure_of(result: &ToolResultView) -> String {
    let detail = |key: &str| result.details.as_ref().and_then(|details| details.get(key));
    let code = detail("error").and_then(|error| error.get("code")).and_then(Value::as_str);
    // How a process ended that was ended tells less than why.
    if !matches!(code, Some("timeout" | "aborted")) {
        if let Some(signal) = detail("signal").and_then(Value::as_str) {
            return line(signal, SUMMARY_CHARS_MAX);
        }
        if let Some(code) = detail("exitCode").and_then(Value::as_i64).filter(|code| *code != 0) {
            return format!("exit {code}");
        }
    }
    line(code.unwrap_or("failed"), SUMMARY_CHARS_MAX)
}

/// Kind, text and hint of a verdict that came without an error record.
fn failure_text(reason: Reason) -> (&'static str, &'static str, Option<&'static str>) {
    let kind = |kind: ErrorKind| kind.as_str();
    match reason {
        Reason::MaxTurns => (reason.as_str(), "stopped at the limit of turns", Some("raise it with --max-turns")),
        Reason::MaxCost => (reason.as_str(), "stopped at the cost limit", Some("raise it with --max-cost")),
        Reason::MaxRepeats => (
            reason.as_str(),
            "stopped because the model repeats the same call",
            Some("limits.max_repeats raises the limit"),
        ),
        Reason::Blocked => (reason.as_str(), "a hook or a rule stopped the run", None),
        Reason::Suspended => (reason.as_str(), "the provider works in the background", None),
        Reason::Schema => (reason.as_str(), "the answer does not match the schema", None),
        Reason::Interrupted => (kind(ErrorKind::Interrupted), "the run was interrupted", None),
        Reason::Timeout => {
            (kind(ErrorKind::Timeout), "the run took longer than its timeout", Some("raise it with --timeout"))
        }
        Reason::Refused => (kind(ErrorKind::Refusal), "the model declined to answer", None),
        Reason::Unavailable => (kind(ErrorKind::Server), "the provider is not available", None),
        Reason::Auth => (kind(ErrorKind::Auth), "the provider refused the credentials", None),
        Reason::Usage => (kind(ErrorKind::Usage), "the call is not usable", None),
        Reason::Internal => (kind(ErrorKind::Internal), "this is a bug in pirn", None),
        Reason::Error | Reason::Completed | Reason::ToolTerminated | Reason::Length | Reason::Pipe => {
            (reason.as_str(), "the run failed", None)
        }
    }
}
