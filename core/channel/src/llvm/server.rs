//! The server's side: finding the ports whose buffers it owns, and what it reads and writes in them.

use super::ports::Ports;
use crate::primitive::{Ordering, fence, low_bits};
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Range;

/// Ports of a line of mailbox words.
pub const LINE_PORTS: u32 = 16;

/// What the server knows of a line of ports. Bit `i` is the line's port `i`.
struct PortLine {
    /// The outbox words' values.
    out: Cell<u16>,
    /// Ports that are not looked at.
    set_aside: Cell<u16>,
}

/// The server's end of a range of ports: the only one who answers them. Its memory of them decides; of the
/// client's words it takes the lowest bit.
pub struct Scanner {
    first: u32,
    lines: Vec<PortLine>,
}

/// What a client wrote about its wave and what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The lanes, one bit a lane.
    pub mask: u64,
    /// The second word, whose low bits are the opcode.
    pub opcode: u64,
}

impl Scanner {
    /// The server's end of ports that nobody has used yet. The range begins at a line's first port.
    pub fn new(ports: Range<u32>) -> Self {
        debug_assert!(ports.start.is_multiple_of(LINE_PORTS));
        let line = |line: u32| {
            let ports_of_line = (ports.end - line * LINE_PORTS).min(LINE_PORTS);
            // Ports that do not exist are set aside.
            let none = (u32::MAX << ports_of_line) as u16;
            PortLine { out: Cell::new(0), set_aside: Cell::new(none) }
        };
        let lines = ports.start / LINE_PORTS..ports.end.div_ceil(LINE_PORTS);
        Self { first: ports.start, lines: lines.map(line).collect() }
    }

    /// Lines.
    pub fn lines(&self) -> u32 {
        self.lines.len() as u32
    }

    /// First port of a line.
    #[inline]
    pub fn first_port(&self, line: u32) -> u32 {
        self.first + line * LINE_PORTS
    }

    #[inline]
    fn line(&self, port: u32) -> (&PortLine, u16) {
        let of_range = port - self.first;
        (&self.lines[(of_range / LINE_PORTS) as usize], 1 << (of_range % LINE_PORTS))
    }

    /// The ports of a line whose buffers the server owns, except those set aside.
    #[inline]
    pub fn ready(&self, ports: Ports<'_>, line: u32) -> u16 {
        let known = &self.lines[line as usize];
        (low_bits(&ports.secondary[self.first_port(line) as usize..]) ^ known.out.get())
            & !known.set_aside.get()
    }

    /// Whether the server owns the port's buffers. When it does, what the client wrote to them is there.
    #[inline]
    pub fn owns(&self, ports: Ports<'_>, port: u32) -> bool {
        let (line, bit) = self.line(port);
        let inbox = ports.secondary[port as usize].load(Ordering::Relaxed) & 1 != 0;
        let owns = inbox != (line.out.get() & bit != 0);
        if owns {
            fence(Ordering::Acquire);
        }
        owns
    }

    /// Hands the port's buffers to the client.
    #[inline]
    pub fn hand_over(&self, ports: Ports<'_>, port: u32) {
        let (line, bit) = self.line(port);
        let out = line.out.get() ^ bit;
        line.out.set(out);
        fence(Ordering::Release);
        ports.primary[port as usize].store(u32::from(out & bit != 0), Ordering::Relaxed);
    }

    /// Leaves a port out of [`Scanner::ready`], or takes it in again.
    #[inline]
    pub fn set_aside(&self, port: u32, aside: bool) {
        let (line, bit) = self.line(port);
        let others = line.set_aside.get() & !bit;
        line.set_aside.set(if aside { others | bit } else { others });
    }
}

impl Ports<'_> {
    /// Begins to fetch what answering a port takes, so that its cache lines come side by side.
    #[cfg_attr(
        any(not(target_arch = "x86_64"), loom, miri),
        expect(unused_variables, reason = "fetches nothing")
    )]
    #[inline(always)]
    pub fn prefetch(&self, port: u32) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
            let [mask, _] = self.header(port);
            let outbox = &self.primary[port as usize];
            // SAFETY: a prefetch of addresses of live words changes nothing.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(mask.as_ptr().cast());
                _mm_prefetch::<_MM_HINT_ET0>(self.buffer(port, 0).as_ptr().cast());
                _mm_prefetch::<_MM_HINT_ET0>(outbox.as_ptr().cast());
            }
        }
    }

    /// The header, read once.
    #[inline]
    pub fn read_header(&self, port: u32) -> Header {
        let [mask, opcode] = self.header(port);
        Header { mask: mask.load(Ordering::Relaxed), opcode: opcode.load(Ordering::Relaxed) }
    }

    /// Overwrites the opcode of a port that the server owns. A client writes it with each call that it opens, so this stays until
    /// the next one.
    #[inline]
    pub fn set_opcode(&self, port: u32, opcode: u32) {
        self.header(port)[1].store(opcode.into(), Ordering::Relaxed);
    }

    /// Reads the first words of a lane's buffer, each once.
    #[inline]
    pub fn read(&self, port: u32, lane: u32, words: &mut [u64]) {
        for (word, from) in words.iter_mut().zip(self.buffer(port, lane)) {
            *word = from.load(Ordering::Relaxed);
        }
    }

    /// Writes the first words of a lane's buffer.
    #[inline]
    pub fn write(&self, port: u32, lane: u32, words: &[u64]) {
        for (word, to) in words.iter().zip(self.buffer(port, lane)) {
            to.store(*word, Ordering::Relaxed);
        }
    }
}
