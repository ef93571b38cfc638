//! Which variables hold keys, and the keys themselves: what children must not see and texts must not show.
//!
//! Keeps true: every key variable of every known provider counts, whether this run uses it or not.
//!
//! Must not know: who is kept from seeing them.

use std::collections::BTreeMap;

use super::Catalogue;
use crate::config::{ApiKey, expand};
use crate::model::Secret;

impl Catalogue {
    /// Names of all variables that hold keys: those of known providers and those that a configured `api_key` names.
    pub fn key_variable_names(&self) -> Vec<String> {
        let built_in = self.rows.values().flat_map(|row| row.keys.iter().cloned());
        let configured = self.settings.providers.values().filter_map(|provider| match &provider.api_key {
            Some(ApiKey::Template { variables, .. }) => Some(variables.clone()),
            Some(ApiKey::Keyless) | None => None,
        });
        let mut names: Vec<String> = built_in.chain(configured.flatten()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Every key there is, under the name of its variable, or `providers.NAME.api_key` where it stands in a file.
    pub fn keys(&self) -> Vec<(String, Secret)> {
        let mut keys: BTreeMap<String, Secret> = BTreeMap::new();
        for name in self.key_variable_names() {
            if let Some(value) = self.env.text(&name) {
                keys.insert(name, Secret::new(value.trim()));
            }
        }
        for (name, provider) in &self.settings.providers {
            let Some(ApiKey::Template { text, variables }) = &provider.api_key else { continue };
            // What is made of one variable alone is known by that variable.
            let whole = expand(text.expose(), &self.env).ok().filter(|_| variables.len() != 1);
            if let Some(value) = whole {
                keys.insert(crate::config::key_path(&["providers", name, "api_key"]), Secret::new(value.trim()));
            }
        }
        keys.into_iter().collect()
    }
}
