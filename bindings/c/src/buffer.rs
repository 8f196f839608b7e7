//! Types of values, and buffers of them.

use crate::device::hostcall_device;
use crate::error::{Failure, hostcall_error, hostcall_status, run};
use crate::handle::{self, Out, get, place, put, text, values};
use crate::stream::hostcall_stream;
use hostcall::DeviceBuffer;
use hostcall::device::{PinnedBuffer, ValueType};
use std::ffi::{c_char, c_void};

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

/// Makes the type of a number, by its hostcall_kind.
pub extern "C" fn hostcall_type_number(
    kind: u32,
    made: Out<'_, hostcall_type>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(made, "made")?;
        put(place, hostcall_type(number_of(kind)?));
        Ok(())
    })
}

/// Makes the type of a Rust struct `#[repr(C)] #[derive(Plain)]`, by its name and the types of its `count` fields. Such a
/// struct has no padding. The types of the fields can be freed afterwards.
pub unsafe extern "C" fn hostcall_type_struct(
    name: *const c_char,
    fields: *const *const hostcall_type,
    count: usize,
    made: Out<'_, hostcall_type>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(made, "made")?;
        // SAFETY: CALLER.
        let (name, fields) = unsafe { (text(name, "name")?, values(fields, count, "fields")?) };
        let mut types = Vec::with_capacity(fields.len());
        for field in fields {
            // SAFETY: CALLER: it is NULL or a type.
            types.push(get(unsafe { field.as_ref() }, "a field's type")?.0);
        }
        let made = ValueType::structure(name, &types)
            .ok_or_else(|| {
                Failure::invalid(format!(
                    "a struct {name} of these fields has padding: add a field in its place, here and in the kernel"
                ))
            })?;
        put(place, hostcall_type(made));
        Ok(())
    })
}

/// Makes the type of an array of `len` values.
pub extern "C" fn hostcall_type_array(
    of: Option<&hostcall_type>,
    len: usize,
    made: Out<'_, hostcall_type>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(made, "made")?;
        let array = get(of, "of")?.0.array(len);
        put(
            place,
            hostcall_type(get(array, "of").map_err(|_| Failure::invalid("no memory holds the array"))?),
        );
        Ok(())
    })
}

/// Frees a type and sets the handle to NULL. NULL is let be.
pub extern "C" fn hostcall_type_free(of: Option<&mut *mut hostcall_type>) {
    handle::free(of);
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

fn alloc(device: Option<&hostcall_device>, of: ValueType, len: usize) -> Result<hostcall_buffer, Failure> {
    let device = &get(device, "device")?.device;
    if of.bytes() == 0 {
        return Err(Failure::invalid("values of a buffer have at least one byte"));
    }
    let bytes = len.checked_mul(of.bytes()).ok_or_else(|| Failure::invalid("no memory holds the buffer"))?;
    Ok(hostcall_buffer { bytes: device.alloc_zeroed(bytes)?, of })
}

/// Allocates `len` numbers of a hostcall_kind, all zero.
pub extern "C" fn hostcall_buffer_alloc(
    device: Option<&hostcall_device>,
    kind: u32,
    len: usize,
    buffer: Out<'_, hostcall_buffer>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(buffer, "buffer")?;
        put(place, alloc(device, number_of(kind)?, len)?);
        Ok(())
    })
}

/// Allocates `len` values of a type, all zero bytes.
pub extern "C" fn hostcall_buffer_alloc_of(
    device: Option<&hostcall_device>,
    of: Option<&hostcall_type>,
    len: usize,
    buffer: Out<'_, hostcall_buffer>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(buffer, "buffer")?;
        put(place, alloc(device, get(of, "of")?.0, len)?);
        Ok(())
    })
}

/// Makes another buffer of the same memory: the `len` values from `first` on.
pub extern "C" fn hostcall_buffer_part(
    buffer: Option<&hostcall_buffer>,
    first: usize,
    len: usize,
    part: Out<'_, hostcall_buffer>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(part, "part")?;
        let hostcall_buffer { bytes, of } = get(buffer, "buffer")?;
        let values = bytes.len() / of.bytes();
        let Some(end) = first.checked_add(len).filter(|end| *end <= values) else {
            let text = format!("{len} values from value {first} on do not lie in a buffer of {values}");
            return Err(Failure::new(hostcall_status::Refused, text));
        };
        let part = first * of.bytes()..end * of.bytes();
        put(place, hostcall_buffer { bytes: bytes.part(part)?, of: *of });
        Ok(())
    })
}

/// Frees a buffer and sets the handle to NULL. NULL is let be.
pub extern "C" fn hostcall_buffer_free(buffer: Option<&mut *mut hostcall_buffer>) {
    handle::free(buffer);
}

/// Returns how many values the buffer has; 0 for NULL.
pub extern "C" fn hostcall_buffer_len(buffer: Option<&hostcall_buffer>) -> usize {
    buffer.map_or(0, |buffer| buffer.bytes.len() / buffer.of.bytes())
}

