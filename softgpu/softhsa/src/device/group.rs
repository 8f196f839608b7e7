//! A workgroup that runs.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use super::{Device, Launch};
use crate::code::{self, Code};
use crate::exec::wave::{LANES, scalar};
use crate::exec::{Env, Fault, Flow, Wave};
use crate::load::descriptor::property;
use crate::memory::Memory;

/// Instructions that a wave runs before the next wave's turn.
const SLICE: u32 = 2000;

/// Whether a workgroup's slice did more than waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// At least one wave did something.
    Made,
    /// All waves sleep or wait.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    AtBarrier,
    Ended,
}

/// A workgroup that started.
#[derive(Debug)]
pub(super) struct Group {
    launch: Arc<Launch>,
    place: [u32; 3],
    waves: Vec<(Wave, State)>,
    lds: Vec<u8>,
    code: Option<Arc<Code>>,
}

impl Group {
    /// Makes a launch's workgroup of that number. The launch fails if its arguments cannot be read.
    pub fn new(launch: Arc<Launch>, number: u64, memory: &Memory) -> Group {
        let place = launch.place(number);
        let spec = &launch.spec;
        // A workgroup at the grid's edge has the lanes that are inside of the grid.
        let size = [0, 1, 2].map(|axis| {
            let start = u64::from(place[axis]) * u64::from(spec.workgroup[axis]);
            u64::from(spec.workgroup[axis]).min(u64::from(spec.grid[axis]) - start) as u32
        });
        let lanes: u32 = size.iter().product();
        let waves = (0..lanes.div_ceil(LANES as u32))
            .map(|wave| (start_wave(&launch, place, size, wave, memory), State::Running));
        let waves = waves.collect();
        let lds = vec![0; spec.group_bytes as usize];
        Group { place, waves, lds, code: None, launch }
    }

    /// Returns how many waves the workgroup has.
    pub fn waves(&self) -> usize {
        self.waves.len()
    }

    /// Returns the bytes of scratch memory that its waves have.
    pub fn scratch_bytes(&self) -> u64 {
        self.waves.iter().map(|(wave, _)| wave.scratch.len() as u64).sum()
    }

    /// Returns how many instructions its waves have executed.
    pub fn executed(&self) -> u64 {
        self.waves.iter().map(|(wave, _)| wave.executed).sum()
    }

    /// Returns whether all waves have ended.
    pub fn is_done(&self) -> bool {
        self.waves.iter().all(|(_, state)| *state == State::Ended)
    }

    /// Tells the launch that the workgroup has ended, and returns it.
    pub fn retire(self) -> Arc<Launch> {
        self.launch.retire_workgroup();
        self.launch
    }

    /// Runs each wave for a slice.
    pub fn run(&mut self, device: &Device, unit: u32) -> Progress {
        let mut progress = Progress::None;
        if self.launch.is_stopped() {
            self.waves.iter_mut().for_each(|(_, state)| *state = State::Ended);
            return Progress::Made;
        }
        let accumulation = self.launch.spec.descriptor.accumulation as usize;
        if self.code.is_none() {
            self.code = device.code.find(self.launch.spec.entry, accumulation);
        }
        for (wave, state) in &mut self.waves {
            if *state != State::Running {
                continue;
            }
            let Some(code) = &mut self.code else {
                self.launch.fail(self.place, wave, None);
                *state = State::Ended;
                continue;
            };
            let memory = device.memory.view();
            let mut env = Env { memory, lds: &mut self.lds, epoch: device.epoch, compute_unit: unit };
            // A mistake of the interpreter's is a fault of the wave's: nobody would wait for its launch in vain.
            let run = AssertUnwindSafe(|| code::run(wave, &mut env, code, &device.code, SLICE));
            let flow = panic::catch_unwind(run).unwrap_or_else(|_| {
                let text = "the instruction before this place, at which it panicked".to_owned();
                wave.fault = Some(Fault::Missing { text });
                Flow::Fault
            });
            match flow {
                Flow::Next => progress = Progress::Made,
                Flow::Yield => {}
                Flow::Barrier => {
                    *state = State::AtBarrier;
                    progress = Progress::Made;
                }
                Flow::End => {
                    *state = State::Ended;
                    progress = Progress::Made;
                }
                Flow::Fault => {
                    self.launch.fail(self.place, wave, Some(code.as_ref()));
                    *state = State::Ended;
                    progress = Progress::Made;
                }
            }
        }
        self.open_barrier();
        progress
    }

