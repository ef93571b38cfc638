//! Secrets kept out of what children, hooks and servers print (tool rule V5).
//!
//! Keeps true: no value of [`Masks`] passes, however its bytes are split; a byte that can not begin a value is never
//! held back; without values nothing is copied or looked at; what is learned later holds everywhere from then on.
//!
//! Must not know: which values are secret and why, where the text goes.
//!
//! # What is masked
//!
//! A value is replaced by `[redacted:NAME]` wherever it stands. NAME is the variable that holds it, the key of the
//! configuration where several make it (`providers.local.api_key`), or the provider and what it is: `local key` for one
//! that a command printed, `local authorization` for a header, `local proxy`. Keys of providers are always masked,
//! values of variables that `filtered` withholds only where they look like a secret (16 characters or more that mix
//! letters and digits) and `tools.redact` is on. A value of fewer than 8 characters is left alone, with a warning. Text
//! in another form, such as base64, is not recognised.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

use crate::model::Secret;

/// A shorter value is left alone: masking it would riddle ordinary text.
pub const SECRET_CHARS_MIN: usize = 8;

/// What every mask begins with; `write` and `edit` refuse a content that holds it.
pub const MASK_START: &str = "[redacted:";

/// Characters from which on a value of letters and digits counts as a secret.
const LOOKS_SECRET_CHARS_MIN: usize = 16;

/// Whether a value under a secret-sounding name is one: 16 characters or more that mix letters and digits (V5). An
/// ordinary word is not, and masking it would damage files.
pub fn looks_secret(value: &str) -> bool {
    value.chars().count() >= LOOKS_SECRET_CHARS_MIN
        && value.chars().any(char::is_alphabetic)
        && value.chars().any(char::is_numeric)
}

/// The values can not be searched for.
#[derive(Debug, thiserror::Error)]
#[error("the secrets to mask are too many or too long")]
pub struct MaskError(#[source] aho_corasick::BuildError);

/// The values to mask and their names. Clones share them, and learn what one of them learns.
#[derive(Clone, Default)]
pub struct Masks {
    known: Arc<RwLock<Known>>,
}

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let needles = self.needles();
        let names = needles.iter().flat_map(|needles| &needles.masks).map(String::as_str);
        f.debug_list().entries(names).finish()
    }
}

#[derive(Default)]
struct Known {
    /// `None`: there is nothing to mask.
    needles: Option<Arc<Needles>>,
    too_short: Vec<String>,
}

struct Needles {
    finder: AhoCorasick,
    /// In the order of the finder's patterns.
    values: Vec<String>,
    /// What stands in place of each value.
    masks: Vec<String>,
    /// Bytes of the longest value.
    longest: usize,
}

impl Masks {
    /// Masks each value as `[redacted:NAME]`, without the space around it. Of values that overlap the leftmost is
    /// masked, and of those the longest; of names with the same value the first is shown.
    ///
    /// # Errors
    /// There are more bytes of secrets than a search can be built for (gigabytes).
    pub fn new(secrets: impl IntoIterator<Item = (String, Secret)>) -> Result<Self, MaskError> {
        let masks = Self::default();
        masks.learn(secrets)?;
        Ok(masks)
    }

    /// Masks further values, everywhere: in all clones, and in streams from their next piece on.
    ///
    /// # Errors
    /// As those of [`Masks::new`]; nothing is learned then.
    pub fn learn(&self, secrets: impl IntoIterator<Item = (String, Secret)>) -> Result<(), MaskError> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let (mut values, mut masks) = known
            .needles
            .as_ref()
            .map_or_else(Default::default, |needles| (needles.values.clone(), needles.masks.clone()));
        let mut too_short = Vec::new();
        let before = values.len();
        for (name, secret) in secrets {
            let value = secret.expose().trim();
            if value.is_empty() || values.iter().any(|known| known == value) {
                continue;
            }
            if value.chars().count() < SECRET_CHARS_MIN {
                too_short.push(name);
                continue;
            }
            values.push(value.to_owned());
            masks.push(format!("{MASK_START}{name}]"));
        }
        if values.len() > before {
            known.needles = Some(Arc::new(Needles::new(values, masks)?));
        }
        known.too_short.append(&mut too_short);
        Ok(())
    }

    fn needles(&self) -> Option<Arc<Needles>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).needles.clone()
    }

    /// Names whose values are too short to mask; worth one warning.
    pub fn too_short(&self) -> Vec<String> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).too_short.clone()
    }

    /// Whether nothing is ever masked.
    pub fn is_empty(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).needles.is_none()
    }

    /// A whole text, masked.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.needles().map_or(Cow::Borrowed(text), |needles| needles.text(text))
    }

    /// Masks every string of a value, names of properties included.
    pub fn value(&self, value: &mut Value) {
        if let Some(needles) = self.needles() {
            needles.value(value);
        }
    }

    /// Masks every string of an object, names of properties included.
    pub fn object(&self, map: &mut Map<String, Value>) {
        if let Some(needles) = self.needles() {
            needles.object(map);
        }
    }

    /// A masker of one stream of bytes.
    pub fn stream(&self) -> Masker {
        Masker { masks: self.clone(), held: Vec::new() }
    }
}

