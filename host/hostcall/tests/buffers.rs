//! Buffers and streams on the software device: order, parts, copies, fills, host functions, events, and what is refused.

use hostcall::device::{
    BoundsError, Error, LaunchFailure, LaunchRefused, SoftwareDeviceConfig, software_backend,
};
use hostcall::hostcall_device::{Global, Lane, Plain, kernel};
use hostcall::{Device, DeviceBuffer, Grid, Hostcall, LaunchKernel};
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Waits until `gate` opens, then adds `add` to every value.
#[kernel]
fn add_after(lane: &Lane, gate: &Global<u32>, values: &[Global<u32>], add: u32) {
    while gate.get() == 0 {
        lane.pause();
    }
    let value = &values[lane.global_id()];
    value.set(value.get() + add);
}

/// Waits until `gate` opens, then copies plainly.
#[kernel]
fn copy_after(lane: &Lane, gate: &Global<u32>, from: &[u32], to: &[Global<u32>]) {
    while gate.get() == 0 {
        lane.pause();
    }
    to[lane.global_id()].set(from[lane.global_id()]);
}

#[kernel]
fn both(lane: &Lane, plain: &[u64], shared: &[Global<u64>]) {
    shared[lane.global_id()].set(plain[lane.global_id()]);
}

#[kernel]
fn count(_: &Lane, all: &[AtomicU64], one: &AtomicU64) {
    all[0].fetch_add(1, Ordering::Relaxed);
    one.fetch_add(1, Ordering::Relaxed);
}

#[kernel]
fn first(_: &Lane, value: &u32, out: &Global<u32>) {
    out.set(*value);
}

#[kernel]
fn ask(_: &Lane, closure: hostcall::hostcall_device::HostcallRef<u32, u32>, out: &Global<u32>) {
    out.set(closure.call(1).unwrap_or(99));
}

#[kernel]
fn fail(_: &Lane) {
    panic!("on purpose");
}

fn cpu() -> Device {
    Device::open("cpu").unwrap()
}

#[test]
fn a_stream_keeps_copies_fills_kernels_and_host_functions_in_order() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let gate = device.upload(&[1u32]).unwrap();
    let values = device.alloc_zeroed::<u32>(8).unwrap();
    let other = device.alloc_zeroed::<u32>(8).unwrap();
    stream.fill(&values, 5).unwrap();
    stream.write(&values.part(2..4).unwrap(), &[10, 20]).unwrap();
    add_after.launch(&stream, Grid::new(1, 8), (&gate, &values, 1u32)).unwrap();
    stream.copy(&other, &values).unwrap();
    stream.fill(&values, 0x0102_0304).unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let told = seen.clone();
    stream.host_function(move || told.store(7, Ordering::Relaxed)).unwrap();
    let read = stream.read(&other.part(1..).unwrap()).unwrap();
    assert_eq!(read.wait().unwrap(), [6, 11, 21, 6, 6, 6, 6]);
    assert_eq!(seen.load(Ordering::Relaxed), 7);
    assert_eq!(values.read().unwrap(), [0x0102_0304; 8]);
    stream.synchronize().unwrap();
    // Patterns that no fill of the device has.
    let wide = device.alloc_zeroed::<[u64; 2]>(3).unwrap();
    stream.fill(&wide, [1, 2]).unwrap();
    assert_eq!(wide.read().unwrap(), [[1, 2]; 3]);
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
struct Empty {}

#[test]
fn values_without_bytes_are_counted() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let values = device.alloc_zeroed::<Empty>(5).unwrap();
    assert_eq!(values.read().unwrap(), [Empty {}; 5]);
    assert_eq!(stream.read(&values.part(1..3).unwrap()).unwrap().wait().unwrap(), [Empty {}; 2]);
}

#[derive(Plain)]
#[repr(C)]
struct Bin<T> {
    count: Global<u32>,
    sums: [Global<T>; 2],
    hits: AtomicU32,
}

impl Bin<f32> {
    fn new(number: u32, sum: f32) -> Self {
        Self {
            count: Global::new(number),
            sums: [sum, -sum].map(Global::new),
            hits: AtomicU32::new(number + 1),
        }
    }

