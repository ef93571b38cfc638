//! Trusting a project file, and listing the files there are.
//!
//! Keeps true: what is trusted is what was read: the file and every file that it names; a file that cannot be read whole
//! is not trusted.
//!
//! Must not know: how the list is kept.

use std::path::{Path, PathBuf};

use super::Env;
use super::error::{ConfigError, ConfigErrors, FileLayer, Place};
use super::file::{FileError, open_regular, read_open};
use super::find::discover;
use super::load::{Sources, named_files};
use super::trust::{self, TrustError};
use crate::model::{ErrorKind, ErrorRecord};

/// What was trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// The real path.
    pub file: PathBuf,
    /// The files it names.
    pub names: Vec<PathBuf>,
}

impl From<TrustError> for ErrorRecord {
    fn from(error: TrustError) -> Self {
        let kind = if matches!(error, TrustError::Busy { .. }) { ErrorKind::Busy } else { ErrorKind::Config };
        Self::new(kind, error.to_string())
    }
}

/// The configuration files that exist, in the order in which they are read, trusted or not.
pub fn config_paths(sources: &Sources<'_>) -> Vec<PathBuf> {
    let named = sources.named_file().map(|named| sources.cwd.join(named));
    let found =
        if sources.is_bare() { Vec::new() } else { discover(sources.env, &sources.cwd, named.as_deref()).found };
    let named = named.filter(|named| named.exists());
    found.into_iter().map(|found| found.path).chain(named).collect()
}

/// Trusts a file as it is, with the files it names.
pub fn trust_file(env: &Env, path: &Path) -> Result<Trusted, ErrorRecord> {
    let cannot = |problem: FileError| {
        let at = Place::File { layer: FileLayer::Project, file: path.display().to_string().into() };
        let error = ConfigError::at(at, format!("cannot be read: {problem}"));
        ConfigErrors::from_list(vec![error])
            .map_or_else(|| ErrorRecord::new(ErrorKind::Config, problem.to_string()), ErrorRecord::from)
    };
    let bytes = open_regular(path).and_then(|file| read_open(&file)).map_err(cannot)?;
    let file = path.canonicalize().map_err(|error| cannot(error.into()))?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = dir.canonicalize().map_err(|error| cannot(error.into()))?;
    let placed = dir.join(path.file_name().unwrap_or_default());
    let named = named_files(bytes.clone(), &placed, env.home())?;
    trust::grant(env, &file, &bytes, &named)?;
    Ok(Trusted { file, names: named.into_keys().collect() })
}

/// Trusts a file no longer; `false`: it was not trusted. A file that is gone can be named all the same.
pub fn distrust_file(env: &Env, path: &Path) -> Result<bool, ErrorRecord> {
    let real = path.canonicalize().or_else(|_| {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok::<_, std::io::Error>(dir.canonicalize()?.join(path.file_name().unwrap_or_default()))
    });
    let real = real.unwrap_or_else(|_| path.to_path_buf());
    Ok(trust::revoke(env, &real)?)
}
