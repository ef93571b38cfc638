//! A lane as programs use it: prompts, queues, aborts, configuration.
//!
//! Keeps true: at most one call drives a lane; what `steer` and its like return for is durable; dropping a call that
//! drives leaves everything that was committed, and the next call goes on from there.
//!
//! Must not know: how a step works.

use std::sync::Arc;

use super::core::{Core, Halt};
use super::drive::{self, Driver};
use super::error::{AbortError, Fault, InvalidMessage, QueueError, RunError, WriteError};
use super::gate::Gate;
use super::import;
use super::memory::LaneMemory;
use super::options::{Drive, Outcome};
use super::phase::{accept, cancel, inbox, request};
use super::plan::Plan;
use super::snapshot::{OperationStatus, OperationView, RetryView, Snapshot};
use crate::model::{
    CancelCause, Content, EntryId, Event, ImageBlock, InboxItem, InboxKind, LaneConfig, LaneState, Leaf, Message,
    OperationResult, PendingEntry, RunId, StopReason, UserContent,
};

/// A lane of an open session. A clone is another handle on it.
#[derive(Clone, Debug)]
pub struct Lane {
    pub(super) core: Arc<Core>,
    pub(super) name: Arc<str>,
}

/// What goes to a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    text: Option<(String, Vec<ImageBlock>)>,
    messages: Vec<Message>,
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self { text: Some((text.to_owned(), Vec::new())), messages: Vec::new() }
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self { text: Some((text, Vec::new())), messages: Vec::new() }
    }
}

impl From<(String, Vec<ImageBlock>)> for Input {
    fn from(text: (String, Vec<ImageBlock>)) -> Self {
        Self { text: Some(text), messages: Vec::new() }
    }
}

impl From<Message> for Input {
    fn from(message: Message) -> Self {
        Self { text: None, messages: vec![message] }
    }
}

impl From<Vec<Message>> for Input {
    fn from(messages: Vec<Message>) -> Self {
        Self { text: None, messages }
    }
}

impl Input {
    /// The messages; none of an empty text without an image.
    fn into_messages(self, now: u64) -> Vec<Message> {
        let Self { text, mut messages } = self;
        if let Some((text, images)) = text
            && !(text.trim().is_empty() && images.is_empty())
        {
            messages.push(Message::user(text, images, now));
        }
        messages
    }

    /// The one message of a queue.
    fn into_message(self, now: u64) -> Result<Message, InvalidMessage> {
        let mut messages = self.into_messages(now);
        let message = messages.pop().ok_or(InvalidMessage::Empty)?;
        if !messages.is_empty() {
            return Err(InvalidMessage::Several);
        }
        match &message {
            Message::User(user) if is_blank(&user.content) => Err(InvalidMessage::Empty),
            Message::Assistant(reply) if reply.stop_reason == StopReason::Pending => {
                Err(InvalidMessage::PendingAssistant)
            }
            Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Custom(_) => Ok(message),
        }
    }
}

fn is_blank(content: &UserContent) -> bool {
    match content {
        UserContent::Text(text) => text.trim().is_empty(),
        UserContent::Blocks(blocks) => blocks.iter().all(|block| match block {
            Content::Text(text) => text.text.trim().is_empty(),
            Content::Image(_) | Content::Other(_) => false,
        }),
    }
}

/// What became of a queued message that was to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    Cancelled,
    /// It stands in the tree.
    AlreadyConsumed,
    NotFound,
}

/// What an abort took out of the queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aborted {
    /// False where it had been asked for before.
    pub newly_requested: bool,
    pub steer: Vec<Arc<Message>>,
    pub follow_up: Vec<Arc<Message>>,
}

impl Lane {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a prompt to the end, or to a wait.
    ///
    /// # Errors
    /// The lane is busy, or there is nothing to send. Nothing was stored then. Or the session can not be written any
    /// more.
    pub async fn prompt(&self, input: impl Into<Input> + Send, drive: Drive) -> Result<Outcome, RunError> {
        self.prompt_then(input, Vec::new(), drive).await
    }

