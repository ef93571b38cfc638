//! Which models and providers exist, what is known about them, and which one a run uses.
//!
//! Keeps true: vendors are data (`config/providers.toml`, `config/models.toml`), and looking up one model parses one
//! line; the dialect of a server goes by its host, not by the name of a provider that was sent elsewhere; a key
//! leaves here only inside a [`Connection`], as a secret.
//!
//! Must not know: how a wire is spoken, HTTP, the command line, where settings were read from.

mod choose;
mod credentials;
mod list;
mod record;
mod table;
mod thinking;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

pub use choose::{Choice, Choices};
pub use list::ModelRow;
pub use thinking::clamp;

use crate::config::{
    ApiKey, ConfigError, ConfigErrors, Env, ExpandError, ModelSettings, Origin, PriceSettings, ProviderSettings,
    Settings, expand, host, host_name, is_loopback, key_path, nearest,
};
use crate::model::{ErrorKind, ErrorRecord, Headers, Model, Prices, Secret, ThinkingStyle};
use crate::port::{Cache, Credential, Models};
use record::Record;
use table::Row;

/// The provider and the id of the built-in scripted model.
pub const DEMO: &str = "demo";
/// The only wire of this version.
pub const OPENAI_COMPLETIONS: &str = "openai-completions";
/// The provider whose models use another wire than their records say, until that wire exists.
const OPENAI: &str = "openai";

/// Everything known about providers and models: what is built in, what was configured, and which keys there are.
#[derive(Clone, Debug)]
pub struct Catalogue {
    rows: BTreeMap<String, Row>,
    settings: Settings,
    env: Env,
}

/// What it takes to talk to a model's provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    pub provider: String,
    /// The wire.
    pub api: String,
    pub base_url: String,
    /// `None`: requests are not signed.
    pub key: Option<Secret>,
    /// What the key may come from, for errors after a refusal: variables, or the key of the configuration.
    pub key_sources: Vec<String>,
    /// The configured headers; they beat the model's.
    pub headers: Headers,
    /// `None` = the proxy variables.
    pub proxy: Option<Secret>,
    pub ca_file: Option<PathBuf>,
    pub cache: Cache,
    /// The dialect, the same as the model's.
    pub compat: Map<String, Value>,
}

impl Catalogue {
    /// Reads the provider table. Errors: kind `config`, for a provider without an address and for an alias of a
    /// provider that does not exist; all of them at once.
    pub fn new(settings: &Settings, env: &Env) -> Result<Self, ErrorRecord> {
        let catalogue = Self { rows: table::rows()?, settings: settings.clone(), env: env.clone() };
        catalogue.check()?;
        Ok(catalogue)
    }

    fn check(&self) -> Result<(), ConfigErrors> {
        let mut errors = Vec::new();
        let at = |key: &str| self.settings.origin(key).clone();
        for (name, provider) in &self.settings.providers {
            let known = self.rows.get(name);
            if provider.base_url.is_none() && known.is_none() {
                let key = key_path(&["providers", name]);
                let near = nearest(name, self.rows.keys().map(String::as_str));
                let message = format!("{key} needs a base_url; no provider of this name is built in");
                errors.push(ConfigError::new(at(&key), message).suggest(near.map(|near| format!("providers.{near}"))));
            }
        }
        for (alias, model) in &self.settings.models {
            let provider = model.id.split_once('/').map(|(provider, _)| provider);
            let Some(provider) = provider.filter(|provider| !self.is_provider(provider)) else { continue };
            if self.suffix_matches(&model.id).is_empty() {
                let key = key_path(&["models", alias, "id"]);
                let message = format!("{key} names the provider {provider}, which does not exist");
                errors.push(ConfigError::new(at(&key), message).suggest(self.near_provider(provider)));
            }
        }
        ConfigErrors::from_list(errors).map_or(Ok(()), Err)
    }

    /// Whether requests can go to a provider of this name.
    fn is_provider(&self, name: &str) -> bool {
        self.rows.contains_key(name) || self.settings.providers.contains_key(name)
    }

    fn near_provider(&self, name: &str) -> Option<String> {
        let names = self.rows.keys().chain(self.settings.providers.keys()).map(String::as_str);
        nearest(name, names).map(str::to_owned)
    }

    fn provider_settings(&self, provider: &str) -> Option<&ProviderSettings> {
        self.settings.providers.get(provider)
    }

