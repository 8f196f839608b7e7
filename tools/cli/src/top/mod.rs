//! `hostcall trace top`: what a run does, by the trace that it writes. [`processes`] shows what processes do, in the same way.

mod counts;
mod input;
mod processes;
mod screen;

use crate::output::Stdout;
use crate::trace::{folder, waits_to_begin};
use crate::wait::BY_SIGNAL;
use crate::{Outcome, complain, telling};
use counts::{Counts, Shown};
use hostcall_trace::{Follower, OpenError, Reader};
use input::Input;
use signal_hook::consts::SIGPIPE;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long it waits for a trace that a run is about to begin.
const LONGEST_BEGIN: Duration = Duration::from_secs(10);

/// Between two looks at whether it has begun.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Least time between two screens.
pub const LEAST_EVERY: Duration = Duration::from_millis(50);

/// Events that are counted between two looks at the clock, so that a long trace does not hold up the
/// screen.
const EVENTS_A_LOOK: usize = 4096;

/// What is shown again and again.
trait Source {
    /// Takes in what comes until this time, or less. Returns whether nothing comes any more.
    fn read_until(&mut self, until: Instant) -> Result<bool, String>;
    /// Returns what came since this was called last, which is so long ago.
    fn take(&mut self, elapsed: Duration) -> Shown;
}

/// A trace at a path.
struct Trace<'a> {
    path: &'a Path,
    followed: Followed,
}

impl Source for Trace<'_> {
    fn read_until(&mut self, until: Instant) -> Result<bool, String> {
        self.followed.read_until(self.path, until)
    }

    fn take(&mut self, elapsed: Duration) -> Shown {
        self.followed.counts.take(elapsed)
    }
}

/// A trace that is followed, and what it had.
struct Followed {
    follower: Follower<Input>,
    /// Which file it is that is read.
    file: FileId,
    /// What is read is a file, and no pipe.
    is_file: bool,
    counts: Counts,
    /// Since when the file is away, or begun anew by another run that has not written as much as a trace
    /// begins with.
    begins: Option<Instant>,
}

/// What no two files have in common that are there at once: device and inode.
type FileId = (u64, u64);

fn id_of(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
}

/// Why a file is not followed.
struct NotOpened {
    error: OpenError,
    /// Whether it may become a trace: it is not there yet, or the run has not written the header yet.
    may_begin: bool,
}

