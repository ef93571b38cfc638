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

    /// Compiles the schema now; the reason if it is not usable.
    pub fn schema(&self) -> Result<(), &str> {
        self.compiled().as_ref().map(drop).map_err(String::as_str)
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

#[cfg(test)]
mod tests {
    //! Case numbers are those of `engine.md`.

    use std::sync::Arc;

    use async_trait::async_trait;
    use serde_json::{Map, Value, json};

    use super::{ActiveTool, check_call, effective_args, recheck_call, valid_without_coercion};
    use crate::model::{ArgumentsError, ToolCall};
    use crate::port::{Denied, Policy, Replay, Source, Tool, ToolCtx, ToolOutput, ToolSpec, Verdict};
    use crate::turn::CallFailure;

    struct Counter(ToolSpec);

    #[async_trait]
    impl Tool for Counter {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn prepare(&self, raw: Value) -> Result<Value, String> {
            match raw.get("n").and_then(Value::as_str) {
                Some("panic") => panic!("no such number"),
                Some("none") => Err("unusable".to_owned()),
                _ => Ok(raw),
            }
        }

        async fn call(&self, _: Value, _: ToolCtx) -> ToolOutput {
            ToolOutput::default()
        }
    }

    struct NoSevens;

    impl Policy for NoSevens {
        fn check(&self, tool: &str, args: &Value) -> Verdict {
            if args["n"] != 7 {
                return Verdict::Allow;
            }
            Verdict::Deny(Denied { rule: format!("{tool}(7)"), reason: "no sevens".to_owned() })
        }
    }

    fn tools() -> Vec<ActiveTool> {
        let schema = json!({
            "type": "object",
            "properties": {"n": {"type": "integer"}, "all": {"type": "boolean"}},
            "required": ["n"],
            "additionalProperties": false
        });
        let spec = ToolSpec {
            name: "count".to_owned(),
            label: String::new(),
            description: String::new(),
            input_schema: schema,
            output_schema: None,
            replay: Replay::Safe,
            execution: None,
            source: Source::Builtin,
            annotations: Map::new(),
        };
        let broken = ToolSpec { name: "broken".to_owned(), input_schema: json!({"type": 1}), ..spec.clone() };
        vec![ActiveTool::new(Arc::new(Counter(spec))), ActiveTool::new(Arc::new(Counter(broken)))]
    }

    fn call(name: &str, args: &Value) -> ToolCall {
        let arguments = args.as_object().cloned().unwrap_or_default();
        ToolCall { id: "c1".to_owned(), name: name.to_owned(), arguments, ..ToolCall::default() }
    }

    /// The code and the text of a refusal, or the arguments of a call that may run.
    fn told(checked: Result<Value, CallFailure>) -> (String, String) {
        match checked {
            Ok(args) => ("ok".to_owned(), args.to_string()),
            Err(failure) => {
                let output = failure.into_output();
                let error = output.details.unwrap()["error"].take();
                (error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
            }
        }
    }

    #[test]
    fn each_step_can_refuse_a_call_in_order() {
        let malformed = ArgumentsError { raw: "{".to_owned(), message: "cut off".to_owned() };
        let torn = ToolCall { arguments_error: Some(malformed), ..call("count", &json!({})) };
        let rows = [
            (call("sum", &json!({})), "unknown_tool", "Available: broken, count."),
            (torn, "invalid_args", "cut off"),
            (call("count", &json!({"n": "panic"})), "invalid_args", "The tool crashed: no such number"),
            (call("count", &json!({"n": "none"})), "invalid_args", "unusable"),
            (call("count", &json!({"n": "x"})), "invalid_args", "Invalid arguments"),
            (call("broken", &json!({"n": 1})), "invalid_args", "not usable"),
            (call("count", &json!({"n": "7"})), "denied", "no sevens"),
            (call("count", &json!({"n": "8"})), "ok", "{\"n\":8}"),
        ];
        let (tools, names) = (tools(), ["broken".to_owned(), "count".to_owned()]);
        for (call, code, text) in rows {
            let checked = check_call(&call, &tools, &names, Some(&NoSevens)).map(|checked| checked.args);
            let (found, message) = told(checked);
            assert!(found == code && message.contains(text), "{call:?}: {found}, {message}");
        }
    }

    #[test]
    fn arguments_of_a_hook_pass_the_same_checks() {
        let (tools, call) = (tools(), call("count", &json!({"n": 8})));
        for (replaced, code) in [
            (json!({"n": "9"}), "ok"),
            (json!({"n": "7"}), "denied"),
            (json!({"m": 1}), "invalid_args"),
            (json!(9), "invalid_args"),
        ] {
            assert_eq!(told(recheck_call(&call, &tools, &replaced, Some(&NoSevens))).0, code, "{replaced}");
        }
        assert_eq!(effective_args(&call, &json!({"n": 8})), None);
        assert_eq!(effective_args(&call, &json!({"n": 9})).as_deref(), Some(&json!({"n": 9})));
    }

    #[test]
    fn a_refusal_by_rule_names_the_rule() {
        let (tools, call) = (tools(), call("count", &json!({"n": 7})));
        let failure = check_call(&call, &tools, &[], Some(&NoSevens)).unwrap_err();
        let error = json!({"code": "denied", "message": "no sevens", "rule": "count(7)"});
        assert_eq!(failure.into_output().details, Some(json!({"error": error})));
    }

    #[test]
    fn case_33_stored_arguments_fit_as_they_are_or_not_at_all() {
        let tools = tools();
        for (args, fits) in [
            (json!({"n": 42}), true),
            (json!({"n": 42.0}), true),
            (json!({"n": "42"}), false),
            (json!({"n": 1, "all": null}), false),
            (json!({}), false),
            (json!([42]), false),
        ] {
            assert_eq!(valid_without_coercion(&tools[0], &args), fits, "{args}");
        }
        assert!(!valid_without_coercion(&tools[1], &json!({"n": 42})));
    }
}
