//! The tracer's thread: gives numbers to what was recorded, counts latencies, and writes blocks.

use crate::format::{
    self, BlockHeader, CALL_BYTES, Kind, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, NamedPoint, POINTS_BYTES,
    PointsHead, tag,
};
use crate::latencies::Latencies;
use crate::names::Names;
use crate::queue::{Entry, MethodKey, PointsEntry, Queue, Taken};
use crate::record::{Call, Event, Posts, Totals};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

/// Numbers of methods and of kernels in a file, from 1 on.
const MOST_NAMES: u32 = 1 << 16;

/// Bytes of names after which a block of them ends.
const NAMES_BLOCK_BYTES: usize = 64 << 10;

/// Calls of a block.
const BLOCK_CALLS: usize = MAX_PAYLOAD_BYTES / CALL_BYTES;

/// What the thread found out, for whoever asks.
#[derive(Default)]
pub(crate) struct Results {
    pub names: Names,
    pub latencies: Latencies,
    pub calls: u64,
    pub posts: u64,
    /// Records of trace points that kernels lost.
    pub lost_points: u64,
    /// Calls that are in the file, if there is one.
    pub written_calls: u64,
    pub launches_past_names: u64,
    /// Why the file could not be written on.
    pub failure: Option<Arc<io::Error>>,
    pub is_done: bool,
}

/// Runs the tracer's thread until the queue is closed.
pub(crate) fn run(
    queue: &Queue,
    results: &Mutex<Results>,
    file: Option<Box<dyn Write + Send>>,
    start: Instant,
) {
    let mut numbers = Numbers::default();
    let mut blocks = Blocks { file, ..Blocks::default() };
    let (mut spare, mut posts_from_ns) = (Vec::new(), 0);
    loop {
        let Taken { mut entries, posts, dropped_calls, dropped_others, is_last, .. } = queue.take(spare);
        blocks.dropped_calls = dropped_calls;
        let mut events = Numbered::default();
        entries.drain(..).for_each(|entry| numbers.number(entry, &mut events));
        let until_ns = elapsed_ns(start);
        let posts: Vec<Posts> = posts
            .into_iter()
            .map(|posts| {
                let (source, count) = (posts.source, posts.count);
                let method = numbers.method(posts.method, &mut events.names);
                Posts { from_ns: posts_from_ns, until_ns, count, method, source }
            })
            .collect();
        posts_from_ns = until_ns;
        {
            let mut results = results.lock();
            let Results { names, latencies, .. } = &mut *results;
            events.names.iter().for_each(|event| names.note(event));
            events.calls.iter().for_each(|call| latencies.add(names, call));
            events.ends.iter().for_each(|event| names.note(event));
            posts.iter().for_each(|posts| latencies.add_posts(posts));
            results.calls += events.calls.len() as u64;
            // Devices say how many, and may say anything.
            let lost = events.points.iter().map(|(head, _)| head.lost);
            results.lost_points = lost.fold(results.lost_points, u64::saturating_add);
            results.posts += posts.iter().map(|posts| posts.count).sum::<u64>();
        }
        // What calls refer to comes before them, and what ends after them.
        blocks.names(&events.names, &mut numbers);
        events.calls.chunks(BLOCK_CALLS).for_each(|calls| blocks.calls(calls));
        blocks.points(&events.points);
        blocks.names(&events.waits, &mut numbers);
        blocks.posts(&posts);
        blocks.names(&events.ends, &mut numbers);
        let dropped_others = dropped_others + numbers.dropped;
        if is_last {
            let (ended_ns, calls) = (elapsed_ns(start), blocks.written_calls);
            blocks.end(&Totals { ended_ns, calls, dropped_calls, dropped_others });
            // Who learns of the end may write the file anew.
            blocks.file = None;
        }
        let mut results = results.lock();
        results.written_calls = blocks.written_calls;
        results.launches_past_names = numbers.dropped;
        results.failure = blocks.failure.clone();
        if is_last {
            results.is_done = true;
            return;
        }
        spare = entries;
    }
}

pub(crate) fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What was taken from the queue, with numbers.
#[derive(Default)]
struct Numbered {
    names: Vec<Event>,
    calls: Vec<Call>,
    points: Vec<(PointsHead, Vec<u8>)>,
    waits: Vec<Event>,
    ends: Vec<Event>,
}

