//! The two words that the launches of a stream share with the host.

use crate::primitive::{AtomicU64, Ordering};
#[cfg(target_arch = "nvptx64")]
use hostcall_abi::launch::{FOLLOWS_ONE_THAT_NEVER_STOPS, LIST_SKIPS_AT, LaunchParams};

/// Lets no launch of the stream from `sequence` on begin: the first of the two words at `address`, in memory of the device,
/// becomes the least that a lane asked for. The second is the host's, which no device swaps and so cannot lower in one step.
///
/// # Safety
/// `address` is that of the word of a stream ([`hostcall_abi::launch::LaunchParams::stop_at`]).
pub unsafe fn stop_from(address: u64, sequence: u64) {
    // SAFETY: the caller's promise; the word is accessed atomically, or read by one load.
    let word = unsafe { &*(address as usize as *const AtomicU64) };
    let mut least = word.load(Ordering::Relaxed);
    while sequence < least {
        match word.compare_exchange(least, sequence, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => least = now,
        }
    }
}

/// Whether launch `sequence` of the stream shall not begin, as lanes or the host say.
///
/// # Safety
/// As for [`stop_from`].
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn is_stopped(address: u64, sequence: u64) -> bool {
    // SAFETY: the caller's promise.
    let [lanes, host] = unsafe { &*(address as usize as *const [AtomicU64; 2]) };
    sequence >= lanes.load(Ordering::Relaxed).min(host.load(Ordering::Relaxed))
}

/// A launch as its waves find it when they begin.
#[cfg(target_arch = "nvptx64")]
#[derive(Clone, Copy)]
pub struct Begun {
    /// The launch's place in its stream.
    pub sequence: u64,
    /// What is added to the bits of the launch.
    pub launch: u32,
    /// Whether lanes or the host stopped the stream before the launch.
    pub is_stopped: bool,
    /// Whether launches of the list do nothing ([`hostcall_abi::launch::LIST_SKIPS_AT`]).
    pub is_skipped: bool,
}

/// Finds a launch's place, to which that of its list is added, and whether the launch shall end at once. Two loads at the same
/// time, which may come from the cache: a kernel waits for no more than one of them when it begins.
///
/// A kernel of a list may be on its multiprocessors before the one that it follows has ended, on GPUs that can (9.0 and later).
/// It waits here until that has ended and what it wrote is seen, and only then lets the next one come.
///
/// Where the list's address says that the one it follows never stops the stream ([`FOLLOWS_ONE_THAT_NEVER_STOPS`]), it lets the next one come at once, and loads before it
/// waits. All launches that may stop the stream have ended by then: whatever follows one of these lets nothing come before that
/// has ended. It is a branch of its own, because kernels that do nothing follow each other as fast as each gets to its loads: in
/// predicated code the assembler has the addresses read one after the other, and such a kernel takes 4 % longer.
///
/// # Safety
/// They are the parameters that the host gave the launch: their `stop_at` is as for [`stop_from`], and `list` is 0 or, but for
/// that bit, the address of two words that nobody writes while a launch of the list runs.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub unsafe fn begin_launch(params: &LaunchParams) -> Begun {
    // SAFETY: the caller's promise.
    let [lanes, host, sequence, launch] = unsafe { load_words(params) };
    Begun {
        sequence,
        launch: launch as u32,
        is_stopped: sequence >= lanes.min(host),
        is_skipped: launch >> (8 * (LIST_SKIPS_AT - 8)) != 0,
    }
}

/// Loads the words at `stop_at` and those at `list`, zeros where there is none, the launch's place added.
///
/// # Safety
/// As for [`begin_launch`].
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
#[inline(always)]
unsafe fn load_words(params: &LaunchParams) -> [u64; 4] {
    let without_bit: u64;
    // SAFETY: a subtraction. Were it the compiler's, the assembler would load the address once more behind the branch, and the load
    // of what lies there would come 35 cycles later.
    unsafe {
        core::arch::asm!("sub.u64 {to}, {list}, {bit};", to = out(reg64) without_bit, list = in(reg64) params.list,
            bit = const FOLLOWS_ONE_THAT_NEVER_STOPS, options(nomem, nostack));
    }
    let comes_early = without_bit & FOLLOWS_ONE_THAT_NEVER_STOPS == 0;
    // SAFETY: the caller's promise; a launch with the bit has a list.
    unsafe { if comes_early { load_early(params, without_bit) } else { load(params, params.list) } }
}