    fn numbers(&self) -> (u32, [f32; 2], u32) {
        let [a, b] = &self.sums;
        (self.count.get(), [a.get(), b.get()], self.hits.load(Ordering::Relaxed))
    }
}

/// Values with cells go where others go, though they are not `Copy`.
#[test]
fn cells_are_uploaded_written_filled_and_kept_by_graphs() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let numbers = |buffer: &DeviceBuffer<Bin<f32>>| -> Vec<_> {
        buffer.read().unwrap().iter().map(Bin::numbers).collect()
    };
    let bins = device.upload(&[Bin::new(1, 0.5), Bin::new(2, 1.5)]).unwrap();
    assert_eq!(numbers(&bins), [(1, [0.5, -0.5], 2), (2, [1.5, -1.5], 3)]);
    bins.part(1..).unwrap().write(&[Bin::new(7, 2.0)]).unwrap();
    stream.write(&bins.part(..1).unwrap(), &[Bin::new(8, 3.0)]).unwrap();
    assert_eq!(numbers(&bins), [(8, [3.0, -3.0], 9), (7, [2.0, -2.0], 8)]);
    stream.fill(&bins, Bin::new(9, 4.0)).unwrap();
    assert_eq!(numbers(&bins), [(9, [4.0, -4.0], 10); 2]);
    let mut graph = hostcall::graph::Graph::new(&device);
    let write = graph.add_write(&bins, &[Bin::new(1, 1.0), Bin::new(2, 2.0)]).unwrap();
    let fill = graph.add_fill(&bins.part(1..).unwrap(), Bin::new(5, 5.0)).unwrap();
    graph.edge(write, fill).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(numbers(&bins), [(1, [1.0, -1.0], 2), (5, [5.0, -5.0], 6)]);
}

/// Cells that another thread writes meanwhile are read whole.
#[test]
fn cells_may_be_written_while_they_are_uploaded() {
    let device = cpu();
    let bins = [Bin::new(0, 0.0), Bin::new(0, 0.0)];
    let done = AtomicBool::new(false);
    let torn = std::thread::scope(|scope| {
        scope.spawn(|| {
            for next in (0..=0xff).cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                bins[1].count.set(next * 0x0101_0101);
            }
        });
        let torn = (0..200).map(|_| {
            let seen = device.upload(&bins)?.read()?[1].count.get();
            Ok((seen != (seen & 0xff) * 0x0101_0101).then_some(seen))
        });
        let torn: Result<Vec<_>, Error> = torn.collect();
        done.store(true, Ordering::Relaxed);
        torn
    });
    assert!(torn.unwrap().iter().all(Option::is_none));
}

#[derive(Clone, Copy, Plain)]
#[repr(C, align(64))]
struct Wide {
    values: [u64; 8],
}

#[kernel]
fn add_to_wide(_: &Lane, wide: Wide, out: &Global<u64>, more: u32) {
    out.set(wide.values[7] + u64::from(more));
}

/// A block of arguments is as long as the struct that it is, whose size is a multiple of its largest argument's alignment.
#[test]
fn arguments_of_large_alignment_are_followed_by_others() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let out = device.alloc_zeroed::<u64>(1).unwrap();
    add_to_wide.launch(&stream, Grid::new(1, 1), (Wide { values: [40; 8] }, &out, 2)).unwrap();
    assert_eq!(out.read().unwrap(), [42]);
}

/// What conflicts waits: a kernel of another stream, a write and a read of the host's (S5).
#[test]
fn conflicts_are_put_in_order() {
    let device = cpu();
    let (one, two) = (device.stream().unwrap(), device.stream().unwrap());
    let gate = device.pinned::<u32>(1).unwrap();
    let open = device.upload(&[1u32]).unwrap();
    let source = device.upload(&[3u32; 4]).unwrap();
    let target = device.alloc_zeroed::<u32>(4).unwrap();
    let grid = Grid::new(1, 4);
    let gate_buffer = device.alloc_zeroed::<u32>(1).unwrap();
    copy_after.launch(&one, grid, (&gate_buffer, &source, &target)).unwrap();
    // Writes what the first stream's kernel reads plainly.
    add_after.launch(&two, grid, (&open, &source, 100u32)).unwrap();
    assert!(!source.write_now(&[9; 4]).unwrap());
    assert_eq!(source.read_now().unwrap(), None);
    let opener = std::thread::spawn({
        let (gate_buffer, gate) = (gate_buffer.clone(), gate.clone());
        move || {
            while gate[0].get() == 0 {
                std::thread::yield_now();
            }
            // Beside the kernel that looks at it.
            assert!(gate_buffer.write_now(&[1]).unwrap());
        }
    });
    gate[0].set(1);
    // Waits for both kernels, the second after the first.
    assert_eq!(source.read().unwrap(), [103; 4]);
    assert_eq!(target.read().unwrap(), [3; 4]);
    opener.join().unwrap();
    source.write(&[1, 2, 3, 4]).unwrap();
    assert_eq!(source.read_now().unwrap(), Some(vec![1, 2, 3, 4]));
    one.synchronize().unwrap();
    two.synchronize().unwrap();
}

