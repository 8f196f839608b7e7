//! A wave: which of its lanes can run, and what each of the others waits for, as masks.
//!
//! Each lane that has not ended is in one mask: `ready`, or that of what it waits for. Lanes that converge go
//! on together once no other lane of the wave can run, or after [`HELD_PASSES`]; an exchange ends as soon as
//! all of its lanes have come or ended; a lane that waits goes on once its poll says so. So a wave gets on
//! although some of its lanes run or wait for ever.
//!
//! The masks, and what a blocked lane asks for and gets, belong to the thread that sits on the seat (SEAT). A
//! lane changes them for itself only as it gives way on that thread. A lane that is away touches nothing
//! here.

use crate::config::Draws;
use crate::lane::Request;
use crate::operations;
use crate::workgroup::Lanes;
use hostcall_abi::cpu::{GETS_BALLOT, GETS_MATCH};
use std::cell::Cell;

/// Polls that a wave spends on lanes which wait before lanes that converge go on without them: replies to the
/// lanes of one call come one shortly after the other, and those lanes should stay together. Not spent on lanes
/// that were gone without before.
const PATIENCE: u32 = 256;

/// Passes over a wave for which lanes that converge are held back by others that keep running. Those may wait
/// for the former (with `pause`), so they cannot be held for good.
const HELD_PASSES: u32 = 64;

/// A wave of a resident workgroup. A lane that has not ended is in exactly one of `ready`, `converging`,
/// `exchanging`, `at_barrier`, `waiting` and `away`.
pub(crate) struct Wave {
    /// The slot that the wave claims when it needs one.
    pub slot: u32,
    /// Lanes that have not ended.
    pub live: Cell<u64>,
    /// Lanes that can run, with the one that runs.
    pub ready: Cell<u64>,
    /// Those of `ready` that have not begun. Those that have begun in place of one that ended are noted later (RUN, see
    /// [`Lane`](crate::lane::Lane)).
    pub fresh: Cell<u64>,
    pub converging: Cell<u64>,
    pub exchanging: Cell<u64>,
    pub at_barrier: Cell<u64>,
    pub waiting: Cell<u64>,
    /// Lanes that keep threads to themselves, which have lost their seats. Nobody waits for them to converge.
    pub away: Cell<u64>,
    /// Those of `ready` that gave way by `pause` in this pass.
    pub paused: Cell<u64>,
    /// Passes since `converging` lanes were first held back.
    held: Cell<u32>,
    /// Polls left of [`PATIENCE`].
    patience: Cell<u32>,
    /// Lanes that have begun to wait since lanes last converged.
    recent: Cell<u64>,
    /// An injected fault ends the wave at its next turn.
    pub dying: Cell<bool>,
    /// A lane did not come to its end, so that the slot may be claimed, and a call in flight on it.
    pub abandoned: Cell<bool>,
    pub draws: Draws,
}

impl Wave {
    /// A wave of `lanes` lanes that can all run.
    pub fn new(slot: u32, lanes: u32, draws: Draws) -> Wave {
        let all = u64::MAX >> (64 - lanes);
        Wave {
            slot,
            live: all.into(),
            ready: all.into(),
            fresh: all.into(),
            converging: 0.into(),
            exchanging: 0.into(),
            at_barrier: 0.into(),
            waiting: 0.into(),
            away: 0.into(),
            paused: 0.into(),
            held: 0.into(),
            patience: PATIENCE.into(),
            recent: 0.into(),
            dying: false.into(),
            abandoned: false.into(),
            draws,
        }
    }

    /// Moves a ready lane to where its request is waited for.
    pub fn block(&self, bit: u64, request: Request) {
        let state = match request {
            Request::Converge { .. } => &self.converging,
            Request::Exchange { .. } => &self.exchanging,
            Request::Barrier { .. } => &self.at_barrier,
            Request::Sleep { .. } => &self.waiting,
            Request::Wait { .. } => {
                self.recent.set(self.recent.get() | bit);
                &self.waiting
            }
        };
        self.ready.set(self.ready.get() & !bit);
        state.set(state.get() | bit);
    }

    /// Takes ended lanes out.
    pub fn remove(&self, lanes: u64) {
        let blocked = [&self.converging, &self.exchanging, &self.at_barrier, &self.waiting];
        for mask in [&self.live, &self.ready, &self.fresh].into_iter().chain(blocked) {
            mask.set(mask.get() & !lanes);
        }
    }

    /// Returns the index behind the last of the lanes that have not begun, from `first` on without a gap. They can run one
    /// after the other in one place.
    pub fn fresh_from(&self, first: u32) -> u32 {
        first + (self.fresh.get() >> first).trailing_ones()
    }

    /// Notes that the lane that ran has taken its thread away.
    pub fn depart(&self, bit: u64) {
        self.ready.set(self.ready.get() & !bit);
        self.away.set(self.away.get() | bit);
    }

    /// Lets a lane that was away run again.
    pub fn come_back(&self, bit: u64) {
        self.release(&self.away, bit);
    }

    fn release(&self, state: &Cell<u64>, lanes: u64) {
        state.set(state.get() & !lanes);
        self.ready.set(self.ready.get() | lanes);
    }

