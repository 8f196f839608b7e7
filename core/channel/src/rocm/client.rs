//! The device's side of a packet, for clients that are threads: one acts for all lanes of its wave.

use super::layout::SLOT_WORDS;
use super::packets::{Packets, Parts};
use crate::primitive::{AtomicU64, Ordering, fence};

/// Bit of a header's control word while the packet is not answered.
const READY: u32 = 1;

/// A packet that a wave has claimed.
pub struct Packet<'c> {
    packets: Packets<'c>,
    /// The packet, and with stacks the tag of this use of it.
    pointer: u64,
    index: u32,
}

/// Claims a packet that nobody has; `None` when there is none now.
pub fn claim(packets: Packets<'_>) -> Option<Packet<'_>> {
    match packets.parts {
        Parts::Stacks { root, headers } => {
            let mask = root.index_mask.load(Ordering::Relaxed);
            let mut top = root.free.load(Ordering::Acquire);
            while top != 0 {
                let index = (top & mask) as u32;
                let next = headers.get(index as usize)?.next.load(Ordering::Relaxed);
                match root.free.compare_exchange(top, next, Ordering::Acquire, Ordering::Acquire) {
                    Ok(_) => return Some(Packet { packets, pointer: top, index }),
                    Err(now) => top = now,
                }
            }
            None
        }
        Parts::Phases { device, host, occupied, .. } => {
            (0..packets.count()).find_map(|index| {
                let (word, bit) = (&occupied[index as usize / 32], 1 << (index % 32));
                if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
                    return None;
                }
                fence(Ordering::Acquire);
                let phases = [device, host].map(|phases| phases[index as usize].load(Ordering::Relaxed));
                if phases[0] == phases[1] {
                    // What the host read of the payload, it read before.
                    fence(Ordering::Acquire);
                    return Some(Packet { packets, pointer: 0, index });
                }
                fence(Ordering::Release);
                word.fetch_and(!bit, Ordering::Relaxed);
                None
            })
        }
    }
}

impl Packet<'_> {
    /// The packet's index in its buffer.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Writes the words of a lane.
    pub fn write(&self, lane: u32, words: &[u64; SLOT_WORDS]) {
        for (to, word) in self.packets.lane(self.index, lane).iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
    }

    /// Submits the packet for the lanes of `mask`.
    pub fn submit(&self, service: u32, mask: u64) {
        let (mask_word, service_word) = self.packets.head(self.index);
        mask_word.store(mask, Ordering::Relaxed);
        service_word.store(service, Ordering::Relaxed);
        match self.packets.parts {
            Parts::Stacks { root, headers } => {
                headers[self.index as usize].control.store(READY, Ordering::Relaxed);
                self.push(&root.ready, self.pointer);
            }
            Parts::Phases { device, .. } => {
                let phase = &device[self.index as usize];
                phase.store(phase.load(Ordering::Relaxed) ^ 1, Ordering::Release);
            }
        }
    }

    /// Whether the host has answered what was submitted.
    pub fn is_answered(&self) -> bool {
        let index = self.index as usize;
        match self.packets.parts {
            Parts::Stacks { headers, .. } => headers[index].control.load(Ordering::Acquire) & READY == 0,
            Parts::Phases { device, host, .. } => {
                host[index].load(Ordering::Acquire) == device[index].load(Ordering::Relaxed)
            }
        }
    }

    /// Reads a lane's answer.
    pub fn read(&self, lane: u32) -> [u64; 2] {
        let words = self.packets.lane(self.index, lane);
        [&words[0], &words[1]].map(|word| word.load(Ordering::Relaxed))
    }

    /// Gives the packet back.
    pub fn release(self) {
        match self.packets.parts {
            Parts::Stacks { root, .. } => {
                let step = root.index_mask.load(Ordering::Relaxed).wrapping_add(1);
                let pointer = self.pointer.wrapping_add(step);
                // No pointer is 0, not even that of packet 0 with a tag that begins again.
                self.push(&root.free, if pointer == 0 { step } else { pointer });
            }
            Parts::Phases { occupied, .. } => {
                fence(Ordering::Release);
                occupied[self.index as usize / 32].fetch_and(!(1 << (self.index % 32)), Ordering::Relaxed);
            }
        }
    }

    /// Puts the packet on top of a stack.
    fn push(&self, stack: &AtomicU64, pointer: u64) {
        let Parts::Stacks { headers, .. } = self.packets.parts else { return };
        let mut top = stack.load(Ordering::Relaxed);
        loop {
            headers[self.index as usize].next.store(top, Ordering::Relaxed);
            match stack.compare_exchange(top, pointer, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

/// Calls a service for the lanes of `mask` and puts their answers into the first two words of each; `wait` is called
/// between looks at the buffer. A mask without lanes calls nobody.
pub fn call(
    packets: Packets<'_>,
    service: u32,
    mask: u64,
    lanes: &mut [[u64; SLOT_WORDS]],
    mut wait: impl FnMut(),
) {
    let of_mask = |lanes: usize| (0..lanes as u32).filter(move |lane| lane < &64 && mask >> lane & 1 != 0);
    let packet = loop {
        match claim(packets) {
            Some(packet) => break packet,
            None => wait(),
        }
    };
    for lane in of_mask(lanes.len()) {
        packet.write(lane, &lanes[lane as usize]);
    }
    packet.submit(service, mask);
    while !packet.is_answered() {
        wait();
    }
    for lane in of_mask(lanes.len()) {
        lanes[lane as usize][..2].copy_from_slice(&packet.read(lane));
    }
    packet.release();
}
