//! What a harness is made of, and how one drive behaves.
//!
//! Keeps true: nothing comes from the environment or from files but the store; the defaults of limits are those of the
//! documented configuration.
//!
//! Must not know: configuration files, command lines, any provider or tool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::model::{LaneConfig, LaneModel, Message, Model, OperationResult, RetryPolicy, RunSettings, StoredOptions};
use crate::port::{
    Cache, Clock, Credential, Hooks, Ids, Inbox, Models, Orphans, Policy, Provider, Store, StreamOptions, SystemClock,
    Tool, ToolEnv, UuidIds,
};

/// What stands in a request for a custom entry; `None` = nothing.
pub type Projector = Arc<dyn Fn(Option<&Value>) -> Option<Message> + Send + Sync>;

/// Everything a [`Harness`](super::Harness) is made of. [`Options::new`] gives defaults for all but the store and the
/// provider.
#[derive(Clone)]
pub struct Options {
    pub store: Arc<dyn Store>,
    pub provider: Arc<dyn Provider>,
    /// Facts about models; by default every model is taken with its facts unknown.
    pub models: Arc<dyn Models>,
    pub tools: Vec<Arc<dyn Tool>>,
    /// In the order in which they are asked.
    pub hooks: Vec<Arc<dyn Hooks>>,
    /// Permission rules; `None` allows everything.
    pub policy: Option<Arc<dyn Policy>>,
    /// Where other processes leave messages.
    pub inbox: Option<Arc<dyn Inbox>>,
    /// Since when this process has the session to itself, in milliseconds since 1970; `None` = since it is opened here.
    /// What others left since then is meant for what it does.
    pub held_since: Option<u64>,
    /// Ends what the tools of a dead process left running.
    pub orphans: Option<Arc<dyn Orphans>>,
    /// What lane `main` of a new session works with.
    pub lane_config: LaneConfig,
    /// Captured by every operation that is accepted.
    pub settings: RunSettings,
    /// Bounds of this process; they count at once, also for an operation that was accepted under others.
    pub limits: Limits,
    pub retry: Retry,
    /// Captured by every run that is accepted.
    pub system_prompt: String,
    /// Handed to the provider with every request.
    pub stream_options: StreamOptions,
    /// Told to providers that keep a session together.
    pub session_id: Option<String>,
    pub tool_env: ToolEnv,
    /// Custom entries that a model sees, by their custom type.
    pub projectors: BTreeMap<String, Projector>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
}

impl Options {
    /// Options with every default; change fields before the harness is opened.
    pub fn new(store: Arc<dyn Store>, provider: Arc<dyn Provider>) -> Self {
        Self {
            store,
            provider,
            models: Arc::new(UnknownModels),
            tools: Vec::new(),
            hooks: Vec::new(),
            policy: None,
            inbox: None,
            held_since: None,
            orphans: None,
            lane_config: LaneConfig {
                model: LaneModel { provider: String::new(), model_id: String::new() },
                thinking_level: None,
                active_tool_names: Vec::new(),
                extra: Map::new(),
            },
            settings: RunSettings::default(),
            limits: Limits::default(),
            retry: Retry::default(),
            system_prompt: String::new(),
            stream_options: StreamOptions::default(),
            session_id: None,
            tool_env: ToolEnv::default(),
            projectors: BTreeMap::new(),
            clock: Arc::new(SystemClock::new()),
            ids: Arc::new(UuidIds::new()),
        }
    }

    /// With a further tool.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// With further hooks.
    #[must_use]
    pub fn hooks(mut self, hooks: Arc<dyn Hooks>) -> Self {
        self.hooks.push(hooks);
        self
    }

    /// What of the request options is kept.
    pub(super) fn stored_options(&self) -> StoredOptions {
        let options = &self.stream_options;
        StoredOptions {
            transport: options.transport.clone(),
            cache_retention: match options.cache {
                Cache::None => "none",
                Cache::Short => "short",
                Cache::Long => "long",
            }
            .to_owned(),
            deferred: options.deferred,
            metadata: options.metadata.clone(),
            headers: options.headers.iter().map(|(name, _)| name.to_owned()).collect(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("limits", &self.limits).field("retry", &self.retry).finish_non_exhaustive()
    }
}

/// Bounds of the process that drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Turns of an operation; 0 = none.
    pub max_turns: u32,
    /// USD of an operation; `None` = none.
    pub max_cost: Option<f64>,
    /// Equal results of equal calls in a row; 0 = none.
    pub max_repeats: u32,
    /// Follow-ups of hooks in an operation.
    pub max_follow_ups: u32,
    /// Attempts of one step that may be cut off before it is given up.
    pub max_interruptions: u32,
    /// Calls of one batch that run at a time; at least 1.
    pub max_parallel: usize,
    /// What a cancelled tool gets to stop its children; its future is dropped one second later.
    pub grace: Duration,
}

impl Default for Limits {
    /// The documented defaults of `limits.*`, `hook_limits.max_follow_ups`, `recovery.max_interruptions` and
    /// `tools.max_parallel`.
    fn default() -> Self {
        Self {
            max_turns: 200,
            max_cost: None,
            max_repeats: 10,
            max_follow_ups: 3,
            max_interruptions: 5,
            max_parallel: 16,
            grace: Duration::from_secs(3),
        }
    }
}

/// How often and after what delay a failed attempt is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub enabled: bool,
    /// On top of the first attempt.
    pub max_retries: u32,
    pub base_delay: Duration,
    /// A provider that asks for a longer one is not waited for.
    pub max_delay: Duration,
}

impl Default for Retry {
    /// The documented defaults of `retry.*`.
    fn default() -> Self {
        Self { enabled: true, max_retries: 3, base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(60) }
    }
}

impl Retry {
    pub(super) fn policy(self) -> RetryPolicy {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        RetryPolicy {
            max_attempts: if self.enabled { self.max_retries.saturating_add(1) } else { 1 },
            base_delay_ms: ms(self.base_delay),
            max_agent_delay_ms: ms(self.max_delay),
        }
    }
}

/// Takes every model, and believes that it has a key.
struct UnknownModels;

impl Models for UnknownModels {
    fn resolve(&self, provider: &str, id: &str) -> Option<Model> {
        Some(Model::unknown(provider, id, provider, ""))
    }

    fn credential(&self, _provider: &str) -> Credential {
        Credential::Present
    }
}

/// How one drive behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Wait for a retry that is due later, rather than return.
    pub wait_for_retry: bool,
    /// Ask again for a reply that a dead process was waiting for.
    pub resend: bool,
}

impl Default for Drive {
    fn default() -> Self {
        Self { wait_for_retry: true, resend: true }
    }
}

/// How a drive ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The operation is over.
    Settled(Box<Settled>),
    /// It is still open; continuing finishes it.
    Waiting(Wait),
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// As it is stored.
    pub result: Arc<OperationResult>,
    /// All facts of the error of a failed operation.
    pub error: Option<crate::model::ErrorRecord>,
    /// The text of the last reply.
    pub text: String,
}

/// What an open operation waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Milliseconds since 1970.
    Retry { not_before: u64 },
    /// Nothing was stored.
    Blocked(Blocked),
}

/// Why an operation can not go on now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// `before_drive` refused, or failed.
    Hook { reason: String },
    /// The model is not known here.
    Model { model: String },
    /// Tools are not there; sorted.
    Tools { names: Vec<String> },
    /// No model that is left has a key; the variables that would hold one.
    Credential { provider: String, variables: Vec<String> },
}
