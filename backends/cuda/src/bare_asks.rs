//! Graphs whose kernels ask the host, as the driver's own API and one word each way do it: what hostcall's calls in graphs are
//! measured beside.

use crate::conditional::{Decide, conditional_node};
use crate::gpu::Stream;
use crate::list::{Building, List, Listed, doing};
use crate::{DeviceMemory, Error, Gpu, PinnedMemory};
use cudarc::driver::sys;
use hostcall_seam::{Memory, Pinned};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What both kernels do: count the question, ask, and wait for the answer to the question with this number.
macro_rules! ask {
    () => {
        "
    .reg .pred %other;
    .reg .b32 %number, %answer, %of;
    .reg .b64 %request, %reply, %count;
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
"
    };
}

/// The kernel that asks once.
const ASK: &str = concat!(
    "\
.version 7.0
.target sm_52
.address_size 64
.visible .entry ask(.param .u64 request, .param .u64 reply, .param .u64 count)
{",
    ask!(),
    "    ret;
}
"
);

/// The body of a loop: asks once, and tells the driver the answer's lowest bit.
const DECIDE: &str = concat!(
    "\
.version 7.0
.target sm_52
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry ask(.param .u64 request, .param .u64 reply, .param .u64 count, .param .u64 handle)
{
    .reg .b64 %handle;",
    ask!(),
    "    ld.param.u64 %handle, [handle];
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
"
);

/// Bytes between the words, so that neither side's stores disturb the other's.
const STRIDE: usize = 128;

/// Questions are numbers of so many bits.
const NUMBERS: u32 = 1 << 31;

/// A graph of the driver's whose kernels ask the host, and the words of their questions.
pub struct BareAsks {
    gpu: Arc<Gpu>,
    list: List,
    stream: Stream,
    /// The request, and behind it the reply.
    words: PinnedMemory,
    _count: DeviceMemory,
    /// Questions of a launch; of a loop `None`, which goes on as long as it is told to.
    kernels: Option<u32>,
    /// The last question that was answered.
    asked: u32,
}

impl BareAsks {
    /// Makes a graph of so many kernels that follow each other, each of which asks once.
    ///
    /// # Errors
    /// What the driver says.
    pub fn in_row(gpu: &Arc<Gpu>, kernels: u32) -> Result<Self, Error> {
        let function = gpu.load(ASK.as_bytes().to_vec())?.function("ask")?.expect("the text above has it");
        let (words, count) = (gpu.pin(2 * STRIDE)?, gpu.allocate(4)?);
        let mut values = parameters(&words, &count);
        let arguments: Vec<_> = values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let listed = |_| Listed {
            function: &function,
            blocks: [1; 3],
            lanes: [1; 3],
            shared_bytes: 0,
            arguments: arguments.clone(),
            waits: false,
        };
        let mut launches: Vec<_> = (0..kernels).map(listed).collect();
        // SAFETY: the kernel has these parameters, and the memory behind them lives as long as the list.
        let list = unsafe { gpu.list(&mut launches) }?;
        Self::of(gpu, list, words, count, Some(kernels))
    }

    /// Makes a loop that goes on as often as the answer says. `None` when the driver has no conditional nodes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn in_loop(gpu: &Arc<Gpu>) -> Result<Option<Self>, Error> {
        if !Decide::is_possible() {
            return Ok(None);
        }
        let function = gpu.load(DECIDE.as_bytes().to_vec())?.function("ask")?.expect("the text above has it");
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
        let [request, reply, counted] = parameters(&words, &count);
        let mut values = [request, reply, counted, handle];
        let arguments = values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let (blocks, lanes, shared_bytes) = ([1; 3], [1; 3], 0);
        let mut launch = Listed { function: &function, blocks, lanes, shared_bytes, arguments, waits: false };
        // SAFETY: the kernel has these parameters, and the memory behind them lives as long as the list.
        unsafe { building.add(inside, &mut None, &mut launch, false) }?;
        Self::of(gpu, building.list()?, words, count, None).map(Some)
    }

    fn of(
        gpu: &Arc<Gpu>,
        list: List,
        words: PinnedMemory,
        count: DeviceMemory,
        kernels: Option<u32>,
    ) -> Result<Self, Error> {
        let stream = gpu.take_stream()?;
        Ok(Self { gpu: gpu.clone(), list, stream, words, _count: count, kernels, asked: 0 })
    }

    /// Launches a row so often, each time waiting for it if `each_waits`, or a loop once for so many turns, and answers all
    /// questions. Returns how long that took; a thread that answers looks already when it begins. Not to be called again after an
    /// error.
    ///
    /// # Errors
    /// What the driver says.
    pub fn run(&mut self, times: u32, each_waits: bool) -> Result<Duration, Error> {
        let (launches, questions) = match self.kernels {
            Some(kernels) => (times, times * kernels),
            None => (1, times),
        };
        let (looks, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let (this, first) = (&*self, self.asked);
        let took = thread::scope(|scope| {
            scope.spawn(|| this.answer(first, questions, &looks, &is_over));
            while !looks.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            let launched = (0..launches).try_for_each(|_| {
                this.list.launch_on(this.stream.0)?;
                if each_waits { this.synchronize() } else { Ok(()) }
            });
            // What was launched asks, and needs its answers.
            let ended = this.synchronize();
            let took = start.elapsed();
            is_over.store(true, Ordering::Release);
            launched.and(ended).map(|()| took)
        })?;
        self.asked = (self.asked + questions) % NUMBERS;
        Ok(took)
    }

    /// Answers the questions behind `asked`.
    fn answer(&self, asked: u32, questions: u32, looks: &AtomicBool, is_over: &AtomicBool) {
        looks.store(true, Ordering::Release);
        for question in 1..=questions {
            let number = (asked + question) % NUMBERS;
            while self.word(0).load(Ordering::Acquire) % NUMBERS != number {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
            self.word(1).store(number << 1 | u32::from(question < questions), Ordering::Release);
        }
    }

    fn word(&self, place: usize) -> &AtomicU32 {
        // SAFETY: the memory has two such words, which both sides access whole.
        unsafe { self.words.host_address().add(place * STRIDE).cast().as_ref() }
    }

    fn synchronize(&self) -> Result<(), Error> {
        let doing = || "running a graph that asks".to_string();
        // SAFETY: LOADED, with the stream of this.
        self.gpu.run(doing, || unsafe { sys::cuStreamSynchronize(self.stream.0) })
    }
}

impl Drop for BareAsks {
    fn drop(&mut self) {
        // `run` has waited for it, or the GPU has failed.
        self.gpu.give_back_stream(self.stream);
    }
}

/// Addresses of the request, the reply and the count of questions.
fn parameters(words: &PinnedMemory, count: &DeviceMemory) -> [u64; 3] {
    let request = Pinned::address(words).get();
    [request, request + STRIDE as u64, count.address().get()]
}
