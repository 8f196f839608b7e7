//! Copies and fills by copy engines.
//!
//! An engine does its copies one after the other. One that waits for a kernel keeps those of other queues waiting, and these
//! may be what the kernel waits for. So a copy is given to an engine only when it can begin at once: `queue.rs` has the
//! runtime tell when that is.

use crate::gpu::Gpu;
use crate::memory::Block;
use crate::runtime::Error;
use crate::signal::{Signal, Watched};
use crate::sys::hsa_agent_t;
use hostcall_locks::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the blocks through which memory is filled, and pageable memory of the host is copied.
const STAGING_BYTES: usize = 1 << 20;

/// Waits for a copy that has begun, all but `left` parts of it, some seconds: longer than an engine takes for what a GPU
/// holds. Returns whether it has ended: an engine that failed may never say so.
fn has_ended(done: &Signal, gpu: &Gpu, left: i64) -> bool {
    (0..500).any(|_| done.wait_for(gpu, left))
}

/// Which memory one side of a copy is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Gpu(u64),
    /// Memory of another GPU of the runtime.
    OtherGpu(u64, hsa_agent_t),
    /// Pinned memory of the host.
    Host(u64),
}

impl Side {
    fn address(self) -> u64 {
        match self {
            Side::Gpu(address) | Side::OtherGpu(address, _) | Side::Host(address) => address,
        }
    }

    fn agent(self, gpu: &Gpu) -> hsa_agent_t {
        match self {
            Side::Gpu(_) => gpu.agent(),
            Side::OtherGpu(_, agent) => agent,
            Side::Host(_) => gpu.host_agent(),
        }
    }
}

/// A copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub to: Side,
    pub from: Side,
    pub bytes: usize,
    /// The source has so many bytes, which are copied again and again.
    pub source_bytes: usize,
}

/// Why a copy was not started, or not all of it.
pub(crate) struct NotStarted {
    error: Error,
    /// Parts that were not. The completion signal comes to as many, and no further.
    left: i64,
}

impl Copy {
    /// A copy of each byte once.
    pub fn once(to: Side, from: Side, bytes: usize) -> Self {
        Self { to, from, bytes, source_bytes: bytes }
    }

    /// Returns how many copies an engine makes of it: so often the completion signal is counted down.
    pub fn parts(&self) -> i64 {
        self.bytes.div_ceil(self.source_bytes.max(1)) as i64
    }

    /// Starts the copy. Each part counts `done` down when it has ended.
    ///
    /// # Safety
    /// Both sides have the bytes until then, nobody writes the source, and nobody accesses the target but as the copy's user
    /// allows.
    pub unsafe fn start(&self, gpu: &Gpu, done: Signal) -> Result<(), NotStarted> {
        for (part, at) in (0..).zip((0..self.bytes).step_by(self.source_bytes.max(1))) {
            let bytes = self.source_bytes.min(self.bytes - at);
            let to = std::ptr::with_exposed_provenance_mut((self.to.address() + at as u64) as usize);
            let from = std::ptr::with_exposed_provenance(self.from.address() as usize);
            // SAFETY: LOADED; by the caller's promise.
            let status = unsafe {
                (gpu.runtime().functions.hsa_amd_memory_async_copy)(
                    to,
                    self.to.agent(gpu),
                    from,
                    self.from.agent(gpu),
                    bytes,
                    0,
                    std::ptr::null(),
                    done.handle,
                )
            };
            let started = gpu.runtime().check(status, || format!("copying {bytes} bytes"));
            started.map_err(|error| NotStarted { error, left: self.parts() - part })?;
        }
        Ok(())
    }
}

/// A copy that begins in its turn, unless the GPU fails before.
pub(crate) struct CopyInOrder {
    done: Signal,
    /// Held while it is started. Whether it was, or never will be.
    turn: Mutex<Turn>,
}

enum Turn {
    Waits,
    /// But for so many parts, which were refused.
    Started {
        left: i64,
    },
    Never,
}

impl CopyInOrder {
    pub fn new(done: Signal) -> Self {
        Self { done, turn: Mutex::new(Turn::Waits) }
    }

    /// Starts the copy, unless [`CopyInOrder::end`] was before.
    ///
    /// # Safety
    /// As for [`Copy::start`].
    pub unsafe fn start(&self, gpu: &Gpu, copy: &Copy) -> Result<(), Error> {
        let mut turn = self.turn.lock();
        if matches!(*turn, Turn::Never) {
            return Ok(());
        }
        // SAFETY: by the caller's promise.
        let started = unsafe { copy.start(gpu, self.done) };
        let left = started.as_ref().err().map_or(0, |refused| refused.left);
        *turn = Turn::Started { left };
        started.map_err(|refused| refused.error)
    }

    /// Lets the copy not begin any more, and waits for one that has begun. Returns whether it has ended: an engine that failed may
    /// never say so.
    pub fn end(&self, gpu: &Gpu) -> bool {
        let mut turn = self.turn.lock();
        if let Turn::Started { left } = *turn {
            return has_ended(&self.done, gpu, left);
        }
        *turn = Turn::Never;
        true
    }
}

