//! `ls`: the entries of a directory (tool rules L1–L4).
//!
//! Keeps true: only what can be shown is kept, however many entries there are; the count is exact; the order depends
//! on nothing but the names.
//!
//! Must not know: how its result is shown.

use std::collections::BinaryHeap;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::path::{Places, plain};
use super::read::integer;
use super::truncate::{BYTES_MAX, Cap, Caps, Head, size};
use super::{Failure, PATH_ALIASES, ToolSettings, blocking, repair};
use crate::port::{Replay, Source, Tool, ToolCtx, ToolOutput, ToolSpec};

/// Entries shown unless the model asks for another number.
const LIMIT_DEFAULT: usize = 500;
/// Entries that can be shown at all: each takes a byte and a line feed.
const KEPT_MAX: usize = BYTES_MAX / 2 + 1;
/// Entries between two looks at the cancellation.
const CANCEL_EVERY: usize = 256;

/// The tool `ls`.
#[derive(Debug)]
pub struct Ls {
    spec: ToolSpec,
    home: Option<PathBuf>,
}

impl Ls {
    /// The tool with the user's home directory.
    pub fn new(settings: &ToolSettings) -> Self {
        let description = format!(
            "Lists a directory, hidden entries included, sorted by name: directories end in /, links show their target. \
             Shows {LIMIT_DEFAULT} entries unless limit says otherwise, and at most {}. The path may be relative to the \
             working directory, which is the default. Use this instead of shelling out.",
            size(BYTES_MAX as u64)
        );
        let spec = ToolSpec {
            name: "ls".to_owned(),
            label: "ls".to_owned(),
            description,
            input_schema: json!({"type": "object", "additionalProperties": false, "properties": {
                "path": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1}}}),
            output_schema: None,
            replay: Replay::Safe,
            execution: None,
            source: Source::Builtin,
            annotations: Map::from_iter([("readOnlyHint".to_owned(), Value::Bool(true))]),
        };
        Self { spec, home: settings.home.clone() }
    }
}

#[async_trait]
impl Tool for Ls {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, raw: Value) -> Result<Value, String> {
        Ok(repair(raw, &[PATH_ALIASES]))
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        let written = args.get("path").and_then(Value::as_str).unwrap_or(".").to_owned();
        let limit = args.get("limit").map(integer).and_then(|limit| usize::try_from(limit.max(1)).ok());
        let places = Places::new(&ctx, self.home.as_ref());
        blocking(move || list(&places, &written, limit.unwrap_or(LIMIT_DEFAULT), &ctx.cancel)).await
    }
}

/// An entry in listing order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    lowercase: String,
    name: Vec<u8>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Directory,
    Link,
    Other,
}

fn list(places: &Places, written: &str, limit: usize, cancel: &CancellationToken) -> Result<ToolOutput, Failure> {
    let named = plain(written);
    let missing = || Failure::new("not_found", format!("No such directory: {named}"));
    let path = places.locate(written)?.ok_or_else(missing)?.path;
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => missing(),
        ErrorKind::NotADirectory => Failure::new("not_directory", format!("Not a directory: {named}")),
        _ => Failure::io(&named, &error),
    };
    let mut kept: BinaryHeap<Entry> = BinaryHeap::new();
    let mut total: usize = 0;
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        if total.is_multiple_of(CANCEL_EVERY) && cancel.is_cancelled() {
            return Err(Failure::aborted());
        }
        let entry = entry.map_err(failed)?;
        total += 1;
        kept.push(described(&entry));
        if kept.len() > limit.min(KEPT_MAX) {
            kept.pop();
        }
    }
    if total == 0 {
        return Ok(output("[empty directory]".to_owned(), &path, 0, 0));
    }
    let mut head = Head::new(Caps { lines: limit, bytes: BYTES_MAX });
    for entry in kept.into_sorted_vec() {
        if cancel.is_cancelled() {
            return Err(Failure::aborted());
        }
        if !head.push(&line(&path, &entry)) {
            break;
        }
    }
    let (shown, cut) = (head.lines(), head.cut());
    let mut text = head.into_text();
    if cut == Some(Cap::Bytes) {
        text.push_str(&format_notice(shown, total, &format!(", cut at {}", size(BYTES_MAX as u64))));
    } else if shown < total {
        text.push_str(&format_notice(shown, total, "; raise limit for more"));
    }
    Ok(output(text, &path, total, shown))
}

fn format_notice(shown: usize, total: usize, rest: &str) -> String {
    format!("\n\n[{shown} of {total} entries{rest}]")
}

fn output(text: String, path: &Path, total: usize, shown: usize) -> ToolOutput {
    let details = json!({"path": path.to_string_lossy(), "total": total, "shown": shown});
    ToolOutput { details: Some(details), ..ToolOutput::text(text) }
}

fn described(entry: &std::fs::DirEntry) -> Entry {
    let name = entry.file_name();
    let kind = match entry.file_type() {
        Ok(kind) if kind.is_dir() => Kind::Directory,
        Ok(kind) if kind.is_symlink() => Kind::Link,
        // An entry that vanished is listed as it was.
        Ok(_) | Err(_) => Kind::Other,
    };
    Entry { lowercase: name.to_string_lossy().to_lowercase(), name: name.as_bytes().to_vec(), kind }
}

fn line(directory: &Path, entry: &Entry) -> String {
    let name = shown(&entry.name);
    match entry.kind {
        Kind::Directory => format!("{name}/"),
        Kind::Other => name,
        Kind::Link => {
            let path = directory.join(std::ffi::OsStr::from_bytes(&entry.name));
            let Ok(target) = std::fs::read_link(&path) else { return name };
            let target = shown(target.as_os_str().as_bytes());
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => format!("{name}/ -> {target}"),
                Ok(_) => format!("{name} -> {target}"),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => format!("{name} -> {target}"),
                Err(_) => format!("{name} -> {target} (broken)"),
            }
        }
    }
}

/// A name on one line: what is not text is shown as U+FFFD.
fn shown(name: &[u8]) -> String {
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(name).chars().map(visible).collect()
}
