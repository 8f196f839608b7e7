use hostcall_abi::service::number;
use hostcall_macros::service;

/// Memory of the device, for kernels that do not know before how much they need.
#[service(number = number::HEAP, internal)]
pub trait Heap {
    /// Device address of `bytes` of new memory of any content, aligned to `align` (a power of two up to
    /// 65,536); 0 when there is no such memory left.
    fn allocate(bytes: u64, align: u64) -> u64;
    /// Frees memory. Fails with [`NOT_ALLOCATED`] when `address` is none that [`Heap::allocate`] gave, or was
    /// freed before.
    ///
    /// # Safety
    /// No lane may use the memory any more.
    unsafe fn free(address: u64);
}

/// The code by which [`Heap::free`] fails.
pub const NOT_ALLOCATED: i32 = 1;
