//! The standard streams, as C has them.

use super::stream::{Amount, Reading};
use crate::services::{Outputs, Stdio, Stream};
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

    /// Waits until more can be written.
    pub fn wait_for_room(&self) {
        self.stdio.outputs().append(Stream::Stdout, |_| ());
    }

    /// The outputs, to append to; nobody else does meanwhile.
    pub fn outputs(&self) -> Outputs<'_> {
        self.stdio.outputs()
    }

    /// Appends bytes to a stream's buffer. `None` when it has no room and the caller may not wait.
    pub fn write(&self, stream: Stream, bytes: &[u8], may_wait: bool) -> Option<usize> {
        let mut outputs = self.stdio.outputs();
        let has_room = may_wait || !outputs.is_full();
        has_room.then(|| outputs.append(stream, |out| out.extend_from_slice(bytes)))?;
        Some(bytes.len())
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
