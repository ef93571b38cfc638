//! The JSON Schema of a configuration file, made from the rules of the keys.
//!
//! Keeps true: what the loader takes, the schema takes, and what the schema refuses, the loader refuses; the descriptions
//! are the comments of the default file. (The schema takes more: texts with references, and keys that this version has
//! nothing behind, which are marked.)
//!
//! Must not know: how values are read.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::DEFAULT_TOML;
use super::read_table::{PARAM_KEYS, PARAM_TYPES};
use super::rule::{Head, Kind, Now, heads};
use super::schema::{
    HOOK, HOOKS, MCP, MCP_SERVERS, MODEL, MODELS, PROFILES, PROVIDER, PROVIDERS, SETTINGS, TOOL, TOOLS,
};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
/// What names of keys begin with that are the user's own.
const OWN_KEYS: &str = "^x-";
const TOOL_NAME: &str = "^[A-Za-z][A-Za-z0-9_-]{0,63}$";
const SERVER_NAME: &str = "^[A-Za-z0-9_-]+$";
const DURATION: &str = "^(0|([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$";
const SIZE: &str = "^[0-9]+ *([KkMmGg]?[Bb])?$";
const LATER: &str = "Not available in this version.";

/// The schema (draft 2020-12) of a configuration file, with a line break at its end.
pub fn json_schema() -> String {
    let comments = comments();
    let mut root = Tree::default();
    root.add_all("", &heads(SETTINGS), &comments);
    root.named(
        PROVIDERS,
        &heads(PROVIDER),
        "providers.local",
        &comments,
        json!({"not": {"pattern": "^(demo|.*/.*|)$"}}),
    );
    root.named(MODELS, &heads(MODEL), "models.fast", &comments, json!({"not": {"pattern": "^(demo|.*,.*|)$"}}));
    root.named(HOOKS, &heads(HOOK), "", &comments, json!({"minLength": 1}));
    root.named(MCP_SERVERS, &heads(MCP), "", &comments, json!({"pattern": SERVER_NAME}));
    if let Some(tools) = root.tables.get_mut(TOOLS) {
        let mut tool = Tree::default();
        tool.add_all("", &heads(TOOL), &comments);
        tools.others = Some((json!({"pattern": TOOL_NAME, "not": {"pattern": "^mcp__"}}), marked(tool.into_schema())));
    }
    let mut properties = Map::new();
    let mut definitions = Map::new();
    for (name, schema) in root.properties() {
        properties.insert(name.clone(), json!({"$ref": format!("#/$defs/{name}")}));
        definitions.insert(name, schema);
    }
    let profile = object(properties.clone(), None);
    definitions.insert("profile".to_owned(), profile);
    properties.insert(
        PROFILES.to_owned(),
        json!({
            "description": "Settings that are laid over all files when they are asked for by name.",
            "type": "object",
            "patternProperties": {OWN_KEYS: true},
            "additionalProperties": {"$ref": "#/$defs/profile"},
        }),
    );
    let mut schema = json!({
        "$schema": DRAFT,
        "title": "The configuration of pirn",
        "description": "A pirn.toml. Written by pirn config schema.",
    });
    if let (Some(schema), Value::Object(root)) = (schema.as_object_mut(), object(properties, None)) {
        schema.extend(root);
        schema.insert("$defs".to_owned(), Value::Object(definitions));
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// A table of keys; a dotted key is a table in a table.
#[derive(Default)]
struct Tree {
    keys: BTreeMap<String, Value>,
    tables: BTreeMap<String, Tree>,
    /// What names and values of the user's choice must be like.
    others: Option<(Value, Value)>,
}

impl Tree {
    fn add_all(&mut self, place: &str, keys: &[Head], comments: &BTreeMap<String, String>) {
        for key in keys {
            let mut schema = key.kind.schema();
            let path = if place.is_empty() { key.name.to_owned() } else { format!("{place}.{}", key.name) };
            let comment = comments.get(&path).map(String::as_str);
            let later = matches!(key.now, Now::No).then_some(LATER);
            let words: Vec<&str> = comment.into_iter().chain(later).collect();
            if let (Some(schema), false) = (schema.as_object_mut(), words.is_empty()) {
                schema.insert("description".to_owned(), json!(words.join(" ")));
            }
            self.add(key.name, schema);
        }
    }

    fn add(&mut self, name: &str, schema: Value) {
        match name.split_once('.') {
            Some((table, rest)) => self.tables.entry(table.to_owned()).or_default().add(rest, schema),
            None => drop(self.keys.insert(name.to_owned(), schema)),
        }
    }

    fn named(&mut self, table: &str, keys: &[Head], example: &str, comments: &BTreeMap<String, String>, names: Value) {
        let mut entry = Self::default();
        entry.add_all(example, keys, comments);
        let entry = if example.is_empty() { marked(entry.into_schema()) } else { entry.into_schema() };
        self.tables.insert(table.to_owned(), Self { others: Some((names, entry)), ..Self::default() });
    }

    fn properties(self) -> Vec<(String, Value)> {
        let tables = self.tables.into_iter().map(|(name, table)| (name, table.into_schema()));
        self.keys.into_iter().chain(tables).collect()
    }

    fn into_schema(mut self) -> Value {
        let others = self.others.take();
        object(self.properties().into_iter().collect(), others)
    }
}

/// The schema of a table: these keys, those that begin with `x-`, and perhaps some of the user's choice.
fn object(properties: Map<String, Value>, others: Option<(Value, Value)>) -> Value {
    let (names, others) = match others {
        Some((names, others)) => (Some(names), others),
        None => (None, json!(false)),
    };
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    if let Some(names) = names {
        schema.insert("propertyNames".to_owned(), json!({"anyOf": [names, {"pattern": OWN_KEYS}]}));
    }
    if !properties.is_empty() {
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    schema.insert("patternProperties".to_owned(), json!({OWN_KEYS: true}));
    schema.insert("additionalProperties".to_owned(), others);
    Value::Object(schema)
}

/// The schema of a table with nothing behind it yet.
fn marked(mut schema: Value) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), json!(LATER));
    }
    schema
}

