//! The header of kernels that other compilers make: what it says of layouts, threads of the host as waves, and kernels on the
//! GPU in software.

mod common;

use common::{output, run, source};
use hostcall::raw::{Block, DropNewest, Policy, RawChannel, RawPage, RawStatistics};
use hostcall::rocm::{CodeObject, KernelArgument, Version};
use hostcall::{Device, Error, Grid, Stream};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{
    ForeignRawParams, Place, RAW_GIVEN_WORD, RAW_HEADER_WORDS, RAW_STATE_BYTES, RawLayout, RawParams,
    RawRingWords, header,
};
use hostcall_channel::raw::{Chunk, Collector, RawRegion};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FLAGS: [&str; 4] = ["-pedantic", "-Wall", "-Wextra", "-Werror"];

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostcall-c-device-{name}"))
}

/// A source as a code object for the GPU in software, or as PTX.
fn kernels(compiler: &[&str], file: &str, name: &str) -> PathBuf {
    let made = temporary(name);
    let mut command = Command::new("clang-22");
    command.args(compiler).args(FLAGS).args(["-O2", "-I"]).arg(source("include")).arg(source(file));
    run(command.arg("-o").arg(&made));
    made
}

/// What C is compiled with for a GPU.
const AMD: [&str; 6] = [
    "-std=c99",
    "--target=amdgcn-amd-amdhsa",
    "-mcpu=gfx942",
    "-ffreestanding",
    "-nogpulib",
    "-Wno-language-extension-token",
];
const NVIDIA: [&str; 9] = [
    "-std=c99",
    "--target=nvptx64-nvidia-cuda",
    "-march=sm_90",
    "-Xclang",
    "-target-feature",
    "-Xclang",
    "+ptx78",
    "-ffreestanding",
    "-S",
];

static GFX942: LazyLock<Vec<u8>> = LazyLock::new(|| {
    std::fs::read(kernels(&AMD, "tests/c/raw_kernels.c", "kernels.co")).expect("it was compiled")
});

mod layouts {
    use super::*;

    #[test]
    fn constants_and_structs_are_those_of_the_rust_side() {
        let mut code = String::from("#include \"hostcall_device.h\"\n#include <stddef.h>\n");
        let mut is = |what: &str, value: u64| {
            code.push_str(&format!("_Static_assert({what} == UINT64_C({value}), \"{what}\");\n"));
        };
        let least = RawLayout::new(16, 128).unwrap();
        is("HOSTCALL_RAW_START_WORDS", least.free_at(0).into());
        is("HOSTCALL_RAW_GIVEN_WORD", RAW_GIVEN_WORD.into());
        is("HOSTCALL_RAW_HEADER_WORDS", RAW_HEADER_WORDS.into());
        is("HOSTCALL_RAW_HEADER_OPENED", header::OPENED.into());
        is("HOSTCALL_RAW_HEADER_SLOT", header::SLOT.into());
        is("HOSTCALL_RAW_HEADER_WAVE", header::WAVE.into());
        is("HOSTCALL_RAW_HEADER_OPENED_NS", header::OPENED_NS.into());
        is("HOSTCALL_RAW_HEADER_DROPPED", header::DROPPED.into());
        is("HOSTCALL_RAW_RING_HEAD", offset_of!(RawRingWords, head) as u64);
        is("HOSTCALL_RAW_RING_KNOWN", offset_of!(RawRingWords, known) as u64);
        is("HOSTCALL_RAW_CLOSED", Place(0).closed().0);
        is("UINT64_C(1) << HOSTCALL_RAW_TICKET_SHIFT", Place::begin(0).0);
        is("HOSTCALL_RAW_MOST_RECORD_BYTES", hostcall_abi::raw::LEAST_RAW_PAGE_BYTES.into());
        is("sizeof(struct hostcall_raw_stream)", size_of::<ForeignRawParams>() as u64);
        macro_rules! fields {
            ($($field:ident)*) => {$(
                is(
                    concat!("offsetof(struct hostcall_raw_stream, ", stringify!($field), ")"),
                    offset_of!(ForeignRawParams, $field) as u64,
                );
            )*};
        }
        fields!(shared data ring dropped stop_at sequence launch slot waits reserved);
        is("offsetof(struct hostcall_raw_stream, pages_log2)", offset_of!(ForeignRawParams, layout) as u64);
        is(
            "offsetof(struct hostcall_raw_stream, page_bytes_log2)",
            offset_of!(ForeignRawParams, layout) as u64 + 4,
        );
        let file = temporary("layouts.c");
        std::fs::write(&file, code).unwrap();
        run(Command::new("cc").args(["-std=c11", "-fsyntax-only", "-I"]).arg(source("include")).arg(&file));
    }

