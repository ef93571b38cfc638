//! What every store does. Each check runs over the store in memory and over the file, which is then opened again and
//! must answer the same.

use std::sync::Arc;

use async_trait::async_trait;
use pirn::model::{AssistantHead, AssistantMessage, CustomMessage, EntryBody, Message, StopReason, Usage, Write};
use pirn::port::{BranchScan, EntryScan, LIST_LIMIT_MAX, ListPage, Order, Store, StoreError};
use pirn::session::{jsonl, memory};
use pirn::testing::RuntimeClock;
use serde_json::{Map, Value, json};

use super::{Place, append, clock, delete_list, entry, id, message, options, said, set, snapshot, unlocked, usage_row};

/// Runs a check over each store.
async fn each(check: impl AsyncFn(&dyn Store)) {
    check(&memory(clock())).await;
    let place = Place::new();
    let store = place.create(options()).await;
    check(&store).await;
    let before = snapshot(&store);
    drop(store);
    let again = place.open(options()).await.unwrap();
    assert_eq!(snapshot(&again), before, "replay of the file is the state (I11)");
    assert_eq!(snapshot(&jsonl::read(&place.file()).unwrap()), before, "and so it is for a reader");
}

fn ids(entries: &[pirn::model::Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

#[tokio::test]
async fn a_transaction_gets_ascending_places_and_one_time() {
    each(async |store| {
        let first = store.commit(vec![message("a", None), set("x.a", "k", json!(1))]).await.unwrap();
        assert_eq!((first.first_seq, &first.seqs[..]), (1, &[1, 2][..]));
        let second = store.commit(vec![usage_row("u", 5, 0.5), message("b", Some("a"))]).await.unwrap();
        assert_eq!((second.first_seq, &second.seqs[..]), (3, &[3, 4][..]));
        assert!(second.timestamp >= first.timestamp);
        assert_eq!((second.stats.message_count, second.stats.usage.total_tokens), (2, 6));
        assert_eq!(store.stats(), second.stats);
        let found = store.entries(&[id("b"), id("nobody"), id("u"), id("a"), id("b")]).unwrap();
        let seen: Vec<_> = found.iter().map(|entry| entry.as_ref().map(|entry| (entry.seq, entry.timestamp))).collect();
        let (a, b) = (Some((1, first.timestamp)), Some((4, second.timestamp)));
        assert_eq!(seen, [b, None, None, a, b], "a usage row is no entry");
        store.sync().await.unwrap();
    })
    .await;
}

/// Time that was set back.
struct Backwards(std::sync::atomic::AtomicU64);

#[async_trait]
impl pirn::port::Clock for Backwards {
    fn now_ms(&self) -> u64 {
        self.0.fetch_sub(10, std::sync::atomic::Ordering::Relaxed)
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }

    async fn sleep(&self, _: std::time::Duration) {}
}

#[tokio::test]
async fn time_does_not_go_back_although_the_clock_does() {
    let backwards = || Arc::new(Backwards(1_000.into()));
    let place = Place::new();
    let file = place.create(pirn::session::jsonl::Options { clock: backwards(), ..options() }).await;
    for store in [&memory(backwards()) as &dyn Store, &file] {
        let mut last = 0;
        for name in ["a", "b", "c"] {
            let at = store.commit(vec![message(name, None)]).await.unwrap().timestamp;
            assert!(at >= last && at > 900, "{at} after {last}");
            last = at;
        }
    }
    drop(file);
    let again = place.open(pirn::session::jsonl::Options { clock: backwards(), ..options() }).await.unwrap();
    assert!(again.commit(vec![message("d", None)]).await.unwrap().timestamp >= 990);
}

#[tokio::test]
async fn an_empty_transaction_writes_nothing() {
    each(async |store| {
        store.commit(vec![message("a", None)]).await.unwrap();
        let none = store.commit(Vec::new()).await.unwrap();
        assert_eq!((none.first_seq, none.seqs.len(), none.stats.message_count), (2, 0, 1));
        assert_eq!(store.commit(vec![message("b", None)]).await.unwrap().first_seq, 2);
    })
    .await;
}

#[tokio::test]
async fn a_parent_may_come_earlier_in_the_same_transaction() {
    each(async |store| {
        store.commit(vec![message("a", None), message("b", Some("a")), message("c", Some("b"))]).await.unwrap();
        let scan = BranchScan { start: Some(id("c")), ..BranchScan::default() };
        assert_eq!(ids(&store.branch(&scan).unwrap()), ["c", "b", "a"]);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_breaks_a_rule_stores_nothing_and_ends_the_store() {
    let pending = || {
        let reply = AssistantMessage::pending(&AssistantHead::default());
        EntryBody::Message { message: Arc::new(Message::Assistant(reply)), terminate: false }
    };
    let no_number = || {
        let mut reply = AssistantMessage::pending(&AssistantHead::default());
        reply.stop_reason = StopReason::Stop;
        reply.usage.cost.total = f64::NAN;
        EntryBody::Message { message: Arc::new(Message::Assistant(reply)), terminate: false }
    };
    let other = |value: Value| {
        let Value::Object(map) = value else { panic!("an object") };
        EntryBody::Other(map)
    };
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    let table: Vec<(&str, Vec<Write>)> = vec![
        ("is used already", vec![message("a", None)]),
        ("is used already", vec![message("n", None), message("n", None)]),
        ("is used already", vec![usage_row("a", 1, 0.0)]),
        ("is used already", vec![message("u", None)]),
        ("is used already", vec![message("n", None), usage_row("n", 1, 0.0)]),
        ("parent nobody of entry n does not exist", vec![message("n", Some("nobody"))]),
        ("parent m of entry n does not exist", vec![message("n", Some("m")), message("m", None)]),
        ("parent n of entry n does not exist", vec![message("n", Some("n"))]),
        ("parent u of entry n does not exist", vec![message("n", Some("u"))]),
        ("parent v of entry n does not exist", vec![usage_row("v", 1, 0.0), message("n", Some("v"))]),
        ("has not ended", vec![entry("n", None, pending())]),
        ("a cost is no number", vec![entry("n", None, no_number())]),
        ("a cost is no number", vec![usage_row("n", 1, f64::INFINITY)]),
        ("has no id", vec![message("", None)]),
        ("has no id", vec![usage_row("", 1, 0.0)]),
        ("has no type", vec![entry("n", None, other(json!({"a": 1})))]),
        ("has no type", vec![entry("n", None, other(json!({"type": 1})))]),
        ("a known type", vec![entry("n", None, other(json!({"type": "message"})))]),
        ("a field seq of its own", vec![entry("n", None, other(json!({"type": "t", "seq": 1})))]),
        ("no role of a custom message", {
            let custom = Message::Custom(CustomMessage(Map::new()));
            vec![entry("n", None, EntryBody::Message { message: Arc::new(custom), terminate: false })]
        }),
        ("nested more than 256 levels deep", vec![set("x.a", "k", deep)]),
    ];
    for (reason, writes) in table {
        let writes = &writes;
        each(async |store| {
            store.commit(vec![message("a", None), usage_row("u", 1, 0.0)]).await.unwrap();
            let before = snapshot(store);
            // What stands before the wrong write is not stored either.
            let mut all = vec![set("x.a", "first", json!(1))];
            all.extend(writes.clone());
            let error = store.commit(all).await.unwrap_err();
            assert!(matches!(&error, StoreError::Invalid(text) if text.contains(reason)), "{error}, not {reason}");
            assert_eq!(snapshot(store), before);
            let again = store.commit(vec![message("z", None)]).await.unwrap_err();
            assert!(matches!(&again, StoreError::Dead(text) if text.contains(reason)), "{again}");
            assert!(matches!(store.sync().await, Err(StoreError::Dead(_))));
            assert_eq!(snapshot(store), before);
        })
        .await;
    }
}

#[tokio::test]
async fn null_is_a_value_and_what_is_deleted_is_none() {
    each(async |store| {
        assert_eq!(store.value("x.a", "k").unwrap(), None);
        store.commit(vec![set("x.a", "k", Value::Null)]).await.unwrap();
        assert_eq!(store.value("x.a", "k").unwrap(), Some(Value::Null));
        // In one transaction the last write counts.
        store.commit(vec![set("x.a", "k", json!(1)), set("x.a", "k", json!({"b": 1, "a": 2}))]).await.unwrap();
        assert_eq!(store.value("x.a", "k").unwrap().unwrap().to_string(), r#"{"b":1,"a":2}"#, "keys keep their order");
        assert_eq!(store.value("x.b", "k").unwrap(), None);
        store.commit(vec![Write::delete("x.a", "k"), Write::delete("x.a", "never")]).await.unwrap();
        assert_eq!(store.value("x.a", "k").unwrap(), None);
        store
            .commit(vec![set("x.a", "k", json!(2)), Write::delete("x.a", "k"), set("x.a", "", json!(3))])
            .await
            .unwrap();
        assert_eq!(store.values("x.a", "").unwrap(), [(String::new(), json!(3))]);
    })
    .await;
}

#[tokio::test]
async fn registers_come_in_the_order_of_code_points() {
    each(async |store| {
        let keys = ["b", "a", "a/2", "a/10", "A", "\u{e9}", "\u{1f600}", "\u{ffff}", "a/"];
        store.commit(keys.iter().map(|key| set("x.a", key, json!(key))).collect()).await.unwrap();
        store.commit(vec![set("x.b", "a/9", json!(0)), append("x.a", "a/list", json!(0))]).await.unwrap();
        let found = |prefix| store.values("x.a", prefix).unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(found(""), ["A", "a", "a/", "a/10", "a/2", "b", "\u{e9}", "\u{ffff}", "\u{1f600}"]);
        assert_eq!(found("a/"), ["a/", "a/10", "a/2"]);
        assert_eq!(found("c"), [""; 0]);
        assert_eq!(store.values("x", "").unwrap(), [], "a namespace is whole or not meant");
    })
    .await;
}

#[tokio::test]
async fn a_list_grows_is_read_in_pages_and_goes_whole() {
    each(async |store| {
        let page = |cursor, limit| store.list("x.a", "k", cursor, limit).unwrap();
        assert_eq!(page(0, 10), ListPage::default());
        store.commit((0..5).map(|n| append("x.a", "k", json!(n))).collect()).await.unwrap();
        store.commit(vec![append("x.a", "k", json!(null)), append("x.a", "k2", json!("other"))]).await.unwrap();
        assert_eq!(page(0, 4), ListPage { values: vec![json!(0), json!(1), json!(2), json!(3)], next: Some(4) });
        assert_eq!(page(4, 4), ListPage { values: vec![json!(4), json!(null)], next: None });
        assert_eq!(page(6, 4), ListPage::default());
        assert_eq!(page(u64::MAX, 4), ListPage::default());
        assert_eq!(page(2, 0), ListPage { values: vec![], next: Some(2) });
        store
            .commit(vec![append("x.a", "k", json!(5)), delete_list("x.a", "k"), delete_list("x.a", "none")])
            .await
            .unwrap();
        assert_eq!(page(0, 4), ListPage::default());
        store.commit(vec![append("x.a", "k", json!(6))]).await.unwrap();
        assert_eq!(page(0, 4), ListPage { values: vec![json!(6)], next: None });
        assert_eq!(store.value("x.a", "k").unwrap(), None, "a list is no register");
    })
    .await;
}

#[tokio::test]
async fn a_page_of_a_list_has_a_limit() {
    each(async |store| {
        let count = LIST_LIMIT_MAX + 1;
        store.commit((0..count).map(|n| append("x.a", "k", json!(n))).collect()).await.unwrap();
        let page = store.list("x.a", "k", 0, usize::MAX).unwrap();
        assert_eq!((page.values.len(), page.next), (LIST_LIMIT_MAX, Some(LIST_LIMIT_MAX as u64)));
        assert_eq!(store.list("x.a", "k", page.next.unwrap(), 1).unwrap().next, None);
    })
    .await;
}

/// `a ← b ← c(custom) ← d ← e(compaction) ← f`, and `b ← g`.
async fn tree(store: &dyn Store) {
    let custom = |word: &str| EntryBody::Custom { custom_type: word.into(), data: Some(Value::Null) };
    let Value::Object(compaction) =
        json!({"type": "compaction", "summary": "s", "retainedTail": [1.5, {"z": 1, "a": 2}]})
    else {
        panic!("an object")
    };
    store.commit(vec![message("a", None), message("b", Some("a"))]).await.unwrap();
    store.commit(vec![entry("c", Some("b"), custom("note")), message("g", Some("b"))]).await.unwrap();
    store.commit(vec![message("d", Some("c")), entry("e", Some("d"), EntryBody::Other(compaction))]).await.unwrap();
    store.commit(vec![message("f", Some("e"))]).await.unwrap();
}

#[tokio::test]
async fn a_branch_is_walked_ordered_stopped_filtered_and_cut_in_this_order() {
    let scan = || BranchScan { start: Some(id("f")), ..BranchScan::default() };
    let oldest = || BranchScan { order: Order::OldestFirst, ..scan() };
    let word = |word: &str| Some(word.to_owned());
    let table: Vec<(BranchScan, &[&str])> = vec![
        (BranchScan::default(), &[]),
        (scan(), &["f", "e", "d", "c", "b", "a"]),
        (oldest(), &["a", "b", "c", "d", "e", "f"]),
        (BranchScan { start: Some(id("g")), ..scan() }, &["g", "b", "a"]),
        (BranchScan { stop_at_type: word("compaction"), ..scan() }, &["f", "e"]),
        (BranchScan { stop_at_type: word("compaction"), ..oldest() }, &["a", "b", "c", "d", "e"]),
        (BranchScan { stop_at_type: word("nothing"), ..scan() }, &["f", "e", "d", "c", "b", "a"]),
        (BranchScan { stop_at_id: Some(id("c")), ..scan() }, &["f", "e", "d", "c"]),
        (BranchScan { stop_at_id: Some(id("g")), ..scan() }, &["f", "e", "d", "c", "b", "a"]),
        // Whichever comes first.
        (BranchScan { stop_at_id: Some(id("c")), stop_at_type: word("compaction"), ..scan() }, &["f", "e"]),
        (BranchScan { entry_type: word("message"), ..scan() }, &["f", "d", "b", "a"]),
        (BranchScan { entry_type: word("custom"), ..scan() }, &["c"]),
        (BranchScan { custom_type: word("note"), ..scan() }, &["c"]),
        (BranchScan { custom_type: word("other"), ..scan() }, &[]),
        // The stop counts before the filter.
        (BranchScan { stop_at_type: word("custom"), entry_type: word("message"), ..scan() }, &["f", "d"]),
        (BranchScan { cursor: Some(id("d")), ..scan() }, &["c", "b", "a"]),
        (BranchScan { cursor: Some(id("d")), ..oldest() }, &["e", "f"]),
        (BranchScan { cursor: Some(id("a")), ..scan() }, &[]),
        (BranchScan { cursor: Some(id("g")), ..scan() }, &[]),
        // The cursor need not be among what is wanted, and does not move the stop.
        (BranchScan { cursor: Some(id("e")), entry_type: word("message"), ..scan() }, &["d", "b", "a"]),
        (BranchScan { cursor: Some(id("d")), stop_at_id: Some(id("c")), ..scan() }, &["c"]),
        (BranchScan { limit: Some(2), ..scan() }, &["f", "e"]),
        (BranchScan { limit: Some(0), ..scan() }, &[]),
        (BranchScan { limit: Some(2), entry_type: word("message"), cursor: Some(id("f")), ..scan() }, &["d", "b"]),
    ];
    each(async |store| {
        tree(store).await;
        for (scan, expected) in &table {
            assert_eq!(ids(&store.branch(scan).unwrap()), *expected, "{scan:?}");
        }
        let nobody = BranchScan { start: Some(id("nobody")), ..scan() };
        assert_eq!(store.branch(&nobody).unwrap_err(), StoreError::NoEntry(id("nobody")));
    })
    .await;
}

#[tokio::test]
async fn all_entries_are_scanned_by_their_places() {
    let scan = || EntryScan { order: Order::OldestFirst, ..EntryScan::default() };
    let table: Vec<(EntryScan, &[&str])> = vec![
        (scan(), &["a", "b", "c", "g", "d", "e", "f"]),
        (EntryScan::default(), &["f", "e", "d", "g", "c", "b", "a"]),
        (EntryScan { entry_type: Some("custom".into()), ..scan() }, &["c"]),
        (EntryScan { from_seq: Some(3), ..scan() }, &["c", "g", "d", "e", "f"]),
        (EntryScan { to_seq: Some(3), ..scan() }, &["a", "b", "c"]),
        (EntryScan { from_seq: Some(2), to_seq: Some(4), ..scan() }, &["b", "c", "g"]),
        (EntryScan { from_seq: Some(5), to_seq: Some(4), ..scan() }, &[]),
        (EntryScan { from_seq: Some(99), ..scan() }, &[]),
        (EntryScan { limit: Some(2), ..scan() }, &["a", "b"]),
        (EntryScan { limit: Some(1), entry_type: Some("message".into()), ..EntryScan::default() }, &["f"]),
    ];
    each(async |store| {
        tree(store).await;
        for (scan, expected) in &table {
            assert_eq!(ids(&store.scan_entries(scan).unwrap()), *expected, "{scan:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_an_entry_says_is_read_as_it_was_written() {
    let line = |text: &str| -> Message { serde_json::from_str(text).unwrap() };
    let of = |message: Message, terminate| EntryBody::Message { message: Arc::new(message), terminate };
    let deep = (0..200).fold(json!({"z": 1, "a": [0.1, 2e-7, 1e300, u64::MAX, i64::MIN]}), |inner, _| json!([inner]));
    let Value::Object(unknown) =
        json!({"type": "later", "message": "text", "op": 5, "namespace": {}, "value": null, "usage": "x"})
    else {
        panic!("an object")
    };
    let bodies = [
        said("\"quotes\", \\, \n, \u{0}, \u{7f}, \u{2028}, 😀"),
        of(line(r#"{"role":"user","content":"plain","timestamp":1,"later":{"b":1,"a":null}}"#), false),
        of(
            line(
                r#"{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"z":2.718281828459045,"a":0.1}},{"type":"later","x":1}],"api":"a","provider":"p","model":"m","usage":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0.1,"output":0.2,"cacheRead":0,"cacheWrite":0,"total":0.30000000000000004}},"stopReason":"toolUse","timestamp":1}"#,
            ),
            false,
        ),
        of(
            line(
                r#"{"role":"toolResult","toolCallId":"c","toolName":"n","content":[],"details":{"k":[1]},"isError":true,"timestamp":1}"#,
            ),
            true,
        ),
        of(line(r#"{"role":"bashExecution","command":"ls","output":null}"#), false),
        EntryBody::Custom { custom_type: "pirn.edit".into(), data: None },
        EntryBody::Custom { custom_type: String::new(), data: Some(Value::Null) },
        EntryBody::Custom { custom_type: "deep".into(), data: Some(deep.clone()) },
        EntryBody::Other(unknown),
    ];
    each(async |store| {
        for (number, body) in bodies.iter().enumerate() {
            let name = format!("e{number}");
            let parent = number.checked_sub(1).map(|before| format!("e{before}"));
            store.commit(vec![entry(&name, parent.as_deref(), body.clone())]).await.unwrap();
            let found = store.entries(&[id(&name)]).unwrap().remove(0).unwrap();
            assert_eq!((found.id, found.parent_id), (id(&name), parent.as_deref().map(id)));
            assert_eq!(found.body, *body);
        }
        store.commit(vec![set("x.a", "deep", deep.clone())]).await.unwrap();
        assert_eq!(store.value("x.a", "deep").unwrap().unwrap().to_string(), deep.to_string());
    })
    .await;
}

#[tokio::test]
async fn sums_equal_the_ledger_i8() {
    each(async |store| {
        for n in 0..20_u32 {
            let stats =
                store.commit(vec![usage_row(&format!("u{n}"), u64::from(n), f64::from(n) / 10.0)]).await.unwrap().stats;
            let mut sum = Usage::default();
            let rows = store.usage().unwrap();
            for row in &rows {
                sum.add(&row.usage);
            }
            assert_eq!((stats.usage, rows.len()), (sum, n as usize + 1));
        }
    })
    .await;
}

#[tokio::test]
async fn commits_of_many_tasks_keep_the_order_they_were_asked_in() {
    each(async |store| {
        let names: Vec<String> = (0..50).map(|n| format!("n{n}")).collect();
        let commits = names.iter().map(|name| store.commit(vec![message(name, None)]));
        let seqs = futures_util::future::join_all(commits).await;
        let seqs: Vec<u64> = seqs.into_iter().map(|committed| committed.unwrap().first_seq).collect();
        assert_eq!(seqs, (1..=50).collect::<Vec<u64>>());
        let all = store.scan_entries(&EntryScan { order: Order::OldestFirst, ..EntryScan::default() }).unwrap();
        assert_eq!(ids(&all), names);
    })
    .await;
}

#[tokio::test]
async fn times_are_those_of_the_clock() {
    tokio::time::pause();
    let clock = Arc::new(RuntimeClock::new());
    let place = Place::new();
    let file = place.create(jsonl::Options { clock: Arc::<RuntimeClock>::clone(&clock), ..unlocked() }).await;
    let store = memory(Arc::<RuntimeClock>::clone(&clock));
    for _ in 0..3 {
        tokio::time::advance(std::time::Duration::from_millis(250)).await;
        let now = pirn::port::Clock::now_ms(&*clock);
        for store in [&store as &dyn Store, &file] {
            assert_eq!(store.commit(vec![append("x.a", "k", json!(now))]).await.unwrap().timestamp, now);
        }
    }
}
