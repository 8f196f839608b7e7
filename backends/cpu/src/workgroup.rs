//! A resident workgroup: turns of its waves, its barrier, and how its lanes end.
//!
//! A turn lets each lane that can run do so until it gives way, so that lanes which wait for each other all
//! get on. Lanes at a barrier go on once all that have not ended are there. Where all wait for each other for
//! good, the launch fails.
//!
//! The seat owns the workgroup from when it begins until all lanes have ended; then [`Workgroup::retire`]
//! gives back its slots. A wave's slot is abandoned if a lane of it was ended in the middle, since a call may
//! be in flight on it. Memory and records are the lanes' until the last has ended: then the seat uses the
//! memory again, unless lanes were ended by force.

use crate::config::Draws;
use crate::executor::Retired;
use crate::lane::{Ending, Lane, Request, Resumed};
use crate::launch::{LaunchError, SeatRun};
use crate::leaked;
use crate::operations::OPERATIONS;
use crate::seat::{CacheLine, Returned, Seat};
use crate::wave::{Wave, bits};
use hostcall_abi::cpu::{CpuLane, OtherBarrier};
use hostcall_abi::layout::{NO_SLOT, WaveRecordWords};
use std::cell::{Cell, OnceCell, UnsafeCell};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Passes over a wave in one turn, as long as its lanes get on.
const PASSES: u32 = 16;

/// A resident workgroup. It stays on the seat that took it on.
pub(crate) struct Workgroup {
    run: SeatRun,
    /// Owns the workgroup.
    seat: *const Seat,
    position: [u32; 3],
    waves: Vec<Wave>,
    /// The lanes that have given way and not ended, by their indices. Empty until one does.
    lanes: OnceCell<Box<[LanePlace]>>,
    /// Turns that an injected fault leaves each lane out for, plus one; empty without such faults.
    delays: Vec<Cell<u8>>,
    memory: Vec<CacheLine>,
    /// What each wave's lanes share; never moved, as lanes are pointed to it.
    records: Box<[UnsafeCell<WaveRecordWords>]>,
    /// Lanes that have not ended.
    pub live: Cell<u32>,
    exited: Cell<u64>,
    panicked: Cell<u64>,
    /// Lanes that did not come to their ends.
    forced: Cell<u64>,
}

impl Workgroup {
    /// The workgroup of this number, with a slot for each of its waves.
    pub fn new(seat: &Seat, run: SeatRun, number: u64, slots: impl Iterator<Item = u32>) -> Rc<Workgroup> {
        let config = &seat.shared.config;
        let (grid, wave_size) = (run.grid, config.wave_size);
        let position = unflatten(number, grid.workgroups);
        let mut memory = seat.memories.borrow_mut().pop().unwrap_or_default();
        memory.clear();
        memory.resize(run.params.workgroup_memory_bytes.div_ceil(64) as usize, CacheLine::ZERO);
        let lanes_of = |wave: u32| (grid.lanes - wave * wave_size).min(wave_size);
        let wave = |(wave, slot): (u32, u32)| {
            let draws = Draws::new(config.faults.seed, run.id, number, wave.into());
            Wave::new(slot, lanes_of(wave), draws)
        };
        let waves: Vec<_> = (0..).zip(slots).map(wave).collect();
        let records = waves.iter().map(|_| UnsafeCell::new(WaveRecordWords::BEGIN)).collect();
        let delays = if config.faults.delay_lanes > 0.0 { grid.lanes } else { 0 };
        Rc::new(Workgroup {
            seat,
            position,
            waves,
            lanes: OnceCell::new(),
            delays: vec![Cell::new(0); delays as usize],
            memory,
            records,
            live: Cell::new(grid.lanes),
            exited: Cell::new(0),
            panicked: Cell::new(0),
            forced: Cell::new(0),
            run,
        })
    }

