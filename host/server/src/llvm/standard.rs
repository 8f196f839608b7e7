//! The standard streams, as C has them.

use super::stream::{Amount, FAILED, Reading};
use crate::services::{Append, Stdio, Stream};
use hostcall_locks::Mutex;
use std::sync::Arc;

/// The standard streams of a program.
pub(super) struct Standard {
    stdio: Arc<Stdio>,
    /// Held while the input is read, which may take for ever.
    pub input: Mutex<Reading>,
}

impl Standard {
    pub fn new(stdio: Arc<Stdio>) -> Self {
        Self { stdio, input: Mutex::default() }
    }

    /// Waits until more can be written.
    pub fn wait_for_room(&self) {
        self.stdio.sink().wait_for_room();
    }

    /// The outputs, to append to; nobody else does meanwhile.
    pub fn outputs(&self) -> Append<'_> {
        self.stdio.sink().append()
    }

    /// Appends bytes to a stream. `None` when there is no room and the caller may not wait; 0 when the stream's writer has
    /// failed.
    pub fn write(&self, stream: Stream, bytes: &[u8], may_wait: bool) -> Option<usize> {
        if may_wait {
            return Some(self.stdio.sink().write(stream, bytes).map_or(0, |()| bytes.len()));
        }
        let mut outputs = self.outputs();
        if outputs.has_failed(stream) {
            return Some(0);
        }
        if outputs.is_full() {
            return None;
        }
        outputs.text(stream, |out| out.extend_from_slice(bytes));
        Some(bytes.len())
    }

    /// Waits until all has been written. Returns C's result.
    pub fn flush(&self) -> i64 {
        if self.stdio.flush().is_ok() { 0 } else { FAILED }
    }

    /// Reads from the input, waiting for it.
    pub fn read(&self, amount: Amount, out: &mut Vec<u8>) {
        self.input.lock().read(&mut *self.stdio.stdin(), amount, out);
    }
}
