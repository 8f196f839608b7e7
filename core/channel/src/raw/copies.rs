//! Which bytes of staged pages a copy engine brings to the host, and when readers may have them (RAW-COPY).

use super::Chunk;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hostcall_abi::raw::RawLayout;

/// Bytes between two chunks that are copied with them rather than left out: about what an engine moves in the time that it
/// takes to begin another copy.
const MOST_BETWEEN: u64 = 32 << 10;

/// Bytes that lie side by side, from the first page's first one on, in the device's pages as in the host's: one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first byte.
    pub from: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// Chunks of staged pages on their way to readers: those that were found, then those that the copy engine was asked for, in
/// batches. An engine's batches end in the order in which they were asked for.
pub struct Copies {
    layout: RawLayout,
    found: VecDeque<Chunk>,
    /// Chunks of each batch, with the batch's number.
    asked: VecDeque<(u64, Vec<Chunk>)>,
    /// The last batch's number.
    last: u64,
}

impl Copies {
    /// Nothing is found yet.
    pub fn new(layout: RawLayout) -> Self {
        Self { layout, found: VecDeque::new(), asked: VecDeque::new(), last: 0 }
    }

    /// The chunks that were found and that no copy was asked for, in the order of each writer: a
    /// [`Collector`](super::Collector) adds to them.
    pub fn found(&mut self) -> &mut VecDeque<Chunk> {
        &mut self.found
    }

    /// Whether so many bytes or more are found.
    pub fn has_found(&self, bytes: u64) -> bool {
        let mut left = bytes;
        self.found.iter().any(|chunk| {
            left = left.saturating_sub(chunk.bytes().into());
            left == 0
        })
    }

    /// How many chunks there are, of those that were found and asked for.
    pub fn len(&self) -> usize {
        self.found.len() + self.asked.iter().map(|(_, chunks)| chunks.len()).sum::<usize>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && self.asked.is_empty()
    }

    /// The number of the batch that was asked for last.
    pub fn last_asked(&self) -> u64 {
        self.last
    }

    /// Batches that have not ended, as far as [`Copies::end`] was told.
    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Makes a batch of the chunks that were found first, of about so many bytes at most, and puts its copies into `runs`, of
    /// which there are so many at most, one or more. Returns the batch's number, from 1 on; `None` when nothing was found.
    pub fn ask(&mut self, most_bytes: u64, most_runs: usize, runs: &mut Vec<Run>) -> Option<u64> {
        let mut bytes = 0;
        let count = self.found.iter().take_while(|chunk| {
            let has_room = bytes == 0 || bytes + u64::from(chunk.bytes()) <= most_bytes;
            bytes += u64::from(chunk.bytes());
            has_room
        });
        let mut count = count.count();
        if count == 0 {
            return None;
        }
        // The first chunks have few enough runs when all of them are one each.
        while self.runs_of(count, runs) > most_runs.max(1) {
            count = (count / 2).max(1);
        }
        self.last += 1;
        self.asked.push_back((self.last, self.found.drain(..count).collect()));
        Some(self.last)
    }

    /// Finds the runs of so many of the first chunks. Returns how many there are.
    fn runs_of(&self, count: usize, runs: &mut Vec<Run>) -> usize {
        let of_chunk = |chunk: &Chunk| Run {
            from: u64::from(chunk.page) * u64::from(self.layout.page_bytes()) + u64::from(chunk.from),
            bytes: chunk.bytes().into(),
        };
        runs.clear();
        runs.extend(self.found.iter().take(count).map(of_chunk).filter(|run| run.bytes > 0));
        runs.sort_unstable_by_key(|run| run.from);
        let page_of = |byte: u64| byte / u64::from(self.layout.page_bytes());
        runs.dedup_by(|next, run| {
            let (last, end) = (run.from + run.bytes - 1, next.from + next.bytes);
            // No page lies between them.
            let is_close = next.from - last - 1 <= MOST_BETWEEN && page_of(next.from) <= page_of(last) + 1;
            if is_close {
                run.bytes = end - run.from;
            }
            is_close
        });
        runs.len()
    }

    /// Adds the chunks of batches up to this one to `chunks`: their copies have ended. Returns whether there were any.
    pub fn end(&mut self, batch: u64, chunks: &mut VecDeque<Chunk>) -> bool {
        let mut any = false;
        while let Some((_, ended)) = self.asked.pop_front_if(|(number, _)| *number <= batch) {
            chunks.extend(ended);
            any = true;
        }
        any
    }

    /// Takes all chunks: what was found and what was asked for cannot be copied any more.
    pub fn take(&mut self) -> Vec<Chunk> {
        let asked = self.asked.drain(..).flat_map(|(_, chunks)| chunks);
        asked.chain(self.found.drain(..)).collect()
    }
}
