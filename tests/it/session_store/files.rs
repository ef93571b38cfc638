//! The file: its lines, its modes, its lock, and how it is rewritten.

use std::os::unix::fs::PermissionsExt as _;

use pirn::model::Write;
use pirn::port::{Store as _, StoreError};
use pirn::session::jsonl::lock::{Probe, probe};
use pirn::session::jsonl::{self, Closed, Header, JsonlStore, Options};
use serde_json::{Value, json};

use super::{
    Place, append, assert_strictly_valid, delete_list, entry, header, message, options, said, set, snapshot, unlocked,
    usage_row,
};

#[tokio::test]
async fn a_file_is_its_header_and_a_line_for_each_transaction() {
    let place = Place::new();
    let store = place.create(options()).await;
    let at = store
        .commit(vec![
            message("a", None),
            entry("b", Some("a"), pirn::model::EntryBody::Custom { custom_type: "note".into(), data: Some(json!(1)) }),
            usage_row("u", 2, 0.5),
            set("x.a", "k", json!({"b": 1, "a": null})),
            Write::delete("x.a", "k"),
            append("x.a", "l", json!("x")),
            delete_list("x.a", "l"),
        ])
        .await
        .unwrap()
        .timestamp;
    let body = [
        format!(r#"{{"at":{at},"w":[{{"seq":1,"kind":"entry","id":"a","parentId":null,"type":"message","message":{{"role":"user","content":[{{"type":"text","text":"a"}}],"timestamp":7}}}}"#),
        r#"{"seq":2,"kind":"entry","id":"b","parentId":"a","type":"custom","customType":"note","data":1}"#.into(),
        r#"{"seq":3,"kind":"usage","row":{"id":"u","operationId":null,"lane":"main","kind":"request","provider":"demo","usage":{"input":2,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0.0,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0,"total":0.5}},"cost":0.5}}"#.into(),
        r#"{"seq":4,"kind":"value","op":"set","namespace":"x.a","key":"k","value":{"b":1,"a":null}}"#.into(),
        r#"{"seq":5,"kind":"value","op":"delete","namespace":"x.a","key":"k"}"#.into(),
        r#"{"seq":6,"kind":"list","op":"append","namespace":"x.a","key":"l","value":"x"}"#.into(),
        r#"{"seq":7,"kind":"list","op":"delete","namespace":"x.a","key":"l"}]"#.into(),
    ]
    .join(",");
    let head = r#"{"kind":"pirn.session","format":1,"id":"01900000-0000-7000-8000-000000000001","createdAt":5,"cwd":"/somewhere","requires":[]}"#;
    let sum = crc32fast::hash(body.as_bytes());
    assert_eq!(String::from_utf8(place.bytes()).unwrap(), format!("{head}\n{body},\"c\":\"{sum:08x}\"}}\n"));
}

#[tokio::test]
async fn files_and_directories_are_private_from_the_first_moment_ses_15() {
    // The mask of the process is that of all tests; modes are set where a file is made, and a mask only takes away.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state/sessions/slug/s.jsonl");
    let store = jsonl::create(&path, header(), Options::new("t", super::clock())).await.unwrap();
    store.commit(vec![set("x.a", "k", json!("x".repeat(300_000))), Write::delete("x.a", "k")]).await.unwrap();
    assert_eq!(store.close().await.unwrap(), Closed::Rewritten);
    let mut torn = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut torn, b"torn").unwrap();
    let again = jsonl::open(&path, options()).await.unwrap();
    again.commit(vec![message("a", None)]).await.unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for part in ["state", "state/sessions", "state/sessions/slug"] {
        assert_eq!(mode(&dir.path().join(part)), 0o700, "{part}");
    }
    let files: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 3, "session, lock, torn tail: {files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_session_is_made_once() {
    let place = Place::new();
    drop(place.create(options()).await);
    let before = place.bytes();
    let error = jsonl::create(&place.file(), header(), options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(place.bytes(), before);
    let long = Header::new("i", 1, "x".repeat(100_000));
    let error = jsonl::create(&place.dir.path().join("d/l.jsonl"), long, options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid(_)), "{error}");
    assert!(!place.dir.path().join("d").exists());
}

