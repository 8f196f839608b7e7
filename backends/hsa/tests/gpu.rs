//! A GPU by the contained software runtime, with kernels that clang compiles: orders, copies, marks, arguments, faults.

use hostcall_hsa::{DeviceMemory, Gpu, LIBRARY_VARIABLE, Module, PinnedMemory, Queue, Runtime};
use hostcall_seam::{
    BackendError, DeviceFaultKind, Dispatch, HiddenParameters, Hooks, Kernel, Memory, Module as _, Pinned,
    Queue as _,
};
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn runtime() -> &'static Runtime {
    // SAFETY: `symbol` returns the functions of the names, whose types are those of the headers, and the
    // runtime does what `contained` says.
    unsafe { Runtime::contained(hostcall_softhsa::api::symbol) }.expect("it needs no hardware")
}

fn open() -> Arc<Gpu> {
    runtime().open_gpu(runtime().gpus().unwrap().swap_remove(0)).unwrap()
}

/// Compiles the kernels as a code object of this version.
fn image(version: u32) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::fs::create_dir_all(&folder).unwrap();
    // Tests compile side by side.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = folder.join(format!("{version}-{}-{number}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/device.c");
    let mut clang = Command::new("clang-22");
    clang.args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-O2", "-std=gnu11", "-fPIC"]);
    clang.arg(format!("-mcode-object-version={version}")).arg(source).arg("-o").arg(&place);
    let output = clang.output().expect("clang-22 is installed (.ci/install-device-toolchain)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = std::fs::read(&place).unwrap();
    std::fs::remove_file(&place).unwrap();
    image
}

fn load(gpu: &Arc<Gpu>) -> Module {
    gpu.load(image(5), None).unwrap()
}

fn kernel(module: &Module, name: &str) -> Arc<dyn Kernel> {
    module.kernel(name).unwrap().expect("the kernel is there")
}

struct NoHooks;

impl Hooks for NoHooks {
    fn notify(&self) {}
    fn failed(&self, _: u64) {}
}

/// Launches a kernel with these arguments, which the tests give as the kernels take them, or the device refuses them.
fn try_launch(
    queue: &Queue,
    kernel: &Arc<dyn Kernel>,
    (workgroups, lanes): ([u32; 3], [u32; 3]),
    parameters: &[&[u8]],
    by_address: bool,
) -> Result<(), BackendError> {
    let hooks: Arc<dyn Hooks> = Arc::new(NoHooks);
    let (name, workgroup_bytes, hidden, token) = ("kernel", 0, HiddenParameters::default(), 0);
    let hooks = &hooks;
    let dispatch = Dispatch {
        kernel,
        name,
        workgroups,
        lanes,
        workgroup_bytes,
        parameters,
        by_address,
        hidden,
        token,
        hooks,
    };
    // SAFETY: as said above.
    unsafe { queue.dispatch(&dispatch) }.map(drop)
}

/// Launches a kernel with these arguments.
fn launch(queue: &Queue, kernel: &Arc<dyn Kernel>, sizes: ([u32; 3], [u32; 3]), arguments: &[&[u8]]) {
    try_launch(queue, kernel, sizes, arguments, false).unwrap();
}

/// The kind of a fault after which the GPU does nothing more.
fn final_fault(error: &BackendError) -> DeviceFaultKind {
    match error {
        BackendError::Fault { fault, is_final: true } => fault.kind,
        other => panic!("no final fault: {other}"),
    }
}

/// Where memory begins, as an argument.
fn address_of(memory: &DeviceMemory) -> [u8; 8] {
    memory.address().get().to_le_bytes()
}

/// Where pinned memory begins, as an argument.
fn address(memory: &PinnedMemory) -> [u8; 8] {
    Pinned::address(memory).get().to_le_bytes()
}

const ONE: ([u32; 3], [u32; 3]) = ([1, 1, 1], [1, 1, 1]);

/// Waits as long as this holds, which is what `problem` says when it takes too long.
fn wait_while(problem: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while holds() {
        assert!(start.elapsed() < LONG, "{problem}");
        std::thread::yield_now();
    }
}

