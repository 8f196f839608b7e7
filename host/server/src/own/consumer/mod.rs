//! A consumer thread: looks for calls and posts, and sleeps when there are none.
//!
//! The places of [`crate::engine::polling`] are lines of doorbells, which the consumers of a server share out
//! among themselves. A pass looks at *hot* lines, where there was a call lately, and at some cold ones in
//! turn. While the calls of some lines are served, those of the next are found, and the cache lines of their
//! replies are prefetched for writing. Post rings are visited only while they are hot, which their post bells
//! make them.
//!
//! A wave leaves a *hint* before its first call, in one of a few words, so that its line is found in the next
//! pass. Of two hints that come at once one may be lost; then the line is found in its turn. After each sleep
//! the consumer looks at the hints, at lines of waves that have called or posted and whose launch has not
//! ended, and at some others in turn; at all lines if it was woken or saw a hint and these had nothing.
//!
//! | situation | longest sleep |
//! |---|---|
//! | no launch runs, and there is no context | 1 s ([`DEEP_SLEEP`]) |
//! | the device's wake-ups always arrive, from the second sleep on | 100 ms ([`LONG_SLEEP`]) |
//! | no call or post for over 100 ms | 2.2 ms ([`LONGEST_QUIET_SLEEP`]) |
//! | else | a 16th of the time since the last call or post, 5 us to 0.7 ms |
//!
//! Whoever calls for the consumer's attention (a launch that begins) has it look on as after work.

mod hot;
mod posts;

use super::dispatch;
use super::inline::Inline;
use super::registry::Registry;
use super::shared::{Command, ConsumerCounts, Shared};
use super::unfinished::UnfinishedCalls;
use crate::engine::polling::{self, Endpoint, HotSet, SLEEP_PART};
use crate::engine::watchdog::WaitsFor;
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::status::CallError;
use hostcall_channel::host::{Batch, PostBuffer, Scanner, Take};
use hostcall_service::Replies;
pub(super) use hot::HotRings;
use hot::{CALLS_AHEAD, Found, KnownLines};
use posts::{Flush, Visit};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The method by which a lane makes a line known before it posts it first.
const REGISTER_FORMAT: &str = "System::register_format";

/// Cold lines of doorbells and post bells that a pass looks at beside hot ones: all of 9000 slots are seen in some 300
/// passes. A line takes some 5 ns. A first call has a hint, which is looked at once a pass: so passes without work are short
/// too.
const COLD_LINES: u32 = 4;

/// Cold lines that a pass looks at between two sleeps: all lines of 9472 slots are seen after 19 sleeps.
const COLD_LINES_ASLEEP: u32 = 64;

/// Passes between two looks at the clock while a call is unfinished.
const CLOCK_PASSES: u64 = 256;

/// Hot lines ahead of the one looked at whose doorbells are asked for: a line that a device wrote takes 100 ns to
/// come, and some 20 ns to look at when it has calls.
const LINES_AHEAD: usize = 8;

/// Hot lines without calls after which those found before are served.
const FRUITLESS_AHEAD: u32 = 4;

/// Shortest sleep. To sleep and to wake up takes the thread as long.
const SHORTEST_SLEEP: Duration = Duration::from_micros(5);

/// Longest sleep while a hint may get lost: within this time a call is found all the same.
const LONGEST_SLEEP: Duration = Duration::from_micros(700);

/// Longest sleep after [`QUIET`] while a hint may get lost: an idle server's processor time is that of its waking up.
const LONGEST_QUIET_SLEEP: Duration = Duration::from_micros(2200);

/// Time without calls and posts after which sleeps get longer.
const QUIET: Duration = Duration::from_millis(100);

/// Sweeps of all lines after a hint.
const HINTED_SWEEPS: u32 = 4;

/// Longest sleep on devices whose wake-ups always arrive. It bounds how late the consumer notices a stop that
/// nobody wakes it for.
const LONG_SLEEP: Duration = Duration::from_millis(100);

/// Longest sleep while no launch runs.
const DEEP_SLEEP: Duration = Duration::from_secs(1);

pub(crate) struct Consumer<'s> {
    shared: &'s Arc<Shared>,
    index: usize,
    /// Says what handler the thread runs.
    inline: &'s Inline,
    counts: &'s ConsumerCounts,
    scanner: Scanner,
    batch: Batch,
    replies: Box<Replies>,
    buffer: PostBuffer,
    registry: Arc<Registry>,
    lines: HotSet,
    known: KnownLines,
    /// Sweeps that look at all lines because a hint of a first call or post was seen: its wave may ring later, and so may the
    /// one whose hint it replaced.
    hinted_sweeps: u32,
    is_asleep: bool,
    rings: HotRings,
    passes: u64,
    unfinished: UnfinishedCalls,
    flushing: Vec<Flush>,
}