#[tokio::test]
async fn a_session_is_never_its_own_lock() {
    let place = Place::new();
    drop(place.create(options()).await);
    let own = place.dir.path().join("own.lock");
    std::fs::copy(place.file(), &own).unwrap();
    for options in [options(), unlocked()] {
        let error = jsonl::open(&own, options.clone()).await.unwrap_err();
        assert!(error.to_string().contains(".jsonl"), "{error}");
        let error = jsonl::create(&place.dir.path().join("new.lock"), header(), options).await.unwrap_err();
        assert!(error.to_string().contains(".jsonl"), "{error}");
    }
    assert_eq!(std::fs::read(&own).unwrap(), place.bytes());
    assert!(!place.dir.path().join("new.lock").exists());
}

#[tokio::test]
async fn a_header_alone_is_an_empty_session() {
    let place = Place::new();
    drop(place.create(options()).await);
    let store = place.open(options()).await.unwrap();
    assert_eq!((store.header(), store.path(), store.warnings().len()), (&header(), &*place.file(), 0));
    assert_eq!(store.commit(vec![message("a", None)]).await.unwrap().first_seq, 1);
}

#[tokio::test]
async fn one_process_has_a_session_open_case_98() {
    let place = Place::new();
    assert_eq!(probe(&place.file()).unwrap(), Probe::Free);
    assert_eq!(place.names(), [""; 0], "a probe makes no file");
    let first = place.create(options()).await;
    let before = place.bytes();
    let Probe::Running(holder) = probe(&place.file()).unwrap() else { panic!("it is locked") };
    assert_eq!((holder.pid, holder.command.as_deref()), (Some(std::process::id()), Some("pirn test")));
    assert!(holder.started_at.is_some() && holder.host.is_some());

    for error in
        [place.open(options()).await.unwrap_err(), jsonl::create(&place.file(), header(), options()).await.unwrap_err()]
    {
        let file = place.file().display().to_string();
        assert_eq!(error, StoreError::Busy { file, pid: Some(std::process::id()) });
    }
    assert_eq!(place.bytes(), before);
    jsonl::read(&place.file()).unwrap();

    first.commit(vec![message("a", None)]).await.unwrap();
    first.close().await.unwrap();
    assert_eq!(probe(&place.file()).unwrap(), Probe::Free);
    let second = place.open(options()).await.unwrap();
    drop(second);
    assert_eq!(probe(&place.file()).unwrap(), Probe::Free);
}

#[tokio::test]
async fn a_lock_that_is_given_back_within_300_ms_is_waited_for() {
    let place = Place::new();
    let first = place.create(options()).await;
    // The one task runs when the other one waits.
    let (second, ()) = futures_util::future::join(place.open(options()), async { drop(first) }).await;
    second.unwrap();
}

#[tokio::test]
async fn a_lock_whose_file_was_removed_keeps_nobody_out_and_is_taken_anew() {
    let place = Place::new();
    let _first = place.create(options()).await;
    std::fs::remove_file(jsonl::lock::lock_path(&place.file())).unwrap();
    // The session goes on; whoever removed the lock meant it.
    place.open(options()).await.unwrap();
}

#[tokio::test]
async fn without_a_lock_the_slower_one_of_two_is_stopped_case_127() {
    let place = Place::new();
    let first = place.create(unlocked()).await;
    let second = place.open(unlocked()).await.unwrap();
    assert_eq!(place.names(), ["s.jsonl"], "no lock file is made");
    assert!(first.warnings()[0].contains("session.lock is off"), "{:?}", first.warnings());
    first.commit(vec![message("a", None)]).await.unwrap();
    let error = second.commit(vec![message("b", None)]).await.unwrap_err();
    assert_eq!(error, StoreError::ForeignWrite { file: place.file().display().to_string() });
    first.commit(vec![message("c", None)]).await.unwrap();
    assert!(matches!(second.commit(vec![message("d", None)]).await, Err(StoreError::Dead(_))));
    assert_strictly_valid(&place.file());
    assert_eq!(snapshot(&jsonl::read(&place.file()).unwrap()).entries.len(), 2);
    assert_eq!(probe(&place.file()).unwrap(), Probe::Free);
}

