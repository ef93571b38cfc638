//! From arguments and environment to everything a run needs.
//!
//! Keeps true: building sends nothing and reads nothing but configuration, certificates and the catalogue; settings
//! reach their adapters here and nowhere else; a mistake is an error of the kind that decides its exit code.
//!
//! Must not know: what happens in a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;

use super::children::{Children, Key};
use super::kept::Stored;
use super::orphans::{Background, LeftRunning};
use crate::app::system_prompt;
use crate::cli::RunArgs;
use crate::config::{self, Confine, Env, JsonLevel, Origin, Settings};
use crate::harness::{Limits, Options, Retry};
use crate::model::{ErrorKind, ErrorRecord, LaneConfig, LaneModel, Model, RunSettings, Secret, Thinking};
use crate::port::{
    Clock, Credential, Guard, Ids, Inbox, Models, Provider, SessionRef, Store, StreamOptions, Timeouts, Tool, ToolEnv,
};
use crate::print::io_reason;
use crate::process::Supervisor;
use crate::process::mask::Masks;
use crate::provider::catalogue::{Catalogue, Choice, Choices, Connection, DEMO};
use crate::provider::chat::{ChatProvider, ChatSettings, KeySource};
use crate::provider::demo::DemoProvider;
use crate::provider::http::{HttpClient, HttpSettings, ProxySettings};
use crate::provider::router::{Router, Way};
use crate::tool::{self, Confinement};

/// Where temporary files live when `TMPDIR` does not say.
const TEMPORARY: &str = "/tmp";

/// The flag that sets any key; an error of a value says so, since the command line has a shorter one for it.
const SET: &str = "--set";

/// The working directory of a call, absolute.
pub(super) fn working_directory(cd: Option<&Path>) -> Result<PathBuf, ErrorRecord> {
    let usage = |text: String| ErrorRecord::new(ErrorKind::Usage, text);
    let here = std::env::current_dir().map_err(|error| usage(format!("no working directory: {error}")))?;
    let Some(cd) = cd else { return Ok(here) };
    let there = here.join(cd);
    match there.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            there.canonicalize().map_err(|error| usage(format!("-C {}: {}", cd.display(), io_reason(&error))))
        }
        Ok(_) => Err(usage(format!("-C {}: not a directory", cd.display()))),
        Err(error) => Err(usage(format!("-C {}: {}", cd.display(), io_reason(&error)))),
    }
}

/// Reads every layer of the configuration; also tells what `output.json` says, whatever else is wrong.
pub(super) fn settings(args: &RunArgs, env: &Env, cwd: &Path) -> (JsonLevel, Result<Settings, ErrorRecord>) {
    let sources = config::Sources {
        config_file: args.layers.config.clone(),
        bare: args.layers.bare,
        trust: args.layers.trust,
        profile: args.layers.profile.clone(),
        sets: args.layers.set.clone(),
        flags: args.overrides(),
        ..config::Sources::new(env, cwd.to_path_buf())
    };
    let (wish, loaded) = config::load_with_wish(&sources);
    (wish, loaded.map_err(ErrorRecord::from))
}

/// A run, ready to start.
pub(super) struct Setup {
    /// The provider and the facts of every model of the run.
    pub(super) router: Arc<Router>,
    pub(super) model: Model,
    /// `None` = the model's default.
    pub(super) thinking: Option<Thinking>,
    fallbacks: Vec<LaneConfig>,
    tools: Vec<Arc<dyn Tool>>,
    pub(super) tool_names: Vec<String>,
    system_prompt: String,
    stream_options: StreamOptions,
    run: RunSettings,
    limits: Limits,
    retry: Retry,
    guard: Arc<dyn Guard>,
    cwd: PathBuf,
    clock: Arc<dyn Clock>,
    pub(super) ids: Arc<dyn Ids>,
    /// Starts and ends every child of the run.
    pub(super) supervisor: Supervisor,
    /// What killed processes of the session left in the background is not to run on, and no other process can be theirs.
    ends_background: bool,
    /// What no log and no listing may show.
    pub(super) masks: Masks,
    pub(super) warnings: Vec<String>,
}

