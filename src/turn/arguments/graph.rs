//! The subschemas of one schema as a graph, for walks that need no text lookups and can count their work.
//!
//! Keeps true: every schema that can be reached has one node, cycles included; a walk ends when its budget does.
//!
//! Must not know: how a value is coerced or a problem worded.

use std::collections::HashMap;

use boon::SchemaIndex;
use serde_json::{Map, Value};

use super::clean::{is_schema, step};
use super::{VISIT_DEPTH_MAX, report};

/// A subschema of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(usize);

/// What coercion and the work estimate need of one subschema.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// For validation.
    pub(super) index: SchemaIndex,
    pub(super) types: Vec<Kind>,
    /// `enum`, or `const` as a list of one.
    pub(super) values: Option<Vec<Value>>,
    pub(super) required: Vec<String>,
    pub(super) properties: HashMap<String, NodeId>,
    /// Schema of the properties that are not named.
    pub(super) additional: Option<NodeId>,
    pub(super) tuple: Vec<NodeId>,
    /// Schema of the items behind the tuple.
    pub(super) items: Option<NodeId>,
    /// `$ref` and `allOf`.
    pub(super) all: Vec<NodeId>,
    /// `anyOf` and `oneOf`.
    pub(super) unions: Vec<Vec<NodeId>>,
    /// Others that see the same value.
    others: Vec<NodeId>,
    /// Others that may see each property.
    each_property: Vec<NodeId>,
    /// Others that may see each item.
    each_item: Vec<NodeId>,
    names: Option<NodeId>,
}

/// A word of the `type` keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }
}

/// Remaining work of a check, and how deep its walk is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    visits: usize,
    depth: usize,
}

impl Budget {
    pub(super) fn new(visits: usize) -> Self {
        Self { visits, depth: 0 }
    }

    /// Starts a visit; `false` when there is no work or no depth left. Each success is followed by [`Self::leave`].
    pub(super) fn enter(&mut self) -> bool {
        if self.visits == 0 || self.depth >= VISIT_DEPTH_MAX {
            return false;
        }
        self.visits -= 1;
        self.depth += 1;
        true
    }

    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    pub(super) const ROOT: NodeId = NodeId(0);

    /// Builds the graph of what can be reached from the root of a clean schema; `index` compiles what a pointer names.
    pub(super) fn build(
        schema: &Value,
        mut index: impl FnMut(&str) -> Result<SchemaIndex, String>,
    ) -> Result<Self, String> {
        let mut builder = Builder::default();
        builder.node("");
        let mut nodes: Vec<Node> = Vec::new();
        // Building a node may add pointers behind it.
        while let Some(pointer) = builder.pointers.get(nodes.len()).cloned() {
            let mut node = match schema.pointer(&pointer) {
                Some(Value::Object(map)) => builder.object(&pointer, map),
                _ => Node::default(),
            };
            node.index = index(&pointer)?;
            nodes.push(node);
        }
        Ok(Self { nodes })
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)
    }

    /// Whether validating `value` stays within the budget: a walk over everything a validator could look at. Without
    /// it, alternatives inside alternatives would make a small schema run for ever.
    pub(super) fn affordable(&self, id: NodeId, value: &Value, budget: &mut Budget) -> bool {
        let Some(node) = self.node(id) else { return true };
        if !budget.enter() {
            return false;
        }
        let same = node.all.iter().chain(node.unions.iter().flatten()).chain(&node.others);
        let inside = match value {
            Value::Object(map) => self.affordable_object(node, map, budget),
            Value::Array(items) => self.affordable_array(node, items, budget),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        };
        let affordable = inside && same.copied().all(|id| self.affordable(id, value, budget));
        budget.leave();
        affordable
    }

    fn affordable_object(&self, node: &Node, map: &Map<String, Value>, budget: &mut Budget) -> bool {
        map.iter().all(|(key, value)| {
            let mut schemas =
                node.properties.get(key).into_iter().chain(&node.additional).chain(&node.each_property).copied();
            schemas.all(|id| self.affordable(id, value, budget))
                && node.names.is_none_or(|id| self.affordable(id, &Value::Null, budget))
        })
    }

    fn affordable_array(&self, node: &Node, items: &[Value], budget: &mut Budget) -> bool {
        items.iter().enumerate().all(|(index, value)| {
            let mut schemas = node.tuple.get(index).into_iter().chain(&node.items).chain(&node.each_item).copied();
            schemas.all(|id| self.affordable(id, value, budget))
        })
    }
}

