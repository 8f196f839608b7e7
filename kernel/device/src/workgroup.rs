//! What the lanes of a workgroup have in common: memory, and what they compute together.
//!
//! A kernel has typed arrays in workgroup memory as parameters marked `#[workgroup]`, which a launch does not
//! pass. They are of [`Shared`] cells, which lanes may read and write at any time; after [`Lane::barrier`]
//! they see what the others wrote before it.
//!
//! ```
//! use hostcall_device::{Global, Lane, Shared, kernel};
//!
//! /// Transposes a matrix of `32 * tiles` by `32 * tiles` numbers, in tiles that workgroups of 1024 lanes have in memory.
//! #[kernel]
//! fn transpose(
//!     lane: &Lane,
//!     #[workgroup] tile: &[[Shared<f32>; 33]; 32], // 33: no two lanes of a wave ask the same bank
//!     tiles: u32,
//!     from: &[f32],
//!     to: &[Global<f32>],
//! ) {
//!     let (tiles, width) = (tiles as usize, 32 * tiles as usize);
//!     let (x, y) = (lane.local_id() % 32, lane.local_id() / 32);
//!     let workgroup = lane.global_id() / 1024;
//!     let (tile_x, tile_y) = (workgroup % tiles * 32, workgroup / tiles * 32);
//!     tile[y][x].set(from[(tile_y + y) * width + tile_x + x]);
//!     lane.barrier();
//!     to[(tile_x + y) * width + tile_y + x].set(tile[x][y].get());
//! }
//! ```
//!
//! # How large
//! `&T` takes the bytes of a `T` in each workgroup. The last of these parameters may be a slice,
//! `&[Shared<f32>]`: it is what the launch asks for with `Grid::workgroup_memory(bytes)`, in whole elements.
//! A launch that asks for more than the device has is refused.
//!
//! # What it holds at first
//! On the software device, zeros; on a GPU, any numbers, such as those of the workgroup before.
//!
//! # How it works
//! ```text
//!  NVIDIA: waves' records │ 64 bytes kept │ first parameter │ second, at a multiple of 16 │ … │ slice: the rest
//!  AMD, software device:  │ 64 bytes kept │ …                                            Grid::workgroup_memory
//! ```
//!
//! - Every access of a [`Shared`] cell is atomic, number by number, so that a race gives a wrong number and
//!   no more. On NVIDIA an access is one instruction of workgroup memory, of two or four numbers for cells of
//!   arrays.
//! - Reductions and scans take their memory as a parameter ([`Scratch`]). A wave's lanes combine by shuffles;
//!   behind a barrier each wave combines what all waves, or those before it, have found. A second barrier
//!   lets the next one use the same memory.
//! - On the software device each lane says where its barrier stands in the source. When the lanes of a
//!   workgroup have come to different ones, each is told of the one at which most of the others wait, and
//!   panics with that. GPUs count lanes and take all barriers as one.

use crate::atomic::{Atomic, AtomicInteger, AtomicWord, methods};
use crate::group::Group;
use crate::lane::Lane;
use crate::target::{self, Mask, cell::Change, cell::Place};
use crate::wave::{Combine, WaveNumber};
use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::Ordering;
use hostcall_abi::launch::RESERVED_WORKGROUP_BYTES;

/// What a [`Shared`] cell can hold: the numbers that [`crate::Global`] can, and `[T; 2]` and `[T; 4]` of those of 32 bits,
/// `[T; 2]` of those of 64.
///
/// On NVIDIA, arrays are read and written by one instruction, from a multiple of their size.
#[diagnostic::on_unimplemented(
    message = "a `Shared` cell cannot hold a `{Self}`",
    label = "not a number, nor a short array of them",
    note = "a cell holds an integer of at most 64 bits, `f32` or `f64`, `[T; 2]` of those of 32 or 64 bits, or `[T; 4]` of \
            those of 32; for a struct take a parameter marked `#[workgroup]` for each of its fields"
)]
pub trait SharedValue: Copy + Send + Sync + sealed::Sealed + 'static {
    /// What a cell is aligned like.
    #[doc(hidden)]
    type Align: Copy + Send + Sync;
    /// # Safety
    /// It is a cell in workgroup memory.
    #[doc(hidden)]
    unsafe fn read(at: *mut Self) -> Self;
    /// # Safety
    /// It is a cell in workgroup memory.
    #[doc(hidden)]
    unsafe fn write(at: *mut Self, value: Self);
}

