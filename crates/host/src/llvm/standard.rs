//! The standard streams, as C has them.

use super::stream::{Amount, Reading};
use crate::services::{Stdio, Stream};
use parking_lot::Mutex;
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

    /// Whether so much waits to be written that more would have to wait.
    pub fn is_full(&self) -> bool {
        self.stdio.is_full()
    }

    /// Waits until more can be written.
    pub fn wait_for_room(&self) {
        self.stdio.outputs().append(Stream::Stdout, |_| ());
    }

    /// Appends what `write` appends to a stream's buffer.
    pub fn append<R>(&self, stream: Stream, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        self.stdio.outputs().append(stream, write)
    }

    /// Waits until all has been written.
    pub fn flush(&self) {
        self.stdio.flush();
    }

    /// Reads from the input, waiting for it.
    pub fn read(&self, amount: Amount, out: &mut Vec<u8>) {
        self.input.lock().read(&mut *self.stdio.stdin(), amount, out);
    }
}
