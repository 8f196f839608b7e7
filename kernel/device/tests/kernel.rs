//! What `#[kernel]` and `#[main]` make for the software device.

use hostcall_device::abi::launch::{self, RawSlice};
use hostcall_device::abi::{ABI_VERSION, layout};
use hostcall_device::atomic::AtomicWord;
use hostcall_device::kernel::{Joined, Kernel, KernelArg, Optional, Ref, Slice, UnsafeKernel, ValueArg};
use hostcall_device::{Global, Lane, Plain, Shared, Wire, Word, kernel, main};
use std::sync::atomic::AtomicU32;

const TILE_BYTES: u64 = 1 << 10;

/// Copies what `keys` says.
#[kernel(workgroup_memory = 4 * TILE_BYTES)]
pub fn gather(lane: &Lane, keys: &[u64], factor: f32, count: &AtomicU32, out: &[Global<u64>]) {
    let _ = (lane, factor, count);
    for (key, out) in keys.iter().zip(out) {
        out.set(*key);
    }
}

#[kernel(name = "plain_1")]
fn plain(_: &Lane) {}

#[main(workgroups = 3, lanes = 64)]
fn program(_lane: &Lane) -> i32 {
    0
}

mod other {
    use super::*;

    #[kernel(name = "plain_1")]
    pub fn plain(_: &Lane, many: u8) {
        let _ = many;
    }
}

/// Copies without looking.
///
/// # Safety
/// There must be as many of both.
#[kernel]
unsafe fn copy<'a>(lane: &'a Lane, from: &'a [u64], to: &'a [Global<u64>]) {
    let i = lane.global_id();
    // SAFETY: the kernel's own promise, for a grid of that size.
    unsafe { to.get_unchecked(i).set(*from.get_unchecked(i)) };
}

/// A point of a plane, in memory and in calls.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Plain, Wire)]
#[hostcall(format = "{x} across, {y} up")]
pub struct Point {
    /// Across.
    pub x: f32,
    /// Up.
    pub y: f32,
}

/// A stroke, of points.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
pub struct Stroke {
    points: [Point; 2],
    color: u32,
    reserved: [u8; 4],
}

/// One cell, of the same layout as its content.
#[repr(transparent)]
#[derive(Debug, Plain)]
pub struct Cell(Global<u32>);

#[kernel]
fn draw(
    _lane: &Lane,
    stroke: Stroke,
    filled: bool,
    sizes: (u8, u64, bool),
    strokes: &[Stroke],
    cells: &[Cell],
) {
    let _ = (stroke, filled, sizes, strokes, cells);
}

#[kernel]
#[allow(clippy::too_many_arguments, reason = "it is what the test is about")]
fn sixteen(
    _lane: &Lane,
    a: u8,
    b: u16,
    c: u32,
    d: u64,
    e: i8,
    f: i16,
    g: i32,
    h: i64,
    i: f32,
    j: f64,
    k: usize,
    l: isize,
    m: bool,
    n: [u8; 3],
    o: (u8, u16),
    out: &[Global<f64>],
) {
    let sum = u64::from(a) as f64 + f64::from(b) + f64::from(c) + d as f64 + f64::from(e) + f64::from(f);
    let sum = sum + f64::from(g) + h as f64 + f64::from(i) + j + k as f64 + l as f64 + f64::from(u8::from(m));
    out[0].set(sum + n.map(f64::from).iter().sum::<f64>() + f64::from(o.0) + f64::from(o.1));
}

/// Adds to all values, and once more for each of `COUNT`.
#[kernel(instances(add_u32 = <u32, 3>, add_f64 = <f64, COUNT>), max_lanes = 32)]
pub fn add<T: AtomicWord + Plain + std::ops::Add<Output = T>, const N: usize>(
    lane: &Lane,
    by: T,
    often: &[[T; N]],
    #[workgroup] tile: &[Shared<T>; N],
    values: &[Global<T>],
    more: Option<&[<Global<T> as Numbered>::Number]>,
) {
    let _ = (lane, often, tile, more);
    values[0].set((0..N).fold(values[0].get(), |sum, _| sum + by));
}

const COUNT: usize = 5;

/// The number in a cell.
pub trait Numbered {
    /// The number.
    type Number;
}

impl<T: Word> Numbered for Global<T> {
    type Number = T;
}

/// As many as `N`.
///
/// # Safety
/// `N` must be small.
#[kernel(instances(few = <{ COUNT - 1 }>))]
unsafe fn counted<'a, const N: usize>(_: &'a Lane, out: &'a [Global<u64>]) {
    out[0].set(N as u64);
}