mod sealed {
    pub trait Sealed {}

    #[derive(Clone, Copy)]
    #[repr(align(8))]
    pub struct Align8;

    #[derive(Clone, Copy)]
    #[repr(align(16))]
    pub struct Align16;
}

impl<T: AtomicWord> sealed::Sealed for T {}

#[diagnostic::do_not_recommend]
impl<T: AtomicWord> SharedValue for T {
    type Align = T;
    #[inline(always)]
    unsafe fn read(at: *mut Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Atomic::new(at, Place::Shared) }.load(Ordering::Relaxed)
    }
    #[inline(always)]
    unsafe fn write(at: *mut Self, value: Self) {
        // SAFETY: the caller's promise.
        unsafe { Atomic::new(at, Place::Shared) }.store(value, Ordering::Relaxed);
    }
}

macro_rules! vectors {
    ($($t:ty, $count:literal, $align:ident, $bits:ty, $load:ident, $store:ident;)*) => {$(
        impl sealed::Sealed for [$t; $count] {}
        impl SharedValue for [$t; $count] {
            type Align = sealed::$align;
            #[inline(always)]
            unsafe fn read(at: *mut Self) -> Self {
                // SAFETY: the caller's promise; the cell is aligned like all of it.
                unsafe { target::$load(at.cast::<[$bits; $count]>()) }.map(AtomicWord::from_cell)
            }
            #[inline(always)]
            unsafe fn write(at: *mut Self, value: Self) {
                // SAFETY: the caller's promise; the cell is aligned like all of it.
                unsafe { target::$store(at.cast::<[$bits; $count]>(), value.map(AtomicWord::to_cell)) }
            }
        }
    )*};
}

vectors! {
    u32, 2, Align8, u32, load_2_u32, store_2_u32; u32, 4, Align16, u32, load_4_u32, store_4_u32;
    i32, 2, Align8, u32, load_2_u32, store_2_u32; i32, 4, Align16, u32, load_4_u32, store_4_u32;
    f32, 2, Align8, u32, load_2_u32, store_2_u32; f32, 4, Align16, u32, load_4_u32, store_4_u32;
    u64, 2, Align16, u64, load_2_u64, store_2_u64; i64, 2, Align16, u64, load_2_u64, store_2_u64;
    f64, 2, Align16, u64, load_2_u64, store_2_u64;
}

/// A cell of workgroup memory, which all lanes of the workgroup may read and write at any time. Kernels get cells as parameters
/// marked `#[workgroup]` ([`self`]).
///
/// Reading and writing is atomic, number by number, and costs what a plain access of workgroup memory costs. It is ordered with
/// nothing but by [`Lane::barrier`] and by orders of the cell's atomic operations, such as [`Shared::fetch_add`].
#[repr(C)]
pub struct Shared<T: SharedValue> {
    align: [T::Align; 0],
    value: UnsafeCell<T>,
}

// SAFETY: every access to the inner value is atomic.
unsafe impl<T: SharedValue> Sync for Shared<T> {}

impl<T: SharedValue> Shared<T> {
    /// Reads the value.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: there are cells in workgroup memory only, since nothing makes one elsewhere.
        unsafe { T::read(self.value.get()) }
    }

    /// Writes the value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        // SAFETY: as in `get`.
        unsafe { T::write(self.value.get(), value) }
    }
}

impl<T: AtomicWord> Shared<T> {
    #[inline(always)]
    fn atomic(&self) -> Atomic<T> {
        // SAFETY: as in `get`; every access is atomic.
        unsafe { Atomic::new(self.value.get(), Place::Shared) }
    }
}

methods!(Shared, ());
crate::global::refuse_in_place!(Shared, SharedValue);

impl<T: SharedValue + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.get()).finish()
    }
}

/// A type of values in workgroup memory: [`Shared`] cells, [`Scratch`], and arrays of them.
///
/// # Safety
/// Any bytes are a value, and all access is atomic or by one lane. It needs no more alignment than 16.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in workgroup memory",
    label = "not made for sharing",
    note = "lanes of a workgroup share `Shared<T>` cells, `Scratch<T>`, and arrays of these: `&[Shared<f32>; 256]`"
)]
pub unsafe trait Workgroup: Sync {}

// SAFETY: any bytes are one of `SharedValue`'s numbers, which are accessed atomically; 16 is the most that one is aligned to.
unsafe impl<T: SharedValue> Workgroup for Shared<T> {}
// SAFETY: an array of such.
unsafe impl<T: Workgroup, const N: usize> Workgroup for [T; N] {}
// SAFETY: an array of cells.
unsafe impl<T: SharedValue> Workgroup for Scratch<T> {}