/// Whether what killed processes of a session left in the background is ended: nothing of it was to stay, and with the
/// lock nobody else has the session.
pub(super) fn ends_background(settings: &Settings) -> bool {
    settings.tools.bash.background_at_exit == config::BackgroundAtExit::Kill
        && settings.session.lock == config::LockMode::Require
}

impl Setup {
    /// What the session keeps of it.
    pub(super) fn lane_config(&self) -> LaneConfig {
        lane_config(&self.model, self.thinking, &self.tool_names)
    }

    /// Everything a harness needs, over a store.
    pub(super) fn options(
        &self,
        store: Arc<dyn Store>,
        session_id: &str,
        session: Option<SessionRef>,
        inbox: Option<Arc<dyn Inbox>>,
    ) -> Options {
        let mut options = Options::new(store, Arc::clone(&self.router) as Arc<dyn Provider>);
        options.models = Arc::clone(&self.router) as Arc<dyn Models>;
        options.tools.clone_from(&self.tools);
        options.inbox = inbox;
        let background = (self.ends_background && session.is_some())
            .then(|| Background { session_id: session_id.to_owned(), own_token: self.supervisor.token().to_owned() });
        let orphans = LeftRunning { grace: self.limits.grace, clock: Arc::clone(&self.clock), background };
        options.orphans = Some(Arc::new(orphans));
        options.lane_config = self.lane_config();
        options.settings = RunSettings { fallbacks: self.fallbacks.clone(), ..self.run.clone() };
        options.limits = self.limits;
        options.retry = self.retry;
        options.system_prompt.clone_from(&self.system_prompt);
        options.stream_options = self.stream_options.clone();
        options.session_id = Some(session_id.to_owned());
        options.tool_env = ToolEnv { cwd: self.cwd.clone(), guard: Arc::clone(&self.guard), session };
        options.clock = Arc::clone(&self.clock);
        options.ids = Arc::clone(&self.ids);
        options
    }

    /// The variables that no child of a tool sees (V2), for those who ask for more; `None` where no tool starts any.
    pub(super) fn withheld_notice(&self) -> Option<String> {
        let starts_children = self.tool_names.iter().any(|name| tool::starts_children(name));
        let withheld = if starts_children { self.supervisor.withheld() } else { Vec::new() };
        (!withheld.is_empty()).then(|| format!("withheld from children: {}", withheld.join(", ")))
    }
}

fn lane_config(model: &Model, thinking: Option<Thinking>, tools: &[String]) -> LaneConfig {
    LaneConfig {
        model: LaneModel { provider: model.provider.clone(), model_id: model.id.clone() },
        thinking_level: thinking.map(|level| level.as_str().to_owned()),
        active_tool_names: tools.to_vec(),
        extra: Map::new(),
    }
}

/// The settings of a run in a session: what the session says beats files, and the call beats the session.
fn of_session(settings: &Settings, stored: &LaneConfig) -> Settings {
    let mut settings = settings.clone();
    if !is_asked(&settings, "model") {
        settings.model = vec![format!("{}/{}", stored.model.provider, stored.model.model_id)];
    }
    if !is_asked(&settings, "thinking") {
        settings.thinking = stored.thinking_level.as_deref().and_then(Thinking::from_word);
    }
    settings
}

/// Whether the call itself says so, rather than a file.
fn is_asked(settings: &Settings, key: &str) -> bool {
    match settings.origin(key) {
        Origin::Flag(_) | Origin::Env(_) => true,
        Origin::BuiltIn | Origin::File { .. } => false,
    }
}

fn refused(error: &tool::SelectError) -> ErrorRecord {
    let mut record = ErrorRecord::new(ErrorKind::Usage, error.to_string());
    record.hint = error.hint();
    record
}

