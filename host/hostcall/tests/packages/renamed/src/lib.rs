//! A package that gives `hostcall` another name.

use hc::{CallError, Device, Global, Grid, Lane, LaunchKernel, Plain, Wire, kernel, println, service};

/// Two numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Plain, Wire)]
pub struct Pair {
    /// The first.
    pub a: u32,
    /// The second.
    pub b: u32,
}

/// Swaps.
#[service]
pub trait Swaps {
    /// Swaps the numbers.
    fn swap(pair: Pair) -> Pair;
}

/// Has each pair swapped.
#[kernel]
pub fn swap(lane: &Lane, pairs: &[Pair], out: &[Global<u32>]) {
    let i = lane.global_id();
    let Pair { a, b } = Swaps::swap(pairs[i]).unwrap();
    println!("{a} {b}");
    out[i].set(100 * a + b);
}

struct Swapper;

impl SwapsHandler for Swapper {
    fn swap(&self, Pair { a, b }: Pair) -> Result<Pair, CallError> {
        Ok(Pair { a: b, b: a })
    }
}

/// Runs the kernel and returns what it wrote.
///
/// # Errors
/// The device's.
pub fn run() -> Result<Vec<u32>, Box<dyn std::error::Error>> {
    let device = Device::builder("cpu").service(Swaps::serve(Swapper)).open()?;
    let stream = device.stream()?;
    let pairs = device.upload(&[Pair { a: 1, b: 2 }, Pair { a: 3, b: 4 }])?;
    let out = device.alloc_zeroed::<u32>(2)?;
    swap.launch(&stream, Grid::new(1, 2), (&pairs, &out))?;
    stream.synchronize()?;
    Ok(out.read()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_package_may_rename_hostcall() {
        assert_eq!(super::run().unwrap(), [201, 403]);
    }
}
