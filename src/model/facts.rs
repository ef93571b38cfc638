//! What is known about a model: its limits, inputs, prices and thinking levels.
//!
//! Keeps true: an unknown fact is told from zero wherever the difference matters, as with prices; a reply is priced in
//! one place.
//!
//! Must not know: where facts come from, how a level is put on the wire.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Headers, Usage};

/// How much a model is asked to think. `Off` reaches a provider as "no reasoning option".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    #[default]
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl Thinking {
    /// Every level, lowest first.
    pub const ALL: [Self; 7] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The level's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// The level a word names, or `None`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

/// How a model takes a thinking level on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingStyle {
    Effort,
    Budget,
    Adaptive,
    Level,
}

/// A kind of input a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    Text,
    Image,
}

/// USD per million tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Prices {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<PriceTier>,
}

/// Prices that hold for the whole request once its input exceeds a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriceTier {
    pub input_tokens_above: u64,
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

/// One model as a provider serves it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    pub id: String,
    pub name: String,
    /// The wire protocol, such as `openai-completions`.
    pub api: String,
    pub provider: String,
    pub base_url: String,
    pub reasoning: bool,
    pub input: Vec<Input>,
    /// Tokens; 0 = unknown.
    pub context_window: u64,
    /// Tokens; 0 = unknown, nothing is sent.
    pub max_tokens: u64,
    /// `None` = unknown; a run that used such a model has no cost.
    #[serde(rename = "cost")]
    pub prices: Option<Prices>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_style: Option<ThinkingStyle>,
    /// Level word → the provider's word; null = not available.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub thinking_level_map: Map<String, Value>,
    /// Sent with every request to this model.
    #[serde(skip)]
    pub headers: Headers,
    /// Dialect switches, already merged for provider and host.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub compat: Map<String, Value>,
    /// Passed through into the request body.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub sampling_params: Map<String, Value>,
}

impl Model {
    /// A model of which nothing but its address is known.
    pub fn unknown(provider: &str, id: &str, api: &str, base_url: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: id.to_owned(),
            api: api.to_owned(),
            provider: provider.to_owned(),
            base_url: base_url.to_owned(),
            reasoning: false,
            input: vec![Input::Text],
            context_window: 0,
            max_tokens: 0,
            prices: None,
            thinking_style: None,
            thinking_level_map: Map::new(),
            headers: Headers::new(),
            compat: Map::new(),
            sampling_params: Map::new(),
        }
    }

    /// Whether images may be sent to it.
    pub fn takes_images(&self) -> bool {
        self.input.contains(&Input::Image)
    }

    /// `provider/id`.
    pub fn spec(&self) -> String {
        format!("{}/{}", self.provider, self.id)
    }

    /// Fills `usage.cost` from this model's prices: the tier with the highest threshold strictly below the input
    /// prices the whole request; cache writes of one hour cost twice the input rate (COST-1).
    pub fn price(&self, usage: &mut Usage) {
        const MILLION: f64 = 1e6;
        let Some(prices) = &self.prices else { return };
        let size = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let tier = prices
            .tiers
            .iter()
            .filter(|tier| tier.input_tokens_above < size)
            .max_by_key(|tier| tier.input_tokens_above);
        let (input, output, read, write) = match tier {
            Some(t) => (t.input, t.output, t.cache_read, t.cache_write),
            None => (prices.input, prices.output, prices.cache_read, prices.cache_write),
        };
        let long = usage.cache_write_1h.unwrap_or(0).min(usage.cache_write);
        let short = usage.cache_write.saturating_sub(long);
        let cost = &mut usage.cost;
        cost.input = tokens(usage.input) * input / MILLION;
        cost.output = tokens(usage.output) * output / MILLION;
        cost.cache_read = tokens(usage.cache_read) * read / MILLION;
        cost.cache_write = (tokens(short) * write + tokens(long) * 2.0 * input) / MILLION;
        cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write;
    }
}

/// Token counts are far below 2^53, where an f64 is exact.
#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
fn tokens(count: u64) -> f64 {
    count as f64
}
