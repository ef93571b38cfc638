//! Optional fields a server refuses: what is sent instead (OC-18), and images a server refuses.
//!
//! Keeps true: a repair names a field that was sent and that the server named; a swap comes before a drop; a refused
//! image is a matter of its request, everything else is remembered.
//!
//! Must not know: how often a request may be repaired; the caller counts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::provider::compat::{Compat, MaxTokensField, OptionalField};

/// Repeats of one request with a repair; the caller counts.
pub const REPAIRS_PER_REQUEST_MAX: usize = 3;

/// Statuses of a refused field, and of a refused image.
const FIELD_STATUSES: [u16; 2] = [400, 422];
const IMAGE_STATUSES: [u16; 2] = [400, 413];

/// How servers say that they do not know a field, in lower case.
const REFUSALS: [&str; 12] = [
    "unsupported",
    "unknown",
    "unrecognized",
    "unrecognised",
    "not supported",
    "does not support",
    "extra",
    "unexpected",
    "not permitted",
    "not allowed",
    "is not one of",
    "invalid role",
];

/// One change to a request that makes a server take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The field is left out; `developer` becomes `system`.
    Drop(OptionalField),
    /// `max_tokens` is sent as `max_completion_tokens`, or the other way round.
    SwapMaxTokens,
    /// Images are replaced by a text.
    LeaveOutImages,
}

impl Repair {
    /// Whether it holds for later requests to the same model, too. A refused image says nothing about other images.
    pub fn is_remembered(self) -> bool {
        self != Self::LeaveOutImages
    }

    /// What to note on the reply.
    pub fn note(self) -> String {
        match self {
            Self::Drop(OptionalField::Developer) => {
                "the server refused role developer; sent as system instead".to_owned()
            }
            Self::Drop(field) => format!("the server refused {}; sent without it", field.as_str()),
            Self::SwapMaxTokens => {
                "the server refused the name of the output limit; sent under its other name".to_owned()
            }
            Self::LeaveOutImages => "the server refused an image; sent without images".to_owned(),
        }
    }
}

/// The repairs in force for a request. The caller keeps those of [`Repair::is_remembered`] per model and address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs(Vec<Repair>);

impl Repairs {
    /// Adds a repair; one that is there already changes nothing.
    pub fn add(&mut self, repair: Repair) {
        if !self.0.contains(&repair) {
            self.0.push(repair);
        }
    }

    /// Whether nothing was repaired.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = Repair> {
        self.0.iter().copied()
    }

    pub(super) fn drops(&self, field: OptionalField) -> bool {
        self.0.contains(&Repair::Drop(field))
    }

    pub(super) fn leaves_out_images(&self) -> bool {
        self.0.contains(&Repair::LeaveOutImages)
    }

    fn swaps(&self) -> bool {
        self.0.contains(&Repair::SwapMaxTokens)
    }

    fn drops_limit(&self) -> bool {
        self.drops(OptionalField::MaxTokens) || self.drops(OptionalField::MaxCompletionTokens)
    }

    /// The name the output limit goes under, or none.
    pub(super) fn max_tokens_field(&self, field: MaxTokensField) -> Option<MaxTokensField> {
        (!self.drops_limit()).then(|| if self.swaps() { field.swapped() } else { field })
    }

    /// The name a passed-through field goes under, or none if the server refused it.
    pub(super) fn passed_through<'a>(&self, name: &'a str) -> Option<&'a str> {
        let limits = [MaxTokensField::MaxTokens, MaxTokensField::MaxCompletionTokens];
        if let Some(limit) = limits.into_iter().find(|limit| limit.as_str() == name) {
            return self.max_tokens_field(limit).map(MaxTokensField::as_str);
        }
        let field = OptionalField::ALL.into_iter().find(|field| field.as_str() == name);
        (!field.is_some_and(|field| self.drops(field))).then_some(name)
    }
}

/// Names the next repair for a refused request, or nothing when the refusal is final: an optional field that the text
/// names and that was sent, swapped before it is dropped (OC-18). `text` is the server's message, `sent` the body it
/// refused, `repairs` those already in force.
pub fn repair_for(status: u16, text: &str, sent: &[u8], compat: &Compat, repairs: &Repairs) -> Option<Repair> {
    let text = text.to_lowercase();
    let sent = Sent::read(sent)?;
    if FIELD_STATUSES.contains(&status) && REFUSALS.iter().any(|refusal| text.contains(refusal)) {
        let named = compat
            .optional_fields
            .iter()
            .filter(|field| sent.has(**field))
            .filter_map(|field| Some((word_at(&text, field.as_str())?, *field)))
            .min_by_key(|(at, _)| *at);
        if let Some((_, field)) = named {
            let is_limit = matches!(field, OptionalField::MaxTokens | OptionalField::MaxCompletionTokens);
            let repair = if is_limit && !repairs.swaps() { Repair::SwapMaxTokens } else { Repair::Drop(field) };
            return Some(repair);
        }
    }
    let is_image = IMAGE_STATUSES.contains(&status) && text.contains("image") && sent.has_images();
    is_image.then_some(Repair::LeaveOutImages)
}

/// Where a word stands in a text by itself.
fn word_at(text: &str, word: &str) -> Option<usize> {
    let is_inner = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).and_then(|head| head.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|tail| tail.chars().next());
        !before.is_some_and(is_inner) && !after.is_some_and(is_inner)
    })
}

/// The fields of a body that was sent.
struct Sent<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Sent<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok().map(Self)
    }

    fn raw(&self, field: &str) -> &str {
        self.0.get(field).map_or("", |value| value.get())
    }

    fn has(&self, field: OptionalField) -> bool {
        match field {
            OptionalField::Developer => self.raw("messages").starts_with(r#"[{"role":"developer""#),
            OptionalField::Strict => self.raw("tools").contains(r#""strict":"#),
            field => self.0.contains_key(field.as_str()),
        }
    }

    /// Inside text the quotes of this needle would be escaped.
    fn has_images(&self) -> bool {
        self.raw("messages").contains(r#""type":"image_url""#)
    }
}
