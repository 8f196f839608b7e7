//! Layouts, and both sides of ports in one process.

use super::client::{Client, Port, Wave};
use super::server::{LINE_PORTS, Scanner};
use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

#[test]
fn versions_are_told_by_symbol_and_size() {
    assert_eq!(Version::of_symbol("__llvm_libc_rpc_client", 8), Some(Version::Llvm19));
    assert_eq!(Version::of_symbol("__llvm_rpc_client", 552), Some(Version::Llvm20));
    assert_eq!(Version::of_symbol("__llvm_rpc_client", 2096), Some(Version::Doorbell));
    for (name, bytes) in [("__llvm_libc_rpc_client", 552), ("__llvm_rpc_client", 8), ("main", 8)] {
        assert_eq!(Version::of_symbol(name, bytes), None);
    }
}

#[test]
fn layouts_have_llvms_places() {
    let layout = Layout::new(Version::Llvm19, 4096, 32).unwrap();
    let places = [layout.primary(), layout.secondary(), layout.headers(), layout.buffers(), layout.bytes()];
    assert_eq!(places, [0, 0x4000, 0x8000, 0x18000, 0x818000]);
    let object = layout.client_object(0x7000_0000_0000);
    assert_eq!(object.len(), 552);
    let words: Vec<u64> =
        object.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect();
    let base = 0x7000_0000_0000;
    assert_eq!(words[..5], [4096, base, base + 0x4000, base + 0x8000, base + 0x18000]);
    assert!(words[5..].iter().all(|word| *word == 0));
    let layout = Layout::new(Version::Doorbell, 16384, 64).unwrap();
    let object = layout.client_object(base);
    assert_eq!(object.len(), 2096);
    assert_eq!(object[8..16], base.to_le_bytes());
    assert_eq!(object[16..24], (base + 64).to_le_bytes());
    // As LLVM's `Process` computes them, which aligns nothing but headers and buffers, to 8 bytes.
    let layout = Layout::new(Version::Doorbell, 3, 1).unwrap();
    let places = [layout.primary(), layout.secondary(), layout.headers(), layout.buffers(), layout.bytes()];
    assert_eq!(places, [64, 76, 88, 136, 328]);
}

#[test]
fn layouts_do_not_overlap_whatever_their_sizes() {
    for version in Version::ALL {
        for ports in [1, 2, 3, 15, 16, 17, 1000, version.max_ports()] {
            for lanes in [1, 32, 64] {
                let layout = Layout::new(version, ports, lanes).unwrap();
                let ends = [
                    (layout.primary(), 4 * ports as usize),
                    (layout.secondary(), 4 * ports as usize),
                    (layout.headers(), 16 * ports as usize),
                    (layout.buffers(), 64 * (ports * lanes) as usize),
                ];
                for pair in ends.windows(2) {
                    assert!(pair[0].0 + pair[0].1 <= pair[1].0);
                }
                assert!(ends[2..].iter().all(|(start, _)| start.is_multiple_of(8)));
                assert_eq!(ends[3].0 + ends[3].1, layout.bytes());
            }
        }
    }
    assert_eq!(Layout::new(Version::Llvm20, 4097, 32), Err(LayoutError::Ports(4096)));
    assert_eq!(Layout::new(Version::Llvm20, 0, 32), Err(LayoutError::Ports(4096)));
    assert_eq!(Layout::new(Version::Doorbell, 16385, 1), Err(LayoutError::Ports(16384)));
    assert_eq!(Layout::new(Version::Llvm19, 64, 16), Err(LayoutError::Lanes));
}

/// A lane of a wave whose lanes are threads.
#[derive(Clone)]
struct Lane {
    lane: u32,
    mask: u64,
    shared: Arc<(Barrier, Vec<AtomicU64>)>,
}

impl Lane {
    fn wave(mask: u64) -> impl Iterator<Item = Self> {
        let shared = (Barrier::new(mask.count_ones() as usize), (0..64).map(|_| AtomicU64::new(0)).collect());
        let shared = Arc::new(shared);
        (0..64).filter(move |lane| mask >> lane & 1 != 0).map(move |lane| Self {
            lane,
            mask,
            shared: shared.clone(),
        })
    }

