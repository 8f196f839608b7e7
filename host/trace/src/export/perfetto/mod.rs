//! Perfetto's protobuf. Slices of one track must not overlap: a slot has one track, since it has one call at
//! a time, and handlers of a method have as many tracks as ran at once. Trace points have a track for each
//! home slot and first lane, on which waves follow each other; what a killed wave left open ends there with
//! its last record.
//!
//! Nearly all packets are events of tracks. They are encoded field by field (`events`), all others by `prost`
//! (`messages`), against which a test holds the first.

mod events;
mod messages;

use super::tracks::{TrackIds, Tracks};
use super::waves::{Step, Waves};
use super::{Export, LeftOut};
use crate::names::{Names, PointName};
use crate::record::{Call, Ending, Event, Point, Posts, Status, UNKNOWN};
use events::{
    Annotations, COUNTER, CounterValue, INSTANT, PACKET, SLICE_BEGIN, SLICE_END, TrackEvent, put_event,
};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use hostcall_abi::trace::PointKind;
use messages::{
    BOOTTIME, Clock, ClockSnapshot, CounterDescriptor, InternedData, InternedName, MERGE_NONE, NEEDS_STATE,
    ProcessDescriptor, REALTIME, SEQUENCE, STATE_CLEARED, TracePacket, TrackDescriptor,
};
use prost::Message;
use std::io::{self, Write};

/// Time over which calls are counted for the counter of calls a second.
const COUNTED_NS: u64 = 10_000_000;

/// Most slots, and groups of handlers, that have tracks; of others each slice has one.
const MOST_SLOTS: usize = 1 << 18;
const MOST_HANDLERS: usize = 1 << 12;

/// Most tracks of a slot, whose calls hardly ever overlap; of a method's handlers; of launches.
const SLOT_TRACKS: usize = 4;
const HANDLER_TRACKS: usize = 256;
const LAUNCH_TRACKS: usize = 256;

/// Most sources that are told apart.
const MOST_SOURCES: usize = 1 << 10;

/// Most counters of trace points that have tracks.
const MOST_COUNTERS: usize = 1 << 18;

/// Numbers of trace points' names begin here, behind those of methods.
const FIRST_POINT_IID: u64 = 1 << 32;

/// The number that methods without names have here.
const UNKNOWN_METHOD: u32 = 0;

/// Names of what is said of calls; the number of each is its place, from 1 on.
const ANNOTATIONS: [&str; 9] = [
    "launch",
    "kernel",
    "workgroup",
    "wave",
    "lanes",
    "request_bytes",
    "reply_bytes",
    "failed_lanes",
    "status",
];

const LAUNCH: u64 = 1;
const KERNEL: u64 = 2;
const WORKGROUP: u64 = 3;
const WAVE: u64 = 4;
const LANES: u64 = 5;
const REQUEST_BYTES: u64 = 6;
const REPLY_BYTES: u64 = 7;
const FAILED_LANES: u64 = 8;
const STATUS: u64 = 9;

/// The tracks of one source.
struct SourceTracks {
    process: u64,
    calls_counter: u64,
    posts_counter: u64,
    /// Since which multiple of [`COUNTED_NS`] calls are counted, and how many there were.
    counted: (u64, u64),
}

pub(super) struct Perfetto<W> {
    to: W,
    buffer: Vec<u8>,
    /// What is said of the next event.
    said: Annotations,
    sources: HashMap<u16, SourceTracks>,
    /// By source.
    launches: HashMap<(u16, u32), Tracks>,
    /// By source and slot.
    slots: HashMap<(u16, u32), Tracks>,
    /// By source and method.
    handlers: HashMap<(u16, u32), Tracks>,
    track_ids: TrackIds,
    /// Of waves with trace points.
    waves: Waves,
    /// Counters of trace points by source, slot and point, with their tracks.
    counters: HashMap<(u16, u32, u32), u64>,
    /// Trace points whose names are interned, with their numbers.
    points: HashMap<(u16, u32), u64>,
    /// Methods whose names are interned.
    interned: HashSet<u32>,
    flows: u64,
    began_unix_ns: u64,
    has_begun: bool,
    part: Part,
}

/// Which of several traces in a file it is. Each has numbers of its own for sequences, tracks, flows and processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub number: u16,
    /// What stands before the names of its processes.
    pub name: String,
    /// How much later it began than the file's time line.
    pub shift_ns: u64,
}

impl Part {
    fn sequence(&self) -> u32 {
        SEQUENCE + u32::from(self.number)
    }

