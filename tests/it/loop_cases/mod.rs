//! The numbered cases of the agent (`tests/cases/loop.md`), one test or more for each number.
//!
//! A test plays a [`support::Scene`] and compares the short form of its events ([`notation`]) with the line of the
//! case. Every run a scene plays is also held against the grammar and the invariants of the loop ([`invariants`]).
//! Time is the runtime's, paused: waits cost nothing, and moments are exact.

mod arguments;
mod cancel;
mod control;
mod doubles;
mod execution;
mod hooks;
pub(crate) mod invariants;
pub(crate) mod notation;
mod queues;
mod random;
mod replies;
pub(crate) mod support;

/// The page and the tests name the same cases.
#[test]
fn every_case_of_the_page_has_a_test_that_cites_it() {
    let page = include_str!("../../cases/loop.md");
    let tests = [
        include_str!("replies.rs"),
        include_str!("arguments.rs"),
        include_str!("hooks.rs"),
        include_str!("execution.rs"),
        include_str!("queues.rs"),
        include_str!("control.rs"),
        include_str!("cancel.rs"),
        include_str!("../jsonl.rs"),
    ]
    .concat();
    let numbers: Vec<u32> =
        page.lines().filter_map(|line| line.strip_prefix("**")?.split_once('.')?.0.parse().ok()).collect();
    assert_eq!(numbers, (1..=119).collect::<Vec<_>>());
    let cited = |number: &u32| {
        let name = format!("case_{number}");
        tests.match_indices(&name).any(|(at, _)| !tests[at + name.len()..].starts_with(|c: char| c.is_ascii_digit()))
    };
    let missing: Vec<&u32> = numbers.iter().filter(|number| !cited(number)).collect();
    assert!(missing.is_empty(), "no test cites {missing:?}");
}
