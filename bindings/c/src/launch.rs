//! Launches and their arguments.

use crate::buffer::{
    check_kind, hostcall_buffer, hostcall_kind, hostcall_pinned, hostcall_type, no_kind, number,
};
use crate::closure::hostcall_closure;
use crate::error::Failure;
use crate::functions::functions;
use crate::handle::{get, values};
use crate::image::hostcall_kernel;
use crate::stream::hostcall_stream;
use hostcall::Grid;
use hostcall::device::{Launch, LaunchOutcome, UntypedArgument, ValueType};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A launch. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_launch(pub(crate) Launch);

/// How many lanes a launch has, and how they are grouped.
#[repr(C)]
pub struct hostcall_grid {
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
    /// Lanes of a workgroup in x, y and z; at most 1024 in all.
    pub lanes: [u32; 3],
    /// Bytes of workgroup memory besides what the kernel declares.
    pub workgroup_memory_bytes: u32,
}

/// A value of a hostcall_type.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct hostcall_plain {
    /// Its type.
    pub of: *const hostcall_type,
    /// As many bytes as the type has.
    pub bytes: *const c_void,
}

/// An argument's value, by its kind.
#[repr(C)]
pub union hostcall_value {
    /// HOSTCALL_KIND_U8.
    pub u8: u8,
    /// HOSTCALL_KIND_U16.
    pub u16: u16,
    /// HOSTCALL_KIND_U32.
    pub u32: u32,
    /// HOSTCALL_KIND_U64, HOSTCALL_KIND_USIZE.
    pub u64: u64,
    /// HOSTCALL_KIND_I8.
    pub i8: i8,
    /// HOSTCALL_KIND_I16.
    pub i16: i16,
    /// HOSTCALL_KIND_I32.
    pub i32: i32,
    /// HOSTCALL_KIND_I64, HOSTCALL_KIND_ISIZE.
    pub i64: i64,
    /// HOSTCALL_KIND_F32.
    pub f32: f32,
    /// HOSTCALL_KIND_F64.
    pub f64: f64,
    /// HOSTCALL_KIND_BOOL: 0 is false.
    pub boolean: u8,
    /// HOSTCALL_KIND_PLAIN.
    pub plain: hostcall_plain,
    /// HOSTCALL_KIND_SLICE to HOSTCALL_KIND_ATOMIC_REF.
    pub buffer: *const hostcall_buffer,
    /// HOSTCALL_KIND_PINNED_SLICE.
    pub pinned: *const hostcall_pinned,
    /// HOSTCALL_KIND_CLOSURE.
    pub closure: *const hostcall_closure,
    /// HOSTCALL_KIND_ABSENT and another: the type of the values that there are none of, a number for a `Global` or an atomic.
    pub of: *const hostcall_type,
}

/// An argument of a kernel: for each parameter after the lane one, in order.
#[repr(C)]
pub struct hostcall_argument {
    /// One of hostcall_kind, with HOSTCALL_KIND_OPTIONAL or HOSTCALL_KIND_ABSENT for an `Option`.
    pub kind: u32,
    /// The value.
    pub value: hostcall_value,
}

/// How a launch ended that nothing went wrong with.
#[repr(C)]
pub struct hostcall_outcome {
    /// A lane gave an exit code.
    pub has_exit_code: bool,
    /// The first exit code that a lane gave.
    pub exit_code: i32,
}

impl hostcall_grid {
    pub(crate) fn get(&self) -> Grid {
        let Self { workgroups, lanes, workgroup_memory_bytes } = *self;
        Grid::new_3d(workgroups, lanes).workgroup_memory(workgroup_memory_bytes)
    }
}

