//! The atomics, once: `core`'s, or loom's for the model checker.
//!
//! On NVIDIA, `core`'s relaxed loads and stores become `ld.relaxed.sys` and `st.relaxed.sys`: posted writes
//! and reads that the link keeps coherent. Read-modify-writes other than compare-exchange lose their order
//! there: those that are used are assembly.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod host_lines;
mod in_wave;
mod on_device;
mod owned;
mod pair;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
pub(crate) use host_lines::copy_shared;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub(crate) use host_lines::{Line, are_equal, low_bits, signs};
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
pub(crate) use host_lines::{prefetch, prefetch_for_write};
pub(crate) use in_wave::{
    acquire_in_wave, add_in_wave, cas_in_wave, load_in_wave, or_in_wave, release_in_wave, store_in_wave,
};
pub(crate) use on_device::{add_on_device, cas_on_device, fence_on_device, put_word, take_word};
pub use owned::Owned;
pub(crate) use owned::{
    OwnedFour, OwnedWord, load_four, load_four_in_wave, load_places, load_two, load_two_in_wave, store_four,
    store_four_in_wave, store_places_in_wave,
};
#[cfg(target_arch = "nvptx64")]
pub(crate) use owned::{load_four_shared, shared_address};
pub(crate) use pair::{acquire_pair, end_acquire, load_pair, store_pair};

/// Between two looks at a word that is about to change.
#[inline(always)]
pub(crate) fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}