    /// Polls for the lanes that wait, and lets those go on that have slept for long enough. Returns the earliest
    /// deadline of the others, `u64::MAX` if there are none.
    pub fn poll(&self, lanes: Lanes<'_>) -> u64 {
        let mut earliest_ns = u64::MAX;
        let mut now_ns = None;
        for index in bits(self.waiting.get()) {
            let over = match lanes.get(index).request.get() {
                // SAFETY: the kernel gave a function to be called with its data while its lane is blocked.
                Request::Wait { poll, data } => unsafe { poll(data) },
                Request::Sleep { deadline_ns } => {
                    let over = *now_ns.get_or_insert_with(operations::now_ns) >= deadline_ns;
                    earliest_ns = if over { earliest_ns } else { earliest_ns.min(deadline_ns) };
                    over
                }
                _ => false,
            };
            if over {
                self.release(&self.waiting, 1 << index);
            }
        }
        earliest_ns
    }

    /// Lets lanes go on whose exchange is complete, or that have converged.
    pub fn let_go_on(&self, lanes: Lanes<'_>, split: f64) {
        if self.exchanging.get() != 0 {
            self.exchange(lanes);
        }
        if self.converging.get() == 0 {
            return;
        }
        while self.ready.get() == 0 && self.waiting.get() & self.recent.get() != 0 && self.patience.get() > 0
        {
            self.patience.set(self.patience.get().saturating_sub(self.waiting.get().count_ones()));
            self.poll(lanes);
        }
        self.held.set(self.held.get() + 1);
        if self.ready.get() == 0 || self.held.get() > HELD_PASSES {
            self.converge(lanes, split);
        }
    }

    /// Lets the converging lanes go, those of one site together.
    fn converge(&self, lanes: Lanes<'_>, split: f64) {
        self.held.set(0);
        self.patience.set(PATIENCE);
        self.recent.set(0);
        let site_of = |index: usize| match lanes.get(index).request.get() {
            Request::Converge { site } => Some(site),
            _ => None,
        };
        let mut left = self.converging.get();
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let site = site_of(first);
            let mut together = mask_of(bits(left).filter(|&index| site_of(index) == site));
            if self.draws.happens(split) {
                together &= self.draws.next() | 1 << first;
            }
            for index in bits(together) {
                lanes.get(index).given.set(together);
            }
            left &= !together;
        }
        self.release(&self.converging, self.converging.get());
    }

    /// Whether an exchange has all of its lanes that have not ended.
    pub fn can_exchange(&self, lanes: Lanes<'_>) -> bool {
        let mask_of_lane = |index: usize| match lanes.get(index).request.get() {
            Request::Exchange { mask, .. } => Some(mask),
            _ => None,
        };
        let exchanging = self.exchanging.get();
        bits(exchanging).filter_map(mask_of_lane).any(|mask| {
            let here = mask_of(bits(exchanging).filter(|&index| mask_of_lane(index) == Some(mask)));
            mask & self.live.get() & !here == 0
        })
    }

    /// Completes the exchanges whose lanes have all come or ended.
    fn exchange(&self, lanes: Lanes<'_>) {
        let mut left = self.exchanging.get();
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let Request::Exchange { mask, .. } = lanes.get(first).request.get() else { return };
            let mut given = Exchanged::default();
            for index in bits(left) {
                match lanes.get(index).request.get() {
                    Request::Exchange { mask: its, value, .. } if its == mask => given.add(index, value),
                    _ => {}
                }
            }
            let here = given.lanes;
            left &= !here;
            if mask & self.live.get() & !here != 0 {
                continue;
            }
            for index in bits(here) {
                let lane = lanes.get(index);
                if let Request::Exchange { value, gets, .. } = lane.request.get() {
                    lane.given.set(given.get(value, gets));
                }
            }
            self.release(&self.exchanging, here);
        }
    }

    /// Ends the blocked lanes' barrier.
    pub fn pass_barrier(&self) {
        self.release(&self.at_barrier, self.at_barrier.get());
    }

    /// Lets all blocked lanes go, each by itself, with those that sleep, but not those that wait for a poll, and those that exchange: lanes
    /// that work on something together end it together.
    pub fn let_go(&self, lanes: Lanes<'_>) {
        for index in bits(self.converging.get()) {
            lanes.get(index).given.set(1 << index);
        }
        self.release(&self.converging, self.converging.get());
        self.pass_barrier();
        let sleeps = |&index: &usize| matches!(lanes.get(index).request.get(), Request::Sleep { .. });
        self.release(&self.waiting, mask_of(bits(self.waiting.get()).filter(sleeps)));
    }
}

/// What lanes have given in an exchange.
pub(crate) struct Exchanged {
    lanes: u64,
    values: [u64; 64],
    /// Lanes whose value is not 0.
    ballot: u64,
}

impl Default for Exchanged {
    fn default() -> Exchanged {
        Exchanged { lanes: 0, values: [0; 64], ballot: 0 }
    }
}

impl Exchanged {
    pub fn add(&mut self, index: usize, value: u64) {
        self.lanes |= 1 << index;
        self.ballot |= u64::from(value != 0) << index;
        self.values[index] = value;
    }

    /// What a lane gets that gave `value`.
    pub fn get(&self, value: u64, gets: u32) -> u64 {
        match gets {
            GETS_BALLOT => self.ballot,
            GETS_MATCH => mask_of(bits(self.lanes).filter(|&index| self.values[index] == value)),
            _ => self.values.get(gets as usize).copied().unwrap_or(0),
        }
    }
}

/// The indices of the bits that are set.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (index < 64).then_some(index as usize)
    })
}

fn mask_of(indices: impl Iterator<Item = usize>) -> u64 {
    indices.fold(0, |mask, index| mask | 1 << index)
}
