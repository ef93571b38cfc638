//! From arguments, files and stdin to a prompt (cases IN-01, IN-05, IN-06, IN-08).

#![cfg(test)]

use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pirn::cli::{
    IMAGE_BYTES_MAX, IMAGES_BYTES_MAX, IMAGES_MAX, NOTICE, Part, Plan, PromptIo, PromptRequest, Sources, StdinKind,
    StdinUse, TEXT_BYTES_MAX, UsageError, Word, assemble, load, plan,
};
use pirn::port::Clock;

use crate::support::images::{bmp, gif, jpeg, png, webp};

const KINDS: [StdinKind; 4] = [StdinKind::Terminal, StdinKind::Pipe, StdinKind::File, StdinKind::Other];

fn words(words: &[&str]) -> PromptRequest {
    let words = words.iter().map(|text| Word { text: (*text).to_owned(), literal: false }).collect();
    PromptRequest { words, ..PromptRequest::default() }
}

fn planned(request: &PromptRequest) -> Plan {
    plan(request, StdinKind::Other).unwrap()
}

fn stdin_only(bytes: &[u8]) -> Result<pirn::cli::Prompt, UsageError> {
    let plan = plan(&words(&[]), StdinKind::Pipe)?;
    assemble(&plan, Sources { stdin: Some(bytes.to_vec()), ..Sources::default() })
}

fn part(name: &str, bytes: &[u8]) -> Part {
    Part { name: name.to_owned(), bytes: bytes.to_vec() }
}

#[test]
fn stdin_is_read_by_the_rules_of_design_row_5() {
    use StdinUse::{Leave, Read, ReadWithin};
    /// Words, `-f`, `--no-stdin`; then terminal, pipe, file, other, where `None` is a usage error.
    type Row = (&'static [&'static str], bool, bool, [Option<StdinUse>; 4]);
    let table: [Row; 9] = [
        (&[], false, false, [None, Some(Read), Some(Read), Some(Read)]),
        (&["x"], false, false, [Some(Leave), Some(ReadWithin), Some(ReadWithin), Some(Leave)]),
        (&[], true, false, [Some(Leave), Some(ReadWithin), Some(ReadWithin), Some(Leave)]),
        (&["@f"], false, false, [Some(Leave), Some(ReadWithin), Some(ReadWithin), Some(Leave)]),
        (&["-"], false, false, [None, Some(Read), Some(Read), Some(Read)]),
        (&["x", "-"], false, false, [None, Some(Read), Some(Read), Some(Read)]),
        (&["x"], false, true, [Some(Leave); 4]),
        (&[], false, true, [None; 4]),
        (&["-"], false, true, [None; 4]),
    ];
    for (texts, file, no_stdin, expected) in table {
        for (kind, expected) in KINDS.into_iter().zip(expected) {
            let file = file.then(|| PathBuf::from("f"));
            let request = PromptRequest { file, no_stdin, ..words(texts) };
            let found = plan(&request, kind).ok().map(|plan| plan.stdin);
            assert_eq!(found, expected, "{request:?} {kind:?}");
        }
    }
}

#[test]
fn continuing_alone_takes_what_a_pipe_or_file_holds_and_else_no_prompt_design_row_4() {
    use StdinUse::{Leave, Read, ReadWithin};
    type Row = (&'static [&'static str], bool, [Option<StdinUse>; 4]);
    let table: [Row; 4] = [
        (&[], false, [Some(Leave), Some(ReadWithin), Some(ReadWithin), Some(Leave)]),
        (&[], true, [Some(Leave); 4]),
        (&["x"], false, [Some(Leave), Some(ReadWithin), Some(ReadWithin), Some(Leave)]),
        (&["-"], false, [None, Some(Read), Some(Read), Some(Read)]),
    ];
    for (texts, no_stdin, expected) in table {
        for (kind, expected) in KINDS.into_iter().zip(expected) {
            let request = PromptRequest { no_stdin, may_be_empty: true, ..words(texts) };
            let found = plan(&request, kind).ok().map(|plan| plan.stdin);
            assert_eq!(found, expected, "{request:?} {kind:?}");
        }
    }
    let alone = PromptRequest { may_be_empty: true, ..words(&[]) };
    let alone = plan(&alone, StdinKind::Pipe).unwrap();
    for (bytes, text) in [(&b""[..], ""), (b" \n", ""), (b"go on\n", "go on\n")] {
        let prompt = assemble(&alone, Sources { stdin: Some(bytes.to_vec()), ..Sources::default() }).unwrap();
        assert_eq!((prompt.text.as_str(), prompt.warnings.len()), (text, 0), "{bytes:?}");
    }
    assert_eq!(assemble(&alone, Sources::default()).unwrap().text, "");
    // A dash asks for bytes, and a blank word is a mistake, also here.
    let dash = PromptRequest { may_be_empty: true, ..words(&["-"]) };
    let dash = plan(&dash, StdinKind::Pipe).unwrap();
    assert!(assemble(&dash, Sources { stdin: Some(Vec::new()), ..Sources::default() }).is_err());
    assert!(plan(&PromptRequest { may_be_empty: true, ..words(&[""]) }, StdinKind::Other).is_err());
}

