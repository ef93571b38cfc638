//! What text mode writes to stdout.
//!
//! Keeps true: held, stdout is an answer or empty, so that text in a pipe means success; live, every text block of a
//! reply appears once, in order, and a reply that a dead process showed does not appear again; a blank line separates
//! runs, and answers between which a queued follow-up was placed; both end with exactly one line feed; only a terminal's text is sanitised.
//!
//! Must not know: stderr, colours, how bytes are written.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{ResultLine, Sanitizer};
use crate::model::{AssistantMessage, BlockEvent, EntryId, Event, InboxKind, Message, Queued, Reason, StopReason};

/// The text on stdout.
#[derive(Debug)]
pub struct Answer {
    flow: Flow,
    form: Form,
    follow_ups: FollowUps,
}

/// Messages that are asked when a run would end: what stands before one is an answer of its own.
#[derive(Debug, Default)]
struct FollowUps {
    /// Those that wait now.
    waiting: HashSet<EntryId>,
    /// Those the open run has placed.
    placed: Vec<Arc<Message>>,
    /// The open run was begun by a dead process. What that placed stands before the first message told here.
    resumed: bool,
    first_told: Option<Arc<Message>>,
}

impl FollowUps {
    fn wait(&mut self, queues: &[Queued]) {
        let follow_ups =
            queues.iter().filter(|queued| matches!(queued.kind, InboxKind::FollowUp | InboxKind::NextFollowUp));
        self.waiting = follow_ups.map(|queued| queued.entry_id.clone()).collect();
    }

    fn begin(&mut self, resumed: bool) {
        self.placed.clear();
        self.resumed = resumed;
        self.first_told = None;
    }

    /// Notes a message that was placed, and returns whether it had waited here. A message is told before its queue.
    fn place(&mut self, id: Option<&EntryId>, message: &Arc<Message>) -> bool {
        let had_waited = id.is_some_and(|id| self.waiting.remove(id));
        if had_waited {
            self.placed.push(Arc::clone(message));
        }
        had_waited
    }

    /// The answers in the messages of a run: the last reply before each of them, and the last of all.
    fn answers(&self, messages: &[Arc<Message>]) -> Vec<String> {
        let is_first = |message: &Arc<Message>| self.first_told.as_ref().is_some_and(|told| Arc::ptr_eq(told, message));
        let of_dead = if self.resumed { messages.iter().position(is_first).unwrap_or(messages.len()) } else { 0 };
        let mut parts = vec![None];
        for (at, message) in messages.iter().enumerate() {
            // Which of its messages were follow-ups a dead process did not say; they are asked where all is answered.
            let previous = at.checked_sub(1).and_then(|before| messages.get(before));
            let follows = if at < of_dead {
                matches!(**message, Message::User(_)) && previous.is_some_and(|previous| is_answer(previous))
            } else {
                self.placed.iter().any(|placed| Arc::ptr_eq(placed, message))
            };
            if follows {
                parts.push(None);
            }
            if let (Some(reply), Some(part)) = (message.as_assistant(), parts.last_mut()) {
                *part = Some(reply);
            }
        }
        parts.into_iter().flatten().map(AssistantMessage::text).filter(|text| !text.is_empty()).collect()
    }
}

#[derive(Debug)]
enum Form {
    /// Final answers, kept until the verdict is known.
    Held(Vec<String>),
    Live(Live),
}

impl Answer {
    /// A terminal gets text live and sanitised, a pipe the final answer; `stream` makes a pipe live.
    pub fn new(is_terminal: bool, stream: bool) -> Self {
        let form = if is_terminal || stream { Form::Live(Live::default()) } else { Form::Held(Vec::new()) };
        Self {
            flow: Flow { sanitizer: is_terminal.then(Sanitizer::new), ..Flow::default() },
            form,
            follow_ups: FollowUps::default(),
        }
    }

    /// Whether text appears as it comes.
    pub fn is_live(&self) -> bool {
        matches!(self.form, Form::Live(_))
    }

    /// Whether the last line has no line feed yet.
    pub fn is_line_open(&self) -> bool {
        self.flow.is_open
    }

    /// Whether text of the reply that ended last has appeared: should it be asked for again, its reader must know.
    pub fn broke_off(&self) -> bool {
        matches!(&self.form, Form::Live(live) if live.showed)
    }

