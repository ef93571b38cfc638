//! Values that depend on where they stand: paths, programs, and files whose content is the value.
//!
//! Keeps true: a relative path starts at the file it stands in, else at the working directory; `~/` means the home
//! directory and nothing where there is none; what is read is bounded.
//!
//! Must not know: what a file's content is for.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::Origin;
use super::file::text_of;
use super::layer::Layer;
use super::node::{Data, Node};
use super::read::{KeyName, Read, texts};

impl KeyName<'_> {
    /// A path, absolute if the layer's directory is.
    pub(super) fn path(self, layer: &Layer<'_>, text: &str, at: &Origin) -> Read<PathBuf> {
        layer.path(text).ok_or_else(|| self.wrong(at, "begins with ~/, and HOME is not set"))
    }

    /// `@file` is read here; anything with a line break is text. The second text is how a listing writes it.
    pub(super) fn prompt(self, layer: &mut Layer<'_>, text: String, at: &Origin) -> Read<(String, String)> {
        let path = text.strip_prefix('@').filter(|path| !path.is_empty() && !path.contains('\n'));
        let Some(path) = path else { return Ok((text.clone(), text)) };
        let path = self.path(layer, path, at)?;
        let content = self.file(layer, &path, at)?;
        let content = content.strip_prefix('\u{feff}').unwrap_or(&content).trim_end().to_owned();
        Ok((content, format!("@{}", path.display())))
    }

    fn file(self, layer: &mut Layer<'_>, path: &Path, at: &Origin) -> Read<String> {
        let read = layer.read(path).and_then(text_of);
        read.map_err(|problem| self.wrong(at, format_args!("cannot be read from {}: {problem}", path.display())))
    }

    /// A name on PATH stays one; anything with a slash is a path.
    pub(super) fn program(self, layer: &Layer<'_>, text: String, at: &Origin) -> Read<String> {
        // A reference may hold a whole path.
        if !text.contains('/') || text.starts_with("${") {
            return Ok(text);
        }
        Ok(self.path(layer, &text, at)?.to_string_lossy().into_owned())
    }

    pub(super) fn argv(self, layer: &Layer<'_>, node: Node) -> Read<Vec<String>> {
        let node = node.settle(false);
        let at = node.at.clone();
        let mut list = texts(self.list(node)?);
        match list.first_mut() {
            Some(first) if !first.is_empty() => *first = self.program(layer, std::mem::take(first), &at)?,
            _ => return Err(self.wrong(&at, "must name a program")),
        }
        Ok(list)
    }

    /// A text is a line for `sh -c`.
    pub(super) fn argv_or_shell(self, layer: &Layer<'_>, node: Node) -> Read<(Vec<String>, toml::Value)> {
        let node = node.settle(true);
        if let Data::Text(line) = &node.data {
            if line.trim().is_empty() {
                return Err(self.wrong(&node.at, "must name a program"));
            }
            let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
            return Ok((argv, toml::Value::String(line.clone())));
        }
        if !matches!(node.data, Data::List(_)) {
            return Err(self.expected("an array of strings or a line for the shell", &node));
        }
        let argv = self.argv(layer, node)?;
        let value = toml::Value::Array(argv.iter().cloned().map(toml::Value::String).collect());
        Ok((argv, value))
    }

    /// A JSON Schema in a file, and the file's path.
    pub(super) fn parameters_file(
        self,
        layer: &mut Layer<'_>,
        text: &str,
        at: &Origin,
    ) -> Read<(Map<String, Value>, String)> {
        let path = self.path(layer, text, at)?;
        let content = self.file(layer, &path, at)?;
        let wrong = |problem: String| self.wrong(at, format_args!("cannot use {}: {problem}", path.display()));
        let schema: Value = serde_json::from_str(&content).map_err(|error| wrong(error.to_string()))?;
        match schema {
            Value::Object(schema) if describes_object(&schema) => Ok((schema, path.to_string_lossy().into_owned())),
            _ => Err(wrong("it is no JSON Schema of an object (\"type\": \"object\")".to_owned())),
        }
    }

    /// A file that is read later by those who know its form, and its path.
    pub(super) fn import(self, layer: &mut Layer<'_>, text: &str, at: &Origin) -> Read<(Vec<u8>, String)> {
        let path = self.path(layer, text, at)?;
        let content = self.file(layer, &path, at)?;
        Ok((content.into_bytes(), path.to_string_lossy().into_owned()))
    }
}

/// Whether a schema is one of an object.
pub(super) fn describes_object(schema: &Map<String, Value>) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}
