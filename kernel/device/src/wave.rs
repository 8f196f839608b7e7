//! What the lanes of a wave compute together: shuffles, votes, matches, reductions and scans.
//!
//! Each of these takes the lanes that came there together. It asks once who came, and all its steps use that
//! mask: so no mask is the author's to get wrong, and no lane waits for one that went another way. Which
//! lanes come together is not promised behind a branch; a kernel that needs all of them puts a barrier
//! before.
//!
//! A full wave takes a butterfly, or shuffles by index: 5 or 6 steps. In a part of a wave each lane follows a
//! pointer to the lane before it, which each step makes reach twice as far: as many steps, for any mask.
//! Targets give the steps (`shuffle_u32`, `shuffle`, `matching` and, on NVIDIA from sm_80 on, `redux`); on
//! the software device a step is one exchange among the part's lanes. The order in which floats are added
//! differs between devices.

use crate::atomic::AtomicWord;
use crate::group::Group;
use crate::lane::Lane;
use crate::target::{self, Mask};

/// A number that lanes of a wave pass to each other: `u32`, `i32`, `u64`, `i64`, `usize`, `isize`, `f32` and `f64`. It is the
/// one bound that a generic function needs for shuffles, and for reductions and scans with [`Add`], [`Min`] and [`Max`].
#[diagnostic::on_unimplemented(
    message = "lanes do not pass a `{Self}` to each other",
    label = "no number of 32 or 64 bits",
    note = "convert smaller integers (`n.into()`), and pass the fields of a struct one by one"
)]
pub trait WaveNumber: AtomicWord + Rule<Add> + Rule<Min> + Rule<Max> {
    /// Whether it has 64 bits.
    #[doc(hidden)]
    const WIDE: bool;
    #[doc(hidden)]
    fn to_raw_bits(self) -> u64;
    #[doc(hidden)]
    fn from_raw_bits(bits: u64) -> Self;
}

/// How a reduction or a scan combines two values. [`Add`], [`Min`], [`Max`], [`And`], [`Or`] and [`Xor`] are there, and
/// [`with`] makes one of a closure.
///
/// The operation must be associative and commutative for the result to mean something: which values are combined first is
/// not said, and differs between devices. All lanes of a part run it, some for nothing: it must not panic or wait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not combine values of type `{T}`",
    label = "no operation on `{T}`",
    note = "a closure is one with the value that changes nothing: `wave::with(1, |a, b| a * b)`; `And`, `Or` and `Xor` are of \
            integers"
)]
pub trait Combine<T> {
    /// The operation that NVIDIA's processors of compute capability 8.0 and later have an instruction for.
    #[doc(hidden)]
    const REDUX: Option<Redux> = None;
    /// Returns the value that changes nothing: what an exclusive scan gives to the first lane.
    fn identity(&self) -> T;
    /// Returns what stands for lanes and waves that are not there: [`Combine::identity`], or for the smallest and largest of
    /// floats a `NaN`, beside which `NaN`s count.
    #[doc(hidden)]
    #[inline(always)]
    fn absent(&self) -> T {
        self.identity()
    }
    /// Combines two values.
    fn combine(&self, a: T, b: T) -> T;
}

/// Makes an operation of a closure and of the value that changes nothing. The closure is the same for all lanes: what it
/// captures has the same value in each.
///
/// ```
/// use hostcall_device::{Global, Lane, kernel, wave};
///
/// /// Writes the product of each wave's numbers.
/// #[kernel]
/// fn products(lane: &Lane, x: &[f32], out: &[Global<f32>]) {
///     let own = x.get(lane.global_id()).copied().unwrap_or(1.0);
///     let product = lane.wave_reduce(own, wave::with(1.0, |a, b| a * b));
///     if lane.index() == 0 {
///         out[lane.global_id() / lane.wave_size() as usize].set(product);
///     }
/// }
/// ```
#[inline(always)]
pub const fn with<T, F: Fn(T, T) -> T>(identity: T, combine: F) -> With<T, F> {
    With { identity, combine }
}

/// An operation that [`with`] makes.
#[derive(Clone, Copy, Debug)]
pub struct With<T, F> {
    identity: T,
    combine: F,
}

