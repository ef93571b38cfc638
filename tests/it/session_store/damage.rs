//! What is in a file that is not whole: torn tails, damage before whole lines, what a newer version wrote.

use pirn::port::{Store as _, StoreError};
use pirn::session::jsonl::{self, line};
use serde_json::json;

use super::{Place, Snapshot, append, assert_strictly_valid, delete_list, message, options, set, snapshot, usage_row};

/// A small session, and the state and the size of its file after each transaction, the header first.
async fn small(place: &Place) -> Vec<(usize, Snapshot)> {
    let store = place.create(options()).await;
    let mut states = vec![(place.bytes().len(), snapshot(&store))];
    for writes in [
        vec![message("a", None), set("branch.tip", "main", json!("a")), set("x.a", "k", json!(0.1))],
        vec![message("b", Some("a")), usage_row("u", 3, 0.25), append("x.a", "k", json!("é"))],
        vec![delete_list("x.a", "k"), message("c", Some("b")), set("x.a", "k", json!(null))],
    ] {
        store.commit(writes).await.unwrap();
        states.push((place.bytes().len(), snapshot(&store)));
    }
    store.close().await.unwrap();
    states
}

/// The line of an entry, as the store writes it.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

#[tokio::test]
async fn a_file_cut_at_any_byte_opens_at_the_last_whole_transaction_ses_01_ses_02_case_92_case_95() {
    let origin = Place::new();
    let states = small(&origin).await;
    let whole = origin.bytes();
    let place = Place::new();
    for cut in states[0].0 - 1..=whole.len() {
        place.remove_torn();
        std::fs::write(place.file(), &whole[..cut]).unwrap();
        // A line that lacks nothing but its line feed is whole.
        let (good, expected) = states.iter().rfind(|(size, _)| size - 1 <= cut).unwrap();
        let torn = cut.saturating_sub(*good);

        let reader = jsonl::read(&place.file()).unwrap();
        assert_eq!((&snapshot(&reader), reader.damage()), (expected, None), "read, cut at {cut}");
        assert_eq!(reader.warnings().len(), usize::from(torn > 0), "cut at {cut}: {:?}", reader.warnings());

        let store = place.open(options()).await.unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(snapshot(&store), *expected, "cut at {cut}");
        assert_eq!(store.warnings().len(), usize::from(torn > 0), "cut at {cut}: {:?}", store.warnings());
        assert_eq!((place.bytes(), place.torn()), (whole[..cut].to_vec(), None), "opening changes nothing");

        store
            .commit(
                vec![message("next", Some("a")), message("last", None)][usize::from(*good == states[0].0)..].to_vec(),
            )
            .await
            .unwrap();
        let after = snapshot(&store);
        assert_strictly_valid(&place.file());
        assert!(place.bytes().starts_with(&whole[..cut.min(*good)]), "nothing whole is lost, cut at {cut}");
        assert_eq!(place.torn(), (torn > 0).then(|| whole[*good..cut].to_vec()), "cut at {cut}");

        let again = jsonl::read(&place.file()).unwrap();
        assert_eq!((snapshot(&again), again.damage(), again.warnings().len()), (after, None, 0), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_file_cut_in_its_header_is_nobodys_session() {
    let origin = Place::new();
    let states = small(&origin).await;
    let whole = origin.bytes();
    for cut in 0..states[0].0 - 1 {
        let place = Place::new();
        std::fs::write(place.file(), &whole[..cut]).unwrap();
        for error in [place.open(options()).await.unwrap_err(), jsonl::read(&place.file()).unwrap_err()] {
            assert!(matches!(error, StoreError::Corrupt { line: 1, .. }), "cut at {cut}: {error}");
        }
        assert_eq!(place.bytes(), &whole[..cut]);
    }
}

#[tokio::test]
async fn a_tail_that_is_no_record_is_kept_elsewhere_and_cut_off_case_94() {
    let origin = Place::new();
    let (_, state) = small(&origin).await.pop().unwrap();
    let whole = origin.bytes();
    let last = lines(&whole).pop().unwrap();
    let half = last[..last.len() / 2].to_vec();
    let glued = [&half[..], &last].concat();
    let mut flipped = last.clone();
    flipped[20] ^= 1;
    for (what, tail) in [
        ("zeros", vec![0; 4096]),
        ("zeros and a line feed", [vec![0; 4096], b"\n".to_vec()].concat()),
        ("several torn lines", [&half[..], b"\n", &half, b"\n", &half].concat()),
        ("a record behind half of one, on one line", glued),
        ("a flipped bit in the last line", flipped),
        ("text", b"no JSON\n".to_vec()),
        ("an empty line", b"\n".to_vec()),
        ("no UTF-8", b"\xff\xfe\n".to_vec()),
        // The same places again, as after a copy of half a file.
        ("the last line twice", last.clone()),
    ] {
        let place = Place::new();
        std::fs::write(place.file(), [&whole[..], &tail].concat()).unwrap();
        let store = place.open(options()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(snapshot(&store), state, "{what}");
        let warning = format!("the last {} bytes of {}", tail.len(), place.file().display());
        assert!(store.warnings()[0].starts_with(&warning), "{what}: {:?}", store.warnings());
        assert!(store.warnings()[0].contains("s.jsonl.torn-"), "{what}: {:?}", store.warnings());
        store.commit(vec![message("next", Some("c"))]).await.unwrap();
        assert_eq!(place.torn(), Some(tail), "{what}");
        assert_strictly_valid(&place.file());
    }
}

#[tokio::test]
async fn damage_before_a_whole_line_is_refused_and_what_is_before_it_stays_readable_case_93_ses_01() {
    let origin = Place::new();
    let states = small(&origin).await;
    let whole = origin.bytes();
    let all = lines(&whole);
    let mut table: Vec<(String, Vec<u8>, usize)> = Vec::new();
    for number in 1..all.len() - 1 {
        let start: usize = all[..number].iter().map(Vec::len).sum();
        // A changed line feed joins two lines; of the last two nothing would be left behind the damage.
        let newline = (number + 2 < all.len()).then_some(all[number].len() - 1);
        for offset in [0, 6, 30, all[number].len() - 5].into_iter().chain(newline) {
            let mut bytes = whole.clone();
            bytes[start + offset] ^= 1;
            table.push((format!("a bit of line {}, byte {offset}", number + 1), bytes, number));
        }
        let without = |part: &[u8]| [all[..number].concat(), part.to_vec(), all[number + 1..].concat()].concat();
        table.push((format!("line {} is empty", number + 1), without(b"\n"), number));
        table.push((format!("line {} is half", number + 1), without(&[&all[number][..20], b"\n"].concat()), number));
        table.push((format!("line {} comes twice", number + 1), without(&all[number].repeat(2)), number + 1));
    }
    for (what, bytes, number) in table {
        let place = Place::new();
        std::fs::write(place.file(), &bytes).unwrap();
        let error = place.open(options()).await.unwrap_err();
        let told = |error: &StoreError| {
            matches!(error, StoreError::Corrupt { file, line, .. }
                if *file == place.file().display().to_string() && *line == number as u64 + 1)
        };
        assert!(told(&error), "{what}: {error}");
        let reader = jsonl::read(&place.file()).unwrap();
        assert!(reader.damage().is_some_and(told), "{what}: {:?}", reader.damage());
        assert_eq!(snapshot(&reader), states[number - 1].1, "{what}");
        assert_eq!((place.bytes(), place.torn()), (bytes, None), "{what}: untouched");
        // The lock went with the refusal.
        assert_eq!(jsonl::lock::probe(&place.file()).unwrap(), jsonl::lock::Probe::Free);
    }
}

/// A line with a right sum.
fn summed(body: &str) -> Vec<u8> {
    format!("{body},\"c\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes())).into_bytes()
}

#[tokio::test]
async fn a_whole_line_that_breaks_a_rule_is_corruption_wherever_it_stands() {
    let origin = Place::new();
    let states = small(&origin).await;
    let whole = origin.bytes();
    let number = lines(&whole).len() as u64 + 1;
    let write = |write: &str| format!(r#"{{"at":9000000000000,"w":[{write}]"#);
    let message = r#""kind":"entry","id":"n","parentId":null,"type":"message","message":{"role":"user"}"#;
    for (reason, body) in [
        ("parent nobody", write(r#"{"seq":99,"kind":"entry","id":"n","parentId":"nobody","type":"t"}"#)),
        ("id a is used", write(r#"{"seq":99,"kind":"entry","id":"a","parentId":null,"type":"t"}"#)),
        ("id u is used", write(r#"{"seq":99,"kind":"entry","id":"u","parentId":null,"type":"t"}"#)),
        (
            "has not ended",
            write(
                r#"{"seq":99,"kind":"entry","id":"n","parentId":null,"type":"message","message":{"role":"assistant","stopReason":"pending"}}"#,
            ),
        ),
        ("missing field `seq`", write(r#"{"kind":"entry","id":"n","parentId":null,"type":"t"}"#)),
        ("no message with a role", write(r#"{"seq":99,"kind":"entry","id":"n","parentId":null,"type":"message"}"#)),
        ("no type", write(r#"{"seq":99,"kind":"entry","id":"n","parentId":null}"#)),
        ("no row", write(r#"{"seq":99,"kind":"usage","id":"n"}"#)),
        ("no value", write(r#"{"seq":99,"kind":"value","op":"set","namespace":"x.a","key":"k"}"#)),
        ("no key", write(r#"{"seq":99,"kind":"value","op":"set","namespace":"x.a","value":1}"#)),
        ("no object", write("7")),
        ("invalid type", write(r#"{"seq":"99"}"#)),
        ("is before", format!(r#"{{"at":1,"w":[{{"seq":99,{message}}}]"#)),
    ] {
        let place = Place::new();
        std::fs::write(place.file(), [&whole[..], &summed(&body)].concat()).unwrap();
        let error = place.open(options()).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { line, reason: told, .. } if *line == number && told.contains(reason)),
            "{reason}: {error}"
        );
        let reader = jsonl::read(&place.file()).unwrap();
        assert_eq!((snapshot(&reader), reader.damage()), (states.last().unwrap().1.clone(), Some(&error)));
    }
}

#[tokio::test]
async fn places_may_have_gaps_and_an_empty_transaction_is_whole() {
    let origin = Place::new();
    small(&origin).await;
    let more = [
        summed(r#"{"at":9000000000000,"w":[]"#),
        summed(
            r#"{"at":9000000000000,"w":[{"seq":1000,"kind":"value","op":"set","namespace":"x.a","key":"k","value":1}]"#,
        ),
    ];
    let place = Place::new();
    std::fs::write(place.file(), [origin.bytes(), more.concat()].concat()).unwrap();
    let store = place.open(options()).await.unwrap();
    let committed = store.commit(vec![message("next", None)]).await.unwrap();
    assert_eq!((committed.first_seq, committed.timestamp), (1001, 9_000_000_000_000));
}

#[tokio::test]
async fn a_newer_file_is_read_and_not_written_case_100() {
    let origin = Place::new();
    let (_, state) = small(&origin).await.pop().unwrap();
    let text = String::from_utf8(origin.bytes()).unwrap();
    let unknown = summed(
        r#"{"at":9000000000000,"w":[{"seq":90,"kind":"blob","id":"n"},{"seq":91,"kind":"value","op":"merge","namespace":"x.a","key":"k"}]"#,
    );
    let unknown = format!("{text}{}", String::from_utf8(unknown).unwrap());
    for (what, bytes, reason) in [
        ("a newer format", text.replacen("\"format\":1", "\"format\":2", 1), "its format is 2"),
        (
            "an unknown requirement",
            text.replacen("\"requires\":[]", "\"requires\":[\"blobs\"]", 1),
            "it requires \"blobs\"",
        ),
        ("an unknown kind of write", unknown, "unknown kind \"blob\""),
    ] {
        let place = Place::new();
        std::fs::write(place.file(), &bytes).unwrap();
        let error = place.open(options()).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::NeedsNewer { reason: told, .. } if told.contains(reason)),
            "{what}: {error}"
        );
        let reader = jsonl::read(&place.file()).unwrap();
        assert_eq!((snapshot(&reader), reader.damage()), (state.clone(), None), "{what}");
        assert_eq!(place.bytes(), bytes.as_bytes(), "{what}: untouched");
        assert!(matches!(reader.commit(vec![message("n", None)]).await, Err(StoreError::Dead(_))), "{what}");
    }
}

#[tokio::test]
async fn what_is_no_file_is_refused_without_waiting() {
    let place = Place::new();
    assert!(matches!(place.open(options()).await, Err(StoreError::Io { .. })), "none");
    assert_eq!(place.names(), [""; 0], "and no lock is made for it");
    std::fs::create_dir(place.file()).unwrap();
    assert!(matches!(place.open(options()).await, Err(StoreError::Io { .. })), "a directory");
    std::fs::remove_dir(place.file()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, place.file(), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let error = place.open(options()).await.unwrap_err();
    assert!(error.to_string().ends_with("not a regular file"), "{error}");
    assert!(jsonl::read(&place.file()).is_err());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 400, ..Default::default() })]

    /// Whatever happens to the bytes, opening gives a prefix of the states or an error that names the line.
    #[test]
    fn bytes_that_were_changed_at_random_never_give_a_state_that_never_was(
        edits in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), proptest::prelude::any::<u8>(), 0..4_u8), 1..4),
    ) {
        static ORIGIN: std::sync::LazyLock<(Vec<u8>, Vec<Snapshot>)> = std::sync::LazyLock::new(|| {
            runtime().block_on(async {
                let place = Place::new();
                let states = small(&place).await.into_iter().map(|(_, state)| state).collect();
                (place.bytes(), states)
            })
        });
        let (whole, states) = &*ORIGIN;
        let mut bytes = whole.clone();
        for (at, byte, what) in &edits {
            // Cut to one byte, and that one removed: there is nothing left to change.
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = *byte,
                1 => bytes.insert(at, *byte),
                2 => { bytes.remove(at); }
                _ => bytes.truncate(at.max(1)),
            }
        }
        let place = Place::new();
        std::fs::write(place.file(), &bytes).unwrap();
        runtime().block_on(async {
            match place.open(options()).await {
                Ok(store) => {
                    assert!(states.contains(&snapshot(&store)));
                    store.commit(vec![message("next", None)]).await.unwrap();
                    if line::decode(bytes.split(|byte| *byte == b'\n').nth(1).unwrap_or_default()).is_ok() {
                        assert_strictly_valid(&place.file());
                    }
                }
                Err(StoreError::Corrupt { .. } | StoreError::NeedsNewer { .. }) => assert_eq!(place.bytes(), bytes),
                Err(error) => panic!("{error}"),
            }
        });
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
