//! What each thing costs that a kernel can do: a lane's time, and the host's.

use crate::latency::{Loop, run};
use crate::median;
use crate::run::{Answer, Bed, Options, Result, Row};
use hostcall::hostcall_device::kernel::Kernel;
use hostcall::raw::{DropNewest, RawChannel};
use hostcall::services::Builtins;
use hostcall::trace::Tracer;
use hostcall::{Device, Grid};
use hostcall_bench_kernels::costs::{self as kernels, CostsHandler};
use hostcall_bench_kernels::empty;
use hostcall_bench_kernels::points::{Bare, bare_records};
use std::io;
use std::time::Instant;

/// The host's side.
struct Costs;

impl CostsHandler for Costs {
    fn null(&self) -> Answer<()> {
        Ok(())
    }

    fn sum(&self, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) -> Answer<u64> {
        Ok([a, b, c, d, e, f, g].into_iter().fold(0, u64::wrapping_add))
    }

    fn len(&self, data: &[u8]) -> Answer<u64> {
        Ok(data.len() as u64)
    }

    fn event(&self, _: u64) -> Answer<()> {
        Ok(())
    }
}

/// A device whose standard output goes nowhere.
fn bed(options: &Options, tracer: Option<&Tracer>) -> Result<Bed> {
    let mut builder = Device::builder(&options.device)
        .builtins(Builtins::builder().stdout(io::sink()).build()?)
        .inline_service(kernels::Costs::serve(Costs));
    if let Some(tracer) = tracer {
        builder = builder.trace(tracer);
    }
    Bed::of(options, builder)
}

/// Nanoseconds of one round of a kernel that a lane alone runs.
fn alone(options: &Options, bed: &Bed, kernel: &Loop, count: u64) -> Result<f64> {
    let one = Grid::new(1, 1);
    run(bed, kernel, one, count / 10 + 1)?;
    let times = (0..options.repeats).map(|_| Ok(run(bed, kernel, one, count)? / count as f64));
    Ok(median(times.collect::<Result<_>>()?))
}

/// Nanoseconds from one round to the next of all lanes of many waves: what the host, or the link to it, lets through.
fn of_many(options: &Options, bed: &Bed, kernel: &Loop, count: u64) -> Result<f64> {
    let (workgroups, lanes) = if options.is_software() { (4, 32) } else { (132, 256) };
    let grid = Grid::new(workgroups, lanes);
    run(bed, kernel, grid, count / 10 + 1)?;
    let one = || {
        let start = Instant::now();
        run(bed, kernel, grid, count)?;
        Ok(start.elapsed().as_nanos() as f64 / (f64::from(workgroups * lanes) * count as f64))
    };
    Ok(median((0..options.repeats).map(|_| one()).collect::<Result<_>>()?))
}