impl<T: Copy, F: Fn(T, T) -> T> Combine<T> for With<T, F> {
    #[inline(always)]
    fn identity(&self) -> T {
        self.identity
    }
    #[inline(always)]
    fn combine(&self, a: T, b: T) -> T {
        (self.combine)(a, b)
    }
}

/// What an operation is for numbers of one type.
#[doc(hidden)]
pub trait Rule<O>: Sized {
    const IDENTITY: Self;
    const ABSENT: Self;
    const REDUX: Option<Redux>;
    fn combine(a: Self, b: Self) -> Self;
}

/// A reduction of a 32-bit integer in hardware.
#[doc(hidden)]
#[derive(Clone, Copy)]
#[cfg_attr(
    not(all(target_arch = "nvptx64", target_feature = "sm_80")),
    expect(dead_code, reason = "other devices have no such instruction")
)]
pub struct Redux(pub(crate) Operation);

#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Add,
    UnsignedMin,
    UnsignedMax,
    SignedMin,
    SignedMax,
    And,
    Or,
    Xor,
}

/// The sum. Of integers it wraps.
#[derive(Clone, Copy, Debug)]
pub struct Add;
/// The smallest value. A `NaN` counts only among nothing but `NaN`s; which of two zeros is smaller is not said.
#[derive(Clone, Copy, Debug)]
pub struct Min;
/// The largest value. A `NaN` counts only among nothing but `NaN`s; which of two zeros is larger is not said.
#[derive(Clone, Copy, Debug)]
pub struct Max;
/// The bits that all values have.
#[derive(Clone, Copy, Debug)]
pub struct And;
/// The bits that any value has.
#[derive(Clone, Copy, Debug)]
pub struct Or;
/// The bits that an odd number of values have.
#[derive(Clone, Copy, Debug)]
pub struct Xor;

macro_rules! operations {
    ($($operation:ident)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: Rule<$operation>> Combine<T> for $operation {
            const REDUX: Option<Redux> = T::REDUX;
            #[inline(always)]
            fn identity(&self) -> T {
                T::IDENTITY
            }
            #[inline(always)]
            fn absent(&self) -> T {
                T::ABSENT
            }
            #[inline(always)]
            fn combine(&self, a: T, b: T) -> T {
                T::combine(a, b)
            }
        }
    )*};
}

operations!(Add Min Max And Or Xor);

macro_rules! rule {
    ($t:ty, $operation:ty, $identity:expr, $absent:expr, $redux:expr, $combine:expr) => {
        impl Rule<$operation> for $t {
            const IDENTITY: $t = $identity;
            const ABSENT: $t = $absent;
            const REDUX: Option<Redux> = $redux;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t {
                $combine(a, b)
            }
        }
    };
}

macro_rules! integers {
    ($($t:ty, $wide:literal, $unsigned:ty, [$($redux:expr),*];)*) => {$(
        impl WaveNumber for $t {
            const WIDE: bool = $wide;
            #[inline(always)]
            fn to_raw_bits(self) -> u64 {
                self as $unsigned as u64
            }
            #[inline(always)]
            fn from_raw_bits(bits: u64) -> Self {
                bits as $t
            }
        }
        integers!(@ $t, [Add: 0, <$t>::wrapping_add; Min: <$t>::MAX, core::cmp::min; Max: <$t>::MIN, core::cmp::max;
            And: !0, core::ops::BitAnd::bitand; Or: 0, core::ops::BitOr::bitor; Xor: 0, core::ops::BitXor::bitxor],
            [$($redux),*]);
    )*};
    (@ $t:ty, [$($operation:ty: $identity:expr, $combine:expr);*], [$($redux:expr),*]) => {
        $(rule!($t, $operation, $identity, $identity, $redux, $combine);)*
    };
}

macro_rules! redux {
    ($operation:ident) => {
        Some(Redux(Operation::$operation))
    };
}