    /// What the lanes from `first` up to `end` of a wave have when they begin.
    fn abi(&self, number: u32, wave: &Wave, first: u32, end: u32) -> CpuLane {
        let config = &self.seat().shared.config;
        CpuLane {
            lane: first.into(),
            end: end.into(),
            wave_size: config.wave_size,
            wave: number,
            workgroup: self.position,
            proposed_slot: wave.slot,
            wave_lanes: (self.run.grid.lanes - number * config.wave_size).min(config.wave_size),
            launch: &self.run.params,
            record: self.records[number as usize].get(),
            workgroup_memory: self.memory.as_ptr().cast_mut().cast(),
            cancelled: &self.run.cancelled,
            operations: &OPERATIONS,
            executor: ptr::null_mut(),
            bell_period_ns: config.faults.bell_period_ns,
            unwinding: None,
        }
    }

    pub fn run(&self) -> &SeatRun {
        &self.run
    }

    pub fn seat(&self) -> &Seat {
        // SAFETY: the seat owns the workgroup, and lives until the executor's threads have ended.
        unsafe { &*self.seat }
    }

    /// A lane's wave, and the lane's bit in its masks.
    pub fn wave_of(&self, lane: &Lane) -> (&Wave, u64) {
        let (lane, wave) = lane.place();
        (&self.waves[wave as usize], 1 << lane)
    }

    /// Whether an injected fault keeps a notification from the host.
    pub fn draws_loss(&self, wave: &Wave) -> bool {
        wave.draws.happens(self.seat().shared.config.faults.lose_notifications)
    }

    /// Whether an injected fault ends the wave, now that a lane of it waits.
    pub fn draws_death(&self, wave: &Wave) -> bool {
        let dies = wave.draws.happens(self.seat().shared.config.faults.kill_wave);
        if dies {
            wave.dying.set(true);
        }
        dies
    }

