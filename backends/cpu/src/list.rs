//! Dispatches that were checked ([`Checked`], as which single ones go too), and lists of them: what the device takes of a list
//! at once is all of its kernels, under one lock.

use crate::Launch;
use crate::module::CpuKernel;
use crate::queue::{CpuRunning, Operation};
use hostcall_abi::cpu::Entry;
use hostcall_abi::launch::LaunchParams;
use hostcall_seam::{BackendError, Dispatch, Hooks, Kernel, KernelList, Running};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A dispatch that fits the device, but for its token and hooks.
#[derive(Clone)]
pub(crate) struct Checked {
    kernel: Arc<dyn Kernel>,
    entry: Entry,
    pub params: LaunchParams,
    arguments: Vec<u8>,
}

impl Checked {
    pub fn new(dispatch: &Dispatch<'_>) -> Result<Self, BackendError> {
        let kernel: &dyn Any = &**dispatch.kernel;
        let Some(CpuKernel { entry, .. }) = kernel.downcast_ref::<CpuKernel>() else {
            return Err(BackendError::Refused("the kernel is another device's".into()));
        };
        let [params, arguments] = dispatch.parameters else {
            return Err(BackendError::Refused(
                "a kernel of the software device has two parameters: the launch's and its own".into(),
            ));
        };
        if params.len() != size_of::<LaunchParams>() {
            return Err(BackendError::Refused("the launch's parameters have another size".into()));
        }
        // SAFETY: as many bytes as the struct has, which is made of numbers.
        let params = unsafe { params.as_ptr().cast::<LaunchParams>().read_unaligned() };
        let (kernel, entry) = (dispatch.kernel.clone(), *entry);
        Ok(Self { kernel, entry, params, arguments: arguments.to_vec() })
    }

    /// `list` says whether a kernel of the dispatch's list has failed.
    pub fn launch(
        self,
        token: u64,
        hooks: &Arc<dyn Hooks>,
        list: Option<Arc<AtomicBool>>,
    ) -> (Operation, Arc<dyn Running>) {
        let Self { kernel, entry, params, arguments } = self;
        let (notified, failed) = (hooks.clone(), hooks.clone());
        let launch = Launch {
            entry,
            arguments,
            params,
            keep_alive: Box::new(kernel),
            notify: Arc::new(move || notified.notify()),
            on_failure: Arc::new(move || failed.failed(token)),
        };
        let running = Arc::new(CpuRunning::new(list));
        (Operation::Launch(Box::new(launch), running.clone()), running)
    }
}

/// Kernels in a row.
pub(crate) struct CpuList(pub Vec<Checked>);

impl CpuList {
    pub fn new(dispatches: &[Dispatch<'_>]) -> Result<Self, BackendError> {
        Ok(Self(dispatches.iter().map(Checked::new).collect::<Result<_, _>>()?))
    }
}

impl KernelList for CpuList {}
