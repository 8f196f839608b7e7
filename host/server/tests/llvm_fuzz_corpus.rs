//! Runs the corpus of the fuzz target `llvm_server`, and inputs made at random, as an ordinary test.

#[path = "fuzz/llvm_server.rs"]
mod llvm_server;

use std::time::Instant;

#[test]
fn the_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/llvm_server");
    let mut inputs = 0;
    for input in std::fs::read_dir(corpus).unwrap() {
        let path = input.unwrap().path();
        println!("{}", path.display());
        llvm_server::run(&std::fs::read(path).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "there is a corpus");
}

/// Numbers at random (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    fn below(&mut self, most: usize) -> usize {
        self.next() as usize % most.max(1)
    }
}

#[test]
fn random_inputs_pass() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for length in 0..100 {
        llvm_server::run(&random.bytes(length * 10));
    }
}

/// What the system says of the process's memory, in KiB.
fn memory_kib(what: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// For FUZZ_SECONDS, 600 if absent, runs changed and joined inputs of the corpus, and new ones. A call without an answer, a
/// panic, and memory that grows fail it. It needs no compiler with a sanitizer, as the fuzz target does.
#[test]
#[ignore = "takes as long as it is told to"]
fn hostile_clients_for_as_long_as_asked() {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(600, |text| text.parse().unwrap());
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/llvm_server");
    let files = std::fs::read_dir(corpus).unwrap();
    let corpus: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    let (begun, mut random) = (Instant::now(), Random(u64::from(std::process::id()) << 32 | 0x9e37));
    let (mut inputs, mut bytes, mut at_first) = (0u64, 0u64, 0);
    while begun.elapsed().as_secs() < seconds {
        let mut input = corpus[random.below(corpus.len())].clone();
        match random.below(4) {
            0 => {
                let length = random.below(600);
                input = random.bytes(length);
            }
            1 => {
                let other = &corpus[random.below(corpus.len())];
                let (at, from) = (random.below(input.len()), random.below(other.len()));
                input.truncate(at);
                input.extend(&other[from..]);
            }
            _ => {}
        }
        for _ in 0..random.below(8) {
            let at = random.below(input.len());
            if let Some(byte) = input.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
        llvm_server::run(&input);
        (inputs, bytes) = (inputs + 1, bytes + input.len() as u64);
        if inputs == 1000 {
            at_first = memory_kib("VmRSS:");
        }
    }
    let (now, most) = (memory_kib("VmRSS:"), memory_kib("VmHWM:"));
    println!(
        "{inputs} inputs of {bytes} bytes in {seconds} s; {at_first} KiB after 1000, {now} at the end, {most} at most"
    );
    assert!(inputs < 1000 || now < at_first + (64 << 10), "memory has grown from {at_first} to {now} KiB");
}
