//! Thinking levels as words of the wire, and thinking sent back (OC-1, OC-3).
//!
//! Keeps true: thinking goes back in the field it came in, or not at all where the server refuses it (OC-2); a level is
//! said in the way the dialect names.
//!
//! Must not know: which server it is.

use serde_json::{Map, Value};

use super::text::Joined;
use crate::model::{AssistantBlock, AssistantMessage, Model, Thinking, ThinkingBlock, ThinkingStyle};
use crate::provider::compat::{Compat, ReasoningReplay};

/// The signature of thinking that came inside `content` as a list of parts (Mistral); it goes back the same way.
const CONTENT_PARTS: &str = "content";

/// Kinds of `reasoning_details` entries that servers send in pieces, and the field a piece extends.
const PIECES: [(&str, &str); 2] = [("reasoning.text", "text"), ("reasoning.summary", "summary")];

/// What a request says about thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level<'a> {
    /// The model does not reason, or its default holds.
    Unset,
    /// It cannot be turned off, and nothing was asked for.
    AlwaysOn,
    /// With the model's own word for it.
    Off(Option<&'a str>),
    On {
        word: &'a str,
    },
}

impl<'a> Level<'a> {
    /// The word for `reasoning_effort`.
    pub(super) fn effort(self) -> Option<&'a str> {
        match self {
            Self::Unset | Self::AlwaysOn => None,
            Self::Off(word) => word,
            Self::On { word } => Some(word),
        }
    }

    /// Whether the reply will hold thinking.
    pub(super) fn is_on(self) -> bool {
        matches!(self, Self::AlwaysOn | Self::On { .. })
    }

    /// Whether the model tells levels apart, beyond on and off.
    pub(super) fn has_word_for(self, model: &Model) -> bool {
        let is_mapped = |word: &str| model.thinking_level_map.values().any(|value| value.as_str() == Some(word));
        match self {
            Self::On { word } => model.thinking_style == Some(ThinkingStyle::Effort) || is_mapped(word),
            Self::Unset | Self::AlwaysOn | Self::Off(_) => false,
        }
    }
}

/// Whether the model's thinking is only on or off.
pub(super) fn is_switch(model: &Model) -> bool {
    matches!(model.thinking_style, Some(ThinkingStyle::Adaptive | ThinkingStyle::Budget))
}

/// The level for a model: through its map, and where the level is not available the next higher one that is, else
/// the next lower one. `xhigh` and `max` are available only where the map names them.
pub(super) fn level(model: &Model, thinking: Option<Thinking>) -> Level<'_> {
    let Some(thinking) = thinking.filter(|_| model.reasoning) else { return Level::Unset };
    let map = &model.thinking_level_map;
    if thinking == Thinking::Off {
        return match map.get(Thinking::Off.as_str()) {
            Some(Value::String(word)) => Level::Off(Some(word)),
            Some(_) => Level::AlwaysOn,
            None => Level::Off(None),
        };
    }
    let upward = Thinking::ALL.into_iter().filter(|level| *level >= thinking);
    let downward = Thinking::ALL.into_iter().rev().filter(|level| *level < thinking && *level != Thinking::Off);
    let found = upward.chain(downward).find_map(|level| word_for(map, level));
    found.map_or(Level::AlwaysOn, |word| Level::On { word })
}

/// The word for a level that is available.
fn word_for(map: &Map<String, Value>, level: Thinking) -> Option<&str> {
    match map.get(level.as_str()) {
        Some(Value::String(word)) => Some(word),
        Some(_) => None,
        None => (level <= Thinking::High).then(|| level.as_str()),
    }
}

/// Thinking of one reply in the fields it goes back in.
#[derive(Debug, Default)]
pub(super) struct Replay<'a> {
    pub reasoning_content: Option<Joined<'a>>,
    pub reasoning: Option<Joined<'a>>,
    pub reasoning_text: Option<Joined<'a>>,
    pub reasoning_details: Option<Vec<Value>>,
    /// Goes back as parts of `content`.
    pub parts: Vec<&'a str>,
}

impl<'a> Replay<'a> {
    /// Sorts a reply's thinking into fields. Healing has left only thinking of the same model (T-4).
    pub(super) fn of(message: &'a AssistantMessage, compat: &Compat, level: Level<'_>) -> Self {
        let mut replay = Self::default();
        let mut details = Vec::new();
        let mut has_calls = false;
        for block in &message.content {
            match block {
                AssistantBlock::Thinking(block) => replay.add(block, compat.reasoning_replay, &mut details),
                AssistantBlock::ToolCall(_) => has_calls = true,
                AssistantBlock::Text(_) | AssistantBlock::Other(_) => {}
            }
        }
        replay.reasoning_details = (!details.is_empty()).then(|| merged(details));
        // Such servers refuse a call without the field, even an empty one (OC-3, NET-23).
        if compat.reasoning_replay == Some(ReasoningReplay::ReasoningContent) && has_calls && level.is_on() {
            replay.reasoning_content.get_or_insert_default();
        }
        replay
    }

    fn add(&mut self, block: &'a ThinkingBlock, form: Option<ReasoningReplay>, details: &mut Vec<Value>) {
        let signature = block.thinking_signature.as_deref().unwrap_or_default();
        if signature == CONTENT_PARTS {
            self.parts.push(&block.thinking);
            return;
        }
        if form == Some(ReasoningReplay::None) {
            return;
        }
        if signature.starts_with('[')
            && let Ok(entries) = serde_json::from_str::<Vec<Value>>(signature)
        {
            details.extend(entries);
            return;
        }
        if block.redacted == Some(true) || block.thinking.is_empty() {
            return;
        }
        let field = match (form, signature) {
            (Some(ReasoningReplay::Reasoning), _) | (None, "reasoning") => &mut self.reasoning,
            (None, "reasoning_text") => &mut self.reasoning_text,
            _ => &mut self.reasoning_content,
        };
        field.get_or_insert_default().parts.push(&block.thinking);
    }
}

/// Joins adjacent pieces of one `reasoning_details` entry (OC-1).
fn merged(entries: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for entry in entries {
        let is_joined = out.last_mut().is_some_and(|last| extend(last, &entry));
        if !is_joined {
            out.push(entry);
        }
    }
    out
}

/// Appends a piece to the entry before it, if it is one of the same kind and place.
fn extend(last: &mut Value, piece: &Value) -> bool {
    let kind = piece.get("type").and_then(Value::as_str);
    let Some((_, field)) = PIECES.iter().find(|(name, _)| Some(*name) == kind) else { return false };
    let (Some(last), Some(piece)) = (last.as_object_mut(), piece.as_object()) else { return false };
    let is_same = |key: &str| match (last.get(key), piece.get(key)) {
        (Some(a), Some(b)) => a == b || a.is_null() || b.is_null(),
        _ => true,
    };
    if last.get("type") != piece.get("type") || !is_same("index") || !is_same("id") {
        return false;
    }
    for (key, value) in piece {
        match (last.get_mut(key), value) {
            (Some(Value::String(text)), Value::String(more)) if key == field => text.push_str(more),
            (Some(known), value) if !value.is_null() && known.is_null() => *known = value.clone(),
            (None, value) => {
                last.insert(key.clone(), value.clone());
            }
            // Everything else is repeated in each piece; a late signature replaces an earlier one.
            (Some(known), value) if key == "signature" && !value.is_null() => *known = value.clone(),
            _ => {}
        }
    }
    true
}
