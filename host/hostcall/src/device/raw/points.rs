//! The trace points of a device: the raw channel into which they write, made when somebody first records them, and what reads it.
//!
//! ```text
//!  Device::record_points             PointsChannel                                  kernels
//!  ─────────────────────────────────────────────────────────────────────────────────────────
//!  begin: channel, if there is none; what is left of an earlier recording goes
//!         PointNames (service): which trace, which points are wanted
//!         thread hostcall-points: pages ► trace
//!         the switch's word: on, a new number ─────────────────────────────────► ask for ids
//!  pause, resume: the word alone, off, or on with a new number
//!  end:   the word: off ► pages that are there ► trace
//! ```
//!
//! Ids of points are the same in all recordings of a device, so that the end of a span that an earlier one began is told apart
//! from what this one has asked for.

use super::{Found, Inner, Memory, Pace, Placement, RawReader, WrittenByOthers};
use crate::device::core::{Core, Kept};
use crate::device::error::Error;
use crate::device::inner::DevicePoints;
use crate::device::point_filter::PointFilter;
use hostcall_abi::CallError;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{LAUNCHES, Layout};
use hostcall_abi::raw::{RawLayout, RawParams};
use hostcall_abi::trace::{PointKind, PointSwitch, UNWANTED};
use hostcall_device::services::TracePointsHandler;
use hostcall_locks::Mutex;
use hostcall_seam::{Backend, DeviceAddress, DeviceKind, Memory as DeviceMemory};
use hostcall_server::services::Reports;
use hostcall_server::{LaunchRecord, LaunchWatch, Server};
use hostcall_trace::{Ending, Flush, PointNumbers, Points, PointsPage, Source, Tracer};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pages for each wave that the device holds: one that it fills, and one that is read meanwhile.
const PAGES_A_WAVE: u32 = 2;
const LEAST_PAGES: u32 = 64;
const MOST_PAGES: u32 = 1 << 15;
const PAGE_BYTES: u32 = 4096;

/// Bytes of which all records are multiples.
const UNIT: u32 = 16;

/// How long the thread that reads sleeps at most, and how long the end waits for a tracer that takes nothing.
const LOOK: Duration = Duration::from_millis(1);
const LONGEST_FLUSH: Duration = Duration::from_secs(5);

/// How long a launch is known after its end, and how many that have ended are at least: records of kernels of others may be held up
/// for some seconds.
const KNOWN_FOR: Duration = Duration::from_secs(30);
const MOST_OVER: usize = LAUNCHES as usize;

/// Pages between two looks whether the thread is to end.
const PAGES_OF_A_PASS: usize = 256;

/// Returns a number that no switch of the process had lately: statics of a program's kernels remember it, whichever device they
/// run on.
fn new_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % (1 << PointSwitch::NUMBER_BITS);
        if number != 0 {
            return number;
        }
    }
}

/// What trace points ask of the host.
pub(crate) struct PointNames {
    numbers: Arc<PointNumbers>,
    /// Have the texts that lanes post before they ask for a number.
    reports: Reports,
    /// What records now, and what it wants.
    recorded: Mutex<Option<(Arc<Points>, PointFilter)>>,
    /// A point without a text was told of.
    is_refusal_told: AtomicBool,
}

impl PointNames {
    pub fn new(reports: Reports) -> Self {
        let (numbers, recorded, is_refusal_told) = Default::default();
        Self { numbers, reports, recorded, is_refusal_told }
    }

    fn points(&self) -> Result<Arc<Points>, CallError> {
        let recorded = self.recorded.lock();
        recorded.as_ref().map(|(points, _)| points.clone()).ok_or(CallError::Cancelled)
    }
}

/// Answers lanes by what it shares with the device.
pub(in crate::device) struct PointService(pub Arc<PointNames>);

impl TracePointsHandler for PointService {
    fn now_ns(&self) -> Result<u64, CallError> {
        Ok(self.0.points()?.now_ns())
    }

    fn clock_pair(&self, before_ns: u64, host_ns: u64, after_ns: u64) -> Result<(), CallError> {
        self.0.points()?.compare_clocks(before_ns, host_ns, after_ns);
        Ok(())
    }