#[test]
fn a_call_that_asks_for_nothing_shows_the_short_help() {
    assert!(plan(&words(&[]), StdinKind::Terminal).unwrap_err().show_help);
    let no_stdin = PromptRequest { no_stdin: true, ..words(&[]) };
    assert!(!plan(&no_stdin, StdinKind::Pipe).unwrap_err().show_help);
}

#[test]
fn an_empty_prompt_is_refused_before_anything_is_read_in08() {
    for texts in [&[""][..], &[" ", "\n"], &["", "-"], &["", "@f"]] {
        for kind in KINDS {
            let error = plan(&words(texts), kind).unwrap_err();
            assert_eq!(error.message, "the prompt is empty", "{texts:?}");
        }
    }
    for bytes in [&b""[..], b" \n", b"\xef\xbb\xbf", b"\xff\xfe"] {
        assert_eq!(stdin_only(bytes).unwrap_err().message, "no prompt: stdin is empty");
    }
    let summary = plan(&words(&["summary"]), StdinKind::Pipe).unwrap();
    for bytes in [&b""[..], b"\n"] {
        let sources = Sources { stdin: Some(bytes.to_vec()), ..Sources::default() };
        let prompt = assemble(&summary, sources).unwrap();
        assert_eq!((prompt.text.as_str(), prompt.warnings.len()), ("summary", 1), "a warning and no block");
    }
    let empty_file = PromptRequest { file: Some("p".into()), ..words(&["x"]) };
    let sources = Sources { file: Some(part("p", b"\n")), ..Sources::default() };
    assert_eq!(assemble(&planned(&empty_file), sources).unwrap_err().message, "the prompt file p is empty");
}

#[test]
fn at_words_and_dashes_are_special_only_before_the_double_dash() {
    let request = words(&["look", "at", "@a.rs", "@b c", "@", "-", "x@y"]);
    let found = planned(&request);
    assert_eq!(found.text.as_deref(), Some("look at @b c @ x@y"));
    assert_eq!((found.attachments, found.stdin), (vec![PathBuf::from("a.rs")], StdinUse::Read));
    let mut literal = words(&["@a.rs", "-"]);
    literal.words.iter_mut().for_each(|word| word.literal = true);
    let found = planned(&literal);
    assert_eq!((found.text.as_deref(), found.attachments.len()), (Some("@a.rs -"), 0));
    assert_eq!(found.stdin, StdinUse::Leave);
    let dashes = PromptRequest { file: Some("-".into()), attachments: vec!["-".into()], ..words(&["@-"]) };
    let found = planned(&dashes);
    assert_eq!((found.file, found.attachments.len(), found.stdin), (None, 0, StdinUse::Read));
}

#[test]
fn parts_stand_in_order_with_a_blank_line_between_them() {
    let request =
        PromptRequest { file: Some("p".into()), attachments: vec!["one".into()], ..words(&["do", "it", "@two"]) };
    let sources = Sources {
        file: Some(part("p", b"Read this.\n")),
        attachments: vec![part("one", b"1\n"), part("dir/\"two\"", b"2")],
        stdin: Some(b"data".to_vec()),
    };
    let text = assemble(&planned(&request), sources).unwrap().text;
    assert_eq!(
        text,
        "Read this.\n\ndo it\n\n<file path=\"one\">\n1\n</file>\n\n<file path=\"dir/&quot;two&quot;\">\n2\n</file>\n\n\
         <stdin>\ndata\n</stdin>"
    );
    assert_eq!(stdin_only(b"  verbatim \n\n").unwrap().text, "  verbatim \n\n");
}

