//! NVIDIA: what the assembler says of its functions, and how many waves have room on a multiprocessor.

use super::cubin::{self, Code};
use super::local::indexes_its_frame;
use super::{KernelReport, lanes_of};
use crate::calls::Program;
use crate::image::{finished, info_field};
use crate::ptx::{Function, functions};
use crate::registers::OwnFunctions;
use crate::{BuildError, assembler};
use hostcall_abi::launch::{
    KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX, KernelInfo, RESERVED_WORKGROUP_BYTES, kernel_name,
    shared_bytes,
};
use std::collections::HashMap;
use std::fs;
use std::mem::offset_of;
use std::path::Path;

/// Reports the kernels of a PTX listing, and how many bytes of code they share. Files are made beside the image.
pub(super) fn kernels(
    listing: &Path,
    image: &Path,
    cpu: &str,
) -> Result<(Vec<KernelReport>, u64), BuildError> {
    assembler::find(cpu).map_err(|missing| {
        BuildError::NoReport(match missing {
            BuildError::NoToolchain { missing, .. } => {
                format!("the assembler gives kernels their registers, and it is not there: {missing}")
            }
            other => other.to_string(),
        })
    })?;
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| BuildError::Io { path, error }
    };
    let ptx = finished(listing)?;
    let [source, cubin] =
        ["ptx", "cubin"].map(|end| image.with_extension(format!("report-{}.{end}", std::process::id())));
    fs::write(&source, &ptx).map_err(io(&source))?;
    let said = assembler::assemble(&source, cpu, &cubin);
    let code = said.is_ok().then(|| fs::read(&cubin).map_err(io(&cubin)));
    // What is left of a file that cannot be removed is in nobody's way.
    let _ = fs::remove_file(&source);
    let _ = fs::remove_file(&cubin);
    let said = said?;
    Ok(of_ptx(&ptx, &said, &cubin::functions(&code.transpose()?.unwrap_or_default()), cpu))
}

/// What the assembler says of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    frame_bytes: u64,
    spilled_bytes: u32,
    /// What it declares in workgroup memory.
    workgroup_bytes: u64,
}

/// Reads what the assembler says, by the functions' symbols.
fn needs(said: &str) -> HashMap<&str, Needs> {
    let mut needs: HashMap<&str, Needs> = HashMap::new();
    let (mut entry, mut function) = ("", "");
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next().unwrap_or_default();
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim();
        } else if line.contains("bytes stack frame") {
            let needs = needs.entry(function).or_default();
            needs.frame_bytes = before(line, " bytes stack frame").unwrap_or(0);
            needs.spilled_bytes = before(line, " bytes spill stores").unwrap_or(0) as u32;
        } else if line.contains(" registers") && line.contains("Used ") {
            let needs = needs.entry(entry).or_default();
            needs.workgroup_bytes = before(line, " bytes smem").unwrap_or(0);
        }
    }
    needs
}