    /// A model of a known provider, with the facts of an alias on top; of an unknown id only the address is known.
    /// Without an alias, one that describes an unlisted model lends its facts. `None`: no such provider.
    fn model(&self, provider: &str, id: &str, alias: Option<&ModelSettings>) -> Result<Option<Model>, ErrorRecord> {
        if provider == DEMO {
            return Ok((id == DEMO).then(demo_model));
        }
        if id.is_empty() || !self.is_provider(provider) {
            return Ok(None);
        }
        let row = self.rows.get(provider);
        let record = record::find(provider, id)?;
        let api = self.wire(provider, row, record.as_ref());
        let base_url = self.base_url(provider, api)?;
        let mut model = Model::unknown(provider, id, api, &base_url);
        if let Some(record) = &record {
            record.fill(&mut model);
        }
        let lent = || self.unlisted_facts(provider, id).filter(|_| record.is_none());
        if let Some(facts) = alias.or_else(lent) {
            apply_facts(&mut model, facts);
        }
        model.thinking_style = Some(style(api, row, record.as_ref()));
        model.compat = self.dialect(provider, api, id, &base_url);
        Ok(Some(model))
    }

    /// The facts an alias states about a model that the catalogue does not list.
    fn unlisted_facts(&self, provider: &str, id: &str) -> Option<&ModelSettings> {
        let named = |model: &&ModelSettings| {
            [model.id.as_str(), choose::without_level(&model.id)]
                .iter()
                .any(|spec| spec.split_once('/') == Some((provider, id)))
        };
        self.settings.models.values().find(named)
    }