impl Kind {
    /// What a file can say for a key of this rule.
    fn schema(self) -> Value {
        let list = || json!({"type": "array", "items": {"type": "string"}});
        let one_or_more = || json!({"type": ["string", "array"], "items": {"type": "string"}});
        match self {
            Self::Text
            | Self::Url
            | Self::Prompt
            | Self::Program
            | Self::Path
            | Self::ApiKey
            | Self::ParametersFile => json!({"type": "string"}),
            Self::When => json!({"type": "string", "pattern": "^$|^[A-Za-z0-9_*-]+(\\(.+\\))?$"}),
            Self::Prompts | Self::Specs => one_or_more(),
            Self::Word(words) => json!({"enum": words}),
            Self::Words(words) => json!({"type": "array", "items": {"enum": words}}),
            Self::OneOrMore(words) => {
                json!({"anyOf": [{"enum": words}, {"type": "array", "items": {"enum": words}}]})
            }
            Self::Bool => json!({"type": "boolean"}),
            Self::Count { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Level { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Codes { min, max } => {
                json!({"type": "array", "items": {"type": "integer", "minimum": min, "maximum": max}})
            }
            Self::Number => json!({"type": "number", "minimum": 0}),
            Self::Duration => {
                json!({"anyOf": [{"type": "string", "pattern": DURATION, "minLength": 1}, {"const": 0}]})
            }
            Self::Size { min, max } => json!({"anyOf": [
                {"type": "string", "pattern": SIZE},
                {"type": "integer", "minimum": min, "maximum": max},
            ]}),
            Self::List | Self::Edits | Self::Grow | Self::Imports => list(),
            Self::Rules => json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {
                "type": "object",
                "properties": {"rule": {"type": "string"}, "reason": {"type": "string"}},
                "required": ["rule"],
                "additionalProperties": false,
            }]}}),
            Self::Variables => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            Self::Argv => json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            Self::ArgvOrShell => {
                json!({"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1, "minLength": 1})
            }
            Self::Template => json!({"type": "array", "items": {"anyOf": [{"type": "string"}, list()]}}),
            Self::Parameters => {
                json!({"type": "object", "properties": {"type": {"const": "object"}}, "required": ["type"]})
            }
            Self::Params => json!({"type": "object", "additionalProperties": param()}),
            Self::Headers => {
                json!({"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, {"const": false}]}})
            }
            Self::Open { own: [] } => json!({"type": "object"}),
            Self::Open { own } => json!({"type": "object", "propertyNames": {"not": {"enum": own}}}),
        }
    }
}

/// A parameter in short.
fn param() -> Value {
    let mut properties = Map::new();
    for key in PARAM_KEYS {
        properties.insert(key.to_owned(), json!(true));
    }
    let types = json!({"enum": PARAM_TYPES});
    properties.insert("description".to_owned(), json!({"type": "string"}));
    properties.insert("required".to_owned(), json!({"type": "boolean"}));
    properties.insert("type".to_owned(), json!({"anyOf": [types, {"type": "array", "items": types}]}));
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// The comments behind the keys of the default file, by dotted key; those of its examples, too.
fn comments() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut table = String::new();
    for line in DEFAULT_TOML.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            name.0.clone_into(&mut table);
            continue;
        }
        let Some((key, rest)) = line.split_once(" = ") else { continue };
        let Some((_, comment)) = rest.rsplit_once(" # ") else { continue };
        let dotted = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        if !key.contains(' ') {
            found.insert(dotted, comment.trim().to_owned());
        }
    }
    found
}
