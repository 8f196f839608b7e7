//! Ranks of several processes that send a word to each other in each round, through a file that all of them map.

use core::sync::atomic::{Ordering, fence};
use hostcall_device::fs::OpenOptions;
use hostcall_device::waits::flag;
use hostcall_device::{Lane, Plain, kernel};

/// What a rank does.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
pub struct Plan {
    /// The rank.
    pub rank: u32,
    /// How many there are: a workgroup has a lane for each.
    pub ranks: u32,
    /// How many words each sends to each.
    pub rounds: u64,
    /// The round in which the rank leaves a signal out; 0 for none.
    pub left_out_round: u64,
    /// To whom it does.
    pub left_out_to: u32,
    /// Whether waits say what they wait for.
    pub marked: u32,
}

/// The file of the exchange: a line of words of which the first says that a signal was left out, and then two boxes from each rank to
/// each.
pub const FILE: &str = "boxes";
/// Words of a line.
pub const LINE: u64 = 8;

/// Words of the file.
pub const fn words(ranks: u32) -> u64 {
    LINE * (1 + 2 * ranks as u64 * ranks as u64)
}

/// Where the box of a round lies from one rank to another: a word, and the signal that it is there.
fn box_of(plan: &Plan, from: u32, to: u32, round: u64) -> u64 {
    LINE * (1 + 2 * (u64::from(from) * u64::from(plan.ranks) + u64::from(to)) + round % 2)
}

fn word_of(from: u32, to: u32, round: u64) -> u64 {
    round << 32 | u64::from(from) << 16 | u64::from(to)
}

// ANCHOR: exchange
/// Exchanges words in rounds: a rank sends to all others, waits for all of them, and goes on.
#[kernel]
pub fn exchange(lane: &Lane, plan: Plan) {
    let peer = lane.local_id() as u32;
    let file = OpenOptions::new().read().write().open(FILE).unwrap();
    let boxes = file.into_handle().map_mut(lane).unwrap();
    let store = |at: u64, word: u64| boxes.write_at(8 * at, &word.to_le_bytes()).unwrap();
    for round in 1..=plan.rounds {
        if peer != plan.rank {
            let to = box_of(&plan, plan.rank, peer, round);
            store(to, word_of(plan.rank, peer, round));
            fence(Ordering::Release);
            if round == plan.left_out_round && peer == plan.left_out_to {
                store(0, 1);
            } else {
                store(to + 1, round);
            }
            let from = box_of(&plan, peer, plan.rank, round);
            let has_come = || boxes.word(from + 1).unwrap() >= round;
            if plan.marked != 0 {
                lane.wait_for(flag("signal").peer(peer).sequence(round), has_come);
            } else {
                while !has_come() {
                    lane.pause();
                }
            }
            fence(Ordering::Acquire);
            assert!(boxes.word(from).unwrap() == word_of(peer, plan.rank, round));
        }
        lane.barrier();
    }
}
// ANCHOR_END: exchange
