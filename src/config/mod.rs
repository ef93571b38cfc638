//! What was written in which layer, where, and the merged result: files, environment, flags, and the built-in layer.
//!
//! Keeps true: every setting remembers its origin; all errors of all layers are reported at once, with their place and,
//! for an unknown key, a suggestion; a reference to an unset variable is an error, never an empty string; no secret
//! prints. [`Env`] is the only reader of the environment, and only this module reads TOML that users write.
//!
//! Must not know: how settings are used, which providers and models exist, the command line's grammar.
//!
//! # Layers
//!
//! Lowest first; a later one beats an earlier one, key by key:
//!
//! | layer | where |
//! |---|---|
//! | built in | `config/default.toml`, which is compiled in as [`DEFAULT_TOML`] |
//! | file | the file that `--config` names, else `PIRN_CONFIG`; TOML, at most 1 MiB |
//! | environment | `PIRN_MODEL`, `PIRN_THINKING`, `PIRN_TOOLS`, `PIRN_TIMEOUT`, `PIRN_MAX_TURNS`; empty means unset |
//! | `--set KEY=VALUE` | in the order given; the key is a dotted TOML key, the value TOML, or text where it is none |
//! | flags | those with a key of their own, such as `--max-turns` |
//!
//! Tables merge key by key, values and arrays replace. One array edits instead: `tools.enabled`, where all its items
//! begin with `+` or `-`. Outside of files, a list of tools may be written with commas.
//!
//! # Keys
//!
//! `config/default.toml` lists every key of this version with its default and its meaning; [`keys`] lists them as data.
//! `[providers.NAME]` and `[models.NAME]` are tables whose names are the user's.
//!
//! | kind of value | written |
//! |---|---|
//! | duration | `"90s"`, `"10m"`, `"1h30m"`: whole numbers with `d h m s ms`, larger units first, at most 365 days; `"0"` = none |
//! | size | a number of bytes, or `"50KB"`, `"10MB"`; 1024-based |
//! | count | a whole number; 0 = no limit, where the comment says so |
//! | price | USD per million tokens |
//! | word | one of a closed list |
//! | text with `"@file"` | the file's content; relative to the file the key stands in, else to the working directory |
//! | `base_url`, `headers` | `${NAME}` and `${NAME:-default}` are expanded |
//! | `api_key` | `"$NAME"` or `"${NAME}"`; `""` = none; written out only in a file of mode 0600 |
//!
//! Keys that begin with `x-` are ignored anywhere.
//!
//! # Errors
//!
//! All errors of all layers come at once, one a line, as one [`ErrorRecord`](crate::model::ErrorRecord) of kind
//! `config`: `FILE:LINE:COLUMN: what is wrong (did you mean this?)`, where lines and columns count from 1 and columns
//! count characters; for other layers the variable or the flag stands in front. A single suggestion becomes the hint.
//! An unknown key, a wrong type, a value out of range and a reference to an unset variable are errors (in an `api_key`
//! when that provider is used, of kind `auth`); an unknown `PIRN_*` variable is a warning. A key that later versions
//! have says that it is not available in this one. No text shows a secret.
//!
//! # Compatibility
//!
//! A key keeps its name, its unit and its meaning. New keys may come in any version; one that goes is named here and in
//! the changelog, and stays an error that says what to write instead.

mod check;
mod consent;
mod context;
mod env;
mod error;
mod expand;
mod file;
mod find;
mod json_schema;
mod layer;
mod load;
mod node;
mod place;
mod profile;
mod programs;
mod read;
mod read_place;
mod read_table;
mod rule;
mod schema;
mod secret;
mod settings;
mod show;
mod suggest;
mod tree;
mod trust;
mod units;
mod url;
mod written;

pub use consent::{Trusted, config_paths, distrust_file, project_file_of, trust_file};
pub use context::{ContextFile, ContextFiles, context_files};
pub use env::{Env, Proxies};
pub use error::{ConfigError, ConfigErrors, FileLayer, Origin, Place};
pub use expand::{ExpandError, expand};
pub use json_schema::json_schema;
pub use load::{Examined, FoundFile, Override, Sources, Trust, examine, load, load_with_wish};
pub use place::PlaceError;
pub use programs::{Program, programs};
pub use read::key_path;
pub use schema::{KeyInfo, keys};
pub use settings::{
    ApiKey, BackgroundAtExit, BashSettings, Confine, ContextSettings, Durability, EnvInherit, EnvSettings,
    InputSettings, JsonLevel, LimitSettings, LockMode, ModelSettings, OutputSettings, PriceSettings, ProviderSettings,
    ReadSettings, SessionSettings, Settings, ToolSettings, When,
};
pub use show::show;
pub use suggest::nearest;
pub use trust::TrustError;
pub use units::{UnitError, parse_duration, parse_size};
pub use url::{host, host_name, is_loopback};

/// The built-in layer as a commented file; a test proves that it says what [`Settings::default`] says.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");
