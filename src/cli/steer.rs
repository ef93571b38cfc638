//! The message of `pirn steer`, from its words and standard input.
//!
//! Keeps true: a message is never empty; stdin is read only where it is named or where there are no words, so that a
//! call with words never waits; an `@word` is text.
//!
//! Must not know: sessions, what becomes of the message.

use super::decode::decode;
use super::load::PromptIo;
use super::prompt::{StdinKind, TEXT_BYTES_MAX, too_long};
use super::stdin::{Patience, collect, spawn_reader};
use super::{SteerArgs, UsageError, Word};

const HINT: &str = "pirn steer \"TEXT\", or pipe it in; pirn steer --abort ends the run";
/// What is told while nothing comes.
const NOTICE: &str = "waiting for stdin";
/// Between words and what stdin holds.
const SEPARATOR: &str = "\n\n";

/// The text to send: the words joined by one space, and behind them, where `-` stands among them or there are none,
/// what stdin holds, to its end however long that takes. Not for `--abort`, which has none.
///
/// # Errors
/// There is no text, or it is too long or no UTF-8; nothing was sent.
pub async fn steer_text(args: &SteerArgs, io: PromptIo<'_>) -> Result<String, UsageError> {
    let (dashes, words): (Vec<&Word>, Vec<&Word>) =
        args.words.iter().partition(|word| !word.literal && word.text == "-");
    let asked = !dashes.is_empty();
    let words: Vec<&str> = words.into_iter().map(|word| word.text.as_str()).collect();
    let mut text = words.join(" ");
    let terminal = io.stdin == StdinKind::Terminal;
    if asked && terminal {
        return Err(UsageError::new("- asks for stdin, but stdin is a terminal").with_hint(HINT));
    }
    if asked || (words.is_empty() && !terminal) {
        let piped = stdin_text(io).await?;
        if !text.is_empty() && !piped.is_empty() {
            text.push_str(SEPARATOR);
        }
        text.push_str(&piped);
    }
    if text.trim().is_empty() {
        return Err(UsageError::new("no text to send").with_hint(HINT));
    }
    if text.len() > TEXT_BYTES_MAX { Err(too_long()) } else { Ok(text) }
}

async fn stdin_text(io: PromptIo<'_>) -> Result<String, UsageError> {
    let open = io.open_stdin;
    let chunks = spawn_reader(open).map_err(|error| UsageError::new(format!("cannot read stdin: {error}")))?;
    // The usual notice names an option that is not one of this command.
    let tell = io.notice;
    let mut notice = |_: &str| tell(NOTICE);
    let bytes = collect(chunks, "stdin", Patience::Announced, io.clock, &mut notice).await?;
    decode(&bytes, "stdin")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{PromptIo, StdinKind, SteerArgs, Word};
    use super::steer_text;
    use crate::port::SystemClock;

    async fn text(words: &[(&str, bool)], stdin: StdinKind, holds: &'static [u8]) -> Result<String, String> {
        let words = words.iter().map(|(text, literal)| Word { text: (*text).to_owned(), literal: *literal }).collect();
        let clock = SystemClock::new();
        let mut told = |_: &str| {};
        let io = PromptIo {
            base: Path::new("/"),
            stdin,
            open_stdin: Box::new(move || Ok(Box::new(holds))),
            stdin_wait: None,
            clock: &clock,
            notice: &mut told,
        };
        steer_text(&SteerArgs { words, ..SteerArgs::default() }, io).await.map_err(|error| error.message)
    }

    #[tokio::test]
    async fn a_message_is_its_words_or_what_stdin_holds_cli_2_3() {
        use StdinKind::{File, Other, Pipe, Terminal};
        let piped: &[u8] = b"from the pipe\n";
        for (words, stdin, expected) in [
            (&[("fix", false), ("it", false)][..], Terminal, Ok("fix it")),
            (&[("fix", false), ("it", false)], Pipe, Ok("fix it")),
            (&[("@file", false)], Pipe, Ok("@file")),
            (&[], Pipe, Ok("from the pipe\n")),
            (&[], File, Ok("from the pipe\n")),
            (&[], Other, Ok("from the pipe\n")),
            (&[("-", false)], Pipe, Ok("from the pipe\n")),
            (&[("see", false), ("-", false), ("this", false)], Pipe, Ok("see this\n\nfrom the pipe\n")),
            (&[("-", true)], Pipe, Ok("-")),
            (&[], Terminal, Err("no text to send")),
            (&[(" ", false)], Pipe, Err("no text to send")),
            (&[("-", false)], Terminal, Err("- asks for stdin, but stdin is a terminal")),
        ] {
            let found = text(words, stdin, piped).await;
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{words:?} {stdin:?}");
        }
        assert_eq!(text(&[], Pipe, b" \n").await, Err("no text to send".to_owned()));
        assert!(text(&[], Pipe, b"\xff").await.unwrap_err().contains("UTF-8"));
    }
}
