//! Reading the layers, lowest first, and laying each over the one below.
//!
//! Keeps true: all errors of all layers are gathered before anything fails; nothing of a project file that is not
//! trusted is interpreted; a profile overrides all files, whichever of them it stands in.
//!
//! Must not know: the keys, what a setting does.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Env;
use super::check::finish;
use super::env::READ;
use super::error::{ConfigError, ConfigErrors, FileLayer, Origin, Place};
use super::file::{FileError, Files, is_private, read_open, text_of};
use super::find::{Found, discover};
use super::layer::{Layer, Source};
use super::node::{Data, Name, Node, at_path, from_value, parse_file, parse_set};
use super::profile::{self, Part};
use super::settings::{JsonLevel, Settings};
use super::tree::read_root;
use super::trust::{self, Verdict};

/// Where settings come from, besides the built-in layer.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    pub env: &'a Env,
    /// `--config`; beats `PIRN_CONFIG`.
    pub config_file: Option<PathBuf>,
    /// `--profile`; beats `PIRN_PROFILE`.
    pub profile: Option<String>,
    /// `--trust`: the project file is trusted this time; `PIRN_TRUST` says the same.
    pub trust: bool,
    /// `--bare`: no system, user and project files, no context files; `PIRN_BARE` says the same.
    pub bare: bool,
    /// The `KEY=VALUE` of each `--set`, in order.
    pub sets: Vec<String>,
    /// Flags with a key of their own; they beat `--set`.
    pub flags: Vec<Override>,
    /// The run's working directory; files named by flags and variables are relative to it.
    pub cwd: PathBuf,
}

impl<'a> Sources<'a> {
    /// Files and environment alone, as a command without flags has them.
    pub fn new(env: &'a Env, cwd: PathBuf) -> Self {
        Self {
            env,
            config_file: None,
            profile: None,
            trust: false,
            bare: false,
            sets: Vec::new(),
            flags: Vec::new(),
            cwd,
        }
    }

    pub(super) fn is_bare(&self) -> bool {
        self.bare || self.env.switch("PIRN_BARE")
    }

    fn is_trusting(&self) -> bool {
        self.trust || self.env.agrees("PIRN_TRUST")
    }

    /// The file that was named, as it was named.
    pub(super) fn named_file(&self) -> Option<PathBuf> {
        self.config_file.clone().or_else(|| self.env.path("PIRN_CONFIG"))
    }

    /// The profile that was named, and where.
    fn named_profile(&self) -> Option<(String, Origin)> {
        let by_flag = self.profile.clone().map(|name| (name, Origin::Flag("--profile".to_owned())));
        by_flag.or_else(|| {
            const VARIABLE: &str = "PIRN_PROFILE";
            Some((self.env.text(VARIABLE)?.to_owned(), Origin::Env(VARIABLE.to_owned())))
        })
    }
}

/// A setting given by a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Dotted.
    pub key: &'static str,
    pub value: toml::Value,
    /// The flag as errors and origins name it, such as `--max-turns`.
    pub flag: &'static str,
}

/// A configuration file that was found, and why it is read or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    pub layer: FileLayer,
    /// Absolute if the working directory is.
    pub path: PathBuf,
    pub trust: Trust,
}

/// Why a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It is the user's or the system's, or was named.
    NotNeeded,
    /// The list of trusted files holds it as it is.
    Listed,
    /// For this run.
    Once,
    /// It is not read.
    None,
}

/// Everything that can be said about a configuration, whatever is wrong with it.
#[derive(Debug)]
pub struct Examined {
    /// As far as they could be read.
    pub settings: Settings,
    pub errors: Option<ConfigErrors>,
    /// The files, lowest layer first.
    pub files: Vec<FoundFile>,
}

/// Reads all layers, lowest first: built in, files, profile, environment, flags. Reports every error of every layer at
/// once; an untrusted project file is one. An unknown `PIRN_*` variable is a warning in the result.
pub fn load(sources: &Sources<'_>) -> Result<Settings, ConfigErrors> {
    load_with_wish(sources).1
}

