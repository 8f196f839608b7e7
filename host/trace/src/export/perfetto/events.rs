//! Packets with events of tracks. Nearly all packets of a trace are such ones: their fields are put where they go, with lengths
//! that are known before, and nothing is allocated. What they are is `perfetto_trace.proto`'s; the numbers of fields below are
//! those of its messages.

use super::messages::NEEDS_STATE;

pub(super) const SLICE_BEGIN: u8 = 1;
pub(super) const SLICE_END: u8 = 2;
pub(super) const INSTANT: u8 = 3;
pub(super) const COUNTER: u8 = 4;

/// A field's key: its number, and how its value lies there.
const fn varint_key(number: u32) -> u32 {
    number << 3
}

const fn fixed_key(number: u32) -> u32 {
    number << 3 | 1
}

const fn bytes_key(number: u32) -> u32 {
    number << 3 | 2
}

/// `Trace.packet`.
pub(super) const PACKET: u32 = bytes_key(1);

mod packet {
    use super::{bytes_key, varint_key};
    pub const TIMESTAMP: u32 = varint_key(8);
    pub const SEQUENCE_ID: u32 = varint_key(10);
    pub const TRACK_EVENT: u32 = bytes_key(11);
    pub const SEQUENCE_FLAGS: u32 = varint_key(13);
}

mod event {
    use super::{bytes_key, fixed_key, varint_key};
    pub const ANNOTATION: u32 = bytes_key(4);
    pub const TYPE: u32 = varint_key(9);
    pub const NAME_IID: u32 = varint_key(10);
    pub const TRACK: u32 = varint_key(11);
    pub const NAME: u32 = bytes_key(23);
    pub const COUNTER_VALUE: u32 = varint_key(30);
    pub const DOUBLE_COUNTER_VALUE: u32 = fixed_key(44);
    pub const FLOW: u32 = fixed_key(47);
    pub const TERMINATING_FLOW: u32 = fixed_key(48);
}

mod annotation {
    use super::{bytes_key, varint_key};
    pub const NAME_IID: u32 = varint_key(1);
    pub const UINT_VALUE: u32 = varint_key(3);
    pub const STRING_VALUE: u32 = bytes_key(6);
}

/// What a counter has become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CounterValue {
    Whole(i64),
    Double(f64),
}

/// An event of a track.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TrackEvent<'a> {
    /// `TrackEvent.Type`.
    pub kind: u8,
    pub track: u64,
    /// The number of its name, if that is interned.
    pub name_iid: Option<u64>,
    /// Else the name itself.
    pub name: Option<&'a str>,
    pub counter: Option<CounterValue>,
    /// The flow that begins there.
    pub flow: Option<u64>,
    /// The flow that ends there.
    pub ended_flow: Option<u64>,
}

/// What is said of an event, encoded.
#[derive(Default)]
pub(super) struct Annotations(Vec<u8>);

impl Annotations {
    /// Forgets what was said.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Says a number. `name` is the number of an interned name.
    pub fn number(&mut self, name: u64, value: u64) {
        put(&mut self.0, event::ANNOTATION.into());
        put(&mut self.0, field_len(annotation::NAME_IID, name) + field_len(annotation::UINT_VALUE, value));
        put_field(&mut self.0, annotation::NAME_IID, name);
        put_field(&mut self.0, annotation::UINT_VALUE, value);
    }

    /// Says a text.
    pub fn text(&mut self, name: u64, value: &str) {
        let bytes = value.len() as u64;
        let text = field_len(annotation::STRING_VALUE, bytes) + bytes;
        put(&mut self.0, event::ANNOTATION.into());
        put(&mut self.0, field_len(annotation::NAME_IID, name) + text);
        put_field(&mut self.0, annotation::NAME_IID, name);
        put_field(&mut self.0, annotation::STRING_VALUE, bytes);
        self.0.extend_from_slice(value.as_bytes());
    }
}

/// Appends a packet with an event, of which so much is said.
pub(super) fn put_event(
    sequence: u32,
    at_ns: u64,
    event: &TrackEvent<'_>,
    said: &Annotations,
    to: &mut Vec<u8>,
) {
    let TrackEvent { kind, track, name_iid, name, counter, flow, ended_flow } = *event;
    const FIXED_BYTES: u64 = 8;
    let mut event_bytes = said.0.len() as u64 + field_len(event::TYPE, kind.into());
    event_bytes += field_len(event::TRACK, track);
    event_bytes += name_iid.map_or(0, |iid| field_len(event::NAME_IID, iid));
    event_bytes += name.map_or(0, |name| field_len(event::NAME, name.len() as u64) + name.len() as u64);
    event_bytes += match counter {
        Some(CounterValue::Whole(value)) => field_len(event::COUNTER_VALUE, value as u64),
        Some(CounterValue::Double(_)) => len(event::DOUBLE_COUNTER_VALUE.into()) + FIXED_BYTES,
        None => 0,
    };
    event_bytes += flow.map_or(0, |_| len(event::FLOW.into()) + FIXED_BYTES);
    event_bytes += ended_flow.map_or(0, |_| len(event::TERMINATING_FLOW.into()) + FIXED_BYTES);
    let packet_bytes = field_len(packet::TIMESTAMP, at_ns)
        + field_len(packet::SEQUENCE_ID, sequence.into())
        + field_len(packet::TRACK_EVENT, event_bytes)
        + event_bytes
        + field_len(packet::SEQUENCE_FLAGS, NEEDS_STATE.into());
    put_field(to, PACKET, packet_bytes);
    put_field(to, packet::TIMESTAMP, at_ns);
    put_field(to, packet::SEQUENCE_ID, sequence.into());
    put_field(to, packet::TRACK_EVENT, event_bytes);
    to.extend_from_slice(&said.0);
    put_field(to, event::TYPE, kind.into());
    if let Some(iid) = name_iid {
        put_field(to, event::NAME_IID, iid);
    }
    put_field(to, event::TRACK, track);
    if let Some(name) = name {
        put_field(to, event::NAME, name.len() as u64);
        to.extend_from_slice(name.as_bytes());
    }
    match counter {
        Some(CounterValue::Whole(value)) => put_field(to, event::COUNTER_VALUE, value as u64),
        Some(CounterValue::Double(value)) => put_fixed(to, event::DOUBLE_COUNTER_VALUE, value.to_bits()),
        None => {}
    }
    if let Some(flow) = flow {
        put_fixed(to, event::FLOW, flow);
    }
    if let Some(flow) = ended_flow {
        put_fixed(to, event::TERMINATING_FLOW, flow);
    }
    put_field(to, packet::SEQUENCE_FLAGS, NEEDS_STATE.into());
}