    #[test]
    fn words_of_the_parameters_are_their_bytes() {
        let memory = Memory::new(RawLayout::new(64, 4096).unwrap());
        let params = memory.stream(true);
        // SAFETY: the struct is `repr(C)` without padding, and as long.
        let words: [u64; 9] = unsafe { std::mem::transmute(params) };
        assert_eq!(params.to_words(), words);
    }

    #[test]
    fn places_are_those_of_the_rust_side() {
        for (pages, page_bytes) in [(16, 128), (64, 4096), (65_536, 256)] {
            let layout = RawLayout::new(pages, page_bytes).unwrap();
            let params = RawParams { layout, shared: 1 << 40, ..RawParams::default() };
            let stream = params.foreign(7, false);
            assert_eq!(stream.data, params.shared + 8 * u64::from(layout.data_at(0)));
            for (position, page) in [(0, 0), (77, 15), (1 << 40 | 9, 3)] {
                let mut found = [0; 3];
                // SAFETY: the function has this type, and writes three words.
                unsafe { (WAVES.places)(&stream, position, page, found.as_mut_ptr()) };
                let words = [layout.free_at(position), layout.commit_at(page), layout.header_at(page)];
                assert_eq!(found, words.map(|word| 8 * u64::from(word)));
            }
        }
    }

    #[test]
    fn the_header_is_pedantic_c99_and_cxx11_for_all_targets() {
        let include = temporary("include.c");
        std::fs::write(
            &include,
            "#include \"hostcall_device.h\"\n#include \"hostcall.h\"\n\
             int main(void) { return sizeof(struct hostcall_raw_stream) != 72; }\n",
        )
        .unwrap();
        let program = temporary("include");
        for (compiler, language) in [("cc", ["-std=c99", "-xc"]), ("g++", ["-std=c++11", "-xc++"])] {
            let mut command = Command::new(compiler);
            command.args(language).args(FLAGS).arg("-I").arg(source("include")).arg(&include);
            run(command.arg("-o").arg(&program));
            assert!(output(&mut Command::new(&program)).status.success());
        }
    }
}

mod threads {
    use super::*;

