//! The commands beside a run: `sessions`, `config` and `models`, from their options to text and an exit.
//!
//! Keeps true: what a command says stands on stdout, why it failed on stderr behind it; signals end every wait; a
//! configuration that a run would refuse does not hide sessions.
//!
//! Must not know: what the commands show, how options are written.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use super::report::Screen;
use super::sessions::{self, ShowError};
use super::signals::Signals;
use super::{apart, config as configuration, internal_record, interrupted, kept, models, print_text, setup};
use crate::cli::{ConfigArgs, LayerArgs, ModelsArgs, SessionsArgs, ShowFormat};
use crate::config::{self, Env, Sources};
use crate::exit::Exit;
use crate::model::ErrorRecord;
use crate::port::Clock;
use crate::print;
use crate::process::mask::Masks;
use crate::provider::catalogue::Catalogue;
use crate::session::place::Library;

/// What a command found out.
#[derive(Default)]
struct Told {
    text: String,
    warnings: Vec<String>,
    /// A sentence for stderr.
    notice: Option<String>,
    /// Why it fails behind what it said.
    error: Option<ErrorRecord>,
}

impl From<String> for Told {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// `pirn models`.
pub(super) async fn models(
    args: ModelsArgs,
    env: &Env,
    screen: &Screen,
    signals: Signals,
    clock: &Arc<dyn Clock>,
) -> Exit {
    let env = env.clone();
    told(screen, signals, clock, move || models::listing(&args, &env).map(Told::from)).await
}

/// `pirn config`.
pub(super) async fn config(
    args: ConfigArgs,
    env: &Env,
    screen: &Screen,
    signals: Signals,
    clock: &Arc<dyn Clock>,
) -> Exit {
    let env = env.clone();
    told(screen, signals, clock, move || configured(args, &env)).await
}

fn configured(args: ConfigArgs, env: &Env) -> Result<Told, ErrorRecord> {
    let in_layers =
        |layers: &LayerArgs| -> Result<PathBuf, ErrorRecord> { setup::working_directory(layers.cd.as_deref()) };
    match args {
        ConfigArgs::Init(args) => {
            let cwd = setup::working_directory(args.cd.as_deref())?;
            configuration::init(args.user, env, &cwd).map(Told::from)
        }
        ConfigArgs::Show(args) => {
            let cwd = in_layers(&args.layers)?;
            configuration::show(args.origin, &sources(&args.layers, env, cwd)).map(Told::from)
        }
        ConfigArgs::Check(args) => {
            let cwd = in_layers(&args.layers)?;
            let configuration::Told { text, error } =
                configuration::check(&args.files, &sources(&args.layers, env, cwd));
            Ok(Told { text, error, ..Told::default() })
        }
        ConfigArgs::Schema => Ok(configuration::schema().into()),
        ConfigArgs::Path(layers) => {
            let cwd = in_layers(&layers)?;
            Ok(configuration::path(&sources(&layers, env, cwd)).into())
        }
        ConfigArgs::Trust(args) => {
            let cwd = setup::working_directory(args.cd.as_deref())?;
            configuration::trust(args.revoke, args.file.as_deref(), env, &cwd).map(Told::from)
        }
    }
}

/// Where a command's configuration comes from.
pub(super) fn sources<'a>(layers: &LayerArgs, env: &'a Env, cwd: PathBuf) -> Sources<'a> {
    Sources {
        config_file: layers.config.clone(),
        profile: layers.profile.clone(),
        trust: layers.trust,
        bare: layers.bare,
        sets: layers.set.clone(),
        ..Sources::new(env, cwd)
    }
}

