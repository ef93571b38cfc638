//! SIGKILL at random moments, `-c`, SIGKILL again, until the run is finished: nothing that was stored is lost or
//! changed, no call runs twice, and no server ever refuses a request.
//!
//! The ordinary count takes seconds. The campaign, on the release build:
//!
//! ```text
//! cargo build --release
//! PIRN_TEST_BIN=$PWD/target/release/pirn PIRN_KILLS=200 cargo test --test it cli::kills -- --nocapture
//! ```
//!
//! It prints one line of figures. `PIRN_KILLS_SEED` takes the seed of that line: the same runs and the same moments, as
//! far as the machine is as fast.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::kept;
use super::{Output, Pirn, Place, Running};
use crate::support::chat::{chunk, usage_chunk};
use crate::support::request::Recorded;
use crate::support::server::{Reply, Server, now};

/// Kills without `PIRN_KILLS`.
const KILLS: u64 = 12;
/// Calls of one run.
const CALLS: usize = 4;
/// Processes that one run may take.
const PROCESSES_MAX: usize = 200;
/// One process in so many is left alone.
const SPARED_IN: u64 = 10;
/// When a process is killed, counted from its start.
const EARLIEST_MS: u64 = 2;
const LATEST_MS: u64 = 450;
/// The later end is this part of a whole run where that is less, so that most kills meet a process that is at work.
const LATEST_PERCENT: u64 = 70;
/// Deltas of a reply, and of the arguments of one call.
const DELTAS: usize = 16;
const LOG: &str = "log";

/// A small seeded generator (splitmix).
struct Random(u64);

impl Random {
    /// A number from `low` to `high`, both included.
    fn within(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (mixed ^ (mixed >> 31)) % (high - low + 1)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let last = u64::try_from(choices.len() - 1).unwrap();
        choices[usize::try_from(self.within(0, last)).unwrap()]
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

/// One run: the sizes of its batches of calls, and how everything in it goes.
#[derive(Clone, Copy, Debug)]
struct Plan {
    batches: &'static [usize],
    execution: &'static str,
    durability: &'static str,
    gap: Duration,
    call_ms: u64,
}

impl Plan {
    fn random(random: &mut Random) -> Self {
        Self {
            batches: random.one_of(&[&[4], &[1, 1, 1, 1], &[2, 2], &[1, 3]]),
            execution: random.one_of(&["parallel", "sequential"]),
            durability: random.one_of(&["normal", "normal", "full", "none"]),
            gap: Duration::from_millis(random.within(0, 3)),
            call_ms: random.within(0, 50),
        }
    }

    /// The reply to a request: the next batch of calls, or the end.
    fn reply(&self, request: &Recorded) -> Reply {
        let body = request.json();
        let done = body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "assistant");
        let at = done.count();
        let mut reply = Reply::stream().event(&chunk(&json!({"role": "assistant", "content": ""}), None));
        for word in 0..DELTAS {
            reply = reply.event(&chunk(&json!({"content": format!("{word} ")}), None)).pause(self.gap);
        }
        let Some(size) = self.batches.get(at) else {
            return reply.event(&chunk(&json!({}), Some("stop"))).event(&usage_chunk()).send("data: [DONE]\n\n");
        };
        let before: usize = self.batches[..at].iter().sum();
        for index in 0..*size {
            // Not the same call again, which is a limit of its own.
            let (ordinal, name) = (request.ordinal, before + index);
            let sleep = format!("0.{:03}", self.call_ms);
            let arguments =
                json!({"command": format!("echo $PIRN_CALL_ID >> {LOG}; sleep {sleep}; echo ran {name}")}).to_string();
            let start = json!({"index": index, "id": format!("call_{ordinal}_{index}"), "type": "function",
                "function": {"name": "bash", "arguments": ""}});
            reply = reply.event(&chunk(&json!({"tool_calls": [start]}), None));
            for part in arguments.as_bytes().chunks(arguments.len() / 3) {
                let part = json!({"index": index, "function": {"arguments": String::from_utf8_lossy(part)}});
                reply = reply.event(&chunk(&json!({"tool_calls": [part]}), None)).pause(self.gap);
            }
        }
        reply.event(&chunk(&json!({}), Some("tool_calls"))).event(&usage_chunk()).send("data: [DONE]\n\n")
    }

    fn server(self) -> Server {
        Server::start([]).then_always(Reply::with(move |request| self.reply(request)))
    }

    fn start(&self, server: &Server, place: &Arc<Place>, args: &[&str]) -> Running {
        let sets = [
            format!("tools.execution=\"{}\"", self.execution),
            format!("session.durability=\"{}\"", self.durability),
            // However often it is killed in a reply.
            "recovery.max_interruptions=1000".to_owned(),
        ];
        let sets = sets.iter().flat_map(|set| ["--set", set.as_str()]);
        let call = ["--json", "-t", "bash"].into_iter().chain(sets).chain(args.iter().copied());
        Pirn::of_server(server, call).at(place).spawn()
    }
}

/// What is in the files of a place: entries as they were written, by their ids. A kill may have torn the last line.
fn stored(place: &Place) -> BTreeMap<String, Value> {
    let texts = place.sessions().into_iter().map(|file| std::fs::read(file).unwrap());
    let mut found = BTreeMap::new();
    for text in texts {
        for line in text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok()) {
            let writes = line["w"].as_array().into_iter().flatten();
            found.extend(
                writes
                    .filter(|write| write["kind"] == "entry")
                    .map(|write| (write["id"].as_str().unwrap().to_owned(), write.clone())),
            );
        }
    }
    found
}

