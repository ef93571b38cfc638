//! `read`: a text file, or some lines of it, or an image (tool rules R1–R12, I1–I5).
//!
//! Keeps true: memory is bounded by the caps, not by the file; an image is known by its bytes and never an error; a file that grows is read up to its size at open; the
//! number of lines is exact; a cancelled read ends at the next chunk.
//!
//! Must not know: how its result is shown.

mod source;
mod survey;
#[cfg(test)]
mod tests;
mod window;

use std::fs::{File, Metadata};
use std::path::PathBuf;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use self::source::{Encoding, Source};
use self::survey::{Eol, Survey};
use self::window::{Outcome, Shown, Window};
use super::open::{OpenError, not_a_file, open_regular};
use super::path::{Located, Places, plain, quoted};
use super::truncate::{BYTES_MAX, Caps, LINES_MAX, size};
use super::{Failure, PATH_ALIASES, ToolSettings, blocking, image, repair};
use crate::model::{Content, ImageKind};
use crate::port::{Inputs, Replay, Source as ToolSource, Tool, ToolCtx, ToolOutput, ToolSpec};

/// Characters shown of a line that is over the byte cap by itself (tool rule R8).
const LONG_LINE_CHARS: usize = 2_000;

/// `tools.read` of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSettings {
    /// Puts the number before each line.
    pub line_numbers: bool,
    /// Bytes of text in one result.
    pub max_bytes: usize,
    /// Lines in one result.
    pub max_lines: usize,
}

impl Default for ReadSettings {
    fn default() -> Self {
        Self { line_numbers: false, max_bytes: BYTES_MAX, max_lines: LINES_MAX }
    }
}

/// The tool `read`.
#[derive(Debug)]
pub struct Read {
    spec: ToolSpec,
    settings: ReadSettings,
    home: Option<PathBuf>,
}

impl Read {
    /// The tool with its caps and the user's home directory.
    pub fn new(settings: &ToolSettings) -> Self {
        let caps = format!("{} lines or {}", settings.read.max_lines, size(settings.read.max_bytes as u64));
        let description = format!(
            "Shows the text of a file, at most {caps} at a time; a closing note says how to get the rest. Use offset and \
             limit for parts of large files. Shows images, too. Paths may be relative to the working directory. Use this instead of cat, \
             head or tail; use ls for directories."
        );
        let spec = ToolSpec {
            name: "read".to_owned(),
            label: "read".to_owned(),
            description,
            input_schema: json!({"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
                "path": {"type": "string"},
                "offset": {"type": "integer", "description": "1-based first line; negative counts from the end"},
                "limit": {"type": "integer", "minimum": 1}}}),
            output_schema: None,
            replay: Replay::Safe,
            execution: None,
            source: ToolSource::Builtin,
            annotations: Map::from_iter([("readOnlyHint".to_owned(), Value::Bool(true))]),
        };
        // Without room for one line nothing could ever be shown.
        let ReadSettings { line_numbers, max_bytes, max_lines } = settings.read;
        let settings_read = ReadSettings { line_numbers, max_bytes: max_bytes.max(1), max_lines: max_lines.max(1) };
        Self { spec, settings: settings_read, home: settings.home.clone() }
    }
}

#[async_trait]
impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, raw: Value) -> Result<Value, String> {
        Ok(repair(raw, &[PATH_ALIASES]))
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        let written = args.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        let job = Job {
            shown: plain(&written),
            written,
            offset: args.get("offset").map_or(1, integer),
            limit: args.get("limit").map(integer).and_then(|limit| usize::try_from(limit.max(1)).ok()),
            settings: self.settings,
            places: Places::new(&ctx, self.home.as_ref()),
            has_bash: ctx.enabled_tools.iter().any(|name| name == "bash"),
            inputs: ctx.model_inputs,
            cancel: ctx.cancel,
        };
        blocking(move || job.run()).await
    }
}

/// A whole number, however large; the schema has refused everything else.
pub(super) fn integer(value: &Value) -> i64 {
    let unsigned = || value.as_u64().map(|_| i64::MAX);
    let float = || value.as_f64().map(saturated);
    value.as_i64().or_else(unsigned).or_else(float).unwrap_or_default()
}

