//! Reading raw channels.

use super::{Inner, Looks, Pace};
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::raw::RawWriter;
use hostcall_channel::raw::{Chunk, prefetch};
use hostcall_device::kernel::Plain;
use hostcall_locks::Mutex;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reads what kernels write to a [`RawChannel`](super::RawChannel), while they run. Values of one wave come in the order in
/// which the wave wrote them, as long as one reader reads. Clones share the work.
pub struct RawReader<T> {
    inner: Arc<Inner>,
    /// Of who waits, from one time to the next.
    pace: Mutex<Pace>,
    values: PhantomData<fn() -> T>,
}

impl<T> RawReader<T> {
    /// Does what [`Inner::tell_places`] does.
    pub(super) fn tell_places(&self) {
        self.inner.tell_places();
    }
}

impl<T> Clone for RawReader<T> {
    fn clone(&self) -> Self {
        Self::new(&self.inner)
    }
}

impl<T> Drop for RawReader<T> {
    fn drop(&mut self) {
        self.inner.leave();
    }
}

impl<T> RawReader<T> {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        inner.enter();
        Self { inner: inner.clone(), pace: Mutex::new(Pace::new()), values: PhantomData }
    }

    /// Called by a thread of hostcall's own before it reads.
    pub(super) fn enter_thread(&self) {
        self.inner.core.backend.enter_thread();
    }

    /// Returns the next page, or the part of one that is written, if there is one now. What waves of launches that have ended
    /// wrote is there, also if they were killed; of launches that run, what waves have told of.
    ///
    /// The page is lent: waves do not get it before it is dropped. Of staged pages, this waits for copies that are on their way
    /// if nothing else is there, which takes some microseconds.
    pub fn try_next(&self) -> Option<RawPage<T>> {
        let mut waits_since = None;
        loop {
            let mut found = self.inner.found.lock();
            if found.chunks.is_empty() || found.is_copying() {
                self.inner.collect(&mut found, Looks::Reader);
            }
            if let Some(began) = waits_since
                && !found.chunks.is_empty()
                && let Some(copier) = &mut found.copier
            {
                copier.note_wait(began);
            }
            if let Some(mut chunk) = found.chunks.pop_front() {
                found.lent += 1;
                found.is_left_alone = true;
                found.collector.hand_out(&mut chunk);
                let overwritten = found.collector.counts().overwritten_bytes;
                let told = std::mem::replace(&mut found.overwritten_told, overwritten);
                let (inner, overwritten_before) = (self.inner.clone(), overwritten - told);
                return Some(RawPage { inner, chunk, overwritten_before, values: PhantomData });
            }
            if !found.is_copying() {
                return None;
            }
            waits_since.get_or_insert_with(Instant::now);
            self.inner.check_copies(&mut found);
            // Other readers give pages back meanwhile.
            drop(found);
            std::thread::yield_now();
        }
    }

    /// Returns the next page, waiting so long for one. A thread that waits where nothing comes uses a
    /// hundredth of a processor at most; where pages have come every few milliseconds, it looks all the time
    /// for the next one.
    pub fn next_within(&self, longest: Duration) -> Option<RawPage<T>> {
        if let Some(page) = self.try_next() {
            self.pace.lock().found();
            return Some(page);
        }
        // Several threads may wait with one reader: none holds the lock meanwhile.
        let (began, mut pace) = (Instant::now(), *self.pace.lock());
        pace.resume();
        let page = loop {
            let left = longest.saturating_sub(began.elapsed());
            if left.is_zero() {
                break None;
            }
            pace.wait(left);
            if let Some(page) = self.try_next() {
                pace.found();
                break Some(page);
            }
        };
        *self.pace.lock() = pace;
        page
    }

    /// Records that waves have dropped, ever, as far as the host knows.
    pub(super) fn dropped_records(&self) -> u64 {
        self.inner.statistics().dropped_records
    }

    /// Records of trace points that nobody was given, since room before them was taken and is not filled.
    pub(super) fn behind_gaps(&self) -> u64 {
        self.inner.found.lock().collector.behind_gaps(self.inner.region())
    }

    /// Of how many pages and parts, at most, what is there now consists.
    pub(super) fn most_there(&self) -> usize {
        let found = self.inner.found.lock();
        let copied = found.copier.as_ref().map_or(0, |copier| copier.copies.len());
        found.chunks.len() + copied + self.inner.memory.layout.pages() as usize
    }

    /// Iterates over the pages that there are now. After a launch was waited for, all of its pages are among them.
    pub fn rest(&self) -> impl Iterator<Item = RawPage<T>> {
        std::iter::from_fn(|| self.try_next())
    }
}

/// A page of a raw channel, or the part of one that was written, lent to the reader: its words are the memory that the wave
/// wrote to, or that a copy engine brought it to. Nobody writes them any more, and no wave gets the page before this is dropped.
pub struct RawPage<T> {
    inner: Arc<Inner>,
    chunk: Chunk,
    overwritten_before: u64,
    values: PhantomData<fn() -> T>,
}

