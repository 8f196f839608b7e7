//! A device: threads that run the waves of launches.
//!
//! A workgroup belongs to one thread at a time, which runs each of its waves for a slice and then puts the workgroup
//! at the end of the run queue. So waves that spin hold nothing up but their share of time, and local memory needs no locks.

mod group;
mod launch;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::code::CodeMap;
use crate::exec::LANES;
use crate::memory::Memory;

use group::{Group, Progress};
pub use launch::{Failure, Launch, LaunchSpec};

/// The most waves that a device holds at once. Waves beyond them start when others end, as on any device.
pub const RESIDENT_WAVES: usize = 2048;

/// The most bytes of scratch memory that resident waves have together, besides those of one workgroup.
const RESIDENT_SCRATCH: u64 = 4 << 30;

/// How often a thread finds nothing but sleeping waves before it sleeps, too.
const PATIENCE: u32 = 2000;

/// How long a thread sleeps when all waves sleep. It bounds how late a wave sees the host's answer.
const NAP: Duration = Duration::from_micros(50);

/// A device.
#[derive(Debug)]
pub struct Device {
    /// Device memory.
    pub memory: Arc<Memory>,
    /// Loaded code.
    pub code: CodeMap,
    /// When the device's clocks began.
    pub epoch: Instant,
    run_queue: Mutex<RunQueue>,
    work: Condvar,
    stopping: AtomicBool,
    next_launch: AtomicU64,
    executed: AtomicU64,
}

/// What waits for a thread.
#[derive(Debug, Default)]
struct RunQueue {
    /// Launches with workgroups that have not started.
    launches: VecDeque<Arc<Launch>>,
    /// Workgroups that started.
    groups: VecDeque<Group>,
    /// Waves of workgroups that started and have not ended.
    resident: usize,
    /// Bytes of their scratch memory.
    scratch: u64,
}

