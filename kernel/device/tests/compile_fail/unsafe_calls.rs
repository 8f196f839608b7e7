//! Unsafe functions, called from safe code.

use hostcall_device::kernel::Kernel;
use hostcall_device::{Lane, kernel, service, services};

#[kernel]
fn frees(_: &Lane, address: u64) {
    let _ = services::Heap::free(address);
}

#[service]
trait Raw {
    /// # Safety
    /// Whatever.
    unsafe fn poke(address: u64);
}

#[kernel]
fn pokes(_: &Lane) {
    let _ = Raw::post_poke(0);
}

fn forges() {
    let _: Kernel<(u64,)> = Kernel::new("x", *pokes.info(), pokes.entry());
}

fn main() {
    let _ = frees.entry();
}
