//! Loads and stores of global, flat, buffer, scratch, local and scalar memory.

use crate::bench::{Bench, assemble_all};
use hostcall_softhsa::exec::wave::scalar;
use hostcall_softhsa::memory::Use;

/// Bytes from one lane's cell of memory to the next one's.
const CELL: usize = 16;

/// What registers hold that a load has not written.
const OLD: u32 = 0xdead_beef;

/// Returns the byte of memory with that number: about half of them are negative.
fn pattern(at: usize) -> u8 {
    (at * 37 + 11) as u8
}

fn bytes<const N: usize>(at: usize) -> [u8; N] {
    std::array::from_fn(|index| pattern(at + index))
}

/// Returns the registers that a load of this kind leaves.
fn loaded(kind: &str, at: usize) -> Vec<u32> {
    let byte = u32::from(pattern(at));
    let short = u32::from(u16::from_le_bytes(bytes(at)));
    let extended = |value: u32, bits: u32| ((value << (32 - bits)) as i32 >> (32 - bits)) as u32;
    // The other half becomes 0.
    let (into_low, into_high) = (|half: u32| half & 0xffff, |half: u32| half << 16);
    vec![match kind {
        "ubyte" => byte,
        "sbyte" => extended(byte, 8),
        "ushort" => short,
        "sshort" => extended(short, 16),
        "ubyte_d16" => into_low(byte),
        "ubyte_d16_hi" => into_high(byte),
        "sbyte_d16" => into_low(extended(byte, 8)),
        "sbyte_d16_hi" => into_high(extended(byte, 8)),
        "short_d16" => into_low(short),
        "short_d16_hi" => into_high(short),
        _ => return (0..words(kind)).map(|word| u32::from_le_bytes(bytes(at + 4 * word))).collect(),
    }]
}

/// Returns how many registers a kind of access has.
fn words(kind: &str) -> usize {
    match kind {
        "dwordx2" => 2,
        "dwordx3" => 3,
        "dwordx4" => 4,
        _ => 1,
    }
}

/// Returns the operand of so many registers.
fn registers(first: usize, count: usize) -> String {
    if count == 1 { format!("v{first}") } else { format!("v[{first}:{}]", first + count - 1) }
}

/// A wave whose lanes' cells hold the pattern in all memories: v1 has their offsets, v[2:3] their addresses, s[2:3] the
/// buffer's and s[4:7] its descriptor.
fn bench() -> (Bench, u64) {
    let mut bench = Bench::new();
    let buffer = bench.memory.allocate(4096, Use::Pool).expect("there is memory");
    for at in 0..2048 {
        bench.memory.view().store_u8(buffer + at, pattern(at as usize)).expect("it is allocated");
    }
    for at in 0..bench.lds.len() {
        bench.lds[at] = pattern(at);
    }
    let bytes = bench.wave.scratch_bytes;
    for lane in 0..64 {
        bench.wave.write_lane(1, lane, (lane * CELL) as u32);
        let address = buffer + (lane * CELL) as u64;
        bench.wave.write_lane(2, lane, address as u32);
        bench.wave.write_lane(3, lane, (address >> 32) as u32);
        for at in 0..bytes {
            bench.wave.scratch[lane * bytes + at] = pattern(lane * CELL + at);
        }
    }
    bench.wave.set_pair(2, buffer);
    bench.wave.set_pair(4, buffer);
    bench.wave.set_pair(6, 4096);
    (bench, buffer)
}

const LOADS: [(&str, &str, usize); 14] = [
    ("ubyte", "u8", 3),
    ("sbyte", "i8", 3),
    ("ushort", "u16", 6),
    ("sshort", "i16", 6),
    ("ubyte_d16", "u8_d16", 1),
    ("ubyte_d16_hi", "u8_d16_hi", 1),
    ("sbyte_d16", "i8_d16", 1),
    ("sbyte_d16_hi", "i8_d16_hi", 1),
    ("short_d16", "u16_d16", 4),
    ("short_d16_hi", "u16_d16_hi", 4),
    ("dword", "b32", 8),
    ("dwordx2", "b64", 8),
    ("dwordx3", "b96", 0),
    ("dwordx4", "b128", 0),
];

