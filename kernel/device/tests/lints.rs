//! What a package forbids, denies and allows holds for what it writes, and not for what the macros make of
//! it.

#![forbid(unsafe_code)]
#![deny(deprecated, missing_docs)]

use hostcall_device::{Lane, Plain, Shared, Wire, kernel, println, service};

/// A struct that is not to be used.
#[deprecated]
#[repr(C)]
#[derive(Clone, Copy, Plain, Wire)]
pub struct Old(#[deprecated] u32);

/// What has a variant that is not to be used.
#[derive(Clone, Copy, Wire)]
pub enum Mixed {
    /// As it was.
    #[deprecated]
    Before,
    /// As it is.
    Now,
}

#[allow(missing_docs, reason = "it is what the test is about")]
#[kernel]
pub fn bare(lane: &Lane, #[workgroup] tile: &[Shared<u32>; 2]) {
    let _ = (lane, tile);
    println!("{}", 1);
}

#[allow(missing_docs, reason = "it is what the test is about")]
#[deprecated]
#[service]
pub trait Undocumented {
    fn first(mixed: Mixed, name: &str) -> u32;
    fn second();
}

#[test]
fn nothing_is_said_of_what_macros_make() {
    assert_eq!((bare.name(), <Mixed as Wire>::WORDS), ("bare", 1));
}
