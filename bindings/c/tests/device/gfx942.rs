//! Kernels in C on the GPU in software.

use crate::common::run;
use crate::{kernels, texts_of};
use hostcall::raw::{Block, DropNewest, Policy, RawChannel, RawPage, RawStatistics};
use hostcall::rocm::{CodeObject, KernelArgument, Version};
use hostcall::{CallError, Device, Error, Grid, Stream, service};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::word::check_of;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// What C is compiled with for a GPU.
const AMD: [&str; 5] =
    ["-std=c99", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-ffreestanding", "-nogpulib"];

static GFX942: LazyLock<Vec<u8>> = LazyLock::new(|| {
    std::fs::read(kernels(&AMD, "tests/c/raw_kernels.c", "kernels.co")).expect("it was compiled")
});

/// The GPU in software with a stream and the kernels.
struct Host {
    device: Device,
    stream: Stream,
    code: CodeObject,
}

impl Host {
    fn open() -> Self {
        Self::of(Device::open("gfx942").unwrap())
    }

    fn of(device: Device) -> Self {
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
        let seen: Vec<[u64; 2]> = reader.rest().flat_map(|page| page.records().collect::<Vec<_>>()).collect();
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

#[service(number = 700)]
trait Notes {
    fn note(lane: u64);
}

#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<u64>>>);

impl NotesHandler for Noted {
    fn note(&self, lane: u64) -> Result<(), CallError> {
        self.0.lock().unwrap().push(lane);
        Ok(())
    }
}

#[test]
fn what_a_kernel_posts_before_a_fault_arrives() {
    let mut child = Command::new(std::env::current_exe().expect("the test has a path"));
    run(child.args(["--exact", "gfx942::posts_and_faults", "--ignored"]));
}

/// What the process of the test above does.
#[test]
#[ignore = "its process has no GPU in software afterwards"]
fn posts_and_faults() {
    let noted = Noted::default();
    let host = Host::of(Device::builder("gfx942").service(Notes::serve(noted.clone())).open().unwrap());
    let (context, lanes) = (host.device.context("posts").unwrap(), 3 * 64u64);
    let (arrived, note) = (host.device.alloc_zeroed::<u64>(1).unwrap(), Notes::METHODS[0]);
    let arguments = [
        KernelArgument::context(&context),
        KernelArgument::value(u64::from(note.number()) | u64::from(check_of(note.schema())) << 16),
        KernelArgument::buffer(&arrived),
        KernelArgument::value(lanes),
        KernelArgument::value(8u64),
    ];
    let launch = host.launch("posts_and_faults", Grid::new(3, 64), &arguments);
    assert!(matches!(launch.wait(), Err(Error::Launch { .. })));
    context.flush().unwrap();
    let mut noted = std::mem::take(&mut *noted.0.lock().unwrap());
    noted.sort_unstable();
    assert!(noted.into_iter().eq(0..lanes));
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