/// Waits until everything so far has ended.
fn finish(queue: &Queue, value: u64) -> Result<(), BackendError> {
    queue.signal(value)?;
    let start = Instant::now();
    while queue.completed() < value {
        queue.check()?;
        assert!(start.elapsed() < LONG, "the queue hangs");
        std::thread::yield_now();
    }
    Ok(())
}

fn values(memory: &DeviceMemory, gpu: &Gpu) -> Vec<u64> {
    let mut bytes = vec![0; memory.len()];
    // SAFETY: the memory has so many bytes.
    unsafe { gpu.read(memory.address().get(), &mut bytes) }.unwrap();
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// A number of pinned memory.
fn word(memory: &PinnedMemory) -> &AtomicU64 {
    // SAFETY: the memory is large enough and aligned; host and kernels access it atomically.
    unsafe { AtomicU64::from_ptr(memory.host_address().as_ptr().cast()) }
}

#[test]
fn operations_follow_each_other() {
    let gpu = open();
    let (module, queue) = (load(&gpu), gpu.queue());
    let multiply = kernel(&module, "multiply");
    let (memory, copied) = (gpu.allocate(8 * 100).unwrap(), gpu.allocate(8 * 100).unwrap());
    assert_eq!(values(&memory, &gpu), [0; 100]);
    let (from, to) = (gpu.pin(800).unwrap(), gpu.pin(800).unwrap());
    for round in 1..=20u64 {
        // SAFETY: the block is this long, and nothing of the queue is left that uses it.
        unsafe { from.host_address().cast::<[u64; 100]>().write(std::array::from_fn(|at| at as u64)) };
        // SAFETY: all of it is kept until the queue has ended, and nobody else has it.
        unsafe {
            queue.write(memory.address(), from.host_address().as_ptr(), 800).unwrap();
            let (address, factor) = (address_of(&memory), 3u32.to_le_bytes());
            launch(&queue, &multiply, ([2, 1, 1], [50, 1, 1]), &[&address, &factor, &[7]]);
            queue.copy(copied.address(), memory.address(), 800).unwrap();
            queue.fill(memory.address(), &[0xab, 0xcd], 400).unwrap();
            launch(&queue, &multiply, ([2, 1, 1], [50, 1, 1]), &[&address_of(&copied), &factor, &[1]]);
            queue.read(to.host_address().as_ptr(), copied.address(), 800).unwrap();
        }
        finish(&queue, round).unwrap();
        // SAFETY: the block is this long, and the copy has ended.
        let read = unsafe { to.host_address().cast::<[u64; 100]>().read() };
        assert_eq!(read, std::array::from_fn(|at| (at as u64 * 3 + 7) * 3 + 1));
        assert_eq!(values(&memory, &gpu), [0xcdab_cdab_cdab_cdab; 100]);
    }
}

/// What operations keep holds the GPU: code, pinned memory, marks. It goes with the queue.
#[test]
fn a_gpu_ends_with_its_last_user() {
    let gpu = open();
    let end = Arc::downgrade(&gpu);
    let memory = gpu.allocate(8).unwrap();
    let kernel = kernel(&load(&gpu), "write_to");
    let kept: [&dyn Fn(&Queue); 3] = [
        &|queue| launch(queue, &kernel, ONE, &[&address_of(&memory)]),
        // SAFETY: the memory has as many bytes.
        &|queue| unsafe { queue.fill(memory.address(), &[1, 2], 4) }.unwrap(),
        &|queue| drop(queue.mark().unwrap()),
    ];
    // Each has a ring of its own, which is not looked at again.
    let queues = kept.map(|operation| {
        let queue = gpu.queue();
        operation(&queue);
        queue
    });
    queues.iter().for_each(|queue| finish(queue, 1).unwrap());
    drop((queues, kernel, memory, gpu));
    // The runtime's threads may have it for a moment.
    wait_while("the GPU is left open", || end.upgrade().is_some());
}

/// So it is when a queue goes while its kernel runs.
#[test]
fn a_gpu_ends_with_the_last_kernel() {
    let gpu = open();
    let end = Arc::downgrade(&gpu);
    let module = load(&gpu);
    let (flag, done) = (gpu.pin(8).unwrap(), gpu.pin(8).unwrap());
    let wait_for = kernel(&module, "wait_for");
    let queue = gpu.queue();
    launch(&queue, &wait_for, ONE, &[&address(&flag), &address(&done)]);
    drop((queue, wait_for, module, gpu));
    assert!(end.upgrade().is_some(), "the kernel runs");
    word(&flag).store(1, Ordering::Release);
    wait_while("the kernel does not go on", || word(&done).load(Ordering::Acquire) == 0);
    drop((flag, done));
    wait_while("the GPU is left open", || end.upgrade().is_some());
}

#[test]
fn large_fills_are_whole() {
    let gpu = open();
    let queue = gpu.queue();
    let bytes = (3 << 20) + 8;
    let memory = gpu.allocate(bytes).unwrap();
    for (round, pattern) in [&[1][..], &[1, 2], &[1, 2, 3, 4], &[0]].into_iter().enumerate() {
        // SAFETY: the memory is so long.
        unsafe { queue.fill(memory.address(), pattern, bytes / pattern.len()) }.unwrap();
        finish(&queue, round as u64 + 1).unwrap();
        let expected: Vec<u8> = pattern.iter().copied().cycle().take(8).collect();
        let expected = u64::from_le_bytes(expected.try_into().unwrap());
        assert!(values(&memory, &gpu).iter().all(|value| *value == expected));
    }
    // SAFETY: refused before anything is written.
    assert!(unsafe { queue.fill(memory.address(), &[1, 2, 3], 1) }.is_err());
}

#[test]
fn kernels_see_their_arguments_and_sizes_in_all_versions() {
    let gpu = open();
    for version in 4..=6 {
        let module = gpu.load(image(version), None).unwrap();
        let queue = gpu.queue();
        let memory = gpu.allocate(40).unwrap();
        let arguments = [address_of(&memory), 77u64.to_le_bytes()];
        let arguments = arguments.each_ref().map(|argument| &argument[..]);
        launch(&queue, &kernel(&module, "sizes"), ([3, 2, 1], [16, 4, 1]), &arguments);
        finish(&queue, 1).unwrap();
        assert_eq!(values(&memory, &gpu), [16, 4, 48, 8, 77], "version {version}");
        let variable = module.variable("variable").unwrap().unwrap();
        let mut value = vec![0; variable.bytes];
        // SAFETY: the variable lies there.
        unsafe { gpu.read(variable.address.get(), &mut value) }.unwrap();
        assert_eq!(value, 42u64.to_le_bytes());
        assert!(module.variable("multiply.kd").unwrap().is_none());
        assert!(module.kernel("nothing").unwrap().is_none());
    }
}

#[test]
fn arguments_by_address_are_kept() {
    let gpu = open();
    let (module, queue) = (load(&gpu), gpu.queue());
    let kernel = kernel(&module, "by_address");
    let memory = gpu.allocate(8 * 600).unwrap();
    for at in 0..600u64 {
        let to = memory.address().get() + at * 8;
        // Longer than what a segment's slot has, now and then.
        let mut value = vec![0; if at % 100 == 0 { 5000 } else { 8 }];
        value[..8].copy_from_slice(&at.to_le_bytes());
        let arguments = [&to.to_le_bytes()[..], &value];
        try_launch(&queue, &kernel, ONE, &arguments, true).unwrap();
    }
    finish(&queue, 1).unwrap();
    assert_eq!(values(&memory, &gpu), (0..600).collect::<Vec<u64>>());
}

/// Kernels take what they are given by address as a value of its type, which may be aligned to as much as its size says.
#[test]
fn arguments_by_address_are_aligned() {
    let gpu = open();
    let (module, queue) = (load(&gpu), gpu.queue());
    let kernel = kernel(&module, "place_of");
    let lengths = [8usize, 24, 64, 96, 256, 320, 1024, 2048];
    let memory = gpu.allocate(8 * lengths.len()).unwrap();
    for (at, length) in lengths.into_iter().enumerate() {
        let to = memory.address().get() + at as u64 * 8;
        let (to, value) = (to.to_le_bytes(), vec![0; length]);
        let arguments = [&to[..], &value];
        try_launch(&queue, &kernel, ONE, &arguments, true).unwrap();
    }
    finish(&queue, 1).unwrap();
    for (length, place) in lengths.into_iter().zip(values(&memory, &gpu)) {
        let align = 1 << length.trailing_zeros().clamp(4, 8);
        assert!(place != 0 && place.is_multiple_of(align), "{length} bytes at {place:#x}");
    }
}

#[test]
fn a_kernel_that_waits_holds_up_nobody_else() {
    let gpu = open();
    let module = load(&gpu);
    let (waiting, beside) = (gpu.queue(), gpu.queue());
    let (flag, done) = (gpu.pin(8).unwrap(), gpu.pin(8).unwrap());
    let wait_for = kernel(&module, "wait_for");
    let memory = gpu.allocate(8).unwrap();
    let before = waiting.mark().unwrap();
    waiting.signal(1).unwrap();
    launch(&waiting, &wait_for, ONE, &[&address(&flag), &address(&done)]);
    // A copy behind it.
    // SAFETY: both sides are kept until it has ended.
    unsafe { waiting.write(memory.address(), done.host_address().as_ptr(), 8) }.unwrap();
    let mark = waiting.mark().unwrap();
    waiting.signal(2).unwrap();
    let other = gpu.allocate(1 << 20).unwrap();
    // SAFETY: the memory is so long.
    unsafe { beside.fill(other.address(), &[1], 1 << 20) }.unwrap();
    finish(&beside, 1).unwrap();
    assert_eq!(values(&other, &gpu)[5], 0x0101_0101_0101_0101);
    wait_while("nothing is before it", || waiting.completed() < 1);
    assert_eq!(waiting.completed(), 1);
    assert_eq!(mark.elapsed_ns_since(&*before).unwrap(), None);
    word(&flag).store(1, Ordering::Release);
    finish(&waiting, 3).unwrap();
    assert!(mark.elapsed_ns_since(&*before).unwrap().unwrap() > 0);
}

#[test]
fn queues_beyond_their_ring_are_refused() {
    let gpu = open();
    let (module, queue) = (load(&gpu), gpu.queue());
    let (flag, done) = (gpu.pin(8).unwrap(), gpu.pin(8).unwrap());
    launch(&queue, &kernel(&module, "wait_for"), ONE, &[&address(&flag), &address(&done)]);
    let write_to = kernel(&module, "write_to");
    let memory = gpu.allocate(8).unwrap();
    let place = address_of(&memory);
    let arguments = [&place[..]];
    let one = || try_launch(&queue, &write_to, ONE, &arguments, false);
    let refused = (0..5000).find_map(|_| one().err());
    assert!(refused.expect("a ring has an end").to_string().contains("full"));
    word(&flag).store(1, Ordering::Release);
    finish(&queue, 1).unwrap();
    assert_eq!(values(&memory, &gpu), [1]);
    // A queue that is dropped gives its ring to the next.
    drop(queue);
    let queue = gpu.queue();
    launch(&queue, &write_to, ONE, &arguments);
    finish(&queue, 1).unwrap();
}

/// Places of `amd_queue_t` in words: the ring's base, the doorbell and the size are before the ID; then there
/// are the indices.
const BASE_TO_ID: [u32; 2] = [1, 4];
const INDICES: [[u32; 2]; 2] = [[7, 8], [16, 17]];

#[test]
fn a_kernel_that_spoils_its_queue_spoils_no_memory_of_the_host() {
    for part in [BASE_TO_ID].into_iter().chain(INDICES) {
        let gpu = open();
        let (module, queue) = (load(&gpu), gpu.queue());
        let memory = gpu.allocate(8).unwrap();
        let [from, to] = part.map(u32::to_le_bytes);
        launch(&queue, &kernel(&module, "spoil_queue"), ONE, &[&from, &to]);
        finish(&queue, 1).unwrap();
        let write_to = kernel(&module, "write_to");
        let address = address_of(&memory);
        match try_launch(&queue, &write_to, ONE, &[&address], false) {
            Ok(()) => {
                finish(&queue, 2).unwrap();
                assert_eq!(values(&memory, &gpu), [1]);
            }
            // The index says what cannot be.
            Err(error) => assert!(INDICES.contains(&part) && error.to_string().contains("full"), "{error}"),
        }
    }
}

#[test]
fn a_signal_that_a_kernel_changed_is_a_fault() {
    // Of more operations than there are, of none, and of fewer than none.
    for value in [-5i64, i64::MIN, 1 << 20] {
        let gpu = open();
        let (module, queue) = (load(&gpu), gpu.queue());
        let memory = gpu.allocate(1 << 20).unwrap();
        // SAFETY: the memory is so long.
        unsafe { queue.fill(memory.address(), &[1], 1 << 20) }.unwrap();
        finish(&queue, 1).unwrap();
        launch(&queue, &kernel(&module, "spoil_signal"), ONE, &[&value.to_le_bytes()]);
        let failed = finish(&queue, 2).unwrap_err();
        assert_eq!(final_fault(&failed), DeviceFaultKind::Device);
        let sentence = failed.to_string();
        assert!(sentence.contains("spoil_signal") && sentence.contains("counts its queue's"), "{sentence}");
        // It is final.
        // SAFETY: the memory is so long.
        assert_eq!(unsafe { queue.fill(memory.address(), &[2], 1 << 20) }.unwrap_err(), failed);
    }
}

/// The runtime has one text of the last failure in the process.
#[test]
fn faults_name_kernel_and_address() {
    let output = apart("faults").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn faults() {
    for (name, argument, kind, parts) in [
        (
            "write_to",
            Some(0x1000u64),
            DeviceFaultKind::Memory,
            &["write_to", "0x1000", "no memory of the GPU"][..],
        ),
        ("trap", None, DeviceFaultKind::Instruction, &["trap", "hardware exception"]),
    ] {
        let gpu = open();
        let (module, queue, beside) = (load(&gpu), gpu.queue(), gpu.queue());
        let flag = gpu.pin(8).unwrap();
        let address = address(&flag);
        // One that runs when the other fails ends too.
        launch(&beside, &kernel(&module, "wait_for"), ONE, &[&address, &address]);
        let argument = argument.map(u64::to_le_bytes);
        let arguments: Vec<&[u8]> = argument.iter().map(|argument| &argument[..]).collect();
        launch(&queue, &kernel(&module, name), ONE, &arguments);
        let failed = finish(&queue, 1).unwrap_err();
        assert_eq!(final_fault(&failed), kind);
        let sentence = failed.to_string();
        assert!(parts.iter().all(|part| sentence.contains(part)), "{sentence}");
        assert_eq!(beside.check().unwrap_err(), failed);
        assert!(gpu.allocate(8).is_err() && beside.mark().is_err());
        drop((flag, module, queue, beside));
        // Opened again it works.
        drop(gpu);
        let gpu = open();
        let memory = gpu.allocate(8).unwrap();
        let queue = gpu.queue();
        launch(&queue, &kernel(&load(&gpu), "write_to"), ONE, &[&address_of(&memory)]);
        finish(&queue, 1).unwrap();
        assert_eq!(values(&memory, &gpu), [1]);
    }
}

#[test]
fn a_fault_is_that_of_its_opening_alone() {
    let (faulty, other) = (open(), open());
    let (flag, done) = (other.pin(8).unwrap(), other.pin(8).unwrap());
    let running = other.queue();
    launch(&running, &kernel(&load(&other), "wait_for"), ONE, &[&address(&flag), &address(&done)]);
    let queue = faulty.queue();
    launch(&queue, &kernel(&load(&faulty), "write_to"), ONE, &[&0x1000u64.to_le_bytes()]);
    assert_eq!(final_fault(&finish(&queue, 1).unwrap_err()), DeviceFaultKind::Memory);
    other.check().unwrap();
    word(&flag).store(1, Ordering::Release);
    finish(&running, 1).unwrap();
    assert_eq!(word(&done).load(Ordering::Acquire), 1);
}

/// A fault that is told of when its opening is gone.
#[test]
fn an_old_fault_fails_no_new_opening() {
    let image = image(5);
    for _ in 0..50 {
        let write_to = |gpu: &Arc<Gpu>| kernel(&gpu.load(image.clone(), None).unwrap(), "write_to");
        let gpu = open();
        launch(&gpu.queue(), &write_to(&gpu), ONE, &[&0x1000u64.to_le_bytes()]);
        drop(gpu);
        let gpu = open();
        let (queue, memory) = (gpu.queue(), gpu.allocate(8).unwrap());
        launch(&queue, &write_to(&gpu), ONE, &[&address_of(&memory)]);
        finish(&queue, 1).unwrap();
    }
}

/// The runtime's status does not say what is wrong with code of another GPU; the contained one tells it besides.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn code_of_another_gpu() {
    let mut of_another = image(5);
    of_another[48] = 0x3f;
    let refused = open().load(of_another, None).map(drop).unwrap_err().to_string();
    assert!(
        refused.starts_with("loading GPU code: ") && refused.contains("for another processor"),
        "{refused}"
    );
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let gpu = open();
    let whole = image(5);
    for len in [0, 10, 64, 500, whole.len() / 2] {
        assert!(gpu.load(whole[..len].to_vec(), None).is_err(), "{len} bytes");
    }
    // The runtime has one text of the last failure in the process.
    let output = apart("code_of_another_gpu").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let module = load(&gpu);
    let multiply = kernel(&module, "multiply");
    assert_eq!(multiply.limits().max_lanes, 1024);
    let queue = gpu.queue();
    let refuse = |workgroups: [u32; 3], lanes: [u32; 3], arguments: &[&[u8]]| {
        try_launch(&queue, &multiply, (workgroups, lanes), arguments, false).unwrap_err().to_string()
    };
    let arguments: [&[u8]; 3] = [&[0; 8], &[0; 4], &[0]];
    assert!(refuse([1; 3], [1025, 1, 1], &arguments).contains("too large"));
    // A product of 2⁶⁴.
    assert!(refuse([1; 3], [1 << 22, 1 << 21, 1 << 21], &arguments).contains("too large"));
    assert!(refuse([0, 1, 1], [1; 3], &arguments).contains("no such size"));
    assert!(refuse([u32::MAX, 1, 1], [2, 1, 1], &arguments).contains("no such size"));
    assert!(refuse([1; 3], [1; 3], &arguments[..2]).contains("takes 3 arguments"));
    assert!(runtime().open_gpu(runtime().gpus().unwrap().swap_remove(0)).is_ok());
}

/// A test that is ignored here, in a process of its own.
fn apart(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored"]);
    command
}

/// A runtime is loaded from the file that the environment names.
#[test]
fn a_runtime_is_loaded_from_a_file() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let places = [folder.join("libsofthsa.so"), folder.with_file_name("libsofthsa.so")];
    let library: &PathBuf = places.iter().find(|place| place.exists()).expect("Cargo built the library");
    let run =
        |library: &Path| apart("the_runtime_that_is_named").env(LIBRARY_VARIABLE, library).output().unwrap();
    let output = run(library);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!run(Path::new("/nowhere")).status.success());
}

