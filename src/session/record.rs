//! One write as JSON text: how it is made, what it does, and what it says.
//!
//! Keeps true: a write is read back as it was, null and numbers included; the order of keys inside values and messages
//! stays; what a newer version added is no error; nesting is bounded.
//!
//! Must not know: lines, files, where the text is kept.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::loose::{Loose, MessageHead};
use super::quick;
use crate::model::{Entry, EntryBody, EntryId, Message, StopReason, Usage, UsageRow, Write};

/// Levels of nesting in one write. Deeper arguments never ran; nothing else is that deep.
pub(super) const DEPTH_MAX: usize = 256;
/// Levels that the JSON parser reads unasked, and a margin.
const DEPTH_UNASKED: usize = 100;

/// Members of an entry that belong to the entry and not to its type.
const COMMON_MEMBERS: &[&str] = &["seq", "kind", "id", "parentId", "timestamp"];

const MESSAGE: &str = "message";
const CUSTOM: &str = "custom";

/// What a write does to a session, without what it says.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<'a> {
    Entry {
        id: Cow<'a, str>,
        parent_id: Option<Cow<'a, str>>,
        entry_type: Cow<'a, str>,
        /// Of a custom entry.
        custom_type: Option<Cow<'a, str>>,
        /// A reply of stop reason `pending`, which is never kept.
        is_pending: bool,
    },
    Usage {
        id: Cow<'a, str>,
        usage: Box<Usage>,
    },
    Set {
        namespace: Cow<'a, str>,
        key: Cow<'a, str>,
    },
    Delete {
        namespace: Cow<'a, str>,
        key: Cow<'a, str>,
    },
    Append {
        namespace: Cow<'a, str>,
        key: Cow<'a, str>,
    },
    DeleteList {
        namespace: Cow<'a, str>,
        key: Cow<'a, str>,
    },
}

/// A write as it is found in a session: its place and what it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Head<'a> {
    pub seq: u64,
    pub change: Change<'a>,
}

/// Why JSON is no write of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWrite {
    #[error("{0}")]
    Json(String),
    #[error("{0}")]
    Shape(String),
    /// A newer version wrote it.
    #[error("it holds a write of the unknown kind \"{0}\"")]
    Unknown(String),
}

type Raw<'a> = Option<&'a RawValue>;

/// What stands at the top level of a write. Entries of unknown types may use most names for anything.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    seq: u64,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    op: Loose<'a>,
    #[serde(borrow, default)]
    namespace: Loose<'a>,
    #[serde(borrow, default)]
    key: Loose<'a>,
    #[serde(default)]
    value: Seen,
    #[serde(borrow, default)]
    id: Loose<'a>,
    #[serde(borrow, default)]
    parent_id: Loose<'a>,
    #[serde(borrow, default, rename = "type")]
    entry_type: Loose<'a>,
    #[serde(borrow, default)]
    custom_type: Loose<'a>,
    #[serde(borrow, default)]
    message: MessageHead<'a>,
    #[serde(borrow, default)]
    row: Raw<'a>,
}

/// A text that borrows where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Whether a member is there; null is.
#[derive(Clone, Copy, Default)]
struct Seen(bool);

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(true))
    }
}

#[derive(Deserialize)]
struct RowHead<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    usage: Usage,
}

/// Reads what a write does, and not what it says.
///
/// # Errors
/// The JSON is no write, or one of a newer version.
pub fn head(write: &str) -> Result<Head<'_>, BadWrite> {
    head_of(serde_json::from_str(write).map_err(|error| bad(&error))?)
}

/// A write in an array of writes: where it starts, its text, and what it does.
pub(super) type Placed<'a> = (usize, &'a str, Result<Head<'a>, BadWrite>);

