//! Kernels of other compilers, as streams launch them and graphs keep them.

use super::error::{Error, LaunchRefused};
use super::grid::Grid;
use super::hostcalls::Serving;
use super::inner::Inner;
use super::stream::{Parameters, Parts};
use super::words::StreamWords;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::LAUNCHES;
use hostcall_abi::raw::ForeignRawParams;
use hostcall_seam::{HiddenParameters, Kernel};
use smallvec::SmallVec;
use std::sync::Arc;

/// Raw channels among the arguments of a launch: where each begins, and what it is but for the launch's own.
pub type RawArguments = SmallVec<[(usize, ForeignRawParams); 2]>;

/// A kernel of another compiler.
#[derive(Clone)]
pub struct ForeignKernel {
    pub name: Arc<str>,
    pub code: Arc<dyn Kernel>,
    pub hidden: HiddenParameters,
    /// Answers its calls, until the last launch has ended.
    pub serving: Option<Arc<Serving>>,
}

impl ForeignKernel {
    /// Adds to a launch's arguments what else it has.
    pub fn fill(&self, grid: Grid, parts: &mut Parts) {
        (parts.kernel, parts.runs_to_end) = (Some(self.code.clone()), true);
        (parts.workgroups, parts.lanes) = (grid.workgroups, grid.workgroup_size);
        (parts.workgroup_bytes, parts.hidden) = (grid.workgroup_memory_bytes, self.hidden);
        parts.values.extend(self.serving.iter().map(|serving| Arc::new(serving.answer()) as _));
    }

    /// Begins a launch, whose raw channels learn which it is.
    pub fn begin(
        &self,
        device: &Inner,
        grid: Grid,
        raw: &RawArguments,
        parameters: &mut Parameters,
        sequence: u64,
        words: &StreamWords,
    ) -> Result<LaunchId, Error> {
        let record = grid.record(self.name.clone());
        let limit = LAUNCHES as usize;
        let launch = device.server.begin(record).map_err(|_| LaunchRefused::TooManyLaunches { limit })?;
        let stop_at = words.stop_at().get();
        for &(at, params) in raw {
            let params = ForeignRawParams { launch, stop_at, sequence, ..params };
            parameters.set_at(at, params.as_bytes());
        }
        Ok(launch)
    }
}
