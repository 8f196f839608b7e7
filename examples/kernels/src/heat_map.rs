//! A search that tells of each value that it looks at.

use hostcall_device::raw::{Block, RawStream};
use hostcall_device::{Global, Lane, Plain, kernel};

// ANCHOR: record
/// A value that a lane looked at.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
#[hostcall(format = "lane {lane} read {address:#x}, at distance {distance}")]
pub struct Read {
    /// Where the value lies.
    pub address: u64,
    /// The lane, of all of the grid.
    pub lane: u32,
    /// From the value that it looked at before.
    #[hostcall(unit = "values")]
    pub distance: i32,
}
// ANCHOR_END: record

// ANCHOR: search
/// Searches for `searches` keys a lane in sorted values, and tells of each value that it looks at.
#[kernel]
pub fn search(
    lane: &Lane,
    values: &[u64],
    found: &[Global<u32>],
    searches: u32,
    reads: RawStream<'_, Read, Block>,
) {
    let id = lane.global_id();
    let mut count = 0;
    for i in 0..searches {
        let key = key(id, i, values.len());
        let (mut low, mut high, mut last) = (0, values.len(), 0);
        while low < high {
            let middle = (low + high) / 2;
            let (address, distance) = (&raw const values[middle] as u64, middle as i32 - last);
            reads.write(lane, &Read { address, lane: id as u32, distance });
            last = middle as i32;
            match values[middle] < key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        count += u32::from(low < values.len() && values[low] == key);
    }
    found[id].set(count);
}
// ANCHOR_END: search

/// The key that a lane looks for in its search of number `i`, among so many values.
pub fn key(lane: usize, i: u32, values: usize) -> u64 {
    (lane as u64 * 7919 + u64::from(i) * 104_729) % (2 * values as u64)
}
