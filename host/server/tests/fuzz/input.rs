//! A fuzzer's input, read as bytes and numbers.

/// What is left of the input; zeroes follow its end.
pub struct Input<'a> {
    pub bytes: &'a [u8],
    /// What kernels call the function by that a server has: another one in each run.
    #[allow(dead_code, reason = "some servers have no functions")]
    pub function: u64,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, function: 0 }
    }

    /// Takes the next byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.bytes.split_first().unwrap_or((&0, &[]));
        self.bytes = rest;
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