/// One launch cannot read plainly what it may write (S5).
#[test]
fn a_launch_with_aliases_is_refused() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let buffer = device.upload(&[1u64, 2, 3, 4]).unwrap();
    let refused = both.launch(&stream, Grid::new(1, 2), (&buffer, &buffer));
    assert!(matches!(refused, Err(Error::Refused(LaunchRefused::Aliases { plain: 0, shared: 1 }))));
    let (low, high) = (buffer.part(..2).unwrap(), buffer.part(2..).unwrap());
    both.launch(&stream, Grid::new(1, 2), (&low, &high)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(buffer.read().unwrap(), [1, 2, 1, 2]);
    let copied = stream.copy(&buffer.part(..3).unwrap(), &buffer.part(1..).unwrap());
    assert!(matches!(copied, Err(Error::Bounds(BoundsError::Overlap))));
}

#[test]
fn buffers_of_numbers_are_passed_as_atomics() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let all = device.upload(&[5u64]).unwrap();
    let one = device.alloc_zeroed::<AtomicU64>(1).unwrap();
    count.launch(&stream, Grid::new(2, 40), (&all, &one)).unwrap();
    count.launch(&stream, Grid::new(2, 40), (&all, &all)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(all.read().unwrap(), [245]);
    assert_eq!(one.read().unwrap()[0].load(Ordering::Relaxed), 80);
}

#[test]
fn wrong_parts_and_lengths_are_refused() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let buffer = device.upload(&[1u32, 2, 3]).unwrap();
    assert!(matches!(buffer.part(2..5), Err(Error::Bounds(BoundsError::Part { start: 2, end: 5, len: 3 }))));
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = buffer.part(2..1);
    assert!(reversed.is_err());
    assert!(matches!(buffer.write(&[1]), Err(Error::Bounds(BoundsError::Length { given: 1, len: 3 }))));
    assert!(stream.write(&buffer, &[1; 4]).is_err());
    assert!(device.alloc_zeroed::<u64>(usize::MAX).is_err());
    let none = buffer.part(3..).unwrap();
    assert!(none.read().unwrap().is_empty());
    let out = device.alloc_zeroed::<u32>(1).unwrap();
    let refused = first.launch(&stream, Grid::new(1, 1), (&none, &out));
    assert!(matches!(refused, Err(Error::Refused(LaunchRefused::EmptyBuffer { argument: 0 }))));
    first.launch(&stream, Grid::new(1, 1), (&buffer.part(1..).unwrap(), &out)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [2]);
}

