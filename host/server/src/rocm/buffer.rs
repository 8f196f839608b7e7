//! A buffer that a consumer serves. Its memory is touched here only, under a lock, so that it is left alone for good once
//! the buffer is deregistered.

use super::messages::Messages;
use crate::engine::budget::Budget;
use crate::engine::polling::HotSet;
pub(super) use hostcall_channel::rocm::host::Broken;
use hostcall_channel::rocm::host::{Header, Host};
use hostcall_channel::rocm::{LANES, PacketMemory, SLOT_WORDS};
use hostcall_locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The words of a wave's lanes.
pub(super) type Lanes = [[u64; SLOT_WORDS]; LANES as usize];

/// Most faults of a buffer that are told of, besides lost messages.
const MOST_TOLD: u32 = 16;

/// Messages of a buffer that were lost.
#[derive(Default)]
struct Lost {
    told: u64,
    untold: u32,
}

/// A packet in hand, with copies of what its wave wrote.
pub(super) struct Taken {
    pub packet: u32,
    pub header: Header,
    pub lanes: Box<Lanes>,
    /// The lanes that the handler left to a thread that may wait, once it has run where it may not.
    pub left: u64,
}

struct Serving {
    memory: Arc<PacketMemory>,
    host: Host,
    /// The places where there was work lately.
    places: HotSet,
    found: Vec<u32>,
}

/// A registration of a buffer.
pub(super) struct Buffer {
    /// `None` once it is deregistered. Held for a few copies at a time.
    serving: Mutex<Option<Serving>>,
    /// It is deregistered, or is about to be: no handler begins.
    is_closed: AtomicBool,
    /// The messages that its waves have begun.
    pub messages: Mutex<Messages>,
    /// The address of its memory's owner, to tell buffers apart by.
    memory: usize,
    /// The buffer's address on its device.
    pub address: u64,
    faults: AtomicU32,
    lost: Mutex<Lost>,
}

impl Buffer {
    pub fn new(memory: &Arc<PacketMemory>, budget: &Arc<Budget>) -> Self {
        let host = Host::new(memory.layout(), memory.packets());
        let places = HotSet::new(host.places() as usize);
        let serving = Serving { memory: memory.clone(), host, places, found: Vec::new() };
        Self {
            serving: Mutex::new(Some(serving)),
            is_closed: AtomicBool::new(false),
            messages: Mutex::new(Messages::new(budget)),
            memory: Arc::as_ptr(memory).addr(),
            address: memory.device_address(),
            faults: AtomicU32::new(0),
            lost: Mutex::default(),
        }
    }

    /// Returns whether this is a registration of `memory`.
    pub fn is_of(&self, memory: &Arc<PacketMemory>) -> bool {
        self.memory == Arc::as_ptr(memory).addr()
    }

    /// Takes packets that wait in hand, appending them to `taken`: at hot places and the next cold one, or everywhere with
    /// `all`. `spare` has memory for copies.
    ///
    /// # Errors
    /// [`Broken`] when a device submitted what is no packet; other packets are found all the same.
    pub fn take(&self, all: bool, taken: &mut Vec<Taken>, spare: &mut Vec<Box<Lanes>>) -> Result<(), Broken> {
        // Others answer packets or deregister it: the next pass looks again, and after the last look there is none.
        let serving = if all { Some(self.serving.lock()) } else { self.serving.try_lock() };
        let Some(mut serving) = serving else { return Ok(()) };
        let Some(Serving { memory, host, places, found }) = &mut *serving else { return Ok(()) };
        let packets = memory.packets();
        let mut result = Ok(());
        let mut look = |place, found: &mut Vec<u32>| {
            let before = found.len();
            if let Err(broken) = host.find(packets, place, found) {
                result = Err(broken);
            }
            found.len() > before
        };
        let mut at = 0;
        while let Some(place) = places.get(at) {
            let fruitful = look(place, found);
            at += usize::from(places.judge(at, fruitful));
        }
        for _ in 0..if all { places.len() } else { 1 } {
            let place = places.next_in_turn();
            if !places.is_hot(place) && look(place, found) {
                places.heat(place);
            }
        }
        for packet in found.drain(..) {
            let header = packets.read_header(packet);
            let mut lanes = spare.pop().unwrap_or_else(|| Box::new([[0; SLOT_WORDS]; LANES as usize]));
            for lane in lanes_of(header.mask) {
                lanes[lane as usize] = packets.read(packet, lane);
            }
            taken.push(Taken { packet, header, lanes, left: 0 });
        }
        result
    }

    /// Answers a packet that is in hand with the words of the lanes of `mask`.
    pub fn answer(&self, packet: u32, mask: u64, lanes: &Lanes) {
        if let Some(Serving { memory, host, .. }) = &mut *self.serving.lock() {
            let packets = memory.packets();
            for lane in lanes_of(mask) {
                packets.write(packet, lane, &lanes[lane as usize]);
            }
            host.answer(packets, packet);
        }
    }

    /// Answers a packet that is in hand with zeros.
    pub fn release(&self, packet: u32) {
        if let Some(serving) = &mut *self.serving.lock() {
            serving.release(packet);
        }
    }

    /// Returns whether packets in hand have their answers, so that no handler is to begin.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Serves the buffer no more: packets in hand are answered with zeros, and its memory is left alone once this returns.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let serving = self.serving.lock().take();
        if let Some(mut serving) = serving {
            let in_hand: Vec<u32> = serving.host.in_hand().collect();
            in_hand.into_iter().for_each(|packet| serving.release(packet));
            serving.memory.end_serving();
        }
    }

    /// Counts a fault. Returns whether it is to be told of.
    pub fn count_fault(&self) -> bool {
        self.faults.fetch_add(1, Ordering::Relaxed) < MOST_TOLD
    }

    /// Counts lost messages. Returns how many are to be told of, each time as many as were told before or more, so that kernels
    /// which go on losing some are told of a few times; once the buffer is deregistered, all at once.
    pub fn count_lost(&self, count: u32) -> Option<u32> {
        let mut lost = self.lost.lock();
        lost.untold = lost.untold.saturating_add(count);
        (u64::from(lost.untold) >= lost.told || self.is_closed()).then(|| lost.tell())
    }

    /// Returns how many lost messages nobody was told of, at the end.
    pub fn untold_lost(&self) -> Option<u32> {
        Some(self.lost.lock().tell()).filter(|lost| *lost > 0)
    }
}

impl Lost {
    fn tell(&mut self) -> u32 {
        self.told += u64::from(self.untold);
        std::mem::take(&mut self.untold)
    }
}

impl Serving {
    fn release(&mut self, packet: u32) {
        let packets = self.memory.packets();
        (0..LANES).for_each(|lane| packets.write(packet, lane, &[0; 2]));
        self.host.answer(packets, packet);
    }
}

/// Returns the lanes of a mask.
pub(super) fn lanes_of(mask: u64) -> impl Iterator<Item = u32> {
    let mut left = mask;
    std::iter::from_fn(move || {
        (left != 0).then(|| {
            let lane = left.trailing_zeros();
            left &= left - 1;
            lane
        })
    })
}
