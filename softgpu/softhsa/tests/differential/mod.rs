//! Differential tests: C programs that are compiled for the host and for gfx942 must give the same checksum.
//!
//! A program leaves one checksum of 64 bits. The host's program prints it in hexadecimal, the device's kernel
//! `run` stores it to the buffer that is its only argument.

pub mod generator;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use hostcall_softhsa::device::Running;
use hostcall_softhsa::load::{CodeObject, Loaded};
use hostcall_softhsa::memory::{Memory, Use};

/// The compiler's levels.
pub const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];

/// Flags that give programs one meaning on both machines.
const SAME: [&str; 5] = ["-std=gnu11", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-w"];

/// Bounds the size of csmith's programs. LLVM inlines all functions of a program into the kernel, which takes it minutes
/// at the default size.
const SIZE: [&str; 4] = ["--max-funcs", "4", "--max-block-depth", "3"];

/// Seconds of processor time after which a compiler or the host's program is given up. Some generated programs run for
/// ever, and some keep the compiler for minutes. Other work on the machine does not count.
const COMPILER_SECONDS: u32 = 300;
const HOST_SECONDS: u32 = 2;

/// The signals by which the system ends a process that used its processor time up.
const SIGXCPU: i32 = 24;
const SIGKILL: i32 = 9;

/// Processor time that this process may use while a launch runs. It is enough for what the host does in [`HOST_SECONDS`].
const LAUNCH_LIMIT: Duration = Duration::from_secs(1200);

/// Where programs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Debian's csmith: integers, structures, pointers, arrays.
    Csmith,
    /// Our own generator: floating point, atomics, local memory, divergence.
    Lanes,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Csmith => "csmith",
            Source::Lanes => "lanes",
        })
    }
}

/// What became of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The checksums are the same at all levels.
    Agrees,
    /// They are not, or the device stopped: the level and what happened.
    Differs(String),
    /// The host or the compiler did not come to an end in time, or the compiler made a mistake.
    Skipped(String),
}

/// Compares programs in a folder of its own.
pub struct Bench {
    folder: PathBuf,
    running: Running,
}

impl Bench {
    /// Makes the folder and starts a device with one thread.
    pub fn new(folder: &Path) -> Bench {
        std::fs::create_dir_all(folder).expect("the folder is made");
        let running = Running::start(Arc::new(Memory::new()), 1).expect("the device starts");
        Bench { folder: folder.to_owned(), running }
    }

    /// Generates the program of that seed and compares it at those levels.
    pub fn compare(&self, source: Source, seed: u64, levels: &[&str]) -> Outcome {
        let program = self.folder.join(format!("{source}-{seed}.c"));
        if let Err(reason) = generate(source, seed, &program) {
            return Outcome::Skipped(reason);
        }
        let outcome = self.compare_file(source, &program, levels);
        if !matches!(outcome, Outcome::Differs(_)) {
            // The file of a program that differs stays, to be looked at.
            let _ = std::fs::remove_file(program);
        }
        outcome
    }

    fn compare_file(&self, source: Source, program: &Path, levels: &[&str]) -> Outcome {
        let binary = self.folder.join("host");
        for level in levels {
            // Of the same level: what the optimiser leaves out may be what takes a minute.
            if let Err(reason) = finish(clang(program, &binary).args([*level, "-lm"])) {
                return Outcome::Skipped(format!("{level}: host's compiler: {reason}"));
            }
            let expected = match finish(&mut limited(HOST_SECONDS, &binary)) {
                Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
                Err(reason) => return Outcome::Skipped(format!("{level}: host: {reason}")),
            };
            let expected = u64::from_str_radix(&expected, 16).expect("the program prints a number");
            let object = self.folder.join("device");
            let target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-ffreestanding", level];
            if let Err(reason) = finish(clang(program, &object).args(target)) {
                return Outcome::Skipped(format!("{level}: {reason}"));
            }
            if source == Source::Csmith && may_lose_return_address(&object) {
                return Outcome::Skipped(format!("{level}: a far branch overwrites the return address"));
            }
            match self.launch(source, &object) {
                Ok(found) if found == expected => {}
                Ok(found) => {
                    return Outcome::Differs(format!("{level}: {found:#x} instead of {expected:#x}"));
                }
                Err(reason) => return Outcome::Differs(format!("{level}: {reason}")),
            }
        }
        Outcome::Agrees
    }

