//! The first and the last line of a JSON stream.
//!
//! Keeps true: fields and their order are those of the tables in `print::jsonl`; removing or retyping a field raises
//! [`SESSION_VERSION`]; optional fields of `session` are left out, those of `result` are null.
//!
//! Must not know: how the numbers are found.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::{ErrorRecord, Reason, StopReason, Thinking, Usage};

/// `session.version`: the version of the event stream.
pub const SESSION_VERSION: u32 = 1;

/// What a run starts with: the `session` line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionLine {
    /// [`SESSION_VERSION`].
    pub version: u32,
    /// The program's version.
    pub pirn: String,
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// See [`super::rfc3339`].
    pub timestamp: String,
    pub cwd: String,
    /// `None` when nothing is kept.
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    pub resumed: bool,
    pub recovered: bool,
    pub leaf_id: Option<String>,
    pub model: ModelRef,
    /// Null = the model's default.
    pub thinking: Option<Thinking>,
    /// Names of the enabled tools.
    pub tools: Vec<String>,
    pub limits: LimitsLine,
    pub config_files: Vec<String>,
}

/// Where a session was forked from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    pub id: String,
    pub entry_id: String,
}

/// A model by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelRef {
    pub provider: String,
    pub id: String,
}

/// The limits a run works under; null = none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitsLine {
    pub max_turns: Option<u32>,
    /// USD.
    pub max_cost: Option<f64>,
    pub timeout_ms: Option<u64>,
}

/// What a run ends with: the `result` line. Counts cover the whole operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultLine {
    /// Exactly when `exit_code` is 0.
    pub ok: bool,
    pub exit_code: u8,
    /// That of the last reply; null when there was none.
    pub stop_reason: Option<StopReason>,
    pub reason: Reason,
    /// The last reply's text, even on failure.
    pub text: String,
    pub structured: Option<Value>,
    pub error: Option<ErrorRecord>,
    pub session_id: Option<String>,
    pub session_file: Option<String>,
    pub leaf_id: Option<String>,
    pub resumable: bool,
    pub model: Option<ModelRef>,
    pub turns: u32,
    pub requests: u32,
    pub tool_calls: u32,
    pub denials: Vec<Denial>,
    pub usage: UsageTotals,
    /// USD; null when any used model has no price.
    pub cost_usd: Option<f64>,
    /// `provider/id` → its share.
    #[serde(serialize_with = "as_map")]
    pub usage_by_model: Vec<(String, UsageShare)>,
    pub duration_ms: u64,
    /// Time spent waiting for providers.
    pub api_duration_ms: u64,
    /// From the first request to the first delta.
    pub first_token_ms: Option<u64>,
    pub pending_follow_ups: u32,
}

impl ResultLine {
    /// The line of a call that ended before anything was sent.
    pub fn nothing_sent(exit_code: u8, reason: Reason, error: Option<ErrorRecord>) -> Self {
        Self {
            ok: exit_code == 0,
            exit_code,
            stop_reason: None,
            reason,
            text: String::new(),
            structured: None,
            error,
            session_id: None,
            session_file: None,
            leaf_id: None,
            resumable: false,
            model: None,
            turns: 0,
            requests: 0,
            tool_calls: 0,
            denials: Vec::new(),
            usage: UsageTotals::default(),
            cost_usd: Some(0.0),
            usage_by_model: Vec::new(),
            duration_ms: 0,
            api_duration_ms: 0,
            first_token_ms: None,
            pending_follow_ups: 0,
        }
    }
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    pub tool_call_id: String,
    pub tool_name: String,
    pub rule: String,
}

/// Tokens of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageTotals {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    pub total_tokens: u64,
    /// Some numbers are characters / 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated: Option<bool>,
}

impl From<&Usage> for UsageTotals {
    fn from(usage: &Usage) -> Self {
        Self {
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            reasoning: usage.reasoning,
            total_tokens: usage.total_tokens,
            estimated: usage.estimated,
        }
    }
}

/// One model's part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageShare {
    pub input: u64,
    pub output: u64,
    pub cost_usd: Option<f64>,
}

fn as_map<S: serde::Serializer>(shares: &[(String, UsageShare)], serializer: S) -> Result<S::Ok, S::Error> {
    let map: Result<Map<String, Value>, _> =
        shares.iter().map(|(model, share)| serde_json::to_value(share).map(|share| (model.clone(), share))).collect();
    map.map_err(serde::ser::Error::custom)?.serialize(serializer)
}
