//! What brings staged pages to the host, and free ones to waves: a queue of the device for each way, that
//! does nothing else.
//!
//! Readers drive it: each look of theirs takes what was copied and asks for the next batch, under the
//! readers' lock alone, which no launch takes. Two batches are on their way at a time, so that one is copied
//! while the other is read. A copy waits for no kernel. Where nobody reads nothing is copied, since a full
//! page waits in device memory as well as in the host's.
//!
//! - *When:* an idle engine gets what there is, a busy one a batch once [`WATERMARK_BYTES`] are found.
//!   Half-filled pages are many short copies: beside full pages they get one part in [`HALVES_PART`] of the
//!   engine's time. So a flush is seen at once on an idle channel, and later on a busy one.
//! - *How large:* a copy of less than 1 MiB does not reach the engine's rate. So pages go into the ring by
//!   blocks of [`BLOCK_BYTES`], are filled at about the same time and make one copy, with small gaps between
//!   chunks copied too. Single pages of a block are given out when blocks hold back more than a quarter of
//!   all pages, when nothing is to be copied and less than a quarter is free, and when all was read.
//! - *Failures:* if the device fails, what was not copied is counted (`RawStatistics::lost_bytes`) and the
//!   channel closes, so that nobody waits. Whoever drops a channel waits for its copies, at most two batches.

use super::{Memory, RawStaging};
use crate::device::core::Core;
use crate::device::error::Error;
use hostcall_abi::raw::RawLayout;
use hostcall_channel::raw::{Chunk, Copies, Run};
use hostcall_seam::{BackendError, Queue};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches of copies that are on their way at a time: one is copied while the other one's chunks are read.
const MOST_IN_FLIGHT: usize = 2;

/// Most bytes of a batch: between two of them an engine stands for some 25 us, which is one part in 25 of this. Of a small
/// channel, a quarter.
const BATCH_BYTES: u64 = 32 << 20;

/// Bytes that are worth a batch while another one is on its way: a copy engine reaches its full rate with such copies. Of a
/// small channel, a sixteenth.
const WATERMARK_BYTES: u64 = 1 << 20;

/// Most copies of a batch. With a signal each, all batches are fewer than the operations that a queue takes.
const MOST_RUNS: usize = 60;

/// Bytes of pages that lie side by side and are given out together.
const BLOCK_BYTES: u32 = 1 << 20;

/// What it costs to copy what a half-filled page has, at most, besides its bytes, and how many bytes move in a nanosecond.
const HALF_PAGE: Duration = Duration::from_micros(2);
const BYTES_A_NS: u64 = 50;

/// Beside full pages, half-filled ones are copied for one part in so many of the time.
const HALVES_PART: u32 = 64;

/// Parts of the ring of free pages that are on their way to the device at a time. Each is two copies and a signal at most, which
/// a queue has room for.
const TOLD_AT_A_TIME: usize = 32;

/// How long a copy is waited for before the device is asked whether it failed.
const CHECK: Duration = Duration::from_millis(1);

/// Pages that lie side by side and are given out together, of staged ones.
pub(super) fn block_pages(layout: &RawLayout) -> u32 {
    (BLOCK_BYTES / layout.page_bytes()).clamp(1, layout.pages() / 16)
}

/// Copies of a channel's staged pages, and what waits for them.
pub(super) struct Copier {
    memory: Arc<Memory>,
    queue: Box<dyn Queue>,
    /// Brings entries of the ring of free pages to the device: behind pages they would come late.
    to_device: Box<dyn Queue>,
    /// Entries of the ring that it was told to bring, ever.
    told: u64,
    /// The values of [`Copier::told`] that are on their way.
    on_their_way: Vec<u64>,
    pub copies: Copies,
    runs: Vec<Run>,
    batch_bytes: u64,
    watermark_bytes: u64,
    /// Half-filled pages are looked at from then on, if others are copied.
    halves_from: Instant,
    checked: Instant,
    has_failed: bool,
    counts: RawStaging,
}

impl Copier {
    pub fn new(core: &Core, memory: Arc<Memory>) -> Result<Self, Error> {
        let (layout, now) = (memory.layout, Instant::now());
        let bytes = u64::from(layout.data_words()) * 8;
        Ok(Self {
            queue: core.backend.queue(Arc::new(|| {}))?,
            to_device: core.backend.queue(Arc::new(|| {}))?,
            told: 0,
            on_their_way: Vec::new(),
            copies: Copies::new(layout),
            runs: Vec::new(),
            batch_bytes: BATCH_BYTES.min(bytes / 4),
            watermark_bytes: WATERMARK_BYTES.min(bytes / 16),
            halves_from: now,
            checked: now,
            has_failed: false,
            counts: RawStaging::default(),
            memory,
        })
    }