#[test]
fn loads_of_all_widths() {
    let mut cases = Vec::new();
    for (kind, local, offset) in LOADS {
        let result = registers(10, words(kind));
        for text in [
            format!("global_load_{kind} {result}, v1, s[2:3] offset:{offset}"),
            format!("flat_load_{kind} {result}, v[2:3] offset:{offset}"),
            format!("buffer_load_{kind} {result}, v1, s[4:7], 0 offen offset:{offset}"),
            format!("scratch_load_{kind} {result}, off, off offset:{offset}"),
            format!("ds_read_{local} {result}, v1 offset:{offset}"),
        ] {
            cases.push((kind, offset, text));
        }
    }
    let words = assemble_all(cases.iter().map(|(.., text)| text.as_str()));
    for ((kind, offset, text), words) in cases.iter().zip(words) {
        let (mut bench, _) = bench();
        (10..15).for_each(|register| bench.set_v(register, OLD));
        assert_eq!(bench.run_words(words), None, "{text}");
        for lane in 0..64 {
            let mut expected = loaded(kind, lane * CELL + offset);
            expected.resize(5, OLD);
            let found: Vec<u32> = (10..15).map(|register| bench.v(register, lane)).collect();
            assert_eq!(found, expected, "{text}: lane {lane}");
        }
    }
}

#[test]
fn stores_of_all_widths() {
    // The kind, its name for local memory, its offset, its bytes, and the first of them in the registers.
    let stores = [
        ("byte", "b8", 5, 1, 0),
        ("byte_d16_hi", "b8_d16_hi", 5, 1, 2),
        ("short", "b16", 6, 2, 0),
        ("short_d16_hi", "b16_d16_hi", 6, 2, 2),
        ("dword", "b32", 4, 4, 0),
        ("dwordx2", "b64", 8, 8, 0),
        ("dwordx3", "b96", 0, 12, 0),
        ("dwordx4", "b128", 0, 16, 0),
    ];
    let mut cases = Vec::new();
    for (kind, local, offset, bytes, first) in stores {
        let data = registers(10, words(kind));
        for (memory, text) in [
            ("global", format!("global_store_{kind} v1, {data}, s[2:3] offset:{offset}")),
            ("flat", format!("flat_store_{kind} v[2:3], {data} offset:{offset}")),
            ("buffer", format!("buffer_store_{kind} {data}, v1, s[4:7], 0 offen offset:{offset}")),
            ("scratch", format!("scratch_store_{kind} off, {data}, off offset:{offset}")),
            ("local", format!("ds_write_{local} v1, {data} offset:{offset}")),
        ] {
            cases.push((memory, offset, bytes, first, text));
        }
    }
    let words = assemble_all(cases.iter().map(|(.., text)| text.as_str()));
    for (&(memory, offset, bytes, first, ref text), words) in cases.iter().zip(words) {
        let (mut bench, buffer) = bench();
        let data = |lane: usize, at: usize| (lane * 5 + at * 29) as u8;
        for lane in 0..64 {
            for register in 0..4 {
                let word = u32::from_le_bytes(std::array::from_fn(|at| data(lane, register * 4 + at)));
                bench.wave.write_lane(10 + register as u16, lane, word);
            }
        }
        assert_eq!(bench.run_words(words), None, "{text}");
        for lane in 0..64 {
            for at in 0..CELL {
                let found = match memory {
                    "local" => bench.lds[lane * CELL + at],
                    "scratch" => bench.wave.scratch[lane * bench.wave.scratch_bytes + at],
                    _ => {
                        let address = buffer + (lane * CELL + at) as u64;
                        bench.memory.view().load_u8(address).expect("it is allocated")
                    }
                };
                let is_written = (offset..offset + bytes).contains(&at);
                let expected =
                    if is_written { data(lane, first + at - offset) } else { pattern(lane * CELL + at) };
                assert_eq!(found, expected, "{text}: lane {lane}, byte {at}");
            }
        }
    }
}