impl<T> Drop for RawPage<T> {
    fn drop(&mut self) {
        self.inner.found.lock().take_back(self.inner.region(), &self.chunk);
    }
}

impl<T> RawPage<T> {
    /// The words, in place. They are atomic because a device that breaks the rules could still write them; loads cost what
    /// plain ones do.
    pub fn words(&self) -> &[AtomicU64] {
        self.inner.region().words_of(&self.chunk)
    }

    /// Appends a copy of the bytes to `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        self.inner.region().append_to(&self.chunk, bytes);
    }

    /// Which page of the channel it is, in the order of their opening. Parts of one page have the same number.
    pub fn sequence(&self) -> u64 {
        self.chunk.ticket
    }

    /// Where in the page the part begins, in bytes.
    pub fn offset_bytes(&self) -> u32 {
        self.chunk.from
    }

    /// How many bytes there are.
    pub fn len_bytes(&self) -> u32 {
        self.chunk.bytes()
    }

    /// Whether the page has no more than this.
    pub fn is_last(&self) -> bool {
        self.chunk.is_last
    }

    /// Who wrote the page, as the device says.
    pub fn writer(&self) -> RawWriter {
        self.chunk.writer
    }

    /// The device's clock when the page was opened, in nanoseconds, as [`Lane::clock_ns`](hostcall_device::Lane::clock_ns) gives
    /// it.
    pub fn opened_ns(&self) -> u64 {
        self.chunk.opened_ns
    }

    /// Records (words, of bytes) that waves of the writer's slot have dropped between the page before and this one.
    pub fn dropped_before(&self) -> u64 {
        self.chunk.dropped
    }

    /// Bytes of the channel that were overwritten between the page that was read before and this one.
    pub fn overwritten_before(&self) -> u64 {
        self.overwritten_before
    }
}

impl<T: Plain + Copy> RawReader<T> {
    /// Iterates over messages: the records of one page after the other, each waited for so long. The iterator ends when none
    /// has come for that time; another one goes on behind the page that this one had. [`RawChannel`](super::RawChannel)
    /// ("Messages") says in which order they come.
    ///
    /// Who takes some hundred million messages a second takes pages instead, and their [`RawPage::records`].
    pub fn messages(&self, longest: Duration) -> Messages<'_, T> {
        Messages { reader: self, longest, page: None, next: 0 }
    }
}

/// Messages as they come. See [`RawReader::messages`].
pub struct Messages<'a, T> {
    reader: &'a RawReader<T>,
    longest: Duration,
    page: Option<RawPage<T>>,
    /// The next record of the page.
    next: usize,
}

impl<T: Plain + Copy> Iterator for Messages<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(page) = &self.page
                && let Some(message) = page.records().nth(self.next)
            {
                self.next += 1;
                return Some(message);
            }
            // Its page goes back before another one is waited for.
            (self.page, self.next) = (None, 0);
            self.page = Some(self.reader.next_within(self.longest)?);
        }
    }
}

impl<T: Plain + Copy> RawPage<T> {
    /// Iterates over the records.
    pub fn records(&self) -> Records<'_, T> {
        const { assert!(size_of::<T>().is_multiple_of(8) && size_of::<T>() > 0, "bytes are no records") };
        Records { words: self.words(), values: PhantomData }
    }
}

/// How far ahead of a word, in words of 8 bytes, a line is asked for: one page of the system's. A processor looks ahead by itself
/// as far as the end of such a page, and begins anew in the next one (docs/history). Behind the channel's page lies the
/// one that waves were given next, which is read next as a rule.
const AHEAD_WORDS: usize = 512;

/// The records of a page.
pub struct Records<'a, T> {
    /// Of the records that are left.
    words: &'a [AtomicU64],
    values: PhantomData<fn() -> T>,
}

impl<T> Records<'_, T> {
    /// Words of a record.
    const WORDS: usize = size_of::<T>() / 8;
}

impl<T: Plain + Copy> Iterator for Records<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let (words, left) = self.words.split_at_checked(Self::WORDS)?;
        self.words = left;
        let mut record = MaybeUninit::<T>::uninit();
        for (i, word) in words.iter().enumerate() {
            let at = std::ptr::from_ref(word);
            if at.addr().is_multiple_of(8 * LINE_WORDS) {
                prefetch(at.wrapping_add(AHEAD_WORDS));
            }
            // SAFETY: a record has as many words, and any bytes are one since it is `Plain`.
            unsafe { record.as_mut_ptr().cast::<u64>().add(i).write_unaligned(word.load(Ordering::Relaxed)) };
        }
        // SAFETY: all words were written.
        Some(unsafe { record.assume_init() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.words.len() / Self::WORDS;
        (left, Some(left))
    }

    #[inline]
    fn nth(&mut self, n: usize) -> Option<T> {
        // Without loading those before it.
        self.words = self.words.get(n.saturating_mul(Self::WORDS)..).unwrap_or_default();
        self.next()
    }
}

impl<T: Plain + Copy> ExactSizeIterator for Records<'_, T> {}
