//! Types of values, and buffers of them.

use crate::device::hostcall_device;
use crate::error::{Failure, hostcall_status};
use crate::functions::functions;
use crate::handle::{get, values};
use crate::stream::hostcall_stream;
use hostcall::DeviceBuffer;
use hostcall::device::{PinnedBuffer, ValueType};
use std::ffi::c_void;

/// What an argument is. The numbers are also what a type or a buffer is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_kind {
    /// uint8_t, Rust's u8.
    U8 = 1,
    /// uint16_t, u16.
    U16 = 2,
    /// uint32_t, u32.
    U32 = 3,
    /// uint64_t, u64.
    U64 = 4,
    /// uint64_t, usize.
    Usize = 5,
    /// int8_t, i8.
    I8 = 6,
    /// int16_t, i16.
    I16 = 7,
    /// int32_t, i32.
    I32 = 8,
    /// int64_t, i64.
    I64 = 9,
    /// int64_t, isize.
    Isize = 10,
    /// float, f32.
    F32 = 11,
    /// double, f64.
    F64 = 12,
    /// bool. Arguments only, as what follows.
    Bool = 32,
    /// A value of a hostcall_type: a struct or an array.
    Plain = 33,
    /// A buffer of values `T` for `&[T]`.
    Slice = 34,
    /// A buffer for `&T`, of which the kernel gets the first value.
    Ref = 35,
    /// A buffer of numbers for `&[Global<T>]`.
    GlobalSlice = 36,
    /// A buffer of numbers for `&Global<T>`.
    GlobalRef = 37,
    /// A buffer of integers for `&[AtomicU32]` and its like.
    AtomicSlice = 38,
    /// A buffer of integers for `&AtomicU32` and its like.
    AtomicRef = 39,
    /// A pinned buffer for `&[Global<T>]`.
    PinnedSlice = 40,
    /// A closure for a `HostcallRef`.
    Closure = 41,
    /// Is added to a kind from HOSTCALL_KIND_SLICE to HOSTCALL_KIND_PINNED_SLICE: the parameter is an `Option` of it, and
    /// the buffer is given.
    Optional = 256,
    /// Is added to a kind from HOSTCALL_KIND_SLICE to HOSTCALL_KIND_ATOMIC_REF: the parameter is an `Option` of it, and no
    /// buffer is given, but the type of its values.
    Absent = 512,
}

/// A type of values in memory that host and device share. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_type(pub(crate) ValueType);

/// Values in a device's memory. Any thread may use it; it is the caller's, who frees it. Launches keep the memory. Everything
/// that uses the same values is done in the order of the calls where it must be.
pub struct hostcall_buffer {
    pub(crate) bytes: DeviceBuffer<u8>,
    pub(crate) of: ValueType,
}

/// Each number with its kind.
const fn numbers() -> [(hostcall_kind, ValueType); 12] {
    use hostcall_kind as is;
    macro_rules! numbers {
        ($($kind:ident $number:ty;)*) => {
            [$((is::$kind, ValueType::of::<$number>())),*]
        };
    }
    numbers! {
        U8 u8; U16 u16; U32 u32; U64 u64; Usize usize; I8 i8; I16 i16; I32 i32; I64 i64; Isize isize; F32 f32; F64 f64;
    }
}

/// Returns the number that a kind is.
pub(crate) fn number(kind: u32) -> Option<ValueType> {
    numbers().into_iter().find(|(number, _)| *number as u32 == kind).map(|(_, of)| of)
}

/// Returns the kind of a number.
fn kind_of(of: ValueType) -> Option<hostcall_kind> {
    numbers().into_iter().find(|(_, number)| *number == of).map(|(kind, _)| kind)
}

fn number_of(kind: u32) -> Result<ValueType, Failure> {
    number(kind).ok_or_else(|| {
        Failure::invalid(format!(
            "kind {kind} is no number's: pass one of HOSTCALL_KIND_U8 to HOSTCALL_KIND_F64"
        ))
    })
}

impl hostcall_buffer {
    /// Says what it is: "a buffer of 8 U32 (32 bytes)".
    fn described(&self) -> String {
        let (all, each) = (self.bytes.len(), self.of.bytes());
        let of = match kind_of(self.of) {
            Some(kind) => format!("{:?}", kind).to_uppercase(),
            None => format!("values of {each} bytes"),
        };
        format!("a buffer of {} {of} ({all} bytes)", all / each)
    }

