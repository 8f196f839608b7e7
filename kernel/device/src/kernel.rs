//! Kernels as the host launches them, and the types that their parameters may have.

use core::marker::PhantomData;
use hostcall_abi::launch::{KernelInfo, RawSlice};
use hostcall_abi::schema;

pub use crate::plain::{Aligned, Plain};

/// A kernel, as `#[kernel]` makes it: what a host launches. `P` is the tuple of its parameters after the lane, each a
/// [`KernelArg`]: `(Slice<u64>, Slice<Global<u64>>, u32)`.
pub struct Kernel<P> {
    path: &'static str,
    info: KernelInfo,
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    entry: hostcall_abi::cpu::Entry,
    parameters: PhantomData<fn(P)>,
}

impl<P> Kernel<P> {
    /// Makes the constant that `#[kernel]` expands to.
    ///
    /// # Safety
    /// `info` must describe a kernel with these parameters, and `entry` must be its entry.
    #[doc(hidden)]
    pub const unsafe fn new(
        path: &'static str,
        info: KernelInfo,
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))] entry: hostcall_abi::cpu::Entry,
    ) -> Self {
        Self {
            path,
            info,
            #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
            entry,
            parameters: PhantomData,
        }
    }

    /// Returns the name by which images have the kernel.
    pub fn name(&self) -> &'static str {
        self.path.rsplit("::").next().unwrap_or(self.path)
    }

    /// Returns the kernel's place in its program and its name: `shop::stock::count`.
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// Returns the kernel's schema, sizes and defaults.
    pub const fn info(&self) -> &KernelInfo {
        &self.info
    }

    /// Returns the entry that the software device calls.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub const fn entry(&self) -> hostcall_abi::cpu::Entry {
        self.entry
    }
}

impl<P> Clone for Kernel<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Kernel<P> {}

/// A kernel that is an `unsafe fn`: who launches it must keep what its documentation asks for.
///
/// ```
/// use hostcall_device::{Global, Lane, kernel};
///
/// /// Copies `from` to `to`.
/// ///
/// /// # Safety
/// /// `indices` must be smaller than the length of `from`.
/// #[kernel]
/// unsafe fn gather(lane: &Lane, indices: &[u32], from: &[f32], to: &[Global<f32>]) {
///     let i = lane.global_id();
///     // SAFETY: who launches the kernel promises that.
///     to[i].set(unsafe { *from.get_unchecked(indices[i] as usize) });
/// }
///
/// // SAFETY: every index that this program passes comes from a search in `from`.
/// let checked = unsafe { gather.assume_safe() };
/// assert_eq!(checked.name(), "gather"); // `checked.launch(..)` works
/// ```
pub struct UnsafeKernel<P>(Kernel<P>);

impl<P> UnsafeKernel<P> {
    /// Makes the constant that `#[kernel]` expands to.
    ///
    /// # Safety
    /// As for [`Kernel`]'s.
    #[doc(hidden)]
    pub const unsafe fn new(
        path: &'static str,
        info: KernelInfo,
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))] entry: hostcall_abi::cpu::Entry,
    ) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe {
            Kernel::new(
                path,
                info,
                #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
                entry,
            )
        })
    }

    /// Returns the kernel as one that can be launched.
    ///
    /// # Safety
    /// Every launch of what this returns must keep what the kernel's documentation asks for.
    pub const unsafe fn assume_safe(self) -> Kernel<P> {
        self.0
    }
}

impl<P> Clone for UnsafeKernel<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for UnsafeKernel<P> {}

/// A type of kernel parameter.
///
/// # Safety
/// - Host and device, possibly of different architectures, must lay [`KernelArg::Raw`] out alike.
/// - [`KernelArg::write`] must initialise all bytes.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot take a parameter of type `{Self}`",
    label = "no kernel parameter",
    note = "a parameter is a number, `bool`, a `#[derive(Plain, Clone, Copy)]` struct, an array or tuple of these, \
            `&[T]` or `&T` where `T` is `Plain`, an `Option` of such a reference, a `Disjoint`, a `HostcallRef`, or a \
             `RawStream`"
)]
pub unsafe trait KernelArg {
    /// What lies in the argument block.
    type Raw: Copy + 'static;
    /// What the kernel's function takes.
    type Value<'launch>;
    /// Hash of the type.
    const SCHEMA: u64;

