//! A memory-access sanitizer: an instrumented kernel checks each access against its buffer's bounds, streams those that miss
//! while it runs and goes on, and tells in the end how often each part of a buffer was read and written.
//!
//! `cargo run --release -p hostcall --example sanitizer` checks a blur that reads beyond both ends. With a file's name that
//! ends in `.svg` it draws the histogram there: docs/tools-sanitizer.md shows it.

use hostcall::raw::{Block, RawChannel, RawStream};
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Plain, kernel};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::Location;
use std::time::Duration;

/// Parts of a buffer that the histogram tells apart.
const PARTS: usize = 32;

/// Names of the buffers, by their numbers.
const BUFFERS: [&str; 2] = ["pixels", "blurred"];

/// An access beyond a buffer's end.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
#[hostcall(format = "line {line}: lane {lane} came to {index} of buffer {buffer}, which has {len}")]
struct Violation {
    index: u64,
    len: u64,
    lane: u32,
    line: u32,
    buffer: u32,
    /// 0 for a read.
    is_write: u32,
}

/// How often a lane came to a part of a buffer.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Touched {
    buffer: u32,
    part: u32,
    reads: u32,
    writes: u32,
}

/// A buffer whose accesses are checked and counted, as one lane has it.
struct Checked<'k> {
    values: &'k [Global<f32>],
    buffer: u32,
    violations: RawStream<'k, Violation, Block>,
    /// Reads and writes of each part.
    counts: [Cell<[u32; 2]>; PARTS],
}

impl<'k> Checked<'k> {
    fn new(values: &'k [Global<f32>], buffer: u32, violations: RawStream<'k, Violation, Block>) -> Self {
        Self { values, buffer, violations, counts: [const { Cell::new([0; 2]) }; PARTS] }
    }

    /// Returns the value there, or 0 beyond the end.
    #[track_caller]
    fn get(&self, lane: &Lane, index: usize) -> f32 {
        self.check(lane, index, false, Location::caller().line()).map_or(0.0, Global::get)
    }

    /// Stores a value there, but not beyond the end.
    #[track_caller]
    fn set(&self, lane: &Lane, index: usize, value: f32) {
        if let Some(cell) = self.check(lane, index, true, Location::caller().line()) {
            cell.set(value);
        }
    }

    fn check(&self, lane: &Lane, index: usize, is_write: bool, line: u32) -> Option<&'k Global<f32>> {
        let Some(cell) = self.values.get(index) else {
            let (index, len) = (index as u64, self.values.len() as u64);
            let (lane_id, buffer, is_write) = (lane.global_id() as u32, self.buffer, is_write.into());
            self.violations.write(lane, &Violation { index, len, lane: lane_id, line, buffer, is_write });
            return None;
        };
        let counts = &self.counts[index * PARTS / self.values.len()];
        let [reads, writes] = counts.get();
        counts.set(if is_write { [reads, writes + 1] } else { [reads + 1, writes] });
        Some(cell)
    }

    /// Streams what was counted.
    fn tell(&self, lane: &Lane, to: RawStream<'_, Touched, Block>) {
        let buffer = self.buffer;
        for (part, counts) in self.counts.iter().enumerate() {
            let [reads, writes] = counts.get();
            to.write(lane, &Touched { buffer, part: part as u32, reads, writes });
        }
    }
}

/// Takes the mean of each pixel and the two beside it, and forgets that the first and the last have only one.
#[kernel]
fn blur(
    lane: &Lane,
    pixels: &[Global<f32>],
    blurred: &[Global<f32>],
    violations: RawStream<'_, Violation, Block>,
    touched: RawStream<'_, Touched, Block>,
) {
    let from = Checked::new(pixels, 0, violations);
    let to = Checked::new(blurred, 1, violations);
    for i in (lane.global_id()..pixels.len()).step_by(lane.grid_lanes()) {
        let before = from.get(lane, i.wrapping_sub(1));
        let after = from.get(lane, i + 1);
        to.set(lane, i, (before + from.get(lane, i) + after) / 3.0);
    }
    from.tell(lane, touched);
    to.tell(lane, touched);
}

/// What the kernel has told so far.
#[derive(Default)]
struct Findings {
    /// By line, buffer and kind: how many, and the first.
    violations: BTreeMap<(u32, u32, u32), (u64, Option<Violation>)>,
    counts: [[[u64; 2]; PARTS]; BUFFERS.len()],
}

