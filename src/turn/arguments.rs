//! placeholder: coercion and validation of tool arguments

use crate::model::ArgumentsError;
use serde_json::Value;

#[derive(Debug)]
pub struct ArgumentCheck;

impl ArgumentCheck {
    pub fn compile(_schema: &Value) -> Result<Self, String> {
        Ok(Self)
    }

    pub fn check(&self, _tool: &str, args: &Value) -> Result<Value, String> {
        Ok(args.clone())
    }
}

pub fn malformed(tool: &str, error: &ArgumentsError) -> String {
    format!("{tool} {}", error.raw)
}
