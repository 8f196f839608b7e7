//! Atomics of global, flat, buffer, local and scalar memory.

use crate::bench::{Bench, assemble_all};
use crate::{EDGES, low, signed};
use hostcall_softhsa::exec::wave::scalar;
use hostcall_softhsa::memory::Use;

/// Bytes from one lane's cell of memory to the next one's.
const CELL: usize = 16;

/// Operations on whole numbers that all memories have.
const OPERATIONS: [&str; 13] =
    ["swap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec", "cmpswap"];

/// Returns what an operation leaves in memory. `second` is what `cmpswap` compares with, and what `mskor` sets and `wrap` adds.
fn model(operation: &str, bits: u32, old: u64, data: u64, second: u64) -> u64 {
    let [old, data, second] = [old, data, second].map(|value| low(value, bits));
    let is_less = signed(old, bits) < signed(data, bits);
    let wide = 1u128 << bits;
    let wrapped = |value: u128| low((value % wide) as u64, bits);
    match operation {
        "swap" => data,
        "add" => wrapped(u128::from(old) + u128::from(data)),
        "sub" => wrapped(u128::from(old) + wide - u128::from(data)),
        "rsub" => wrapped(u128::from(data) + wide - u128::from(old)),
        "smin" => {
            if is_less {
                old
            } else {
                data
            }
        }
        "smax" => {
            if is_less {
                data
            } else {
                old
            }
        }
        "umin" => *[old, data].iter().min().expect("there are two"),
        "umax" => *[old, data].iter().max().expect("there are two"),
        "and" => old & data,
        "or" => old | data,
        "xor" => old ^ data,
        "inc" => {
            if old >= data {
                0
            } else {
                old + 1
            }
        }
        "dec" => {
            if old == 0 || old > data {
                data
            } else {
                old - 1
            }
        }
        "cmpswap" => {
            if old == second {
                data
            } else {
                old
            }
        }
        "mskor" => old & !data | second,
        "wrap" => {
            if old >= data {
                old - data
            } else {
                wrapped(u128::from(old) + u128::from(second))
            }
        }
        _ => panic!("there is no model of {operation}"),
    }
}

/// What the lanes' cells hold before, and the data.
#[derive(Clone, Copy)]
struct Values {
    old: fn(usize) -> u64,
    data: fn(usize) -> u64,
    second: fn(usize) -> u64,
}

const WHOLE: Values = Values {
    old: |lane| EDGES[lane % 8],
    data: |lane| EDGES[lane / 8],
    second: |lane| EDGES[if lane % 3 == 0 { lane } else { lane + 1 } % 8],
};

/// Where an instruction's cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Global,
    Flat,
    Buffer,
    Local,
}

/// An instruction on a cell for each lane, and what it leaves in the cell and in its result, by the lane.
struct Case {
    text: String,
    memory: Memory,
    values: Values,
    bits: u32,
    cell: Box<dyn Fn(usize) -> u64>,
    /// The first result register, if the old number is returned.
    result: Option<u16>,
}

