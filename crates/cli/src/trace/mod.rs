//! Tracing a run, and `hostcall trace`.

use crate::arguments::TraceCommand;
use crate::run::BY_SIGNAL;
use crate::{Outcome, USAGE, complain};
use hostcall_trace::export::{self, ExportError, Format, Table};
use hostcall_trace::{
    ClockPair, Ending, Event, Latencies, Names, Page, Point, PointKind, Reader, RecordPrinter, StreamTotals,
    Streams, Totals, Tracer, UNKNOWN, Waiting, escaped,
};
use signal_hook::consts::SIGPIPE;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the end of a run waits for its trace to be written.
const LONGEST_FINISH: Duration = Duration::from_secs(10);

/// Between two lines of progress on a terminal.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// What is said of a trace whose end is not there. A file does not tell the two apart.
const NO_END: &str =
    "the trace's end is missing: it was cut, or is still being written (`hostcall trace top` follows it)";

/// Launches that panicked which are named; all are counted.
const MOST_PANICKED: usize = 8;

/// What a run records.
pub struct Tracing {
    tracer: Option<Tracer>,
    has_stats: bool,
}

impl Tracing {
    /// Starts a tracer, if there is a file to write or statistics are to be printed.
    ///
    /// # Errors
    /// A sentence, when the file cannot be written.
    pub fn start(file: Option<&Path>, has_stats: bool) -> Result<Self, Box<dyn Error>> {
        let mut builder = Tracer::builder();
        if let Some(file) = file {
            builder = builder.file(file)?;
        }
        let tracer = (file.is_some() || has_stats).then(|| builder.start()).transpose();
        let tracer = tracer.map_err(|error| match file {
            Some(_) => error.to_string(),
            None => format!("cannot start to count calls: {error}"),
        })?;
        Ok(Self { tracer, has_stats })
    }

    /// Returns the tracer that the device is to have.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Waits until the trace is written, and prints the statistics. Returns the command's exit code.
    pub fn finish(self, code: i32) -> i32 {
        let Some(tracer) = self.tracer else { return code };
        let summary = tracer.finish(LONGEST_FINISH);
        let mut is_lost = false;
        if self.has_stats {
            let table = summary.latencies.table(&summary.names);
            if let Err(error) = io::stderr().write_all(table.as_bytes()) {
                // Where the standard error takes nothing, the exit code says it alone.
                complain(format!("cannot write the statistics of --stats to the standard error: {error}"));
                is_lost = true;
            }
        }
        if let Some(lost) = summary.lost() {
            complain(lost);
            is_lost = true;
        }
        if is_lost && code == 0 { 1 } else { code }
    }
}

/// What is said of a folder.
pub fn folder(path: &Path) -> String {
    format!("{} is a folder: name the file of a trace", path.display())
}

fn cannot(what: &str, path: &Path, error: impl std::fmt::Display) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

/// Runs a subcommand of `hostcall trace`.
///
/// # Errors
/// A sentence, when it cannot be done.
pub fn run(command: TraceCommand) -> Outcome {
    match command {
        TraceCommand::Info { file } => printed(|out| info(&file, out)),
        TraceCommand::Dump { file } => printed(|out| dump(&file, out)),
        TraceCommand::Top { file, every } => crate::top::run(&file, every),
        TraceCommand::Export { file, out, stream } => export(&file, &out, stream.as_deref()),
    }
}

