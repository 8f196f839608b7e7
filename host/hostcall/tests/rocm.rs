//! Kernels in HIP and OpenCL C that clang compiled and linked with ROCm's device libraries: ordinary kernels on ordinary
//! streams of the GPU in software, which call the host by ROCm's protocol.

#[path = "rocm/compile.rs"]
mod compile;

use compile::{compile, folder, run};
use hostcall::device::{Error, LaunchFailure, LaunchRefused};
use hostcall::graph::{CaptureMode, Condition, Graph};
use hostcall::rocm::{
    CodeObject, CodeObjectError, FaultKind, KernelArgument, Mode, Options, Packet, Version,
};
use hostcall::services::Builtins;
use hostcall::{Device, Grid, Stream};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).expect("it is text")
    }
}

/// A device with what it printed and found wrong.
struct Host {
    device: Device,
    stream: Stream,
    stdout: Written,
    stderr: Written,
    faults: Arc<Mutex<Vec<FaultKind>>>,
    told: AtomicU64,
}

impl Host {
    fn open() -> Self {
        let (stdout, stderr, faults) =
            (Written::default(), Written::default(), Arc::<Mutex<Vec<_>>>::default());
        let builtins = Builtins::builder().stdout(stdout.clone()).stderr(stderr.clone()).build().unwrap();
        let noted = faults.clone();
        let options =
            Options::default().on_fault(move |fault| noted.lock().unwrap().push(fault.kind.clone()));
        let device = Device::builder("gfx942").builtins(builtins).rocm(options).open().unwrap();
        let stream = device.stream().unwrap();
        Self { device, stream, stdout, stderr, faults, told: AtomicU64::new(0) }
    }

    fn load(&self, version: u32, level: &'static str) -> CodeObject {
        let image = compile("kernels.hip", version, level);
        self.device.load_code_object_bytes(&image, Version::Stacks).unwrap()
    }

    /// Launches a kernel of the test's.
    fn launch(&self, code: &CodeObject, kernel: &str, grid: Grid, arguments: &[KernelArgument]) {
        let kernel = code.kernel(kernel).unwrap();
        // SAFETY: tests give the arguments that their kernels take, and buffers that are large enough.
        unsafe { kernel.launch(&self.stream, grid, arguments) }.unwrap();
    }

    /// Waits for everything so far. Returns what was printed.
    fn finish(&self) -> String {
        self.stream.synchronize().unwrap();
        self.device.builtins().stdio().flush().unwrap();
        self.stdout.text()
    }

    /// Returns what was told of, once it is as many as were counted, and takes it.
    fn faults(&self) -> Vec<FaultKind> {
        let new = self.device.rocm_statistics().faults - self.told.load(Ordering::Relaxed);
        self.told.fetch_add(new, Ordering::Relaxed);
        while (self.faults.lock().unwrap().len() as u64) < new {
            std::thread::yield_now();
        }
        std::mem::take(&mut *self.faults.lock().unwrap())
    }
}

/// As the compilers of different years made them, and as for a debugger.
const BUILDS: [(u32, &str); 4] = [(5, "-O2"), (4, "-O2"), (6, "-O2"), (5, "-O0")];

fn one() -> Grid {
    Grid::new(1, 1)
}

#[test]
fn every_kind_of_argument_is_printed_as_c_prints_it() {
    let text = "a string that takes more than one packet of seven words, which have 56 bytes";
    let host_program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rocm-prints-{}", std::process::id()));
    run(Command::new("cc").arg("-w").arg(folder().join("prints.c")).arg("-o").arg(&host_program));
    let expected = run(Command::new(&host_program).args(["12345", text])).stdout;
    std::fs::remove_file(&host_program).unwrap();
    let host = Host::open();
    let bytes: Vec<u8> = text.bytes().chain([0]).collect();
    let memory = host.device.upload(&bytes).unwrap();
    for (version, level) in BUILDS {
        let code = host.load(version, level);
        host.launch(
            &code,
            "prints",
            one(),
            &[KernelArgument::value(12345u64), KernelArgument::input(&memory)],
        );
        assert_eq!(host.finish(), String::from_utf8(expected.clone()).unwrap(), "version {version}, {level}");
    }
    assert_eq!(host.faults(), []);
}