/// Runs the instruction with cell addresses in v1, v[2:3] and s[2:3], the buffer's descriptor in s[4:7], the data in
/// v[4:5] and the second data in v[6:7].
fn check(case: &Case, words: Vec<u32>) {
    const UNTOUCHED: u32 = 0xdead_beef;
    let mut bench = Bench::new();
    let buffer = bench.memory.allocate(4096, Use::Pool).expect("there is memory");
    bench.wave.set_pair(2, buffer);
    bench.wave.set_pair(4, buffer);
    bench.wave.set_pair(6, 4096);
    for register in 10..14 {
        bench.set_v(register, UNTOUCHED);
    }
    for lane in 0..64 {
        let Values { old, data, second } = case.values;
        bench.wave.write_lane(1, lane, (lane * CELL) as u32);
        let address = buffer + (lane * CELL) as u64;
        for (register, value) in [(2, address), (4, data(lane)), (6, second(lane))] {
            bench.wave.write_lane(register, lane, value as u32);
            bench.wave.write_lane(register + 1, lane, (value >> 32) as u32);
        }
        bench.lds[lane * CELL..][..8].copy_from_slice(&old(lane).to_le_bytes());
        bench.memory.view().store_u64(address, old(lane)).expect("it is allocated");
    }
    assert_eq!(bench.run_words(words), None, "{}", case.text);
    for lane in 0..64 {
        let old = (case.values.old)(lane);
        let found = match case.memory {
            Memory::Local => {
                u64::from_le_bytes(bench.lds[lane * CELL..][..8].try_into().expect("there are eight"))
            }
            _ => bench.memory.view().load_u64(buffer + (lane * CELL) as u64).expect("it is allocated"),
        };
        let expected = low((case.cell)(lane), case.bits) | old & !low(!0, case.bits);
        assert_eq!(found, expected, "{}: lane {lane}, from {old:#x}", case.text);
        let [first, next] =
            [0, 1].map(|next| case.result.map_or(UNTOUCHED, |first| bench.v(first + next, lane)));
        match case.result {
            Some(_) if case.bits == 64 => {
                assert_eq!(u64::from(first) | u64::from(next) << 32, old, "{}: lane {lane}", case.text);
            }
            Some(_) => assert_eq!(first, old as u32, "{}: lane {lane}", case.text),
            None => assert_eq!(bench.v(10, lane), UNTOUCHED, "{}: lane {lane}", case.text),
        }
    }
}

fn check_all(cases: &[Case]) {
    let words = assemble_all(cases.iter().map(|case| case.text.as_str()));
    assert_eq!(words.len(), cases.len());
    for (case, words) in cases.iter().zip(words) {
        check(case, words);
    }
}

/// Returns the instruction's text in each memory, with and without a result, and the result's first register.
fn texts(operation: &str, data: &str, result: &str) -> Vec<(Memory, String, Option<u16>)> {
    vec![
        (Memory::Global, format!("global_atomic_{operation} {result}, v1, {data}, s[2:3] sc0"), Some(10)),
        (Memory::Global, format!("global_atomic_{operation} v1, {data}, s[2:3]"), None),
        (Memory::Flat, format!("flat_atomic_{operation} {result}, v[2:3], {data} sc0"), Some(10)),
        (Memory::Flat, format!("flat_atomic_{operation} v[2:3], {data}"), None),
        (Memory::Buffer, format!("buffer_atomic_{operation} {data}, v1, s[4:7], 0 offen sc0"), Some(4)),
        (Memory::Buffer, format!("buffer_atomic_{operation} {data}, v1, s[4:7], 0 offen"), None),
    ]
}

#[test]
fn whole_numbers_in_device_memory() {
    let mut cases = Vec::new();
    for operation in OPERATIONS {
        for bits in [32, 64] {
            let is_swap = operation == "cmpswap";
            let data = match (is_swap, bits) {
                (true, 64) => "v[4:7]",
                (false, 32) => "v4",
                _ => "v[4:5]",
            };
            let (name, result) = if bits == 64 {
                (format!("{operation}_x2"), "v[10:11]")
            } else {
                (operation.to_owned(), "v10")
            };
            for (memory, text, result) in texts(&name, data, result) {
                let cell = Box::new(move |lane| {
                    let Values { old, data, second } = WHOLE;
                    // What a swap of 32 bits compares with is the register behind the new number's.
                    let second = if bits == 32 { data(lane) >> 32 } else { second(lane) };
                    model(operation, bits, old(lane), data(lane), second)
                });
                cases.push(Case { text, memory, values: WHOLE, bits, cell, result });
            }
        }
    }
    check_all(&cases);
}

