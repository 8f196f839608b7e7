//! `hostcall trace info`: what a trace has.

use super::{NO_END, Stop, device, events, open};
use hostcall_trace::{
    ClockPair, Ending, Event, Latencies, Loss, Losses, Names, Page, StreamLosses, Totals, escaped,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

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

/// What the events of a trace come to.
#[derive(Default)]
struct Facts {
    latencies: Latencies,
    losses: Losses,
    calls: u64,
    points: u64,
    launches_ended: u64,
    endings: BTreeMap<Ending, u64>,
    /// Launches that panicked, with their kernels.
    panicked: Vec<(u64, Arc<str>)>,
    clocks: BTreeMap<u16, Clock>,
    /// A file can number no more streams than this map has room for.
    streams: BTreeMap<u16, Stream>,
    /// The time of the last event that is no page.
    last_ns: u64,
    /// When the first and the last page were opened, by the device's clock: it says how long they took and not
    /// when that was.
    pages_ns: Option<(u64, u64)>,
    totals: Option<Totals>,
}

impl Facts {
    fn note(&mut self, names: &Names, event: &Event) {
        self.losses.note(event);
        let mut at_ns = 0;
        match event {
            Event::Call(call) => {
                self.calls += 1;
                at_ns = call.replied_ns;
                self.latencies.add(names, call);
            }
            Event::Posts(posts) => {
                at_ns = posts.until_ns;
                self.latencies.add_posts(posts);
            }
            Event::LaunchBegan { at_ns: began_ns, .. } => at_ns = *began_ns,
            Event::Waiting(waiting) => at_ns = waiting.at_ns,
            Event::LaunchEnded { launch, ending, at_ns: ended_ns } => {
                self.launches_ended += 1;
                at_ns = *ended_ns;
                *self.endings.entry(*ending).or_default() += 1;
                if *ending == Ending::PANICKED && self.panicked.len() < MOST_PANICKED {
                    let kernel =
                        names.launch(*launch).map_or_else(|| "?".into(), |launch| launch.kernel.clone());
                    self.panicked.push((*launch, kernel));
                }
            }
            Event::Point(point) => {
                self.points += 1;
                at_ns = point.at_ns;
            }
            Event::Clock(pair) => self.clocks.entry(pair.source).or_default().add(pair),
            Event::Ended(totals) => self.totals = Some(*totals),
            Event::Stream { stream, record_bytes, name, policy, .. } => {
                let of_stream = self.streams.entry(*stream).or_default();
                (of_stream.name, of_stream.policy) = (name.to_string(), policy.to_string());
                of_stream.record_bytes = *record_bytes;
            }
            Event::Page(page) => {
                self.streams.entry(page.stream).or_default().note(page);
                let (first, last) = self.pages_ns.unwrap_or((page.opened_ns, page.opened_ns));
                self.pages_ns = Some((first.min(page.opened_ns), last.max(page.opened_ns)));
            }
            Event::StreamEnded { stream, totals } => {
                self.streams.entry(*stream).or_default().pages = totals.pages;
            }
            _ => {}
        }
        self.last_ns = self.last_ns.max(at_ns);
    }

    /// Returns how long the trace took, as far as it says so.
    fn time(&self) -> String {
        let seconds = |ns: u64| ns as f64 / 1e9;
        match (self.totals, self.last_ns, self.pages_ns) {
            (Some(totals), ..) => format!("{:.3} s", seconds(totals.ended_ns)),
            (None, 0, Some((first, last))) => {
                format!("{:.3} s from the first page to the last one; {NO_END}", seconds(last - first))
            }
            (None, 0, None) => format!("not known; {NO_END}"),
            (None, last_ns, _) => format!("{:.3} s; {NO_END}", seconds(last_ns)),
        }
    }

    fn print_launches(&self, names: &Names, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "launches:  {}, of which {} ended", names.launches_begun(), self.launches_ended)?;
        let cancelled = self.endings.get(&Ending::CANCELLED).unwrap_or(&0);
        write!(out, ", {cancelled} cancelled")?;
        let is_other = |ending: &Ending| ![Ending::OK, Ending::CANCELLED].contains(ending);
        for (ending, count) in self.endings.iter().filter(|(ending, _)| is_other(ending)) {
            write!(out, ", {count} {}", ending.name())?;
        }
        writeln!(out)?;
        for (launch, kernel) in &self.panicked {
            let kernel = escaped(kernel);
            writeln!(out, "panicked:  launch {launch}, kernel {kernel}; the run said where and why")?;
        }
        Ok(())
    }

    fn print_clocks(&self, names: &Names, out: &mut dyn Write) -> io::Result<()> {
        for (source, Clock { pairs, within_ns, drift_ppb }) in &self.clocks {
            let device = device(names, *source);
            writeln!(
                out,
                "clock:     of {device}, compared {pairs} times: times are within {within_ns} ns of the host's, and its rate \
                 is corrected by {:+.3} ppm",
                *drift_ppb as f64 / 1e3
            )?;
        }
        Ok(())
    }

    fn print_streams(&self, out: &mut dyn Write) -> io::Result<()> {
        for (number, stream) in &self.streams {
            let Stream { name, policy, record_bytes, pages, bytes, .. } = stream;
            let StreamLosses { dropped_records, overwritten_bytes, lost_bytes, .. } =
                self.losses.of_stream(*number);
            let (name, policy) = (escaped(name), escaped(policy));
            write!(
                out,
                "stream {number}:  {name}, records of {record_bytes} bytes, policy {policy}: {pages} pages, \
                 {bytes} bytes; {dropped_records} records dropped, {overwritten_bytes} bytes overwritten"
            )?;
            match lost_bytes {
                0 => writeln!(out)?,
                lost => writeln!(out, ", {lost} bytes lost")?,
            }
        }
        Ok(())
    }
}

pub(super) fn info(path: &Path, out: &mut dyn Write) -> Result<(), Stop> {
    let mut reader = open(path)?;
    let mut facts = Facts::default();
    let names = events(path, &mut reader, |names, event| {
        facts.note(names, event);
        Ok(())
    })?;
    let header = reader.header();
    let began = header.began_unix_ns as f64 / 1e9;
    writeln!(out, "trace:     version {}, began at Unix time {began:.3}", header.version)?;
    writeln!(out, "time:      {}", facts.time())?;
    for (_, device, protocol) in names.sources() {
        writeln!(out, "device:    {}, protocol {}", escaped(device), escaped(protocol))?;
    }
    facts.print_launches(&names, out)?;
    writeln!(out, "calls:     {}", facts.calls)?;
    if facts.points > 0 {
        writeln!(out, "points:    {} records of kernels' trace points", facts.points)?;
    }
    facts.print_clocks(&names, out)?;
    for Loss { how, count, what } in facts.losses.of_trace() {
        writeln!(out, "{:<9}  {count} {what}", format!("{how}:"))?;
    }
    facts.print_streams(out)?;
    if facts.latencies.methods().next().is_some() {
        write!(out, "\n{}", facts.latencies.table(&names))?;
    }
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
