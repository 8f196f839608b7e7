//! What the kernels of an image need of a GPU.

mod amd;
mod cubin;
mod local;
mod nvidia;

use crate::lock::FolderLock;
use crate::package::Package;
use crate::registers::{MOST_LANES, USUAL_LANES};
use crate::{BuildError, Image, Request, Target};
use std::fmt;

/// What the kernels of an image need of a GPU, and what slows them down. Displayed, it is a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The architecture that the numbers are for: `sm_90`, `gfx942`. A GPU of another one compiles PTX anew, and may need
    /// more or less.
    pub target: String,
    /// The kernels, in the order of their names.
    pub kernels: Vec<KernelReport>,
    /// Bytes of code that the kernels share on NVIDIA, where each function that is no kernel is there once. 0 on AMD.
    pub shared_code_bytes: u64,
}

/// What a kernel needs of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelReport {
    /// The kernel's name.
    pub name: String,
    /// Registers of a lane. On AMD its vector registers.
    pub registers: u32,
    /// Bytes that a lane keeps on its stack because there are too few registers, in the kernel's own code: the kernel and the
    /// functions that it calls, but for panics and calls of the host.
    pub spilled_bytes: u32,
    /// Bytes of stack that the same code takes. On AMD, those of everything that the kernel calls.
    pub stack_bytes: u64,
    /// Bytes of the kernel's own code. On AMD, most of what it calls is inlined into it.
    pub code_bytes: u64,
    /// Bytes of workgroup memory: what the kernel declares, and what hostcall keeps in it.
    pub workgroup_bytes: u64,
    /// Lanes of the workgroup that the two numbers around this one are for: the kernel's own most, or 256.
    pub lanes: u32,
    /// Waves that a multiprocessor (a compute unit) holds at once, and how many it could hold of the smallest kernel. `None` for
    /// an architecture whose limits are not known.
    pub waves: Option<(u32, u32)>,
    /// Sentences that say what slows the kernel down.
    pub warnings: Vec<String>,
}

/// Says what the kernels of an image need. `image` is what [`crate::build`] has just made of `request`. It
/// waits until no other build has the folder; where one may come between, use [`crate::build_with_report`].
///
/// # Errors
/// [`BuildError::NoReport`] for the software device, and where NVIDIA's assembler is not installed, which gives each kernel its
/// registers; and what else can go wrong while the assembler runs.
pub fn report(request: &Request, image: &Image) -> Result<Report, BuildError> {
    let package = Package::read(&request.package)?;
    let _lock = FolderLock::take(&crate::folder_of(request, &package), request.progress)?;
    of_image(request, image)
}

/// Does what [`report`] does. The caller has the folder's lock.
pub(crate) fn of_image(request: &Request, image: &Image) -> Result<Report, BuildError> {
    let (mut kernels, shared_code_bytes) = match &request.target {
        Target::Cpu => {
            let why = "kernels for the software device take no registers of a GPU: name a GPU's target, \
                       such as --target sm_90 or --target gfx942";
            return Err(BuildError::NoReport(why.into()));
        }
        Target::Nvptx { cpu } | Target::Cubin { cpu } => {
            let package = Package::read(&request.package)?;
            let listing = crate::cargo::listing(request, &package, &crate::folder_of(request, &package));
            nvidia::kernels(&listing, &image.path, cpu)?
        }
        Target::Amdgpu { cpu } => (amd::kernels(&image.path, cpu)?, 0),
    };
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Report { target: request.target.cpu().to_owned(), kernels, shared_code_bytes })
}

/// Lanes of the workgroups that a report is for, of a kernel with so many at most.
fn lanes_of(max_lanes: Option<u64>) -> u32 {
    let said = max_lanes.filter(|lanes| *lanes != 0);
    said.map_or(USUAL_LANES, |lanes| lanes.min(MOST_LANES.into()) as u32)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kernels.iter().map(|kernel| kernel.name.len()).max().unwrap_or(0).max(6);
        writeln!(
            f,
            "{:name$}  registers  spilled     stack      code  workgroup memory  lanes  waves on {}",
            "kernel", self.target
        )?;
        for kernel in &self.kernels {
            let KernelReport { registers, spilled_bytes, stack_bytes, code_bytes, .. } = kernel;
            let KernelReport { workgroup_bytes, lanes, .. } = kernel;
            let waves = match kernel.waves {
                Some((waves, most)) => format!("{waves} of {most}"),
                None => "not known".into(),
            };
            writeln!(
                f,
                "{:name$}  {registers:9}  {spilled_bytes:5} B  {stack_bytes:6} B  {code_bytes:6} B  \
                 {workgroup_bytes:14} B  {lanes:5}  {waves}",
                kernel.name
            )?;
        }
        if self.shared_code_bytes > 0 {
            writeln!(f, "{:name$}  {:>38} B, once for all kernels", "shared", self.shared_code_bytes)?;
        }
        let warnings = |kernel: &KernelReport| {
            let name = kernel.name.clone();
            kernel.warnings.clone().into_iter().map(move |warning| format!("warning: {name}: {warning}"))
        };
        self.kernels.iter().flat_map(warnings).try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_report_waits_for_other_builds() {
        let folder = std::env::temp_dir().join(format!("hostcall-report-{}", std::process::id()));
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/small_call");
        let target = Target::parse("gfx942").unwrap();
        let request = Request::new(package, target.clone()).target_dir(&folder).quiet();
        let build = FolderLock::take(&folder.join("hostcall/gfx942"), request.progress).unwrap();
        let image = Image { path: folder.join("none.co"), target, kernels: Vec::new() };
        let (read, was_read) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let reports = std::thread::spawn(move || {
            // A report reads the package before it takes the lock. How long that takes at first, of a machine
            // that is busy too, is not to be taken for a wait.
            read.send(Package::read(&request.package).map(drop)).unwrap();
            tell.send(report(&request, &image)).unwrap();
        });
        was_read.recv().unwrap().unwrap();
        let early = told.recv_timeout(Duration::from_secs(1));
        assert!(early.is_err(), "the other build has not ended: {early:?}");
        drop(build);
        assert!(matches!(told.recv().unwrap(), Err(BuildError::Io { .. })), "there is no image");
        reports.join().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_report_is_a_table() {
        let kernel = KernelReport {
            name: "gather".into(),
            registers: 40,
            spilled_bytes: 8,
            stack_bytes: 16,
            code_bytes: 5120,
            workgroup_bytes: 1088,
            lanes: 256,
            waves: Some((48, 64)),
            warnings: vec!["it is slow".into()],
        };
        let other = KernelReport { name: "a".into(), waves: None, warnings: vec![], ..kernel.clone() };
        let report =
            Report { target: "sm_90".into(), kernels: vec![other, kernel], shared_code_bytes: 70400 };
        let expected = "\
kernel  registers  spilled     stack      code  workgroup memory  lanes  waves on sm_90
a              40      8 B      16 B    5120 B            1088 B    256  not known
gather         40      8 B      16 B    5120 B            1088 B    256  48 of 64
shared                                   70400 B, once for all kernels
warning: gather: it is slow
";
        assert_eq!(report.to_string(), expected);
    }
}
