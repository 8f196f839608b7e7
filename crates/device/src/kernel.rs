//! Kernels as the host launches them, and the types that their parameters may have.

use crate::global::{Global, Word};
use core::marker::PhantomData;
use hostcall_abi::launch::{KernelInfo, RawSlice};
use hostcall_abi::schema;

/// A kernel, as `#[kernel]` makes it. `P` is the tuple of its parameters after the lane, each a
/// [`KernelArg`]: `(Slice<u64>, Slice<Global<u64>>, u32)`.
pub struct Kernel<P> {
    /// The name by which images export it.
    pub name: &'static str,
    /// Schema, sizes and defaults.
    pub info: KernelInfo,
    /// The entry that the software device calls.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub entry: hostcall_abi::cpu::Entry,
    parameters: PhantomData<fn(P)>,
}

impl<P> Kernel<P> {
    /// Used by the expansion of `#[kernel]`, which knows that the entry takes these parameters.
    #[doc(hidden)]
    pub const fn new(
        name: &'static str,
        info: KernelInfo,
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))] entry: hostcall_abi::cpu::Entry,
    ) -> Self {
        Self {
            name,
            info,
            #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
            entry,
            parameters: PhantomData,
        }
    }
}

impl<P> Clone for Kernel<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Kernel<P> {}

/// A type of values that may lie in memory that host and device share: any bytes of its size are a value, and
/// it has no padding.
///
/// # Safety
/// Both must hold.
pub unsafe trait Plain: Sync + 'static {
    /// Hash of the type.
    const SCHEMA: u64;
}

/// A type of kernel parameter.
///
/// # Safety
/// `Raw` must be what the argument block holds for it: host and device, possibly of different architectures,
/// must agree on its layout.
pub unsafe trait KernelArg {
    /// What lies in the argument block.
    type Raw: Copy;
    /// What the kernel's function takes.
    type Value<'a>;
    /// Hash of the type.
    const SCHEMA: u64;
    /// Makes the value.
    ///
    /// # Safety
    /// `raw` must have been made for this parameter type, and what it points to must live, and be written by
    /// nobody but through [`Global`] or atomics, for `'a`.
    unsafe fn from_raw<'a>(raw: Self::Raw) -> Self::Value<'a>;
}

/// Marks a parameter `&[T]`.
pub struct Slice<T>(PhantomData<fn(T)>);

/// Marks a parameter `&T`.
pub struct Ref<T>(PhantomData<fn(T)>);

// SAFETY: `RawSlice` is `repr(C)` of two `u64`s on every target.
unsafe impl<T: Plain> KernelArg for Slice<T> {
    type Raw = RawSlice;
    type Value<'a> = &'a [T];
    const SCHEMA: u64 = schema::add_hash(schema::of("slice"), T::SCHEMA);
    #[inline(always)]
    unsafe fn from_raw<'a>(raw: RawSlice) -> &'a [T] {
        if raw.len == 0 {
            return &[];
        }
        // SAFETY: by this function's contract the host has put `len` elements of `T` there, for `'a`; any bytes
        // are a `T` since it is `Plain`.
        unsafe { core::slice::from_raw_parts(raw.address as usize as *const T, raw.len as usize) }
    }
}

// SAFETY: an address is a `u64` on every target.
unsafe impl<T: Plain> KernelArg for Ref<T> {
    type Raw = u64;
    type Value<'a> = &'a T;
    const SCHEMA: u64 = schema::add_hash(schema::of("ref"), T::SCHEMA);
    #[inline(always)]
    unsafe fn from_raw<'a>(raw: u64) -> &'a T {
        // SAFETY: by this function's contract the host has put a `T` there, for `'a`; any bytes are a `T`
        // since it is `Plain`.
        unsafe { &*(raw as usize as *const T) }
    }
}

macro_rules! numbers {
    ($($t:ty, $name:literal;)*) => {$(
        // SAFETY: any bytes are a number, and it has no padding.
        unsafe impl Plain for $t {
            const SCHEMA: u64 = schema::of($name);
        }
        // SAFETY: all targets are 64-bit and little-endian, and lay the number out the same.
        unsafe impl KernelArg for $t {
            type Raw = $t;
            type Value<'a> = $t;
            const SCHEMA: u64 = schema::of($name);
            #[inline(always)]
            unsafe fn from_raw<'a>(raw: $t) -> Self::Value<'a> {
                raw
            }
        }
    )*};
}

numbers! {
    u8, "u8"; u16, "u16"; u32, "u32"; u64, "u64"; usize, "usize";
    i8, "i8"; i16, "i16"; i32, "i32"; i64, "i64"; isize, "isize";
    f32, "f32"; f64, "f64";
}

macro_rules! atomics {
    ($($atomic:ident, $name:literal;)*) => {$(
        // SAFETY: an atomic has the layout of its number.
        unsafe impl Plain for core::sync::atomic::$atomic {
            const SCHEMA: u64 = schema::add(schema::of("atomic "), $name.as_bytes());
        }
    )*};
}

atomics! {
    AtomicU8, "u8"; AtomicU16, "u16"; AtomicU32, "u32"; AtomicU64, "u64"; AtomicUsize, "usize";
    AtomicI8, "i8"; AtomicI16, "i16"; AtomicI32, "i32"; AtomicI64, "i64"; AtomicIsize, "isize";
}

// SAFETY: `Global` is `repr(transparent)` over a `Plain` number.
unsafe impl<T: Word + Plain> Plain for Global<T> {
    const SCHEMA: u64 = schema::add_hash(schema::of("global"), T::SCHEMA);
}

// SAFETY: an array of values without padding has none, and any bytes are values of its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const SCHEMA: u64 = schema::add_hash(schema::add_hash(schema::of("array"), T::SCHEMA), N as u64);
}

/// The schema of a kernel whose parameters have these schemas.
#[doc(hidden)]
pub const fn kernel_schema(parameters: &[u64]) -> u64 {
    let mut hash = schema::of("kernel");
    let mut i = 0;
    while i < parameters.len() {
        hash = schema::add_hash(hash, parameters[i]);
        i += 1;
    }
    hash
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
