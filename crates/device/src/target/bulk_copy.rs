//! Bulk copies (`cp.async.bulk`, from sm_90 on): one lane asks for many bytes of the host's memory at a time. They come through
//! shared memory of the wave's own, in stages: while one is copied on, the next ones are on their way.

use core::arch::{asm, global_asm};

/// Shared memory that the stages of a workgroup's waves take.
const STAGING_BYTES: u32 = 8192;

/// Stages of a wave. Three are on their way while the fourth is copied on.
const STAGES: u32 = 4;

/// Waves among which the staging is shared out; those of larger workgroups have none. A stage has 256 bytes at least: with
/// shorter ones, one wave's bytes come slower than by the host's copies.
const MOST_WAVES: u32 = 8;

/// Bytes that a copy moves are a multiple of this, and so are the addresses.
const UNIT: u32 = 16;

// The stages, and behind them eight bytes for each, an `mbarrier`, which tells how many of its bytes are there. A kernel has this
// memory if it can come to what names it.
global_asm!(
    ".shared .align 128 .b8 hostcall_staging[{bytes}];",
    bytes = const STAGING_BYTES + MOST_WAVES * STAGES * 8,
);

/// Where in shared memory the stages begin.
#[inline(always)]
fn staging() -> u32 {
    let start;
    // SAFETY: takes an address, touches nothing.
    unsafe {
        asm!("mov.u32 {start}, hostcall_staging;", start = out(reg32) start,
            options(pure, nomem, nostack, preserves_flags));
    }
    start
}

/// Whether the lane can have bytes copied from the host's memory.
#[inline(always)]
pub(crate) fn can_pull() -> bool {
    super::here().lanes_in_workgroup() <= 32 * MOST_WAVES
}

/// Copies bytes of a stage to the lane's memory, of any kind and alignment, as the lane's own loads and stores.
///
/// # Safety
/// So many bytes are there in shared memory at `place`, and they are the caller's at `to`.
unsafe fn take_stage(place: u32, to: *mut u8, bytes: u32) {
    let load = |place: u32| {
        let word: u64;
        // SAFETY: the caller's promise: a stage has whole words, and one byte of the word at least is among the bytes.
        unsafe {
            asm!("ld.shared.b64 {word}, [{place}];", word = out(reg64) word, place = in(reg32) place, options(nostack));
        }
        word
    };
    let (first, shift) = (place / 8 * 8, place % 8 * 8);
    let is_aligned = to.addr().is_multiple_of(8);
    for at in (0..bytes).step_by(8) {
        let mut word = load(first + at) >> shift;
        if (bytes - at).min(8) * 8 > 64 - shift {
            word |= load(first + at + 8) << (64 - shift);
        }
        let to = to.wrapping_add(at as usize);
        if is_aligned && bytes - at >= 8 {
            // SAFETY: the caller's promise, and it is aligned.
            unsafe { to.cast::<u64>().write(word) };
        } else {
            for i in 0..(bytes - at).min(8) {
                // SAFETY: the caller's promise.
                unsafe { to.wrapping_add(i as usize).write((word >> (8 * i)) as u8) };
            }
        }
    }
}

