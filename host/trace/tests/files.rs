//! Traces are written and read again: whole, cut, damaged, and when writing fails.

use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_trace::{
    Call, Ending, Event, Flush, Follower, Names, OpenError, Reader, Status, StreamFile, Totals, Tracer,
    Waiting,
};
use proptest::prelude::*;
use std::io::{self, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A file in memory that takes so many bytes.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    most: usize,
}

impl Memory {
    fn new(most: usize) -> Self {
        Self { bytes: Arc::default(), most }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.bytes.lock();
        let room = self.most.saturating_sub(file.len());
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(room);
        file.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records two launches' calls and posts, in several blocks.
fn record(tracer: &Tracer, calls: u64) {
    let [first, second] = ["cpu", "cuda:0"].map(|device| tracer.source(device, "hostcall"));
    for (source, index) in [(&first, 1), (&second, 2)] {
        let launch = LaunchId::new(index, 1);
        source.launch_began(launch, &format!("kernel {index}").into(), [index, 2, 3]);
        for number in 0..calls {
            let at = Call { lanes: 32, slot: number as u32, workgroup: 7, wave: 1, ..Call::at(number + 1) };
            let call = Call { replied_ns: 2 * number + 1, failed_lanes: 1, status: Status(3), ..at };
            source.call("Inventory::lookup", 300, launch, call);
        }
        source.posts("Log::line", 301, 17);
        source.launch_ended(launch, if index == 2 { Ending::PANICKED } else { Ending::OK });
    }
}

fn trace(calls: u64) -> Vec<u8> {
    let file = Memory::new(usize::MAX);
    let tracer = Tracer::builder().writer(file.clone()).start().unwrap();
    record(&tracer, calls);
    let summary = tracer.finish(LONG);
    assert_eq!((summary.calls, summary.posts, summary.lost()), (2 * calls, 34, None));
    file.bytes()
}

/// Reads a trace to its end. Returns also whether that is the trace's.
fn read(bytes: &[u8]) -> (Vec<Event>, bool) {
    let mut reader = Reader::new(bytes).unwrap();
    let events = reader.by_ref().map(|event| event.expect("memory is read without errors")).collect();
    (events, reader.is_complete())
}

fn calls(events: &[Event]) -> Vec<Call> {
    events.iter().filter_map(|event| if let Event::Call(call) = event { Some(*call) } else { None }).collect()
}

#[test]
fn what_is_recorded_is_read() {
    let bytes = trace(20_000);
    let reader = Reader::new(&bytes[..]).unwrap();
    assert!(reader.header().began_unix_ns > 0 && reader.header().fields.contains("picked_up_ns u64"));
    let (events, is_complete) = read(&bytes);
    assert!(is_complete);
    let mut names = Names::default();
    let (mut seen, mut posts, mut panicked) = (0, 0, 0);
    for event in &events {
        names.note(event);
        match event {
            Event::Call(call) => {
                let launch = names.launch(call.launch).unwrap();
                let index = u32::from(call.source) + 1;
                assert_eq!(
                    (&*launch.kernel, launch.workgroups),
                    (&*format!("kernel {index}"), [index, 2, 3])
                );
                let method = names.method(call.method).unwrap();
                assert_eq!((method.service(), method.method(), method.number), ("Inventory", "lookup", 300));
                assert_eq!((call.lanes, call.failed_lanes, call.status.name()), (32, 1, "panicked"));
                assert_eq!(call.slot, seen % 20_000);
                seen += 1;
            }
            Event::Posts(some) => posts += some.count,
            Event::LaunchEnded { ending, .. } => panicked += u32::from(*ending == Ending::PANICKED),
            Event::Damaged(_) | Event::Missing(_) | Event::Dropped(_) => panic!("{event:?}"),
            _ => {}
        }
    }
    assert_eq!((seen, posts, panicked, names.launches_begun()), (40_000, 34, 1, 2));
    assert_eq!(names.source(1), Some(("cuda:0", "hostcall")));
    let ended = events.last().unwrap();
    assert!(matches!(ended, Event::Ended(Totals { calls: 40_000, dropped_calls: 0, .. })), "{ended:?}");
}

#[test]
fn a_cut_trace_is_read_up_to_the_cut() {
    let bytes = trace(2_000);
    let (whole, _) = read(&bytes);
    let mut known = 0;
    for len in 0..bytes.len() {
        // Every byte of headers and ends, and some of the calls.
        if (1000..bytes.len() - 1000).contains(&len) && !len.is_multiple_of(997) {
            continue;
        }
        match Reader::new(&bytes[..len]) {
            Err(OpenError::NotATrace) => assert_eq!(len, 0),
            Err(OpenError::Cut) => assert!(len < 36),
            Err(error) => panic!("{len}: {error}"),
            Ok(_) => {
                let (events, is_complete) = read(&bytes[..len]);
                assert!(!is_complete && whole.starts_with(&events) && events.len() >= known, "{len}");
                known = events.len();
            }
        }
    }
    // All but the end.
    assert_eq!(known, whole.len() - 1);
}

/// The offsets at which a whole trace's header ends, and each of its blocks.
fn ends_of_blocks(trace: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_le_bytes(*trace[at..].first_chunk().unwrap()) as usize;
    // The header says how long its text is, a block how long its payload is.
    let mut ends = vec![36 + number(20)];
    while let Some(&at) = ends.last().filter(|at| **at < trace.len()) {
        assert_eq!(&trace[at..at + 4], b"HcBk");
        ends.push(at + 40 + number(at + 8));
    }
    ends
}

#[test]
fn a_trace_cut_at_any_byte_has_all_blocks_before_the_cut() {
    let bytes = trace(20);
    let (whole, _) = read(&bytes);
    let ends = ends_of_blocks(&bytes);
    assert!(ends.len() > 4 && ends.last() == Some(&bytes.len()), "{ends:?}");
    let mut before = 0;
    for len in 0..bytes.len() {
        if Reader::new(&bytes[..len]).is_err() {
            assert!(len < ends[0], "a trace that is cut at {len} bytes is not read");
            continue;
        }
        let (events, is_complete) = read(&bytes[..len]);
        assert!(!is_complete && whole.starts_with(&events), "{len}");
        if ends[1..].contains(&len) {
            assert!(events.len() > before, "the block that ends at {len} is not read");
            before = events.len();
        }
        // Nothing of a block is read that is not whole.
        assert_eq!(events.len(), before, "{len}");
    }
    assert_eq!(before, whole.len() - 1, "all but the end");
}

#[test]
fn damage_costs_blocks_and_is_told_of() {
    let mut bytes = trace(20_000);
    let (whole, _) = read(&bytes);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let (events, is_complete) = read(&bytes);
    assert!(is_complete);
    let damaged =
        events.iter().find_map(|event| if let Event::Damaged(it) = event { Some(*it) } else { None });
    let lost = calls(&whole).len() - calls(&events).len();
    assert_eq!(damaged, Some(lost as u64 * 80 + 40));
    assert!(events.contains(&Event::Missing(1)));
}

#[test]
fn what_is_no_trace_is_refused() {
    let refused = |bytes: &[u8]| Reader::new(bytes).err().map(|error| error.to_string()).unwrap();
    assert_eq!(refused(b""), "it is no trace of hostcall");
    assert_eq!(refused(&[7; 100]), "it is no trace of hostcall");
    assert_eq!(refused(&trace(1)[..30]), "it was cut within its first 36 bytes");
    let mut bytes = trace(1);
    bytes[20] ^= 1;
    assert_eq!(refused(&bytes), "its header is damaged");
}

#[test]
fn a_file_that_fails_stops_nobody_and_is_told_of() {
    let file = Memory::new(1_000_000);
    let tracer = Tracer::builder().writer(file.clone()).start().unwrap();
    record(&tracer, 20_000);
    let summary = tracer.finish(LONG);
    let written = calls(&read(&file.bytes()).0).len() as u64;
    assert_eq!((summary.calls, summary.unwritten_calls, summary.is_whole), (40_000, 40_000 - written, false));
    let sentence = summary.lost().unwrap();
    assert!(sentence.contains("the trace was not written to its end (no storage space): "), "{sentence}");
    assert_eq!(summary.latencies.method(1).unwrap().calls(), 40_000);
    // What comes after the end is not recorded, and does not wait either.
    record(&tracer, 10);
}

/// Set for the process that drops a tracer.
const CHILD: &str = "HOSTCALL_TEST_DROPS_A_TRACER";

#[test]
fn a_dropped_tracer_says_what_it_lost() {
    if let Some(asks) = std::env::var_os(CHILD) {
        let tracer = Tracer::builder().writer(Memory::new(1000)).start().unwrap();
        record(&tracer, 100);
        if asks == "1" {
            tracer.finish(LONG);
        }
        return;
    }
    let run = |asks| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "a_dropped_tracer_says_what_it_lost", "--nocapture"]).env(CHILD, asks);
        String::from_utf8(child.output().unwrap().stderr).unwrap()
    };
    let said = run("0");
    let sentence = "hostcall: a tracer was dropped without `finish`: the trace was not written to its end (no storage space)";
    assert!(said.contains(sentence), "{said}");
    let said = run("1");
    assert!(!said.contains("hostcall: "), "{said}");
}

