//! Makes a schema from anywhere safe to compile: bounded, self-contained, with every reference resolved or marked.
//!
//! Keeps true: depth and size are checked before anything recurses; nothing is fetched; a reference that leads nowhere
//! and a pattern that cannot be run make their place unchecked or failing, never the whole schema unusable.
//!
//! Must not know: arguments.

use std::collections::{HashMap, HashSet};

use boon::{CompileError, Compiler, Draft, Format, Schemas, UrlLoader};
use serde_json::{Map, Value};

use super::graph::Graph;
use super::report;

/// Nesting of a schema; the compiler recurses over it, and an unoptimised build must fit a thread of 2 MiB.
const SCHEMA_DEPTH_MAX: usize = 48;
/// JSON values in a schema.
const SCHEMA_VALUES_MAX: usize = 50_000;
/// Characters of a regular expression that is checked at all.
const PATTERN_CHARS_MAX: usize = 1_000;
/// The format that stands where a reference could not be resolved; no value has it.
pub(super) const UNRESOLVED: &str = "unresolved reference";
/// The compiler wants an address; nothing is ever loaded from it.
pub(super) const ADDRESS: &str = "mem:/arguments";

/// Keywords that hold one subschema.
const SINGLE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that hold a list of subschemas.
const LIST: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Keywords that hold named subschemas.
const NAMED: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords whose work is done here, and annotations that a draft would make assertions.
const DROPPED: [&str; 7] = ["$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema", "$vocabulary", "format"];

/// Nothing is fetched.
struct NoLoader;

impl UrlLoader for NoLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} is outside the schema").into())
    }
}

/// Compiles a schema from anywhere.
pub(super) fn compile(schema: &Value) -> Result<(Graph, Schemas), String> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err(format!("a schema is an object, not {}", report::kind(schema)));
    }
    bounded(schema)?;
    let declared = schema.get("$schema").and_then(Value::as_str).and_then(Draft::from_url);
    let clean = resolved(schema, declared);
    // A schema that names no draft may still be written for an older one.
    let drafts = declared.map_or_else(|| vec![Draft::V2020_12, Draft::V7, Draft::V4], |draft| vec![draft]);
    let mut first_error = None;
    for draft in drafts {
        match compile_as(&clean, draft) {
            Ok(compiled) => return Ok(compiled),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_default())
}

fn compile_as(clean: &Value, draft: Draft) -> Result<(Graph, Schemas), String> {
    let mut schemas = Schemas::new();
    let mut compiler = compiler(draft);
    compiler.add_resource(ADDRESS, clean.clone()).map_err(|error| describe(&error))?;
    compiler.compile(ADDRESS, &mut schemas).map_err(|error| describe(&error))?;
    let graph = Graph::build(clean, |pointer| {
        // A fragment is percent-decoded before it is read as a pointer.
        let location = format!("{ADDRESS}#{}", pointer.replace('%', "%25"));
        compiler.compile(&location, &mut schemas).map_err(|error| describe(&error))
    })?;
    Ok((graph, schemas))
}

fn compiler(draft: Draft) -> Compiler {
    let mut compiler = Compiler::new();
    compiler.use_loader(Box::new(NoLoader));
    compiler.set_default_draft(draft);
    compiler.enable_format_assertions();
    compiler.register_format(Format { name: UNRESOLVED, func: |_| Err("no such schema".into()) });
    compiler
}

fn describe(error: &CompileError) -> String {
    match error {
        CompileError::ValidationError { src, .. } => report::lines(src).join("; "),
        other => format!("{other:#}"),
    }
}