/// The names of the tools that the configuration turns on.
///
/// # Errors
/// Kind `usage`: an item of the list names no tool of this version.
pub(super) fn configured_tools(settings: &Settings) -> Result<Vec<String>, ErrorRecord> {
    tool::select(&settings.tools.enabled, &[]).map_err(|error| located(refused(&error), settings, "tools.enabled"))
}

/// The names of the tools of a run: those of the session, with the edits or the list of the call.
fn tool_names(
    args: &RunArgs,
    settings: &Settings,
    env: &Env,
    stored: Option<&LaneConfig>,
) -> Result<Vec<String>, ErrorRecord> {
    let Some(stored) = stored else { return configured_tools(settings) };
    if !is_asked(settings, "tools.enabled") {
        return tool::select(&stored.active_tool_names, &[]).map_err(|error| {
            let mut record = refused(&error);
            record.message = format!("the session goes on with its tools: {}", record.message);
            record.with_hint("-t LIST chooses others")
        });
    }
    // A list of nothing but edits changes what the session has.
    let asked = args.tools.as_deref().or_else(|| env.text("PIRN_TOOLS")).unwrap_or_default();
    let items: Vec<String> = asked.split(',').map(|item| item.trim().to_owned()).collect();
    let edits = items.iter().all(|item| item.starts_with(['+', '-']));
    if !edits {
        return configured_tools(settings);
    }
    tool::select(&items, &stored.active_tool_names).map_err(|error| located(refused(&error), settings, "tools.enabled"))
}

/// Chooses tools and model and builds the adapters. Sends nothing. A key is looked for last: an error of kind `auth`
/// says that everything else is in order, so it can wait until the prompt has been read.
pub(super) async fn build(
    args: &RunArgs,
    settings: &Settings,
    env: &Env,
    cwd: &Path,
    stored: Option<&Stored>,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn Ids>,
) -> Result<Setup, ErrorRecord> {
    let config = stored.map(|stored| &stored.config);
    let names = tool_names(args, settings, env, config)?;
    let wished = settings.model.clone();
    let settings = &config.map_or_else(|| settings.clone(), |config| of_session(settings, config));
    let catalogue = Catalogue::new(settings, env)?;
    let mut choices = catalogue.choose(&settings.model).map_err(|error| match config {
        Some(_) if !is_asked(settings, "model") => of_stored_model(error),
        Some(_) | None => located(error, settings, "model"),
    })?;
    if config.is_some() && !is_asked(settings, "model") {
        choices.fallbacks =
            catalogue.fallbacks_of(&choices.first.model, &wished).map_err(|error| located(error, settings, "model"))?;
    }
    refuse_unpriced(settings, &choices)?;
    let children = Children::new(settings, env, &catalogue, clock)?;
    let ways = Ways { catalogue: &catalogue, children: &children, settings, env, cwd, clock };
    let captured = stored.map(|stored| stored.captured.as_slice()).unwrap_or_default();
    let router = Arc::new(ways.router(&choices, captured).await?);
    let Choices { first: Choice { model, thinking, warnings, .. }, fallbacks } = choices;
    let masks = children.masks.clone();
    let short = masks.too_short().join(", ");
    let of_tools = tool_settings(settings, env, &children, clock);
    let tools = tool::builtin(&of_tools, &names);
    let tool_names: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    let tools = with_captured(tools, &of_tools, names, captured);
    let context = config::context_files(settings, cwd, env);
    let warnings = settings.warnings.iter().cloned().chain(context.warnings.iter().cloned()).chain(warnings);
    let of_fallbacks = fallbacks.iter().flat_map(|choice| choice.warnings.iter().cloned());
    let short = (!short.is_empty()).then(|| format!("{short} is too short to be masked where a tool shows it"));
    let warnings = warnings.chain(of_fallbacks).chain(short).collect();
    let system_prompt = system_prompt::build(
        settings.system.as_deref().unwrap_or_default(),
        &settings.append_system,
        &context.files,
        cwd,
        env.text("SHELL"),
        !tool_names.is_empty(),
    );
    Ok(Setup {
        stream_options: stream_options(settings, &catalogue.unsigned(&model)),
        fallbacks: fallbacks.iter().map(|choice| lane_config(&choice.model, choice.thinking, &tool_names)).collect(),
        run: RunSettings {
            steering_mode: settings.steering_mode,
            follow_up_mode: settings.follow_up_mode,
            tool_execution: settings.tools.execution,
            ..RunSettings::default()
        },
        limits: limits(settings),
        retry: retry(settings),
        guard: Arc::new(guard(settings, env, cwd)),
        cwd: cwd.to_path_buf(),
        clock: Arc::clone(clock),
        ids: Arc::clone(ids),
        router,
        model,
        thinking,
        tools,
        tool_names,
        system_prompt,
        supervisor: children.supervisor,
        ends_background: ends_background(settings),
        masks,
        warnings,
    })
}

