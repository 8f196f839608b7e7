//! Recording: what servers hold, and what a program starts and ends.
//!
//! ```text
//!  consumer, worker, watchdog          queue.rs          thread of the tracer (writer.rs)     file
//!  ─────────────────────────────────────────────────────────────────────────────────────────────────────
//!  Recording: picked up, began,  ────► bounded, ───────► gives numbers to methods    ───► names, calls,
//!  ended, answered                     drops, counts     and launches; histograms         posts, names: blocks
//! ```
//!
//! - Nobody waits for a trace. A record is pushed under a lock that the tracer's thread holds only to take
//!   all of them. What does not fit is dropped and counted, as is what a file did not take.
//! - There is one record a call of a wave, with the first begin and the last end of its lanes' handlers. It
//!   is pushed while the slot is not free yet, so that records of one slot come in the order of its calls.
//!   Posts are counted by method.
//! - Launches are numbered from 1 on, since a channel uses its ids again. A record that comes after its
//!   launch's end keeps its launch, because ends are written after the calls that were taken with them.
//! - The watchdog tells a tracer of calls that have waited for 100 ms: a call that never ends leaves no
//!   record of its own.

use crate::format::{CALL_FIELDS, MAGIC, VERSION};
use crate::latencies::Latencies;
use crate::names::Names;
use crate::queue::{Entry, MethodKey, Queue};
use crate::record::{Call, Ending, Waiting};
use crate::writer::{self, Results, elapsed_ns};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Calls that wait for the tracer's thread, unless the builder is told otherwise.
const DEFAULT_QUEUE: usize = 1 << 16;

/// How long dropping a tracer waits for what it has recorded to be written.
const LONGEST_DROP: Duration = Duration::from_secs(5);

/// How often it is looked whether the thread has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Builds a [`Tracer`].
pub struct TracerBuilder {
    file: Option<Box<dyn Write + Send>>,
    /// The file's path, for errors.
    path: Option<PathBuf>,
    queue_calls: usize,
}

impl TracerBuilder {
    /// Writes the trace to a new file at this path, or over the one that is there.
    ///
    /// # Errors
    /// The system's with the path, when the file cannot be made, or when something else that records writes
    /// it.
    pub fn file(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = create(path)?;
        Ok(Self { path: Some(path.into()), ..self.writer(file) })
    }

    /// Writes the trace there, on the tracer's thread: a block at a time, unbuffered. After an error nothing more is
    /// written, and what is lost is counted.
    pub fn writer(mut self, writer: impl Write + Send + 'static) -> Self {
        self.file = Some(Box::new(writer));
        self.path = None;
        self
    }

    /// Most calls that wait to be counted and written; later ones are dropped and counted. A waiting call takes some 130 bytes.
    /// Default 65,536.
    pub fn queue_calls(mut self, calls: usize) -> Self {
        self.queue_calls = calls;
        self
    }

    /// Starts the tracer's thread. Without a file it only counts latencies.
    ///
    /// # Errors
    /// The system's, with the path where there is one, when the file's header cannot be written; or when no thread can be
    /// started.
    pub fn start(self) -> io::Result<Tracer> {
        let Self { mut file, path, queue_calls } = self;
        let start = Instant::now();
        if let Some(file) = &mut file {
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            file.write_all(&header(unix)).map_err(|error| match &path {
                Some(path) => cannot_write(path, &error),
                None => error,
            })?;
        }
        let queue = Arc::new(Queue::new(queue_calls));
        let results = Arc::<Mutex<Results>>::default();
        let (of_thread, its_results) = (queue.clone(), results.clone());
        let has_file = file.is_some();
        let thread = std::thread::Builder::new()
            .name("hostcall-trace".into())
            .spawn(move || writer::run(&of_thread, &its_results, file, start))
            .map_err(|error| no_thread("the tracer", &error))?;
        let thread = Mutex::new(Some(thread));
        let (next_source, flushes, is_asked) = (AtomicU16::new(0), Mutex::default(), AtomicBool::new(false));
        Ok(Tracer(Arc::new(Inner {
            queue,
            results,
            start,
            thread,
            next_source,
            devices: Mutex::default(),
            has_file,
            flushes,
            is_asked,
        })))
    }
}

