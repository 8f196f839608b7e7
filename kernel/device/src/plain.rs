//! Values that host and device share as bytes.

use crate::global::{Global, Word};
use hostcall_abi::record::{Number, Type};
use hostcall_abi::schema;

/// A type of values that may lie in memory that host and device share: any bytes of its size are a value, and
/// it has no padding. Implemented for the numbers, [`Global`], the atomics, and arrays of such; a struct of such
/// derives it with [`macro@crate::Plain`].
///
/// `bytemuck`'s and `zerocopy`'s traits say less, and so cannot stand for this one: values are shared by all lanes,
/// so they are [`Sync`] (and may be atomics, which `bytemuck::Pod` excludes), host and device lay them out alike, and
/// both compare their [`Plain::SCHEMA`].
///
/// # Safety
/// - Any initialised bytes of the type's size are a value, and it has no padding.
/// - Every target lays the type out alike.
/// - [`Plain::SHARED`] is true if a value can be written through a shared reference.
/// - [`Plain::Align`] is of the type's alignment, which is no more than
///   [`BUFFER_ALIGN`](hostcall_abi::launch::BUFFER_ALIGN), as buffers have it.
/// - [`Plain::copy_bytes`] reads what other threads may write at the same time atomically.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in memory that host and device share",
    label = "not `Plain`",
    note = "numbers, `Global`s, atomics and arrays of these are `Plain`; a `#[repr(C)]` struct of such has \
            `#[derive(Plain)]`; `bool`, `char` and enums are not, because not all bytes are values of these",
    note = "a `Global` holds a number of at most 64 bits: lanes write a struct by its fields, `&[Bin]` of `struct Bin \
            {{ count: Global<u32> }}`, and 128 bits as `[Global<u64>; 2]`; where each lane writes a part of its own, \
            `Disjoint<'_, T>` takes any `Plain` type"
)]
pub unsafe trait Plain: Sized + Sync + 'static {
    /// Hash of the type.
    const SCHEMA: u64;
    /// Whether kernels may write values through `&`: whether there is a [`Global`] or an atomic in the type.
    const SHARED: bool;
    /// What the type consists of, for readers of files that do not have it.
    const TYPE: &'static Type = &Type::Unknown;
    /// The alignment as a type, `Aligned<{ align_of::<Self>() }>`: fields of one alignment have no padding between them,
    /// whatever their types are.
    type Align;

    /// Copies a value's bytes, each [`Global`] and atomic in it by a relaxed load. A type without such needs no function
    /// of its own.
    ///
    /// # Panics
    /// When `to` is not as long as the type.
    #[inline]
    fn copy_bytes(value: &Self, to: &mut [u8]) {
        const { assert!(!Self::SHARED, "a `Plain` type with cells has a `copy_bytes` of its own") };
        // SAFETY: the type has no padding, and nobody writes a value through a shared reference.
        to.copy_from_slice(unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<Self>())
        });
    }
}

/// Stands for an alignment of so many bytes, as [`Plain::Align`].
#[derive(Debug)]
pub struct Aligned<const BYTES: usize>(());

/// Of a type that is aligned as `T` is.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{T}` may be aligned differently, and then there is padding between fields of these types",
    label = "not known to be aligned as `{T}`",
    note = "the fields of a generic `Plain` struct are all aligned alike: numbers of one size, `T`, `Global<T>`, `[T; N]` \
            and structs of these; write one struct for each type where they are not"
)]
pub trait AlignedAs<T>: Plain {}

#[diagnostic::do_not_recommend]
impl<T: Plain, U: Plain<Align = T::Align>> AlignedAs<T> for U {}

macro_rules! numbers {
    ($($t:ty, $name:literal, $number:ident;)*) => {$(
        // SAFETY: any bytes are a number, and it has no padding. All targets are 64-bit and little-endian, and lay
        // the number out alike.
        unsafe impl Plain for $t {
            const SCHEMA: u64 = schema::of($name);
            const SHARED: bool = false;
            const TYPE: &'static Type = &Type::Number(Number::$number);
            type Align = Aligned<{ align_of::<Self>() }>;
        }
    )*};
}

numbers! {
    u8, "u8", U8; u16, "u16", U16; u32, "u32", U32; u64, "u64", U64; usize, "usize", U64;
    i8, "i8", I8; i16, "i16", I16; i32, "i32", I32; i64, "i64", I64; isize, "isize", I64;
    f32, "f32", F32; f64, "f64", F64;
}

#[cfg(feature = "half")]
macro_rules! halves {
    ($($t:ident $number:ident)*) => {$(
        // SAFETY: any two bytes are a number: it is a `repr(transparent)` struct of a `u16`.
        unsafe impl Plain for half::$t {
            const SCHEMA: u64 = schema::of(stringify!($t));
            const SHARED: bool = false;
            const TYPE: &'static Type = &Type::Number(Number::$number);
            type Align = Aligned<{ align_of::<Self>() }>;
        }
    )*};
}

#[cfg(feature = "half")]
halves!(f16 F16 bf16 BF16);

macro_rules! atomics {
    ($($atomic:ident, $name:literal;)*) => {$(
        // SAFETY: an atomic has the layout of its number.
        unsafe impl Plain for core::sync::atomic::$atomic {
            const SCHEMA: u64 = schema::add(schema::of("atomic "), $name.as_bytes());
            const SHARED: bool = true;
            type Align = Aligned<{ align_of::<Self>() }>;
            #[inline]
            fn copy_bytes(value: &Self, to: &mut [u8]) {
                to.copy_from_slice(&value.load(core::sync::atomic::Ordering::Relaxed).to_ne_bytes());
            }
        }
    )*};
}

atomics! {
    AtomicU8, "u8"; AtomicU16, "u16"; AtomicU32, "u32"; AtomicU64, "u64"; AtomicUsize, "usize";
    AtomicI8, "i8"; AtomicI16, "i16"; AtomicI32, "i32"; AtomicI64, "i64"; AtomicIsize, "isize";
}

// SAFETY: `Global` is `repr(transparent)` over a `Plain` number.
unsafe impl<T: Word> Plain for Global<T> {
    const SCHEMA: u64 = schema::add_hash(schema::of("global"), T::SCHEMA);
    const SHARED: bool = true;
    const TYPE: &'static Type = T::TYPE;
    type Align = T::Align;
    #[inline]
    fn copy_bytes(value: &Self, to: &mut [u8]) {
        T::copy_bytes(&value.get(), to);
    }
}

// SAFETY: an array of values without padding has none, and any bytes are values of its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const SCHEMA: u64 = schema::add_hash(schema::add_hash(schema::of("array"), T::SCHEMA), N as u64);
    const SHARED: bool = T::SHARED;
    const TYPE: &'static Type =
        &Type::Array { of: T::TYPE, stride_bytes: size_of::<T>() as u32, count: N as u32 };
    type Align = T::Align;
    #[inline]
    fn copy_bytes(value: &Self, to: &mut [u8]) {
        assert_eq!(to.len(), size_of::<Self>(), "the bytes of an array");
        for (i, value) in value.iter().enumerate() {
            T::copy_bytes(value, &mut to[i * size_of::<T>()..][..size_of::<T>()]);
        }
    }
}