/// `pirn sessions`.
pub(super) async fn sessions(
    args: SessionsArgs,
    env: &Env,
    screen: &Screen,
    mut signals: Signals,
    clock: &Arc<dyn Clock>,
) -> Exit {
    let env = env.clone();
    match args {
        SessionsArgs::List(args) => {
            let options =
                sessions::SessionsListOptions { query: args.query, all: args.all, limit: args.limit, json: args.json };
            let listing = move || {
                let Seen { library, masks, warnings } = seen(&env)?;
                let listed = sessions::list(&library, &options, &|text| masks.text(text).into_owned())?;
                let warnings = warnings.into_iter().chain(listed.warnings).collect();
                Ok(Told { text: listed.text, warnings, notice: listed.notice, error: None })
            };
            told(screen, signals, clock, listing).await
        }
        SessionsArgs::Show(args) => {
            let options = sessions::SessionsShowOptions {
                reference: args.reference,
                format: match args.format {
                    ShowFormat::Text => sessions::ShowFormat::Text,
                    ShowFormat::Json => sessions::ShowFormat::Json,
                },
            };
            // Entry by entry: a session may be longer than memory.
            let showing = apart(move || Ok(show(&env, &options)));
            match signals.unless(showing).await {
                Ok(Ok(shown)) => ended(screen, clock, shown).await,
                Ok(Err(bug)) => screen.fail(bug, &**clock).await,
                Err(cause) => interrupted(cause),
            }
        }
    }
}

/// How the showing of a session ended: its warnings, and what went wrong.
type Shown = (Vec<String>, Option<ShowError>);

fn show(env: &Env, options: &sessions::SessionsShowOptions) -> Shown {
    let Seen { library, masks, mut warnings } = match seen(env) {
        Ok(seen) => seen,
        Err(error) => return (Vec::new(), Some(error.into())),
    };
    let stdout = match print::stdout_writer() {
        Ok(stdout) => stdout,
        Err(error) => return (warnings, Some(error.into())),
    };
    let mut out = std::io::BufWriter::new(stdout);
    let shown = sessions::show(&library, options, &|text| masks.text(text).into_owned(), &mut out);
    let error = match shown {
        Ok(more) => {
            warnings.extend(more);
            out.flush().err().map(ShowError::from)
        }
        Err(error) => Some(out.flush().err().map_or(error, ShowError::from)),
    };
    (warnings, error)
}

async fn ended(screen: &Screen, clock: &Arc<dyn Clock>, (warnings, error): Shown) -> Exit {
    screen.warn(&warnings);
    match error {
        None => Exit::OK,
        Some(ShowError::Record(record)) => screen.fail(record, &**clock).await,
        Some(ShowError::Output(error)) => screen.stdout_failed(&(&error).into(), Exit::OK),
    }
}

/// The sessions there are, and what must not be shown of them.
struct Seen {
    library: Library,
    masks: Masks,
    warnings: Vec<String>,
}

/// What a file says that no run would go by, such as one without trust, is left out of account with a warning.
fn seen(env: &Env) -> Result<Seen, ErrorRecord> {
    let cwd = setup::working_directory(None)?;
    let examined = config::examine(&Sources::new(env, cwd.clone()));
    let warnings = examined.errors.map(|errors| ErrorRecord::from(errors).message).into_iter().collect();
    let library = kept::library(&examined.settings, env, &cwd)?;
    let keys = Catalogue::new(&examined.settings, env)?.keys();
    let masks = Masks::new(keys).map_err(|error| internal_record(&error.to_string()))?;
    Ok(Seen { library, masks, warnings })
}

/// Does a command's work apart, prints what it says, and fails where it failed.
async fn told(
    screen: &Screen,
    mut signals: Signals,
    clock: &Arc<dyn Clock>,
    work: impl FnOnce() -> Result<Told, ErrorRecord> + Send + 'static,
) -> Exit {
    let Told { text, warnings, notice, error } = match signals.unless(apart(work)).await {
        Ok(Ok(told)) => told,
        Ok(Err(error)) => return screen.fail(error, &**clock).await,
        Err(cause) => return interrupted(cause),
    };
    screen.warn(&warnings);
    screen.notice(notice.as_deref());
    let printed = print_text(screen, text, &mut signals, &**clock).await;
    match error {
        // A reader that left has seen enough.
        Some(error) if printed == Exit::OK => screen.fail(error, &**clock).await,
        Some(_) | None => printed,
    }
}
