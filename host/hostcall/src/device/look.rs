//! What others may look at of an open device, while everything in it hangs: nothing here calls a driver or a user's code.

use super::core::Core;
use super::hostcalls::Hostcalls;
use super::llvm_calls::LlvmCalls;
use super::metrics::{DeviceMetrics, hold_ended, note_ended};
use super::wait_table::WaitTable;
use hostcall_locks::Mutex;
use hostcall_server::services::Stdio;
use hostcall_server::{Server, Waiting};
use hostcall_trace::Tracer;
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

/// The parts of a device that can be looked at.
pub(crate) struct Parts {
    pub core: Arc<Core>,
    pub server: Arc<Server>,
    pub hostcalls: Arc<Hostcalls>,
    pub llvm_calls: Arc<LlvmCalls>,
    pub waits: Arc<WaitTable>,
    pub stdio: Arc<Stdio>,
    pub tracer: Option<Tracer>,
    /// Has other processes be able to look.
    pub _listens: Box<dyn Any + Send + Sync>,
}

/// A device as others look at it. Who looks does not keep the device: its end waits until nobody looks, and drops what is here
/// on the thread that ends it.
pub(crate) struct Look(Mutex<Option<Parts>>);

impl Look {
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(parts))))
    }

    /// Looks at the device. `None` once it has ended.
    pub fn at<R>(&self, look: impl FnOnce(&Parts) -> R) -> Option<R> {
        self.0.lock().as_ref().map(look)
    }

    /// Has nobody look any more.
    pub fn end(&self) {
        let parts = {
            // Who counts what devices have counted finds this one among the open ones or among those that have ended.
            let mut ended = hold_ended();
            let Some(parts) = self.0.lock().take() else { return };
            note_ended(&mut ended, parts.metrics(&[]));
            parts
        };
        drop(parts);
    }
}

impl Parts {
    /// Returns what the device counts. These wait now.
    pub fn metrics(&self, waiting: &[Waiting]) -> DeviceMetrics {
        let Self { core, server, hostcalls, llvm_calls, stdio, tracer, .. } = self;
        let (statistics, methods) = (server.statistics(), server.method_statistics());
        let known: HashSet<&str> = methods.iter().map(|method| method.name).collect();
        let is_known = |name: &str| known.contains(name) || server.has_method(name);
        let (of_rocm, of_llvm) = (hostcalls.statistics(), llvm_calls.statistics());
        let ends = server.launch_ends();
        let sink = stdio.sink();
        let mut metrics = DeviceMetrics {
            launches_ended: ends.into_iter().map(|(end, count)| (end.to_owned(), count)).collect(),
            packets: statistics.packets,
            posts: statistics.posts,
            refused_posts: statistics.refused_posts,
            declined_posts: statistics.declined_posts,
            handler_panics: statistics.handler_panics,
            faults: statistics.broken_slots + statistics.garbage_posts + of_rocm.faults + of_llvm.faults,
            lost_reports: statistics.lost_reports,
            rocm_packets: of_rocm.packets,
            llvm_calls: of_llvm.calls,
            output_bytes: sink.appended(),
            lost_output_bytes: sink.lost_bytes(),
            lost_trace_records: tracer.as_ref().map_or(0, Tracer::lost_records),
            launches_running: server.launches().count().into(),
            waiting_handlers: statistics.waiting_handlers,
            handler_threads: statistics.handler_threads,
            message_bytes: statistics.message_bytes,
            unwritten_output_bytes: sink.unwritten().map_or(0, |unwritten| unwritten.bytes),
            ..DeviceMetrics::new(&core.name, methods.clone())
        };
        metrics.add_waiting(waiting, is_known);
        metrics
    }

    /// Returns what waves wait for.
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = self.server.waiting();
        waiting.extend(self.hostcalls.waiting());
        waiting.extend(self.waits.waiting(&self.server, &self.core.holders));
        waiting
    }
}
