//! Handlers that consumers run themselves, as they are told of when one does not return.
//!
//! An inline handler that waits holds its consumer, and with it every call that the consumer would take. Nobody watches such
//! calls, which take a microsecond: the consumer says with a few stores what it runs, and the watchdog looks now and then
//! while launches run. What it finds it watches as it does other calls, from when it saw it first.

use super::counts::TIMED_EACH;
use super::registry::Entry;
use super::shared::Shared;
use crate::engine::calls::Call;
use crate::engine::handling::set_service;
use crate::engine::watchdog::{Waiting, WaitsFor, Watched};
use hostcall_abi::launch::LaunchId;
use hostcall_service::Caller;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// What a consumer says of the handler that it runs. It alone writes here; it shares the lines with nobody who writes.
#[repr(align(128))]
pub(crate) struct Inline {
    /// Which consumer it is.
    pub consumer: usize,
    /// Goes up when a handler begins and when it has returned: odd while one runs.
    turns: AtomicU64,
    /// The slot of the first wave whose calls it handles, the lanes of all, and the method's number.
    call: AtomicU64,
    /// The launch of that wave.
    launch: AtomicU32,
}

/// A handler that runs. It has returned, or panicked, when this is dropped.
#[must_use]
pub(crate) struct Runs<'a> {
    inline: &'a Inline,
    turns: u64,
}

/// What was seen of a handler that runs.
struct Seen {
    turns: u64,
    slot: u32,
    lanes: u32,
    number: u16,
    launch: LaunchId,
}

impl Inline {
    pub fn new(consumer: usize) -> Self {
        Self { consumer, turns: 0.into(), call: 0.into(), launch: 0.into() }
    }

    /// Says that the calling thread, whose cell this is, runs a handler of a method next, for so many lanes that wait. The
    /// first of them is the caller.
    #[inline(always)]
    pub fn run(&self, entry: &Entry, caller: Caller, lanes: usize) -> Runs<'_> {
        set_service(entry.method.name());
        let turns = self.turns.load(Ordering::Relaxed) + 1;
        let call =
            u64::from(caller.slot) << 32 | (lanes as u64 & 0xffff) << 16 | u64::from(entry.method.number());
        // Whoever sees one of the new words sees that the handler before has returned.
        fence(Ordering::Release);
        self.call.store(call, Ordering::Relaxed);
        self.launch.store(caller.launch.to_bits(), Ordering::Relaxed);
        self.turns.store(turns, Ordering::Release);
        Runs { inline: self, turns }
    }

    /// Says whether the handler that runs next is one of those that are timed. For the thread whose cell this is.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.turns.load(Ordering::Relaxed).is_multiple_of(2 * TIMED_EACH)
    }

    /// Returns the handler that runs.
    fn seen(&self) -> Option<Seen> {
        let turns = self.turns.load(Ordering::Acquire);
        let (call, launch) = (self.call.load(Ordering::Relaxed), self.launch.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let seen = Seen {
            turns,
            slot: (call >> 32) as u32,
            lanes: (call >> 16) as u32 & 0xffff,
            number: call as u16,
            launch: LaunchId::from_bits(launch),
        };
        (turns % 2 == 1 && self.turns.load(Ordering::Relaxed) == turns).then_some(seen)
    }
}

impl Drop for Runs<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.inline.turns.store(self.turns + 1, Ordering::Release);
    }
}

/// A call whose inline handler was seen.
pub(super) struct InlineCall {
    /// Those of all consumers, and the one of them that runs it.
    cells: Arc<[Inline]>,
    consumer: usize,
    /// The cell's, while the handler runs.
    turns: u64,
    /// As it was when it was seen first.
    waiting: Waiting,
    since: Instant,
}

impl Shared {
    /// Has the watchdog watch the handlers that consumers run now.
    pub fn watch_inline(&self) {
        let mut calls = Vec::new();
        let mut watched = self.watched_inline.lock();
        for (consumer, (cell, watched)) in self.inline.iter().zip(&mut *watched).enumerate() {
            let Some(seen) = cell.seen() else { continue };
            let Seen { turns, slot, lanes, number, launch } = seen;
            if watched.as_ref().is_some_and(|watched| watched.turns == turns) {
                continue;
            }
            let registry = self.registry();
            let method = registry.find(number);
            let service =
                method.map_or_else(|| format!("number {number}"), |entry| entry.method.name().to_string());
            let waits_for = WaitsFor::InlineHandler;
            let waiting = self.waiting(slot, launch, lanes, service, Duration::ZERO, waits_for);
            let (cells, since) = (self.inline.clone(), Instant::now());
            let call = Arc::new(InlineCall { cells, consumer, turns, waiting, since });
            *watched = Some(call.clone());
            calls.push(call);
        }
        drop(watched);
        calls.iter().for_each(|call| self.engine.watchdog.watch(call));
    }
}

impl Call for InlineCall {
    fn is_open(&self) -> bool {
        self.cells[self.consumer].turns.load(Ordering::Acquire) == self.turns
    }

    fn launch(&self) -> LaunchId {
        self.waiting.launch
    }
}

impl Watched for InlineCall {
    fn started(&self) -> Instant {
        self.since
    }

    fn slot(&self) -> u32 {
        self.waiting.slot
    }

    fn waiting(&self) -> Waiting {
        Waiting { waited: self.since.elapsed(), ..self.waiting.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::registry::{Handler, Registry};
    use hostcall_abi::CallError;
    use hostcall_abi::service::Method;
    use hostcall_service::{Reply, Request, Service};

    struct Nothing;

    impl Service for Nothing {
        fn methods(&self) -> &[Method] {
            const { &[Method::untyped("Nothing::do", 0x1234)] }
        }

        fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
            Ok(())
        }
    }

    #[test]
    fn what_runs_is_seen_until_it_has_returned() {
        let mut registry = Registry::new(1);
        registry.add(Handler::inline(Nothing)).unwrap();
        let entry = registry.find(0x1234).unwrap();
        let inline = Inline::new(0);
        let caller = Caller { launch: LaunchId::new(3, 5), slot: u32::MAX, lane: 7 };
        assert!(inline.seen().is_none());
        let runs = inline.run(entry, caller, 512);
        let first = inline.seen().expect("it runs");
        assert_eq!((first.slot, first.lanes, first.number), (u32::MAX, 512, 0x1234));
        assert_eq!(first.launch, caller.launch);
        drop(runs);
        assert!(inline.seen().is_none());
        let _runs = inline.run(entry, caller, 512);
        assert_ne!(inline.seen().expect("the next one runs").turns, first.turns);
    }
}
