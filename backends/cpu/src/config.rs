use std::io;
use std::time::Duration;

/// Sizes and behaviour of an [`Executor`](crate::Executor).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Threads that run lanes: 1 to 4096.
    pub threads: usize,
    /// Threads that may be added while lanes keep theirs to themselves: one for each lane that runs for
    /// milliseconds without an operation while other lanes of its thread could go on. Once there are as many,
    /// such lanes hold up the others of their threads.
    pub spare_threads: usize,
    /// Lanes of a full wave: 32 or 64.
    pub wave_size: u32,
    /// Waves resident at once, over all launches: the channel has a home slot for each.
    pub resident_waves: u32,
    /// Lanes resident at once, over all launches. One launch gets at most seven eighths of lanes and waves, but for its first
    /// workgroup. Each lane has a stack with a guard below, which takes two memory
    /// mappings. Linux gives a process 65,530 of them unless `vm.max_map_count` says otherwise, and the stacks of all its
    /// devices take at most three quarters: a launch that needs more fails.
    pub resident_lanes: u32,
    /// Bytes of a lane's stack.
    pub stack_bytes: usize,
    /// How long a cancelled launch's lanes may take to end by themselves before they are ended by force.
    pub cancel_grace: Duration,
    /// What goes wrong on purpose.
    pub faults: Faults,
}

impl Default for Config {
    /// One thread less than the machine has, 1024 spare ones, waves of 32, 8192 resident waves and lanes, stacks of 64 KiB, one
    /// second of grace, no faults.
    fn default() -> Config {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            threads: (cores - 1).max(1),
            spare_threads: 1024,
            wave_size: 32,
            resident_waves: 8192,
            resident_lanes: 8192,
            stack_bytes: 64 << 10,
            cancel_grace: Duration::from_secs(1),
            faults: Faults::default(),
        }
    }
}

impl Config {
    /// Fewest bytes of a lane's stack.
    pub const MIN_STACK_BYTES: usize = 16 << 10;

    /// Most threads of a device. Each has memory of its own before it runs a lane: many more take all that
    /// there is.
    pub const MOST_THREADS: usize = 4096;

    pub(crate) fn check(&self) -> io::Result<()> {
        let refuse = |sentence| Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
        if self.threads == 0 {
            return refuse("a software device needs at least one thread");
        }
        if self.threads > Self::MOST_THREADS {
            return refuse("a software device has at most 4096 threads");
        }
        if self.wave_size != 32 && self.wave_size != 64 {
            return refuse("a software device's waves have 32 or 64 lanes");
        }
        if self.stack_bytes < Self::MIN_STACK_BYTES {
            return refuse("a lane's stack needs at least 16384 bytes");
        }
        Ok(())
    }
}

/// Faults for tests. Most are a probability from 0.0 (never) to 1.0. What is drawn for a wave depends on the
/// seed, the number of the launch, the workgroup and the wave, and not on the thread that runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Where the draws start.
    pub seed: u64,
    /// That a lane which could run is left out for up to 16 turns, and that converged lanes are split.
    pub delay_lanes: f64,
    /// That a notification does not reach the host.
    pub lose_notifications: f64,
    /// That a wave dies when one of its lanes starts to wait: all its lanes end at once, without unwinding.
    pub kill_wave: f64,
    /// Period of the clock in which a wave rings its post bell at most once, in ns; 0 lets it ring for every post. What is
    /// posted later in the period is announced when the wave pauses, waits for others or ends, as on a GPU.
    pub bell_period_ns: u64,
}

/// A wave's random numbers (splitmix64).
pub(crate) struct Draws(std::cell::Cell<u64>);

impl Draws {
    pub fn new(seed: u64, launch: u64, workgroup: u64, wave: u64) -> Draws {
        let draws = Draws(seed.into());
        for number in [launch, workgroup, wave] {
            draws.0.set(draws.next() ^ number);
        }
        draws
    }

    pub fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// True with the given probability; draws nothing when that is 0.
    pub fn happens(&self, probability: f64) -> bool {
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}
