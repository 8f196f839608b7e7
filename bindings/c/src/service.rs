//! Services whose handlers are the caller's functions.

use crate::error::{Failure, hostcall_status};
use crate::functions::{Argument, functions};
use crate::handle::{State, get, hostcall_free_function, text, values};
use hostcall::server::{WavePlace, static_name};
use hostcall::service::{Reply, Request, Service};
use hostcall::{Caller, Device};
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::word::CHECK_BITS;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

/// A method of a service: the number by which kernels call it, and its name for reports. The library keeps one copy of each
/// name as long as the process runs. A header of `hostcall bind` has these of a service as `PRICES_METHODS`, say.
#[repr(C)]
pub struct hostcall_method {
    /// From 1 to 65,535. Services of hostcall's have those up to 255. The methods of a Rust service `#[service(number = N)]`
    /// have N, N + 1 and so on in the trait's order. Without a number of its own it has one from 32,768 on, which comes from
    /// its name: give it one that hosts in other languages serve.
    ///
    /// Above these 16 bits are the 20 of the types' hash, as HOSTCALL_METHOD(number, check) of hostcall_device.h puts them: calls
    /// with others end with HOSTCALL_CALL_TYPE_MISMATCH, and a line on the standard error says so. With 0 there, calls of all
    /// types reach the handler.
    pub number: u64,
    /// As "Inventory::find".
    pub name: *const c_char,
}

/// Who calls, as far as the device can be believed. It lives until the handler returns.
pub struct hostcall_caller<'a> {
    caller: Caller,
    /// Its wave may have ended, and another one may have its slot.
    is_post: bool,
    places: &'a Places,
}

/// Where in its launch a caller is.
#[repr(C)]
pub struct hostcall_place {
    /// The workgroup in the grid, in x, y and z.
    pub workgroup: [u32; 3],
    /// The index of the wave in its workgroup.
    pub wave: u32,
    /// The kernel's name, cut after 127 bytes.
    pub kernel: [c_char; 128],
}

/// A lane's call. All of it lives until the handler returns.
#[repr(C)]
pub struct hostcall_call<'a> {
    /// The method's place among the service's methods, from 0.
    pub method: u32,
    /// The launch's number, which hostcall_launch_id returns too; 0 when it is not known.
    pub launch: u32,
    /// The index of the lane in its wave.
    pub lane: u32,
    /// Nobody waits for the reply.
    pub is_post: bool,
    /// `word_count` words: the values of the parameters in order, with the length in bytes for a `&str` or a `&[u8]`, and
    /// nothing for a `&mut [u8]`. Where the method has no check bits, nobody has compared its types with the kernel's: a handler
    /// looks how many there are.
    pub words: *const u64,
    /// How many words there are.
    pub word_count: usize,
    /// `byte_count` bytes: those of the `&str` and `&[u8]` parameters, one after the other.
    pub bytes: *const u8,
    /// How many bytes there are.
    pub byte_count: usize,
    /// How many bytes of reply the caller takes: the length of its `&mut [u8]`, 0 without one.
    pub reply_capacity: usize,
    /// Who calls.
    pub caller: *const hostcall_caller<'a>,
}

/// Where a handler puts its reply. It lives until the handler returns; the handler's thread uses it.
pub struct hostcall_reply<'a>(&'a mut dyn Reply);

/// Answers a call. Returns 0, or a number of its own with which the kernel's call fails (CallError::Failed in Rust). It must
/// return: a C++ exception that leaves it, or a longjmp out of it, ends the process or is undefined.
pub type hostcall_handler = Option<
    unsafe extern "C" fn(state: *mut c_void, call: &hostcall_call<'_>, reply: &mut hostcall_reply<'_>) -> i32,
>;

/// A service: methods that kernels call, and the function that answers.
#[repr(C)]
pub struct hostcall_service {
    /// `method_count` methods.
    pub methods: *const hostcall_method,
    /// How many methods there are.
    pub method_count: usize,
    /// Answers the calls: of several lanes at the same time, on threads of the library's. With `is_inline` these are the
    /// threads that find calls, of which a device has one unless it is told otherwise.
    pub handler: hostcall_handler,
    /// What the handler gets. Several threads use it at the same time.
    pub state: *mut c_void,
    /// Frees `state`, once, when no handler runs any more; it may be NULL.
    pub free_state: hostcall_free_function,
    /// The handler never waits and takes microseconds, and runs at once on the thread that finds calls.
    pub is_inline: bool,
}