/// Does not recurse.
fn bounded(schema: &Value) -> Result<(), String> {
    let mut count: usize = 0;
    let mut open = vec![(schema, 1)];
    while let Some((value, depth)) = open.pop() {
        count += 1;
        if depth > SCHEMA_DEPTH_MAX {
            return Err(format!("nested more than {SCHEMA_DEPTH_MAX} levels deep"));
        }
        if count > SCHEMA_VALUES_MAX {
            return Err(format!("holds more than {SCHEMA_VALUES_MAX} values"));
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

/// A place where a subschema stands, and the pointer of the resource that its references start from.
struct Place {
    pointer: String,
    base: String,
}

/// What references can name.
#[derive(Default)]
struct Names {
    /// `$id` → pointer.
    ids: HashMap<String, String>,
    /// `$anchor` → pointer.
    anchors: HashMap<String, String>,
}

/// A copy without identifiers, whose references are all pointers from the root.
fn resolved(schema: &Value, declared: Option<Draft>) -> Value {
    let mut names = Names::default();
    let places = places(schema, declared, &mut names);
    let mut clean = schema.clone();
    let mut patterns = Patterns::default();
    for place in places {
        let Some(Value::Object(original)) = schema.pointer(&place.pointer) else { continue };
        let target = reference(original).map(|text| find(schema, &names, &place.base, text));
        let Some(Value::Object(map)) = clean.pointer_mut(&place.pointer) else { continue };
        for key in DROPPED {
            map.shift_remove(key);
        }
        if declared == Some(Draft::V4) && map.get("id").is_some_and(Value::is_string) {
            map.shift_remove("id");
        }
        for key in REFERENCES {
            map.shift_remove(key);
        }
        match target {
            None => {}
            Some(Some(pointer)) => {
                let text = format!("#{}", pointer.replace('%', "%25"));
                map.insert("$ref".to_owned(), Value::String(text));
            }
            Some(None) => {
                map.insert("format".to_owned(), Value::String(UNRESOLVED.to_owned()));
            }
        }
        patterns.drop_unsupported(map);
    }
    clean
}

fn reference(map: &Map<String, Value>) -> Option<&str> {
    REFERENCES.iter().find_map(|key| map.get(*key).and_then(Value::as_str))
}

/// Every subschema that a keyword or a reference leads to, outer ones first.
fn places(schema: &Value, declared: Option<Draft>, names: &mut Names) -> Vec<Place> {
    let mut seen = HashSet::from([String::new()]);
    let mut places = Vec::new();
    let mut open = vec![Place { pointer: String::new(), base: String::new() }];
    while let Some(mut place) = open.pop() {
        let Some(Value::Object(map)) = schema.pointer(&place.pointer) else { continue };
        names.collect(map, declared, &mut place);
        let mut next = children(map, &place.pointer);
        if let Some(pointer) = reference(map).and_then(|text| text.strip_prefix('#')) {
            let pointer = decoded(pointer);
            next.extend([format!("{}{pointer}", place.base), pointer]);
        }
        for pointer in next {
            if is_schema(schema.pointer(&pointer)) && seen.insert(pointer.clone()) {
                open.push(Place { pointer, base: place.base.clone() });
            }
        }
        places.push(place);
    }
    places
}

pub(super) fn is_schema(value: Option<&Value>) -> bool {
    matches!(value, Some(Value::Object(_) | Value::Bool(_)))
}

impl Names {
    fn collect(&mut self, map: &Map<String, Value>, declared: Option<Draft>, place: &mut Place) {
        let id_key = if declared == Some(Draft::V4) { "id" } else { "$id" };
        if let Some(id) = map.get(id_key).and_then(Value::as_str) {
            // Older drafts name an anchor so.
            if let Some(anchor) = id.strip_prefix('#') {
                self.anchor(anchor, &place.pointer);
            } else {
                place.base.clone_from(&place.pointer);
                let id = id.split('#').next().unwrap_or_default();
                self.ids.entry(id.to_owned()).or_insert_with(|| place.pointer.clone());
            }
        }
        for key in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = map.get(key).and_then(Value::as_str) {
                self.anchor(anchor, &place.pointer);
            }
        }
    }

    fn anchor(&mut self, anchor: &str, pointer: &str) {
        self.anchors.entry(anchor.to_owned()).or_insert_with(|| pointer.to_owned());
    }

    /// The resource a reference without its fragment names: an identifier in full, or its last part.
    fn resource(&self, text: &str) -> Option<&String> {
        self.ids.get(text).or_else(|| {
            let ends_so = |id: &str| id.strip_suffix(text).is_some_and(|head| head.ends_with('/'));
            let mut found = self.ids.iter().filter(|(id, _)| ends_so(id)).map(|(_, pointer)| pointer);
            // Two candidates are none.
            found.next().filter(|_| found.next().is_none())
        })
    }
}

/// The pointer a reference leads to.
fn find(schema: &Value, names: &Names, base: &str, text: &str) -> Option<String> {
    let (resource, fragment) = text.split_once('#').unwrap_or((text, ""));
    let base = if resource.is_empty() { base } else { names.resource(resource)? };
    let fragment = decoded(fragment);
    if !fragment.is_empty() && !fragment.starts_with('/') {
        return names.anchors.get(&fragment).cloned();
    }
    let inner = format!("{base}{fragment}");
    if is_schema(schema.pointer(&inner)) {
        return Some(inner);
    }
    (resource.is_empty() && is_schema(schema.pointer(&fragment))).then_some(fragment)
}

/// Undoes percent-encoding; what is not encoded properly stays.
fn decoded(text: &str) -> String {
    let hex = |byte: Option<&u8>| byte.and_then(|b| char::from(*b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'%'
            && let (Some(high), Some(low)) = (hex(bytes.get(at + 1)), hex(bytes.get(at + 2)))
        {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// One step of a JSON pointer.
pub(super) fn step(pointer: &str, token: &str) -> String {
    format!("{pointer}/{}", token.replace('~', "~0").replace('/', "~1"))
}

/// Pointers of all subschemas directly inside.
fn children(map: &Map<String, Value>, pointer: &str) -> Vec<String> {
    let mut found = Vec::new();
    for key in SINGLE {
        if map.contains_key(key) {
            found.push(step(pointer, key));
        }
    }
    for key in LIST {
        if let Some(Value::Array(items)) = map.get(key) {
            let list = step(pointer, key);
            found.extend((0..items.len()).map(|index| format!("{list}/{index}")));
        }
    }
    for key in NAMED {
        if let Some(Value::Object(named)) = map.get(key) {
            let all = step(pointer, key);
            found.extend(named.keys().map(|name| step(&all, name)));
        }
    }
    found
}

/// Which regular expressions can be run; each is tried once.
#[derive(Default)]
struct Patterns(HashMap<String, bool>);

impl Patterns {
    /// Other dialects know look-around and back-references; what cannot be run is left to the tool itself.
    fn drop_unsupported(&mut self, map: &mut Map<String, Value>) {
        if let Some(Value::String(pattern)) = map.get("pattern")
            && !self.supported(pattern)
        {
            map.shift_remove("pattern");
        }
        let mut dropped = false;
        if let Some(Value::Object(named)) = map.get_mut("patternProperties") {
            named.retain(|pattern, _| {
                let keep = self.supported(pattern);
                dropped |= !keep;
                keep
            });
        }
        if dropped {
            // Without the pattern nobody can say which properties are additional.
            map.shift_remove("additionalProperties");
            map.shift_remove("unevaluatedProperties");
        }
    }

    fn supported(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.0.get(pattern) {
            return *known;
        }
        let supported = pattern.chars().count() <= PATTERN_CHARS_MAX && compiles(pattern);
        self.0.insert(pattern.to_owned(), supported);
        supported
    }
}

fn compiles(pattern: &str) -> bool {
    // As a property pattern, because a bad `pattern` is reported as a bug of the compiler.
    let probe = serde_json::json!({"patternProperties": {pattern: true}});
    let mut compiler = compiler(Draft::V2020_12);
    compiler.add_resource(ADDRESS, probe).is_ok() && compiler.compile(ADDRESS, &mut Schemas::new()).is_ok()
}