/// The same, and what `output.json` says as far as it could be read, so that errors are told in the form asked for.
pub fn load_with_wish(sources: &Sources<'_>) -> (JsonLevel, Result<Settings, ConfigErrors>) {
    let Examined { settings, errors, .. } = examine(sources);
    let wish = settings.output.json;
    (wish, errors.map_or(Ok(settings), Err))
}

/// The same, with the settings as far as they could be read and the files that were found.
pub fn examine(sources: &Sources<'_>) -> Examined {
    let mut loader = Loader { home: sources.env.home(), ..Loader::default() };
    loader.settings.bare = sources.is_bare();
    loader.files(sources);
    loader.profiles(sources);
    loader.environment(sources.env, &sources.cwd);
    for set in &sources.sets {
        loader.set(set, &sources.cwd);
    }
    for flag in &sources.flags {
        let at = Origin::Flag(flag.flag.to_owned());
        let data = from_value(&flag.value, &at);
        loader.outside(at_path(flag.key, data, &at), &sources.cwd);
    }
    finish(&mut loader.settings, sources.env, &mut loader.errors);
    Examined { settings: loader.settings, errors: ConfigErrors::from_list(loader.errors), files: loader.found }
}

/// The files that a configuration file names in its values, as they are now, or what cannot be read of them. Mistakes
/// of other kinds are nothing to those who ask.
pub(super) fn named_files(
    bytes: Vec<u8>,
    path: &Path,
    home: Option<PathBuf>,
) -> Result<BTreeMap<PathBuf, Vec<u8>>, ConfigErrors> {
    let layer = FileLayer::Project;
    let name: Arc<str> = path.display().to_string().into();
    let mut loader = Loader { home, ..Loader::default() };
    let dir = path.parent().unwrap_or(path).to_path_buf();
    loader.text(layer, &name, bytes, &loader.source(dir, false, Files::Regular));
    let parts = std::mem::take(&mut loader.parts);
    for part in parts {
        loader.part(part, None);
    }
    let mut files = BTreeMap::new();
    let mut errors: Vec<ConfigError> = loader.unreadable;
    for (path, read) in loader.named {
        match read {
            Ok(bytes) => drop(files.insert(path, bytes)),
            Err(problem) => {
                let at = Place::File { layer, file: path.display().to_string().into() };
                errors.push(ConfigError::at(at, format!("cannot be read: {problem}")));
            }
        }
    }
    ConfigErrors::from_list(errors).map_or(Ok(files), Err)
}

#[derive(Default)]
struct Loader {
    settings: Settings,
    errors: Vec<ConfigError>,
    found: Vec<FoundFile>,
    /// Those of the errors that kept a file from being read at all.
    unreadable: Vec<ConfigError>,
    /// Pieces of profiles, in the order of their files.
    parts: Vec<Part>,
    /// Files that values name, and what came of reading them.
    named: Vec<(PathBuf, Result<Vec<u8>, FileError>)>,
    /// Whether there is a project file that is not trusted.
    untrusted: bool,
    home: Option<PathBuf>,
}

impl Loader {
    fn source(&self, dir: PathBuf, private: bool, files: Files) -> Source {
        Source { dir, home: self.home.clone(), private, files }
    }

    fn files(&mut self, sources: &Sources<'_>) {
        let named = sources.named_file();
        if !sources.is_bare() {
            let path = named.as_ref().map(|named| sources.cwd.join(named));
            let discovery = discover(sources.env, &sources.cwd, path.as_deref());
            self.settings.warnings.extend(discovery.warnings);
            if let Some(problem) = discovery.problem {
                self.errors.push(ConfigError::at(Place::Nowhere, problem.to_string()));
            }
            for found in discovery.found {
                self.found_file(sources, found);
            }
        }
        if let Some(named) = named {
            self.named_file(&sources.cwd, &named);
        }
    }