/// Why nothing more is printed.
enum Stop {
    /// The standard output takes no more.
    Output(io::Error),
    Sentence(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Prints to the standard output, whose reader may leave.
fn printed(print: impl FnOnce(&mut dyn Write) -> Result<(), Stop>) -> Outcome {
    let mut out = BufWriter::new(io::stdout().lock());
    match print(&mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(0),
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(BY_SIGNAL + SIGPIPE),
        Err(Stop::Output(error)) => Err(format!("cannot write to the standard output: {error}").into()),
        Err(Stop::Sentence(sentence)) => {
            // What was read before is said before.
            let _ = out.flush();
            Err(sentence.into())
        }
    }
}

fn open(path: &Path) -> Result<Reader<File>, Stop> {
    if path.is_dir() {
        return Err(Stop::Sentence(folder(path)));
    }
    let file = File::open(path).map_err(|error| Stop::Sentence(cannot("read", path, error)))?;
    Reader::new(file).map_err(|error| Stop::Sentence(cannot("read", path, error)))
}

/// Gives each event of a trace, and what has a name by then.
fn events(
    path: &Path,
    reader: &mut Reader<File>,
    mut event: impl FnMut(&Names, &Event) -> io::Result<()>,
) -> Result<Names, Stop> {
    let mut names = Names::default();
    for read in reader {
        let read = read.map_err(|error| Stop::Sentence(cannot("read on in", path, error)))?;
        names.note(&read);
        event(&names, &read)?;
    }
    Ok(names)
}

fn dump(path: &Path, out: &mut dyn Write) -> Result<(), Stop> {
    let mut reader = open(path)?;
    let mut records = Records::default();
    events(path, &mut reader, |names, event| {
        records.streams.note(event);
        match event {
            Event::Page(page) => records.print(out, page),
            event => line(out, names, event),
        }
    })?;
    match reader.is_complete() {
        true => Ok(()),
        false => Ok(writeln!(out, "{NO_END}")?),
    }
}

/// Prints an event as a line that begins with its time in seconds, if it has one.
fn line(out: &mut dyn Write, names: &Names, event: &Event) -> io::Result<()> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let device = |source| device(names, source);
    let method = |method| escaped(names.method(method).map_or("?", |method| &*method.name));
    match event {
        Event::Source { source, device, protocol } => {
            writeln!(out, "source {source}: device {}, protocol {}", escaped(device), escaped(protocol))
        }
        Event::Method { method, number, name } => {
            writeln!(out, "method {method}: {}, number {number}", escaped(name))
        }
        Event::LaunchBegan { launch, source, at_ns, workgroups: [x, y, z], kernel, .. } => {
            let (at, device, kernel) = (seconds(*at_ns), device(*source), escaped(kernel));
            writeln!(out, "{at:.9} launch {launch} began on {device}: {kernel}, workgroups {x},{y},{z}")
        }
        Event::LaunchEnded { launch, at_ns, ending: Ending::OK } => {
            writeln!(out, "{:.9} launch {launch} ended", seconds(*at_ns))
        }
        Event::LaunchEnded { launch, at_ns, ending } => {
            writeln!(out, "{:.9} launch {launch} ended: {}", seconds(*at_ns), ending.name())
        }
        Event::Call(call) => {
            let (at, device, method) = (seconds(call.picked_up_ns), device(call.source), method(call.method));
            write!(out, "{at:.9} {device} {method}:")?;
            if let Some(launch) = names.launch(call.launch) {
                write!(out, " launch {} {},", call.launch, escaped(&launch.kernel))?;
            }
            if call.workgroup != UNKNOWN {
                write!(out, " workgroup {} wave {},", call.workgroup, call.wave)?;
            }
            let since = |ns: u64| ns.saturating_sub(call.picked_up_ns);
            let [began, ended, replied] =
                [call.handler_began_ns, call.handler_ended_ns, call.replied_ns].map(since);
            write!(
                out,
                " slot {}, {} lanes; handler {began} to {ended} ns, answered {replied} ns; {} bytes, reply {} bytes",
                call.slot, call.lanes, call.request_bytes, call.reply_bytes
            )?;
            match call.failed_lanes {
                0 => writeln!(out),
                failed => writeln!(out, "; {failed} lanes: {}", call.status),
            }
        }
        Event::Posts(posts) => {
            let (from, until) = (seconds(posts.from_ns), seconds(posts.until_ns));
            let (device, method) = (device(posts.source), method(posts.method));
            writeln!(out, "{from:.9} {device} {method}: {} posts until {until:.9}", posts.count)
        }
        Event::Stream { stream, record_bytes, schema, name, policy, descriptor } => {
            let (name, policy) = (escaped(name), escaped(policy));
            write!(
                out,
                "stream {stream}: {name}, records of {record_bytes} bytes, schema {schema:016x}, policy {policy}"
            )?;
            let Some(descriptor) = descriptor else { return writeln!(out) };
            write!(out, "; {} {{", escaped(&descriptor.name))?;
            for (i, column) in descriptor.columns.iter().enumerate() {
                let (comma, number) = (if i == 0 { " " } else { ", " }, column.number.name());
                write!(out, "{comma}{}: {number}", escaped(&column.name))?;
                if !column.unit.is_empty() {
                    write!(out, " in {}", escaped(&column.unit))?;
                }
            }
            writeln!(out, " }}")
        }
        Event::StreamEnded { stream, totals } => {
            let StreamTotals { pages, bytes, dropped_records, overwritten_bytes, .. } = totals;
            writeln!(
                out,
                "stream {stream} ended: {pages} pages, {bytes} bytes, {dropped_records} records dropped, \
                 {overwritten_bytes} bytes overwritten"
            )
        }
        Event::Waiting(waiting) => {
            let Waiting { at_ns, waited_ns, launch, slot, place, lanes, source, waits_for, method } = waiting;
            write!(out, "{:.9} {} {}:", seconds(*at_ns), device(*source), escaped(method))?;
            if let Some(of) = names.launch(*launch) {
                write!(out, " launch {launch} {},", escaped(&of.kernel))?;
            }
            if let Some(([x, y, z], wave)) = place {
                write!(out, " workgroup ({x}, {y}, {z}) wave {wave},")?;
            }
            writeln!(
                out,
                " slot {slot}, {lanes} lanes have waited for {waits_for} for {:.1} s",
                seconds(*waited_ns)
            )
        }
        Event::NamedPoint { source, point, kind, line, file, text, .. } => {
            let kind = match kind {
                PointKind::Begin | PointKind::End => "span",
                PointKind::Counter => "counter",
                PointKind::Event => "event",
            };
            let file = escaped(file);
            writeln!(out, "trace point {point} of source {source}: {kind} {text:?}, {file}:{line}")
        }
        Event::Point(point) => point_line(out, names, point),
        Event::PointsLost { source, records } => {
            writeln!(out, "{} {records} records of trace points were lost here", device(*source))
        }
        Event::Clock(pair) => {
            writeln!(
                out,
                "{:.9} {} showed {:.9} on its clock, ±{} ns; its times were {} ns off, {} ppb slow",
                seconds(pair.host_ns),
                device(pair.source),
                seconds(pair.device_ns),
                pair.error_ns,
                pair.off_ns,
                pair.drift_ppb
            )
        }
        Event::Dropped(calls) => writeln!(out, "{calls} calls were dropped here: they came too fast"),
        Event::Missing(blocks) => writeln!(out, "{blocks} blocks are missing here"),
        Event::Damaged(bytes) => writeln!(out, "{bytes} bytes are damaged here"),
        Event::Ended(totals) => {
            writeln!(out, "{:.9} the trace ended, {} calls", seconds(totals.ended_ns), totals.calls)
        }
        _ => Ok(()),
    }
}

/// The name of a source's device.
fn device(names: &Names, source: u16) -> Cow<'_, str> {
    escaped(names.source(source).map_or("?", |(device, _)| device))
}

