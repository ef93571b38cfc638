//! The events file beside stdout, at the printer: bounded, and one verdict for both.

#![cfg(test)]

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use pirn::model::{BlockEvent, ErrorKind, ErrorRecord, Event, Reason};
use pirn::port::SystemClock;
use pirn::print::{Config, Events, Finished, Level, Mode, Msg, Printer, QUEUE_MESSAGES, ResultLine, Stderr, Verbosity};
use serde_json::Value;

const JSON: Config = Config {
    mode: Mode::Json { level: Level::Events },
    stdout_is_terminal: false,
    stderr_is_terminal: false,
    verbosity: Verbosity::Normal,
    color: false,
    ascii: false,
    thinking: false,
    spinner: false,
};

/// A stream that collects what is written.
#[derive(Clone, Default)]
struct Sheet(Arc<Mutex<Vec<u8>>>);

impl Write for Sheet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sheet {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// A stream whose writes wait until the other side of the channel is gone.
struct Waiting {
    until: Receiver<()>,
    sheet: Sheet,
}

impl Write for Waiting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.until.recv() {
            Ok(()) | Err(_) => self.sheet.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that takes `left` bytes and then fails.
struct Failing {
    left: usize,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.left);
        self.left -= count;
        if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn delta(text: &str) -> Msg {
    let event = Event::MessageUpdate { index: 0, event: BlockEvent::TextDelta(text.to_owned()), usage: None };
    Msg::Event { event: Box::new(event), recovery: false, ts: 0 }
}

/// Exit codes are another module's; nobody looks at them here.
fn verdict(reason: Reason, error: Option<ErrorRecord>) -> Box<ResultLine> {
    Box::new(ResultLine::nothing_sent(u8::from(reason != Reason::Completed), reason, error))
}

fn printer(out: &Sheet, events: &Events) -> Printer {
    let stderr = Stderr::from(Box::new(io::sink()));
    Printer::start_with(JSON, Box::new(out.clone()), stderr, Some(events.clone())).unwrap()
}

#[test]
fn a_slow_events_file_slows_the_senders_and_ends_with_what_stdout_has() {
    let (wait, until) = channel();
    let (out, sheet) = (Sheet::default(), Sheet::default());
    let events = Events::new("e.jsonl", Box::new(Waiting { until, sheet: sheet.clone() }));
    let printer = printer(&out, &events);
    let result = Msg::Result { line: verdict(Reason::Completed, None), instead: None, ts: 0 };
    block_on(async {
        let mut sent = 0;
        while printer.backlog().is_none() {
            sent += usize::from(printer.handle().try_send(delta("x")));
            tokio::task::yield_now().await;
        }
        assert!(sent >= QUEUE_MESSAGES, "{sent}");
        assert!(!printer.handle().try_send(delta("x")), "no further message finds a place");
        drop(wait);
        let finished = printer.finish_with(Some(result), std::future::pending(), &SystemClock::new()).await;
        assert_eq!(finished, Finished::Complete);
    });
    assert_eq!(events.failure(), None);
    assert_eq!(sheet.text(), out.text(), "both streams are the same");
}

#[test]
fn a_failed_events_file_changes_the_verdict_that_is_told_and_nothing_else() {
    for (left, fails) in [(0, true), (60, true), (400, true), (5000, false)] {
        let (out, events) = (Sheet::default(), Events::new("e.jsonl", Box::new(Failing { left })));
        let printer = printer(&out, &events);
        let error = ErrorRecord::new(ErrorKind::Storage, "");
        let instead = Some(verdict(Reason::Error, Some(error)));
        let result = Msg::Result { line: verdict(Reason::Completed, None), instead, ts: 0 };
        block_on(async {
            printer.handle().send(delta("x")).await.unwrap();
            printer.finish_with(Some(result), std::future::pending(), &SystemClock::new()).await
        });
        let lines: Vec<Value> = out.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "the run is told in full: {lines:?}");
        assert_eq!((events.failure().is_some(), &lines[1]["ok"]), (fails, &Value::from(!fails)), "{left}");
        let message = lines[1]["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(message.starts_with("cannot write e.jsonl: "), fails, "{message}");
    }
}
