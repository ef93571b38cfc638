//! The effective settings, typed, with the built-in layer as their default.
//!
//! Keeps true: every value is one that was checked; the default says what `config/default.toml` says, which a test
//! proves.
//!
//! Must not know: TOML, files, who uses a setting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::read::key_path;
use super::written::Written;
use crate::model::{Headers, Input, QueueMode, RetryPolicy, Secret, Thinking};
use crate::port::{Cache, Execution};

/// Makes a closed list of words as they are written in TOML.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// Every word.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word as it is written in TOML.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// What a word names, or `None`.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

words! {
    /// What stands on stdout instead of text.
    JsonLevel {
        /// Text mode.
        #[default]
        Off = "",
        Events = "events",
        /// Events without deltas.
        Messages = "messages",
        /// The last line only.
        Result = "result",
    }
}

words! {
    /// A switch that can look at the terminal.
    When {
        #[default]
        Auto = "auto",
        Always = "always",
        Never = "never",
    }
}

words! {
    /// Which paths must lie below the roots.
    Confine {
        Off = "off",
        #[default]
        Write = "write",
        All = "all",
    }
}

words! {
    /// When what a session writes is forced to the disk.
    Durability {
        None = "none",
        #[default]
        Normal = "normal",
        Full = "full",
    }
}

words! {
    /// Whether a session is locked while it is written.
    LockMode {
        #[default]
        Require = "require",
        /// For file systems without locks.
        Off = "off",
    }
}

words! {
    /// What becomes of a command's background processes when the program ends.
    BackgroundAtExit {
        #[default]
        Kill = "kill",
        Leave = "leave",
    }
}

words! {
    /// Which variables children get.
    EnvInherit {
        /// All but those that look like secrets.
        #[default]
        Filtered = "filtered",
        /// Those that a shell needs.
        Core = "core",
        /// `PATH` alone.
        None = "none",
        /// All but keys of providers.
        All = "all",
    }
}

/// The effective settings. [`Settings::default`] is the built-in layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Specs of models: the first is used, the others are fallbacks. Empty = first provider with a key.
    pub model: Vec<String>,
    /// `None` = the model's default.
    pub thinking: Option<Thinking>,
    /// `None` = the built-in prompt. Contents, where `@file` was written.
    pub system: Option<String>,
    pub append_system: Vec<String>,
    /// How much of what was sent during a run one boundary takes.
    pub steering_mode: QueueMode,
    /// The same for what waits for the end.
    pub follow_up_mode: QueueMode,
    pub input: InputSettings,
    pub output: OutputSettings,
    pub limits: LimitSettings,
    pub session: SessionSettings,
    pub context: ContextSettings,
    pub retry: RetrySettings,
    pub recovery: RecoverySettings,
    pub tools: ToolSettings,
    pub hook_limits: HookLimitSettings,
    pub env: EnvSettings,
    /// The profile in use.
    pub profile: Option<String>,
    /// Whether system, user and project files, and context files, are ignored.
    pub bare: bool,
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Aliases.
    pub models: BTreeMap<String, ModelSettings>,
    /// Things worth a warning that do not stop a run.
    pub warnings: Vec<String>,
    pub(super) written: Written,
    /// Written by the loader as it reads them.
    pub(super) files: Vec<PathBuf>,
    /// The directory of the project file in use.
    pub(super) project: Option<PathBuf>,
}

impl Settings {
    /// Where the value of a key was written, the key as in errors: `limits.max_turns`, `providers.local.base_url`.
    pub fn origin(&self, key: &str) -> &Origin {
        self.written.origins.get(key).unwrap_or(&Origin::BuiltIn)
    }

    /// The configuration files that were read, lowest layer first, absolute if the working directory was.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Every key that was written somewhere, sorted.
    pub fn written(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.written.origins.iter().map(|(key, origin)| (key.as_str(), origin))
    }

    /// The providers whose key is the output of a command: name, command, where it was written.
    pub fn key_commands(&self) -> impl Iterator<Item = (&str, &str, &Origin)> {
        self.providers.iter().filter_map(|(name, provider)| match &provider.api_key {
            Some(ApiKey::Command(command)) => {
                Some((name.as_str(), command.as_str(), self.origin(&key_path(&["providers", name, "api_key"]))))
            }
            _ => None,
        })
    }