/// The tools, and those that an open operation goes on with.
fn with_captured(
    tools: Vec<Arc<dyn Tool>>,
    settings: &tool::ToolSettings,
    mut names: Vec<String>,
    captured: &[LaneConfig],
) -> Vec<Arc<dyn Tool>> {
    let chosen = names.len();
    for name in captured.iter().flat_map(|captured| &captured.active_tool_names) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    if names.len() == chosen { tools } else { tool::builtin(settings, &names) }
}

fn retry(settings: &Settings) -> Retry {
    Retry {
        enabled: settings.retry.enabled,
        max_retries: settings.retry.max_retries,
        base_delay: settings.retry.base_delay,
        max_delay: settings.retry.max_delay.unwrap_or(Duration::MAX),
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        max_turns: settings.limits.max_turns.unwrap_or(0),
        max_cost: settings.limits.max_cost,
        max_repeats: settings.limits.max_repeats.unwrap_or(0),
        max_follow_ups: settings.hook_limits.max_follow_ups,
        max_interruptions: settings.recovery.max_interruptions,
        max_parallel: usize::try_from(settings.tools.max_parallel).unwrap_or(usize::MAX),
        grace: settings.limits.grace,
    }
}

/// A limit on cost means nothing for a model whose price nobody knows.
fn refuse_unpriced(settings: &Settings, choices: &Choices) -> Result<(), ErrorRecord> {
    let unpriced = choices.iter().find(|choice| choice.model.prices.is_none());
    match unpriced.filter(|_| settings.limits.max_cost.is_some()) {
        Some(choice) => {
            let message = format!("limits.max_cost: the price of {} is not known", choice.model.spec());
            let hint = "[models.NAME] with id and price = { input = …, output = … } names one";
            Err(located(ErrorRecord::new(ErrorKind::Usage, message), settings, "limits.max_cost").with_hint(hint))
        }
        None => Ok(()),
    }
}

/// How requests for the models of a run are sent.
struct Ways<'a> {
    catalogue: &'a Catalogue,
    children: &'a Children,
    settings: &'a Settings,
    env: &'a Env,
    cwd: &'a Path,
    clock: &'a Arc<dyn Clock>,
}

