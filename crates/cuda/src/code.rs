//! Code of the GPU: modules, their functions, and launches of those.

use crate::gpu::{Handle, Stream};
use crate::quiet::{Busy, when_quiet};
use crate::{Error, Gpu};
use cudarc::driver::sys::{self, CUfunction_attribute, CUjit_option, CUresult};
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Loaded code. Unloaded when the last of its functions is dropped too and no kernel runs.
pub struct Module {
    gpu: Arc<Gpu>,
    handle: Handle<sys::CUmod_st>,
}

impl Gpu {
    /// Loads PTX text, a cubin or a fat binary. May wait for the kernels that run.
    ///
    /// # Errors
    /// What the driver says, and its compiler.
    pub fn load(self: &Arc<Self>, mut image: Vec<u8>) -> Result<Arc<Module>, Error> {
        // Text ends in a zero; binaries know their length.
        image.push(0);
        let doing = || "loading GPU code".to_string();
        let mut log = vec![0u8; 4096];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut handle = std::ptr::null_mut();
        // SAFETY: LOADED; the image ends as its kind must, options and log live through the call.
        let loaded = self.run(doing, || unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            sys::cuModuleLoadDataEx(&mut handle, image.as_ptr().cast(), 2, options, values)
        });
        loaded.map_err(|mut error| {
            let log = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default());
            if !log.trim().is_empty() {
                error.text = format!("{}: {}", error.text, log.trim());
            }
            error
        })?;
        Ok(Arc::new(Module { gpu: self.clone(), handle: Handle(handle) }))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let (gpu, handle) = (self.gpu.clone(), self.handle);
        when_quiet(move || {
            let module = handle;
            // SAFETY: LOADED; loaded by `load`, and neither a function of it nor a kernel is left.
            gpu.release(|| unsafe { sys::cuModuleUnload(module.0) });
        });
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

impl Module {
    /// Address and length in bytes of the variable `name`.
    fn find(&self, name: &str) -> Result<(u64, usize), Error> {
        let (symbol, mut address, mut len) = (c_name(name)?, 0, 0);
        let doing = || format!("looking for the variable {name}");
        // SAFETY: LOADED; name and results live through the call.
        self.gpu.run(doing, || unsafe {
            sys::cuModuleGetGlobal_v2(&mut address, &mut len, self.handle.0, symbol.as_ptr())
        })?;
        Ok((address, len))
    }

    /// The bytes that the variable `name` has now.
    ///
    /// # Errors
    /// When the module has no such variable.
    pub fn variable(&self, name: &str) -> Result<Vec<u8>, Error> {
        let (address, len) = self.find(name)?;
        let mut bytes = vec![0; len];
        // SAFETY: the driver says that the variable lies there; the module keeps it.
        unsafe { self.gpu.read(address, &mut bytes) }?;
        Ok(bytes)
    }

    /// Sets the first bytes of the variable `name`.
    ///
    /// # Errors
    /// When the module has no such variable, or it is shorter.
    pub fn set_variable(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let (address, len) = self.find(name)?;
        if bytes.len() > len {
            return Err(Error {
                doing: format!("setting the variable {name}"),
                name: "out of bounds".into(),
                text: format!("it has {len} bytes, not {}", bytes.len()),
                is_fault: false,
            });
        }
        // SAFETY: the driver says that the variable lies there; the module keeps it.
        unsafe { self.gpu.write(address, bytes) }
    }

    /// Writes to where the pointer `name` of the module points.
    ///
    /// # Errors
    /// When the module has no such variable, or the driver finds no memory there.
    ///
    /// # Safety
    /// The module keeps `bytes.len()` bytes there.
    pub unsafe fn write_where_pointed(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let pointer = self.variable(name)?;
        let address = pointer.first_chunk().map(|address| u64::from_le_bytes(*address));
        let address = address.filter(|address| *address != 0).ok_or_else(|| Error {
            doing: format!("following the pointer {name}"),
            name: "no pointer".into(),
            text: "it points to nothing".into(),
            is_fault: false,
        })?;
        // SAFETY: the caller vouches for the memory.
        unsafe { self.gpu.write(address, bytes) }
    }

