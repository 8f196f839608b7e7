//! Services as the host dispatches them: numbers, and the form in which a handler gets a request.

use crate::status::CallError;

/// Numbers of the services that come with hostcall. Each is a family whose methods count up from it.
pub mod number {
    /// Reserved: the default service has no number that a device can call.
    pub const DEFAULT: u16 = 0;
    /// Programs and kernels: panic report, exit, format registration, print, and the like.
    pub const SYSTEM: u16 = 1;
    /// Heap.
    pub const HEAP: u16 = 32;
    /// Files and standard streams.
    pub const FILES: u16 = 64;
    /// Arguments and environment.
    pub const ENVIRONMENT: u16 = 96;
    /// Clocks.
    pub const CLOCK: u16 = 112;
    /// First number that a user may choose.
    pub const USER: u16 = 256;
    /// First number of those derived from a service's name.
    pub const DERIVED: u16 = 0x8000;
}

/// The number of a service whose author chose none: [`number::DERIVED`] plus hash bits of its name, with
/// room for 16 methods before the next.
pub const fn derived_number(name_hash: u64) -> u16 {
    number::DERIVED + (((name_hash >> 20) as u16 & 0x7ff) << 4)
}

/// A request as a handler gets it: the host's own copy, so that a device cannot change it any more.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Argument words.
    pub words: &'a [u64],
    /// The bytes of the call's slices, one after the other.
    pub bytes: &'a [u8],
    /// Most bytes of reply (without result words) that the caller takes.
    pub reply_capacity: usize,
    /// Who calls.
    pub caller: Caller,
}

/// Who calls, as far as the device can be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Number of the launch that has the slot, 0 when none has.
    pub launch: u64,
    /// The channel's slot.
    pub slot: u32,
    /// Index of the lane in its wave.
    pub lane: u8,
}

/// Where a handler puts its reply.
pub trait Reply {
    /// Sets the result words, at most `words.len()` of what the caller asked for.
    fn words(&mut self, words: &[u64]);
    /// Appends bytes to the reply. Fails with [`CallError::TooLarge`] past the caller's capacity.
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError>;
}

/// One method of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Full name, as `Inventory::lookup`.
    pub name: &'static str,
    /// The number that a doorbell carries.
    pub number: u16,
    /// Hash of name and types.
    pub schema: u64,
}

/// A set of methods with their handler. `#[service]` makes one from a trait.
pub trait Service: Send + Sync + 'static {
    /// The methods. Their numbers are dispatched to [`Service::call`] by their index here.
    fn methods(&self) -> &'static [Method];
    /// Handles a call of method `method`. An `Err` becomes the caller's status.
    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError>;
}