integers! {
    u32, false, u32, [redux!(Add), redux!(UnsignedMin), redux!(UnsignedMax), redux!(And), redux!(Or), redux!(Xor)];
    i32, false, u32, [redux!(Add), redux!(SignedMin), redux!(SignedMax), redux!(And), redux!(Or), redux!(Xor)];
    u64, true, u64, [None, None, None, None, None, None];
    i64, true, u64, [None, None, None, None, None, None];
    usize, true, usize, [None, None, None, None, None, None];
    isize, true, usize, [None, None, None, None, None, None];
}

macro_rules! floats {
    ($($t:ty, $wide:literal, $bits:ty;)*) => {$(
        impl WaveNumber for $t {
            const WIDE: bool = $wide;
            #[inline(always)]
            fn to_raw_bits(self) -> u64 {
                self.to_bits().into()
            }
            #[inline(always)]
            fn from_raw_bits(bits: u64) -> Self {
                <$t>::from_bits(bits as $bits)
            }
        }
        rule!($t, Add, -0.0, -0.0, None, core::ops::Add::add);
        rule!($t, Min, <$t>::INFINITY, <$t>::NAN, None, <$t>::min);
        rule!($t, Max, <$t>::NEG_INFINITY, <$t>::NAN, None, <$t>::max);
    )*};
}

floats! {
    f32, false, u32;
    f64, true, u64;
}

impl Group {
    /// Each lane's value from the lane of index `from`, which is one of the group.
    #[inline(always)]
    fn take<T: WaveNumber>(&self, value: T, from: u32) -> T {
        let bits = value.to_raw_bits();
        T::from_raw_bits(if T::WIDE {
            let (low, high) = (bits as u32, (bits >> 32) as u32);
            self.here.shuffle(self.mask, low, high, from)
        } else {
            self.here.shuffle_u32(self.mask, bits as u32, from).into()
        })
    }

    /// What the lane `by` before this one has, in a full wave; the first `by` lanes have their own.
    #[inline(always)]
    fn take_up<T: WaveNumber>(&self, value: T, by: u32) -> T {
        #[cfg(target_arch = "nvptx64")]
        {
            let bits = value.to_raw_bits();
            let up = |half: u32| u64::from(self.here.shuffle_up_u32(half, by));
            T::from_raw_bits(if T::WIDE {
                up(bits as u32) | up((bits >> 32) as u32) << 32
            } else {
                up(bits as u32)
            })
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let lane = self.here.lane_index();
            self.take(value, if lane >= by { lane - by } else { lane })
        }
    }

    /// The value of the lane of index `from`, or the own one when that lane is none of the group.
    #[inline(always)]
    fn take_or_keep<T: WaveNumber>(&self, value: T, from: u32) -> T {
        let is_here = target::bits(self.mask).checked_shr(from).unwrap_or(0) & 1 != 0;
        self.take(value, if is_here { from } else { self.here.lane_index() })
    }

    /// The same group, if every lane of a full wave is here: then its mask is a constant where that spares instructions.
    #[inline(always)]
    fn full(&self) -> Option<Self> {
        let full = self.here.full();
        (self.mask == full).then_some(Self { mask: full, ..*self })
    }

    /// The index of the lane before this one in the group, or this one's.
    #[inline(always)]
    fn previous(&self) -> u32 {
        let below = target::bits(self.mask) & ((1 << self.here.lane_index()) - 1);
        if below == 0 { self.here.lane_index() } else { 63 - below.leading_zeros() }
    }

    /// What the lane before this one has; the first has the identity.
    #[inline(always)]
    pub(crate) fn shift<T: WaveNumber>(&self, value: T, operation: &impl Combine<T>) -> T {
        let before = self.take(value, self.previous());
        if self.rank == 0 { operation.identity() } else { before }
    }

    /// The inclusive scan. In the step of `width`, each lane has combined the values of the `width` lanes up to it.
    #[inline(always)]
    pub(crate) fn scan<T: WaveNumber>(&self, mut value: T, operation: &impl Combine<T>) -> T {
        let mut width = 1;
        if let Some(full) = self.full() {
            while width < self.here.wave_size() {
                let other = full.take_up(value, width);
                value = if self.here.lane_index() >= width { operation.combine(other, value) } else { value };
                width *= 2;
            }
            return value;
        }
        Self::scan_part(self.mask, value, operation)
    }

