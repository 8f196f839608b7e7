//! Layouts, and both sides of packets in one process.

use super::client;
use super::host::{Broken, Header, Host, LINE_PACKETS};
use super::packets::Parts;
use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn memory(version: Version, packets: u32) -> PacketMemory {
    PacketMemory::allocate(Layout::new(version, packets).unwrap())
}

#[test]
fn parts_do_not_overlap_whatever_their_sizes() {
    for packets in [1, 2, 3, 16, 17, 42, 1000, MAX_PACKETS] {
        let count = packets as usize;
        let stacks = Layout::new(Version::Stacks, packets).unwrap();
        let phases = Layout::new(Version::Phases, packets).unwrap();
        let ends = |layout: &Layout, parts: &[(usize, usize)]| {
            assert!(parts.iter().all(|(start, _)| start.is_multiple_of(ALIGN) && *start >= 128));
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            assert_eq!(parts.last().map(|(start, bytes)| start + bytes), Some(layout.bytes()));
        };
        ends(&stacks, &[(stacks.headers(), 24 * count), (stacks.payloads(), 4096 * count)]);
        ends(
            &phases,
            &[
                (phases.device_phases(), 4 * count),
                (phases.host_phases(), 4 * count),
                (phases.occupied(), 4 * phases.occupied_words()),
                (phases.headers(), 16 * count),
                (phases.payloads(), 4096 * count),
            ],
        );
        assert!(stacks.index_mask() >= u64::from(packets) - 1);
        assert_eq!(stacks.index_mask().count_ones(), stacks.index_mask().trailing_ones());
    }
    for packets in [0, MAX_PACKETS + 1] {
        assert_eq!(Layout::new(Version::Stacks, packets), Err(LayoutError(packets)));
    }
}

/// What a device reads at a place of the root.
fn root_word(memory: &PacketMemory, word: u64) -> u64 {
    // SAFETY: the root's words are atomics.
    unsafe { &*((memory.device_address() + 8 * word) as *const AtomicU64) }.load(Ordering::Relaxed)
}

#[test]
fn the_root_has_rocms_words() {
    let stacks = memory(Version::Stacks, 42);
    let at = |place: usize| stacks.device_address() + place as u64;
    let layout = *stacks.layout();
    let words: [u64; 6] = core::array::from_fn(|word| root_word(&stacks, word as u64));
    assert_eq!(words, [at(layout.headers()), at(layout.payloads()), at(layout.signal()), 41, 0, 63]);
    let phases = memory(Version::Phases, 42);
    let at = |place: usize| phases.device_address() + place as u64;
    let layout = *phases.layout();
    let places = [
        layout.device_phases(),
        layout.host_phases(),
        layout.occupied(),
        layout.headers(),
        layout.payloads(),
        layout.signal(),
    ];
    for (word, place) in places.into_iter().enumerate() {
        assert_eq!(root_word(&phases, word as u64), at(place));
    }
    assert_eq!(root_word(&phases, 6) as u32, 42);
    for memory in [stacks, phases] {
        let place = if memory.layout().version() == Version::Stacks { 2 } else { 5 };
        // SAFETY: no device has the buffer.
        unsafe { memory.set_doorbell(0x1234) };
        assert_eq!(root_word(&memory, place), 0x1234);
        memory.reset_doorbell();
        assert_eq!(root_word(&memory, place), memory.device_address() + 64);
        // An ordinary signal whose value is 0.
        assert_eq!([root_word(&memory, 8), root_word(&memory, 9), root_word(&memory, 10)], [1, 0, 0]);
    }
}

#[test]
fn each_packet_is_claimed_once_until_it_is_given_back() {
    for version in Version::ALL {
        let memory = memory(version, 42);
        for _ in 0..3 {
            let claimed: Vec<_> = std::iter::from_fn(|| client::claim(memory.packets())).collect();
            let mut indices: Vec<_> = claimed.iter().map(client::Packet::index).collect();
            indices.sort_unstable();
            assert!(indices.iter().copied().eq(0..42));
            claimed.into_iter().for_each(client::Packet::release);
        }
    }
}

