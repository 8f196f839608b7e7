//! Kernels of other compilers, as streams launch them and graphs keep them.

use super::error::Error;
use super::grid::Grid;
use super::hostcalls::Serving;
use super::inner::Inner;
use super::prepare::begin_with;
use super::stream::{Parameters, Parts};
use super::words::StreamWords;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::ForeignRawParams;
use hostcall_locks::{Mutex, MutexGuard};
use hostcall_seam::{HiddenParameters, Kernel};
use hostcall_server::{CancelReason, LaunchRecord};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// Arguments that are each launch's own, with where they begin.
pub type OwnArguments = SmallVec<[(usize, OwnArgument); 2]>;

/// An argument that says which launch it is.
#[derive(Clone)]
pub enum OwnArgument {
    /// A raw channel: what it is but for the launch's own.
    Raw(ForeignRawParams),
    /// A context, by the launch that it is now.
    Context(Arc<CurrentLaunch>),
}

/// The launch that a context is now; `None` once it was dropped.
pub(crate) struct CurrentLaunch(Mutex<Option<LaunchId>>);

/// Returns the context by which a launch with these arguments calls in its own name: the first. Calls by another one are that
/// context's.
fn context_of(own: &OwnArguments) -> Option<&Arc<CurrentLaunch>> {
    own.iter().find_map(|(_, argument)| match argument {
        OwnArgument::Context(context) => Some(context),
        OwnArgument::Raw(_) => None,
    })
}

/// A kernel of another compiler.
#[derive(Clone)]
pub struct ForeignKernel {
    pub name: Arc<str>,
    pub code: Arc<dyn Kernel>,
    pub hidden: HiddenParameters,
    /// Answers its calls, until the last launch has ended.
    pub serving: Option<Arc<Serving>>,
    /// The same of calls by LLVM's protocol.
    pub ports: Option<ForeignPorts>,
}

/// What answers calls by LLVM's protocol.
#[derive(Clone)]
pub struct ForeignPorts {
    /// Where the ports are on the device: no others are there meanwhile.
    pub address: u64,
    pub serving: Arc<dyn Any + Send + Sync>,
}

impl ForeignKernel {
    /// Adds to a launch's arguments what else it has.
    pub fn fill(&self, grid: Grid, own: &OwnArguments, parts: &mut Parts) {
        (parts.kernel, parts.runs_to_end) = (Some(self.code.clone()), true);
        (parts.workgroups, parts.lanes) = (grid.workgroups, grid.workgroup_size);
        (parts.workgroup_bytes, parts.hidden) = (grid.workgroup_memory_bytes, self.hidden);
        parts.has_context = context_of(own).is_some();
        parts.values.extend(self.ports.iter().map(|ports| ports.serving.clone()));
        parts.values.extend(self.serving.iter().map(|serving| Arc::new(serving.answer()) as _));
    }

    /// Begins a launch, whose raw channels and context learn which it is.
    pub fn begin(
        &self,
        device: &Inner,
        grid: Grid,
        own: &OwnArguments,
        parameters: &mut Parameters,
        sequence: u64,
        words: &StreamWords,
    ) -> Result<LaunchId, Error> {
        let record = grid.record(self.name.clone());
        let called_by = context_of(own);
        let launch = match called_by {
            Some(context) => context.begin(device, record)?,
            None => begin_with(device, record)?,
        };
        let stop_at = words.stop_at().get();
        for (at, argument) in own {
            match argument {
                OwnArgument::Raw(params) => {
                    let params = ForeignRawParams { launch, stop_at, sequence, ..*params };
                    parameters.set_at(*at, params.as_bytes());
                }
                OwnArgument::Context(context) if called_by.is_some_and(|by| Arc::ptr_eq(by, context)) => {
                    parameters.set_at(*at, &words.context().get().to_le_bytes());
                }
                OwnArgument::Context(_) => {}
            }
        }
        if let Some(ports) = &self.ports {
            device.llvm_calls.began(launch, ports.address);
        }
        Ok(launch)
    }
}

impl CurrentLaunch {
    pub fn new(launch: LaunchId) -> Self {
        Self(Mutex::new(Some(launch)))
    }

    /// Keeps the context from being replaced by another launch, or dropped, meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Option<LaunchId>> {
        self.0.lock()
    }

    /// Begins a launch with the context, which is cancelled with it. Where the context is gone, its calls end at once.
    fn begin(&self, device: &Inner, record: LaunchRecord) -> Result<LaunchId, Error> {
        // Under the lock: the context is not replaced meanwhile.
        let context = self.lock();
        let launch = begin_with(device, LaunchRecord { context: context.unwrap_or_default(), ..record })?;
        if context.is_none() {
            device.server.cancel(launch, CancelReason::Asked);
        }
        Ok(launch)
    }
}