    /// The inclusive scan of a wave that lacks lanes. Apart, so that what it alone needs is not made for whole waves too.
    #[cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), cold, inline(never))]
    fn scan_part<T: WaveNumber>(mask: Mask, value: T, operation: &impl Combine<T>) -> T {
        Self::of(target::here(), mask).scan_by_index(value, operation)
    }

    /// The inclusive scan of any lanes.
    #[inline(always)]
    fn scan_by_index<T: WaveNumber>(&self, mut value: T, operation: &impl Combine<T>) -> T {
        let mut width = 1;
        // Each lane knows the one that is `width` before it in the group; the one before that one is twice as far.
        let mut before = self.previous();
        while width < self.count {
            let other = self.take(value, before);
            value = if self.rank >= width { operation.combine(other, value) } else { value };
            before = self.here.shuffle_u32(self.mask, before, before);
            width *= 2;
        }
        value
    }

    #[inline(always)]
    pub(crate) fn reduce<T: WaveNumber, O: Combine<T>>(&self, mut value: T, operation: &O) -> T {
        #[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
        if let Some(Redux(instruction)) = O::REDUX {
            return T::from_raw_bits(
                self.here.redux(self.mask, instruction, value.to_raw_bits() as u32).into(),
            );
        }
        if let Some(full) = self.full() {
            let mut width = self.here.wave_size() / 2;
            while width > 0 {
                value = operation.combine(value, full.take(value, self.here.lane_index() ^ width));
                width /= 2;
            }
            return value;
        }
        let last = 63 - target::bits(self.mask).leading_zeros();
        self.take(self.scan(value, operation), last)
    }
}

/// What the lanes of a wave do that came to the same place together. All of these take the lanes as they come, as
/// [`Lane::active`] does: lanes that could have come may be missing, and what is computed is then that of the others.
/// So a lane never waits here for one that goes another way, and there is no mask to get wrong. After
/// [`Lane::barrier`] the lanes of a wave are together.
///
/// Instructions on NVIDIA when all 32 lanes come, beside the one that asks who came: a vote or a 32-bit shuffle is 1, a
/// 64-bit shuffle 2, a reduction of `u32` or `i32` 1 from compute capability 8.0 on; any other reduction is 5 shuffles
/// (10 of 64 bits) and 5 operations, a scan the same and selections. A part of a wave takes twice the shuffles. AMD takes
/// a `ds_bpermute` for each 32 bits shuffled, in 6 steps a wave of 64.
impl Lane {
    /// Whether `yes` holds for any of the lanes that came here.
    #[track_caller]
    #[inline]
    pub fn wave_any(&self, yes: bool) -> bool {
        let group = self.group();
        group.here.ballot(group.mask, yes) != 0
    }

    /// Whether `yes` holds for all of the lanes that came here.
    #[track_caller]
    #[inline]
    pub fn wave_all(&self, yes: bool) -> bool {
        self.group().all(yes)
    }

    /// The lanes that came here with the same bits as `value`, one bit a lane: the calling one is among them.
    ///
    /// ```
    /// use hostcall_device::{Global, Lane, kernel};
    ///
    /// /// Writes how many lanes of the wave have the same key.
    /// #[kernel]
    /// fn same_keys(lane: &Lane, keys: &[u32], count: &[Global<u32>]) {
    ///     let i = lane.global_id();
    ///     if i < keys.len() {
    ///         count[i].set(lane.wave_match(keys[i]).count_ones());
    ///     }
    /// }
    /// ```
    #[track_caller]
    #[inline]
    pub fn wave_match<T: WaveNumber>(&self, value: T) -> u64 {
        let group = self.group();
        target::bits(group.here.matching(group.mask, value.to_raw_bits()))
    }

    /// The value of the lane of index `from`, which each lane chooses, or the own one when that lane did not come.
    #[track_caller]
    #[inline]
    pub fn shuffle<T: WaveNumber>(&self, value: T, from: u32) -> T {
        self.group().take_or_keep(value, from)
    }

