//! The services that come with hostcall, beside [`crate::system`]. Kernels use them through [`crate::fs`],
//! [`crate::io`], [`crate::env`], [`crate::heap`] and [`crate::time`]; the host implements their handlers.

mod clock;
mod environment;
mod files;
mod folders;
mod foreign;
mod heap;
mod net;
mod stdio;
mod trace;

pub use clock::*;
pub use environment::*;
pub use files::*;
pub use folders::*;
pub use foreign::*;
pub use heap::*;
pub use net::*;
pub use stdio::*;
pub use trace::*;
