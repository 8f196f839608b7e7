//! The chapter "Finding a fault".

use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel};

// ANCHOR: barrier
/// Wrong: the last lane waits at a barrier of its own.
#[kernel]
fn apart(lane: &Lane, x: &[Global<u32>]) {
    if lane.local_id() < 63 {
        x[lane.local_id()].set(1);
        lane.barrier();
    } else {
        lane.barrier();
    }
}
// ANCHOR_END: barrier

#[test]
fn barriers_apart_are_told() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let x = device.alloc_zeroed::<u32>(64).unwrap();
    apart.launch(&stream, Grid::new(1, 64), (&x,)).unwrap();
    let text = stream.synchronize().unwrap_err().to_string();
    assert!(text.contains("barrier") && text.contains("faults.rs"), "{text}");
}

// ANCHOR: index
#[kernel]
fn beyond(lane: &Lane, x: &[Global<u32>]) {
    x[lane.global_id() + 1].set(1);
}
// ANCHOR_END: index

#[test]
fn indices_are_checked() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let x = device.alloc_zeroed::<u32>(64).unwrap();
    beyond.launch(&stream, Grid::new(1, 64), (&x,)).unwrap();
    let text = stream.synchronize().unwrap_err().to_string();
    assert!(text.contains("index out of bounds: the len is 64 but the index is 64"), "{text}");
}