/// Prints what a trace point said as a line.
fn point_line(out: &mut dyn Write, names: &Names, point: &Point) -> io::Result<()> {
    let device = device(names, point.source);
    write!(out, "{:.9} {device}", point.at_ns as f64 / 1e9)?;
    if let Some(launch) = names.launch(point.launch) {
        write!(out, " launch {} {},", point.launch, escaped(&launch.kernel))?;
    }
    write!(
        out,
        " workgroup {} wave {}, slot {}, {} lanes from {}:",
        point.workgroup, point.wave, point.slot, point.lanes, point.first_lane
    )?;
    let Some(name) = names.point(point.source, point.point) else {
        return writeln!(out, " trace point {} {:x?}", point.point, point.values);
    };
    let mut text = Vec::new();
    name.print(point, &mut text);
    let text = String::from_utf8_lossy(&text);
    let (name, text) = (escaped(&name.text), escaped(&text));
    match point.kind {
        PointKind::Begin => writeln!(out, " {name} begins"),
        PointKind::End => {
            writeln!(out, " {name} ends after {} ns", point.at_ns.saturating_sub(point.began_ns))
        }
        PointKind::Counter => writeln!(out, " {name} = {text}"),
        PointKind::Event => writeln!(out, " {text}"),
    }
}

/// Prints pages with their records.
#[derive(Default)]
struct Records {
    streams: Streams,
    printers: BTreeMap<u16, RecordPrinter>,
    text: Vec<u8>,
}

impl Records {
    /// Prints a page as a line, and its records, one a line; or its words, four a line, where it is not known
    /// what they are.
    fn print(&mut self, out: &mut dyn Write, page: &Page) -> io::Result<()> {
        print_page(out, page)?;
        let stream = self.streams.get(page.stream);
        let Some((stream, descriptor)) = stream.and_then(|stream| Some((stream, stream.descriptor.clone()?)))
        else {
            return print_words(out, &page.bytes);
        };
        let printer = self.printers.entry(page.stream).or_insert_with(|| RecordPrinter::new(descriptor));
        for record in page.bytes.chunks_exact(stream.record_bytes as usize) {
            self.text.clear();
            printer.print(record, &mut self.text);
            writeln!(out, "  {}", escaped(&String::from_utf8_lossy(&self.text)))?;
        }
        Ok(())
    }
}

