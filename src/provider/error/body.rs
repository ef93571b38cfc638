//! The shapes in which servers put an error into a body.
//!
//! Keeps true: every shape gives the same facts; a body of no known shape gives none, never a failure.
//!
//! Must not know: what a fact means; the classifier decides.

use serde_json::{Map, Value};

/// Items of a list in an error body that are read.
const LIST_ITEMS_MAX: usize = 32;

/// Numbers that can be an HTTP status of an error.
const ERROR_STATUSES: std::ops::RangeInclusive<u64> = 300..=599;

/// What a body says about an error. Words are as the server wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub message: Option<String>,
    pub code: Option<String>,
    pub type_: Option<String>,
    /// Further words: Google's `status` and `reason`, Anthropic's `error_code`.
    pub words: Vec<String>,
    /// A number that stands for an HTTP status.
    pub status: Option<u16>,
    pub request_id: Option<String>,
    pub prompt_tokens: Option<u64>,
    pub limit: Option<u64>,
    /// Google's names of the quotas that were exceeded.
    pub quota_ids: Vec<String>,
    /// Google's `retryDelay`.
    pub retry_delay: Option<String>,
}

impl Facts {
    /// Reads an error body. A list counts as its first element.
    pub(super) fn read(body: &Value) -> Self {
        let mut facts = Self::default();
        let body = match body {
            Value::Array(items) => items.first().unwrap_or(&Value::Null),
            other => other,
        };
        let Value::Object(top) = body else { return facts };
        let response = top.get("response").and_then(|response| response.get("error"));
        match top.get("error").filter(|error| !error.is_null()).or(response) {
            Some(Value::Object(error)) => facts.error_object(error),
            Some(error) => facts.error_word(error, top),
            None => {}
        }
        facts.top_level(top);
        facts
    }

    /// Whether the body says anything at all.
    pub(super) fn is_empty(&self) -> bool {
        self.message.is_none() && self.code.is_none() && self.type_.is_none() && self.words.is_empty()
    }

    /// Every word that may stand in a table of codes.
    pub(super) fn all_words(&self) -> impl Iterator<Item = &str> {
        self.code.iter().chain(&self.type_).chain(&self.words).map(String::as_str)
    }

    fn error_object(&mut self, error: &Map<String, Value>) {
        self.message = ["message", "msg", "detail", "error"].iter().find_map(|key| error.get(*key).and_then(text));
        self.code = error.get("code").and_then(text);
        self.type_ = error.get("type").and_then(text);
        self.status = ["code", "status", "http_code"].iter().find_map(|key| error.get(*key).and_then(status));
        self.words.extend(error.get("status").and_then(Value::as_str).map(str::to_owned));
        self.prompt_tokens = error.get("n_prompt_tokens").and_then(Value::as_u64);
        self.limit = error.get("n_ctx").and_then(Value::as_u64);
        match error.get("details") {
            Some(Value::Object(details)) => {
                self.words.extend(details.get("error_code").and_then(text));
            }
            Some(Value::Array(details)) => self.google_details(details),
            _ => {}
        }
        if let Some(metadata) = error.get("metadata") {
            self.upstream(metadata);
        }
    }

    /// `error` is plain text, perhaps with a longer `message` beside it. A single word is a code then.
    fn error_word(&mut self, error: &Value, top: &Map<String, Value>) {
        let error = text(error);
        let beside = ["message", "error_description"].iter().find_map(|key| top.get(*key).and_then(text));
        match (error, beside) {
            (Some(error), Some(beside)) => {
                if error.contains(char::is_whitespace) && !beside.contains(&error) {
                    self.message = Some(format!("{error}: {beside}"));
                } else {
                    self.message = Some(beside);
                    self.type_ = Some(error).filter(|error| !error.contains(char::is_whitespace));
                }
            }
            (error, _) => self.message = error,
        }
    }

    /// What stands beside or instead of `error`.
    fn top_level(&mut self, top: &Map<String, Value>) {
        let get = |keys: &[&str]| keys.iter().find_map(|key| top.get(*key).and_then(text));
        self.request_id = get(&["request_id", "requestId"]);
        if self.message.is_none() {
            self.message = get(&["message", "Message"])
                .or_else(|| top.get("detail").and_then(detail))
                .or_else(|| top.get("errors").and_then(detail))
                .or_else(|| get(&["msg", "error_description"]));
        }
        if self.code.is_none() {
            self.code = get(&["code"]);
        }
        if self.type_.is_none() {
            let generic = |word: &String| word == "error" || word.starts_with("response.");
            self.type_ = get(&["type", "__type"]).filter(|word| !generic(word));
        }
        if self.status.is_none() {
            self.status =
                ["code", "status", "statusCode", "status_code"].iter().find_map(|key| top.get(*key).and_then(status));
        }
    }

    fn google_details(&mut self, details: &[Value]) {
        for detail in details.iter().take(LIST_ITEMS_MAX) {
            self.words.extend(detail.get("reason").and_then(Value::as_str).map(str::to_owned));
            if self.retry_delay.is_none() {
                self.retry_delay = detail.get("retryDelay").and_then(text);
            }
            let violations = detail.get("violations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for violation in violations.iter().take(LIST_ITEMS_MAX) {
                self.quota_ids.extend(violation.get("quotaId").and_then(Value::as_str).map(str::to_owned));
            }
        }
    }

    /// OpenRouter passes the words of the provider behind it on in `metadata.raw`.
    fn upstream(&mut self, metadata: &Value) {
        let Some(raw) = metadata.get("raw") else { return };
        let parsed = raw.as_str().and_then(|raw| serde_json::from_str::<Value>(raw).ok());
        let inner = parsed.as_ref().map(Self::read).and_then(|facts| facts.message);
        let Some(raw) = inner.or_else(|| text(raw)) else { return };
        let name = metadata.get("provider_name").and_then(Value::as_str);
        self.message = match self.message.take() {
            Some(message) if message.contains(&raw) => Some(message),
            Some(message) => Some(match name {
                Some(name) => format!("{message} ({name}): {raw}"),
                None => format!("{message}: {raw}"),
            }),
            None => Some(raw),
        };
    }
}

/// A value as text; null and blank text are none, an object counts as its message.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => text.trim().to_owned(),
        Value::Object(map) => match map.get("message").and_then(Value::as_str) {
            Some(message) => message.trim().to_owned(),
            None => value.to_string(),
        },
        other => other.to_string(),
    };
    (!text.is_empty()).then_some(text)
}

/// A number, or digits in text, that can be an HTTP status.
fn status(value: &Value) -> Option<u16> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    }?;
    ERROR_STATUSES.contains(&number).then(|| u16::try_from(number).ok()).flatten()
}

/// Validation errors: text, or a list of `{loc, msg}`, `{message}` or text.
fn detail(value: &Value) -> Option<String> {
    let Value::Array(items) = value else { return text(value) };
    let lines: Vec<String> = items.iter().take(LIST_ITEMS_MAX).filter_map(detail_item).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn detail_item(item: &Value) -> Option<String> {
    let message = item.get("msg").and_then(text).or_else(|| text(item))?;
    let place: Vec<String> =
        item.get("loc").and_then(Value::as_array).map(|loc| loc.iter().filter_map(text).collect()).unwrap_or_default();
    Some(if place.is_empty() { message } else { format!("{}: {message}", place.join(".")) })
}
