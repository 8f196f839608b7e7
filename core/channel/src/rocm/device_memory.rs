//! Memory of a device that kernels ask the host for.

/// Memory of a device, which kernels allocate through the host.
///
/// # Safety
/// Promises of each address other than 0 that [`DeviceMemory::allocate`] returns, until
/// [`DeviceMemory::free`] of it or the end of the value: it is a multiple of the alignment; from there on
/// every device whose kernels ask for it has as many bytes that they may read and write, or nothing, so that
/// they fault; and nobody else uses these bytes. `free` frees nothing but what `allocate` returned.
pub unsafe trait DeviceMemory: Send + Sync + 'static {
    /// Allocates `bytes` bytes, aligned to `align`, which all kernels of the device reach. Returns their
    /// address, 0 when there are none.
    fn allocate(&self, bytes: u64, align: u64) -> u64;

    /// Frees what was allocated. Returns `false` for an address that was not, which comes from a device and
    /// may be anything.
    fn free(&self, address: u64) -> bool;
}
