//! One-call objects on the device: a host closure passed to a kernel as an argument.

use crate::call::{CallOptions, Pending, call, start};
use crate::kernel::KernelArg;
use core::marker::PhantomData;
use hostcall_abi::schema;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;

/// A host closure from `A` to `R` that a kernel got as an argument. `A` is one value or a tuple of values.
pub struct RemoteCall<A, R> {
    number: u16,
    types: PhantomData<fn(A) -> R>,
}

impl<A, R> Clone for RemoteCall<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for RemoteCall<A, R> {}

impl<A: Wire, R: Wire> RemoteCall<A, R> {
    /// Hash of the types, which both sides compare.
    pub const SCHEMA: u64 =
        schema::add_hash(schema::add_hash(schema::of("remote call"), A::SCHEMA), R::SCHEMA);

    fn method(&self) -> Method {
        Method { name: "a closure", number: self.number, schema: Self::SCHEMA }
    }

    /// Runs the closure on the host, for this lane, and waits for its result. For one call of a whole wave or
    /// workgroup, call it in [`crate::Lane::once_per_wave`] or [`crate::Lane::once_per_workgroup`].
    ///
    /// # Errors
    /// The call's status: [`CallError::NoSuchService`] once the closure takes no more calls.
    pub fn call(&self, arguments: A) -> Result<R, CallError> {
        call(&self.method(), CallOptions::DEFAULT, &arguments)
    }

    /// Runs the closure without waiting for it yet.
    pub fn start(&self, arguments: A) -> Pending<R> {
        start(&self.method(), CallOptions::DEFAULT, &arguments)
    }
}

// SAFETY: the number is a `u64` on every target.
unsafe impl<A: Wire, R: Wire> KernelArg for RemoteCall<A, R> {
    type Raw = u64;
    type Value<'a> = RemoteCall<A, R>;
    const SCHEMA: u64 = Self::SCHEMA;
    #[inline(always)]
    unsafe fn from_raw<'a>(raw: u64) -> Self::Value<'a> {
        RemoteCall { number: raw as u16, types: PhantomData }
    }
}
