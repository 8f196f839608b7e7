//! `hostcall cc`: programs in C, C++ and Fortran for a GPU, made by the user's clang with LLVM's libc for GPUs.
//!
//! ```text
//!  main.c ──clang──► bitcode ─┐                       ┌─ AMD: clang's own linker ──────────────► code object
//!  sum.f90 ─flang──► bitcode ─┴─ crt1.o, libc, libm ──┤
//!                                                     └─ NVIDIA: llvm-link, opt, llc, ptxas ───► cubin, or PTX
//! ```
//!
//! Nothing of hostcall's is in the program: it calls by LLVM's protocol, and runs under any host of that. What the command
//! knows and clang does not is where libc is, and which options such a program needs.

mod arguments;
mod fortran;
mod nvidia;
mod toolchain;

use crate::{Outcome, USAGE, complain};
use arguments::{Input, Item, Language, Request, Stop};
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use toolchain::{Libc, Toolchain};

/// What the help says of the command line.
pub const HELP: &str = "\
Options of hostcall's own, among those of clang:
  --target PROCESSOR  what the program is for, such as gfx942 or sm_90; if absent this machine's GPU, and gfx942,
                      which hostcall has in software, where there is none
  --libc FOLDER       where LLVM's libc for GPUs is, if not beside clang: a folder with lib/TRIPLE/libc.a, or one with libc.a

Environment:
  HOSTCALL_CLANG      the clang to use; if absent one in PATH that has LLVM's libc beside it, or else the newest
  HOSTCALL_FLANG      the flang for files in Fortran
  HOSTCALL_LIBC       as --libc
  PTXAS               NVIDIA's assembler; without one an NVIDIA program is PTX, which the driver compiles at each start";

/// The processor in software.
const IN_SOFTWARE: &str = "gfx942";

/// A processor that programs are made for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Processor {
    Amd(String),
    Nvidia(String),
}

impl Processor {
    fn parse(name: &str) -> Option<Self> {
        let is_name = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
        match name {
            _ if name.strip_prefix("gfx").is_some_and(is_name) => Some(Self::Amd(name.into())),
            _ if name.strip_prefix("sm_").is_some_and(is_name) => Some(Self::Nvidia(name.into())),
            _ => None,
        }
    }

    /// Returns that of this machine's first GPU, or else the one in software.
    fn here() -> Self {
        let gpus = hostcall::device::devices().into_iter().filter(|device| device.unavailable.is_none());
        let opened = gpus.filter_map(|device| hostcall::Device::open(&device.name).ok());
        let found = opened.filter_map(|device| Self::parse(&device.properties().target)).next();
        found.unwrap_or_else(|| Self::Amd(IN_SOFTWARE.into()))
    }

    fn name(&self) -> &str {
        match self {
            Self::Amd(name) | Self::Nvidia(name) => name,
        }
    }

    fn triple(&self) -> &'static str {
        match self {
            Self::Amd(_) => "amdgcn-amd-amdhsa",
            Self::Nvidia(_) => "nvptx64-nvidia-cuda",
        }
    }

    /// Returns what clang and flang need to be told of the processor.
    fn options(&self) -> Vec<String> {
        let target = format!("--target={}", self.triple());
        match self {
            Self::Amd(name) => vec![target, format!("-mcpu={name}")],
            Self::Nvidia(name) => vec![target, format!("-march={name}")],
        }
    }
}

/// Makes a program, or what the options ask for on the way to one.
///
/// # Errors
/// A sentence, when something is missing or a tool cannot be run.
pub fn run(arguments: Vec<OsString>) -> Outcome {
    let request = match Request::parse(arguments) {
        Ok(request) => request,
        Err(sentence) => {
            complain(sentence);
            return Ok(USAGE);
        }
    };
    let processor = match &request.target {
        None => Processor::here(),
        Some(name) => match Processor::parse(name) {
            Some(processor) => processor,
            None => {
                complain(format!(
                    "--target {name} is no processor that programs are made for: name an AMD one such as gfx942, or an NVIDIA \
                     one such as sm_90"
                ));
                return Ok(USAGE);
            }
        },
    };
    let toolchain = Toolchain::find(&processor, request.libc.as_deref())?;
    let scratch = tempfile::Builder::new()
        .prefix("hostcall-cc-")
        .tempdir()
        .map_err(|error| format!("cannot make a folder for temporary files: {error}; TMPDIR says where"))?;
    let mut making = Making {
        request,
        processor,
        toolchain,
        scratch: scratch.path().to_owned(),
        files: 0,
        links_fortran: false,
    };
    making.make()
}

/// Why no program was made: a tool has said what is wrong, and ended with this code.
struct Failed(i32);

/// What the parts of a program are made with.
struct Making {
    request: Request,
    processor: Processor,
    toolchain: Toolchain,
    scratch: PathBuf,
    /// How many temporary files there are.
    files: usize,
    /// Objects made of Fortran are linked.
    links_fortran: bool,
}

