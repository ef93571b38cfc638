//! JSON that a server writes behind its events without framing it, on one line or on many (NET-08).

use crate::provider::json::Balance;

/// Bytes of such a document that are kept.
const STRAY_BYTES_MAX: usize = 1024 * 1024;

/// Collects lines until they are a document.
#[derive(Debug, Default)]
pub(super) struct Stray {
    text: String,
    balance: Balance,
}

impl Stray {
    /// Takes a line that is no field of an event stream; gives the document it completes.
    pub(super) fn line(&mut self, line: &str) -> Option<String> {
        let begins = line.trim_start().starts_with(['{', '[']);
        if self.text.is_empty() && !begins || self.text.len() + line.len() > STRAY_BYTES_MAX {
            self.forget();
            return None;
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.balance.feed(line);
        self.balance.is_closed().then(|| self.take())
    }

    /// The stream goes on: what was collected was no document.
    pub(super) fn forget(&mut self) {
        if !self.text.is_empty() {
            self.take();
        }
    }

    fn take(&mut self) -> String {
        self.balance = Balance::default();
        std::mem::take(&mut self.text)
    }
}
