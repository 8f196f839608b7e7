//! Calls whose message or reply is longer than a line: through the slot's byte area, or a large area that the
//! call borrows if one is free. Up to two argument words come in the line, behind the head (`BytesHead`).
//!
//! The lanes of a packet share the area. A message that does not fit a lane's share travels in pieces, of all
//! lanes that have more at once. Where the shares are tiny, lanes take turns, each with the whole area. The
//! consumer leaves a message that came whole where it is; the thread that handles the call copies it, under
//! the lock that keeps the lane from its answer.
//!
//! A reply of up to 16 bytes comes with the answer, and so does one result word: as much as a GPU's lane sees
//! in one look. What fits goes back through the area. A longer reply is a *loan*: host memory that the reply
//! line names and that each lane copies from without a further call (`hostcall_channel`, invariant LOAN; the
//! server's `engine/loans.rs`).
//!
//! # Lent memory
//! A lane of an NVIDIA GPU that loads words reads 0.03 GB/s of host memory, and a copy engine writes 50 into
//! the GPU's. So a lane whose buffer lies in global memory says where it is (`BytesHead::reply_at`, from 512
//! bytes on), and one whose message is a long slice leaves it there (`BytesHead::bytes_at`, from 4 KiB on):
//! it lends that memory until it has its answer. The host copies by `Backend::copy_to_lane` and
//! `copy_from_lane`, and checks before that the driver knows the memory at both ends. The copy is made under
//! the lock that answers the lane, so a deadline or a cancellation comes before or after it. On the software
//! device lanes lend by number (`backends/cpu/src/lent.rs`).
//!
//! # Fences
//! These are the only calls with fences: release before the doorbell, where the lane wrote to the area or
//! lends memory; acquire after a reply that lies elsewhere, and release once that was read, unless a bulk
//! copy brought up to 512 bytes of it. A fence empties a GPU's first-level cache, and each value on the stack
//! takes hundreds of cycles to read afterwards. So a message of one packet, as most are, goes through code
//! that is all in one function ([`ByteCall::run`]), where what follows the fence is in registers. A lone
//! lane's is a function of its own: what is computed for any number of lanes does not fit into registers.

mod byte_call;
mod message;

use crate::call::{CallOptions, enter, site};
use crate::group::Group;
use crate::packet::{self, Held};
use crate::target;
use byte_call::ByteCall;
use core::mem::MaybeUninit;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{Kind, MAX_TYPED_WORDS, bytes_result_words, check_of};
use message::Message;

/// Room for the most words of a call. All of it zeroed, or copied, would go byte by byte on a GPU.
struct Room([MaybeUninit<u64>; MAX_TYPED_WORDS]);

impl Room {
    #[inline(always)]
    fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; MAX_TYPED_WORDS])
    }

    /// The first `count` words, which are 0.
    #[inline(always)]
    fn zeroed(&mut self, count: usize) -> &mut [u64] {
        let words = &mut self.0[..count];
        for word in &mut *words {
            word.write(0);
        }
        // SAFETY: each was written.
        unsafe { words.assume_init_mut() }
    }
}

#[inline(always)]
pub(crate) fn call<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    make::<false, A, R>(method, options, arguments, input, output)
}

/// Does what [`call`] does, of methods that a lane calls hardly ever: all of them by the code for long messages.
#[inline(always)]
pub(crate) fn call_rare<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    make::<true, A, R>(method, options, arguments, input, output)
}

/// Makes a call, which is a rare one or not.
#[inline(always)]
fn make<const IS_RARE: bool, A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    const { assert!(A::WORDS <= MAX_TYPED_WORDS && R::WORDS <= MAX_TYPED_WORDS, "too many words for a call") };
    let mut room = Room::new();
    let words = room.zeroed(A::WORDS);
    arguments.to_words(words);
    let message = Message::new(words, input);
    let mut room = Room::new();
    let result = room.zeroed(R::WORDS);
    let (service, check, timeout_us) = (method.number(), check_of(method.schema()), options.timeout_us);
    let has_output = !output.is_empty();
    let call = Call { service, check, timeout_us, message, result: &mut *result, output };
    // No pointers to functions: what one may call, every kernel has that calls by any pointer.
    let filled = match (has_output, bytes_result_words(R::WORDS) == FEW) {
        (false, true) => call.choose::<IS_RARE, false, FEW>()?,
        (false, false) => call.choose::<IS_RARE, false, MANY>()?,
        (true, true) => call.choose::<IS_RARE, true, FEW>()?,
        (true, false) => call.choose::<IS_RARE, true, MANY>()?,
    };
    let result = R::from_words(result).ok_or(CallError::Malformed)?;
    Ok((result, filled))
}