    fn register(
        &self,
        lane: u64,
        kind: u32,
        tags: u64,
        line: u32,
        device_ns: u64,
        text_bytes: u32,
    ) -> Result<u32, CallError> {
        let names = &*self.0;
        let Some(texts) = names.reports.take_text(lane) else {
            if !names.is_refusal_told.swap(true, Ordering::Relaxed) {
                hostcall_server::report_line(format_args!(
                    "records of a trace point are dropped: its name or its file's is no text in UTF-8"
                ));
            }
            return Err(CallError::Malformed);
        };
        let kind = PointKind::of(kind).ok_or(CallError::Malformed)?;
        let (text, file) = texts.split_at_checked(text_bytes as usize).ok_or(CallError::Malformed)?;
        // Points that nobody records any more are asked for by waves that have seen the switch before.
        let recorded = names.recorded.lock();
        let Some((points, _)) = recorded.as_ref().filter(|(_, filter)| filter.wants_point(text)) else {
            return Ok(UNWANTED);
        };
        points.register(kind, tags, line, device_ns, file, text).ok_or(CallError::TooLarge)
    }
}

/// Which launches a recording wants, and their names in the trace.
struct Recorder {
    /// Where the tracer records no launches by itself: what does.
    source: Option<Source>,
    filter: PointFilter,
    launches: Mutex<Launches>,
}

#[derive(Default)]
struct Launches {
    /// Whether each is wanted.
    are_wanted: HashMap<LaunchId, bool>,
    /// Those that have ended, of which pages may be unread, and when.
    over: VecDeque<(Instant, LaunchId)>,
}

impl LaunchWatch for Recorder {
    fn began(&self, launch: LaunchId, record: &LaunchRecord) {
        let mut launches = self.launches.lock();
        let Entry::Vacant(place) = launches.are_wanted.entry(launch) else { return };
        let is_wanted = self.filter.wants_launch(launch, &record.kernel);
        place.insert(is_wanted);
        if let (true, Some(source)) = (is_wanted, &self.source) {
            source.launch_began(launch, &record.kernel, record.workgroups);
        }
    }

    fn ended(&self, launch: LaunchId, ending: Ending) {
        let mut launches = self.launches.lock();
        let Some(is_wanted) = launches.are_wanted.get(&launch).copied() else { return };
        launches.over.push_back((Instant::now(), launch));
        if let (true, Some(source)) = (is_wanted, &self.source) {
            source.launch_ended(launch, ending);
        }
    }
}

impl Recorder {
    /// Whether a launch is wanted; `None` if nobody can say.
    fn wants(&self, launch: LaunchId) -> Option<bool> {
        // Of a launch that nobody knows the device may say what it likes: it is kept where nothing else is asked for.
        let known = self.launches.lock().are_wanted.get(&launch).copied();
        known.or_else(|| self.filter.wants_launch(launch, "").then_some(true))
    }

    /// Forgets launches that were over long ago, or before many others, when there is nothing to read.
    fn forget(&self) {
        let Launches { are_wanted, over } = &mut *self.launches.lock();
        while over.front().is_some_and(|(ended, _)| over.len() > MOST_OVER || ended.elapsed() > KNOWN_FOR)
            && let Some((_, launch)) = over.pop_front()
        {
            are_wanted.remove(&launch);
        }
    }
}

/// What reads the channel.
struct Drain {
    reader: RawReader<u64>,
    points: Arc<Points>,
    launches: Arc<Recorder>,
    words: Vec<u64>,
    /// Of the channel.
    pages: usize,
    /// Records that were dropped, as far as pages have said.
    dropped: u64,
}

impl Drain {
    /// Records pages that are there while the tracer takes them, `most` at most: kernels may write without pause. Returns how many.
    fn pass(&mut self, most: usize) -> usize {
        let mut count = 0;
        while count < most
            && self.points.has_room()
            && let Some(page) = self.reader.try_next()
        {
            count += 1;
            self.words.clear();
            self.words.extend(page.words().iter().map(|word| word.load(Ordering::Relaxed)));
            let (writer, dropped) = (page.writer(), page.dropped_before());
            drop(page);
            self.dropped = self.dropped.saturating_add(dropped);
            let page = PointsPage { slot: writer.slot, dropped, words: &self.words };
            self.points.page(&page, |launch| self.launches.wants(launch));
        }
        count
    }

    /// Records all that is there now, and what was dropped of which no page tells: twice as many parts of pages as there are pages at
    /// most, since kernels may write without pause, and the reader has found as many before.
    fn flush(&mut self) {
        self.reader.tell_places();
        let (mut since, mut left) = (Instant::now(), 2 * self.pages);
        while left > 0 {
            let read = self.pass(left);
            left -= read;
            if read > 0 {
                since = Instant::now();
            } else if self.points.has_room() {
                break;
            } else if since.elapsed() > LONGEST_FLUSH {
                return;
            } else {
                std::thread::sleep(LOOK);
            }
        }
        let dropped = self.reader.dropped_records().saturating_add(self.reader.behind_gaps());
        if let Some(untold @ 1..) = dropped.checked_sub(self.dropped) {
            self.dropped = dropped;
            self.points.page(&PointsPage { dropped: untold, ..PointsPage::default() }, |_| Some(true));
        }
    }
}

