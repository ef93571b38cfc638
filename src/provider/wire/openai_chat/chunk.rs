//! The shapes of a chunk.
//!
//! Keeps true: every field is optional (JSON-2); fields whose type differs between servers stay raw until someone
//! looks; nothing is copied.
//!
//! Must not know: what a field is used for.

use serde::Deserialize;

use crate::provider::json::{Few, Loose, Number, Raw};

/// One event of a stream, or a whole reply.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Raw<'a>,
    #[serde(borrow)]
    pub(super) model: Raw<'a>,
    #[serde(borrow)]
    pub(super) object: Raw<'a>,
    #[serde(borrow)]
    pub(super) error: Raw<'a>,
    #[serde(borrow)]
    pub(super) choices: Few<Choice<'a>>,
    #[serde(borrow)]
    pub(super) usage: Raw<'a>,
    #[serde(borrow)]
    pub(super) x_groq: Loose<Vendor<'a>>,
}

impl Chunk<'_> {
    /// Whether it has any field of a chunk; everything parses as one.
    pub(super) fn is_recognisable(&self) -> bool {
        let named = self.id.is_some() || self.model.is_some() || self.object.is_some();
        named || self.usage.is_some() || !self.choices.is_empty()
    }

    /// An error object in place of a chunk, in any of the known shapes (JSON-6).
    pub(super) fn is_error(&self) -> bool {
        is_error_field(self.error) || self.object.is_some_and(|object| object.get() == r#""error""#)
    }
}

/// Null and the words for "none" are no error.
pub(super) fn is_error_field(error: Raw<'_>) -> bool {
    error.is_some_and(|error| !matches!(error.get(), "false" | r#""""#))
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Number,
    #[serde(borrow)]
    pub(super) delta: Loose<Delta<'a>>,
    /// Rare, so it is not carried along.
    #[serde(borrow)]
    pub(super) message: Loose<Box<Delta<'a>>>,
    #[serde(borrow)]
    pub(super) finish_reason: Raw<'a>,
    #[serde(borrow)]
    pub(super) usage: Raw<'a>,
    #[serde(borrow)]
    pub(super) error: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    /// A string, or the parts of one.
    #[serde(borrow)]
    pub(super) content: Raw<'a>,
    #[serde(borrow)]
    pub(super) refusal: Raw<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Raw<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Raw<'a>,
    #[serde(borrow)]
    pub(super) reasoning_text: Raw<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: Raw<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Few<ToolDelta<'a>>,
}

/// A part of a message whose content is an array.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Raw<'a>,
    #[serde(borrow)]
    pub(super) text: Raw<'a>,
    /// A string, or parts.
    #[serde(borrow)]
    pub(super) thinking: Raw<'a>,
    #[serde(borrow)]
    pub(super) refusal: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolDelta<'a> {
    pub(super) index: Number,
    #[serde(borrow)]
    pub(super) id: Raw<'a>,
    #[serde(borrow)]
    pub(super) function: Loose<FunctionDelta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta<'a> {
    /// Some servers put the index here.
    pub(super) index: Number,
    #[serde(borrow)]
    pub(super) name: Raw<'a>,
    /// A string that holds JSON, or the JSON itself.
    #[serde(borrow)]
    pub(super) arguments: Raw<'a>,
}

/// A vendor's own object beside the choices.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Vendor<'a> {
    #[serde(borrow)]
    pub(super) usage: Raw<'a>,
}
