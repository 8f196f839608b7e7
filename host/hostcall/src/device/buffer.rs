//! Memory of a device as typed buffers.
#![allow(unsafe_code, reason = "plain values are copied as bytes")]

use super::core::Core;
use super::error::{BoundsError, Error, GraphError};
use super::uses::{Access, Request, Uses};
use super::waiting;
use hostcall_device::kernel::Plain;
use hostcall_device::{Global, Word};
use hostcall_seam::{DeviceAddress, Memory, Pinned};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Memory of a device with the list of who uses it.
pub(crate) struct Allocation {
    pub core: Arc<Core>,
    pub memory: Arc<dyn Memory>,
    pub uses: Uses,
    /// How many nodes of graphs use it.
    pub graph_uses: AtomicUsize,
    /// It was allocated in a capture, and has values in replays only.
    pub is_of_capture: AtomicBool,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.core.is_forked() {
            std::mem::forget(self.memory.clone());
        }
    }
}

/// What a piece of work uses of an allocation, which it keeps alive.
pub(crate) struct Wanted {
    pub allocation: Arc<Allocation>,
    pub access: Access,
    pub bytes: Range<usize>,
}

/// What a piece of work uses. Most launches take a few buffers, and need no memory of their own for the list.
pub(crate) type AllWanted = SmallVec<[Wanted; 4]>;

impl Wanted {
    /// Says whether the two cannot be used by one piece of work.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
            && !self.access.agrees_with(other.access)
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }

    /// Says whether whoever has to wait for the other has to wait for this too, if it comes later in the same stream.
    pub fn covers(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
            && self.access == other.access
            && self.bytes.start <= other.bytes.start
            && other.bytes.end <= self.bytes.end
    }

    /// The entry for the device's order.
    pub fn request(&self) -> Request<'_> {
        Request { uses: &self.allocation.uses, access: self.access, bytes: self.bytes.clone() }
    }
}

/// Values of type `T` in a device's memory: all of an allocation, or a [part](DeviceBuffer::part) of it. Clones are the
/// same memory. Launches that use it keep it alive.
///
/// # Order
/// Everything that uses the same values is put in order where it must be:
///
/// | | another `&[T]` | `&[Global<T>]`, atomics | copies and fills that write |
/// |---|---|---|---|
/// | a kernel's `&[T]`, copies that read | side by side | in order | in order |
/// | a kernel's `&[Global<T>]`, atomics | in order | side by side | in order |
///
/// "In order" is the order in which the calls were made: what is later waits for what was earlier, on the device where
/// both are work of streams. One launch cannot take the same values as `&[T]` and as `&[Global<T>]`: it is refused.
///
/// [`DeviceBuffer::read`] and [`DeviceBuffer::write`] wait in the same way. Copies in a stream's order are
/// [`super::Stream::read`] and [`super::Stream::write`]; copies that wait for nothing are [`DeviceBuffer::read_now`] and
/// [`DeviceBuffer::write_now`].
pub struct DeviceBuffer<T: Plain> {
    pub(super) allocation: Arc<Allocation>,
    /// First value's place in the allocation, in values.
    pub(super) first: usize,
    pub(super) len: usize,
    pub(super) values: PhantomData<T>,
}

impl<T: Plain> Clone for DeviceBuffer<T> {
    fn clone(&self) -> Self {
        let Self { allocation, first, len, values } = self;
        Self { allocation: allocation.clone(), first: *first, len: *len, values: *values }
    }
}

impl<T: Plain> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer").field("address", &self.address()).field("len", &self.len).finish()
    }
}

pub(super) fn bytes_of_len<T>(len: usize) -> Result<usize, BoundsError> {
    len.checked_mul(size_of::<T>()).ok_or(BoundsError::TooLarge { len })
}

/// The bytes of values. Those with cells are copied first, since other threads may write them.
pub(super) fn bytes_of<T: Plain>(values: &[T]) -> Cow<'_, [u8]> {
    if T::SHARED {
        let mut bytes = vec![0; size_of_val(values)];
        for (i, value) in values.iter().enumerate() {
            T::copy_bytes(value, &mut bytes[i * size_of::<T>()..][..size_of::<T>()]);
        }
        return Cow::Owned(bytes);
    }
    // SAFETY: a `Plain` value has no padding, so its bytes can be read, and `SHARED` says that nobody writes them while they
    // are borrowed.
    Cow::Borrowed(unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) })
}

