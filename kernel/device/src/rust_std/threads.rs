//! Threads of a program: the grid has a workgroup of one lane for each. The first runs `main`, and each other one serves as
//! one thread after the other, whichever the program starts.
//!
//! What a thread borrows of another one must mean the same to both. So no reference leads into a GPU's private memory: the build
//! has all variables that lie in memory taken from a stack in device memory (`tools/build/src/rust_std/stacks`), whose end
//! each function finds in the first words of the workgroup's memory ([`Own`]). A workgroup begins on a small stack of its
//! kernel's, which nothing outlives that others see, and goes to a stack in device memory for `main` and for each thread.

use crate::{heap, panics, process, target, time};
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr::{null, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

/// The most threads beside the main one, for each of which there is a [`Wave`].
const MOST: usize = 4095;

/// What a workgroup's memory begins with, for its only lane.
#[repr(C)]
struct Own {
    /// The lowest address of the stack that is taken. The build's code has it, and the next one, on GPUs.
    stack: usize,
    /// The address that it must not come below.
    stack_end: usize,
    /// Address and length of the values of thread-local variables, which are the layer's.
    locals: [usize; 2],
}

fn own() -> *mut Own {
    target::here().workgroup_memory().cast()
}

/// Where a GPU's lanes have their stacks in device memory. Those of the software device are memory of the process.
const HAS_STACKS: bool = cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu"));

/// Bytes of the main thread's stack, as many as on Linux.
const MAIN_STACK_BYTES: usize = 8 << 20;

/// Bytes at a stack's end that are left to who tells that it is full.
const SPARE_BYTES: usize = 16 << 10;

const STACK_ALIGN: usize = 16;

/// A stack, or none, of no bytes.
#[derive(Clone, Copy)]
struct Stack {
    address: usize,
    bytes: usize,
}

impl Stack {
    const NONE: Self = Self { address: 0, bytes: 0 };

    /// A new one, unless the host has no memory left.
    fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.checked_next_multiple_of(STACK_ALIGN)?.checked_add(SPARE_BYTES)?;
        let memory = heap::alloc(Layout::from_size_align(bytes, STACK_ALIGN).ok()?);
        (!memory.is_null()).then(|| Self { address: memory.expose_provenance(), bytes })
    }

    fn free(self) {
        if self.bytes > 0 {
            // SAFETY: `new` gave it, and nobody is on it any more. Nobody could be told of a failure.
            let _ = unsafe { heap::dealloc(with_exposed_provenance_mut(self.address)) };
        }
    }

    /// Runs `run` on this stack.
    ///
    /// # Safety
    /// Nobody else is on it until the function returns, and `run` is not inlined: a function has the stack that it found when
    /// it began.
    unsafe fn run<R>(self, run: impl FnOnce() -> R) -> R {
        if !HAS_STACKS {
            return run();
        }
        let (own, end) = (own(), self.address + SPARE_BYTES);
        // SAFETY: the words are this lane's. What the build writes reads them anew in each function.
        unsafe {
            let before =
                [(&raw mut (*own).stack).read_volatile(), (&raw mut (*own).stack_end).read_volatile()];
            (&raw mut (*own).stack).write_volatile(self.address + self.bytes);
            (&raw mut (*own).stack_end).write_volatile(end);
            let result = run();
            (&raw mut (*own).stack).write_volatile(before[0]);
            (&raw mut (*own).stack_end).write_volatile(before[1]);
            result
        }
    }
}

/// A workgroup that serves as threads.
struct Wave {
    /// [`FREE`], [`TAKEN`], or the address of what it is to run.
    work: AtomicUsize,
    /// Who takes the wave may change it, until there is work.
    stack: UnsafeCell<Stack>,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

// SAFETY: only who changed `work` from `FREE` to `TAKEN` accesses the stack, and then the wave, until it is `FREE` again.
unsafe impl Sync for Wave {}

static WAVES: [Wave; MOST] =
    [const { Wave { work: AtomicUsize::new(FREE), stack: UnsafeCell::new(Stack::NONE) } }; MOST];

/// Threads beside the main one that have not ended.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Where the next search for a wave begins.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether `main` has returned.
static IS_OVER: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    /// What the compiler makes of a program's `fn main()`: it runs it by `std`, and returns the exit code.
    #[link_name = "__hostcall_std_main"]
    fn main_of_program(argument_count: i32, arguments: *const *const u8) -> i32;
    /// Runs the thread that the layer has described at this address.
    #[link_name = "__hostcall_std_thread"]
    fn thread_of_layer(start: *mut u8);
}

#[inline(never)]
fn run_main() -> i32 {
    // SAFETY: the compiler made it, of this signature. Arguments are asked for where the program reads them.
    unsafe { main_of_program(0, null()) }
}

#[inline(never)]
fn run_thread(start: *mut u8) {
    // SAFETY: the layer gave it to `__hostcall_std_spawn`, for this call alone.
    unsafe { thread_of_layer(start) }
}

/// How many threads the grid has waves for, beside the main one.
fn waves() -> usize {
    let [x, y, z] = target::here().params().workgroups;
    ((x * y * z) as usize - 1).min(MOST)
}