/// The number before some words.
fn before(line: &str, words: &str) -> Option<u64> {
    line[..line.find(words)?].rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn of_ptx(ptx: &str, said: &str, code: &HashMap<String, Code>, cpu: &str) -> (Vec<KernelReport>, u64) {
    let needs = needs(said);
    let all: Vec<Function<'_>> = functions(ptx).collect();
    let program = Program::new(ptx, &all);
    let is_kernel = |symbol: &str| program.functions.get(symbol).is_some_and(|function| function.is_entry);
    let shared = code.iter().filter(|(symbol, _)| !is_kernel(symbol)).map(|(_, code)| code.bytes).sum();
    let functions: HashMap<&str, Function<'_>> =
        functions(ptx).map(|function| (function.name, function)).collect();
    let entries = functions.values().filter_map(|entry| {
        let symbol = entry.name.strip_prefix(KERNEL_SYMBOL_PREFIX).filter(|_| entry.is_entry)?;
        let name = kernel_name(&format!("{KERNEL_INFO_SYMBOL_PREFIX}{symbol}"))?.to_owned();
        let field = |offset| info_field(ptx, symbol, offset);
        let lanes = lanes_of(field(offset_of!(KernelInfo, max_lanes)));
        let own = OwnFunctions::of(entry, &functions).functions;
        let of_own =
            |what: fn(&Needs) -> u64| own.iter().filter_map(|f| needs.get(f.name)).map(what).sum::<u64>();
        let needs = needs.get(entry.name).copied().unwrap_or_default();
        let workgroup_bytes = needs.workgroup_bytes
            + field(offset_of!(KernelInfo, workgroup_memory_bytes)).unwrap_or(0)
            + RESERVED_WORKGROUP_BYTES as u64
            + u64::from(shared_bytes(lanes.div_ceil(32)));
        // The linker gives a kernel as many as the most that anything takes which it can reach.
        let reached = program.reached_by(entry, |_| true);
        let registers = reached.iter().filter_map(|name| code.get(*name)).map(|code| code.registers);
        let registers = registers.max().unwrap_or(0);
        let stack_bytes = of_own(|needs| needs.frame_bytes);
        let spilled_bytes = of_own(|needs| needs.spilled_bytes.into()) as u32;
        let mut warnings = Vec::new();
        for function in own.iter().filter(|function| stack_bytes > 0 && indexes_its_frame(function)) {
            warnings.push(array_warning(function.name, function.is_entry));
        }
        if spilled_bytes > 0 {
            warnings.push(format!(
                "{spilled_bytes} bytes of values have no registers, of which there are {registers}"
            ));
        }
        let waves =
            Multiprocessor::of(cpu).map(|unit| (unit.waves(lanes, registers, workgroup_bytes), unit.waves));
        Some(KernelReport {
            name,
            registers,
            spilled_bytes,
            stack_bytes,
            code_bytes: code.get(entry.name).map_or(0, |code| code.bytes),
            workgroup_bytes,
            lanes,
            waves,
            warnings,
        })
    });
    (entries.collect(), shared)
}

/// Says that an array lies in local memory, and whose it is.
fn array_warning(symbol: &str, is_entry: bool) -> String {
    let path = path_of(symbol);
    let of_library = path.first().is_some_and(|name| LIBRARIES.contains(name));
    let place = if is_entry { String::new() } else { format!(" of {}", path.join("::")) };
    if of_library {
        return format!(
            "an array{place}, which is the library's, lies in local memory, on the stack: it costs time where that \
             function is called, and memory else (`cos` and `sin` have one for large angles, `fast_cos` and `fast_sin` none)"
        );
    }
    format!(
        "an array{place} lies in local memory, on the stack, because it is indexed by what is known only while \
         the kernel runs: give it indices that are constants once loops are unrolled, or put it into workgroup \
         memory (`cos` and `sin` bring one of their own for large angles, `fast_cos` and `fast_sin` none)"
    )
}

/// Crates whose functions are no user's.
const LIBRARIES: [&str; 8] = [
    "alloc",
    "compiler_builtins",
    "core",
    "hostcall_abi",
    "hostcall_channel",
    "hostcall_device",
    "hostcall_format",
    "libm",
];

/// Returns the names in a function's mangled path, the crate first; the symbol itself where it has none.
fn path_of(symbol: &str) -> Vec<&str> {
    // The older way begins with the path and ends with a hash; the newer one has the crate's number before the path.
    let mut rest = match symbol.strip_prefix("_ZN") {
        Some(path) => path,
        None => symbol.find("Cs").and_then(|at| Some(symbol[at..].split_once('_')?.1)).unwrap_or_default(),
    };
    let mut path = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0) {
        let len = rest[..digits].parse().unwrap_or(usize::MAX);
        let Some(name) = rest[digits..].get(..len) else { break };
        rest = &rest[digits + len..];
        if !(name.len() == 17 && name.starts_with('h')) {
            path.push(name);
        }
    }
    if path.is_empty() { vec![symbol] } else { path }
}

/// What a multiprocessor has (CUDA C++ Programming Guide, "Compute Capabilities").
struct Multiprocessor {
    /// Waves that it holds at once.
    waves: u32,
    workgroups: u32,
    workgroup_bytes: u64,
    /// Bytes of workgroup memory that each workgroup takes besides its own.
    reserved_bytes: u64,
}

/// Each of its four parts has so many registers, and a wave lies in one part.
const PARTS: u32 = 4;
const REGISTERS_OF_A_PART: u32 = 16_384;

/// Workgroup memory is given out in such pieces.
const WORKGROUP_PIECE: u64 = 256;

impl Multiprocessor {
    fn of(cpu: &str) -> Option<Self> {
        let (waves, workgroups, kib) = match cpu.trim_end_matches(['a', 'f']) {
            "sm_70" | "sm_72" => (64, 32, 96),
            "sm_75" => (32, 16, 64),
            "sm_80" => (64, 32, 164),
            "sm_86" => (48, 16, 100),
            "sm_87" => (48, 16, 164),
            "sm_89" => (48, 24, 100),
            "sm_90" | "sm_100" | "sm_103" => (64, 32, 228),
            "sm_101" | "sm_110" => (48, 24, 228),
            "sm_120" | "sm_121" => (48, 24, 100),
            _ => return None,
        };
        let reserved_bytes = if matches!(cpu, "sm_70" | "sm_72" | "sm_75") { 0 } else { 1024 };
        Some(Self { waves, workgroups, workgroup_bytes: kib << 10, reserved_bytes })
    }

