//! What the expansions of the macros name. Not for users.

pub use crate::Lane;
pub use crate::call::{CallOptions, Pending, call, call_with_bytes, post, start};

/// Calls of methods that are unsafe to call, which the functions of [`crate::call`] refuse.
pub mod unchecked;

/// Calls of the services of this crate, which the functions of [`crate::call`] refuse.
pub(crate) mod builtin {
    pub(crate) use crate::bulk::call as call_with_bytes;
    pub(crate) use crate::call::call_any as call;
    pub(crate) use crate::pending::start;
    pub(crate) use crate::post::post;

    /// Those of methods that a lane calls hardly ever: their code is there once, and small.
    pub(crate) mod rare {
        pub(crate) use super::{post, start};
        pub(crate) use crate::bulk::call_rare as call_with_bytes;
        pub(crate) use crate::call::call_rare as call;
    }
}

pub use crate::hostcall::METHOD as HOSTCALL_METHOD;
pub use crate::kernel::{
    Joined, Kernel, KernelArg, OfPlain, OfValue, Optional, Parameter, Ref, Slice, UnsafeKernel, enter_kernel,
    finish_main, kernel_info, kernel_schema, lane_of_kernel, value_of_launch,
};
pub use crate::plain::{Aligned, AlignedAs, Plain};
pub use crate::print::{Argument, AsAddress, AsBoth, AsValue, ByDevice, ByHost, Site, print, print_text};
pub use crate::trace::{Point, on as traces, tag_of as point_tag_of, write as write_point};
pub use crate::workgroup::{
    at as workgroup_at, end_of as workgroup_end, lane_of_typed, rest as workgroup_rest,
};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use hostcall_abi::cpu::CpuLane;
pub use hostcall_abi::launch::{BUFFER_ALIGN, KernelInfo, LaunchParams};
pub use hostcall_abi::record::{Field, Type};
pub use hostcall_abi::service::{Method, derived_number, number};
pub use hostcall_abi::wire::Wire;
use hostcall_abi::word::MAX_TYPED_WORDS;
pub use hostcall_abi::{CallError, schema};
// A user's types may have these names.
pub use core::clone::Clone;
pub use core::fmt::Debug;
pub use core::future::Future;
pub use core::marker::{Copy, Send, Sync};
pub use core::mem::{offset_of, size_of};
pub use core::option::Option::{self, None, Some};
pub use core::primitive::{bool, str, u8, u16, u32, u64, usize};
pub use core::result::Result::{self, Err, Ok};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use hostcall_service::gather::BatchFuture;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use hostcall_service::{
    AsyncReply, AsyncService, Caller, Calls, Gathered, GatheredCalls, GatheredService, Output, OwnedReply,
    OwnedRequest, Posts, Reply, Request, Service,
};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use std::{boxed::Box, string::String, sync::Arc, vec::Vec};

/// What functions take that an expansion has for their names alone: there is no such value.
#[allow(missing_debug_implementations, reason = "there is nothing to show")]
pub enum NameOfAParameter {}

/// Returns the length of a slice as an argument word.
///
/// # Errors
/// [`CallError::TooLarge`] from 2³² on.
#[inline(always)]
pub fn slice_len(len: usize) -> Result<u32, CallError> {
    u32::try_from(len).map_err(|_| CallError::TooLarge)
}

/// Refuses a method of a service whose parameters or result are more words than a call has.
///
/// # Panics
/// In that case. The compiler shows the text.
#[track_caller]
pub const fn check_words(method: &str, parameters: &[usize], result: usize) {
    let (mut all, mut i) = (0usize, 0);
    while i < parameters.len() {
        all = all.saturating_add(parameters[i]);
        i += 1;
    }
    let (what, words, advice) = match (all > MAX_TYPED_WORDS, result > MAX_TYPED_WORDS) {
        (true, _) => ("parameters", all, "pass bytes, `&[u8]`"),
        (_, true) => ("result", result, "give bytes back, by a last parameter `&mut [u8]`"),
        (false, false) => return,
    };
    let mut text = ([0; 512], 0);
    push(&mut text, what);
    push(&mut text, " of `");
    push(&mut text, method);
    push(&mut text, "`: ");
    push_number(&mut text, words);
    push(&mut text, " words, and a call has room for ");
    push_number(&mut text, MAX_TYPED_WORDS);
    push(&mut text, " of them: ");
    push(&mut text, advice);
    let (bytes, len) = &text;
    match core::str::from_utf8(bytes.split_at(*len).0) {
        Ok(text) => panic!("{}", text),
        Err(_) => panic!("a method has more words than a call has room for"),
    }
}

/// Adds to a text as much as it has room for.
const fn push((bytes, len): &mut ([u8; 512], usize), more: &str) {
    let mut at = 0;
    while at < more.len() && *len < bytes.len() {
        bytes[*len] = more.as_bytes()[at];
        (*len, at) = (*len + 1, at + 1);
    }
}

const fn push_number(text: &mut ([u8; 512], usize), number: usize) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    push(text, DIGITS[number % 10]);
}

const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// The options of a call with this deadline.
pub const fn within_us(timeout_us: u32) -> CallOptions {
    CallOptions { timeout_us }
}

/// The result of a call that gives no bytes back.
#[inline(always)]
pub fn without_bytes<R>((result, _): (R, usize)) -> R {
    result
}

/// The schema of a struct in memory, with fields of these schemas: where its fields lie is said by these,
/// and where the struct lies among others by its alignment, which an `align` in its `repr` may raise.
pub const fn plain_schema(name: &str, align: usize, fields: &[u64]) -> u64 {
    schema::add_hash(schema::of_struct(name, fields), align as u64)
}

/// Whether a struct of this alignment has its fields where C puts them, without padding between them: each
/// field's offset, bytes and alignment.
pub const fn lies_as_in_c(align: usize, fields: &[[usize; 3]]) -> bool {
    let (mut i, mut end) = (0, 0);
    while i < fields.len() {
        let [offset, bytes, align_of_field] = fields[i];
        if offset != end || align_of_field > align {
            return false;
        }
        end += bytes;
        i += 1;
    }
    true
}

/// The largest of these numbers, or 0.
pub const fn largest(numbers: &[usize]) -> usize {
    let mut largest = 0;
    let mut i = 0;
    while i < numbers.len() {
        if numbers[i] > largest {
            largest = numbers[i];
        }
        i += 1;
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_as_in_c_or_not() {
        #[repr(C)]
        struct OfC(u64, [u32; 2]);
        #[repr(C, packed)]
        struct Packed(u64, [u32; 2]);
        // What the compiler may make of a struct without a `repr`.
        #[repr(C)]
        struct Turned([u32; 2], u64);
        macro_rules! lies {
            ($name:ident: $($field:tt $type:ty),*) => {{
                let place = [$([core::mem::offset_of!($name, $field), size_of::<$type>(), align_of::<$type>()]),*];
                lies_as_in_c(align_of::<$name>(), &place)
            }};
        }
        assert!(lies!(OfC: 0 u64, 1 [u32; 2]) && lies_as_in_c(1, &[]));
        assert!(!lies!(Packed: 0 u64, 1 [u32; 2]));
        assert!(!lies!(Turned: 1 u64, 0 [u32; 2]));
    }
}
