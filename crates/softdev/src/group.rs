use crate::config::Draws;
use crate::executor::Admitted;
use crate::lane::{Ending, Lane, Request, Resumed};
use crate::launch::{LaunchError, Run, Tally};
use crate::operations::OPERATIONS;
use crate::seat::{Line, Returned, Seat};
use crate::wave::{Wave, bits};
use hostcall_abi::cpu::{CpuLane, OtherBarrier};
use hostcall_abi::layout::{NO_SLOT, WaveRecordWords};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Passes over a wave in one turn, as long as its lanes get on.
const PASSES: u32 = 16;

/// A resident workgroup. It stays on the seat that took it on.
pub(crate) struct Group {
    run: Arc<Run>,
    /// Owns the workgroup.
    seat: *const Seat,
    position: [u32; 3],
    waves: Vec<Wave>,
    /// All waves' lanes, in order; never moved, as lanes are pointed to.
    lanes: Vec<Lane>,
    memory: Vec<Line>,
    /// What each wave's lanes share; never moved, as lanes are pointed to it.
    records: Box<[UnsafeCell<WaveRecordWords>]>,
    /// Lanes that have not ended.
    pub live: Cell<u32>,
    exited: Cell<u64>,
    panicked: Cell<u64>,
}

impl Group {
    pub fn new(seat: &Seat, admitted: Admitted) -> Rc<Group> {
        let Admitted { run, number, slots } = admitted;
        let config = &seat.shared.config;
        let (grid, wave_size) = (run.grid, config.wave_size);
        let position = unflatten(number, grid.workgroups);
        let mut memory = seat.memories.borrow_mut().pop().unwrap_or_default();
        memory.clear();
        memory.resize(run.params.workgroup_memory_bytes.div_ceil(64) as usize, Line::ZERO);
        let lanes_of = |wave: u32| (grid.lanes - wave * wave_size).min(wave_size);
        let wave = |(wave, &slot): (u32, &u32)| {
            let draws = Draws::new(config.faults.seed, run.id, number, wave.into());
            Wave::new(slot, lanes_of(wave), draws)
        };
        let waves = (0..).zip(&slots).map(wave).collect();
        let workgroup_memory = memory.as_mut_ptr().cast();
        let records: Box<[_]> = slots.iter().map(|_| UnsafeCell::new(WaveRecordWords::BEGIN)).collect();
        let lane = |index: u32| CpuLane {
            lane: index % wave_size,
            wave_size,
            wave: index / wave_size,
            workgroup: position,
            position: unflatten(index.into(), grid.size),
            proposed_slot: slots[(index / wave_size) as usize],
            wave_lanes: lanes_of(index / wave_size),
            launch: &run.params,
            record: records[(index / wave_size) as usize].get(),
            workgroup_memory,
            cancelled: &run.cancelled,
            operations: &OPERATIONS,
            executor: ptr::null_mut(),
            bell_period_ns: config.faults.bell_period_ns,
            unwinding: None,
        };
        let lanes = (0..grid.lanes).map(|index| Lane::new(lane(index))).collect();
        let group = Rc::new(Group {
            seat,
            position,
            waves,
            lanes,
            memory,
            records,
            live: Cell::new(grid.lanes),
            exited: Cell::new(0),
            panicked: Cell::new(0),
            run,
        });
        for lane in &group.lanes {
            lane.attach(&group);
        }
        Seat::count(&seat.live_lanes, grid.lanes.cast_signed());
        group
    }