    /// Appends what an event shows. `recovery` = it tells of work that a dead process began.
    pub fn event(&mut self, event: &Event, recovery: bool, out: &mut Vec<u8>) {
        match event {
            Event::RunStart { .. } => self.follow_ups.begin(false),
            Event::RunResume { .. } => self.follow_ups.begin(true),
            Event::QueueUpdate { queues } => self.follow_ups.wait(queues),
            Event::MessageEnd { message, entry_id } => {
                if !recovery {
                    self.follow_ups.first_told.get_or_insert_with(|| Arc::clone(message));
                }
                if self.follow_ups.place(entry_id.as_ref(), message) {
                    self.flow.part();
                }
            }
            _ => {}
        }
        match (&mut self.form, event) {
            (Form::Live(live), Event::RunStart { .. } | Event::RunResume { .. }) => {
                *live = Live::default();
                self.flow.part();
            }
            // What had come of it was shown while it came.
            (Form::Live(_), Event::MessageStart { .. } | Event::MessageUpdate { .. } | Event::MessageEnd { .. })
                if recovery => {}
            (Form::Held(finals), Event::RunEnd { messages, outcome, .. }) if has_answer(outcome.reason) => {
                finals.extend(self.follow_ups.answers(messages));
            }
            (Form::Live(live), Event::MessageStart { message }) if is_reply(message) => live.start(),
            (Form::Live(live), Event::MessageUpdate { index, event, usage: _ }) => {
                live.block(*index, event, &mut self.flow, out);
            }
            (Form::Live(live), Event::MessageEnd { message, .. }) => {
                if let Some(reply) = message.as_assistant() {
                    live.finish(reply, &mut self.flow, out);
                }
            }
            // A run that only had to be finished: its answer came in a dead process.
            (Form::Live(live), Event::RunEnd { messages, outcome, .. })
                if live.replies == 0 && has_answer(outcome.reason) =>
            {
                let answer = last_reply(messages).map(AssistantMessage::text).unwrap_or_default();
                self.flow.paragraph(&answer, out);
            }
            (Form::Held(_) | Form::Live(_), _) => {}
        }
    }

    /// Appends what is due once the verdict is known.
    pub fn result(&mut self, line: &ResultLine, out: &mut Vec<u8>) {
        if !has_answer(line.reason) {
            return;
        }
        if let Form::Held(finals) = &mut self.form {
            for text in std::mem::take(finals) {
                self.flow.paragraph(&text, out);
            }
        }
        // An answer that no event brought is printed from the result.
        if !self.flow.wrote {
            self.flow.paragraph(&line.text, out);
        }
    }

    /// Ends a line that is still open, so that something else can be shown below it.
    pub fn break_line(&mut self, out: &mut Vec<u8>) {
        if self.flow.is_open {
            self.flow.newlines = self.flow.newlines.saturating_sub(1);
            self.flow.line_feed(out);
        }
    }
}

/// Whether a run that ended so has an answer to print. Exhaustive, so that a new reason is decided here.
pub(super) fn has_answer(reason: Reason) -> bool {
    match reason {
        Reason::Completed | Reason::ToolTerminated | Reason::Length => true,
        Reason::Error
        | Reason::Refused
        | Reason::Unavailable
        | Reason::Auth
        | Reason::Usage
        | Reason::MaxTurns
        | Reason::MaxCost
        | Reason::MaxRepeats
        | Reason::Blocked
        | Reason::Suspended
        | Reason::Schema
        | Reason::Interrupted
        | Reason::Timeout
        | Reason::Pipe
        | Reason::Internal => false,
    }
}

fn last_reply(messages: &[Arc<Message>]) -> Option<&AssistantMessage> {
    messages.iter().rev().find_map(|message| message.as_assistant())
}

/// A reply behind which nothing is owed.
fn is_answer(message: &Message) -> bool {
    message.as_assistant().is_some_and(|reply| {
        matches!(reply.stop_reason, StopReason::Stop | StopReason::Length) && reply.calls().next().is_none()
    })
}

fn is_reply(message: &Message) -> bool {
    message.as_assistant().is_some()
}

/// Text blocks of the reply that is streaming. One block is shown at a time; the text of others waits for its turn.
#[derive(Debug, Default)]
struct Live {
    current: Option<usize>,
    /// Bytes of the current block that have been passed on.
    passed: usize,
    waiting: BTreeMap<usize, Waiting>,
    /// Any text of this reply has been passed on.
    any: bool,
    /// Replies of this run that have ended.
    replies: u32,
    /// The last of them had text that was passed on.
    showed: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    text: String,
    ended: bool,
}