#[test]
fn buffers_have_an_end() {
    let (mut bench, _) = bench();
    bench.wave.set_pair(6, 3 * CELL as u64);
    bench.set_v(10, OLD);
    assert_eq!(bench.run("buffer_load_dword v10, v1, s[4:7], 0 offen"), None);
    for lane in 0..64 {
        let expected = if lane < 3 { loaded("dword", lane * CELL)[0] } else { 0 };
        assert_eq!(bench.v(10, lane), expected, "lane {lane}");
    }
}

/// Runs an access of four registers in lane 0 whose offset is 16, and returns how many of them were inside. The buffer
/// has so many records of so many bytes, and the scalar offset is in s8.
fn registers_inside(text: &str, records: u64, stride: u64, scalar_offset: u32) -> usize {
    let (mut bench, buffer) = bench();
    bench.wave.set_pair(scalar::EXEC, 1);
    bench.wave.set_pair(4, buffer | stride << 48);
    bench.wave.set_pair(6, records);
    bench.wave.s[8] = scalar_offset;
    (10..14).for_each(|register| bench.set_v(register, OLD));
    // The index is 2, the offset 16.
    for (register, value) in [(1, 16), (20, 2), (21, 16)] {
        bench.set_v(register, value);
    }
    assert_eq!(bench.run(text), None, "{text}");
    let index = if text.contains("idxen") { 2 } else { 0 };
    let first = index * stride as usize + 16 + scalar_offset as usize;
    let is_inside = |word: usize| {
        let at = first + 4 * word;
        if text.contains("store") {
            let found = bench.memory.view().load_u32(buffer + at as u64).expect("it is allocated");
            let kept = u32::from_le_bytes(bytes(at));
            assert!(found == OLD || found == kept, "{text}: {word}: {found:#x}");
            return found == OLD;
        }
        let found = bench.v(10 + word as u16, 0);
        let expected = u32::from_le_bytes(bytes(at));
        assert!(found == expected || found == 0, "{text}: {word}: {found:#x}");
        found == expected
    };
    let inside: Vec<bool> = (0..4).map(is_inside).collect();
    assert!(inside.is_sorted_by(|first, next| first >= next), "{text}: {inside:?}");
    inside.into_iter().filter(|&inside| inside).count()
}

