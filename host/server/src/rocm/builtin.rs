//! The services that ROCm numbers: function calls, printing, device memory and the sanitizer's reports.

use super::print;
use super::services::{Function, Mode, Packet, ServiceTaken, Services, number};
use crate::engine::Threads;
use crate::engine::functions::Functions;
use crate::engine::report;
use crate::services::{Builtins, HeapOwner, ProgramMemory};
use hostcall_channel::rocm::SLOT_WORDS;
use std::fmt;
use std::sync::Arc;

/// An allocation of this size is aligned to it, as ROCm's device heap expects of its slabs.
const SLAB_BYTES: u64 = 2 << 20;

/// Alignment of other allocations, in bytes.
const ALIGN: u64 = 4096;

/// What AMD's address sanitizer tells of an access that a lane should not have made, in the lane's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SanitizerReport {
    /// The lane in its wave.
    pub lane: u32,
    /// The address that was accessed.
    pub address: u64,
    /// Where the code is that did it.
    pub pc: u64,
    /// The workgroup in x, y and z.
    pub workgroup: [u64; 3],
    /// The wave in its workgroup.
    pub wave: u64,
    /// The access was a load.
    pub is_load: bool,
    /// Bytes of the access.
    pub bytes: u64,
}

impl SanitizerReport {
    fn new(lane: u32, words: &[u64; SLOT_WORDS]) -> Self {
        let [address, pc, x, y, z, wave, is_load, bytes] = *words;
        Self { lane, address, pc, workgroup: [x, y, z], wave, is_load: is_load != 0, bytes }
    }
}

impl fmt::Display for SanitizerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, address, pc, workgroup: [x, y, z], wave, is_load, bytes } = self;
        let access = if *is_load { "load" } else { "store" };
        write!(
            f,
            "the address sanitizer reports a {access} of {bytes} bytes at {address:#x} by the code at {pc:#x}, \
             workgroup ({x}, {y}, {z}), wave {wave}, lane {lane}"
        )
    }
}

impl Services {
    /// Registers service 4: reports of the address sanitizer are lines on stderr.
    ///
    /// # Errors
    /// [`ServiceTaken`] when the number has a handler.
    pub fn register_sanitizer_reports(&self) -> Result<(), ServiceTaken> {
        self.register_sanitizer(|report| report::line(report))
    }

    /// Registers service 2: `printf`, and `fprintf` to the standard streams, which are those of `builtins`.
    ///
    /// # Errors
    /// [`ServiceTaken`] when the number has a handler.
    pub fn register_printf(&self, builtins: &Builtins) -> Result<(), ServiceTaken> {
        let (stdio, full) = (builtins.stdio_shared(), builtins.stdio_shared());
        let mode = Mode::InlineUnless(Arc::new(move || full.sink().is_full()));
        self.add(number::PRINTF, "printf", mode, Threads::Output, move |packet| print::print(packet, &stdio))
    }

    /// Registers service 3: kernels allocate and free memory of the heap of `builtins`, whose limit holds. What kernels do not free is freed when the last
    /// clone of these handlers is dropped, so that one is kept until all kernels have ended.
    ///
    /// # Errors
    /// [`ServiceTaken`] when the number has a handler.
    pub fn register_device_heap(&self, builtins: &Builtins) -> Result<(), ServiceTaken> {
        let memory = ProgramMemory::new(builtins.heap());
        let owner = HeapOwner::Program(memory.program);
        self.register(number::DEVICE_MEMORY, "device memory", Mode::Blocking, move |packet| {
            packet.each_lane(|_, words| {
                words[0] = match [words[0], words[1]] {
                    [0, 0] => 0,
                    [0, bytes] => {
                        let align = if bytes == SLAB_BYTES { bytes } else { ALIGN };
                        memory.heap.allocate_for(owner, bytes, align)
                    }
                    [address, _] => {
                        memory.heap.free_of(owner, address);
                        0
                    }
                };
            });
        })
    }

    /// Registers service 4: `report` is called for each lane whose access the address sanitizer reports.
    ///
    /// # Errors
    /// [`ServiceTaken`] when the number has a handler.
    pub fn register_sanitizer(
        &self,
        report: impl Fn(&SanitizerReport) + Send + Sync + 'static,
    ) -> Result<(), ServiceTaken> {
        self.register(number::SANITIZER, "address sanitizer", Mode::Blocking, move |packet| {
            packet.each_lane(|lane, words| report(&SanitizerReport::new(lane, words)));
        })
    }

    /// Registers a function for service 1. Returns what kernels call it by, in place of its address: they
    /// may call no other. It gets seven words and gives two back, on a worker thread; a lane for which it
    /// panics gets zeros. The first registration takes the service's number.
    ///
    /// # Errors
    /// [`ServiceTaken`] when the number has a handler of another kind.
    pub fn register_function(
        &self,
        function: impl Fn(&[u64; 7]) -> [u64; 2] + Send + Sync + 'static,
    ) -> Result<u64, ServiceTaken> {
        let mut is_served = self.serves_functions().lock();
        if !*is_served {
            let functions = self.functions().clone();
            self.register(number::FUNCTION_CALL, "function call", Mode::Blocking, move |packet| {
                call(&functions, packet);
            })?;
            *is_served = true;
        }
        Ok(self.functions().add(Arc::new(function)))
    }
}

/// Calls the functions that the lanes of a packet ask for.
fn call(functions: &Functions<Function>, packet: &mut Packet<'_>) {
    let mut missing = None;
    packet.each_lane(|_, words| {
        let [number, arguments @ ..] = *words;
        let result = functions.get(number).map(|function| function(&arguments));
        if result.is_none() {
            missing = Some(number);
        }
        words[..2].copy_from_slice(&result.unwrap_or_default());
    });
    if let Some(number) = missing {
        packet.no_such_function(number);
    }
}
