//! The lanes of a wave that came to the same place together.

use crate::target::{self, Here, Mask};

/// A part of a wave, as one of its lanes sees it.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// This lane.
    pub here: Here,
    /// Lanes of the group, one bit a lane.
    pub mask: Mask,
    /// Lanes in the group.
    pub count: u32,
    /// This lane's place among them.
    pub rank: u32,
}

impl Group {
    /// The lanes of a mask, of which this is one.
    #[inline(always)]
    pub fn of(here: Here, mask: Mask) -> Self {
        let below = mask & ((1 << here.lane_index()) - 1);
        Self { here, mask, count: mask.count_ones(), rank: below.count_ones() }
    }

    /// The lanes that come here together. On the software device they come to the same `site`; on a GPU lanes of
    /// several sites may run the same code together.
    #[inline(always)]
    pub fn converge(site: u64) -> Self {
        let here = target::here();
        Self::of(here, here.converge(site))
    }

    /// All lanes of the wave, which all come here.
    #[inline(always)]
    pub fn of_wave() -> Self {
        let here = target::here();
        Self::of(here, here.wave_lanes())
    }

    /// Runs `body` with the lanes that come here together to the same `site`, one site's after the other's. `nothing` is
    /// a value that nobody sees.
    #[inline(always)]
    pub fn meet<T>(site: u64, nothing: T, body: impl FnMut(Self) -> T) -> T {
        Self::meet_among(target::here().converge(site), site, nothing, body)
    }

    /// Does what [`Group::meet`] does for lanes that are known to have come here together.
    #[inline(always)]
    pub fn meet_among<T>(together: Mask, site: u64, nothing: T, mut body: impl FnMut(Self) -> T) -> T {
        let here = target::here();
        let own = here.same(together, site);
        let (mut left, mut result) = (together, nothing);
        loop {
            // No way leads from the body out of the loop: compilers would let the sites' lanes meet there, and run the
            // body together.
            if own >> left.trailing_zeros() & 1 != 0 {
                result = body(Self::of(here, own));
            }
            if own == together {
                return result;
            }
            left &= !here.ballot(together, own >> left.trailing_zeros() & 1 != 0);
            if left == 0 {
                return result;
            }
        }
    }

    /// The calling lane alone.
    #[inline(always)]
    pub fn alone() -> Self {
        let here = target::here();
        Self { here, mask: 1 << here.lane_index(), count: 1, rank: 0 }
    }

    #[inline(always)]
    pub fn is_leader(&self) -> bool {
        self.rank == 0
    }

    /// Whether this is the group's last lane.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        self.mask >> self.here.lane_index() == 1
    }

    /// Index in the wave of the group's first lane.
    #[inline(always)]
    pub fn leader(&self) -> u32 {
        self.mask.trailing_zeros()
    }

    /// Whether the group is all lanes that the wave began with, so that no other part can run beside it.
    #[inline(always)]
    pub fn is_whole(&self) -> bool {
        self.mask == self.here.wave_lanes()
    }

    /// Those of the group's lanes for which `yes` holds; it means something to them alone, but for their number.
    #[inline(always)]
    pub fn those(&self, yes: bool) -> Self {
        Self::of(self.here, self.here.ballot(self.mask, yes))
    }

    #[inline(always)]
    pub fn sync(&self) {
        self.here.sync(self.mask);
    }

    /// The leader's value.
    #[inline(always)]
    pub fn of_leader(&self, value: u64) -> u64 {
        self.here.broadcast(self.mask, value, self.leader())
    }

    /// Whether `yes` holds for every lane.
    #[inline(always)]
    pub fn all(&self, yes: bool) -> bool {
        self.here.all(self.mask, yes)
    }
}
