//! placeholder: classification of HTTP statuses and error bodies

use serde_json::Value;

use crate::model::{ErrorKind, ErrorRecord};

/// What a classifier knows of the request besides the body.
#[derive(Clone, Debug, Default)]
pub struct ErrorContext {
    pub provider: String,
    pub request_id: Option<String>,
}

/// Classifies an error object found inside a stream or a 2xx body.
pub fn stream_error(body: &Value, context: &ErrorContext) -> ErrorRecord {
    let mut record = ErrorRecord::new(ErrorKind::Protocol, body.to_string());
    record.provider = Some(context.provider.clone());
    record
}
