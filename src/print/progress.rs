//! The spinner on a terminal's stderr.
//!
//! Keeps true: it exists only where it may, is gone before anything else is written and while text streams, and shows
//! one clean line.
//!
//! Must not know: verbosity, colours, what the activity is for.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::format::seconds;
use super::line;
use crate::model::{BlockEvent, Event, Message};

/// Time between two frames.
const FRAME: Duration = Duration::from_millis(120);
const ACTIVITY_CHARS_MAX: usize = 40;
const UNICODE_FRAMES: &str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ";
const ASCII_FRAMES: &str = "|/-\\ ";

/// What the spinner tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing; no spinner.
    None,
    /// A short text.
    Shown(String),
}

impl Activity {
    /// What goes on after this event; `None` = the same as before. `text_is_live` = the answer itself shows that
    /// something happens.
    pub fn after(event: &Event, text_is_live: bool) -> Option<Self> {
        let shown = |text: &str| Some(Self::Shown(text.to_owned()));
        match event {
            Event::RunStart { .. }
            | Event::RunResume { .. }
            | Event::TurnStart { .. }
            | Event::ToolEnd { .. }
            | Event::RetryStart { .. }
            | Event::RetryScheduled { delay_ms: 0, .. }
            | Event::ModelFallback { .. } => shown("waiting"),
            Event::RetryScheduled { delay_ms, .. } => shown(&format!("retrying in {}", seconds(*delay_ms))),
            Event::MessageStart { message } if matches!(**message, Message::Assistant(_)) => shown("waiting"),
            Event::MessageUpdate { index: _, event, usage: _ } => match event {
                BlockEvent::TextStart | BlockEvent::TextDelta(_) if text_is_live => Some(Self::None),
                BlockEvent::TextStart => shown("answering"),
                BlockEvent::ThinkingStart => shown("thinking"),
                BlockEvent::ToolCallStart { id: _, name } => {
                    shown(&format!("calling {}", line(name, ACTIVITY_CHARS_MAX)))
                }
                BlockEvent::TextEnd { .. } | BlockEvent::ThinkingEnd { .. } | BlockEvent::ToolCallEnd(_) => {
                    shown("waiting")
                }
                BlockEvent::TextDelta(_) | BlockEvent::ThinkingDelta(_) | BlockEvent::ToolCallDelta(_) => None,
            },
            Event::ToolStart { tool_name, .. } => shown(&format!("running {}", line(tool_name, ACTIVITY_CHARS_MAX))),
            Event::RunEnd { .. } => Some(Self::None),
            Event::MessageStart { .. }
            | Event::MessageEnd { .. }
            | Event::ToolUpdate { .. }
            | Event::TurnEnd { .. }
            | Event::RecoveryStep { .. }
            | Event::OperationAbort { .. }
            | Event::RetryEnd { .. }
            | Event::EntryAdded { .. }
            | Event::Usage { .. }
            | Event::ConfigUpdate { .. }
            | Event::ValueUpdate { .. }
            | Event::LaneCreated { .. }
            | Event::HandlerError { .. }
            | Event::QueueUpdate { .. }
            | Event::Warning { .. }
            | Event::Fault { .. } => None,
        }
    }
}

/// The spinner, or nothing where there may be none.
#[derive(Debug)]
pub(super) struct Progress {
    allowed: bool,
    ascii: bool,
    activity: Activity,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(allowed: bool, ascii: bool) -> Self {
        Self { allowed, ascii, activity: Activity::None, bar: None }
    }

    /// Sets what is shown; [`Progress::show`] makes it visible.
    pub(super) fn set(&mut self, activity: Activity) {
        if self.activity != activity {
            self.activity = activity;
            self.hide();
        }
    }

    /// Draws the spinner, if there is something to tell.
    pub(super) fn show(&mut self) {
        let (true, None, Activity::Shown(text)) = (self.allowed, &self.bar, &self.activity) else { return };
        let bar = ProgressBar::new_spinner();
        let frames = if self.ascii { ASCII_FRAMES } else { UNICODE_FRAMES };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style.tick_chars(frames));
        }
        bar.set_message(text.clone());
        bar.enable_steady_tick(FRAME);
        self.bar = Some(bar);
    }

    /// Runs `write` while the spinner is off the screen.
    pub(super) fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Removes the spinner from the screen.
    pub(super) fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
    }
}