    /// Checks that so many bytes are as many as it has.
    fn check_size(&self, size: usize) -> Result<(), Failure> {
        if size == self.bytes.len() {
            return Ok(());
        }
        let text = format!(
            "{size} bytes were given for {}: give as many as it has, or take the part that they are for",
            self.described()
        );
        Err(Failure::new(hostcall_status::Refused, text))
    }
}

/// Returns how many bytes a buffer has.
fn bytes_of(of: ValueType, len: usize) -> Result<usize, Failure> {
    if of.bytes() == 0 {
        return Err(Failure::invalid("values of a buffer have at least one byte"));
    }
    len.checked_mul(of.bytes()).ok_or_else(|| Failure::invalid("no memory holds the buffer"))
}

/// Numbers in memory that host and running kernels both read and write at any time. Any thread may use it; it is the
/// caller's, who frees it. Launches keep the memory.
pub struct hostcall_pinned {
    pub(crate) bytes: PinnedBuffer<u8>,
    pub(crate) of: ValueType,
}

functions! {
    /// Makes the type of a number, by its hostcall_kind.
    make hostcall_type_number(kind: u32) -> hostcall_type as made { hostcall_type(number_of(kind)?) }

    /// Makes the type of a Rust struct `#[repr(C)] #[derive(Plain)]`, by its name and the types of its `count` fields. Such a
    /// struct has no padding. The types of the fields can be freed afterwards.
    make hostcall_type_struct(
        name: &str,
        fields: *const *const hostcall_type,
        count: usize,
    ) -> hostcall_type as made {
        // SAFETY: CALLER.
        let fields = unsafe { values(fields, count, "fields") }?;
        let mut types = Vec::with_capacity(fields.len());
        for field in fields {
            // SAFETY: CALLER: it is NULL or a type.
            types.push(get(unsafe { field.as_ref() }, "a field's type")?.0);
        }
        hostcall_type(ValueType::structure(name, &types).ok_or_else(|| {
            Failure::invalid(format!(
                "a struct {name} of these fields has padding: add a field in its place, here and in the kernel"
            ))
        })?)
    }

    /// Makes the type of an array of `len` values.
    make hostcall_type_array(of: &hostcall_type, len: usize) -> hostcall_type as made {
        hostcall_type(of.0.array(len).ok_or_else(|| Failure::invalid("no memory holds the array"))?)
    }

    /// Frees a type and sets the handle to NULL. NULL is let be.
    free hostcall_type_free(of: hostcall_type) { drop(of) }

    /// Allocates `len` numbers of a hostcall_kind, all zero.
    make hostcall_buffer_alloc(device: &hostcall_device, kind: u32, len: usize) -> hostcall_buffer as buffer {
        let of = number_of(kind)?;
        hostcall_buffer { bytes: device.device.alloc_zeroed(bytes_of(of, len)?)?, of }
    }

    /// Allocates `len` values of a type, all zero bytes.
    make hostcall_buffer_alloc_of(
        device: &hostcall_device,
        of: &hostcall_type,
        len: usize,
    ) -> hostcall_buffer as buffer {
        hostcall_buffer { bytes: device.device.alloc_zeroed(bytes_of(of.0, len)?)?, of: of.0 }
    }

    /// Makes another buffer of the same memory: the `len` values from `first` on.
    make hostcall_buffer_part(buffer: &hostcall_buffer, first: usize, len: usize) -> hostcall_buffer as part {
        let hostcall_buffer { bytes, of } = buffer;
        let values = bytes.len() / of.bytes();
        let Some(end) = first.checked_add(len).filter(|end| *end <= values) else {
            let text = format!("{len} values from value {first} on do not lie in a buffer of {values}");
            return Err(Failure::new(hostcall_status::Refused, text));
        };
        let part = first * of.bytes()..end * of.bytes();
        hostcall_buffer { bytes: bytes.part(part)?, of: *of }
    }

    /// Frees a buffer and sets the handle to NULL. NULL is let be.
    free hostcall_buffer_free(buffer: hostcall_buffer) { drop(buffer) }

    /// Returns how many values the buffer has; 0 for NULL.
    ask hostcall_buffer_len(buffer: &hostcall_buffer) -> usize {
        buffer.bytes.len() / buffer.of.bytes()
    }

    /// Waits for everything before it that uses the values, and copies these there: `size` bytes, as many as the buffer has.
    run hostcall_buffer_write(buffer: &hostcall_buffer, from: *const c_void, size: usize) {
        // SAFETY: CALLER.
        let from = unsafe { values(from.cast::<u8>(), size, "from") }?;
        buffer.check_size(size)?;
        buffer.bytes.write(from)?
    }

    /// Waits for everything before it that may write the values, and copies them to `to`: `size` bytes, as many as the buffer
    /// has.
    run hostcall_buffer_read(buffer: &hostcall_buffer, to: *mut c_void, size: usize) {
        buffer.check_size(size)?;
        if to.is_null() && size > 0 {
            return Err(Failure::invalid("`to` is NULL"));
        }
        let bytes = buffer.bytes.read()?;
        // SAFETY: CALLER: so many bytes lie there, which nobody else uses; the vector has as many.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    }

    /// Copies values to a buffer in the stream's order: `size` bytes, as many as the buffer has. They are taken at once, and may
    /// change after the call.
    run hostcall_stream_write(
        stream: &hostcall_stream,
        buffer: &hostcall_buffer,
        from: *const c_void,
        size: usize,
    ) {
        // SAFETY: CALLER.
        let from = unsafe { values(from.cast::<u8>(), size, "from") }?;
        buffer.check_size(size)?;
        stream.0.write(&buffer.bytes, from)?
    }

    /// Copies the values of `from` to `to`, which has the same length, on the device and in the stream's order.
    run hostcall_stream_copy(stream: &hostcall_stream, to: &hostcall_buffer, from: &hostcall_buffer) {
        if to.bytes.len() != from.bytes.len() {
            let (from, to) = (from.described(), to.described());
            let text = format!("{from} does not fit {to}: take the part that it is for");
            return Err(Failure::new(hostcall_status::Refused, text));
        }
        stream.0.copy(&to.bytes, &from.bytes)?
    }

    /// Sets every value of a buffer in the stream's order to the value at `value`, which has `size` bytes. Unless these are a
    /// pattern of at most 4 bytes, over and over, the host makes as much memory as the buffer has.
    run hostcall_stream_fill(
        stream: &hostcall_stream,
        buffer: &hostcall_buffer,
        value: *const c_void,
        size: usize,
    ) {
        // SAFETY: CALLER.
        let value = unsafe { values(value.cast::<u8>(), size, "value") }?;
        if size != buffer.of.bytes() {
            let text = format!("a value of the buffer has {} bytes, not {size}", buffer.of.bytes());
            return Err(Failure::invalid(text));
        }
        stream.0.fill_bytes(&buffer.bytes, value)?
    }

    /// Allocates `len` pinned numbers of a hostcall_kind, all zero.
    make hostcall_pinned_alloc(device: &hostcall_device, kind: u32, len: usize) -> hostcall_pinned as pinned {
        let of = number_of(kind)?;
        hostcall_pinned { bytes: device.device.pinned(bytes_of(of, len)?)?, of }
    }

    /// Returns where the numbers lie; NULL for NULL. Who accesses one that a kernel or a thread may access meanwhile does so
    /// atomically. It is good until the handle and all launches that got it are gone.
    ask hostcall_pinned_data(pinned: &hostcall_pinned) -> *mut c_void {
        pinned.bytes.host_address().as_ptr().cast()
    }

    /// Returns how many numbers the buffer has; 0 for NULL.
    ask hostcall_pinned_len(pinned: &hostcall_pinned) -> usize {
        pinned.bytes.len() / pinned.of.bytes()
    }

    /// Frees a pinned buffer and sets the handle to NULL. NULL is let be.
    free hostcall_pinned_free(pinned: hostcall_pinned) { drop(pinned) }
}

pub(crate) fn no_kind(given: u32) -> Failure {
    Failure::invalid(format!("there is no kind {given} of arguments: pass a hostcall_kind"))
}

/// Returns the kind of an argument that is no number; `given` is what the caller gave, with flags.
pub(crate) fn check_kind(kind: u32, given: u32) -> Result<hostcall_kind, Failure> {
    use hostcall_kind as is;
    let arguments = [
        is::Bool,
        is::Plain,
        is::Slice,
        is::Ref,
        is::GlobalSlice,
        is::GlobalRef,
        is::AtomicSlice,
        is::AtomicRef,
        is::PinnedSlice,
        is::Closure,
    ];
    let found = arguments.into_iter().find(|argument| *argument as u32 == kind);
    found.ok_or_else(|| no_kind(given))
}
