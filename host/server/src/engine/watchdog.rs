//! Deadlines, reports of calls that do not move, and threads for work that waits for one. A thread of its own, asleep
//! while no call waits.

use super::calls::{Call, Calls};
use super::{Engine, LaunchSet, trace};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::{Condvar, Mutex};
use hostcall_trace::Source;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The watchdog looks at calls at most this often: the resolution of deadlines.
const TICK: Duration = Duration::from_millis(5);

/// A tracer is told of calls that have waited so long, again at each look, which is after each such time at the latest, and of
/// so many at once.
const TELL_AFTER: Duration = Duration::from_millis(100);
const TELL_EVERY: Duration = Duration::from_millis(250);
const MOST_TOLD: usize = 64;

/// Calls noted since the last look after which those that were answered are forgotten.
const FORGET_AFTER: usize = 1024;

/// A handler that has run for less than what a report shows of its time has held up nobody.
const LEAST_TO_HOLD_UP: Duration = Duration::from_millis(50);

/// Between two looks for calls that nobody told the watchdog of, while there may be some.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The device whose wave waits, as [`ServerBuilder::device`](crate::ServerBuilder::device) names it;
    /// else empty.
    pub device: Arc<str>,
    /// The channel's slot; [`NO_SLOT`] where none is known.
    pub slot: u32,
    /// The launch whose wave calls.
    pub launch: LaunchId,
    /// The launch's kernel; empty when it is not known.
    pub kernel: Arc<str>,
    /// The wave's place in the launch's grid, as the device says; `None` when it is not known.
    pub place: Option<WavePlace>,
    /// Lanes that wait.
    pub lanes: u32,
    /// The method called, or its number when nothing is registered for it; or the raw channel; or the name of a flag or barrier.
    pub service: String,
    /// How long it has waited; of what waves tell themselves (pages, flags, barriers, slots) since they had polled for a while.
    pub waited: Duration,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// In place of a slot: none is known.
pub const NO_SLOT: u32 = u32::MAX;

/// What a wave polls, as the device says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polled {
    /// Its address; 0 if that is not known.
    pub address: u64,
    /// The rank that is waited for.
    pub peer: Option<u32>,
    /// Which of the events there is waited for.
    pub sequence: u64,
    /// How long the wave had waited when it said last that it still does: that goes up while it polls.
    pub said: Duration,
}

impl Polled {
    /// What is polled.
    pub const fn new(address: u64, peer: Option<u32>, sequence: u64, said: Duration) -> Self {
        Self { address, peer, sequence, said }
    }
}

impl std::fmt::Display for Polled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.peer.is_some() || self.sequence != 0 {
            write!(f, ", number {}", self.sequence)?;
        }
        if let Some(peer) = self.peer {
            write!(f, " of rank {peer}")?;
        }
        if self.address != 0 {
            write!(f, " at {:#x}", self.address)?;
        }
        Ok(())
    }
}

/// A wave's place in its launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WavePlace {
    /// The workgroup in x, y and z.
    pub workgroup: [u32; 3],
    /// Index of the wave in its workgroup.
    pub wave: u32,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Its handler has not returned.
    Handler,
    /// Its handler has not returned, and runs on the thread that takes calls: it holds up others. How long is counted from
    /// when it was first seen to run, which is within 100 ms. Of posts it is, when [`Waiting::lanes`] is 0: no lane waits then.
    InlineHandler,
    /// No thread has taken it: those that the pool has run other handlers.
    Thread,
    /// Another call of its turn, whose handler has not returned: see
    /// [`Service::turn`](hostcall_service::Service::turn).
    Turn,
    /// The wave rang, but has not written all of its words.
    Words,
    /// Posts of the wave that come before the call are not handled yet.
    Posts,
    /// It calls nobody: it waits for a free page of a raw channel, whose name is [`Waiting::service`]. Waves of kernels that other
    /// compilers made, which write by `hostcall_device.h`, are not told of.
    Page,
    /// It calls nobody: it polls a flag, whose name is [`Waiting::service`] (`Lane::wait_for` in Rust, `HOSTCALL_WAIT` in C).
    Flag(Polled),
    /// It calls nobody: it waits for others at a barrier of the kernel's author, whose name is [`Waiting::service`].
    Barrier(Polled),
    /// It waits for a free call slot, since other waves have all.
    Slot,
}