/// The registers of one access are inside of a buffer or outside, each for itself. What counts is the end of each, with
/// the scalar offset; with an index and a stride the index alone counts.
#[test]
fn buffers_end_between_registers() {
    for access in ["load", "store"] {
        let raw = format!("buffer_{access}_dwordx4 v[10:13], v1, s[4:7], s8 offen");
        let indexed = format!("buffer_{access}_dwordx4 v[10:13], v[20:21], s[4:7], s8 idxen offen");
        for (text, records, stride, scalar_offset, expected) in [
            (&raw, 32, 0, 0, 4),
            (&raw, 28, 0, 0, 3),
            (&raw, 27, 0, 0, 2),
            (&raw, 20, 0, 0, 1),
            (&raw, 19, 0, 0, 0),
            (&raw, 0, 0, 0, 0),
            // The scalar offset is counted, and does not wrap around.
            (&raw, 32, 0, 8, 2),
            (&raw, 16, 0, 64, 0),
            // Without an index the records are bytes, also where there is a stride.
            (&raw, 28, 32, 0, 3),
            (&raw, 2, 32, 0, 0),
            // With an index they are elements; offsets may reach beyond one.
            (&indexed, 3, 32, 0, 4),
            (&indexed, 3, 16, 64, 4),
            (&indexed, 2, 32, 0, 0),
            // Without a stride an index is none.
            (&indexed, 24, 0, 0, 2),
            (&indexed, 3, 0, 0, 0),
        ] {
            let inside = registers_inside(text, records, stride, scalar_offset);
            assert_eq!(inside, expected, "{text}: {records} of {stride}, {scalar_offset}");
        }
    }
    // The offsets of vector and instruction wrap around together, and an atomic is inside as a whole or not at all.
    let (mut bench, buffer) = bench();
    bench.wave.set_pair(scalar::EXEC, 1);
    bench.wave.set_pair(6, 12);
    bench.set_v(1, u32::MAX - 3);
    assert_eq!(bench.run("buffer_load_dword v10, v1, s[4:7], 0 offen offset:8"), None);
    assert_eq!(bench.v(10, 0), u32::from_le_bytes(bytes(4)));
    assert_eq!(bench.run("buffer_atomic_add_x2 v[10:11], off, s[4:7], 0 offset:8"), None);
    let kept = bench.memory.view().load_u64(buffer + 8);
    assert_eq!(kept, Ok(u64::from_le_bytes(bytes(8))));
    // Lanes' numbers as indices are what the interpreter lacks.
    bench.wave.s[7] = 1 << 23;
    let fault = bench.run("buffer_load_dword v10, off, s[4:7], 0").map(|fault| fault.to_string());
    let text = "the interpreter cannot execute a buffer that is swizzled or adds lanes' numbers";
    assert_eq!(fault.as_deref(), Some(text));
}

#[test]
fn two_places_of_local_memory() {
    // Offsets count the width, and those of the `st64` forms 64 times the width.
    for (text, width, places) in [
        ("ds_read2_b64 v[10:13], v1 offset0:1 offset1:0", 2, [8, 0]),
        ("ds_read2st64_b32 v[10:11], v4 offset0:1 offset1:3", 1, [256, 768]),
        ("ds_read2st64_b64 v[10:13], v4 offset0:1 offset1:0", 2, [512, 0]),
        ("ds_wrxchg2_rtn_b32 v[10:11], v4, v6, v8 offset0:3 offset1:5", 1, [12, 20]),
        ("ds_wrxchg2st64_rtn_b32 v[10:11], v4, v6, v8 offset0:1 offset1:2", 1, [256, 512]),
        ("ds_wrxchg2_rtn_b64 v[10:13], v4, v[6:7], v[8:9] offset0:3 offset1:5", 2, [24, 40]),
        ("ds_wrxchg2st64_rtn_b64 v[10:13], v4, v[6:7], v[8:9] offset0:1 offset1:0", 2, [512, 0]),
    ] {
        let (mut bench, _) = bench();
        bench.wave.set_pair(scalar::EXEC, 1);
        (6..10).for_each(|register| bench.set_v(register, 0x0101_0101 * u32::from(register)));
        assert_eq!(bench.run(text), None, "{text}");
        for (which, place) in places.into_iter().enumerate() {
            for word in 0..width {
                let found = bench.v((10 + which * width + word) as u16, 0);
                assert_eq!(found, u32::from_le_bytes(bytes(place + 4 * word)), "{text}: {which}, {word}");
                let new = if text.contains("wrxchg") {
                    [(6 + 2 * which + word) as u8; 4]
                } else {
                    bytes(place + 4 * word)
                };
                assert_eq!(bench.lds[place + 4 * word..][..4], new, "{text}: {which}, {word}");
            }
        }
    }
}

