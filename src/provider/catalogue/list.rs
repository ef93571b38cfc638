use serde::Serialize;

use super::choose::without_level;
use super::{Catalogue, demo_model, record};
use crate::model::{ErrorRecord, Model};
use crate::port::{Credential, Models as _};

/// One line of `pirn models`: the record and whether it can be used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelRow {
    #[serde(flatten)]
    pub model: Model,
    /// Whether its provider has a key or needs none.
    pub configured: bool,
}

impl Catalogue {
    /// Every known model whose `provider/id` or name holds all words of the pattern, whatever the case, sorted by
    /// `provider/id`: the listed ones, those that aliases describe, and the demo. An empty pattern lists all.
    pub fn list(&self, pattern: &str) -> Result<Vec<ModelRow>, ErrorRecord> {
        let words: Vec<String> = pattern.split_whitespace().map(str::to_lowercase).collect();
        let mut specs: Vec<&str> = record::specs().collect();
        specs.extend(self.settings.models.values().map(|model| listed_as(&model.id)));
        specs.sort_unstable();
        specs.dedup();
        let mut rows = Vec::new();
        let mut known: Option<(String, bool)> = None;
        for (provider, id) in specs.into_iter().filter_map(|spec| spec.split_once('/')) {
            let Some(model) = self.model(provider, id, None)? else { continue };
            if !fits(&model, &words) {
                continue;
            }
            // Specs are sorted, so a provider is asked once.
            let configured = match &known {
                Some((name, configured)) if name == provider => *configured,
                _ => matches!(self.credential(provider), Credential::Present),
            };
            known = Some((provider.to_owned(), configured));
            rows.push(ModelRow { model, configured });
        }
        let demo = demo_model();
        if fits(&demo, &words) {
            let at = rows.partition_point(|row| row.model.spec() < demo.spec());
            rows.insert(at, ModelRow { model: demo, configured: true });
        }
        Ok(rows)
    }
}

/// An alias's id without a level; of a listed model everything is id.
fn listed_as(id: &str) -> &str {
    let whole = id.split_once('/').is_some_and(|(provider, id)| matches!(record::find(provider, id), Ok(Some(_))));
    if whole { id } else { without_level(id) }
}

fn fits(model: &Model, words: &[String]) -> bool {
    let text = format!("{} {}", model.spec(), model.name).to_lowercase();
    words.iter().all(|word| text.contains(word))
}