/// Copies the first bytes of `to` from the host's memory at `from`, at most a GiB. Returns how many. Those for the GPU's memory
/// go there without the lane if both places are multiples of 16.
///
/// # Safety
/// [`can_pull`] holds. So many bytes lie at `from`, and the rest of the first and of the last 16 can be read. The lane's group
/// holds the wave's home slot, and no other lane of it is in here.
#[inline(never)]
pub(crate) unsafe fn pull(from: u64, to: &mut [u8]) -> usize {
    let bytes = to.len().min(1 << 30) as u32;
    // Whole units are asked for: the first one has so many bytes before the first that is wanted.
    let skip = (from % u64::from(UNIT)) as u32;
    let (from, end) = (from - u64::from(skip), skip + bytes);
    let is_direct =
        skip == 0 && super::is_global(to.as_ptr()) && to.as_ptr().addr().is_multiple_of(UNIT as usize);
    let target = to.as_mut_ptr();
    let to = target.expose_provenance() as u64;
    let here = super::here();
    let (wave, start) = (here.wave_in_workgroup(), staging());
    let stage_bytes = STAGING_BYTES / STAGES / here.lanes_in_workgroup().div_ceil(32) / 16 * 16;
    let stages = start + wave * STAGES * stage_bytes;
    let arrivals = start + STAGING_BYTES + wave * STAGES * 8;
    let chunks = end.div_ceil(stage_bytes);
    // Place in shared memory, arrival, begin and length of a chunk.
    let chunk_of = |chunk: u32| {
        let (stage, at) = (chunk % STAGES, chunk * stage_bytes);
        (stages + stage * stage_bytes, arrivals + stage * 8, at, stage_bytes.min(end - at))
    };
    let ask = |chunk: u32| {
        let (place, arrival, at, len) = chunk_of(chunk);
        let len = len.next_multiple_of(UNIT);
        // SAFETY: the bytes at `from` are there, as the caller says; the stage is the wave's, in which this lane is alone, and
        // what was in it before has been copied on.
        unsafe {
            asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{arrival}], {len};",
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{place}], [{from}], {len}, [{arrival}];",
                arrival = in(reg32) arrival, place = in(reg32) place, from = in(reg64) from + u64::from(at),
                len = in(reg32) len, options(nostack));
        }
    };
    let each_arrival = || (0..STAGES).map(|stage| arrivals + stage * 8);
    for arrival in each_arrival() {
        // SAFETY: the wave's own shared memory, which nobody uses.
        unsafe {
            asm!("mbarrier.init.shared::cta.b64 [{arrival}], 1;", arrival = in(reg32) arrival, options(nostack))
        };
    }
    // SAFETY: orders what came before with what the copies access.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", "fence.proxy.async;", options(nostack)) };
    (0..chunks.min(STAGES)).for_each(ask);
    for chunk in 0..chunks {
        let (place, arrival, at, len) = chunk_of(chunk);
        let mut is_there = 0u32;
        while is_there == 0 {
            // SAFETY: looks at an arrival that was made above.
            unsafe {
                asm!("{{ .reg .pred %is_there; mbarrier.try_wait.parity.shared::cta.b64 %is_there, [{arrival}], {turn};",
                    "selp.u32 {is_there}, 1, 0, %is_there; }}", arrival = in(reg32) arrival,
                    turn = in(reg32) chunk / STAGES & 1, is_there = out(reg32) is_there, options(nostack));
            }
        }
        let direct = if is_direct { len / UNIT * UNIT } else { 0 };
        if direct > 0 {
            // SAFETY: the stage's bytes are there, and those of `to` are the caller's.
            unsafe {
                asm!("cp.async.bulk.global.shared::cta.bulk_group [{to}], [{place}], {len};", "cp.async.bulk.commit_group;",
                    to = in(reg64) to + u64::from(at), place = in(reg32) place, len = in(reg32) direct, options(nostack));
            }
        }
        // Where the lane's own part begins: one of the two is 0.
        let done = if chunk == 0 { skip + direct } else { direct };
        if done < len {
            // SAFETY: as above.
            unsafe { take_stage(place + done, target.wrapping_add((at + done - skip) as usize), len - done) };
        }
        if chunk > 0 && chunk - 1 + STAGES < chunks {
            // SAFETY: waits until all stages but this one have been read, by copies and by the lane.
            unsafe {
                asm!("cp.async.bulk.wait_group.read 1;", "fence.proxy.async.shared::cta;", options(nostack));
            }
            ask(chunk - 1 + STAGES);
        }
    }
    // SAFETY: waits until all bytes are where they belong. The fence empties the first-level cache, past which they went there.
    unsafe {
        asm!("cp.async.bulk.wait_group 0;", "fence.proxy.async;", "fence.acq_rel.gpu;", options(nostack))
    };
    for arrival in each_arrival() {
        // SAFETY: it was made above, and nothing is on its way.
        unsafe {
            asm!("mbarrier.inval.shared::cta.b64 [{arrival}];", arrival = in(reg32) arrival, options(nostack))
        };
    }
    bytes as usize
}