impl Findings {
    fn add_violation(&mut self, violation: Violation) {
        let key = (violation.line, violation.buffer, violation.is_write);
        let (count, first) = self.violations.entry(key).or_default();
        *count += 1;
        first.get_or_insert(violation);
    }

    fn add_touched(&mut self, touched: Touched) {
        let [reads, writes] = &mut self.counts[touched.buffer as usize][touched.part as usize];
        *reads += u64::from(touched.reads);
        *writes += u64::from(touched.writes);
    }

    fn print(&self) {
        for ((line, buffer, is_write), (count, first)) in &self.violations {
            let (what, name) = (if *is_write == 0 { "reads" } else { "writes" }, BUFFERS[*buffer as usize]);
            println!("line {line}: {count} {what} beyond the bounds of `{name}`");
            if let Some(Violation { index, len, lane, .. }) = first {
                println!("  the first: lane {lane} came to {} of {len}", *index as i64);
            }
        }
        for (name, parts) in BUFFERS.iter().zip(&self.counts) {
            let [reads, writes] = [0, 1].map(|kind| parts.iter().map(|part| part[kind]).sum::<u64>());
            println!("`{name}`: {reads} reads, {writes} writes");
        }
    }

    /// Draws reads above and writes below a line for each buffer, and violations beside its ends.
    fn svg(&self) -> String {
        const WIDTH: u64 = 640;
        const ROW: u64 = 130;
        const HALF: u64 = 45;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n",
            WIDTH + 80,
            ROW * BUFFERS.len() as u64
        );
        let most = self.counts.iter().flatten().flatten().max().copied().unwrap_or(0).max(1);
        let mut draw =
            |element: std::fmt::Arguments<'_>| writeln!(svg, "{element}").expect("a string has room");
        for (buffer, parts) in self.counts.iter().enumerate() {
            let (top, name) = (buffer as u64 * ROW, BUFFERS[buffer]);
            let (middle, step) = (top + 20 + HALF, WIDTH / PARTS as u64);
            draw(format_args!("<text x=\"40\" y=\"{}\">{name}: reads above, writes below</text>", top + 14));
            for (part, [reads, writes]) in parts.iter().enumerate() {
                let (x, width) = (40 + part as u64 * step, step - 2);
                let [up, down] = [reads, writes].map(|count| count * HALF / most);
                let y = middle - up;
                draw(format_args!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{up}\" fill=\"#36c\"/>"
                ));
                draw(format_args!(
                    "<rect x=\"{x}\" y=\"{middle}\" width=\"{width}\" height=\"{down}\" fill=\"#3a6\"/>"
                ));
            }
            let of_buffer = self.violations.iter().filter(|((_, of, _), _)| *of == buffer as u32);
            for (_, (count, first)) in of_buffer {
                // What lies before the first value has an index that is negative, were it signed.
                let is_before = first.is_some_and(|first| (first.index as i64) < 0);
                let x = if is_before { 18 } else { 40 + WIDTH + 4 };
                draw(format_args!(
                    "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"{}\" fill=\"#c22\"/><text x=\"{x}\" y=\"{}\" \
                     fill=\"#c22\">{count}</text>",
                    middle - HALF,
                    2 * HALF,
                    middle + HALF + 14
                ));
            }
        }
        svg + "</svg>\n"
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let (pixels, blurred) = (device.alloc_zeroed::<f32>(4000)?, device.alloc_zeroed::<f32>(4000)?);
    let violations = RawChannel::<Violation, Block>::new(&device, 64, 4096)?;
    let touched = RawChannel::<Touched, Block>::new(&device, 64, 4096)?;
    let launch = blur.launch(&stream, Grid::new(8, 32), (&pixels, &blurred, &violations, &touched))?;
    let (missed, counted) = (violations.reader(), touched.reader());
    let mut findings = Findings::default();
    loop {
        // What was written before the launch was done is there once it is.
        let is_done = launch.is_done();
        while let Some(page) = missed.try_next() {
            page.records().for_each(|violation| findings.add_violation(violation));
        }
        while let Some(page) = counted.next_within(Duration::from_millis(1)) {
            page.records().for_each(|touched| findings.add_touched(touched));
        }
        if is_done {
            break;
        }
    }
    stream.synchronize()?;
    missed.rest().for_each(|page| page.records().for_each(|violation| findings.add_violation(violation)));
    counted.rest().for_each(|page| page.records().for_each(|touched| findings.add_touched(touched)));
    findings.print();
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, findings.svg())?;
    }
    Ok(())
}