/// A drain that its thread shares with who ends the trace.
struct SharedDrain(Mutex<Drain>);

impl Flush for SharedDrain {
    fn flush(&self) {
        self.0.lock().flush();
    }
}

/// The thread that reads for a recording. It flushes when this is dropped.
struct Reading {
    shall_end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    fn start(drain: Drain, backend: Arc<dyn Backend>, tracer: &Tracer) -> Result<Self, Error> {
        let reads = Arc::new(SharedDrain(Mutex::new(drain)));
        let before_end = Arc::downgrade(&reads);
        tracer.flush_before_end(before_end);
        let shall_end = Arc::<AtomicBool>::default();
        let told = shall_end.clone();
        let thread = std::thread::Builder::new()
            .name("hostcall-points".into())
            .spawn(move || {
                backend.enter_thread();
                let mut pace = Pace::new();
                while !told.load(Ordering::Acquire) {
                    let mut drain = reads.0.lock();
                    match drain.pass(PAGES_OF_A_PASS) {
                        0 => {
                            if drain.points.has_room() {
                                drain.launches.forget();
                            }
                            drop(drain);
                            pace.wait(LOOK);
                        }
                        _ => pace.found(),
                    }
                }
                reads.0.lock().flush();
            })
            .map_err(|error| Error::NoThread { what: "trace points", error })?;
        Ok(Self { shall_end, thread: Some(thread) })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.shall_end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It has flushed, or panicked.
            let _ = thread.join();
        }
    }
}

/// The raw channel, and its parameters as kernels find them. All stay as long as the device.
struct Channel {
    inner: Arc<Inner>,
    /// Keeps the channel from being closed between recordings.
    reader: RawReader<u64>,
    params: Arc<dyn DeviceMemory>,
}

/// What the state of a recording is.
struct Recorded {
    /// Which recording of the device.
    number: u64,
    _reading: Reading,
    /// As the device's switch is.
    is_on: bool,
}

#[derive(Default)]
struct State {
    channel: Option<Channel>,
    recorded: Option<Recorded>,
    begun: u64,
}

/// The trace points of a device.
pub(crate) struct PointsChannel {
    core: Arc<Core>,
    /// Where the switch lies.
    switch: DeviceAddress,
    home_slots: u32,
    names: Arc<PointNames>,
    others: OnceLock<Arc<WrittenByOthers>>,
    state: Mutex<State>,
}

impl PointsChannel {
    /// No memory is taken for them before somebody records them.
    pub fn new(core: &Arc<Core>, switch: DeviceAddress, layout: &Layout, names: Arc<PointNames>) -> Self {
        let (others, state) = Default::default();
        let (core, home_slots) = (core.clone(), layout.home_slots);
        Self { core, switch, home_slots, names, others, state }
    }

    fn layout(&self) -> RawLayout {
        let pages = (PAGES_A_WAVE * self.home_slots).next_power_of_two().clamp(LEAST_PAGES, MOST_PAGES);
        RawLayout::new(pages, PAGE_BYTES).expect("sizes within the bounds")
    }

    /// Returns what kernels of others find.
    fn written_by_others(&self) -> Result<&Arc<WrittenByOthers>, Error> {
        if let Some(others) = self.others.get() {
            return Ok(others);
        }
        let others = WrittenByOthers::new(&self.core, self.layout(), self.home_slots)?;
        // Another thread's, which nobody knows yet, is as good.
        Ok(self.others.get_or_init(|| Arc::new(others)))
    }

    fn make_channel(&self, server: &Arc<Server>) -> Result<Channel, Error> {
        let call = "Device::record_points";
        let (core, others) = (self.core.clone(), self.written_by_others()?.clone());
        let memory = Memory::new(&core, self.layout(), self.home_slots, Placement::Direct, call)?;
        let memory = Arc::new(memory);
        let params = core.backend.allocate(size_of::<RawParams>())?;
        // SAFETY: the memory is new, and as long.
        unsafe { core.backend.write_now(params.address(), memory.params().as_bytes()) }?;
        others.connect(&memory)?;
        let found = Mutex::new(Found::new(&core, &memory, self.home_slots, UNIT, true)?);
        let inner = Arc::new(Inner {
            core,
            server: server.clone(),
            device: None,
            memory,
            overwrites: false,
            number: 0,
            waits_with: None,
            found,
            others: Some(others),
            users: AtomicUsize::new(0),
            contexts: Mutex::default(),
        });
        Ok(Channel { reader: RawReader::new(&inner), inner, params })
    }

