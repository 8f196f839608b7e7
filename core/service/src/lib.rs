//! What a handler is: services as the host dispatches them, and the calls and posts that their handlers get,
//! one at a time or many at once. For the host only; what a device needs of a service is in
//! [`hostcall_abi::service`].
//!
//! `#[service]` writes a [`Service`] for a trait. One that takes calls of other shapes is written by hand, as
//! below. A handler's panic is contained and answers its lane; whether a handler may wait is said where the
//! service is registered.
//!
//! ```
//! use hostcall_abi::service::Method;
//! use hostcall_abi::status::CallError;
//! use hostcall_service::{Reply, Request, Service, caller};
//!
//! /// Adds up the words of a call, whatever their number is.
//! struct Sums;
//!
//! impl Service for Sums {
//!     fn methods(&self) -> &[Method] {
//!         const { &[Method::untyped("Sums::of", 700)] }
//!     }
//!
//!     fn call(&self, _: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
//!         println!("{:?} calls", caller());
//!         reply.words(&[request.words.iter().sum()]);
//!         Ok(())
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

mod batch;
mod caller;
pub mod gather;
mod service;

pub use batch::{Calls, Lines, Planes, Posts, Replies};
pub use caller::{Caller, called_by, caller};
pub use gather::{Gather, Gathered, GatheredCalls, GatheredService, Wanted};
pub use service::{
    AsyncReply, AsyncService, NoReply, Output, OwnedReply, OwnedRequest, Reply, Request, Service,
};