    /// Makes the value.
    ///
    /// # Safety
    /// `raw` must have been made for this parameter type. What it refers to must live for `'launch`, and nobody may
    /// write it in that time but through [`Global`](crate::Global) or atomics, or a [`Disjoint`](crate::Disjoint): then nobody else may
    /// access it in that time, and each lane makes one value.
    unsafe fn from_raw<'launch>(raw: Self::Raw) -> Self::Value<'launch>;

    /// Writes the bytes of an argument, padding as zeros.
    ///
    /// # Panics
    /// When `bytes` is not as long as [`KernelArg::Raw`].
    fn write(raw: Self::Raw, bytes: &mut [u8]);
}

/// A type of kernel parameter that is passed by value: what a host passes is what the kernel gets.
///
/// # Safety
/// `Self::Value<'_>` must be `Self`, and `from_raw(to_raw(x))` must be `x` and safe.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not passed to a kernel by value",
    label = "no number, `bool`, or `Plain` struct that is `Copy`",
    note = "tuples and arrays of a kernel's parameters hold values: buffers are parameters of their own"
)]
pub unsafe trait ValueArg: KernelArg + Copy + Send + Sync + 'static {
    /// Returns what lies in the argument block.
    fn to_raw(self) -> Self::Raw;
}

/// Writes a value that has no padding.
///
/// # Safety
/// `T` must have no padding.
pub(crate) unsafe fn write_whole<T: Copy>(value: &T, bytes: &mut [u8]) {
    // SAFETY: all bytes of a value without padding are initialised.
    bytes.copy_from_slice(unsafe {
        core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
    });
}

/// The place of a slice's first element. It is of global memory, as any address is that is not in another memory's window.
/// Hosts give a slice without elements an address too, at which nothing lies, since no reference is null.
#[inline(always)]
pub(crate) fn first_of<T>(raw: RawSlice) -> *const T {
    crate::target::global(raw.address).cast()
}

/// Marks a parameter `&[T]`.
pub struct Slice<T>(PhantomData<fn(T)>);

/// Marks a parameter `&T`.
pub struct Ref<T>(PhantomData<fn(T)>);

// SAFETY: `RawSlice` is `repr(C)` of two `u64`s on every target.
unsafe impl<T: Plain> KernelArg for Slice<T> {
    type Raw = RawSlice;
    type Value<'launch> = &'launch [T];
    const SCHEMA: u64 = schema::add_hash(schema::of("slice"), T::SCHEMA);
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: RawSlice) -> &'launch [T] {
        // SAFETY: by this function's contract the host has put `len` elements of `T` there, for `'launch`; any bytes
        // are a `T` since it is `Plain`.
        unsafe { core::slice::from_raw_parts(first_of(raw), raw.len as usize) }
    }
    fn write(raw: RawSlice, bytes: &mut [u8]) {
        // SAFETY: two `u64`s have no padding.
        unsafe { write_whole(&raw, bytes) }
    }
}

// SAFETY: an address is a `u64` on every target.
unsafe impl<T: Plain> KernelArg for Ref<T> {
    type Raw = u64;
    type Value<'launch> = &'launch T;
    const SCHEMA: u64 = schema::add_hash(schema::of("ref"), T::SCHEMA);
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: u64) -> &'launch T {
        // SAFETY: by this function's contract the host has put a `T` there, for `'launch`; any bytes are a `T`
        // since it is `Plain`.
        unsafe { &*crate::target::global(raw).cast() }
    }
    fn write(raw: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&raw.to_ne_bytes());
    }
}

/// Marks a parameter `Option<&[T]>` or `Option<&T>`, where `P` marks the reference.
pub struct Optional<P>(PhantomData<fn(P)>);

/// A parameter that refers to a buffer, and can do without one as [`Optional`].
///
/// # Safety
/// No reference has `NONE` as its raw value, and `is_none` says whether a raw value is that.
#[diagnostic::on_unimplemented(
    message = "only a reference to a buffer can be left away, and `{Self}` is none",
    label = "neither `&[T]` nor `&T`"
)]
pub unsafe trait Reference: KernelArg {
    /// What lies in the argument block where there is no buffer.
    const NONE: Self::Raw;
    /// Says whether there is no buffer.
    fn is_none(raw: &Self::Raw) -> bool;
}

