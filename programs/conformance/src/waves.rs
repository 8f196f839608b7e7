//! What the lanes of a wave and of a workgroup do together.

use crate::mix;
use crate::services::Echo;
use core::hint::spin_loop;
use hostcall_device::wave::{Add, And, Combine, Max, Min, Or, WaveNumber, Xor};
use hostcall_device::{Global, Lane, kernel, process};

/// Ballot, broadcast and the active lanes, in whatever parts the wave comes.
#[kernel]
pub fn wave_operations(lane: &Lane, out: &[Global<u64>]) {
    let (id, index) = (lane.global_id() as u64, lane.index());
    let own = 1u64 << index;
    assert!(index < lane.wave_size());
    assert!(lane.active() & own != 0);
    let odd = lane.ballot(index % 2 == 1);
    assert_eq!(odd & own != 0, index % 2 == 1);
    assert_eq!(odd & 0x5555_5555_5555_5555, 0);
    assert_eq!(lane.ballot(false), 0);
    let all = lane.ballot(true);
    assert!(all & own != 0);
    let (value, from) = lane.broadcast((id, index), 2);
    assert_eq!(value, id - u64::from(index) + u64::from(from));
    // Alone, a lane hears itself.
    if index == 1 {
        assert_eq!(lane.active(), 2);
        assert_eq!(lane.broadcast(id, 0), id);
        assert_eq!(lane.once_per_wave(|| id), id);
    }
    out[id as usize].set(id + 1);
}

/// The sum of the workgroup's values, by a tree in its memory.
#[kernel(workgroup_memory = 8 * 1024)]
pub fn wave_reduction(lane: &Lane, values: &[u64], out: &[Global<u64>]) {
    let memory = lane.workgroup_memory::<u64>();
    let [width, height, depth] = lane.workgroup_size();
    let (lanes, at) = ((width * height * depth) as usize, lane.local_id());
    for round in 1..=3 {
        memory[at].set(values[lane.global_id()] * round);
        let mut half = lanes.next_power_of_two() / 2;
        while half > 0 {
            lane.barrier();
            if at < half && at + half < lanes {
                memory[at].set(memory[at].get() + memory[at + half].get());
            }
            half /= 2;
        }
        lane.barrier();
        out[lane.global_id()].set(memory[0].get());
        lane.barrier();
    }
}

/// Lanes look at memory, and nothing else, until the grid's last lane has written there; then they call.
#[kernel]
pub fn wave_spinning(lane: &Lane, flag: &[Global<u64>], out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    if lane.global_id() + 1 == lane.grid_lanes() {
        flag[0].set(1);
    }
    while flag[0].get() == 0 {
        spin_loop();
    }
    assert_eq!(Echo::one(id), Ok(id));
    lane.barrier();
    out[id as usize].set(id + 1);
}

/// Every lane but the last spins for ever; that one exits (0), panics (1), or calls until it is cancelled (2).
#[kernel]
pub fn wave_spinning_for_ever(lane: &Lane, way: u32) {
    if lane.global_id() + 1 < lane.grid_lanes() {
        loop {
            spin_loop();
        }
    }
    match way {
        0 => process::exit(4),
        1 => panic!("the last lane gives up"),
        _ => while Echo::one(1).is_ok() {},
    }
}

/// Words that [`computed`] puts for a type.
pub const COMPUTED: usize = 11;
/// Words that [`computed_bits`] puts for an integer.
pub const COMPUTED_BITS: usize = 4;
/// Words that [`wave_numbers`] writes a lane.
pub const WORDS: usize = 3 + 6 * COMPUTED + 4 * COMPUTED_BITS;

/// What a lane brings to a wave's operations, of each type. Sums of the floats are exact.
pub fn numbers(id: u64) -> (u32, i32, u64, i64, f32, f64) {
    let bits = mix(id);
    let small = (bits % 2001) as i32 - 1000;
    (bits as u32, (bits >> 7) as i32, bits, mix(bits) as i64, small as f32, f64::from(small) * 0.25)
}

fn computed<T: WaveNumber>(lane: &Lane, value: T, put: &mut impl FnMut(u64)) {
    let results = [
        lane.shuffle(value, (lane.index() * 7 + 3) % lane.wave_size()),
        lane.shuffle_up(value, 1),
        lane.shuffle_down(value, 2),
        lane.shuffle_xor(value, 5),
        lane.wave_reduce(value, Add),
        lane.wave_reduce(value, Min),
        lane.wave_reduce(value, Max),
        lane.wave_scan(value, Add),
        lane.wave_scan(value, Max),
        lane.wave_scan_exclusive(value, Add),
        lane.wave_scan_exclusive(value, Min),
    ];
    for result in results {
        put(result.to_raw_bits());
    }
}

fn computed_bits<T: WaveNumber>(lane: &Lane, value: T, put: &mut impl FnMut(u64))
where
    And: Combine<T>,
    Or: Combine<T>,
    Xor: Combine<T>,
{
    let results = [
        lane.wave_reduce(value, And),
        lane.wave_reduce(value, Or),
        lane.wave_reduce(value, Xor),
        lane.wave_scan(value, Xor),
    ];
    for result in results {
        put(result.to_raw_bits());
    }
}

/// The lanes with these indices compute together; the others write nothing but the wave's size.
#[kernel]
pub fn wave_numbers(lane: &Lane, part: u64, out: &[Global<u64>]) {
    let (id, index) = (lane.global_id(), lane.index());
    let out = &out[id * WORDS..(id + 1) * WORDS];
    out[0].set(lane.wave_size().into());
    if part >> index & 1 == 0 {
        return;
    }
    let mut at = 1;
    let mut put = |word: u64| {
        out[at].set(word);
        at += 1;
    };
    put(lane.wave_match(id as u32 % 3));
    put(u64::from(lane.wave_any(index == 4)) | u64::from(lane.wave_all(index < 40)) << 1);
    let (a, b, c, d, e, f) = numbers(id as u64);
    computed(lane, a, &mut put);
    computed(lane, b, &mut put);
    computed(lane, c, &mut put);
    computed(lane, d, &mut put);
    computed(lane, e, &mut put);
    computed(lane, f, &mut put);
    computed_bits(lane, a, &mut put);
    computed_bits(lane, b, &mut put);
    computed_bits(lane, c, &mut put);
    computed_bits(lane, d, &mut put);
}
