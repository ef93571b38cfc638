//! The listing of sessions.

use super::Row;
use super::width::width;
use crate::model::{ErrorKind, ErrorRecord, short_id};
use crate::print::{Mask, line, mask_json, minute};
use crate::session::place::{Details, Found, Library, Scope};

/// Rows unless said.
const ROWS: usize = 20;
/// Characters of a first prompt; the same on every terminal, so that scripts see the same.
const PROMPT_CHARS_MAX: usize = 60;
/// Characters of a model, a working directory.
const WORD_CHARS_MAX: usize = 60;
/// What stands for a value that is not there.
const NONE: &str = "-";
/// What stands for a value that is not known.
const UNKNOWN: &str = "?";
/// Behind the id of a session that a process has open.
const OPEN_MARK: char = '*';
/// Behind the id of a damaged one.
const DAMAGE_MARK: char = '!';

/// Options of `pirn sessions list`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionsListOptions {
    /// Only sessions whose name, id, first prompt or text has it. Case does not count.
    pub query: Option<String>,
    /// Those of every directory.
    pub all: bool,
    /// At most so many; 0 = no limit, `None` = 20.
    pub limit: Option<usize>,
    pub json: bool,
}

/// What a listing prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Whole lines for stdout.
    pub text: String,
    /// Warnings for stderr.
    pub warnings: Vec<String>,
    /// A notice for stderr, where there is nothing to list. That is no error.
    pub notice: Option<String>,
}

/// Lists sessions, newest first.
///
/// # Errors
/// The directory of the sessions can not be read, or is not safe.
pub fn list(library: &Library, options: &SessionsListOptions, mask: Mask<'_>) -> Result<Listed, ErrorRecord> {
    let scope = if options.all { Scope::All } else { Scope::Here };
    let listing = library.list(scope)?;
    let mut listed = Listed { warnings: listing.warnings, ..Listed::default() };
    let limit = match options.limit {
        None => ROWS,
        Some(0) => usize::MAX,
        Some(limit) => limit,
    };
    let query = options.query.as_deref().map(str::to_lowercase).filter(|query| !query.is_empty());
    let mut rows = Vec::new();
    for found in listing.sessions {
        if rows.len() >= limit {
            break;
        }
        let details = found.details();
        if query.as_deref().is_none_or(|query| matches(&found, &details, query)) {
            if let Some(damage) = &details.damage {
                listed.warnings.push(format!("{}: {damage}", found.file.display()));
            }
            rows.push((found, details));
        }
    }
    if rows.is_empty() {
        listed.notice = Some(nothing(options));
    }
    listed.text = if options.json { json(rows, mask)? } else { table(&rows, options.all, mask) };
    Ok(listed)
}

fn nothing(options: &SessionsListOptions) -> String {
    let place = if options.all { "" } else { " of this directory (--all lists every directory)" };
    match &options.query {
        Some(query) => format!("no session{place} matches {query:?}"),
        None => format!("no session{place}"),
    }
}

/// Whether a query, given in lower case, is in the name, the id, the first prompt or the text. The text is read last,
/// because that takes the whole file.
fn matches(found: &Found, details: &Details, query: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(query);
    let plain = |text: &str| text.replace('-', "");
    details.name.as_deref().is_some_and(has)
        || has(&found.id)
        || plain(&found.id).contains(&plain(query)) && !plain(query).is_empty()
        || details.first_prompt.as_deref().is_some_and(has)
        || found.says(query).unwrap_or(false)
}

fn json(rows: Vec<(Found, Details)>, mask: Mask<'_>) -> Result<String, ErrorRecord> {
    let mut text = String::new();
    for (found, details) in rows {
        let row = serde_json::to_value(Row::new(&found, details));
        let row = row.map_err(|error| ErrorRecord::new(ErrorKind::Internal, error.to_string()))?;
        text.push_str(&mask_json(&row, mask).to_string());
        text.push('\n');
    }
    Ok(text)
}

/// One line each: short id and mark, the last commit (UTC), name, messages, model, with `all` the directory, and the
/// first prompt. Columns are as wide as their widest cell.
fn table(rows: &[(Found, Details)], all: bool, mask: Mask<'_>) -> String {
    let lines: Vec<Vec<String>> = rows.iter().map(|(found, details)| cells(found, details, all, mask)).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = lines.iter().filter_map(|cells| cells.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut text = String::new();
    for cells in &lines {
        let blanks = |cell: &str, widest: usize| " ".repeat(widest.saturating_sub(width(cell)));
        let padded = cells.iter().zip(&widths).map(|(cell, widest)| format!("{cell}{}", blanks(cell, *widest)));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cells(found: &Found, details: &Details, all: bool, mask: Mask<'_>) -> Vec<String> {
    let masked = |text: &str, chars: usize| line(&mask(&crate::print::clean(text)), chars);
    let word = |text: Option<&str>| text.map_or_else(|| NONE.to_owned(), |text| masked(text, WORD_CHARS_MAX));
    let mut id = if found.id.is_empty() { UNKNOWN.to_owned() } else { masked(short_id(&found.id), WORD_CHARS_MAX) };
    if details.open == Some(true) {
        id.push(OPEN_MARK);
    }
    if details.damage.is_some() {
        id.push(DAMAGE_MARK);
    }
    let when = if found.updated_at == 0 { UNKNOWN.to_owned() } else { minute(found.updated_at) };
    let messages = details.messages.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string());
    let mut cells = vec![id, when, word(details.name.as_deref()), messages, word(details.model.as_deref())];
    if all {
        cells.push(word(found.cwd.as_ref().map(|cwd| cwd.to_string_lossy()).as_deref()));
    }
    let prompt = details.first_prompt.as_deref().unwrap_or_default();
    cells.push(masked(prompt, PROMPT_CHARS_MAX));
    cells
}
