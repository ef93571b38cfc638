//! The scripted provider, and prices (providers cases 143 and 145).

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use pirn::agent::{Agent, AgentOptions, Listener, Settings};
use pirn::model::{Event, Model, PriceTier, Prices, StopReason, Usage};
use pirn::port::SinkError;
use pirn::print::{Encoder, Level};
use pirn::testing::{Reply, RuntimeClock, ScriptedProvider, SequentialIds};
use tokio_util::sync::CancellationToken;

/// Every event of an agent as JSON lines.
struct Lines(Mutex<(Encoder, Vec<u8>)>);

#[async_trait]
impl Listener for Lines {
    async fn on_event(&self, event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
        let mut lines = self.0.lock().unwrap();
        let (encoder, out) = &mut *lines;
        encoder.event(event, false, 0, out);
        Ok(())
    }
}

/// The lines of two runs over a script of two replies cut into small deltas, and how a third one ends.
async fn lines_of(seed: u64) -> (String, StopReason, String) {
    let script = ["The quick brown fox 🦊 jumps", "over the lazy dog"];
    let replies = script.iter().map(|text| Reply::text(text).chunks(1, 4)).collect();
    let model = Model::unknown("scripted", "m", "scripted", "");
    let settings = Settings { system_prompt: String::new(), model, thinking: None, tools: Vec::new() };
    let mut options = AgentOptions::new(ScriptedProvider::seeded(replies, seed), settings);
    options.clock = Arc::new(RuntimeClock::new());
    options.ids = Arc::new(SequentialIds::new());
    let agent = Agent::new(options).unwrap();
    let lines = Arc::new(Lines(Mutex::new((Encoder::new(Level::Events), Vec::new()))));
    let _subscription = agent.subscribe(Arc::clone(&lines) as Arc<dyn Listener>);
    agent.prompt("one").await.unwrap();
    agent.prompt("two").await.unwrap();
    let third = agent.prompt("three").await.unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().1.clone()).unwrap();
    (text, third.stop_reason.unwrap(), third.error.unwrap().message)
}

#[tokio::test(start_paused = true)]
async fn a_script_gives_the_same_lines_every_time_and_says_when_it_is_used_up_case_143() {
    let (first, stop, message) = lines_of(7).await;
    let (second, _, _) = lines_of(7).await;
    assert_eq!(first, second, "byte for byte");
    assert!(first.matches("text_delta").count() > 10, "cut into deltas");
    assert_eq!((stop, message.as_str()), (StopReason::Error, "The script has no reply left."));
    let (other, _, _) = lines_of(8).await;
    assert_ne!(first, other, "the seed chooses the sizes of the deltas");
}

#[test]
fn the_highest_tier_below_the_input_prices_the_whole_request_case_145() {
    let mut model = Model::unknown("p", "m", "a", "");
    let tier = PriceTier { input_tokens_above: 200_000, input: 6.0, output: 20.0, cache_read: 0.6, cache_write: 7.5 };
    model.prices = Some(Prices { input: 3.0, output: 10.0, cache_read: 0.3, cache_write: 3.75, tiers: vec![tier] });
    for (input, cache_read, want_input, want_read) in
        [(150_000, 60_000, 0.9, 0.036), (150_000, 50_000, 0.45, 0.015), (1_000_000, 0, 6.0, 0.0)]
    {
        let mut usage = Usage { input, cache_read, ..Usage::default() };
        model.price(&mut usage);
        assert!((usage.cost.input - want_input).abs() < 1e-9, "{input} + {cache_read}: {:?}", usage.cost);
        assert!((usage.cost.cache_read - want_read).abs() < 1e-9, "{input} + {cache_read}: {:?}", usage.cost);
        assert!((usage.cost.total - want_input - want_read).abs() < 1e-9);
    }
}