/// The system's error with the file that it is about.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the trace {}: {error}", path.display()))
}

/// The system's error with what gets no thread for it.
pub(crate) fn no_thread(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} gets no thread from the system: {error}"))
}

/// Makes the file of a recording, or empties the one that is there, which nothing else that records may
/// write.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let named = |error| cannot_write(path, &error);
    let file = File::options().write(true).create(true).truncate(false).open(path).map_err(named)?;
    // Pipes and devices have several writers, and no length.
    if !file.metadata().map_err(named)?.is_file() {
        return Ok(file);
    }
    // The lock lasts as long as the file is open. Where the system has no locks, nobody is refused.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let taken = "another recording writes it: end that one first, or choose another file";
        return Err(named(io::Error::new(io::ErrorKind::ResourceBusy, taken)));
    }
    file.set_len(0).map_err(named)?;
    Ok(file)
}

pub(crate) fn header(unix: Duration) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_le_bytes());
    header.extend((CALL_FIELDS.len() as u32).to_le_bytes());
    header.extend((unix.as_nanos() as u64).to_le_bytes());
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header.extend(CALL_FIELDS.as_bytes());
    header
}

struct Inner {
    queue: Arc<Queue>,
    results: Arc<Mutex<Results>>,
    start: Instant,
    thread: Mutex<Option<JoinHandle<()>>>,
    next_source: AtomicU16,
    /// The names that were asked for, and the last number that it has added to each.
    devices: Mutex<HashMap<String, u64>>,
    has_file: bool,
    flushes: Mutex<Vec<Weak<dyn Flush>>>,
    /// Somebody was told what was lost.
    is_asked: AtomicBool,
}

/// Something that has records which the tracer has not got yet.
pub trait Flush: Send + Sync {
    /// Records them.
    fn flush(&self);
}

/// Records the calls of the devices that it is given to. Clones are the same tracer; when the last one is dropped without
/// [`Tracer::finish`], what was recorded is written out, and what was lost is said on the standard error.
#[derive(Clone)]
pub struct Tracer(Arc<Inner>);

/// What a tracer has counted.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Calls that were recorded.
    pub calls: u64,
    /// Posts that were counted.
    pub posts: u64,
    /// Calls that were dropped because too many waited; no latency of theirs is known.
    pub dropped_calls: u64,
    /// Launches, posts and names that were dropped because they were too many.
    pub dropped_others: u64,
    /// Records of kernels' trace points that were lost because they came too fast, or could not be read.
    pub lost_points: u64,
    /// Calls that were recorded and are not in the file, if there is to be one.
    pub unwritten_calls: u64,
    /// Why the file was not written on.
    pub failure: Option<Arc<io::Error>>,
    /// Whether all of it was written in time.
    pub is_whole: bool,
    /// Names of methods and kernels.
    pub names: Names,
    /// Latencies by method.
    pub latencies: Latencies,
}

impl Summary {
    /// Returns a sentence that says what was lost, if something was.
    pub fn lost(&self) -> Option<String> {
        let mut lost = Vec::new();
        if let Some(error) = &self.failure {
            let calls = self.unwritten_calls;
            lost.push(format!("the trace was not written to its end ({error}): {calls} calls are missing"));
        } else if !self.is_whole {
            let calls = self.unwritten_calls;
            lost.push(format!("the trace was not written in time: {calls} calls are missing"));
        }
        if self.dropped_calls > 0 || self.dropped_others > 0 {
            let Self { dropped_calls, dropped_others, .. } = self;
            lost.push(format!(
                "{dropped_calls} calls and {dropped_others} other records came faster than they were written, and were \
                 dropped"
            ));
        }
        if self.lost_points > 0 {
            lost.push(format!(
                "{} records of kernels' trace points came faster than they were read, and were dropped",
                self.lost_points
            ));
        }
        (!lost.is_empty()).then(|| lost.join("; "))
    }
}

