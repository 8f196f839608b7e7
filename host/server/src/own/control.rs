//! Steering and stopping a server.

use super::builder::ServerBuilder;
use super::counts::MethodStatistics;
use super::launch_watch::LaunchWatch;
use super::launches::{CancelReason, LaunchRecord, Launches, TooManyLaunches};
use super::registration::Registration;
use super::registry::{Handler, RegisterError};
use super::shared::{Command, Completion, ENDS, Shared, Wanted};
use super::unserved::Unserved;
use crate::engine::LaunchSet;
use crate::engine::Settings;
use crate::engine::report;
use crate::engine::watchdog::{NO_SLOT, Waiting, WaitsFor, WavePlace};
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::word::Owner;
use hostcall_channel::SharedMemory;
use hostcall_service::Caller;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a server that is dropped waits for its consumers, whose inline handlers may not return.
const LONGEST_JOIN: Duration = Duration::from_secs(5);

/// What a server has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Packets taken: calls of waves. Who has an answer finds its packet counted.
    pub packets: u64,
    /// Posts taken.
    pub posts: u64,
    /// Posts that reached no handler: no such service, other types, no such launch, a handler that panicked. Of handlers that may
    /// wait, also those whose service was removed or whose launch was cancelled before their turn; inline ones have no turns.
    pub refused_posts: u64,
    /// How often posts were left in their ring, because their service had no room for more.
    pub declined_posts: u64,
    /// Handlers that panicked, of calls and posts.
    pub handler_panics: u64,
    /// Words where a post should have begun and did not.
    pub garbage_posts: u64,
    /// Slots given up because the device wrote what is no doorbell.
    pub broken_slots: u64,
    /// Bytes of messages and replies that are held now.
    pub message_bytes: u64,
    /// Threads for handlers now, those of built-in services included.
    pub handler_threads: u64,
    /// Handlers that wait for a thread now.
    pub waiting_handlers: u64,
    /// Reports to callbacks that were dropped, because more than 1024 waited.
    pub lost_reports: u64,
}

/// Posts that lie ready in a slot's ring and have not been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadyPosts {
    /// The channel's slot.
    pub slot: u32,
    /// Entries of the ring that are ready.
    pub entries: u32,
    /// Entries that the ring has.
    pub ring_entries: u32,
}

impl std::fmt::Display for ReadyPosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { slot, entries, ring_entries } = self;
        write!(
            f,
            "wave in slot {slot}: {entries} of {ring_entries} entries of its ring are posts that nobody took"
        )?;
        if entries == ring_entries { write!(f, ", and it waits for room to post") } else { Ok(()) }
    }
}

/// Cuts the slots into ranges of whole lines, one a consumer.
pub(super) fn share_out(slots: u32, consumers: usize) -> Vec<Range<u32>> {
    let lines = slots.div_ceil(LINE_WORDS as u32);
    let bound = |i: usize| (lines * i as u32 / consumers as u32 * LINE_WORDS as u32).min(slots);
    (0..consumers).map(|i| bound(i)..bound(i + 1)).collect()
}