#[test]
#[ignore = "run by another test, with a runtime in its environment"]
fn the_runtime_that_is_named() {
    let runtime = Runtime::load().unwrap();
    let gpu = runtime.open_gpu(runtime.gpus().unwrap().swap_remove(0)).unwrap();
    let (queue, memory) = (gpu.queue(), gpu.allocate(8).unwrap());
    launch(&queue, &kernel(&load(&gpu), "write_to"), ONE, &[&address_of(&memory)]);
    finish(&queue, 1).unwrap();
    assert_eq!(values(&memory, &gpu), [1]);
}

/// The contained runtime with some functions of a test's own.
fn changed(lookup: hostcall_hsa::Lookup) -> Arc<Gpu> {
    // SAFETY: as in `runtime`: a test's functions have the types of those that they replace, which they call.
    let runtime = unsafe { Runtime::contained(lookup) }.expect("it needs no hardware");
    runtime.open_gpu(runtime.gpus().unwrap().swap_remove(0)).unwrap()
}

type CopyFunction = unsafe extern "C" fn(
    *mut c_void,
    u64,
    *const c_void,
    u64,
    usize,
    u32,
    *const u64,
    u64,
) -> hostcall_softhsa::api::Status;

/// The runtime's function that copies.
fn copy_function() -> CopyFunction {
    let found = hostcall_softhsa::api::symbol(c"hsa_amd_memory_async_copy").unwrap();
    // SAFETY: the function of this name has this type.
    unsafe { std::mem::transmute::<*const c_void, CopyFunction>(found) }
}

