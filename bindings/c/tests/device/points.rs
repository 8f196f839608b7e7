//! Trace points of kernels that others launch: they are in the trace, each once, or counted as lost.

use crate::common::{self, output, run, source};
use crate::contexts::nvidia;
use crate::{CUDA, FLAGS, HIP, hip_kernels, nvptx64, temporary};
use hostcall::rocm::{KernelArgument, Version};
use hostcall::trace::{Event, Names, Point, PointKind, Reader, Tracer};
use hostcall::{Device, Grid, PointFilter, PointRecording};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

const KERNELS: &str = "tests/c/points.hip";

/// The host, whose threads are lanes too.
static HOST: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = temporary("points");
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-g", "-O1", "-pthread"]).args(FLAGS).arg("-I").arg(source("include"));
    command.arg(source("tests/c/points.cpp")).args(common::shared());
    run(command.arg("-o").arg(&program));
    program
});

/// Lanes and rounds of the launches of `points`, the first of them with one context, and the last once that was renewed.
const WHOLE: [(u64, u64); 4] = [(1, 3), (64, 3), (65, 3), (777, 3)];
const MANY: (u64, u64) = (1024, 400);
/// Those of `points_apart`.
const APART: (u64, u64) = (333, 5);
const LANES_OF_BLOCK: u64 = 128;

/// Which span a wave's lane has begun: launch and time, slot, workgroup, wave and point, and the lane.
type Begin = ([u64; 2], [u32; 4], u8);

/// Records by launch, kind and what they say.
#[derive(Default)]
struct Seen {
    /// Records, and the lanes of all.
    counts: HashMap<(String, PointKind, String), (u64, u64)>,
    /// Of launches that have lost none.
    lost: u64,
}

impl Seen {
    fn of(file: &Path) -> Self {
        let (mut seen, mut names, mut begins) = (Self::default(), Names::default(), HashMap::new());
        let mut launches = HashMap::new();
        for event in Reader::new(File::open(file).unwrap()).unwrap() {
            let event = event.unwrap();
            names.note(&event);
            match event {
                Event::Point(point) => {
                    let name =
                        names.point(point.source, point.point).expect("a point's name comes before it");
                    assert!(name.file.ends_with("point_kernels.h"), "{}", name.file);
                    let mut text = Vec::new();
                    name.print(&point, &mut text);
                    let said = format!(
                        "{} {}",
                        if name.kind == PointKind::Event { "" } else { &name.text },
                        common::text(&text)
                    );
                    let next = launches.len();
                    let kernel = names
                        .launch(point.launch)
                        .map_or_else(String::new, |launch| launch.kernel.to_string());
                    // A context that is renewed begins another launch of its name.
                    let number = *launches.entry(point.launch).or_insert(next);
                    let key = (format!("{kernel} {number}"), point.kind, said.trim().to_owned());
                    let count = seen.counts.entry(key).or_default();
                    count.0 += 1;
                    count.1 += u64::from(point.lanes);
                    Self::check_span(&point, &mut begins);
                }
                Event::PointsLost { records, .. } => seen.lost += records,
                Event::Damaged(_) | Event::Missing(_) => panic!("{event:?}"),
                _ => {}
            }
        }
        seen
    }

    /// Each end is that of a begin of the same wave and lane, and comes after it.
    fn check_span(said: &Point, begins: &mut HashMap<Begin, u64>) {
        let Point { launch, slot, workgroup, wave, first_lane, point, .. } = *said;
        let key = |ns| ([launch, ns], [slot, workgroup, wave, point], first_lane);
        match said.kind {
            PointKind::Begin => *begins.entry(key(said.at_ns)).or_default() += 1,
            PointKind::End => {
                assert!(said.began_ns <= said.at_ns);
                let open = begins.entry(key(said.began_ns)).or_default();
                assert!(*open > 0, "an end without its begin: {said:?}");
                *open -= 1;
            }
            PointKind::Counter | PointKind::Event => {}
        }
    }

    fn take(&mut self, launch: &str, kind: PointKind, said: &str) -> (u64, u64) {
        self.counts.remove(&(launch.to_owned(), kind, said.to_owned())).unwrap_or_default()
    }
}

