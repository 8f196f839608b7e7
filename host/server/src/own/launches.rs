//! The launches that have begun and not ended: a table by index and generation.
//!
//! A device says of each call whose it is, by the launch's id. A word for each index says whether such a
//! launch is live: one relaxed load a call. What is known of a launch besides is behind a lock. A call takes
//! it only where the word does not say that its launch is live; else it is taken by what begins, cancels and
//! ends launches, and by who asks what a launch is.

use crate::engine::LaunchSet;
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_abi::layout::LAUNCHES;
use hostcall_channel::SharedMemory;
use hostcall_locks::Mutex;
use hostcall_trace::Ending;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What the server has to know of a launch.
#[derive(Clone, Debug, Default)]
pub struct LaunchRecord {
    /// The kernel's name.
    pub kernel: Arc<str>,
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
    /// Lanes of a workgroup.
    pub lanes: u64,
    /// The context with which hostcall launches it; [`LaunchId::NONE`] without one. It is cancelled with its context, and begins
    /// cancelled if that is cancelled or over.
    pub context: LaunchId,
}

/// A launch that has begun and not ended, or a context.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenLaunch {
    /// Its id.
    pub id: LaunchId,
    /// What it runs.
    pub record: LaunchRecord,
    /// How long ago it began, to some milliseconds: when it was given to its stream, whose work before may keep its kernel waiting.
    pub age: Duration,
    /// Why it was cancelled, if it was.
    pub cancelled: Option<CancelReason>,
    /// It is a context, which others launch with.
    pub is_context: bool,
}

/// Returns the time since the system's start. Read in a few nanoseconds, it moves in steps of some milliseconds.
fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Launches that have ended, whose indices are theirs still.
pub(crate) struct Ended {
    pub launches: LaunchSet,
    /// In the order of their ids.
    cancelled: Vec<(LaunchId, CancelReason)>,
    /// One of them is a context, whose lanes may go on. It ends alone.
    pub has_context: bool,
}

impl Ended {
    /// Returns each launch, with how it ended: as the first reason why it was cancelled says, if it was.
    pub fn endings(&self) -> impl Iterator<Item = (LaunchId, Ending)> {
        let mut cancelled = self.cancelled.iter().peekable();
        self.launches.ids().map(move |id| {
            let cancelled = cancelled.next_if(|(of, _)| *of == id);
            (id, cancelled.map_or(Ending::OK, |(_, why)| why.ending()))
        })
    }
}

/// As many launches have begun and not ended as a device can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LAUNCHES} launches have not ended; synchronize a stream before launching more")]
pub struct TooManyLaunches;

/// Why a launch was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// Somebody asked for it.
    Asked,
    /// A lane panicked.
    Panicked,
    /// A lane ended the program with this code.
    Exited(i32),
    /// A lane did what the device does not allow.
    Failed,
    /// The device wrote into a slot what makes no sense.
    BrokenSlot,
    /// The device was closed.
    Closed,
    /// Its time was up.
    TimedOut,
}

impl CancelReason {
    /// Whether the host ended the launch, and not what its lanes did.
    pub fn is_of_host(self) -> bool {
        matches!(self, CancelReason::Asked | CancelReason::Closed | CancelReason::TimedOut)
    }

    /// Returns how a launch ended that was cancelled for this.
    pub(crate) fn ending(self) -> Ending {
        match self {
            CancelReason::Panicked => Ending::PANICKED,
            CancelReason::Exited(_) => Ending::EXITED,
            CancelReason::Failed | CancelReason::BrokenSlot => Ending::FAILED,
            CancelReason::TimedOut => Ending::TIMED_OUT,
            CancelReason::Asked | CancelReason::Closed => Ending::CANCELLED,
        }
    }
}

struct Entry {
    id: LaunchId,
    record: LaunchRecord,
    cancelled: Option<CancelReason>,
    began: Duration,
    /// It is a context: kernels that others launch call in its name, nobody here knows when.
    is_context: bool,
}