#[test]
fn lanes_print_in_waves_with_gaps_and_to_both_streams() {
    let host = Host::open();
    for (version, level) in BUILDS {
        let code = host.load(version, level);
        let lanes = 300u64;
        let lengths = host.device.upload(&vec![-7i32; 512]).unwrap();
        let arguments = [KernelArgument::buffer(&lengths), KernelArgument::value(lanes)];
        host.launch(&code, "lines", Grid::new(2, 256), &arguments);
        for number in [1u64, 2] {
            host.launch(&code, "errors", one(), &[KernelArgument::value(number)]);
        }
        let printed = host.finish();
        let line = |lane: usize| format!("lane {lane} of {lanes}");
        let of_lane = |lane: usize| lane < lanes as usize && lane % 3 != 1;
        let mut expected: Vec<String> = (0..512).filter(|lane| of_lane(*lane)).map(line).collect();
        let mut printed: Vec<String> = printed.lines().map(str::to_owned).collect();
        expected.sort();
        printed.sort();
        assert_eq!(printed, expected);
        let length = |lane: usize| if of_lane(lane) { line(lane).len() as i32 + 1 } else { -7 };
        assert_eq!(lengths.read().unwrap(), (0..512).map(length).collect::<Vec<_>>());
        assert_eq!(host.stderr.text(), "number 1\nnumber 2\n");
    }
    assert_eq!(host.faults(), []);
}

/// Five launches of 1000 lanes with gaps, on five streams, so that packets are used again by other waves.
fn each_call_is_answered_once(source: &'static str, version: Version) {
    const TIMES: u64 = 3;
    let host = Host::open();
    let called = Arc::new(AtomicU64::new(0));
    let count = called.clone();
    let function = host.device.rocm_services().register_function(move |words| {
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(words[2..], [3, 4, 5, 6, 7]);
        [words[0] * 10 + words[1], words[0] + words[1]]
    });
    let function = function.unwrap();
    let code = host.device.load_code_object_bytes(&compile(source, 5, "-O2"), version).unwrap();
    let kernel = code.kernel("calls").unwrap();
    let (lanes, length) = (1000u64, 1024);
    let work: Vec<_> = (0..5)
        .map(|_| {
            let (stream, out) =
                (host.device.stream().unwrap(), host.device.alloc_zeroed::<u64>(length).unwrap());
            let arguments = [
                KernelArgument::buffer(&out),
                KernelArgument::value(lanes),
                KernelArgument::value(function),
                KernelArgument::value(TIMES),
            ];
            // SAFETY: the kernel takes these, and writes a number for each of the lanes at most.
            unsafe { kernel.launch(&stream, Grid::new(4, 256), &arguments) }.unwrap();
            (stream, out)
        })
        .collect();
    let calls_it = |lane: u64| lane < lanes && lane % 7 != 3;
    for (stream, out) in work {
        stream.synchronize().unwrap();
        let sum = |lane| if calls_it(lane) { (0..TIMES).map(|time| lane * 10 + time).sum() } else { 0 };
        assert_eq!(out.read().unwrap(), (0..length as u64).map(sum).collect::<Vec<_>>());
    }
    let lanes = (0..lanes).filter(|lane| calls_it(*lane)).count() as u64;
    assert_eq!(called.load(Ordering::Relaxed), 5 * TIMES * lanes);
    assert_eq!(host.faults(), []);
    // Counted while the consumer has no work, which is soon.
    while host.device.rocm_statistics().packets < 5 * TIMES * 16 {
        std::thread::yield_now();
    }
}

#[test]
fn calls_by_packets_in_stacks_are_answered_once() {
    each_call_is_answered_once("kernels.hip", Version::Stacks);
}