#[test]
fn marks_are_removed_and_utf16_is_decoded_in06() {
    let inputs: [(&[u8], &str); 6] = [
        (b"hi", "hi"),
        (b"\xef\xbb\xbfhi", "hi"),
        (b"\xff\xfeh\0i\0", "hi"),
        (b"\xfe\xff\0h\0i", "hi"),
        (b"\xff\xfe\x3d\xd8\x00\xde", "\u{1f600}"),
        ("a\u{feff}b".as_bytes(), "a\u{feff}b"),
    ];
    for (bytes, text) in inputs {
        assert_eq!(stdin_only(bytes).unwrap().text, text, "{bytes:?}");
    }
}

#[test]
fn other_bytes_are_refused_with_their_offset_in06() {
    let inputs: [(&[u8], &str, &str); 12] = [
        (b"ab\xffc", "stdin is not valid UTF-8: byte 0xFF at offset 2", "LATIN1"),
        (b"\xef\xbb\xbfab\xff", "stdin is not valid UTF-8: byte 0xFF at offset 5", "LATIN1"),
        (b"ab\xe2\x82", "stdin is not valid UTF-8: byte 0xE2 at offset 2", "LATIN1"),
        (b"%PDF-\n1.7\xe2", "stdin is not valid UTF-8: byte 0xE2 at offset 9", ""),
        (b"\x01\xff", "stdin is not valid UTF-8: byte 0xFF at offset 1", ""),
        (b"\xff\xfeh\0\x00\xdci\0", "stdin is not valid UTF-16: byte 0x00 at offset 4", ""),
        (b"\xff\xfeh\0i", "stdin is not valid UTF-16: byte 0x69 at offset 4", ""),
        (b"ab\0c", "stdin holds a NUL byte at offset 2", ""),
        (b"h\0i\0", "stdin holds a NUL byte at offset 1", "UTF-16LE"),
        (b"\0h\0i", "stdin holds a NUL byte at offset 0", "UTF-16BE"),
        (b"\xef\xbb\xbf\0", "stdin holds a NUL byte at offset 3", ""),
        (b"\xff\xfe\0\0h\0\0\0", "stdin holds a NUL character", "UTF-32"),
    ];
    for (bytes, message, from) in inputs {
        let error = stdin_only(bytes).unwrap_err();
        assert_eq!(error.message, message, "{bytes:?}");
        let hint = error.hint.unwrap_or_default();
        assert!(hint.contains(from) && hint.contains("iconv") != from.is_empty(), "{bytes:?}: {hint}");
    }
}

#[test]
fn images_are_known_by_their_bytes_and_stand_apart_in_their_order() {
    let request = words(&["what", "is", "@one.txt", "@shot.png", "@two"]);
    let attach = |parts: Vec<Part>| assemble(&planned(&request), Sources { attachments: parts, ..Sources::default() });
    let kinds: [(Vec<u8>, &str); 5] =
        [(png(2, 2), "PNG"), (jpeg(2, 2), "JPEG"), (gif(2, 2), "GIF"), (webp(2, 2), "WebP"), (bmp(2, 2), "BMP")];
    for (bytes, kind) in kinds {
        let found = attach(vec![part("one.txt", &bytes), part("shot.png", b"1\n"), part("two", &bytes)]).unwrap();
        assert_eq!(found.text, "what is\n\n<file path=\"shot.png\">\n1\n</file>");
        let images: Vec<(&str, &[u8])> = found.images.iter().map(|i| (i.name.as_str(), i.bytes.as_slice())).collect();
        assert_eq!(images, [("one.txt", &bytes[..]), ("two", &bytes[..])], "{kind}");
        let error = stdin_only(&bytes).unwrap_err();
        assert_eq!(error.message, format!("stdin is a {kind} image, not text"));
        assert_eq!(error.hint.unwrap(), "-a FILE attaches an image");
    }
    let refused = |bytes: &[u8]| attach(vec![part("shot.png", bytes)]).unwrap_err().message;
    assert_eq!(refused(b"PK\0"), "shot.png holds a NUL byte at offset 2");
    for text in [&b"BMW is a car maker from Munich"[..], b"GIF89a is an image format", b"<svg/>", b"no PNG at all"] {
        let found = attach(vec![part("shot.png", text)]).unwrap();
        assert!(found.images.is_empty() && found.text.len() > 40, "text is text whatever it begins with or is called");
    }
}