impl<'s> Consumer<'s> {
    pub fn new(shared: &'s Arc<Shared>, index: usize, scanner: Scanner) -> Self {
        Self {
            shared,
            index,
            inline: &shared.inline[index],
            counts: &shared.statistics.consumers[index],
            batch: Batch::new(),
            replies: Box::new(Replies::EMPTY),
            buffer: PostBuffer::new(),
            registry: shared.registry(),
            lines: HotSet::new(scanner.lines()),
            known: KnownLines::new(scanner.lines()),
            hinted_sweeps: 0,
            is_asleep: false,
            rings: HotRings::new(scanner.slots().len()),
            unfinished: UnfinishedCalls::new(&scanner.slots()),
            scanner,
            passes: 0,
            flushing: Vec::new(),
        }
    }

    /// Serves until the server stops; then answers what has rung.
    pub fn run(mut self) {
        let attention = &self.shared.consumers[self.index];
        polling::run(&mut self, attention);
    }

    /// Looks at so many cold lines in turn.
    fn cold_lines(&mut self, count: u32) -> bool {
        (0..count.min(self.scanner.lines() as u32)).fold(false, |worked, _| {
            let line = self.lines.next_in_turn();
            self.cold_line(line) | worked
        })
    }

    fn cold_line(&mut self, line: u32) -> bool {
        let mut worked = false;
        if !self.lines.is_hot(line) {
            let rung = self.scanner.rung(self.shared.memory.region(), line as usize);
            if rung != 0 {
                self.serve(&Found::of(line, rung));
                self.lines.heat(line);
                self.known.add(line);
                worked = true;
            }
        }
        self.look_at_bells(line) | worked
    }

    /// Looks at the post bells of a line, and from now on at the rings of those that rang. A bell rings once in a period, so
    /// that whoever sees it has to look at the ring.
    fn look_at_bells(&mut self, line: u32) -> bool {
        let mut bells = self.scanner.post_bells(self.shared.memory.region(), line as usize);
        if bells == 0 {
            return false;
        }
        self.known.add(line);
        while bells != 0 {
            self.rings.heat(line * LINE_WORDS as u32 + bells.trailing_zeros());
            bells &= bells - 1;
        }
        true
    }

    /// Looks at hot lines, from the one at `at` among them on, until some have calls or several have none.
    #[inline]
    fn look(&mut self, at: &mut usize) -> Found {
        let region = self.shared.memory.region();
        let mut found = Found::default();
        let (mut calls, mut fruitless) = (0, 0);
        while let Some(line) = self.lines.get(*at) {
            if let Some(ahead) = self.lines.get(*at + LINES_AHEAD) {
                self.scanner.prefetch_line(region, ahead as usize);
            }
            let rung = self.scanner.rung(region, line as usize);
            *at += usize::from(self.lines.judge(*at, rung != 0));
            if rung == 0 {
                fruitless += 1;
                if fruitless == FRUITLESS_AHEAD {
                    break;
                }
                continue;
            }
            calls += self.scanner.prefetch(region, line as usize, rung, &self.batch);
            found.push(line, rung);
            if calls >= CALLS_AHEAD {
                break;
            }
        }
        found
    }

    /// Serves the calls that were found.
    #[inline(never)]
    fn serve(&mut self, found: &Found) {
        let region = self.shared.memory.region();
        let launches = &self.shared.launches;
        for &(line, mut rung) in &found.lines[..found.count] {
            while rung != 0 {
                // `take_call` does more for calls that could not be taken before.
                if self.unfinished.is_empty() {
                    let is_live = |launch| launches.is_live(launch);
                    let forget = |slot| self.shared.messages.forget(slot);
                    let batch = &mut self.batch;
                    rung = self.scanner.take_short(region, line as usize, rung, batch, is_live, forget);
                }
                if rung == 0 {
                    break;
                }
                let goes_on = self.take_call(self.scanner.first_slot(line as usize) + rung.trailing_zeros());
                if goes_on {
                    rung &= rung - 1;
                }
                if !goes_on || self.batch.is_full() {
                    self.handle();
                }
            }
        }
        if self.batch.count() > 0 {
            self.handle();
        }
    }

    /// Has the batch's calls answered.
    fn handle(&mut self) {
        // Before the answers: whoever has them finds the calls counted.
        self.counts.packets.add(self.batch.count() as u64);
        let Self { shared, inline, registry, scanner, batch, replies, .. } = self;
        dispatch::batch(shared, inline, registry, scanner, batch, replies);
        self.batch.clear();
    }

