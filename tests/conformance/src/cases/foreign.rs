//! Kernels that clang compiled of C, which write to raw channels by the functions of `hostcall_device.h`.
#![allow(unsafe_code, reason = "launches kernels whose arguments nobody can check")]

use crate::foreign::load;
use crate::{Context, Outcome, ensure, same};
use hostcall::device::Launch;
use hostcall::graph::{CaptureMode, NodeFailure};
use hostcall::raw::{Block, DropNewest, RawChannel};
use hostcall::rocm::{CodeObject, KernelArgument};
use hostcall::{Device, Error, Grid, LaunchFailure, Stream};
use hostcall_abi::launch::LaunchId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn text(error: Error) -> String {
    error.to_string()
}

struct Host {
    device: Device,
    stream: Stream,
    code: CodeObject,
}

impl Host {
    /// `None` on devices that run no such kernels: the software device, and GPUs for which there are none.
    fn open(context: &Context) -> Result<Option<Self>, String> {
        if context.is_software() {
            return Ok(None);
        }
        let device = Device::open(&context.device).map_err(text)?;
        let Some(code) = load(&device, 0)? else { return Ok(None) };
        let stream = device.stream().map_err(text)?;
        Ok(Some(Self { device, stream, code }))
    }

    fn launch(&self, kernel: &str, grid: Grid, arguments: &[KernelArgument]) -> Result<Launch, String> {
        let kernel = self.code.kernel(kernel).map_err(text)?;
        // SAFETY: the cases give the arguments that their kernels take.
        unsafe { kernel.launch(&self.stream, grid, arguments) }.map_err(text)
    }
}

/// Lanes write side by side; pages are read while the kernel runs, and are far fewer than it fills.
pub fn records(context: &Context) -> Outcome {
    let Some(host) = Host::open(context)? else { return Ok(()) };
    let channel = RawChannel::<[u64; 2], Block>::new(&host.device, 64, 1024).map_err(text)?;
    let (reader, count, lanes) = (channel.reader(), 2000, 3 * 100);
    let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(count)];
    let launch = host.launch("records", Grid::new(3, 100), &arguments)?;
    let (id, wave_size) = (launch.id(), host.device.wave_size());
    let mut found = vec![Vec::new(); lanes];
    loop {
        let is_last = launch.is_done();
        while let Some(page) = reader.next_within(Duration::from_millis(1)) {
            let writer = page.writer();
            same!(writer.launch, id);
            for [lane, i] in page.records() {
                let of_workgroup = lane as u32 % 100;
                same!((lane as u32 / 100, of_workgroup / wave_size), (writer.workgroup, writer.wave));
                found[lane as usize].push(i);
            }
        }
        if is_last {
            break;
        }
    }
    host.stream.synchronize().map_err(text)?;
    for mut of_lane in found {
        // In order as long as the same lane is the first of those that write together.
        of_lane.sort_unstable();
        ensure!(of_lane.into_iter().eq(0..count));
    }
    let counted = channel.statistics();
    same!(counted.bytes, lanes as u64 * count * 16);
    same!((counted.dropped_records, counted.swept_pages, counted.malformed_words), (0, 0, 0));
    Ok(())
}

/// Lanes that go their own ways.
pub fn apart(context: &Context) -> Outcome {
    let Some(host) = Host::open(context)? else { return Ok(()) };
    let channel = RawChannel::<[u64; 3], Block>::new(&host.device, 4096, 128).map_err(text)?;
    let count = 20u64;
    let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(count)];
    host.launch("diverges", Grid::new(2, 150), &arguments)?;
    host.stream.synchronize().map_err(text)?;
    let mut found = BTreeMap::<u64, Vec<u64>>::new();
    for page in channel.reader().rest() {
        for [lane, i, both] in page.records() {
            same!(both, lane ^ i);
            found.entry(lane).or_default().push(i);
        }
    }
    for lane in 0..300 {
        let mut of_lane = found.remove(&lane).unwrap_or_default();
        of_lane.sort_unstable();
        same!((lane, of_lane), (lane, (0..count + lane % 5).collect::<Vec<_>>()));
    }
    same!(channel.statistics().dropped_records, 0);
    Ok(())
}

/// Bytes of one lane of each wave, which go over pages.
pub fn bytes(context: &Context) -> Outcome {
    let Some(host) = Host::open(context)? else { return Ok(()) };
    let channel = RawChannel::<u8, Block>::new(&host.device, 1024, 1024).map_err(text)?;
    let (count, wave_size) = (100, u64::from(host.device.wave_size()));
    let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(count)];
    host.launch("texts", Grid::new(2, 128), &arguments)?;
    host.stream.synchronize().map_err(text)?;
    let mut found = BTreeMap::<u64, Vec<u8>>::new();
    for page in channel.reader().rest() {
        let writer = page.writer();
        let first = u64::from(128 * writer.workgroup) + u64::from(writer.wave) * wave_size;
        page.append_to(found.entry(first).or_default());
    }
    same!(found.len() as u64, 2 * 128 / wave_size);
    for (first, bytes) in found {
        let mut expected = Vec::new();
        for i in 0..count {
            expected.extend((0..7 * i % 300).map(|at| (i + at + first) as u8));
            expected.resize(expected.len().next_multiple_of(8), 0);
        }
        ensure!(bytes == expected);
    }
    Ok(())
}

