//! From a prompt as it was read to the one the agent gets.
//!
//! Keeps true: an image the model does not take, or that cannot be sent, ends the call before anything is sent, and its
//! file is named.
//!
//! Must not know: how images are recognised or made smaller, how a mistake is printed.

use crate::cli::{Prompt, PromptImage};
use crate::model::{Content, ErrorKind, ErrorRecord, Extra, Message, Model, UserContent, UserMessage};
use crate::port::Inputs;
use crate::tool::image::{ImageError, SENT_BYTES_MAX, SIDE_MAX, blocks};

/// Makes the message of a prompt: its text, then each image behind the line that tells what it is (tool rule I1). May
/// take a second where images have to be made smaller.
///
/// # Errors
/// An image cannot be sent to this model: kind `usage`.
pub(super) fn message(prompt: Prompt, model: &Model, now_ms: u64) -> Result<Message, ErrorRecord> {
    let inputs = Inputs { text: true, image: model.takes_images() };
    let mut content = Vec::new();
    if !prompt.text.is_empty() {
        content.push(Content::text(prompt.text));
    }
    for image in prompt.images {
        content.extend(blocks(&image.bytes, inputs).map_err(|error| refused(&image, &error, model))?);
    }
    let content = UserContent::Blocks(content);
    Ok(Message::User(UserMessage { content, timestamp: now_ms, extra: Extra::new() }))
}

fn refused(image: &PromptImage, error: &ImageError, model: &Model) -> ErrorRecord {
    let (name, spec) = (&image.name, model.spec());
    let usage = |text: String| ErrorRecord::new(ErrorKind::Usage, text);
    match error {
        ImageError::NotTaken(_) => usage(format!("{name} is an image, and {spec} takes none")).with_hint(format!(
            "name a model that does: pirn models tells; or, if {spec} does, say so in a [models.NAME] table: \
             id = \"{spec}\", input = [\"text\", \"image\"]"
        )),
        ImageError::TooLarge(facts) => usage(format!("{name} is too large to attach: {facts}"))
            .with_hint(format!("make it smaller first: at most {SIDE_MAX} pixels a side and {SENT_BYTES_MAX} bytes")),
        ImageError::CutOff(facts) => usage(format!("{name} is cut off: {facts}")),
        ImageError::Bitmap(facts) => {
            usage(format!("{name} is a bitmap, which providers do not take: {facts}")).with_hint("convert it to PNG")
        }
        ImageError::Unreadable => usage(format!("{name}: {error}")),
    }
}