/// Reads what the writes of an array do, in one pass.
///
/// # Errors
/// It is no array of writes. Each write may be a bad one for itself.
pub(super) fn heads(array: &str) -> Result<Vec<Placed<'_>>, BadWrite> {
    let no_array = || BadWrite::Json("its writes are no array".to_owned());
    let mut rest = array.strip_prefix('[').ok_or_else(no_array)?;
    let mut found = Vec::new();
    if rest == "]" {
        return Ok(found);
    }
    loop {
        if !rest.starts_with('{') {
            return Err(BadWrite::Shape("a write is no object".to_owned()));
        }
        let (head, len) = if let Some((head, len)) = quick::head(rest) {
            (Ok(head), len)
        } else {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Members<'_>>();
            let members = values.next().ok_or_else(no_array)?.map_err(|error| bad(&error))?;
            (head_of(members), values.byte_offset())
        };
        let (write, behind) = rest.split_at_checked(len).ok_or_else(no_array)?;
        found.push((array.len() - rest.len(), write, head));
        if behind == "]" {
            return Ok(found);
        }
        rest = behind.strip_prefix(',').ok_or_else(no_array)?;
    }
}

fn head_of(members: Members<'_>) -> Result<Head<'_>, BadWrite> {
    match &*members.kind.0 {
        "entry" => entry_change(members),
        "usage" => {
            let row = members.row.ok_or_else(|| missing("row"))?;
            let row: RowHead<'_> = serde_json::from_str(row.get()).map_err(|error| bad(&error))?;
            Ok(Head { seq: members.seq, change: Change::Usage { id: row.id.0, usage: Box::new(row.usage) } })
        }
        kind @ ("value" | "list") => {
            let namespace = text(members.namespace, "namespace")?;
            let key = text(members.key, "key")?;
            let op = text(members.op, "op")?;
            let change = match (kind, &*op) {
                ("value", "set") => Change::Set { namespace, key },
                ("value", "delete") => Change::Delete { namespace, key },
                ("list", "append") => Change::Append { namespace, key },
                ("list", "delete") => Change::DeleteList { namespace, key },
                _ => return Err(BadWrite::Unknown(format!("{kind} {op}"))),
            };
            if matches!(change, Change::Set { .. } | Change::Append { .. }) && !members.value.0 {
                return Err(missing("value"));
            }
            Ok(Head { seq: members.seq, change })
        }
        kind => Err(BadWrite::Unknown(kind.to_owned())),
    }
}

fn entry_change(members: Members<'_>) -> Result<Head<'_>, BadWrite> {
    let entry_type = text(members.entry_type, "type")?;
    let mut is_pending = false;
    if entry_type == MESSAGE {
        let role = text(members.message.role, "message with a role")?;
        is_pending = role == "assistant" && members.message.stop_reason.text().as_deref() == Some("pending");
    }
    let custom_type = if entry_type == CUSTOM { Some(text(members.custom_type, "customType")?) } else { None };
    let parent_id = match members.parent_id {
        Loose::Absent | Loose::Null => None,
        parent => Some(text(parent, "parentId")?),
    };
    let change = Change::Entry { id: text(members.id, "id")?, parent_id, entry_type, custom_type, is_pending };
    Ok(Head { seq: members.seq, change })
}

fn bad(error: &serde_json::Error) -> BadWrite {
    if error.is_data() { BadWrite::Shape(error.to_string()) } else { BadWrite::Json(error.to_string()) }
}

fn missing(name: &str) -> BadWrite {
    BadWrite::Shape(format!("a write has no {name}"))
}

fn text<'a>(member: Loose<'a>, name: &str) -> Result<Cow<'a, str>, BadWrite> {
    member.text().ok_or_else(|| missing(name))
}

/// What a write that is still to be stored will do.
pub(super) fn change(write: &Write) -> Change<'_> {
    let borrow = |namespace| Cow::Borrowed(String::as_str(namespace));
    match write {
        Write::Entry { id, parent_id, body } => {
            let (entry_type, custom_type) = match body {
                EntryBody::Message { .. } => (MESSAGE, None),
                EntryBody::Custom { custom_type, .. } => (CUSTOM, Some(borrow(custom_type))),
                EntryBody::Other(map) => (map.get("type").and_then(Value::as_str).unwrap_or_default(), None),
            };
            let is_pending = matches!(body, EntryBody::Message { message, .. }
                if message.as_assistant().is_some_and(|reply| reply.stop_reason == StopReason::Pending));
            Change::Entry {
                id: id.as_str().into(),
                parent_id: parent_id.as_ref().map(|id| id.as_str().into()),
                entry_type: entry_type.into(),
                custom_type,
                is_pending,
            }
        }
        Write::Usage(row) => Change::Usage { id: row.id.as_str().into(), usage: Box::new(row.usage.clone()) },
        Write::Set { namespace, key, .. } => Change::Set { namespace: borrow(namespace), key: borrow(key) },
        Write::Delete { namespace, key } => Change::Delete { namespace: borrow(namespace), key: borrow(key) },
        Write::Append { namespace, key, .. } => Change::Append { namespace: borrow(namespace), key: borrow(key) },
        Write::DeleteList { namespace, key } => Change::DeleteList { namespace: borrow(namespace), key: borrow(key) },
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryOut<'a, B: Serialize> {
    seq: u64,
    kind: &'static str,
    id: &'a EntryId,
    parent_id: &'a Option<EntryId>,
    #[serde(flatten)]
    body: B,
}

