//! What an agent is made of, and the defaults of everything but the provider and the settings.
//!
//! Keeps true: the defaults of limits are those of `config/default.toml`; the default guard and policy allow
//! everything, so a program that embeds the loop decides itself what to restrict.
//!
//! Must not know: configuration, command lines, any provider or tool.

use std::sync::Arc;
use std::time::Duration;

use super::hooks::{LoopHooks, NoHooks};
use super::queue::QueueMode;
use super::state::Settings;
use crate::port::{Clock, Execution, Ids, Policy, Provider, StreamOptions, SystemClock, ToolEnv, UuidIds};

/// Everything an [`Agent`](super::Agent) is made of. [`AgentOptions::new`] gives defaults for all but the provider
/// and the settings.
#[derive(Clone)]
pub struct AgentOptions {
    pub provider: Arc<dyn Provider>,
    /// What the first run starts with; settable between runs.
    pub settings: Settings,
    /// [`NoHooks`] by default.
    pub hooks: Arc<dyn LoopHooks>,
    /// Permission rules; `None` allows everything.
    pub policy: Option<Arc<dyn Policy>>,
    /// Handed to the provider with every request: headers, timeouts, the static key, `transport`, `on_payload`,
    /// `on_response`.
    pub stream_options: StreamOptions,
    /// Told to providers that keep a session together.
    pub session_id: Option<String>,
    /// How calls of one reply run, unless a tool says otherwise.
    pub tool_execution: Execution,
    /// What a poll of the steering queue takes.
    pub steering_mode: QueueMode,
    /// What a poll of the follow-up queue takes.
    pub follow_up_mode: QueueMode,
    pub limits: Limits,
    pub tool_env: ToolEnv,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
}

impl AgentOptions {
    /// Options with every default; change fields before the agent is made.
    pub fn new(provider: Arc<dyn Provider>, settings: Settings) -> Self {
        Self {
            provider,
            settings,
            hooks: Arc::new(NoHooks),
            policy: None,
            stream_options: StreamOptions::default(),
            session_id: None,
            tool_execution: Execution::Parallel,
            steering_mode: QueueMode::OneAtATime,
            follow_up_mode: QueueMode::OneAtATime,
            limits: Limits::default(),
            tool_env: ToolEnv::default(),
            clock: Arc::new(SystemClock::new()),
            ids: Arc::new(UuidIds::new()),
        }
    }
}

impl std::fmt::Debug for AgentOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentOptions")
            .field("settings", &self.settings)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The bounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Replies of a run; 0 = none.
    pub max_turns: u32,
    /// Calls of one batch that run at a time; at least 1.
    pub max_parallel: usize,
    /// What a cancelled tool gets to stop its children; its future is dropped one second later.
    pub grace: Duration,
}

impl Default for Limits {
    /// The documented defaults of `limits.max_turns`, `tools.max_parallel` and `limits.grace`.
    fn default() -> Self {
        Self { max_turns: 200, max_parallel: 16, grace: Duration::from_secs(3) }
    }
}
