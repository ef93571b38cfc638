//! Fixed texts the model or the user reads.

/// `errorMessage` of a cancelled reply.
pub const CANCELLED: &str = "Run cancelled";
/// A `stop` reply that holds nothing.
pub const EMPTY: &str = "The provider sent neither text nor a tool call.";
/// A `toolUse` reply without a call.
pub const TOOLUSE_EMPTY: &str = "The provider stopped for tool use but sent no tool call.";
/// A request that was longer than the model takes, where the server had no words for it.
pub const OVERFLOW: &str = "The request did not fit the model's context window.";
/// An answer that is to be collected later, with nothing to collect it by.
pub const DEFERRED_INVALID: &str = "The provider returned an unusable deferred handle.";
/// `errorMessage` of a reply that a process's end cut off.
pub const INTERRUPTED: &str = "The response was cut off because the process stopped. Only the saved part is kept; \
     whether the provider finished it is unknown.";
/// Stands in for a result that was never recorded.
pub const NO_RESULT: &str = "No result was recorded for this tool call.";
/// A call the run's end overtook.
pub const TOOL_CANCELLED: &str = "Cancelled before it ran.";
/// A running call that was cancelled and gave no result of its own.
pub const TOOL_ABORTED: &str = "Aborted.";
/// A call whose process died while it ran; any saved output stands above.
pub const TOOL_INTERRUPTED: &str = "[interrupted] The process stopped while this tool was running. Anything above is \
     the last saved progress; whether the tool finished is unknown.";
/// A refusal without a reason.
pub const TOOL_BLOCKED: &str = "This call was blocked.";
/// A failure without a text.
pub const TOOL_SILENT: &str = "The tool failed without a message.";
/// Where an image was, for a model that takes none.
pub const IMAGE_LEFT_OUT: &str = "[image left out: this model takes no images]";
/// A stream that ended without its last event.
pub const STREAM_BROKE_OFF: &str = "The stream broke off: no final event.";
/// An error without a text.
pub const UNKNOWN_PROVIDER_ERROR: &str = "Unknown provider error";

/// A failure's text, or what stands for an empty one.
pub fn or_silent(text: String) -> String {
    if text.is_empty() { TOOL_SILENT.to_owned() } else { text }
}

/// What a model wrote, as a text may quote it: control characters but LF and TAB are written as escapes.
pub fn without_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// At most this many names are listed to a model that asked for a tool that does not exist.
const NAMES_MAX: usize = 20;

/// A call of a tool that does not exist; `available` is sorted.
pub fn unknown_tool(name: &str, available: &[String]) -> String {
    let name = without_controls(name);
    if available.is_empty() {
        return format!("Unknown tool \"{name}\". No tool is available.");
    }
    let shown: Vec<&str> = available.iter().take(NAMES_MAX).map(String::as_str).collect();
    format!("Unknown tool \"{name}\". Available: {}.", shown.join(", "))
}

/// A call of a reply that stopped at the output limit.
pub fn truncated(name: &str) -> String {
    let name = without_controls(name);
    format!(
        "Not run: the reply stopped at the output limit, so the arguments of \"{name}\" may be incomplete. \
         Repeat the call with full arguments."
    )
}

#[cfg(test)]
mod tests {
    use super::unknown_tool;

    #[test]
    fn an_unknown_tool_is_named_without_control_characters_and_with_what_there_is() {
        let names = ["ls".to_owned(), "read".to_owned()];
        assert_eq!(unknown_tool("x\u{1b}[2J", &names), "Unknown tool \"x\\u{1b}[2J\". Available: ls, read.");
        assert_eq!(unknown_tool("x", &[]), "Unknown tool \"x\". No tool is available.");
    }
}
