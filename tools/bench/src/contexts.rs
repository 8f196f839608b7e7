//! Calls and posts of kernels that others launch, by the header `hostcall_device.h`, beside the same of Rust's kernels.
#![allow(unsafe_code, reason = "launches kernels of another compiler")]

use crate::latency::{self, Loop};
use crate::median;
use crate::run::{Bed, Options, Result, Row};
use hostcall::hostcall_device::abi::{service::Method, word::check_of};
use hostcall::rocm::{CodeObject, KernelArgument, Version};
use hostcall::{Context, Grid};
use hostcall_bench_kernels::{self as kernels, Bench};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Compiles kernels, a file and its text, for the bed's device. `None` where there is no compiler.
pub fn compile(bed: &Bed, options: &Options, file: &str, text: &str) -> Result<Option<Vec<u8>>> {
    let folder = tempfile::tempdir()?;
    let (source, made) = (folder.path().join(file), folder.path().join("made"));
    std::fs::write(&source, text)?;
    let header = include_str!("../../../bindings/c/include/hostcall_device.h");
    std::fs::write(folder.path().join("hostcall_device.h"), header)?;
    let target = bed.device.target();
    let mut command = match options.is_nvidia() {
        true => {
            let mut nvcc = Command::new("nvcc");
            nvcc.args(["-O3", "-std=c++17", "-cubin", &format!("-arch={target}")]);
            nvcc
        }
        false => {
            let mut clang = Command::new("clang-22");
            clang.args([
                "-x",
                "hip",
                &format!("--offload-arch={target}"),
                "--cuda-device-only",
                "-O3",
                "-std=c++17",
            ]);
            clang.args(["--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"]);
            clang
        }
    };
    let Ok(output) = command.arg(&source).arg("-o").arg(&made).output() else { return Ok(None) };
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(Some(std::fs::read(made)?))
}

/// What is measured with a context.
struct Foreign<'b> {
    bed: &'b Bed,
    code: CodeObject,
    context: Context,
    repeats: usize,
}

/// A kernel of `contexts.cu`, the method that it calls, and the same kernel in Rust.
struct Pair {
    name: &'static str,
    method: &'static Method,
    rust: &'static Loop,
}

/// Whether a slot is claimed for each call, or held.
#[derive(Clone, Copy)]
enum Slot {
    Claimed = 0,
    Held = 1,
}

impl Foreign<'_> {
    /// Runs a kernel that loops `count` times on a grid, until its posts were handled. Returns the longest lane's time in ns.
    fn run(&self, Pair { name, method, .. }: &Pair, slot: Slot, grid: Grid, count: u64) -> Result<f64> {
        let lanes = grid.workgroups.iter().chain(&grid.workgroup_size).map(|n| *n as usize).product();
        let [ns, failed] = [(); 2].map(|()| self.bed.device.alloc_zeroed::<u64>(lanes));
        let (ns, failed) = (ns?, failed?);
        let method = u64::from(method.number()) | u64::from(check_of(method.schema())) << 16;
        let arguments = [
            KernelArgument::context(&self.context),
            KernelArgument::value(method),
            KernelArgument::buffer(&ns),
            KernelArgument::buffer(&failed),
            KernelArgument::value(count),
            KernelArgument::value(slot as u32),
        ];
        // SAFETY: these are what the kernels of `contexts.cu` take; they write to the two buffers a value a lane, and go by the
        // header's functions with a context of this device.
        unsafe { self.code.kernel(name)?.launch(self.bed.stream(), grid, &arguments) }?;
        self.bed.synchronize()?;
        self.context.flush()?;
        if failed.read()?.iter().any(|failed| *failed != 0) {
            return Err(format!("kernel {name} of contexts.cu got a wrong answer").into());
        }
        Ok(ns.read()?.into_iter().max().unwrap_or(0) as f64)
    }

    /// What `measure` makes of a run of both kernels, by their longest lane's time and by that of the whole run.
    fn beside(
        &self,
        pair: &Pair,
        slot: Slot,
        grid: Grid,
        count: u64,
        measure: impl Fn(f64, Duration) -> f64,
    ) -> Result<[f64; 2]> {
        let timed = |run: &dyn Fn() -> Result<f64>| -> Result<f64> {
            let start = Instant::now();
            let ns = run()?;
            Ok(measure(ns, start.elapsed()))
        };
        let (mut own, mut rust) = (vec![], vec![]);
        for _ in 0..self.repeats {
            own.push(timed(&|| self.run(pair, slot, grid, count))?);
            rust.push(timed(&|| latency::run(self.bed, pair.rust, grid, count))?);
        }
        Ok([median(own), median(rust)])
    }
}

