//! Calls of methods that are unsafe to call.

use crate::call::{CallOptions, Pending, call_any};
use crate::lane::Lane;
use crate::{bulk, pending, post};
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_abi::wire::Wire;

/// As [`crate::call::call`].
///
/// # Safety
/// What the method's page asks for.
#[inline(always)]
pub unsafe fn call<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
) -> Result<R, CallError> {
    call_any(method, options, arguments)
}

/// As [`crate::call::call_with_bytes`].
///
/// # Safety
/// What the method's page asks for.
#[inline(always)]
pub unsafe fn call_with_bytes<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    bulk::call(method, options, arguments, input, output)
}

/// As [`crate::call::start`].
///
/// # Safety
/// What the method's page asks for.
#[inline(always)]
pub unsafe fn start<'launch, A: Wire, R: Wire>(
    lane: &'launch Lane,
    method: &Method,
    options: CallOptions,
    arguments: &A,
) -> Pending<'launch, R> {
    pending::start(lane, method, options, arguments)
}

/// As [`crate::call::post`].
///
/// # Safety
/// What the method's page asks for.
#[inline(always)]
pub unsafe fn post<A: Wire>(method: &Method, arguments: &A) -> Result<(), CallError> {
    post::post(method, arguments)
}
