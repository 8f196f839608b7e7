//! Streams: work in order, beside the work of other streams. Each has a thread that does one thing after the
//! other; the services run on the server's threads, so that waiting here never delays a call.

use super::backend::{KernelCode, Start};
use super::event::Event;
use super::launch::Grid;
use super::slots::POOL_SLOTS;
use super::{Device, Error, Inner, LaunchFailure};
use hostcall_abi::ABI_VERSION;
use hostcall_abi::launch::LaunchParams;
use hostcall_abi::layout::Sizes;
use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub(super) struct Work {
    pub name: String,
    pub kernel: Arc<dyn KernelCode>,
    pub grid: Grid,
    pub arguments: Vec<u8>,
    pub keep_alive: Vec<Arc<dyn Any + Send + Sync>>,
}

enum Operation {
    Launch(Work),
    Record(Event),
    Wait(Event),
}

/// An in-order queue of a device's work. Dropping it waits for its work.
pub struct Stream {
    device: Arc<Inner>,
    queue: Option<Sender<Operation>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<Mutex<Option<Error>>>,
}

impl Device {
    /// A new stream.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn stream(&self) -> Result<Stream, Error> {
        let (queue, operations) = mpsc::channel();
        let failed = Arc::new(Mutex::new(None));
        let (device, failures) = (self.inner.clone(), failed.clone());
        let work = move || {
            for operation in operations {
                match operation {
                    Operation::Launch(work) => {
                        let kernel = work.name.clone();
                        if let Err(failure) = run(&device, work) {
                            let mut failed = failures.lock().unwrap_or_else(PoisonError::into_inner);
                            failed.get_or_insert(Error::Launch { kernel, failure });
                        }
                    }
                    Operation::Record(event) => event.set(),
                    Operation::Wait(event) => event.wait(),
                }
            }
        };
        let thread = std::thread::Builder::new().name("hostcall-stream".into()).spawn(work);
        let thread = thread.map_err(|error| Error::Device(format!("no thread for a stream: {error}")))?;
        Ok(Stream { device: self.inner.clone(), queue: Some(queue), thread: Some(thread), failed })
    }
}

impl Stream {
    fn push(&self, operation: Operation) {
        // The thread ends only after the queue is dropped.
        let _ = self.queue.as_ref().expect("open until it is dropped").send(operation);
    }

    pub(super) fn device(&self) -> &Arc<Inner> {
        &self.device
    }

    pub(super) fn enqueue(&self, work: Work) {
        self.push(Operation::Launch(work));
    }

    /// An event that happens when all work so far is done.
    pub fn record(&self) -> Event {
        let event = Event::new();
        self.push(Operation::Record(event.clone()));
        event
    }

    /// Lets later work of this stream wait for an event.
    pub fn wait_for(&self, event: &Event) {
        self.push(Operation::Wait(event.clone()));
    }

    /// Waits until all work so far is done. Services go on meanwhile.
    ///
    /// # Errors
    /// The first failure of a launch since the last call: with a kernel's panic come kernel, workgroup, lane,
    /// message and place.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.record().wait();
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs one launch to its end.
fn run(device: &Arc<Inner>, work: Work) -> Result<(), LaunchFailure> {
    let workgroup_waves = work.grid.workgroup_lanes().div_ceil(u64::from(device.backend.wave_size()));
    let at_least = u32::try_from(workgroup_waves).unwrap_or(u32::MAX);
    if at_least > device.slots.most_waves() {
        return Err(LaunchFailure::Refused(format!(
            "a workgroup of {workgroup_waves} waves needs as many call slots, and the device was opened with {}; open it with more",
            device.slots.most_waves()
        )));
    }
    let waves = work.grid.workgroup_count().saturating_mul(workgroup_waves);
    let range = device.slots.take(waves, at_least);
    let slot_count = range.len() as u32 - POOL_SLOTS;
    let mut sizes = Sizes::from(device.layout);
    let resident = u32::try_from(waves).unwrap_or(u32::MAX).min(slot_count);
    sizes.layout.ring_entries = device.layout.ring_entries_for(resident);
    let number = device.numbers.take();
    let launch = number.get();
    let params = LaunchParams {
        abi_version: ABI_VERSION,
        epoch: device.epoch,
        launch,
        region: device.region_address,
        states: device.states.address(),
        pool_bitmap: device.pool_bitmap.address() + u64::from(range.start / 8),
        sizes,
        slot_base: range.start + POOL_SLOTS,
        slot_count,
        pool_base: range.start,
        pool_count: POOL_SLOTS,
        workgroups: work.grid.workgroups,
        workgroup_size: work.grid.lanes,
        workgroup_memory_bytes: work.grid.workgroup_memory_bytes(work.kernel.info()),
        reserved: 0,
        workgroup_memory: 0,
    };
    device.server.resize_rings(params.slot_base..range.end, sizes.layout.ring_entries);
    device.server.attach(range.clone(), launch);
    let (server, failed) = (device.server.clone(), device.server.clone());
    let start = Start {
        name: work.name,
        kernel: work.kernel,
        params,
        arguments: work.arguments,
        keep_alive: work.keep_alive,
        notify: Arc::new(move || server.wake()),
        on_failure: Arc::new(move || failed.cancel(launch)),
    };
    // Locked until the launch is known, so that nobody who cancels it comes too early.
    let mut running = device.running();
    let started = if device.closed.load(Ordering::Relaxed) {
        Err(LaunchFailure::Refused("the device was closed".to_string()))
    } else {
        device.backend.start(start).map(|started| running.entry(launch).or_insert(started.into()).clone())
    };
    drop(running);
    let result = started.and_then(|started| {
        let result = started.wait(None).expect("without a timeout the wait ends with the launch");
        device.running().remove(&launch);
        result
    });
    let is_quiet = device.server.flush(range.clone());
    let report = device.builtins.reports().take(launch);
    let ended_in_order = result.is_ok() && report.panic.is_none() && report.exit_code.is_none();
    let is_cancelled = device.server.is_cancelled(&range);
    // A kernel may forget calls that it started.
    if !device.server.detach(range.clone(), ended_in_order && is_quiet) {
        // A device whose memory cannot be written any more runs nothing else either.
        let _ = device.clear_states(range.clone());
    }
    // To a device, lanes that learned of the cancellation from a call and returned have ended in order.
    let result = if ended_in_order && is_cancelled { Err(LaunchFailure::Cancelled) } else { result };
    device.slots.give_back(&range);
    device.builtins.stdio().flush();
    device.builtins.heap().free_launch(launch);
    let outcome = match (report.panic, report.exit_code, result) {
        (Some(panic), ..) => Err(LaunchFailure::Panicked(Some(panic))),
        // A program that exits ends its other lanes.
        (None, Some(_), Err(LaunchFailure::Cancelled)) => Ok(()),
        (None, _, result) => result,
    };
    if let Some(code) = report.exit_code {
        device.exit_code.store(i64::from(code), Ordering::Relaxed);
    }
    outcome
}
