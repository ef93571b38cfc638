//! What people and programs see of a run: text, JSON lines, progress, colour.
//!
//! Keeps true: stdout holds only the answer or only JSON lines; wire types are separate from the events and made from
//! them in one place; control sequences of a model or tool never reach a terminal, and a pipe gets the bytes
//! unchanged; a closed reader is reported, never a panic; no line is lost while its reader reads.
//!
//! Must not know: state, storage, exit codes, how the answer came about.

mod answer_file;
mod denial;
mod events;
mod file;
mod format;
mod human;
pub mod jsonl;
mod merge;
mod out;
mod pieces;
mod progress;
mod sanitize;
mod sentence;
mod stderr;
mod style;
mod text;
mod transcript;
mod wire;

pub use crate::model::rfc3339;
pub use answer_file::AnswerFile;
pub use denial::denial;
pub use events::Events;
pub use file::{Inherited, append_private, create_private, io_reason};
pub use human::{Column, Human, HumanConfig, Verbosity, error_lines};
#[doc(inline)]
pub use jsonl::{Encoder, Level};
pub use merge::merge;
pub use out::{
    Config, EventSink, Finished, Handle, Mode, Msg, Patience, Printer, PrinterGone, QUEUE_MESSAGES, STALL_LIMIT,
    StdoutFailure, StdoutWatch, stalled, stderr_writer, stdout_writer, write_text,
};
pub use pieces::{LINE_BYTES_MAX, WRITE_BYTES_MAX};
pub use progress::Activity;
pub use sanitize::{Sanitizer, clean, line};
pub use sentence::dropped;
pub use stderr::{IsReady, Stderr};
pub use style::{ColorMode, EnvFacts, Paint, use_color};
pub use text::Answer;
pub use transcript::{Mask, Transcript, TranscriptHead, mask_json, minute};
pub use wire::{
    Denial, LimitsLine, ModelRef, ParentRef, ResultLine, SESSION_VERSION, SessionLine, UsageShare, UsageTotals,
};
