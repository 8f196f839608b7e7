//! Memory of a device as a typed buffer.
#![allow(unsafe_code)] // plain values are copied as bytes

use super::backend::{Memory, Pinned};
use super::{Device, Error};
use hostcall_device::kernel::Plain;
use hostcall_device::{Global, Word};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// `len` values of type `T` in a device's memory. Launches that use it keep it alive.
///
/// Copies here do not wait for streams: [`super::Stream::synchronize`] first, or copy through the stream's
/// order. A kernel that takes the buffer as `&[T]` reads it plainly, so nothing may write it meanwhile; as
/// `&[Global<T>]` it may be written from anywhere at any time.
pub struct DeviceBuffer<T: Plain> {
    pub(super) memory: Arc<dyn Memory>,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Plain> Clone for DeviceBuffer<T> {
    /// The same memory.
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), len: self.len, values: PhantomData }
    }
}

impl Device {
    /// A buffer of `len` values, all zero bytes.
    ///
    /// # Errors
    /// When the device has no room for it.
    pub fn alloc_zeroed<T: Plain>(&self, len: usize) -> Result<DeviceBuffer<T>, Error> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::Device(format!("a buffer of {len} values is larger than any memory")))?;
        let memory = self.inner.backend.allocate(bytes).map_err(Error::Device)?;
        Ok(DeviceBuffer { memory, len, values: PhantomData })
    }

    /// A buffer with these values.
    ///
    /// # Errors
    /// When the device has no room for it.
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<DeviceBuffer<T>, Error> {
        let buffer = self.alloc_zeroed(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }
}

impl<T: Plain> DeviceBuffer<T> {
    /// Values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first value as the device sees it.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Copies values to the start of the buffer.
    ///
    /// # Errors
    /// When they are more than the buffer's, or the device fails.
    pub fn write(&self, values: &[T]) -> Result<(), Error> {
        // SAFETY: a `Plain` value has no padding, so its bytes can be read; atomics among them are not
        // written here by anybody else, or the reference would not be plain reading.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        self.memory.write(0, bytes).map_err(Error::Device)
    }

    /// Copies the buffer's values to the host.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        let mut bytes = vec![0u8; self.len * size_of::<T>()];
        self.memory.read(0, &mut bytes).map_err(Error::Device)?;
        let mut values = Vec::<T>::with_capacity(self.len);
        // SAFETY: the vector has room for `len` values, which are `len * size_of::<T>()` bytes; any bytes are
        // a `Plain` value.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast::<u8>(), bytes.len());
            values.set_len(self.len);
        }
        Ok(values)
    }
}

/// `len` values of type `T` that host and running kernels both read and write, at the speed of the link. It is
/// a slice of [`Global`]s on the host too. Launches that use it keep it alive; clones are the same memory.
#[derive(Clone)]
pub struct PinnedBuffer<T: Word> {
    pub(super) memory: Arc<dyn Pinned>,
    len: usize,
    values: PhantomData<Global<T>>,
}

impl Device {
    /// A pinned buffer of `len` values, all zero.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn pinned<T: Word>(&self, len: usize) -> Result<PinnedBuffer<T>, Error> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::Device(format!("a buffer of {len} values is larger than any memory")))?;
        let memory = self.inner.backend.pin(bytes).map_err(Error::Device)?;
        Ok(PinnedBuffer { memory, len, values: PhantomData })
    }
}

impl<T: Word> PinnedBuffer<T> {
    /// Address of the first value as the device sees it.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}

impl<T: Word> Deref for PinnedBuffer<T> {
    type Target = [Global<T>];

    fn deref(&self) -> &[Global<T>] {
        // SAFETY: the memory has `len` zeroed values at this address, aligned to 256 bytes, while `self`
        // lives, and host and kernels access them as `Global`s.
        unsafe { std::slice::from_raw_parts(self.memory.host_address().cast::<Global<T>>(), self.len) }
    }
}
