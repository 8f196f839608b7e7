//! Launches whose arguments' types are known when the program runs: what hosts in other languages have. The kernel's hash of
//! its parameters' types is compared with that of the arguments, as for kernels of the program.

use super::arguments::{Arguments, Packer, SealedTuple};
use super::buffer::{DeviceBuffer, PinnedBuffer};
use super::closures::UntypedHostcall;
use super::error::{Error, LaunchRefused};
use super::grid::Grid;
use super::images::LoadedKernel;
use super::launch::enqueue;
use super::prepare::kernel_called;
use super::stream::{Launch, Stream};
use hostcall_abi::launch::RawSlice;
use hostcall_abi::schema;
use hostcall_device::__private::plain_schema;
use hostcall_device::Global;
use hostcall_device::kernel::{KernelArg, Plain};
use hostcall_seam::DeviceAddress;
use std::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize,
};

/// A type of values in memory that host and device share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueType {
    schema: u64,
    bytes: usize,
    align: usize,
    is_shared: bool,
}

/// Each number with the cells that kernels may have of it.
const CELLS: &[(ValueType, ValueType, Option<ValueType>)] = &cells();

/// Their names, in the same order.
const NUMBER_NAMES: [&str; 12] =
    ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize", "f32", "f64"];

const fn cells() -> [(ValueType, ValueType, Option<ValueType>); 12] {
    macro_rules! cells {
        ($($number:ty $(=> $atomic:ty)?;)*) => {
            [$((ValueType::of::<$number>(), ValueType::of::<Global<$number>>(), cells!(@ $($atomic)?)),)*]
        };
        (@ $atomic:ty) => { Some(ValueType::of::<$atomic>()) };
        (@) => { None };
    }
    cells! {
        u8 => AtomicU8; u16 => AtomicU16; u32 => AtomicU32; u64 => AtomicU64; usize => AtomicUsize;
        i8 => AtomicI8; i16 => AtomicI16; i32 => AtomicI32; i64 => AtomicI64; isize => AtomicIsize;
        f32; f64;
    }
}

impl ValueType {
    /// The type `T`.
    pub const fn of<T: Plain>() -> Self {
        Self { schema: T::SCHEMA, bytes: size_of::<T>(), align: align_of::<T>(), is_shared: T::SHARED }
    }

    /// The struct of this name with fields of these types, as `#[derive(Plain)]` has it, without an `align`
    /// of its own. `None` when it would have padding or no memory holds it.
    pub fn structure(name: &str, fields: &[Self]) -> Option<Self> {
        let (mut bytes, mut align, mut is_shared) = (0usize, 1, false);
        for field in fields {
            if !bytes.is_multiple_of(field.align) {
                return None;
            }
            bytes = bytes.checked_add(field.bytes)?;
            align = align.max(field.align);
            is_shared |= field.is_shared;
        }
        let schemas: Vec<u64> = fields.iter().map(|field| field.schema).collect();
        let whole = Self { schema: plain_schema(name, align, &schemas), bytes, align, is_shared };
        bytes.is_multiple_of(align).then_some(whole)
    }

    /// The array of `len` values of the type. `None` when no memory holds it.
    pub fn array(self, len: usize) -> Option<Self> {
        let schema = schema::add_hash(schema::add_hash(schema::of("array"), self.schema), len as u64);
        Some(Self { schema, bytes: self.bytes.checked_mul(len)?, ..self })
    }

    /// The type `Global<T>`, where this is the number `T`.
    pub fn global(self) -> Option<Self> {
        CELLS.iter().find(|(number, ..)| *number == self).map(|(_, global, _)| *global)
    }

    /// The atomic of this integer.
    pub fn atomic(self) -> Option<Self> {
        CELLS.iter().find(|(number, ..)| *number == self).and_then(|(.., atomic)| *atomic)
    }

    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        self.bytes
    }
}