/// Calls and posts from a context. Each figure's floor is that of a Rust kernel in the same run.
pub fn contexts(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let Some(code) = compile(&bed, options, "contexts.cu", include_str!("contexts.cu"))? else {
        let compiler = if options.is_nvidia() { "nvcc" } else { "clang-22" };
        return match options.only.is_empty() {
            true => Ok(Vec::new()),
            false => {
                Err(format!("contexts: there is no `{compiler}`, which compiles their kernels: install it")
                    .into())
            }
        };
    };
    let code = bed.device.load_code_object_bytes(&code, Version::Stacks)?;
    let (context, repeats) = (bed.device.context("contexts.cu")?, options.repeats);
    let foreign = Foreign { bed: &bed, code, context, repeats };
    let [null, sum, event] = Bench::METHODS;
    let nulls = Pair { name: "null_calls", method: null, rust: &kernels::null_calls };
    let wide = Pair { name: "wide_calls", method: sum, rust: &kernels::wide_calls };
    let posts = Pair { name: "posts", method: event, rust: &kernels::posts };
    let (wave, one) = (bed.device.wave_size(), Grid::new(1, 1));
    let mut rows = Vec::new();
    for (name, slot) in [("context_call_held", Slot::Held), ("context_call_claimed", Slot::Claimed)] {
        const COUNT: u64 = 20_000;
        let [own, rust] = foreign.beside(&nulls, slot, one, COUNT, |ns, _| ns / COUNT as f64)?;
        rows.push(Row::time(name, "ns", own, Some(rust)));
    }
    let mut rate = |(name, unit), pair, slot, (grid, each): (Grid, u32), count| -> Result<()> {
        let of = |_, time: Duration| f64::from(each) * count as f64 / time.as_secs_f64();
        let [own, rust] = foreign.beside(pair, slot, grid, count, of)?;
        rows.push(Row::rate(name, unit, own, Some(rust)));
        Ok(())
    };
    let waves = |waves| (Grid::new(waves, 1), waves);
    rate(("context_calls_per_s", "calls/s"), &nulls, Slot::Held, waves(1056), 5_000)?;
    rate(("context_calls_per_s_4224", "calls/s"), &nulls, Slot::Held, waves(4224), 2_000)?;
    rate(("context_calls_claimed_per_s", "calls/s"), &nulls, Slot::Claimed, waves(1056), 2_000)?;
    rate(("context_calls_claimed_per_s_4224", "calls/s"), &nulls, Slot::Claimed, waves(4224), 1_000)?;
    let whole = (Grid::new(264, wave * 4), 1056);
    rate(("context_wide_calls_per_s", "calls/s"), &wide, Slot::Held, whole, 500)?;
    rate(("context_wide_calls_claimed_per_s", "calls/s"), &wide, Slot::Claimed, whole, 500)?;
    for (name, slot, workgroups, lanes, count) in [
        ("context_posts_per_s", Slot::Held, 132, wave, 20_000),
        ("context_posts_per_s_1_lane", Slot::Held, 1, 1, 500_000),
        ("context_posts_per_s_1_wave", Slot::Held, 1, wave, 200_000),
        ("context_posts_claimed_per_s", Slot::Claimed, 132, wave, 5_000),
        ("context_posts_claimed_per_s_1_lane", Slot::Claimed, 1, 1, 50_000),
        ("context_posts_claimed_per_s_1_wave", Slot::Claimed, 1, wave, 50_000),
    ] {
        let (grid, all) = (Grid::new(workgroups, lanes), workgroups * lanes);
        let before = bed.events.load(Ordering::Relaxed);
        rate((name, "posts/s"), &posts, slot, (grid, all), count)?;
        let sum = bed.events.load(Ordering::Relaxed).wrapping_sub(before);
        if sum != 2 * repeats as u64 * u64::from(all) * (count * (count + 1) / 2) {
            return Err("posts were lost or changed".into());
        }
    }
    Ok(rows)
}