/// Which numbers were given.
#[derive(Default)]
struct Numbers {
    methods: HashMap<MethodKey, u32>,
    last_method: Option<(MethodKey, u32)>,
    kernels: HashMap<Arc<str>, u32>,
    /// By source and the index of the launch's id, which launch had it last.
    launches: HashMap<(u16, u32), (LaunchId, u64)>,
    launches_begun: u64,
    /// Names that got no number.
    dropped: u64,
}

impl Numbers {
    fn number(&mut self, entry: Entry, to: &mut Numbered) {
        match entry {
            Entry::Source { source, device, protocol } => {
                to.names.push(Event::Source { source, device, protocol: protocol.into() });
            }
            Entry::Call { mut call, method, launch } => {
                call.method = self.method(method, &mut to.names);
                call.launch = self.launch(call.source, launch);
                to.calls.push(call);
            }
            Entry::LaunchBegan { source, launch: id, at_ns, workgroups, kernel } => {
                self.launches_begun += 1;
                let launch = self.launches_begun;
                self.launches.insert((source, id.index()), (id, launch));
                to.names.push(Event::LaunchBegan { launch, source, at_ns, workgroups, kernel, id });
            }
            Entry::Waiting { mut waiting, launch } => {
                waiting.launch = self.launch(waiting.source, launch);
                to.waits.push(Event::Waiting(waiting));
            }
            Entry::NamedPoint { source, point, kind, tags, line, file, text } => {
                to.names.push(Event::NamedPoint { source, point, kind, tags, line, file, text });
            }
            Entry::Clock(pair) => to.names.push(Event::Clock(pair)),
            Entry::Points(PointsEntry { source, launch, slot, workgroup, wave, lost, records }) => {
                let (launch, bytes) = (self.launch(source, launch), records.len() as u32);
                to.points.push((PointsHead { launch, lost, slot, workgroup, wave, bytes, source }, records));
            }
            Entry::LaunchEnded { source, launch, at_ns, ending } => {
                let launch = self.launch(source, launch);
                if launch != 0 {
                    to.ends.push(Event::LaunchEnded { launch, at_ns, ending });
                }
            }
        }
    }

    /// Returns a launch's number; 0 when its begin was not recorded.
    fn launch(&self, source: u16, id: LaunchId) -> u64 {
        let had = self.launches.get(&(source, id.index()));
        had.filter(|(last, _)| *last == id).map_or(0, |(_, launch)| *launch)
    }

    /// Returns a method's number, which `names` gets if it is new; 0 when there are too many.
    fn method(&mut self, key: MethodKey, names: &mut Vec<Event>) -> u32 {
        if let Some((last, method)) = self.last_method
            && last == key
        {
            return method;
        }
        let next = self.methods.len() as u32 + 1;
        let method = match self.methods.get(&key) {
            Some(method) => *method,
            None if next >= MOST_NAMES => {
                self.dropped += 1;
                return 0;
            }
            None => {
                self.methods.insert(key, next);
                names.push(Event::Method { method: next, number: key.number, name: key.name.into() });
                next
            }
        };
        self.last_method = Some((key, method));
        method
    }

    /// Returns a kernel's number, and whether it is new; 0 when there are too many.
    fn kernel(&mut self, kernel: &Arc<str>) -> (u32, bool) {
        let next = self.kernels.len() as u32 + 1;
        match self.kernels.get(kernel) {
            Some(number) => (*number, false),
            None if next >= MOST_NAMES => {
                self.dropped += 1;
                (0, false)
            }
            None => {
                self.kernels.insert(kernel.clone(), next);
                (next, true)
            }
        }
    }
}

/// Writes a block.
pub(crate) fn write_block(
    file: &mut dyn Write,
    kind: Kind,
    sequence: u64,
    dropped_calls: u64,
    records: u32,
    payload: &[u8],
) -> io::Result<()> {
    let (payload_bytes, payload_crc) = (payload.len() as u32, crc32fast::hash(payload));
    let header =
        BlockHeader { kind: kind as u32, payload_bytes, records, sequence, dropped_calls, payload_crc };
    file.write_all(&header.to_bytes())?;
    file.write_all(payload)?;
    file.flush()
}

/// Writes blocks to a file, as long as that goes well.
#[derive(Default)]
struct Blocks {
    file: Option<Box<dyn Write + Send>>,
    failure: Option<Arc<io::Error>>,
    payload: Vec<u8>,
    records: u32,
    sequence: u64,
    dropped_calls: u64,
    written_calls: u64,
}

