//! Records of calls, of all protocols, for a tracer.

use super::{Waiting, WaitsFor};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::Status;
use hostcall_trace::{Call, Source, Status as Code};

/// Records calls that still wait, the longest waits first. All of them get the same time.
pub(crate) fn waiting(source: &Source, mut calls: Vec<Waiting>) {
    calls.sort_by_key(|waiting| std::cmp::Reverse(waiting.waited));
    let at_ns = source.now_ns();
    for waiting in calls {
        let told = hostcall_trace::Waiting {
            at_ns,
            waited_ns: u64::try_from(waiting.waited.as_nanos()).unwrap_or(u64::MAX),
            slot: waiting.slot,
            place: waiting.place.map(|place| (place.workgroup, place.wave)),
            lanes: waiting.lanes,
            waits_for: match waiting.waits_for {
                // The watchdog knows of calls alone.
                WaitsFor::Handler
                | WaitsFor::InlineHandler
                | WaitsFor::Page
                | WaitsFor::Flag(_)
                | WaitsFor::Barrier(_)
                | WaitsFor::Slot => hostcall_trace::WaitsFor::Handler,
                WaitsFor::Thread => hostcall_trace::WaitsFor::Thread,
                WaitsFor::Turn => hostcall_trace::WaitsFor::Turn,
                WaitsFor::Words => hostcall_trace::WaitsFor::Words,
                WaitsFor::Posts => hostcall_trace::WaitsFor::Posts,
            },
            method: waiting.service.into(),
            ..hostcall_trace::Waiting::default()
        };
        source.waiting(waiting.launch, told);
    }
}

/// A call that is recorded when it is answered.
pub(crate) struct Recording {
    source: Source,
    call: Call,
    has_ended: bool,
}

impl Recording {
    /// Notes that so many lanes' call was picked up now.
    pub fn start(source: &Source, slot: u32, lanes: u32) -> Self {
        let picked_up = Call { lanes: lanes as u8, slot, ..Call::at(source.now_ns()) };
        let call = Call { handler_began_ns: 0, ..picked_up };
        Self { source: source.clone(), call, has_ended: false }
    }

    /// Returns the nanoseconds since the trace began.
    pub fn now_ns(&self) -> u64 {
        self.source.now_ns()
    }

    /// Returns when the call was picked up, in nanoseconds since the trace began.
    pub fn picked_up_ns(&self) -> u64 {
        self.call.picked_up_ns
    }

    /// Notes where the wave is that calls.
    pub fn set_place(&mut self, workgroup: u32, wave: u32) {
        (self.call.workgroup, self.call.wave) = (workgroup, wave);
    }

    /// Adds bytes of requests and replies.
    pub fn add_bytes(&mut self, request: usize, reply: usize) {
        self.call.request_bytes += request as u64;
        self.call.reply_bytes += reply as u64;
    }

    /// Notes that a handler runs since this time; of several the first counts.
    pub fn began(&mut self, at_ns: u64) {
        if self.call.handler_began_ns == 0 {
            self.call.handler_began_ns = at_ns;
        }
    }

    /// Notes that a handler has returned at this time; of several the last counts.
    pub fn ended(&mut self, at_ns: u64) {
        self.has_ended = true;
        self.call.handler_ended_ns = at_ns.max(self.call.handler_began_ns);
    }

    /// Notes how so many lanes' calls ended.
    pub fn lanes_ended(&mut self, lanes: u32, status: Status) {
        let status = Code::from(status);
        if status != Code::OK && lanes > 0 {
            if self.call.failed_lanes == 0 {
                self.call.status = status;
            }
            self.call.failed_lanes = self.call.failed_lanes.saturating_add(lanes as u8);
        }
    }

    /// Records the call of this method: all lanes have their answers.
    pub fn answered(&mut self, method: &'static str, number: u32, launch: LaunchId) {
        let call = &mut self.call;
        call.replied_ns = self.source.now_ns();
        let has_begun = call.handler_began_ns != 0;
        if !has_begun {
            call.handler_began_ns = call.replied_ns;
        }
        if !has_begun || !self.has_ended {
            call.handler_ended_ns = call.replied_ns;
        }
        self.source.call(method, number, launch, *call);
    }
}
