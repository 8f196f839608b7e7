//! The host's side: finding the packets that wait, what it reads and writes in them, and answering them.

use super::layout::{Layout, SLOT_WORDS};
use super::packets::{Packets, Parts};
use crate::primitive::{Ordering, fence, low_bits};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Packets of a line of phases.
pub(super) const LINE_PACKETS: u32 = 16;

/// What the device wrote where no packet that waits can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The pointer of a ready packet names none that exists.
    NoPacket(u64),
    /// A packet is ready that the host has in hand, or that is in the stack twice.
    Twice(u32),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPacket(pointer) => {
                write!(f, "the device submitted {pointer:#x}, which is the pointer of no packet")
            }
            Self::Twice(packet) => {
                write!(f, "the device submitted packet {packet}, which was not answered yet")
            }
        }
    }
}

/// What a wave wrote about its lanes and what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The lanes, one bit a lane.
    pub mask: u64,
    /// The service's number.
    pub service: u32,
}

/// What the host knows of a line of packets. Bit `i` is the line's packet `i`.
#[derive(Clone, Copy, Default)]
struct PacketLine {
    /// The host's phases, with phases.
    phases: u16,
    /// Packets that were found and are not answered.
    in_hand: u16,
    /// Packets that exist.
    exist: u16,
}

/// The host's end of a buffer. Its memory of the packets decides; of the device's words it takes what it checks.
pub struct Host {
    lines: Vec<PacketLine>,
    index_mask: u64,
    stacks: bool,
}

impl Host {
    /// The host's end of a buffer in which no packet is in hand.
    pub fn new(layout: &Layout, packets: Packets<'_>) -> Self {
        let mut lines = vec![PacketLine::default(); layout.packets().div_ceil(LINE_PACKETS) as usize];
        for packet in 0..layout.packets() {
            let (line, bit) = (&mut lines[(packet / LINE_PACKETS) as usize], 1 << (packet % LINE_PACKETS));
            line.exist |= bit;
            if let Parts::Phases { host, .. } = packets.parts
                && host[packet as usize].load(Ordering::Relaxed) & 1 != 0
            {
                line.phases |= bit;
            }
        }
        Self { lines, index_mask: layout.index_mask(), stacks: matches!(packets.parts, Parts::Stacks { .. }) }
    }

    /// Places to look for packets at: the stack, or lines of phases.
    pub fn places(&self) -> u32 {
        if self.stacks { 1 } else { self.lines.len() as u32 }
    }

    fn line(&mut self, packet: u32) -> (&mut PacketLine, u16) {
        (&mut self.lines[(packet / LINE_PACKETS) as usize], 1 << (packet % LINE_PACKETS))
    }

    /// Takes in hand the packets that wait at a place, and appends them to `found`. What the device wrote before it
    /// submitted them is there.
    ///
    /// # Errors
    /// When the stack's chain breaks off; the packets before that are found, those behind it are lost.
    #[inline]
    pub fn find(&mut self, packets: Packets<'_>, place: u32, found: &mut Vec<u32>) -> Result<(), Broken> {
        match packets.parts {
            Parts::Stacks { root, .. } => {
                if root.ready.load(Ordering::Relaxed) == 0 {
                    return Ok(());
                }
                let begin = found.len();
                let top = root.ready.swap(0, Ordering::Acquire);
                let result = self.walk(packets, top, found);
                // Who came first is served first.
                found[begin..].reverse();
                result
            }
            Parts::Phases { device, .. } => {
                let first = place * LINE_PACKETS;
                let line = &mut self.lines[place as usize];
                let mut ready =
                    (low_bits(&device[first as usize..]) ^ line.phases) & line.exist & !line.in_hand;
                if ready == 0 {
                    return Ok(());
                }
                line.in_hand |= ready;
                fence(Ordering::Acquire);
                while ready != 0 {
                    found.push(first + ready.trailing_zeros());
                    ready &= ready - 1;
                }
                Ok(())
            }
        }
    }

    /// Follows the chain of ready packets. A packet is taken once, so it has an end.
    fn walk(&mut self, packets: Packets<'_>, mut at: u64, found: &mut Vec<u32>) -> Result<(), Broken> {
        let Parts::Stacks { headers, .. } = packets.parts else { return Ok(()) };
        while at != 0 {
            let index = at & self.index_mask;
            let Some(header) = headers.get(index as usize) else { return Err(Broken::NoPacket(at)) };
            let packet = index as u32;
            let (line, bit) = self.line(packet);
            if line.in_hand & bit != 0 {
                return Err(Broken::Twice(packet));
            }
            line.in_hand |= bit;
            found.push(packet);
            at = header.next.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Answers a packet that is in hand. Returns `false`, and does nothing, when it is not.
    #[inline]
    pub fn answer(&mut self, packets: Packets<'_>, packet: u32) -> bool {
        let (line, bit) = self.line(packet);
        if line.in_hand & bit == 0 {
            return false;
        }
        line.in_hand &= !bit;
        line.phases ^= bit;
        let phase = u32::from(line.phases & bit != 0);
        match packets.parts {
            Parts::Stacks { headers, .. } => {
                headers[packet as usize].control.store(0, Ordering::Release);
            }
            Parts::Phases { host, .. } => {
                fence(Ordering::Release);
                host[packet as usize].store(phase, Ordering::Relaxed);
            }
        }
        true
    }

    /// The packets that are in hand.
    pub fn in_hand(&self) -> impl Iterator<Item = u32> + '_ {
        self.lines.iter().enumerate().flat_map(|(index, line)| {
            let in_hand = line.in_hand;
            (0..LINE_PACKETS)
                .filter(move |i| in_hand >> i & 1 != 0)
                .map(move |i| index as u32 * LINE_PACKETS + i)
        })
    }
}

impl Packets<'_> {
    /// The header, read once.
    #[inline]
    pub fn read_header(&self, packet: u32) -> Header {
        let (mask, service) = self.head(packet);
        Header { mask: mask.load(Ordering::Relaxed), service: service.load(Ordering::Relaxed) }
    }

    /// Reads a lane's words, each once.
    #[inline]
    pub fn read(&self, packet: u32, lane: u32) -> [u64; SLOT_WORDS] {
        self.lane(packet, lane).each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Writes the first words of a lane.
    #[inline]
    pub fn write(&self, packet: u32, lane: u32, words: &[u64]) {
        for (to, word) in self.lane(packet, lane).iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
    }
}
