//! The settings a command line asks for, as the configuration loader takes them.
//!
//! Keeps true: each flag that changes a run has one key; a flag that was not given overrides nothing; each value
//! remembers the flag it came from.
//!
//! Must not know: other layers, defaults, whether a value is acceptable beyond its shape.

use toml::Value;

use super::RunArgs;
use crate::config::Override;

impl RunArgs {
    /// Every setting the flags give, in the order of the reference. Those that choose layers
    /// stay as they are in `layers`.
    pub fn overrides(&self) -> Vec<Override> {
        let mut list = Vec::new();
        let mut add = |key, value, flag| list.push(Override { key, value, flag });
        if let Some(model) = &self.model {
            add("model", specs(model), "--model");
        }
        if let Some(level) = self.thinking {
            add("thinking", level.as_str().into(), "--thinking");
        }
        if let Some(text) = &self.system {
            add("system", text.clone().into(), "--system");
        }
        if !self.append_system.is_empty() {
            add("append_system", self.append_system.clone().into(), "--append-system");
        }
        if let Some(tools) = &self.tools {
            add("tools.enabled", items(tools).into(), "--tools");
        }
        if let Some(level) = self.json {
            add("output.json", level.as_str().into(), "--json");
        }
        if let Some(events) = &self.events {
            add("output.events", events.clone().into(), "--events");
        }
        if self.stream {
            add("output.stream", "always".into(), "--stream");
        }
        if self.quiet {
            add("output.verbosity", Value::Integer(-1), "--quiet");
        }
        if self.verbose > 0 {
            add("output.verbosity", Value::Integer(i64::from(self.verbose.min(2))), "--verbose");
        }
        if let Some(choice) = self.color {
            add("output.color", choice.as_str().into(), "--color");
        }
        if let Some(turns) = self.max_turns {
            add("limits.max_turns", Value::Integer(i64::from(turns)), "--max-turns");
        }
        if let Some(cost) = self.max_cost {
            add("limits.max_cost", Value::Float(cost), "--max-cost");
        }
        if let Some(timeout) = &self.timeout {
            add("limits.timeout", timeout.clone().into(), "--timeout");
        }
        if self.no_session {
            add("session.persist", Value::Boolean(false), "--no-session");
        }
        list
    }
}

/// One spec is a text, several are a list: the later ones are fallbacks.
fn specs(model: &str) -> Value {
    let mut list = items(model);
    match list.len() {
        0 => Value::String(String::new()),
        1 => Value::String(list.swap_remove(0)),
        _ => list.into(),
    }
}

fn items(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}