#[tokio::test]
async fn a_file_that_another_program_changed_is_not_written_to_case_97() {
    type Change = fn(&Place);
    let changes: [(&str, Change); 5] = [
        ("a line was appended", |place| {
            let mut file = std::fs::OpenOptions::new().append(true).open(place.file()).unwrap();
            std::io::Write::write_all(&mut file, b"{\"foreign\":1}\n").unwrap();
        }),
        ("it was cut", |place| {
            let file = std::fs::OpenOptions::new().write(true).open(place.file()).unwrap();
            file.set_len(10).unwrap();
        }),
        ("an editor put another file in its place", |place| {
            let copy = place.dir.path().join("copy");
            std::fs::copy(place.file(), &copy).unwrap();
            std::fs::rename(copy, place.file()).unwrap();
        }),
        ("it was removed", |place| std::fs::remove_file(place.file()).unwrap()),
        ("a directory is in its place", |place| {
            std::fs::remove_file(place.file()).unwrap();
            std::fs::create_dir(place.file()).unwrap();
        }),
    ];
    for (what, change) in changes {
        let place = Place::new();
        let store = place.create(options()).await;
        store.commit(vec![message("a", None), set("x.a", "k", json!(1))]).await.unwrap();
        change(&place);
        let after = std::fs::read(place.file()).ok();
        let error = store.commit(vec![message("b", None)]).await.unwrap_err();
        assert_eq!(error, StoreError::ForeignWrite { file: place.file().display().to_string() }, "{what}");
        assert!(matches!(store.commit(vec![message("c", None)]).await, Err(StoreError::Dead(_))), "{what}");
        assert!(matches!(store.sync().await, Err(StoreError::Dead(_))), "{what}");
        assert_eq!(std::fs::read(place.file()).ok(), after, "{what}: nothing of ours is written after it");
        assert_eq!(store.close().await.unwrap(), Closed::Kept, "{what}");
    }
}

/// A session most of which says nothing any more, as after thirty tool turns: each turn sets its state anew and drops
/// the pieces of the reply that are settled.
async fn mostly_dead(store: &JsonlStore) {
    let mut parent = None;
    for turn in 0..30 {
        let (name, row) = (format!("m{turn}"), format!("u{turn}"));
        for piece in 0..8 {
            store.commit(vec![append("x.b", "k", json!(format!("{piece}{}", "piece ".repeat(400))))]).await.unwrap();
        }
        store
            .commit(vec![
                entry(&name, parent.as_deref(), said(&"answer ".repeat(20))),
                usage_row(&row, 10, 0.01),
                set("branch.tip", "main", json!(name)),
                set("x.a", "state", json!({"turn": turn, "more": "s".repeat(1000)})),
                set("x.a", &format!("keep{turn}"), Value::Null),
                delete_list("x.b", "k"),
                append("x.a", "k2", json!(turn)),
            ])
            .await
            .unwrap();
        parent = Some(name);
    }
    store.commit(vec![set("x.a", "last", json!(1)), Write::delete("x.a", "last")]).await.unwrap();
}

#[tokio::test]
async fn what_is_dead_goes_at_a_clean_exit_and_nothing_else_changes_case_99_i12() {
    let place = Place::new();
    let store = place.create(options()).await;
    mostly_dead(&store).await;
    let (before, size) = (snapshot(&store), place.bytes().len());
    let next = store.commit(Vec::new()).await.unwrap().first_seq;
    assert_eq!(store.close().await.unwrap(), Closed::Rewritten);
    assert!(place.bytes().len() < size / 4, "{} of {size} bytes", place.bytes().len());
    assert_eq!(snapshot(&store), before, "the closed store still reads");
    assert!(matches!(store.commit(vec![message("late", None)]).await, Err(StoreError::Dead(_))));
    assert_strictly_valid(&place.file());
    assert_eq!(place.names(), ["s.jsonl", "s.lock"]);
    let again = place.open(options()).await.unwrap();
    assert_eq!(snapshot(&again), before, "entries keep their places too");
    let mut expected = header();
    expected.next_seq = Some(next);
    assert_eq!(again.header(), &expected);
    assert_eq!(
        again.commit(vec![message("next", Some("m29"))]).await.unwrap().first_seq,
        next,
        "no place is used twice"
    );
    assert_eq!(again.close().await.unwrap(), Closed::Kept, "little is dead now");
}

#[tokio::test]
async fn a_little_that_is_dead_is_no_reason_to_rewrite() {
    for (what, dead, live) in [("little", 200_000, 10), ("less than half", 400_000, 500_000)] {
        let place = Place::new();
        let store = place.create(options()).await;
        store.commit(vec![set("x.a", "dead", json!("d".repeat(dead))), Write::delete("x.a", "dead")]).await.unwrap();
        store.commit(vec![set("x.a", "live", json!("l".repeat(live)))]).await.unwrap();
        let before = place.bytes();
        assert_eq!(store.close().await.unwrap(), Closed::Kept, "{what}");
        assert_eq!(place.bytes(), before, "{what}");
    }
    // Without a lock another process might write to the file that is replaced.
    let place = Place::new();
    let store = place.create(unlocked()).await;
    store.commit(vec![set("x.a", "dead", json!("d".repeat(400_000))), Write::delete("x.a", "dead")]).await.unwrap();
    assert_eq!(store.close().await.unwrap(), Closed::Kept);
}

