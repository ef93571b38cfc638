//! Which variables hold keys, and the keys themselves: what children must not see and texts must not show.
//!
//! Keeps true: every key variable of every known provider counts, whether this run uses it or not.
//!
//! Must not know: who is kept from seeing them.

use std::collections::BTreeMap;

use super::Catalogue;
use crate::config::{ApiKey, expand, key_path};
use crate::model::Secret;
use crate::process::is_core;
use crate::process::mask::looks_secret;

impl Catalogue {
    /// Names of all variables that hold keys: those of known providers, and those that a configured key, header or
    /// address refers to (V1). What every program needs, such as `HOME`, is nobody's key.
    pub fn key_variable_names(&self) -> Vec<String> {
        self.key_variables_known().into_keys().collect()
    }

    /// Every key there is, under the name of its variable, or `providers.NAME.api_key` where it stands in a file. Of the
    /// variables of headers only what is a secret by its header or by its look: the word in `X-Team` is none.
    pub fn keys(&self) -> Vec<(String, Secret)> {
        let mut keys: Vec<(String, Secret)> = Vec::new();
        for (name, is_key) in self.key_variables_known() {
            let value = self.env.text(&name).map(str::trim);
            if let Some(value) = value.filter(|value| is_key || looks_secret(value)) {
                keys.push((name, Secret::new(value)));
            }
        }
        for (name, provider) in &self.settings.providers {
            let whole = match &provider.api_key {
                Some(ApiKey::Template { text, .. }) => expand(text.expose(), &self.env).ok(),
                Some(ApiKey::Given(key)) => Some(key.expose().to_owned()),
                Some(ApiKey::Keyless | ApiKey::Command(_)) | None => None,
            };
            let whole = whole.map(|whole| Secret::new(whole.trim()));
            // What is one variable and nothing else is known by that.
            if let Some(whole) = whole.filter(|whole| !keys.iter().any(|(_, known)| known == whole)) {
                keys.push((key_path(&["providers", name, "api_key"]), whole));
            }
        }
        keys
    }

    /// The variables, and whether what one holds is a secret whatever it looks like.
    fn key_variables_known(&self) -> BTreeMap<String, bool> {
        let built_in = self.rows.values().flat_map(|row| row.keys.iter().map(|name| (name, true)));
        let configured = self.settings.providers.values().flat_map(|provider| {
            let of_key = match &provider.api_key {
                Some(ApiKey::Template { variables, .. }) => variables.as_slice(),
                Some(ApiKey::Keyless | ApiKey::Command(_) | ApiKey::Given(_)) | None => &[],
            };
            let of_others = provider.credentials.iter().filter(|(name, _)| !is_core(name));
            of_key.iter().map(|name| (name, true)).chain(of_others.map(|(name, is_key)| (name, *is_key)))
        });
        let mut known = BTreeMap::new();
        for (name, is_key) in built_in.chain(configured) {
            *known.entry(name.clone()).or_default() |= is_key;
        }
        known
    }
}
