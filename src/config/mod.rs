//! What was written in which layer, where, and the merged result: files, environment, flags, and the built-in layer.
//!
//! Keeps true: every setting remembers its origin; all errors of all layers are reported at once, with their place
//! and, for an unknown key, a suggestion; a reference to an unset variable is an error, never an empty string; no
//! secret prints. [`Env`] is the only reader of the environment, and only this module reads TOML that users write.
//!
//! Must not know: how settings are used, which providers and models exist, the command line's grammar.

mod env;
mod error;
mod expand;
mod load;
mod node;
mod read;
mod rule;
mod schema;
mod settings;
mod suggest;
mod units;
mod url;

pub use env::{Env, Proxies};
pub use error::{ConfigError, ConfigErrors, Origin, Place};
pub use expand::{ExpandError, expand};
pub use load::{Override, Sources, load};
pub use read::key_path;
pub use schema::{KeyInfo, keys};
pub use settings::{
    ApiKey, Confine, InputSettings, JsonLevel, LimitSettings, ModelSettings, OutputSettings, PriceSettings,
    ProviderSettings, ReadSettings, Settings, ToolSettings, When,
};
pub use suggest::nearest;
pub use units::{UnitError, parse_duration, parse_size};
pub use url::{host, host_name, is_loopback};

/// The built-in layer as a commented file; a test proves that it says what [`Settings::default`] says.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");