#[test]
fn calls_by_packets_with_phases_are_answered_once() {
    each_call_is_answered_once("phases.hip", Version::Phases);
}

#[test]
fn kernels_of_opencl_call_functions() {
    let host = Host::open();
    let square = host.device.rocm_services().register_function(|[x, ..]| [x * x, 0]).unwrap();
    let image = compile("kernels.cl", 5, "-O2");
    let code = host.device.load_code_object_bytes(&image, Version::Stacks).unwrap();
    let out = host.device.alloc_zeroed::<u64>(256).unwrap();
    let arguments = [KernelArgument::buffer(&out), KernelArgument::value(square)];
    host.launch(&code, "squares", Grid::new_3d([2, 2, 1], [8, 8, 1]), &arguments);
    host.finish();
    assert_eq!(out.read().unwrap(), (0..256).map(|i: u64| i * i).collect::<Vec<_>>());
}

#[test]
fn lanes_allocate_and_free() {
    let host = Host::open();
    for (version, level) in BUILDS {
        let code = host.load(version, level);
        let counts = host.device.alloc_zeroed::<u32>(2).unwrap();
        for turn in 1..=2 {
            let arguments = [
                KernelArgument::buffer(&counts.part(..1).unwrap()),
                KernelArgument::buffer(&counts.part(1..).unwrap()),
                KernelArgument::value(500u64),
                KernelArgument::value(10_000u64),
            ];
            host.launch(&code, "allocates", Grid::new(2, 256), &arguments);
            host.finish();
            assert_eq!(counts.read().unwrap(), [0, turn * 4 * 500], "version {version}, {level}");
        }
        let out = host.device.upload(&[1u64]).unwrap();
        host.launch(&code, "exhausts", one(), &[KernelArgument::buffer(&out)]);
        host.finish();
        assert_eq!(out.read().unwrap(), [0]);
    }
    assert_eq!(host.device.builtins().heap().failed_frees(), 0);
    assert_eq!(host.faults(), []);
}

#[test]
fn services_by_number_and_reports_reach_their_handlers() {
    let host = Host::open();
    let services = host.device.rocm_services();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let noted = reports.clone();
    services.register_sanitizer(move |report| noted.lock().unwrap().push(*report)).unwrap();
    services
        .register(700, "sum", Mode::Inline, |packet| {
            packet.lanes().for_each(|(_, words)| words[0] = words.iter().sum());
        })
        .unwrap();
    let code = host.load(5, "-O2");
    let out = host.device.upload(&[9u64, 9]).unwrap();
    let call = |number: u32| {
        host.launch(&code, "service", one(), &[KernelArgument::buffer(&out), KernelArgument::value(number)]);
        host.finish();
        out.read().unwrap()
    };
    assert_eq!(call(700), [36, 2]);
    assert_eq!((call(701), host.faults()), (vec![0, 0], vec![FaultKind::NoSuchService(701)]));
    // No function is registered.
    assert_eq!((call(1), host.faults()), (vec![0, 0], vec![FaultKind::NoSuchService(1)]));
    host.launch(&code, "reports", one(), &[KernelArgument::value(0x1000u64)]);
    host.finish();
    let [report] = reports.lock().unwrap()[..] else { panic!("one lane reports") };
    assert_eq!((report.address, report.pc, report.workgroup), (0x1000, 16, [1, 2, 3]));
    assert_eq!((report.wave, report.is_load, report.bytes), (4, true, 8));
}

