//! Closures that kernels get as arguments.

use crate::buffer::hostcall_kind;
use crate::device::hostcall_device;
use crate::error::Failure;
use crate::functions::functions;
use crate::handle::{get, values};
use hostcall::{HostcallState, UntypedHostcall, WireType};
use std::ffi::c_void;

/// A function that kernels call through a parameter `HostcallRef<A, R>`. Any thread may use it; it is the caller's, who frees
/// it. Launches keep it, and it takes their calls until they have ended.
pub struct hostcall_closure(pub(crate) UntypedHostcall);

/// Answers a lane's call: on any thread, of several lanes at the same time. There is a word for each argument, and one for
/// the result unless it has none, which is 0 before. Integers are extended to 64 bits by their sign if they have one, a
/// float's word has its 32 bits, a double's its 64, a bool is 0 or 1; a call with other words fails. It must return.
pub type hostcall_closure_function =
    Option<unsafe extern "C" fn(state: *mut c_void, arguments: *const u64, result: *mut u64)>;

/// As many values as a tuple of Rust's can have that travels in a call.
const LONGEST_TUPLE: usize = 12;

/// Returns the type of values of a kind, as they travel in calls. `what` is where the caller said it.
fn wire_type(kind: u32, what: impl FnOnce() -> String) -> Result<WireType, Failure> {
    use hostcall_kind as is;
    macro_rules! types {
        ($($kind:ident $of:ty;)*) => {
            [$((is::$kind as u32, WireType::of::<$of>())),*]
        };
    }
    let types = types! {
        U8 u8; U16 u16; U32 u32; U64 u64; Usize usize; I8 i8; I16 i16; I32 i32; I64 i64; Isize isize; F32 f32; F64 f64;
        Bool bool;
    };
    let found = types.into_iter().find(|(known, _)| *known == kind);
    found.map(|(_, of)| of).ok_or_else(|| {
        let what = what();
        Failure::invalid(format!(
            "kind {kind} of {what} is no number or bool: pass one of HOSTCALL_KIND_U8 to HOSTCALL_KIND_F64, or \
             HOSTCALL_KIND_BOOL"
        ))
    })
}

functions! {
    /// Makes a closure of `count` arguments of these hostcall_kinds, numbers or bools: `A` is the type of one, and the tuple of
    /// several (12 at most) or none. The result is of one kind, or of none (`()`) with 0. A closure that is not `is_continuous`
    /// takes one call. `free_state` gets `state` when no call comes any more, on any thread, or when this function fails.
    make hostcall_closure_new(
        device: &hostcall_device,
        arguments: *const u32,
        count: usize,
        result: u32,
        is_continuous: bool,
        function: hostcall_closure_function;
        state
    ) -> hostcall_closure as closure {
        let function = get(function, "function")?;
        // SAFETY: CALLER.
        let kinds = unsafe { values(arguments, count, "arguments") }?;
        if kinds.len() > LONGEST_TUPLE {
            let text = format!(
                "a closure has at most {LONGEST_TUPLE} arguments, and `count` is {count}: pass fewer"
            );
            return Err(Failure::invalid(text));
        }
        let types =
            kinds.iter().enumerate().map(|(i, kind)| wire_type(*kind, || format!("`arguments[{i}]`")));
        let types = types.collect::<Result<Vec<_>, _>>()?;
        let arguments = if let [one] = &types[..] { one.clone() } else { WireType::tuple(&types) };
        let result =
            if result == 0 { WireType::tuple(&[]) } else { wire_type(result, || "`result`".into())? };
        let call = move |words: &[u64], result: &mut [u64]| {
            // SAFETY: CALLER: it is a function of its type, which gets its state and as many words as its types have.
            unsafe { function(state.pointer(), words.as_ptr(), result.as_mut_ptr()) }
        };
        let calls = if is_continuous { HostcallState::Continuous } else { HostcallState::Once };
        hostcall_closure(UntypedHostcall::new(&device.device, calls, arguments, result, call)?)
    }

    /// Lets the closure take no more calls: they fail in their kernels. Calls that run end as ever. Returns whether it still took
    /// calls before; false for NULL.
    ask hostcall_closure_finish(closure: &hostcall_closure) -> bool { closure.0.finish() }

    /// Frees a closure and sets the handle to NULL; launches that got it still call it. NULL is let be.
    free hostcall_closure_free(closure: hostcall_closure) { drop(closure) }
}
