use crate::contraction::with_contraction;
use crate::order::with_order;
use crate::package::Package;
use crate::panics::with_panics;
use crate::reached::without_unreached;
use crate::registers::{self, MOST_LANES};
use crate::rust_std::stacks;
use crate::spared::with_answers;
use crate::stack::with_stack_bytes;
use crate::{BuildError, Target, assembler};
use hostcall_abi::launch::{
    KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX, KernelInfo, MAIN_KERNEL, kernel_name,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A built program.
#[derive(Clone, Debug)]
pub struct Image {
    /// The file: a shared object, PTX text, a cubin or a code object.
    pub path: PathBuf,
    /// What it was built for.
    pub target: Target,
    /// Names of its kernels, sorted; never empty.
    pub kernels: Vec<String>,
}

impl Image {
    /// Copies what cargo built to a place where it stays as it is until the next build.
    pub(crate) fn take(
        built: &Path,
        folder: &Path,
        package: &Package,
        target: &Target,
    ) -> Result<Self, BuildError> {
        let bytes = fs::read(built).map_err(io(built))?;
        let kernels = kernel_names(&bytes);
        if kernels.is_empty() {
            return Err(BuildError::NoKernel { name: package.name.clone() });
        }

        let bytes = match target {
            Target::Nvptx { .. } | Target::Cubin { .. } => finished(built)?.into_bytes(),
            _ => bytes,
        };
        let path = folder.join(&package.library).with_extension(target.extension());
        fs::create_dir_all(folder).map_err(io(folder))?;
        // Renamed into place: a process that has the old image mapped keeps the old file.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let _new = Unfinished(&new);
        fs::write(&new, bytes).map_err(io(&new))?;
        if let Target::Cubin { cpu } = target {
            let ptx = new.with_extension("ptx");
            let _ptx = Unfinished(&ptx);
            fs::rename(&new, &ptx).map_err(io(&ptx))?;
            assembler::assemble(&ptx, cpu, &new)?;
        }
        fs::rename(&new, &path).map_err(io(&path))?;
        Ok(Self { path, target: target.clone(), kernels })
    }

    /// Checks that the image has a `main` to run.
    ///
    /// # Errors
    /// [`BuildError::NoMain`].
    pub fn require_main(&self) -> Result<(), BuildError> {
        if self.kernels.iter().any(|name| name == MAIN_KERNEL) {
            Ok(())
        } else {
            Err(BuildError::NoMain { image: self.path.clone() })
        }
    }
}

/// A file that does not stay: what it was made for has failed, or it has its place under another name.
struct Unfinished<'a>(&'a Path);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // Mostly there is none.
        let _ = fs::remove_file(self.0);
    }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |error| BuildError::Io { path, error }
}

/// The PTX of an image, from the compiler's, which lies at `built`, with LLVM's listing of the same program beside it.
pub(crate) fn finished(built: &Path) -> Result<String, BuildError> {
    let text = |path: &Path| -> Result<String, BuildError> {
        Ok(String::from_utf8_lossy(&fs::read(path).map_err(io(path))?).into_owned())
    };
    // Without the listing all orders are the strongest.
    let listing = text(&built.with_extension("ll")).unwrap_or_default();
    let ptx = stacks::ptx::with_stacks(&with_panics(&with_order(&text(built)?, &listing)));
    let ptx = without_unreached(&with_contraction(&ptx));
    Ok(with_stack_bytes(&with_bounds(&with_answers(&ptx))))
}

/// Names of the kernels whose infos the image exports, in a symbol table as in PTX text.
fn kernel_names(image: &[u8]) -> Vec<String> {
    let prefix = KERNEL_INFO_SYMBOL_PREFIX.as_bytes();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let names: BTreeSet<String> = image
        .windows(prefix.len())
        .enumerate()
        .filter(|(_, window)| *window == prefix)
        .map(|(at, _)| image[at..].iter().take_while(|byte| is_name(byte)))
        .map(|symbol| symbol.map(|&byte| char::from(byte)).collect::<String>())
        .filter_map(|symbol| kernel_name(&symbol).map(str::to_owned))
        .collect();
    names.into_iter().collect()
}