/// The `len` values that these bytes are. Values may have no bytes, so that these do not say how many they are.
pub(super) fn values_of<T: Plain>(bytes: &[u8], len: usize) -> Vec<T> {
    assert_eq!(bytes.len(), len * size_of::<T>());
    let mut values = Vec::<T>::with_capacity(len);
    // SAFETY: the vector has room for `len` values, which are as many bytes as there are; any bytes are a `Plain` value.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast::<u8>(), bytes.len());
        values.set_len(len);
    }
    values
}

impl<T: Plain> DeviceBuffer<T> {
    /// Returns how many values it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Says whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first value, as kernels see it.
    pub fn address(&self) -> DeviceAddress {
        self.allocation.memory.address().offset((self.first * size_of::<T>()) as u64)
    }

    /// Returns a part of the buffer: the same memory.
    ///
    /// # Errors
    /// When it does not lie in the buffer.
    ///
    /// ```
    /// let device = hostcall::Device::open("cpu")?;
    /// let numbers = device.upload(&[1u32, 2, 3, 4])?;
    /// let last = numbers.part(2..)?;
    /// last.write(&[30, 40])?;
    /// assert_eq!(numbers.read()?, [1, 2, 30, 40]);
    /// # Ok::<(), hostcall::Error>(())
    /// ```
    pub fn part(&self, part: impl RangeBounds<usize>) -> Result<Self, Error> {
        let start = match part.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match part.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(BoundsError::Part { start, end, len: self.len }.into());
        }
        Ok(Self { first: self.first + start, len: end - start, ..self.clone() })
    }

    /// The bytes of the allocation that the buffer is.
    pub(super) fn bytes(&self) -> Range<usize> {
        let start = self.first * size_of::<T>();
        start..start + self.len * size_of::<T>()
    }

    /// What a piece of work uses that accesses the buffer like this.
    pub(super) fn wanted(&self, access: Access) -> Wanted {
        Wanted { allocation: self.allocation.clone(), access, bytes: self.bytes() }
    }

    fn request(&self, access: Access) -> Request<'_> {
        Request { uses: &self.allocation.uses, access, bytes: self.bytes() }
    }

    pub(super) fn check_len(&self, given: usize) -> Result<(), BoundsError> {
        if given == self.len { Ok(()) } else { Err(BoundsError::Length { given, len: self.len }) }
    }

    /// Refuses the host's own copies while the values are those of replays.
    fn check_host(&self, call: &'static str) -> Result<(), GraphError> {
        match self.allocation.is_of_capture.load(Ordering::Relaxed) {
            true => Err(GraphError::CapturedMemory { call }),
            false => Ok(()),
        }
    }

    /// Waits for everything before it that may write the values, and copies them to the host.
    ///
    /// # Errors
    /// When the device fails, or a handler calls this for a kernel that may use the buffer.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        self.check_host("read")?;
        let core = &self.allocation.core;
        let request = self.request(Access::Read);
        let mut bytes = vec![0; self.bytes().len()];
        core.check_process()?;
        let may_wait = |before| waiting::may_wait(core, before, "a buffer's `read`", None);
        core.order.host_copy(&request, may_wait, || {
            // SAFETY: as many bytes lie there, and `host_copy` keeps whoever writes them waiting.
            unsafe { core.backend.read_now(self.address(), &mut bytes) }
        })??;
        Ok(self.values(&bytes))
    }

    /// Waits for what uses the values, and copies as many bytes there as they have.
    pub(super) fn write_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        assert_eq!(bytes.len(), self.bytes().len());
        let core = &self.allocation.core;
        let request = self.request(Access::Write);
        core.check_process()?;
        let may_wait = |before| waiting::may_wait(core, before, "a buffer's `write`", None);
        core.order.host_copy(&request, may_wait, || {
            // SAFETY: as many bytes lie there, and `host_copy` keeps whoever uses them waiting.
            unsafe { core.backend.write_now(self.address(), bytes) }
        })??;
        Ok(())
    }

    fn values(&self, bytes: &[u8]) -> Vec<T> {
        values_of(bytes, self.len)
    }

    /// Waits for everything before it that uses the values, and copies these there. They must be as many as the buffer's:
    /// take a [part](DeviceBuffer::part) for fewer.
    ///
    /// # Errors
    /// When they are not as many, the device fails, or a handler calls this for a kernel that may use the buffer.
    pub fn write(&self, values: &[T]) -> Result<(), Error> {
        self.check_len(values.len())?;
        self.check_host("write")?;
        self.write_bytes(&bytes_of(values))
    }
}

