//! Which thinking level a run uses.
//!
//! Keeps true: what was asked for in a higher layer wins; a level the model cannot do becomes the nearest one, next
//! higher first; only a level that this very run asked for is worth a warning.
//!
//! Must not know: how a level is put on the wire.

use serde_json::Value;

use super::Catalogue;
use crate::config::{Origin, key_path};
use crate::model::{Model, Thinking};

/// The level a model can do that is nearest to the one asked for: the next higher one, else the next lower.
/// A model that does not reason can only be `off`.
pub fn clamp(model: &Model, level: Thinking) -> Thinking {
    if !model.reasoning {
        return Thinking::Off;
    }
    let higher = Thinking::ALL.into_iter().filter(|other| *other >= level);
    let lower = Thinking::ALL.into_iter().rev().filter(|other| *other < level);
    higher.chain(lower).find(|level| can_do(model, *level)).unwrap_or_default()
}

/// Levels up to `high` are there unless the record takes them away; the two above only where it names them.
fn can_do(model: &Model, level: Thinking) -> bool {
    match (model.thinking_level_map.get(level.as_str()), level) {
        (Some(Value::Null), _) | (None, Thinking::Xhigh | Thinking::Max) => false,
        (Some(_) | None, _) => true,
    }
}

/// A level and whether this very run asked for it, so that changing it deserves a word.
pub(super) struct Asked {
    pub(super) level: Thinking,
    pub(super) aloud: bool,
}

impl Catalogue {
    /// Which level is wanted: that of the model's spec, else its alias's, else the general setting. The general
    /// setting wins where its layer is higher, and always as a flag.
    pub(super) fn asked(&self, suffix: Option<Thinking>, alias: Option<&str>) -> Option<Asked> {
        let settings = &self.settings;
        let general = settings.thinking.map(|level| (level, settings.origin("thinking")));
        let of_alias = || {
            let alias = alias?;
            let level = settings.models.get(alias)?.thinking?;
            Some((level, settings.origin(&key_path(&["models", alias, "thinking"]))))
        };
        let special = suffix.map(|level| (level, settings.origin("model"))).or_else(of_alias);
        let (level, origin) = match (general, special) {
            (Some((level, origin)), Some((_, below))) if is_flag(origin) || origin.rank() > below.rank() => {
                (level, origin)
            }
            (_, Some(special)) => special,
            (Some(general), None) => general,
            (None, None) => return None,
        };
        Some(Asked { level, aloud: suffix.is_some() || is_flag(origin) })
    }
}

fn is_flag(origin: &Origin) -> bool {
    matches!(origin, Origin::Flag(_))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::clamp;
    use crate::model::{Model, Thinking};

    fn model(reasoning: bool, levels: &Value) -> Model {
        let mut model = Model::unknown("p", "m", "openai-completions", "");
        model.reasoning = reasoning;
        model.thinking_level_map = levels.as_object().cloned().unwrap_or_default();
        model
    }

    #[test]
    fn a_level_is_clamped_to_the_next_higher_one_else_to_the_next_lower() {
        use Thinking::{High, Low, Max, Medium, Minimal, Off, Xhigh};
        let no_off = json!({"off": null, "minimal": null});
        let sparse = json!({"minimal": null, "low": null, "medium": null, "high": "high", "max": "max"});
        let table = [
            (false, json!({}), High, Off),
            (true, json!({}), High, High),
            (true, json!({}), Minimal, Minimal),
            (true, json!({}), Xhigh, High),
            (true, json!({}), Max, High),
            (true, no_off.clone(), Off, Low),
            (true, no_off, Medium, Medium),
            (true, sparse.clone(), Off, Off),
            (true, sparse.clone(), Low, High),
            (true, sparse.clone(), Xhigh, Max),
            (true, sparse, Max, Max),
        ];
        for (reasoning, levels, asked, expected) in table {
            assert_eq!(clamp(&model(reasoning, &levels), asked), expected, "{levels} {asked:?}");
        }
    }
}
