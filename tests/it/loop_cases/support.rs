//! The stage of the cases: a scripted model, the tools of the fixture, and a record of everything that happened.

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use pirn::agent::{Agent, AgentError, AgentOptions, AgentSnapshot, Listener, LoopHooks, Prompt, Settings};
use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, Content, Event, Message, Model, RunOutcome,
    StopReason, ToolCall, ToolResultMessage,
};
use pirn::port::{AssistantEvent, Clock, Execution, LlmRequest, SinkError, Tool};
use pirn::testing::{Act, Reply, RuntimeClock, ScriptedProvider, SequentialIds, call};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::doubles::echo_tool;
use super::invariants;
use super::notation::{short, short_request, updates};

/// What stands before a run. `Scene::new` is the fixture of the cases.
pub(crate) struct Scene {
    options: AgentOptions,
    provider: Arc<ScriptedProvider>,
    handle: Handle,
    transcript: Vec<Message>,
    reactions: Vec<Reaction>,
}

type Reaction = Box<dyn Fn(&Event, &Agent) + Send + Sync>;

/// The agent of a scene, for tools and hooks that reach for it.
#[derive(Clone, Default)]
pub(crate) struct Handle(Arc<OnceLock<Agent>>);

impl Deref for Handle {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        self.0.get().expect("the scene has a stage")
    }
}

pub(crate) fn model() -> Model {
    Model::unknown("local", "m-1", "openai-completions", "http://127.0.0.1:1/v1")
}

impl Scene {
    pub(crate) fn new(replies: Vec<Reply>) -> Self {
        let provider = ScriptedProvider::new(replies);
        let tools: Vec<Arc<dyn Tool>> =
            vec![Arc::new(echo_tool("echo", 0)), Arc::new(echo_tool("fast", 2)), Arc::new(echo_tool("slow", 20))];
        let settings = Settings { system_prompt: "S".to_owned(), model: model(), thinking: None, tools };
        let mut options = AgentOptions::new(provider.clone(), settings);
        options.clock = Arc::new(RuntimeClock::new());
        options.ids = Arc::new(SequentialIds::new());
        Self { options, provider, handle: Handle::default(), transcript: Vec::new(), reactions: Vec::new() }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Adds a tool, or replaces the one of its name.
    pub(crate) fn tool(mut self, tool: impl Tool + 'static) -> Self {
        let tools = &mut self.options.settings.tools;
        tools.retain(|known| known.spec().name != tool.spec().name);
        tools.push(Arc::new(tool));
        self
    }

    pub(crate) fn hooks(self, hooks: impl LoopHooks + 'static) -> Self {
        self.options(|options| options.hooks = Arc::new(hooks))
    }

    pub(crate) fn sequential(self) -> Self {
        self.options(|options| options.tool_execution = Execution::Sequential)
    }

    pub(crate) fn options(mut self, change: impl FnOnce(&mut AgentOptions)) -> Self {
        change(&mut self.options);
        self
    }

    pub(crate) fn transcript(mut self, messages: Vec<Message>) -> Self {
        self.transcript = messages;
        self
    }

    /// Does something at events, behind the record.
    pub(crate) fn on(mut self, reaction: impl Fn(&Event, &Agent) + Send + Sync + 'static) -> Self {
        self.reactions.push(Box::new(reaction));
        self
    }

    pub(crate) fn stage(self) -> Stage {
        let agent = Agent::new(self.options).unwrap();
        agent.set_messages(self.transcript.into_iter().map(Arc::new).collect()).unwrap();
        assert!(self.handle.0.set(agent.clone()).is_ok());
        let record = Arc::new(Record::new(self.handle.clone()));
        agent.subscribe(record.clone()).forever();
        agent.subscribe(Arc::new(Reactions { handle: self.handle, list: self.reactions })).forever();
        Stage { agent, provider: self.provider, record }
    }

    /// Plays one prompt.
    pub(crate) async fn prompt(self, prompt: impl Into<Prompt> + Send) -> Run {
        self.stage().prompt(prompt).await
    }
}

/// An agent ready to run.
pub(crate) struct Stage {
    pub(crate) agent: Agent,
    pub(crate) provider: Arc<ScriptedProvider>,
    record: Arc<Record>,
}

impl Stage {
    pub(crate) async fn prompt(&self, prompt: impl Into<Prompt> + Send) -> Run {
        self.watch(self.agent.prompt(prompt)).await
    }

