//! A loop that asks the host after each turn, as the driver's own API and one word each way do it: what hostcall's loops are
//! measured beside.

use crate::conditional::{Decide, conditional_node};
use crate::gpu::Stream;
use crate::list::{Building, doing};
use crate::{DeviceMemory, Error, Gpu, List, Listed, PinnedMemory};
use cudarc::driver::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel: counts its questions, asks, waits for the answer to the question with this number, and tells the driver the
/// answer's lowest bit.
const PTX: &str = "\
.version 7.0
.target sm_52
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry ask(.param .u64 handle, .param .u64 request, .param .u64 reply, .param .u64 count)
{
    .reg .pred %other;
    .reg .b32 %number, %answer, %of;
    .reg .b64 %handle, %request, %reply, %count;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %request, [request];
    ld.param.u64 %reply, [reply];
    ld.param.u64 %count, [count];
    ld.global.u32 %number, [%count];
    add.u32 %number, %number, 1;
    st.global.u32 [%count], %number;
    st.volatile.global.u32 [%request], %number;
again:
    ld.volatile.global.u32 %answer, [%reply];
    shr.u32 %of, %answer, 1;
    setp.ne.u32 %other, %of, %number;
    @%other bra again;
    and.b32 %answer, %answer, 1;
    {
    .param .b64 param0;
    .param .b32 param1;
    st.param.b64 [param0], %handle;
    st.param.b32 [param1], %answer;
    call.uni cudaGraphSetConditional, (param0, param1);
    }
    ret;
}
";

/// Bytes between the words, so that neither side's stores disturb the other's.
const STRIDE: usize = 128;

/// Questions are numbers of so many bits.
const NUMBERS: u32 = 1 << 31;

/// Looks at the request after which the driver is asked whether the kernel failed.
const LOOKS: u32 = 1 << 20;

/// A graph of the driver's with one loop, and the words of its questions.
pub struct BareLoop {
    gpu: Arc<Gpu>,
    list: List,
    stream: Stream,
    /// The request, and behind it the reply.
    words: PinnedMemory,
    _count: DeviceMemory,
    asked: u32,
}

impl BareLoop {
    /// Makes the loop. `None` when the driver has no conditional nodes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Option<Self>, Error> {
        if !Decide::is_possible() {
            return Ok(None);
        }
        let function = gpu.load(PTX.as_bytes().to_vec())?.function("ask")?.expect("the text above has it");
        let (words, count) = (gpu.pin(2 * STRIDE)?, gpu.allocate(4)?);
        let mut building = Building::new(gpu)?;
        let graph = building.graph;
        let mut handle = 0;
        // SAFETY: LOADED, with the graph and the context that its nodes run in; the result lives through the call. The first
        // turn needs nobody's answer.
        gpu.run(doing, || unsafe {
            let flags = sys::CU_GRAPH_COND_ASSIGN_DEFAULT;
            sys::cuGraphConditionalHandleCreate(&mut handle, graph, gpu.context(), 1, flags)
        })?;
        let inside = conditional_node(gpu, graph, &mut None, handle, true)?;
        let request = words.start().addr().get() as u64;
        let mut values = [handle, request, request + STRIDE as u64, count.address()];
        let arguments = values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let (blocks, lanes, shared_bytes) = ([1; 3], [1; 3], 0);
        let mut launch = Listed { function: &function, blocks, lanes, shared_bytes, arguments, waits: false };
        // SAFETY: the kernel has these parameters, and the memory behind them lives as long as the list.
        unsafe { building.add(inside, &mut None, &mut launch, false) }?;
        let (list, stream) = (building.list()?, gpu.take_stream()?);
        Ok(Some(Self { gpu: gpu.clone(), list, stream, words, _count: count, asked: 0 }))
    }

    fn word(&self, place: usize) -> &AtomicU32 {
        // SAFETY: the memory has two such words, which both sides access whole.
        unsafe { self.words.start().add(place * STRIDE).cast().as_ref() }
    }

    /// Runs the loop for so many turns, of which there is one at least, and answers its questions.
    ///
    /// # Errors
    /// What the driver says.
    pub fn run(&mut self, turns: u32) -> Result<(), Error> {
        self.list.launch_on(self.stream.0)?;
        for left in (0..turns.max(1)).rev() {
            self.asked = (self.asked + 1) % NUMBERS;
            let mut looks = 0u32;
            while self.word(0).load(Ordering::Acquire) % NUMBERS != self.asked {
                looks += 1;
                if looks.is_multiple_of(LOOKS) {
                    self.check()?;
                }
            }
            self.word(1).store(self.asked << 1 | u32::from(left > 0), Ordering::Release);
        }
        let doing = || "running a loop".to_string();
        // SAFETY: LOADED, with the stream of this.
        self.gpu.run(doing, || unsafe { sys::cuStreamSynchronize(self.stream.0) })
    }

    fn check(&self) -> Result<(), Error> {
        let doing = || "running a loop".to_string();
        // SAFETY: LOADED, with the stream of this.
        self.gpu.run(doing, || match unsafe { sys::cuStreamQuery(self.stream.0) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => sys::CUresult::CUDA_SUCCESS,
            result => result,
        })
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        // `run` has waited for it, or the GPU has failed.
        self.gpu.give_back_stream(self.stream);
    }
}
