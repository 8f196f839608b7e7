//! A kernel that writes down the registers that it starts with.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hostcall_softhsa::device::{LaunchSpec, Running};
use hostcall_softhsa::exec::Fault;
use hostcall_softhsa::load::{CodeObject, Loaded};
use hostcall_softhsa::memory::{Memory, Use};

/// How many scalar registers are written down, from s0 on.
const SCALARS: usize = 20;

/// Bytes of what a wave writes, and of what is before the first wave's.
const RECORD: u64 = 512;
const BEFORE: u64 = 4096;

/// Where in a record the MODE register is, and the lanes' first registers.
const MODE_AT: u64 = 4 * SCALARS as u64;
const IDS_AT: u64 = 256;

/// What a wave started with.
#[derive(Clone, Debug)]
pub struct Launched {
    pub scalars: [u32; SCALARS],
    pub mode: u32,
    /// v0 of each lane, 0 of those that there are not.
    pub ids: [u32; 64],
}

/// A kernel that was assembled with some directives.
pub struct Probe {
    running: Running,
    results: u64,
    directives: String,
    before: String,
    private_bytes: u32,
    has_arguments: bool,
    /// The code object.
    pub file: Vec<u8>,
}

impl Probe {
    pub const PACKET: u64 = 0x1111_2222_3333_4444;
    pub const QUEUE: u64 = 0x5555_6666_7777_8888;
    pub const KERNARG: u64 = 0x0123_4567_89ab_cdef;
    pub const PACKET_ID: u64 = 0xfedc_ba98_7654_3210;

    /// Assembles the kernel. `directives` are those of `.amdhsa_kernel`.
    pub fn new(directives: &str) -> Probe {
        let running = Running::start(Arc::new(Memory::new()), 2).expect("the device starts");
        let results = running.device().memory.allocate(64 << 10, Use::Pool).expect("there is memory");
        let (directives, before) = (directives.to_owned(), String::new());
        let mut probe = Probe {
            running,
            results,
            directives,
            before,
            private_bytes: 0,
            has_arguments: false,
            file: Vec::new(),
        };
        probe.assemble();
        probe
    }

    /// Has the kernel do this after it has written its registers down.
    pub fn before(mut self, text: &str) -> Probe {
        self.before = text.to_owned();
        self.assemble();
        self
    }

    /// Asks for so many bytes of scratch memory of a lane in the launch.
    pub fn private_bytes(mut self, bytes: u32) -> Probe {
        self.private_bytes = bytes;
        self
    }

    /// Gives the launch arguments: the words 100, 101 and so on.
    pub fn with_arguments(mut self) -> Probe {
        self.has_arguments = true;
        self
    }

