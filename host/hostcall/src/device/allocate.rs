//! Allocating memory of a device: under a cache, for a capture, or for whoever asks.

use super::buffer::{Allocation, DeviceBuffer, PinnedBuffer, bytes_of_len};
use super::error::Error;
use super::graph::{Asked, Capture, check_allocation, owner_of_allocation, take_cached};
use super::inner::Device;
use super::transfer;
use hostcall_device::Word;
use hostcall_device::kernel::Plain;
use std::marker::PhantomData;
use std::sync::Arc;

impl Device {
    /// Allocates a buffer of `len` values, all zero bytes. Under an [`AllocCache`](crate::graph::AllocCache) it is memory of the
    /// cache.
    ///
    /// # Errors
    /// When the device has no room for it, a stream captures that this breaks
    /// ([`CaptureMode`](crate::graph::CaptureMode)), or a handler calls this for a kernel that may use the cache's memory.
    pub fn alloc_zeroed<T: Plain>(&self, len: usize) -> Result<DeviceBuffer<T>, Error> {
        let (buffer, capture) = self.allocate(len, "alloc_zeroed")?;
        if let Some(capture) = capture {
            capture.begin_values(&buffer.allocation, transfer::zeros(&buffer).into())?;
        }
        Ok(buffer)
    }

    /// Allocates a buffer of zeros. Returns also the capture that it is allocated in, which its first values are to be a node
    /// of.
    fn allocate<T: Plain>(
        &self,
        len: usize,
        call: &'static str,
    ) -> Result<(DeviceBuffer<T>, Option<Arc<Capture>>), Error> {
        let core = &self.inner.core;
        core.check_process()?;
        let bytes = bytes_of_len::<T>(len)?;
        let mut is_new = false;
        let mut new = || -> Result<_, Error> {
            let (core, memory) = (core.clone(), core.backend.allocate(bytes)?);
            let (uses, graph_uses, is_of_capture) = Default::default();
            is_new = true;
            Ok(Arc::new(Allocation { core, memory, uses, graph_uses, is_of_capture }))
        };
        let (allocation, capture) = match take_cached(core, Asked::new::<T>(bytes), &mut new) {
            Some(handed) => (handed?, None),
            None => match owner_of_allocation(core, call, true)? {
                Some(capture) => (capture.allocate(bytes, call, &mut new)?, Some(capture)),
                None => (new()?, None),
            },
        };
        let buffer = DeviceBuffer { allocation, first: 0, len, values: PhantomData };
        if !is_new {
            buffer.write_bytes(&vec![0; bytes])?;
        }
        Ok((buffer, capture))
    }

    /// Allocates a buffer with these values. Under an [`AllocCache`](crate::graph::AllocCache) it is memory of the cache.
    ///
    /// # Errors
    /// When the device has no room for it or fails, a stream captures that this breaks
    /// ([`CaptureMode`](crate::graph::CaptureMode)), or a handler calls this for a kernel that may use the cache's memory.
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<DeviceBuffer<T>, Error> {
        let (buffer, capture) = self.allocate(values.len(), "upload")?;
        buffer.write(values)?;
        if let Some(capture) = capture {
            let node = transfer::check_write(&self.inner.core, &buffer, values)?;
            capture.begin_values(&buffer.allocation, node.into())?;
        }
        Ok(buffer)
    }
}

impl Device {
    /// Allocates a pinned buffer of `len` values, all zero.
    ///
    /// # Errors
    /// When there is no room for it, or a stream captures that this breaks.
    pub fn pinned<T: Word>(&self, len: usize) -> Result<PinnedBuffer<T>, Error> {
        let core = self.inner.core.clone();
        core.check_process()?;
        check_allocation(&core, "pinned")?;
        let memory = core.backend.pin(bytes_of_len::<T>(len)?)?;
        Ok(PinnedBuffer { core, memory, len, values: PhantomData })
    }
}
