//! Custom calls of XLA's, by which functions that JAX compiles call services, post and check: `hostcall/jax.py` registers the two
//! handlers. The one of `cpu` goes through the rows of its arrays on threads; the one of `CUDA` launches a kernel
//! (`kernels/rows.c`) on the stream that XLA gives, and waits for nothing.
//!
//! What is here of XLA's interface is what these handlers use of `xla/ffi/api/c_api.h`, which only ever grows: each struct says how
//! long it is.

use hostcall::Context;
use hostcall_locks::Mutex;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::size_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock, Weak};

/// Most words of a call, as `kernels/rows.c` has it.
const MOST_WORDS: usize = 4;
/// Threads of a block of the kernel, as `kernels/rows.c` has it.
const BLOCK: u64 = 128;
/// A check: the last of what rows may be, as `kernels/rows.c` has it.
const CHECK: u32 = 2;
/// Threads that go through rows on the host: lanes whose calls wait at the same time.
const MOST_THREADS: u64 = 16;
/// Bit of a value's form: its sign goes into the bits above.
const SIGNED: u32 = 0x100;
/// `XLA_FFI_ExecutionStage_EXECUTE`.
const EXECUTE: c_int = 3;
/// `XLA_FFI_Extension_Metadata`.
const METADATA: c_int = 1;
/// `XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE`: a launch may be captured into a graph.
const MAY_BE_CAPTURED: u32 = 1;
/// `XLA_FFI_Error_Code_INVALID_ARGUMENT` and `XLA_FFI_Error_Code_INTERNAL`.
const INVALID_ARGUMENT: c_int = 3;
const INTERNAL: c_int = 13;
/// `XLA_FFI_AttrType_SCALAR`, and the type of such of 64 bits.
const SCALAR: c_int = 3;
const S64: c_int = 5;

#[repr(C)]
struct Extension {
    struct_size: usize,
    kind: c_int,
    next: *mut Extension,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    struct_size: usize,
    extensions: *mut Extension,
    major: c_int,
    minor: c_int,
}

#[repr(C)]
struct Metadata {
    struct_size: usize,
    version: Version,
    traits: u32,
}

#[repr(C)]
struct MetadataExtension {
    base: Extension,
    metadata: *mut Metadata,
}

#[repr(C)]
struct ErrorArgs {
    struct_size: usize,
    extensions: *mut Extension,
    message: *const c_char,
    code: c_int,
}

#[repr(C)]
struct StreamArgs {
    struct_size: usize,
    extensions: *mut Extension,
    context: *mut c_void,
    stream: *mut c_void,
}

/// An error of XLA's, which belongs to who gets it.
type XlaError = *mut c_void;

/// The beginning of `XLA_FFI_Api`.
#[repr(C)]
struct Api {
    struct_size: usize,
    extensions: *mut Extension,
    version: Version,
    internal: *const c_void,
    create_error: unsafe extern "C" fn(*mut ErrorArgs) -> XlaError,
    error_details: *const c_void,
    destroy_error: *const c_void,
    register: *const c_void,
    get_stream: unsafe extern "C" fn(*mut StreamArgs) -> XlaError,
}

#[repr(C)]
struct Buffer {
    struct_size: usize,
    extensions: *mut Extension,
    kind: c_int,
    data: *mut c_void,
    rank: i64,
    dims: *const i64,
}

/// `XLA_FFI_Args` and `XLA_FFI_Rets`.
#[repr(C)]
struct Values {
    struct_size: usize,
    extensions: *mut Extension,
    count: i64,
    kinds: *const c_int,
    values: *const *const Buffer,
}

#[repr(C)]
struct Bytes {
    at: *const u8,
    len: usize,
}

#[repr(C)]
struct Scalar {
    kind: c_int,
    value: *const i64,
}

#[repr(C)]
struct Attributes {
    struct_size: usize,
    extensions: *mut Extension,
    count: i64,
    kinds: *const c_int,
    names: *const *const Bytes,
    values: *const *const Scalar,
}

#[repr(C)]
pub struct CallFrame {
    struct_size: usize,
    extensions: *mut Extension,
    api: *const Api,
    context: *mut c_void,
    stage: c_int,
    arguments: Values,
    results: Values,
    attributes: Attributes,
}

/// `struct rows` of `kernels/rows.c`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rows {
    context: u64,
    method: u64,
    count: u64,
    words: [*const c_void; MOST_WORDS],
    mask: *const c_void,
    out: *mut c_void,
    otherwise: u64,
    forms: [u32; MOST_WORDS],
    word_count: u32,
    out_bytes: u32,
    what: u32,
    reserved: u32,
}

// SAFETY: it refers to arrays of XLA's, of which each thread has rows of its own.
unsafe impl Sync for Rows {}

