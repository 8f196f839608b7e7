//! Services as both ends name them: numbers, and methods with the hash of their types.

/// Numbers of the services that come with hostcall. Each is a family whose methods count up from it.
pub mod number {
    /// Reserved: the default service has no number that a device can call.
    pub const DEFAULT: u16 = 0;
    /// Programs and kernels: panic report, exit, format registration, print, and the like.
    pub const SYSTEM: u16 = 1;
    /// A post of a printed line that has a text, or more words than a post carries, in pieces as a panic's, see
    /// `hostcall_format::unformatted`.
    pub const LINE: u16 = SYSTEM + 12;
    /// A post of a text that the lane's next call is about, in pieces as a panic's: the name that the call gives the lane, eight
    /// bytes, and the text.
    pub const TEXT: u16 = SYSTEM + 13;
    /// A post of a panic whose message the host formats, see `hostcall_format::unformatted`.
    pub const PANIC: u16 = SYSTEM + 14;
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
    /// Sockets and names of the network.
    pub const NET: u16 = 160;
    /// What kernels of other compilers print and check.
    pub const FOREIGN: u16 = 192;
    /// A post of a check of such a kernel that has failed, in pieces as a panic's: eight 32-bit words (line, bytes of the file's
    /// name, block, thread), the bytes of the condition and zero, and both texts.
    pub const CHECK: u16 = FOREIGN + 15;
    /// First number that a user may choose.
    pub const USER: u16 = 256;
    /// First number of those derived from a service's name.
    pub const DERIVED: u16 = 0x8000;
}

/// The number of a service whose author chose none: [`number::DERIVED`] plus hash bits of its name, with
/// room for 16 methods before the next.
///
/// FNV-1a carries the last letters of a name to some of its bits only. They are mixed into all of them here,
/// or `Stage1` and `Stage2` had one number.
pub const fn derived_number(name_hash: u64) -> u16 {
    let folded = name_hash ^ (name_hash >> 33);
    let mixed = folded.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number::DERIVED + (((mixed ^ (mixed >> 33)) >> 53) as u16) * 16
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;
    use std::collections::HashSet;

    #[test]
    fn names_that_differ_little_have_numbers_of_their_own() {
        let numbers = |prefix: &str| -> HashSet<u16> {
            ('A'..='Z').map(|last| derived_number(schema::of(&format!("{prefix}{last}")))).collect()
        };
        for prefix in ["", "S", "Stage", "ServiceOfTheHouse"] {
            // Two of 26 meet by chance, in one of six such sets.
            assert!(numbers(prefix).len() >= 25, "{prefix}");
        }
    }

    #[test]
    fn derived_numbers_leave_room_for_methods() {
        for name in 0..10_000u32 {
            let number = derived_number(schema::of(&name.to_string()));
            assert!(number >= number::DERIVED && number.is_multiple_of(16), "{name}: {number}");
        }
    }
}
