//! Removes from foreign text what a terminal or a build log would obey.
//!
//! Keeps true: total, whatever the input; the result holds no control character but LF and TAB; clean text is
//! unchanged and cleaning twice is cleaning once; cutting the input anywhere and feeding the pieces gives the same
//! result. A sequence that never ends swallows at most the rest of its line.
//!
//! Must not know: which stream the text is for.

/// Where in a control sequence the text stands (ECMA-48).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// Behind ESC.
    Escape,
    /// Behind ESC and an intermediate character.
    Intermediate,
    /// Behind `ESC [` or its one-character form.
    Csi,
    /// Inside a string that a terminator ends: OSC, DCS, SOS, PM, APC.
    Text,
    /// Behind ESC inside such a string.
    TextEscape,
}

/// Removes control sequences from text that comes in pieces.
#[derive(Clone, Debug, Default)]
pub struct Sanitizer {
    state: State,
}

impl Sanitizer {
    /// Outside of any sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the harmless part of the next piece.
    pub fn push(&mut self, piece: &str, out: &mut String) {
        for character in piece.chars() {
            self.step(character, out);
        }
    }

    fn step(&mut self, character: char, out: &mut String) {
        let next = match (self.state, character) {
            (State::Ground, _) => return self.ground(character, out),
            (State::Escape, '[') | (State::Csi, ' '..='?') => State::Csi,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::Text,
            (State::Escape | State::Intermediate, ' '..='/') => State::Intermediate,
            (State::Escape | State::Intermediate, '0'..='~')
            | (State::Csi, '@'..='~')
            | (State::Text, '\u{7}' | '\u{18}' | '\u{1a}' | '\u{9c}')
            | (State::TextEscape, '\\') => State::Ground,
            (State::Text, '\u{1b}') => State::TextEscape,
            // An unfinished string ends with its line, or a stray ESC would swallow the rest of the answer.
            (State::Text, '\n') | (State::Escape | State::Intermediate | State::Csi, _) => {
                return self.ground(character, out);
            }
            (State::Text, _) => State::Text,
            (State::TextEscape, _) => {
                self.state = State::Escape;
                return self.step(character, out);
            }
        };
        self.state = next;
    }

    fn ground(&mut self, character: char, out: &mut String) {
        self.state = match character {
            '\u{1b}' => State::Escape,
            '\u{9b}' => State::Csi,
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => State::Text,
            '\n' | '\t' => {
                out.push(character);
                State::Ground
            }
            _ if character.is_control() => State::Ground,
            _ => {
                out.push(character);
                State::Ground
            }
        };
    }
}

/// Cleans one whole text.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    Sanitizer::new().push(text, &mut out);
    out
}

/// Bytes of a text that are looked at for each character a line may have; what is removed and what is white space may
/// be most of them.
const READ_BYTES_PER_CHAR: usize = 64;

/// Makes one line of foreign text for stderr: clean, white space and line ends as one blank, at most `chars_max`
/// characters, nothing that reorders the line or that a build system reads as its command.
pub fn line(text: &str, chars_max: usize) -> String {
    // The rest of a long text can not be seen in the line.
    let mut read = chars_max.saturating_mul(READ_BYTES_PER_CHAR).min(text.len());
    while !text.is_char_boundary(read) {
        read = read.saturating_sub(1);
    }
    // A carriage return separates words here; cleaning would join them.
    let cleaned = clean(&text.get(..read).unwrap_or_default().replace('\r', " "));
    let mut words = String::new();
    for word in cleaned.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().filter(|c| !reorders(*c)));
        // A later piece can not make a shown one longer than it is.
        if words.len() > chars_max.saturating_mul(4) {
            break;
        }
    }
    let safe = words.replace("##[", "# #[").replace("##vso[", "# #vso[");
    if safe.chars().count() <= chars_max {
        return safe;
    }
    let mut cut: String = safe.chars().take(chars_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Characters that turn the writing direction of what stands around them.
fn reorders(character: char) -> bool {
    matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