unsafe extern "C" {
    /// Does every `step`th row from `first` on.
    fn hostcall_rows(rows: *const Rows, first: u64, step: u64);
}

/// A device's name and a context of it, while that is open.
type Noted = (Arc<str>, Weak<Context>);

/// Contexts that were made, by their addresses, which never change. Who follows an address of another device would read memory that
/// is not there.
static CONTEXTS: Mutex<Option<HashMap<u64, Noted>>> = Mutex::new(None);

/// Notes a context, for calls that name its address.
pub fn note(device: &str, context: &Arc<Context>) {
    let noted = (device.into(), Arc::downgrade(context));
    CONTEXTS.lock().get_or_insert_default().insert(context.address().get(), noted);
}

/// What went wrong, and its code.
type Failure = (c_int, String);

fn refused<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err((INVALID_ARGUMENT, text.into()))
}

impl Values {
    /// # Safety
    /// XLA gave it.
    unsafe fn buffers(&self) -> Vec<&Buffer> {
        // SAFETY: by the caller's promise there are so many, each of which lies there. Values are buffers alone.
        (0..self.count as usize).map(|i| unsafe { &**self.values.add(i) }).collect()
    }
}

impl Attributes {
    /// Returns the bits of a number, by its name.
    ///
    /// # Safety
    /// XLA gave it.
    unsafe fn number(&self, name: &str) -> Result<u64, Failure> {
        for i in 0..self.count as usize {
            // SAFETY: by the caller's promise there are so many names, kinds and values.
            let (kind, called, value) = unsafe {
                let called = &**self.names.add(i);
                let called = std::slice::from_raw_parts(called.at, called.len);
                (*self.kinds.add(i), called, *self.values.add(i))
            };
            if called == name.as_bytes() && kind == SCALAR {
                // SAFETY: it is a scalar.
                let scalar = unsafe { &*value };
                if scalar.kind != S64 {
                    return refused(format!("the attribute `{name}` is no number of 64 bits"));
                }
                // SAFETY: it has 64 bits, as it says.
                return Ok(unsafe { scalar.value.read_unaligned() } as u64);
            }
        }
        refused(format!("there is no attribute `{name}`"))
    }
}

impl Buffer {
    /// Returns how many values it has.
    fn count(&self) -> u64 {
        // SAFETY: XLA's buffers have `rank` sizes.
        (0..self.rank as usize).map(|i| unsafe { *self.dims.add(i) } as u64).product()
    }

    /// Returns how its values lie there.
    fn form(&self) -> Result<u32, Failure> {
        Ok(match self.kind {
            // Of `XLA_FFI_DataType`: PRED and U8, U16, U32 and F32, U64, S64 and F64, S8, S16, S32.
            1 | 6 => 1,
            7 => 2,
            8 | 11 => 4,
            9 | 5 | 12 => 8,
            2 => 1 | SIGNED,
            3 => 2 | SIGNED,
            4 => 4 | SIGNED,
            kind => return refused(format!("no word of a call is of XLA's type {kind}")),
        })
    }
}

impl Rows {
    /// Returns what a call asks for: the words, the mask, and where the result goes, if there is one.
    ///
    /// # Safety
    /// XLA gave the frame, to execute it.
    unsafe fn of(frame: &CallFrame) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        let (arguments, results) = unsafe { (frame.arguments.buffers(), frame.results.buffers()) };
        // SAFETY: the caller's promise.
        let number = |name| unsafe { frame.attributes.number(name) };
        let Some((mask, words)) = arguments.split_last().filter(|(_, words)| words.len() <= MOST_WORDS)
        else {
            return refused("a call has up to 4 words and a mask");
        };
        let count = mask.count();
        if mask.form()? != 1 || arguments.iter().chain(&results).any(|array| array.count() != count) {
            return refused("words, mask and result have a value for each call");
        }
        let mut rows = Self {
            context: number("context")?,
            method: number("method")?,
            count,
            words: [null(); MOST_WORDS],
            mask: mask.data,
            out: null_mut(),
            otherwise: number("otherwise")?,
            forms: [1; MOST_WORDS],
            word_count: words.len() as u32,
            out_bytes: 0,
            what: number("what")? as u32,
            reserved: 0,
        };
        for (i, word) in words.iter().enumerate() {
            (rows.words[i], rows.forms[i]) = (word.data, word.form()?);
        }
        // Posts and checks have one that nobody reads, so that there is an array for others to wait for.
        match results[..] {
            [out] => (rows.out, rows.out_bytes) = (out.data, out.form()? & 0xff),
            _ => return refused("a call has one result"),
        }
        if rows.what > CHECK {
            return refused("it is no call, post or check");
        }
        Ok(rows)
    }

    /// Has whoever looks for calls look now, and returns the name of the context's device.
    fn attend(&self) -> Result<Arc<str>, Failure> {
        let noted = CONTEXTS.lock().as_ref().and_then(|contexts| contexts.get(&self.context).cloned());
        let Some((device, context)) = noted else {
            return refused(
                "no context of this process has this address: an array or a constant stands in its place",
            );
        };
        if let Some(context) = context.upgrade() {
            // Of one that was closed calls end anyway.
            let _ = context.attend();
        }
        Ok(device)
    }
}

