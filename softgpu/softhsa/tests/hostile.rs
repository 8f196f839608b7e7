//! Whatever registers and operands hold, instructions end in results or faults; and devices stop with all that they keep.

use std::io::Read as _;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use flate2::read::GzDecoder;
use hostcall_softhsa::device::{LaunchSpec, Running};
use hostcall_softhsa::exec::rounding::Rounded;
use hostcall_softhsa::exec::wave::{APERTURE, LANES, PRIVATE_BASE, SHARED_BASE, scalar};
use hostcall_softhsa::exec::{Env, Flow, Inst, Wave};
use hostcall_softhsa::isa::decode;
use hostcall_softhsa::load::Descriptor;
use hostcall_softhsa::memory::{Memory, Use};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }
}

/// Returns addresses, sizes and numbers at the edges of something.
fn edges(memory: &Memory) -> Vec<u64> {
    let block = memory.allocate(4096, Use::Pool).expect("there is memory");
    let bases =
        [0, block, block + 4096, SHARED_BASE, SHARED_BASE + APERTURE, PRIVATE_BASE, PRIVATE_BASE + APERTURE];
    let mut edges: Vec<u64> =
        bases.into_iter().flat_map(|base| [base.wrapping_sub(1), base, base + 60]).collect();
    edges.extend([1, 31, 63, 64, 255, 256, 0x7fff_ffff, 0x8000_0000, 0x7f80_0000, 1 << 63, u64::MAX - 3]);
    edges
}

/// Makes a wave with few registers, of which each holds an edge or anything.
fn wave(random: &mut Random, edges: &[u64]) -> Wave {
    let registers = random.of(&[1, 8, 20, 512]);
    let mut wave = Wave::new(registers, random.of(&[4, 8, 256]), random.of(&[0, 4, 64]));
    let mut number = |wide: bool| match random.next() % 3 {
        0 => random.next(),
        _ if wide => random.of(edges),
        _ => random.of(edges) & 0xffff_ffff,
    };
    for register in (0..128).step_by(2) {
        let value = number(true);
        wave.set_pair(register, value);
    }
    for register in (0..registers as u16).step_by(2).take(32) {
        for lane in [0, 1, 5, 31, 32, 62, 63] {
            let value = number(true);
            wave.write_lane(register, lane, value as u32);
            wave.write_lane(register + 1, lane, (value >> 32) as u32);
        }
    }
    wave.scc = number(false) % 2 == 0;
    wave.number = number(false) as u32;
    let exec = random.of(&[0, 1, !0, 1 << 63, 0x8000_0001_0000_0021]);
    wave.set_pair(scalar::EXEC, exec);
    wave.pc = random.of(&[0, 0x1000, u64::MAX - 7]);
    wave
}

/// Runs each encoding of LLVM's tests on waves that do not fit it. The tests are built with checks of indices and overflows.
#[test]
fn no_instruction_panics() {
    let mut corpus = String::new();
    let packed = &include_bytes!("corpus/gfx942.tsv.gz")[..];
    GzDecoder::new(packed).read_to_string(&mut corpus).expect("the corpus unpacks");
    let memory = Memory::new();
    let (edges, mut random, mut lds) = (edges(&memory), Random(7), [0; 100]);
    let (mut ran, mut products) = (0, 0);
    for line in corpus.lines() {
        let (hex, text) = line.split_once('\t').expect("a line has two columns");
        // Matrix products take long without optimisation.
        if text.contains("mfma") || text.contains("smfmac") {
            products += 1;
            if products % 40 != 0 {
                continue;
            }
        }
        let word = |at: usize| {
            u32::from_str_radix(&hex[at..at + 8], 16).expect("the corpus holds words").swap_bytes()
        };
        let words: Vec<u32> = (0..hex.len()).step_by(8).map(word).collect();
        let Ok(decoded) = decode(&words) else { continue };
        for _ in 0..4 {
            let mut wave = wave(&mut random, &edges);
            let Some(inst) = Inst::new(&decoded, wave.accumulation) else { continue };
            let inst = if random.next() % 4 == 0 { inst.indexed(15, 255) } else { inst };
            let mut env =
                Env { memory: memory.view(), lds: &mut lds, epoch: Instant::now(), compute_unit: 255 };
            let flow = match inst.rounded {
                Rounded::Otherwise(run) if random.next() % 2 == 0 => {
                    wave.mode |= random.next() as u32 & 15;
                    run(&mut wave, &inst, &mut env)
                }
                _ => (inst.run)(&mut wave, &inst, &mut env),
            };
            assert_eq!(flow == Flow::Fault, wave.fault.is_some(), "{text}");
            ran += 1;
        }
    }
    assert!(ran > 140_000, "{ran}");
}

/// A launch of one wave whose code is at that address.
fn launch_at(entry: u64, grid: u32) -> LaunchSpec {
    // Eight vector registers and 64 bytes of zeros otherwise.
    let descriptor = Descriptor::read(&[0; Descriptor::BYTES]).expect("it asks for nothing");
    LaunchSpec {
        name: "endless".to_owned(),
        descriptor,
        entry,
        kernarg: 0,
        grid: [grid, 1, 1],
        workgroup: [LANES as u32, 1, 1],
        group_bytes: 0,
        private_bytes: 0,
        packet: 0,
        queue: 0,
        packet_id: 0,
    }
}

#[test]
fn a_device_stops_while_waves_run() {
    const FOR_EVER: u32 = 0xbf82_ffff;
    let memory = Arc::new(Memory::new());
    let running = Running::start(Arc::clone(&memory), 2).expect("the device starts");
    let device = Arc::downgrade(running.device());
    running.device().code.add(0x1000, vec![FOR_EVER]);
    let (sender, receiver) = mpsc::channel();
    // What a launch keeps may hold the device, as code does.
    let kept = (Arc::clone(running.device()), sender.clone());
    running.device().launch(launch_at(0x1000, 1 << 20), move |failure| {
        let kept = kept;
        // The receiver lives until the test's end.
        let _ = kept.1.send(failure);
    });
    running.stop();
    assert!(running.device().run(launch_at(0x1000, 64)).is_err(), "nothing runs any more");
    drop((running, sender));
    assert_eq!(receiver.recv(), Err(mpsc::RecvError), "the launch did not end");
    assert!(device.upgrade().is_none() && Arc::strong_count(&memory) == 1);
}
