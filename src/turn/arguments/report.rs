//! What a validator found, in words a model can act on: one line per problem, each with its path.
//!
//! Keeps true: every line and every quoted name is bounded and holds no control character of the model's; equal
//! problems are told once; of alternatives the one that was most likely meant is told.
//!
//! Must not know: tools, coercion.

use std::collections::HashSet;

use boon::{ErrorKind, InstanceLocation, InstanceToken, ValidationError};
use serde_json::Value;

use super::capped;
use super::clean::UNRESOLVED;

/// Characters of one name in a path.
const NAME_CHARS_MAX: usize = 100;
/// Characters of a listed value, pattern or set of values.
const LISTED_CHARS_MAX: usize = 500;
/// Alternatives that are described one by one.
const BRANCHES_SHOWN_MAX: usize = 3;

/// The type word of a value.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a value is a number without a fraction.
pub(super) fn is_integral(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
        }
        _ => false,
    }
}

/// The problems, each once, in the order of the arguments.
pub(super) fn lines(error: &ValidationError<'_, '_>) -> Vec<String> {
    let mut problems = Vec::new();
    collect(error, &mut problems);
    let mut seen = HashSet::new();
    problems.into_iter().map(|problem| problem.line()).filter(|line| seen.insert(line.clone())).collect()
}

/// A problem at one place.
struct Problem {
    path: Vec<String>,
    fault: Fault,
}

enum Fault {
    /// Wanted types and the one given.
    Type(Vec<String>, String),
    /// Wanted values.
    Values(Vec<Value>),
    Other(String),
}

impl Problem {
    fn line(&self) -> String {
        let text = match &self.fault {
            Fault::Type(want, got) => format!("expected {}, got {got}", alternatives(want)),
            Fault::Values(values) => match values.as_slice() {
                [value] => format!("must be {}", json(value)),
                _ => format!("must be one of {}", json(&Value::Array(values.clone()))),
            },
            Fault::Other(text) => text.clone(),
        };
        let path = if self.path.is_empty() { "root".to_owned() } else { self.path.join(".") };
        format!("{path}: {text}")
    }
}

/// `a`, `a or b`, `a, b or c`.
fn alternatives(words: &[String]) -> String {
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "nothing".to_owned(),
    }
}

fn json(value: &Value) -> String {
    capped(&value.to_string(), LISTED_CHARS_MAX)
}

/// A property name as part of a path; names come from the model and may hold anything.
fn name(text: &str) -> String {
    let visible: String = text.chars().flat_map(|c| if c.is_control() { visible(c) } else { vec![c] }).collect();
    capped(&visible, NAME_CHARS_MAX)
}

fn visible(c: char) -> Vec<char> {
    c.escape_default().collect()
}

fn path(location: &InstanceLocation<'_>) -> Vec<String> {
    let token = |token: &InstanceToken<'_>| match token {
        InstanceToken::Prop(text) => name(text),
        InstanceToken::Item(index) => index.to_string(),
    };
    location.tokens.iter().map(token).collect()
}

/// The depth of the error tree is bounded by the depth of the visits that made it.
fn collect(error: &ValidationError<'_, '_>, out: &mut Vec<Problem>) {
    match &error.kind {
        ErrorKind::Group | ErrorKind::Schema { .. } | ErrorKind::Reference { .. } | ErrorKind::AllOf => {
            for cause in &error.causes {
                collect(cause, out);
            }
        }
        ErrorKind::AnyOf | ErrorKind::OneOf(None) => union(error, out),
        _ => leaf(error, out),
    }
}

/// The problems of the alternative that was most likely meant.
fn union(error: &ValidationError<'_, '_>, out: &mut Vec<Problem>) {
    let here = path(&error.instance_location);
    let mut branches: Vec<Vec<Problem>> = Vec::new();
    for cause in &error.causes {
        let mut problems = Vec::new();
        collect(cause, &mut problems);
        branches.push(problems);
    }
    if let Some(merged) = merged(&here, &branches) {
        out.extend(merged);
        return;
    }
    // An alternative of the right type, and of those the one whose fixed values (such as a tag) were given.
    let shaped = |problem: &Problem| problem.path.len() == here.len() && !matches!(problem.fault, Fault::Other(_));
    let tagged = |problem: &Problem| problem.path.len() == here.len() + 1 && matches!(problem.fault, Fault::Values(_));
    if branches.iter().any(|branch| !branch.iter().any(shaped)) {
        branches.retain(|branch| !branch.iter().any(shaped));
    }
    if branches.iter().any(|branch| !branch.iter().any(tagged)) {
        branches.retain(|branch| !branch.iter().any(tagged));
    }
    let total = branches.len();
    let mut branches = branches.into_iter();
    match branches.next() {
        Some(only) if total == 1 => out.extend(only),
        Some(first) if total <= BRANCHES_SHOWN_MAX => {
            let all = std::iter::once(first).chain(branches);
            let ways: Vec<String> = all.filter_map(|branch| branch.first().map(Problem::line)).collect();
            let text = format!("matches none of the allowed forms ({})", ways.join(" | "));
            out.push(Problem { path: here, fault: Fault::Other(text) });
        }
        _ => {
            let text = "matches none of the allowed forms".to_owned();
            out.push(Problem { path: here, fault: Fault::Other(text) });
        }
    }
}

