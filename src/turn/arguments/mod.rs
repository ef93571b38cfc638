//! Coercion and validation of tool arguments, and the feedback a model reads about them.
//!
//! Keeps true: a check answers, whatever the schema and the arguments hold: depth, work and text are bounded by the
//! constants here; nothing is ever fetched; the same arguments give the same words.
//!
//! Must not know: which tools exist, and what happens to a refused call.

mod clean;
mod coerce;
mod graph;
mod report;
#[cfg(test)]
mod tests;

use boon::Schemas;
use serde_json::Value;

use super::texts;
use crate::model::ArgumentsError;
use coerce::Coercion;
use graph::{Budget, Graph};

/// Nesting of arguments; `serde_json` reads no deeper than this either.
const VALUE_DEPTH_MAX: usize = 128;
/// Subschemas one inside the other on the way to a value; the validator recurses over them, and an unoptimised build
/// must fit a thread of 2 MiB.
const VISIT_DEPTH_MAX: usize = 96;
/// Work of one check, in visits of a subschema: this much for any arguments, …
const VISITS_MIN: usize = 100_000;
/// … and this much more for each value in them. Only schemas whose alternatives multiply need more.
const VISITS_PER_VALUE: usize = 64;
/// Problem lines of one feedback text.
const PROBLEM_LINES_MAX: usize = 10;
/// Characters of echoed arguments.
const ECHO_CHARS_MAX: usize = 2_000;

/// A compiled schema of tool arguments.
pub struct ArgumentCheck {
    graph: Graph,
    schemas: Schemas,
}

impl std::fmt::Debug for ArgumentCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArgumentCheck").field("subschemas", &self.graph.len()).finish_non_exhaustive()
    }
}

impl ArgumentCheck {
    /// Compiles a schema. A `$ref` that leads nowhere, or out of the document, is an error only at its place and only
    /// when a value stands there; `format` is an annotation, and a pattern this program cannot run is not checked.
    ///
    /// # Errors
    /// What is wrong with the schema, for a person: it is no JSON Schema, or larger than the limits.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        let (graph, schemas) = clean::compile(schema)?;
        Ok(Self { graph, schemas })
    }

    /// Coerces a copy of `args` where that loses nothing, and validates it.
    ///
    /// # Errors
    /// The whole feedback text for the model.
    pub fn check(&self, tool: &str, args: &Value) -> Result<Value, String> {
        self.check_repaired(tool, args, args)
    }

    /// Like [`Self::check`], for arguments that a tool has repaired: a feedback shows what the model wrote.
    ///
    /// # Errors
    /// The whole feedback text for the model.
    pub fn check_repaired(&self, tool: &str, args: &Value, received: &Value) -> Result<Value, String> {
        self.problems(args).map_err(|problems| feedback(tool, &problems, received))
    }

    /// Whether arguments are valid as they are, without any coercion.
    pub fn fits(&self, args: &Value) -> bool {
        work_for(args).is_ok_and(|work| self.validate(args, work).is_ok())
    }

    fn problems(&self, args: &Value) -> Result<Value, Vec<String>> {
        let work = work_for(args)?;
        let coerced = Coercion::new(&self.graph, &self.schemas, Budget::new(work)).run(args.clone());
        // A schema may ask for a list at its root; a tool never gets one.
        let coerced = if coerced.is_object() { coerced } else { args.clone() };
        self.validate(&coerced, work)?;
        Ok(coerced)
    }

    fn validate(&self, args: &Value, work: usize) -> Result<(), Vec<String>> {
        let Some(root) = self.graph.node(Graph::ROOT) else { return Ok(()) };
        if !self.graph.affordable(Graph::ROOT, args, &mut Budget::new(work)) {
            return Err(vec!["root: too deep or too ambiguous to check against the tool's schema".to_owned()]);
        }
        self.schemas.validate(args, root.index).map_err(|error| report::lines(&error))
    }
}

/// The work a check of these arguments may take; the problem with arguments that are not looked at.
fn work_for(args: &Value) -> Result<usize, Vec<String>> {
    if !args.is_object() {
        return Err(vec![format!("root: expected object, got {}", report::kind(args))]);
    }
    let Some(count) = count_values(args) else {
        return Err(vec![format!("root: nested more than {VALUE_DEPTH_MAX} levels deep")]);
    };
    Ok(VISITS_MIN.saturating_add(count.saturating_mul(VISITS_PER_VALUE)))
}

/// The text for a call whose arguments were not one JSON object.
pub fn malformed(tool: &str, error: &ArgumentsError) -> String {
    let raw = capped(&texts::without_controls(&error.raw), ECHO_CHARS_MAX);
    format!("Arguments for \"{tool}\" are not a JSON object: {}\n\n{raw}", error.message)
}

fn feedback(tool: &str, problems: &[String], args: &Value) -> String {
    let mut lines = vec![format!("Invalid arguments for \"{tool}\":")];
    lines.extend(problems.iter().take(PROBLEM_LINES_MAX).map(|line| format!("- {line}")));
    let more = problems.len().saturating_sub(PROBLEM_LINES_MAX);
    if more > 0 {
        lines.push(format!("- and {more} more"));
    }
    lines.push("Arguments received:".to_owned());
    // Printing recurses, so arguments that are too deep are not printed.
    let echo = count_values(args).and_then(|_| serde_json::to_string_pretty(args).ok());
    lines.push(echo.map_or_else(|| "(not shown)".to_owned(), |echo| capped(&echo, ECHO_CHARS_MAX)));
    lines.join("\n")
}

/// The first `max` characters, and how many more there were.
fn capped(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => {
            let (head, rest) = text.split_at(at);
            format!("{head}… ({} characters more)", rest.chars().count())
        }
    }
}

/// How many values `value` holds, itself included, or `None` when they are nested too deeply. Does not recurse.
fn count_values(value: &Value) -> Option<usize> {
    let mut count: usize = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, depth)) = open.pop() {
        if depth > VALUE_DEPTH_MAX {
            return None;
        }
        count = count.saturating_add(1);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Some(count)
}
