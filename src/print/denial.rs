//! Calls that a rule refused, read from what their end says.
//!
//! Keeps true: an end is a denial exactly when its `details.error.code` is `denied`.
//!
//! Must not know: which rules there are.

use serde_json::Value;

use super::Denial;
use crate::model::{Content, Event};

/// The code of a refused call in `details.error`.
const DENIED: &str = "denied";
/// The rule of a refusal that names none: the confinement of paths.
const CONFINE: &str = "confine";

/// What was refused and the sentence that says why, if this event ends a refused call.
pub fn denial(event: &Event) -> Option<(Denial, String)> {
    let Event::ToolEnd { tool_call_id, tool_name, result, is_error: true, duration_ms: _ } = event else { return None };
    let error = result.details.as_ref()?.get("error")?;
    if error.get("code")?.as_str()? != DENIED {
        return None;
    }
    let rule = error.get("rule").and_then(Value::as_str).unwrap_or(CONFINE).to_owned();
    let texts = result.content.iter().filter_map(|block| match block {
        Content::Text(block) => Some(block.text.as_str()),
        Content::Image(_) | Content::Other(_) => None,
    });
    let reason = texts.collect::<Vec<_>>().join("\n");
    Some((Denial { tool_call_id: tool_call_id.clone(), tool_name: tool_name.clone(), rule }, reason))
}
