//! A consumer thread: looks for calls and posts, and sleeps when there are none.
//!
//! What it costs to find a call does not grow with the slots. Lines of doorbells that rang lately are *hot*
//! and looked at in every pass; cold ones one after the other, every few passes. Post rings are visited only
//! while they are hot, which their post bells make them.

use super::control::{Command, Shared};
use super::dispatch;
use super::registry::Registry;
use super::watchdog::{Stall, StallState};
use hostcall_abi::batch::Replies;
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::status::CallError;
use hostcall_channel::host::{Batch, PostBuffer, Scanner, Take};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Passes between two looks at a cold line of doorbells and post bells. A pass takes some 10 ns: 528 lines are
/// seen within 25 µs.
const COLD_LINE_PASSES: u64 = 4;

/// Passes between two looks at the clock while a call is unfinished.
const CLOCK_PASSES: u64 = 256;

/// Passes with work after which the counts are published.
const COUNT_PASSES: u64 = 1 << 14;

/// Fruitless looks after which a hot line or ring is cold. At 8 ns a pass this is 33 µs, longer than a GPU
/// posts without ringing.
const COOL_AFTER: u16 = 4096;

/// Hot lines ahead of the one looked at whose doorbells are asked for: a line that a device wrote takes 100 ns to
/// come, and some 20 ns to look at when it has calls.
const LINES_AHEAD: usize = 8;

/// Longest sleep while a hint may get lost: within this time a call is found all the same.
const LONGEST_SLEEP: Duration = Duration::from_micros(650);

/// Longest sleep where none gets lost: what is waited for then is nothing that the consumer knows of.
const LONG_SLEEP: Duration = Duration::from_millis(100);

/// Longest sleep while no launch has slots.
const DEEP_SLEEP: Duration = Duration::from_secs(1);

/// Things looked at in every pass, of `count` things looked at in turn.
struct HotSet {
    hot: Vec<(u32, u16)>,
    is_hot: Vec<bool>,
    cursor: u32,
}

impl HotSet {
    fn new(count: usize) -> Self {
        Self { hot: Vec::with_capacity(count), is_hot: vec![false; count], cursor: 0 }
    }

    /// The next of the first `limit` things in turn.
    fn next_cold(&mut self, limit: u32) -> u32 {
        self.cursor = if self.cursor + 1 < limit { self.cursor + 1 } else { 0 };
        self.cursor
    }

    /// Counts a look at the hot thing at `at`, and lets it go cold after many fruitless ones. Whether it is
    /// still there.
    #[inline]
    fn judge(&mut self, at: usize, fruitful: bool) -> bool {
        let (thing, fruitless) = &mut self.hot[at];
        *fruitless = if fruitful { 0 } else { *fruitless + 1 };
        if *fruitless <= COOL_AFTER {
            return true;
        }
        self.is_hot[*thing as usize] = false;
        self.hot.swap_remove(at);
        false
    }

    fn heat(&mut self, thing: u32) {
        if !self.is_hot[thing as usize] {
            self.is_hot[thing as usize] = true;
            self.hot.push((thing, 0));
        }
    }
}

pub(crate) struct Consumer<'s> {
    shared: &'s Arc<Shared>,
    index: usize,
    scanner: Scanner,
    batch: Batch,
    replies: Box<Replies>,
    buffer: PostBuffer,
    registry: Arc<Registry>,
    attention_seen: u64,
    lines: HotSet,
    rings: HotSet,
    passes: u64,
    packets: u64,
    posts: u64,
    /// Slots that rang without writing all of their words: since when, and whether that was reported.
    unfinished: Vec<(u32, Instant, bool)>,
}

impl<'s> Consumer<'s> {
    pub fn new(shared: &'s Arc<Shared>, index: usize, scanner: Scanner) -> Self {
        Self {
            shared,
            index,
            batch: Batch::new(),
            replies: Box::new(Replies::EMPTY),
            buffer: PostBuffer::new(),
            registry: shared.registry(),
            attention_seen: 0,
            lines: HotSet::new(scanner.lines()),
            rings: HotSet::new(scanner.slots().len()),
            scanner,
            passes: 0,
            packets: 0,
            posts: 0,
            unfinished: Vec::new(),
        }
    }

    /// Serves until the server stops; then answers what has rung.
    pub fn run(mut self) {
        let mut idle_since: Option<Instant> = None;
        loop {
            let attention = self.shared.attention.load(Ordering::Acquire);
            if attention != self.attention_seen {
                self.attention_seen = attention;
                self.registry = self.shared.registry();
                if self.shared.stopping.load(Ordering::Acquire) {
                    return self.refuse_all();
                }
                for command in self.shared.commands(self.index) {
                    self.obey(command);
                }
            }
            let worked = self.pass();
            self.passes += 1;
            if worked {
                idle_since = None;
                if self.passes.is_multiple_of(COUNT_PASSES) {
                    self.publish_counts();
                }
            } else {
                // Where calls come often, the pause would be a tenth of a call.
                if self.lines.hot.is_empty() {
                    std::hint::spin_loop();
                }
                // The clock costs as much as a pass.
                if self.passes.is_multiple_of(32) {
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.shared.spin && self.sleep() {
                        idle_since = None;
                    }
                }
            }
        }
    }

