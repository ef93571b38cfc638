//! `pirn sessions list` and `pirn sessions show`.
//!
//! Keeps true: both only read; they take no lock and work while a run writes; secrets are masked in whatever they
//! print; what is damaged is told and hides nothing else.
//!
//! Must not know: how arguments are parsed, how stdout is written.
//!
//! # The text of a listing
//!
//! One line each, the latest first, in columns: the short id, with `*` behind it while a process has the session open
//! and `!` where it is damaged; the minute of the last commit (UTC); the name; the number of messages; the model; with
//! `--all` the working directory; the beginning of the first prompt. `-` stands for what is not there, `?` for what is
//! not known. For programs there is the JSON.
//!
//! # The JSON of a listing
//!
//! One object a line: {`id`, `name`, `cwd`, `createdAt`, `updatedAt`, `messages`, `model`, `open`, `file`, `damaged`?}.
//! Times are milliseconds since 1970; `updatedAt` is the last commit. What is not known is null: `messages` of a file
//! over 4 MiB, `open` where locks can not be asked, everything but `file` where the header can not be read. `damaged`
//! says what is wrong and is left out where nothing is. A path that is no UTF-8 has replacement characters.
//!
//! # The JSON of a session
//!
//! One document: {`session`, `entries`, `usage`}. `session` has the fields above and `tipId`, the newest entry of the
//! main lane; its `messages` are always counted. `entries` are those of all branches in the order in which they were
//! written, each {`id`, `parentId`, `type`, `timestamp`, … what the type has, `onPath`}; messages are in the transcript
//! form. `onPath` tells the entries between `tipId` and the root, which are the conversation. `usage` is the sum of the
//! ledger in the transcript form.
//!
//! # The text of a session
//!
//! A line that says which session it is, the messages from the root to the tip of the main lane, and a line of usage.
//! A heading names the role, the minute (UTC), the short id of the entry and, of a reply or result, what went wrong.

mod list;
mod show;
mod width;

use serde::Serialize;

use crate::session::place::{Details, Found};

pub use self::list::{Listed, SessionsListOptions, list};
pub(super) use self::show::named;
pub use self::show::{SessionsShowOptions, ShowError, ShowFormat, show};

/// A session as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: Option<String>,
    name: Option<String>,
    cwd: Option<String>,
    created_at: Option<u64>,
    updated_at: Option<u64>,
    messages: Option<u64>,
    model: Option<String>,
    open: Option<bool>,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
}

impl Row {
    fn new(found: &Found, details: Details) -> Self {
        let known = |moment: u64| (moment > 0).then_some(moment);
        Self {
            id: Some(found.id.clone()).filter(|id| !id.is_empty()),
            name: details.name,
            cwd: found.cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned()),
            created_at: known(found.created_at),
            updated_at: known(found.updated_at),
            messages: details.messages,
            model: details.model,
            open: details.open,
            file: found.file.to_string_lossy().into_owned(),
            damaged: details.damage,
        }
    }
}
