//! A parser for the grammar of a JSON stream (module docs of `print::jsonl`). It panics at the first line that breaks a
//! rule.

use std::collections::BTreeMap;

use serde_json::Value;

use super::schema;

/// Fields of each line behind `type`, `seq` and `ts`, in order; `?` marks one that may be missing.
pub(crate) const FIELDS: &[(&str, &str)] = &[
    (
        "session",
        "version pirn id name? timestamp cwd file parent? resumed recovered leafId model thinking tools limits \
         configFiles",
    ),
    ("agent_start", "runId"),
    ("turn_start", "turn"),
    ("message_start", "message"),
    ("message_update", "assistantMessageEvent usage?"),
    ("message_end", "message entryId"),
    ("tool_execution_start", "toolCallId toolName args effectiveArgs?"),
    ("tool_execution_update", "toolCallId toolName partialResult"),
    ("tool_execution_end", "toolCallId toolName result isError terminate? durationMs?"),
    ("permission_denied", "toolCallId toolName rule reason"),
    ("turn_end", "turn message toolResults"),
    ("agent_end", "messages"),
    ("queue_update", "steering followUp"),
    ("warning", "code message"),
    (
        "result",
        "ok exitCode stopReason reason text structured error sessionId sessionFile leafId resumable model turns \
         requests toolCalls denials usage costUsd usageByModel durationMs apiDurationMs firstTokenMs pendingFollowUps",
    ),
];
/// Lines that may stand between any two others.
const ANYWHERE: [&str; 2] = ["queue_update", "warning"];

/// Checks a whole stream and gives its lines.
pub(crate) fn check(text: &str) -> Vec<Value> {
    let lines = framed(text);
    schema::check(&lines);
    // Behind a fault of the session's file nothing that began is ended.
    let before_last = lines.iter().rev().nth(1);
    if before_last.is_some_and(|line| line["type"] == "warning" && line["code"] == "storage") {
        assert_eq!(lines[lines.len() - 1]["error"]["kind"], "storage");
        return lines;
    }
    let mut parser = Parser { lines: &lines, at: 0, totals: Totals::default() };
    parser.stream();
    lines
}

/// One object per line, every field in its place (stream guarantees G3, G9).
fn framed(text: &str) -> Vec<Value> {
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
    turns: u64,
    calls: u64,
    input: u64,
    output: u64,
    text: String,
    stop_reason: Value,
    denials: Vec<Value>,
}

struct Parser<'a> {
    lines: &'a [Value],
    at: usize,
    totals: Totals,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> &'a str {
        while let Some(line) = self.lines.get(self.at) {
            let kind = line["type"].as_str().unwrap();
            if !ANYWHERE.contains(&kind) {
                return kind;
            }
            self.at += 1;
        }
        "the end"
    }

    fn expect(&mut self, kind: &str) -> &'a Value {
        let found = self.peek();
        assert_eq!(found, kind, "at line {} of\n{}", self.at, self.outline());
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
            assert_eq!(result["turns"], totals.turns);
            assert_eq!(result["toolCalls"], totals.calls);
            assert_eq!(result["usage"]["input"], totals.input);
            assert_eq!(result["usage"]["output"], totals.output);
            // Without a run, what an earlier one said is told again.
            if totals.runs == 0 {
                return;
            }
            assert_eq!(result["text"], totals.text);
            assert_eq!(result["denials"], Value::Array(totals.denials.clone()));
            // A signal that came together with a failure has the verdict.
            if result["reason"] != "interrupted" || totals.stop_reason != "error" {
                assert_eq!(result["stopReason"], totals.stop_reason);
            }
        }
    }

    /// `run := agent_start turn* agent_end`.
    fn run(&mut self) {
        self.expect("agent_start");
        self.totals.runs += 1;
        let mut messages = Vec::new();
        let mut number = 0;
        while self.peek() == "turn_start" {
            number += 1;
            self.turn(number, &mut messages);
        }
        let end = self.expect("agent_end");
        assert_eq!(end["messages"], Value::Array(messages), "the messages of the run, in order");
    }

    fn turn(&mut self, number: u64, messages: &mut Vec<Value>) {
        assert_eq!(self.expect("turn_start")["turn"], number);
        self.totals.turns += 1;
        while self.next_role() == Some("user") {
            messages.push(self.pair().clone());
        }
        let mut reply = &Value::Null;
        while self.next_role() == Some("assistant") {
            reply = self.reply();
            messages.push(reply.clone());
        }
        let results = self.tools(reply);
        messages.extend(results.iter().cloned());
        let end = self.expect("turn_end");
        assert_eq!(end["turn"], number);
        assert_eq!(&end["message"], reply, "the last reply of the turn");
        assert_eq!(end["toolResults"], Value::Array(results));
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
        let texts = blocks_of(message, "text").map(|block| block["text"].as_str().unwrap());
        let text: String = texts.collect();
        if !text.is_empty() {
            totals.text = text;
        }
    }

    /// Start, updates, end and the result's pair of every call; pairs in the order of the calls (G5).
    fn tools(&mut self, reply: &Value) -> Vec<Value> {
        let calls: Vec<&Value> = blocks_of(reply, "toolCall").collect();
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
                    let result = self.pair();
                    let call = calls.get(results.len()).expect("one result per call");
                    assert_eq!(result["role"], "toolResult");
                    assert_eq!(result["toolCallId"], call["id"], "results in the order of the calls (G5)");
                    let end = ended.get(call["id"].as_str().unwrap()).expect("the result comes behind its end");
                    assert_eq!(result["content"], end["result"]["content"]);
                    assert_eq!(result["isError"], end["isError"]);
                    results.push(result.clone());
                }
                _ => break,
            }
        }
        assert!(running.is_empty(), "every start has its end (G4): {running:?}");
        let failed = reply["stopReason"] == "error" || reply["stopReason"] == "aborted";
        assert_eq!(results.len(), if failed { 0 } else { calls.len() }, "every call has its result: {reply}");
        results
    }
}

fn blocks_of<'a>(message: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    message["content"].as_array().into_iter().flatten().filter(move |block| block["type"] == kind)
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
