//! What the usual writes do, read from the form in which this program writes them.
//!
//! Keeps true: what is recognised here says the same to the JSON parser; whatever is in doubt (another order of members,
//! an escape in an id, deep nesting, anything that is no JSON) is left to that one, which also knows the error.
//!
//! Must not know: lines, files, what else a write may be.
//!
//! A long session is read as a whole before it goes on, so this is what opening one costs.

use std::borrow::Cow;

use super::record::{Change, Head};
use crate::model::{Cost, Usage, plain_len};

/// Deeper values are left to the parser.
const DEPTH_MAX: usize = 32;
/// Digits that fit every number here.
const DIGITS_MAX: usize = 16;

/// Reads a usual write at the start of a text, with its length. Nothing: ask the parser.
pub(super) fn head(text: &str) -> Option<(Head<'_>, usize)> {
    let mut cursor = Cursor { text, at: 0 };
    cursor.token("{\"seq\":")?;
    let seq = cursor.number()?;
    cursor.token(",\"kind\":")?;
    let change = match cursor.text()? {
        "entry" => cursor.message_entry()?,
        "value" => cursor.register()?,
        "usage" => cursor.usage_row()?,
        _ => return None,
    };
    cursor.byte(b'}')?;
    Some((Head { seq, change }, cursor.at))
}

/// A place in a text.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn token(&mut self, token: &str) -> Option<()> {
        let is_there = self.rest().starts_with(token.as_bytes());
        is_there.then(|| self.at += token.len())
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// A text without escapes.
    fn text(&mut self) -> Option<&'a str> {
        self.byte(b'"')?;
        let start = self.at;
        self.at += plain_len(self.rest());
        let text = self.text.get(start..self.at)?;
        self.byte(b'"')?;
        Some(text)
    }

    /// An entry of type `message`, behind its kind.
    fn message_entry(&mut self) -> Option<Change<'a>> {
        self.token(",\"id\":")?;
        let id = self.text()?;
        self.token(",\"parentId\":")?;
        let parent_id = if self.token("null").is_some() { None } else { Some(Cow::Borrowed(self.text()?)) };
        self.token(",\"type\":\"message\",\"message\":{\"role\":")?;
        let role = self.text()?;
        let mut stop_reason = None;
        while self.byte(b',').is_some() {
            match self.key()? {
                "role" => return None,
                "stopReason" => {
                    if stop_reason.replace(self.text()?).is_some() {
                        return None;
                    }
                }
                _ => self.value(0)?,
            }
        }
        self.byte(b'}')?;
        let is_pending = role == "assistant" && stop_reason == Some("pending");
        Some(Change::Entry { id: id.into(), parent_id, entry_type: "message".into(), custom_type: None, is_pending })
    }

    /// A register that is set, behind its kind.
    fn register(&mut self) -> Option<Change<'a>> {
        self.token(",\"op\":\"set\",\"namespace\":")?;
        let namespace = self.text()?.into();
        self.token(",\"key\":")?;
        let key = self.text()?.into();
        self.token(",\"value\":")?;
        self.value(0)?;
        Some(Change::Set { namespace, key })
    }

    /// A row of the ledger, behind its kind.
    fn usage_row(&mut self) -> Option<Change<'a>> {
        self.token(",\"row\":{\"id\":")?;
        let id = self.text()?.into();
        let mut usage = None;
        while self.byte(b',').is_some() {
            match self.key()? {
                "id" => return None,
                "usage" => {
                    if usage.replace(Box::new(self.usage()?)).is_some() {
                        return None;
                    }
                }
                _ => self.value(0)?,
            }
        }
        self.byte(b'}')?;
        Some(Change::Usage { id, usage: usage? })
    }

    fn usage(&mut self) -> Option<Usage> {
        let mut usage = Usage::default();
        let mut seen = Vec::with_capacity(DIGITS_MAX);
        self.byte(b'{')?;
        loop {
            let key = self.key()?;
            if seen.contains(&key) {
                return None;
            }
            seen.push(key);
            match key {
                "input" => usage.input = self.number()?,
                "output" => usage.output = self.number()?,
                "cacheRead" => usage.cache_read = self.number()?,
                "cacheWrite" => usage.cache_write = self.number()?,
                "cacheWrite1h" => usage.cache_write_1h = Some(self.number()?),
                "reasoning" => usage.reasoning = Some(self.number()?),
                "totalTokens" => usage.total_tokens = self.number()?,
                "cost" => usage.cost = self.cost()?,
                _ => return None,
            }
            if self.byte(b',').is_none() {
                self.byte(b'}')?;
                return Some(usage);
            }
        }
    }

    /// USD per class, in the order in which it is written.
    fn cost(&mut self) -> Option<Cost> {
        self.token("{\"input\":")?;
        let input = self.decimal()?;
        self.token(",\"output\":")?;
        let output = self.decimal()?;
        self.token(",\"cacheRead\":")?;
        let cache_read = self.decimal()?;
        self.token(",\"cacheWrite\":")?;
        let cache_write = self.decimal()?;
        self.token(",\"total\":")?;
        let total = self.decimal()?;
        self.byte(b'}')?;
        Some(Cost { input, output, cache_read, cache_write, total })
    }

    /// A key of an object and the colon behind it.
    fn key(&mut self) -> Option<&'a str> {
        let key = self.text()?;
        self.byte(b':')?;
        Some(key)
    }

    /// A whole number that a place or a count of tokens may be.
    fn number(&mut self) -> Option<u64> {
        let start = self.at;
        self.any_number()?;
        let digits = self.text.get(start..self.at)?;
        if digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        digits.parse().ok()
    }

    fn decimal(&mut self) -> Option<f64> {
        let start = self.at;
        self.any_number()?;
        let number = self.text.get(start..self.at)?.parse::<f64>().ok()?;
        number.is_finite().then_some(number)
    }

    /// Passes over a value.
    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'"' => self.any_text(),
            b'{' => self.members(depth),
            b'[' => self.elements(depth),
            b't' => self.token("true"),
            b'f' => self.token("false"),
            b'n' => self.token("null"),
            _ => self.any_number(),
        }
    }

    fn members(&mut self, depth: usize) -> Option<()> {
        self.byte(b'{')?;
        if self.byte(b'}').is_some() {
            return Some(());
        }
        loop {
            self.any_text()?;
            self.byte(b':')?;
            self.value(depth + 1)?;
            if self.byte(b',').is_none() {
                return self.byte(b'}');
            }
        }
    }

    fn elements(&mut self, depth: usize) -> Option<()> {
        self.byte(b'[')?;
        if self.byte(b']').is_some() {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            if self.byte(b',').is_none() {
                return self.byte(b']');
            }
        }
    }

    /// Passes over a text, with what escapes it has.
    fn any_text(&mut self) -> Option<()> {
        self.byte(b'"')?;
        loop {
            self.at += plain_len(self.rest());
            if self.byte(b'"').is_some() {
                return Some(());
            }
            match *self.rest() {
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
                [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(u8::is_ascii_hexdigit) => self.at += 6,
                _ => return None,
            }
        }
    }

    fn any_number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// One digit at least.
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

#[cfg(test)]
mod tests;