/// Bytes of a varint: seven bits in each.
#[inline(always)]
const fn len(value: u64) -> u64 {
    // 1 + floor(log2 / 7), without a division.
    ((value | 1).ilog2() as u64 * 9 + 73) / 64
}

/// Bytes of a field whose value is a varint; of others, of what is before the value.
#[inline(always)]
const fn field_len(key: u32, value: u64) -> u64 {
    len(key as u64) + len(value)
}

#[inline(always)]
fn put_field(to: &mut Vec<u8>, key: u32, value: u64) {
    put(to, key.into());
    put(to, value);
}

#[inline(always)]
fn put_fixed(to: &mut Vec<u8>, key: u32, value: u64) {
    put(to, key.into());
    to.extend_from_slice(&value.to_le_bytes());
}

/// Appends a varint.
#[inline(always)]
fn put(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::super::messages::SEQUENCE;
    use super::*;
    use proptest::prelude::*;
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        packet: Vec<Packet>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Packet {
        #[prost(uint64, optional, tag = "8")]
        timestamp: Option<u64>,
        #[prost(uint32, optional, tag = "10")]
        trusted_packet_sequence_id: Option<u32>,
        #[prost(message, optional, tag = "11")]
        track_event: Option<Event>,
        #[prost(uint32, optional, tag = "13")]
        sequence_flags: Option<u32>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Event {
        #[prost(message, repeated, tag = "4")]
        debug_annotations: Vec<Annotation>,
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
    struct Annotation {
        #[prost(uint64, optional, tag = "1")]
        name_iid: Option<u64>,
        #[prost(uint64, optional, tag = "3")]
        uint_value: Option<u64>,
        #[prost(string, optional, tag = "6")]
        string_value: Option<String>,
    }

    #[test]
    fn lengths_are_those_of_varints() {
        for bit in 0..64 {
            for value in [(1u64 << bit) - 1, 1 << bit] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                assert_eq!(len(value), bytes.len() as u64, "{value}");
            }
        }
    }

    fn number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift)
    }

    proptest! {
        #[test]
        fn packets_are_what_another_encoder_makes(
            at_ns in number(),
            kind in 1u8..5,
            track in number(),
            name_iid in proptest::option::of(number()),
            name in proptest::option::of(".{0,200}"),
            value in proptest::option::of((any::<bool>(), number())),
            flows in (proptest::option::of(number()), proptest::option::of(number())),
            numbers in proptest::collection::vec((1u64..1000, number()), 0..6),
            texts in proptest::collection::vec((1u64..10, ".{0,150}"), 0..3),
        ) {
            let mut said = Annotations::default();
            said.number(1, 2);
            said.clear();
            numbers.iter().for_each(|(name, value)| said.number(*name, *value));
            texts.iter().for_each(|(name, value)| said.text(*name, value));
            let counter = value.map(|(is_whole, bits)| match is_whole {
                true => CounterValue::Whole(bits as i64),
                false => CounterValue::Double(bits as f64),
            });
            let (flow, ended_flow) = flows;
            let event = TrackEvent { kind, track, name_iid, name: name.as_deref(), counter, flow, ended_flow };
            let mut encoded = Vec::new();
            put_event(SEQUENCE, at_ns, &event, &said, &mut encoded);

            let numbers = numbers.iter().map(|(name, value)| Annotation {
                name_iid: Some(*name), uint_value: Some(*value), string_value: None
            });
            let texts = texts.iter().map(|(name, value)| Annotation {
                name_iid: Some(*name), uint_value: None, string_value: Some(value.clone())
            });
            let track_event = Event {
                debug_annotations: numbers.chain(texts).collect(),
                r#type: Some(kind.into()),
                name_iid,
                track_uuid: Some(track),
                name: name.clone(),
                counter_value: match counter { Some(CounterValue::Whole(value)) => Some(value), _ => None },
                double_counter_value: match counter { Some(CounterValue::Double(value)) => Some(value), _ => None },
                flow_ids: flow.into_iter().collect(),
                terminating_flow_ids: ended_flow.into_iter().collect(),
            };
            let packet = Packet {
                timestamp: Some(at_ns),
                trusted_packet_sequence_id: Some(SEQUENCE),
                track_event: Some(track_event),
                sequence_flags: Some(NEEDS_STATE),
            };
            prop_assert_eq!(encoded, Trace { packet: vec![packet] }.encode_to_vec());
        }
    }
}