/// A kernel with the names of its rows: of a lane alone, and of many, where the host has something to do.
type Cost = (&'static str, Option<&'static str>, &'static Loop, u64);

/// What a lane pays alone, over the loop that does nothing, and what many lanes pay each.
pub fn costs(options: &Options, add: &mut dyn FnMut(Row)) -> Result<()> {
    let quiet = bed(options, None)?;
    let many = if options.is_software() { 500 } else { 100 };
    let row = |bed: &Bed, (name, of_all, kernel, count): Cost, add: &mut dyn FnMut(Row)| -> Result<()> {
        let nothing = alone(options, bed, &kernels::cost_nothing, 200_000)?;
        add(Row::time(name, "ns", (alone(options, bed, kernel, count)? - nothing).max(0.0), None));
        if let Some(name) = of_all {
            add(Row::time(name, "ns", of_many(options, bed, kernel, many)?, None));
        }
        Ok(())
    };
    let costs: [Cost; 13] = [
        ("index_ns", None, &kernels::cost_index, 200_000),
        ("assert_ns", None, &kernels::cost_assert, 200_000),
        ("assert_text_ns", None, &kernels::cost_assert_text, 200_000),
        ("call_ns", Some("call_of_many_ns"), &kernels::cost_call, 20_000),
        ("call_words_ns", Some("call_words_of_many_ns"), &kernels::cost_call_words, 20_000),
        ("call_bytes_ns", Some("call_bytes_of_many_ns"), &kernels::cost_call_bytes, 20_000),
        ("post_ns", Some("post_of_many_ns"), &kernels::cost_post, 200_000),
        ("line_ns", Some("line_of_many_ns"), &kernels::cost_line, 20_000),
        ("line_numbers_ns", Some("line_numbers_of_many_ns"), &kernels::cost_line_numbers, 20_000),
        ("line_device_ns", Some("line_device_of_many_ns"), &kernels::cost_line_device, 20_000),
        ("span_untraced_ns", None, &kernels::cost_span, 200_000),
        ("counter_untraced_ns", None, &kernels::cost_counter, 200_000),
        ("event_untraced_ns", None, &kernels::cost_event, 200_000),
    ];
    costs.into_iter().try_for_each(|cost| row(&quiet, cost, add))?;
    add(panic_us(options, &quiet)?);
    drop(quiet);
    let dir = tempfile::tempdir()?;
    let tracer = Tracer::builder().file(dir.path().join("trace"))?.start()?;
    let traced = bed(options, Some(&tracer))?;
    let record = record_ns(options, &traced)?;
    add(Row::time("record_ns", "ns", record, None));
    // A span writes a record when it begins, and one when it ends.
    let points: [(&str, &Loop, f64); 3] = [
        ("span_traced_ns", &kernels::cost_span, 2.0),
        ("counter_traced_ns", &kernels::cost_counter, 1.0),
        ("event_traced_ns", &kernels::cost_event, 1.0),
    ];
    let nothing = alone(options, &traced, &kernels::cost_nothing, 200_000)?;
    for (name, kernel, records) in points {
        let ns = (alone(options, &traced, kernel, 20_000)? - nothing).max(0.0);
        add(Row::time(name, "ns", ns, Some(records * record)));
    }
    Ok(())
}

/// Nanoseconds of a record of 32 bytes that a lane alone writes to a raw channel.
fn record_ns(options: &Options, bed: &Bed) -> Result<f64> {
    const COUNT: u64 = 20_000;
    let channel = RawChannel::<Bare, DropNewest>::new(&bed.device, 512, 4096)?;
    let (reader, ns) = (channel.reader(), bed.device.alloc_zeroed::<u64>(1)?);
    let one = || {
        reader.rest().for_each(drop);
        bed.launch(&bare_records, Grid::new(1, 1), (&ns, COUNT, &channel))?;
        bed.synchronize()?;
        Ok(ns.read()?[0] as f64 / COUNT as f64)
    };
    one()?;
    Ok(median((0..options.repeats).map(|_| one()).collect::<Result<_>>()?))
}

/// Microseconds from a launch to its panic's report, of a lane alone, beside a launch that does nothing.
fn panic_us(options: &Options, bed: &Bed) -> Result<Row> {
    const LAUNCHES: usize = 50;
    let median_us = |launch: &dyn Fn() -> Result<bool>| -> Result<f64> {
        let times = (0..LAUNCHES * options.repeats).map(|_| {
            let start = Instant::now();
            if launch()? {
                return Err("a launch did not end as it should".into());
            }
            Ok(start.elapsed().as_secs_f64() * 1e6)
        });
        Ok(median(times.collect::<Result<_>>()?))
    };
    let one = Grid::new(1, 1);
    let panics: Kernel<(u64,)> = kernels::panics;
    let failing = median_us(&|| {
        bed.launch(&panics, one, (7,))?;
        Ok(bed.synchronize().is_ok())
    })?;
    let nothing = median_us(&|| {
        bed.launch(&empty, one, ())?;
        Ok(bed.synchronize().is_err())
    })?;
    Ok(Row::time("panic_us", "us", failing, Some(nothing)))
}
