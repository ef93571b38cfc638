//! `write`: a whole file, new or replaced (tool rules W1–W6).
//!
//! Keeps true: exactly the bytes of the content are written; what has the content already is not touched; nothing is
//! looked at or written before the arguments and the guard allow it.
//!
//! Must not know: how a file is replaced, how its result is shown.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::mutate::{Mutations, Request, Target, is_directory, refuse_masks};
use super::patch::unified;
use super::path::{Places, names_directory, plain};
use super::truncate::size;
use super::{Failure, PATH_ALIASES, ToolSettings, repair};
use crate::port::{Replay, Source, Tool, ToolCtx, ToolOutput, ToolSpec};

/// Bytes of a content (tool rule W5).
const CONTENT_BYTES_MAX: usize = 10 << 20;
/// Bytes of either side of a patch (tool rule W4).
const PATCH_BYTES_MAX: usize = 256 << 10;

/// The tool `write`.
#[derive(Debug)]
pub struct Write {
    spec: ToolSpec,
    mutations: Mutations,
    home: Option<PathBuf>,
}

impl Write {
    /// The tool with the user's home directory; it takes turns with the other tools of `mutations`.
    pub(super) fn new(settings: &ToolSettings, mutations: &Mutations) -> Self {
        let spec = ToolSpec {
            name: "write".to_owned(),
            label: "write".to_owned(),
            description:
                "Creates a file, or replaces all of its content, with exactly the given text; line ends stay as \
                          given and no final line feed is added. Missing directories are created. The path may be \
                          relative to the working directory. Use this for new files and full rewrites instead of \
                          shell redirection; read an existing file first."
                    .to_owned(),
            input_schema: json!({"type": "object", "required": ["path", "content"], "additionalProperties": false,
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}),
            output_schema: None,
            replay: Replay::Never,
            execution: None,
            source: Source::Builtin,
            annotations: Map::from_iter([
                ("readOnlyHint".to_owned(), Value::Bool(false)),
                ("destructiveHint".to_owned(), Value::Bool(true)),
                ("idempotentHint".to_owned(), Value::Bool(true)),
            ]),
        };
        Self { spec, mutations: mutations.clone(), home: settings.home.clone() }
    }
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, raw: Value) -> Result<Value, String> {
        Ok(repair(raw, &[PATH_ALIASES]))
    }

    async fn call(&self, mut args: Value, ctx: ToolCtx) -> ToolOutput {
        let mut taken = |name: &str| match args.get_mut(name).map(Value::take) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (written, content) = (taken("path"), taken("content"));
        let shown = plain(&written);
        if let Err(failure) = accept(&shown, &content) {
            return failure.into();
        }
        let places = Places::new(&ctx, self.home.as_ref());
        let request = Request { written, shown, places, cancel: ctx.cancel };
        self.mutations.run(request, find, move |target| write(target, &content)).await
    }
}

/// What can be said about a content without looking at the disk.
fn accept(shown: &str, content: &str) -> Result<(), Failure> {
    if content.len() > CONTENT_BYTES_MAX {
        let (given, most) = (content.len(), size(CONTENT_BYTES_MAX as u64));
        let text = format!("{shown} not written: the content is {given} bytes, over the limit of {most}.");
        return Err(Failure::new("too_large", text));
    }
    refuse_masks(shown, content)
}

fn find(request: &Request) -> Result<PathBuf, Failure> {
    let path = request.places.destination(&request.written)?;
    if names_directory(&request.written) { Err(is_directory(&request.shown)) } else { Ok(path) }
}

fn write(target: &Target<'_>, content: &str) -> Result<ToolOutput, Failure> {
    let (shown, bytes, previous) = (target.shown(), content.len() as u64, target.size());
    let old = old_text(target, content)?;
    let facts = Facts { path: target.path(), bytes, previous };
    if old.as_deref() == Some(content.as_bytes()) {
        return Ok(facts.output(format!("Unchanged: {shown} already has this content."), None, true));
    }
    let atomic = target.replace(content.as_bytes())?;
    let text = match previous {
        None => format!("Created {shown} ({bytes} bytes)."),
        Some(previous) => format!("Replaced {shown} ({bytes} bytes, was {previous})."),
    };
    Ok(facts.output(text, patch(shown, previous.is_none(), old.as_deref(), content), atomic))
}

/// The old content, where it can be equal to the new one or a patch can be made of both.
fn old_text(target: &Target<'_>, content: &str) -> Result<Option<Vec<u8>>, Failure> {
    let Some(previous) = target.size() else { return Ok(None) };
    let is_equal = previous == content.len() as u64;
    let is_small = previous <= PATCH_BYTES_MAX as u64 && content.len() <= PATCH_BYTES_MAX;
    if is_equal || is_small { target.read() } else { Ok(None) }
}

/// What changed, as a unified diff; `None` where a side is too large, is no text or is not known.
fn patch(shown: &str, created: bool, old: Option<&[u8]>, new: &str) -> Option<String> {
    let old = if created { "" } else { std::str::from_utf8(old?).ok()? };
    let is_text = |text: &str| text.len() <= PATCH_BYTES_MAX && !text.contains('\0');
    if !is_text(old) || !is_text(new) {
        return None;
    }
    let text = unified((if created { "/dev/null" } else { shown }, old), (shown, new));
    (!text.is_empty()).then_some(text)
}

/// What programs are told (tool rule W4).
struct Facts<'a> {
    path: &'a Path,
    bytes: u64,
    previous: Option<u64>,
}

impl Facts<'_> {
    fn output(&self, text: String, patch: Option<String>, atomic: bool) -> ToolOutput {
        let mut details = json!({
            "path": self.path.to_string_lossy(),
            "created": self.previous.is_none(),
            "bytes": self.bytes,
            "previousBytes": self.previous,
            "atomic": atomic,
        });
        if let (Some(details), Some(patch)) = (details.as_object_mut(), patch) {
            details.insert("patch".to_owned(), Value::String(patch));
        }
        ToolOutput { details: Some(details), ..ToolOutput::text(text) }
    }
}