    /// Adds a slot's call to the batch. Returns `false` if the batch must be answered first.
    #[inline(never)]
    fn take_call(&mut self, slot: u32) -> bool {
        let shared = self.shared;
        let region = shared.memory.region();
        let is_live = |launch| shared.launches.is_live(launch);
        let mut take = self.scanner.take(region, slot, &mut self.batch, is_live);
        if matches!(take, Take::NewOwner) {
            shared.messages.forget(slot);
            take = self.scanner.take(region, slot, &mut self.batch, is_live);
        }
        match take {
            Take::Call => self.no_longer_unfinished(slot),
            Take::OfDeadLaunch => {
                self.no_longer_unfinished(slot);
                // A line may have begun before another lane panicked: it is to be posted, so that it is printed with the others.
                match self.registry.find(self.batch.rung().service()) {
                    Some(entry) if entry.method.name() == REGISTER_FORMAT => self.handle(),
                    _ => self.refuse(),
                }
            }
            Take::Full => return false,
            // A device that changes its mind faster than it is read waits for the next pass.
            Take::NotYet | Take::NewOwner => self.not_yet(slot, WaitsFor::Words),
            // The call is looked at again in the next pass; posts that never come make it unfinished.
            Take::PostsFirst(home) => {
                let slots = self.scanner.slots();
                let visit =
                    if slots.contains(&home) { self.take_posts(home - slots.start) } else { Visit::Nothing };
                match visit {
                    Visit::Taken => {}
                    Visit::Nothing => self.not_yet(slot, WaitsFor::Words),
                    Visit::Declined => self.not_yet(slot, WaitsFor::Posts),
                }
            }
            Take::Garbage(launch) => {
                shared.statistics.broken_slots.fetch_add(1, Ordering::Relaxed);
                shared.fault(
                    launch,
                    format!(
                        "the device wrote what is no call where the wave in slot {slot} was to write one: memory was \
                         overwritten, or the kernel was built with another version of hostcall"
                    ),
                );
            }
        }
        true
    }

    /// Forgets that a slot rang without writing all that its call consists of.
    #[inline(always)]
    fn no_longer_unfinished(&mut self, slot: u32) {
        if !self.unfinished.is_empty() {
            self.unfinished.remove(slot);
        }
    }

    /// Answers the batch's calls with [`CallError::Cancelled`].
    fn refuse(&mut self) {
        self.counts.packets.add(self.batch.count() as u64);
        dispatch::refuse(self.shared, &self.batch, CallError::Cancelled);
        self.batch.clear();
    }

    /// Remembers a slot that rang and whose call cannot be taken.
    fn not_yet(&mut self, slot: u32, waits_for: WaitsFor) {
        if self.unfinished.note(slot, waits_for) && self.passes.is_multiple_of(CLOCK_PASSES) {
            self.report_unfinished();
        }
    }

    fn report_unfinished(&mut self) {
        let (shared, scanner, registry) = (self.shared, &self.scanner, &self.registry);
        let now = Instant::now();
        for unfinished in self.unfinished.iter_mut() {
            let slot = unfinished.slot;
            let waited = now.duration_since(*unfinished.since.get_or_insert(now));
            if unfinished.is_reported || waited < shared.engine.watchdog.stall_after() {
                continue;
            }
            unfinished.is_reported = true;
            let called = scanner.doorbell(shared.memory.region(), slot);
            let entry = called.and_then(|rung| registry.find(rung.service()));
            let (launch, lanes) = (scanner.owner(slot), called.map_or(1, |rung| rung.lanes()));
            let service = entry.map_or("an unknown service", |entry| entry.method.name()).to_string();
            let waits_for = unfinished.waits_for;
            shared.engine.stalled(shared.waiting(slot, launch, lanes, service, waited, waits_for));
        }
    }

    fn obey(&mut self, command: Command) {
        let own = self.scanner.slots();
        match command {
            Command::Nothing(done) => _ = done.send(()),
            Command::Flush(launches, done) => {
                for line in 0..self.scanner.lines() {
                    self.look_at_bells(line as u32);
                }
                self.flushing.push(Flush { slot: own.start, launches, done });
                self.flush();
            }
            Command::Ignore(slots, done) => {
                slots.iter().filter(|slot| own.contains(slot)).for_each(|slot| self.scanner.ignore(*slot));
                let _ = done.send(());
            }
            Command::Reset(slots, done) => {
                slots.iter().filter(|slot| own.contains(slot)).for_each(|slot| self.reset(*slot));
                slots.iter().for_each(|slot| self.unfinished.remove(*slot));
                let _ = done.send(());
            }
            #[cfg(test)]
            Command::Run(run) => run(),
        }
    }

