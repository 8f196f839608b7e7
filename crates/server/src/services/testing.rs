//! What the handlers' tests share.

use hostcall_abi::status::CallError;
use hostcall_service::{Output, Reply};
use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Reply for Bytes {
    fn words(&mut self, _words: &[u64]) {}
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Runs a handler with an output of this capacity; its result, and what it put there.
pub fn collect<R>(capacity: usize, handler: impl FnOnce(&mut Output<'_>) -> R) -> (R, Vec<u8>) {
    let mut bytes = Bytes::default();
    let result = handler(&mut Output::new(&mut bytes, capacity));
    (result, bytes.0)
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
