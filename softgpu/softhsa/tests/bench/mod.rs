//! A wave that runs text which llvm-mc assembles.
#![allow(dead_code, reason = "not every test binary uses all of it")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use hostcall_softhsa::code::{self, CodeMap};
use hostcall_softhsa::exec::wave::scalar;
use hostcall_softhsa::exec::{Env, Fault, Flow, Wave};
use hostcall_softhsa::memory::Memory;

/// Where the code lies.
pub const PC: u64 = 0x10000;

/// Assembles text to words.
fn assemble(text: &str) -> Vec<u32> {
    let arguments = ["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-show-encoding"];
    let mut tool = Command::new("llvm-mc-22");
    let mut tool = tool
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("llvm-22 is installed");
    tool.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("llvm-mc reads");
    let output = tool.wait_with_output().expect("llvm-mc ends");
    assert!(output.status.success(), "llvm-mc refuses {text}");
    let printed = String::from_utf8(output.stdout).expect("llvm-mc prints text");
    let encodings = printed.lines().filter_map(|line| line.split_once("encoding: [")?.1.strip_suffix(']'));
    let bytes: Vec<u8> = encodings
        .flat_map(|bytes| bytes.split(','))
        .map(|byte| u8::from_str_radix(byte.trim_start_matches("0x"), 16).expect("llvm-mc prints bytes"))
        .collect();
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// Assembles texts, each with an end behind it, in one run of the assembler.
pub fn assemble_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<Vec<u32>> {
    const END: u32 = 0xbf81_0000;
    let all: String = texts.into_iter().map(|text| format!("{text}\ns_endpgm\n")).collect();
    assemble(&all).split_inclusive(|&word| word == END).map(<[u32]>::to_vec).collect()
}

/// A wave with what it needs.
pub struct Bench {
    /// The wave, whose v0 holds the lane's number.
    pub wave: Wave,
    /// Device memory.
    pub memory: Memory,
    /// Local memory.
    pub lds: Vec<u8>,
    /// How often the wave let others run.
    pub yields: u32,
}

impl Bench {
    /// Makes a wave with all lanes active.
    pub fn new() -> Bench {
        let mut wave = Wave::new(128, 120, 256);
        wave.set_pair(scalar::EXEC, !0);
        for lane in 0..64 {
            wave.write_lane(0, lane, lane as u32);
        }
        Bench { wave, memory: Memory::new(), lds: vec![0; 1024], yields: 0 }
    }

    /// Runs the text to its end or to a fault.
    pub fn run(&mut self, text: &str) -> Option<Fault> {
        let words = assemble(&format!("{text}\ns_endpgm\n"));
        self.run_words(words)
    }

    /// Runs words to their end or to a fault.
    pub fn run_words(&mut self, words: Vec<u32>) -> Option<Fault> {
        let map = CodeMap::default();
        map.add(PC, words);
        let mut code: Arc<_> = map.find(PC, self.wave.accumulation).expect("it was added");
        self.wave.pc = PC;
        let memory = self.memory.view();
        let mut env = Env { memory, lds: &mut self.lds, epoch: Instant::now(), compute_unit: 0 };
        let mut run = || code::run(&mut self.wave, &mut env, &mut code, &map, 1000);
        let flow = loop {
            match run() {
                Flow::Yield => self.yields += 1,
                flow => break flow,
            }
        };
        assert!(matches!(flow, Flow::End | Flow::Fault), "it ends: {flow:?}");
        self.wave.fault.take()
    }

    /// Returns a vector register in a lane.
    pub fn v(&self, register: u16, lane: usize) -> u32 {
        self.wave.row(register)[lane]
    }

    /// Sets a vector register in all lanes.
    pub fn set_v(&mut self, register: u16, value: u32) {
        for lane in 0..64 {
            self.wave.write_lane(register, lane, value);
        }
    }
}
