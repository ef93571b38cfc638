//! A parser for the grammar of a JSON stream (module docs of `print::jsonl`). It panics at the first line that breaks a
//! rule.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::schema;

/// Fields of each line behind `type`, `seq` and `ts`, in order; `?` marks one that may be missing.
pub(crate) const FIELDS: &[(&str, &str)] = &[
    (
        "session",
        "version pirn id name? timestamp cwd file parent? resumed recovered leafId model thinking tools limits \
         configFiles",
    ),
    ("agent_start", "runId recovery?"),
    ("turn_start", "turn recovery?"),
    ("message_start", "message recovery?"),
    ("message_update", "assistantMessageEvent usage? recovery?"),
    ("message_end", "message entryId recovery?"),
    ("tool_execution_start", "toolCallId toolName args effectiveArgs? recovery?"),
    ("tool_execution_update", "toolCallId toolName partialResult recovery?"),
    ("tool_execution_end", "toolCallId toolName result isError terminate? durationMs? recovery?"),
    ("permission_denied", "toolCallId toolName rule reason"),
    ("turn_end", "turn message toolResults recovery?"),
    ("agent_end", "messages"),
    ("auto_retry_start", "attempt maxAttempts delayMs errorMessage recovery?"),
    ("auto_retry_end", "success attempt finalError? recovery?"),
    ("model_fallback", "from to errorMessage"),
    ("recovery", "operationId state action toolCallId?"),
    ("queue_update", "steering followUp"),
    ("warning", "code message"),
    (
        "result",
        "ok exitCode stopReason reason text structured error sessionId sessionFile leafId resumable model turns \
         requests toolCalls denials usage costUsd usageByModel durationMs apiDurationMs firstTokenMs pendingFollowUps",
    ),
];
/// Lines that may stand between any two others.
const ANYWHERE: [&str; 6] =
    ["queue_update", "warning", "auto_retry_start", "auto_retry_end", "model_fallback", "recovery"];

/// Checks a whole stream and gives its lines.
pub(crate) fn check(text: &str) -> Vec<Value> {
    let lines = framed(text);
    schema::check(&lines);
    // Behind a fault of the session's file nothing that began is ended.
    let before_last = lines.iter().rev().nth(1);
    let faults = ["commit_failed", "foreign_write", "corrupt_session", "needs_newer"];
    if before_last.is_some_and(|line| line["type"] == "warning" && faults.iter().any(|code| line["code"] == *code)) {
        assert_eq!(lines[lines.len() - 1]["error"]["kind"], "storage");
        return lines;
    }
    let mut parser = Parser { lines: &lines, at: 0, totals: Totals::default(), now: Now::default() };
    parser.stream();
    lines
}

/// One object per line, every field in its place (stream guarantees G3, G9).
pub(super) fn framed(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'), "the last line is whole: {:?}", text.lines().next_back());
    let mut lines = Vec::new();
    let mut last_ts = 0;
    for (seq, text) in text.split_terminator('\n').enumerate() {
        let line: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        check_fields(&line);
        assert_eq!(line["seq"], seq, "seq has no gap (G3): {line}");
        let ts = line["ts"].as_u64().unwrap();
        assert!(ts >= last_ts, "ts never goes back (G3): {line}");
        last_ts = ts;
        lines.push(line);
    }
    lines
}

fn check_fields(line: &Value) {
    let kind = line["type"].as_str().unwrap();
    let (_, fields) = FIELDS.iter().find(|(name, _)| *name == kind).unwrap_or_else(|| panic!("unknown line: {line}"));
    let mut found = line.as_object().unwrap().keys().map(String::as_str).peekable();
    for field in ["type", "seq", "ts"].into_iter().chain(fields.split_whitespace()) {
        let (name, optional) = field.strip_suffix('?').map_or((field, false), |name| (name, true));
        if found.next_if(|key| *key == name).is_none() {
            assert!(optional, "{name} is missing or out of order in {line}");
        }
    }
    assert_eq!(found.next(), None, "an unknown field in {line}");
}

/// What the `result` line must add up to.
#[derive(Default)]
struct Totals {
    runs: u64,
    /// A run that a dead process began: it did more than this stream tells.
    resumed: bool,
    turns: u64,
    calls: u64,
    input: u64,
    output: u64,
    text: String,
    stop_reason: Value,
    denials: Vec<Value>,
}

/// Where in a run the stream stands.
#[derive(Default)]
struct Now {
    run_ids: BTreeSet<String>,
    /// Of the open run.
    resumes: bool,
    in_turn: bool,
    /// Retries that were announced and whose end is not told, by the attempt that came last.
    retrying: Option<u64>,
    /// The attempts of the open turn may have begun in a dead process.
    retried_before: bool,
}

