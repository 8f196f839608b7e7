//! Memory of the device, from the host: what `alloc`'s types take on GPUs.
//!
//! With the feature `alloc` this crate is the global allocator of GPU programs. On the software device
//! `alloc`'s types use the process's own allocator, which costs no call.

use crate::services::Heap;
use core::alloc::Layout;
use core::sync::atomic::{Ordering, fence};
use hostcall_abi::CallError;

/// Returns new memory for a value of this layout, of any content; null when the host has none.
///
/// The memory lives until a lane frees it or the device is closed, also past the launch's end: a `static` may hold it.
/// Launches that panic or are cancelled do not free what their lanes held; the host's limit bounds what they leave.
#[inline(never)] // a call's code at every allocation would be long
pub fn alloc(layout: Layout) -> *mut u8 {
    let address = Heap::allocate(layout.size() as u64, layout.align() as u64).unwrap_or(0);
    // Pairs with the fence of the lane that freed this memory before.
    fence(Ordering::Acquire);
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// Frees memory that [`alloc()`] gave.
///
/// # Errors
/// [`CallError::Failed`] with [`crate::services::NOT_ALLOCATED`] when the memory is none, or was freed before;
/// the call's status.
///
/// # Safety
/// No lane uses the memory any more.
#[inline(never)] // as `alloc`
pub unsafe fn dealloc(memory: *mut u8) -> Result<(), CallError> {
    fence(Ordering::Release);
    // SAFETY: the caller's promise.
    unsafe { Heap::free(memory.addr() as u64) }
}

#[cfg(all(
    feature = "alloc",
    not(feature = "rust-std"),
    any(target_arch = "nvptx64", target_arch = "amdgpu")
))]
mod global {
    use super::*;
    use core::alloc::GlobalAlloc;

    struct HostHeap;

    #[global_allocator]
    static GLOBAL: HostHeap = HostHeap;

    // SAFETY: the host gives each allocation memory that no other one has, of the layout's size and alignment,
    // until it is freed.
    unsafe impl GlobalAlloc for HostHeap {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            alloc(layout)
        }

        #[inline(never)] // as `alloc`
        unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
            fence(Ordering::Release);
            // A post, since nobody could be told of a failure.
            // SAFETY: the caller's promise.
            let _ = unsafe { Heap::post_free(memory.addr() as u64) };
        }
    }
}
