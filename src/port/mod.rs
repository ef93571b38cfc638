//! The traits the loop calls and the contracts behind them.
//!
//! Keeps true: [`Provider::stream`] never fails as a call, a failure is its last item; a [`Tool`] reports every
//! failure as a result; time and ids enter the program only through [`Clock`] and [`Ids`].
//!
//! Must not know: any implementation but the two trivial ones of the operating system's clock and random ids.

mod cancel;
mod clock;
mod hooks;
mod inbox;
mod provider;
mod sink;
mod store;
mod tool;

pub use cancel::Cancel;
pub use clock::{Clock, Ids, SystemClock, UuidIds};
pub use hooks::{
    AfterResponse, AfterResponseAnswer, AfterTool, AfterToolAnswer, BeforeDrive, BeforeDriveAnswer, BeforeRequest,
    BeforeRequestAnswer, BeforeRun, BeforeRunAnswer, BeforeRunEnd, BeforeRunEndAnswer, BeforeTool, BeforeToolAnswer,
    Common, HookFailure, HookPoint, HookScope, Hooks, OptionsPatch, Transformed,
};
pub use inbox::{Inbox, NoInbox, Polled, SpoolItem, SpoolKind};
pub use provider::{
    AssistantEvent, Cache, Credential, LlmRequest, Models, OnPayload, OnResponse, Provider, ProviderEvent, Purpose,
    RequestObservers, ResponseMeta, StreamOptions, Timeouts, ToolSpecs,
};
pub use sink::{Sink, SinkError};
pub use store::{
    BranchScan, Committed, EntryScan, LIST_LIMIT, LIST_LIMIT_MAX, ListPage, Order, Stats, Store, StoreError,
};
pub use tool::{
    Access, Denied, Execution, Guard, Inputs, Memos, OpenGuard, Orphans, OrphansReport, Policy, Replay, SessionRef,
    Source, Tool, ToolCtx, ToolEnv, ToolOutput, ToolSpec, ToolUpdate, Updates, Verdict,
};