#[test]
fn images_alone_are_a_prompt_and_stdin_is_its_text() {
    let request = words(&["@a.png"]);
    let with_stdin = |stdin: Option<&[u8]>| {
        let plan = plan(&request, StdinKind::Pipe).unwrap();
        let stdin = stdin.map(<[u8]>::to_vec);
        assemble(&plan, Sources { attachments: vec![part("a.png", &png(1, 1))], stdin, file: None }).unwrap()
    };
    for (stdin, text, warnings) in
        [(None, "", 0), (Some(&b"what is this?\n"[..]), "what is this?\n", 0), (Some(b"\n"), "", 1)]
    {
        let found = with_stdin(stdin);
        assert_eq!((found.text.as_str(), found.images.len(), found.warnings.len()), (text, 1, warnings), "{stdin:?}");
    }
}

#[test]
fn images_are_bounded_each_and_together() {
    let request = words(&["x"]);
    let attach = |parts: Vec<Part>| {
        let found = assemble(&planned(&request), Sources { attachments: parts, ..Sources::default() });
        found.map(|prompt| prompt.images.len()).map_err(|error| error.message)
    };
    let of_size = |bytes: usize| {
        let mut png = png(1, 1);
        png.resize(bytes, 0);
        part("a.png", &png)
    };
    assert_eq!(attach(vec![of_size(IMAGE_BYTES_MAX)]), Ok(1));
    let too_large = "a.png is larger than 5 MB, the limit of an image".to_owned();
    assert_eq!(attach(vec![of_size(IMAGE_BYTES_MAX + 1)]), Err(too_large));
    let many = IMAGES_BYTES_MAX / IMAGE_BYTES_MAX + 1;
    let together = "the attached images are larger than 64 MB together".to_owned();
    assert_eq!(attach(vec![of_size(IMAGE_BYTES_MAX); many]), Err(together));
    assert_eq!(attach(vec![of_size(100); IMAGES_MAX]), Ok(IMAGES_MAX));
    let count = "more than 100 images are attached".to_owned();
    assert_eq!(attach(vec![of_size(100); IMAGES_MAX + 1]), Err(count));
}

#[test]
fn text_up_to_the_limit_is_sent_and_one_byte_more_is_refused_in05() {
    let at_limit = vec![b'x'; TEXT_BYTES_MAX];
    assert_eq!(stdin_only(&at_limit).unwrap().text.len(), TEXT_BYTES_MAX);
    let mut over = at_limit;
    over.push(b'x');
    assert_eq!(stdin_only(&over).unwrap_err().message, "the prompt is longer than 10 MB");
}

/// A clock on which a wait takes no time, or for ever.
struct TestClock {
    passes: bool,
}

#[async_trait::async_trait]
impl Clock for TestClock {
    fn now_ms(&self) -> u64 {
        0
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }

    async fn sleep(&self, _: Duration) {
        if !self.passes {
            std::future::pending::<()>().await;
        }
    }
}

/// A source that gives nothing until it is released.
struct Gate {
    open: std::sync::mpsc::Receiver<()>,
    data: Cursor<Vec<u8>>,
}

impl Read for Gate {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.data.position() == 0 && self.open.recv().is_err() {
            return Ok(0);
        }
        self.data.read(buffer)
    }
}

struct Loaded {
    result: Result<pirn::cli::Prompt, UsageError>,
    notices: Vec<String>,
    took_stdin: bool,
}

fn loaded(
    request: &PromptRequest,
    base: &Path,
    stdin: StdinKind,
    source: Box<dyn Read + Send>,
    stdin_wait: Option<Duration>,
    clock: &TestClock,
    on_notice: impl Fn() + Send + Sync,
) -> Loaded {
    let took_stdin = std::sync::Arc::new(AtomicBool::new(false));
    let flag = std::sync::Arc::clone(&took_stdin);
    let mut notices = Vec::new();
    let mut notice = |text: &str| {
        notices.push(text.to_owned());
        on_notice();
    };
    let open_stdin = Box::new(move || {
        flag.store(true, Ordering::Relaxed);
        Ok(source)
    });
    let io = PromptIo { base, stdin, open_stdin, stdin_wait, clock, notice: &mut notice };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let result = runtime.block_on(load(request, io));
    Loaded { result, notices, took_stdin: took_stdin.load(Ordering::Relaxed) }
}

fn gate(data: &[u8]) -> (std::sync::mpsc::Sender<()>, Box<dyn Read + Send>) {
    let (release, open) = std::sync::mpsc::channel();
    (release, Box::new(Gate { open, data: Cursor::new(data.to_vec()) }))
}

