//! Calls of LLVM's RPC protocol, as the handlers of a server's host have them.

use crate::error::{Failure, hostcall_status};
use crate::functions::functions;
use crate::handle::{get, values};
use hostcall::llvm::{Argument, Call, CallEnded, EmissaryValue, HandlerFailed, Parameter};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// A call that a handler answers: what the client sends the handler receives, and the other way round; the client begins with a
/// send. It lives until the handler returns; the handler's thread uses it.
pub struct hostcall_llvm_call<'a>(pub(crate) &'a mut Call);

/// What a parameter of a typed function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_llvm_parameter_kind {
    /// A value of `bytes` bytes: a number, a struct, a pointer to `void` or to what the client does not know.
    Value = 1,
    /// A pointer to a value, or to an array (`rpc::span`), which the function may change.
    Pointer = 2,
    /// A pointer to what the function only reads, such as a `const char *`.
    Input = 3,
}

/// A parameter of a typed function.
#[repr(C)]
pub struct hostcall_llvm_parameter {
    /// One of hostcall_llvm_parameter_kind.
    pub kind: u32,
    /// How many bytes a value has; of other kinds it is not looked at.
    pub bytes: usize,
}

/// An argument of a typed function: a value's bytes, or a copy of what a pointer points to, behind which there is a zero byte.
#[repr(C)]
pub struct hostcall_llvm_argument {
    /// The bytes, which may be changed; NULL of a null pointer.
    pub data: *mut c_void,
    /// How many bytes there are, as the client says.
    pub bytes: usize,
}

/// A typed function: answers one lane's call. `result` has as many bytes as was said, 0 before. Returns 0, or a number of its own
/// for a failure.
pub type hostcall_llvm_typed_function = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        lane: u32,
        arguments: *const hostcall_llvm_argument,
        result: *mut c_void,
    ) -> i32,
>;

/// What an argument of an Emissary call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_llvm_emissary_kind {
    /// An integer: `word`, with `bits` bits.
    Integer = 1,
    /// A float or a double: `word` has a double's bits.
    Float = 2,
    /// A text: `data`, which a zero byte ends.
    Text = 3,
    /// An address on the device: `word`.
    Address = 4,
    /// A copy of the device's memory, or memory that the device gets: `data`, of `bytes` bytes, which may be changed.
    Memory = 5,
}

/// An argument of an Emissary call. It lives until the handler returns.
#[repr(C)]
pub struct hostcall_llvm_emissary_argument {
    /// One of hostcall_llvm_emissary_kind.
    pub kind: u32,
    /// An integer's bits.
    pub bits: u32,
    /// An integer, a double's bits, or an address.
    pub word: u64,
    /// A text or memory.
    pub data: *mut c_void,
    /// How many bytes these have.
    pub bytes: usize,
}

/// Answers one lane's call of a function of an Emissary API; `result` is 0 before. Several calls run at the same time, on worker
/// threads. Returns 0, or a number of its own for a failure, with which the call cannot go on. It must return.
pub type hostcall_llvm_emissary_handler = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        function: u32,
        lane: u32,
        arguments: *const hostcall_llvm_emissary_argument,
        count: usize,
        result: *mut u64,
    ) -> i32,
>;

fn ended(CallEnded: CallEnded) -> Failure {
    Failure::new(hostcall_status::Closed, CallEnded)
}

/// Returns what a handler's number says.
pub(crate) fn failed(code: i32) -> Result<(), HandlerFailed> {
    if code == 0 { Ok(()) } else { Err(HandlerFailed(code)) }
}