/// Runs the program on the grid's first lane. Returns its exit code.
pub(super) fn main() -> i32 {
    begin();
    let stack = match HAS_STACKS.then(|| Stack::new(MAIN_STACK_BYTES)) {
        Some(None) => {
            panics::report("the host has no memory for the main thread's stack", file!(), line!(), 1);
            target::exit_lane()
        }
        Some(Some(stack)) => stack,
        None => Stack::NONE,
    };
    // SAFETY: it is new, and `run_main` is never inlined.
    let code = unsafe { stack.run(run_main) };
    if RUNNING.load(Ordering::Acquire) > 0 {
        // As on Linux, the others end with the program.
        process::exit(code);
    }
    IS_OVER.store(1, Ordering::Release);
    stack.free();
    code
}

/// Serves as threads until the program is over.
#[inline(never)]
pub(super) fn serve() {
    let Some(wave) = WAVES.get(target::here().workgroup_index() as usize - 1) else { return };
    begin();
    let mut wait = Wait::new(LONGEST_IDLE_NS);
    loop {
        match wave.work.load(Ordering::Acquire) {
            FREE | TAKEN if IS_OVER.load(Ordering::Acquire) != 0 => return,
            FREE | TAKEN => wait.pause(),
            work => {
                // SAFETY: the wave is taken, so that its stack is its own; it is on none but its kernel's.
                unsafe { (*wave.stack.get()).run(|| run_thread(with_exposed_provenance_mut(work))) };
                wave.work.store(FREE, Ordering::Release);
                wait = Wait::new(LONGEST_IDLE_NS);
            }
        }
    }
}

/// Makes the workgroup's words: on a GPU they are what the workgroup before left.
fn begin() {
    // SAFETY: the words are this lane's.
    unsafe { (*own()).locals = [0; 2] };
}

/// The longest time between two looks of a wave that has no thread, in ns.
const LONGEST_IDLE_NS: u64 = 2_000_000;

/// The longest time between two looks of a thread at the word that it waits for, in ns.
const LONGEST_WAIT_NS: u64 = 200_000;

/// A wait for a word in device memory. Who has waited for long looks rarely, so that many that wait leave the device to those that
/// run, and nothing of it is seen by the link.
struct Wait {
    begun_ns: u64,
    longest_ns: u64,
}

impl Wait {
    fn new(longest_ns: u64) -> Self {
        Self { begun_ns: target::here().clock_ns(), longest_ns }
    }

    fn pause(&mut self) {
        let waited = target::here().clock_ns().saturating_sub(self.begun_ns);
        time::sleep(Duration::from_nanos((waited / 8).clamp(500, self.longest_ns)));
    }
}

/// The numbers of the errors when there is no wave for a thread, and no memory.
const NO_WAVE: i32 = 11;
const NO_MEMORY: i32 = 12;

/// Starts a thread, which [`run_thread`]s `start` on a stack of so many bytes.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_spawn(start: *mut u8, stack_bytes: usize) -> i32 {
    let waves = waves();
    let one_more = |running| (running < waves as u32).then_some(running + 1);
    if RUNNING.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_err() {
        return NO_WAVE;
    }
    // One is free, or will be at once.
    let mut at = NEXT.fetch_add(1, Ordering::Relaxed) as usize % waves;
    let mut wait = Wait::new(LONGEST_WAIT_NS);
    let wave = loop {
        let wave = &WAVES[at];
        if wave.work.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            break wave;
        }
        at = (at + 1) % waves;
        if at == 0 {
            wait.pause();
        }
    };
    if HAS_STACKS {
        // SAFETY: the wave is taken.
        let stack = unsafe { &mut *wave.stack.get() };
        if stack.bytes < stack_bytes.saturating_add(SPARE_BYTES) {
            core::mem::replace(stack, Stack::NONE).free();
            let Some(new) = Stack::new(stack_bytes) else {
                wave.work.store(FREE, Ordering::Release);
                RUNNING.fetch_sub(1, Ordering::Release);
                return NO_MEMORY;
            };
            *stack = new;
        }
    }
    wave.work.store(start.expose_provenance(), Ordering::Release);
    0
}

/// Says that the calling thread has ended, before anybody learns it who would start another one.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_ended() {
    RUNNING.fetch_sub(1, Ordering::Release);
}

/// How many threads can run beside the main one.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_waves() -> usize {
    waves()
}

/// A number of the calling thread's.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_thread_number() -> u32 {
    target::here().workgroup_index()
}

/// The calling thread's two words for the values of thread-local variables, zeros when it began.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_locals() -> *mut [usize; 2] {
    // SAFETY: takes an address of memory that the workgroup has.
    unsafe { &raw mut (*own()).locals }
}

/// Waits until the word is another one than `expected`, or until so many nanoseconds have passed. Returns whether the word is.
///
/// # Safety
/// The word lives until the function returns.
#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_wait(word: *const AtomicU32, expected: u32, timeout_ns: u64) -> bool {
    // SAFETY: the caller's promise.
    let word = unsafe { &*word };
    let mut wait = Wait::new(LONGEST_WAIT_NS);
    while word.load(Ordering::Relaxed) == expected {
        if target::here().clock_ns().saturating_sub(wait.begun_ns) >= timeout_ns {
            return false;
        }
        wait.pause();
    }
    true
}

/// Tells that the calling thread's stack is full, and ends the program. The build has functions call it that find no room.
#[unsafe(no_mangle)]
#[cold]
extern "C" fn __hostcall_std_stack_full() -> ! {
    // SAFETY: the word is this lane's. What is spare is for the functions that are called here.
    unsafe { (&raw mut (*own()).stack_end).write_volatile(0) };
    panics::report(
        "the thread's stack is full: give it more, by `thread::Builder::stack_size` or RUST_MIN_STACK",
        file!(),
        line!(),
        1,
    );
    target::exit_lane()
}