    /// Adds the chunks whose copies have ended to `chunks`. Returns whether there were any.
    pub fn land(&mut self, chunks: &mut VecDeque<Chunk>) -> bool {
        self.copies.in_flight() > 0 && self.copies.end(self.queue.completed(), chunks)
    }

    /// Whether no more batches are to be asked for before one has ended.
    pub fn is_full(&self) -> bool {
        self.copies.in_flight() >= MOST_IN_FLIGHT
    }

    /// Whether enough was found for a batch, so that nobody need look for more.
    pub fn has_enough(&self) -> bool {
        self.copies.has_found(self.watermark_bytes)
    }

    /// Whether to look at half-filled pages.
    pub fn takes_halves(&self) -> bool {
        self.copies.is_empty() || Instant::now() >= self.halves_from
    }

    /// Notes a search that began then, with the half-filled pages among the chunks that were found after the first `before`.
    pub fn note_search(&mut self, began: Instant, before: usize) {
        self.counts.searches += 1;
        self.counts.search_ns += ns_since(began);
        let (mut pages, mut bytes) = (0, 0);
        for chunk in self.copies.found().range(before..).filter(|chunk| !chunk.is_last) {
            (pages, bytes) = (pages + 1, bytes + u64::from(chunk.bytes()));
        }
        if pages > 0 {
            let cost = pages * HALF_PAGE + Duration::from_nanos(bytes / BYTES_A_NS);
            self.halves_from = Instant::now() + HALVES_PART * cost;
        }
    }

    /// Has the queue copy what was found: all if it does nothing, and else what is worth a batch.
    ///
    /// # Errors
    /// When the device failed. Nothing is copied any more then.
    pub fn ask(&mut self) -> Result<(), BackendError> {
        while !self.is_full() && (self.copies.in_flight() == 0 || self.has_enough()) {
            let began = Instant::now();
            let Some(batch) = self.copies.ask(self.batch_bytes, MOST_RUNS, &mut self.runs) else { break };
            self.submit(batch).inspect_err(|_| self.has_failed = true)?;
            self.counts.batches += 1;
            self.counts.copies += self.runs.len() as u64;
            self.counts.ask_ns += ns_since(began);
        }
        Ok(())
    }

    /// Brings the entries of the ring that were put there up to this one, and not told of yet, to the device.
    ///
    /// # Errors
    /// When the device failed. Nothing is copied any more then.
    pub fn tell(&mut self, given: u64) -> Result<(), BackendError> {
        let brought = self.to_device.completed();
        self.on_their_way.retain(|told| *told > brought);
        // A queue has room for so much; what is left is told the next time.
        if given == self.told || self.on_their_way.len() >= TOLD_AT_A_TIME {
            return Ok(());
        }
        let new = (given - self.told).min(self.memory.layout.pages().into());
        // SAFETY: the memory is kept until the copy has ended, or for ever (`drop`).
        let told = unsafe { self.memory.copy_free(&*self.to_device, given - new, new) };
        told.and_then(|()| signal(&*self.to_device, given)).inspect_err(|_| self.has_failed = true)?;
        self.told = given;
        self.on_their_way.push(given);
        Ok(())
    }

    /// Has the queue copy the runs, which are this batch's.
    fn submit(&self, batch: u64) -> Result<(), BackendError> {
        for run in &self.runs {
            // SAFETY: RAW-COPY: `Copies` keeps a chunk of each page until the batch has ended; the memory is kept until
            // then, or for ever (`drop`).
            unsafe { self.memory.copy(&*self.queue, *run) }?;
        }
        signal(&*self.queue, batch)
    }

    /// Notes that a reader waited for a copy from then on.
    pub fn note_wait(&mut self, began: Instant) {
        self.counts.wait_ns += ns_since(began);
    }

    /// Returns what was done, ever.
    pub fn counts(&self) -> RawStaging {
        self.counts
    }

    /// Asks now and then whether the device failed, by somebody who waits for a copy.
    pub fn check(&mut self) -> Result<(), BackendError> {
        let now = Instant::now();
        if self.has_failed || now - self.checked < CHECK {
            return Ok(());
        }
        self.checked = now;
        self.queue.check().inspect_err(|_| self.has_failed = true)
    }

    /// Whether the device has failed, so that nothing is copied any more.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

/// Has a queue tell when what it was given so far has ended.
fn signal(queue: &dyn Queue, value: u64) -> Result<(), BackendError> {
    queue.signal(value)?;
    // Nothing follows that could keep the device from telling by itself, so that readers need not ask.
    queue.poll(value);
    Ok(())
}

fn ns_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for Copier {
    fn drop(&mut self) {
        let are_done = |copier: &Self| {
            copier.queue.completed() >= copier.copies.last_asked()
                && copier.to_device.completed() >= copier.told
        };
        while !are_done(self) {
            if self.has_failed || self.check().is_err() {
                // Copies may still come.
                std::mem::forget(self.memory.clone());
                return;
            }
            std::thread::yield_now();
        }
    }
}
