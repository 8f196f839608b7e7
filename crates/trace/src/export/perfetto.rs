//! Perfetto's protobuf, as far as it is used here. Numbers of fields are those of `perfetto_trace.proto`.

use super::Export;
use super::tracks::{TrackIds, Tracks};
use super::waves::{Step, Waves};
use crate::names::Names;
use crate::record::{Call, Event, Point, Posts, Status, UNKNOWN};
use hostcall_abi::trace::PointKind;
use prost::Message;
use std::collections::{HashMap, HashSet};
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

/// `TracePacket.sequence_flags`: the sequence begins.
const STATE_CLEARED: u32 = 1;
/// `TracePacket.sequence_flags`: the packet uses what was interned.
const NEEDS_STATE: u32 = 2;
/// `TrackDescriptor.sibling_merge_behavior`: tracks of one name stay apart.
const MERGE_NONE: i32 = 2;
/// The number of this file's one sequence of packets.
const SEQUENCE: u32 = 1;

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

/// `BuiltinClock`.
const REALTIME: u32 = 1;
const BOOTTIME: u32 = 6;

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
}

#[derive(Clone, PartialEq, Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "15")]
    sibling_merge_behavior: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<InternedName>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedName {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

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

const LAUNCH: usize = 0;
const KERNEL: usize = 1;
const WORKGROUP: usize = 2;
const WAVE: usize = 3;
const LANES: usize = 4;
const REQUEST_BYTES: usize = 5;
const REPLY_BYTES: usize = 6;
const FAILED_LANES: usize = 7;
const STATUS: usize = 8;

fn number(of: usize, value: u64) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(of as u64 + 1), uint_value: Some(value), string_value: None }
}

fn text(of: usize, value: &str) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(of as u64 + 1), uint_value: None, string_value: Some(value.to_owned()) }
}

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
}

/// Bytes of packets that are written at once.
const WRITE_BYTES: usize = 256 << 10;

impl<W: Write> Perfetto<W> {
    pub fn new(to: W, began_unix_ns: u64) -> Self {
        Self {
            to,
            buffer: Vec::with_capacity(2 * WRITE_BYTES),
            sources: HashMap::new(),
            launches: HashMap::new(),
            slots: HashMap::new(),
            handlers: HashMap::new(),
            track_ids: TrackIds::from(0),
            waves: Waves::default(),
            counters: HashMap::new(),
            points: HashMap::new(),
            interned: HashSet::new(),
            flows: 0,
            began_unix_ns,
            has_begun: false,
        }
    }