/// Serves one channel until it is dropped. What it has here is for those who implement devices.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Returns a builder of a server for a channel's memory.
    pub fn builder(memory: Arc<SharedMemory>) -> ServerBuilder {
        ServerBuilder::new(memory)
    }

    pub(super) fn new(shared: Arc<Shared>, watchdog: JoinHandle<()>) -> Self {
        Self { shared, threads: vec![watchdog] }
    }

    pub(super) fn add_thread(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    pub(crate) fn engine_settings(&self) -> &Settings {
        self.shared.engine.settings()
    }

    /// Registers a service while kernels run.
    ///
    /// # Errors
    /// When one of its numbers is taken.
    pub fn register(&self, handler: Handler) -> Result<Registration, RegisterError> {
        Registration::add(&self.shared, handler)
    }

    /// Wakes parked consumers: a hint that there may be work.
    #[inline]
    pub fn wake(&self) {
        self.shared.wake();
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the launches whose calls are answered.
    pub fn launches(&self) -> &Launches {
        &self.shared.launches
    }

    /// Returns a function that says whether a launch has begun and not ended. It does not keep the server.
    pub fn knows_launch(&self) -> impl Fn(LaunchId) -> bool + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.shared);
        move |launch| shared.upgrade().is_some_and(|shared| shared.launches.is_known(launch))
    }

    /// Returns a function that says of a caller which kernel its launch is of, and where in the grid its wave is, as far as
    /// that is known. It does not keep the server.
    pub fn knows_place(&self) -> impl Fn(Caller) -> (Arc<str>, Option<WavePlace>) + Send + Sync + use<> {
        let knows = self.knows_origin();
        move |caller| knows(caller, None)
    }

    /// Does the same of a caller whose wave is given, which need not have its slot any more. Without it the place is that of the
    /// slot's wave.
    pub fn knows_origin(
        &self,
    ) -> impl Fn(Caller, Option<Owner>) -> (Arc<str>, Option<WavePlace>) + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.shared);
        move |caller, wave| {
            let Some(shared) = shared.upgrade() else { return ("".into(), None) };
            let wave = wave.or_else(|| shared.memory.region().alleged_owner(caller.slot));
            shared.place_of_wave(caller.launch, wave)
        }
    }

    /// Begins a launch: calls of its waves are answered from now on, those of others with
    /// [`CallError::Cancelled`](hostcall_abi::status::CallError::Cancelled).
    ///
    /// # Errors
    /// When too many launches have not ended.
    pub fn begin(&self, record: LaunchRecord) -> Result<LaunchId, TooManyLaunches> {
        let traced =
            self.shared.trace.as_ref().map(|trace| (trace, record.kernel.clone(), record.workgroups));
        let (id, is_only) = self.shared.launches.begin(record)?;
        if let Some((trace, kernel, workgroups)) = traced {
            trace.launch_began(id, &kernel, workgroups);
        }
        self.tell_watch(id);
        // With others, the consumers look by themselves. They stay awake for a while: a GPU's first call comes soon, and its
        // device cannot wake them.
        if is_only {
            self.attend();
        }
        Ok(id)
    }

    /// Tells this watch, in the place of any other, of launches from now on and of those that are there; or nobody.
    pub fn watch_launches(&self, watch: Option<Arc<dyn LaunchWatch>>) {
        self.shared.launch_watch.set(watch, &self.shared.launches);
    }

    /// Begins a context, in whose name kernels call that others launch: see [`Launches::begin_context`]. It ends as a launch does.
    ///
    /// # Errors
    /// When too many launches have not ended.
    pub fn begin_context(&self, record: LaunchRecord) -> Result<LaunchId, TooManyLaunches> {
        let traced = self.shared.trace.as_ref().map(|trace| (trace, record.kernel.clone()));
        let id = self.shared.launches.begin_context(record)?;
        if let Some((trace, name)) = traced {
            trace.launch_began(id, &name, [0; 3]);
        }
        self.tell_watch(id);
        // They sleep for longer where there is nothing that could call.
        self.attend();
        Ok(id)
    }

    /// Tells of a launch that has begun, if somebody watches.
    fn tell_watch(&self, id: LaunchId) {
        if let Some(watch) = self.shared.launch_watch.get()
            && let Some(record) = self.shared.launches.record(id)
        {
            watch.began(id, &record);
        }
    }

    /// Returns a context with the launches that hostcall has begun with it and that have not ended.
    pub fn launches_of_context(&self, context: LaunchId) -> Vec<LaunchId> {
        std::iter::once(context).chain(self.shared.launches.of_context(context)).collect()
    }

    /// Makes the launches of a context those of another one, which takes its place.
    pub fn hand_over(&self, context: LaunchId, to: LaunchId) {
        self.shared.launches.hand_over(context, to);
    }

    /// Returns a function that says of a launch to whom belongs what it leaves behind, see [`Launches::context_of`], and its
    /// kernel's name. It does not keep the server.
    pub fn knows_context(&self) -> impl Fn(LaunchId) -> (LaunchId, Arc<str>) + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.shared);
        move |launch| {
            let Some(shared) = shared.upgrade() else { return (launch, "".into()) };
            let kernel = shared.launches.record(launch).map(|record| record.kernel).unwrap_or_default();
            (shared.launches.context_of(launch), kernel)
        }
    }

    /// Begins the launches of a list, which have ids in a row and end together: see [`Launches::begin_list`].
    pub fn begin_list(&self, records: &Arc<[LaunchRecord]>) -> Option<LaunchIds> {
        let (launches, are_only) = self.shared.launches.begin_list(records)?;
        if let Some(trace) = &self.shared.trace {
            for (id, LaunchRecord { kernel, workgroups, .. }) in launches.ids().zip(&**records) {
                trace.launch_began(id, kernel, *workgroups);
            }
        }
        if let Some(watch) = self.shared.launch_watch.get() {
            launches.ids().zip(&**records).for_each(|(id, record)| watch.began(id, record));
        }
        if are_only {
            self.attend();
        }
        Some(launches)
    }

    /// Has the consumers and the watchdog look for calls, after a time in which no launch ran, or before others launch what calls
    /// in a context's name. They look for 50 us at least, and then go on with sleeps that grow.
    pub fn attend(&self) {
        self.shared.call_attention();
        self.shared.engine.watchdog.look();
    }

    /// Does what [`Server::end`] does for launches of which each began alone or all that began with it are here too. Returns
    /// those that were cancelled, and why, in the order of their ids.
    pub fn end_all(&self, launches: LaunchSet) -> Vec<(LaunchId, CancelReason)> {
        let ended = self.shared.launches.end(launches);
        self.shared.engine.watchdog.give_up(Some(&ended.launches));
        // Lanes of a context may go on: what they were lent stays theirs until their slots are used again.
        if !ended.has_context {
            self.shared.messages.forget_launches(&ended.launches);
        }
        // After the calls that were given up, and before others have the indices, by which a trace knows launches.
        if let Some(trace) = &self.shared.trace {
            ended.endings().for_each(|(id, ending)| trace.launch_ended(id, ending));
        }
        if let Some(watch) = self.shared.launch_watch.get() {
            ended.endings().for_each(|(id, ending)| watch.ended(id, ending));
        }
        // Others may have their ids from here on.
        self.shared.unserved.forget(|launch| ended.launches.contains(launch));
        let is_context = ended.has_context;
        let count = ended.launches.lists().map(|launches| u64::from(launches.count())).sum();
        let cancelled = self.shared.launches.free(ended);
        if !is_context {
            self.shared.statistics.count_ends(count, &cancelled);
        }
        cancelled
    }

    /// Ends a launch whose kernel has ended, or a context. Calls that are left (of waves that were killed, or of a context's
    /// kernels) get [`CallError::Cancelled`](hostcall_abi::status::CallError::Cancelled).
    /// Returns why it was cancelled first, if it was.
    pub fn end(&self, id: LaunchId) -> Option<CancelReason> {
        self.end_all(id.into()).first().map(|(_, why)| *why)
    }

    /// Takes what was counted of a launch's calls and posts that reached no service, since it began or this was asked last. What
    /// launches with a context have called is counted for the context. Of calls all is there whose lanes have their answers, of posts
    /// what was taken.
    pub fn take_unserved(&self, launch: LaunchId) -> Vec<Unserved> {
        self.shared.unserved.take(launch)
    }

    /// Has the posts taken that waves of these launches have announced: those of a launch whose kernel has ended are handled
    /// at the completion, or wait for handlers that may wait, see [`Server::wait_for_posts`].
    ///
    /// It waits as long as sinks of posts have no room, but not for room for the posts of other launches, unless posts of
    /// these lie behind them in a ring.
    pub fn begin_flush(&self, mut launches: Vec<LaunchId>) -> Completion {
        launches.sort_unstable();
        let launches: Wanted = launches.into();
        self.shared.begin_command(|done| Command::Flush(launches.clone(), done))
    }

    /// Waits until the posts of launches were handled that were taken, or the launches were cancelled.
    pub fn wait_for_posts(&self, launches: LaunchIds) {
        self.shared.post_counts.wait_until_handled(launches);
    }

    /// Returns whether [`Server::wait_for_posts`] would not wait.
    pub fn has_handled_posts(&self, launches: LaunchIds) -> bool {
        self.shared.post_counts.has_handled(launches)
    }

    /// Makes slots as if nobody had ever used them. Their waves were killed: none of them calls any more, and the device
    /// forgets its states of the slots too, before another wave claims one. What lies in their rings of posts is taken before,
    /// also where queues have no room for it.
    pub fn reset(&self, slots: &[u32]) {
        let slots: Arc<[u32]> = slots.into();
        self.ignore(&slots);
        // A call that a consumer took before is with the watchdog now.
        self.shared.engine.watchdog.give_up_slots(&slots);
        self.shared.command(|done| Command::Reset(slots.clone(), done));
        slots.iter().for_each(|slot| self.shared.messages.forget(*slot));
    }

    /// Looks at slots no more: a wave that waits there for an answer gets none.
    #[doc(hidden)]
    pub fn ignore(&self, slots: &Arc<[u32]>) {
        self.shared.command(|done| Command::Ignore(slots.clone(), done));
    }

    /// Overwrites all doorbells that rang with what is none, as a device's errors in memory do.
    #[doc(hidden)]
    pub fn break_slots(&self) {
        let region = self.shared.memory.region();
        for slot in 0..region.layout().slots() {
            region.break_doorbell(slot);
        }
    }

    /// Cancels a launch, or launches that began together: their waiting calls and all further ones end with
    /// [`CallError::Cancelled`](hostcall_abi::status::CallError::Cancelled).
    pub fn cancel(&self, launches: impl Into<LaunchIds>, why: CancelReason) {
        self.shared.cancel(launches.into(), why);
    }

    /// Returns why a launch could not go on, if the server has ended it for that.
    pub fn take_fault(&self, launch: LaunchId) -> Option<String> {
        self.shared.faults.change_some(|faults| faults.remove(&launch)).flatten()
    }

    /// Returns which of these launches have faults that [`Server::take_fault`] tells of.
    pub fn faulted(&self, launches: LaunchIds) -> Vec<LaunchId> {
        let of = |faults: &mut HashMap<LaunchId, String>| {
            faults.keys().copied().filter(|launch| launches.contains(*launch)).collect()
        };
        self.shared.faults.change_some(of).unwrap_or_default()
    }

    /// Returns why the server has stopped by itself, if it has: a thread of it panicked, which is a bug in hostcall.
    pub fn failure(&self) -> Option<String> {
        self.shared.engine.failure()
    }

    /// Runs a callback later, on the thread for such: it may wait, and a panic of it is contained. At most 1024 wait for it.
    pub fn call_back(&self, callback: impl FnOnce() + Send + 'static) {
        self.shared.engine.call_back(callback);
    }

    /// Returns the calls whose handlers have not returned.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.shared.watch_inline();
        self.shared.engine.watchdog.waiting()
    }

    /// Returns what is said of lanes of a wave that wait for something which no server knows of. `None` where no such launch runs.
    pub fn wait_of(
        &self,
        wave: Owner,
        lanes: u32,
        name: String,
        waited: Duration,
        waits_for: WaitsFor,
    ) -> Option<Waiting> {
        let launch = wave.launch;
        if !self.shared.launches.is_known(launch) {
            return None;
        }
        let (kernel, place) = self.shared.place_of_wave(launch, Some(wave));
        let (device, slot) = (self.shared.engine.settings().device.clone(), NO_SLOT);
        Some(Waiting { device, slot, launch, kernel, place, lanes, service: name, waited, waits_for })
    }

    /// Returns what lies ready and has not been taken of posts, of each home slot where something does. It looks at all of
    /// them: for reports of what does not go on, which may be wrong where it does.
    pub fn ready_posts(&self) -> Vec<ReadyPosts> {
        let region = self.shared.memory.region();
        let of = |slot| {
            let [entries, ring_entries] = region.ready_posts(slot);
            ReadyPosts { slot, entries, ring_entries }
        };
        (0..region.layout().home_slots).map(of).filter(|ready| ready.entries > 0).collect()
    }

    /// Returns how many launches have ended, contexts apart, and how: by themselves, or see [`CancelReason`].
    pub fn launch_ends(&self) -> [(&'static str, u64); ENDS.len()] {
        let counts = &self.shared.statistics.ends;
        ENDS.map(|(ending, name)| (name, counts[usize::from(ending.0)].load(Ordering::Relaxed)))
    }

    /// Says whether a method of this name is registered.
    #[doc(hidden)]
    pub fn has_method(&self, name: &str) -> bool {
        self.shared.counts.has(name)
    }

    /// Returns what was counted of each method that was called or posted to, also of those that were removed.
    pub fn method_statistics(&self) -> Vec<MethodStatistics> {
        self.shared.counts.statistics()
    }

    /// Returns what the server has counted.
    pub fn statistics(&self) -> Statistics {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { statistics: counters, engine, messages, .. } = &*self.shared;
        let load = engine.load();
        Statistics {
            packets: counters.consumers.iter().map(|consumer| consumer.packets.get()).sum(),
            posts: counters.consumers.iter().map(|consumer| consumer.posts.get()).sum(),
            refused_posts: count(&counters.refused_posts),
            declined_posts: count(&counters.declined_posts),
            handler_panics: engine.panics.count(),
            garbage_posts: count(&counters.garbage_posts),
            broken_slots: count(&counters.broken_slots),
            message_bytes: messages.budget.held() as u64,
            handler_threads: load.threads as u64,
            waiting_handlers: load.waiting as u64,
            lost_reports: engine.lost_callbacks(),
        }
    }
}