#[expect(clippy::cast_possible_truncation, reason = "casts from a float saturate, which is what is wanted")]
fn saturated(float: f64) -> i64 {
    float as i64
}

/// One call.
struct Job {
    written: String,
    /// The same for a model's eyes.
    shown: String,
    offset: i64,
    limit: Option<usize>,
    settings: ReadSettings,
    places: Places,
    has_bash: bool,
    inputs: Inputs,
    cancel: CancellationToken,
}

/// What the first pass and the request say about the part to show.
struct Plan {
    /// 1-based.
    first: u64,
    lines: u64,
    encoding: Encoding,
    bom: bool,
    eol: Eol,
    /// The file went on behind what is read of it.
    partial: bool,
}

impl Job {
    fn run(&self) -> Result<ToolOutput, Failure> {
        let missing = || Failure::new("not_found", format!("No such file: {}", self.shown));
        let located = self.places.locate(&self.written)?.ok_or_else(missing)?;
        // A name that ends in a slash is a directory's, even where the file below the slash exists.
        if self.written.ends_with('/') && !located.path.is_dir() {
            return Err(Failure::new("not_directory", format!("Not a directory: {}", self.shown)));
        }
        let opened = open_regular(&located.path).map_err(|error| match error {
            OpenError::Missing => missing(),
            OpenError::Directory => Failure::new("is_directory", format!("{} is a directory; use ls.", self.shown)),
            OpenError::Special => not_a_file(&self.shown),
            OpenError::System(error) => Failure::io(&self.shown, &error),
        })?;
        self.show(&located, opened)
    }

