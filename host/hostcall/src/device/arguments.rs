//! Kernel arguments: what the host passes for each parameter type, checked at compile time.
#![allow(unsafe_code, reason = "a raw argument's maker vouches for it")]

use super::buffer::{DeviceBuffer, PinnedBuffer};
use super::core::Core;
use super::error::{Error, GraphError, HostcallState, LaunchRefused};
use super::stream::Parts;
use super::uses::Access;
use hostcall_abi::launch::RawSlice;
use hostcall_device::kernel::{Joined, KernelArg, Optional, Plain, Ref, Reference, Slice, ValueArg};
use hostcall_device::{Disjoint, Global, Word};
use hostcall_seam::DeviceAddress;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize,
};

mod sealed {
    /// Whoever could implement [`super::IntoArg`] elsewhere could pass any address to a kernel.
    pub trait Sealed<P> {}
    /// Whoever could implement [`super::Arguments`] elsewhere could pass any address to a kernel.
    pub trait SealedTuple<P> {}
}

pub(crate) use sealed::{Sealed, SealedTuple};

/// A host value that can be passed for the kernel parameter `P`. Sealed: values of other kinds are passed as
/// [`RawArg`], whose maker vouches for them.
///
/// | parameter of the kernel | host value |
/// |---|---|
/// | `&[T]`, `&T` | `&DeviceBuffer<T>`, or a part of one |
/// | `Disjoint<'_, T>` | `&DeviceBuffer<T>`, or a part of one, that no other argument has any of |
/// | `&[Global<T>]`, `&Global<T>` | `&DeviceBuffer<T>`, `&PinnedBuffer<T>` |
/// | `&[AtomicU64]`, … | `&DeviceBuffer<u64>`, `&DeviceBuffer<AtomicU64>` |
/// | `Option<&[T]>`, `Option<&Global<T>>`, … | [`NoBuffer`], or `Some` of what the reference takes |
/// | a number, `bool`, a `Plain` struct, an array or tuple of these | the value |
/// | a closure | `&Hostcall<A, R>` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for the kernel's parameter `{P}`",
    note = "buffers and closures are passed by reference, numbers, structs and tuples by value"
)]
pub trait IntoArg<P: KernelArg>: Sealed<P> {
    /// Enters what the launch uses, and returns what lies in the argument block.
    #[doc(hidden)]
    fn pack(&self, packer: &mut Packer<'_>) -> Result<P::Raw, Error>;
}

/// A raw argument, for parameter types that other crates define.
pub struct RawArg<P: KernelArg> {
    raw: P::Raw,
    keep: Arc<dyn Any + Send + Sync>,
}

impl<P: KernelArg> RawArg<P> {
    /// Makes an argument. `keep` is kept until the launch has ended.
    ///
    /// # Safety
    /// `raw` fulfils what [`KernelArg::from_raw`] asks for, on every device that it is passed to, while `keep` lives.
    pub unsafe fn new(raw: P::Raw, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { raw, keep }
    }

    /// Returns what lies in the argument block.
    pub fn raw(&self) -> P::Raw {
        self.raw
    }
}

impl<P: KernelArg> Sealed<P> for &RawArg<P> {}

impl<P: KernelArg> IntoArg<P> for &RawArg<P> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<P::Raw, Error> {
        packer.keep(self.keep.clone());
        Ok(self.raw)
    }
}

/// Gathers a launch's arguments.
#[doc(hidden)]
pub struct Packer<'d> {
    core: &'d Arc<Core>,
    argument: usize,
    parts: &'d mut Parts,
    /// Where the argument block begins in the parameters' bytes.
    start: usize,
    /// The largest alignment of an argument, at least 8: the block's size is a multiple of it, as a struct's is.
    block_align: usize,
    /// The arguments that want `parts.wanted`.
    wanted_by: SmallVec<[usize; 4]>,
}

impl<'d> Packer<'d> {
    /// For a launch on this device, behind the parameters that `parts` has.
    pub(crate) fn new(core: &'d Arc<Core>, parts: &'d mut Parts) -> Self {
        let start = parts.parameters.bytes.len();
        Self { core, argument: 0, parts, start, block_align: 8, wanted_by: SmallVec::new() }
    }

    /// Keeps a value of the user's until the launch has ended.
    pub(crate) fn keep(&mut self, value: Arc<dyn Any + Send + Sync>) {
        self.parts.values.push(value);
    }

