//! What a trace lacks, as it says itself.

use crate::record::{Event, StreamTotals};
use std::collections::BTreeMap;

/// Counts what a trace lacks: what was dropped, overwritten or damaged before it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    calls: u64,
    others: u64,
    points: u64,
    blocks: u64,
    bytes: u64,
    streams: BTreeMap<u16, StreamLosses>,
}

/// What a stream lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamLosses {
    /// Records that kernels dropped, because no page was free.
    pub dropped_records: u64,
    /// Bytes that were overwritten before they were read.
    pub overwritten_bytes: u64,
    /// Bytes that could not be copied from the device, or not be written to the file.
    pub lost_bytes: u64,
}

/// Something that a trace lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What happened to it, such as `dropped`.
    pub how: &'static str,
    /// How many there were.
    pub count: u64,
    /// What they were, such as `blocks`.
    pub what: &'static str,
}

impl Losses {
    /// Takes what an event says is lost.
    pub fn note(&mut self, event: &Event) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        match event {
            Event::Dropped(calls) => add(&mut self.calls, *calls),
            Event::PointsLost { records, .. } => add(&mut self.points, *records),
            Event::Missing(blocks) => add(&mut self.blocks, *blocks),
            Event::Damaged(bytes) => add(&mut self.bytes, *bytes),
            Event::Ended(totals) => self.others = totals.dropped_others,
            // A file can number no more streams than this map has room for.
            Event::Page(page) => {
                let stream = self.streams.entry(page.stream).or_default();
                add(&mut stream.dropped_records, page.dropped_before);
                add(&mut stream.overwritten_bytes, page.overwritten_before);
            }
            // What was dropped after the last page is in no page.
            Event::StreamEnded { stream, totals } => {
                let StreamTotals { dropped_records, overwritten_bytes, lost_bytes, .. } = *totals;
                self.streams.insert(*stream, StreamLosses { dropped_records, overwritten_bytes, lost_bytes });
            }
            _ => {}
        }
    }

    /// Returns what is lost, but for what streams lack.
    pub fn of_trace(&self) -> impl Iterator<Item = Loss> + use<> {
        let all = [
            ("dropped", self.others, "launches, posts or names, which were too many"),
            ("dropped", self.calls, "calls, which came faster than they were written"),
            ("lost", self.points, "records of trace points, which came faster than they were read"),
            ("missing", self.blocks, "blocks"),
            ("damaged", self.bytes, "bytes"),
        ];
        all.into_iter().filter(|(_, count, _)| *count > 0).map(|(how, count, what)| Loss { how, count, what })
    }

    /// Returns what a stream lacks, by the number that the trace gives it.
    pub fn of_stream(&self, stream: u16) -> StreamLosses {
        self.streams.get(&stream).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Totals;

    #[test]
    fn all_that_is_lost_is_counted() {
        let mut losses = Losses::default();
        assert_eq!(losses.of_trace().next(), None);
        let totals = StreamTotals { dropped_records: 9, overwritten_bytes: 32, ..StreamTotals::default() };
        for event in [
            Event::Dropped(3),
            Event::Damaged(40),
            Event::Dropped(4),
            Event::Missing(1),
            Event::Ended(Totals { dropped_others: 2, ..Totals::default() }),
            Event::StreamEnded { stream: 5, totals },
        ] {
            losses.note(&event);
        }
        let counted: Vec<_> = losses.of_trace().map(|loss| (loss.how, loss.count)).collect();
        assert_eq!(counted, [("dropped", 2), ("dropped", 7), ("missing", 1), ("damaged", 40)]);
        let of_stream = losses.of_stream(5);
        assert_eq!((of_stream.dropped_records, of_stream.overwritten_bytes), (9, 32));
        assert_eq!(losses.of_stream(6), StreamLosses::default());
    }
}
