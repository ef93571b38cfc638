//! Optional fields a server refuses: what is sent instead (OC-18), and images a server refuses.
//!
//! Keeps true: a repair names a field that was sent and that the server named; a swap comes before a drop; a refusal of
//! images holds for those that were sent, other ones are tried.
//!
//! Must not know: how often a request may be repaired; the caller counts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::model::{Content, ImageBlock, Message, UserContent};
use crate::port::LlmRequest;
use crate::provider::compat::{Compat, MaxTokensField, OptionalField};

/// Repeats of one request with a repair; the caller counts.
pub const REPAIRS_PER_REQUEST_MAX: usize = 3;

/// Statuses of a refused field.
const FIELD_STATUSES: [u16; 2] = [400, 422];

/// Statuses of a refused image: OpenRouter says 404 where no server behind it takes images.
const IMAGE_STATUSES: [u16; 5] = [400, 404, 413, 415, 422];

/// llama.cpp without a projector answers an image with this status; only a text that says so is believed.
const IMAGE_STATUS_WEAK: u16 = 500;

/// Images remembered as refused.
const REFUSED_IMAGES_MAX: usize = 1_024;

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
    /// Whether it holds for everything in later requests to the same model. A refused image says nothing about other
    /// images; [`RefusedImages`] remembers those.
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
            Self::LeaveOutImages => "the server refused an image; the request was sent without images".to_owned(),
        }
    }
}

/// The repairs in force for a request. The caller keeps those of [`Repair::is_remembered`] per model and address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    list: Vec<Repair>,
    refused: RefusedImages,
}

/// Images a server refused, by a hash: one that is taken for another is left out once too often, no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedImages(BTreeSet<u64>);

impl RefusedImages {
    /// Takes note of the images of a request that was refused: of those behind its last reply, since the ones in front
    /// of it were taken before; where all of those are known, of every one.
    pub fn add(&mut self, request: &LlmRequest) {
        let is_reply = |message: &Arc<Message>| matches!(**message, Message::Assistant(_));
        let behind = request.messages.iter().rposition(is_reply).map_or(0, |at| at.saturating_add(1));
        let new = request.messages.get(behind..).unwrap_or_default();
        if !self.add_of(new) {
            self.add_of(&request.messages);
        }
    }

    /// Tells whether there was one that was not known.
    fn add_of(&mut self, messages: &[Arc<Message>]) -> bool {
        let mut is_new = false;
        for image in messages.iter().flat_map(|message| images_of(message)) {
            if self.0.len() >= REFUSED_IMAGES_MAX {
                break;
            }
            is_new |= self.0.insert(hash_of(image));
        }
        is_new
    }

    fn has(&self, image: &ImageBlock) -> bool {
        // Hashing megabytes costs time, which is spent only where images were refused at all.
        !self.0.is_empty() && self.0.contains(&hash_of(image))
    }
}

fn images_of(message: &Message) -> impl Iterator<Item = &ImageBlock> {
    let blocks = match message {
        Message::User(user) => match &user.content {
            UserContent::Blocks(blocks) => blocks.as_slice(),
            UserContent::Text(_) => &[],
        },
        Message::ToolResult(result) => result.content.as_slice(),
        Message::Assistant(_) | Message::Custom(_) => &[],
    };
    blocks.iter().filter_map(|block| match block {
        Content::Image(image) => Some(image),
        Content::Text(_) | Content::Other(_) => None,
    })
}

fn hash_of(image: &ImageBlock) -> u64 {
    let mut hasher = DefaultHasher::new();
    image.data.hash(&mut hasher);
    hasher.finish()
}

impl Repairs {
    /// Adds a repair; one that is there already changes nothing.
    pub fn add(&mut self, repair: Repair) {
        if !self.list.contains(&repair) {
            self.list.push(repair);
        }
    }

    /// The same repairs, with images that are known to be refused.
    #[must_use]
    pub fn refusing(mut self, refused: RefusedImages) -> Self {
        self.refused = refused;
        self
    }

    /// Whether nothing was repaired.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.refused.0.is_empty()
    }

    /// In the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = Repair> {
        self.list.iter().copied()
    }

    pub(super) fn drops(&self, field: OptionalField) -> bool {
        self.list.contains(&Repair::Drop(field))
    }

    /// Whether images are left out of this request, whichever they are.
    pub fn leaves_out_images(&self) -> bool {
        self.list.contains(&Repair::LeaveOutImages)
    }

    pub(super) fn sends(&self, image: &ImageBlock) -> bool {
        !self.leaves_out_images() && !self.refused.has(image)
    }

    fn swaps(&self) -> bool {
        self.list.contains(&Repair::SwapMaxTokens)
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
    if FIELD_STATUSES.contains(&status) && says_refused(&text) {
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
    let is_refusal = || IMAGE_STATUSES.contains(&status) || (status == IMAGE_STATUS_WEAK && says_refused(&text));
    (is_refusal() && text.contains("image") && sent.has_images()).then_some(Repair::LeaveOutImages)
}

/// Whether a text in lower case says that something is not known or not taken.
fn says_refused(text: &str) -> bool {
    REFUSALS.iter().any(|refusal| text.contains(refusal))
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