    /// The same, with messages that are queued in the same transaction and go to the model one by one, each when
    /// nothing else is owed.
    ///
    /// # Errors
    /// Those of [`Lane::prompt`].
    pub async fn prompt_then(
        &self,
        input: impl Into<Input> + Send,
        follow_ups: Vec<Input>,
        drive: Drive,
    ) -> Result<Outcome, RunError> {
        let claim = self.claim()?;
        let messages = input.into().into_messages(self.core.options.clock.now_ms());
        if messages.is_empty() {
            return Err(RunError::InvalidMessage { reason: InvalidMessage::Empty });
        }
        // What others left before comes before.
        import::spool(&self.core, &self.name).await?;
        self.accept(messages, follow_ups).await?;
        self.drive(claim, drive, false).await
    }

    /// Goes on: with the open operation, else with what waits, else with the transcript as it is.
    ///
    /// # Errors
    /// [`RunError::NothingToContinue`], and those of [`Lane::prompt`].
    pub async fn continue_(&self, drive: Drive) -> Result<Outcome, RunError> {
        self.continue_then(Vec::new(), drive).await
    }

    /// The same; where a new run begins, messages are queued with it as [`Lane::prompt_then`] does.
    ///
    /// # Errors
    /// Those of [`Lane::continue_`].
    pub async fn continue_then(&self, follow_ups: Vec<Input>, drive: Drive) -> Result<Outcome, RunError> {
        let claim = self.claim()?;
        import::spool(&self.core, &self.name).await?;
        if self.open_operation().is_some() {
            return self.drive(claim, drive, true).await;
        }
        self.accept(Vec::new(), follow_ups).await?;
        self.drive(claim, drive, false).await
    }

    /// Takes in what other processes have left, and tells whether anything waits that asks for a reply.
    ///
    /// # Errors
    /// The session can not be written any more.
    pub async fn has_queued(&self) -> Result<bool, RunError> {
        import::spool(&self.core, &self.name).await?;
        Ok(self.inbox().iter().any(|item| item.kind != InboxKind::Write))
    }

    async fn accept(&self, messages: Vec<Message>, follow_ups: Vec<Input>) -> Result<(), RunError> {
        let options = &self.core.options;
        let now = options.clock.now_ms();
        let follow_ups = follow_ups.into_iter().map(|input| input.into_message(now)).collect::<Result<_, _>>();
        let request = accept::Request {
            messages,
            follow_ups: follow_ups.map_err(|reason| RunError::InvalidMessage { reason })?,
            settings: options.settings.clone(),
            system_prompt: options.system_prompt.clone(),
        };
        self.core.job(&self.name, |lane, facts| Ok((Some(accept::run(lane, &request, facts)?), ()))).await
    }

    async fn drive(&self, claim: Claim<'_>, drive: Drive, resumed: bool) -> Result<Outcome, RunError> {
        let open = self.core.memory().lanes.get(&*self.name).and_then(|lane| lane.operation.clone());
        let Some(open) = open else { return Err(RunError::NothingToContinue) };
        let driver = Driver::new(&self.core, &self.name, Arc::clone(&claim.gate), drive, resumed, &open);
        let run = Box::pin(driver.run());
        let ended = if self.core.options.inbox.is_some() {
            tokio::select! {
                biased;
                ended = run => ended,
                halt = import::watch(&self.core, &self.name) => Err(halt),
            }
        } else {
            run.await
        };
        drop(claim);
        Ok(ended?)
    }