/// [`bytes_result_words`] of methods with one word at most, and of others.
const FEW: usize = bytes_result_words(0);
const MANY: usize = bytes_result_words(MAX_TYPED_WORDS);

/// What is the same for all types of a call, so that a kernel has its code once; more often, if some of its calls have `output`
/// and others have none, or `ANSWER_WORDS` ([`bytes_result_words`]) differ. A kernel that takes no bytes has nothing of what that
/// needs: shared memory among others.
struct Call<'a> {
    service: u16,
    check: u32,
    timeout_us: u32,
    message: Message<'a>,
    result: &'a mut [u64],
    output: &'a mut [u8],
}

impl Call<'_> {
    /// Returns the bytes of `output` that were filled.
    #[inline(never)]
    fn run<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(mut self) -> Result<usize, CallError> {
        let here = target::here();
        enter(here)?;
        let site = self.site(HAS_OUTPUT);
        let together = here.converge(site);
        if target::LONE_LANES && together.is_power_of_two() {
            let group = Group::alone();
            return self.run_held::<HAS_OUTPUT, ANSWER_WORDS>(group, packet::hold_alone(group));
        }
        Group::meet_among(together, site, Err(CallError::Malformed), |group| {
            self.run_together::<HAS_OUTPUT, ANSWER_WORDS>(group)
        })
    }

    /// The call of a group. A function of its own: of what the group's lanes are, compilers compute all that they can before the
    /// loop over groups, which is more than a lane has registers for.
    #[inline(never)]
    fn run_together<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &mut self,
        group: Group,
    ) -> Result<usize, CallError> {
        self.run_held::<HAS_OUTPUT, ANSWER_WORDS>(group, packet::hold(group))
    }

    /// The call of a group that has a slot, which it gives back.
    #[inline(always)]
    fn run_held<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &mut self,
        group: Group,
        held: Held,
    ) -> Result<usize, CallError> {
        let call = ByteCall::new::<HAS_OUTPUT>(self, group, held);
        let filled = if group.all(call.fits_slot(group, self.output)) {
            call.run::<HAS_OUTPUT, ANSWER_WORDS>(group, self.result, self.output)
        } else {
            drop(call);
            // On NVIDIA one copy, whose answers have room for most result words. For AMD LLVM makes ten times the code of it.
            match cfg!(target_arch = "nvptx64") {
                true => self.run_large::<HAS_OUTPUT, MANY>(group, held.extra()),
                false => self.run_large::<HAS_OUTPUT, ANSWER_WORDS>(group, held.extra()),
            }
        };
        Self::end(group, held);
        filled
    }

    /// What the lanes have in common that make a call together: those with output and those without run code of their own.
    #[inline(always)]
    fn site(&self, has_output: bool) -> u64 {
        site(self.service, self.check, Kind::Bytes) | u64::from(has_output) << 24
    }

    /// Gives the slot back after a call.
    #[inline(always)]
    fn end(group: Group, held: Held) {
        packet::release(group, held);
        // The wave may have given up the slot's call before, whose bytes these may be.
        if held.glance.cancelled {
            target::exit_lane();
        }
    }

    /// Runs a call that is rare by the code for long messages. On NVIDIA one copy for all results, see [`Call::run_held`].
    #[inline(always)]
    fn choose<const IS_RARE: bool, const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        self,
    ) -> Result<usize, CallError> {
        match (IS_RARE, cfg!(target_arch = "nvptx64")) {
            (false, _) => self.run::<HAS_OUTPUT, ANSWER_WORDS>(),
            (true, true) => self.run_as_large::<HAS_OUTPUT, MANY>(),
            (true, false) => self.run_as_large::<HAS_OUTPUT, ANSWER_WORDS>(),
        }
    }

    /// [`Call::run`] by the code that is there for long messages, whatever the lengths.
    #[cold]
    #[inline(never)]
    fn run_as_large<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(mut self) -> Result<usize, CallError> {
        enter(target::here())?;
        Group::meet(self.site(HAS_OUTPUT), Err(CallError::Malformed), |group| {
            let held = packet::hold(group);
            let filled = self.run_large::<HAS_OUTPUT, ANSWER_WORDS>(group, held.extra());
            Self::end(group, held);
            filled
        })
    }

    /// The call where the slot's area has no room for some lane's message or reply. It makes everything anew that the caller has
    /// in registers: to be given it would take a copy in memory.
    #[cold]
    #[inline(never)]
    fn run_large<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &mut self,
        group: Group,
        extra: Option<u32>,
    ) -> Result<usize, CallError> {
        let mut call = ByteCall::new::<HAS_OUTPUT>(self, group, packet::held_by(group, extra));
        call.run_large::<HAS_OUTPUT, ANSWER_WORDS>(group, self.result, self.output)
    }
}