#[test]
fn kernels_that_never_call_are_launched_as_well() {
    let host = Host::open();
    let code = host.load(5, "-O2");
    let out = host.device.alloc_zeroed::<i32>(64).unwrap();
    host.launch(
        &code,
        "may_call",
        Grid::new(1, 64),
        &[KernelArgument::buffer(&out), KernelArgument::value(0i32)],
    );
    host.finish();
    assert_eq!(out.read().unwrap(), [7; 64]);
    // What streams do is done in order: a copy, the kernel, a copy.
    let values = host.device.alloc_zeroed::<f32>(100).unwrap();
    host.stream.write(&values, &[3.0; 100]).unwrap();
    let arguments = [
        KernelArgument::buffer(&values),
        KernelArgument::value(2.0f32),
        KernelArgument::value(-1i8),
        KernelArgument::value(100i32),
    ];
    host.launch(&code, "plain", Grid::new(2, 64), &arguments);
    assert_eq!(host.stream.read(&values).unwrap().wait().unwrap(), [5.0; 100]);
    assert!(!code.kernel("plain").unwrap().parameters().takes_hostcall_buffer);
    let pinned = host.device.pinned::<i32>(64).unwrap();
    host.launch(
        &code,
        "may_call",
        Grid::new(1, 64),
        &[KernelArgument::pinned(&pinned), KernelArgument::value(0i32)],
    );
    host.finish();
    assert!(pinned.iter().all(|value| value.get() == 7));
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let host = Host::open();
    let code = host.load(5, "-O2");
    let kernel = code.kernel("may_call").unwrap();
    let out = host.device.alloc_zeroed::<i32>(64).unwrap();
    let (buffer, zero) = (KernelArgument::buffer(&out), KernelArgument::value(0i32));
    // SAFETY: what would be launched takes these arguments.
    let launch = |grid, arguments: &[KernelArgument]| unsafe { kernel.launch(&host.stream, grid, arguments) };
    let refused = |grid, arguments: &[KernelArgument]| match launch(grid, arguments) {
        Err(Error::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    };
    let count = refused(one(), std::slice::from_ref(&buffer));
    assert!(matches!(count, LaunchRefused::ArgumentCount { takes: 2, given: 1, .. }), "{count}");
    let size = refused(one(), &[buffer.clone(), KernelArgument::value(0u64)]);
    assert_eq!(size, LaunchRefused::ArgumentSize { argument: 1, takes: 4, given: 8 });
    assert_eq!(refused(Grid::new(0, 1), &[buffer.clone(), zero.clone()]), LaunchRefused::EmptyGrid);
    let large = refused(Grid::new(1, 2048), &[buffer.clone(), zero.clone()]);
    assert!(matches!(large, LaunchRefused::LargeWorkgroup { lanes: 2048, .. }), "{large}");
    let other = Device::open("gfx942").unwrap();
    let theirs = KernelArgument::buffer(&other.alloc_zeroed::<i32>(64).unwrap());
    assert!(matches!(launch(one(), &[theirs, zero.clone()]), Err(Error::OtherDevice { .. })));
    // SAFETY: as above.
    let elsewhere =
        unsafe { kernel.launch(&other.stream().unwrap(), one(), &[buffer.clone(), zero.clone()]) };
    assert!(matches!(elsewhere, Err(Error::OtherDevice { .. })));

    assert!(matches!(code.kernel("missing"), Err(Error::Image(_))));
    let buffered = compile("buffered.hip", 5, "-O2");
    let buffered = host.device.load_code_object_bytes(&buffered, Version::Stacks).unwrap().kernel("prints");
    assert!(matches!(buffered, Err(Error::CodeObject(CodeObjectError::Buffered { .. }))), "{buffered:?}");
    let cpu = Device::open("cpu").unwrap();
    let image = compile("kernels.cl", 5, "-O2");
    let load = |device: &Device, image: &[u8]| device.load_code_object_bytes(image, Version::Stacks);
    assert!(matches!(load(&cpu, &image), Err(Error::CodeObject(CodeObjectError::OtherTarget { .. }))));
    assert!(matches!(load(&host.device, b"text"), Err(Error::CodeObject(CodeObjectError::Unknown { .. }))));
    drop(launch(one(), &[buffer, zero]).unwrap());
    host.finish();
    assert_eq!(out.read().unwrap()[..2], [7, 0]);
}

/// What the kernel's source says of its workgroups, and arguments that are no bytes of the host's.
#[test]
fn kernels_that_ask_for_more_than_bytes_are_refused() {
    let host = Host::open();
    let image = compile("arguments.cl", 5, "-O2");
    let code = host.device.load_code_object_bytes(&image, Version::Stacks).unwrap();
    let refused = |kernel| match code.kernel(kernel) {
        Err(Error::CodeObject(error @ CodeObjectError::Argument { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let local = refused("takes_local");
    assert!(
        local.contains("a pointer to workgroup memory as argument 1") && local.contains("extern __shared__")
    );
    assert!(refused("takes_image").contains("an image as argument 1"));

    let kernel = code.kernel("takes_its_size").unwrap();
    assert_eq!(kernel.parameters().workgroup, Some([64, 2, 1]));
    let out = host.device.alloc_zeroed::<i32>(256).unwrap();
    let launch = |lanes| {
        let grid = Grid::new_3d([2, 1, 1], lanes);
        // SAFETY: the kernel takes this, and writes a number for each lane.
        unsafe { kernel.launch(&host.stream, grid, &[KernelArgument::buffer(&out)]) }
    };
    for given in [[128, 1, 1], [2, 64, 1], [64, 1, 1]] {
        let error = launch(given).unwrap_err();
        assert!(
            matches!(&error, Error::Refused(LaunchRefused::WorkgroupSize { takes: [64, 2, 1], .. })),
            "{error}"
        );
    }
    launch([64, 2, 1]).unwrap();
    host.finish();
    assert_eq!(out.read().unwrap(), [1; 256]);
}

#[test]
fn images_that_are_loaded_otherwise_are_refused() {
    let host = Host::open();
    for (source, function) in [("ours.hip", "`Device::load`"), ("program.hip", "`Device::load_llvm`")] {
        let image = compile(source, 5, "-O2");
        let error = host.device.load_code_object_bytes(&image, Version::Stacks).unwrap_err();
        assert!(matches!(error, Error::CodeObject(CodeObjectError::NotForeign { .. })), "{error:?}");
        assert!(error.to_string().contains(function), "{error}");
    }
}

#[test]
fn variables_are_read() {
    let host = Host::open();
    let code = host.load(5, "-O2");
    // SAFETY: no kernel runs.
    let [answer, other] = ["answer", "other"].map(|name| unsafe { code.read_variable(name) }.unwrap());
    assert_eq!((answer.as_deref(), other), (Some(&42u32.to_le_bytes()[..]), None));
}

/// Kernels of a graph call as those of launches do, in bodies that the host repeats too, with other arguments once the graph has
/// become another one.
#[test]
fn captured_kernels_call_in_each_replay() {
    let host = Host::open();
    let (counted, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (noted, left) = (counted.clone(), answers.clone());
    let note = move |_: &mut Packet<'_>| {
        noted.fetch_add(1, Ordering::Relaxed);
    };
    host.device.rocm_services().register(700, "note", Mode::Inline, note).unwrap();
    let kernel = host.load(5, "-O2").kernel("service").unwrap();
    let outs = [9u64, 8].map(|value| host.device.upload(&[value, value]).unwrap());
    let [body, other] = [&outs[0], &outs[1]].map(|out| {
        let captured = host.stream.capture(CaptureMode::ThreadLocal, |stream| {
            let arguments = [KernelArgument::buffer(out), KernelArgument::value(700u32)];
            // SAFETY: the kernel takes these, and writes two numbers.
            unsafe { kernel.launch(stream, one(), &arguments) }.map(drop)
        });
        captured.unwrap()
    });
    assert!(body.find("service").is_some() && body.to_dot().contains("service\\n1x1x1 of 1x1x1"));
    // Three turns, and once more behind them.
    let repeats =
        Condition::function(move || u32::from(!left.fetch_add(1, Ordering::Relaxed).is_multiple_of(4)));
    let mut graph = Graph::new(&host.device);
    let (first, then) = (graph.add_while(&repeats, &body).unwrap(), graph.add_graph(&body).unwrap());
    graph.edge(first, then).unwrap();
    let instance = graph.instantiate().unwrap();
    answers.store(1, Ordering::Relaxed);
    for replays in 1..=5 {
        instance.launch(&host.stream).unwrap();
        host.finish();
        assert_eq!(counted.load(Ordering::Relaxed), 4 * replays);
        answers.store(1, Ordering::Relaxed);
    }
    assert_eq!((outs[0].read().unwrap(), outs[1].read().unwrap()), (vec![1, 2], vec![8, 8]));
    let instance = body.instantiate().unwrap();
    assert!(instance.update(&other).unwrap());
    instance.launch(&host.stream).unwrap();
    // Its nodes keep what they use.
    drop((instance, body, other, kernel));
    host.finish();
    assert_eq!((counted.load(Ordering::Relaxed), outs[1].read().unwrap()), (21, vec![1, 2]));
    assert_eq!(host.faults(), []);
}

/// Nothing ends a kernel that another compiler made: who cancels its launch is told.
#[test]
fn launches_that_are_cancelled_run_to_their_end_and_say_so() {
    let host = Host::open();
    let (began, (release, released)) = (Arc::new(AtomicU64::new(0)), std::sync::mpsc::channel::<()>());
    let (noted, released) = (began.clone(), Mutex::new(released));
    let wait = move |_: &mut Packet<'_>| {
        noted.fetch_add(1, Ordering::Release);
        released.lock().unwrap().recv().unwrap();
    };
    host.device.rocm_services().register(700, "wait", Mode::Blocking, wait).unwrap();
    let code = host.load(5, "-O2");
    let kernel = code.kernel("service").unwrap();
    let out = host.device.upload(&[9u64, 9]).unwrap();
    let arguments = [KernelArgument::buffer(&out), KernelArgument::value(700u32)];
    let failure = |error: Error| match error {
        Error::Launch { failure, .. } => failure,
        other => panic!("{other:?}"),
    };
    for turn in 1..=2 {
        // SAFETY: the kernel takes these, and writes two numbers.
        let launch = unsafe { kernel.launch(&host.stream, one(), &arguments) }.unwrap();
        while began.load(Ordering::Acquire) < turn {
            std::thread::yield_now();
        }
        match turn {
            1 => launch.cancel(),
            _ => {
                launch.cancel_after(Duration::ZERO);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        assert!(!launch.is_done());
        release.send(()).unwrap();
        assert_eq!(failure(launch.wait().unwrap_err()), LaunchFailure::RanToEnd);
        assert_eq!(failure(host.stream.synchronize().unwrap_err()), LaunchFailure::RanToEnd);
        assert_eq!(out.read().unwrap(), [1, 2]);
    }
    // One that ended before is not told of.
    release.send(()).unwrap();
    // SAFETY: as above.
    let launch = unsafe { kernel.launch(&host.stream, one(), &arguments) }.unwrap();
    launch.wait().unwrap();
    launch.cancel();
    launch.wait().unwrap();
    host.finish();
}

/// The stream's launch waits for the handler, which would wait for ever.
#[test]
fn a_handler_that_drops_its_launch_s_stream_waits_for_nothing() {
    for mode in [Mode::Inline, Mode::Blocking] {
        let host = Host::open();
        let place = Arc::new(Mutex::new(None));
        let dropped = place.clone();
        let drops = move |_: &mut Packet<'_>| drop(dropped.lock().unwrap().take());
        host.device.rocm_services().register(700, "drops", mode, drops).unwrap();
        let (code, stream) = (host.load(5, "-O2"), host.device.stream().unwrap());
        let out = host.device.upload(&[9u64, 9]).unwrap();
        let arguments = [KernelArgument::buffer(&out), KernelArgument::value(700u32)];
        let mut place = place.lock().unwrap();
        // SAFETY: the kernel takes these, and writes two numbers.
        unsafe { code.kernel("service").unwrap().launch(&stream, one(), &arguments) }.unwrap();
        *place = Some(stream);
        drop(place);
        assert_eq!(out.read().unwrap(), [1, 2]);
    }
}

/// What a device is told of threads and of calls that wait holds for kernels of all protocols.
#[test]
fn calls_that_wait_are_reported_as_the_device_was_told() {
    let (reported, (release, released)) = (Arc::new(AtomicU64::new(0)), std::sync::mpsc::channel::<()>());
    let (noted, released) = (reported.clone(), Mutex::new(released));
    let device = Device::builder("gfx942").server(move |server| {
        server.stall_report(Duration::from_millis(1), move |_| {
            noted.fetch_add(1, Ordering::Relaxed);
        })
    });
    let device = device.open().unwrap();
    let wait = move |_: &mut Packet<'_>| released.lock().unwrap().recv().unwrap();
    device.rocm_services().register(700, "wait", Mode::Blocking, wait).unwrap();
    let (stream, out) = (device.stream().unwrap(), device.upload(&[9u64, 9]).unwrap());
    let code = device.load_code_object_bytes(&compile("kernels.hip", 5, "-O2"), Version::Stacks).unwrap();
    let arguments = [KernelArgument::buffer(&out), KernelArgument::value(700u32)];
    // SAFETY: the kernel takes these, and writes two numbers.
    unsafe { code.kernel("service").unwrap().launch(&stream, one(), &arguments) }.unwrap();
    // For ever, if it is not reported there.
    while reported.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    release.send(()).unwrap();
    stream.synchronize().unwrap();
}

/// Kernels write anything to the buffer's root, headers and payloads, while their host serves it; then other kernels run.
#[test]
fn kernels_that_corrupt_their_buffer_harm_nobody() {
    for version in Version::ALL {
        let host = Host::open();
        let code = host.device.load_code_object_bytes(&compile("kernels.hip", 5, "-O2"), version).unwrap();
        // Words behind the addresses, where a kernel finds the buffer's parts.
        for (turn, first) in [3u64, 6, 16, 64, 1024, 4096].into_iter().cycle().take(60).enumerate() {
            let random = KernelArgument::value(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(turn as u64 + 1));
            let arguments = [KernelArgument::value(first), KernelArgument::value(500u64), random];
            host.launch(&code, "corrupts", one(), &arguments);
        }
        let values = host.device.upload(&[3.0f32; 64]).unwrap();
        let arguments = [
            KernelArgument::buffer(&values),
            KernelArgument::value(2.0f32),
            KernelArgument::value(1i8),
            KernelArgument::value(64i32),
        ];
        host.launch(&code, "plain", Grid::new(1, 64), &arguments);
        host.finish();
        assert_eq!(values.read().unwrap(), [7.0; 64]);
        let failed = |fault: &FaultKind| matches!(fault, FaultKind::Panicked(_) | FaultKind::ServerFailed);
        assert!(!host.faults.lock().unwrap().iter().any(failed));
    }
}

/// What the processes of the next test do: they exit while a million lanes print.
#[test]
#[ignore = "it ends its process"]
fn exits_while_lanes_print() {
    let (host, lanes) = (Host::open(), 1 << 20);
    let code = host.load(5, "-O2");
    let lengths = host.device.alloc_zeroed::<i32>(lanes).unwrap();
    let arguments = [KernelArgument::buffer(&lengths), KernelArgument::value(lanes as u64)];
    host.launch(&code, "lines", Grid::new(lanes as u32 / 256, 256), &arguments);
    while host.stdout.0.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    assert!(!host.stream.is_done());
    std::process::exit(0);
}

#[test]
fn processes_exit_cleanly_while_lanes_print() {
    let child = || {
        let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
        run(command.args(["--exact", "exits_while_lanes_print", "--ignored", "--nocapture"])).stderr
    };
    std::thread::scope(|scope| {
        let children: Vec<_> = (0..5).map(|_| scope.spawn(child)).collect();
        for child in children {
            let errors = child.join().expect("the process ends well");
            assert_eq!(String::from_utf8_lossy(&errors), "");
        }
    });
}

/// A launch keeps what answers it, and a kernel says that its device is gone.
#[test]
fn launches_are_answered_while_their_device_goes() {
    let host = Host::open();
    let code = host.load(5, "-O2");
    let (stdout, lines) = (host.stdout.clone(), code.kernel("lines").unwrap());
    let lengths = host.device.alloc_zeroed::<i32>(4096).unwrap();
    let arguments = [KernelArgument::buffer(&lengths), KernelArgument::value(4096u64)];
    host.launch(&code, "lines", Grid::new(16, 256), &arguments);
    let Host { device, stream, .. } = host;
    drop(stream);
    // It has waited for the launch.
    device.builtins().stdio().flush().unwrap();
    drop(device);
    assert_eq!(stdout.text().lines().count(), (0..4096).filter(|lane| lane % 3 != 1).count());
    let other = Device::open("gfx942").unwrap();
    // SAFETY: nothing is launched.
    let gone = unsafe { lines.launch(&other.stream().unwrap(), one(), &arguments) };
    assert!(matches!(gone, Err(Error::Closed)), "{gone:?}");
}

/// ROCm's other way: the same services by LLVM's protocol, whose version the code tells.
#[test]
fn services_are_called_by_llvms_protocol_too() {
    for version in [20, 26] {
        let host = Host::open();
        let object =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rpc-{version}-{}", std::process::id()));
        let mut clang = Command::new("clang-22");
        clang.args([
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx942",
            "-O2",
            "-std=gnu11",
            "-ffreestanding",
            "-nogpulib",
        ]);
        clang.args(["-nostdlib", &format!("-DRPC_VERSION={version}")]).arg(folder().join("rpc.c"));
        run(clang.arg("-o").arg(&object));
        let code = host.device.load_code_object(&object, Version::Phases).unwrap();
        std::fs::remove_file(&object).unwrap();
        let square = host.device.rocm_services().register_function(|[x, ..]| [x * x, 0]).unwrap();
        let out = host.device.alloc_zeroed::<u64>(512).unwrap();
        let arguments = [KernelArgument::buffer(&out), KernelArgument::value(square)];
        host.launch(&code, "squares", Grid::new(4, 128), &arguments);
        host.finish();
        assert!(out.read().unwrap().iter().enumerate().all(|(lane, value)| *value == (lane * lane) as u64));
        host.launch(&code, "allocates", one(), &[KernelArgument::buffer(&out)]);
        host.launch(&code, "prints", one(), &[]);
        assert_eq!(host.finish(), "n=7\n");
        assert_eq!(out.read().unwrap()[0], 42);
        // A function that nobody registered gives zeros, and is told of.
        let unknown = [KernelArgument::buffer(&out), KernelArgument::value(square + 1)];
        host.launch(&code, "squares", Grid::new(1, 64), &unknown);
        host.finish();
        assert_eq!(out.read().unwrap()[..64], [0; 64]);
        while host.faults.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(*host.faults.lock().unwrap(), [FaultKind::NoSuchFunction(square + 1)]);
        // An opcode that nobody knows gives zeros as well, and the launch fails for it; the next one does not.
        host.launch(
            &code,
            "asks_nobody",
            Grid::new(1, 64),
            &[KernelArgument::buffer(&out), KernelArgument::value(0x7800_0001u64)],
        );
        let failed = host.stream.synchronize().unwrap_err();
        assert!(
            matches!(&failed, Error::Launch { kernel, failure: LaunchFailure::Port(fault), .. }
                if kernel == "asks_nobody" && fault.kind == hostcall::llvm::FaultKind::Opcode(0x7800_0001)),
            "{failed}"
        );
        assert_eq!(out.read().unwrap()[..64], [0; 64]);
        host.launch(&code, "squares", Grid::new(1, 64), &arguments);
        host.finish();
        assert_eq!(out.read().unwrap()[63], 63 * 63);
        let metrics = host.device.metrics();
        assert!(metrics.llvm_calls > 10 && metrics.faults == 2, "{metrics:?}");
    }
}