/// Checks the trace of a device whose waves have so many lanes.
fn check(file: &Path, wave_lanes: u64) {
    let mut seen = Seen::of(file);
    let waves = |lanes: u64| {
        let rest = lanes % LANES_OF_BLOCK;
        lanes / LANES_OF_BLOCK * LANES_OF_BLOCK.div_ceil(wave_lanes) + rest.div_ceil(wave_lanes)
    };
    // Whole waves write a record of all of their lanes. On NVIDIA's GPUs the lanes of a wave that is not whole may come apart.
    let lanes: u64 = WHOLE.iter().map(|(lanes, _)| lanes).sum();
    let records: u64 = WHOLE.iter().map(|(lanes, _)| waves(*lanes)).sum();
    let apart: u64 = WHOLE.iter().map(|(lanes, _)| lanes % LANES_OF_BLOCK % wave_lanes).sum();
    let most = if wave_lanes == 32 { records + apart } else { records };
    let first = "kernels of others 0";
    let mut is_of_all = |kind, text: &str, times: u64| {
        let (found, of_lanes) = seen.take(first, kind, text);
        assert_eq!(of_lanes, times * lanes, "{text}");
        assert!((times * records..=times * most).contains(&found), "{text}: {found} records");
        found
    };
    let begins = [("whole", 1), ("round", 3)].map(|(span, times)| is_of_all(PointKind::Begin, span, times));
    is_of_all(PointKind::Event, "nothing to say", 3);
    for (round, half) in ["0", "0.5", "1"].into_iter().enumerate() {
        is_of_all(PointKind::Counter, &format!("half {half}"), 1);
        is_of_all(PointKind::Counter, &format!("below {}", 0 - round as i64), 1);
        is_of_all(PointKind::Event, &format!("{round} of 0x3, true -1.5 -7"), 1);
    }
    let ends = ["whole", "round"].map(|span| seen.take(first, PointKind::End, span).0);
    assert_eq!(ends, begins);
    // Parts of waves write a record each.
    let (lanes, rounds) = APART;
    let apart = "diverged 1";
    let began = |lane: u64| (0..rounds).filter(move |round| lane % 3 == round % 3).count() as u64;
    let (begins, of_lanes) = seen.take(apart, PointKind::Begin, "third");
    assert_eq!(of_lanes, (0..lanes).map(began).sum::<u64>());
    assert_eq!(seen.take(apart, PointKind::End, "third").0, begins);
    let counted: u64 =
        (0..3).map(|count| seen.take(apart, PointKind::Counter, &format!("count {count}")).1).sum();
    assert_eq!(counted, (0..lanes).map(|lane| rounds * (lane % 4)).sum::<u64>());
    // What found no room was counted. A span whose begin found none has no end.
    let (lanes, rounds) = MANY;
    let again = "kernels of others 2";
    let mut many = |kind| {
        let is_it = |(launch, of, _): &(String, PointKind, String)| launch == again && *of == kind;
        seen.counts.extract_if(|key, _| is_it(key)).map(|(_, (records, _))| records).sum::<u64>()
    };
    let [begins, ends] = [PointKind::Begin, PointKind::End].map(&mut many);
    let values = many(PointKind::Counter) + many(PointKind::Event);
    let tried = waves(lanes) * (1 + 5 * rounds) + begins;
    assert_eq!(begins + ends + values + seen.lost, tried, "{} were lost", seen.lost);
    assert!(seen.counts.is_empty(), "{:?}", seen.counts);
}

#[test]
fn points_of_threads_are_in_the_trace() {
    let file = temporary("points-cpu.trace");
    assert_eq!(run(Command::new(&*HOST).arg("cpu").arg(&file)), "passed\n");
    check(&file, 1);
    assert_eq!(run(Command::new(&*HOST).args(["cpu", "none"])), "passed\n");
}

#[test]
fn a_trace_ends_while_threads_write() {
    let file = temporary("points-endless.trace");
    assert_eq!(run(Command::new(&*HOST).arg("endless").arg(file)), "passed\n");
}

#[test]
#[ignore = "reads the file that scripts/gpu-check brings from a GPU"]
fn points_of_an_nvidia_gpu_are_in_the_trace() {
    check(Path::new(&std::env::var_os("TRACE").expect("TRACE names the file")), 32);
}

#[test]
fn points_of_kernels_in_hip_are_in_the_trace() {
    for level in ["-O3", "-O1"] {
        let code = hip_kernels(&[&HIP[..], &[level]].concat(), KERNELS, &format!("points{level}.co"));
        let file = temporary(&format!("points{level}.trace"));
        assert_eq!(run(Command::new(&*HOST).arg("gfx942").arg(&file).arg(&code)), "passed\n", "{level}");
        check(&file, 64);
        assert_eq!(run(Command::new(&*HOST).args(["gfx942", "none"]).arg(&code)), "passed\n", "{level}");
    }
}