    fn show(&self, located: &Located, (file, metadata): (File, Metadata)) -> Result<ToolOutput, Failure> {
        let source = Source::load(file, &metadata, &located.path, &self.shown, &self.cancel)?;
        if let Some(output) = self.image(located, &source)? {
            return Ok(output);
        }
        let Some((encoding, bom)) = source.encoding() else { return Err(self.binary(source.size())) };
        let mut survey = Survey::default();
        source.decoded(encoding, bom, &self.cancel, &mut |bytes| {
            survey.feed(bytes);
            true
        })?;
        let (lines, eol) = (survey.lines(), survey.eol());
        let plan = Plan { first: self.first(lines)?, lines, encoding, bom, eol, partial: source.is_partial() };
        if lines == 0 {
            return Ok(self.output(located, &plan, Shown::nothing()));
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        let caps = Caps { lines: limit.min(self.settings.max_lines), bytes: self.settings.max_bytes };
        let mut window = Window::new(plan.first, eol.terminator(), caps, self.settings.line_numbers);
        source.decoded(encoding, bom, &self.cancel, &mut |bytes| window.feed(bytes))?;
        let shown = window.finish();
        if shown.lines == 0 {
            // It shrank between the passes.
            let text = format!("{} changed while it was being read; read it again.", self.shown);
            return Err(Failure::new("conflict", text));
        }
        Ok(self.output(located, &plan, shown))
    }

    /// The image the file is, or a line that tells why it is not shown; `None` for everything that is no readable image
    /// (tool rule R2).
    fn image(&self, located: &Located, source: &Source) -> Result<Option<ToolOutput>, Failure> {
        if ImageKind::of(source.probe()).is_none() {
            return Ok(None);
        }
        let start = source.start(image::FILE_BYTES_MAX, &self.cancel)?;
        // A file that shrank has what was read of it.
        let whole = if start.len() < image::FILE_BYTES_MAX { start.len() as u64 } else { source.size() };
        let Some(facts) = image::ImageFacts::of(&start, whole) else { return Ok(None) };
        let content = match image::blocks_of(&start, whole, self.inputs) {
            Ok(blocks) => blocks,
            Err(error) => vec![Content::text(error.note())],
        };
        let details = json!({
            "path": located.path.to_string_lossy(),
            "bytes": facts.bytes,
            "mimeType": facts.kind.mime_type(),
            "width": facts.width,
            "height": facts.height,
            "attached": content.iter().any(|block| matches!(block, Content::Image(_))),
        });
        Ok(Some(ToolOutput { content, details: Some(details), ..ToolOutput::default() }))
    }

    fn binary(&self, bytes: u64) -> Failure {
        let hint = if self.has_bash { " Inspect it with bash: file, xxd, strings." } else { "" };
        Failure::new("binary", format!("{} is binary ({}).{hint}", self.shown, size(bytes)))
    }

    /// The first line to show, 1-based (tool rule R5).
    fn first(&self, lines: u64) -> Result<u64, Failure> {
        if lines == 0 {
            return Ok(1);
        }
        let distance = self.offset.unsigned_abs();
        if self.offset < 0 {
            return Ok(lines.saturating_sub(distance) + 1);
        }
        let first = distance.max(1);
        if first > lines {
            let text = format!("offset {first} is past the end: {} has {lines} line(s).", self.shown);
            return Err(Failure::new("invalid_args", text));
        }
        Ok(first)
    }

    fn output(&self, located: &Located, plan: &Plan, shown: Shown) -> ToolOutput {
        let last = plan.first.saturating_add(shown.lines).saturating_sub(1);
        let complete = last >= plan.lines;
        let by_bytes = shown.outcome != Outcome::Lines;
        // A limit the model set itself cuts nothing it asked for.
        let by_lines = !complete && !by_bytes && self.limit.is_none_or(|limit| limit > self.settings.max_lines);
        let notices = self.notices(located, plan, &shown, last);
        let mut text = shown.text;
        if notices.is_empty() && shown.terminated {
            text.push('\n');
        }
        let details = json!({
            "path": located.path.to_string_lossy(),
            "totalLines": plan.lines,
            "startLine": plan.first,
            "endLine": last,
            "bytes": text.len(),
            "truncated": by_bytes || by_lines,
            "truncatedBy": if by_bytes { json!("bytes") } else if by_lines { json!("lines") } else { Value::Null },
            "eol": plan.eol.word(),
            "bom": plan.bom,
            "encoding": plan.encoding.word(),
        });
        if plan.lines == 0 {
            "[empty file]".clone_into(&mut text);
        } else if !notices.is_empty() {
            text.push_str("\n\n");
            text.push_str(&notices.join("\n"));
        }
        ToolOutput { details: Some(details), ..ToolOutput::text(text) }
    }

    /// In the order of tool rule R9.
    fn notices(&self, located: &Located, plan: &Plan, shown: &Shown, last: u64) -> Vec<String> {
        let mut notices = Vec::new();
        if let Some(name) = plan.encoding.notice() {
            notices.push(format!("[decoded from {name}]"));
        }
        if shown.invalid > 0 {
            notices.push(format!("[{} invalid UTF-8 byte(s) shown as U+FFFD]", shown.invalid));
        }
        if shown.control > 0 {
            notices.push(format!("[{} control character(s) not shown]", shown.control));
        }
        notices.extend(plan.eol.notice().map(str::to_owned));
        if let Outcome::LongLine { bytes, chars } = shown.outcome {
            notices.push(self.long_line_notice(located, plan, bytes, chars));
        }
        if last < plan.lines {
            let cut = if shown.outcome == Outcome::Lines { String::new() } else { format!(", cut at {}", self.cap()) };
            let (first, lines, next) = (plan.first, plan.lines, last.saturating_add(1));
            notices.push(format!("[lines {first}-{last} of {lines}{cut}; more: offset={next}]"));
        }
        if plan.partial {
            notices.push(format!("[only the first {} were read]", size(source::GENERATED_MAX as u64)));
        }
        notices
    }

    fn cap(&self) -> String {
        size(self.settings.max_bytes as u64)
    }

    fn long_line_notice(&self, located: &Located, plan: &Plan, bytes: u64, chars: usize) -> String {
        let path = if located.as_written { self.written.clone() } else { located.path.to_string_lossy().into_owned() };
        // sed counts line feeds in bytes that are not decoded.
        let by_sed = self.has_bash && plan.encoding == Encoding::Utf8 && plan.eol != Eol::Cr;
        let rest = match quoted(&path).filter(|_| by_sed) {
            Some(path) => format!(" Rest: sed -n '{}p' {path} | cut -c{}-", plan.first, chars.saturating_add(1)),
            None => String::new(),
        };
        format!(
            "[line {} is {}, over the {} cap; first {chars} characters shown.{rest}]",
            plan.first,
            size(bytes),
            self.cap()
        )
    }
}
