//! The raw channel of a device's trace points, which goes into the trace.

use super::{Found, Inner, Memory, Pace, Placement, RawReader, WrittenByOthers};
use crate::device::core::Core;
use crate::device::error::Error;
use crate::device::inner::PointsOfOthers;
use hostcall_abi::CallError;
use hostcall_abi::layout::Layout;
use hostcall_abi::raw::RawLayout;
use hostcall_abi::trace::PointKind;
use hostcall_device::services::TracePointsHandler;
use hostcall_locks::Mutex;
use hostcall_server::Server;
use hostcall_server::services::Reports;
use hostcall_trace::{Flush, Points, PointsPage, Tracer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pages for each wave that the device holds: one that it fills, and one that is read meanwhile.
const PAGES_A_WAVE: u32 = 2;
const LEAST_PAGES: u32 = 64;
const MOST_PAGES: u32 = 1 << 14;
const PAGE_BYTES: u32 = 4096;

/// Bytes of which all records are multiples.
const UNIT: u32 = 16;

/// How long the thread that reads sleeps at most, and how long the end waits for a tracer that takes nothing.
const LOOK: Duration = Duration::from_millis(1);
const LONGEST_FLUSH: Duration = Duration::from_secs(5);

/// Pages between two looks whether the thread is to end.
const PAGES_OF_A_PASS: usize = 256;

/// Makes the memory of a device's trace points.
pub(in crate::device) fn memory(core: &Core, layout: &Layout) -> Result<Arc<Memory>, Error> {
    let pages = (PAGES_A_WAVE * layout.home_slots).next_power_of_two().clamp(LEAST_PAGES, MOST_PAGES);
    let layout_of_pages = RawLayout::new(pages, PAGE_BYTES).expect("sizes within the bounds");
    Ok(Arc::new(Memory::new(
        core,
        layout_of_pages,
        layout.home_slots,
        Placement::Direct,
        "DeviceBuilder::trace",
    )?))
}

/// What trace points ask of the host.
pub(in crate::device) struct PointNumbers {
    pub points: Arc<Points>,
    /// Have the texts that lanes post before they ask for a number.
    pub reports: Reports,
    /// A point without a text was told of.
    pub is_refusal_told: AtomicBool,
}

impl TracePointsHandler for PointNumbers {
    fn now_ns(&self) -> Result<u64, CallError> {
        Ok(self.points.now_ns())
    }

    fn clock_pair(&self, before_ns: u64, host_ns: u64, after_ns: u64) -> Result<(), CallError> {
        self.points.compare_clocks(before_ns, host_ns, after_ns);
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
        let Some(texts) = self.reports.take_text(lane) else {
            if !self.is_refusal_told.swap(true, Ordering::Relaxed) {
                hostcall_server::report_line(format_args!(
                    "records of a trace point are dropped: its name or its file's is no text in UTF-8"
                ));
            }
            return Err(CallError::Malformed);
        };
        let kind = PointKind::of(kind).ok_or(CallError::Malformed)?;
        let (text, file) = texts.split_at_checked(text_bytes as usize).ok_or(CallError::Malformed)?;
        self.points.register(kind, tags, line, device_ns, file, text).ok_or(CallError::TooLarge)
    }
}

/// What reads the channel.
struct Drain {
    reader: RawReader<u64>,
    points: Arc<Points>,
    others: Arc<WrittenByOthers>,
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
            self.points.page(&PointsPage {
                launch: writer.launch,
                slot: writer.slot,
                workgroup: writer.workgroup,
                wave: writer.wave,
                dropped,
                words: &self.words,
            });
        }
        count
    }

    /// Records all that is there now, and what was dropped of which no page tells: twice as many parts of pages as there are pages at
    /// most, since kernels may write without pause, and the reader has found as many before.
    fn flush(&mut self) {
        self.others.tell();
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
        let dropped = self.reader.dropped_records();
        if let Some(untold @ 1..) = dropped.checked_sub(self.dropped) {
            self.dropped = dropped;
            self.points.page(&PointsPage { dropped: untold, ..PointsPage::default() });
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

/// The trace points of a device whose tracer has a file. A thread reads them until this is dropped.
pub(crate) struct TracedPoints {
    shall_end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TracedPoints {
    /// Starts the thread.
    pub fn start(
        core: &Arc<Core>,
        server: &Arc<Server>,
        memory: Arc<Memory>,
        others: Arc<WrittenByOthers>,
        home_slots: u32,
        points: Arc<Points>,
        tracer: &Tracer,
    ) -> Result<Self, Error> {
        let found = Mutex::new(Found::new(core, &memory, home_slots, UNIT)?);
        let (core, server) = (core.clone(), server.clone());
        let backend = core.backend.clone();
        let (overwrites, users) = (false, AtomicUsize::new(0));
        let (number, waits_with, contexts) = (0, None, Mutex::default());
        let (of_others, pages) = (Some(others.clone()), memory.layout.pages() as usize);
        let inner = Inner {
            core,
            server,
            device: None,
            memory,
            overwrites,
            number,
            waits_with,
            found,
            others: of_others,
            users,
            contexts,
        };
        let reader = RawReader::new(&Arc::new(inner));
        let drain = Drain { reader, points, others, words: Vec::new(), pages, dropped: 0 };
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
                    match reads.0.lock().pass(PAGES_OF_A_PASS) {
                        0 => pace.wait(LOOK),
                        _ => pace.found(),
                    }
                }
                reads.0.lock().flush();
            })
            .map_err(|error| Error::NoThread { what: "trace points", error })?;
        Ok(Self { shall_end, thread: Some(thread) })
    }
}

impl Drop for TracedPoints {
    fn drop(&mut self) {
        self.shall_end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It has flushed, or panicked.
            let _ = thread.join();
        }
    }
}