/// What an index is for.
enum IndexUse {
    Free,
    One(Entry),
    /// A single launch that has ended; see [`Launches::free`].
    Ended,
    /// Of the launches of a span, which begin and end together.
    Span(u32),
}

/// Indices that follow each other, a power of two of them, and the launches that have them.
struct Span {
    first: u32,
    size_log2: u32,
    /// Of the last launches that had them.
    generation: u32,
    list: Option<List>,
}

struct List {
    launches: LaunchIds,
    records: Arc<[LaunchRecord]>,
    began: Duration,
    cancelled: BTreeMap<LaunchId, CancelReason>,
}

#[derive(Default)]
struct Table {
    /// Indices that launches have had, the one that was free first first.
    free: VecDeque<u32>,
    /// By index, as far as indices were ever used.
    entries: Vec<IndexUse>,
    spans: Vec<Span>,
    /// Numbers of the spans that no launches have, by their sizes' logarithms.
    free_spans: [VecDeque<u32>; LaunchId::INDEX_BITS as usize],
    /// Indices that are in spans.
    in_spans: u32,
    /// Numbers of spans that were dissolved.
    spare_spans: Vec<u32>,
    /// How many launches must have ended before [`Table::gather_span`] looks again.
    gather_after: u64,
}

impl Table {
    fn get(&self, id: LaunchId) -> Option<(&LaunchRecord, Option<CancelReason>)> {
        match self.entries.get(id.index() as usize)? {
            IndexUse::One(entry) if entry.id == id => Some((&entry.record, entry.cancelled)),
            IndexUse::Span(span) => {
                let list = self.spans[*span as usize].list.as_ref()?;
                let record = list.records.get(list.launches.place_of(id)? as usize)?;
                Some((record, list.cancelled.get(&id).copied()))
            }
            _ => None,
        }
    }

    /// Whether it is a context that is not over.
    fn is_context(&self, id: LaunchId) -> bool {
        let place = self.entries.get(id.index() as usize);
        matches!(place, Some(IndexUse::One(entry)) if entry.id == id && entry.is_context)
    }

    /// Launches with this context that have begun and not ended.
    fn of_context(&self, context: LaunchId) -> Vec<LaunchId> {
        let of = |place: &IndexUse| match place {
            IndexUse::One(entry) if entry.record.context == context => Some(entry.id),
            _ => None,
        };
        if self.is_context(context) { self.entries.iter().filter_map(of).collect() } else { Vec::new() }
    }

    /// Notes that a launch is cancelled, if it is known and was not cancelled before.
    fn cancel(&mut self, id: LaunchId, why: CancelReason) -> bool {
        if !matches!(self.get(id), Some((_, None))) {
            return false;
        }
        match &mut self.entries[id.index() as usize] {
            IndexUse::One(entry) => entry.cancelled = Some(why),
            IndexUse::Span(span) => {
                if let Some(list) = &mut self.spans[*span as usize].list {
                    list.cancelled.insert(id, why);
                }
            }
            IndexUse::Free | IndexUse::Ended => {}
        }
        true
    }

    /// Takes a span of indices that no launches have. `words` say which generations these have had.
    fn take_span(&mut self, size_log2: u32, words: &[AtomicU32], ended: u64) -> Option<u32> {
        let (size, free, fresh) = (1 << size_log2, size_log2 as usize, self.entries.len() as u32);
        let rests = self.free_spans[free].len() << size_log2 < RESTING;
        if rests && fresh + size <= LAUNCHES && self.in_spans + size <= MOST_IN_SPANS {
            self.entries.extend((0..size).map(|_| IndexUse::Free));
            return Some(self.make_span(fresh, size_log2, 0));
        }
        // A larger one, if all of the size are taken.
        let taken = self.free_spans[free..].iter_mut().find_map(VecDeque::pop_front);
        taken.or_else(|| self.gather_span(size_log2, words, ended))
    }