impl NotOpened {
    fn is_missing(&self) -> bool {
        matches!(&self.error, OpenError::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<io::Error> for NotOpened {
    fn from(error: io::Error) -> Self {
        Self { may_begin: error.kind() == io::ErrorKind::NotFound, error: OpenError::Io(error) }
    }
}

impl Followed {
    fn open(path: &Path) -> Result<Self, String> {
        if path.is_dir() {
            return Err(folder(path));
        }
        let began = Instant::now();
        let mut is_told = false;
        loop {
            // A pipe is waited for as long as it takes; a file's header is there or not.
            match telling(path, waits_to_begin(path), || Self::try_open(path)) {
                Ok((followed, _)) => return Ok(followed),
                Err(failed) if began.elapsed() < LONGEST_BEGIN && failed.may_begin => {
                    if !is_told {
                        let what = if failed.is_missing() { "appear" } else { "begin" };
                        complain(format!(
                            "waits for {} to {what}, at most {LONGEST_BEGIN:?}",
                            path.display()
                        ));
                        is_told = true;
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(failed) => return Err(cannot_open(path, &failed.error)),
            }
        }
    }

    /// Opens what is there now, and says how long it is.
    fn try_open(path: &Path) -> Result<(Self, u64), NotOpened> {
        let input = File::open(path)?;
        let (there, again) = (input.metadata()?, input.try_clone()?);
        let is_file = there.is_file();
        let (input, waits) = if is_file { (Input::File(input), None) } else { Input::pipe(input)? };
        let reader = Reader::new(input).map_err(|error| {
            // A run may have cut it, or written more, between the look at its length and the read.
            let is_short = |file: &Metadata| file.is_file() && file.len() < 64;
            let is_short = is_short(&there) || again.metadata().is_ok_and(|file| is_short(&file));
            NotOpened { may_begin: is_short && matches!(error, OpenError::Cut | OpenError::NotATrace), error }
        })?;
        // Only the header is waited for.
        drop(waits);
        let (follower, file) = (Follower::new(reader), id_of(&there));
        Ok((Self { follower, file, is_file, counts: Counts::default(), begins: None }, there.len()))
    }

    /// Counts what there is until this time. Returns whether the trace's end was read, which is all that it
    /// returns before this time for.
    fn read_until(&mut self, path: &Path, until: Instant) -> Result<bool, String> {
        loop {
            for _ in 0..EVENTS_A_LOOK {
                let left = until.saturating_duration_since(Instant::now());
                match self.follower.next_within(left).map_err(|error| cannot_read_on(path, &error))? {
                    Some(event) => self.counts.add(&event),
                    None => break,
                }
            }
            let is_late = Instant::now() >= until;
            if !is_late && !self.follower.is_complete() {
                continue;
            }
            self.look_again(path)?;
            let is_over = self.begins.is_none() && self.follower.is_complete();
            if is_late || is_over {
                return Ok(is_over);
            }
            // Nothing more comes of this trace, and the other one has not begun.
            std::thread::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Follows the trace that is at the path now, if that is another one: a run that begins the file anew
    /// cuts it, which is not seen where the run has written more by now than was read before, and a file
    /// that was renamed to this one, or made where this one was removed, takes its place. What was counted
    /// is shown until the other one begins; it is not waited for here, since somebody may want to quit.
    fn look_again(&mut self, path: &Path) -> Result<(), String> {
        // What came through a pipe comes no second time, and to open one may wait for ever.
        if !self.is_file || std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            self.give_up_late();
            return Ok(());
        }
        let failed = match Self::try_open(path) {
            Ok((now, len)) => {
                let [read, header] = [&self.follower, &now.follower].map(Follower::reader);
                let is_same = now.file == self.file
                    && header.header().began_unix_ns == read.header().began_unix_ns
                    && len >= read.bytes_read();
                if is_same {
                    self.begins = None;
                } else {
                    *self = now;
                }
                return Ok(());
            }
            Err(failed) => failed,
        };
        let is_complete = self.follower.is_complete();
        if failed.is_missing() && is_complete {
            // All of it was read before it went.
            self.begins = None;
        } else if matches!(failed.error, OpenError::Io(_)) && !failed.is_missing() {
            // What may not be opened any more is read on: it is open.
            self.give_up_late();
        } else {
            let since = *self.begins.get_or_insert_with(Instant::now);
            if !failed.may_begin || since.elapsed() >= LONGEST_BEGIN {
                if !is_complete {
                    return Err(cannot_open(path, &failed.error));
                }
                // All of it was read, whatever is there now.
                self.begins = None;
            }
        }
        Ok(())
    }

    /// Waits no more for another trace that has not begun for too long.
    fn give_up_late(&mut self) {
        self.begins = self.begins.filter(|since| since.elapsed() < LONGEST_BEGIN);
    }
}

fn cannot_open(path: &Path, error: &OpenError) -> String {
    format!("cannot read {}: {error}", path.display())
}

fn cannot_read_on(path: &Path, error: &io::Error) -> String {
    format!("cannot read on in {}: {error}", path.display())
}

/// Shows what a trace has, again after each `every`, until it ends: on a terminal as a screen, else as
/// lines.
///
/// # Errors
/// A sentence, when the file cannot be read.
pub fn run(path: &Path, every: Duration) -> Outcome {
    show(&mut Trace { path, followed: Followed::open(path)? }, every)
}

/// Shows what these processes do, or all of this user's, again after each `every`.
///
/// # Errors
/// A sentence, when one that was named cannot be looked into, or there is none.
pub fn run_processes(pids: Vec<u32>, every: Duration) -> Outcome {
    show(&mut processes::Processes::open(pids)?, every)
}

fn show(source: &mut impl Source, every: Duration) -> Outcome {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return screen::run(source, every);
    }
    loop {
        let began = Instant::now();
        let is_over = loop {
            let is_over = source.read_until(began + every)?;
            if is_over || began.elapsed() >= every {
                break is_over;
            }
        };
        let shown = source.take(began.elapsed());
        match print(&mut Stdout, &shown) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(BY_SIGNAL + SIGPIPE),
            Err(error) => return Err(format!("cannot write to the standard output: {error}").into()),
            Ok(()) if is_over => return Ok(0),
            Ok(()) => {}
        }
    }
}

/// A time with a unit.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// A number with a prefix of a thousand's powers.
fn count(value: f64) -> String {
    match value {
        ..1e4 => format!("{value:.0}"),
        ..1e7 => format!("{:.1} k", value / 1e3),
        ..1e10 => format!("{:.1} M", value / 1e6),
        _ => format!("{:.1} G", value / 1e9),
    }
}

/// The lines about the trace as a whole.
fn head(shown: &Shown) -> Vec<String> {
    let Shown { at_s, calls, calls_a_second, failed_calls, posts, posts_a_second, .. } = shown;
    let ending = if shown.has_ended { ", and the trace ended" } else { "" };
    // A file of raw channels alone has none.
    let devices =
        if shown.devices.is_empty() { String::new() } else { format!("; {}", shown.devices.join(", ")) };
    let mut lines = vec![
        format!("{at_s:.1} s{ending}{devices}"),
        format!(
            "calls {calls}, {}/s, {failed_calls} failed; posts {posts}, {}/s; launches {}, {} run",
            count(*calls_a_second),
            count(*posts_a_second),
            shown.launches_begun,
            shown.launches_open
        ),
    ];
    if !shown.others.is_empty() {
        lines.push(shown.others.join(", "));
    }
    if !shown.lost.is_empty() {
        lines.push(format!("lost: {}", shown.lost.join(", ")));
    }
    lines
}

const METHOD_HEAD: [&str; 8] = ["method", "calls/s", "posts/s", "waiting", "p50", "p99", "slowest", "failed"];

fn method_cells(method: &counts::MethodShown) -> [String; 8] {
    // Posts have no times.
    let time_of = |ns| if method.calls_a_second > 0.0 { time(ns) } else { "-".to_owned() };
    [
        method.name.clone(),
        count(method.calls_a_second),
        count(method.posts_a_second),
        format!("{:.2}", method.waiting),
        time_of(method.p50_ns),
        time_of(method.p99_ns),
        time_of(method.most_ns),
        method.failed.to_string(),
    ]
}

const STREAM_HEAD: [&str; 6] = ["stream", "bytes/s", "records/s", "bytes", "dropped", "overwritten"];

fn stream_cells(stream: &counts::StreamShown) -> [String; 6] {
    [
        stream.name.clone(),
        count(stream.bytes_a_second),
        count(stream.records_a_second),
        count(stream.bytes as f64),
        stream.dropped.to_string(),
        stream.overwritten.to_string(),
    ]
}

const POINT_HEAD: [&str; 7] = ["trace point", "kind", "/s", "all", "mean", "longest", "last value"];

fn point_cells(point: &counts::PointShown) -> [String; 7] {
    let [mean, longest] = point.times_ns.map_or_else(Default::default, |times_ns| times_ns.map(time));
    [
        point.name.clone(),
        point.kind.to_owned(),
        count(point.a_second),
        point.all.to_string(),
        mean,
        longest,
        point.value.map(|value| value.to_string()).unwrap_or_default(),
    ]
}

/// Prints what is shown as lines, and an empty one.
fn print(out: &mut dyn Write, shown: &Shown) -> io::Result<()> {
    for line in head(shown) {
        writeln!(out, "{line}")?;
    }
    for method in &shown.methods {
        let [name, calls, posts, waiting, p50, p99, most, failed] = method_cells(method);
        writeln!(
            out,
            "  {name}: {calls} calls/s, {posts} posts/s, {waiting} waiting, p50 {p50}, p99 {p99}, slowest {most}, \
             {failed} failed"
        )?;
    }
    for stream in &shown.streams {
        let [name, rate, records, bytes, dropped, overwritten] = stream_cells(stream);
        writeln!(
            out,
            "  stream {name}: {rate}B/s, {records} records/s, {bytes}B; {dropped} records dropped, \
             {overwritten} bytes overwritten"
        )?;
    }
    for point in &shown.points {
        let [name, kind, rate, all, mean, longest, value] = point_cells(point);
        let more = match kind.as_str() {
            "span" => format!(", mean {mean}, longest {longest}"),
            "counter" => format!(", last value {value}"),
            _ => String::new(),
        };
        let last = if kind == "event" { ", last" } else { "" };
        writeln!(out, "  {kind}{last} \"{name}\": {rate}/s, {all} in all{more}")?;
    }
    for wait in &shown.waits {
        writeln!(out, "  waits: {wait}")?;
    }
    for slow in &shown.slowest {
        writeln!(out, "  slow: {slow}")?;
    }
    writeln!(out)?;
    out.flush()
}
