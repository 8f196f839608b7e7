//! Posts.

use crate::services::Meter;
use hostcall_device::{Global, Lane, kernel, println};

/// Each lane posts 0 to `count` − 1 for a key of its own, from `keys` on, and then sees by a call that all were taken, in
/// order.
#[kernel]
pub fn post_in_order(lane: &Lane, keys: u64, count: u32, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let key = keys + id;
    for i in 0..u64::from(count) {
        Meter::post_note(key, i).unwrap();
        if i % 1000 == 777 {
            assert_eq!(Meter::noted(key), Ok(i + 1));
        }
    }
    assert_eq!(Meter::noted(key), Ok(count.into()));
    out[id as usize].set(id + 1);
}

/// Posts by all lanes of a wave, by some of them, and alone, with calls, prints and pauses between: each lane's `count` posts are
/// in order whoever posts beside it.
#[kernel]
pub fn post_mixed(lane: &Lane, count: u32, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let index = u64::from(lane.index());
    let mut posted = 0;
    let mut post = || {
        Meter::post_note(id, posted).unwrap();
        posted += 1;
        posted
    };
    let mut round = 0;
    while round < u64::from(count) {
        post();
        post();
        match (index + round) % 8 {
            // The first lane of the wave, which reserves for all, is now among those that post and now not.
            0 => drop((post(), post())),
            1 => {
                let posted = post();
                assert_eq!(Meter::noted(id), Ok(posted));
            }
            2 if round % 64 == index => println!("lane {id} is in round {round}"),
            3 | 4 => drop(post()),
            _ => {}
        }
        post();
        match round % 100 {
            50 => {
                let posted = post();
                assert_eq!(Meter::noted(id), Ok(posted));
            }
            // Longer than the host looks at a ring that had posts.
            99 => (0..200).for_each(|_| lane.pause()),
            _ => {}
        }
        round += 1;
    }
    out[id as usize].set(post());
}

/// Posts without a call after them.
#[kernel]
pub fn post_only(lane: &Lane, count: u32) {
    for i in 0..u64::from(count) {
        Meter::post_note(lane.global_id() as u64, i).unwrap();
    }
}

/// The first workgroup posts, computes for longer than the host looks at a ring by itself, posts again and then looks at
/// memory, and does nothing else, until the second has heard from the host that the posts were taken.
#[kernel]
pub fn post_then_look(lane: &Lane, flag: &[Global<u64>], out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    if lane.workgroup()[0] == 0 {
        for i in 0..20 {
            Meter::post_note(id, i).unwrap();
        }
        let start_ns = lane.clock_ns();
        while lane.clock_ns() - start_ns < 5_000_000 {}
        Meter::post_note(id, 20).unwrap();
        while flag[0].get() == 0 {
            // A pause tells the host of posts; where lanes need none to leave others time, they look without.
            match cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu")) {
                true => core::hint::spin_loop(),
                false => lane.pause(),
            }
        }
    } else if lane.local_id() == 0 {
        for key in 0..u64::from(lane.workgroup_size()[0]) {
            while Meter::noted(key) != Ok(21) {}
        }
        flag[0].set(1);
    }
    out[id as usize].set(id + 1);
}

/// Posts of 0 to 20 words, from different branches.
#[kernel]
pub fn post_sizes(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let value = |i: u64| u64::MAX - id - i;
    Meter::post_note0().unwrap();
    if id.is_multiple_of(2) {
        Meter::post_note1(value(0)).unwrap();
    } else {
        Meter::post_note3([value(0), value(1), value(2)]).unwrap();
    }
    Meter::post_note4(core::array::from_fn(|i| value(i as u64))).unwrap();
    Meter::post_note5(core::array::from_fn(|i| value(i as u64))).unwrap();
    Meter::post_note6(core::array::from_fn(|i| value(i as u64))).unwrap();
    Meter::post_note20(core::array::from_fn(|i| value(i as u64))).unwrap();
    out[id as usize].set(id + 1);
}
