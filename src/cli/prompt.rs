//! From the parts of a call to the prompt, without touching anything.
//!
//! Keeps true: parts stand in the order file, words, attachments, stdin, separated by a blank line and otherwise
//! unchanged; images stand apart, in the order they were attached; an empty prompt is refused before anything is read
//! or sent (IN-08); text is bounded by [`TEXT_BYTES_MAX`].
//!
//! Must not know: how files and stdin are read.

use std::path::{Path, PathBuf};

use super::attach::{Album, PromptImage};
use super::decode::decode;
use super::usage::shown;
use super::{UsageError, Word};
use crate::model::ImageKind;

/// Bytes of text in a prompt.
pub const TEXT_BYTES_MAX: usize = 10 * 1024 * 1024;

const NO_PROMPT_HINT: &str = "pirn \"PROMPT\", or pipe it in; pirn -h shows the options";

/// What a call says about its prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptRequest {
    pub words: Vec<Word>,
    /// `-f`.
    pub file: Option<PathBuf>,
    /// `-a`, before the `@` words.
    pub attachments: Vec<PathBuf>,
    pub no_stdin: bool,
    /// No prompt is a wish of its own (`-c` alone), told by an empty [`Prompt::text`].
    pub may_be_empty: bool,
}

/// What file descriptor 0 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinKind {
    Terminal,
    Pipe,
    File,
    /// A socket or a device; the null device is one.
    Other,
}

/// Whether stdin is read, and how long its first byte may take (IN-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinUse {
    Leave,
    /// To its end, however long that takes.
    Read,
    /// To its end, if the first byte comes within `input.stdin_wait`.
    ReadWithin,
}

/// What has to be read for a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub file: Option<PathBuf>,
    /// The words, joined by one space.
    pub text: Option<String>,
    pub attachments: Vec<PathBuf>,
    pub stdin: StdinUse,
    /// An empty stdin means no prompt, which is what was asked for.
    pub may_be_empty: bool,
}

/// Bytes of a file, with the name to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// What was read for a [`Plan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub file: Option<Part>,
    pub attachments: Vec<Part>,
    pub stdin: Option<Vec<u8>>,
}

/// A prompt ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Empty only where images are the whole prompt.
    pub text: String,
    /// In the order they were attached.
    pub images: Vec<PromptImage>,
    /// For stderr: sentences without a final period.
    pub warnings: Vec<String>,
}

impl Prompt {
    /// Whether there is no prompt, where that is allowed.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.images.is_empty()
    }
}

/// Decides what to read.
///
/// # Errors
/// There is no prompt, or the call contradicts itself.
pub fn plan(request: &PromptRequest, stdin: StdinKind) -> Result<Plan, UsageError> {
    let dash = |path: &Path| path.as_os_str() == "-";
    let mut explicit = false;
    let mut attachments = Vec::new();
    for path in &request.attachments {
        if dash(path) { explicit = true } else { attachments.push(path.clone()) }
    }
    let file = request.file.clone().filter(|path| !dash(path));
    explicit |= request.file.is_some() && file.is_none();
    let mut words = Vec::new();
    for word in &request.words {
        match special(word) {
            Special::Stdin => explicit = true,
            Special::Attachment(path) => attachments.push(path),
            Special::None => words.push(word.text.as_str()),
        }
    }
    let text = words.join(" ");
    if !words.is_empty() && text.trim().is_empty() {
        return Err(UsageError::new("the prompt is empty").with_hint(NO_PROMPT_HINT));
    }
    let text = (!text.is_empty()).then_some(text);
    let has_text = file.is_some() || text.is_some() || !attachments.is_empty();
    let stdin = stdin_use(request, stdin, explicit, has_text)?;
    let may_be_empty = request.may_be_empty && !explicit && !has_text;
    Ok(Plan { file, text, attachments, stdin, may_be_empty })
}

enum Special {
    None,
    Stdin,
    Attachment(PathBuf),
}

fn special(word: &Word) -> Special {
    if word.literal {
        return Special::None;
    }
    match word.text.strip_prefix('@') {
        Some("-") => Special::Stdin,
        Some(path) if !path.is_empty() && !path.contains(char::is_whitespace) => Special::Attachment(path.into()),
        _ if word.text == "-" => Special::Stdin,
        _ => Special::None,
    }
}