#[derive(Serialize)]
struct MessageOut<'a> {
    #[serde(rename = "type")]
    entry_type: &'static str,
    message: &'a Message,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminate: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CustomOut<'a> {
    #[serde(rename = "type")]
    entry_type: &'static str,
    custom_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: &'a Option<Value>,
}

#[derive(Serialize)]
struct RowOut<'a> {
    seq: u64,
    kind: &'static str,
    row: &'a UsageRow,
}

#[derive(Serialize)]
struct CellOut<'a> {
    seq: u64,
    kind: &'static str,
    op: &'static str,
    namespace: &'a str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a Value>,
}

/// The text of a write.
///
/// # Errors
/// What it says can not be kept: the reason.
pub(super) fn encode(seq: u64, write: &Write) -> Result<String, String> {
    check(write)?;
    let json = match write {
        Write::Entry { id, parent_id, body } => match body {
            EntryBody::Message { message, terminate } => {
                let body = MessageOut { entry_type: MESSAGE, message, terminate: terminate.then_some(true) };
                to_json(&EntryOut { seq, kind: "entry", id, parent_id, body })
            }
            EntryBody::Custom { custom_type, data } => {
                let body = CustomOut { entry_type: CUSTOM, custom_type, data };
                to_json(&EntryOut { seq, kind: "entry", id, parent_id, body })
            }
            EntryBody::Other(body) => to_json(&EntryOut { seq, kind: "entry", id, parent_id, body }),
        },
        Write::Usage(row) => to_json(&RowOut { seq, kind: "usage", row }),
        Write::Set { namespace, key, value } => cell(seq, "value", "set", namespace, key, Some(value)),
        Write::Delete { namespace, key } => cell(seq, "value", "delete", namespace, key, None),
        Write::Append { namespace, key, value } => cell(seq, "list", "append", namespace, key, Some(value)),
        Write::DeleteList { namespace, key } => cell(seq, "list", "delete", namespace, key, None),
    }?;
    if depth(&json) > DEPTH_MAX {
        return Err(format!("a write is nested more than {DEPTH_MAX} levels deep"));
    }
    Ok(json)
}

fn cell(
    seq: u64,
    kind: &'static str,
    op: &'static str,
    namespace: &str,
    key: &str,
    value: Option<&Value>,
) -> Result<String, String> {
    to_json(&CellOut { seq, kind, op, namespace, key, value })
}

fn to_json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| format!("a write is no JSON: {error}"))
}

/// What JSON would not give back as it was.
fn check(write: &Write) -> Result<(), String> {
    match write {
        Write::Entry { id, body, .. } => {
            if id.as_str().is_empty() {
                return Err("an entry has no id".to_owned());
            }
            match body {
                EntryBody::Message { message, .. } => check_message(message),
                EntryBody::Custom { .. } => Ok(()),
                EntryBody::Other(map) => check_other(map),
            }
        }
        Write::Usage(row) => {
            if row.id.as_str().is_empty() {
                return Err("a usage row has no id".to_owned());
            }
            if row.cost.is_some_and(|cost| !cost.is_finite()) {
                return Err("a cost is no number".to_owned());
            }
            check_usage(Some(&row.usage))
        }
        Write::Set { .. } | Write::Delete { .. } | Write::Append { .. } | Write::DeleteList { .. } => Ok(()),
    }
}

