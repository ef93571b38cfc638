//! One session, as text for people or as one JSON document, written entry by entry.

use std::collections::HashSet;
use std::io::{self, Write};

use serde_json::{Map, Value};

use super::Row;
use crate::app::kept::{latest, storage_error};
use crate::model::{Entry, EntryBody, EntryId, ErrorKind, ErrorRecord, MAIN_LANE, session::namespace};
use crate::port::{BranchScan, EntryScan, Order, Store, StoreError};
use crate::print::{Mask, Transcript, TranscriptHead, mask_json};
use crate::session::jsonl;
use crate::session::place::{Details, Found, Library, RefError, Target};

/// Entries that are held at once.
const PAGE_ENTRIES: usize = 64;

/// How a session is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShowFormat {
    #[default]
    Text,
    Json,
}

/// Options of `pirn sessions show`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionsShowOptions {
    /// `None` = the latest session of this directory.
    pub reference: Option<String>,
    pub format: ShowFormat,
}

/// Why a session was not shown, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// What was before it is shown: an error of the call, or of kind `storage`.
    #[error(transparent)]
    Record(#[from] ErrorRecord),
    /// Stdout takes no more.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl From<StoreError> for ShowError {
    fn from(error: StoreError) -> Self {
        Self::Record(storage_error(&error))
    }
}

/// Shows a session and gives the warnings for stderr. The file is read once for its index and then entry by entry.
///
/// # Errors
/// The reference names no session, the file is damaged (what is before that is shown), or `out` takes no more.
pub fn show(
    library: &Library,
    options: &SessionsShowOptions,
    mask: Mask<'_>,
    out: &mut dyn Write,
) -> Result<Vec<String>, ShowError> {
    let found = find(library, options.reference.as_deref())?;
    let reader = jsonl::read(&found.file)?;
    let mut warnings: Vec<String> = found.warnings.iter().chain(reader.warnings()).cloned().collect();
    if let Some(reason) = reader.header().needs_newer() {
        let file = found.file.display();
        warnings
            .push(format!("{file} was written by a newer version and is shown as far as it is understood: {reason}"));
    }
    let shown = Shown::new(&reader, found)?;
    match options.format {
        ShowFormat::Text => shown.text(mask, out)?,
        ShowFormat::Json => shown.json(mask, out)?,
    }
    out.flush()?;
    match reader.damage() {
        Some(damage) => Err(storage_error(damage).into()),
        None => Ok(warnings),
    }
}

fn find(library: &Library, reference: Option<&str>) -> Result<Found, ErrorRecord> {
    match reference {
        Some(reference) => named(library, reference),
        None => latest(library)?.ok_or_else(|| {
            ErrorRecord::new(ErrorKind::Usage, "there is no session of this directory")
                .with_hint("pirn sessions list --all shows those of every directory")
        }),
    }
}

/// The session that a reference names, for a command that makes none.
pub(in crate::app) fn named(library: &Library, reference: &str) -> Result<Found, ErrorRecord> {
    match library.resolve(reference, false).map_err(without_offer)? {
        Target::Existing(found) => Ok(found),
        Target::NewName(name) => Err(ErrorRecord::new(ErrorKind::Usage, format!("no session has the name {name:?}"))),
    }
}

/// What looks for a name makes no session of it, and so offers none.
fn without_offer(error: RefError) -> ErrorRecord {
    let is_name = matches!(error, RefError::NoName { .. });
    let record = ErrorRecord::from(error);
    if is_name {
        record.with_hint("pirn sessions list shows what there is; names count in their directory")
    } else {
        record
    }
}

/// A session that is being shown.
struct Shown<'a> {
    store: &'a dyn Store,
    found: Found,
    details: Details,
    tip: Option<EntryId>,
}

impl<'a> Shown<'a> {
    fn new(store: &'a dyn Store, found: Found) -> Result<Self, StoreError> {
        let text = |namespace, key| Ok(store.value(namespace, key)?.and_then(|value| Some(value.as_str()?.to_owned())));
        let mut details = found.details();
        details.name = text(namespace::SESSION_NAME, "")?;
        details.messages = Some(store.stats().message_count);
        let tip = text(namespace::BRANCH_TIP, MAIN_LANE)?.map(EntryId::new);
        // A tip that names nothing shows nothing; what is wrong with it is told when the session is continued.
        let tip = match tip {
            Some(id) => store.entries(std::slice::from_ref(&id))?.pop().flatten().map(|entry| entry.id),
            None => None,
        };
        Ok(Self { store, found, details, tip })
    }