    fn assemble(&mut self) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}/descriptor-{}-{number}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        let [source, object] = ["s", "co"].map(|end| format!("{name}.{end}"));
        std::fs::write(&source, self.text()).expect("the folder is there");
        let mut clang = Command::new("clang-22");
        clang.args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", &source, "-o", &object]);
        let output = clang.output().expect("clang-22 is installed (.ci/install-device-toolchain)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.file = std::fs::read(&object).expect("it was assembled");
        for file in [source, object] {
            std::fs::remove_file(file).expect("it was written");
        }
    }

    /// The kernel: each wave takes the next record, and writes what it started with.
    fn text(&self) -> String {
        let [low, high] = [self.results as u32, (self.results >> 32) as u32];
        let scalars: String = (0..SCALARS)
            .map(|register| {
                format!(
                    "v_mov_b32 v6, s{register}\nglobal_store_dword v7, v6, s[64:65] offset:{}\n",
                    register * 4
                )
            })
            .collect();
        // Behind 256 bytes that kernels with preloaded arguments do not run.
        let skipped = if self.directives.contains("preload_length") {
            "s_trap 2\n.fill 63, 4, 0xbf800000\n"
        } else {
            ""
        };
        let Probe { directives, before, .. } = self;
        format!(
            ".amdgcn_target \"amdgcn-amd-amdhsa--gfx942\"\n.amdhsa_code_object_version 5\n.text\n.globl probe\n\
             .protected probe\n.p2align 8\n.type probe,@function\nprobe:\n{skipped}\
             v_mov_b32 v1, v0\ns_mov_b64 s[60:61], exec\ns_mov_b64 exec, 1\n\
             v_mov_b32 v2, {low:#x}\nv_mov_b32 v3, {high:#x}\nv_mov_b32 v4, 1\n\
             global_atomic_add v5, v[2:3], v4, off sc0\ns_waitcnt vmcnt(0)\nv_readfirstlane_b32 s62, v5\n\
             s_mul_i32 s62, s62, {RECORD}\ns_add_u32 s62, s62, {BEFORE}\n\
             s_add_u32 s64, {low:#x}, s62\ns_mov_b32 s65, {high:#x}\ns_addc_u32 s65, s65, 0\nv_mov_b32 v7, 0\n{scalars}\
             s_getreg_b32 s66, hwreg(HW_REG_MODE)\nv_mov_b32 v6, s66\n\
             global_store_dword v7, v6, s[64:65] offset:{MODE_AT}\ns_mov_b64 exec, s[60:61]\n\
             v_mbcnt_lo_u32_b32 v7, -1, 0\nv_mbcnt_hi_u32_b32 v7, -1, v7\nv_lshlrev_b32 v7, 2, v7\n\
             global_store_dword v7, v1, s[64:65] offset:{IDS_AT}\n{before}s_endpgm\n.size probe, .-probe\n\
             .rodata\n.p2align 6\n.amdhsa_kernel probe\n{directives}.end_amdhsa_kernel\n"
        )
    }

    /// Runs the kernel, and returns what its waves started with, in any order.
    pub fn run(&self, grid: [u32; 3], workgroup: [u32; 3]) -> Vec<Launched> {
        match self.try_run(grid, workgroup) {
            Ok(launched) => launched,
            Err(fault) => panic!("{}: {fault}", self.directives),
        }
    }

    /// Runs the kernel. Its scratch memory is what a dispatch gives it that asks for [`Probe::private_bytes`].
    pub fn try_run(&self, grid: [u32; 3], workgroup: [u32; 3]) -> Result<Vec<Launched>, Fault> {
        let device = self.running.device();
        let memory = &device.memory;
        memory.view().write(self.results, &[0; 64 << 10]).expect("it is allocated");
        let object = CodeObject::read(&self.file).expect("the assembler wrote it");
        let loaded = Loaded::load(device, object).expect("it is loaded");
        let kernel = &loaded.object.kernels["probe.kd"];
        let mut kernarg = Probe::KERNARG;
        if self.has_arguments {
            kernarg = memory.allocate(4096, Use::Pool).expect("there is memory");
            (0..8).for_each(|word| {
                memory.view().store_u32(kernarg + word * 4, 100 + word as u32).expect("it is there")
            });
        }
        let (_, private_bytes) = kernel.descriptor.memory(0, self.private_bytes).expect("it is little");
        let spec = LaunchSpec {
            private_bytes,
            packet: Probe::PACKET,
            queue: Probe::QUEUE,
            packet_id: Probe::PACKET_ID,
            ..loaded.launch_spec(kernel, kernarg, grid, workgroup)
        };
        device.run(spec).map_err(|failure| failure.fault)?;
        let waves = u64::from(memory.view().load_u32(self.results).expect("it is allocated"));
        let mut view = memory.view();
        let mut word = |at: u64| view.load_u32(self.results + at).expect("it is allocated");
        let mut record = |wave: u64| {
            let start = BEFORE + wave * RECORD;
            Launched {
                scalars: std::array::from_fn(|register| word(start + 4 * register as u64)),
                mode: word(start + MODE_AT),
                ids: std::array::from_fn(|lane| word(start + IDS_AT + 4 * lane as u64)),
            }
        };
        Ok((0..waves).map(&mut record).collect())
    }
}