#[kernel]
fn optional(
    _: &Lane,
    from: Option<&[u32]>,
    one: std::option::Option<&AtomicU32>,
    to: Option<&[Global<u32>]>,
) {
    let _ = (from, one, to);
}

macro_rules! many {
    ($name:ident: $($parameter:ident)*) => {
        #[kernel]
        #[allow(clippy::too_many_arguments, reason = "it is what the test is about")]
        fn $name(_: &Lane, first: u8, $($parameter: u16,)* last: u64) {
            let _ = (first, last, [$($parameter),*]);
        }
    };
}

many!(thirty_four: a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee ff);

#[test]
fn instances_are_kernels_of_their_own() {
    type Types<T, const N: usize> =
        (T, Slice<[T; N]>, Slice<Global<T>>, Optional<Slice<<Global<T> as Numbered>::Number>>);
    let (three, five): (Kernel<Types<u32, 3>>, Kernel<Types<f64, 5>>) = (add_u32, add_f64);
    assert_eq!((three.name(), three.path()), ("add_u32", "kernel::add_u32"));
    assert_eq!((five.name(), five.path()), ("add_f64", "kernel::add_f64"));
    let [three, five] = [three.info(), five.info()];
    assert_ne!(three.schema, five.schema);
    assert_eq!([three.max_lanes, five.max_lanes], [32; 2]);
    assert_eq!([three.workgroup_memory_bytes, five.workgroup_memory_bytes], [16, 48]);
    assert_eq!([three.argument_bytes, five.argument_bytes], [8 + 3 * 16; 2]);
    let unsafe_kernel: UnsafeKernel<(Slice<Global<u64>>,)> = few;
    // SAFETY: it is never launched.
    assert_eq!(unsafe { unsafe_kernel.assume_safe() }.name(), "few");
}

#[test]
fn an_optional_reference_is_none_at_address_0() {
    #[allow(clippy::type_complexity, reason = "it is what the test is about")]
    let typed: Kernel<(Optional<Slice<u32>>, Optional<Ref<AtomicU32>>, Optional<Slice<Global<u32>>>)> =
        optional;
    assert_eq!(typed.info().argument_bytes, 16 + 8 + 16);
    assert_ne!(<Optional<Slice<u32>>>::SCHEMA, <Slice<u32>>::SCHEMA);
    let values = [3u32, 4];
    let address = values.as_ptr() as u64;
    // SAFETY: two values lie there; no memory is read of those without length or address.
    let [all, empty, none] = [(address, 2), (4, 0), (0, 0)]
        .map(|(address, len)| unsafe { <Optional<Slice<u32>>>::from_raw(RawSlice { address, len }) });
    assert_eq!((all, empty, none), (Some(&values[..]), Some(&[][..]), None));
    // SAFETY: a value lies there, and no memory is read at address 0.
    let [one, none] = [address, 0].map(|address| unsafe { <Optional<Ref<u32>>>::from_raw(address) });
    assert_eq!((one, none), (Some(&3), None));
}

#[test]
fn parameters_beyond_a_tuple_are_joined() {
    let info = thirty_four.info();
    // 1, thirty-two of 2 from the second byte on, 8 from a multiple of 8 on.
    assert_eq!(info.argument_bytes, (2 + 64u64).next_multiple_of(8) + 8);
    fn joined<P, Q>(_: Kernel<Joined<P, Q>>) {}
    joined::<_, (u16, u64)>(thirty_four);
}

#[test]
fn a_kernel_has_its_types_and_info() {
    #[allow(clippy::type_complexity, reason = "it is what the test is about")]
    let typed: Kernel<(Slice<u64>, f32, Ref<AtomicU32>, Slice<Global<u64>>)> = gather;
    assert_eq!((typed.name(), typed.path()), ("gather", "kernel::gather"));
    let info = typed.info();
    assert_eq!((info.magic, info.abi_version), (layout::MAGIC, u64::from(ABI_VERSION)));
    assert_eq!((info.default_workgroups, info.default_lanes), (0, 0));
    assert_eq!(info.workgroup_memory_bytes, 4096);
    #[repr(C)]
    struct Arguments(RawSlice, f32, u64, RawSlice);
    assert_eq!(info.argument_bytes, size_of::<Arguments>() as u64);
    assert_ne!(info.schema, plain.info().schema);
    assert_eq!((plain.name(), plain.info().argument_bytes), ("plain_1", 0));
}