/// Every waiting call gets [`CallError::Cancelled`](hostcall_abi::status::CallError::Cancelled), and the device learns that
/// nobody serves any more. Handlers that run are not waited for, except inline ones, for a few seconds.
impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
        let (until, here) = (Instant::now() + LONGEST_JOIN, std::thread::current().id());
        // A handler that runs inline may have the server: its thread ends when the handler has returned.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != here) {
            thread.thread().unpark();
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_micros(50));
            }
            if thread.is_finished() {
                // What it panicked with was reported.
                let _ = thread.join();
            } else {
                report::line(format_args!(
                    "a handler that runs inline does not return: the server ends without its thread {}",
                    thread.thread().name().unwrap_or_default()
                ));
            }
        }
        self.shared.messages.end_copies();
        self.shared.memory.region().stop();
        if self.shared.launches.had_contexts() {
            self.shared.messages.leave_loans();
        }
        report::flush();
        tracing::debug!("a server has stopped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_abi::layout::Layout;
    use std::sync::mpsc;

    fn server() -> ServerBuilder {
        let layout = Layout::small(32, 1, 4, 256);
        Server::builder(Arc::new(SharedMemory::allocate(layout.check().unwrap())))
    }

    #[test]
    fn a_server_may_be_dropped_on_a_thread_of_its_own() {
        let server = server().consumers(2).start().unwrap();
        let shared = server.shared.clone();
        let (ends, ended) = mpsc::channel();
        let run = move || {
            let begun = Instant::now();
            drop(server);
            ends.send(begun.elapsed()).unwrap();
        };
        shared.push_command(1, Command::Run(Box::new(run)));
        shared.call_attention();
        let took = ended.recv_timeout(Duration::from_secs(60)).expect("the server is dropped");
        assert!(took < LONGEST_JOIN, "it has waited for its own thread");
    }

    #[test]
    fn all_that_want_to_know_are_told() {
        let [faults, threads] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let [count_faults, count_threads] = [&faults, &threads].map(|counter| {
            let counter = counter.clone();
            move || _ = counter.fetch_add(1, Ordering::SeqCst)
        });
        let (count_too, counts_too) = (count_faults.clone(), count_threads.clone());
        let server = server()
            .on_fault(move |_, _| {
                count_faults();
                panic!("a report that panics, as a test");
            })
            .on_fault(move |_, _| count_too())
            .on_thread(count_threads)
            .on_thread(counts_too)
            .start()
            .unwrap();
        let launch = server.begin(LaunchRecord::default()).unwrap();
        server.shared.fault(launch, "it is broken".into());
        assert_eq!(faults.load(Ordering::SeqCst), 2);
        drop(server);
        assert_eq!(threads.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn a_thread_that_dies_stops_the_server_with_an_error() {
        let layout = Layout::small(32, 1, 4, 256);
        let memory = Arc::new(SharedMemory::allocate(layout.check().unwrap()));
        let server = Server::builder(memory.clone()).consumers(2).start().unwrap();
        let launch = server.begin(LaunchRecord::default()).unwrap();
        server.shared.push_command(0, Command::Run(Box::new(|| panic!("a consumer was told to"))));
        server.shared.call_attention();
        while server.failure().is_none() {
            std::thread::yield_now();
        }
        // Lanes see that nobody serves, and whoever waits for the end of a launch gets the reason.
        while !memory.region().stopped() {
            std::thread::yield_now();
        }
        server.begin_flush(vec![launch]).wait();
        server.cancel(launch, CancelReason::Asked);
        server.reset(&[3]);
        server.end(launch);
        assert!(server.failure().unwrap().contains("hostcall-0"));
        drop(server);
    }
}
