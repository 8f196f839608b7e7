//! Accesses of the software device's memory, which is the process's own ([`HostMemory`](hostcall_seam::HostMemory)).

use hostcall_seam::{BackendError, DeviceAddress};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Returns the pointer to memory of the device.
pub(crate) fn pointer(address: DeviceAddress) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.get() as usize)
}

macro_rules! by_width {
    ($width:expr, $atomic:ident => $body:expr) => {
        match $width {
            1 => {
                type $atomic = AtomicU8;
                $body
            }
            2 => {
                type $atomic = AtomicU16;
                $body
            }
            4 => {
                type $atomic = AtomicU32;
                $body
            }
            8 => {
                type $atomic = AtomicU64;
                $body
            }
            width => {
                return Err(BackendError::Refused(format!("numbers have 1, 2, 4 or 8 bytes, not {width}")));
            }
        }
    };
}

/// Stores numbers of `width` bytes, each by an atomic store.
///
/// # Safety
/// As for [`hostcall_seam::Backend::store_words`].
pub(crate) unsafe fn store(to: DeviceAddress, bytes: &[u8], width: usize) -> Result<(), BackendError> {
    by_width!(width, Atomic => for (index, number) in bytes.chunks_exact(width).enumerate() {
        // SAFETY: the caller vouches for `bytes.len()` bytes at `to`, a multiple of `width`, accessed atomically.
        let cell = unsafe { Atomic::from_ptr(pointer(to).add(index * width).cast()) };
        cell.store(number_of(number), Ordering::Relaxed);
    });
    Ok(())
}

/// Loads numbers of `width` bytes, each by an atomic load.
///
/// # Safety
/// As for [`hostcall_seam::Backend::load_words`].
pub(crate) unsafe fn load(from: DeviceAddress, bytes: &mut [u8], width: usize) -> Result<(), BackendError> {
    by_width!(width, Atomic => for (index, number) in bytes.chunks_exact_mut(width).enumerate() {
        // SAFETY: as in `store`.
        let cell = unsafe { Atomic::from_ptr(pointer(from).add(index * width).cast()) };
        number.copy_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
    });
    Ok(())
}

/// Copies words of 8 bytes, each by an atomic load and an atomic store.
///
/// # Safety
/// As for [`hostcall_seam::Queue::read_words`].
pub(crate) unsafe fn copy_words(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes / 8 * 8).step_by(8) {
        // SAFETY: the caller vouches for `bytes` bytes on both sides, multiples of 8, accessed atomically.
        let (to, from) = unsafe {
            (AtomicU64::from_ptr(to.add(at).cast()), AtomicU64::from_ptr(from.add(at).cast_mut().cast()))
        };
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The number whose bytes these are, as the width that is asked for.
fn number_of<N: TryFrom<u64>>(bytes: &[u8]) -> N {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    N::try_from(u64::from_le_bytes(word)).unwrap_or_else(|_| unreachable!("as many bytes as the number has"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_seam::{HostMemory, Memory};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// A store of one number leaves its neighbours alone, while another thread writes them (S6).
    #[test]
    fn a_number_is_written_without_its_neighbour() {
        let memory = Arc::new(HostMemory::new(8).unwrap());
        let done = Arc::new(AtomicBool::new(false));
        let rounds = if cfg!(miri) { 50 } else { 200_000 };
        let neighbour = {
            let (memory, done) = (memory.clone(), done.clone());
            std::thread::spawn(move || {
                let at = Memory::address(&*memory).offset(4);
                let mut lost = 0;
                for round in 1..=rounds {
                    let mut read = [0; 4];
                    // SAFETY: both threads access numbers of four bytes atomically.
                    unsafe {
                        store(at, &u32::to_le_bytes(round), 4).unwrap();
                        load(at, &mut read, 4).unwrap();
                    }
                    lost += u32::from(read != u32::to_le_bytes(round));
                }
                done.store(true, Ordering::Release);
                lost
            })
        };
        while !done.load(Ordering::Acquire) {
            // SAFETY: as above.
            unsafe { store(Memory::address(&*memory), &7u32.to_le_bytes(), 4) }.unwrap();
        }
        assert_eq!(neighbour.join().unwrap(), 0);
    }

    #[test]
    fn other_widths_are_refused() {
        let memory = HostMemory::new(16).unwrap();
        // SAFETY: the memory is this test's own.
        let refused = unsafe { store(Memory::address(&memory), &[0; 12], 3) };
        assert!(matches!(refused, Err(BackendError::Refused(_))));
    }
}