struct Parser<'a> {
    lines: &'a [Value],
    at: usize,
    totals: Totals,
    now: Now,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> &'a str {
        while let Some(line) = self.lines.get(self.at) {
            let kind = line["type"].as_str().unwrap();
            if !ANYWHERE.contains(&kind) {
                return kind;
            }
            self.check_recovery(line);
            self.aside(kind, line);
            self.at += 1;
        }
        "the end"
    }

    /// A line that may stand anywhere.
    fn aside(&mut self, kind: &str, line: &Value) {
        let now = &mut self.now;
        match kind {
            "auto_retry_start" => {
                assert!(now.in_turn, "attempts belong to a turn: {line}");
                let [attempt, most] = ["attempt", "maxAttempts"].map(|key| line[key].as_u64().unwrap());
                assert!(attempt <= most, "{line}");
                let before = now.retrying.replace(attempt);
                assert!(before.is_none_or(|before| before + 1 == attempt), "attempts count up: {line}");
            }
            "auto_retry_end" => {
                assert!(now.in_turn, "attempts belong to a turn: {line}");
                let started = now.retrying.take();
                assert!(started.is_some() || now.retried_before, "an end without a start: {line}");
                assert!(started.is_none_or(|last| last.abs_diff(line["attempt"].as_u64().unwrap()) <= 1), "{line}");
                assert!(line["success"] == false || line.get("finalError").is_none(), "{line}");
                now.retried_before = false;
            }
            "model_fallback" => {
                assert!(now.in_turn, "a fallback belongs to a turn: {line}");
                assert_ne!(line["from"], line["to"]);
            }
            "recovery" => {
                assert!(now.run_ids.contains(line["operationId"].as_str().unwrap()), "another run's: {line}");
                assert!(now.resumes, "what a dead process left is settled by a run that goes on: {line}");
            }
            _ => {}
        }
    }

    /// Only a run that goes on tells of what was begun before.
    fn check_recovery(&self, line: &Value) {
        assert!(line.get("recovery").is_none() || self.now.resumes, "nothing was begun before: {line}");
    }

    fn expect(&mut self, kind: &str) -> &'a Value {
        let found = self.peek();
        assert_eq!(found, kind, "at line {} of\n{}", self.at, self.outline());
        if kind == "agent_start" {
            self.now.resumes = self.lines[self.at].get("recovery").is_some();
        }
        self.check_recovery(&self.lines[self.at]);
        self.at += 1;
        &self.lines[self.at - 1]
    }

    fn outline(&self) -> String {
        let kinds: Vec<&str> = self.lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        kinds.join(" ")
    }

    /// `stream := session run* result | result` (G1).
    fn stream(&mut self) {
        if self.peek() == "session" {
            self.expect("session");
            while self.peek() == "agent_start" {
                self.run();
            }
            let result = self.expect("result");
            self.check_totals(result);
        } else {
            // Nothing was sent, or only the result was asked for.
            self.expect("result");
        }
        assert_eq!(self.peek(), "the end", "the result is last");
    }

    fn check_totals(&self, result: &Value) {
        let totals = &self.totals;
        // A stream of the level `result` has no events to count.
        if self.lines.len() > 1 {
            let sums = [
                (&result["turns"], totals.turns),
                (&result["toolCalls"], totals.calls),
                (&result["usage"]["input"], totals.input),
                (&result["usage"]["output"], totals.output),
            ];
            for (told, seen) in sums {
                let told = told.as_u64().unwrap();
                assert!(told == seen || (totals.resumed && told > seen), "{told} are not {seen}: {result}");
            }
            // Without a run, what an earlier one said is told again.
            if totals.runs == 0 {
                return;
            }
            assert_eq!(result["text"], totals.text);
            assert_eq!(result["denials"], Value::Array(totals.denials.clone()));
            // What ended a run before its answer has the verdict, whatever the last reply was.
            let ended = ["interrupted", "timeout", "pipe"].iter().any(|reason| result["reason"] == *reason);
            if !(ended && result["stopReason"] == "aborted") {
                assert_eq!(result["stopReason"], totals.stop_reason);
            }
        }
    }

    /// `run := agent_start turn* agent_end`.
    fn run(&mut self) {
        let id = self.expect("agent_start")["runId"].as_str().unwrap().to_owned();
        assert!(self.now.run_ids.insert(id), "a run starts once");
        self.totals.runs += 1;
        self.totals.resumed |= self.now.resumes;
        let mut messages = Vec::new();
        let mut number = None;
        while self.peek() == "turn_start" {
            self.turn(&mut number, &mut messages);
        }
        let end = self.expect("agent_end");
        let told = end["messages"].as_array().unwrap();
        if self.now.resumes {
            assert!(told.ends_with(&messages), "the messages of the run, those of a dead process first: {end}");
            self.adopt_last_reply(told);
        } else {
            assert_eq!(told, &messages, "the messages of the run, in order");
        }
        self.now.resumes = false;
    }

    /// What this stream did not tell of a run is the run's all the same.
    fn adopt_last_reply(&mut self, messages: &[Value]) {
        let replies = || messages.iter().rev().filter(|message| message["role"] == "assistant");
        if let Some(reply) = replies().next() {
            self.totals.stop_reason = reply["stopReason"].clone();
        }
        if let Some(text) = replies().map(text_of).find(|text| !text.is_empty()) {
            self.totals.text = text;
        }
    }

    fn turn(&mut self, number: &mut Option<u64>, messages: &mut Vec<Value>) {
        let start = self.expect("turn_start");
        let turn = start["turn"].as_u64().unwrap();
        // Earlier turns may be a dead process's.
        let follows = number.map_or(turn == 1 || self.now.resumes, |before| turn == before + 1);
        assert!(follows, "turns count up from 1: {start}");
        *number = Some(turn);
        let goes_on = start.get("recovery").is_some();
        (self.now.in_turn, self.now.retried_before) = (true, goes_on);
        self.totals.turns += 1;
        while self.next_role().is_some_and(|role| !matches!(role, "assistant" | "toolResult")) {
            messages.push(self.pair().clone());
        }
        let mut reply = &Value::Null;
        while self.next_role() == Some("assistant") {
            assert!(matches!(reply["stopReason"].as_str(), None | Some("error")), "nothing follows {reply}");
            reply = self.reply();
            messages.push(reply.clone());
        }
        let has_told = !reply.is_null();
        if !has_told && goes_on {
            // The reply came in a dead process; its end tells it.
            reply = self.reply_of_turn();
        }
        let results = self.tools(reply, goes_on && !has_told);
        messages.extend(results.iter().cloned());
        let end = self.expect("turn_end");
        assert_eq!(end["turn"], turn);
        assert_eq!(&end["message"], reply, "the last reply of the turn");
        let all = end["toolResults"].as_array().unwrap();
        if goes_on && !has_told {
            assert!(all.ends_with(&results), "those of a dead process first: {end}");
            Self::check_count(reply, all.len());
        } else {
            assert_eq!(all, &results);
        }
        assert_eq!(self.now.retrying, None, "announced attempts have their end: {end}");
        self.now.in_turn = false;
    }

    /// The reply that the end of the open turn names.
    fn reply_of_turn(&self) -> &'a Value {
        let end = self.lines[self.at..].iter().find(|line| line["type"] == "turn_end");
        &end.expect("a turn has its end (G4)")["message"]
    }

    fn check_count(reply: &Value, results: usize) {
        let failed = reply["stopReason"] == "error" || reply["stopReason"] == "aborted";
        let calls = if failed { 0 } else { blocks_of(reply, "toolCall").count() };
        assert_eq!(results, calls, "every call has its result: {reply}");
    }

    /// The role of a message that starts here.
    fn next_role(&mut self) -> Option<&'a str> {
        let starts = self.peek() == "message_start";
        starts.then(|| self.lines[self.at]["message"]["role"].as_str().unwrap())
    }

    /// A message that is complete from its start.
    fn pair(&mut self) -> &'a Value {
        let message = &self.expect("message_start")["message"];
        let end = self.expect("message_end");
        assert_eq!(&end["message"], message, "a complete message does not change");
        assert!(end["entryId"].is_string(), "a complete message is kept, if only in memory: {end}");
        message
    }

    fn reply(&mut self) -> &'a Value {
        let start = &self.expect("message_start")["message"];
        assert_eq!(start["stopReason"], "pending");
        assert_eq!(start["content"], Value::Array(Vec::new()));
        let mut blocks = BTreeMap::new();
        while self.peek() == "message_update" {
            let update = &self.expect("message_update")["assistantMessageEvent"];
            Block::apply(&mut blocks, update);
        }
        let message = &self.expect("message_end")["message"];
        for (index, block) in &blocks {
            block.check(message, *index);
        }
        assert_ne!(message["stopReason"], "pending");
        self.count(message);
        message
    }

    fn count(&mut self, message: &Value) {
        let totals = &mut self.totals;
        totals.stop_reason = message["stopReason"].clone();
        totals.input += message["usage"]["input"].as_u64().unwrap();
        totals.output += message["usage"]["output"].as_u64().unwrap();
        let text = text_of(message);
        if !text.is_empty() {
            totals.text = text;
        }
    }

    /// Start, updates, end and the result's pair of every call; pairs in the order of the calls (G5). Where a dead
    /// process `began`, the first results may be there, and others have no lines but their pairs.
    fn tools(&mut self, reply: &Value, began: bool) -> Vec<Value> {
        let calls: Vec<&Value> = blocks_of(reply, "toolCall").collect();
        let mut placed = 0;
        let mut running: Vec<&str> = Vec::new();
        let mut ended: BTreeMap<&str, &Value> = BTreeMap::new();
        let mut results: Vec<Value> = Vec::new();
        loop {
            match self.peek() {
                "tool_execution_start" => {
                    let line = self.expect("tool_execution_start");
                    let id = line["toolCallId"].as_str().unwrap();
                    let call = calls.iter().find(|call| call["id"] == id).expect("a call of this reply");
                    assert_eq!(line["toolName"], call["name"]);
                    assert_eq!(line["args"], call["arguments"], "the model's own arguments");
                    assert!(!running.contains(&id) && !ended.contains_key(id), "a call starts once: {line}");
                    running.push(id);
                    self.totals.calls += 1;
                }
                "tool_execution_update" => {
                    let line = self.expect("tool_execution_update");
                    assert!(running.contains(&line["toolCallId"].as_str().unwrap()), "an update of a running call");
                }
                "tool_execution_end" => {
                    let line = self.expect("tool_execution_end");
                    let id = line["toolCallId"].as_str().unwrap();
                    let at = running.iter().position(|known| *known == id).expect("a running call ends");
                    running.remove(at);
                    ended.insert(id, line);
                    let refused = line["result"]["details"]["error"]["code"] == "denied";
                    assert_eq!(self.peek() == "permission_denied", refused, "{line}");
                    if refused {
                        let denied = self.expect("permission_denied");
                        assert_eq!(denied["toolCallId"], id);
                        let keys = ["toolCallId", "toolName", "rule"];
                        let short = keys.map(|key| (key.to_owned(), denied[key].clone())).into_iter().collect();
                        self.totals.denials.push(Value::Object(short));
                    }
                }
                "message_start" => {
                    let again = self.lines[self.at].get("recovery").is_some();
                    let result = self.pair();
                    assert_eq!(result["role"], "toolResult");
                    if began && results.is_empty() {
                        let first = calls.iter().position(|call| call["id"] == result["toolCallId"]);
                        placed = first.expect("a call of this reply");
                    }
                    let call = calls.get(placed).expect("one result per call");
                    assert_eq!(result["toolCallId"], call["id"], "results in the order of the calls (G5)");
                    placed += 1;
                    match ended.get(call["id"].as_str().unwrap()) {
                        Some(end) => {
                            assert_eq!(result["content"], end["result"]["content"]);
                            assert_eq!(result["isError"], end["isError"]);
                        }
                        None => assert!(began && again, "the result comes behind its end: {result}"),
                    }
                    results.push(result.clone());
                }
                _ => break,
            }
        }
        assert!(running.is_empty(), "every start has its end (G4): {running:?}");
        if !began {
            Self::check_count(reply, results.len());
        }
        results
    }
}