    fn publish_counts(&mut self) {
        let counters = &self.shared.statistics;
        counters.packets.fetch_add(std::mem::take(&mut self.packets), Ordering::Relaxed);
        counters.posts.fetch_add(std::mem::take(&mut self.posts), Ordering::Relaxed);
    }

    /// Sleeps until there is work, which it begins with, or something else to look at. Whether there was work.
    ///
    /// A call that is rung before the device saw that this consumer sleeps comes without a hint. After the first,
    /// short sleep it is seen, and later ones come with hints: where these are reliable, sleeps are long then.
    fn sleep(&mut self) -> bool {
        self.publish_counts();
        let shared = self.shared;
        let parked = &shared.parked[self.index];
        parked.store(true, Ordering::SeqCst);
        shared.memory.region().count_sleeper(true);
        let mut longest = LONGEST_SLEEP;
        let mut worked = false;
        while !worked && shared.attention.load(Ordering::SeqCst) == self.attention_seen {
            self.report_unfinished();
            let idle = shared.attached.load(Ordering::SeqCst) == 0;
            std::thread::park_timeout(if idle { DEEP_SLEEP } else { longest });
            // Before it looks: a hint from now on ends the next sleep.
            parked.store(true, Ordering::SeqCst);
            worked = self.pass() | self.sweep();
            self.passes += 1;
            let expects_more =
                !(self.unfinished.is_empty() && self.lines.hot.is_empty() && self.rings.hot.is_empty());
            longest = if shared.reliable_hints && !expects_more { LONG_SLEEP } else { LONGEST_SLEEP };
        }
        shared.memory.region().count_sleeper(false);
        parked.store(false, Ordering::Relaxed);
        worked
    }

    /// Slots of this consumer that may be in use, counted from its first.
    fn in_use(&self) -> u32 {
        let slots = self.scanner.slots();
        self.shared.slots_in_use.load(Ordering::Relaxed).min(slots.end).saturating_sub(slots.start)
    }

    /// Looks at the hot lines and rings and now and then at a cold line. Whether there was work.
    #[inline]
    fn pass(&mut self) -> bool {
        let in_use = self.in_use();
        if in_use == 0 {
            return false;
        }
        let mut worked = false;
        let mut at = 0;
        while let Some(&(line, _)) = self.lines.hot.get(at) {
            if let Some(&(ahead, _)) = self.lines.hot.get(at + LINES_AHEAD) {
                self.scanner.prefetch_line(self.shared.memory.region(), ahead as usize);
            }
            let found = self.line(line);
            worked |= found;
            at += usize::from(self.lines.judge(at, found));
        }
        let mut at = 0;
        while let Some(&(ring, _)) = self.rings.hot.get(at) {
            let found = self.ring(ring);
            worked |= found;
            let slot = self.scanner.slots().start + ring;
            let stays = found || self.scanner.expects_posts(slot);
            at += usize::from(self.rings.judge(at, stays));
        }
        if self.passes.is_multiple_of(COLD_LINE_PASSES) {
            let line = self.lines.next_cold(in_use.div_ceil(LINE_WORDS as u32));
            worked |= self.cold_line(line);
        }
        worked
    }

    /// Looks at every line. Whether there was work.
    fn sweep(&mut self) -> bool {
        let lines = self.in_use().div_ceil(LINE_WORDS as u32);
        (0..lines).fold(false, |worked, line| self.cold_line(line) | worked)
    }

    fn cold_line(&mut self, line: u32) -> bool {
        let mut worked = false;
        if !self.lines.is_hot[line as usize] && self.line(line) {
            self.lines.heat(line);
            worked = true;
        }
        let mut bells = self.scanner.post_bells(self.shared.memory.region(), line as usize);
        while bells != 0 {
            self.rings.heat(line * LINE_WORDS as u32 + bells.trailing_zeros());
            bells &= bells - 1;
            worked = true;
        }
        worked
    }

    /// Serves the calls of a line. Whether there were any.
    #[inline]
    fn line(&mut self, line: u32) -> bool {
        let rung = self.scanner.rung(self.shared.memory.region(), line as usize);
        if rung != 0 {
            self.serve(line, rung);
        }
        rung != 0
    }

    #[inline(never)]
    fn serve(&mut self, line: u32, mut rung: u8) {
        let mut others = rung & (rung - 1);
        while others != 0 {
            let slot = self.scanner.first_slot(line as usize) + others.trailing_zeros();
            others &= others - 1;
            self.scanner.prefetch(self.shared.memory.region(), slot, &self.batch);
        }
        while rung != 0 {
            let slot = self.scanner.first_slot(line as usize) + rung.trailing_zeros();
            if self.slot(slot) {
                rung &= rung - 1;
            } else {
                self.handle();
            }
        }
        if self.batch.count() > 0 {
            self.handle();
        }
    }

