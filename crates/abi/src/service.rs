//! Services as both ends name them: numbers, and methods with the hash of their types.

/// Numbers of the services that come with hostcall. Each is a family whose methods count up from it.
pub mod number {
    /// Reserved: the default service has no number that a device can call.
    pub const DEFAULT: u16 = 0;
    /// Programs and kernels: panic report, exit, format registration, print, and the like.
    pub const SYSTEM: u16 = 1;
    /// The post of one printed line whose format is registered: the post's 32 extra bits are the format's id,
    /// its words the arguments.
    pub const PRINT: u16 = SYSTEM + 15;
    /// Heap.
    pub const HEAP: u16 = 32;
    /// Files and standard streams.
    pub const FILES: u16 = 64;
    /// Arguments and environment.
    pub const ENVIRONMENT: u16 = 96;
    /// Clocks.
    pub const CLOCK: u16 = 112;
    /// Trace points.
    pub const TRACE: u16 = 120;
    /// Closures of the host: `Hostcall`.
    pub const HOSTCALL: u16 = 128;
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

/// One method of a service: what `#[service]` says of it, which nobody changes. So a method whose handler trusts its callers is
/// called by no safe function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    name: &'static str,
    number: u16,
    schema: u64,
    is_unsafe: bool,
}

impl Method {
    /// A method that takes any words and checks them itself.
    pub const fn untyped(name: &'static str, number: u16) -> Self {
        Self { name, number, schema: 0, is_unsafe: false }
    }

    /// A method that a macro describes.
    ///
    /// # Safety
    /// `is_unsafe` says whether the handler of a method with this number and schema trusts its callers.
    #[doc(hidden)]
    #[allow(unsafe_code, reason = "it does nothing unsafe, and says what its caller promises")]
    pub const unsafe fn described(name: &'static str, number: u16, schema: u64, is_unsafe: bool) -> Self {
        Self { name, number, schema, is_unsafe }
    }

    /// Returns its full name, as `Inventory::lookup`.
    #[inline(always)]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number that a doorbell carries.
    #[inline(always)]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Returns the hash of name and types; 0 for a method that takes any words and checks them itself.
    #[inline(always)]
    pub const fn schema(&self) -> u64 {
        self.schema
    }

    /// Returns whether its handler trusts its callers to keep conditions, so that kernels call it by an `unsafe fn` only.
    #[inline(always)]
    pub const fn is_unsafe(&self) -> bool {
        self.is_unsafe
    }
}
