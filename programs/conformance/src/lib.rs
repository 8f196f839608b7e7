//! The kernels of the conformance suite and the services that they call. The suite itself is the package
//! `hostcall-conformance`, which uses this crate as a library too.
//!
//! A kernel asserts what it can see by itself: a failed assertion reaches the host as the lane's panic. What a
//! kernel got or did besides, it writes to `out`, one value a lane, for the host to compare.
#![no_std]

extern crate alloc;

/// Compares without printing the values: `core`'s macro makes megabytes of formatting code for GPUs.
macro_rules! assert_eq {
    ($left:expr, $right:expr $(,)?) => {
        assert!(($left) == ($right))
    };
    ($left:expr, $right:expr, $($text:tt)+) => {
        assert!(($left) == ($right), $($text)+)
    };
}

pub mod bytes;
pub mod callers;
pub mod calls;
pub mod cancels;
pub mod closures;
pub mod futures;
pub mod graphs;
pub mod grids;
pub mod math;
pub mod order;
pub mod panics;
pub mod parameters;
pub mod pending;
pub mod points;
pub mod posts;
pub mod print;
pub mod raw;
pub mod services;
pub mod slots;
pub mod statuses;
pub mod streams;
pub mod stress;
pub mod system;
pub mod waits;
pub mod waves;
pub mod workgroups;

/// A number that looks random, made from `seed`: splitmix64.
pub fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