/// PTX whose every kernel says how many lanes its workgroups have at most and how many registers a lane gets.
///
/// The lanes are what the kernel was written with, or [`MOST_LANES`]. Without that, NVIDIA's
/// compiler may give a lane up to 255 registers, of which a multiprocessor has enough for 256 lanes, and larger workgroups
/// cannot start. One workgroup a multiprocessor is enough: without that it may aim at two, with half of the registers.
fn with_bounds(ptx: &str) -> String {
    let registers = registers::bounds(ptx);
    let mut bounded = String::with_capacity(ptx.len() + 8192);
    let mut entry = None;
    for line in ptx.split_inclusive('\n') {
        bounded += line;
        if let Some((_, rest)) = line.split_once(".entry ") {
            entry = rest.split('(').next().map(str::trim);
        }
        if let Some(name) = entry
            && line.trim_end().ends_with(')')
        {
            let lanes = name.strip_prefix(KERNEL_SYMBOL_PREFIX).and_then(|name| max_lanes(ptx, name));
            bounded += &format!(".maxntid {}, 1, 1\n.minnctapersm 1\n", lanes.unwrap_or(MOST_LANES));
            if let Some(registers) = registers.get(name) {
                bounded += &format!(".maxnreg {}\n", registers::as_many_workgroups(*registers, lanes));
            }
            entry = None;
        }
    }
    bounded
}

/// [`KernelInfo::max_lanes`] of a kernel in PTX, where it is not 0.
fn max_lanes(ptx: &str, name: &str) -> Option<u32> {
    let lanes = info_field(ptx, name, std::mem::offset_of!(KernelInfo, max_lanes))?;
    u32::try_from(lanes).ok().filter(|lanes| (1..=MOST_LANES).contains(lanes))
}

/// A field of a kernel's [`KernelInfo`] in PTX, which leaves zeros at a variable's end out.
pub(crate) fn info_field(ptx: &str, name: &str, offset: usize) -> Option<u64> {
    let symbol = format!(" {KERNEL_INFO_SYMBOL_PREFIX}{name}[");
    let (_, values) = ptx[ptx.find(&symbol)?..].lines().next()?.split_once('{')?;
    let values =
        values.trim_end_matches(['}', ';', ' ']).split(',').map(|value| value.trim().parse::<u8>().ok());
    let info: Vec<u8> = values.collect::<Option<_>>()?;
    Some((0..8).fold(0, |field, i| field | u64::from(info.get(offset + i).copied().unwrap_or(0)) << (8 * i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_bounded_and_functions_are_not() {
        let ptx =
            ".visible .entry a(\n\t.param .b64 a_0\n)\n{\n}\n.func f(\n)\n{\n}\n.visible .entry b()\n{\n}\n";
        let bound = ")\n.maxntid 1024, 1, 1\n.minnctapersm 1\n.maxnreg 32\n";
        let expected =
            ptx.replace("a_0\n)\n", &format!("a_0\n{bound}")).replace("b()\n", &format!("b({bound}"));
        assert_eq!(with_bounds(ptx), expected);
    }

    #[test]
    fn kernels_are_bounded_by_what_they_say() {
        let zeros = "0, ".repeat(56);
        let info = format!(".visible .global .align 8 .b8 hostcall_kernel_info_a[64] = {{{zeros}0, 1}};\n");
        let ptx = format!("{info}.visible .entry hostcall_kernel_a()\n{{\n}}\n");
        let bound = ".maxntid 256, 1, 1\n.minnctapersm 1\n.maxnreg 32\n";
        assert_eq!(with_bounds(&ptx), ptx.replace("a()\n", &format!("a()\n{bound}")));
    }

    #[test]
    fn an_image_that_cannot_be_put_into_place_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("hostcall-image-{}", std::process::id()));
        let built = folder.join("built");
        fs::create_dir_all(folder.join("image/p.so")).unwrap();
        fs::write(&built, "hostcall_kernel_info_a__00000000").unwrap();
        let package = Package {
            manifest: folder.join("Cargo.toml"),
            name: "p".into(),
            library: "p".into(),
            program: None,
            target_dir: folder.clone(),
            has_registry_dependencies: false,
            sources: BTreeSet::new(),
        };
        let taken = Image::take(&built, &folder.join("image"), &package, &Target::Cpu);
        assert!(matches!(taken, Err(BuildError::Io { .. })), "a folder has the image's name");
        let left: Vec<_> =
            fs::read_dir(folder.join("image")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["p.so"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn kernels_are_found_in_symbol_tables_and_in_text() {
        let table = b"\0hostcall_kernel_main__00000000\0hostcall_kernel_info_main__00000000\0\
                      hostcall_kernel_info_add_2__0000000a\0x";
        assert_eq!(kernel_names(table), ["add_2", "main"]);
        let ptx = b".visible .global .align 8 .b8 hostcall_kernel_info_wc__89abcdef[56] = {1};\n\
                    // hostcall_kernel_info_wc__89abcdef";
        assert_eq!(kernel_names(ptx), ["wc"]);
        assert!(kernel_names(b"hostcall_kernel_info_").is_empty());
    }
}
