//! Code objects that lie of themselves are refused, and none makes the loader panic.

mod clang;

use std::sync::Arc;

use hostcall_softhsa::device::Running;
use hostcall_softhsa::load::{CodeObject, Loaded};
use hostcall_softhsa::memory::Memory;

/// Returns a code object. Each test compiles it for itself, since tests run side by side.
fn object(test: &str) -> Vec<u8> {
    let folder = clang::folder(&format!("lies-{test}"));
    std::fs::read(clang::compile_for_device("lanes", &folder, "-O1")).expect("it was written")
}

fn reason(file: &[u8]) -> String {
    CodeObject::read(file).expect_err("it lies").to_string()
}

#[test]
fn lies_have_reasons() {
    let file = object("reasons");
    assert!(CodeObject::read(&file).is_ok());
    let with = |at: usize, byte: u8| {
        let mut changed = file.clone();
        changed[at] = byte;
        reason(&changed)
    };
    assert!(with(0, 0).contains("no 64-bit little-endian ELF file"));
    assert!(with(18, 62).contains("not for AMD GPUs"));
    assert!(with(8, 9).contains("version 11"));
    assert!(with(48, 0x41).contains("another processor (number 0x41)"));
    // Clang says that either is as well, for which the second byte of the flags is 5.
    assert_eq!(file[49], 5);
    assert!(with(49, 7).contains("compile it without xnack+"));
    assert!(with(49, 9).contains("compile it without sramecc-"));
    let mut of_this = file.clone();
    of_this[49] = 14;
    assert!(CodeObject::read(&of_this).is_ok(), "xnack- and sramecc+ are what it has");
    assert!(with(39, 0x7f).contains("the table of program headers"));
    assert!(with(16, 1).contains("no linked code object"));
    assert!(reason(&file[..40]).contains("the ELF header"));
    assert!(reason(&file[..file.len() / 2]).contains("lies outside of the file"));
}

