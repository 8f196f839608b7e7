//! What a server's threads share.

use super::counts::AllCounts;
use super::inline::{Inline, InlineCall};
use super::launch_watch::LaunchWatches;
use super::launches::{CancelReason, LaunchRecord, Launches};
use super::messages::Messages;
use super::posts::PostCounts;
use super::registry::{Entry, Registry};
use super::turns::Turns;
use super::unserved::UnservedCounts;
use crate::engine::Engine;
use crate::engine::caught::catch;
use crate::engine::panics::HandlerPanic;
use crate::engine::polling::Attention;
use crate::engine::rare::Rare;
use crate::engine::watchdog::{Waiting, WaitsFor, WavePlace};
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_abi::word::Owner;
use hostcall_channel::SharedMemory;
use hostcall_locks::Mutex;
use hostcall_service::Caller;
use hostcall_trace::{Ending, Source};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use tracing::Level;

/// What one consumer counts, apart from what others do.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct ConsumerCounts {
    pub packets: Count,
    pub posts: Count,
}

/// A number that one thread counts and others read.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Counts more. Only the thread does whose number it is, so that this need be no atomic addition.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How launches end, each with its name as a count.
pub(crate) const ENDS: [(Ending, &str); 6] = [
    (Ending::OK, "ok"),
    (Ending::PANICKED, "panicked"),
    (Ending::EXITED, "exited"),
    (Ending::FAILED, "failed"),
    (Ending::TIMED_OUT, "timed_out"),
    (Ending::CANCELLED, "cancelled"),
];

pub(crate) struct Counters {
    /// By consumer.
    pub consumers: Box<[ConsumerCounts]>,
    pub refused_posts: AtomicU64,
    pub declined_posts: AtomicU64,
    pub garbage_posts: AtomicU64,
    pub broken_slots: AtomicU64,
    /// Launches that have ended, without contexts, by the codes of [`ENDS`]: 0 to 5.
    pub ends: [AtomicU64; ENDS.len()],
}

impl Counters {
    pub fn new(consumers: usize) -> Self {
        Self {
            consumers: (0..consumers).map(|_| ConsumerCounts::default()).collect(),
            refused_posts: AtomicU64::new(0),
            declined_posts: AtomicU64::new(0),
            garbage_posts: AtomicU64::new(0),
            broken_slots: AtomicU64::new(0),
            ends: [const { AtomicU64::new(0) }; ENDS.len()],
        }
    }

    /// Counts launches that have ended, some of which were cancelled.
    pub fn count_ends(&self, launches: u64, cancelled: &[(LaunchId, CancelReason)]) {
        let count = |ending: Ending, launches| {
            self.ends[usize::from(ending.0)].fetch_add(launches, Ordering::Relaxed);
        };
        count(Ending::OK, launches.saturating_sub(cancelled.len() as u64));
        cancelled.iter().for_each(|(_, why)| count(why.ending(), 1));
    }

