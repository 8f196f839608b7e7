//! What a handler is: services as the host dispatches them, and the calls and posts that their handlers get, one at a
//! time or many at once. For the host only; what a device needs of a service is in [`hostcall_abi::service`].
#![forbid(unsafe_code)]

mod batch;
mod caller;
mod service;

pub use batch::{Calls, Lines, Planes, Posts, Replies};
pub use caller::{Caller, called_by, caller};
pub use service::{
    AsyncReply, AsyncService, NoReply, Output, OwnedReply, OwnedRequest, Reply, Request, Service,
};
