//! Keys that a command prints: the command is run before the first request, and again when a server refuses its key.
//!
//! Keeps true: no text shows a key, whatever the command prints where; every mask knows a key before anybody else does;
//! nothing that the command started outlives its run; the wait is bounded.
//!
//! Must not know: what a key is for, when a server refuses one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncReadExt as _;

use crate::config::{Settings, key_path};
use crate::model::{ErrorKind, ErrorRecord, Secret};
use crate::port::Clock;
use crate::process::mask::{Masks, looks_secret};
use crate::process::{Child, Exited, Output, OutputReader, Spec, Stdin, Supervisor};
use crate::provider::chat::KeySource;
use crate::provider::redact::Masker;

/// How long a key command may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long its output must be silent behind its end, where something it left behind holds it open.
const QUIET: Duration = Duration::from_millis(100);
/// Bytes it may print, and as many it may say on stderr.
const BYTES_MAX: usize = 64 << 10;
/// Bytes read at once.
const CHUNK: usize = 4 << 10;
/// Lines and words of its output that count as secrets where it failed.
const SECRETS_MAX: usize = 64;
/// What runs it.
const SHELL: &str = "/bin/sh";
const HINT: &str = "the command must print the key, and nothing else, and exit with 0; it has no terminal, and gets the \
                    variables that children get (env.pass lets more through)";

/// The command that prints a provider's key.
#[derive(Clone)]
pub(super) struct KeyCommand {
    provider: String,
    command: String,
    /// The key of the configuration; what masks show.
    name: String,
    /// Where that was written.
    origin: String,
    cwd: PathBuf,
    supervisor: Supervisor,
    masks: Masks,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for KeyCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyCommand").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why there is no key; what stands behind "the command".
type Problem = String;

impl KeyCommand {
    /// The command that the configuration names for a provider, if it does.
    pub(super) fn of(
        provider: &str,
        settings: &Settings,
        cwd: &Path,
        supervisor: &Supervisor,
        masks: &Masks,
        clock: &Arc<dyn Clock>,
    ) -> Option<Self> {
        let (_, command, origin) = settings.key_commands().find(|(name, _, _)| *name == provider)?;
        Some(Self {
            provider: provider.to_owned(),
            command: command.to_owned(),
            name: key_path(&["providers", provider, "api_key"]),
            origin: origin.to_string(),
            cwd: cwd.to_owned(),
            supervisor: supervisor.clone(),
            masks: masks.clone(),
            clock: Arc::clone(clock),
        })
    }

    /// Runs it. Dropping the future kills what it started.
    ///
    /// # Errors
    /// Kind `auth`: it gave no key.
    pub(super) async fn run(&self) -> Result<Secret, ErrorRecord> {
        self.printed().await.map_err(|problem| {
            let Self { provider, name, origin, .. } = self;
            let message = format!("no key for {provider}: the command of {name} ({origin}) {problem}");
            let mut record = ErrorRecord::new(ErrorKind::Auth, message).with_hint(HINT);
            record.provider = Some(provider.clone());
            record
        })
    }

    async fn printed(&self) -> Result<Secret, Problem> {
        let mut child = self.supervisor.spawn(self.spec()).map_err(|error| format!("did not start: {error}"))?;
        let heard = tokio::select! {
            heard = Heard::of(&mut child, &*self.clock) => Some(heard),
            () = self.clock.sleep(TIMEOUT) => None,
        };
        // Whatever it left behind goes as well.
        child.stop(Duration::ZERO).await;
        let heard = heard.ok_or_else(|| format!("did not end within {} s", TIMEOUT.as_secs()))?;
        let Heard { exited, printed, said } = heard.map_err(|error| format!("could not be heard: {error}"))?;
        if !exited.is_success() {
            return Err(self.failure(exited, &printed, &said));
        }
        if printed.len() > BYTES_MAX {
            return Err(format!("printed more than {BYTES_MAX} bytes"));
        }
        let key = String::from_utf8(printed).map_err(|_bytes| "printed bytes that are not UTF-8".to_owned())?;
        let key = match key.trim() {
            "" => return Err("printed nothing".to_owned()),
            key if key.chars().any(char::is_control) => return Err("printed more than one line".to_owned()),
            key => Secret::new(key),
        };
        self.masks.learn([(self.name.clone(), key.clone())]).map_err(|error| format!("gave no usable key: {error}"))?;
        Ok(key)
    }

    fn spec(&self) -> Spec {
        Spec {
            program: PathBuf::from(SHELL),
            args: vec!["-c".into(), self.command.clone().into()],
            cwd: self.cwd.clone(),
            stdin: Stdin::Null,
            output: Output::Separate,
            env: Vec::new(),
            pass_env: Vec::new(),
            // What leaves the group is found by it.
            call_id: Some(self.name.clone()),
            session_id: None,
            label: format!("key of {}", self.provider),
        }
    }

