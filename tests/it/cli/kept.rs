//! What a session file holds, read by a program that knows nothing but the published format, and files changed by hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::Place;
use crate::session_store::schema;

/// `,"c":"`, eight digits, `"}`.
const CHECKSUM_BYTES: usize = 16;

/// The one session there is.
pub(crate) fn only(place: &Place) -> PathBuf {
    let mut found = place.sessions();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Every line of a file, the header first. Panics at the first one that breaks a rule of the format.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "the last line is whole: {:?}", text.lines().next_back());
    let (mut seq, mut at, mut ids) = (0, 0, Vec::new());
    let mut found = Vec::new();
    for (number, line) in text.split_terminator('\n').enumerate() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        schema::fits(&value).unwrap();
        if number > 0 {
            assert_eq!(&line[line.len() - CHECKSUM_BYTES..], ending(&line[..line.len() - CHECKSUM_BYTES]), "{line}");
            assert!(value["at"].as_u64().unwrap() >= at, "time never goes back: {line}");
            at = value["at"].as_u64().unwrap();
        }
        for write in value["w"].as_array().into_iter().flatten() {
            assert!(write["seq"].as_u64().unwrap() > seq, "numbers grow: {line}");
            seq = write["seq"].as_u64().unwrap();
            if write["kind"] == "entry" {
                let parent = write["parentId"].as_str().map(str::to_owned);
                assert!(parent.is_none_or(|parent| ids.contains(&parent)), "its parent is there: {line}");
                ids.push(write["id"].as_str().unwrap().to_owned());
            }
        }
        found.push(value);
    }
    found
}

/// How a line ends whose bytes before that are these.
fn ending(body: &str) -> String {
    format!(",\"c\":\"{:08x}\"}}", crc32fast::hash(body.as_bytes()))
}

fn writes(path: &Path) -> Vec<Value> {
    lines(path)
        .into_iter()
        .flat_map(|mut line| line["w"].as_array_mut().map(std::mem::take).unwrap_or_default())
        .collect()
}

/// The entries, in the order in which they were written.
pub(crate) fn entries(path: &Path) -> Vec<Value> {
    writes(path).into_iter().filter(|write| write["kind"] == "entry").collect()
}

/// The messages of the entries.
pub(crate) fn messages(path: &Path) -> Vec<Value> {
    entries(path).into_iter().map(|entry| entry["message"].clone()).collect()
}

/// The registers of a namespace as they are now: keys and values.
pub(crate) fn registers(path: &Path, namespace: &str) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for write in writes(path).into_iter().filter(|write| write["kind"] == "value" && write["namespace"] == namespace) {
        let key = write["key"].as_str().unwrap().to_owned();
        found.retain(|(known, _)| *known != key);
        if write["op"] == "set" {
            found.push((key, write["value"].clone()));
        }
    }
    found
}

/// Changes the lines of a file, each with the checksum it needs.
pub(crate) fn rewrite(path: &Path, mut change: impl FnMut(&mut Value)) {
    let mut text = String::new();
    for mut line in lines(path) {
        change(&mut line);
        let has_checksum = line.as_object_mut().unwrap().shift_remove("c").is_some();
        let mut line = line.to_string();
        if has_checksum {
            line.pop();
            let ending = ending(&line);
            line.push_str(&ending);
        }
        text.extend([&line, "\n"]);
    }
    std::fs::write(path, text).unwrap();
}

/// The conversation in a request, without the system prompt: `role: text`, calls as `role! name`.
pub(crate) fn talk(body: &Value) -> Vec<String> {
    let mut said = Vec::new();
    for message in body["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system") {
        let role = message["role"].as_str().unwrap();
        let text = match &message["content"] {
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            content => content.as_str().unwrap_or_default().to_owned(),
        };
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls: Vec<&str> = calls.map(|call| call["function"]["name"].as_str().unwrap()).collect();
        match calls.as_slice() {
            [] => said.push(format!("{role}: {text}")),
            calls => said.push(format!("{role}! {}", calls.join(" "))),
        }
    }
    said
}

/// Everything below the directories of a place, with its bytes: what a call that is refused leaves as it is.
pub(crate) fn everything(place: &Arc<Place>) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![place.dir().to_owned(), place.home().to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                // The lock names who holds it, and that is all. A named pipe is not to be read.
                let is_lock = path.extension().is_some_and(|extension| extension == "lock");
                let bytes = if is_lock || !path.is_file() { Vec::new() } else { std::fs::read(&path).unwrap() };
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}