impl<T: Word> DeviceBuffer<T> {
    /// Copies the values to the host as they are now, beside kernels that write them as `&[Global<T>]` or atomics. Each
    /// value is one that was written; values are not of one moment. Returns `None` while a copy or a fill writes them.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read_now(&self) -> Result<Option<Vec<T>>, Error> {
        self.check_host("read_now")?;
        let core = &self.allocation.core;
        core.check_process()?;
        let mut bytes = vec![0; self.bytes().len()];
        // Beside plain reads it is a plain read, beside atomic writes an atomic one.
        for access in [Access::Shared, Access::Read] {
            let copied = core.order.host_copy_now(&self.request(access), || {
                // SAFETY: as many bytes lie there, which nobody writes but atomically by numbers of `T`'s size.
                unsafe { core.backend.load_words(self.address(), &mut bytes, size_of::<T>()) }
            });
            if let Some(copied) = copied {
                copied?;
                return Ok(Some(self.values(&bytes)));
            }
        }
        Ok(None)
    }

    /// Copies values to the buffer now, beside kernels that use it as `&[Global<T>]` or atomics. Returns `false`, and
    /// writes nothing, while something reads the values plainly or a copy or a fill writes them.
    ///
    /// # Errors
    /// When they are not as many as the buffer's, or the device fails.
    pub fn write_now(&self, values: &[T]) -> Result<bool, Error> {
        self.check_len(values.len())?;
        self.check_host("write_now")?;
        let core = &self.allocation.core;
        core.check_process()?;
        let copied = core.order.host_copy_now(&self.request(Access::Shared), || {
            // SAFETY: as many bytes lie there, which nobody accesses but atomically by numbers of `T`'s size.
            unsafe { core.backend.store_words(self.address(), &bytes_of(values), size_of::<T>()) }
        });
        match copied {
            Some(copied) => copied.map(|()| true).map_err(Error::from),
            None => Ok(false),
        }
    }
}

/// `len` values of type `T` that host and running kernels both read and write, at the speed of the link. It is
/// a slice of [`Global`]s on the host too. Launches that use it keep it alive; clones are the same memory.
///
/// ```
/// use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel};
///
/// #[kernel]
/// fn answer(lane: &Lane, words: &[Global<u32>]) {
///     while words[0].get() == 0 {
///         lane.pause();
///     }
///     words[1].set(words[0].get() + 1);
/// }
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let words = device.pinned::<u32>(2)?;
/// answer.launch(&stream, Grid::new(1, 1), (&words,))?;
/// words[0].set(41); // while the kernel runs
/// stream.synchronize()?;
/// assert_eq!(words[1].get(), 42);
/// # Ok::<(), hostcall::Error>(())
/// ```
pub struct PinnedBuffer<T: Word> {
    pub(super) core: Arc<Core>,
    pub(super) memory: Arc<dyn Pinned>,
    pub(super) len: usize,
    pub(super) values: PhantomData<Global<T>>,
}

impl<T: Word> Clone for PinnedBuffer<T> {
    fn clone(&self) -> Self {
        let Self { core, memory, len, values } = self;
        Self { core: core.clone(), memory: memory.clone(), len: *len, values: *values }
    }
}

impl<T: Word> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer").field("address", &self.address()).field("len", &self.len).finish()
    }
}

impl<T: Word> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // A child of `fork` leaves it to its parent, whose driver has it.
        if self.core.is_forked() {
            std::mem::forget(self.memory.clone());
        }
    }
}

impl<T: Word> PinnedBuffer<T> {
    /// Returns the address of the first value on the host, where kernels may write at any time.
    pub fn host_address(&self) -> NonNull<T> {
        self.memory.host_address().cast()
    }

    /// Returns the address of the first value, as kernels see it.
    pub fn address(&self) -> DeviceAddress {
        self.memory.address()
    }
}

impl<T: Word> Deref for PinnedBuffer<T> {
    type Target = [Global<T>];

    fn deref(&self) -> &[Global<T>] {
        // SAFETY: the memory has `len` zeroed values at this address, aligned to 256 bytes, while `self`
        // lives, and host and kernels access them as `Global`s.
        unsafe {
            std::slice::from_raw_parts(self.memory.host_address().as_ptr().cast::<Global<T>>(), self.len)
        }
    }
}
