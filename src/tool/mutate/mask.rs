//! Masks that a model read and would write back (tool rule W6).
//!
//! Keeps true: no text with a mask reaches a file.
//!
//! Must not know: which secrets there are, who masks them.

use crate::process::mask::MASK_START;
use crate::tool::Failure;

/// Characters of a name that are repeated to the model.
const NAME_CHARS_MAX: usize = 80;

/// Refuses a text that holds a mask: the secret it stands for would be lost.
///
/// # Errors
/// `invalid_args`, naming the mask.
pub(in crate::tool) fn refuse_masks(shown: &str, text: &str) -> Result<(), Failure> {
    let Some((_, rest)) = text.split_once(MASK_START) else { return Ok(()) };
    let is_name = |c: &char| !c.is_control() && !matches!(c, ']' | '[');
    let name: String = rest.chars().take_while(is_name).take(NAME_CHARS_MAX).collect();
    let text = format!(
        "{shown} not changed: the text holds {MASK_START}{name}], a mask for a secret the model cannot see. Edit around it, \
         or leave that line as it is."
    );
    Err(Failure::new("invalid_args", text))
}

#[cfg(test)]
mod tests {
    use super::refuse_masks;

    #[test]
    fn a_mask_is_refused_by_its_name_w6() {
        assert_eq!(refuse_masks("f", "redacted: [redacted] [Redacted:x]"), Ok(()));
        for (text, mask) in [
            ("key = \"[redacted:OPENAI_API_KEY]\"\n[redacted:B]", "[redacted:OPENAI_API_KEY]"),
            ("[redacted:", "[redacted:]"),
            ("[redacted:]", "[redacted:]"),
            ("[redacted:half\nrest]", "[redacted:half]"),
            ("[redacted:[redacted:A]]", "[redacted:]"),
        ] {
            let want = format!(
                "f not changed: the text holds {mask}, a mask for a secret the model cannot see. Edit around it, or \
                 leave that line as it is."
            );
            let failure = refuse_masks("f", text).unwrap_err();
            assert_eq!((failure.code, failure.message), ("invalid_args", want));
        }
        let long = refuse_masks("f", &format!("[redacted:{}]", "é".repeat(500))).unwrap_err();
        assert!(long.message.contains(&format!("[redacted:{}]", "é".repeat(80))));
    }
}