/// Buffers, closures and events of another device (S8, D3). A copy may come from there (`several.rs`).
#[test]
fn things_of_another_device_are_refused() {
    let (here, there) = (cpu(), cpu());
    let (stream, other) = (here.stream().unwrap(), there.stream().unwrap());
    let (mine, theirs) = (here.upload(&[1u32]).unwrap(), there.upload(&[1u32]).unwrap());
    let is_foreign = |result: Result<(), Error>| matches!(result, Err(Error::OtherDevice { .. }));
    assert!(is_foreign(first.launch(&stream, Grid::new(1, 1), (&theirs, &mine)).map(drop)));
    assert!(is_foreign(stream.copy(&theirs, &mine)));
    // Both have one name.
    let sentence = stream.copy(&theirs, &mine).unwrap_err().to_string();
    assert!(
        sentence.contains(" belongs to another open device: make it on the one that is used here, cpu, "),
        "{sentence}"
    );
    assert!(is_foreign(stream.write(&theirs, &[1])));
    assert!(is_foreign(stream.fill(&theirs, 1)));
    assert!(is_foreign(stream.read(&theirs).map(drop)));
    let event = other.record().unwrap();
    assert!(is_foreign(stream.wait_for(&event)));
    assert!(is_foreign(stream.record().unwrap().elapsed_since(&event).map(drop)));
    let pinned = there.pinned::<u32>(1).unwrap();
    assert!(is_foreign(copy_after.launch(&stream, Grid::new(1, 1), (&mine, &mine, &pinned)).map(drop)));
    let called = Arc::new(AtomicU32::new(0));
    let counted = called.clone();
    let closure =
        Hostcall::continuous(&there, move |x: u32| counted.fetch_add(x, Ordering::Relaxed)).unwrap();
    assert!(is_foreign(ask.launch(&stream, Grid::new(1, 1), (&closure, &mine)).map(drop)));
    assert_eq!(called.load(Ordering::Relaxed), 0);
    there.close();
    let sentence = stream.fill(&theirs, 1).unwrap_err().to_string();
    assert!(
        sentence.ends_with(" belongs to a device that was closed: make it on the one that is used here, cpu"),
        "{sentence}"
    );
    // Nor is one open that nobody has any more.
    let left = cpu().upload(&[1u32]).unwrap();
    assert!(matches!(stream.fill(&left, 1), Err(Error::OtherDevice { closed: true, .. })));
    stream.synchronize().unwrap();
}

#[test]
fn events_measure_time() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let before = stream.record().unwrap();
    stream.host_function(|| std::thread::sleep(Duration::from_millis(3))).unwrap();
    let after = stream.record().unwrap();
    after.wait().unwrap();
    assert!(before.is_done());
    assert!(after.elapsed_since(&before).unwrap().unwrap() >= Duration::from_millis(3));
    assert_eq!(before.elapsed_since(&after).unwrap(), Some(Duration::ZERO));
}

#[test]
fn a_host_function_that_panics_is_told_of() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the payload as well");
        }
    }
    let device = cpu();
    let stream = device.stream().unwrap();
    stream.host_function(|| panic!("no luck")).unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::HostFunction { message }) if message == "no luck"));
    stream.host_function(|| std::panic::panic_any(Bomb)).unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::HostFunction { .. })));
    stream.host_function(|| ()).unwrap();
    stream.synchronize().unwrap();
}

/// What a host function has that is not called may take its time when it is dropped, as a stream does: time limits are kept
/// meanwhile.
#[test]
fn a_stream_that_a_skipped_host_function_has_holds_nothing_up() {
    let device = cpu();
    let (stopped, waiting) = (device.stream().unwrap(), device.stream().unwrap());
    let gate = device.alloc_zeroed::<u32>(1).unwrap();
    let values = device.alloc_zeroed::<u32>(1).unwrap();
    assert!(fail.launch(&stopped, Grid::new(1, 1), ()).unwrap().wait().is_err());
    let launch = add_after.launch(&waiting, Grid::new(1, 1), (&gate, &values, 1)).unwrap();
    let other = device.stream().unwrap();
    let never = device.alloc_zeroed::<u32>(1).unwrap();
    let limited = add_after.launch(&other, Grid::new(1, 1), (&never, &never, 1)).unwrap();
    stopped.host_function(move || drop(waiting)).unwrap();
    // The stream is being dropped now, most likely.
    std::thread::sleep(Duration::from_millis(50));
    limited.cancel_after(Duration::from_millis(1));
    let ended = limited.wait_for(Duration::from_secs(30));
    assert!(gate.write_now(&[1]).unwrap());
    assert!(never.write_now(&[1]).unwrap());
    let failure = |error: Error| match error {
        Error::Launch { failure, .. } => failure,
        other => panic!("{other}"),
    };
    assert_eq!(failure(ended.unwrap_err()), LaunchFailure::TimedOut);
    launch.wait().unwrap();
    assert!(stopped.synchronize().is_err() && other.synchronize().is_err());
}

