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
    assert!(with(39, 0x7f).contains("the table of program headers"));
    assert!(with(16, 1).contains("no linked code object"));
    assert!(reason(&file[..40]).contains("the ELF header"));
    assert!(reason(&file[..file.len() / 2]).contains("lies outside of the file"));
}

/// Returns where the program header of the segment with code is.
fn header_of_code(file: &[u8]) -> usize {
    let number = |at: usize, bytes: usize| {
        file[at..][..bytes].iter().rev().fold(0, |n, &byte| n << 8 | usize::from(byte))
    };
    let headers = (0..number(56, 2)).map(|index| number(32, 8) + index * 56);
    // PT_LOAD with PF_X.
    headers.into_iter().find(|&at| number(at, 4) == 1 && number(at + 4, 4) & 1 != 0).expect("it has code")
}

#[test]
fn code_is_what_the_file_holds_at_whole_words() {
    let mut file = object("code");
    let header = header_of_code(&file);
    // Half a gibibyte in memory.
    file[header + 43] = 0x20;
    let object = CodeObject::read(&file).expect("there may be zeros behind code");
    assert!(object.code.iter().map(|&(_, bytes)| bytes).sum::<u64>() <= file.len() as u64);
    file[header + 16] += 2;
    assert!(reason(&file).contains("is not at a multiple of 4"));
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
