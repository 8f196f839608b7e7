//! A sanitizer of memory accesses: kernels stream each access outside of its buffer while they run, and go on; in the end they
//! tell how often each part of a buffer was read and written. What was found is compared with the faults that the kernels have.

use clap::Parser;
use hostcall::raw::{Block, RawChannel, RawReader};
use hostcall::{CallError, DeviceBuffer, Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::sanitizer::{
    BUFFERS, NO_PLACE, PARTS, Places, PlacesHandler, SOURCE, TILE, Touched, Violation, blur, double, gather,
    number, transpose,
};
use plotters::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Finds accesses outside of buffers
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// A drawing of where the accesses were
    #[arg(long, default_value = "sanitizer.svg")]
    out: PathBuf,
}

/// Lanes of a workgroup, and of the grid.
const WORKGROUP: usize = 32;
const LANES: usize = 8 * WORKGROUP;

/// Pixels that are blurred, values that are doubled.
const PIXELS: usize = 4000;
/// Rows and columns of the matrix: the last tile of columns is not full.
const ROWS: usize = 60;
const COLUMNS: usize = 90;
/// Values of the table, and how many of them are taken.
const TABLE: usize = 500;
const TAKEN: usize = 2000;
/// The index that stands for none.
const NONE: u32 = u32::MAX;

/// The kernels' names, and those of their buffers, by their numbers.
const KERNELS: [(&str, &[&str]); 4] = [
    ("blur", &["pixels", "blurred"]),
    ("transpose", &["matrix", "turned"]),
    ("gather", &["indices", "table", "taken"]),
    ("double", &["values"]),
];

// ANCHOR: places
/// The places in the source that kernels have told of.
#[derive(Clone, Default)]
struct Sources(Arc<Mutex<Vec<(String, u32, u32)>>>);

impl PlacesHandler for Sources {
    fn number(&self, file: &str, line: u32, column: u32) -> Result<u32, CallError> {
        let mut places = self.0.lock().unwrap();
        let is_it = |place: &(String, u32, u32)| (place.0.as_str(), place.1, place.2) == (file, line, column);
        let number = places.iter().position(is_it).unwrap_or_else(|| {
            places.push((file.to_owned(), line, column));
            places.len() - 1
        });
        Ok(number as u32)
    }
}
// ANCHOR_END: places

/// An access outside of a buffer: kernel, buffer, whether it is a write, index, lane, workgroup.
type Outside = (u8, u8, bool, i64, u32, u32);

/// Reads and writes of each part of each buffer of each kernel.
type Counts = [[[[u64; 2]; PARTS]; BUFFERS]; KERNELS.len()];

/// What is known of the accesses.
#[derive(Default, PartialEq)]
struct Accesses {
    outside: BTreeMap<Outside, u64>,
    counts: Counts,
}

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let sources = Sources::default();
    let device =
        hostcall_examples::device(&arguments.device).inline_service(Places::serve(sources.clone())).open()?;
    let stream = device.stream()?;
    let numbers = |count: usize| (0..count as u32).map(|i| i % 251).collect::<Vec<_>>();
    let (pixels, blurred) = (device.upload(&numbers(PIXELS))?, device.alloc_zeroed::<u32>(PIXELS)?);
    let cells: Vec<f32> = (0..ROWS * COLUMNS).map(|i| i as f32).collect();
    let (matrix, turned) = (device.upload(&cells)?, device.alloc_zeroed::<f32>(ROWS * COLUMNS)?);
    let indices = device.upload(&(0..TAKEN).map(index).collect::<Vec<_>>())?;
    let table = device.upload(&(0..TABLE as u64).map(|i| i * i).collect::<Vec<_>>())?;
    let taken = device.alloc_zeroed::<u64>(TAKEN)?;
    let values = device.upload(&numbers(PIXELS))?;

    // ANCHOR: run
    let violations = RawChannel::<Violation, Block>::new(&device, 64, 4096)?;
    let touched = RawChannel::<Touched, Block>::new(&device, 64, 4096)?;
    let (outside, counted) = (violations.reader(), touched.reader());
    let grid = Grid::new((LANES / WORKGROUP) as u32, WORKGROUP as u32);
    let (rows, columns) = (ROWS as u32, COLUMNS as u32);
    blur.launch(&stream, grid, (&pixels, &blurred, &violations, &touched))?;
    transpose.launch(&stream, grid, (rows, columns, &matrix, &turned, &violations, &touched))?;
    gather.launch(&stream, grid, (&indices, &table, &taken, &violations, &touched))?;
    let last = double.launch(&stream, grid, (&values, &violations, &touched))?;
    let mut findings = Findings::new(sources);
    loop {
        // What was written before the last launch was done is there once it is.
        let is_done = last.is_done();
        findings.read(&outside, &counted, Duration::from_millis(1))?;
        if is_done {
            break;
        }
    }
    stream.synchronize()?;
    findings.read(&outside, &counted, Duration::ZERO)?;
    // ANCHOR_END: run

    findings.print();
    draw(&arguments.out, &findings.accesses)
        .map_err(|error| format!("cannot draw {}: {error}", arguments.out.display()))?;
    check_results(&blurred, &turned, &taken, &values)?;
    findings.check(&expected())?;
    let count: u64 = findings.accesses.outside.values().sum();
    let places = findings.places.len();
    println!("{}: {count} accesses outside of buffers, at {places} places", arguments.out.display());
    Ok(())
}