    #[test]
    fn a_reader_gets_what_threads_write_byte_for_byte() {
        const WAVES_OF_ALL: u32 = 6;
        for (work, unit) in [(Work::Records, 24), (Work::Texts, 8)] {
            let memory = Memory::new(RawLayout::new(16, 256).unwrap());
            let stream = memory.stream(true);
            let mut collector = Collector::new(memory.region(), HOME_SLOTS + 1, unit);
            let mut found = BTreeMap::<(u32, u32), Vec<u8>>::new();
            let mut chunks = VecDeque::new();
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..WAVES_OF_ALL)
                    .map(|wave| scope.spawn(move || work.run(&stream, wave % 2, wave, 1000, true)))
                    .collect();
                loop {
                    let is_last = threads.iter().all(|thread| thread.is_finished());
                    collector.collect(memory.region(), &mut chunks);
                    while let Some(chunk) = chunks.pop_front() {
                        assert_eq!((chunk.writer.launch, chunk.writer.slot), (stream.launch, HOME_SLOTS));
                        assert_eq!(chunk.opened_ns, 4711);
                        let bytes = found.entry((chunk.writer.workgroup, chunk.writer.wave)).or_default();
                        memory.region().append_to(&chunk, bytes);
                        collector.take_back(memory.region(), &chunk);
                    }
                    if is_last {
                        break;
                    }
                }
                threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 1000));
            });
            let counts = collector.counts();
            assert_eq!((counts.dropped, counts.swept, counts.malformed), (0, 0, 0));
            for wave in 0..WAVES_OF_ALL {
                assert!(found[&(wave % 2, wave)] == work.expected(wave % 2, wave, 1000), "{work:?} {wave}");
            }
            // Nothing runs, and nothing was left.
            assert!(!memory.sweep(&mut collector, &mut chunks));
        }
    }

    #[test]
    fn what_finds_no_page_is_dropped_and_told_of() {
        let memory = Memory::new(RawLayout::new(16, 128).unwrap());
        let stream = memory.stream(false);
        let mut collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24);
        let mut chunks = VecDeque::new();
        // Five records a page.
        assert_eq!(Work::Records.run(&stream, 0, 1, 100, true), 80);
        collector.collect(memory.region(), &mut chunks);
        assert_eq!(chunks.iter().map(Chunk::bytes).sum::<u32>(), 80 * 24);
        collector.count_dropped(|slot, word| memory.state_word(slot, word));
        assert_eq!(collector.counts().dropped, 20);
        // Another one drops as well, until pages come back.
        assert_eq!(Work::Records.run(&stream, 0, 2, 3, true), 0);
        for chunk in chunks.drain(..) {
            collector.take_back(memory.region(), &chunk);
        }
        assert_eq!(Work::Records.run(&stream, 0, 3, 1, true), 1);
        collector.collect(memory.region(), &mut chunks);
        assert_eq!(chunks.iter().map(|chunk| chunk.dropped).collect::<Vec<_>>(), [3]);
        assert_eq!(collector.counts().dropped, 23);
    }

    #[test]
    fn who_waits_where_nobody_reads_any_more_drops() {
        let memory = Memory::new(RawLayout::new(16, 128).unwrap());
        let stream = memory.stream(true);
        let collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| Work::Records.run(&stream, 0, 1, 100, true));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!thread.is_finished());
            memory.region().close();
            assert_eq!(thread.join().unwrap(), 80);
        });
        // The same when the launch is to end: it has the sequence 5.
        let memory = Memory::new(RawLayout::new(16, 128).unwrap());
        let stopped = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];
        let stop_at = stopped.as_ptr() as u64;
        let stream = ForeignRawParams { stop_at, sequence: 5, ..memory.stream(true) };
        drop(collector);
        let _collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| Work::Records.run(&stream, 0, 1, 100, true));
            for (at, value) in [(0, 6), (1, 5)] {
                std::thread::sleep(Duration::from_millis(20));
                assert!(!thread.is_finished());
                stopped[at].store(value, Ordering::Relaxed);
            }
            assert_eq!(thread.join().unwrap(), 80);
        });
    }

    #[test]
    fn a_page_that_was_left_open_is_closed_with_what_was_told_of() {
        let memory = Memory::new(RawLayout::new(16, 128).unwrap());
        let stream = memory.stream(true);
        let mut collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24);
        assert_eq!(Work::Records.run(&stream, 0, 1, 7, false), 7);
        let mut chunks = VecDeque::new();
        assert!(memory.sweep(&mut collector, &mut chunks));
        assert_eq!(chunks.iter().map(Chunk::bytes).sum::<u32>(), 7 * 24);
        assert_eq!((collector.counts().pages, collector.counts().swept), (2, 1));
    }
}

/// Home slots of the channels that threads write to.
const HOME_SLOTS: u32 = 3;

#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicU64; 16]);

/// A channel's memory without a device.
struct Memory {
    layout: RawLayout,
    shared: Vec<Line>,
    states: Vec<Line>,
    ring: Line,
}

impl Memory {
    fn new(layout: RawLayout) -> Self {
        let lines = |words: usize| (0..words.div_ceil(16)).map(|_| Line::default()).collect();
        let states = lines((HOME_SLOTS as usize + 1) * RAW_STATE_BYTES / 8);
        Self { layout, shared: lines(layout.words() as usize), states, ring: Line::default() }
    }