/// An argument with its type.
#[derive(Clone, Copy, Debug)]
pub enum UntypedArgument<'a> {
    /// For a parameter of type `bool`.
    Bool(bool),
    /// For a parameter of this type, the bytes of a value.
    Value(ValueType, &'a [u8]),
    /// For `&[T]`, the bytes of the values; `T` may be a `Global` or an atomic.
    Slice(ValueType, &'a DeviceBuffer<u8>),
    /// For `&T`, bytes of which the first are the value's.
    Ref(ValueType, &'a DeviceBuffer<u8>),
    /// For `&[Global<T>]`, where `T` is this number, the bytes of the values.
    Pinned(ValueType, &'a PinnedBuffer<u8>),
    /// For `Option<&[T]>`: as for `&[T]`, or nothing.
    OptionalSlice(ValueType, Option<&'a DeviceBuffer<u8>>),
    /// For `Option<&T>`: as for `&T`, or nothing.
    OptionalRef(ValueType, Option<&'a DeviceBuffer<u8>>),
    /// For `Option<&[Global<T>]>`, where `T` is this number, the bytes of the values.
    OptionalPinned(ValueType, &'a PinnedBuffer<u8>),
    /// For a `HostcallRef`.
    Closure(&'a UntypedHostcall),
}

/// The schema of a parameter that is an `Option`.
const fn optional(schema: u64) -> u64 {
    schema::add_hash(schema::of("optional"), schema)
}

impl UntypedArgument<'_> {
    fn schema(&self) -> u64 {
        match self {
            Self::OptionalSlice(of, _) => optional(schema::add_hash(schema::of("slice"), of.schema)),
            Self::OptionalRef(of, _) => optional(schema::add_hash(schema::of("ref"), of.schema)),
            Self::OptionalPinned(of, buffer) => optional(Self::Pinned(*of, buffer).schema()),
            Self::Bool(_) => <bool as KernelArg>::SCHEMA,
            Self::Value(of, _) => of.schema,
            Self::Slice(of, _) => schema::add_hash(schema::of("slice"), of.schema),
            Self::Ref(of, _) => schema::add_hash(schema::of("ref"), of.schema),
            Self::Pinned(of, _) => {
                let cell = of.global().map_or(of.schema, |cell| cell.schema);
                schema::add_hash(schema::of("slice"), cell)
            }
            Self::Closure(closure) => closure.schema(),
        }
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), Error> {
        let refused = |packer: &Packer<'_>, why| {
            Error::from(LaunchRefused::Argument { argument: packer.argument(), why })
        };
        match *self {
            Self::OptionalSlice(_, None) => packer.push_bytes(8, &[0; size_of::<RawSlice>()]),
            Self::OptionalRef(_, None) => packer.push_bytes(8, &[0; size_of::<u64>()]),
            Self::OptionalSlice(of, Some(buffer)) => return Self::Slice(of, buffer).pack(packer),
            Self::OptionalRef(of, Some(buffer)) => return Self::Ref(of, buffer).pack(packer),
            Self::OptionalPinned(of, buffer) => return Self::Pinned(of, buffer).pack(packer),
            Self::Closure(closure) => {
                let id = closure.pack(packer)?;
                packer.push_bytes(8, &id.to_ne_bytes());
            }
            Self::Pinned(of, buffer) => {
                if of.global().is_none() || !buffer.len().is_multiple_of(of.bytes) {
                    return Err(refused(packer, "the pinned buffer's bytes are no whole numbers"));
                }
                packer.use_pinned(buffer)?;
                push_slice(packer, of, buffer.address(), buffer.len());
            }
            Self::Bool(value) => packer.push_bytes(1, &[u8::from(value)]),
            Self::Value(of, _) if of.is_shared => {
                return Err(refused(packer, "values with cells are passed in buffers"));
            }
            Self::Value(of, bytes) if bytes.len() != of.bytes => {
                return Err(refused(packer, "its bytes are not as many as its type has"));
            }
            Self::Value(of, bytes) => packer.push_bytes(of.align, bytes),
            Self::Slice(of, buffer) | Self::Ref(of, buffer) => {
                if of.bytes == 0 || !buffer.len().is_multiple_of(of.bytes) {
                    return Err(refused(packer, "the buffer's bytes are no whole values of its type"));
                }
                if !buffer.address().get().is_multiple_of(of.align as u64) {
                    return Err(refused(packer, "the buffer does not begin where a value of its type can"));
                }
                if let Self::Slice(..) = self {
                    packer.use_buffer(buffer, of.is_shared)?;
                    push_slice(packer, of, buffer.address(), buffer.len());
                } else if buffer.is_empty() {
                    return Err(LaunchRefused::EmptyBuffer { argument: packer.argument() }.into());
                } else {
                    packer.use_buffer(&buffer.part(..of.bytes)?, of.is_shared)?;
                    packer.push_bytes(8, &buffer.address().get().to_ne_bytes());
                }
            }
        }
        Ok(())
    }
}

/// Adds a slice of these values, which have so many bytes.
fn push_slice(packer: &mut Packer<'_>, of: ValueType, address: DeviceAddress, bytes: usize) {
    // The address of a slice without elements is none of an `Option` that is `None`.
    let address = if bytes == 0 { of.align as u64 } else { address.get() };
    packer.push_bytes(8, [address, (bytes / of.bytes) as u64].map(u64::to_ne_bytes).as_flattened());
}

/// Most arguments of which a wrong one is looked for: that takes as many hashes as the square of their number, times types.
const MOST_SEARCHED: usize = 64;

/// The schema of a kernel with parameters of these.
fn of_kernel(parameters: impl Iterator<Item = u64>) -> u64 {
    parameters.fold(schema::of("kernel"), schema::add_hash)
}

/// The types that parameters usually have, with their schemas: numbers, and slices of and references to them and their cells.
fn usual_types() -> Vec<(u64, String)> {
    let mut types = vec![(<bool as KernelArg>::SCHEMA, "bool".to_owned())];
    for ((number, global, atomic), name) in CELLS.iter().zip(NUMBER_NAMES) {
        types.push((number.schema, name.to_owned()));
        let atomic_name = || format!("Atomic{}{}", name[..1].to_uppercase(), &name[1..]);
        let values = [
            Some((number, name.to_owned())),
            Some((global, format!("Global<{name}>"))),
            atomic.as_ref().map(|atomic| (atomic, atomic_name())),
        ];
        for (of, name) in values.into_iter().flatten() {
            let slice = (schema::add_hash(schema::of("slice"), of.schema), format!("&[{name}]"));
            let one = (schema::add_hash(schema::of("ref"), of.schema), format!("&{name}"));
            for (schema, name) in [slice, one] {
                types.push((optional(schema), format!("Option<{name}>")));
                types.push((schema, name));
            }
        }
    }
    types
}

/// Says which argument has another type than the kernel's parameter, is missing or is one too many, where that is all that is
/// wrong. A kernel tells no more of its parameters than a hash of all, so types are tried.
fn wrong_argument(given: &[u64], wanted: u64) -> Option<String> {
    if given.len() > MOST_SEARCHED {
        return None;
    }
    let types = usual_types();
    let fits = |before: &[u64], between: Option<u64>, behind: &[u64]| {
        of_kernel(before.iter().copied().chain(between).chain(behind.iter().copied())) == wanted
    };
    for at in 0..=given.len() {
        let (before, rest) = given.split_at(at);
        if let Some((_, name)) = types.iter().find(|(schema, _)| fits(before, Some(*schema), rest)) {
            return Some(format!("argument {at} (the first is 0) is missing, which is {name}"));
        }
        let Some((argument, behind)) = rest.split_first() else { continue };
        if fits(before, None, behind) {
            return Some(format!("argument {at} (the first is 0) is one too many"));
        }
        if let Some((_, name)) = types.iter().find(|(schema, _)| fits(before, Some(*schema), behind)) {
            let own = types.iter().find(|(schema, _)| schema == argument);
            let own = own.map_or("of another type", |(_, name)| name);
            return Some(format!("argument {at} (the first is 0) is {own}, and the kernel takes {name}"));
        }
    }
    None
}

/// Stands for parameters whose types are known when the program runs.
enum Untyped {}

struct UntypedArguments<'a>(&'a [UntypedArgument<'a>]);

impl SealedTuple<Untyped> for UntypedArguments<'_> {}

impl Arguments<Untyped> for UntypedArguments<'_> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), Error> {
        self.0.iter().try_for_each(|argument| argument.pack(packer))
    }
}

impl LoadedKernel {
    /// Puts a launch of the kernel on the stream, with arguments whose types are known when the program runs.
    ///
    /// # Errors
    /// As for [`LaunchKernel::launch`](super::LaunchKernel::launch), and when the arguments' types are not those of the
    /// kernel's parameters.
    ///
    /// # Safety
    /// Names and fields of structs are those of the kernel's own types, and what the documentation of an
    /// `unsafe` kernel asks for holds.
    pub unsafe fn launch_untyped(
        &self,
        stream: &Stream,
        grid: Grid,
        arguments: &[UntypedArgument<'_>],
    ) -> Result<Launch, Error> {
        stream.core().check_own(&self.core, kernel_called(&self.name))?;
        if of_kernel(arguments.iter().map(UntypedArgument::schema)) != self.info.schema {
            let (kernel, given) = (self.name.to_string(), arguments.len());
            let schemas: Vec<_> = arguments.iter().map(UntypedArgument::schema).collect();
            let found = wrong_argument(&schemas, self.info.schema);
            return Err(LaunchRefused::Types { kernel, given, found }.into());
        }
        enqueue(stream, self, grid, UntypedArguments(arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Lane, kernel};
    use hostcall_device::kernel::Kernel;

    #[derive(Clone, Copy, hostcall_device::Plain)]
    #[repr(C)]
    struct Pair {
        a: u32,
        b: [f32; 3],
    }

    mod raised {
        #[derive(Clone, Copy, hostcall_device::Plain)]
        #[repr(C, align(16))]
        pub struct Pair {
            a: u32,
            b: [f32; 3],
        }
    }

    #[kernel]
    fn mix(
        lane: &Lane,
        add: u64,
        pair: Pair,
        twice: bool,
        from: &[u32],
        to: &[Global<u64>],
        all: &AtomicU64,
    ) {
        let i = lane.global_id();
        let sum = u64::from(from[i]) + add + u64::from(pair.a) + pair.b[2] as u64;
        to[i].set(if twice { 2 * sum } else { sum });
        all.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn loaded<P>(device: &Device, kernel: &Kernel<P>) -> LoadedKernel {
        let core = device.inner.core.clone();
        let code = core.backend.native_kernel(kernel.entry()).unwrap();
        LoadedKernel { core, name: kernel.name().into(), code, info: *kernel.info() }
    }

    #[test]
    fn types_are_those_of_the_program() {
        let u32s = ValueType::of::<u32>();
        let pair = ValueType::structure("Pair", &[u32s, ValueType::of::<f32>().array(3).unwrap()]);
        assert_eq!(pair, Some(ValueType::of::<Pair>()));
        // The same name and fields, in other places of an argument block.
        let raised = ValueType::of::<raised::Pair>();
        assert_eq!(raised.bytes(), size_of::<Pair>());
        assert_ne!(pair.unwrap().schema, raised.schema);
        assert_eq!(ValueType::structure("Padded", &[u32s, ValueType::of::<u64>()]), None);
        assert_eq!(ValueType::structure("Padded", &[ValueType::of::<u64>(), u32s]), None);
        assert_eq!(u32s.global(), Some(ValueType::of::<Global<u32>>()));
        assert_eq!(u32s.atomic(), Some(ValueType::of::<AtomicU32>()));
        assert_eq!((ValueType::of::<f32>().atomic(), pair.unwrap().global()), (None, None));
        assert_eq!(u32s.array(usize::MAX), None);
    }

    #[test]
    fn arguments_are_checked_and_packed_as_a_program_s() {
        use UntypedArgument::{Bool, Ref, Slice, Value};
        let device = Device::open("cpu").unwrap();
        let (stream, kernel) = (device.stream().unwrap(), loaded(&device, &mix));
        let [u32s, u64s] = [ValueType::of::<u32>(), ValueType::of::<u64>()];
        let from: Vec<u8> = [1u32, 2, 3].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let (from, to) = (device.upload(&from).unwrap(), device.alloc_zeroed::<u8>(24).unwrap());
        let all = device.alloc_zeroed::<u8>(16).unwrap();
        let (odd, beside) = (from.part(..5).unwrap(), from.part(1..5).unwrap());
        let empty = all.part(..0).unwrap();
        let add = 100u64.to_ne_bytes();
        let pair: Vec<u8> =
            [10, 0, 0, 5f32.to_bits()].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let good = [
            Value(u64s, &add),
            Value(ValueType::of::<Pair>(), &pair),
            Bool(true),
            Slice(u32s, &from),
            Slice(u64s.global().unwrap(), &to),
            Ref(u64s.atomic().unwrap(), &all),
        ];
        // SAFETY: `Pair` is described above as it is, and the kernel is safe.
        let launch = |arguments: &[_]| unsafe { kernel.launch_untyped(&stream, Grid::new(1, 3), arguments) };
        launch(&good).unwrap();
        stream.synchronize().unwrap();
        let words = |bytes: Vec<u8>| -> Vec<u64> {
            bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
        };
        assert_eq!(words(to.read().unwrap()), [232, 234, 236]);
        assert_eq!(words(all.read().unwrap()), [3, 0]);

        let with = |at: usize, argument| {
            let mut arguments = good;
            arguments[at] = argument;
            match launch(&arguments) {
                Err(Error::Refused(refused)) => refused,
                other => panic!("{other:?}"),
            }
        };
        let says = |refused: LaunchRefused, what: &str| {
            assert!(matches!(refused, LaunchRefused::Types { .. }), "{refused:?}");
            let sentence = refused.to_string();
            assert!(sentence.ends_with(what), "{sentence}");
        };
        says(
            with(0, Value(ValueType::of::<i64>(), &add)),
            ": argument 0 (the first is 0) is i64, and the kernel takes u64",
        );
        says(with(3, Ref(u32s, &from)), ": argument 3 (the first is 0) is &u32, and the kernel takes &[u32]");
        says(with(4, Slice(u64s, &to)), " is &[u64], and the kernel takes &[Global<u64>]");
        let pairs = ValueType::of::<Pair>().array(2).unwrap();
        says(with(5, Ref(pairs, &all)), " is of another type, and the kernel takes &AtomicU64");
        // The kernel's own struct is no usual type.
        says(with(1, Bool(true)), ": give one for each parameter after the lane, in order and of its type");
        let other_number = |arguments: &[_]| match launch(arguments) {
            Err(Error::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        };
        says(other_number(&good[..5]), ": argument 5 (the first is 0) is missing, which is &AtomicU64");
        says(
            other_number(&[&[Bool(true)][..], &good].concat()),
            ": argument 0 (the first is 0) is one too many",
        );
        let is_refused =
            |refused, at| matches!(refused, LaunchRefused::Argument { argument, .. } if argument == at);
        assert!(is_refused(with(0, Value(u64s, &add[..4])), 0));
        assert!(is_refused(with(3, Slice(u32s, &odd)), 3));
        assert!(is_refused(with(3, Slice(u32s, &beside)), 3));
        let refused = with(5, Ref(u64s.atomic().unwrap(), &empty));
        assert_eq!(refused, LaunchRefused::EmptyBuffer { argument: 5 });
        let aliases = with(3, Slice(u32s, &to));
        assert_eq!(aliases, LaunchRefused::Aliases { plain: 3, shared: 4 });
    }
}
