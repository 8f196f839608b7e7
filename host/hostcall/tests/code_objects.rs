//! What clang makes of HIP and OpenCL C for AMD's GPUs runs on the GPU in software, or is refused with the reason.

#[path = "rocm/compile.rs"]
mod compile;

use compile::{compile, compile_for};
use hostcall::device::{Error, LaunchFailure, LaunchRefused, LlvmRun};
use hostcall::llvm::End;
use hostcall::rocm::{CodeObject, CodeObjectError, KernelArgument, Version};
use hostcall::{Device, Grid};
use std::path::Path;
use std::time::Duration;

fn load(device: &Device, image: &[u8]) -> Result<CodeObject, Error> {
    device.load_code_object_bytes(image, Version::Stacks)
}

/// Runs a kernel whose arguments are a buffer of so many words and perhaps a number. Returns the words.
fn run(
    device: &Device,
    code: &CodeObject,
    kernel: &str,
    grid: Grid,
    number: Option<u64>,
) -> Result<Vec<u64>, Error> {
    let (stream, out) = (device.stream()?, device.alloc_zeroed::<u64>(2048)?);
    let arguments: Vec<_> =
        [KernelArgument::buffer(&out)].into_iter().chain(number.map(KernelArgument::value)).collect();
    // SAFETY: kernels of the tests take these, and write no more words.
    unsafe { code.kernel(kernel)?.launch(&stream, grid, &arguments) }?;
    stream.synchronize()?;
    out.read()
}

/// The kernel asks for ids in x alone.
#[test]
fn lanes_have_no_more_of_their_ids_than_the_kernel_asks_for() {
    let device = Device::open("gfx942").unwrap();
    let code = load(&device, &compile("plain.hip", 5, "-O2")).unwrap();
    let words = run(&device, &code, "places", Grid::new_3d([1, 1, 1], [2, 2, 1]), None).unwrap();
    assert_eq!(words[..2], [1, 2]);
    assert!(words[2..].iter().all(|word| *word == 0));
}

/// The GPU in software has 2048 waves: of workgroups of two waves, 1024 run at once.
#[test]
fn a_grid_that_meets_and_is_too_large_is_told_of() {
    let device = Device::open("gfx942").unwrap();
    let code = load(&device, &compile("plain.hip", 5, "-O2")).unwrap();
    let (kernel, stream) = (code.kernel("meet").unwrap(), device.stream().unwrap());
    let (come, go) = (device.alloc_zeroed::<u64>(1).unwrap(), device.pinned::<u64>(1).unwrap());
    let launch = |workgroups: u32| {
        let count = KernelArgument::value(u64::from(workgroups));
        let arguments = [KernelArgument::buffer(&come), KernelArgument::pinned(&go), count];
        // SAFETY: they are what the kernel takes.
        unsafe { kernel.launch(&stream, Grid::new(workgroups, 128), &arguments) }.unwrap()
    };
    launch(1024).wait().unwrap();
    come.write(&[0]).unwrap();
    let large = launch(1025);
    let error = large.wait_for(Duration::from_secs(1)).unwrap_err();
    let told = "kernel `meet` has 1025 workgroups, of which at most 1024 run at once: if its workgroups wait for each other";
    assert!(error.to_string().contains(told), "{error}");
    let error = stream.synchronize_for(Duration::from_millis(100)).unwrap_err();
    assert!(error.to_string().contains(told), "{error}");
    go[0].set(1);
    large.wait().unwrap();
}

/// One behind the stuck launch has not begun, and one of another stream is not what is waited for.
#[test]
fn a_large_grid_that_is_not_waited_for_is_not_told_of() {
    let device = Device::open("gfx942").unwrap();
    let code = load(&device, &compile("plain.hip", 5, "-O2")).unwrap();
    let kernel = code.kernel("meet").unwrap();
    let [stream, other] = [(); 2].map(|()| device.stream().unwrap());
    let [come, come_other] = [(); 2].map(|()| device.alloc_zeroed::<u64>(1).unwrap());
    let [go, go_other] = [(); 2].map(|()| device.pinned::<u64>(1).unwrap());
    let launch = |stream, come, go, workgroups: u32, count: u64| {
        let arguments =
            [KernelArgument::buffer(come), KernelArgument::pinned(go), KernelArgument::value(count)];
        // SAFETY: they are what the kernel takes.
        unsafe { kernel.launch(stream, Grid::new(workgroups, 128), &arguments) }.unwrap()
    };
    let stuck = launch(&stream, &come, &go, 1, 1 << 40);
    let behind = launch(&stream, &come, &go, 4096, 0);
    let large = launch(&other, &come_other, &go_other, 1025, 1025);
    for error in [
        stuck.wait_for(Duration::from_millis(300)).unwrap_err(),
        behind.wait_for(Duration::from_millis(300)).unwrap_err(),
        stream.synchronize_for(Duration::from_millis(300)).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::TimedOut { crowded: None, .. }), "{error}");
    }
    let error = large.wait_for(Duration::from_millis(300)).unwrap_err();
    assert!(
        matches!(&error, Error::TimedOut { crowded: Some(grid), .. } if grid.workgroups == 1025),
        "{error}"
    );
    go[0].set(1);
    go_other[0].set(1);
    behind.wait().unwrap();
    large.wait().unwrap();
}