    fn region(&self) -> RawRegion<'_> {
        // SAFETY: so many words lie there, at a multiple of 64, and are accessed atomically.
        unsafe { RawRegion::from_address(self.shared.as_ptr() as u64, self.layout) }
    }

    fn stream(&self, waits: bool) -> ForeignRawParams {
        let (states, ring) = (self.states.as_ptr() as u64, self.ring.0.as_ptr() as u64);
        let params = RawParams { states, ring, shared: self.shared.as_ptr() as u64, layout: self.layout };
        ForeignRawParams { launch: LaunchId::new(3, 9), ..params.foreign(HOME_SLOTS, waits) }
    }

    fn state_word(&self, slot: u32, word: usize) -> Option<u64> {
        let at = slot as usize * RAW_STATE_BYTES / 8 + word;
        Some(self.states.get(at / 16)?.0[at % 16].load(Ordering::Relaxed))
    }

    /// What the host does once the launch is over.
    fn sweep(&self, collector: &mut Collector, chunks: &mut VecDeque<Chunk>) -> bool {
        collector.sweep(self.region(), |_| true, |slot, word| self.state_word(slot, word), chunks)
    }
}

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Wave = unsafe extern "C" fn(*const ForeignRawParams, u32, u32, u64, c_int) -> u64;

/// The functions of raw_waves.c.
struct Waves {
    records: Wave,
    texts: Wave,
    places: unsafe extern "C" fn(*const ForeignRawParams, u64, u32, *mut u64),
}

static WAVES: LazyLock<Waves> = LazyLock::new(|| {
    let library = temporary("waves.so");
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_DEFAULT_SOURCE", "-O2", "-shared", "-fPIC"]).args(FLAGS);
    command.arg("-I").arg(source("include")).arg(source("tests/c/raw_waves.c"));
    run(command.arg("-o").arg(&library));
    let library = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library is the test's own, stays loaded, and has functions of these types.
    unsafe {
        let library = dlopen(library.as_ptr(), 2);
        assert!(!library.is_null());
        let symbol = |name: &std::ffi::CStr| {
            let symbol = dlsym(library, name.as_ptr());
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        Waves {
            records: std::mem::transmute::<*mut c_void, Wave>(symbol(c"wave_records")),
            texts: std::mem::transmute::<*mut c_void, Wave>(symbol(c"wave_texts")),
            places: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const ForeignRawParams, u64, u32, *mut u64),
            >(symbol(c"places")),
        }
    }
});

#[derive(Clone, Copy, Debug)]
enum Work {
    Records,
    Texts,
}

impl Work {
    fn run(self, stream: &ForeignRawParams, workgroup: u32, wave: u32, count: u64, closes: bool) -> u64 {
        let function = match self {
            Work::Records => WAVES.records,
            Work::Texts => WAVES.texts,
        };
        // SAFETY: the function has this type, and the stream's memory lives.
        unsafe { function(stream, workgroup, wave, count, closes.into()) }
    }

    fn expected(self, workgroup: u32, wave: u32, count: u64) -> Vec<u8> {
        match self {
            Work::Records => (0..count)
                .flat_map(|i| [u64::from(workgroup) << 32 | u64::from(wave), i, !i])
                .flat_map(u64::to_le_bytes)
                .collect(),
            Work::Texts => texts_of(wave.into(), count),
        }
    }
}