    /// A file the user named is read whatever it is, a pipe among them.
    fn named_file(&mut self, cwd: &Path, named: &Path) {
        let layer = FileLayer::Named;
        let name: Arc<str> = named.display().to_string().into();
        let path = cwd.join(named);
        let read =
            File::open(&path).map_err(FileError::from).and_then(|file| Ok((read_open(&file)?, is_private(&file))));
        let (bytes, private) = match read {
            Ok(read) => read,
            Err(problem) => return self.cannot_read(layer, &name, &problem),
        };
        self.found.push(FoundFile { layer, path: path.clone(), trust: Trust::NotNeeded });
        let dir = path.parent().unwrap_or(cwd).to_path_buf();
        self.text(layer, &name, bytes, &self.source(dir, private, Files::Any));
        self.settings.files.push(path);
    }

    fn found_file(&mut self, sources: &Sources<'_>, found: Found) {
        let Found { layer, path, shown, file } = found;
        let name: Arc<str> = shown.into();
        let mut dir = path.parent().unwrap_or(&sources.cwd).to_path_buf();
        let read = file.and_then(|file| Ok((read_open(&file)?, is_private(&file))));
        let (mut trust, mut files, mut private) = (Trust::NotNeeded, Files::Regular, false);
        if layer == FileLayer::Project {
            dir = dir.canonicalize().unwrap_or(dir);
            trust = if sources.is_trusting() { Trust::Once } else { Trust::None };
            if let (Trust::None, Ok((bytes, _))) = (trust, &read) {
                let Some(pinned) = self.listed(sources.env, &path, &name, bytes) else {
                    self.found.push(FoundFile { layer, path, trust });
                    return;
                };
                (trust, files) = (Trust::Listed, Files::Pinned(Arc::new(pinned)));
            }
        } else {
            private = read.as_ref().is_ok_and(|(_, private)| *private);
        }
        self.found.push(FoundFile { layer, path: path.clone(), trust });
        let bytes = match read {
            Ok((bytes, _)) => bytes,
            Err(problem) => return self.cannot_read(layer, &name, &problem),
        };
        if layer == FileLayer::Project {
            self.settings.project = path.parent().map(Path::to_path_buf);
        }
        self.text(layer, &name, bytes, &self.source(dir, private, files));
        self.settings.files.push(path);
    }

