//! A kernel's parameter has the name of a function that a macro of the kernel calls. The macro finds a
//! function of the expansion, which must not run in the place of the user's.

use hostcall_device::{Lane, kernel};

fn sync() {}

macro_rules! sync_all {
    () => {
        sync()
    };
}

#[kernel]
fn step(lane: &Lane, sync: u32) {
    sync_all!();
    let _ = (lane, sync);
}

fn main() {
    sync();
}
