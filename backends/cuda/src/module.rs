//! Code of the GPU: modules and their functions.

use crate::gpu::Handle;
use crate::quiet::when_quiet;
use crate::{Error, Gpu};
use cudarc::driver::sys::{self, CUfunction_attribute, CUjit_option};
use hostcall_seam::{BackendError, DeviceAddress, Kernel, KernelLimits, KernelParameters, Variable};
use std::any::Any;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Loaded code. Unloaded when the last of its functions is dropped too and no kernel runs.
pub struct Module(pub(crate) Arc<Loaded>);

/// What modules and functions share.
pub(crate) struct Loaded {
    gpu: Arc<Gpu>,
    handle: Handle<sys::CUmod_st>,
}

impl Gpu {
    /// Loads PTX text, a cubin or a fat binary. May wait for the kernels that run.
    ///
    /// # Errors
    /// What the driver says, and its compiler; that the image is another kind of file, or is cut.
    pub fn load(self: &Arc<Self>, mut image: Vec<u8>) -> Result<Module, Error> {
        refuse_other(&image)?;
        // Text ends in a zero; binaries know their length.
        image.push(0);
        let mut log = Log::new();
        let [(buffer, at), (size, bytes)] = log.options();
        let (mut options, mut values) = ([buffer, size], [at, bytes]);
        let mut handle = std::ptr::null_mut();
        // SAFETY: LOADED; the image ends as its kind must, options and log live through the call.
        let loaded = self.run(doing, || unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            sys::cuModuleLoadDataEx(&mut handle, image.as_ptr().cast(), 2, options, values)
        });
        loaded.map_err(|error| log.explain(error))?;
        let loaded = Arc::new(Loaded { gpu: self.clone(), handle: Handle(handle) });
        loaded.load_functions()?;
        Ok(Module(loaded))
    }
}

fn doing() -> String {
    "loading GPU code".into()
}

/// Refuses what is no image, and one that is cut.
pub(crate) fn refuse_other(image: &[u8]) -> Result<(), Error> {
    let (name, text) = match is_whole(image) {
        Some(true) => return Ok(()),
        Some(false) => ("a damaged image", "parts of the file are missing: build it again"),
        None => ("no image", "it is no PTX, no cubin and no fat binary: build one of these"),
    };
    Err(Error { doing: doing(), name: name.into(), text: text.into(), is_fault: false })
}

/// Where the driver's compiler and linker write what they find wrong.
pub(crate) struct Log(Vec<u8>);

impl Log {
    pub fn new() -> Self {
        Self(vec![0; 4096])
    }

    /// The options that name it, with their values: they hold while it lives.
    pub fn options(&mut self) -> [(CUjit_option, *mut c_void); 2] {
        [
            (CUjit_option::CU_JIT_ERROR_LOG_BUFFER, self.0.as_mut_ptr().cast()),
            (CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, self.0.len() as *mut c_void),
        ]
    }

    /// The error with what was written.
    pub fn explain(&self, mut error: Error) -> Error {
        let written = String::from_utf8_lossy(self.0.split(|byte| *byte == 0).next().unwrap_or_default());
        if !written.trim().is_empty() {
            error.text = format!("{}: {}", error.text, written.trim());
        }
        error
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let (gpu, handle) = (self.gpu.clone(), self.handle);
        when_quiet(move || {
            let module = handle;
            // SAFETY: LOADED; loaded by `load`, and neither a function of it nor a kernel is left.
            gpu.release(|| unsafe { sys::cuModuleUnload(module.0) });
            gpu
        });
    }
}

/// How fat binaries begin.
const FAT_BINARY: [u8; 4] = 0xba55_ed50u32.to_le_bytes();

/// Says whether an image has all the bytes that it says it has, of which the driver reads as many: it is not
/// told how many there are. `None` if it is no kind of image that is told by its bytes alone; one with
/// addresses in it is none.
fn is_whole(image: &[u8]) -> Option<bool> {
    let end = match image {
        [0x7f, b'E', b'L', b'F', ..] => elf_end(image),
        image if image.starts_with(&FAT_BINARY) => fat_binary_end(image),
        // Text ends in the zero that is put behind it.
        [first, ..] if first.is_ascii_graphic() || first.is_ascii_whitespace() => Some(0),
        _ => return None,
    };
    Some(end.is_some_and(|end| end <= image.len() as u64))
}

/// Returns the little-endian number of so many bytes there.
fn number(image: &[u8], at: u64, bytes: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(image.get(at..at.checked_add(bytes)?)?);
    Some(u64::from_le_bytes(number))
}