    /// The files that go with a project file that is trusted as it is; else why it is not is an error.
    fn listed(&mut self, env: &Env, path: &Path, name: &str, bytes: &[u8]) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
        let at = Place::Named(FileLayer::Project);
        let verdict = path.canonicalize().map_err(|error| error.to_string());
        let verdict = verdict.and_then(|path| {
            let verdict = trust::verify(env, &path, bytes).map_err(|error| error.to_string());
            verdict.map(|verdict| (path, verdict))
        });
        let error = match verdict {
            Ok((_, Verdict::Trusted(named))) => return Some(named),
            Ok((_, Verdict::Unknown)) => format!("{name} is not trusted"),
            Ok((path, Verdict::Changed(changed))) if changed == path => {
                format!("{name} has changed since it was trusted")
            }
            Ok((_, Verdict::Changed(changed))) => {
                format!("{}, which {name} names, has changed since it was trusted", changed.display())
            }
            Err(problem) => format!("{name} is not trusted: {problem}"),
        };
        self.untrusted = true;
        self.errors.push(ConfigError::at(at, error).remedy(trust::REMEDY));
        None
    }

    fn cannot_read(&mut self, layer: FileLayer, name: &Arc<str>, problem: &FileError) {
        let at = Place::File { layer, file: Arc::clone(name) };
        let message = match problem {
            FileError::NotText(_) => problem.to_string(),
            _ => format!("cannot be read: {problem}"),
        };
        let error = ConfigError::at(at, message);
        self.unreadable.push(error.clone());
        self.errors.push(error);
    }

    fn text(&mut self, layer: FileLayer, name: &Arc<str>, bytes: Vec<u8>, source: &Source) {
        let text = match text_of(bytes) {
            Ok(text) => text,
            Err(problem) => return self.cannot_read(layer, name, &problem),
        };
        match parse_file(layer, name, &text) {
            Ok(root) => self.layer(root, source, true),
            Err(errors) => {
                self.unreadable.extend(errors.iter().cloned());
                self.errors.extend(errors);
            }
        }
    }

    fn profiles(&mut self, sources: &Sources<'_>) {
        let parts = std::mem::take(&mut self.parts);
        let named = sources.named_profile();
        if let Some((name, at)) = &named
            && !self.untrusted
            && !parts.iter().any(|part| part.name == *name)
        {
            self.errors.push(profile::unknown(name, at, &parts));
        }
        let wanted = named.map(|(name, _)| name);
        for part in parts {
            self.part(part, wanted.as_deref());
        }
        self.settings.profile = wanted;
    }

    /// Lays a piece of the profile in use over what is there; others are only checked.
    fn part(&mut self, part: Part, wanted: Option<&str>) {
        let Part { name, entries, source } = part;
        let prefix = profile::prefix(&name);
        let mut scratch = Settings::default();
        let Self { settings, errors, named, .. } = self;
        let target = if wanted == Some(name.as_str()) { settings } else { &mut scratch };
        // Taken out so that tables and what was written can change at the same time.
        let mut written = std::mem::take(&mut target.written);
        let mut layer = Layer { source: &source, prefix: &prefix, errors, written: &mut written, named };
        read_root(&mut layer, target, entries);
        target.written = written;
    }

    fn environment(&mut self, env: &Env, cwd: &Path) {
        self.settings.warnings.extend(env.warnings());
        for name in env.unreadable() {
            self.errors.push(ConfigError::new(Origin::Env(name.to_owned()), "not UTF-8"));
        }
        let settings = READ.iter().filter_map(|(name, key)| Some((*name, (*key)?, env.text(name)?)));
        for (name, key, value) in settings {
            let at = Origin::Env(name.to_owned());
            self.outside(at_path(key, Data::Loose(value.to_owned()), &at), cwd);
        }
    }

    fn set(&mut self, set: &str, cwd: &Path) {
        let at = Origin::Flag("--set".to_owned());
        let node = split_set(set).and_then(|(key, value)| parse_set(key.trim(), value.trim(), &at));
        match node {
            Some(node) => self.outside(node, cwd),
            // The text may hold a key, so it is not shown.
            None => self.errors.push(ConfigError::new(at, "takes KEY=VALUE with a dotted TOML key")),
        }
    }

    /// A layer that is no file.
    fn outside(&mut self, root: Node, cwd: &Path) {
        let source = self.source(cwd.to_path_buf(), false, Files::Any);
        self.layer(root, &source, false);
    }

    fn layer(&mut self, root: Node, source: &Source, in_file: bool) {
        let Data::Table(mut entries) = root.data else { return };
        let Self { settings, errors, named, parts, .. } = self;
        if in_file {
            profile::take(&mut entries, source, parts, errors);
        }
        let mut written = std::mem::take(&mut settings.written);
        let mut layer = Layer { source, prefix: "", errors, written: &mut written, named };
        read_root(&mut layer, settings, entries);
        settings.written = written;
    }
}

/// Splits at the first `=` outside of a quoted part of the key.
fn split_set(set: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let at = set.char_indices().find(|(_, c)| {
        match quote {
            Some(open) if open == *c => quote = None,
            None if *c == '"' || *c == '\'' => quote = Some(*c),
            _ => {}
        }
        *c == '=' && quote.is_none()
    });
    let (key, rest) = set.split_at_checked(at?.0)?;
    Some((key, rest.strip_prefix('=')?))
}

/// The entries of a table as its layer holds them.
pub(super) type Entries = Vec<(Name, Node)>;
