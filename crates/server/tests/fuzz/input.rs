//! A fuzzer's input, read as bytes and numbers.

/// What is left of the input; zeroes follow its end.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// Takes the next byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Takes a number that `kind` begins: of two bytes below 0xe0, of eight from there on.
    pub fn number(&mut self, kind: u8) -> u64 {
        match kind {
            0..0xe0 => u16::from_le_bytes([self.byte(), self.byte()]).into(),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }
}