    pub(crate) async fn continue_(&self) -> Run {
        self.watch(self.agent.continue_()).await
    }

    /// Records a call of `prompt` or `continue_` and holds it against the invariants.
    async fn watch(&self, call: impl Future<Output = Result<RunOutcome, AgentError>>) -> Run {
        let before = self.agent.state().messages;
        let (events_before, requests_before) = (self.record.len(), self.provider.requests().len());
        let outcome = call.await;
        let (events, states, moments) = self.record.since(events_before);
        let run = Run {
            outcome,
            events,
            states,
            moments,
            requests: self.provider.requests().split_off(requests_before),
            before,
            after: self.agent.state().messages,
        };
        assert!(!self.agent.state().is_streaming);
        if run.outcome.is_ok() {
            let beyond = run.events.iter().any(|event| format!("{event:?}").contains("The script has no reply left"));
            assert!(!beyond, "a request beyond the script: {}", run.short());
            invariants::check(&run);
        }
        run
    }
}

/// What happened.
pub(crate) struct Run {
    pub(crate) outcome: Result<RunOutcome, AgentError>,
    pub(crate) events: Vec<Event>,
    /// The agent's state at each event.
    pub(crate) states: Vec<AgentSnapshot>,
    /// Milliseconds from the first event to each.
    pub(crate) moments: Vec<u64>,
    pub(crate) requests: Vec<Arc<LlmRequest>>,
    pub(crate) before: Vec<Arc<Message>>,
    pub(crate) after: Vec<Arc<Message>>,
}

impl Run {
    /// Compares the short form; the expectation may be spread over lines.
    #[track_caller]
    pub(crate) fn is(&self, expected: &str) -> &Self {
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(self.short(), expected.join(" "));
        self
    }

    /// Compares the requests, one string each.
    #[track_caller]
    pub(crate) fn asked(&self, expected: &[&str]) -> &Self {
        let requests: Vec<String> = self.requests.iter().map(|request| short_request(request)).collect();
        assert_eq!(requests, expected);
        self
    }

    /// Compares the final stop reason.
    #[track_caller]
    pub(crate) fn ended(&self, expected: StopReason) -> &Self {
        assert_eq!(self.outcome().stop_reason, Some(expected));
        self
    }

    pub(crate) fn outcome(&self) -> &RunOutcome {
        self.outcome.as_ref().unwrap()
    }

    pub(crate) fn short(&self) -> String {
        short(&self.events)
    }

    pub(crate) fn updates(&self) -> String {
        updates(&self.events)
    }

    /// The items of the short form that contain a word, such as `ts` or `te`.
    pub(crate) fn tools(&self) -> String {
        let tools: Vec<Event> = self
            .events
            .iter()
            .filter(|event| matches!(event, Event::ToolStart { .. } | Event::ToolUpdate { .. } | Event::ToolEnd { .. }))
            .cloned()
            .collect();
        short(&tools)
    }

    /// The milliseconds of the events of one name.
    pub(crate) fn moments_of(&self, name: &str) -> Vec<u64> {
        let all = self.events.iter().zip(&self.moments);
        all.filter(|(event, _)| event.name() == name).map(|(_, moment)| *moment).collect()
    }

    /// The result message of a call.
    pub(crate) fn result(&self, id: &str) -> &ToolResultMessage {
        let results = self.after.iter().rev().filter_map(|message| match &**message {
            Message::ToolResult(result) => Some(result),
            _ => None,
        });
        results.into_iter().find(|result| result.tool_call_id == id).expect("a result")
    }

    /// The text of a call's result.
    pub(crate) fn result_text(&self, id: &str) -> String {
        let texts: Vec<&str> = self.result(id).content.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    }

    pub(crate) fn last_reply(&self) -> &AssistantMessage {
        self.after.iter().rev().find_map(|message| message.as_assistant()).expect("a reply")
    }

    /// The code in the details of a call that failed.
    pub(crate) fn code(&self, id: &str) -> String {
        let details = self.result(id).details.as_ref().expect("details");
        details["error"]["code"].as_str().expect("a code").to_owned()
    }
}

/// Listens to everything.
struct Record {
    handle: Handle,
    clock: RuntimeClock,
    /// A listener runs: events never overlap.
    busy: AtomicBool,
    seen: Mutex<Vec<(Event, AgentSnapshot, u64)>>,
}

impl Record {
    fn new(handle: Handle) -> Self {
        Self { handle, clock: RuntimeClock::new(), busy: AtomicBool::new(false), seen: Mutex::default() }
    }