    /// Waves that it holds of a kernel's workgroups.
    fn waves(&self, lanes: u32, registers: u32, workgroup_bytes: u64) -> u32 {
        let waves = lanes.div_ceil(32).max(1);
        let of_wave = registers.max(1).next_multiple_of(8) * 32;
        let by_registers = REGISTERS_OF_A_PART / of_wave * PARTS / waves;
        let bytes = (workgroup_bytes + self.reserved_bytes).max(1).next_multiple_of(WORKGROUP_PIECE);
        let by_memory = u32::try_from(self.workgroup_bytes / bytes).unwrap_or(u32::MAX);
        by_registers.min(by_memory).min(self.workgroups).min(self.waves / waves) * waves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_said_to_be_whose_it_is() {
        let old = "_ZN4libm4math14rem_pio2_large14rem_pio2_large17h0123456789abcdefE";
        assert_eq!(path_of(old), ["libm", "math", "rem_pio2_large", "rem_pio2_large"]);
        let new = "_RNvNtNtCs9xZ3_15hostcall_device4math6double3cos";
        assert_eq!(path_of(new), ["hostcall_device", "math", "double", "cos"]);
        assert_eq!(path_of("memcpy"), ["memcpy"]);
        assert!(
            array_warning(new, false)
                .contains("of hostcall_device::math::double::cos, which is the library's")
        );
        let own = array_warning("_ZN5waves6gather17h0123456789abcdefE", false);
        assert!(own.starts_with("an array of waves::gather lies in local memory"), "{own}");
        assert!(array_warning("hostcall_kernel_a", true).starts_with("an array lies in local memory"));
    }

    const SAID: &str = "\
ptxas info    : 16 bytes gmem
ptxas info    : Compiling entry function 'hostcall_kernel_sum__0123abcd' for 'sm_90'
ptxas info    : Function properties for hostcall_kernel_sum__0123abcd
    64 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 64 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compile time = 1.000 ms
ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for panics
    800 bytes stack frame, 400 bytes spill stores, 4 bytes spill loads
";

    const PTX: &str = "\
.visible .global .align 8 .b8 hostcall_kernel_info_sum__0123abcd[72] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, \
128};
.func helper()
{
\tret;
}
.func panics()
{
\ttrap;
}
.visible .entry hostcall_kernel_sum__0123abcd()
{
\tcall.uni helper, ();
\tcall.uni panics, ();
\tret;
}
";

    #[test]
    fn what_the_assembler_says_is_read() {
        let code = [
            ("hostcall_kernel_sum__0123abcd", 640, 38),
            ("helper", 128, 40),
            ("panics", 256, 32),
            ("else", 512, 64),
        ];
        let code = code.map(|(name, bytes, registers)| (name.to_owned(), Code { bytes, registers }));
        let (reports, shared) = of_ptx(PTX, SAID, &HashMap::from(code), "sm_90");
        let report = &reports[0];
        assert_eq!((report.code_bytes, shared), (640, 128 + 256 + 512));
        assert_eq!(report.name, "sum");
        assert_eq!((report.registers, report.spilled_bytes, report.stack_bytes), (40, 16, 72));
        assert_eq!(report.lanes, 128);
        assert_eq!(report.workgroup_bytes, 512 + 1024 + 64 + u64::from(shared_bytes(4)));
        assert_eq!(report.warnings, ["16 bytes of values have no registers, of which there are 40"]);
    }

    #[test]
    fn waves_are_bounded_by_what_runs_out_first() {
        let waves =
            |cpu, lanes, registers, bytes| Multiprocessor::of(cpu).unwrap().waves(lanes, registers, bytes);
        assert_eq!(waves("sm_90", 256, 32, 0), 64);
        assert_eq!(waves("sm_90", 256, 40, 0), 48);
        assert_eq!(waves("sm_90", 1024, 64, 0), 32);
        assert_eq!(waves("sm_90", 1024, 72, 0), 0);
        assert_eq!(waves("sm_90", 256, 255, 0), 8);
        assert_eq!(waves("sm_90", 32, 32, 0), 32);
        assert_eq!(waves("sm_90", 256, 32, 100 << 10), 16);
        assert_eq!(waves("sm_75", 256, 32, 0), 32);
        assert!(Multiprocessor::of("sm_88").is_none());
    }
}