impl Live {
    fn start(&mut self) {
        *self = Self { replies: self.replies, ..Self::default() };
    }

    fn block(&mut self, index: usize, event: &BlockEvent, flow: &mut Flow, out: &mut Vec<u8>) {
        match event {
            BlockEvent::TextStart => {
                self.current.get_or_insert(index);
            }
            BlockEvent::TextDelta(delta) if *self.current.get_or_insert(index) == index => self.pass(delta, flow, out),
            BlockEvent::TextDelta(delta) => self.waiting.entry(index).or_default().text.push_str(delta),
            BlockEvent::TextEnd { content, signature: _ } if *self.current.get_or_insert(index) == index => {
                // The content is authoritative: it may go beyond the deltas.
                self.pass(content.get(self.passed..).unwrap_or_default(), flow, out);
                self.next(flow, out);
            }
            BlockEvent::TextEnd { content, signature: _ } => {
                self.waiting.insert(index, Waiting { text: content.clone(), ended: true });
            }
            BlockEvent::ThinkingStart
            | BlockEvent::ThinkingDelta(_)
            | BlockEvent::ThinkingEnd { .. }
            | BlockEvent::ToolCallStart { .. }
            | BlockEvent::ToolCallDelta(_)
            | BlockEvent::ToolCallEnd(_) => {}
        }
    }

    fn pass(&mut self, text: &str, flow: &mut Flow, out: &mut Vec<u8>) {
        self.passed = self.passed.saturating_add(text.len());
        self.any |= !text.is_empty();
        flow.text(text, out);
    }

    /// Ends the current block and shows the blocks that waited, up to one that has not ended.
    fn next(&mut self, flow: &mut Flow, out: &mut Vec<u8>) {
        flow.end_block(out);
        self.current = None;
        while let Some((index, block)) = self.waiting.pop_first() {
            self.passed = 0;
            self.pass(&block.text, flow, out);
            if !block.ended {
                self.current = Some(index);
                return;
            }
            flow.end_block(out);
        }
        self.passed = 0;
    }

    fn finish(&mut self, reply: &AssistantMessage, flow: &mut Flow, out: &mut Vec<u8>) {
        while self.current.is_some() {
            self.next(flow, out);
        }
        if !self.any {
            self.pass(&reply.text(), flow, out);
        }
        flow.end_block(out);
        let (replies, showed) = (self.replies.saturating_add(1), self.any);
        *self = Self { replies, showed, ..Self::default() };
    }
}

/// The bytes of stdout in order. Line feeds at the end of a text wait until more text shows that they are inside.
#[derive(Debug, Default)]
struct Flow {
    sanitizer: Option<Sanitizer>,
    newlines: usize,
    /// The last line has no line feed yet.
    is_open: bool,
    wrote: bool,
    /// A blank line comes before more text.
    parted: bool,
}

impl Flow {
    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        let mut cleaned = String::new();
        let text = match &mut self.sanitizer {
            Some(sanitizer) => {
                sanitizer.push(text, &mut cleaned);
                cleaned.as_str()
            }
            None => text,
        };
        let body = text.trim_end_matches('\n');
        let trailing = text.len().saturating_sub(body.len());
        if body.is_empty() {
            self.newlines = self.newlines.saturating_add(trailing);
            return;
        }
        if std::mem::take(&mut self.parted) {
            if self.is_open {
                self.line_feed(out);
            }
            out.push(b'\n');
        }
        out.extend(std::iter::repeat_n(b'\n', self.newlines));
        out.extend_from_slice(body.as_bytes());
        self.newlines = trailing;
        self.is_open = true;
        self.wrote = true;
    }

    fn end_block(&mut self, out: &mut Vec<u8>) {
        if self.is_open {
            self.line_feed(out);
        }
        self.newlines = 0;
        // A control sequence does not reach from one text into the next.
        if let Some(sanitizer) = &mut self.sanitizer {
            *sanitizer = Sanitizer::new();
        }
    }

    fn line_feed(&mut self, out: &mut Vec<u8>) {
        out.push(b'\n');
        self.is_open = false;
    }

    /// Separates what was written from what comes.
    fn part(&mut self) {
        self.parted = self.wrote;
    }

    /// A whole text, separated from the one before by a blank line.
    fn paragraph(&mut self, text: &str, out: &mut Vec<u8>) {
        if text.trim_matches('\n').is_empty() {
            return;
        }
        self.part();
        self.text(text, out);
        self.end_block(out);
    }
}