    /// Runs the kernel and returns the checksum.
    fn launch(&self, source: Source, object: &Path) -> Result<u64, String> {
        let device = self.running.device();
        let file = std::fs::read(object).map_err(|error| error.to_string())?;
        let object = CodeObject::read(&file).map_err(|refused| refused.to_string())?;
        let loaded = Loaded::load(device, object).map_err(|refused| refused.to_string())?;
        let kernel = &loaded.object.kernels["run.kd"];
        let buffer = device.memory.allocate(4096, Use::Pool).ok_or("no memory")?;
        let kernarg = device.memory.allocate(4096, Use::Pool).ok_or("no memory")?;
        device.memory.view().store_u64(kernarg, buffer).map_err(|fault| fault.to_string())?;
        let lanes = match source {
            Source::Csmith => 1,
            Source::Lanes => generator::LANES,
        };
        let group = lanes.min(generator::GROUP);
        let mut spec = loaded.launch_spec(kernel, kernarg, [lanes, 1, 1], [group, 1, 1]);
        // Some kernels read the sizes of workgroup and grid from the dispatch packet.
        spec.packet = kernarg + 1024;
        for (offset, word) in [(4, 1 << 16 | group), (8, 1), (12, lanes), (16, 1), (20, 1)] {
            device.memory.view().store_u32(spec.packet + offset, word).map_err(|fault| fault.to_string())?;
        }
        let (sender, receiver) = mpsc::channel();
        let launch = device.launch(spec, move |failure| {
            // The receiver is below until the launch has ended.
            let _ = sender.send(failure);
        });
        let limit = processor_time() + LAUNCH_LIMIT;
        let end = loop {
            match receiver.recv_timeout(Duration::from_secs(1)) {
                Err(RecvTimeoutError::Timeout) if processor_time() < limit => {}
                end => break end,
            }
        };
        let ended = match end {
            Err(RecvTimeoutError::Timeout) => {
                device.stop_launches(&[launch]);
                receiver.recv().map_err(|error| error.to_string())?;
                Err("the launch does not end".to_owned())
            }
            Ok(Some(failure)) => Err(failure.to_string()),
            Ok(None) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err("the device ended".to_owned()),
        };
        let sum = device.memory.view().load_u64(buffer).map_err(|fault| fault.to_string());
        assert!(device.memory.free(buffer) && device.memory.free(kernarg));
        ended.and(sum)
    }
}

/// What this process has used of the processors, ever.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time to where it is told.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether code for the device has the register pair of the return address as that of a far branch's target. Clang 22 takes
/// it in functions of more than 128 KiB, without saving it, where no other pair is free: they do not return to whoever
/// called them.
fn may_lose_return_address(object: &Path) -> bool {
    const GETPC_OF_RETURN_ADDRESS: u32 = 0xbe9e_1c00;
    let file = std::fs::read(object).unwrap_or_default();
    file.as_chunks::<4>().0.iter().any(|word| u32::from_le_bytes(*word) == GETPC_OF_RETURN_ADDRESS)
}

fn generate(source: Source, seed: u64, program: &Path) -> Result<(), String> {
    match source {
        Source::Csmith => {
            // gfx942 needs aligned atomics only, but csmith's packed structures hold volatile members, whose
            // accesses the compilers may split differently.
            let mut csmith = limited(COMPILER_SECONDS, "csmith");
            csmith.args(["--seed", &seed.to_string(), "--no-packed-struct"]).args(SIZE);
            // It leaves a file about the machine where it runs.
            csmith.current_dir(program.parent().expect("programs lie in a folder"));
            finish(csmith.arg("--output").arg(program)).map(drop)
        }
        Source::Lanes => std::fs::write(program, generator::program(seed)).map_err(|error| error.to_string()),
    }
}

fn clang(program: &Path, binary: &Path) -> Command {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let mut command = limited(COMPILER_SECONDS, "clang-22");
    command.args(SAME).arg("-I").arg(headers).arg("-I/usr/include/csmith");
    command.arg(program).arg("-o").arg(binary);
    command
}

/// Makes a command that the system ends after so many seconds of processor time.
fn limited(seconds: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -t {seconds}; exec \"$@\""), "sh"]).arg(program);
    command
}

/// Runs a command to its end.
fn finish(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    match output.status.code() {
        Some(0) => Ok(output),
        None if matches!(output.status.signal(), Some(SIGXCPU | SIGKILL)) => Err("took too long".to_owned()),
        _ => {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find(|line| line.contains("error")).unwrap_or("");
            Err(format!("{}: {line}", output.status))
        }
    }
}

/// Compares `count` programs from seed `first` on with so many threads, and returns how many agreed, those
/// that did not and those that were skipped.
pub fn compare_all(
    source: Source,
    first: u64,
    count: u64,
    threads: usize,
    folder: &Path,
    levels: &[&str],
) -> (u64, Vec<String>, Vec<String>) {
    let next = AtomicU64::new(first);
    let (sender, receiver) = mpsc::channel();
    let (mut agreed, mut differing, mut skipped) = (0, Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                let bench = Bench::new(&folder.join(format!("{source}-{thread}")));
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    // The receiver lives until all senders have gone.
                    let _ = sender.send((seed, bench.compare(source, seed, levels)));
                }
            });
        }
        drop(sender);
        let (mut finished, mut next) = (BTreeSet::new(), first);
        for (done, (seed, outcome)) in (1..).zip(receiver) {
            match outcome {
                Outcome::Agrees => agreed += 1,
                Outcome::Differs(what) => {
                    println!("{source} seed {seed} differs at {what}");
                    differing.push(format!("{source} seed {seed} at {what}"));
                }
                Outcome::Skipped(why) => {
                    println!("{source} seed {seed} is skipped: {why}");
                    skipped.push(format!("{source} seed {seed}: {why}"));
                }
            }
            finished.insert(seed);
            while finished.remove(&next) {
                next += 1;
            }
            if done % 25 == 0 {
                let (differ, skipped) = (differing.len(), skipped.len());
                println!(
                    "{done} programs: {agreed} agree, {differ} differ, {skipped} skipped; all seeds before {next} are done"
                );
            }
        }
    });
    (agreed, differing, skipped)
}
