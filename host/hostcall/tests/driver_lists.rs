//! Lists of kernels on the NVIDIA device, with a driver that runs kernels in this process's place of a GPU: what is not tested
//! so is the GPU alone. The driver is loaded when a process starts, so that a second process of this test has it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "driver_lists/bodies.rs"]
mod bodies;

use hostcall::device::Image;
use hostcall::graph::{CaptureMode, Graph, GraphError, Instance};
use hostcall::hostcall_device::{Global, Lane, kernel};
use hostcall::{Device, Error, Grid, LaunchKernel, Stream};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Adds `by` at `place`, and notes there which sequence and id the launch has.
#[kernel]
fn note(_: &Lane, values: &[Global<u64>], place: u64, by: u64) {
    let _ = (values, place, by);
}

/// Waits while the gate says `place`, and says so in the gate's second word.
#[kernel]
fn wait(_: &Lane, gate: &[Global<u64>], place: u64) {
    let _ = (gate, place);
}

/// Takes one off what is left, says in the word whether something is, and notes how often, in which sequence and with which id.
#[kernel]
fn count_down(_: &Lane, left: &[Global<u64>], word: &[Global<u32>], notes: &[Global<u64>]) {
    let _ = (left, word, notes);
}

/// Waits while the gate says what the counter does, and says so in the gate's second word.
#[kernel]
fn hold(_: &Lane, gate: &[Global<u64>], counter: &[Global<u64>]) {
    let _ = (gate, counter);
}

/// The kernels, as the driver runs them.
const KERNELS: &str = r#"
#include <stdint.h>
struct params {
  uint64_t channel, stop_at, sequence;
  uint32_t launch, home_slots;
  uint64_t last_post;
  uint32_t workgroups[3], memory;
  uint16_t size[3], flags;
  uint64_t wave_records, list;
};
int fault;
void set_lane(unsigned block, unsigned lanes, unsigned lane) {}
static int begin(const struct params *params, uint64_t *sequence, uint64_t *launch) {
  const uint64_t none[2] = {0}, *first = params->list ? (const uint64_t *)params->list : none;
  *sequence = params->sequence + first[0];
  *launch = params->launch + (uint32_t)first[1];
  if (first[1] >> 32)
    return 0;
  volatile uint64_t *stop = (volatile uint64_t *)params->stop_at;
  if (*sequence < stop[0] && *sequence < stop[1])
    return 1;
  if (*sequence - 1 < stop[0])
    stop[0] = *sequence - 1;
  return 0;
}
struct note { volatile uint64_t *values; uint64_t len, place, by; };
void hostcall_kernel_note__00000001(const struct params *params, const struct note *args) {
  uint64_t sequence, launch;
  if (!begin(params, &sequence, &launch))
    return;
  args->values[3 * args->place] += args->by;
  args->values[3 * args->place + 1] = sequence;
  args->values[3 * args->place + 2] = launch;
}
struct wait { volatile uint64_t *gate; uint64_t len, place; };
void hostcall_kernel_wait__00000002(const struct params *params, const struct wait *args) {
  uint64_t sequence, launch;
  if (begin(params, &sequence, &launch))
    while (args->gate[0] == args->place)
      args->gate[1] = args->place + 1;
}
struct count_down {
  volatile uint64_t *left, left_len;
  volatile uint32_t *word;
  uint64_t word_len;
  volatile uint64_t *notes;
};
void hostcall_kernel_count_down__00000003(const struct params *params, const struct count_down *args) {
  uint64_t sequence, launch;
  if (!begin(params, &sequence, &launch))
    return;
  args->notes[0]++;
  args->notes[1] = sequence;
  args->notes[2] = launch;
  if (*args->left)
    *args->word = --*args->left > 0;
}
struct hold { volatile uint64_t *gate, gate_len, *counter; };
void hostcall_kernel_hold__00000004(const struct params *params, const struct hold *args) {
  uint64_t sequence, launch;
  if (begin(params, &sequence, &launch))
    while (args->gate[0] == *args->counter)
      args->gate[1] = *args->counter + 1;
}
"#;

fn compile(source: &Path, library: &Path, options: &[&str]) {
    let status = Command::new("cc")
        .args(["-std=gnu11", "-w", "-O1", "-shared", "-fPIC"])
        .arg(source)
        .arg("-o")
        .arg(library)
        .args(options)
        .status();
    assert!(status.expect("a C compiler, which Rust links with").success());
}

