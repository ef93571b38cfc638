//! The vocabulary: messages, blocks, usage, stop reasons, error records, model facts, ids, the parts of a session and
//! the one `Event`.
//!
//! Keeps true: messages, blocks and usage derive the camelCase transcript form once, here; fields and roles this
//! version does not know survive a round trip; [`StopReason`] and [`ErrorKind`] are closed; ids of the calls of one
//! reply are unique.
//!
//! Must not know: files, HTTP, terminals, argument parsing, the keys of JSONL events.

mod builder;
mod error;
mod event;
mod facts;
mod ids;
mod image;
pub mod message;
pub mod operation;
mod outcome;
mod packed;
mod partial;
mod plain;
mod secret;
pub mod session;
mod stop;
mod tagged;
mod time;
mod usage;
mod utf16;

pub use builder::MessageBuilder;
pub use error::{ErrorKind, ErrorRecord, ErrorRow};
pub use event::{
    BlockEvent, Event, HandlerKind, LaneEvent, MERGED_BYTES_MAX, NamedValue, Queued, RecoveryAction, ToolResultView,
};
pub use facts::{Input, Model, PriceTier, Prices, Thinking, ThinkingStyle};
pub use ids::{CallIds, EntryId, RunId, short_id};
pub use image::ImageKind;
#[doc(inline)]
pub use message::{
    ArgumentsError, AssistantBlock, AssistantHead, AssistantMessage, Content, CustomMessage, Diagnostic, Extra,
    ImageBlock, Message, TextBlock, ThinkingBlock, ToolCall, ToolResultMessage, UserContent, UserMessage,
};
pub use operation::{
    CallRecord, CallStatus, Continuation, Control, Counters, Execution, GenerationContext, Intent, Leaf, OperationMeta,
    OperationState, PendingReply, QueueMode, Replay, RetryPolicy, RunSettings, StopMark, StoredOptions, ToolBatch,
};
pub use outcome::{CancelCause, Reason, RunOutcome};
pub(crate) use packed::Packed;
pub use plain::plain_len;
pub use secret::{Headers, Secret};
pub use session::{
    Entry, EntryBody, InboxItem, InboxKind, LaneConfig, LaneModel, LaneState, MAIN_LANE, OperationError,
    OperationResult, PendingEntry, Status, UsageKind, UsageRow, Write,
};
pub use stop::StopReason;
pub use time::{rfc3339, stamp};
pub use usage::{Cost, Usage};
pub use utf16::{ByteOrder, Utf16};
