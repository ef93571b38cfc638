use async_trait::async_trait;

use crate::model::Event;

/// Where a loop's events go, one after another. A slow sink slows the run.
#[async_trait]
pub trait Sink: Send {
    /// Takes one event. After an error the loop emits nothing more and cancels the run.
    async fn emit(&mut self, event: Event) -> Result<(), SinkError>;
}

/// The sink can take no more events, for example because the reader of stdout left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event sink is closed: {0}")]
pub struct SinkError(pub String);
