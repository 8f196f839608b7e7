//! What only a driver in trouble or a kernel that runs on shows, with a driver that a test controls
//! (`stand_in/driver.c`). Each test runs in a process of its own, which finds that driver and no other.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "calls the driver's functions for tests")]

use hostcall_cuda::{Driver, Gpu, Queue};
use hostcall_seam::{
    BackendError, Dispatch, HiddenParameters, Hooks, Kernel, Memory, Module, Pinned, Queue as _,
};
use std::ffi::{CStr, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The folder of the driver, which is built once.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stand-in-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let status = Command::new("cc")
            .args(["-std=gnu11", "-w", "-shared", "-fPIC", "-lpthread"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in/driver.c"))
            .arg("-o")
            .arg(folder.join("libcuda.so"))
            .status();
        assert!(status.expect("a C compiler, which Rust links with").success());
        folder
    })
}

/// Runs a test's body in a process of its own, with the driver. `test` is the test's name.
fn with_stand_in(test: &str, body: fn()) {
    const INSIDE: &str = "HOSTCALL_STAND_IN";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .envs([("LD_LIBRARY_PATH", folder().as_os_str()), (INSIDE, "1".as_ref())])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stdout));
}

/// Returns a function of the driver.
fn symbol(name: &CStr) -> *mut std::ffi::c_void {
    // SAFETY: both names are strings, and the library has no constructors.
    let found = unsafe { libc::dlsym(libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
    assert!(!found.is_null(), "the stand-in has no {name:?}");
    found
}

fn tell(name: &CStr, answer: c_int) {
    // SAFETY: the stand-in's functions of these names have this type.
    unsafe { std::mem::transmute::<*mut _, extern "C" fn(c_int)>(symbol(name))(answer) }
}

fn ask(name: &CStr) -> u64 {
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut _, extern "C" fn() -> u64>(symbol(name))() }
}

fn gpu(index: usize) -> Arc<Gpu> {
    let driver = Driver::load().unwrap();
    driver.open_gpu(driver.gpus().unwrap().swap_remove(index)).unwrap()
}

fn kernel(gpu: &Arc<Gpu>) -> Arc<dyn Kernel> {
    gpu.load(b"image".to_vec()).unwrap().kernel("kernel").unwrap().unwrap()
}

struct NoHooks;

impl Hooks for NoHooks {
    fn notify(&self) {}
    fn failed(&self, _: u64) {}
}

/// Launches a kernel, which runs until `end_kernels`.
fn launch(queue: &Queue, kernel: &Arc<dyn Kernel>) {
    let hooks: Arc<dyn Hooks> = Arc::new(NoHooks);
    let dispatch = Dispatch {
        kernel,
        name: "kernel",
        workgroups: [1; 3],
        lanes: [1; 3],
        workgroup_bytes: 0,
        parameters: &[],
        by_address: false,
        hidden: HiddenParameters::default(),
        token: 0,
        hooks: &hooks,
    };
    // SAFETY: the stand-in's kernel takes no parameters.
    unsafe { queue.dispatch(&dispatch) }.unwrap();
}

/// Starts a kernel, which runs until `end_kernels`.
fn start(gpu: &Arc<Gpu>) -> (Queue, Arc<dyn Kernel>) {
    let (kernel, queue) = (kernel(gpu), gpu.queue().unwrap());
    launch(&queue, &kernel);
    (queue, kernel)
}

/// Whether the GPU was given up.
fn is_final<T>(result: Result<T, BackendError>) -> bool {
    matches!(result, Err(BackendError::Fault { is_final: true, .. }))
}

fn end_kernels() {
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut _, extern "C" fn()>(symbol(c"stand_in_end_kernels"))() }
}

#[test]
fn an_unknown_error_of_a_stream_is_final() {
    with_stand_in("an_unknown_error_of_a_stream_is_final", || {
        let (queue, _function) = start(&gpu(0));
        queue.check().unwrap();
        // That a thread captures a stream says nothing of the GPU.
        tell(c"stand_in_answer_queries", 900);
        assert!(queue.check().is_err_and(|error| !is_final::<()>(Err(error))));
        for error in [226, 999] {
            tell(c"stand_in_answer_queries", error);
            assert!(is_final(queue.check()), "{error}");
        }
        tell(c"stand_in_answer_queries", 0);
        assert!(is_final(queue.check()), "the GPU was given up");
    });
}

