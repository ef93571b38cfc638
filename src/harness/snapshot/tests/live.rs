//! The property: a fold over any legal stream of events is what somebody would see who looked at the session itself.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// A session that makes legal events and knows, in a form of its own, what they lead to.
#[derive(Default)]
struct Session {
    events: Vec<LaneEvent>,
    /// Every entry ever added, on any lane.
    tree: HashMap<EntryId, Arc<Entry>>,
    tip: Option<EntryId>,
    total_tokens: u64,
    queues: Vec<Queued>,
    configuration: Option<LaneConfig>,
    last_result: Option<Arc<OperationResult>>,
    operation: Option<OpenRun>,
    made: usize,
}

struct OpenRun {
    id: String,
    from: Option<EntryId>,
    aborting: bool,
    phase: Phase,
}

enum Phase {
    /// Nothing but the prompt is there.
    Starting,
    Ready,
    /// The text so far.
    Streaming(String),
    Waiting,
    /// Calls without a place: id, progress, settled.
    Tools(Vec<(String, Option<String>, bool)>),
}

impl Session {
    fn name(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}{}", self.made)
    }

    fn tell(&mut self, event: Event) {
        self.events.push(on(LANE, event));
    }

    fn append(&mut self, message: Message) {
        let name = self.name("e");
        let entry = entry(&name, self.tip.as_ref().map(EntryId::as_str), message.clone());
        self.tree.insert(entry.id.clone(), Arc::clone(&entry));
        self.tip = Some(entry.id.clone());
        self.tell(message_end(message));
        self.tell(Event::EntryAdded { entry });
    }

    /// What another lane does meanwhile, and what may happen at any time.
    fn aside(&mut self, pick: u8) {
        match pick % 5 {
            0 => {
                let name = self.name("z");
                let entry = entry(&name, None, user());
                self.tree.insert(entry.id.clone(), Arc::clone(&entry));
                self.events.push(on("other", Event::EntryAdded { entry }));
            }
            1 => {
                self.total_tokens += 10;
                self.events.push(on("other", usage(self.total_tokens)));
            }
            2 => {
                let name = self.name("q");
                self.queues.push(queued(&name));
                self.tell(Event::QueueUpdate { queues: self.queues.clone() });
            }
            3 => {
                self.configuration = Some(config(&pick.to_string()));
                self.tell(config_update(&pick.to_string()));
            }
            _ => self.events.push(on("other", tool_start("c1"))),
        }
    }

    fn end(&mut self, run: &OpenRun) {
        let result = operation_result(&run.id, run.from.as_ref(), self.tip.as_ref());
        self.last_result = Some(Arc::clone(&result));
        self.tell(run_end(Some(result)));
    }

    fn step(&mut self, pick: u8) {
        if pick % 6 == 5 {
            return self.aside(pick / 6);
        }
        let Some(mut run) = self.operation.take() else {
            let id = self.name("o");
            let from = self.tip.clone();
            self.tell(Event::RunStart { run_id: RunId::new(id.clone()), started_at: 5 });
            self.tell(Event::TurnStart { turn: 1 });
            self.tell(message_start(user()));
            self.append(user());
            self.operation = Some(OpenRun { id, from, aborting: false, phase: Phase::Starting });
            return;
        };
        if pick == 17 {
            run.aborting = true;
            self.tell(operation_abort());
        }
        let phase = std::mem::replace(&mut run.phase, Phase::Ready);
        if let Some(phase) = self.advance(phase, pick, &run) {
            run.phase = phase;
            self.operation = Some(run);
        }
    }

    fn advance(&mut self, phase: Phase, pick: u8, run: &OpenRun) -> Option<Phase> {
        match phase {
            Phase::Starting if pick.is_multiple_of(4) => {
                self.tip.clone_from(&run.from);
                self.end(run);
                None
            }
            Phase::Starting | Phase::Ready => {
                self.tell(message_start(reply(StopReason::Pending)));
                self.tell(update(0, BlockEvent::TextStart));
                Some(Phase::Streaming(String::new()))
            }
            Phase::Streaming(mut text) if pick % 4 < 2 => {
                text.push_str(&pick.to_string());
                self.tell(update(0, BlockEvent::TextDelta(pick.to_string())));
                Some(Phase::Streaming(text))
            }
            Phase::Streaming(_) => self.settle(pick, run),
            Phase::Waiting => {
                self.tell(Event::RetryStart { attempt: 2 });
                Some(Phase::Ready)
            }
            Phase::Tools(calls) => Some(self.tools(calls, pick)),
        }
    }

    /// A reply is there: it failed and is repeated, or it has calls, or it is the answer.
    fn settle(&mut self, pick: u8, run: &OpenRun) -> Option<Phase> {
        let repeated = pick % 8 == 7;
        self.append(reply(if repeated { StopReason::Error } else { StopReason::Stop }));
        self.total_tokens += 5;
        self.tell(usage(self.total_tokens));
        if repeated {
            self.tell(retry_scheduled());
            return Some(Phase::Waiting);
        }
        if pick % 4 == 3 {
            self.end(run);
            return None;
        }
        let calls: Vec<String> = (0..=pick % 3).map(|_| self.name("c")).collect();
        for call in &calls {
            self.tell(tool_start(call));
        }
        Some(Phase::Tools(calls.into_iter().map(|call| (call, None, false)).collect()))
    }

    /// Some progress, some outcomes; when all are there, the places in source order.
    fn tools(&mut self, mut calls: Vec<(String, Option<String>, bool)>, pick: u8) -> Phase {
        let at = usize::from(pick) % calls.len();
        if calls.iter().all(|(_, _, settled)| *settled) {
            for (call, ..) in calls {
                self.append(result_of(&call));
            }
            return Phase::Ready;
        }
        match &mut calls[at] {
            (_, _, true) => {}
            (call, progress, false) if pick.is_multiple_of(3) => {
                *progress = Some(pick.to_string());
                let event = tool_update(call, &pick.to_string());
                self.tell(event);
            }
            (call, _, settled) => {
                *settled = true;
                let event = tool_end(call, "done");
                self.tell(event);
            }
        }
        Phase::Tools(calls)
    }

    /// The snapshot as one would make it from what is stored and what goes on.
    fn fresh(&self) -> Snapshot {
        let mut transcript = Vec::new();
        let mut at = self.tip.clone();
        while let Some(entry) = at.and_then(|id| self.tree.get(&id)) {
            transcript.insert(0, Arc::clone(entry));
            at = entry.parent_id.clone();
        }
        let operation = self.operation.as_ref().map(|run| {
            let mut view = OperationView::new(RunId::new(run.id.clone()), "run", 5, run.from.clone());
            view.status = if run.aborting { OperationStatus::Aborting } else { OperationStatus::Open };
            view.retry = matches!(run.phase, Phase::Waiting).then(retry);
            if let Phase::Tools(calls) = &run.phase {
                let tools = calls
                    .iter()
                    .map(|(call, progress, settled)| tool(call, progress.as_deref(), settled.then_some("done")));
                view.running_tools = tools.collect();
            }
            view
        });
        let mut snapshot = empty();
        snapshot.stats.message_count = self.tree.len() as u64;
        snapshot.stats.usage = totals(self.total_tokens);
        Snapshot {
            transcript,
            tip_id: self.tip.clone(),
            last_result: self.last_result.clone(),
            configuration: self.configuration.clone(),
            operation,
            queues: self.queues.clone(),
            ..snapshot
        }
    }

    fn streamed(&self) -> Option<&str> {
        match &self.operation.as_ref()?.phase {
            Phase::Streaming(text) => Some(text),
            _ => None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn reducing_the_events_from_any_snapshot_on_gives_a_fresh_snapshot(
        picks in proptest::collection::vec(any::<u8>(), 0..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut session = Session::default();
        for pick in picks {
            session.step(pick);
        }
        let (first, rest) = session.events.split_at(cut.index(session.events.len() + 1));
        let mut half = empty();
        for event in first {
            reduce(&mut half, event);
        }
        let mut whole = half.clone();
        let mut direct = empty();
        for event in rest {
            reduce(&mut whole, event);
        }
        for event in &session.events {
            reduce(&mut direct, event);
        }
        prop_assert_eq!(&whole, &direct);
        let streaming = whole.operation.as_ref().and_then(OperationView::streaming_message);
        let streamed = streaming.map(|message| message.text());
        prop_assert_eq!(streamed.as_deref(), session.streamed());
        if let Some(operation) = &mut whole.operation {
            operation.streaming = None;
        }
        prop_assert_eq!(whole, session.fresh());
    }
}
