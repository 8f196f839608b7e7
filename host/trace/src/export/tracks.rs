//! Tracks for slices that may overlap: on one track slices must not, so that there are several.

/// Numbers of tracks, of which none is given twice.
pub(super) struct TrackIds(u64);

impl TrackIds {
    /// Numbers from this one on.
    pub fn from(first: u64) -> Self {
        Self(first)
    }

    pub fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// The tracks of one group.
pub(super) struct Tracks {
    /// Their numbers, and when the last slice of each ends.
    tracks: Vec<(u64, u64)>,
    /// Most tracks that are remembered. Each slice past them has one for itself.
    most: usize,
}

impl Tracks {
    pub fn new(most: usize) -> Self {
        Self { tracks: Vec::new(), most }
    }

    /// Returns a track that has nothing from `begin_ns` on, for a slice until `end_ns`, and whether it is new.
    ///
    /// Slices come in the order of their ends, more or less. One that begins before the last ends of all tracks gets a new
    /// one, also where there would be a gap.
    pub fn place(&mut self, ids: &mut TrackIds, begin_ns: u64, end_ns: u64) -> (u64, bool) {
        if let Some((track, last_ns)) = self.tracks.iter_mut().find(|(_, last_ns)| *last_ns <= begin_ns) {
            *last_ns = end_ns;
            return (*track, false);
        }
        let track = ids.next();
        if self.tracks.len() < self.most {
            self.tracks.push((track, end_ns));
        }
        (track, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_track_do_not_overlap() {
        let (mut ids, mut tracks) = (TrackIds::from(10), Tracks::new(2));
        let mut place = |begin, end| tracks.place(&mut ids, begin, end);
        assert_eq!(place(0, 5), (11, true));
        assert_eq!(place(5, 6), (11, false));
        assert_eq!(place(5, 9), (12, true));
        assert_eq!(place(6, 7), (11, false));
        assert_eq!(place(8, 9), (11, false));
        // Past the most, each has a track for itself.
        let last = (0..10).map(|_| place(8, 10)).last();
        assert_eq!(last, Some((22, true)));
    }
}