/// Handles a frame: says what the handler is, or runs it.
///
/// # Safety
/// XLA gave the frame.
unsafe fn handled(
    frame: *mut CallFrame,
    traits: u32,
    run: impl FnOnce(&CallFrame) -> Result<(), Failure>,
) -> XlaError {
    // SAFETY: the caller's promise. XLA asks what a handler is by the first extension, and of frames without one runs it.
    unsafe {
        let extension = (*frame).extensions;
        if !extension.is_null() && (*extension).kind == METADATA {
            let metadata = (*extension.cast::<MetadataExtension>()).metadata;
            // What is used of the interface is in all of its versions.
            (*metadata).version = (*(*frame).api).version;
            (*metadata).traits = traits;
            return null_mut();
        }
    }
    // SAFETY: it lies there until this returns.
    let frame = unsafe { &*frame };
    let ran = catch_unwind(AssertUnwindSafe(|| run(frame)));
    let ran = ran.unwrap_or_else(|_| Err((INTERNAL, "hostcall panicked, which is a bug in hostcall".into())));
    let Err((code, text)) = ran else { return null_mut() };
    let message = CString::new(format!("hostcall: {}", text.replace('\0', " "))).expect("no zeros are left");
    let (struct_size, extensions) = (size_of::<ErrorArgs>(), null_mut());
    let mut args = ErrorArgs { struct_size, extensions, message: message.as_ptr(), code };
    // SAFETY: XLA copies the text.
    unsafe { ((*frame.api).create_error)(&mut args) }
}

unsafe extern "C" fn on_cpu(frame: *mut CallFrame) -> XlaError {
    let run = |frame: &CallFrame| {
        if frame.stage != EXECUTE {
            return Ok(());
        }
        // SAFETY: XLA gave the frame.
        let rows = unsafe { Rows::of(frame) }?;
        let device = rows.attend()?;
        if &*device != "cpu" {
            return refused(format!(
                "the context is of {device}, and JAX runs this on cpu: see jax.default_device"
            ));
        }
        let threads = rows.count.min(MOST_THREADS);
        // SAFETY: the arrays have as many values, as was checked, and each thread writes others.
        let lanes = |first| unsafe { hostcall_rows(&rows, first, threads) };
        std::thread::scope(|scope| {
            (1..threads).for_each(|first| _ = scope.spawn(move || lanes(first)));
            if threads > 0 {
                lanes(0);
            }
        });
        Ok(())
    };
    // SAFETY: XLA gave the frame.
    unsafe { handled(frame, 0, run) }
}

/// The driver's functions that launch a kernel of another's.
struct Driver {
    stream_context: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int,
    push: unsafe extern "C" fn(*mut c_void) -> c_int,
    pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    device: unsafe extern "C" fn(*mut c_int) -> c_int,
    load: unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int,
    function: unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int,
    launch: unsafe extern "C" fn(
        *mut c_void,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        *mut c_void,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> c_int,
    text: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
/// PTX of the kernel.
static CODE: OnceLock<CString> = OnceLock::new();
/// The kernel by the driver's contexts, as addresses.
static KERNELS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

/// Returns a function of an open library.
///
/// # Safety
/// The function of this name has the type `F`, a pointer to a function.
unsafe fn symbol<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open, and a pointer to the function is an `F` by the caller's promise.
    unsafe {
        let found = libc::dlsym(library, name.as_ptr());
        (!found.is_null()).then(|| std::mem::transmute_copy::<*mut c_void, F>(&found))
    }
}

impl Driver {
    fn open() -> Option<Self> {
        // SAFETY: the driver's library may be opened at any time, and is never closed.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the driver's functions of these names have these types.
        unsafe {
            Some(Self {
                stream_context: symbol(library, c"cuStreamGetCtx")?,
                push: symbol(library, c"cuCtxPushCurrent_v2")?,
                pop: symbol(library, c"cuCtxPopCurrent_v2")?,
                device: symbol(library, c"cuCtxGetDevice")?,
                load: symbol(library, c"cuModuleLoadData")?,
                function: symbol(library, c"cuModuleGetFunction")?,
                launch: symbol(library, c"cuLaunchKernel")?,
                text: symbol(library, c"cuGetErrorString")?,
            })
        }
    }

