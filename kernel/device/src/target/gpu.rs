//! What NVIDIA and AMD share: entering a kernel, and panics.

use super::{Here, Params, begin_wave, exit_lane, has_points, has_posts, has_record, here};
use crate::group::Group;
use crate::lane::Lane;
use hostcall_abi::launch::LaunchParams;

/// Runs a kernel's body on one lane. For the entries that `#[kernel]` makes.
///
/// # Safety
/// Called once by every lane of a kernel, with the kernel's own first parameter.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn enter_gpu(params: &LaunchParams, body: impl Fn(&Lane)) {
    // SAFETY: these are the kernel's own parameters, and all of its lanes come here.
    if unsafe { begin_wave(params) } {
        return;
    }
    body(&Lane::new(Params::of_wave()));
    end_lanes(has_posts());
}

/// Ends the lanes that come here together. Of a wave that has no slot this is all, and what all of a wave that ends together need
/// is here, not in a function: its instructions would be fetched from memory, which takes as long as all that they do.
/// `may_post`: each waits for the copies that it may have begun when it posted.
#[inline(always)]
pub(super) fn end_lanes(may_post: bool) {
    if !has_record() {
        return;
    }
    let here = here();
    if has_points() {
        // Of the switch: nothing arrives when another workgroup has the memory.
        hostcall_channel::device::wait_for_copies();
    }
    let lanes = here.converge(0);
    let are_all = if lanes == here.full() {
        here.sync(here.full());
        true
    } else {
        here.sync(lanes);
        lanes == here.wave_lanes()
    };
    let slot = here.slot();
    if are_all && slot.is_none() {
        return;
    }
    if may_post {
        hostcall_channel::device::wait_for_copies();
    }
    match slot {
        Some(slot) if are_all && here.lane_index() == 0 => {
            if !crate::packet::release_known(here, here.record_anew(), slot) {
                end_all();
            }
        }
        Some(_) if are_all => {}
        _ => end_part(),
    }
}

/// Ends all lanes of a wave, which one of them notes.
#[cold]
#[inline(never)]
fn end_all() {
    crate::packet::note_end(here(), here().wave_lanes());
    // The registers that this function saved need not come back.
    #[cfg(target_arch = "nvptx64")]
    super::exit();
}

/// Ends the lanes that come here together, whichever of the wave's they are.
#[cold]
#[inline(never)]
fn end_part() {
    crate::packet::end_lanes(Group::converge(0));
    // As in `end_all`.
    #[cfg(target_arch = "nvptx64")]
    super::exit();
}

/// Pauses until so many nanoseconds have passed.
pub(crate) fn sleep(duration_ns: u64) {
    let start_ns = here().clock_ns();
    while here().clock_ns().saturating_sub(start_ns) < duration_ns {
        here().pause();
    }
}

/// Time between two looks of a pausing lane at whether its launch was cancelled, in ns.
const LOOK_NS: u64 = 1 << 14;

/// Ends a lane that has paused since `before` if its launch was cancelled. The clock says when to look, because a lane
/// has no place to count in.
#[inline(always)]
pub(super) fn end_if_cancelled(here: Here, before: u64) {
    // Not all waves at the same moment.
    let phase = u64::from(here.hardware_place()) << 8;
    if (before + phase) / LOOK_NS != (here.clock_ns() + phase) / LOOK_NS {
        look(here);
    }
}

#[cold]
#[inline(never)]
fn look(here: Here) {
    if crate::packet::is_over(here) {
        exit_lane();
    }
}

#[cfg(not(any(test, feature = "rust-std")))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    #[cfg(all(target_arch = "nvptx64", hostcall_unformatted))]
    if !super::formats_panics() && crate::panics::unformatted::report(info) {
        crate::packet::end_panicked(here());
        exit_lane()
    }
    report_formatted(info);
    exit_lane()
}

/// Formats a panic's message and sends it. On NVIDIA a function of its own: its room for the text is stack of those alone that do.
#[cfg(not(any(test, feature = "rust-std")))]
#[cfg_attr(target_arch = "nvptx64", inline(never))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(always))]
fn report_formatted(info: &core::panic::PanicInfo<'_>) {
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

/// Bytes of a reply from which a lane lends its memory for it.
pub(crate) const LEAST_REPLY_TO_LEND: usize = hostcall_abi::word::LEAST_REPLY_TO_PUT;

/// Memory that a lane lends to the host until it is answered.
pub(crate) struct Lent(u64);

impl Lent {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// Lends a message's bytes.
    #[inline(always)]
    pub fn message(bytes: &[u8]) -> Self {
        let start = bytes.as_ptr();
        Self(if super::is_global(start) { start.expose_provenance() as u64 } else { 0 })
    }

    /// Lends the room for a reply.
    #[inline(always)]
    pub fn room(bytes: &mut [u8]) -> Self {
        let start = bytes.as_mut_ptr();
        Self(if super::is_global(start) { start.expose_provenance() as u64 } else { 0 })
    }

    /// Where the host finds it; 0 if it does not.
    #[inline(always)]
    pub fn address(&self) -> u64 {
        self.0
    }
}
