//! Several calls that change one file: FILE-04, and tool rule M1.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use pirn::testing::call;
use pirn::tool::builtin;
use serde_json::json;

use crate::loop_cases::support::{Scene, calls, text as says};
use crate::tool_support::{Workspace, no_leftovers, text};

fn content(w: &Workspace, name: &str) -> String {
    std::fs::read_to_string(w.root.join(name)).unwrap()
}

/// Calls of one file under several names, one more byte each, told apart by what they found.
fn same_file(count: usize) -> Vec<(String, String)> {
    let names = ["f", "./f", "link", "d/../f", "to-d/../f"];
    (0..count).map(|n| (names[n % names.len()].to_owned(), "x".repeat(n + 1))).collect()
}

fn workspace() -> Workspace {
    let w = Workspace::new();
    std::fs::create_dir(w.root.join("d")).unwrap();
    symlink("f", w.root.join("link")).unwrap();
    symlink("d", w.root.join("to-d")).unwrap();
    w
}

fn result_of(name: &str, n: usize) -> String {
    match n {
        0 => format!("Created {name} (1 bytes)."),
        n => format!("Replaced {name} ({} bytes, was {n}).", n + 1),
    }
}

#[test]
fn file_04_calls_that_are_polled_in_order_run_in_order_m1() {
    for _ in 0..50 {
        let w = workspace();
        let tool = w.tool("write");
        let calls = same_file(10);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outputs = runtime.block_on(async {
            let running: FuturesUnordered<_> = calls
                .iter()
                .enumerate()
                .map(|(n, (path, content))| {
                    let (tool, ctx) = (Arc::clone(&tool), w.ctx());
                    let args = json!({"path": path, "content": content});
                    async move { (n, tool.call(args, ctx).await) }
                })
                .collect();
            running.collect::<Vec<_>>().await
        });
        for (n, output) in &outputs {
            assert_eq!(text(output), result_of(&calls[*n].0, *n));
        }
        assert_eq!(content(&w, "f"), "x".repeat(10));
        no_leftovers(&w);
    }
}

#[tokio::test]
async fn file_04_a_parallel_batch_writes_one_file_in_the_order_of_its_calls_m1() {
    for _ in 0..20 {
        let w = workspace();
        w.file("other", "read me\n");
        let files = same_file(20);
        let id = |n: usize| format!("c{n}");
        let mut blocks: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(n, (path, content))| call(&id(n), "write", &json!({"path": path, "content": content})))
            .collect();
        blocks.push(call("r", "read", &json!({"path": "other"})));
        blocks.push(call("w", "write", &json!({"path": "else", "content": "y"})));
        let names = ["read", "write"].map(str::to_owned);
        let (cwd, guard) = (w.root.clone(), Arc::clone(&w.guard));
        let scene = Scene::new(vec![calls(blocks), says("done")]).options(|options| {
            options.settings.tools = builtin(&w.settings, &names);
            options.tool_env.cwd = cwd;
            options.tool_env.guard = guard;
        });
        let run = scene.prompt("p").await;
        for (n, (path, _)) in files.iter().enumerate() {
            assert_eq!(run.result_text(&id(n)), result_of(path, n));
        }
        assert_eq!(
            (run.result_text("r"), run.result_text("w")),
            ("read me\n".to_owned(), "Created else (1 bytes).".to_owned())
        );
        assert_eq!(content(&w, "f"), "x".repeat(20));
        no_leftovers(&w);
    }
}

/// Two names of one file are one file, also where it is written in place.
#[test]
fn names_of_one_file_take_turns_m1() {
    for _ in 0..20 {
        let w = Workspace::new();
        let path = w.file("a", "0");
        std::fs::hard_link(&path, w.root.join("b")).unwrap();
        let tool = w.tool("write");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outputs = runtime.block_on(futures_util::future::join_all((0..8).map(|n| {
            let args = json!({"path": (["a", "b"][n % 2]), "content": "x".repeat(100_000 * (n + 1))});
            tool.call(args, w.ctx())
        })));
        for (n, output) in outputs.iter().enumerate() {
            let was = if n == 0 { 1 } else { 100_000 * n };
            let want = format!("Replaced {} ({} bytes, was {was}).", ["a", "b"][n % 2], 100_000 * (n + 1));
            assert_eq!(text(output), want);
        }
        assert_eq!(content(&w, "b"), "x".repeat(800_000));
    }
}