    /// The first of its numbers of tracks and flows.
    fn first(&self) -> u64 {
        u64::from(self.number) << 47
    }
}

/// Bytes of packets that are written at once.
const WRITE_BYTES: usize = 256 << 10;

impl<W: Write> Perfetto<W> {
    /// Writes a trace, or one of several. `began_unix_ns` is when the file's time line begins.
    pub fn new(to: W, began_unix_ns: u64, part: Part) -> Self {
        Self {
            to,
            buffer: Vec::with_capacity(2 * WRITE_BYTES),
            said: Annotations::default(),
            sources: HashMap::new(),
            launches: HashMap::new(),
            slots: HashMap::new(),
            handlers: HashMap::new(),
            track_ids: TrackIds::from(part.first()),
            waves: Waves::default(),
            counters: HashMap::new(),
            points: HashMap::new(),
            interned: HashSet::new(),
            flows: part.first(),
            began_unix_ns,
            has_begun: false,
            part,
        }
    }

    /// Writes a packet.
    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        self.begin_once()?;
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(self.part.sequence()),
            sequence_flags: Some(packet.sequence_flags.unwrap_or(NEEDS_STATE)),
            ..packet
        };
        self.buffer.push(PACKET as u8);
        packet.encode_length_delimited(&mut self.buffer).expect("a vector has room");
        if self.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        self.to.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn begin_once(&mut self) -> io::Result<()> {
        if self.has_begun {
            return Ok(());
        }
        self.has_begun = true;
        let clock = |id, timestamp| Clock { clock_id: Some(id), timestamp: Some(timestamp) };
        let names = ANNOTATIONS.iter().zip(1..);
        let names = names.map(|(name, iid)| InternedName { iid: Some(iid), name: Some((*name).to_owned()) });
        let interned = InternedData { event_names: Vec::new(), debug_annotation_names: names.collect() };
        let clocks = vec![clock(BOOTTIME, 0), clock(REALTIME, self.began_unix_ns)];
        // One says it for all.
        let clock_snapshot = (self.part.number == 0).then_some(ClockSnapshot { clocks });
        self.packet(TracePacket {
            clock_snapshot,
            timestamp: Some(0),
            sequence_flags: Some(STATE_CLEARED | NEEDS_STATE),
            interned_data: Some(interned),
            ..TracePacket::default()
        })
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() })
    }

    /// Describes a track for slices.
    fn track(&mut self, uuid: u64, parent: u64, name: String) -> io::Result<()> {
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name),
            parent_uuid: Some(parent),
            sibling_merge_behavior: Some(MERGE_NONE),
            ..TrackDescriptor::default()
        })
    }

    fn counter_track(&mut self, parent: u64, name: &str) -> io::Result<u64> {
        let uuid = self.track_ids.next();
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            counter: Some(CounterDescriptor { unit_name: Some("1/s".to_owned()) }),
            ..TrackDescriptor::default()
        })?;
        Ok(uuid)
    }

    /// Makes the tracks of a source, if it has none.
    fn source(&mut self, names: &Names, source: u16) -> io::Result<&mut SourceTracks> {
        let is_full = self.sources.len() >= MOST_SOURCES && !self.sources.contains_key(&source);
        let source = if is_full { u16::MAX } else { source };
        if !self.sources.contains_key(&source) {
            let process = self.track_ids.next();
            let (device, protocol) = names.source(source).unwrap_or(("unknown device", ""));
            let name = format!("{}{device} ({protocol})", self.part.name);
            let pid = Some((i32::from(self.part.number & 0x7fff) << 16) + i32::from(source) + 1);
            self.describe(TrackDescriptor {
                uuid: Some(process),
                process: Some(ProcessDescriptor { pid, process_name: Some(name) }),
                ..TrackDescriptor::default()
            })?;
            let tracks = SourceTracks {
                process,
                calls_counter: self.counter_track(process, "calls")?,
                posts_counter: self.counter_track(process, "posts")?,
                counted: (0, 0),
            };
            self.sources.insert(source, tracks);
        }
        Ok(self.sources.get_mut(&source).expect("it was made"))
    }

    /// Writes an event with what is said of it.
    fn event_at(&mut self, at_ns: u64, event: &TrackEvent<'_>) -> io::Result<()> {
        self.begin_once()?;
        let at_ns = at_ns.saturating_add(self.part.shift_ns);
        put_event(self.part.sequence(), at_ns, event, &self.said, &mut self.buffer);
        self.said.clear();
        if self.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn end_at(&mut self, at_ns: u64, track: u64) -> io::Result<()> {
        self.event_at(at_ns, &TrackEvent { kind: SLICE_END, track, ..TrackEvent::default() })
    }

    fn counter_at(&mut self, at_ns: u64, track: u64, value: u64) -> io::Result<()> {
        let value = CounterValue::Whole(i64::try_from(value).unwrap_or(i64::MAX));
        self.event_at(
            at_ns,
            &TrackEvent { kind: COUNTER, track, counter: Some(value), ..TrackEvent::default() },
        )
    }

    /// Returns the number of a method's name, which is interned if it is not.
    fn name_of(&mut self, names: &Names, method: u32) -> io::Result<u64> {
        let iid = u64::from(method) + 1;
        if self.interned.insert(method) {
            let name = Some(names.method(method).map_or("unknown method", |method| &method.name).to_owned());
            let interned = InternedData {
                event_names: vec![InternedName { iid: Some(iid), name }],
                debug_annotation_names: Vec::new(),
            };
            self.packet(TracePacket { interned_data: Some(interned), ..TracePacket::default() })?;
        }
        Ok(iid)
    }

    /// Counts a call, and tells how many there were in the time before.
    fn count(&mut self, names: &Names, source: u16, at_ns: u64) -> io::Result<()> {
        let tracks = self.source(names, source)?;
        let (at, (since, count)) = (at_ns / COUNTED_NS, tracks.counted);
        if at <= since {
            tracks.counted.1 += 1;
            return Ok(());
        }
        tracks.counted = (at, 1);
        let track = tracks.calls_counter;
        self.counter_at(since * COUNTED_NS, track, count.saturating_mul(1_000_000_000 / COUNTED_NS))?;
        if at > since + 1 {
            self.counter_at((since + 1).saturating_mul(COUNTED_NS), track, 0)?;
        }
        Ok(())
    }

    fn call(&mut self, names: &Names, call: &Call) -> io::Result<()> {
        let process = self.source(names, call.source)?.process;
        let method = names.method(call.method).map_or(UNKNOWN_METHOD, |_| call.method);
        let end_ns = call.replied_ns.max(call.picked_up_ns);
        let handler_ns = [call.handler_began_ns, call.handler_ended_ns.max(call.handler_began_ns)];
        let has_handler = handler_ns[0] != call.replied_ns;
        let Self { slots, handlers, track_ids, .. } = self;
        let mut none = Tracks::new(0);
        let of_slot = group(slots, (call.source, call.slot), MOST_SLOTS, SLOT_TRACKS, &mut none);
        let (track, is_new) = of_slot.place(track_ids, call.picked_up_ns, end_ns);
        let of_method = group(handlers, (call.source, method), MOST_HANDLERS, HANDLER_TRACKS, &mut none);
        let handler = has_handler.then(|| of_method.place(track_ids, handler_ns[0], handler_ns[1]));
        if is_new {
            self.track(track, process, format!("slot {}", call.slot))?;
        }
        let name = self.name_of(names, method)?;
        self.flows += 1;
        let flow = has_handler.then_some(self.flows);
        if let Some(launch) = names.launch(call.launch) {
            self.said.number(LAUNCH, call.launch);
            self.said.text(KERNEL, &launch.kernel);
        }
        if call.workgroup != UNKNOWN {
            self.said.number(WORKGROUP, call.workgroup.into());
        }
        if call.wave != UNKNOWN {
            self.said.number(WAVE, call.wave.into());
        }
        self.said.number(LANES, call.lanes.into());
        self.said.number(REQUEST_BYTES, call.request_bytes);
        self.said.number(REPLY_BYTES, call.reply_bytes);
        if call.status != Status::OK {
            self.said.number(FAILED_LANES, call.failed_lanes.into());
            self.said.text(STATUS, call.status.name());
        }
        let event = TrackEvent { kind: SLICE_BEGIN, name_iid: Some(name), ..TrackEvent::default() };
        self.event_at(call.picked_up_ns, &TrackEvent { track, flow, ..event })?;
        self.end_at(end_ns, track)?;
        if let Some((handler, is_new)) = handler {
            if is_new {
                let of = names.method(call.method).map_or("unknown method", |method| &*method.name);
                self.track(handler, process, format!("handlers of {of}"))?;
            }
            self.event_at(handler_ns[0], &TrackEvent { track: handler, ended_flow: flow, ..event })?;
            self.end_at(handler_ns[1], handler)?;
        }
        self.count(names, call.source, call.replied_ns)
    }

    /// Returns the number of a trace point's name, which is interned if it is not.
    fn point_name(&mut self, names: &Names, point: &Point) -> io::Result<u64> {
        let next = FIRST_POINT_IID + self.points.len() as u64;
        let is_known = names.point(point.source, point.point).is_some();
        let key = if is_known { (point.source, point.point) } else { (u16::MAX, 0) };
        if let Some(iid) = self.points.get(&key) {
            return Ok(*iid);
        }
        self.points.insert(key, next);
        let name = names.point(point.source, point.point).map_or("unknown", |name| &*name.text).to_owned();
        let interned = InternedData {
            event_names: vec![InternedName { iid: Some(next), name: Some(name) }],
            debug_annotation_names: Vec::new(),
        };
        self.packet(TracePacket { interned_data: Some(interned), ..TracePacket::default() })?;
        Ok(next)
    }

    fn point(&mut self, names: &Names, point: &Point) -> io::Result<()> {
        let process = self.source(names, point.source)?.process;
        let Self { waves, track_ids, .. } = self;
        let Some((track, is_new, steps)) = waves.steps(track_ids, point) else { return Ok(()) };
        if is_new {
            let name = match point.first_lane {
                0 => format!("wave in slot {}", point.slot),
                lane => format!("wave in slot {}, from lane {lane}", point.slot),
            };
            self.track(track, process, name)?;
        }
        for step in steps {
            match step {
                Step::End(at_ns) => self.end_at(at_ns, track)?,
                Step::Begin(at_ns) => {
                    let name_iid = Some(self.point_name(names, point)?);
                    self.say_of_wave(names, point);
                    let event = TrackEvent { kind: SLICE_BEGIN, name_iid, track, ..TrackEvent::default() };
                    self.event_at(at_ns, &event)?;
                }
                Step::Value(at_ns) => {
                    // Without its name, nothing says what kind of number a counter's word is.
                    if point.kind == PointKind::Counter
                        && let Some(name) = names.point(point.source, point.point)
                    {
                        self.point_counter(name, track, at_ns, point)?;
                        continue;
                    }
                    let mut text = Vec::new();
                    names.print_point(point, &mut text);
                    self.say_of_wave(names, point);
                    let name = String::from_utf8_lossy(&text);
                    let event =
                        TrackEvent { kind: INSTANT, name: Some(&name), track, ..TrackEvent::default() };
                    self.event_at(at_ns, &event)?;
                }
            }
        }
        Ok(())
    }

    fn say_of_wave(&mut self, names: &Names, point: &Point) {
        if let Some(launch) = names.launch(point.launch) {
            self.said.number(LAUNCH, point.launch);
            self.said.text(KERNEL, &launch.kernel);
        }
        self.said.number(WORKGROUP, point.workgroup.into());
        self.said.number(WAVE, point.wave.into());
        self.said.number(LANES, point.lanes.into());
    }

    fn point_counter(&mut self, name: &PointName, parent: u64, at_ns: u64, point: &Point) -> io::Result<()> {
        let key = (point.source, point.slot, point.point);
        let track = match self.counters.get(&key) {
            Some(track) => *track,
            None if self.counters.len() >= MOST_COUNTERS => {
                self.waves.left_out.points += 1;
                return Ok(());
            }
            None => {
                let uuid = self.track_ids.next();
                self.describe(TrackDescriptor {
                    uuid: Some(uuid),
                    name: Some((*name.text).to_owned()),
                    parent_uuid: Some(parent),
                    counter: Some(CounterDescriptor { unit_name: None }),
                    sibling_merge_behavior: Some(MERGE_NONE),
                    ..TrackDescriptor::default()
                })?;
                self.counters.insert(key, uuid);
                uuid
            }
        };
        let counter = Some(CounterValue::Double(name.value(point)));
        self.event_at(at_ns, &TrackEvent { kind: COUNTER, track, counter, ..TrackEvent::default() })
    }

    fn launch(&mut self, names: &Names, number: u64, end: Option<(u64, Ending)>) -> io::Result<()> {
        let Some(launch) = names.launch(number) else { return Ok(()) };
        let process = self.source(names, launch.source)?.process;
        // What has not ended is never followed on its track.
        let end_ns = end.map_or(u64::MAX, |(at_ns, _)| at_ns).max(launch.began_ns);
        let mut none = Tracks::new(0);
        let of_source = group(&mut self.launches, (launch.source, 0), MOST_SOURCES, LAUNCH_TRACKS, &mut none);
        let (track, is_new) = of_source.place(&mut self.track_ids, launch.began_ns, end_ns);
        if is_new {
            self.track(track, process, "launches".to_owned())?;
        }
        self.said.number(LAUNCH, number);
        if let Some((_, ending)) = end.filter(|(_, ending)| *ending != Ending::OK) {
            self.said.text(STATUS, ending.name());
        }
        let name = Some(&*launch.kernel);
        let event = TrackEvent { kind: SLICE_BEGIN, name, track, ..TrackEvent::default() };
        self.event_at(launch.began_ns, &event)?;
        if end.is_some() { self.end_at(end_ns, track) } else { Ok(()) }
    }

    fn posts(&mut self, names: &Names, posts: &Posts) -> io::Result<()> {
        let track = self.source(names, posts.source)?.posts_counter;
        let time_ns = u128::from(posts.until_ns.saturating_sub(posts.from_ns).max(1));
        let rate = u128::from(posts.count) * 1_000_000_000 / time_ns;
        self.counter_at(posts.from_ns, track, u64::try_from(rate).unwrap_or(u64::MAX))?;
        self.counter_at(posts.until_ns, track, 0)
    }
}

