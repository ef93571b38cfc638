//! Turns what a model wrote into what the schema asks for, where nothing is lost by it.
//!
//! Keeps true: a value of a wanted type keeps its meaning; no fraction is cut and no null becomes a zero or an empty
//! text; the work is bounded, and what was not reached is left to validation.
//!
//! Must not know: tools, wording.

use boon::Schemas;
use serde_json::{Map, Number, Value};

use super::graph::{Budget, Graph, Kind, Node, NodeId, is_kind};
use super::report::is_integral;

/// Alternatives of one `anyOf` or `oneOf` that are tried; each costs a copy of the value.
const BRANCHES_MAX: usize = 64;
/// 2^53: whole numbers up to here have exactly one f64.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// One coercion. When the budget runs out, values stay as they are and validation decides.
pub(super) struct Coercion<'a> {
    graph: &'a Graph,
    schemas: &'a Schemas,
    budget: Budget,
}

impl<'a> Coercion<'a> {
    pub(super) fn new(graph: &'a Graph, schemas: &'a Schemas, budget: Budget) -> Self {
        Self { graph, schemas, budget }
    }

    pub(super) fn run(mut self, args: Value) -> Value {
        self.value(Graph::ROOT, args)
    }

    fn value(&mut self, id: NodeId, value: Value) -> Value {
        let graph = self.graph;
        let Some(node) = graph.node(id) else { return value };
        if !self.budget.enter() {
            return value;
        }
        let mut value = self.own_type(node, value);
        if let Some(values) = &node.values
            && let Some(wanted) = enumerated(values, &value)
        {
            value = wanted;
        }
        value = match value {
            Value::Object(map) => Value::Object(self.object(node, map)),
            Value::Array(items) => Value::Array(self.array(node, items)),
            scalar => scalar,
        };
        for other in &node.all {
            value = self.value(*other, value);
        }
        for union in &node.unions {
            value = self.union(union, value);
        }
        self.budget.leave();
        value
    }

    /// A value some branch accepts is kept; else the first branch whose coercion validates gives it.
    fn union(&mut self, branches: &[NodeId], value: Value) -> Value {
        if branches.iter().any(|branch| self.accepts(*branch, &value)) {
            return value;
        }
        for branch in branches.iter().take(BRANCHES_MAX) {
            let coerced = self.value(*branch, value.clone());
            if self.accepts(*branch, &coerced) {
                return coerced;
            }
        }
        value
    }

    fn accepts(&mut self, id: NodeId, value: &Value) -> bool {
        let Some(node) = self.graph.node(id) else { return false };
        self.graph.affordable(id, value, &mut self.budget) && self.schemas.validate(value, node.index).is_ok()
    }

    fn own_type(&mut self, node: &Node, value: Value) -> Value {
        if node.types.is_empty() {
            return value;
        }
        if node.types.iter().any(|kind| is_kind(&value, *kind)) {
            let wants_integer = node.types.contains(&Kind::Integer);
            return if wants_integer { whole(value) } else { value };
        }
        for kind in &node.types {
            let coerced = match kind {
                Kind::Null => None,
                Kind::Boolean => boolean(&value),
                Kind::Integer => number(&value).map(whole).filter(is_integral),
                Kind::Number => number(&value),
                Kind::String => text(&value),
                Kind::Array => self.listed(node, &value),
                Kind::Object => parsed(&value).filter(Value::is_object),
            };
            if let Some(coerced) = coerced {
                return coerced;
            }
        }
        value
    }

    /// JSON text of an array, else the value as the only item if the item schema takes it.
    fn listed(&mut self, node: &Node, value: &Value) -> Option<Value> {
        if value.is_null() {
            return None;
        }
        if let Some(array) = parsed(value).filter(Value::is_array) {
            return Some(array);
        }
        let item = match node.tuple.first().copied().or(node.items) {
            None => value.clone(),
            Some(id) => Some(self.value(id, value.clone())).filter(|item| self.accepts(id, item))?,
        };
        Some(Value::Array(vec![item]))
    }

    fn object(&mut self, node: &Node, map: Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::with_capacity(map.len());
        for (key, value) in map {
            let schema = node.properties.get(&key).copied();
            if value.is_null()
                && let Some(id) = schema
                && !node.required.contains(&key)
                && !self.accepts(id, &value)
            {
                // Models write null for "not given".
                continue;
            }
            let value = match schema.or(node.additional) {
                Some(id) => self.value(id, value),
                None => value,
            };
            out.insert(key, value);
        }
        out
    }

    fn array(&mut self, node: &Node, items: Vec<Value>) -> Vec<Value> {
        let coerce = |(index, item): (usize, Value)| match node.tuple.get(index).copied().or(node.items) {
            Some(id) => self.value(id, item),
            None => item,
        };
        items.into_iter().enumerate().map(coerce).collect()
    }
}

/// The listed value that `value` spells, unless it is listed itself.
fn enumerated(values: &[Value], value: &Value) -> Option<Value> {
    if values.contains(value) {
        return None;
    }
    let spelled = |listed: &&Value| match (*listed, value) {
        (Value::String(listed), given) => text(given).is_some_and(|given| given == **listed),
        (Value::Number(_), given) => number(given).as_ref().is_some_and(|given| whole(given.clone()) == **listed),
        (Value::Bool(_), given) => boolean(given).as_ref() == Some(*listed),
        _ => false,
    };
    values.iter().find(spelled).cloned()
}

fn boolean(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if text.eq_ignore_ascii_case("true") || text == "1" => Some(Value::Bool(true)),
        Value::String(text) if text.eq_ignore_ascii_case("false") || text == "0" => Some(Value::Bool(false)),
        Value::Number(number) => match number.as_f64() {
            Some(1.0) => Some(Value::Bool(true)),
            Some(0.0) => Some(Value::Bool(false)),
            _ => None,
        },
        _ => None,
    }
}

/// Strings in the syntax of JSON numbers and nothing else, and booleans.
fn number(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(flag) => Some(Value::from(u8::from(*flag))),
        Value::Number(_) => Some(value.clone()),
        // The parser takes white space around a number, JSON numbers have none.
        Value::String(text) if !text.contains(|c: char| c.is_ascii_whitespace()) => {
            serde_json::from_str::<Number>(text).ok().map(Value::Number)
        }
        _ => None,
    }
}

fn text(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(_) | Value::Number(_) => Some(Value::String(value.to_string())),
        _ => None,
    }
}

fn parsed(value: &Value) -> Option<Value> {
    serde_json::from_str(value.as_str()?).ok()
}

/// A number without a fraction as an integer, so that a tool need not know both forms.
fn whole(value: Value) -> Value {
    match &value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() <= EXACT_MAX => exact(float),
            _ => value,
        },
        _ => value,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the caller has checked that the float is a small whole number")]
fn exact(float: f64) -> Value {
    Value::from(float as i64)
}