    /// Gives the entries of the conversation, oldest first.
    fn path(&self, mut each: impl FnMut(&Entry) -> Result<(), ShowError>) -> Result<(), ShowError> {
        let mut scan = BranchScan {
            start: self.tip.clone(),
            order: Order::OldestFirst,
            limit: Some(PAGE_ENTRIES),
            ..BranchScan::default()
        };
        loop {
            let page = self.store.branch(&scan)?;
            page.iter().try_for_each(&mut each)?;
            let Some(last) = page.last().filter(|_| page.len() == PAGE_ENTRIES) else { return Ok(()) };
            scan.cursor = Some(last.id.clone());
        }
    }

    /// Gives all entries, oldest first.
    fn all(&self, mut each: impl FnMut(Entry) -> Result<(), ShowError>) -> Result<(), ShowError> {
        let mut scan = EntryScan { order: Order::OldestFirst, limit: Some(PAGE_ENTRIES), ..EntryScan::default() };
        loop {
            let page = self.store.scan_entries(&scan)?;
            let last = page.last().filter(|_| page.len() == PAGE_ENTRIES).map(|entry| entry.seq);
            page.into_iter().try_for_each(&mut each)?;
            let Some(last) = last else { return Ok(()) };
            scan.from_seq = Some(last.saturating_add(1));
        }
    }

    fn text(&self, mask: Mask<'_>, out: &mut dyn Write) -> Result<(), ShowError> {
        let mut transcript = Transcript::new(mask);
        let mut piece = String::new();
        let head = TranscriptHead {
            id: self.found.id.clone(),
            name: self.details.name.clone(),
            cwd: self.found.cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned()).unwrap_or_default(),
            updated_at: self.found.updated_at,
            model: self.details.model.clone(),
        };
        transcript.head(&head, &mut piece);
        out.write_all(piece.as_bytes())?;
        self.path(|entry| {
            piece.clear();
            transcript.entry(entry, &mut piece);
            Ok(out.write_all(piece.as_bytes())?)
        })?;
        piece.clear();
        transcript.usage(&self.store.stats().usage, &mut piece);
        Ok(out.write_all(piece.as_bytes())?)
    }

    fn json(self, mask: Mask<'_>, out: &mut dyn Write) -> Result<(), ShowError> {
        let mut on_path = HashSet::new();
        self.path(|entry| {
            on_path.insert(entry.seq);
            Ok(())
        })?;
        let mut session = to_object(&Row::new(&self.found, self.details.clone()))?;
        session.insert("tipId".to_owned(), self.tip.as_ref().map_or(Value::Null, |id| id.as_str().into()));
        write!(out, "{{\"session\":{},\"entries\":[", mask_json(&Value::Object(session), mask))?;
        let mut separator = "\n";
        self.all(|entry| {
            let is_on_path = on_path.contains(&entry.seq);
            let entry = mask_json(&entry_json(entry, is_on_path)?, mask);
            write!(out, "{separator}{entry}")?;
            separator = ",\n";
            Ok(())
        })?;
        let usage = to_object(&self.store.stats().usage)?;
        writeln!(out, "\n],\"usage\":{}}}", Value::Object(usage))?;
        Ok(())
    }
}

fn to_object(value: &impl serde::Serialize) -> Result<Map<String, Value>, ErrorRecord> {
    let internal = |text: String| ErrorRecord::new(ErrorKind::Internal, text);
    match serde_json::to_value(value).map_err(|error| internal(error.to_string()))? {
        Value::Object(fields) => Ok(fields),
        other => Err(internal(format!("not an object: {other}"))),
    }
}

/// An entry in the transcript form.
fn entry_json(entry: Entry, is_on_path: bool) -> Result<Value, ErrorRecord> {
    let mut fields = Map::new();
    fields.insert("id".to_owned(), entry.id.as_str().into());
    fields.insert("parentId".to_owned(), entry.parent_id.map_or(Value::Null, |id| id.as_str().into()));
    let mut body = Map::new();
    match entry.body {
        EntryBody::Message { message, terminate } => {
            body.insert("type".to_owned(), "message".into());
            body.insert("message".to_owned(), Value::Object(to_object(&*message)?));
            if terminate {
                body.insert("terminate".to_owned(), true.into());
            }
        }
        EntryBody::Custom { custom_type, data } => {
            body.insert("type".to_owned(), "custom".into());
            body.insert("customType".to_owned(), custom_type.into());
            body.extend(data.map(|data| ("data".to_owned(), data)));
        }
        EntryBody::Other(other) => body = other,
    }
    fields.extend(body.shift_remove("type").map(|word| ("type".to_owned(), word)));
    fields.insert("timestamp".to_owned(), entry.timestamp.into());
    fields.extend(body);
    fields.insert("onPath".to_owned(), is_on_path.into());
    Ok(Value::Object(fields))
}