/// Index `i` of those whose values are taken from the table: each 97th is none.
fn index(i: usize) -> u32 {
    if i % 97 == 96 { NONE } else { (i * i % TABLE) as u32 }
}

/// What kernels have told.
struct Findings {
    sources: Sources,
    accesses: Accesses,
    /// How many violations of a kernel each place has, and of which buffer.
    places: BTreeMap<(u8, u32, u8, u8), u64>,
}

impl Findings {
    fn new(sources: Sources) -> Self {
        Self { sources, accesses: Accesses::default(), places: BTreeMap::new() }
    }

    // ANCHOR: read
    /// Reads what there is, and waits so long for more.
    fn read(
        &mut self,
        outside: &RawReader<Violation>,
        counted: &RawReader<Touched>,
        longest: Duration,
    ) -> Result<(), Box<dyn Error>> {
        while let Some(page) = outside.next_within(longest) {
            page.records().try_for_each(|violation| self.add(violation))?;
        }
        for page in counted.rest() {
            page.records().try_for_each(|touched| self.count(touched))?;
        }
        Ok(())
    }
    // ANCHOR_END: read

    /// Adds a violation, and says it at once if it is the first of its kind at its place.
    fn add(&mut self, violation: Violation) -> Result<(), Box<dyn Error>> {
        let Violation { index, len, lane, workgroup, place, kernel, buffer, bytes, is_write } = violation;
        let (kernel_name, buffers) = *KERNELS.get(usize::from(kernel)).ok_or("there is no such kernel")?;
        let name = *buffers.get(usize::from(buffer)).ok_or("the kernel has no such buffer")?;
        let count = self.places.entry((kernel, place, buffer, is_write)).or_default();
        *count += 1;
        if *count == 1 {
            let what = if is_write == 0 { "reads" } else { "writes" };
            println!(
                "{}: {kernel_name}: lane {lane} of workgroup {workgroup} {what} {name}[{index}] ({bytes} bytes) of {len}",
                self.sources.name(place)
            );
        }
        let key = (kernel, buffer, is_write != 0, index, lane, workgroup);
        *self.accesses.outside.entry(key).or_default() += 1;
        Ok(())
    }

    fn count(&mut self, touched: Touched) -> Result<(), Box<dyn Error>> {
        let Touched { kernel, buffer, part, reads, writes } = touched;
        let buffers = self.accesses.counts.get_mut(usize::from(kernel)).ok_or("there is no such kernel")?;
        let parts = buffers.get_mut(usize::from(buffer)).ok_or("a kernel has no so many buffers")?;
        let [all_reads, all_writes] = parts.get_mut(part as usize).ok_or("a buffer has no such part")?;
        *all_reads += u64::from(reads);
        *all_writes += u64::from(writes);
        Ok(())
    }