    /// How it failed, with the first line it said.
    fn failure(&self, exited: Exited, printed: &[u8], said: &[u8]) -> Problem {
        let how = match exited.signal {
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("failed with exit code {}", exited.shell_code()),
        };
        let said = String::from_utf8_lossy(said);
        match said.lines().map(str::trim).find(|line| !line.is_empty()) {
            Some(line) => format!("{how}: {}", self.masked(line, &String::from_utf8_lossy(printed))),
            None => how,
        }
    }

    /// A line without the keys that are known, what was printed, and what looks like a key.
    fn masked(&self, line: &str, printed: &str) -> String {
        let words = printed.split_whitespace().filter(|word| looks_secret(word));
        let whole = std::iter::once(printed.trim());
        let secrets = whole.chain(printed.lines().map(str::trim)).chain(words).take(SECRETS_MAX).map(Secret::new);
        Masker::new(&secrets.collect::<Vec<_>>()).word(&self.masks.text(line))
    }
}

#[async_trait]
impl KeySource for KeyCommand {
    async fn refresh(&self) -> Result<Secret, ErrorRecord> {
        self.run().await
    }
}

/// What a command wrote, and how it ended.
struct Heard {
    exited: Exited,
    /// One byte more than may be printed tells that there was more.
    printed: Vec<u8>,
    said: Vec<u8>,
}

impl Heard {
    /// Listens until the command has ended and its pipes have, too, or are quiet.
    async fn of(child: &mut Child, clock: &dyn Clock) -> io::Result<Self> {
        let (mut output, mut errors) = (child.output(), child.errors());
        let (mut printed, mut said) = (Vec::new(), Vec::new());
        let mut exited = None;
        loop {
            tokio::select! {
                biased;
                read = read_some(&mut output, &mut printed), if output.is_some() => read?,
                read = read_some(&mut errors, &mut said), if errors.is_some() => read?,
                ended = child.wait(), if exited.is_none() => exited = Some(ended?),
                () = clock.sleep(QUIET), if exited.is_some() => (output, errors) = (None, None),
            }
            if let Some(exited) = exited.filter(|_| output.is_none() && errors.is_none()) {
                return Ok(Self { exited, printed, said });
            }
        }
    }
}

/// Reads what there is; at the end of the pipe the reader goes. What is beyond the limit is read and dropped.
async fn read_some(from: &mut Option<OutputReader>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(reader) = from else { return Ok(()) };
    let mut chunk = [0; CHUNK];
    let count = reader.read(&mut chunk).await?;
    if count == 0 {
        *from = None;
    }
    let room = (BYTES_MAX + 1).saturating_sub(into.len()).min(count);
    into.extend_from_slice(chunk.get(..room).unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;

    use super::{KeyCommand, TIMEOUT};
    use crate::model::ErrorKind;
    use crate::port::{Clock, SystemClock};
    use crate::process::mask::Masks;
    use crate::process::{ChildEnv, EnvPolicy, Supervisor, SupervisorSettings};

    /// A clock for which the longest wait is over at once.
    struct Hasty(SystemClock);

    #[async_trait]
    impl Clock for Hasty {
        fn now_ms(&self) -> u64 {
            self.0.now_ms()
        }

        fn monotonic_ms(&self) -> u64 {
            self.0.monotonic_ms()
        }

        async fn sleep(&self, duration: Duration) {
            if duration < TIMEOUT {
                self.0.sleep(duration).await;
            }
        }
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_ended_key_1() {
        let clock: Arc<dyn Clock> = Arc::new(Hasty(SystemClock::new()));
        let env = ChildEnv::new(EnvPolicy::default(), vec![("PATH".into(), "/usr/bin:/bin".into())]);
        let settings = SupervisorSettings { env, grace: Duration::ZERO, sweep: false };
        let supervisor = Supervisor::new(settings, Arc::clone(&clock)).unwrap();
        let command = KeyCommand {
            provider: "p".to_owned(),
            command: "trap '' TERM; sleep 300".to_owned(),
            name: "providers.p.api_key".to_owned(),
            origin: "c.toml:1:1".to_owned(),
            cwd: PathBuf::from("/"),
            supervisor: supervisor.clone(),
            masks: Masks::default(),
            clock,
        };
        let error = command.run().await.unwrap_err();
        assert_eq!((error.kind, error.provider.as_deref()), (ErrorKind::Auth, Some("p")));
        assert!(error.message.ends_with("(c.toml:1:1) did not end within 30 s"), "{}", error.message);
        assert_eq!(supervisor.shutdown().await, []);
    }
}
