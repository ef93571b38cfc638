//! The last transaction of an operation: everything of it goes, its result stays.
//!
//! Keeps true: an operation ends once; what is left of it is its result and what stands in the tree and the ledger.
//!
//! Must not know: why it ends.

use serde_json::Map;

use super::super::error::Fault;
use super::super::memory::{LaneMemory, Open};
use super::super::plan::Plan;
use super::Facts;
use crate::model::session::namespace;
use crate::model::{
    CallStatus, CancelCause, EntryId, ErrorRecord, LaneState, Leaf, OperationError, OperationResult, Reason,
    RunOutcome, Status, StopReason,
};

/// How an operation ends.
#[derive(Clone, Debug)]
pub(in super::super) struct Ending {
    status: Status,
    reason: Reason,
    stop_reason: Option<StopReason>,
    /// Of a failed one, with its finer word.
    error: Option<(String, ErrorRecord)>,
    cause: Option<CancelCause>,
    /// `assistant` or `tools`, of a completed one.
    completion: Option<&'static str>,
}

impl Ending {
    pub(in super::super) fn new(status: Status, reason: Reason, stop_reason: Option<StopReason>) -> Self {
        Self { status, reason, stop_reason, error: None, cause: None, completion: None }
    }

    /// A run whose last reply is the answer, or whose tools ended it.
    pub(in super::super) fn completed(reason: Reason, stop_reason: StopReason, completion: &'static str) -> Self {
        Self { completion: Some(completion), ..Self::new(Status::Completed, reason, Some(stop_reason)) }
    }

    pub(in super::super) fn failed(code: &str, error: ErrorRecord) -> Self {
        let reason = crate::turn::reason_of_reply(StopReason::Error, Some(error.kind), None);
        Self { error: Some((code.to_owned(), error)), ..Self::new(Status::Failed, reason, Some(StopReason::Error)) }
    }

    pub(in super::super) fn aborted(cause: CancelCause) -> Self {
        let reason = crate::turn::reason_of_abort(Some(cause));
        Self { cause: Some(cause), ..Self::new(Status::Aborted, reason, Some(StopReason::Aborted)) }
    }
}

/// Where an ending leaves the lane.
#[derive(Clone, Debug, Default)]
pub(in super::super) enum Tip {
    /// As the plan has it written, or as it was.
    #[default]
    AsItIs,
    /// At the newest entry of the plan.
    Newest,
    /// Back there.
    Back(Option<EntryId>),
}

/// What an ending publishes beside the result.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Publication {
    pub(in super::super) tip: Tip,
    /// The lane's state without what was placed; `None` = nothing was.
    pub(in super::super) lane: Option<LaneState>,
}

/// Completes a plan with the end of the operation. What the plan placed is published with it; its tip is written by
/// whoever placed it.
pub(in super::super) fn end(
    mut plan: Plan,
    lane: &LaneMemory,
    open: &Open,
    ending: Ending,
    publication: Publication,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    match publication.tip {
        Tip::AsItIs => {}
        Tip::Newest => plan.move_tip()?,
        Tip::Back(tip) => plan.tip_to(tip)?,
    }
    forget(&mut plan, open, facts)?;
    let Ending { status, reason, stop_reason, error, cause, completion } = ending;
    let latest = plan.latest_reply().or_else(|| open.state.latest_assistant_entry_id.clone());
    let final_entry_id = match completion {
        Some("tools") => None,
        Some(_) | None => latest,
    };
    let result = OperationResult {
        operation_id: open.id().clone(),
        kind: open.meta.intent.kind().to_owned(),
        status,
        reason,
        stop_reason,
        error_kind: error.as_ref().map(|(_, record)| record.kind),
        error: error.as_ref().map(|(code, record)| OperationError {
            code: code.clone(),
            message: record.message.clone(),
            details: record.retry_after_ms.map(|ms| serde_json::json!({ "retryAfterMs": ms })),
        }),
        cause,
        from_tip_id: open.meta.source_tip_id.clone(),
        tip_id: plan.tip().cloned(),
        started_at: open.meta.started_at,
        ended_at: facts.now,
        completion: completion.map(str::to_owned),
        final_entry_id,
        extra: Map::new(),
    };
    let result = plan.ended(result)?;
    let lane_state = LaneState {
        current_operation_id: None,
        last_operation_id: Some(open.id().clone()),
        ..publication.lane.unwrap_or_else(|| lane.state.clone())
    };
    plan.lane_state(lane_state)?;
    plan.turn_end();
    let outcome =
        RunOutcome { messages: Vec::new(), stop_reason, reason, error: error.map(|(_, record)| record), cause };
    plan.run_end(lane, outcome, result);
    Ok(plan)
}

/// Takes away everything that is kept for an open operation.
fn forget(plan: &mut Plan, open: &Open, facts: &Facts<'_>) -> Result<(), Fault> {
    let operation = open.id().as_str().to_owned();
    plan.delete(namespace::OP_META, &operation);
    plan.delete(namespace::OP_STATE, &operation);
    for (namespace, key) in (facts.leftovers)()? {
        plan.delete(namespace, &key);
    }
    match &open.state.leaf {
        Leaf::AssistantPending(pending) => {
            plan.delete_list(namespace::FRAMES, &format!("{operation}:{}", pending.response_entry_id));
        }
        Leaf::Tools { batch } => {
            for call in &batch.calls {
                if matches!(call.status, CallStatus::OutcomeReady { .. })
                    && open.staged.contains_key(&call.result_entry_id)
                {
                    plan.staged_over(&call.result_entry_id);
                }
            }
        }
        Leaf::Starting | Leaf::Checkpoint { .. } | Leaf::AssistantReady { .. } | Leaf::AssistantWait { .. } => {}
    }
    Ok(())
}
