//! Raw channels: kernels stream bytes to the host, in pages of memory that was allocated before.
//! [`hostcall_abi::raw`] has the layouts; ARCHITECTURE.md ("Raw channels") the rules.
//!
//! [`Writer`] is what a wave does, [`Collector`] what the host does. The host hands pages out by a ring of free pages; a wave
//! takes the next one, fills it, says now and then how far it is, and closes it; the host reads what it was
//! told of, and puts the page back into the ring. With staged pages, what waves write lies in memory of the device, and
//! [`Copies`] says what a copy engine brings to the host's pages before readers get it.
//!
//! # Invariants
//! - **RAW-STATE**: a [`RawState`] is accessed only by lanes of the wave that holds the home slot, of which one at a time acts
//!   on it: a whole wave excludes its parts, and parts have the state's lock. The host looks at its words when the slot's
//!   launch has ended. The state behind those of the home slots is nobody's: waves of kernels that other compilers made
//!   (`crates/c/include/hostcall_device.h` is what these do) count in it what they dropped, by atomic additions.
//! - **RAW-PAGE**: the wave that took a page stores to it and its header until it has closed it; the host puts a page into the
//!   ring once it was closed, or its launch has ended, and nobody reads it. All accesses are atomic, so that a device which
//!   breaks this makes garbage of bytes and of nothing else.
//! - **RAW-COPY**: a copy of a staged page's bytes is asked for after the host saw the place that covers them, with acquire
//!   order, or the end of the launch that wrote them; and readers get them after the host saw the copy's end. Each page that
//!   a copy touches has a chunk that waits for it, so that the page is in no ring meanwhile. What a copy brings beyond its
//!   chunks is either bytes that the page has already, or bytes behind the page's last chunk, which no reader has.

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod copies;
mod device;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod host;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use copies::{Copies, Run};
#[cfg(not(loom))]
pub(crate) use device::close_all;
pub use device::{Opening, RawRing, RawState, Writer};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use host::{Chunk, Collector, Counts, News, RawRegion};

/// Has the processor fetch the line of a word that is read soon. Any address will do.
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub fn prefetch(word: *const core::sync::atomic::AtomicU64) {
    crate::primitive::prefetch(word);
}