    /// Takes the lane for one call.
    fn claim(&self) -> Result<Claim<'_>, RunError> {
        let mut drives = self.core.drives();
        if drives.contains_key(&*self.name) {
            let open = self.open_operation();
            let (operation, kind) = open.unwrap_or_else(|| (RunId::new(""), "call".to_owned()));
            return Err(RunError::LaneBusy { operation, kind });
        }
        let gate = Arc::new(Gate::new());
        drives.insert(self.name.to_string(), Arc::clone(&gate));
        Ok(Claim { lane: self, gate })
    }

    /// The open operation and its kind.
    pub fn open_operation(&self) -> Option<(RunId, String)> {
        let memory = self.core.memory();
        let open = memory.lanes.get(&*self.name)?.operation.as_ref()?;
        Some((open.id().clone(), open.meta.intent.kind().to_owned()))
    }

    /// The finished turns of the open operation, and the calls of it that have ended.
    pub fn progress(&self) -> Option<(u32, usize)> {
        let memory = self.core.memory();
        let lane = memory.lanes.get(&*self.name)?;
        let open = lane.operation.as_ref()?;
        let own = lane.messages_since(open.meta.source_tip_id.as_ref());
        let results = own.iter().filter(|message| matches!(***message, Message::ToolResult(_))).count();
        // Those that wait for their place are told no more than once, too.
        let staged = open.staged.values().filter(|message| matches!(***message, Message::ToolResult(_))).count();
        Some((open.state.counters.turns, results.saturating_add(staged)))
    }

    /// How the last operation ended.
    pub fn last_result(&self) -> Option<Arc<OperationResult>> {
        self.core.memory().lanes.get(&*self.name)?.last_result.clone()
    }

    /// What waits for its place, in its order.
    pub fn inbox(&self) -> Vec<InboxItem> {
        self.core.memory().lanes.get(&*self.name).map(|lane| lane.state.inbox.clone()).unwrap_or_default()
    }

    /// What the lane works with.
    pub fn configuration(&self) -> Option<LaneConfig> {
        self.core.memory().lanes.get(&*self.name).map(|lane| lane.config.clone())
    }

    /// The newest entry.
    pub fn tip(&self) -> Option<EntryId> {
        self.core.memory().lanes.get(&*self.name)?.tip.clone()
    }

    /// The messages on the path, oldest first.
    pub fn messages(&self) -> Vec<(EntryId, Arc<Message>)> {
        let memory = self.core.memory();
        let Some(lane) = memory.lanes.get(&*self.name) else { return Vec::new() };
        lane.messages().map(|(id, message)| (id.clone(), Arc::clone(message))).collect()
    }

    /// Whether what a model would see ends in something to answer.
    pub fn can_continue(&self) -> bool {
        self.core.memory().lanes.get(&*self.name).is_some_and(accept::can_continue)
    }

    /// Queues a message for the next request; idle or running.
    ///
    /// # Errors
    /// The message is empty or more than one, or the session can not be written any more.
    pub async fn steer(&self, input: impl Into<Input> + Send) -> Result<EntryId, QueueError> {
        self.queue(InboxKind::Steer, input.into()).await
    }

    /// Queues a message for when nothing else is owed.
    ///
    /// # Errors
    /// As for [`Lane::steer`].
    pub async fn follow_up(&self, input: impl Into<Input> + Send) -> Result<EntryId, QueueError> {
        self.queue(InboxKind::FollowUp, input.into()).await
    }

    /// Queues a message for the next run.
    ///
    /// # Errors
    /// As for [`Lane::steer`].
    pub async fn next_run(&self, input: impl Into<Input> + Send) -> Result<EntryId, QueueError> {
        self.queue(InboxKind::NextRun, input.into()).await
    }

    /// The same, with messages that follow in that run one by one, each when nothing else is owed. All are queued, or
    /// none.
    ///
    /// # Errors
    /// As for [`Lane::steer`].
    pub async fn next_run_then(&self, input: impl Into<Input> + Send, then: Vec<Input>) -> Result<(), QueueError> {
        let then = then.into_iter().map(|input| (InboxKind::NextFollowUp, input));
        self.queue_all(std::iter::once((InboxKind::NextRun, input.into())).chain(then).collect()).await.map(drop)
    }

    /// Queues messages as [`Lane::follow_up`] does: all, or none.
    ///
    /// # Errors
    /// As for [`Lane::steer`].
    pub async fn follow_ups(&self, inputs: Vec<Input>) -> Result<(), QueueError> {
        if inputs.is_empty() {
            return Ok(());
        }
        self.queue_all(inputs.into_iter().map(|input| (InboxKind::FollowUp, input)).collect()).await.map(drop)
    }

    async fn queue(&self, kind: InboxKind, input: Input) -> Result<EntryId, QueueError> {
        let ids = self.queue_all(vec![(kind, input)]).await?;
        ids.into_iter().next().ok_or(QueueError::InvalidMessage { reason: InvalidMessage::Empty })
    }

    async fn queue_all(&self, inputs: Vec<(InboxKind, Input)>) -> Result<Vec<EntryId>, QueueError> {
        let options = &self.core.options;
        let mut items = Vec::with_capacity(inputs.len());
        for (kind, input) in inputs {
            let message =
                input.into_message(options.clock.now_ms()).map_err(|reason| QueueError::InvalidMessage { reason })?;
            let item = InboxItem { entry_id: EntryId::new(options.ids.next_id()), kind };
            items.push((item, PendingEntry::Message { payload: Arc::new(message) }));
        }
        let ids = items.iter().map(|(item, _)| item.entry_id.clone()).collect();
        self.core.job(&self.name, |lane, _| Ok::<_, Halt>((Some(plan_queue(lane, items)?), ()))).await?;
        self.core.barrier().await?;
        self.core.nudge().await?;
        Ok(ids)
    }

    /// Adds a message or custom entry that asks for no reply: at once on an idle lane, else at the next boundary.
    ///
    /// # Errors
    /// It is a reply that is still streaming, or the session can not be written any more.
    pub async fn append(&self, entry: PendingEntry) -> Result<EntryId, QueueError> {
        if entry
            .message()
            .and_then(|message| message.as_assistant())
            .is_some_and(|reply| reply.stop_reason == StopReason::Pending)
        {
            return Err(QueueError::InvalidMessage { reason: InvalidMessage::PendingAssistant });
        }
        let id = EntryId::new(self.core.options.ids.next_id());
        self.core
            .job(&self.name, |lane, _| {
                let plan = match lane.operation {
                    Some(_) => {
                        let item = InboxItem { entry_id: id.clone(), kind: InboxKind::Write };
                        plan_queue(lane, [(item, entry)])?
                    }
                    None => plan_append(lane, &id, entry)?,
                };
                Ok::<_, Halt>((Some(plan), ()))
            })
            .await?;
        self.core.barrier().await?;
        self.core.nudge().await?;
        Ok(id)
    }

    /// Takes a queued message back.
    ///
    /// # Errors
    /// The session can not be written any more.
    pub async fn cancel_queued(&self, id: &EntryId) -> Result<Cancelled, QueueError> {
        let cancelled = self
            .core
            .job(&self.name, |lane, _| {
                if !lane.state.inbox.iter().any(|item| item.entry_id == *id) {
                    let consumed = self.core.is_stored(id)?;
                    return Ok((None, if consumed { Cancelled::AlreadyConsumed } else { Cancelled::NotFound }));
                }
                let mut plan = Plan::new(lane);
                plan.wait_over(id);
                let mut state = lane.state.clone();
                state.inbox.retain(|item| item.entry_id != *id);
                if !state.inbox.iter().any(|item| item.kind == InboxKind::NextRun) {
                    // Nothing is left to follow.
                    inbox::begin(&mut state);
                }
                plan.lane_state(state)?;
                plan.queues();
                Ok::<_, Halt>((Some(plan), Cancelled::Cancelled))
            })
            .await?;
        self.core.nudge().await?;
        Ok(cancelled)
    }

    /// Ends the open operation. Returns when that is durable; what had started is settled by who drives, or by the next
    /// [`Lane::continue_`].
    ///
    /// # Errors
    /// No operation is open, or the session can not be written any more.
    pub async fn abort(&self, cause: CancelCause) -> Result<Aborted, AbortError> {
        match drive::abort(&self.core, &self.name, cause).await? {
            None => Err(AbortError::NoActiveOperation),
            Some(cancel::Taken { newly_requested, steer, follow_up }) => {
                Ok(Aborted { newly_requested, steer, follow_up })
            }
        }
    }

    /// Changes what the lane works with. An open operation keeps what it captured, but where its next request is only
    /// about to be made.
    ///
    /// # Errors
    /// The session can not be written any more.
    pub async fn configure(&self, config: LaneConfig) -> Result<(), WriteError> {
        let is_driven = self.core.drives().contains_key(&*self.name);
        self.core
            .job(&self.name, |lane, facts| {
                let mut plan = Plan::new(lane);
                if lane.config != config {
                    plan.config(config.clone())?;
                    plan.event(Event::ConfigUpdate {
                        config: Arc::new(config.clone()),
                        previous: Some(Arc::new(lane.config.clone())),
                    });
                    if let Some(open) = &lane.operation
                        && let Some(state) = request::reconfigure(lane, open, &config, is_driven, facts)
                    {
                        let (state, event) = state;
                        plan.state(open, state)?;
                        if let Some(event) = event {
                            plan.event(event);
                        }
                    }
                }
                Ok::<_, Halt>(((!plan.writes.is_empty()).then_some(plan), ()))
            })
            .await?;
        if let Some(gate) = self.core.drives().get(&*self.name) {
            gate.notify_changed();
        }
        self.core.nudge().await?;
        Ok(())
    }

    /// What there is to see. [`reduce`](super::reduce) keeps it up to date with the events that follow.
    pub fn snapshot(&self) -> Snapshot {
        let memory = self.core.memory();
        let mut snapshot = Snapshot {
            lane: self.name.to_string(),
            stats: memory.stats.clone(),
            faulted: memory.fault.is_some(),
            ..Snapshot::default()
        };
        let Some(lane) = memory.lanes.get(&*self.name) else { return snapshot };
        snapshot.transcript.clone_from(&lane.path);
        snapshot.tip_id.clone_from(&lane.tip);
        snapshot.last_result.clone_from(&lane.last_result);
        snapshot.configuration = Some(lane.config.clone());
        snapshot.queues = lane.queues();
        snapshot.operation = lane.operation.as_ref().map(|open| {
            let kind = open.meta.intent.kind();
            let mut view =
                OperationView::new(open.id().clone(), kind, open.meta.started_at, open.meta.source_tip_id.clone());
            if open.cancelled() {
                view.status = OperationStatus::Aborting;
            }
            if let Leaf::AssistantWait { generation_context, next_attempt, not_before, error_message } =
                &open.state.leaf
            {
                view.retry = Some(RetryView {
                    attempt: *next_attempt,
                    max_attempts: generation_context.retry_policy.max_attempts,
                    not_before: *not_before,
                    error_message: error_message.clone(),
                });
            }
            view
        });
        // Under the lock of memory: whatever is committed later is told later.
        snapshot.seq = self.core.bus.show(&self.name, snapshot.operation.as_mut());
        snapshot
    }
}