/// Alternatives that only name types or values are one problem.
fn merged(here: &[String], branches: &[Vec<Problem>]) -> Option<Vec<Problem>> {
    let (mut types, mut given, mut values): (Vec<String>, Option<String>, Vec<Value>) = Default::default();
    for branch in branches {
        let [problem] = branch.as_slice() else { return None };
        if problem.path != here {
            return None;
        }
        match &problem.fault {
            Fault::Type(want, got) => {
                given = Some(got.clone());
                let new: Vec<String> = want.iter().filter(|word| !types.contains(word)).cloned().collect();
                types.extend(new);
            }
            Fault::Values(want) => values.extend(want.iter().cloned()),
            Fault::Other(_) => return None,
        }
    }
    let fault = match (given, values.is_empty()) {
        (Some(got), true) => Fault::Type(types, got),
        (None, false) => Fault::Values(values),
        (Some(_), false) => {
            let list = json(&Value::Array(values));
            Fault::Other(format!("must be one of {list} or {}", alternatives(&types)))
        }
        (None, true) => return None,
    };
    Some(vec![Problem { path: here.to_vec(), fault }])
}

fn leaf(error: &ValidationError<'_, '_>, out: &mut Vec<Problem>) {
    let here = path(&error.instance_location);
    let mut inside = |key: &str, text: String| {
        let mut path = here.clone();
        path.push(name(key));
        out.push(Problem { path, fault: Fault::Other(text) });
    };
    let fault = match &error.kind {
        ErrorKind::Required { want } => {
            for key in want {
                inside(key, "required but missing".to_owned());
            }
            return;
        }
        ErrorKind::AdditionalProperties { got } => {
            for key in got {
                inside(key, "not an allowed field".to_owned());
            }
            return;
        }
        // The validator does not say where the object stands.
        ErrorKind::PropertyName { prop } => return inside(prop, "not an allowed field name".to_owned()),
        ErrorKind::Dependency { prop, missing } | ErrorKind::DependentRequired { prop, missing } => {
            let text = format!("required because {} is given", name(prop));
            for key in missing {
                inside(key, text.clone());
            }
            return;
        }
        ErrorKind::Type { got, want } => {
            Fault::Type(want.iter().map(|word| word.to_string()).collect(), got.to_string())
        }
        ErrorKind::Enum { want } => Fault::Values((*want).clone()),
        ErrorKind::Const { want } => Fault::Values(vec![(*want).clone()]),
        kind => Fault::Other(sentence(kind, error.instance_location.tokens.last())),
    };
    out.push(Problem { path: here, fault });
}

fn sentence(kind: &ErrorKind<'_, '_>, last: Option<&InstanceToken<'_>>) -> String {
    match kind {
        ErrorKind::FalseSchema => match last {
            Some(InstanceToken::Prop(_)) => "not an allowed field".to_owned(),
            Some(InstanceToken::Item(_)) => "not an allowed item".to_owned(),
            None => "no arguments are allowed".to_owned(),
        },
        ErrorKind::Format { want, .. } if *want == UNRESOLVED => {
            "can not be checked: the tool's schema has a $ref here that leads nowhere".to_owned()
        }
        ErrorKind::RefCycle { .. } => "can not be checked: the tool's schema refers to itself here".to_owned(),
        ErrorKind::Minimum { want, .. } => format!("must be >= {want}"),
        ErrorKind::Maximum { want, .. } => format!("must be <= {want}"),
        ErrorKind::ExclusiveMinimum { want, .. } => format!("must be > {want}"),
        ErrorKind::ExclusiveMaximum { want, .. } => format!("must be < {want}"),
        ErrorKind::MultipleOf { want, .. } => format!("must be a multiple of {want}"),
        ErrorKind::MinLength { want, .. } => format!("must have at least {}", counted(*want, "character")),
        ErrorKind::MaxLength { want, got } => format!("must have at most {}, has {got}", counted(*want, "character")),
        ErrorKind::MinItems { want, .. } => format!("must have at least {}", counted(*want, "item")),
        ErrorKind::MaxItems { want, got } => format!("must have at most {}, has {got}", counted(*want, "item")),
        ErrorKind::AdditionalItems { got } => format!("has {} too many", counted(*got, "item")),
        ErrorKind::MinProperties { want, .. } => format!("must have at least {}", counted(*want, "field")),
        ErrorKind::MaxProperties { want, got } => format!("must have at most {}, has {got}", counted(*want, "field")),
        ErrorKind::UniqueItems { got: [a, b] } => format!("items must differ, but {a} and {b} are equal"),
        ErrorKind::Contains => "has no item of the required form".to_owned(),
        ErrorKind::MinContains { want, .. } => {
            format!("must have at least {} of the required form", counted(*want, "item"))
        }
        ErrorKind::MaxContains { want, .. } => {
            format!("must have at most {} of the given form", counted(*want, "item"))
        }
        ErrorKind::Pattern { want, .. } => {
            format!("does not match pattern {}", json(&Value::String((*want).to_owned())))
        }
        ErrorKind::Format { want, .. } => format!("is not a valid {want}"),
        ErrorKind::OneOf(Some(_)) => "matches more than one of the allowed forms".to_owned(),
        ErrorKind::Not => "has a form that is not allowed".to_owned(),
        ErrorKind::ContentSchema | ErrorKind::ContentEncoding { .. } | ErrorKind::ContentMediaType { .. } => {
            "has content of the wrong form".to_owned()
        }
        // The kinds that `leaf` and `collect` take apart.
        _ => "is not valid".to_owned(),
    }
}

/// `1 item`, `2 items`.
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