    /// The user's wire, else the record's, else the provider's. `openai` takes Chat Completions
    /// until the Responses wire exists.
    fn wire<'a>(&'a self, provider: &str, row: Option<&'a Row>, record: Option<&'a Record>) -> &'a str {
        if let Some(api) = self.provider_settings(provider).and_then(|settings| settings.api.as_deref()) {
            return api;
        }
        if provider == OPENAI {
            return OPENAI_COMPLETIONS;
        }
        let recorded = record.and_then(|record| record.api.as_deref());
        recorded.or(row.map(|row| row.api.as_str())).unwrap_or(OPENAI_COMPLETIONS)
    }

    /// The configured address, else the variable's, else the built-in one.
    fn base_url(&self, provider: &str, api: &str) -> Result<String, ErrorRecord> {
        if let Some(url) = self.provider_settings(provider).and_then(|settings| settings.base_url.as_deref()) {
            return Ok(url.trim_end_matches('/').to_owned());
        }
        let row = self.rows.get(provider);
        let variable = row.and_then(|row| row.base_url_variable.as_deref());
        if let Some(name) = variable.filter(|name| self.env.is_unreadable(name)) {
            return Err(ErrorRecord::new(ErrorKind::Config, format!("{name} is not UTF-8")));
        }
        if let Some((name, url)) = variable.and_then(|name| Some((name, self.env.text(name)?.trim()))) {
            if host(url).is_none() {
                let message = format!("{name} must be an http or https URL, such as http://127.0.0.1:8080/v1");
                return Err(ErrorRecord::new(ErrorKind::Config, message));
            }
            return Ok(url.trim_end_matches('/').to_owned());
        }
        if let Some(url) = row.and_then(|row| row.base_url.get(api)) {
            return Ok(url.clone());
        }
        let message = format!("the provider {provider} has no built-in address for {api}");
        Err(ErrorRecord::new(ErrorKind::Config, message).with_hint(format!("set providers.{provider}.base_url")))
    }

    /// The dialect of the server at an address: the provider's own while the address is its own,
    /// else that of the host, else, for a program that can run anywhere, its own, else the generic one, which is
    /// empty. What the user set lies on top.
    fn dialect(&self, provider: &str, api: &str, id: &str, base_url: &str) -> Map<String, Value> {
        let own = self.rows.get(provider);
        let at_home = own.filter(|row| row.base_url.get(api).is_some_and(|url| url == base_url));
        let name = host(base_url).map(|host| host_name(&host).to_owned());
        let of_host = || self.rows.values().find(|row| name.as_deref().is_some_and(|name| row.serves(name)));
        let row = at_home.or_else(of_host).or_else(|| own.filter(|row| row.anywhere));
        let mut compat = row.map(|row| row.dialect(id)).unwrap_or_default();
        if let Some(settings) = self.provider_settings(provider) {
            compat.extend(settings.compat.clone());
        }
        compat
    }

    /// Everything needed to call a model. Errors: kind `auth` where a key is missing, naming the variables.
    pub fn connection(&self, model: &Model) -> Result<Connection, ErrorRecord> {
        Ok(Connection { key: self.signing_key(model)?, ..self.unsigned(model) })
    }

    /// The same without the key, for checks that come before a key is missed.
    pub fn unsigned(&self, model: &Model) -> Connection {
        let provider = model.provider.as_str();
        let settings = self.provider_settings(provider).cloned().unwrap_or_default();
        Connection {
            provider: provider.to_owned(),
            api: model.api.clone(),
            base_url: model.base_url.clone(),
            key: None,
            key_sources: self.key_sources(provider),
            headers: settings.headers,
            proxy: settings.proxy,
            ca_file: settings.ca_file,
            cache: settings.cache,
            compat: model.compat.clone(),
        }
    }

    /// The key for a model's provider; `None` where none is needed. Errors as those of [`Self::connection`].
    pub fn signing_key(&self, model: &Model) -> Result<Option<Secret>, ErrorRecord> {
        if model.provider == DEMO { Ok(None) } else { self.key(&model.provider, &model.base_url) }
    }

    /// What supplies a key, as users write it.
    fn key_sources(&self, provider: &str) -> Vec<String> {
        let written = match self.provider_settings(provider).and_then(|settings| settings.api_key.as_ref()) {
            Some(ApiKey::Command(_) | ApiKey::Given(_)) => true,
            Some(ApiKey::Template { variables, .. }) => variables.is_empty(),
            Some(ApiKey::Keyless) | None => false,
        };
        if written { vec![key_path(&["providers", provider, "api_key"])] } else { self.key_variables(provider) }
    }

    /// Variables a key of this provider may come from.
    fn key_variables(&self, provider: &str) -> Vec<String> {
        match self.provider_settings(provider).and_then(|settings| settings.api_key.as_ref()) {
            Some(ApiKey::Keyless | ApiKey::Command(_) | ApiKey::Given(_)) => Vec::new(),
            Some(ApiKey::Template { variables, .. }) => variables.clone(),
            None => self.rows.get(provider).map(|row| row.keys.clone()).unwrap_or_default(),
        }
    }

    /// The key for requests to an address; `None` where none is needed.
    fn key(&self, provider: &str, base_url: &str) -> Result<Option<Secret>, ErrorRecord> {
        let found = self.found_key(provider)?;
        if found.is_none() && !self.works_without_key(provider, base_url) {
            return Err(self.missing_key(provider, &self.key_variables(provider)));
        }
        let Some(key) = found else { return Ok(None) };
        // A line break from a file or a secret store belongs to nobody's key.
        let key = key.trim();
        if key.chars().any(char::is_control) {
            let message = format!("the key of {provider} holds control characters");
            return Err(ErrorRecord::new(ErrorKind::Auth, message));
        }
        Ok(Some(Secret::new(key)))
    }

    /// The configured key, else the first of the provider's variables that is set. A variable that holds no text or
    /// nothing but blanks is a mistake, not a missing key: a request without one may be another account's.
    fn found_key(&self, provider: &str) -> Result<Option<String>, ErrorRecord> {
        let auth = |message: String| ErrorRecord::new(ErrorKind::Auth, message);
        match self.provider_settings(provider).and_then(|settings| settings.api_key.as_ref()) {
            Some(ApiKey::Keyless) => Ok(None),
            Some(ApiKey::Template { text, .. }) => match expand(text.expose(), &self.env) {
                Ok(key) if key.trim().is_empty() => {
                    Err(auth(format!("{} is blank", key_path(&["providers", provider, "api_key"]))))
                }
                Ok(key) => Ok(Some(key)),
                Err(ExpandError::Unset(name)) => Err(self.missing_key(provider, &[name])),
                Err(ExpandError::Unreadable(name)) => Err(auth(format!("the key of {provider}: {name} is not UTF-8"))),
                Err(problem @ ExpandError::Malformed) => {
                    Err(ErrorRecord::new(ErrorKind::Config, format!("providers.{provider}.api_key: {problem}")))
                }
            },
            Some(ApiKey::Given(key)) if key.expose().trim().is_empty() => {
                Err(auth(format!("the command of {} printed no key", key_path(&["providers", provider, "api_key"]))))
            }
            Some(ApiKey::Given(key)) => Ok(Some(key.expose().to_owned())),
            Some(ApiKey::Command(_)) => {
                let key = key_path(&["providers", provider, "api_key"]);
                Err(auth(format!("the command of {key} has not been run")))
            }
            None => {
                let variables = self.rows.get(provider).map(|row| row.keys.as_slice()).unwrap_or_default();
                let Some(name) = variables.iter().find(|name| self.env.is_set(name)) else { return Ok(None) };
                match self.env.text(name) {
                    Some(key) if key.trim().is_empty() => Err(auth(format!("the key of {provider}: {name} is blank"))),
                    Some(key) => Ok(Some(key.to_owned())),
                    None => Err(auth(format!("the key of {provider}: {name} is not UTF-8"))),
                }
            }
        }
    }

    /// Whether requests may go out unsigned: nobody asked for a key, the server is a local program, or a provider
    /// was redirected to this machine.
    fn works_without_key(&self, provider: &str, base_url: &str) -> bool {
        let keyless = matches!(
            self.provider_settings(provider).and_then(|settings| settings.api_key.as_ref()),
            Some(ApiKey::Keyless)
        );
        let loopback = || host(base_url).is_some_and(|host| is_loopback(host_name(&host)));
        keyless || self.rows.get(provider).is_none_or(|row| row.key_optional) || loopback()
    }

    fn missing_key(&self, provider: &str, variables: &[String]) -> ErrorRecord {
        let key = key_path(&["providers", provider, "api_key"]);
        let named = match self.settings.origin(&key) {
            Origin::BuiltIn => String::new(),
            origin => format!(" ({key}, {origin})"),
        };
        let message = format!("no key for {provider}: set {}{named}", variables.join(" or "));
        let mut record = ErrorRecord::new(ErrorKind::Auth, message).with_hint("pirn -m demo needs no key");
        record.provider = Some(provider.to_owned());
        record
    }

    /// Whether there is a key, as opposed to none being needed. A command counts before it is run.
    fn has_key(&self, provider: &str) -> bool {
        self.has_key_command(provider) || self.found_key(provider).is_ok_and(|key| key.is_some())
    }

    fn has_key_command(&self, provider: &str) -> bool {
        let settings = self.provider_settings(provider);
        matches!(settings.and_then(|settings| settings.api_key.as_ref()), Some(ApiKey::Command(_)))
    }

    /// References to variables that are not set matter once their provider is used.
    fn check_references(&self, provider: &str) -> Result<(), ConfigErrors> {
        let unset = self.provider_settings(provider).map(|settings| settings.unset.clone()).unwrap_or_default();
        ConfigErrors::from_list(unset).map_or(Ok(()), Err)
    }
}