impl Ways<'_> {
    /// A missing key is looked for last, and only where none of the models has one it is an error.
    async fn router(&self, choices: &Choices, captured: &[LaneConfig]) -> Result<Router, ErrorRecord> {
        let first = &choices.first.model;
        // An address that is wrong is told before a key that is missing.
        let http = self.http(&self.catalogue.unsigned(first))?;
        let way = match self.children.key(self.catalogue, self.settings, first, self.cwd, self.clock).await {
            Ok(Key { secret, source }) => Way::Ready(self.open(first, secret, source, http, true)?),
            Err(error) if error.kind == ErrorKind::Auth => self.closed(first, error),
            Err(error) => return Err(error),
        };
        let mut router = Router::new(Arc::clone(self.clock), first.clone(), way);
        for choice in &choices.fallbacks {
            router.add(choice.model.clone(), self.later(&choice.model)?);
        }
        router.usable()?;
        // What an open operation captured; a model that is not there any more is told when its turn comes.
        for config in captured {
            let spec = format!("{}/{}", config.model.provider, config.model.model_id);
            if let Ok(choice) = self.catalogue.choose_one(&spec) {
                router.add(choice.model.clone(), self.later(&choice.model)?);
            }
        }
        Ok(router)
    }

    /// The way of a model that may never be asked: a command that prints its key waits until it is.
    fn later(&self, model: &Model) -> Result<Way, ErrorRecord> {
        let http = self.http(&self.catalogue.unsigned(model))?;
        let Some(command) = self.children.key_command(self.settings, model, self.cwd, self.clock) else {
            return match self.catalogue.signing_key(model) {
                Ok(secret) => Ok(Way::Ready(self.open(model, secret, None, http, false)?)),
                Err(error) if error.kind == ErrorKind::Auth => Ok(self.closed(model, error)),
                Err(error) => Err(error),
            };
        };
        let connection = self.catalogue.unsigned(model);
        self.children.hide(&connection)?;
        let command = Arc::new(command);
        Ok(Way::Later(Box::new(move || {
            let (connection, http, command) = (connection.clone(), http.clone(), Arc::clone(&command));
            Box::pin(async move {
                let connection = Connection { key: Some(command.run().await?), ..connection };
                Ok(provider(&connection, Some(command as Arc<dyn KeySource>), http, false))
            })
        })))
    }

    fn closed(&self, model: &Model, error: ErrorRecord) -> Way {
        let variables = match self.catalogue.credential(&model.provider) {
            Credential::Missing(variables) => variables,
            Credential::Present => Vec::new(),
        };
        Way::Closed { variables, error: Box::new(error) }
    }

    fn open(
        &self,
        model: &Model,
        secret: Option<Secret>,
        source: Option<Arc<dyn KeySource>>,
        http: Option<HttpClient>,
        warm: bool,
    ) -> Result<Arc<dyn Provider>, ErrorRecord> {
        let connection = Connection { key: secret, ..self.catalogue.unsigned(model) };
        self.children.hide(&connection)?;
        Ok(provider(&connection, source, http, warm))
    }

    fn http(&self, connection: &Connection) -> Result<Option<HttpClient>, ErrorRecord> {
        http(connection, self.env, self.settings, self.clock)
    }
}

/// A session's model that is not there any more.
fn of_stored_model(mut error: ErrorRecord) -> ErrorRecord {
    if error.kind == ErrorKind::Usage {
        error.message = format!("the session goes on with its model: {}", error.message);
        error = error.with_hint("-m MODEL chooses another");
    }
    error
}

fn tool_settings(settings: &Settings, env: &Env, children: &Children, clock: &Arc<dyn Clock>) -> tool::ToolSettings {
    let (read, bash) = (&settings.tools.read, &settings.tools.bash);
    tool::ToolSettings {
        read: tool::ReadSettings {
            line_numbers: read.line_numbers,
            max_bytes: usize::try_from(read.max_bytes).unwrap_or(usize::MAX),
            max_lines: usize::try_from(read.max_lines).unwrap_or(usize::MAX),
        },
        bash: tool::BashSettings {
            shell: bash.shell.as_ref().map(PathBuf::from),
            prefix: bash.prefix.clone(),
            timeout: bash.timeout,
            max_timeout: bash.max_timeout,
            max_bytes: usize::try_from(bash.max_bytes).unwrap_or(usize::MAX),
            max_lines: usize::try_from(bash.max_lines).unwrap_or(usize::MAX),
            background_at_exit: match bash.background_at_exit {
                config::BackgroundAtExit::Kill => tool::BackgroundAtExit::Kill,
                config::BackgroundAtExit::Leave => tool::BackgroundAtExit::Leave,
            },
            grace: settings.limits.grace,
        },
        fsync: settings.tools.fsync,
        home: env.home(),
        temporary: env.path("TMPDIR").unwrap_or_else(|| PathBuf::from(TEMPORARY)),
        children: Some(children.supervisor.clone()),
        masks: children.masks.clone(),
        clock: Arc::clone(clock),
    }
}

