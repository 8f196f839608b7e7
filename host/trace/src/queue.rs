//! What waits for the tracer's thread: bounded, and never waited for by those who record.

use crate::record::{Call, ClockPair, Ending, Waiting};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::trace::PointKind;
use hostcall_locks::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// How long the thread gathers records before it takes them.
const GATHERS_FOR: Duration = Duration::from_millis(50);

/// Methods whose posts are counted apart between two looks of the thread.
const MOST_POSTED_METHODS: usize = 4096;

/// Bytes of trace points that wait for the thread.
const MOST_POINT_BYTES: usize = 16 << 20;

/// A method as those who record name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MethodKey {
    pub number: u32,
    pub name: &'static str,
}

/// Something that was recorded. Numbers that only the file has are not known yet.
pub(crate) enum Entry {
    Source {
        source: u16,
        device: Arc<str>,
        protocol: &'static str,
    },
    Call {
        call: Call,
        method: MethodKey,
        launch: LaunchId,
    },
    LaunchBegan {
        source: u16,
        launch: LaunchId,
        at_ns: u64,
        workgroups: [u32; 3],
        kernel: Arc<str>,
    },
    Waiting {
        waiting: Waiting,
        launch: LaunchId,
    },
    Points(PointsEntry),
    NamedPoint {
        source: u16,
        point: u32,
        kind: PointKind,
        tags: u64,
        line: u32,
        file: Arc<str>,
        text: Arc<str>,
    },
    Clock(ClockPair),
    LaunchEnded {
        source: u16,
        launch: LaunchId,
        at_ns: u64,
        ending: Ending,
    },
}

/// Trace points of a wave: their records, with times on the trace's time line.
pub(crate) struct PointsEntry {
    pub source: u16,
    pub launch: LaunchId,
    pub slot: u32,
    pub workgroup: u32,
    pub wave: u32,
    pub lost: u64,
    pub records: Vec<u8>,
}

/// Posts since they were taken last.
pub(crate) struct PostCount {
    pub source: u16,
    pub method: MethodKey,
    pub count: u64,
}

/// What the thread takes at once.
#[derive(Default)]
pub(crate) struct Taken {
    pub entries: Vec<Entry>,
    pub posts: Vec<PostCount>,
    /// Since the trace began.
    pub dropped_calls: u64,
    pub dropped_others: u64,
    /// Bytes of trace points among the entries.
    pub point_bytes: usize,
    /// Nothing comes after this.
    pub is_last: bool,
}

pub(crate) struct Queue {
    waiting: Mutex<Taken>,
    changed: Condvar,
    most_calls: usize,
}

impl Queue {
    /// Makes a queue for so many calls, and as many other entries.
    pub fn new(most_calls: usize) -> Self {
        let most_calls = most_calls.clamp(1, usize::MAX / 2);
        Self { waiting: Mutex::default(), changed: Condvar::new(), most_calls }
    }

    /// Adds an entry, or counts that there is no room for it.
    pub fn push(&self, entry: Entry) {
        let mut waiting = self.waiting.lock();
        let is_call = matches!(entry, Entry::Call { .. });
        let most = match entry {
            Entry::Call { .. } => self.most_calls,
            // Each is told once, and all that its trace point says later needs it. A device has a bounded
            // number of them.
            Entry::NamedPoint { .. } => usize::MAX,
            // So is a source's name. Any number of sources may share the last number.
            Entry::Source { source, .. } if source < u16::MAX => usize::MAX,
            // Others have room for themselves, so that calls are not without their launches.
            _ => 2 * self.most_calls,
        };
        // What comes after the end is no part of the recording.
        if waiting.is_last {
            return;
        }
        if waiting.entries.len() >= most {
            let dropped = if is_call { &mut waiting.dropped_calls } else { &mut waiting.dropped_others };
            *dropped += 1;
            return;
        }
        waiting.entries.push(entry);
        let len = waiting.entries.len();
        drop(waiting);
        if len == 1 || len == self.most_calls / 2 {
            self.changed.notify_one();
        }
    }

    /// Adds trace points of a wave. Who adds them has looked before whether there is [room](Self::has_room).
    pub fn push_points(&self, points: PointsEntry) {
        let mut waiting = self.waiting.lock();
        if waiting.is_last {
            return;
        }
        waiting.point_bytes += points.records.len();
        waiting.entries.push(Entry::Points(points));
        drop(waiting);
        self.changed.notify_one();
    }

    /// Whether more trace points are taken now.
    pub fn has_room(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.is_last || waiting.point_bytes < MOST_POINT_BYTES && waiting.entries.len() < self.most_calls
    }

    /// Counts posts.
    pub fn count_posts(&self, source: u16, method: MethodKey, count: u64) {
        let mut waiting = self.waiting.lock();
        if waiting.is_last {
            return;
        }
        let is_same = |posts: &PostCount| posts.source == source && posts.method == method;
        if let Some(at) = waiting.posts.iter().position(is_same) {
            waiting.posts[at].count += count;
        } else if waiting.posts.len() < MOST_POSTED_METHODS {
            waiting.posts.push(PostCount { source, method, count });
            drop(waiting);
            self.changed.notify_one();
        } else {
            waiting.dropped_others += count;
        }
    }

    /// Lets nothing in any more.
    pub fn close(&self) {
        self.waiting.lock().is_last = true;
        self.changed.notify_one();
    }

    /// Waits for entries, and a while for more of them. `spare` is memory for the next ones.
    pub fn take(&self, spare: Vec<Entry>) -> Taken {
        let is_empty =
            |waiting: &mut Taken| waiting.entries.is_empty() && waiting.posts.is_empty() && !waiting.is_last;
        let waiting = self.changed.wait_while(self.waiting.lock(), is_empty);
        let half = self.most_calls / 2;
        let gathers = |waiting: &mut Taken| waiting.entries.len() < half && !waiting.is_last;
        let (mut waiting, _) = self.changed.wait_timeout_while(waiting, GATHERS_FOR, gathers);
        Taken {
            entries: std::mem::replace(&mut waiting.entries, spare),
            posts: std::mem::take(&mut waiting.posts),
            dropped_calls: waiting.dropped_calls,
            dropped_others: waiting.dropped_others,
            point_bytes: std::mem::take(&mut waiting.point_bytes),
            is_last: waiting.is_last,
        }
    }

    /// Returns how many calls and other entries were dropped.
    pub fn dropped(&self) -> (u64, u64) {
        let waiting = self.waiting.lock();
        (waiting.dropped_calls, waiting.dropped_others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_the_names_of_devices_and_trace_points() {
        let queue = Queue::new(1);
        let ended = |at_ns| Entry::LaunchEnded {
            source: 0,
            launch: LaunchId::NONE,
            at_ns,
            ending: Default::default(),
        };
        (0..3).for_each(|at_ns| queue.push(ended(at_ns)));
        assert_eq!(queue.dropped(), (0, 1));
        (0..3).for_each(|source| {
            queue.push(Entry::Source { source, device: "cpu".into(), protocol: "hostcall" })
        });
        assert_eq!(queue.dropped(), (0, 1));
        let (file, text) = (Arc::from("kernel.rs"), Arc::from("step"));
        queue.push(Entry::NamedPoint {
            source: 0,
            point: 1,
            kind: PointKind::Begin,
            tags: 0,
            line: 1,
            file,
            text,
        });
        assert_eq!(queue.dropped(), (0, 1));
        let taken = queue.take(Vec::new());
        assert!(matches!(
            taken.entries[..],
            [_, _, _, _, Entry::Source { source: 2, .. }, Entry::NamedPoint { point: 1, .. }]
        ));
    }
}
