//! Bulk copies (`cp.async.bulk`, from sm_90 on): one lane asks for many bytes of the host's memory at a time.
//! They come through shared memory of the wave's own, in stages: while one is copied on, the next ones are on
//! their way. How much memory that is, the host says, which knows how many workgroups share a
//! multiprocessor's: a lane alone gets the more bytes a second the more of them are on their way.

use core::arch::asm;
use hostcall_abi::launch::{LEAST_STAGING_BYTES, STAGING_ALIGN, staging_bytes};

/// Most stages of a wave. All but one are on their way while that is copied on. Each has an `mbarrier` of eight bytes, which tells
/// how many of its bytes are there.
const MOST_STAGES: u32 = 8;

/// Least bytes of a stage.
const LEAST_STAGE_BYTES: u32 = 256;

/// Bytes that a copy moves are a multiple of this, and so are the addresses.
const UNIT: u32 = 16;

/// How many times the staging's bytes a lane copies sooner than the host: to that a copy takes 15 µs, of however few bytes, and
/// brings 50 bytes a ns then (H200, docs/history).
const TIMES_STAGED: u32 = 8;

const _: () = assert!(LEAST_STAGING_BYTES >= STAGING_ALIGN + 4 * LEAST_STAGE_BYTES);
const _: () = assert!(STAGING_ALIGN >= 8 * MOST_STAGES && LEAST_STAGE_BYTES.is_multiple_of(UNIT));

/// The shared memory through which the lane's wave copies: arrivals, and behind them the stages.
#[derive(Clone, Copy)]
pub(crate) struct Staging {
    arrivals: u32,
    /// Of all; 0 if there are none.
    bytes: u32,
}

impl Staging {
    pub const NONE: Self = Self { arrivals: 0, bytes: 0 };

    /// The wave's.
    #[inline(always)]
    pub fn of_wave() -> Self {
        let here = super::here();
        let waves = here.lanes_in_workgroup().div_ceil(32);
        let kernel = here.params().workgroup_memory_bytes;
        let (start, bytes) = staging_bytes(super::dynamic_shared_bytes(), waves, kernel);
        Self { arrivals: super::shared_start() + start + here.wave_in_workgroup() * bytes, bytes }
    }

    /// Most bytes of the host's memory that the lane copies sooner than the host does, while that copies for nobody else; 0 if
    /// it copies none.
    #[inline(always)]
    pub fn most(self) -> u32 {
        TIMES_STAGED * self.bytes
    }

    #[inline(always)]
    fn stages(self) -> Stages {
        let bytes = self.bytes - STAGING_ALIGN;
        let many = bytes / MOST_STAGES / STAGING_ALIGN * STAGING_ALIGN;
        let (stage_bytes, count) = match many > LEAST_STAGE_BYTES {
            true => (many, MOST_STAGES),
            false => (LEAST_STAGE_BYTES, (bytes / LEAST_STAGE_BYTES).min(MOST_STAGES)),
        };
        Stages { arrivals: self.arrivals, start: self.arrivals + STAGING_ALIGN, stage_bytes, count }
    }
}

/// How a [`Staging`]'s memory is used.
#[derive(Clone, Copy)]
struct Stages {
    arrivals: u32,
    start: u32,
    stage_bytes: u32,
    count: u32,
}

/// A chunk of what is copied: where it begins, its stage, and the parity of the stage's uses before.
#[derive(Clone, Copy)]
struct Chunk {
    at: u32,
    stage: u32,
    turn: u32,
}

impl Chunk {
    const FIRST: Self = Self { at: 0, stage: 0, turn: 0 };

    #[inline(always)]
    fn next(self, staging: Stages) -> Self {
        let at = self.at + staging.stage_bytes;
        match self.stage + 1 == staging.count {
            true => Self { at, stage: 0, turn: self.turn ^ 1 },
            false => Self { at, stage: self.stage + 1, turn: self.turn },
        }
    }
}