    /// The value of the lane whose index is `by` smaller, or the own one when that lane did not come.
    ///
    /// ```
    /// use hostcall_device::{Global, Lane, kernel};
    ///
    /// /// Differences of neighbours in a wave; the first lane's is 0.
    /// #[kernel]
    /// fn differences(lane: &Lane, x: &[f32], out: &[Global<f32>]) {
    ///     let i = lane.global_id();
    ///     if i < x.len() {
    ///         out[i].set(x[i] - lane.shuffle_up(x[i], 1));
    ///     }
    /// }
    /// ```
    #[track_caller]
    #[inline]
    pub fn shuffle_up<T: WaveNumber>(&self, value: T, by: u32) -> T {
        let group = self.group();
        group.take_or_keep(value, group.here.lane_index().checked_sub(by).unwrap_or(u32::MAX))
    }

    /// The value of the lane whose index is `by` larger, or the own one when that lane did not come.
    #[track_caller]
    #[inline]
    pub fn shuffle_down<T: WaveNumber>(&self, value: T, by: u32) -> T {
        let group = self.group();
        group.take_or_keep(value, group.here.lane_index().saturating_add(by))
    }

    /// The value of the lane whose index differs in the bits of `mask`, or the own one when that lane did not come.
    #[track_caller]
    #[inline]
    pub fn shuffle_xor<T: WaveNumber>(&self, value: T, mask: u32) -> T {
        let group = self.group();
        group.take_or_keep(value, group.here.lane_index() ^ mask)
    }

    /// The values of all lanes that came here, combined; each of them gets the result.
    ///
    /// Lanes that are absent have no part in it: those that went another way or have ended, and those that a wave at the end of
    /// a workgroup does not have. It is as if their values were [`Combine::identity`], and nobody waits for them. So lanes
    /// that come in two parts get two results, each of its own part: put a condition into the value, as here, and not around
    /// the call, where all lanes are to count. Of numbers with a point the order of the additions, and with it the last bits,
    /// depends on how many came.
    ///
    /// ```
    /// use core::sync::atomic::{AtomicU32, Ordering};
    /// use hostcall_device::{Lane, kernel, wave};
    ///
    /// /// Counts the negative numbers, with one atomic addition a wave.
    /// #[kernel]
    /// fn count_negative(lane: &Lane, x: &[f32], count: &AtomicU32) {
    ///     let i = lane.global_id();
    ///     let own = u32::from(i < x.len() && x[i] < 0.0);
    ///     let sum = lane.wave_reduce(own, wave::Add);
    ///     lane.once_per_wave(|| count.fetch_add(sum, Ordering::Relaxed));
    /// }
    /// ```
    #[track_caller]
    #[inline]
    pub fn wave_reduce<T: WaveNumber>(&self, value: T, operation: impl Combine<T>) -> T {
        self.group().reduce(value, &operation)
    }

    /// The values of the lanes that came here up to this one, combined in their order.
    #[track_caller]
    #[inline]
    pub fn wave_scan<T: WaveNumber>(&self, value: T, operation: impl Combine<T>) -> T {
        self.group().scan(value, &operation)
    }

    /// The values of the lanes that came here before this one, combined in their order: [`Combine::identity`] for the
    /// first.
    ///
    /// ```
    /// use hostcall_device::{Global, Lane, kernel, wave};
    ///
    /// /// Moves the odd numbers of each wave's part of `x` to the part's front.
    /// #[kernel]
    /// fn compact(lane: &Lane, x: &[u32], out: &[Global<u32>]) {
    ///     let i = lane.global_id();
    ///     if i < x.len() {
    ///         let odd = x[i] % 2;
    ///         let place = i - lane.index() as usize + lane.wave_scan_exclusive(odd, wave::Add) as usize;
    ///         if odd == 1 {
    ///             out[place].set(x[i]);
    ///         }
    ///     }
    /// }
    /// ```
    #[track_caller]
    #[inline]
    pub fn wave_scan_exclusive<T: WaveNumber>(&self, value: T, operation: impl Combine<T>) -> T {
        let group = self.group();
        group.shift(group.scan(value, &operation), &operation)
    }
}
