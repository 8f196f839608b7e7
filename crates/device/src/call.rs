//! Calls: typed, each lane with its own arguments and its own answer.
//!
//! The lanes of a wave that call together share a packet. What `#[service]` makes of a trait ends here.

use crate::group::Group;
use crate::packet::{self, Head};
use crate::{bulk, target};
use hostcall_abi::MAX_WORDS;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{Kind, Line, check_of};

pub use crate::pending::{Pending, start};
pub use crate::post::{post, post_words};

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// Time from when the host sees the call to when it gives up on the handler and answers
    /// [`CallError::TimedOut`], in µs; 0 for no end.
    pub timeout_us: u32,
}

impl CallOptions {
    /// No deadline.
    pub const DEFAULT: Self = Self { timeout_us: 0 };
}

/// Most argument or result words of a call, bytes aside.
pub const MAX_TYPED_WORDS: usize = 64;

/// Calls `method` and waits for the result.
///
/// # Errors
/// The call's status. When the launch was cancelled, the first call to learn of it returns
/// [`CallError::Cancelled`] and the lane's next call ends the lane.
#[inline]
pub fn call<A: Wire, R: Wire>(method: &Method, options: CallOptions, arguments: &A) -> Result<R, CallError> {
    if A::WORDS > MAX_WORDS || R::WORDS > MAX_WORDS {
        return bulk::call(method, options, arguments, &[], &mut []).map(|(result, _)| result);
    }
    let mut line = Line::default();
    arguments.to_words(&mut line.words[..A::WORDS]);
    choose_arguments::<A, R>(head::<A, R>(method, options), method.schema, &mut line)?;
    R::from_words(&line.words).ok_or(CallError::Malformed)
}

/// The call of lines of `A` argument and `R` result words, the same code for every method of these sizes: a copy
/// at each call makes GPU programs of megabytes. The sizes are constants, so that its loops are unrolled.
#[inline(never)]
fn exchange<const A: usize, const R: usize>(
    head: Head,
    schema: u64,
    line: &mut Line,
) -> Result<(), CallError> {
    enter()?;
    let mut request = Line::default();
    request.words[..A].copy_from_slice(&line.words[..A]);
    let head = Head { argument_words: A as u8, result_words: R as u8, ..head };
    let group = Group::converge(site(head.service, schema, Kind::Words));
    let reply = packet::held(group, |slot| packet::exchange(slot, group, head, request))?;
    line.words[..R].copy_from_slice(&reply.words[..R]);
    Ok(())
}

/// Chooses among the `exchange`s by constants, so that one is left of the choice.
#[inline(always)]
fn choose_arguments<A: Wire, R: Wire>(head: Head, schema: u64, line: &mut Line) -> Result<(), CallError> {
    match A::WORDS {
        0 => choose_results::<0>(R::WORDS, head, schema, line),
        1 => choose_results::<1>(R::WORDS, head, schema, line),
        2 => choose_results::<2>(R::WORDS, head, schema, line),
        3 => choose_results::<3>(R::WORDS, head, schema, line),
        4 => choose_results::<4>(R::WORDS, head, schema, line),
        5 => choose_results::<5>(R::WORDS, head, schema, line),
        6 => choose_results::<6>(R::WORDS, head, schema, line),
        _ => choose_results::<7>(R::WORDS, head, schema, line),
    }
}

#[inline(always)]
fn choose_results<const A: usize>(
    results: usize,
    head: Head,
    schema: u64,
    line: &mut Line,
) -> Result<(), CallError> {
    match results {
        0 => exchange::<A, 0>(head, schema, line),
        1 => exchange::<A, 1>(head, schema, line),
        2 => exchange::<A, 2>(head, schema, line),
        3 => exchange::<A, 3>(head, schema, line),
        4 => exchange::<A, 4>(head, schema, line),
        5 => exchange::<A, 5>(head, schema, line),
        6 => exchange::<A, 6>(head, schema, line),
        _ => exchange::<A, 7>(head, schema, line),
    }
}

/// Calls `method` with bytes beside the words: the slices of `input` one after the other, and room for the
/// reply's bytes. Returns the result and how many bytes of `output` were filled.
///
/// # Errors
/// As for [`call`]; [`CallError::TooLarge`] when the reply does not fit `output`.
pub fn call_with_bytes<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    bulk::call(method, options, arguments, input, output)
}

/// Lanes that call the same method in the same way share a packet, wherever in the kernel they are.
#[inline(always)]
pub(crate) fn site(number: u16, schema: u64, kind: Kind) -> u64 {
    schema.rotate_left(8) ^ u64::from(number) << 3 ^ kind as u64
}

#[inline(always)]
pub(crate) fn head<A: Wire, R: Wire>(method: &Method, options: CallOptions) -> Head {
    Head {
        service: method.number,
        check: check_of(method.schema),
        kind: Kind::Words,
        argument_words: A::WORDS as u8,
        result_words: R::WORDS as u8,
        timeout_us: options.timeout_us,
    }
}

/// Ends the lane if its launch is known to be cancelled; refuses while the lane unwinds from a panic.
#[inline(always)]
pub(crate) fn enter() -> Result<(), CallError> {
    if target::unwinding() {
        return Err(CallError::Cancelled);
    }
    if target::cancelled() || packet::current().knows_cancelled(target::params().launch) {
        target::exit_lane();
    }
    Ok(())
}