    /// Prints how many accesses were outside, and how often each part of each buffer was read and written.
    fn print(&self) {
        println!("\noutside  what    buffer     place");
        for ((kernel, place, buffer, is_write), count) in &self.places {
            let what = if *is_write == 0 { "reads" } else { "writes" };
            let name = KERNELS[usize::from(*kernel)].1[usize::from(*buffer)];
            println!("{count:7}  {what:6}  {name:9}  {}", self.sources.name(*place));
        }
        println!("\nkernel     buffer     reads and writes of each part, from the first to the last");
        for ((kernel, buffers), counts) in KERNELS.iter().zip(&self.accesses.counts) {
            for (buffer, parts) in buffers.iter().zip(counts) {
                for (side, what) in ["reads", "writes"].into_iter().enumerate() {
                    let sum: u64 = parts.iter().map(|part| part[side]).sum();
                    if sum > 0 {
                        println!("{kernel:9}  {buffer:9}  {}  {sum:6} {what}", bars(parts, side));
                    }
                }
            }
        }
    }

    /// Compares with what is known of the kernels: each access, and the lines of the source.
    fn check(&self, expected: &Accesses) -> Result<(), Box<dyn Error>> {
        for (outside, count) in &self.accesses.outside {
            if expected.outside.get(outside) != Some(count) {
                return Err(format!("{outside:?} was found {count} times, and is no such fault").into());
            }
        }
        if let Some(outside) = expected.outside.keys().find(|key| !self.accesses.outside.contains_key(key)) {
            return Err(format!("{outside:?} was not found").into());
        }
        if self.accesses != *expected {
            return Err("other parts of buffers were counted than were accessed".into());
        }
        let sources = self.sources.0.lock().unwrap();
        let found: BTreeSet<u32> = sources.iter().map(|(_, line, _)| *line).collect();
        let is_fault = |line: &str| line.trim_start().starts_with("// FAULT:");
        // Lines count from 1 on.
        let faults = SOURCE
            .lines()
            .enumerate()
            .filter(|(_, line)| is_fault(line))
            .map(|(i, _)| i as u32 + 2)
            .collect();
        if found != faults {
            return Err(format!("faults were found in lines {found:?}, and are in lines {faults:?}").into());
        }
        Ok(())
    }
}

impl Sources {
    fn name(&self, place: u32) -> String {
        let places = self.0.lock().unwrap();
        match places.get(place as usize) {
            Some((file, line, column)) if place != NO_PLACE => format!("{file}:{line}:{column}"),
            _ => "an unknown place".to_owned(),
        }
    }
}

/// A bar for each part: as high as its reads or writes, beside the most that a part has.
fn bars(parts: &[[u64; 2]; PARTS], side: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = parts.iter().map(|part| part[side]).max().unwrap_or(0).max(1);
    parts.iter().map(|part| BARS[(8 * part[side]).div_ceil(most) as usize]).collect()
}

/// What the kernels access, as their sources say it.
fn expected() -> Accesses {
    let mut all = Accesses::default();
    let mut access = |i: usize, kernel: u8, buffer: u8, len: usize, is_write: bool, index: i64| {
        if (0..len as i64).contains(&index) {
            let part = index as usize * PARTS / len;
            all.counts[usize::from(kernel)][usize::from(buffer)][part][usize::from(is_write)] += 1;
        } else {
            let lane = i % LANES;
            let key = (kernel, buffer, is_write, index, lane as u32, (lane / WORKGROUP) as u32);
            *all.outside.entry(key).or_default() += 1;
        }
    };
    for i in 0..PIXELS {
        (-1..=1).for_each(|beside| access(i, number::BLUR, 0, PIXELS, false, i as i64 + beside));
        access(i, number::BLUR, 1, PIXELS, true, i as i64);
    }
    let all_columns = COLUMNS.next_multiple_of(TILE);
    for (row, column) in (0..ROWS).flat_map(|row| (0..all_columns).map(move |column| (row, column))) {
        let (i, cells) = (row * all_columns + column, ROWS * COLUMNS);
        access(i, number::TRANSPOSE, 0, cells, false, (row * COLUMNS + column) as i64);
        access(i, number::TRANSPOSE, 1, cells, true, (column * ROWS + row) as i64);
    }
    for i in 0..TAKEN {
        access(i, number::GATHER, 0, TAKEN, false, i as i64);
        access(i, number::GATHER, 1, TABLE, false, index(i).into());
        access(i, number::GATHER, 2, TAKEN, true, i as i64);
    }
    for i in 0..PIXELS {
        [false, true]
            .into_iter()
            .for_each(|is_write| access(i, number::DOUBLE, 0, PIXELS, is_write, i as i64));
    }
    all
}

