//! A package of kernels that gives `hostcall-device` another name.
#![no_std]

use gpu::{Global, Lane, Plain, Wire, eprintln, service};

/// A number.
#[repr(C)]
#[derive(Clone, Copy, Plain, Wire)]
pub struct Number {
    /// Its value.
    pub value: u64,
}

/// Doubles numbers.
#[service]
pub trait Doubles {
    /// Doubles a number.
    fn double(number: Number) -> Number;
}

/// Has each number doubled.
#[gpu::kernel]
pub fn double(lane: &Lane, numbers: &[Number], out: &[Global<u64>]) {
    let i = lane.global_id();
    match Doubles::double(numbers[i]) {
        Ok(number) => out[i].set(number.value),
        Err(_) => eprintln!("{}", numbers[i].value),
    }
}

/// A library's macro makes kernels in packages that know nothing of hostcall.
#[macro_export]
macro_rules! empty_kernel {
    ($name:ident) => {
        #[$crate::__gpu::kernel(crate = $crate::__gpu)]
        fn $name(_: &$crate::__gpu::Lane) {
            $crate::__gpu::println!(crate = $crate::__gpu, "{}", 1);
        }
    };
}

#[doc(hidden)]
pub use gpu as __gpu;
