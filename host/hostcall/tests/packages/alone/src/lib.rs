//! Kernels, a service and their host in a package that depends on `hostcall` alone. Everything is imported by `*`, but for the macros that
//! are also the standard library's: no other name stands in the way of one of that.

use hostcall::{println, *};
use std::sync::atomic::{AtomicU64, Ordering};

/// What has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub enum Sighting {
    /// Nothing.
    None,
    /// So many.
    Many(u32),
}

/// Notes what is seen.
#[service]
pub trait Sightings {
    /// Gives back what is seen the next time.
    fn note(sighting: Sighting) -> Option<Sighting>;
}

/// A factor.
#[repr(C)]
#[derive(Clone, Copy, Plain)]
pub struct Factor {
    /// The number.
    pub number: u64,
}

/// Calls, prints, and calls a closure.
#[kernel]
pub fn look(lane: &Lane, factor: Factor, closure: HostcallRef<u64, u64>, out: &[Global<u64>]) {
    let i = lane.global_id();
    let seen = Sightings::note(Sighting::Many(i as u32)).unwrap();
    println!("lane {i} of {}", lane.grid_lanes());
    assert!(seen == Some(Sighting::None));
    let root = math::Float::sqrt((i * i) as f64);
    out[i].set(closure.call(root as u64 * factor.number).unwrap());
}

#[derive(Default)]
struct Seen(AtomicU64);

impl SightingsHandler for Seen {
    fn note(&self, sighting: Sighting) -> Result<Option<Sighting>, CallError> {
        if let Sighting::Many(many) = sighting {
            self.0.fetch_add(many.into(), Ordering::Relaxed);
        }
        Ok(Some(Sighting::None))
    }
}

/// Runs the kernel and returns what it wrote.
///
/// # Errors
/// The device's.
pub fn run() -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let device = Device::builder("cpu").service(Sightings::serve(Seen::default())).open()?;
    let stream = device.stream()?;
    let out = device.alloc_zeroed::<u64>(3)?;
    let closure = Hostcall::continuous(&device, |x: u64| x + 1)?;
    look.launch(&stream, Grid::new(1, 3), (Factor { number: 10 }, &closure, &out))?;
    stream.synchronize()?;
    Ok(out.read()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_package_needs_hostcall_alone() {
        assert_eq!(super::run().unwrap(), [1, 11, 21]);
    }
}

/// Runs the README's program as a user's package would.
#[cfg(doctest)]
#[doc = include_str!("../../../../../../README.md")]
struct Readme;
