//! Errors of providers: from a response, a stream's error object or a broken connection to one record.
//!
//! Keeps true: the kind is decided in one order (ERR-2 to ERR-9) and never by the caller; a message has the form
//! `<provider> <status>: <text> (request id …)`, is masked and bounded; a longer wait than allowed is no retry.
//!
//! Must not know: sockets, loops, who retries.

mod body;
mod classify;
mod overflow;
mod retry_after;

use std::time::Duration;

use serde_json::Value;

use self::body::Facts;
use self::classify::{Seen, Verdict, classify, effective_status, searched_text};
use self::retry_after::{header, requested_delay_ms};
use crate::model::{ErrorKind, ErrorRecord, Secret};
use crate::provider::redact;
use crate::provider::url;

/// Bytes of an error body worth reading; the rest is not looked at.
pub const BODY_BYTES_MAX: usize = 256 * 1024;

/// Characters of a code, a type or a request id.
const WORD_CHARS_MAX: usize = 200;

/// The default of `retry.max_delay`.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// Headers that hold a request id, the best first (HTTP-13).
const REQUEST_ID_HEADERS: [&str; 7] = [
    "request-id",
    "x-request-id",
    "x-generation-id",
    "cf-ray",
    "x-amzn-requestid",
    "apim-request-id",
    "mistral-correlation-id",
];

/// The proxy a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// Host and port.
    pub address: String,
    /// What it was configured by: `HTTP_PROXY`.
    pub setting: String,
    /// It reads the request and may answer itself; otherwise it only passes bytes on.
    pub relays: bool,
}

/// What is known of a request besides its answer. Made once per request.
#[derive(Clone, Debug)]
pub struct ErrorContext {
    /// Provider id; the first word of messages.
    pub provider: String,
    /// The id of the response's headers, where there is one.
    pub request_id: Option<String>,
    /// Where the request went; shown without user and query.
    pub url: Option<String>,
    /// The proxy in between.
    pub via: Option<Via>,
    /// The address a redirect led away from, to a server that does not get the key.
    pub key_stayed_at: Option<String>,
    /// What the key comes from, as a hint names it: `OPENAI_API_KEY`, `providers.local.api_key`.
    pub key_sources: Vec<String>,
    /// Values that no text may show.
    pub secrets: Vec<Secret>,
    /// Unix milliseconds, for delays given as a date.
    pub now_ms: u64,
    /// `retry.max_delay`: a longer wait is not worth it (RETRY-4). `None` = no bound.
    pub retry_delay_max: Option<Duration>,
}

impl Default for ErrorContext {
    fn default() -> Self {
        Self {
            provider: String::new(),
            request_id: None,
            url: None,
            via: None,
            key_stayed_at: None,
            key_sources: Vec::new(),
            secrets: Vec::new(),
            now_ms: 0,
            retry_delay_max: Some(RETRY_DELAY_MAX),
        }
    }
}

impl ErrorContext {
    /// A word of the server made safe to show and to store.
    fn word(&self, word: &str) -> String {
        redact::cut(&redact::clean(word, &self.secrets), WORD_CHARS_MAX)
    }
}

