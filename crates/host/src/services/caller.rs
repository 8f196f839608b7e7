//! Who calls, for handlers whose trait does not say it.

use hostcall_abi::service::{Caller, Method, Reply, Request, Service};
use hostcall_abi::status::CallError;
use std::cell::Cell;

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller { launch: 0, slot: 0, lane: 0 }) };
}

/// A service whose handlers may ask for the [`caller`].
pub(super) struct WithCaller<S>(pub S);

/// Who made the call that this thread handles.
pub(super) fn caller() -> Caller {
    CALLER.get()
}

impl<S: Service> Service for WithCaller<S> {
    fn methods(&self) -> &[Method] {
        self.0.methods()
    }

    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        CALLER.set(request.caller);
        self.0.call(method, request, reply)
    }
}