/// How far a test's copies are.
struct Held {
    has_begun: AtomicBool,
    may_end: AtomicBool,
    has_ended: AtomicBool,
}

impl Held {
    const fn new() -> Self {
        Self {
            has_begun: AtomicBool::new(false),
            may_end: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    fn hold(&self) {
        self.has_begun.store(true, Ordering::Release);
        wait_while("the copy is not let go", || !self.may_end.load(Ordering::Acquire));
    }
}

/// Whoever is told that a copy failed frees its memory, or copies through it again.
#[test]
fn a_failure_is_told_when_the_copy_has_ended() {
    static LATE: Held = Held::new();
    unsafe extern "C" fn late_copy(
        to: *mut c_void,
        to_agent: u64,
        from: *const c_void,
        from_agent: u64,
        bytes: usize,
        count: u32,
        signals: *const u64,
        done: u64,
    ) -> hostcall_softhsa::api::Status {
        let (to, from) = (to.expose_provenance(), from.expose_provenance());
        assert!(count == 0 && signals.is_null());
        std::thread::spawn(move || {
            LATE.hold();
            let (to, from) = (with_exposed_provenance_mut(to), with_exposed_provenance(from));
            LATE.has_ended.store(true, Ordering::Release);
            // SAFETY: as for this function, until the signal says that the copy has ended.
            unsafe { copy_function()(to, to_agent, from, from_agent, bytes, 0, null(), done) }
        });
        0
    }
    fn lookup(name: &CStr) -> Option<*const c_void> {
        let of_runtime = hostcall_softhsa::api::symbol(name);
        if name == c"hsa_amd_memory_async_copy" { Some(late_copy as *const c_void) } else { of_runtime }
    }
    let gpu = changed(lookup);
    let (module, queue, memory) = (load(&gpu), gpu.queue(), gpu.allocate(8).unwrap());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 8];
            // SAFETY: the memory is so long.
            let failed = unsafe { gpu.read(memory.address().get(), &mut bytes) }.unwrap_err();
            (final_fault(&failed.into()), LATE.has_ended.load(Ordering::Acquire))
        });
        wait_while("the copy does not begin", || !LATE.has_begun.load(Ordering::Acquire));
        launch(&queue, &kernel(&module, "write_to"), ONE, &[&0x1000u64.to_le_bytes()]);
        assert_eq!(final_fault(&finish(&queue, 1).unwrap_err()), DeviceFaultKind::Memory);
        // Long enough for several looks at the failure.
        std::thread::sleep(Duration::from_millis(100));
        LATE.may_end.store(true, Ordering::Release);
        assert_eq!(reader.join().unwrap(), (DeviceFaultKind::Memory, true));
    });
}