fn check_message(message: &Message) -> Result<(), String> {
    match message {
        Message::Assistant(reply) => check_usage(Some(&reply.usage)),
        Message::ToolResult(result) => check_usage(result.usage.as_ref()),
        Message::Custom(custom) if matches!(custom.role(), "" | "user" | "assistant" | "toolResult") => {
            Err(format!("\"{}\" is no role of a custom message", custom.role()))
        }
        Message::User(_) | Message::Custom(_) => Ok(()),
    }
}

fn check_other(map: &Map<String, Value>) -> Result<(), String> {
    match map.get("type").and_then(Value::as_str) {
        None | Some("") => return Err("an entry has no type".to_owned()),
        Some(MESSAGE | CUSTOM) => return Err("an entry of a known type is given as one of an unknown type".to_owned()),
        Some(_) => {}
    }
    match COMMON_MEMBERS.iter().find(|name| map.contains_key(**name)) {
        Some(name) => Err(format!("an entry has a field {name} of its own")),
        None => Ok(()),
    }
}

fn check_usage(usage: Option<&Usage>) -> Result<(), String> {
    let Some(cost) = usage.map(|usage| &usage.cost) else { return Ok(()) };
    let all = [cost.input, cost.output, cost.cache_read, cost.cache_write, cost.total];
    if all.iter().all(|cost| cost.is_finite()) { Ok(()) } else { Err("a cost is no number".to_owned()) }
}