functions! {
    /// Puts where the caller is into `place` and returns true, if that is known: not of posts, whose wave may have ended. A
    /// handler whose call was given up, at a deadline or by a cancellation, may learn of the wave that calls there now. Only to be
    /// called in the handler.
    ask hostcall_caller_place(caller: &hostcall_caller<'_>, place: &mut MaybeUninit<hostcall_place>) -> bool {
        let found = if caller.is_post { None } else { caller.places.find(caller.caller) };
        let Some((kernel, at)) = found else { return Ok(false) };
        let mut name = [0; 128];
        for (to, from) in name[..127].iter_mut().zip(kernel.bytes()) {
            *to = from as c_char;
        }
        place.write(hostcall_place { workgroup: at.workgroup, wave: at.wave, kernel: name });
        true
    }

    /// Sets the reply's words: the result's value; none are needed where there is no result. Words that were
    /// set before are gone. Of a method that has text or bytes, they are as many as the result has: the caller
    /// takes bytes for words that are missing.
    reply hostcall_reply_words(reply: &mut hostcall_reply<'_>, words: *const u64, count: usize) {
        // SAFETY: CALLER.
        reply.0.words(unsafe { values(words, count, "words") }?)
    }

    /// Appends bytes to the reply, for the caller's `&mut [u8]`, which learns how many there are. Fails with HOSTCALL_STATUS_REFUSED past the call's `reply_capacity`
    /// and when the device's memory for replies is used up.
    reply hostcall_reply_bytes(reply: &mut hostcall_reply<'_>, bytes: *const u8, count: usize) {
        // SAFETY: CALLER.
        let bytes = unsafe { values(bytes, count, "bytes") }?;
        let refused = |error| Failure::new(hostcall_status::Refused, error);
        reply.0.bytes(bytes).map_err(refused)?
    }
}

type PlaceOf = Box<dyn Fn(Caller) -> (Arc<str>, Option<WavePlace>) + Send + Sync>;

/// Finds callers' places, once there is a device.
#[derive(Default)]
pub(crate) struct Places(OnceLock<PlaceOf>);

impl Places {
    pub fn set(&self, device: &Device) {
        // A second device would have places of its own.
        let _ = self.0.set(Box::new(device.server().knows_place()));
    }

    fn find(&self, caller: Caller) -> Option<(Arc<str>, WavePlace)> {
        let (kernel, place) = self.0.get()?(caller);
        Some((kernel, place?))
    }
}

/// A service as a function gets it. Its state is freed if the function fails.
pub struct Offered<'a> {
    service: &'a hostcall_service,
    state: State,
}

impl<'a> Argument for Offered<'a> {
    type Passed = Option<&'a hostcall_service>;
    type Used = Self;

    unsafe fn check(passed: Self::Passed, name: &'static str) -> Result<Self, Failure> {
        let service = get(passed, name)?;
        Ok(Self { service, state: State::new(service.state, service.free_state) })
    }
}

/// The Rust side of a service of the caller's.
pub(crate) struct Served {
    methods: Vec<Method>,
    handler: unsafe extern "C" fn(*mut c_void, &hostcall_call<'_>, &mut hostcall_reply<'_>) -> i32,
    state: State,
    places: Arc<Places>,
}

impl Offered<'_> {
    /// Returns whether its handler runs on the threads that find calls.
    pub(crate) fn is_inline(&self) -> bool {
        self.service.is_inline
    }

    /// Checks and copies the service.
    ///
    /// # Safety
    /// CALLER: the methods and their names are there while this runs.
    pub(crate) unsafe fn accept(self, places: &Arc<Places>) -> Result<Served, Failure> {
        let Self { service, state } = self;
        let handler = get(service.handler, "handler")?;
        // SAFETY: the caller's promise.
        let given = unsafe { values(service.methods, service.method_count, "methods") }?;
        let mut methods = Vec::with_capacity(given.len());
        for hostcall_method { number, name } in given {
            let (check, number) = (number >> 16, *number as u16);
            if check >> CHECK_BITS != 0 {
                let text = format!(
                    "the number of a method is {number:#x}: pass 1 to 65535, or HOSTCALL_METHOD(number, check)"
                );
                return Err(Failure::invalid(text));
            }
            // SAFETY: the caller's promise.
            let name = static_name(unsafe { text(*name, "name") }?);
            if number == 0 {
                let text = format!("{name} has the number 0, by which no kernel calls: pass one from 1 on");
                return Err(Failure::invalid(text));
            }
            // SAFETY: no schema of 20 bits is that of a method that trusts its callers.
            methods.push(unsafe { Method::described(name, number, check, false) });
        }
        Ok(Served { methods, handler, state, places: places.clone() })
    }
}

impl Served {
    fn handle(
        &self,
        method: usize,
        is_post: bool,
        request: Request<'_>,
        reply: &mut dyn Reply,
    ) -> Result<(), CallError> {
        let caller = hostcall_caller { caller: request.caller, is_post, places: &self.places };
        let call = hostcall_call {
            method: method as u32,
            launch: request.caller.launch.to_bits(),
            lane: request.caller.lane.into(),
            is_post,
            words: request.words.as_ptr(),
            word_count: request.words.len(),
            bytes: request.bytes.as_ptr(),
            byte_count: request.bytes.len(),
            reply_capacity: request.reply_capacity,
            caller: &raw const caller,
        };
        // SAFETY: CALLER: it is a function of its type, which any thread may call with the state.
        match unsafe { (self.handler)(self.state.pointer(), &call, &mut hostcall_reply(reply)) } {
            0 => Ok(()),
            code => Err(CallError::Failed(code)),
        }
    }
}

impl Service for Served {
    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        self.handle(method, false, request, reply)
    }

    fn post(&self, method: usize, _extra: u32, request: Request<'_>) {
        let _ = self.handle(method, true, request, &mut hostcall::service::NoReply);
    }
}