impl Models for Catalogue {
    fn resolve(&self, provider: &str, id: &str) -> Option<Model> {
        self.model(provider, id, None).ok().flatten()
    }

    fn credential(&self, provider: &str) -> Credential {
        if provider == DEMO {
            return Credential::Present;
        }
        if !self.is_provider(provider) {
            return Credential::Missing(Vec::new());
        }
        if self.has_key_command(provider) {
            return Credential::Present;
        }
        let row = self.rows.get(provider);
        let base_url = self.base_url(provider, row.map_or(OPENAI_COMPLETIONS, |row| row.api.as_str()));
        let base_url = base_url.unwrap_or_default();
        match self.key(provider, &base_url) {
            Ok(_) => Credential::Present,
            Err(_) => Credential::Missing(self.key_variables(provider)),
        }
    }
}

/// The built-in scripted model: no network, no key, no cost.
pub fn demo_model() -> Model {
    let mut model = Model::unknown(DEMO, DEMO, DEMO, "");
    "Demo".clone_into(&mut model.name);
    model.prices = Some(Prices::default());
    model
}

/// The form a thinking level takes: the wires of `openai` know efforts only.
fn style(api: &str, row: Option<&Row>, record: Option<&Record>) -> ThinkingStyle {
    if api.starts_with(OPENAI) {
        return ThinkingStyle::Effort;
    }
    let recorded = record.and_then(|record| record.thinking_style);
    recorded.or(row.and_then(|row| row.thinking_style)).unwrap_or(ThinkingStyle::Effort)
}

/// Lays the facts of a `[models.NAME]` table over a model.
fn apply_facts(model: &mut Model, facts: &ModelSettings) {
    if let Some(tokens) = facts.context_window {
        model.context_window = tokens;
    }
    if let Some(tokens) = facts.max_output {
        model.max_tokens = tokens;
    }
    if let Some(reasoning) = facts.reasoning {
        model.reasoning = reasoning;
    }
    if let Some(input) = &facts.input {
        model.input.clone_from(input);
    }
    if let Some(price) = facts.price {
        model.prices = Some(prices(price, &model.prices.take().unwrap_or_default()));
    }
    model.sampling_params.extend(facts.options.clone());
}

/// Stated prices over known ones; tiers do not survive, they belonged to the old prices.
fn prices(stated: PriceSettings, known: &Prices) -> Prices {
    Prices {
        input: stated.input.unwrap_or(known.input),
        output: stated.output.unwrap_or(known.output),
        cache_read: stated.cache_read.unwrap_or(known.cache_read),
        cache_write: stated.cache_write.unwrap_or(known.cache_write),
        tiers: Vec::new(),
    }
}
