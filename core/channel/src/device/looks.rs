//! Looks at whether a launch is over, which waves share.

use crate::primitive::{AtomicU64, Ordering, cas_on_device};
use crate::region::Words;
use hostcall_abi::launch::LaunchId;

/// Time between two looks over the link at one word, of all waves that want to know it together. A GPU reads one word of the
/// host's memory once in a microsecond, whoever asks, and the copy engine waits behind all who ask: beside 1,056 waves that look
/// at one word, 8 MiB take 27 ms instead of 0.16 (docs/history).
pub(crate) const LOOK_PERIOD_NS: u64 = 4 << TICK_BITS;

/// The clock's nanoseconds to a tick.
const TICK_BITS: u32 = 10;

/// Bits of a word's time, in ticks: it begins anew after 18 minutes.
const TIME_BITS: u32 = 30;

/// Words, which launches share by their index. Two that run at the same time and have one word both see what is so, only later.
const WORDS: usize = 256;

/// What was seen of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// Nobody serves any more.
    pub stopped: bool,
    /// The launch was cancelled.
    pub cancelled: bool,
}

impl Over {
    /// What the host's words say now.
    pub fn look(words: Words<'_>, launch: LaunchId) -> Self {
        Self { stopped: words.stopped(), cancelled: words.cancelled(launch) }
    }

    /// Whether either is so.
    pub fn is_over(self) -> bool {
        self.stopped || self.cancelled
    }

    fn from_bits(bits: u64) -> Self {
        Self { stopped: bits & 1 != 0, cancelled: bits & 2 != 0 }
    }

    fn to_bits(self) -> u64 {
        u64::from(self.stopped) | u64::from(self.cancelled) << 1
    }
}

/// What waves saw last, in memory of the device, and when. A word has the launch in its upper half, then the time, then [`Over`].
/// What it says holds for a period only: the launch's id may come back.
pub struct Looks([AtomicU64; WORDS]);

impl Looks {
    /// Nobody has looked.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// What is known of the launch. Looks over the link if nobody has for a while. A wave that ends before it has told what
    /// it saw costs the others one period.
    pub fn of_launch(&self, words: Words<'_>, launch: LaunchId, now_ns: u64) -> Over {
        let word = &self.0[launch.index() as usize % WORDS];
        let old = word.load(Ordering::Relaxed);
        let known =
            if old >> 32 == u64::from(launch.to_bits()) { Over::from_bits(old) } else { Over::default() };
        let now = now_ns >> TICK_BITS & ((1 << TIME_BITS) - 1);
        let since = now.wrapping_sub(old >> 2) & ((1 << TIME_BITS) - 1);
        if since < LOOK_PERIOD_NS >> TICK_BITS && old != 0 {
            return known;
        }
        let word_of = |over: Over| u64::from(launch.to_bits()) << 32 | now << 2 | over.to_bits();
        // What was known may be of an earlier launch with this id: it is not passed on.
        if cas_on_device(word, old, word_of(Over::default())).is_err() {
            return known;
        }
        let over = Over::look(words, launch);
        if over.is_over() {
            word.store(word_of(over), Ordering::Relaxed);
        }
        over
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hostcall_abi::layout::{Layout, header};

    const LAUNCH: LaunchId = LaunchId::new(3, 1);

    /// Words of a region whose launch 3 was cancelled, or not.
    fn header(cancelled: bool) -> Vec<AtomicU64> {
        let words = 0..Layout::small(8, 64, 256, 4096).check().unwrap().words();
        let words: Vec<_> = words.map(|_| AtomicU64::new(0)).collect();
        words[header::CANCEL].store(u64::from(cancelled) << LAUNCH.index(), Ordering::Relaxed);
        words
    }

    #[test]
    fn one_look_a_period_and_for_all() {
        let (looks, running, cancelled) = (Looks::new(), header(false), header(true));
        let [running, cancelled] = [&running, &cancelled].map(|words| Words::of(words));
        let is_over = |words, launch, now_ns| looks.of_launch(words, launch, now_ns).is_over();
        assert!(!is_over(running, LAUNCH, 1 << 20));
        // Within the period nobody looks, also of a launch that has the same word.
        let other = LaunchId::new(3 + WORDS as u32, 1);
        assert!(!is_over(cancelled, LAUNCH, (1 << 20) + LOOK_PERIOD_NS - 1));
        assert!(!is_over(cancelled, other, (1 << 20) + LOOK_PERIOD_NS - 1));
        // Who looks tells all, for a period: the id may be another launch's then.
        assert!(is_over(cancelled, LAUNCH, (1 << 20) + LOOK_PERIOD_NS));
        assert!(is_over(running, LAUNCH, (1 << 20) + 2 * LOOK_PERIOD_NS - 1));
        assert!(!is_over(running, LAUNCH, (1 << 20) + 2 * LOOK_PERIOD_NS));
        // The next generation is another launch.
        assert!(!is_over(running, LaunchId::new(3, 2), 1 << 21));
        // A clock that begins anew keeps nobody from looking.
        assert!(is_over(cancelled, LAUNCH, 7));
    }
}