/// Says where a value was written that turned out wrong, unless it stands on the command line under its own flag.
pub(super) fn located(mut error: ErrorRecord, settings: &Settings, key: &str) -> ErrorRecord {
    let origin = settings.origin(key);
    let elsewhere = match origin {
        Origin::BuiltIn => false,
        Origin::File { .. } | Origin::Env(_) => true,
        Origin::Flag(flag) => flag == SET,
    };
    if elsewhere && error.kind == ErrorKind::Usage {
        error.message = format!("{origin}: {}", error.message);
    }
    error
}

fn guard(settings: &Settings, env: &Env, cwd: &Path) -> tool::Confine {
    let roots: Vec<PathBuf> = settings.tools.roots.iter().map(|root| cwd.join(root)).collect();
    let confinement = match settings.tools.confine {
        Confine::Off => Confinement::Off,
        Confine::Write => Confinement::Write,
        Confine::All => Confinement::All,
    };
    let temporary = env.path("TMPDIR").unwrap_or_else(|| PathBuf::from(TEMPORARY));
    tool::Confine::new(confinement, &roots, Some(&temporary))
}

fn stream_options(settings: &Settings, connection: &Connection) -> StreamOptions {
    StreamOptions {
        max_output_tokens: settings.limits.max_output_tokens,
        cache: connection.cache,
        timeouts: Timeouts {
            connect: settings.limits.connect_timeout,
            first_event: settings.limits.first_event_timeout,
            idle: settings.limits.idle_timeout,
            progress: settings.limits.progress_timeout,
        },
        ..StreamOptions::default()
    }
}

/// The client for a provider's address, which has been checked; `None` for the demo.
fn http(
    connection: &Connection,
    env: &Env,
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<Option<HttpClient>, ErrorRecord> {
    if connection.provider == DEMO {
        return Ok(None);
    }
    let proxies = env.proxies();
    let http = HttpClient::new(
        HttpSettings {
            connect_timeout: settings.limits.connect_timeout,
            proxy: ProxySettings {
                forced: connection.proxy.clone(),
                https: proxies.https,
                http: proxies.http,
                all: proxies.all,
                no_proxy: proxies.no_proxy,
            },
            ca_file: connection.ca_file.clone(),
            ssl_cert_file: env.cert_file(),
            ssl_cert_dir: env.cert_dir(),
            ..HttpSettings::default()
        },
        Arc::clone(clock),
    );
    http.check(&connection.base_url)?;
    Ok(Some(http))
}

fn provider(
    connection: &Connection,
    key_source: Option<Arc<dyn KeySource>>,
    http: Option<HttpClient>,
    warm: bool,
) -> Arc<dyn Provider> {
    let Some(http) = http else { return Arc::new(DemoProvider) };
    let chat = ChatSettings {
        api_key: connection.key.clone(),
        key_source,
        // The catalogue has already refused a missing key.
        key_required: false,
        key_hint: connection.key_sources.clone(),
        headers: connection.headers.clone(),
        ..ChatSettings::keyless(connection.provider.as_str())
    };
    if warm {
        warm_up(&http, &connection.base_url);
    }
    Arc::new(ChatProvider::new(chat, http))
}

/// Builds the client while the prompt is read (PERF-1). Certificates cost milliseconds; without them there
/// is nothing to gain.
fn warm_up(http: &HttpClient, base_url: &str) {
    if base_url.starts_with("https:") {
        let (http, url) = (http.clone(), base_url.to_owned());
        // If there is no thread, the first request does the work.
        drop(std::thread::Builder::new().name("tls".to_owned()).spawn(move || http.prepare(&url)));
    }
}