    /// Sets the key of a provider to what its command printed.
    pub fn give_key(&mut self, provider: &str, key: Secret) {
        if let Some(provider) = self.providers.get_mut(provider) {
            provider.api_key = Some(ApiKey::Given(key));
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: Vec::new(),
            thinking: None,
            system: None,
            append_system: Vec::new(),
            steering_mode: QueueMode::OneAtATime,
            follow_up_mode: QueueMode::OneAtATime,
            input: InputSettings { stdin_wait: Some(Duration::from_secs(30)) },
            output: OutputSettings::default(),
            limits: LimitSettings::default(),
            session: SessionSettings::default(),
            context: ContextSettings::default(),
            retry: RetrySettings::default(),
            recovery: RecoverySettings::default(),
            tools: ToolSettings::default(),
            hook_limits: HookLimitSettings::default(),
            env: EnvSettings::default(),
            profile: None,
            bare: false,
            providers: BTreeMap::new(),
            models: BTreeMap::new(),
            warnings: Vec::new(),
            written: Written::default(),
            files: Vec::new(),
            project: None,
        }
    }
}

/// The keys of `[input]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSettings {
    /// How long a first byte may take on stdin when there is other prompt text. `None` = for ever.
    pub stdin_wait: Option<Duration>,
}

/// The keys of `[output]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSettings {
    pub json: JsonLevel,
    pub stream: When,
    /// -1 (quiet) to 2.
    pub verbosity: i8,
    /// Show thinking on stderr.
    pub thinking: bool,
    pub color: When,
    /// A file that gets all events as JSON lines, absolute if the working directory was; `{session}` and `{date}` are
    /// for the one who opens it.
    pub events: Option<String>,
    /// Between two lines of life on a stderr that is no terminal. `None` = none.
    pub heartbeat: Option<Duration>,
}

impl Default for OutputSettings {
    fn default() -> Self {
        Self {
            json: JsonLevel::Off,
            stream: When::Auto,
            verbosity: 0,
            thinking: false,
            color: When::Auto,
            events: None,
            heartbeat: Some(Duration::from_secs(60)),
        }
    }
}

/// `None` = no limit, unless said.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSettings {
    /// Assistant turns of a run.
    pub max_turns: Option<u32>,
    /// USD of a run; more than 0. Needs models with known prices.
    pub max_cost: Option<f64>,
    /// Calls in a row that are alike, results included.
    pub max_repeats: Option<u32>,
    /// `None` = the model's.
    pub max_output_tokens: Option<u32>,
    /// The whole run.
    pub timeout: Option<Duration>,
    pub connect_timeout: Option<Duration>,
    pub first_event_timeout: Option<Duration>,
    /// Between any two bytes.
    pub idle_timeout: Option<Duration>,
    /// Between two model events.
    pub progress_timeout: Option<Duration>,
    /// Between asking children to stop and killing them.
    pub grace: Duration,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            max_turns: Some(200),
            max_cost: None,
            max_repeats: Some(10),
            max_output_tokens: None,
            timeout: None,
            connect_timeout: Some(Duration::from_secs(10)),
            first_event_timeout: Some(Duration::from_secs(600)),
            idle_timeout: Some(Duration::from_secs(300)),
            progress_timeout: Some(Duration::from_secs(1800)),
            grace: Duration::from_secs(3),
        }
    }
}

/// The keys of `[session]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Whether anything is kept on disk.
    pub persist: bool,
    /// `None` = below the state directory.
    pub dir: Option<PathBuf>,
    pub durability: Durability,
    pub lock: LockMode,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { persist: true, dir: None, durability: Durability::Normal, lock: LockMode::Require }
    }
}

/// The keys of `[context]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextSettings {
    /// Names looked for in each directory.
    pub files: Vec<String>,
    /// Of all of them together.
    pub max_bytes: u64,
}

impl Default for ContextSettings {
    fn default() -> Self {
        Self { files: vec!["AGENTS.md".to_owned()], max_bytes: 64 << 10 }
    }
}

/// The keys of `[retry]`: what becomes of a request that failed and may be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    pub enabled: bool,
    /// Beside the first attempt.
    pub max_retries: u32,
    /// Before the first retry; doubled for each further one.
    pub base_delay: Duration,
    /// The longest wait; a server that asks for a longer one is not asked again. `None` = no limit.
    pub max_delay: Option<Duration>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            max_retries: 3,
            base_delay: Duration::from_secs(1),
            max_delay: Some(Duration::from_secs(60)),
        }
    }
}

impl RetrySettings {
    /// The same, as an operation keeps it.
    pub fn policy(&self) -> RetryPolicy {
        let milliseconds = |delay: Duration| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        RetryPolicy {
            max_attempts: if self.enabled { self.max_retries.saturating_add(1) } else { 1 },
            base_delay_ms: milliseconds(self.base_delay),
            max_agent_delay_ms: self.max_delay.map_or(u64::MAX, milliseconds),
        }
    }
}

/// The keys of `[recovery]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverySettings {
    /// How often the same request is asked again after the end of a process cut it off.
    pub max_interruptions: u32,
}

