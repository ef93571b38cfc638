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
//! | system | `/etc/pirn/pirn.toml` |
//! | user | `pirn.toml` in [`Env::config_dir`]: `PIRN_HOME/config`, else `XDG_CONFIG_HOME/pirn`, else `~/.config/pirn` |
//! | project | the nearest `pirn.toml` from the working directory up to the one that holds `.git`, never beyond the home directory; one file; needs trust |
//! | named | the file that `--config` names, else `PIRN_CONFIG` |
//! | profile | the `[profiles.NAME]` of any of these files that `--profile` or `PIRN_PROFILE` names; any keys but profiles |
//! | environment | `PIRN_MODEL`, `PIRN_THINKING`, `PIRN_TOOLS`, `PIRN_TIMEOUT`, `PIRN_MAX_TURNS`; empty means unset |
//! | `--set KEY=VALUE` | in the order given; the key is a dotted TOML key, the value TOML, or text where it is none |
//! | flags | those with a key of their own, such as `--max-turns` |
//!
//! Files are TOML of at most 1 MiB. `--bare` and `PIRN_BARE` ignore system, user and project files and context files. A
//! file counts once: the one that is named is no project file as well. A user or system file that may not be looked at is
//! a warning, so that a container with the home of another user works.
//!
//! Tables merge key by key, values and arrays replace. `env.drop` only grows: no layer lifts a prohibition. One array
//! edits: `tools.enabled`, where all its items begin with `+` or `-`. Outside of files, a list of tools may be written
//! with commas. `enabled = false` turns an entry of `[tools]`, `[hooks]` or `[mcp]` off, whichever layer it stands in;
//! what is off is checked for types and needs nothing else.
//!
//! # Trust
//!
//! A project file can start programs and send keys elsewhere, so it is read only if the user trusts it: for good with
//! `pirn config trust`, for a run with `--trust` or `PIRN_TRUST=1`, or by naming it with `--config`. Trust goes to the
//! real path and the SHA256 of the file and of every file that it names (`@file`, `parameters_file`, `mcp_import`); they
//! are kept in `trust.json` (mode 0600) in [`Env::state_dir`]. Of a file that is not trusted nothing is interpreted, and
//! the files that a trusted one names are used as they were when their hashes were compared. What is not a regular file
//! is refused in the places where files are found, and in what found files name.
//!
//! `trust.json` is one JSON object, version 1:
//!
//! ```json
//! {"version": 1, "files": {"/src/pirn.toml": {"sha256": "…", "names": {"/src/prompt.md": "…"}}}}
//! ```
//!
//! `files` has an entry for each trusted file by its real path: the SHA256 of its bytes, and those of the files that it
//! names, by the paths they were read at; both are 64 lower-case hex digits. The list is replaced as a whole while
//! `trust.lock` beside it is locked. It is an error, and nothing is trusted, where it has another version, does not
//! parse or can be written by others.
//!
//! # Context files
//!
//! [`context_files`] reads what `context.files` names in the working directory and the directories above it, up to the one
//! that holds `.git` or, without one, the project file in use; where neither is, in the working directory alone. Then
//! the user's own, in [`Env::config_dir`]. They are text and need no trust.
//!
//! # Keys
//!
//! `config/default.toml` lists every key of this version with its default and its meaning; [`keys`] lists all of them as
//! data, and [`json_schema`] describes them to editors.
//!
//! | kind of value | written |
//! |---|---|
//! | duration | `"90s"`, `"10m"`, `"1h30m"`: whole numbers with `d h m s ms`, larger units first, at most 365 days; `"0"` = none |
//! | size | a number of bytes, or `"50KB"`, `"10MB"`; 1024-based |
//! | count | a whole number; 0 = no limit, where the comment says so |
//! | price | USD per million tokens |
//! | word | one of a closed list |
//! | text with `"@file"` | the file's content |
//! | path | relative to the file the key stands in, else to the working directory; `~/` is the home directory. `tools.roots` is relative to the run's working directory wherever it stands |
//! | program | a name on `PATH`, or with a slash a path |
//! | `env`, `headers`, `url`, `base_url`, `cwd`, `command` | `${NAME}` and `${NAME:-default}` are expanded, but not in a line for a shell, which expands it itself |
//! | `api_key` | `"$NAME"` or `"${NAME}"`; `"!command"` = what it prints on one line, run by `sh` before the first request and again after a 401; `""` = none; written out only in the user's own file of mode 0600, or one that was named |
//!
//! Keys that begin with `x-` are ignored anywhere.
//!
//! # Errors
//!
//! All errors of all layers come at once, one a line, as one [`ErrorRecord`](crate::model::ErrorRecord) of kind
//! `config`: `FILE:LINE:COLUMN: what is wrong (did you mean this?)`, where lines and columns count from 1 and columns
//! count characters; for other layers the variable or the flag stands in front. A single suggestion becomes the hint.
//! An unknown key, a wrong type, a value out of range and a reference to an unset variable are errors (in a table of
//! `[providers]` when that provider is used; in an `api_key` of kind `auth`); an unknown `PIRN_*` variable is a warning. A
//! key that later versions have is checked and then says that it is not available in this one. Profiles that are not in
//! use are checked as well. No text shows a secret.
//!
//! # Listings
//!
//! [`show`] prints the effective settings as TOML that loads again to the same settings, but for values that may hold a
//! secret, which stand as comments without the value: keys and headers that are written out, addresses with a password,
//! variables with a telling name. [`config_paths`] lists the files that exist, in the order of the layers, trusted or not.
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
mod given;
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

pub use consent::{Trusted, config_paths, distrust_file, trust_file};
pub use context::{ContextFile, ContextFiles, context_files};
pub use env::{Env, Proxies};
pub use error::{ConfigError, ConfigErrors, FileLayer, Origin, Place};
pub use expand::{ExpandError, expand};
pub use find::project_file;
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
