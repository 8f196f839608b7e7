//! Rivals: what others do, measured beside the floor of the same traffic.

use crate::floor::{self, LAP, lap_of};
use crate::median;
use crate::run::{Bed, Options, Result, Row, until};
use hostcall::Grid;
use hostcall::hostcall_device::Global;
use hostcall_bench_kernels::rivals::{self, FIFO_ENTRIES};
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Posts a second through one queue for all lanes, `count` of each.
fn fifo_per_s(bed: &Bed, grid: Grid, count: u64) -> Result<f64> {
    /// Entries after which the device is told how far the host has read.
    const TELL: u64 = 256;
    const ENTRIES: u64 = FIFO_ENTRIES as u64;
    let lanes = u64::from(grid.workgroups[0] * grid.workgroup_size[0]);
    let queue = bed.device.pinned::<u64>(2 * FIFO_ENTRIES)?;
    let tail = bed.device.pinned::<u64>(8)?;
    let heads = bed.device.alloc_zeroed::<u64>(2)?;
    let ns = bed.device.alloc_zeroed::<u64>(lanes as usize)?;
    let (total, mut at, mut sum) = (lanes * count, 0, 0u64);
    let start = Instant::now();
    bed.launch(&rivals::fifo, grid, (&heads, &queue, &tail, &ns, count))?;
    {
        let (queue, tail): (&[Global<u64>], &Global<u64>) = (&queue, &tail[0]);
        let queue: &[_; FIFO_ENTRIES] = queue.as_chunks::<2>().0.try_into()?;
        until(|| {
            while at < total {
                let entry: &[Global<u64>; 2] = &queue[at as usize % FIFO_ENTRIES];
                let lap = lap_of(at, ENTRIES);
                let (first, second) = (entry[0].get(), entry[1].get());
                if first & LAP != lap || second & LAP != lap {
                    break;
                }
                sum = sum.wrapping_add(first & !LAP);
                black_box(second);
                at += 1;
                if at % TELL == 0 {
                    tail.set(at);
                }
            }
            at == total
        })?;
    }
    bed.synchronize()?;
    if sum != lanes * (count * (count - 1) / 2) {
        return Err("posts of the rival's queue were lost or changed".into());
    }
    Ok(lanes as f64 * count as f64 / start.elapsed().as_secs_f64())
}

/// Posts through one queue beside the bare posts of as many lanes.
pub fn fifo(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let wave = bed.device.wave_size();
    let cases = [
        ("rival_fifo_1_thread", Grid::new(1, 1), 200_000),
        ("rival_fifo_1_wave", Grid::new(1, wave), 100_000),
        ("rival_fifo_4224", Grid::new(4224 / wave, wave), 5_000),
    ];
    let mut rows = vec![];
    for (name, grid, count) in cases {
        fifo_per_s(&bed, grid, count / 10)?;
        let (mut rates, mut floors) = (vec![], vec![]);
        for _ in 0..options.repeats {
            rates.push(fifo_per_s(&bed, grid, count)?);
            floors.push(floor::bare_posts_per_s(&bed, grid, count)?);
        }
        rows.push(Row::rate(name, "posts/s", median(rates), Some(median(floors))));
    }
    Ok(rows)
}

/// Lines of a launch in [`device_printf`]: they fit the driver's buffer, which drops older lines when it is full.
const LINES: u64 = 8192;
const LAUNCHES: u64 = 100;

/// Prints lines by the driver's own `printf`, to this process's standard output, and gives how many a second. The
/// output is the process's to throw away.
///
/// # Errors
/// When the device has no such thing.
pub fn device_printf(options: &Options) -> Result<f64> {
    let bed = Bed::open(options, None, None)?;
    let grid = Grid::new(32, bed.device.wave_size());
    let lanes = 32 * u64::from(bed.device.wave_size());
    let ns = bed.device.alloc_zeroed::<u64>(lanes as usize)?;
    let mut rate = 0.0;
    for launches in [1, LAUNCHES] {
        let start = Instant::now();
        for _ in 0..launches {
            bed.launch(&rivals::device_printf, grid, (&ns, LINES / lanes))?;
            bed.synchronize()?;
            // The driver prints when it waits for something.
            ns.read()?;
        }
        rate = (launches * LINES) as f64 / start.elapsed().as_secs_f64();
    }
    Ok(rate)
}

/// Lines a second of the driver's `printf`, in a process of its own, whose standard output is a file.
pub fn device_printf_row(options: &Options) -> Result<Row> {
    let path = std::env::temp_dir().join(format!("hostcall-bench-printf-{}", std::process::id()));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "--device-printf", "--device", &options.device]);
    if let Some(image) = &options.image {
        command.arg("--image").arg(image);
    }
    let output = command.stdin(Stdio::null()).stdout(std::fs::File::create(&path)?).stderr(Stdio::piped());
    let output = output.spawn()?.wait_with_output()?;
    let written = std::fs::read(&path)?.iter().filter(|byte| **byte == b'\n').count() as u64;
    std::fs::remove_file(&path)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the driver's printf: {}", said.trim()).into());
    }
    let expected = (1 + LAUNCHES) * LINES;
    if written != expected {
        return Err(format!("the driver's printf wrote {written} lines of {expected}").into());
    }
    Ok(Row::rate("rival_device_printf_lines_per_s", "lines/s", said.trim().parse()?, None))
}
