//! `hostcall trace info`: what a trace has.

use super::{NO_END, Stop, device, events, open};
use hostcall_trace::{
    ClockPair, Ending, Event, Latencies, Loss, Losses, Page, StreamLosses, Totals, escaped,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

/// Launches that panicked which are named; all are counted.
const MOST_PANICKED: usize = 8;

/// Pages of a stream that can be open at a time: as many as a raw channel has.
const MOST_OPEN: usize = 1 << 16;

/// What a trace has of a stream.
#[derive(Default)]
struct Stream {
    name: String,
    policy: String,
    record_bytes: u32,
    /// Pages of which the trace has a part; the channel's pages once it has said how many there were.
    pages: u64,
    /// Numbers of those that go on: other pages may lie between two parts of one.
    open: BTreeSet<u64>,
    bytes: u64,
}

impl Stream {
    /// Counts a page, if this is its first part.
    fn note(&mut self, page: &Page) {
        self.pages += u64::from(self.open.insert(page.sequence));
        if page.is_last {
            self.open.remove(&page.sequence);
        }
        // The last part of the others was lost.
        while self.open.len() > MOST_OPEN {
            self.open.pop_first();
        }
        self.bytes += page.bytes.len() as u64;
    }
}

/// What a trace says of a device's clock.
#[derive(Default)]
struct Clock {
    pairs: u64,
    within_ns: u64,
    drift_ppb: i64,
}

impl Clock {
    fn add(&mut self, pair: &ClockPair) {
        self.pairs += 1;
        self.within_ns = self.within_ns.max(pair.within_ns());
        self.drift_ppb = pair.drift_ppb;
    }
}

pub(super) fn info(path: &Path, out: &mut dyn Write) -> Result<(), Stop> {
    let mut reader = open(path)?;
    let mut latencies = Latencies::default();
    let (mut calls, mut launches_ended, mut last_ns) = (0u64, 0u64, 0);
    let (mut endings, mut panicked) = (BTreeMap::<Ending, u64>::new(), Vec::new());
    let (mut losses, mut points, mut clocks) = (Losses::default(), 0u64, BTreeMap::<u16, Clock>::new());
    // Pages have times of the device's clock, which says how long they took and not when that was.
    let (mut first_page_ns, mut last_page_ns) = (u64::MAX, 0);
    let mut totals = None::<Totals>;
    let mut streams = BTreeMap::<u16, Stream>::new();
    let names = events(path, &mut reader, |names, event| {
        losses.note(event);
        match event {
            Event::Call(call) => {
                calls += 1;
                last_ns = last_ns.max(call.replied_ns);
                latencies.add(names, call);
            }
            Event::Posts(posts) => {
                last_ns = last_ns.max(posts.until_ns);
                latencies.add_posts(posts);
            }
            Event::LaunchBegan { at_ns, .. } => last_ns = last_ns.max(*at_ns),
            Event::Waiting(waiting) => last_ns = last_ns.max(waiting.at_ns),
            Event::LaunchEnded { launch, ending, at_ns } => {
                launches_ended += 1;
                last_ns = last_ns.max(*at_ns);
                *endings.entry(*ending).or_default() += 1;
                if *ending == Ending::PANICKED && panicked.len() < MOST_PANICKED {
                    let kernel =
                        names.launch(*launch).map_or_else(|| "?".into(), |launch| launch.kernel.clone());
                    panicked.push((*launch, kernel));
                }
            }
            Event::Point(point) => {
                points += 1;
                last_ns = last_ns.max(point.at_ns);
            }
            Event::Clock(pair) => clocks.entry(pair.source).or_default().add(pair),
            Event::Ended(all) => totals = Some(*all),
            // A file can number no more streams than this map has room for.
            Event::Stream { stream, record_bytes, name, policy, .. } => {
                let of_stream = streams.entry(*stream).or_default();
                (of_stream.name, of_stream.policy) = (name.to_string(), policy.to_string());
                of_stream.record_bytes = *record_bytes;
            }
            Event::Page(page) => {
                let of_stream = streams.entry(page.stream).or_default();
                of_stream.note(page);
                first_page_ns = first_page_ns.min(page.opened_ns);
                last_page_ns = last_page_ns.max(page.opened_ns);
            }
            Event::StreamEnded { stream, totals } => {
                streams.entry(*stream).or_default().pages = totals.pages;
            }
            _ => {}
        }
        Ok(())
    })?;
    let header = reader.header();
    let began = header.began_unix_ns as f64 / 1e9;
    writeln!(out, "trace:     version {}, began at Unix time {began:.3}", header.version)?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let time = match (totals, last_ns) {
        (Some(totals), _) => format!("{:.3} s", seconds(totals.ended_ns)),
        (None, 0) if last_page_ns >= first_page_ns => {
            let took = seconds(last_page_ns - first_page_ns);
            format!("{took:.3} s from the first page to the last one; {NO_END}")
        }
        (None, 0) => format!("not known; {NO_END}"),
        (None, _) => format!("{:.3} s; {NO_END}", seconds(last_ns)),
    };
    writeln!(out, "time:      {time}")?;
    for (_, device, protocol) in names.sources() {
        writeln!(out, "device:    {}, protocol {}", escaped(device), escaped(protocol))?;
    }
    let launches = names.launches_begun();
    write!(out, "launches:  {launches}, of which {launches_ended} ended")?;
    let cancelled = endings.remove(&Ending::CANCELLED).unwrap_or(0);
    write!(out, ", {cancelled} cancelled")?;
    endings.remove(&Ending::OK);
    for (ending, count) in &endings {
        write!(out, ", {count} {}", ending.name())?;
    }
    writeln!(out)?;
    for (launch, kernel) in &panicked {
        let kernel = escaped(kernel);
        writeln!(out, "panicked:  launch {launch}, kernel {kernel}; the run said where and why")?;
    }
    writeln!(out, "calls:     {calls}")?;
    if points > 0 {
        writeln!(out, "points:    {points} records of kernels' trace points")?;
    }
    for (source, Clock { pairs, within_ns, drift_ppb }) in &clocks {
        let device = device(&names, *source);
        writeln!(
            out,
            "clock:     of {device}, compared {pairs} times: times are within {within_ns} ns of the host's, and its rate \
             is corrected by {:+.3} ppm",
            *drift_ppb as f64 / 1e3
        )?;
    }
    for Loss { how, count, what } in losses.of_trace() {
        writeln!(out, "{:<9}  {count} {what}", format!("{how}:"))?;
    }
    for (number, stream) in &streams {
        let Stream { name, policy, record_bytes, pages, bytes, .. } = stream;
        let StreamLosses { dropped_records, overwritten_bytes, lost_bytes, .. } = losses.of_stream(*number);
        let (name, policy) = (escaped(name), escaped(policy));
        write!(
            out,
            "stream {number}:  {name}, records of {record_bytes} bytes, policy {policy}: {pages} pages,"
        )?;
        write!(
            out,
            " {bytes} bytes; {dropped_records} records dropped, {overwritten_bytes} bytes overwritten"
        )?;
        match lost_bytes {
            0 => writeln!(out)?,
            lost => writeln!(out, ", {lost} bytes lost")?,
        }
    }
    writeln!(out)?;
    write!(out, "{}", latencies.table(&names))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_without_an_end_are_counted_once_and_forgotten() {
        let mut stream = Stream::default();
        let pages = 2 * MOST_OPEN as u64;
        for sequence in 0..pages {
            // In two parts.
            (0..2).for_each(|_| stream.note(&Page { sequence, ..Page::default() }));
        }
        assert_eq!((stream.pages, stream.open.len()), (pages, MOST_OPEN));
    }
}
