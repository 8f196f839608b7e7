//! Memory of which each lane has a part for itself.

use crate::kernel::{KernelArg, Plain, first_of, write_whole};
use crate::lane::Lane;
use core::marker::PhantomData;
use hostcall_abi::launch::RawSlice;
use hostcall_abi::schema;

/// A buffer of which each lane of the grid reads and writes its own share, and nobody else anything while the kernel runs.
///
/// Accesses are plain ones, not atomic as those of a [`Global`](crate::Global): compilers make vector instructions of them
/// on the software device, and a GPU's caches may keep them. The host passes a `DeviceBuffer<T>`; a launch that has any of
/// its elements as another argument, too, is refused.
///
/// ```
/// use hostcall_device::{Disjoint, Lane, kernel};
///
/// /// `y = a·x + y`, by a grid of any size.
/// #[kernel]
/// fn saxpy(lane: &Lane, a: f32, x: &[f32], mut y: Disjoint<'_, f32>) {
///     let x = &x[..y.len()]; // checked once
///     for (i, y) in y.share(lane) {
///         *y += a * x[i];
///     }
/// }
/// ```
pub struct Disjoint<'launch, T> {
    /// Invariant SHARES: `len` elements lie here for `'launch`. The lane that this value was made for accesses those of its
    /// [`Lane::share`] of `0..len`, by this value, of which it has one; nobody else accesses these.
    start: *mut T,
    len: usize,
    launch: PhantomData<&'launch mut [T]>,
}

impl<T: Plain> Disjoint<'_, T> {
    /// Elements of the whole buffer.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This lane's elements, each with its index in the whole buffer: those of [`Lane::share`]. Compilers see that the
    /// indices are below [`Disjoint::len`].
    #[inline]
    pub fn share(&mut self, lane: &Lane) -> impl Iterator<Item = (usize, &mut T)> {
        let start = self.start;
        // SAFETY: SHARES. A `Lane` is the one that runs, whose share is the same each time, has each index once, and none in
        // common with another lane's. `self` is borrowed while the references live.
        lane.share(self.len).map(move |i| (i, unsafe { &mut *start.add(i) }))
    }
}

// SAFETY: `RawSlice` is `repr(C)` of two `u64`s on every target.
unsafe impl<T: Plain> KernelArg for Disjoint<'_, T> {
    type Raw = RawSlice;
    type Value<'launch> = Disjoint<'launch, T>;
    const SCHEMA: u64 = schema::add_hash(schema::of("disjoint"), T::SCHEMA);
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: RawSlice) -> Disjoint<'launch, T> {
        // SHARES: by this function's contract the host has put `len` elements there, of which no other argument has any, and
        // each lane makes one value.
        let start = first_of::<T>(raw).cast_mut();
        Disjoint { start, len: raw.len as usize, launch: PhantomData }
    }
    fn write(raw: RawSlice, bytes: &mut [u8]) {
        // SAFETY: two `u64`s have no padding.
        unsafe { write_whole(&raw, bytes) }
    }
}
