//! Calls that may be answered without waiting, although their service's handlers may wait: a read of what the system has in
//! its memory, for example. A consumer puts them into a line, and works on that with whoever helps: threads of the software
//! device that have nothing to do until the calls are answered. A call that turns out to wait goes to a worker thread.
//!
//! A consumer leaves the line empty before it looks for other calls, so what lies there waits for microseconds, and nobody
//! watches it.

use super::bytes;
use super::job::{self, LaneCall, LaneCalls};
use super::registry::{Entry, Kind};
use super::reply::{ByteReply, Filling, ReplyPlace};
use super::shared::Shared;
use crate::engine::caught::catch;
use crate::engine::handling::set_service;
use crate::engine::trace::Recording;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_abi::word::Kind as PacketKind;
use hostcall_channel::host::DetachedAnswer;
use hostcall_service::called_by;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The line of calls.
#[derive(Default)]
pub(crate) struct AtOnce {
    line: Mutex<VecDeque<Job>>,
    /// How many are in the line: for those who look often.
    count: AtomicUsize,
}

/// A packet of one lane.
pub(crate) struct Job {
    pub shared: Arc<Shared>,
    pub entry: Arc<Entry>,
    pub answer: DetachedAnswer,
    pub launch: LaunchId,
    pub call: LaneCall,
    pub place: ReplyPlace,
    /// If there is a tracer.
    pub recording: Option<Recording>,
}

impl AtOnce {
    /// Puts a call into the line.
    pub fn push(&self, job: Job) {
        let mut line = self.line.lock();
        line.push_back(job);
        self.count.store(line.len(), Ordering::Relaxed);
    }

    /// Works on the call that has waited longest. Returns whether there was one.
    pub fn run_next(&self) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut line = self.line.lock();
        let job = line.pop_front();
        self.count.store(line.len(), Ordering::Relaxed);
        drop(line);
        job.map(Job::run).is_some()
    }
}

impl Job {
    fn run(mut self) {
        let caller = self.call.request.caller;
        self.call.free_before();
        let mut result = Some(Err(CallError::NoSuchService));
        if let Some(recording) = &mut self.recording {
            recording.add_bytes(self.call.request_bytes(), 0);
            recording.began(recording.now_ns());
        }
        if let Kind::Inline(service) | Kind::Blocking(service) = &self.entry.service.kind
            && !self.entry.service.is_removed()
        {
            let request = self.call.request.as_request();
            let mut filling = Filling::new(&self.shared.messages, request.reply_capacity, self.place);
            set_service(self.entry.method.name());
            let call = || service.call_at_once(self.entry.index, request, &mut filling);
            result = match catch(|| called_by(caller, call)) {
                Ok(result) => result.map(|result| result.map(|()| filling.finish())),
                Err(_) => {
                    self.shared.handler_panicked(&self.entry, caller);
                    Some(Err(CallError::Panicked))
                }
            };
        }
        let Self { shared, entry, mut answer, launch, mut call, place, recording } = self;
        let Some(result) = result else {
            let calls = LaneCalls::from_buf([(Ok(call), place)]);
            return job::start(&shared, &entry, PacketKind::Bytes, answer, launch, calls, recording);
        };
        call.free();
        let reply_bytes = result.as_ref().map_or(0, ByteReply::len);
        let (status, words) = bytes::put(&shared, answer.region(), answer.answer(), place, 0, caller, result);
        if let Some(mut recording) = recording {
            recording.ended(recording.now_ns());
            recording.add_bytes(0, reply_bytes);
            recording.lanes_ended(1, status);
            recording.answered(entry.method.name(), entry.method.number().into(), launch);
        }
        answer.lane(0, status, &words);
        drop(answer);
        shared.answered();
        // The lane may have rung again before the slot was free to be looked at.
        shared.wake();
    }
}
