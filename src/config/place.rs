//! Where configuration, state and cache of a user lie.
//!
//! Keeps true: `PIRN_HOME` beats the XDG variables, which beat the home directory; a relative path in one of them never
//! makes the working directory a home (CFG-05); a variable is missed only where its place is needed.
//!
//! Must not know: what lies there, whether it exists.

use std::path::PathBuf;

use super::Env;
use crate::model::{ErrorKind, ErrorRecord};

const HOME_OF_OURS: &str = "PIRN_HOME";
/// The directory below an XDG directory.
const OWN: &str = "pirn";

/// One of the three places.
struct Place {
    /// As errors call it.
    what: &'static str,
    xdg: &'static str,
    /// Below the home directory.
    below_home: &'static str,
    /// Below `PIRN_HOME`.
    below_ours: &'static str,
}

const CONFIG: Place =
    Place { what: "configuration", xdg: "XDG_CONFIG_HOME", below_home: ".config", below_ours: "config" };
const STATE: Place = Place { what: "state", xdg: "XDG_STATE_HOME", below_home: ".local/state", below_ours: "state" };
const CACHE: Place = Place { what: "cache", xdg: "XDG_CACHE_HOME", below_home: ".cache", below_ours: "cache" };

/// Why a place is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error("no place for {what}: HOME is not set (nor {xdg}, nor PIRN_HOME)")]
    Unset { what: &'static str, xdg: &'static str },
    #[error("no place for {what}: HOME is not an absolute path")]
    RelativeHome { what: &'static str },
    #[error("PIRN_HOME is not an absolute path")]
    Relative,
}

impl From<PlaceError> for ErrorRecord {
    fn from(error: PlaceError) -> Self {
        Self::new(ErrorKind::Config, error.to_string())
    }
}

impl Env {
    /// Where the user's `pirn.toml` and context files lie.
    pub fn config_dir(&self) -> Result<PathBuf, PlaceError> {
        self.place(&CONFIG)
    }

    /// Where sessions and what was trusted lie.
    pub fn state_dir(&self) -> Result<PathBuf, PlaceError> {
        self.place(&STATE)
    }

    /// Where lies what may be deleted at any time.
    pub fn cache_dir(&self) -> Result<PathBuf, PlaceError> {
        self.place(&CACHE)
    }

    fn place(&self, place: &Place) -> Result<PathBuf, PlaceError> {
        if let Some(ours) = self.path(HOME_OF_OURS) {
            return if ours.is_absolute() { Ok(ours.join(place.below_ours)) } else { Err(PlaceError::Relative) };
        }
        if let Some(xdg) = self.path(place.xdg).filter(|xdg| xdg.is_absolute()) {
            return Ok(xdg.join(OWN));
        }
        match self.home() {
            Some(home) => Ok(home.join(place.below_home).join(OWN)),
            None if self.is_set("HOME") => Err(PlaceError::RelativeHome { what: place.what }),
            None => Err(PlaceError::Unset { what: place.what, xdg: place.xdg }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::PlaceError;
    use crate::config::Env;

    #[test]
    fn places_are_found_by_our_variable_then_by_xdg_then_below_home() {
        let all = [("PIRN_HOME", "/p"), ("XDG_STATE_HOME", "/s"), ("XDG_CACHE_HOME", "cache"), ("HOME", "/h")];
        let env = Env::from_pairs(all);
        assert_eq!(env.config_dir().unwrap(), Path::new("/p/config"));
        assert_eq!(env.state_dir().unwrap(), Path::new("/p/state"));
        assert_eq!(env.cache_dir().unwrap(), Path::new("/p/cache"));
        let env = Env::from_pairs(all.into_iter().skip(1));
        assert_eq!(env.config_dir().unwrap(), Path::new("/h/.config/pirn"));
        assert_eq!(env.state_dir().unwrap(), Path::new("/s/pirn"));
        assert_eq!(env.cache_dir().unwrap(), Path::new("/h/.cache/pirn"), "a relative XDG variable counts as unset");
    }

    #[test]
    fn a_missing_home_is_named_and_a_relative_one_is_none_cfg_05() {
        let none = Env::from_pairs([("PATH", "/bin")]);
        let error = none.state_dir().unwrap_err();
        assert_eq!(error.to_string(), "no place for state: HOME is not set (nor XDG_STATE_HOME, nor PIRN_HOME)");
        let relative = Env::from_pairs([("HOME", ".")]);
        assert_eq!(relative.config_dir(), Err(PlaceError::RelativeHome { what: "configuration" }));
        assert_eq!(Env::from_pairs([("PIRN_HOME", "x"), ("HOME", "/h")]).cache_dir(), Err(PlaceError::Relative));
    }
}