/// What a writer of texts writes, each filled up to whole words. `first` is added to each byte.
fn texts_of(first: u64, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..count {
        bytes.extend((0..7 * i % 300).map(|at| (i + at + first) as u8));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes
}

/// The GPU in software with a stream and the kernels.
struct Host {
    device: Device,
    stream: Stream,
    code: CodeObject,
}

impl Host {
    fn open() -> Self {
        let device = Device::open("gfx942").unwrap();
        let stream = device.stream().unwrap();
        let code = device.load_code_object_bytes(&GFX942, Version::Stacks).unwrap();
        Self { device, stream, code }
    }

    fn launch(&self, kernel: &str, grid: Grid, arguments: &[KernelArgument]) -> hostcall::device::Launch {
        let kernel = self.code.kernel(kernel).unwrap();
        // SAFETY: tests give the arguments that their kernels take.
        unsafe { kernel.launch(&self.stream, grid, arguments) }.unwrap()
    }

    /// Runs a kernel that writes to the channel, and gives `read` its pages meanwhile.
    fn run<T, P>(
        &self,
        channel: &RawChannel<T, P>,
        kernel: &str,
        grid: Grid,
        count: u64,
        mut read: impl FnMut(&RawPage<T>),
    ) -> RawStatistics
    where
        T: hostcall::Plain,
        P: Policy,
    {
        let arguments = [KernelArgument::raw_channel(channel), KernelArgument::value(count)];
        let (reader, launch) = (channel.reader(), self.launch(kernel, grid, &arguments));
        let id = launch.id();
        assert_ne!(id, LaunchId::NONE);
        loop {
            let is_last = launch.is_done();
            while let Some(page) = reader.next_within(Duration::from_micros(100)) {
                assert_eq!(page.writer().launch, id);
                read(&page);
            }
            if is_last {
                break;
            }
        }
        self.stream.synchronize().unwrap();
        reader.rest().for_each(|page| read(&page));
        channel.statistics()
    }
}

mod gfx942 {
    use super::*;

    #[test]
    fn lanes_of_a_wave_write_side_by_side_and_in_order() {
        let host = Host::open();
        let channel = RawChannel::<[u64; 2], Block>::new(&host.device, 16, 4096).unwrap();
        // The last wave of each workgroup lacks lanes.
        let (grid, lanes, count) = (Grid::new(3, 100), 300, 200);
        let mut next = vec![0; lanes];
        let counted = host.run(&channel, "records", grid, count, |page| {
            let writer = page.writer();
            let records: Vec<[u64; 2]> = page.records().collect();
            let first = u64::from(100 * writer.workgroup + 64 * writer.wave);
            let wave_lanes = if writer.wave == 0 { 64 } else { 36 };
            for [before, after] in records.array_windows() {
                // One lane's after the other's, and the first one's after the last one's.
                assert_eq!(after[0] - first, (before[0] - first + 1) % wave_lanes);
            }
            for [lane, i] in records {
                assert_eq!(next[lane as usize], i);
                next[lane as usize] += 1;
            }
        });
        assert_eq!(next, vec![count; lanes]);
        assert_eq!((counted.bytes, counted.dropped_records), (lanes as u64 * count * 16, 0));
        assert_eq!((counted.swept_pages, counted.malformed_words), (0, 0));
    }

    #[test]
    fn lanes_that_go_apart_lose_nothing() {
        let host = Host::open();
        let channel = RawChannel::<[u64; 3], Block>::new(&host.device, 2048, 128).unwrap();
        let (grid, lanes, count) = (Grid::new(2, 150), 300u64, 20);
        let mut found = vec![Vec::new(); lanes as usize];
        let counted = host.run(&channel, "diverges", grid, count, |page| {
            for [lane, i, both] in page.records() {
                assert_eq!(both, lane ^ i);
                found[lane as usize].push(i);
            }
        });
        for (lane, mut found) in (0..).zip(found) {
            // Lanes' records are in the pages of those who were first of them.
            found.sort();
            assert_eq!(found, (0..count + lane % 5).collect::<Vec<_>>());
        }
        assert_eq!((counted.dropped_records, counted.swept_pages, counted.malformed_words), (0, 0, 0));
    }

    #[test]
    fn one_lane_of_each_wave_writes_bytes() {
        let host = Host::open();
        let channel = RawChannel::<u8, Block>::new(&host.device, 16, 256).unwrap();
        let mut found = BTreeMap::<(u32, u32), Vec<u8>>::new();
        let count = 100;
        host.run(&channel, "texts", Grid::new(2, 128), count, |page| {
            page.append_to(found.entry((page.writer().workgroup, page.writer().wave)).or_default());
        });
        assert_eq!(found.len(), 4);
        for ((workgroup, wave), bytes) in found {
            assert!(bytes == texts_of(u64::from(128 * workgroup + 64 * wave), count));
        }
    }

    #[test]
    fn a_full_channel_drops_and_counts() {
        let host = Host::open();
        let channel = RawChannel::<[u64; 2], DropNewest>::new(&host.device, 16, 128).unwrap();
        let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(50u64)];
        host.launch("records", Grid::new(4, 64), &arguments);
        host.stream.synchronize().unwrap();
        let reader = channel.reader();
        let kept: usize = reader.rest().map(|page| page.records().len()).sum();
        let counted = channel.statistics();
        assert_eq!(kept, 16 * 8);
        assert_eq!(counted.dropped_records, 4 * 64 * 50 - 16 * 8);
        // What was dropped is told of with the next page.
        host.launch("records", Grid::new(1, 8), &[arguments[0].clone(), KernelArgument::value(1u64)]);
        host.stream.synchronize().unwrap();
        let told: u64 = reader.rest().map(|page| page.dropped_before()).sum();
        assert!(told <= counted.dropped_records);
        assert_eq!(channel.statistics().dropped_records, counted.dropped_records);
    }

    #[test]
    fn pages_that_kernels_leave_open_are_closed_and_counted() {
        let host = Host::open();
        let channel = RawChannel::<[u64; 2], Block>::new(&host.device, 16, 4096).unwrap();
        let reader = channel.reader();
        for turn in 1..=40 {
            host.launch("leaves", Grid::new(2, 128), &[KernelArgument::raw_channel(&channel)]);
            host.stream.synchronize().unwrap();
            let seen: Vec<[u64; 2]> =
                reader.rest().flat_map(|page| page.records().collect::<Vec<_>>()).collect();
            // Those that were told of, of each lane; of the others it depends on the clock.
            assert_eq!(seen.iter().filter(|[_, i]| *i == 0).count(), 256);
            assert!(seen.len() <= 512);
            assert_eq!(channel.statistics().swept_pages, 4 * turn);
        }
    }

    #[test]
    fn what_a_killed_kernel_told_of_stays() {
        let mut child = Command::new(std::env::current_exe().expect("the test has a path"));
        run(child.args(["--exact", "gfx942::kills_a_kernel", "--ignored"]));
    }

    /// What the process of the test above does.
    #[test]
    #[ignore = "its process has no GPU in software afterwards"]
    fn kills_a_kernel() {
        let host = Host::open();
        let channel = RawChannel::<[u64; 2], Block>::new(&host.device, 16, 4096).unwrap();
        let (reader, lanes) = (channel.reader(), 3 * 64);
        let arrived = host.device.alloc_zeroed::<u64>(1).unwrap();
        let arguments = [
            KernelArgument::raw_channel(&channel),
            KernelArgument::buffer(&arrived),
            KernelArgument::value(lanes),
            KernelArgument::value(8u64),
        ];
        let launch = host.launch("faults", Grid::new(3, 64), &arguments);
        assert!(matches!(launch.wait(), Err(Error::Launch { .. })));
        let seen: Vec<[u64; 2]> = reader.rest().flat_map(|page| page.records().collect::<Vec<_>>()).collect();
        let mut told: Vec<u64> = seen.iter().filter(|[_, i]| *i == 0).map(|[lane, _]| *lane).collect();
        told.sort();
        assert_eq!(told, (0..lanes).collect::<Vec<_>>());
        assert_eq!(channel.statistics().swept_pages, 3);
    }

    #[test]
    fn a_launch_that_waits_for_pages_ends_when_it_is_cancelled() {
        let host = Host::open();
        let channel = RawChannel::<[u64; 2], Block>::new(&host.device, 16, 128).unwrap();
        let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(50u64)];
        let launch = host.launch("records", Grid::new(4, 64), &arguments);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!launch.is_done());
        launch.cancel();
        assert!(matches!(launch.wait(), Err(Error::Launch { .. })));
        assert!(host.stream.synchronize().is_err());
        let kept: u64 = channel.reader().rest().map(|page| page.records().len() as u64).sum();
        assert_eq!(kept + channel.statistics().dropped_records, 4 * 64 * 50);
        // Nor does one wait whose channel is gone.
        let again = [KernelArgument::raw_channel(&channel), KernelArgument::value(50u64)];
        drop(channel);
        host.launch("records", Grid::new(4, 64), &again);
        host.stream.synchronize().unwrap();
    }

    #[test]
    fn channels_of_other_devices_and_other_sizes_are_refused() {
        let (host, other) = (Host::open(), Device::open("gfx942").unwrap());
        let channel = RawChannel::<[u64; 2], Block>::new(&other, 16, 128).unwrap();
        let kernel = host.code.kernel("records").unwrap();
        let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(1u64)];
        // SAFETY: nothing is launched.
        let launched = unsafe { kernel.launch(&host.stream, Grid::new(1, 1), &arguments) };
        assert!(matches!(launched, Err(Error::OtherDevice { .. })), "{launched:?}");
        // SAFETY: as above.
        let launched = unsafe {
            kernel.launch(&host.stream, Grid::new(1, 1), &[arguments[1].clone(), arguments[1].clone()])
        };
        assert!(matches!(launched, Err(Error::Refused(_))), "{launched:?}");
    }
}