/// The runtime's thread that begins a copy may have the last reference to the GPU, and ROCm's waits for that
/// thread when a queue ends.
#[test]
fn a_gpu_does_not_end_on_a_thread_of_the_runtime() {
    static HELD: Held = Held::new();
    static COPIED_ON: Mutex<Option<ThreadId>> = Mutex::new(None);
    static ENDED_ON: Mutex<Option<ThreadId>> = Mutex::new(None);
    unsafe extern "C" fn held_copy(
        to: *mut c_void,
        to_agent: u64,
        from: *const c_void,
        from_agent: u64,
        bytes: usize,
        count: u32,
        signals: *const u64,
        done: u64,
    ) -> hostcall_softhsa::api::Status {
        *COPIED_ON.lock().unwrap() = Some(std::thread::current().id());
        // SAFETY: as for this function.
        let status = unsafe { copy_function()(to, to_agent, from, from_agent, bytes, count, signals, done) };
        HELD.hold();
        status
    }
    type EndFunction = unsafe extern "C" fn(*mut c_void) -> hostcall_softhsa::api::Status;
    unsafe extern "C" fn noted_end(queue: *mut c_void) -> hostcall_softhsa::api::Status {
        let end = hostcall_softhsa::api::symbol(c"hsa_queue_destroy").unwrap();
        // SAFETY: the function of this name has this type.
        let end = unsafe { std::mem::transmute::<*const c_void, EndFunction>(end) };
        // SAFETY: as for this function.
        let status = unsafe { end(queue) };
        *ENDED_ON.lock().unwrap() = Some(std::thread::current().id());
        status
    }
    fn lookup(name: &CStr) -> Option<*const c_void> {
        match name.to_bytes() {
            b"hsa_amd_memory_async_copy" => Some(held_copy as *const c_void),
            b"hsa_queue_destroy" => Some(noted_end as *const c_void),
            _ => hostcall_softhsa::api::symbol(name),
        }
    }
    let gpu = changed(lookup);
    let (module, queue) = (load(&gpu), gpu.queue());
    let (flag, done, from, to) =
        (gpu.pin(8).unwrap(), gpu.pin(8).unwrap(), gpu.pin(8).unwrap(), gpu.allocate(8).unwrap());
    launch(&queue, &kernel(&module, "wait_for"), ONE, &[&address(&flag), &address(&done)]);
    // SAFETY: both sides are so long, and kept until the copy has ended.
    unsafe { queue.write(to.address(), from.host_address().as_ptr(), 8) }.unwrap();
    word(&flag).store(1, Ordering::Release);
    finish(&queue, 1).unwrap();
    wait_while("the copy does not begin", || !HELD.has_begun.load(Ordering::Acquire));
    let left = Arc::downgrade(&gpu);
    drop((flag, done, from, to, module, queue, gpu));
    wait_while("somebody else has the GPU", || left.strong_count() > 1);
    HELD.may_end.store(true, Ordering::Release);
    wait_while("the GPU does not end", || ENDED_ON.lock().unwrap().is_none());
    assert_ne!(*ENDED_ON.lock().unwrap(), *COPIED_ON.lock().unwrap());
}