fn number(file: &[u8], at: usize, bytes: usize) -> usize {
    file[at..][..bytes].iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// Returns where the program headers are.
fn headers(file: &[u8]) -> impl Iterator<Item = usize> {
    (0..number(file, 56, 2)).map(|index| number(file, 32, 8) + index * 56)
}

/// Returns where the program header of the segment with code is.
fn header_of_code(file: &[u8]) -> usize {
    // PT_LOAD with PF_X.
    let is_code = |at: &usize| number(file, *at, 4) == 1 && number(file, *at + 4, 4) & 1 != 0;
    headers(file).find(is_code).expect("it has code")
}

/// A segment that is added to a file.
#[derive(Clone, Copy)]
struct Added {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    bytes: usize,
    memory_bytes: usize,
}

/// Moves the program headers to the file's end and adds some.
fn add_segments(file: &mut Vec<u8>, added: &[Added]) {
    let old: Vec<u8> = headers(file).flat_map(|at| file[at..at + 56].to_vec()).collect();
    let (place, count) = (file.len() as u64, number(file, 56, 2) + added.len());
    file.extend(old);
    for segment in added {
        file.extend([segment.kind, segment.flags].map(u32::to_le_bytes).concat());
        let Added { offset, address, bytes, memory_bytes, .. } = *segment;
        let fields = [offset, address, address, bytes, memory_bytes, 0x1000];
        file.extend(fields.map(|field| (field as u64).to_le_bytes()).concat());
    }
    file[32..40].copy_from_slice(&place.to_le_bytes());
    file[56..58].copy_from_slice(&(count as u16).to_le_bytes());
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const READ: u32 = 4;
const READ_AND_EXECUTE: u32 = 5;

/// A small file does not become much memory.
#[test]
fn segments_are_apart_and_have_no_more_than_the_file() {
    let file = object("segments");
    let code = header_of_code(&file);
    let [offset, address, bytes] = [8, 16, 32].map(|at| number(&file, code + at, 8));
    let with = |added: &[Added]| {
        let mut changed = file.clone();
        add_segments(&mut changed, added);
        CodeObject::read(&changed).map_err(|refused| refused.to_string())
    };
    let copy = Added { kind: LOAD, flags: READ_AND_EXECUTE, offset, address, bytes, memory_bytes: bytes };
    let reason = with(&[copy]).expect_err("it is there twice");
    assert!(reason.contains(&format!("its segments at {address:#x} and {address:#x} overlap")), "{reason}");
    let reason =
        with(&[Added { address: address + bytes - 4, bytes: 0, ..copy }]).expect_err("it begins in the code");
    assert!(reason.contains("overlap"), "{reason}");
    assert!(with(&[Added { bytes: 0, memory_bytes: 0, ..copy }]).is_ok(), "nothing overlaps with nothing");
    // Elsewhere in memory, and all the same bytes of the file.
    let elsewhere = |number: usize| Added { address: 0x10_0000 + number * 0x10_0000, ..copy };
    let part = Added { bytes: 64, memory_bytes: 64, ..elsewhere(0) };
    assert!(with(&[part]).is_ok_and(|object| object.code.len() == 2), "the file has other bytes enough");
    let later = Added { address: part.address + 0x10_0000, ..part };
    let object = with(&[later, part]).expect("the file has other bytes enough");
    assert!(object.code.len() == 3 && object.code.is_sorted(), "{:?}", object.code);
    let reason = with(&[0, 1, 2, 3, 4, 5, 6, 7].map(elsewhere)).expect_err("it is there nine times");
    assert!(
        reason.contains(&format!("bytes of the file's {}", file.len() + 56 * (number(&file, 56, 2) + 8))),
        "{reason}"
    );
    let reason =
        with(&[Added { address: 0x10_0000, memory_bytes: 5 << 30, ..copy }]).expect_err("it is too large");
    assert!(reason.contains("bytes of memory, of which a code object has 1073741824"), "{reason}");
}

/// Names of symbols that are the ends of one long text.
#[test]
fn names_take_no_more_than_there_is_room_for() {
    const SYMBOLS: usize = 2048;
    const TEXT: usize = 64 << 10;
    const AT: usize = 0x10_0000;
    let with = |symbols: usize| {
        let mut file = object("names");
        let code = number(&file, header_of_code(&file) + 16, 8) as u64;
        let start = file.len();
        // A hash table without buckets, the symbols, the text, and the dynamic section that tells of them.
        file.extend([0, symbols as u32].map(u32::to_le_bytes).concat());
        for symbol in 0..symbols as u32 {
            // A global object in section 1.
            file.extend([symbol, 1 << 16 | 0x11].map(u32::to_le_bytes).concat());
            file.extend([code, 0].map(u64::to_le_bytes).concat());
        }
        file.extend([b'x'; TEXT]);
        file.push(0);
        let dynamic = file.len();
        let [hash, table, text] = [AT, AT + 8, AT + 8 + 24 * symbols].map(|at| at as u64);
        for entry in [[4, hash], [6, table], [5, text], [10, TEXT as u64 + 1]] {
            file.extend(entry.map(u64::to_le_bytes).concat());
        }
        let bytes = file.len() - start;
        let added = Added { kind: LOAD, flags: READ, offset: start, address: AT, bytes, memory_bytes: bytes };
        let bytes = file.len() - dynamic;
        add_segments(&mut file, &[added, Added { kind: DYNAMIC, offset: dynamic, bytes, ..added }]);
        CodeObject::read(&file)
    };
    let object = with(10).expect("ten names are few");
    assert_eq!(object.variables.len(), 10);
    let reason = with(SYMBOLS).expect_err("they would take 128 mebibytes").to_string();
    assert!(reason.contains("its symbols' names take more than 67108864 bytes together"), "{reason}");
}

#[test]
fn code_is_what_the_file_holds_at_whole_words() {
    let mut file = object("code");
    let offset = number(&file, header_of_code(&file) + 8, 8);
    let memory_bytes = 512 << 20;
    let address = 0x10_0000;
    add_segments(
        &mut file,
        &[Added { kind: LOAD, flags: READ_AND_EXECUTE, offset, address, bytes: 64, memory_bytes }],
    );
    let object = CodeObject::read(&file).expect("there may be zeros behind code");
    assert!(object.code.iter().map(|&(_, bytes)| bytes).sum::<u64>() <= file.len() as u64);
    let header = header_of_code(&file);
    file[header + 16] += 2;
    assert!(reason(&file).contains("is not at a multiple of 4"));
}

/// Zeros behind a segment take none of the host's memory.
#[test]
fn zeros_are_not_touched() {
    let mut file = object("zeros");
    let [offset, address, memory_bytes] = [0, 0x10_0000, 900 << 20];
    add_segments(&mut file, &[Added { kind: LOAD, flags: READ, offset, address, bytes: 64, memory_bytes }]);
    let running = Running::start(Arc::new(Memory::new()), 1).expect("the device starts");
    let resident_pages = || {
        let statistics = std::fs::read_to_string("/proc/self/statm").expect("the system tells");
        let pages = statistics.split(' ').nth(1).expect("it has several numbers");
        pages.parse::<usize>().expect("it is a number")
    };
    let before = resident_pages();
    let loaded = CodeObject::read(&file).and_then(|object| Loaded::load(running.device(), object));
    let loaded = loaded.expect("there may be zeros behind the file's bytes");
    assert!(
        resident_pages() < before + (400 << 20) / 4096,
        "{before} pages before, {} now",
        resident_pages()
    );
    let mut view = running.device().memory.view();
    assert_eq!(view.load_u32(loaded.address + address as u64), Ok(0x464c_457f));
    assert_eq!(view.load_u32(loaded.address + (address + memory_bytes) as u64 - 4), Ok(0));
}

#[test]
fn changed_code_objects_are_refused_or_loaded() {
    let file = object("changes");
    let running = Running::start(Arc::new(Memory::new()), 1).expect("the device starts");
    let mut state = 99u64;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let (mut refused, mut loaded) = (0, 0);
    for round in 0..3000 {
        let mut changed = file.clone();
        // Headers, notes and tables are at the start and at the end; code is in between.
        for _ in 0..=next(4) {
            let at = if round % 2 == 0 { next(file.len().min(2048)) } else { next(file.len()) };
            changed[at] = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
        }
        if next(8) == 0 {
            changed.truncate(next(file.len()));
        }
        match CodeObject::read(&changed).and_then(|object| Loaded::load(running.device(), object)) {
            Ok(_) => loaded += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 500 && loaded > 100, "{refused} refused, {loaded} loaded");
}