    fn exchange(&self, value: u64) -> Vec<u64> {
        self.shared.1[self.lane as usize].store(value, Ordering::Relaxed);
        self.sync();
        let values = self.shared.1.iter().map(|value| value.load(Ordering::Relaxed)).collect();
        self.sync();
        values
    }
}

impl Wave for Lane {
    fn mask(&self) -> u64 {
        self.mask
    }
    fn lane(&self) -> u32 {
        self.lane
    }
    fn is_leader(&self) -> bool {
        self.lane == self.mask.trailing_zeros()
    }
    fn of_leader(&self, value: u64) -> u64 {
        self.exchange(value)[self.mask.trailing_zeros() as usize]
    }
    fn any(&self, yes: bool) -> bool {
        let values = self.exchange(u64::from(yes));
        (0..64).any(|lane| self.mask >> lane & 1 != 0 && values[lane] != 0)
    }
    fn sync(&self) {
        self.shared.0.wait();
    }
    fn wait(&self, mut poll: impl FnMut() -> bool) {
        while !poll() {
            std::thread::yield_now();
        }
    }
}

/// Both ends of some ports.
struct Ends {
    memory: PortMemory,
    object: Vec<u64>,
}

impl Ends {
    fn new(version: Version, ports: u32, lanes: u32) -> Self {
        let memory = PortMemory::allocate(Layout::new(version, ports, lanes).unwrap());
        let object = memory.client_object();
        let object = object.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()));
        Self { object: object.collect(), memory }
    }

    fn client(&self) -> Client<'_> {
        let layout = self.memory.layout();
        // SAFETY: the object was made for the memory, which lives as long; only clients use its lock bits.
        unsafe {
            Client::from_address(self.object.as_ptr() as usize as u64, layout.version(), layout.lanes())
        }
    }

    /// Waits until the server owns a port's buffers.
    fn wait(&self, scanner: &Scanner, port: u32) {
        while !scanner.owns(self.memory.ports(), port) {
            std::thread::yield_now();
        }
    }
}

/// Receives a wave's bytes and sends them back, as the server's side of both.
fn echo(ends: &Ends, scanner: &Scanner, port: u32, mask: u64) {
    let ports = ends.memory.ports();
    let lanes: Vec<u32> = (0..64).filter(|lane| mask >> lane & 1 != 0).collect();
    let mut streams = vec![(0, Vec::new()); lanes.len()];
    let mut words = [0; BUFFER_WORDS];
    let mut pieces = 0;
    loop {
        ends.wait(scanner, port);
        for (lane, (size, words_of)) in lanes.iter().zip(&mut streams) {
            ports.read(port, *lane, &mut words);
            let first = usize::from(pieces == 0);
            if pieces == 0 {
                *size = words[0];
            }
            words_of.extend_from_slice(&words[first..]);
        }
        pieces += 1;
        let received = FIRST_PIECE_BYTES + BUFFER_BYTES * (pieces - 1);
        if streams.iter().all(|(size, _)| *size as usize <= received) {
            break;
        }
        scanner.hand_over(ports, port);
    }
    for piece in 0..pieces {
        if piece > 0 {
            ends.wait(scanner, port);
        }
        for (lane, (size, words)) in lanes.iter().zip(&streams) {
            let from = if piece == 0 { 0 } else { BUFFER_WORDS * piece - 1 };
            let words = &words[from..];
            if piece == 0 {
                ports.write(port, *lane, &[&[*size], &words[..BUFFER_WORDS - 1]].concat());
            } else {
                ports.write(port, *lane, &words[..BUFFER_WORDS]);
            }
        }
        scanner.hand_over(ports, port);
    }
}

fn stream(port: &mut Port<'_, Lane>, bytes: &[u8]) {
    port.send_bytes(bytes);
    let mut back = vec![0; bytes.len() + 3];
    assert_eq!(port.receive_bytes(&mut back), bytes.len() as u64);
    assert_eq!(back[..bytes.len()], *bytes);
    assert_eq!(back[bytes.len()..], [0; 3]);
}

