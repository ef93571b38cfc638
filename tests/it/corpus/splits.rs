//! The properties that the fuzz targets and the replay of their corpora check.

use pirn::model::ErrorRecord;
use pirn::port::ProviderEvent;
use pirn::provider::sse::{SseDecoder, SseLimits};
use pirn::provider::wire::Decoder;
use pirn::provider::wire::openai_chat::{ChatDecoder, ChatDecoderOptions};

/// Small enough that an input of some kilobytes reaches them.
const LIMITS: SseLimits = SseLimits { line_bytes: 1024, event_bytes: 1536, body_bytes: 4096 };

/// The sizes of the pieces an input is read in, besides whole.
const PIECES: [usize; 3] = [1, 2, 7];

/// An event stream.
pub(crate) fn sse(bytes: &[u8]) {
    let whole = events([bytes].into_iter());
    for size in PIECES {
        assert_eq!(events(bytes.chunks(size)), whole, "in pieces of {size}");
    }
}

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut decoder = SseDecoder::with_limits(LIMITS);
    let mut seen = Vec::new();
    let mut drain = |decoder: &mut SseDecoder| loop {
        match decoder.next_item() {
            Ok(None) => return false,
            Ok(Some(item)) => seen.push(format!("{item:?}")),
            Err(error) => {
                seen.push(error.to_string());
                return true;
            }
        }
    };
    for piece in pieces {
        decoder.push(piece);
        if drain(&mut decoder) {
            return seen;
        }
    }
    decoder.finish();
    drain(&mut decoder);
    seen
}

/// The body of a chat completion; the first byte chooses the dialect. `contract` checks the events of a reply and is
/// told whether it came to its end.
pub(crate) fn chat(bytes: &[u8], contract: fn(&[ProviderEvent], bool)) {
    let (dialect, body) = bytes.split_at_checked(1).unwrap_or((&[0], bytes));
    let mut options = ChatDecoderOptions::new("fuzz", "m");
    options.think_tags = dialect[0] & 1 == 1;
    options.finish_reason_required = dialect[0] & 2 == 0;
    let whole = reply(&options, [body].into_iter());
    contract(&whole.0, whole.1.is_none());
    for size in PIECES {
        assert_eq!(reply(&options, body.chunks(size)), whole, "in pieces of {size}");
    }
}

fn reply<'a>(
    options: &ChatDecoderOptions,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<ProviderEvent>, Option<ErrorRecord>) {
    let mut decoder = ChatDecoder::with_limits(options.clone(), LIMITS);
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(error) = decoder.push(piece, &mut out) {
            return (out, Some(error));
        }
        if decoder.is_done() {
            return (out, None);
        }
    }
    let error = decoder.finish(&mut out).err();
    (out, error)
}
