//! `pirn config`: what holds, why, what is wrong with it, and who may say so.
//!
//! Keeps true: nothing is started and nothing is sent; a file is never overwritten; a secret is never shown.
//!
//! Must not know: how files are read, how options are written on a command line.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::setup;
use crate::config::{self, ConfigError, ConfigErrors, Env, Examined, FoundFile, Settings, Sources, Trust};
use crate::model::{ErrorKind, ErrorRecord};
use crate::provider::catalogue::Catalogue;

/// What a new file holds.
const STARTER: &str = include_str!("../../config/starter.toml");
/// The name of a configuration file.
const FILE: &str = "pirn.toml";

/// What a command found out: text for stdout, and the error that ends it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    pub text: String,
    pub error: Option<ErrorRecord>,
}

/// `config init [--user]`: writes a commented file in the working directory, or the user's own.
///
/// # Errors
/// Kind `config`: there is one already, or it cannot be written.
pub fn init(user: bool, env: &Env, cwd: &Path) -> Result<String, ErrorRecord> {
    let (dir, mode) = if user { (env.config_dir()?, 0o600) } else { (cwd.to_path_buf(), 0o666) };
    let path = dir.join(FILE);
    let failed = |problem: String| ErrorRecord::new(ErrorKind::Config, format!("{}: {problem}", path.display()));
    match write_new(&dir, &path, mode) {
        Ok(()) if user => Ok(format!("wrote {}\n", path.display())),
        Ok(()) => Ok(format!("wrote {}\nnext: edit it, then run: pirn config trust\n", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(failed("exists already and is left alone".to_owned()))
        }
        Err(error) => Err(failed(format!("cannot be written: {error}"))),
    }
}

/// Writes the starter under a name that must be free. It appears there as a whole or not at all.
fn write_new(dir: &Path, path: &Path, mode: u32) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)?;
    // A name in use is told before anything is written, a dangling link among them.
    if path.symlink_metadata().is_ok() {
        return Err(std::io::ErrorKind::AlreadyExists.into());
    }
    let mut file = tempfile::Builder::new();
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    let mut file = file.tempfile_in(dir)?;
    file.write_all(STARTER.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    File::open(dir)?.sync_all()
}

/// `config show [--origin]`: the effective settings as TOML, each perhaps with its place.
///
/// # Errors
/// Whatever is wrong with the configuration.
pub fn show(origins: bool, sources: &Sources<'_>) -> Result<String, ErrorRecord> {
    Ok(config::show(&config::load(sources)?, origins))
}

/// `config check [FILE...]`: the files, the programs they start, and everything that is wrong; with files named, each of
/// them by itself.
pub fn check(files: &[PathBuf], sources: &Sources<'_>) -> Told {
    let mut report = Report::default();
    if files.is_empty() {
        report.examine(sources, &config::examine(sources));
    }
    for file in files {
        let alone =
            Sources { config_file: Some(file.clone()), bare: true, ..Sources::new(sources.env, sources.cwd.clone()) };
        report.examine(&alone, &config::examine(&alone));
    }
    report.told()
}

#[derive(Default)]
struct Report {
    lines: Vec<String>,
    errors: Vec<ConfigError>,
    /// What others than the configuration found wrong.
    records: Vec<ErrorRecord>,
}

impl Report {
    fn examine(&mut self, sources: &Sources<'_>, examined: &Examined) {
        let Examined { settings, errors, files } = examined;
        self.lines.extend(files.iter().map(file_line));
        if files.is_empty() {
            self.lines.push("no configuration file".to_owned());
        }
        let unset = settings.providers.values().flat_map(|provider| &provider.unset).map(ToString::to_string);
        self.lines.extend(settings.warnings.iter().cloned().chain(unset).map(|text| format!("warning: {text}")));
        for program in config::programs(settings, &sources.cwd, sources.env) {
            self.lines.push(match program.path {
                Some(path) => format!("{}: {}", program.user, path.display()),
                None => format!("warning: {}: no program {}", program.user, program.name),
            });
        }
        match errors {
            Some(errors) => self.errors.extend(errors.iter().cloned()),
            // Only what could be read whole can be looked at as a whole.
            None => self.records.extend(wrong_references(settings, sources.env)),
        }
    }

