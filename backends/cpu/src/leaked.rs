//! Counts what is never used again: stacks of lanes that were ended in the middle of their code.
//!
//! Safe code may have told others of what lies there: a scoped thread, whose scope waits in the lane that was
//! ended, a list of who waits for a channel. Nobody can know, so the memory stays (LEAKED, see
//! [`Lane`](crate::lane::Lane)), with the workgroup's and the kernel's library. A program that goes on ending
//! lanes so would use up its memory and its mappings: before that it is told.

use crate::launch::LaunchError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lanes that may be ended by force until nothing is launched any more, in a process: each takes two mappings, and Linux gives a
/// process 65,530 of them. Those that run at that time may exceed it.
const MOST: usize = 16_384;

static LEAKED: AtomicUsize = AtomicUsize::new(0);

/// Counts a lane whose stack is not used again.
pub(crate) fn count() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

/// Refuses launches at the bound.
pub(crate) fn check() -> Result<(), LaunchError> {
    check_count(LEAKED.load(Ordering::Relaxed))
}

fn check_count(leaked: usize) -> Result<(), LaunchError> {
    if leaked < MOST {
        return Ok(());
    }
    Err(LaunchError::NoStack(format!(
        "{leaked} lanes of this process were ended by force, and their stacks cannot be used again: start the program anew, and \
         have kernels look for the end of their launch (`lane.pause()` in loops that wait)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_refused_at_the_bound() {
        assert_eq!(check_count(MOST - 1), Ok(()));
        let Err(LaunchError::NoStack(sentence)) = check_count(MOST) else { panic!("it is not refused") };
        assert!(sentence.starts_with("16384 lanes of this process were ended by force"), "{sentence}");
    }
}
