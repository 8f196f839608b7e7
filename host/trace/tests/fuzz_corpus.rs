//! Runs the fuzz target's corpus, and traces that were changed at random, as an ordinary test.
#![cfg(feature = "export")]

use hostcall_abi::launch::LaunchId;
use hostcall_abi::record::{Field, Number, Type};
use hostcall_abi::trace::{PointHead, owner};
use hostcall_locks::Mutex;
use hostcall_trace::{
    Call, Descriptor, Ending, Page, PointKind, Points, PointsPage, Reader, Status, StreamFile, StreamTotals,
    Tracer, Waiting,
};
use proptest::prelude::*;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

#[path = "fuzz/trace_file.rs"]
mod trace_file;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A trace with calls, posts, launches, a call that waits, trace points and clocks.
fn calls() -> Vec<u8> {
    let file = Memory::default();
    let tracer = Tracer::builder().writer(file.clone()).start().unwrap();
    let (source, launch) = (tracer.source("cpu", "hostcall"), LaunchId::new(1, 1));
    source.launch_began(launch, &"search".into(), [2, 1, 1]);
    for at in 0..8 {
        let call = Call { slot: at as u32 % 3, handler_ended_ns: at + 5, replied_ns: at + 9, ..Call::at(at) };
        let call = if at == 4 { Call { failed_lanes: 1, status: Status(3), ..call } } else { call };
        source.call(["Shop::price", "exit"][at as usize % 2], 300, launch, call);
    }
    source.posts("Log::line", 301, 17);
    source.waiting(launch, Waiting { at_ns: 7, slot: 3, method: "Shop::sold".into(), ..Waiting::default() });
    let points = Points::new(source.clone(), Arc::default());
    points.compare_clocks(1000, source.now_ns(), 1002);
    let number = |kind, tags, text| points.register(kind, tags, 5, 1000, "kernel.rs", text).unwrap();
    let [span, counter, event] = [
        number(PointKind::Begin, 0, "step"),
        number(PointKind::Counter, 3, "change"),
        number(PointKind::Event, 3, "settled after {} steps"),
    ];
    let head = |kind, point, words| PointHead { kind, point, words, lanes: 3, first_lane: 1 }.of_wave(0);
    let owner = owner(launch.to_bits(), 1);
    let words = [
        [1010, head(PointKind::Begin, span, 0), owner, 0].to_vec(),
        [1011, head(PointKind::Counter, counter, 1), owner, 7].to_vec(),
        [1012, head(PointKind::Event, event, 1), owner, 9].to_vec(),
        [1020, head(PointKind::End, span, 1), owner, 1010].to_vec(),
    ]
    .concat();
    points.page(&PointsPage { slot: 2, dropped: 3, words: &words }, |_| Some(true));
    source.launch_ended(launch, Ending::CANCELLED);
    assert_eq!(tracer.finish(Duration::from_secs(60)).calls, 8);
    file.0.lock().clone()
}

/// A trace of a stream of records, which it describes.
fn records() -> Vec<u8> {
    const FLOAT: Type = Type::Number(Number::F64);
    const WORD: Type = Type::Number(Number::U32);
    const FIELDS: &[Field] = &[
        Field { name: "x", unit: "mm", offset_bytes: 0, ty: &FLOAT },
        Field {
            name: "lanes",
            unit: "",
            offset_bytes: 8,
            ty: &Type::Array { of: &WORD, stride_bytes: 4, count: 2 },
        },
    ];
    let ty = Type::Struct { name: "Sample", format: "{x} of {lanes.1}", fields: FIELDS };
    let file = Memory::default();
    let mut streams = StreamFile::new(file.clone()).unwrap();
    let stream = streams.stream("samples", 16, 99, "block", Descriptor::of(&ty).as_ref()).unwrap();
    for sequence in 0..3 {
        let bytes = (0..48).map(|i| i * 5 + sequence as u8).collect();
        streams.page(&Page { stream, sequence, dropped_before: 4, bytes, ..Page::default() }).unwrap();
    }
    streams.end_stream(stream, &StreamTotals { pages: 3, ..StreamTotals::default() }).unwrap();
    streams.finish().unwrap();
    file.0.lock().clone()
}

static TRACES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [calls(), records()]);

#[test]
fn the_corpus_passes() {
    let corpus =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/trace_file")).unwrap();
    for input in corpus {
        let path = input.unwrap().path();
        println!("{}", path.display());
        trace_file::run(&std::fs::read(path).unwrap());
    }
}

#[test]
fn checksums_are_made_right() {
    for trace in &*TRACES {
        let expected = Reader::new(&trace[..]).unwrap().count();
        let mut changed = trace.clone();
        let at = changed.windows(4).position(|window| window == b"HcBk").unwrap();
        changed[at + 36] ^= 0xff;
        changed[32] ^= 1;
        trace_file::mend(&mut changed);
        assert!(changed == *trace && expected > 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_traces_pass(
        is_records in any::<bool>(),
        how in 0..16u8,
        cut in any::<u16>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut trace = TRACES[usize::from(is_records)].clone();
        for (at, byte) in changes {
            let at = at.index(trace.len());
            trace[at] = byte;
        }
        let [low, high] = cut.to_le_bytes();
        trace.splice(..0, [how, low, high]);
        trace_file::run(&trace);
    }
}