    /// Makes a span of indices that are free.
    fn make_span(&mut self, first: u32, size_log2: u32, generation: u32) -> u32 {
        let span = Span { first, size_log2, generation, list: None };
        let number = match self.spare_spans.pop() {
            Some(number) => {
                self.spans[number as usize] = span;
                number
            }
            None => {
                self.spans.push(span);
                self.spans.len() as u32 - 1
            }
        };
        let size = 1 << size_log2;
        self.entries[first as usize..][..size as usize].fill_with(|| IndexUse::Span(number));
        self.in_spans += size;
        number
    }

    /// Makes a span of indices that single launches or smaller spans have had, where as many as it needs follow each other. It
    /// looks at all indices: not again before as many launches have ended as the span has indices.
    fn gather_span(&mut self, size_log2: u32, words: &[AtomicU32], ended: u64) -> Option<u32> {
        let size = 1u32 << size_log2;
        if ended < self.gather_after {
            return None;
        }
        while self.in_spans + size > MOST_IN_SPANS && self.dissolve_span() {}
        let mut free = 0;
        let mut is_last = |place: &IndexUse| {
            free = if matches!(place, IndexUse::Free) { free + 1 } else { 0 };
            free == size
        };
        let last = match self.in_spans + size <= MOST_IN_SPANS {
            true => self.entries.iter().position(&mut is_last),
            false => None,
        };
        let Some(last) = last else {
            self.gather_after = ended + u64::from(size);
            return None;
        };
        let indices = last as u32 + 1 - size..last as u32 + 1;
        self.free.retain(|index| !indices.contains(index));
        let generations =
            words[indices.start as usize..=last].iter().map(|word| word.load(Ordering::Relaxed));
        // Of none of the indices is a generation used again.
        let generation = generations.max().unwrap_or(0) >> GENERATION;
        Some(self.make_span(indices.start, size_log2, generation))
    }

    /// Makes the indices of a span that no launches have those of single launches. Returns whether there was one.
    fn dissolve_span(&mut self) -> bool {
        let Some((size_log2, span)) =
            (0..).zip(&mut self.free_spans).find_map(|(size, free)| Some((size, free.pop_front()?)))
        else {
            return false;
        };
        let first = self.spans[span as usize].first;
        for index in first..first + (1 << size_log2) {
            self.entries[index as usize] = IndexUse::Free;
            self.free.push_back(index);
        }
        self.in_spans -= 1 << size_log2;
        self.spare_spans.push(span);
        true
    }
}

/// Most indices that are in spans: the others are for single launches.
const MOST_IN_SPANS: u32 = LAUNCHES / 2;

/// Of an index's word: the generation in the upper bits, and these two.
const LIVE: u32 = 1;
const CANCELLED: u32 = 2;
const GENERATION: u32 = 2;

/// Indices that rest before they are used again, so that an id that is still somewhere is not soon another launch's.
const RESTING: usize = 1024;

/// The launches of a device.
pub struct Launches {
    memory: Arc<SharedMemory>,
    words: Box<[AtomicU32]>,
    table: Mutex<Table>,
    /// Launches that have begun and not ended, without contexts. Changes under the table's lock.
    live: AtomicU32,
    /// Contexts, the same way.
    contexts: AtomicU32,
    /// There were some.
    had_contexts: AtomicBool,
    /// Launches that have ended, ever. Changes under the table's lock, after they are not known any more.
    ended: AtomicU64,
}

fn live(id: LaunchId) -> u32 {
    id.generation() << GENERATION | LIVE
}

impl Launches {
    pub(crate) fn new(memory: Arc<SharedMemory>) -> Self {
        Self {
            memory,
            words: (0..LAUNCHES).map(|_| AtomicU32::new(0)).collect(),
            table: Mutex::default(),
            live: AtomicU32::new(0),
            contexts: AtomicU32::new(0),
            had_contexts: AtomicBool::new(false),
            ended: AtomicU64::new(0),
        }
    }