// SAFETY: no slice begins at address 0, on which hosts see to it that this holds for slices without elements too.
unsafe impl<T: Plain> Reference for Slice<T> {
    const NONE: RawSlice = RawSlice { address: 0, len: 0 };
    #[inline(always)]
    fn is_none(raw: &RawSlice) -> bool {
        raw.address == 0
    }
}

// SAFETY: no value of a buffer lies at address 0.
unsafe impl<T: Plain> Reference for Ref<T> {
    const NONE: u64 = 0;
    #[inline(always)]
    fn is_none(raw: &u64) -> bool {
        *raw == 0
    }
}

// SAFETY: the raw value is that of the reference.
unsafe impl<P: Reference> KernelArg for Optional<P> {
    type Raw = P::Raw;
    type Value<'launch> = Option<P::Value<'launch>>;
    const SCHEMA: u64 = schema::add_hash(schema::of("optional"), P::SCHEMA);
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: P::Raw) -> Self::Value<'launch> {
        // SAFETY: the caller's promise, where there is a buffer.
        if P::is_none(&raw) { None } else { Some(unsafe { P::from_raw(raw) }) }
    }
    fn write(raw: P::Raw, bytes: &mut [u8]) {
        P::write(raw, bytes);
    }
}

/// The parameters of a kernel that has more than [`PARAMETERS_IN_A_TUPLE`]: a tuple of so many, and the others, which are a
/// tuple or [`Joined`] again.
pub struct Joined<P, Q>(PhantomData<fn(P, Q)>);

/// Most parameters that are one tuple.
pub const PARAMETERS_IN_A_TUPLE: usize = 32;

// SAFETY: `Plain` says that every target lays the type out alike, and that it has no padding.
unsafe impl<T: Plain + Copy> KernelArg for T {
    type Raw = T;
    type Value<'launch> = T;
    const SCHEMA: u64 = T::SCHEMA;
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: T) -> Self::Value<'launch> {
        raw
    }
    fn write(raw: T, bytes: &mut [u8]) {
        // SAFETY: a `Plain` value has no padding.
        unsafe { write_whole(&raw, bytes) }
    }
}

// SAFETY: both functions give back what they got.
unsafe impl<T: Plain + Copy + Send> ValueArg for T {
    fn to_raw(self) -> T {
        self
    }
}

// SAFETY: a byte is one on every target.
unsafe impl KernelArg for bool {
    type Raw = u8;
    type Value<'launch> = bool;
    const SCHEMA: u64 = schema::of("bool");
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: u8) -> Self::Value<'launch> {
        raw != 0
    }
    fn write(raw: u8, bytes: &mut [u8]) {
        bytes.copy_from_slice(&[raw]);
    }
}

// SAFETY: `false` is 0, and only that.
unsafe impl ValueArg for bool {
    fn to_raw(self) -> u8 {
        u8::from(self)
    }
}

/// Tuples in an argument block: structs as C lays them out, of as many fields as their names say.
mod block {
    macro_rules! blocks {
        ($($block:ident<$($raw:ident),*>;)*) => {$(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $block<$($raw),*>($(pub $raw),*);
        )*};
    }

    blocks! {
        Block1<A>;
        Block2<A, B>;
        Block3<A, B, C>;
        Block4<A, B, C, D>;
        Block5<A, B, C, D, E>;
        Block6<A, B, C, D, E, F>;
        Block7<A, B, C, D, E, F, G>;
        Block8<A, B, C, D, E, F, G, H>;
    }
}

