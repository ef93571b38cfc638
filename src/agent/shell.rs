//! The agent: a transcript, two queues, listeners, and at most one run.
//!
//! Keeps true: a second run is refused, not queued; a call that is refused changes nothing; the state has an event
//! before any listener sees it; dropping a run's future leaves an idle agent.
//!
//! Must not know: what happens inside a turn.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::options::AgentOptions;
use super::queue::{Drained, QueueMode, Queues};
use super::run::{Run, Start};
use super::state::{AgentSnapshot, Settings, State};
use crate::model::{CancelCause, Event, ImageBlock, Message, RunOutcome};
use crate::port::{Cancel, Sink, SinkError};
use crate::turn::{self, panic_text};

/// A stateful agent. Clones are handles on the same one.
///
/// A failing model, tool or hook is never an `Err`: the run ends with a failed reply in the transcript and the
/// [`RunOutcome`] tells. An `Err` means that nothing was sent, or that a listener refused an event.
///
/// Dropping the future of [`Agent::prompt`] or [`Agent::continue_`] ends the run at once: what was emitted stays,
/// and the agent is idle again.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

struct Shared {
    options: AgentOptions,
    queues: Queues,
    state: Mutex<State>,
    listeners: Mutex<Listeners>,
    /// The cancellation of the active run.
    active: Mutex<Option<Cancel>>,
    idle: watch::Sender<bool>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    list: Vec<(u64, Arc<dyn Listener>)>,
}

/// Sees every event of the runs of an agent, one listener after another, in order of subscription. Part of the run:
/// a slow one slows it. An error or a panic closes the run without further events.
///
/// A listener must not await [`Agent::wait_for_idle`]: the run waits for the listener, so neither ever ends.
#[async_trait]
pub trait Listener: Send + Sync {
    /// Takes one event. `cancel` is the run's; an error ends the run, and no listener is told anything more.
    async fn on_event(&self, event: &Event, cancel: &CancellationToken) -> Result<(), SinkError>;
}

/// Takes its listener out again when dropped or told so.
#[must_use = "dropping it ends the subscription; see `forever`"]
#[derive(Debug)]
pub struct Subscription {
    id: u64,
    shared: std::sync::Weak<Shared>,
}

impl Subscription {
    /// Ends the subscription; the listener gets no further event.
    pub fn unsubscribe(self) {
        drop(self);
    }

    /// Keeps the listener as long as the agent lives. A listener that needs the agent must not hold a clone of it, or
    /// each keeps the other alive; let it share something weak, such as a `Weak` of what owns the agent.
    pub fn forever(mut self) {
        self.shared = std::sync::Weak::new();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            lock(&shared.listeners).list.retain(|(id, _)| *id != self.id);
        }
    }
}

/// Why a call was refused. Nothing changed, but for [`Self::Sink`]: there a run had begun, and what it emitted before
/// its listener failed stays in the transcript.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    #[error("a run is active; queue with steer or follow_up, or wait for it")]
    AlreadyRunning,
    #[error("there is nothing to continue: the transcript is empty")]
    NothingToContinue,
    #[error("there is nothing to continue: the last message is a reply and no message is queued")]
    LastMessageIsAssistant,
    #[error("nothing to send")]
    NothingToSend,
    #[error("two tools have the name {0:?}")]
    DuplicateTool(String),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// What a run is given.
#[derive(Clone, Debug)]
pub enum Prompt {
    Text(String, Vec<ImageBlock>),
    Messages(Vec<Arc<Message>>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned(), Vec::new())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text, Vec::new())
    }
}

impl From<Message> for Prompt {
    fn from(message: Message) -> Self {
        Self::Messages(vec![Arc::new(message)])
    }
}

