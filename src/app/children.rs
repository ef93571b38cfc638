//! What children of a run get and what they must not show: the supervisor, the masks, and the key of the run.
//!
//! Keeps true: no variable that holds a key of ours reaches a child unless the configuration names it, and no text of a
//! child shows one; a command that prints a key runs only for the provider that is used.
//!
//! Must not know: which tools start children.

use std::path::Path;
use std::sync::Arc;

use super::internal_record;
use super::key_command::KeyCommand;
use crate::config::{Env, EnvInherit, Settings, key_path};
use crate::model::{ErrorKind, ErrorRecord, Headers, Model, Secret};
use crate::port::Clock;
use crate::process::mask::{MaskError, Masks, looks_secret};
use crate::process::{self, ChildEnv, EnvPolicy, Inherit, Remaining, Supervisor, SupervisorSettings, refuse_depth};
use crate::provider::catalogue::{Catalogue, Connection};
use crate::provider::chat::KeySource;

/// Processes named where some could not be ended.
const REMAINING_NAMED_MAX: usize = 8;

/// Everything about children.
pub(super) struct Children {
    pub(super) supervisor: Supervisor,
    /// What no text may show.
    pub(super) masks: Masks,
}

/// The key of a run.
#[derive(Default)]
pub(super) struct Key {
    /// `None`: requests are not signed.
    pub(super) secret: Option<Secret>,
    /// Where another one comes from.
    pub(super) source: Option<Arc<dyn KeySource>>,
}

/// How deep this process stands in others of its kind.
///
/// # Errors
/// Kind `usage`: too deep to start (B15), or the variable holds no number.
pub(super) fn depth(env: &Env) -> Result<u32, ErrorRecord> {
    refuse_depth(env.text("PIRN_DEPTH")).map_err(|error| ErrorRecord::new(ErrorKind::Usage, error.to_string()))
}

/// What to tell of processes that could not be ended (X5).
pub(super) fn left_running(remaining: &[Remaining]) -> Option<String> {
    let name = |process: &Remaining| match process.label.as_str() {
        "" => process.pid.to_string(),
        label => format!("{} ({label})", process.pid),
    };
    let mut named: Vec<String> = remaining.iter().take(REMAINING_NAMED_MAX).map(name).collect();
    let more = remaining.len().saturating_sub(REMAINING_NAMED_MAX);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    (!named.is_empty()).then(|| format!("processes could not be ended and still run: {}", named.join(", ")))
}