/// The most brackets that are open at once.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut rest = json.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'"' => rest = behind_text(rest),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// What follows the text that `json` is in; most of a long write is in one.
fn behind_text(json: &[u8]) -> &[u8] {
    let mut rest = json;
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(at) == Some(&b'"');
        // What stands behind a backslash ends nothing.
        rest = rest.get(at.saturating_add(if is_end { 1 } else { 2 })..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

/// Reads what is nested as deep as a write may be.
fn read<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    serde_json::from_str(json).or_else(|error| {
        if !(DEPTH_UNASKED..=DEPTH_MAX).contains(&depth(json)) {
            return Err(error.to_string());
        }
        let mut deserializer = serde_json::Deserializer::from_str(json);
        deserializer.disable_recursion_limit();
        let value = T::deserialize(&mut deserializer).map_err(|error| error.to_string())?;
        deserializer.end().map_err(|error| error.to_string())?;
        Ok(value)
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryIn<'a> {
    seq: u64,
    id: EntryId,
    #[serde(default)]
    parent_id: Option<EntryId>,
    #[serde(borrow, rename = "type")]
    entry_type: Text<'a>,
    #[serde(borrow, default)]
    message: Raw<'a>,
    #[serde(borrow, default)]
    terminate: Raw<'a>,
    #[serde(borrow, default)]
    custom_type: Raw<'a>,
    /// Not an option: null is a value.
    #[serde(borrow, default, deserialize_with = "present")]
    data: Raw<'a>,
}

/// Keeps a null that is there.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Raw<'a>, D::Error> {
    <&'a RawValue>::deserialize(deserializer).map(Some)
}

/// The usual entry, read in one pass.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageIn<'a> {
    seq: u64,
    id: EntryId,
    #[serde(default)]
    parent_id: Option<EntryId>,
    #[serde(borrow, rename = "type")]
    entry_type: Text<'a>,
    message: Arc<Message>,
    #[serde(borrow, default)]
    terminate: Raw<'a>,
}

/// Reads an entry.
///
/// # Errors
/// It does not say what an entry of its type says: the reason.
pub(super) fn entry(write: &str, timestamp: u64) -> Result<Entry, String> {
    if let Ok(found) = serde_json::from_str::<MessageIn<'_>>(write)
        && found.entry_type.0 == MESSAGE
    {
        let terminate = found.terminate.is_some_and(|word| word.get() == "true");
        let body = EntryBody::Message { message: found.message, terminate };
        return Ok(Entry { id: found.id, parent_id: found.parent_id, seq: found.seq, timestamp, body });
    }
    let found: EntryIn<'_> = serde_json::from_str(write).map_err(|error| error.to_string())?;
    let body = match &*found.entry_type.0 {
        MESSAGE => EntryBody::Message {
            message: read(found.message.map_or("null", RawValue::get))?,
            terminate: found.terminate.is_some_and(|word| word.get() == "true"),
        },
        CUSTOM => EntryBody::Custom {
            custom_type: read(found.custom_type.map_or("null", RawValue::get))?,
            data: found.data.map(|data| read(data.get())).transpose()?,
        },
        _ => {
            let mut map: Map<String, Value> = read(write)?;
            for name in COMMON_MEMBERS {
                map.shift_remove(*name);
            }
            EntryBody::Other(map)
        }
    };
    Ok(Entry { id: found.id, parent_id: found.parent_id, seq: found.seq, timestamp, body })
}

/// Reads a usage row.
///
/// # Errors
/// It is no usage row: the reason.
pub(super) fn usage_row(write: &str) -> Result<UsageRow, String> {
    #[derive(Deserialize)]
    struct RowIn {
        row: UsageRow,
    }
    read::<RowIn>(write).map(|found| found.row)
}

/// Reads the value of a register or of an element of a list.
///
/// # Errors
/// There is none: the reason.
pub fn value(write: &str) -> Result<Value, String> {
    #[derive(Deserialize)]
    struct CellIn {
        value: Value,
    }
    read::<CellIn>(write).map(|found| found.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_an_array_are_found_where_they_stand() {
        let writes = [
            r#"{"seq":1,"kind":"entry","id":"a","parentId":null,"type":"message","message":{"role":"user","content":"}],{\"\\"}}"#,
            r#"{"seq":2,"kind":"value","op":"set","namespace":"n","key":"k","value":[[],{}]}"#,
            r#"{"seq":3,"kind":"blob"}"#,
        ];
        let array = format!("[{}]", writes.join(","));
        let found = heads(&array).unwrap();
        assert_eq!(found.len(), writes.len());
        for ((offset, text, head), write) in found.iter().zip(writes) {
            assert_eq!((*text, array.get(*offset..offset + text.len())), (write, Some(write)));
            assert_eq!(*head, super::head(write));
        }
        assert_eq!(found[2].2, Err(BadWrite::Unknown("blob".into())));
        assert!(heads("[]").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_array_of_writes_is_told_from_what_has_another_shape() {
        let write = r#"{"seq":2,"kind":"value","op":"delete","namespace":"n","key":"k"}"#;
        for text in ["", "[", "[[]", "{}", "[{]", "[{\"seq\":1", "[{\"seq\":\"\u{1}\"}]"] {
            assert!(heads(text).is_err(), "{text}");
        }
        for text in [format!("[{write}"), format!("[{write}{write}]"), format!("[{write}]]"), format!("[{write}] ")] {
            assert!(matches!(heads(&text), Err(BadWrite::Json(_))), "{text}");
        }
        for text in ["[7]", "[null]", "[{}]", "[{\"seq\":1}]", &format!("[{write},]"), &format!("[ {write}]")] {
            assert!(matches!(heads(text), Err(BadWrite::Shape(_))), "{text}");
        }
    }

    #[test]
    fn members_that_only_some_writes_have_may_be_anything_in_others() {
        for value in
            ["null", "true", "-1", "1.5", "\"t\"", "[1,[{}]]", "{\"role\":{\"a\":[]},\"stopReason\":\"pending\"}"]
        {
            let members = ["op", "namespace", "key", "value", "customType", "message", "row", "usage", "data"]
                .map(|name| format!("\"{name}\":{value}"))
                .join(",");
            let write = format!(r#"{{"seq":1,"kind":"entry","id":"a","parentId":null,"type":"later",{members}}}"#);
            assert!(matches!(head(&write).unwrap().change, Change::Entry { is_pending: false, .. }), "{write}");
            let EntryBody::Other(map) = entry(&write, 5).unwrap().body else { panic!("{write}") };
            assert_eq!(map.keys().next().map(String::as_str), Some("type"));
            assert_eq!(map.len(), 10);
        }
    }

    #[test]
    fn nesting_is_counted_outside_of_texts() {
        for (json, expected) in [("1", 0), ("[]", 1), (r#"{"a":[{"b":"[[[{{{\"[["}]}"#, 3), (r#"["\\",[]]"#, 2)] {
            assert_eq!(depth(json), expected, "{json}");
        }
    }
}