/// Gives out ids by pointer.
#[derive(Default)]
struct Builder {
    pointers: Vec<String>,
    ids: HashMap<String, NodeId>,
}

impl Builder {
    fn node(&mut self, pointer: &str) -> NodeId {
        if let Some(id) = self.ids.get(pointer) {
            return *id;
        }
        let id = NodeId(self.pointers.len());
        self.pointers.push(pointer.to_owned());
        self.ids.insert(pointer.to_owned(), id);
        id
    }

    fn one(&mut self, pointer: &str, map: &Map<String, Value>, key: &str) -> Option<NodeId> {
        map.get(key).filter(|value| !value.is_array()).map(|_| self.node(&step(pointer, key)))
    }

    fn list(&mut self, pointer: &str, map: &Map<String, Value>, key: &str) -> Vec<NodeId> {
        let Some(Value::Array(items)) = map.get(key) else { return Vec::new() };
        let list = step(pointer, key);
        (0..items.len()).map(|index| self.node(&format!("{list}/{index}"))).collect()
    }

    fn named(&mut self, pointer: &str, map: &Map<String, Value>, key: &str) -> HashMap<String, NodeId> {
        let Some(Value::Object(named)) = map.get(key) else { return HashMap::new() };
        let all = step(pointer, key);
        // `dependencies` may hold lists of names beside schemas.
        let schemas = named.iter().filter(|(_, value)| is_schema(Some(value)));
        schemas.map(|(name, _)| (name.clone(), self.node(&step(&all, name)))).collect()
    }

    fn object(&mut self, pointer: &str, map: &Map<String, Value>) -> Node {
        let mut node = Node {
            types: types(map.get("type")),
            values: values(map),
            required: words(map.get("required")),
            properties: self.named(pointer, map, "properties"),
            items: self.one(pointer, map, "items"),
            tuple: self.list(pointer, map, "prefixItems"),
            all: self.list(pointer, map, "allOf"),
            names: self.one(pointer, map, "propertyNames"),
            ..Node::default()
        };
        // Older drafts: a list of item schemas, and the schema of the items behind them.
        node.tuple.extend(self.list(pointer, map, "items"));
        if let Some(id) = self.one(pointer, map, "additionalItems") {
            if map.get("items").is_some_and(Value::is_array) {
                node.items = Some(id);
            } else {
                node.each_item.push(id);
            }
        }
        if let Some(Value::String(text)) = map.get("$ref")
            && let Some(target) = text.strip_prefix('#')
        {
            node.all.push(self.node(&target.replace("%25", "%")));
        }
        for key in ["anyOf", "oneOf"] {
            let branches = self.list(pointer, map, key);
            if !branches.is_empty() {
                node.unions.push(branches);
            }
        }
        for key in ["not", "if", "then", "else"] {
            node.others.extend(self.one(pointer, map, key));
        }
        for key in ["dependentSchemas", "dependencies"] {
            node.others.extend(self.named(pointer, map, key).into_values());
        }
        let patterns: Vec<NodeId> = self.named(pointer, map, "patternProperties").into_values().collect();
        let additional = self.one(pointer, map, "additionalProperties");
        if patterns.is_empty() {
            node.additional = additional;
        } else {
            // Which of them sees a property is for the validator to say; coercion leaves such properties alone.
            node.each_property.extend(patterns.into_iter().chain(additional));
        }
        node.each_property.extend(self.one(pointer, map, "unevaluatedProperties"));
        for key in ["contains", "unevaluatedItems"] {
            node.each_item.extend(self.one(pointer, map, key));
        }
        node
    }
}

fn types(value: Option<&Value>) -> Vec<Kind> {
    match value {
        Some(Value::String(word)) => Kind::from_word(word).into_iter().collect(),
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).filter_map(Kind::from_word).collect(),
        _ => Vec::new(),
    }
}

fn values(map: &Map<String, Value>) -> Option<Vec<Value>> {
    match (map.get("enum"), map.get("const")) {
        (Some(Value::Array(values)), _) => Some(values.clone()),
        (_, Some(value)) => Some(vec![value.clone()]),
        _ => None,
    }
}

fn words(value: Option<&Value>) -> Vec<String> {
    let Some(Value::Array(words)) = value else { return Vec::new() };
    words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a value is of a kind; a number without a fraction is an integer.
pub(super) fn is_kind(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Null => value.is_null(),
        Kind::Boolean => value.is_boolean(),
        Kind::Integer => report::is_integral(value),
        Kind::Number => value.is_number(),
        Kind::String => value.is_string(),
        Kind::Array => value.is_array(),
        Kind::Object => value.is_object(),
    }
}