    /// Keeps memory of hostcall's until the launch has ended.
    pub(crate) fn keep_memory(&mut self, memory: Arc<dyn Any + Send + Sync>) {
        self.parts.memory.push(memory);
    }

    /// Refuses a closure that takes no more than one call as the argument of a graph's kernel.
    pub(crate) fn check_closure(&self, state: HostcallState) -> Result<(), Error> {
        if self.parts.is_recorded && state != HostcallState::Continuous {
            return Err(GraphError::OneShotClosure { argument: self.argument, state }.into());
        }
        Ok(())
    }

    /// Refuses what belongs to another device.
    pub(crate) fn check_device(&self, core: &Core) -> Result<(), Error> {
        self.core.check_own(core, format_args!("argument {} (the first is 0)", self.argument))
    }

    fn buffer<T: Plain>(&mut self, buffer: &DeviceBuffer<T>, access: Access) -> Result<(), Error> {
        self.check_device(&buffer.allocation.core)?;
        self.parts.wanted.push(buffer.wanted(access));
        self.wanted_by.push(self.argument);
        Ok(())
    }

    fn slice<T: Plain>(&mut self, buffer: &DeviceBuffer<T>, access: Access) -> Result<RawSlice, Error> {
        self.buffer(buffer, access)?;
        Ok(raw_slice::<T>(buffer.address(), buffer.len()))
    }

    fn one<T: Plain>(&mut self, buffer: &DeviceBuffer<T>, access: Access) -> Result<u64, Error> {
        if buffer.is_empty() {
            return Err(LaunchRefused::EmptyBuffer { argument: self.argument }.into());
        }
        self.buffer(&buffer.part(..1)?, access)?;
        Ok(buffer.address().get())
    }

    /// Returns the place of the argument that is packed next, from 0.
    pub(super) fn argument(&self) -> usize {
        self.argument
    }

    /// Enters a buffer, in which kernels write cells or nothing.
    pub(super) fn use_buffer(&mut self, buffer: &DeviceBuffer<u8>, has_cells: bool) -> Result<(), Error> {
        self.buffer(buffer, if has_cells { Access::Shared } else { Access::Read })
    }

    /// Keeps pinned memory until the launch has ended.
    pub(super) fn use_pinned<T: Word>(&mut self, buffer: &PinnedBuffer<T>) -> Result<(), Error> {
        self.check_device(&buffer.core)?;
        self.keep_memory(Arc::new(buffer.memory.clone()));
        Ok(())
    }

    /// Adds an argument that is these bytes.
    pub(super) fn push_bytes(&mut self, align: usize, bytes: &[u8]) {
        self.align(align);
        let start = self.add_zeros(bytes.len());
        self.parts.parameters.bytes[start..].copy_from_slice(bytes);
        self.argument += 1;
    }

    fn push<P: KernelArg>(&mut self, argument: &impl IntoArg<P>) -> Result<(), Error> {
        let raw = argument.pack(self)?;
        self.align(align_of::<P::Raw>());
        let start = self.add_zeros(size_of::<P::Raw>());
        P::write(raw, &mut self.parts.parameters.bytes[start..]);
        self.argument += 1;
        Ok(())
    }

    fn align(&mut self, align: usize) {
        self.block_align = self.block_align.max(align);
        let used = self.parts.parameters.bytes.len() - self.start;
        self.add_zeros(used.next_multiple_of(align) - used);
    }

    /// Adds bytes to the argument block, and returns where they begin.
    fn add_zeros(&mut self, mut count: usize) -> usize {
        const ZEROS: [u8; 32] = [0; 32];
        let bytes = &mut self.parts.parameters.bytes;
        let start = bytes.len();
        while count > 0 {
            let zeros = &ZEROS[..count.min(ZEROS.len())];
            bytes.extend_from_slice(zeros);
            count -= zeros.len();
        }
        start
    }

    /// Ends the argument block and returns its bytes' count. Refuses a launch that would write what it reads plainly.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        self.align(self.block_align);
        let Parts { parameters, wanted, .. } = self.parts;
        parameters.end();
        for (at, one) in wanted.iter().enumerate() {
            for (before, other) in wanted[..at].iter().enumerate() {
                if one.conflicts_with(other) {
                    let (plain, shared) =
                        if one.access == Access::Read { (at, before) } else { (before, at) };
                    let (plain, shared) = (self.wanted_by[plain], self.wanted_by[shared]);
                    return Err(LaunchRefused::Aliases { plain, shared }.into());
                }
            }
        }
        Ok((parameters.bytes.len() - self.start) as u64)
    }
}