fn stdin_use(
    request: &PromptRequest,
    stdin: StdinKind,
    explicit: bool,
    has_text: bool,
) -> Result<StdinUse, UsageError> {
    let no_prompt = || UsageError::new("no prompt").with_hint(NO_PROMPT_HINT);
    // Data on stdin may be a prompt but need not: it is looked for as if there were one already.
    let has_text = has_text || request.may_be_empty;
    match (stdin, request.no_stdin) {
        (_, true) if explicit => Err(UsageError::new("- asks for stdin, but --no-stdin forbids it")),
        (StdinKind::Terminal, _) if explicit => Err(UsageError::new("- asks for stdin, but stdin is a terminal")
            .with_hint("pipe the text in, or type it as the prompt")),
        (StdinKind::Terminal, false) if !has_text => Err(no_prompt().with_help()),
        (_, true) if !has_text => Err(no_prompt()),
        (StdinKind::Terminal, _) | (_, true) => Ok(StdinUse::Leave),
        _ if explicit || !has_text => Ok(StdinUse::Read),
        (StdinKind::Pipe | StdinKind::File, false) => Ok(StdinUse::ReadWithin),
        (StdinKind::Other, false) => Ok(StdinUse::Leave),
    }
}

/// Puts the prompt together.
///
/// # Errors
/// A part is no text, an image where that is none, empty where it may not be, or too long, or all of it is too long.
pub fn assemble(plan: &Plan, sources: Sources) -> Result<Prompt, UsageError> {
    let Sources { file, attachments, stdin } = sources;
    Joined::before_stdin(plan, file, attachments)?.finish(stdin)
}

/// Decodes a prompt file or stdin; an image there deserves a clearer word than "not UTF-8".
fn decode_text(bytes: &[u8], name: &str) -> Result<String, UsageError> {
    match ImageKind::of(bytes) {
        Some(kind) => {
            let error = UsageError::new(format!("{name} is a {} image, not text", kind.name()));
            Err(error.with_hint("-a FILE attaches an image"))
        }
        None => decode(bytes, name),
    }
}

/// Parts separated by a blank line, within the limit.
#[derive(Default)]
pub(super) struct Joined {
    text: String,
    may_be_empty: bool,
    images: Vec<PromptImage>,
}

impl Joined {
    /// The parts that need no wait, so that a mistake in one of them is found before stdin is waited for. Fails as
    /// [`assemble`] does.
    pub(super) fn before_stdin(plan: &Plan, file: Option<Part>, attachments: Vec<Part>) -> Result<Self, UsageError> {
        let mut joined = Self { may_be_empty: plan.may_be_empty, ..Self::default() };
        if let Some(part) = file {
            let text = decode_text(&part.bytes, &part.name)?;
            if text.trim().is_empty() {
                return Err(UsageError::new(format!("the prompt file {} is empty", part.name)));
            }
            joined.add(&text)?;
        }
        if let Some(text) = &plan.text {
            joined.add(text)?;
        }
        let mut album = Album::default();
        for part in attachments {
            if album.admits(&part)? {
                joined.images.push(PromptImage { name: shown_path(&part.name), bytes: part.bytes });
                continue;
            }
            let text = decode(&part.bytes, &part.name)?;
            joined.add_block(&format!("<file path=\"{}\">", escape(&part.name)), &text, "</file>")?;
        }
        Ok(joined)
    }

    /// The prompt, with what came on stdin behind everything else.
    pub(super) fn finish(mut self, stdin: Option<Vec<u8>>) -> Result<Prompt, UsageError> {
        let mut warnings = Vec::new();
        if let Some(bytes) = stdin {
            let text = decode_text(&bytes, "stdin")?;
            match (text.trim().is_empty(), self.text.is_empty()) {
                (true, true) if self.may_be_empty => {}
                (true, true) if self.images.is_empty() => {
                    return Err(UsageError::new("no prompt: stdin is empty").with_hint(NO_PROMPT_HINT));
                }
                (true, _) => warnings.push("stdin is empty; only the prompt was sent".to_owned()),
                (false, true) => self.add(&text)?,
                (false, false) => self.add_block("<stdin>", &text, "</stdin>")?,
            }
        }
        Ok(Prompt { text: self.text, images: self.images, warnings })
    }

    fn add(&mut self, part: &str) -> Result<(), UsageError> {
        self.separate();
        self.text.push_str(part);
        self.check()
    }

    /// A block ends on a line of its own, so that data without a last line feed stays as it is.
    fn add_block(&mut self, open: &str, body: &str, close: &str) -> Result<(), UsageError> {
        self.separate();
        self.text.push_str(open);
        self.text.push('\n');
        self.text.push_str(body);
        if !body.is_empty() && !body.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(close);
        self.check()
    }

    fn separate(&mut self) {
        while !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn check(&self) -> Result<(), UsageError> {
        if self.text.len() <= TEXT_BYTES_MAX {
            return Ok(());
        }
        Err(too_long())
    }
}

/// The error for a prompt over the limit.
pub(super) fn too_long() -> UsageError {
    const MIB: usize = 1024 * 1024;
    UsageError::new(format!("the prompt is longer than {} MB", TEXT_BYTES_MAX / MIB))
        .with_hint("send a part of it, or let the agent read the file itself: -t ro")
}

fn escape(path: &str) -> String {
    shown_path(path).replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A path on one line; a file name may hold a line feed.
fn shown_path(path: &str) -> String {
    if path.contains(char::is_control) { shown(path) } else { path.to_owned() }
}