/// Calls a function with a lane's arguments.
fn call_typed(
    arguments: &mut [Argument<'_>],
    function: impl FnOnce(&[hostcall_llvm_argument]) -> i32,
) -> Result<(), HandlerFailed> {
    let mut copies: Vec<Vec<u8>> = arguments
        .iter_mut()
        .map(|argument| match argument {
            Argument::Value(bytes) => bytes.to_vec(),
            Argument::Memory(Some(memory)) => {
                memory.push(0);
                Vec::new()
            }
            Argument::Memory(None) => Vec::new(),
        })
        .collect();
    let given: Vec<_> = arguments
        .iter_mut()
        .zip(&mut copies)
        .map(|(argument, copy)| match argument {
            Argument::Value(bytes) => {
                hostcall_llvm_argument { data: copy.as_mut_ptr().cast(), bytes: bytes.len() }
            }
            Argument::Memory(Some(memory)) => {
                hostcall_llvm_argument { data: memory.as_mut_ptr().cast(), bytes: memory.len() - 1 }
            }
            Argument::Memory(None) => hostcall_llvm_argument { data: null_mut(), bytes: 0 },
        })
        .collect();
    let code = function(&given);
    for argument in arguments {
        if let Argument::Memory(Some(memory)) = argument {
            memory.pop();
        }
    }
    failed(code)
}

fn parameter(parameter: &hostcall_llvm_parameter) -> Result<Parameter, Failure> {
    use hostcall_llvm_parameter_kind as is;
    match parameter.kind {
        kind if kind == is::Value as u32 => Ok(Parameter::Value(parameter.bytes)),
        kind if kind == is::Pointer as u32 => Ok(Parameter::Pointer),
        kind if kind == is::Input as u32 => Ok(Parameter::Input),
        kind => Err(Failure::invalid(format!(
            "there is no kind {kind} of parameters: pass a hostcall_llvm_parameter_kind"
        ))),
    }
}

/// Returns an argument as C has it; `memory` is the call's, and texts have their zero bytes.
pub(crate) fn emissary_argument(
    value: &mut EmissaryValue,
    memory: &mut [Vec<u8>],
) -> hostcall_llvm_emissary_argument {
    use hostcall_llvm_emissary_kind as is;
    let of = |kind: hostcall_llvm_emissary_kind, bits: u16, word| hostcall_llvm_emissary_argument {
        kind: kind as u32,
        bits: bits.into(),
        word,
        data: null_mut(),
        bytes: 0,
    };
    match value {
        EmissaryValue::Integer(word, bits) => of(is::Integer, *bits, *word),
        EmissaryValue::Float(value) => of(is::Float, 64, value.to_bits()),
        EmissaryValue::Address(word) => of(is::Address, 64, *word),
        EmissaryValue::Text(text) => {
            text.push(0);
            let (data, bytes) = (text.as_mut_ptr().cast(), text.len() - 1);
            hostcall_llvm_emissary_argument { data, bytes, ..of(is::Text, 0, 0) }
        }
        EmissaryValue::Memory(place) => {
            let memory = &mut memory[*place];
            let (data, bytes) = (memory.as_mut_ptr().cast(), memory.len());
            hostcall_llvm_emissary_argument { data, bytes, ..of(is::Memory, 0, 0) }
        }
        _ => of(is::Address, 64, 0),
    }
}

functions! {
    /// Returns what the client asked for; 0 for NULL.
    ask hostcall_llvm_call_opcode(call: &hostcall_llvm_call<'_>) -> u32 { call.0.opcode() }

    /// Returns the lanes of the wave that call, one bit a lane; 0 for NULL.
    ask hostcall_llvm_call_mask(call: &hostcall_llvm_call<'_>) -> u64 { call.0.mask() }

    /// Returns a lane's buffer, 8 words: what was received last, or what is sent next. It stays until the next function that receives
    /// or sends. NULL when no wave has such a lane.
    ask hostcall_llvm_call_words(call: &mut hostcall_llvm_call<'_>, lane: u32) -> *mut u64 {
        if lane >= 64 {
            return Ok(null_mut());
        }
        call.0.words(lane).as_mut_ptr()
    }

    /// Returns a lane's bytes that were received last, `count` of them. They stay until the next function that receives or sends.
    ask hostcall_llvm_call_bytes(
        call: &mut hostcall_llvm_call<'_>,
        lane: u32,
        count: &mut MaybeUninit<usize>,
    ) -> *mut u8 {
        count.write(0);
        if lane >= 64 {
            return Ok(null_mut());
        }
        let bytes = call.0.bytes(lane);
        count.write(bytes.len());
        bytes.as_mut_ptr()
    }

    /// Sets the bytes that hostcall_llvm_call_send_bytes sends to a lane; they are copied.
    reply hostcall_llvm_call_set_bytes(
        call: &mut hostcall_llvm_call<'_>,
        lane: u32,
        bytes: *const u8,
        count: usize,
    ) {
        // SAFETY: CALLER.
        let bytes = unsafe { values(bytes, count, "bytes") }?;
        if lane >= 64 {
            return Err(Failure::invalid(format!("no wave has a lane {lane}: pass one below 64")));
        }
        *call.0.bytes(lane) = bytes.to_vec();
    }

    /// Receives the lanes' buffers. Fails with HOSTCALL_STATUS_CLOSED, as the next three functions do, when the call has ended, since
    /// the server stops or the client broke a limit: the handler returns then.
    reply hostcall_llvm_call_receive(call: &mut hostcall_llvm_call<'_>) { call.0.receive().map_err(ended)? }

    /// Sends the lanes' buffers.
    reply hostcall_llvm_call_send(call: &mut hostcall_llvm_call<'_>) { call.0.send().map_err(ended)? }

    /// Receives bytes of any number from each lane (`send_n` on the device).
    reply hostcall_llvm_call_receive_bytes(call: &mut hostcall_llvm_call<'_>) {
        call.0.receive_bytes().map_err(ended)?
    }

    /// Sends each lane its bytes (`recv_n` on the device).
    reply hostcall_llvm_call_send_bytes(call: &mut hostcall_llvm_call<'_>) {
        call.0.send_bytes().map_err(ended)?
    }

    /// Answers a client's `rpc::dispatch` of a function with `count` parameters and a result of `result_bytes` bytes, 0 for `void`:
    /// calls `function` for each lane. The handler of the opcode does nothing else with the call. Fails with
    /// HOSTCALL_STATUS_REFUSED when the function fails for a lane or the call has ended: the handler returns a number for a failure
    /// then.
    reply hostcall_llvm_call_dispatch(
        call: &mut hostcall_llvm_call<'_>,
        parameters: *const hostcall_llvm_parameter,
        count: usize,
        result_bytes: usize,
        function: hostcall_llvm_typed_function,
        state: *mut c_void,
    ) {
        // SAFETY: CALLER.
        let parameters = unsafe { values(parameters, count, "parameters") }?;
        let parameters = parameters.iter().map(parameter).collect::<Result<Vec<_>, _>>()?;
        let function = get(function, "function")?;
        let dispatched = call.0.dispatch(&parameters, result_bytes, |lane, arguments, result| {
            call_typed(arguments, |arguments| {
                // SAFETY: CALLER: it is a function of its type; arguments and result live until it returns.
                unsafe { function(state, lane, arguments.as_ptr(), result.as_mut_ptr().cast()) }
            })
        });
        dispatched.map_err(|HandlerFailed(code)| {
            Failure::new(hostcall_status::Refused, format!("the function failed with {code}, or the call has ended"))
        })?
    }
}