impl Tracer {
    /// Returns a builder of a tracer without a file.
    pub fn builder() -> TracerBuilder {
        TracerBuilder { file: None, path: None, queue_calls: DEFAULT_QUEUE }
    }

    /// Returns the name that the trace has for a device which is opened: its own, and of the second one of this name `cpu (2)`,
    /// or the next that no other has. Those that were closed count.
    /// Ids of launches are each device's own, so that without it calls of the two could not be told apart.
    pub fn name_device(&self, name: &str) -> String {
        let mut devices = self.0.devices.lock();
        // Each name that was asked for has the last number that it was given with, so that numbered ones need no entry.
        let is_given = |devices: &HashMap<String, u64>, name: &str| {
            let numbered = name.strip_suffix(')').and_then(|name| name.rsplit_once(" ("));
            let of =
                numbered.and_then(|(name, number)| Some((devices.get(name)?, number.parse::<u64>().ok()?)));
            devices.contains_key(name) || of.is_some_and(|(last, number)| (2..=*last).contains(&number))
        };
        let (mut number, mut free) = (devices.get(name).copied().unwrap_or(1), name.to_owned());
        while is_given(&devices, &free) {
            number += 1;
            free = format!("{name} ({number})");
        }
        devices.insert(name.to_owned(), number);
        free
    }

    /// Returns what a server records with: one for each device and protocol. Past 65,535 of them, all have the last number.
    pub fn source(&self, device: &str, protocol: &'static str) -> Source {
        let next = |last: u16| last.checked_add(1);
        let source = self.0.next_source.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let source = source.unwrap_or(u16::MAX);
        self.0.queue.push(Entry::Source { source, device: device.into(), protocol });
        let (queue, start) = (self.0.queue.clone(), self.0.start);
        Source(Arc::new(SourceInner { queue, start, source, launch: AtomicU32::new(0) }))
    }

    /// Returns whether the trace is written to a file, and not only counted.
    pub fn has_file(&self) -> bool {
        self.0.has_file
    }

    /// Has this flushed before the recording ends, if somebody has it then.
    pub fn flush_before_end(&self, flush: Weak<dyn Flush>) {
        let mut flushes = self.0.flushes.lock();
        flushes.retain(|flush| flush.strong_count() > 0);
        flushes.push(flush);
    }

    /// Returns how many calls, launches, posts and records of trace points were lost so far. It waits for no file.
    pub fn lost_records(&self) -> u64 {
        let (calls, others) = self.0.queue.dropped();
        let results = self.0.results.lock();
        [others, results.launches_past_names, results.lost_points]
            .into_iter()
            .fold(calls, u64::saturating_add)
    }

    /// Ends the recording, of all clones, and waits until what was recorded is written, or until this time is over. What is not
    /// written by then may never be: no drop waits for it.
    pub fn finish(&self, within: Duration) -> Summary {
        self.0.is_asked.store(true, Ordering::Relaxed);
        self.0.finish(within);
        self.0.summary()
    }
}

