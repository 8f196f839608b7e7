//! Time: [`Instant`] is the device's own clock, [`SystemTime`] the host's.

use crate::sys::pal::abi;
use crate::time::Duration;

const NS_A_SECOND: i128 = 1_000_000_000;

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        // SAFETY: it may be called at any time.
        Self(Duration::from_nanos(unsafe { abi::clock_ns() }))
    }

    pub fn checked_sub_instant(&self, other: &Self) -> Option<Duration> {
        self.0.checked_sub(other.0)
    }

    pub fn checked_add_duration(&self, duration: &Duration) -> Option<Self> {
        self.0.checked_add(*duration).map(Self)
    }

    pub fn checked_sub_duration(&self, duration: &Duration) -> Option<Self> {
        self.0.checked_sub(*duration).map(Self)
    }
}

/// Nanoseconds since 1970, whose seconds fit 64 bits.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SystemTime(i128);

pub const UNIX_EPOCH: SystemTime = SystemTime(0);

impl SystemTime {
    pub const MAX: Self = Self((i64::MAX as i128 + 1) * NS_A_SECOND - 1);

    pub const MIN: Self = Self(i64::MIN as i128 * NS_A_SECOND);

    pub fn now() -> Self {
        // SAFETY: it may be called at any time.
        Self::of_ns(unsafe { abi::wall_ns() })
    }

    pub fn of_ns(ns: i64) -> Self {
        Self(ns.into())
    }

    pub fn sub_time(&self, other: &Self) -> Result<Duration, Duration> {
        let ns = (self.0 - other.0).unsigned_abs();
        let duration = Duration::new((ns / NS_A_SECOND as u128) as u64, (ns % NS_A_SECOND as u128) as u32);
        if self >= other { Ok(duration) } else { Err(duration) }
    }

    pub fn checked_add_duration(&self, duration: &Duration) -> Option<Self> {
        self.moved(duration.as_nanos() as i128)
    }

    pub fn checked_sub_duration(&self, duration: &Duration) -> Option<Self> {
        self.moved(-(duration.as_nanos() as i128))
    }

    fn moved(&self, ns: i128) -> Option<Self> {
        let moved = Self(self.0 + ns);
        (Self::MIN..=Self::MAX).contains(&moved).then_some(moved)
    }
}
