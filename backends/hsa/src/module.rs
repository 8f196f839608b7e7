//! Code of the GPU: code objects and their kernels.

use crate::attribute::{self, Answer, Attribute};
use crate::gpu::Gpu;
use crate::metadata::{self, Argument, Kind, Metadata};
use crate::runtime::Error;
use crate::sys::{self, hsa_code_object_reader_t, hsa_executable_symbol_t, hsa_executable_t};
use std::ffi::CString;
use std::sync::Arc;

/// Bytes of scratch of a lane whose needs the compiler cannot know, because it calls through pointers or recursively.
const STACK_BYTES: u32 = 16 << 10;

/// Loaded code. Unloaded when the last of its functions is dropped too.
pub struct Module {
    gpu: Arc<Gpu>,
    executable: hsa_executable_t,
    reader: hsa_code_object_reader_t,
    metadata: Metadata,
    stack_bytes: Option<u32>,
    /// What the reader reads.
    _image: Vec<u8>,
}

impl Gpu {
    /// Loads a code object. Lanes that have a stack get at least `stack_bytes` bytes of it.
    ///
    /// # Errors
    /// What the runtime says, or that the code object is damaged.
    pub fn load(self: &Arc<Self>, image: Vec<u8>, stack_bytes: Option<usize>) -> Result<Arc<Module>, Error> {
        self.check()?;
        let doing = || "loading GPU code".to_owned();
        let metadata = Metadata::read(&image).map_err(|text| Error::own(doing(), text))?;
        let narrow = |bytes| {
            u32::try_from(bytes)
                .map_err(|_| Error::own(doing(), format!("a lane's stack cannot have {bytes} bytes")))
        };
        let stack_bytes = stack_bytes.map(narrow).transpose()?;
        let (runtime, functions) = (self.runtime(), &self.runtime().functions);
        let mut module = Module {
            gpu: self.clone(),
            executable: hsa_executable_t { handle: 0 },
            reader: hsa_code_object_reader_t { handle: 0 },
            metadata,
            stack_bytes,
            _image: image,
        };
        let (bytes, size) = (module._image.as_ptr().cast(), module._image.len());
        // SAFETY: LOADED; the image lives as long as the reader, the result through the call.
        let status =
            unsafe { (functions.hsa_code_object_reader_create_from_memory)(bytes, size, &mut module.reader) };
        runtime.check(status, doing)?;
        let (profile, rounding) = (sys::HSA_PROFILE_FULL, sys::HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT);
        // SAFETY: LOADED; the result lives through the call.
        let status = unsafe {
            (functions.hsa_executable_create_alt)(profile, rounding, std::ptr::null(), &mut module.executable)
        };
        runtime.check(status, doing)?;
        let nothing = std::ptr::null_mut();
        // SAFETY: LOADED, with handles that were made just now.
        let status = unsafe {
            (functions.hsa_executable_load_agent_code_object)(
                module.executable,
                self.agent(),
                module.reader,
                std::ptr::null(),
                nothing,
            )
        };
        // Of these the contained runtime noted the reason just now; of others its last failure is a kernel's.
        let has_reason = matches!(
            status,
            sys::HSA_STATUS_ERROR_INVALID_CODE_OBJECT | sys::HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED
        );
        runtime.check(status, doing).map_err(|error| {
            match runtime.last_failure().filter(|_| has_reason) {
                Some(reason) => Error { text: format!("{}: {reason}", error.text), ..error },
                None => error,
            }
        })?;
        // SAFETY: as above.
        let status = unsafe { (functions.hsa_executable_freeze)(module.executable, std::ptr::null()) };
        runtime.check(status, doing)?;
        Ok(Arc::new(module))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let functions = &self.gpu.runtime().functions;
        if self.executable.handle != 0 {
            // SAFETY: LOADED; made by `load`, and neither a function of it nor a kernel is left.
            unsafe { (functions.hsa_executable_destroy)(self.executable) };
        }
        if self.reader.handle != 0 {
            // SAFETY: as above; the executable is gone.
            unsafe { (functions.hsa_code_object_reader_destroy)(self.reader) };
        }
    }
}

/// What a symbol of an executable is asked for.
struct Symbol<'a> {
    gpu: &'a Gpu,
    handle: hsa_executable_symbol_t,
    name: &'a str,
}

impl Symbol<'_> {
    /// Asks for a property.
    fn property<T: Answer>(&self, attribute: &Attribute<attribute::Symbol, T>) -> Result<T, Error> {
        let (runtime, mut value) = (self.gpu.runtime(), T::EMPTY);
        let answer = (&raw mut value).cast();
        // SAFETY: LOADED; by ATTRIBUTE the result has the property's type, and it lives through the call.
        let status = unsafe {
            (runtime.functions.hsa_executable_symbol_get_info)(self.handle, attribute.number(), answer)
        };
        runtime.check(status, || format!("asking for a property of {}", self.name)).map(|()| value)
    }

    fn is_kernel(&self) -> Result<bool, Error> {
        Ok(self.property(&attribute::SYMBOL_TYPE)? == sys::HSA_SYMBOL_KIND_KERNEL)
    }
}

impl Module {
    fn symbol<'a>(&'a self, name: &'a str) -> Result<Option<Symbol<'a>>, Error> {
        let doing = || format!("looking for {name:?}");
        let text = CString::new(name).map_err(|_| Error::own(doing(), "a name has no zero byte"))?;
        let (runtime, agent) = (self.gpu.runtime(), self.gpu.agent());
        let mut handle = hsa_executable_symbol_t { handle: 0 };
        // SAFETY: LOADED; name, agent and result live through the call.
        let status = unsafe {
            (runtime.functions.hsa_executable_get_symbol_by_name)(
                self.executable,
                text.as_ptr(),
                &agent,
                &mut handle,
            )
        };
        if status == sys::HSA_STATUS_ERROR_INVALID_SYMBOL_NAME {
            return Ok(None);
        }
        runtime.check(status, doing).map(|()| Some(Symbol { gpu: &self.gpu, handle, name }))
    }

