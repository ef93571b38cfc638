//! What the tools of a killed process left running, ended when its session goes on.
//!
//! Keeps true: only what certainly belongs to the call is signalled (X6); what was ended, and what may still run, is
//! told.
//!
//! Must not know: how processes are recognised, which tools start any.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::model::EntryId;
use crate::port::{Clock, Orphans, OrphansReport};
use crate::process::{self, OrphanOutcome, ProcessIdentity};

/// The memo under which a tool that starts a process keeps what identifies it.
const PROCESS_MEMO: &str = "proc";
/// The result of a call says this where something of it was ended.
const STOPPED: &str = "Processes it had started were still running and were stopped.";

/// Ends children by what their tool kept of them.
pub(super) struct LeftRunning {
    /// Between TERM and KILL.
    pub(super) grace: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// What was left in the background is ended, too.
    pub(super) background: Option<Background>,
}

/// How to know what a killed process of a session left in the background.
pub(super) struct Background {
    /// A session that no other process has open.
    pub(super) session_id: String,
    /// What this process starts carries it.
    pub(super) own_token: String,
}

#[async_trait]
impl Orphans for LeftRunning {
    async fn stop(&self, invocation: &EntryId, memos: &[(String, Value)]) -> OrphansReport {
        let kept = memos.iter().find(|(name, _)| name == PROCESS_MEMO).map(|(_, value)| value.clone());
        let Some(identity) = kept.and_then(|value| serde_json::from_value::<ProcessIdentity>(value).ok()) else {
            return OrphansReport::default();
        };
        let mut report = OrphansReport::default();
        // 0: it was killed before the child had a number; what it had started then is found by the id of the call.
        if identity.pgid != 0 {
            let outcome = process::stop_orphan(&identity, self.grace, &self.clock).await;
            let pid = identity.pgid;
            match outcome {
                OrphanOutcome::Gone => {}
                OrphanOutcome::Stopped { .. } => {
                    report.stopped = Some(STOPPED.to_owned());
                    report.warnings.push(format!("process group {pid}, which a killed run had left, was stopped"));
                }
                OrphanOutcome::Left { pids, .. } if pids.is_empty() => {}
                OrphanOutcome::Left { reason, pids } => {
                    report.warnings.push(format!("a killed run may have left process {}: {reason}", list(&pids)));
                }
            }
        }
        let swept = process::sweep_call(&identity, invocation.as_str(), &self.clock).await;
        if !swept.is_empty() {
            report.stopped = Some(STOPPED.to_owned());
            report.warnings.push(format!("what a killed run had left was killed: process {}", list(&swept)));
        }
        report
    }

    async fn stop_background(&self, except: &[EntryId]) -> OrphansReport {
        let mut report = OrphansReport::default();
        let Some(Background { session_id, own_token }) = &self.background else { return report };
        let except = except.iter().map(ToString::to_string).collect();
        let swept = process::sweep_session(session_id, own_token, except, &self.clock).await;
        if !swept.is_empty() {
            let text = format!("what a killed run had left in the background was killed: process {}", list(&swept));
            report.warnings.push(text);
        }
        report
    }
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
