//! What a stream shares with its launches: from which of them on none shall begin, in memory of the device, which of
//! them posted last, in the host's, and by which context those of other compilers call.
//!
//! Launches are known by their sequence, which never repeats in a stream. A word that stops launches counts until the
//! stream starts again: then everything so far has ended and been told of, so that nobody can ask for a stop of that any
//! more ([`StreamWords::stop_from`] refuses it), and no lane is left that writes.
//!
//! A kernel of another compiler's calls by a block that says which launch it is of
//! ([`ContextParams`]). A stream has one such block for all of its launches: before each that has a context, the device writes the
//! launch's id there, in the stream's order (`submit.rs`). So it is done when the kernel begins, and comes after the end of all
//! launches before, of which no lane reads the word any more. The block is the stream's as long as that has work, and
//! another stream gets it only when all of that is settled. A kernel that never ends keeps both; where the device failed,
//! nothing is written any more.
#![allow(unsafe_code, reason = "reads and writes words that kernels use")]

use super::core::Core;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::context::{CONTEXT_BYTES, ContextParams, LAUNCH_AT};
use hostcall_locks::Mutex;
use hostcall_seam::{BackendError, DeviceAddress, Memory, Pinned};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Streams that a device can have at once.
pub(crate) const STREAMS: usize = 4096;

/// Bytes of what stops a stream's launches: a word that lanes write, and one that the host writes.
const STOP_BYTES: usize = 16;

/// The words of all streams of a device.
pub(crate) struct StreamWordTable {
    core: Arc<Core>,
    stop_at: Arc<dyn Memory>,
    last_post: Arc<dyn Pinned>,
    /// A context's block for each stream, once there was a context.
    contexts: OnceLock<Arc<dyn Memory>>,
    free: Mutex<Vec<usize>>,
}

impl StreamWordTable {
    pub fn new(core: &Arc<Core>) -> Result<Arc<Self>, BackendError> {
        let backend = &core.backend;
        let stop_at = backend.allocate(STREAMS * STOP_BYTES)?;
        // SAFETY: the memory is new, and as long.
        unsafe { backend.write_now(stop_at.address(), &[0xff; STREAMS * STOP_BYTES]) }?;
        let last_post = backend.pin(STREAMS * 8)?;
        let free = Mutex::new((0..STREAMS).rev().collect());
        let contexts = OnceLock::new();
        Ok(Arc::new(Self { core: core.clone(), stop_at, last_post, contexts, free }))
    }

    /// Makes the blocks by which kernels with a context call that streams launch, unless they are there. All contexts' are the same
    /// but for the launch.
    pub fn make_contexts(&self, params: &ContextParams) -> Result<(), BackendError> {
        if self.contexts.get().is_some() {
            return Ok(());
        }
        let backend = &self.core.backend;
        let blocks = backend.allocate(STREAMS * CONTEXT_BYTES)?;
        // SAFETY: the memory is new, and as long.
        unsafe { backend.write_now(blocks.address(), &params.as_bytes().repeat(STREAMS)) }?;
        // Another thread's, which nobody uses yet, are as good.
        let _ = self.contexts.set(blocks);
        Ok(())
    }

    /// Takes the words of a new stream. `None` when there are as many streams as there can be.
    pub fn take(self: &Arc<Self>) -> Option<StreamWords> {
        let index = self.free.lock().pop()?;
        let words = StreamWords {
            words: self.clone(),
            index,
            stopping: Mutex::new(Stopping { from: u64::MAX, over: 0 }),
        };
        words.posted().store(0, Ordering::Relaxed);
        Some(words)
    }
}

/// The words of one stream.
pub(crate) struct StreamWords {
    words: Arc<StreamWordTable>,
    index: usize,
    stopping: Mutex<Stopping>,
}

struct Stopping {
    /// What the host's word says.
    from: u64,
    /// Launches up to this sequence are over: the stream has started again since.
    over: u64,
}

impl StreamWords {
    /// Returns the address of the words that say from which launch on none begins.
    pub fn stop_at(&self) -> DeviceAddress {
        self.words.stop_at.address().offset((STOP_BYTES * self.index) as u64)
    }

    /// Returns the address of the word that says which launch posted last.
    pub fn last_post(&self) -> DeviceAddress {
        self.words.last_post.address().offset(8 * self.index as u64)
    }

    /// Returns the address of the stream's context: what its kernels with a context take in place of that one's own.
    pub fn context(&self) -> DeviceAddress {
        let blocks = self.words.contexts.get().expect("there was a context");
        blocks.address().offset((CONTEXT_BYTES * self.index) as u64)
    }

    /// Returns the address of the word of [`Self::context`] that says whose the calls are.
    pub fn context_launch(&self) -> DeviceAddress {
        self.context().offset(LAUNCH_AT as u64)
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

    /// Returns the launch whose lanes stopped the stream or, after the host stopped it, the one before the first that was
    /// skipped, on a device whose kernels tell; `u64::MAX` when there is none.
    pub fn last_of_lanes(&self) -> u64 {
        let mut word = [0xff; 8];
        // SAFETY: the word lies there, and kernels access it atomically.
        let _ = unsafe { self.words.core.backend.load_words(self.stop_at(), &mut word, 8) };
        u64::from_le_bytes(word)
    }

    /// Lets no launch from `sequence` on begin, nor from an earlier one if one stopped the stream before. A launch that is
    /// over stops nothing.
    pub fn stop_from(&self, sequence: u64) {
        let mut stopping = self.stopping.lock();
        if sequence > stopping.over && sequence < stopping.from {
            stopping.from = sequence;
            self.store(self.stop_at().offset(8), &[sequence]);
        }
    }

    /// Lets all launches after `last` begin; those up to it are over.
    pub fn restart(&self, last: u64) {
        let mut stopping = self.stopping.lock();
        *stopping = Stopping { from: u64::MAX, over: last };
        self.store(self.stop_at(), &[u64::MAX; 2]);
    }

    fn store(&self, to: DeviceAddress, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: the words lie there, and kernels access them atomically. A device whose memory cannot be reached any more
        // runs nothing else either.
        let _ = unsafe { self.words.core.backend.store_words(to, &bytes, 8) };
    }
}

impl Drop for StreamWords {
    fn drop(&mut self) {
        self.restart(0);
        self.words.free.lock().push(self.index);
    }
}
