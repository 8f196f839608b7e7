//! Sorting by a bitonic network, whose steps compare and exchange keys at fixed distances. Steps of small distances are done
//! in workgroup memory, many in one launch; a step of a large distance is a launch of its own.

use hostcall_device::{Global, Lane, Shared, kernel};

/// Keys that a workgroup sorts in its memory.
pub const TILE: usize = 1024;

/// Lanes of a workgroup: one for each pair of keys.
pub const LANES: u32 = TILE as u32 / 2;

/// A place where keys lie.
trait Key {
    fn load(&self) -> u32;
    fn store(&self, key: u32);
}

impl Key for Shared<u32> {
    fn load(&self) -> u32 {
        self.get()
    }
    fn store(&self, key: u32) {
        self.set(key);
    }
}

impl Key for Global<u32> {
    fn load(&self) -> u32 {
        self.get()
    }
    fn store(&self, key: u32) {
        self.set(key);
    }
}

/// Compares the pair of number `pair` at this distance, and exchanges it if its order is wrong. Runs of `run` keys are
/// ascending and descending by turns. `first` is the number of the key at `keys[0]`.
fn exchange(keys: &[impl Key], first: usize, pair: usize, distance: usize, run: usize) {
    let low = 2 * pair - (pair & (distance - 1));
    let is_ascending = (first + low) & run == 0;
    let (a, b) = (keys[low].load(), keys[low + distance].load());
    if (a > b) == is_ascending {
        keys[low].store(b);
        keys[low + distance].store(a);
    }
}

/// Does all steps of distances below [`TILE`], for each of these lengths of runs, in workgroup memory.
fn in_tile(lane: &Lane, tile: &[Shared<u32>; TILE], keys: &[Global<u32>], runs: impl Iterator<Item = usize>) {
    let first = lane.workgroup()[0] as usize * TILE;
    let (pair, keys) = (lane.local_id(), &keys[first..first + TILE]);
    for i in [pair, pair + TILE / 2] {
        tile[i].set(keys[i].get());
    }
    lane.barrier();
    for run in runs {
        let mut distance = (run / 2).min(TILE / 2);
        while distance > 0 {
            exchange(tile, first, pair, distance, run);
            lane.barrier();
            distance /= 2;
        }
    }
    for i in [pair, pair + TILE / 2] {
        keys[i].set(tile[i].get());
    }
}

/// Sorts each tile, ascending and descending by turns.
#[kernel(max_lanes = 512)]
pub fn sort_tiles(lane: &Lane, #[workgroup] tile: &[Shared<u32>; TILE], keys: &[Global<u32>]) {
    in_tile(lane, tile, keys, (1..=TILE.ilog2()).map(|bits| 1 << bits));
}

/// Does the steps of distances below [`TILE`] that merge runs of `run` keys.
#[kernel(max_lanes = 512)]
pub fn merge_near(lane: &Lane, #[workgroup] tile: &[Shared<u32>; TILE], keys: &[Global<u32>], run: u32) {
    in_tile(lane, tile, keys, core::iter::once(run as usize));
}

/// Does one step that merges runs of `run` keys, at any distance.
#[kernel(max_lanes = 512)]
pub fn merge_far(lane: &Lane, keys: &[Global<u32>], distance: u32, run: u32) {
    exchange(keys, 0, lane.global_id(), distance as usize, run as usize);
}
