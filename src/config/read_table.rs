//! Values that are tables or nested lists: headers, variables, schemas of parameters, templates, rules.
//!
//! Keeps true: every name in a table is checked, so that a typing mistake is not taken for a wish.
//!
//! Must not know: what the tables are for.

use serde_json::{Map, Value, json};

use super::error::{ConfigError, Origin};
use super::node::{Data, Name, Node};
use super::read::{KeyName, Read, quoted};
use super::read_place::describes_object;
use super::suggest::nearest;

/// Headers that the HTTP client makes from the request itself; another one would contradict it (HTTP-3).
const OWN_HEADERS: [&str; 4] = ["connection", "content-length", "host", "transfer-encoding"];

/// What may describe a parameter in short.
pub(super) const PARAM_KEYS: [&str; 20] = [
    "additionalProperties",
    "const",
    "default",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "uniqueItems",
];
pub(super) const PARAM_TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// The keys of a permission rule that is a table.
const RULE_KEYS: [&str; 2] = ["reason", "rule"];

impl KeyName<'_> {
    fn table(self, node: Node) -> Read<(Vec<(Name, Node)>, Origin)> {
        let node = node.settle(false);
        match node.data {
            Data::Table(entries) => Ok((entries, node.at)),
            _ => Err(self.expected("a table", &node)),
        }
    }

    /// `false` removes a header (HTTP-3).
    pub(super) fn headers(self, node: Node) -> Read<Vec<(String, Option<String>, Origin)>> {
        let (entries, _) = self.table(node)?;
        let header = |(name, node): (Name, Node)| {
            let key = format!("{}.{}", self.0, quoted(&name.text));
            let key = KeyName(&key);
            if name.text.is_empty() || !name.text.bytes().all(is_token) {
                return Err(key.wrong(&name.at, "is no valid header name"));
            }
            if OWN_HEADERS.iter().any(|own| name.text.eq_ignore_ascii_case(own)) {
                return Err(key.wrong(&name.at, "cannot be set; the request itself decides it"));
            }
            let removed = match &node.data {
                Data::Bool(value) => !value,
                Data::Loose(written) => written == "false",
                _ => false,
            };
            if removed {
                return Ok((name.text, None, node.at));
            }
            let node = node.settle(true);
            match node.data {
                Data::Text(value) if !is_header_value(&value) => {
                    Err(key.wrong(&node.at, "must not contain control characters"))
                }
                Data::Text(value) => Ok((name.text, Some(value), node.at)),
                _ => Err(key.expected("a string, or false to remove the header", &node)),
            }
        };
        entries.into_iter().map(header).collect()
    }

    /// Names and values of variables.
    pub(super) fn variables(self, node: Node) -> Read<Vec<(String, String, Origin)>> {
        let (entries, _) = self.table(node)?;
        let variable = |(name, node): (Name, Node)| {
            let key = format!("{}.{}", self.0, quoted(&name.text));
            let key = KeyName(&key);
            if name.text.is_empty() || name.text.contains(['=', '\0']) {
                return Err(key.wrong(&name.at, "is no name of a variable"));
            }
            let (text, at) = key.text(node)?;
            if text.contains('\0') {
                return Err(key.wrong(&at, "must not contain NUL"));
            }
            Ok((name.text, text, at))
        };
        entries.into_iter().map(variable).collect()
    }

    /// A table without the `own` keys.
    pub(super) fn object(self, own: &[&str], node: Node) -> Read<Map<String, Value>> {
        let (entries, _) = self.table(node)?;
        let value = |(name, node): (Name, Node)| {
            if own.contains(&name.text.as_str()) {
                let key = format!("{}.{}", self.0, name.text);
                return Err(KeyName(&key).wrong(&name.at, "cannot be set; the run itself decides it"));
            }
            Ok((name.text, self.json(node)?))
        };
        entries.into_iter().map(value).collect()
    }

    fn json(self, node: Node) -> Read<Value> {
        node.into_json().map_err(|part| self.wrong(&part.at, format_args!("cannot hold {}", part.kind())))
    }

    /// A JSON Schema of an object, written as a table.
    pub(super) fn parameters(self, node: Node) -> Read<Map<String, Value>> {
        let at = node.at.clone();
        let schema = self.object(&[], node)?;
        if describes_object(&schema) {
            Ok(schema)
        } else {
            Err(self.wrong(&at, "must be a JSON Schema of an object (type = \"object\")"))
        }
    }

    /// Parameters in short: each name with its schema, `required` beside it. Becomes a schema of an object that allows
    /// nothing else.
    pub(super) fn params(self, node: Node) -> Read<Map<String, Value>> {
        let (entries, _) = self.table(node)?;
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for (name, node) in entries {
            let key = format!("{}.{}", self.0, quoted(&name.text));
            let (schema, wanted) = KeyName(&key).param(node)?;
            if wanted {
                required.push(name.text.clone());
            }
            properties.insert(name.text, Value::Object(schema));
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        schema.insert("required".to_owned(), json!(required));
        schema.insert("additionalProperties".to_owned(), json!(false));
        Ok(schema)
    }

    fn param(self, node: Node) -> Read<(Map<String, Value>, bool)> {
        let (entries, _) = self.table(node)?;
        let (mut schema, mut required) = (Map::new(), false);
        for (name, node) in entries {
            let shown = format!("{}.{}", self.0, quoted(&name.text));
            let key = KeyName(&shown);
            match name.text.as_str() {
                "required" => required = key.bool(node)?,
                "type" => {
                    let words = key.one_or_more(node)?;
                    let words = key.words(&PARAM_TYPES, &words)?;
                    let value = if let [word] = words.as_slice() { json!(word) } else { json!(words) };
                    schema.insert(name.text, value);
                }
                "description" => {
                    schema.insert(name.text, json!(key.text(node)?.0));
                }
                known if PARAM_KEYS.contains(&known) => {
                    schema.insert(name.text, key.json(node)?);
                }
                unknown => {
                    let near = nearest(unknown, PARAM_KEYS).map(|near| format!("{}.{near}", self.0));
                    return Err(ConfigError::new(name.at, format!("unknown key {shown}")).suggest(near));
                }
            }
        }
        Ok((schema, required))
    }

    /// Arguments; a list among them is an optional group.
    pub(super) fn template(self, node: Node) -> Read<Vec<Vec<String>>> {
        const WHAT: &str = "an array of strings and arrays of strings";
        let node = node.settle(false);
        let Data::List(items) = node.data else { return Err(self.expected(WHAT, &node)) };
        let part = |item: Node| match item.data {
            Data::Text(text) => Ok(vec![text]),
            Data::List(_) => Ok(self.list(item)?.into_iter().map(|(text, _)| text).collect()),
            _ => Err(self.expected(WHAT, &item)),
        };
        items.into_iter().map(part).collect()
    }

    /// Permission rules; a table gives the reason, too.
    pub(super) fn rules(self, node: Node) -> Read<Vec<String>> {
        let node = node.settle(false);
        let Data::List(items) = node.data else { return Err(self.expected("an array of rules", &node)) };
        items.into_iter().map(|item| self.rule(item)).collect()
    }

    fn rule(self, node: Node) -> Read<String> {
        let node = match node.data {
            Data::Table(entries) => {
                let at = node.at.clone();
                let mut rule = None;
                for (name, node) in entries {
                    let shown = format!("{}.{}", self.0, quoted(&name.text));
                    let key = KeyName(&shown);
                    match name.text.as_str() {
                        "rule" => rule = Some(node),
                        "reason" => drop(key.text(node)?),
                        unknown => {
                            let near = nearest(unknown, RULE_KEYS);
                            return Err(ConfigError::new(name.at, format!("unknown key {shown}")).suggest(near));
                        }
                    }
                }
                rule.ok_or_else(|| self.wrong(&at, "holds a table without a rule"))?
            }
            _ => node,
        };
        match node.data {
            Data::Text(rule) => match rule_problem(&rule) {
                Some(problem) => Err(self.wrong(&node.at, format_args!("holds {rule:?}, {problem}"))),
                None => Ok(rule),
            },
            _ => Err(self.expected("an array of rules, each a string or { rule, reason }", &node)),
        }
    }

    /// One rule, or none.
    pub(super) fn when(self, node: Node) -> Read<String> {
        let (rule, at) = self.text(node)?;
        match rule_problem(&rule) {
            Some(problem) if !rule.is_empty() => Err(self.wrong(&at, format_args!("is {rule:?}, {problem}"))),
            _ => Ok(rule),
        }
    }
}

/// What is wrong with the form of a rule, `name` or `name(pattern)`.
fn rule_problem(rule: &str) -> Option<&'static str> {
    let (name, pattern) = match rule.split_once('(') {
        Some((name, rest)) => (name, Some(rest)),
        None => (rule, None),
    };
    let names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*');
    if name.is_empty() || !name.chars().all(names) {
        return Some("which names no tool");
    }
    match pattern {
        Some(pattern) if !pattern.ends_with(')') => Some("whose bracket is not closed"),
        Some(")") => Some("whose pattern is empty"),
        _ => None,
    }
}

/// Whether a text can be a header's value.
pub(super) fn is_header_value(value: &str) -> bool {
    !value.contains(|c: char| c.is_control() && c != '\t')
}

/// RFC 9110 `tchar`.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