    /// Lets the waves go on if all that have not ended wait.
    fn open_barrier(&mut self) {
        if self.waves.iter().all(|(_, state)| *state != State::Running) {
            for (_, state) in &mut self.waves {
                if *state == State::AtBarrier {
                    *state = State::Running;
                }
            }
        }
    }
}

/// Makes a wave with its registers as the kernel's descriptor asks for them.
fn start_wave(launch: &Launch, place: [u32; 3], size: [u32; 3], number: u32, memory: &Memory) -> Wave {
    let spec = &launch.spec;
    let descriptor = &spec.descriptor;
    let (vectors, accumulation) = (descriptor.vector_registers as usize, descriptor.accumulation as usize);
    let mut wave = Wave::new(vectors, accumulation, spec.private_bytes as usize);
    wave.pc = spec.entry;
    wave.mode = descriptor.mode;
    wave.number = number;
    let lanes: u32 = size.iter().product();
    let active = (lanes - number * LANES as u32).min(LANES as u32);
    wave.set_pair(scalar::EXEC, if active == 64 { !0 } else { (1 << active) - 1 });
    // Lane ids in as many dimensions as the kernel asks for, ten bits each.
    let wanted = (1 << (10 * descriptor.workitem_dimensions)) - 1;
    for lane in 0..active {
        let flat = number * LANES as u32 + lane;
        let (x, y, z) = (flat % size[0], flat / size[0] % size[1], flat / size[0] / size[1]);
        wave.write_lane(0, lane as usize, (x | y << 10 | z << 20) & wanted);
    }
    let waves = lanes.div_ceil(LANES as u32);
    if let Err(fault) = fill_scalars(&mut wave, launch, place, waves, memory) {
        wave.fault = Some(fault);
        launch.fail(place, &wave, None);
    }
    wave
}

/// Fills in the scalar registers of a wave, of whose workgroup there are so many.
fn fill_scalars(
    wave: &mut Wave,
    launch: &Launch,
    place: [u32; 3],
    waves: u32,
    memory: &Memory,
) -> Result<(), Fault> {
    let spec = &launch.spec;
    let properties = spec.descriptor.properties;
    let mut next = 0;
    let mut pair = |wave: &mut Wave, bit: u16, value: u64| {
        if properties & bit != 0 {
            wave.set_pair(next, value);
            next += 2;
        }
    };
    pair(wave, property::DISPATCH_POINTER, spec.packet);
    pair(wave, property::QUEUE_POINTER, spec.queue);
    pair(wave, property::KERNARG_POINTER, spec.kernarg);
    pair(wave, property::DISPATCH_ID, spec.packet_id);
    if properties & property::PRIVATE_SIZE != 0 {
        wave.set_scalar(next, spec.private_bytes);
        next += 1;
    }
    let preloaded = spec.descriptor.preloaded;
    if preloaded.words > 0 {
        let mut view = memory.view();
        for word in preloaded.offset..preloaded.offset + preloaded.words {
            wave.set_scalar(next, view.load_u32(spec.kernarg.wrapping_add(u64::from(word) * 4))?);
            next += 1;
        }
    }
    // The hardware puts the workgroup's numbers behind all user registers, those that it does not fill in included.
    let mut next = spec.descriptor.user_registers as u8;
    for (number, wanted) in place.into_iter().zip(spec.descriptor.workgroup_ids) {
        if wanted {
            wave.set_scalar(next, number);
            next += 1;
        }
    }
    if spec.descriptor.workgroup_info {
        let is_first = u32::from(wave.number == 0);
        wave.set_scalar(next, is_first << 31 | waves);
    }
    Ok(())
}