    /// The lanes of a wave that are alone.
    fn lanes_of(&self, wave: usize) -> Lanes<'_> {
        let wave_size = self.seat().shared.config.wave_size as usize;
        let lanes = self.lanes.get().map_or(&[][..], |lanes| &lanes[wave * wave_size..]);
        Lanes(lanes)
    }

    /// Notes a lane that is alone now. Returns its wave, and its bit in the wave's masks.
    #[inline(always)]
    fn note_alone(&self, lane: &Lane) -> (&Wave, u64) {
        let (index, number) = lane.note_alone();
        let (wave, bit) = (&self.waves[number as usize], 1 << index);
        let fresh = wave.fresh.get();
        if fresh & bit != 0 {
            wave.fresh.set(fresh & !bit);
            let all = self.run.grid.lanes as usize;
            let lanes = self.lanes.get_or_init(|| (0..all).map(|_| LanePlace::default()).collect());
            let wave_size = self.seat().shared.config.wave_size;
            lanes[(number * wave_size + index) as usize].0.set(lane);
        }
        (wave, bit)
    }

    /// Notes that a lane has taken its thread away.
    pub fn depart(&self, lane: &Lane) {
        let (wave, bit) = self.note_alone(lane);
        wave.depart(bit);
    }

    /// Notes that the lanes of a wave from `first` up to `end` have ended.
    pub fn end_run(&self, wave: u32, first: u32, end: u32) {
        let count = end - first;
        self.waves[wave as usize].remove(u64::MAX >> (64 - count) << first);
        self.live.set(self.live.get() - count);
        Seat::count(&self.seat().live_lanes, -count.cast_signed());
    }

    /// Runs the lanes that can run, each until it blocks or pauses. When one of them took this thread away from
    /// the seat, that lane comes back: another thread may have the workgroup now, so nothing else is touched.
    pub fn turn(&self) -> Option<Returned> {
        if self.run.cancelled() {
            self.cancel();
        }
        for (index, wave) in self.waves.iter().enumerate() {
            // Once lanes are ended by force, those that a signal would have to end next need not start.
            if wave.live.get() != 0 && !self.killed() {
                if let Some(returned) = self.turn_wave(index as u32, wave) {
                    return Some(returned);
                }
                if wave.dying.get() && wave.live.get() & !wave.away.get() != 0 {
                    self.end_all(index as u32, wave);
                    let error = LaunchError::WaveDied { workgroup: self.position, wave: index as u32 };
                    self.seat().shared.report(&self.run, error);
                }
            }
        }
        let at_barrier: u32 = self.waves.iter().map(|wave| wave.at_barrier.get().count_ones()).sum();
        if at_barrier > 0 && at_barrier == self.live.get() {
            self.compare_barriers();
            self.waves.iter().for_each(Wave::pass_barrier);
            self.seat().progress.set(true);
        }
        let exchanging: u32 = self.waves.iter().map(|wave| wave.exchanging.get().count_ones()).sum();
        let all_wait = exchanging > 0 && at_barrier + exchanging == self.live.get();
        let can_go_on =
            || (0..).zip(&self.waves).any(|(index, wave)| wave.can_exchange(self.lanes_of(index)));
        if all_wait && !self.run.cancelled() && !can_go_on() {
            let error = LaunchError::Stuck { workgroup: self.position, at_barrier, exchanging };
            self.seat().shared.report(&self.run, error);
        }
        None
    }

    /// The lanes at a barrier, with their indices in the workgroup, where they wait, and what each gets to know.
    fn at_barrier(&self) -> impl Iterator<Item = (u32, u64, *mut OtherBarrier)> {
        let wave_size = self.seat().shared.config.wave_size;
        let lanes = (0..).zip(&self.waves).flat_map(move |(number, wave)| {
            bits(wave.at_barrier.get()).map(move |index| number * wave_size + index as u32)
        });
        let all = self.lanes_of(0);
        lanes.filter_map(move |lane| match all.get(lane as usize).request.get() {
            Request::Barrier { site, other } => Some((lane, site, other)),
            _ => None,
        })
    }

    /// Tells lanes that wait at different barriers of each other.
    fn compare_barriers(&self) {
        let first = self.at_barrier().next().map(|(_, site, _)| site);
        if self.at_barrier().all(|(_, site, _)| Some(site) == first) {
            return;
        }
        let mut barriers: Vec<OtherBarrier> = Vec::new();
        for (lane, site, _) in self.at_barrier() {
            match barriers.iter_mut().find(|barrier| barrier.site == site) {
                Some(barrier) => barrier.lanes += 1,
                None => barriers.push(OtherBarrier { site, lanes: 1, first: lane }),
            }
        }
        for (_, site, other) in self.at_barrier() {
            let others = barriers.iter().filter(|barrier| barrier.site != site);
            if let Some(most) = others.max_by_key(|barrier| barrier.lanes) {
                // SAFETY: the kernel gave a place to write to, on the stack of a lane that is blocked.
                unsafe { other.write(*most) };
            }
        }
    }

    fn turn_wave(&self, number: u32, wave: &Wave) -> Option<Returned> {
        let delay = self.seat().shared.config.faults.delay_lanes;
        for _ in 0..PASSES {
            let lanes = self.lanes_of(number as usize);
            self.seat().wake_by(wave.poll(lanes));
            wave.let_go_on(lanes, delay);
            wave.paused.set(0);
            let mut left = wave.ready.get();
            let mut got_on = 0;
            while left != 0 {
                let index = left.trailing_zeros();
                let bit = 1 << index;
                left &= !bit;
                if delay > 0.0 && self.delayed(number, wave, index) {
                    self.seat().progress.set(true);
                    continue;
                }
                got_on |= bit;
                let resumed = if wave.fresh.get() & bit == 0 {
                    self.go_on(self.lanes_of(number as usize).get(index as usize))
                } else if self.run.cancelled() {
                    // It need not begin: the next turn ends it.
                    continue;
                } else {
                    // An injected fault delays each by itself.
                    let end = if delay > 0.0 { index + 1 } else { wave.fresh_from(index) };
                    match self.seat().lane() {
                        Ok(lane) => self.go_on(lane.begin(self, self.abi(number, wave, index, end))),
                        Err(error) => {
                            let sentence = format!(
                                "no memory or no thread for a lane's stack: {error}; lower `resident_lanes`"
                            );
                            self.seat().shared.stop(&self.run, LaunchError::NoStack(sentence));
                            return None;
                        }
                    }
                };
                match resumed {
                    Ok(last) => {
                        // Those that began in the place of this lane had their turn.
                        let had = u64::MAX >> (63 - last);
                        got_on |= left & had;
                        left &= !had;
                        if self.killed() {
                            return None;
                        }
                    }
                    Err(returned) => return Some(returned),
                }
            }
            let paused = wave.paused.get();
            if paused != 0 {
                self.seat().paused.set(true);
            }
            if got_on & !paused == 0 || wave.dying.get() {
                break;
            }
            self.seat().progress.set(true);
            if wave.live.get() == 0 {
                break;
            }
        }
        None
    }

    /// Goes on with a lane until it gives way or ends, and so do those that follow it there. Returns the index of the last
    /// one.
    #[inline(always)]
    fn go_on(&self, lane: &Lane) -> Result<u32, Returned> {
        match lane.resume(self.seat()) {
            Resumed::GaveWay => Ok(self.note_alone(lane).1.trailing_zeros()),
            Resumed::Ended(ending) => Ok(self.end(lane, ending)),
            Resumed::Away(ending) => Err(Returned { lane, ending }),
        }
    }

    /// Takes back a lane that was away: it can run, or has ended.
    pub fn take_back(&self, lane: &Lane, ending: Option<Ending>) {
        let (wave, bit) = self.note_alone(lane);
        wave.come_back(bit);
        if let Some(ending) = ending {
            self.end(lane, ending);
        }
    }

    fn killed(&self) -> bool {
        self.run.kill.load(Ordering::Relaxed)
    }

    /// Lets lanes of a cancelled launch find out, or ends them once the grace is over.
    fn cancel(&self) {
        let kill = self.killed();
        for (number, wave) in (0..).zip(&self.waves) {
            if kill {
                self.end_all(number, wave);
                continue;
            }
            let fresh = wave.fresh.get();
            self.exited.set(self.exited.get() + u64::from(fresh.count_ones()));
            self.note_end(wave, fresh);
            wave.let_go(self.lanes_of(number as usize));
        }
    }

    /// Ends the wave's lanes where they are, but for those that are away, which a signal ends.
    fn end_all(&self, number: u32, wave: &Wave) {
        let lanes = self.lanes_of(number as usize);
        let fresh = wave.fresh.get();
        for index in bits(wave.live.get() & !wave.away.get() & !fresh) {
            self.end(lanes.get(index), Ending::Killed);
        }
        if fresh != 0 {
            wave.abandoned.set(true);
            self.note_end(wave, fresh);
        }
    }

    /// Takes ended lanes out of the counts.
    fn note_end(&self, wave: &Wave, lanes: u64) {
        let count = lanes.count_ones();
        wave.remove(lanes);
        self.live.set(self.live.get() - count);
        Seat::count(&self.seat().live_lanes, -count.cast_signed());
    }

    /// Notes how the last of the lanes ended that ran in one place. Returns its index in the wave.
    fn end(&self, lane: &Lane, ending: Ending) -> u32 {
        lane.take_all_back();
        let (index, number) = lane.note_alone();
        let wave = &self.waves[number as usize];
        self.note_end(wave, 1 << index);
        // SAFETY: it is out of the wave's masks, so nobody looks for it.
        match unsafe { lane.reclaim() } {
            Some(lane) => self.seat().keep(lane),
            None => {
                leaked::count();
                self.forced.set(self.forced.get() + 1);
            }
        }
        let lane = number * self.seat().shared.config.wave_size + index;
        let workgroup = self.position;
        let error = match ending {
            Ending::Done => return index,
            Ending::Exited => {
                self.exited.set(self.exited.get() + 1);
                return index;
            }
            Ending::Panicked => {
                self.panicked.set(self.panicked.get() + 1);
                self.seat().shared.report(&self.run, LaunchError::Panicked { lanes: 0 });
                return index;
            }
            Ending::Killed => {
                wave.abandoned.set(true);
                return index;
            }
            Ending::Overflow => LaunchError::StackOverflow { workgroup, lane },
            Ending::Fault { signal, address } => LaunchError::Fault { signal, address, workgroup, lane },
        };
        wave.abandoned.set(true);
        self.seat().shared.report(&self.run, error);
        index
    }

    /// Whether an injected fault leaves a ready lane out of this pass.
    fn delayed(&self, number: u32, wave: &Wave, index: u32) -> bool {
        let config = &self.seat().shared.config;
        let left = &self.delays[(number * config.wave_size + index) as usize];
        let delay = match left.get() {
            0 if wave.draws.happens(config.faults.delay_lanes) => 1 + (wave.draws.next() % 16) as u8 + 1,
            0 => return false,
            delay => delay,
        };
        left.set(delay - 1);
        delay > 1
    }

    /// Whether all lanes have ended.
    pub fn is_over(&self) -> bool {
        self.live.get() == 0
    }

    /// Returns whether lanes were ended in the middle of their code, so that the workgroup stays as it is for
    /// good (LEAKED, see [`Lane`]).
    pub fn is_leaked(&self) -> bool {
        self.forced.get() > 0
    }

    /// Gives back what the workgroup has, whose lanes have all ended.
    pub fn retire(&self, retired: &mut Retired) {
        // A wave some of whose lanes never began ends without giving its slot back.
        let holds_slot = |record: &UnsafeCell<WaveRecordWords>| {
            // SAFETY: the field of a record that lives as long as the workgroup, which lanes access atomically.
            unsafe { AtomicU32::from_ptr(&raw mut (*record.get()).slot) }.load(Ordering::Relaxed) != NO_SLOT
        };
        for (wave, record) in self.waves.iter().zip(&self.records) {
            let is_lost = wave.abandoned.get() || holds_slot(record);
            let slots = if is_lost { &mut retired.tally.abandoned_slots } else { &mut retired.good_slots };
            slots.push(wave.slot);
        }
        retired.workgroups += 1;
        retired.tally.workgroups += 1;
        retired.tally.lanes += u64::from(self.run.grid.lanes);
        retired.tally.exited += self.exited.get();
        retired.tally.panicked += self.panicked.get();
        retired.tally.forced += self.forced.get();
    }
}

impl Drop for Workgroup {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        self.seat().memories.borrow_mut().push(memory);
    }
}

/// Where a workgroup keeps a lane that is alone.
pub(crate) struct LanePlace(Cell<*const Lane>);

impl Default for LanePlace {
    fn default() -> LanePlace {
        LanePlace(Cell::new(ptr::null()))
    }
}

/// The lanes of a wave that are alone, by their indices.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<'a>(&'a [LanePlace]);

impl<'a> Lanes<'a> {
    /// The lane of this index, which has given way or is away, and whose end was not noted.
    pub fn get(self, index: usize) -> &'a Lane {
        // SAFETY: `note_alone` set it, and `end` frees it when it takes the lane out of the wave's masks.
        unsafe { &*self.0[index].0.get() }
    }
}

/// Position of the element `number` of a box with these sizes, x fastest.
fn unflatten(number: u64, sizes: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = sizes.map(u64::from);
    [number % x, number / x % y, number / (x * y)].map(|n| n as u32)
}