impl Inner {
    fn finish(&self, within: Duration) {
        // No lock is held while others do what they have to.
        let flushes = std::mem::take(&mut *self.flushes.lock());
        flushes.iter().filter_map(Weak::upgrade).for_each(|flush| flush.flush());
        self.queue.close();
        let since = Instant::now();
        // The file's writer may never return: a join would wait for it.
        while !self.results.lock().is_done && since.elapsed() < within {
            if self.thread.lock().as_ref().is_none_or(JoinHandle::is_finished) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn summary(&self) -> Summary {
        let results = self.results.lock();
        let (dropped_calls, dropped_others) = self.queue.dropped();
        let unwritten = if self.has_file { results.calls - results.written_calls } else { 0 };
        Summary {
            calls: results.calls,
            posts: results.posts,
            dropped_calls,
            dropped_others: dropped_others + results.launches_past_names,
            lost_points: results.lost_points,
            unwritten_calls: unwritten,
            failure: results.failure.clone(),
            is_whole: results.is_done && results.failure.is_none(),
            names: results.names.clone(),
            latencies: results.latencies.clone(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Who has asked for the end has waited as long as they like.
        if *self.is_asked.get_mut() {
            return;
        }
        self.finish(LONGEST_DROP);
        if let Some(lost) = self.summary().lost() {
            let line = format!("hostcall: a tracer was dropped without `finish`: {lost}\n");
            // Nobody can be told that the standard error is closed.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

struct SourceInner {
    queue: Arc<Queue>,
    start: Instant,
    source: u16,
    /// Whose calls these are where the protocol does not say it, as bits of a [`LaunchId`].
    launch: AtomicU32,
}

/// A server's way to its tracer. Recording neither waits nor fails; clones are the same source.
#[derive(Clone)]
pub struct Source(Arc<SourceInner>);

impl Source {
    pub(crate) fn queue(&self) -> &Queue {
        &self.0.queue
    }

    pub(crate) fn number(&self) -> u16 {
        self.0.source
    }

    /// Returns the nanoseconds since the trace began.
    pub fn now_ns(&self) -> u64 {
        elapsed_ns(self.0.start)
    }

    /// Records a call of this method. Source, method and launch of `call` are filled in. [`LaunchId::NONE`] stands for the
    /// launch that [`Source::set_launch`] was told.
    pub fn call(&self, method: &'static str, number: u32, mut launch: LaunchId, call: Call) {
        if launch == LaunchId::NONE {
            launch = LaunchId::from_bits(self.0.launch.load(Ordering::Relaxed));
        }
        let call = Call { source: self.0.source, ..call };
        self.0.queue.push(Entry::Call { call, method: MethodKey { number, name: method }, launch });
    }

    /// Counts posts to this method.
    pub fn posts(&self, method: &'static str, number: u32, count: u64) {
        self.0.queue.count_posts(self.0.source, MethodKey { number, name: method }, count);
    }

    /// Records that a call of this launch still waits. Source and launch of `waiting` are filled in.
    pub fn waiting(&self, launch: LaunchId, waiting: Waiting) {
        let waiting = Waiting { source: self.0.source, ..waiting };
        self.0.queue.push(Entry::Waiting { waiting, launch });
    }

    /// Records that a launch is given to the device.
    pub fn launch_began(&self, launch: LaunchId, kernel: &Arc<str>, workgroups: [u32; 3]) {
        let (source, at_ns, kernel) = (self.0.source, self.now_ns(), kernel.clone());
        self.0.queue.push(Entry::LaunchBegan { source, launch, at_ns, workgroups, kernel });
    }

    /// Records that a launch is over, and how it ended.
    pub fn launch_ended(&self, launch: LaunchId, ending: Ending) {
        let (source, at_ns) = (self.0.source, self.now_ns());
        self.0.queue.push(Entry::LaunchEnded { source, launch, at_ns, ending });
    }

    /// Says which launch makes the calls of a protocol that does not say it.
    pub fn set_launch(&self, launch: LaunchId) {
        self.0.launch.store(launch.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_devices_have_one_name() {
        let tracer = Tracer::builder().start().unwrap();
        let given =
            ["cpu", "cpu (2)", "cpu", "cpu", "cuda:0", "cpu (2)", "cpu"].map(|name| tracer.name_device(name));
        assert_eq!(given, ["cpu", "cpu (2)", "cpu (3)", "cpu (4)", "cuda:0", "cpu (2) (2)", "cpu (5)"]);
        assert_eq!(tracer.name_device("cpu (4)"), "cpu (4) (2)");
    }
}