/// The same on GPUs where no kernel of a list comes before the one that it follows has ended.
///
/// # Safety
/// As for [`begin_launch`].
#[cfg(all(target_arch = "nvptx64", not(target_feature = "sm_90")))]
#[inline(always)]
unsafe fn load_words(params: &LaunchParams) -> [u64; 4] {
    // SAFETY: the caller's promise.
    unsafe { load(params, params.list & !FOLLOWS_ONE_THAT_NEVER_STOPS) }
}

/// Loads the words at `stop_at` and those at `list`, the launch's place added, and waits then. The loads go past this
/// multiprocessor's cache, which may have kept what was there before.
///
/// # Safety
/// As for [`begin_launch`]; the launch has a list, and `list` is its address without its bit.
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
#[inline(always)]
unsafe fn load_early(params: &LaunchParams, list: u64) -> [u64; 4] {
    let (lanes, host, sequence, launch): (u64, u64, u64, u64);
    // SAFETY: the caller's promise. Each word of a load of two, aligned, is whole on this machine.
    unsafe {
        core::arch::asm!("griddepcontrol.launch_dependents;",
            "ld.relaxed.gpu.global.v2.b64 {{{sequence}, {launch}}}, [{list}];",
            "ld.relaxed.gpu.global.v2.b64 {{{lanes}, {host}}}, [{stop_at}];",
            "add.u64 {sequence}, {sequence}, {own};",
            "griddepcontrol.wait;",
            stop_at = in(reg64) params.stop_at, list = in(reg64) list, own = in(reg64) params.sequence,
            lanes = out(reg64) lanes, host = out(reg64) host, sequence = out(reg64) sequence, launch = out(reg64) launch, options(nostack));
    }
    [lanes, host, sequence, launch]
}

/// Waits, if the launch has a list, and loads what [`load_words`] does.
///
/// # Safety
/// As for [`begin_launch`]; `list` is the launch's, without its bit.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
unsafe fn load(params: &LaunchParams, list: u64) -> [u64; 4] {
    let (lanes, host, sequence, launch): (u64, u64, u64, u64);
    // Not without a list: an empty workgroup would take a quarter longer.
    macro_rules! load {
        ($($follow:literal)*) => {
            // SAFETY: the caller's promise. Each word of a plain load of two, aligned, is whole on this machine.
            unsafe {
                core::arch::asm!("{{ .reg .pred %hostcall_listed; setp.ne.u64 %hostcall_listed, {list}, 0;",
                    "mov.u64 {sequence}, 0; mov.u64 {launch}, 0;",
                    $(concat!("@%hostcall_listed ", $follow, ";"),)*
                    "@%hostcall_listed ld.global.v2.b64 {{{sequence}, {launch}}}, [{list}];",
                    "ld.global.v2.b64 {{{lanes}, {host}}}, [{stop_at}];",
                    "add.u64 {sequence}, {sequence}, {own}; }}",
                    stop_at = in(reg64) params.stop_at, list = in(reg64) list, own = in(reg64) params.sequence,
                    lanes = out(reg64) lanes, host = out(reg64) host, sequence = out(reg64) sequence, launch = out(reg64) launch, options(nostack));
            }
        };
    }
    #[cfg(target_feature = "sm_90")]
    load!("griddepcontrol.wait" "griddepcontrol.launch_dependents");
    #[cfg(not(target_feature = "sm_90"))]
    load!();
    [lanes, host, sequence, launch]
}

/// Tells the host that launch `sequence` of the stream was not begun: the first of the two words is no more than the sequence
/// before it, as if the lanes of that launch had stopped the stream, which they may have.
///
/// # Safety
/// As for [`stop_from`].
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub unsafe fn note_skipped(address: u64, sequence: u64) {
    // SAFETY: the caller's promise. One instruction, so that a kernel that does nothing stays small.
    unsafe {
        core::arch::asm!("red.relaxed.gpu.global.min.u64 [{address}], {sequence};",
            address = in(reg64) address, sequence = in(reg64) sequence - 1, options(nostack));
    }
}

/// Tells the host that launch `sequence` of the stream posts: a store to the word at `address`, in the host's memory.
///
/// # Safety
/// `address` is that of the word of a stream ([`hostcall_abi::launch::LaunchParams::last_post`]).
#[inline]
pub unsafe fn note_posts(address: u64, sequence: u64) {
    // SAFETY: the caller's promise; the word is accessed atomically.
    unsafe { &*(address as usize as *const AtomicU64) }.store(sequence, Ordering::Relaxed);
}