    fn len(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn since(&self, from: usize) -> (Vec<Event>, Vec<AgentSnapshot>, Vec<u64>) {
        let seen = self.seen.lock().unwrap();
        let start = seen.get(from).map_or(0, |(_, _, moment)| *moment);
        let mut parts = (Vec::new(), Vec::new(), Vec::new());
        for (event, state, moment) in &seen[from..] {
            parts.0.push(event.clone());
            parts.1.push(state.clone());
            parts.2.push(moment - start);
        }
        parts
    }
}

#[async_trait]
impl Listener for Record {
    async fn on_event(&self, event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
        assert!(!self.busy.swap(true, Ordering::SeqCst), "two events at once");
        tokio::task::yield_now().await;
        self.seen.lock().unwrap().push((event.clone(), self.handle.state(), self.clock.monotonic_ms()));
        self.busy.store(false, Ordering::SeqCst);
        Ok(())
    }
}

struct Reactions {
    handle: Handle,
    list: Vec<Reaction>,
}

#[async_trait]
impl Listener for Reactions {
    async fn on_event(&self, event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
        self.list.iter().for_each(|reaction| reaction(event, &self.handle));
        Ok(())
    }
}

// Replies ------------------------------------------------------------------------------------------------------

pub(crate) fn text(text: &str) -> Reply {
    Reply::text(text)
}

pub(crate) fn calls(blocks: Vec<AssistantBlock>) -> Reply {
    Reply::blocks(blocks)
}

/// A call of the tool `echo`.
pub(crate) fn echo(id: &str, v: &str) -> AssistantBlock {
    call(id, "echo", &json!({"v": v}))
}

/// A call whose argument text could not be read.
pub(crate) fn malformed(id: &str, name: &str, raw: &str) -> AssistantBlock {
    let message = serde_json::from_str::<Value>(raw).unwrap_err().to_string();
    AssistantBlock::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments_error: Some(pirn::model::ArgumentsError { message, raw: raw.to_owned() }),
        ..ToolCall::default()
    })
}

pub(crate) fn head() -> AssistantHead {
    let model = model();
    AssistantHead { api: model.api, provider: model.provider, model: model.id, timestamp: 0 }
}

pub(crate) fn start() -> Act {
    Act::Emit(AssistantEvent::Start(head()))
}

pub(crate) fn block(index: usize, event: BlockEvent) -> Act {
    Act::Emit(AssistantEvent::Block { index, event })
}

pub(crate) fn text_start(index: usize) -> Act {
    block(index, BlockEvent::TextStart)
}

pub(crate) fn delta(index: usize, text: &str) -> Act {
    block(index, BlockEvent::TextDelta(text.to_owned()))
}

/// The last item of a stream.
pub(crate) fn end(stop_reason: StopReason, content: Vec<AssistantBlock>, error_message: Option<&str>) -> Act {
    let mut reply = AssistantMessage::pending(&head());
    reply.content = content;
    reply.stop_reason = stop_reason;
    reply.error_message = error_message.map(str::to_owned);
    Act::Emit(AssistantEvent::End(Box::new(reply)))
}

pub(crate) fn done(text: &str) -> Act {
    end(StopReason::Stop, vec![AssistantBlock::text(text)], None)
}

// Messages -----------------------------------------------------------------------------------------------------

pub(crate) fn user(text: &str) -> Message {
    Message::user(text, Vec::new(), 0)
}

/// A stored reply of this model.
pub(crate) fn reply(stop_reason: StopReason, content: Vec<AssistantBlock>) -> Message {
    let mut reply = AssistantMessage::pending(&head());
    reply.content = content;
    reply.stop_reason = stop_reason;
    Message::Assistant(reply)
}

pub(crate) fn result(id: &str, text: &str) -> Message {
    let message = json!({"role": "toolResult", "toolCallId": id, "toolName": "echo", "isError": false,
        "content": [{"type": "text", "text": text}], "timestamp": 0});
    serde_json::from_value(message).unwrap()
}