    /// Returns address and length in bytes of the variable `name`, or `None` when there is none.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn variable(&self, name: &str) -> Result<Option<(u64, usize)>, Error> {
        let Some(symbol) = self.symbol(name)? else { return Ok(None) };
        if symbol.is_kernel()? {
            return Ok(None);
        }
        let address = symbol.property(&attribute::VARIABLE_ADDRESS)?;
        let bytes = symbol.property(&attribute::VARIABLE_SIZE)?;
        Ok(Some((address, bytes as usize)))
    }

    /// Returns the kernel `name`, ready to be launched, or `None` when there is none.
    ///
    /// # Errors
    /// What the runtime says, or that the kernel is none for this GPU's waves.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Option<Function>, Error> {
        let descriptor = format!("{name}.kd");
        let said = self.metadata.kernels.iter().find(|kernel| kernel.symbol == descriptor);
        let (Some(symbol), Some(kernel)) = (self.symbol(&descriptor)?, said) else { return Ok(None) };
        let refused = |text| Err(Error::own(format!("looking for the kernel {name}"), text));
        if !symbol.is_kernel()? {
            return refused("its descriptor is none".to_owned());
        }
        let wave_size = self.gpu.info().wave_size;
        if kernel.wave_size != wave_size {
            let built_for = kernel.wave_size;
            return refused(format!(
                "it was compiled for waves of {built_for} lanes, and this GPU's have {wave_size}: compile it \
                 with {}-mwavefrontsize64",
                if wave_size == 64 { "" } else { "-mno-wavefrontsize64 instead of " }
            ));
        }
        let private_bytes = symbol.property(&attribute::KERNEL_PRIVATE_SEGMENT_SIZE)?;
        Ok(Some(Function {
            name: name.to_owned(),
            object: symbol.property(&attribute::KERNEL_OBJECT)?,
            group_bytes: symbol.property(&attribute::KERNEL_GROUP_SEGMENT_SIZE)?,
            private_bytes: match self.stack_bytes {
                // Before version 5 nothing says that the compiler could not know.
                Some(bytes) if private_bytes > 0 || kernel.uses_dynamic_stack => private_bytes.max(bytes),
                None if kernel.uses_dynamic_stack => private_bytes.max(STACK_BYTES),
                _ => private_bytes,
            },
            said: kernel.clone(),
            module: self.clone(),
        }))
    }
}

/// A kernel of a module.
pub struct Function {
    module: Arc<Module>,
    name: String,
    object: u64,
    group_bytes: u32,
    private_bytes: u32,
    said: metadata::Kernel,
}

impl Function {
    /// The GPU that it is loaded on.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.module.gpu
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Vector registers that each lane needs.
    pub fn registers(&self) -> u32 {
        self.said.vector_registers.max(self.said.accumulation_registers)
    }

    /// Bytes of scratch that each lane has.
    pub fn private_bytes(&self) -> u32 {
        self.private_bytes
    }

    /// Bytes of local memory that a workgroup has besides what a launch asks for.
    pub fn group_bytes(&self) -> u32 {
        self.group_bytes
    }

    /// Most lanes that a workgroup can have.
    pub fn max_lanes(&self) -> u32 {
        self.said.max_lanes.min(self.gpu().info().workgroup_lanes)
    }

    /// Most bytes of local memory that a launch can ask for.
    pub fn max_dynamic_group_bytes(&self) -> u32 {
        self.gpu().info().workgroup_bytes.saturating_sub(self.group_bytes)
    }

    pub(crate) fn object(&self) -> u64 {
        self.object
    }

    pub(crate) fn kernarg_bytes(&self) -> u32 {
        self.said.kernarg_bytes
    }

    /// Bytes of each argument of its own.
    pub fn argument_bytes(&self) -> impl Iterator<Item = u32> {
        self.own_arguments().map(|argument| argument.bytes)
    }

    /// Returns the place of the first argument of its own that no bytes of the host's can be, and in words what it is.
    pub fn special_argument(&self) -> Option<(usize, &'static str)> {
        self.own_arguments().enumerate().find_map(|(place, argument)| match argument.kind {
            Kind::Special(what) => Some((place, what)),
            _ => None,
        })
    }

    /// Returns the only lanes in x, y and z that a workgroup can have, if its source says which.
    pub fn required_lanes(&self) -> Option<[u32; 3]> {
        self.said.required_lanes
    }

    /// Says whether it takes the address of a hostcall buffer.
    pub fn takes_hostcall_buffer(&self) -> bool {
        self.takes(Kind::HostcallBuffer)
    }

    /// Says whether it takes the address of a heap's state.
    pub fn takes_heap(&self) -> bool {
        self.takes(Kind::Heap)
    }

    /// Says whether it takes the address of a buffer to print to, or may without saying so.
    pub fn takes_printf_buffer(&self) -> bool {
        self.module.metadata.has_printf_buffer || self.takes(Kind::PrintfBuffer)
    }

    fn takes(&self, kind: Kind) -> bool {
        self.hidden_arguments().any(|argument| argument.kind == kind)
    }

    pub(crate) fn own_arguments(&self) -> impl Iterator<Item = &Argument> {
        self.said.arguments.iter().filter(|argument| argument.kind.is_own())
    }

    pub(crate) fn hidden_arguments(&self) -> impl Iterator<Item = &Argument> {
        self.said.arguments.iter().filter(|argument| !argument.kind.is_own())
    }
}
