//! A thread for the second half of an export: it writes, and compresses where that is asked for, while the trace is read on.

use crate::tracer::no_thread;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Bytes that are written at once.
pub(super) const WRITE_BYTES: usize = 1 << 20;

/// Buffers of so many bytes: one that is filled, one that is written, and one in between.
const BUFFERS: usize = 3;

/// A thread that does something with each item that it is given.
pub(super) struct Behind<'scope, T> {
    items: Option<SyncSender<T>>,
    thread: Option<ScopedJoinHandle<'scope, io::Result<()>>>,
}

impl<'scope, T: Send + 'scope> Behind<'scope, T> {
    /// Starts a thread for `body`, which takes items until there are no more or it fails. `waiting` of them may wait for it.
    pub fn new<'env>(
        scope: &'scope Scope<'scope, 'env>,
        waiting: usize,
        body: impl FnOnce(Receiver<T>) -> io::Result<()> + Send + 'scope,
    ) -> io::Result<Self> {
        let (items, given) = sync_channel(waiting);
        let thread = Builder::new().name("hostcall-export".to_owned());
        let thread = thread.spawn_scoped(scope, move || body(given));
        let thread = thread.map_err(|error| no_thread("an export", &error))?;
        Ok(Self { items: Some(items), thread: Some(thread) })
    }

    /// Gives the thread an item, and waits while too many wait for it. Returns the thread's error once it has failed.
    pub fn give(&mut self, item: T) -> io::Result<()> {
        match &self.items {
            Some(items) if items.send(item).is_ok() => Ok(()),
            _ => match self.finish() {
                Ok(()) => Err(io::Error::other("the output has ended")),
                Err(error) => Err(error),
            },
        }
    }

    /// Waits until the thread has done everything, and returns its error if it failed.
    pub fn finish(&mut self) -> io::Result<()> {
        self.items = None;
        match self.thread.take().map(ScopedJoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

/// Gathers bytes, which a thread writes.
pub(super) struct Writer<'scope> {
    buffer: Vec<u8>,
    empty: Receiver<Vec<u8>>,
    full: Behind<'scope, Vec<u8>>,
}

impl<'scope> Writer<'scope> {
    pub fn new<'env>(
        scope: &'scope Scope<'scope, 'env>,
        mut to: impl Write + Send + 'scope,
    ) -> io::Result<Self> {
        let (written, empty) = sync_channel(BUFFERS);
        for _ in 1..BUFFERS {
            written.send(Vec::with_capacity(WRITE_BYTES)).expect("there is room for all buffers");
        }
        let full = Behind::new(scope, BUFFERS, move |full: Receiver<Vec<u8>>| {
            for mut bytes in full {
                to.write_all(&bytes)?;
                bytes.clear();
                // Nobody takes it any more once all is given.
                let _ = written.send(bytes);
            }
            to.flush()
        })?;
        Ok(Self { buffer: Vec::with_capacity(WRITE_BYTES), empty, full })
    }

    fn give(&mut self) -> io::Result<()> {
        // A thread that has failed gives no buffer back, and says so when it is given one.
        let next = self.empty.recv().unwrap_or_default();
        self.full.give(std::mem::replace(&mut self.buffer, next))
    }

    /// Writes what is left, and waits until all is written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.give()?;
        self.full.finish()
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() == WRITE_BYTES {
            self.give()?;
        }
        let taken = bytes.len().min(WRITE_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// Does nothing: who writes flushes in the end, when [`Writer::finish`] writes what is left.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_locks::Mutex;

    /// Takes so many bytes, and then fails.
    struct Full<'a>(usize, &'a Mutex<Vec<u8>>);

    impl Write for Full<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut all = self.1.lock();
            let taken = bytes.len().min(self.0 - all.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            all.extend(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_written_in_order() {
        let (all, bytes) =
            (Mutex::default(), (0..5_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect::<Vec<_>>());
        std::thread::scope(|scope| {
            let mut writer = Writer::new(scope, Full(usize::MAX, &all)).unwrap();
            bytes.chunks(70_001).for_each(|part| writer.write_all(part).unwrap());
            writer.finish().unwrap();
        });
        assert!(all.into_inner() == bytes);
    }

    #[test]
    fn a_full_disk_is_told_and_nobody_waits() {
        let (all, few) = (Mutex::default(), Mutex::default());
        std::thread::scope(|scope| {
            let mut writer = Writer::new(scope, Full(1_500_000, &all)).unwrap();
            let part = vec![1; 100_000];
            let failed = (0..1000).find_map(|_| writer.write_all(&part).err()).expect("10 MB do not fit");
            assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
            assert!(writer.write_all(&[0; 2 * WRITE_BYTES]).is_err() && writer.finish().is_err());
            // What is found only by the last bytes is told at the end.
            let mut writer = Writer::new(scope, Full(10, &few)).unwrap();
            writer.write_all(&[2; 11]).unwrap();
            assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        });
        assert_eq!(all.into_inner().len(), 1_500_000);
    }
}
