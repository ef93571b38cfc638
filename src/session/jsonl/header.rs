//! The first line of a session file: whose session it is, and what is needed to read the rest.
//!
//! Keeps true: fields this version does not know survive being read and written again; a file of a newer format is told
//! from a damaged one.
//!
//! Must not know: the lines below it, where files are kept.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the format this program writes.
pub const FORMAT: u64 = 1;
/// A longer first line is no header.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
/// What `requires` may name in this version.
const CAPABILITIES: &[&str] = &[];

/// The first line of a session file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    kind: Kind,
    /// The version of the format; a reader of a lower one does not write.
    pub format: u64,
    /// A UUIDv7.
    pub id: String,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub created_at: u64,
    /// The working directory; whatever the file's name says, this decides.
    #[serde(default)]
    pub cwd: String,
    /// What a reader must know to write to this file, beside the format.
    #[serde(default)]
    pub requires: Vec<String>,
    /// The session it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<String>,
    /// A rewrite may drop the last places; the next one is not below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_seq: Option<u64>,
    /// What it was imported from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<Value>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The word that marks the file as one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    #[serde(rename = "pirn.session")]
    Session,
}

impl Header {
    /// The header of a new session.
    pub fn new(id: impl Into<String>, created_at: u64, cwd: impl Into<String>) -> Self {
        Self {
            kind: Kind::Session,
            format: FORMAT,
            id: id.into(),
            created_at,
            cwd: cwd.into(),
            requires: Vec::new(),
            parent_session_id: None,
            next_seq: None,
            imported_from: None,
            extra: Map::new(),
        }
    }

    /// Reads a first line, with or without its line feed.
    ///
    /// # Errors
    /// It is not the header of a session: the reason.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        if line.len() > HEADER_BYTES_MAX {
            return Err("the first line is too long for a session header".to_owned());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return Err("no session header".to_owned());
        }
        let header: Self = serde_json::from_slice(line).map_err(|error| format!("no session header: {error}"))?;
        if header.id.is_empty() {
            return Err("the session header has no id".to_owned());
        }
        if header.format == 0 {
            return Err("the session header has no format".to_owned());
        }
        Ok(header)
    }

    /// The line, without its line feed.
    ///
    /// # Errors
    /// It can not be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Why this version may not write to the file, if it may not.
    pub fn needs_newer(&self) -> Option<String> {
        if self.format > FORMAT {
            return Some(format!("its format is {}, this version writes {FORMAT}", self.format));
        }
        let unknown = self.requires.iter().find(|item| !CAPABILITIES.contains(&item.as_str()))?;
        Some(format!("it requires \"{unknown}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::Header;

    #[test]
    fn a_header_is_written_as_it_was_read_with_the_fields_nobody_knows() {
        for line in [
            r#"{"kind":"pirn.session","format":1,"id":"s","createdAt":5,"cwd":"/a","requires":[]}"#,
            r#"{"kind":"pirn.session","format":1,"id":"s","createdAt":5,"cwd":"/a","requires":[],"parentSessionId":"p","nextSeq":7,"importedFrom":{"v":3},"later":[1.5,null]}"#,
        ] {
            let header = Header::parse(line.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(header.encode().unwrap()).unwrap(), line);
            assert_eq!(header.needs_newer(), None);
        }
    }

    #[test]
    fn what_is_no_header_is_told_with_the_reason() {
        for (line, reason) in [
            ("", "no session header"),
            ("\n", "no session header"),
            ("{\"kind\":\"pirn.session\",", "no session header: EOF"),
            (r#"{"type":"session","version":3}"#, "no session header: missing field `kind`"),
            (r#"{"kind":"other","format":1,"id":"s"}"#, "no session header: unknown variant `other`"),
            (r#"{"kind":"pirn.session","format":1,"id":""}"#, "the session header has no id"),
            (r#"{"kind":"pirn.session","format":0,"id":"s"}"#, "the session header has no format"),
        ] {
            let error = Header::parse(line.as_bytes()).unwrap_err();
            assert!(error.starts_with(reason), "{line}: {error}");
        }
        let long = format!(r#"{{"kind":"pirn.session","format":1,"id":"{}"}}"#, "s".repeat(70_000));
        assert!(Header::parse(long.as_bytes()).unwrap_err().contains("too long"));
    }

    #[test]
    fn a_newer_format_and_an_unknown_requirement_are_read_but_not_written_case_100() {
        for (line, reason) in [
            (r#"{"kind":"pirn.session","format":2,"id":"s"}"#, "its format is 2, this version writes 1"),
            (r#"{"kind":"pirn.session","format":1,"id":"s","requires":["blobs"]}"#, "it requires \"blobs\""),
        ] {
            assert_eq!(Header::parse(line.as_bytes()).unwrap().needs_newer().unwrap(), reason);
        }
    }
}