/// An engine may be at the parts before one that the runtime refuses: they are waited for, and nothing is kept for good.
#[test]
fn a_copy_that_is_refused_midway_is_waited_for() {
    static PART: AtomicU64 = AtomicU64::new(0);
    static HELD: Held = Held::new();
    unsafe extern "C" fn third_refused(
        to: *mut c_void,
        to_agent: u64,
        from: *const c_void,
        from_agent: u64,
        bytes: usize,
        count: u32,
        signals: *const u64,
        done: u64,
    ) -> hostcall_softhsa::api::Status {
        const ERROR: hostcall_softhsa::api::Status = 0x1000;
        assert!(count == 0 && signals.is_null());
        if PART.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            return ERROR;
        }
        let (to, from) = (to.expose_provenance(), from.expose_provenance());
        std::thread::spawn(move || {
            HELD.hold();
            let (to, from) = (with_exposed_provenance_mut(to), with_exposed_provenance(from));
            // SAFETY: as for this function, until the signal has counted the copy.
            unsafe { copy_function()(to, to_agent, from, from_agent, bytes, 0, null(), done) }
        });
        0
    }
    fn lookup(name: &CStr) -> Option<*const c_void> {
        let of_runtime = hostcall_softhsa::api::symbol(name);
        if name == c"hsa_amd_memory_async_copy" { Some(third_refused as *const c_void) } else { of_runtime }
    }
    const BYTES: usize = 3 << 20;
    let let_go_later = || {
        wait_while("the copy does not begin", || !HELD.has_begun.load(Ordering::Acquire));
        std::thread::sleep(Duration::from_millis(100));
        HELD.may_end.store(true, Ordering::Release);
    };
    for is_behind_a_kernel in [false, true] {
        HELD.has_begun.store(false, Ordering::Relaxed);
        HELD.may_end.store(false, Ordering::Relaxed);
        let gpu = changed(lookup);
        let (module, queue, memory) = (load(&gpu), gpu.queue(), gpu.allocate(BYTES).unwrap());
        let (flag, done) = (gpu.pin(8).unwrap(), gpu.pin(8).unwrap());
        if is_behind_a_kernel {
            launch(&queue, &kernel(&module, "wait_for"), ONE, &[&address(&flag), &address(&done)]);
        }
        let failed = std::thread::scope(|scope| {
            scope.spawn(let_go_later);
            // SAFETY: the memory is so long, and nobody else has it.
            let filled = unsafe { queue.fill(memory.address(), &[1], BYTES) };
            word(&flag).store(1, Ordering::Release);
            filled.and_then(|()| finish(&queue, 1))
        });
        let failed = failed.expect_err("the third part was refused").to_string();
        assert!(failed.contains("copying 1048576 bytes"), "{failed}");
        drop((module, queue, memory, flag, done));
        wait_while("something is kept", || Arc::strong_count(&gpu) > 1);
        assert_eq!(PART.load(Ordering::Relaxed) % 3, 0);
    }
}
