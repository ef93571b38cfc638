//! Which transactions count, how one is described in a line, and where one stands in a session file.
//!
//! Keeps true: a transaction in memory and its line in a file count alike.
//!
//! Must not know: what is tested.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use crate::model::session::namespace;
use crate::model::{EntryBody, UsageKind, Write};

/// Namespaces that the transaction which makes a lane sets, and nothing beside them.
const LANE: [&str; 3] = [namespace::BRANCH_TIP, namespace::LANE_CONFIG, namespace::LANE_STATE];

/// What a write does to which namespace, as far as counting asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed<'a> {
    Set(&'a str),
    Delete(&'a str),
    Append(&'a str),
    Other,
}

impl<'a> Deed<'a> {
    fn of(write: &'a Write) -> Self {
        match write {
            Write::Set { namespace, .. } => Self::Set(namespace),
            Write::Delete { namespace, .. } => Self::Delete(namespace),
            Write::Append { namespace, .. } => Self::Append(namespace),
            Write::Entry { .. } | Write::Usage(_) | Write::DeleteList { .. } => Self::Other,
        }
    }

    /// A write as it stands in a file.
    fn of_json(write: &'a Value) -> Self {
        let text = |key: &str| write.get(key).and_then(Value::as_str).unwrap_or_default();
        match (text("kind"), text("op")) {
            ("value", "set") => Self::Set(text("namespace")),
            ("value", "delete") => Self::Delete(text("namespace")),
            ("list", "append") => Self::Append(text("namespace")),
            _ => Self::Other,
        }
    }

    fn namespace(self) -> Option<&'a str> {
        match self {
            Self::Set(namespace) | Self::Delete(namespace) | Self::Append(namespace) => Some(namespace),
            Self::Other => None,
        }
    }

    fn is_aside(self) -> bool {
        match self {
            Self::Append(namespace) => namespace == namespace::FRAMES,
            Self::Set(namespace) => [namespace::TOOL_OUTPUT, namespace::TOOL_MEMO].contains(&namespace),
            Self::Delete(namespace) => namespace == namespace::TOOL_MEMO,
            Self::Other => false,
        }
    }
}

/// Whether a transaction is one of those that are numbered.
pub(super) fn counts(writes: &[Write]) -> bool {
    let deeds: Vec<Deed<'_>> = writes.iter().map(Deed::of).collect();
    deeds_count(&deeds)
}

fn deeds_count(deeds: &[Deed<'_>]) -> bool {
    let is_aside = deeds.iter().all(|deed| deed.is_aside());
    let is_lane = |deed: &Deed<'_>| matches!(deed, Deed::Set(namespace) if LANE.contains(namespace));
    let makes_lane = deeds.iter().all(is_lane) && LANE.iter().all(|namespace| deeds.contains(&Deed::Set(namespace)));
    let names = deeds.iter().all(|deed| *deed == Deed::Set(namespace::SESSION_NAME));
    !(is_aside || makes_lane || names)
}

/// Whether a side commit has to do with a namespace.
pub(super) fn is_side_of(writes: &[Write], namespace: &str) -> bool {
    writes.iter().any(|write| Deed::of(write).namespace() == Some(namespace))
}

/// The writes of a transaction in one line: `+user` and the like for an entry, `usage:request` for a row, a namespace
/// for a register that is set, with `-` before one that is deleted, `+` before a list that grows; behind `op.state`
/// stands where the operation is.
pub(super) fn describe(writes: &[Write]) -> String {
    writes.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn word(write: &Write) -> String {
    match write {
        Write::Entry { body: EntryBody::Message { message, .. }, .. } => format!("+{}", message.role()),
        Write::Entry { body: EntryBody::Custom { custom_type, .. }, .. } => format!("+custom:{custom_type}"),
        Write::Entry { body: EntryBody::Other(fields), .. } => {
            format!("+{}", fields.get("type").and_then(Value::as_str).unwrap_or("?"))
        }
        Write::Usage(row) => match row.kind {
            UsageKind::Request => "usage:request".to_owned(),
            UsageKind::Tool => "usage:tool".to_owned(),
            UsageKind::Summary => "usage:summary".to_owned(),
            UsageKind::Adjustment => "usage:adjustment".to_owned(),
        },
        Write::Set { namespace, value, .. } => match value.get("at").and_then(Value::as_str) {
            Some(at) if namespace == namespace::OP_STATE => format!("{namespace}:{at}"),
            Some(_) | None => namespace.clone(),
        },
        Write::Delete { namespace, .. } | Write::DeleteList { namespace, .. } => format!("-{namespace}"),
        Write::Append { namespace, .. } => format!("+{namespace}"),
    }
}

/// Where `TXn` stands in a session file, its line feed included. `None` if the file has fewer.
///
/// # Errors
/// The file can not be read.
pub fn transaction_at(file: &Path, n: usize) -> io::Result<Option<Range<u64>>> {
    let bytes = std::fs::read(file)?;
    let mut start = 0_u64;
    let mut number = 0_usize;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let end = start.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        let value: Value = serde_json::from_slice(line).unwrap_or_default();
        // The header has no writes.
        if let Some(writes) = value.get("w").and_then(Value::as_array)
            && deeds_count(&writes.iter().map(Deed::of_json).collect::<Vec<_>>())
        {
            number += 1;
            if number == n {
                return Ok(Some(start..end));
            }
        }
        start = end;
    }
    Ok(None)
}

/// Cuts a session file off inside the line of `TXn`, of which so many bytes stay, as a write that a kill or the loss of
/// power tore.
///
/// # Errors
/// The file has no such transaction, its line is not longer than that, or the system refuses.
pub fn tear(file: &Path, n: usize, bytes: u64) -> io::Result<()> {
    let line = transaction_at(file, n)?.unwrap_or_default();
    let end = line.start.saturating_add(bytes);
    if end >= line.end {
        return Err(io::Error::other(format!("TX{n} has no byte {bytes}")));
    }
    OpenOptions::new().write(true).open(file)?.set_len(end)
}
