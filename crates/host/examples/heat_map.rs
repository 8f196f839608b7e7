//! A heat map of cache lines: a kernel streams the addresses that it reads, and the host counts them by line while it runs.
//!
//! `cargo run --release -p hostcall --example heat_map` runs it on the software device. With a file's name it records the
//! addresses there too, for `hostcall trace info`, `dump` and `export`.

use hostcall::raw::{Block, RawChannel, RawStream};
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Plain, kernel};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of a cache line of a GPU.
const LINE_BYTES: u64 = 128;

/// Keys that are looked for by each lane.
const SEARCHES: u32 = 64;

/// A value that a lane looked at.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
#[hostcall(format = "lane {lane} read {address:#x}, at distance {distance}")]
struct Read {
    address: u64,
    lane: u32,
    /// From the value that it looked at before.
    #[hostcall(unit = "values")]
    distance: i32,
}

/// Searches for keys in sorted values, and tells of each value that it looks at.
#[kernel]
fn search(
    lane: &Lane,
    values: &[u64],
    found: &[Global<u32>],
    searches: u32,
    reads: RawStream<'_, Read, Block>,
) {
    let id = lane.global_id();
    let mut count = 0;
    for i in 0..searches {
        let key = (id as u64 * 7919 + u64::from(i) * 104_729) % (2 * values.len() as u64);
        let (mut low, mut high, mut last) = (0, values.len(), 0);
        while low < high {
            let middle = (low + high) / 2;
            let (address, distance) = (&raw const values[middle] as u64, middle as i32 - last);
            reads.write(lane, &Read { address, lane: id as u32, distance });
            last = middle as i32;
            match values[middle] < key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        count += u32::from(low < values.len() && values[low] == key);
    }
    found[id].set(count);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let grid = Grid::new(8, 32);
    let values = device.upload(&(0..1u64 << 12).map(|i| 2 * i).collect::<Vec<_>>())?;
    let found = device.alloc_zeroed::<u32>(8 * 32)?;
    let channel = RawChannel::<Read, Block>::new(&device, 256, 4096)?;
    if let Some(path) = std::env::args().nth(1) {
        let recording = channel.record(&path, "reads")?;
        search.launch(&stream, grid, (&values, &found, SEARCHES, &channel))?;
        stream.synchronize()?;
        println!("{path}: {} bytes", recording.finish()?.bytes);
    }
    let reader = channel.reader();
    let launch = search.launch(&stream, grid, (&values, &found, SEARCHES, &channel))?;
    let mut heat = BTreeMap::<u64, u64>::new();
    loop {
        // What was written before the launch was done is there once it is.
        let is_done = launch.is_done();
        while let Some(page) = reader.next_within(Duration::from_millis(1)) {
            page.records().for_each(|read| *heat.entry(read.address / LINE_BYTES).or_default() += 1);
        }
        if is_done {
            break;
        }
    }
    stream.synchronize()?;
    reader.rest().for_each(|page| {
        page.records().for_each(|read| *heat.entry(read.address / LINE_BYTES).or_default() += 1);
    });
    let reads: u64 = heat.values().sum();
    let first = *heat.keys().next().ok_or("the kernel read nothing")?;
    let mut hottest: Vec<_> = heat.iter().collect();
    hottest.sort_by_key(|(line, count)| (std::cmp::Reverse(**count), **line));
    println!("{reads} reads of {} lines; the hottest:", heat.len());
    for (line, count) in hottest.into_iter().take(12) {
        let stars = "*".repeat((60 * count / reads.max(1)) as usize);
        println!("line {:4}  {count:7}  {stars}", line - first);
    }
    Ok(())
}