/// Blocks of pinned memory that copies go through.
pub(crate) struct Staging {
    /// Nobody writes it.
    zeros: Block,
    data: Mutex<Block>,
    /// An engine may be at a copy for ever: the blocks stay allocated.
    is_lost: AtomicBool,
}

/// Why a copy was not made at once.
pub(crate) struct NotCopied {
    pub error: Error,
    /// An engine may be at a part of it yet.
    pub goes_on: bool,
}

impl From<NotCopied> for Error {
    fn from(NotCopied { error, .. }: NotCopied) -> Self {
        error
    }
}

impl Staging {
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let block = || {
            let block = Block::allocate(gpu, gpu.host_pool(), STAGING_BYTES, "pinned memory")?;
            // SAFETY: the memory is so long, and new.
            unsafe { block.start().write_bytes(0, STAGING_BYTES) };
            Ok(block)
        };
        let zeros = block()?;
        match block() {
            Ok(data) => Ok(Self { zeros, data: Mutex::new(data), is_lost: AtomicBool::new(false) }),
            Err(error) => {
                zeros.free(gpu);
                Err(error)
            }
        }
    }

    pub fn free(self, gpu: &Gpu) {
        if self.is_lost.into_inner() {
            return;
        }
        self.zeros.free(gpu);
        self.data.into_inner().free(gpu);
    }
}

impl Gpu {
    fn staging(&self) -> &Staging {
        self.staging.get().expect("made when the GPU was opened")
    }

    /// A copy of zeros.
    pub(crate) fn zeroing(&self, address: u64, bytes: usize) -> Copy {
        let from = Side::Host(self.staging().zeros.address());
        Copy { to: Side::Gpu(address), from, bytes, source_bytes: STAGING_BYTES }
    }

    /// Copies at once, and waits for it. After a failure the engine is waited for, so that both sides may be
    /// freed or used again, unless the error says that the copy goes on.
    ///
    /// # Safety
    /// As for [`Copy::start`].
    unsafe fn copy_now(&self, copy: Copy) -> Result<(), NotCopied> {
        let refused = |error| NotCopied { error, goes_on: false };
        self.check().map_err(refused)?;
        let done = self.take_signal(Watched::ByRuntime, copy.parts()).map_err(refused)?;
        // SAFETY: by the caller's promise.
        let failed = match unsafe { copy.start(self, done) } {
            Err(NotStarted { error, left }) => {
                Some(NotCopied { error, goes_on: !has_ended(&done, self, left) })
            }
            Ok(()) => loop {
                if done.wait_for(self, 0) {
                    break None;
                }
                if let Err(error) = self.check() {
                    break Some(NotCopied { error, goes_on: !has_ended(&done, self, 0) });
                }
            },
        };
        match failed {
            Some(failed) if failed.goes_on => {
                // The signal is not used again either.
                self.staging().is_lost.store(true, Ordering::Relaxed);
                Err(failed)
            }
            failed => {
                self.give_back_signals([done]);
                failed.map_or(Ok(()), Err)
            }
        }
    }

    /// Sets memory of the GPU to 0 at once.
    ///
    /// # Safety
    /// The GPU has so many bytes there, which nobody accesses meanwhile.
    pub(crate) unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), NotCopied> {
        // SAFETY: by the caller's promise; the source is this GPU's.
        unsafe { self.copy_now(self.zeroing(address, bytes)) }
    }

    /// Reads memory that the GPU has at `address`, such as a module's variable. Aligned numbers of up to 8 bytes are read
    /// whole.
    ///
    /// # Errors
    /// When a kernel failed before.
    ///
    /// # Safety
    /// The GPU has `bytes.len()` bytes at `address` while this runs.
    pub unsafe fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let data = self.staging().data.lock();
        for (part, at) in bytes.chunks_mut(STAGING_BYTES).zip((address..).step_by(STAGING_BYTES)) {
            let copy = Copy::once(Side::Host(data.address()), Side::Gpu(at), part.len());
            // SAFETY: by the caller's promise; the lock keeps others from the block.
            unsafe { self.copy_now(copy) }?;
            // SAFETY: the block has so many bytes, which the copy has written.
            unsafe { data.start().as_ptr().copy_to_nonoverlapping(part.as_mut_ptr(), part.len()) };
        }
        Ok(())
    }

    /// Writes memory that the GPU has at `address`, such as a module's variable. Aligned numbers of up to 8 bytes are
    /// written whole.
    ///
    /// # Errors
    /// When a kernel failed before.
    ///
    /// # Safety
    /// The GPU has `bytes.len()` bytes at `address` while this runs.
    pub unsafe fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let data = self.staging().data.lock();
        for (part, at) in bytes.chunks(STAGING_BYTES).zip((address..).step_by(STAGING_BYTES)) {
            // SAFETY: the block has so many bytes, and the lock keeps others from it.
            unsafe { data.start().as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            // SAFETY: by the caller's promise, and as above.
            unsafe { self.copy_now(Copy::once(Side::Gpu(at), Side::Host(data.address()), part.len())) }?;
        }
        Ok(())
    }
}
