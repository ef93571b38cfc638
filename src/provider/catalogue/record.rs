//! The records of `config/models.toml`.
//!
//! Keeps true: looking up one model unpacks one block and parses one line, and listing the names does neither; every
//! line parses, which a test proves.
//!
//! Must not know: providers, settings, keys.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;

use crate::model::{ErrorKind, ErrorRecord, Input, Model, Packed, PriceTier, Prices, ThinkingStyle};

// `BLOCKS` holds the records as JSON, one a line, `BLOCK_MODELS` to a block.
include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// `provider/id` of every listed model, in file order, each between two line feeds.
const SPECS: &str = include_str!(concat!(env!("OUT_DIR"), "/models.txt"));

/// What is known about one listed model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    name: String,
    pub(super) api: Option<String>,
    context_window: u64,
    max_output: u64,
    #[serde(default)]
    reasoning: bool,
    input: Vec<Input>,
    price: Option<RecordPrice>,
    pub(super) thinking_style: Option<ThinkingStyle>,
    #[serde(default)]
    levels: BTreeMap<String, Level>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordPrice {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
    #[serde(default)]
    tiers: Vec<RecordTier>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordTier {
    above: u64,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

/// The provider's word for a level; `false` = not available, as TOML has no null, `true` = the level's own name.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Level {
    Word(String),
    Available(bool),
}

impl Record {
    /// Copies the facts into a model.
    pub(super) fn fill(&self, model: &mut Model) {
        model.name.clone_from(&self.name);
        model.reasoning = self.reasoning;
        model.input.clone_from(&self.input);
        model.context_window = self.context_window;
        model.max_tokens = self.max_output;
        model.prices = self.price.as_ref().map(RecordPrice::prices);
        let word = |name: &String, level: &Level| match level {
            Level::Word(word) => Value::String(word.clone()),
            Level::Available(true) => Value::String(name.clone()),
            Level::Available(false) => Value::Null,
        };
        model.thinking_level_map = self.levels.iter().map(|(name, level)| (name.clone(), word(name, level))).collect();
    }
}

impl RecordPrice {
    fn prices(&self) -> Prices {
        let tier = |tier: &RecordTier| PriceTier {
            input_tokens_above: tier.above,
            input: tier.input,
            output: tier.output,
            cache_read: tier.cache_read,
            cache_write: tier.cache_write,
        };
        Prices {
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            tiers: self.tiers.iter().map(tier).collect(),
        }
    }
}

/// The record of `provider/id`: its place among the specs says where its line is; only that line is parsed.
pub(super) fn find(provider: &str, id: &str) -> Result<Option<Record>, ErrorRecord> {
    let spec = format!("{provider}/{id}");
    if spec.contains('\n') {
        return Ok(None);
    }
    let line = format!("\n{spec}\n");
    let Some(at) = memchr::memmem::find(SPECS.as_bytes(), line.as_bytes()) else { return Ok(None) };
    let before = SPECS.as_bytes().get(..at).unwrap_or_default();
    let place = memchr::memchr_iter(b'\n', before).count();
    let lines = block(place / BLOCK_MODELS)?;
    parse(lines.lines().nth(place % BLOCK_MODELS).unwrap_or_default()).map(Some)
}

/// The lines of a block; unpacked once, as a listing asks for each of them.
fn block(number: usize) -> Result<&'static str, ErrorRecord> {
    static UNPACKED: [OnceLock<String>; BLOCKS.len()] = [const { OnceLock::new() }; BLOCKS.len()];
    let (Some(packed), Some(kept)) = (BLOCKS.get(number), UNPACKED.get(number)) else {
        return Err(broken("a block is missing"));
    };
    if let Some(text) = kept.get() {
        return Ok(text);
    }
    let text = packed.unpack()?;
    Ok(kept.get_or_init(|| text))
}

/// `provider/id` of every listed model, in file order; nothing is parsed.
pub(super) fn specs() -> impl Iterator<Item = &'static str> {
    SPECS.lines().skip(1)
}

fn broken(problem: &str) -> ErrorRecord {
    ErrorRecord::new(ErrorKind::Internal, format!("the model list is broken: {problem}"))
}

/// Reads one line. Every line parses; a test says so.
fn parse(line: &str) -> Result<Record, ErrorRecord> {
    serde_json::from_str(line).map_err(|error| broken(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS, SPECS, find, parse, specs};
    use crate::model::Thinking;
    use crate::provider::catalogue::table::rows;

    const MODELS_TOML: &str = include_str!("../../../config/models.toml");
    /// What the list may add to the binary, in bytes.
    const EMBEDDED_BYTES_MAX: usize = 80_000;

    #[test]
    fn the_list_is_one_toml_file_with_one_line_a_model() {
        let whole: toml::Table = MODELS_TOML.parse().unwrap();
        let lines: Vec<&str> = MODELS_TOML.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let of_line = |line: &&'static str| line.strip_prefix('"').unwrap().split_once("\" = ").unwrap().0;
        assert_eq!(specs().collect::<Vec<_>>(), lines.iter().map(of_line).collect::<Vec<_>>());
        assert_eq!(whole.len(), lines.len());
    }

    #[test]
    fn what_is_packed_says_what_the_list_says_and_is_small() {
        let whole: toml::Table = MODELS_TOML.parse().unwrap();
        let unpacked: Vec<String> = BLOCKS.iter().map(|block| block.unpack().unwrap()).collect();
        let lines: Vec<&str> = unpacked.iter().flat_map(|block| block.lines()).collect();
        assert_eq!(lines.len(), whole.len());
        for (line, (spec, listed)) in lines.into_iter().zip(&whole) {
            let packed: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(packed, serde_json::to_value(listed).unwrap(), "{spec}");
            parse(line).unwrap();
        }
        let bytes = SPECS.len() + BLOCKS.iter().map(|block| block.bytes.len()).sum::<usize>();
        assert!(bytes <= EMBEDDED_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn the_list_is_sorted_and_every_model_is_found_by_its_spec() {
        let all: Vec<&str> = specs().collect();
        assert!(all.len() > 500);
        assert!(all.is_sorted_by(|a, b| a < b));
        let rows = rows().unwrap();
        for spec in all {
            let (provider, id) = spec.split_once('/').unwrap();
            assert!(rows.contains_key(provider), "{spec}");
            let record = find(provider, id).unwrap().unwrap();
            assert!(record.context_window > 0 && record.max_output > 0, "{spec}");
            let api = record.api.as_ref().unwrap_or(&rows[provider].api);
            assert!(rows[provider].base_url.contains_key(api), "{spec}: no address for {api}");
            for level in record.levels.keys() {
                assert!(Thinking::from_word(level).is_some(), "{spec}: {level}");
            }
        }
    }

    #[test]
    fn a_part_of_a_spec_finds_nothing() {
        for (provider, id) in [("openai", "gpt"), ("penai", "gpt-5"), ("openai", "gpt-5\n"), ("openai", "")] {
            assert!(find(provider, id).unwrap().is_none(), "{provider}/{id}");
        }
    }
}
