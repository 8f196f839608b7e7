//! What the handlers' tests share.

use hostcall_abi::status::CallError;
use hostcall_locks::Mutex;
use hostcall_service::{Output, Reply};
use std::io::{self, Write};
use std::sync::Arc;

struct Bytes {
    bytes: Vec<u8>,
    /// For more than these there is no memory.
    most: usize,
}

impl Bytes {
    fn check_room(&self, more: usize) -> Result<(), CallError> {
        if self.bytes.len() + more > self.most { Err(CallError::Busy) } else { Ok(()) }
    }
}

impl Reply for Bytes {
    fn words(&mut self, _words: &[u64]) {}
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.check_room(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
    fn fill(&mut self, room: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, CallError> {
        self.check_room(room)?;
        let mut bytes = vec![0; room];
        let filled = fill(&mut bytes);
        self.bytes.extend_from_slice(&bytes[..filled]);
        Ok(filled)
    }
}

/// Runs a handler with an output of this capacity; its result, and what it put there.
pub fn collect<R>(capacity: usize, handler: impl FnOnce(&mut Output<'_>) -> R) -> (R, Vec<u8>) {
    collect_at_most(usize::MAX, capacity, handler)
}

/// Runs a handler with an output of this capacity, where there is memory for `most` bytes of it. Returns its result, and
/// what it put there.
pub fn collect_at_most<R>(
    most: usize,
    capacity: usize,
    handler: impl FnOnce(&mut Output<'_>) -> R,
) -> (R, Vec<u8>) {
    let mut bytes = Bytes { bytes: Vec::new(), most };
    let result = handler(&mut Output::new(&mut bytes, capacity));
    (result, bytes.bytes)
}

/// A writer whose bytes can be looked at.
#[derive(Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