#[test]
fn packets_are_found_once_in_their_order_and_answered_once() {
    for version in Version::ALL {
        let memory = memory(version, 40);
        let packets = memory.packets();
        let mut host = Host::new(memory.layout(), packets);
        let mut found = Vec::new();
        let claimed: Vec<_> = (0..3).map(|_| client::claim(packets).unwrap()).collect();
        let order: Vec<_> = claimed.iter().map(client::Packet::index).collect();
        for packet in &claimed {
            packet.write(5, &[u64::from(packet.index()), 1, 2, 3, 4, 5, 6, 7]);
            packet.submit(9, 1 << 5);
        }
        for _ in 0..2 {
            (0..host.places()).for_each(|place| host.find(packets, place, &mut found).unwrap());
        }
        assert_eq!(found, order);
        assert_eq!(packets.read_header(order[1]), Header { mask: 1 << 5, service: 9 });
        assert_eq!(packets.read(order[1], 5), [u64::from(order[1]), 1, 2, 3, 4, 5, 6, 7]);
        let mut in_hand: Vec<_> = host.in_hand().collect();
        in_hand.sort_unstable_by_key(|packet| order.iter().position(|other| other == packet));
        assert_eq!(in_hand, order);
        assert!(claimed.iter().all(|packet| !packet.is_answered()));
        packets.write(order[1], 5, &[42, 43]);
        assert!(host.answer(packets, order[1]) && !host.answer(packets, order[1]));
        assert!(claimed[1].is_answered() && !claimed[0].is_answered());
        assert_eq!(claimed[1].read(5), [42, 43]);
    }
}

#[test]
fn a_host_that_begins_late_finds_what_waits() {
    for version in Version::ALL {
        let memory = memory(version, 20);
        let packets = memory.packets();
        let mut hosts = 0;
        for _ in 0..3 {
            let packet = client::claim(packets).unwrap();
            packet.submit(1, 1);
            // Another host each time: phases are as the one before left them.
            let mut host = Host::new(memory.layout(), packets);
            let mut found = Vec::new();
            (0..host.places()).for_each(|place| host.find(packets, place, &mut found).unwrap());
            assert_eq!(found, [packet.index()]);
            assert!(host.answer(packets, found[0]) && packet.is_answered());
            packet.release();
            hosts += 1;
        }
        assert_eq!(hosts, 3);
    }
}

/// Serves until told to stop; each lane's answer is made of its words.
fn serve(memory: &PacketMemory, stop: &AtomicBool, broken: &mut impl FnMut(Broken)) -> u64 {
    let packets = memory.packets();
    let mut host = Host::new(memory.layout(), packets);
    let (mut found, mut served) = (Vec::new(), 0);
    loop {
        let last = stop.load(Ordering::Acquire);
        for place in 0..host.places() {
            if let Err(error) = host.find(packets, place, &mut found) {
                broken(error);
            }
        }
        served += found.len() as u64;
        for packet in found.drain(..) {
            let Header { mask, service } = packets.read_header(packet);
            for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
                let words = packets.read(packet, lane);
                packets.write(packet, lane, &[words[0] + u64::from(service), !words[7]]);
            }
            assert!(host.answer(packets, packet));
        }
        if last {
            return served;
        }
        std::thread::yield_now();
    }
}

#[test]
fn many_waves_reuse_few_packets() {
    const WAVES: u64 = 5;
    const CALLS: u64 = 60;
    for (version, count) in
        [(Version::Stacks, 3), (Version::Phases, 3), (Version::Phases, 40), (Version::Stacks, 16)]
    {
        let memory = memory(version, count);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let host = scope.spawn(|| serve(&memory, &stop, &mut |broken| panic!("{broken}")));
            let waves: Vec<_> = (0..WAVES)
                .map(|wave| {
                    let memory = &memory;
                    scope.spawn(move || {
                        let mut lanes = [[0; SLOT_WORDS]; LANES as usize];
                        for call in 0..CALLS {
                            let mask = 0x8421_u64.rotate_left((wave + call) as u32) | 1 << 63;
                            for (lane, words) in (0..).zip(&mut lanes) {
                                *words = [wave << 32 | call << 8 | lane, 0, 0, 0, 0, 0, 0, call];
                            }
                            let before = lanes;
                            client::call(memory.packets(), 5, mask, &mut lanes, std::thread::yield_now);
                            for (lane, (after, before)) in lanes.iter().zip(before).enumerate() {
                                let expected = if mask >> lane & 1 != 0 {
                                    [before[0] + 5, !call]
                                } else {
                                    [before[0], before[1]]
                                };
                                assert_eq!(after[..2], expected);
                            }
                        }
                    })
                })
                .collect();
            waves.into_iter().for_each(|wave| wave.join().unwrap());
            stop.store(true, Ordering::Release);
            assert_eq!(host.join().unwrap(), WAVES * CALLS);
        });
    }
}