impl Blocks {
    /// Writes what was gathered for a block. Returns whether it is in the file.
    fn flush(&mut self, kind: Kind) -> bool {
        let (payload, records) = (&self.payload, std::mem::take(&mut self.records));
        let mut is_written = false;
        if let Some(file) = &mut self.file
            && records > 0
        {
            let written = write_block(file, kind, self.sequence, self.dropped_calls, records, payload);
            self.sequence += 1;
            match written {
                Ok(()) => is_written = true,
                Err(error) => {
                    // What follows a torn block would be told apart from it, but a full disk does not get emptier by trying.
                    self.failure = Some(Arc::new(error));
                    self.file = None;
                }
            }
        }
        self.payload.clear();
        is_written
    }

    fn calls(&mut self, calls: &[Call]) {
        if self.file.is_none() {
            return;
        }
        calls.iter().for_each(|call| format::put_call(call, &mut self.payload));
        self.records = calls.len() as u32;
        if self.flush(Kind::Calls) {
            self.written_calls += calls.len() as u64;
        }
    }

    fn posts(&mut self, posts: &[Posts]) {
        posts.iter().for_each(|posts| format::put_posts(posts, &mut self.payload));
        self.records = posts.len() as u32;
        self.flush(Kind::Posts);
    }

    fn points(&mut self, points: &[(PointsHead, Vec<u8>)]) {
        for (head, records) in points {
            if self.payload.len() + POINTS_BYTES + records.len() > MAX_PAYLOAD_BYTES {
                self.flush(Kind::Points);
            }
            format::put_points(head, records, &mut self.payload);
            self.records += 1;
        }
        self.flush(Kind::Points);
    }

    fn end(&mut self, totals: &Totals) {
        format::put_totals(totals, &mut self.payload);
        self.records = 1;
        self.flush(Kind::End);
    }

    fn names(&mut self, events: &[Event], numbers: &mut Numbers) {
        if self.file.is_none() {
            return;
        }
        for event in events {
            match event {
                Event::Source { source, device, protocol } => {
                    let device = cut(device);
                    let mut body = source.to_le_bytes().to_vec();
                    body.extend((device.len() as u16).to_le_bytes());
                    body.extend(device.as_bytes());
                    body.extend(cut(protocol).as_bytes());
                    self.name(tag::SOURCE, &body);
                }
                Event::Method { method, number, name } => {
                    let mut body = [method.to_le_bytes(), number.to_le_bytes()].concat();
                    body.extend(cut(name).as_bytes());
                    self.name(tag::METHOD, &body);
                }
                Event::LaunchBegan { launch, source, at_ns, workgroups, kernel, id } => {
                    let (number, is_new) = numbers.kernel(kernel);
                    if is_new {
                        let mut body = number.to_le_bytes().to_vec();
                        body.extend(cut(kernel).as_bytes());
                        self.name(tag::KERNEL, &body);
                    }
                    let mut body = [launch.to_le_bytes(), at_ns.to_le_bytes()].concat();
                    workgroups.iter().for_each(|count| body.extend(count.to_le_bytes()));
                    body.extend(number.to_le_bytes());
                    body.extend(source.to_le_bytes());
                    body.extend(id.to_bits().to_le_bytes());
                    self.name(tag::LAUNCH_BEGAN, &body);
                }
                Event::Waiting(waiting) => {
                    let mut body = Vec::new();
                    format::put_waiting(waiting, &mut body);
                    self.name(tag::WAITING, &body);
                }
                Event::NamedPoint { source, point, kind, tags, line, file, text } => {
                    let (source, point, kind, tags, line) = (*source, *point, *kind, *tags, *line);
                    let mut body = Vec::new();
                    format::put_named_point(
                        &NamedPoint { source, point, kind, tags, line, file, text },
                        &mut body,
                    );
                    self.name(tag::POINT, &body);
                }
                Event::Clock(pair) => {
                    let mut body = Vec::new();
                    format::put_clock(pair, &mut body);
                    self.name(tag::CLOCK, &body);
                }
                Event::LaunchEnded { launch, at_ns, ending } => {
                    let mut body = [launch.to_le_bytes(), at_ns.to_le_bytes()].concat();
                    body.push(ending.0);
                    self.name(tag::LAUNCH_ENDED, &body);
                }
                _ => {}
            }
        }
        self.flush(Kind::Names);
    }

    fn name(&mut self, tag: u8, body: &[u8]) {
        self.payload.push(tag);
        self.payload.extend((body.len() as u16).to_le_bytes());
        self.payload.extend(body);
        self.records += 1;
        if self.payload.len() >= NAMES_BLOCK_BYTES {
            self.flush(Kind::Names);
        }
    }
}

/// Cuts a name to [`MAX_NAME_BYTES`].
pub(crate) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}