impl From<Vec<Message>> for Prompt {
    fn from(messages: Vec<Message>) -> Self {
        Self::Messages(messages.into_iter().map(Arc::new).collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("state", &*lock(&self.shared.state)).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Agent {
    /// Makes an idle agent with an empty transcript. Two tools of one name are refused.
    pub fn new(options: AgentOptions) -> Result<Self, AgentError> {
        unique_names(&options.settings)?;
        let queues = Queues::default();
        queues.steering.set_mode(options.steering_mode);
        queues.follow_up.set_mode(options.follow_up_mode);
        let shared = Shared {
            state: Mutex::new(State::new(options.settings.clone())),
            options,
            queues,
            listeners: Mutex::default(),
            active: Mutex::new(None),
            idle: watch::Sender::new(true),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Runs a prompt; ready when the listeners of `agent_end` are done. A blank one is refused where it would leave
    /// nothing new to send: on an empty transcript and behind a reply.
    pub async fn prompt(&self, prompt: impl Into<Prompt> + Send) -> Result<RunOutcome, AgentError> {
        let prompts = match prompt.into() {
            Prompt::Text(text, images) => {
                vec![Arc::new(Message::user(text, images, self.shared.options.clock.now_ms()))]
            }
            Prompt::Messages(messages) => messages,
        };
        let active = self.activate()?;
        self.something_to_send(&prompts)?;
        self.run(active, prompts, Drained::default(), false).await
    }

    /// Refuses prompts without which a request would hold nothing, or end in a reply. Messages of other roles are
    /// something: what becomes of them is up to `convert_to_llm`.
    fn something_to_send(&self, prompts: &[Arc<Message>]) -> Result<(), AgentError> {
        let state = lock(&self.shared.state);
        let is_blank = |message: &Arc<Message>| {
            let sent = turn::project(std::slice::from_ref(message), &state.settings.model);
            matches!(**message, Message::User(_)) && sent.messages.is_empty()
        };
        if !prompts.iter().all(is_blank) {
            return Ok(());
        }
        match state.messages.last() {
            // Steering comes ahead of the request.
            Some(last) if last.as_assistant().is_none() || !self.shared.queues.steering.is_empty() => Ok(()),
            Some(_) if prompts.is_empty() => Err(AgentError::LastMessageIsAssistant),
            Some(_) | None => Err(AgentError::NothingToSend),
        }
    }

    /// Goes on from the transcript as it is. Behind a reply, one batch of queued messages is the prompt.
    pub async fn continue_(&self) -> Result<RunOutcome, AgentError> {
        let active = self.activate()?;
        let last_is_reply = match lock(&self.shared.state).messages.last() {
            None => return Err(AgentError::NothingToContinue),
            Some(message) => message.as_assistant().is_some(),
        };
        if !last_is_reply {
            return self.run(active, Vec::new(), Drained::default(), false).await;
        }
        let steering = self.shared.queues.steering.poll();
        if !steering.is_empty() {
            return self.run(active, Vec::new(), steering, true).await;
        }
        let follow_up = self.shared.queues.follow_up.poll();
        if follow_up.is_empty() {
            return Err(AgentError::LastMessageIsAssistant);
        }
        self.run(active, Vec::new(), follow_up, false).await
    }

    async fn run(
        &self,
        active: Active<'_>,
        prompts: Vec<Arc<Message>>,
        drained: Drained,
        skip_first_poll: bool,
    ) -> Result<RunOutcome, AgentError> {
        let (settings, transcript) = {
            let mut state = lock(&self.shared.state);
            state.begin();
            (state.settings.clone(), state.messages.clone())
        };
        let start = Start { settings, transcript, prompts, drained, skip_first_poll };
        let mut sink = Fanout { shared: &self.shared, cancel: &active.cancel };
        let run = Run::new(&self.shared.options, self.shared.queues.clone(), &active.cancel, &mut sink, &start);
        // Boxed: callers need not carry the loop in their own future.
        let outcome = Box::pin(run.drive(start)).await;
        Ok(outcome?)
    }

    fn activate(&self) -> Result<Active<'_>, AgentError> {
        let mut active = lock(&self.shared.active);
        if active.is_some() {
            return Err(AgentError::AlreadyRunning);
        }
        let cancel = Cancel::new();
        *active = Some(cancel.clone());
        self.shared.idle.send_replace(false);
        Ok(Active { shared: &self.shared, cancel })
    }

    /// Queues a message for the next turn of this run, or of the next one.
    pub fn steer(&self, message: impl Into<Prompt>) {
        self.enqueue(message.into(), |queues, message| queues.steering.push(message));
    }

    /// Queues a message for when the agent would stop.
    pub fn follow_up(&self, message: impl Into<Prompt>) {
        self.enqueue(message.into(), |queues, message| queues.follow_up.push(message));
    }

    fn enqueue(&self, prompt: Prompt, push: impl Fn(&Queues, Arc<Message>)) {
        match prompt {
            Prompt::Text(text, images) => {
                let message = Message::user(text, images, self.shared.options.clock.now_ms());
                push(&self.shared.queues, Arc::new(message));
            }
            Prompt::Messages(messages) => messages.into_iter().for_each(|message| push(&self.shared.queues, message)),
        }
    }

    /// Cancels the active run; without one nothing happens. Idempotent.
    pub fn abort(&self) {
        self.abort_with(CancelCause::Steer);
    }

    /// Cancels the active run and says why; the first cause wins.
    pub fn abort_with(&self, cause: CancelCause) {
        if let Some(cancel) = &*lock(&self.shared.active) {
            cancel.cancel(cause);
        }
    }

    /// Clears messages, error, pending calls and both queues; keeps prompt, model and tools.
    pub fn reset(&self) -> Result<(), AgentError> {
        let active = self.activate()?;
        lock(&self.shared.state).reset();
        self.clear_all_queues();
        drop(active);
        Ok(())
    }

    /// Waits until no run is active. Inside a listener or a hook it never returns.
    pub async fn wait_for_idle(&self) {
        let mut idle = self.shared.idle.subscribe();
        // The sender lives as long as this agent, so waiting cannot fail.
        drop(idle.wait_for(|idle| *idle).await);
    }

    /// Adds a listener from the next event on.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        let mut listeners = lock(&self.shared.listeners);
        let id = listeners.next;
        listeners.next += 1;
        listeners.list.push((id, listener));
        Subscription { id, shared: Arc::downgrade(&self.shared) }
    }

    /// A copy of the state.
    pub fn state(&self) -> AgentSnapshot {
        lock(&self.shared.state).snapshot()
    }

    /// What the next run starts with.
    pub fn settings(&self) -> Settings {
        lock(&self.shared.state).settings.clone()
    }

    /// Changes what the next run starts with.
    pub fn set_settings(&self, settings: Settings) -> Result<(), AgentError> {
        unique_names(&settings)?;
        lock(&self.shared.state).settings = settings;
        Ok(())
    }

    /// Replaces the transcript. Refused while a run is active.
    pub fn set_messages(&self, messages: Vec<Arc<Message>>) -> Result<(), AgentError> {
        let active = self.activate()?;
        lock(&self.shared.state).messages = messages;
        drop(active);
        Ok(())
    }

    /// Takes effect at the next poll.
    pub fn set_steering_mode(&self, mode: QueueMode) {
        self.shared.queues.steering.set_mode(mode);
    }

    /// Takes effect at the next poll.
    pub fn set_follow_up_mode(&self, mode: QueueMode) {
        self.shared.queues.follow_up.set_mode(mode);
    }

    /// Drops what waits for the next turn.
    pub fn clear_steering_queue(&self) {
        self.shared.queues.steering.clear();
    }

    /// Drops what waits for the end of a run.
    pub fn clear_follow_up_queue(&self) {
        self.shared.queues.follow_up.clear();
    }

    /// Drops everything that waits.
    pub fn clear_all_queues(&self) {
        self.clear_steering_queue();
        self.clear_follow_up_queue();
    }

    /// Whether anything waits in either queue.
    pub fn has_queued_messages(&self) -> bool {
        !self.shared.queues.steering.is_empty() || !self.shared.queues.follow_up.is_empty()
    }

    /// What the next poll would deliver: steering if any, else follow-ups.
    pub fn peek_queued_messages(&self) -> Vec<Arc<Message>> {
        let steering = self.shared.queues.steering.peek();
        if steering.is_empty() { self.shared.queues.follow_up.peek() } else { steering }
    }
}

fn unique_names(settings: &Settings) -> Result<(), AgentError> {
    let mut seen = std::collections::HashSet::new();
    for tool in &settings.tools {
        let name = &tool.spec().name;
        if !seen.insert(name.clone()) {
            return Err(AgentError::DuplicateTool(name.clone()));
        }
    }
    Ok(())
}

/// The active run; the agent is idle again when it is dropped.
struct Active<'a> {
    shared: &'a Shared,
    cancel: Cancel,
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        lock(&self.shared.state).end();
        *lock(&self.shared.active) = None;
        self.shared.idle.send_replace(true);
    }
}

/// Updates the state, then tells the listeners.
struct Fanout<'a> {
    shared: &'a Shared,
    cancel: &'a Cancel,
}

#[async_trait]
impl Sink for Fanout<'_> {
    async fn emit(&mut self, event: Event) -> Result<(), SinkError> {
        lock(&self.shared.state).apply(&event);
        let mut told = None;
        // The list may change while a listener runs: each one still subscribed is told once, in order; a new one
        // starts with the next event.
        let newcomers = lock(&self.shared.listeners).next;
        loop {
            let next = lock(&self.shared.listeners)
                .list
                .iter()
                .find(|(id, _)| *id < newcomers && told.is_none_or(|told| *id > told))
                .cloned();
            let Some((id, listener)) = next else { return Ok(()) };
            told = Some(id);
            let token = self.cancel.token();
            let answer = AssertUnwindSafe(async { listener.on_event(&event, token).await }).catch_unwind().await;
            let crashed = |text| Err(SinkError(format!("a listener crashed: {text}")));
            if let Err(closed) = answer.unwrap_or_else(|panic| crashed(panic_text(&*panic))) {
                self.cancel.cancel(CancelCause::Pipe);
                return Err(closed);
            }
        }
    }
}