/// A device with its threads, which end when this is dropped.
#[derive(Debug)]
pub struct Running {
    device: Arc<Device>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Running {
    /// Starts a device with so many threads.
    ///
    /// # Errors
    ///
    /// The system gives no more threads.
    pub fn start(memory: Arc<Memory>, threads: usize) -> std::io::Result<Running> {
        let running = Running { device: Arc::new(Device::new(memory)), threads: Mutex::default() };
        for number in 0..threads.max(1) {
            let device = Arc::clone(&running.device);
            let thread = std::thread::Builder::new().name(format!("compute unit {number}"));
            let thread = thread.spawn(move || device.work(number as u32))?;
            running.threads().push(thread);
        }
        Ok(running)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the device: no wave runs any more when this returns, and launches that have not ended never do.
    pub fn stop(&self) {
        self.device.stopping.store(true, Ordering::Release);
        // The lock makes sure that no thread is between its look at the flag and its sleep.
        drop(self.device.lock());
        self.device.work.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            // The end of a launch can be what stops the device, on one of its own threads.
            if thread.thread().id() != std::thread::current().id() {
                // A panic of a device thread was printed when it happened.
                let _ = thread.join();
            }
        }
        // What launches keep may hold the device.
        let left = std::mem::take(&mut *self.device.lock());
        drop(left);
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Device {
    fn new(memory: Arc<Memory>) -> Device {
        Device {
            memory,
            code: CodeMap::default(),
            epoch: Instant::now(),
            run_queue: Mutex::default(),
            work: Condvar::new(),
            stopping: AtomicBool::new(false),
            next_launch: AtomicU64::new(1),
            executed: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunQueue> {
        self.run_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many instructions the waves of all workgroups that have ended executed.
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    /// Starts a launch. `ended` is called when no workgroup of it runs or will run, with the first failure if waves
    /// failed: mostly on a device thread, but on this one if the grid is empty, and on one that stops the launch if
    /// none runs then. It is dropped if the device stops before.
    pub fn launch(
        &self,
        spec: LaunchSpec,
        ended: impl FnOnce(Option<Failure>) + Send + 'static,
    ) -> Arc<Launch> {
        let number = self.next_launch.fetch_add(1, Ordering::Relaxed);
        let launch = Arc::new(Launch::new(number, spec, Box::new(ended)));
        if launch.workgroups() == 0 {
            launch.finish();
            return launch;
        }
        let mut run_queue = self.lock();
        if !self.stopping.load(Ordering::Acquire) {
            run_queue.launches.push_back(Arc::clone(&launch));
        }
        drop(run_queue);
        self.work.notify_all();
        launch
    }

    /// Stops launches: their waves end at their next slice, and workgroups that have not started never do, also behind other
    /// launches that fill the device.
    pub fn stop_launches(&self, launches: &[Arc<Launch>]) {
        launches.iter().for_each(|launch| launch.stop());
        let stopped = |launch: &Arc<Launch>| launches.iter().any(|stopped| Arc::ptr_eq(stopped, launch));
        self.lock().launches.retain(|launch| !stopped(launch));
        launches.iter().for_each(|launch| launch.retire_rest());
    }

    /// Runs a launch to its end.
    ///
    /// # Errors
    ///
    /// A wave failed.
    pub fn run(&self, spec: LaunchSpec) -> Result<(), Failure> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.launch(spec, move |failure| {
            // The receiver waits below.
            let _ = sender.send(failure);
        });
        match receiver.recv() {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => Err(failure),
            Err(_) => Err(Failure::lost()),
        }
    }

    /// Runs workgroups until the device stops.
    fn work(&self, unit: u32) {
        let mut fruitless = 0;
        loop {
            let Some(mut group) = self.next() else { return };
            let progress = group.run(self, unit);
            let mut run_queue = self.lock();
            if group.is_done() {
                run_queue.resident -= group.waves();
                run_queue.scratch -= group.scratch_bytes();
                drop(run_queue);
                self.executed.fetch_add(group.executed(), Ordering::Relaxed);
                let launch = group.retire();
                if launch.is_stopped() {
                    self.stop_launches(&[launch]);
                }
                self.work.notify_all();
                fruitless = 0;
                continue;
            }
            let others = run_queue.groups.len() as u32;
            run_queue.groups.push_back(group);
            drop(run_queue);
            fruitless = if progress == Progress::Made { 0 } else { fruitless + 1 };
            if fruitless > PATIENCE.max(others * 4) {
                std::thread::sleep(NAP);
            } else if fruitless > others {
                std::thread::yield_now();
            }
        }
    }

    /// Returns the next workgroup to run, or `None` if the device stops.
    fn next(&self) -> Option<Group> {
        let mut run_queue = self.lock();
        loop {
            if self.stopping.load(Ordering::Acquire) {
                return None;
            }
            if let Some(group) = self.start_group(&mut run_queue) {
                return Some(group);
            }
            if let Some(group) = run_queue.groups.pop_front() {
                return Some(group);
            }
            run_queue = self.work.wait(run_queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts a workgroup of the first launch that has one, if the device can hold it.
    fn start_group(&self, run_queue: &mut RunQueue) -> Option<Group> {
        loop {
            let launch = run_queue.launches.front()?;
            let waves = launch.waves_in_workgroup();
            let scratch = waves as u64 * LANES as u64 * u64::from(launch.spec.private_bytes);
            let fits = run_queue.resident + waves <= RESIDENT_WAVES
                && run_queue.scratch + scratch <= RESIDENT_SCRATCH;
            if run_queue.resident > 0 && !fits {
                return None;
            }
            match launch.take_workgroup() {
                Some(number) => {
                    let group = Group::new(Arc::clone(launch), number, &self.memory);
                    run_queue.resident += group.waves();
                    run_queue.scratch += group.scratch_bytes();
                    return Some(group);
                }
                None => {
                    run_queue.launches.pop_front();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Descriptor;

    fn spec(descriptor: Descriptor, grid: [u32; 3], private_bytes: u32) -> LaunchSpec {
        LaunchSpec {
            name: String::new(),
            descriptor,
            entry: 0,
            kernarg: 0,
            grid,
            workgroup: [64, 1, 1],
            group_bytes: 0,
            private_bytes,
            packet: 0,
            queue: 0,
            packet_id: 0,
        }
    }

    /// Returns how many workgroups of one wave a device holds whose lanes have so much scratch memory.
    fn resident(private_bytes: u32) -> usize {
        let device = Device::new(Arc::new(Memory::new()));
        let descriptor = Descriptor::read(&[0; Descriptor::BYTES]).expect("it asks for nothing");
        let spec = spec(descriptor, [1 << 20, 1, 1], private_bytes);
        device.launch(spec, drop);
        let mut run_queue = device.lock();
        std::iter::from_fn(|| device.start_group(&mut run_queue)).count()
    }

    #[test]
    fn a_launch_that_failed_starts_no_more_workgroups() {
        let running = Running::start(Arc::new(Memory::new()), 2).expect("the device starts");
        let descriptor = Descriptor::read(&[0; Descriptor::BYTES]).expect("it asks for nothing");
        let spec = spec(descriptor, [u32::MAX, 1 << 10, 1], 0);
        let failure = running.device().run(spec).expect_err("there is no code");
        assert!(failure.to_string().contains("(entry +0x0)"), "{failure}");
    }

    #[test]
    fn a_failure_names_the_instruction() {
        let descriptor = Descriptor::read(&[0; Descriptor::BYTES]).expect("it asks for nothing");
        let running = Running::start(Arc::new(Memory::new()), 1).expect("the device starts");
        let device = running.device();
        // s_nop 0; s_load_dword s4, s[0:1], 0x10
        device.code.add(0x1000, vec![0xbf80_0000, 0xc002_0100, 0x10]);
        // s_trap 2
        device.code.add(0x2000, vec![0xbf92_0002]);
        // s_setpc_b64 s[0:1]
        device.code.add(0x3000, vec![0xbe80_1d00]);
        for (entry, expected) in [
            (
                0x1000,
                "at 0x1004 (entry +0x4), `s_load_dword s4, s[0:1], 0x10` (0xc0020100 0x00000010): a read from 0x10, \
                 which no allocation holds",
            ),
            (0x2000, "at 0x2000 (entry +0x0), `s_trap 2` (0xbf920002): trap 2"),
            (0x3000, "at 0x0 (entry -0x3000): the program counter left the loaded code"),
        ] {
            let failure = device.run(LaunchSpec { entry, ..spec(descriptor, [64, 1, 1], 0) });
            let failure = failure.expect_err("it faults").to_string();
            assert_eq!(failure, format!("kernel , workgroup 0,0,0, wave 0, {expected}"));
        }
    }

    #[test]
    fn a_launch_is_stopped_behind_one_that_fills_the_device() {
        let device = Device::new(Arc::new(Memory::new()));
        let descriptor = || Descriptor::read(&[0; Descriptor::BYTES]).expect("it asks for nothing");
        device.launch(spec(descriptor(), [1 << 30, 1, 1], 0), |_| unreachable!("nobody runs it"));
        let (sender, ended) = std::sync::mpsc::channel();
        let behind = device.launch(spec(descriptor(), [1, 1, 1], 0), move |failure| {
            sender.send(failure.is_none()).expect("somebody waits");
        });
        device.stop_launches(&[behind]);
        assert_eq!(ended.try_recv(), Ok(true));
    }

    /// Words of the arguments are in user registers behind those of the properties, and workgroups' numbers behind all.
    #[test]
    fn arguments_are_preloaded() {
        use crate::load::descriptor::property;
        use crate::memory::Use;
        let mut raw = [0; Descriptor::BYTES];
        // Eight user registers and the number in x; the arguments' address, and three words from the second on.
        raw[52..56].copy_from_slice(&(8u32 << 1 | 1 << 7).to_le_bytes());
        raw[56..58].copy_from_slice(&property::KERNARG_POINTER.to_le_bytes());
        raw[58..60].copy_from_slice(&(1u16 << 7 | 3).to_le_bytes());
        let descriptor = Descriptor::read(&raw).expect("it asks for what there is");
        let running = Running::start(Arc::new(Memory::new()), 1).expect("the device starts");
        let device = running.device();
        let kernarg = device.memory.allocate(4096, Use::Pool).expect("there is memory");
        let results = device.memory.allocate(4096, Use::Pool).expect("there is memory");
        for word in 0..5 {
            device.memory.view().store_u32(kernarg + word * 4, 100 + word as u32).expect("it is allocated");
        }
        device.memory.view().store_u64(kernarg + 16, results).expect("it is allocated");
        // s_load_dwordx2 s[10:11], s[0:1], 0x10; s_store_dwordx4 s[0:3], s[10:11], 0x0 and s[4:7] and s8 behind them;
        // s_endpgm.
        let code =
            [[0xc006_0280, 16], [0xc04a_0005, 0], [0xc04a_0105, 16], [0xc042_0205, 32], [0xbf81_0000, 0]];
        device.code.add(0x1000, code.concat());
        let spec = LaunchSpec { entry: 0x1000, kernarg, ..spec(descriptor, [128, 1, 1], 0) };
        device.run(spec.clone()).expect("it runs");
        let found = [0, 1, 2, 3, 4, 5, 6, 7].map(|word| device.memory.view().load_u32(results + word * 4));
        let [low, high] = [kernarg as u32, (kernarg >> 32) as u32];
        assert_eq!(found, [low, high, 101, 102, 103, 0, 0, 0].map(Ok));
        assert!(
            device.memory.view().load_u32(results + 32).is_ok_and(|number| number < 2),
            "the workgroup's"
        );
        // Without arguments the launch fails before the first instruction.
        let failure = device.run(LaunchSpec { kernarg: 0x50, ..spec }).expect_err("nothing is there");
        assert!(failure.to_string().contains("a read from 0x54, which no allocation holds"), "{failure}");
        raw[52] = 2 << 1;
        let refused = Descriptor::read(&raw).expect_err("three words do not fit");
        assert_eq!(
            refused,
            "it asks for 5 user registers (preloaded arguments: 3) and says that there are 2; 16 are the most"
        );
    }

    #[test]
    fn waves_are_resident_as_far_as_there_is_room_for_them() {
        assert_eq!(resident(0), RESIDENT_WAVES);
        assert_eq!(resident(1 << 20), 64);
    }
}