    pub fn count_refused_posts(&self, count: usize) {
        self.refused_posts.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// What a consumer is asked to do besides serving.
pub(crate) enum Command {
    /// Answer, when what was begun is done and the registry was looked at.
    Nothing(Sender<()>),
    /// Take the posts that waves have announced, of these launches at least, then answer.
    Flush(Wanted, Sender<()>),
    /// Look at those of the slots that are this consumer's no more, then answer.
    Ignore(Arc<[u32]>, Sender<()>),
    /// Take the posts of those of the slots that are this consumer's, forget their state, then answer.
    Reset(Arc<[u32]>, Sender<()>),
    /// Run this.
    #[cfg(test)]
    Run(Box<dyn FnOnce() + Send>),
}

/// Launches, in order.
pub(crate) type Wanted = Arc<[LaunchId]>;

/// A callback for a launch that cannot go on; it gets the launch and why.
pub(crate) type OnFault = Box<dyn Fn(LaunchId, &str) + Send + Sync>;

/// What the server's threads share.
pub(crate) struct Shared {
    pub memory: Arc<SharedMemory>,
    pub engine: Arc<Engine>,
    /// Records the calls, if somebody wants to know them.
    pub trace: Option<Source>,
    /// Is told of launches, for a while.
    pub launch_watch: LaunchWatches,
    /// Calls that are handled one after the other.
    pub turns: Turns,
    /// Whoever rings while the header says that consumers sleep calls [`Shared::wake`].
    pub wakes_reliably: bool,
    pub statistics: Counters,
    pub messages: Messages,
    pub post_counts: PostCounts,
    /// Told when a launch cannot go on.
    pub on_fault: Vec<OnFault>,
    /// Told when a thread other than a consumer has answered.
    pub on_answer: Box<dyn Fn() + Send + Sync>,
    pub stopping: AtomicBool,
    /// What is counted of methods, also of those that were removed.
    pub counts: Arc<AllCounts>,
    pub(super) registry: Mutex<Arc<Registry>>,
    /// Per consumer; `None` once it has ended.
    pub(super) commands: Box<[Mutex<Option<Vec<Command>>>]>,
    /// The launches whose calls are answered.
    pub launches: Launches,
    /// Why launches cannot go on, until whoever launched them asks.
    pub(super) faults: Rare<HashMap<LaunchId, String>>,
    /// What reached no service, until somebody asks.
    pub unserved: UnservedCounts,
    /// Per consumer; called when it has to look at `registry`, `commands` or `stopping`.
    pub consumers: Box<[Attention]>,
    /// Per consumer: the handler that it runs itself.
    pub inline: Arc<[Inline]>,
    /// Per consumer: the last of these that the watchdog was told of.
    pub(super) watched_inline: Mutex<Box<[Option<Arc<InlineCall>>]>>,
    /// A post was declined since posts were handled last.
    pub(super) has_declined: AtomicBool,
}

/// What the consumers were told to do. They do it also when this is dropped.
pub struct Completion(mpsc::Receiver<()>);

impl Completion {
    /// Returns whether all have done it. Once it returned `true` it does so for ever.
    pub fn is_done(&self) -> bool {
        loop {
            match self.0.try_recv() {
                Ok(()) => {}
                Err(mpsc::TryRecvError::Empty) => return false,
                // The last consumer has answered or dropped its command.
                Err(mpsc::TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Waits until all have done it.
    pub fn wait(self) {
        while self.0.recv().is_ok() {}
    }
}

impl Shared {
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.lock().clone()
    }

    /// Takes the commands of a consumer.
    pub fn commands(&self, consumer: usize) -> Vec<Command> {
        self.commands[consumer].lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Gives a command to a consumer. One that has ended drops it, and who waits for its answer learns of that.
    pub(super) fn push_command(&self, consumer: usize, command: Command) {
        if let Some(commands) = &mut *self.commands[consumer].lock() {
            commands.push(command);
        }
    }

    /// Drops the commands of a consumer that ends, and later ones.
    pub fn end_commands(&self, consumer: usize) {
        let commands = self.commands[consumer].lock().take();
        drop(commands);
    }

    /// Has the consumers look at what changed.
    pub fn call_attention(&self) {
        self.consumers.iter().for_each(Attention::call);
    }

    /// The kernel of a launch, and where in its grid the wave is that has the slot.
    pub fn place_of(&self, slot: u32, launch: LaunchId) -> (Arc<str>, Option<WavePlace>) {
        self.place_of_wave(launch, self.memory.region().alleged_owner(slot))
    }

    /// The kernel of a launch, and where in its grid this wave is, if it is one of the launch's.
    pub fn place_of_wave(&self, launch: LaunchId, wave: Option<Owner>) -> (Arc<str>, Option<WavePlace>) {
        let Some(LaunchRecord { kernel, workgroups: [width, height, _], .. }) = self.launches.record(launch)
        else {
            return ("".into(), None);
        };
        let owner = wave.filter(|owner| owner.launch == launch);
        let place = owner.map(|Owner { workgroup: at, wave, .. }| {
            let (width, height) = (width.max(1), height.max(1));
            WavePlace { workgroup: [at % width, at / width % height, at / width / height], wave }
        });
        (kernel, place)
    }

    /// Describes a call of lanes of the wave that has the slot.
    pub fn waiting(
        &self,
        slot: u32,
        launch: LaunchId,
        lanes: u32,
        service: String,
        waited: Duration,
        waits_for: WaitsFor,
    ) -> Waiting {
        let (kernel, place) = self.place_of(slot, launch);
        let device = self.engine.settings().device.clone();
        Waiting { device, slot, launch, kernel, place, lanes, service, waited, waits_for }
    }

    /// Tells of the panic of a method's handler, for a lane that called or posted.
    #[cold]
    pub fn handler_panicked(&self, entry: &Entry, Caller { launch, slot, lane }: Caller) {
        let service = entry.method.name();
        self.engine.handler_panicked(launch, service, || {
            let (kernel, place) = self.place_of(slot, launch);
            HandlerPanic {
                device: self.engine.settings().device.clone(),
                service,
                launch,
                kernel,
                place,
                slot,
                lane,
            }
        });
    }

    /// Wakes parked consumers: a hint that there may be work.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        self.consumers.iter().for_each(Attention::wake);
    }

    /// Tells that a thread other than a consumer has answered.
    pub fn answered(&self) {
        let _ = catch(&self.on_answer);
    }

    /// Notes that a post was declined, so that consumers are woken when there is room.
    pub fn posts_declined(&self) {
        self.statistics.declined_posts.fetch_add(1, Ordering::Relaxed);
        self.has_declined.store(true, Ordering::SeqCst);
    }

    /// Wakes consumers if a post was declined: there is room.
    pub fn posts_wanted(&self) {
        if self.has_declined.load(Ordering::SeqCst) && self.has_declined.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Has the consumers obey, and waits for it.
    pub(super) fn command(&self, command: impl Fn(Sender<()>) -> Command) {
        self.begin_command(command).wait();
    }

    /// Has the consumers obey.
    pub(super) fn begin_command(&self, command: impl Fn(Sender<()>) -> Command) -> Completion {
        let (done, answers) = mpsc::channel();
        for consumer in 0..self.commands.len() {
            self.push_command(consumer, command(done.clone()));
        }
        drop(done);
        self.call_attention();
        Completion(answers)
    }

    /// Cancels launches which are one, or began together: their waiting calls and all further ones end with
    /// [`CallError::Cancelled`], and their posts that wait to be handled are dropped.
    pub fn cancel(&self, launches: LaunchIds, why: CancelReason) {
        let with_context = self.launches.cancel(launches, why);
        // After the mark: a call that is put under watch from now on is seen to be cancelled by whoever puts it there.
        // Without waiting, since a consumer that learns of a lane's panic calls this.
        for launches in std::iter::once(launches).chain(with_context.into_iter().map(LaunchIds::from)) {
            self.engine.watchdog.give_up_soon(&launches.into());
            self.post_counts.forget(launches);
        }
        self.wake();
        let (first, count) = (launches.first(), launches.count());
        self.engine.log(Level::DEBUG, move || {
            tracing::debug!(launch = %first, count, ?why, "launches are cancelled");
        });
    }

    /// Ends a launch that cannot go on, and says why to whoever waits for it.
    pub fn fault(&self, launch: LaunchId, why: String) {
        if !self.launches.is_known(launch) {
            // Nobody waits for it; a device that makes up launches must not fill the memory.
            return;
        }
        self.faults.change(|faults| _ = faults.entry(launch).or_insert_with(|| why.clone()));
        self.cancel(launch.into(), CancelReason::BrokenSlot);
        for on_fault in &self.on_fault {
            let _ = catch(|| on_fault(launch, &why));
        }
        self.engine.log(Level::ERROR, move || tracing::error!(%launch, why, "a launch cannot go on"));
    }

    /// Stops serving: calls that wait get [`CallError::Cancelled`], consumers end, and the device learns that nobody
    /// serves any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.engine.stop();
        self.post_counts.forget_all();
        self.call_attention();
    }

    /// Stops after a thread of the server's has panicked.
    pub fn stop_broken(&self) {
        self.stop();
        self.messages.end_copies();
        self.memory.region().stop();
        for consumer in 0..self.commands.len() {
            self.end_commands(consumer);
        }
        self.consumers.iter().for_each(Attention::unpark);
    }
}
