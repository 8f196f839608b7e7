//! What both ends of a hostcall channel agree on: statuses, service numbers, the formats of the 64-bit words
//! that cross the link, the layout of shared memory, launch parameters, and the schema hashes by which a
//! call's types are compared.
//!
//! The crate is pure data and arithmetic: it touches no memory, and has `unsafe` only where a struct is read as
//! its bytes ([`bytes`]). Whatever changes a format, a layout or a parameter here changes [`ABI_VERSION`], which
//! host and image compare. A word that a device wrote is read by a function that says `None` to what cannot be.
//!
//! Begin at [`word`], whose page follows one call word by word, then [`layout`] (where everything lies) and
//! [`launch`] (what a kernel is started with).
//!
//! ```
//! use hostcall_abi::word::{Doorbell, Kind, Rung};
//!
//! // What lane 3 of a wave writes when it calls method 0 of service 700 with one word, and waits for two.
//! let doorbell = Doorbell {
//!     service: 700,
//!     lanes: 1,
//!     first_lane: 3,
//!     argument_words: 1,
//!     result_words: 2,
//!     check: 0,
//!     kind: Kind::Words,
//!     after_posts: false,
//!     lines: true,
//! };
//! // What the host makes of it, if it is a doorbell of a wave of 32 lanes. Its top bit is its lap.
//! let rung = Rung::from_word(doorbell.to_word(true), 32).expect("a doorbell");
//! assert_eq!((rung.service(), rung.first_lane(), rung.result_words()), (700, 3, 2));
//! assert_eq!(Rung::from_word(u64::MAX, 32), None);
//! ```
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

pub mod bytes;
pub mod context;
pub mod cpu;
pub mod io;
pub mod launch;
pub mod layout;
pub mod raw;
pub mod record;
pub mod schema;
pub mod service;
pub mod status;
pub mod trace;
pub mod waits;
pub mod wire;
pub mod word;

pub use status::{CallError, Status};

/// Version of everything in this crate. Host and device refuse to work together when it differs.
pub const ABI_VERSION: u32 = 27;

/// Most lanes a wave can have (AMD's wave64).
pub const MAX_LANES: usize = 64;

/// Most argument or result words that travel in a slot's own lines. Longer values go as bytes.
pub const MAX_WORDS: usize = 7;