    /// Returns the launches that have begun with a context and have not ended; none of what is no context.
    pub(crate) fn of_context(&self, context: LaunchId) -> Vec<LaunchId> {
        self.table.lock().of_context(context)
    }

    /// Returns to whom belongs what a launch leaves behind, such as files and what is told of failures: its context, if it has one
    /// that is not over, else itself.
    pub fn context_of(&self, launch: LaunchId) -> LaunchId {
        let table = self.table.lock();
        let context = table.get(launch).map(|(record, _)| record.context);
        context.filter(|context| table.is_context(*context)).unwrap_or(launch)
    }

    /// Makes the launches of a context those of the one that takes its place.
    pub(crate) fn hand_over(&self, from: LaunchId, to: LaunchId) {
        for place in &mut self.table.lock().entries {
            if let IndexUse::One(entry) = place
                && entry.record.context == from
            {
                entry.record.context = to;
            }
        }
    }

    /// Begins a launch, before its kernel starts. Returns also whether it is the only one.
    ///
    /// # Errors
    /// When too many have not ended.
    pub fn begin(&self, record: LaunchRecord) -> Result<(LaunchId, bool), TooManyLaunches> {
        let table = &mut *self.table.lock();
        let id = self.enter(table, record, false)?;
        let before = self.live.load(Ordering::Relaxed);
        self.live.store(before + 1, Ordering::Release);
        Ok((id, before == 0))
    }