/// Returns the file without its table of sections, which nothing needs that loads it.
fn without_sections(mut file: Vec<u8>) -> Vec<u8> {
    file[40..48].fill(0);
    file[60..64].fill(0);
    file
}

#[test]
fn code_for_a_generic_target_runs_on_its_processors() {
    let device = Device::open("gfx942").unwrap();
    for file in [
        compile_for("gfx9-4-generic", "plain.hip", 6, "-O2"),
        without_sections(compile_for("gfx9-4-generic", "plain.hip", 6, "-O2")),
        without_sections(compile("plain.hip", 5, "-O2")),
    ] {
        let code = load(&device, &file).unwrap();
        let words = run(&device, &code, "places", Grid::new(1, 4), None).unwrap();
        assert_eq!(words[..5], [1, 2, 3, 4, 0]);
    }
    let refused = load(&device, &compile_for("gfx11-generic", "plain.hip", 6, "-O2")).unwrap_err();
    assert!(
        refused.to_string().contains("was built for AMD GPUs of gfx11-generic, not for gfx942"),
        "{refused}"
    );
}

/// Programs of LLVM's protocol, with and without a table of sections.
#[test]
fn programs_are_told_by_what_their_segments_say() {
    let plain = compile("program.hip", 5, "-O2");
    let generic = compile_for("gfx9-4-generic", "program.hip", 6, "-O2");
    for (at, file) in [plain.clone(), without_sections(plain), generic.clone(), without_sections(generic)]
        .into_iter()
        .enumerate()
    {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("program-{}-{at}", std::process::id()));
        std::fs::write(&path, &file).unwrap();
        let device = Device::open("gfx942").unwrap();
        let ended = device.load_llvm(&path).and_then(|program| program.run(LlvmRun::new(Grid::new(1, 1))));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(ended, Ok(End::Exited(7))), "{at}: {ended:?}");
        let refused = load(&device, &file).unwrap_err();
        assert!(matches!(refused, Error::CodeObject(CodeObjectError::NotForeign { .. })), "{at}: {refused}");
    }
}

/// What clang links for OpenCL's `printf` loses its arguments: the sentence says so before anything runs.
#[test]
fn kernels_that_would_print_nothing_are_refused() {
    let device = Device::open("gfx942").unwrap();
    for (version, level) in [(4, "-O2"), (5, "-O2"), (6, "-O2"), (5, "-O0")] {
        let code = load(&device, &compile("prints.cl", version, level)).unwrap();
        for kernel in ["prints", "quiet"] {
            let refused = code.kernel(kernel).unwrap_err();
            assert!(matches!(refused, Error::CodeObject(CodeObjectError::Buffered { .. })), "{refused}");
            assert!(
                refused.to_string().contains("move kernels that do not print to another file"),
                "{refused}"
            );
        }
    }
}

#[test]
fn stacks_are_as_large_as_the_device_was_told() {
    let sum = |depth: u64| (0..=depth).map(|at| (at + 1..=depth).sum::<u64>() + at).sum::<u64>();
    let deep = |stack: Option<usize>, version, depth: u64| {
        let builder = Device::builder("gfx942");
        let builder = match stack {
            Some(bytes) => builder.stack_bytes(bytes),
            None => builder,
        };
        let device = builder.open().unwrap();
        let code = load(&device, &compile("plain.hip", version, "-O2")).unwrap();
        let limits = code.kernel("deep").unwrap().limits();
        assert!(limits.stack_bytes >= stack.unwrap_or(16 << 10) as u32, "{limits:?}");
        run(&device, &code, "deep", Grid::new(1, 1), Some(depth)).map(|words| words[0])
    };
    // The code object of version 4 does not say that the compiler does not know how much is needed.
    for version in [4, 5, 6] {
        assert_eq!(deep(None, version, 50).unwrap(), sum(50), "version {version}");
        let failed = deep(None, version, 1000).unwrap_err();
        let Error::Launch { failure: LaunchFailure::Fault(fault), .. } = &failed else { panic!("{failed}") };
        for part in
            ["of scratch memory, of which a lane, as its stack, has 16", "`stack_bytes`", "`--stack` of"]
        {
            assert!(fault.reason.contains(part), "{part}: {fault}");
        }
        assert_eq!(deep(Some(512 << 10), version, 1000).unwrap(), sum(1000), "version {version}");
    }
    let too_much = deep(Some(2 << 20), 5, 1).unwrap_err().to_string();
    assert!(too_much.contains("2097152 bytes of scratch; a lane has 1048576"), "{too_much}");
}

#[test]
fn workgroups_are_no_larger_than_the_kernel_was_compiled_for() {
    let device = Device::open("gfx942").unwrap();
    let code = load(&device, &compile("plain.hip", 5, "-O2")).unwrap();
    assert_eq!(run(&device, &code, "bounded", Grid::new(1, 64), None).unwrap()[0], 1);
    let refused = run(&device, &code, "bounded", Grid::new(1, 128), None).unwrap_err();
    assert!(
        matches!(refused, Error::Refused(LaunchRefused::CompiledLanes { max: 64, lanes: 128, .. })),
        "{refused}"
    );
    let sentence = "was compiled for at most 64 lanes of a workgroup (max_flat_workgroup_size), not 128";
    assert!(refused.to_string().contains(sentence), "{refused}");
}