/// The ids that ran, in the order in which they did.
fn effects(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.dir().join(LOG)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Figures of all runs.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    runs: u64,
    processes: u64,
    effects: usize,
    /// Calls that a kill met at work.
    interrupted: usize,
    /// Calls that ran more than once.
    double: usize,
    /// Entries that were stored, or told, and then were not there, or not the same.
    lost: usize,
    /// Runs that did not come to a good end.
    unfinished: usize,
    /// Requests that a server would refuse, or that do not go on from the one before.
    refused: usize,
    /// Of each of those.
    faults: Vec<String>,
}

impl Tally {
    fn fault(&mut self, count: usize, text: impl FnOnce() -> String) -> usize {
        if count > 0 {
            self.faults.push(text());
        }
        count
    }

    /// Kills a process at a moment of the first `within_ms`. Gives `None` when it had ended before.
    fn kill(&mut self, random: &mut Random, mut running: Running, within_ms: u64) -> (Output, bool) {
        let moment = now() + Duration::from_millis(random.within(EARLIEST_MS, within_ms));
        while now() < moment && running.is_running() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if running.is_running() {
            running.signal(Signal::KILL);
        }
        let output = running.wait();
        let killed = output.signal() == Some(Signal::KILL.as_raw());
        self.kills += u64::from(killed);
        (output, killed)
    }

    /// One run from its first process to its last.
    fn run(&mut self, random: &mut Random, kills: u64, within_ms: u64) {
        self.runs += 1;
        let plan = Plan::random(random);
        let (server, place, name) = (plan.server(), Place::new(), format!("run {} {plan:?}", self.runs));
        let mut seen = BTreeMap::new();
        let mut is_finished = false;
        for process in 0..PROCESSES_MAX {
            let begun = seen.values().any(|entry: &Value| entry["message"]["role"] == "user");
            let running = plan.start(&server, &place, if begun { &["-c"] } else { &["-s", "killed", "go"] });
            self.processes += 1;
            let spared = self.kills >= kills || random.within(1, SPARED_IN) == 1;
            let (output, killed) = if spared { (running.wait(), false) } else { self.kill(random, running, within_ms) };
            self.compare(&format!("{name}, process {process}"), &mut seen, stored(&place), &output);
            if killed {
                continue;
            }
            is_finished = output.code() == 0 && output.result()["ok"] == true;
            if !is_finished {
                self.faults.push(format!("{name}, process {process}: {output:?}"));
            }
            break;
        }
        self.unfinished += self.fault(usize::from(!is_finished), || format!("{name}: it never came to a good end"));
        if is_finished {
            self.check_end(&name, &plan, &server, &place);
        }
    }

    /// What was there is there, and what was told is.
    fn compare(
        &mut self,
        name: &str,
        seen: &mut BTreeMap<String, Value>,
        found: BTreeMap<String, Value>,
        output: &Output,
    ) {
        let lost: Vec<&String> =
            seen.iter().filter(|(id, entry)| found.get(*id) != Some(entry)).map(|(id, _)| id).collect();
        // A kill may cut the last line that was told.
        let told = output.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let untrue: Vec<Value> = told
            .filter(|line| line["type"] == "message_end")
            .filter(|line| {
                let entry = line["entryId"].as_str().and_then(|id| found.get(id));
                entry.is_none_or(|entry| entry["message"] != line["message"])
            })
            .collect();
        let count = lost.len() + untrue.len();
        self.lost += self.fault(count, || format!("{name}: lost {lost:?}, told {untrue:?}"));
        *seen = found;
    }

