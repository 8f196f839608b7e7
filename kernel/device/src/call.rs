//! Calls: typed, each lane with its own arguments and its own answer.
//!
//! The lanes of a wave that call together share a packet. What `#[service]` makes of a trait ends here.

use crate::bulk;
use crate::group::Group;
use crate::lane::Lane;
use crate::packet::{self, Head, Held};
use crate::target::{self, Here, Mask};
use crate::{pending, post};
use hostcall_abi::MAX_WORDS;
use hostcall_abi::service::{Method, number};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{Kind, Line, check_of};

pub use crate::pending::Pending;

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

/// Refuses methods that are unsafe to call, and all of the services that come with hostcall: their handlers trust the modules
/// of this crate, some of whose functions are unsafe to call.
#[inline(always)]
const fn check(method: &Method) -> Result<(), CallError> {
    if method.is_unsafe() || method.number() < number::USER { Err(CallError::NoSuchService) } else { Ok(()) }
}

/// Calls `method` and waits for the result.
///
/// # Errors
/// The call's status. When the launch was cancelled, the first call of each wave to learn of it returns
/// [`CallError::Cancelled`], and every call after that, of whichever lane of the wave, ends its lane (on the
/// software device also the first one, if the device knows of the cancellation by then). As in all functions
/// of this module, [`CallError::NoSuchService`] for a method that is unsafe to call or of a service that comes
/// with hostcall.
#[inline]
pub fn call<A: Wire, R: Wire>(method: &Method, options: CallOptions, arguments: &A) -> Result<R, CallError> {
    check(method)?;
    call_any(method, options, arguments)
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
    check(method)?;
    bulk::call(method, options, arguments, input, output)
}

/// Calls `method` without waiting. When all of the channel's extra slots are taken, or the words are too many for a
/// line, the call is made as [`call`] makes it, so that this never waits for another pending call. `lane` is whoever calls:
/// the result is its own, and ends with its launch.
#[inline]
pub fn start<'launch, A: Wire, R: Wire>(
    lane: &'launch Lane,
    method: &Method,
    options: CallOptions,
    arguments: &A,
) -> Pending<'launch, R> {
    match check(method) {
        Ok(()) => pending::start(lane, method, options, arguments),
        Err(error) => Pending::done(Err(error)),
    }
}

/// Posts `arguments` to `method`, whose result, if any, nobody gets. Waits while the slot's ring is full; the host takes the
/// posts of a lane in order, and before the lane's next call. Arguments of more than
/// [`MAX_POST_WORDS`](hostcall_abi::word::MAX_POST_WORDS) words go as a call instead.
///
/// # Errors
/// [`CallError::Cancelled`] when the launch was cancelled; a call's status when it went as a call.
#[inline]
pub fn post<A: Wire>(method: &Method, arguments: &A) -> Result<(), CallError> {
    check(method)?;
    post::post(method, arguments)
}

/// Calls `method`, which may be of any service.
#[inline]
pub(crate) fn call_any<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
) -> Result<R, CallError> {
    if A::WORDS > MAX_WORDS || R::WORDS > MAX_WORDS {
        return bulk::call(method, options, arguments, &[], &mut []).map(|(result, _)| result);
    }
    let mut words = [0; MAX_WORDS];
    arguments.to_words(&mut words[..A::WORDS]);
    choose_arguments::<A, R>(head::<A, R>(method, options), words)
}

/// The call of lines of `A` argument and `R` result words, the same code for every method of these sizes: a copy
/// at each call makes GPU programs of megabytes. The sizes are constants, so that its loops are unrolled. Words are
/// parameters of their own, and status and first result word the value, because these travel in registers;
/// `others` gets the result words from the second on. `together` are the lanes that came to the call together: they are asked
/// for where the call is, because within this function a GPU may let lanes meet that came from different places, and those
/// would then call one after the other.
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "an array would travel in memory")]
fn exchange<const A: usize, const R: usize>(
    together: Mask,
    service: u16,
    check: u32,
    timeout_us: u32,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    g: u64,
    others: &mut [u64; MAX_WORDS],
) -> (u64, u64) {
    let (argument_words, result_words) = (A as u8, R as u8);
    let head = Head { service, check, kind: Kind::Words, argument_words, result_words, timeout_us };
    let mut request = Line { words: [a, b, c, d, e, f, g], tag: 0 };
    request.words[A..].fill(0);
    if target::LONE_LANES && together.is_power_of_two() {
        let group = Group::alone();
        return exchange_held::<R>(group, packet::hold_alone(group), head, request, others);
    }
    Group::meet_among(together, site(service, check, Kind::Words), (0, 0), |group| {
        exchange_held::<R>(group, packet::hold(group), head, request, others)
    })
}

/// The call of a group that has a slot.
#[inline(always)]
fn exchange_held<const R: usize>(
    group: Group,
    held: Held,
    head: Head,
    request: Line,
    others: &mut [u64; MAX_WORDS],
) -> (u64, u64) {
    let glance = held.glance;
    let reply = match held.extra() {
        None => packet::exchange(held.home_slot, glance, group, head, request),
        Some(extra) => {
            let mut line = request;
            packet::exchange_rarely(Some(extra), group, head, &mut line).map(|()| line)
        }
    };
    packet::release(group, held);
    match reply {
        // The wave may have given up the slot's call before, whose words these may be.
        _ if glance.cancelled => target::exit_lane(),
        Ok(reply) => {
            if R > 1 {
                others[1..R].copy_from_slice(&reply.words[1..R]);
            }
            (Status::Ok.to_bits(), reply.words[0])
        }
        Err(error) => (Status::Error(error).to_bits(), 0),
    }
}

