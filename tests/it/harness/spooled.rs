//! What other processes leave, taken in by the one that drives.

use std::sync::Arc;

use pirn::model::{Event, Message, QueueMode};
use pirn::port::{SpoolKind, UuidIds};
use pirn::session::spool::{Spool, leave};

use super::world::{World, say};

/// More than one look at the directory takes.
const MANY: usize = 150;

#[tokio::test(start_paused = true)]
async fn everything_is_taken_in_and_nothing_stands_behind_items_of_a_lane_that_is_not_there() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let session = directory.path().join("s.jsonl");
    std::fs::write(&session, "").unwrap();
    let ids = UuidIds::default();
    let steer = |lane: &str, text: &str| {
        let message = match Message::user(text, Vec::new(), 0) {
            Message::User(message) => message,
            other => panic!("{other:?}"),
        };
        leave(&session, lane, SpoolKind::Steer(message), &ids, &*world.clock).unwrap()
    };
    for n in 0..MANY {
        steer("gone", &format!("x{n}"));
    }
    for n in 0..MANY {
        steer("main", &format!("s{n}"));
    }
    let spool = Arc::new(Spool::new(&session, world.clock.clone()));
    let process = world
        .process_with(vec![say("done")], |options| {
            options.inbox = Some(spool);
            options.settings.steering_mode = QueueMode::All;
        })
        .await;
    process.prompt("go").await.result();
    let texts = world.texts();
    let expected: Vec<String> = (0..MANY).map(|n| format!("s{n}")).collect();
    assert_eq!(texts.iter().filter(|text| text.starts_with('s')).cloned().collect::<Vec<_>>(), expected);
    let ends = |end: &str| {
        let names = std::fs::read_dir(directory.path().join("s.inbox")).unwrap();
        names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().ends_with(end)).count()
    };
    assert_eq!((ends(".json"), ends(".bad")), (0, MANY), "what can never be taken in is put aside, not lost");
    let warnings: Vec<String> = process
        .heard
        .events()
        .into_iter()
        .filter_map(|told| match told.event {
            Event::Warning { message, .. } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(warnings.len(), MANY);
    assert!(warnings[0].contains("there is no lane \"gone\""), "{}", warnings[0]);
}