macro_rules! tuples {
    ($block:ident, $($p:ident $i:tt),*) => {
        // SAFETY: the block is `repr(C)` of the elements' `Raw`s, and all its bytes are written.
        unsafe impl<$($p: ValueArg),*> KernelArg for ($($p,)*) {
            type Raw = block::$block<$($p::Raw),*>;
            type Value<'launch> = ($($p::Value<'launch>,)*);
            const SCHEMA: u64 = {
                let hash = schema::of("tuple");
                $(let hash = schema::add_hash(hash, $p::SCHEMA);)*
                hash
            };
            #[inline(always)]
            unsafe fn from_raw<'launch>(raw: Self::Raw) -> Self::Value<'launch> {
                // SAFETY: the caller's promise, for each element.
                unsafe { ($($p::from_raw(raw.$i),)*) }
            }
            fn write(raw: Self::Raw, bytes: &mut [u8]) {
                assert_eq!(bytes.len(), size_of::<Self::Raw>(), "the bytes of an argument");
                bytes.fill(0);
                $({
                    let at = core::mem::offset_of!(Self::Raw, $i);
                    $p::write(raw.$i, &mut bytes[at..at + size_of::<$p::Raw>()]);
                })*
            }
        }

        // SAFETY: each element is what it was.
        unsafe impl<$($p: ValueArg),*> ValueArg for ($($p,)*) {
            fn to_raw(self) -> Self::Raw {
                block::$block($(self.$i.to_raw()),*)
            }
        }
    };
}

tuples!(Block1, A 0);
tuples!(Block2, A 0, B 1);
tuples!(Block3, A 0, B 1, C 2);
tuples!(Block4, A 0, B 1, C 2, D 3);
tuples!(Block5, A 0, B 1, C 2, D 3, E 4);
tuples!(Block6, A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(Block7, A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(Block8, A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// What a kernel's parameters are checked with: it is [`OfValue`] or [`OfPlain`] of each type that a kernel can take, or
/// share, and of no other.
///
/// The compiler takes a trait with one implementation as implemented by that, and tells of what follows from it, at each
/// use. Both traits have a second one that never applies, so that it tells that the trait is not implemented, once.
#[doc(hidden)]
pub struct Parameter;

mod nobody {
    /// A trait that no type has.
    pub trait Nobody {}
}

/// Of a kernel's first parameter.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a kernel's first parameter is `lane: &Lane`, and this one is of type `{Self}`",
    label = "`lane: &Lane` stands in front of it"
)]
pub trait FirstParameter<'launch> {
    fn of(lane: &'launch crate::Lane) -> Self;
}

#[diagnostic::do_not_recommend]
impl<'launch> FirstParameter<'launch> for &'launch crate::Lane {
    #[inline(always)]
    fn of(lane: &'launch crate::Lane) -> Self {
        lane
    }
}

#[diagnostic::do_not_recommend]
impl<P: nobody::Nobody> FirstParameter<'_> for P {
    fn of(_: &crate::Lane) -> Self {
        unreachable!("no type has the trait")
    }
}

/// Passes the lane to a kernel's function.
#[doc(hidden)]
#[inline(always)]
pub fn lane_of_kernel<'launch, T: FirstParameter<'launch>>(lane: &'launch crate::Lane) -> T {
    T::of(lane)
}

/// Of a type of values that a kernel takes.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a kernel cannot take a parameter of type `{T}`",
    label = "no kernel parameter",
    note = "a parameter is a number, `bool`, a `#[derive(Plain, Clone, Copy)]` struct, an array or tuple of these, \
            `&[T]` or `&T` where `T` is `Plain`, an `Option` of such a reference, a `Disjoint`, a `HostcallRef`, or a \
             `RawStream`"
)]
pub trait OfValue<T> {
    /// Marks a parameter of the type.
    type Value;
}

#[diagnostic::do_not_recommend]
impl<T: KernelArg> OfValue<T> for Parameter {
    type Value = T;
}

#[diagnostic::do_not_recommend]
impl<T, P: nobody::Nobody> OfValue<T> for P {
    type Value = T;
}

/// Of a type of values that host and device share.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot lie in memory that host and device share",
    label = "not `Plain`",
    note = "numbers, `Global`s, atomics and arrays of these are `Plain`; a `#[repr(C)]` struct of such has \
            `#[derive(Plain)]`; `bool`, `char` and enums are not, because not all bytes are values of these",
    note = "a `Global` holds a number of at most 64 bits: lanes write a struct by its fields, `&[Bin]` of `struct Bin \
            {{ count: Global<u32> }}`, and 128 bits as `[Global<u64>; 2]`; where each lane writes a part of its own, \
            `Disjoint<'_, T>` takes any `Plain` type",
    note = "`Shared` cells are workgroup memory, which no launch passes: write `#[workgroup]` in front of the parameter"
)]
pub trait OfPlain<T> {
    /// Marks a parameter `&[T]`.
    type Slice;
    /// Marks a parameter `&T`.
    type Ref;
}