/// What the driver counts of graphs.
struct Counts {
    made: u64,
    launched: u64,
    /// Nodes that may start before the one before them has ended.
    early: u64,
}

/// Runs a test of this file with a driver that was compiled with these options.
fn run_on_a_driver(test: &str, options: &[&str]) -> Counts {
    let folder = folder(test);
    std::fs::create_dir_all(&folder).unwrap();
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/cli/tests/llvm/host/driver.c");
    let mut of_driver = vec!["-Wl,-soname,libcuda.so.1", "-ldl", "-lpthread"];
    of_driver.extend(options);
    compile(&driver, &folder.join("libcuda.so.1"), &of_driver);
    let mut source = KERNELS.to_owned();
    for ((digits, name), info) in
        (1..).zip(KERNEL_NAMES).zip([note.info(), wait.info(), count_down.info(), hold.info()])
    {
        let words = [
            info.magic,
            info.abi_version,
            info.schema,
            info.argument_bytes,
            info.default_workgroups,
            info.default_lanes,
            info.workgroup_memory_bytes,
            info.max_lanes,
            info.found,
            info.path,
        ];
        let words = words.map(|word| format!("{word}ull")).join(", ");
        writeln!(source, "const uint64_t hostcall_kernel_info_{name}__{digits:08}[10] = {{{words}}};")
            .unwrap();
    }
    std::fs::write(folder.join("kernels.c"), source).unwrap();
    compile(&folder.join("kernels.c"), &folder.join("kernels.so"), &[]);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", &folder)
        .env("HOSTCALL_DRIVER_COUNTS", "1")
        .output()
        .unwrap();
    let (out, told) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && out.contains("1 passed"), "{out}\n{told}");
    // It is loaded once more before, to see whether it is there.
    let counts =
        told.lines().filter_map(|line| line.strip_prefix("graphs: ")).next_back().expect("the driver counts");
    let numbers: Vec<u64> =
        counts.split(", ").map(|count| count.split(' ').next().unwrap().parse().unwrap()).collect();
    let [made, launched, alive, early] = numbers[..] else { panic!("{counts}") };
    assert_eq!(alive, 0, "{counts}");
    Counts { made, launched, early }
}

const KERNEL_NAMES: [&str; 4] = ["note", "wait", "count_down", "hold"];

#[test]
fn lists_run_on_a_driver() {
    let Counts { made, launched, early } = run_on_a_driver("on_the_driver", &[]);
    assert!(made < 20 && launched > 10_000, "{made} made, {launched} launched");
    assert_eq!(early, 0, "these kernels wait for none");
    let Counts { early, .. } = run_on_a_driver("on_the_driver", &["-DKERNELS_ARCHITECTURE=90"]);
    assert!(early >= made * (PLACES - 1), "{early} early, in {made} lists");
}

fn folder(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver-lists").join(test.replace("::", "-"))
}

/// Opens the driver's device, with the kernels.
fn open(test: &str) -> (Device, Image) {
    let device = Device::open("cuda:0").unwrap();
    let mut ptx = format!("// host: {}\n", folder(test).join("kernels.so").display());
    ptx.push_str(".version 7.8\n.target sm_80\n.address_size 64\n");
    for (digits, name) in (1..).zip(KERNEL_NAMES) {
        let info = format!("hostcall_kernel_info_{name}__{digits:08}[80]");
        writeln!(ptx, ".visible .global .align 8 .b8 {info};").unwrap();
    }
    for (digits, name) in (1..).zip(KERNEL_NAMES) {
        writeln!(ptx, ".visible .entry hostcall_kernel_{name}__{digits:08}(").unwrap();
    }
    let image = device.load_bytes(ptx.as_bytes()).unwrap();
    (device, image)
}

const ONE: Grid = Grid::new(1, 1);
const PLACES: u64 = 100;

fn graph(stream: &Stream, launch: impl Fn(u64) -> Result<(), Error>) -> Graph {
    let graph = stream.capture(CaptureMode::ThreadLocal, |_| (0..PLACES).try_for_each(launch));
    graph.unwrap().named("row")
}

fn instance(stream: &Stream, launch: impl Fn(u64) -> Result<(), Error>) -> Instance {
    graph(stream, launch).instantiate().unwrap()
}

/// Bytes of the process that are in memory.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
#[ignore = "the test above runs it with a driver"]
fn on_the_driver() {
    let (device, image) = open("on_the_driver");
    each_replay_has_its_sequences_and_ids(&device, &image);
    a_cancelled_list_names_what_ran(&device, &image);
    devices_close_with_lists(&device, &image);
}

