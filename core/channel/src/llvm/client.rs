//! A client's side of a port: what the lanes of a wave do together.

use super::AtomicU32;
use super::layout::{BUFFER_BYTES, BUFFER_WORDS, FIRST_PIECE_BYTES};
use super::ports::{Ports, at};
use crate::primitive::{Ordering, fence};

#[cfg(not(loom))]
use super::layout::Version;

/// The lanes that use a port together, as one of them sees it. The functions that take no value of a single
/// lane's are called by all of them.
pub trait Wave {
    /// The lanes, one bit a lane.
    fn mask(&self) -> u64;
    /// This lane's index in the wave.
    fn lane(&self) -> u32;
    /// Whether this is the lane that acts for all.
    fn is_leader(&self) -> bool;
    /// The leader's value.
    fn of_leader(&self, value: u64) -> u64;
    /// Whether `yes` holds for some lane.
    fn any(&self, yes: bool) -> bool;
    /// Waits for the others.
    fn sync(&self);
    /// Waits until `poll` gives true. The leader alone calls it.
    fn wait(&self, poll: impl FnMut() -> bool);
}

/// A wave of one lane, which calls the function between its looks at a port: a client that is a thread.
#[derive(Clone, Copy)]
pub struct Alone<F>(pub F);

impl<F: Fn()> Wave for Alone<F> {
    fn mask(&self) -> u64 {
        1
    }

    fn lane(&self) -> u32 {
        0
    }

    fn is_leader(&self) -> bool {
        true
    }

    fn of_leader(&self, value: u64) -> u64 {
        value
    }

    fn any(&self, yes: bool) -> bool {
        yes
    }

    fn sync(&self) {}

    fn wait(&self, mut poll: impl FnMut() -> bool) {
        while !poll() {
            (self.0)();
        }
    }
}

/// A client: the ports, and a lock bit for each in the device's own memory.
#[derive(Clone, Copy)]
pub struct Client<'c> {
    ports: Ports<'c>,
    locks: &'c [AtomicU32],
}

impl<'c> Client<'c> {
    /// A client of these ports, with a lock bit for each.
    pub fn new(ports: Ports<'c>, locks: &'c [AtomicU32]) -> Option<Self> {
        (locks.len() * 32 >= ports.count() as usize).then_some(Self { ports, locks })
    }

    /// The client whose object lies at `address`.
    ///
    /// # Safety
    /// There is a client object of this version, as [`super::Layout::client_object`] makes it or LLVM's server
    /// for waves of `lanes` lanes, whose pointers keep PORTS for `'c`; its lock bits are only accessed by
    /// clients.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn from_address(address: u64, version: Version, lanes: u32) -> Self {
        let object = address as usize;
        // SAFETY: the caller promises an object of the version, whose fields lie here and do not change.
        unsafe {
            let count = *(object as *const u32);
            let pointers = *((object + version.inbox_pointer_offset()) as *const [u64; 4]);
            let locks = (object + version.locks_offset()) as *const AtomicU32;
            Self {
                ports: Ports::from_addresses(pointers.map(|pointer| pointer as usize), count, lanes),
                locks: core::slice::from_raw_parts(locks, version.max_ports() as usize / 32),
            }
        }
    }

    /// Opens a port for the lanes of `wave`, waiting until there is one. Waves that look from different `start`s
    /// meet less often.
    #[inline(always)]
    pub fn open<W: Wave>(&self, wave: W, opcode: u32, start: u32) -> Port<'c, W> {
        let mut claimed = 0;
        if wave.is_leader() {
            let mut port = start % self.ports.count();
            wave.wait(|| {
                let found = self.try_claim(port);
                if let Some(out) = found {
                    claimed = u64::from(port) << 32 | u64::from(out);
                    let [mask, code] = self.ports.header(port);
                    mask.store(wave.mask(), Ordering::Relaxed);
                    code.store(u64::from(opcode), Ordering::Relaxed);
                }
                port = if port + 1 < self.ports.count() { port + 1 } else { 0 };
                found.is_some()
            });
        }
        let claimed = wave.of_leader(claimed);
        let (index, out) = ((claimed >> 32) as u32, claimed as u32);
        Port { client: *self, wave, index, out, received: false, owned: true }
    }

    /// Locks a port if nobody else has it and its last hand-over is done. The outbox's value.
    #[inline(always)]
    fn try_claim(&self, port: u32) -> Option<u32> {
        let (lock, bit) = (at(self.locks, port as usize / 32), 1 << (port % 32));
        if lock.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return None;
        }
        fence(Ordering::Acquire);
        let inbox = at(self.ports.primary, port as usize).load(Ordering::Relaxed);
        let outbox = at(self.ports.secondary, port as usize).load(Ordering::Relaxed);
        if inbox == outbox {
            // What the server read of the buffers, it read before.
            fence(Ordering::Acquire);
            return Some(outbox);
        }
        self.unlock(port);
        None
    }

    #[inline(always)]
    fn unlock(&self, port: u32) {
        // An order on the read-modify-write itself would be lost on NVIDIA.
        fence(Ordering::Release);
        at(self.locks, port as usize / 32).fetch_and(!(1 << (port % 32)), Ordering::Relaxed);
    }
}