const WAIT: Option<Duration> = Some(Duration::from_secs(3));

#[test]
fn silent_stdin_beside_a_prompt_is_announced_and_then_an_error_in01() {
    let (_keep, source) = gate(b"");
    let clock = TestClock { passes: true };
    let found = loaded(&words(&["Reply OK"]), Path::new("/"), StdinKind::Pipe, source, WAIT, &clock, || {});
    let error = found.result.unwrap_err();
    assert_eq!(error.message, "no data on stdin within 3s");
    assert!(error.hint.unwrap().contains("</dev/null or --no-stdin"));
    assert_eq!(found.notices, [NOTICE]);
}

#[test]
fn a_slow_producer_is_announced_and_its_data_arrives_in01() {
    for (request, expected) in
        [(words(&["explain"]), "explain\n\n<stdin>\ndata\n</stdin>"), (words(&[]), "data"), (words(&["-"]), "data")]
    {
        let (release, source) = gate(b"data");
        let clock = TestClock { passes: true };
        // Without a limit the wait goes on after the notice, which is when the producer speaks.
        let on_notice = move || release.send(()).unwrap();
        let found = loaded(&request, Path::new("/"), StdinKind::Pipe, source, None, &clock, on_notice);
        assert_eq!(found.result.unwrap().text, expected);
        assert_eq!(found.notices, [NOTICE]);
    }
}

#[test]
fn data_that_is_there_is_read_in_full_without_a_notice_in05() {
    let data = "0123456789abcdef".repeat(20_000);
    let source = Box::new(Cursor::new(data.clone().into_bytes()));
    let clock = TestClock { passes: false };
    let found = loaded(&words(&[]), Path::new("/"), StdinKind::Pipe, source, WAIT, &clock, || {});
    assert_eq!(found.result.unwrap().text, data);
    assert!(found.notices.is_empty());
}

#[test]
fn stdin_that_is_not_needed_is_never_opened_in01() {
    let no_stdin = PromptRequest { no_stdin: true, ..words(&["x"]) };
    for (request, kind) in
        [(words(&["x"]), StdinKind::Terminal), (words(&["x"]), StdinKind::Other), (no_stdin, StdinKind::Pipe)]
    {
        let clock = TestClock { passes: false };
        let source = Box::new(io::empty());
        let found = loaded(&request, Path::new("/"), kind, source, WAIT, &clock, || {});
        assert_eq!((found.result.unwrap().text.as_str(), found.took_stdin), ("x", false), "{kind:?}");
    }
}

#[test]
fn an_endless_source_ends_at_the_limit() {
    let clock = TestClock { passes: false };
    let source = Box::new(io::repeat(b'x'));
    let found = loaded(&words(&[]), Path::new("/"), StdinKind::Pipe, source, WAIT, &clock, || {});
    assert_eq!(found.result.unwrap_err().message, "the prompt is longer than 10 MB");
}

#[test]
fn files_are_read_below_the_base_and_their_absence_is_a_usage_error() {
    let directory = tempfile::tempdir().unwrap();
    let big = "large prompt ".repeat(25_000);
    std::fs::File::create(directory.path().join("p.md"))
        .and_then(|mut file| io::Write::write_all(&mut file, big.as_bytes()))
        .unwrap();
    let read = |request: &PromptRequest| {
        let clock = TestClock { passes: false };
        loaded(request, directory.path(), StdinKind::Terminal, Box::new(io::empty()), WAIT, &clock, || {}).result
    };
    let file = |name: &str| PromptRequest { file: Some(name.into()), ..words(&[]) };
    assert_eq!(read(&file("p.md")).unwrap().text, big, "IN-05 (c): 300 KB by -f");
    assert_eq!(read(&file("none.md")).unwrap_err().message, "cannot read none.md: no such file");
    assert_eq!(read(&file(".")).unwrap_err().message, "cannot read .: it is a directory");
    // No more of an image is read than shows that it is too large.
    let image = std::fs::File::create(directory.path().join("huge.png")).unwrap();
    io::Write::write_all(&mut &image, &png(1, 1)).unwrap();
    image.set_len(1 << 32).unwrap();
    let error = read(&words(&["@huge.png"])).unwrap_err();
    assert_eq!(error.message, "huge.png is larger than 5 MB, the limit of an image");
    let error = read(&words(&["ask", "@alice"])).unwrap_err();
    assert_eq!(error.message, "cannot read alice: no such file");
    assert!(error.hint.unwrap().contains("--"));
}