/// A slice as it lies in the argument block. One without elements has an address too, since 0 is that of no slice.
fn raw_slice<T>(address: DeviceAddress, len: usize) -> RawSlice {
    let address = if len == 0 { align_of::<T>() as u64 } else { address.get() };
    RawSlice { address, len: len as u64 }
}

/// Nobody writes a `T` without cells; one with cells is written through its shared reference.
const fn access_of<T: Plain>() -> Access {
    if T::SHARED { Access::Shared } else { Access::Read }
}

impl<T: Plain> Sealed<Slice<T>> for &DeviceBuffer<T> {}

impl<T: Plain> IntoArg<Slice<T>> for &DeviceBuffer<T> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<RawSlice, Error> {
        packer.slice(self, access_of::<T>())
    }
}

impl<T: Plain> Sealed<Disjoint<'_, T>> for &DeviceBuffer<T> {}

impl<T: Plain> IntoArg<Disjoint<'_, T>> for &DeviceBuffer<T> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<RawSlice, Error> {
        packer.slice(self, Access::Write)
    }
}

impl<T: Plain> Sealed<Ref<T>> for &DeviceBuffer<T> {}

/// The first value of a buffer that has at least one.
impl<T: Plain> IntoArg<Ref<T>> for &DeviceBuffer<T> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<u64, Error> {
        packer.one(self, access_of::<T>())
    }
}

impl<T: Word> Sealed<Slice<Global<T>>> for &DeviceBuffer<T> {}

impl<T: Word> IntoArg<Slice<Global<T>>> for &DeviceBuffer<T> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<RawSlice, Error> {
        packer.slice(self, Access::Shared)
    }
}

impl<T: Word> Sealed<Ref<Global<T>>> for &DeviceBuffer<T> {}

impl<T: Word> IntoArg<Ref<Global<T>>> for &DeviceBuffer<T> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<u64, Error> {
        packer.one(self, Access::Shared)
    }
}

impl<T: Word> Sealed<Slice<Global<T>>> for &PinnedBuffer<T> {}

impl<T: Word> IntoArg<Slice<Global<T>>> for &PinnedBuffer<T> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<RawSlice, Error> {
        packer.use_pinned(self)?;
        Ok(raw_slice::<T>(self.address(), self.len()))
    }
}

macro_rules! atomics {
    ($($t:ty, $atomic:ty;)*) => {$(
        impl Sealed<Slice<$atomic>> for &DeviceBuffer<$t> {}
        impl IntoArg<Slice<$atomic>> for &DeviceBuffer<$t> {
            fn pack(&self, packer: &mut Packer<'_>) -> Result<RawSlice, Error> {
                packer.slice(self, Access::Shared)
            }
        }
        impl Sealed<Ref<$atomic>> for &DeviceBuffer<$t> {}
        impl IntoArg<Ref<$atomic>> for &DeviceBuffer<$t> {
            fn pack(&self, packer: &mut Packer<'_>) -> Result<u64, Error> {
                packer.one(self, Access::Shared)
            }
        }
    )*};
}

atomics! {
    u8, AtomicU8; u16, AtomicU16; u32, AtomicU32; u64, AtomicU64; usize, AtomicUsize;
    i8, AtomicI8; i16, AtomicI16; i32, AtomicI32; i64, AtomicI64; isize, AtomicIsize;
}

/// Stands for a buffer that a launch does without, where the kernel's parameter is an `Option`. `None` does as well, where its
/// type is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoBuffer;

impl<P: Reference> Sealed<Optional<P>> for NoBuffer {}

impl<P: Reference> IntoArg<Optional<P>> for NoBuffer {
    fn pack(&self, _: &mut Packer<'_>) -> Result<P::Raw, Error> {
        Ok(P::NONE)
    }
}

impl<P: Reference, A: IntoArg<P>> Sealed<Optional<P>> for Option<A> {}

impl<P: Reference, A: IntoArg<P>> IntoArg<Optional<P>> for Option<A> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<P::Raw, Error> {
        match self {
            None => Ok(P::NONE),
            Some(argument) => argument.pack(packer),
        }
    }
}

impl<T: ValueArg> Sealed<T> for T {}

