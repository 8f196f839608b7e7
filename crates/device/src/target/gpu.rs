//! What NVIDIA and AMD share: entering a kernel, and panics.

use super::{
    Here, block_count, block_index, exit_lane, here, load_state, save_state, set_params, workgroup_barrier,
};
use crate::lane::Lane;
use hostcall_abi::launch::LaunchParams;

/// Runs a kernel's body on one lane, for each workgroup of the grid that falls to this physical one. For the
/// entries that `#[kernel]` makes.
///
/// # Safety
/// Called once by every lane of a kernel, with the kernel's own first parameter.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn enter_gpu(params: LaunchParams, body: impl Fn(&Lane)) {
    set_params(&params);
    run(params.workgroups, body);
}

/// A function of its own, because the one that writes the parameters may not read them.
#[inline(never)]
fn run([x, y, z]: [u32; 3], body: impl Fn(&Lane)) {
    let total = u64::from(x) * u64::from(y) * u64::from(z);
    let mut workgroup = block_index();
    load_state();
    loop {
        crate::packet::current(here()).set_workgroup(workgroup);
        body(&Lane::new());
        workgroup += block_count();
        if workgroup >= total {
            return save_state();
        }
        // Workgroup memory, and the barrier itself, are used again.
        workgroup_barrier();
    }
}

/// Time between two looks of a pausing lane at whether its launch was cancelled, in ns: each is a read over the link.
const LOOK_NS: u64 = 1 << 14;

/// Ends a lane that has paused since `before` if its launch was cancelled. The clock says when to look, because a lane
/// has no place to count in.
#[inline(always)]
pub(super) fn end_if_cancelled(here: Here, before: u64) {
    // Not all waves at the same moment.
    let phase = u64::from(here.slot()) << 8;
    if (before + phase) / LOOK_NS != (here.clock_ns() + phase) / LOOK_NS {
        look(here);
    }
}

#[cold]
#[inline(never)]
fn look(here: Here) {
    let region = crate::packet::region(here);
    if region.stopped() || region.cancelled(here.params().launch) {
        exit_lane();
    }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let (file, line, column) =
        info.location().map_or(("?", 0, 0), |place| (place.file(), place.line(), place.column()));
    #[cfg(feature = "panic-text")]
    {
        let mut text = crate::panics::Text::new();
        let _ = core::fmt::write(&mut text, format_args!("{}", info.message()));
        crate::panics::report(text.as_str(), file, line, column);
    }
    #[cfg(not(feature = "panic-text"))]
    crate::panics::report(
        info.message().as_str().unwrap_or("a panic whose message needs the feature panic-text"),
        file,
        line,
        column,
    );
    exit_lane()
}

/// What LLVM calls to compare slices. No library is linked to a device program, so this crate has it.
///
/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    for i in 0..len {
        // SAFETY: the caller promises `len` readable bytes at both.
        let (a, b) = unsafe { (a.add(i).read(), b.add(i).read()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}