/// Where a fat binary ends; `None` if that is not there.
fn fat_binary_end(image: &[u8]) -> Option<u64> {
    const HEADER_BYTES_AT: u64 = 6;
    const BYTES_AT: u64 = 8;
    number(image, HEADER_BYTES_AT, 2)?.checked_add(number(image, BYTES_AT, 8)?)
}

/// Where the last part of an ELF file ends; `None` if its tables are not there, or it is no file of 64 bits
/// in this byte order.
fn elf_end(image: &[u8]) -> Option<u64> {
    const CLASS_64_LITTLE: [u8; 2] = [2, 1];
    /// Types of sections that have bytes in the file. Some of NVIDIA's own have none.
    const WITH_BYTES: [u64; 5] = [
        1, // PROGBITS
        2, // SYMTAB
        3, // STRTAB
        4, // RELA
        9, // REL
    ];
    if image.get(4..6)? != CLASS_64_LITTLE {
        return None;
    }
    let (segments, sections) = (number(image, 32, 8)?, number(image, 40, 8)?);
    let [segment_bytes, segment_count, section_bytes, section_count] =
        [number(image, 54, 2)?, number(image, 56, 2)?, number(image, 58, 2)?, number(image, 60, 2)?];
    let section_count = match section_count {
        // There are more than such a number can say.
        0 if sections != 0 => number(image, sections.checked_add(32)?, 8)?,
        count => count,
    };
    if segment_count > 0 && segment_bytes < 56 || section_count > 0 && section_bytes < 64 {
        return None;
    }
    let mut end = 64;
    for at in 0..segment_count {
        let segment = segments.checked_add(at.checked_mul(segment_bytes)?)?;
        let (start, bytes) = (number(image, segment.checked_add(8)?, 8)?, number(image, segment + 32, 8)?);
        end = end.max(start.checked_add(bytes)?).max(segment.checked_add(segment_bytes)?);
    }
    for at in 0..section_count {
        let section = sections.checked_add(at.checked_mul(section_bytes)?)?;
        let (kind, start) = (number(image, section.checked_add(4)?, 4)?, number(image, section + 24, 8)?);
        end = end.max(section.checked_add(section_bytes)?);
        if WITH_BYTES.contains(&kind) {
            end = end.max(start.checked_add(number(image, section + 32, 8)?)?);
        }
    }
    Some(end)
}

/// Turns the driver's answer that there is no such symbol into `None`.
fn found_or_none<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.name == "CUDA_ERROR_NOT_FOUND" => Ok(None),
        Err(error) => Err(error),
    }
}

/// A name as the driver takes it.
fn c_name(name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error {
        doing: format!("looking for {name:?}"),
        name: "no symbol".into(),
        text: "a name has no zero byte".into(),
        is_fault: false,
    })
}

impl Loaded {
    /// The kernels, where the driver tells (12.4 and later).
    fn kernels(&self) -> Result<Vec<sys::CUfunction>, Error> {
        if !self.gpu.loads_functions() {
            return Ok(Vec::new());
        }
        let doing = || "listing the functions of GPU code".to_string();
        let mut count = 0;
        // SAFETY: LOADED; the driver has this call, and the result lives through it.
        self.gpu.run(doing, || unsafe { sys::cuModuleGetFunctionCount(&mut count, self.handle.0) })?;
        let mut functions = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: as above, with room for `count` functions.
        self.gpu.run(doing, || unsafe {
            sys::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, self.handle.0)
        })?;
        Ok(functions)
    }

    /// Bytes of stack of the deepest kernel whose calls the linker could count; 0 for a driver that does not list kernels.
    pub fn stack_bytes(&self) -> Result<u32, Error> {
        let (mut most, stack) = (0, CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
        for function in self.kernels()? {
            let mut bytes = 0;
            let doing = || "looking at a kernel's stack".to_string();
            // SAFETY: LOADED, with a function of the driver's; the result lives through the call.
            self.gpu.run(doing, || unsafe { sys::cuFuncGetAttribute(&mut bytes, stack, function) })?;
            most = most.max(bytes);
        }
        Ok(most.try_into().unwrap_or(0))
    }

    /// Loads the code of all functions. What the driver loads later, at a function's first use, waits for the kernels that
    /// run, and these may wait for what comes after the load.
    fn load_functions(&self) -> Result<(), Error> {
        for function in self.kernels()? {
            let doing = || "loading the functions of GPU code".to_string();
            // SAFETY: LOADED, with a function of the driver's.
            self.gpu.run(doing, || unsafe { sys::cuFuncLoad(function) })?;
        }
        Ok(())
    }
}