    /// Ends what is recorded.
    fn stop(&self, channel: &Channel, recorded: &mut Option<Recorded>) {
        // A device that has failed runs no kernel any more.
        let _ = self.set(channel, new_number(), false);
        let ended = recorded.take();
        // It reads what is there. Points that are asked for meanwhile are wanted still.
        drop(ended);
        channel.inner.server.watch_launches(None);
        *self.names.recorded.lock() = None;
    }

    /// Stores the switch's word, for kernels that run too.
    fn set(&self, channel: &Channel, number: u32, is_on: bool) -> Result<(), Error> {
        let switch = PointSwitch::new(channel.params.address().get(), number, is_on);
        let word = switch.ok_or(Error::PointsTooFar)?.to_word();
        // SAFETY: the word lies there, and kernels read it atomically.
        unsafe { self.core.backend.store_words(self.switch, &word.to_le_bytes(), 8) }?;
        Ok(self.written_by_others()?.set(if is_on { number } else { 0 })?)
    }
}

impl Drop for PointsChannel {
    fn drop(&mut self) {
        let State { channel: Some(channel), mut recorded, .. } = std::mem::take(self.state.get_mut()) else {
            return;
        };
        // Threads that have a context of the device write no more.
        if recorded.is_some() && !self.core.is_forked() {
            self.stop(&channel, &mut recorded);
        }
    }
}

impl DevicePoints for PointsChannel {
    fn restore(&self, homes: &[u32]) {
        let channel = self.state.lock().channel.as_ref().map(|channel| channel.inner.clone());
        if let Some(channel) = channel {
            channel.restore(homes);
        }
    }

    fn of_others(&self) -> Result<(DeviceAddress, Kept), Error> {
        let others = self.written_by_others()?;
        Ok((others.give(), others.clone()))
    }

    fn begin(
        &self,
        server: &Arc<Server>,
        tracer: &Tracer,
        source: Source,
        records_launches: bool,
        filter: PointFilter,
    ) -> Result<u64, Error> {
        let mut state = self.state.lock();
        let State { channel, recorded, begun } = &mut *state;
        if recorded.is_some() {
            return Err(Error::PointsRecorded { device: self.core.name.clone() });
        }
        let channel = match channel {
            Some(channel) => channel,
            None => channel.insert(self.make_channel(server)?),
        };
        let reader = channel.reader.clone();
        let pages = channel.inner.memory.layout.pages() as usize;
        // What waves wrote that came late for an earlier recording.
        reader.tell_places();
        reader.rest().take(2 * pages).for_each(drop);
        let of_launches = (!records_launches).then(|| source.clone());
        let points = Arc::new(Points::new(source, self.names.numbers.clone()));
        if self.core.backend.properties().kind == DeviceKind::Software {
            points.has_hosts_clock(hostcall_softdev::now_ns);
        }
        let dropped = reader.dropped_records().saturating_add(reader.behind_gaps());
        let launches =
            Arc::new(Recorder { source: of_launches, filter: filter.clone(), launches: Mutex::default() });
        let words = Vec::new();
        let (records, launches) = (launches.clone(), launches as Arc<dyn LaunchWatch>);
        let drain = Drain { reader, points: points.clone(), launches: records, words, pages, dropped };
        let reading = Reading::start(drain, self.core.backend.clone(), tracer)?;
        server.watch_launches(Some(launches));
        *self.names.recorded.lock() = Some((points, filter));
        *begun += 1;
        // Once it is there its end switches off what was switched on, also in part.
        *recorded = Some(Recorded { number: *begun, _reading: reading, is_on: true });
        if let Err(error) = self.set(channel, new_number(), true) {
            self.stop(channel, recorded);
            return Err(error);
        }
        Ok(*begun)
    }

    fn is_recorded(&self) -> bool {
        self.state.lock().recorded.is_some()
    }

    fn switch(&self, recording: u64, is_on: bool) -> Result<(), Error> {
        self.core.check_open()?;
        let mut state = self.state.lock();
        let State { channel: Some(channel), recorded: Some(recorded), .. } = &mut *state else {
            return Ok(());
        };
        if recorded.number == recording && recorded.is_on != is_on {
            self.set(channel, new_number(), is_on)?;
            recorded.is_on = is_on;
        }
        Ok(())
    }

    fn end(&self, recording: u64) {
        // A child has not the thread that reads, and its locks may be somebody's.
        if self.core.is_forked() {
            return;
        }
        let mut state = self.state.lock();
        let State { channel: Some(channel), recorded, .. } = &mut *state else { return };
        if recorded.as_ref().is_none_or(|recorded| recorded.number != recording) {
            return;
        }
        self.stop(channel, recorded);
    }
}
