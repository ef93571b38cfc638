use memchr::memchr2;

/// Follows the brackets of a JSON text that arrives in pieces, so that nobody has to parse it again to learn whether
/// its object is complete. Looks at every byte once.
#[derive(Clone, Debug, Default)]
pub struct Balance {
    depth: usize,
    in_string: bool,
    escaped: bool,
    opened: bool,
}

impl Balance {
    /// Takes the next piece.
    pub fn feed(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            rest = if self.in_string { self.inside(rest) } else { self.outside(rest) };
        }
    }

    /// Reads on to the end of a string; most of a long text is in one.
    fn inside<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut at = usize::from(std::mem::take(&mut self.escaped));
        while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            at = at.saturating_add(found);
            if bytes.get(at) == Some(&b'"') {
                self.in_string = false;
                return bytes.get(at.saturating_add(1)..).unwrap_or_default();
            }
            // Whatever follows the backslash is not the end; it may come with the next piece.
            at = at.saturating_add(2);
        }
        self.escaped = at > bytes.len();
        &[]
    }

    /// Reads on to the beginning of a string.
    fn outside<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.in_string = true;
                    return bytes.get(at.saturating_add(1)..).unwrap_or_default();
                }
                b'{' | b'[' => {
                    self.depth = self.depth.saturating_add(1);
                    self.opened = true;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        &[]
    }

    /// Whether a bracket was opened and all are closed again: the text is complete, or it never will be valid.
    pub fn is_closed(&self) -> bool {
        self.opened && self.depth == 0 && !self.in_string
    }
}
