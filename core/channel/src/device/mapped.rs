//! Files of the host that are mapped where the device reaches them (invariant MAPPED).

use crate::primitive::{AtomicU8, AtomicU64, Ordering};
use crate::region::Words;

/// Bytes of a word.
const WORD: u64 = 8;

/// Words from a line before `address` on, and which of them has its first byte.
///
/// # Safety
/// MAPPED, for `len` bytes from `address` on.
unsafe fn words_around(address: u64, len: usize) -> (Words<'static>, u32) {
    let line = address / 64 * 64;
    let count = (address - line + len as u64).div_ceil(WORD);
    // SAFETY: MAPPED: pages are mapped whole, so that the words and the line around the bytes are mapped too.
    (unsafe { Words::from_address(line, count as u32) }, ((address - line) / WORD) as u32)
}

/// Bytes up to the next whole word, at most `len`.
fn head(address: u64, len: usize) -> usize {
    (address.next_multiple_of(WORD) - address).min(len as u64) as usize
}

/// Loads the word at `address`, a multiple of 8.
///
/// # Safety
/// MAPPED: as for [`read_mapped`].
#[inline]
pub unsafe fn load_mapped(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    let word = unsafe { &*(address as usize as *const AtomicU64) };
    u64::from_le(word.load(Ordering::Relaxed))
}

/// Copies bytes from `address` on.
///
/// # Safety
/// MAPPED: the bytes lie in a file that the host has mapped for the lane's launch.
pub unsafe fn read_mapped(address: u64, bytes: &mut [u8]) {
    let mut address = address;
    // Less than `Words` can count.
    for bytes in bytes.chunks_mut(1 << 30) {
        let len = bytes.len();
        let (first, rest) = bytes.split_at_mut(head(address, len));
        // SAFETY: the caller's promise.
        let (words, mut at) = unsafe { words_around(address, len) };
        if !first.is_empty() {
            let word = words.word(at).load(Ordering::Relaxed).to_le_bytes();
            first.copy_from_slice(&word[(address % WORD) as usize..][..first.len()]);
            at += 1;
        }
        if !rest.is_empty() {
            words.read_bytes(at, rest);
        }
        address += len as u64;
    }
}

/// Copies bytes to `address` and after.
///
/// # Safety
/// MAPPED: as for [`read_mapped`], and the mapping is writable.
pub unsafe fn write_mapped(address: u64, bytes: &[u8]) {
    let mut at = address;
    for bytes in bytes.chunks(1 << 30) {
        let (first, rest) = bytes.split_at(head(at, bytes.len()));
        let (words, last) = rest.split_at(rest.len() / 8 * 8);
        // SAFETY: the caller's promise.
        unsafe {
            store_bytes(at, first);
            if !words.is_empty() {
                let (around, word) = words_around(at + first.len() as u64, words.len());
                around.write_bytes(word, words);
            }
            store_bytes(at + (first.len() + words.len()) as u64, last);
        }
        at += bytes.len() as u64;
    }
}

/// Stores less bytes than a word has: their neighbours may be others' to write.
///
/// # Safety
/// As for [`write_mapped`].
unsafe fn store_bytes(address: u64, bytes: &[u8]) {
    for (at, byte) in (address..).zip(bytes) {
        // SAFETY: MAPPED: the byte is mapped, and accessed by words and bytes that are loaded and stored
        // atomically.
        unsafe { &*(at as usize as *const AtomicU8) }.store(*byte, Ordering::Relaxed);
    }
}