#[test]
fn kernels_of_one_name_are_two() {
    assert_eq!((plain.name(), other::plain.name()), ("plain_1", "plain_1"));
    assert_eq!(other::plain.path(), "kernel::other::plain_1");
    assert_eq!(other::plain.info().path, launch::kernel_path(other::plain.path()));
    assert_ne!(plain.info().path, other::plain.info().path);
}

#[test]
fn an_unsafe_kernel_has_to_be_assumed_safe() {
    let unsafe_kernel: UnsafeKernel<(Slice<u64>, Slice<Global<u64>>)> = copy;
    // SAFETY: it is never launched.
    assert_eq!(unsafe { unsafe_kernel.assume_safe() }.name(), "copy");
}

mod resident {
    #[hostcall_device::main(resident, lanes = 128)]
    fn program() {}

    #[test]
    fn the_device_chooses_the_workgroups() {
        let info = program.info();
        assert_eq!((info.default_workgroups, info.default_lanes), (0, 128));
    }
}

#[test]
fn main_carries_its_grid() {
    assert_eq!(program.name(), launch::MAIN_KERNEL);
    assert_eq!((program.info().default_workgroups, program.info().default_lanes), (3, 64));
}

#[test]
fn structs_and_tuples_are_written_without_what_lies_between() {
    type Sizes = (u8, u64, bool);
    let mut bytes = [0xffu8; 24];
    <Sizes as KernelArg>::write((1u8, 0x0203u64, true).to_raw(), &mut bytes);
    assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // SAFETY: the raw value was made from one of this type.
    assert_eq!(unsafe { <Sizes as KernelArg>::from_raw((1u8, 0x0203u64, true).to_raw()) }, (1, 0x0203, true));

    let [a, b] = [Point { x: 1.0, y: 2.0 }, Point { x: 3.0, y: 4.0 }];
    let stroke = Stroke { points: [a, b], color: 0x0102_0304, reserved: [0; 4] };
    let mut bytes = [0u8; 24];
    <Stroke as KernelArg>::write(stroke.to_raw(), &mut bytes);
    assert_eq!(bytes[4..8], 2f32.to_ne_bytes());
    assert_eq!(bytes[16..20], 0x0102_0304u32.to_ne_bytes());
    assert_eq!(draw.info().argument_bytes, 24 + 8 + 24 + 16 + 16);
    assert_eq!([Stroke::SHARED, Cell::SHARED, <[Cell; 2]>::SHARED], [false, true, true]);
    assert_ne!(<Stroke as Plain>::SCHEMA, <Point as Plain>::SCHEMA);
}

#[test]
fn sixteen_parameters_are_as_c_lays_them_out() {
    // 1, 2, 4, 8 | 1, 2, 4, 8 | 4, 8, 8, 8 | 1, 3, (1, 2), 16 bytes.
    assert_eq!(sixteen.info().argument_bytes, 16 + 16 + 8 + 24 + 8 + 16);
}

/// A kernel that is unsafe to launch is found by no kernel that is safe, of whatever name and types.
#[test]
fn whether_a_kernel_is_unsafe_is_part_of_its_types() {
    mod trusting {
        #[hostcall_device::kernel]
        pub unsafe fn gather(_: &hostcall_device::Lane, _at: u64) {}
    }
    mod safe {
        #[hostcall_device::kernel]
        pub fn gather(_: &hostcall_device::Lane, _at: u64) {}
    }
    // SAFETY: it does nothing.
    let trusting = unsafe { trusting::gather.assume_safe() };
    assert_eq!(trusting.name(), safe::gather.name());
    assert_ne!(trusting.info().schema, safe::gather.info().schema);
}

/// A method that is unsafe to call is reached by no safe one, of whatever name and types.
#[test]
fn whether_a_method_is_unsafe_is_part_of_its_types() {
    mod trusting {
        #[hostcall_device::service]
        pub trait Danger {
            /// # Safety
            /// A word lies at `at`.
            unsafe fn get(at: u64) -> u64;
        }
    }
    mod safe {
        #[hostcall_device::service]
        pub trait Danger {
            fn get(at: u64) -> u64;
        }
    }
    let (trusting, safe) = (trusting::Danger::METHODS[0], safe::Danger::METHODS[0]);
    assert_eq!((trusting.name(), trusting.number()), (safe.name(), safe.number()));
    assert!(trusting.is_unsafe() && !safe.is_unsafe());
    assert_ne!(trusting.schema(), safe.schema());
}