    /// Has the batch's calls answered.
    fn handle(&mut self) {
        self.packets += self.batch.count() as u64;
        dispatch::batch(self.shared, &self.registry, &self.scanner, &self.batch, &mut self.replies);
        self.batch.clear();
    }

    /// Takes what a slot rang for. Whether that was possible before the batch's calls are answered.
    #[inline]
    fn slot(&mut self, slot: u32) -> bool {
        let shared = self.shared;
        let region = shared.memory.region();
        let owner = shared.owner(slot);
        if owner.cancelled && self.batch.count() > 0 {
            return false;
        }
        match self.scanner.take(region, slot, owner.launch, &mut self.batch) {
            Take::Call => {
                if !self.unfinished.is_empty() {
                    self.unfinished.retain(|(unfinished, ..)| *unfinished != slot);
                }
                if owner.cancelled {
                    self.refuse();
                }
            }
            Take::Full => return false,
            Take::NotYet => self.not_yet(slot),
            Take::PostsFirst(_) => {
                // The call is looked at again in the next pass; posts that never come make it unfinished.
                if !self.ring(slot - self.scanner.slots().start) {
                    self.not_yet(slot);
                }
            }
            Take::Garbage(_) => {
                shared.statistics.broken_slots.fetch_add(1, Ordering::Relaxed);
                (shared.on_broken)(slot, owner.launch);
            }
        }
        true
    }

    /// Answers the batch's calls with [`CallError::Cancelled`].
    fn refuse(&mut self) {
        dispatch::refuse(self.shared.memory.region(), &self.batch, CallError::Cancelled);
        self.packets += self.batch.count() as u64;
        self.batch.clear();
    }

    /// Remembers a slot that rang and has not written all that its call consists of.
    fn not_yet(&mut self, slot: u32) {
        if !self.unfinished.iter().any(|(unfinished, ..)| *unfinished == slot) {
            self.unfinished.push((slot, Instant::now(), false));
        } else if self.passes.is_multiple_of(CLOCK_PASSES) {
            self.report_unfinished();
        }
    }

    /// Takes a slot's posts. Whether there were any.
    #[inline]
    fn ring(&mut self, ring: u32) -> bool {
        let (shared, registry) = (self.shared, &self.registry);
        let slot = self.scanner.slots().start + ring;
        let region = shared.memory.region();
        let batch = self.scanner.take_posts(region, slot, &mut self.buffer, |head, posts| {
            dispatch::posts(shared, registry, slot, head, posts);
        });
        self.posts += u64::from(batch.posts);
        if batch.garbage > 0 {
            shared.statistics.garbage_posts.fetch_add(batch.garbage.into(), Ordering::Relaxed);
        }
        batch.posts + batch.garbage > 0
    }

    fn report_unfinished(&mut self) {
        for (slot, since, reported) in &mut self.unfinished {
            let waited = since.elapsed();
            if !*reported && waited >= self.shared.watchdog.stall_after() {
                *reported = true;
                let called = self.scanner.doorbell(self.shared.memory.region(), *slot);
                let entry = called.and_then(|rung| self.registry.find(rung.service()));
                let service = entry.map_or("an unknown service", |entry| entry.method.name);
                self.shared.watchdog.report(&Stall {
                    slot: *slot,
                    launch: self.shared.owner(*slot).launch,
                    service: service.to_string(),
                    waited,
                    state: StallState::Words,
                });
            }
        }
    }

    fn obey(&mut self, command: Command) {
        let first = self.scanner.slots().start;
        match command {
            Command::Flush(slots, done) => {
                for slot in slots.clone() {
                    while self.ring(slot - first) {}
                }
                self.publish_counts();
                let region = self.shared.memory.region();
                let _ = done.send({ slots }.all(|slot| self.scanner.is_quiet(region, slot)));
            }
            Command::ResizeRings(slots, entries, done) => {
                for slot in slots {
                    self.scanner.resize_ring(self.shared.memory.region(), slot, entries);
                }
                let _ = done.send(true);
            }
            Command::Reset(slots, done) => {
                for slot in slots.clone() {
                    self.scanner.reset(self.shared.memory.region(), slot);
                }
                self.unfinished.retain(|(slot, ..)| !slots.contains(slot));
                let _ = done.send(true);
            }
        }
    }

    /// Answers every call that has rung; those that ring later find the stop word.
    fn refuse_all(&mut self) {
        let region = self.shared.memory.region();
        for line in 0..self.scanner.lines() {
            let mut rung = self.scanner.rung(region, line);
            while rung != 0 {
                let slot = self.scanner.first_slot(line) + rung.trailing_zeros();
                rung &= rung - 1;
                if matches!(self.scanner.take(region, slot, 0, &mut self.batch), Take::Call) {
                    self.refuse();
                }
            }
        }
        for command in self.shared.commands(self.index) {
            self.obey(command);
        }
        self.publish_counts();
    }
}