/// A value that is passed as it is: a number, `bool`, a `Plain` struct, an array or tuple of these.
impl<T: ValueArg> IntoArg<T> for T {
    fn pack(&self, _: &mut Packer<'_>) -> Result<T::Raw, Error> {
        Ok(self.to_raw())
    }
}

/// Host values for the parameters `P` of a kernel: a tuple of them, or for more than 32 what [`arguments!`](crate::arguments)
/// makes.
#[diagnostic::on_unimplemented(
    message = "these are no arguments for the kernel's parameters",
    note = "arguments are a tuple of a host value for each parameter after the lane, `(&keys, 3u32, &out)`; more than 32 are \
            `arguments!(..)`"
)]
pub trait Arguments<P>: sealed::SealedTuple<P> {
    /// Packs the argument block, as the `repr(C)` struct that the kernel takes.
    #[doc(hidden)]
    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), Error>;
}

/// Makes the arguments of a launch of any number of values: `kernel.launch(&stream, grid, arguments!(&keys, 3u32, ..))`. Up to
/// 32 are a tuple, which can be written as such.
#[macro_export]
macro_rules! arguments {
    (
        $a0:expr, $a1:expr, $a2:expr, $a3:expr, $a4:expr, $a5:expr, $a6:expr, $a7:expr, $a8:expr, $a9:expr, $a10:expr,
        $a11:expr, $a12:expr, $a13:expr, $a14:expr, $a15:expr, $a16:expr, $a17:expr, $a18:expr, $a19:expr, $a20:expr,
        $a21:expr, $a22:expr, $a23:expr, $a24:expr, $a25:expr, $a26:expr, $a27:expr, $a28:expr, $a29:expr, $a30:expr,
        $a31:expr, $($rest:expr),+ $(,)?
    ) => {
        (
            (
                $a0, $a1, $a2, $a3, $a4, $a5, $a6, $a7, $a8, $a9, $a10, $a11, $a12, $a13, $a14, $a15, $a16, $a17, $a18,
                $a19, $a20, $a21, $a22, $a23, $a24, $a25, $a26, $a27, $a28, $a29, $a30, $a31,
            ),
            $crate::arguments!($($rest),+),
        )
    };
    ($($argument:expr),* $(,)?) => { ($($argument,)*) };
}

impl<P, Q, A: Arguments<P>, B: Arguments<Q>> sealed::SealedTuple<Joined<P, Q>> for (A, B) {}

impl<P, Q, A: Arguments<P>, B: Arguments<Q>> Arguments<Joined<P, Q>> for (A, B) {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), Error> {
        self.0.pack(packer)?;
        self.1.pack(packer)
    }
}

macro_rules! tuple {
    ($($p:ident $a:ident $i:tt),*) => {
        impl<$($p: KernelArg, $a: IntoArg<$p>),*> sealed::SealedTuple<($($p,)*)> for ($($a,)*) {}
        impl<$($p: KernelArg, $a: IntoArg<$p>),*> Arguments<($($p,)*)> for ($($a,)*) {
            #[allow(unused_variables, reason = "the empty tuple pushes nothing")]
            fn pack(&self, packer: &mut Packer<'_>) -> Result<(), Error> {
                $(packer.push::<$p>(&self.$i)?;)*
                Ok(())
            }
        }
    };
}

/// Tuples of the first of these, of none at first, and of one more each time.
macro_rules! tuples {
    ([$($p:ident $a:ident $i:tt),*]) => { tuple!($($p $a $i),*); };
    ([$($p:ident $a:ident $i:tt),*] $np:ident $na:ident $ni:tt $($rest:tt)*) => {
        tuple!($($p $a $i),*);
        tuples!([$($p $a $i,)* $np $na $ni] $($rest)*);
    };
}

tuples! {
    []
    P0 A0 0 P1 A1 1 P2 A2 2 P3 A3 3 P4 A4 4 P5 A5 5 P6 A6 6 P7 A7 7 P8 A8 8 P9 A9 9 P10 A10 10 P11 A11 11 P12 A12 12
    P13 A13 13 P14 A14 14 P15 A15 15 P16 A16 16 P17 A17 17 P18 A18 18 P19 A19 19 P20 A20 20 P21 A21 21 P22 A22 22
    P23 A23 23 P24 A24 24 P25 A25 25 P26 A26 26 P27 A27 27 P28 A28 28 P29 A29 29 P30 A30 30 P31 A31 31
}

const _: () = assert!(hostcall_device::kernel::PARAMETERS_IN_A_TUPLE == 32, "as many as there are here");