impl Children {
    /// Builds it from the settings and the environment.
    ///
    /// # Errors
    /// This process stands too deep in others of its kind, or the masks can not be built.
    pub(super) fn new(
        settings: &Settings,
        env: &Env,
        catalogue: &Catalogue,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ErrorRecord> {
        let depth = depth(env)?;
        let policy = EnvPolicy {
            inherit: match settings.env.inherit {
                EnvInherit::Filtered => Inherit::Filtered,
                EnvInherit::Core => Inherit::Core,
                EnvInherit::None => Inherit::None,
                EnvInherit::All => Inherit::All,
            },
            pass: settings.env.pass.clone(),
            drop: settings.env.drop.clone(),
            set: settings.env.set.clone().into_iter().collect(),
            credentials: catalogue.key_variable_names(),
            depth,
        };
        let child_env = ChildEnv::new(policy, env.all());
        let supervised = SupervisorSettings { env: child_env, grace: settings.limits.grace, sweep: true };
        let supervisor = Supervisor::new(supervised, Arc::clone(clock))
            .map_err(|error| internal_record(&format!("children can not be supervised: {error}")))?;
        let mut secrets = catalogue.keys();
        // Settings of ours are withheld and no secrets.
        let withheld: Vec<String> =
            supervisor.withheld().into_iter().filter(|name| !name.starts_with("PIRN_")).collect();
        // A child can read the block of its parent; what is needed of it was copied before.
        process::unix::wipe_environment(&[withheld.as_slice(), catalogue.key_variable_names().as_slice()].concat());
        if settings.tools.redact {
            let shown = |name: &String| Some((name.clone(), Secret::new(env.text(name).filter(|v| looks_secret(v))?)));
            secrets.extend(withheld.iter().filter_map(shown));
        }
        let masks = Masks::new(secrets).map_err(|error| too_many(&error))?;
        Ok(Self { supervisor, masks })
    }

    /// Masks what the requests of a connection hold beside the key.
    ///
    /// # Errors
    /// The masks can not be built.
    pub(super) fn hide(&self, connection: &Connection) -> Result<(), ErrorRecord> {
        let provider = connection.provider.as_str();
        let headers = connection.headers.iter().filter(|(name, _)| Headers::is_secret_name(name));
        let of_headers = headers.flat_map(|(header, value)| {
            let name = key_path(&["providers", provider, "headers", header]);
            credentials(value.unwrap_or_default()).map(move |value| (name.clone(), Secret::new(value)))
        });
        let proxy = connection.proxy.iter().map(|proxy| (key_path(&["providers", provider, "proxy"]), proxy.clone()));
        self.masks.learn(of_headers.chain(proxy)).map_err(|error| too_many(&error))
    }

    /// The key for a model's provider, from where the configuration says. Dropping the future half-way ends all
    /// children for good: a command that prints a key runs before there is a run.
    ///
    /// # Errors
    /// Kind `auth`: there is none, or its command failed.
    pub(super) async fn key(
        &self,
        catalogue: &Catalogue,
        settings: &Settings,
        model: &Model,
        cwd: &Path,
        clock: &Arc<dyn Clock>,
    ) -> Result<Key, ErrorRecord> {
        let Some(command) = self.key_command(settings, model, cwd, clock) else {
            return Ok(Key { secret: catalogue.signing_key(model)?, source: None });
        };
        let running = Unfinished(Some(&self.supervisor));
        let printed = command.run().await;
        running.finish();
        Ok(Key { secret: Some(printed?), source: Some(Arc::new(command)) })
    }
}

impl Children {
    /// The command that prints the key of a model's provider, where the configuration names one.
    pub(super) fn key_command(
        &self,
        settings: &Settings,
        model: &Model,
        cwd: &Path,
        clock: &Arc<dyn Clock>,
    ) -> Option<KeyCommand> {
        KeyCommand::of(&model.provider, settings, cwd, &self.supervisor, &self.masks, clock)
    }
}

/// Kills what runs, if it is dropped before it is finished.
struct Unfinished<'a>(Option<&'a Supervisor>);

impl Unfinished<'_> {
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(supervisor) = self.0 {
            supervisor.kill_now();
        }
    }
}

/// A header's value, and what stands in it behind a word such as `Bearer`.
fn credentials(value: &str) -> impl Iterator<Item = &str> {
    let value = value.trim();
    std::iter::once(value).chain(value.rsplit_once(' ').map(|(_, credential)| credential))
}

fn too_many(error: &MaskError) -> ErrorRecord {
    ErrorRecord::new(ErrorKind::Config, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{REMAINING_NAMED_MAX, left_running};
    use crate::process::Remaining;

    #[test]
    fn what_could_not_be_ended_is_named_a_few_at_a_time_x5() {
        let process = |pid, label: &str| Remaining { pid, label: label.to_owned() };
        assert_eq!(left_running(&[]), None);
        let text = "processes could not be ended and still run: 7 (bash), 8";
        assert_eq!(left_running(&[process(7, "bash"), process(8, "")]).as_deref(), Some(text));
        let many: Vec<Remaining> = (0..20).map(|pid| process(pid, "")).collect();
        let told = left_running(&many).unwrap();
        assert!(told.ends_with(&format!("7, {} more", 20 - REMAINING_NAMED_MAX)), "{told}");
    }
}