fn blocks_of<'a>(message: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    message["content"].as_array().into_iter().flatten().filter(move |block| block["type"] == kind)
}

fn text_of(message: &Value) -> String {
    blocks_of(message, "text").map(|block| block["text"].as_str().unwrap()).collect()
}

/// A content block as its updates tell it.
struct Block {
    kind: String,
    deltas: String,
    end: Option<Value>,
}

impl Block {
    fn apply(blocks: &mut BTreeMap<usize, Self>, update: &Value) {
        let index = usize::try_from(update["contentIndex"].as_u64().unwrap()).unwrap();
        let (kind, phase) = update["type"].as_str().unwrap().split_once('_').unwrap();
        if phase == "start" {
            let block = Self { kind: kind.to_owned(), deltas: String::new(), end: None };
            assert!(blocks.insert(index, block).is_none(), "a block starts once: {update}");
            return;
        }
        let block = blocks.get_mut(&index).unwrap_or_else(|| panic!("a block starts before {update}"));
        assert_eq!(block.kind, kind, "{update}");
        assert!(block.end.is_none(), "nothing follows the end of a block: {update}");
        match phase {
            "delta" => block.deltas.push_str(update["delta"].as_str().unwrap()),
            "end" => block.end = Some(update.clone()),
            _ => panic!("{update}"),
        }
    }

    /// What was streamed is what the message holds (G7).
    fn check(&self, message: &Value, index: usize) {
        let block = &message["content"][index];
        match (self.kind.as_str(), &self.end) {
            ("text", None) => assert_eq!(block["text"], self.deltas),
            ("thinking", None) => assert_eq!(block["thinking"], self.deltas),
            ("text", Some(end)) => {
                assert_eq!(end["content"], self.deltas, "deltas add up to the text");
                assert_eq!(block["text"], end["content"]);
            }
            ("thinking", Some(end)) => assert_eq!(block["thinking"], end["content"]),
            ("toolcall", Some(end)) => {
                assert_eq!(&end["toolCall"], block);
                assert_eq!(block["type"], "toolCall");
            }
            ("toolcall", None) => {}
            other => panic!("{other:?}"),
        }
    }
}