#[test]
fn whole_numbers_in_local_memory() {
    // The instruction's name, its type, the model's name, whether it has a second data and a form without a result.
    let operations = [
        ("add", "u", "add", false, true),
        ("sub", "u", "sub", false, true),
        ("rsub", "u", "rsub", false, true),
        ("inc", "u", "inc", false, true),
        ("dec", "u", "dec", false, true),
        ("min", "i", "smin", false, true),
        ("max", "i", "smax", false, true),
        ("min", "u", "umin", false, true),
        ("max", "u", "umax", false, true),
        ("and", "b", "and", false, true),
        ("or", "b", "or", false, true),
        ("xor", "b", "xor", false, true),
        ("mskor", "b", "mskor", true, true),
        ("cmpst", "b", "cmpswap", true, true),
        ("wrxchg", "b", "swap", false, false),
        ("wrap", "b", "wrap", true, false),
    ];
    let mut cases = Vec::new();
    for (name, kind, operation, has_second, has_plain) in operations {
        for bits in [32, 64] {
            if operation == "wrap" && bits == 64 {
                continue;
            }
            let (data, second, result) =
                if bits == 64 { ("v[4:5]", "v[6:7]", "v[10:11]") } else { ("v4", "v6", "v10") };
            let data = if has_second { format!("{data}, {second}") } else { data.to_owned() };
            let cell = move |lane| {
                let Values { old, data, second } = WHOLE;
                // The comparison's number comes first here.
                let (data, second) = match operation {
                    "cmpswap" => (second(lane), data(lane)),
                    _ => (data(lane), second(lane)),
                };
                model(operation, bits, old(lane), data, second)
            };
            let mut add = |text, result| {
                let cell = Box::new(cell);
                cases.push(Case { text, memory: Memory::Local, values: WHOLE, bits, cell, result });
            };
            add(format!("ds_{name}_rtn_{kind}{bits} {result}, v1, {data}"), Some(10));
            if has_plain {
                add(format!("ds_{name}_{kind}{bits} v1, {data}"), None);
            }
        }
    }
    check_all(&cases);
}

/// Returns a small whole number in a format of 16, 32 or 64 bits.
fn float(format: &str, value: i64) -> u64 {
    const HALVES: [u64; 9] = [0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800];
    match format {
        "f16" => HALVES[value.unsigned_abs() as usize] | u64::from(value < 0) << 15,
        "bf16" => u64::from((value as f32).to_bits() >> 16),
        "f32" => u64::from((value as f32).to_bits()),
        _ => (value as f64).to_bits(),
    }
}

/// A lane's two numbers.
fn pair_of(lane: usize) -> (i64, i64) {
    (lane as i64 % 8 - 4, lane as i64 / 8 - 4)
}

/// Returns values of a format. Pairs of 16 bits have the other number in the high half.
macro_rules! values {
    ($format:literal) => {
        Values {
            old: |lane| packed($format, pair_of(lane).0, pair_of(lane).1),
            data: |lane| packed($format, pair_of(lane).1, pair_of(lane).0),
            second: |lane| packed($format, pair_of(lane).0 + 1, 0),
        }
    };
}

fn packed(format: &str, number: i64, other: i64) -> u64 {
    match format {
        "f16" | "bf16" => float(format, number) | float(format, other) << 16,
        _ => float(format, number),
    }
}

#[test]
fn floating_point() {
    let formats = [
        ("f16", values!("f16")),
        ("bf16", values!("bf16")),
        ("f32", values!("f32")),
        ("f64", values!("f64")),
    ];
    let mut cases = Vec::new();
    for (format, values) in formats {
        let bits = if format == "f64" { 64 } else { 32 };
        let (data, second, result) =
            if bits == 64 { ("v[4:5]", "v[6:7]", "v[10:11]") } else { ("v4", "v6", "v10") };
        let mut add = |operation: &'static str, memory, text: String, result| {
            let cell = move |lane| {
                let (a, b) = pair_of(lane);
                match operation {
                    "add" => packed(format, a + b, a + b),
                    "min" => float(format, a.min(b)),
                    "max" => float(format, a.max(b)),
                    // A swap that compares, whose new number is one more than the old one.
                    _ => float(format, if a == b { a + 1 } else { a }),
                }
            };
            cases.push(Case { text, memory, values, bits, cell: Box::new(cell), result });
        };
        for operation in ["add", "min", "max"] {
            let is_pair = format.ends_with("16");
            let prefix = if is_pair { "pk_" } else { "" };
            if is_pair && operation != "add" {
                continue;
            }
            let name = format!("{prefix}{operation}_{format}");
            for (memory, text, result) in texts(&name, data, result) {
                let lacks = match memory {
                    Memory::Buffer => format == "bf16",
                    _ => false,
                };
                if !(lacks || format == "f32" && operation != "add") {
                    add(operation, memory, text, result);
                }
            }
            let text = format!("ds_{prefix}{operation}_rtn_{format} {result}, v1, {data}");
            add(operation, Memory::Local, text, Some(10));
            add(operation, Memory::Local, format!("ds_{name} v1, {data}"), None);
        }
        if !format.ends_with("16") {
            let text = format!("ds_cmpst_rtn_{format} {result}, v1, {data}, {second}");
            add("cmpst", Memory::Local, text, Some(10));
            add("cmpst", Memory::Local, format!("ds_cmpst_{format} v1, {data}, {second}"), None);
        }
    }
    check_all(&cases);
}

