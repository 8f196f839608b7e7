//! A heat map of cache lines: a kernel streams the addresses that it reads, and the host counts them by line while it runs.

use clap::Parser;
use hostcall::raw::{Block, RawChannel, RawPage};
use hostcall::{Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::heat_map::{Read, key, search};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Counts the cache lines that a search reads
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// Keys that each lane looks for
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    searches: u32,
    /// A drawing of how often each line was read
    #[arg(long, default_value = "heat_map.svg")]
    out: PathBuf,
    /// A file for the addresses, which `hostcall trace info`, `dump` and `export` read
    #[arg(long)]
    record: Option<PathBuf>,
}

/// Bytes of a cache line of a GPU.
const LINE_BYTES: u64 = 128;

/// Lanes of the grid.
const LANES: usize = 8 * 32;

/// Values that are searched.
const VALUES: usize = 1 << 12;

/// How often each cache line was read.
type Heat = BTreeMap<u64, u64>;

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let device = hostcall_examples::device(&arguments.device).open()?;
    let stream = device.stream()?;
    let grid = Grid::new(LANES as u32 / 32, 32);
    let values = device.upload(&(0..VALUES as u64).map(|i| 2 * i).collect::<Vec<_>>())?;
    let found = device.alloc_zeroed::<u32>(LANES)?;
    // ANCHOR: record
    let channel = RawChannel::<Read, Block>::new(&device, 256, 4096)?;
    if let Some(path) = &arguments.record {
        let recording = channel.record(path, "reads")?;
        search.launch(&stream, grid, (&values, &found, arguments.searches, &channel))?;
        stream.synchronize()?;
        println!("{}: {} bytes", path.display(), recording.finish()?.bytes);
    }
    // ANCHOR_END: record
    // ANCHOR: read
    let reader = channel.reader();
    let launch = search.launch(&stream, grid, (&values, &found, arguments.searches, &channel))?;
    let (mut heat, mut meanwhile) = (Heat::new(), 0);
    loop {
        // What was written before the launch was done is there once it is.
        let is_done = launch.is_done();
        while let Some(page) = reader.next_within(Duration::from_millis(1)) {
            count(&page, &mut heat);
            meanwhile += if launch.is_done() { 0 } else { page.records().len() };
        }
        if is_done {
            break;
        }
    }
    stream.synchronize()?;
    reader.rest().for_each(|page| count(&page, &mut heat));
    // ANCHOR_END: read

    let reads: u64 = heat.values().sum();
    let (expected, found_by_host) = on_the_host(arguments.searches);
    if reads != expected || found.read()? != found_by_host {
        return Err(format!("the host's searches read {expected} values, these {reads}").into());
    }
    let first = *heat.keys().next().ok_or("the kernel read nothing")?;
    let mut hottest: Vec<_> = heat.iter().collect();
    hottest.sort_by_key(|(line, count)| (std::cmp::Reverse(**count), **line));
    println!(
        "{reads} reads of {} lines, {meanwhile} of them told while the kernel ran; the hottest:",
        heat.len()
    );
    for (line, count) in hottest.into_iter().take(12) {
        let stars = "*".repeat((60 * count / reads.max(1)) as usize);
        println!("line {:4}  {count:7}  {stars}", line - first);
    }
    draw(&arguments.out, &heat, first)
        .map_err(|error| format!("cannot draw {}: {error}", arguments.out.display()))?;
    println!("{}: {reads} reads of {} lines", arguments.out.display(), heat.len());
    Ok(())
}

/// Lines of a row of the drawing.
const ROW: u64 = 32;

/// Draws a cell for each cache line, from the first one on: the more often it was read, the darker.
fn draw(file: &Path, heat: &Heat, first: u64) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(file, (720, 260)).into_drawing_area();
    area.fill(&WHITE)?;
    let rows = heat.keys().last().map_or(0, |line| (line - first) / ROW + 1);
    let most = heat.values().max().copied().unwrap_or(1) as f64;
    let least = heat.values().min().copied().unwrap_or(1) as f64;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .caption(format!("Reads of each cache line: {least} (light) to {most} (dark)"), ("sans-serif", 14))
        .x_label_area_size(32)
        .y_label_area_size(44)
        .build_cartesian_2d(0..ROW, 0..rows)?;
    // The first row is above the others.
    let first_of_row =
        |above: &u64| rows.checked_sub(*above).map_or(String::new(), |row| (row * ROW).to_string());
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(9)
        .y_labels(rows as usize + 1)
        .x_desc("cache line, from the one that its row begins with")
        .y_label_formatter(&first_of_row)
        .draw()?;
    let cells = heat.iter().map(|(line, count)| {
        let (above, column) = (rows - (line - first) / ROW, (line - first) % ROW);
        // Most lines are read a hundredth as often as the hottest one.
        let warmth = (*count as f64 / least).ln() / (most / least).ln().max(1e-9);
        let part = |cold: f64, hot: f64| (cold + warmth * (hot - cold)) as u8;
        let color = RGBColor(part(255.0, 120.0), part(240.0, 0.0), part(205.0, 20.0));
        Rectangle::new([(column, above - 1), (column + 1, above)], color.filled())
    });
    chart.draw_series(cells)?;
    area.present()?;
    Ok(())
}

// ANCHOR: count
/// Adds the reads of a page.
fn count(page: &RawPage<Read>, heat: &mut Heat) {
    page.records().for_each(|read| *heat.entry(read.address / LINE_BYTES).or_default() += 1);
}
// ANCHOR_END: count

/// How many values all searches look at, and how many keys each lane finds.
fn on_the_host(searches: u32) -> (u64, Vec<u32>) {
    let mut reads = 0;
    let found = |lane| {
        let is_there = |i: &u32| {
            let key = key(lane, *i, VALUES);
            // The first value that is not smaller is found where half of what is left is left out each time.
            let mut left = 0..VALUES;
            while !left.is_empty() {
                let middle = (left.start + left.end) / 2;
                reads += 1;
                if 2 * (middle as u64) < key { left.start = middle + 1 } else { left.end = middle }
            }
            key.is_multiple_of(2)
        };
        (0..searches).filter(is_there).count() as u32
    };
    let found = (0..LANES).map(found).collect();
    (reads, found)
}