/// Writes which wave a report is of.
pub(super) fn write_wave(
    f: &mut std::fmt::Formatter<'_>,
    device: &str,
    launch: LaunchId,
    kernel: &str,
    place: Option<WavePlace>,
    slot: u32,
) -> std::fmt::Result {
    write!(f, "launch {launch}")?;
    if !kernel.is_empty() {
        write!(f, " of {kernel}")?;
    }
    if !device.is_empty() {
        write!(f, " on {device}")?;
    }
    if let Some(WavePlace { workgroup: [x, y, z], wave }) = place {
        write!(f, ", workgroup ({x}, {y}, {z}), wave {wave}")?;
    }
    if slot == NO_SLOT { Ok(()) } else { write!(f, " in slot {slot}") }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { device, slot, launch, kernel, place, service, waited, waits_for, .. } = self;
        let what = match waits_for {
            WaitsFor::Handler => "has waited for the handler of",
            WaitsFor::InlineHandler => "has held up other calls in the inline handler of",
            WaitsFor::Thread => "has waited for a free thread for the handler of",
            WaitsFor::Turn => "has waited for calls before it in the turn of",
            WaitsFor::Words => "has begun and not finished a call of",
            WaitsFor::Posts => "has waited for its posts to be handled before a call of",
            WaitsFor::Page => "has waited for a free page of",
            WaitsFor::Flag(_) => "has waited for the flag",
            WaitsFor::Barrier(_) => "has waited at the barrier",
            WaitsFor::Slot => "has waited for a free call slot",
        };
        if *launch == LaunchId::NONE {
            write!(f, "wave at port {slot}")?;
            if !device.is_empty() {
                write!(f, " of {device}")?;
            }
        } else {
            write_wave(f, device, *launch, kernel, *place, *slot)?;
        }
        if *waits_for == WaitsFor::InlineHandler && *waited < LEAST_TO_HOLD_UP {
            return write!(f, ": is in the inline handler of {service}");
        }
        let seconds = waited.as_secs_f64();
        if let WaitsFor::Flag(polled) | WaitsFor::Barrier(polled) = waits_for {
            return write!(f, ": {what} `{service}`{polled} for {seconds:.1} s");
        }
        if *waits_for == WaitsFor::Slot {
            return write!(f, ": {what} for {seconds:.1} s");
        }
        if *waits_for == WaitsFor::Page {
            return write!(f, ": {what} {service} for {seconds:.1} s: read it");
        }
        write!(f, ": {what} {service} for {seconds:.1} s")
    }
}

/// A call that a watchdog watches. But for [`Watched::give_up`], nothing here waits for a copy of a request or a reply.
pub(crate) trait Watched: Call {
    /// Returns when the call was taken.
    fn started(&self) -> Instant;
    /// Returns the first deadline of the lanes that wait.
    fn deadline(&self) -> Option<Instant> {
        None
    }
    /// Answers the lanes whose deadline has passed, or as many of them as can be answered without waiting.
    fn expire(&self, now: Instant) {
        let _ = now;
    }
    /// Cancels the call of the lanes that wait. They have their answers when this returns. Does nothing where nobody but the
    /// handler's thread could answer.
    fn give_up(&self) {}
    /// Does what [`Watched::give_up`] does without waiting: whoever copies what is of the call does it afterwards.
    fn give_up_soon(&self) {
        self.give_up();
    }
    /// Returns the slot whose wave waits.
    fn slot(&self) -> u32;
    /// Describes what it waits for. [`Waiting::device`] is the watchdog's to say.
    fn waiting(&self) -> Waiting;
}

struct State {
    calls: Calls<dyn Watched>,
    /// When the watchdog looks at calls next; `None` when it does not know of anything.
    next: Option<Instant>,
    /// When the pools are to be looked at.
    pools: Option<Instant>,
    /// When to look for calls that nobody told of.
    look: Option<Instant>,
    stopped: bool,
}

pub(crate) struct Watchdog {
    state: Mutex<State>,
    changed: Condvar,
    stall_after: Duration,
    /// What reports call the device.
    device: Arc<str>,
    /// Who is told of calls that wait.
    trace: Option<Source>,
    /// Looks for calls that nobody told of. Returns whether there may be more.
    finds: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// It looks for these now and then. Set under the lock; the watchdog's thread clears it before each
    /// look.
    is_looking: AtomicBool,
}

