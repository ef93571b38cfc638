//! What a program that embeds the harness reads and registers.

use std::sync::Arc;

use pirn::harness::RegisterError;
use pirn::model::ErrorKind;
use pirn::port::EntryScan;
use pirn::testing::CountingTool;
use serde_json::json;

use super::world::{World, say};

#[tokio::test(start_paused = true)]
async fn a_program_reads_entries_usage_and_results_of_a_session() {
    let world = World::new().await;
    let process = world.process(vec![say("one"), say("two")]).await;
    let first = process.prompt("a").await.result();
    let second = process.prompt("b").await.result();
    let harness = &process.harness;
    assert_eq!(harness.results().unwrap(), [(*first).clone(), (*second).clone()]);
    assert_eq!(harness.entries(&EntryScan::default()).unwrap().len(), 4);
    assert_eq!(harness.usage(None).unwrap().len(), 2);
    assert_eq!(harness.usage(Some(&second.operation_id)).unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_no_call_could_be_checked_for_is_not_registered() {
    let world = World::new().await;
    let process = world.process(Vec::new()).await;
    let odd = CountingTool::echo().named("odd").schema(json!({ "type": 7 }));
    let refused = process.harness.register_tool(Arc::new(odd)).map(drop).unwrap_err();
    assert!(matches!(&refused, RegisterError::InvalidSchema { name, .. } if name == "odd"), "{refused:?}");
    assert_eq!(refused.kind(), ErrorKind::ToolSetup);
}