/// Workgroup memory for reductions and scans of a workgroup, of 32 numbers. Several may use the same one, one after the other.
pub struct Scratch<T: SharedValue> {
    /// One of each wave.
    waves: [Shared<T>; 32],
}

impl<T: WaveNumber> Scratch<T> {
    /// The number of the wave if it is one of the first `count`, else one that changes nothing.
    #[inline(always)]
    fn number(&self, wave: u32, count: u32, operation: &impl Combine<T>) -> T {
        match self.waves.get(wave as usize) {
            Some(cell) if wave < count => cell.get(),
            _ => operation.absent(),
        }
    }
}

/// The lane as kernels see it that have parameters in workgroup memory.
#[doc(hidden)]
#[inline(always)]
pub fn lane_of_typed(lane: &Lane) -> Lane {
    lane.with_typed_memory()
}

/// Where the value behind one of type `T` at this offset begins.
#[doc(hidden)]
pub const fn end_of<T: Workgroup>(offset: usize) -> usize {
    (offset + size_of::<T>()).next_multiple_of(16)
}

/// The value in workgroup memory at this offset, behind what the device crate keeps.
///
/// # Safety
/// The launch gives the workgroup's memory that many bytes, and nothing else lies there. The offset is a multiple of 16.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn at<T: Workgroup>(_lane: &Lane, offset: usize) -> &T {
    // SAFETY: the caller's promise; any bytes are a value, which lives as long as the workgroup.
    unsafe { &*target::here().workgroup_memory().add(RESERVED_WORKGROUP_BYTES + offset).cast::<T>() }
}

/// The values from this offset to the end of the workgroup's memory.
///
/// # Safety
/// As for [`at`].
#[doc(hidden)]
#[inline(always)]
pub unsafe fn rest<T: Workgroup>(lane: &Lane, offset: usize) -> &[T] {
    const { assert!(size_of::<T>() > 0, "a slice of values that take no memory has no length") };
    let bytes = (lane.workgroup_memory_bytes() - RESERVED_WORKGROUP_BYTES).saturating_sub(offset);
    // SAFETY: the caller's promise; so many bytes are there.
    unsafe {
        let first = target::here().workgroup_memory().add(RESERVED_WORKGROUP_BYTES + offset);
        core::slice::from_raw_parts(first.cast::<T>(), bytes / size_of::<T>())
    }
}

/// What the lanes of a workgroup compute together. Every lane of the workgroup comes here, and none has ended; as at a
/// [`Lane::barrier`], of which each of these has two. Where one has ended, what is computed is any number.
impl Lane {
    /// The values of all lanes of the workgroup, combined; each of them gets the result.
    ///
    /// ```
    /// use hostcall_device::workgroup::Scratch;
    /// use hostcall_device::{Global, Lane, kernel, wave};
    ///
    /// /// Writes the sum of each workgroup's numbers.
    /// #[kernel]
    /// fn sums(lane: &Lane, #[workgroup] scratch: &Scratch<f32>, x: &[f32], out: &[Global<f32>]) {
    ///     let own = x.get(lane.global_id()).copied().unwrap_or(0.0);
    ///     let sum = lane.workgroup_reduce(scratch, own, wave::Add);
    ///     if lane.local_id() == 0 {
    ///         out[lane.workgroup()[0] as usize].set(sum);
    ///     }
    /// }
    /// ```
    #[inline]
    #[cfg_attr(not(any(target_arch = "nvptx64", target_arch = "amdgpu")), track_caller)]
    pub fn workgroup_reduce<T: WaveNumber>(
        &self,
        scratch: &Scratch<T>,
        value: T,
        operation: impl Combine<T>,
    ) -> T {
        let own = Group::of_wave().reduce(value, &operation);
        if self.index() == 0 {
            scratch.waves[self.wave() as usize].set(own);
        }
        self.barrier();
        let total = self.of_waves(scratch, self.waves(), &operation);
        // The numbers may be written again.
        self.barrier();
        total
    }