fn stream_all(version: Version, lanes: u32, mask: u64, sizes: &[usize]) {
    let ends = Ends::new(version, 3, lanes);
    let scanner = Scanner::new(0..3);
    std::thread::scope(|scope| {
        for lane in Lane::wave(mask) {
            let client = ends.client();
            scope.spawn(move || {
                let number = lane.lane as usize;
                let bytes: Vec<u8> =
                    (0..sizes[number % sizes.len()]).map(|i| (i * 7 + number) as u8).collect();
                let mut port = client.open(lane, 0x8003, 5);
                stream(&mut port, &bytes);
                port.close();
            });
        }
        // Port 5 of three.
        ends.wait(&scanner, 2);
        let header = ends.memory.ports().read_header(2);
        assert_eq!((header.mask, header.opcode), (mask, 0x8003));
        echo(&ends, &scanner, 2, mask);
    });
    assert_eq!(scanner.ready(ends.memory.ports(), 0), 0);
}

#[test]
fn streams_of_all_sizes_pass() {
    // The longest ones take Miri too long.
    let longest: &[usize] = if cfg!(miri) { &[] } else { &[1000, 100_000] };
    for size in [0, 1, 55, 56, 57, 119, 120, 121].iter().chain(longest) {
        stream_all(Version::Llvm19, 1, 1, &[*size]);
    }
    stream_all(Version::Llvm20, 32, 0x8010_0421, &[0, 57, 1000, 3, 200]);
    stream_all(Version::Doorbell, 64, 1 << 63 | 6, &[130, 56]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_mixed_sizes_pass(sizes in prop::collection::vec(0usize..400, 1..5), mask in 1u64..256) {
        stream_all(Version::Llvm20, 32, mask, &sizes);
    }

    /// A scan says the same as a look at each word, whatever is in them.
    #[test]
    fn scans_see_what_is_there(
        ports in 1u32..70,
        writes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 0u8..4), 0..60),
    ) {
        let memory = PortMemory::allocate(Layout::new(Version::Llvm20, ports, 1).unwrap());
        let view = memory.ports();
        let scanner = Scanner::new(0..ports);
        let mut out = vec![false; ports as usize];
        let mut aside = vec![false; ports as usize];
        for (port, word, action) in writes {
            let port = port.index(ports as usize);
            match action {
                0 => {
                    scanner.hand_over(view, port as u32);
                    out[port] = !out[port];
                }
                1 => {
                    aside[port] = !aside[port];
                    scanner.set_aside(port as u32, aside[port]);
                }
                2 => view.secondary[port].store(word, Ordering::Relaxed),
                _ => view.secondary[port].store(word & 1, Ordering::Relaxed),
            }
            for line in 0..scanner.lines() {
                let ready = scanner.ready(view, line);
                for i in 0..LINE_PORTS {
                    let port = (scanner.first_port(line) + i) as usize;
                    let owned = port < ports as usize
                        && (view.secondary[port].load(Ordering::Relaxed) & 1 != 0) != out[port];
                    assert_eq!(ready >> i & 1 != 0, owned && !aside[port]);
                    assert!(port >= ports as usize || scanner.owns(view, port as u32) == owned);
                }
            }
        }
    }
}

#[test]
fn a_locked_port_is_passed_over() {
    let ends = Ends::new(Version::Llvm20, 2, 1);
    let lane = || Lane::wave(1).next().unwrap();
    let mut first = ends.client().open(lane(), 1, 0);
    let second = ends.client().open(lane(), 2, 0);
    assert_eq!(ends.memory.ports().read_header(1).opcode, 2);
    second.close();
    first.send(&[1]);
    first.close();
    // Port 0 is free again, but the server has not received what was sent.
    let third = ends.client().open(lane(), 3, 0);
    assert_eq!(ends.memory.ports().read_header(1).opcode, 3);
    third.close();
    let scanner = Scanner::new(0..2);
    assert_eq!(scanner.ready(ends.memory.ports(), 0), 1);
    scanner.hand_over(ends.memory.ports(), 0);
    let fourth = ends.client().open(lane(), 4, 0);
    assert_eq!(ends.memory.ports().read_header(0).opcode, 4);
    fourth.close();
}