#[test]
fn local_memory_by_lane() {
    let (mut bench, _) = bench();
    bench.wave.s[usize::from(scalar::M0)] = 8;
    for lane in 0..64 {
        bench.wave.write_lane(5, lane, ((lane + 3) % 64 * 4) as u32);
    }
    let text = "ds_read_addtid_b32 v10 offset:16
        ds_write_addtid_b32 v0 offset:512
        ds_permute_b32 v11, v5, v0";
    assert_eq!(bench.run(text), None);
    for lane in 0..64 {
        let word = |at: usize| u32::from_le_bytes(bytes(at));
        assert_eq!(bench.v(10, lane), word(8 + 16 + lane * 4), "lane {lane}");
        assert_eq!(bench.lds[8 + 512 + lane * 4], lane as u8);
        assert_eq!(bench.v(11, lane), (lane as u32 + 61) % 64);
    }
    // The count's place is that of M0; all lanes get the old one.
    let (mut bench, _) = self::bench();
    bench.wave.s[usize::from(scalar::M0)] = 8;
    bench.wave.set_pair(scalar::EXEC, 0b1011);
    bench.lds[16..20].copy_from_slice(&100u32.to_le_bytes());
    assert_eq!(bench.run("ds_append v10 offset:8\nds_append v11 offset:8\nds_consume v12 offset:8"), None);
    assert_eq!([10, 11, 12].map(|register| bench.v(register, 3)), [100, 103, 106]);
    assert_eq!(bench.v(10, 2), 0, "a lane that is not active");
    assert_eq!(bench.lds[16], 103);
}

#[test]
fn scalar_loads_and_stores() {
    let word = |at: usize| u32::from_le_bytes(bytes(at));
    for count in [1, 2, 4, 8, 16] {
        let (result, size) = match count {
            1 => ("s16".to_owned(), String::new()),
            _ => (format!("s[16:{}]", 15 + count), format!("x{count}")),
        };
        for base in ["s_load_dword", "s_buffer_load_dword"] {
            let address = if base == "s_load_dword" { "s[2:3]" } else { "s[4:7]" };
            let (mut bench, _) = bench();
            let text = format!("{base}{size} {result}, {address}, 0x24");
            assert_eq!(bench.run(&text), None, "{text}");
            for index in 0..count {
                assert_eq!(bench.wave.s[16 + index], word(0x24 + 4 * index), "{text}: {index}");
            }
            assert_eq!(bench.wave.s[16 + count], 0, "{text}");
        }
        if count > 4 {
            continue;
        }
        for base in ["s_store_dword", "s_buffer_store_dword"] {
            let address = if base == "s_store_dword" { "s[2:3]" } else { "s[4:7]" };
            let (mut bench, buffer) = bench();
            (0..5).for_each(|index| bench.wave.s[16 + index] = 0x1000 + index as u32);
            let text = format!("{base}{size} {result}, {address}, 0x20");
            assert_eq!(bench.run(&text), None, "{text}");
            for index in 0..5 {
                let expected = if index < count { 0x1000 + index as u32 } else { word(0x20 + 4 * index) };
                let found = bench.memory.view().load_u32(buffer + 0x20 + 4 * index as u64);
                assert_eq!(found, Ok(expected), "{text}: {index}");
            }
        }
    }
}

/// Buffers are loaded to local memory from M0 and the offset on, four bytes for each lane; what lies behind the buffer is 0.
#[test]
fn buffers_are_loaded_to_local_memory() {
    for (kind, bytes) in [("ubyte", 1), ("sbyte", 1), ("ushort", 2), ("sshort", 2), ("dword", 4)] {
        let (mut bench, _) = bench();
        // As many bytes as half of the lanes have.
        bench.wave.set_pair(6, (32 * CELL) as u64);
        let text = format!("s_mov_b32 m0, 100\nbuffer_load_{kind} v1, s[4:7], 0 offen offset:12 lds");
        let before = bench.lds.clone();
        assert_eq!(bench.run(&text), None, "{kind}");
        for lane in 0..64 {
            let at = lane * CELL + 12;
            let expected = if at + bytes <= 32 * CELL { loaded(kind, at)[0] } else { 0 };
            let place = 100 + 12 + lane * 4;
            assert_eq!(bench.lds[place..place + 4], expected.to_le_bytes(), "{kind}, lane {lane}");
        }
        assert_eq!(bench.lds[..112], before[..112]);
        assert_eq!(bench.lds[112 + 256..], before[112 + 256..]);
    }
}
