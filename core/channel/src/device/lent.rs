//! Replies that lie in memory of the host which it lends to the lane.

use crate::primitive::{Ordering, fence};
use crate::region::Words;
use hostcall_abi::layout::LOAN_HEADER_BYTES;

/// Copies the first bytes of a reply out of a loan, and returns the loan. `pull` may copy the first of them its own way, from
/// the host's memory at an address that is a multiple of 64; it says how many, a multiple of 8. What it does comes before
/// what follows it, for the host too.
///
/// # Safety
/// LOAN: the lane's answer, which [`Slot::poll_reply_with_bytes`](super::Slot::poll_reply_with_bytes) has returned, told of this
/// address, and the lane has not returned it. The reply has at least `bytes.len()` bytes, less than 32 GiB.
pub unsafe fn take_lent(address: u64, bytes: &mut [u8], pull: impl FnOnce(u64, &mut [u8]) -> usize) {
    const HEADER_WORDS: u32 = (LOAN_HEADER_BYTES / 8) as u32;
    let count = HEADER_WORDS + bytes.len().div_ceil(8) as u32;
    // SAFETY: LOAN: so many words lie there until they are returned, and nobody writes them.
    let words = unsafe { Words::from_address(address, count) };
    let pulled = pull(address + LOAN_HEADER_BYTES as u64, bytes);
    if pulled < bytes.len() {
        words.read_bytes(HEADER_WORDS + (pulled / 8) as u32, &mut bytes[pulled..]);
        // The host writes the bytes anew once it sees what follows.
        fence(Ordering::Release);
    }
    words.word(0).store(1, Ordering::Relaxed);
}
