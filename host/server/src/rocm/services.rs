//! The handlers of services, and what they get.

use super::buffer::{Buffer, Lanes, Taken, lanes_of};
use super::messages::{Message, Messages};
use super::options::FaultKind;
use crate::engine::Threads;
use crate::engine::caught::{Contained, catch};
use crate::engine::functions::Functions;
use hostcall_channel::rocm::SLOT_WORDS;
use hostcall_locks::{Mutex, RwLock};
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

/// The numbers of services that ROCm's device libraries call.
pub mod number {
    /// The handler of this number answers calls of services that have none. Nobody calls it by this number.
    pub const DEFAULT: u32 = 0;
    /// Calls of functions of the host.
    pub const FUNCTION_CALL: u32 = 1;
    /// `printf` and `fprintf`.
    pub const PRINTF: u32 = 2;
    /// Memory of the device.
    pub const DEVICE_MEMORY: u32 = 3;
    /// Reports of the address sanitizer.
    pub const SANITIZER: u32 = 4;
}

/// Where a handler runs.
#[derive(Clone)]
pub enum Mode {
    /// On the consumer's thread: for handlers that never wait. Other packets wait for them.
    Inline,
    /// On a worker thread.
    Blocking,
    /// On the consumer's thread, unless this says that it would wait now.
    InlineUnless(Arc<dyn Fn() -> bool + Send + Sync>),
}

/// The service has a handler already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("service {0} has a handler already")]
pub struct ServiceTaken(pub u32);

type Run = Box<dyn Fn(&mut Packet<'_>) + Send + Sync>;

/// A function that kernels call.
pub(super) type Function = Arc<dyn Fn(&[u64; 7]) -> [u64; 2] + Send + Sync>;

/// A handler.
pub(super) struct Entry {
    pub name: &'static str,
    pub mode: Mode,
    pub threads: Threads,
    run: Contained<Run>,
}

/// Handlers by the numbers of their services, for any number of consumers. Clones are the same handlers. A handler stays
/// once it is registered, which may be while consumers run.
#[derive(Clone, Default)]
pub struct Services(Arc<Shared>);

#[derive(Default)]
struct Shared {
    entries: RwLock<HashMap<u32, Arc<Entry>>>,
    functions: Arc<Functions<Function>>,
    /// Service 1 calls them.
    serves_functions: Mutex<bool>,
}

impl Services {
    /// No handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the handler of a service; of [`number::DEFAULT`], that of services without one. `name` is what reports
    /// call it. When the handler panics, its packet is answered with zeros.
    ///
    /// # Errors
    /// [`ServiceTaken`] when the service has one.
    pub fn register(
        &self,
        service: u32,
        name: &'static str,
        mode: Mode,
        handler: impl Fn(&mut Packet<'_>) + Send + Sync + 'static,
    ) -> Result<(), ServiceTaken> {
        self.add(service, name, mode, Threads::Users, handler)
    }

    pub(super) fn add(
        &self,
        service: u32,
        name: &'static str,
        mode: Mode,
        threads: Threads,
        handler: impl Fn(&mut Packet<'_>) + Send + Sync + 'static,
    ) -> Result<(), ServiceTaken> {
        let entry = Arc::new(Entry { name, mode, threads, run: Contained::new(Box::new(handler)) });
        match self.0.entries.write().entry(service) {
            MapEntry::Occupied(_) => return Err(ServiceTaken(service)),
            MapEntry::Vacant(place) => place.insert(entry),
        };
        Ok(())
    }

    /// Returns a service's handler, and whether it is its own and not the default.
    pub(super) fn find(&self, service: u32) -> Option<(Arc<Entry>, bool)> {
        let entries = self.0.entries.read();
        // Service 0 has no handler of its own.
        let own = if service == number::DEFAULT { None } else { entries.get(&service) };
        let is_own = own.is_some();
        own.or_else(|| entries.get(&number::DEFAULT)).map(|entry| (entry.clone(), is_own))
    }

    pub(super) fn functions(&self) -> &Arc<Functions<Function>> {
        &self.0.functions
    }

    pub(super) fn serves_functions(&self) -> &Mutex<bool> {
        &self.0.serves_functions
    }
}

/// What a packet came in.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    /// The messages that waves have begun.
    pub messages: &'a Mutex<Messages>,
    /// The address on the device.
    pub address: u64,
}

/// A packet, as its handler has it: copies of what the lanes of a wave sent. When the handler returns they are the answer.
pub struct Packet<'a> {
    service: u32,
    mask: u64,
    lanes: &'a mut Lanes,
    /// Where it came from: what the waves there have begun, and the address on the device.
    from: From<'a>,
    may_wait: bool,
    /// As in [`Taken`].
    left: u64,
    missing: Option<u64>,
    has_panicked: bool,
    lost: u32,
}

impl Packet<'_> {
    /// The service that was called.
    pub fn service(&self) -> u32 {
        self.service
    }

    /// The lanes that call, one bit a lane.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The address on its device of the buffer, or of the ports where kernels call by LLVM's protocol.
    pub fn buffer(&self) -> u64 {
        self.from.address
    }

    /// The lanes that call, with their words. Kernels of ROCm's device libraries read the first two of the answer.
    pub fn lanes(&mut self) -> impl Iterator<Item = (u32, &mut [u64; SLOT_WORDS])> {
        let mask = self.mask;
        (0..).zip(self.lanes.iter_mut()).filter(move |(lane, _)| mask >> lane & 1 != 0)
    }

    /// Has each lane that calls handled by itself: one for which `handle` panics gets zeros, and the others
    /// their answers.
    pub(super) fn each_lane(&mut self, mut handle: impl FnMut(u32, &mut [u64; SLOT_WORDS])) {
        let mut has_panicked = false;
        for (lane, words) in self.lanes() {
            if catch(|| handle(lane, words)).is_err() {
                *words = [0; SLOT_WORDS];
                has_panicked = true;
            }
        }
        self.has_panicked |= has_panicked;
    }

    /// Whether this is a thread on which a handler may wait.
    pub(super) fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Takes a piece of a message from each lane. The first word of a lane whose message ended is what `ended` returns.
    /// `may_go_on` is asked before each lane but the first: other lanes are left for a thread that may wait.
    pub(super) fn messages(
        &mut self,
        mut may_go_on: impl FnMut() -> bool,
        mut ended: impl FnMut(Message) -> u64,
    ) {
        let these = if self.left == 0 { self.mask } else { std::mem::take(&mut self.left) };
        for (index, lane) in lanes_of(these).enumerate() {
            if index > 0 && !may_go_on() {
                self.left = these & u64::MAX << lane;
                return;
            }
            let words = &mut self.lanes[lane as usize];
            let (message, lost) = {
                let mut messages = self.from.messages.lock();
                (messages.piece(words), messages.take_lost())
            };
            self.lost += lost;
            if let Some(message) = message {
                words[0] = ended(message);
            }
        }
    }

    /// Notes that a lane called a function that is not registered.
    pub(super) fn no_such_function(&mut self, number: u64) {
        self.missing = Some(number);
    }
}