/// Operations of local memory with numbers that are denormal or become so: MODE's two bits keep those of sources and of
/// results. The numbers are the old one, the data, the second data, and what is left with each of MODE's four values.
#[test]
fn local_memory_heeds_the_denormals_of_mode() {
    // Of 32 bits: a denormal number, the least normal one, and 3/2 of it, which is a denormal one more.
    let (denormal, normal, more) = (0x0040_0000, 0x0080_0000, 0x00c0_0000);
    let negative = 1 << 31;
    // The same of 64 bits and of pairs of 16.
    let (denormal64, normal64) = (1u64 << 51, 1u64 << 52);
    let negative64 = 1 << 63;
    let cases: &[(&str, [u64; 3], [u64; 4])] = &[
        ("add_f32", [denormal, normal, 0], [normal, more, normal, more]),
        ("add_f32", [more, normal | negative, 0], [0, 0, denormal, denormal]),
        (
            "add_f32",
            [denormal | negative, denormal | negative, 0],
            [negative, normal | negative, negative, normal | negative],
        ),
        ("pk_add_f16", [0x0200_0600, 0x0400_8400, 0], [0x0400_0000, 0x0600_0000, 0x0400_0200, 0x0600_0200]),
        ("pk_add_bf16", [0x0040_00c0, 0x0080_8080, 0], [0x0080_0000, 0x00c0_0000, 0x0080_0040, 0x00c0_0040]),
        // What is chosen is not changed: the comparison alone takes denormals for 0.
        ("min_f32", [denormal, 1 | negative, 0], [1 | negative; 4]),
        ("min_f32", [denormal, 1, 0], [denormal, 1, denormal, 1]),
        ("max_f32", [denormal, 0x0060_0000, 0], [denormal, 0x0060_0000, denormal, 0x0060_0000]),
        ("max_f32", [denormal, normal, 0], [normal; 4]),
        ("max_f32", [denormal, 0x7fa0_0000, 0], [0x7fe0_0000; 4]),
        ("min_f64", [denormal64, 1, 0], [denormal64, 1, denormal64, 1]),
        (
            "max_f64",
            [denormal64, denormal64 + 1, 0],
            [denormal64, denormal64 + 1, denormal64, denormal64 + 1],
        ),
        // A swap stores a number of which denormals became 0, too. The data is what is compared with.
        ("cmpst_f32", [denormal, 0, denormal | negative], [negative, denormal, negative, denormal]),
        ("cmpst_f32", [denormal, denormal, denormal], [0, denormal, 0, denormal]),
        ("cmpst_f32", [denormal, normal, normal], [denormal; 4]),
        ("cmpst_f64", [denormal64, 0, 1 | negative64], [negative64, denormal64, negative64, denormal64]),
        // Sums of 64 bits are exact.
        ("add_f64", [denormal64, denormal64, 0], [normal64; 4]),
        ("add_f64", [normal64 | denormal64, normal64 | negative64, 0], [denormal64; 4]),
    ];
    for &(operation, [old, data, second], expected) in cases {
        let (data_registers, second_registers) =
            if operation.ends_with("64") { ("v[4:5]", "v[6:7]") } else { ("v4", "v6") };
        let second_operand =
            if operation.starts_with("cmpst") { format!(", {second_registers}") } else { String::new() };
        let bit = if operation.ends_with("f32") { 4 } else { 6 };
        for (field, expected) in expected.into_iter().enumerate() {
            let mut bench = Bench::new();
            bench.wave.set_pair(scalar::EXEC, 1);
            for (register, value) in [(4, data), (6, second)] {
                bench.set_v(register, value as u32);
                bench.set_v(register + 1, (value >> 32) as u32);
            }
            bench.lds[16..24].copy_from_slice(&old.to_le_bytes());
            let text = format!(
                "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 15
                s_setreg_imm32_b32 hwreg(HW_REG_MODE, {bit}, 2), {field}
                ds_{operation} v1, {data_registers}{second_operand} offset:16"
            );
            assert_eq!(bench.run(&text), None, "{text}");
            let found = u64::from_le_bytes(bench.lds[16..24].try_into().expect("there are eight"));
            assert_eq!(found, expected, "{text}: {old:#x}, {data:#x}, {second:#x} became {found:#x}");
        }
    }
}