fn each_replay_has_its_sequences_and_ids(device: &Device, image: &Image) {
    let notes = image.typed(&note).unwrap();
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    let values = device.alloc_zeroed::<u64>(3 * PLACES as usize).unwrap();
    let graph = graph(&streams[0], |place| notes.launch(&streams[0], ONE, (&values, place, 1u64)).map(drop));
    let ((first, ..), instance) = (graph.nodes().next().unwrap(), graph.instantiate().unwrap());
    let mut last = [0; 2];
    let (mut replays, mut at_first) = (0, 0);
    // With and without lists, and on changing streams.
    for round in 0..10_500u64 {
        let stream = usize::from(round > 10_400 && round % 3 == 0);
        if round == 8 {
            instance.upload(&streams[0]).unwrap();
        }
        instance.launch(&streams[stream]).unwrap();
        replays += 1;
        if round == 500 {
            at_first = resident_bytes();
        }
        if round % 100 != 5 && round < 10_400 {
            last[stream] += PLACES;
            continue;
        }
        let found = values.read().unwrap();
        let (sequence, launch) = (found[1], found[2]);
        assert_eq!(sequence, last[stream] + 1);
        for (place, found) in (0..).zip(found.chunks(3)) {
            assert_eq!((found[0], found[1]), (replays, sequence + place));
            assert!(round < 10 || stream == 1 || found[2] == launch + place, "ids are in a row");
        }
        last[stream] += PLACES;
    }
    let more = resident_bytes().saturating_sub(at_first);
    // Each replay has a hundred launches. Arenas of threads vary by some MiB.
    assert!(more < 12 << 20, "10,000 replays took {more} bytes");
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    // Other arguments count from the next replay on.
    let (other, ..) = Graph::clone(&graph).nodes().next().unwrap();
    assert_eq!(other, first, "a clone has the graph's nodes");
    let foreign = Graph::new(device).add_empty();
    let refused = instance.set(foreign, &notes, ONE, (&values, 0u64, 1000u64));
    assert!(matches!(refused, Err(Error::Graph(GraphError::OtherGraph { .. }))), "{refused:?}");
    instance.set(first, &notes, ONE, (&values, 0u64, 1000u64)).unwrap();
    for _ in 0..5 {
        instance.launch(&streams[0]).unwrap();
        instance.upload(&streams[0]).unwrap();
    }
    let found = values.read().unwrap();
    assert_eq!((found[0], found[3]), (replays + 5000, replays + 5));
}

/// Waits until a kernel waits at the gate for this place or counter.
fn wait_for(gate: &[Global<u64>], place: u64) {
    while gate[1].get() != place + 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_cancelled_list_names_what_ran(device: &Device, image: &Image) {
    let (notes, waits) = (image.typed(&note).unwrap(), image.typed(&wait).unwrap());
    let stream = device.stream().unwrap();
    let (gate, values) = (device.pinned::<u64>(2).unwrap(), device.alloc_zeroed::<u64>(3).unwrap());
    let instance = instance(&stream, |place| waits.launch(&stream, ONE, (&gate, place)).map(drop));
    instance.upload(&stream).unwrap();
    for place in [57, 0, PLACES - 1] {
        gate[0].set(place);
        let replay = instance.launch(&stream).unwrap();
        notes.launch(&stream, ONE, (&values, 0u64, 1u64)).unwrap();
        wait_for(&gate, place);
        assert!(!replay.is_done());
        replay.cancel();
        gate[0].set(u64::MAX);
        let told = stream.synchronize().unwrap_err().to_string();
        assert!(told.contains(&format!("node {place} (wait)")), "{told}");
        assert_eq!(values.read().unwrap()[0], 0, "what follows is skipped");
        instance.launch(&stream).unwrap().wait().unwrap();
        stream.synchronize().unwrap();
    }
}

fn devices_close_with_lists(device: &Device, image: &Image) {
    let waits = image.typed(&wait).unwrap();
    let stream = device.stream().unwrap();
    let gate = device.pinned::<u64>(2).unwrap();
    let instance = instance(&stream, |place| waits.launch(&stream, ONE, (&gate, place)).map(drop));
    instance.upload(&stream).unwrap();
    gate[0].set(3);
    let replays: Vec<_> = (0..10).map(|_| instance.launch(&stream).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            gate[0].set(u64::MAX);
        });
        device.close();
    });
    assert!(replays.iter().all(|replay| replay.wait().is_err()));
}