/// Waits for everything before it that uses the values, and copies these there: `size` bytes, as many as the buffer has.
pub unsafe extern "C" fn hostcall_buffer_write(
    buffer: Option<&hostcall_buffer>,
    from: *const c_void,
    size: usize,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        // SAFETY: CALLER.
        let from = unsafe { values(from.cast::<u8>(), size, "from") }?;
        let buffer = get(buffer, "buffer")?;
        buffer.check_size(size)?;
        Ok(buffer.bytes.write(from)?)
    })
}

/// Waits for everything before it that may write the values, and copies them to `to`: `size` bytes, as many as the buffer
/// has.
pub unsafe extern "C" fn hostcall_buffer_read(
    buffer: Option<&hostcall_buffer>,
    to: *mut c_void,
    size: usize,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let buffer = get(buffer, "buffer")?;
        buffer.check_size(size)?;
        if to.is_null() && size > 0 {
            return Err(Failure::invalid("`to` is NULL"));
        }
        let bytes = buffer.bytes.read()?;
        // SAFETY: CALLER: so many bytes lie there, which nobody else uses; the vector has as many.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
        Ok(())
    })
}

/// Copies values to a buffer in the stream's order: `size` bytes, as many as the buffer has. They are taken at once, and may
/// change after the call.
pub unsafe extern "C" fn hostcall_stream_write(
    stream: Option<&hostcall_stream>,
    buffer: Option<&hostcall_buffer>,
    from: *const c_void,
    size: usize,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        // SAFETY: CALLER.
        let from = unsafe { values(from.cast::<u8>(), size, "from") }?;
        let (stream, buffer) = (&get(stream, "stream")?.0, get(buffer, "buffer")?);
        buffer.check_size(size)?;
        Ok(stream.write(&buffer.bytes, from)?)
    })
}

/// Copies the values of `from` to `to`, which has the same length, on the device and in the stream's order.
pub extern "C" fn hostcall_stream_copy(
    stream: Option<&hostcall_stream>,
    to: Option<&hostcall_buffer>,
    from: Option<&hostcall_buffer>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let (to, from) = (get(to, "to")?, get(from, "from")?);
        let stream = &get(stream, "stream")?.0;
        if to.bytes.len() != from.bytes.len() {
            let (from, to) = (from.described(), to.described());
            let text = format!("{from} does not fit {to}: take the part that it is for");
            return Err(Failure::new(hostcall_status::Refused, text));
        }
        Ok(stream.copy(&to.bytes, &from.bytes)?)
    })
}

/// Sets every value of a buffer in the stream's order to the value at `value`, which has `size` bytes. Unless these are a
/// pattern of at most 4 bytes, over and over, the host makes as much memory as the buffer has.
pub unsafe extern "C" fn hostcall_stream_fill(
    stream: Option<&hostcall_stream>,
    buffer: Option<&hostcall_buffer>,
    value: *const c_void,
    size: usize,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let (stream, hostcall_buffer { bytes, of }) = (&get(stream, "stream")?.0, get(buffer, "buffer")?);
        // SAFETY: CALLER.
        let value = unsafe { values(value.cast::<u8>(), size, "value") }?;
        if size != of.bytes() {
            let text = format!("a value of the buffer has {} bytes, not {size}", of.bytes());
            return Err(Failure::invalid(text));
        }
        Ok(stream.fill_bytes(bytes, value)?)
    })
}

/// Numbers in memory that host and running kernels both read and write at any time. Any thread may use it; it is the
/// caller's, who frees it. Launches keep the memory.
pub struct hostcall_pinned {
    pub(crate) bytes: PinnedBuffer<u8>,
    pub(crate) of: ValueType,
}

/// Allocates `len` pinned numbers of a hostcall_kind, all zero.
pub extern "C" fn hostcall_pinned_alloc(
    device: Option<&hostcall_device>,
    kind: u32,
    len: usize,
    pinned: Out<'_, hostcall_pinned>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(pinned, "pinned")?;
        let of = number_of(kind)?;
        let bytes =
            len.checked_mul(of.bytes()).ok_or_else(|| Failure::invalid("no memory holds the buffer"))?;
        put(place, hostcall_pinned { bytes: get(device, "device")?.device.pinned(bytes)?, of });
        Ok(())
    })
}

/// Returns where the numbers lie; NULL for NULL. Who accesses one that a kernel or a thread may access meanwhile does so
/// atomically. It is good until the handle and all launches that got it are gone.
pub extern "C" fn hostcall_pinned_data(pinned: Option<&hostcall_pinned>) -> *mut c_void {
    pinned.map_or(std::ptr::null_mut(), |pinned| pinned.bytes.host_address().as_ptr().cast())
}

/// Returns how many numbers the buffer has; 0 for NULL.
pub extern "C" fn hostcall_pinned_len(pinned: Option<&hostcall_pinned>) -> usize {
    pinned.map_or(0, |pinned| pinned.bytes.len() / pinned.of.bytes())
}

/// Frees a pinned buffer and sets the handle to NULL. NULL is let be.
pub extern "C" fn hostcall_pinned_free(pinned: Option<&mut *mut hostcall_pinned>) {
    handle::free(pinned);
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
