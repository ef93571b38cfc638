//! Secrets kept out of the results of tools that read files (tool rule V5).
//!
//! Keeps true: no value of the masks stands in a text, a detail or a structured result of the tool; what the model sent
//! reaches the tool as it is.
//!
//! Must not know: which tool it is, which values are secret.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::model::Content;
use crate::port::{Tool, ToolCtx, ToolOutput, ToolSpec};
use crate::process::mask::Masks;

/// A tool whose results are masked. Its reports of progress are not: it must have none, or mask them itself.
pub(super) struct Masked {
    tool: Arc<dyn Tool>,
    masks: Masks,
}

impl Masked {
    /// The tool itself where there is nothing to mask.
    pub(super) fn wrap(tool: Arc<dyn Tool>, masks: &Masks) -> Arc<dyn Tool> {
        if masks.is_empty() { tool } else { Arc::new(Self { tool, masks: masks.clone() }) }
    }

    fn mask(&self, output: &mut ToolOutput) {
        for block in &mut output.content {
            match block {
                Content::Text(block) => {
                    if let Cow::Owned(masked) = self.masks.text(&block.text) {
                        block.text = masked;
                    }
                }
                Content::Image(_) => {}
                Content::Other(block) => self.masks.object(block),
            }
        }
        output.details.iter_mut().chain(&mut output.structured).for_each(|value| self.masks.value(value));
    }
}

#[async_trait]
impl Tool for Masked {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn prepare(&self, raw: Value) -> Result<Value, String> {
        self.tool.prepare(raw)
    }

    async fn call(&self, args: Value, ctx: ToolCtx) -> ToolOutput {
        let mut output = self.tool.call(args, ctx).await;
        self.mask(&mut output);
        output
    }
}
