//! Code of the GPU: code objects and their kernels.

use crate::attribute::{self, Answer, Attribute};
use crate::gpu::Gpu;
use crate::metadata::{self, Argument, Kind, Metadata};
use crate::runtime::Error;
use crate::sys::{self, hsa_code_object_reader_t, hsa_executable_symbol_t, hsa_executable_t};
use hostcall_seam::{BackendError, DeviceAddress, Kernel, KernelLimits, KernelParameters, Variable};
use std::any::Any;
use std::ffi::CString;
use std::sync::Arc;

/// Bytes of scratch of a lane whose needs the compiler cannot know, because it calls through pointers or recursively.
const STACK_BYTES: u32 = 16 << 10;

/// Loaded code. Unloaded when the last of its functions is dropped too.
pub struct Module(Arc<Loaded>);

/// What modules and functions share.
struct Loaded {
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
    pub fn load(self: &Arc<Self>, image: Vec<u8>, stack_bytes: Option<usize>) -> Result<Module, Error> {
        self.check()?;
        let doing = || "loading GPU code".to_owned();
        let metadata = Metadata::read(&image).map_err(|text| Error::own(doing(), text))?;
        let narrow = |bytes| {
            u32::try_from(bytes)
                .map_err(|_| Error::own(doing(), format!("a lane's stack cannot have {bytes} bytes")))
        };
        let stack_bytes = stack_bytes.map(narrow).transpose()?;
        let (runtime, functions) = (self.runtime(), &self.runtime().functions);
        let mut module = Loaded {
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
        Ok(Module(Arc::new(module)))
    }
}

impl Drop for Loaded {
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

impl Loaded {
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
}

// SAFETY: the runtime keeps code and variables in place while the executable lives, which it does until the value and all of
// its functions are dropped.
unsafe impl hostcall_seam::Module for Module {
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError> {
        let Self(module) = self;
        let descriptor = format!("{symbol}.kd");
        let said = module.metadata.kernels.iter().find(|kernel| kernel.symbol == descriptor);
        let (Some(found), Some(kernel)) = (module.symbol(&descriptor)?, said) else { return Ok(None) };
        let refused = |text| Err(Error::own(format!("looking for the kernel {symbol}"), text).into());
        if !found.is_kernel()? {
            return refused("its descriptor is none".to_owned());
        }
        let wave_size = module.gpu.info().wave_size;
        if kernel.wave_size != wave_size {
            let built_for = kernel.wave_size;
            return refused(format!(
                "it was compiled for waves of {built_for} lanes, and this GPU's have {wave_size}: compile it \
                 with {}-mwavefrontsize64",
                if wave_size == 64 { "" } else { "-mno-wavefrontsize64 instead of " }
            ));
        }
        let private_bytes = found.property(&attribute::KERNEL_PRIVATE_SEGMENT_SIZE)?;
        Ok(Some(Arc::new(Function {
            name: symbol.to_owned(),
            object: found.property(&attribute::KERNEL_OBJECT)?,
            group_bytes: found.property(&attribute::KERNEL_GROUP_SEGMENT_SIZE)?,
            private_bytes: match module.stack_bytes {
                // Before version 5 nothing says that the compiler could not know.
                Some(bytes) if private_bytes > 0 || kernel.uses_dynamic_stack => private_bytes.max(bytes),
                None if kernel.uses_dynamic_stack => private_bytes.max(STACK_BYTES),
                _ => private_bytes,
            },
            said: kernel.clone(),
            module: module.clone(),
        })))
    }

    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError> {
        let Some(symbol) = self.0.symbol(symbol)? else { return Ok(None) };
        if symbol.is_kernel()? {
            return Ok(None);
        }
        let address = DeviceAddress::new(symbol.property(&attribute::VARIABLE_ADDRESS)?);
        let bytes = symbol.property(&attribute::VARIABLE_SIZE)? as usize;
        Ok(Some(Variable { address, bytes }))
    }
}

/// A kernel of a module.
pub(crate) struct Function {
    module: Arc<Loaded>,
    name: String,
    object: u64,
    group_bytes: u32,
    private_bytes: u32,
    said: metadata::Kernel,
}

impl Function {
    /// The function that is dispatched, if it is this GPU's.
    pub fn of<'a>(kernel: &'a Arc<dyn Kernel>, gpu: &Arc<Gpu>) -> Result<&'a Self, BackendError> {
        let kernel: &dyn Any = &**kernel;
        match kernel.downcast_ref::<Self>() {
            Some(function) if Arc::ptr_eq(&function.module.gpu, gpu) => Ok(function),
            _ => Err(BackendError::Refused("the kernel is another device's".into())),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
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
        self.said.max_lanes.min(self.module.gpu.info().workgroup_lanes)
    }

    pub fn object(&self) -> u64 {
        self.object
    }

    pub fn kernarg_bytes(&self) -> u32 {
        self.said.kernarg_bytes
    }

    fn takes(&self, kind: Kind) -> bool {
        self.hidden_arguments().any(|argument| argument.kind == kind)
    }

    pub fn own_arguments(&self) -> impl Iterator<Item = &Argument> {
        self.said.arguments.iter().filter(|argument| argument.kind.is_own())
    }

    pub fn hidden_arguments(&self) -> impl Iterator<Item = &Argument> {
        self.said.arguments.iter().filter(|argument| !argument.kind.is_own())
    }
}

// SAFETY: a function keeps its module.
unsafe impl Kernel for Function {
    fn limits(&self) -> KernelLimits {
        let workgroup_bytes = self.module.gpu.info().workgroup_bytes;
        KernelLimits {
            registers: Some(self.said.vector_registers.max(self.said.accumulation_registers)),
            stack_bytes: self.private_bytes,
            workgroup_bytes: self.group_bytes,
            max_lanes: self.max_lanes(),
            max_dynamic_workgroup_bytes: workgroup_bytes.saturating_sub(self.group_bytes),
        }
    }

    fn parameters(&self) -> Option<KernelParameters> {
        let special = |(place, argument): (usize, &Argument)| match argument.kind {
            Kind::Special(what) => Some((place, what)),
            _ => None,
        };
        Some(KernelParameters {
            bytes: self.own_arguments().map(|argument| argument.bytes).collect(),
            takes_hostcall_buffer: self.takes(Kind::HostcallBuffer),
            takes_heap: self.takes(Kind::Heap),
            // Or it may without saying so.
            takes_printf_buffer: self.module.metadata.has_printf_buffer || self.takes(Kind::PrintfBuffer),
            special: self.own_arguments().enumerate().find_map(special),
            workgroup: self.said.required_lanes,
        })
    }
}
