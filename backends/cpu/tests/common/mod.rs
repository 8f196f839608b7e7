//! What the tests share: launches of small kernels that use the executor's operations directly.
#![allow(dead_code, reason = "each test file uses its own part")]

use hostcall_abi::cpu::{CpuLane, CpuOperations, ENTRY_DONE, ENTRY_EXITED, Entry, OtherBarrier};
use hostcall_abi::launch::LaunchParams;
use hostcall_softdev::{Config, Executor, Launch, LaunchError, LaunchHandle, LaunchResult};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Longer than any test's launch takes; what needs it has failed.
pub const LONG: Option<Duration> = Some(Duration::from_secs(60));

pub fn params(workgroups: [u32; 3], workgroup_size: [u32; 3]) -> LaunchParams {
    let workgroup_size = workgroup_size.map(|lanes| lanes.try_into().unwrap_or(u16::MAX));
    // These kernels make no calls.
    LaunchParams { workgroups, workgroup_size, ..LaunchParams::default() }
}

/// A launch whose lanes get the address of `data`.
pub fn launch<T: Send + Sync + 'static>(entry: Entry, data: &Arc<T>, params: LaunchParams) -> Launch {
    Launch {
        entry,
        arguments: (Arc::as_ptr(data) as usize).to_ne_bytes().to_vec(),
        params,
        keep_alive: Box::new(Arc::clone(data)),
        notify: Arc::new(|| ()),
        on_failure: Arc::new(|| ()),
    }
}

pub fn start<T: Send + Sync + 'static>(
    executor: &Executor,
    entry: Entry,
    data: &Arc<T>,
    params: LaunchParams,
) -> LaunchHandle {
    try_launch(executor, launch(entry, data, params)).expect("the grid fits")
}

pub fn run<T: Send + Sync + 'static>(
    executor: &Executor,
    entry: Entry,
    data: &Arc<T>,
    params: LaunchParams,
) -> LaunchResult {
    start(executor, entry, data, params).wait(LONG).expect("the launch ends")
}

/// Starts a launch of one of the tests' kernels.
pub fn try_launch(executor: &Executor, launch: Launch) -> Result<LaunchHandle, LaunchError> {
    // SAFETY: the tests' kernels are launched with the data that they name; what misbehaves does so to show that
    // the device ends it.
    unsafe { executor.launch(launch) }
}

pub fn executor(change: impl FnOnce(&mut Config)) -> Executor {
    let mut config = Config { threads: 2, cancel_grace: Duration::from_millis(50), ..Config::default() };
    change(&mut config);
    Executor::new(config).expect("threads start")
}

/// What a kernel of these tests works with.
pub struct Kernel<'a, T> {
    pub lane: *mut CpuLane,
    pub data: &'a T,
}

impl<'a, T> Kernel<'a, T> {
    /// # Safety
    /// The arguments of an entry that was launched with data of type `T`.
    pub unsafe fn new(lane: *mut CpuLane, arguments: *const u8) -> Self {
        // SAFETY: the caller's promise; the launch keeps the data alive.
        Kernel { lane, data: unsafe { &**arguments.cast::<*const T>() } }
    }

    pub fn abi(&self) -> &CpuLane {
        // SAFETY: valid and only read for the life of the lane.
        unsafe { &*self.lane }
    }

    fn operations(&self) -> &CpuOperations {
        // SAFETY: valid for the life of the lane.
        unsafe { &*self.abi().operations }
    }

    pub fn params(&self) -> &LaunchParams {
        // SAFETY: valid for the life of the lane.
        unsafe { &*self.abi().launch }
    }

    /// Index of the lane in its wave.
    pub fn lane_index(&self) -> u32 {
        self.abi().lane.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Index of the lane in its workgroup.
    pub fn index(&self) -> u32 {
        self.abi().wave * self.abi().wave_size + self.lane_index()
    }

    pub fn converge(&self, site: u64) -> u64 {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().converge)(self.lane, site) }
    }

    pub fn exchange(&self, mask: u64, value: u64, gets: u32) -> u64 {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().exchange)(self.lane, mask, value, gets) }
    }

    /// Every lane's value, by as many exchanges.
    pub fn exchange_all(&self, mask: u64, value: u64) -> [u64; 64] {
        std::array::from_fn(|from| self.exchange(mask, value, from as u32))
    }

    pub fn barrier(&self) {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().barrier)(self.lane, 1, &mut OtherBarrier::default()) }
    }

    pub fn wait(&self, flag: &AtomicBool) {
        unsafe extern "C" fn poll(flag: *mut c_void) -> bool {
            // SAFETY: `wait` passes an AtomicBool.
            unsafe { &*flag.cast::<AtomicBool>() }.load(SeqCst)
        }
        let data = std::ptr::from_ref(flag).cast_mut().cast();
        // SAFETY: the lane that runs, and a poll with its data.
        unsafe { (self.operations().wait)(self.lane, poll, data) }
    }

    pub fn pause(&self) {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().pause)(self.lane) }
    }

    pub fn notify(&self) {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().notify)(self.lane) }
    }

    pub fn clock_ns(&self) -> u64 {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().clock_ns)(self.lane) }
    }

    pub fn sleep(&self, time: Duration) {
        let deadline_ns = self.clock_ns() + time.as_nanos() as u64;
        // SAFETY: the lane that runs.
        unsafe { (self.operations().sleep_until)(self.lane, deadline_ns) }
    }

    /// Lends memory to the host, and returns its address there.
    ///
    /// # Safety
    /// Only the host uses the bytes until they are taken back, or the lane has ended.
    pub unsafe fn lend(&self, bytes: *mut [u8], written: bool) -> u64 {
        // SAFETY: the lane that runs, and the caller's promise.
        unsafe { (self.operations().lend)(self.lane, bytes.cast(), bytes.len(), written) }
    }

    pub fn take_back(&self, address: u64) {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().take_back)(self.lane, address) }
    }

    /// Says that the kernel unwinds as this test's process does, as kernels of Rust say at their start.
    pub fn may_unwind(&self) {
        extern "C" fn unwinding() -> bool {
            std::thread::panicking()
        }
        // SAFETY: the kernel's own write to its lane, before anything unwinds.
        unsafe { (*self.lane).unwinding = Some(unwinding) };
    }

    /// Ends the lane where it is.
    pub fn end(&self) -> ! {
        // SAFETY: the lane that runs.
        unsafe { (self.operations().end)(self.lane) }
    }

    pub fn cancelled(&self) -> bool {
        // SAFETY: the lane that runs.
        unsafe { (*(*self.lane).cancelled).load(std::sync::atomic::Ordering::Relaxed) }
    }
}

/// Adds one to its data.
pub unsafe extern "C" fn count(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with a counter.
    unsafe { Kernel::<AtomicU64>::new(lane, arguments) }.data.fetch_add(1, SeqCst);
    ENTRY_DONE
}

/// The executor still runs a grid.
pub fn assert_works(executor: &Executor) {
    let counter = Arc::new(AtomicU64::new(0));
    run(executor, count, &counter, params([4, 1, 1], [40, 1, 1])).expect("the grid runs");
    assert_eq!(counter.load(SeqCst), 160);
}

/// Pauses until its data is true or the launch is cancelled.
pub unsafe extern "C" fn pause_until(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with a flag.
    let kernel = unsafe { Kernel::<AtomicBool>::new(lane, arguments) };
    while !kernel.data.load(SeqCst) {
        if kernel.cancelled() {
            return ENTRY_EXITED;
        }
        kernel.pause();
    }
    ENTRY_DONE
}