/// Prints what is said of a page as a line.
fn print_page(out: &mut dyn Write, page: &Page) -> io::Result<()> {
    let Page { stream, sequence, offset_bytes, slot, workgroup, wave, opened_ns, .. } = page;
    write!(out, "stream {stream} page {sequence}, opened {:.9} on the device,", *opened_ns as f64 / 1e9)?;
    write!(
        out,
        " workgroup {workgroup} wave {wave}, slot {slot}: {} bytes from {offset_bytes}",
        page.bytes.len()
    )?;
    if page.dropped_before > 0 {
        write!(out, "; {} records were dropped before", page.dropped_before)?;
    }
    if page.overwritten_before > 0 {
        write!(out, "; {} bytes were overwritten before", page.overwritten_before)?;
    }
    writeln!(out)
}

/// Prints words, four a line.
fn print_words(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    for line in bytes.chunks(32) {
        write!(out, " ")?;
        for word in line.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            write!(out, " {:016x}", u64::from_le_bytes(whole))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn export(from: &Path, to: &Path, stream: Option<&str>) -> Outcome {
    let Some(format) = Format::of(to) else {
        let endings = Format::ENDINGS.map(|(ending, _)| format!(".{ending}")).join(", ");
        complain(format!("{} has none of the endings that say what to write: {endings}", to.display()));
        return Ok(USAGE);
    };
    let table = match stream {
        Some(_) if format == Format::Perfetto => {
            complain("a .pftrace has no table of a stream's records: name a .arrow, .parquet or .csv");
            return Ok(USAGE);
        }
        Some(stream) => Table::Stream(stream),
        None => Table::First,
    };
    let mut reader = match open(from) {
        Ok(reader) => reader,
        Err(Stop::Sentence(sentence)) => return Err(sentence.into()),
        Err(Stop::Output(error)) => return Err(error.into()),
    };
    let whole = std::fs::metadata(from).map_err(|error| cannot("read", from, error))?;
    // To make the file anew would empty what is to be read.
    if std::fs::metadata(to).is_ok_and(|there| (there.dev(), there.ino()) == (whole.dev(), whole.ino())) {
        return Err(format!("{} is the trace itself: name another file", to.display()).into());
    }
    let is_made = AtomicBool::new(false);
    let file = MadeLate { path: to, file: None, is_made: &is_made };
    let mut progress = Progress { of: whole.len(), told: Instant::now(), is_shown: false };
    let result = export::export(&mut reader, table, format, file, |bytes| progress.tell(bytes));
    progress.clear();
    if let Err(error @ ExportError::OnlyStreams) = result {
        complain(error);
        return Ok(USAGE);
    }
    let exported = result.map_err(|error| match error {
        ExportError::Read(error) => cannot("read on in", from, error),
        ExportError::Write(error) if is_made.into_inner() => {
            format!("{}; what is there is not whole", cannot("write", to, error))
        }
        ExportError::Write(error) => cannot("write", to, error),
        error => escaped(&error.to_string()).into_owned(),
    })?;
    if !reader.is_complete() {
        complain(format!("{}: {NO_END}; what is there was exported", from.display()));
    }
    if exported.dropped_records > 0 {
        complain(format!("kernels have dropped {} records of this stream", exported.dropped_records));
    }
    let others = exported.other_streams.join(", ");
    let others = escaped(&others);
    match format {
        _ if others.is_empty() => {}
        Format::Perfetto => complain(format!(
            "a .pftrace has no records of streams, which `--stream` exports to a .arrow, .parquet or .csv: {others}"
        )),
        _ => complain(format!("the trace has other streams, which `--stream` exports: {others}")),
    }
    Ok(0)
}

/// A file that is made when something is written to it: one that is there stays as it is if the trace has nothing to export.
struct MadeLate<'a> {
    path: &'a Path,
    file: Option<File>,
    is_made: &'a AtomicBool,
}

impl Write for MadeLate<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            file => file.insert(File::create(self.path)?),
        };
        self.is_made.store(true, Ordering::Relaxed);
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

/// A line on the standard error that says how far an export is, if that is a terminal.
struct Progress {
    of: u64,
    told: Instant,
    is_shown: bool,
}