    fn check(&self, code: c_int, what: &str) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let mut text = null();
        // SAFETY: the driver's texts are constants.
        let text = unsafe {
            (self.text)(code, &mut text);
            if text.is_null() { c"unknown" } else { CStr::from_ptr(text) }
        };
        Err((INTERNAL, format!("{what}: {} (error {code} of the driver)", text.to_string_lossy())))
    }

    /// Returns the kernel of the driver's context that is current, and loads it if it was not.
    fn kernel(&self, context: *mut c_void) -> Result<*mut c_void, Failure> {
        let mut kernels = KERNELS.lock();
        let kernels = kernels.get_or_insert_default();
        if let Some(kernel) = kernels.get(&context.addr()) {
            return Ok(std::ptr::with_exposed_provenance_mut(*kernel));
        }
        let Some(code) = CODE.get() else { return refused("hostcall.jax was not imported") };
        let (mut module, mut kernel) = (null_mut(), null_mut());
        // SAFETY: the code is PTX, and ends with a zero; the context is current.
        unsafe {
            self.check((self.load)(&mut module, code.as_ptr().cast()), "loading hostcall's kernel")?;
            let found = (self.function)(&mut kernel, module, c"hostcall_rows".as_ptr());
            self.check(found, "looking for hostcall's kernel")?;
        }
        kernels.insert(context.addr(), kernel.expose_provenance());
        Ok(kernel)
    }

    /// Does something while the context of a stream is current.
    fn with_context(
        &self,
        stream: *mut c_void,
        run: impl FnOnce(*mut c_void) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut context = null_mut();
        // SAFETY: the stream is XLA's, which is open.
        unsafe {
            self.check((self.stream_context)(stream, &mut context), "asking a stream for its context")?;
            self.check((self.push)(context), "entering a context")?;
        }
        let ran = run(context);
        // SAFETY: it was pushed.
        unsafe { (self.pop)(&mut context) };
        ran
    }
}

unsafe extern "C" fn on_cuda(frame: *mut CallFrame) -> XlaError {
    let run = |frame: &CallFrame| {
        let Some(driver) = DRIVER.get_or_init(Driver::open) else {
            return refused("the driver libcuda.so.1 is not there");
        };
        let (struct_size, extensions, context) = (size_of::<StreamArgs>(), null_mut(), frame.context);
        let mut args = StreamArgs { struct_size, extensions, context, stream: null_mut() };
        // SAFETY: XLA gave the frame, and with it the function.
        let error = unsafe { ((*frame.api).get_stream)(&mut args) };
        if !error.is_null() {
            // A stage without a stream: the kernel is loaded when it is executed.
            return if frame.stage == EXECUTE {
                Err((INTERNAL, "XLA gives no stream".into()))
            } else {
                Ok(())
            };
        }
        driver.with_context(args.stream, |context| {
            let kernel = driver.kernel(context)?;
            if frame.stage != EXECUTE {
                return Ok(());
            }
            // SAFETY: XLA gave the frame.
            let mut rows = unsafe { Rows::of(frame) }?;
            let (of, mut ordinal) = (rows.attend()?, 0);
            // SAFETY: a context is current.
            driver.check(unsafe { (driver.device)(&mut ordinal) }, "asking for the device")?;
            if *of != *format!("cuda:{ordinal}") && !(ordinal == 0 && &*of == "cuda") {
                return refused(format!("the context is of {of}, and JAX runs this on cuda:{ordinal}"));
            }
            let blocks = rows.count.div_ceil(BLOCK);
            let Ok(blocks) = c_uint::try_from(blocks) else { return refused("there are too many calls") };
            if blocks == 0 {
                return Ok(());
            }
            let mut parameters = [(&raw mut rows).cast::<c_void>()];
            let (none, parameters) = (null_mut(), parameters.as_mut_ptr());
            let threads = BLOCK as c_uint;
            // SAFETY: the kernel takes a `struct rows` by value; its arrays have as many values, as was checked, and are the
            // stream's until what is behind it there runs.
            let launched = unsafe {
                (driver.launch)(kernel, blocks, 1, 1, threads, 1, 1, 0, args.stream, parameters, none)
            };
            driver.check(launched, "launching hostcall's kernel")
        })
    };
    // SAFETY: XLA gave the frame.
    unsafe { handled(frame, MAY_BE_CAPTURED, run) }
}

/// Returns the addresses of the handlers for `cpu` and `CUDA`. `code` is the PTX of the kernel, without which the latter fails.
#[pyfunction]
pub fn xla_handlers(code: Option<String>) -> (usize, usize) {
    if let Some(code) = code.and_then(|code| CString::new(code).ok()) {
        let _ = CODE.set(code);
    }
    (on_cpu as *const () as usize, on_cuda as *const () as usize)
}
