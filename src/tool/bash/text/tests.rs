use std::time::Duration;

use serde_json::{Value, json};

use super::{Report, Why};
use crate::process::Exited;
use crate::tool::bash::spill::{Capped, Saved};
use crate::tool::bash::view::{Cut, Shown};
use crate::tool::truncate::Caps;

fn report() -> Report {
    Report {
        why: Why::Ended,
        exited: Some(Exited { code: Some(0), signal: None }),
        timeout: Some(Duration::from_secs(300)),
        is_clamped: false,
        caps: Caps::default(),
        shown: Shown { text: "out".to_owned(), cut: None, total_lines: 1, total_bytes: 4 },
        saved: Saved::default(),
        is_open: false,
        background: Vec::new(),
    }
}

fn code(code: i32) -> Exited {
    Exited { code: Some(code), signal: None }
}

fn signal(signal: i32) -> Exited {
    Exited { code: None, signal: Some(signal) }
}

fn saved(capped: Option<Capped>) -> Saved {
    Saved { path: Some("/s.d/e1.log".into()), capped, failure: None }
}

fn cut(cut: Cut, total_lines: u64) -> Shown {
    Shown { text: "out".to_owned(), cut: Some(cut), total_lines, total_bytes: 70_000 }
}

#[test]
fn status_lines_have_their_texts_b6() {
    let failed = Saved { failure: Some("No space left on device".to_owned()), ..Saved::default() };
    let line = Cut::Line { shown: 51_200, bytes: 60_000 };
    for (report, code_want, want) in [
        (report(), "", ""),
        (Report { exited: Some(code(3)), ..report() }, "exit", "[exit code 3]"),
        (Report { exited: Some(signal(libc::SIGKILL)), ..report() }, "signal", "[killed by SIGKILL, exit code 137]"),
        (Report { exited: Some(signal(40)), ..report() }, "signal", "[killed by signal 40, exit code 168]"),
        (Report { exited: None, ..report() }, "io", "[exit code unknown]"),
        (Report { why: Why::Aborted, exited: Some(code(0)), ..report() }, "aborted", "Aborted."),
        (
            Report { why: Why::TimedOut, timeout: Some(Duration::from_secs(1)), ..report() },
            "timeout",
            "[timed out after 1s; process group killed]",
        ),
        (
            Report { why: Why::TimedOut, timeout: Some(Duration::from_millis(2_250)), ..report() },
            "timeout",
            "[timed out after 2.25s; process group killed]",
        ),
        (
            Report { shown: cut(Cut::Lines(2000), 3000), saved: saved(None), ..report() },
            "",
            "[last 2000 of 3000 lines; full output: /s.d/e1.log]",
        ),
        (
            Report { shown: cut(Cut::Bytes(12), 13), saved: saved(Some(Capped::Call)), ..report() },
            "",
            "[last 12 of 13 lines, cut at 50.0KB; full output: /s.d/e1.log]\n[output file capped at 64.0MB]",
        ),
        (
            Report { shown: cut(line, 1), saved: saved(Some(Capped::Session)), ..report() },
            "",
            "[last 50.0KB of line 1 (58.6KB); full output: /s.d/e1.log]\n[output file capped at 256.0MB for the session]",
        ),
        (
            Report { shown: cut(Cut::Lines(2000), 3000), saved: failed.clone(), exited: Some(code(1)), ..report() },
            "exit",
            "[last 2000 of 3000 lines]\n[full output could not be saved: No space left on device]\n[exit code 1]",
        ),
        (
            Report { is_open: true, background: vec![12, 13], saved: saved(None), exited: Some(code(4)), ..report() },
            "exit",
            "[background: pids 12, 13 still running; later output goes to /s.d/e1.log]\n[exit code 4]",
        ),
        (
            Report { is_open: true, saved: failed, ..report() },
            "",
            "[full output could not be saved: No space left on device]\n\
             [background: processes still running; later output is dropped]",
        ),
        (
            Report { is_open: true, background: (1..=22).collect(), saved: saved(None), ..report() },
            "",
            "[background: pids 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 2 more \
             still running; later output goes to /s.d/e1.log]",
        ),
        // A file nobody needs is not named, and processes that print nothing are for programs only.
        (Report { saved: saved(None), background: vec![12], ..report() }, "", ""),
    ] {
        let output = report.clone().into_output();
        let want = if want.is_empty() { "out".to_owned() } else { format!("out\n\n{want}") };
        assert_eq!(output.content[0].as_text(), Some(want.as_str()));
        assert_eq!(output.is_error, !code_want.is_empty(), "{want}");
        let details = output.details.unwrap();
        assert_eq!(details["error"]["code"].as_str().unwrap_or_default(), code_want, "{want}");
        if let Some(message) = details["error"]["message"].as_str() {
            assert!(want.trim_end_matches(']').ends_with(message), "{message}");
        }
    }
}

#[test]
fn details_are_those_of_b13() {
    let details = |report: Report| report.into_output().details.unwrap();
    let plain = json!({"exitCode": 0, "timedOut": false, "timeoutS": 300, "timeoutClamped": false, "totalLines": 1,
        "totalBytes": 4, "truncated": false, "truncatedBy": null});
    assert_eq!(details(report()), plain);
    let shown = Shown { text: String::new(), cut: Some(Cut::Lines(1)), total_lines: 2, total_bytes: 9 };
    let killed = Report {
        exited: Some(signal(libc::SIGTERM)),
        why: Why::TimedOut,
        timeout: Some(Duration::from_millis(500)),
        is_clamped: true,
        shown,
        saved: saved(None),
        background: vec![7],
        ..report()
    };
    let full = json!({"exitCode": 143, "signal": "SIGTERM", "timedOut": true, "timeoutS": 0.5, "timeoutClamped": true,
        "totalLines": 2, "totalBytes": 9, "truncated": true, "truncatedBy": "lines", "fullOutputPath": "/s.d/e1.log",
        "background": [7],
        "error": {"code": "timeout", "message": "timed out after 0.5s; process group killed"}});
    assert_eq!(details(killed), full);
    let unknown = Report { exited: None, timeout: None, ..report() };
    let details = details(unknown);
    assert_eq!((&details["exitCode"], &details["timeoutS"]), (&Value::Null, &Value::Null));
}
