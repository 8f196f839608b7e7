//! The two words of each stream: when its launches shall not begin, in memory of the device, and which of them posted last,
//! in the host's.
#![allow(unsafe_code)] // reads and writes words that kernels use

use super::core::Core;
use super::seam::{BackendError, DeviceAddress, Memory, Pinned};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Streams that a device can have at once.
pub(crate) const STREAMS: usize = 4096;

/// The words of all streams of a device.
pub(crate) struct StreamWords {
    core: Arc<Core>,
    stop_at: Arc<dyn Memory>,
    last_post: Arc<dyn Pinned>,
    free: Mutex<Vec<usize>>,
}

impl StreamWords {
    pub fn new(core: &Arc<Core>) -> Result<Arc<Self>, BackendError> {
        let backend = &core.backend;
        let stop_at = backend.allocate(STREAMS * 8)?;
        // SAFETY: the memory is new, and as long.
        unsafe { backend.write_now(stop_at.address(), &[0xff; STREAMS * 8]) }?;
        let last_post = backend.pin(STREAMS * 8)?;
        let free = Mutex::new((0..STREAMS).rev().collect());
        Ok(Arc::new(Self { core: core.clone(), stop_at, last_post, free }))
    }

    /// Takes the words of a new stream. `None` when there are as many streams as there can be.
    pub fn take(self: &Arc<Self>) -> Option<StreamWord> {
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let words = StreamWord { words: self.clone(), index, stopping: Mutex::new(()) };
        words.posted().store(0, Ordering::Relaxed);
        Some(words)
    }
}

/// The words of one stream.
pub(crate) struct StreamWord {
    words: Arc<StreamWords>,
    index: usize,
    /// Held by whoever writes the first word.
    stopping: Mutex<()>,
}

impl StreamWord {
    /// Returns the address of the word that says from which launch on none begins.
    pub fn stop_at(&self) -> DeviceAddress {
        self.words.stop_at.address().offset(8 * self.index as u64)
    }

    /// Returns the address of the word that says which launch posted last.
    pub fn last_post(&self) -> DeviceAddress {
        self.words.last_post.address().offset(8 * self.index as u64)
    }

    fn posted(&self) -> &AtomicU64 {
        let start = self.words.last_post.host_address().cast::<AtomicU64>();
        // SAFETY: the memory has `STREAMS` words, zeroed, as long as `words`, and all access them atomically.
        unsafe { start.add(self.index).as_ref() }
    }

    /// Returns the launch that posted last; 0 when none did.
    pub fn last_posted(&self) -> u64 {
        self.posted().load(Ordering::Acquire)
    }

    /// Lets no launch from `sequence` on begin, nor from an earlier one if one stopped the stream before.
    pub fn stop_from(&self, sequence: u64) {
        let _stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        let mut word = [0; 8];
        // SAFETY: the word lies there, and kernels access it atomically. A device whose memory cannot be reached any more runs
        // nothing else either.
        let read = unsafe { self.words.core.backend.load_words(self.stop_at(), &mut word, 8) };
        if read.is_ok() && u64::from_le_bytes(word) > sequence {
            self.set(sequence);
        }
    }

    /// Lets all launches begin again.
    pub fn restart(&self) {
        let _stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(u64::MAX);
    }

    fn set(&self, sequence: u64) {
        // SAFETY: as in `stop_from`.
        let _ = unsafe { self.words.core.backend.store_words(self.stop_at(), &sequence.to_le_bytes(), 8) };
    }
}

impl Drop for StreamWord {
    fn drop(&mut self) {
        self.restart();
        self.words.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}
