//! The rows of `config/providers.toml`.
//!
//! Keeps true: the table always parses, which a test proves; a row's dialect holds only what differs from the generic
//! one.
//!
//! Must not know: settings, keys, models beyond the prefixes of their ids.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::{ErrorKind, ErrorRecord, ThinkingStyle};

/// The file as JSON: the build rewrites it, so that nothing here needs a second kind of reader.
const PROVIDERS: &str = include_str!(concat!(env!("OUT_DIR"), "/providers.json"));

/// One provider; the fields are described at the top of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Row {
    pub(super) rank: Option<u32>,
    pub(super) default_model: Option<String>,
    pub(super) keys: Vec<String>,
    pub(super) key_optional: bool,
    pub(super) base_url_variable: Option<String>,
    pub(super) api: String,
    pub(super) thinking_style: Option<ThinkingStyle>,
    pub(super) base_url: BTreeMap<String, String>,
    pub(super) aggregator: bool,
    pub(super) hosts: Vec<String>,
    pub(super) anywhere: bool,
    pub(super) compat: Map<String, Value>,
    pub(super) prefixes: BTreeMap<String, Map<String, Value>>,
}

impl Row {
    /// Whether a host (lower case, without port) is one of this provider's.
    pub(super) fn serves(&self, host: &str) -> bool {
        self.hosts.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some(end) => host.len() > end.len() && host.ends_with(end),
            None => host == pattern,
        })
    }

    /// The dialect for one model of this server.
    pub(super) fn dialect(&self, id: &str) -> Map<String, Value> {
        let mut compat = self.compat.clone();
        for (_, switches) in self.prefixes.iter().filter(|(prefix, _)| id.starts_with(prefix.as_str())) {
            compat.extend(switches.clone());
        }
        compat
    }
}

/// The built-in table. It always parses; a test says so.
pub(super) fn rows() -> Result<BTreeMap<String, Row>, ErrorRecord> {
    serde_json::from_str(PROVIDERS).map_err(|error| {
        ErrorRecord::new(ErrorKind::Internal, format!("the built-in provider table is broken: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Row, rows};
    use crate::config::{host, host_name, keys};
    use crate::provider::catalogue::record;

    fn row(hosts: &[&str]) -> Row {
        Row { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..Row::default() }
    }

    #[test]
    fn a_star_stands_for_the_hosts_below() {
        let azure = row(&["*.openai.azure.com", "exact.host"]);
        assert!(azure.serves("me.openai.azure.com") && azure.serves("exact.host"));
        assert!(!azure.serves("openai.azure.com") && !azure.serves("x.exact.host") && !azure.serves("evil-exact.host"));
    }

    #[test]
    fn every_default_model_is_listed_where_its_provider_lists_models() {
        for (name, row) in rows().unwrap() {
            assert_eq!(row.rank.is_some(), row.default_model.is_some(), "{name}");
            let Some(id) = row.default_model else { continue };
            let prefix = format!("{name}/");
            let lists = record::specs().any(|spec| spec.starts_with(&prefix));
            assert_eq!(record::find(&name, &id).unwrap().is_some(), lists, "{name}/{id}");
        }
    }

    #[test]
    fn ranks_are_the_documented_order() {
        let mut ranked: Vec<_> =
            rows().unwrap().into_iter().filter_map(|(name, row)| Some((row.rank?, name))).collect();
        ranked.sort();
        let names: Vec<&str> = ranked.iter().map(|(_, name)| name.as_str()).collect();
        let documented = [
            "anthropic",
            "openai",
            "google",
            "openrouter",
            "deepseek",
            "xai",
            "groq",
            "mistral",
            "together",
            "fireworks",
            "cerebras",
            "moonshotai",
            "zai",
            "nvidia",
            "huggingface",
        ];
        assert_eq!(names, documented, "the order in which a run without a model tries providers");
    }

    #[test]
    fn rows_use_only_switches_that_the_configuration_knows_and_addresses_of_their_own_hosts() {
        let known: Vec<String> = keys().into_iter().map(|info| info.key).collect();
        for (name, row) in rows().unwrap() {
            for switch in row.compat.keys().chain(row.prefixes.values().flat_map(|switches| switches.keys())) {
                assert!(known.contains(&format!("providers.NAME.compat.{switch}")), "{name}: {switch}");
            }
            for url in row.base_url.values() {
                let host = host(url).unwrap();
                assert!(row.anywhere || row.serves(host_name(&host)), "{name}: {url}");
                assert!(!url.ends_with('/'), "{name}: {url}");
            }
            assert!(row.base_url.is_empty() || row.base_url.contains_key(&row.api), "{name}");
        }
    }
}