impl Default for RecoverySettings {
    fn default() -> Self {
        Self { max_interruptions: 5 }
    }
}

/// The keys of `[hook_limits]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookLimitSettings {
    /// Follow-ups of hooks that one operation accepts.
    pub max_follow_ups: u32,
}

impl Default for HookLimitSettings {
    fn default() -> Self {
        Self { max_follow_ups: 3 }
    }
}

/// The keys of `[env]`: what children get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvSettings {
    pub inherit: EnvInherit,
    /// Names that always pass.
    pub pass: Vec<String>,
    /// Names and globs that never do. Layers only add to it.
    pub drop: Vec<String>,
    /// References are expanded.
    pub set: BTreeMap<String, String>,
}

/// The keys of `[tools]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSettings {
    /// Names, globs, presets, `+x` and `-x`, to be read from left to right. A layer whose list holds only `+x` and
    /// `-x` has added to the list below it.
    pub enabled: Vec<String>,
    pub execution: Execution,
    pub max_parallel: u32,
    /// Relative to the run's working directory.
    pub roots: Vec<PathBuf>,
    pub confine: Confine,
    /// Mask what looks like a secret in results; keys of providers are masked anyway.
    pub redact: bool,
    /// Force what tools write to the disk.
    pub fsync: bool,
    pub bash: BashSettings,
    pub read: ReadSettings,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            enabled: vec!["ro".to_owned()],
            execution: Execution::Parallel,
            max_parallel: 16,
            roots: vec![PathBuf::from(".")],
            confine: Confine::Write,
            redact: true,
            fsync: false,
            bash: BashSettings::default(),
            read: ReadSettings { line_numbers: false, max_bytes: 50 << 10, max_lines: 2000 },
        }
    }
}

/// The keys of `[tools.bash]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BashSettings {
    /// A name on PATH or an absolute path; `None` = the first of `/bin/bash`, `bash` and `sh` that exists (tool rule B1).
    pub shell: Option<String>,
    /// Lines that go before each command.
    pub prefix: String,
    /// Of a command that asks for none. `None` = no limit.
    pub timeout: Option<Duration>,
    /// The longest one a command may ask for. `None` = no limit.
    pub max_timeout: Option<Duration>,
    pub max_bytes: u64,
    pub max_lines: u32,
    pub background_at_exit: BackgroundAtExit,
}

impl Default for BashSettings {
    fn default() -> Self {
        Self {
            shell: None,
            prefix: String::new(),
            timeout: Some(Duration::from_secs(300)),
            max_timeout: Some(Duration::from_secs(3600)),
            max_bytes: 50 << 10,
            max_lines: 2000,
            background_at_exit: BackgroundAtExit::Kill,
        }
    }
}

/// The keys of `[tools.read]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSettings {
    pub line_numbers: bool,
    pub max_bytes: u64,
    pub max_lines: u32,
}

/// One `[providers.NAME]` table; what is `None` or empty was not written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderSettings {
    pub api: Option<String>,
    /// References are expanded.
    pub base_url: Option<String>,
    pub api_key: Option<ApiKey>,
    /// References are expanded.
    pub headers: Headers,
    /// The variables that headers refer to, and an address that holds a user or a query; with `true` those of a header
    /// that is named like a credential, and of the address.
    pub credentials: BTreeMap<String, bool>,
    /// `None` = the proxy variables. May hold a password.
    pub proxy: Option<Secret>,
    pub ca_file: Option<PathBuf>,
    pub cache: Cache,
    /// Dialect switches.
    pub compat: Map<String, Value>,
    /// References to variables that are not set, in keys that were left out; an error once the provider is used.
    pub unset: Vec<ConfigError>,
}

/// Where the key of a provider comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKey {
    /// `""`: requests are not signed.
    Keyless,
    /// A text whose `${NAME}` references are expanded when the provider is used.
    Template {
        text: Secret,
        /// The variables it refers to.
        variables: Vec<String>,
    },
    /// The output of a command, run by those who use the provider.
    Command(String),
    /// The key as it is: what the command printed.
    Given(Secret),
}

/// One `[models.NAME]` table: an alias, and facts that beat the catalogue's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// `provider/id`, or a unique suffix of an id.
    pub id: String,
    pub thinking: Option<Thinking>,
    /// Tokens.
    pub context_window: Option<u64>,
    /// Tokens.
    pub max_output: Option<u64>,
    pub price: Option<PriceSettings>,
    pub input: Option<Vec<Input>>,
    pub reasoning: Option<bool>,
    /// Passed through into the request body.
    pub options: Map<String, Value>,
}

/// USD per million tokens; `None` = the catalogue's, else 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PriceSettings {
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
}