mod nvptx64 {
    use super::*;

    /// NVIDIA's assembler, where it is installed.
    pub fn ptxas() -> Option<Command> {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
        let places = [PathBuf::from("ptxas"), cache.join("hostcall/ptxas")];
        let is_there = |place: &PathBuf| Command::new(place).arg("--version").output().is_ok();
        places.into_iter().find(is_there).map(Command::new)
    }

    #[test]
    fn kernels_in_c_are_assembled() {
        let ptx = kernels(&NVIDIA, "tests/c/raw_kernels.c", "kernels.ptx");
        let text = std::fs::read_to_string(&ptx).unwrap();
        // A release before each place that is stored, system-wide; what it is called depends on PTX's version.
        let fences = ["fence.acq_rel.sys", "fence.release.sys"];
        assert!(fences.iter().any(|fence| text.contains(fence)) && text.contains("st.relaxed.sys"));
        let Some(mut ptxas) = ptxas() else { return };
        run(ptxas.args(["-arch=sm_90", "-o", "/dev/null"]).arg(&ptx));
    }
}

/// The example in HIP and CUDA C++, compiled for the GPU in software.
mod example {
    use super::*;

    /// What clang needs in place of CUDA's and HIP's headers.
    const LANGUAGE: [&str; 4] = ["-std=c++17", "-nogpulib", "-include", "gpu.h"];