/// Masks a stream piece by piece. Holds back at most the longest value less one byte, and only what may be the
/// beginning of a value.
pub struct Masker {
    masks: Masks,
    held: Vec<u8>,
}

impl std::fmt::Debug for Masker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Masker").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl Masker {
    /// Whether nothing is ever masked, so that a caller may pass its bytes by.
    pub fn is_idle(&self) -> bool {
        self.masks.is_empty()
    }

    /// Takes the next bytes and appends to `out` what is certain.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(needles) = self.masks.needles() else {
            out.extend_from_slice(bytes);
            return;
        };
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(bytes);
        let written = needles.mask(&text, out);
        text.drain(..written);
        self.held = text;
    }

    /// What is held back.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// The stream has ended: appends what was held back, which is no whole value. The masker may begin a new stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let Some(needles) = self.masks.needles() else { return };
        let rest = std::mem::take(&mut self.held);
        // Held back for a longer value, it may still be a shorter one.
        let mut from = 0;
        for found in needles.finder.find_iter(&rest) {
            out.extend_from_slice(rest.get(from..found.start()).unwrap_or_default());
            needles.push_mask(found.pattern().as_usize(), out);
            from = found.end();
        }
        out.extend_from_slice(rest.get(from..).unwrap_or_default());
    }
}

impl Needles {
    fn new(values: Vec<String>, masks: Vec<String>) -> Result<Self, MaskError> {
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&values).map_err(MaskError)?;
        let longest = values.iter().map(String::len).max().unwrap_or_default();
        Ok(Self { finder, values, masks, longest })
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.finder.is_match(text) {
            Cow::Owned(self.finder.replace_all(text, &self.masks))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// Nesting is that of a parsed value, which is bounded.
    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => self.object(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn object(&self, map: &mut Map<String, Value>) {
        map.values_mut().for_each(|item| self.value(item));
        if map.keys().any(|key| matches!(self.text(key), Cow::Owned(_))) {
            let pairs = std::mem::take(map).into_iter();
            map.extend(pairs.map(|(key, item)| (self.text(&key).into_owned(), item)));
        }
    }

    fn push_mask(&self, pattern: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.masks.get(pattern).map(String::as_bytes).unwrap_or_default());
    }

    /// Masks what is certain of `text`; returns how many of its bytes that were. A match that begins before all that
    /// may still grow into one can neither become longer nor be preceded by another.
    fn mask(&self, text: &[u8], out: &mut Vec<u8>) -> usize {
        let mut open = self.open_from(text, 0);
        let mut written = 0;
        for found in self.finder.find_iter(text) {
            if found.start() >= open {
                break;
            }
            out.extend_from_slice(text.get(written..found.start()).unwrap_or_default());
            self.push_mask(found.pattern().as_usize(), out);
            written = found.end();
            if written > open {
                open = self.open_from(text, written);
            }
        }
        out.extend_from_slice(text.get(written..open).unwrap_or_default());
        open
    }

    /// The first place from `from` on whose rest is the beginning of a value, or the end.
    fn open_from(&self, text: &[u8], from: usize) -> usize {
        let first = from.max(text.len().saturating_sub(self.longest.saturating_sub(1)));
        let begins = |at: &usize| {
            let rest = text.get(*at..).unwrap_or_default();
            self.values.iter().any(|value| value.len() > rest.len() && value.as_bytes().starts_with(rest))
        };
        (first..text.len()).find(begins).unwrap_or(text.len())
    }
}

#[cfg(test)]
mod tests;
