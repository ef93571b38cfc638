use std::sync::Arc;

use crate::model::ToolCall;
use crate::port::{Execution, Tool};

/// Whether the calls of a batch run one at a time: when the configuration says so, or when any called tool does.
/// A tool marked parallel does not lift a sequential configuration; unknown tools do not count.
pub fn is_sequential(configured: Execution, calls: &[ToolCall], tools: &[Arc<dyn Tool>]) -> bool {
    configured == Execution::Sequential
        || calls.iter().any(|call| {
            tools
                .iter()
                .any(|tool| tool.spec().name == call.name && tool.spec().execution == Some(Execution::Sequential))
        })
}

/// The names of all tools, sorted.
pub fn tool_names(tools: &[Arc<dyn Tool>]) -> Arc<[String]> {
    let mut names: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    names.sort();
    names.into()
}
