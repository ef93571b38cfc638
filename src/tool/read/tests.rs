use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::window::{Outcome, Window};
use super::{Job, ReadSettings};
use crate::model::Content;
use crate::port::Inputs;
use crate::tool::open::open_regular;
use crate::tool::path::{Located, Places};
use crate::tool::{Caps, Confine, Confinement};

fn job(cwd: PathBuf, written: &str) -> Job {
    let guard = Arc::new(Confine::new(Confinement::Off, &[], None));
    Job {
        written: written.to_owned(),
        shown: written.to_owned(),
        offset: 1,
        limit: None,
        settings: ReadSettings::default(),
        places: Places { cwd, home: None, guard },
        has_bash: true,
        inputs: Inputs { text: true, image: true },
        cancel: CancellationToken::new(),
    }
}

/// Opens a file, lets `meddle` change it, and reads.
fn read_after(content: &str, meddle: impl FnOnce(&mut std::fs::File)) -> Result<String, super::Failure> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.txt");
    let mut file = OpenOptions::new().create_new(true).append(true).open(&path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    let opened = open_regular(&path).unwrap();
    meddle(&mut file);
    let job = job(directory.path().to_owned(), "log.txt");
    let output = job.show(&Located { path, as_written: true }, opened)?;
    Ok(output.content.first().and_then(Content::as_text).unwrap().to_owned())
}

#[test]
fn case_27_a_file_that_grows_is_read_up_to_its_size_at_open() {
    let more = |file: &mut std::fs::File| file.write_all(b"more\n").unwrap();
    assert_eq!(read_after("a\nb\n", more), Ok("a\nb\n".to_owned()));
    // Also one that is too large to be held in memory.
    let large = "0123456789abcde\n".repeat(100_000);
    let text = read_after(&large, more).unwrap();
    assert!(text.ends_with("\n\n[lines 1-2000 of 100000; more: offset=2001]"), "{text}");
}

#[test]
fn a_file_that_shrinks_ends_early() {
    let shrink = |file: &mut std::fs::File| file.set_len(2).unwrap();
    assert_eq!(read_after("a\nb\n", shrink), Ok("a\n".to_owned()));
    let large = "0123456789abcde\n".repeat(100_000);
    assert_eq!(read_after(&large, |file| file.set_len(0).unwrap()), Ok("[empty file]".to_owned()));
}

/// What a window of the given caps shows of a whole text, by the plain definition of tool rules T1–T3.
fn expected(text: &str, first: usize, caps: Caps) -> (String, u64, bool) {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for line in body.split('\n').skip(first - 1).take(caps.lines) {
        bytes += line.len() + usize::from(!shown.is_empty());
        if bytes > caps.bytes {
            return (shown.join("\n"), shown.len() as u64, true);
        }
        shown.push(line);
    }
    (shown.join("\n"), shown.len() as u64, false)
}

proptest! {
    #[test]
    fn a_window_does_not_depend_on_how_bytes_arrive(
        text in "[aé\\n]{1,60}", first in 1_usize..8, lines in 1_usize..6, bytes in 1_usize..40, step in 1_usize..9,
    ) {
        let caps = Caps { lines, bytes };
        let mut window = Window::new(first as u64, b'\n', caps, false);
        for chunk in text.as_bytes().chunks(step) {
            if !window.feed(chunk) {
                break;
            }
        }
        let shown = window.finish();
        match shown.outcome {
            Outcome::LongLine { bytes: size, chars } => {
                prop_assert!(size > bytes as u64);
                let line = text.split('\n').nth(first - 1).unwrap();
                let fits = line.char_indices().take_while(|(at, c)| at + c.len_utf8() <= bytes).count();
                let start: String = line.chars().take(fits).collect();
                prop_assert_eq!((shown.text, chars), (start, fits));
            }
            outcome => {
                let got = (shown.text, shown.lines, outcome == Outcome::Cut);
                prop_assert_eq!(got, expected(&text, first, caps));
            }
        }
    }
}