// SAFETY: the driver keeps code and variables in place while the module is loaded, which it is until the value and all of
// its functions are dropped.
unsafe impl hostcall_seam::Module for Module {
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError> {
        Ok(self.function(symbol)?.map(|function| Arc::new(function) as Arc<dyn Kernel>))
    }

    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError> {
        let (name, mut address, mut bytes) = (c_name(symbol)?, 0, 0);
        let doing = || format!("looking for the variable {symbol}");
        // SAFETY: LOADED; name and results live through the call.
        let found = self.0.gpu.run(doing, || unsafe {
            sys::cuModuleGetGlobal_v2(&mut address, &mut bytes, self.0.handle.0, name.as_ptr())
        });
        let variable = found.map(|()| Variable { address: DeviceAddress::new(address), bytes });
        Ok(found_or_none(variable)?)
    }
}

impl Module {
    /// Returns the kernel `name`, ready to be launched, or `None` when there is none.
    pub(crate) fn function(&self, name: &str) -> Result<Option<Function>, Error> {
        let Loaded { gpu, handle: module } = &*self.0;
        let (symbol, mut handle) = (c_name(name)?, std::ptr::null_mut());
        let doing = || format!("looking for the kernel {name}");
        // SAFETY: LOADED; name and result live through the call.
        let found =
            gpu.run(doing, || unsafe { sys::cuModuleGetFunction(&mut handle, module.0, symbol.as_ptr()) });
        if found_or_none(found)?.is_none() {
            return Ok(None);
        }
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: LOADED; the result lives through the call.
            gpu.run(doing, || unsafe { sys::cuFuncGetAttribute(&mut value, attribute, handle) })?;
            Ok(value as u32)
        };
        use CUfunction_attribute::*;
        let shared_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let function = Function {
            module: self.0.clone(),
            handle: Handle(handle),
            registers: attribute(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            stack_bytes: attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes,
            most_lanes: attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            architecture: attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            most_shared_bytes: gpu.info().block_shared_bytes.saturating_sub(shared_bytes),
        };
        // Without it a launch gets 48 KiB at most.
        let (limit, bytes) = (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function.most_shared_bytes);
        // SAFETY: LOADED, with a function of the driver's.
        gpu.run(doing, || unsafe { sys::cuFuncSetAttribute(handle, limit, bytes as i32) })?;
        Ok(Some(function))
    }
}

/// A kernel of a module.
pub(crate) struct Function {
    module: Arc<Loaded>,
    handle: Handle<sys::CUfunc_st>,
    registers: u32,
    stack_bytes: u32,
    shared_bytes: u32,
    most_lanes: u32,
    most_shared_bytes: u32,
    architecture: u32,
}

impl Function {
    /// The function that is dispatched, if it is this GPU's.
    pub fn of<'a>(kernel: &'a Arc<dyn Kernel>, gpu: &Arc<Gpu>) -> Result<&'a Self, BackendError> {
        let kernel: &dyn Any = &**kernel;
        match kernel.downcast_ref::<Self>() {
            Some(function) if Arc::ptr_eq(function.gpu(), gpu) => Ok(function),
            _ => Err(BackendError::Refused("the kernel is another device's".into())),
        }
    }

    /// The module, which stays loaded while somebody has it.
    pub fn module(&self) -> &Arc<Loaded> {
        &self.module
    }

    pub fn handle(&self) -> sys::CUfunction {
        self.handle.0
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.module.gpu
    }

    /// The compute capability that it was written for, ten times the number: 90 for 9.0. It may run on later GPUs.
    pub fn architecture(&self) -> u32 {
        self.architecture
    }

    /// Blocks of so many lanes, each with so many bytes of dynamic shared memory, that the GPU runs at once; 0 when it runs
    /// none.
    pub fn resident_blocks(&self, lanes: u32, shared_bytes: u32) -> Result<u32, Error> {
        let mut blocks = 0;
        let doing = || "counting a kernel's blocks".to_string();
        let lanes = i32::try_from(lanes).unwrap_or(i32::MAX);
        let shared_bytes = shared_bytes as usize;
        // SAFETY: LOADED, with a function of the driver's; the result lives through the call.
        let count = || unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.handle.0, lanes, shared_bytes)
        };
        self.gpu().run(doing, count)?;
        Ok(u32::try_from(blocks).unwrap_or(0) * self.gpu().info().multiprocessors)
    }
}

// SAFETY: a function keeps its module.
unsafe impl Kernel for Function {
    fn limits(&self) -> KernelLimits {
        KernelLimits {
            registers: Some(self.registers),
            stack_bytes: self.stack_bytes,
            workgroup_bytes: self.shared_bytes,
            max_lanes: self.most_lanes,
            max_dynamic_workgroup_bytes: self.most_shared_bytes,
        }
    }

