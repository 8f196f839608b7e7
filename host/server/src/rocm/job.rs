//! A packet whose handler runs on a worker thread.

use super::buffer::{Buffer, Taken};
use super::consumer::{Shared, handled};
use super::services::{Entry, handle};
use crate::engine::calls::Call;
use crate::engine::trace::Recording;
use crate::engine::watchdog::{Waiting, WaitsFor, Watched};
use crate::engine::workers::Work;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(super) struct Job {
    shared: Arc<Shared>,
    buffer: Arc<Buffer>,
    entry: Arc<Entry>,
    packet: u32,
    service: u32,
    lanes: u32,
    started: Instant,
    /// Until a thread takes it.
    taken: Mutex<Option<Taken>>,
    /// Until the packet is answered, if there is a tracer.
    recording: Mutex<Option<Recording>>,
    /// The packet is not answered.
    open: AtomicBool,
}

impl Job {
    /// Has a packet's handler run on a worker thread.
    pub fn submit(
        shared: &Arc<Shared>,
        buffer: &Arc<Buffer>,
        entry: Arc<Entry>,
        taken: Taken,
        recording: Option<Recording>,
    ) {
        let threads = entry.threads;
        let job = Arc::new(Self {
            shared: shared.clone(),
            buffer: buffer.clone(),
            entry,
            packet: taken.packet,
            service: taken.header.service,
            lanes: taken.header.mask.count_ones(),
            started: Instant::now(),
            taken: Mutex::new(Some(taken)),
            recording: Mutex::new(recording),
            open: AtomicBool::new(true),
        });
        shared.engine.watchdog.watch(&job);
        shared.engine.pool(threads).submit(job, 1);
    }

    /// Returns whether the caller is the one that answers the packet.
    fn close(&self) -> bool {
        self.open.swap(false, Ordering::AcqRel)
    }
}

impl Work for Job {
    fn run_next(self: Arc<Self>) {
        if self.buffer.is_closed() {
            return self.give_up();
        }
        let Some(mut taken) = self.taken.lock().take() else { return };
        let recording = self.recording.lock().take();
        let began_ns = recording.as_ref().map(|recording| recording.now_ns());
        let faults = handle(&self.entry, &self.buffer, &mut taken, true);
        let handled = recording.map(|recording| handled(recording, began_ns, &taken, &faults));
        faults.into_iter().for_each(|fault| self.shared.tell(&self.buffer, fault));
        if self.close() {
            self.buffer.answer(self.packet, taken.header.mask, &taken.lanes);
        }
        if let Some(mut recording) = handled {
            recording.answered(self.entry.name, self.service, LaunchId::NONE);
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_open()
    }
}

impl Call for Job {
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn launch(&self) -> LaunchId {
        LaunchId::NONE
    }
}

impl Watched for Job {
    fn started(&self) -> Instant {
        self.started
    }

    fn give_up(&self) {
        if self.close() {
            if let Some(mut recording) = self.recording.lock().take() {
                recording.lanes_ended(self.lanes, Status::Error(CallError::Cancelled));
                recording.answered(self.entry.name, self.service, LaunchId::NONE);
            }
            self.buffer.release(self.packet);
        }
    }

    fn slot(&self) -> u32 {
        self.packet
    }

    fn waiting(&self) -> Waiting {
        let waits = self.taken.lock().is_some();
        Waiting {
            device: Arc::default(),
            slot: self.packet,
            launch: LaunchId::NONE,
            kernel: "".into(),
            place: None,
            lanes: self.lanes,
            service: self.entry.name.to_owned(),
            waited: self.started.elapsed(),
            waits_for: if waits { WaitsFor::Thread } else { WaitsFor::Handler },
        }
    }
}
