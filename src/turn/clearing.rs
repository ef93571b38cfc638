//! The steps of a call before it runs, but for hooks and cancellation.
//!
//! Keeps true: a call that fails any step never reaches its tool; arguments that a hook replaced are checked like the
//! model's.
//!
//! Must not know: hooks, other calls of the batch, what a rule says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::arguments::{self, ArgumentCheck};
use super::running::crash_text;
use super::{CallFailure, texts};
use crate::model::ToolCall;
use crate::port::{Policy, Tool, Verdict};

/// A tool of a run with its compiled schema. Copies share it.
#[derive(Clone)]
pub struct ActiveTool {
    pub tool: Arc<dyn Tool>,
    /// Compiled by the first call: most runs use few of their tools, and a first compilation costs milliseconds.
    check: Arc<OnceLock<Result<ArgumentCheck, String>>>,
}

impl std::fmt::Debug for ActiveTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveTool").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl ActiveTool {
    /// A tool whose schema is compiled when it is needed.
    pub fn new(tool: Arc<dyn Tool>) -> Self {
        Self { tool, check: Arc::default() }
    }

    /// Coerces and validates arguments; a feedback shows what was `received`, not what a tool's repair made of it.
    pub fn check(&self, args: &Value, received: &Value) -> Result<Value, CallFailure> {
        let name = self.name();
        match self.compiled() {
            Ok(check) => check.check_repaired(name, args, received).map_err(CallFailure::Invalid),
            Err(reason) => Err(CallFailure::Invalid(format!("The schema of \"{name}\" is not usable: {reason}"))),
        }
    }

    fn name(&self) -> &str {
        &self.tool.spec().name
    }

    fn compiled(&self) -> &Result<ArgumentCheck, String> {
        self.check.get_or_init(|| ArgumentCheck::compile(&self.tool.spec().input_schema))
    }
}

/// A call that may run.
#[derive(Clone)]
pub struct Checked {
    pub tool: Arc<dyn Tool>,
    /// What the tool gets.
    pub args: Value,
}

impl std::fmt::Debug for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.tool.spec().name;
        f.debug_struct("Checked").field("tool", name).field("args", &self.args).finish()
    }
}

/// Takes a call through the steps that need nobody's answer: the tool exists, the arguments were one JSON object, the
/// tool can repair them, they fit its schema after coercion, and the rules allow the call. `names` is sorted.
pub fn check_call(
    call: &ToolCall,
    tools: &[ActiveTool],
    names: &[String],
    policy: Option<&dyn Policy>,
) -> Result<Checked, CallFailure> {
    let Some(active) = find(call, tools) else {
        return Err(CallFailure::Unknown(texts::unknown_tool(&call.name, names)));
    };
    if let Some(error) = &call.arguments_error {
        return Err(CallFailure::Invalid(arguments::malformed(&call.name, error)));
    }
    let raw = Value::Object(call.arguments.clone());
    let prepared = catch_unwind(AssertUnwindSafe(|| active.tool.prepare(raw.clone())))
        .unwrap_or_else(|panic| Err(crash_text(&*panic)))
        .map_err(CallFailure::Invalid)?;
    let args = active.check(&prepared, &raw)?;
    permit(&call.name, &args, policy)?;
    Ok(Checked { tool: Arc::clone(&active.tool), args })
}

/// Checks arguments that a hook put in place of a cleared call's.
pub fn recheck_call(
    call: &ToolCall,
    tools: &[ActiveTool],
    replaced: &Value,
    policy: Option<&dyn Policy>,
) -> Result<Value, CallFailure> {
    let Some(active) = find(call, tools) else {
        let mut names: Vec<String> = tools.iter().map(|active| active.name().to_owned()).collect();
        names.sort();
        return Err(CallFailure::Unknown(texts::unknown_tool(&call.name, &names)));
    };
    let args = active.check(replaced, replaced)?;
    permit(&call.name, &args, policy)?;
    Ok(args)
}

/// The arguments a tool gets, where they differ from the model's.
pub fn effective_args(call: &ToolCall, args: &Value) -> Option<Arc<Value>> {
    let same = args.as_object() == Some(&call.arguments);
    (!same).then(|| Arc::new(args.clone()))
}

/// Whether arguments fit a tool's schema as they are. Asked of stored ones before a call runs again after a crash.
pub fn valid_without_coercion(tool: &ActiveTool, args: &Value) -> bool {
    tool.compiled().as_ref().is_ok_and(|check| check.fits(args))
}

fn find<'a>(call: &ToolCall, tools: &'a [ActiveTool]) -> Option<&'a ActiveTool> {
    tools.iter().find(|active| active.name() == call.name)
}

fn permit(tool: &str, args: &Value, policy: Option<&dyn Policy>) -> Result<(), CallFailure> {
    match policy.map(|policy| policy.check(tool, args)) {
        None | Some(Verdict::Allow) => Ok(()),
        Some(Verdict::Deny(denied)) => Err(CallFailure::Denied(denied)),
    }
}
