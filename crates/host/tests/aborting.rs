//! What Rust itself finds wrong of `unsafe` code, in a build with `debug-assertions`, ends the process and says which lane it was.
#![allow(unsafe_code, reason = "it is what the tests are about")]

use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel};
use std::hint::black_box;
use std::process::Command;

/// Set for the process that ends.
const CHILD: &str = "HOSTCALL_TEST_ABORTS";

/// Lane 2 of each workgroup but the first reads what is not aligned.
#[kernel]
fn askew(lane: &Lane, from: &[u32], out: &[Global<u32>]) {
    let [workgroup, ..] = lane.workgroup();
    let step = usize::from(workgroup == 1 && lane.local_id() == 2);
    // SAFETY: none where `step` is 1, which is what Rust's check finds.
    let value = unsafe { *black_box(from.as_ptr().byte_add(step)) };
    out[lane.global_id()].set(value);
}

#[test]
fn a_misaligned_access() {
    if std::env::var_os(CHILD).is_some() {
        let device = Device::open("cpu").unwrap();
        let stream = device.stream().unwrap();
        let (from, out) = (device.alloc_zeroed::<u32>(8).unwrap(), device.alloc_zeroed::<u32>(8).unwrap());
        askew.launch(&stream, Grid::new(2, 4), (&from, &out)).unwrap();
        stream.synchronize().unwrap();
        return;
    }
    let this = std::env::current_exe().unwrap();
    let child = Command::new(this)
        .args(["--exact", "a_misaligned_access", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success());
    let place = "hostcall: lane 2 of workgroup (1, 0, 0), crates/host/tests/aborting.rs:";
    let place = said.lines().find(|line| line.starts_with(place) || line.contains("tests/aborting.rs:"));
    let line = place.unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with("hostcall: lane 2 of workgroup (1, 0, 0), "), "{line}");
    assert!(
        line.contains("misaligned pointer dereference: address must be a multiple of 0x4 but is 0x"),
        "{line}"
    );
}
