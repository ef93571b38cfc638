//! Everything a server said that leaves the provider, free of keys.
//!
//! Keeps true: errors with their hints, warnings, notes, stop reasons, ids and header values are masked in this one
//! place, and words are bounded (SEC-1 to SEC-3); what the model wrote is never altered.
//!
//! Must not know: where a text comes from, or how it was made.

use std::sync::Arc;

use futures_util::StreamExt as _;

use crate::model::{ErrorRecord, Secret};
use crate::port::{ProviderEvent, ResponseMeta};
use crate::provider::redact::Masker;
use crate::provider::settle::Inner;

/// Masks the secrets of one request.
#[derive(Clone, Debug)]
pub(super) struct Guard(Arc<Masker>);

impl Guard {
    pub(super) fn new(secrets: &[Secret]) -> Self {
        Self(Arc::new(Masker::new(secrets)))
    }

    /// Guards all that a stream gives.
    pub(super) fn stream(self, inner: Inner) -> Inner {
        inner
            .map(move |item| match item {
                Ok(event) => Ok(self.event(event)),
                Err(record) => Err(self.record(record)),
            })
            .boxed()
    }

    pub(super) fn record(&self, mut record: ErrorRecord) -> ErrorRecord {
        record.message = self.0.mask(&record.message);
        record.hint = record.hint.map(|hint| self.0.mask(&hint));
        for word in [&mut record.code, &mut record.type_, &mut record.request_id] {
            self.word(word);
        }
        record
    }

    pub(super) fn meta(&self, mut meta: ResponseMeta) -> ResponseMeta {
        self.word(&mut meta.request_id);
        for (_, value) in &mut meta.headers {
            *value = self.0.word(value);
        }
        meta
    }

    fn event(&self, event: ProviderEvent) -> ProviderEvent {
        match event {
            ProviderEvent::Start { mut response_id, mut response_model } => {
                self.word(&mut response_id);
                self.word(&mut response_model);
                ProviderEvent::Start { response_id, response_model }
            }
            ProviderEvent::Meta(meta) => ProviderEvent::Meta(Box::new(self.meta(*meta))),
            ProviderEvent::Warning { code, message } => {
                ProviderEvent::Warning { code, message: self.0.clean(&message) }
            }
            ProviderEvent::Note(mut note) => {
                note.message = self.0.clean(&note.message);
                ProviderEvent::Note(note)
            }
            ProviderEvent::Done { stop_reason, mut raw_stop_reason, overflow } => {
                self.word(&mut raw_stop_reason);
                ProviderEvent::Done { stop_reason, raw_stop_reason, overflow }
            }
            kept @ (ProviderEvent::Block { .. } | ProviderEvent::Usage(_)) => kept,
        }
    }

    fn word(&self, word: &mut Option<String>) {
        if let Some(word) = word {
            *word = self.0.word(word);
        }
    }
}