/// A cycle, a stray index and a packet that is in hand end the walk; what came before is served.
#[test]
fn chains_that_make_no_sense_end() {
    let memory = memory(Version::Stacks, 5);
    let packets = memory.packets();
    let Parts::Stacks { root, headers } = packets.parts else { unreachable!() };
    let mut host = Host::new(memory.layout(), packets);
    let mut find = |top: u64, next: [u64; 5]| {
        headers.iter().zip(next).for_each(|(header, next)| header.next.store(next, Ordering::Relaxed));
        root.ready.store(top, Ordering::Relaxed);
        let mut found = Vec::new();
        let result = host.find(packets, 0, &mut found);
        found.iter().for_each(|packet| assert!(host.answer(packets, *packet)));
        (found, result)
    };
    // 1 → 2 → 1, with a tag.
    assert_eq!(find(9, [0, 2, 17, 0, 0]), (vec![2, 1], Err(Broken::Twice(1))));
    assert_eq!(find(8, [8; 5]), (vec![0], Err(Broken::Twice(0))));
    assert_eq!(find(3, [0, 0, 0, 6, 0]), (vec![3], Err(Broken::NoPacket(6))));
    assert_eq!(find(u64::MAX, [0; 5]), (vec![], Err(Broken::NoPacket(u64::MAX))));
    assert_eq!(find(4, [0, 0, 0, 0, 0]), (vec![4], Ok(())));
}

/// All words of a buffer, as a device that may write anything has them.
fn words(memory: &PacketMemory) -> &[AtomicU64] {
    // SAFETY: the buffer has so many bytes, which are words, and is aligned; it lives as long.
    unsafe {
        std::slice::from_raw_parts(memory.device_address() as *const AtomicU64, memory.layout().bytes() / 8)
    }
}

#[test]
#[cfg_attr(miri, ignore = "the device has words where the host has halves, which Miri cannot follow")]
fn a_scribbling_device_does_the_host_no_harm() {
    for version in Version::ALL {
        let memory = memory(version, 21);
        let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for seed in 1..3 {
                let (words, done) = (words(&memory), &done);
                scope.spawn(move || {
                    let mut random: u64 = seed;
                    while !done.load(Ordering::Relaxed) {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        // Mostly the head and the headers.
                        let bound = if random >> 60 < 14 { 100 } else { words.len() as u64 };
                        let value = if random >> 50 & 1 != 0 { random >> 8 } else { random >> 40 & 31 };
                        words[(random % bound) as usize].store(value, Ordering::Relaxed);
                    }
                });
            }
            let host = scope.spawn(|| {
                let packets = memory.packets();
                let mut host = Host::new(memory.layout(), packets);
                let (mut found, mut sum) = (Vec::new(), 0u64);
                while !stop.load(Ordering::Relaxed) {
                    for place in 0..host.places() {
                        let _ = host.find(packets, place, &mut found);
                    }
                    for packet in found.drain(..) {
                        sum = sum.wrapping_add(packets.read_header(packet).mask);
                        for lane in 0..LANES {
                            sum = sum.wrapping_add(packets.read(packet, lane)[3]);
                            packets.write(packet, lane, &[sum]);
                        }
                        assert!(packet < 21 && host.answer(packets, packet));
                    }
                }
                sum
            });
            std::thread::sleep(std::time::Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
            host.join().unwrap();
            done.store(true, Ordering::Relaxed);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A look at a line says the same as a look at each of its packets, whatever the words are.
    #[test]
    fn lines_say_what_their_packets_say(
        count in 1u32..50,
        writes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<bool>()), 0..60),
    ) {
        let memory = memory(Version::Phases, count);
        let packets = memory.packets();
        let Parts::Phases { device, .. } = packets.parts else { unreachable!() };
        let mut host = Host::new(memory.layout(), packets);
        let mut phases = vec![false; count as usize];
        for (index, word, answer) in writes {
            let index = index.index(count as usize);
            device[index].store(word, Ordering::Relaxed);
            let (line, mut found) = (index as u32 / LINE_PACKETS, Vec::new());
            let in_hand: Vec<u32> = host.in_hand().collect();
            prop_assert_eq!(host.find(packets, line, &mut found), Ok(()));
            let expected: Vec<u32> = (line * LINE_PACKETS..count.min((line + 1) * LINE_PACKETS))
                .filter(|packet| !in_hand.contains(packet))
                .filter(|packet| {
                    (device[*packet as usize].load(Ordering::Relaxed) & 1 != 0) != phases[*packet as usize]
                })
                .collect();
            prop_assert_eq!(&found, &expected);
            if answer {
                for packet in found {
                    host.answer(packets, packet);
                    phases[packet as usize] ^= true;
                }
            }
        }
    }
}
