//! What both ends of a hostcall channel agree on: statuses, service numbers, the formats of the 64-bit
//! words that cross the link, the layout of shared memory, launch parameters, and the schema hashes by
//! which a call's types are compared. Pure data and arithmetic: no memory is touched here.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod cpu;
pub mod launch;
pub mod layout;
pub mod schema;
pub mod service;
pub mod status;
pub mod wire;
pub mod word;

pub use status::{CallError, Status};

/// Version of everything in this crate. Host and device refuse to work together when it differs.
pub const ABI_VERSION: u32 = 6;

/// Most lanes a wave can have (AMD's wave64).
pub const MAX_LANES: usize = 64;

/// Most argument or result words that travel in a slot's own lines. Longer values go as bytes.
pub const MAX_WORDS: usize = 7;