    /// The kernel `name`, ready to be launched.
    ///
    /// # Errors
    /// When the module has no such kernel.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, Error> {
        let (symbol, mut handle) = (c_name(name)?, std::ptr::null_mut());
        let doing = || format!("looking for the kernel {name}");
        // SAFETY: LOADED; name and result live through the call.
        self.gpu.run(doing, || unsafe {
            sys::cuModuleGetFunction(&mut handle, self.handle.0, symbol.as_ptr())
        })?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: LOADED; the result lives through the call.
            self.gpu.run(doing, || unsafe { sys::cuFuncGetAttribute(&mut value, attribute, handle) })?;
            Ok(value as u32)
        };
        use CUfunction_attribute::*;
        let shared_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let function = Function {
            module: self.clone(),
            handle: Handle(handle),
            registers: attribute(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            stack_bytes: attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes,
            most_lanes: attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            most_shared_bytes: self.gpu.info().block_shared_bytes.saturating_sub(shared_bytes),
        };
        // Without it a launch gets 48 KiB at most.
        let (limit, bytes) = (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function.most_shared_bytes);
        // SAFETY: LOADED, with a function of the driver's.
        self.gpu.run(doing, || unsafe { sys::cuFuncSetAttribute(handle, limit, bytes as i32) })?;
        Ok(function)
    }
}

/// A kernel of a module.
pub struct Function {
    module: Arc<Module>,
    handle: Handle<sys::CUfunc_st>,
    registers: u32,
    stack_bytes: u32,
    shared_bytes: u32,
    most_lanes: u32,
    most_shared_bytes: u32,
}

impl Function {
    /// The GPU that it is loaded on.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.module.gpu
    }

    /// Registers that each lane needs: they bound the lanes of a block.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Bytes of stack that each lane needs, as far as the compiler knows: not for what it calls through pointers.
    pub fn stack_bytes(&self) -> u32 {
        self.stack_bytes
    }

    /// Bytes of shared memory that a block has besides what a launch asks for.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Most lanes that a block can have.
    pub fn most_lanes(&self) -> u32 {
        self.most_lanes
    }

    /// Most bytes of dynamic shared memory that a block can have.
    pub fn most_shared_bytes(&self) -> u32 {
        self.most_shared_bytes
    }

    /// Starts `blocks` blocks of `lanes` lanes, both in x, y and z, with `shared_bytes` bytes of dynamic shared memory
    /// for each block, on a stream of their own.
    ///
    /// # Errors
    /// When the GPU has no room for such a block, or a kernel failed before.
    ///
    /// # Safety
    /// `arguments` holds an address for each of the kernel's parameters, of as many bytes as it has, and what
    /// they refer to is the kernel's to use until the launch has ended.
    pub unsafe fn launch(
        &self,
        blocks: [u32; 3],
        lanes: [u32; 3],
        shared_bytes: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<Launch, Error> {
        let gpu = self.gpu();
        let launch = Launch {
            stream: gpu.take_stream()?,
            _busy: Busy::new(),
            _module: self.module.clone(),
            gpu: gpu.clone(),
        };
        let ([x, y, z], [across, down, deep], stream) = (lanes, blocks, launch.stream.0);
        let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        let doing = || "launching the kernel".to_string();
        // SAFETY: LOADED; the caller vouches for the arguments, which the driver copies.
        gpu.run(doing, || unsafe {
            sys::cuLaunchKernel(
                self.handle.0,
                across,
                down,
                deep,
                x,
                y,
                z,
                shared_bytes,
                stream,
                arguments,
                extra,
            )
        })?;
        Ok(launch)
    }
}

/// A launch on its way. Dropping it waits for its end.
pub struct Launch {
    stream: Stream,
    _module: Arc<Module>,
    /// Dropped after the module, so that the last launch unloads it.
    _busy: Busy,
    gpu: Arc<Gpu>,
}

impl Launch {
    /// Waits for the end, at most `timeout`; `None` when it passed first. Asks often at first and then less,
    /// so that a kernel's end is noticed within an eighth of its time or half a millisecond.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), Error>> {
        let begin = Instant::now();
        loop {
            let mut running = false;
            // SAFETY: LOADED, with the launch's own stream.
            let result = self.gpu.run(
                || "running the kernel".into(),
                || unsafe {
                    let result = sys::cuStreamQuery(self.stream.0);
                    running = result == CUresult::CUDA_ERROR_NOT_READY;
                    if running { CUresult::CUDA_SUCCESS } else { result }
                },
            );
            if !running {
                return Some(result);
            }
            let elapsed = begin.elapsed();
            if timeout.is_some_and(|timeout| elapsed >= timeout) {
                return None;
            }
            if elapsed < Duration::from_micros(50) {
                std::hint::spin_loop();
            } else {
                std::thread::sleep((elapsed / 8).min(Duration::from_micros(500)));
            }
        }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if let Some(Ok(())) = self.wait(None) {
            self.gpu.give_back_stream(self.stream);
        }
    }
}