    /// Begins a context: a launch that stands for all that others launch with it, of which nobody here knows when they run. It
    /// is none of those that [`Launches::count`] counts, so that a launch besides is the only one still.
    ///
    /// # Errors
    /// When too many launches have not ended.
    pub fn begin_context(&self, record: LaunchRecord) -> Result<LaunchId, TooManyLaunches> {
        let table = &mut *self.table.lock();
        let id = self.enter(table, record, true)?;
        self.contexts.store(self.contexts.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.had_contexts.store(true, Ordering::Release);
        Ok(id)
    }

    fn enter(
        &self,
        table: &mut Table,
        record: LaunchRecord,
        is_context: bool,
    ) -> Result<LaunchId, TooManyLaunches> {
        let fresh = table.entries.len() as u32;
        let index = if fresh < LAUNCHES && table.free.len() < RESTING {
            table.entries.push(IndexUse::Free);
            fresh
        } else {
            if table.free.is_empty() {
                table.dissolve_span();
            }
            table.free.pop_front().ok_or(TooManyLaunches)?
        };
        let word = &self.words[index as usize];
        let generation = (word.load(Ordering::Relaxed) >> GENERATION) % LaunchId::LAST_GENERATION + 1;
        let id = LaunchId::new(index, generation);
        let context = record.context;
        table.entries[index as usize] =
            IndexUse::One(Entry { id, record, cancelled: None, began: coarse_now(), is_context });
        word.store(live(id), Ordering::Release);
        if context != LaunchId::NONE
            && !(table.is_context(context) && matches!(table.get(context), Some((_, None))))
        {
            self.tell_cancelled(table, id, CancelReason::Asked);
        }
        Ok(id)
    }

    /// Begins launches with ids in a row, one for each record, before their kernels start: they end together. Returns also
    /// whether they are the only ones. `None` when there are no such ids left, though there may be single ones.
    pub fn begin_list(&self, records: &Arc<[LaunchRecord]>) -> Option<(LaunchIds, bool)> {
        let count = u32::try_from(records.len()).ok().filter(|count| (1..=MOST_IN_SPANS).contains(count))?;
        let mut table = self.table.lock();
        let span = table.take_span(count.next_power_of_two().ilog2(), &self.words, self.ended())?;
        let span = &mut table.spans[span as usize];
        span.generation = span.generation % LaunchId::LAST_GENERATION + 1;
        let launches = LaunchIds::new(LaunchId::new(span.first, span.generation), count);
        span.list = Some(List {
            launches,
            records: records.clone(),
            began: coarse_now(),
            cancelled: BTreeMap::new(),
        });
        for id in launches.ids() {
            self.words[id.index() as usize].store(live(id), Ordering::Release);
        }
        let before = self.live.load(Ordering::Relaxed);
        self.live.store(before + count, Ordering::Release);
        Some((launches, before == 0))
    }

    /// Notes that launches are cancelled which are one, or began together; their device learns of it. Returns those that are
    /// cancelled with them: of a context, its launches.
    pub(crate) fn cancel(&self, launches: LaunchIds, why: CancelReason) -> Vec<LaunchId> {
        let table = &mut *self.table.lock();
        launches.ids().for_each(|id| _ = self.tell_cancelled(table, id, why));
        // What went wrong with the context is no fault of theirs.
        let why = if why.is_of_host() { why } else { CancelReason::Asked };
        let mut with_context = table.of_context(launches.first());
        with_context.retain(|id| self.tell_cancelled(table, *id, why));
        with_context
    }

    /// Cancels one launch. Returns whether it runs and was not cancelled before.
    fn tell_cancelled(&self, table: &mut Table, id: LaunchId, why: CancelReason) -> bool {
        let is_new = table.cancel(id, why);
        if is_new {
            self.words[id.index() as usize].store(live(id) | CANCELLED, Ordering::SeqCst);
            self.memory.region().set_cancelled(id, true);
        }
        is_new
    }

    /// Ends launches whose kernels have ended: single ones, and those that began together. Nobody knows their ids any more, or
    /// cancels them, but no others get their indices before [`Launches::free`]. Those that do not run are passed over.
    pub(crate) fn end(&self, mut launches: LaunchSet) -> Ended {
        let table = &mut *self.table.lock();
        let (mut cancelled, contexts) = (Vec::new(), self.contexts());
        launches.retain(|launches| self.end_ids(table, launches, &mut cancelled));
        Ended { launches, cancelled, has_context: self.contexts() < contexts }
    }

    /// Ends one launch, or those that began together. Returns whether such launches ran.
    fn end_ids(
        &self,
        table: &mut Table,
        launches: LaunchIds,
        cancelled: &mut Vec<(LaunchId, CancelReason)>,
    ) -> bool {
        let (first, before) = (launches.first(), cancelled.len());
        let mut count = &self.live;
        match table.entries.get_mut(first.index() as usize) {
            Some(place @ IndexUse::One(_)) => {
                let IndexUse::One(entry) = &*place else { return false };
                if launches != entry.id.into() {
                    return false;
                }
                cancelled.extend(entry.cancelled.map(|why| (first, why)));
                if entry.is_context {
                    count = &self.contexts;
                }
                *place = IndexUse::Ended;
            }
            Some(IndexUse::Span(number)) => {
                let list = &mut table.spans[*number as usize].list;
                let Some(list) = list.take_if(|list| list.launches == launches) else { return false };
                cancelled.extend(list.cancelled);
            }
            _ => return false,
        }
        for id in launches.ids() {
            self.words[id.index() as usize].store(id.generation() << GENERATION, Ordering::Release);
        }
        for (id, _) in &cancelled[before..] {
            self.memory.region().set_cancelled(*id, false);
        }
        // Not known any more when they are counted as ended. The caller has the table's lock.
        self.ended.store(self.ended.load(Ordering::Relaxed) + u64::from(launches.count()), Ordering::Release);
        count.store(count.load(Ordering::Relaxed) - launches.count(), Ordering::Release);
        true
    }

    /// Gives the indices of launches that have ended to others. Returns those that were cancelled, in order.
    pub(crate) fn free(&self, ended: Ended) -> Vec<(LaunchId, CancelReason)> {
        let table = &mut *self.table.lock();
        for launches in ended.launches.lists() {
            let index = launches.first().index();
            match &mut table.entries[index as usize] {
                IndexUse::Span(number) => {
                    let size_log2 = table.spans[*number as usize].size_log2;
                    table.free_spans[size_log2 as usize].push_back(*number);
                }
                place => {
                    *place = IndexUse::Free;
                    table.free.push_back(index);
                }
            }
        }
        ended.cancelled
    }

    /// Whether a launch runs and was not cancelled.
    #[inline(always)]
    pub fn is_live(&self, id: LaunchId) -> bool {
        self.words[id.index() as usize].load(Ordering::Relaxed) == live(id) || self.is_live_for_sure(id)
    }

    /// Returns what [`Launches::is_live`] does, as the table says: the call may have come before the word was seen.
    #[cold]
    #[inline(never)]
    fn is_live_for_sure(&self, id: LaunchId) -> bool {
        matches!(self.table.lock().get(id), Some((_, None)))
    }

    /// Whether a launch has begun and not ended.
    #[inline]
    pub fn is_known(&self, id: LaunchId) -> bool {
        let word = self.words[id.index() as usize].load(Ordering::Relaxed) & !CANCELLED;
        word == live(id) || self.table.lock().get(id).is_some()
    }

    /// Whether a launch runs that was cancelled, and why.
    pub fn cancelled(&self, id: LaunchId) -> Option<CancelReason> {
        self.table.lock().get(id).and_then(|(_, cancelled)| cancelled)
    }

    /// What a launch that has begun and not ended is.
    pub fn record(&self, id: LaunchId) -> Option<LaunchRecord> {
        self.table.lock().get(id).map(|(record, _)| record.clone())
    }

    /// Launches that have begun and not ended, without contexts.
    pub fn count(&self) -> u32 {
        self.live.load(Ordering::SeqCst)
    }

    /// Whether there is a launch or a context whose lanes may call.
    pub(crate) fn may_call(&self) -> bool {
        self.count() > 0 || self.contexts() > 0
    }

    /// Contexts that have begun and not ended.
    fn contexts(&self) -> u32 {
        self.contexts.load(Ordering::SeqCst)
    }

    /// Whether there ever were contexts, whose lanes nobody has seen end.
    pub(crate) fn had_contexts(&self) -> bool {
        self.had_contexts.load(Ordering::Acquire)
    }

    /// Launches that have ended, ever. Who sees a count sees that none of those in it is [known](Self::is_known) any more.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the oldest launches and contexts that have begun and not ended, `most` of them.
    pub fn oldest(&self, most: usize) -> Vec<OpenLaunch> {
        let now = coarse_now();
        let age = |began| now.saturating_sub(began);
        let table = self.table.lock();
        let mut open: Vec<(Duration, LaunchId)> = Vec::new();
        open.extend(table.entries.iter().filter_map(|place| match place {
            IndexUse::One(entry) => Some((entry.began, entry.id)),
            _ => None,
        }));
        let lists = table.spans.iter().filter_map(|span| span.list.as_ref());
        open.extend(lists.flat_map(|list| list.launches.ids().map(|id| (list.began, id))));
        open.sort_unstable_by_key(|(began, id)| (*began, id.to_bits()));
        let of = |(began, id): (Duration, LaunchId)| {
            let (record, cancelled) = table.get(id)?;
            let (record, is_context) = (record.clone(), table.is_context(id));
            Some(OpenLaunch { id, record, age: age(began), cancelled, is_context })
        };
        open.into_iter().take(most).filter_map(of).collect()
    }

    /// The ids of the launches that have begun and not ended.
    pub fn ids(&self) -> Vec<LaunchId> {
        let table = self.table.lock();
        let single = table.entries.iter().filter_map(|place| match place {
            IndexUse::One(entry) => Some(entry.id),
            _ => None,
        });
        let lists = table.spans.iter().filter_map(|span| span.list.as_ref());
        single.chain(lists.flat_map(|list| list.launches.ids())).collect()
    }
}

#[cfg(test)]
mod tests;
