//! What children of a run get and what they must not show: the supervisor, the masks, and keys that a command prints.
//!
//! Keeps true: no variable that holds a key of ours reaches a child unless the configuration names it, and no text of a
//! child shows one; a key command runs only for the provider that is used.
//!
//! Must not know: which tools start children.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::config::{Env, EnvInherit, Settings};
use crate::model::{ErrorKind, ErrorRecord, Headers, Model, Secret};
use crate::port::Clock;
use crate::process::mask::{Masks, looks_secret};
use crate::process::{
    ChildEnv, EnvPolicy, Inherit, Output, Remaining, Spec, Stdin, Supervisor, SupervisorSettings, refuse_depth,
};
use crate::provider::catalogue::{Catalogue, Connection};

/// How long a key command may take.
const KEY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes a key command may print.
const KEY_BYTES_MAX: u64 = 64 * 1024;
/// Processes named where some could not be ended.
const REMAINING_NAMED_MAX: usize = 8;
/// What runs a key command.
const SHELL: &str = "/bin/sh";

/// Everything about children.
pub(super) struct Children {
    pub(super) supervisor: Supervisor,
    /// What no text may show, by name.
    secrets: Vec<(String, Secret)>,
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
        let internal = |text: String| ErrorRecord::new(ErrorKind::Internal, text);
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
            .map_err(|error| internal(format!("children can not be supervised: {error}")))?;
        let mut secrets = catalogue.keys();
        if settings.tools.redact {
            let shown = |name: &String| Some((name.clone(), Secret::new(env.text(name).filter(|v| looks_secret(v))?)));
            secrets.extend(supervisor.withheld().iter().filter_map(shown));
        }
        Ok(Self { supervisor, secrets })
    }

    /// Counts what the requests of a connection hold among the secrets.
    pub(super) fn hide(&mut self, connection: &Connection) {
        let name = |what: &str| format!("{} {what}", connection.provider);
        let headers = connection.headers.iter().filter(|(name, _)| Headers::is_secret_name(name));
        let of_headers = headers.filter_map(|(header, value)| Some((name(header), Secret::new(value?))));
        let proxy = connection.proxy.iter().map(|proxy| (name("proxy"), proxy.clone()));
        self.secrets.extend(of_headers.chain(proxy));
    }

    /// The masks over everything that is known by now.
    ///
    /// # Errors
    /// They can not be built.
    pub(super) fn masks(&self) -> Result<Masks, ErrorRecord> {
        Masks::new(self.secrets.iter().cloned())
            .map_err(|error| ErrorRecord::new(ErrorKind::Internal, error.to_string()))
    }

    /// The key for a model's provider, from where the configuration says; `None` where none is needed.
    ///
    /// # Errors
    /// Kind `auth`: there is none, or its command failed.
    pub(super) async fn key(
        &mut self,
        catalogue: &Catalogue,
        model: &Model,
        cwd: &Path,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Secret>, ErrorRecord> {
        match catalogue.key_command(&model.provider) {
            Some(command) => {
                let key = self.printed_key(&model.provider, command, cwd, clock).await?;
                self.secrets.push((format!("{} key", model.provider), key.clone()));
                Ok(Some(key))
            }
            None => catalogue.signing_key(model),
        }
    }

    async fn printed_key(
        &self,
        provider: &str,
        command: &str,
        cwd: &Path,
        clock: &Arc<dyn Clock>,
    ) -> Result<Secret, ErrorRecord> {
        let failed = |text: String| {
            let mut record = ErrorRecord::new(ErrorKind::Auth, format!("the key command of {provider} {text}"));
            record.provider = Some(provider.to_owned());
            record
        };
        let spec = Spec {
            program: PathBuf::from(SHELL),
            args: vec!["-c".into(), command.into()],
            cwd: cwd.to_path_buf(),
            stdin: Stdin::Null,
            output: Output::Separate,
            env: Vec::new(),
            pass_env: Vec::new(),
            call_id: None,
            session_id: None,
            label: format!("key of {provider}"),
        };
        let mut child = self.supervisor.spawn(spec).map_err(|error| failed(format!("did not start: {error}")))?;
        let mut printed = Vec::new();
        let mut said = Vec::new();
        let (output, errors) = (child.output(), child.errors());
        let ran = async {
            let read = async {
                if let Some(output) = output {
                    output.take(KEY_BYTES_MAX).read_to_end(&mut printed).await.map(drop)?;
                }
                std::io::Result::Ok(())
            };
            let read_errors = async {
                if let Some(errors) = errors {
                    errors.take(KEY_BYTES_MAX).read_to_end(&mut said).await.map(drop)?;
                }
                std::io::Result::Ok(())
            };
            let (read, read_errors, exited) = tokio::join!(read, read_errors, child.wait());
            read.and(read_errors).and(exited)
        };
        let exited = tokio::select! {
            ran = ran => Some(ran),
            () = clock.sleep(KEY_TIMEOUT) => None,
        };
        // Whatever it left behind goes as well.
        child.stop(Duration::ZERO).await;
        let Some(exited) = exited else {
            return Err(failed(format!("gave nothing within {} s", KEY_TIMEOUT.as_secs())));
        };
        let exited = exited.map_err(|error| failed(format!("could not be read: {error}")))?;
        if !exited.is_success() {
            let said = String::from_utf8_lossy(&said);
            let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let code = exited.shell_code();
            return Err(failed(format!("failed with exit code {code}: {}", self.masks()?.text(first))));
        }
        let text = String::from_utf8(printed).map_err(|_| failed("printed bytes that are not UTF-8".to_owned()))?;
        let key = text.trim();
        if key.is_empty() || key.chars().any(char::is_control) {
            return Err(failed("must print the key on one line and nothing else".to_owned()));
        }
        Ok(Secret::new(key))
    }
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