#[diagnostic::do_not_recommend]
impl<T: Plain> OfPlain<T> for Parameter {
    type Slice = Slice<T>;
    type Ref = Ref<T>;
}

#[diagnostic::do_not_recommend]
impl<T, P: nobody::Nobody> OfPlain<T> for P {
    type Slice = Slice<T>;
    type Ref = Ref<T>;
}

/// Makes a kernel's argument, for as long as the lane is there.
///
/// # Safety
/// As for [`KernelArg::from_raw`], for the lane's lifetime.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn value_of_launch<'launch, A: KernelArg>(
    _: &'launch crate::Lane,
    raw: A::Raw,
) -> A::Value<'launch> {
    // SAFETY: the caller's promise.
    unsafe { A::from_raw(raw) }
}

/// The schema of a kernel with parameters of these schemas: another one where it is unsafe to launch.
#[doc(hidden)]
pub const fn kernel_schema(parameters: &[u64], is_unsafe: bool) -> u64 {
    schema::with_safety(schema::add_hashes(schema::of("kernel"), parameters), is_unsafe)
}

/// Makes the info of a kernel whose argument block is a `B`.
#[doc(hidden)]
pub const fn kernel_info<B>(
    path: &str,
    schema: u64,
    default_workgroups: u64,
    default_lanes: u64,
    workgroup_memory_bytes: u64,
    max_lanes: u64,
) -> KernelInfo {
    KernelInfo {
        magic: hostcall_abi::layout::MAGIC,
        abi_version: hostcall_abi::ABI_VERSION as u64,
        schema,
        argument_bytes: size_of::<B>() as u64,
        default_workgroups,
        default_lanes,
        workgroup_memory_bytes,
        max_lanes,
        found: 0,
        path: hostcall_abi::launch::kernel_path(path),
    }
}

/// Runs a kernel on one lane of the software device, and on those that follow it there.
///
/// # Safety
/// `lane` must be what the executor passes to a kernel's entry, and `block` must point to a `B`, with which `run` can be called
/// for the time of this call.
#[doc(hidden)]
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub unsafe fn enter_kernel<B: Copy>(
    lane: *mut hostcall_abi::cpu::CpuLane,
    block: *const u8,
    run: impl for<'launch> Fn(&'launch crate::Lane, B),
) -> u32 {
    // SAFETY: the caller's promise. `run` takes lanes of any lifetime, so it keeps nothing of one.
    unsafe {
        let block = block.cast::<B>().read_unaligned();
        crate::target::enter_cpu(lane, |lane| run(lane, block))
    }
}

/// Runs a kernel on one lane of a GPU.
///
/// # Safety
/// `launch` and `block` must be what the host passes to a kernel's entry, and `run` can be called with `block` for the time of
/// this call.
#[doc(hidden)]
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
#[inline(always)]
pub unsafe fn enter_kernel<B: Copy>(
    launch: &hostcall_abi::launch::LaunchParams,
    block: B,
    run: impl for<'launch> Fn(&'launch crate::Lane, B),
) {
    // SAFETY: the caller's promise. `run` takes lanes of any lifetime, so it keeps nothing of one.
    unsafe { crate::target::enter_gpu(launch, |lane| run(lane, block)) }
}

/// What a `main` returns.
#[doc(hidden)]
#[diagnostic::on_unimplemented(message = "`main` returns nothing or an `i32`, not `{Self}`")]
pub trait MainResult {
    fn exit_code(self) -> i32;
}

impl MainResult for () {
    fn exit_code(self) -> i32 {
        0
    }
}

impl MainResult for i32 {
    fn exit_code(self) -> i32 {
        self
    }
}

/// Ends a lane's `main`.
#[doc(hidden)]
pub fn finish_main(result: impl MainResult) {
    let code = result.exit_code();
    if code != 0 {
        // A host that cannot be told has ended the launch already.
        let _ = crate::system::System::main_returned(code);
    }
}