/// What a lane stores at a time.
#[repr(C, align(16))]
struct Unit([u64; 2]);

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
    let mut units = 0;
    if place.is_multiple_of(UNIT) && to.addr().is_multiple_of(UNIT as usize) {
        units = bytes / UNIT * UNIT;
        for at in (0..units).step_by(UNIT as usize) {
            // SAFETY: the caller's promise, and both are aligned.
            unsafe {
                let (a, b): (u64, u64);
                asm!("ld.shared.v2.b64 {{{a}, {b}}}, [{place}];", a = out(reg64) a, b = out(reg64) b,
                    place = in(reg32) place + at, options(nostack));
                to.wrapping_add(at as usize).cast::<Unit>().write(Unit([a, b]));
            }
        }
    }
    let (first, shift) = (place / 8 * 8, place % 8 * 8);
    let is_aligned = to.addr().is_multiple_of(8);
    for at in (units..bytes).step_by(8) {
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

impl Staging {
    /// Copies the first bytes of `to` from the host's memory at `from`, at most a GiB, before anything that the lane does next.
    /// Returns how many: none, if [`Staging::most`] is 0. Those for the GPU's memory go there without the lane if both places are
    /// multiples of 16.
    ///
    /// # Safety
    /// So many bytes lie at `from`, and the rest of the first and of the last 16 can be read. The staging is the wave's. The lane's
    /// group holds the wave's home slot, and no other lane of it is in here.
    #[inline(always)]
    pub unsafe fn pull(self, from: u64, to: &mut [u8]) -> usize {
        if self.bytes == 0 {
            return 0;
        }
        // SAFETY: the caller's promise.
        unsafe { pull(self, from, to) }
    }
}

/// Does what [`Staging::pull`] does, where there is some.
///
/// # Safety
/// As for that.
#[inline(never)]
unsafe fn pull(staging: Staging, from: u64, to: &mut [u8]) -> usize {
    let staging = staging.stages();
    let bytes = to.len().min(1 << 30) as u32;
    // Whole units are asked for: the first one has so many bytes before the first that is wanted.
    let skip = (from % u64::from(UNIT)) as u32;
    let (from, end) = (from - u64::from(skip), skip + bytes);
    let is_direct =
        skip == 0 && super::is_global(to.as_ptr()) && to.as_ptr().addr().is_multiple_of(UNIT as usize);
    let target = to.as_mut_ptr();
    let to = target.expose_provenance() as u64;
    let place_of = |chunk: Chunk| staging.start + chunk.stage * staging.stage_bytes;
    let arrival_of = |chunk: Chunk| staging.arrivals + chunk.stage * 8;
    let bytes_of = |chunk: Chunk| staging.stage_bytes.min(end - chunk.at);
    // The stages that this copy uses.
    let used = end.div_ceil(staging.stage_bytes).min(staging.count);
    let ask = |chunk: Chunk| {
        let len = bytes_of(chunk).next_multiple_of(UNIT);
        // SAFETY: the bytes at `from` are there, as the caller says; the stage is the wave's, in which this lane is alone, and
        // what was in it before has been copied on.
        unsafe {
            asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{arrival}], {len};",
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{place}], [{from}], {len}, [{arrival}]; // hostcall has: pulls",
                arrival = in(reg32) arrival_of(chunk), place = in(reg32) place_of(chunk),
                from = in(reg64) from + u64::from(chunk.at), len = in(reg32) len, options(nostack));
        }
    };
    for stage in 0..used {
        // SAFETY: the wave's own shared memory, which nobody uses.
        unsafe {
            asm!("mbarrier.init.shared::cta.b64 [{arrival}], 1;", arrival = in(reg32) staging.arrivals + 8 * stage,
                options(nostack))
        };
    }
    // SAFETY: orders what came before with what the copies access. One fence for all memory takes thirty times as long.
    unsafe { asm!("fence.proxy.async.shared::cta;", "fence.proxy.async.global;", options(nostack)) };
    let mut asked = Chunk::FIRST;
    for _ in 0..used {
        ask(asked);
        asked = asked.next(staging);
    }
    let mut chunk = Chunk::FIRST;
    while chunk.at < end {
        let (place, len) = (place_of(chunk), bytes_of(chunk));
        let mut is_there = 0u32;
        while is_there == 0 {
            // SAFETY: looks at an arrival that was made above.
            unsafe {
                asm!("{{ .reg .pred %is_there; mbarrier.try_wait.parity.shared::cta.b64 %is_there, [{arrival}], {turn};",
                    "selp.u32 {is_there}, 1, 0, %is_there; }}", arrival = in(reg32) arrival_of(chunk),
                    turn = in(reg32) chunk.turn, is_there = out(reg32) is_there, options(nostack));
            }
        }
        let direct = if is_direct { len / UNIT * UNIT } else { 0 };
        if direct > 0 {
            // SAFETY: the stage's bytes are there, and those of `to` are the caller's.
            unsafe {
                asm!("cp.async.bulk.global.shared::cta.bulk_group [{to}], [{place}], {len};", "cp.async.bulk.commit_group;",
                    to = in(reg64) to + u64::from(chunk.at), place = in(reg32) place, len = in(reg32) direct, options(nostack));
            }
        }
        // Where the lane's own part begins: one of the two is 0.
        let done = if chunk.at == 0 { skip + direct } else { direct };
        if done < len {
            // SAFETY: as above.
            unsafe {
                take_stage(place + done, target.wrapping_add((chunk.at + done - skip) as usize), len - done)
            };
        }
        // The stage before this one is free, once it has been read.
        if chunk.at > 0 && asked.at < end {
            // SAFETY: waits until all stages but this one have been read, by copies and by the lane.
            unsafe {
                asm!("cp.async.bulk.wait_group.read 1;", "fence.proxy.async.shared::cta;", options(nostack));
            }
            ask(asked);
            asked = asked.next(staging);
        }
        chunk = chunk.next(staging);
    }
    // What the lane tells the host now comes after the copies from its memory: arrivals said that the bytes are here.
    if is_direct {
        // SAFETY: waits until all bytes are where they belong. The end of a bulk copy orders what it wrote with what the lane
        // does next, as a fence would.
        unsafe { asm!("cp.async.bulk.wait_group 0;", options(nostack)) };
    }
    for stage in 0..used {
        // SAFETY: it was made above, and nothing is on its way.
        unsafe {
            asm!("mbarrier.inval.shared::cta.b64 [{arrival}];", arrival = in(reg32) staging.arrivals + 8 * stage,
                options(nostack))
        };
    }
    bytes as usize
}