    /// Answers the calls that have rung, but for those that cannot be taken yet, and obeys the last commands. Lanes of all
    /// others see the stop word.
    fn refuse_all(&mut self) {
        let region = self.shared.memory.region();
        for line in 0..self.scanner.lines() {
            let mut rung = self.scanner.rung(region, line);
            while rung != 0 {
                let slot = self.scanner.first_slot(line) + rung.trailing_zeros();
                rung &= rung - 1;
                let mut take = || self.scanner.take(region, slot, &mut self.batch, |_| true);
                if matches!(take(), Take::Call) || matches!(take(), Take::Call) {
                    self.refuse();
                }
            }
        }
        for command in self.shared.commands(self.index) {
            self.obey(command);
        }
        // Whoever waits for a flush learns that it does not come.
        self.shared.end_commands(self.index);
    }
}

impl Endpoint for Consumer<'_> {
    fn attend(&mut self) -> bool {
        self.registry = self.shared.registry();
        if self.shared.stopping.load(Ordering::Acquire) {
            self.refuse_all();
            return false;
        }
        for command in self.shared.commands(self.index) {
            self.obey(command);
        }
        true
    }

    #[inline]
    fn pass(&mut self) -> bool {
        self.passes += 1;
        let mut worked = false;
        // First, so that this pass finds the calls.
        let (lines, known, hinted_sweeps) = (&mut self.lines, &mut self.known, &mut self.hinted_sweeps);
        self.scanner.first_calls(self.shared.memory.region(), |line| {
            lines.heat(line as u32);
            known.add(line as u32);
            *hinted_sweeps = HINTED_SWEEPS;
        });
        let mut at = 0;
        // What calls need is on its way while the ones before are served.
        let mut found = self.look(&mut at);
        while found.count > 0 || self.lines.get(at).is_some() {
            let next = self.look(&mut at);
            if found.count > 0 {
                worked = true;
                self.serve(&found);
            }
            found = next;
        }
        if !self.rings.hot.is_empty() {
            worked |= self.hot_rings();
        }
        worked |= self.cold_lines(if self.is_asleep { COLD_LINES_ASLEEP } else { COLD_LINES });
        if !self.flushing.is_empty() {
            worked |= self.flush();
        }
        if self.passes.is_multiple_of(CLOCK_PASSES) {
            self.scanner.look_at_broken(self.shared.memory.region());
        }
        worked
    }

    /// Calls and posts that come without a hint, because they are not a wave's first, are in known lines. A hint that others
    /// replaced when they came at the same time is made up for by a look at all lines: after the others, and in a sleep's
    /// first sweep. Where sleeps are long, whatever woke the consumer is in some line.
    fn sweep(&mut self, again: bool) -> bool {
        self.scanner.look_at_broken(self.shared.memory.region());
        let mut worked = false;
        for at in 0..self.known.list.len() {
            worked |= self.cold_line(self.known.list[at]);
        }
        if worked || again && self.hinted_sweeps == 0 && !self.shared.wakes_reliably {
            return worked;
        }
        self.hinted_sweeps = self.hinted_sweeps.saturating_sub(1);
        (0..self.scanner.lines() as u32).fold(false, |worked, line| self.cold_line(line) | worked)
    }

    #[inline(always)]
    fn is_busy(&self) -> bool {
        !self.lines.is_empty()
    }

    fn set_asleep(&mut self, asleep: bool) {
        // Hot lines are known ones, at which it looks between sleeps.
        if asleep {
            self.lines.cool();
        }
        self.is_asleep = asleep;
        self.shared.memory.region().count_sleeper(asleep);
    }

    /// A call that is rung before the device saw that this consumer sleeps comes without a wake-up. After the
    /// first, short sleep it is seen, and later ones come with wake-ups: where these always arrive, sleeps
    /// are long then.
    fn longest_sleep(&mut self, idle: Duration, again: bool) -> Duration {
        self.report_unfinished();
        let Self { known, scanner, lines, shared, .. } = self;
        known.forget_one(|line| {
            let mut owners = scanner.owners(shared.memory.region(), line as usize);
            !lines.is_hot(line) && !owners.any(|launch| shared.launches.is_known(launch))
        });
        let expects_more = !(self.unfinished.is_empty()
            && self.lines.is_empty()
            && self.rings.hot.is_empty()
            && self.flushing.is_empty());
        if !self.shared.launches.may_call() {
            DEEP_SLEEP
        } else if again && self.shared.wakes_reliably && !expects_more {
            LONG_SLEEP
        } else if idle > QUIET && !expects_more {
            LONGEST_QUIET_SLEEP
        } else {
            // A call that comes some time after the one before waits little longer because of a sleep.
            (idle / SLEEP_PART).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
        }
    }
}