#[test]
fn sizes_that_no_channel_has_are_refused() {
    for slots in [u32::MAX, u32::MAX - 62, 1 << 31, 65_537] {
        let opened = Device::builder("cpu").slots(slots).open();
        assert!(matches!(opened, Err(Error::Sizes(_))), "{slots}");
    }
}

/// Waves of a software device claim the slot of their own number, whoever made its backend.
#[test]
fn a_backend_with_more_waves_than_slots_is_refused() {
    let backend = |resident_waves| {
        let config = SoftwareDeviceConfig { resident_waves, ..SoftwareDeviceConfig::default() };
        software_backend(config).unwrap()
    };
    let open = |waves, slots| Device::builder("outside").backend(backend(waves)).slots(slots).open();
    let refused = open(129, 65).err().unwrap().to_string();
    assert!(refused.contains("runs 129 waves at once") && refused.contains("have 128"), "{refused}");
    for slots in [65, 1000] {
        open(128, slots).unwrap();
    }
}

/// A failure that nobody asked for is on the standard error, which a child process shows.
#[test]
fn a_stream_that_is_dropped_tells_its_failure() {
    const CHILD: &str = "HOSTCALL_TEST_DROPS_A_FAILED_STREAM";
    if std::env::var_os(CHILD).is_some() {
        let device = cpu();
        let stream = device.stream().unwrap();
        fail.launch(&stream, Grid::new(1, 1), ()).unwrap();
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a_stream_that_is_dropped_tells_its_failure", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stderr);
    assert!(text.contains("was dropped") && text.contains("on purpose"), "{text}");
}

/// Each of the first 70 host functions waits until the 71st has begun, which has no thread.
#[test]
fn host_functions_that_wait_for_one_without_a_thread_are_told_of() {
    const CHILD: &str = "HOSTCALL_TEST_WAITS_FOR_A_HOST_FUNCTION";
    if std::env::var_os(CHILD).is_some() {
        let device = cpu();
        let begun = Arc::new(AtomicBool::new(false));
        let streams: Vec<_> = (0..71).map(|_| device.stream().unwrap()).collect();
        for stream in &streams[..70] {
            let begun = begun.clone();
            let wait = move || {
                while !begun.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            };
            stream.host_function(wait).unwrap();
        }
        streams[70].host_function(move || begun.store(true, Ordering::Relaxed)).unwrap();
        streams[70].synchronize().unwrap();
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["host_functions_that_wait_for_one_without_a_thread_are_told_of", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let told = "hostcall: 7 host functions of cpu wait for a thread: 64 run, which is the most, and none has returned for a \
                second. One that waits for a function that has not begun waits for ever";
    let lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == told));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Paths are literal, and what holds no kernels is refused before it is loaded (M6, D8).
#[test]
fn images_are_loaded_from_where_they_are_said_to_be() {
    let device = cpu();
    for name in ["libm.so.6", "libc.so.6"] {
        let error = device.load(name).unwrap_err();
        assert!(matches!(&error, Error::Image(hostcall::device::ImageError::Read { .. })), "{error}");
    }
    for path in ["/dev/zero", "/dev/null", "/tmp"] {
        let error = device.load(path).unwrap_err();
        assert!(error.to_string().contains("regular file"), "{error}");
    }
    let library = ["/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib64/libm.so.6", "/lib/libm.so.6"];
    if let Some(library) = library.iter().find(|path| std::path::Path::new(path).exists()) {
        let error = device.load(library).unwrap_err();
        assert!(matches!(&error, Error::Image(_)), "{error}");
        assert!(device.load_bytes(&std::fs::read(library).unwrap()).is_err());
    }
    assert!(device.load_bytes(b"nonsense").is_err());
}

/// Memory lives as long as launches use it.
#[test]
fn launches_keep_what_they_use() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let gate = device.alloc_zeroed::<u32>(1).unwrap();
    let out = device.alloc_zeroed::<u32>(64).unwrap();
    let source = device.upload(&[7u32; 64]).unwrap();
    copy_after.launch(&stream, Grid::new(1, 64), (&gate, &source, &out)).unwrap();
    drop(source);
    assert!(gate.write_now(&[1]).unwrap());
    drop(gate);
    assert_eq!(out.read().unwrap(), [7; 64]);
}