impl hostcall_argument {
    /// Returns the argument for the Rust side, which checks it.
    ///
    /// # Safety
    /// CALLER: `value` is of the kind, and what it points to is there while the result is used.
    unsafe fn get(&self) -> Result<UntypedArgument<'_>, Failure> {
        let Self { kind, value } = self;
        let (optional, absent) = (hostcall_kind::Optional as u32, hostcall_kind::Absent as u32);
        if kind & (optional | absent) != 0 {
            let inner = check_kind(kind & !(optional | absent), *kind)?;
            let is_absent = kind & absent != 0;
            if matches!(inner, hostcall_kind::Bool | hostcall_kind::Plain | hostcall_kind::Closure)
                || is_absent && (kind & optional != 0 || inner == hostcall_kind::PinnedSlice)
            {
                return Err(no_kind(*kind));
            }
            if is_absent {
                // SAFETY: CALLER: the kind says so, and it is NULL or a type.
                let of = element(inner, get(unsafe { value.of.as_ref() }, "value.of")?.0)?;
                return Ok(match is_slice(inner) {
                    true => UntypedArgument::OptionalSlice(of, None),
                    false => UntypedArgument::OptionalRef(of, None),
                });
            }
            // SAFETY: CALLER: the value is of the kind without the flag.
            return Ok(match unsafe { self.buffer(inner) }? {
                UntypedArgument::Slice(of, bytes) => UntypedArgument::OptionalSlice(of, Some(bytes)),
                UntypedArgument::Ref(of, bytes) => UntypedArgument::OptionalRef(of, Some(bytes)),
                UntypedArgument::Pinned(of, bytes) => UntypedArgument::OptionalPinned(of, bytes),
                other => other,
            });
        }
        if let Some(of) = number(*kind) {
            let first = (&raw const *value).cast::<u8>();
            // SAFETY: CALLER: a number of the kind lies there, which begins where the union does and is as long as its type.
            let bytes = unsafe { std::slice::from_raw_parts(first, of.bytes()) };
            return Ok(UntypedArgument::Value(of, bytes));
        }
        let kind = check_kind(*kind, *kind)?;
        if kind == hostcall_kind::Bool {
            // SAFETY: CALLER: the kind says so.
            return Ok(UntypedArgument::Bool(unsafe { value.boolean } != 0));
        }
        if kind == hostcall_kind::Plain {
            // SAFETY: CALLER: the kind says so.
            let hostcall_plain { of, bytes } = unsafe { value.plain };
            // SAFETY: CALLER: it is NULL or a type.
            let of = get(unsafe { of.as_ref() }, "value.plain.of")?.0;
            // SAFETY: CALLER.
            let bytes = unsafe { values(bytes.cast::<u8>(), of.bytes(), "value.plain.bytes") }?;
            return Ok(UntypedArgument::Value(of, bytes));
        }
        if kind == hostcall_kind::Closure {
            // SAFETY: CALLER: the kind says so, and it is NULL or a closure.
            let closure = get(unsafe { value.closure.as_ref() }, "value.closure")?;
            return Ok(UntypedArgument::Closure(&closure.0));
        }
        // SAFETY: CALLER.
        unsafe { self.buffer(kind) }
    }

    /// Returns the argument of a kind of buffer.
    ///
    /// # Safety
    /// CALLER: `value` is of this kind, and what it points to is there while the result is used.
    unsafe fn buffer(&self, kind: hostcall_kind) -> Result<UntypedArgument<'_>, Failure> {
        let value = &self.value;
        if kind == hostcall_kind::PinnedSlice {
            // SAFETY: CALLER: the kind says so, and it is NULL or a pinned buffer.
            let hostcall_pinned { bytes, of } = get(unsafe { value.pinned.as_ref() }, "value.pinned")?;
            return Ok(UntypedArgument::Pinned(*of, bytes));
        }
        // SAFETY: CALLER: the kind says so, and it is NULL or a buffer.
        let hostcall_buffer { bytes, of } = get(unsafe { value.buffer.as_ref() }, "value.buffer")?;
        let of = element(kind, *of)?;
        Ok(if is_slice(kind) { UntypedArgument::Slice(of, bytes) } else { UntypedArgument::Ref(of, bytes) })
    }
}