impl Making {
    fn make(&mut self) -> Outcome {
        let made = match self.fortran()? {
            Err(failed) => Err(failed),
            Ok(()) => match (&self.processor, self.request.stop) {
                (Processor::Nvidia(name), None) => {
                    let name = name.clone();
                    nvidia::make(self, &name)?
                }
                _ => self.with_clang()?,
            },
        };
        match made {
            Ok(()) => Ok(0),
            Err(Failed(code)) => {
                if self.links_fortran && !self.toolchain.libc.has("libflang_rt.runtime.a") {
                    complain(format!(
                        "{} has no libflang_rt.runtime.a: build LLVM's flang-rt for {} there, which Fortran's I/O and many of its \
                         functions need",
                        self.toolchain.libc.library.display(),
                        self.processor.triple()
                    ));
                }
                Ok(code)
            }
        }
    }

    /// Returns the path of a new temporary file.
    fn temporary(&mut self, ending: &str) -> PathBuf {
        self.files += 1;
        self.scratch.join(format!("{}.{ending}", self.files))
    }

    /// Compiles what is in Fortran, and puts the objects in the place of the sources.
    fn fortran(&mut self) -> Result<Result<(), Failed>, Box<dyn Error>> {
        if !self.request.has(Language::Fortran) {
            return Ok(Ok(()));
        }
        let options = fortran::Options::of(&self.request)?;
        let flang = toolchain::find_flang(&self.toolchain)?;
        for word in &options.left_out {
            complain(format!("flang does not know {}: Fortran is compiled without it", word.display()));
        }
        let stop = self.request.stop;
        let (action, ending) = fortran::action(stop);
        for fortran::Source { place, path, language } in fortran::sources(&self.request) {
            let made = match stop {
                Some(_) => fortran::made(&path, self.request.output.as_deref(), ending),
                None => Some(self.temporary("o")),
            };
            let mut command = Command::new(&flang);
            command.args(["-fc1", "-triple", self.processor.triple(), "-target-cpu", self.processor.name()]);
            command.args([action, "-O2"]).args(&options.words).args(language).arg(&path);
            match &made {
                Some(made) => _ = command.arg("-o").arg(made),
                None if stop == Some(Stop::Preprocess) => _ = command.args(["-o", "-"]),
                None => {}
            }
            if self.request.is_verbose() {
                eprintln!("{command:?}");
            }
            if let Err(failed) = execute(&mut command)? {
                return Ok(Err(failed));
            }
            self.request.items[place] = match made {
                Some(object) if stop.is_none() => {
                    Item::Input(Input { path: object, language: Language::Object })
                }
                _ => Item::Options(Vec::new()),
            };
        }
        fortran::take_out(&mut self.request.items);
        self.links_fortran = stop.is_none();
        Ok(Ok(()))
    }

    /// Returns clang with what every compilation needs; the user's own options come behind these.
    fn clang(&self) -> Command {
        let Libc { include, .. } = &self.toolchain.libc;
        let mut command = Command::new(&self.toolchain.clang);
        // Not all of this matters to objects that are only linked.
        command.arg("--start-no-unused-arguments");
        command.args(self.processor.options()).args(["-O2", "-flto", "-nogpulib", "-nostdlibinc"]);
        if let Processor::Nvidia(name) = &self.processor {
            command.arg(format!("--cuda-feature=+{}", nvidia::ptx_version(name)));
        }
        // LLVM up to 22 takes `printf` of AMD's programs for OpenCL's otherwise.
        command.arg("-fno-builtin-printf");
        if self.request.has(Language::Cxx) {
            command.args(["-fno-exceptions", "-fno-rtti"]);
        }
        for folder in include {
            command.arg("-isystem").arg(folder);
        }
        command.arg("--end-no-unused-arguments");
        command
    }

    /// Has clang do all that is left: also the linking, for AMD's GPUs.
    fn with_clang(&mut self) -> Result<Result<(), Failed>, Box<dyn Error>> {
        if !self.request.items.iter().any(|item| matches!(item, Item::Input(_))) {
            return Ok(Ok(()));
        }
        let mut command = self.clang();
        for item in &self.request.items {
            command.args(item.words());
        }
        if self.request.stop.is_none() {
            self.toolchain.check_linker()?;
            // After `-x` of the user's.
            command.args(["-x", "none"]).arg(&self.toolchain.libc.startup);
            command.arg("-L").arg(&self.toolchain.libc.library).args(self.toolchain.libc.libraries());
        }
        if let Some(output) =
            self.request.output.as_deref().or(self.request.stop.is_none().then_some(Path::new("a.out")))
        {
            command.arg("-o").arg(output);
        }
        execute(&mut command)
    }
}

/// Runs a tool, which says itself what is wrong with what it is given.
fn execute(command: &mut Command) -> Result<Result<(), Failed>, Box<dyn Error>> {
    let status = command.status();
    let status =
        status.map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    Ok(if status.success() {
        Ok(())
    } else {
        Err(Failed(status.code().filter(|code| *code > 0).unwrap_or(1)))
    })
}