/// Points are switched while kernels run, to which nobody says so.
#[test]
fn points_of_kernels_in_hip_are_switched() {
    const LAUNCHES: u32 = 40;
    const LANES: u32 = 128;
    let device = Device::open("gfx942").unwrap();
    let (stream, context) = (device.stream().unwrap(), device.context("switched").unwrap());
    let code = std::fs::read(hip_kernels(&[&HIP[..], &["-O3"]].concat(), KERNELS, "switched.co")).unwrap();
    let code = device.load_code_object_bytes(&code, Version::Stacks).unwrap();
    let (kernel, out) = (code.kernel("points").unwrap(), device.alloc_zeroed::<u64>(LANES as usize).unwrap());
    let launch = || {
        let arguments = [
            KernelArgument::context(&context),
            KernelArgument::buffer(&out),
            KernelArgument::value(LANES),
            KernelArgument::value(30u32),
        ];
        // SAFETY: these are what the kernel takes.
        unsafe { kernel.launch(&stream, Grid::new(1, LANES), &arguments) }.unwrap();
    };
    let record = |filter: PointFilter, meanwhile: &dyn Fn(&PointRecording)| {
        let file = temporary("switched.trace");
        let tracer = Tracer::builder().file(&file).unwrap().start().unwrap();
        let recording = device.record_points(&tracer, filter).unwrap();
        meanwhile(&recording);
        stream.synchronize().unwrap();
        drop(recording);
        tracer.finish(Duration::from_secs(60));
        Seen::of(&file)
    };
    launch();
    let toggled = record(PointFilter::default(), &|recording| {
        for _ in 0..LAUNCHES {
            launch();
            recording.pause().unwrap();
            launch();
            recording.resume().unwrap();
        }
    });
    let of = |seen: &Seen, kind: PointKind| {
        let counts =
            seen.counts.iter().filter(|((_, of, _), _)| *of == kind).map(|(_, (records, _))| records);
        counts.sum::<u64>()
    };
    let [begins, ends, counters] =
        [PointKind::Begin, PointKind::End, PointKind::Counter].map(|kind| of(&toggled, kind));
    assert!(begins > 0 && counters > 0, "{:?}", toggled.counts);
    assert!(toggled.lost > 0 || begins == ends, "{begins} begins, {ends} ends");
    let wanted = record(PointFilter::default().name("half"), &|_| launch());
    let waves = u64::from(LANES / 64);
    assert_eq!(
        (of(&wanted, PointKind::Counter) + wanted.lost, of(&wanted, PointKind::Begin)),
        (30 * waves, 0)
    );
}

#[test]
fn clang_compiles_points_for_nvidia() {
    nvptx64::assemble(&hip_kernels(&CUDA, KERNELS, "points.ptx"));
}

#[test]
fn nvcc_compiles_points_for_gpu_and_host() {
    let mut command = Command::new(nvidia().join("bin/nvcc"));
    command.args(["-x", "cu", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-c", "-I"]);
    command.arg(source("include")).arg("-I").arg(source("tests/c")).arg(source(KERNELS));
    run(command.arg("-o").arg(temporary("points-nvcc.o")));
}

/// A point takes few registers of a kernel that has hardly one left, and spills none.
#[test]
fn points_take_few_registers() {
    let registers = |point: u32| {
        let mut command = Command::new(nvidia().join("bin/nvcc"));
        command.args(["-std=c++17", "-arch=sm_90", "-cubin", "-Xptxas", "-v", "-I"]).arg(source("include"));
        command.arg(format!("-DPOINT={point}")).arg(source("tests/c/product.cu")).arg("-o");
        let said = output(command.arg(temporary(&format!("product-{point}.cubin"))));
        let said = common::text(&said.stderr);
        let (_, of_kernel) = said.split_once("Function properties for product\n").expect(&said);
        assert!(of_kernel.trim_start().contains(" 0 bytes spill stores, 0 bytes spill loads"), "{of_kernel}");
        let (_, used) = of_kernel.split_once("Used ").expect(&said);
        used.split_once(" registers").unwrap().0.parse::<u32>().unwrap()
    };
    let plain = registers(0);
    for point in 1..=3 {
        let used = registers(point);
        assert!(used <= plain + 8, "point {point}: {used} of {plain}");
        println!("point {point}: {used} registers, without {plain}");
    }
}

#[test]
fn nvrtc_compiles_points() {
    let mut command = Command::new("python3");
    command.arg(source("tests/c/nvrtc.py")).arg(nvidia().join("lib"));
    let text = |file: &str| source(file).display().to_string();
    let files = [KERNELS, "tests/c/point_kernels.h", "include/hostcall_device.h"];
    assert_eq!(run(command.args(files.map(text))), "compiled\n");
}
