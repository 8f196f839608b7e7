//! How much of the output whoever waits for a position of a stream waits for: what its launches up to there have printed, and
//! not what later ones did, whose reader may be the one who waits.

use hostcall_locks::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// What launches of a stream have printed.
pub(super) struct Prints {
    marks: Mutex<VecDeque<Mark>>,
    /// The first mark's position, for those who look often.
    first: AtomicU64,
}

/// A launch that printed and is settled.
struct Mark {
    position: u64,
    /// Of all that was ever appended to the output, what had been when it was settled.
    appended: u64,
}

impl Default for Prints {
    fn default() -> Self {
        Self { marks: Mutex::default(), first: AtomicU64::new(u64::MAX) }
    }
}

impl Prints {
    /// Notes that the launch at `position` has printed, which is not below those that were noted before. Forgets marks that are
    /// written, as `is_written` says of an amount.
    pub fn note(&self, position: u64, appended: u64, is_written: impl Fn(u64) -> bool) {
        let mut marks = self.marks.lock();
        while marks.front().is_some_and(|first| is_written(first.appended)) {
            marks.pop_front();
        }
        marks.push_back(Mark { position, appended });
        self.first.store(marks[0].position, Ordering::Release);
    }

    /// How much of the output has to be written for what was printed up to `position`, a settled one.
    pub fn up_to(&self, position: u64) -> u64 {
        if self.first.load(Ordering::Acquire) > position {
            return 0;
        }
        let marks = self.marks.lock();
        let behind = marks.partition_point(|mark| mark.position <= position);
        behind.checked_sub(1).map_or(0, |last| marks[last].appended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_a_position_waits_for_no_later_text() {
        let prints = Prints::default();
        assert_eq!(prints.up_to(9), 0);
        prints.note(3, 100, |_| false);
        prints.note(5, 900, |_| false);
        assert_eq!([2, 3, 4, 5, 6].map(|position| prints.up_to(position)), [0, 100, 100, 900, 900]);
        // What is written is forgotten, and the rest is not.
        prints.note(8, 950, |appended| appended <= 900);
        assert_eq!([5, 7, 8].map(|position| prints.up_to(position)), [0, 0, 950]);
    }
}
