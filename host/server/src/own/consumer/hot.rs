//! Which lines and rings a consumer looks at, and what it found there.

use hostcall_abi::layout::{LINE_WORDS, post_bell};
use std::time::{Duration, Instant};

/// How long a ring is looked at after it had posts, or its bell had changed.
const LOOKS_AT_RING: Duration = Duration::from_nanos(post_bell::HOST_LOOKS_NS);

/// Calls that are found before the ones found last are served: as many as a batch has. Meanwhile the lines of their
/// replies come, to be written.
pub(super) const CALLS_AHEAD: u32 = LINE_WORDS as u32;

/// Lines whose waves have called or posted, and may do so again without a hint: a consumer that sleeps looks at them whenever
/// it wakes up.
pub(super) struct KnownLines {
    pub list: Vec<u32>,
    is_known: Vec<bool>,
    turn: usize,
}

impl KnownLines {
    pub fn new(lines: usize) -> Self {
        Self { list: Vec::with_capacity(lines), is_known: vec![false; lines], turn: 0 }
    }

    #[inline]
    pub fn add(&mut self, line: u32) {
        if !self.is_known[line as usize] {
            self.is_known[line as usize] = true;
            self.list.push(line);
        }
    }

    /// Removes one line, the next in turn, if `is_over` says that its waves have ended.
    pub fn forget_one(&mut self, is_over: impl FnOnce(u32) -> bool) {
        self.turn = if self.turn + 1 < self.list.len() { self.turn + 1 } else { 0 };
        if let Some(line) = self.list.get(self.turn).copied().filter(|line| is_over(*line)) {
            self.is_known[line as usize] = false;
            self.list.swap_remove(self.turn);
        }
    }
}

/// The rings that are looked at in every pass.
pub(in crate::own) struct HotRings {
    pub hot: Vec<HotRing>,
    is_hot: Vec<bool>,
}

pub(in crate::own) struct HotRing {
    pub ring: u32,
    /// A time after the last post or bell; `None` until the clock is read next.
    quiet_since: Option<Instant>,
}

impl HotRings {
    pub fn new(count: usize) -> Self {
        Self { hot: Vec::with_capacity(count), is_hot: vec![false; count] }
    }

    pub fn heat(&mut self, ring: u32) {
        if !self.is_hot[ring as usize] {
            self.is_hot[ring as usize] = true;
            self.hot.push(HotRing { ring, quiet_since: None });
        }
    }

    /// Counts a look at the hot ring at `at`, before which the clock said `now` if it was read. Returns whether the ring is
    /// still hot: it is looked at once more at least after it was quiet for [`LOOKS_AT_RING`].
    #[inline]
    pub fn judge(&mut self, at: usize, fruitful: bool, now: Option<Instant>) -> bool {
        let hot = &mut self.hot[at];
        let Some(now) = now else {
            if fruitful {
                hot.quiet_since = None;
            }
            return true;
        };
        match hot.quiet_since {
            _ if fruitful => hot.quiet_since = None,
            None => hot.quiet_since = Some(now),
            Some(since) if now.duration_since(since) < LOOKS_AT_RING => {}
            Some(_) => {
                self.is_hot[hot.ring as usize] = false;
                self.hot.swap_remove(at);
                return false;
            }
        }
        true
    }
}

/// Lines with calls, and which of their slots rang.
#[derive(Default)]
pub(super) struct Found {
    pub lines: [(u32, u8); CALLS_AHEAD as usize],
    pub count: usize,
}

impl Found {
    pub fn of(line: u32, rung: u8) -> Self {
        let mut found = Self::default();
        found.push(line, rung);
        found
    }

    /// Adds a line to fewer than [`CALLS_AHEAD`] others, each of which has a call.
    #[inline(always)]
    pub fn push(&mut self, line: u32, rung: u8) {
        self.lines[self.count] = (line, rung);
        self.count += 1;
    }
}