    pub fn run(&self) -> &Arc<Run> {
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

    fn lanes_of(&self, wave: usize) -> &[Lane] {
        let wave_size = self.seat().shared.config.wave_size as usize;
        &self.lanes[wave * wave_size..self.lanes.len().min((wave + 1) * wave_size)]
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
                if let Some(returned) = self.turn_wave(wave, self.lanes_of(index)) {
                    return Some(returned);
                }
                if wave.dying.get() && wave.live.get() & !wave.away.get() != 0 {
                    self.end_all(wave, self.lanes_of(index));
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
        lanes.filter_map(|lane| match self.lanes[lane as usize].request.get() {
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

    fn turn_wave(&self, wave: &Wave, lanes: &[Lane]) -> Option<Returned> {
        let delay = self.seat().shared.config.faults.delay_lanes;
        for _ in 0..PASSES {
            self.seat().wake_by(wave.poll(lanes));
            wave.settle(lanes, delay);
            let ready = wave.ready.get();
            wave.paused.set(0);
            let mut got_on = 0;
            for index in bits(ready) {
                let lane = &lanes[index];
                if delay > 0.0 && delayed(wave, lane, delay) {
                    self.seat().progress.set(true);
                    continue;
                }
                got_on |= 1 << index;
                match lane.resume(self.seat()) {
                    Resumed::GaveWay => {}
                    Resumed::NoStack(error) => {
                        let sentence =
                            format!("no memory for a lane's stack: {error}; lower `resident_lanes`");
                        self.seat().shared.stop(&self.run, LaunchError::NoStack(sentence));
                        return None;
                    }
                    Resumed::Ended(ending) => {
                        self.end(wave, lane, ending);
                        if self.killed() {
                            return None;
                        }
                    }
                    Resumed::Away(ending) => return Some(Returned { lane, ending }),
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
        }
        None
    }

    /// Takes back a lane that was away: it can run, or has ended.
    pub fn take_back(&self, lane: &Lane, ending: Option<Ending>) {
        let (wave, bit) = self.wave_of(lane);
        wave.come_back(bit);
        if let Some(ending) = ending {
            self.end(wave, lane, ending);
        }
    }

    fn killed(&self) -> bool {
        self.run.kill.load(Ordering::Relaxed)
    }

    /// Lets lanes of a cancelled launch find out, or ends them once the grace is over.
    fn cancel(&self) {
        let kill = self.killed();
        for (index, wave) in self.waves.iter().enumerate() {
            let lanes = self.lanes_of(index);
            if kill {
                self.end_all(wave, lanes);
                continue;
            }
            for index in bits(wave.live.get() & !wave.away.get()) {
                if !lanes[index].started() {
                    self.end(wave, &lanes[index], Ending::Exited);
                }
            }
            wave.let_go(lanes);
        }
    }

    /// Ends the wave's lanes where they are, but for those that are away, which a signal ends.
    fn end_all(&self, wave: &Wave, lanes: &[Lane]) {
        for index in bits(wave.live.get() & !wave.away.get()) {
            self.end(wave, &lanes[index], Ending::Killed);
        }
    }

    fn end(&self, wave: &Wave, lane: &Lane, ending: Ending) {
        lane.take_all_back();
        if let Some(fiber) = lane.take_fiber() {
            self.seat().keep_fiber(fiber);
        }
        let (index, wave_index) = lane.place();
        wave.remove(1 << index);
        self.live.set(self.live.get() - 1);
        Seat::count(&self.seat().live_lanes, -1);
        let lane = wave_index * self.seat().shared.config.wave_size + index;
        let workgroup = self.position;
        let error = match ending {
            Ending::Done => return,
            Ending::Exited => return self.exited.set(self.exited.get() + 1),
            Ending::Panicked => {
                self.panicked.set(self.panicked.get() + 1);
                return self.seat().shared.report(&self.run, LaunchError::Panicked { lanes: 0 });
            }
            Ending::Killed => return wave.abandoned.set(true),
            Ending::Overflow => LaunchError::StackOverflow { workgroup, lane },
            Ending::Fault { signal, address } => LaunchError::Fault { signal, address, workgroup, lane },
        };
        wave.abandoned.set(true);
        self.seat().shared.report(&self.run, error);
    }

    /// Gives back what the workgroup has, if all its lanes have ended; whether they have.
    pub fn retire(&self) -> bool {
        if self.live.get() > 0 {
            return false;
        }
        // A wave some of whose lanes never began ends without giving its slot back.
        let holds_slot = |record: &UnsafeCell<WaveRecordWords>| {
            // SAFETY: the field of a record that lives as long as the workgroup, which lanes access atomically.
            unsafe { AtomicU32::from_ptr(&raw mut (*record.get()).slot) }.load(Ordering::Relaxed) != NO_SLOT
        };
        let (mut abandoned_slots, mut good_slots) = (Vec::new(), Vec::new());
        for (wave, record) in self.waves.iter().zip(&self.records) {
            let is_lost = wave.abandoned.get() || holds_slot(record);
            if is_lost { &mut abandoned_slots } else { &mut good_slots }.push(wave.slot);
        }
        let tally = Tally {
            workgroups: 1,
            lanes: self.lanes.len() as u64,
            exited: self.exited.get(),
            panicked: self.panicked.get(),
            abandoned_slots,
        };
        self.seat().shared.retire(self.seat().index, &self.run, &good_slots, tally);
        true
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for fiber in self.lanes.iter().filter_map(Lane::take_fiber) {
            self.seat().keep_fiber(fiber);
        }
        let memory = std::mem::take(&mut self.memory);
        self.seat().memories.borrow_mut().push(memory);
    }
}

/// Whether an injected fault leaves a ready lane out of this pass.
fn delayed(wave: &Wave, lane: &Lane, probability: f64) -> bool {
    let delay = match lane.delay.get() {
        0 if wave.draws.happens(probability) => 1 + (wave.draws.next() % 16) as u8 + 1,
        0 => return false,
        delay => delay,
    };
    lane.delay.set(delay - 1);
    delay > 1
}

/// Position of the element `number` of a box with these sizes, x fastest.
fn unflatten(number: u64, sizes: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = sizes.map(u64::from);
    [number % x, number / x % y, number / (x * y)].map(|n| n as u32)
}