#[test]
fn a_file_that_takes_nothing_drops_calls_and_does_not_hold_up_the_end() {
    struct Never(std::sync::mpsc::Receiver<()>, bool);

    impl Write for Never {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.1, true) {
                let _ = self.0.recv();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let (release, waits) = std::sync::mpsc::channel();
    let tracer = Tracer::builder().writer(Never(waits, false)).queue_calls(100).start().unwrap();
    record(&tracer, 10_000);
    let summary = tracer.finish(Duration::from_millis(100));
    assert!(!summary.is_whole && summary.dropped_calls >= 20_000 - 200, "{summary:?}");
    assert!(summary.lost().unwrap().contains("not written in time"));
    drop(release);
    let summary = tracer.finish(LONG);
    assert!(summary.is_whole);
    assert_eq!(summary.calls + summary.dropped_calls, 20_000);
}

/// Whoever asked for the end has waited for it as long as they like: the drop begins no second end, which would wait too.
#[test]
fn a_tracer_ends_once() {
    struct Ends(AtomicUsize);
    impl Flush for Ends {
        fn flush(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for is_asked in [true, false] {
        let ends = Arc::new(Ends(AtomicUsize::new(0)));
        let tracer = Tracer::builder().writer(Memory::new(usize::MAX)).start().unwrap();
        if is_asked {
            assert!(tracer.finish(LONG).is_whole);
        }
        let flush: Weak<Ends> = Arc::downgrade(&ends);
        tracer.flush_before_end(flush);
        drop(tracer);
        assert_eq!(ends.0.load(Ordering::Relaxed), usize::from(!is_asked));
    }
}

#[test]
fn dropped_calls_are_in_the_file() {
    let file = Memory::new(usize::MAX);
    let tracer = Tracer::builder().writer(file.clone()).queue_calls(10).start().unwrap();
    let source = tracer.source("cpu", "hostcall");
    // Faster than any thread takes them.
    (0..100_000).for_each(|at| source.call("A::b", 1, LaunchId::NONE, Call::at(at)));
    let summary = tracer.finish(LONG);
    let (events, _) = read(&file.bytes());
    let dropped: u64 =
        events.iter().filter_map(|it| if let Event::Dropped(n) = it { Some(*n) } else { None }).sum();
    assert_eq!((calls(&events).len() as u64, dropped), (summary.calls, summary.dropped_calls));
    assert!(summary.dropped_calls > 0 && summary.calls + dropped == 100_000);
}

fn small() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| trace(300))
}

proptest! {
    /// Whatever is in a file, reading it ends, and gives no more records than it has bytes.
    #[test]
    fn garbage_is_read_to_its_end(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<prop::sample::Index>(),
        garbage in prop::collection::vec(any::<u8>(), 0..2000),
        at in any::<prop::sample::Index>(),
        has_header in any::<bool>(),
    ) {
        let mut bytes = small().to_vec();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let at = at.index(bytes.len());
        bytes.splice(at..at, garbage);
        if has_header {
            bytes.splice(..bytes.len().min(36), small()[..36].iter().copied());
        }
        if let Ok(reader) = Reader::new(&bytes[..]) {
            let mut names = Names::default();
            let mut count = 0;
            for event in reader {
                names.note(&event.expect("memory is read without errors"));
                count += 1;
            }
            prop_assert!(count <= bytes.len());
        }
    }
}

#[test]
fn a_file_that_grows_is_followed() {
    // What a tracer has written, a piece at a time.
    let whole = {
        let file = Memory::new(usize::MAX);
        let tracer = Tracer::builder().writer(file.clone()).start().unwrap();
        let source = tracer.source("cpu", "hostcall");
        for at in 0..100 {
            source.call("Shop::price", 300, LaunchId::NONE, Call::at(at));
        }
        source.waiting(
            LaunchId::NONE,
            Waiting { at_ns: 7, slot: 3, method: "Shop::sold".into(), ..Waiting::default() },
        );
        tracer.finish(Duration::from_secs(10));
        file.bytes()
    };
    let expected: Vec<Event> = Reader::new(&whole[..]).unwrap().map(Result::unwrap).collect();
    assert!(expected.iter().any(|event| matches!(event, Event::Waiting(waiting) if waiting.slot == 3
        && &*waiting.method == "Shop::sold" && waiting.place.is_none())));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grows.trace");
    let mut grows = std::fs::File::create(&path).unwrap();
    let header_bytes = whole.windows(4).position(|window| window == b"HcBk").unwrap();
    grows.write_all(&whole[..header_bytes]).unwrap();
    let mut follower = Follower::new(Reader::new(std::fs::File::open(&path).unwrap()).unwrap());
    let mut seen = Vec::new();
    for piece in whole[header_bytes..].chunks(97) {
        while let Some(event) = follower.next_within(Duration::ZERO).unwrap() {
            seen.push(event);
        }
        assert!(!follower.is_complete());
        grows.write_all(piece).unwrap();
        seen.extend(follower.next_within(Duration::from_millis(1)).unwrap());
    }
    while let Some(event) = follower.next_within(Duration::from_secs(10)).unwrap() {
        seen.push(event);
    }
    assert!(follower.is_complete());
    assert_eq!(seen, expected);
}

#[test]
fn a_file_is_of_one_recording_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let taken = format!(
        "cannot write the trace {}: another recording writes it: end that one first, or choose another file",
        path.display()
    );
    let tracer = Tracer::builder().file(&path).unwrap().start().unwrap();
    let header = std::fs::metadata(&path).unwrap().len();
    assert_eq!(Tracer::builder().file(&path).err().unwrap().to_string(), taken);
    assert_eq!(StreamFile::create(&path).err().unwrap().to_string(), taken);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), header, "the file is as it was");
    record(&tracer, 3);
    assert!(tracer.finish(LONG).is_whole);
    // From then on it may be written over, also while there is the tracer.
    for _ in 0..100 {
        StreamFile::create(&path).unwrap().finish().unwrap();
        let tracer = Tracer::builder().file(&path).unwrap().start().unwrap();
        assert!(tracer.finish(LONG).is_whole);
    }
    // What is no file has any number of writers.
    let _null = [(); 2].map(|()| Tracer::builder().file("/dev/null").unwrap());
}