/// Calls a method that a lane calls hardly ever, with so many of these words, and one word for a result or none. All such calls
/// share their code, which is not the fastest for any. The lane has called [`enter`], before the posts that the call is about: what
/// has begun goes on, also if another lane panics meanwhile.
#[cold]
#[inline(never)]
pub(crate) fn call_rarely(
    method: &Method,
    argument_words: u8,
    words: [u64; MAX_WORDS],
    result_words: u8,
) -> Result<u64, CallError> {
    let (service, check) = (method.number(), check_of(method.schema()));
    let head = Head { service, check, kind: Kind::Words, argument_words, result_words, timeout_us: 0 };
    let (status, word) = Group::meet(site(service, check, Kind::Words), (0, 0), |group| {
        let held = packet::hold(group);
        let mut line = Line { words, tag: 0 };
        let reply = packet::exchange_rarely(held.extra(), group, head, &mut line);
        packet::release(group, held);
        match reply {
            Ok(()) => (Status::Ok.to_bits(), line.words[0]),
            // As in `exchange_held`.
            Err(_) if held.glance.cancelled => target::exit_lane(),
            Err(error) => (Status::Error(error).to_bits(), 0),
        }
    });
    if status == Status::Ok.to_bits() { Ok(word) } else { Err(error_of(status)) }
}

/// Calls a method that a lane calls hardly ever, as [`call_rarely`] does, whatever its types.
#[inline(always)]
pub(crate) fn call_rare<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
) -> Result<R, CallError> {
    if A::WORDS > MAX_WORDS || R::WORDS > 1 || options.timeout_us > 0 {
        return call_any(method, options, arguments);
    }
    enter(target::here())?;
    let mut words = [0; MAX_WORDS];
    arguments.to_words(&mut words[..A::WORDS]);
    let word = call_rarely(method, A::WORDS as u8, words, R::WORDS as u8)?;
    // As in `exchange_held`.
    if packet::current(target::here()).is_cancelled() {
        target::exit_lane();
    }
    R::from_words(&[word][..R::WORDS]).ok_or(CallError::Malformed)
}

/// Chooses among the `exchange`s by constants, so that one is left of the choice.
#[inline(always)]
fn choose_arguments<A: Wire, R: Wire>(head: Head, words: [u64; MAX_WORDS]) -> Result<R, CallError> {
    match A::WORDS {
        0 => choose_results::<0, R>(head, words),
        1 => choose_results::<1, R>(head, words),
        2 => choose_results::<2, R>(head, words),
        3 => choose_results::<3, R>(head, words),
        4 => choose_results::<4, R>(head, words),
        5 => choose_results::<5, R>(head, words),
        6 => choose_results::<6, R>(head, words),
        _ => choose_results::<7, R>(head, words),
    }
}

#[inline(always)]
fn choose_results<const A: usize, R: Wire>(
    head: Head,
    [a, b, c, d, e, f, g]: [u64; MAX_WORDS],
) -> Result<R, CallError> {
    let Head { service, check, timeout_us, .. } = head;
    enter(target::here())?;
    let together = target::here().converge(site(service, check, Kind::Words));
    let mut results = [0; MAX_WORDS];
    macro_rules! exchange {
        ($r:literal) => {
            exchange::<A, $r>(together, service, check, timeout_us, a, b, c, d, e, f, g, &mut results)
        };
    }
    let (status, first) = match R::WORDS {
        0 => exchange!(0),
        1 => exchange!(1),
        2 => exchange!(2),
        3 => exchange!(3),
        4 => exchange!(4),
        5 => exchange!(5),
        6 => exchange!(6),
        _ => exchange!(7),
    };
    if status != Status::Ok.to_bits() {
        return Err(error_of(status));
    }
    results[0] = first;
    R::from_words(&results).ok_or(CallError::Malformed)
}

#[cold]
#[inline(never)]
fn error_of(status: u64) -> CallError {
    Status::from_bits(status).into_result().err().unwrap_or(CallError::Malformed)
}

/// Lanes that call the same method in the same way share a packet, wherever in the kernel they are.
#[inline(always)]
pub(crate) fn site(service: u16, check: u32, kind: Kind) -> u64 {
    u64::from(check) << 32 | u64::from(service) << 8 | kind as u64
}

#[inline(always)]
pub(crate) fn head<A: Wire, R: Wire>(method: &Method, options: CallOptions) -> Head {
    Head {
        service: method.number(),
        check: check_of(method.schema()),
        kind: Kind::Words,
        argument_words: A::WORDS as u8,
        result_words: R::WORDS as u8,
        timeout_us: options.timeout_us,
    }
}

/// Ends the lane if its launch is known to be cancelled; refuses while the lane unwinds from a panic.
#[inline(always)]
pub(crate) fn enter(here: Here) -> Result<(), CallError> {
    // With `std` nothing unwinds: a lane that panics runs the panic hook, which prints.
    if here.unwinding() && !cfg!(feature = "rust-std") {
        return Err(CallError::Cancelled);
    }
    if here.cancelled() {
        target::exit_lane();
    }
    Ok(())
}