#[test]
fn signals_that_are_refused_for_long_are_final() {
    with_stand_in("signals_that_are_refused_for_long_are_final", || {
        let (queue, _function) = start(&gpu(0));
        tell(c"stand_in_answer_signals", 2);
        assert!(queue.signal(1).is_err_and(|error| !is_final::<()>(Err(error))));
        tell(c"stand_in_answer_signals", 0);
        queue.signal(1).unwrap();
        tell(c"stand_in_answer_signals", 2);
        while !is_final(queue.signal(2)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// What has ended is known although a kernel behind it runs on, and what the GPU is told to write is known by itself.
#[test]
fn signals_are_known_one_by_one() {
    with_stand_in("signals_are_known_one_by_one", || {
        let gpu = gpu(0);
        let queue = gpu.queue().unwrap();
        queue.signal(1).unwrap();
        let kernel = kernel(&gpu);
        launch(&queue, &kernel);
        assert!(!queue.poll(1));
        assert_eq!(queue.completed(), 1);
        queue.signal(2).unwrap();
        // The GPU will write it; another launch behind it changes nothing of that.
        assert!(!queue.poll(2));
        launch(&queue, &kernel);
        queue.signal(3).unwrap();
        assert_eq!(queue.completed(), 1);
        end_kernels();
        assert_eq!(queue.completed(), 2);
        assert!(!queue.poll(3));
        assert_eq!(queue.completed(), 3);
    });
}

/// A queue that waits for a signal of another waits for that signal's event, or for none once it is known to be reached.
#[test]
fn a_queue_waits_for_one_signal() {
    with_stand_in("a_queue_waits_for_one_signal", || {
        let gpu = gpu(0);
        let (queue, other) = (gpu.queue().unwrap(), gpu.queue().unwrap());
        queue.signal(1).unwrap();
        assert!(!queue.poll(1));
        let kernel = kernel(&gpu);
        launch(&queue, &kernel);
        queue.signal(2).unwrap();
        other.wait(&queue, 1).unwrap();
        assert_eq!(ask(c"stand_in_event_waits"), 0);
        other.wait(&queue, 2).unwrap();
        assert_eq!(ask(c"stand_in_event_waits"), 1);
        end_kernels();
    });
}

#[test]
fn pinned_memory_is_used_again_beside_a_kernel() {
    with_stand_in("pinned_memory_is_used_again_beside_a_kernel", || {
        const BYTES: usize = 1 << 20;
        let gpu = gpu(0);
        let (queue, function) = start(&gpu);
        let before = ask(c"stand_in_pinned_bytes");
        for bytes in [BYTES, BYTES / 2, BYTES * 3 / 4].into_iter().cycle().take(30) {
            let memory = gpu.pin(bytes).unwrap();
            // SAFETY: the memory has so many bytes, and is nobody else's.
            let memory = unsafe { std::slice::from_raw_parts_mut(memory.host_address().as_ptr(), bytes) };
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(1);
        }
        assert_eq!(ask(c"stand_in_pinned_bytes") - before, BYTES as u64);
        // Nor is a small piece put where much more fits, for good.
        let small = gpu.pin(BYTES / 4).unwrap();
        assert_eq!(ask(c"stand_in_pinned_bytes") - before, (BYTES + BYTES / 4) as u64);
        drop(small);
        end_kernels();
        queue.signal(1).unwrap();
        assert!(!queue.poll(1) || queue.completed() == 1);
        assert_eq!(queue.completed(), 1);
        assert_eq!(ask(c"stand_in_pinned_bytes"), before);
        drop((queue, function, gpu));
        assert_eq!(ask(c"stand_in_waits"), 0);
    });
}

#[test]
fn a_gpu_that_goes_waits_for_no_kernel_of_another() {
    with_stand_in("a_gpu_that_goes_waits_for_no_kernel_of_another", || {
        let (first, second) = (gpu(0), gpu(1));
        let (queue, _function) = start(&second);
        let before = [c"stand_in_pinned_bytes", c"stand_in_retains"].map(ask);
        // It has pinned memory: of its queue, and zeros to clear memory with beside a kernel.
        drop((first.queue().unwrap(), first.allocate(8).unwrap()));
        assert!(ask(c"stand_in_pinned_bytes") > before[0]);
        drop(first);
        assert_eq!(ask(c"stand_in_waits"), 0);
        end_kernels();
        queue.signal(1).unwrap();
        assert!(!queue.poll(1) || queue.completed() == 1);
        assert_eq!(queue.completed(), 1);
        assert_eq!([c"stand_in_pinned_bytes", c"stand_in_retains"].map(ask), [before[0], before[1] - 1]);
    });
}

#[test]
fn a_thread_keeps_its_own_context() {
    with_stand_in("a_thread_keeps_its_own_context", || {
        let (first, second) = (gpu(0), gpu(1));
        // It had none, and keeps the first.
        assert_ne!(ask(c"stand_in_context"), 0);
        let of_first = std::thread::spawn(move || {
            first.enter_thread();
            let own = ask(c"stand_in_context");
            drop((first.allocate(8).unwrap(), second.allocate(8).unwrap(), second.queue().unwrap()));
            drop(second);
            assert_eq!(ask(c"stand_in_context"), own);
            own
        });
        assert_ne!(of_first.join().unwrap(), 0);
    });
}

#[test]
fn a_queue_that_goes_leaves_its_kernel_counted() {
    with_stand_in("a_queue_that_goes_leaves_its_kernel_counted", || {
        let gpu = gpu(0);
        let (queue, function) = start(&gpu);
        drop(queue);
        drop((gpu.pin(8).unwrap(), function));
        assert_eq!(ask(c"stand_in_waits"), 0);
    });
}

#[test]
fn a_context_that_could_not_be_kept_has_no_user() {
    with_stand_in("a_context_that_could_not_be_kept_has_no_user", || {
        // A GPU retains its context, and the process once more.
        tell(c"stand_in_refuse_retain", 2);
        let (first, second) = (gpu(0), gpu(0));
        assert_eq!(ask(c"stand_in_retains"), 3);
        drop((second, first));
        assert_eq!(ask(c"stand_in_retains"), 1, "the process keeps it");
        drop(gpu(0));
        assert_eq!(ask(c"stand_in_retains"), 1);
    });
}

#[test]
fn what_a_lane_says_lies_in_one_allocation_or_is_refused() {
    with_stand_in("what_a_lane_says_lies_in_one_allocation_or_is_refused", || {
        let gpu = gpu(0);
        // Large enough to be mapped beside each other, with something between them.
        let memory = [(); 2].map(|()| gpu.allocate(1 << 20).unwrap());
        let pinned = gpu.pin(64).unwrap();
        let at = |start: u64, bytes: usize| {
            let (mut read, written) = (vec![1; bytes], vec![2; bytes]);
            // SAFETY: the memory is this test's own, or it is refused.
            let is_written = unsafe { gpu.write_for_lane(start, &written) }.unwrap();
            // SAFETY: as above.
            let is_read = unsafe { gpu.read_for_lane(start, &mut read) }.unwrap();
            assert!(!is_read || !is_written || read == written);
            (is_read, is_written)
        };
        let start = memory[0].address().get();
        assert_eq!(at(start, 1 << 20), (true, true));
        assert_eq!(at(start + 8, 64), (true, true));
        assert_eq!(at(start + 8, 1 << 20), (false, false));
        let mut both = memory.each_ref().map(|memory| memory.address().get());
        both.sort();
        let [low, high] = both;
        // From the one to the other: both ends are memory of the GPU.
        assert_eq!(at(low, (high - low) as usize + 8), (false, false));
        let pinned = Pinned::address(&pinned).get();
        assert_eq!(at(pinned, 64), (true, false));
        assert_eq!(at(pinned, 65), (false, false));
        assert_eq!(at(8, 8), (false, false));
        assert_eq!(at(u64::MAX - 3, 8), (false, false));
    });
}

/// The driver reads as far as an image says, and does not know where its memory ends.
#[test]
fn what_is_no_whole_image_is_refused() {
    with_stand_in("what_is_no_whole_image_is_refused", || {
        let gpu = gpu(0);
        let cut = b"\x7fELF\x02\x01".to_vec();
        for (image, why) in [(cut, "missing"), (vec![0xb1, 0x43, 0x62, 0x46], "no cubin"), (vec![], "no PTX")]
        {
            let refused = gpu.load(image).err().expect("it is refused");
            assert!(!refused.is_fault && refused.to_string().contains(why), "{refused}");
        }
        assert!(gpu.load(b".version 7.0".to_vec()).is_ok());
    });
}

#[test]
fn linkers_go_whatever_comes_of_them() {
    with_stand_in("linkers_go_whatever_comes_of_them", || {
        let gpu = gpu(0);
        // Text ends in a zero, which an object has no need of.
        gpu.link(b".version 7.8".to_vec(), 32).unwrap();
        assert_eq!((ask(c"stand_in_linked_bytes"), ask(c"stand_in_linkers_destroyed")), (13, 1));
        let mut object = b"\x7fELF\x02\x01".to_vec();
        object.resize(64, 0);
        gpu.link(object, 32).unwrap();
        assert_eq!((ask(c"stand_in_linked_bytes"), ask(c"stand_in_linkers_destroyed")), (64, 2));
        tell(c"stand_in_answer_links", 218);
        assert!(!gpu.link(b".version 7.8".to_vec(), 32).err().unwrap().is_fault);
        assert!(gpu.link(b"\0".to_vec(), 32).is_err());
        assert_eq!(ask(c"stand_in_linkers_destroyed"), 3);
    });
}
