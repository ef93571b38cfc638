//! A tool that changes files, in whole runs.

use serde_json::json;

use super::{Pirn, Place};
use crate::support::chat::{chat_text, chat_tool};
use crate::support::server::Server;

#[test]
fn a_run_writes_below_its_directory_and_nowhere_else() {
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let outside = outside.path().join("out.txt");
    for (path, is_written) in [("new/f.txt", true), (outside.to_str().unwrap(), false)] {
        let args = json!({"file_path": path, "content": "h\u{e9}llo\n"});
        let server = Server::start([chat_tool("write", args.clone()), chat_text("done")]);
        let place = Place::new();
        let output = Pirn::of_server(&server, ["--json", "-t", "write", "x"]).at(&place).run();
        assert_eq!(output.code(), 0, "{output:?}");
        let end = &output.lines_of("tool_execution_end")[0];
        assert_eq!(end["isError"], !is_written, "{end}");
        let start = &output.lines_of("tool_execution_start")[0];
        assert_eq!((&start["args"], &start["effectiveArgs"]["path"]), (&args, &json!(path)));
        assert_eq!(output.lines_of("permission_denied").len(), usize::from(!is_written));
        let content = std::fs::read_to_string(place.dir().join(path)).ok();
        assert_eq!(content.as_deref(), is_written.then_some("h\u{e9}llo\n"));
    }
}