    /// What holds of a run that is finished.
    fn check_end(&mut self, name: &str, plan: &Plan, server: &Server, place: &Arc<Place>) {
        let file = kept::only(place);
        let bytes = std::fs::read(&file).unwrap();
        let requests = server.requests().len();
        let again = plan.start(server, place, &["-c"]).wait();
        assert_eq!((again.code(), again.stderr.contains("already completed")), (0, true), "{name}: {again:?}");
        assert!(std::fs::read(&file).unwrap() == bytes, "{name}: a finished run is only read");
        let mut refused = server.violations();
        refused.extend((server.requests().len() > requests).then(|| "a request behind the end".to_owned()));
        refused.extend(conversation_faults(&server.bodies()));
        self.refused += self.fault(refused.len(), || format!("{name}: {refused:?}"));

        let ran = effects(place);
        let once: BTreeSet<&String> = ran.iter().collect();
        self.effects += ran.len();
        self.double += self.fault(ran.len() - once.len(), || format!("{name}: ran twice: {ran:?}"));
        self.check_results(name, &file, &once);
    }

    /// Every call has one result, which is that of its run: what says it ran did, what did has a result.
    fn check_results(&mut self, name: &str, file: &Path, ran: &BTreeSet<&String>) {
        let entries = kept::entries(file);
        let results: Vec<(&str, bool)> = entries
            .iter()
            .filter(|entry| entry["message"]["role"] == "toolResult")
            .map(|entry| (entry["id"].as_str().unwrap(), entry["message"]["isError"] == false))
            .collect();
        self.interrupted += results.iter().filter(|(_, good)| !good).count();
        let known = |id: &&&String| results.iter().any(|(result, _)| *result == id.as_str());
        let unheard = ran.iter().filter(|id| !known(id)).count();
        let invented = results.iter().filter(|(id, good)| *good && !ran.iter().any(|known| known == id)).count();
        let missing = CALLS.abs_diff(results.len());
        self.lost += self.fault(unheard + invented + missing, || {
            format!(
                "{name}: {unheard} effects without a result, {invented} results without an effect: {results:?} {ran:?}"
            )
        });
    }

    fn line(&self, seed: u64, elapsed: Duration) -> String {
        format!(
            "kills: {} kills, {} runs, {} processes, {} effects, {} interrupted, {} double, {} lost, {} unfinished, {} refused, \
             {:.1} s, seed {seed}",
            self.kills,
            self.runs,
            self.processes,
            self.effects,
            self.interrupted,
            self.double,
            self.lost,
            self.unfinished,
            self.refused,
            elapsed.as_secs_f64(),
        )
    }
}

/// Where a conversation is not one prompt and calls with their results, or a request does not go on from the one before.
fn conversation_faults(bodies: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let mut before: Vec<&Value> = Vec::new();
    for (at, body) in bodies.iter().enumerate() {
        let said: Vec<&Value> =
            body["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system").collect();
        let prompts = said.iter().filter(|message| message["role"] == "user").count();
        if prompts != 1 || said.first().is_none_or(|message| message["role"] != "user") {
            found.push(format!("request {}: {prompts} prompts", at + 1));
        }
        let calls = |message: &&&Value| message["role"] != "assistant" || message["tool_calls"].is_array();
        if said.len() != said.iter().filter(calls).count() {
            found.push(format!("request {}: something was asked behind the answer", at + 1));
        }
        if !said.starts_with(&before) {
            found.push(format!("request {} does not begin with the one before", at + 1));
        }
        before = said;
    }
    found
}

/// How long a run takes that nobody kills, in milliseconds.
fn whole_run() -> u64 {
    let plan = Plan {
        batches: &[2, 2],
        execution: "parallel",
        durability: "normal",
        gap: Duration::from_millis(1),
        call_ms: 25,
    };
    let (server, place) = (plan.server(), Place::new());
    let output = plan.start(&server, &place, &["go"]).wait();
    assert_eq!((output.code(), effects(&place).len()), (0, CALLS), "{output:?}");
    server.assert_clean();
    output.elapsed.as_millis().try_into().unwrap()
}

#[test]
fn a_run_that_is_killed_anywhere_again_and_again_is_finished_and_nothing_happens_twice() {
    let kills = number("PIRN_KILLS").unwrap_or(KILLS);
    let seed = number("PIRN_KILLS_SEED").unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(since.subsec_nanos())
    });
    // Told now, for what ends the test before its last line.
    println!("seed {seed}");
    let started = now();
    let mut random = Random(seed);
    let within_ms = (whole_run() * LATEST_PERCENT / 100).clamp(EARLIEST_MS, LATEST_MS);
    let mut tally = Tally::default();
    while tally.kills < kills && tally.faults.len() < 10 {
        tally.run(&mut random, kills, within_ms);
    }
    println!("{}", tally.line(seed, started.elapsed()));
    assert!(tally.faults.is_empty(), "{}\n{}", tally.line(seed, started.elapsed()), tally.faults.join("\n"));
}
