/// Returns the same address, of which the compiler does not know where it comes from.
#[cfg(all(hostcall_std, target_arch = "nvptx64"))]
#[inline(always)]
fn hidden<T>(mut address: *mut T) -> *mut T {
    // SAFETY: nothing is executed but a comment.
    unsafe {
        crate::arch::asm!("// {}", inout(reg64) address, options(pure, nomem, nostack, preserves_flags));
    }
    address
}