impl Progress {
    fn tell(&mut self, bytes: u64) {
        if self.told.elapsed() < TELL_EVERY || !io::stderr().is_terminal() {
            return;
        }
        (self.told, self.is_shown) = (Instant::now(), true);
        let part = bytes as f64 / self.of.max(1) as f64 * 100.0;
        // Nobody can be told that standard error is closed.
        let _ = write!(io::stderr(), "\r{part:.0} % of {} MB", self.of / 1_000_000);
    }

    /// Removes the line.
    fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// What a trace has of a stream.
#[derive(Default)]
struct Stream {
    name: String,
    policy: String,
    record_bytes: u32,
    /// Pages of which the trace has a part; the channel's pages once it has said how many there were.
    pages: u64,
    /// Their numbers, until then: other pages may lie between two parts of one.
    seen: HashSet<u64>,
    bytes: u64,
    dropped: u64,
    overwritten: u64,
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

fn info(path: &Path, out: &mut dyn Write) -> Result<(), Stop> {
    let mut reader = open(path)?;
    let mut latencies = Latencies::default();
    let (mut calls, mut launches_ended, mut last_ns) = (0u64, 0u64, 0);
    let (mut endings, mut panicked) = (BTreeMap::<Ending, u64>::new(), Vec::new());
    let (mut dropped, mut missing, mut damaged) = (0u64, 0u64, 0u64);
    let (mut points, mut points_lost, mut clocks) = (0u64, 0u64, BTreeMap::<u16, Clock>::new());
    // Pages have times of the device's clock, which says how long they took and not when that was.
    let (mut first_page_ns, mut last_page_ns) = (u64::MAX, 0);
    let mut totals = None::<Totals>;
    let mut streams = BTreeMap::<u16, Stream>::new();
    let names = events(path, &mut reader, |names, event| {
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
            Event::PointsLost { records, .. } => points_lost = points_lost.saturating_add(*records),
            Event::Clock(pair) => clocks.entry(pair.source).or_default().add(pair),
            Event::Dropped(calls) => dropped = dropped.saturating_add(*calls),
            Event::Missing(blocks) => missing = missing.saturating_add(*blocks),
            Event::Damaged(bytes) => damaged += bytes,
            Event::Ended(all) => totals = Some(*all),
            // A file can number no more streams than this map has room for.
            Event::Stream { stream, record_bytes, name, policy, .. } => {
                let of_stream = streams.entry(*stream).or_default();
                (of_stream.name, of_stream.policy) = (name.to_string(), policy.to_string());
                of_stream.record_bytes = *record_bytes;
            }
            Event::Page(page) => {
                let of_stream = streams.entry(page.stream).or_default();
                of_stream.pages += u64::from(of_stream.seen.insert(page.sequence));
                first_page_ns = first_page_ns.min(page.opened_ns);
                last_page_ns = last_page_ns.max(page.opened_ns);
                of_stream.bytes += page.bytes.len() as u64;
                of_stream.dropped = of_stream.dropped.saturating_add(page.dropped_before);
                of_stream.overwritten = of_stream.overwritten.saturating_add(page.overwritten_before);
            }
            Event::StreamEnded { stream, totals } => {
                let of_stream = streams.entry(*stream).or_default();
                of_stream.pages = totals.pages;
                of_stream.dropped = totals.dropped_records;
                of_stream.overwritten = totals.overwritten_bytes;
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
    if let Some(Totals { dropped_others: others @ 1.., .. }) = totals {
        writeln!(out, "dropped:   {others} launches, posts or names, which were too many")?;
    }
    for (name, count, what) in [
        ("dropped: ", dropped, "calls, which came faster than they were written"),
        ("lost:    ", points_lost, "records of trace points, which came faster than they were read"),
        ("missing: ", missing, "blocks"),
        ("damaged: ", damaged, "bytes"),
    ] {
        if count > 0 {
            writeln!(out, "{name}  {count} {what}")?;
        }
    }
    for (number, stream) in &streams {
        let Stream { name, policy, record_bytes, pages, bytes, dropped, overwritten, .. } = stream;
        let (name, policy) = (escaped(name), escaped(policy));
        write!(
            out,
            "stream {number}:  {name}, records of {record_bytes} bytes, policy {policy}: {pages} pages,"
        )?;
        writeln!(out, " {bytes} bytes; {dropped} records dropped, {overwritten} bytes overwritten")?;
    }
    writeln!(out)?;
    write!(out, "{}", latencies.table(&names))?;
    Ok(())
}