    /// The values of the workgroup's lanes up to this one, combined in the order of [`Lane::local_id`].
    #[inline]
    #[cfg_attr(not(any(target_arch = "nvptx64", target_arch = "amdgpu")), track_caller)]
    pub fn workgroup_scan<T: WaveNumber>(
        &self,
        scratch: &Scratch<T>,
        value: T,
        operation: impl Combine<T>,
    ) -> T {
        let own = Group::of_wave().scan(value, &operation);
        match self.before_wave(scratch, own, &operation) {
            None => own,
            Some(before) => operation.combine(before, own),
        }
    }

    /// The values of the workgroup's lanes before this one, combined in their order: [`Combine::identity`] for the first.
    ///
    /// ```
    /// use hostcall_device::workgroup::Scratch;
    /// use hostcall_device::{Global, Lane, Shared, kernel, wave};
    ///
    /// /// Moves the odd numbers of each workgroup's part of `x` to the part's front, and says how many there are.
    /// #[kernel]
    /// fn compact(
    ///     lane: &Lane,
    ///     #[workgroup] scratch: &Scratch<u32>,
    ///     x: &[u32],
    ///     out: &[Global<u32>],
    ///     counts: &[Global<u32>],
    /// ) {
    ///     let i = lane.global_id();
    ///     let odd = x.get(i).map_or(0, |x| x % 2);
    ///     let place = lane.workgroup_scan_exclusive(scratch, odd, wave::Add) as usize;
    ///     if odd == 1 {
    ///         out[i - lane.local_id() + place].set(x[i]);
    ///     }
    ///     let count = lane.workgroup_reduce(scratch, odd, wave::Add);
    ///     if lane.local_id() == 0 {
    ///         counts[lane.workgroup()[0] as usize].set(count);
    ///     }
    /// }
    /// ```
    #[inline]
    #[cfg_attr(not(any(target_arch = "nvptx64", target_arch = "amdgpu")), track_caller)]
    pub fn workgroup_scan_exclusive<T: WaveNumber>(
        &self,
        scratch: &Scratch<T>,
        value: T,
        operation: impl Combine<T>,
    ) -> T {
        let group = Group::of_wave();
        let with_own = group.scan(value, &operation);
        let own = group.shift(with_own, &operation);
        match self.before_wave(scratch, with_own, &operation) {
            None => own,
            Some(before) => operation.combine(before, own),
        }
    }

    /// How many waves the workgroup has.
    #[inline(always)]
    fn waves(&self) -> u32 {
        target::here().lanes_in_workgroup().div_ceil(self.wave_size())
    }

    /// What the first `count` waves have put into the scratch, combined.
    #[inline(always)]
    fn of_waves<T: WaveNumber>(&self, scratch: &Scratch<T>, count: u32, operation: &impl Combine<T>) -> T {
        let group = Group::of_wave();
        if !target::IN_STEP {
            return scratch
                .waves
                .iter()
                .take(count as usize)
                .map(Shared::get)
                .fold(operation.absent(), |a, b| operation.combine(a, b));
        }
        if group.mask != group.here.full() {
            return Self::of_waves_by_part(scratch, count, group.mask, operation);
        }
        group.reduce(scratch.number(group.here.lane_index(), count, operation), operation)
    }

    /// Combines the waves' values by the lanes of a wave that lacks some. Apart, so that what it alone needs is not made for whole waves too.
    #[cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), cold, inline(never))]
    fn of_waves_by_part<T: WaveNumber>(
        scratch: &Scratch<T>,
        count: u32,
        lanes: Mask,
        operation: &impl Combine<T>,
    ) -> T {
        let group = Group::of(target::here(), lanes);
        let mut own = scratch.number(group.rank, count, operation);
        // Only such a wave has more numbers than lanes.
        let mut wave = group.rank + group.count;
        while wave < count {
            own = operation.combine(own, scratch.number(wave, count, operation));
            wave += group.count;
        }
        group.reduce(own, operation)
    }

    /// The values of all lanes of the waves before this one, combined; `None` in the first wave. `with_own` are the lanes'
    /// values combined up to each.
    #[inline(always)]
    #[cfg_attr(not(any(target_arch = "nvptx64", target_arch = "amdgpu")), track_caller)]
    fn before_wave<T: WaveNumber>(
        &self,
        scratch: &Scratch<T>,
        with_own: T,
        operation: &impl Combine<T>,
    ) -> Option<T> {
        let group = Group::of_wave();
        if group.is_last() {
            scratch.waves[self.wave() as usize].set(with_own);
        }
        self.barrier();
        let before = (self.wave() > 0).then(|| self.of_waves(scratch, self.wave(), operation));
        // The numbers may be written again.
        self.barrier();
        before
    }
}
