//! Closures of the host that kernels call: [`HostcallRef`], the kernel's side of the host's `Hostcall`.

use crate::call::{CallOptions, Pending, call_any};
use crate::kernel::KernelArg;
use crate::lane::Lane;
use crate::pending::start;
use core::marker::PhantomData;
use hostcall_abi::schema;
use hostcall_abi::service::{Method, number};
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;

/// A host's `Hostcall`, a closure from `A` to `R`, as a kernel gets it for a parameter. `A` is one value or a tuple of
/// values.
///
/// ```
/// use hostcall_device::{Global, HostcallRef, Lane, kernel};
///
/// #[kernel]
/// fn add(lane: &Lane, y: &[Global<f32>], add: HostcallRef<f32, f32>) {
///     // One call of the whole workgroup.
///     let sum = lane.once_per_workgroup(|| add.call(y[0].get()).unwrap());
///     y[lane.global_id()].set(sum);
/// }
/// ```
pub struct HostcallRef<A, R> {
    id: u64,
    types: PhantomData<fn(A) -> R>,
}

/// The method that calls of all closures are sent to, with the closure's id before their arguments. Nothing is left to
/// compare: a kernel's schema has the closure's types in it, and no two closures of a process have the same id.
#[doc(hidden)]
pub const METHOD: Method = Method::untyped("Hostcall", number::HOSTCALL);

impl<A, R> Clone for HostcallRef<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for HostcallRef<A, R> {}

impl<A: Wire, R: Wire> HostcallRef<A, R> {
    /// Runs the closure on the host, for this lane, and waits for its result. For one call of a whole wave or
    /// workgroup, call it in [`crate::Lane::once_per_wave`] or [`crate::Lane::once_per_workgroup`].
    ///
    /// # Errors
    /// The call's status: [`CallError::NoSuchService`] when the closure takes no more calls, or belongs to another
    /// device.
    pub fn call(&self, arguments: A) -> Result<R, CallError> {
        call_any(&METHOD, CallOptions::DEFAULT, &(self.id, arguments))
    }

    /// Runs the closure without waiting for it yet. `lane` is whoever calls.
    pub fn start<'launch>(&self, lane: &'launch Lane, arguments: A) -> Pending<'launch, R> {
        start(lane, &METHOD, CallOptions::DEFAULT, &(self.id, arguments))
    }
}

// SAFETY: the id is a `u64` on every target.
unsafe impl<A: Wire + 'static, R: Wire + 'static> KernelArg for HostcallRef<A, R> {
    type Raw = u64;
    type Value<'launch> = HostcallRef<A, R>;
    const SCHEMA: u64 = schema::add_hash(schema::add_hash(schema::of("hostcall"), A::SCHEMA), R::SCHEMA);
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: u64) -> Self::Value<'launch> {
        HostcallRef { id: raw, types: PhantomData }
    }
    fn write(raw: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&raw.to_ne_bytes());
    }
}