#[test]
fn scalar_memory() {
    let mut texts = Vec::new();
    for operation in OPERATIONS {
        for bits in [32u32, 64] {
            let data = match (operation, bits) {
                ("cmpswap", 64) => "s[8:11]",
                (_, 64) | ("cmpswap", 32) => "s[8:9]",
                _ => "s8",
            };
            let name = if bits == 64 { format!("{operation}_x2") } else { operation.to_owned() };
            texts.push((operation, bits, format!("s_atomic_{name} {data}, s[2:3], 0x8 glc")));
            texts.push((operation, bits, format!("s_buffer_atomic_{name} {data}, s[4:7], 0x8 glc")));
        }
    }
    let words = assemble_all(texts.iter().map(|(.., text)| text.as_str()));
    for ((operation, bits, text), words) in texts.iter().zip(words) {
        let mut bench = Bench::new();
        let buffer = bench.memory.allocate(4096, Use::Pool).expect("there is memory");
        for lane in 0..64 {
            let Values { old, data, second } = WHOLE;
            let (old, data, second) = (old(lane), data(lane), second(lane));
            for (register, value) in [(2, buffer), (4, buffer), (6, 4096), (8, data), (10, second)] {
                bench.wave.set_pair(register, value);
            }
            bench.memory.view().store_u64(buffer + 8, old).expect("it is allocated");
            assert_eq!(bench.run_words(words.clone()), None, "{text}");
            let second = if *bits == 32 { data >> 32 } else { second };
            let expected = model(operation, *bits, old, data, second) | old & !low(!0, *bits);
            let found = bench.memory.view().load_u64(buffer + 8).expect("it is allocated");
            assert_eq!(found, expected, "{text} of {old:#x} with {data:#x}, {second:#x}");
            assert_eq!(low(bench.wave.pair(8), *bits), low(old, *bits), "{text} of {old:#x}");
        }
    }
}

/// Each half is exchanged if its data's sign bit is set, which is not stored.
#[test]
fn halves_are_exchanged_where_the_sign_says_so() {
    let mut bench = Bench::new();
    bench.wave.set_pair(scalar::EXEC, 1);
    bench.lds[16..24].copy_from_slice(&0x1111_1111_2222_2222u64.to_le_bytes());
    for (register, value) in [(1, 8), (2, 0x8000_0005), (3, 6)] {
        bench.set_v(register, value);
    }
    // The address is rounded down.
    assert_eq!(bench.run("ds_condxchg32_rtn_b64 v[4:5], v1, v[2:3] offset:13"), None);
    assert_eq!((bench.v(4, 0), bench.v(5, 0)), (0x2222_2222, 0x1111_1111));
    assert_eq!(bench.lds[16..24], 0x1111_1111_0000_0005u64.to_le_bytes());
}