    /// Bytes of each parameter; `None` where the driver does not say (before CUDA 12.4).
    fn parameters(&self) -> Option<KernelParameters> {
        if !self.gpu().loads_functions() {
            return None;
        }
        let doing = || "looking at a kernel's parameters".to_string();
        let mut bytes = Vec::new();
        loop {
            let (mut at, mut size) = (0, 0);
            // SAFETY: LOADED, with a function of the driver's, which has this call as those that load functions; the results
            // live through it.
            let found = self.gpu().run(doing, || unsafe {
                sys::cuFuncGetParamInfo(self.handle.0, bytes.len(), &mut at, &mut size)
            });
            match found {
                Ok(()) => bytes.push(u32::try_from(size).ok()?),
                // There is none with this number.
                Err(error) if error.name == "CUDA_ERROR_INVALID_VALUE" => {
                    return Some(KernelParameters { bytes, ..KernelParameters::default() });
                }
                Err(_) => return None,
            }
        }
    }

    fn resident_workgroups(&self, lanes: u32, workgroup_bytes: u32) -> Option<u32> {
        self.resident_blocks(lanes, workgroup_bytes).ok().filter(|blocks| *blocks > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with a segment and three sections: none, one with bytes, and one of NVIDIA's without.
    fn elf() -> Vec<u8> {
        const SEGMENT: usize = 64;
        const SECTIONS: usize = SEGMENT + 56;
        const CONTENT: usize = SECTIONS + 3 * 64;
        let mut image = vec![0; CONTENT + 16];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(32, &(SEGMENT as u64).to_le_bytes());
        put(40, &(SECTIONS as u64).to_le_bytes());
        put(54, &[56, 0, 1, 0, 64, 0, 3, 0]);
        put(SEGMENT + 8, &(CONTENT as u64).to_le_bytes());
        put(SEGMENT + 32, &8u64.to_le_bytes());
        put(SECTIONS + 64 + 4, &1u32.to_le_bytes());
        put(SECTIONS + 64 + 24, &(CONTENT as u64 + 8).to_le_bytes());
        put(SECTIONS + 64 + 32, &8u64.to_le_bytes());
        put(SECTIONS + 128 + 4, &0x7000_000au32.to_le_bytes());
        put(SECTIONS + 128 + 24, &(CONTENT as u64 + 16).to_le_bytes());
        put(SECTIONS + 128 + 32, &4096u64.to_le_bytes());
        image
    }

    #[test]
    fn elf_files_are_whole_or_not() {
        let image = elf();
        assert_eq!(is_whole(&image), Some(true));
        for len in 4..image.len() {
            assert_eq!(is_whole(&image[..len]), Some(false), "{len} bytes");
        }
        // Whatever a number in it says, nothing panics, and what is said to be whole ends in the image.
        for at in 4..image.len() {
            for bytes in [[0xff; 8], [0x7f; 8], (-8i64).to_le_bytes()] {
                let mut image = image.clone();
                let end = image.len().min(at + 8);
                image[at..end].copy_from_slice(&bytes[..end - at]);
                let end = elf_end(&image);
                assert_eq!(is_whole(&image), Some(end.is_some_and(|end| end <= image.len() as u64)), "{at}");
            }
        }
        // The number of sections is in the first of them, and there are not so many.
        let mut image = elf();
        image[60..62].fill(0);
        image[64 + 56 + 32..][..8].copy_from_slice(&3u64.to_le_bytes());
        assert_eq!(is_whole(&image), Some(true));
        image[64 + 56 + 32..][..8].fill(0xff);
        assert_eq!(is_whole(&image), Some(false));
    }

    #[test]
    fn other_images_are_whole_or_not() {
        let fat = |bytes: u64| {
            let header = [&FAT_BINARY[..], &[1, 0, 16, 0], &bytes.to_le_bytes(), &[0; 24]];
            header.concat()
        };
        assert_eq!(is_whole(&fat(24)), Some(true));
        assert_eq!([25, u64::MAX].map(|bytes| is_whole(&fat(bytes))), [Some(false); 2]);
        assert_eq!(is_whole(&fat(24)[..15]), Some(false));
        for text in [".version 7.0", "// PTX", "\n.version 7.0"] {
            assert_eq!(is_whole(text.as_bytes()), Some(true));
        }
        // What programs of CUDA's runtime have beside a fat binary: it has an address.
        let with_address = [&0x4662_43b1u32.to_le_bytes()[..], &[1, 0, 0, 0], &[8; 16]].concat();
        assert_eq!((is_whole(&with_address), is_whole(b""), is_whole(&[0])), (None, None, None));
    }
}
