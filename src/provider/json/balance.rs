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
        for byte in text.bytes() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth = self.depth.saturating_add(1);
                    self.opened = true;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Whether a bracket was opened and all are closed again: the text is complete, or it never will be valid.
    pub fn is_closed(&self) -> bool {
        self.opened && self.depth == 0 && !self.in_string
    }
}
