//! From arguments and environment to everything a run needs.
//!
//! Keeps true: building sends nothing and reads nothing but configuration, certificates and the catalogue; settings
//! reach their adapters here and nowhere else; a mistake is an error of the kind that decides its exit code.
//!
//! Must not know: what happens in a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::agent::{AgentOptions, Limits, QueueMode, ToolEnv};
use crate::app::system_prompt;
use crate::cli::RunArgs;
use crate::config::{self, Confine, Env, JsonLevel, Origin, Settings};
use crate::model::{ErrorKind, ErrorRecord, Model, Thinking};
use crate::port::{Clock, Ids, Provider, StreamOptions, Timeouts, Tool};
use crate::provider::catalogue::{Catalogue, Choice, Connection, DEMO};
use crate::provider::chat::{ChatProvider, ChatSettings};
use crate::provider::demo::DemoProvider;
use crate::provider::http::{HttpClient, HttpSettings, ProxySettings};
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
            there.canonicalize().map_err(|error| usage(format!("-C {}: {error}", cd.display())))
        }
        Ok(_) => Err(usage(format!("-C {}: not a directory", cd.display()))),
        Err(error) => Err(usage(format!("-C {}: {error}", cd.display()))),
    }
}

/// Reads every layer of the configuration; also tells what `output.json` says, whatever else is wrong.
pub(super) fn settings(args: &RunArgs, env: &Env, cwd: &Path) -> (JsonLevel, Result<Settings, ErrorRecord>) {
    let sources = config::Sources {
        env,
        config_file: args.config.clone(),
        sets: args.set.clone(),
        flags: args.overrides(),
        cwd: cwd.to_path_buf(),
    };
    let (wish, loaded) = config::load_with_wish(&sources);
    let bare = args.bare || env.switch("PIRN_BARE");
    let unread = if bare { Ok(()) } else { config::refuse_unread(env, cwd, args.config.as_deref()) };
    let settings = loaded.map_err(ErrorRecord::from).and_then(|settings| {
        let refused = |error: config::ConfigErrors| {
            error.record().with_hint("name it with --config FILE, or ignore it with --bare")
        };
        unread.map_err(refused).map(|()| settings)
    });
    (wish, settings)
}

/// A run, ready to start.
pub(super) struct Setup {
    pub(super) options: AgentOptions,
    pub(super) model: Model,
    /// `None` = the model's default.
    pub(super) thinking: Option<Thinking>,
    pub(super) session_id: String,
    pub(super) tool_names: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// Chooses tools and model and builds the adapters. Sends nothing. A key is looked for last: an error of kind `auth`
/// says that everything else is in order, so it can wait until the prompt has been read.
pub(super) fn build(
    settings: &Settings,
    env: &Env,
    cwd: &Path,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn Ids>,
) -> Result<Setup, ErrorRecord> {
    let tools = tools(settings, env)?;
    let catalogue = Catalogue::new(settings, env)?;
    let chosen = catalogue.choose(&settings.model).map_err(|error| located(error, settings, "model"));
    let Choice { model, thinking, warnings, .. } = chosen?;
    let connection = catalogue.unsigned(&model);
    let http = http(&connection, env, settings, clock)?;
    let connection = Connection { key: catalogue.signing_key(&model)?, ..connection };
    let warnings: Vec<String> = settings.warnings.iter().cloned().chain(warnings).collect();
    let session_id = ids.next_id();
    let provider = provider(&connection, http);
    let mut options = AgentOptions::new(
        provider,
        crate::agent::Settings {
            system_prompt: system_prompt::build(
                settings.system.as_deref().unwrap_or_default(),
                &settings.append_system,
                cwd,
                env.text("SHELL"),
                !tools.is_empty(),
            ),
            model: model.clone(),
            thinking,
            tools: tools.clone(),
        },
    );
    options.stream_options = stream_options(settings, &connection);
    options.session_id = Some(session_id.clone());
    options.tool_execution = settings.tools.execution;
    options.steering_mode = QueueMode::OneAtATime;
    options.limits = Limits {
        max_turns: settings.limits.max_turns.unwrap_or(0),
        max_parallel: usize::try_from(settings.tools.max_parallel).unwrap_or(usize::MAX),
        grace: settings.limits.grace,
    };
    options.tool_env =
        ToolEnv { cwd: cwd.to_path_buf(), guard: Arc::new(guard(settings, env, cwd)), session: None, memos: None };
    options.clock = Arc::clone(clock);
    options.ids = Arc::clone(ids);
    let tool_names = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    Ok(Setup { options, model, thinking, session_id, tool_names, warnings })
}

fn tools(settings: &Settings, env: &Env) -> Result<Vec<Arc<dyn Tool>>, ErrorRecord> {
    let names = tool::select(&settings.tools.enabled, &[]).map_err(|error| {
        let mut record = ErrorRecord::new(ErrorKind::Usage, error.to_string());
        record.hint = error.hint();
        located(record, settings, "tools.enabled")
    })?;
    let read = &settings.tools.read;
    let tool_settings = tool::ToolSettings {
        read: tool::ReadSettings {
            line_numbers: read.line_numbers,
            max_bytes: usize::try_from(read.max_bytes).unwrap_or(usize::MAX),
            max_lines: usize::try_from(read.max_lines).unwrap_or(usize::MAX),
        },
        home: env.home(),
    };
    Ok(tool::builtin(&tool_settings, &names))
}

/// Says where a value was written that turned out wrong, unless it stands on the command line under its own flag.
fn located(mut error: ErrorRecord, settings: &Settings, key: &str) -> ErrorRecord {
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

fn provider(connection: &Connection, http: Option<HttpClient>) -> Arc<dyn Provider> {
    let Some(http) = http else { return Arc::new(DemoProvider) };
    let chat = ChatSettings {
        api_key: connection.key.clone(),
        // The catalogue has already refused a missing key.
        key_required: false,
        key_hint: connection.key_variables.clone(),
        headers: connection.headers.clone(),
        ..ChatSettings::keyless(connection.provider.as_str())
    };
    warm_up(&http, &connection.base_url);
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