/// Whether the kernels computed what they do with a 0 for what lies outside.
fn check_results(
    blurred: &DeviceBuffer<u32>,
    turned: &DeviceBuffer<f32>,
    taken: &DeviceBuffer<u64>,
    values: &DeviceBuffer<u32>,
) -> Result<(), Box<dyn Error>> {
    let pixel = |i: usize| if (1..=PIXELS).contains(&i) { (i as u32 - 1) % 251 } else { 0 };
    let is_blurred = (1..=PIXELS).map(|i| (pixel(i - 1) + pixel(i) + pixel(i + 1)) / 3).eq(blurred.read()?);
    let cell = |i: usize| (i % ROWS * COLUMNS + i / ROWS) as f32;
    let is_turned = (0..ROWS * COLUMNS).map(cell).eq(turned.read()?);
    let value = |i: usize| if index(i) == NONE { 0 } else { u64::from(index(i)).pow(2) };
    let is_taken = (0..TAKEN).map(value).eq(taken.read()?);
    let is_doubled = (0..PIXELS as u32).map(|i| 2 * (i % 251)).eq(values.read()?);
    match is_blurred && is_turned && is_taken && is_doubled {
        true => Ok(()),
        false => Err("the kernels computed something else than they do without the sanitizer".into()),
    }
}

/// Draws reads above and writes below a line for each part of each buffer, and beside it what was outside.
fn draw(file: &Path, accesses: &Accesses) -> Result<(), Box<dyn Error>> {
    let charts: Vec<_> = (0..KERNELS.len())
        .flat_map(|kernel| (0..KERNELS[kernel].1.len()).map(move |buffer| (kernel, buffer)))
        .collect();
    let area = SVGBackend::new(file, (900, 640)).into_drawing_area();
    area.fill(&WHITE)?;
    let areas = area.split_evenly((charts.len().div_ceil(2), 2));
    for ((kernel, buffer), area) in charts.into_iter().zip(areas) {
        let parts = &accesses.counts[kernel][buffer];
        let most = parts.iter().flatten().max().copied().unwrap_or(0).max(1) as f64;
        let ends = PARTS as f64;
        let caption = format!("{}: {}", KERNELS[kernel].0, KERNELS[kernel].1[buffer]);
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .caption(caption, ("sans-serif", 14))
            .y_label_area_size(44)
            .build_cartesian_2d(-4.0..ends + 4.0, -most..most)?;
        let count = |count: &f64| format!("{:.0}", count.abs());
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_labels(5)
            .y_label_formatter(&count)
            .draw()?;
        let bar = |x: usize, height: f64, color: RGBColor| {
            let (from, to) = (x as f64 + 0.1, x as f64 + 0.9);
            Rectangle::new([(from, 0.0), (to, height)], color.filled())
        };
        for (side, sign, color) in [(0, 1.0, RGBColor(40, 90, 200)), (1, -1.0, RGBColor(40, 150, 90))] {
            let touched = parts.iter().enumerate().filter(|(_, part)| part[side] > 0);
            chart.draw_series(touched.map(|(x, part)| bar(x, sign * part[side] as f64, color)))?;
        }
        for (is_before, from) in [(true, -3.4), (false, ends + 0.6)] {
            for (is_write, end) in [(false, most), (true, -most)] {
                let is_here = |key: &Outside| {
                    (key.0, key.1, key.2) == (kernel as u8, buffer as u8, is_write)
                        && (key.3 < 0) == is_before
                };
                let outside = accesses.outside.iter().filter(|(key, _)| is_here(key));
                let count: u64 = outside.map(|(_, count)| count).sum();
                if count > 0 {
                    let corners = [(from, 0.0), (from + 2.8, end)];
                    chart.draw_series([Rectangle::new(corners, RED.filled())])?;
                    let style = ("sans-serif", 12).into_font().color(&WHITE);
                    chart.draw_series([Text::new(count.to_string(), (from + 0.2, end * 0.6), style)])?;
                }
            }
        }
    }
    area.present()?;
    Ok(())
}