/// Returns the tracks of a group, of at most `groups`; else `none`.
fn group<'a>(
    of: &'a mut HashMap<(u16, u32), Tracks>,
    key: (u16, u32),
    groups: usize,
    tracks: usize,
    none: &'a mut Tracks,
) -> &'a mut Tracks {
    if of.len() >= groups && !of.contains_key(&key) {
        return none;
    }
    of.entry(key).or_insert_with(|| Tracks::new(tracks))
}

impl<W: Write> Export for Perfetto<W> {
    fn event(&mut self, names: &Names, event: &Event) -> io::Result<()> {
        match event {
            Event::Call(call) => self.call(names, call),
            Event::Posts(posts) => self.posts(names, posts),
            Event::Point(point) => self.point(names, point),
            Event::LaunchEnded { launch, at_ns, ending } => {
                self.launch(names, *launch, Some((*at_ns, *ending)))
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, names: &Names) -> io::Result<()> {
        let open: Vec<u64> = names.open_launches().map(|(number, _)| number).collect();
        for number in open {
            self.launch(names, number, None)?;
        }
        let counted: Vec<_> =
            self.sources.values().map(|tracks| (tracks.calls_counter, tracks.counted)).collect();
        for (track, (since, count)) in counted {
            self.counter_at(since * COUNTED_NS, track, count.saturating_mul(1_000_000_000 / COUNTED_NS))?;
            self.counter_at((since + 1).saturating_mul(COUNTED_NS), track, 0)?;
        }
        self.begin_once()?;
        self.write()
    }

    fn left_out(&self) -> LeftOut {
        self.waves.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_format::tags;

    /// The block with a name may be lost; what was measured is not.
    #[test]
    fn points_without_names_have_their_words() {
        let mut export = Perfetto::new(Vec::new(), 0, Part::default());
        for kind in [PointKind::Counter, PointKind::Event] {
            let point = Point { kind, point: 7, values: [5, 6, 0, 0, 0], count: 2, ..Point::default() };
            export.event(&Names::default(), &Event::Point(point)).unwrap();
        }
        export.finish(&Names::default()).unwrap();
        let has = |bytes: &[u8]| export.to.windows(bytes.len()).any(|window| window == bytes);
        assert!(has(b"[5, 6]"));
    }

    /// Its words may be bits of another kind of number, and are no value until its name says so.
    #[test]
    fn a_counter_without_its_name_has_no_value() {
        let mut export = Perfetto::new(Vec::new(), 0, Part::default());
        let bits = 1.5f64.to_bits();
        let point = Point {
            kind: PointKind::Counter,
            point: 7,
            values: [bits, 0, 0, 0, 0],
            count: 1,
            ..Point::default()
        };
        let mut names = Names::default();
        export.event(&names, &Event::Point(point)).unwrap();
        export.write().unwrap();
        let has = |to: &[u8], bytes: &[u8]| to.windows(bytes.len()).any(|window| window == bytes);
        let (words, number) = (format!("[{bits}]"), (bits as f64).to_le_bytes());
        assert!(has(&export.to, words.as_bytes()));
        assert!(!has(&export.to, &number));
        export.to.clear();
        names.note(&Event::NamedPoint {
            source: 0,
            point: 7,
            kind: PointKind::Counter,
            tags: tags::F64.into(),
            line: 1,
            file: "sum.rs".into(),
            text: "sum".into(),
        });
        export.event(&names, &Event::Point(point)).unwrap();
        export.finish(&names).unwrap();
        assert!(has(&export.to, b"sum") && has(&export.to, &1.5f64.to_le_bytes()));
        assert!(!has(&export.to, words.as_bytes()) && !has(&export.to, &number));
    }
}
