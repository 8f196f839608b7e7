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

struct FailsOnDrop(u64);

impl Drop for FailsOnDrop {
    fn drop(&mut self) {
        panic!("destructor {} fails", self.0);
    }
}

/// Lane 1 panics, and then what it has.
#[kernel]
fn twice(lane: &Lane) {
    let _fails = (lane.local_id() == 1).then(|| FailsOnDrop(7));
    assert!(lane.local_id() != 1, "lane 1 fails");
}

/// Runs a test in a process of its own, which is to end by itself. Returns what it said.
fn ends(test: &str) -> String {
    let this = std::env::current_exe().unwrap();
    let child = Command::new(this).args(["--exact", test, "--nocapture"]).env(CHILD, "1").output().unwrap();
    assert!(!child.status.success());
    String::from_utf8_lossy(&child.stderr).into_owned()
}

#[test]
fn a_destructor_that_panics_while_its_lane_unwinds() {
    if std::env::var_os(CHILD).is_some() {
        let device = Device::open("cpu").unwrap();
        let stream = device.stream().unwrap();
        twice.launch(&stream, Grid::new(1, 4), ()).unwrap();
        stream.synchronize().unwrap_err();
        return;
    }
    let said = ends("a_destructor_that_panics_while_its_lane_unwinds");
    let begins =
        |begin: &str, end: &str| said.lines().any(|line| line.starts_with(begin) && line.contains(end));
    assert!(
        begins("hostcall: lane 1 of workgroup (0, 0, 0), ", "panic in a destructor during cleanup"),
        "{said}"
    );
    let place = "hostcall: the lane's panic before that: host/hostcall/tests/aborting.rs:";
    assert!(begins(place, ": destructor 7 fails"), "{said}");
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
    let said = ends("a_misaligned_access");
    let place = "hostcall: lane 2 of workgroup (1, 0, 0), host/hostcall/tests/aborting.rs:";
    let place = said.lines().find(|line| line.starts_with(place) || line.contains("tests/aborting.rs:"));
    let line = place.unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with("hostcall: lane 2 of workgroup (1, 0, 0), "), "{line}");
    assert!(
        line.contains("misaligned pointer dereference: address must be a multiple of 0x4 but is 0x"),
        "{line}"
    );
}