/// What finds no page is dropped and counted.
pub fn dropped(context: &Context) -> Outcome {
    let Some(host) = Host::open(context)? else { return Ok(()) };
    let channel = RawChannel::<[u64; 2], DropNewest>::new(&host.device, 16, 128).map_err(text)?;
    let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(50u64)];
    host.launch("records", Grid::new(40, 64), &arguments)?;
    host.stream.synchronize().map_err(text)?;
    let kept: usize = channel.reader().rest().map(|page| page.records().len()).sum();
    let counted = channel.statistics();
    ensure!(kept > 0 && kept <= 16 * 8);
    same!(kept as u64 + counted.dropped_records, 40 * 64 * 50);
    Ok(())
}

/// Pages that lanes leave open are closed with what was told of, once the launch is over, and counted.
pub fn left_open(context: &Context) -> Outcome {
    let Some(host) = Host::open(context)? else { return Ok(()) };
    let channel = RawChannel::<[u64; 2], Block>::new(&host.device, 64, 4096).map_err(text)?;
    let (reader, waves) = (channel.reader(), 2 * 128 / u64::from(host.device.wave_size()));
    for turn in 1..=40 {
        host.launch("leaves", Grid::new(2, 128), &[KernelArgument::raw_channel(&channel)])?;
        host.stream.synchronize().map_err(text)?;
        let told = reader.rest().flat_map(|page| page.records().collect::<Vec<_>>());
        same!(told.filter(|[_, i]| *i == 0).count(), 256);
        same!(channel.statistics().swept_pages, waves * turn);
    }
    Ok(())
}

/// A capture takes such kernels: each replay's launch has an id of its own, which its pages say, and one that is cancelled while
/// it waits for pages ends its replay, which says of which kernel.
pub fn captured(context: &Context) -> Outcome {
    let Some(host) = Host::open(context)? else { return Ok(()) };
    // A launch needs more pages than there are.
    let (count, lanes) = (200u64, 16u32);
    let channel = RawChannel::<[u64; 2], Block>::new(&host.device, 16, 1024).map_err(text)?;
    let values = host.device.alloc_zeroed::<u64>(1).map_err(text)?;
    let arguments = [KernelArgument::raw_channel(&channel), KernelArgument::value(count)];
    let graph = host.stream.capture(CaptureMode::ThreadLocal, |stream| {
        stream.fill(&values, 7)?;
        let kernel = host.code.kernel("records")?;
        // SAFETY: the kernel takes these.
        unsafe { kernel.launch(stream, Grid::new(2, lanes / 2), &arguments) }.map(drop)
    });
    let instance = graph.map_err(text)?.named("foreign").instantiate().map_err(text)?;
    let (mut launches, mut records) = (BTreeSet::new(), 0);
    let reader = channel.reader();
    for replays in 1..=5 {
        let replay = instance.launch(&host.stream).map_err(text)?;
        while !replay.is_done() || records < replays * count * u64::from(lanes) {
            let Some(page) = reader.next_within(Duration::from_millis(1)) else { continue };
            let launch = page.writer().launch;
            if launches.insert(launch.to_bits()) {
                // It has not ended: it waits for this page.
                let origin = host.device.origin(launch).ok_or("the launch has no origin")?;
                same!((origin.replay, &*origin.kernel), (replays, "records"));
            }
            records += page.records().count() as u64;
        }
        replay.wait().map_err(text)?;
    }
    let origin = |launch: &u32| host.device.origin(LaunchId::from_bits(*launch));
    same!(launches.iter().find_map(origin), None);
    same!((launches.len(), values.read().map_err(text)?), (5, vec![7]));
    same!(records, 5 * count * u64::from(lanes));
    let replay = instance.launch(&host.stream).map_err(text)?;
    // Once it has begun, nobody reads any more: it waits for a page for ever.
    while reader.next_within(Duration::from_millis(1)).is_none() {}
    replay.cancel();
    let Err(Error::Replay(failure)) = replay.wait() else { return Err("nobody was told".into()) };
    same!((failure.graph.as_str(), failure.replay, failure.what.as_str()), ("foreign", 6, "records"));
    same!((failure.node.numbers(), failure.cause), (&[1][..], NodeFailure::Launch(LaunchFailure::RanToEnd)));
    ensure!(host.stream.synchronize().is_err());
    reader.rest().for_each(drop);
    host.stream.synchronize().map_err(text)?;
    same!(host.device.server().launches().count(), 0);
    Ok(())
}