    fn compile(compiler: &[&str], name: &str) -> PathBuf {
        let folder = source("tests/c").display().to_string();
        kernels(&[compiler, &LANGUAGE, &["-I", &folder]].concat(), "examples/walk.hip", name)
    }

    static CODE: LazyLock<PathBuf> = LazyLock::new(|| {
        let device = ["--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc"];
        compile(&[&["-x", "hip", "--offload-arch=gfx942"][..], &device].concat(), "walk.co")
    });

    static HOST: LazyLock<PathBuf> = LazyLock::new(|| common::compile("examples/raw.c", &common::shared()));

    #[test]
    fn a_host_in_c_reads_what_a_kernel_in_hip_writes() {
        let printed = run(Command::new(&*HOST).arg("gfx942").arg(&*CODE).args(["600", "50"]));
        // Three workgroups of 256 lanes walk through the nodes.
        let mut reads = vec![0; 4096];
        for lane in 0..768 {
            (0..50).fold(lane, |node, _| {
                reads[node] += 1;
                (node * 5 + 3) % reads.len()
            });
        }
        let (sum, most): (u64, _) = (reads.iter().sum(), reads.iter().max().unwrap());
        let of_channel = format!("{} bytes, 0 dropped, 0 pages left open", 16 * sum);
        let expected = format!("{sum} reads, at most {most} of a node; {of_channel}\n");
        assert_eq!(printed, expected);
    }

    #[test]
    fn the_kernel_is_assembled_as_cuda() {
        let cuda = ["-x", "cuda", "--cuda-gpu-arch=sm_90", "--cuda-device-only", "--cuda-feature=+ptx78"];
        // A CUDA that is installed may be later than clang.
        let flags = ["-nocudainc", "-Wno-unknown-cuda-version", "-S"];
        let ptx = compile(&[&cuda[..], &flags].concat(), "walk.ptx");
        let Some(mut ptxas) = nvptx64::ptxas() else { return };
        run(ptxas.args(["-arch=sm_90", "-o", "/dev/null"]).arg(&ptx));
    }

    /// CUDA's own compiler, on machines that have it.
    #[test]
    fn nvcc_compiles_it_for_gpu_and_host() {
        if Command::new("nvcc").arg("--version").output().is_err() {
            return;
        }
        let mut command = Command::new("nvcc");
        command.args(["-x", "cu", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-c", "-I"]);
        command.arg(source("include")).arg(source("examples/walk.hip"));
        run(command.arg("-o").arg(temporary("walk.o")));
    }

    #[test]
    fn what_cannot_be_is_refused_and_told() {
        let host = common::compile("tests/c/raw_checks.c", &common::shared());
        assert_eq!(run(Command::new(host).arg(&*CODE)), "passed\n");
    }

    #[test]
    fn a_host_has_no_error_under_valgrind() {
        let mut command = common::valgrind();
        command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]).arg(&*HOST);
        run(command.arg("gfx942").arg(&*CODE).args(["70", "3"]));
    }
}
