//! The closures that kernels of a device may call, and the service that all their calls go to.

use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_device::__private::HOSTCALL_METHOD;
use hostcall_locks::RwLock;
use hostcall_server::{Handler, RegisterError, Server};
use hostcall_service::{Reply, Request, Service};
use std::collections::HashMap;
use std::sync::Arc;

/// What a closure does with the words of a call and where its reply goes.
pub(crate) type Run = dyn Fn(&[u64], &mut dyn Reply) -> Result<(), CallError> + Send + Sync;

/// The closures of a device by id: the one service that all their calls go to.
#[derive(Clone, Default)]
pub(crate) struct Closures {
    pub table: Arc<RwLock<HashMap<u64, Arc<Run>>>>,
}

impl Closures {
    /// Makes the table of a device and registers its service.
    pub fn register(server: &Server) -> Result<Self, RegisterError> {
        let closures = Self::default();
        server.register(Handler::blocking(closures.clone()))?;
        Ok(closures)
    }
}

impl Service for Closures {
    fn methods(&self) -> &[Method] {
        &[HOSTCALL_METHOD]
    }

    fn call(&self, _method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        let (id, arguments) = request.words.split_first().ok_or(CallError::Malformed)?;
        let run = self.table.read().get(id).cloned().ok_or(CallError::NoSuchService)?;
        run(arguments, reply)
    }
}