impl Watchdog {
    pub fn new(stall_after: Duration, device: Arc<str>, trace: Option<Source>) -> Self {
        let state =
            State { calls: Calls::new(FORGET_AFTER), next: None, pools: None, look: None, stopped: false };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            stall_after,
            device,
            trace,
            finds: OnceLock::new(),
            is_looking: AtomicBool::new(false),
        }
    }

    /// Returns after how long a call is reported.
    pub fn stall_after(&self) -> Duration {
        self.stall_after
    }

    /// Watches a call until it is answered. Whoever cancels a launch marks it before it has the watched calls given up, and
    /// whoever calls this looks at the mark afterwards: so one of the two answers the call.
    pub fn watch(&self, call: &Arc<impl Watched + 'static>) {
        let mut state = self.state.lock();
        if state.stopped {
            drop(state);
            return call.give_up();
        }
        let weak: Weak<dyn Watched> = Arc::<_>::downgrade(call) as Weak<dyn Watched>;
        let mut looked_at = Vec::new();
        state.calls.add(weak, call.launch(), &mut looked_at);
        let due = self.due(&**call, false, Instant::now());
        if due.is_some_and(|due| state.next.is_none_or(|next| due < next)) {
            state.next = due;
            self.changed.notify_one();
        }
        drop(state);
        drop(looked_at);
    }

    /// Has `find` called now and then, from [`Watchdog::look`] on until it returns `false`: it tells the watchdog of calls, and
    /// returns whether there may be more.
    pub fn set_look(&self, find: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.finds.set(Box::new(find));
    }

    /// Looks for calls that nobody told of. The caller has stored before what says that there may be some.
    pub fn look(&self) {
        // Either this sees that nobody looks any more, or whoever stops looking sees what the caller stored.
        fence(Ordering::SeqCst);
        if !self.is_looking.load(Ordering::Relaxed) {
            let mut state = self.state.lock();
            self.is_looking.store(true, Ordering::Relaxed);
            state.look.get_or_insert_with(|| Instant::now() + self.look_every());
            self.changed.notify_one();
        }
    }

    fn look_every(&self) -> Duration {
        LOOK_EVERY.min(self.stall_after / 2).max(TICK)
    }

    /// Looks for calls that nobody told of, and goes on with that while there may be some.
    fn find(&self, now: Instant) {
        self.is_looking.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.finds.get().is_some_and(|find| find()) {
            let mut state = self.state.lock();
            self.is_looking.store(true, Ordering::Relaxed);
            state.look.get_or_insert(now + self.look_every());
        }
    }

    /// Has [`Engine::grow`] called soon.
    pub fn look_at_pools(&self) {
        let mut state = self.state.lock();
        if state.pools.is_none() {
            state.pools = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    /// Returns when the watchdog has to look at a call, at which it looks now.
    fn due(&self, call: &dyn Watched, reported: bool, now: Instant) -> Option<Instant> {
        // A span that reaches beyond what the clock can say is no end at all.
        let stalls = if reported { None } else { call.started().checked_add(self.stall_after) };
        let tells = self.trace.as_ref().map(|_| match self.is_told(call, now) {
            true => now + TELL_EVERY,
            false => call.started() + TELL_AFTER,
        });
        call.deadline().into_iter().chain(stalls).chain(tells).min()
    }

    /// Returns whether a tracer is told of a call.
    fn is_told(&self, call: &dyn Watched, now: Instant) -> bool {
        self.trace.is_some() && now.saturating_duration_since(call.started()) >= TELL_AFTER
    }

    /// The calls that wait, of the launches that are `wanted`.
    fn open(&self, wanted: impl Fn(LaunchId) -> bool) -> Vec<Arc<dyn Watched>> {
        let mut calls = self.state.lock().calls.of(wanted);
        // Not under the lock: the last reference to a call may be dropped here, and with it a service.
        calls.retain(|call| call.is_open());
        calls
    }

    fn describe(&self, call: &dyn Watched) -> Waiting {
        Waiting { device: self.device.clone(), ..call.waiting() }
    }

    /// Returns the calls that wait now.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.open(|_| true).iter().map(|call| self.describe(&**call)).collect()
    }

    /// Cancels the waiting calls of launches, or of all. They are answered when this returns.
    pub fn give_up(&self, launches: Option<&LaunchSet>) {
        let is_of = |of| launches.is_none_or(|launches| launches.contains(of));
        self.open(is_of).iter().for_each(|call| call.give_up());
    }

    /// Cancels the waiting calls of launches without waiting for copies, for threads that find calls.
    pub fn give_up_soon(&self, launches: &LaunchSet) {
        self.open(|of| launches.contains(of)).iter().for_each(|call| call.give_up_soon());
    }

    /// Cancels the waiting calls of these slots. They are answered when this returns.
    pub fn give_up_slots(&self, slots: &[u32]) {
        let calls = self.open(|_| true);
        calls.iter().filter(|call| slots.contains(&call.slot())).for_each(|call| call.give_up());
    }

    /// Ends the thread, and gives up all calls.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
        self.give_up(None);
    }

    /// The thread's loop.
    pub fn run(&self, engine: &Engine) {
        loop {
            let mut state = self.state.lock();
            loop {
                if state.stopped {
                    return;
                }
                let now = Instant::now();
                match state.next.into_iter().chain(state.pools).chain(state.look).min() {
                    None => state = self.changed.wait(state),
                    Some(next) if next <= now => break,
                    Some(next) => state = self.changed.wait_timeout(state, next - now).0,
                }
            }
            let now = Instant::now();
            let pools_due = state.pools.is_some_and(|pools| pools <= now);
            if pools_due {
                state.pools = None;
            }
            let look_due = state.look.is_some_and(|look| look <= now);
            if look_due {
                state.look = None;
            }
            let calls_due = state.next.is_some_and(|next| next <= now);
            drop(state);
            if pools_due {
                self.grow_pools(engine, now);
            }
            if look_due {
                self.find(now);
            }
            if calls_due {
                self.look_at_calls(engine, now);
            }
        }
    }

    fn grow_pools(&self, engine: &Engine, now: Instant) {
        let next = engine.grow(now);
        if let Some(next) = next {
            let mut state = self.state.lock();
            state.pools = Some(state.pools.map_or(next, |pools| pools.min(next)));
        }
    }

    fn look_at_calls(&self, engine: &Engine, now: Instant) {
        let mut late = Vec::new();
        let mut stalled = Vec::new();
        let mut told = Vec::new();
        let mut next = None;
        let mut looked_at = Vec::new();
        let mut state = self.state.lock();
        state.calls.look(&mut looked_at, |call, is_reported| {
            if !*is_reported && now.duration_since(call.started()) >= self.stall_after {
                *is_reported = true;
                stalled.push(call.clone());
            }
            if call.deadline().is_some_and(|deadline| now >= deadline) {
                late.push(call.clone());
            }
            if told.len() < MOST_TOLD && self.is_told(&**call, now) {
                told.push(call.clone());
            }
            next = next.into_iter().chain(self.due(&**call, *is_reported, now)).min();
        });
        state.next = next.map(|next: Instant| next.max(now + TICK));
        drop(state);
        drop(looked_at);
        for call in late {
            call.expire(now);
        }
        for call in stalled {
            engine.stalled(self.describe(&*call));
        }
        if let Some(source) = &self.trace {
            trace::waiting(source, told.iter().map(|call| self.describe(&**call)).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Settings;
    use std::sync::mpsc;

    #[test]
    fn who_has_just_begun_has_held_up_nobody() {
        let said = |waited_ms| {
            let waiting = Waiting {
                device: "cuda:1".into(),
                slot: 3,
                launch: LaunchId::new(1, 1),
                kernel: "say".into(),
                place: None,
                lanes: 1,
                service: "System::print".into(),
                waited: Duration::from_millis(waited_ms),
                waits_for: WaitsFor::InlineHandler,
            };
            waiting.to_string()
        };
        assert!(said(49).ends_with(" of say on cuda:1 in slot 3: is in the inline handler of System::print"));
        assert!(
            said(50).ends_with("has held up other calls in the inline handler of System::print for 0.1 s")
        );
    }

    /// Ends when it is looked at, and asks the watchdog for its calls when it is dropped.
    struct EndsAtALook {
        engine: Arc<Engine>,
        itself: Mutex<Option<Arc<Self>>>,
        dropped: mpsc::Sender<()>,
    }

    impl Call for EndsAtALook {
        fn is_open(&self) -> bool {
            drop(self.itself.lock().take());
            false
        }
        fn launch(&self) -> LaunchId {
            LaunchId::NONE
        }
    }

    impl Watched for EndsAtALook {
        fn started(&self) -> Instant {
            Instant::now()
        }
        fn slot(&self) -> u32 {
            0
        }
        fn waiting(&self) -> Waiting {
            unreachable!("it does not wait")
        }
    }

    impl Drop for EndsAtALook {
        fn drop(&mut self) {
            self.engine.watchdog.waiting();
            self.dropped.send(()).unwrap();
        }
    }

    #[test]
    fn calls_are_dropped_under_no_lock() {
        let (engine, thread) = Engine::start(Settings::default(), || ()).unwrap();
        let (drops, dropped) = mpsc::channel();
        let call = EndsAtALook { engine: engine.clone(), itself: Mutex::default(), dropped: drops };
        let call = Arc::new(call);
        *call.itself.lock() = Some(call.clone());
        engine.watchdog.watch(&call);
        drop(call);
        let looks = engine.clone();
        std::thread::spawn(move || looks.watchdog.look_at_calls(&looks, Instant::now()));
        dropped.recv_timeout(Duration::from_secs(60)).expect("a look drops the call");
        engine.stop();
        thread.join().unwrap();
    }
}