/// Runs the handler of a packet, whose words are the answer then, unless lanes are left. Returns what was wrong.
pub(super) fn handle(entry: &Entry, buffer: &Buffer, taken: &mut Taken, may_wait: bool) -> Vec<FaultKind> {
    let (service, mask) = (taken.header.service, taken.header.mask);
    let from = From { messages: &buffer.messages, address: buffer.address };
    handle_lanes(entry, service, mask, &mut taken.lanes, &mut taken.left, from, may_wait)
}

/// The same, for lanes that called by whatever way.
pub(super) fn handle_lanes(
    entry: &Entry,
    service: u32,
    mask: u64,
    lanes: &mut Lanes,
    to_do: &mut u64,
    from: From<'_>,
    may_wait: bool,
) -> Vec<FaultKind> {
    let (left, missing, has_panicked, lost) = (std::mem::take(to_do), None, false, 0);
    let mut packet = Packet { service, mask, lanes, from, may_wait, left, missing, has_panicked, lost };
    let is_handled = catch(|| (entry.run)(&mut packet)).is_ok();
    let Packet { left, missing, has_panicked, lost, .. } = packet;
    let mut faults = Vec::new();
    if is_handled {
        *to_do = left;
    } else {
        lanes_of(mask).for_each(|lane| lanes[lane as usize] = [0; SLOT_WORDS]);
    }
    if !is_handled || has_panicked {
        faults.push(FaultKind::Panicked(service));
    }
    faults.extend(missing.map(FaultKind::NoSuchFunction));
    if lost > 0 {
        faults.push(FaultKind::MessagesLost(lost));
    }
    faults
}