    fn told(mut self) -> Told {
        let mut seen = Vec::new();
        // Each file alone has the same environment.
        self.errors.retain(|error| {
            let new = !seen.contains(error);
            seen.push(error.clone());
            new
        });
        let first = ConfigErrors::from_list(self.errors).map(|errors| errors.record());
        let mut records: Vec<ErrorRecord> = first.into_iter().chain(self.records).collect();
        records.dedup();
        if records.is_empty() {
            self.lines.push("ok".to_owned());
        }
        let error = match records.as_mut_slice() {
            [] => None,
            [record] => Some(std::mem::replace(record, ErrorRecord::new(ErrorKind::Config, ""))),
            several => {
                let lines: Vec<&str> = several.iter().map(|record| record.message.as_str()).collect();
                Some(ErrorRecord::new(ErrorKind::Config, lines.join("\n")))
            }
        };
        Told { text: self.lines.join("\n") + "\n", error }
    }
}

fn file_line(file: &FoundFile) -> String {
    let trust = match file.trust {
        Trust::NotNeeded => "",
        Trust::Listed => " (trusted)",
        Trust::Once => " (trusted this time)",
        Trust::None => " (not trusted)",
    };
    format!("{}: {}{trust}", file.layer.as_str(), file.path.display())
}

/// Models, providers and tools that do not exist. A missing key is no mistake of the configuration.
fn wrong_references(settings: &Settings, env: &Env) -> Vec<ErrorRecord> {
    let mut wrong = Vec::new();
    match Catalogue::new(settings, env) {
        Ok(catalogue) => wrong
            .extend(catalogue.choose(&settings.model).map_err(|error| setup::located(error, settings, "model")).err()),
        Err(error) => wrong.push(error),
    }
    wrong.extend(setup::configured_tools(settings).err());
    wrong.retain(|error| matches!(error.kind, ErrorKind::Config | ErrorKind::Usage));
    wrong
}

/// `config schema`: the JSON Schema of a configuration file.
pub fn schema() -> String {
    config::json_schema()
}

/// `config path`: the configuration files that exist, in the order in which they are read, one a line; trusted or not.
pub fn path(sources: &Sources<'_>) -> String {
    let mut text = String::new();
    for path in config::config_paths(sources) {
        text.push_str(&path.to_string_lossy());
        text.push('\n');
    }
    text
}

/// `config trust [--revoke] [FILE]`: trusts the nearest project file, or the one that is named, as it is now; says what
/// was trusted, and what it may do.
///
/// # Errors
/// Kind `usage` where there is no file, kind `config` where it cannot be read or the list cannot be written.
pub fn trust(revoke: bool, file: Option<&Path>, env: &Env, cwd: &Path) -> Result<String, ErrorRecord> {
    let file = file.map(|file| cwd.join(file)).or_else(|| config::project_file(env, cwd));
    let Some(file) = file else {
        let error = ErrorRecord::new(ErrorKind::Usage, format!("no {FILE} here or above"));
        return Err(error.with_hint("pirn config init writes one; pirn config trust FILE names another"));
    };
    let shown = file.display();
    if revoke {
        let was = config::distrust_file(env, &file)?;
        return Ok(if was { format!("{shown} is trusted no longer\n") } else { format!("{shown} was not trusted\n") });
    }
    let trusted = config::trust_file(env, &file)?;
    let mut lines = vec![format!("trusted {}", trusted.file.display())];
    lines.extend(trusted.names.iter().map(|path| format!("  and {}, which it names", path.display())));
    let sources = Sources { config_file: Some(file.clone()), bare: true, ..Sources::new(env, cwd.to_path_buf()) };
    let settings = config::examine(&sources).settings;
    for program in config::programs(&settings, cwd, env) {
        lines.push(format!("  {} starts {}", program.user, program.name));
    }
    for (provider, command, _) in settings.key_commands() {
        lines.push(format!("  the key of {provider} is what this prints: {command}"));
    }
    for (provider, url) in
        settings.providers.iter().filter_map(|(name, provider)| Some((name, provider.base_url.as_ref()?)))
    {
        lines.push(format!(
            "  requests of {provider} go to {}",
            config::host(url).as_deref().unwrap_or("a variable's address")
        ));
    }
    Ok(lines.join("\n") + "\n")
}