/// An open port, as one lane of its wave has it. All lanes call its functions together.
pub struct Port<'c, W: Wave> {
    client: Client<'c>,
    wave: W,
    index: u32,
    out: u32,
    /// The last operation was a receive, whose buffers are still owned.
    received: bool,
    /// The buffers are owned without a look at the inbox.
    owned: bool,
}

impl<W: Wave> Port<'_, W> {
    /// Waits until the client owns the buffers.
    #[inline(always)]
    fn wait_for_ownership(&mut self) {
        if !self.owned {
            if self.wave.is_leader() {
                let inbox = at(self.client.ports.primary, self.index as usize);
                self.wave.wait(|| inbox.load(Ordering::Relaxed) == self.out);
            }
            self.wave.sync();
            fence(Ordering::Acquire);
            self.owned = true;
        }
    }

    #[inline(always)]
    fn hand_over(&mut self) {
        self.wave.sync();
        fence(Ordering::Release);
        self.out ^= 1;
        if self.wave.is_leader() {
            at(self.client.ports.secondary, self.index as usize).store(self.out, Ordering::Relaxed);
        }
        self.owned = false;
        self.received = false;
    }

    /// Sends this lane's first words of the buffer; the rest stays as it was.
    #[inline(always)]
    pub fn send(&mut self, words: &[u64]) {
        self.wait_for_ownership();
        for (i, word) in words.iter().enumerate().take(BUFFER_WORDS) {
            self.client.ports.word(self.index, self.wave.lane(), i).store(*word, Ordering::Relaxed);
        }
        self.hand_over();
    }

    /// Receives the first words of this lane's buffer.
    #[inline(always)]
    pub fn receive(&mut self, words: &mut [u64]) {
        if self.received {
            self.hand_over();
        }
        self.wait_for_ownership();
        for (i, word) in words.iter_mut().enumerate().take(BUFFER_WORDS) {
            *word = self.client.ports.word(self.index, self.wave.lane(), i).load(Ordering::Relaxed);
        }
        self.received = true;
    }

    /// Sends bytes, of any number in each lane.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let (first, mut rest) = bytes.split_at(bytes.len().min(FIRST_PIECE_BYTES));
        let mut words = [0; BUFFER_WORDS];
        words[0] = bytes.len() as u64;
        pack(first, &mut words[1..]);
        self.send(&words[..1 + first.len().div_ceil(8)]);
        while self.wave.any(!rest.is_empty()) {
            let (piece, after) = rest.split_at(rest.len().min(BUFFER_BYTES));
            pack(piece, &mut words);
            self.send(&words[..piece.len().div_ceil(8)]);
            rest = after;
        }
    }

    /// Receives bytes, as many as `into` takes. How many were sent.
    pub fn receive_bytes(&mut self, into: &mut [u8]) -> u64 {
        let mut words = [0; BUFFER_WORDS];
        self.receive(&mut words);
        let sent = words[0];
        unpack(&words[1..], into, 0, sent);
        let mut done = FIRST_PIECE_BYTES as u64;
        while self.wave.any(done < sent) {
            self.receive(&mut words);
            unpack(&words, into, done, sent);
            done += BUFFER_BYTES as u64;
        }
        sent
    }

    /// Gives the port back. The last operation may have been a send that the server has not received yet.
    #[inline(always)]
    pub fn close(self) {
        self.wave.sync();
        if self.wave.is_leader() {
            self.client.unlock(self.index);
        }
        self.wave.sync();
    }
}

/// Puts bytes into words; those that are left of the last word are zero.
#[inline(always)]
fn pack(bytes: &[u8], words: &mut [u64]) {
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        *word = chunk.iter().enumerate().fold(0, |word, (i, byte)| word | u64::from(*byte) << (8 * i));
    }
}

/// Puts the bytes that begin at `done` of `sent` and lie in `words` into their place, as far as there is room.
#[inline(always)]
fn unpack(words: &[u64], into: &mut [u8], done: u64, sent: u64) {
    let end = sent.min(into.len() as u64);
    for (i, word) in words.iter().enumerate() {
        for byte in 0..8 {
            let place = done + (8 * i + byte) as u64;
            if place < end {
                into[place as usize] = (word >> (8 * byte)) as u8;
            }
        }
    }
}