    /// Writes a packet: field 1 of a `Trace`.
    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        if !self.has_begun {
            self.has_begun = true;
            self.begin()?;
        }
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(packet.sequence_flags.unwrap_or(NEEDS_STATE)),
            ..packet
        };
        const FIELD_1_OF_BYTES: u8 = 1 << 3 | 2;
        self.buffer.push(FIELD_1_OF_BYTES);
        packet.encode_length_delimited(&mut self.buffer).expect("a vector has room");
        if self.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        self.to.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        let clock = |id, timestamp| Clock { clock_id: Some(id), timestamp: Some(timestamp) };
        let names = ANNOTATIONS.iter().zip(1..);
        let names = names.map(|(name, iid)| InternedName { iid: Some(iid), name: Some((*name).to_owned()) });
        let interned = InternedData { event_names: Vec::new(), debug_annotation_names: names.collect() };
        let clocks = vec![clock(BOOTTIME, 0), clock(REALTIME, self.began_unix_ns)];
        self.packet(TracePacket {
            clock_snapshot: Some(ClockSnapshot { clocks }),
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
            let name = format!("{device} ({protocol})");
            let pid = Some(i32::from(source) + 1);
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

    fn event_at(&mut self, at_ns: u64, event: TrackEvent) -> io::Result<()> {
        self.packet(TracePacket {
            timestamp: Some(at_ns),
            track_event: Some(event),
            ..TracePacket::default()
        })
    }

    fn end_at(&mut self, at_ns: u64, track: u64) -> io::Result<()> {
        let event = TrackEvent { r#type: Some(SLICE_END), track_uuid: Some(track), ..TrackEvent::default() };
        self.event_at(at_ns, event)
    }

    fn counter_at(&mut self, at_ns: u64, track: u64, value: u64) -> io::Result<()> {
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(track),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.event_at(at_ns, event)
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
        let flow = vec![self.flows];
        let mut said = Vec::with_capacity(ANNOTATIONS.len());
        if let Some(launch) = names.launch(call.launch) {
            said.extend([number(LAUNCH, call.launch), text(KERNEL, &launch.kernel)]);
        }
        if call.workgroup != UNKNOWN {
            said.push(number(WORKGROUP, call.workgroup.into()));
        }
        if call.wave != UNKNOWN {
            said.push(number(WAVE, call.wave.into()));
        }
        said.push(number(LANES, call.lanes.into()));
        said.push(number(REQUEST_BYTES, call.request_bytes));
        said.push(number(REPLY_BYTES, call.reply_bytes));
        if call.status != Status::OK {
            said.extend([number(FAILED_LANES, call.failed_lanes.into()), text(STATUS, call.status.name())]);
        }
        let begin = TrackEvent {
            debug_annotations: said,
            r#type: Some(SLICE_BEGIN),
            name_iid: Some(name),
            track_uuid: Some(track),
            flow_ids: if has_handler { flow.clone() } else { Vec::new() },
            ..TrackEvent::default()
        };
        self.event_at(call.picked_up_ns, begin)?;
        self.end_at(end_ns, track)?;
        if let Some((handler, is_new)) = handler {
            if is_new {
                let of = names.method(call.method).map_or("unknown method", |method| &*method.name);
                self.track(handler, process, format!("handlers of {of}"))?;
            }
            let begin = TrackEvent {
                r#type: Some(SLICE_BEGIN),
                name_iid: Some(name),
                track_uuid: Some(handler),
                terminating_flow_ids: flow,
                ..TrackEvent::default()
            };
            self.event_at(handler_ns[0], begin)?;
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
                    let event = TrackEvent {
                        debug_annotations: Self::said_of_wave(names, point),
                        r#type: Some(SLICE_BEGIN),
                        name_iid: Some(self.point_name(names, point)?),
                        track_uuid: Some(track),
                        ..TrackEvent::default()
                    };
                    self.event_at(at_ns, event)?;
                }
                Step::Value(at_ns) if point.kind == PointKind::Counter => {
                    self.point_counter(names, track, at_ns, point)?;
                }
                Step::Value(at_ns) => {
                    let mut text = Vec::new();
                    if let Some(name) = names.point(point.source, point.point) {
                        name.print(point, &mut text);
                    }
                    let event = TrackEvent {
                        debug_annotations: Self::said_of_wave(names, point),
                        r#type: Some(INSTANT),
                        name: Some(String::from_utf8_lossy(&text).into_owned()),
                        track_uuid: Some(track),
                        ..TrackEvent::default()
                    };
                    self.event_at(at_ns, event)?;
                }
            }
        }
        Ok(())
    }

    fn said_of_wave(names: &Names, point: &Point) -> Vec<DebugAnnotation> {
        let mut said = Vec::with_capacity(5);
        if let Some(launch) = names.launch(point.launch) {
            said.extend([number(LAUNCH, point.launch), text(KERNEL, &launch.kernel)]);
        }
        said.extend([number(WORKGROUP, point.workgroup.into()), number(WAVE, point.wave.into())]);
        said.push(number(LANES, point.lanes.into()));
        said
    }

    fn point_counter(&mut self, names: &Names, parent: u64, at_ns: u64, point: &Point) -> io::Result<()> {
        let Some(name) = names.point(point.source, point.point) else { return Ok(()) };
        let key = (point.source, point.slot, point.point);
        let track = match self.counters.get(&key) {
            Some(track) => *track,
            None if self.counters.len() >= MOST_COUNTERS => return Ok(()),
            None => {
                let uuid = self.track_ids.next();
                self.describe(TrackDescriptor {
                    uuid: Some(uuid),
                    name: Some(name.text.to_string()),
                    parent_uuid: Some(parent),
                    counter: Some(CounterDescriptor { unit_name: None }),
                    sibling_merge_behavior: Some(MERGE_NONE),
                    ..TrackDescriptor::default()
                })?;
                self.counters.insert(key, uuid);
                uuid
            }
        };
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(track),
            double_counter_value: Some(name.value(point)),
            ..TrackEvent::default()
        };
        self.event_at(at_ns, event)
    }

    fn launch(&mut self, names: &Names, number_of: u64, end: Option<(u64, bool)>) -> io::Result<()> {
        let Some(launch) = names.launch(number_of) else { return Ok(()) };
        let process = self.source(names, launch.source)?.process;
        // What has not ended is never followed on its track.
        let end_ns = end.map_or(u64::MAX, |(at_ns, _)| at_ns).max(launch.began_ns);
        let mut none = Tracks::new(0);
        let of_source = group(&mut self.launches, (launch.source, 0), MOST_SOURCES, LAUNCH_TRACKS, &mut none);
        let (track, is_new) = of_source.place(&mut self.track_ids, launch.began_ns, end_ns);
        if is_new {
            self.track(track, process, "launches".to_owned())?;
        }
        let mut said = vec![number(LAUNCH, number_of)];
        if let Some((_, true)) = end {
            said.push(text(STATUS, "cancelled"));
        }
        let begin = TrackEvent {
            debug_annotations: said,
            r#type: Some(SLICE_BEGIN),
            name: Some(launch.kernel.to_string()),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        self.event_at(launch.began_ns, begin)?;
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
            Event::LaunchEnded { launch, at_ns, cancelled } => {
                self.launch(names, *launch, Some((*at_ns, *cancelled)))
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
        if !self.has_begun {
            self.has_begun = true;
            self.begin()?;
        }
        self.write()
    }
}