/// Returns the type of the values that an argument of this kind refers to, where its buffer has those of `of`.
fn element(kind: hostcall_kind, of: ValueType) -> Result<ValueType, Failure> {
    let cell = |of: Option<ValueType>, what| get(of, what).map_err(|_| Failure::invalid(what));
    match kind {
        hostcall_kind::GlobalSlice | hostcall_kind::GlobalRef => {
            cell(of.global(), "a `Global` argument's buffer is one of numbers")
        }
        hostcall_kind::AtomicSlice | hostcall_kind::AtomicRef => {
            cell(of.atomic(), "an atomic argument's buffer is one of integers")
        }
        _ => Ok(of),
    }
}

fn is_slice(kind: hostcall_kind) -> bool {
    matches!(kind, hostcall_kind::Slice | hostcall_kind::GlobalSlice | hostcall_kind::AtomicSlice)
}

functions! {
    /// Puts a launch of a kernel on a stream, with `count` arguments, of which nothing but the buffers' memory
    /// is needed afterwards. It fails when their types are not those of the kernel's parameters; nothing is
    /// launched then. Structs are described with the names and fields that the kernel's own have, and what the
    /// documentation of an unsafe kernel asks for holds. A struct with an `align` in its `repr` cannot be
    /// described. `launch` may be NULL.
    begin hostcall_kernel_launch(
        kernel: &hostcall_kernel,
        stream: &hostcall_stream,
        grid: &hostcall_grid,
        arguments: *const hostcall_argument,
        count: usize,
    ) -> hostcall_launch as launch {
        // SAFETY: CALLER.
        let given = unsafe { values(arguments, count, "arguments") }?;
        let mut arguments = Vec::with_capacity(given.len());
        for (place, argument) in given.iter().enumerate() {
            // SAFETY: CALLER.
            arguments.push(unsafe { argument.get() }.map_err(|failure| failure.of_argument(place))?);
        }
        // SAFETY: CALLER.
        hostcall_launch(unsafe { kernel.0.launch_untyped(&stream.0, grid.get(), &arguments) }?)
    }

    /// Frees a launch's handle and sets it to NULL; the launch runs on. NULL is let be.
    free hostcall_launch_free(launch: hostcall_launch) { drop(launch) }

    /// Returns the launch's number, which handlers find in their calls; 0 for NULL.
    ask hostcall_launch_id(launch: &hostcall_launch) -> u32 { launch.0.id().to_bits() }

    /// Returns whether the launch has ended; false for NULL.
    ask hostcall_launch_is_done(launch: &hostcall_launch) -> bool { launch.0.is_done() }

    /// Waits until the launch has ended, at most for `limit_ns` (UINT64_MAX is without a limit), and puts how into `outcome`,
    /// which may be NULL. Fails as hostcall_stream_synchronize does, which tells of the launch as well.
    run hostcall_launch_wait(
        launch: &hostcall_launch,
        limit_ns: u64,
        outcome: Option<&mut MaybeUninit<hostcall_outcome>>,
    ) {
        let launch = &launch.0;
        let LaunchOutcome { exit_code, .. } = match limit_ns {
            u64::MAX => launch.wait()?,
            limit => launch.wait_for(Duration::from_nanos(limit))?,
        };
        if let Some(outcome) = outcome {
            let (has_exit_code, exit_code) = (exit_code.is_some(), exit_code.unwrap_or(0));
            outcome.write(hostcall_outcome { has_exit_code, exit_code });
        }
    }

    /// Asks the launch to end: its waiting calls end with an error, those after it end the lane.
    run hostcall_launch_cancel(launch: &hostcall_launch) { launch.0.cancel(); }

    /// Cancels the launch if it has not ended when `limit_ns` has passed from now on.
    run hostcall_launch_cancel_after(launch: &hostcall_launch, limit_ns: u64) {
        launch.0.cancel_after(Duration::from_nanos(limit_ns));
    }
}