/// The request id among a response's headers (HTTP-13).
pub fn request_id(headers: &[(String, String)]) -> Option<String> {
    REQUEST_ID_HEADERS.iter().find_map(|name| header(headers, name)).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Makes the record of a response that is no reply: a status of 300 and more, or a 2xx whose body is an error or no
/// API's at all. `body` is as much of it as was read, decompressed.
pub fn http_error(status: u16, headers: &[(String, String)], body: &[u8], context: &ErrorContext) -> ErrorRecord {
    let body = Body::read(body);
    let facts = body.facts();
    let text = response_text(status, headers, &body, facts);
    let searched = searched_text(facts, body.message().unwrap_or_default());
    let seen = Seen {
        provider: &context.provider,
        status: Some(status),
        facts,
        body_is_empty: matches!(body, Body::Empty),
        text: &searched,
    };
    let shown_status = effective_status(&seen).unwrap_or(status);
    if let (407, Some(via)) = (status, &context.via) {
        return proxy_credentials(via, &text, context);
    }
    let mut verdict = classify(&seen);
    if status < 300 && facts.is_empty() {
        let kind = if matches!(body, Body::Html(_)) { ErrorKind::Config } else { ErrorKind::Protocol };
        verdict = Verdict { kind, retryable: false, ..verdict };
    }
    let advice = header(headers, "x-should-retry").and_then(|value| value.parse::<bool>().ok());
    if !verdict.settled {
        verdict.retryable = advice.unwrap_or(verdict.retryable);
    }
    let delay_ms = requested_delay_ms(headers, facts, &searched, context.now_ms);
    let id = context.request_id.clone().or_else(|| request_id(headers));
    let is_structured = matches!(body, Body::Json(..));
    let draft = Draft { status: Some(shown_status), verdict, text, delay_ms, id };
    let record = draft.record(facts, context);
    let again = retry_hint(&record).filter(|_| advice != Some(false));
    match hint(&record, is_structured, again, context) {
        Some(hint) => record.with_hint(hint),
        None => record,
    }
}

/// Makes the record of an error object found inside a stream or a 2xx body. `body` is the whole event.
pub fn stream_error(body: &Value, context: &ErrorContext) -> ErrorRecord {
    let facts = Facts::read(body);
    // An error without words is shown as it came.
    let text = facts.message.clone().unwrap_or_else(|| body.to_string());
    let searched = searched_text(&facts, &text);
    let seen = Seen { provider: &context.provider, status: None, facts: &facts, body_is_empty: false, text: &searched };
    let delay_ms = requested_delay_ms(&[], &facts, &searched, context.now_ms);
    let id = context.request_id.clone();
    let draft = Draft { status: effective_status(&seen), verdict: classify(&seen), text, delay_ms, id };
    let record = draft.record(&facts, context);
    match hint(&record, true, retry_hint(&record), context) {
        Some(hint) => record.with_hint(hint),
        None => record,
    }
}

/// The record of a connection that failed or broke; worth another attempt.
pub fn network(context: &ErrorContext, text: &str) -> ErrorRecord {
    transport(ErrorKind::Network, context, text).retryable()
}

/// The record of a wait that took too long; worth another attempt.
pub fn timeout(context: &ErrorContext, text: &str) -> ErrorRecord {
    transport(ErrorKind::Timeout, context, text).retryable()
}

/// The record of a proxy that wants other credentials than it got; the provider was not asked.
pub(in crate::provider) fn proxy_credentials(via: &Via, text: &str, context: &ErrorContext) -> ErrorRecord {
    let text = format!("the proxy {} refused the request: {text}", via.address);
    let hint = format!("check the user and password of the proxy in {}", via.setting);
    transport(ErrorKind::Network, context, &text).with_hint(hint)
}

/// The record of a server whose certificate is not accepted (ERR-3).
pub fn certificate(context: &ErrorContext, text: &str) -> ErrorRecord {
    let hint = "for a private authority set SSL_CERT_FILE, or providers.NAME.ca_file, to its certificate";
    transport(ErrorKind::Network, context, text).with_hint(hint)
}

/// The record of a request that cannot be made as configured.
pub fn config(context: &ErrorContext, text: &str) -> ErrorRecord {
    transport(ErrorKind::Config, context, text)
}

fn transport(kind: ErrorKind, context: &ErrorContext, text: &str) -> ErrorRecord {
    let verdict = Verdict { kind, retryable: false, sizes: overflow::Sizes::default(), settled: true };
    let id = context.request_id.clone();
    let draft = Draft { status: None, verdict, text: text.to_owned(), delay_ms: None, id };
    let record = draft.record(&Facts::default(), context);
    match context.url.as_deref().filter(|_| kind == ErrorKind::Network) {
        Some(url) => {
            let through = context.via.as_ref().map_or_else(String::new, |via| {
                format!(" through the proxy {}, which {} sets", via.address, via.setting)
            });
            record.with_hint(format!("the request went to {}{through}", url::shown(url)))
        }
        None => record,
    }
}

/// What a body turned out to be.
enum Body {
    Empty,
    /// With the text as it came.
    Json(Box<Facts>, String),
    /// Its title, or its text without tags.
    Html(String),
    Text(String),
}

static NO_FACTS: Facts = Facts {
    message: None,
    code: None,
    type_: None,
    words: Vec::new(),
    status: None,
    request_id: None,
    prompt_tokens: None,
    limit: None,
    quota_ids: Vec::new(),
    retry_delay: None,
};

impl Body {
    fn read(bytes: &[u8]) -> Self {
        let bytes = bytes.get(..BODY_BYTES_MAX).unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_start_matches('\u{FEFF}').trim();
        if text.is_empty() {
            return Self::Empty;
        }
        if let Some(value) = json_in(text) {
            return Self::Json(Box::new(Facts::read(&value)), text.to_owned());
        }
        if is_html(text) { Self::Html(html_text(text)) } else { Self::Text(text.to_owned()) }
    }

    fn facts(&self) -> &Facts {
        match self {
            Self::Json(facts, _) => facts,
            Self::Empty | Self::Html(_) | Self::Text(_) => &NO_FACTS,
        }
    }

    /// The best message in it.
    fn message(&self) -> Option<&str> {
        match self {
            Self::Empty => None,
            Self::Json(facts, raw) => Some(facts.message.as_deref().unwrap_or(raw)),
            Self::Html(text) | Self::Text(text) => Some(text),
        }
    }
}

/// The JSON of a body, which may be framed as an event stream (SSE-15).
fn json_in(text: &str) -> Option<Value> {
    let structured = |value: &Value| value.is_object() || value.is_array();
    if text.starts_with(['{', '[']) {
        return serde_json::from_str(text).ok().filter(structured);
    }
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    events.filter_map(|data| serde_json::from_str(data.trim()).ok()).find(structured)
}

fn is_html(text: &str) -> bool {
    let head: String = text.chars().take(64).collect::<String>().to_ascii_lowercase();
    ["<!doctype", "<html", "<head", "<body", "<title", "<h1", "<center"].iter().any(|tag| head.starts_with(tag))
}

/// The title of a page; without one, all its text on one line.
fn html_text(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let inside = |open: &str, close: &str| {
        let start = lower.find(open)? + open.len();
        let start = start + lower.get(start..)?.find('>')? + 1;
        let end = start + lower.get(start..)?.find(close)?;
        let text = without_tags(page.get(start..end)?);
        (!text.is_empty()).then_some(text)
    };
    inside("<title", "</title").or_else(|| inside("<h1", "</h1")).unwrap_or_else(|| without_tags(page))
}

fn without_tags(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    for (entity, plain) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
    {
        text = text.replace(entity, plain);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a response says, in words for people.
fn response_text(status: u16, headers: &[(String, String)], body: &Body, facts: &Facts) -> String {
    let message = body.message();
    if (300..400).contains(&status) {
        let target = header(headers, "location").map_or("another address", |target| target);
        return format!("redirected to {}, which is not followed", url::shown(target));
    }
    if status < 300 && facts.is_empty() {
        return match body {
            Body::Html(title) => format!("not an API endpoint: it answers with a web page ({title})"),
            _ => format!("not a reply: {}", message.unwrap_or("(no body)")),
        };
    }
    match (body, message) {
        (Body::Html(title), _) if status == 403 => format!("blocked by proxy or region: {title}"),
        (_, Some(message)) if !message.is_empty() => message.to_owned(),
        _ => {
            let phrase = reqwest::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
            phrase.map_or_else(|| "(no body)".to_owned(), |phrase| format!("{phrase} (no body)"))
        }
    }
}

/// An error before it is worded.
struct Draft {
    status: Option<u16>,
    verdict: Verdict,
    text: String,
    delay_ms: Option<u64>,
    id: Option<String>,
}

impl Draft {
    fn record(mut self, facts: &Facts, context: &ErrorContext) -> ErrorRecord {
        let mut text = redact::clean(&self.text, &context.secrets);
        if let (true, Some(delay_ms), Some(most)) = (self.verdict.retryable, self.delay_ms, context.retry_delay_max)
            && u128::from(delay_ms) > most.as_millis()
        {
            self.verdict.kind = ErrorKind::RateLimit;
            self.verdict.retryable = false;
            let most_ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
            text = format!(
                "{text} [the server asks to wait {}, longer than the {} that are waited for at most]",
                seconds(delay_ms),
                seconds(most_ms)
            );
        }
        let id = self.id.or_else(|| facts.request_id.clone()).map(|id| context.word(&id));
        let mut message = context.provider.clone();
        if let Some(status) = self.status {
            message.push_str(if message.is_empty() { "" } else { " " });
            message.push_str(&status.to_string());
        }
        message.push_str(if message.is_empty() { "" } else { ": " });
        message.push_str(&text);
        if let Some(id) = &id {
            message.push_str(" (request id ");
            message.push_str(id);
            message.push(')');
        }
        let mut record = ErrorRecord::new(self.verdict.kind, message);
        record.retryable = self.verdict.retryable;
        record.provider = Some(context.provider.clone()).filter(|provider| !provider.is_empty());
        record.http_status = self.status;
        record.code = facts.code.as_deref().map(|code| context.word(code));
        record.type_ = facts.type_.as_deref().map(|type_| context.word(type_));
        record.request_id = id;
        record.retry_after_ms = self.delay_ms;
        record.prompt_tokens = self.verdict.sizes.prompt_tokens;
        record.limit = self.verdict.sizes.limit;
        record
    }
}

/// Milliseconds as seconds, without needless digits: `3600 s`, `1.5 s`.
fn seconds(ms: u64) -> String {
    let fraction = format!("{:03}", ms % 1_000);
    match fraction.trim_end_matches('0') {
        "" => format!("{} s", ms / 1_000),
        digits => format!("{}.{digits} s", ms / 1_000),
    }
}

/// What to check or set next. An answer that is not an API's names the host, since a proxy may have given it (NET-31).
fn hint(record: &ErrorRecord, is_structured: bool, again: Option<String>, context: &ErrorContext) -> Option<String> {
    let host = context.url.as_deref().map(url::host_and_port);
    match record.kind {
        ErrorKind::Auth if context.key_stayed_at.is_some() => {
            let from = context.key_stayed_at.as_deref().map(url::host_and_port).unwrap_or_default();
            let to = host.unwrap_or_default();
            Some(format!(
                "{from} redirected the request to {to}, which does not get the key: make the base URL the address it \
                 redirects to"
            ))
        }
        ErrorKind::Auth => {
            let at = host.map(|host| format!(" at {host}")).unwrap_or_default();
            Some(if context.key_sources.is_empty() {
                format!("no key was found for {}{at}", context.provider)
            } else {
                format!("check {}: the key was refused{at}", context.key_sources.join(" or "))
            })
        }
        ErrorKind::NotFound => {
            context.url.as_deref().map(|url| format!("check the model's name and the base URL: {}", url::shown(url)))
        }
        ErrorKind::Config => context.url.as_deref().map(|url| format!("check the base URL: {}", url::shown(url))),
        _ => {
            let proxy = context.via.as_ref().filter(|via| via.relays);
            let proxy = proxy.map_or_else(String::new, |via| {
                format!(", or from the proxy {}, which {} sets", via.address, via.setting)
            });
            let source = host.filter(|_| !is_structured).map(|host| format!("the answer came from {host}{proxy}"));
            let hints: Vec<String> = source.into_iter().chain(again).collect();
            (!hints.is_empty()).then(|| hints.join("; "))
        }
    }
}

/// When to try again, where the server turned a request away that it may take later (OUT-02).
fn retry_hint(record: &ErrorRecord) -> Option<String> {
    let turned_away = matches!(record.kind, ErrorKind::RateLimit | ErrorKind::Overloaded);
    turned_away.then(|| match record.retry_after_ms {
        Some(ms) => format!("try again in {}", seconds(ms)),
        None => "try again later".to_owned(),
    })
}