/// One call that drives a lane.
struct Claim<'a> {
    lane: &'a Lane,
    gate: Arc<Gate>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.lane.core.drives().remove(&*self.lane.name);
        self.lane.core.bus.forget(&self.lane.name);
        // What still runs of a call that was dropped is told to end; nothing more is stored for it.
        self.gate.token().cancel();
    }
}

/// Queues something.
pub(super) fn plan_queue(
    lane: &LaneMemory,
    items: impl IntoIterator<Item = (InboxItem, PendingEntry)>,
) -> Result<Plan, Fault> {
    let mut plan = Plan::new(lane);
    let mut state = lane.state.clone();
    for (item, payload) in items {
        plan.wait(&item.entry_id, payload)?;
        state.inbox.push(item);
    }
    plan.lane_state(state)?;
    plan.queues();
    Ok(plan)
}

/// Places what was to be written earlier, then this.
fn plan_append(lane: &LaneMemory, id: &EntryId, entry: PendingEntry) -> Result<Plan, Fault> {
    let mut plan = Plan::new(lane);
    let earlier: Vec<&InboxItem> = lane.state.inbox.iter().filter(|item| item.kind == InboxKind::Write).collect();
    for item in &earlier {
        if let Some(payload) = lane.waiting.get(&item.entry_id) {
            plan.entry_told(item.entry_id.clone(), payload.clone().into_body());
        }
    }
    plan.entry_told(id.clone(), entry.into_body());
    for item in &earlier {
        plan.wait_over(&item.entry_id);
    }
    plan.move_tip()?;
    if !earlier.is_empty() {
        let inbox = lane.state.inbox.iter().filter(|item| item.kind != InboxKind::Write).cloned().collect();
        plan.lane_state(LaneState { inbox, ..lane.state.clone() })?;
        plan.queues();
    }
    Ok(plan)
}

macro_rules! from_halt {
    ($($error:ty),+) => {$(
        impl From<Halt> for $error {
            fn from(halt: Halt) -> Self {
                match halt {
                    Halt::Fault(fault) => Self::Faulted(fault),
                    Halt::Closed => Self::Closed,
                }
            }
        }
    )+};
}

from_halt!(RunError, QueueError, WriteError, AbortError, super::error::LaneError);