#[tokio::test]
async fn a_rewrite_keeps_what_this_version_does_not_know_byte_for_byte_case_99() {
    let place = Place::new();
    let store = place.create(options()).await;
    store.commit(vec![set("x.a", "dead", json!("d".repeat(400_000))), Write::delete("x.a", "dead")]).await.unwrap();
    let next = store.commit(Vec::new()).await.unwrap().first_seq;
    drop(store);
    let unknown = [
        format!(
            r#"{{"seq":{next},"kind":"entry","id":"n1","parentId":null,"later":[1.50,"é"],"type":"later","x":{{"b":1.0,"a":2}}}}"#
        ),
        format!(
            r#"{{"seq":{},"kind":"entry","id":"n2","parentId":"n1","type":"message","message":{{"role":"later","z":1e3}},"more":1e2}}"#,
            next + 1
        ),
        format!(
            r#"{{"seq":{},"kind":"value","op":"set","namespace":"later.ns","key":"k","value":1.10,"by":"n2"}}"#,
            next + 2
        ),
    ];
    let body = format!(r#"{{"at":9000000000000,"w":[{}]"#, unknown.join(","));
    let line = format!("{body},\"c\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes()));
    let bytes = [place.bytes(), line.clone().into_bytes()].concat();
    let bytes =
        String::from_utf8(bytes).unwrap().replacen("\"requires\"", "\"later\":{\"b\":1,\"a\":2},\"requires\"", 1);
    std::fs::write(place.file(), bytes).unwrap();
    let store = place.open(options()).await.unwrap();
    assert_eq!(store.close().await.unwrap(), Closed::Rewritten);
    let text = String::from_utf8(place.bytes()).unwrap();
    assert!(text.ends_with(&line), "{text}");
    assert!(text.lines().next().unwrap().contains(r#""later":{"b":1,"a":2}"#), "{text}");
    assert_eq!(text.lines().count(), 2);
}

#[tokio::test]
async fn what_a_killed_rewrite_left_is_removed_at_the_next_open_case_99() {
    let place = Place::new();
    drop(place.create(options()).await);
    let left = place.dir.path().join("s.jsonl.rewrite");
    std::fs::write(&left, "half a file").unwrap();
    jsonl::read(&place.file()).unwrap();
    assert!(left.exists(), "a reader changes nothing");
    let store = place.open(options()).await.unwrap();
    assert!(!left.exists());
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_reader_sees_whole_transactions_while_another_one_writes() {
    let place = Place::new();
    let store = place.create(options()).await;
    for turn in 0..20 {
        let name = format!("m{turn}");
        store.commit(vec![message(&name, None), set("x.a", "k", json!(name))]).await.unwrap();
        let reader = jsonl::read(&place.file()).unwrap();
        assert_eq!(snapshot(&reader), snapshot(&store));
    }
}

#[tokio::test]
async fn two_torn_tails_are_both_kept() {
    let place = Place::new();
    drop(place.create(options()).await);
    tokio::time::pause();
    for tail in ["first", "second", "third"] {
        let mut file = std::fs::OpenOptions::new().append(true).open(place.file()).unwrap();
        std::io::Write::write_all(&mut file, tail.as_bytes()).unwrap();
        let clock = std::sync::Arc::new(pirn::testing::RuntimeClock::new());
        let store = place.open(Options { clock, ..options() }).await.unwrap();
        store.commit(vec![message(tail, None)]).await.unwrap();
    }
    assert_eq!(place.names().iter().filter(|name| name.contains("torn")).count(), 3, "{:?}", place.names());
    assert_strictly_valid(&place.file());
}

#[tokio::test]
async fn a_session_costs_little_more_than_what_it_says_ses_08() {
    let place = Place::new();
    let store = place.create(options()).await;
    let head = place.bytes().len();
    let rounds = 50;
    let text = "x".repeat(2_000);
    for round in 0..rounds {
        store.commit(vec![entry(&format!("m{round}"), None, said(&text))]).await.unwrap();
    }
    let per_entry = (place.bytes().len() - head) / rounds - text.len();
    assert!(per_entry < 250, "{per_entry} bytes beside the text of an entry");
}
